//! The measured paths. Only the work inside [`Meter::count`] is counted.

use crate::node::{Consumer, Node, Place, Producer, Result, Topic};
use crate::queue;
use polylogue_broker::BrokerConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Messages of a batch that fills a producer's default `batch.size` of 16 KiB.
const SMALL: u32 = 15;
/// Messages of a batch of the largest default size, 1 MB.
const LARGE: u32 = 1_000;
/// Bytes of messages produced before counting: more than the tail cache holds.
const WARM_BYTES: u64 = 10 << 20;
/// Bytes of messages that are counted, in steady paths.
const COUNTED_BYTES: u64 = 16 << 20;
/// Bytes of messages stored for reading or recovery.
const STORED_BYTES: u64 = 48 << 20;
/// File size in paths with many files and merges. Bytes.
const FILE_BYTES: u64 = 8 << 20;
/// Flushes that are counted, in the paths of group commit.
const FLUSHES: u32 = 100;

/// The result of one path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Its name.
    pub(crate) path: String,
    /// Its parameters.
    pub(crate) parameters: BTreeMap<String, u64>,
    /// Units of work done: messages, batches, requests, flushes, MiB.
    pub(crate) units: BTreeMap<String, f64>,
    /// Number of allocations, if counted.
    pub(crate) allocations: u64,
    /// Bytes allocated.
    pub(crate) allocated_bytes: u64,
}

/// A counter of instructions or allocations.
pub(crate) trait Meter {
    /// Does the work and counts its cost.
    fn count(&mut self, work: &mut dyn FnMut());
    /// Assigns what was counted since the last call to this case.
    fn end(&mut self, case: Case) -> Result<()>;
}

impl Case {
    pub(crate) fn new(path: &str) -> Case {
        Case { path: path.to_owned(), ..Case::default() }
    }

    pub(crate) fn with(mut self, parameter: &str, value: impl Into<u64>) -> Case {
        self.parameters.insert(parameter.to_owned(), value.into());
        self
    }

    pub(crate) fn unit(mut self, unit: &str, count: impl Into<u64>) -> Case {
        self.units.insert(unit.to_owned(), count.into() as f64);
        self
    }
}

/// The shape of requests.
#[derive(Clone, Copy)]
struct Shape {
    partitions: u32,
    /// Messages per batch.
    messages: u32,
    /// Batches per request, each for another partition.
    batches: u32,
}

impl Shape {
    /// Returns the number of requests for this many bytes of messages.
    fn requests(&self, bytes: u64) -> u32 {
        let request = u64::from(self.messages * self.batches) * crate::node::MESSAGE_BYTES as u64;
        u32::try_from(bytes / request).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the partitions of a request, in round-robin order.
    fn targets(&self, request: u32) -> Vec<u32> {
        (0..self.batches).map(|i| (request * self.batches + i) % self.partitions).collect()
    }

    fn case(&self, path: &str, producer: &Producer) -> Case {
        let case = Case::new(path).with("partitions", self.partitions).with("messages_per_batch", self.messages);
        case.with("batches_per_request", self.batches).with("batch_bytes", producer.batch_bytes as u64)
    }
}

/// A broker with a topic and a producer.
struct Rig {
    node: Node,
    topic: Topic,
    producer: Producer,
    sent: u64,
    // Dropped last, with its files.
    place: Place,
}

impl Rig {
    fn new(partitions: u32, change: impl FnOnce(&mut BrokerConfig)) -> Result<Rig> {
        let place = Place::new()?;
        let node = place.open(change)?;
        let topic = node.create(partitions)?;
        let producer = Producer::new(&node, topic)?;
        Ok(Rig { node, topic, producer, sent: 0, place })
    }

    fn produce(&mut self, shape: Shape, request: u32) -> Result<()> {
        self.sent += u64::from(shape.batches * shape.messages);
        self.producer.produce(&self.node, &shape.targets(request), shape.messages)
    }

