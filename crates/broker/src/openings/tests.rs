use super::*;
use crate::checkpoint::Changed;
use crate::commit::ShardSink;
use crate::sink::testing::Recorder;
use crate::{Broker, BrokerConfig, ReplySink};
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_replicate::Work;
use polylogue_types::{ProducerId, ShardId};

pub(crate) const ASYNC: ShardId = ShardId(1000);

fn config() -> BrokerConfig {
    let mut config = BrokerConfig::new("/data".into());
    (config.disk_reserve_bytes, config.journal_file_bytes) = (0, 1 << 20);
    config
}

pub(crate) struct Node {
    pub(crate) broker: Broker,
    sink: Arc<dyn ReplySink>,
    session: crate::SessionId,
}

impl Node {
    pub(crate) fn open(world: &SimWorld) -> Node {
        Node::resolving(world, Arc::new(IdentityResolver))
    }

    pub(crate) fn resolving(world: &SimWorld, resolver: Arc<dyn ConfigResolver>) -> Node {
        let config = BrokerConfig { resolver, ..config() };
        let broker = Broker::open(world.env(), config, BTreeMap::new()).unwrap();
        let session = broker.new_session();
        Node { broker, sink: Arc::new(Recorder::default()), session }
    }

    pub(crate) fn start(&self, request: Request) {
        self.broker.submit(&self.sink, self.session, 1, request);
    }

    pub(crate) fn drive(&self) {
        while self.broker.log_step(Work::Write) | self.broker.log_step(Work::Flush) {}
    }

    pub(crate) fn ask(&self, request: Request) {
        self.start(request);
        self.drive();
    }

    pub(crate) fn create(name: &str, partitions: u32, config: TopicConfig) -> Request {
        let topic = NewTopic { name: name.into(), partitions, config, internal: false };
        Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false })
    }

    pub(crate) fn delete(name: &str) -> Request {
        Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name(name.into())] })
    }

    pub(crate) fn partitions(&self, name: &str) -> Vec<PartitionId> {
        self.broker.catalog().topic(name).unwrap().partitions.iter().map(|p| p.id).collect()
    }

    pub(crate) fn append(partition: PartitionId, base_sequence: i32) -> Request {
        let bytes = Bytes::from_static(b"some text");
        let entry = AppendEntry {
            partition,
            form: Form::Opaque,
            flags: EntryFlags::NONE,
            count: 1,
            max_timestamp: -1,
            body_crc: crc32c(&bytes),
            summed_from: 0,
            bytes,
            producer: Some(ProducerStamp { id: ProducerId(7), epoch: 0, base_sequence }),
        };
        Request::Append(AppendRequest { entries: vec![entry], ack: Ack::Committed })
    }

    pub(crate) fn publish(queue: PartitionId) -> Request {
        let message = PublishMessage {
            queues: vec![Target { queue, priority: None, expires_at: None, deliver_at: None }],
            form: Form::AmqpMessage,
            flags: EntryFlags::NONE,
            bytes: Bytes::from_static(b"x"),
            timestamp: -1,
            key_hash: None,
            all_or_none: false,
        };
        Request::Publish(PublishRequest { messages: vec![message; 10], ack: Ack::Committed, patient: false })
    }

    /// Returns all chunks of a shard's applied state.
    pub(crate) fn applied(&self, shard: ShardId) -> Changed {
        let shard = self.broker.inner.shard_if_open(shard).unwrap();
        there(self.broker.inner.capture(&shard, true).changed)
    }
}

pub(crate) fn of_class(durability: Durability) -> TopicConfig {
    TopicConfig { durability, ..TopicConfig::default() }
}

/// Returns the state that a shard applies from its own log, without other shards.
pub(crate) fn alone(world: &SimWorld, id: ShardId) -> Changed {
    let inner = Inner::unopened(world.env(), config(), BTreeMap::new()).unwrap();
    let shard = inner.disk_shard(id, &Arc::new(ShardSink::default())).unwrap();
    there(inner.capture(&shard, true).changed)
}

fn there(changed: Changed) -> Changed {
    changed.into_iter().filter(|(_, bytes)| bytes.is_some()).collect()
}

