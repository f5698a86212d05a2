//! SyncGroup: assignments from the leader to all members, once they are committed.

use crate::host::*;
use bytes::Bytes;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_kafka_groups::GroupState;
use polylogue_kafka_groups::command::*;

/// Two members in generation 2 without an assignment; the first is the leader.
fn completing(host: &mut Host) -> Vec<StrBytes> {
    let (first, a) = host.newcomer(join("g", ""));
    host.joined(a);
    let (second, b) = host.newcomer(join("g", ""));
    assert_eq!(host.join(join("g", &first)).generation, 2);
    host.joined(b);
    assert_eq!(host.state("g"), Some(GroupState::CompletingRebalance));
    vec![first, second]
}

#[test]
fn followers_wait_for_the_leader() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    let follower = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    assert!(host.is_waiting(follower));
    let leader = host.sync(sync("g", 2, &ids[0], &[(&ids[0], "mine"), (&ids[1], "yours")]));
    assert_eq!((leader.error, leader.assignment), (ErrorCode::None, Bytes::from_static(b"mine")));
    assert_eq!(leader.protocol_name.as_deref(), Some("range"));
    assert_eq!(leader.protocol_type.as_deref(), Some("consumer"));
    let follower = host.synced(follower);
    assert_eq!((follower.error, follower.assignment), (ErrorCode::None, Bytes::from_static(b"yours")));
    assert_eq!(host.state("g"), Some(GroupState::Stable));
}

#[test]
fn nobody_is_told_before_the_assignment_is_committed() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    host.commit_at_once = false;
    let early = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    let leader = host.send(GroupCommand::Sync(sync("g", 2, &ids[0], &[(&ids[1], "x")])));
    assert!(host.is_waiting(leader) && host.is_waiting(early));
    // A member that syncs meanwhile waits for the same commit.
    let late = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    assert!(host.is_waiting(late));
    assert!(host.commit_one());
    assert!(!host.is_waiting(leader) && !host.is_waiting(early) && host.is_waiting(late));
    assert!(host.commit_one());
    assert_eq!(host.synced(late).assignment, Bytes::from_static(b"x"));
    // After the commit the response comes at once.
    assert_eq!(host.sync(sync("g", 2, &ids[1], &[])).assignment, Bytes::from_static(b"x"));
    assert!(host.in_flight.is_empty());
}

#[test]
fn members_that_the_leader_left_out_have_an_empty_assignment() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    let follower = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    host.sync(sync("g", 2, &ids[0], &[(&ids[0], "all"), ("absent", "x")]));
    let follower = host.synced(follower);
    assert_eq!((follower.error, follower.assignment.len()), (ErrorCode::None, 0));
    assert_eq!(follower.protocol_name.as_deref(), Some("range"));
}

#[test]
fn what_a_follower_assigns_is_not_heard() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    let follower = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[(&ids[1], "loot")])));
    assert!(host.is_waiting(follower));
    host.sync(sync("g", 2, &ids[0], &[(&ids[1], "share")]));
    assert_eq!(host.synced(follower).assignment, Bytes::from_static(b"share"));
}

#[test]
fn a_wrong_sync_is_told_what_is_wrong() {
    let mut host = Host::quick();
    let code = |host: &mut Host, request| {
        let reply = host.sync(request);
        assert_eq!((reply.protocol_name, reply.protocol_type, reply.assignment.len()), (None, None, 0));
        reply.error
    };
    assert_eq!(code(&mut host, sync("", 1, "m", &[])), ErrorCode::InvalidGroupId);
    assert_eq!(code(&mut host, sync("g", 1, "m", &[])), ErrorCode::UnknownMemberId);
    let ids = completing(&mut host);
    assert_eq!(code(&mut host, sync("g", 2, "m", &[])), ErrorCode::UnknownMemberId);
    assert_eq!(code(&mut host, sync("g", 1, &ids[0], &[])), ErrorCode::IllegalGeneration);
    let other = SyncGroup { protocol_name: Some(text("sticky")), ..sync("g", 2, &ids[0], &[]) };
    assert_eq!(code(&mut host, other), ErrorCode::InconsistentGroupProtocol);
    let other = SyncGroup { protocol_type: Some(text("connect")), ..sync("g", 2, &ids[0], &[]) };
    assert_eq!(code(&mut host, other), ErrorCode::InconsistentGroupProtocol);
    // Required from version 5 on; earlier versions do not have them.
    let without = |version| SyncGroup {
        version,
        protocol_name: None,
        protocol_type: None,
        ..sync("g", 2, &ids[0], &[(&ids[0], "a")])
    };
    assert_eq!(code(&mut host, without(5)), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(host.sync(without(4)).error, ErrorCode::None);
}

#[test]
fn members_that_do_not_ask_for_their_assignment_are_removed() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    let follower = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    // The leader sends heartbeats but never assigns.
    for _ in 0..12 {
        assert!(host.is_waiting(follower));
        host.advance(5_000);
        host.beat(beat("g", 2, &ids[0]));
    }
    assert_eq!(host.synced(follower).error, ErrorCode::RebalanceInProgress);
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::UnknownMemberId);
    let joined = host.join(join("g", &ids[1]));
    assert_eq!((&joined.leader, joined.members.len()), (&ids[1], 1));
}

