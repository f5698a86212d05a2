//! Authorization of logged-in clients: every API, requested without rights, with the rights it requires, and with all of these but
//! one. The required rights are Kafka's (`KafkaApis`, `ControllerApis`, `AclApis`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{MachineId, Reply, Request as Ask, TopicConfig};
use polylogue_auth::Operation::{
    Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite, Read, Write,
};
use polylogue_auth::{Acl, Operation, PatternKind, Permission, Resource, ResourceKind, UsersCommand, UsersReply};
use polylogue_kafka::session::{CloseReason, supported_apis};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::create_acls::{AclCreation, CreateAclsRequest};
use polylogue_kafka_codec::create_topics::CreateTopicsRequest;
use polylogue_kafka_codec::describe_acls::DescribeAclsRequest;
use polylogue_kafka_codec::fetch::FetchRequest;
use polylogue_kafka_codec::find_coordinator::FindCoordinatorRequest;
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponseTopics,
};
use polylogue_kafka_codec::produce::ProduceRequest;
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;
use polylogue_kafka_codec::{ApiKey, ErrorCode, Request, StrBytes};
use session_host::broker::Broker;
use session_host::requests::{self, versions};
use session_host::users::Users;
use session_host::{Host, text, topic_id};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A right: an operation, a kind of resource, a name.
type Right = (Operation, ResourceKind, &'static str);

const TOPIC: ResourceKind = ResourceKind::Topic;
const GROUP: ResourceKind = ResourceKind::Group;
const CLUSTER: (ResourceKind, &str) = (ResourceKind::Cluster, "kafka-cluster");

const fn cluster(operation: Operation) -> Right {
    (operation, CLUSTER.0, CLUSTER.1)
}

/// The error codes of denied access.
const DENIED: [ErrorCode; 4] = [
    ErrorCode::TopicAuthorizationFailed,
    ErrorCode::GroupAuthorizationFailed,
    ErrorCode::ClusterAuthorizationFailed,
    ErrorCode::TransactionalIdAuthorizationFailed,
];

fn is_denied(code: i16) -> bool {
    DENIED.iter().any(|denied| denied.code() == code)
}

/// A connection of `user` with these rights.
fn logged_in(settings: KafkaSettings, rights: &[Right]) -> (Host, Arc<Users>) {
    let users = Arc::new(Users::default());
    rights.iter().for_each(|(operation, kind, name)| users.allow("user", *operation, Resource { kind: *kind, name }));
    let mut host = Host::with(settings).asking(users.clone());
    host.ask(1, &SaslHandshakeRequest { mechanism: text("PLAIN") });
    let token = SaslAuthenticateRequest { auth_bytes: bytes::Bytes::from_static(b"\0user\0pencil") };
    assert_eq!(host.ask(2, &token).error_code, 0);
    (host, users)
}

fn with(rights: &[Right]) -> Host {
    logged_in(KafkaSettings::default(), rights).0
}

/// Returns the response to a request, served by a broker that does everything.
fn served<R: Request>(host: &mut Host, version: i16, request: &R) -> R::Response {
    host.send(version, request);
    Broker::default().serve(host);
    host.response::<R>(version)
}

/// One row of the table: extracts the codes of a response, and names the rights that it requires.
fn walk<R: Request>(
    seen: &mut BTreeSet<i16>,
    request: fn(i16) -> R,
    codes: fn(&R::Response) -> Vec<i16>,
    rights: &[Right],
) {
    seen.insert(R::API_KEY.code());
    for version in versions(R::API_KEY) {
        let what = format!("{} {version}", R::API_KEY);
        let mut host = with(&[]);
        host.send(version, &request(version));
        let asked = host.asked();
        assert!(asked.is_empty(), "{what}: the broker is asked {asked:?}");
        let reported = codes(&host.response::<R>(version));
        assert!(!reported.is_empty() && reported.iter().all(|code| is_denied(*code)), "{what}: {reported:?}");
        let reported = codes(&served(&mut with(rights), version, &request(version)));
        assert!(!reported.iter().any(|code| is_denied(*code)), "{what} with all rights: {reported:?}");
        for left_out in rights {
            let others: Vec<_> = rights.iter().copied().filter(|right| right != left_out).collect();
            let reported = codes(&served(&mut with(&others), version, &request(version)));
            assert!(reported.iter().any(|code| is_denied(*code)), "{what} without {left_out:?}: {reported:?}");
        }
    }
}

/// APIs that require no right: they return public data, or are filtered.
const FREE: [ApiKey; 5] = [
    ApiKey::ApiVersions,
    ApiKey::SaslHandshake,
    ApiKey::SaslAuthenticate,
    ApiKey::DescribeCluster,
    // Filtered, see below.
    ApiKey::ListGroups,
];

#[test]
fn each_api_needs_its_rights_and_without_them_nothing_is_told_or_changed() {
    let mut seen = BTreeSet::new();
    let s = &mut seen;
    data(s);
    groups(s);
    topics(s);
    configs(s);
    cluster_apis(s);
    let left: Vec<_> =
        supported_apis().map(|api| api.key).filter(|key| !seen.contains(&key.code()) && !FREE.contains(key)).collect();
    assert_eq!(left, [], "every API has its row");
}

fn data(s: &mut BTreeSet<i16>) {
    walk(
        s,
        requests::produce,
        |r| r.responses.iter().flat_map(|t| &t.partition_responses).map(|p| p.error_code).collect(),
        &[(Write, TOPIC, "a")],
    );
    walk(
        s,
        requests::fetch,
        |r| r.responses.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect(),
        &[(Read, TOPIC, "a")],
    );
    walk(
        s,
        requests::list_offsets,
        |r| r.topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect(),
        &[(Describe, TOPIC, "a")],
    );
    walk(
        s,
        requests::offset_for_leader_epoch,
        |r| r.topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect(),
        &[(Describe, TOPIC, "a")],
    );
    walk(
        s,
        requests::delete_records,
        |r| r.topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect(),
        &[(Delete, TOPIC, "a")],
    );
    walk(
        s,
        requests::describe_producers,
        |r| r.topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect(),
        &[(Read, TOPIC, "a")],
    );
    walk(s, requests::init_producer_id, |r| vec![r.error_code], &[cluster(IdempotentWrite)]);
}

fn groups(s: &mut BTreeSet<i16>) {
    let [read, describe, delete] = [Read, Describe, Delete].map(|operation| (operation, GROUP, "g"));
    let [describe_h, delete_h] = [Describe, Delete].map(|operation| (operation, GROUP, "h"));
    walk(s, requests::join_group, |r| vec![r.error_code], &[read]);
    walk(s, requests::sync_group, |r| vec![r.error_code], &[read]);
    walk(s, requests::heartbeat, |r| vec![r.error_code], &[read]);
    walk(s, requests::leave_group, |r| vec![r.error_code], &[read]);
    walk(
        s,
        requests::offset_commit,
        |r| r.topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).collect(),
        &[read, (Read, TOPIC, "a")],
    );
    walk(
        s,
        requests::offset_fetch,
        |r| {
            let one = r.topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code);
            let many = r.groups.iter().flat_map(|g| &g.topics).flat_map(|t| &t.partitions).map(|p| p.error_code);
            let whole = [r.error_code].into_iter().chain(r.groups.iter().map(|g| g.error_code));
            one.chain(many).chain(whole).filter(|code| *code != 0).collect()
        },
        &[describe, (Describe, TOPIC, "a")],
    );
    walk(
        s,
        |version| match version {
            0..4 => requests::find_coordinator(version),
            _ => FindCoordinatorRequest { coordinator_keys: vec![text("g")], ..FindCoordinatorRequest::default() },
        },
        |r| match &r.coordinators[..] {
            [] => vec![r.error_code],
            many => many.iter().map(|c| c.error_code).collect(),
        },
        &[describe],
    );
    walk(s, requests::consumer_group_heartbeat, |r| vec![r.error_code], &[read, (Describe, TOPIC, "a")]);
    walk(
        s,
        requests::consumer_group_describe,
        |r| r.groups.iter().map(|g| g.error_code).collect(),
        &[describe, describe_h, (Describe, TOPIC, "a")],
    );
    walk(s, requests::describe_groups, |r| r.groups.iter().map(|g| g.error_code).collect(), &[describe, describe_h]);
    walk(s, requests::delete_groups, |r| r.results.iter().map(|g| g.error_code).collect(), &[delete, delete_h]);
    walk(
        s,
        requests::offset_delete,
        |r| {
            let rows = r.topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code);
            rows.chain([r.error_code]).filter(|code| *code != 0).collect()
        },
        &[delete, (Read, TOPIC, "a")],
    );
}

