//! Application of committed frames. Order: indexes, offsets, their replies, machines, their replies.
//!
//! Runs on the journal's threads, one call at a time per shard. An offset becomes visible to readers after its entry can be found. A reply is sent
//! after the state that it reports is applied.

use crate::broker::Inner;
use crate::config::Witness;
use crate::machines::Outbox;
use crate::open::is_own;
use crate::openings::{self, Gone};
use crate::pending::{PendingAppend, PendingPublish, PendingTrim};
use crate::queues::lease_ms;
use crate::record::{BROKER_PARTITION, BrokerRecord};
use crate::roles::Heads;
use crate::shard::{Parked, Shard, ShardState};
use crate::watch::{self, Fired};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_api::{AppendError, Caller, MachineId, MachineReply, PublishError, TopicInfo, TrimError, Unavailable};
use polylogue_log::frame::LostRange;
use polylogue_log::journal::{CommitSink, Outcome};
use polylogue_log::store::ShardStore;
use polylogue_log::{Frame, Kind};
use polylogue_meta::{MetaEvent, TopicMeta};
use polylogue_replicate::Role;
use polylogue_types::{Index, Offset, PartitionId, ShardId, TimestampMs, TopicId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A shard's receiver of committed frames. Has no broker while the shard is being opened.
#[derive(Default)]
pub(crate) struct ShardSink {
    pub(crate) target: Mutex<Option<(Weak<Inner>, Weak<Shard>)>>,
    /// See [`BrokerConfig::witness`](crate::BrokerConfig::witness).
    pub(crate) witness: Option<Witness>,
}

impl CommitSink for ShardSink {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        if let Some(Witness(witness)) = &self.witness {
            witness.committed(frames, outcomes);
        }
        let target = self.target.lock().clone();
        let Some((broker, shard)) = target else { return };
        if let (Some(broker), Some(shard)) = (broker.upgrade(), shard.upgrade()) {
            broker.committed(&shard, frames, outcomes);
        }
    }
}

/// Replies that are due, with the outcomes that they report.
#[derive(Debug, Default)]
struct Due {
    appends: Vec<(Arc<PendingAppend>, Vec<u32>, Option<AppendError>)>,
    publishes: Vec<(Arc<PendingPublish>, Vec<u32>, Option<PublishError>)>,
    trims: Vec<(Arc<PendingTrim>, Vec<u32>, Option<TrimError>)>,
    machine: Vec<(Caller, MachineReply)>,
}

fn why(outcome: Outcome) -> Option<Unavailable> {
    match outcome {
        Outcome::Committed(_) => None,
        Outcome::NotCommitted => Some(Unavailable::NotCommitted),
        Outcome::Unknown => Some(Unavailable::Unknown),
    }
}

impl Inner {
    pub(crate) fn committed(&self, shard: &Arc<Shard>, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        let _one_at_a_time = shard.applying.lock();
        let mut fired = Fired::new();
        let mut outbox = Outbox::new();
        let gone: Vec<Gone>;
        let (due, for_queues, heads) = {
            for frame in frames {
                if let Err(e) = shard.store.apply(frame) {
                    self.env.fatal.fatal(&format!("shard {}: {e}", shard.id));
                    return;
                }
            }
            let mut state = shard.state.lock();
            let before = state.term;
            for frame in frames {
                let applied = self.apply_frame(shard.id, &shard.store, &mut state, frame, &mut fired);
                if let Err(broken) = applied {
                    self.env.fatal.fatal(&broken);
                    return;
                }
            }
            gone = std::mem::take(&mut state.openings.gone);
            for gone in &gone {
                // No record is proposed any more that the ends could follow.
                shard.record_ends(&mut state, gone.partition);
            }
            let opened = std::mem::take(&mut state.openings.opened);
            let follows = (state.role != Role::Writer).then_some(Heads { term: state.term != before, opened });
            (settle(&mut state, outcomes), state.queues.has_work(), follows)
        };
        for Gone { queue, stream, .. } in gone {
            if let Some(queue) = queue {
                self.queue_gone(queue);
            }
            if let Some(stream) = stream {
                self.stream_gone(&stream);
            }
        }
        // Replies that do not depend on machines are sent first.
        for (pending, positions, error) in due.appends {
            pending.part_done(&positions, error.map(Err));
        }
        for (pending, positions, error) in due.publishes {
            pending.part_done(&positions, error.map(Err));
        }
        for (pending, positions, error) in due.trims {
            pending.part_done(&positions, error.map(Err));
        }
        watch::deliver(fired);
        // Settlement records of queues, which are in nearly every frame of a busy shard, do not concern the machines.
        let for_machines = |frame: &Arc<Frame>| {
            // Entries of a frame are ordered by partition.
            let mut own = frame.entries.iter().map(|entry| entry.envelope.partition).take_while(|id| is_own(*id));
            own.any(|id| MachineId::of_partition(id).is_some())
        };
        let concerns_machines = || shard.hosts && frames.iter().any(for_machines);
        if let Some(heads) = heads {
            self.follow_writer(shard, frames, concerns_machines(), &heads);
        } else if !due.machine.is_empty() || concerns_machines() {
            match shard.id == self.meta_shard {
                true => self.apply_machines(shard, frames, due.machine, &mut outbox),
                false => self.apply_slots(shard, frames, due.machine, &mut outbox),
            }
        }
        self.machines_applied(shard, frames, &mut outbox);
        for (origin, reply) in outbox {
            origin.reply(reply);
        }
        if for_queues {
            self.pump(shard);
        }
    }

