//! What goes on beside requests: deadlines, retention, checkpoints, merges, room on the disk, taking a lost writer anew.
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
use polylogue_log::journal::{Journal, Urgency};
use polylogue_log::store::{Classes, JournalWaste, MergeDue, MergePlan, MergeProgress, Retention, retention_class};
use polylogue_replicate::{Role, Work};
use polylogue_types::{Map, Offset, PartitionId, ShardId, Term, TimestampMs};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest that the timer thread sleeps. Milliseconds.
const TIMER_MS_MAX: u64 = 500;
/// Calls of machines for deadlines that have passed, in one turn of the timer; the rest follows at once in the next one.
const DEADLINES_PER_TICK_MAX: usize = 256;
/// How often free room on the disk is looked at. Milliseconds.
const ROOM_CHECK_MS: u64 = 500;
/// How often silent producers are looked for. Milliseconds.
const PRODUCER_CHECK_MS: u64 = 600_000;
/// Producers of whom one record says that they are forgotten, unless one partition has more.
const EXPIRED_AT_ONCE_MAX: usize = 4_096;
/// How often it is looked which of what was read back is not used any more. Milliseconds.
const UNUSED_READS_MS: u64 = 10_000;
/// Retention looks no more often than this. Milliseconds.
const RETENTION_LOOK_MS: u64 = 1_000;
/// How often retention looks at a partition while its messages live, where `retention_check_ms` would be too late for that.
const LOOKS_PER_RETENTION: u64 = 10;
/// Log starts that one look of retention moves at the most; the rest has its turn at the next.
const TRIMS_PER_LOOK_MAX: usize = 4096;

/// Below this no file of the journal is ended before it is full. Bytes.
const SEAL_FREE_BYTES_MIN: u64 = 4 << 20;

const NS_PER_S: u64 = 1_000_000_000;
/// How long the inflow of a journal is measured before its rate counts. Nanoseconds.
const INFLOW_NS: u64 = NS_PER_S;
/// A journal that grows more slowly has no publishers whom background writes would disturb. Bytes a second.
pub(crate) const QUIET_BYTES_PER_SEC: u64 = 1 << 20;
/// The slowest pace of background writes, unless a slower one is configured. Bytes a second.
pub(crate) const MERGE_BYTES_PER_SEC_MIN: u64 = 32 << 20;
/// What readers who are behind take of a shard before it counts. Bytes.
const COLD_READS_BYTES_MIN: u64 = 1 << 20;
/// And how long it counts. Nanoseconds.
const COLD_READS_NS: u64 = NS_PER_S / 2;
/// What a merge brings into memory takes so much less of its pace than what it writes.
const PRELOAD_COST: u64 = 4;
/// Sealed journal from which merges make haste, in times of what makes a merge due.
const MERGES_BEHIND_MAX: u64 = 3;

/// When things are due, in monotonic milliseconds, and what is under way.
#[derive(Debug, Default)]
pub(crate) struct Due {
    room_ms: u64,
    retention_ms: u64,
    /// When retention looked last.
    retention_looked_ms: u64,
    producers_ms: u64,
    reads_ms: u64,
    captured: Map<ShardId, Captured>,
    merges: Map<ShardId, MergePlan>,
    indexes: Map<ShardId, IndexGrowth>,
    inflows: Map<ShardId, Inflow>,
    cold_reads: Map<ShardId, ColdReads>,
}

/// What readers who are behind take of a shard.
#[derive(Clone, Copy, Debug, Default)]
struct ColdReads {
    /// The store's counter when it last counted. Bytes.
    counted: u64,
    /// When that was, if it was.
    at_ns: Option<u64>,
}

impl ColdReads {
    /// Whether they are reading, by the store's counter.
    fn go_on(&mut self, now_ns: u64, bytes: u64) -> bool {
        if bytes.saturating_sub(self.counted) >= COLD_READS_BYTES_MIN {
            (self.counted, self.at_ns) = (bytes, Some(now_ns));
        }
        self.at_ns.is_some_and(|at| now_ns.saturating_sub(at) < COLD_READS_NS)
    }
}

