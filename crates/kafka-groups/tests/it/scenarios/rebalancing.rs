//! Rebalances.

use crate::host::*;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};

#[test]
fn a_new_member_has_everybody_join_again() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let generation = host.machine.summary("g").unwrap().generation;
    let (third, new) = host.newcomer(join("g", ""));
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    assert_eq!(host.beat(beat("g", generation, &ids[0])), ErrorCode::RebalanceInProgress);
    assert_eq!(host.sync(sync("g", generation, &ids[1], &[])).error, ErrorCode::RebalanceInProgress);
    let second = host.send(GroupCommand::Join(join("g", &ids[1])));
    assert!(host.is_waiting(new) && host.is_waiting(second));
    let leader = host.join(join("g", &ids[0]));
    assert_eq!((leader.generation, leader.members.len()), (generation + 1, 3));
    for caller in [new, second] {
        let reply = host.joined(caller);
        assert_eq!((reply.generation, &reply.leader, reply.members.len()), (generation + 1, &ids[0], 0));
    }
    assert_eq!(host.state("g"), Some(GroupState::CompletingRebalance));
    assert_eq!(host.beat(beat("g", generation + 1, &third)), ErrorCode::None);
    assert_eq!(host.beat(beat("g", generation, &third)), ErrorCode::IllegalGeneration);
}

#[test]
fn members_that_do_not_join_in_time_are_out() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let (third, new) = host.newcomer(JoinGroup { rebalance_timeout_ms: 90_000, ..join("g", "") });
    // Both send heartbeats and neither joins: the longest rebalance timeout applies.
    for _ in 0..18 {
        assert!(host.is_waiting(new));
        host.advance(4_999);
        for id in &ids {
            host.beat(beat("g", 2, id));
        }
    }
    host.advance(90_000 - 18 * 4_999);
    let joined = host.joined(new);
    assert_eq!((joined.error, &joined.leader, joined.members.len()), (ErrorCode::None, &third, 1));
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::UnknownMemberId);
}

#[test]
fn a_leader_that_does_not_join_is_replaced_by_one_that_did() {
    let mut host = Host::quick();
    let ids = host.stable("g", 3);
    let followers: Vec<_> = ids[1..]
        .iter()
        .map(|id| host.send(GroupCommand::Join(JoinGroup { protocols: protocols(&["range", "x"]), ..join("g", id) })))
        .collect();
    host.advance(60_000);
    let replies: Vec<_> = followers.into_iter().map(|caller| host.joined(caller)).collect();
    assert_eq!(replies[0].leader, replies[1].leader);
    assert_ne!(replies[0].leader, ids[0]);
    assert_eq!(replies.iter().filter(|r| r.leader == r.member_id && r.members.len() == 2).count(), 1);
}

#[test]
fn a_leader_that_joins_again_always_causes_a_rebalance() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    assert_eq!(host.join(join("g", &ids[1])).generation, 3);
    assert_eq!(host.joined(leader).members.len(), 2);
}

#[test]
fn a_follower_that_joins_again_unchanged_gets_the_present_generation() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let again = host.join(join("g", &ids[1]));
    assert_eq!((again.error, again.generation, again.members.len()), (ErrorCode::None, 2, 0));
    assert_eq!(again.leader, ids[0]);
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    assert_eq!(host.sync(sync("g", 2, &ids[1], &[])).assignment, ids[1].as_bytes());
}

#[test]
fn a_follower_that_says_something_else_causes_a_rebalance() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let changed = Protocol { name: text("range"), metadata: subscription(&["u"]) };
    let follower = host.send(GroupCommand::Join(JoinGroup { protocols: vec![changed.clone()], ..join("g", &ids[1]) }));
    assert!(host.is_waiting(follower));
    let leader = host.join(join("g", &ids[0]));
    let seen = leader.members.iter().find(|m| m.member_id == ids[1]).unwrap();
    assert_eq!(seen.metadata, changed.metadata);
    assert_eq!(host.joined(follower).generation, 3);
}

#[test]
fn a_member_that_missed_the_answer_gets_it_again_before_the_assignment() {
    let mut host = Host::quick();
    let (first, a) = host.newcomer(join("g", ""));
    let reported = host.joined(a);
    let again = host.join(join("g", &first));
    assert_eq!(again, reported);
    assert_eq!(host.state("g"), Some(GroupState::CompletingRebalance));
}

