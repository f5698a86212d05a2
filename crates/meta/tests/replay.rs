//! A machine that replays, or takes a checkpoint over and replays what came after it, is the machine that lived through it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use bytes::Bytes;
use polylogue_api::*;
use polylogue_meta::{MetaCommand, MetaMachine, MetaReply, MetaSettings, SharedCatalog};
use polylogue_types::{NodeId, ShardId, Term};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is done, by numbers out of which names and values are made.
#[derive(Clone, Debug)]
enum Step {
    Create(u8, u8),
    Delete(u8),
    Configure(u8, u8),
    /// All topics alike; those that others are changing stay as they are.
    ConfigureAll(u8),
    Grow(u8, u8),
    Document(u8, u8),
    /// So many of the records on their way are committed.
    Commit(u8),
    /// All that is on its way is lost.
    Lose,
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u8, 1..4u8).prop_map(|(name, partitions)| Step::Create(name, partitions)),
        (0..4u8).prop_map(Step::Delete),
        (0..4u8, 0..4u8).prop_map(|(name, value)| Step::Configure(name, value)),
        (0..4u8).prop_map(Step::ConfigureAll),
        (0..4u8, 0..3u8).prop_map(|(name, more)| Step::Grow(name, more)),
        (0..5u8, 0..4u8).prop_map(|(scope, value)| Step::Document(scope, value)),
        (0..4u8).prop_map(Step::Commit),
        (0..4u8).prop_map(Step::Commit),
        Just(Step::Lose),
        Just(Step::Checkpoint),
    ]
}

/// Retention follows the cluster's document: what holds is derived from it in every machine.
#[derive(Debug, Default)]
struct Inheriting(std::sync::Mutex<Option<u64>>);

impl ConfigResolver for Inheriting {
    fn settings_changed(&self, cluster: &Settings, node: &Settings) {
        let value = node.get("v").or_else(|| cluster.get("v"));
        *self.0.lock().unwrap() = value.map(|text| text.parse().unwrap());
    }

    fn inherited(&self) -> Inherited {
        Inherited::new(TopicConfig { retention_ms: *self.0.lock().unwrap(), ..TopicConfig::default() })
    }

    fn topic(&self, inherited: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig> {
        Arc::new(TopicConfig { retention_ms: inherited.config.retention_ms, ..TopicConfig::clone(layer) })
    }

    fn tuning(&self) -> Tuning {
        Tuning::default()
    }

    fn machine_commands(&self) -> Vec<(MachineId, machine::Command)> {
        Vec::new()
    }
}

fn machine() -> MetaMachine {
    MetaMachine::new(MetaSettings {
        sync_shards: vec![ShardId(0), ShardId(1)],
        async_shard: ShardId(1000),
        memory_shard: ShardId(2000),
        partitions_max: 12,
        node: NodeId(1),
        resolver: Arc::new(Inheriting::default()),
    })
}

fn catalog() -> SharedCatalog {
    SharedCatalog::new(ClusterInfo { cluster_id: "test".into(), node: NodeId(1) }, Arc::new(IdentityResolver))
}

fn ready(machine: &mut MetaMachine) {
    let catalog = catalog();
    machine.on_ready(&Context { now: Now::default(), catalog: &catalog, queues: &NoQueues, random: 0 });
}

/// The machine that lives through it, the records on their way, and what was committed.
struct World {
    machine: MetaMachine,
    on_their_way: Vec<Bytes>,
    log: Vec<Bytes>,
    /// Chunks of the last checkpoint, and how much of the log it covers.
    checkpoint: (BTreeMap<Bytes, Bytes>, usize),
    calls: u64,
    terms: u64,
}

impl World {
    fn new() -> World {
        let mut machine = machine();
        machine.set_term(ShardId(0), Term(1));
        ready(&mut machine);
        World { machine, on_their_way: Vec::new(), log: Vec::new(), checkpoint: Default::default(), calls: 0, terms: 1 }
    }

