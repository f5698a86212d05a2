//! Requests of the consumer protocol (KIP-848) on their way to the coordinator and back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{MachineId, Reply, Request as Ask, Token, Unavailable};
use polylogue_auth::{Operation, Resource, ResourceKind};
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::consumer_group_describe::ConsumerGroupDescribeRequest;
use polylogue_kafka_codec::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest;
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;
use polylogue_kafka_groups::command::{ConsumerHeartbeat, ConsumerHeartbeatReply, GroupCommand, GroupReply};
use session_host::broker::described_consumer;
use session_host::requests;
use session_host::users::Users;
use session_host::{Host, text, topic_id};
use std::sync::Arc;

fn command(host: &mut Host) -> (Token, GroupCommand) {
    match host.asked_one() {
        (token, Ask::Machine(MachineId::KAFKA_GROUPS, command)) => (token, *command.downcast().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn heartbeat(host: &mut Host) -> (Token, ConsumerHeartbeat) {
    let (token, GroupCommand::ConsumerHeartbeat(beat)) = command(host) else { panic!() };
    (token, beat)
}

fn reply(host: &mut Host, token: Token, reply: GroupReply) {
    host.reply(token, Reply::Machine(Ok(Box::new(reply))));
}

#[test]
fn a_heartbeat_carries_everything() {
    let mut host = Host::new();
    host.send(1, &requests::consumer_group_heartbeat(1));
    let (token, beat) = heartbeat(&mut host);
    assert_eq!((beat.version, &*beat.group_id, &*beat.member_id, beat.member_epoch), (1, "g", "m", 3));
    assert_eq!((beat.instance_id.as_deref(), beat.rack_id.as_deref()), (Some("static"), Some("rack")));
    assert_eq!((beat.rebalance_timeout_ms, beat.topics), (30_000, Some(vec![text("a")])));
    assert_eq!((beat.regex.as_deref(), beat.assignor.as_deref()), (Some("b.*"), Some("range")));
    assert_eq!(beat.owned, Some(vec![(topic_id(1), vec![0, 2])]));
    assert_eq!((&*beat.client_id, &*beat.client_host), ("test-client", "/192.0.2.1"));
    assert!(beat.may_describe.is_none(), "where no login is asked for all may be described");
    let said = ConsumerHeartbeatReply {
        message: Some(text("words")),
        member_id: Some(text("m")),
        member_epoch: 4,
        heartbeat_interval_ms: 7_000,
        assignment: Some(vec![(topic_id(2), vec![5])]),
        ..ConsumerHeartbeatReply::refused(ErrorCode::FencedMemberEpoch)
    };
    reply(&mut host, token, GroupReply::ConsumerHeartbeat(said));
    let response = host.response::<ConsumerGroupHeartbeatRequest>(1);
    assert_eq!((response.error_code, response.error_message.as_deref()), (110, Some("words")));
    assert_eq!(
        (response.member_id.as_deref(), response.member_epoch, response.heartbeat_interval_ms),
        (Some("m"), 4, 7_000)
    );
    let assignment = response.assignment.unwrap().topic_partitions;
    assert_eq!((assignment[0].topic_id, &assignment[0].partitions), (topic_id(2), &vec![5]));
}

#[test]
fn what_a_heartbeat_leaves_out_has_not_changed() {
    let mut host = Host::new();
    let request = ConsumerGroupHeartbeatRequest {
        group_id: text("g"),
        member_id: text("m"),
        ..ConsumerGroupHeartbeatRequest::default()
    };
    host.send(1, &request);
    let (token, beat) = heartbeat(&mut host);
    assert!(beat.topics.is_none() && beat.regex.is_none() && beat.owned.is_none() && beat.assignor.is_none());
    assert_eq!(beat.rebalance_timeout_ms, -1);
    reply(&mut host, token, GroupReply::ConsumerHeartbeat(ConsumerHeartbeatReply::refused(ErrorCode::None)));
    assert_eq!(host.response::<ConsumerGroupHeartbeatRequest>(1).assignment, None);
}

#[test]
fn a_coordinator_that_cannot_answer_is_retried() {
    for (why, code) in [(Unavailable::Busy, 14), (Unavailable::Unknown, 15), (Unavailable::NotCommitted, 16)] {
        let mut host = Host::new();
        host.send(0, &requests::consumer_group_heartbeat(0));
        let (token, _) = heartbeat(&mut host);
        host.reply(token, Reply::Machine(Err(why)));
        let response = host.response::<ConsumerGroupHeartbeatRequest>(0);
        assert_eq!((response.error_code, response.member_id), (code, None));
        host.send(1, &requests::consumer_group_describe(1));
        let (token, _) = command(&mut host);
        host.reply(token, Reply::Machine(Err(why)));
        let groups = host.response::<ConsumerGroupDescribeRequest>(1).groups;
        assert_eq!(groups.iter().map(|g| g.error_code).collect::<Vec<_>>(), [code, code]);
    }
}

/// A connection of a user with these rights.
fn logged_in(rights: &[(Operation, ResourceKind, &str)]) -> Host {
    let users = Arc::new(Users::default());
    rights.iter().for_each(|(operation, kind, name)| users.allow("user", *operation, Resource { kind: *kind, name }));
    let mut host = Host::new().asking(users);
    host.ask(1, &SaslHandshakeRequest { mechanism: text("PLAIN") });
    let token = SaslAuthenticateRequest { auth_bytes: bytes::Bytes::from_static(b"\0user\0pencil") };
    assert_eq!(host.ask(2, &token).error_code, 0);
    host
}

#[test]
fn the_coordinator_learns_which_topics_a_user_may_describe() {
    let read = (Operation::Read, ResourceKind::Group, "g");
    let mut host = logged_in(&[read, (Operation::Describe, ResourceKind::Topic, "a")]);
    host.send(1, &requests::consumer_group_heartbeat(1));
    let (_, beat) = heartbeat(&mut host);
    let may = beat.may_describe.unwrap();
    assert_eq!((may.topic("a"), may.topic("b"), beat.user.as_deref()), (true, false, Some("user")));
}

#[test]
fn who_may_not_describe_a_topic_is_refused_in_kafkas_words() {
    let mut host = logged_in(&[(Operation::Read, ResourceKind::Group, "g")]);
    let response = host.ask(1, &requests::consumer_group_heartbeat(1));
    assert_eq!(response.error_code, ErrorCode::TopicAuthorizationFailed.code());
    let group = |name| (Operation::Describe, ResourceKind::Group, name);
    let mut host = logged_in(&[group("h")]);
    host.send(1, &requests::consumer_group_describe(1));
    let (token, _) = command(&mut host);
    reply(&mut host, token, GroupReply::DescribeConsumers(vec![described_consumer(text("h"))]));
    let groups = host.response::<ConsumerGroupDescribeRequest>(1).groups;
    let rows: Vec<_> = groups.iter().map(|g| (&*g.group_id, g.error_code, g.members.len())).collect();
    assert_eq!(rows, [("g", 30, 0), ("h", 29, 0)]);
    let text = "The group has described topic(s) that the client is not authorized to describe.";
    assert_eq!(groups[1].error_message.as_deref(), Some(text));
}
