//! Where a message goes, by the last committed routes: the same for what clients publish and for what died.

use crate::convert::View;
use crate::directory::{Directory, QueueEntry};
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties, Table};
use polylogue_amqp_model::{QueueKind, decode_table, encode_table};
use polylogue_api::{Catalog, PublishMessage, Target};
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_router::{
    DELAY_HEADER, Delayed, Entry, Message, Outcome, PausedRouting, QueueId, Scratch, Snapshot, Value,
};
use polylogue_types::{Map, PartitionId, TimestampMs};
use std::collections::VecDeque;
use std::sync::Arc;

/// What it takes to look a queue up and to say how a message stands in it. Steps.
const FIND_STEPS: u64 = 5;
/// Queues that are looked at without counting.
const FEW: usize = 16;

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
#[derive(PartialEq, Debug, Default)]
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

/// What a message's queues are found by.
#[derive(Clone, Copy)]
pub(crate) struct Ways<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) catalog: &'a dyn Catalog,
    /// The queues that count.
    pub(crate) wanted: &'a dyn Fn(&QueueEntry) -> bool,
}

/// Finds the queues of a message that comes to an exchange, in at most so many steps, which are taken off.
///
/// # Errors
/// The steps are used up: what is left goes on with [`Reaching::resume`].
pub(crate) fn reach(
    ways: Ways<'_>,
    routes: &Arc<Snapshot>,
    entry: Entry<'_>,
    sent: &Sent<'_>,
    scratch: &mut Scratch,
    steps: &mut u64,
) -> Result<Reached, Box<Reaching>> {
    let outcome = match routes.route_within(entry, sent.message(false), scratch, steps) {
        Ok(outcome) => outcome,
        Err(paused) => return Err(Box::new(Reaching { routing: Some(paused), ..Reaching::on(routes, sent) })),
    };
    if outcome.delayed.is_empty() && outcome.queues.len() <= FEW {
        let mut queues = Vec::with_capacity(outcome.queues.len());
        queues.extend(outcome.queues.iter().filter_map(|routed| ways.target(routed.queue, sent)));
        return Ok(Reached { is_routed: !queues.is_empty(), queues, is_delayed: false });
    }
    let mut reaching = Box::new(Reaching::on(routes, sent));
    reaching.take(outcome, None);
    reaching.resume(ways, sent, scratch, steps)
}

/// The way of a message to its queues that is not at its end. It goes on by the routes by which it began.
#[derive(Debug)]
pub(crate) struct Reaching {
    routes: Arc<Snapshot>,
    /// As it was when it began.
    random: u64,
    now_ms: TimestampMs,
    routing: Option<Box<PausedRouting>>,
    /// Queues that are found and not looked at.
    found: VecDeque<QueueId>,
    /// When they get it.
    deliver_at: Option<TimestampMs>,
    /// Exchanges that keep it for a while, and are not looked at.
    delays: Vec<Delayed>,
    /// The queues that have it, where several ways may lead to one.
    there: Option<Map<PartitionId, ()>>,
    /// Whether it is known what keeps it.
    is_judged: bool,
    reached: Reached,
}

impl Reaching {
    fn on(routes: &Arc<Snapshot>, sent: &Sent<'_>) -> Reaching {
        Reaching {
            routes: routes.clone(),
            random: sent.random,
            now_ms: sent.now_ms,
            routing: None,
            found: VecDeque::new(),
            deliver_at: None,
            delays: Vec::new(),
            there: None,
            is_judged: false,
            reached: Reached::default(),
        }
    }

