//! Group requests to the coordinator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{MachineId, Reply, Request as Ask, Token, Unavailable};
use polylogue_kafka::session::CloseReason;
use polylogue_kafka_codec::heartbeat::HeartbeatRequest;
use polylogue_kafka_codec::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use polylogue_kafka_codec::leave_group::{LeaveGroupRequest, MemberIdentity};
use polylogue_kafka_codec::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use polylogue_kafka_codec::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic};
use polylogue_kafka_codec::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_kafka_groups::command::{
    FetchedGroup, FetchedOffset, FetchedTopic, GroupCommand, GroupReply, JoinGroupReply, JoinedMember, LeaveGroupReply,
    LeavingMember, SyncGroupReply, TopicKey, TopicResults,
};
use polylogue_types::TopicId;
use session_host::{Host, text, topic_id};

fn command(host: &mut Host) -> (Token, GroupCommand) {
    match host.asked_one() {
        (token, Ask::Machine(MachineId::KAFKA_GROUPS, command)) => (token, *command.downcast().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn reply(host: &mut Host, token: Token, reply: GroupReply) {
    host.reply(token, Reply::Machine(Ok(Box::new(reply))));
}

fn unavailable(host: &mut Host, token: Token) {
    host.reply(token, Reply::Machine(Err(Unavailable::Busy)));
}

const BUSY: i16 = ErrorCode::CoordinatorLoadInProgress as i16;

fn join() -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: text("g"),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: text("m-1"),
        group_instance_id: Some(text("static")),
        protocol_type: text("consumer"),
        protocols: vec![
            JoinGroupRequestProtocol { name: text("range"), metadata: vec![0, 255, 1].into() },
            JoinGroupRequestProtocol { name: text("sticky"), metadata: vec![].into() },
        ],
        reason: None,
    }
}

#[test]
fn a_join_carries_everything() {
    let mut host = Host::new();
    host.send(9, &join());
    let (token, GroupCommand::Join(join)) = command(&mut host) else { panic!() };
    assert_eq!((join.version, &*join.group_id, &*join.member_id), (9, "g", "m-1"));
    assert_eq!(join.instance_id.as_deref(), Some("static"));
    // Fields that Kafka's tools show.
    assert_eq!((&*join.client_id, &*join.client_host), ("test-client", "/192.0.2.1"));
    assert_eq!((join.session_timeout_ms, join.rebalance_timeout_ms), (10_000, 60_000));
    let protocols: Vec<_> = join.protocols.iter().map(|p| (&*p.name, p.metadata.to_vec())).collect();
    assert_eq!(protocols, [("range", vec![0, 255, 1]), ("sticky", vec![])]);
    let joined = JoinGroupReply {
        error: ErrorCode::None,
        generation: 4,
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        leader: text("m-1"),
        skip_assignment: true,
        member_id: text("m-1"),
        members: vec![JoinedMember { member_id: text("m-2"), instance_id: None, metadata: vec![7].into() }],
    };
    reply(&mut host, token, GroupReply::Join(joined));
    let response = host.response::<JoinGroupRequest>(9);
    assert_eq!((response.error_code, response.generation_id, &*response.leader), (0, 4, "m-1"));
    assert!(response.skip_assignment);
    let member = &response.members[0];
    assert_eq!((&*member.member_id, &member.group_instance_id, &*member.metadata), ("m-2", &None, &[7][..]));
}

#[test]
fn a_coordinator_that_cannot_answer_is_retried() {
    for version in [0, 6, 7, 9] {
        let mut host = Host::new();
        let request = JoinGroupRequest { group_instance_id: None, ..join() };
        host.send(version, &request);
        let (token, _) = command(&mut host);
        unavailable(&mut host, token);
        let response = host.response::<JoinGroupRequest>(version);
        assert_eq!((response.error_code, response.generation_id, &*response.member_id), (BUSY, -1, "m-1"));
        // Nullable from version 7 on.
        assert_eq!(response.protocol_name, (version < 7).then(StrBytes::new));
    }
    for (why, expected) in [
        (Unavailable::StorageFull, ErrorCode::CoordinatorNotAvailable),
        (Unavailable::Unknown, ErrorCode::CoordinatorNotAvailable),
        (Unavailable::NotCommitted, ErrorCode::NotCoordinator),
        (Unavailable::Busy, ErrorCode::CoordinatorLoadInProgress),
        (Unavailable::Stopping, ErrorCode::NotCoordinator),
    ] {
        let mut host = Host::new();
        host.send(4, &HeartbeatRequest { group_id: text("g"), ..HeartbeatRequest::default() });
        let (token, _) = command(&mut host);
        host.reply(token, Reply::Machine(Err(why)));
        assert_eq!(host.response::<HeartbeatRequest>(4).error_code, expected.code());
    }
}

#[test]
fn a_sync_carries_the_assignments() {
    let mut host = Host::new();
    let sync = SyncGroupRequest {
        group_id: text("g"),
        generation_id: 3,
        member_id: text("m"),
        group_instance_id: None,
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        assignments: vec![SyncGroupRequestAssignment { member_id: text("x"), assignment: vec![9, 9].into() }],
    };
    host.send(5, &sync);
    let (token, GroupCommand::Sync(sync)) = command(&mut host) else { panic!() };
    assert_eq!((sync.version, sync.generation, sync.protocol_name.as_deref()), (5, 3, Some("range")));
    assert_eq!((&*sync.assignments[0].member_id, &*sync.assignments[0].assignment), ("x", &[9, 9][..]));
    let synced = SyncGroupReply {
        error: ErrorCode::RebalanceInProgress,
        protocol_type: None,
        protocol_name: None,
        assignment: bytes::Bytes::new(),
    };
    reply(&mut host, token, GroupReply::Sync(synced));
    let response = host.response::<SyncGroupRequest>(5);
    assert_eq!((response.error_code, response.assignment.len()), (27, 0));
    host.send(5, &SyncGroupRequest::default());
    let (token, _) = command(&mut host);
    unavailable(&mut host, token);
    assert_eq!(host.response::<SyncGroupRequest>(5).error_code, BUSY);
}

#[test]
fn members_leave_one_by_one_or_together() {
    let mut host = Host::new();
    host.send(2, &LeaveGroupRequest { group_id: text("g"), member_id: text("m"), members: vec![] });
    let (token, GroupCommand::Leave(leave)) = command(&mut host) else { panic!() };
    assert_eq!(leave.members, [LeavingMember { member_id: text("m"), instance_id: None }]);
    let left = LeaveGroupReply { error: ErrorCode::UnknownMemberId, members: vec![] };
    reply(&mut host, token, GroupReply::Leave(left));
    assert_eq!(host.response::<LeaveGroupRequest>(2).error_code, ErrorCode::UnknownMemberId.code());

    let member = |id: &str, instance: Option<&str>| MemberIdentity {
        member_id: text(id),
        group_instance_id: instance.map(text),
        reason: None,
    };
    let members = vec![member("m", None), member("", Some("static"))];
    host.send(5, &LeaveGroupRequest { group_id: text("g"), member_id: text(""), members });
    let (token, GroupCommand::Leave(leave)) = command(&mut host) else { panic!() };
    let errors = [ErrorCode::None, ErrorCode::UnknownMemberId];
    let members = leave.members.into_iter().zip(errors).collect();
    reply(&mut host, token, GroupReply::Leave(LeaveGroupReply { error: ErrorCode::None, members }));
    let response = host.response::<LeaveGroupRequest>(5);
    let members: Vec<_> =
        response.members.iter().map(|m| (&*m.member_id, m.group_instance_id.as_deref(), m.error_code)).collect();
    assert_eq!(members, [("m", None, 0), ("", Some("static"), 25)]);

    host.send(5, &LeaveGroupRequest::default());
    let (token, _) = command(&mut host);
    unavailable(&mut host, token);
    assert_eq!(host.response::<LeaveGroupRequest>(5).error_code, BUSY);
}

fn commit(version: i16) -> OffsetCommitRequest {
    let (name, id) = if version >= 10 { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) };
    let partition = |partition_index, committed_metadata| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 70,
        committed_leader_epoch: if version >= 6 { 2 } else { -1 },
        committed_metadata,
    };
    OffsetCommitRequest {
        group_id: text("g"),
        generation_id_or_member_epoch: 5,
        member_id: text("m"),
        group_instance_id: None,
        retention_time_ms: if version <= 4 { 1_234 } else { -1 },
        topics: vec![OffsetCommitRequestTopic {
            name,
            topic_id: id,
            partitions: vec![partition(0, Some(text("note"))), partition(1, None)],
        }],
    }
}