fn topics(s: &mut BTreeSet<i16>) {
    walk(s, requests::metadata, |r| r.topics.iter().map(|t| t.error_code).collect(), &[(Describe, TOPIC, "a")]);
    walk(
        s,
        requests::describe_topic_partitions,
        |r| r.topics.iter().map(|t| t.error_code).collect(),
        &[(Describe, TOPIC, "a"), (Describe, TOPIC, "b")],
    );
    walk(s, requests::create_topics, |r| r.topics.iter().map(|t| t.error_code).collect(), &[(Create, TOPIC, "new")]);
    walk(s, requests::delete_topics, |r| r.responses.iter().map(|t| t.error_code).collect(), &[(Delete, TOPIC, "a")]);
    walk(
        s,
        requests::create_partitions,
        |r| r.results.iter().map(|t| t.error_code).collect(),
        &[(Alter, TOPIC, "a"), (Alter, TOPIC, "b")],
    );
}

fn configs(s: &mut BTreeSet<i16>) {
    let rights = |operation| [(operation, TOPIC, "a"), cluster(operation), (operation, GROUP, "g")];
    walk(
        s,
        requests::describe_configs,
        |r| r.results.iter().map(|row| row.error_code).collect(),
        &rights(DescribeConfigs),
    );
    walk(s, requests::alter_configs, |r| r.responses.iter().map(|row| row.error_code).collect(), &rights(AlterConfigs));
    walk(
        s,
        requests::incremental_alter_configs,
        |r| r.responses.iter().map(|row| row.error_code).collect(),
        &rights(AlterConfigs),
    );
    walk(s, requests::list_config_resources, |r| vec![r.error_code], &[cluster(DescribeConfigs)]);
}

