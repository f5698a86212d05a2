//! Acknowledgements that do not come: their channel is closed, and what was delivered on it goes to others.

use crate::connection::Connection;
use polylogue_amqp::codec::MethodId;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef};

impl Connection {
    /// How long somebody may take, when his queue or he himself says this. Milliseconds.
    pub(crate) fn ack_ms_max(&self, set: Option<u64>) -> Option<u64> {
        set.or(Some(self.settings.ack_ms_max)).filter(|ms| *ms > 0)
    }

    /// A delivery is made that is to be acknowledged within this time. Milliseconds.
    pub(crate) fn acks_expected(&mut self, within_ms: Option<u64>) {
        let Some(within_ms) = within_ms else { return };
        let due_ms = self.now.monotonic_ms.saturating_add(within_ms);
        // One that is acknowledged makes nothing due any earlier: the time that is kept is looked at when it comes.
        self.acks_due_ms = Some(self.acks_due_ms.map_or(due_ms, |due| due.min(due_ms)));
    }

    /// How long the oldest delivery of a channel may wait: the consumer it went to may be gone.
    fn patience_ms(&self, channel: ChannelRef, consumer: ConsumerRef) -> Option<u64> {
        let known = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
        known.map_or_else(|| self.ack_ms_max(None), |consumer| consumer.ack_ms_max)
    }

    /// Closes the channels whose oldest delivery has waited too long.
    pub(crate) fn look_for_late_acks(&mut self) {
        self.acks_due_ms = None;
        let channels: Vec<_> = self.channels.keys().copied().collect();
        for channel in channels {
            let Some((consumer, made_ms)) = self.session.oldest_unacked(channel) else { continue };
            let Some(patience_ms) = self.patience_ms(channel, consumer) else { continue };
            let due_ms = made_ms.saturating_add(patience_ms);
            if due_ms <= self.now.monotonic_ms {
                let refusal = Refusal::delivery_timeout(channel.number, patience_ms);
                self.event(amqp::Event::CloseChannel { channel, method: MethodId::NONE, refusal });
            } else {
                self.acks_due_ms = Some(self.acks_due_ms.map_or(due_ms, |due| due.min(due_ms)));
            }
        }
    }
}
