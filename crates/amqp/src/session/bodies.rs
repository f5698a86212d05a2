//! Timeouts of message bodies that are arriving, over all channels of a connection.

use super::Session;
use super::core::Core;
use super::publish::Assembling;
use crate::codec::{BasicPublish, MethodId};
use crate::refusal::Refusal;

/// While memory is low, the timeout of a body is divided by this.
const LOW_MEMORY_DIVISOR: u64 = 6;
/// Otherwise the timeout grows with the bytes received: one millisecond for this many.
const BYTES_PER_MS: u64 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    /// How many bodies are arriving.
    count: usize,
    /// No body times out before this. Monotonic milliseconds.
    due_ms: Option<u64>,
    /// How many bodies have timed out since the counter was last taken.
    late: u64,
}

impl Bodies {
    /// A body begins, with this timeout.
    pub(super) fn begin(&mut self, now_ms: u64, timeout_ms: u64) {
        self.count += 1;
        self.due_ms.get_or_insert(now_ms.saturating_add(timeout_ms));
    }

    /// A body is complete or was abandoned.
    pub(super) fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count == 0 {
            self.due_ms = None;
        }
    }

    /// All bodies were abandoned.
    pub(super) fn clear(&mut self) {
        (self.count, self.due_ms) = (0, None);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When timeouts have to be checked next. Monotonic milliseconds.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Timeouts have to be checked now.
    pub(super) fn check_now(&mut self, now_ms: u64) {
        if self.count > 0 {
            self.due_ms = Some(now_ms);
        }
    }
}

impl Core {
    /// Returns the timeout of a body of which `held` bytes have arrived. Milliseconds.
    fn body_timeout_ms(&self, held: usize) -> u64 {
        let max = self.settings.body_ms_max;
        match self.alarm.is_of_memory() {
            true => max / LOW_MEMORY_DIVISOR,
            false => max.saturating_add(held as u64 / BYTES_PER_MS),
        }
    }

    /// A body begins.
    pub(super) fn body_begins(&mut self) {
        let timeout_ms = self.body_timeout_ms(0);
        self.bodies.begin(self.now_ms, timeout_ms);
    }
}

impl Session {
    /// Whether a frame starts a message and therefore waits until the alarm is cleared. Messages that have begun continue: they hold memory until
    /// they are complete.
    pub(super) fn must_wait(&self, id: Option<MethodId>) -> bool {
        self.core.alarm.stopped && id == Some(BasicPublish::ID)
    }

    /// Times out bodies that did not arrive: closes their channel, or the connection while memory is low.
    pub(super) fn time_out_bodies(&mut self, now_ms: u64) {
        let pressed = self.core.alarm.is_of_memory();
        if self.core.alarm.stops_body_timers() {
            self.restart_body_timers(now_ms);
        }
        let (mut late, mut next_ms) = (Vec::new(), None::<u64>);
        for (number, channel) in &self.channels {
            let Some(Assembling::Body { since_ms, held, .. }) = &channel.assembling else { continue };
            let due_ms = since_ms.saturating_add(self.core.body_timeout_ms(*held));
            if due_ms <= now_ms {
                late.push(*number);
            } else {
                next_ms = Some(next_ms.map_or(due_ms, |next| next.min(due_ms)));
            }
        }
        self.core.bodies.due_ms = next_ms;
        self.core.bodies.late += late.len() as u64;
        let timeout_ms = self.core.body_timeout_ms(0);
        for number in late {
            if pressed {
                return self.close(BasicPublish::ID, Refusal::body_while_low_on_memory(timeout_ms), now_ms);
            }
            self.refuse(number, BasicPublish::ID, Refusal::late_body(number, timeout_ms), now_ms);
        }
    }

    /// An alarm was cleared: the timeouts of bodies that could not be read start again.
    pub(super) fn restart_body_timers(&mut self, now_ms: u64) {
        for channel in self.channels.values_mut() {
            if let Some(Assembling::Body { since_ms, .. }) = &mut channel.assembling {
                *since_ms = now_ms;
            }
        }
    }

    /// Returns how many bodies have timed out since the last call.
    pub fn take_late_bodies(&mut self) -> u64 {
        std::mem::take(&mut self.core.bodies.late)
    }
}
