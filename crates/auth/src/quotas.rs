//! How much clients have taken: a bucket for all that share a limit.
//!
//! Kafka looks at the rate of the last eleven seconds, so that a client may take ten seconds' worth at once, and then waits as long. Here a
//! bucket fills at the rate of the limit and holds a second's worth: over time as much is let through, and no client's neighbours see ten
//! seconds of full speed. What is taken is taken whole, so a bucket may be in debt; the client that brings it there, or comes while it is, waits until
//! it is repaid, at most [`THROTTLE_MS_MAX`] ([`REQUESTS_THROTTLE_MS_MAX`] for time of threads, as with Kafka).

use crate::quota::{QuotaEntity, QuotaKind, QuotaLimits, QuotaTable, Share, find};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest throttle time, and the most that is remembered of a debt. Milliseconds.
pub const THROTTLE_MS_MAX: u64 = 5 * 60 * 1_000;
/// The same for time of threads. Milliseconds.
pub const REQUESTS_THROTTLE_MS_MAX: u64 = 1_000;
/// Buckets that are there at a time. Who comes when there are more shares one with all others that do: names of clients are theirs to choose.
pub const BUCKETS_MAX: usize = 65_536;
/// How often unused buckets are looked for, when there are so many. Milliseconds.
const SWEEP_MS: u64 = 1_000;
/// How much a bucket holds. Seconds of its rate.
const BURST_S: f64 = 1.0;
/// Nanoseconds of a thread in a second, a hundredth.
const NS_PER_PERCENT: f64 = 1e7;

/// A limit, and what is left of it. Shared by all connections that it is for.
#[derive(Debug)]
pub struct Bucket {
    /// What comes a second: bytes, or nanoseconds of a thread.
    per_s: f64,
    wait_ms_max: u64,
    level: Mutex<Level>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Below 0 it is in debt.
    left: f64,
    at_ms: u64,
}

impl Bucket {
    fn new(kind: QuotaKind, limit: f64, now_ms: u64) -> Bucket {
        let (per_s, wait_ms_max) = match kind {
            QuotaKind::Produce | QuotaKind::Fetch => (limit, THROTTLE_MS_MAX),
            QuotaKind::Requests => (limit * NS_PER_PERCENT, REQUESTS_THROTTLE_MS_MAX),
        };
        Bucket { per_s, wait_ms_max, level: Mutex::new(Level { left: per_s * BURST_S, at_ms: now_ms }) }
    }

    /// Takes so much; returns how long its client has to wait before its next request is processed. Milliseconds.
    pub fn take(&self, amount: u64, now_ms: u64) -> u64 {
        let mut level = self.level.lock();
        let past_ms = now_ms.saturating_sub(level.at_ms);
        let come = self.per_s * past_ms as f64 / 1e3;
        let floor = -self.per_s * self.wait_ms_max as f64 / 1e3;
        let left = ((level.left + come).min(self.per_s * BURST_S) - amount as f64).max(floor);
        *level = Level { left, at_ms: level.at_ms.max(now_ms) };
        drop(level);
        if left >= 0.0 {
            return 0;
        }
        // No more than the bound, which is far below what a double holds exactly.
        ((-left / self.per_s * 1e3).ceil() as u64).min(self.wait_ms_max)
    }

    /// How long it takes until what was taken is repaid. Milliseconds.
    pub fn debt_ms(&self, now_ms: u64) -> u64 {
        self.take(0, now_ms)
    }

    /// What it holds when nothing is taken.
    #[must_use]
    pub fn burst(&self) -> u64 {
        (self.per_s * BURST_S).max(1.0) as u64
    }
}

/// What holds for a client.
#[derive(Clone, Debug, Default)]
pub struct ClientQuota {
    buckets: [Option<Arc<Bucket>>; QuotaKind::ALL.len()],
}

impl ClientQuota {
    /// The limit of a kind, if there is one.
    #[must_use]
    pub fn bucket(&self, kind: QuotaKind) -> Option<&Arc<Bucket>> {
        self.buckets.get(kind.at())?.as_ref()
    }
}

/// The buckets, by who shares them.
#[derive(Debug, Default)]
struct Buckets {
    by_share: BTreeMap<Share, Arc<Bucket>>,
    /// When unused ones were removed last. Monotonic milliseconds.
    swept_ms: u64,
}

