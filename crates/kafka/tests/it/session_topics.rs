//! Metadata, CreateTopics, DeleteTopics, InitProducerId and FindCoordinator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{
    CreatedTopic, DeletedTopic, NewTopic, Reply, Request as Ask, Token, TopicConfig, TopicError, TopicRef, Unavailable,
};
use polylogue_kafka::config::Fixed;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use polylogue_kafka_codec::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use polylogue_kafka_codec::find_coordinator::FindCoordinatorRequest;
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::TopicId;
use session_host::{Host, NODE, text, topic_id};
use std::sync::Arc;

/// Kafka's topic for committed offsets.
const OFFSETS: &str = "__consumer_offsets";

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap()
}

fn metadata(names: &[&str], create: bool) -> MetadataRequest {
    let topic = |name: &&str| MetadataRequestTopic { name: Some(text(name)), ..MetadataRequestTopic::default() };
    MetadataRequest {
        topics: Some(names.iter().map(topic).collect()),
        allow_auto_topic_creation: create,
        ..MetadataRequest::default()
    }
}

fn by_id(ids: &[TopicId]) -> MetadataRequest {
    let topic = |id: &TopicId| MetadataRequestTopic { name: None, topic_id: *id };
    MetadataRequest { topics: Some(ids.iter().map(topic).collect()), ..MetadataRequest::default() }
}

/// Error and name of each topic.
fn reported(response: &MetadataResponse) -> Vec<(ErrorCode, Option<&str>)> {
    response.topics.iter().map(|topic| (code(topic.error_code), topic.name.as_deref())).collect()
}

fn creating(host: &mut Host) -> (Token, Vec<NewTopic>, bool) {
    match host.asked_one() {
        (token, Ask::CreateTopics(create)) => (token, create.topics, create.validate_only),
        other => panic!("{other:?}"),
    }
}

#[test]
fn which_topics_are_meant() {
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let none = MetadataRequest { topics: Some(vec![]), ..MetadataRequest::default() };
    let both = [(ErrorCode::None, Some("a")), (ErrorCode::None, Some("b"))];
    assert_eq!(reported(&Host::new().ask(1, &all)), both);
    assert!(reported(&Host::new().ask(1, &none)).is_empty());
    // Version 0 has no null; an empty list means all.
    let mut none = none;
    none.allow_auto_topic_creation = true;
    assert_eq!(reported(&Host::new().ask(0, &none)), both);
    // Each once.
    assert_eq!(reported(&Host::new().ask(9, &metadata(&["b", "a", "b"], false))), [both[1], both[0]]);
}

#[test]
fn topics_by_id() {
    let mut host = Host::new();
    let response = host.ask(12, &by_id(&[topic_id(2), topic_id(99), topic_id(2)]));
    assert_eq!(reported(&response), [(ErrorCode::None, Some("b")), (ErrorCode::UnknownTopicId, None)]);
    assert_eq!(response.topics[1].topic_id, topic_id(99));
    // One id makes it a request by ids.
    let mut mixed = by_id(&[topic_id(1)]);
    mixed.topics.as_mut().unwrap().push(MetadataRequestTopic { name: Some(text("b")), topic_id: TopicId::ZERO });
    assert_eq!(reported(&host.ask(12, &mixed)), [(ErrorCode::None, Some("a"))]);
    // Versions 10 and 11 have ids, which are not supported.
    for version in [10, 11] {
        let mut early = metadata(&["a"], false);
        early.topics.as_mut().unwrap()[0].topic_id = topic_id(1);
        assert_eq!(reported(&Host::new().ask(version, &early)), [(ErrorCode::InvalidRequest, Some("a"))]);
        assert_eq!(
            reported(&Host::new().ask(version, &by_id(&[topic_id(1)]))),
            [(ErrorCode::InvalidRequest, Some(""))]
        );
    }
}

#[test]
fn operations_are_told_when_they_are_asked_for() {
    for (version, cluster) in [(8, 8_096), (10, 8_096), (11, i32::MIN)] {
        let mut request = metadata(&["a"], false);
        request.include_topic_authorized_operations = true;
        request.include_cluster_authorized_operations = version <= 10;
        let response = Host::new().ask(version, &request);
        assert_eq!(response.topics[0].topic_authorized_operations, 3_576);
        assert_eq!(response.cluster_authorized_operations, cluster);
    }
    let plain = Host::new().ask(9, &metadata(&["a"], false));
    assert_eq!(
        (plain.topics[0].topic_authorized_operations, plain.cluster_authorized_operations),
        (i32::MIN, i32::MIN)
    );
}

