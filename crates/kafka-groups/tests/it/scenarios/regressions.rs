//! Bugs of other brokers, by issue.

use crate::host::*;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};

/// nisshi#679, moosestack#3885: a follower was answered before its leader, with an empty assignment.
#[test]
fn item_7_a_follower_is_never_answered_before_the_leader() {
    let mut host = Host::new(GroupSettings::default());
    let (leader, a) = host.newcomer(join("g", ""));
    let (follower, b) = host.newcomer(join("g", ""));
    host.advance(6_000);
    assert_eq!((host.joined(a).error, host.joined(b).error), (ErrorCode::None, ErrorCode::None));
    let early = host.send(GroupCommand::Sync(sync("g", 1, &follower, &[])));
    host.advance(9_000);
    assert!(host.is_waiting(early));
    host.sync(sync("g", 1, &leader, &[(&leader, "a"), (&follower, "b")]));
    assert_eq!(host.synced(early).assignment, "b");
}

/// nisshi#625: the second member was unknown, because each request had its own coordinator.
#[test]
fn item_7_the_second_to_join_is_known() {
    let mut host = Host::new(GroupSettings::default());
    let (_, a) = host.newcomer(join("g", ""));
    let (second, b) = host.newcomer(join("g", ""));
    host.advance(6_000);
    assert_eq!(host.joined(a).members.len(), 2);
    assert_eq!(host.joined(b).error, ErrorCode::None);
    assert_eq!(host.beat(beat("g", 1, &second)), ErrorCode::None);
}

/// redpanda#3300, #3898: issued member ids never expired, so that the group prepared a rebalance forever.
#[test]
fn item_8_a_group_does_not_prepare_for_ever() {
    let mut host = Host::quick();
    let ids = host.stable("g", 1);
    // A client gets an id and never returns.
    host.join(join("g", ""));
    let leader = host.send(GroupCommand::Join(join("g", &ids[0])));
    assert_eq!(host.state("g"), Some(GroupState::PreparingRebalance));
    host.advance(10_000);
    assert_eq!(host.joined(leader).generation, 2);
    // When the members are gone too, the group is empty and not stuck.
    host.join(join("g", ""));
    host.advance(60_000);
    assert_eq!(host.state("g"), Some(GroupState::Empty));
}

/// redpanda#23693: a static member that returned kept the client id and timeouts of its predecessor.
#[test]
fn item_8_a_static_member_that_comes_back_brings_its_own_settings() {
    let mut host = Host::quick();
    let old = host.join(static_join("g", "", "i"));
    host.sync(sync("g", 1, &old.member_id, &[(&old.member_id, "x")]));
    let said = vec![Protocol { name: text("range"), metadata: subscription(&["u"]) }];
    let back = host.join(JoinGroup {
        client_id: text("newer"),
        client_host: text("/10.0.0.9"),
        session_timeout_ms: 30_000,
        protocols: said,
        ..static_join("g", "", "i")
    });
    assert_eq!((back.error, back.generation), (ErrorCode::None, 1));
    for restart in [false, true] {
        if restart {
            host.crash();
        }
        let member = host.machine.described("g").unwrap().members.remove(0);
        assert_eq!((&*member.client_id, &*member.client_host), ("newer", "/10.0.0.9"));
        assert_eq!((member.metadata, member.assignment), (subscription(&["u"]), "x".into()));
        host.advance(29_999);
        assert_eq!(host.beat(beat("g", 1, &back.member_id)), ErrorCode::None);
    }
}

/// redpanda#4189: JoinGroup 5 was missing, and with it `group.instance.id`.
#[test]
fn item_8_static_members_from_version_5_on() {
    for version in 5..=9 {
        let mut host = Host::quick();
        let joined = host.join(JoinGroup { version, ..static_join("g", "", "i") });
        assert_eq!(joined.error, ErrorCode::None, "a static member needs no second round, version {version}");
        assert_eq!(joined.members[0].instance_id.as_deref(), Some("i"));
    }
}

/// Tansu gap 4; librdkafka 0099, 0140: the metadata of a commit was dropped.
#[test]
fn item_9_the_metadata_of_a_commit_comes_back() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    let mut request = commit("g", "t", &[(0, 12)]);
    request.topics[0].partitions[0].metadata = Some(text("metadata é"));
    host.commit(request);
    host.checkpoint();
    host.crash();
    let fetched = host.fetch(5, vec![fetch_group("g", Some(&[("t", &[0])]))]);
    assert_eq!(&*fetched[0].topics[0].partitions[0].metadata, "metadata é");
}

/// Tansu 8e60860: a retention time of -1 was used as a time.
#[test]
fn item_9_a_retention_time_of_minus_one_is_none() {
    let mut host = Host::quick();
    host.topics.create("t", 1);
    for version in 2..=4 {
        host.commit(CommitOffsets { version, retention_time_ms: -1, ..commit("g", "t", &[(0, 1)]) });
        host.advance(6 * 24 * 3_600_000);
        assert_eq!(host.fetch_all("g").len(), 1, "version {version}");
    }
}

/// mimir#15745: a recreated topic, and commits by id.
#[test]
fn item_22_commits_by_the_id_of_a_topic_that_was_created_again() {
    let mut host = Host::quick();
    let old = host.topics.create("t", 1);
    let by_id = |id| {
        let mut request = CommitOffsets { version: 10, ..commit("g", "", &[(0, 1)]) };
        request.topics[0].topic = TopicKey::Id(id);
        request
    };
    assert_eq!(host.commit(by_id(old)), [ErrorCode::None]);
    host.delete_topic("t");
    let new = host.topics.create("t", 1);
    assert_eq!(host.commit(by_id(old)), [ErrorCode::UnknownTopicId]);
    assert_eq!(host.commit(by_id(new)), [ErrorCode::None]);
    assert_eq!(host.fetch_all("g"), [("t".into(), 0, 1)]);
}

/// librdkafka#5541: `GROUP_ID_NOT_FOUND` is fatal to clients; joins and heartbeats never return it.
#[test]
fn item_23_group_id_not_found_is_not_for_members() {
    let mut host = Host::quick();
    let codes = [
        host.join(join("g", "m")).error,
        host.beat(beat("g", 1, "m")),
        host.sync(sync("g", 1, "m", &[])).error,
        host.leave("g", vec![leaving("m", None)]).members[0].1,
    ];
    assert_eq!(codes, [ErrorCode::UnknownMemberId; 4]);
}

/// kafkajs#463: protocol metadata of members is opaque, byte for byte.
#[test]
fn item_27_protocol_metadata_is_opaque() {
    let mut host = Host::new(GroupSettings::default());
    let bytes = |n: u8| bytes::Bytes::from(vec![n, 0xff, 0, n]);
    let said = |n| {
        let protocols = vec![
            Protocol { name: text("x"), metadata: bytes(n) },
            Protocol { name: text("y"), metadata: bytes(n + 100) },
        ];
        JoinGroup { protocols, ..join("g", "") }
    };
    let (first, a) = host.newcomer(said(1));
    let (second, b) = host.newcomer(said(2));
    host.advance(6_000);
    host.joined(b);
    let leader = host.joined(a);
    assert_eq!(leader.protocol_name.as_deref(), Some("x"));
    let mut seen: Vec<_> = leader.members.into_iter().map(|m| (m.member_id, m.metadata)).collect();
    seen.sort();
    let mut expected = vec![(first, bytes(1)), (second, bytes(2))];
    expected.sort();
    assert_eq!(seen, expected);
}
