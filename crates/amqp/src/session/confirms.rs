//! Publisher confirms: which publishes have an outcome, and how to send outcomes in as few methods as possible.

use crate::codec::{BasicAck, BasicNack, Method};
use std::collections::BTreeMap;

/// Publisher confirms of one channel. Memory is proportional to the gaps between outcomes, not to the publishes in flight.
#[derive(Debug)]
pub(super) struct Confirms {
    /// The sequence number of the next publish.
    next: u64,
    /// All numbers below have an outcome.
    floor: u64,
    /// Ranges above `floor` that have an outcome: first to last, never adjacent.
    above: BTreeMap<u64, u64>,
    /// Outcomes that were not sent yet, in order of arrival: first to last.
    acks: Vec<(u64, u64)>,
    nacks: Vec<(u64, u64)>,
}

impl Confirms {
    pub(super) fn new() -> Confirms {
        Confirms { next: 1, floor: 1, above: BTreeMap::new(), acks: Vec::new(), nacks: Vec::new() }
    }

    /// Assigns the sequence number of a publish.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// How many publishes have no outcome yet.
    pub(super) fn waiting(&self) -> u64 {
        let above: u64 = self.above.iter().map(|(first, last)| last - first + 1).sum();
        self.next - self.floor - above
    }

    /// Records an outcome for all numbers from the first to the last. Numbers that were never assigned or already have an outcome are ignored: the
    /// client must not receive two outcomes.
    pub(super) fn settle(&mut self, first: u64, last: u64, taken: bool) {
        let (mut from, last) = (first.max(self.floor), last.min(self.next - 1));
        while from <= last {
            // The part without an outcome, up to the next number that has one.
            let before = self.above.range(..=from).next_back().map(|(first, last)| (*first, *last));
            if let Some((_, known)) = before.filter(|(_, known)| *known >= from) {
                from = known + 1;
                continue;
            }
            let behind = self.above.range(from..).next().map(|(first, last)| (*first, *last));
            let to = behind.map_or(last, |(known, _)| last.min(known - 1));
            if taken {
                self.acks.push((from, to))
            } else {
                self.nacks.push((from, to))
            }
            let (mut begin, mut end) = (from, to);
            if let Some((first, _)) = before.filter(|(_, known)| known + 1 == from) {
                begin = first;
            }
            if let Some((known, until)) = behind.filter(|(known, _)| to + 1 == *known) {
                self.above.remove(&known);
                end = until;
            }
            self.above.insert(begin, end);
            from = to + 1;
        }
        if let Some(entry) = self.above.first_entry()
            && *entry.key() == self.floor
        {
            self.floor = entry.remove() + 1;
        }
    }

    /// Whether outcomes wait to be sent.
    pub(super) fn has_pending(&self) -> bool {
        !self.acks.is_empty() || !self.nacks.is_empty()
    }

    /// Sends all pending outcomes: those below every unsettled number, and below every outcome of the other kind, as one method with `multiple`; the
    /// others one by one. Acknowledgements first, as RabbitMQ does.
    pub(super) fn send_pending(&mut self, mut send: impl FnMut(Method)) {
        let lowest = |ranges: &[(u64, u64)]| ranges.iter().map(|(first, _)| *first).min().unwrap_or(u64::MAX);
        let (lowest_ack, lowest_nack) = (lowest(&self.acks), lowest(&self.nacks));
        let ack = |tag, multiple| Method::from(BasicAck { delivery_tag: tag, multiple });
        let nack = |tag, multiple| Method::from(BasicNack { delivery_tag: tag, multiple, requeue: false });
        send_ranges(&mut self.acks, self.floor.min(lowest_nack), |tag, multiple| send(ack(tag, multiple)));
        send_ranges(&mut self.nacks, self.floor.min(lowest_ack), |tag, multiple| send(nack(tag, multiple)));
    }
}