#[test]
fn asking_for_a_topic_creates_it() {
    let settings = KafkaSettings { partitions_default: 4, ..KafkaSettings::default() };
    let mut host = Host::with(settings);
    host.send(9, &metadata(&["a", "new", "bad name"], true));
    let (token, topics, validate_only) = creating(&mut host);
    assert!(!validate_only);
    assert_eq!((topics.len(), &*topics[0].name, topics[0].partitions, topics[0].internal), (1, "new", 4, false));
    assert_eq!(topics[0].config, TopicConfig::default());
    host.no_response();
    let topic = host.topics.add(9, "new", 4, TopicConfig::default());
    host.topics.remove("new");
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic })]));
    let response = host.response::<MetadataRequest>(9);
    let expected = [
        (ErrorCode::None, Some("a")),
        (ErrorCode::None, Some("new")),
        (ErrorCode::InvalidTopicException, Some("bad name")),
    ];
    assert_eq!(reported(&response), expected);
    assert_eq!(response.topics[1].partitions.len(), 4);
}

#[test]
fn asking_for_a_topic_need_not_create_it() {
    let unknown = [(ErrorCode::UnknownTopicOrPartition, Some("new"))];
    // The client disallows it.
    assert_eq!(reported(&Host::new().ask(4, &metadata(&["new"], false))), unknown);
    // The operator disallows it.
    let mut host = Host::with(KafkaSettings { auto_create_topics: false, ..KafkaSettings::default() });
    assert_eq!(reported(&host.ask(9, &metadata(&["new"], true))), unknown);
    // Names of Kafka's internal topics.
    let reserved = Host::new().ask(9, &metadata(&[OFFSETS], true));
    assert_eq!(reported(&reserved), [(ErrorCode::UnknownTopicOrPartition, Some(OFFSETS))]);
    // Before version 4 creation could not be disallowed.
    let mut host = Host::new();
    host.send(3, &metadata(&["new"], true));
    creating(&mut host);
}

#[test]
fn a_topic_that_cannot_be_created_is_an_error_that_clients_retry() {
    for (error, expected) in [
        (TopicError::Unavailable(Unavailable::Busy), ErrorCode::LeaderNotAvailable),
        (TopicError::Unavailable(Unavailable::StorageFull), ErrorCode::LeaderNotAvailable),
        (TopicError::TooManyPartitions { partitions_max: 5 }, ErrorCode::UnknownTopicOrPartition),
        (TopicError::Exists, ErrorCode::LeaderNotAvailable),
    ] {
        let mut host = Host::new();
        host.send(9, &metadata(&["new"], true));
        let (token, ..) = creating(&mut host);
        host.reply(token, Reply::CreateTopics(vec![Err(error)]));
        assert_eq!(reported(&host.response::<MetadataRequest>(9)), [(expected, Some("new"))]);
        assert!(expected.retriable());
    }
    // Created by another client.
    let mut host = Host::new();
    host.send(9, &metadata(&["new"], true));
    let (token, ..) = creating(&mut host);
    host.topics.add(9, "new", 1, TopicConfig::default());
    host.reply(token, Reply::CreateTopics(vec![Err(TopicError::Exists)]));
    assert_eq!(reported(&host.response::<MetadataRequest>(9)), [(ErrorCode::None, Some("new"))]);
}

fn topic(name: &str) -> CreatableTopic {
    CreatableTopic { name: text(name), num_partitions: 1, replication_factor: 1, ..CreatableTopic::default() }
}

fn create(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest { topics, timeout_ms: 1_000, validate_only: false }
}

/// Returns error and text of the only topic.
fn refusal(topic: CreatableTopic) -> (ErrorCode, String) {
    let mut host = Host::new();
    let response = host.ask(7, &create(vec![topic]));
    assert!(host.asked().is_empty());
    let row = &response.topics[0];
    assert_eq!((row.num_partitions, row.replication_factor, row.topic_id), (-1, -1, TopicId::ZERO));
    (code(row.error_code), row.error_message.as_deref().unwrap().to_owned())
}

