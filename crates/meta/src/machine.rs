//! The metadata state machine.

use crate::alter::Altering;
use crate::record::{
    FIRST_CLIENT_PARTITION, MetaRecord, PartitionRecord, TopicRecord, decode_scope, decode_values, encode_scope,
    encode_values,
};
use crate::shards::{META_SHARD, ShardUse, Shards};
use bytes::Bytes;
use polylogue_api::machine::Command;
use polylogue_api::{
    AlterError, AlterSettings, AlterTopics, Caller, ConfigResolver, Context, CreateTopics, CreatedTopic, DeleteTopics,
    DeletedTopic, Durability, Effects, NewTopic, PartitionInfo, Proposal, Settings, SettingsScope, StateMachine,
    TopicConfig, TopicError, TopicInfo, TopicRef,
};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Map, NodeId, Offset, PartitionId, ProducerId, Set, ShardId, Term, TimestampMs, TopicId};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many producer ids one record reserves; as many may be skipped at a restart.
const PRODUCER_ID_BLOCK: i64 = 1000;
/// How many offsets (as a power of two) a partition of a memory shard may use up in one life of the process.
const OFFSETS_PER_TERM_BITS: u32 = 40;
/// Chunk ids: the counters, the shards, one a topic (`T` and the topic id), one a document of settings (`S` and the scope).
const COUNTERS_CHUNK: &[u8] = b"C";
const SHARDS_CHUNK: &[u8] = b"H";
const TOPIC_CHUNK: u8 = b'T';
const SETTINGS_CHUNK: u8 = b'S';

/// Commands of the machine.
#[derive(Debug)]
pub enum MetaCommand {
    /// Create topics; answered by [`MetaReply::Created`].
    CreateTopics(CreateTopics),
    /// Delete topics; answered by [`MetaReply::Deleted`].
    DeleteTopics(DeleteTopics),
    /// Change topics; answered by [`MetaReply::AlteredTopics`].
    AlterTopics(AlterTopics),
    /// Replace documents of settings; answered by [`MetaReply::AlteredSettings`].
    AlterSettings(AlterSettings),
    /// Allocate a producer id; answered by [`MetaReply::Producer`].
    AllocateProducerId,
    /// Add shards and the slots of machines; answered by [`MetaReply::Defined`].
    DefineShards(Shards),
}

/// Replies of the machine.
#[derive(Debug)]
pub enum MetaReply {
    /// In the order asked.
    Created(Vec<Result<CreatedTopic, TopicError>>),
    /// In the order asked.
    Deleted(Vec<Result<DeletedTopic, TopicError>>),
    /// In the order asked.
    AlteredTopics(Vec<Result<(), AlterError>>),
    /// In the order asked.
    AlteredSettings(Vec<Result<(), AlterError>>),
    /// A producer id that was never allocated before.
    Producer(ProducerId),
    /// The shards are there.
    Defined,
}

/// The effect of a committed record, for the broker to act upon.
#[derive(Clone, Debug)]
pub enum MetaEvent {
    /// A topic was created.
    Created(Arc<TopicMeta>),
    /// A topic was deleted.
    Deleted(Arc<TopicMeta>),
    /// A topic's settings changed, or partitions were added.
    Changed(Arc<TopicMeta>),
    /// A scope has another document. Where topics inherit from it the resolver knows of it.
    Settings(SettingsScope, Arc<Settings>),
    /// There are more shards, or slots of machines.
    Shards,
}

/// Bounds and placement.
#[derive(Clone, Debug)]
pub struct MetaSettings {
    /// Shards of class `sync`, in which partitions are spread as long as none is recorded.
    pub sync_shards: Vec<ShardId>,
    /// The shard of class `async`.
    pub async_shard: ShardId,
    /// The shard of class `memory`.
    pub memory_shard: ShardId,
    /// The bound on all partitions together.
    pub partitions_max: u64,
    /// This node, whose own document of settings goes before the cluster's.
    pub node: NodeId,
    /// What makes of recorded settings what holds.
    pub resolver: Arc<dyn ConfigResolver>,
}

/// A topic with its placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicMeta {
    record: TopicRecord,
}

