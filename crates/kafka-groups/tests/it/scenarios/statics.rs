//! Static members (KIP-345): they keep their membership across restarts.

use crate::host::*;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};

/// A stable group of the static members `a` and `b`, in this order; `a` is the leader.
fn pair(host: &mut Host) -> (StrBytes, StrBytes) {
    let a = host.join(static_join("g", "", "a"));
    assert_eq!((a.error, a.generation), (ErrorCode::None, 1));
    assert!(a.member_id.starts_with("a-"));
    let b = host.send(GroupCommand::Join(static_join("g", "", "b")));
    assert_eq!(host.join(static_join("g", &a.member_id, "a")).generation, 2);
    let b = host.joined(b).member_id;
    let request = sync("g", 2, &a.member_id, &[(&a.member_id, "for a"), (&b, "for b")]);
    host.sync(SyncGroup { instance_id: Some(text("a")), ..request });
    assert_eq!(host.sync(sync("g", 2, &b, &[])).assignment, "for b");
    (a.member_id, b)
}

#[test]
fn a_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance() {
    let mut host = Host::quick();
    let (a, b) = pair(&mut host);
    let records = host.log.len();
    let back = host.join(static_join("g", "", "b"));
    assert_eq!((back.error, back.generation), (ErrorCode::None, 2));
    assert_ne!(back.member_id, b);
    assert_eq!((&back.leader, back.members.len(), back.skip_assignment), (&a, 0, false));
    assert_eq!(host.log.len(), records + 1, "the new id is in the log");
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    assert_eq!(host.sync(sync("g", 2, &back.member_id, &[])).assignment, "for b");
    assert_eq!(host.beat(beat("g", 2, &a)), ErrorCode::None);
}

#[test]
fn a_static_member_is_told_only_when_its_new_id_is_committed() {
    let mut host = Host::quick();
    pair(&mut host);
    host.commit_at_once = false;
    let back = host.send(GroupCommand::Join(static_join("g", "", "b")));
    assert!(host.is_waiting(back));
    host.commit_all();
    assert_eq!(host.joined(back).error, ErrorCode::None);
}

#[test]
fn the_predecessor_is_fenced() {
    let mut host = Host::quick();
    let (_, b) = pair(&mut host);
    host.join(static_join("g", "", "b"));
    let as_b = |request: Heartbeat| Heartbeat { instance_id: Some(text("b")), ..request };
    assert_eq!(host.beat(as_b(beat("g", 2, &b))), ErrorCode::FencedInstanceId);
    assert_eq!(host.beat(beat("g", 2, &b)), ErrorCode::UnknownMemberId);
    let fenced = host.join(static_join("g", &b, "b"));
    assert_eq!((fenced.error, &fenced.member_id), (ErrorCode::FencedInstanceId, &b));
    let request = SyncGroup { instance_id: Some(text("b")), ..sync("g", 2, &b, &[]) };
    assert_eq!(host.sync(request).error, ErrorCode::FencedInstanceId);
    assert_eq!(host.leave("g", vec![leaving(&b, Some("b"))]).members[0].1, ErrorCode::FencedInstanceId);
    host.topics.create("t", 1);
    let request = CommitOffsets {
        generation: 2,
        member_id: b.clone(),
        instance_id: Some(text("b")),
        ..commit("g", "t", &[(0, 1)])
    };
    assert_eq!(host.commit(request), [ErrorCode::FencedInstanceId]);
}

#[test]
fn an_instance_that_nobody_knows_is_an_unknown_member() {
    let mut host = Host::quick();
    let (a, _) = pair(&mut host);
    assert_eq!(host.join(static_join("g", &a, "c")).error, ErrorCode::UnknownMemberId);
    let request = Heartbeat { instance_id: Some(text("c")), ..beat("g", 2, &a) };
    assert_eq!(host.beat(request), ErrorCode::UnknownMemberId);
}

