//! Directories written by earlier versions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::node::{Node, entry};
use bytes::Bytes;
use polylogue_amqp_gateway::{AmqpAnswer, AmqpMachine, AmqpRequest, topic_of};
use polylogue_amqp_model::Limits;
use polylogue_api::{AppendError, MachineId, Reply, Request, StateMachine, TopicConfig};
use polylogue_broker::{Broker, BrokerConfig, LAYOUT_VERSION, check_directory, read_identity};
use polylogue_env::OpenMode;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimDisk, SimWorld};
use polylogue_kafka_groups::command::{FetchGroup, FetchOffsets};
use polylogue_kafka_groups::{GroupCommand, GroupReply, GroupSettings, KafkaGroups};
use polylogue_log::check::frames;
use polylogue_log::{Frame, Kind};
use polylogue_replicate::Work;
use polylogue_types::{Index, PartitionId, ShardId};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The data directory on the simulated machine.
const DATA: &str = "/data";

/// The bytes of a frame that a start may write anew when it continues the last file: salt, checksum of the previous frame, durable index.
const LOCAL_HEADER_BYTES: usize = 64;

/// The layouts that differ most.
const FIRST_AND_LAST: [u32; 2] = [1, LAYOUT_VERSION - 1];

/// The unpacked directory; removed with the test.
struct Unpacked(PathBuf);

