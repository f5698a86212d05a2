//! One call of the coordinator: what it works with beside the group, and how it answers.

use super::command::{GroupReply, JoinGroupReply, SyncGroupReply};
use super::live::{Live, ParkedJoin};
use super::record::Record;
use super::settings::GroupSettings;
use super::timers::{TimerKey, TimerKind, Timers};
use bytes::Bytes;
use polylogue_api::{Caller, Effects, Now, Proposal};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use std::any::Any;
use std::collections::BTreeMap;

/// Joins of members that do not know their ids yet (JoinGroup before version 4): when such a caller is gone, no one
/// can ever come back as that member.
pub(super) type Unborn = BTreeMap<Caller, (StrBytes, StrBytes)>;

/// The surroundings of a group while something happens to it.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) now: Now,
    pub(super) settings: &'a GroupSettings,
    pub(super) timers: &'a mut Timers,
    pub(super) unborn: &'a mut Unborn,
    pub(super) effects: &'a mut Effects,
}

/// Which timer a session of that member has.
pub(super) fn session_key(group: &StrBytes, member: &StrBytes) -> TimerKey {
    TimerKey { group: group.clone(), kind: TimerKind::Session(member.clone()) }
}

/// A timer of a group as a whole.
pub(super) fn group_key(group: &StrBytes, kind: TimerKind) -> TimerKey {
    TimerKey { group: group.clone(), kind }
}

/// A JoinGroup reply with an error.
pub(super) fn join_error(error: ErrorCode, member_id: StrBytes, version: i16) -> GroupReply {
    GroupReply::Join(JoinGroupReply {
        error,
        generation: -1,
        protocol_type: None,
        protocol_name: nullable(None, version),
        leader: StrBytes::new(),
        skip_assignment: false,
        member_id,
        members: Vec::new(),
    })
}

/// A JoinGroup reply with the group's present generation; `full` with all members, as leaders get it.
pub(super) fn join_accepted(live: &Live, member_id: &StrBytes, version: i16, full: bool) -> JoinGroupReply {
    JoinGroupReply {
        error: ErrorCode::None,
        generation: live.generation,
        protocol_type: live.protocol_type.clone(),
        protocol_name: nullable(live.protocol.clone(), version),
        leader: live.leader.clone().unwrap_or_default(),
        skip_assignment: false,
        member_id: member_id.clone(),
        members: if full { live.joined_members() } else { Vec::new() },
    }
}

/// Before version 7 the protocol's name may not be null.
fn nullable(name: Option<StrBytes>, version: i16) -> Option<StrBytes> {
    if version < 7 { Some(name.unwrap_or_default()) } else { name }
}

/// A SyncGroup reply with an error.
pub(super) fn sync_error(error: ErrorCode) -> GroupReply {
    GroupReply::Sync(SyncGroupReply { error, protocol_type: None, protocol_name: None, assignment: Bytes::new() })
}

/// A SyncGroup reply with what the member gets.
pub(super) fn sync_accepted(live: &Live, member_id: &str) -> GroupReply {
    GroupReply::Sync(SyncGroupReply {
        error: ErrorCode::None,
        protocol_type: live.protocol_type.clone(),
        protocol_name: live.protocol.clone(),
        assignment: live.member(member_id).map_or(Bytes::new(), |m| m.assignment.clone()),
    })
}

/// Has a record written, and answers when it is committed.
pub(super) fn propose(effects: &mut Effects, record: &Record, replies: impl IntoIterator<Item = (Caller, GroupReply)>) {
    let replies = replies.into_iter().map(|(caller, reply)| (caller, Box::new(reply) as Box<dyn Any + Send>));
    effects.proposals.push(Proposal { record: record.encode(), replies: replies.collect() });
}

impl Turn<'_> {
    pub(super) fn after_ms(&self, delay_ms: u64) -> u64 {
        self.now.monotonic_ms.saturating_add(delay_ms)
    }

    /// Answers immediately.
    pub(super) fn reply(&mut self, caller: Caller, reply: GroupReply) {
        self.effects.replies.push((caller, Box::new(reply)));
    }

    /// Has a record written, and answers when it is committed.
    pub(super) fn propose(&mut self, record: &Record, replies: impl IntoIterator<Item = (Caller, GroupReply)>) {
        propose(self.effects, record, replies);
    }

    /// Has the group's metadata written.
    pub(super) fn propose_metadata(
        &mut self,
        live: &mut Live,
        replies: impl IntoIterator<Item = (Caller, GroupReply)>,
    ) {
        live.unapplied += 1;
        self.propose(&Record::Metadata { group: live.id.clone(), metadata: live.metadata() }, replies);
    }

    /// Answers when all that has been proposed for the group is committed: immediately when it is already.
    pub(super) fn reply_after(&mut self, live: &Live, caller: Caller, reply: GroupReply) {
        if live.unapplied == 0 {
            self.reply(caller, reply);
        } else {
            self.propose(&Record::Barrier, [(caller, reply)]);
        }
    }

    pub(super) fn answer_join(&mut self, parked: ParkedJoin, reply: GroupReply) {
        self.unborn.remove(&parked.caller);
        self.reply(parked.caller, reply);
    }

    /// The member was heard of: it may be silent for so long from now on.
    pub(super) fn touch(&mut self, live: &mut Live, id: &StrBytes, silence_ms: u64) {
        let at_ms = self.after_ms(silence_ms);
        let group = live.id.clone();
        if let Some(member) = live.member_mut(id) {
            member.session.set(self.timers, at_ms, || session_key(&group, id));
        }
    }

    /// The member was heard of: it may be silent for its session timeout from now on.
    pub(super) fn heard_of(&mut self, live: &mut Live, id: &StrBytes) {
        let timeout_ms = live.member(id).map_or(0, |m| m.session_timeout_ms);
        self.touch(live, id, u64::try_from(timeout_ms).unwrap_or(0));
    }

    /// Takes a member out, with its timer; what it waits for is answered with `UNKNOWN_MEMBER_ID`, so that a client
    /// that is still there joins anew.
    pub(super) fn remove_member(&mut self, live: &mut Live, id: &StrBytes) {
        if let Some(parked) = live.take_join(id) {
            let reply = join_error(ErrorCode::UnknownMemberId, StrBytes::new(), parked.version);
            self.answer_join(parked, reply);
        }
        if let Some(caller) = live.take_sync(id) {
            self.reply(caller, sync_error(ErrorCode::UnknownMemberId));
        }
        if let Some(mut member) = live.remove(id) {
            member.session.clear(self.timers, || session_key(&live.id, id));
        }
    }

    /// Forgets an id that was handed out. False when there is no such id.
    pub(super) fn remove_pending(&mut self, live: &mut Live, id: &StrBytes) -> bool {
        let Some(mut session) = live.take_pending(id) else { return false };
        session.clear(self.timers, || session_key(&live.id, id));
        true
    }
}
