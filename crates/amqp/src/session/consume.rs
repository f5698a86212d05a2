//! Consumers, deliveries and acknowledgements.

use super::channel::{Channel, Mode, Replies, Waiting};
use super::core::Core;
use super::publish::reply_address;
use super::unacked::Unacked;
use crate::codec::*;
use crate::refusal::Refusal;
use crate::request::{ChannelRef, Consume, ConsumerRef, Delivery, NO_CONSUMER, REPLY_QUEUE, Request, Verdict};

/// A consumer of a queue.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) tag: ShortStr,
    pub(super) no_ack: bool,
}

impl Channel {
    pub(super) fn on_qos(&mut self, core: &mut Core, qos: &BasicQos) -> Result<(), Refusal> {
        if qos.prefetch_size != 0 {
            return Err(Refusal::prefetch_size(qos.prefetch_size));
        }
        // A prefetch limit for new consumers removes the shared limit.
        let shared = if qos.global { qos.prefetch_count } else { 0 };
        if !qos.global {
            self.prefetch = qos.prefetch_count;
        }
        if shared != self.shared_prefetch {
            self.shared_prefetch = shared;
            core.ask_for(self.me, Request::Qos(self.me, shared));
        }
        core.answer(self.me, false, BasicQosOk {});
        Ok(())
    }

    pub(super) fn on_consume(&mut self, core: &mut Core, consume: BasicConsume) -> Result<(), Refusal> {
        let queue = self.queue_name(consume.queue)?;
        let is_replies = self.replies.as_ref().is_some_and(|replies| replies.tag == consume.consumer_tag);
        if is_replies || self.by_tag.contains_key(&consume.consumer_tag) {
            return Err(Refusal::consumer_tag_reused(&consume.consumer_tag));
        }
        let max = core.settings.consumers_per_channel_max;
        if self.consumers.len() >= max {
            return Err(Refusal::too_many_consumers(max));
        }
        let BasicConsume { no_ack, exclusive, nowait, arguments, .. } = consume;
        let is_reply_queue = &queue[..] == REPLY_QUEUE.as_bytes();
        if is_reply_queue && !no_ack {
            return Err(Refusal::reply_consumer_acks());
        }
        if is_reply_queue && self.replies.is_some() {
            return Err(Refusal::reply_consumer_set());
        }
        let tag = match consume.consumer_tag.is_empty() {
            true => core.names.make("amq.ctag"),
            false => consume.consumer_tag.to_owned_bytes(),
        };
        let at = core.consumer();
        if is_reply_queue {
            let waiting = Waiting::Replies { consumer: at, tag, nowait };
            self.ask(core, BasicConsume::ID, Request::OpenReplies(self.me, at), waiting);
            return Ok(());
        }
        let unacked_max = u32::try_from(core.settings.unacked_per_channel_max).unwrap_or(u32::MAX);
        let deliveries_max = if self.prefetch == 0 { unacked_max } else { u32::from(self.prefetch).min(unacked_max) };
        let wanted = Consume {
            consumer: at,
            queue,
            tag: tag.clone(),
            no_ack,
            exclusive,
            deliveries_max,
            prefetch: self.prefetch,
            arguments,
        };
        let waiting = Waiting::Consume { consumer: Consumer { tag, no_ack }, at, nowait };
        self.ask(core, BasicConsume::ID, Request::Consume(self.me, wanted), waiting);
        Ok(())
    }

    /// The broker has added the consumer.
    pub(super) fn consuming(&mut self, core: &mut Core, consumer: Consumer, at: ConsumerRef, nowait: bool) {
        core.answer(self.me, nowait, BasicConsumeOk { consumer_tag: consumer.tag.clone() });
        self.by_tag.insert(consumer.tag.clone(), at);
        self.consumers.insert(at, consumer);
    }

    /// The broker has assigned a reply address.
    pub(super) fn taking_replies(
        &mut self,
        core: &mut Core,
        suffix: &ShortStr,
        (consumer, tag): (ConsumerRef, ShortStr),
        nowait: bool,
    ) {
        core.answer(self.me, nowait, BasicConsumeOk { consumer_tag: tag.clone() });
        self.replies = Some(Replies { consumer, tag, address: reply_address(suffix) });
    }

    pub(super) fn on_cancel(&mut self, core: &mut Core, cancel: BasicCancel) -> Result<(), Refusal> {
        let BasicCancel { consumer_tag, nowait } = cancel;
        if let Some(replies) = self.replies.take_if(|replies| replies.tag == consumer_tag) {
            core.ask_for(self.me, Request::CloseReplies(self.me, replies.consumer));
            core.answer(self.me, nowait, BasicCancelOk { consumer_tag });
            return Ok(());
        }
        let Some(consumer) = self.by_tag.get(&consumer_tag).copied() else {
            // The specification requires that this is no error: both sides may cancel at the same time.
            core.answer(self.me, nowait, BasicCancelOk { consumer_tag });
            return Ok(());
        };
        let waiting = Waiting::Cancel { consumer, tag: consumer_tag.to_owned_bytes(), nowait };
        self.ask(core, BasicCancel::ID, Request::Cancel(self.me, consumer), waiting);
        Ok(())
    }

    /// The consumer ended at the client's request.
    pub(super) fn cancelled(&mut self, core: &mut Core, consumer: ConsumerRef, tag: ShortStr, nowait: bool) {
        self.remove_consumer(consumer);
        core.answer(self.me, nowait, BasicCancelOk { consumer_tag: tag });
    }

    /// The broker cancelled the consumer.
    pub(super) fn on_broker_cancel(&mut self, core: &mut Core, consumer: ConsumerRef) {
        let Some(consumer) = self.remove_consumer(consumer) else { return };
        if core.peer.can.consumer_cancel_notify {
            core.answer(self.me, false, BasicCancel { consumer_tag: consumer.tag, nowait: true });
        }
    }