#[test]
fn names_of_new_topics() {
    assert_eq!(refusal(topic("")).0, ErrorCode::InvalidTopicException);
    let (error, text) = refusal(topic("a/b"));
    assert_eq!(error, ErrorCode::InvalidTopicException);
    assert!(text.starts_with("Topic name is invalid: 'a/b' contains"), "{text}");
    let exists = (ErrorCode::TopicAlreadyExists, "Topic 'a' already exists.".to_owned());
    assert_eq!(refusal(topic("a")), exists);
    assert_eq!(refusal(topic("__cluster_metadata")).0, ErrorCode::InvalidRequest);
    let mut host = Host::new();
    host.topics.add(9, "x.y_z", 1, TopicConfig::default());
    let response = host.ask(7, &create(vec![topic("x_y.z")]));
    let text = response.topics[0].error_message.as_deref();
    assert_eq!(text, Some("Topic 'x_y.z' collides with existing topic: x.y_z"));
    assert_eq!(code(response.topics[0].error_code), ErrorCode::InvalidTopicException);
}

#[test]
fn counts_of_new_topics() {
    let of = |num_partitions, replication_factor| CreatableTopic { num_partitions, replication_factor, ..topic("n") };
    for bad in [0, -2, i32::MIN] {
        assert_eq!(refusal(of(bad, 1)).0, ErrorCode::InvalidPartitions);
    }
    for bad in [0, -2] {
        assert_eq!(refusal(of(1, bad)).0, ErrorCode::InvalidReplicationFactor);
    }
    let text = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached \
                because only 1 broker(s) are registered or some brokers have all their log directories cordoned.";
    assert_eq!(refusal(of(1, 3)), (ErrorCode::InvalidReplicationFactor, text.to_owned()));
    let text = "Excessively large number of partitions per request.";
    assert_eq!(refusal(of(10_001, 1)), (ErrorCode::PolicyViolation, text.to_owned()));
    assert_eq!(refusal(of(i32::MAX, 1)).0, ErrorCode::PolicyViolation);
    let mut host = Host::with(KafkaSettings { partitions_default: 5, ..KafkaSettings::default() });
    host.send(7, &create(vec![of(-1, -1)]));
    assert_eq!(creating(&mut host).1[0].partitions, 5);
}

#[test]
fn assignments_of_new_topics() {
    let of = |assignments: &[(i32, &[i32])]| CreatableTopic {
        num_partitions: -1,
        replication_factor: -1,
        assignments: assignments
            .iter()
            .map(|(partition_index, brokers)| CreatableReplicaAssignment {
                partition_index: *partition_index,
                broker_ids: brokers.to_vec(),
            })
            .collect(),
        ..topic("n")
    };
    let mut host = Host::new();
    host.send(7, &create(vec![of(&[(1, &[NODE]), (0, &[NODE])])]));
    assert_eq!(creating(&mut host).1[0].partitions, 2);
    for (bad, expected) in [
        (of(&[(0, &[NODE]), (2, &[NODE])]), "partitions should be a consecutive 0-based integer sequence"),
        (of(&[(1, &[NODE])]), "partitions should be a consecutive 0-based integer sequence"),
        (of(&[(0, &[NODE]), (0, &[NODE])]), "Found multiple manual partition assignments for partition 0"),
        (of(&[(0, &[])]), "The manual partition assignment includes an empty replica list."),
        (of(&[(0, &[1])]), "The manual partition assignment includes broker 1, but no such broker is registered."),
        (of(&[(0, &[NODE, NODE])]), "The manual partition assignment includes the broker 7 more than once."),
    ] {
        assert_eq!(refusal(bad), (ErrorCode::InvalidReplicaAssignment, expected.to_owned()));
    }
    let good = of(&[(0, &[NODE])]);
    assert_eq!(refusal(CreatableTopic { num_partitions: 1, ..good.clone() }).0, ErrorCode::InvalidRequest);
    assert_eq!(refusal(CreatableTopic { replication_factor: 1, ..good }).0, ErrorCode::InvalidRequest);
}