/// Sends the numbers below `cutoff` with `multiple` and the rest one by one, in ascending order.
fn send_ranges(ranges: &mut Vec<(u64, u64)>, cutoff: u64, mut send: impl FnMut(u64, bool)) {
    ranges.sort_unstable();
    let below = ranges.partition_point(|(_, last)| *last < cutoff);
    match ranges.get(..below) {
        Some([(first, last)]) if first == last => send(*last, false),
        Some([.., (_, last)]) => send(*last, true),
        _ => {}
    }
    for (first, last) in ranges.drain(..).skip(below) {
        for tag in first..=last {
            send(tag, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn sent(confirms: &mut Confirms) -> Vec<String> {
        let mut sent = Vec::new();
        confirms.send_pending(|method| match method {
            Method::BasicAck(ack) => {
                sent.push(format!("ack {}{}", ack.delivery_tag, if ack.multiple { "*" } else { "" }))
            }
            Method::BasicNack(nack) => {
                sent.push(format!("nack {}{}", nack.delivery_tag, if nack.multiple { "*" } else { "" }));
            }
            method => panic!("{method:?}"),
        });
        sent
    }

    fn with(publishes: u64) -> Confirms {
        let mut confirms = Confirms::new();
        for _ in 0..publishes {
            confirms.number();
        }
        confirms
    }

    #[test]
    fn outcomes_in_order_are_sent_with_multiple() {
        let mut confirms = with(10);
        confirms.settle(1, 4, true);
        confirms.settle(5, 5, true);
        assert_eq!(sent(&mut confirms), ["ack 5*"]);
        confirms.settle(6, 6, true);
        assert_eq!(sent(&mut confirms), ["ack 6"]);
        confirms.settle(8, 9, true);
        assert_eq!(sent(&mut confirms), ["ack 8", "ack 9"]);
        confirms.settle(7, 7, true);
        assert_eq!(sent(&mut confirms), ["ack 7"]);
        assert_eq!((confirms.floor, confirms.waiting()), (10, 1));
        assert!(sent(&mut confirms).is_empty());
    }

    #[test]
    fn an_acknowledgement_of_many_never_covers_a_refused_one() {
        let mut confirms = with(6);
        confirms.settle(1, 2, true);
        confirms.settle(3, 3, false);
        confirms.settle(4, 6, true);
        assert_eq!(sent(&mut confirms), ["ack 2*", "ack 4", "ack 5", "ack 6", "nack 3"]);
        let mut confirms = with(6);
        confirms.settle(1, 3, false);
        confirms.settle(5, 5, true);
        assert_eq!(sent(&mut confirms), ["ack 5", "nack 3*"]);
    }

    #[test]
    fn each_outcome_is_sent_once() {
        let mut confirms = with(3);
        confirms.settle(2, 2, true);
        confirms.settle(1, 9, false);
        confirms.settle(0, u64::MAX, true);
        assert_eq!(sent(&mut confirms), ["ack 2", "nack 1", "nack 3"]);
    }

    proptest! {
        /// A client that tracks outstanding publishes receives each outcome once.
        #[test]
        fn a_client_receives_each_outcome(ranges in proptest::collection::vec((1u64..60, 0u64..6, any::<bool>(), any::<bool>()), 1..60)) {
            let mut confirms = with(60);
            let mut outstanding: BTreeSet<u64> = (1..=60).collect();
            let mut expected: BTreeMap<u64, bool> = BTreeMap::new();
            let mut learned = BTreeMap::new();
            for (first, more, taken, send) in ranges {
                confirms.settle(first, first + more, taken);
                for number in first..=(first + more).min(60) {
                    expected.entry(number).or_insert(taken);
                }
                if !send {
                    continue;
                }
                confirms.send_pending(|method| {
                    let (tag, multiple, taken) = match method {
                        Method::BasicAck(ack) => (ack.delivery_tag, ack.multiple, true),
                        Method::BasicNack(nack) => (nack.delivery_tag, nack.multiple, false),
                        method => panic!("{method:?}"),
                    };
                    let from = if multiple { 1 } else { tag };
                    for number in from..=tag {
                        if outstanding.remove(&number) {
                            learned.insert(number, taken);
                        } else {
                            assert!(multiple, "{number} twice");
                        }
                    }
                });
                prop_assert_eq!(&learned, &expected);
                prop_assert_eq!(confirms.waiting(), outstanding.len() as u64);
            }
        }
    }
}
