//! AMQP counters with RabbitMQ's definitions, from which its metrics are derived.
//!
//! A connection counts in its own memory ([`Tally`]) and adds the counters to the shared ones once per turn: a message costs a few local additions, a
//! turn one atomic addition for each changed counter.

use polylogue_amqp_model::QueueKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter over all queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Messages received from publishers with permission.
    Received,
    /// Those with publisher confirms.
    ReceivedConfirm,
    /// Queues that messages of publishers were routed to.
    Routed,
    /// Messages that were routed to no queue and dropped.
    Dropped,
    /// Messages that were routed to no queue and returned.
    Returned,
    /// Messages that were confirmed.
    Confirmed,
    /// Messages with an outcome, confirmed or not.
    Settled,
    /// Bytes of the received bodies.
    ReceivedBytes,
    /// Declarations of queues that were answered.
    QueuesDeclared,
    /// Queues that were created.
    QueuesCreated,
    /// Queues that were deleted.
    QueuesDeleted,
    /// Connections that opened a virtual host.
    ConnectionsOpened,
    /// Connections that ended.
    ConnectionsClosed,
    /// Channels that were opened.
    ChannelsOpened,
    /// Channels that were closed.
    ChannelsClosed,
    /// Steps taken to route messages of publishers.
    RoutingSteps,
    /// How often a turn of a connection ended before a message was routed.
    RoutingPauses,
    /// Parts of messages with more queues than one request may have.
    FanoutPieces,
    /// How often such a message waited for the commit of earlier batches.
    FanoutWaits,
    /// How often a connection was not read for lack of credit.
    Flows,
}

/// The number of [`Count`]s.
const COUNTS: usize = Count::Flows as usize + 1;

/// A counter per queue type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueCount {
    /// Messages delivered to consumers with manual acknowledgement.
    ConsumedManualAck,
    /// Messages delivered to consumers with automatic acknowledgement.
    ConsumedAutoAck,
    /// Messages taken with `basic.get` and manual acknowledgement.
    GotManualAck,
    /// Messages taken with `basic.get` and automatic acknowledgement.
    GotAutoAck,
    /// Times that `basic.get` found no message.
    GotNothing,
    /// Messages that had been delivered before.
    Redelivered,
    /// Messages that were acknowledged.
    Acknowledged,
}

/// The number of [`QueueCount`]s.
const QUEUE_COUNTS: usize = QueueCount::Acknowledged as usize + 1;

/// The queue types, in the order of their counters.
const KINDS: [QueueKind; 3] = [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream];

/// RabbitMQ's buckets of message sizes. Bytes.
pub const SIZE_BOUNDS: [u64; 8] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000];
/// One counter per bucket, and one for larger messages.
const SIZES: usize = SIZE_BOUNDS.len() + 1;

/// Start of the queue counters and of the size counters; the number of all counters. At most the bits of a [`Tally`].
const QUEUES_FROM: usize = COUNTS;
const SIZES_FROM: usize = QUEUES_FROM + QUEUE_COUNTS * KINDS.len();
const NUMBERS: usize = SIZES_FROM + SIZES;
const _: () = assert!(NUMBERS <= u64::BITS as usize);

fn of_queues(what: QueueCount, kind: QueueKind) -> usize {
    let kind = match kind {
        QueueKind::Classic => 0,
        QueueKind::Quorum => 1,
        QueueKind::Stream => 2,
    };
    QUEUES_FROM + kind * QUEUE_COUNTS + what as usize
}

