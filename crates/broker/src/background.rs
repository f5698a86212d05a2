//! Background work: deadlines, retention, checkpoints, merges, disk space, and recovery of a lost writer.
//!
//! Two threads in a running broker; the simulator calls [`Broker::tick`] and [`Broker::background_step`] itself.

use crate::broker::{Broker, Inner};
use crate::checkpoint::Captured;
use crate::error::{Error, ErrorKind, Result};
use crate::layers;
use crate::machines::Outbox;
use crate::queues::lease_ms;
use crate::record::{BROKER_PARTITION, BrokerRecord};
use crate::shard::{Shard, ShardState};
use polylogue_api::{Durability, TopicConfig};
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::journal::Urgency;
use polylogue_log::store::{Classes, JournalWaste, MergeDue, MergePlan, MergeProgress, Retention, retention_class};
use polylogue_replicate::{LocalFiles, Role, Work};
use polylogue_types::{Map, Offset, PartitionId, ShardId, Term, TimestampMs};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest sleep of the timer thread. Milliseconds.
const TIMER_MS_MAX: u64 = 500;
/// Calls of machines for passed deadlines per turn of the timer; the rest follows in the next turn, without a wait.
const DEADLINES_PER_TICK_MAX: usize = 256;
/// Interval of checks of the free disk space. Milliseconds.
const ROOM_CHECK_MS: u64 = 500;
/// Interval of checks for idle producers. Milliseconds.
const PRODUCER_CHECK_MS: u64 = 600_000;
/// Producers that one record expires at most, unless a single partition has more.
const EXPIRED_AT_ONCE_MAX: usize = 4_096;
/// Interval of checks for unused data that was read back from disk. Milliseconds.
const UNUSED_READS_MS: u64 = 10_000;
/// Minimum interval of retention checks. Milliseconds.
const RETENTION_LOOK_MS: u64 = 1_000;
/// Retention checks of a partition per retention time, if `retention_check_ms` would be too long an interval.
const LOOKS_PER_RETENTION: u64 = 10;
/// Log starts that one retention check moves at most; the next check does the rest.
const TRIMS_PER_LOOK_MAX: usize = 4096;

/// Journal files are not ended early when less than this is free. Bytes.
const SEAL_FREE_BYTES_MIN: u64 = 4 << 20;

const NS_PER_S: u64 = 1_000_000_000;
/// Period over which the inflow of a journal is measured. Nanoseconds.
const INFLOW_NS: u64 = NS_PER_S;
/// Inflow below which background writes run without regard to publishers. Bytes per second.
pub(crate) const QUIET_BYTES_PER_SEC: u64 = 1 << 20;
/// The slowest pace of background writes, unless a slower one is configured. Bytes per second.
pub(crate) const MERGE_BYTES_PER_SEC_MIN: u64 = 32 << 20;
/// Cold reads of a shard below this amount are ignored. Bytes.
const COLD_READS_BYTES_MIN: u64 = 1 << 20;
/// Time for which a cold read counts. Nanoseconds.
const COLD_READS_NS: u64 = NS_PER_S / 2;
/// Divisor of the bytes that a merge preloads, in comparison with bytes written, for the pace.
const PRELOAD_COST: u64 = 4;
/// Sealed journal at which merges run at full pace, as a multiple of the amount that makes a merge due.
const MERGES_BEHIND_MAX: u64 = 3;

/// Due times, in monotonic milliseconds, and work in progress.
#[derive(Debug, Default)]
pub(crate) struct Due {
    room_ms: u64,
    retention_ms: u64,
    /// Time of the last retention check.
    retention_looked_ms: u64,
    producers_ms: u64,
    reads_ms: u64,
    captured: Map<ShardId, Captured>,
    merges: Map<ShardId, MergePlan>,
    indexes: Map<ShardId, IndexGrowth>,
    inflows: Map<ShardId, Inflow>,
    cold_reads: Map<ShardId, ColdReads>,
}

/// Cold reads of a shard (readers behind the cached part of the log).
#[derive(Clone, Copy, Debug, Default)]
struct ColdReads {
    /// The store's counter at the last time that cold reads counted. Bytes.
    counted: u64,
    /// The last time that cold reads counted.
    at_ns: Option<u64>,
}