#[test]
fn configs_of_new_topics() {
    let config = |name: &str, value: Option<&str>| CreatableTopicConfig { name: text(name), value: value.map(text) };
    let of = |configs| CreatableTopic { configs, ..topic("n") };
    let (error, message) = refusal(of(vec![config("no.such.config", Some("1"))]));
    assert_eq!((error, &*message), (ErrorCode::InvalidConfig, "Unknown topic config name: no.such.config"));
    let (error, message) = refusal(of(vec![config("retention.ms", None), config("segment.ms", None)]));
    assert_eq!(error, ErrorCode::InvalidConfig);
    assert_eq!(message, "Null value not supported for topic configs: retention.ms,segment.ms");
    assert_eq!(refusal(of(vec![config("retention.ms", Some("soon"))])).0, ErrorCode::InvalidConfig);

    let mut host = Host::new();
    host.send(7, &create(vec![of(vec![config("retention.ms", Some("60000"))])]));
    let (token, topics, _) = creating(&mut host);
    assert_eq!(topics[0].config.retention_ms, Some(60_000));
    let topic = host.topics.add(9, "n", 1, topics[0].config.clone());
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic })]));
    let response = host.response::<CreateTopicsRequest>(7);
    let configs = response.topics[0].configs.as_ref().unwrap();
    let value = |name: &str| {
        let config = configs.iter().find(|config| *config.name == *name).unwrap();
        (config.value.as_deref().unwrap(), config.config_source)
    };
    // Dynamic topic config, default config.
    assert_eq!(value("retention.ms"), ("60000", 1));
    assert_eq!(value("cleanup.policy"), ("delete", 5));
    assert!(configs.is_sorted_by(|a, b| a.name < b.name));
}

/// Returns the names of the configs in the response to a creation.
fn told_configs(set: &[(&str, &str)]) -> Vec<String> {
    let config = |(name, value): &(&str, &str)| CreatableTopicConfig { name: text(name), value: Some(text(value)) };
    let mut host = Host::new();
    host.send(7, &create(vec![CreatableTopic { configs: set.iter().map(config).collect(), ..topic("n") }]));
    let (token, topics, _) = creating(&mut host);
    let topic = host.topics.add(9, "n", 1, topics[0].config.clone());
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic })]));
    let response = host.response::<CreateTopicsRequest>(7);
    response.topics[0].configs.as_ref().unwrap().iter().map(|config| config.name.to_string()).collect()
}

/// Regression test: clients that know Kafka's configs got one of polylogue's in the response, and one of Kafka's was refused.
#[test]
fn the_answer_to_a_creation_tells_kafkas_configs() {
    let kafka: Vec<&str> = include_str!("../../src/config/topic_configs.tsv")
        .lines()
        .filter(|line| !line.starts_with('#') && line.split('\t').nth(5) == Some("false"))
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(told_configs(&[]), kafka);
    let set = [("polylogue.durability", "async"), ("internal.segment.bytes", "1000")];
    let reported = told_configs(&set);
    assert_eq!(reported.len(), kafka.len() + 2);
    assert!(
        set.iter().all(|(name, _)| reported.iter().any(|reported| reported == name)),
        "what the client has set is reported: {reported:?}"
    );
}

/// As in Kafka, administrators may create the topics of its coordinators, but not its metadata topic.
#[test]
fn internal_topics_can_be_created() {
    for name in ["__consumer_offsets", "__transaction_state", "__share_group_state"] {
        let mut host = Host::new();
        host.send(7, &create(vec![topic(name)]));
        let (_, topics, _) = creating(&mut host);
        assert_eq!((&*topics[0].name, topics[0].internal), (name, true));
    }
    let text = "Creation of internal topic __cluster_metadata is prohibited.";
    assert_eq!(refusal(topic("__cluster_metadata")), (ErrorCode::InvalidRequest, text.to_owned()));
    let mut host = Host::new();
    host.send(7, &create(vec![topic("__other")]));
    assert!(!creating(&mut host).1[0].internal);
}

/// Error and name of each row.
fn created(response: &CreateTopicsResponse) -> Vec<(&str, ErrorCode)> {
    response.topics.iter().map(|row| (&*row.name, code(row.error_code))).collect()
}

