//! JoinGroup.

use super::applied::MEMBER_BYTES;
use super::command::{GroupReply, GroupState, JoinGroup, Protocol};
use super::live::{Live, Member, ParkedJoin, metadata_cost, protocols_cost};
use super::settings::{
    GROUP_RECORD_BYTES_MAX, MEMBER_ID_PREFIX_BYTES_MAX, MEMBER_METADATA_BYTES_MAX, MEMBER_PROTOCOLS_MAX,
    NEW_MEMBER_JOIN_MS,
};
use super::timers::Deadline;
use super::turn::{Turn, join_accepted, join_error, session_key, sync_error};
use super::wire::{detached, detached_bytes};
use bytes::Bytes;
use polylogue_api::Caller;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use std::collections::BTreeSet;

/// From this version on a new member is sent back for the id it is given (KIP-394).
const MEMBER_ID_REQUIRED_FROM: i16 = 4;
/// From this version on a leader can be asked to leave the assignment as it is (KIP-814).
const SKIP_ASSIGNMENT_FROM: i16 = 9;

/// A JoinGroup request that waits to be decided, with what is settled about it.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) caller: Caller,
    pub(super) request: JoinGroup,
    /// For a member id, should one be needed.
    pub(super) random: u64,
}

impl Join {
    /// Copies what outlives the request and fills in what old versions do not say. Err: what is wrong with it.
    pub(super) fn new(caller: Caller, mut request: JoinGroup, random: u64) -> Result<Join, ErrorCode> {
        if request.version == 0 {
            request.rebalance_timeout_ms = request.session_timeout_ms;
        }
        // a protocol that is named twice counts once
        let mut names = BTreeSet::new();
        request.protocols.retain(|p| names.insert(p.name.clone()));
        if request.protocols.len() > MEMBER_PROTOCOLS_MAX
            || protocols_cost(&request.protocols) > MEMBER_METADATA_BYTES_MAX
        {
            return Err(ErrorCode::InvalidRequest);
        }
        let detach = |p: &Protocol| Protocol { name: detached(&p.name), metadata: detached_bytes(&p.metadata) };
        request.protocols = request.protocols.iter().map(detach).collect();
        request.member_id = detached(&request.member_id);
        request.instance_id = request.instance_id.as_ref().map(detached);
        request.client_id = detached(&request.client_id);
        request.client_host = detached(&request.client_host);
        request.protocol_type = detached(&request.protocol_type);
        Ok(Join { caller, request, random })
    }

    fn is_new(&self) -> bool {
        self.request.member_id.is_empty()
    }

    fn parked(&self) -> ParkedJoin {
        ParkedJoin { caller: self.caller, version: self.request.version }
    }

    /// What the group would hold more because of it, as an estimate. Bytes.
    pub(super) fn growth(&self, live: Option<&Live>) -> usize {
        let member = live.and_then(|live| live.member(&self.request.member_id));
        let request = &self.request;
        let instance = request.instance_id.as_ref().map_or(0, |i| i.len());
        let texts = 2 * request.client_id.len() + request.client_host.len() + 2 * instance;
        match member {
            Some(member) => protocols_cost(&request.protocols).saturating_sub(protocols_cost(&member.protocols)),
            None => MEMBER_BYTES + texts + protocols_cost(&request.protocols),
        }
    }

    /// Whether the group's metadata stays within the bound on its record with what the member says. (Kafka finds out when
    /// the leader has assigned, and every member knows every other.)
    fn fits(&self, live: &Live) -> bool {
        let request = &self.request;
        let id = match request.instance_id.as_ref().and_then(|instance| live.static_member(instance)) {
            Some(present) if self.is_new() => present,
            _ => &request.member_id,
        };
        let old = live.member(id).map_or(0, |member| member.metadata_bytes(id));
        let client = [&*request.client_id, &*request.client_host];
        let new = metadata_cost(id, request.instance_id.as_ref(), client, &request.protocols);
        live.metadata_bytes() - old + new <= GROUP_RECORD_BYTES_MAX
    }

    /// `<instance id>-<uuid>`, or `<client id>-<uuid>`. The UUID is spread out of the one number that no other call
    /// gets.
    fn member_id(&self) -> StrBytes {
        let prefix = self.request.instance_id.as_ref().unwrap_or(&self.request.client_id);
        let prefix = prefix.get(..prefix.floor_char_boundary(MEMBER_ID_PREFIX_BYTES_MAX)).unwrap_or_default();
        // version 4, variant 1
        let high = mix(self.random) & !0xf000 | 0x4000;
        let low = mix(!self.random) & !(0x3 << 62) | (0x2 << 62);
        StrBytes::from(format!(
            "{prefix}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff,
        ))
    }
}

