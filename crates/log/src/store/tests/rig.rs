//! A minimal journal, entries of all kinds, and an environment to run a store on them.

use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::{self, FrameBuilder, FrameHead, HEADERS_BYTES};
use crate::frame::header::{Durable, LocalHeader, align};
use crate::frame::{Frame, FramePlace, Kind};
use crate::journal::{AdoptedFile, SealedFile};
use crate::store::open::journal_file_name;
use crate::store::{MergeProgress, MergeReport, SealedJournal, ShardStore, StoreConfig};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_env::sim::SimWorld;
use polylogue_env::{DiskFile, Env, OpenMode};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form};
use polylogue_record::kafka::{BatchHeader, HEADER_BYTES};
use polylogue_types::{Index, NodeId, Offset, Ordinal, PartitionId, ShardId, Term};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The shard's directory.
pub(super) fn dir() -> PathBuf {
    PathBuf::from("/data/shard")
}

/// Where frames begin in this journal's files.
const FILE_HEADER_BYTES: u64 = 4096;

/// An entry to write: envelope and native bytes.
pub(super) type Entry = (Envelope, Bytes);

/// A Kafka batch of `count` messages with `payload` bytes behind the header.
pub(super) fn kafka(partition: u64, ordinal: u64, base: u64, count: u32, ts: i64, payload: usize) -> Entry {
    let header = BatchHeader {
        base_offset: base as i64,
        batch_length: (HEADER_BYTES - 12 + payload) as i32,
        partition_leader_epoch: 7,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: count as i32 - 1,
        base_timestamp: ts,
        max_timestamp: ts,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count: count as i32,
    };
    let mut bytes = header.encode().to_vec();
    bytes.extend((0..payload).map(|i| (base as u8).wrapping_mul(31).wrapping_add(i as u8)));
    (envelope(Form::KafkaV2, partition, ordinal, base, count, ts, &bytes), Bytes::from(bytes))
}

/// An entry of an opaque format.
pub(super) fn opaque(partition: u64, ordinal: u64, base: u64, count: u32, ts: i64, payload: usize) -> Entry {
    let bytes: Vec<u8> = (0..payload).map(|i| (base as u8).wrapping_mul(17).wrapping_add(i as u8)).collect();
    let mut envelope = envelope(Form::AmqpMessage, partition, ordinal, base, count, ts, &bytes);
    envelope.priority = base.is_multiple_of(3).then_some((base % 10) as u8);
    envelope.expires_at = base.is_multiple_of(5).then_some(ts + 1000);
    (envelope, Bytes::from(bytes))
}

fn envelope(form: Form, partition: u64, ordinal: u64, base: u64, count: u32, ts: i64, bytes: &[u8]) -> Envelope {
    let mut e = Envelope::new(PartitionId(partition), form);
    e.ordinal = Ordinal(ordinal);
    e.base_offset = Offset(base);
    e.count = count;
    e.append_time = ts.max(0);
    e.max_timestamp = ts;
    e.leader_epoch = 7;
    e.body = Body::Inline { len: bytes.len() as u32, checksum: crc32c(bytes) };
    e
}

#[derive(Debug)]
struct File {
    sequence: u64,
    first: Option<u64>,
    last: Option<u64>,
    end: u64,
    handle: Option<Arc<dyn DiskFile>>,
    /// Index, position and length.
    frames: Vec<(u64, u64, u32)>,
}

#[derive(Debug, Default)]
struct Inner {
    /// All files ever created; those without a handle are deleted.
    files: Vec<File>,
    next: u64,
    time: i64,
}

/// Writes frames and flushes each, so that a crash never loses one.
#[derive(Debug)]
pub(super) struct FakeJournal {
    env: Mutex<Env>,
    inner: Mutex<Inner>,
    pub(super) file_bytes: u64,
}

impl FakeJournal {
    pub(super) fn new(env: Env, file_bytes: u64) -> FakeJournal {
        env.disk.create_dir_all(&dir().join("journal")).unwrap();
        for d in ["/data", "/data/shard", "/", "/data/shard/journal"] {
            env.disk.sync_dir(Path::new(d)).unwrap();
        }
        let inner = Inner { next: 1, ..Inner::default() };
        FakeJournal { env: Mutex::new(env), inner: Mutex::new(inner), file_bytes }
    }

    fn path(sequence: u64) -> PathBuf {
        dir().join("journal").join(journal_file_name(sequence))
    }

    /// Opens the existing files again.
    pub(super) fn reopen(&self, env: Env) {
        for file in &mut self.inner.lock().files {
            let path = FakeJournal::path(file.sequence);
            file.handle = env.disk.exists(&path).then(|| env.disk.open(&path, OpenMode::ReadWrite).unwrap());
        }
        *self.env.lock() = env;
    }