#[test]
fn each_new_topic_by_itself() {
    let mut host = Host::new();
    let mut request = create(vec![topic("one"), topic("a"), topic("two"), topic("twice"), topic("twice")]);
    request.validate_only = true;
    host.send(7, &request);
    let (token, topics, validate_only) = creating(&mut host);
    assert!(validate_only);
    assert_eq!(topics.iter().map(|t| &*t.name).collect::<Vec<_>>(), ["one", "two"]);
    let one = host.topics.add(9, "one", 1, TopicConfig::default());
    let too_many = TopicError::TooManyPartitions { partitions_max: 9 };
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic: one }), Err(too_many)]));
    let response = host.response::<CreateTopicsRequest>(7);
    let expected = [
        ("one", ErrorCode::None),
        ("a", ErrorCode::TopicAlreadyExists),
        ("two", ErrorCode::InvalidPartitions),
        ("twice", ErrorCode::InvalidRequest),
    ];
    assert_eq!(created(&response), expected);
    let text = response.topics[2].error_message.as_deref().unwrap();
    assert!(text.contains("9 partitions"), "{text}");
}

fn delete(names: &[&str]) -> DeleteTopicsRequest {
    DeleteTopicsRequest { topic_names: names.iter().map(|n| text(n)).collect(), ..DeleteTopicsRequest::default() }
}

fn deleted(response: &DeleteTopicsResponse) -> Vec<(Option<&str>, TopicId, ErrorCode)> {
    let row = |row: &polylogue_kafka_codec::delete_topics::DeletableTopicResult| {
        (row.name.clone(), row.topic_id, code(row.error_code))
    };
    let mut rows: Vec<_> = response.responses.iter().map(row).collect();
    rows.sort();
    rows.into_iter()
        .map(|(name, id, code)| {
            let name = response.responses.iter().find_map(|r| (r.name == name).then_some(r.name.as_deref()));
            (name.unwrap(), id, code)
        })
        .collect()
}

#[test]
fn topics_are_deleted_by_name() {
    let mut host = Host::new();
    host.send(5, &delete(&["a", "nowhere", "b", "b"]));
    let (token, Ask::DeleteTopics(asked)) = host.asked_one() else { panic!() };
    assert_eq!(asked.topics, [TopicRef::Id(topic_id(1))]);
    let done = DeletedTopic { name: "a".into(), id: topic_id(1) };
    host.reply(token, Reply::DeleteTopics(vec![Ok(done)]));
    let response = host.response::<DeleteTopicsRequest>(5);
    let expected = [
        (Some("a"), TopicId::ZERO, ErrorCode::None),
        (Some("b"), TopicId::ZERO, ErrorCode::InvalidRequest),
        (Some("nowhere"), TopicId::ZERO, ErrorCode::UnknownTopicOrPartition),
    ];
    assert_eq!(deleted(&response), expected);
    assert!(response.responses.iter().all(|row| row.error_message.is_some() == (row.error_code != 0)));
}

#[test]
fn topics_are_deleted_by_id() {
    let mut host = Host::new();
    let state = |name: Option<&str>, topic_id| DeleteTopicState { name: name.map(text), topic_id };
    let request = DeleteTopicsRequest {
        topics: vec![
            state(None, topic_id(1)),
            state(Some("b"), TopicId::ZERO),
            state(None, topic_id(99)),
            state(None, TopicId::ZERO),
            state(Some("x"), topic_id(5)),
        ],
        ..DeleteTopicsRequest::default()
    };
    host.send(6, &request);
    let (token, Ask::DeleteTopics(asked)) = host.asked_one() else { panic!() };
    assert_eq!(asked.topics.len(), 2);
    let results = asked.topics.iter().map(|topic| match topic {
        TopicRef::Id(id) if *id == topic_id(1) => Err(TopicError::UnknownId),
        _ => Ok(DeletedTopic { name: "b".into(), id: topic_id(2) }),
    });
    let results = results.collect();
    host.reply(token, Reply::DeleteTopics(results));
    let response = host.response::<DeleteTopicsRequest>(6);
    let mut expected = [
        (None, topic_id(99), ErrorCode::UnknownTopicId),
        (None, TopicId::ZERO, ErrorCode::InvalidRequest),
        (Some("a"), topic_id(1), ErrorCode::UnknownTopicId),
        (Some("b"), topic_id(2), ErrorCode::None),
        (Some("x"), topic_id(5), ErrorCode::InvalidRequest),
    ];
    expected.sort();
    assert_eq!(deleted(&response), expected);
}

