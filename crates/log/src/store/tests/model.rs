//! Random histories compared with a model that keeps every entry in a list.

use super::rig::{Entry, Rig, dir, kafka, opaque, small};
use crate::checkpoint::ChunkKey;
use crate::error::ErrorKind;
use crate::store::{ColdRuns, MergePlan, MergeProgress, ReadWanted, ShardStore, StoreConfig, check_segments};
use bytes::Bytes;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimRng};
use polylogue_record::envelope::Body;
use polylogue_types::{Index, Offset, PartitionId};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct ModelPartition {
    entries: Vec<Entry>,
    log_start: u64,
    next: u64,
    next_ordinal: u64,
}

impl ModelPartition {
    /// Returns the readable entries from an offset on.
    fn from(&self, offset: u64) -> &[Entry] {
        let at = self.entries.partition_point(|(e, _)| e.next_offset().0 <= offset.max(self.log_start));
        &self.entries[at..]
    }

    fn first(&self) -> u64 {
        self.from(0).first().map_or(self.next, |(e, _)| e.base_offset.0).max(self.log_start)
    }

    fn last(&self) -> u64 {
        self.next.max(self.log_start)
    }
}

/// Applied state as in the checkpoint.
type Chunks = BTreeMap<Vec<u8>, Vec<u8>>;

struct Harness {
    rng: SimRng,
    rig: Rig,
    plan: Option<MergePlan>,
    partitions: BTreeMap<u64, ModelPartition>,
    next_partition: u64,
    time: i64,
    chunks: Chunks,
    saved: (Option<Index>, Chunks),
    /// Counts of actions, to detect histories without any.
    done: BTreeMap<&'static str, u64>,
}

