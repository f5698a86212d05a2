//! Admission of requests by the memory they need.

use super::protocol::Frame;
use super::shares::{Account, Grant, Shares};
use crate::handle::{Admission, Permit};
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of a request that a connection may receive without a permit. Times `connections_max`, this bounds such memory of all
/// connections.
pub const FREE_BYTES: usize = 4 << 10;
/// Requests that need at most this much memory, and those that arrive within [`FREE_BYTES`], use a separate share of the
/// memory, so that a heartbeat never waits for uploads. Bytes.
pub const SMALL_FRAME_BYTES_MAX: usize = 64 << 10;
/// That share is one in this many parts.
pub const SMALL_SHARE: usize = 4;
/// The cost of a request besides its bytes: its slot in the session. Bytes.
const FRAME_OVERHEAD_BYTES: usize = 1 << 10;
/// Share of the small requests' memory that buffers for reading ahead may use: one in this many parts.
const READ_AHEAD_SHARE: usize = 2;

/// Time for receiving a small request while others wait for its memory, in addition to that by
/// [`ARRIVAL_BYTES_PER_MS`]. Milliseconds.
const SMALL_ARRIVAL_MS: u64 = 2_000;
/// The same for a large one. Milliseconds.
const LARGE_ARRIVAL_MS: u64 = 10_000;
/// The minimum rate of a sender while others wait: about 1 MiB per second.
const ARRIVAL_BYTES_PER_MS: u64 = 1_024;

/// How long waiting requests (a long poll, a join) may hold more than their connection's share of a lane while others wait for
/// it. Milliseconds.
const HELD_MS_MAX: u64 = 10_000;
/// The minimum of a connection's share of a lane, however many connections are allowed. Bytes.
const CONNECTION_SHARE_MIN: usize = 8 << 10;

/// The permit of a request that the session has consumed.
#[derive(Debug)]
pub(super) struct Held {
    grant: Grant,
    frame: Frame,
    bytes: usize,
    since_ms: u64,
}

impl Held {
    pub(super) fn new(grant: Grant, frame: Frame, now_ms: u64) -> Held {
        Held { grant, frame, bytes: with_overhead(frame.memory), since_ms: now_ms }
    }

    /// Shrinks the permit after the session has decoded the request, to the bytes that it `holds` while it waits, or to
    /// [`Frame::waiting`] if that is `None`.
    pub(super) fn on_read(&mut self, holds: Option<usize>) {
        let Some(waiting) = self.frame.waiting else { return };
        let bytes = with_overhead(holds.unwrap_or(waiting));
        if bytes < self.bytes {
            self.bytes = bytes;
            self.grant.shrink_to(bytes);
        }
    }

    /// Whether it carries messages: such a request ends when they are written.
    pub(super) fn is_payload(&self) -> bool {
        self.frame.waiting.is_none()
    }

    /// Whether the request has waited for too long while others need its memory.
    pub(super) fn waits_long(&self, now_ms: u64) -> bool {
        !self.is_payload() && now_ms.saturating_sub(self.since_ms) > HELD_MS_MAX
    }
}

/// Adds the overhead of a request to its own bytes.
fn with_overhead(bytes: usize) -> usize {
    bytes.saturating_add(FRAME_OVERHEAD_BYTES)
}

/// A part of the request memory with its own limit.
#[derive(Clone, Debug)]
struct Lane {
    admission: Admission,
    bytes_max: usize,
    /// While each connection holds no more than this, the lane is not full.
    connection_share: usize,
}

impl Lane {
    fn new(bytes_max: usize, connections_max: usize) -> Lane {
        let connection_share = (bytes_max / connections_max.max(1)).max(CONNECTION_SHARE_MIN);
        Lane { admission: Admission::new(bytes_max), bytes_max, connection_share }
    }

    fn is_waited_for(&self) -> bool {
        self.admission.load().1 > 0
    }
}

/// The process-wide bound on requests in flight, in two lanes.
#[derive(Clone, Debug)]
pub struct Lanes {
    small: Lane,
    large: Lane,
    shares: Arc<Shares>,
}

impl Lanes {
    /// Divides the memory among requests of a number of connections.
    #[must_use]
    pub fn new(bytes_max: usize, connections_max: usize) -> Lanes {
        let small = bytes_max / SMALL_SHARE;
        let large = bytes_max - small;
        Lanes {
            small: Lane::new(small, connections_max),
            large: Lane::new(large, connections_max),
            shares: Arc::new(Shares::new(small, large)),
        }
    }

    /// Returns the account for the requests of a connection from this address.
    pub(super) fn account(&self, address: IpAddr) -> Account {
        Account::new(self.shares.clone(), address)
    }

