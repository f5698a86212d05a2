//! LeaveGroup.

use crate::host::*;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};

#[test]
fn the_last_member_leaves_an_empty_group() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    host.commit_at_once = false;
    let request = LeaveGroup { version: 3, group_id: text("g"), members: vec![leaving(&ids[0], None)] };
    let caller = host.send(GroupCommand::Leave(request));
    assert!(host.is_waiting(caller), "until it is committed that the group is empty");
    host.commit_all();
    let GroupReply::Leave(reply) = host.reply(caller) else { panic!() };
    assert_eq!((reply.error, reply.members), (ErrorCode::None, vec![(leaving(&ids[0], None), ErrorCode::None)]));
    assert_eq!(host.state("g"), Some(GroupState::Empty));
}

#[test]
fn when_one_leaves_the_others_rebalance() {
    let mut host = Host::quick();
    let ids = host.stable("g", 3);
    let reply = host.leave("g", vec![leaving(&ids[0], None)]);
    assert_eq!(reply.members[0].1, ErrorCode::None);
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::UnknownMemberId);
    assert_eq!(host.beat(beat("g", 2, &ids[1])), ErrorCode::RebalanceInProgress);
    let second = host.send(GroupCommand::Join(join("g", &ids[1])));
    let third = host.join(join("g", &ids[2]));
    let second = host.joined(second);
    assert_eq!(second.leader, third.leader);
    assert_ne!(second.leader, ids[0]);
    assert_eq!(second.members.len() + third.members.len(), 2);
}

#[test]
fn each_of_a_batch_has_a_result() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let (fixed, caller) = static_member(&mut host, "i");
    assert!(host.is_waiting(caller));
    let pending = host.join(join("g", "")).member_id;
    let batch = vec![
        leaving(&ids[0], None),
        leaving("stranger", None),
        leaving("", None),
        leaving("", Some("absent")),
        leaving(&ids[1], Some("i")),
        leaving("", Some("i")),
        leaving(&pending, None),
    ];
    let reply = host.leave("g", batch.clone());
    let expected = [
        ErrorCode::None,
        ErrorCode::UnknownMemberId,
        ErrorCode::UnknownMemberId,
        ErrorCode::UnknownMemberId,
        ErrorCode::FencedInstanceId,
        ErrorCode::None,
        ErrorCode::None,
    ];
    assert_eq!(reply.error, ErrorCode::None);
    assert_eq!(reply.members, batch.into_iter().zip(expected).collect::<Vec<_>>());
    // The one that waited for the rebalance was removed by its instance id.
    assert_eq!(host.joined(caller).error, ErrorCode::UnknownMemberId);
    assert_eq!(host.beat(beat("g", 2, &fixed)), ErrorCode::UnknownMemberId);
    // Now only the other must join.
    assert_eq!(host.join(join("g", &ids[1])).members.len(), 1);
}

/// A static member of `g`, whose join waits for the others.
fn static_member(host: &mut Host, instance: &str) -> (polylogue_kafka_codec::StrBytes, polylogue_api::Caller) {
    let caller = host.send(GroupCommand::Join(static_join("g", "", instance)));
    let group = host.machine.described("g").unwrap();
    let member = group.members.iter().find(|m| m.instance_id.as_deref() == Some(instance)).unwrap();
    (member.member_id.clone(), caller)
}

#[test]
fn before_version_3_the_result_is_that_of_the_one_that_leaves() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    let reply = host.leave_at(2, "g", vec![leaving("stranger", None)]);
    assert_eq!((reply.error, reply.members.len()), (ErrorCode::UnknownMemberId, 0));
    let reply = host.leave_at(0, "g", vec![leaving(&ids[0], None)]);
    assert_eq!((reply.error, reply.members.len()), (ErrorCode::None, 0));
}

#[test]
fn nobody_leaves_a_group_that_is_not_there() {
    let mut host = Host::quick();
    let reply = host.leave("", vec![leaving("m", None)]);
    assert_eq!((reply.error, reply.members.len()), (ErrorCode::InvalidGroupId, 0));
    let reply = host.leave("g", vec![leaving("m", None)]);
    assert_eq!(reply.error, ErrorCode::None);
    assert_eq!(reply.members, [(leaving("m", None), ErrorCode::UnknownMemberId)]);
    assert_eq!(host.leave_at(1, "g", vec![leaving("m", None)]).error, ErrorCode::UnknownMemberId);
}

#[test]
fn an_id_that_was_only_handed_out_leaves_without_a_rebalance() {
    let mut host = Host::quick();
    host.stable("g", 1);
    let pending = host.join(join("g", "")).member_id;
    assert_eq!(host.leave("g", vec![leaving(&pending, None)]).members[0].1, ErrorCode::None);
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    assert_eq!(host.join(join("g", &pending)).error, ErrorCode::UnknownMemberId);
    // A group without other members is dropped.
    let mut host = Host::quick();
    let pending = host.join(join("g", "")).member_id;
    host.leave("g", vec![leaving(&pending, None)]);
    assert_eq!((host.state("g"), host.next_deadline(), host.machine.memory()), (None, None, 0));
}

#[test]
fn one_that_waits_for_its_assignment_and_leaves_is_answered() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    host.join(join("g", &ids[1]));
    host.joined(leader);
    let parked = host.send(GroupCommand::Sync(sync("g", 3, &ids[1], &[])));
    host.leave("g", vec![leaving(&ids[1], None)]);
    assert_eq!(host.synced(parked).error, ErrorCode::UnknownMemberId);
    assert_eq!(host.waiting(), 0);
}

#[test]
fn a_group_that_all_left_before_its_first_generation_is_empty() {
    let mut host = Host::new(GroupSettings::default());
    let (id, caller) = host.newcomer(join("g", ""));
    host.leave("g", vec![leaving(&id, None)]);
    assert_eq!(host.joined(caller).error, ErrorCode::UnknownMemberId);
    host.advance(3_000);
    let summary = host.machine.summary("g").unwrap();
    assert_eq!((summary.state, summary.generation), (GroupState::Empty, 1));
}
