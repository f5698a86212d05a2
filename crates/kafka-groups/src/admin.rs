//! ListGroups, DescribeGroups and DeleteGroups, and the same for people: what the admin interface shows.

use super::KafkaGroups;
use super::command::{
    DescribeGroups, DescribedGroup, DescribedMember, GroupKind, GroupReply, GroupState, ListGroups, ListedGroup,
    OffsetListing,
};
use super::consumer::PROTOCOL_TYPE;
use super::live::{Live, Member};
use super::record::Record;
use super::settings::REPLY_ENTRIES_MAX;
use super::turn::{Turn, propose};
use super::wire::detached;
use bytes::Bytes;
use polylogue_api::{Caller, Catalog, Context, Effects};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use std::collections::BTreeSet;

/// From this version of DescribeGroups on a group that is not there is an error (KIP-1043).
const DESCRIBE_NOT_FOUND_FROM: i16 = 6;

/// A group in one line, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSummary {
    /// The group.
    pub group_id: StrBytes,
    /// Its state.
    pub state: GroupState,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: StrBytes,
    /// The protocol chosen; empty while there is none.
    pub protocol_name: StrBytes,
    /// The generation, 0 before the first.
    pub generation: i32,
    /// The leader's member id, empty for none.
    pub leader: StrBytes,
    /// How many members it has.
    pub members: usize,
    /// How many offsets it holds.
    pub offsets: usize,
}

impl KafkaGroups {
    /// All groups, by name: those with members and those that only hold offsets.
    pub fn summaries(&self) -> impl Iterator<Item = GroupSummary> {
        self.ids().into_iter().filter_map(|id| self.summary(id))
    }

    /// One group in one line.
    #[must_use]
    pub fn summary(&self, group_id: &str) -> Option<GroupSummary> {
        let (live, applied) = (self.live.get(group_id), self.applied.group(group_id));
        let offsets = applied.map_or(0, |group| group.topics.values().map(|offsets| offsets.len()).sum());
        if let Some(group) = self.consumer_group(group_id) {
            return Some(GroupSummary {
                group_id: StrBytes::from(group_id),
                state: group.state(),
                protocol_type: StrBytes::from_static(PROTOCOL_TYPE),
                protocol_name: group.assignor().cloned().unwrap_or_default(),
                generation: group.epoch(),
                leader: StrBytes::new(),
                members: group.len(),
                offsets,
            });
        }
        let Some(live) = live else {
            // without members, or it would be live
            let metadata = applied?.metadata.clone().unwrap_or_default();
            return Some(GroupSummary {
                group_id: StrBytes::from(group_id),
                state: GroupState::Empty,
                protocol_type: metadata.protocol_type.unwrap_or_default(),
                protocol_name: StrBytes::new(),
                generation: metadata.generation,
                leader: StrBytes::new(),
                members: 0,
                offsets,
            });
        };
        Some(GroupSummary {
            group_id: live.id.clone(),
            state: live.state,
            protocol_type: live.protocol_type.clone().unwrap_or_default(),
            protocol_name: live.protocol.clone().unwrap_or_default(),
            generation: live.generation,
            leader: live.leader.clone().unwrap_or_default(),
            members: live.len(),
            offsets,
        })
    }

