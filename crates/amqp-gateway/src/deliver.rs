//! What clients receive and settle.

use crate::connection::Connection;
use crate::directory::QueueEntry;
use crate::message::{Stored, open};
use crate::operation::Waits;
use crate::stream::Stamps;
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
/// What part of its window a consumer is given back at once.
const CREDIT_PART: u64 = 16;
/// When it is given back less than that. A message that is larger than what is left of the window waits so long. Milliseconds.
const CREDIT_WAIT_MS: u64 = 20;

/// Bits of a place's queue that hold the life of its writer.
const LIFE_BITS: u32 = 16;

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
    /// Deliveries that the client has to settle.
    pub(crate) unsettled: u64,
    /// Messages that it may have on their way, of which it was told or is owed.
    pub(crate) capacity: u64,
}

impl Consumer {
    /// What the client has to settle of it counts for the prefetch of the whole channel. A stream's does not, as with RabbitMQ: what a reader
    /// has no room for does not go back to anybody, and would be lost to it.
    pub(crate) fn shares(&self) -> bool {
        !self.no_ack && self.entry.queue.kind != QueueKind::Stream
    }
}

/// Messages that a consumer may have on their way, on a channel with this prefetch for all its consumers together (0: without).
pub(crate) fn capacity(shared: u16, no_ack: bool) -> u64 {
    if shared == 0 || no_ack { WINDOW_MESSAGES } else { u64::from(shared).min(WINDOW_MESSAGES) }
}

/// A consumer that was cancelled, and what the client still has to settle of it.
#[derive(Debug)]
pub(crate) struct Cancelled {
    pub(crate) id: ConsumerId,
    pub(crate) unsettled: u64,
    /// See [`Consumer::shares`].
    pub(crate) shares: bool,
}

/// Deliveries of one consumer that go out together, and what they weigh.
struct Outgoing {
    channel: ChannelRef,
    consumer: ConsumerRef,
    deliveries: Vec<amqp::Delivery>,
    weight: u64,
}

fn uncounted(headers: &Table) -> Table {
    headers.without(DELIVERY_COUNT).without(ACQUIRED_COUNT)
}

/// The properties of a message of a quorum queue as it was published, without how often it came since: for whoever sends it on.
#[must_use]
pub fn without_counts(properties: &Bytes) -> Bytes {
    let Ok(mut basic) = BasicProperties::decode(properties) else { return properties.clone() };
    basic.headers = basic.headers.map(|headers| uncounted(&headers)).filter(|headers| !headers.raw().is_empty());
    basic.encode()
}

/// The properties of a message that comes again, with how often it did: quorum queues tell their consumers.
fn with_counts(properties: &Bytes, delivery: &Delivery) -> Option<Bytes> {
    let mut basic = BasicProperties::decode(properties).ok()?;
    let headers = uncounted(&basic.headers.take().unwrap_or(Table::EMPTY));
    let counts = TableBuilder::new()
        .with(ACQUIRED_COUNT, Value::I64(delivery.returned.into()))
        .with(DELIVERY_COUNT, Value::I64(delivery.failed.into()))
        .build();
    basic.headers = Table::new([&headers.raw()[..], counts.raw()].concat().into()).ok();
    Some(basic.encode())
}

/// How a session names a delivery: what comes back with a settlement.
///
/// ```text
///   queue: | u48 partition | u16 life of the queue's writer |      at: offset
/// ```
///
/// Without the life an acknowledgement could settle another message: when a writer is lost the offsets of what it handed out early are
/// given out again.
fn place_of(delivery: &Delivery) -> Place {
    Place { queue: delivery.queue.0 << LIFE_BITS | u64::from(delivery.life), at: delivery.first.0 }
}

/// The queue of a place, and the life of its writer.
fn queue_of(place: Place) -> (PartitionId, u16) {
    (PartitionId(place.queue >> LIFE_BITS), place.queue as u16)
}

