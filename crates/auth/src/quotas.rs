//! Enforcement of client quotas: one token bucket for all clients that share a limit.
//!
//! Kafka measures the rate over the last eleven seconds, so that a client may use ten seconds' worth in one burst, and is then throttled as
//! long. Here a bucket fills at the rate of the limit and holds one second's worth: the long-term rate is the same, without bursts of ten
//! seconds at full speed. A request is always charged in full, so a bucket may be in debt; its clients are throttled until the debt is
//! repaid, at most [`THROTTLE_MS_MAX`] ([`REQUESTS_THROTTLE_MS_MAX`] for thread time, as with Kafka).

use crate::quota::{QuotaEntity, QuotaKind, QuotaLimits, QuotaTable, Share, find};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest throttle time, and the bound of a debt. Milliseconds.
pub const THROTTLE_MS_MAX: u64 = 5 * 60 * 1_000;
/// The same for thread time. Milliseconds.
pub const REQUESTS_THROTTLE_MS_MAX: u64 = 1_000;
/// The most buckets. Clients beyond it share one bucket: client ids are chosen by clients, so their number must be bounded.
pub const BUCKETS_MAX: usize = 65_536;
/// Least interval between removals of unused buckets at the bound. Milliseconds.
const SWEEP_MS: u64 = 1_000;
/// Capacity of a bucket. Seconds of its rate.
const BURST_S: f64 = 1.0;
/// Nanoseconds of a thread in a second, a hundredth.
const NS_PER_PERCENT: f64 = 1e7;

/// A limit and the balance of its bucket. Shared by all connections to which the limit applies.
#[derive(Debug)]
pub struct Bucket {
    /// Fill rate a second: bytes, or nanoseconds of thread time.
    per_s: f64,
    wait_ms_max: u64,
    level: Mutex<Level>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Balance; negative while in debt.
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

    /// Charges an amount; returns the throttle time before the client's next request is processed. Milliseconds.
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

    /// Time until the debt is repaid. Milliseconds.
    pub fn debt_ms(&self, now_ms: u64) -> u64 {
        self.take(0, now_ms)
    }

    /// Capacity, in the unit of the limit.
    #[must_use]
    pub fn burst(&self) -> u64 {
        (self.per_s * BURST_S).max(1.0) as u64
    }
}

/// The limits of a client.
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

/// Buckets by the clients that share them.
#[derive(Debug, Default)]
struct Buckets {
    by_share: BTreeMap<Share, Arc<Bucket>>,
    /// When unused buckets were last removed. Monotonic milliseconds.
    swept_ms: u64,
}

impl Buckets {
    /// Whether a bucket may be added; at the bound, first removes unused buckets without a debt.
    fn has_room(&mut self, now_ms: u64) -> bool {
        if self.by_share.len() >= BUCKETS_MAX && now_ms >= self.swept_ms.saturating_add(SWEEP_MS) {
            self.swept_ms = now_ms;
            self.by_share.retain(|_, bucket| Arc::strong_count(bucket) > 1 || bucket.debt_ms(now_ms) > 0);
        }
        self.by_share.len() < BUCKETS_MAX
    }
}

/// See the module. Limits are set by [`Quotas::set`]; balances are soft state.
#[derive(Debug, Default)]
pub struct Quotas {
    table: RwLock<QuotaTable>,
    /// Version of the quotas that are set; 0 while none are.
    version: AtomicU64,
    changes: AtomicU64,
    buckets: Mutex<Buckets>,
    throttled: [AtomicU64; QuotaKind::ALL.len()],
}

impl Quotas {
    /// Version of the quotas: limits must be looked up again when it changes; 0 if no quotas are set.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Sets the quotas of an entity; removes the entity if `limits` is empty.
    pub fn set(&self, entity: &QuotaEntity, limits: QuotaLimits) {
        let mut table = self.table.write();
        if limits.is_empty() {
            table.remove(entity);
        } else {
            table.insert(entity.clone(), limits);
        }
        self.changed(&table);
    }

    /// Replaces all quotas.
    pub fn fill(&self, all: QuotaTable) {
        let mut table = self.table.write();
        *table = all;
        self.changed(&table);
    }

    fn changed(&self, table: &QuotaTable) {
        let change = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        self.version.store(if table.is_empty() { 0 } else { change }, Ordering::Release);
    }

    /// Number of entities with quotas.
    #[must_use]
    pub fn table_len(&self) -> usize {
        self.table.read().len()
    }

    /// Quotas by entity.
    #[must_use]
    pub fn table(&self) -> QuotaTable {
        self.table.read().clone()
    }

    /// Returns the limits of a client with this user and client id.
    #[must_use]
    pub fn of(&self, user: &str, client_id: &str, now_ms: u64) -> ClientQuota {
        let table = self.table.read();
        let mut quota = ClientQuota::default();
        for (kind, place) in QuotaKind::ALL.into_iter().zip(&mut quota.buckets) {
            *place = find(&table, kind, user, client_id).map(|(limit, share)| self.bucket(share, limit, now_ms));
        }
        quota
    }

    /// Returns the shared bucket; a new one if the limit has changed.
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

    /// Number of buckets.
    #[must_use]
    pub fn bucket_count(&self) -> usize {
        self.buckets.lock().by_share.len()
    }

    /// Counts a client throttled by its quota of a kind.
    pub fn count_throttled(&self, kind: QuotaKind) {
        if let Some(count) = self.throttled.get(kind.at()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of throttles by quotas of a kind.
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
        // A clock that stands still or goes back adds nothing.
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

    /// The long-term rate equals the limit, whatever the sizes of requests.
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