/// Regression test: the client named the topic, and got an id that it does not know.
#[test]
fn a_topic_that_somebody_else_deletes_is_unknown_by_what_it_was_named_by() {
    for version in 1..=6 {
        let mut host = Host::new();
        let state = |name: Option<&str>, topic_id| DeleteTopicState { name: name.map(text), topic_id };
        let by_id = [state(None, topic_id(1)), state(Some("b"), TopicId::ZERO)];
        let request = if version < 6 {
            delete(&["a", "b"])
        } else {
            DeleteTopicsRequest { topics: by_id.to_vec(), ..DeleteTopicsRequest::default() }
        };
        host.send(version, &request);
        let (token, Ask::DeleteTopics(_)) = host.asked_one() else { panic!() };
        host.reply(token, Reply::DeleteTopics(vec![Err(TopicError::UnknownId), Err(TopicError::UnknownId)]));
        let response = host.response::<DeleteTopicsRequest>(version);
        let by_name = |name| (Some(name), TopicId::ZERO, ErrorCode::UnknownTopicOrPartition);
        let by_id = (Some("a"), topic_id(1), ErrorCode::UnknownTopicId);
        let first = if version < 6 { by_name("a") } else { by_id };
        assert_eq!(deleted(&response), [first, by_name("b")], "version {version}");
        if version >= 5 {
            let text = response.responses[1].error_message.as_deref();
            assert_eq!(text, Some(ErrorCode::UnknownTopicOrPartition.message()));
        }
    }
}

/// As in Kafka, a topic named in two ways is refused and not deleted.
#[test]
fn a_topic_that_is_named_twice_is_not_deleted() {
    let state = |name: Option<&str>, topic_id| DeleteTopicState { name: name.map(text), topic_id };
    for topics in [
        vec![state(None, topic_id(1)), state(Some("a"), TopicId::ZERO)],
        vec![state(None, topic_id(1)), state(None, topic_id(1))],
        vec![state(Some("a"), TopicId::ZERO), state(Some("a"), TopicId::ZERO)],
    ] {
        let mut host = Host::new();
        let response = host.ask(6, &DeleteTopicsRequest { topics, ..DeleteTopicsRequest::default() });
        assert!(host.asked().is_empty());
        assert_eq!(response.responses.len(), 1);
        assert_eq!(code(response.responses[0].error_code), ErrorCode::InvalidRequest);
    }
}

#[test]
fn nothing_is_deleted_where_the_operator_says_so() {
    for (version, expected) in [(2, ErrorCode::InvalidRequest), (3, ErrorCode::TopicDeletionDisabled)] {
        let mut host = Host::with(KafkaSettings { delete_topics: false, ..KafkaSettings::default() });
        let response = host.ask(version, &delete(&["a"]));
        assert_eq!(deleted(&response), [(Some("a"), TopicId::ZERO, expected)]);
    }
}

#[test]
fn producer_ids() {
    let init = |transactional_id: Option<&str>, producer_id, producer_epoch| InitProducerIdRequest {
        transactional_id: transactional_id.map(text),
        producer_id,
        producer_epoch,
        ..InitProducerIdRequest::default()
    };
    // A producer with an id gets a new one all the same.
    for request in [init(None, -1, -1), init(None, 55, 3)] {
        let mut host = Host::new();
        host.send(4, &request);
        let (token, Ask::AllocateProducerId) = host.asked_one() else { panic!() };
        host.reply(token, Reply::ProducerId(Ok(polylogue_types::ProducerId(900))));
        let response = host.response::<InitProducerIdRequest>(4);
        assert_eq!((response.error_code, response.producer_id, response.producer_epoch), (0, 900, 0));
    }
    for (request, expected) in [
        (init(None, 55, -1), ErrorCode::InvalidRequest),
        (init(None, -1, 3), ErrorCode::InvalidRequest),
        (init(Some(""), -1, -1), ErrorCode::InvalidRequest),
        (init(Some("tx"), -1, -1), ErrorCode::TransactionalIdAuthorizationFailed),
    ] {
        let response = Host::new().ask(4, &request);
        assert_eq!((code(response.error_code), response.producer_id, response.producer_epoch), (expected, -1, -1));
    }
    for why in [Unavailable::Busy, Unavailable::StorageFull, Unavailable::Stopping] {
        let mut host = Host::new();
        host.send(4, &init(None, -1, -1));
        let (token, _) = host.asked_one();
        host.reply(token, Reply::ProducerId(Err(why)));
        assert!(code(host.response::<InitProducerIdRequest>(4).error_code).retriable());
    }
}