/// How fast a journal grows, looked at about once a second.
#[derive(Clone, Copy, Debug, Default)]
struct Inflow {
    since_ns: u64,
    /// The journal's counter then. Bytes.
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

/// How the store's index over a shard's journal grows. It can only shrink by merges, and these take whole files that a checkpoint
/// covers: with small entries it reaches its bound long before a file is full.
#[derive(Clone, Copy, Debug, Default)]
struct IndexGrowth {
    /// Its size at the last checkpoint, or after a merge since then. Bytes.
    base: usize,
    /// The current file was ended since the last checkpoint, because of the growth.
    sealed: bool,
}

/// What the index asks for before it has reached its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IndexDemand {
    Nothing,
    /// End the journal's current file, so that the next checkpoint covers it as a whole.
    Seal,
    Checkpoint,
}

impl IndexGrowth {
    /// What is to be done at a size of `bytes`, when merges begin at `bytes_max`.
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
    /// Starts the journals' threads, the readers and the background.
    ///
    /// # Errors
    /// `Io` when the system has no threads to give.
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

    /// Does what is due by the clock. Cheap when nothing is.
    pub fn tick(&self) {
        self.inner.tick();
    }

    /// When [`Broker::tick`] wants to be called next, in monotonic milliseconds of [`Broker::now`].
    #[must_use]
    pub fn next_tick_ms(&self) -> u64 {
        self.inner.next_tick_ms()
    }

    /// Does one bounded piece of background work; `false` when there was none.
    pub fn background_step(&self) -> bool {
        self.inner.background_step()
    }

    /// One piece of work of every shard's log and of the readers, for a broker without threads; `false` when there was
    /// none.
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

    /// Drops the reads that wait: what is left to do for a broker without threads whose process is said to have died. They hold it, and it
    /// them.
    pub fn forget_reads(&self) {
        self.inner.readers.stop();
    }

    /// Stops taking requests, flushes, writes a checkpoint and ends the threads. What was proposed before is committed
    /// and answered.
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
        // Deadlines of machines are the writer's.
        let deadline = self.machines.lock().next_deadline_ms().filter(|_| self.leads()).unwrap_or(u64::MAX);
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

