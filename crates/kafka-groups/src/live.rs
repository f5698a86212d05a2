//! The soft state of a group: members, waiters, and proposals in flight.
//!
//! This is tail and soft state: it is ahead of what has been applied by the records that were proposed and not yet
//! applied, it is built from applied state at a start, and thrown away when the writer is lost.

use super::applied::MEMBER_BYTES;
use super::command::{GroupState, JoinedMember, Protocol};
use super::record::{MemberMetadata, Metadata};
use super::timers::Deadline;
use bytes::Bytes;
use polylogue_api::Caller;
use polylogue_kafka_codec::StrBytes;
use std::collections::{BTreeMap, BTreeSet};

/// A JoinGroup request that waits for the join phase to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ParkedJoin {
    pub(super) caller: Caller,
    /// Of the request.
    pub(super) version: i16,
}

/// A member of a group.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance_id: Option<StrBytes>,
    pub(super) client_id: StrBytes,
    pub(super) client_host: StrBytes,
    pub(super) session_timeout_ms: i32,
    pub(super) rebalance_timeout_ms: i32,
    /// Protocols of the member, in order of preference.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    /// Its request, when it has joined a rebalance that is being prepared.
    pub(super) join: Option<ParkedJoin>,
    /// Its request, when it waits for the leader's assignment.
    pub(super) sync: Option<Caller>,
    /// It has not received its member id yet.
    pub(super) is_new: bool,
    /// When it will have been silent too long.
    pub(super) session: Deadline,
}

impl Member {
    /// What it says with that protocol; empty for one it does not know.
    pub(super) fn metadata(&self, protocol: Option<&StrBytes>) -> Bytes {
        let found = self.protocols.iter().find(|p| Some(&p.name) == protocol);
        found.map_or(Bytes::new(), |p| p.metadata.clone())
    }

    /// Whether it cannot send heartbeats, because it waits for us. A new member does not count: its client may be
    /// gone, and it would not be noticed.
    pub(super) fn waits_for_us(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }

    /// The first of its protocols that is a candidate.
    fn vote<'a>(&'a self, candidates: &BTreeSet<&str>) -> Option<&'a StrBytes> {
        self.protocols.iter().map(|p| &p.name).find(|name| candidates.contains(&***name))
    }

    /// What its part of the group's metadata takes, whichever of its protocols is chosen. Bytes.
    pub(super) fn metadata_bytes(&self, id: &str) -> usize {
        metadata_cost(id, self.instance_id.as_ref(), [&self.client_id, &self.client_host], &self.protocols)
    }

    fn cost(&self) -> usize {
        let instance = self.instance_id.as_ref().map_or(0, |i| i.len());
        MEMBER_BYTES
            + instance
            + self.client_id.len()
            + self.client_host.len()
            + protocols_cost(&self.protocols)
            + self.assignment.len()
    }
}

/// What a member's part of the group's metadata takes, whichever of its protocols is chosen. Bytes.
pub(super) fn metadata_cost(
    id: &str,
    instance_id: Option<&StrBytes>,
    client: [&str; 2],
    protocols: &[Protocol],
) -> usize {
    let said = protocols.iter().map(|p| p.metadata.len()).max().unwrap_or(0);
    let [client_id, client_host] = client;
    id.len() + instance_id.map_or(0, |i| i.len()) + client_id.len() + client_host.len() + said
}

/// What protocols hold in memory. Bytes.
pub(super) fn protocols_cost(protocols: &[Protocol]) -> usize {
    protocols.iter().map(|p| p.name.len() + p.metadata.len()).sum()
}

/// The estimated memory of a member id that was given out, its timer included. Bytes.
fn pending_cost(id: &StrBytes) -> usize {
    PENDING_BYTES + id.len()
}

/// What an id that was handed out costs in memory beside its text. Bytes.
const PENDING_BYTES: usize = 192;