    /// One group with its members, as DescribeGroups tells of it. `None` when there is none of that name.
    #[must_use]
    pub fn described(&self, group_id: &str) -> Option<DescribedGroup> {
        let summary = self.summary(group_id)?;
        let stable = summary.state == GroupState::Stable;
        let mut group = DescribedGroup::without_members(summary.group_id, summary.state, ErrorCode::None);
        group.protocol_type = summary.protocol_type;
        let Some(live) = self.live.get(group_id) else { return Some(group) };
        if stable {
            group.protocol_name = summary.protocol_name;
        }
        let member = |(id, member): (&StrBytes, &Member)| DescribedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if stable { member.metadata(live.protocol.as_ref()) } else { Bytes::new() },
            assignment: member.assignment.clone(),
        };
        group.members = live.members().map(member).collect();
        Some(group)
    }

    /// The offsets that a group holds, by topic and partition. Topics that are gone are left out.
    #[must_use]
    pub fn offsets(&self, group_id: &str, catalog: &dyn Catalog) -> Vec<OffsetListing> {
        let mut listing = Vec::new();
        for (id, offsets) in self.applied.group(group_id).iter().flat_map(|group| &group.topics) {
            let Some(topic) = catalog.topic_by_id(*id) else { continue };
            let name = StrBytes::from(&*topic.name);
            listing.extend(offsets.iter().map(|(partition, stored)| OffsetListing {
                topic: name.clone(),
                topic_id: *id,
                partition: *partition,
                offset: stored.offset,
                leader_epoch: stored.leader_epoch,
                metadata: stored.metadata(),
                committed_ms: stored.committed_ms,
            }));
        }
        listing.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        listing
    }

    fn ids(&self) -> BTreeSet<&StrBytes> {
        self.live.keys().chain(self.consumers.keys()).chain(self.applied.groups().map(|(id, _)| id)).collect()
    }

    pub(super) fn list(&self, request: &ListGroups) -> GroupReply {
        let named = |names: &[StrBytes], name: &str| {
            names.is_empty() || names.iter().any(|wanted| wanted.trim().eq_ignore_ascii_case(name))
        };
        let listed = |id: &StrBytes| {
            if let Some(group) = self.consumer_group(id) {
                let protocol_type = StrBytes::from_static(PROTOCOL_TYPE);
                let kind = GroupKind::Consumer;
                // A group without an epoch was deleted, or is refused everything.
                return (group.epoch() > 0).then(|| ListedGroup {
                    group_id: id.clone(),
                    protocol_type,
                    state: group.state(),
                    kind,
                });
            }
            let live = self.live.get(id);
            let protocol_type = match live {
                Some(live) => live.protocol_type.clone(),
                None => self.applied.group(id)?.metadata.as_ref().and_then(|m| m.protocol_type.clone()),
            };
            let state = live.map_or(GroupState::Empty, |live| live.state);
            let (protocol_type, kind) = (protocol_type.unwrap_or_default(), GroupKind::Classic);
            Some(ListedGroup { group_id: id.clone(), protocol_type, state, kind })
        };
        let groups = self.ids().into_iter().filter_map(listed);
        let wanted = |group: &ListedGroup| {
            named(&request.states, group.state.name()) && named(&request.types, group.kind.name())
        };
        GroupReply::List(Ok(groups.filter(wanted).collect()))
    }

    pub(super) fn describe(&self, request: &DescribeGroups) -> GroupReply {
        let mut left = REPLY_ENTRIES_MAX;
        let group = |id: &StrBytes| {
            let members = 1 + self.live.get(id).map_or(0, Live::len);
            let Some(rest) = left.checked_sub(members) else {
                return DescribedGroup::without_members(id.clone(), GroupState::Dead, ErrorCode::InvalidRequest);
            };
            left = rest;
            match self.is_consumer_group(id) {
                true => not_found(id, request.version, format!("Group {id} is not a classic group.")),
                false => {
                    let text = || format!("Group {id} not found.");
                    self.described(id).unwrap_or_else(|| not_found(id, request.version, text()))
                }
            }
        };
        GroupReply::Describe(request.groups.iter().take(REPLY_ENTRIES_MAX).map(group).collect())
    }

    pub(super) fn delete(
        &mut self,
        context: &Context<'_>,
        caller: Caller,
        groups: Vec<StrBytes>,
        effects: &mut Effects,
    ) {
        let mut deleted = BTreeSet::new();
        let mut results = Vec::with_capacity(groups.len());
        let asked = groups.clone();
        for id in groups {
            let error = match self.live.get(&id) {
                _ if deleted.contains(&id) => ErrorCode::GroupIdNotFound,
                _ if self.has_consumers(&id) => ErrorCode::NonEmptyGroup,
                _ if self.is_consumer_group(&id) => {
                    self.end_consumer(context, &detached(&id), effects, &Record::Delete { group: detached(&id) });
                    deleted.insert(id.clone());
                    ErrorCode::None
                }
                Some(live) if live.state != GroupState::Empty => ErrorCode::NonEmptyGroup,
                None if self.applied.group(&id).is_none() => ErrorCode::GroupIdNotFound,
                _ => {
                    self.visit(context.now, effects, &id, |turn, live| {
                        turn.propose(&Record::Delete { group: live.id.clone() }, []);
                        turn.forget_pending(live);
                    })
                    .unwrap_or_else(|| {
                        let record = Record::Delete { group: detached(&id) };
                        propose(effects, &record, []);
                    });
                    deleted.insert(id.clone());
                    ErrorCode::None
                }
            };
            results.push((id, error));
        }
        let reply = Box::new(GroupReply::Delete(results));
        match effects.proposals.last_mut() {
            // the records are committed in order
            Some(last) if !deleted.is_empty() => last.replies.push((caller, reply)),
            _ => self.answer_behind(&asked.iter().collect::<Vec<_>>(), caller, *reply, effects),
        }
    }
}

fn not_found(id: &StrBytes, version: i16, text: String) -> DescribedGroup {
    let known = version < DESCRIBE_NOT_FOUND_FROM;
    let error = if known { ErrorCode::None } else { ErrorCode::GroupIdNotFound };
    let mut group = DescribedGroup::without_members(id.clone(), GroupState::Dead, error);
    group.error_message = (!known).then(|| StrBytes::from(text));
    group
}

impl Turn<'_> {
    /// Forgets all ids that were handed out.
    pub(super) fn forget_pending(&mut self, live: &mut Live) {
        for id in live.pending_ids() {
            self.remove_pending(live, &id);
        }
    }
}
