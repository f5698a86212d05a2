//! Administrative group requests to the coordinator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{MachineId, Reply, Request as Ask, Token, Unavailable};
use polylogue_kafka::session::CloseReason;
use polylogue_kafka_codec::delete_groups::DeleteGroupsRequest;
use polylogue_kafka_codec::describe_groups::DescribeGroupsRequest;
use polylogue_kafka_codec::list_groups::ListGroupsRequest;
use polylogue_kafka_codec::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use polylogue_kafka_codec::{ErrorCode, Request};
use polylogue_kafka_groups::command::{
    DeleteOffsetsReply, DescribedGroup, GroupCommand, GroupKind, GroupReply, GroupState, ListedGroup, TopicResults,
};
use polylogue_types::TopicId;
use session_host::broker::described;
use session_host::{Host, requests, text};

fn command(host: &mut Host) -> (Token, GroupCommand) {
    match host.asked_one() {
        (token, Ask::Machine(MachineId::KAFKA_GROUPS, command)) => (token, *command.downcast().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn reply(host: &mut Host, token: Token, reply: GroupReply) {
    host.reply(token, Reply::Machine(Ok(Box::new(reply))));
}

/// Returns the response to a request that the coordinator cannot answer for this reason.
fn refused<R: Request>(version: i16, request: &R, why: Unavailable) -> R::Response {
    let mut host = Host::new();
    host.send(version, request);
    let (token, _) = command(&mut host);
    host.reply(token, Reply::Machine(Err(why)));
    host.response::<R>(version)
}

#[test]
fn filters_are_carried_and_all_is_listed_without() {
    let mut host = Host::new();
    let request = ListGroupsRequest {
        states_filter: vec![text("Stable"), text("empty")],
        types_filter: vec![text("Consumer"), text("classic")],
    };
    host.send(5, &request);
    let (token, GroupCommand::List(list)) = command(&mut host) else { panic!() };
    assert_eq!((list.states, list.types), (request.states_filter, request.types_filter));
    let group = |name, state| ListedGroup {
        group_id: text(name),
        protocol_type: text("consumer"),
        state,
        kind: GroupKind::Classic,
    };
    let groups = vec![group("a", GroupState::Stable), group("b", GroupState::PreparingRebalance)];
    reply(&mut host, token, GroupReply::List(Ok(groups)));
    let response = host.response::<ListGroupsRequest>(5);
    let rows: Vec<_> = response.groups.iter().map(|g| (&*g.group_id, &*g.group_state, &*g.group_type)).collect();
    assert_eq!(rows, [("a", "Stable", "classic"), ("b", "PreparingRebalance", "classic")]);

    host.send(0, &ListGroupsRequest::default());
    let (_, GroupCommand::List(list)) = command(&mut host) else { panic!() };
    assert!(list.states.is_empty() && list.types.is_empty());
}

#[test]
fn a_group_that_is_not_there_is_told_with_its_text_and_without_operations() {
    let mut host = Host::new();
    host.send(6, &requests::describe_groups(6));
    let (token, GroupCommand::Describe(describe)) = command(&mut host) else { panic!() };
    assert_eq!((describe.version, describe.groups), (6, vec![text("g"), text("h")]));
    let missing = DescribedGroup {
        error: ErrorCode::GroupIdNotFound,
        error_message: Some(text("Group h not found.")),
        state: GroupState::Dead,
        members: Vec::new(),
        ..described(text("h"))
    };
    reply(&mut host, token, GroupReply::Describe(vec![described(text("g")), missing]));
    let response = host.response::<DescribeGroupsRequest>(6);
    let rows = response.groups.iter().map(|g| (g.error_code, &*g.group_state, g.authorized_operations));
    assert_eq!(rows.collect::<Vec<_>>(), [(0, "Stable", 3_400), (69, "Dead", i32::MIN)]);
    assert_eq!(response.groups[1].error_message.as_deref(), Some("Group h not found."));
}

#[test]
fn operations_are_told_to_those_who_ask() {
    let mut host = Host::new();
    let request = DescribeGroupsRequest { include_authorized_operations: false, ..requests::describe_groups(6) };
    host.send(6, &request);
    let (token, _) = command(&mut host);
    reply(&mut host, token, GroupReply::Describe(vec![described(text("g"))]));
    assert_eq!(host.response::<DescribeGroupsRequest>(6).groups[0].authorized_operations, i32::MIN);
}

#[test]
fn each_group_is_deleted_once_and_has_its_own_result() {
    let mut host = Host::new();
    host.send(2, &DeleteGroupsRequest { groups_names: ["b", "a", "b", "c"].map(text).into() });
    let (token, GroupCommand::Delete(delete)) = command(&mut host) else { panic!() };
    assert_eq!(delete.groups, ["b", "a", "c"].map(text));
    let results = [ErrorCode::None, ErrorCode::NonEmptyGroup, ErrorCode::GroupIdNotFound];
    reply(&mut host, token, GroupReply::Delete(delete.groups.into_iter().zip(results).collect()));
    let response = host.response::<DeleteGroupsRequest>(2);
    let rows: Vec<_> = response.results.iter().map(|r| (&*r.group_id, r.error_code)).collect();
    assert_eq!(rows, [("b", 0), ("a", 68), ("c", 69)]);
}

#[test]
fn offsets_are_deleted_by_partition() {
    let partitions = [0, 4].map(|partition_index| OffsetDeleteRequestPartition { partition_index }).into();
    let request = OffsetDeleteRequest {
        group_id: text("g"),
        topics: vec![OffsetDeleteRequestTopic { name: text("a"), partitions }],
    };
    let mut host = Host::new();
    host.send(0, &request);
    let (token, GroupCommand::DeleteOffsets(delete)) = command(&mut host) else { panic!() };
    assert_eq!((delete.group_id, delete.topics), (text("g"), vec![(text("a"), vec![0, 4])]));
    let results = vec![(0, ErrorCode::GroupSubscribedToTopic), (4, ErrorCode::UnknownTopicOrPartition)];
    let topics = vec![TopicResults { name: text("a"), id: TopicId::ZERO, partitions: results }];
    reply(&mut host, token, GroupReply::DeleteOffsets(DeleteOffsetsReply { error: ErrorCode::None, topics }));
    let response = host.response::<OffsetDeleteRequest>(0);
    let rows: Vec<_> = response.topics[0].partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
    assert_eq!((response.error_code, rows), (0, vec![(0, 86), (4, 3)]));

    host.send(0, &request);
    let (token, _) = command(&mut host);
    let reply_of_all = DeleteOffsetsReply { error: ErrorCode::NonEmptyGroup, topics: Vec::new() };
    reply(&mut host, token, GroupReply::DeleteOffsets(reply_of_all));
    let response = host.response::<OffsetDeleteRequest>(0);
    assert_eq!((response.error_code, response.topics.len()), (68, 0));
}

/// Listing, describing and deleting groups waits for earlier commits on the connection.
#[test]
fn groups_are_looked_at_after_commits() {
    fn behind_a_commit<R: Request>(version: i16, request: &R) {
        let mut host = Host::new();
        host.send(8, &requests::offset_commit(8));
        host.send(version, request);
        let (token, GroupCommand::CommitOffsets(_)) = command(&mut host) else { panic!() };
        reply(&mut host, token, GroupReply::CommitOffsets(vec![]));
        command(&mut host);
    }
    behind_a_commit(5, &requests::list_groups(5));
    behind_a_commit(6, &requests::describe_groups(6));
    behind_a_commit(2, &requests::delete_groups(2));
    behind_a_commit(0, &requests::offset_delete(0));
}

/// GROUP_ID_NOT_FOUND is final for clients: it, and -1, are never returned while the coordinator is unavailable.
#[test]
fn mistake_23_a_coordinator_that_cannot_answer_says_so_and_not_that_there_is_no_group() {
    use Unavailable::{Busy, NotCommitted, Stopping, StorageFull, Unknown};
    for (why, code) in [(Busy, 14), (StorageFull, 15), (Unknown, 15), (NotCommitted, 16), (Stopping, 16)] {
        assert_eq!(refused(5, &requests::list_groups(5), why).error_code, code);
        let groups = refused(6, &requests::describe_groups(6), why).groups;
        let rows: Vec<_> = groups.iter().map(|g| (&*g.group_id, g.error_code)).collect();
        assert_eq!(rows, [("g", code), ("h", code)]);
        let results = refused(2, &requests::delete_groups(2), why).results;
        let rows: Vec<_> = results.iter().map(|r| (&*r.group_id, r.error_code)).collect();
        assert_eq!(rows, [("g", code), ("h", code)]);
        assert_eq!(refused(0, &requests::offset_delete(0), why).error_code, code);
    }
}

#[test]
fn a_reply_of_another_command_ends_the_connection() {
    let mut host = Host::new();
    host.send(5, &requests::list_groups(5));
    let (token, _) = command(&mut host);
    reply(&mut host, token, GroupReply::Delete(Vec::new()));
    assert!(matches!(host.close_reason(), Some(CloseReason::Reply { .. })));
}
