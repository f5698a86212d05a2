//! Deliveries to clients and their settlement.

use crate::connection::Connection;
use crate::counts::QueueCount;
use crate::directory::QueueEntry;
use crate::message::{Stored, open};
use crate::operation::Waits;
use crate::stream::Stamps;
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, ShortStr, Table, TableBuilder, Value};
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef, NO_CONSUMER, Place, Run, Verdict};
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_model::QueueKind;
use polylogue_api::{ConsumerId, Credit, Delivery, Holder, Request, Settle, SettleRequest, Settlement};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;

/// Headers of redelivered messages of quorum queues: the number of failed deliveries, and the number of deliveries that came back.
const DELIVERY_COUNT: &str = "x-delivery-count";
const ACQUIRED_COUNT: &str = "x-acquired-count";

/// The most messages that a consumer may have in flight to its socket.
pub(crate) const WINDOW_MESSAGES: u64 = 1_000;
/// The part of its window that is returned to a consumer immediately.
const CREDIT_PART: u64 = 16;
/// When less than that is returned. A message larger than the rest of the window waits this long. Milliseconds.
const CREDIT_WAIT_MS: u64 = 20;
/// The most consumers that are checked per acknowledgement when many are owed credit, in rotation: the others follow a little later.
const CHECKS_MAX: usize = 64;

/// Bits of a place's queue that hold the life of its writer.
const LIFE_BITS: u32 = 16;

/// A consumer of a channel.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: ConsumerId,
    pub(crate) entry: Arc<QueueEntry>,
    pub(crate) no_ack: bool,
    /// The acknowledgement timeout; `None` for no limit. Milliseconds.
    pub(crate) ack_ms_max: Option<u64>,
    /// Credit used since it was last granted.
    pub(crate) owed: Credit,
    /// Deliveries that the client has not settled.
    pub(crate) unsettled: u64,
}

/// A cancelled consumer with unsettled deliveries.
#[derive(Debug)]
pub(crate) struct Cancelled {
    pub(crate) id: ConsumerId,
    pub(crate) unsettled: u64,
    /// See [`Consumer::ack_ms_max`].
    pub(crate) ack_ms_max: Option<u64>,
    pub(crate) kind: QueueKind,
}

/// A consumer that takes single messages (`basic.get`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    pub(crate) id: ConsumerId,
    pub(crate) kind: QueueKind,
}

/// Deliveries of one consumer that are sent together, and their credit.
struct Outgoing {
    channel: ChannelRef,
    consumer: ConsumerRef,
    deliveries: Vec<amqp::Delivery>,
    /// How many of them are redeliveries.
    again: u64,
    weight: u64,
}

fn uncounted(headers: &Table) -> Table {
    headers.without(DELIVERY_COUNT).without(ACQUIRED_COUNT)
}

/// The properties of a message of a quorum queue as published, without the counts of its deliveries: for forwarding it.
#[must_use]
pub fn without_counts(properties: &Bytes) -> Bytes {
    let Ok(mut basic) = BasicProperties::decode(properties) else { return properties.clone() };
    basic.headers = basic.headers.map(|headers| uncounted(&headers)).filter(|headers| !headers.raw().is_empty());
    basic.encode()
}

/// The properties of a redelivered message of a quorum queue, with its counts. Before 4.3 each return counted.
fn with_counts(properties: &Bytes, delivery: &Delivery, settings: &AmqpSettings) -> Option<Bytes> {
    let mut basic = BasicProperties::decode(properties).ok()?;
    let headers = uncounted(&basic.headers.take().unwrap_or(Table::EMPTY));
    let [returned, failed] = [delivery.returned, delivery.failed].map(|count| Value::I64(count.into()));
    let counts = match settings.is_newer() {
        true => TableBuilder::new().with(ACQUIRED_COUNT, returned).with(DELIVERY_COUNT, failed).build(),
        false => TableBuilder::new().with(DELIVERY_COUNT, returned).build(),
    };
    basic.headers = Table::new([&headers.raw()[..], counts.raw()].concat().into()).ok();
    Some(basic.encode())
}

/// Encodes a delivery's id for the session, which returns it with the settlement.
///
/// ```text
///   queue: | u48 partition | u16 life of the queue's writer |      at: offset
/// ```
///
/// Without the life an acknowledgement could settle another message: after the loss of a writer, the offsets of messages that it delivered early are
/// assigned again.
fn place_of(delivery: &Delivery) -> Place {
    Place { queue: delivery.queue.0 << LIFE_BITS | u64::from(delivery.life), at: delivery.first.0 }
}