    /// Proposes that producers are forgotten that were silent for too long: so much of it at once that neither this nor applying it holds the
    /// shard's lock for long.
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
            // What is refused now is found again at the next look.
            if shard.propose_own(&mut state, BROKER_PARTITION, record.into(), Urgency::Lazy).is_err() {
                return;
            }
        }
    }

    fn run_machine_deadlines(&self) {
        let Ok(shard) = self.shard_if_open(self.meta_shard) else { return };
        for _ in 0..DEADLINES_PER_TICK_MAX {
            let mut outbox = Outbox::new();
            let context = self.context();
            let did = self.machines.lock().run_deadlines(&context, &shard, &mut outbox);
            self.send(outbox);
            if !did {
                return;
            }
        }
    }

    /// A shard whose writer was lost (a full disk) gets a new one as soon as everything before is settled.
    fn take_lost_writers(&self) {
        for shard in self.all_shards() {
            let settled = {
                let state = shard.state.lock();
                state.role == Role::Writer && state.lost && state.settled >= state.next_ticket
            };
            if settled && let Ok(term) = shard.log.acquire() {
                let mut outbox = Outbox::new();
                {
                    // No topic comes or goes meanwhile.
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

    /// The shard has a new term: tails start again from what is applied, and leader epochs grow. `retaken`: a writer before
    /// was lost, and the machines hear of it before anything can be proposed in the new term, because what they count
    /// on is void.
    pub(crate) fn take_term(&self, shard: &Arc<Shard>, term: Term, retaken: Option<&mut Outbox>) {
        let mut machines = self.machines.lock();
        machines.meta.set_term(shard.id, term);
        {
            let mut state = shard.state.lock();
            state.term = term;
            // One that was on its way when the writer was lost may never come.
            state.cut_proposed = state.cut;
            for partition in state.partitions.values_mut() {
                partition.reset_tail();
            }
            layers::reset_tail(&mut state);
            state.queues.take_writer(lease_ms(self.env.clock.now_ms()), self.env.rng.next_u64());
        }
        let context = self.context();
        let lost = retaken.filter(|_| shard.id == self.meta_shard);
        let effects = lost.as_ref().map(|_| machines.writer_lost(&context)).unwrap_or_default();
        if lost.is_some() {
            self.open_queues();
        }
        {
            let mut state = shard.state.lock();
            (state.role, state.lost) = (Role::Writer, false);
        }
        if self.recovered.load(Ordering::Acquire)
            && let Err(e) = self.reconcile(shard, &machines.meta)
        {
            // Nothing may be proposed before partitions are open that the last writer was about to open: the next writer tries again.
            shard.state.lock().lost = true;
            self.gauges.background_failed("openings", &e.text);
        }
        if let Some(outbox) = lost {
            for (id, effects) in effects {
                machines.carry_out(id, effects, &context, shard, outbox);
            }
        }
        self.show_topics_of(shard, &machines);
        drop(machines);
    }

    /// Proposes new log starts for what time and size no longer keep, of the partitions whose turn has come since the look
    /// before.
    fn retain(&self, shard: &Shard, since: Range<u64>) {
        let limits: Vec<(PartitionId, Retention)> = {
            let state = shard.renewed(self.config.resolver.as_ref());
            if !state.proposes() {
                return;
            }
            // A ring of frames forgets, whatever the topic wants.
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
            // What left the ring of frames is gone; the log start says so.
            trims.extend(limits.iter().filter_map(|(id, _)| shard.store.partition_stats(*id).map(|s| (*id, s.first))));
            let state = shard.state.lock();
            trims.retain(|(id, first)| state.partitions.get(id).is_some_and(|p| p.log_start < *first));
        }
        let mut state = shard.state.lock();
        keep_unsettled(&state, &mut trims);
        trims.extend(limits.iter().filter_map(|(id, _)| Some((*id, start_without_kept(&state, *id)?))));
        for (partition, offset) in trims.into_iter().take(TRIMS_PER_LOOK_MAX) {
            // What is refused now is found again at the next look.
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
        // Without `delete` only the ring's own bound holds.
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
                // What the store cannot read any more is all in memory.
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
        if let (IndexDemand::Seal, Some(journal)) = (demand, &shard.journal) {
            journal.seal_current();
        }
        // While the disk is short of room, what a checkpoint lets go of is worth one.
        let wasted = self.alarm.is_on() && self.get_room(shard);
        let state = shard.state.lock();
        demand == IndexDemand::Checkpoint
            || wasted
            || state.applied_bytes >= self.config.checkpoint_bytes_max
            || state.queues.delays.wants_checkpoint()
    }

    /// Whether a checkpoint would bring room out of the journal; ends the current file where that is what it takes.
    fn get_room(&self, shard: &Shard) -> bool {
        let Some(journal) = &shard.journal else { return false };
        match shard.store.journal_waste(journal.as_ref()) {
            JournalWaste::None => false,
            JournalWaste::Checkpoint => true,
            JournalWaste::Seal => {
                // The next file has to fit: one that is not to be had ends the term.
                if self.free_bytes.get().is_some_and(|free| free >= SEAL_FREE_BYTES_MIN) {
                    journal.seal_current();
                    let mut state = shard.state.lock();
                    let upto = state.applied;
                    // A record has to follow; this one is wanted all the same.
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

    /// Partitions whose messages live about equally long share segments.
    fn class_of(&self, shard: &Shard, id: PartitionId) -> u8 {
        let state = shard.state.lock();
        // What is gone, and what machines keep only until their next checkpoint, is the shortest-lived of all.
        let Some(partition) = state.partitions.get(&id).filter(|p| !crate::open::is_own(p.id)) else { return 0 };
        let layers = &state.openings.layers;
        if let Some(holds) = partition.config.held(layers.epoch) {
            return retention_class(holds.retention_ms);
        }
        let (inherited, own) = (layers.newest().cloned(), partition.config.own().clone());
        drop(state);
        retention_class(layers::holding(inherited.as_deref(), self.config.resolver.as_ref(), &own).retention_ms)
    }

    /// One piece of a merge, or the record that begins one; else a piece of reclaiming. A merge that fails keeps nothing from
    /// being reclaimed: it may be the very room that it lacks.
    fn merge_step(&self, shard: &Shard) -> bool {
        let Some(journal) = &shard.journal else { return false };
        let did = |what: &'static str, result: polylogue_log::Result<bool>| match result {
            Ok(did) => did,
            // Another piece of work is at it; there is a next time.
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

    fn try_merge_step(&self, shard: &Shard, journal: &Journal) -> polylogue_log::Result<bool> {
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

    /// The merge that is due, or that brings room where that is short.
    fn merge_due(&self, shard: &Shard, journal: &Journal, classes: &dyn Classes) -> Option<MergeDue> {
        let due = shard.store.merge_due(self.env.clock.now_ms(), journal, classes);
        due.or_else(|| shard.store.merge_for_room(journal).filter(|_| self.alarm.is_on()))
    }

    /// Waits so long that background writes keep to their pace.
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

    /// How fast background writes may go. Each of them is something that a flush of the journal waits behind, so while messages
    /// come in, no faster than is needed to keep up with them twice over; when too much waits, or no publisher would be disturbed, as
    /// fast as they may at the most. Where nothing comes in what waits does not grow: as long as readers are behind, merges go at their
    /// slowest pace.
    fn merge_pace(&self, shard: &Shard) -> u64 {
        let most = self.tunables.merge_bytes_per_sec();
        let Some(journal) = &shard.journal else { return most };
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

    /// Whether readers who are behind are reading a shard.
    fn is_read_cold(&self, shard: &Shard) -> bool {
        let (now_ns, bytes) = (self.env.clock.monotonic_ns(), shard.store.cold_read_bytes());
        self.due.lock().cold_reads.entry(shard.id).or_default().go_on(now_ns, bytes)
    }

    /// How fast a shard's journal grows. Bytes a second.
    pub(crate) fn inflow(&self, shard: &Shard) -> u64 {
        let Some(journal) = &shard.journal else { return 0 };
        let (now_ns, written) = (self.env.clock.monotonic_ns(), journal.stats().bytes_written);
        let mut due = self.due.lock();
        let inflow = due.inflows.entry(shard.id).or_default();
        inflow.look(now_ns, written);
        inflow.bytes_per_sec
    }

    fn write_final_checkpoint(&self, shard: &Shard, captured: &Captured) -> Result<()> {
        if let Some(checkpoints) = &shard.checkpoints {
            // One that waited for a flush holds changes that this one does not have again.
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

/// Of a queue only what is settled may go, however old it is.
fn keep_unsettled(state: &ShardState, trims: &mut Vec<(PartitionId, Offset)>) {
    trims.retain_mut(|(id, first)| {
        let Some(host) = state.queues.hosts.get(id) else { return true };
        *first = (*first).min(Offset(host.lease.floor()));
        state.partitions.get(id).is_some_and(|p| p.log_start < *first)
    });
}

/// Where a queue begins that kept what was settled and does so no more. Of others each record of what is settled says it.
fn start_without_kept(state: &ShardState, id: PartitionId) -> Option<Offset> {
    let host = state.queues.hosts.get(&id).filter(|host| !host.keeps_settled)?;
    let floor = Offset(host.lease.floor());
    state.partitions.get(&id).is_some_and(|p| p.log_start < floor).then_some(floor)
}

/// How often a partition is looked at, in milliseconds: as often as it is configured, but sooner where messages live only
/// briefly, or where a bound on bytes would be passed by far.
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
        // From there on again; what merges take away does not count as growth.
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