impl Buckets {
    /// Whether there may be one more. Where there may not, unused buckets without a debt go first.
    fn has_room(&mut self, now_ms: u64) -> bool {
        if self.by_share.len() >= BUCKETS_MAX && now_ms >= self.swept_ms.saturating_add(SWEEP_MS) {
            self.swept_ms = now_ms;
            self.by_share.retain(|_, bucket| Arc::strong_count(bucket) > 1 || bucket.debt_ms(now_ms) > 0);
        }
        self.by_share.len() < BUCKETS_MAX
    }
}

/// See the module. Limits are set by [`Quotas::set`]; what was taken is soft state.
#[derive(Debug, Default)]
pub struct Quotas {
    table: RwLock<QuotaTable>,
    /// Of what is set: 0 as long as nothing is.
    version: AtomicU64,
    changes: AtomicU64,
    buckets: Mutex<Buckets>,
    throttled: [AtomicU64; QuotaKind::ALL.len()],
}

impl Quotas {
    /// What is to be looked up anew when it is another than before; 0 where there are no quotas at all.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// What is set for an entity from now on; nothing where that is empty.
    pub fn set(&self, entity: &QuotaEntity, limits: QuotaLimits) {
        let mut table = self.table.write();
        if limits.is_empty() {
            table.remove(entity);
        } else {
            table.insert(entity.clone(), limits);
        }
        self.changed(&table);
    }

    /// What is set, all of it.
    pub fn fill(&self, all: QuotaTable) {
        let mut table = self.table.write();
        *table = all;
        self.changed(&table);
    }

    fn changed(&self, table: &QuotaTable) {
        let change = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        self.version.store(if table.is_empty() { 0 } else { change }, Ordering::Release);
    }

    /// How many entities have something set.
    #[must_use]
    pub fn table_len(&self) -> usize {
        self.table.read().len()
    }

    /// What is set, by entity.
    #[must_use]
    pub fn table(&self) -> QuotaTable {
        self.table.read().clone()
    }

    /// What holds for a client that calls itself so.
    #[must_use]
    pub fn of(&self, user: &str, client_id: &str, now_ms: u64) -> ClientQuota {
        let table = self.table.read();
        let mut quota = ClientQuota::default();
        for (kind, place) in QuotaKind::ALL.into_iter().zip(&mut quota.buckets) {
            *place = find(&table, kind, user, client_id).map(|(limit, share)| self.bucket(share, limit, now_ms));
        }
        quota
    }

    /// The bucket of those who share this; a new one where the limit is another than before.
    fn bucket(&self, share: Share, limit: f64, now_ms: u64) -> Arc<Bucket> {
        let mut buckets = self.buckets.lock();
        let new = Bucket::new(share.kind, limit, now_ms);
        let known = buckets.by_share.get(&share);
        if let Some(known) = known.filter(|known| known.per_s.to_bits() == new.per_s.to_bits()) {
            return known.clone();
        }
        if known.is_none() && !buckets.has_room(now_ms) {
            let everybody = Share { kind: share.kind, user: None, client_id: None };
            return buckets.by_share.entry(everybody).or_insert_with(|| Arc::new(new)).clone();
        }
        let new = Arc::new(new);
        buckets.by_share.insert(share, new.clone());
        new
    }

    /// Buckets that are there.
    #[must_use]
    pub fn bucket_count(&self) -> usize {
        self.buckets.lock().by_share.len()
    }