impl Harness {
    fn new(seed: u64) -> Harness {
        let rng = SimRng::derive(seed, "store");
        let pick = |values: &[usize]| values[rng.below(values.len() as u64) as usize];
        let config = StoreConfig {
            tail_cache_bytes: pick(&[0, 2 << 10, 64 << 10]),
            index_interval_bytes: pick(&[64, 512, 4096]) as u32,
            index_cache_bytes: pick(&[0, 4 << 10]),
            merge_step_bytes: pick(&[300, 4 << 10, 64 << 10]),
            adopt_run_bytes_min: pick(&[300, 1 << 30]) as u64,
            adopt_stretch_bytes_min: pick(&[1000, 1 << 30]) as u64,
            adopt_rows_bytes_max: pick(&[0, 2000, 1 << 20]),
            open_segments_max: pick(&[1, 8]),
            compact_segments: pick(&[2, 3]),
            ..small()
        };
        let rig = Rig::new(seed, config, pick(&[6 << 10, 20 << 10]) as u64);
        Harness {
            rng,
            rig,
            plan: None,
            partitions: BTreeMap::new(),
            next_partition: 1,
            time: 1000,
            chunks: Chunks::new(),
            saved: (None, Chunks::new()),
            done: BTreeMap::new(),
        }
    }

    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn any_partition(&self) -> Option<u64> {
        let count = self.partitions.len() as u64;
        self.partitions.keys().nth(self.rng.below(count) as usize).copied()
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..45 => self.write(),
            45..53 => self.trim(),
            53..54 => self.drop_partition(),
            54..62 => self.merge_step(),
            62..66 => self.reclaim(),
            66..70 => drop(self.checkpoint()),
            70..72 => {
                let (min, max) = (self.rng.below(8 << 10) as usize, self.rng.below(32 << 10) as usize);
                self.rig.store.set_tail_cache_bytes(min, max);
                self.rig.store.release_unused_reads();
            }
            72..74 => self.crash(),
            74..77 => self.power_cut(),
            77..78 => self.plan = None,
            _ => self.look(),
        }
    }

    fn write(&mut self) {
        let mut frame: Vec<Entry> = Vec::new();
        let mut clustered: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..=self.rng.below(4) {
            let id = match self.any_partition() {
                Some(id) if self.rng.below(8) > 0 => id,
                _ => {
                    self.next_partition += 1;
                    self.partitions.insert(self.next_partition, ModelPartition::default());
                    self.next_partition
                }
            };
            *clustered.entry(id).or_default() += 1 + self.rng.below(3);
        }
        for (id, count) in clustered {
            for _ in 0..count {
                let entry = self.entry(id, &frame);
                frame.push(entry);
            }
        }
        self.rig.write(&frame);
        for (envelope, bytes) in frame.into_iter().filter(|(e, _)| e.count > 0) {
            if let Some(p) = self.partitions.get_mut(&envelope.partition.0) {
                p.entries.push((envelope, bytes));
            }
        }
        self.did("frames");
    }

    fn entry(&mut self, id: u64, frame: &[Entry]) -> Entry {
        self.time += self.rng.below(5) as i64 - 1;
        let ts = if self.rng.below(10) == 0 { -1 } else { self.time - self.rng.below(20) as i64 };
        let Some(p) = self.partitions.get_mut(&id) else { return kafka(id, 0, 0, 1, ts, 1) };
        // Sometimes offsets or ordinals have a gap.
        let base = p.next + if !is_gapless(id) && self.rng.below(12) == 0 { 1 + self.rng.below(5) } else { 0 };
        let ordinal = p.next_ordinal + u64::from(self.rng.below(12) == 0);
        let count = 1 + self.rng.below(6) as u32;
        let size = self.rng.below(if self.rng.below(10) == 0 { 3000 } else { 300 }) as usize;
        p.next_ordinal = ordinal + 1;
        if id.is_multiple_of(2) {
            p.next = base + u64::from(count);
            return kafka(id, ordinal, base, count, ts, size);
        }
        let count = if self.rng.below(15) == 0 { 0 } else { count };
        let (mut envelope, bytes) = opaque(id, ordinal, base, count, ts, size);
        p.next = if count == 0 { p.next } else { base + u64::from(count) };
        let inline = |(e, _): &&Entry| matches!(e.body, Body::Inline { .. }) && e.form == envelope.form;
        if let Some((at, target)) = frame.iter().enumerate().find(|(_, e)| inline(e))
            && self.rng.below(4) == 0
        {
            envelope.body = Body::Ref { entry: at as u32 };
            return (envelope, target.1.clone());
        }
        (envelope, bytes)
    }

    fn trim(&mut self) {
        let Some(id) = self.any_partition() else { return };
        let Some(p) = self.partitions.get_mut(&id) else { return };
        let ahead = self.rng.below((p.last() - p.log_start + 1).max(1));
        let start = p.log_start + if self.rng.below(10) == 0 { p.last() - p.log_start } else { ahead / 2 };
        p.log_start = start;
        self.rig.store.trim(PartitionId(id), Offset(start));
        self.did("trims");
    }

    fn drop_partition(&mut self) {
        let Some(id) = self.any_partition() else { return };
        self.partitions.remove(&id);
        self.rig.store.drop_partition(PartitionId(id));
        assert!(self.rig.store.partition_stats(PartitionId(id)).is_none());
        self.did("drops");
    }

    /// One step of a merge; errors come from power cuts only.
    fn merge_step(&mut self) {
        if self.plan.is_none() {
            let sealed = crate::store::SealedJournal::sealed_files(&self.rig.journal);
            let covered = self.saved.0.unwrap_or(Index(0));
            // Mostly whole files, as the policy proposes; sometimes any frame.
            let last = sealed.iter().filter_map(|f| f.indexes).map(|(_, last)| last).rfind(|l| *l <= covered);
            let anywhere = Index(self.rng.below(covered.0 + 1));
            let upto = if self.rng.below(4) == 0 { Some(anywhere) } else { last };
            let Some(upto) = upto else { return };
            let classes = |p: PartitionId| (p.0 % 3) as u8;
            let Ok(plan) = self.rig.store.plan_merge(upto, &self.rig.journal, &classes) else { return };
            self.plan = plan;
        }
        for _ in 0..=self.rng.below(8) {
            let Some(plan) = &mut self.plan else { return };
            match self.rig.store.run_merge_step(plan, &self.rig.journal) {
                Ok(MergeProgress::More { .. }) => {}
                Ok(MergeProgress::Done(report)) => {
                    assert_eq!(report.damaged, 0);
                    self.plan = None;
                    self.did("merges");
                    if report.adopted > 0 {
                        self.did("adoptions");
                    }
                }
                Err(e) => {
                    assert!(self.rig.world.disk.is_stopped(), "{e}");
                    self.plan = None;
                }
            }
        }
    }

    fn reclaim(&mut self) {
        while let Ok(done) = self.rig.store.reclaim_step() {
            if done.removed > 0 {
                self.did("removed segments");
            }
            if done.compacted > 0 {
                self.did("joined segments");
            }
            if done.punched > 0 {
                self.did("holes");
            }
            if !done.more {
                break;
            }
        }
    }

    fn checkpoint(&mut self) -> bool {
        let mut changed: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..self.rng.below(6) {
            let key = vec![self.rng.below(20) as u8; 3];
            let value = (self.rng.below(4) > 0).then(|| vec![self.rng.below(256) as u8; self.rng.below(400) as usize]);
            changed.insert(key, value);
        }
        let mut next = self.saved.1.clone();
        for (key, value) in &changed {
            match value {
                Some(value) => drop(next.insert(key.clone(), value.clone())),
                None => drop(next.remove(key)),
            }
        }
        self.chunks = next.clone();
        let key = |k: Vec<u8>| ChunkKey { kind: 4, id: Bytes::from(k) };
        let changed = changed.into_iter().map(|(k, v)| (key(k), v.map(Bytes::from)));
        let applied = self.rig.journal.last_index();
        let written = self.rig.store.checkpoints().and_then(|c| c.write(applied, changed));
        match written {
            Ok(_) => {
                self.saved = (Some(applied), next);
                self.did("checkpoints");
                true
            }
            Err(e) => {
                assert!(self.rig.world.disk.is_stopped(), "{e}");
                false
            }
        }
    }

    /// Cuts the power or kills the process, then opens everything again.
    fn crash(&mut self) {
        self.plan = None;
        if self.rng.below(3) == 0 {
            self.rig.world.kill();
        } else {
            self.rig.world.crash();
        }
        self.reopen();
        self.did("crashes");
    }

    fn reopen(&mut self) {
        let env = self.rig.world.env();
        let (store, opened) = ShardStore::open(env.clone(), &dir(), self.rig.config).unwrap();
        assert!(opened.lost.is_empty(), "{opened:?}");
        self.rig.store = store;
        self.rig.journal.reopen(env);
        let trims = |harness: &Harness| {
            for (id, p) in &harness.partitions {
                harness.rig.store.trim(PartitionId(*id), Offset(p.log_start));
            }
        };
        if self.rng.below(4) == 0 {
            trims(self);
        }
        for frame in self.rig.journal.replay(self.rig.store.journal_from(), self.rng.below(2) == 0) {
            self.rig.store.apply(&frame).unwrap();
        }
        self.rig.store.retain_partitions(|id| self.partitions.contains_key(&id.0));
        self.expect_all();
        trims(self);
        self.check_checkpoint();
        self.check_all();
    }

    /// Checks partitions without gaps against their expected ranges; the known log start may be older than what was already
    /// removed.
    fn expect_all(&mut self) {
        for (id, p) in self.partitions.iter().filter(|(id, _)| is_gapless(**id)) {
            let known = if self.rng.below(2) == 0 { p.log_start } else { self.rng.below(p.log_start + 1) };
            let start = self.rig.store.expect(PartitionId(*id), Offset(known), Offset(p.last()));
            assert!(start.0 >= known && start.0 <= p.log_start, "partition {id}: {start} for {known}, {}", p.log_start);
            *self.done.entry("late log starts").or_default() += u64::from(start.0 > known);
            self.rig.store.trim(PartitionId(*id), Offset(p.log_start));
        }
    }

    /// Cuts the power at some operation of background work.
    fn power_cut(&mut self) {
        let nth = 1 + self.rng.below(12);
        self.rig.world.disk.inject(Fault::nth(FaultOp::AnyChange, nth, FaultKind::PowerCut));
        match self.rng.below(3) {
            0 => (0..4).for_each(|_| self.merge_step()),
            1 => self.reclaim(),
            _ => {
                // Afterwards either this checkpoint or the one before exists.
                if !self.checkpoint() {
                    self.did("torn checkpoints");
                }
            }
        }
        let cut = self.rig.world.disk.is_stopped();
        self.rig.world.disk.clear_faults();
        if cut {
            self.did("power cuts");
            self.plan = None;
            self.rig.world.crash();
            self.reopen();
        }
    }

    fn check_checkpoint(&mut self) {
        let store = self.rig.store.checkpoints().unwrap();
        let mut found = Chunks::new();
        let applied = store
            .load(&mut |key, chunk| {
                assert_eq!(key.kind, 4);
                assert!(found.insert(key.id.to_vec(), chunk.to_vec()).is_none());
                Ok(())
            })
            .unwrap();
        let before = applied == self.saved.0 && found == self.saved.1;
        let after = applied >= self.saved.0 && found == self.chunks;
        assert!(before || after, "{applied:?} {found:?}, saved {:?}", self.saved);
        self.saved = (applied, found);
    }

    /// Queries a random position of a random partition.
    fn look(&mut self) {
        let Some(id) = self.any_partition() else { return };
        let p = &self.partitions[&id];
        let from = p.log_start.saturating_sub(2) + self.rng.below(p.last() - p.log_start + 6);
        match self.rng.below(5) {
            0 => self.check_time(id),
            1 => self.check_entry(id, from),
            _ => {
                let max = [0, 1, 100, 500, 3000, 1 << 20][self.rng.below(6) as usize];
                self.check_read(id, from, max, self.rng.below(2) == 0);
            }
        }
        self.did("questions");
    }

    /// The prefetch of a fetch of a partition and others.
    fn prefetch(&self, id: u64, from: u64, bytes_max: usize) -> ColdRuns {
        let other = self.partitions.keys().find(|other| **other != id).copied();
        let others = other.map(|other| (other, self.partitions[&other].log_start));
        let wanted = [(id, from)].into_iter().chain(others).map(|(id, from)| {
            let (partition, from) = (PartitionId(id), Offset(from));
            ReadWanted { partition, from, bytes_max }
        });
        let plan = self.rig.store.prefetch(&wanted.collect::<Vec<_>>(), 1 << 20);
        plan.map_or(ColdRuns::Take, |plan| ColdRuns::Within(plan.run()))
    }

    fn check_read(&self, id: u64, from: u64, max: usize, at_least_one: bool) {
        let p = &self.partitions[&id];
        let what = format!("partition {id} from {from}, {max} bytes, at least one {at_least_one}");
        let cold = match (from + max as u64) % 4 {
            0 => ColdRuns::Take,
            1 => ColdRuns::Ask,
            _ => self.prefetch(id, from, max),
        };
        let result =
            self.rig.store.read_with(PartitionId(id), Offset(from), max, at_least_one, cold).and_then(|l| l.wait());
        // Between the log start and the first entry both a result and an error are valid.
        let gap = from >= p.log_start && from < p.first();
        let result = match result {
            Err(e) => {
                assert!(gap || from < p.first() || from > p.last(), "{what}: {e}");
                assert_eq!(e.kind, ErrorKind::OutOfRange, "{what}: {e}");
                return;
            }
            Ok(result) => result,
        };
        assert!(gap || (from >= p.first() && from <= p.last()), "{what}: {result:?}");
        let expected = p.from(from);
        let mut bytes = Vec::new();
        for chunk in &result.chunks {
            bytes.extend_from_slice(&chunk.to_bytes().unwrap());
        }
        assert_eq!(bytes.len() as u64, result.bytes, "{what}");
        let (mut taken, mut count) = (Vec::new(), 0);
        for (_, native) in expected {
            if result.next < expected[count].0.next_offset() {
                break;
            }
            taken.extend_from_slice(native);
            count += 1;
        }
        assert!(taken == bytes, "{what}: {count} entries, {} and {} bytes", taken.len(), bytes.len());
        // An entry without bytes always fits.
        let forced = at_least_one && expected[..count].iter().filter(|(_, b)| !b.is_empty()).count() <= 1;
        assert!(bytes.len() <= max || forced, "{what}: {} bytes", bytes.len());
        if let Some((first, native)) = expected.first() {
            assert!(count > 0 || (!at_least_one && native.len() > max), "{what}: nothing came");
            if count > 0 {
                assert_eq!(result.start, first.base_offset, "{what}");
                let end = expected[count - 1].0.next_offset();
                let next = expected.get(count).map_or(Offset(p.last()), |(e, _)| e.base_offset);
                assert!(result.next >= end && result.next <= next, "{what}: {result:?}");
            }
        }
        assert_eq!(result.more, result.next.0 < p.last(), "{what}");
    }

    fn check_entry(&self, id: u64, offset: u64) {
        let p = &self.partitions[&id];
        let what = format!("partition {id}, entry at {offset}");
        let found = self.rig.store.entry_at(PartitionId(id), Offset(offset)).and_then(|l| l.wait());
        match found {
            Ok(entry) => {
                let (envelope, bytes) = p.from(offset).first().expect(&what);
                assert!(offset >= p.log_start, "{what}");
                assert_eq!((entry.location.base, &entry.bytes), (envelope.base_offset, bytes), "{what}");
                assert_eq!(entry.location.end, envelope.next_offset(), "{what}");
                assert_eq!(entry.location.ordinal, envelope.ordinal, "{what}");
                assert_eq!(entry.location.max_timestamp, envelope.max_timestamp, "{what}");
                if let Some(found) = entry.envelope {
                    let body = found.body;
                    assert_eq!(without_body(&found), without_body(envelope), "{what}");
                    if let Body::Inline { len, .. } = body {
                        assert_eq!(len as usize, bytes.len(), "{what}");
                    }
                }
            }
            Err(e) => {
                assert_eq!(e.kind, ErrorKind::OutOfRange, "{what}: {e}");
                assert!(offset < p.first() || p.from(offset).is_empty(), "{what}: {e}");
            }
        }
    }

    fn check_time(&self, id: u64) {
        let p = &self.partitions[&id];
        let live = p.from(0);
        let time = self.time - 60 + self.rng.below(70) as i64;
        let first = |at: i64| live.iter().find(|(e, _)| e.max_timestamp >= at).map(|(e, _)| e.base_offset);
        let found = self.rig.store.find_by_time(PartitionId(id), time, Offset(0)).unwrap().wait().unwrap();
        assert_eq!(found.map(|e| e.base), first(time), "partition {id}, time {time}");
        let highest = live.iter().map(|(e, _)| e.max_timestamp).max();
        let found = self.rig.store.max_timestamp_entry(PartitionId(id), Offset(0)).unwrap().wait().unwrap();
        assert_eq!(found.map(|e| e.base), highest.and_then(first), "partition {id}, highest time");
        let from = Offset(p.log_start + self.rng.below(1 + p.last().saturating_sub(p.log_start)));
        let behind = live.iter().map(|(e, _)| e).filter(|e| e.next_offset() > from);
        let found = self.rig.store.find_by_time(PartitionId(id), time, from).unwrap().wait().unwrap();
        let first = behind.clone().find(|e| e.max_timestamp >= time).map(|e| e.base_offset);
        assert_eq!(found.map(|e| e.base), first, "partition {id}, time {time} from {from}");
        let highest = behind.clone().map(|e| e.max_timestamp).max();
        let first = behind.clone().find(|e| Some(e.max_timestamp) == highest).map(|e| e.base_offset);
        let found = self.rig.store.max_timestamp_entry(PartitionId(id), from).unwrap().wait().unwrap();
        assert_eq!(found.map(|e| e.base), first, "partition {id}, highest time from {from}");
    }

    fn check_all(&self) {
        for (id, p) in &self.partitions {
            let mut at = p.first();
            while at < p.last() {
                self.check_read(*id, at, 2000, true);
                at = p.from(at).first().map_or(p.last(), |(e, _)| e.next_offset().0);
            }
            self.check_time(*id);
            if let Some(stats) = self.rig.store.partition_stats(PartitionId(*id)) {
                let live: u64 = p.from(0).iter().map(|(_, b)| b.len() as u64).sum();
                assert!(stats.bytes >= live, "partition {id}: {stats:?} for {live} bytes");
                assert_eq!(stats.end.0, p.last());
            }
        }
        assert_eq!(self.rig.store.fenced(), []);
        assert_eq!(check_segments(&self.rig.world.env(), &dir()).unwrap(), []);
    }
}

/// Whether a partition's offsets must be consecutive.
fn is_gapless(id: u64) -> bool {
    !id.is_multiple_of(3)
}

fn without_body(envelope: &polylogue_record::envelope::Envelope) -> polylogue_record::envelope::Envelope {
    polylogue_record::envelope::Envelope { body: Body::Ref { entry: 0 }, ..envelope.clone() }
}

#[test]
fn random_histories_agree_with_the_model() {
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    let seeds = std::env::var("POLYLOGUE_STORE_SEEDS").ok().and_then(|v| v.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let mut harness = Harness::new(seed);
        let history = std::panic::AssertUnwindSafe(|| {
            for _ in 0..250 {
                harness.step();
            }
            harness.check_all();
        });
        if let Err(panic) = std::panic::catch_unwind(history) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
        harness.done.into_iter().for_each(|(what, count)| *done.entry(what).or_default() += count);
    }
    // A history must have exercised everything.
    for what in [
        "frames",
        "trims",
        "drops",
        "merges",
        "adoptions",
        "removed segments",
        "holes",
        "crashes",
        "power cuts",
        "late log starts",
        "joined segments",
    ] {
        assert!(done.get(what).is_some_and(|n| *n >= 10), "{what}: {done:?}");
    }
}
