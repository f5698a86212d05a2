use super::*;
use crate::openings::tests::{ASYNC, Node, alone, assert_same, of_class};
use parking_lot::Mutex;
use polylogue_api::machine::Command;
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_replicate::Work;
use polylogue_types::{Offset, ShardId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Topics inherit `bytes` from the cluster's document, unless they set it; counts the resolutions.
#[derive(Debug, Default)]
struct Inheriting(Mutex<Option<u64>>, AtomicU64);

impl ConfigResolver for Inheriting {
    fn settings_changed(&self, cluster: &Settings, _: &Settings) {
        *self.0.lock() = cluster.get("bytes").map(|text| text.parse().unwrap());
    }

    fn inherited(&self) -> Inherited {
        Inherited::new(TopicConfig { retention_bytes: *self.0.lock(), ..TopicConfig::default() })
    }

    fn topic(&self, inherited: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let own = layer.raw.get("bytes").map(|text| text.parse().unwrap());
        let retention_bytes = own.or(inherited.config.retention_bytes);
        Arc::new(TopicConfig { retention_bytes, ..TopicConfig::clone(layer) })
    }

    fn tuning(&self) -> Tuning {
        Tuning::default()
    }

    fn machine_commands(&self) -> Vec<(MachineId, Command)> {
        Vec::new()
    }
}

fn named(bytes: u64) -> Settings {
    [("bytes".to_owned(), bytes.to_string())].into()
}

/// Sets `config` for a topic whose present config is `expected`.
fn configure(node: &Node, name: &str, config: TopicConfig) -> Request {
    let topic = node.broker.catalog().topic(name).unwrap();
    let config = Some(ConfigChange { expected: topic.config.raw.clone(), config });
    let changes = vec![TopicChange { topic: topic.id, config, partitions: None }];
    Request::AlterTopics(AlterTopics { changes, validate_only: false })
}

fn own(bytes: u64) -> TopicConfig {
    TopicConfig { raw: named(bytes), ..of_class(Durability::Async) }
}

fn cluster(expected: Settings, settings: Settings) -> Request {
    let changes = vec![SettingsChange { scope: SettingsScope::Cluster, expected, settings }];
    Request::AlterSettings(AlterSettings { changes, validate_only: false })
}

fn shard(node: &Node, id: ShardId) -> Arc<Shard> {
    node.broker.inner.shard_if_open(id).unwrap()
}

/// Returns the effective setting of a partition in its shard.
fn held(node: &Node, id: PartitionId) -> Option<u64> {
    let shard = shard(node, ASYNC);
    let state = shard.renewed(node.broker.inner.config.resolver.as_ref());
    let holds = state.partitions[&id].config.held(state.openings.layers.epoch).unwrap().retention_bytes;
    assert_eq!(
        holds,
        node.broker.catalog().topics().iter().find(|t| t.partitions[0].id == id).unwrap().config.retention_bytes
    );
    holds
}

/// A shard knew the settings of a topic's creation only, and took later changes from the metadata's shard.
#[test]
fn a_shard_alone_has_the_settings_that_it_had_beside_the_others() {
    let world = SimWorld::new(1);
    let node = Node::resolving(&world, Arc::new(Inheriting::default()));
    let queue = |bytes_max| {
        let queue = QueueSettings { bytes_max, overflow: Overflow::Reject, ..QueueSettings::default() };
        TopicConfig { queue: Some(queue), ..of_class(Durability::Async) }
    };
    for name in ["a", "b"] {
        node.ask(Node::create(name, 2, of_class(Durability::Async)));
    }
    node.ask(Node::create("q", 1, queue(None)));
    node.ask(configure(&node, "b", own(5)));
    node.ask(configure(&node, "q", queue(Some(1_000))));
    node.ask(cluster(Settings::new(), named(9)));
    let [a, b] = ["a", "b"].map(|name| node.partitions(name)[0]);
    assert_eq!((held(&node, a), held(&node, b)), (Some(9), Some(5)));
    let (live, q) = (node.applied(ASYNC), node.partitions("q")[0]);
    assert!(live.iter().filter(|(key, _)| key.kind == b'o').count() == 4);
    drop(node);
    assert_same(&alone(&world, ASYNC), &live);
    let node = Node::resolving(&world, Arc::new(Inheriting::default()));
    let state = shard(&node, ASYNC);
    assert_eq!(state.state.lock().queues.hosts[&q].settings.bytes_max, Some(1_000));
    let proposed = state.state.lock().partitions[&crate::record::BROKER_PARTITION].next_offset;
    node.drive();
    let applied = state.state.lock().partitions[&crate::record::BROKER_PARTITION].high_watermark;
    assert_eq!(proposed, applied, "nothing lacked, and nothing was proposed again");
    assert_eq!((held(&node, a), held(&node, b)), (Some(9), Some(5)));
    // The same from a checkpoint as from the log.
    node.broker.shutdown();
    let live = node.applied(ASYNC);
    let whole = live.iter().find(|(key, _)| key.kind == b'o' && key.id.is_empty()).and_then(|(_, bytes)| bytes.clone());
    let mut loaded = Openings::default();
    loaded.load_chunk(None, &whole.unwrap()).unwrap();
    assert_eq!(loaded.layers.inherited.unwrap().config.retention_bytes, Some(9));
    drop(node);
    assert_same(&alone(&world, ASYNC), &live);
}

/// A kill at each step between the metadata's record and its effects in a shard.
#[test]
fn changes_of_settings_reach_a_shard_over_a_crash_at_any_step() {
    for of_cluster in [false, true] {
        let mut steps = 0;
        loop {
            let world = SimWorld::new(steps);
            let open = || Node::resolving(&world, Arc::new(Inheriting::default()));
            let node = open();
            node.ask(Node::create("t", 2, of_class(Durability::Async)));
            let id = node.partitions("t")[0];
            node.start(match of_cluster {
                true => cluster(Settings::new(), named(7)),
                false => configure(&node, "t", own(7)),
            });
            let mut idle = 0;
            for step in 0..steps {
                let did = node.broker.log_step(if step % 2 == 0 { Work::Write } else { Work::Flush });
                idle = if did { 0 } else { idle + 1 };
            }
            drop(node);
            world.crash();
            let node = open();
            node.drive();
            assert!(!world.env().fatal.is_fatal());
            let held = held(&node, id);
            assert!([None, Some(7)].contains(&held), "{held:?}");
            let live = node.applied(ASYNC);
            drop(node);
            assert_same(&alone(&world, ASYNC), &live);
            if idle >= 2 {
                assert_eq!(held, Some(7));
                break;
            }
            steps += 1;
        }
        assert!(steps > 3);
    }
}

/// Each topic was resolved and published again by the committing thread.
#[test]
fn what_the_cluster_sets_is_one_record_a_shard_and_looks_at_no_topic() {
    const TOPICS: u64 = 300;
    let world = SimWorld::new(3);
    let resolver = Arc::new(Inheriting::default());
    let node = Node::resolving(&world, resolver.clone());
    for at in 0..TOPICS {
        let config = if at % 3 == 0 { own(at) } else { of_class(Durability::Async) };
        node.ask(Node::create(&format!("t{at}"), 1, config));
    }
    let records = |id| {
        let shard = shard(&node, id);
        let state = shard.state.lock();
        state.partitions[&crate::record::BROKER_PARTITION].high_watermark
    };
    let shards = [ShardId(1), ASYNC];
    let (before, asked) = (shards.map(records), resolver.1.load(Ordering::Relaxed));
    node.ask(cluster(Settings::new(), named(1 << 20)));
    assert_eq!(resolver.1.load(Ordering::Relaxed), asked);
    assert_eq!(shards.map(records), before.map(|first| first.plus(1)));
    // More than are derived under one hold of the lock; and each once.
    let renewed = |node: &Node| drop(shard(node, ASYNC).renewed(node.broker.inner.config.resolver.as_ref()));
    renewed(&node);
    let once = resolver.1.load(Ordering::Relaxed);
    assert!((TOPICS..TOPICS + 8).contains(&(once - asked)), "{asked} {once}");
    renewed(&node);
    assert_eq!(resolver.1.load(Ordering::Relaxed), once);
    assert_eq!(held(&node, node.partitions("t3")[0]), Some(3));
    assert_eq!(held(&node, node.partitions("t4")[0]), Some(1 << 20));
    // A change without effect on topics is no record.
    let mut other = named(1 << 20);
    other.insert("other".to_owned(), "1".to_owned());
    let before = shards.map(records);
    node.ask(cluster(named(1 << 20), other));
    assert_eq!(shards.map(records), before);
}

/// Applies the record alone, as from a frame.
fn configure_applied(shard: &Shard, topic: TopicId, layer: TopicConfig) {
    super::configure(&mut shard.state.lock(), topic, Arc::new(layer)).unwrap();
}

/// A change is replied to when its records are proposed: later publishes are checked by it.
#[test]
fn a_limit_holds_for_what_is_published_while_its_record_is_on_its_way() {
    let world = SimWorld::new(4);
    let node = Node::open(&world);
    let limited = |length_max| {
        let queue = QueueSettings { length_max, overflow: Overflow::Reject, ..QueueSettings::default() };
        TopicConfig { queue: Some(queue), ..of_class(Durability::Async) }
    };
    node.ask(Node::create("q", 1, limited(None)));
    let (q, shard) = (node.partitions("q")[0], shard(&node, ASYNC));
    let topic = |length_max| {
        node.start(configure(&node, "q", limited(length_max)));
        // Commits the metadata's shard only.
        let meta = node.broker.inner.shard_if_open(ShardId(0)).unwrap();
        while meta.log.step(Work::Write) | meta.log.step(Work::Flush) {}
    };
    topic(Some(3));
    topic(Some(4));
    let seen = || {
        let state = shard.state.lock();
        let host = &state.queues.hosts[&q];
        let applied = state.openings.topics.values().next().unwrap().layer.queue.as_ref().unwrap().length_max;
        (applied, host.settings.length_max, host.is_full(Offset(3), || 1), host.is_full(Offset(4), || 1))
    };
    assert_eq!(seen(), (None, Some(4), false, true), "as proposed");
    // Commits the first of the two only.
    let id = node.broker.catalog().topic("q").unwrap().id;
    configure_applied(&shard, id, limited(Some(3)));
    assert_eq!(seen(), (Some(3), Some(4), false, true), "the first is applied, and takes the second one back");
    shard.state.lock().openings.layers.note_proposed(id);
    node.drive();
    assert_eq!(seen(), (Some(4), Some(4), false, true));
    // A layer lost with its writer has no effect until the next writer proposes it.
    topic(Some(5));
    assert_eq!(seen().1, Some(5));
    reset_tail(&mut shard.state.lock());
    assert_eq!(seen().1, Some(4));
    node.broker.inner.reconcile(&shard, &node.broker.inner.machines.lock().meta).unwrap();
    assert_eq!(seen().1, Some(5));
}

#[test]
fn topics_that_change_together_are_one_record_and_what_was_set_last_holds() {
    let world = SimWorld::new(6);
    let node = Node::resolving(&world, Arc::new(Inheriting::default()));
    for name in ["a", "b", "c"] {
        node.ask(Node::create(name, 2, of_class(Durability::Async)));
    }
    let shard = shard(&node, ASYNC);
    let records = || shard.state.lock().partitions[&crate::record::BROKER_PARTITION].next_offset.0;
    let (before, [a, b, c]) = (records(), ["a", "b", "c"].map(|name| node.partitions(name)[1]));
    let own_of = |id| shard.state.lock().partitions[&id].config.own().raw.clone();
    let change = |name: &str, expected: Settings, config| {
        let topic = node.broker.catalog().topic(name).unwrap().id;
        TopicChange { topic, config: Some(ConfigChange { expected, config }), partitions: None }
    };
    let alter = |changes| node.start(Request::AlterTopics(AlterTopics { changes, validate_only: false }));
    // Committed together; the second change reverts part of the first.
    alter(vec![change("a", Settings::new(), own(1)), change("b", Settings::new(), own(2))]);
    alter(vec![change("b", named(2), of_class(Durability::Async)), change("c", Settings::new(), own(3))]);
    node.drive();
    assert_eq!(records(), before + 1);
    assert_eq!([a, b, c].map(own_of), [named(1), Settings::new(), named(3)]);
    let live = node.applied(ASYNC);
    drop((node, shard));
    assert_same(&alone(&world, ASYNC), &live);
}

/// After an acknowledged increase of retention, messages that it keeps were trimmed.
#[test]
fn what_is_inherited_holds_while_its_record_is_on_its_way() {
    let world = SimWorld::new(5);
    let node = Node::resolving(&world, Arc::new(Inheriting::default()));
    node.ask(Node::create("t", 1, of_class(Durability::Async)));
    node.ask(cluster(Settings::new(), named(5)));
    let (id, shard, meta) = (node.partitions("t")[0], shard(&node, ASYNC), shard(&node, ShardId(0)));
    assert_eq!(held(&node, id), Some(5));
    for (before, now) in [(5, 6), (6, 7)] {
        node.start(cluster(named(before), named(now)));
        while meta.log.step(Work::Write) | meta.log.step(Work::Flush) {}
        assert_eq!(held(&node, id), Some(now));
    }
    let applied = || shard.state.lock().openings.layers.inherited.as_ref().unwrap().config.retention_bytes;
    assert_eq!(applied(), Some(5));
    reset_tail(&mut shard.state.lock());
    let epoch = shard.state.lock().openings.layers.epoch;
    assert_eq!(shard.state.lock().openings.layers.newest().unwrap().config.retention_bytes, Some(5));
    node.broker.inner.reconcile(&shard, &node.broker.inner.machines.lock().meta).unwrap();
    assert_eq!(held(&node, id), Some(7));
    node.drive();
    assert_eq!((applied(), held(&node, id)), (Some(7), Some(7)));
    assert!(shard.state.lock().openings.layers.epoch > epoch);
}

#[test]
fn rules_of_a_newer_version_are_refused() {
    let mut w = BinWriter::new();
    encode_inherited(&Inherited { rules: INHERITANCE_RULES + 1, ..Inherited::default() }, &mut w);
    assert!(decode_inherited(&mut BinReader::new(&w.out)).is_err());
    assert_eq!(recorded(&Inherited::default()), Ok(Inherited::default()));
}