#[test]
fn coordinators_of_what_there_is_not() {
    let find = |version: i16, key_type| {
        let one = version < 4;
        let request = FindCoordinatorRequest {
            key: if one { text("k") } else { StrBytes::new() },
            key_type,
            coordinator_keys: if one { vec![] } else { vec![text("k")] },
        };
        let mut host = Host::new();
        host.topics.add(9, OFFSETS, 50, TopicConfig::default());
        let response = host.ask(version, &request);
        assert!(host.asked().is_empty());
        if one {
            (code(response.error_code), response.node_id, response.port)
        } else {
            let found = &response.coordinators[0];
            assert_eq!(&*found.key, "k");
            (code(found.error_code), found.node_id, found.port)
        }
    };
    for version in [1, 4, 6] {
        assert_eq!(find(version, 0), (ErrorCode::None, NODE, 19_092));
        assert_eq!(find(version, 1), (ErrorCode::TransactionalIdAuthorizationFailed, -1, -1));
        assert_eq!(find(version, 3), (ErrorCode::InvalidRequest, -1, -1));
    }
    assert_eq!(find(5, 2), (ErrorCode::InvalidRequest, -1, -1));
    assert_eq!(find(6, 2), (ErrorCode::CoordinatorNotAvailable, -1, -1));
}

#[test]
fn the_first_group_that_is_looked_for_makes_the_offsets_topic() {
    let find = FindCoordinatorRequest { key: text("g"), ..FindCoordinatorRequest::default() };
    let mut host = Host::new();
    let fixed =
        Fixed { raw: [("offsets.topic.segment.bytes".to_owned(), "1048576".to_owned())].into(), ..Fixed::default() };
    host.settings = KafkaSettings { offsets_partitions: 3, fixed: Arc::new(fixed), ..KafkaSettings::default() };
    // A request that depends on the set of topics waits; group requests do not.
    host.send(1, &find);
    host.send(9, &metadata(&[OFFSETS], false));
    let (token, topics, validate_only) = creating(&mut host);
    assert_eq!((topics.len(), validate_only), (1, false));
    let new = &topics[0];
    assert_eq!((&*new.name, new.partitions, new.internal), (OFFSETS, 3, true));
    let set = |name: &str| new.config.raw.get(name).map(String::as_str);
    assert_eq!(set("cleanup.policy"), Some("compact"));
    assert_eq!(set("compression.type"), Some("producer"));
    assert_eq!(set("segment.bytes"), Some("1048576"));
    host.no_response();
    let made = host.topics.add(9, OFFSETS, 3, new.config.clone());
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic: made })]));
    let (_, response) = host.response_to::<FindCoordinatorRequest>(1);
    assert_eq!((code(response.error_code), response.node_id), (ErrorCode::None, NODE));
    let response = host.response::<MetadataRequest>(9);
    assert_eq!(reported(&response), [(ErrorCode::None, Some(OFFSETS))]);
    assert!(response.topics[0].is_internal);
    // It exists already, for groups and for clients that create it.
    assert_eq!(code(host.ask(1, &find).error_code), ErrorCode::None);
    let response = host.ask(7, &create(vec![topic(OFFSETS)]));
    assert_eq!(code(response.topics[0].error_code), ErrorCode::TopicAlreadyExists);
}

