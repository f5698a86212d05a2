//! What clients receive and settle.

use crate::connection::Connection;
use crate::directory::QueueEntry;
use crate::message::{Stored, open};
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, ShortStr, Table, TableBuilder, Value};
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef, NO_CONSUMER, Place, Run, Verdict};
use polylogue_amqp_model::QueueKind;
use polylogue_api::{ConsumerId, Credit, Delivery, Holder, Request, Settle, SettleRequest, Settlement};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;

/// How often a message failed, and how often it came back: headers of messages of quorum queues that come again.
const DELIVERY_COUNT: &str = "x-delivery-count";
const ACQUIRED_COUNT: &str = "x-acquired-count";

/// Messages that a consumer may have on their way to its socket.
pub(crate) const WINDOW_MESSAGES: u64 = 1_000;

/// A consumer of a channel.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: ConsumerId,
    pub(crate) entry: Arc<QueueEntry>,
    pub(crate) no_ack: bool,
    /// How long it may take to acknowledge; `None` for ever. Milliseconds.
    pub(crate) ack_ms_max: Option<u64>,
    /// What came since it was given credit last.
    pub(crate) owed: Credit,
}

/// Deliveries of one consumer that go out together, and what they weigh.
struct Outgoing {
    channel: ChannelRef,
    consumer: ConsumerRef,
    deliveries: Vec<amqp::Delivery>,
    weight: u64,
}

/// The properties of a message that comes again, with how often it did: quorum queues tell their consumers.
fn with_counts(properties: &Bytes, delivery: &Delivery) -> Option<Bytes> {
    let mut basic = BasicProperties::decode(properties).ok()?;
    let headers = basic.headers.take().unwrap_or(Table::EMPTY).without(DELIVERY_COUNT).without(ACQUIRED_COUNT);
    let counts = TableBuilder::new()
        .with(ACQUIRED_COUNT, Value::I64(delivery.returned.into()))
        .with(DELIVERY_COUNT, Value::I64(delivery.failed.into()))
        .build();
    basic.headers = Table::new([&headers.raw()[..], counts.raw()].concat().into()).ok();
    Some(basic.encode())
}

/// A delivery in the words of the session. `None` for what is no message of AMQP.
pub(crate) fn delivery_of(delivery: Delivery, kind: Option<QueueKind>) -> Option<amqp::Delivery> {
    let Stored { exchange, routing_key, mut properties, body, .. } = open(&delivery.bytes)?;
    if kind == Some(QueueKind::Quorum) && delivery.returned > 0 {
        properties = with_counts(&properties, &delivery).unwrap_or(properties);
    }
    Some(amqp::Delivery {
        place: Place { queue: delivery.queue.0, at: delivery.first.0 },
        redelivered: delivery.redelivered,
        exchange: ShortStr::new(exchange)?,
        routing_key: ShortStr::new(routing_key)?,
        properties,
        payload: body.into(),
    })
}

impl Connection {
    /// Messages came for consumers.
    pub(crate) fn deliver(&mut self, deliveries: Vec<Delivery>) {
        let mut run: Option<Outgoing> = None;
        for delivery in deliveries {
            let Some((channel, consumer)) = self.consumers.get(&delivery.consumer).copied() else { continue };
            let (queue, first, by) = (delivery.queue, delivery.first, Holder::Consumer(delivery.consumer));
            let weight = delivery.weight;
            let open = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
            let kind = open.map(|consumer| consumer.entry.queue.kind);
            let Some(message) = delivery_of(delivery, kind) else {
                // Nobody could read it, this time or another.
                self.settle_quietly(Settlement { queue, first, count: 1, by, how: Settle::Accept });
                self.owe(channel, consumer, Credit { messages: 1, bytes: weight });
                continue;
            };
            if !self.has_room(channel, consumer) {
                let Some(open) = self.channels.get_mut(&channel) else { continue };
                open.held.push_back((consumer, message, weight));
                continue;
            }
            match &mut run {
                Some(out) if (out.channel, out.consumer) == (channel, consumer) => {
                    out.deliveries.push(message);
                    out.weight += weight;
                }
                _ => {
                    self.hand_out(run.take());
                    run = Some(Outgoing { channel, consumer, deliveries: vec![message], weight });
                }
            }
        }
        self.hand_out(run);
    }

    /// Whether the channel may have one more delivery that waits for its settlement; if so, it has.
    fn has_room(&mut self, channel: ChannelRef, consumer: ConsumerRef) -> bool {
        let Some(open) = self.channels.get_mut(&channel) else { return false };
        let Some(consumer) = open.consumers.get_mut(&consumer) else { return true };
        if consumer.no_ack {
            return true;
        }
        if open.qos > 0 && open.unsettled >= u64::from(open.qos) {
            return false;
        }
        open.unsettled += 1;
        true
    }