    /// Produces without counting; returns the number of the next request.
    fn fill(&mut self, shape: Shape, bytes: u64) -> Result<u32> {
        let requests = shape.requests(bytes);
        (0..requests).try_for_each(|request| self.produce(shape, request))?;
        Ok(requests)
    }

    /// Checks that every message sent is stored.
    fn check(&self) -> Result<()> {
        let there = self.node.messages()?;
        if there == self.sent { Ok(()) } else { Err(format!("{there} messages are there of {}", self.sent).into()) }
    }
}

/// A request, its flush, and its response.
fn produce(meter: &mut dyn Meter, shape: Shape) -> Result<()> {
    let mut rig = Rig::new(shape.partitions, |_| ())?;
    let first = rig.fill(shape, WARM_BYTES)?;
    let requests = shape.requests(COUNTED_BYTES);
    for request in first..first + requests {
        rig.producer.put(&rig.node, &shape.targets(request), shape.messages)?;
        rig.sent += u64::from(shape.batches * shape.messages);
        let (node, connection) = (&rig.node, &mut rig.producer.connection);
        let mut answered = false;
        meter.count(&mut || {
            connection.ask(node);
            node.commit();
            answered = connection.answer(node);
            connection.sent();
        });
        rig.node.pause();
        if !answered {
            return Err("a batch was not acknowledged".into());
        }
    }
    rig.check()?;
    let batches = requests * shape.batches;
    let case = shape.case("produce", &rig.producer).unit("request", requests).unit("batch", batches);
    meter.end(case.unit("message", batches * shape.messages))
}

/// A consumer at the end of the log, and the next batches. With `waits` its request comes before them.
fn fetch_at_the_tail(meter: &mut dyn Meter, shape: Shape, waits: bool) -> Result<()> {
    let mut rig = Rig::new(shape.partitions, |_| ())?;
    let first = rig.fill(shape, WARM_BYTES)?;
    let ends = (0..shape.partitions).map(|partition| {
        let batches = (0..first).flat_map(|r| shape.targets(r)).filter(|target| *target == partition).count();
        i64::try_from(batches).unwrap_or(0) * i64::from(shape.messages)
    });
    let mut consumer = Consumer::new(&rig.node, rig.topic, ends.collect());
    // Its first request is a full one; it is answered once there are messages.
    rig.produce(shape, first)?;
    let all: Vec<u32> = (0..shape.partitions).collect();
    let batch = (rig.producer.batch_bytes, shape.messages);
    let mut read = consumer.fetch(&rig.node, &all, batch)?;
    let requests = shape.requests(COUNTED_BYTES);
    for request in first + 1..first + 1 + requests {
        let next = shape.targets(request);
        if !waits {
            rig.produce(shape, request)?;
        }
        consumer.put(read.drain(..))?;
        let connection = &mut consumer.connection;
        if waits {
            meter.count(&mut || {
                connection.ask(&rig.node);
                connection.answer(&rig.node);
            });
            rig.produce(shape, request)?;
        }
        let (node, mut bytes) = (&rig.node, 0);
        meter.count(&mut || {
            if !waits {
                connection.ask(node);
            }
            connection.answer(node);
            bytes = connection.sent();
        });
        if bytes < batch.0 * next.len() {
            return Err(format!("a fetch at the tail gave {bytes} bytes").into());
        }
        next.iter().for_each(|partition| consumer.advance(*partition, shape.messages));
        read.extend(next);
    }
    let batches = requests * shape.batches;
    let path = if waits { "fetch at the tail, asked before" } else { "fetch at the tail" };
    let case = shape.case(path, &rig.producer).unit("request", requests).unit("batch", batches);
    meter.end(case.unit("message", batches * shape.messages))
}

/// Configures small files, so that they fill, are covered by checkpoints and become segments.
fn busy_background(config: &mut BrokerConfig) {
    config.journal_file_bytes = FILE_BYTES;
    config.checkpoint_bytes_max = FILE_BYTES / 2;
    config.store.merge_bytes = FILE_BYTES;
    config.store.tail_cache_bytes = 1 << 20;
}

/// A consumer that reads from the start after a restart, with nothing in memory and no block verified; then a second
/// consumer.
fn fetch_behind(meter: &mut dyn Meter, partitions: u32) -> Result<()> {
    let shape = Shape { partitions, messages: SMALL, batches: 1 };
    let mut rig = Rig::new(partitions, busy_background)?;
    let stored = rig.fill(shape, STORED_BYTES)?;
    rig.node.settle()?;
    rig.check()?;
    let Rig { node, topic, producer, sent: _, place } = rig;
    drop(node);
    let node = place.open(busy_background)?;
    let segment_bytes: u64 = node.broker.shards().iter().map(|shard| shard.store.segment_bytes).sum();
    if segment_bytes < STORED_BYTES / 2 {
        return Err(format!("only {segment_bytes} bytes are in segments").into());
    }
    for path in ["fetch behind, first reader", "fetch behind, second reader"] {
        let mut consumer = Consumer::new(&node, topic, vec![0; partitions as usize]);
        let mut read: Vec<u32> = (0..partitions).collect();
        let (mut requests, mut batches) = (0, 0);
        while batches < stored as usize {
            consumer.put(read.drain(..))?;
            let connection = &mut consumer.connection;
            meter.count(&mut || {
                connection.ask(&node);
                node.commit();
                connection.answer(&node);
            });
            let (from, found) = consumer.take(producer.batch_bytes, SMALL)?;
            let connection = &mut consumer.connection;
            meter.count(&mut || _ = connection.sent());
            if found == 0 {
                return Err(format!("{batches} batches were found of {stored}").into());
            }
            (read, requests, batches) = (from, requests + 1, batches + found);
        }
        let case = shape.case(path, &producer).with("segment_bytes", segment_bytes);
        let case = case.unit("request", requests as u64).unit("batch", batches as u64);
        meter.end(case.unit("message", batches as u64 * u64::from(SMALL)))?;
    }
    Ok(())
}

/// Phases of an append.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Ask,
    Commit,
    Answer,
}