impl ColdReads {
    /// Returns whether cold reads are in progress, by the store's counter.
    fn go_on(&mut self, now_ns: u64, bytes: u64) -> bool {
        if bytes.saturating_sub(self.counted) >= COLD_READS_BYTES_MIN {
            (self.counted, self.at_ns) = (bytes, Some(now_ns));
        }
        self.at_ns.is_some_and(|at| now_ns.saturating_sub(at) < COLD_READS_NS)
    }
}

/// Growth rate of a journal, sampled about once a second.
#[derive(Clone, Copy, Debug, Default)]
struct Inflow {
    since_ns: u64,
    /// The journal's byte counter at the last sample.
    written: u64,
    bytes_per_sec: u64,
}

impl Inflow {
    fn look(&mut self, now_ns: u64, written: u64) {
        let past_ns = now_ns.saturating_sub(self.since_ns);
        if past_ns < INFLOW_NS {
            return;
        }
        let grown = u128::from(written.saturating_sub(self.written)) * u128::from(NS_PER_S) / u128::from(past_ns);
        *self = Inflow { since_ns: now_ns, written, bytes_per_sec: u64::try_from(grown).unwrap_or(u64::MAX) };
    }
}

/// Growth of the store's index over a shard's journal. Only merges shrink it, and they take whole files that a checkpoint covers: with small entries
/// the index reaches its bound long before a file is full.
#[derive(Clone, Copy, Debug, Default)]
struct IndexGrowth {
    /// Size at the last checkpoint, or after a merge since then. Bytes.
    base: usize,
    /// The current file was ended because of index growth since the last checkpoint.
    sealed: bool,
}

/// What the index needs before it reaches its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IndexDemand {
    Nothing,
    /// End the journal's current file, so that the next checkpoint covers it as a whole.
    Seal,
    Checkpoint,
}

impl IndexGrowth {
    /// Returns what an index of `bytes` needs if merges start at `bytes_max`.
    fn look(&mut self, bytes: usize, bytes_max: usize) -> IndexDemand {
        self.base = self.base.min(bytes);
        let grown = bytes - self.base;
        if grown >= bytes_max / 2 {
            *self = IndexGrowth { base: bytes, sealed: false };
            IndexDemand::Checkpoint
        } else if grown >= bytes_max / 8 * 3 && !self.sealed {
            self.sealed = true;
            IndexDemand::Seal
        } else {
            IndexDemand::Nothing
        }
    }
}

impl Broker {
    /// Starts the threads of the journals, the readers and the background work.
    ///
    /// # Errors
    /// `Io` if the system cannot start a thread.
    pub fn start(&self) -> Result<()> {
        let inner = &self.inner;
        let failed = |e: std::io::Error| Error::new(ErrorKind::Io, format!("cannot start a thread: {e}"));
        inner.running.store(true, Ordering::Release);
        for shard in inner.all_shards() {
            shard.log.run()?;
        }
        inner.readers.start(&inner.env, inner.config.reader_threads).map_err(failed)?;
        let timer = inner.clone();
        let worker = inner.clone();
        let timer = inner.env.tasks.spawn("pl-timer", Box::new(move || timer.run_timer())).map_err(failed)?;
        let worker =
            inner.env.tasks.spawn_behind("pl-worker", Box::new(move || worker.run_worker())).map_err(failed)?;
        inner.threads.lock().extend([timer, worker]);
        Ok(())
    }

    /// Does the work that is due. Costs little if none is.
    pub fn tick(&self) {
        self.inner.tick();
    }

    /// The next time that [`Broker::tick`] must be called, in monotonic milliseconds of [`Broker::now`].
    #[must_use]
    pub fn next_tick_ms(&self) -> u64 {
        self.inner.next_tick_ms()
    }

    /// Does one bounded piece of background work. Returns `false` if there was none.
    pub fn background_step(&self) -> bool {
        self.inner.background_step()
    }

    /// Does one step of every shard's log and of the readers, for a broker without threads. Returns `false` if there was none.
    pub fn log_step(&self, work: Work) -> bool {
        let mut did = false;
        for shard in self.inner.all_shards() {
            did |= shard.log.step(work);
        }
        did
    }

