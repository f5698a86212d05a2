//! From one assignment to the next: revoke before assign, epochs, deadlines.

use super::*;

#[test]
fn a_partition_is_revoked_before_it_is_assigned_to_another_member() {
    let (mut host, id) = host(4);
    assert_eq!(host.taken(joins("g", "a")), (1, Some(vec![0, 1, 2, 3])));
    // the second one gets nothing as long as the first has everything
    assert_eq!(host.taken(joins("g", "b")), (2, Some(Vec::new())));
    assert_eq!(host.state("g"), Some(GroupState::Reconciling));
    // the first is asked to give up two, and stays in its epoch until it has
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0, 1, 2, 3])), (1, Some(vec![0, 1])));
    assert_eq!(host.taken(beats("g", "b", 2)), (2, None));
    assert_eq!(host.taken(beats("g", "a", 1)), (1, None));
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0, 1, 2])), (1, None));
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0, 1])), (2, None));
    assert_eq!(host.taken(beats("g", "b", 2)), (2, Some(vec![2, 3])));
    assert_eq!(host.state("g"), Some(GroupState::Stable));
}

#[test]
fn no_partition_has_two_members_while_a_third_comes() {
    let (mut host, id) = host(6);
    host.two("g", id, 6);
    host.taken(joins("g", "c"));
    let described = host.describe_consumer("g");
    let targets: Vec<usize> =
        described.members.iter().map(|m| m.target.iter().map(|t| t.partitions.len()).sum()).collect();
    assert_eq!(targets, [2, 2, 2]);
    let (epoch, left) = host.taken(owns("g", "b", 2, id, &[3, 4, 5]));
    assert_eq!((epoch, left.unwrap().len()), (2, 2));
    let (_, of_c) = host.taken(beats("g", "c", 3));
    assert_eq!(of_c, None, "b has not given up anything yet");
    host.taken(owns("g", "b", 2, id, &[3, 4]));
    let (_, of_c) = host.taken(beats("g", "c", 3));
    assert_eq!(of_c, Some(vec![5]));
}

#[test]
fn a_member_that_does_not_give_up_in_time_is_fenced() {
    let (mut host, id) = host(2);
    host.taken(joins("g", "a"));
    host.taken(joins("g", "b"));
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0, 1])), (1, Some(vec![0])));
    host.advance(4_999);
    assert_eq!(host.taken(beats("g", "a", 1)), (1, None));
    host.advance(1);
    let reply = host.consumer(beats("g", "a", 1));
    assert_eq!(refused(&reply), (ErrorCode::UnknownMemberId, "Member a is not a member of group g."));
    // all is for the other one
    assert_eq!(host.taken(beats("g", "b", 2)), (3, Some(vec![0, 1])));
}

#[test]
fn a_member_that_gave_up_in_time_is_not_fenced_later() {
    let (mut host, id) = host(2);
    host.two("g", id, 2);
    host.advance(10_000);
    assert_eq!(host.taken(beats("g", "a", 2)), (2, None));
}

#[test]
fn an_epoch_that_is_not_the_members_is_fenced() {
    let (mut host, id) = host(2);
    host.two("g", id, 2);
    let reply = host.consumer(beats("g", "a", 3));
    let text = "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (2). \
                The member must abandon all its partitions and rejoin.";
    assert_eq!(refused(&reply), (ErrorCode::FencedMemberEpoch, text));
    let reply = host.consumer(beats("g", "a", 1));
    let text = "The consumer group member has a smaller member epoch (1) than the one known by the group coordinator (2). \
                The member must abandon all its partitions and rejoin.";
    assert_eq!(refused(&reply), (ErrorCode::FencedMemberEpoch, text));
    // the answer with its new epoch may have been lost
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0])), (2, None));
    assert_eq!(host.consumer(owns("g", "a", 1, id, &[1])).error, ErrorCode::FencedMemberEpoch);
    // a member that was fenced joins again under its id
    assert_eq!(host.taken(joins("g", "a")), (2, Some(vec![0])));
}

