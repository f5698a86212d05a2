//! Members join: what they must say, and what they receive.

use super::*;

const JOIN: fn() -> ConsumerHeartbeat = || joins("g", "a");

#[test]
fn the_first_member_reads_everything_at_once() {
    let (mut host, id) = host(3);
    let reply = host.consumer(JOIN());
    assert_eq!(refused(&reply), (ErrorCode::None, ""));
    assert_eq!((reply.member_id.as_deref(), reply.member_epoch, reply.heartbeat_interval_ms), (Some("a"), 1, 5_000));
    assert_eq!(reply.assignment, Some(vec![(id, vec![0, 1, 2])]));
    assert_eq!(host.state("g"), Some(GroupState::Stable));
    // one record, with everything in it
    assert_eq!(host.log.len(), 1);
    // a heartbeat that changes nothing leaves nothing behind
    let reply = host.consumer(beats("g", "a", 1));
    assert_eq!((reply.member_epoch, reply.assignment), (1, None));
    assert_eq!(host.log.len(), 1);
}

#[test]
fn a_client_of_version_0_gets_its_member_id_here() {
    let (mut host, _) = host(1);
    let request = ConsumerHeartbeat { version: 0, ..joins("g", "") };
    let id = host.consumer(request).member_id.unwrap();
    assert_eq!(id.len(), 22);
    assert_eq!(host.taken(beats("g", &id, 1)), (1, None));
    let reply = host.consumer(joins("g", ""));
    assert_eq!(refused(&reply), (ErrorCode::InvalidRequest, "MemberId can't be empty."));
}