    fn remove_consumer(&mut self, consumer: ConsumerRef) -> Option<Consumer> {
        let removed = self.consumers.remove(&consumer)?;
        self.by_tag.remove(&removed.tag);
        Some(removed)
    }

    pub(super) fn on_get(&mut self, core: &mut Core, get: BasicGet) -> Result<(), Refusal> {
        let queue = self.queue_name(get.queue)?;
        let request = Request::Get { channel: self.me, queue, no_ack: get.no_ack };
        self.ask(core, BasicGet::ID, request, Waiting::Get { no_ack: get.no_ack });
        Ok(())
    }

    /// Sends the result of `basic.get`.
    pub(super) fn on_message_got(&mut self, core: &mut Core, got: Option<(Delivery, u32)>, no_ack: bool) {
        let Some((delivery, message_count)) = got else {
            core.answer(self.me, false, BasicGetEmpty::default());
            return;
        };
        let delivery_tag = self.number(core.now_ms, &delivery, NO_CONSUMER, no_ack);
        let Delivery { redelivered, exchange, routing_key, properties, payload, .. } = delivery;
        let get_ok = BasicGetOk { delivery_tag, redelivered, exchange, routing_key, message_count };
        core.answer(self.me, false, get_ok);
        core.output.content(self.me.number, core.frame_bytes_max, &properties, &payload);
    }

    /// Assigns a delivery tag, and remembers the delivery unless acknowledgement is automatic.
    fn number(&mut self, now_ms: u64, delivery: &Delivery, consumer: ConsumerRef, no_ack: bool) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        if !no_ack {
            self.unacked.push(Unacked::new(tag, delivery.place, consumer, now_ms));
        }
        tag
    }

    /// Sends messages to a consumer.
    pub(super) fn on_deliveries(&mut self, core: &mut Core, at: ConsumerRef, deliveries: Vec<Delivery>) {
        if let Some(replies) = self.replies.as_ref().filter(|replies| replies.consumer == at) {
            // They share the tag of the next delivery, as in RabbitMQ: the client cannot acknowledge them.
            for delivery in &deliveries {
                send(core, self.me.number, &replies.tag, self.next_tag, delivery);
            }
            return;
        }
        let Some(consumer) = self.consumers.get(&at) else {
            for delivery in deliveries {
                core.settle(self.me, Verdict::Requeue, at, delivery.place);
            }
            return;
        };
        let (tag, no_ack) = (consumer.tag.clone(), consumer.no_ack);
        for delivery in &deliveries {
            let number = self.number(core.now_ms, delivery, at, no_ack);
            send(core, self.me.number, &tag, number, delivery);
        }
    }

    pub(super) fn on_ack(&mut self, core: &mut Core, ack: &BasicAck) -> Result<(), Refusal> {
        self.settle(core, ack.delivery_tag, ack.multiple, Verdict::Ack)
    }

    pub(super) fn on_nack(&mut self, core: &mut Core, nack: &BasicNack) -> Result<(), Refusal> {
        let verdict = if nack.requeue { Verdict::Requeue } else { Verdict::Discard };
        self.settle(core, nack.delivery_tag, nack.multiple, verdict)
    }

    pub(super) fn on_reject(&mut self, core: &mut Core, reject: &BasicReject) -> Result<(), Refusal> {
        let verdict = if reject.requeue { Verdict::RequeueFailed } else { Verdict::Discard };
        self.settle(core, reject.delivery_tag, false, verdict)
    }

    fn settle(&mut self, core: &mut Core, tag: u64, multiple: bool, verdict: Verdict) -> Result<(), Refusal> {
        let unknown = || Refusal::unknown_delivery_tag(tag);
        if let Mode::Tx(tx) = &mut self.mode {
            let mut taken = Vec::new();
            if multiple {
                self.unacked.take_upto(tag, |entry| taken.push(entry)).ok_or_else(unknown)?;
            } else {
                taken.push(self.unacked.take(tag).ok_or_else(unknown)?);
            }
            return tx.settle(core, verdict, taken);
        }
        let me = self.me;
        if multiple {
            return self.unacked.take_upto(tag, |entry| settle_one(core, me, verdict, &entry)).ok_or_else(unknown);
        }
        let entry = self.unacked.take(tag).ok_or_else(unknown)?;
        settle_one(core, me, verdict, &entry);
        Ok(())
    }

    pub(super) fn on_recover(&mut self, core: &mut Core, requeue: bool, answered: bool) -> Result<(), Refusal> {
        if !requeue {
            return Err(Refusal::not_implemented("requeue=false"));
        }
        let me = self.me;
        // Tag 0 means all of them; having none is no error.
        let _all = self.unacked.take_upto(0, |entry| settle_one(core, me, Verdict::Requeue, &entry));
        core.answer(me, !answered, BasicRecoverOk {});
        Ok(())
    }
}

/// Settles a delivery, unless the broker has taken it back.
fn settle_one(core: &mut Core, channel: ChannelRef, verdict: Verdict, entry: &Unacked) {
    if !entry.is_void() {
        core.settle(channel, verdict, entry.consumer, entry.place);
    }
}

/// Writes a delivery.
fn send(core: &mut Core, channel: u16, consumer_tag: &ShortStr, delivery_tag: u64, delivery: &Delivery) {
    let origin = (&delivery.exchange, &delivery.routing_key);
    core.output.deliver(channel, consumer_tag, delivery_tag, delivery.redelivered, origin);
    core.output.content(channel, core.frame_bytes_max, &delivery.properties, &delivery.payload);
}