    /// Runs one waiting disk read, for a broker without threads.
    pub fn read_step(&self) -> bool {
        self.inner.readers.step()
    }

    /// Drops the queued reads of a broker without threads when the simulator kills its process. The reads and the broker own each other.
    pub fn forget_reads(&self) {
        self.inner.readers.stop();
    }

    /// Stops accepting requests, flushes, writes a checkpoint and ends the threads. Earlier proposals are committed and replied to.
    pub fn shutdown(&self) {
        let inner = &self.inner;
        inner.stopping.store(true, Ordering::Release);
        inner.deadlines_changed();
        inner.wake_worker();
        inner.stop_backup();
        for thread in std::mem::take(&mut *inner.threads.lock()) {
            thread.join();
        }
        inner.refuse_held();
        inner.readers.stop();
        for shard in inner.all_shards() {
            shard.record_all_queues(&mut shard.state.lock());
            shard.log.shutdown();
            if inner.env.fatal.is_fatal() {
                return;
            }
            let captured = inner.capture(&shard, false);
            // A checkpoint only makes the next start faster: the journal has everything.
            let _ = inner.write_final_checkpoint(&shard, &captured);
        }
    }
}

impl Inner {
    pub(crate) fn wake_worker(&self) {
        *self.background.0.lock() = true;
        self.background.1.notify_one();
    }

