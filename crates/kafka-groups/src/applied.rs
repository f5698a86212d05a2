//! What has been committed: groups and offsets, changed by records only.
//!
//! A checkpoint keeps it as chunks, so that a commit rewrites the block it touches and nothing else:
//!
//! ```text
//! id  1 | group                                metadata of one group
//!     format u8 = 1 | since i64 ms | metadata as in a record
//! id  2 | topic id 16 | block i32 BE | group   offsets of OFFSETS_PER_CHUNK neighbouring partitions
//!     format u8 = 1 | count | { index i32 | offset i64 | leader epoch i32 | committed i64 ms |
//!                               expires (0, or 1 and i64 ms) | metadata text }*
//! id  3 | group                                the user against whose bound the group counts
//!     format u8 = 1 | user text
//! id  4 | group                                a group of the consumer protocol, without its members
//!     format u8 = 1 | since i64 ms | group epoch i32 | metadata hash u64 | assignment epoch i32 |
//!     count | { regular expression text | count | topic name text* }*
//! id  5 | group text | member id               a member of it; see the drawing of records
//!     format u8 = 1 | subscription | current | partitions (what it is to read)
//! ```

use super::consumer::model::{Change, ConsumerGroup, Member};
use super::record::{FORMAT, MemberMetadata, Metadata, Record};
use super::wire::{Decoder, Encoder, Malformed, utf8};
use bytes::Bytes;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::{TimestampMs, TopicId};
use std::collections::{BTreeMap, BTreeSet};

/// Neighbouring partitions whose offsets share a chunk.
const OFFSETS_PER_CHUNK: i32 = 128;

/// What a group costs in memory beside its texts, as an estimate. Bytes.
pub(super) const GROUP_BYTES: usize = 640;
/// What a topic in which a group has offsets costs in memory beside these, as an estimate. Bytes.
pub(super) const TOPIC_BYTES: usize = 640;
/// What a member costs in memory beside its texts, as an estimate. Bytes.
pub(super) const MEMBER_BYTES: usize = 512;
/// What an offset costs in memory beside its text, as an estimate. Bytes.
const OFFSET_BYTES: usize = 64;
/// What a text costs in memory beside itself, as an estimate. Bytes.
const TEXT_BYTES: usize = 64;

const METADATA_CHUNK: u8 = 1;
const OFFSETS_CHUNK: u8 = 2;
const OWNER_CHUNK: u8 = 3;
const CONSUMER_CHUNK: u8 = 4;
const MEMBER_CHUNK: u8 = 5;

/// The fewest bytes of an offset in a chunk.
const OFFSET_CHUNK_BYTES_MIN: usize = 4 + 8 + 4 + 8 + 1 + 1;

/// One committed offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    pub(super) offset: i64,
    pub(super) committed_ms: TimestampMs,
    pub(super) leader_epoch: i32,
    /// Most offsets have neither a text nor a time of their own.
    extra: Option<Box<Extra>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Extra {
    metadata: StrBytes,
    expire_ms: Option<TimestampMs>,
}

impl Stored {
    fn new(
        offset: i64,
        leader_epoch: i32,
        committed_ms: TimestampMs,
        metadata: StrBytes,
        expire_ms: Option<TimestampMs>,
    ) -> Stored {
        let plain = metadata.is_empty() && expire_ms.is_none();
        let extra = (!plain).then(|| Box::new(Extra { metadata, expire_ms }));
        Stored { offset, committed_ms, leader_epoch, extra }
    }

    /// What was committed with it.
    pub(super) fn metadata(&self) -> StrBytes {
        self.extra.as_ref().map_or(StrBytes::new(), |extra| extra.metadata.clone())
    }

    /// When it expires by the wish of the client that committed it (requests of versions 2 to 4).
    pub(super) fn expire_ms(&self) -> Option<TimestampMs> {
        self.extra.as_ref().and_then(|extra| extra.expire_ms)
    }