/// A group that has members, or clients about to become some.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) id: StrBytes,
    /// The user against whose bound it counts; empty where none is known.
    pub(super) owner: StrBytes,
    pub(super) state: GroupState,
    /// While preparing: the group was empty before, and a time is waited for rather than the members.
    pub(super) initial: bool,
    /// A member joined during the initial rebalance delay, which is extended therefore.
    pub(super) new_member_added: bool,
    /// The length of the present initial wait, and what may follow it at the most. Milliseconds.
    pub(super) initial_wait_ms: (u64, u64),
    pub(super) generation: i32,
    /// The highest generation that any member ever received; more than `generation` after the writer was lost.
    reported: i32,
    pub(super) protocol_type: Option<StrBytes>,
    pub(super) protocol: Option<StrBytes>,
    pub(super) leader: Option<StrBytes>,
    members: BTreeMap<StrBytes, Member>,
    /// Member ids by instance id.
    statics: BTreeMap<StrBytes, StrBytes>,
    /// Ids that were handed out and have not joined yet, with the time at which they expire.
    pending: BTreeMap<StrBytes, Deadline>,
    /// Members that have not asked for their assignment of this generation.
    pub(super) pending_sync: BTreeSet<StrBytes>,
    /// How many members know each protocol.
    supported: BTreeMap<StrBytes, usize>,
    /// How many members have joined the rebalance that is being prepared.
    joined: usize,
    pub(super) join_deadline: Deadline,
    pub(super) sync_deadline: Deadline,
    /// Metadata records that were proposed and not yet applied.
    pub(super) unapplied: u32,
    /// The log refused metadata of the group: the state here is void, and members have to find the coordinator again until
    /// it is made anew out of what is applied.
    pub(super) void: bool,
    /// See [`Live::metadata_bytes`].
    metadata_bytes: usize,
    bytes: usize,
}

impl Live {
    /// A group as committed; an unknown one when there is no metadata.
    pub(super) fn new(id: StrBytes, metadata: Option<&Metadata>, reported: i32) -> Live {
        let generation = metadata.map_or(0, |m| m.generation);
        let mut live = Live {
            id,
            owner: StrBytes::new(),
            state: GroupState::Empty,
            initial: false,
            new_member_added: false,
            initial_wait_ms: (0, 0),
            generation,
            reported: reported.max(generation),
            protocol_type: metadata.and_then(|m| m.protocol_type.clone()),
            protocol: metadata.and_then(|m| m.protocol.clone()),
            leader: metadata.and_then(|m| m.leader.clone()),
            members: BTreeMap::new(),
            statics: BTreeMap::new(),
            pending: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            supported: BTreeMap::new(),
            joined: 0,
            join_deadline: Deadline::default(),
            sync_deadline: Deadline::default(),
            unapplied: 0,
            void: false,
            metadata_bytes: 0,
            bytes: 0,
        };
        for member in metadata.iter().flat_map(|m| &m.members) {
            let protocol = metadata.and_then(|m| m.protocol.clone()).unwrap_or_default();
            let member_now = Member {
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                session_timeout_ms: member.session_timeout_ms,
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                protocols: vec![Protocol { name: protocol, metadata: member.metadata.clone() }],
                assignment: member.assignment.clone(),
                join: None,
                sync: None,
                is_new: false,
                session: Deadline::default(),
            };
            live.insert(member.id.clone(), member_now);
            live.state = GroupState::Stable;
        }
        live
    }

    /// What the log shall keep of it.
    pub(super) fn metadata(&self) -> Metadata {
        let members = self.members.iter().map(|(id, member)| MemberMetadata {
            id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            session_timeout_ms: member.session_timeout_ms,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            metadata: member.metadata(self.protocol.as_ref()),
            assignment: member.assignment.clone(),
        });
        Metadata {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: members.collect(),
        }
    }

    /// Whether nothing is lost when it is forgotten: all it says has been applied.
    pub(super) fn is_idle(&self) -> bool {
        self.state == GroupState::Empty && self.members.is_empty() && self.pending.is_empty() && self.unapplied == 0
    }

    /// What it holds in memory, as an estimate. Bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the metadata of all members takes in a record, and in the answer to the leader, at the most: whichever of
    /// their protocols is chosen. Their assignments come on top. Bytes.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    pub(super) fn reported(&self) -> i32 {
        self.reported.max(self.generation)
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Members that have joined the rebalance that is being prepared.
    pub(super) fn joined(&self) -> usize {
        self.joined
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// For changes that leave the member's protocols, assignment and parked join alone.
    pub(super) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    /// By rising id.
    pub(super) fn members(&self) -> impl Iterator<Item = (&StrBytes, &Member)> {
        self.members.iter()
    }

    pub(super) fn member_ids(&self) -> Vec<StrBytes> {
        self.members.keys().cloned().collect()
    }

    /// The member id of a static member.
    pub(super) fn static_member(&self, instance_id: &str) -> Option<&StrBytes> {
        self.statics.get(instance_id)
    }

    pub(super) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    /// All members, for the leader.
    pub(super) fn joined_members(&self) -> Vec<JoinedMember> {
        let members = self.members.iter().map(|(id, member)| JoinedMember {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(self.protocol.as_ref()),
        });
        members.collect()
    }

    /// How long a rebalance waits for members: as long as the most patient of them asked for. Milliseconds.
    pub(super) fn rebalance_timeout_ms(&self) -> u64 {
        let longest = self.members.values().map(|m| m.rebalance_timeout_ms).max().unwrap_or(0);
        u64::try_from(longest).unwrap_or(0)
    }

    /// Whether no member is waited for.
    pub(super) fn all_joined(&self) -> bool {
        self.members.len() == self.joined && self.pending.is_empty()
    }

    /// Whether a member of that type could join: with at least one protocol that all others know.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.state == GroupState::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let known_by_all = |p: &Protocol| self.supported.get(&p.name).copied().unwrap_or(0) == self.members.len();
        self.protocol_type.as_deref() == Some(protocol_type) && protocols.iter().any(known_by_all)
    }

