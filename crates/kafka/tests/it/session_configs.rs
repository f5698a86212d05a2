//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{
    AlterError, AlterSettings, AlterTopics, Current, Durability, Reply, Request as Ask, Settings, SettingsScope, Token,
    TopicConfig, Unavailable,
};
use polylogue_kafka_codec::alter_configs as legacy;
use polylogue_kafka_codec::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
};
use polylogue_kafka_codec::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use polylogue_kafka_codec::list_config_resources::ListConfigResourcesRequest;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::NodeId;
use session_host::{Host, NODE, text, topic_id};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn resource(kind: i8, name: &str, edits: &[(i8, &str, Option<&str>)]) -> AlterConfigsResource {
    let config = |(op, name, value): &(i8, &str, Option<&str>)| AlterableConfig {
        name: text(name),
        config_operation: *op,
        value: value.map(text),
    };
    AlterConfigsResource { resource_type: kind, resource_name: text(name), configs: edits.iter().map(config).collect() }
}

fn incremental(resources: Vec<AlterConfigsResource>) -> IncrementalAlterConfigsRequest {
    IncrementalAlterConfigsRequest { resources, validate_only: false }
}

fn rows(response: &IncrementalAlterConfigsResponse) -> Vec<(ErrorCode, Option<&str>)> {
    let code = |code| ErrorCode::from_code(code).unwrap();
    response.responses.iter().map(|row| (code(row.error_code), row.error_message.as_deref())).collect()
}

fn topics(host: &mut Host) -> (Token, AlterTopics) {
    match host.asked_one() {
        (token, Ask::AlterTopics(alter)) => (token, alter),
        other => panic!("{other:?}"),
    }
}

fn documents(host: &mut Host) -> (Token, AlterSettings) {
    match host.asked_one() {
        (token, Ask::AlterSettings(alter)) => (token, alter),
        other => panic!("{other:?}"),
    }
}

/// Returns the error of a resource that is refused without a request to the broker.
fn refused(resource: AlterConfigsResource) -> (ErrorCode, String) {
    let mut host = Host::new();
    let response = host.ask(1, &incremental(vec![resource]));
    let rows = rows(&response);
    (rows[0].0, rows[0].1.unwrap_or_default().to_owned())
}

fn describe(kind: i8, name: &str, keys: &[&str]) -> DescribeConfigsRequest {
    let keys = (!keys.is_empty()).then(|| keys.iter().map(|key| text(key)).collect());
    let resource = DescribeConfigsResource { resource_type: kind, resource_name: text(name), configuration_keys: keys };
    DescribeConfigsRequest { resources: vec![resource], include_synonyms: true, include_documentation: true }
}

fn described(host: &mut Host, kind: i8, name: &str, keys: &[&str]) -> DescribeConfigsResult {
    let response = host.ask(4, &describe(kind, name, keys));
    response.results.into_iter().next().unwrap()
}

