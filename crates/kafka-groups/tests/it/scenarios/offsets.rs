//! OffsetCommit, OffsetFetch and OffsetDelete.

use crate::host::*;
use polylogue_api::StateMachine as _;
use polylogue_api::machine::Command;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState, KafkaGroups};
use polylogue_types::TopicId;

fn host() -> Host {
    let mut host = Host::quick();
    host.topics.create("t", 4);
    host.topics.create("u", 1);
    host
}

fn as_member(generation: i32, member: &StrBytes, request: CommitOffsets) -> CommitOffsets {
    CommitOffsets { generation, member_id: member.clone(), ..request }
}

/// A host runs these only once everything that was acknowledged before them is applied.
#[test]
fn requests_that_change_nothing_are_reads() {
    let groups = KafkaGroups::new(GroupSettings::default());
    let reads = |command| groups.reads(&(Box::new(command) as Command));
    let asked = vec![fetch_group("g", None)];
    assert!(reads(GroupCommand::FetchOffsets(FetchOffsets { version: 8, groups: asked, require_stable: false })));
    assert!(reads(GroupCommand::List(ListGroups::default())));
    assert!(reads(GroupCommand::Describe(DescribeGroups { version: 5, groups: vec![text("g")] })));
    assert!(reads(GroupCommand::DescribeConsumers(DescribeConsumerGroups { groups: vec![text("g")] })));
    assert!(!reads(GroupCommand::CommitOffsets(commit("g", "t", &[(0, 5)]))));
    assert!(!reads(GroupCommand::Delete(DeleteGroups { groups: vec![text("g")] })));
}

#[test]
fn who_is_no_member_commits_while_the_group_is_empty() {
    let mut host = host();
    assert_eq!(host.commit(commit("g", "t", &[(0, 5), (1, 6)])), [ErrorCode::None; 2]);
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 5), ("t".into(), 1, 6)]);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
    let ids = host.stable("g", 1);
    assert_eq!(host.commit(commit("g", "t", &[(0, 9)])), [ErrorCode::UnknownMemberId]);
    host.leave("g", vec![leaving(&ids[0], None)]);
    assert_eq!(host.commit(commit("g", "t", &[(0, 9)])), [ErrorCode::None]);
}

#[test]
fn a_group_without_a_name_may_hold_offsets() {
    let mut host = host();
    assert_eq!(host.commit(commit("", "t", &[(0, 5)])), [ErrorCode::None]);
    assert_eq!(host.fetch_all(""), [("t".into(), 0, 5)]);
}

#[test]
fn members_commit_in_their_generation_only() {
    let mut host = host();
    let ids = host.stable("g", 2);
    let c = || commit("g", "t", &[(0, 1)]);
    assert_eq!(host.commit(as_member(2, &ids[1], c())), [ErrorCode::None]);
    assert_eq!(host.commit(as_member(1, &ids[1], c())), [ErrorCode::IllegalGeneration]);
    assert_eq!(host.commit(as_member(3, &ids[1], c())), [ErrorCode::IllegalGeneration]);
    assert_eq!(host.commit(as_member(-1, &ids[1], c())), [ErrorCode::IllegalGeneration]);
    assert_eq!(host.commit(as_member(2, &text("stranger"), c())), [ErrorCode::UnknownMemberId]);
    // While the group prepares a rebalance, members may still commit, which extends their session.
    let _ = host.newcomer(join("g", ""));
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    for n in 0..3 {
        host.advance(9_000);
        assert_eq!(host.commit(as_member(2, &ids[1], commit("g", "t", &[(0, n)]))), [ErrorCode::None]);
    }
}

#[test]
fn nobody_commits_between_generation_and_assignment() {
    let mut host = host();
    let (id, caller) = host.newcomer(join("g", ""));
    host.joined(caller);
    assert_eq!(host.state("g"), Some(GroupState::CompletingRebalance));
    assert_eq!(host.commit(as_member(1, &id, commit("g", "t", &[(0, 1)]))), [ErrorCode::RebalanceInProgress]);
}

#[test]
fn a_member_of_a_group_that_is_not_there_is_told_so_as_its_version_can() {
    let mut host = host();
    let request = |version| CommitOffsets { version, ..as_member(1, &text("m"), commit("g", "t", &[(0, 1)])) };
    assert_eq!(host.commit(request(8)), [ErrorCode::IllegalGeneration]);
    assert_eq!(host.commit(request(9)), [ErrorCode::GroupIdNotFound]);
    host.commit(commit("g", "t", &[(0, 1)]));
    assert_eq!(host.commit(request(9)), [ErrorCode::UnknownMemberId]);
}