    /// Applies one frame's entries to the shard's own state.
    pub(crate) fn apply_frame(
        &self,
        shard: ShardId,
        store: &ShardStore,
        state: &mut ShardState,
        frame: &Frame,
        fired: &mut Fired,
    ) -> Result<(), String> {
        let broken = |why: String| format!("shard {shard} index {}: {why}", frame.index);
        let mut losses = Losses::of(frame, state);
        openings::open_first(state, frame, losses.is_some()).map_err(broken)?;
        for entry in &frame.entries {
            if !openings::is_open(store, state, entry.envelope.partition, entry.envelope.base_offset).map_err(broken)? {
                continue;
            }
            // The surviving entries of a damaged frame may be before, between and after the lost ones.
            if let Some(losses) = &mut losses {
                losses.before(entry.envelope.partition, entry.envelope.next_offset(), state);
            }
            Shard::apply_entry(state, &entry.envelope, frame.time_ms, fired)?;
            let native = entry.native.start as usize..entry.native.end as usize;
            let native = frame.bytes.get(native).unwrap_or_default();
            let view = self.config.view.as_ref();
            state.queues.appended(&entry.envelope, native, view, frame.time_ms).map_err(|e| e.to_string())?;
        }
        if let Some(losses) = losses {
            losses.rest(state);
        }
        // Entries of a frame are ordered by partition, the broker's own first; a record about a message comes after the message.
        for entry in frame.entries.iter().filter(|entry| entry.envelope.partition == BROKER_PARTITION) {
            apply_record(store, state, &frame.native(entry), frame.time_ms, fired).map_err(broken)?;
        }
        if frame.kind == Kind::SegmentCut
            && let Ok(upto) = <[u8; 8]>::try_from(&frame.body[..])
        {
            state.cut = Some(Index(u64::from_le_bytes(upto)));
        }
        if state.role != Role::Writer {
            state.term = state.term.max(frame.term);
        }
        state.applied = frame.index;
        state.applied_bytes += frame.bytes.len() as u64;
        Ok(())
    }

    fn apply_machines(
        &self,
        shard: &Arc<Shard>,
        frames: &[Arc<Frame>],
        due: Vec<(Caller, MachineReply)>,
        outbox: &mut Outbox,
    ) {
        let applied: Result<Vec<_>, String> = {
            let mut machines = self.machines.lock();
            frames.iter().map(|frame| machines.apply_with_events(frame)).collect()
        };
        let events: Vec<_> = match applied {
            Ok(events) => events.into_iter().flatten().collect(),
            Err(broken) => {
                self.env.fatal.fatal(&broken);
                return;
            }
        };
        if !self.recovered.load(Ordering::Acquire) {
            // The start records its shards. What applied state asks for follows when all shards have their terms.
            return;
        }
        let settings_changed = events.iter().any(|event| matches!(event, MetaEvent::Settings(..)));
        if settings_changed {
            self.inherit();
        }
        // Without the machines' lock: a topic may need a shard of a new durability class.
        let deleted: Vec<_> = events.iter().filter_map(|event| self.topic_event(event)).collect();
        self.configure(&events);
        if settings_changed {
            self.retune();
            self.tell_settings(outbox);
        }
        let context = self.context();
        if !deleted.is_empty() {
            for of in self.hosts() {
                self.hosted(&of, |machines| machines.topics_deleted(&deleted, &context, &of, outbox));
            }
        }
        let mut machines = self.machines.lock();
        machines.delete_dead_topics(&context, shard, outbox);
        machines.change_topics(&context, shard, outbox);
        machines.answer_due(due, outbox);
        drop(machines);
        self.deadlines_changed();
    }

    /// Applies the records of the machines whose slots are in a shard.
    fn apply_slots(
        &self,
        shard: &Arc<Shard>,
        frames: &[Arc<Frame>],
        due: Vec<(Caller, MachineReply)>,
        outbox: &mut Outbox,
    ) {
        {
            let mut machines = shard.slots.lock();
            if let Err(broken) = frames.iter().try_for_each(|frame| machines.apply(frame)) {
                self.env.fatal.fatal(&broken);
                return;
            }
            machines.answer_due(due, outbox);
        }
        self.deadlines_changed();
    }

