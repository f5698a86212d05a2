//! Quotas (KIP-13, KIP-124): a client over its quota gets its response at once, with the throttle time, and its connection is muted for
//! that time (KIP-219).
//!
//! Counted are bytes of produce requests without their header, on arrival; bytes of messages in fetch responses; and the server's time for
//! the connection ([`Session::charge_time`](super::Session::charge_time)). A fetch while the client is over its quota is answered without
//! messages.

use super::topics::owned;
use super::work::Work;
use polylogue_api::Now;
use polylogue_auth::{Authority, Bucket, ClientQuota, QuotaKind};
use polylogue_kafka_codec::StrBytes;
use std::sync::Arc;

/// The quota state of a connection.
#[derive(Debug, Default)]
pub(super) struct PeerQuota {
    /// Muted until then; 0 if not. Monotonic milliseconds.
    muted_until_ms: u64,
    /// The last lookup of quotas.
    known: Option<Box<Known>>,
}

#[derive(Debug)]
struct Known {
    version: u64,
    user: Option<StrBytes>,
    client_id: StrBytes,
    quota: ClientQuota,
}

impl PeerQuota {
    /// Whether the connection is muted.
    pub(super) fn is_muted(&self, now: Now) -> bool {
        self.muted_until_ms > now.monotonic_ms
    }

    /// Returns until when the connection is muted. Monotonic milliseconds.
    pub(super) fn muted_until_ms(&self) -> Option<u64> {
        (self.muted_until_ms > 0).then_some(self.muted_until_ms)
    }

    /// Unmutes the connection if the time has passed; returns since when. Monotonic milliseconds.
    pub(super) fn unmute(&mut self, now: Now) -> Option<u64> {
        let since_ms = self.muted_until_ms().filter(|until_ms| *until_ms <= now.monotonic_ms)?;
        self.muted_until_ms = 0;
        Some(since_ms)
    }

    fn mute(&mut self, throttle_ms: u64, now: Now) {
        self.muted_until_ms = self.muted_until_ms.max(now.monotonic_ms.saturating_add(throttle_ms));
    }

    /// Whether processor time of the client is measured.
    pub(super) fn counts_time(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.quota.bucket(QuotaKind::Requests).is_some())
    }

    /// Charges time. Nanoseconds.
    pub(super) fn charge_time(&mut self, ns: u64, users: &dyn Authority, now: Now) {
        let bucket = self.known.as_ref().and_then(|known| known.quota.bucket(QuotaKind::Requests));
        let throttle_ms = bucket.map_or(0, |bucket| bucket.take(ns, now.monotonic_ms));
        if throttle_ms > 0 {
            users.throttled(QuotaKind::Requests);
            self.mute(throttle_ms, now);
        }
    }
}

impl Work<'_> {
    /// Returns the bucket of a quota that applies to the client.
    fn bucket(&mut self, kind: QuotaKind) -> Option<Arc<Bucket>> {
        let version = self.users.quota_version();
        if version == 0 {
            self.peer.quota.known = None;
            return None;
        }
        let (user, client_id) = (self.peer.login.name(), self.head.client_id.as_ref());
        let is_known = |known: &Known| {
            known.version == version
                && known.user.as_ref() == user
                && client_id.map_or(known.client_id.is_empty(), |id| *id == known.client_id)
        };
        if !self.peer.quota.known.as_deref().is_some_and(is_known) {
            let (user, client_id) = (user.cloned(), owned(client_id.map_or("", |id| id)));
            let quota = self.users.quota(user.as_deref(), &client_id, self.now.monotonic_ms);
            self.peer.quota.known = Some(Box::new(Known { version, user, client_id, quota }));
        }
        self.peer.quota.known.as_ref()?.quota.bucket(kind).cloned()
    }

    /// Looks up whether the client's time must be measured.
    pub(super) fn meet_quota(&mut self) {
        self.bucket(QuotaKind::Requests);
    }

    /// Charges bytes; returns the throttle time. Milliseconds.
    fn take(&mut self, kind: QuotaKind, bytes: u64) -> i32 {
        let now_ms = self.now.monotonic_ms;
        let throttle_ms = self.bucket(kind).map_or(0, |bucket| bucket.take(bytes, now_ms));
        if throttle_ms > 0 {
            self.users.throttled(kind);
            self.peer.quota.mute(throttle_ms, self.now);
        }
        i32::try_from(throttle_ms).unwrap_or(i32::MAX)
    }

    /// Charges a produce request.
    #[inline]
    pub(super) fn take_produced(&mut self, bytes: usize) -> i32 {
        self.take(QuotaKind::Produce, bytes as u64)
    }

    /// Charges a fetch response. One without messages is free: throttling a waiting consumer makes no sense.
    pub(super) fn take_fetched(&mut self, bytes: u64) -> i32 {
        if bytes == 0 { 0 } else { self.take(QuotaKind::Fetch, bytes) }
    }

    /// Returns the throttle time for earlier fetches.
    pub(super) fn fetch_debt(&mut self) -> i32 {
        let now_ms = self.now.monotonic_ms;
        if self.bucket(QuotaKind::Fetch).is_none_or(|bucket| bucket.debt_ms(now_ms) == 0) {
            return 0;
        }
        self.take(QuotaKind::Fetch, 0)
    }

    /// Limits the size of one fetch: more than a second's quota would only be repaid later. Bytes.
    pub(super) fn fetch_bytes_max(&mut self, wanted: u32) -> u32 {
        let burst = self.bucket(QuotaKind::Fetch).map_or(u64::MAX, |bucket| bucket.burst());
        u32::try_from(burst).unwrap_or(u32::MAX).min(wanted)
    }
}
