//! Acknowledgements that do not come. Up to RabbitMQ 4.2 their channel is closed, whatever the queue, and what was delivered on it goes to
//! others. From 4.3 on only quorum queues mind: they take the messages back, and their consumer is cancelled.

use crate::connection::Connection;
use crate::deliver::{Cancelled, Consumer, queue_of};
use crate::operation::Waits;
use polylogue_amqp::codec::MethodId;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef, NO_CONSUMER, Place, Run, Verdict};
use polylogue_amqp_model::QueueKind;
use polylogue_api::{Request, SettleRequest};

impl Connection {
    /// How long an acknowledgement to a queue of this type may take, when the queue or the consumer says this. `None` for ever.
    /// Milliseconds.
    pub(crate) fn ack_ms_max(&self, kind: QueueKind, set: Option<u64>) -> Option<u64> {
        let minds = kind == QueueKind::Quorum || !self.settings.is_newer();
        set.or(Some(self.settings.ack_ms_max)).filter(|ms| minds && *ms > 0)
    }

    /// A delivery is made that is to be acknowledged within this time. Milliseconds.
    pub(crate) fn acks_expected(&mut self, within_ms: Option<u64>) {
        if let Some(within_ms) = within_ms {
            self.acks_due(self.now.monotonic_ms.saturating_add(within_ms));
        }
    }

    /// An acknowledgement that is made makes nothing due any earlier: the time that is kept is looked at when it comes.
    fn acks_due(&mut self, at_ms: u64) {
        self.acks_due_ms = Some(self.acks_due_ms.map_or(at_ms, |due| due.min(at_ms)));
    }

    /// How long the oldest delivery of a channel may wait: the consumer it went to may be gone.
    fn patience_ms(&self, channel: ChannelRef, consumer: ConsumerRef) -> Option<u64> {
        let known = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
        known.map_or_else(|| self.ack_ms_max(QueueKind::Quorum, None), |consumer| consumer.ack_ms_max)
    }

    /// Looks for deliveries that have waited too long.
    pub(crate) fn look_for_late_acks(&mut self) {
        self.acks_due_ms = None;
        let channels: Vec<_> = self.channels.keys().copied().collect();
        for channel in channels {
            if self.settings.is_newer() {
                self.take_back_late(channel);
                continue;
            }
            let Some((consumer, made_ms)) = self.session.oldest_unacked(channel) else { continue };
            let Some(patience_ms) = self.patience_ms(channel, consumer) else { continue };
            let due_ms = made_ms.saturating_add(patience_ms);
            if due_ms <= self.now.monotonic_ms {
                self.close_late(channel, patience_ms);
            } else {
                self.acks_due(due_ms);
            }
        }
    }

    fn close_late(&mut self, channel: ChannelRef, patience_ms: u64) {
        let refusal = Refusal::delivery_timeout(channel.number, patience_ms);
        self.event(amqp::Event::CloseChannel { channel, method: MethodId::NONE, refusal });
    }

    /// Takes back what quorum queues have waited for too long. Its consumers are cancelled; where the client cannot be told so, its channel is
    /// closed.
    fn take_back_late(&mut self, channel: ChannelRef) {
        let of_gets = self.ack_ms_max(QueueKind::Quorum, None);
        let Some(open) = self.channels.get(&channel) else { return };
        let patience_ms = |consumer: ConsumerRef, place: Place| match open.consumers.get(&consumer) {
            Some(one) => one.ack_ms_max,
            None if consumer == NO_CONSUMER => {
                let pull = open.pulls.get(&(queue_of(place).0, false));
                of_gets.filter(|_| pull.is_some_and(|pull| pull.kind == QueueKind::Quorum))
            }
            None => open.cancelled.get(&consumer).and_then(|one| one.ack_ms_max),
        };
        let mut late: Vec<(ConsumerRef, Place)> = Vec::new();
        let each = |consumer, place| late.push((consumer, place));
        let next_ms = self.session.take_back_late(channel, self.now.monotonic_ms, patience_ms, each);
        let nobody_hears = |(consumer, place): &(ConsumerRef, Place)| {
            (!open.consumers.contains_key(consumer) || !self.session.notifies_cancellation())
                .then(|| patience_ms(*consumer, *place))
                .flatten()
        };
        if let Some(patience_ms) = late.iter().find_map(nobody_hears) {
            return self.close_late(channel, patience_ms);
        }
        if let Some(next_ms) = next_ms {
            self.acks_due(next_ms);
        }
        let runs: Vec<_> =
            late.iter().map(|(consumer, first)| Run { consumer: *consumer, first: *first, count: 1 }).collect();
        let settlements = self.settlements(channel, Verdict::Requeue, &runs);
        if !settlements.is_empty() {
            self.ask(Request::Settle(SettleRequest { settlements, wait: false }), Waits::Nothing);
        }
        let mut consumers: Vec<_> = late.into_iter().map(|(consumer, _)| consumer).collect();
        consumers.sort_unstable_by_key(|consumer| consumer.0);
        consumers.dedup();
        consumers.into_iter().for_each(|consumer| self.expel(channel, consumer));
    }

    /// The broker cancels a consumer, which keeps what it still has to settle.
    fn expel(&mut self, channel: ChannelRef, consumer: ConsumerRef) {
        let Some(open) = self.channels.get_mut(&channel) else { return };
        let Some(Consumer { id, entry, unsettled, ack_ms_max, .. }) = open.consumers.remove(&consumer) else { return };
        open.cancelled.insert(consumer, Cancelled { id, unsettled, ack_ms_max, kind: entry.queue.kind });
        entry.used(self.now);
        self.show(|shown| shown.cancelled(channel, consumer));
        self.event(amqp::Event::Cancelled { channel, consumer });
        // What is on its way to it goes back unseen before it is forgotten.
        self.ask(Request::Stop(id), Waits::Expelled(channel, consumer));
    }

    /// A consumer that was cancelled gets nothing more.
    pub(crate) fn expelled(&mut self, channel: ChannelRef, consumer: ConsumerRef) {
        let run = Run { consumer, first: Place { queue: 0, at: 0 }, count: 0 };
        self.let_go(channel, &[run]);
    }
}
