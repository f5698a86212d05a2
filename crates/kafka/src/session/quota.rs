//! How much a client may take (KIP-13, KIP-124), and what happens when it takes more: it is answered immediately with the time it will have to
//! wait, and for so long nothing more is read from its connection (KIP-219).
//!
//! What is counted: bytes of produce requests without their header, when they come; bytes of messages, when a fetch is answered; time that the
//! server spends on the connection ([`Session::spent`](super::Session::spent)). A fetch that comes while its clients are in debt is answered
//! without messages.

use super::topics::owned;
use super::work::Work;
use crate::codec::StrBytes;
use polylogue_api::Now;
use polylogue_auth::{Authority, Bucket, ClientQuota, QuotaKind};
use std::sync::Arc;

/// What is known of the quotas of a connection's client.
#[derive(Debug, Default)]
pub(super) struct PeerQuota {
    /// Until when nothing is read; 0 for now. Monotonic milliseconds.
    muted_until_ms: u64,
    /// What was looked up last.
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
    /// Whether nothing is read for now.
    pub(super) fn is_muted(&self, now: Now) -> bool {
        self.muted_until_ms > now.monotonic_ms
    }

    /// Until when nothing is read, if so. Monotonic milliseconds.
    pub(super) fn muted_until_ms(&self) -> Option<u64> {
        (self.muted_until_ms > 0).then_some(self.muted_until_ms)
    }

    /// It is read again, if the time has come: since when. Monotonic milliseconds.
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

    /// Time was spent on the client. Nanoseconds.
    pub(super) fn spent(&mut self, ns: u64, users: &dyn Authority, now: Now) {
        let bucket = self.known.as_ref().and_then(|known| known.quota.bucket(QuotaKind::Requests));
        let throttle_ms = bucket.map_or(0, |bucket| bucket.take(ns, now.monotonic_ms));
        if throttle_ms > 0 {
            users.throttled(QuotaKind::Requests);
            self.mute(throttle_ms, now);
        }
    }
}

impl Work<'_> {
    /// The limit of a kind that holds for the client.
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

    /// Sees to it that the client's time is counted where it has to be.
    pub(super) fn meet_quota(&mut self) {
        self.bucket(QuotaKind::Requests);
    }

    /// Takes so many bytes; how long the client has to wait for it. Milliseconds, as the wire has them.
    fn take(&mut self, kind: QuotaKind, bytes: u64) -> i32 {
        let now_ms = self.now.monotonic_ms;
        let throttle_ms = self.bucket(kind).map_or(0, |bucket| bucket.take(bytes, now_ms));
        if throttle_ms > 0 {
            self.users.throttled(kind);
            self.peer.quota.mute(throttle_ms, self.now);
        }
        i32::try_from(throttle_ms).unwrap_or(i32::MAX)
    }

    /// A produce request has come.
    #[inline]
    pub(super) fn take_produced(&mut self, bytes: usize) -> i32 {
        self.take(QuotaKind::Produce, bytes as u64)
    }

    /// A fetch is answered. One without messages costs nothing: a consumer that waits may wait.
    pub(super) fn take_fetched(&mut self, bytes: u64) -> i32 {
        if bytes == 0 { 0 } else { self.take(QuotaKind::Fetch, bytes) }
    }

    /// How long a fetch has to wait because too much was fetched before.
    pub(super) fn fetch_debt(&mut self) -> i32 {
        let now_ms = self.now.monotonic_ms;
        if self.bucket(QuotaKind::Fetch).is_none_or(|bucket| bucket.debt_ms(now_ms) == 0) {
            return 0;
        }
        self.take(QuotaKind::Fetch, 0)
    }

    /// The most that one fetch is given: what takes longer than a second to repay is no help to anybody. Bytes.
    pub(super) fn fetch_bytes_max(&mut self, wanted: u32) -> u32 {
        let burst = self.bucket(QuotaKind::Fetch).map_or(u64::MAX, |bucket| bucket.burst());
        u32::try_from(burst).unwrap_or(u32::MAX).min(wanted)
    }
}
