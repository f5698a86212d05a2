//! The partitions of a shard. Opening and closing are records in the shard's own log, so that its applied state depends on no other shard.
//!
//! ```text
//!   metadata's shard    topic created                                    topic deleted
//!                             │ the writer proposes                            │
//!   a shard             Opened ──> entries ──> ...            ... entries ──> Closed
//! ```
//!
//! Metadata defines which partitions exist, and the writer of each shard proposes missing openings and closings: when a topic's record is committed,
//! and for all topics when it becomes the writer, because the process may have ended in between. An entry of a partition that is not open violates
//! the log's guarantee, unless damage may have destroyed the opening: then the partition is opened without a record, and the writer proposes one. The
//! settings of topics are recorded alongside ([`crate::layers`]).
//!
//! Shards written before such records existed (level 0) have the partitions that the metadata names, and drop entries of others. The first writer
//! that supports the records proposes the level, and an opening of each partition with its current offsets.

use crate::broker::Inner;
use crate::error::{Error, ErrorKind, Result};
use crate::layers::{self, Layers, decode_inherited, encode_inherited};
use crate::open::{MEMORY_SHARD, is_own, own_partition};
use crate::partition::{Change, Partition};
use crate::queues::{QueueHost, StreamHost, lease_ms};
use crate::record::{BROKER_PARTITION, BrokerRecord};
use crate::shard::{Shard, ShardState};
use crate::watch::Fired;
use bytes::Bytes;
use polylogue_api::{MachineId, TopicConfig, Unavailable};
use polylogue_log::Frame;
use polylogue_log::store::ShardStore;
use polylogue_meta::{FIRST_CLIENT_PARTITION, MetaMachine, TopicMeta, decode_topic_config, encode_topic_config};
use polylogue_replicate::Role;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Map, Offset, Ordinal, PartitionId, Set, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The record level that this version writes: from 1 on with openings and closings, from 2 on with changes of settings and expiry of idle producers.
pub(crate) const LEVEL: u32 = 2;

/// A partition at its opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) partition: PartitionId,
    /// The log start; the current next offset if the partition is older than such records.
    pub(crate) first: Offset,
    pub(crate) ordinal: Ordinal,
}

/// Opened partitions of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub(crate) topic: TopicId,
    pub(crate) places: Vec<Place>,
    /// The topic's settings at that time, as metadata records them.
    pub(crate) layer: Arc<TopicConfig>,
}

impl Opened {
    /// `16 bytes topic, u32 count, count times (u64 partition, u64 first, u64 ordinal), u32 length, config`
    pub(crate) fn encode(&self, w: &mut BinWriter) {
        w.raw(&self.topic.0).u32(self.places.len() as u32);
        for place in &self.places {
            w.u64(place.partition.0).u64(place.first.0).u64(place.ordinal.0);
        }
        w.bytes(&encode_topic_config(&self.layer));
    }

    pub(crate) fn decode(r: &mut BinReader<'_>) -> std::result::Result<Opened, BinError> {
        let topic = topic_id(r)?;
        let mut places = Vec::new();
        for _ in 0..r.count(24, "opened partitions")? {
            let partition = PartitionId(r.u64("opened partition")?);
            let first = Offset(r.u64("first offset")?);
            places.push(Place { partition, first, ordinal: Ordinal(r.u64("first ordinal")?) });
        }
        let layer = Arc::new(decode_topic_config(r.bytes("settings of an opened topic")?)?);
        Ok(Opened { topic, places, layer })
    }
}

pub(crate) fn topic_id(r: &mut BinReader<'_>) -> std::result::Result<TopicId, BinError> {
    let mut id = [0; 16];
    id.copy_from_slice(r.take(16, "topic id")?);
    Ok(TopicId(id))
}

/// A topic with partitions in the shard, as encoded in its checkpoint chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OpenTopic {
    /// The topic's settings.
    pub(crate) layer: Arc<TopicConfig>,
    pub(crate) partitions: Vec<PartitionId>,
}