#[test]
fn topics_and_partitions_that_are_not_there_have_their_own_codes() {
    let mut host = host();
    let t = host.topics.create("v", 2);
    let request = |topic, version| {
        let mut request = CommitOffsets { version, ..commit("g", "", &[(0, 1), (7, 1), (-1, 1)]) };
        request.topics[0].topic = topic;
        request
    };
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(host.commit(request(TopicKey::Name(text("none")), 9)), [unknown; 3]);
    assert_eq!(host.commit(request(TopicKey::Name(text("v")), 9)), [ErrorCode::None, unknown, unknown]);
    assert_eq!(host.commit(request(TopicKey::Id(TopicId([99; 16])), 10)), [ErrorCode::UnknownTopicId; 3]);
    let reply = host.call(GroupCommand::CommitOffsets(request(TopicKey::Id(t), 10)));
    let GroupReply::CommitOffsets(topics) = reply else { panic!() };
    assert_eq!((&*topics[0].name, topics[0].id), ("v", t));
    assert_eq!(topics[0].partitions, [(0, ErrorCode::None), (7, unknown), (-1, unknown)]);
    assert_eq!(host.fetch_all("g"), [("v".into(), 0, 1)]);
    // For an unknown topic the group is not checked.
    let stranger = as_member(1, &text("m"), request(TopicKey::Name(text("none")), 9));
    assert_eq!(host.commit(stranger), [unknown; 3]);
}

#[test]
fn results_keep_the_order_of_the_request() {
    let mut host = host();
    let mut request = commit("g", "t", &[(3, 1), (9, 1), (0, 1)]);
    request.topics.push(commit("g", "none", &[(0, 1)]).topics.remove(0));
    request.topics.push(commit("g", "u", &[(0, 1)]).topics.remove(0));
    let GroupReply::CommitOffsets(topics) = host.call(GroupCommand::CommitOffsets(request)) else { panic!() };
    let order: Vec<(&str, Vec<i32>)> =
        topics.iter().map(|t| (&*t.name, t.partitions.iter().map(|p| p.0).collect())).collect();
    assert_eq!(order, [("t", vec![3, 9, 0]), ("none", vec![0]), ("u", vec![0])]);
}

#[test]
fn metadata_and_leader_epoch_are_kept_and_metadata_is_bounded() {
    let mut host = host();
    let with = |metadata: Option<&str>, leader_epoch| {
        let mut request = commit("g", "t", &[(0, 7)]);
        request.topics[0].partitions[0].metadata = metadata.map(StrBytes::from);
        request.topics[0].partitions[0].leader_epoch = leader_epoch;
        request
    };
    assert_eq!(host.commit(with(Some("where I was"), 3)), [ErrorCode::None]);
    let one = |host: &mut Host| host.fetch(8, vec![fetch_group("g", None)])[0].topics[0].partitions[0].clone();
    let got = one(&mut host);
    assert_eq!((got.offset, got.leader_epoch, &*got.metadata), (7, 3, "where I was"));
    // The limit counts UTF-16 units, as in Java.
    assert_eq!(host.commit(with(Some(&"ä".repeat(4_096)), -1)), [ErrorCode::None]);
    assert_eq!(host.commit(with(Some(&"x".repeat(4_097)), -1)), [ErrorCode::OffsetMetadataTooLarge]);
    assert_eq!(one(&mut host).metadata.chars().count(), 4_096);
    assert_eq!(host.commit(with(None, -1)), [ErrorCode::None]);
    let got = one(&mut host);
    assert_eq!((got.leader_epoch, &*got.metadata), (-1, ""));
    // A partition over the limit does not affect the others.
    let mut request = with(Some(&"x".repeat(4_097)), -1);
    request.topics[0].partitions.push(commit("", "", &[(1, 8)]).topics[0].partitions[0].clone());
    assert_eq!(host.commit(request), [ErrorCode::OffsetMetadataTooLarge, ErrorCode::None]);
}

#[test]
fn a_commit_is_one_record_and_answered_when_it_is_committed() {
    let mut host = host();
    host.commit_at_once = false;
    let mut request = commit("g", "t", &[(0, 1), (1, 2)]);
    request.topics.push(commit("g", "u", &[(0, 3)]).topics.remove(0));
    let caller = host.send(GroupCommand::CommitOffsets(request));
    assert!(host.is_waiting(caller));
    assert_eq!(host.in_flight.len(), 1);
    assert_eq!(host.fetch_all("g"), []);
    host.commit_all();
    assert!(!host.is_waiting(caller));
    assert_eq!(host.fetch_all("g").len(), 3);
}

