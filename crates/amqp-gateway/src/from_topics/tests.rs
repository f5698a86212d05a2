//! Topics that are vectors of batches, and metadata that is committed immediately.

use super::reading::OPEN_MAX;
use super::*;
use crate::alarm::Resource;
use crate::connection::Connection;
use crate::machine::{AmqpMachine, AmqpRequest};
use crate::management::PrincipalOutput;
use crate::message::{Stored, open};
use crate::testing::{Topics, World, context};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_amqp::codec::{Properties, TableBuilder, Value};
use polylogue_amqp::request::{self as amqp, ChannelRef};
use polylogue_amqp_model::{Bind, BindDestination, DeclareExchange, Limits, arguments_of_json};
use polylogue_api::{
    Caller, ClusterInfo, Effects, PartitionInfo, PartitionSize, PartitionSizes, PublishError, PublishMessage, ReadData,
    ReadError, Settings, SettingsScope, StateMachine, TopicConfig, Unavailable,
};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchBuilder, NewRecord, patch_base};
use polylogue_types::{Chunk, Offset, TopicId};
use serde_json::json;

const TOPIC: &str = "orders";
const FULL: Result<(), PublishError> = Err(PublishError::QueueFull);
type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// The batches of a partition, and its first and next offset.
type Log = (Vec<Bytes>, u64, u64);

/// The topics of queues, and one that is a log.
#[derive(Debug, Default)]
struct Logs {
    /// Its partitions, if it exists, and the number of changes.
    topic: Mutex<(Option<Vec<u64>>, u64)>,
    partitions: Mutex<BTreeMap<PartitionId, Log>>,
}

impl Logs {
    fn set(&self, partitions: Option<&[u64]>) {
        let mut topic = self.topic.lock();
        *topic = (partitions.map(<[u64]>::to_vec), topic.1 + 1);
        let mut logs = self.partitions.lock();
        for id in partitions.into_iter().flatten() {
            logs.entry(PartitionId(*id)).or_insert_with(|| (Vec::new(), 0, 0));
        }
    }

    fn append(&self, partition: u64, batch: BatchBuilder) {
        let mut logs = self.partitions.lock();
        let (batches, _, end) = logs.get_mut(&PartitionId(partition)).expect("a partition");
        let count = batch.len() as u64;
        let mut bytes = batch.build().expect("a batch").to_vec();
        patch_base(&mut bytes, *end as i64, 0).expect("it has room for it");
        *end += count;
        batches.push(bytes.into());
    }

    fn read(&self, part: polylogue_api::ReadPart) -> Result<ReadData, ReadError> {
        let logs = self.partitions.lock();
        let (batches, start, end) = logs.get(&part.partition).ok_or(ReadError::UnknownPartition)?;
        let (log_start, high_watermark) = (Offset(*start), Offset(*end));
        if !(*start..=*end).contains(&part.offset.0) {
            return Err(ReadError::OutOfRange { log_start, high_watermark });
        }
        let mut left = part.bytes_max as usize;
        let mut at = 0;
        let mut chunks = Vec::new();
        for batch in batches {
            // A damaged batch has no valid length.
            let count =
                polylogue_record::kafka::BatchHeader::parse(batch).map_or(1, |h| h.last_offset_delta as u64 + 1);
            at += count;
            if at > part.offset.0 && (chunks.is_empty() || batch.len() <= left) {
                left = left.saturating_sub(batch.len());
                chunks.push(Chunk::Bytes(batch.clone()));
            }
        }
        Ok(ReadData { chunks, high_watermark, log_start })
    }
}

impl Catalog for Logs {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        if name != TOPIC {
            return Topics.topic(name);
        }
        let partitions = self.topic.lock().0.clone()?;
        let partitions = partitions.into_iter().map(|id| PartitionInfo { id: PartitionId(id), leader_epoch: 0 });
        let (id, config) = (TopicId([1; 16]), Arc::<TopicConfig>::default());
        Some(Arc::new(TopicInfo { name: name.into(), id, internal: false, partitions: partitions.collect(), config }))
    }
    fn topic_by_id(&self, _: TopicId) -> Option<Arc<TopicInfo>> {
        None
    }
    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        Vec::new()
    }
    fn cluster(&self) -> ClusterInfo {
        Topics.cluster()
    }
    fn settings(&self, _: &SettingsScope) -> Arc<Settings> {
        Arc::default()
    }
    fn settings_scopes(&self) -> Vec<SettingsScope> {
        Vec::new()
    }
    fn version(&self) -> u64 {
        self.topic.lock().1
    }
}

