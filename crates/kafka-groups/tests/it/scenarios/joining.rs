//! JoinGroup: admission of members, and the errors of refused ones.

use crate::host::*;
use bytes::Bytes;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};

#[test]
fn a_group_needs_a_name() {
    let mut host = Host::quick();
    let reply = host.join(join("", "member"));
    assert_eq!((reply.error, &*reply.member_id, reply.generation), (ErrorCode::InvalidGroupId, "member", -1));
    assert_eq!(host.machine.summaries().count(), 0);
}

#[test]
fn the_session_timeout_has_bounds() {
    let mut host = Host::quick();
    for (session_timeout_ms, fits) in
        [(5_999, false), (6_000, true), (1_800_000, true), (1_800_001, false), (-1, false)]
    {
        let error = host.join(JoinGroup { session_timeout_ms, ..join("g", "") }).error;
        let expected = if fits { ErrorCode::MemberIdRequired } else { ErrorCode::InvalidSessionTimeout };
        assert_eq!(error, expected, "{session_timeout_ms}");
    }
    host.configure(GroupSettings { session_timeout_ms_min: 100, ..GroupSettings::default() });
    assert_eq!(host.join(JoinGroup { session_timeout_ms: 100, ..join("g", "") }).error, ErrorCode::MemberIdRequired);
}

#[test]
fn a_new_member_comes_back_with_the_id_it_is_given() {
    let mut host = Host::quick();
    let first = host.join(join("g", ""));
    assert_eq!((first.error, first.generation), (ErrorCode::MemberIdRequired, -1));
    assert!(first.member_id.starts_with("client-") && first.member_id.len() == 7 + 36, "{}", first.member_id);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    let joined = host.join(join("g", &first.member_id));
    assert_eq!((joined.error, joined.generation), (ErrorCode::None, 1));
    assert_eq!((&joined.leader, &joined.member_id), (&first.member_id, &first.member_id));
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(joined.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.members[0].metadata, subscription(&["t"]));
    assert!(!joined.skip_assignment);
}

#[test]
fn before_version_4_a_new_member_is_in_at_once() {
    let mut host = Host::quick();
    let joined = host.join(JoinGroup { version: 3, ..join("g", "") });
    assert_eq!((joined.error, joined.generation), (ErrorCode::None, 1));
    assert!(!joined.member_id.is_empty());
    assert_eq!(host.join(JoinGroup { version: 4, ..join("h", "") }).error, ErrorCode::MemberIdRequired);
}

#[test]
fn version_0_waits_for_others_as_long_as_its_session_timeout() {
    let mut host = Host::quick();
    let first = host.join(JoinGroup { version: 0, rebalance_timeout_ms: -1, ..join("g", "") });
    // The second waits for the first, which does not join again.
    let second = host.send(GroupCommand::Join(JoinGroup { version: 0, rebalance_timeout_ms: -1, ..join("g", "") }));
    host.beat(beat("g", 1, &first.member_id));
    host.advance(9_999);
    assert!(host.is_waiting(second));
    host.beat(beat("g", 1, &first.member_id));
    host.advance(1);
    assert_eq!(host.joined(second).generation, 2);
}

#[test]
fn an_id_that_was_handed_out_expires_with_its_session() {
    let mut host = Host::quick();
    let id = host.join(join("g", "")).member_id;
    host.advance(9_999);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    host.advance(1);
    assert_eq!(host.state("g"), None, "a group without members is dropped");
    assert_eq!(host.join(join("g", &id)).error, ErrorCode::UnknownMemberId);
    assert_eq!(host.machine.memory(), 0);
    assert_eq!(host.next_deadline(), None);
}

#[test]
fn a_member_that_nobody_knows_is_told_so() {
    let mut host = Host::quick();
    assert_eq!(host.join(join("g", "stranger")).error, ErrorCode::UnknownMemberId);
    assert_eq!(host.state("g"), None);
    host.stable("g", 1);
    let reply = host.join(join("g", "stranger"));
    assert_eq!((reply.error, &*reply.member_id), (ErrorCode::UnknownMemberId, "stranger"));
}

