//! Credit of publishers without confirms: withheld while a queue grows although its consumers wait for messages.
//!
//! ```text
//!   publish, Ack::KeptUp ──> queue has grown by less than its rules say ──────────────────────────> answered: credit
//!                       └──> more, and a consumer may hold more messages ──> withheld, in order ──> answered when
//!                                                                            consumers have taken enough, none waits any more, or
//!                                                                            `withheld_ms_max` has passed
//! ```
//!
//! A RabbitMQ queue grants credit for messages that it has processed, and delivers first: there, too, publishers are slowed by a slow queue and not
//! by a long one. A queue without consumers, or whose consumers are at their prefetch limits, withholds nothing. Its length at that time is where
//! growth begins, so that draining a backlog does not slow publishers below the rate of the consumers.

use crate::config::CreditRules;
use crate::pending::PendingPublish;
use crate::queues::host::{QueueHost, Waiter};
use polylogue_api::PublishRequest;
use polylogue_types::{Map, PartitionId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Consumers that are checked to find one that waits for messages.
const CONSUMERS_LOOKED_AT_MAX: usize = 64;

/// A number of messages and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amount {
    messages: u64,
    bytes: u64,
}

/// Withheld credit.
#[derive(Debug)]
struct Withheld {
    for_what: Amount,
    /// Wall time, milliseconds.
    until_ms: u64,
    pending: Arc<PendingPublish>,
}

/// The credit that a queue withholds, and the base of its growth.
#[derive(Debug, Default)]
pub(crate) struct Withholding {
    /// The smallest number ready since no consumer was waiting.
    base: Amount,
    /// By their time limits.
    withheld: VecDeque<Withheld>,
}

/// Publishers whose credit is granted.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    pub(crate) waiters: Vec<Waiter>,
    /// Number of those whose time limit had passed.
    pub(crate) late: u64,
}

impl Withholding {
    /// Returns the time limit of the oldest withheld credit. Wall time, milliseconds.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.withheld.front().map(|withheld| withheld.until_ms)
    }

    /// Takes all waiting publishers, when the queue or its writer is gone.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waiter> {
        std::mem::take(&mut self.withheld).into_iter().map(|withheld| Waiter::Credit(withheld.pending))
    }
}

impl QueueHost {
    /// Returns how much the queue may grow before it withholds credit.
    fn room_to_grow(&mut self, rules: CreditRules) -> Amount {
        let (messages, bytes) = self.lease.backlog();
        let base = &mut self.withholding.base;
        *base = Amount { messages: base.messages.min(messages), bytes: base.bytes.min(bytes) };
        let room = Amount {
            messages: base.messages.saturating_add(rules.growth_messages).saturating_sub(messages),
            bytes: base.bytes.saturating_add(rules.growth_bytes).saturating_sub(bytes),
        };
        if room.is_some() || self.lease.has_waiting_consumer(CONSUMERS_LOOKED_AT_MAX) {
            return room;
        }
        self.begin_growth();
        Amount { messages: rules.growth_messages, bytes: rules.growth_bytes }
    }

    /// Counts growth from the present backlog on.
    pub(crate) fn begin_growth(&mut self) {
        let (messages, bytes) = self.lease.backlog();
        self.withholding.base = Amount { messages, bytes };
    }

    /// Returns whether a publisher's credit is to be withheld.
    pub(crate) fn withholds(&mut self, rules: CreditRules) -> bool {
        !self.withholding.withheld.is_empty() || !self.room_to_grow(rules).is_some()
    }

    /// Withholds the credit for messages.
    pub(crate) fn withhold(&mut self, for_what: Amount, until_ms: u64, pending: &Arc<PendingPublish>) {
        self.withholding.withheld.push_back(Withheld { for_what, until_ms, pending: pending.clone() });
    }

    /// Takes the publishers whose credit is no longer withheld, oldest first.
    pub(crate) fn grant_credit(&mut self, rules: CreditRules, now_ms: u64) -> Granted {
        let mut granted = Granted::default();
        if self.withholding.withheld.is_empty() {
            return granted;
        }
        let mut room = self.room_to_grow(rules);
        let withheld = &mut self.withholding.withheld;
        while let Some(first) = withheld.front() {
            let is_late = first.until_ms <= now_ms;
            if !is_late && !room.is_some() {
                break;
            }
            room.messages = room.messages.saturating_sub(first.for_what.messages);
            room.bytes = room.bytes.saturating_sub(first.for_what.bytes);
            granted.late += u64::from(is_late);
            granted.waiters.extend(withheld.pop_front().map(|first| Waiter::Credit(first.pending)));
        }
        granted
    }
}

impl Amount {
    fn is_some(self) -> bool {
        self.messages > 0 && self.bytes > 0
    }
}

/// Returns the messages and bytes of a request by queue.
pub(crate) fn amounts(request: &PublishRequest) -> Map<PartitionId, Amount> {
    let mut amounts: Map<PartitionId, Amount> = Map::default();
    for message in &request.messages {
        for target in &message.queues {
            let amount = amounts.entry(target.queue).or_default();
            amount.messages += 1;
            amount.bytes += message.bytes.len() as u64;
        }
    }
    amounts
}
