//! Routing of messages to queues, by the last committed routes: shared by publishes and dead-lettering.

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

/// The cost of looking up a queue and determining a message's place in it. Steps.
const FIND_STEPS: u64 = 5;
/// Queues that are processed without counting steps.
const UNCOUNTED_MAX: usize = 16;

/// The delivery mode of persistent messages.
const PERSISTENT: u8 = 2;
/// The highest priority of a quorum queue; higher ones are lowered to it.
const QUORUM_PRIORITY_MAX: u8 = 31;
/// The default priority of a message of a quorum queue.
pub const QUORUM_PRIORITY: u8 = 4;

/// The properties of a message that routing and queues need.
#[derive(Clone, Copy)]
pub(crate) struct RoutedMessage<'a> {
    /// The routing key, and those of CC and BCC.
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) view: &'a View,
    pub(crate) random: u64,
    pub(crate) expiration_ms: Option<u64>,
    pub(crate) priority: Option<u8>,
    pub(crate) now_ms: TimestampMs,
}

/// The queues that a message was routed to.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) queues: Vec<Target>,
    /// Some of them deliver it after a delay.
    pub(crate) is_delayed: bool,
    pub(crate) is_routed: bool,
}

impl Reached {
    /// The properties of a delayed message when it is delivered, if they differ: the header of a delay that is over is negative, as in RabbitMQ's
    /// delayed exchange. A later exchange, for example of a dead-lettered message, does not delay it again.
    pub(crate) fn properties(&self, properties: &Properties) -> Option<Properties> {
        if self.is_delayed { with_negative_delay(properties) } else { None }
    }

    /// Builds the message for these queues.
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

/// See [`Reached::properties`]. `None` without headers.
fn with_negative_delay(properties: &Properties) -> Option<Properties> {
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

/// The context of routing.
#[derive(Clone, Copy)]
pub(crate) struct RouteContext<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) catalog: &'a dyn Catalog,
    /// Selects the queues that count.
    pub(crate) wanted: &'a dyn Fn(&QueueEntry) -> bool,
}

/// Routes a message from an exchange, in at most this many steps, which are subtracted.
///
/// # Errors
/// The steps are used up: continue with [`PausedRoute::resume`].
pub(crate) fn reach(
    ways: RouteContext<'_>,
    routes: &Arc<Snapshot>,
    entry: Entry<'_>,
    sent: &RoutedMessage<'_>,
    scratch: &mut Scratch,
    steps: &mut u64,
) -> Result<Reached, Box<PausedRoute>> {
    let outcome = match routes.route_within(entry, sent.message(false), scratch, steps) {
        Ok(outcome) => outcome,
        Err(paused) => return Err(Box::new(PausedRoute { routing: Some(paused), ..PausedRoute::on(routes, sent) })),
    };
    if outcome.delayed.is_empty() && outcome.queues.len() <= UNCOUNTED_MAX {
        let mut queues = Vec::with_capacity(outcome.queues.len());
        queues.extend(outcome.queues.iter().filter_map(|routed| ways.target(routed.queue, sent)));
        return Ok(Reached { is_routed: !queues.is_empty(), queues, is_delayed: false });
    }
    let mut paused_route = Box::new(PausedRoute::on(routes, sent));
    paused_route.take(outcome, None);
    paused_route.resume(ways, sent, scratch, steps)
}

/// The paused routing of a message. It continues on the routes that it began with.
#[derive(Debug)]
pub(crate) struct PausedRoute {
    routes: Arc<Snapshot>,
    /// The random number of the start.
    random: u64,
    now_ms: TimestampMs,
    routing: Option<Box<PausedRouting>>,
    /// Queues that are found and not processed.
    found: VecDeque<QueueId>,
    /// When they deliver it.
    deliver_at: Option<TimestampMs>,
    /// Exchanges that delay it and are not processed.
    delays: Vec<Delayed>,
    /// The queues that already have it, if there are several paths.
    there: Option<Map<PartitionId, ()>>,
    /// Whether its delays are determined.
    is_delay_known: bool,
    reached: Reached,
}

impl PausedRoute {
    fn on(routes: &Arc<Snapshot>, sent: &RoutedMessage<'_>) -> PausedRoute {
        PausedRoute {
            routes: routes.clone(),
            random: sent.random,
            now_ms: sent.now_ms,
            routing: None,
            found: VecDeque::new(),
            deliver_at: None,
            delays: Vec::new(),
            there: None,
            is_delay_known: false,
            reached: Reached::default(),
        }
    }

    /// Takes over the result of routing.
    fn take(&mut self, outcome: Outcome<'_>, deliver_at: Option<TimestampMs>) {
        self.found.extend(outcome.queues.iter().map(|routed| routed.queue));
        self.deliver_at = deliver_at;
        if !std::mem::replace(&mut self.is_delay_known, true) {
            self.delays = outcome.delayed.to_vec();
            self.delays.reverse();
            self.reached.is_delayed = !self.delays.is_empty();
            self.reached.is_routed = outcome.is_routed();
            self.reached.queues.reserve(outcome.queues.len());
            // One exchange routes to a queue once; several may do so several times.
            let several = !outcome.queues.is_empty() || outcome.delayed.len() > 1;
            self.there = (several && self.reached.is_delayed).then(Map::default);
        }
    }

