//! Tracing, RabbitMQ's firehose: copies of messages that clients of a traced virtual host publish and receive are sent to `amq.rabbitmq.trace`.
//!
//! ```text
//!   routing key  publish.EXCHANGE                              deliver.QUEUE
//!   headers      exchange_name, routing_keys, properties, node
//!                vhost, connection, channel, user              redelivered, vhost, connection, channel, user
//!                routed_queues
//!   body         the message's
//! ```
//!
//! Messages published to `amq.rabbitmq.trace` are not copied. No publisher waits for a copy: a full queue drops it, and so does a failure of the log.
//! While no virtual host is traced, the cost is a check of a flag.

use crate::connection::Connection;
use crate::convert::View;
use crate::directory::QueueEntry;
use crate::message::store;
use crate::replies::address_of;
use crate::route::{RouteContext, RoutedMessage, reach};
use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::{BasicProperties, Properties, ShortStr, Table, TableBuilder, Value};
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef, Publish};
use polylogue_api::ConsumerId;
use polylogue_router::{Message, Scratch};
use polylogue_types::{Chunk, STEPS_PER_TURN};

/// The exchange of copies.
const TRACE: &str = "amq.rabbitmq.trace";

/// A message that was published or delivered.
struct Traced<'a> {
    exchange: &'a [u8],
    keys: Vec<&'a [u8]>,
    properties: BasicProperties,
}

/// The headers `properties` in RabbitMQ's format: numbers are signed, texts are long.
fn properties_table(basic: &BasicProperties) -> Table {
    let text = |table: TableBuilder, (name, value): (&str, &Option<ShortStr>)| match value {
        Some(value) => table.with(name, Value::LongStr(value.as_ref())),
        None => table,
    };
    let number = |value: u64| i32::try_from(value).map_or(Value::I64(value.cast_signed()), Value::I32);
    let texts = [
        ("content_type", &basic.content_type),
        ("content_encoding", &basic.content_encoding),
        ("correlation_id", &basic.correlation_id),
        ("reply_to", &basic.reply_to),
        ("expiration", &basic.expiration),
        ("message_id", &basic.message_id),
        ("type", &basic.kind),
        ("user_id", &basic.user_id),
        ("app_id", &basic.app_id),
        ("cluster_id", &basic.cluster_id),
    ];
    let mut table = texts.into_iter().fold(TableBuilder::new(), text);
    if let Some(headers) = &basic.headers {
        table = table.with_table("headers", headers);
    }
    let numbers = [
        ("delivery_mode", basic.delivery_mode.map(u64::from)),
        ("priority", basic.priority.map(u64::from)),
        ("timestamp", basic.timestamp),
    ];
    for (name, value) in numbers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        table = table.with(name, number(value));
    }
    table.build()
}

/// `PREFIX.NAME`, cut between characters to the length of a routing key.
fn key_of(prefix: &str, name: &[u8]) -> Bytes {
    let mut key = [prefix.as_bytes(), b".", name].concat();
    if key.len() > ShortStr::BYTES_MAX {
        let end = (0..=ShortStr::BYTES_MAX).rev().find(|at| key.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80));
        key.truncate(end.unwrap_or(0));
    }
    key.into()
}

/// An array of long texts.
fn array<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Bytes {
    let mut out = BytesMut::new();
    for text in texts {
        out.put_u8(b'S');
        out.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        out.put_slice(text);
    }
    out.freeze()
}

impl Connection {
    /// Whether copies are made for this client.
    fn is_traced(&self) -> bool {
        self.directory.metadata().vhost(self.vhost).is_some_and(|vhost| vhost.tracing)
    }

    /// The client has published a message.
    pub(crate) fn trace_publish(&mut self, channel: ChannelRef, publish: &Publish) {
        if !self.is_traced() || *publish.exchange == *TRACE.as_bytes() {
            return;
        }
        let more = publish.cc.iter().chain(&publish.bcc).map(Bytes::as_ref);
        let keys = std::iter::once(publish.routing_key.as_ref()).chain(more).collect();
        let properties = publish.properties.to_basic();
        let message = Traced { exchange: publish.exchange.as_ref(), keys, properties };
        let queues = self.routed_queues(publish, &message.keys);
        let about = self.about(self.headers_of(&message), channel);
        let about = about.with("routed_queues", Value::Array(&array(queues.iter().map(Bytes::as_ref))));
        self.send_trace(&key_of("publish", message.exchange), about, publish.body.pieces());
    }

    /// Messages are delivered to a consumer of the client.
    pub(crate) fn trace_deliveries(
        &mut self,
        channel: ChannelRef,
        consumer: ConsumerRef,
        deliveries: &[amqp::Delivery],
    ) {
        let open = self.channels.get(&channel).and_then(|open| open.consumers.get(&consumer));
        let Some(entry) = open.map(|consumer| consumer.entry.clone()).filter(|_| self.is_traced()) else { return };
        deliveries.iter().for_each(|delivery| self.trace_delivery(channel, &entry, delivery));
    }