/// Spreads a number over 64 bits, one to one (the finaliser of SplitMix64).
pub(super) fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Turn<'_> {
    pub(super) fn refuse_join(&mut self, join: &Join, error: ErrorCode, member_id: StrBytes) {
        self.reply(join.caller, join_error(error, member_id, join.request.version));
    }

    /// Decides about a join, in a group that there is.
    pub(super) fn join(&mut self, live: &mut Live, join: Join) {
        if !self.accepts(live, &join) {
            self.remove_member(live, &join.request.member_id);
            self.remove_pending(live, &join.request.member_id);
            self.maybe_complete_join(live);
            self.refuse_join(&join, ErrorCode::GroupMaxSizeReached, StrBytes::new());
        } else if !join.fits(live) {
            // a member stays what it was; its client takes this as final
            let member_id = join.request.member_id.clone();
            self.remove_pending(live, &member_id);
            self.maybe_complete_join(live);
            self.refuse_join(&join, ErrorCode::GroupMaxSizeReached, member_id);
        } else if !live.supports(&join.request.protocol_type, &join.request.protocols) {
            let member_id = join.request.member_id.clone();
            self.refuse_join(&join, ErrorCode::InconsistentGroupProtocol, member_id);
        } else if join.is_new() {
            self.join_new(live, join);
        } else {
            self.join_again(live, join);
        }
    }

    /// Whether the group has room. While a rebalance is prepared those that have joined it count, so that a group
    /// that is too large sheds the last ones; else members and handed out ids do.
    fn accepts(&self, live: &Live, join: &Join) -> bool {
        let max = self.settings.group_size();
        let id = &join.request.member_id;
        let member = live.member(id);
        match live.state {
            // the last two are states of the consumer protocol, which no live group is in
            GroupState::Empty | GroupState::Dead | GroupState::Assigning | GroupState::Reconciling => {
                live.pending_len() < max || live.is_pending(id)
            }
            GroupState::PreparingRebalance => {
                let known = member.is_some() || live.is_pending(id);
                let room = known || live.len() + live.pending_len() < max.saturating_mul(2);
                member.is_some_and(|m| m.join.is_some()) || (live.joined() < max && room)
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                member.is_some() || live.is_pending(id) || live.len() + live.pending_len() < max
            }
        }
    }

    fn join_new(&mut self, live: &mut Live, join: Join) {
        let new_id = join.member_id();
        let existing = join.request.instance_id.as_ref().and_then(|instance| live.static_member(instance)).cloned();
        if let Some(old_id) = existing {
            self.replace_static(live, join, &old_id, new_id);
        } else if join.request.instance_id.is_none() && join.request.version >= MEMBER_ID_REQUIRED_FROM {
            let at_ms = self.after_ms(u64::try_from(join.request.session_timeout_ms).unwrap_or(0));
            let mut session = Deadline::default();
            session.set(self.timers, at_ms, || session_key(&live.id, &new_id));
            live.add_pending(new_id.clone(), session);
            self.refuse_join(&join, ErrorCode::MemberIdRequired, new_id);
        } else {
            if join.request.instance_id.is_none() {
                self.unborn.insert(join.caller, (live.id.clone(), new_id.clone()));
            }
            self.add_member(live, join, new_id);
        }
    }

    fn add_member(&mut self, live: &mut Live, join: Join, id: StrBytes) {
        let parked = join.parked();
        let request = join.request;
        let member = Member {
            instance_id: request.instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            protocols: request.protocols,
            assignment: Bytes::new(),
            join: Some(parked),
            sync: None,
            is_new: true,
            session: Deadline::default(),
        };
        live.new_member_added = live.state == GroupState::PreparingRebalance && live.initial;
        live.add(id.clone(), member, request.protocol_type);
        self.touch(live, &id, NEW_MEMBER_JOIN_MS);
        self.rebalance(live);
    }

    /// A member that has an id joins.
    fn join_again(&mut self, live: &mut Live, join: Join) {
        let id = join.request.member_id.clone();
        if join.request.instance_id.is_none() && self.remove_pending(live, &id) {
            self.add_member(live, join, id);
            return;
        }
        if let Err(error) = validate_member(live, &id, join.request.instance_id.as_ref()) {
            self.refuse_join(&join, error, id);
            return;
        }
        let unchanged = live.member(&id).is_some_and(|m| m.protocols == join.request.protocols);
        let leader = live.is_leader(&id);
        let settled = match live.state {
            // it did not get the answer: it has the same once more
            GroupState::CompletingRebalance => unchanged,
            // a leader that joins wants a new assignment, for reasons of its own
            GroupState::Stable => unchanged && !leader,
            GroupState::PreparingRebalance
            | GroupState::Empty
            | GroupState::Dead
            | GroupState::Assigning
            | GroupState::Reconciling => false,
        };
        if settled {
            let reply = join_accepted(live, &id, join.request.version, leader);
            self.reply(join.caller, GroupReply::Join(reply));
        } else {
            self.update_member(live, &id, join);
            self.rebalance(live);
        }
    }

    /// Takes over what a member now says of itself, and parks its request.
    fn update_member(&mut self, live: &mut Live, id: &StrBytes, join: Join) {
        self.supersede_join(live, id);
        let parked = join.parked();
        live.change(id, |member| {
            take_over(member, join.request);
            member.join = Some(parked);
        });
    }

    /// One member waits once: an earlier request of it (of a connection that is gone, as a rule) is asked to come
    /// again.
    fn supersede_join(&mut self, live: &mut Live, id: &StrBytes) {
        if let Some(old) = live.take_join(id) {
            self.answer_join(old, join_error(ErrorCode::RebalanceInProgress, id.clone(), old.version));
        }
    }

    /// A static member comes back without its id: it takes the place of its predecessor, who is fenced.
    fn replace_static(&mut self, live: &mut Live, join: Join, old_id: &StrBytes, new_id: StrBytes) {
        let old_leader = live.leader.clone();
        if let Some(parked) = live.take_join(old_id) {
            self.answer_join(parked, join_error(ErrorCode::FencedInstanceId, old_id.clone(), parked.version));
        }
        if let Some(caller) = live.take_sync(old_id) {
            self.reply(caller, sync_error(ErrorCode::FencedInstanceId));
        }
        let group = live.id.clone();
        if let Some(member) = live.member_mut(old_id) {
            member.session.clear(self.timers, || session_key(&group, old_id));
        }
        live.rename(old_id, new_id.clone());
        let (caller, version, parked) = (join.caller, join.request.version, join.parked());
        live.change(&new_id, |member| take_over(member, join.request));
        self.heard_of(live, &new_id);
        if live.state == GroupState::Stable && live.select_protocol() == live.protocol {
            // the others need not know; the log must, or the new id would be unknown after a restart
            let leads = live.is_leader(&new_id);
            let skip = version >= SKIP_ASSIGNMENT_FROM && leads;
            let mut reply = join_accepted(live, &new_id, version, skip);
            reply.skip_assignment = skip;
            if version < SKIP_ASSIGNMENT_FROM {
                // under its old name, so that it does not take itself for the leader and assign anew
                reply.leader = old_leader.unwrap_or_default();
            }
            self.propose_metadata(live, [(caller, GroupReply::Join(reply))]);
            return;
        }
        live.change(&new_id, |member| member.join = Some(parked));
        self.rebalance(live);
    }
}