    fn cost(&self) -> usize {
        offset_cost(self.extra.as_ref().map_or(0, |extra| extra.metadata.len()))
    }
}

/// What an offset with a text of that length costs in memory, as an estimate. Bytes.
pub(super) fn offset_cost(metadata_len: usize) -> usize {
    let text = if metadata_len == 0 { 0 } else { TEXT_BYTES + metadata_len };
    OFFSET_BYTES + text
}

/// The offsets of a topic, by partition.
pub(super) type TopicOffsets = BTreeMap<i32, Stored>;

/// A group as committed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AppliedGroup {
    /// `None` for a group that only ever held offsets.
    pub(super) metadata: Option<Metadata>,
    /// A group of the consumer protocol has this, and no metadata.
    pub(super) consumer: Option<Box<ConsumerGroup>>,
    /// When the metadata was written: for a group without members, since when it has none.
    pub(super) since_ms: TimestampMs,
    pub(super) topics: BTreeMap<TopicId, TopicOffsets>,
    /// The user who committed the first offset, where users are known. What the group holds counts against that user's bound.
    pub(super) owner: Option<StrBytes>,
    /// What it holds in memory, as an estimate.
    bytes: usize,
}

impl AppliedGroup {
    fn is_nothing(&self) -> bool {
        self.metadata.is_none() && self.consumer.is_none() && self.topics.is_empty()
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ChunkKey {
    Metadata(StrBytes),
    Offsets(StrBytes, TopicId, i32),
    Owner(StrBytes),
    Consumer(StrBytes),
    Member(StrBytes, StrBytes),
}

/// What groups hold in memory, as estimates: in all, and those of each owner. Bytes.
#[derive(PartialEq, Eq, Default, Debug)]
struct Books {
    all: usize,
    /// Groups without an owner are those of the user without a name.
    by_owner: BTreeMap<StrBytes, usize>,
}

impl Books {
    /// A group holds so much more and so much less.
    fn change(&mut self, group: &mut AppliedGroup, more: usize, less: usize) {
        group.bytes = (group.bytes + more).saturating_sub(less);
        self.all = (self.all + more).saturating_sub(less);
        self.change_owner(group.owner.as_ref(), more, less);
    }

    fn change_owner(&mut self, owner: Option<&StrBytes>, more: usize, less: usize) {
        let owner = owner.cloned().unwrap_or_default();
        let bytes = self.by_owner.get(&owner).map_or(0, |bytes| *bytes);
        match (bytes + more).saturating_sub(less) {
            0 => self.by_owner.remove(&owner),
            bytes => self.by_owner.insert(owner, bytes),
        };
    }
}

/// All groups as committed.
#[derive(Default, Debug)]
pub(super) struct Applied {
    groups: BTreeMap<StrBytes, AppliedGroup>,
    changed: BTreeSet<ChunkKey>,
    books: Books,
}

impl Applied {
    pub(super) fn group(&self, id: &str) -> Option<&AppliedGroup> {
        self.groups.get(id)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (&StrBytes, &AppliedGroup)> {
        self.groups.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// What is held in memory, as an estimate. Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.books.all
    }

    /// What groups of an owner hold in memory, as an estimate; `""` owns those without one. Bytes.
    pub(super) fn bytes_of(&self, owner: &str) -> usize {
        self.books.by_owner.get(owner).map_or(0, |bytes| *bytes)
    }

    /// Applies a record that was committed in a frame of that time.
    pub(super) fn apply(&mut self, record: Record, time_ms: TimestampMs) {
        match record {
            Record::Metadata { group, metadata } => self.set_metadata(group, metadata, time_ms),
            Record::Commit { group, retention_ms, topics } => {
                let expire_ms = (retention_ms != -1).then(|| time_ms.saturating_add(retention_ms));
                for (topic, offsets) in topics {
                    for o in offsets {
                        let stored = Stored::new(o.offset, o.leader_epoch, time_ms, o.metadata, expire_ms);
                        self.put_offset(&group, topic, o.index, stored);
                    }
                }
            }
            Record::Remove { group, topics } => {
                for (topic, partitions) in topics {
                    partitions.into_iter().for_each(|index| self.remove_offset(&group, topic, index, |_| true));
                }
            }
            Record::Expire { group, topics } => {
                for (topic, partitions) in topics {
                    for (index, committed_ms) in partitions {
                        self.remove_offset(&group, topic, index, |stored| stored.committed_ms == committed_ms);
                    }
                }
            }
            Record::ForgetTopics { topics } => self.forget_topics(&topics),
            Record::Delete { group } => self.delete(&group),
            Record::Drop { group, generation } => {
                let unused = self.groups.get(&group).is_some_and(|g| {
                    let classic = g.metadata.as_ref().map(|m| (m.members.is_empty(), m.generation));
                    let consumer = g.consumer.as_ref().map(|c| (c.is_empty(), c.epoch()));
                    g.topics.is_empty() && classic.or(consumer) == Some((true, generation))
                });
                if unused {
                    self.delete(&group);
                }
            }
            Record::Owner { group, user } => {
                if self.groups.get(&group).is_some_and(|group| group.owner.is_none()) {
                    self.set_owner(&group, user);
                }
            }
            Record::Consumer { group, changes } => self.change_consumer(&group, changes, time_ms),
            Record::Barrier => {}
        }
    }

    fn set_owner(&mut self, id: &StrBytes, owner: StrBytes) {
        self.entry(id);
        let Some(group) = self.groups.get_mut(id) else { return };
        self.books.change_owner(group.owner.as_ref(), 0, group.bytes);
        self.books.change_owner(Some(&owner), group.bytes, 0);
        group.owner = Some(owner);
        self.changed.insert(ChunkKey::Owner(id.clone()));
    }

    /// Sees to it that the group is there.
    fn entry(&mut self, id: &StrBytes) {
        if !self.groups.contains_key(id) {
            let mut group = AppliedGroup::default();
            self.books.change(&mut group, GROUP_BYTES + id.len(), 0);
            self.groups.insert(id.clone(), group);
        }
    }

    fn set_metadata(&mut self, id: StrBytes, metadata: Metadata, time_ms: TimestampMs) {
        self.entry(&id);
        let Some(group) = self.groups.get_mut(&id) else { return };
        let before = group.metadata.as_ref().map_or(0, metadata_cost);
        let consumer = group.consumer.take();
        let consumer_before = consumer.as_ref().map_or(0, |consumer| consumer.bytes());
        self.books.change(group, metadata_cost(&metadata), before + consumer_before);
        group.metadata = Some(metadata);
        group.since_ms = time_ms;
        if let Some(consumer) = consumer {
            mark_consumer(&mut self.changed, &id, &consumer);
        }
        self.changed.insert(ChunkKey::Metadata(id));
    }

    /// Has something done with a group as one of the consumer protocol, which it becomes.
    fn with_consumer(&mut self, id: &StrBytes, act: impl FnOnce(&mut ConsumerGroup)) {
        self.entry(id);
        let Some(group) = self.groups.get_mut(id) else { return };
        if let Some(metadata) = group.metadata.take() {
            self.books.change(group, 0, metadata_cost(&metadata));
            self.changed.insert(ChunkKey::Metadata(id.clone()));
        }
        let before = group.consumer.as_ref().map_or(0, |consumer| consumer.bytes());
        let mut consumer = group.consumer.take().unwrap_or_default();
        act(&mut consumer);
        self.books.change(group, consumer.bytes(), before);
        group.consumer = Some(consumer);
    }

    fn change_consumer(&mut self, id: &StrBytes, changes: Vec<Change>, time_ms: TimestampMs) {
        let mut changed = Vec::new();
        self.with_consumer(id, |consumer| {
            for change in changes {
                match &change {
                    Change::Epoch { .. } | Change::Regex { .. } => changed.push(ChunkKey::Consumer(id.clone())),
                    Change::Targets { targets, .. } => {
                        changed.push(ChunkKey::Consumer(id.clone()));
                        changed.extend(targets.iter().map(|(member, _)| ChunkKey::Member(id.clone(), member.clone())));
                    }
                    Change::Member { id: member, .. }
                    | Change::Current { id: member, .. }
                    | Change::Remove { id: member } => changed.push(ChunkKey::Member(id.clone(), member.clone())),
                }
                consumer.apply(change);
            }
        });
        if let Some(group) = self.groups.get_mut(id) {
            group.since_ms = time_ms;
        }
        self.changed.insert(ChunkKey::Consumer(id.clone()));
        self.changed.extend(changed);
    }

    fn put_offset(&mut self, id: &StrBytes, topic: TopicId, index: i32, stored: Stored) {
        self.entry(id);
        let Some(group) = self.groups.get_mut(id) else { return };
        let new_topic = if group.topics.contains_key(&topic) { 0 } else { TOPIC_BYTES };
        let after = stored.cost() + new_topic;
        let old = group.topics.entry(topic).or_default().insert(index, stored);
        self.books.change(group, after, old.map_or(0, |old| old.cost()));
        self.changed.insert(ChunkKey::Offsets(id.clone(), topic, index.div_euclid(OFFSETS_PER_CHUNK)));
    }

    fn remove_offset(&mut self, id: &StrBytes, topic: TopicId, index: i32, condition: impl Fn(&Stored) -> bool) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Some(offsets) = group.topics.get_mut(&topic) else { return };
        let Some(mut cost) = offsets.get(&index).filter(|stored| condition(stored)).map(Stored::cost) else { return };
        offsets.remove(&index);
        if offsets.is_empty() {
            group.topics.remove(&topic);
            cost += TOPIC_BYTES;
        }
        self.books.change(group, 0, cost);
        self.changed.insert(ChunkKey::Offsets(id.clone(), topic, index.div_euclid(OFFSETS_PER_CHUNK)));
        self.remove_if_nothing(id);
    }

    fn forget_topics(&mut self, topics: &[TopicId]) {
        let mut emptied = Vec::new();
        for (id, group) in &mut self.groups {
            for topic in topics {
                let Some(offsets) = group.topics.remove(topic) else { continue };
                let cost = TOPIC_BYTES + offsets.values().map(Stored::cost).sum::<usize>();
                self.books.change(group, 0, cost);
                mark_offsets(&mut self.changed, id, *topic, &offsets);
            }
            if group.is_nothing() {
                emptied.push(id.clone());
            }
        }
        emptied.iter().for_each(|id| self.remove_if_nothing(id));
    }

    fn delete(&mut self, id: &StrBytes) {
        let Some(mut group) = self.groups.remove(id) else { return };
        let bytes = group.bytes;
        self.books.change(&mut group, 0, bytes);
        if group.metadata.is_some() {
            self.changed.insert(ChunkKey::Metadata(id.clone()));
        }
        if group.owner.is_some() {
            self.changed.insert(ChunkKey::Owner(id.clone()));
        }
        if let Some(consumer) = &group.consumer {
            mark_consumer(&mut self.changed, id, consumer);
        }
        for (topic, offsets) in &group.topics {
            mark_offsets(&mut self.changed, id, *topic, offsets);
        }
    }

    /// A group that only held offsets ends with the last of them.
    fn remove_if_nothing(&mut self, id: &StrBytes) {
        if self.groups.get(id).is_some_and(AppliedGroup::is_nothing) {
            self.delete(id);
        }
    }

    /// The chunks that changed since the last call, `None` for those that are gone.
    pub(super) fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|key| (key.encode(), self.chunk(&key))).collect()
    }