    /// All machine records in these frames are applied: runs the commands that waited for that.
    fn machines_applied(&self, shard: &Arc<Shard>, frames: &[Arc<Frame>], outbox: &mut Outbox) {
        let Some(last) = frames.last().filter(|_| shard.hosts) else { return };
        shard.machines.applied.store(last.index.0, Ordering::SeqCst);
        if shard.machines.reads.load(Ordering::SeqCst) > 0 {
            self.hosted(shard, |machines| machines.run_reads(&self.context(), shard, outbox));
        }
    }

    /// Makes a created or changed topic usable, or removes a deleted one, which is returned.
    fn topic_event(&self, event: &MetaEvent) -> Option<Arc<TopicInfo>> {
        match event {
            MetaEvent::Created(topic) | MetaEvent::Changed(topic) => {
                self.topic_placed(topic);
                None
            }
            MetaEvent::Deleted(topic) => Some(self.topic_deleted(topic)),
            MetaEvent::Settings(scope, settings) => {
                self.catalog.publish_settings(scope, settings.clone());
                None
            }
            // A start records them, before it serves.
            MetaEvent::Shards => None,
        }
    }

    /// Opens the partitions that are missing, and publishes the topic in the catalog.
    fn topic_placed(&self, topic: &Arc<TopicMeta>) {
        let shards: BTreeSet<_> = topic.placement().map(|(_, shard)| shard).collect();
        let mut opened = BTreeMap::new();
        for id in shards {
            let shard = match self.shard(id) {
                Ok(shard) => shard,
                Err(e) => {
                    self.env.fatal.fatal(&format!("shard {id} cannot be opened for topic {}: {e}", topic.name()));
                    return;
                }
            };
            let (seed, now_ms) = (self.env.rng.next_u64(), lease_ms(self.env.clock.now_ms()));
            let mut state = shard.state.lock();
            // If refused, the shard is marked as behind and this is retried.
            let _ = shard.open_partitions(&mut state, topic, seed, now_ms);
            drop(state);
            opened.insert(id, shard);
        }
        let mut routes = self.routes.write();
        for (id, of) in topic.placement() {
            if let Some(shard) = opened.get(&of) {
                routes.insert(id, shard.clone());
            }
        }
        drop(routes);
        self.catalog.publish(topic, &|shard| self.term_of(shard));
    }

    /// Removes the topic from the catalog, and closes its partitions.
    fn topic_deleted(&self, topic: &Arc<TopicMeta>) -> Arc<TopicInfo> {
        self.catalog.withdraw(topic.id());
        let mut closing: BTreeMap<ShardId, (Arc<Shard>, Vec<PartitionId>)> = BTreeMap::new();
        for (id, of) in topic.placement() {
            let Some(shard) = self.routes.write().remove(&id) else { continue };
            closing.entry(of).or_insert_with(|| (shard, Vec::new())).1.push(id);
        }
        for (shard, partitions) in closing.into_values() {
            // If refused, the shard is marked as behind and this is retried.
            let _ = shard.close_partitions(&mut shard.state.lock(), topic.id(), partitions);
        }
        topic.info(&|shard| self.term_of(shard), topic.layer().clone())
    }

    /// Proposes the settings of changed topics in each shard that has partitions of them.
    fn configure(&self, events: &[MetaEvent]) {
        // The last settings of each topic.
        let changed = events.iter().filter_map(|event| match event {
            MetaEvent::Changed(topic) => Some((topic.id(), topic)),
            _ => None,
        });
        let changed: BTreeMap<TopicId, &Arc<TopicMeta>> = changed.collect();
        let mut of_shards: BTreeMap<ShardId, Vec<Arc<TopicMeta>>> = BTreeMap::new();
        for topic in changed.into_values() {
            let shards: BTreeSet<_> = topic.placement().map(|(_, shard)| shard).collect();
            shards.into_iter().for_each(|id| of_shards.entry(id).or_default().push(topic.clone()));
        }
        for (id, topics) in of_shards {
            let Ok(shard) = self.shard_if_open(id) else { continue };
            // If refused, the shard is marked as behind and this is retried.
            _ = shard.configure_topics(&mut shard.state.lock(), &topics);
        }
    }

    /// Resolves inherited topic settings again, in the catalog and in each shard.
    pub(crate) fn inherit(&self) {
        self.catalog.inherit();
        for shard in self.all_shards() {
            // If refused, the shard is marked as behind and this is retried.
            _ = shard.inherit(&mut shard.state.lock(), self.config.resolver.as_ref());
        }
    }
}