    /// Takes over what routing found.
    fn take(&mut self, outcome: Outcome<'_>, deliver_at: Option<TimestampMs>) {
        self.found.extend(outcome.queues.iter().map(|routed| routed.queue));
        self.deliver_at = deliver_at;
        if !std::mem::replace(&mut self.is_judged, true) {
            self.delays = outcome.delayed.to_vec();
            self.delays.reverse();
            self.reached.is_delayed = !self.delays.is_empty();
            self.reached.is_routed = outcome.is_routed();
            self.reached.queues.reserve(outcome.queues.len());
            // One exchange reaches a queue once; several may reach it several times.
            let several = !outcome.queues.is_empty() || outcome.delayed.len() > 1;
            self.there = (several && self.reached.is_delayed).then(Map::default);
        }
    }

    /// Goes on in at most so many steps, which are taken off, with the message with which it began.
    ///
    /// # Errors
    /// The steps are used up: what is left.
    pub(crate) fn resume(
        mut self: Box<Self>,
        ways: Ways<'_>,
        sent: &Sent<'_>,
        scratch: &mut Scratch,
        steps: &mut u64,
    ) -> Result<Reached, Box<Reaching>> {
        let sent = &Sent { random: self.random, now_ms: self.now_ms, ..*sent };
        loop {
            if let Some(routing) = self.routing.take() {
                let released = self.is_judged;
                match routing.resume(sent.message(released), scratch, steps) {
                    Ok(outcome) => self.take(outcome, self.deliver_at),
                    Err(paused) => {
                        self.routing = Some(paused);
                        return Err(self);
                    }
                }
            }
            if !self.look_at_queues(ways, sent, steps) {
                return Err(self);
            }
            // Where it goes once its time has come is settled now; it waits in the queues.
            let Some(delayed) = self.delays.pop() else { break };
            let routes = self.routes.clone();
            let Some(entry) = routes.entry_by_id(delayed.exchange) else { continue };
            let deliver_at = Some(sent.now_ms.saturating_add_unsigned(delayed.delay_ms));
            match routes.route_within(entry, sent.message(true), scratch, steps) {
                Ok(outcome) => self.take(outcome, deliver_at),
                Err(paused) => (self.routing, self.deliver_at) = (Some(paused), deliver_at),
            }
        }
        self.reached.is_routed &= !self.reached.queues.is_empty();
        Ok(self.reached)
    }

    /// Looks at the queues that were found; whether at all of them.
    fn look_at_queues(&mut self, ways: Ways<'_>, sent: &Sent<'_>, steps: &mut u64) -> bool {
        // Its time to live begins when it gets there.
        let then = Sent { now_ms: self.deliver_at.unwrap_or(sent.now_ms), ..*sent };
        while let Some(queue) = self.found.pop_front() {
            if *steps == 0 {
                self.found.push_front(queue);
                return false;
            }
            *steps = steps.saturating_sub(FIND_STEPS);
            let Some(target) = ways.target(queue, &then) else { continue };
            let is_new = self.there.as_mut().is_none_or(|there| there.insert(target.queue, ()).is_none());
            if is_new || self.deliver_at.is_none() {
                self.reached.queues.push(Target { deliver_at: self.deliver_at, ..target });
            }
        }
        true
    }
}

impl Ways<'_> {
    fn target(&self, queue: QueueId, sent: &Sent<'_>) -> Option<Target> {
        self.directory.queue(queue).filter(|entry| (self.wanted)(entry))?.target(self.catalog, sent)
    }
}

impl Sent<'_> {
    fn message(&self, released: bool) -> Message<'_> {
        Message { keys: self.keys, view: self.view, random: self.random, released }
    }
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
        let ways = Ways { directory: &world.directory, catalog: &Topics, wanted: &|_| true };
        let mut scratch = Scratch::default();
        let whole = reach(ways, &routes, entry, &sent, &mut scratch, &mut u64::MAX.clone()).expect("steps do not end");
        for steps in 1..20 {
            let mut left = reach(ways, &routes, entry, &sent, &mut scratch, &mut steps.clone());
            while let Err(reaching) = left {
                left = reaching.resume(ways, &sent, &mut scratch, &mut steps.clone());
            }
            assert_eq!(left.expect("it is over"), whole, "in pieces of {steps} steps");
        }
        whole
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