#[test]
fn a_predecessor_that_waits_is_fenced_at_once() {
    let mut host = Host::quick();
    let (a, b) = pair(&mut host);
    // b waits for a in a rebalance.
    let first =
        host.send(GroupCommand::Join(JoinGroup { protocols: protocols(&["range", "x"]), ..static_join("g", &b, "b") }));
    let second = host.send(GroupCommand::Join(static_join("g", "", "b")));
    let fenced = host.joined(first);
    assert_eq!((fenced.error, &fenced.member_id), (ErrorCode::FencedInstanceId, &b));
    assert!(host.is_waiting(second));
    assert_eq!(host.join(static_join("g", &a, "a")).members.len(), 2);
    let b = host.joined(second).member_id;
    // b waits for its assignment.
    let parked = host.send(GroupCommand::Sync(sync("g", 3, &b, &[])));
    let third = host.send(GroupCommand::Join(static_join("g", "", "b")));
    assert_eq!(host.synced(parked).error, ErrorCode::FencedInstanceId);
    // The leader may have the old id already: all members must join again.
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    assert_eq!(host.join(static_join("g", &a, "a")).generation, 4);
    assert_eq!(host.joined(third).generation, 4);
}

#[test]
fn a_leader_that_comes_back_skips_the_assignment() {
    let mut host = Host::quick();
    pair(&mut host);
    let back = host.join(static_join("g", "", "a"));
    assert_eq!((back.generation, back.skip_assignment, back.members.len()), (2, true, 2));
    assert_eq!(back.leader, back.member_id);
    assert_eq!(host.sync(sync("g", 2, &back.member_id, &[])).assignment, "for a");
    assert_eq!(host.state("g"), Some(GroupState::Stable));
}

#[test]
fn before_version_9_a_leader_that_comes_back_takes_itself_for_a_follower() {
    let mut host = Host::quick();
    let (a, _) = pair(&mut host);
    let back = host.join(JoinGroup { version: 8, ..static_join("g", "", "a") });
    assert_eq!((back.generation, back.skip_assignment, back.members.len()), (2, false, 0));
    assert_eq!(back.leader, a);
    assert_eq!(host.sync(sync("g", 2, &back.member_id, &[])).assignment, "for a");
    // It is the leader all the same.
    let again = host.send(GroupCommand::Join(static_join("g", &back.member_id, "a")));
    assert!(host.is_waiting(again));
}

#[test]
fn a_static_member_that_comes_back_with_another_protocol_causes_a_rebalance() {
    let mut host = Host::quick();
    let a = host.join(JoinGroup { protocols: protocols(&["range", "sticky"]), ..static_join("g", "", "a") });
    host.sync(sync("g", 1, &a.member_id, &[(&a.member_id, "all")]));
    let back = host.join(JoinGroup { protocols: protocols(&["sticky", "range"]), ..static_join("g", "", "a") });
    assert_eq!((back.error, back.generation), (ErrorCode::None, 2));
    assert_eq!(back.protocol_name.as_deref(), Some("sticky"));
    assert_eq!(host.state("g"), Some(GroupState::CompletingRebalance));
}

#[test]
fn a_static_member_need_not_join_a_rebalance_to_stay() {
    let mut host = Host::quick();
    let (a, b) = pair(&mut host);
    let leader = host.send(GroupCommand::Join(JoinGroup { session_timeout_ms: 120_000, ..static_join("g", &a, "a") }));
    for _ in 0..12 {
        host.advance(5_000);
        host.beat(beat("g", 2, &b));
    }
    let joined = host.joined(leader);
    assert_eq!((joined.generation, joined.members.len()), (3, 2), "b is assigned to although it has not joined");
    assert_eq!(joined.members.iter().filter(|m| m.instance_id.as_deref() == Some("b")).count(), 1);
}