    /// The log refuses the command once: everything is as before then, and the same command does the same.
    fn ask(&mut self, command: impl Fn() -> MetaCommand) -> MetaReply {
        self.calls += 1;
        let catalog = catalog();
        let context = Context { now: Now::default(), catalog: &catalog, queues: &NoQueues, random: self.calls };
        let mut refused = Effects::default();
        self.machine.handle(&context, Caller(self.calls), Box::new(command()), &mut refused);
        let records: Vec<_> = refused.proposals.iter().map(|proposal| proposal.record.clone()).collect();
        if !records.is_empty() {
            self.machine.on_refused(&context, &records, &mut Effects::default());
        }
        let mut effects = Effects::default();
        self.machine.handle(&context, Caller(self.calls), Box::new(command()), &mut effects);
        assert_eq!(format!("{:?}", effects.proposals), format!("{:?}", refused.proposals));
        let mut replies: Vec<_> = effects.replies;
        for proposal in effects.proposals {
            self.on_their_way.push(proposal.record);
            replies.extend(proposal.replies);
        }
        assert_eq!(replies.len(), 1, "each command has one reply");
        *replies.remove(0).1.downcast::<MetaReply>().unwrap()
    }

    fn topic(&self, name: u8) -> Option<Arc<TopicInfo>> {
        let topics = self.machine.topics().map(|topic| topic.info(&|_| Term(0), topic.layer().clone()));
        topics.into_iter().find(|topic| *topic.name == *format!("t{name}"))
    }

    /// Changes a topic on the basis of what the machine says is the newest.
    fn change(&mut self, name: u8, change: impl Fn(&TopicInfo, &Current) -> TopicChange) {
        let Some(topic) = self.topic(name) else { return };
        let partitions = u32::try_from(topic.partitions.len()).unwrap();
        let mut current = Current { settings: topic.config.raw.clone(), partitions };
        for _ in 0..2 {
            let command = AlterTopics { changes: vec![change(&topic, &current)], validate_only: false };
            let reply = self.ask(|| MetaCommand::AlterTopics(command.clone()));
            let MetaReply::AlteredTopics(mut results) = reply else { panic!() };
            match results.remove(0) {
                Err(AlterError::Conflict(newer)) => current = newer,
                _ => return,
            }
        }
        panic!("a conflict without a concurrent change");
    }

    fn document(&mut self, scope: SettingsScope, value: u8) {
        let mut expected =
            self.machine.documents().find(|(s, _)| **s == scope).map(|(_, d)| (**d).clone()).unwrap_or_default();
        let settings: Settings =
            if value == 0 { Settings::new() } else { [("v".to_owned(), value.to_string())].into() };
        for _ in 0..2 {
            let change =
                SettingsChange { scope: scope.clone(), expected: expected.clone(), settings: settings.clone() };
            let command = AlterSettings { changes: vec![change], validate_only: false };
            let MetaReply::AlteredSettings(mut results) = self.ask(|| MetaCommand::AlterSettings(command.clone()))
            else {
                panic!()
            };
            match results.remove(0) {
                Err(AlterError::Conflict(newer)) => expected = newer.settings,
                _ => return,
            }
        }
        panic!("a conflict without a concurrent change");
    }