    /// Counts every chunk as changed.
    pub(super) fn change_all_chunks(&mut self) {
        for (id, group) in &self.groups {
            if group.metadata.is_some() {
                self.changed.insert(ChunkKey::Metadata(id.clone()));
            }
            if group.owner.is_some() {
                self.changed.insert(ChunkKey::Owner(id.clone()));
            }
            if let Some(consumer) = &group.consumer {
                mark_consumer(&mut self.changed, id, consumer);
            }
            for (topic, offsets) in &group.topics {
                mark_offsets(&mut self.changed, id, *topic, offsets);
            }
        }
    }

    fn chunk(&self, key: &ChunkKey) -> Option<Bytes> {
        let mut into = Encoder::default();
        into.u8(FORMAT);
        match key {
            ChunkKey::Metadata(id) => {
                let group = self.groups.get(id)?;
                into.i64(group.since_ms);
                group.metadata.as_ref()?.encode(&mut into);
            }
            ChunkKey::Owner(id) => into.text(self.groups.get(id)?.owner.as_ref()?),
            ChunkKey::Consumer(id) => {
                let group = self.groups.get(id)?;
                into.i64(group.since_ms);
                group.consumer.as_ref()?.encode_head(&mut into);
            }
            ChunkKey::Member(id, member) => self.groups.get(id)?.consumer.as_ref()?.member(member)?.encode(&mut into),
            ChunkKey::Offsets(id, topic, block) => {
                let offsets = self.groups.get(id)?.topics.get(topic)?;
                let first = block.checked_mul(OFFSETS_PER_CHUNK)?;
                let block = offsets.range(first..=first + (OFFSETS_PER_CHUNK - 1));
                let count = block.clone().count();
                if count == 0 {
                    return None;
                }
                into.len(count);
                block.for_each(|(index, stored)| encode_offset(&mut into, *index, stored));
            }
        }
        Some(into.finish())
    }