    /// Continues for at most this many steps, which are subtracted, with the message that it began with.
    ///
    /// # Errors
    /// The steps are used up again.
    pub(crate) fn resume(
        mut self: Box<Self>,
        ways: RouteContext<'_>,
        sent: &RoutedMessage<'_>,
        scratch: &mut Scratch,
        steps: &mut u64,
    ) -> Result<Reached, Box<PausedRoute>> {
        let sent = &RoutedMessage { random: self.random, now_ms: self.now_ms, ..*sent };
        loop {
            if let Some(routing) = self.routing.take() {
                let released = self.is_delay_known;
                match routing.resume(sent.message(released), scratch, steps) {
                    Ok(outcome) => self.take(outcome, self.deliver_at),
                    Err(paused) => {
                        self.routing = Some(paused);
                        return Err(self);
                    }
                }
            }
            if !self.process_queues(ways, sent, steps) {
                return Err(self);
            }
            // The queues after the delay are determined now; it waits in the queues.
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

    /// Processes the queues that were found; returns whether all were.
    fn process_queues(&mut self, ways: RouteContext<'_>, sent: &RoutedMessage<'_>, steps: &mut u64) -> bool {
        // Its TTL begins at the delivery time.
        let then = RoutedMessage { now_ms: self.deliver_at.unwrap_or(sent.now_ms), ..*sent };
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

impl RouteContext<'_> {
    fn target(&self, queue: QueueId, sent: &RoutedMessage<'_>) -> Option<Target> {
        self.directory.queue(queue).filter(|entry| (self.wanted)(entry))?.target(self.catalog, sent)
    }
}

impl RoutedMessage<'_> {
    fn message(&self, released: bool) -> Message<'_> {
        Message { keys: self.keys, view: self.view, random: self.random, released }
    }
}

impl QueueEntry {
    /// A message's place in the queue. `None` for a queue that is being deleted.
    fn target(&self, catalog: &dyn Catalog, sent: &RoutedMessage<'_>) -> Option<Target> {
        let partition = self.partition(catalog)?;
        if self.settings.kind == QueueKind::Stream {
            // Messages in a stream are ordered by offset and removed by retention only.
            return Some(Target { queue: partition, priority: None, expires_at: None, deliver_at: None });
        }
        let lives_ms = [sent.expiration_ms, self.settings.message_ttl_ms].into_iter().flatten().min();
        let priority = match self.settings.kind {
            // The broker decides how many levels that makes.
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
    use polylogue_amqp_model::{Bind, BindDestination, Command, DeclareExchange, arguments_of_json};
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

    fn bind(world: &mut World, source: &str, to: BindDestination) {
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
        let sent = RoutedMessage {
            keys: &[b"k"],
            view: &view,
            random: 1,
            expiration_ms: None,
            priority: None,
            now_ms: NOW_MS,
        };
        let ways = RouteContext { directory: &world.directory, catalog: &Topics, wanted: &|_| true };
        let mut scratch = Scratch::default();
        let whole = reach(ways, &routes, entry, &sent, &mut scratch, &mut u64::MAX.clone()).expect("steps do not end");
        for steps in 1..20 {
            let mut left = reach(ways, &routes, entry, &sent, &mut scratch, &mut steps.clone());
            while let Err(paused_route) = left {
                left = paused_route.resume(ways, &sent, &mut scratch, &mut steps.clone());
            }
            assert_eq!(left.expect("it is over"), whole, "in pieces of {steps} steps");
        }
        whole
    }

    #[test]
    fn a_delayed_message_waits_in_its_queues_and_its_header_becomes_negative() {
        let mut world = World::new();
        let late = world.queue("late", json!({"x-message-ttl": 50}));
        let at_once = world.queue("at once", json!({}));
        declare(&mut world, "d", "x-delayed-message", &json!({"x-delayed-type": "direct"}));
        bind(&mut world, "d", BindDestination::Queue("late".into()));
        declare(&mut world, "both", "fanout", &json!({}));
        bind(&mut world, "both", BindDestination::Queue("at once".into()));
        bind(&mut world, "both", BindDestination::Exchange("d".into()));
        let asked = properties(Value::I32(5_000));
        let reached = routed(&world, "both", &asked);
        assert!(reached.is_delayed && reached.is_routed);
        let mut times: Vec<_> = reached.queues.iter().map(|t| (t.queue, t.deliver_at, t.expires_at)).collect();
        times.sort_unstable();
        let then = NOW_MS + 5_000;
        let mut expected = [(late, Some(then), Some(then + 50)), (at_once, None, None)];
        expected.sort_unstable();
        assert_eq!(times, expected, "each queue separately; the TTL begins at the delivery time");

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
            assert!(!again.is_delayed && again.queues[0].deliver_at.is_none(), "it is not delayed again");
        }
    }

    /// A delay given as text was applied again by the next exchange, and a number without a negative equivalent ended the process.
    #[test]
    fn a_delay_of_any_type_applies_once() {
        let mut world = World::new();
        world.queue("late", json!({}));
        declare(&mut world, "d", "x-delayed-message", &json!({"x-delayed-type": "direct"}));
        bind(&mut world, "d", BindDestination::Queue("late".into()));
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

    /// Each queue was searched among all earlier ones.
    #[test]
    fn several_delayed_exchanges_reach_a_queue_once() {
        let mut world = World::new();
        let late = world.queue("late", json!({}));
        declare(&mut world, "all", "fanout", &json!({}));
        for name in ["one", "other"] {
            declare(&mut world, name, "x-delayed-message", &json!({"x-delayed-type": "fanout"}));
            bind(&mut world, name, BindDestination::Queue("late".into()));
            bind(&mut world, "all", BindDestination::Exchange(name.into()));
        }
        let reached = routed(&world, "all", &properties(Value::I32(5_000)));
        assert_eq!(reached.queues.iter().map(|target| target.queue).collect::<Vec<_>>(), [late]);
    }
}
