//! Where a message goes, by the last committed routes: the same for what clients publish and for what died.

use crate::convert::View;
use crate::directory::{Directory, QueueEntry};
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties, Table};
use polylogue_amqp_model::{QueueKind, decode_table, encode_table};
use polylogue_api::{Catalog, PublishMessage, Target};
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_router::{DELAY_HEADER, Entry, Message, QueueId, Scratch, Snapshot, Value};
use polylogue_types::{Map, PartitionId, TimestampMs};

/// The delivery mode that asks for a message to outlive a restart.
const PERSISTENT: u8 = 2;
/// The highest priority of a quorum queue; higher ones count as this.
const QUORUM_PRIORITY_MAX: u8 = 31;
/// The priority of a message of a quorum queue that says none.
pub const QUORUM_PRIORITY: u8 = 4;

/// What routing looks at, and queues.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    /// The routing key, and those of CC and BCC.
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) view: &'a View,
    pub(crate) random: u64,
    pub(crate) expiration_ms: Option<u64>,
    pub(crate) priority: Option<u8>,
    pub(crate) now_ms: TimestampMs,
}

/// The queues that a message reaches.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) queues: Vec<Target>,
    /// Some of them keep it for a while.
    pub(crate) is_delayed: bool,
    pub(crate) is_routed: bool,
}

impl Reached {
    /// The properties with which a delayed message is delivered, where they are others: a delay that was kept to is negative in its
    /// header, as RabbitMQ's delayed exchange has it. The next one that the message comes to, as a dead one, keeps it no more.
    pub(crate) fn properties(&self, properties: &Properties) -> Option<Properties> {
        if self.is_delayed { turned(properties) } else { None }
    }

    /// The message on its way to these queues.
    pub(crate) fn message(self, bytes: Bytes, delivery_mode: Option<u8>, now_ms: TimestampMs) -> PublishMessage {
        let transient = delivery_mode != Some(PERSISTENT);
        PublishMessage {
            queues: self.queues,
            form: Form::AmqpMessage,
            flags: EntryFlags::NONE.with_if(transient, EntryFlags::TRANSIENT),
            bytes,
            timestamp: now_ms,
            key_hash: None,
            all_or_none: false,
        }
    }
}

/// See [`Reached::properties`]. `None` where there are no headers.
fn turned(properties: &Properties) -> Option<Properties> {
    let mut basic = BasicProperties::decode(properties.raw()).ok()?;
    let mut headers = decode_table(basic.headers.take()?.raw()).ok()?;
    for header in headers.iter_mut().filter(|header| header.name == DELAY_HEADER) {
        match &mut header.value {
            Value::Int(ms) => *ms = ms.saturating_neg(),
            Value::Float(ms) => *ms = -*ms,
            Value::Bytes(text) if !text.starts_with(b"-") => *text = [b"-", &text[..]].concat().into(),
            _ => continue,
        }
        if matches!(header.tag, b'B' | b'u' | b'i') {
            header.tag = b'l';
        }
    }
    basic.headers = Table::new(encode_table(&headers)).ok();
    Some(Properties::from(&basic))
}