/// Offsets that a frame records as lost and that are not applied as such yet. By partition, in order.
#[derive(Debug)]
struct Losses(BTreeMap<PartitionId, VecDeque<LostRange>>);

impl Losses {
    /// Returns the losses that a frame records, if any. Losses of unknown extent are marked in every partition immediately.
    fn of(frame: &Frame, state: &mut ShardState) -> Option<Losses> {
        let lost = frame.lost()?;
        let mut losses = Losses(BTreeMap::new());
        if !lost.complete {
            state.partitions.values_mut().for_each(|partition| partition.lose(None));
            state.queues.hosts.values_mut().for_each(|host| host.lose(None));
        }
        let mut ranges = lost.ranges;
        ranges.sort_unstable();
        for range in ranges {
            losses.0.entry(range.partition).or_default().push_back(range);
        }
        Some(losses)
    }

    /// Applies the losses before the next entry of a partition, which ends at `end`.
    fn before(&mut self, partition: PartitionId, end: Offset, state: &mut ShardState) {
        let Some(ranges) = self.0.get_mut(&partition) else { return };
        while let Some(range) = ranges.pop_front_if(|range| range.first < end) {
            lose(state, &range);
        }
    }

    fn rest(self, state: &mut ShardState) {
        self.0.into_values().flatten().for_each(|range| lose(state, &range));
    }
}

fn lose(state: &mut ShardState, range: &LostRange) {
    if let Some(partition) = state.partitions.get_mut(&range.partition) {
        partition.lose(Some(range.end));
    }
    if let Some(host) = state.queues.hosts.get_mut(&range.partition) {
        host.lose(Some(range.end));
    }
}

/// Applies one of the broker's own records.
fn apply_record(
    store: &ShardStore,
    state: &mut ShardState,
    record: &Bytes,
    time_ms: TimestampMs,
    fired: &mut Fired,
) -> Result<(), String> {
    let (partition, first) = match BrokerRecord::decode(record).map_err(|e| e.to_string())? {
        BrokerRecord::LogStart { partition, offset } => (partition, Some(offset)),
        BrokerRecord::Timers { record } => return state.queues.delays.apply(&record, time_ms),
        BrokerRecord::Closed { topic, partitions } => {
            openings::close(store, state, topic, &partitions, fired);
            return Ok(());
        }
        BrokerRecord::Expired { before_ms, partitions } => {
            for id in &partitions {
                if let Some(partition) = state.partitions.get_mut(id) {
                    partition.producers.expire(before_ms, partition.high_watermark);
                    partition.dirty = true;
                }
            }
            return Ok(());
        }
        // `Level` is applied before the entries of the frame.
        BrokerRecord::Level { .. }
        | BrokerRecord::Opened(_)
        | BrokerRecord::Inherited(_)
        | BrokerRecord::Configured(_) => return Ok(()),
        BrokerRecord::Queue { partition, record } => {
            let first = state.queues.apply(partition, &record, time_ms).map_err(|e| e.to_string())?;
            let end = state.queues.hosts.get(&partition).map(|host| Offset(host.lease.committed_end()));
            if let Some((p, end)) = state.partitions.get_mut(&partition).zip(end)
                && p.high_watermark < end
            {
                // The record is about messages that are among the lost ones.
                p.lose(Some(end));
            }
            let log_start = state.partitions.get(&partition).map(|p| p.log_start);
            state.queues.touch(partition);
            (partition, first.filter(|first| log_start < Some(*first)))
        }
    };
    if let Some((p, first)) = state.partitions.get_mut(&partition).zip(first) {
        p.trim(first);
        let log_start = p.log_start;
        state.follows.changed(p, fired);
        store.trim(partition, log_start);
    }
    Ok(())
}

/// Takes the parked replies of these outcomes.
fn settle(state: &mut ShardState, outcomes: &[(u64, Outcome)]) -> Due {
    let mut due = Due::default();
    let mut parked = Vec::new();
    for (ticket, outcome) in outcomes {
        let why = why(*outcome);
        if why.is_some() {
            state.lost = true;
        }
        state.settled = ticket + 1;
        Shard::unpark(state, *ticket, &mut parked);
        for parked in parked.drain(..) {
            match parked {
                Parked::Append(pending, positions) => {
                    due.appends.push((pending, positions, why.map(AppendError::Unavailable)));
                }
                Parked::Publish(pending, positions) => {
                    due.publishes.push((pending, positions, why.map(PublishError::Unavailable)));
                }
                Parked::Trim(pending, positions) => {
                    due.trims.push((pending, positions, why.map(TrimError::Unavailable)));
                }
                Parked::Machine(replies) => {
                    due.machine.extend(replies.into_iter().map(|(caller, reply)| match why {
                        None => (caller, Ok(reply)),
                        Some(why) => (caller, Err(why)),
                    }));
                }
            }
        }
    }
    due
}