struct Rig {
    world: World,
    logs: Arc<Logs>,
    from: FromTopics,
    ms: u64,
    watches: BTreeMap<Token, (PartitionId, u64)>,
    /// Unanswered publishes.
    publishes: VecDeque<(Token, Vec<PublishMessage>)>,
    /// Unanswered reads, while they are held.
    reads: VecDeque<(Token, polylogue_api::ReadPart)>,
    holds_reads: bool,
    saves: Vec<TopicReads>,
    fails_saves: bool,
    /// Steps per turn, and the number of turns.
    turns: (u64, u64),
    /// The number of long turns.
    long_turns: u64,
}

impl Rig {
    /// With the exchange `sales` bound to the queue `q`, and the topic, if it has partitions.
    fn new(partitions: Option<&[u64]>) -> Rig {
        Rig::with_queue(partitions, json!({}))
    }

    fn with_queue(partitions: Option<&[u64]>, arguments: serde_json::Value) -> Rig {
        let mut world = World::new();
        world.queue("q", arguments);
        let logs: Arc<Logs> = Arc::default();
        logs.set(partitions);
        Rig::over(world, logs)
    }

    fn over(world: World, logs: Arc<Logs>) -> Rig {
        let from = FromTopics::new(world.directory.clone(), logs.clone(), 1 << 10);
        let (watches, publishes, reads, saves) = Default::default();
        let (holds_reads, fails_saves, turns) = (false, false, (u64::MAX, 0));
        Rig {
            world,
            logs,
            from,
            ms: 1,
            watches,
            publishes,
            reads,
            holds_reads,
            saves,
            fails_saves,
            turns,
            long_turns: 0,
        }
    }

    fn declare(&mut self) {
        let arguments = json!({"x-polylogue-topic": TOPIC});
        let declare = DeclareExchange {
            vhost: self.world.vhost,
            name: "sales".into(),
            kind: "fanout".into(),
            durable: true,
            arguments: arguments_of_json(arguments.as_object().expect("an object")).expect("arguments"),
            ..DeclareExchange::default()
        };
        self.world.act(Command::DeclareExchange(declare));
        self.bind("q");
        self.tick(0);
    }

    fn bind(&mut self, queue: &str) {
        let (vhost, source, to) = (self.world.vhost, "sales".into(), BindDestination::Queue(queue.into()));
        self.world.act(Command::Bind(Bind { vhost, source, to, key: "".into(), arguments: Vec::new() }));
    }

    fn now(&self) -> Now {
        Now { wall_ms: 1_700_000_000_000, monotonic_ms: self.ms }
    }

    /// Advances the time by this many milliseconds.
    fn tick(&mut self, ms: u64) {
        self.ms += ms;
        self.from.on_deadline(self.now());
        self.run();
    }

    /// Answers everything except publishes, while there are requests.
    fn run(&mut self) {
        self.serve();
        loop {
            if self.from.is_unfinished() {
                self.turns.1 += 1;
                self.from.begin_turn(self.turns.0, self.now());
            } else if self.from.wants_long_turn() {
                self.long_turns += 1;
                self.from.long_turn(self.turns.0, self.now());
            } else {
                return;
            }
            self.serve();
        }
    }

    fn serve(&mut self) {
        while let Some((token, request)) = self.from.poll_request() {
            let reply = match request {
                Request::Read(request) if self.holds_reads => {
                    self.reads.push_back((token, request.parts[0]));
                    continue;
                }
                Request::Read(request) => Reply::Read(vec![self.logs.read(request.parts[0])]),
                Request::DescribePartitions(ids) => self.sizes(&ids),
                Request::Machine(_, command) => self.machine(command),
                Request::Publish(request) => {
                    self.publishes.push_back((token, request.messages));
                    continue;
                }
                Request::Watch(request) => {
                    let [(partition, seen)] = request.seen[..] else { panic!("{request:?}") };
                    if self.logs.partitions.lock().get(&partition).is_none_or(|(_, _, end)| *end > seen.0) {
                        self.from.on_event(Event::Changed(token));
                    } else {
                        self.watches.insert(token, (partition, seen.0));
                    }
                    continue;
                }
                Request::Unwatch(token) => {
                    self.watches.remove(&token);
                    continue;
                }
                other => panic!("{other:?}"),
            };
            self.from.on_reply(token, reply, self.now());
            // The directory may have woken it.
            self.from.on_deadline(self.now());
        }
    }