impl TopicMeta {
    pub(crate) fn new(record: TopicRecord) -> TopicMeta {
        TopicMeta { record }
    }

    pub(crate) fn record(&self) -> &TopicRecord {
        &self.record
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> TopicId {
        self.record.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The topic's own settings: one layer of the effective ones, which [`ConfigResolver::holding`] returns.
    #[must_use]
    pub fn layer(&self) -> &Arc<TopicConfig> {
        &self.record.config
    }

    /// Its partitions and their shards.
    pub fn placement(&self) -> impl Iterator<Item = (PartitionId, ShardId)> + '_ {
        self.record.partitions.iter().map(|p| (p.id, p.shard))
    }

    /// Where the offsets of each partition begin in a term, for a shard that forgets: never where they went on before.
    pub fn first_offsets(&self, term: Term) -> impl Iterator<Item = Offset> + '_ {
        self.record
            .partitions
            .iter()
            .map(move |p| Offset(term.0.saturating_sub(p.opened_term.0) << OFFSETS_PER_TERM_BITS))
    }

    /// The leader epoch of each partition: the extent's base plus the terms since it was opened, so that it never
    /// falls (DESIGN section 5).
    pub fn leader_epochs(&self, term_of: impl Fn(ShardId) -> Term) -> impl Iterator<Item = PartitionInfo> {
        let epoch = move |p: &PartitionRecord| leader_epoch(p, term_of(p.shard));
        self.record.partitions.iter().map(move |p| PartitionInfo { id: p.id, leader_epoch: epoch(p) })
    }

    /// The topic as clients see it, with what holds for it.
    #[must_use]
    pub fn info(&self, term_of: &dyn Fn(ShardId) -> Term, holds: Arc<TopicConfig>) -> Arc<TopicInfo> {
        Arc::new(TopicInfo {
            name: self.record.name.as_str().into(),
            id: self.record.id,
            internal: self.record.internal,
            partitions: self.leader_epochs(term_of).collect(),
            config: holds,
        })
    }
}