#[test]
fn what_the_last_answer_said_is_said_again_to_a_member_that_says_everything() {
    let (mut host, id) = host(2);
    host.taken(joins("g", "a"));
    let all = ConsumerHeartbeat { member_epoch: 1, owned: Some(vec![(id, vec![0])]), ..joins("g", "a") };
    assert_eq!(host.taken(all), (1, Some(vec![0, 1])));
    assert_eq!(host.log.len(), 1);
}

#[test]
fn a_changed_subscription_takes_away_at_once_what_it_does_not_name() {
    let (mut host, id) = host(2);
    let u = host.topics.create("u", 1);
    let both = ConsumerHeartbeat { topics: Some(vec![text("t"), text("u")]), ..joins("g", "a") };
    assert_eq!(host.taken(both), (1, Some(vec![0, 1, 0])));
    let only = ConsumerHeartbeat { topics: Some(vec![text("u")]), ..owns("g", "a", 1, id, &[0, 1]) };
    let reply = host.consumer(only);
    assert_eq!((reply.member_epoch, reply.assignment), (1, Some(vec![(u, vec![0])])));
    assert_eq!(host.taken(owns("g", "a", 1, u, &[0])), (2, None));
}

#[test]
fn new_partitions_and_deleted_topics_are_noticed_with_the_next_heartbeat() {
    let (mut host, id) = host(1);
    host.two_of_one(id);
    host.topics.grow("t", 2);
    assert_eq!(host.taken(beats("g", "b", 2)), (3, Some(vec![1])));
    assert_eq!(host.taken(beats("g", "a", 2)), (3, None));
    host.delete_topic("t");
    host.topics.create("t", 1);
    let (epoch, _) = host.taken(owns("g", "b", 3, id, &[]));
    assert_eq!(epoch, 4);
    let described = host.describe_consumer("g");
    assert_eq!(described.epoch, 4);
}

impl Host {
    /// Two members of a topic with one partition, which is the first one's.
    fn two_of_one(&mut self, _: TopicId) {
        assert_eq!(self.taken(joins("g", "a")), (1, Some(vec![0])));
        assert_eq!(self.taken(joins("g", "b")), (2, Some(Vec::new())));
        assert_eq!(self.taken(beats("g", "a", 1)), (2, None));
    }
}

#[test]
fn settings_of_a_group_go_before_the_brokers_within_its_bounds() {
    let (mut host, _) = host(1);
    let set = |host: &mut Host, name: &str, value: &str| {
        host.topics.of_groups.entry("g".to_owned()).or_default().insert(name.to_owned(), value.to_owned());
    };
    set(&mut host, "consumer.heartbeat.interval.ms", "7000");
    set(&mut host, "consumer.session.timeout.ms", "50000");
    assert_eq!(host.consumer(joins("g", "a")).heartbeat_interval_ms, 7_000);
    host.advance(49_999);
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    host.advance(1);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    set(&mut host, "consumer.heartbeat.interval.ms", "1");
    assert_eq!(host.consumer(joins("g", "a")).heartbeat_interval_ms, 5_000);
}

#[test]
fn assignments_are_an_interval_apart() {
    let mut host = Host::new(GroupSettings::default());
    let id = host.topics.create("t", 2);
    assert_eq!(host.taken(joins("g", "a")), (1, Some(vec![0, 1])));
    // the group's epoch is 2, and its assignment still that of 1
    assert_eq!(host.taken(joins("g", "b")), (1, Some(Vec::new())));
    assert_eq!(host.state("g"), Some(GroupState::Assigning));
    host.taken(joins("g", "c"));
    host.advance(999);
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0, 1])), (1, None));
    host.advance(1);
    assert_eq!(host.taken(owns("g", "a", 1, id, &[0, 1])), (1, Some(vec![0])));
    assert_eq!(host.describe_consumer("g").assignment_epoch, 3);
}