/// Finds the queues of a message that comes to an exchange, those that are `wanted`.
pub(crate) fn reach(
    directory: &Directory,
    catalog: &dyn Catalog,
    routes: &Snapshot,
    entry: Entry<'_>,
    sent: &Sent<'_>,
    wanted: &dyn Fn(&QueueEntry) -> bool,
    scratch: &mut Scratch,
) -> Reached {
    let message = Message { keys: sent.keys, view: sent.view, random: sent.random, released: false };
    let outcome = routes.route(entry, message, scratch);
    let is_routed = outcome.is_routed();
    // One exchange reaches a queue once; several may reach it several times.
    let several = !outcome.queues.is_empty() || outcome.delayed.len() > 1;
    let mut queues = Vec::with_capacity(outcome.queues.len());
    let found = |id: QueueId| directory.queue(id).filter(|entry| wanted(entry))?.target(catalog, sent);
    queues.extend(outcome.queues.iter().filter_map(|routed| found(routed.queue)));
    let delays: Vec<_> = outcome.delayed.to_vec();
    let mut there: Map<PartitionId, ()> = Map::default();
    if several && !delays.is_empty() {
        there.extend(queues.iter().map(|target: &Target| (target.queue, ())));
    }
    let is_delayed = !delays.is_empty();
    for delayed in delays {
        // Where it goes once its time has come is settled now; it waits in the queues.
        let Some(entry) = routes.entry_by_id(delayed.exchange) else { continue };
        let outcome = routes.route(entry, Message { released: true, ..message }, scratch);
        let deliver_at = sent.now_ms.saturating_add_unsigned(delayed.delay_ms);
        // Its time to live begins when it gets there.
        let then = Sent { now_ms: deliver_at, ..*sent };
        let found = |id: QueueId| directory.queue(id).filter(|entry| wanted(entry))?.target(catalog, &then);
        for target in outcome.queues.iter().filter_map(|routed| found(routed.queue)) {
            let target = Target { deliver_at: Some(deliver_at), ..target };
            if !several || there.insert(target.queue, ()).is_none() {
                queues.push(target);
            }
        }
    }
    Reached { is_routed: is_routed && !queues.is_empty(), queues, is_delayed }
}