    fn sizes(&self, ids: &[PartitionId]) -> Reply {
        let logs = self.logs.partitions.lock();
        let size = |id| {
            let (_, start, end) = logs.get(id)?;
            Some(PartitionSize { bytes: 0, log_start: Offset(*start), high_watermark: Offset(*end) })
        };
        let partitions = ids.iter().map(size).collect();
        Reply::DescribePartitions(PartitionSizes { partitions, directory: String::new(), free_bytes: None })
    }

    fn machine(&mut self, command: Box<dyn std::any::Any + Send>) -> Reply {
        let Ok(ask) = command.downcast::<AmqpRequest>() else { panic!("no ask") };
        let AmqpRequest::Do(_, command) = &*ask else { panic!("{ask:?}") };
        let Command::SetTopicReads(reads) = &**command else { panic!("{command:?}") };
        if self.fails_saves {
            return Reply::Machine(Err(Unavailable::Busy));
        }
        self.saves.push(reads.clone());
        self.command(ask)
    }

    /// The machine's reply once it is committed.
    fn command(&mut self, command: Box<dyn std::any::Any + Send>) -> Reply {
        let mut effects = Effects::default();
        self.world.machine.handle(&context(), Caller(1), command, &mut effects);
        let mut replies = std::mem::take(&mut effects.replies);
        replies.extend(effects.proposals.iter_mut().flat_map(|proposal| std::mem::take(&mut proposal.replies)));
        self.world.commit(effects);
        Reply::Machine(Ok(replies.pop().expect("an answer").1))
    }

    fn produce(&mut self, partition: u64, values: &[&str]) {
        self.produce_as(partition, Codec::None, values, &[]);
    }