/// The queue of a place, and the life of its writer.
pub(crate) fn queue_of(place: Place) -> (PartitionId, u16) {
    (PartitionId(place.queue >> LIFE_BITS), place.queue as u16)
}

/// Converts a delivery for the session. `None` if the bytes are no AMQP message.
pub(crate) fn delivery_of(
    delivery: &Delivery,
    kind: Option<QueueKind>,
    settings: &AmqpSettings,
) -> Option<amqp::Delivery> {
    let Stored { exchange, routing_key, mut properties, body, .. } = open(&delivery.bytes)?;
    if kind == Some(QueueKind::Quorum) && delivery.returned > 0 {
        properties = with_counts(&properties, delivery, settings).unwrap_or(properties);
    }
    Some(amqp::Delivery {
        place: place_of(delivery),
        redelivered: delivery.redelivered,
        exchange: ShortStr::new(exchange)?,
        routing_key: ShortStr::new(routing_key)?,
        properties,
        payload: body.into(),
    })
}

impl Connection {
    /// Messages for consumers arrived.
    pub(crate) fn deliver(&mut self, deliveries: Vec<Delivery>) {
        let mut run: Option<Outgoing> = None;
        let mut stamps = Stamps::default();
        let mut left = deliveries.len();
        let mut back = Vec::new();
        for delivery in deliveries {
            left -= 1;
            let Some((channel, consumer)) = self.consumers.get(&delivery.consumer).copied() else { continue };
            let (queue, first, by) =
                (delivery.queue, delivery.first, Holder::Consumer(delivery.consumer, delivery.life));
            let weight = delivery.weight;
            let open = self.channels.get(&channel);
            if open.is_some_and(|open| open.cancelled.contains_key(&consumer)) {
                // It was in flight when the consumer was cancelled.
                back.push(Settlement { queue, first, count: 1, by, how: Settle::Unsent });
                continue;
            }
            let open = open.and_then(|open| open.consumers.get(&consumer));
            let kind = open.map(|consumer| consumer.entry.queue.kind);
            let message = delivery_of(&delivery, kind, &self.settings).and_then(|message| match kind {
                Some(QueueKind::Stream) => {
                    let properties = stamps.stamp(&message.properties, first, left)?;
                    Some(amqp::Delivery { properties, ..message })
                }
                _ => Some(message),
            });
            let Some(message) = message else {
                // It cannot be decoded, now or later.
                self.settle_quietly(vec![Settlement { queue, first, count: 1, by, how: Settle::Accept }]);
                self.owe(channel, consumer, Credit { messages: 1, bytes: weight });
                continue;
            };
            self.expect_settlement(channel, consumer);
            match &mut run {
                Some(out) if (out.channel, out.consumer) == (channel, consumer) => {
                    out.again += u64::from(message.redelivered);
                    out.deliveries.push(message);
                    out.weight += weight;
                }
                _ => {
                    self.send_deliveries(run.take());
                    let again = u64::from(message.redelivered);
                    run = Some(Outgoing { channel, consumer, deliveries: vec![message], again, weight });
                }
            }
        }
        self.send_deliveries(run);
        if !back.is_empty() {
            self.settle_quietly(back);
        }
    }

    /// Counts an unsettled delivery of a consumer, unless acknowledgement is automatic.
    fn expect_settlement(&mut self, channel: ChannelRef, consumer: ConsumerRef) {
        let open = self.channels.get_mut(&channel).and_then(|open| open.consumers.get_mut(&consumer));
        if let Some(consumer) = open.filter(|consumer| !consumer.no_ack) {
            consumer.unsettled += 1;
        }
    }

    fn send_deliveries(&mut self, out: Option<Outgoing>) {
        let Some(Outgoing { channel, consumer, deliveries, again, weight }) = out else { return };
        self.owe(channel, consumer, Credit { messages: deliveries.len() as u64, bytes: weight });
        let open = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
        if let Some(consumer) = open {
            let kind = consumer.entry.queue.kind;
            let by = if consumer.no_ack { QueueCount::ConsumedAutoAck } else { QueueCount::ConsumedManualAck };
            self.tally.of_queue(by, kind, deliveries.len() as u64);
            self.tally.of_queue(QueueCount::Redelivered, kind, again);
        }
        self.acks_expected(open.filter(|consumer| !consumer.no_ack).and_then(|consumer| consumer.ack_ms_max));
        if self.directory.is_tracing() {
            self.trace_deliveries(channel, consumer, &deliveries);
        }
        self.event(amqp::Event::Deliver { channel, consumer, deliveries });
    }