    /// The client gets a message.
    pub(crate) fn trace_got(&mut self, by: ConsumerId, entry: &QueueEntry, delivery: &amqp::Delivery) {
        let mut channels = self.channels.iter();
        let channel = channels.find(|(_, open)| open.pulls.values().any(|pull| pull.id == by));
        let Some(channel) = channel.map(|(channel, _)| *channel).filter(|_| self.is_traced()) else { return };
        self.trace_delivery(channel, entry, delivery);
    }

    fn trace_delivery(&mut self, channel: ChannelRef, entry: &QueueEntry, delivery: &amqp::Delivery) {
        if *delivery.exchange == *TRACE.as_bytes() {
            return;
        }
        let in_memory = |piece: &Chunk| match piece {
            Chunk::Bytes(bytes) => Some(bytes.clone()),
            Chunk::File(_) => None,
        };
        let body: Option<Vec<Bytes>> = delivery.payload.pieces().iter().map(in_memory).collect();
        let (Some(body), Ok(properties)) = (body, BasicProperties::decode(&delivery.properties)) else { return };
        let headers = properties.headers.clone();
        let copies: Vec<&[u8]> = headers
            .iter()
            .filter_map(|headers| headers.get("CC"))
            .flat_map(|cc| cc.elements().filter_map(|(_, key)| key.as_longstr()).collect::<Vec<_>>())
            .collect();
        let keys = std::iter::once(delivery.routing_key.as_ref()).chain(copies).collect();
        let message = Traced { exchange: delivery.exchange.as_ref(), keys, properties };
        let about = self.headers_of(&message).with("redelivered", Value::I32(delivery.redelivered.into()));
        let about = self.about(about, channel);
        self.send_trace(&key_of("deliver", entry.queue.name.as_bytes()), about, &body);
    }

    /// The headers about the message.
    fn headers_of(&self, message: &Traced<'_>) -> TableBuilder {
        TableBuilder::new()
            .with("exchange_name", Value::LongStr(message.exchange))
            .with("routing_keys", Value::Array(&array(message.keys.iter().copied())))
            .with_table("properties", &properties_table(&message.properties))
            .with_text("node", &format!("polylogue@{}", self.catalog.cluster().node.0))
    }

    /// The headers about the client.
    fn about(&self, headers: TableBuilder, channel: ChannelRef) -> TableBuilder {
        let name = self.ends.map_or_else(|| format!("<polylogue.{}>", self.id), |ends| ends.name());
        headers
            .with_text("vhost", &self.vhost_name)
            .with_text("connection", &name)
            .with("channel", Value::I32(channel.number.into()))
            .with_text("user", &self.user)
    }

    /// The names of the queues that the message was routed to immediately; empty if routing takes longer than a turn.
    fn routed_queues(&self, publish: &Publish, keys: &[&[u8]]) -> Vec<Bytes> {
        let routes = self.directory.router().load();
        let Some(entry) = routes.entry(self.vhost, publish.exchange.as_ref()) else { return Vec::new() };
        if publish.exchange.is_empty() && address_of(&publish.routing_key).is_some() {
            return vec![Bytes::copy_from_slice(publish.routing_key.as_ref())];
        }
        let view = View::new(&publish.properties);
        let message = Message { keys, view: &view, random: self.random(), released: false };
        let mut scratch = Scratch::default();
        let Ok(outcome) = routes.route_within(entry, message, &mut scratch, &mut STEPS_PER_TURN.clone()) else {
            return Vec::new();
        };
        let queues = outcome.queues.iter().filter_map(|routed| self.directory.queue(routed.queue));
        queues.map(|entry| entry.queue.name.clone().into_bytes()).collect()
    }

    /// Publishes a copy, unless routing it takes longer than a turn.
    fn send_trace(&mut self, key: &Bytes, headers: TableBuilder, body: &[Bytes]) {
        let basic = BasicProperties { headers: Some(headers.build()), ..BasicProperties::default() };
        let properties = Properties::from(&basic);
        let directory = self.directory.clone();
        let routes = directory.router().load();
        let Some(entry) = routes.entry(self.vhost, TRACE.as_bytes()) else { return };
        let now_ms = self.now.wall_ms;
        let sent = RoutedMessage {
            keys: &[key],
            view: &View::new(&properties),
            random: self.random(),
            expiration_ms: None,
            priority: None,
            now_ms,
        };
        let mut scratch = Scratch::default();
        let ways = RouteContext { directory: &directory, catalog: self.catalog.as_ref(), wanted: &|_| true };
        let reached = reach(ways, &routes, entry, &sent, &mut scratch, &mut STEPS_PER_TURN.clone());
        let Some(reached) = reached.ok().filter(|reached| !reached.queues.is_empty()) else { return };
        let bytes = store(TRACE.as_bytes(), key, properties.raw(), None, body);
        self.publish_without_outcome(reached.message(bytes, None, now_ms));
    }
}