/// Connections with a message each, and one flush for all of them.
fn group_commit(meter: &mut dyn Meter, connections: u32, phase: Phase) -> Result<()> {
    let place = Place::new()?;
    let node = place.open(|_| ())?;
    let topic = node.create(connections)?;
    let mut producers: Vec<Producer> = (0..connections).map(|_| Producer::new(&node, topic)).collect::<Result<_>>()?;
    for flush in 0..2 * FLUSHES {
        for (partition, producer) in (0..).zip(&mut producers) {
            producer.put(&node, &[partition], 1)?;
        }
        let mut phased = |which: Phase, work: &mut dyn FnMut()| match flush >= FLUSHES && which == phase {
            true => meter.count(work),
            false => work(),
        };
        phased(Phase::Ask, &mut || producers.iter_mut().for_each(|p| p.connection.ask(&node)));
        phased(Phase::Commit, &mut || node.commit());
        phased(Phase::Answer, &mut || {
            producers.iter_mut().for_each(|p| {
                p.connection.answer(&node);
                p.connection.sent();
            });
        });
        node.pause();
    }
    let messages = u64::from(2 * FLUSHES * connections);
    if node.messages()? != messages {
        return Err(format!("{} messages are there of {messages}", node.messages()?).into());
    }
    let path = match phase {
        Phase::Ask => "group commit: request to proposal",
        Phase::Commit => "group commit: proposals to replies",
        Phase::Answer => "group commit: reply to response",
    };
    let batch_bytes = producers.first().map_or(0, |p| p.batch_bytes) as u64;
    let case = Case::new(path).with("connections", connections).with("batch_bytes", batch_bytes);
    let appends = FLUSHES * connections;
    meter.end(case.unit("flush", FLUSHES).unit("batch", appends).unit("message", appends))
}