pub(crate) fn assert_same(alone: &Changed, live: &Changed) {
    let keys = |chunks: &Changed| chunks.iter().map(|(key, _)| format!("{key:?}")).collect::<Vec<_>>();
    assert_eq!(keys(alone), keys(live));
    for ((key, alone), (_, live)) in alone.iter().zip(live) {
        assert_eq!(alone, live, "{key:?}");
    }
}

/// A shard without the metadata dropped all entries without an error.
#[test]
fn a_shard_alone_applies_what_it_applied_beside_the_others() {
    let world = SimWorld::new(1);
    let node = Node::open(&world);
    let queue = TopicConfig { queue: Some(QueueSettings::default()), ..of_class(Durability::Async) };
    node.ask(Node::create("a", 3, of_class(Durability::Async)));
    node.ask(Node::create("gone", 2, of_class(Durability::Async)));
    node.ask(Node::create("q", 1, queue));
    node.ask(Node::create("elsewhere", 2, of_class(Durability::Sync)));
    for (at, id) in node.partitions("a").into_iter().chain(node.partitions("gone")).enumerate() {
        (0..=at as i32).for_each(|sequence| node.ask(Node::append(id, sequence)));
    }
    node.ask(Node::publish(node.partitions("q")[0]));
    node.ask(Node::delete("gone"));
    let (live, elsewhere) = (node.applied(ASYNC), node.partitions("elsewhere"));
    assert!(live.iter().filter(|(key, _)| key.kind == b'p').count() >= 4);
    node.ask(Node::append(elsewhere[0], 0));
    drop(node);
    assert_same(&alone(&world, ASYNC), &live);
}

/// A kill at each step between a topic's record and its effects in the shard of its partitions.
#[test]
fn what_metadata_says_is_opened_and_closed_over_a_crash_at_any_step() {
    for deletes in [false, true] {
        let mut steps = 0;
        loop {
            let world = SimWorld::new(steps);
            let node = Node::open(&world);
            node.drive();
            // The first topic of a class opens its shard, in a step of its own.
            node.ask(Node::create("other", 1, of_class(Durability::Async)));
            if deletes {
                node.ask(Node::create("t", 2, of_class(Durability::Async)));
                node.ask(Node::append(node.partitions("t")[1], 0));
                node.start(Node::delete("t"));
            } else {
                node.start(Node::create("t", 2, of_class(Durability::Async)));
            }
            let mut idle = 0;
            for step in 0..steps {
                let did = node.broker.log_step(if step % 2 == 0 { Work::Write } else { Work::Flush });
                idle = if did { 0 } else { idle + 1 };
            }
            drop(node);
            world.crash();
            let node = Node::open(&world);
            node.drive();
            assert!(!world.env().fatal.is_fatal());
            let there = node.broker.catalog().topic("t").is_some();
            if there {
                let ids = node.partitions("t");
                ids.iter().for_each(|id| node.ask(Node::append(*id, 0)));
                let shard = node.broker.inner.shard_if_open(ASYNC).unwrap();
                let state = shard.state.lock();
                assert!(ids.iter().all(|id| state.partitions[id].opened && state.partitions[id].high_watermark.0 > 0));
            } else {
                let shard = node.broker.inner.shard_if_open(ASYNC).unwrap();
                assert_eq!(shard.state.lock().openings.topics.len(), 1, "after {steps} steps");
            }
            drop(node);
            let live = {
                let node = Node::open(&world);
                node.drive();
                node.applied(ASYNC)
            };
            assert_same(&alone(&world, ASYNC), &live);
            if idle >= 2 {
                assert_eq!(there, !deletes);
                break;
            }
            steps += 1;
        }
        assert!(steps > 3);
    }
}