fn cluster_apis(s: &mut BTreeSet<i16>) {
    walk(s, requests::describe_acls, |r| vec![r.error_code], &[cluster(Describe)]);
    walk(s, requests::create_acls, |r| r.results.iter().map(|row| row.error_code).collect(), &[cluster(Alter)]);
    walk(s, requests::delete_acls, |r| r.filter_results.iter().map(|row| row.error_code).collect(), &[cluster(Alter)]);
    walk(s, requests::describe_client_quotas, |r| vec![r.error_code], &[cluster(DescribeConfigs)]);
    walk(
        s,
        requests::alter_client_quotas,
        |r| r.entries.iter().map(|row| row.error_code).collect(),
        &[cluster(AlterConfigs)],
    );
    walk(s, requests::describe_user_scram_credentials, |r| vec![r.error_code], &[cluster(Describe)]);
    walk(
        s,
        requests::alter_user_scram_credentials,
        |r| r.results.iter().map(|row| row.error_code).collect(),
        &[cluster(Alter)],
    );
    walk(s, requests::describe_quorum, |r| vec![r.error_code], &[cluster(Describe)]);
    walk(s, requests::update_features, |r| vec![r.error_code], &[cluster(Alter)]);
    // Before version 3 there is no error field.
    let mut host = with(&[]);
    for version in [1, 2] {
        assert!(host.ask(version, &requests::describe_log_dirs(version)).results.is_empty());
    }
    for version in 3..=5 {
        let mut host = with(&[]);
        assert!(is_denied(host.ask(version, &requests::describe_log_dirs(version)).error_code));
        assert!(host.asked().is_empty());
        let reported = served(&mut with(&[cluster(Describe)]), version, &requests::describe_log_dirs(version));
        assert_eq!((reported.error_code, reported.results.len()), (0, 1));
    }
    s.insert(ApiKey::DescribeLogDirs.code());
}