    /// Whether a connection that holds these permits may receive another request without messages now: it has none, or their total is within
    /// its share of the lane.
    pub(super) fn has_share<'a>(&self, frame: Frame, held: impl IntoIterator<Item = &'a Held>) -> bool {
        let small = is_small(frame);
        let others = held.into_iter().filter(|held| !held.is_payload() && is_small(held.frame) == small);
        let bytes: usize = others.map(|held| held.bytes).sum();
        bytes == 0 || bytes.saturating_add(with_overhead(frame.memory)) <= self.shares.connection_bytes_max(small)
    }

    /// Returns the limit of the user that a request is charged to, and its size.
    pub(super) fn share(&self, frame: Frame, user: Option<&str>, account: &mut Account) -> (Admission, usize) {
        (account.of(user, is_small(frame)), with_overhead(frame.memory))
    }

    /// Requests the memory of a request; `wake` receives the permit, before this returns or later.
    pub(super) fn admit(&self, frame: Frame, wake: Box<dyn FnOnce(Permit) + Send>) {
        self.lane(frame).admission.admit(with_overhead(frame.memory), wake);
    }

    /// Returns a permit for a request if the memory is free.
    pub(super) fn try_admit(&self, frame: Frame) -> Option<Permit> {
        self.lane(frame).admission.try_admit(with_overhead(frame.memory))
    }

    /// Returns memory for a buffer to read ahead into, if there is plenty: requests have priority.
    pub(super) fn try_read_ahead(&self, bytes: usize) -> Option<Permit> {
        let Lane { admission, bytes_max, .. } = &self.small;
        let fits = admission.load().0.saturating_add(bytes) <= bytes_max / READ_AHEAD_SHARE;
        if fits { admission.try_admit(bytes) } else { None }
    }

    /// Whether a request that has received so many bytes in so long must be dropped in favour of those waiting.
    pub(super) fn must_give_way(&self, frame: Frame, received: usize, arriving_ms: u64) -> bool {
        let start_ms = if is_small(frame) { SMALL_ARRIVAL_MS } else { LARGE_ARRIVAL_MS };
        // By received bytes, not by the announced length: announcing is free for the client.
        let patience_ms = start_ms + received as u64 / ARRIVAL_BYTES_PER_MS;
        arriving_ms > patience_ms && self.lane(frame).is_waited_for()
    }

    /// Whether these permits of one connection exceed its share of a lane.
    pub(super) fn is_over_share<'a>(&self, held: impl Iterator<Item = &'a Held>) -> bool {
        let (small, large) = sums(held);
        small > self.small.connection_share || large > self.large.connection_share
    }

    /// Whether these permits of one connection exceed its share of a lane for which others wait.
    pub(super) fn is_in_the_way<'a>(&self, held: impl Iterator<Item = &'a Held>) -> bool {
        let (small, large) = sums(held);
        let over = |bytes: usize, lane: &Lane| bytes > lane.connection_share && lane.is_waited_for();
        over(small, &self.small) || over(large, &self.large)
    }

    /// Bytes in use and requests waiting, over both lanes.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let ((used, waiting), (used_large, waiting_large)) = (self.small.admission.load(), self.large.admission.load());
        (used + used_large, waiting + waiting_large)
    }

    fn lane(&self, frame: Frame) -> &Lane {
        if is_small(frame) { &self.small } else { &self.large }
    }
}

/// A request within [`FREE_BYTES`] is complete when it needs a permit and is decoded at once: it holds more memory only briefly.
fn is_small(frame: Frame) -> bool {
    frame.memory <= SMALL_FRAME_BYTES_MAX || frame.len <= FREE_BYTES
}