/// Idle producers expired by a node's clock, and a start from the log restored them.
#[test]
fn producers_that_were_silent_for_too_long_are_forgotten_by_a_record() {
    const HOUR_MS: u64 = 3_600_000;
    let world = SimWorld::new(5);
    let node = Node::open(&world);
    node.ask(Node::create("t", 2, of_class(Durability::Async)));
    let ids = node.partitions("t");
    node.ask(Node::append(ids[0], 0));
    world.clock.advance_ms(20 * HOUR_MS);
    node.ask(Node::append(ids[1], 0));
    let known = |node: &Node| {
        let shard = node.broker.inner.shard_if_open(ASYNC).unwrap();
        let state = shard.state.lock();
        ids.iter().map(|id| state.partitions[id].producers.len()).collect::<Vec<_>>()
    };
    world.clock.advance_ms(5 * HOUR_MS);
    node.broker.tick();
    assert_eq!(known(&node), [1, 1], "nothing is committed yet");
    // The longest time that the record waits to be written with others.
    world.clock.advance_ms(1_000);
    node.drive();
    assert_eq!(known(&node), [0, 1]);
    let live = node.applied(ASYNC);
    drop(node);
    assert_same(&alone(&world, ASYNC), &live);
    let node = Node::open(&world);
    assert_eq!(known(&node), [0, 1]);
}

/// Entries whose partition was missing for any reason were dropped, not only those of deleted partitions.
#[test]
fn an_entry_of_a_partition_that_is_not_open_is_refused_unless_damage_may_have_taken_its_opening() {
    let world = SimWorld::new(3);
    let node = Node::open(&world);
    node.drive();
    let shard = node.broker.inner.shard_if_open(ShardId(1)).unwrap();
    let mut state = shard.state.lock();
    let unknown = PartitionId(5_000);
    assert_eq!(state.openings.level, LEVEL);
    let refused = is_open(&shard.store, &mut state, unknown, Offset(7)).unwrap_err();
    assert!(refused.contains("5000, which is not open"), "{refused}");
    state.openings.damaged = true;
    assert_eq!(is_open(&shard.store, &mut state, unknown, Offset(7)), Ok(true));
    assert_eq!(state.partitions[&unknown].next_offset, Offset(7));
    state.partitions.remove(&unknown);
    (state.openings.damaged, state.openings.level) = (false, 0);
    assert_eq!(is_open(&shard.store, &mut state, unknown, Offset(7)), Ok(false), "as before there were such records");
}

/// After damage, the broker never again detected an entry of a partition that is not open.
#[test]
fn a_writer_that_has_made_good_what_damage_took_says_so() {
    let world = SimWorld::new(4);
    let node = Node::open(&world);
    node.ask(Node::create("t", 1, TopicConfig::default()));
    let inner = &node.broker.inner;
    let shard = inner.shard_if_open(ShardId(1)).unwrap();
    shard.state.lock().openings.damaged = true;
    inner.reconcile(&shard, &inner.machines.lock().meta).unwrap();
    assert!(shard.state.lock().openings.damaged, "not committed yet");
    node.drive();
    assert!(!shard.state.lock().openings.damaged);
}

#[test]
fn records_come_back_and_truncated_ones_are_refused() {
    let layer = Arc::new(TopicConfig { raw: [("a".to_owned(), "1".to_owned())].into(), ..TopicConfig::default() });
    let place = |id| Place { partition: PartitionId(id), first: Offset(id + 1), ordinal: Ordinal(id + 2) };
    let topic = TopicId([7; 16]);
    for record in [
        BrokerRecord::Level { level: 1 },
        BrokerRecord::Opened(Opened { topic, places: vec![place(2_000), place(2_001)], layer: layer.clone() }),
        BrokerRecord::Closed { topic, partitions: vec![PartitionId(2_000)] },
        BrokerRecord::Inherited(Inherited::new(TopicConfig::clone(&layer))),
        BrokerRecord::Configured(vec![(topic, layer.clone()), (TopicId([8; 16]), layer)]),
        BrokerRecord::Expired { before_ms: 7, partitions: vec![PartitionId(2_000), PartitionId(2_001)] },
    ] {
        let bytes = Bytes::from(record.encode());
        assert_eq!(BrokerRecord::decode(&bytes), Ok(record));
        assert!((0..bytes.len()).all(|len| BrokerRecord::decode(&bytes.slice(..len)).is_err()));
    }
}