/// A delivery in the words of the session. `None` for what is no message of AMQP.
pub(crate) fn delivery_of(delivery: &Delivery, kind: Option<QueueKind>) -> Option<amqp::Delivery> {
    let Stored { exchange, routing_key, mut properties, body, .. } = open(&delivery.bytes)?;
    if kind == Some(QueueKind::Quorum) && delivery.returned > 0 {
        properties = with_counts(&properties, delivery).unwrap_or(properties);
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
    /// Messages came for consumers.
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
                // It was on its way when the consumer was cancelled.
                back.push(Settlement { queue, first, count: 1, by, how: Settle::Unsent });
                continue;
            }
            let open = open.and_then(|open| open.consumers.get(&consumer));
            let kind = open.map(|consumer| consumer.entry.queue.kind);
            let message = delivery_of(&delivery, kind).and_then(|message| match kind {
                Some(QueueKind::Stream) => {
                    let properties = stamps.stamp(&message.properties, first, left)?;
                    Some(amqp::Delivery { properties, ..message })
                }
                _ => Some(message),
            });
            let Some(message) = message else {
                // Nobody could read it, this time or another.
                self.settle_quietly(vec![Settlement { queue, first, count: 1, by, how: Settle::Accept }]);
                self.owe(channel, consumer, Credit { messages: 1, bytes: weight });
                continue;
            };
            if !self.has_room(channel, consumer) {
                // Others may have it. The consumer gets no more until something of the channel is settled.
                back.push(Settlement { queue, first, count: 1, by, how: Settle::Unsent });
                self.owe(channel, consumer, Credit { messages: 1, bytes: weight });
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
        if !back.is_empty() {
            self.settle_quietly(back);
        }
    }

    /// Whether the channel may have one more delivery that waits for its settlement; if so, it has.
    fn has_room(&mut self, channel: ChannelRef, consumer: ConsumerRef) -> bool {
        let Some(open) = self.channels.get_mut(&channel) else { return false };
        if open.room(consumer) == Some(0) {
            return false;
        }
        let Some(consumer) = open.consumers.get_mut(&consumer).filter(|consumer| !consumer.no_ack) else { return true };
        consumer.unsettled += 1;
        if consumer.shares() {
            open.unsettled += 1;
        }
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
        if let Some(owed) = self.owed(channel, consumer) {
            let is_new = owed.messages == 0;
            owed.messages += more.messages;
            owed.bytes += more.bytes;
            if is_new {
                self.owing.push((channel, consumer));
            }
        }
    }

    fn owed(&mut self, channel: ChannelRef, consumer: ConsumerRef) -> Option<&mut Credit> {
        let open = self.channels.get_mut(&channel)?;
        let replies = open.replies.as_mut().filter(|replies| replies.consumer == consumer);
        let owed = open.consumers.get_mut(&consumer).map(|open| &mut open.owed);
        owed.or(replies.map(|replies| &mut replies.owed))
    }

    /// A channel has another prefetch for all its consumers together; 0: none. What more they may have on their way for it they are owed.
    pub(crate) fn share_prefetch(&mut self, channel: ChannelRef, count: u16) {
        let Some(open) = self.channels.get_mut(&channel) else { return };
        open.qos = count;
        let mut more = Vec::new();
        for (at, consumer) in &mut open.consumers {
            let capacity = capacity(count, consumer.no_ack);
            if capacity > consumer.capacity {
                more.push((*at, capacity - consumer.capacity));
                consumer.capacity = capacity;
            }
        }
        for (consumer, messages) in more {
            self.owe(channel, consumer, Credit { messages, bytes: 0 });
        }
        self.give_all_credit();
    }

    /// What was written makes room for more, and so does what is settled where a channel has had as much as it may. The broker is told when
    /// it is a part of the window, and else a little later: most consumers would be told of each message alone.
    pub(crate) fn give_credit(&mut self) {
        let bytes_min = self.settings.consumer_window_bytes / CREDIT_PART;
        self.give(|owed| owed.messages >= WINDOW_MESSAGES / CREDIT_PART || owed.bytes >= bytes_min);
    }

    /// Gives all consumers what they are owed.
    pub(crate) fn give_all_credit(&mut self) {
        self.credit_due_ms = None;
        self.give(|_| true);
    }

    fn give(&mut self, is_enough: impl Fn(&Credit) -> bool) {
        self.is_starved = false;
        let mut is_left = false;
        for (channel, consumer) in std::mem::take(&mut self.owing) {
            let Some(open) = self.channels.get(&channel) else { continue };
            let (room, shared, id) = (open.room(consumer), u64::from(open.qos), open.id_of(consumer));
            // Where no session is behind it, nothing waits to be written.
            let may = room != Some(0) && (self.said.is_some() || self.session.may_deliver(channel));
            let (Some(id), Some(owed)) = (id, self.owed(channel, consumer)) else { continue };
            // A small prefetch for the whole channel would be waited for with the rest of it.
            let is_part = shared > 0 && owed.messages >= shared / CREDIT_PART;
            let gives = may && (is_enough(owed) || is_part);
            if gives {
                let messages = owed.messages.min(room.unwrap_or(u64::MAX));
                let more = Credit { messages, bytes: std::mem::take(&mut owed.bytes) };
                owed.messages -= messages;
                let is_paid = owed.messages == 0;
                self.tell(Request::Credit(id, more));
                if is_paid {
                    continue;
                }
            }
            self.is_starved |= !may || gives;
            is_left |= may && !gives;
            self.owing.push((channel, consumer));
        }
        if is_left {
            self.credit_due_ms.get_or_insert(self.now.monotonic_ms + CREDIT_WAIT_MS);
        }
    }

    /// Something was settled: channels that have had as much as they may may have more.
    pub(crate) fn give_where_starved(&mut self) {
        if self.is_starved {
            self.give_all_credit();
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
            let (queue, life) = queue_of(run.first);
            let id = if run.consumer == NO_CONSUMER {
                open.pulls.get(&(queue, false)).copied()
            } else {
                // A consumer that was cancelled keeps what it has under the same number.
                let known = match open.consumers.get_mut(&run.consumer) {
                    Some(one) => Some((one.id, one.shares(), &mut one.unsettled)),
                    None => open.cancelled.get_mut(&run.consumer).map(|one| (one.id, one.shares, &mut one.unsettled)),
                };
                if known.as_ref().is_none_or(|(_, shares, _)| *shares) {
                    open.unsettled = open.unsettled.saturating_sub(run.count);
                }
                known.map(|(id, _, unsettled)| {
                    *unsettled = unsettled.saturating_sub(run.count);
                    id
                })
            };
            let Some(id) = id else { continue };
            let count = u32::try_from(run.count).unwrap_or(u32::MAX);
            let by = Holder::Consumer(id, life);
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
        self.let_go(channel, runs);
        self.give_where_starved();
    }

    /// Cancelled consumers of which everything is settled now are no more.
    pub(crate) fn let_go(&mut self, channel: ChannelRef, settled: &[Run]) {
        for run in settled {
            let Some(open) = self.channels.get_mut(&channel) else { return };
            if open.cancelled.get(&run.consumer).is_some_and(|one| one.unsettled == 0)
                && let Some(one) = open.cancelled.remove(&run.consumer)
            {
                self.consumers.remove(&one.id);
                self.tell(Request::Detach(one.id));
            }
        }
    }

    fn settle_quietly(&mut self, settlements: Vec<Settlement>) {
        let request = SettleRequest { settlements, wait: false };
        self.ask(Request::Settle(request), crate::operation::Waits::Nothing);
    }

    /// A consumer's queue is gone.
    pub(crate) fn detached(&mut self, id: ConsumerId) {
        let Some((channel, consumer)) = self.consumers.remove(&id) else { return };
        let Some(open) = self.channels.get_mut(&channel) else { return };
        open.cancelled.remove(&consumer);
        open.pulls.retain(|_, pull| *pull != id);
        let stops = |waits: &Waits| matches!(waits, Waits::Stopped(_, _, _, of) if *of == id);
        let stopping = self.waiting.iter().find_map(|(at, waits)| stops(waits).then_some(*at));
        if let Some(Waits::Stopped(token, ..)) = stopping.and_then(|at| self.waiting.remove(&at)) {
            // It was to go anyway, and nobody else will say so.
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
mod tests {
    use super::*;
    use crate::connection::Channel;
    use crate::machine::AmqpAnswer;
    use crate::management::Said;
    use crate::message::store;
    use crate::operation::{Then, Waits};
    use crate::testing::{Topics, World};
    use bytes::BytesMut;
    use polylogue_api::{Now, Reply, SettleError, Unavailable};
    use serde_json::json;
    use std::collections::VecDeque;

    const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
    const QUEUE: PartitionId = PartitionId(7);

    /// A connection without a wire, whose channel has consumers of a queue: number 1 is consumer 11 of the broker, and so on.
    fn connection(consumers: u32) -> Connection {
        connection_to(consumers, "classic")
    }

    fn connection_to(consumers: u32, kind: &str) -> Connection {
        let mut world = World::new();
        world.queue("q", json!({ "x-queue-type": kind }));
        let id = world.directory.router().load().queue(world.vhost, b"q").expect("declared");
        let entry = world.directory.queue(id).expect("declared");
        let directory = world.directory.clone();
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, Now::default());
        connection.said = Some(VecDeque::new());
        let mut open = Channel::default();
        for number in 1..=consumers {
            let (id, entry) = (ConsumerId(10 + u64::from(number)), entry.clone());
            let consumer = Consumer {
                id,
                entry,
                no_ack: false,
                ack_ms_max: None,
                owed: Credit::default(),
                unsettled: 0,
                capacity: WINDOW_MESSAGES,
            };
            open.consumers.insert(ConsumerRef(number), consumer);
            connection.consumers.insert(id, (CHANNEL, ConsumerRef(number)));
        }
        connection.channels.insert(CHANNEL, open);
        connection
    }

    fn delivery(consumer: u64, at: u64) -> Delivery {
        Delivery {
            consumer: ConsumerId(consumer),
            queue: QUEUE,
            first: Offset(at),
            count: 1,
            lease: 5,
            life: 3,
            weight: 1,
            redelivered: false,
            returned: 0,
            failed: 0,
            entry: Offset(at),
            bytes: store(b"", b"q", &[0, 0], None, &[Bytes::from_static(b"x")]),
        }
    }

    /// The places of what the client was given since the last call.
    fn given(connection: &mut Connection) -> Vec<Place> {
        let mut places = Vec::new();
        for said in connection.said.as_mut().expect("no wire").drain(..) {
            if let Said::Event(amqp::Event::Deliver { deliveries, .. }) = said {
                places.extend(deliveries.iter().map(|delivery| delivery.place));
            }
        }
        places
    }

    fn settled(connection: &mut Connection) -> Vec<Settlement> {
        let requests = std::iter::from_fn(|| connection.poll_request());
        let settled = requests.filter_map(|(_, request)| match request {
            Request::Settle(SettleRequest { settlements, .. }) => Some(settlements),
            _ => None,
        });
        settled.flatten().collect()
    }

    fn run(consumer: u32, first: Place) -> Run {
        Run { consumer: ConsumerRef(consumer), first, count: 1 }
    }

    /// An acknowledgement from before its queue had a new writer settled the message that got the same offset.
    #[test]
    fn a_settlement_names_the_life_in_which_the_message_was_handed_out() {
        let mut connection = connection(1);
        connection.deliver(vec![delivery(11, 40)]);
        let places = given(&mut connection);
        connection.settle(CHANNEL, Verdict::Ack, &[run(1, places[0])]);
        let by = Holder::Consumer(ConsumerId(11), 3);
        let expected = Settlement { queue: QUEUE, first: Offset(40), count: 1, by, how: Settle::Accept };
        assert_eq!(settled(&mut connection), [expected]);
    }

    /// The broker says that a consumer gets no more.
    fn stopped(connection: &mut Connection) {
        let stops =
            std::iter::from_fn(|| connection.poll_request()).find(|(_, asked)| matches!(asked, Request::Stop(_)));
        let (token, _) = stops.expect("it is to stop");
        connection.on_reply(token, Reply::Stopped, Now::default());
    }

    fn is_done(connection: &mut Connection) -> bool {
        matches!(connection.said.as_mut().expect("no wire").pop_front(), Some(Said::Reply(amqp::Reply::Done)))
    }

    /// What was on its way to a consumer without acknowledgement was settled by that, and thrown away.
    #[test]
    fn what_is_on_its_way_to_a_consumer_comes_before_its_cancellation_is_answered() {
        for is_deleted in [false, true] {
            let mut connection = connection(1);
            connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
            connection.deliver(vec![delivery(11, 1)]);
            assert_eq!(given(&mut connection).len(), 1);
            match is_deleted {
                true => connection.detached(ConsumerId(11)),
                false => stopped(&mut connection),
            }
            assert!(is_done(&mut connection));
            assert!(connection.channels[&CHANNEL].consumers.is_empty());
        }
    }

    /// What a channel with a shared prefetch had no room for stayed with its consumer, and nobody else got it.
    #[test]
    fn what_a_channel_has_no_room_for_goes_back_unseen_until_something_is_settled() {
        let mut connection = connection(2);
        connection.channels.get_mut(&CHANNEL).expect("open").qos = 1;
        connection.deliver(vec![delivery(11, 1), delivery(11, 2), delivery(12, 3)]);
        let first = given(&mut connection);
        assert_eq!(first.len(), 1);
        let back: Vec<_> = settled(&mut connection).iter().map(|one| (one.first.0, one.how)).collect();
        assert_eq!(back, [(2, Settle::Unsent), (3, Settle::Unsent)]);
        connection.give_all_credit();
        assert_eq!(credits(&mut connection), [], "it would come again at once");
        connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
        let mut told = credits(&mut connection);
        told.sort_unstable();
        assert_eq!(told, [(11, 1), (12, 1)], "each may have the one that there is room for");
        connection.deliver(vec![delivery(12, 3)]);
        assert_eq!(given(&mut connection).iter().map(|place| place.at).collect::<Vec<_>>(), [3]);
    }

    /// A reader was past what a channel with a later shared prefetch had no room for, and never got it.
    #[test]
    fn a_stream_takes_no_part_in_the_prefetch_of_its_channel() {
        let mut connection = connection_to(2, "stream");
        let open = connection.channels.get_mut(&CHANNEL).expect("open");
        (open.qos, open.unsettled) = (2, 1);
        connection.deliver((1..=4).map(|at| delivery(11, at)).collect());
        connection.deliver(vec![delivery(12, 1)]);
        let all = given(&mut connection);
        assert_eq!(all.iter().map(|place| place.at).collect::<Vec<_>>(), [1, 2, 3, 4, 1]);
        assert_eq!(settled(&mut connection), [], "nothing goes back");
        connection.give_all_credit();
        assert_eq!(credits(&mut connection), [(11, 4), (12, 1)], "whatever else the channel has");
        connection.settle(CHANNEL, Verdict::Ack, &[run(1, all[0])]);
        connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
        stopped(&mut connection);
        connection.settle(CHANNEL, Verdict::Ack, &[run(1, all[1])]);
        assert_eq!(connection.channels[&CHANNEL].unsettled, 1, "what others have to settle");
    }

    /// A consumer kept to the prefetch that was shared when it came.
    #[test]
    fn another_shared_prefetch_changes_what_consumers_may_have() {
        let mut connection = connection(1);
        let qos = |connection: &mut Connection, count| connection.begin(1, amqp::Request::Qos(CHANNEL, count));
        connection.channels.get_mut(&CHANNEL).expect("open").consumers.values_mut().for_each(|one| one.capacity = 2);
        for (count, more) in
            [(2, vec![]), (5, vec![(11, 3)]), (1, vec![]), (5, vec![]), (0, vec![(11, WINDOW_MESSAGES - 5)])]
        {
            qos(&mut connection, count);
            assert_eq!(credits(&mut connection), more, "{count}");
        }
    }

    /// It came back by way of the session, and made room that it had never taken.
    #[test]
    fn what_meets_a_cancelled_consumer_goes_back_and_makes_no_room() {
        let mut connection = connection(2);
        connection.channels.get_mut(&CHANNEL).expect("open").qos = 1;
        connection.deliver(vec![delivery(11, 1)]);
        let first = given(&mut connection);
        connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
        stopped(&mut connection);
        connection.deliver(vec![delivery(11, 2), delivery(12, 3)]);
        assert_eq!(given(&mut connection), [], "one is not settled");
        assert_eq!(settled(&mut connection).iter().map(|one| one.first.0).collect::<Vec<_>>(), [2, 3]);
        connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
        connection.deliver(vec![delivery(12, 3)]);
        assert_eq!(given(&mut connection).iter().map(|place| place.at).collect::<Vec<_>>(), [3]);
    }

    fn credits(connection: &mut Connection) -> Vec<(u64, u64)> {
        let requests = std::iter::from_fn(|| connection.poll_request());
        let credits = requests.filter_map(|(_, request)| match request {
            Request::Credit(id, more) => Some((id.0, more.messages)),
            _ => None,
        });
        credits.collect()
    }

    /// The broker was told of each message alone, and each look for that went over all consumers of the connection.
    #[test]
    fn credit_is_given_for_many_messages_at_once_or_a_little_later() {
        let mut connection = connection(3);
        let part = WINDOW_MESSAGES / CREDIT_PART;
        connection.deliver(vec![delivery(11, 1)]);
        connection.deliver((0..part).map(|i| delivery(12, 10 + i)).collect());
        connection.give_credit();
        assert_eq!(credits(&mut connection), [(12, part)]);
        connection.give_credit();
        assert_eq!(credits(&mut connection), []);
        assert_eq!(connection.next_deadline_ms(), Some(CREDIT_WAIT_MS));
        connection.on_deadline(Now { monotonic_ms: CREDIT_WAIT_MS, ..Now::default() });
        assert_eq!(credits(&mut connection), [(11, 1)]);
        assert!(connection.owing.is_empty() && connection.credit_due_ms.is_none());
        connection.deliver(vec![delivery(13, 1)]);
        connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(3)));
        stopped(&mut connection);
        connection.give_all_credit();
        assert_eq!(credits(&mut connection), [], "whoever is gone is owed nothing");
    }

    /// A consumer that did not read was given its window back after a while, and had more than the window in memory.
    #[test]
    fn no_time_gives_credit_for_what_is_not_written() {
        let mut connection = connection(1);
        // The session has something to say, and nobody takes it.
        connection.on_bytes(&mut BytesMut::from(&b"AMQP\0\0\x09\x01"[..]), Now::default());
        assert!(connection.session.has_output());
        connection.deliver(vec![delivery(11, 1)]);
        connection.give_credit();
        let later = |times| Now { monotonic_ms: times * CREDIT_WAIT_MS, ..Now::default() };
        connection.on_deadline(later(1));
        assert_eq!((credits(&mut connection), connection.credit_due_ms), (vec![], None));
        assert!(connection.poll_output(&mut Vec::new(), later(2)));
        assert_eq!(connection.credit_due_ms, Some(3 * CREDIT_WAIT_MS));
        connection.on_deadline(later(3));
        assert_eq!(credits(&mut connection), [(11, 1)]);
    }

    fn detaches(connection: &mut Connection) -> Vec<u64> {
        let mut gone = Vec::new();
        while let Some((_, request)) = connection.poll_request() {
            if let Request::Detach(id) = request {
                gone.push(id.0);
            }
        }
        gone
    }

    /// Each consumer that was cancelled stayed until its channel was closed.
    #[test]
    fn a_cancelled_consumer_goes_when_all_of_it_is_settled() {
        let mut connection = connection(2);
        connection.deliver(vec![delivery(11, 1), delivery(11, 2)]);
        let there = given(&mut connection);
        for number in [1, 2] {
            connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(number)));
            stopped(&mut connection);
        }
        assert_eq!(detaches(&mut connection), [12], "it has nothing to settle");
        connection.settle(CHANNEL, Verdict::Ack, &[run(1, there[0])]);
        assert!(detaches(&mut connection).is_empty());
        connection.settle(CHANNEL, Verdict::Requeue, &[run(1, there[1])]);
        assert_eq!(detaches(&mut connection), [11]);
        assert!(connection.consumers.is_empty() && connection.channels[&CHANNEL].cancelled.is_empty());
    }

    fn refused(connection: &mut Connection) -> Option<u16> {
        match connection.said.as_mut().expect("no wire").pop_front() {
            Some(Said::Reply(amqp::Reply::Refused(why))) => Some(why.code.number()),
            _ => None,
        }
    }

    /// The client was told that it was done, or that nothing was there; and a broker that was busy closed its connection.
    #[test]
    fn what_could_not_be_done_is_no_success() {
        let busy = SettleError::Unavailable(Unavailable::Busy);
        let gone = polylogue_api::AttachError::Unavailable(Unavailable::NotCommitted);
        let cases = [
            (Waits::Purged(1), Reply::Purge(Err(busy))),
            (Waits::CommitSettled(1), Reply::Settle(vec![Ok(()), Err(busy)])),
            (Waits::Taken(1, QueueKind::Classic), Reply::Take(Err(busy))),
            (Waits::PullAttached(1, CHANNEL, QUEUE, false, QueueKind::Classic), Reply::Attach(Err(gone))),
        ];
        for (waits, reply) in cases {
            let mut connection = connection(0);
            let what = format!("{reply:?}");
            connection.resume(waits, reply);
            assert_eq!(refused(&mut connection), Some(406), "{what}");
        }
        let mut connection = connection(0);
        connection.resume(Waits::CommitSettled(1), Reply::Settle(vec![Err(SettleError::NotHeld)]));
        assert_eq!(refused(&mut connection), None, "somebody else has it");
    }

    /// It took up to 1,000 messages that others could have had; of a quorum queue all of them counted as failed when it left.
    #[test]
    fn a_prefetch_for_the_whole_channel_limits_what_a_consumer_has_on_its_way() {
        for (kind, credit, code) in [("classic", Some(2), None), ("quorum", None, Some(540))] {
            let mut connection = connection_to(0, kind);
            connection.channels.get_mut(&CHANNEL).expect("open").qos = 2;
            let consume = amqp::Consume {
                consumer: ConsumerRef(1),
                queue: String::from("q").into(),
                tag: String::from("t").into(),
                no_ack: false,
                exclusive: false,
                deliveries_max: 100,
                prefetch: 0,
                arguments: Table::EMPTY,
            };
            let queue = connection.directory.queues()[0].queue.clone();
            let answer = Reply::Machine(Ok(Box::new(AmqpAnswer::Queue(queue))));
            connection.resume(Waits::Found(1, Then::Consume(CHANNEL, consume)), answer);
            let asked = match connection.poll_request() {
                Some((_, Request::Attach(attach))) => attach.consumer.credit,
                _ => None,
            };
            assert_eq!((asked, refused(&mut connection)), (credit, code), "{kind}");
        }
    }
}