#[test]
fn a_follower_that_does_not_ask_is_removed_from_a_stable_group_too() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    host.sync(sync("g", 2, &ids[0], &[(&ids[0], "a"), (&ids[1], "b")]));
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    for _ in 0..12 {
        host.advance(4_999);
        host.beat(beat("g", 2, &ids[0]));
        assert_eq!(host.beat(beat("g", 2, &ids[1])), ErrorCode::None);
    }
    host.advance(60_000 - 12 * 4_999);
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    assert_eq!(host.beat(beat("g", 2, &ids[1])), ErrorCode::UnknownMemberId);
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::RebalanceInProgress);
}

#[test]
fn when_all_have_asked_nobody_is_removed() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    for _ in 0..30 {
        host.advance(5_000);
        ids.iter().for_each(|id| assert_eq!(host.beat(beat("g", 2, id)), ErrorCode::None));
    }
    assert_eq!(host.state("g"), Some(GroupState::Stable));
}

#[test]
fn a_second_sync_of_one_member_takes_the_place_of_the_first() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    let old = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    let new = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    assert_eq!(host.synced(old).error, ErrorCode::RebalanceInProgress);
    host.sync(sync("g", 2, &ids[0], &[(&ids[1], "b")]));
    assert_eq!(host.synced(new).assignment, Bytes::from_static(b"b"));
}

#[test]
fn a_member_that_joins_while_the_assignment_is_on_its_way_does_not_spoil_it() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    let new = host.join(join("g", "")).member_id;
    host.commit_at_once = false;
    let follower = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    let leader = host.send(GroupCommand::Sync(sync("g", 2, &ids[0], &[(&ids[0], "a"), (&ids[1], "b")])));
    let third = host.send(GroupCommand::Join(join("g", &new)));
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    host.commit_all();
    assert_eq!(host.synced(leader).assignment, Bytes::from_static(b"a"));
    assert_eq!(host.synced(follower).assignment, Bytes::from_static(b"b"));
    // Then both must join again.
    assert_eq!(host.beat(beat("g", 2, &ids[0])), ErrorCode::RebalanceInProgress);
    assert!(host.is_waiting(third));
}

#[test]
fn an_assignment_that_no_record_can_hold_is_refused() {
    let mut host = Host::quick();
    let ids = completing(&mut host);
    let follower = host.send(GroupCommand::Sync(sync("g", 2, &ids[1], &[])));
    let huge = Assignment { member_id: ids[1].clone(), assignment: Bytes::from(vec![0; 17 << 20]) };
    let leader = host.sync(SyncGroup { assignments: vec![huge], ..sync("g", 2, &ids[0], &[]) });
    assert_eq!(leader.error, ErrorCode::UnknownServerError);
    assert_eq!(host.synced(follower).error, ErrorCode::UnknownServerError);
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
}

#[test]
fn opaque_bytes_come_back_as_they_were() {
    let mut host = Host::quick();
    let odd = Bytes::from_static(b"\0\xff not a subscription");
    let said = vec![Protocol { name: text("range"), metadata: odd.clone() }];
    let (id, caller) = host.newcomer(JoinGroup { protocols: said, ..join("g", "") });
    assert_eq!(host.joined(caller).members[0].metadata, odd);
    let given = Assignment { member_id: id.clone(), assignment: odd.clone() };
    let reply = host.sync(SyncGroup { assignments: vec![given], ..sync("g", 1, &id, &[]) });
    assert_eq!(reply.assignment, odd);
}