    /// Records credit to return to a consumer once its output is written.
    fn owe(&mut self, channel: ChannelRef, consumer: ConsumerRef, more: Credit) {
        if let Some(owed) = self.owed(channel, consumer) {
            let is_new = *owed == Credit::default();
            owed.messages += more.messages;
            owed.bytes += more.bytes;
            if is_new {
                self.owing.push_back((channel, consumer));
            }
        }
    }

    fn owed(&mut self, channel: ChannelRef, consumer: ConsumerRef) -> Option<&mut Credit> {
        let open = self.channels.get_mut(&channel)?;
        let replies = open.replies.as_mut().filter(|replies| replies.consumer == consumer);
        let owed = open.consumers.get_mut(&consumer).map(|open| &mut open.owed);
        owed.or(replies.map(|replies| &mut replies.owed))
    }

    /// Sets a channel's shared prefetch limit; 0 for none. The broker enforces it over all queues: messages beyond the limit stay in their queues,
    /// for others. Stream consumers are exempt, as in RabbitMQ.
    pub(crate) fn share_prefetch(&mut self, channel: ChannelRef, count: u16) {
        let Some(open) = self.channels.get_mut(&channel) else { return };
        open.qos = count;
        let is_new = open.limit.is_none();
        if is_new && count == 0 {
            return;
        }
        let limit = open.limit.get_or_insert_default().clone();
        limit.set_max(u64::from(count));
        if is_new {
            let consumers = open.consumers.values().map(|one| (one.id, one.entry.queue.kind));
            let all = consumers.chain(open.cancelled.values().map(|one| (one.id, one.kind)));
            let mut sharing: Vec<_> = all.filter(|(_, kind)| *kind != QueueKind::Stream).map(|(id, _)| id).collect();
            sharing.sort_unstable();
            sharing.into_iter().for_each(|id| self.notify_broker(Request::Share(id, limit.clone())));
        }
        self.notify_broker(Request::Offer(limit));
    }

    /// Grants credit for written output and, at the limit of a channel, for settled deliveries. The broker is notified for each part of the window,
    /// or a little later: otherwise most consumers would cause a request per message.
    pub(crate) fn give_credit(&mut self) {
        let bytes_min = self.settings.consumer_window_bytes / CREDIT_PART;
        self.give(CHECKS_MAX, |owed| owed.messages >= WINDOW_MESSAGES / CREDIT_PART || owed.bytes >= bytes_min);
    }

    /// Grants all owed credit.
    pub(crate) fn give_all_credit(&mut self) {
        self.credit_due_ms = None;
        self.give(usize::MAX, |_| true);
    }

    fn give(&mut self, checks_max: usize, is_enough: impl Fn(&Credit) -> bool) {
        let checks = self.owing.len().min(checks_max);
        let mut is_left = self.owing.len() > checks;
        self.is_starved &= is_left;
        for _ in 0..checks {
            let Some((channel, consumer)) = self.owing.pop_front() else { break };
            let Some(open) = self.channels.get(&channel) else { continue };
            let id = open.id_of(consumer);
            // Without a session, nothing waits to be written.
            let may = self.captured.is_some() || self.session.may_deliver(channel);
            let (Some(id), Some(owed)) = (id, self.owed(channel, consumer)) else { continue };
            if *owed == Credit::default() {
                continue;
            }
            if may && is_enough(owed) {
                let more = std::mem::take(owed);
                self.notify_broker(Request::Credit(id, more));
                continue;
            }
            self.is_starved |= !may;
            is_left |= may;
            self.owing.push_back((channel, consumer));
        }
        if is_left {
            self.credit_due_ms.get_or_insert(self.now.monotonic_ms + CREDIT_WAIT_MS);
        }
    }

    /// Deliveries were settled: channels at their limit may continue.
    pub(crate) fn give_where_starved(&mut self) {
        if self.is_starved {
            self.give_credit();
        }
    }