    /// Takes in a chunk of a checkpoint.
    pub(super) fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), Malformed> {
        let mut from = Decoder::new(chunk);
        let format = from.u8("format")?;
        if format != FORMAT {
            return Err(Malformed::new("unknown chunk format", format));
        }
        match ChunkKey::decode(id)? {
            ChunkKey::Metadata(group) => {
                let since_ms = from.i64("since")?;
                let metadata = Metadata::decode(&mut from)?;
                from.finish()?;
                self.set_metadata(group, metadata, since_ms);
            }
            ChunkKey::Owner(group) => {
                let owner = from.text("owner")?;
                from.finish()?;
                self.set_owner(&group, owner);
            }
            ChunkKey::Consumer(group) => {
                let since_ms = from.i64("since")?;
                let mut read = Ok(());
                self.with_consumer(&group, |consumer| read = consumer.decode_head(&mut from));
                read?;
                from.finish()?;
                if let Some(group) = self.groups.get_mut(&group) {
                    group.since_ms = since_ms;
                }
            }
            ChunkKey::Member(group, id) => {
                let member = Member::decode(&mut from)?;
                from.finish()?;
                self.with_consumer(&group, |consumer| consumer.put(id, member));
            }
            ChunkKey::Offsets(group, topic, block) => {
                let count = from.count("offsets", OFFSET_CHUNK_BYTES_MIN)?;
                let mut last = None;
                for _ in 0..count {
                    let (index, stored) = decode_offset(&mut from)?;
                    if index.div_euclid(OFFSETS_PER_CHUNK) != block || last.is_some_and(|last| last >= index) {
                        return Err(Malformed::new("partition in the wrong place", index));
                    }
                    last = Some(index);
                    self.put_offset(&group, topic, index, stored);
                }
                from.finish()?;
            }
        }
        // what comes from a checkpoint need not go into the next one
        self.changed.clear();
        Ok(())
    }
}