    fn configure_all(&mut self, value: u8) {
        let raw: Settings = [("x".to_owned(), value.to_string())].into();
        let changes = (0..4).filter_map(|name| self.topic(name)).map(|topic| {
            let config = TopicConfig { raw: raw.clone(), ..TopicConfig::default() };
            let config = Some(ConfigChange { expected: topic.config.raw.clone(), config });
            TopicChange { topic: topic.id, config, partitions: None }
        });
        let command = AlterTopics { changes: changes.collect(), validate_only: false };
        self.ask(|| MetaCommand::AlterTopics(command.clone()));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create(name, partitions) => {
                let topic = NewTopic {
                    name: format!("t{name}"),
                    partitions: u32::from(partitions),
                    config: TopicConfig::default(),
                    internal: false,
                };
                let create = CreateTopics { topics: vec![topic], validate_only: false };
                self.ask(|| MetaCommand::CreateTopics(create.clone()));
            }
            Step::Delete(name) => {
                let topics = vec![TopicRef::Name(format!("t{name}"))];
                self.ask(|| MetaCommand::DeleteTopics(DeleteTopics { topics: topics.clone() }));
            }
            Step::Configure(name, value) => self.change(name, |topic, current| {
                let raw: Settings = [("x".to_owned(), value.to_string())].into();
                let config = TopicConfig { raw, ..TopicConfig::clone(&topic.config) };
                let config = Some(ConfigChange { expected: current.settings.clone(), config });
                TopicChange { topic: topic.id, config, partitions: None }
            }),
            Step::ConfigureAll(value) => self.configure_all(value),
            Step::Grow(name, more) => self.change(name, |topic, current| {
                let partitions =
                    PartitionsChange { from: current.partitions, to: current.partitions + u32::from(more) };
                TopicChange { topic: topic.id, config: None, partitions: Some(partitions) }
            }),
            Step::Document(scope, value) => {
                let scope = match scope {
                    0 => SettingsScope::Cluster,
                    1 => SettingsScope::Node(NodeId(1)),
                    2 => SettingsScope::Node(NodeId(2)),
                    3 => SettingsScope::Group("g".into()),
                    _ => SettingsScope::ClientMetrics("m".into()),
                };
                self.document(scope, value);
            }
            Step::Commit(count) => {
                let count = usize::from(count).min(self.on_their_way.len());
                for record in self.on_their_way.drain(..count) {
                    self.machine.apply(&record, 0).unwrap();
                    self.log.push(record);
                }
            }
            Step::Lose => {
                self.on_their_way.clear();
                let catalog = catalog();
                let context = Context { now: Now::default(), catalog: &catalog, queues: &NoQueues, random: 0 };
                self.machine.on_writer_lost(&context, &mut Effects::default());
                self.terms += 1;
                self.machine.set_term(ShardId(0), Term(self.terms));
            }
            Step::Checkpoint => {
                for (id, chunk) in self.machine.take_changed_chunks() {
                    match chunk {
                        Some(chunk) => _ = self.checkpoint.0.insert(id, chunk),
                        None => _ = self.checkpoint.0.remove(&id),
                    }
                }
                self.checkpoint.1 = self.log.len();
            }
        }
    }

    /// A machine made of chunks and records.
    fn rebuilt(&self, chunks: &BTreeMap<Bytes, Bytes>, records: &[Bytes]) -> MetaMachine {
        let mut machine = machine();
        for (id, chunk) in chunks {
            machine.load_chunk(id, chunk.clone()).unwrap();
        }
        for record in records {
            machine.apply(record, 0).unwrap();
        }
        machine.set_term(ShardId(0), Term(self.terms));
        ready(&mut machine);
        machine
    }
}

/// Everything that can be seen of a machine, what it would do next included.
fn seen(mut machine: MetaMachine) -> (Vec<polylogue_meta::TopicMeta>, Vec<(SettingsScope, Settings)>, String) {
    let topics = machine.topics().map(|topic| (**topic).clone()).collect();
    let documents = machine.documents().map(|(scope, settings)| (scope.clone(), (**settings).clone())).collect();
    let topic = NewTopic { name: "next".into(), partitions: 1, config: TopicConfig::default(), internal: false };
    let command = MetaCommand::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false });
    let catalog = catalog();
    let context = Context { now: Now::default(), catalog: &catalog, queues: &NoQueues, random: 7 };
    let mut effects = Effects::default();
    machine.handle(&context, Caller(0), Box::new(command), &mut effects);
    // A machine that holds as many partitions as it may refuses the topic at once, with no record.
    let mut replies = effects.replies;
    let mut records = Vec::new();
    for proposal in effects.proposals {
        records.push(proposal.record);
        replies.extend(proposal.replies);
    }
    assert_eq!(replies.len(), 1, "each command has one reply");
    // What it says of the topic is what the resolver makes of the documents.
    let reply = replies.remove(0).1.downcast::<MetaReply>().unwrap();
    (topics, documents, format!("{records:?} {reply:?}"))
}