impl Unpacked {
    fn new(layout: &str) -> Unpacked {
        let archive = format!("{}/../../tests/fixtures/{layout}/data.tar.gz", env!("CARGO_MANIFEST_DIR"));
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("polylogue-{layout}-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let status = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(&dir).status().unwrap();
        assert!(status.success());
        Unpacked(dir)
    }

    /// A machine with the directory on its disk.
    fn world(&self, seed: u64) -> SimWorld {
        let world = SimWorld::new(seed);
        copy(&world, &self.0.join("data"), Path::new(DATA));
        world.env().disk.sync_dir(Path::new("/")).unwrap();
        world
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(world: &SimWorld, from: &Path, to: &Path) {
    let disk = world.env().disk;
    disk.create_dir_all(to).unwrap();
    for found in std::fs::read_dir(from).unwrap() {
        let (path, to) = (found.as_ref().unwrap().path(), to.join(found.unwrap().file_name()));
        if path.is_dir() {
            copy(world, &path, &to);
        } else {
            let file = disk.open(&to, OpenMode::CreateNew).unwrap();
            file.write_all_at(&std::fs::read(path).unwrap(), 0).unwrap();
            file.sync_data().unwrap();
        }
    }
    disk.sync_dir(to).unwrap();
}

/// Returns the content of a partition from its start on, its batches unchanged.
fn text(node: &mut Node, partition: PartitionId) -> String {
    let read = node.read(partition, 0).unwrap();
    let bytes: Vec<u8> = read.chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn machines() -> BTreeMap<MachineId, Box<dyn StateMachine>> {
    let groups: Box<dyn StateMachine> = Box::new(KafkaGroups::new(GroupSettings::default()));
    BTreeMap::from([
        (MachineId::KAFKA_GROUPS, groups),
        (MachineId::AMQP, Box::new(AmqpMachine::new(Limits::default())) as Box<dyn StateMachine>),
    ])
}

fn config() -> BrokerConfig {
    BrokerConfig { journal_file_bytes: 256 << 10, disk_reserve_bytes: 0, ..BrokerConfig::new(DATA.into()) }
}

fn open(world: &SimWorld) -> Node {
    Node::open_with(world, machines(), |set| *set = config())
}

fn layout(world: &SimWorld) -> u32 {
    read_identity(&world.env(), Path::new(DATA)).unwrap().layout
}

/// Checks the whole expected content, and that the broker works.
fn holds_everything(world: &SimWorld) {
    let mut node = open(world);
    node.drive();
    assert!(!world.env().fatal.is_fatal());
    let catalog = node.broker.catalog();
    let topics: Vec<_> = catalog.topics().iter().map(|topic| topic.name.to_string()).collect();
    let logs = ["late-async", "late-sync", "of-async", "of-memory", "of-sync"];
    assert!(logs.iter().all(|name| topics.iter().any(|topic| topic == name)), "{topics:?}");
    assert!(!topics.iter().any(|name| name == "deleted" || name.starts_with("between")), "{topics:?}");
    for durability in ["sync", "async"] {
        let partition =
            |name: &str, at: usize| catalog.topic(&format!("{name}-{durability}")).unwrap().partitions[at].id;
        let of = partition("of", 1);
        let found = text(&mut node, of);
        assert!(found.contains(&format!("{durability} 0")) && found.contains(&format!("{durability} 99")), "{found}");
        assert!(found.contains("last"), "{found}");
        assert!(text(&mut node, partition("late", 0)).contains("late"));
        let appended = node.append(entry(of, "more")).unwrap();
        assert!(appended.base_offset.0 >= 101, "{appended:?}");
        node.append(entry(partition("of", 0), "the first one")).unwrap();
    }
    // Restarted with the process.
    let memory = catalog.topic("of-memory").unwrap().partitions[1].id;
    assert!(!matches!(node.append(entry(memory, "more")), Err(AppendError::UnknownPartition)));
    machines_hold_everything(&mut node);
    assert_eq!(layout(world), LAYOUT_VERSION);
}

fn ask<R: 'static>(node: &mut Node, machine: MachineId, command: impl Any + Send) -> R {
    match node.ask(Request::Machine(machine, Box::new(command))) {
        Reply::Machine(reply) => *reply.unwrap().downcast::<R>().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn machines_hold_everything(node: &mut Node) {
    let fetch = |group: &str| {
        let (group_id, member_id, member_epoch, topics) = (group.into(), None, -1, None);
        let groups = vec![FetchGroup { group_id, member_id, member_epoch, topics }];
        GroupCommand::FetchOffsets(FetchOffsets { version: 8, groups, require_stable: false })
    };
    let GroupReply::FetchOffsets(groups) = ask(node, MachineId::KAFKA_GROUPS, fetch("readers")) else { panic!() };
    let [topic] = &groups[0].topics[..] else { panic!("{groups:?}") };
    let at = &topic.partitions[0];
    assert_eq!((&*topic.name, at.index, at.offset, &*at.metadata), ("of-sync", 1, 42, "here"));

    let AmqpAnswer::View(view) = ask(node, MachineId::AMQP, AmqpRequest::View) else { panic!() };
    let metadata = &view.metadata;
    assert!(metadata.user("alice").is_some() && metadata.user("guest").is_some());
    assert_eq!((metadata.acls().len(), metadata.quotas().iter().count()), (1, 1));
    let named = |name: &str| metadata.queues().find(|queue| queue.name == name).unwrap().id;
    let partitions = ["work", "dead", "stream"].map(|name| {
        let topic = node.broker.catalog().topic(&topic_of(named(name))).unwrap();
        topic.partitions[0].id
    });
    match node.ask(Request::DescribeQueues(partitions.to_vec())) {
        Reply::DescribeQueues(counts) => {
            let counts: Vec<_> = counts.into_iter().map(|c| c.map(|c| (c.ready, c.delayed))).collect();
            assert_eq!(counts, [Some((6, 3)), Some((3, 0)), Some((10, 0))]);
        }
        other => panic!("{other:?}"),
    }
}

/// Partitions that were there stay in the metadata's shard, new ones are elsewhere.
fn shards_are_apart(world: &SimWorld) {
    let mut node = open(world);
    let old = node.broker.catalog().topic("late-sync").unwrap().partitions[0].id;
    let new = node.create("new", 1, TopicConfig::default()).partitions[0].id;
    let shard = |id| node.broker.partition_status(id).unwrap().shard;
    assert_eq!((shard(old), shard(new)), (ShardId(0), ShardId(1)));
}

/// The records of all journals, by shard and index.
type Records = BTreeMap<(ShardId, Index), Bytes>;

/// Returns all that a version reads which opens the directory, but for terms, votes and marks: these have not changed since layout 1.
fn records(world: &SimWorld) -> Records {
    let env = world.env();
    let mut records = Records::new();
    for name in env.disk.list(Path::new(DATA)).unwrap().iter().filter(|name| name.starts_with("shard-")) {
        let mut note = |frame: &Frame| {
            if matches!(frame.kind, Kind::Data | Kind::SegmentCut | Kind::Lost) {
                records.insert((frame.shard, frame.index), frame.bytes.slice(LOCAL_HEADER_BYTES..));
            }
        };
        frames(&env, &Path::new(DATA).join(name), &mut note).unwrap();
    }
    records
}

/// A machine with a copy of this disk.
fn fork(disk: &SimDisk, seed: u64) -> SimWorld {
    let mut world = SimWorld::new(seed);
    world.disk = disk.fork(seed);
    // Its process is one of this disk.
    world.kill();
    world
}

/// A start with a fault, and all that it comes to before its log is idle. `Err` if it is refused; `Ok(false)` if the process ends later.
fn start(world: &SimWorld) -> Result<bool, polylogue_broker::Error> {
    let broker = Broker::open(world.env(), config(), machines())?;
    while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {}
    Ok(!world.env().fatal.is_fatal() && !world.disk.is_stopped())
}

/// An interrupted migration leaves a directory that an earlier version can use, or one that this version completes. Either way nothing is lost.
fn is_usable_after(world: &SimWorld, old: u32, old_records: &Records, case: &str) {
    let layout = layout(world);
    assert!(layout == old || layout == LAYOUT_VERSION, "{case}: layout {layout}");
    let found = records(world);
    if layout == old {
        let other = |a: &Records, b: &Records| -> Vec<_> {
            a.iter().filter(|(at, bytes)| b.get(at) != Some(bytes)).map(|(at, bytes)| (*at, bytes.len())).collect()
        };
        let (more, less) = (other(&found, old_records), other(old_records, &found));
        assert!(more.is_empty() && less.is_empty(), "{case}: there are records {more:?}, and {less:?} are missing");
    } else {
        assert!(old_records.iter().all(|(at, bytes)| found.get(at) == Some(bytes)), "{case}: records are missing");
    }
    let changes = |world: &SimWorld| {
        let stats = world.disk.stats();
        [stats.creates, stats.writes, stats.syncs, stats.dir_syncs, stats.renames, stats.removes]
    };
    let before = changes(world);
    let report = check_directory(&world.env(), &config(), &machines);
    assert!(report.is_sound(), "{case}: {report:?}");
    assert_eq!(changes(world), before, "{case}: a check changed the disk");
    holds_everything(world);
}

/// What to try: each of the first 50, and every 7th of the others.
fn steps() -> impl Iterator<Item = u64> {
    (1..=50).chain((57..).step_by(7))
}

/// Starts that a fault has ended.
#[derive(Default, Debug)]
struct Ended {
    /// Before they were complete.
    inside: u64,
    /// Before the layout was raised.
    before_the_raise: u64,
}

impl std::ops::AddAssign for Ended {
    fn add_assign(&mut self, more: Ended) {
        self.inside += more.inside;
        self.before_the_raise += more.before_the_raise;
    }
}

impl Ended {
    fn are_enough(&self) {
        assert!(self.inside > 10 && self.before_the_raise > 5, "{self:?}");
    }
}

/// Starts a directory as an earlier version left it, with a fault at each step, until a start completes without meeting it.
fn is_migrated_over(old: u32, what: &str, fault: impl Fn(&SimWorld, u64)) -> Ended {
    let disk = Unpacked::new(&format!("layout-{old}")).world(0).disk;
    let old_records = records(&fork(&disk, 0));
    let mut ended = Ended::default();
    for step in steps() {
        let case = format!("layout {old}, {what} {step}");
        let world = fork(&disk, step);
        fault(&world, step);
        let started = start(&world);
        let is_done = matches!(started, Ok(true)) && world.disk.stats().faults == 0;
        if let Err(e) = &started {
            ended.inside += 1;
            // What ends the process is reported by it.
            let why = world.fatal().reason().unwrap_or_else(|| e.to_string());
            let names_cause =
                ["No space", "no room", "disk full", "node is down"].iter().any(|cause| why.contains(cause));
            assert!(names_cause, "{case}: {why}");
        }
        world.disk.clear_faults();
        // The process has ended; the machine goes on or not.
        if step % 2 == 0 && !world.disk.is_stopped() {
            world.kill();
        } else {
            world.crash();
        }
        ended.before_the_raise += u64::from(layout(&world) == old);
        is_usable_after(&world, old, &old_records, &case);
        if step % 5 == 0 {
            world.crash();
            holds_everything(&world);
        }
        if is_done {
            break;
        }
    }
    ended
}

fn is_migrated(old: u32) {
    let world = Unpacked::new(&format!("layout-{old}")).world(0);
    assert_eq!(layout(&world), old);
    holds_everything(&world);
    holds_everything(&world);
    shards_are_apart(&world);
}

#[test]
fn a_directory_of_each_layout_is_migrated() {
    (1..LAYOUT_VERSION).for_each(is_migrated);
}

fn is_migrated_over_a_power_cut(old: u32) {
    let cut = |world: &SimWorld, step| world.disk.inject(Fault::nth(FaultOp::AnyChange, step, FaultKind::PowerCut));
    is_migrated_over(old, "power cut at change", cut).are_enough();
}

#[test]
fn a_directory_of_layout_1_is_migrated_over_a_power_cut_at_any_change_of_the_disk() {
    is_migrated_over_a_power_cut(1);
}

#[test]
fn a_directory_of_layout_2_is_migrated_over_a_power_cut_at_any_change_of_the_disk() {
    is_migrated_over_a_power_cut(2);
}

#[test]
fn a_directory_of_layout_3_is_migrated_over_a_power_cut_at_any_change_of_the_disk() {
    is_migrated_over_a_power_cut(3);
}

/// One change finds no space, e.g. because another process has taken it for a moment.
#[test]
fn a_directory_is_migrated_over_a_lack_of_space_at_any_change_of_the_disk() {
    let lack = |world: &SimWorld, step| world.disk.inject(Fault::nth(FaultOp::AnyChange, step, FaultKind::NoSpace));
    for old in FIRST_AND_LAST {
        is_migrated_over(old, "no space for change", lack).are_enough();
    }
}

/// The disk is full from a change on that takes space.
#[test]
fn a_directory_is_migrated_after_a_start_on_a_full_disk() {
    for old in FIRST_AND_LAST {
        let mut ended = Ended::default();
        for op in [FaultOp::Create, FaultOp::Write, FaultOp::Allocate] {
            let full = |world: &SimWorld, step| world.disk.inject(Fault::from(op, step, FaultKind::NoSpace));
            ended += is_migrated_over(old, &format!("no space from {op:?}"), full);
        }
        ended.are_enough();
    }
}

/// The backup of a process that had raised the layout was of the old one: an earlier version would have taken it for its own.
#[test]
fn a_backup_of_a_migrated_directory_has_the_new_layout() {
    let unpacked = Unpacked::new("layout-1");
    let world = unpacked.world(8);
    let node = open(&world);
    node.drive();
    let (env, mut backup) = (world.env(), node.broker.begin_backup().unwrap());
    let mut at = Default::default();
    while crate::backup::copy_next(&env, &mut backup, &mut at) {}
    assert_eq!(read_identity(&env, Path::new("/copy")).unwrap().layout, LAYOUT_VERSION);
}

/// If the start does not complete, the directory is unchanged: the earlier version can use it.
#[test]
fn a_start_that_is_refused_leaves_the_layout_as_it_was() {
    let unpacked = Unpacked::new("layout-1");
    let world = unpacked.world(9);
    // Both copies: this shard is opened after the metadata's.
    for byte in (0..64).chain(4_096..4_160) {
        world.disk.flip_bit(Path::new("/data/shard-1000/manifest"), byte, 3).unwrap();
    }
    let config = polylogue_broker::BrokerConfig::new(DATA.into());
    let refused = polylogue_broker::Broker::open(world.env(), config, Default::default());
    assert!(refused.is_err());
    assert_eq!(read_identity(&world.env(), Path::new(DATA)).unwrap().layout, 1);
}