impl ChunkKey {
    fn encode(&self) -> Bytes {
        let mut into = Encoder::default();
        match self {
            ChunkKey::Metadata(group) => {
                into.u8(METADATA_CHUNK);
                into.raw(group.as_bytes());
            }
            ChunkKey::Owner(group) => {
                into.u8(OWNER_CHUNK);
                into.raw(group.as_bytes());
            }
            ChunkKey::Consumer(group) => {
                into.u8(CONSUMER_CHUNK);
                into.raw(group.as_bytes());
            }
            ChunkKey::Member(group, member) => {
                into.u8(MEMBER_CHUNK);
                into.text(group);
                into.raw(member.as_bytes());
            }
            ChunkKey::Offsets(group, topic, block) => {
                into.u8(OFFSETS_CHUNK);
                into.topic(*topic);
                into.raw(&block.to_be_bytes());
                into.raw(group.as_bytes());
            }
        }
        into.finish()
    }

    fn decode(bytes: &[u8]) -> Result<ChunkKey, Malformed> {
        let mut from = Decoder::new(bytes);
        match from.u8("chunk kind")? {
            METADATA_CHUNK => Ok(ChunkKey::Metadata(utf8("group", from.rest())?)),
            OWNER_CHUNK => Ok(ChunkKey::Owner(utf8("group", from.rest())?)),
            CONSUMER_CHUNK => Ok(ChunkKey::Consumer(utf8("group", from.rest())?)),
            MEMBER_CHUNK => {
                let group = from.text("group")?;
                Ok(ChunkKey::Member(group, utf8("member id", from.rest())?))
            }
            OFFSETS_CHUNK => {
                let topic = from.topic("topic id")?;
                let mut block = [0; 4];
                block.copy_from_slice(from.take("block", 4)?);
                Ok(ChunkKey::Offsets(utf8("group", from.rest())?, topic, i32::from_be_bytes(block)))
            }
            other => Err(Malformed::new("unknown chunk kind", other)),
        }
    }
}

