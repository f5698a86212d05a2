//! ListGroups, DescribeGroups, DeleteGroups, and the summaries for operators.

use crate::host::*;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::GroupState;
use polylogue_kafka_groups::command::*;

fn list(host: &mut Host, states: &[&str], types: &[&str]) -> Vec<(String, String, GroupState)> {
    let texts = |names: &[&str]| names.iter().map(|n| text(n)).collect();
    match host.call(GroupCommand::List(ListGroups { states: texts(states), types: texts(types) })) {
        GroupReply::List(Ok(groups)) => {
            groups.into_iter().map(|g| (g.group_id.to_string(), g.protocol_type.to_string(), g.state)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn describe(host: &mut Host, version: i16, group: &str) -> DescribedGroup {
    match host.call(GroupCommand::Describe(DescribeGroups { version, groups: vec![text(group)] })) {
        GroupReply::Describe(mut groups) => groups.remove(0),
        other => panic!("{other:?}"),
    }
}

fn delete(host: &mut Host, groups: &[&str]) -> Vec<ErrorCode> {
    match host.call(GroupCommand::Delete(DeleteGroups { groups: groups.iter().map(|g| text(g)).collect() })) {
        GroupReply::Delete(results) => {
            assert!(results.iter().zip(groups).all(|(result, group)| &*result.0 == *group));
            results.into_iter().map(|(_, error)| error).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    host.commit(commit("b", "t", &[(0, 1)]));
    host.stable("a", 1);
    host.join(join("c", ""));
    let a = ("a".to_owned(), "consumer".to_owned(), GroupState::Stable);
    let b = ("b".to_owned(), String::new(), GroupState::Empty);
    let c = ("c".to_owned(), String::new(), GroupState::Empty);
    assert_eq!(list(&mut host, &[], &[]), [a.clone(), b.clone(), c.clone()]);
    assert_eq!(list(&mut host, &["stable"], &[]), std::slice::from_ref(&a));
    assert_eq!(list(&mut host, &["Empty", "Dead"], &["CLASSIC"]), [b, c]);
    // As Kafka parses them.
    assert_eq!(list(&mut host, &[" STABLE "], &["consumer", "classic"]), [a]);
    assert_eq!(list(&mut host, &["none such"], &[]), []);
    assert_eq!(list(&mut host, &[], &["share", "consumer"]), []);
}

#[test]
fn a_group_is_described_with_its_members() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let group = describe(&mut host, 6, "g");
    assert_eq!((group.error, group.state), (ErrorCode::None, GroupState::Stable));
    assert_eq!((&*group.protocol_type, &*group.protocol_name), ("consumer", "range"));
    assert_eq!(group.members.len(), 2);
    for member in &group.members {
        assert!(ids.contains(&member.member_id));
        assert_eq!((&*member.client_id, &*member.client_host), ("client", "/127.0.0.1"));
        assert_eq!(member.metadata, subscription(&["t"]));
        assert_eq!(member.assignment, member.member_id.as_bytes());
    }
    // A group that is not stable has no protocol to describe.
    host.leave("g", vec![leaving(&ids[0], None)]);
    let group = describe(&mut host, 6, "g");
    assert_eq!((group.state, &*group.protocol_name), (GroupState::PreparingRebalance, ""));
    assert_eq!((group.members.len(), group.members[0].metadata.len()), (1, 0));
}

#[test]
fn a_group_that_is_not_there_is_dead_or_not_found() {
    let mut host = Host::quick();
    let old = describe(&mut host, 5, "g");
    assert_eq!((old.error, old.state, old.error_message), (ErrorCode::None, GroupState::Dead, None));
    let new = describe(&mut host, 6, "g");
    assert_eq!((new.error, new.state), (ErrorCode::GroupIdNotFound, GroupState::Dead));
    assert_eq!(new.error_message.as_deref(), Some("Group g not found."));
}

#[test]
fn empty_groups_are_deleted_with_their_offsets() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    host.commit(commit("b", "t", &[(0, 1)]));
    host.commit(commit("c", "t", &[(0, 1)]));
    let ids = host.stable("a", 1);
    host.leave("a", vec![leaving(&ids[0], None)]);
    host.stable("busy", 1);
    let pending = host.join(join("p", "")).member_id;
    let codes = delete(&mut host, &["a", "busy", "none", "b", "b", "p"]);
    let expected = [
        ErrorCode::None,
        ErrorCode::NonEmptyGroup,
        ErrorCode::GroupIdNotFound,
        ErrorCode::None,
        ErrorCode::GroupIdNotFound,
        ErrorCode::None,
    ];
    assert_eq!(codes, expected);
    let left: Vec<_> = host.machine.summaries().map(|g| g.group_id.to_string()).collect();
    assert_eq!(left, ["busy", "c"]);
    assert_eq!(host.join(join("p", &pending)).error, ErrorCode::UnknownMemberId);
    assert_eq!(host.fetch_all("b"), []);
    host.crash();
    assert_eq!(host.machine.summaries().count(), 2);
}

#[test]
fn a_group_is_described_in_every_state() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    host.commit(commit("g", "t", &[(0, 1)]));
    assert_eq!(describe(&mut host, 6, "g").state, GroupState::Empty);
    let id = host.join(JoinGroup { version: 3, ..join("g", "") }).member_id;
    let group = describe(&mut host, 6, "g");
    assert_eq!((group.state, group.members.len()), (GroupState::CompletingRebalance, 1));
    assert_eq!((group.members[0].member_id.clone(), group.members[0].assignment.len()), (id.clone(), 0));
    host.leave("g", vec![leaving(&id, None)]);
    let group = describe(&mut host, 6, "g");
    assert_eq!((group.state, &*group.protocol_type, group.members.len()), (GroupState::Empty, "consumer", 0));
    assert_eq!(delete(&mut host, &["g"]), [ErrorCode::None]);
    assert_eq!(describe(&mut host, 6, "g").state, GroupState::Dead);
}

/// A deleted group leaves nothing behind: neither offsets nor a generation.
#[test]
fn a_deleted_group_begins_anew() {
    let mut host = Host::quick();
    host.topics.create("t", 2);
    let ids = host.stable("g", 1);
    host.leave("g", vec![leaving(&ids[0], None)]);
    host.commit(commit("g", "t", &[(0, 5), (1, 6)]));
    assert_eq!(delete(&mut host, &["g"]), [ErrorCode::None]);
    host.commit(commit("g", "t", &[(1, 7)]));
    assert_eq!(host.fetch_all("g"), [("t".into(), 1, 7)]);
    host.crash();
    assert_eq!(host.fetch_all("g"), [("t".into(), 1, 7)]);
    assert_eq!(describe(&mut host, 6, "g").protocol_type.len(), 0);
    let summary = host.machine.summary("g").unwrap();
    assert_eq!((summary.generation, summary.offsets), (0, 1));
}

#[test]
fn people_see_groups_members_and_offsets() {
    let mut host = Host::quick();
    let t = host.topics.create("t", 2);
    host.stable("g", 2);
    let mut request = commit("h", "t", &[(1, 20), (0, 10)]);
    request.topics[0].partitions[0].metadata = Some(text("m"));
    host.commit(request);
    let committed_ms = host.now.wall_ms;
    let summaries: Vec<_> = host.machine.summaries().collect();
    assert_eq!(summaries.len(), 2);
    assert_eq!((summaries[0].members, summaries[0].offsets, summaries[0].generation), (2, 0, 2));
    assert_eq!((summaries[1].members, summaries[1].offsets, summaries[1].state), (0, 2, GroupState::Empty));
    let listing = |partition, offset, metadata| OffsetListing {
        topic: text("t"),
        topic_id: t,
        partition,
        offset,
        leader_epoch: -1,
        metadata: text(metadata),
        committed_ms,
    };
    assert_eq!(host.machine.offsets("h", &host.topics), [listing(0, 10, ""), listing(1, 20, "m")]);
    assert_eq!(host.machine.offsets("none", &host.topics), []);
    assert_eq!(host.machine.described("none"), None);
    assert!(host.machine.described("h").is_some_and(|g| g.members.is_empty()));
}