    fn run_timer(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let now = self.now().monotonic_ms;
            let wait = self.next_tick_ms().saturating_sub(now).min(TIMER_MS_MAX);
            {
                let mut changed = self.timer.0.lock();
                if !*changed && wait > 0 {
                    self.timer.1.wait_for(&mut changed, Duration::from_millis(wait));
                }
                *changed = false;
            }
            self.tick();
        }
    }

    fn run_worker(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            if !self.background_step() {
                let mut woken = self.background.0.lock();
                if !*woken {
                    self.background.1.wait_for(&mut woken, Duration::from_millis(TIMER_MS_MAX));
                }
                *woken = false;
            }
        }
    }

    pub(crate) fn next_tick_ms(&self) -> u64 {
        // Only the writer runs the deadlines of machines.
        let deadline_of = |shard: &Arc<Shard>| self.hosted(shard, |machines| machines.next_deadline_ms());
        let deadline = self.hosts().iter().filter_map(deadline_of).min().filter(|_| self.leads()).unwrap_or(u64::MAX);
        let queues = self.next_queue_ms();
        let due = self.due.lock();
        deadline.min(queues).min(due.room_ms).min(due.retention_ms).min(due.producers_ms).min(due.reads_ms)
    }

    pub(crate) fn tick(&self) {
        let now = self.now();
        if self.leads() {
            self.run_machine_deadlines();
        }
        self.run_queue_deadlines();
        let (room, retention, producers, reads) = {
            let mut due = self.due.lock();
            let room = take_due(&mut due.room_ms, now.monotonic_ms, ROOM_CHECK_MS);
            let every_ms = self.config.retention_check_ms.min(RETENTION_LOOK_MS);
            let looked_ms = std::mem::replace(&mut due.retention_looked_ms, now.monotonic_ms);
            let retention = take_due(&mut due.retention_ms, now.monotonic_ms, every_ms).then_some(looked_ms);
            if retention.is_none() {
                due.retention_looked_ms = looked_ms;
            }
            let producers = take_due(&mut due.producers_ms, now.monotonic_ms, PRODUCER_CHECK_MS);
            (room, retention, producers, take_due(&mut due.reads_ms, now.monotonic_ms, UNUSED_READS_MS))
        };
        if room {
            self.check_room();
            self.take_lost_writers();
            self.all_shards().iter().for_each(|shard| self.catch_up(shard));
        }
        for shard in self.all_shards() {
            if let Some(looked_ms) = retention {
                self.retain(&shard, looked_ms..now.monotonic_ms);
            }
            if reads {
                shard.store.release_unused_reads();
            }
            if producers {
                self.expire_producers(&shard, self.oldest_producer_ms(now.wall_ms));
            }
        }
    }

    /// Proposes the expiry of idle producers. Bounded per record, so that neither this nor its application holds the shard's lock for long.
    fn expire_producers(&self, shard: &Shard, before_ms: TimestampMs) {
        let mut known: Vec<(PartitionId, usize)> = {
            let state = shard.state.lock();
            state.partitions.values().map(|p| (p.id, p.producers.len())).filter(|(_, len)| *len > 0).collect()
        };
        known.sort_unstable();
        let mut left = &known[..];
        while !left.is_empty() {
            let mut producers = 0;
            let fits = left.iter().take_while(|(_, len)| {
                producers += len;
                producers <= EXPIRED_AT_ONCE_MAX
            });
            let (some, rest) = left.split_at(fits.count().max(1));
            left = rest;
            let mut state = shard.state.lock();
            let is_idle = |id: &PartitionId| {
                state.partitions.get(id).is_some_and(|p| p.producers.has_idle(before_ms, p.high_watermark))
            };
            let partitions: Vec<_> = some.iter().map(|(id, _)| *id).filter(is_idle).collect();
            if partitions.is_empty() {
                continue;
            }
            let record = BrokerRecord::Expired { before_ms, partitions }.encode();
            // A refused expiry is found again by the next check.
            if shard.propose_own(&mut state, BROKER_PARTITION, record.into(), Urgency::Lazy).is_err() {
                return;
            }
        }
    }

    fn run_machine_deadlines(&self) {
        for shard in self.hosts() {
            for _ in 0..DEADLINES_PER_TICK_MAX {
                let mut outbox = Outbox::new();
                let context = self.context();
                let did = self.hosted(&shard, |machines| machines.run_deadlines(&context, &shard, &mut outbox));
                if shard.id == self.meta_shard {
                    let mut machines = self.machines.lock();
                    machines.change_topics(&context, &shard, &mut outbox);
                    machines.delete_dead_topics(&context, &shard, &mut outbox);
                }
                self.hosted(&shard, |machines| machines.answer_due(Vec::new(), &mut outbox));
                self.send(outbox);
                if !did {
                    break;
                }
            }
        }
    }

    /// Gives a shard whose writer was lost (disk full) a new writer when all earlier proposals have an outcome.
    fn take_lost_writers(&self) {
        for shard in self.all_shards() {
            let settled = {
                let state = shard.state.lock();
                state.role == Role::Writer && state.lost && state.settled >= state.next_ticket
            };
            if settled && let Ok(term) = shard.log.acquire() {
                let mut outbox = Outbox::new();
                {
                    // No topic is created or deleted meanwhile.
                    let meta = self.shard_if_open(self.meta_shard);
                    let _no_events = meta.as_ref().map(|meta| meta.applying.lock());
                    let _no_commits = (shard.id != self.meta_shard).then(|| shard.applying.lock());
                    self.take_term(&shard, term, Some(&mut outbox));
                }
                self.send(outbox);
                self.pump(&shard);
            }
        }
    }

    /// Starts a new term of the shard: tails restart from applied state, and leader epochs grow. `retaken`: an earlier writer was lost; the machines
    /// are notified before the first proposal of the new term, because their proposed state is void.
    pub(crate) fn take_term(&self, shard: &Arc<Shard>, term: Term, retaken: Option<&mut Outbox>) {
        let mut machines = self.machines.lock();
        machines.meta.set_term(shard.id, term);
        {
            let mut state = shard.state.lock();
            state.term = term;
            // A cut that was proposed when the writer was lost may never be committed.
            state.cut_proposed = state.cut;
            for partition in state.partitions.values_mut() {
                partition.reset_tail();
            }
            layers::reset_tail(&mut state);
            state.queues.take_writer(lease_ms(self.env.clock.now_ms()), self.env.rng.next_u64());
        }
        let context = self.context();
        let lost = retaken.filter(|_| shard.hosts);
        let is_meta = shard.id == self.meta_shard;
        let effects = match &lost {
            None => Vec::new(),
            Some(_) if is_meta => machines.writer_lost(&context),
            Some(_) => shard.slots.lock().writer_lost(&context),
        };
        if lost.is_some() && is_meta {
            self.open_queues();
        }
        {
            let mut state = shard.state.lock();
            (state.role, state.lost) = (Role::Writer, false);
        }
        if self.recovered.load(Ordering::Acquire)
            && let Err(e) = self.reconcile(shard, &machines.meta)
        {
            // The partitions that the last writer was about to open must be opened before anything is proposed; the next writer tries again.
            shard.state.lock().lost = true;
            self.gauges.background_failed("openings", &e.text);
        }
        if let Some(outbox) = lost {
            for (id, effects) in effects {
                match is_meta {
                    true => machines.carry_out(id, effects, &context, shard, outbox),
                    false => shard.slots.lock().carry_out(id, effects, &context, shard, outbox),
                };
            }
        }
        self.show_topics_of(shard, &machines);
        drop(machines);
    }

    /// Proposes new log starts by retention time and size, for the partitions that are due since the last check.
    fn retain(&self, shard: &Shard, since: Range<u64>) {
        let limits: Vec<(PartitionId, Retention)> = {
            let state = shard.renewed(self.config.resolver.as_ref());
            if !state.proposes() {
                return;
            }
            // A ring of frames drops its oldest frames, whatever the topic's retention is.
            let forgets = shard.class == Durability::Memory;
            let its_turn = |config: &TopicConfig| {
                let every_ms = look_every_ms(config, self.config.retention_check_ms);
                forgets || since.start / every_ms != since.end / every_ms
            };
            let applies = |config: &TopicConfig| (forgets || config.cleanup.delete) && its_turn(config);
            let epoch = state.openings.layers.epoch;
            let limits = state.partitions.values().filter(|p| !crate::open::is_own(p.id)).filter_map(|p| {
                let holds = p.config.held(epoch).filter(|holds| applies(holds))?;
                Some((p.id, self.retention_of(shard, holds)))
            });
            limits.collect()
        };
        let mut trims = shard.store.retention_scan(self.env.clock.now_ms(), limits.iter().copied());
        if shard.class == Durability::Memory {
            // Frames dropped from the ring are gone: the log start follows.
            trims.extend(limits.iter().filter_map(|(id, _)| shard.store.partition_stats(*id).map(|s| (*id, s.first))));
            let state = shard.state.lock();
            trims.retain(|(id, first)| state.partitions.get(id).is_some_and(|p| p.log_start < *first));
        }
        let mut state = shard.state.lock();
        keep_unsettled(&state, &mut trims);
        trims.extend(limits.iter().filter_map(|(id, _)| Some((*id, start_without_kept(&state, *id)?))));
        for (partition, offset) in trims.into_iter().take(TRIMS_PER_LOOK_MAX) {
            // A refused log start is found again by the next check.
            let record = BrokerRecord::LogStart { partition, offset };
            if shard.propose_record(&mut state, BROKER_PARTITION, record.encode().into()).is_err() {
                break;
            }
        }
    }

    fn retention_of(&self, shard: &Shard, config: &TopicConfig) -> Retention {
        let bytes = match shard.class {
            Durability::Memory => {
                let most = self.config.memory_partition_bytes_max;
                Some(config.retention_bytes.map_or(most, |bytes| bytes.min(most)))
            }
            _ => config.retention_bytes,
        };
        // Without the `delete` policy only the ring's own bound applies.
        match config.cleanup.delete {
            true => Retention { ms: config.retention_ms, bytes },
            false => Retention { ms: None, bytes: bytes.filter(|_| shard.class == Durability::Memory) },
        }
    }

    pub(crate) fn background_step(&self) -> bool {
        let mut did = false;
        for shard in self.all_shards() {
            did |= self.checkpoint_step(&shard);
            did |= self.merge_step(&shard);
        }
        did
    }

    fn checkpoint_step(&self, shard: &Shard) -> bool {
        if shard.checkpoints.is_none() {
            return false;
        }
        let waiting = self.due.lock().captured.remove(&shard.id);
        let captured = match waiting {
            Some(captured) => captured,
            None if self.checkpoint_due(shard) => self.capture(shard, false),
            None => return false,
        };
        match self.write_checkpoint(shard, &captured) {
            Ok(true) => true,
            Ok(false) => {
                self.due.lock().captured.insert(shard.id, captured);
                false
            }
            Err(e) => {
                self.gauges.background_failed("checkpoint", &e.to_string());
                // Entries that the store cannot read any more are all in memory.
                let all = e.kind == ErrorKind::Damaged && !captured.all;
                let captured = if all { self.capture(shard, true) } else { captured };
                self.due.lock().captured.insert(shard.id, captured);
                all
            }
        }
    }

    fn checkpoint_due(&self, shard: &Shard) -> bool {
        let index_bytes = shard.store.journal_index_bytes();
        let demand = {
            let mut due = self.due.lock();
            due.indexes.entry(shard.id).or_default().look(index_bytes, self.config.store.journal_index_bytes_max)
        };
        if let (IndexDemand::Seal, Some(journal)) = (demand, shard.log.local()) {
            journal.seal_current();
        }
        // When the disk is short of space, the space that a checkpoint would free justifies one.
        let wasted = self.alarm.is_on() && self.get_room(shard);
        let state = shard.state.lock();
        demand == IndexDemand::Checkpoint
            || wasted
            || state.applied_bytes >= self.config.checkpoint_bytes_max
            || state.queues.delays.wants_checkpoint()
    }

    /// Returns whether a checkpoint would free journal space; ends the current file if that is needed for it.
    fn get_room(&self, shard: &Shard) -> bool {
        let Some(journal) = shard.log.local() else { return false };
        match shard.store.journal_waste(journal) {
            JournalWaste::None => false,
            JournalWaste::Checkpoint => true,
            JournalWaste::Seal => {
                // The next file must fit: if it cannot be allocated, the term ends.
                if self.free_bytes.get().is_some_and(|free| free >= SEAL_FREE_BYTES_MIN) {
                    journal.seal_current();
                    let mut state = shard.state.lock();
                    let upto = state.applied;
                    // The cut needs a record after it; it is wanted nevertheless.
                    if state.cut_proposed.is_none_or(|proposed| proposed < upto)
                        && shard.propose_cut(&mut state, upto).is_ok()
                    {
                        state.cut_proposed = Some(upto);
                    }
                }
                false
            }
        }
    }

    /// The merge class of a partition: partitions with similar retention share segments.
    fn class_of(&self, shard: &Shard, id: PartitionId) -> u8 {
        let state = shard.state.lock();
        // Deleted partitions, and machine records that are kept only until the next checkpoint, have the shortest life.
        let Some(partition) = state.partitions.get(&id).filter(|p| !crate::open::is_own(p.id)) else { return 0 };
        let layers = &state.openings.layers;
        if let Some(holds) = partition.config.held(layers.epoch) {
            return retention_class(holds.retention_ms);
        }
        let (inherited, own) = (layers.newest().cloned(), partition.config.own().clone());
        drop(state);
        retention_class(layers::holding(inherited.as_deref(), self.config.resolver.as_ref(), &own).retention_ms)
    }

    /// Does one step of a merge, or proposes the record that begins one; otherwise one step of space reclaiming. A failing merge does not prevent
    /// reclaiming: the reclaimed space may be what the merge lacks.
    fn merge_step(&self, shard: &Shard) -> bool {
        let Some(journal) = shard.log.local() else { return false };
        let did = |what: &'static str, result: polylogue_log::Result<bool>| match result {
            Ok(did) => did,
            // Another step is in progress; this one is retried later.
            Err(e) if e.kind == LogErrorKind::Busy => false,
            Err(e) => {
                self.gauges.background_failed(what, &e.to_string());
                false
            }
        };
        did("merge", self.try_merge_step(shard, journal)) || did("reclaim", self.try_reclaim_step(shard))
    }

    fn try_reclaim_step(&self, shard: &Shard) -> polylogue_log::Result<bool> {
        let reclaimed = shard.store.reclaim_step()?;
        self.pace(shard, reclaimed.rewritten);
        Ok(reclaimed.more)
    }

    fn try_merge_step(&self, shard: &Shard, journal: &dyn LocalFiles) -> polylogue_log::Result<bool> {
        let classes = |id: PartitionId| self.class_of(shard, id);
        let plan = self.due.lock().merges.remove(&shard.id);
        if let Some(mut plan) = plan {
            match shard.store.run_merge_step(&mut plan, journal)? {
                MergeProgress::More { written, preloaded } => {
                    self.due.lock().merges.insert(shard.id, plan);
                    self.pace(shard, written + preloaded / PRELOAD_COST);
                }
                MergeProgress::Done(report) if report.damaged > 0 => {
                    let what = format!("{} runs of the journal cannot be read: they are fenced", report.damaged);
                    self.gauges.background_failed("merge", &what);
                }
                MergeProgress::Done(_) => {}
            }
            return Ok(true);
        }
        let (cut, proposed) = {
            let state = shard.state.lock();
            (state.cut, state.cut_proposed)
        };
        if let Some(upto) = cut.filter(|upto| Some(*upto) > shard.store.merged_upto()) {
            if let Some(plan) = shard.store.plan_merge(upto, journal, &classes)? {
                self.due.lock().merges.insert(shard.id, plan);
                return Ok(true);
            }
        } else if proposed.is_none_or(|upto| Some(upto) <= cut)
            && let Some(due) = self.merge_due(shard, journal, &classes)
        {
            // The cut is a record, so that every replica merges the same frames into the same segments.
            let mut state = shard.state.lock();
            if shard.propose_cut(&mut state, due.upto).is_ok() {
                state.cut_proposed = Some(due.upto);
            }
        }
        Ok(false)
    }

    /// Returns the merge that is due, or one that frees space if space is short.
    fn merge_due(&self, shard: &Shard, journal: &dyn LocalFiles, classes: &dyn Classes) -> Option<MergeDue> {
        let due = shard.store.merge_due(self.env.clock.now_ms(), journal, classes);
        due.or_else(|| shard.store.merge_for_room(journal).filter(|_| self.alarm.is_on()))
    }

    /// Sleeps as long as the pace of background writes requires.
    fn pace(&self, shard: &Shard, written: u64) {
        if written > 0 && self.running.load(Ordering::Acquire) {
            let pause = written.saturating_mul(NS_PER_S) / self.merge_pace(shard).max(1);
            let pause = Duration::from_nanos(pause);
            let mut woken = self.background.0.lock();
            if !*woken {
                self.background.1.wait_for(&mut woken, pause);
            }
        }
    }

    /// Pace of background writes. Bytes per second. Each write may delay a flush of the journal. With inflow the pace is twice the inflow; if too
    /// much journal waits, or the inflow is too low to matter, it is the maximum. Without inflow the backlog does not grow: while cold reads are in
    /// progress, merges run at the slowest pace.
    fn merge_pace(&self, shard: &Shard) -> u64 {
        let most = self.tunables.merge_bytes_per_sec();
        let Some(journal) = shard.log.local() else { return most };
        let incoming = self.inflow(shard);
        if incoming < QUIET_BYTES_PER_SEC {
            let is_read = self.is_read_cold(shard) && !self.alarm.is_on();
            return if is_read { MERGE_BYTES_PER_SEC_MIN.min(most) } else { most };
        }
        let sealed: u64 = journal.sealed_files().iter().map(|file| file.end).sum();
        match sealed > MERGES_BEHIND_MAX.saturating_mul(self.config.store.merge_bytes) {
            true => most,
            false => incoming.saturating_mul(2).max(MERGE_BYTES_PER_SEC_MIN).min(most),
        }
    }

    /// Returns whether cold reads of the shard are in progress.
    fn is_read_cold(&self, shard: &Shard) -> bool {
        let (now_ns, bytes) = (self.env.clock.monotonic_ns(), shard.store.cold_read_bytes());
        self.due.lock().cold_reads.entry(shard.id).or_default().go_on(now_ns, bytes)
    }

    /// Growth rate of a shard's journal. Bytes per second.
    pub(crate) fn inflow(&self, shard: &Shard) -> u64 {
        let Some(journal) = shard.log.local() else { return 0 };
        let (now_ns, written) = (self.env.clock.monotonic_ns(), journal.stats().bytes_written);
        let mut due = self.due.lock();
        let inflow = due.inflows.entry(shard.id).or_default();
        inflow.look(now_ns, written);
        inflow.bytes_per_sec
    }

    fn write_final_checkpoint(&self, shard: &Shard, captured: &Captured) -> Result<()> {
        if let Some(checkpoints) = &shard.checkpoints {
            // A capture that waited for a flush holds changes that a new capture would lack.
            let waiting = self.due.lock().captured.remove(&shard.id);
            let written = waiting.map_or(Ok(()), |waiting| waiting.write(checkpoints));
            match written.and_then(|()| captured.write(checkpoints)) {
                Err(e) if e.kind == LogErrorKind::Damaged => self.capture(shard, true).write(checkpoints)?,
                done => done?,
            }
        }
        Ok(())
    }

    pub(crate) fn shard_if_open(&self, id: ShardId) -> std::result::Result<Arc<Shard>, ()> {
        self.shards.read().get(&id).cloned().ok_or(())
    }
}

