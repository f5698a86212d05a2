//! OffsetCommit, OffsetFetch, OffsetDelete, and the end of unused offsets.

use super::KafkaGroups;
use super::applied::{AppliedGroup, GROUP_BYTES, Stored, TOPIC_BYTES, TopicOffsets, offset_cost};
use super::command::{
    CommitOffsets, DeleteOffsets, DeleteOffsetsReply, FetchGroup, FetchOffsets, FetchTopic, FetchedGroup,
    FetchedOffset, FetchedTopic, GroupReply, GroupState, TopicKey, TopicResults, refused_fetch,
};
use super::join::validate_member;
use super::live::Live;
use super::record::{CommittedOffset, Record};
use super::settings::{OFFSETS_REPLY_BYTES_MAX, REPLY_ENTRIES_MAX};
use super::timers::TimerKind;
use super::turn::{group_key, propose};
use super::wire::detached;
use polylogue_api::{Caller, Catalog, Context, Effects, Now, TopicInfo};
use polylogue_kafka_codec::generated::consumer_protocol_subscription::ConsumerProtocolSubscription;
use polylogue_kafka_codec::{ErrorCode, Message, Reader, StrBytes};
use polylogue_types::{TimestampMs, TopicId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// From this version of OffsetCommit on a group that is not there is called that, and no illegal generation.
const COMMIT_NOT_FOUND_FROM: i16 = 9;

/// The protocol type whose metadata says which topics a member reads.
const CONSUMER: &str = "consumer";

/// A partition that may be committed: where its result stands, and what is to be written.
type Candidate = (usize, usize, CommittedOffset);

impl KafkaGroups {
    pub(super) fn commit(
        &mut self,
        context: &Context<'_>,
        caller: Caller,
        request: &CommitOffsets,
        effects: &mut Effects,
    ) {
        let (mut results, mut candidates) = resolve(context.catalog, request);
        if !candidates.is_empty() {
            let refused = self
                .validate_commit(request, &results, &candidates)
                .and_then(|()| self.room_for(request, &results, &candidates));
            if let Err(error) = refused {
                candidates.drain(..).for_each(|(t, p, _)| set_result(&mut results, t, p, error));
            } else {
                self.commit_is_a_heartbeat(context, request, effects);
            }
        }
        let max = self.settings.offset_metadata_bytes_max;
        candidates.retain(|(t, p, offset)| {
            let fits = text_len(&offset.metadata, max) <= max;
            if !fits {
                set_result(&mut results, *t, *p, ErrorCode::OffsetMetadataTooLarge);
            }
            fits
        });
        let mut topics: Vec<(TopicId, Vec<CommittedOffset>)> = Vec::new();
        let mut last = None;
        for (t, _, offset) in candidates {
            if last != Some(t) {
                let id = results.get(t).map_or(TopicId::ZERO, |topic| topic.id);
                topics.push((id, Vec::new()));
                last = Some(t);
            }
            if let Some((_, offsets)) = topics.last_mut() {
                offsets.push(offset);
            }
        }
        let reply = GroupReply::CommitOffsets(results);
        if topics.is_empty() {
            effects.replies.push((caller, Box::new(reply)));
            return;
        }
        let group = detached(&request.group_id);
        self.watch(context.now, &group);
        let is_owned = self.applied.group(&group).is_some_and(|group| group.owner.is_some());
        let owner = request.user.as_ref().filter(|_| !is_owned);
        let owner = owner.map(|user| Record::Owner { group: group.clone(), user: user.clone() });
        let record = Record::Commit { group, retention_ms: request.retention_time_ms, topics };
        propose(effects, &record, [(caller, reply)]);
        // Behind the offsets: a group that has nothing has no owner.
        if let Some(owner) = owner {
            propose(effects, &owner, []);
        }
    }

    fn validate_commit(
        &self,
        request: &CommitOffsets,
        results: &[TopicResults],
        candidates: &[Candidate],
    ) -> Result<(), ErrorCode> {
        if let Some(group) = self.consumer_group(&request.group_id) {
            let topic = |t: &usize| results.get(*t).map_or(TopicId::ZERO, |topic| topic.id);
            return group.validate_commit(request, candidates.iter().map(|(t, _, offset)| (topic(t), offset.index)));
        }
        let simple = request.generation < 0 && request.member_id.is_empty() && request.instance_id.is_none();
        let Some(live) = self.live.get(&request.group_id) else {
            // an empty group: a client without a generation may commit, there are no members
            return match self.applied.group(&request.group_id) {
                _ if request.generation < 0 => Ok(()),
                Some(_) => Err(ErrorCode::UnknownMemberId),
                None if request.version >= COMMIT_NOT_FOUND_FROM => Err(ErrorCode::GroupIdNotFound),
                None => Err(ErrorCode::IllegalGeneration),
            };
        };
        if request.generation < 0 && live.state == GroupState::Empty {
            return Ok(());
        }
        if simple {
            return Err(ErrorCode::UnknownMemberId);
        }
        validate_member(live, &request.member_id, request.instance_id.as_ref())?;
        if request.generation != live.generation {
            Err(ErrorCode::IllegalGeneration)
        } else if live.state == GroupState::CompletingRebalance {
            Err(ErrorCode::RebalanceInProgress)
        } else {
            Ok(())
        }
    }

    /// Whether the bounds on groups and memory leave room for new offsets of a commit. Existing ones can always be updated.
    fn room_for(
        &self,
        request: &CommitOffsets,
        results: &[TopicResults],
        candidates: &[Candidate],
    ) -> Result<(), ErrorCode> {
        let known = self.applied.group(&request.group_id);
        let topic = |t: usize| known?.topics.get(&results.get(t)?.id);
        let mut growth = if known.is_none() { GROUP_BYTES + request.group_id.len() } else { 0 };
        let mut last = None;
        for (t, _, offset) in candidates {
            let stored = topic(*t).and_then(|offsets| offsets.get(&offset.index));
            let before = stored.map_or(0, |old| offset_cost(old.metadata().len()));
            growth += offset_cost(offset.metadata.len()).saturating_sub(before);
            if last != Some(t) && topic(*t).is_none() {
                growth += TOPIC_BYTES;
            }
            last = Some(t);
        }
        let new_group = known.is_none() && self.applied.len() >= self.settings.groups_max;
        if new_group || (growth > 0 && self.memory() + growth > self.settings.memory_bytes_max) {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let owner = known.and_then(|group| group.owner.as_ref()).or(request.user.as_ref());
        if growth > 0 && self.bytes_of(owner) + growth > self.settings.user_bytes_max {
            self.usage.refuse();
            // Clients take this one for final; those that say to try again would have them do so for ever.
            return Err(ErrorCode::InvalidCommitOffsetSize);
        }
        Ok(())
    }

    /// A commit keeps the session of its member alive, as in Kafka.
    fn commit_is_a_heartbeat(&mut self, context: &Context<'_>, request: &CommitOffsets, effects: &mut Effects) {
        self.visit(context.now, effects, &request.group_id, |turn, live| {
            if matches!(live.state, GroupState::Stable | GroupState::PreparingRebalance) {
                turn.heard_of(live, &detached(&request.member_id));
            }
        });
    }

    pub(super) fn fetch(&self, catalog: &dyn Catalog, request: &FetchOffsets) -> GroupReply {
        let mut room = Room { entries: REPLY_ENTRIES_MAX, bytes: OFFSETS_REPLY_BYTES_MAX };
        let groups = request.groups.iter().take(REPLY_ENTRIES_MAX);
        GroupReply::FetchOffsets(groups.map(|g| self.fetch_group(catalog, request.version, g, &mut room)).collect())
    }

    fn fetch_group(&self, catalog: &dyn Catalog, version: i16, wanted: &FetchGroup, room: &mut Room) -> FetchedGroup {
        let group = self.applied.group(&wanted.group_id);
        let consumer = group.and_then(|group| group.consumer.as_ref());
        if let Some(Err(error)) = consumer.map(|consumer| consumer.validate_fetch(wanted)) {
            return refused_fetch(wanted, version, error);
        }
        let topics = match &wanted.topics {
            Some(topics) => topics.iter().map(|topic| fetch_topic(catalog, group, topic, room)).collect(),
            None => all_topics(catalog, group, room),
        };
        match topics {
            Some(topics) => FetchedGroup { group_id: wanted.group_id.clone(), error: ErrorCode::None, topics },
            None => refused_fetch(wanted, version, ErrorCode::InvalidRequest),
        }
    }

    pub(super) fn delete_offsets(
        &mut self,
        context: &Context<'_>,
        caller: Caller,
        request: &DeleteOffsets,
        effects: &mut Effects,
    ) {
        let live = self.live.get(&request.group_id);
        let known = live.is_some()
            || self.consumers.contains_key(&request.group_id)
            || self.applied.group(&request.group_id).is_some();
        let subscription = match self.consumers.get(&request.group_id) {
            Some(tail) => Subscription::Topics(tail.subscribed()),
            None => live.map_or(Subscription::None, Subscription::of),
        };
        let other_members = live.is_some_and(|l| l.state != GroupState::Empty && !uses_consumer(l));
        let error = match () {
            () if request.group_id.is_empty() => ErrorCode::InvalidGroupId,
            () if !known => ErrorCode::GroupIdNotFound,
            () if other_members => ErrorCode::NonEmptyGroup,
            () => ErrorCode::None,
        };
        if error != ErrorCode::None {
            let reply = GroupReply::DeleteOffsets(DeleteOffsetsReply { error, topics: Vec::new() });
            effects.replies.push((caller, Box::new(reply)));
            return;
        }
        let (mut results, mut removed) = (Vec::new(), Vec::new());
        for (name, partitions) in &request.topics {
            let topic = context.catalog.topic(name);
            let result = |index: i32| match &topic {
                None => ErrorCode::UnknownTopicOrPartition,
                Some(topic) if !has_partition(topic, index) => ErrorCode::UnknownTopicOrPartition,
                Some(_) if subscription.contains(name) => ErrorCode::GroupSubscribedToTopic,
                Some(_) => ErrorCode::None,
            };
            let partitions: Vec<_> = partitions.iter().map(|index| (*index, result(*index))).collect();
            let id = topic.as_ref().map_or(TopicId::ZERO, |t| t.id);
            let gone: Vec<i32> = partitions.iter().filter(|(_, e)| *e == ErrorCode::None).map(|(i, _)| *i).collect();
            if !gone.is_empty() {
                removed.push((id, gone));
            }
            results.push(TopicResults { name: name.clone(), id, partitions });
        }
        let reply = GroupReply::DeleteOffsets(DeleteOffsetsReply { error, topics: results });
        if removed.is_empty() {
            effects.replies.push((caller, Box::new(reply)));
            return;
        }
        let record = Record::Remove { group: detached(&request.group_id), topics: removed };
        propose(effects, &record, [(caller, reply)]);
    }

    /// The time has come to see which offsets of a group have outlived their use; a group without any, and without
    /// members, ends.
    pub(super) fn check_offsets(&mut self, context: &Context<'_>, id: &StrBytes, effects: &mut Effects) {
        let Some(group) = self.applied.group(id) else {
            if self.unapplied == 0 {
                self.watched.remove(id);
            } else {
                self.watch_again(context.now, id);
            }
            return;
        };
        let live = self.live.get(id);
        let tail = self.consumers.get(id);
        let rule = match tail {
            Some(tail) => Rule::Unsubscribed(tail.subscribed()),
            None => Rule::of(group, live),
        };
        let mut expired = Vec::new();
        let mut kept = false;
        for (topic, offsets) in &group.topics {
            let info = context.catalog.topic_by_id(*topic);
            let over = |stored: &Stored| match &info {
                // the topic went while the record of that was lost with its writer
                None => true,
                Some(info) => rule.is_over(stored, info, context.now.wall_ms, self.settings.offsets_retention_ms),
            };
            let gone: Vec<_> = offsets.iter().filter(|(_, s)| over(s)).map(|(i, s)| (*i, s.committed_ms)).collect();
            kept |= gone.len() < offsets.len();
            if !gone.is_empty() {
                expired.push((*topic, gone));
            }
        }
        let empty = group.metadata.as_ref().filter(|m| m.members.is_empty() && live.is_none()).map(|m| m.generation);
        // Nothing of it may be on its way: what comes behind the record that ends it begins anew.
        let is_alone = tail.is_none() && live.is_none() && self.unapplied == 0;
        let ended = group.consumer.as_ref().filter(|c| c.is_empty() && is_alone && !kept).map(|c| c.epoch());
        if !expired.is_empty() {
            let record = Record::Expire { group: id.clone(), topics: expired };
            propose(effects, &record, []);
        }
        if let Some(generation) = empty.filter(|_| !kept) {
            let record = Record::Drop { group: id.clone(), generation };
            propose(effects, &record, []);
        }
        if let Some(generation) = ended {
            self.end_consumer(context, id, effects, &Record::Drop { group: id.clone(), generation });
        }
        self.watch_again(context.now, id);
    }

    /// Has a group of the consumer protocol ended by that record. One of the same name begins anew behind it.
    pub(super) fn end_consumer(
        &mut self,
        context: &Context<'_>,
        id: &StrBytes,
        effects: &mut Effects,
        record: &Record,
    ) {
        self.load_tail(id);
        self.visit_consumer(context, effects, id, |turn, tail| {
            tail.end();
            propose(turn.effects, record, []);
        });
    }

    /// Has the offsets of a group looked at from time to time.
    pub(super) fn watch(&mut self, now: Now, id: &StrBytes) {
        if !self.watched.contains(id) {
            self.watched.insert(id.clone());
            self.watch_again(now, id);
        }
    }

    fn watch_again(&mut self, now: Now, id: &StrBytes) {
        let at_ms = now.monotonic_ms.saturating_add(self.settings.offsets_check_ms.max(1));
        self.timers.queue(at_ms, group_key(id, TimerKind::Offsets));
    }
}

/// Finds the topics of a commit. What is unknown has its result already.
fn resolve(catalog: &dyn Catalog, request: &CommitOffsets) -> (Vec<TopicResults>, Vec<Candidate>) {
    let mut results = Vec::with_capacity(request.topics.len());
    let mut candidates = Vec::new();
    for (t, topic) in request.topics.iter().enumerate() {
        let (info, unknown) = find_topic(catalog, &topic.topic);
        let (name, id) = names(&topic.topic, info.as_ref());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (p, partition) in topic.partitions.iter().enumerate() {
            let error = match &info {
                None => unknown,
                Some(info) if !has_partition(info, partition.index) => ErrorCode::UnknownTopicOrPartition,
                Some(_) => {
                    let offset = CommittedOffset {
                        index: partition.index,
                        offset: partition.offset,
                        leader_epoch: partition.leader_epoch,
                        metadata: partition.metadata.clone().unwrap_or_default(),
                    };
                    candidates.push((t, p, offset));
                    ErrorCode::None
                }
            };
            partitions.push((partition.index, error));
        }
        results.push(TopicResults { name, id, partitions });
    }
    (results, candidates)
}

fn set_result(results: &mut [TopicResults], topic: usize, partition: usize, error: ErrorCode) {
    if let Some(result) = results.get_mut(topic).and_then(|t| t.partitions.get_mut(partition)) {
        result.1 = error;
    }
}

/// How long Kafka takes a text to be: in UTF-16 units, which are never more than its bytes.
fn text_len(text: &str, max: usize) -> usize {
    if text.len() <= max { text.len() } else { text.encode_utf16().count() }
}

/// The topic, or else the code for one that is not there.
fn find_topic(catalog: &dyn Catalog, key: &TopicKey) -> (Option<Arc<TopicInfo>>, ErrorCode) {
    match key {
        TopicKey::Name(name) => (catalog.topic(name), ErrorCode::UnknownTopicOrPartition),
        TopicKey::Id(id) => (catalog.topic_by_id(*id), ErrorCode::UnknownTopicId),
    }
}

fn names(key: &TopicKey, info: Option<&Arc<TopicInfo>>) -> (StrBytes, TopicId) {
    let (name, id) = key.parts();
    match info {
        Some(info) if name.is_empty() => (StrBytes::from(&*info.name), id),
        Some(info) => (name, info.id),
        None => (name, id),
    }
}

fn has_partition(topic: &TopicInfo, index: i32) -> bool {
    usize::try_from(index).is_ok_and(|index| index < topic.partitions.len())
}

/// What a reply may still tell of. What a refused group has taken stays taken, so that the work for a request is bounded
/// by it too.
#[derive(Debug)]
struct Room {
    entries: usize,
    bytes: usize,
}

impl Room {
    /// Room for one entry of so many bytes. `None` when there is none left, from then on.
    fn take(&mut self, bytes: usize) -> Option<()> {
        let rest = self.entries.checked_sub(1).zip(self.bytes.checked_sub(bytes));
        (self.entries, self.bytes) = rest.unwrap_or((0, 0));
        rest.map(|_| ())
    }

    fn topic(&mut self, topic: FetchedTopic) -> Option<FetchedTopic> {
        self.take(size_of::<FetchedTopic>() + topic.name.len())?;
        Some(topic)
    }

    fn offset(&mut self, offset: FetchedOffset) -> Option<FetchedOffset> {
        self.take(size_of::<FetchedOffset>() + offset.metadata.len())?;
        Some(offset)
    }
}

/// `None` when there is no room for it.
fn fetch_topic(
    catalog: &dyn Catalog,
    group: Option<&AppliedGroup>,
    wanted: &FetchTopic,
    room: &mut Room,
) -> Option<FetchedTopic> {
    let (info, unknown) = find_topic(catalog, &wanted.topic);
    let (name, id) = names(&wanted.topic, info.as_ref());
    // a name that is not there has no offsets, which is no error; an id that is not there is one
    let error = match &wanted.topic {
        TopicKey::Id(_) if info.is_none() => unknown,
        _ => ErrorCode::None,
    };
    let offsets = info.and_then(|info| group?.topics.get(&info.id));
    // a partition that is named twice is answered once
    let mut seen = BTreeSet::new();
    let once = wanted.partitions.iter().filter(|index| seen.insert(**index));
    let offset = |index: &i32| match offsets.and_then(|offsets| offsets.get(index)) {
        Some(stored) => room.offset(fetched(*index, stored)),
        None => room.offset(FetchedOffset::none(*index, error)),
    };
    let partitions = once.map(offset).collect::<Option<_>>()?;
    room.topic(FetchedTopic { name, id, partitions })
}

/// `None` when there is no room for them.
fn all_topics(catalog: &dyn Catalog, group: Option<&AppliedGroup>, room: &mut Room) -> Option<Vec<FetchedTopic>> {
    let topic = |(id, offsets): (&TopicId, &TopicOffsets)| {
        let info = catalog.topic_by_id(*id)?;
        let partitions = offsets.iter().map(|(index, stored)| room.offset(fetched(*index, stored)));
        let partitions = partitions.collect::<Option<_>>();
        let name = StrBytes::from(&*info.name);
        Some(partitions.and_then(|partitions| room.topic(FetchedTopic { name, id: *id, partitions })))
    };
    let mut topics = group.iter().flat_map(|g| &g.topics).filter_map(topic).collect::<Option<Vec<FetchedTopic>>>()?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    Some(topics)
}

fn fetched(index: i32, stored: &Stored) -> FetchedOffset {
    FetchedOffset {
        index,
        offset: stored.offset,
        leader_epoch: stored.leader_epoch,
        metadata: stored.metadata(),
        error: ErrorCode::None,
    }
}

fn uses_consumer(live: &Live) -> bool {
    live.protocol_type.as_deref() == Some(CONSUMER)
}

/// What a group's members read, as far as we can know.
#[derive(Debug)]
enum Subscription {
    /// Nothing.
    None,
    /// These.
    Topics(BTreeSet<StrBytes>),
    /// Perhaps anything: members of type `consumer` that say it in a way we cannot read.
    Unknown,
}

impl Subscription {
    fn of(live: &Live) -> Subscription {
        if live.len() == 0 || !uses_consumer(live) {
            return Subscription::None;
        }
        let mut topics = BTreeSet::new();
        for (_, member) in live.members() {
            let mut reader = Reader::new(member.metadata(live.protocol.as_ref()));
            // the form of version 0 begins the form of every version
            let version = reader.i16("version");
            match version.and_then(|_| ConsumerProtocolSubscription::decode(&mut reader, 0)) {
                Ok(subscription) => topics.extend(subscription.topics),
                Err(_) => return Subscription::Unknown,
            }
        }
        Subscription::Topics(topics)
    }

    fn contains(&self, topic: &str) -> bool {
        match self {
            Subscription::None => false,
            Subscription::Topics(topics) => topics.contains(topic),
            Subscription::Unknown => true,
        }
    }
}

/// From when on the retention of a group's offsets runs (KIP-211, KIP-496).
#[derive(Debug)]
enum Rule {
    /// It does not: the group is in use.
    Never,
    /// From the commit: there are no members by design.
    SinceCommit,
    /// From the moment at which the group became empty.
    Since(TimestampMs),
    /// From the commit, for topics that its members do not read.
    Unsubscribed(BTreeSet<StrBytes>),
}

impl Rule {
    fn of(group: &AppliedGroup, live: Option<&Live>) -> Rule {
        let Some(live) = live else {
            // An empty group of the consumer protocol subscribes to nothing, and each offset goes by its own time.
            let joined = group.metadata.as_ref().is_some_and(|m| m.protocol_type.is_some());
            return if joined { Rule::Since(group.since_ms) } else { Rule::SinceCommit };
        };
        if live.protocol_type.is_none() {
            return Rule::SinceCommit;
        }
        match (live.state, Subscription::of(live)) {
            (GroupState::Empty, _) if live.unapplied == 0 => Rule::Since(group.since_ms),
            (GroupState::Stable, Subscription::Topics(topics)) => Rule::Unsubscribed(topics),
            _ => Rule::Never,
        }
    }

    fn is_over(&self, stored: &Stored, topic: &TopicInfo, now_ms: TimestampMs, retention_ms: u64) -> bool {
        let since_ms = match self {
            Rule::Never => return false,
            Rule::SinceCommit => stored.committed_ms,
            Rule::Since(since_ms) => *since_ms,
            Rule::Unsubscribed(topics) if topics.contains(&*topic.name) => return false,
            Rule::Unsubscribed(_) => stored.committed_ms,
        };
        match stored.expire_ms() {
            Some(expire_ms) => now_ms >= expire_ms,
            None => u64::try_from(now_ms.saturating_sub(since_ms)).is_ok_and(|age_ms| age_ms >= retention_ms),
        }
    }
}