    fn hand_out(&mut self, out: Option<Outgoing>) {
        let Some(Outgoing { channel, consumer, deliveries, weight }) = out else { return };
        self.owe(channel, consumer, Credit { messages: deliveries.len() as u64, bytes: weight });
        let open = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
        self.acks_expected(open.filter(|consumer| !consumer.no_ack).and_then(|consumer| consumer.ack_ms_max));
        self.event(amqp::Event::Deliver { channel, consumer, deliveries });
    }

    /// Notes what a consumer is to be given back once it is written.
    fn owe(&mut self, channel: ChannelRef, consumer: ConsumerRef, more: Credit) {
        let Some(open) = self.channels.get_mut(&channel) else { return };
        let replies = open.replies.as_mut().filter(|replies| replies.consumer == consumer);
        let owed = open.consumers.get_mut(&consumer).map(|open| &mut open.owed);
        if let Some(owed) = owed.or(replies.map(|replies| &mut replies.owed)) {
            owed.messages += more.messages;
            owed.bytes += more.bytes;
        }
    }

    /// Deliveries that waited for room go on.
    pub(crate) fn release_held(&mut self, channel: ChannelRef) {
        let next = |one: &mut Connection| one.channels.get_mut(&channel)?.held.pop_front();
        while let Some((consumer, message, weight)) = next(self) {
            if !self.has_room(channel, consumer) {
                if let Some(open) = self.channels.get_mut(&channel) {
                    open.held.push_front((consumer, message, weight));
                }
                return;
            }
            self.hand_out(Some(Outgoing { channel, consumer, deliveries: vec![message], weight }));
        }
    }

    /// What was written makes room for more.
    pub(crate) fn give_credit(&mut self) {
        let mut credits = Vec::new();
        for (channel, open) in &mut self.channels {
            if !self.session.may_deliver(*channel) {
                continue;
            }
            for consumer in open.consumers.values_mut().filter(|consumer| consumer.owed.messages > 0) {
                credits.push((consumer.id, std::mem::take(&mut consumer.owed)));
            }
            if let Some(replies) = open.replies.as_mut().filter(|replies| replies.owed.messages > 0) {
                credits.push((replies.id, std::mem::take(&mut replies.owed)));
            }
        }
        for (consumer, more) in credits {
            self.tell(Request::Credit(consumer, more));
        }
    }

    /// Deliveries are settled. Gives what is to be told the broker.
    pub(crate) fn settlements(&mut self, channel: ChannelRef, verdict: Verdict, runs: &[Run]) -> Vec<Settlement> {
        let how = match verdict {
            Verdict::Ack => Settle::Accept,
            Verdict::Discard => Settle::Reject,
            Verdict::Requeue => Settle::Return { counts: false, delay_ms: 0 },
            Verdict::RequeueFailed => Settle::Return { counts: true, delay_ms: 0 },
        };
        let Some(open) = self.channels.get_mut(&channel) else { return Vec::new() };
        let mut settlements = Vec::with_capacity(runs.len());
        for run in runs {
            let queue = PartitionId(run.first.queue);
            let id = if run.consumer == NO_CONSUMER {
                open.pulls.get(&(queue, false)).copied()
            } else {
                open.unsettled = open.unsettled.saturating_sub(run.count);
                open.consumers.get(&run.consumer).map(|consumer| consumer.id)
            };
            // A consumer that was cancelled keeps what it has under the same number.
            let id = id.or_else(|| open.cancelled.get(&run.consumer).copied());
            let Some(id) = id else { continue };
            let count = u32::try_from(run.count).unwrap_or(u32::MAX);
            let by = Holder::Consumer(id);
            settlements.push(Settlement { queue, first: Offset(run.first.at), count, by, how });
        }
        settlements
    }

    /// Tells the broker of settlements; nobody waits.
    pub(crate) fn settle(&mut self, channel: ChannelRef, verdict: Verdict, runs: &[Run]) {
        let settlements = self.settlements(channel, verdict, runs);
        if !settlements.is_empty() {
            self.ask(Request::Settle(SettleRequest { settlements, wait: false }), crate::operation::Waits::Nothing);
        }
        self.release_held(channel);
    }

    fn settle_quietly(&mut self, settlement: Settlement) {
        let request = SettleRequest { settlements: vec![settlement], wait: false };
        self.ask(Request::Settle(request), crate::operation::Waits::Nothing);
    }

    /// A consumer's queue is gone.
    pub(crate) fn detached(&mut self, id: ConsumerId) {
        let Some((channel, consumer)) = self.consumers.remove(&id) else { return };
        let Some(open) = self.channels.get_mut(&channel) else { return };
        open.cancelled.remove(&consumer);
        open.pulls.retain(|_, pull| *pull != id);
        if open.consumers.remove(&consumer).is_some() {
            self.show(|shown| shown.cancelled(channel, consumer));
            self.event(amqp::Event::Cancelled { channel, consumer });
        }
    }
}