#[test]
fn what_was_never_committed_is_minus_one_and_empty() {
    let mut host = host();
    host.commit(commit("g", "t", &[(1, 6)]));
    for version in 1..=9 {
        let wanted = fetch_group("g", Some(&[("t", &[1, 0, 77]), ("none", &[0])]));
        let fetched = host.fetch(version, vec![wanted]);
        assert_eq!(fetched[0].error, ErrorCode::None);
        let t: Vec<_> = fetched[0].topics[0].partitions.iter().map(|p| (p.index, p.offset, p.error)).collect();
        assert_eq!(t, [(1, 6, ErrorCode::None), (0, -1, ErrorCode::None), (77, -1, ErrorCode::None)]);
        let none = &fetched[0].topics[1].partitions[0];
        assert_eq!((none.offset, none.leader_epoch, &*none.metadata, none.error), (-1, -1, "", ErrorCode::None));
        assert_eq!((&*fetched[0].topics[1].name, fetched[0].topics[1].id), ("none", TopicId::ZERO));
    }
}

#[test]
fn several_groups_are_fetched_at_once_and_all_topics_when_none_is_named() {
    let mut host = host();
    host.commit(commit("g", "u", &[(0, 1)]));
    host.commit(commit("g", "t", &[(2, 3), (0, 2)]));
    host.commit(commit("h", "t", &[(0, 9)]));
    let wanted = vec![fetch_group("h", Some(&[("t", &[0])])), fetch_group("absent", None), fetch_group("g", None)];
    let fetched = host.fetch(8, wanted);
    let ids: Vec<&str> = fetched.iter().map(|g| &*g.group_id).collect();
    assert_eq!(ids, ["h", "absent", "g"]);
    assert_eq!(fetched[0].topics[0].partitions[0].offset, 9);
    assert_eq!((fetched[1].error, fetched[1].topics.len()), (ErrorCode::None, 0));
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 2), ("t".into(), 2, 3), ("u".into(), 0, 1)]);
}

#[test]
fn topics_can_be_fetched_by_id() {
    let mut host = host();
    let id = host.topics.create("v", 1);
    host.commit(commit("g", "v", &[(0, 4)]));
    let by_id = |id| FetchGroup {
        topics: Some(vec![FetchTopic { topic: TopicKey::Id(id), partitions: vec![0] }]),
        ..fetch_group("g", None)
    };
    let fetched = host.fetch(10, vec![by_id(id), by_id(TopicId([99; 16])), fetch_group("g", None)]);
    let topic = &fetched[0].topics[0];
    assert_eq!((&*topic.name, topic.id, topic.partitions[0].offset), ("v", id, 4));
    let unknown = &fetched[1].topics[0].partitions[0];
    assert_eq!((unknown.offset, unknown.error), (-1, ErrorCode::UnknownTopicId));
    assert_eq!((&*fetched[2].topics[0].name, fetched[2].topics[0].id), ("v", id));
}

#[test]
fn a_topic_that_is_created_again_does_not_inherit_offsets() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 500)]));
    host.delete_topic("t");
    host.topics.create("t", 4);
    assert_eq!(host.fetch_all("g"), []);
    let fetched = host.fetch(8, vec![fetch_group("g", Some(&[("t", &[0])]))]);
    assert_eq!(fetched[0].topics[0].partitions[0].offset, -1);
    assert_eq!(host.state("g"), None, "a group without other offsets is deleted with them");
}

#[test]
fn a_commit_that_overtakes_the_deletion_of_its_topic_is_forgotten_too() {
    let mut host = host();
    host.commit_at_once = false;
    let caller = host.send(GroupCommand::CommitOffsets(commit("g", "t", &[(0, 500)])));
    host.delete_topic("t");
    host.commit_all();
    assert!(matches!(host.reply(caller), GroupReply::CommitOffsets(_)));
    assert_eq!(host.machine.summaries().count(), 0);
}