/// Nothing is denied where no login is required.
#[test]
fn where_nobody_logs_in_everybody_may_do_everything() {
    let mut host = Host::new();
    let reported = served(&mut host, 13, &requests::metadata(13));
    assert_eq!(reported.topics[0].error_code, 0);
    assert_eq!(host.ask(3, &requests::describe_acls(3)).error_code, 0);
}

#[test]
fn all_topics_are_those_that_the_client_may_see() {
    let all = MetadataRequest { topics: None, ..requests::metadata(13) };
    let names = |host: &mut Host| -> Vec<String> {
        host.ask(13, &all).topics.iter().map(|topic| topic.name.as_ref().unwrap().to_string()).collect()
    };
    assert!(names(&mut with(&[])).is_empty());
    assert_eq!(names(&mut with(&[(Write, TOPIC, "b")])), ["b"], "who may write may see");
    assert_eq!(names(&mut with(&[(Operation::All, TOPIC, "*")])), ["a", "b"]);
    let request = polylogue_kafka_codec::describe_topic_partitions::DescribeTopicPartitionsRequest {
        topics: vec![],
        ..requests::describe_topic_partitions(0)
    };
    let reported = with(&[(Read, TOPIC, "b")]).ask(0, &request);
    let rows: Vec<_> = reported.topics.iter().map(|topic| (topic.name.as_deref(), topic.error_code)).collect();
    assert_eq!(rows, [(Some("b"), 0)]);
}

/// A topic id is not confidential; the name is.
#[test]
fn a_name_is_not_told_by_its_id() {
    let by_id = MetadataRequestTopic { topic_id: session_host::topic_id(1), name: None };
    let reported = with(&[]).ask(13, &MetadataRequest { topics: Some(vec![by_id]), ..requests::metadata(13) });
    let row = &reported.topics[0];
    assert_eq!((row.error_code, &row.name), (ErrorCode::TopicAuthorizationFailed.code(), &None));
    let reported = with(&[]).ask(6, &requests::delete_topics(6));
    assert_eq!(reported.responses[0].name, None);
    let reported = with(&[(Describe, TOPIC, "a")]).ask(6, &requests::delete_topics(6));
    let row = &reported.responses[0];
    assert_eq!((row.name.as_deref(), row.error_code), (Some("a"), ErrorCode::TopicAuthorizationFailed.code()));
}

/// Regression test: a client could probe for existing names.
#[test]
fn what_is_not_there_is_told_like_what_is_not_allowed() {
    let mut host = with(&[]);
    let ask = |name: &str| MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(text(name)), ..MetadataRequestTopic::default() }]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let [there, not_there] = ["a", "nowhere"].map(|name| host.ask(13, &ask(name)).topics[0].error_code);
    assert_eq!([there, not_there], [ErrorCode::TopicAuthorizationFailed.code(); 2]);
    let mut produce = requests::produce(12);
    produce.topic_data[0].name = text("nowhere");
    let reported = host.ask(12, &produce);
    assert_eq!(reported.responses[0].partition_responses[0].error_code, ErrorCode::TopicAuthorizationFailed.code());
}