    /// Seals the current file.
    pub(super) fn seal(&self) {
        let env = self.env.lock();
        let mut inner = self.inner.lock();
        let sequence = inner.files.last().map_or(1, |f| f.sequence + 1);
        let handle = env.disk.open(&FakeJournal::path(sequence), OpenMode::CreateNew).unwrap();
        env.disk.sync_dir(&dir().join("journal")).unwrap();
        let (first, last, frames) = (None, None, Vec::new());
        inner.files.push(File { sequence, first, last, end: FILE_HEADER_BYTES, handle: Some(handle), frames });
    }

    /// Writes a frame of entries, clustered by partition by the caller.
    pub(super) fn write(&self, entries: &[Entry]) -> Arc<Frame> {
        self.write_kind(Kind::Data, &[], entries)
    }

    pub(super) fn write_kind(&self, kind: Kind, body: &[u8], entries: &[Entry]) -> Arc<Frame> {
        if self.inner.lock().files.last().is_none_or(|f| f.end >= self.file_bytes) {
            self.seal();
        }
        let mut inner = self.inner.lock();
        let index = inner.next;
        inner.next += 1;
        inner.time += 1;
        let bytes = frame_bytes(kind, body, index, inner.time, entries);
        let file = inner.files.last_mut().unwrap();
        let position = file.end;
        let handle = file.handle.clone().unwrap();
        handle.write_all_at(&bytes, position).unwrap();
        handle.sync_data().unwrap();
        file.end = align(position + bytes.len() as u64);
        file.first = file.first.or(Some(index));
        file.last = Some(index);
        file.frames.push((index, position, bytes.len() as u32));
        let place = FramePlace {
            file_sequence: file.sequence,
            file: handle.as_range_source(),
            position,
            len: bytes.len() as u32,
        };
        Arc::new(decode(Bytes::from(bytes), Some(place)))
    }

    /// Returns the frames from an index on, as in recovery. `heads_only` leaves the native bytes out.
    pub(super) fn replay(&self, from: Index, heads_only: bool) -> Vec<Arc<Frame>> {
        let inner = self.inner.lock();
        let mut frames = Vec::new();
        for file in &inner.files {
            for (_, position, len) in file.frames.iter().filter(|(i, ..)| *i >= from.0) {
                let handle = file.handle.clone().expect("a file that is still needed is gone");
                let mut bytes = vec![0; *len as usize];
                handle.read_exact_at(&mut bytes, *position).unwrap();
                let place = FramePlace {
                    file_sequence: file.sequence,
                    file: handle.as_range_source(),
                    position: *position,
                    len: *len,
                };
                let mut frame = decode(Bytes::from(bytes), Some(place));
                if heads_only {
                    let natives = frame.entries.iter().map(|e| e.native.start).min();
                    frame.bytes = frame.bytes.slice(..natives.map_or(frame.bytes.len(), |n| n as usize));
                }
                frames.push(Arc::new(frame));
            }
        }
        frames
    }

    /// Paths of the files that are there.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let inner = self.inner.lock();
        inner.files.iter().filter(|f| f.handle.is_some()).map(|f| FakeJournal::path(f.sequence)).collect()
    }

    pub(super) fn last_index(&self) -> Index {
        Index(self.inner.lock().next - 1)
    }
}

impl SealedJournal for FakeJournal {
    fn sealed_files(&self) -> Vec<SealedFile> {
        let inner = self.inner.lock();
        let all = inner.files.len();
        let sealed = inner.files.iter().take(all.saturating_sub(1)).filter(|f| f.handle.is_some());
        sealed
            .map(|f| SealedFile {
                sequence: f.sequence,
                indexes: f.first.zip(f.last).map(|(a, b)| (Index(a), Index(b))),
                end: f.end,
            })
            .collect()
    }

    fn adopt(&self, sequence: u64) -> Result<AdoptedFile> {
        let sealed = self.sealed_files().into_iter().find(|f| f.sequence == sequence);
        let sealed = sealed.ok_or_else(|| Error::new(ErrorKind::OutOfRange, "no such sealed file"))?;
        let mut inner = self.inner.lock();
        let older = inner.files.iter().any(|f| f.sequence < sequence && f.handle.is_some() && f.last.is_some());
        if older {
            return Err(Error::new(ErrorKind::Invalid, "an older file is not released"));
        }
        let file = inner.files.iter_mut().find(|f| f.sequence == sequence).unwrap();
        Ok(AdoptedFile { sealed, path: FakeJournal::path(sequence), file: file.handle.take().unwrap() })
    }

    fn release(&self, upto: Index) -> Result<()> {
        let env = self.env.lock();
        let mut inner = self.inner.lock();
        let all = inner.files.len();
        for file in inner.files.iter_mut().take(all.saturating_sub(1)) {
            if file.last.is_none_or(|last| last <= upto.0) && file.handle.take().is_some() {
                env.disk.remove(&FakeJournal::path(file.sequence)).map_err(|e| Error::io("remove", e))?;
            }
        }
        Ok(())
    }
}

