//! Tests of checkpoints on a simulated disk.

use super::file::check_checkpoints;
use super::*;
use crate::store::{ShardStore, StoreConfig};
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimDisk, SimWorld};

type Chunks = BTreeMap<Vec<u8>, Vec<u8>>;

fn shard() -> PathBuf {
    PathBuf::from("/data/shard")
}

fn world() -> SimWorld {
    let world = SimWorld::new(1);
    let disk = world.env().disk;
    disk.create_dir_all(&shard()).unwrap();
    for dir in ["/", "/data", "/data/shard"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    world
}

fn open(env: &Env) -> CheckpointStore {
    ShardStore::open(env.clone(), &shard(), StoreConfig::default()).unwrap().0.checkpoints().unwrap()
}

fn on(disk: &SimDisk, env: &Env) -> Env {
    Env { disk: Arc::new(disk.of_this_life()), ..env.clone() }
}

fn key(id: u8) -> ChunkKey {
    ChunkKey { kind: 1, id: Bytes::copy_from_slice(&[id, 7]) }
}

fn load(store: &CheckpointStore) -> (Option<Index>, Chunks) {
    let mut found = Chunks::new();
    let applied = store.load(&mut |key, chunk| {
        found.insert(key.id.to_vec(), chunk.to_vec());
        Ok(())
    });
    (applied.unwrap(), found)
}

/// Changes a third of 30 chunks of up to 2 KB, and removes one.
fn round(n: u8) -> Vec<(ChunkKey, Option<Bytes>)> {
    let mut changed: Vec<_> =
        (0..30).filter(|i| i % 3 == n % 3).map(|i| (key(i), Some(Bytes::from(vec![n; usize::from(i) * 70])))).collect();
    changed.push((key(n % 30), None));
    changed
}

fn apply(chunks: &mut Chunks, changed: Vec<(ChunkKey, Option<Bytes>)>) {
    for (key, chunk) in changed {
        match chunk {
            Some(chunk) => drop(chunks.insert(key.id.to_vec(), chunk.to_vec())),
            None => drop(chunks.remove(&key.id[..])),
        }
    }
}

#[test]
fn the_newest_chunk_counts_and_garbage_stays_under_half() {
    let world = world();
    let mut chunks = Chunks::new();
    let mut complete = 0;
    for n in 0..60u8 {
        let store = open(&world.env());
        let written = store.write(Index(u64::from(n) * 10), round(n)).unwrap();
        apply(&mut chunks, round(n));
        complete += u32::from(written.complete);
        assert!(written.files <= CHAIN_FILES_MAX);
        let expected = (Some(Index(u64::from(n) * 10)), chunks.clone());
        assert!(load(&store) == expected, "round {n}");
        assert!(load(&open(&world.env())) == expected, "round {n}, after a start");
        // A start reads no more than the live chunks, plus one checkpoint.
        let disk = world.env().disk;
        let dir = shard().join(CHECKPOINT_DIR);
        let size = |name: String| disk.open(&dir.join(name), OpenMode::Read).unwrap().size().unwrap();
        let (first, second): (Vec<_>, Vec<_>) =
            disk.list(&dir).unwrap().into_iter().partition(|n| n.ends_with(".ckpt"));
        assert_eq!(first.len(), second.len());
        let files: u64 = first.into_iter().map(size).sum();
        let live: usize = chunks.values().map(Vec::len).sum();
        assert!(files <= 2 * live as u64 + 3 * 30_000, "round {n}: {files} bytes for {live}");
    }
    assert!(complete > 3 && complete < 40, "{complete}");
    assert_eq!(check_checkpoints(&world.env(), &shard()).unwrap(), []);
}

#[test]
fn only_changed_chunks_are_written() {
    let world = world();
    let store = open(&world.env());
    let all = (0..100).map(|i| (key(i), Some(Bytes::from(vec![1; 1000]))));
    assert!(store.write(Index(1), all).unwrap().bytes > 100_000);
    let written = store.write(Index(2), [(key(5), Some(Bytes::from_static(b"new")))]).unwrap();
    assert_eq!((written.chunks, written.complete, written.files), (1, false, 2));
    assert!(written.bytes < 200, "{written:?}");
    let nothing = store.write(Index(2), []).unwrap();
    assert_eq!((nothing.chunks, store.chunks()), (0, 100));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let world = world();
    let store = open(&world.env());
    store.write(Index(5), round(1)).unwrap();
    let before = load(&store);
    let big = Bytes::from(vec![0; CHUNK_BYTES_MAX + 1]);
    let long = ChunkKey { kind: 0, id: Bytes::from(vec![0; KEY_BYTES_MAX + 1]) };
    for (applied, changed) in [(4, vec![]), (6, vec![(key(1), Some(big))]), (6, vec![(long, None)])] {
        assert_eq!(store.write(Index(applied), changed).unwrap_err().kind, ErrorKind::Invalid);
        assert!(load(&store) == before && load(&open(&world.env())) == before);
    }
    world.disk.inject(Fault::from(FaultOp::Write, 1, FaultKind::NoSpace));
    assert_eq!(store.write(Index(6), round(2)).unwrap_err().kind, ErrorKind::StorageFull);
    world.disk.clear_faults();
    assert!(load(&store) == before);
    store.write(Index(6), round(2)).unwrap();
}

#[test]
fn a_crash_at_any_point_leaves_one_or_the_other() {
    // Once within a chain, once where a new chain starts.
    for rounds in [2u8, 40] {
        let world = world();
        let mut chunks = Chunks::new();
        for n in 0..rounds {
            open(&world.env()).write(Index(u64::from(n)), round(n)).unwrap();
            apply(&mut chunks, round(n));
        }
        let before = (Some(Index(u64::from(rounds) - 1)), chunks.clone());
        let mut next = chunks.clone();
        apply(&mut next, round(rounds));
        let after = (Some(Index(u64::from(rounds))), next);
        let (mut old, mut new, mut cut) = (0, 0, 0);
        for seed in 0..6 {
            for nth in 1.. {
                let disk = world.disk.fork(seed * 1000 + nth);
                disk.inject(Fault::nth(FaultOp::AnyChange, nth, FaultKind::PowerCut));
                let store = ShardStore::open(on(&disk, &world.env()), &shard(), StoreConfig::default());
                let result = store.and_then(|(s, _)| s.checkpoints()?.write(Index(u64::from(rounds)), round(rounds)));
                let stopped = disk.is_stopped();
                disk.clear_faults();
                disk.crash();
                let found = load(&open(&on(&disk, &world.env())));
                assert!(found == before || found == after, "cut {nth}: neither the one nor the other");
                assert!(result.is_err() || found == after, "cut {nth}: a finished checkpoint is gone");
                (old, new) = (old + u32::from(found == before), new + u32::from(found == after));
                cut += u32::from(stopped);
                if !stopped {
                    break;
                }
            }
        }
        assert!(old >= 6 && new >= 6 && cut >= 36, "{old} {new} {cut}");
    }
}

fn damaged(world: &SimWorld, seed: u64, names: &[String], byte: u64) -> Env {
    let fork = world.disk.fork(seed);
    for name in names {
        fork.flip_bit(&shard().join(CHECKPOINT_DIR).join(name), byte, 5).unwrap();
    }
    on(&fork, &world.env())
}

#[test]
fn damage_is_found_and_named() {
    let world = world();
    let store = open(&world.env());
    store.write(Index(1), (0..20).map(|i| (key(i), Some(Bytes::from(vec![i; 50]))))).unwrap();
    let disk = world.env().disk;
    let names = file_names(1);
    let size = disk.open(&shard().join(CHECKPOINT_DIR).join(&names[0]), OpenMode::Read).unwrap().size().unwrap();
    for byte in 0..size {
        let env = damaged(&world, byte, &names, byte);
        let findings = check_checkpoints(&env, &shard()).unwrap();
        assert_eq!(
            findings.iter().map(|f| &f.file).collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>(),
            "byte {byte}"
        );
        assert_eq!(crate::store::check_segments(&env, &shard()).unwrap().len(), 2, "byte {byte}");
        let opened = ShardStore::open(env.clone(), &shard(), StoreConfig::default()).unwrap().0.checkpoints();
        let error = opened.and_then(|s| s.load(&mut |_, _| Ok(()))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "byte {byte}: {error}");
        assert!(error.context.contains(&names[0]), "byte {byte}: {error}");
    }
}

/// Regression test: one flipped bit made all further checkpoints fail, so that the journal was never released, and then the next start failed.
#[test]
fn one_damaged_copy_costs_nothing_and_is_made_whole_again() {
    let world = world();
    let store = open(&world.env());
    // Without the removals: every byte of either file counts.
    store.write(Index(1), round(0).into_iter().take(10)).unwrap();
    store.write(Index(2), round(1).into_iter().take(10)).unwrap();
    let whole = load(&store);
    let size = |name: &String| {
        let file = world.env().disk.open(&shard().join(CHECKPOINT_DIR).join(name), OpenMode::Read).unwrap();
        file.size().unwrap()
    };
    for (sequence, name) in [1, 2].into_iter().flat_map(|n| file_names(n).map(|name| (n, name))) {
        for byte in (0..size(&name)).step_by(37) {
            let env = damaged(&world, byte, std::slice::from_ref(&name), byte);
            assert_eq!(check_checkpoints(&env, &shard()).unwrap().len(), 1, "byte {byte} of {name}");
            let store = open(&env);
            assert!(load(&store) == whole, "byte {byte} of {name}");
            let written = store.write(Index(3), []).unwrap();
            // The second copy is read only if the first one fails.
            assert_eq!(written.complete, name == file_names(sequence)[0], "byte {byte} of {name}");
            let found = load(&open(&env));
            assert!(found.0 == Some(Index(3)) && found.1 == whole.1, "byte {byte} of {name}");
            if written.complete {
                assert_eq!(check_checkpoints(&env, &shard()).unwrap(), []);
            }
        }
    }
    // A copy that cannot be read at all.
    let env = damaged(&world, 7, &[], 0);
    env.disk.remove(&shard().join(CHECKPOINT_DIR).join(&file_names(2)[0])).unwrap();
    assert!(load(&open(&env)) == whole);
}

/// Regression test: a chunk with both copies damaged made all checkpoints of a running shard fail, although its state was in memory.
#[test]
fn what_cannot_be_read_at_all_is_replaced_by_its_owner() {
    let world = world();
    let mut chunks = Chunks::new();
    let store = open(&world.env());
    store.write(Index(1), (0..30).map(|i| (key(i), Some(Bytes::from(vec![i; 100]))))).unwrap();
    let path = |name: &String| shard().join(CHECKPOINT_DIR).join(name);
    for name in file_names(1) {
        world.disk.flip_bit(&path(&name), 300, 1).unwrap();
    }
    let mut refused = 0;
    for n in 2..80u8 {
        match store.write(Index(u64::from(n)), [(key(40), Some(Bytes::from(vec![n; 500])))]) {
            Ok(written) => assert!(!written.complete || refused > 0),
            Err(e) => {
                assert_eq!(e.kind, ErrorKind::Damaged, "{e}");
                refused += 1;
                // Without the damaged chunk, which its owner has removed by now.
                let all: Vec<_> = (0..41)
                    .filter(|i| *i != 2)
                    .map(|i| (key(i), Some(Bytes::from(vec![n; 100 + usize::from(i)]))))
                    .collect();
                apply(&mut chunks, all.clone());
                let written = store.replace(Index(u64::from(n)), all, &|_| false).unwrap();
                assert_eq!((written.complete, written.files, written.chunks), (true, 1, 40));
                assert!(load(&open(&world.env())) == (Some(Index(u64::from(n))), chunks.clone()));
            }
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(check_checkpoints(&world.env(), &shard()).unwrap(), []);
}

#[test]
fn chunks_that_are_not_needed_at_a_start_are_read_when_they_are_and_outlive_a_replacement() {
    let world = world();
    let store = open(&world.env());
    let chunk = |i: u8| Bytes::from(vec![i; 100]);
    store.write(Index(1), (0..30).map(|i| (key(i), Some(chunk(i))))).unwrap();
    // One of them is damaged, in both copies.
    let path = |name: &String| shard().join(CHECKPOINT_DIR).join(name);
    file_names(1).iter().for_each(|name| world.disk.flip_bit(&path(name), 300, 1).unwrap());
    let store = open(&world.env());
    let lazy = |key: &ChunkKey| key.id[0] < 20;
    let mut seen = 0;
    let mut see = |key: ChunkKey, _| {
        seen += u32::from(!lazy(&key));
        Ok(())
    };
    store.load_some(&|key| !lazy(key), &mut see).unwrap();
    assert_eq!(seen, 10, "damaged data that is not needed is not read");
    assert_eq!((store.read(&key(1)).unwrap(), store.read(&key(77)).unwrap()), (Some(chunk(1)), None));
    assert_eq!(store.read(&key(2)).unwrap_err().kind, ErrorKind::Damaged);
    let all = [(key(25), Some(chunk(99))), (key(3), None)];
    let written = store.replace(Index(2), all, &lazy).unwrap();
    assert_eq!((written.chunks, written.lost), (19, 1), "{written:?}");
    let store = open(&world.env());
    let read = |i| store.read(&key(i)).unwrap();
    assert_eq!((read(1), read(2), read(3), read(25), read(26)), (Some(chunk(1)), None, None, Some(chunk(99)), None));
}

#[test]
fn bytes_of_any_kind_are_no_panic() {
    let world = world();
    open(&world.env()).write(Index(1), round(2)).unwrap();
    let disk = world.env().disk;
    let [name, _] = file_names(1);
    let path = shard().join(CHECKPOINT_DIR).join(&name);
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let len = file.size().unwrap();
    for seed in 0..2000u64 {
        let rng = polylogue_env::sim::SimRng::new(seed);
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        // Valid checksums around invalid values: only the footer and the directory are covered this way.
        let start = len as usize - 28;
        let position = u64::from_le_bytes(bytes[start..start + 8].try_into().unwrap()) as usize;
        for _ in 0..=rng.below(4) {
            let at = position + rng.below((start + 12 - position) as u64) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        let sum = crc::crc32c(&bytes[position..start]);
        bytes[start + 12..start + 16].copy_from_slice(&sum.to_le_bytes());
        let own = crc::crc32c(&bytes[start..start + 24]);
        bytes[start + 24..].copy_from_slice(&own.to_le_bytes());
        let fork = world.disk.fork(seed);
        let env = on(&fork, &world.env());
        env.disk.open(&path, OpenMode::ReadWrite).unwrap().write_all_at(&bytes, 0).unwrap();
        drop(Directory::read(&*env.disk.open(&path, OpenMode::Read).unwrap(), &name, 1, len));
    }
}

/// Nodes take checkpoints at different times, in different chains of files.
#[test]
fn the_hash_is_that_of_the_chunks_and_not_of_how_they_came_there() {
    let all = |_: &ChunkKey| true;
    let (one, other) = (world(), world());
    let (often, seldom) = (open(&one.env()), open(&other.env()));
    assert_eq!(often.hash(&all), (None, 0));
    let mut chunks = Chunks::new();
    for n in 0..9 {
        often.write(Index(u64::from(n)), round(n)).unwrap();
        apply(&mut chunks, round(n));
    }
    let whole = chunks
        .iter()
        .map(|(id, chunk)| (ChunkKey { kind: 1, id: Bytes::copy_from_slice(id) }, Some(Bytes::copy_from_slice(chunk))));
    seldom.write(Index(8), whole).unwrap();
    assert_eq!(often.hash(&all), seldom.hash(&all));
    assert_eq!(open(&one.env()).hash(&all), seldom.hash(&all), "after a start");
    let before = often.hash(&all);
    often.write(Index(9), [(key(3), Some(Bytes::from_static(b"x")))]).unwrap();
    let (applied, hash) = often.hash(&all);
    assert!(applied == Some(Index(9)) && hash != before.1);
    assert_ne!(often.hash(&|key| key.id[0] != 3), often.hash(&all));
}
