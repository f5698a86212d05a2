//! How often messages of a queue came back, as their consumers see.
//!
//! ```text
//!   least ≤ what is shown ≤ most     both one more with each return; what is shown makes them one
//!   sure  ≤ least                    what was there when something later was committed
//! ```
//!
//! While the queue's writer goes on, a message says exactly how often it came back. A new writer knows what was committed: no less than
//! what is sure, and no more than there was. That no delivery may show less than before, but for what came just before the end, follows: what a
//! queue is to keep is flushed with the next record that has a waiter.

use polylogue_api::Delivery;
use std::collections::BTreeMap;

/// One number that only grows.
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

    /// Whether it may be shown now.
    fn may_be(self, reported: u16, damaged: bool) -> bool {
        (damaged || self.least <= reported) && reported <= self.most
    }
}

/// How often a message came back, and how often of these it failed.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    returned: Count,
    failed: Count,
    /// When it came back last.
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
    /// In which life of the queue's writer messages were handed out last, as far as a consumer saw in this life of the node.
    life: Option<u16>,
    tallies: BTreeMap<String, Tally>,
    /// The tally of what no consumer saw.
    unseen: Tally,
    /// Counts above nothing that were as they had to be.
    pub(super) checked: u64,
}

impl Counts {
    /// A message was handed out. Whether what it says is right; what would have been, if not.
    pub(super) fn check(&mut self, text: &str, delivery: &Delivery, damaged: bool) -> Result<(), String> {
        let Delivery { life, returned, failed, .. } = *delivery;
        match self.life {
            // What was on its way to a consumer when the writer was lost.
            Some(now) if now != life && now.wrapping_sub(life) < 1 << 15 => return Ok(()),
            Some(now) if now != life => self.new_writer(),
            _ => {}
        }
        self.life = Some(life);
        let tally = self.tallies.entry(text.to_owned()).or_insert(self.unseen);
        let right = tally.returned.may_be(returned, damaged) && tally.failed.may_be(failed, damaged);
        let expected = *tally;
        for (count, reported) in tally.both().into_iter().zip([returned, failed]) {
            (count.least, count.most) = (reported, reported);
            count.sure = count.sure.min(reported);
        }
        self.checked += u64::from(returned > 0);
        if right { Ok(()) } else { Err(format!("came back {returned} times and failed {failed}, not {expected:?}")) }
    }

    /// Whether a message is held under the writer that there is, as far as is known.
    pub(super) fn is_held(&self, delivery: &Delivery) -> bool {
        self.life == Some(delivery.life)
    }

    /// A message that was held comes back.
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

    /// A consumer has gone that may have been handed messages that no consumer has seen.
    pub(super) fn unseen_returned(&mut self, now: u64) {
        for tally in self.tallies.values_mut().chain([&mut self.unseen]) {
            tally.both().into_iter().for_each(|count| count.most = count.most.saturating_add(1));
            tally.changed = now;
        }
    }

    /// What was asked for then, of messages held under the writer that there is, is committed, and so is all that was before.
    pub(super) fn committed(&mut self, asked: u64) {
        for tally in self.tallies.values_mut().filter(|tally| tally.changed < asked) {
            tally.both().into_iter().for_each(|count| count.sure = count.sure.max(count.least));
        }
    }

    /// The queue's next writer knows what was committed.
    fn new_writer(&mut self) {
        for tally in self.tallies.values_mut() {
            tally.both().into_iter().for_each(|count| count.least = count.sure);
        }
    }

    /// The node is gone.
    pub(super) fn crashed(&mut self) {
        self.new_writer();
        self.life = None;
    }
}