    fn produce_as(&mut self, partition: u64, codec: Codec, values: &[&str], headers: &[Header<'_>]) {
        let mut batch = BatchBuilder::new().compression(codec, None);
        for value in values {
            let record = NewRecord { timestamp: 5_000, key: Some(b"k"), value: Some(value.as_bytes()), headers };
            batch.push(&record).expect("a record");
        }
        self.append(partition, batch);
    }

    fn append(&mut self, partition: u64, batch: BatchBuilder) {
        self.logs.append(partition, batch);
        self.wake(partition);
    }

    fn wake(&mut self, partition: u64) {
        let watching: Vec<_> = self.watches.iter().filter(|(_, (id, _))| id.0 == partition).map(|(t, _)| *t).collect();
        for token in watching {
            self.watches.remove(&token);
            self.from.on_event(Event::Changed(token));
        }
        self.run();
    }

    /// The bodies of the next publishes, with the number of queues of each.
    fn published(&self) -> Vec<(String, usize)> {
        let Some((_, messages)) = self.publishes.front() else { return Vec::new() };
        messages.iter().map(|message| (body(message), message.queues.len())).collect()
    }

    fn bodies(&self) -> Vec<String> {
        self.published().into_iter().map(|(body, _)| body).collect()
    }

    /// Answers a publish.
    fn answer(&mut self, results: &[Result<(), PublishError>]) {
        let (token, messages) = self.publishes.pop_front().expect("something is published");
        assert_eq!(messages.len(), results.len());
        self.from.on_reply(token, Reply::Publish(results.to_vec()), self.now());
        self.run();
    }

    fn answer_all(&mut self) {
        while let Some((_, messages)) = self.publishes.front() {
            self.answer(&vec![Ok(()); messages.len()]);
        }
    }

    /// The bodies of all further publishes.
    fn drained(&mut self) -> Vec<String> {
        let mut bodies = Vec::new();
        while !self.publishes.is_empty() {
            bodies.extend(self.bodies());
            let count = self.published().len();
            self.answer(&vec![Ok(()); count]);
        }
        bodies
    }

    fn positions(&self) -> Vec<(u64, u64)> {
        let model = self.world.machine.model();
        let exchange = model.routes().exchange(self.world.vhost, b"sales").expect("declared").id;
        model.metadata().topic_reads(exchange).collect()
    }

    /// A new process with the stored state.
    fn restarted(mut self) -> Rig {
        let mut machine = AmqpMachine::new(Limits::default());
        self.world.machine.change_all_chunks();
        for (id, chunk) in self.world.machine.take_changed_chunks() {
            // Deleted chunks count as changed.
            chunk.into_iter().for_each(|chunk| machine.load_chunk(&id, chunk).expect("it is read"));
        }
        machine.on_ready(&context());
        let directory = machine.directory();
        let mut effects = Effects::default();
        machine.on_deadline(&context(), &mut effects);
        let mut world = World { machine, directory, vhost: self.world.vhost };
        let mut rig = {
            let begun = effects.proposals.is_empty();
            let from = FromTopics::new(world.directory.clone(), self.logs.clone(), 1 << 10);
            assert!(begun || !world.directory.has_begun());
            world.commit(effects);
            Rig { from, ..Rig::over(world, self.logs) }
        };
        rig.tick(0);
        rig
    }
}

fn stored(message: &PublishMessage) -> Stored {
    open(&message.bytes).expect("a message")
}

fn body(message: &PublishMessage) -> String {
    String::from_utf8(stored(message).body.to_vec()).expect("a text")
}

#[test]
fn records_produced_after_the_declaration_are_published_in_order() {
    let mut rig = Rig::new(Some(&[1, 2]));
    rig.produce(1, &["before"]);
    rig.declare();
    assert_eq!(rig.positions(), [(1, 1), (2, 0), (READS_BEGUN, 0)], "the start positions are recorded");
    assert_eq!((rig.bodies(), rig.watches.len()), (vec![], 2));
    rig.produce_as(1, Codec::None, &["a", "b"], &[(b"h", Some(b"v")), (b"amqp.priority", Some(b"4"))]);
    let (_, messages) = rig.publishes.front().expect("it is published").clone();
    let Stored { exchange, routing_key, properties, .. } = stored(&messages[1]);
    assert_eq!((&exchange[..], &routing_key[..]), (&b"sales"[..], &b"k"[..]));
    let properties = Properties::new(properties).expect("properties").to_basic();
    assert_eq!((properties.priority, properties.timestamp), (Some(4), Some(5)));
    let headers = properties.headers.expect("headers");
    let found = ["x-polylogue-topic", "x-polylogue-partition", "x-polylogue-offset", "h"].map(|name| headers.get(name));
    let expected = [Value::LongStr(b"orders"), Value::I64(0), Value::I64(2), Value::LongStr(b"v")];
    assert_eq!(found, expected.map(Some));
    rig.produce(1, &["c"]);
    assert_eq!(rig.publishes.len(), 1, "one publish of a partition at a time");
    rig.produce(2, &["other"]);
    assert_eq!(rig.publishes.len(), 2, "and partitions are independent");
    assert_eq!(rig.bodies(), ["a", "b"]);
    rig.answer(&[Ok(()), Ok(())]);
    assert_eq!(rig.drained(), ["other", "c"]);
    assert_eq!(
        rig.watches.values().copied().collect::<BTreeSet<_>>(),
        [(PartitionId(1), 4), (PartitionId(2), 1)].into()
    );
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions(), [(1, 4), (2, 1), (READS_BEGUN, 0)]);
    assert_eq!(rig.from.take_counts(), ExchangeCounts { published: 4, ..ExchangeCounts::default() });
}

