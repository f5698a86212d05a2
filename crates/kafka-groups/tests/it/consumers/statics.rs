//! Static members: a restart under another member id keeps the assignment.

use super::*;

fn static_joins(member: &str, instance: &str) -> ConsumerHeartbeat {
    ConsumerHeartbeat { instance_id: Some(text(instance)), ..joins("g", member) }
}

fn static_beats(member: &str, instance: &str, epoch: i32) -> ConsumerHeartbeat {
    ConsumerHeartbeat { instance_id: Some(text(instance)), ..beats("g", member, epoch) }
}

#[test]
fn a_static_member_that_comes_back_reads_what_it_read() {
    let (mut host, id) = host(2);
    host.taken(static_joins("a", "i"));
    host.taken(static_joins("b", "k"));
    host.taken(ConsumerHeartbeat { owned: Some(vec![(id, vec![0, 1])]), ..static_beats("a", "i", 1) });
    host.taken(ConsumerHeartbeat { owned: Some(vec![(id, vec![0])]), ..static_beats("a", "i", 1) });
    assert_eq!(host.taken(static_beats("b", "k", 2)), (2, Some(vec![1])));
    let reply = host.consumer(static_beats("a", "i", -2));
    assert_eq!((reply.error, reply.member_epoch, reply.assignment), (ErrorCode::None, -2, None));
    // the other one keeps what it has, and no epoch is raised
    assert_eq!(host.taken(static_beats("b", "k", 2)), (2, None));
    assert_eq!(host.taken(static_joins("c", "i")), (2, Some(vec![0])));
    let described = host.describe_consumer("g");
    assert_eq!(described.epoch, 2);
    assert_eq!(described.members.iter().map(|m| &*m.member_id).collect::<Vec<_>>(), ["b", "c"]);
    // the one before is fenced
    let reply = host.consumer(static_beats("a", "i", 2));
    let text = "Static member a with instance id i was fenced by member c.";
    assert_eq!(refused(&reply), (ErrorCode::FencedInstanceId, text));
    assert_eq!(host.consumer(static_beats("a", "i", -2)).error, ErrorCode::FencedInstanceId);
}

#[test]
fn an_instance_id_that_is_in_use_is_not_released() {
    let (mut host, _) = host(1);
    host.taken(static_joins("a", "i"));
    let reply = host.consumer(static_joins("b", "i"));
    let text = "Static member b with instance id i cannot join the group because the instance id is owned by a member.";
    assert_eq!(refused(&reply), (ErrorCode::UnreleasedInstanceId, text));
    let reply = host.consumer(static_beats("b", "x", 1));
    assert_eq!(refused(&reply), (ErrorCode::UnknownMemberId, "Instance id x is unknown."));
    let reply = host.consumer(static_beats("b", "x", -1));
    assert_eq!(refused(&reply), (ErrorCode::UnknownMemberId, "Instance id x is unknown."));
}

#[test]
fn a_static_member_that_does_not_come_back_is_removed_after_the_session_timeout() {
    let (mut host, _) = host(1);
    host.taken(static_joins("a", "i"));
    host.advance(10_000);
    host.taken(static_beats("a", "i", -2));
    host.advance(34_999);
    assert_eq!(host.describe_consumer("g").members.len(), 1);
    host.advance(1);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
}

#[test]
fn a_static_member_leaves_for_good_like_any_other() {
    let (mut host, _) = host(1);
    host.taken(static_joins("a", "i"));
    assert_eq!(host.consumer(static_beats("a", "i", -1)).member_epoch, -1);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    assert_eq!(host.taken(static_joins("b", "i")), (3, Some(vec![0])));
}

#[test]
fn one_that_comes_back_with_another_subscription_is_assigned_anew() {
    let (mut host, id) = host(1);
    host.topics.create("u", 1);
    host.taken(static_joins("a", "i"));
    host.taken(static_beats("a", "i", -2));
    let other = ConsumerHeartbeat { topics: Some(vec![text("u")]), ..static_joins("b", "i") };
    let reply = host.consumer(other);
    assert_eq!(refused(&reply), (ErrorCode::None, ""));
    let topics: Vec<TopicId> = reply.assignment.unwrap().into_iter().map(|(topic, _)| topic).collect();
    assert!(!topics.contains(&id));
    assert_eq!(host.describe_consumer("g").epoch, 2);
}