/// A queue or stream whose partition was closed, and whose consumers are to be notified.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) partition: PartitionId,
    pub(crate) queue: Option<QueueHost>,
    pub(crate) stream: Option<StreamHost>,
}

/// Applied state of the records. `gone`: closed queues that the applying thread has not reported yet.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    /// The level of the shard's records.
    pub(crate) level: u32,
    /// Damage may have destroyed openings.
    pub(crate) damaged: bool,
    /// Tail: the log refused an opening, a closing or a layer of settings. The writer proposes it again ([`Inner::catch_up`]).
    pub(crate) behind: bool,
    /// The inherited settings, and the proposed layers.
    pub(crate) layers: Layers,
    /// `level`, `damaged` or the inherited layer has changed since the last checkpoint.
    dirty: bool,
    pub(crate) topics: Map<TopicId, OpenTopic>,
    /// Topics that have changed since the last checkpoint.
    pub(crate) changed: Set<TopicId>,
    /// Topics with partitions that a follower has opened, and that the applying thread has not shown yet.
    pub(crate) opened: Vec<TopicId>,
    pub(crate) gone: Vec<Gone>,
}

/// A checkpoint chunk of openings: of a topic, or of the whole shard.
pub(crate) type OpeningsChunk = (Option<TopicId>, Option<Bytes>);

impl Openings {
    /// Chunks that changed since the last checkpoint, or `all`.
    ///
    /// ```text
    /// the shard's   u32 level, u8 damaged; then, unless nothing is inherited yet (and in all of level 1): `encode_inherited`
    /// a topic's     u32 count, count times u64 partition, u32 length, config
    /// ```
    pub(crate) fn take_changed_chunks(&mut self, all: bool) -> Vec<OpeningsChunk> {
        let mut chunks = Vec::new();
        if std::mem::take(&mut self.dirty) || (all && self.level > 0) {
            let mut w = BinWriter::new();
            w.u32(self.level).u8(u8::from(self.damaged));
            if let Some(inherited) = &self.layers.inherited {
                encode_inherited(inherited, &mut w);
            }
            chunks.push((None, Some(Bytes::from(w.out))));
        }
        if all {
            self.changed.extend(self.topics.keys().copied());
        }
        for id in std::mem::take(&mut self.changed) {
            let encoded = self.topics.get(&id).map(|topic| {
                let mut w = BinWriter::new();
                w.u32(topic.partitions.len() as u32);
                for partition in &topic.partitions {
                    w.u64(partition.0);
                }
                w.bytes(&encode_topic_config(&topic.layer));
                Bytes::from(w.out)
            });
            chunks.push((Some(id), encoded));
        }
        chunks
    }

    /// Loads a chunk of a checkpoint.
    pub(crate) fn load_chunk(&mut self, topic: Option<TopicId>, bytes: &Bytes) -> std::result::Result<(), BinError> {
        let mut r = BinReader::new(bytes);
        let Some(topic) = topic else {
            self.level = r.u32("level of records")?;
            self.damaged = r.u8("damage")? != 0;
            if r.remaining() > 0 {
                self.layers.inherit(decode_inherited(&mut r)?);
            }
            return r.end("level of records");
        };
        let mut partitions = Vec::new();
        for _ in 0..r.count(8, "open partitions")? {
            partitions.push(PartitionId(r.u64("open partition")?));
        }
        let layer = Arc::new(decode_topic_config(r.bytes("settings of an open topic")?)?);
        r.end("open topic")?;
        self.topics.insert(topic, OpenTopic { layer, partitions });
        Ok(())
    }
}

/// Loads the openings of a checkpoint, and opens these partitions.
pub(crate) fn load(state: &mut ShardState, chunks: &[(Option<TopicId>, Bytes)]) -> std::result::Result<(), BinError> {
    for (topic, bytes) in chunks {
        state.openings.load_chunk(*topic, bytes)?;
    }
    let ShardState { openings, partitions, queues, .. } = state;
    for topic in openings.topics.values() {
        for id in &topic.partitions {
            let begin = || Partition { opened: true, ..Partition::new(*id, topic.layer.clone(), 0, Offset(0)) };
            partitions.entry(*id).or_insert_with(begin);
            queues.place(*id, topic.layer.queue.as_ref(), Offset(0));
        }
    }
    Ok(())
}