/// Records produced right after a declaration could be before the position at which reading began.
#[test]
fn a_declaration_is_answered_once_the_start_is_recorded() {
    let mut rig = Rig::new(Some(&[1]));
    rig.produce(1, &["before"]);
    let (directory, logs) = (rig.world.directory.clone(), rig.logs.clone());
    let mut connection = Connection::new(Arc::default(), directory, logs, 7, true, 1, Now::default());
    (connection.is_operator, connection.vhost) = (true, rig.world.vhost);
    connection.captured = Some(VecDeque::new());
    let arguments = TableBuilder::new().with_text("x-polylogue-topic", TOPIC).build();
    let (name, kind, durable) = ("sales".into(), "fanout".into(), true);
    let (passive, auto_delete, internal) = (false, false, false);
    let declare = amqp::DeclareExchange { name, kind, passive, durable, auto_delete, internal, arguments };
    for is_new in [true, false] {
        connection.begin(1, amqp::Request::DeclareExchange(ChannelRef { number: 1, life: 1 }, declare.clone()));
        let mut asked = 0;
        while let Some((token, request)) = connection.poll_request() {
            assert!(connection.captured.as_ref().is_some_and(VecDeque::is_empty), "not before the last answer");
            let reply = match request {
                Request::DescribePartitions(ids) => rig.sizes(&ids),
                Request::Machine(_, command) => rig.command(command),
                other => panic!("{other:?}"),
            };
            connection.on_reply(token, reply, Now::default());
            asked += 1;
        }
        assert!(matches!(
            connection.captured.as_mut().and_then(VecDeque::pop_front),
            Some(PrincipalOutput::Reply(amqp::Reply::Done))
        ));
        assert_eq!(asked, if is_new { 3 } else { 1 });
        assert_eq!(rig.positions(), [(1, if is_new { 1 } else { 2 }), (READS_BEGUN, 0)]);
        if is_new {
            rig.bind("q");
            // Before the first search.
            rig.produce(1, &["after"]);
        }
        rig.tick(0);
        assert_eq!(rig.drained(), if is_new { vec!["after"] } else { vec![] });
        rig.tick(SAVE_MS);
    }
}

#[test]
fn batches_of_any_compression_are_read_and_control_batches_skipped() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.holds_reads = true;
    rig.produce(1, &["a"]);
    for (codec, value) in Codec::ALL.into_iter().zip(["b", "c", "d", "e", "f"]) {
        rig.produce_as(1, codec, &[value, "x"], &[]);
        let mut control = BatchBuilder::new().control();
        control.push(&NewRecord { timestamp: 1, key: Some(b"\0\0\0\0"), value: None, headers: &[] }).expect("a record");
        rig.append(1, control);
    }
    rig.holds_reads = false;
    let (token, part) = rig.reads.pop_front().expect("a read");
    let data = rig.logs.read(part);
    rig.from.on_reply(token, Reply::Read(vec![data]), rig.now());
    rig.run();
    assert_eq!(rig.drained(), ["a", "b", "x", "c", "x", "d", "x", "e", "x", "f", "x"]);
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions()[0], (1, 16));
    assert_eq!(rig.from.take_counts().skipped, 0);
}

#[test]
fn later_partitions_are_read_from_the_beginning_and_deleted_ones_dropped() {
    let mut rig = Rig::new(None);
    rig.declare();
    assert_eq!(rig.positions(), [(READS_BEGUN, 0)]);
    rig.logs.set(Some(&[1]));
    rig.produce(1, &["first"]);
    rig.tick(LOOK_MS);
    assert_eq!(rig.drained(), ["first"]);
    rig.logs.set(Some(&[1, 2]));
    rig.produce(2, &["second"]);
    rig.tick(LOOK_MS);
    assert_eq!(rig.drained(), ["second"]);
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions(), [(1, 1), (2, 1), (READS_BEGUN, 0)]);
    // The topic is deleted and created again.
    rig.logs.set(Some(&[3]));
    rig.produce(3, &["third"]);
    rig.tick(LOOK_MS);
    assert_eq!(rig.drained(), ["third"]);
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions(), [(3, 1), (READS_BEGUN, 0)]);
    assert_eq!(rig.watches.values().map(|(id, _)| id.0).collect::<Vec<_>>(), [3]);
    // Partitions deleted while the broker was down are dropped too.
    rig.logs.set(Some(&[4]));
    let rig = rig.restarted();
    assert_eq!(rig.positions(), [(READS_BEGUN, 0)]);
}

#[test]
fn a_restart_continues_at_the_recorded_position() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.produce(1, &["a", "b"]);
    rig.answer_all();
    rig.tick(SAVE_MS);
    rig.produce(1, &["c"]);
    assert_eq!(rig.bodies(), ["c"]);
    // The process ends before the answer; more records follow before the next read.
    let mut rig = rig.restarted();
    assert_eq!(rig.drained(), ["c"], "only records published without a recorded position are repeated");
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions(), [(1, 3), (READS_BEGUN, 0)]);
    let mut rig = rig.restarted();
    assert_eq!((rig.bodies(), rig.watches.len()), (vec![], 1));
    // Within a batch.
    rig.produce(1, &["d", "e", "f"]);
    rig.answer(&[Ok(()), FULL, FULL]);
    rig.tick(SAVE_MS - 1);
    assert_eq!(rig.positions()[0], (1, 4));
    assert_eq!(rig.restarted().bodies(), ["e", "f"]);
}