fn mark_consumer(changed: &mut BTreeSet<ChunkKey>, id: &StrBytes, consumer: &ConsumerGroup) {
    changed.insert(ChunkKey::Consumer(id.clone()));
    changed.extend(consumer.member_ids().map(|member| ChunkKey::Member(id.clone(), member.clone())));
}

fn mark_offsets(changed: &mut BTreeSet<ChunkKey>, id: &StrBytes, topic: TopicId, offsets: &TopicOffsets) {
    let mut marked = None;
    for index in offsets.keys() {
        let block = index.div_euclid(OFFSETS_PER_CHUNK);
        if marked != Some(block) {
            changed.insert(ChunkKey::Offsets(id.clone(), topic, block));
            marked = Some(block);
        }
    }
}

fn encode_offset(into: &mut Encoder, index: i32, stored: &Stored) {
    into.i32(index);
    into.i64(stored.offset);
    into.i32(stored.leader_epoch);
    into.i64(stored.committed_ms);
    match stored.expire_ms() {
        Some(expire_ms) => {
            into.u8(1);
            into.i64(expire_ms);
        }
        None => into.u8(0),
    }
    into.text(&stored.metadata());
}

fn decode_offset(from: &mut Decoder<'_>) -> Result<(i32, Stored), Malformed> {
    let index = from.i32("partition")?;
    let offset = from.i64("offset")?;
    let leader_epoch = from.i32("leader epoch")?;
    let committed_ms = from.i64("commit time")?;
    let expire_ms = match from.u8("expiry")? {
        0 => None,
        1 => Some(from.i64("expiry")?),
        other => return Err(Malformed::new("expiry neither present nor absent", other)),
    };
    let metadata = from.text("offset metadata")?;
    Ok((index, Stored::new(offset, leader_epoch, committed_ms, metadata, expire_ms)))
}

fn metadata_cost(metadata: &Metadata) -> usize {
    let texts = |m: &MemberMetadata| {
        m.id.len() + m.instance_id.as_ref().map_or(0, |i| i.len()) + m.client_id.len() + m.client_host.len()
    };
    let members = metadata.members.iter();
    members.map(|m| MEMBER_BYTES + texts(m) + m.metadata.len() + m.assignment.len()).sum()
}

#[cfg(test)]
mod tests;