#[test]
fn memory_and_groups_are_bounded_for_offsets_too() {
    let mut host = host();
    host.configure(GroupSettings { groups_max: 1, ..GroupSettings::default() });
    assert_eq!(host.commit(commit("a", "t", &[(0, 1)])), [ErrorCode::None]);
    assert_eq!(host.commit(commit("b", "t", &[(0, 1)])), [ErrorCode::CoordinatorNotAvailable]);
    host.configure(GroupSettings { memory_bytes_max: host.machine.memory() + 100, ..GroupSettings::default() });
    assert_eq!(host.commit(commit("a", "t", &[(1, 1)])), [ErrorCode::None]);
    assert_eq!(host.commit(commit("a", "t", &[(2, 1)])), [ErrorCode::CoordinatorNotAvailable]);
    // Existing offsets may still be updated.
    assert_eq!(host.commit(commit("a", "t", &[(0, 2), (1, 2)])), [ErrorCode::None; 2]);
}

/// Regression test: 100,000 groups with metadata of 4 KB took half a gigabyte, from any number of clients, and every start read them again.
#[test]
fn what_one_user_commits_is_bounded_and_leaves_the_rest_to_others() {
    let mut host = host();
    let user_bytes_max = 1 << 20;
    host.configure(GroupSettings { user_bytes_max, ..GroupSettings::default() });
    let text = "x".repeat(4_096);
    let commit_as = |host: &mut Host, user: Option<&'static str>, group: &str| {
        let mut request = commit(group, "t", &[(0, 1)]);
        request.user = user.map(StrBytes::from_static);
        request.topics[0].partitions[0].metadata = Some(StrBytes::from(&*text));
        host.commit(request)[0]
    };
    let mut groups = 0;
    while commit_as(&mut host, Some("mallory"), &format!("m{groups}")) == ErrorCode::None {
        groups += 1;
        assert!(groups < 1_000, "no limit applied");
    }
    assert!((150..256).contains(&groups), "{groups} groups of 4 KB in a MiB");
    assert_eq!(commit_as(&mut host, Some("mallory"), "more"), ErrorCode::InvalidCommitOffsetSize);
    assert_eq!(commit_as(&mut host, Some("mallory"), "m0"), ErrorCode::None, "existing groups may commit");
    assert_eq!(commit_as(&mut host, Some("alice"), "a"), ErrorCode::None);
    assert_eq!(commit_as(&mut host, None, "n"), ErrorCode::None);
    assert!(host.machine.memory() < user_bytes_max + (16 << 10));
    assert_eq!(host.machine.usage().memory_bytes(), host.machine.memory());
    let mut join = join("new", "");
    join.user = Some(StrBytes::from_static("mallory"));
    join.protocols = vec![Protocol { name: StrBytes::from_static("range"), metadata: vec![0; 64 << 10].into() }];
    assert_eq!(host.join(join).error, ErrorCode::GroupMaxSizeReached);
    // The log records the owner of each group.
    host.checkpoint();
    host.crash();
    assert_eq!(commit_as(&mut host, Some("mallory"), "more"), ErrorCode::InvalidCommitOffsetSize);
    assert_eq!(commit_as(&mut host, Some("alice"), "b"), ErrorCode::None);
    host.call(GroupCommand::Delete(DeleteGroups { groups: vec![StrBytes::from_static("m1")] }));
    assert_eq!(commit_as(&mut host, Some("mallory"), "more"), ErrorCode::None, "a deletion frees memory");
}

#[test]
fn a_reply_is_bounded_however_often_a_group_is_named() {
    let mut host = host();
    host.topics.create("wide", 1_000);
    let offsets: Vec<(i32, i64)> = (0..1_000).map(|n| (n, 1)).collect();
    host.commit(commit("g", "wide", &offsets));
    let fetched = host.fetch(8, vec![fetch_group("g", None); 1_100]);
    let served = fetched.iter().filter(|g| g.error == ErrorCode::None).count();
    // 16 MiB of rows.
    assert!((250..350).contains(&served), "{served}");
    assert!(fetched[served..].iter().all(|g| g.error == ErrorCode::InvalidRequest && g.topics.is_empty()));
    // Before version 2 a group has no error field.
    let many: Vec<i32> = (0..1_000_001).collect();
    let fetched = host.fetch(1, vec![fetch_group("g", Some(&[("t", &many)]))]);
    assert_eq!(fetched[0].error, ErrorCode::None);
    assert!(fetched[0].topics[0].partitions.iter().all(|p| p.error == ErrorCode::InvalidRequest));
}

