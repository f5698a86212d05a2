//! Bodies of messages that are on their way, over all channels of a connection: one that does not come is not waited for.

use super::Session;
use super::core::Core;
use super::publish::Assembling;
use crate::codec::{BasicPublish, MethodId};
use crate::refusal::Refusal;

/// While memory runs short a body has one in this many parts of its time.
const PRESSED_PART: u64 = 6;
/// Otherwise it has more time the more of it has come: a millisecond for so many bytes.
const BYTES_PER_MS: u64 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    /// How many there are.
    count: usize,
    /// None of them is late before. Monotonic milliseconds.
    due_ms: Option<u64>,
    /// How many came too late since the last count was taken.
    late: u64,
}

impl Bodies {
    /// One begins, which may take `patience_ms`.
    pub(super) fn begin(&mut self, now_ms: u64, patience_ms: u64) {
        self.count += 1;
        self.due_ms.get_or_insert(now_ms.saturating_add(patience_ms));
    }

    /// One is whole, or given up.
    pub(super) fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count == 0 {
            self.due_ms = None;
        }
    }

    /// All are given up.
    pub(super) fn clear(&mut self) {
        (self.count, self.due_ms) = (0, None);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When they want to be looked at. Monotonic milliseconds.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// They want to be looked at now.
    pub(super) fn hurry(&mut self, now_ms: u64) {
        if self.count > 0 {
            self.due_ms = Some(now_ms);
        }
    }
}

impl Core {
    /// How long a body may take of which so much is there. Milliseconds.
    fn body_patience_ms(&self, held: usize) -> u64 {
        let max = self.settings.body_ms_max;
        match self.alarm.is_of_memory() {
            true => max / PRESSED_PART,
            false => max.saturating_add(held as u64 / BYTES_PER_MS),
        }
    }

    /// A body begins.
    pub(super) fn body_begins(&mut self) {
        let patience_ms = self.body_patience_ms(0);
        self.bodies.begin(self.now_ms, patience_ms);
    }
}

impl Session {
    /// Whether a frame begins something that has to wait until what runs short no longer does. What has begun goes on: it holds memory
    /// until it is whole.
    pub(super) fn has_to_wait(&self, id: Option<MethodId>) -> bool {
        self.core.alarm.stopped && id == Some(BasicPublish::ID)
    }

    /// Gives up bodies that did not come in time: each costs its channel, and the connection while memory runs short.
    pub(super) fn give_up_late_bodies(&mut self, now_ms: u64) {
        let pressed = self.core.alarm.is_of_memory();
        if self.core.alarm.excuses_bodies() {
            self.excuse_bodies(now_ms);
        }
        let (mut late, mut next_ms) = (Vec::new(), None::<u64>);
        for (number, channel) in &self.channels {
            let Some(Assembling::Body { since_ms, held, .. }) = &channel.assembling else { continue };
            let due_ms = since_ms.saturating_add(self.core.body_patience_ms(*held));
            if due_ms <= now_ms {
                late.push(*number);
            } else {
                next_ms = Some(next_ms.map_or(due_ms, |next| next.min(due_ms)));
            }
        }
        self.core.bodies.due_ms = next_ms;
        self.core.bodies.late += late.len() as u64;
        let patience_ms = self.core.body_patience_ms(0);
        for number in late {
            if pressed {
                return self.close(BasicPublish::ID, Refusal::body_while_low_on_memory(patience_ms), now_ms);
            }
            self.refuse(number, BasicPublish::ID, Refusal::late_body(number, patience_ms), now_ms);
        }
    }

    /// What ran short no longer does: bodies that could not come have their whole time again.
    pub(super) fn excuse_bodies(&mut self, now_ms: u64) {
        for channel in self.channels.values_mut() {
            if let Some(Assembling::Body { since_ms, .. }) = &mut channel.assembling {
                *since_ms = now_ms;
            }
        }
    }

    /// How many bodies were given up because they did not come, since the last time.
    pub fn take_late_bodies(&mut self) -> u64 {
        std::mem::take(&mut self.core.bodies.late)
    }
}