#[test]
fn a_commit_carries_everything() {
    for version in 2..=10 {
        let mut host = Host::new();
        host.send(version, &commit(version));
        let (token, GroupCommand::CommitOffsets(commit)) = command(&mut host) else { panic!() };
        assert_eq!((commit.version, commit.generation, &*commit.member_id), (version, 5, "m"));
        assert_eq!(commit.retention_time_ms, if version <= 4 { 1_234 } else { -1 });
        let by_id = version >= 10;
        let key = if by_id { TopicKey::Id(topic_id(1)) } else { TopicKey::Name(text("a")) };
        assert_eq!(commit.topics[0].topic, key);
        let [first, second] = commit.topics[0].partitions.as_slice() else { panic!() };
        assert_eq!((first.index, first.offset, first.metadata.as_deref()), (0, 70, Some("note")));
        assert_eq!((second.leader_epoch, second.metadata.as_deref()), (if version >= 6 { 2 } else { -1 }, None));
        let results = TopicResults {
            name: if by_id { text("") } else { text("a") },
            id: if by_id { topic_id(1) } else { TopicId::ZERO },
            partitions: vec![(0, ErrorCode::None), (1, ErrorCode::IllegalGeneration)],
        };
        reply(&mut host, token, GroupReply::CommitOffsets(vec![results]));
        let response = host.response::<OffsetCommitRequest>(version);
        let rows: Vec<_> = response.topics[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
        assert_eq!(rows, [(0, 0), (1, 22)]);

        // Each partition gets the error.
        host.send(version, &self::commit(version));
        let (token, _) = command(&mut host);
        unavailable(&mut host, token);
        let response = host.response::<OffsetCommitRequest>(version);
        assert_eq!(response.topics[0].topic_id, if by_id { topic_id(1) } else { TopicId::ZERO });
        let rows: Vec<_> = response.topics[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
        assert_eq!(rows, [(0, BUSY), (1, BUSY)]);
    }
}

#[test]
fn all_offsets_of_a_group() {
    let mut host = Host::new();
    host.send(2, &OffsetFetchRequest { group_id: text("g"), topics: None, ..OffsetFetchRequest::default() });
    let (_, GroupCommand::FetchOffsets(fetch)) = command(&mut host) else { panic!() };
    assert!(fetch.groups[0].topics.is_none());
    let group =
        OffsetFetchRequestGroup { group_id: text("h"), member_id: Some(text("m")), member_epoch: 6, topics: None };
    let request = OffsetFetchRequest { groups: vec![group], require_stable: true, ..OffsetFetchRequest::default() };
    let mut host = Host::new();
    host.send(9, &request);
    let (token, GroupCommand::FetchOffsets(fetch)) = command(&mut host) else { panic!() };
    assert!(fetch.require_stable && fetch.groups[0].topics.is_none());
    assert_eq!((fetch.groups[0].member_id.as_deref(), fetch.groups[0].member_epoch), (Some("m"), 6));
    let offset =
        FetchedOffset { index: 3, offset: 8, leader_epoch: 1, metadata: StrBytes::new(), error: ErrorCode::None };
    let topic = FetchedTopic { name: text("a"), id: topic_id(1), partitions: vec![offset] };
    let group = FetchedGroup { group_id: text("h"), error: ErrorCode::None, topics: vec![topic] };
    reply(&mut host, token, GroupReply::FetchOffsets(vec![group]));
    let response = host.response::<OffsetFetchRequest>(9);
    let row = &response.groups[0].topics[0].partitions[0];
    assert_eq!((row.partition_index, row.committed_offset, row.committed_leader_epoch), (3, 8, 1));
}

#[test]
fn offsets_that_cannot_be_told() {
    let topics = Some(vec![OffsetFetchRequestTopic { name: text("a"), partition_indexes: vec![0, 4] }]);
    let request = OffsetFetchRequest { group_id: text("g"), topics, ..OffsetFetchRequest::default() };
    let mut host = Host::new();
    host.send(1, &request);
    let (token, _) = command(&mut host);
    unavailable(&mut host, token);
    let response = host.response::<OffsetFetchRequest>(1);
    let rows: Vec<_> =
        response.topics[0].partitions.iter().map(|p| (p.partition_index, p.committed_offset, p.error_code)).collect();
    assert_eq!(rows, [(0, -1, BUSY), (4, -1, BUSY)]);

    host.send(2, &request);
    let (token, _) = command(&mut host);
    unavailable(&mut host, token);
    let response = host.response::<OffsetFetchRequest>(2);
    assert_eq!((response.error_code, response.topics.len()), (BUSY, 0));

    let group = |name| OffsetFetchRequestGroup { group_id: text(name), ..OffsetFetchRequestGroup::default() };
    let request = OffsetFetchRequest { groups: vec![group("g"), group("h")], ..OffsetFetchRequest::default() };
    host.send(8, &request);
    let (token, _) = command(&mut host);
    unavailable(&mut host, token);
    let groups: Vec<_> =
        host.response::<OffsetFetchRequest>(8).groups.iter().map(|g| (g.group_id.clone(), g.error_code)).collect();
    assert_eq!(groups, [(text("g"), BUSY), (text("h"), BUSY)]);
}

/// An offset fetch after a commit on the same connection sees it.
#[test]
fn offsets_are_read_after_they_are_committed() {
    let mut host = Host::new();
    host.send(8, &commit(8));
    let group = OffsetFetchRequestGroup { group_id: text("g"), ..OffsetFetchRequestGroup::default() };
    host.send(8, &OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() });
    // Commits do not wait for each other.
    let (token, GroupCommand::CommitOffsets(_)) = command(&mut host) else { panic!() };
    reply(&mut host, token, GroupReply::CommitOffsets(vec![]));
    let (_, GroupCommand::FetchOffsets(_)) = command(&mut host) else { panic!() };
    let mut host = Host::new();
    host.send(8, &commit(8));
    host.send(8, &commit(8));
    assert_eq!(host.asked().len(), 2);
}

#[test]
fn a_join_may_wait_longer_than_a_connection_may_be_idle() {
    let mut host = Host::new();
    host.send(5, &join());
    let (token, _) = command(&mut host);
    host.pass(3_600_000);
    assert_eq!(host.close_reason(), None);
    let abandoned = host.session.on_closed();
    assert_eq!(abandoned.callers, [token]);
}

#[test]
fn a_reply_of_another_command_ends_the_connection() {
    let mut host = Host::new();
    host.send(5, &join());
    let (token, _) = command(&mut host);
    reply(&mut host, token, GroupReply::Heartbeat(ErrorCode::None));
    assert!(matches!(host.close_reason(), Some(CloseReason::Reply { .. })));
    let mut host = Host::new();
    host.send(5, &join());
    let (token, _) = command(&mut host);
    host.reply(token, Reply::Machine(Ok(Box::new("what is this"))));
    assert!(matches!(host.close_reason(), Some(CloseReason::Reply { .. })));
}

/// Regression test: sixteen responses with all members of a group were built at once and kept until they were taken.
#[test]
fn one_answer_of_any_length_is_prepared_at_a_time() {
    let mut host = Host::new();
    host.send(9, &join());
    // A join may take long, and only another join waits for it.
    host.send(4, &HeartbeatRequest { group_id: text("g"), ..HeartbeatRequest::default() });
    host.send(9, &join());
    let asked = host.asked();
    assert_eq!(asked.len(), 2, "the second join waits for the first");
    host.reply(asked[1].0, Reply::Machine(Ok(Box::new(GroupReply::Heartbeat(ErrorCode::None)))));
    assert!(host.asked().is_empty());
    host.reply(asked[0].0, Reply::Machine(Err(Unavailable::Busy)));
    let (_, GroupCommand::Join(_)) = command(&mut host) else { panic!() };

    let mut host = Host::new();
    let fetch = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: text("g"),
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    host.send(8, &fetch);
    host.send(8, &fetch);
    let (token, GroupCommand::FetchOffsets(_)) = command(&mut host) else { panic!() };
    unavailable(&mut host, token);
    let (_, GroupCommand::FetchOffsets(_)) = command(&mut host) else { panic!() };
}
