//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup: passed to the group coordinator.

use super::errors;
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::{MachineId, Reply, Request, Unavailable};
use polylogue_auth::Operation;
use polylogue_kafka_codec::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use polylogue_kafka_codec::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};
use polylogue_kafka_codec::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};
use polylogue_kafka_codec::sync_group::{SyncGroupRequest, SyncGroupResponse};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_kafka_groups::command::{
    Assignment, GroupCommand, GroupReply, Heartbeat, JoinGroup, JoinGroupReply, LeaveGroup, LeaveGroupReply,
    LeavingMember, Protocol, SyncGroup, SyncGroupReply,
};

/// Sends a command to the coordinator.
pub(super) fn command(work: &mut Work<'_>, command: GroupCommand) -> u64 {
    work.ask(Request::Machine(MachineId::KAFKA_GROUPS, Box::new(command)))
}

/// Returns the coordinator's reply, or its error. `None` if the reply is of another kind.
pub(super) fn answered(reply: Reply) -> Option<Result<GroupReply, Unavailable>> {
    match reply {
        Reply::Machine(Err(why)) => Some(Err(why)),
        Reply::Machine(Ok(reply)) => reply.downcast::<GroupReply>().ok().map(|reply| Ok(*reply)),
        _ => None,
    }
}

/// A command that waits for its reply.
#[derive(Debug)]
enum Asking {
    /// With the member id of the request.
    Join(StrBytes),
    Sync,
    Heartbeat,
    Leave,
}

impl Pending for Asking {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Some(result) = answered(reply) else { return work.wrong_reply() };
        match (*self, result.map_err(errors::of_coordinator)) {
            (Asking::Join(_), Ok(GroupReply::Join(joined))) => join_response(work, joined),
            (Asking::Join(member_id), Err(error)) => join_response(work, no_join(error, member_id, work.head.version)),
            (Asking::Sync, Ok(GroupReply::Sync(synced))) => sync_response(work, synced),
            (Asking::Sync, Err(error)) => sync_response(work, no_sync(error)),
            (Asking::Heartbeat, Ok(GroupReply::Heartbeat(error)) | Err(error)) => {
                work.answer(&HeartbeatResponse { error_code: error.code(), ..HeartbeatResponse::default() })
            }
            (Asking::Leave, Ok(GroupReply::Leave(left))) => leave_response(work, left),
            (Asking::Leave, Err(error)) => leave_response(work, LeaveGroupReply { error, members: Vec::new() }),
            _ => work.wrong_reply(),
        }
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

pub(super) fn start_join(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = JoinGroupRequest::decode(body, version)?;
    if !work.may_group(Operation::Read, &request.group_id) {
        return Ok(join_response(work, no_join(ErrorCode::GroupAuthorizationFailed, request.member_id, version)));
    }
    let protocols = request.protocols.into_iter().map(|p| Protocol { name: p.name, metadata: p.metadata }).collect();
    let join = JoinGroup {
        version,
        user: work.peer.login.name().cloned(),
        group_id: request.group_id,
        member_id: request.member_id.clone(),
        instance_id: request.group_instance_id,
        client_id: work.head.client_id.clone().unwrap_or_default(),
        client_host: work.peer.host.clone(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        protocol_type: request.protocol_type,
        protocols,
    };
    Ok(Step::Wait(command(work, GroupCommand::Join(join)), Box::new(Asking::Join(request.member_id))))
}

/// The first version with a nullable protocol.
const NULL_PROTOCOL_FROM: i16 = 7;

fn no_join(error: ErrorCode, member_id: StrBytes, version: i16) -> JoinGroupReply {
    JoinGroupReply {
        error,
        generation: -1,
        protocol_type: None,
        protocol_name: (version < NULL_PROTOCOL_FROM).then(StrBytes::new),
        leader: StrBytes::new(),
        skip_assignment: false,
        member_id,
        members: Vec::new(),
    }
}

fn join_response(work: &Work<'_>, joined: JoinGroupReply) -> Step {
    let member = |m: polylogue_kafka_groups::command::JoinedMember| JoinGroupResponseMember {
        member_id: m.member_id,
        group_instance_id: m.instance_id,
        metadata: m.metadata,
    };
    let response = JoinGroupResponse {
        error_code: joined.error.code(),
        generation_id: joined.generation,
        protocol_type: joined.protocol_type,
        protocol_name: joined.protocol_name,
        leader: joined.leader,
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id,
        members: joined.members.into_iter().map(member).collect(),
        ..JoinGroupResponse::default()
    };
    work.answer(&response)
}

pub(super) fn start_sync(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = SyncGroupRequest::decode(body, version)?;
    if !work.may_group(Operation::Read, &request.group_id) {
        return Ok(sync_response(work, no_sync(ErrorCode::GroupAuthorizationFailed)));
    }
    let assignments = request.assignments.into_iter();
    let sync = SyncGroup {
        version,
        group_id: request.group_id,
        generation: request.generation_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignments: assignments.map(|a| Assignment { member_id: a.member_id, assignment: a.assignment }).collect(),
    };
    Ok(Step::Wait(command(work, GroupCommand::Sync(sync)), Box::new(Asking::Sync)))
}

fn no_sync(error: ErrorCode) -> SyncGroupReply {
    SyncGroupReply { error, protocol_type: None, protocol_name: None, assignment: bytes::Bytes::new() }
}

fn sync_response(work: &Work<'_>, synced: SyncGroupReply) -> Step {
    let response = SyncGroupResponse {
        error_code: synced.error.code(),
        protocol_type: synced.protocol_type,
        protocol_name: synced.protocol_name,
        assignment: synced.assignment,
        ..SyncGroupResponse::default()
    };
    work.answer(&response)
}

pub(super) fn start_heartbeat(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = HeartbeatRequest::decode(body, work.head.version)?;
    if !work.may_group(Operation::Read, &request.group_id) {
        let error_code = ErrorCode::GroupAuthorizationFailed.code();
        return Ok(work.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() }));
    }
    let heartbeat = Heartbeat {
        group_id: request.group_id,
        generation: request.generation_id,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
    };
    Ok(Step::Wait(command(work, GroupCommand::Heartbeat(heartbeat)), Box::new(Asking::Heartbeat)))
}

/// The first version with several members.
const BATCHED_LEAVE_FROM: i16 = 3;

pub(super) fn start_leave(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = LeaveGroupRequest::decode(body, version)?;
    if !work.may_group(Operation::Read, &request.group_id) {
        let error = ErrorCode::GroupAuthorizationFailed;
        return Ok(leave_response(work, LeaveGroupReply { error, members: Vec::new() }));
    }
    let members = if version < BATCHED_LEAVE_FROM {
        vec![LeavingMember { member_id: request.member_id, instance_id: None }]
    } else {
        let members = request.members.into_iter();
        members.map(|m| LeavingMember { member_id: m.member_id, instance_id: m.group_instance_id }).collect()
    };
    let leave = LeaveGroup { version, group_id: request.group_id, members };
    Ok(Step::Wait(command(work, GroupCommand::Leave(leave)), Box::new(Asking::Leave)))
}

fn leave_response(work: &Work<'_>, left: LeaveGroupReply) -> Step {
    let member = |(member, error): (LeavingMember, ErrorCode)| MemberResponse {
        member_id: member.member_id,
        group_instance_id: member.instance_id,
        error_code: error.code(),
    };
    let response = LeaveGroupResponse {
        error_code: left.error.code(),
        members: left.members.into_iter().map(member).collect(),
        ..LeaveGroupResponse::default()
    };
    work.answer(&response)
}