#[test]
fn the_position_is_recorded_ten_times_a_second_and_retried() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.saves.clear();
    for _ in 0..20 {
        rig.produce(1, &["x"]);
        rig.answer_all();
        rig.tick(10);
    }
    assert!((2..=3).contains(&rig.saves.len()), "{:?}", rig.saves);
    rig.fails_saves = true;
    rig.produce(1, &["x"]);
    rig.answer_all();
    rig.tick(SAVE_MS);
    rig.fails_saves = false;
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions()[0], (1, 21));
    rig.saves.clear();
    rig.tick(SAVE_MS);
    assert_eq!(rig.saves, [], "nothing is recorded without new records");
}

#[test]
fn reading_skips_removed_records_and_rereads_after_a_crash() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.produce(1, &["a", "b"]);
    rig.answer(&[FULL, Ok(())]);
    {
        let mut logs = rig.logs.partitions.lock();
        let log = logs.get_mut(&PartitionId(1)).expect("a partition");
        log.1 = 2;
    }
    rig.tick(1_000);
    assert_eq!((rig.bodies(), rig.watches.len()), (vec![], 1));
    rig.produce(1, &["c"]);
    assert_eq!(rig.drained(), ["c"]);
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions()[0], (1, 3));
    *rig.logs.partitions.lock().get_mut(&PartitionId(1)).expect("a partition") = (Vec::new(), 0, 0);
    let mut rig = rig.restarted();
    rig.produce(1, &["anew"]);
    assert_eq!(rig.drained(), ["anew"]);
}

#[test]
fn concurrent_reads_are_limited_and_stop_while_the_disk_is_low() {
    let ids: Vec<u64> = (1..=30).collect();
    let mut rig = Rig::new(Some(&ids));
    rig.declare();
    assert_eq!(rig.watches.len(), 30);
    ids.iter().for_each(|id| rig.produce(*id, &["x"]));
    assert_eq!(rig.publishes.len(), OPEN_MAX);
    let mut count = 0;
    while !rig.publishes.is_empty() {
        assert!(rig.publishes.len() <= OPEN_MAX);
        rig.answer(&[Ok(())]);
        count += 1;
    }
    assert_eq!((count, rig.watches.len()), (30, 30));
    rig.world.directory.set_alarm(Resource::Disk, true);
    rig.produce(1, &["late"]);
    rig.tick(LOOK_MS);
    assert!(rig.publishes.is_empty());
    rig.world.directory.set_alarm(Resource::Disk, false);
    rig.tick(LOOK_MS);
    assert_eq!(rig.drained(), ["late"]);
}

#[test]
fn many_messages_are_published_in_parts() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    let values: Vec<String> = (0..2_500).map(|nth| nth.to_string()).collect();
    rig.produce_as(1, Codec::Zstd, &values.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    assert_eq!(rig.bodies(), values[..1_000]);
    rig.answer(&vec![Ok(()); 1_000]);
    // The second part fails partially.
    let mut results = vec![Ok(()); 1_000];
    results[500] = Err(PublishError::Unavailable(Unavailable::NotCommitted));
    rig.answer(&results);
    rig.tick(1_000);
    assert_eq!(rig.bodies(), ["1500"]);
    rig.answer(&[Ok(())]);
    assert_eq!(rig.drained(), values[2_000..]);
    rig.tick(SAVE_MS);
    assert_eq!(rig.positions()[0], (1, 2_500));
}

/// All records of a read were routed in one go, and blocked everything else on the thread.
#[test]
fn records_are_routed_in_turns() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    for queue in 0..30 {
        rig.world.queue(&queue.to_string(), json!({}));
        rig.bind(&queue.to_string());
    }
    rig.turns = (20, 0);
    rig.from.begin_turn(20, rig.now());
    let values: Vec<String> = (0..40).map(|nth| nth.to_string()).collect();
    rig.produce(1, &values.iter().map(String::as_str).collect::<Vec<_>>());
    let first = rig.published();
    assert_eq!(first, [("0".to_owned(), 31)], "the first turns were used for this one");
    // One queue lacks it: it is retried for each of them, before later records.
    rig.answer(&[FULL]);
    rig.tick(1_000);
    let mut bodies = rig.drained();
    bodies.dedup();
    assert_eq!(bodies, values);
    assert!(rig.turns.1 > 40 * 200 / 20, "{} turns", rig.turns.1);
    assert_eq!(rig.from.take_counts(), ExchangeCounts { published: 40, retried: 1, skipped: 0 });
}

