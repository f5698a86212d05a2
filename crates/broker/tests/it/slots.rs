//! The metadata has a shard of its own; machines that live in slots are where their keys' slots are recorded to be.

use crate::node::{Node, entry};
use bytes::Bytes;
use polylogue_api::machine::{Command, Slots, Split};
use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig};
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_types::{Index, NodeId, ShardId, TimestampMs};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const COUNTERS: MachineId = MachineId::new(200).unwrap();
const META: ShardId = ShardId(0);

/// Counts by key. Each shard has the counters of its slots.
#[derive(Debug, Default)]
struct Counters {
    counts: BTreeMap<String, u64>,
    changed: BTreeSet<String>,
}

#[derive(Clone, Debug)]
enum Asked {
    Add(String),
    /// All counters of all shards.
    List,
}

type Listed = Vec<(String, u64)>;

impl StateMachine for Counters {
    fn handle(&mut self, _: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects) {
        match *command.downcast::<Asked>().unwrap() {
            Asked::Add(key) => {
                let reply: Box<dyn Any + Send> = Box::new(Listed::new());
                effects.proposals.push(Proposal { record: Bytes::from(key), replies: vec![(caller, reply)] });
            }
            Asked::List => {
                let listed: Listed = self.counts.clone().into_iter().collect();
                effects.replies.push((caller, Box::new(listed)));
            }
        }
    }

    fn reads(&self, command: &Command) -> bool {
        matches!(command.downcast_ref(), Some(Asked::List))
    }