#[test]
fn a_request_that_lacks_something_is_refused_in_kafkas_words() {
    let (mut host, id) = host(1);
    let with = |change: fn(&mut ConsumerHeartbeat)| {
        let mut request = joins("g", "a");
        change(&mut request);
        request
    };
    let wrong = [
        (with(|r| r.group_id = text("")), "GroupId can't be empty."),
        (with(|r| r.instance_id = Some(text(""))), "InstanceId can't be empty."),
        (with(|r| r.rack_id = Some(text(""))), "RackId can't be empty."),
        (with(|r| r.rebalance_timeout_ms = -1), "RebalanceTimeoutMs must be provided in first request."),
        (with(|r| r.owned = None), "TopicPartitions must be empty when (re-)joining."),
        (owns("g", "a", 0, id, &[0]), "RebalanceTimeoutMs must be provided in first request."),
        (
            with(|r| r.topics = None),
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (with(|r| r.member_epoch = -3), "MemberEpoch is invalid."),
        (beats("g", "a", -2), "InstanceId can't be null."),
        (beats("g", "", -1), "MemberId can't be empty."),
    ];
    for (request, text) in wrong {
        let reply = host.consumer(request);
        assert_eq!(refused(&reply), (ErrorCode::InvalidRequest, text));
        assert_eq!((reply.member_id, reply.assignment), (None, None));
    }
    let reply = host.consumer(with(|r| r.assignor = Some(text("sticky"))));
    let text = "ServerAssignor sticky is not supported. Supported assignors: uniform, range.";
    assert_eq!(refused(&reply), (ErrorCode::UnsupportedAssignor, text));
    assert!(host.log.is_empty());
    assert_eq!(host.state("g"), None);
}

#[test]
fn a_member_may_subscribe_to_nothing_and_to_what_is_not_there_yet() {
    let (mut host, _) = host(2);
    assert_eq!(host.taken(ConsumerHeartbeat { topics: Some(Vec::new()), ..JOIN() }), (1, Some(Vec::new())));
    let later = ConsumerHeartbeat { topics: Some(vec![text("later"), text("later")]), ..beats("g", "a", 1) };
    assert_eq!(host.taken(later), (2, None));
    host.topics.create("later", 1);
    assert_eq!(host.taken(beats("g", "a", 2)), (3, Some(vec![0])));
}

#[test]
fn a_member_of_no_group_is_told_so() {
    let (mut host, _) = host(1);
    let reply = host.consumer(beats("g", "a", 1));
    assert_eq!(refused(&reply), (ErrorCode::GroupIdNotFound, "Consumer group g not found."));
    let reply = host.consumer(beats("g", "a", -1));
    assert_eq!(refused(&reply), (ErrorCode::GroupIdNotFound, "Group g not found."));
    host.commit(crate::host::commit("g", "t", &[(0, 1)]));
    let reply = host.consumer(beats("g", "a", 1));
    assert_eq!(refused(&reply), (ErrorCode::GroupIdNotFound, "Group g is not a consumer group."));
    host.taken(JOIN());
    let reply = host.consumer(beats("g", "b", 1));
    assert_eq!(refused(&reply), (ErrorCode::UnknownMemberId, "Member b is not a member of group g."));
}

#[test]
fn a_full_group_takes_no_more_members() {
    let consumer = ConsumerGroupSettings { group_size_max: 2, ..ConsumerGroupSettings::default() };
    let mut host = Host::new(at_once(consumer));
    host.topics.create("t", 2);
    host.taken(joins("g", "a"));
    host.taken(joins("g", "b"));
    let reply = host.consumer(joins("g", "c"));
    let text = "The consumer group has reached its maximum capacity of 2 members.";
    assert_eq!(refused(&reply), (ErrorCode::GroupMaxSizeReached, text));
    // those that are in it may join again
    assert_eq!(host.consumer(joins("g", "b")).error, ErrorCode::None);
}

#[test]
fn most_members_decide_about_the_assignor() {
    let (mut host, id) = host(4);
    host.topics.create("u", 4);
    let both = Some(vec![text("u"), text("t")]);
    let range =
        |member| ConsumerHeartbeat { topics: both.clone(), assignor: Some(text("range")), ..joins("g", member) };
    host.taken(range("a"));
    host.taken(range("b"));
    let described = host.describe_consumer("g");
    assert_eq!(&*described.assignor, "range");
    let target =
        |member: usize| described.members[member].target.iter().map(|t| t.partitions.clone()).collect::<Vec<_>>();
    assert_eq!((target(0), target(1)), (vec![vec![0, 1]; 2], vec![vec![2, 3]; 2]));
    assert_eq!(described.members[0].target.iter().find(|t| t.id == id).unwrap().name, "t");
    // the third one has no wish
    host.taken(joins("g", "c"));
    assert_eq!(&*host.describe_consumer("g").assignor, "range");
}

#[test]
fn groups_change_between_the_protocols_only_while_they_are_empty() {
    let (mut host, _) = host(1);
    let ids = host.stable("g", 1);
    let reply = host.consumer(joins("g", "a"));
    let text = "Cannot upgrade classic group g to consumer group because online upgrade is disabled.";
    assert_eq!(refused(&reply), (ErrorCode::GroupIdNotFound, text));
    host.commit(CommitOffsets { generation: 1, member_id: ids[0].clone(), ..crate::host::commit("g", "t", &[(0, 7)]) });
    host.leave("g", vec![crate::host::leaving(&ids[0], None)]);
    assert_eq!(host.taken(joins("g", "a")), (1, Some(vec![0])));
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 7)], "offsets stay");
    // and back
    let joined = host.join(crate::host::join("g", ""));
    assert_eq!(joined.error, ErrorCode::InconsistentGroupProtocol);
    host.taken(beats("g", "a", -1));
    let (id, caller) = host.newcomer(crate::host::join("g", ""));
    assert_eq!((host.joined(caller).generation, host.state("g")), (1, Some(GroupState::CompletingRebalance)));
    host.sync(crate::host::sync("g", 1, &id, &[(&id, "x")]));
    let [from_log, from_checkpoint, taken] = host.both_states();
    assert!(from_log == from_checkpoint && from_log == taken);
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 7)]);
}