#[test]
fn a_group_needs_no_offsets_topic() {
    let find = FindCoordinatorRequest { key: text("g"), ..FindCoordinatorRequest::default() };
    for error in [TopicError::Exists, TopicError::Unavailable(Unavailable::StorageFull)] {
        let mut host = Host::new();
        host.send(1, &find);
        let (token, ..) = creating(&mut host);
        host.reply(token, Reply::CreateTopics(vec![Err(error)]));
        assert_eq!(code(host.response::<FindCoordinatorRequest>(1).error_code), ErrorCode::None);
    }
    // Only groups have offsets.
    assert_eq!(
        code(Host::new().ask(1, &FindCoordinatorRequest { key_type: 3, ..find }).error_code),
        ErrorCode::InvalidRequest
    );
}

/// Regression test: metadata requests created any number of topics, 100,000 with one request.
#[test]
fn a_request_creates_no_more_topics_than_it_may_by_create_topics() {
    let names: Vec<String> = (0..12_000).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (partitions_default, most) in [(1, 10_000), (3, 3_333), (20_000, 1)] {
        let mut host = Host::with(KafkaSettings { partitions_default, ..KafkaSettings::default() });
        host.send(9, &metadata(&names, true));
        let (token, topics, _) = creating(&mut host);
        assert_eq!(topics.len(), most);
        let busy = || Err(TopicError::Unavailable(Unavailable::Busy));
        host.reply(token, Reply::CreateTopics(topics.iter().map(|_| busy()).collect()));
        let response = host.response::<MetadataRequest>(9);
        assert_eq!(response.topics.len(), 12_000);
        // The others do not exist yet, and the client retries.
        let last = code(response.topics[11_999].error_code);
        assert_eq!(last, ErrorCode::UnknownTopicOrPartition);
        assert!(last.retriable());
    }
}

/// Regression test: a name that only collides was reported as invalid, though it was not to be created: clients give up on that.
#[test]
fn a_name_that_collides_is_unknown_and_not_created() {
    for create in [false, true] {
        let mut host = Host::new();
        host.topics.add(9, "x.y_z", 1, TopicConfig::default());
        let response = host.ask(9, &metadata(&["x_y.z", "x.y.z"], create));
        let unknown = |name| (ErrorCode::UnknownTopicOrPartition, Some(name));
        assert_eq!(reported(&response), [unknown("x_y.z"), unknown("x.y.z")]);
    }
}

/// Regression test: each name of a request was compared with all topics, which took seconds.
#[test]
fn names_that_may_collide_are_looked_for_once() {
    #[derive(Debug, Default)]
    struct Counting(std::sync::atomic::AtomicUsize);
    impl polylogue_api::Catalog for Counting {
        fn topic(&self, _: &str) -> Option<std::sync::Arc<polylogue_api::TopicInfo>> {
            None
        }
        fn topic_by_id(&self, _: TopicId) -> Option<std::sync::Arc<polylogue_api::TopicInfo>> {
            None
        }
        fn topics(&self) -> Vec<std::sync::Arc<polylogue_api::TopicInfo>> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Vec::new()
        }
        fn cluster(&self) -> polylogue_api::ClusterInfo {
            polylogue_api::ClusterInfo { cluster_id: "c".into(), node: polylogue_types::NodeId(1) }
        }
        fn settings(&self, _: &polylogue_api::SettingsScope) -> std::sync::Arc<polylogue_api::Settings> {
            std::sync::Arc::default()
        }
        fn settings_scopes(&self) -> Vec<polylogue_api::SettingsScope> {
            Vec::new()
        }
        fn version(&self) -> u64 {
            0
        }
    }
    let names: Vec<String> = (0..1_000).map(|n| format!("a.{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = names.iter().map(|name| topic(name)).collect();
    let settings = KafkaSettings::default();
    for (times, bytes) in [
        (1, session_host::frame(9, 1, &metadata(&names, true))),
        (0, session_host::frame(9, 1, &metadata(&names, false))),
        (1, session_host::frame(7, 1, &create(all))),
    ] {
        let (catalog, mut host) = (Counting::default(), Host::new());
        let cx = polylogue_kafka::session::SessionContext {
            now: host.now,
            catalog: &catalog,
            settings: &settings,
            users: &polylogue_kafka::session::NoUsers::shared(),
        };
        host.session.on_bytes(&mut bytes.as_slice().into(), &cx);
        assert_eq!(catalog.0.into_inner(), times);
    }
}