    fn on_gone(&mut self, _: &Context<'_>, _: Caller, _: &mut Effects) {}

    fn apply(&mut self, record: &[u8], _: TimestampMs) -> Result<(), String> {
        let key = String::from_utf8(record.to_vec()).map_err(|e| e.to_string())?;
        *self.counts.entry(key.clone()).or_default() += 1;
        self.changed.insert(key);
        Ok(())
    }

    fn on_ready(&mut self, _: &Context<'_>) {}

    fn on_refused(&mut self, _: &Context<'_>, _: &[Bytes], _: &mut Effects) {}

    fn on_writer_lost(&mut self, _: &Context<'_>, _: &mut Effects) {}

    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }

    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Effects) {}

    fn on_topics_deleted(&mut self, _: &Context<'_>, _: &[Arc<TopicInfo>], _: &mut Effects) {}

    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let count = |key: &String| Bytes::copy_from_slice(&self.counts[key].to_le_bytes());
        changed.map(|key| (count(&key), key)).map(|(count, key)| (Bytes::from(key), Some(count))).collect()
    }

    fn change_all_chunks(&mut self) {
        self.changed.extend(self.counts.keys().cloned());
    }

    fn load_chunk(&mut self, id: &[u8], chunk: Bytes) -> Result<(), String> {
        let key = String::from_utf8(id.to_vec()).map_err(|e| e.to_string())?;
        let count = chunk[..].try_into().map_err(|_| "no number".to_owned())?;
        self.counts.insert(key, u64::from_le_bytes(count));
        Ok(())
    }

    fn slots(&self) -> Option<Arc<dyn Slots>> {
        Some(Arc::new(CounterSlots))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct CounterSlots;

impl Slots for CounterSlots {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::<Counters>::default()
    }

    fn split(&self, command: Command, places: usize, place: &dyn Fn(&[u8]) -> usize) -> Split {
        let asked = *command.downcast::<Asked>().unwrap();
        let parts = match &asked {
            Asked::Add(key) => vec![(place(key.as_bytes()), Box::new(asked.clone()) as Command)],
            Asked::List => (0..places).map(|at| (at, Box::new(asked.clone()) as Command)).collect(),
        };
        let join = |replies: Vec<MachineReply>| -> MachineReply {
            let mut all = Listed::new();
            for reply in replies {
                all.extend(*reply?.downcast::<Listed>().unwrap());
            }
            all.sort();
            Ok(Box::new(all))
        };
        Split { parts, join: Box::new(join) }
    }
}

fn open(world: &SimWorld, shards: u32) -> Node {
    let counters: Box<dyn StateMachine> = Box::<Counters>::default();
    Node::open_with(world, BTreeMap::from([(COUNTERS, counters)]), |config| {
        config.sync_shards = shards;
        config.checkpoint_bytes_max = 1;
    })
}

fn ask(node: &mut Node, asked: Asked) -> Result<Listed, Unavailable> {
    match node.ask(Request::Machine(COUNTERS, Box::new(asked))) {
        Reply::Machine(reply) => reply.map(|listed| *listed.downcast::<Listed>().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn keys() -> Vec<String> {
    (0..20).map(|nth| format!("key-{nth:02}")).collect()
}

fn add_all(node: &mut Node) {
    for key in keys() {
        ask(node, Asked::Add(key)).unwrap();
    }
}

fn counted(times: u64) -> Listed {
    keys().into_iter().map(|key| (key, times)).collect()
}

/// Shards that have records of the counters.
fn shards_of_counters(node: &Node) -> Vec<ShardId> {
    let own = |shard: &ShardId| {
        let state = node.broker.applied_state(*shard).unwrap().unwrap();
        state.chunks.keys().any(|key| key.kind == b'm' && key.id.first() == Some(&COUNTERS.number()))
    };
    node.broker.shards().iter().map(|shard| shard.id).filter(own).collect()
}

#[test]
fn keys_are_spread_over_the_shards_and_found_again() {
    let world = SimWorld::new(1);
    let mut node = open(&world, 3);
    add_all(&mut node);
    assert_eq!(ask(&mut node, Asked::List), Ok(counted(1)));
    assert_eq!(shards_of_counters(&node), [1, 2, 3].map(ShardId));
    // From journals, and from checkpoints.
    for times in 2..4 {
        drop(node);
        world.crash();
        node = open(&world, 3);
        add_all(&mut node);
        assert_eq!(ask(&mut node, Asked::List), Ok(counted(times)));
        node.background();
    }
}

#[test]
fn the_metadata_shard_gets_no_partitions_and_no_slots() {
    let world = SimWorld::new(2);
    let mut node = open(&world, 2);
    let topic = node.create("t", 4, TopicConfig::default());
    add_all(&mut node);
    let shards: Vec<_> = topic.partitions.iter().map(|p| node.broker.partition_status(p.id).unwrap().shard).collect();
    assert_eq!(shards.iter().collect::<BTreeSet<_>>(), [ShardId(1), ShardId(2)].iter().collect());
    assert!(!shards_of_counters(&node).contains(&META));
}

/// More shards by the option: what is there stays where it is, by the journal and by a checkpoint.
#[test]
fn shards_are_added_and_slots_stay() {
    shards_are_added(3, |_| {});
    shards_are_added(8, Node::background);
}

fn shards_are_added(seed: u64, before_a_start: fn(&Node)) {
    let world = SimWorld::new(seed);
    let mut node = open(&world, 1);
    add_all(&mut node);
    before_a_start(&node);
    drop(node);
    world.crash();
    let mut node = open(&world, 3);
    add_all(&mut node);
    assert_eq!(ask(&mut node, Asked::List), Ok(counted(2)));
    assert_eq!(shards_of_counters(&node), [ShardId(1)]);
    let topic = node.create("t", 6, TopicConfig::default());
    let shards = |node: &Node| -> BTreeSet<_> {
        topic.partitions.iter().map(|p| node.broker.partition_status(p.id).unwrap().shard).collect()
    };
    assert_eq!(shards(&node), [1, 2, 3].map(ShardId).into());
    before_a_start(&node);
    drop(node);
    world.crash();
    // Fewer: all of them are still opened.
    let mut node = open(&world, 1);
    assert_eq!(shards(&node), [1, 2, 3].map(ShardId).into());
    for partition in &topic.partitions {
        node.append(entry(partition.id, "x")).unwrap();
    }
}

/// A shard without topics is opened because it is recorded.
#[test]
fn shards_with_slots_and_no_topics_are_opened_whatever_the_option_says() {
    let world = SimWorld::new(9);
    let mut node = open(&world, 3);
    add_all(&mut node);
    drop(node);
    world.crash();
    let mut node = open(&world, 1);
    // A shard that is opened later has machines that have not begun.
    assert_eq!(node.broker.shards().iter().map(|shard| shard.id).collect::<Vec<_>>(), [0, 1, 2, 3].map(ShardId));
    assert_eq!(ask(&mut node, Asked::List), Ok(counted(1)));
    add_all(&mut node);
    assert_eq!(shards_of_counters(&node), [1, 2, 3].map(ShardId));
}

/// A start records the shards before it serves; one that ends at any of its steps is followed by one that does the same.
#[test]
fn a_first_start_whose_power_goes_at_any_step_is_made_good() {
    let mut ended_inside = 0;
    for step in 1.. {
        let world = SimWorld::new(100 + step);
        world.disk.inject(Fault::nth(FaultOp::AnyChange, step, FaultKind::PowerCut));
        let mut config = BrokerConfig::new("/data".into());
        (config.sync_shards, config.disk_reserve_bytes, config.journal_file_bytes) = (3, 0, 1 << 20);
        let counters: Box<dyn StateMachine> = Box::<Counters>::default();
        let opened = Broker::open(world.env(), config, BTreeMap::from([(COUNTERS, counters)]));
        let done = opened.is_ok();
        drop(opened);
        world.crash();
        world.disk.clear_faults();
        let mut node = open(&world, 3);
        add_all(&mut node);
        assert_eq!(ask(&mut node, Asked::List), Ok(counted(1)), "step {step}");
        assert_eq!(shards_of_counters(&node), [1, 2, 3].map(ShardId), "step {step}");
        if done {
            break;
        }
        ended_inside += 1;
    }
    assert!(ended_inside > 10, "{ended_inside}");
}

/// A follower hosts the slots too, and goes on with them when it takes over.
#[test]
fn a_follower_has_what_is_in_the_slots() {
    let (one, other) = (SimWorld::new(5), SimWorld::new(6));
    let mut writer = open(&one, 2);
    add_all(&mut writer);
    let counters: Box<dyn StateMachine> = Box::<Counters>::default();
    let mut config = BrokerConfig::new("/data".into());
    (config.node, config.disk_reserve_bytes, config.journal_file_bytes) = (Some(NodeId(2)), 0, 1 << 20);
    let broker = Broker::open_follower(other.env(), config, BTreeMap::from([(COUNTERS, counters)])).unwrap();
    let session = broker.new_session();
    let mut follower = Node { broker, client: Arc::default(), session, next_token: 0 };
    // The metadata last.
    for shard in writer.broker.shards().iter().rev() {
        let frames = writer.broker.frames(shard.id, Index(0), usize::MAX).unwrap();
        follower.broker.receive(shard.id, &frames).unwrap();
        follower.drive();
    }
    assert_eq!(ask(&mut follower, Asked::List), Err(Unavailable::NotCommitted));
    for shard in writer.broker.shards() {
        let state = |node: &Node| node.broker.applied_state(shard.id).unwrap().unwrap();
        assert_eq!(state(&writer).differences(&state(&follower)), [], "shard {}", shard.id);
    }
    drop(writer);
    follower.broker.take_over().unwrap();
    add_all(&mut follower);
    assert_eq!(ask(&mut follower, Asked::List), Ok(counted(2)));
}

/// The metadata's journal is small, and a check of a directory could not read it.
#[test]
fn a_directory_is_checked_after_any_number_of_starts() {
    let world = SimWorld::new(7);
    for start in 0..6 {
        let mut node = open(&world, 2);
        node.create(&format!("t{start}"), 2, TopicConfig::default());
        add_all(&mut node);
        drop(node);
        world.crash();
        let config = BrokerConfig { disk_reserve_bytes: 0, ..BrokerConfig::new("/data".into()) };
        let machines = || -> BTreeMap<MachineId, Box<dyn StateMachine>> {
            BTreeMap::from([(COUNTERS, Box::<Counters>::default() as Box<dyn StateMachine>)])
        };
        let report = polylogue_broker::check_directory(&world.env(), &config, &machines);
        assert!(report.is_sound(), "{start}: {report:?}");
    }
}