/// Returns whether a record with this tag is applied before the entries of its frame rather than after them.
fn comes_first(tag: u8) -> bool {
    [BrokerRecord::LEVEL, BrokerRecord::OPENED, BrokerRecord::INHERITED, BrokerRecord::CONFIGURED].contains(&tag)
}

/// Applies a frame's records of levels, openings and settings first: its entries may be of these partitions and under these settings. `loses`: the
/// frame records damage.
pub(crate) fn open_first(state: &mut ShardState, frame: &Frame, loses: bool) -> std::result::Result<(), String> {
    if loses {
        (state.openings.damaged, state.openings.dirty) = (true, true);
    }
    // Entries of a frame are ordered by partition.
    let own = frame.entries.iter().take_while(|entry| entry.envelope.partition < FIRST_CLIENT_PARTITION);
    for entry in own.filter(|entry| entry.envelope.partition == BROKER_PARTITION) {
        // Nearly all of these records are of queues: the tag is enough to skip them.
        if !frame.bytes.get(entry.native.start as usize).is_some_and(|tag| comes_first(*tag)) {
            continue;
        }
        match BrokerRecord::decode(&frame.native(entry)).map_err(|e| e.to_string())? {
            BrokerRecord::Level { level } => {
                // A writer has restored everything that damage destroyed before it proposes the level.
                let openings = &mut state.openings;
                (openings.level, openings.damaged, openings.dirty) = (level, false, true);
            }
            BrokerRecord::Opened(opened) => open(state, opened),
            BrokerRecord::Inherited(inherited) => {
                state.openings.layers.inherit(inherited);
                state.openings.dirty = true;
            }
            BrokerRecord::Configured(of) => {
                of.into_iter().try_for_each(|(topic, layer)| layers::configure(state, topic, layer))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn open(state: &mut ShardState, opened: Opened) {
    let Opened { topic, places, layer } = opened;
    let ShardState { openings, partitions, queues, role, .. } = state;
    let is_newest = openings.layers.arrived(topic);
    let begin = || OpenTopic { layer: layer.clone(), partitions: Vec::new() };
    let open = openings.topics.entry(topic).or_insert_with(begin);
    for Place { partition: id, first, ordinal } in places {
        let partition = partitions.entry(id).or_insert_with(|| {
            let mut partition = Partition::new(id, layer.clone(), 0, first);
            (partition.applied_ordinal, partition.next_ordinal) = (ordinal, ordinal);
            partition
        });
        if !std::mem::replace(&mut partition.opened, true) {
            open.partitions.push(id);
        }
        if is_newest {
            partition.config.set(&layer);
        }
        partition.dirty = true;
        partition.proposed.take_if(|proposed| *proposed == Change::Opening);
        queues.place(id, layer.queue.as_ref(), first);
        if let Some(queue) = &layer.queue {
            // An earlier opening may have been lost with its writer: configured as this one.
            queues.configure(id, queue, is_newest);
        }
    }
    openings.changed.insert(topic);
    if *role != Role::Writer {
        openings.opened.push(topic);
    }
}

/// Checks that an entry's partition is open, and opens it if damage may have destroyed its opening. Returns whether the entry is to be applied:
/// before openings were records, entries of a deleted topic were ignored.
pub(crate) fn is_open(
    store: &ShardStore,
    state: &mut ShardState,
    id: PartitionId,
    first: Offset,
) -> std::result::Result<bool, String> {
    match state.partitions.get(&id) {
        Some(partition) if partition.opened || state.openings.level == 0 => Ok(true),
        // The partition of a machine begins with its first record.
        None if MachineId::of_partition(id).is_some() => {
            state.partitions.insert(id, own_partition(id));
            Ok(true)
        }
        None if state.openings.level == 0 => {
            store.drop_partition(id);
            Ok(false)
        }
        _ if state.openings.damaged => {
            let partition = state.partitions.entry(id).or_insert_with(|| Partition::new(id, Arc::default(), 0, first));
            partition.lose(None);
            Ok(true)
        }
        _ => Err(format!("a committed entry is of partition {id}, which is not open")),
    }
}

/// Closes partitions: no entries of them follow.
pub(crate) fn close(
    store: &ShardStore,
    state: &mut ShardState,
    topic: TopicId,
    closed: &[PartitionId],
    fired: &mut Fired,
) {
    let ShardState { partitions, watches, follows, queues, openings, removed, .. } = state;
    let left = openings.topics.get_mut(&topic).map(|open| {
        let closed: Set<PartitionId> = closed.iter().copied().collect();
        open.partitions.retain(|id| !closed.contains(id));
        open.partitions.len()
    });
    if left == Some(0) {
        openings.topics.remove(&topic);
    }
    openings.changed.insert(topic);
    for id in closed {
        let Some(mut gone) = partitions.remove(id) else { continue };
        follows.gone(&mut gone, fired);
        watches.gone(partitions, gone, fired);
        removed.push(*id);
        let (queue, stream) = (queues.remove(*id), queues.streams.remove(id));
        queues.closed.remove(id);
        openings.gone.push(Gone { partition: *id, queue, stream });
        store.drop_partition(*id);
    }
}

impl Shard {
    /// Opens missing partitions of a topic at the writer, before any entry of them is proposed. If the log refuses, none is opened and the shard is
    /// marked as behind ([`Openings::behind`]).
    pub(crate) fn open_partitions(
        &self,
        state: &mut ShardState,
        topic: &TopicMeta,
        seed: u64,
        now_ms: u64,
    ) -> std::result::Result<(), Unavailable> {
        let first_offsets = topic.first_offsets(state.term);
        let here = topic.placement().zip(first_offsets).filter(|((_, shard), _)| *shard == self.id);
        let mut places = Vec::new();
        for ((partition, _), first) in here {
            let first = if self.id == MEMORY_SHARD { first } else { Offset(0) };
            match state.partitions.get(&partition) {
                Some(p) if p.opened || p.proposed.is_some() => {}
                Some(p) => places.push(Place { partition, first: p.high_watermark, ordinal: p.applied_ordinal }),
                None => places.push(Place { partition, first, ordinal: Ordinal(0) }),
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        let term = state.term;
        let epochs: Map<PartitionId, i32> = topic.leader_epochs(|_| term).map(|p| (p.id, p.leader_epoch)).collect();
        let layer = topic.layer();
        let record = BrokerRecord::Opened(Opened { topic: topic.id(), places: places.clone(), layer: layer.clone() });
        self.propose_change(state, &record)?;
        state.openings.layers.note_proposed(topic.id());
        for Place { partition: id, first, .. } in places {
            let epoch = epochs.get(&id).copied().unwrap_or(0);
            let begin = || Partition::new(id, layer.clone(), epoch, first);
            let partition = state.partitions.entry(id).or_insert_with(begin);
            partition.proposed = Some(Change::Opening);
            partition.config.set(layer);
            let first = partition.high_watermark;
            if state.queues.place(id, layer.queue.as_ref(), first) {
                state.queues.begin(id, now_ms, seed ^ id.0.rotate_left(17));
            }
        }
        Ok(())
    }

    /// Closes partitions at the writer: they are removed when the record is committed, after all entries in flight. If the log refuses, they stay and
    /// the shard is marked as behind.
    pub(crate) fn close_partitions(
        &self,
        state: &mut ShardState,
        topic: TopicId,
        partitions: Vec<PartitionId>,
    ) -> std::result::Result<(), Unavailable> {
        let open = |id: &PartitionId| {
            state.partitions.get(id).is_some_and(|partition| partition.proposed != Some(Change::Closing))
        };
        let partitions: Vec<_> = partitions.into_iter().filter(open).collect();
        if partitions.is_empty() {
            return Ok(());
        }
        let record = BrokerRecord::Closed { topic, partitions: partitions.clone() };
        self.propose_change(state, &record)?;
        for id in partitions {
            if let Some(partition) = state.partitions.get_mut(&id) {
                partition.proposed = Some(Change::Closing);
            }
        }
        Ok(())
    }

    pub(crate) fn propose_change(
        &self,
        state: &mut ShardState,
        record: &BrokerRecord,
    ) -> std::result::Result<u64, Unavailable> {
        let proposed = self.propose_record(state, BROKER_PARTITION, record.encode().into());
        state.openings.behind |= proposed.is_err();
        proposed
    }
}

impl Inner {
    /// Proposes again the openings, closings and settings that the log refused.
    pub(crate) fn catch_up(&self, shard: &Shard) {
        let behind = |shard: &Shard| {
            let state = shard.state.lock();
            state.openings.behind && !state.lost
        };
        if !behind(shard) {
            return;
        }
        // No topic is created or deleted meanwhile.
        let meta = self.shard_if_open(self.meta_shard);
        let _no_events = meta.as_ref().map(|meta| meta.applying.lock());
        if let Err(e) = self.reconcile(shard, &self.machines.lock().meta) {
            self.gauges.background_failed("openings", &e.text);
        }
    }

    /// Proposes all changes after which the shard has exactly the partitions of the metadata, with their effective settings. Called by the writer
    /// before any other proposal.
    pub(crate) fn reconcile(&self, shard: &Shard, meta: &MetaMachine) -> Result<()> {
        let refused = |why: Unavailable| {
            Error::new(
                ErrorKind::Io,
                format!("shard {}: its partitions and settings cannot be recorded: {why:?}", shard.id),
            )
        };
        let mut state = shard.state.lock();
        state.openings.behind = false;
        if state.openings.level < LEVEL {
            shard.propose_change(&mut state, &BrokerRecord::Level { level: LEVEL }).map_err(refused)?;
        }
        shard.inherit(&mut state, self.config.resolver.as_ref()).map_err(refused)?;
        let mut wanted: Set<PartitionId> = Set::default();
        for topic in meta.topics() {
            let before = wanted.len();
            wanted.extend(topic.placement().filter(|(_, of)| *of == shard.id).map(|(id, _)| id));
            if wanted.len() > before {
                let (seed, now_ms) = (self.env.rng.next_u64(), lease_ms(self.env.clock.now_ms()));
                shard.configure_topics(&mut state, std::slice::from_ref(topic)).map_err(refused)?;
                shard.open_partitions(&mut state, topic, seed, now_ms).map_err(refused)?;
            }
        }
        let unwanted = state.partitions.keys().filter(|id| !is_own(**id) && !wanted.contains(*id));
        let unwanted: Set<PartitionId> = unwanted.copied().collect();
        let mut closing: BTreeMap<TopicId, Vec<PartitionId>> = BTreeMap::new();
        let mut known: Set<PartitionId> = Set::default();
        for (topic, open) in &state.openings.topics {
            let gone: Vec<_> = open.partitions.iter().copied().filter(|id| unwanted.contains(id)).collect();
            known.extend(&gone);
            if !gone.is_empty() {
                closing.insert(*topic, gone);
            }
        }
        // Partitions opened because of damage that belong to no topic.
        let mut rest: Vec<_> = unwanted.into_iter().filter(|id| !known.contains(id)).collect();
        rest.sort_unstable();
        closing.entry(TopicId::ZERO).or_default().extend(rest);
        for (topic, mut partitions) in closing {
            partitions.sort_unstable();
            shard.close_partitions(&mut state, topic, partitions).map_err(refused)?;
        }
        if state.openings.damaged {
            // All partitions of the metadata are open: from here on an entry of any other violates the log's guarantee again.
            shard.propose_change(&mut state, &BrokerRecord::Level { level: LEVEL }).map_err(refused)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
