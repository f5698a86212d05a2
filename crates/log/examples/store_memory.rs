//! What the index of a store takes in memory, how long opening it takes, and how fast merging is: by default 10,000
//! partitions, each with a run in each of 80 segments.
//!
//! `cargo run --release -p polylogue-log --example store_memory [PARTITIONS [FRAMES [ENTRY_BYTES [FRAMES_PER_MERGE]]]]`
//!
//! Every frame has one entry of every partition.

use bytes::Bytes;
use polylogue_env::{DiskFile, Env, OpenMode};
use polylogue_log::journal::{AdoptedFile, SealedFile};
use polylogue_log::store::{MergeProgress, SealedJournal, ShardStore, StoreConfig};
use polylogue_log::{EntryRef, Error, ErrorKind, Frame, FramePlace, Kind, Result};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form};
use polylogue_record::kafka::{BatchHeader, HEADER_BYTES};
use polylogue_types::{Index, NodeId, Offset, Ordinal, PartitionId, ShardId, Term};
use std::path::Path;
use std::sync::Arc;

/// A journal of one file that is never sealed.
#[derive(Debug)]
struct OneFile;

impl SealedJournal for OneFile {
    fn sealed_files(&self) -> Vec<SealedFile> {
        Vec::new()
    }

    fn adopt(&self, _: u64) -> Result<AdoptedFile> {
        Err(Error::new(ErrorKind::OutOfRange, "nothing is adopted here"))
    }

    fn release(&self, _: Index) -> Result<()> {
        Ok(())
    }
}

fn batch(base: u64, bytes: usize) -> Vec<u8> {
    let header = BatchHeader {
        base_offset: base as i64,
        batch_length: (bytes - 12) as i32,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: 1,
        max_timestamp: 1,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: 1,
    };
    let mut out = header.encode().to_vec();
    out.resize(bytes, 7);
    out
}

/// A frame with one entry of every partition.
fn frame(file: &Arc<dyn DiskFile>, round: u64, partitions: u64, entry_bytes: usize) -> std::io::Result<Arc<Frame>> {
    let native = batch(round, entry_bytes);
    let mut bytes = Vec::with_capacity(native.len() * partitions as usize);
    let mut entries = Vec::with_capacity(partitions as usize);
    for partition in 1..=partitions {
        let mut envelope = Envelope::new(PartitionId(partition), Form::KafkaV2);
        (envelope.base_offset, envelope.ordinal, envelope.count) = (Offset(round), Ordinal(round), 1);
        envelope.body = Body::Inline { len: native.len() as u32, checksum: crc32c(&native) };
        let start = bytes.len() as u32;
        bytes.extend_from_slice(&native);
        entries.push(EntryRef { envelope, native: start..bytes.len() as u32 });
    }
    let (position, len) = (round * bytes.len() as u64, bytes.len() as u32);
    file.write_all_at(&bytes, position)?;
    let place = FramePlace { file_sequence: 1, file: file.clone().as_range_source(), position, len };
    Ok(Arc::new(Frame {
        shard: ShardId(1),
        term: Term(1),
        index: Index(round),
        leader: NodeId(1),
        time_ms: round as i64,
        kind: Kind::Data,
        bytes: Bytes::from(bytes),
        entries,
        body: Bytes::new(),
        place: Some(place),
    }))
}