#[test]
fn a_static_leader_that_does_not_join_a_rebalance_leads_no_longer() {
    let mut host = Host::quick();
    let (a, b) = pair(&mut host);
    let changed =
        JoinGroup { protocols: protocols(&["range", "x"]), session_timeout_ms: 120_000, ..static_join("g", &b, "b") };
    let follower = host.send(GroupCommand::Join(changed));
    for _ in 0..12 {
        host.advance(5_000);
        host.beat(beat("g", 2, &a));
    }
    let joined = host.joined(follower);
    assert_eq!((&joined.leader, joined.members.len()), (&b, 2), "of those that are there, b can assign");
}

#[test]
fn static_members_of_whom_none_joins_are_waited_for_until_their_sessions_end() {
    let mut host = Host::quick();
    let (a, b) = pair(&mut host);
    host.leave("g", vec![leaving(&a, Some("a"))]);
    for _ in 0..30 {
        host.advance(5_000);
        assert_eq!(host.beat(beat("g", 2, &b)), ErrorCode::RebalanceInProgress);
    }
    host.advance(10_000);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
}

#[test]
fn after_a_rebalance_that_no_static_member_joined_the_next_one_to_join_is_not_stuck() {
    let mut host = Host::quick();
    let (a, b) = pair(&mut host);
    let c = host.send(GroupCommand::Join(JoinGroup { version: 3, ..join("g", "") }));
    host.gone(c);
    let beats = |host: &mut Host, ids: &[&StrBytes], times: usize| {
        for _ in 0..times {
            host.advance(5_000);
            for id in ids {
                host.beat(beat("g", 2, id));
            }
        }
    };
    beats(&mut host, &[&a, &b], 14);
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    let joining = host.send(GroupCommand::Join(static_join("g", &a, "a")));
    beats(&mut host, &[&b], 13);
    assert_eq!(host.joined(joining).generation, 3);
}

#[test]
fn a_static_member_that_comes_back_must_ask_for_its_assignment_like_any_other() {
    let mut host = Host::quick();
    let a = host.join(static_join("g", "", "a")).member_id;
    let b = host.send(GroupCommand::Join(static_join("g", "", "b")));
    host.join(static_join("g", &a, "a"));
    host.joined(b);
    host.sync(sync("g", 2, &a, &[(&a, "x")]));
    // b has not synced, nor has its successor.
    let b = host.join(static_join("g", "", "b")).member_id;
    for _ in 0..12 {
        assert_eq!(host.beat(beat("g", 2, &b)), ErrorCode::None);
        host.beat(beat("g", 2, &a));
        host.advance(5_000);
    }
    assert_eq!(host.beat(beat("g", 2, &b)), ErrorCode::UnknownMemberId);
}

#[test]
fn a_static_member_that_falls_silent_is_removed_like_any_other() {
    let mut host = Host::quick();
    let (a, b) = pair(&mut host);
    host.advance(6_000);
    host.beat(beat("g", 2, &a));
    host.advance(4_000);
    assert_eq!(host.beat(beat("g", 2, &a)), ErrorCode::RebalanceInProgress);
    assert_eq!(host.beat(beat("g", 2, &b)), ErrorCode::UnknownMemberId);
}

#[test]
fn an_operator_removes_a_static_member_by_its_name() {
    let mut host = Host::quick();
    let (_, b) = pair(&mut host);
    let reply = host.leave("g", vec![leaving("", Some("b"))]);
    assert_eq!(reply.members, [(leaving("", Some("b")), ErrorCode::None)]);
    assert_eq!(host.beat(beat("g", 2, &b)), ErrorCode::UnknownMemberId);
}

#[test]
fn a_static_member_that_comes_back_twice_is_found_after_a_restart() {
    let mut host = Host::new(GroupSettings { initial_rebalance_delay_ms: 0, ..GroupSettings::default() });
    pair(&mut host);
    host.join(static_join("g", "", "b"));
    let last = host.join(static_join("g", "", "b")).member_id;
    host.crash();
    let request = Heartbeat { instance_id: Some(text("b")), ..beat("g", 2, &last) };
    assert_eq!(host.beat(request), ErrorCode::None);
    assert_eq!(host.sync(sync("g", 2, &last, &[])).assignment, "for b");
}