fn frame_bytes(kind: Kind, body: &[u8], index: u64, time_ms: i64, entries: &[Entry]) -> Vec<u8> {
    let mut builder = FrameBuilder::new(HEADERS_BYTES, body);
    entries.iter().for_each(|(envelope, _)| builder.envelope(envelope));
    for (envelope, native) in entries {
        if matches!(envelope.body, Body::Inline { .. }) {
            builder.native(native);
        }
    }
    let (shard, term, leader) = (ShardId(1), Term(1), NodeId(1));
    let head = FrameHead { kind, shard, term, index: Index(index), leader, time_ms };
    let (mut bytes, _, content) = builder.finish(&head, entries.len());
    let (len, durable) = (bytes.len() as u32, Durable::default());
    codec::seal(&mut bytes, &LocalHeader { kind: kind as u8, len, previous: 0, salt: 0, durable, content });
    bytes
}

fn decode(bytes: Bytes, place: Option<FramePlace>) -> Frame {
    let parsed = codec::parse(&bytes).unwrap();
    let kind = codec::kind_of(&parsed).unwrap().unwrap();
    codec::decode(kind, &parsed, bytes, place).unwrap()
}

/// A store, its journal and their simulated environment.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) world: SimWorld,
    pub(super) store: ShardStore,
    pub(super) journal: FakeJournal,
    pub(super) config: StoreConfig,
}

/// Small limits, so that everything happens with little data.
pub(super) fn small() -> StoreConfig {
    StoreConfig {
        tail_cache_bytes: 8 << 10,
        index_interval_bytes: 512,
        index_cache_bytes: 4 << 10,
        open_segments_max: 3,
        merge_bytes: 16 << 10,
        journal_keep_bytes_max: 1 << 20,
        merge_step_bytes: 4 << 10,
        adopt_run_bytes_min: 1 << 30,
        adopt_stretch_bytes_min: 1 << 30,
        ..StoreConfig::default()
    }
}

impl Rig {
    pub(super) fn new(seed: u64, config: StoreConfig, file_bytes: u64) -> Rig {
        Rig::on(SimWorld::new(seed), config, file_bytes)
    }

    pub(super) fn on(world: SimWorld, config: StoreConfig, file_bytes: u64) -> Rig {
        let journal = FakeJournal::new(world.env(), file_bytes);
        let (store, _) = ShardStore::open(world.env(), &dir(), config).unwrap();
        Rig { world, store, journal, config }
    }

    /// Writes and applies a frame.
    pub(super) fn write(&self, entries: &[Entry]) -> Index {
        let frame = self.journal.write(entries);
        self.store.apply(&frame).unwrap();
        frame.index
    }

    /// Marks applied state as durable up to the last frame.
    pub(super) fn checkpoint(&self) {
        self.store.checkpoints().unwrap().write(self.journal.last_index(), []).unwrap();
    }

    /// Merges up to `upto`, in as many steps as needed.
    pub(super) fn merge(&self, upto: Index) -> MergeReport {
        self.try_merge(upto, &|_| 0).unwrap()
    }

    pub(super) fn try_merge(&self, upto: Index, classes: &dyn Fn(PartitionId) -> u8) -> Result<MergeReport> {
        let mut total = MergeReport::default();
        while let Some(mut plan) = self.store.plan_merge(upto, &self.journal, &|id| classes(id))? {
            loop {
                if let MergeProgress::Done(report) = self.store.run_merge_step(&mut plan, &self.journal)? {
                    total.upto = report.upto;
                    total.segments += report.segments;
                    total.written += report.written;
                    total.adopted += report.adopted;
                    total.damaged += report.damaged;
                    break;
                }
            }
        }
        Ok(total)
    }

    /// Seals the journal's file, takes a checkpoint and merges everything.
    pub(super) fn merge_all(&self) -> MergeReport {
        self.journal.seal();
        self.checkpoint();
        self.merge(self.journal.last_index())
    }

    /// Opens the store again and replays the journal.
    pub(super) fn reopen(&mut self, heads_only: bool) {
        let env = self.world.env();
        let (store, opened) = ShardStore::open(env.clone(), &dir(), self.config).unwrap();
        assert!(opened.lost.is_empty(), "{opened:?}");
        self.store = store;
        self.journal.reopen(env);
        for frame in self.journal.replay(self.store.journal_from(), heads_only) {
            self.store.apply(&frame).unwrap();
        }
    }

    /// Reads a partition from an offset to its end, in pieces.
    pub(super) fn read_all(&self, partition: u64, from: u64, max_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let (mut at, mut out, mut start) = (Offset(from), Vec::new(), None);
        loop {
            let result = self.store.read(PartitionId(partition), at, max_bytes, true)?.wait()?;
            for chunk in &result.chunks {
                out.extend_from_slice(&chunk.to_bytes().unwrap());
            }
            start = start.or((result.bytes > 0).then_some(result.start.0));
            assert_eq!(result.chunks.iter().map(|c| c.len() as u64).sum::<u64>(), result.bytes);
            if result.next == at || !result.more {
                return Ok((start.unwrap_or(from), out));
            }
            at = result.next;
        }
    }
}