impl QueueEntry {
    /// How a message stands in the queue. `None` for a queue that is going.
    fn target(&self, catalog: &dyn Catalog, sent: &Sent<'_>) -> Option<Target> {
        let partition = self.partition(catalog)?;
        if self.settings.kind == QueueKind::Stream {
            // What is in a stream stays as long as the stream keeps it, and where it is.
            return Some(Target { queue: partition, priority: None, expires_at: None, deliver_at: None });
        }
        let lives_ms = [sent.expiration_ms, self.settings.message_ttl_ms].into_iter().flatten().min();
        let priority = match self.settings.kind {
            // How many levels that makes is the broker's affair.
            QueueKind::Quorum => sent.priority.map(|priority| priority.min(QUORUM_PRIORITY_MAX)),
            _ => self.settings.max_priority.map(|max| sent.priority.unwrap_or(0).min(max)).filter(|p| *p > 0),
        };
        let expires_at = lives_ms.map(|ms| sent.now_ms.saturating_add_unsigned(ms));
        Some(Target { queue: partition, priority, expires_at, deliver_at: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Topics, World};
    use polylogue_amqp::codec::{TableBuilder, Value};
    use polylogue_amqp_model::{Bind, Command, DeclareExchange, To, arguments_of_json};
    use serde_json::json;

    const NOW_MS: TimestampMs = 1_000_000;

    fn declare(world: &mut World, name: &str, kind: &str, arguments: &serde_json::Value) {
        let declare = DeclareExchange {
            vhost: world.vhost,
            name: name.into(),
            kind: kind.into(),
            arguments: arguments_of_json(arguments.as_object().expect("an object")).expect("arguments"),
            ..DeclareExchange::default()
        };
        world.act(Command::DeclareExchange(declare));
    }

    fn bind(world: &mut World, source: &str, to: To) {
        let bind = Bind { vhost: world.vhost, source: source.into(), to, key: "k".into(), arguments: Vec::new() };
        world.act(Command::Bind(bind));
    }

    fn properties(delay: Value<'_>) -> Properties {
        let headers = TableBuilder::new().with_text("a", "1").with("x-delay", delay).with_text("z", "2").build();
        Properties::from(&BasicProperties { headers: Some(headers), ..BasicProperties::default() })
    }

    fn routed(world: &World, exchange: &str, properties: &Properties) -> Reached {
        let routes = world.directory.router().load();
        let entry = routes.entry(world.vhost, exchange.as_bytes()).expect("an exchange");
        let view = View::new(properties);
        let sent = Sent { keys: &[b"k"], view: &view, random: 1, expiration_ms: None, priority: None, now_ms: NOW_MS };
        reach(&world.directory, &Topics, &routes, entry, &sent, &|_| true, &mut Scratch::default())
    }

    #[test]
    fn a_delayed_message_waits_in_its_queues_and_its_header_is_negative_afterwards() {
        let mut world = World::new();
        let late = world.queue("late", json!({"x-message-ttl": 50}));
        let at_once = world.queue("at once", json!({}));
        declare(&mut world, "d", "x-delayed-message", &json!({"x-delayed-type": "direct"}));
        bind(&mut world, "d", To::Queue("late".into()));
        declare(&mut world, "both", "fanout", &json!({}));
        bind(&mut world, "both", To::Queue("at once".into()));
        bind(&mut world, "both", To::Exchange("d".into()));
        let asked = properties(Value::I32(5_000));
        let reached = routed(&world, "both", &asked);
        assert!(reached.is_delayed && reached.is_routed);
        let mut times: Vec<_> = reached.queues.iter().map(|t| (t.queue, t.deliver_at, t.expires_at)).collect();
        times.sort_unstable();
        let then = NOW_MS + 5_000;
        let mut expected = [(late, Some(then), Some(then + 50)), (at_once, None, None)];
        expected.sort_unstable();
        assert_eq!(times, expected, "each queue for itself; its time to live begins when it is there");

        let delays = [(Value::I32(5_000), Value::I32(-5_000)), (Value::I64(5_000), Value::I64(-5_000))];
        for (delay, negative) in delays.into_iter().chain([(Value::F64(5_000.5), Value::F64(-5_000.5))]) {
            let asked = properties(delay);
            let after = routed(&world, "d", &asked).properties(&asked).expect("others");
            let basic = BasicProperties::decode(after.raw()).expect("properties");
            let headers = basic.headers.expect("headers");
            let fields: Vec<_> = headers.fields().map(|field| (field.name, field.value)).collect();
            let expected = [(&b"a"[..], Value::LongStr(b"1")), (b"x-delay", negative), (b"z", Value::LongStr(b"2"))];
            assert_eq!(fields, expected);
            let again = routed(&world, "d", &after);
            assert!(!again.is_delayed && again.queues[0].deliver_at.is_none(), "it is not kept again");
        }
    }

    /// A delay in text was kept to again by the next exchange, and one that is a number and has no negative ended the process.
    #[test]
    fn a_delay_of_any_kind_is_kept_to_once() {
        let mut world = World::new();
        world.queue("late", json!({}));
        declare(&mut world, "d", "x-delayed-message", &json!({"x-delayed-type": "direct"}));
        bind(&mut world, "d", To::Queue("late".into()));
        let asked = properties(Value::LongStr(b"5000"));
        let reached = routed(&world, "d", &asked);
        assert!(reached.is_delayed);
        let after = reached.properties(&asked).expect("others");
        assert!(!routed(&world, "d", &after).is_delayed);
        let headers =
            TableBuilder::new().with("x-delay", Value::I64(i64::MIN)).with("x-delay", Value::I32(5_000)).build();
        let asked = Properties::from(&BasicProperties { headers: Some(headers), ..BasicProperties::default() });
        let after = routed(&world, "d", &asked).properties(&asked).expect("others");
        assert!(!routed(&world, "d", &after).is_delayed);
    }

    /// Each queue was looked for among all that came before it.
    #[test]
    fn several_delayed_exchanges_reach_a_queue_once() {
        let mut world = World::new();
        let late = world.queue("late", json!({}));
        declare(&mut world, "all", "fanout", &json!({}));
        for name in ["one", "other"] {
            declare(&mut world, name, "x-delayed-message", &json!({"x-delayed-type": "fanout"}));
            bind(&mut world, name, To::Queue("late".into()));
            bind(&mut world, "all", To::Exchange(name.into()));
        }
        let reached = routed(&world, "all", &properties(Value::I32(5_000)));
        assert_eq!(reached.queues.iter().map(|target| target.queue).collect::<Vec<_>>(), [late]);
    }
}