/// Compressed batches were opened on any thread, up to 128 MiB from a few kilobytes, and blocked everything else on the thread.
#[test]
fn compressed_batches_are_opened_in_long_turns_one_in_each() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.holds_reads = true;
    for codec in [Codec::None, Codec::Zstd, Codec::Gzip, Codec::None] {
        rig.produce_as(1, codec, &["a", "b"], &[]);
    }
    rig.holds_reads = false;
    rig.run();
    let (token, part) = rig.reads.pop_front().expect("a read");
    let data = rig.logs.read(part);
    assert_eq!(data.as_ref().map(|data| data.chunks.len()).ok(), Some(4));
    rig.from.on_reply(token, Reply::Read(vec![data]), rig.now());
    rig.serve();
    assert_eq!((rig.bodies().len(), rig.long_turns), (2, 0), "uncompressed records are published immediately");
    rig.answer(&[Ok(()), Ok(())]);
    assert_eq!(rig.drained().len(), 6);
    assert_eq!(rig.long_turns, 2);
}

/// When more was stored than one read returns, a record was skipped after each read.
#[test]
fn records_of_several_reads_are_complete() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    rig.holds_reads = true;
    let value = |nth: usize| format!("{nth:0>1000}");
    for batch in 0..10 {
        let values: Vec<String> = (batch * 100..(batch + 1) * 100).map(value).collect();
        rig.produce_as(1, Codec::None, &values.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    }
    rig.holds_reads = false;
    let (token, part) = rig.reads.pop_front().expect("a read");
    let data = rig.logs.read(part);
    assert_eq!(data.as_ref().map(|data| data.chunks.len()).ok(), Some(2), "not all of it in one read");
    rig.from.on_reply(token, Reply::Read(vec![data]), rig.now());
    rig.run();
    assert!(rig.drained().into_iter().eq((0..1_000).map(value)));
    assert_eq!(rig.from.take_counts(), ExchangeCounts { published: 1_000, ..ExchangeCounts::default() });
}

#[test]
fn records_forwarded_from_the_exchange_are_not_published_to_it() {
    let mut rig = Rig::new(Some(&[1]));
    rig.declare();
    let mine: &[Header<'_>] = &[(b"amqp.exchange", Some(b"sales"))];
    rig.produce_as(1, Codec::None, &["no circle"], mine);
    assert_eq!(rig.drained(), ["no circle"], "nothing forwards to the topic");
    rig.world.queue("back", json!({"x-polylogue-topic": TOPIC}));
    rig.produce_as(1, Codec::None, &["circle"], mine);
    rig.produce_as(1, Codec::None, &["another"], &[(b"amqp.exchange", Some(b"other"))]);
    rig.produce(1, &["plain"]);
    assert_eq!(rig.drained(), ["another", "plain"]);
    assert_eq!(rig.from.take_counts(), ExchangeCounts { published: 3, ..ExchangeCounts::default() });
}

#[test]
fn a_deleted_exchange_is_not_read_for() {
    let mut rig = Rig::new(Some(&[1, 2]));
    rig.declare();
    rig.produce(1, &["a"]);
    rig.world.act(Command::DeleteExchange(rig.world.vhost, "sales".into(), false));
    rig.tick(0);
    assert!(rig.watches.is_empty() && rig.from.links.is_empty() && rig.from.due.is_empty());
    rig.answer(&[Ok(())]);
    rig.tick(LOOK_MS);
    assert_eq!((rig.publishes.len(), rig.from.next_deadline_ms()), (0, None));
    assert!(rig.from.waiting.is_empty() && rig.from.watches.is_empty());
    // After a new declaration reading begins again.
    rig.declare();
    assert_eq!(rig.positions(), [(1, 1), (2, 0), (READS_BEGUN, 0)]);
}

mod refused;