/// Returns the bytes in the small and in the large lane.
fn sums<'a>(held: impl Iterator<Item = &'a Held>) -> (usize, usize) {
    held.fold((0_usize, 0_usize), |(small, large), one| {
        if is_small(one.frame) {
            (small.saturating_add(one.bytes), large)
        } else {
            (small, large.saturating_add(one.bytes))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A frame that carries messages.
    fn payload(len: usize) -> Frame {
        Frame { len, memory: len, waiting: None }
    }

    fn granted(lanes: &Lanes, frame: Frame, now_ms: u64) -> Held {
        Held::new(Grant::new(lanes.try_admit(frame).unwrap(), None), frame, now_ms)
    }

    #[test]
    fn large_requests_do_not_hold_up_small_ones() {
        let lanes = Lanes::new(16 << 20, 100);
        let large = lanes.try_admit(payload(11 << 20)).unwrap();
        assert!(lanes.try_admit(payload(2 << 20)).is_none());
        assert!(lanes.try_admit(payload(SMALL_FRAME_BYTES_MAX)).is_some());
        drop(large);
        assert!(lanes.try_admit(payload(2 << 20)).is_some());
        assert_eq!(lanes.load(), (0, 0));
    }

    /// Regression test: a list was admitted by its length, and took 64 times as much.
    #[test]
    fn a_list_is_admitted_by_what_it_takes_when_it_is_decoded() {
        let lanes = Lanes::new(16 << 20, 100);
        let list = |len: usize| Frame { len, memory: len * 64, waiting: Some(len * 16) };
        let mut held = granted(&lanes, list(64 << 10), 0);
        assert_eq!(lanes.load().0, (4 << 20) + FRAME_OVERHEAD_BYTES);
        assert!(lanes.try_admit(payload(10 << 20)).is_none(), "it is in the lane of large requests");
        held.on_read(None);
        held.on_read(None);
        assert_eq!(lanes.load().0, (1 << 20) + FRAME_OVERHEAD_BYTES);
        held.on_read(Some(5_000));
        held.on_read(None);
        assert_eq!(
            lanes.load().0,
            5_000 + FRAME_OVERHEAD_BYTES,
            "what it holds, where that is known, and it never grows"
        );
        let fits_free = lanes.try_admit(list(FREE_BYTES)).unwrap();
        assert!(lanes.try_admit(payload(10 << 20)).is_some(), "a received request waits for no upload");
        drop((held, fits_free));
        let alone = lanes.try_admit(list(2 << 20)).unwrap();
        assert!(lanes.try_admit(payload(SMALL_FRAME_BYTES_MAX + 1)).is_none(), "larger than the lane: alone in it");
        drop(alone);
        assert_eq!(lanes.load(), (0, 0));
    }

    /// Regression test: the time depended on the announced length: 100 MiB of which 4 KiB arrived held the lane for two minutes.
    #[test]
    fn a_slow_sender_gives_way_only_when_somebody_waits() {
        let lanes = Lanes::new(16 << 20, 100);
        let frame = payload(8 << 20);
        let held = lanes.try_admit(frame).unwrap();
        assert!(!lanes.must_give_way(frame, 0, u64::MAX), "no one waits");
        let (tx, rx) = mpsc::channel();
        lanes.admit(frame, Box::new(move |permit| drop(tx.send(permit))));
        assert!(!lanes.must_give_way(frame, 0, LARGE_ARRIVAL_MS), "it has its time");
        assert!(lanes.must_give_way(frame, 4 << 10, LARGE_ARRIVAL_MS + 5), "hardly anything came");
        assert!(!lanes.must_give_way(frame, 1 << 20, LARGE_ARRIVAL_MS + 1_024), "it goes on fast enough");
        assert!(lanes.must_give_way(frame, 1 << 20, LARGE_ARRIVAL_MS + 1_025));
        assert!(!lanes.must_give_way(payload(1), 0, u64::MAX), "no one waits in the other lane");
        assert!(rx.try_recv().is_err());
        drop(held);
        assert!(rx.try_recv().is_ok());
    }

    #[test]
    fn buffers_to_read_ahead_leave_room_for_requests() {
        let lanes = Lanes::new(16 << 20, 100);
        let buffers: Vec<Permit> = std::iter::from_fn(|| lanes.try_read_ahead(64 << 10)).collect();
        assert_eq!(buffers.len(), 32);
        let requests = std::iter::from_fn(|| lanes.try_admit(payload(60 << 10))).take(32);
        assert_eq!(requests.collect::<Vec<_>>().len(), 32);
    }

    #[test]
    fn only_more_than_a_connections_share_is_in_the_way() {
        let lanes = Lanes::new(16 << 20, 100);
        let list = Frame { len: 16 << 10, memory: 1 << 20, waiting: Some(64 << 10) };
        let mut held: Vec<Held> = (0..11).map(|_| granted(&lanes, list, 5)).collect();
        lanes.admit(payload(8 << 20), Box::new(|_| {}));
        assert!(lanes.is_in_the_way(held.iter().take(1)), "12 MiB for 100 connections");
        held.iter_mut().for_each(|held| held.on_read(None));
        assert!(!lanes.is_over_share(held.iter().take(1)) && lanes.is_over_share(held.iter().take(2)));
        assert!(!lanes.is_in_the_way(held.iter()), "no one waits any more");
        assert!(!held[0].waits_long(5 + HELD_MS_MAX) && held[0].waits_long(6 + HELD_MS_MAX));
    }
}
