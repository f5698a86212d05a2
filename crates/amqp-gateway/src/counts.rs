//! What is counted of AMQP, in the way in which RabbitMQ counts it: its own metrics are made of this.
//!
//! A connection counts in memory of its own ([`Tally`]) and adds that up for everybody once a turn: a message costs a few additions that nobody
//! else sees, a turn one atomic addition for each number that is another than before.

use polylogue_amqp_model::QueueKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted of everything together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Messages that publishers sent and might send.
    Received,
    /// Of these, those whose publishers wait to hear of them.
    ReceivedConfirm,
    /// Queues that messages of publishers reached.
    Routed,
    /// Messages that reached no queue and are gone.
    Dropped,
    /// Messages that reached no queue and went back.
    Returned,
    /// Messages whose publishers heard that they are safe.
    Confirmed,
    /// Messages whose publishers wait no more, whatever they heard.
    Settled,
    /// Bytes of the bodies that were received.
    ReceivedBytes,
    /// Declarations of queues that were answered.
    QueuesDeclared,
    /// Queues that were made.
    QueuesCreated,
    /// Queues that went.
    QueuesDeleted,
    /// Clients that came into a virtual host.
    ConnectionsOpened,
    /// Clients that went.
    ConnectionsClosed,
    /// Channels that were opened.
    ChannelsOpened,
    /// Channels that were closed.
    ChannelsClosed,
    /// Steps that routing what publishers sent took.
    RoutingSteps,
    /// How often a turn of a connection ended before a message had its queues.
    RoutingPauses,
    /// Pieces of messages with more queues than go to the log at once.
    FanoutPieces,
    /// How often such a message waited until some of its pieces were there.
    FanoutWaits,
    /// How often a connection was not read for want of credit.
    Flows,
}

/// How many of [`Count`] there are.
const COUNTS: usize = Count::Flows as usize + 1;

/// What is counted of the queues of each type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueCount {
    /// Messages delivered to consumers who acknowledge.
    ConsumedManualAck,
    /// Messages delivered to consumers who do not.
    ConsumedAutoAck,
    /// Messages that somebody got who acknowledges (`basic.get`).
    GotManualAck,
    /// Messages that somebody got who does not.
    GotAutoAck,
    /// How often somebody got nothing.
    GotNothing,
    /// Messages that had been delivered before.
    Redelivered,
    /// Messages that were acknowledged.
    Acknowledged,
}

/// How many of [`QueueCount`] there are.
const QUEUE_COUNTS: usize = QueueCount::Acknowledged as usize + 1;

/// The types of queues, in the order in which they are counted.
const KINDS: [QueueKind; 3] = [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream];

/// The bounds by which RabbitMQ tells sizes of messages apart. Bytes.
pub const SIZE_BOUNDS: [u64; 8] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000];
/// Those up to each bound, and those above.
const SIZES: usize = SIZE_BOUNDS.len() + 1;

/// Where the numbers of queues begin, and those of sizes; how many numbers there are. No more than a [`Tally`] has bits for.
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

/// What everybody counts. Grows as long as the process lives.
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

    /// What was counted of everything together.
    #[must_use]
    pub fn count(&self, what: Count) -> u64 {
        self.get(what as usize)
    }

    /// What was counted of the queues of a type.
    #[must_use]
    pub fn of_queues(&self, what: QueueCount, kind: QueueKind) -> u64 {
        self.get(of_queues(what, kind))
    }

    /// What was counted of the queues of all types.
    #[must_use]
    pub fn of_all_queues(&self, what: QueueCount) -> u64 {
        KINDS.iter().map(|kind| self.of_queues(what, *kind)).sum()
    }

    /// How many messages publishers sent of the sizes up to each of [`SIZE_BOUNDS`] and above the one before it; last those above all.
    #[must_use]
    pub fn sizes(&self) -> [u64; SIZES] {
        std::array::from_fn(|at| self.get(SIZES_FROM + at))
    }

    /// Messages whose publishers wait to hear of them.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        let settled = self.count(Count::Settled);
        self.count(Count::ReceivedConfirm).saturating_sub(settled)
    }

    /// Something happened that is no message's business.
    pub(crate) fn more(&self, what: Count, count: u64) {
        self.add(what as usize, count);
    }
}

/// What one connection has counted and not added up.
#[derive(Debug)]
pub(crate) struct Tally {
    all: Arc<Traffic>,
    own: [u64; NUMBERS],
    /// A bit for each of them that is not 0.
    changed: u64,
    /// Messages of the connection whose publisher waits.
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

    /// So many more.
    pub(crate) fn more(&mut self, what: Count, count: u64) {
        self.add(what as usize, count);
    }

    /// A message with a body of so many bytes came from somebody who might send it, and who waits for its outcome or not.
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

    /// It reached so many queues; one that reached none goes back or is lost.
    pub(crate) fn reached(&mut self, queues: usize, goes_back: bool) {
        match (queues, goes_back) {
            (0, true) => self.more(Count::Returned, 1),
            (0, false) => self.more(Count::Dropped, 1),
            _ => self.more(Count::Routed, queues as u64),
        }
    }

    /// Nobody waits for so many messages any more; whether the publisher hears that they are safe.
    pub(crate) fn settled(&mut self, count: u64, is_confirmed: bool) {
        let count = count.min(self.unconfirmed);
        self.unconfirmed -= count;
        self.more(Count::Settled, count);
        if is_confirmed {
            self.more(Count::Confirmed, count);
        }
    }

    /// So many more of a queue's.
    pub(crate) fn of_queue(&mut self, what: QueueCount, kind: QueueKind, count: u64) {
        if count > 0 {
            self.add(of_queues(what, kind), count);
        }
    }

    /// Adds up for everybody.
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
        // Whoever waits for them is gone.
        self.settled(self.unconfirmed, false);
        self.add_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connection_counts_is_everybodys_once_it_is_added_up() {
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
        assert_eq!(all.unconfirmed(), 1, "whoever waited is gone");
        one.settled(9, true);
        drop(one);
        assert_eq!((all.count(Count::Confirmed), all.unconfirmed()), (2, 0), "no more than are waited for");
    }

    #[test]
    fn each_number_has_a_place_of_its_own() {
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
