//! Acknowledgement timeouts. Up to RabbitMQ 4.2 a late acknowledgement closes the channel, for any queue type, and its deliveries are requeued. From
//! 4.3 on only quorum queues have the timeout: they take the messages back, and the consumer is cancelled.

use crate::connection::Connection;
use crate::deliver::{Cancelled, Consumer, queue_of};
use crate::operation::Waits;
use polylogue_amqp::codec::MethodId;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef, NO_CONSUMER, Place, Run, Verdict};
use polylogue_amqp_model::QueueKind;
use polylogue_api::{Request, SettleRequest};

impl Connection {
    /// Returns the acknowledgement timeout for a queue of this type, given that of the queue or consumer. `None` for no limit. Milliseconds.
    pub(crate) fn ack_ms_max(&self, kind: QueueKind, set: Option<u64>) -> Option<u64> {
        let minds = kind == QueueKind::Quorum || !self.settings.is_newer();
        set.or(Some(self.settings.ack_ms_max)).filter(|ms| minds && *ms > 0)
    }

    /// A delivery is made that must be acknowledged within this time. Milliseconds.
    pub(crate) fn acks_expected(&mut self, within_ms: Option<u64>) {
        if let Some(within_ms) = within_ms {
            self.acks_due(self.now.monotonic_ms.saturating_add(within_ms));
        }
    }

    /// An acknowledgement does not postpone the deadline: it is checked when it is reached.
    fn acks_due(&mut self, at_ms: u64) {
        self.acks_due_ms = Some(self.acks_due_ms.map_or(at_ms, |due| due.min(at_ms)));
    }

    /// Returns the timeout of the oldest delivery of a channel: its consumer may have been cancelled.
    fn ack_timeout_ms(&self, channel: ChannelRef, consumer: ConsumerRef) -> Option<u64> {
        let known = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
        known.map_or_else(|| self.ack_ms_max(QueueKind::Quorum, None), |consumer| consumer.ack_ms_max)
    }

    /// Checks for deliveries that are unacknowledged for too long.
    pub(crate) fn check_late_acks(&mut self) {
        self.acks_due_ms = None;
        let channels: Vec<_> = self.channels.keys().copied().collect();
        for channel in channels {
            if self.settings.is_newer() {
                self.take_back_late(channel);
                continue;
            }
            let Some((consumer, made_ms)) = self.session.oldest_unacked(channel) else { continue };
            let Some(ack_timeout_ms) = self.ack_timeout_ms(channel, consumer) else { continue };
            let due_ms = made_ms.saturating_add(ack_timeout_ms);
            if due_ms <= self.now.monotonic_ms {
                self.close_late(channel, ack_timeout_ms);
            } else {
                self.acks_due(due_ms);
            }
        }
    }

    fn close_late(&mut self, channel: ChannelRef, ack_timeout_ms: u64) {
        let refusal = Refusal::delivery_timeout(channel.number, ack_timeout_ms);
        self.event(amqp::Event::CloseChannel { channel, method: MethodId::NONE, refusal });
    }

    /// Takes back late deliveries of quorum queues. Their consumers are cancelled; if the client does not support the notification, its channel is
    /// closed.
    fn take_back_late(&mut self, channel: ChannelRef) {
        let of_gets = self.ack_ms_max(QueueKind::Quorum, None);
        let Some(open) = self.channels.get(&channel) else { return };
        let ack_timeout_ms = |consumer: ConsumerRef, place: Place| match open.consumers.get(&consumer) {
            Some(one) => one.ack_ms_max,
            None if consumer == NO_CONSUMER => {
                let pull = open.pulls.get(&(queue_of(place).0, false));
                of_gets.filter(|_| pull.is_some_and(|pull| pull.kind == QueueKind::Quorum))
            }
            None => open.cancelled.get(&consumer).and_then(|one| one.ack_ms_max),
        };
        let mut late: Vec<(ConsumerRef, Place)> = Vec::new();
        let each = |consumer, place| late.push((consumer, place));
        let next_ms = self.session.take_back_late(channel, self.now.monotonic_ms, ack_timeout_ms, each);
        let unnotified = |(consumer, place): &(ConsumerRef, Place)| {
            (!open.consumers.contains_key(consumer) || !self.session.notifies_cancellation())
                .then(|| ack_timeout_ms(*consumer, *place))
                .flatten()
        };
        if let Some(ack_timeout_ms) = late.iter().find_map(unnotified) {
            return self.close_late(channel, ack_timeout_ms);
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
        consumers.into_iter().for_each(|consumer| self.cancel_late_consumer(channel, consumer));
    }

    /// The broker cancels a consumer, which keeps its unsettled deliveries.
    fn cancel_late_consumer(&mut self, channel: ChannelRef, consumer: ConsumerRef) {
        let Some(open) = self.channels.get_mut(&channel) else { return };
        let Some(Consumer { id, entry, unsettled, ack_ms_max, .. }) = open.consumers.remove(&consumer) else { return };
        open.cancelled.insert(consumer, Cancelled { id, unsettled, ack_ms_max, kind: entry.queue.kind });
        entry.used(self.now);
        self.show(|shown| shown.cancelled(channel, consumer));
        self.event(amqp::Event::Cancelled { channel, consumer });
        // Deliveries in flight to it are requeued before it is removed.
        self.ask(Request::Stop(id), Waits::LateConsumer(channel, consumer));
    }

    /// The cancelled consumer receives nothing more.
    pub(crate) fn late_consumer_cancelled(&mut self, channel: ChannelRef, consumer: ConsumerRef) {
        let run = Run { consumer, first: Place { queue: 0, at: 0 }, count: 0 };
        self.remove_settled(channel, &[run]);
    }
}