/// A start after a kill: over journal files only, or over segments with a checkpoint and the rest of the journal.
fn recovery(meter: &mut dyn Meter, stored_bytes: u64, segments: bool) -> Result<()> {
    let shape = Shape { partitions: 100, messages: SMALL, batches: 1 };
    let configure = |config: &mut BrokerConfig| {
        if segments {
            busy_background(config);
        }
    };
    let mut rig = Rig::new(shape.partitions, configure)?;
    let batches = if stored_bytes > 0 { rig.fill(shape, stored_bytes)? } else { 0 };
    if segments {
        rig.node.settle()?;
    }
    rig.check()?;
    let batch_bytes = rig.producer.batch_bytes as u64;
    let Rig { node, topic: _, producer, sent, place } = rig;
    drop((node, producer));
    let mut opened = None;
    meter.count(&mut || opened = Some(place.open(configure)));
    let node = opened.ok_or("nothing was opened")??;
    if node.messages()? != sent {
        return Err(format!("{} messages are there of {sent}", node.messages()?).into());
    }
    let path = match (segments, stored_bytes) {
        (_, 0) => "recovery of nothing but the topic",
        (true, _) => "recovery over segments",
        (false, _) => "recovery over the journal",
    };
    let mut case = Case::new(path).with("partitions", shape.partitions).unit("start", 1u32);
    if batches > 0 {
        case = case.with("messages_per_batch", SMALL).with("batch_bytes", batch_bytes);
        case = case.unit("batch", batches).unit("message", sent);
        case.units.insert("MiB".to_owned(), (u64::from(batches) * batch_bytes) as f64 / f64::from(1 << 20));
    }
    meter.end(case)
}

/// A named group of paths.
type Group = (&'static str, fn(&mut dyn Meter) -> Result<()>);

/// All groups, in the order of the table.
const GROUPS: [Group; 5] = [
    ("produce", produces),
    ("fetch", fetches),
    ("group-commit", group_commits),
    ("amqp", queues),
    ("recovery", recoveries),
];

/// Runs every path, or those of one group.
pub(crate) fn run(meter: &mut dyn Meter, only: Option<&str>) -> Result<()> {
    let wanted = |(name, _): &&Group| only.is_none_or(|only| only == *name);
    let mut groups = GROUPS.iter().filter(wanted).peekable();
    if groups.peek().is_none() {
        let names = GROUPS.map(|(name, _)| name).join(", ");
        return Err(format!("there is no group {only:?}: there are {names}").into());
    }
    groups.try_for_each(|(_, run)| run(meter))
}

fn produces(meter: &mut dyn Meter) -> Result<()> {
    [(1, SMALL, 1), (1, LARGE, 1), (100, SMALL, 1), (100, SMALL, 50), (100, LARGE, 1)]
        .into_iter()
        .try_for_each(|(partitions, messages, batches)| produce(meter, Shape { partitions, messages, batches }))
}

fn fetches(meter: &mut dyn Meter) -> Result<()> {
    for (partitions, messages, batches, waits) in [
        (1, SMALL, 1, false),
        (1, SMALL, 1, true),
        (1, LARGE, 1, false),
        (100, SMALL, 1, false),
        (100, SMALL, 1, true),
        (100, SMALL, 50, false),
    ] {
        fetch_at_the_tail(meter, Shape { partitions, messages, batches }, waits)?;
    }
    fetch_behind(meter, 1)?;
    fetch_behind(meter, 100)
}

fn group_commits(meter: &mut dyn Meter) -> Result<()> {
    for connections in [1, 100] {
        for phase in [Phase::Ask, Phase::Commit, Phase::Answer] {
            group_commit(meter, connections, phase)?;
        }
    }
    Ok(())
}

fn queues(meter: &mut dyn Meter) -> Result<()> {
    for (body_bytes, exchange) in [(100, ""), (100, "amq.fanout"), (1_024, "")] {
        queue::publish(meter, body_bytes, exchange)?;
        queue::deliver(meter, body_bytes, exchange)?;
    }
    Ok(())
}

fn recoveries(meter: &mut dyn Meter) -> Result<()> {
    recovery(meter, 0, false)?;
    recovery(meter, STORED_BYTES, false)?;
    recovery(meter, STORED_BYTES, true)
}