fn leader_epoch(p: &PartitionRecord, term: Term) -> i32 {
    let terms = term.0.saturating_sub(p.opened_term.0);
    p.epoch_base.saturating_add(i32::try_from(terms).unwrap_or(i32::MAX))
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct MetaMachine {
    pub(crate) settings: MetaSettings,
    // applied
    pub(crate) topics: BTreeMap<String, Arc<TopicMeta>>,
    pub(crate) by_id: Map<TopicId, Arc<TopicMeta>>,
    pub(crate) documents: BTreeMap<SettingsScope, Arc<Settings>>,
    shards: Shards,
    /// The recorded shards of class `sync`.
    sync_shards: Vec<ShardId>,
    next_partition: u64,
    producer_ids_end: i64,
    // tail: what was proposed beyond the applied state
    pub(crate) tail: Tail,
    /// Replay is over, and each document goes to the resolver. During replay, superseded documents would, too.
    pub(crate) live: bool,
    // what happened since the host asked
    pub(crate) events: Vec<MetaEvent>,
    changed: std::collections::BTreeSet<Vec<u8>>,
    terms: Map<ShardId, Term>,
}

#[derive(Debug, Default)]
pub(crate) struct Tail {
    creating: Set<String>,
    pub(crate) deleting: Set<TopicId>,
    pub(crate) altering: Altering,
    pub(crate) next_partition: u64,
    pub(crate) partitions: u64,
    producer_next: i64,
    producer_end: i64,
    /// Records that are proposed and not applied.
    unapplied: u64,
}

impl MetaMachine {
    /// An empty one.
    #[must_use]
    pub fn new(settings: MetaSettings) -> MetaMachine {
        let mut machine = MetaMachine {
            settings,
            topics: BTreeMap::new(),
            by_id: Map::default(),
            documents: BTreeMap::new(),
            shards: Shards::default(),
            sync_shards: Vec::new(),
            next_partition: FIRST_CLIENT_PARTITION.0,
            producer_ids_end: 0,
            tail: Tail::default(),
            live: false,
            events: Vec::new(),
            changed: std::collections::BTreeSet::new(),
            terms: Map::default(),
        };
        machine.reset_tail();
        machine
    }

    /// Tells the term of a shard's writer: new partitions count their leader epochs from it.
    pub fn set_term(&mut self, shard: ShardId, term: Term) {
        self.terms.insert(shard, term);
    }

    /// Takes the effects of the records committed since the last call.
    pub fn take_events(&mut self) -> Vec<MetaEvent> {
        std::mem::take(&mut self.events)
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicMeta>> {
        self.topics.values()
    }

    /// The topic with this id.
    #[must_use]
    pub fn topic(&self, id: &TopicId) -> Option<&Arc<TopicMeta>> {
        self.by_id.get(id)
    }

    /// All documents of settings, by scope.
    pub fn documents(&self) -> impl Iterator<Item = (&SettingsScope, &Arc<Settings>)> {
        self.documents.iter()
    }

    /// The shards, and the slots of machines.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    fn shards_defined(&mut self, more: Shards) -> Result<(), String> {
        self.shards.add(more)?;
        self.sync_shards = self.shards.of_use(ShardUse::Sync);
        self.changed.insert(SHARDS_CHUNK.to_vec());
        self.events.push(MetaEvent::Shards);
        Ok(())
    }

    fn reset_tail(&mut self) {
        self.tail = Tail {
            creating: Set::default(),
            deleting: Set::default(),
            altering: Altering::default(),
            next_partition: self.next_partition,
            partitions: self.by_id.values().map(|t| t.record.partitions.len() as u64).sum(),
            // What is left of a block reserved earlier is skipped: ids are plenty, a doubled one is a disaster.
            producer_next: self.producer_ids_end,
            producer_end: self.producer_ids_end,
            unapplied: 0,
        };
    }

    pub(crate) fn shard_for(&self, durability: Durability, partition: u64) -> ShardId {
        match durability {
            Durability::Sync => {
                let recorded = Some(&self.sync_shards).filter(|shards| !shards.is_empty());
                let shards = recorded.unwrap_or(&self.settings.sync_shards);
                shards.get((partition % shards.len().max(1) as u64) as usize).copied().unwrap_or_default()
            }
            Durability::Async => self.settings.async_shard,
            Durability::Memory => self.settings.memory_shard,
        }
    }

    /// A shard's term; of the memory shard before its first use, the term it will start with.
    pub(crate) fn term_of(&self, shard: ShardId) -> Term {
        let known = self.terms.get(&shard).copied();
        let meta = self.terms.get(&META_SHARD);
        match known {
            None if shard == self.settings.memory_shard => Term(meta.copied().unwrap_or_default().0 + 1),
            known => known.unwrap_or_default(),
        }
    }

    fn name_is_taken(&self, name: &str) -> bool {
        self.tail.creating.contains(name)
            || self.topics.get(name).is_some_and(|t| !self.tail.deleting.contains(&t.id()))
    }

    fn plan_topic(&mut self, new: &NewTopic, id: TopicId, validate_only: bool) -> Result<TopicRecord, TopicError> {
        if self.name_is_taken(&new.name) {
            return Err(TopicError::Exists);
        }
        let partitions_max = self.settings.partitions_max;
        if self.tail.partitions + u64::from(new.partitions) > partitions_max {
            return Err(TopicError::TooManyPartitions { partitions_max });
        }
        let partitions = if validate_only { Vec::new() } else { self.place(new.config.durability, new.partitions) };
        if !validate_only {
            self.tail.creating.insert(new.name.clone());
        }
        Ok(TopicRecord {
            name: new.name.clone(),
            id,
            internal: new.internal,
            config: Arc::new(new.config.clone()),
            partitions,
        })
    }

    fn create(&mut self, context: &Context<'_>, caller: Caller, command: &CreateTopics, effects: &mut Effects) {
        let mut results = Vec::with_capacity(command.topics.len());
        let mut records = Vec::new();
        let inherited = self.settings.resolver.inherited();
        for (position, new) in command.topics.iter().enumerate() {
            let id = if command.validate_only {
                TopicId::ZERO
            } else {
                TopicId::from_random(spread(context.random, position as u64))
            };
            results.push(self.plan_topic(new, id, command.validate_only).map(|record| {
                let (holds, terms) = (self.settings.resolver.holding(&inherited, &record.config), &self.terms);
                let topic = TopicMeta::new(record.clone());
                records.push(MetaRecord::TopicCreated(record));
                CreatedTopic { topic: topic.info(&|shard| terms.get(&shard).copied().unwrap_or_default(), holds) }
            }));
        }
        if command.validate_only {
            records.clear();
        }
        self.propose(effects, caller, &records, MetaReply::Created(results));
    }

    fn delete(&mut self, caller: Caller, command: &DeleteTopics, effects: &mut Effects) {
        let mut results = Vec::with_capacity(command.topics.len());
        let mut records = Vec::new();
        for topic in &command.topics {
            let found = match topic {
                TopicRef::Name(name) => self.topics.get(name).ok_or(TopicError::UnknownName),
                TopicRef::Id(id) => self.by_id.get(id).ok_or(TopicError::UnknownId),
            };
            let found = match found {
                Ok(found) if self.tail.deleting.contains(&found.id()) => match topic {
                    TopicRef::Name(_) => Err(TopicError::UnknownName),
                    TopicRef::Id(_) => Err(TopicError::UnknownId),
                },
                other => other.cloned(),
            };
            results.push(found.map(|found| {
                self.tail.deleting.insert(found.id());
                self.tail.partitions -= u64::from(self.current_topic(&found).partitions);
                records.push(MetaRecord::TopicDeleted(found.id()));
                DeletedTopic { name: found.record.name.as_str().into(), id: found.id() }
            }));
        }
        self.propose(effects, caller, &records, MetaReply::Deleted(results));
    }

    fn allocate_producer(&mut self, caller: Caller, effects: &mut Effects) {
        let id = self.tail.producer_next;
        self.tail.producer_next += 1;
        if id < self.tail.producer_end && self.tail.producer_end <= self.producer_ids_end {
            effects.replies.push((caller, Box::new(MetaReply::Producer(ProducerId(id)))));
            return;
        }
        // Either the block is used up, or its reservation is still on its way: wait for a record in any case.
        self.tail.producer_end = self.tail.producer_end.max(id + PRODUCER_ID_BLOCK);
        let record = MetaRecord::ProducerIds { end: self.tail.producer_end };
        self.propose(effects, caller, &[record], MetaReply::Producer(ProducerId(id)));
    }

    /// Proposes the records in order; the reply leaves with the last of them. A reply without records, a refusal for instance, may depend on what is
    /// proposed and not applied yet: then it waits behind a record that changes nothing.
    pub(crate) fn propose(&mut self, effects: &mut Effects, caller: Caller, records: &[MetaRecord], reply: MetaReply) {
        let reply: Box<dyn Any + Send> = Box::new(reply);
        let barrier = MetaRecord::ProducerIds { end: self.producer_ids_end };
        let (last, first) = match records.split_last() {
            Some(split) => split,
            None if self.tail.unapplied > 0 => (&barrier, &[][..]),
            None => return effects.replies.push((caller, reply)),
        };
        for record in first {
            effects.proposals.push(Proposal { record: Bytes::from(record.encode()), replies: Vec::new() });
        }
        effects.proposals.push(Proposal { record: Bytes::from(last.encode()), replies: vec![(caller, reply)] });
        self.tail.unapplied += first.len() as u64 + 1;
    }

    /// The log refused a record, the newest of those proposed: the tail is what it was before. No caller has seen the ids in it.
    fn take_back(&mut self, record: MetaRecord) {
        match record {
            MetaRecord::TopicCreated(topic) => {
                self.tail.creating.remove(&topic.name);
                self.unplace(&topic.partitions);
            }
            MetaRecord::TopicDeleted(id) => {
                self.tail.deleting.remove(&id);
                if let Some(topic) = self.by_id.get(&id).cloned() {
                    self.tail.partitions += u64::from(self.current_topic(&topic).partitions);
                }
            }
            // The next caller waits for a record of its own, because this block is not applied.
            MetaRecord::ProducerIds { .. } | MetaRecord::Shards(_) => {}
            MetaRecord::TopicConfigured(id, _) => self.topic_change_refused(id),
            MetaRecord::TopicsConfigured(ids, _) => ids.into_iter().for_each(|id| self.topic_change_refused(id)),
            MetaRecord::PartitionsAdded(id, partitions) => {
                self.unplace(&partitions);
                self.topic_change_refused(id);
            }
            MetaRecord::Settings(scope, _) => self.document_refused(&scope),
        }
    }

    pub(crate) fn note_partitions(&mut self, partitions: &[PartitionRecord]) {
        for p in partitions {
            self.next_partition = self.next_partition.max(p.id.0 + 1);
        }
        self.tail.next_partition = self.tail.next_partition.max(self.next_partition);
    }

    fn topic_created(&mut self, record: TopicRecord) {
        self.note_partitions(&record.partitions);
        self.tail.creating.remove(&record.name);
        let topic = Arc::new(TopicMeta::new(record));
        self.note_changed(topic.id());
        self.by_id.insert(topic.id(), topic.clone());
        self.topics.insert(topic.record.name.clone(), topic.clone());
        self.events.push(MetaEvent::Created(topic));
    }

    fn topic_deleted(&mut self, id: TopicId) {
        self.tail.deleting.remove(&id);
        let Some(topic) = self.by_id.remove(&id) else { return };
        if self.topics.get(&topic.record.name).is_some_and(|now| now.id() == id) {
            self.topics.remove(&topic.record.name);
        }
        self.note_changed(id);
        self.events.push(MetaEvent::Deleted(topic));
    }

    pub(crate) fn note_changed(&mut self, id: TopicId) {
        let mut chunk = vec![TOPIC_CHUNK];
        chunk.extend_from_slice(&id.0);
        self.changed.insert(chunk);
        self.changed.insert(COUNTERS_CHUNK.to_vec());
    }

    pub(crate) fn note_document_changed(&mut self, scope: &SettingsScope) {
        let mut w = BinWriter::new();
        w.u8(SETTINGS_CHUNK);
        encode_scope(scope, &mut w);
        self.changed.insert(w.out);
    }

    fn counters(&self) -> Bytes {
        let mut w = BinWriter::new();
        w.u64(self.next_partition).i64(self.producer_ids_end);
        Bytes::from(w.out)
    }

    fn chunk(&self, id: &[u8]) -> Option<Bytes> {
        if id == COUNTERS_CHUNK {
            return Some(self.counters());
        }
        let mut w = BinWriter::new();
        if id == SHARDS_CHUNK {
            self.shards.encode(&mut w);
            return Some(Bytes::from(w.out));
        }
        match id.split_first()? {
            (&SETTINGS_CHUNK, scope) => {
                let scope = decode_scope(&mut BinReader::new(scope)).ok()?;
                encode_values(self.documents.get(&scope)?, &mut w);
            }
            (_, topic) => self.by_id.get(&TopicId(topic.try_into().ok()?))?.record.encode(&mut w),
        }
        Some(Bytes::from(w.out))
    }
}

/// Sixteen bytes out of one random number, different for each position (SplitMix64).
fn spread(random: u64, position: u64) -> [u8; 16] {
    let mut out = [0; 16];
    let mut state = random.wrapping_add(position.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for half in out.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        half.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    out
}

impl StateMachine for MetaMachine {
    fn handle(&mut self, context: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects) {
        let Ok(command) = command.downcast::<MetaCommand>() else { return };
        match *command {
            MetaCommand::CreateTopics(command) => self.create(context, caller, &command, effects),
            MetaCommand::DeleteTopics(command) => self.delete(caller, &command, effects),
            MetaCommand::AlterTopics(command) => self.alter_topics(caller, &command, effects),
            MetaCommand::AlterSettings(command) => self.alter_settings(caller, &command, effects),
            MetaCommand::AllocateProducerId => self.allocate_producer(caller, effects),
            MetaCommand::DefineShards(shards) => {
                self.propose(effects, caller, &[MetaRecord::Shards(shards)], MetaReply::Defined);
            }
        }
    }

    fn on_gone(&mut self, _: &Context<'_>, _: Caller, _: &mut Effects) {}

    fn apply(&mut self, record: &[u8], _: TimestampMs) -> Result<(), String> {
        let record = MetaRecord::decode(record).map_err(|e| format!("a record of the topics cannot be read: {e}"))?;
        self.tail.unapplied = self.tail.unapplied.saturating_sub(1);
        match record {
            MetaRecord::TopicCreated(topic) => self.topic_created(topic),
            MetaRecord::TopicDeleted(id) => self.topic_deleted(id),
            MetaRecord::ProducerIds { end } => {
                if end > self.producer_ids_end {
                    self.producer_ids_end = end;
                    self.changed.insert(COUNTERS_CHUNK.to_vec());
                }
                // Not one of this tail's own blocks: the writer that reserved it may have given its ids out.
                if end > self.tail.producer_end {
                    (self.tail.producer_next, self.tail.producer_end) = (end, end);
                }
            }
            MetaRecord::TopicConfigured(id, config) => self.topic_configured(id, config),
            MetaRecord::TopicsConfigured(ids, config) => {
                ids.into_iter().for_each(|id| self.topic_configured(id, config.clone()));
            }
            MetaRecord::PartitionsAdded(id, partitions) => self.partitions_added(id, &partitions),
            MetaRecord::Settings(scope, settings) => self.settings_replaced(scope, settings),
            MetaRecord::Shards(shards) => self.shards_defined(shards)?,
        }
        Ok(())
    }

    fn on_ready(&mut self, _: &Context<'_>) {
        self.reset_tail();
        self.live = true;
        self.tell_resolver();
    }

    fn on_refused(&mut self, _: &Context<'_>, records: &[Bytes], _: &mut Effects) {
        self.tail.unapplied = self.tail.unapplied.saturating_sub(records.len() as u64);
        // Its own records can be read.
        let records = records.iter().rev().filter_map(|record| MetaRecord::decode(record).ok());
        records.for_each(|record| self.take_back(record));
    }

    fn on_writer_lost(&mut self, _: &Context<'_>, _: &mut Effects) {
        self.reset_tail();
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }

    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Effects) {}

    fn on_topics_deleted(&mut self, _: &Context<'_>, _: &[Arc<TopicInfo>], _: &mut Effects) {}

    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|id| (self.chunk(&id), id)).map(|(chunk, id)| (Bytes::from(id), chunk)).collect()
    }

    fn change_all_chunks(&mut self) {
        // As long as nothing was counted there is no chunk that could have changed.
        if self.next_partition > FIRST_CLIENT_PARTITION.0 || self.producer_ids_end > 0 {
            self.changed.insert(COUNTERS_CHUNK.to_vec());
        }
        if !self.shards.is_empty() {
            self.changed.insert(SHARDS_CHUNK.to_vec());
        }
        let topics: Vec<TopicId> = self.topics.values().map(|topic| topic.id()).collect();
        topics.into_iter().for_each(|id| self.note_changed(id));
        let scopes: Vec<SettingsScope> = self.documents.keys().cloned().collect();
        scopes.iter().for_each(|scope| self.note_document_changed(scope));
    }

    fn load_chunk(&mut self, id: &[u8], chunk: Bytes) -> Result<(), String> {
        let mut r = BinReader::new(&chunk);
        if id == SHARDS_CHUNK {
            let shards = Shards::decode(&mut r).and_then(|shards| r.end("metadata chunk").map(|()| shards));
            self.shards_defined(shards.map_err(|e| e.to_string())?)?;
            self.changed.clear();
            return Ok(());
        }
        let mut load = || {
            match id.split_first() {
                _ if id == COUNTERS_CHUNK => {
                    self.next_partition = r.u64("next partition")?;
                    self.producer_ids_end = r.i64("producer ids")?;
                }
                Some((&SETTINGS_CHUNK, scope)) => {
                    let scope = decode_scope(&mut BinReader::new(scope))?;
                    let settings = decode_values(&mut r)?;
                    self.settings_replaced(scope, settings);
                }
                _ => {
                    let record = TopicRecord::decode(&mut r)?;
                    self.topic_created(record);
                }
            }
            r.end("metadata chunk")
        };
        let result: Result<(), String> = load().map_err(|e: BinError| e.to_string());
        // What a checkpoint holds needs no new checkpoint.
        self.changed.clear();
        result
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