/// Counters of the whole process. They never decrease.
#[derive(Debug)]
pub struct Traffic {
    all: [AtomicU64; NUMBERS],
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic { all: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Traffic {
    fn get(&self, at: usize) -> u64 {
        self.all.get(at).map_or(0, |number| number.load(Ordering::Relaxed))
    }

    fn add(&self, at: usize, more: u64) {
        if let Some(number) = self.all.get(at) {
            number.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Returns a counter over all queues.
    #[must_use]
    pub fn count(&self, what: Count) -> u64 {
        self.get(what as usize)
    }

    /// Returns a counter of a queue type.
    #[must_use]
    pub fn of_queues(&self, what: QueueCount, kind: QueueKind) -> u64 {
        self.get(of_queues(what, kind))
    }

    /// Returns the sum of a counter over all queue types.
    #[must_use]
    pub fn of_all_queues(&self, what: QueueCount) -> u64 {
        KINDS.iter().map(|kind| self.of_queues(what, *kind)).sum()
    }

    /// Returns how many messages of publishers are in each bucket of [`SIZE_BOUNDS`], and how many are larger.
    #[must_use]
    pub fn sizes(&self) -> [u64; SIZES] {
        std::array::from_fn(|at| self.get(SIZES_FROM + at))
    }

    /// Messages whose publishers wait for an outcome.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        let settled = self.count(Count::Settled);
        self.count(Count::ReceivedConfirm).saturating_sub(settled)
    }

    /// Counts an event that belongs to no connection's messages.
    pub(crate) fn more(&self, what: Count, count: u64) {
        self.add(what as usize, count);
    }
}

/// Counters of one connection that were not added to the shared ones yet.
#[derive(Debug)]
pub(crate) struct Tally {
    all: Arc<Traffic>,
    own: [u64; NUMBERS],
    /// A bit for each counter that is not 0.
    changed: u64,
    /// Messages of the connection without an outcome.
    unconfirmed: u64,
}

impl Tally {
    pub(crate) fn new(all: Arc<Traffic>) -> Tally {
        Tally { all, own: [0; NUMBERS], changed: 0, unconfirmed: 0 }
    }

    fn add(&mut self, at: usize, more: u64) {
        if let Some(number) = self.own.get_mut(at) {
            *number += more;
            self.changed |= 1 << at;
        }
    }

    /// Increases a counter.
    pub(crate) fn more(&mut self, what: Count, count: u64) {
        self.add(what as usize, count);
    }

    /// Counts a received message with its body size, and whether its publisher waits for an outcome.
    pub(crate) fn received(&mut self, bytes: usize, is_waited_for: bool) {
        let bytes = bytes as u64;
        self.more(Count::Received, 1);
        self.more(Count::ReceivedBytes, bytes);
        self.add(SIZES_FROM + SIZE_BOUNDS.partition_point(|bound| *bound < bytes), 1);
        if is_waited_for {
            self.more(Count::ReceivedConfirm, 1);
            self.unconfirmed += 1;
        }
    }

    /// Counts the queues that it was routed to; with none it is returned or dropped.
    pub(crate) fn reached(&mut self, queues: usize, goes_back: bool) {
        match (queues, goes_back) {
            (0, true) => self.more(Count::Returned, 1),
            (0, false) => self.more(Count::Dropped, 1),
            _ => self.more(Count::Routed, queues as u64),
        }
    }

    /// Counts outcomes of messages, and whether they were confirmed.
    pub(crate) fn settled(&mut self, count: u64, is_confirmed: bool) {
        let count = count.min(self.unconfirmed);
        self.unconfirmed -= count;
        self.more(Count::Settled, count);
        if is_confirmed {
            self.more(Count::Confirmed, count);
        }
    }

    /// Increases a counter of a queue type.
    pub(crate) fn of_queue(&mut self, what: QueueCount, kind: QueueKind, count: u64) {
        if count > 0 {
            self.add(of_queues(what, kind), count);
        }
    }

    /// Adds the counters to the shared ones.
    pub(crate) fn add_up(&mut self) {
        while self.changed != 0 {
            let at = self.changed.trailing_zeros() as usize;
            self.changed &= self.changed - 1;
            if let Some(number) = self.own.get_mut(at) {
                self.all.add(at, std::mem::take(number));
            }
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // The publisher of these messages is gone.
        self.settled(self.unconfirmed, false);
        self.add_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_connection_are_shared_once_added_up() {
        let all: Arc<Traffic> = Arc::default();
        let (mut one, mut other) = (Tally::new(all.clone()), Tally::new(all.clone()));
        for (bytes, waits) in [(0, true), (100, true), (101, false), (100_000_001, true)] {
            one.received(bytes, waits);
        }
        one.reached(2, false);
        one.reached(0, true);
        one.reached(0, false);
        one.settled(1, true);
        one.settled(1, false);
        one.of_queue(QueueCount::Acknowledged, QueueKind::Quorum, 7);
        assert_eq!(all.count(Count::Received), 0, "nothing is added up");
        one.add_up();
        one.add_up();
        other.received(5, true);
        other.add_up();
        let counts = [Count::Received, Count::ReceivedConfirm, Count::Routed, Count::Returned, Count::Dropped];
        assert_eq!(counts.map(|what| all.count(what)), [5, 4, 2, 1, 1]);
        assert_eq!((all.count(Count::Confirmed), all.unconfirmed()), (1, 2));
        assert_eq!(all.count(Count::ReceivedBytes), 100 + 101 + 100_000_001 + 5);
        assert_eq!(all.sizes(), [3, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(all.of_queues(QueueCount::Acknowledged, QueueKind::Quorum), 7);
        assert_eq!(all.of_queues(QueueCount::Acknowledged, QueueKind::Classic), 0);
        assert_eq!(all.of_all_queues(QueueCount::Acknowledged), 7);
        drop(other);
        assert_eq!(all.unconfirmed(), 1, "the publisher is gone");
        one.settled(9, true);
        drop(one);
        assert_eq!((all.count(Count::Confirmed), all.unconfirmed()), (2, 0), "no more than are waited for");
    }

    #[test]
    fn each_counter_has_its_own_place() {
        let all = Traffic::default();
        let kinds = [
            QueueCount::ConsumedManualAck,
            QueueCount::ConsumedAutoAck,
            QueueCount::GotManualAck,
            QueueCount::GotAutoAck,
            QueueCount::GotNothing,
            QueueCount::Redelivered,
            QueueCount::Acknowledged,
        ];
        let mut places: Vec<_> = KINDS.iter().flat_map(|kind| kinds.map(|what| of_queues(what, *kind))).collect();
        places.extend([Count::Received as usize, Count::FanoutWaits as usize, SIZES_FROM, NUMBERS - 1]);
        for at in &places {
            all.add(*at, 1);
        }
        assert!(places.iter().all(|at| all.get(*at) == 1), "{places:?}");
    }
}