/// Regression test: one offset with metadata of 4 KiB, requested repeatedly by a few bytes each: a request of 2 MiB was answered with
/// gigabytes.
#[test]
fn a_reply_is_bounded_by_the_texts_that_were_committed() {
    let mut host = host();
    let mut request = commit("g", "t", &[(0, 7), (1, 7)]);
    for partition in &mut request.topics[0].partitions {
        partition.metadata = Some(text(&"x".repeat(4_096)));
    }
    host.commit(request);
    let texts = |fetched: &[FetchedGroup]| -> usize {
        let topics = fetched.iter().flat_map(|group| &group.topics);
        topics.flat_map(|topic| &topic.partitions).map(|partition| partition.metadata.len()).sum()
    };
    // A repeated partition is answered once.
    let again: Vec<i32> = (0..500_000).map(|n| n % 2).collect();
    let fetched = host.fetch(8, vec![fetch_group("g", Some(&[("t", &again)]))]);
    let reported: Vec<_> = fetched[0].topics[0].partitions.iter().map(|p| (p.index, p.offset)).collect();
    assert_eq!((fetched[0].error, reported), (ErrorCode::None, vec![(0, 7), (1, 7)]));
    // Repeated topics and groups are refused beyond the limit.
    let topics: Vec<(&str, &[i32])> = vec![("t", &[0]); 100_000];
    let fetched = host.fetch(8, vec![fetch_group("g", Some(&topics)), fetch_group("g", None)]);
    assert_eq!(texts(&fetched), 0);
    assert!(fetched.iter().all(|group| group.error == ErrorCode::InvalidRequest));
    let fetched = host.fetch(8, vec![fetch_group("g", None); 20_000]);
    assert!(((12 << 20)..(16 << 20)).contains(&texts(&fetched)), "{}", texts(&fetched));
    assert_eq!(fetched[0].error, ErrorCode::None);
    assert_eq!(fetched[19_999].error, ErrorCode::InvalidRequest);
}

fn delete(host: &mut Host, group: &str, topics: &[(&str, &[i32])]) -> DeleteOffsetsReply {
    let topics = topics.iter().map(|(name, partitions)| (text(name), partitions.to_vec())).collect();
    match host.call(GroupCommand::DeleteOffsets(DeleteOffsets { group_id: text(group), topics })) {
        GroupReply::DeleteOffsets(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn offsets_can_be_deleted() {
    let mut host = host();
    assert_eq!(delete(&mut host, "", &[]).error, ErrorCode::InvalidGroupId);
    assert_eq!(delete(&mut host, "g", &[]).error, ErrorCode::GroupIdNotFound);
    host.commit(commit("g", "t", &[(0, 1), (1, 2)]));
    let reply = delete(&mut host, "g", &[("t", &[0, 3, 9]), ("none", &[0])]);
    assert_eq!(reply.error, ErrorCode::None);
    let codes: Vec<_> = reply.topics.iter().map(|t| t.partitions.iter().map(|p| p.1).collect::<Vec<_>>()).collect();
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(codes, [vec![ErrorCode::None, ErrorCode::None, unknown], vec![unknown]]);
    assert_eq!(host.fetch_all("g"), [("t".into(), 1, 2)]);
}

#[test]
fn offsets_that_members_use_cannot_be_deleted() {
    let mut host = host();
    host.commit(commit("g", "t", &[(0, 1)]));
    host.commit(commit("g", "u", &[(0, 1)]));
    // Its members subscribe to t.
    host.stable("g", 1);
    let reply = delete(&mut host, "g", &[("t", &[0]), ("u", &[0])]);
    assert_eq!(reply.topics[0].partitions, [(0, ErrorCode::GroupSubscribedToTopic)]);
    assert_eq!(reply.topics[1].partitions, [(0, ErrorCode::None)]);
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 1)]);
    // The subscriptions of members of another protocol type are unknown.
    let joined = host.join(JoinGroup { version: 3, protocol_type: text("connect"), ..join("c", "") });
    assert_eq!(joined.error, ErrorCode::None);
    assert_eq!(delete(&mut host, "c", &[("u", &[0])]).error, ErrorCode::NonEmptyGroup);
    // A member with metadata that cannot be decoded may use any topic.
    let unreadable = vec![Protocol { name: text("range"), metadata: "?".into() }];
    host.join(JoinGroup { version: 3, protocols: unreadable, ..join("d", "") });
    let reply = delete(&mut host, "d", &[("u", &[0])]);
    assert_eq!(reply.topics[0].partitions, [(0, ErrorCode::GroupSubscribedToTopic)]);
}