    /// The protocol that most members would rather have, of those that all know; of equals the first by name.
    pub(super) fn select_protocol(&self) -> Option<StrBytes> {
        let known_by_all = self.supported.iter().filter(|(_, count)| **count == self.members.len());
        let candidates: BTreeSet<&str> = known_by_all.map(|(name, _)| &**name).collect();
        let mut votes: BTreeMap<&StrBytes, usize> = BTreeMap::new();
        for name in self.members.values().filter_map(|member| member.vote(&candidates)) {
            *votes.entry(name).or_default() += 1;
        }
        let best = votes.into_iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a)));
        best.map(|(name, _)| name.clone())
    }

    /// Takes a member in. The first one decides the protocol type; one without a leader leads.
    pub(super) fn add(&mut self, id: StrBytes, member: Member, protocol_type: StrBytes) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type);
        }
        if self.leader.is_none() {
            self.leader = Some(id.clone());
        }
        self.insert(id, member);
    }

    fn insert(&mut self, id: StrBytes, member: Member) {
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), id.clone());
        }
        self.count_in(&id, &member);
        self.members.insert(id, member);
    }

    /// Takes a member out; its parked requests and its timer are the caller's business.
    pub(super) fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.take_out(id)?;
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending_sync.remove(id);
        Some(member)
    }

    fn take_out(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.count_out(id, &member);
        Some(member)
    }

    /// Changes a member's protocols, assignment or parked join.
    pub(super) fn change(&mut self, id: &StrBytes, change: impl FnOnce(&mut Member)) {
        if let Some(mut member) = self.take_out(id) {
            change(&mut member);
            self.count_in(id, &member);
            self.members.insert(id.clone(), member);
        }
    }

    /// A static member comes back under another id: everything else stays.
    pub(super) fn rename(&mut self, old: &StrBytes, new: StrBytes) {
        let Some(member) = self.take_out(old) else { return };
        if self.is_leader(old) {
            self.leader = Some(new.clone());
        }
        if self.pending_sync.remove(old) {
            self.pending_sync.insert(new.clone());
        }
        self.insert(new, member);
    }

    /// Takes the parked join of a member.
    pub(super) fn take_join(&mut self, id: &str) -> Option<ParkedJoin> {
        let parked = self.members.get_mut(id)?.join.take();
        self.joined -= usize::from(parked.is_some());
        parked
    }

    /// Takes the parked sync of a member.
    pub(super) fn take_sync(&mut self, id: &str) -> Option<Caller> {
        self.members.get_mut(id)?.sync.take()
    }

    pub(super) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_pending(&self, id: &str) -> bool {
        self.pending.contains_key(id)
    }

    pub(super) fn pending_ids(&self) -> Vec<StrBytes> {
        self.pending.keys().cloned().collect()
    }

    pub(super) fn pending_mut(&mut self, id: &str) -> Option<&mut Deadline> {
        self.pending.get_mut(id)
    }

    /// Remembers an id that was handed out.
    pub(super) fn add_pending(&mut self, id: StrBytes, session: Deadline) {
        self.bytes += pending_cost(&id);
        self.pending.insert(id, session);
    }

    /// Forgets an id that was handed out.
    pub(super) fn take_pending(&mut self, id: &StrBytes) -> Option<Deadline> {
        let session = self.pending.remove(id)?;
        self.bytes -= pending_cost(id);
        Some(session)
    }

    fn count_in(&mut self, id: &str, member: &Member) {
        for protocol in &member.protocols {
            *self.supported.entry(protocol.name.clone()).or_default() += 1;
        }
        self.joined += usize::from(member.join.is_some());
        self.metadata_bytes += member.metadata_bytes(id);
        self.bytes += member.cost();
    }

    fn count_out(&mut self, id: &str, member: &Member) {
        for protocol in &member.protocols {
            if let Some(count) = self.supported.get_mut(&protocol.name) {
                *count -= 1;
                if *count == 0 {
                    self.supported.remove(&protocol.name);
                }
            }
        }
        self.joined -= usize::from(member.join.is_some());
        self.metadata_bytes -= member.metadata_bytes(id);
        self.bytes -= member.cost();
    }

    /// When the leader has not joined: the first member that has leads. False when none has, or none is there.
    pub(super) fn elect_joined_leader(&mut self) -> bool {
        let Some(leader) = &self.leader else { return false };
        if self.members.get(leader).is_some_and(|m| m.join.is_some()) {
            return true;
        }
        let joined = self.members.iter().find(|(_, m)| m.join.is_some()).map(|(id, _)| id.clone());
        let found = joined.is_some();
        if found {
            self.leader = joined;
        }
        found
    }

    /// Begins the next generation: with members its protocol is chosen and the assignment waited for.
    pub(super) fn next_generation(&mut self) {
        // after 2^31 generations they start over, as they must not become negative
        self.generation = self.reported().checked_add(1).unwrap_or(1);
        self.reported = self.generation;
        self.pending_sync.clear();
        self.initial = false;
        if self.members.is_empty() {
            self.protocol = None;
            self.state = GroupState::Empty;
        } else {
            self.protocol = self.select_protocol();
            self.state = GroupState::CompletingRebalance;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> StrBytes {
        StrBytes::from(s)
    }

    fn member(protocols: &[&str]) -> Member {
        let protocols =
            protocols.iter().map(|p| Protocol { name: text(p), metadata: Bytes::from_static(b"md") }).collect();
        Member {
            instance_id: None,
            client_id: text("c"),
            client_host: text("/h"),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            protocols,
            assignment: Bytes::new(),
            join: None,
            sync: None,
            is_new: true,
            session: Deadline::default(),
        }
    }

    fn group(members: &[(&str, &[&str])]) -> Live {
        let mut live = Live::new(text("g"), None, 0);
        for (id, protocols) in members {
            live.add(text(id), member(protocols), text("consumer"));
            live.state = GroupState::Stable;
        }
        live
    }

    #[test]
    fn the_protocol_is_one_that_all_know_and_most_prefer() {
        let live = group(&[("a", &["x", "y", "z"]), ("b", &["z", "x", "y"]), ("c", &["z", "y"])]);
        assert_eq!(live.select_protocol().as_deref(), Some("z"));
        let tie = group(&[("a", &["y", "x"]), ("b", &["x", "y"])]);
        assert_eq!(tie.select_protocol().as_deref(), Some("x"));
        assert_eq!(group(&[]).select_protocol(), None);
    }

    #[test]
    fn a_member_without_a_common_protocol_is_not_supported() {
        let live = group(&[("a", &["x", "y"]), ("b", &["y"])]);
        let p = |names: &[&str]| member(names).protocols;
        assert!(live.supports("consumer", &p(&["z", "y"])));
        assert!(!live.supports("consumer", &p(&["x"])));
        assert!(!live.supports("connect", &p(&["y"])));
        assert!(!group(&[]).supports("consumer", &[]));
        assert!(!group(&[]).supports("", &p(&["y"])));
        assert!(group(&[]).supports("consumer", &p(&["y"])));
    }

    #[test]
    fn the_books_balance() {
        let mut live = group(&[("a", &["x"]), ("b", &["x", "y"])]);
        live.change(&text("a"), |m| {
            m.protocols = member(&["y"]).protocols;
            m.assignment = Bytes::from_static(b"0123456789");
            m.join = Some(ParkedJoin { caller: Caller(1), version: 5 });
        });
        assert_eq!(live.joined(), 1);
        assert_eq!(live.select_protocol().as_deref(), Some("y"));
        assert!(live.elect_joined_leader());
        assert!(live.take_join("a").is_some());
        assert_eq!(live.joined(), 0);
        live.rename(&text("a"), text("c"));
        assert!(live.is_leader("c"));
        live.remove("c");
        assert!(live.is_leader("b"));
        live.remove("b");
        assert_eq!((live.bytes(), live.metadata_bytes(), live.len(), live.supported.len()), (0, 0, 0, 0));
        assert_eq!(live.leader, None);
    }

    #[test]
    fn a_generation_that_was_told_is_not_given_again() {
        let metadata = Metadata { generation: 5, ..Metadata::default() };
        let mut live = Live::new(text("g"), Some(&metadata), 8);
        assert_eq!(live.generation, 5);
        live.next_generation();
        assert_eq!(live.generation, 9);
    }
}