/// What topics inherit changed for each of them on the thread that commits, however many there were.
#[test]
fn what_is_inherited_is_made_of_a_topic_when_that_is_looked_up() {
    #[derive(Debug, Default)]
    struct Counting(Inheriting, AtomicU64);
    impl ConfigResolver for Counting {
        fn settings_changed(&self, cluster: &Settings, node: &Settings) {
            self.0.settings_changed(cluster, node);
        }

        fn inherited(&self) -> Inherited {
            self.0.inherited()
        }

        fn topic(&self, inherited: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.topic(inherited, layer)
        }

        fn tuning(&self) -> Tuning {
            Tuning::default()
        }

        fn machine_commands(&self) -> Vec<(MachineId, machine::Command)> {
            Vec::new()
        }
    }
    let mut world = World::new();
    (0..4).for_each(|name| world.step(Step::Create(name, 2)));
    world.step(Step::Commit(4));
    let resolver = Arc::new(Counting::default());
    let catalog = SharedCatalog::new(ClusterInfo { cluster_id: "test".into(), node: NodeId(1) }, resolver.clone());
    world.machine.topics().for_each(|topic| catalog.publish(topic, &|_| Term(1)));
    let (first, asked, version) = (catalog.topic("t0").unwrap(), resolver.1.load(Ordering::Relaxed), catalog.version());
    resolver.settings_changed(&[("v".to_owned(), "5".to_owned())].into(), &Settings::new());
    catalog.inherit();
    assert_eq!(resolver.1.load(Ordering::Relaxed), asked, "no topic is looked at");
    assert!(catalog.version() > version);
    let now = catalog.topic("t0").unwrap();
    let week_ms = Some(7 * 24 * 3_600_000);
    assert_eq!((first.config.retention_ms, now.config.retention_ms), (week_ms, Some(5)));
    assert!(Arc::ptr_eq(&now, &catalog.topic_by_id(first.id).unwrap()), "made once");
    assert_eq!(resolver.1.load(Ordering::Relaxed), asked + 1);
    assert!(catalog.topics().iter().all(|topic| topic.config.retention_ms == Some(5)));
    // What nothing changes is no change.
    let version = catalog.version();
    catalog.inherit();
    assert_eq!((catalog.topics().len(), resolver.1.load(Ordering::Relaxed)), (4, asked + 4));
    assert_eq!(catalog.version(), version);
    // A new state of a topic is not undone by what was made of the one before.
    world.machine.topics().for_each(|topic| catalog.publish(topic, &|_| Term(9)));
    assert_eq!(catalog.topic("t0").unwrap().partitions[0].leader_epoch, 8);
}

proptest! {
    #[test]
    fn replay_and_checkpoint_with_suffix_give_what_was(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // What is on its way is not part of it.
        world.step(Step::Lose);
        let replayed = seen(world.rebuilt(&BTreeMap::new(), &world.log));
        let (chunks, covered) = &world.checkpoint;
        let loaded = seen(world.rebuilt(chunks, &world.log[*covered..]));
        // One that holds everything, as it is written when the one before cannot be read: it forgot what operators had set.
        world.machine.change_all_chunks();
        let whole = world.machine.take_changed_chunks();
        let whole = whole.into_iter().filter_map(|(id, chunk)| Some((id, chunk?))).collect();
        let whole = seen(world.rebuilt(&whole, &[]));
        let lived = seen(world.machine);
        prop_assert_eq!(&replayed, &lived);
        prop_assert_eq!(&loaded, &lived);
        prop_assert_eq!(&whole, &lived);
    }

    /// A writer that stops anywhere in the log leaves a snapshot that is equivalent to the records before it, also when the rest is replayed.
    #[test]
    fn a_snapshot_at_any_record_stands_for_the_prefix_before_it(
        steps in prop::collection::vec(step(), 0..30), cut in any::<prop::sample::Index>(),
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        let (prefix, suffix) = world.log.split_at(cut.index(world.log.len() + 1));
        let mut at_cut = world.rebuilt(&BTreeMap::new(), prefix);
        at_cut.change_all_chunks();
        let chunks = at_cut.take_changed_chunks();
        let chunks = chunks.into_iter().filter_map(|(id, chunk)| Some((id, chunk?))).collect();
        prop_assert_eq!(seen(world.rebuilt(&chunks, &[])), seen(world.rebuilt(&BTreeMap::new(), prefix)));
        prop_assert_eq!(seen(world.rebuilt(&chunks, suffix)), seen(world.rebuilt(&BTreeMap::new(), &world.log)));
    }
}