#[test]
fn topics_are_made_by_asking_only_by_who_may_make_them() {
    let ask = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(text("new")), ..MetadataRequestTopic::default() }]),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    };
    let describe = (Describe, TOPIC, "new");
    for rights in [vec![], vec![(Create, TOPIC, "new")], vec![describe]] {
        let mut host = with(&rights);
        let reported = host.ask(12, &ask).topics[0].error_code;
        assert_eq!(reported, ErrorCode::TopicAuthorizationFailed.code(), "{rights:?}");
        assert!(host.asked().is_empty());
    }
    for create in [(Create, TOPIC, "new"), cluster(Create)] {
        assert_eq!(served(&mut with(&[describe, create]), 12, &ask).topics[0].error_code, 0);
    }
}

#[test]
fn configs_of_a_new_topic_are_told_to_who_may_see_them() {
    let reported = |rights: &[Right]| {
        let mut reported: <CreateTopicsRequest as Request>::Response =
            served(&mut with(rights), 7, &requests::create_topics(7));
        reported.topics.remove(0)
    };
    let create = (Create, TOPIC, "new");
    let hidden = reported(&[create]);
    assert_eq!(hidden.topic_config_error_code, ErrorCode::TopicAuthorizationFailed.code());
    assert_eq!((hidden.error_code, hidden.num_partitions, hidden.configs), (0, -1, None));
    let shown = reported(&[create, (DescribeConfigs, TOPIC, "new")]);
    assert_eq!((shown.topic_config_error_code, shown.num_partitions), (0, 2));
    assert!(shown.configs.is_some_and(|configs| !configs.is_empty()));
}

#[test]
fn groups_are_listed_to_who_may_see_them() {
    let names = |rights: &[Right]| -> Vec<String> {
        let reported = served(&mut with(rights), 5, &requests::list_groups(5));
        reported.groups.iter().map(|group| group.group_id.to_string()).collect()
    };
    assert!(names(&[]).is_empty() && names(&[(Describe, GROUP, "other")]).is_empty());
    for right in [(Read, GROUP, "g"), cluster(Describe)] {
        assert_eq!(names(&[right]), ["g"]);
    }
}

/// KIP-679: a user with write access to any topic may be an idempotent producer.
#[test]
fn a_right_to_write_makes_an_idempotent_producer() {
    let reported = |rights: &[Right]| served(&mut with(rights), 5, &requests::init_producer_id(5)).error_code;
    assert_eq!(reported(&[(Write, TOPIC, "somewhere")]), 0);
    assert_eq!(reported(&[(Read, TOPIC, "somewhere")]), ErrorCode::ClusterAuthorizationFailed.code());
    let named = InitProducerIdRequest { transactional_id: Some(text("t")), ..requests::init_producer_id(5) };
    let reported = with(&[cluster(IdempotentWrite)]).ask(5, &named).error_code;
    assert_eq!(reported, ErrorCode::TransactionalIdAuthorizationFailed.code());
}

/// With acks=0 there is no response: the connection is closed.
#[test]
fn what_is_not_acknowledged_and_not_allowed_ends_the_connection() {
    let mut host = with(&[]);
    host.send(12, &ProduceRequest { acks: 0, ..requests::produce(12) });
    assert!(host.asked().is_empty());
    let denied = CloseReason::Produce { error: ErrorCode::TopicAuthorizationFailed };
    assert_eq!(host.close_reason(), Some(&denied));
}