#[test]
fn a_group_has_one_protocol_type_and_a_protocol_that_all_know() {
    let mut host = Host::quick();
    assert_eq!(host.join(JoinGroup { protocols: vec![], ..join("g", "") }).error, ErrorCode::InconsistentGroupProtocol);
    let reply = host.join(JoinGroup { protocol_type: text(""), ..join("g", "") });
    assert_eq!(reply.error, ErrorCode::InconsistentGroupProtocol);
    host.stable("g", 1);
    let reply = host.join(JoinGroup { protocol_type: text("connect"), ..join("g", "") });
    assert_eq!((reply.error, &*reply.member_id), (ErrorCode::InconsistentGroupProtocol, ""));
    let reply = host.join(JoinGroup { protocols: protocols(&["sticky"]), ..join("g", "") });
    assert_eq!(reply.error, ErrorCode::InconsistentGroupProtocol);
    let reply = host.join(JoinGroup { protocols: protocols(&["sticky", "range"]), ..join("g", "") });
    assert_eq!(reply.error, ErrorCode::MemberIdRequired);
}

#[test]
fn an_existing_member_cannot_turn_to_a_protocol_that_others_lack() {
    let mut host = Host::quick();
    let ids = host.stable("g", 2);
    let reply = host.join(JoinGroup { protocols: protocols(&["sticky"]), ..join("g", &ids[1]) });
    assert_eq!((reply.error, &reply.member_id), (ErrorCode::InconsistentGroupProtocol, &ids[1]));
    assert_eq!(host.state("g"), Some(GroupState::Stable));
}

#[test]
fn the_protocol_with_most_votes_among_the_common_ones_is_chosen() {
    let mut host = Host::new(GroupSettings::default());
    let with = |names: &[&str]| JoinGroup { protocols: protocols(names), ..join("g", "") };
    let (_, a) = host.newcomer(with(&["x", "sticky", "range"]));
    let (_, b) = host.newcomer(with(&["range", "sticky"]));
    let (_, c) = host.newcomer(with(&["sticky", "range"]));
    let (_, d) = host.newcomer(with(&["sticky", "range"]));
    host.advance(60_000);
    for caller in [a, b, c, d] {
        assert_eq!(host.joined(caller).protocol_name.as_deref(), Some("sticky"));
    }
}

#[test]
fn a_protocol_named_twice_counts_once() {
    let mut host = Host::quick();
    let (_, caller) = host.newcomer(JoinGroup { protocols: protocols(&["range", "range"]), ..join("g", "") });
    let joined = host.joined(caller);
    assert_eq!((joined.error, joined.protocol_name.as_deref()), (ErrorCode::None, Some("range")));
}

#[test]
fn the_first_rebalance_of_a_group_waits_for_more_members() {
    let mut host = Host::new(GroupSettings::default());
    let (first, a) = host.newcomer(join("g", ""));
    host.advance(2_999);
    assert!(host.is_waiting(a));
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    // A member that joins meanwhile extends the wait.
    let (_, b) = host.newcomer(join("g", ""));
    host.advance(1);
    assert!(host.is_waiting(a) && host.is_waiting(b));
    host.advance(2_999);
    assert!(host.is_waiting(a));
    host.advance(1);
    let leader = host.joined(a);
    assert_eq!((leader.generation, leader.leader, leader.members.len()), (1, first.clone(), 2));
    let follower = host.joined(b);
    assert_eq!((follower.generation, follower.leader, follower.members.len()), (1, first, 0));
}

#[test]
fn the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() {
    let mut host = Host::new(GroupSettings::default());
    let request = || JoinGroup { rebalance_timeout_ms: 8_000, ..join("g", "") };
    let mut callers = vec![host.newcomer(request()).1];
    for _ in 0..7 {
        host.advance(1_000);
        callers.push(host.newcomer(request()).1);
    }
    host.advance(999);
    assert!(callers.iter().all(|caller| host.is_waiting(*caller)), "3 s, 3 s and the 2 s that are left");
    host.advance(1);
    assert!(callers.into_iter().all(|caller| host.joined(caller).generation == 1));
}

#[test]
fn without_an_initial_delay_the_first_member_has_its_group_at_once() {
    let mut host = Host::quick();
    let (_, caller) = host.newcomer(join("g", ""));
    assert_eq!(host.joined(caller).generation, 1);
}

#[test]
fn a_full_group_takes_nobody() {
    let settings = GroupSettings { group_size_max: 2, initial_rebalance_delay_ms: 0, ..GroupSettings::default() };
    let mut host = Host::new(settings);
    let ids = host.stable("g", 2);
    let reply = host.join(join("g", ""));
    assert_eq!((reply.error, &*reply.member_id), (ErrorCode::GroupMaxSizeReached, ""));
    // Members may join again.
    assert_eq!(host.join(join("g", &ids[1])).error, ErrorCode::None);
    // While a rebalance is prepared, only members that have joined count.
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    assert!(host.is_waiting(leader));
    let third = host.join(JoinGroup { version: 3, ..join("other", "") });
    assert_eq!(third.error, ErrorCode::None);
    assert_eq!(host.join(join("g", "")).error, ErrorCode::MemberIdRequired);
}