fn find<'a>(result: &'a DescribeConfigsResult, name: &str) -> &'a DescribeConfigsResourceResult {
    result.configs.iter().find(|config| *config.name == *name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_topic_is_changed_from_what_is_set() {
    let raw = settings(&[("retention.ms", "5"), ("segment.bytes", "2000000")]);
    let mut host = Host::with_topic(TopicConfig { raw: raw.clone(), ..TopicConfig::default() });
    let edits = [
        (SET, "retention.ms", Some(" 7 ")),
        (DELETE, "segment.bytes", None),
        (APPEND, "cleanup.policy", Some("compact")),
    ];
    host.send(1, &incremental(vec![resource(TOPIC, "a", &edits)]));
    let (token, alter) = topics(&mut host);
    let change = alter.changes[0].config.as_ref().unwrap();
    assert_eq!((alter.changes[0].topic, alter.validate_only, &change.expected), (topic_id(1), false, &raw));
    assert_eq!(change.config.raw, settings(&[("cleanup.policy", "delete,compact"), ("retention.ms", "7")]));
    assert_eq!((change.config.retention_ms, change.config.cleanup.compact), (Some(7), true));
    host.no_response();
    host.reply(token, Reply::AlterTopics(vec![Ok(())]));
    let response = host.response::<IncrementalAlterConfigsRequest>(1);
    assert_eq!(rows(&response), [(ErrorCode::None, None)]);
}

#[test]
fn a_change_that_others_overtook_is_made_anew() {
    let mut host = Host::new();
    host.send(1, &incremental(vec![resource(TOPIC, "a", &[(APPEND, "cleanup.policy", Some("compact"))])]));
    let (token, _) = topics(&mut host);
    let newer = settings(&[("cleanup.policy", ""), ("retention.ms", "5")]);
    let conflict = AlterError::Conflict(Current { settings: newer.clone(), partitions: 3 });
    host.reply(token, Reply::AlterTopics(vec![Err(conflict)]));
    let (token, alter) = topics(&mut host);
    let change = alter.changes[0].config.as_ref().unwrap();
    assert_eq!(change.expected, newer);
    assert_eq!(change.config.raw, settings(&[("cleanup.policy", "compact"), ("retention.ms", "5")]));
    host.reply(token, Reply::AlterTopics(vec![Ok(())]));
    assert_eq!(rows(&host.response::<IncrementalAlterConfigsRequest>(1)), [(ErrorCode::None, None)]);
}

/// Kafka's controller uses names: a topic recreated meanwhile is the one to change.
#[test]
fn configs_of_a_topic_that_somebody_else_deletes_are_not_changed_and_those_of_its_successor_are() {
    let mut host = Host::new();
    let edits = [(APPEND, "cleanup.policy", Some("compact"))];
    host.send(1, &incremental(vec![resource(TOPIC, "a", &edits), resource(TOPIC, "b", &edits)]));
    let (token, _) = topics(&mut host);
    host.topics.remove("a");
    host.topics.remove("b");
    let raw = settings(&[("cleanup.policy", ""), ("retention.ms", "5")]);
    host.topics.add(9, "b", 1, TopicConfig { raw: raw.clone(), ..TopicConfig::default() });
    let gone = || Err(AlterError::UnknownTopic);
    host.reply(token, Reply::AlterTopics(vec![gone(), gone()]));
    let (token, alter) = topics(&mut host);
    assert_eq!(alter.changes.iter().map(|change| change.topic).collect::<Vec<_>>(), [topic_id(9)]);
    let change = alter.changes[0].config.as_ref().unwrap();
    assert_eq!(change.expected, raw);
    assert_eq!(change.config.raw, settings(&[("cleanup.policy", "compact"), ("retention.ms", "5")]));
    host.reply(token, Reply::AlterTopics(vec![Ok(())]));
    let text = "The topic 'a' does not exist.";
    let expected = [(ErrorCode::UnknownTopicOrPartition, Some(text)), (ErrorCode::None, None)];
    assert_eq!(rows(&host.response::<IncrementalAlterConfigsRequest>(1)), expected);
}

#[test]
fn an_endless_race_ends() {
    let mut host = Host::new();
    host.send(1, &incremental(vec![resource(TOPIC, "a", &[(SET, "retention.ms", Some("1"))])]));
    let mut tries = 0;
    loop {
        let asked = host.asked();
        let Some((token, _)) = asked.first() else { break };
        tries += 1;
        host.reply(*token, Reply::AlterTopics(vec![Err(AlterError::Conflict(Current::default()))]));
    }
    assert_eq!(tries, 100);
    assert_eq!(rows(&host.response::<IncrementalAlterConfigsRequest>(1))[0].0, ErrorCode::RequestTimedOut);
}

#[test]
fn each_resource_succeeds_or_fails_by_itself() {
    let mut host = Host::new();
    let node = NODE.to_string();
    let resources = vec![
        resource(TOPIC, "a", &[(SET, "retention.ms", Some("x"))]),
        resource(BROKER, &node, &[(SET, "log.retention.ms", Some("5"))]),
        resource(TOPIC, "b", &[(SET, "retention.ms", Some("1"))]),
        resource(GROUP, "g", &[(SET, "consumer.session.timeout.ms", Some("50000"))]),
        resource(TOPIC, "no.such", &[(SET, "retention.ms", Some("1"))]),
        resource(BROKER, "", &[(SET, "message.max.bytes", Some("-1"))]),
        resource(CLIENT_METRICS, "m", &[(SET, "interval.ms", Some("1000"))]),
    ];
    host.send(1, &incremental(resources));
    let (token, alter) = topics(&mut host);
    assert_eq!(alter.changes.iter().map(|change| change.topic).collect::<Vec<_>>(), [topic_id(2)]);
    host.reply(token, Reply::AlterTopics(vec![Ok(())]));
    let (token, alter) = documents(&mut host);
    let scopes: Vec<_> = alter.changes.iter().map(|change| (change.scope.clone(), change.settings.clone())).collect();
    let expected = [
        (SettingsScope::Node(NodeId(NODE as u64)), settings(&[("log.retention.ms", "5")])),
        (SettingsScope::Group("g".into()), settings(&[("consumer.session.timeout.ms", "50000")])),
        (SettingsScope::ClientMetrics("m".into()), settings(&[("interval.ms", "1000")])),
    ];
    assert_eq!(scopes, expected);
    let full = AlterError::Unavailable(Unavailable::StorageFull);
    host.reply(token, Reply::AlterSettings(vec![Ok(()), Err(full), Ok(())]));
    let response = host.response::<IncrementalAlterConfigsRequest>(1);
    let codes: Vec<_> = rows(&response).into_iter().map(|(code, _)| code).collect();
    let expected = [
        ErrorCode::InvalidConfig,
        ErrorCode::None,
        ErrorCode::None,
        ErrorCode::KafkaStorageError,
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::InvalidRequest,
        ErrorCode::None,
    ];
    assert_eq!(codes, expected);
    assert_eq!(rows(&response)[4].1, Some("The topic 'no.such' does not exist."));
    let names: Vec<_> = response.responses.iter().map(|row| &*row.resource_name).collect();
    assert_eq!(names, ["a", &node, "b", "g", "no.such", "", "m"]);
}

#[test]
fn refusals_have_kafkas_codes_and_words() {
    let set = |kind, name: &str, key: &str, value: &str| resource(kind, name, &[(SET, key, Some(value))]);
    for (resource, code, text) in [
        (set(TOPIC, "a", "x", "1"), ErrorCode::InvalidConfig, "Unknown topic config name: x"),
        (set(TOPIC, "", "retention.ms", "1"), ErrorCode::InvalidRequest, "Default topic resources are not allowed."),
        (set(TOPIC, "no.such", "x", "1"), ErrorCode::InvalidConfig, "Unknown topic config name: x"),
        (set(BROKER, "8", "x", "1"), ErrorCode::InvalidRequest, "Unexpected broker id, expected 7, but received 8"),
        (set(BROKER, "x", "x", "1"), ErrorCode::InvalidRequest, "Node id must be an integer, but it is: x"),
        (
            set(BROKER, "7", "log.dirs", "/x"),
            ErrorCode::InvalidRequest,
            "Cannot update these configs dynamically: [log.dirs]",
        ),
        (set(GROUP, "", "x", "1"), ErrorCode::InvalidRequest, "Default group resources are not allowed."),
        (set(GROUP, "g", "x", "1"), ErrorCode::InvalidConfig, "Unknown group config name: x"),
        (set(CLIENT_METRICS, "", "x", "1"), ErrorCode::InvalidRequest, "Subscription name can't be empty"),
        (set(8, "7", "root", "INFO"), ErrorCode::InvalidRequest, "Unknown resource type 8"),
        (
            resource(TOPIC, "a", &[(SET, "retention.ms", None)]),
            ErrorCode::InvalidRequest,
            "Null value not supported for : retention.ms",
        ),
        (
            resource(TOPIC, "a", &[(SET, "retention.ms", Some("1")), (DELETE, "retention.ms", None)]),
            ErrorCode::InvalidRequest,
            "Error due to duplicate config keys",
        ),
        (
            resource(TOPIC, "a", &[(APPEND, "retention.ms", Some("1"))]),
            ErrorCode::InvalidConfig,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            resource(TOPIC, "a", &[(9, "retention.ms", Some("1"))]),
            ErrorCode::InvalidRequest,
            "Unknown operations type 9",
        ),
    ] {
        assert_eq!(refused(resource), (code, text.to_owned()));
    }
    let (code, text) = refused(set(TOPIC, "a", "polylogue.durability", "memory"));
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(text.contains("is sync and cannot become memory"), "{text}");
    let mut host = Host::new();
    let twice = vec![set(TOPIC, "a", "retention.ms", "1"), set(TOPIC, "a", "retention.bytes", "1")];
    let response = host.ask(1, &incremental(twice));
    let row = (ErrorCode::InvalidRequest, Some("Each resource must appear at most once."));
    assert_eq!(rows(&response), [row, row]);
}

#[test]
fn nothing_is_changed_that_is_only_validated() {
    let mut host = Host::new();
    let request = IncrementalAlterConfigsRequest {
        resources: vec![resource(TOPIC, "a", &[(SET, "retention.ms", Some("1"))])],
        validate_only: true,
    };
    host.send(1, &request);
    assert!(topics(&mut host).1.validate_only);
}

#[test]
fn the_old_way_replaces_everything() {
    let raw = settings(&[("retention.ms", "5"), ("segment.bytes", "2000000")]);
    let mut host = Host::with_topic(TopicConfig { raw, ..TopicConfig::default() });
    let config = legacy::AlterableConfig { name: text("retention.bytes"), value: Some(text("9")) };
    let request = |configs: Vec<legacy::AlterableConfig>| legacy::AlterConfigsRequest {
        resources: vec![legacy::AlterConfigsResource { resource_type: TOPIC, resource_name: text("a"), configs }],
        validate_only: false,
    };
    for version in 0..=2 {
        host.send(version, &request(vec![config.clone()]));
        let (token, alter) = topics(&mut host);
        assert_eq!(alter.changes[0].config.as_ref().unwrap().config.raw, settings(&[("retention.bytes", "9")]));
        host.reply(token, Reply::AlterTopics(vec![Ok(())]));
        assert_eq!(host.response::<legacy::AlterConfigsRequest>(version).responses[0].error_code, 0);
    }
    let null = legacy::AlterableConfig { name: text("retention.bytes"), value: None };
    let response = host.ask(2, &request(vec![null]));
    let row = &response.responses[0];
    assert_eq!(row.error_code, ErrorCode::InvalidRequest.code());
    assert_eq!(row.error_message.as_deref(), Some("Null value not supported for : retention.bytes"));
}

#[test]
fn topics_are_described_with_sources_synonyms_and_types() {
    let raw = settings(&[("retention.ms", "5")]);
    let mut host = Host::with_topic(TopicConfig { raw, ..TopicConfig::default() });
    host.topics
        .1
        .insert(SettingsScope::Cluster, settings(&[("log.retention.ms", "9"), ("log.segment.bytes", "2000000")]));
    let result = described(&mut host, TOPIC, "a", &[]);
    assert_eq!((result.error_code, result.error_message.as_deref()), (0, None));
    let retention = find(&result, "retention.ms");
    assert_eq!((retention.value.as_deref(), retention.config_source, retention.config_type), (Some("5"), 1, 5));
    assert!(!retention.read_only && !retention.is_sensitive);
    assert!(retention.documentation.as_ref().is_some_and(|doc| !doc.is_empty()));
    let said: Vec<_> = retention.synonyms.iter().map(|s| (&*s.name, s.value.as_deref(), s.source)).collect();
    let expected =
        [("retention.ms", Some("5"), 1), ("log.retention.ms", Some("9"), 3), ("log.retention.hours", Some("168"), 5)];
    assert_eq!(said, expected);
    let segment = find(&result, "segment.bytes");
    assert_eq!((segment.value.as_deref(), segment.config_source), (Some("2000000"), 3));
    let one = described(&mut host, TOPIC, "a", &["retention.ms", "no.such"]);
    assert_eq!(one.configs.iter().map(|config| &*config.name).collect::<Vec<_>>(), ["retention.ms"]);
    // Versions before 3 have neither type nor documentation, and synonyms are returned only on request.
    let request =
        DescribeConfigsRequest { include_synonyms: false, include_documentation: false, ..describe(TOPIC, "a", &[]) };
    let response = host.ask(1, &request);
    assert!(response.results[0].configs.iter().all(|config| config.synonyms.is_empty()));
}

#[test]
fn a_topic_that_is_async_says_so() {
    let mut host = Host::with_topic(TopicConfig { durability: Durability::Async, ..TopicConfig::default() });
    let result = described(&mut host, TOPIC, "a", &["polylogue.durability"]);
    assert_eq!(
        (find(&result, "polylogue.durability").value.as_deref(), result.configs[0].config_source),
        (Some("async"), 1)
    );
}

#[test]
fn brokers_groups_and_subscriptions_are_described() {
    let mut host = Host::new();
    let scope = SettingsScope::Node(NodeId(NODE as u64));
    host.topics.1.insert(scope, settings(&[("num.partitions", "3")]));
    host.topics.1.insert(SettingsScope::Cluster, settings(&[("message.max.bytes", "2000")]));
    host.topics.1.insert(SettingsScope::Group("g".into()), settings(&[("share.session.timeout.ms", "50000")]));
    host.topics.1.insert(SettingsScope::ClientMetrics("m".into()), settings(&[("interval.ms", "1000")]));
    let broker = described(&mut host, BROKER, "7", &[]);
    let partitions = find(&broker, "num.partitions");
    assert_eq!((partitions.value.as_deref(), partitions.config_source, partitions.read_only), (Some("3"), 2, false));
    assert_eq!(find(&broker, "message.max.bytes").config_source, 3);
    assert_eq!(find(&broker, "node.id").value.as_deref(), Some("7"));
    assert!(find(&broker, "node.id").read_only);
    let password = find(&broker, "ssl.keystore.password");
    assert_eq!((password.value.as_deref(), password.is_sensitive, password.config_type), (None, true, 9));
    let all = described(&mut host, BROKER, "", &[]);
    let row = &all.configs[0];
    assert_eq!((all.configs.len(), row.value.as_deref(), row.config_source), (1, Some("2000"), 3));
    let group = described(&mut host, GROUP, "g", &[]);
    assert_eq!((group.configs.len(), find(&group, "share.session.timeout.ms").config_source), (17, 8));
    let metrics = described(&mut host, CLIENT_METRICS, "m", &[]);
    assert_eq!((metrics.configs.len(), find(&metrics, "interval.ms").config_source), (3, 7));
    for (kind, name, code) in [
        (TOPIC, "no.such", ErrorCode::UnknownTopicOrPartition),
        (TOPIC, "a b", ErrorCode::InvalidTopicException),
        (BROKER, "8", ErrorCode::InvalidRequest),
        (BROKER, "x", ErrorCode::InvalidRequest),
        (GROUP, "", ErrorCode::InvalidRequest),
        (CLIENT_METRICS, "", ErrorCode::InvalidRequest),
        (8, "7", ErrorCode::InvalidRequest),
        (99, "x", ErrorCode::InvalidRequest),
    ] {
        let result = described(&mut host, kind, name, &[]);
        assert_eq!((result.error_code, result.resource_type, &*result.resource_name), (code.code(), kind, name));
        assert!(result.configs.is_empty() && result.error_message.is_some());
    }
}

#[test]
fn what_one_response_tells_is_bounded() {
    let mut host = Host::new();
    let resource =
        || DescribeConfigsResource { resource_type: TOPIC, resource_name: text("a"), configuration_keys: None };
    let resources: Vec<_> = (0..20_000).map(|_| resource()).collect();
    let request = DescribeConfigsRequest { resources, include_synonyms: false, include_documentation: false };
    let response = host.ask(4, &request);
    assert_eq!(response.results.len(), 20_000);
    assert_eq!(response.results[0].error_code, 0);
    assert_eq!(response.results[19_999].error_code, ErrorCode::InvalidRequest.code());
}

#[test]
fn resources_are_listed_by_type() {
    let mut host = Host::new();
    host.topics.1.insert(SettingsScope::Cluster, settings(&[("num.partitions", "3")]));
    host.topics.1.insert(SettingsScope::Group("g".into()), settings(&[("a", "1")]));
    host.topics.1.insert(SettingsScope::ClientMetrics("m".into()), settings(&[("a", "1")]));
    let list = |host: &mut Host, version, types: &[i8]| {
        let response = host.ask(version, &ListConfigResourcesRequest { resource_types: types.to_vec() });
        let rows = response.config_resources.iter().map(|r| (r.resource_type, r.resource_name.clone()));
        (response.error_code, rows.collect::<Vec<_>>())
    };
    let row = |kind: i8, name: &str| (kind, StrBytes::from(name));
    assert_eq!(list(&mut host, 0, &[]), (0, vec![row(CLIENT_METRICS, "m")]));
    let all = vec![row(GROUP, "g"), row(CLIENT_METRICS, "m"), row(BROKER, "7"), row(TOPIC, "a"), row(TOPIC, "b")];
    assert_eq!(list(&mut host, 1, &[]), (0, all));
    assert_eq!(list(&mut host, 1, &[GROUP]), (0, vec![row(GROUP, "g")]));
    assert_eq!(list(&mut host, 1, &[TOPIC, 99]), (ErrorCode::UnsupportedVersion.code(), Vec::new()));
}

/// Other brokers returned no configs at all, and tools showed nothing or failed.
#[test]
fn mistake_10_every_config_is_described() {
    let mut host = Host::new();
    let count = |host: &mut Host, kind, name: &str| described(host, kind, name, &[]).configs.len();
    let empty: DescribeConfigsRequest = describe(TOPIC, "a", &[]);
    let mut resource = empty.resources[0].clone();
    resource.configuration_keys = Some(Vec::new());
    let response =
        host.ask(2, &DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() });
    assert_eq!(response.results[0].configs.len(), 34, "an empty list of keys means all of them");
    assert_eq!(count(&mut host, TOPIC, "a"), 34);
    assert!(count(&mut host, BROKER, "7") > 340);
    assert_eq!(count(&mut host, GROUP, "never.seen"), 17);
}

