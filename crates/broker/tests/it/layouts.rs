//! Directories written by earlier versions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::node::{Node, entry};
use polylogue_api::{AppendError, TopicConfig};
use polylogue_broker::{LAYOUT_VERSION, read_identity};
use polylogue_env::OpenMode;
use polylogue_env::sim::SimWorld;
use polylogue_replicate::Work;
use polylogue_types::{PartitionId, ShardId};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

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
        copy(&world, &self.0.join("data"), Path::new("/data"));
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

fn open(world: &SimWorld) -> Node {
    Node::open(world, |config| config.journal_file_bytes = 4 << 20)
}

/// Checks the whole expected content, without that of machines, and that the broker works.
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
    assert_eq!(read_identity(&world.env(), Path::new("/data")).unwrap().layout, LAYOUT_VERSION);
}

/// Partitions that were there stay in the metadata's shard, new ones are elsewhere.
fn shards_are_apart(world: &SimWorld) {
    let mut node = open(world);
    let old = node.broker.catalog().topic("late-sync").unwrap().partitions[0].id;
    let new = node.create("new", 1, TopicConfig::default()).partitions[0].id;
    let shard = |id| node.broker.partition_status(id).unwrap().shard;
    assert_eq!((shard(old), shard(new)), (ShardId(0), ShardId(1)));
}

/// Opens a directory as an earlier version left it, with a crash at any step.
fn is_migrated(layout: u32) {
    let unpacked = Unpacked::new(&format!("layout-{layout}"));
    let first = unpacked.world(0);
    assert_eq!(read_identity(&first.env(), Path::new("/data")).unwrap().layout, layout);
    holds_everything(&first);
    holds_everything(&first);
    shards_are_apart(&first);
    let mut steps = 0;
    loop {
        let world = unpacked.world(steps);
        let node = open(&world);
        let mut idle = 0;
        for step in 0..steps {
            let did = node.broker.log_step(if step % 2 == 0 { Work::Write } else { Work::Flush });
            idle = if did { 0 } else { idle + 1 };
        }
        drop(node);
        world.crash();
        holds_everything(&world);
        world.crash();
        holds_everything(&world);
        if idle >= 2 {
            break;
        }
        steps += 1;
    }
    assert!(steps > 2);
}

#[test]
fn a_directory_of_layout_1_is_migrated_over_a_crash_at_any_step() {
    is_migrated(1);
}

#[test]
fn a_directory_of_layout_2_is_migrated_over_a_crash_at_any_step() {
    is_migrated(2);
}

#[test]
fn a_directory_of_layout_3_is_migrated_over_a_crash_at_any_step() {
    is_migrated(3);
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
    let config = polylogue_broker::BrokerConfig::new("/data".into());
    let refused = polylogue_broker::Broker::open(world.env(), config, Default::default());
    assert!(refused.is_err());
    assert_eq!(read_identity(&world.env(), Path::new("/data")).unwrap().layout, 1);
}
