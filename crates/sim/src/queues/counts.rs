//! Delivery counts of messages of a queue, as seen by consumers.
//!
//! ```text
//!   least ≤ what is shown ≤ most     both one more with each return; what is shown makes them one
//!   sure  ≤ least                    what was there when something later was committed
//! ```
//!
//! Under one writer, a message has its exact delivery count. A new writer knows the committed count: at least `sure`, and at most the latest one. So
//! no delivery may have a smaller count than before, except for returns just before the crash: a return is flushed with the next record that has a
//! waiter.

use polylogue_api::Delivery;
use std::collections::BTreeMap;

/// The bounds of one count, which only grows.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sure: u16,
    least: u16,
    most: u16,
}

impl Count {
    fn grow(&mut self) {
        (self.least, self.most) = (self.least.saturating_add(1), self.most.saturating_add(1));
    }

    /// Returns whether this count is allowed.
    fn may_be(self, reported: u16, damaged: bool) -> bool {
        (damaged || self.least <= reported) && reported <= self.most
    }
}

/// The number of returns of a message, and of those that were failures.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    returned: Count,
    failed: Count,
    /// Time of its last return.
    changed: u64,
}

impl Tally {
    fn both(&mut self) -> [&mut Count; 2] {
        [&mut self.returned, &mut self.failed]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The writer of the queue at the last delivery, as far as a consumer saw since the node's start.
    life: Option<u16>,
    tallies: BTreeMap<String, Tally>,
    /// The tally of messages that no consumer saw.
    unseen: Tally,
    /// Number of correct counts above zero.
    pub(super) checked: u64,
}

impl Counts {
    /// Checks the counts of a delivery, sent to its consumer at `sent`. Errors: the allowed counts.
    pub(super) fn check(&mut self, text: &str, delivery: &Delivery, sent: u64, damaged: bool) -> Result<(), String> {
        let Delivery { life, returned, failed, .. } = *delivery;
        match self.life {
            // Messages in flight to a consumer when the writer was lost.
            Some(now) if now != life && now.wrapping_sub(life) < 1 << 15 => return Ok(()),
            Some(now) if now != life => self.new_writer(),
            _ => {}
        }
        self.life = Some(life);
        let tally = self.tallies.entry(text.to_owned()).or_insert(self.unseen);
        let right = tally.returned.may_be(returned, damaged) && tally.failed.may_be(failed, damaged);
        let expected = *tally;
        // A delivery that was in flight when the message may have been returned unseen, under the next writer, says nothing about the count after that.
        let outdated = sent < tally.changed;
        for (count, reported) in tally.both().into_iter().zip([returned, failed]) {
            (count.least, count.most) = (reported, if outdated { count.most.max(reported) } else { reported });
            count.sure = count.sure.min(reported);
        }
        self.checked += u64::from(returned > 0);
        if right { Ok(()) } else { Err(format!("came back {returned} times and failed {failed}, not {expected:?}")) }
    }

    /// Returns whether a message is held under the current writer, as far as is known.
    pub(super) fn is_held(&self, delivery: &Delivery) -> bool {
        self.life == Some(delivery.life)
    }

    /// Records the return of a held message.
    pub(super) fn returned(&mut self, text: &str, delivery: &Delivery, failed: bool, now: u64) {
        if self.is_held(delivery) {
            let tally = self.tallies.entry(text.to_owned()).or_insert(self.unseen);
            tally.returned.grow();
            if failed {
                tally.failed.grow();
            }
            tally.changed = now;
        }
    }

    /// Handles the end of a consumer that may have been sent messages that it has not seen.
    pub(super) fn unseen_returned(&mut self, now: u64) {
        for tally in self.tallies.values_mut().chain([&mut self.unseen]) {
            tally.both().into_iter().for_each(|count| count.most = count.most.saturating_add(1));
            tally.changed = now;
        }
    }

    /// Records that requests of that time are committed, for messages held under the current writer, and so is everything before.
    pub(super) fn committed(&mut self, asked: u64) {
        for tally in self.tallies.values_mut().filter(|tally| tally.changed < asked) {
            tally.both().into_iter().for_each(|count| count.sure = count.sure.max(count.least));
        }
    }

    /// Handles a new writer: it knows the committed counts.
    fn new_writer(&mut self) {
        for tally in self.tallies.values_mut() {
            tally.both().into_iter().for_each(|count| count.least = count.sure);
        }
    }

    /// Handles a crash of the node.
    pub(super) fn crashed(&mut self) {
        self.new_writer();
        self.life = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use polylogue_api::ConsumerId;
    use polylogue_types::{Offset, PartitionId};

    fn delivery(life: u16, returned: u16) -> Delivery {
        Delivery {
            consumer: ConsumerId(1),
            queue: PartitionId(1),
            first: Offset(4),
            count: 1,
            lease: 0,
            life,
            weight: 0,
            redelivered: false,
            returned,
            failed: returned,
            entry: Offset(4),
            bytes: Bytes::new(),
        }
    }

    /// Seed 6486: the next writer sent the message to a consumer that vanished before it saw it, while another one had not read yet that the writer
    /// before had sent it to that one.
    #[test]
    fn a_delivery_in_flight_does_not_rule_out_a_return_after_it() {
        let mut counts = Counts { life: Some(1), ..Counts::default() };
        counts.unseen_returned(70);
        counts.check("m12", &delivery(1, 0), 50, false).unwrap();
        counts.check("m12", &delivery(2, 1), 96, false).unwrap();
        counts.check("m12", &delivery(2, 2), 97, false).unwrap_err();
    }

    #[test]
    fn a_delivery_after_a_return_settles_what_the_count_is() {
        let mut counts = Counts { life: Some(1), ..Counts::default() };
        counts.unseen_returned(70);
        counts.check("m12", &delivery(1, 0), 71, false).unwrap();
        counts.check("m12", &delivery(2, 1), 96, false).unwrap_err();
    }
}