/// Limits the trims of queues to settled messages, whatever their age.
fn keep_unsettled(state: &ShardState, trims: &mut Vec<(PartitionId, Offset)>) {
    trims.retain_mut(|(id, first)| {
        let Some(host) = state.queues.hosts.get(id) else { return true };
        *first = (*first).min(Offset(host.lease.floor()));
        state.partitions.get(id).is_some_and(|p| p.log_start < *first)
    });
}

/// The log start of a queue that no longer keeps settled messages. For other queues each settlement record implies it.
fn start_without_kept(state: &ShardState, id: PartitionId) -> Option<Offset> {
    let host = state.queues.hosts.get(&id).filter(|host| !host.keeps_settled)?;
    let floor = Offset(host.lease.floor());
    state.partitions.get(&id).is_some_and(|p| p.log_start < floor).then_some(floor)
}

/// Interval of retention checks of a partition. Milliseconds. As configured, but shorter for short retention times, or if a byte limit would be
/// exceeded by far.
fn look_every_ms(config: &TopicConfig, check_ms: u64) -> u64 {
    let brief = config.retention_ms.map_or(u64::MAX, |ms| ms / LOOKS_PER_RETENTION);
    let sized = if config.retention_bytes.is_some() { 0 } else { u64::MAX };
    brief.min(sized).clamp(RETENTION_LOOK_MS.min(check_ms), check_ms).max(1)
}