/// Other brokers refused configs set by Connect, Streams and Debezium, or accepted anything.
#[test]
fn mistake_11_a_topic_is_changed_to_what_connect_and_streams_want_and_to_no_nonsense() {
    for (name, value) in [
        ("min.insync.replicas", "2"),
        ("flush.ms", "1000"),
        ("message.timestamp.type", "LogAppendTime"),
        ("segment.ms", "60000"),
        ("unclean.leader.election.enable", "true"),
    ] {
        let mut host = Host::new();
        host.send(1, &incremental(vec![resource(TOPIC, "a", &[(SET, name, Some(value))])]));
        let change = topics(&mut host).1.changes.remove(0).config.unwrap();
        assert_eq!(change.config.raw, settings(&[(name, value)]));
    }
    let (code, _) = refused(resource(TOPIC, "a", &[(SET, "min.insync.replicas", Some("many"))]));
    assert_eq!(code, ErrorCode::InvalidConfig);
}

/// Another broker panicked with a lock held on these two operations, and failed from then on.
#[test]
fn mistake_19_lists_grow_and_shrink() {
    let mut host = Host::new();
    host.send(1, &incremental(vec![resource(TOPIC, "a", &[(3, "cleanup.policy", Some("delete"))])]));
    let change = topics(&mut host).1.changes.remove(0).config.unwrap();
    assert_eq!(change.config.raw, settings(&[("cleanup.policy", "")]));
    let mut host = Host::new();
    host.send(1, &incremental(vec![resource(TOPIC, "a", &[(APPEND, "cleanup.policy", Some("compact,delete"))])]));
    let change = topics(&mut host).1.changes.remove(0).config.unwrap();
    assert_eq!(change.config.raw, settings(&[("cleanup.policy", "delete,compact")]));
}
