//! Cost of many clients that attach, and hang up, at once: consumers of one queue, of a queue each, and Kafka fetches that wait at the end of one log.
//!
//! ```text
//! cargo run --release -p polylogue-sim --example hang_ups [SESSIONS] [SCENARIO]
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]
#![allow(clippy::disallowed_methods, reason = "it measures")]

use bytes::Bytes;
use polylogue_amqp_gateway::{AmqpMachine, AmqpRequest, topic_of};
use polylogue_amqp_model::{Caller, Command, DeclareQueue, Limits, OwnerId};
use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig, ReplySink, SessionId};
use polylogue_env::sim::SimWorld;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_replicate::Work;
use polylogue_router::QueueId;
use polylogue_types::{Offset, PartitionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SESSIONS: u64 = 20_000;
/// Topics, or messages, of one request.
const PER_REQUEST: u64 = 100;
/// Messages that each consumer holds when it hangs up, where it holds any.
const HELD: u64 = 4;

#[derive(Debug)]
struct Silent;

impl ReplySink for Silent {
    fn reply(&self, _: Token, _: Reply) {}

    fn event(&self, _: Event) {}
}

/// A broker over the simulated disk, and the sessions that are open.
struct Rig {
    broker: Broker,
    admin: SessionId,
    sink: Arc<dyn ReplySink>,
    sessions: Vec<SessionId>,
}

impl Rig {
    fn new() -> Rig {
        let world = SimWorld::new(1);
        let mut config = BrokerConfig::new("/data".into());
        config.disk_reserve_bytes = 0;
        let amqp = Box::new(AmqpMachine::new(Limits::default())) as Box<dyn StateMachine>;
        let broker = Broker::open(world.env(), config, BTreeMap::from([(MachineId::AMQP, amqp)])).unwrap();
        broker.tick();
        let admin = broker.new_session();
        let rig = Rig { broker, admin, sink: Arc::new(Silent), sessions: Vec::new() };
        rig.log();
        rig
    }

    fn log(&self) {
        while self.broker.log_step(Work::Write) | self.broker.log_step(Work::Flush) {}
    }

    fn ask(&self, session: SessionId, request: Request) {
        self.broker.submit(&self.sink, session, 1, request);
    }

    fn topics(&self, names: &[String], queue: Option<QueueSettings>) -> Vec<PartitionId> {
        let config = TopicConfig { queue, retention_ms: None, ..TopicConfig::default() };
        let topic =
            |name: &String| NewTopic { name: name.clone(), partitions: 1, config: config.clone(), internal: false };
        for names in names.chunks(PER_REQUEST as usize) {
            let topics = names.iter().map(topic).collect();
            self.ask(self.admin, Request::CreateTopics(CreateTopics { topics, validate_only: false }));
            self.log();
        }
        let catalog = self.broker.catalog();
        names.iter().map(|name| catalog.topic(name).unwrap().partitions[0].id).collect()
    }

    fn publish(&self, queue: PartitionId, count: u64) {
        for first in (0..count).step_by(PER_REQUEST as usize) {
            let target = Target { queue, priority: None, expires_at: None, deliver_at: None };
            let message = PublishMessage {
                queues: [target].into_iter().collect(),
                form: Form::AmqpMessage,
                flags: EntryFlags::NONE,
                bytes: Bytes::from_static(b"x"),
                timestamp: -1,
                key_hash: None,
                all_or_none: false,
            };
            let messages = vec![message; PER_REQUEST.min(count - first) as usize];
            self.ask(self.admin, Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
            self.log();
        }
    }

    /// As many sessions, each with one request.
    fn open(&mut self, count: u64, request: impl Fn(u64) -> Request) -> Duration {
        let before = Instant::now();
        for n in 0..count {
            let session = self.broker.new_session();
            self.sessions.push(session);
            self.ask(session, request(n));
        }
        self.log();
        before.elapsed()
    }

    /// All sessions end.
    fn hang_up(&mut self) -> Duration {
        let before = Instant::now();
        for session in std::mem::take(&mut self.sessions) {
            self.broker.session_gone(session);
        }
        self.log();
        before.elapsed()
    }
}

fn consume(queue: PartitionId, prefetch: u32) -> Request {
    Request::Attach(Attach { queue, consumer: ConsumerSpec { prefetch, ..ConsumerSpec::default() } })
}

fn show(what: &str, count: u64, times: &[(&str, Duration)]) {
    let times: Vec<_> = times.iter().map(|(name, time)| format!("{name} {:.0} ms", time.as_secs_f64() * 1e3)).collect();
    println!("{count} sessions, {what}: {}", times.join(", "));
}

fn one_queue(count: u64, what: &str, mode: ConsumerMode, held: u64) {
    let mut rig = Rig::new();
    let queue = rig.topics(&["q".into()], Some(QueueSettings { mode, ..QueueSettings::default() }))[0];
    let attach = rig.open(count, |_| consume(queue, held as u32));
    let before = Instant::now();
    (0..count).for_each(|_| rig.ask(rig.admin, Request::DescribeQueues(vec![queue])));
    let describe = before.elapsed();
    let before = Instant::now();
    // One message for each of them in turn: what one consumer holds lies between what others hold.
    rig.publish(queue, held * count);
    let deliver = before.elapsed();
    let times =
        [("attach", attach), ("as many declarations", describe), ("deliver", deliver), ("hang up", rig.hang_up())];
    show(what, count, &times);
}

fn queue_each(count: u64) {
    let mut rig = Rig::new();
    let names: Vec<_> = (0..count).map(|n| format!("q{n}")).collect();
    let queues = rig.topics(&names, Some(QueueSettings::default()));
    let attach = rig.open(count, |n| consume(queues[n as usize], 0));
    show("a queue each", count, &[("attach", attach), ("hang up", rig.hang_up())]);
}

/// Each connection declares a queue that is its own, and which is deleted with it.
fn exclusive_queue_each(count: u64) {
    let mut rig = Rig::new();
    let caller = |n: u64| Caller { owner: OwnerId::local(n + 1), ..Caller::broker() };
    let act =
        |n: u64, command| Request::Machine(MachineId::AMQP, Box::new(AmqpRequest::Do(caller(n), Box::new(command))));
    let before = Instant::now();
    for n in 0..count {
        let declare = DeclareQueue { name: format!("own{n}").into(), exclusive: true, ..DeclareQueue::default() };
        rig.ask(rig.admin, act(n, Command::DeclareQueue(declare)));
        if n % PER_REQUEST == 0 {
            rig.log();
        }
    }
    rig.log();
    let declare = before.elapsed();
    let names: Vec<_> = (0..count).map(|n| topic_of(QueueId(n))).collect();
    let queues = rig.topics(&names, Some(QueueSettings::default()));
    let attach = rig.open(count, |n| consume(queues[n as usize], 0));
    let before = Instant::now();
    for n in 0..count {
        rig.ask(rig.admin, act(n, Command::OwnerGone(OwnerId::local(n + 1))));
        rig.broker.session_gone(rig.sessions[n as usize]);
        if n % PER_REQUEST == 0 {
            rig.log();
        }
    }
    rig.log();
    let hang_up = before.elapsed();
    let left = queues.len() - names.iter().filter(|name| rig.broker.catalog().topic(name).is_none()).count();
    show("an exclusive queue each", count, &[("declare", declare), ("attach", attach), ("hang up", hang_up)]);
    println!("  {left} queues are left");
}

fn fetches(count: u64) {
    let mut rig = Rig::new();
    let log = rig.topics(&["log".into()], None)[0];
    let wait = |_| Request::Watch(WatchRequest { seen: vec![(log, Offset(0))], followed: None });
    let attach = rig.open(count, wait);
    show("waiting fetches of one log", count, &[("wait", attach), ("hang up", rig.hang_up())]);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(SESSIONS, |count| count.parse().unwrap());
    let only = arguments.next();
    let is_meant = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if is_meant("idle") {
        one_queue(count, "consumers of one queue", ConsumerMode::Competing, 0);
    }
    if is_meant("single") {
        one_queue(count, "one queue with a single active consumer", ConsumerMode::SingleActive, 0);
    }
    if is_meant("held") {
        one_queue(count, "one queue, messages held by each consumer", ConsumerMode::Competing, HELD);
    }
    if is_meant("queues") {
        queue_each(count);
    }
    if is_meant("exclusive") {
        exclusive_queue_each(count);
    }
    if is_meant("fetch") {
        fetches(count);
    }
}