#[test]
fn a_right_that_was_taken_back_counts_no_longer() {
    let (mut host, users) = logged_in(KafkaSettings::default(), &[(Read, TOPIC, "a")]);
    let fetch = FetchRequest { max_wait_ms: 0, session_id: 0, session_epoch: 0, ..requests::fetch(12) };
    let code = |reported: &<FetchRequest as Request>::Response| reported.responses[0].partitions[0].error_code;
    let reported = served(&mut host, 12, &fetch);
    assert_eq!((code(&reported), reported.session_id != 0), (ErrorCode::OffsetOutOfRange.code(), true));
    users.take_back("user", Read, Resource { kind: TOPIC, name: "a" });
    let next = FetchRequest { session_id: reported.session_id, session_epoch: 1, topics: vec![], ..fetch.clone() };
    let reported = served(&mut host, 12, &next);
    assert_eq!(code(&reported), ErrorCode::TopicAuthorizationFailed.code(), "in the session as well");
    let follower = FetchRequest { replica_id: 3, ..requests::fetch(12) };
    let reported = served(&mut with(&[(Read, TOPIC, "a")]), 12, &follower);
    assert_eq!(code(&reported), ErrorCode::TopicAuthorizationFailed.code());
    let reported = served(&mut with(&[cluster(ClusterAction)]), 12, &follower);
    assert_eq!(code(&reported), ErrorCode::NotLeaderOrFollower.code());
}

/// Offsets of all topics include only topics that the client may describe.
#[test]
fn topics_that_may_not_be_seen_are_left_out_of_all_offsets() {
    let all = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: text("g"),
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let mut host = with(&[(Describe, GROUP, "g"), (Describe, TOPIC, "b")]);
    host.send(9, &all);
    let (token, _) = host.asked_one();
    let topic = |name| polylogue_kafka_groups::command::FetchedTopic {
        name: text(name),
        id: polylogue_types::TopicId::ZERO,
        partitions: vec![],
    };
    let group = polylogue_kafka_groups::command::FetchedGroup {
        group_id: text("g"),
        error: ErrorCode::None,
        topics: vec![topic("a"), topic("b")],
    };
    let reply = polylogue_kafka_groups::command::GroupReply::FetchOffsets(vec![group]);
    host.reply(token, polylogue_api::Reply::Machine(Ok(Box::new(reply))));
    let reported = host.response::<OffsetFetchRequest>(9);
    let names: Vec<_> = reported.groups[0].topics.iter().map(|topic| &*topic.name).collect();
    assert_eq!(names, ["b"]);
}