/// Resident memory of this process, bytes.
fn resident(env: &Env) -> u64 {
    let read = || -> Option<u64> {
        let file = env.disk.open(Path::new("/proc/self/statm"), OpenMode::Read).ok()?;
        let mut text = [0; 24];
        file.read_exact_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text).ok()?.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    read().unwrap_or(0) * 4096
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Size {
    partitions: u64,
    frames: u64,
    entry_bytes: usize,
    frames_per_merge: u64,
}

fn fill(env: &Env, dir: &Path, size: Size) -> Result<()> {
    let config = StoreConfig { tail_cache_bytes: 0, ..StoreConfig::default() };
    let (store, _) = ShardStore::open(env.clone(), dir, config)?;
    let (mut merging_ns, mut applying_ns) = (0, 0);
    let io = |e| Error::io("the example's journal", e);
    let file = env.disk.open(&dir.join("frames"), OpenMode::CreateNew).map_err(io)?;
    for round in 0..size.frames {
        let frame = frame(&file, round, size.partitions, size.entry_bytes).map_err(io)?;
        let start = env.clock.monotonic_ns();
        store.apply(&frame)?;
        applying_ns += env.clock.monotonic_ns() - start;
        if (round + 1) % size.frames_per_merge != 0 {
            continue;
        }
        let start = env.clock.monotonic_ns();
        if let Some(mut plan) = store.plan_merge(Index(round), &OneFile, &|_| 0)? {
            while let MergeProgress::More { .. } = store.run_merge_step(&mut plan, &OneFile)? {}
        }
        merging_ns += env.clock.monotonic_ns() - start;
    }
    let stats = store.stats();
    println!("filled: {stats:?}");
    let speed = stats.live_bytes * 1000 / merging_ns.max(1);
    println!("applying: {} ns an entry", applying_ns / (size.frames * size.partitions).max(1));
    println!("merging: {} ms, {speed} MB/s of native bytes", merging_ns / 1_000_000);
    Ok(())
}

fn main() -> Result<()> {
    let number = |n: usize, default: u64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let size = Size {
        partitions: number(1, 10_000),
        frames: number(2, 80),
        entry_bytes: (number(3, 100) as usize).max(HEADER_BYTES),
        frames_per_merge: number(4, 1).max(1),
    };
    let Size { partitions, frames, entry_bytes, frames_per_merge } = size;
    let env = Env::real();
    let dir = std::env::temp_dir().join(format!("polylogue-store-{:x}", env.rng.next_u64()));
    let io = |e| Error::io("the example's directory", e);
    if let Some(dir) = std::env::args().nth(5) {
        return fill(&env, Path::new(&dir), size);
    }
    env.disk.create_dir_all(&dir).map_err(io)?;
    // A process of its own, so that what filling needs does not count.
    let numbers = [partitions, frames, entry_bytes as u64, frames_per_merge].map(|n| n.to_string());
    let filler = std::env::current_exe().map_err(io)?;
    std::process::Command::new(filler).args(numbers).arg(&dir).status().map_err(io)?;
    let before = resident(&env);
    let start = env.clock.monotonic_ns();
    let (store, opened) = ShardStore::open(env.clone(), &dir, StoreConfig::default())?;
    let ms = (env.clock.monotonic_ns() - start) / 1_000_000;
    let stats = store.stats();
    println!("opened: {} segments, {} runs in {ms} ms", opened.segments, opened.runs);
    println!("index: {} bytes by its own account, {} a run", stats.index_bytes, stats.index_bytes / opened.runs.max(1));
    println!("resident memory: {before} bytes before, {} after", resident(&env));
    println!("open segment files: {}", stats.open_segments);
    let start = env.clock.monotonic_ns();
    let mut bytes = 0;
    for partition in 1..=partitions.min(1000) {
        bytes += store.read(PartitionId(partition), Offset(0), 1 << 20, true)?.wait()?.bytes;
    }
    let us = (env.clock.monotonic_ns() - start) / 1000 / partitions.clamp(1, 1000);
    println!("first read of a partition over all its runs: {us} us on average, {bytes} bytes in all");
    let start = env.clock.monotonic_ns();
    for partition in 1..=partitions.min(1000) {
        store.read(PartitionId(partition), Offset(frames / 2), entry_bytes, true)?.wait()?;
    }
    println!("a read of one entry: {} ns on average", (env.clock.monotonic_ns() - start) / partitions.clamp(1, 1000));
    drop(store);
    std::fs::remove_dir_all(&dir).map_err(io)
}