    /// A client was throttled by its quota of a kind.
    pub fn count_throttled(&self, kind: QuotaKind) {
        if let Some(count) = self.throttled.get(kind.at()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often clients were.
    #[must_use]
    pub fn throttled(&self, kind: QuotaKind) -> u64 {
        self.throttled.get(kind.at()).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::QuotaName;

    fn of_user(user: &str) -> QuotaEntity {
        let user = if user == "*" { QuotaName::Others } else { QuotaName::Named(user.to_owned()) };
        QuotaEntity { user: Some(user), client_id: None }
    }

    fn limits(values: &[(QuotaKind, f64)]) -> QuotaLimits {
        let mut limits = QuotaLimits::default();
        values.iter().for_each(|(kind, value)| limits.set(*kind, Some(*value)));
        limits
    }

    #[test]
    fn a_bucket_lets_a_second_through_and_then_its_rate() {
        let bucket = Bucket::new(QuotaKind::Produce, 1_000.0, 0);
        assert_eq!((bucket.take(1_000, 0), bucket.take(500, 0)), (0, 500));
        // The half of the debt is repaid.
        assert_eq!((bucket.debt_ms(250), bucket.take(1_000, 250)), (250, 1_250));
        assert_eq!((bucket.debt_ms(1_499), bucket.debt_ms(1_500)), (1, 0));
        // Nothing is saved beyond a second.
        assert_eq!((bucket.take(1_000, 60_000), bucket.take(1, 60_000)), (0, 1));
        // A clock that stands or goes back gives nothing.
        assert_eq!(bucket.take(0, 59_000), 1);
        assert_eq!(bucket.burst(), 1_000);
    }

    #[test]
    fn nobody_waits_for_longer_than_the_bound() {
        let bucket = Bucket::new(QuotaKind::Fetch, 1.0, 0);
        assert_eq!(bucket.take(u64::MAX, 0), THROTTLE_MS_MAX);
        assert_eq!((bucket.debt_ms(THROTTLE_MS_MAX - 1), bucket.debt_ms(THROTTLE_MS_MAX)), (1, 0));
        // Half of a thread: 600 ms of it are 100 ms too much.
        let threads = Bucket::new(QuotaKind::Requests, 50.0, 0);
        assert_eq!((threads.take(600_000_000, 0), threads.take(60_000_000_000, 0)), (200, REQUESTS_THROTTLE_MS_MAX));
    }

    /// Over time a limit is what goes through, however it is asked for.
    #[test]
    fn over_time_the_limit_is_what_goes_through() {
        for request in [10_u64, 997, 40_000] {
            let bucket = Bucket::new(QuotaKind::Produce, 10_000.0, 0);
            let (mut now_ms, mut sent) = (0, 0);
            while now_ms < 600_000 {
                sent += request;
                now_ms += bucket.take(request, now_ms).max(1);
            }
            let per_s = sent as f64 / (now_ms as f64 / 1e3);
            assert!((9_900.0..10_200.0).contains(&per_s), "{request} bytes a request: {per_s} bytes/s");
        }
    }

    #[test]
    fn who_shares_a_limit_has_one_bucket() {
        let quotas = Quotas::default();
        assert_eq!(quotas.version(), 0);
        quotas.set(&of_user("*"), limits(&[(QuotaKind::Produce, 5.0)]));
        let first = quotas.version();
        assert_ne!(first, 0);
        let of = |user, client| quotas.of(user, client, 0).bucket(QuotaKind::Produce).cloned().unwrap();
        assert!(Arc::ptr_eq(&of("ann", "a"), &of("ann", "b")) && !Arc::ptr_eq(&of("ann", "a"), &of("bob", "a")));
        assert!(quotas.of("ann", "a", 0).bucket(QuotaKind::Fetch).is_none());
        let before = of("ann", "a");
        before.take(100, 0);
        // Another limit is another bucket, a new entity that changes nothing for her is not.
        quotas.set(&of_user("bob"), limits(&[(QuotaKind::Produce, 7.0)]));
        assert!(Arc::ptr_eq(&before, &of("ann", "a")) && quotas.version() != first);
        quotas.set(&of_user("*"), limits(&[(QuotaKind::Produce, 6.0)]));
        assert!(!Arc::ptr_eq(&before, &of("ann", "a")));
        assert_eq!(quotas.table().len(), 2);
        quotas.set(&of_user("*"), QuotaLimits::default());
        quotas.set(&of_user("bob"), QuotaLimits::default());
        assert_eq!((quotas.version(), quotas.table().len()), (0, 0));
    }

    /// A client that makes up client ids costs a bounded amount of memory, and gets no more by it.
    #[test]
    fn made_up_names_are_bounded() {
        let quotas = Quotas::default();
        let others = QuotaEntity { user: None, client_id: Some(QuotaName::Others) };
        quotas.set(&others, limits(&[(QuotaKind::Produce, 1.0)]));
        let bucket = |name: usize| quotas.of("ann", &name.to_string(), 0).bucket(QuotaKind::Produce).cloned().unwrap();
        for name in 0..BUCKETS_MAX {
            // In debt, so that it stays.
            bucket(name).take(10, 0);
        }
        assert_eq!(quotas.bucket_count(), BUCKETS_MAX);
        let late = bucket(BUCKETS_MAX);
        assert!(Arc::ptr_eq(&late, &bucket(BUCKETS_MAX + 1)));
        assert_eq!(quotas.bucket_count(), BUCKETS_MAX + 1);
        // Once their debts are repaid there is room again.
        let _ = quotas.of("ann", "another", 60_000);
        assert!(quotas.bucket_count() <= 2);
    }
}