#[test]
fn a_member_that_changes_before_the_assignment_causes_a_rebalance() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    host.join(join("g", &ids[1]));
    host.joined(leader);
    let follower = host.send(GroupCommand::Sync(sync("g", 3, &ids[1], &[])));
    assert!(host.is_waiting(follower));
    // The leader joins with other metadata; the follower is sent back to join.
    let leader =
        host.send(GroupCommand::Join(JoinGroup { protocols: protocols(&["range", "x"]), ..join("g", &ids[0]) }));
    assert_eq!(host.synced(follower).error, ErrorCode::RebalanceInProgress);
    // The previous assignment is dropped.
    assert!(host.machine.described("g").unwrap().members.iter().all(|m| m.assignment.is_empty()));
    assert_eq!(host.join(join("g", &ids[1])).generation, 4);
    assert_eq!(host.joined(leader).generation, 4);
}

#[test]
fn a_member_that_falls_silent_is_removed_and_the_others_rebalance() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    host.advance(9_000);
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::None);
    host.advance(999);
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    host.advance(1);
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    assert_eq!(host.beat(beat("g", 2, &ids[1])), ErrorCode::UnknownMemberId);
    let joined = host.join(join("g", &ids[0]));
    assert_eq!((joined.generation, joined.members.len()), (3, 1));
}

#[test]
fn a_group_whose_last_member_falls_silent_is_empty() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    host.advance(10_000);
    let summary = host.machine.summary("g").unwrap();
    assert_eq!((summary.state, summary.generation, summary.members), (GroupState::Empty, 2, 0));
    assert_eq!((&*summary.protocol_type, &*summary.protocol_name, &*summary.leader), ("consumer", "", ""));
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::UnknownMemberId);
    // The next generation continues from it.
    let (_, caller) = host.newcomer(join("g", ""));
    assert_eq!(host.joined(caller).generation, 3);
}

#[test]
fn a_member_that_waits_for_the_others_need_not_be_heard_of() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    for _ in 0..5 {
        host.advance(8_000);
        host.beat(beat("g", 2, &ids[1]));
    }
    assert!(host.is_waiting(leader), "40 s, with a session of 10");
    assert_eq!(host.join(join("g", &ids[1])).generation, 3);
    assert_eq!(host.joined(leader).members.len(), 2);
    // Its session starts again with the response.
    host.advance(10_000);
    assert_eq!(host.beat(beat("g", 3, &ids[0])), ErrorCode::UnknownMemberId);
}

#[test]
fn a_second_join_of_one_member_takes_the_place_of_the_first() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let old = host.send(GroupCommand::Join(join("g", &ids[0])));
    let new = host.send(GroupCommand::Join(join("g", &ids[0])));
    let reported = host.joined(old);
    assert_eq!((reported.error, &reported.member_id), (ErrorCode::RebalanceInProgress, &ids[0]));
    assert_eq!(host.join(join("g", &ids[1])).error, ErrorCode::None);
    assert_eq!(host.joined(new).members.len(), 2);
}

#[test]
fn ids_that_were_handed_out_are_waited_for_too() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    let pending = host.join(join("g", "")).member_id;
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    assert!(host.is_waiting(leader), "the member with the new id has not joined yet");
    assert_eq!(host.join(join("g", &pending)).generation, 2);
    assert_eq!(host.joined(leader).members.len(), 2);
}

#[test]
fn heartbeats_tell_the_state_of_the_group() {
    let mut host = Host::quick();
    assert_eq!(host.beat(beat("", 1, "m")), ErrorCode::InvalidGroupId);
    assert_eq!(host.beat(beat("g", 1, "m")), ErrorCode::UnknownMemberId);
    let ids = host.stable("g", 1);
    assert_eq!(host.beat(beat("g", 1, "m")), ErrorCode::UnknownMemberId);
    assert_eq!(host.beat(beat("g", 0, &ids[0])), ErrorCode::IllegalGeneration);
    assert_eq!(host.beat(beat("g", 1, &ids[0])), ErrorCode::None);
    let fenced = Heartbeat { instance_id: Some(text("i")), ..beat("g", 1, &ids[0]) };
    assert_eq!(host.beat(fenced), ErrorCode::UnknownMemberId);
}

#[test]
fn settings_change_while_running() {
    let mut host = Host::quick();
    host.configure(GroupSettings { initial_rebalance_delay_ms: 500, ..GroupSettings::default() });
    let (_, caller) = host.newcomer(join("g", ""));
    host.advance(499);
    assert!(host.is_waiting(caller));
    host.advance(1);
    assert_eq!(host.joined(caller).generation, 1);
}