/// Groups are returned in the order of the request. For each group the coordinator's topics come first, in the order of the request,
/// then those that Kafka's broker answers itself: unknown ids and topics without access.
#[test]
fn offsets_of_several_groups_are_in_kafkas_order() {
    use polylogue_kafka_groups::command::{FetchOffsets, FetchedGroup, FetchedTopic, GroupCommand, GroupReply};
    let topic = |number, partitions: &[i32]| OffsetFetchRequestTopics {
        topic_id: topic_id(number),
        partition_indexes: partitions.to_vec(),
        ..OffsetFetchRequestTopics::default()
    };
    let group = |name, topics| OffsetFetchRequestGroup {
        group_id: text(name),
        topics: Some(topics),
        ..OffsetFetchRequestGroup::default()
    };
    let topics = || vec![topic(99, &[1, 0]), topic(2, &[0]), topic(3, &[4, 2]), topic(1, &[2, 1])];
    let groups = vec![group("hidden", topics()), group("h", topics()), group("other", topics()), group("g", topics())];
    let rights = [(Describe, GROUP, "g"), (Describe, GROUP, "h"), (Describe, TOPIC, "a"), (Describe, TOPIC, "c")];
    let mut host = with(&rights);
    host.topics.add(3, "c", 9, TopicConfig::default());
    host.send(10, &OffsetFetchRequest { groups, ..OffsetFetchRequest::default() });
    let (token, Ask::Machine(_, command)) = host.asked_one() else { panic!("no command") };
    let GroupCommand::FetchOffsets(FetchOffsets { groups, .. }) = *command.downcast().unwrap() else { panic!() };
    let fetched = |topic: &polylogue_kafka_groups::command::FetchTopic| FetchedTopic {
        name: StrBytes::new(),
        id: topic.topic.parts().1,
        partitions: vec![],
    };
    let answer = |group: &polylogue_kafka_groups::command::FetchGroup| FetchedGroup {
        group_id: group.group_id.clone(),
        error: ErrorCode::None,
        topics: group.topics.iter().flatten().map(fetched).collect(),
    };
    let reply = GroupReply::FetchOffsets(groups.iter().map(answer).collect());
    host.reply(token, Reply::Machine(Ok(Box::new(reply))));
    let reported = host.response::<OffsetFetchRequest>(10);
    let denied = ErrorCode::GroupAuthorizationFailed.code();
    let groups: Vec<_> = reported.groups.iter().map(|group| (&*group.group_id, group.error_code)).collect();
    assert_eq!(groups, [("hidden", denied), ("h", 0), ("other", denied), ("g", 0)]);
    let (unknown, hidden) = (ErrorCode::UnknownTopicId.code(), ErrorCode::TopicAuthorizationFailed.code());
    for group in [&reported.groups[1], &reported.groups[3]] {
        let rows = |topic: &OffsetFetchResponseTopics| {
            let partitions: Vec<_> = topic.partitions.iter().map(|p| (p.partition_index, p.error_code)).collect();
            (topic.topic_id, partitions)
        };
        let expected = [
            (topic_id(3), vec![]),
            (topic_id(1), vec![]),
            (topic_id(99), vec![(1, unknown), (0, unknown)]),
            (topic_id(2), vec![(0, hidden)]),
        ];
        assert_eq!(group.topics.iter().map(rows).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn resources_without_bindings_are_everybodys_where_the_operator_says_so() {
    let settings = KafkaSettings { allow_without_acls: true, ..KafkaSettings::default() };
    let (mut host, users) = logged_in(settings, &[]);
    assert_eq!(host.ask(12, &requests::metadata(12)).topics[0].error_code, 0);
    assert_eq!(served(&mut host, 5, &requests::init_producer_id(5)).error_code, 0);
    users.allow("other", Read, Resource { kind: TOPIC, name: "a" });
    let reported = host.ask(12, &requests::metadata(12)).topics[0].error_code;
    assert_eq!(reported, ErrorCode::TopicAuthorizationFailed.code(), "now there is one");
    assert_eq!(served(&mut host, 5, &requests::init_producer_id(5)).error_code, 0, "there are other topics");
}

/// KIP-430.
#[test]
fn operations_are_those_that_the_client_may_do() {
    let ask = MetadataRequest {
        include_topic_authorized_operations: true,
        include_cluster_authorized_operations: true,
        ..requests::metadata(10)
    };
    let reported = with(&[(Read, TOPIC, "a"), (AlterConfigs, TOPIC, "a")]).ask(10, &ask);
    let bits = [Read, Describe, AlterConfigs, DescribeConfigs].iter().fold(0, |bits, one| bits | one.bit());
    let row = &reported.topics[0];
    assert_eq!((row.topic_authorized_operations, reported.cluster_authorized_operations), (bits.cast_signed(), 0));
    let reported = with(&[cluster(Describe), cluster(Create), (Read, TOPIC, "a")]).ask(10, &ask);
    let bits = Describe.bit() | Create.bit();
    assert_eq!(reported.cluster_authorized_operations, bits.cast_signed());
    let reported = with(&[cluster(Describe)]).ask(2, &requests::describe_cluster(2));
    assert_eq!(reported.cluster_authorized_operations, Describe.bit().cast_signed());
    let groups = served(&mut with(&[(Describe, GROUP, "g")]), 5, &requests::describe_groups(5));
    let rows: Vec<_> = groups.groups.iter().map(|g| (&*g.group_id, g.authorized_operations)).collect();
    assert_eq!(rows, [("g", Describe.bit().cast_signed()), ("h", i32::MIN)]);
}

fn creation(change: impl FnOnce(&mut AclCreation)) -> AclCreation {
    let mut creation = requests::create_acls(3).creations.remove(0);
    change(&mut creation);
    creation
}

#[test]
fn bindings_are_made_each_by_itself() {
    let mut host = with(&[cluster(Alter)]);
    let creations = vec![
        creation(|_| ()),
        creation(|c| c.resource_type = 1),
        creation(|c| c.resource_pattern_type = 2),
        creation(|c| c.operation = 1),
        creation(|c| c.permission_type = 1),
        creation(|c| c.resource_type = 4),
        creation(|c| c.principal = text("alice")),
        creation(|c| c.resource_name = text("b")),
    ];
    host.send(3, &CreateAclsRequest { creations });
    let (token, Ask::Machine(MachineId::AMQP, command)) = host.asked_one() else { panic!("no command") };
    let UsersCommand::CreateAcls(acls) = *command.downcast::<UsersCommand>().unwrap() else {
        panic!("another command")
    };
    let read = |name: &str| Acl {
        kind: TOPIC,
        name: name.to_owned(),
        pattern: PatternKind::Prefixed,
        principal: "User:*".to_owned(),
        host: "*".to_owned(),
        operation: Read,
        permission: Permission::Allow,
    };
    assert_eq!(acls, [read("a"), read("b")]);
    let full = polylogue_auth::UsersRefusal::Refused("there can be at most 1 ACLs".to_owned());
    let answer = UsersReply::Each(vec![Ok(()), Err(full)]);
    host.reply(token, polylogue_api::Reply::Machine(Ok(Box::new(answer))));
    let reported = host.response::<CreateAclsRequest>(3);
    let rows: Vec<_> = reported
        .results
        .iter()
        .map(|row| (ErrorCode::from_code(row.error_code).unwrap(), row.error_message.as_deref().unwrap_or_default()))
        .collect();
    let invalid = ErrorCode::InvalidRequest;
    assert_eq!(
        rows,
        [
            (ErrorCode::None, ""),
            (invalid, "Invalid resourceType 1"),
            (invalid, "Invalid patternType 2"),
            (invalid, "Invalid operation 1"),
            (invalid, "Invalid permissionType 1"),
            (invalid, "The only valid name for the CLUSTER resource is kafka-cluster"),
            (
                invalid,
                "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)"
            ),
            (ErrorCode::PolicyViolation, "there can be at most 1 ACLs"),
        ]
    );
}

#[test]
fn bindings_are_shown_by_resource_and_deleted_by_filters() {
    let rights = [cluster(Describe), cluster(Alter), (Read, TOPIC, "a"), (Write, TOPIC, "a"), (Read, GROUP, "g")];
    let mut host = with(&rights);
    let reported = host.ask(3, &requests::describe_acls(3));
    let rows: Vec<_> =
        reported.resources.iter().map(|r| (r.resource_type, &*r.resource_name, r.pattern_type, r.acls.len())).collect();
    assert_eq!(rows, [(2, "a", 3, 2), (3, "g", 3, 1), (4, "kafka-cluster", 3, 2)]);
    let acl = &reported.resources[0].acls[1];
    assert_eq!((&*acl.principal, &*acl.host, acl.operation, acl.permission_type), ("User:user", "*", 4, 3));
    let of_group = DescribeAclsRequest { resource_type_filter: 3, ..requests::describe_acls(3) };
    assert_eq!(host.ask(3, &of_group).resources.len(), 1);
    let wrong = DescribeAclsRequest { operation: 0, ..requests::describe_acls(3) };
    let reported = host.ask(3, &wrong);
    assert_eq!(reported.error_code, ErrorCode::InvalidRequest.code());
    assert_eq!(reported.error_message.as_deref(), Some("Invalid operation 0"));
    let reported = served(&mut host, 3, &requests::delete_acls(3));
    let rows: Vec<_> = reported.filter_results.iter().map(|row| (row.error_code, row.matching_acls.len())).collect();
    assert_eq!(rows, [(0, 1), (0, 0)]);
    let acl = &reported.filter_results[0].matching_acls[0];
    assert_eq!((&*acl.resource_name, acl.pattern_type, acl.operation), ("a", 4, 3));
}