    /// Settles deliveries; returns the settlements for the broker.
    pub(crate) fn settlements(&mut self, channel: ChannelRef, verdict: Verdict, runs: &[Run]) -> Vec<Settlement> {
        let how = match verdict {
            Verdict::Ack => Settle::Accept,
            Verdict::Discard => Settle::Reject,
            Verdict::Requeue => Settle::Return { counts: false, delay_ms: 0 },
            Verdict::RequeueFailed => Settle::Return { counts: true, delay_ms: 0 },
        };
        let is_look = verdict == Verdict::Requeue && self.captured.is_some() && !self.settings.is_newer();
        let Some(open) = self.channels.get_mut(&channel) else { return Vec::new() };
        let mut settlements = Vec::with_capacity(runs.len());
        for run in runs {
            let (queue, life) = queue_of(run.first);
            let found = if run.consumer == NO_CONSUMER {
                open.pulls.get(&(queue, false)).map(|pull| (pull.id, pull.kind))
            } else {
                // A cancelled consumer keeps its deliveries under the same id.
                let known = match open.consumers.get_mut(&run.consumer) {
                    Some(one) => Some(((one.id, one.entry.queue.kind), &mut one.unsettled)),
                    None => {
                        let cancelled = open.cancelled.get_mut(&run.consumer);
                        cancelled.map(|one| ((one.id, one.kind), &mut one.unsettled))
                    }
                };
                known.map(|(id, unsettled)| {
                    *unsettled = unsettled.saturating_sub(run.count);
                    id
                })
            };
            let Some((id, kind)) = found else { continue };
            // Browsing a queue through a management API does not count towards the delivery limit.
            let how = if is_look && kind == QueueKind::Quorum { Settle::Unsent } else { how };
            if verdict == Verdict::Ack {
                self.tally.of_queue(QueueCount::Acknowledged, kind, run.count);
            }
            let count = u32::try_from(run.count).unwrap_or(u32::MAX);
            let by = Holder::Consumer(id, life);
            settlements.push(Settlement { queue, first: Offset(run.first.at), count, by, how });
        }
        settlements
    }

    /// Sends settlements to the broker without waiting for a result.
    pub(crate) fn settle(&mut self, channel: ChannelRef, verdict: Verdict, runs: &[Run]) {
        let settlements = self.settlements(channel, verdict, runs);
        if !settlements.is_empty() {
            self.ask(Request::Settle(SettleRequest { settlements, wait: false }), crate::operation::Waits::Nothing);
        }
        self.remove_settled(channel, runs);
        self.give_where_starved();
    }

    /// Removes cancelled consumers whose deliveries are all settled.
    pub(crate) fn remove_settled(&mut self, channel: ChannelRef, settled: &[Run]) {
        for run in settled {
            let Some(open) = self.channels.get_mut(&channel) else { return };
            if open.cancelled.get(&run.consumer).is_some_and(|one| one.unsettled == 0)
                && let Some(one) = open.cancelled.remove(&run.consumer)
            {
                self.consumers.remove(&one.id);
                self.notify_broker(Request::Detach(one.id));
            }
        }
    }

    fn settle_quietly(&mut self, settlements: Vec<Settlement>) {
        let request = SettleRequest { settlements, wait: false };
        self.ask(Request::Settle(request), crate::operation::Waits::Nothing);
    }

    /// A consumer's queue was deleted.
    pub(crate) fn detached(&mut self, id: ConsumerId) {
        let Some((channel, consumer)) = self.consumers.remove(&id) else { return };
        let Some(open) = self.channels.get_mut(&channel) else { return };
        open.cancelled.remove(&consumer);
        open.pulls.retain(|_, pull| pull.id != id);
        let stops = |waits: &Waits| matches!(waits, Waits::Stopped(_, _, _, of) if *of == id);
        let stopping = self.waiting.iter().find_map(|(at, waits)| stops(waits).then_some(*at));
        if let Some(Waits::Stopped(token, ..)) = stopping.and_then(|at| self.waiting.remove(&at)) {
            // It was being cancelled, and no other reply will follow.
            open.consumers.remove(&consumer);
            self.show(|shown| shown.cancelled(channel, consumer));
            return self.reply(token, amqp::Reply::Done);
        }
        if open.consumers.remove(&consumer).is_some() {
            self.show(|shown| shown.cancelled(channel, consumer));
            self.event(amqp::Event::Cancelled { channel, consumer });
        }
    }
}

#[cfg(test)]
mod tests;
