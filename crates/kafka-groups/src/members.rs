//! SyncGroup, Heartbeat and LeaveGroup.

use super::command::{
    Assignment, GroupReply, GroupState, Heartbeat, LeaveGroup, LeaveGroupReply, LeavingMember, SyncGroup,
};
use super::join::validate_member;
use super::live::Live;
use super::settings::GROUP_RECORD_BYTES_MAX;
use super::turn::{Turn, sync_accepted, sync_error};
use super::wire::{detached, detached_bytes};
use bytes::Bytes;
use polylogue_api::Caller;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use std::collections::BTreeMap;

/// From this version on a member says which protocol it was given.
const SYNC_PROTOCOL_FROM: i16 = 5;
/// From this version on many leave at once, each with a result of its own.
const LEAVE_BATCH_FROM: i16 = 3;

/// Whether a SyncGroup request has what its version demands.
pub(super) fn validate_sync(request: &SyncGroup) -> Result<(), ErrorCode> {
    let named = request.protocol_type.is_some() && request.protocol_name.is_some();
    if request.version >= SYNC_PROTOCOL_FROM && !named {
        Err(ErrorCode::InconsistentGroupProtocol)
    } else if request.group_id.is_empty() {
        Err(ErrorCode::InvalidGroupId)
    } else {
        Ok(())
    }
}

impl Turn<'_> {
    /// A member wants its assignment; the leader brings everybody's.
    pub(super) fn sync(&mut self, live: &mut Live, caller: Caller, request: &SyncGroup) {
        let id = detached(&request.member_id);
        if let Err(error) = validate_sync_in(live, request) {
            self.reply(caller, sync_error(error));
            return;
        }
        match live.state {
            // without members there is none that could have been validated
            GroupState::Empty | GroupState::Dead | GroupState::Assigning | GroupState::Reconciling => {
                self.reply(caller, sync_error(ErrorCode::UnknownMemberId));
            }
            GroupState::PreparingRebalance => self.reply(caller, sync_error(ErrorCode::RebalanceInProgress)),
            GroupState::CompletingRebalance => {
                if let Some(old) = live.take_sync(&id) {
                    self.reply(old, sync_error(ErrorCode::RebalanceInProgress));
                }
                if let Some(member) = live.member_mut(&id) {
                    member.sync = Some(caller);
                }
                self.sync_received(live, &id);
                if live.is_leader(&id) {
                    self.assign(live, &request.assignments);
                }
            }
            GroupState::Stable => {
                self.sync_received(live, &id);
                let reply = sync_accepted(live, &id);
                self.reply_after(live, caller, reply);
            }
        }
    }

    /// The leader has decided: all waiters are answered when it is committed; those it left out get an empty assignment.
    fn assign(&mut self, live: &mut Live, assignments: &[Assignment]) {
        let given: BTreeMap<&str, &Bytes> = assignments.iter().map(|a| (&*a.member_id, &a.assignment)).collect();
        let said: usize = live.members().map(|(_, m)| m.metadata(live.protocol.as_ref()).len()).sum();
        let assigned: usize = live.members().filter_map(|(id, _)| given.get(&**id)).map(|a| a.len()).sum();
        if said + assigned > GROUP_RECORD_BYTES_MAX {
            // as Kafka answers when the group's record is too large
            for id in live.member_ids() {
                if let Some(caller) = live.take_sync(&id) {
                    self.reply(caller, sync_error(ErrorCode::UnknownServerError));
                    self.heard_of(live, &id);
                }
            }
            self.prepare(live);
            return;
        }
        live.state = GroupState::Stable;
        let mut replies = Vec::with_capacity(live.len());
        for id in live.member_ids() {
            let assignment = given.get(&*id).map_or(Bytes::new(), |assignment| detached_bytes(assignment));
            live.change(&id, |member| member.assignment = assignment);
            if let Some(caller) = live.take_sync(&id) {
                replies.push((caller, sync_accepted(live, &id)));
                self.heard_of(live, &id);
            }
        }
        self.propose_metadata(live, replies);
    }

    pub(super) fn heartbeat(&mut self, live: &mut Live, request: &Heartbeat) -> ErrorCode {
        let id = &request.member_id;
        if let Err(error) = validate_member(live, id, request.instance_id.as_ref()) {
            return error;
        }
        if request.generation != live.generation {
            return ErrorCode::IllegalGeneration;
        }
        self.heard_of(live, &detached(id));
        match live.state {
            GroupState::PreparingRebalance => ErrorCode::RebalanceInProgress,
            _ => ErrorCode::None,
        }
    }

    /// Members leave. The reply waits for the record that the group is empty, if it comes to that.
    pub(super) fn leave(&mut self, live: &mut Live, caller: Caller, request: LeaveGroup) {
        let mut left = false;
        let mut results = Vec::with_capacity(request.members.len());
        for leaving in request.members {
            let result = self.leave_one(live, &leaving, &mut left);
            results.push((leaving, result.err().unwrap_or(ErrorCode::None)));
        }
        let proposed = self.effects.proposals.len();
        match live.state {
            GroupState::Stable | GroupState::CompletingRebalance if left => self.prepare(live),
            _ => self.maybe_complete_join(live),
        }
        let reply = GroupReply::Leave(leave_reply(request.version, results));
        match self.effects.proposals.get_mut(proposed) {
            Some(proposal) => proposal.replies.push((caller, Box::new(reply))),
            None => self.reply_after(live, caller, reply),
        }
    }

    fn leave_one(&mut self, live: &mut Live, leaving: &LeavingMember, left: &mut bool) -> Result<(), ErrorCode> {
        let id = if leaving.member_id.is_empty() {
            // an operator removes a static member by its name
            let member = leaving.instance_id.as_ref().and_then(|instance| live.static_member(instance));
            member.cloned().ok_or(ErrorCode::UnknownMemberId)?
        } else if self.remove_pending(live, &leaving.member_id) {
            return Ok(());
        } else {
            validate_member(live, &leaving.member_id, leaving.instance_id.as_ref())?;
            detached(&leaving.member_id)
        };
        self.remove_member(live, &id);
        *left = true;
        Ok(())
    }
}

fn validate_sync_in(live: &Live, request: &SyncGroup) -> Result<(), ErrorCode> {
    let differs = |said: &Option<StrBytes>, is: &Option<StrBytes>| said.is_some() && is.is_some() && said != is;
    validate_member(live, &request.member_id, request.instance_id.as_ref())?;
    if request.generation != live.generation {
        Err(ErrorCode::IllegalGeneration)
    } else if differs(&request.protocol_type, &live.protocol_type) || differs(&request.protocol_name, &live.protocol) {
        Err(ErrorCode::InconsistentGroupProtocol)
    } else {
        Ok(())
    }
}

/// Before version 3 the result of the one that leaves is the result of the whole.
pub(super) fn leave_reply(version: i16, results: Vec<(LeavingMember, ErrorCode)>) -> LeaveGroupReply {
    if version >= LEAVE_BATCH_FROM {
        return LeaveGroupReply { error: ErrorCode::None, members: results };
    }
    let error = results.first().map_or(ErrorCode::None, |(_, error)| *error);
    LeaveGroupReply { error, members: Vec::new() }
}