#[test]
fn ids_that_were_handed_out_count_against_the_size_of_a_group() {
    let settings = GroupSettings { group_size_max: 3, ..GroupSettings::default() };
    let mut host = Host::new(settings);
    for _ in 0..3 {
        assert_eq!(host.join(join("g", "")).error, ErrorCode::MemberIdRequired);
    }
    assert_eq!(host.join(join("g", "")).error, ErrorCode::GroupMaxSizeReached);
    host.advance(10_000);
    assert_eq!(host.join(join("g", "")).error, ErrorCode::MemberIdRequired);
}

#[test]
fn a_group_over_a_lowered_bound_sheds_the_members_that_come_last() {
    let mut host = Host::quick();
    let ids = host.stable("g", 3);
    host.configure(GroupSettings { group_size_max: 2, initial_rebalance_delay_ms: 0, ..GroupSettings::default() });
    let callers: Vec<_> = ids.iter().map(|id| host.send(GroupCommand::Join(join("g", id)))).collect();
    // The third is removed, and no further member is waited for.
    let last = host.joined(callers[2]);
    assert_eq!((last.error, &*last.member_id), (ErrorCode::GroupMaxSizeReached, ""));
    assert_eq!(host.joined(callers[0]).members.len(), 2);
    assert_eq!(host.joined(callers[1]).error, ErrorCode::None);
}

#[test]
fn a_member_may_only_say_so_much() {
    let mut host = Host::quick();
    let huge = Protocol { name: text("range"), metadata: Bytes::from(vec![0; 2 << 20]) };
    assert_eq!(host.join(JoinGroup { protocols: vec![huge], ..join("g", "") }).error, ErrorCode::InvalidRequest);
    let names: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(host.join(JoinGroup { protocols: protocols(&names), ..join("g", "") }).error, ErrorCode::InvalidRequest);
}

#[test]
fn groups_and_memory_are_bounded() {
    let quick = GroupSettings { initial_rebalance_delay_ms: 0, ..GroupSettings::default() };
    let mut host = Host::new(GroupSettings { groups_max: 2, ..quick.clone() });
    host.stable("a", 1);
    host.stable("b", 1);
    assert_eq!(host.join(join("c", "")).error, ErrorCode::CoordinatorNotAvailable);
    assert_eq!(host.join(join("a", "")).error, ErrorCode::MemberIdRequired);

    let mut host = Host::new(GroupSettings { memory_bytes_max: 64 << 10, ..quick });
    let said = || vec![Protocol { name: text("range"), metadata: Bytes::from(vec![0; 10 << 10]) }];
    let mut taken = 0;
    for n in 0..20 {
        let joined = host.join(JoinGroup { version: 3, protocols: said(), ..join(&format!("g{n}"), "") });
        taken += usize::from(joined.error == ErrorCode::None);
        assert!(matches!(joined.error, ErrorCode::None | ErrorCode::CoordinatorNotAvailable));
    }
    assert!((3..7).contains(&taken), "{taken}");
    assert!(host.machine.memory() <= 64 << 10);
    // Nor may a leader exceed the limit.
    let leader = host.machine.summary("g0").unwrap().leader;
    let huge = Assignment { member_id: leader.clone(), assignment: Bytes::from(vec![0; 64 << 10]) };
    let request = SyncGroup { assignments: vec![huge], ..sync("g0", 1, &leader, &[]) };
    assert_eq!(host.sync(request).error, ErrorCode::CoordinatorNotAvailable);
    assert_eq!(host.sync(sync("g0", 1, &leader, &[(&leader, "little")])).error, ErrorCode::None);
}

#[test]
fn before_version_7_the_protocol_name_is_never_null() {
    let mut host = Host::quick();
    let old = host.join(JoinGroup { version: 6, ..join("", "") });
    assert_eq!(old.protocol_name.as_deref(), Some(""));
    assert_eq!(host.join(JoinGroup { version: 7, ..join("", "") }).protocol_name, None);
}