fn take_due(at_ms: &mut u64, now_ms: u64, every_ms: u64) -> bool {
    let due = now_ms >= *at_ms;
    if due {
        *at_ms = now_ms + every_ms.max(1);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_index_ends_a_file_and_then_wants_a_checkpoint_of_it() {
        let mut growth = IndexGrowth::default();
        let demands: Vec<_> = (0..=8).map(|i| growth.look(i * 100, 1_600)).collect();
        let mut expected = [IndexDemand::Nothing; 9];
        (expected[6], expected[8]) = (IndexDemand::Seal, IndexDemand::Checkpoint);
        assert_eq!(demands, expected);
        // The growth counts from here again: a reduction by merges is not growth.
        assert_eq!(growth.look(1_399, 1_600), IndexDemand::Nothing);
        assert_eq!(growth.look(100, 1_600), IndexDemand::Nothing);
        assert_eq!(growth.look(700, 1_600), IndexDemand::Seal);
        assert_eq!(growth.look(700, 1_600), IndexDemand::Nothing);
        assert_eq!(growth.look(900, 1_600), IndexDemand::Checkpoint);
    }

    #[test]
    fn cold_reads_count_for_a_while_once_they_are_many() {
        let mut reads = ColdReads::default();
        let ms = |ms: u64| ms * 1_000_000;
        assert!(!reads.go_on(ms(0), 0));
        assert!(!reads.go_on(ms(10), COLD_READS_BYTES_MIN - 1), "a reader of little has the disk beside a merge");
        assert!(reads.go_on(ms(20), COLD_READS_BYTES_MIN));
        assert!(reads.go_on(ms(519), COLD_READS_BYTES_MIN));
        assert!(!reads.go_on(ms(520), 2 * COLD_READS_BYTES_MIN - 1), "it has ended");
        assert!(reads.go_on(ms(530), 2 * COLD_READS_BYTES_MIN));
    }
}
