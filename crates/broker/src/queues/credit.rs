//! Credit of publishers that wait for no confirms: withheld while a queue grows although consumers wait for its messages.
//!
//! ```text
//!   publish, Ack::KeptUp ──> queue has grown by less than its rules say ──────────────────────────> answered: credit
//!                       └──> more, and a consumer may hold more messages ──> withheld, in order ──> answered when
//!                                                                            consumers have taken enough, none waits any more, or
//!                                                                            `withheld_ms_max` has passed
//! ```
//!
//! RabbitMQ's queue grants credit for what it has processed, and delivers first: there, too, publishers are slowed by a queue that does not keep
//! up and not by a long one. A queue without consumers, or whose consumers hold as much as they may, withholds nothing. What it holds at that
//! time is where growth begins, so that working off what has piled up does not slow publishers below the rate of the consumers.

use crate::config::CreditRules;
use crate::pending::PendingPublish;
use crate::queues::host::{QueueHost, Waiter};
use polylogue_api::PublishRequest;
use polylogue_types::{Map, PartitionId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Consumers that are looked at to find one that waits for messages.
const CONSUMERS_LOOKED_AT_MAX: usize = 64;

/// Messages and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amount {
    messages: u64,
    bytes: u64,
}

/// Credit that is withheld.
#[derive(Debug)]
struct Withheld {
    for_what: Amount,
    /// Wall time, milliseconds.
    until_ms: u64,
    pending: Arc<PendingPublish>,
}

/// The credit that a queue withholds, and from where on it counts its growth.
#[derive(Debug, Default)]
pub(crate) struct Withholding {
    /// The least that was ready since no consumer waited.
    base: Amount,
    /// By their times.
    withheld: VecDeque<Withheld>,
}

/// Publishers whose credit is granted.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    pub(crate) waiters: Vec<Waiter>,
    /// How many of them had waited for as long as credit is withheld at the most.
    pub(crate) late: u64,
}

impl Withholding {
    /// When the oldest withheld credit is granted at the latest. Wall time, milliseconds.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.withheld.front().map(|withheld| withheld.until_ms)
    }

    /// Takes all waiting publishers: the queue or its writer is gone.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waiter> {
        std::mem::take(&mut self.withheld).into_iter().map(|withheld| Waiter::Credit(withheld.pending))
    }
}

impl QueueHost {
    /// By how much more the queue may grow before it withholds credit.
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

    /// Whether a publisher's credit is to be withheld.
    pub(crate) fn withholds(&mut self, rules: CreditRules) -> bool {
        !self.withholding.withheld.is_empty() || !self.room_to_grow(rules).is_some()
    }

    /// Withholds the credit for messages.
    pub(crate) fn withhold(&mut self, for_what: Amount, until_ms: u64, pending: &Arc<PendingPublish>) {
        self.withholding.withheld.push_back(Withheld { for_what, until_ms, pending: pending.clone() });
    }

    /// Takes the publishers whose credit need not be withheld any longer, oldest first.
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

/// Messages and bytes of a request by queue.
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