#[test]
fn a_new_member_whose_join_is_never_answered_is_given_up() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    let (second, caller) = host.newcomer(JoinGroup { rebalance_timeout_ms: 3_600_000, ..join("g", "") });
    // The first neither joins again nor expires, so that the join phase would take an hour.
    for _ in 0..59 {
        host.advance(5_000);
        assert_eq!(host.beat(beat("g", 1, &ids[0])), ErrorCode::RebalanceInProgress);
    }
    assert!(host.is_waiting(caller));
    host.advance(5_000);
    let reply = host.joined(caller);
    assert_eq!((reply.error, &*reply.member_id), (ErrorCode::UnknownMemberId, ""));
    assert_eq!(host.join(join("g", &second)).error, ErrorCode::UnknownMemberId);
}

#[test]
fn a_connection_that_is_lost_before_its_member_has_an_id_takes_the_member_along() {
    let mut host = Host::new(GroupSettings::default());
    let (known, a) = host.newcomer(join("g", ""));
    let unborn = host.send(GroupCommand::Join(JoinGroup { version: 3, ..join("g", "") }));
    assert_eq!(host.machine.summary("g").unwrap().members, 2);
    host.gone(unborn);
    assert_eq!(host.machine.summary("g").unwrap().members, 1);
    // A member that knows its id may return.
    host.gone(a);
    let again = host.send(GroupCommand::Join(join("g", &known)));
    host.advance(6_000);
    assert_eq!(host.joined(again).members.len(), 1);
}

/// Regression test: the total metadata of members was not bounded, and the leader receives all of it: 10,000 members of 1 MiB each.
#[test]
fn all_members_together_may_only_say_so_much() {
    let mut host = Host::new(GroupSettings::default());
    let said = |len: usize| vec![Protocol { name: text("range"), metadata: Bytes::from(vec![0; len]) }];
    let large = |member: &str| JoinGroup { protocols: said(1_000_000), ..join("g", member) };
    let mut parked = Vec::new();
    for _ in 0..16 {
        parked.push(host.newcomer(large("")));
    }
    let refused = host.join(large(""));
    assert_eq!((refused.error, &*refused.member_id), (ErrorCode::GroupMaxSizeReached, ""));
    // So is a member that has its id and is no longer waited for.
    let small = JoinGroup { protocols: said(100), ..join("g", "") };
    let id = host.join(small.clone()).member_id;
    let refused = host.join(large(&id));
    assert_eq!((refused.error, &refused.member_id), (ErrorCode::GroupMaxSizeReached, &id));
    assert_eq!(host.join(JoinGroup { member_id: id, ..small.clone() }).error, ErrorCode::UnknownMemberId);
    // A member with less metadata is admitted.
    parked.push(host.newcomer(small));
    host.advance(6_000);
    let leader = host.joined(parked[0].1);
    assert_eq!((leader.error, leader.members.len()), (ErrorCode::None, 17));
    // A member whose metadata grows beyond the limit keeps its old metadata.
    let refused = host.join(large(&parked[16].0));
    assert_eq!(refused.error, ErrorCode::GroupMaxSizeReached);
    assert_eq!(host.machine.summary("g").unwrap().members, 17);
    // A member may send as much as before.
    assert_eq!(host.join(large(&parked[1].0)).error, ErrorCode::None);
}

/// Regression test: the first rebalance ended with a lost member, or with an expired id: the others got their generation before
/// the initial delay.
#[test]
fn the_first_rebalance_waits_on_when_somebody_is_lost() {
    let mut host = Host::new(GroupSettings::default());
    let (_, first) = host.newcomer(join("g", ""));
    let unborn = host.send(GroupCommand::Join(JoinGroup { version: 3, ..join("g", "") }));
    host.gone(unborn);
    assert!(host.is_waiting(first), "a connection was lost");
    host.advance(5_999);
    assert!(host.is_waiting(first));
    host.advance(1);
    assert_eq!(host.joined(first).generation, 1);

    let mut host = Host::new(GroupSettings { initial_rebalance_delay_ms: 20_000, ..GroupSettings::default() });
    let pending = host.join(join("g", "")).member_id;
    let (_, first) = host.newcomer(join("g", ""));
    host.advance(10_000);
    assert_eq!(host.join(join("g", &pending)).error, ErrorCode::UnknownMemberId);
    assert!(host.is_waiting(first), "an id has expired");
    host.advance(9_999);
    assert!(host.is_waiting(first));
    host.advance(1);
    assert_eq!(host.joined(first).generation, 1);
}