/// What a member says of itself anew.
fn take_over(member: &mut Member, request: JoinGroup) {
    member.protocols = request.protocols;
    member.session_timeout_ms = request.session_timeout_ms;
    member.rebalance_timeout_ms = request.rebalance_timeout_ms;
    member.client_id = request.client_id;
    member.client_host = request.client_host;
}

/// Whether that is a member, and the present one of its instance id.
pub(super) fn validate_member(live: &Live, id: &str, instance_id: Option<&StrBytes>) -> Result<(), ErrorCode> {
    if let Some(instance_id) = instance_id {
        match live.static_member(instance_id) {
            None => return Err(ErrorCode::UnknownMemberId),
            Some(present) if &**present != id => return Err(ErrorCode::FencedInstanceId),
            Some(_) => {}
        }
    }
    if live.member(id).is_some() { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(client_id: &str, instance_id: Option<&str>, random: u64) -> Join {
        let request = JoinGroup {
            version: 9,
            user: None,
            group_id: StrBytes::from("g"),
            member_id: StrBytes::new(),
            instance_id: instance_id.map(StrBytes::from),
            client_id: StrBytes::from(client_id),
            client_host: StrBytes::from("/127.0.0.1"),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            protocol_type: StrBytes::from("consumer"),
            protocols: Vec::new(),
        };
        Join::new(Caller(1), request, random).unwrap()
    }

    #[test]
    fn member_ids_are_the_client_or_instance_and_a_uuid() {
        let id = join("client", None, 7).member_id();
        let uuid = id.strip_prefix("client-").unwrap();
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(uuid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()));
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert!(join("client", Some("inst"), 7).member_id().starts_with("inst-"));
        assert_ne!(join("client", None, 8).member_id(), id);
        assert_eq!(join("client", None, 7).member_id(), id);
    }

    #[test]
    fn a_huge_client_id_is_cut_between_characters() {
        let client = "ä".repeat(15_000) + "b";
        let id = join(&client, None, 1).member_id();
        assert_eq!(id.len(), MEMBER_ID_PREFIX_BYTES_MAX + 37);
    }
}
