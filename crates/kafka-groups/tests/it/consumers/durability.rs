//! What survives a crash, what a lost writer takes along, and what the log refuses.

use super::*;
use crate::host::CallerReply;

/// A story of a group, step by step: joins, revocations, a static member that comes and goes.
fn story(id: TopicId) -> Vec<ConsumerHeartbeat> {
    let fixed = |request: ConsumerHeartbeat| ConsumerHeartbeat { instance_id: Some(text("i")), ..request };
    vec![
        joins("g", "a"),
        joins("g", "b"),
        owns("g", "a", 1, id, &[0, 1, 2, 3]),
        owns("g", "a", 1, id, &[0, 1]),
        beats("g", "b", 2),
        fixed(joins("g", "s")),
        owns("g", "b", 2, id, &[2, 3]),
        owns("g", "b", 2, id, &[2]),
        fixed(beats("g", "s", 3)),
        fixed(beats("g", "s", -2)),
        fixed(joins("g", "u")),
        ConsumerHeartbeat { regex: Some(text("t.*")), ..beats("g", "a", 2) },
        beats("g", "b", -1),
        owns("g", "a", 2, id, &[0, 1]),
    ]
}

/// All that can be seen of the group.
fn seen(host: &mut Host) -> DescribedConsumerGroup {
    host.describe_consumer("g")
}

#[test]
fn after_a_crash_at_any_step_the_group_is_what_was_answered() {
    let length = story(TopicId([1; 16])).len();
    for stop in 1..=length {
        let (mut host, id) = host(4);
        let mut last = None;
        for request in story(id).into_iter().take(stop) {
            let member = request.member_id.clone();
            let reply = host.consumer(request);
            assert_eq!(refused(&reply), (ErrorCode::None, ""), "step {stop}");
            last = Some((member, reply));
        }
        let before = seen(&mut host);
        let [from_log, from_checkpoint, taken] = host.both_states();
        assert!(from_log == from_checkpoint && from_log == taken, "step {stop}");
        host.crash();
        assert_eq!(seen(&mut host), before, "step {stop}");
        // the member goes on where it was
        let (member, reply) = last.unwrap();
        if reply.member_epoch > 0 {
            let fixed = ["s", "u"].contains(&&*member).then(|| text("i"));
            let next = ConsumerHeartbeat { instance_id: fixed, ..beats("g", &member, reply.member_epoch) };
            assert_eq!(host.consumer(next).error, ErrorCode::None, "step {stop}");
        }
    }
}

#[test]
fn a_lost_writer_takes_along_what_was_not_committed_at_any_step() {
    let length = story(TopicId([1; 16])).len();
    for stop in 1..length {
        let (mut host, id) = host(4);
        let story = story(id);
        for request in story.iter().take(stop).cloned() {
            host.consumer(request);
        }
        let before = seen(&mut host);
        host.commit_at_once = false;
        let caller = host.send(GroupCommand::ConsumerHeartbeat(story[stop].clone()));
        let proposed = !host.in_flight.is_empty();
        host.lose_writer();
        host.commit_at_once = true;
        if proposed {
            assert!(matches!(host.take(caller), Some(CallerReply::Unavailable)), "step {stop}");
        }
        assert_eq!(seen(&mut host), before, "step {stop}");
        // the client tries again, and the story goes on
        for request in story.into_iter().skip(stop) {
            let reply = host.consumer(request);
            assert_eq!(refused(&reply), (ErrorCode::None, ""), "step {stop}");
        }
    }
}

#[test]
fn what_the_log_refuses_did_not_happen() {
    let (mut host, id) = host(4);
    host.two("g", id, 4);
    let before = seen(&mut host);
    host.refuses = true;
    let caller = host.send(GroupCommand::ConsumerHeartbeat(joins("g", "c")));
    assert!(matches!(host.take(caller), Some(CallerReply::Unavailable)));
    host.refuses = false;
    assert_eq!(seen(&mut host), before);
    assert_eq!(host.taken(beats("g", "a", 2)), (2, None));
    assert_eq!(host.taken(joins("g", "c")).0, 3);
    let [from_log, from_checkpoint, taken] = host.both_states();
    assert!(from_log == from_checkpoint && from_log == taken);
}

#[test]
fn a_refusal_with_records_in_flight_sends_members_away_until_these_are_applied() {
    let (mut host, _) = host(4);
    host.commit_at_once = false;
    let first = host.send(GroupCommand::ConsumerHeartbeat(joins("g", "a")));
    host.refuses = true;
    let second = host.send(GroupCommand::ConsumerHeartbeat(joins("g", "b")));
    assert!(matches!(host.take(second), Some(CallerReply::Unavailable)));
    host.refuses = false;
    let third = host.send(GroupCommand::ConsumerHeartbeat(joins("g", "b")));
    assert_eq!(host.consumed(third).error, ErrorCode::NotCoordinator);
    host.commit_all();
    assert_eq!(host.consumed(first).member_epoch, 1);
    host.commit_at_once = true;
    host.advance(20);
    assert_eq!(host.taken(joins("g", "b")), (2, Some(Vec::new())));
}

#[test]
fn no_answer_leaves_before_what_it_says_is_committed() {
    let (mut host, _) = host(2);
    host.commit_at_once = false;
    let join = host.send(GroupCommand::ConsumerHeartbeat(joins("g", "a")));
    let beat = host.send(GroupCommand::ConsumerHeartbeat(beats("g", "a", 1)));
    let fenced = host.send(GroupCommand::ConsumerHeartbeat(beats("g", "a", 7)));
    let list = host.send(GroupCommand::List(ListGroups::default()));
    let describe = host.send(GroupCommand::DescribeConsumers(DescribeConsumerGroups { groups: vec![text("g")] }));
    for caller in [join, beat, fenced, list, describe] {
        assert!(host.is_waiting(caller));
    }
    host.commit_all();
    assert_eq!((host.consumed(join).member_epoch, host.consumed(beat).member_epoch), (1, 1));
    assert_eq!(host.consumed(fenced).error, ErrorCode::FencedMemberEpoch);
    assert_eq!(host.waiting(), 0);
}

#[test]
fn deadlines_begin_anew_after_a_crash() {
    let (mut host, id) = host(2);
    host.taken(joins("g", "a"));
    host.taken(joins("g", "b"));
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0, 1])), (1, Some(vec![0])));
    host.advance(4_000);
    host.crash();
    host.advance(4_999);
    assert_eq!(host.describe_consumer("g").members.len(), 2);
    host.advance(1);
    assert_eq!(host.describe_consumer("g").members.len(), 1, "a has not given up what it must");
    host.advance(40_000);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
}

#[test]
fn memory_is_bounded_in_all_and_by_user() {
    let settings = at_once(ConsumerGroupSettings::default());
    let bound = |all: usize, user: usize| {
        let mut host = Host::new(GroupSettings { memory_bytes_max: all, user_bytes_max: user, ..settings.clone() });
        host.topics.create("t", 4);
        host
    };
    let wide = || ConsumerHeartbeat {
        user: Some(text("alice")),
        topics: Some((0..500).map(|n| text(&format!("a-rather-long-name-of-a-topic-{n}"))).collect()),
        ..joins("g", "a")
    };
    assert_eq!(bound(20_000, 1 << 20).consumer(wide()).error, ErrorCode::CoordinatorNotAvailable);
    assert_eq!(bound(1 << 20, 20_000).consumer(wide()).error, ErrorCode::GroupMaxSizeReached);
    let mut host = bound(1 << 20, 1 << 20);
    assert_eq!(host.consumer(wide()).error, ErrorCode::None);
    // an assignment counts as well
    let mut host = bound(40_000, 1 << 20);
    host.topics.create("large", 20_000);
    let large = ConsumerHeartbeat { topics: Some(vec![text("large")]), ..joins("g", "a") };
    assert_eq!(host.consumer(large).error, ErrorCode::CoordinatorNotAvailable);
    host.advance(0);
    assert_eq!(host.consumer(joins("g", "a")).error, ErrorCode::None, "nothing of it is left");
}
