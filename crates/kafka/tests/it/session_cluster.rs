//! Requests about the cluster: nodes, quorum, features, and topics by page.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::TopicConfig;
use polylogue_kafka::session::{Listener, Session, SessionInit};
use polylogue_kafka_codec::api_versions::ApiVersionsRequest;
use polylogue_kafka_codec::describe_cluster::DescribeClusterRequest;
use polylogue_kafka_codec::describe_quorum::{DescribeQuorumRequest, RequestPartitionData, RequestTopicData};
use polylogue_kafka_codec::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicRequest,
};
use polylogue_kafka_codec::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};
use session_host::broker::Broker;
use session_host::{Host, NODE, frame, init, requests, text, topic_id};
use std::sync::Arc;

fn pages(names: &[&str], limit: i32, cursor: Option<(&str, i32)>) -> DescribeTopicPartitionsRequest {
    DescribeTopicPartitionsRequest {
        topics: names.iter().map(|name| TopicRequest { name: text(name) }).collect(),
        response_partition_limit: limit,
        cursor: cursor.map(|(name, partition_index)| Cursor { topic_name: text(name), partition_index }),
    }
}

/// Topics with their partition numbers, and the cursor of the next page.
type Page = (Vec<(String, Vec<i32>)>, Option<(String, i32)>);

fn page(response: &DescribeTopicPartitionsResponse) -> Page {
    let topic = |topic: &polylogue_kafka_codec::describe_topic_partitions::DescribeTopicPartitionsResponseTopic| {
        let name = topic.name.as_ref().unwrap().to_string();
        (name, topic.partitions.iter().map(|p| p.partition_index).collect())
    };
    let next = response.next_cursor.as_ref().map(|c| (c.topic_name.to_string(), c.partition_index));
    (response.topics.iter().map(topic).collect(), next)
}

fn expected(topics: &[(&str, &[i32])], next: Option<(&str, i32)>) -> Page {
    let topics = topics.iter().map(|(name, partitions)| ((*name).to_owned(), partitions.to_vec())).collect();
    (topics, next.map(|(name, partition)| (name.to_owned(), partition)))
}

fn ask(host: &mut Host, names: &[&str], limit: i32, cursor: Option<(&str, i32)>) -> Page {
    page(&host.ask(0, &pages(names, limit, cursor)))
}

#[test]
fn all_topics_come_page_by_page() {
    let mut host = Host::new();
    host.topics.add(3, "c", 2, TopicConfig::default());
    // `a` has three partitions, `b` one, `c` two.
    assert_eq!(ask(&mut host, &[], 2, None), expected(&[("a", &[0, 1])], Some(("a", 2))));
    assert_eq!(ask(&mut host, &[], 2, Some(("a", 2))), expected(&[("a", &[2]), ("b", &[0])], Some(("c", 0))));
    assert_eq!(ask(&mut host, &[], 2, Some(("c", 0))), expected(&[("c", &[0, 1])], None));
    assert_eq!(ask(&mut host, &[], 3, None), expected(&[("a", &[0, 1, 2])], Some(("b", 0))));
    assert_eq!(ask(&mut host, &[], 6, None), expected(&[("a", &[0, 1, 2]), ("b", &[0]), ("c", &[0, 1])], None));
    // A cursor to a deleted topic continues after it, one beyond the last partition with the next topic.
    host.topics.remove("b");
    assert_eq!(ask(&mut host, &[], 9, Some(("b", 4))), expected(&[("c", &[0, 1])], None));
    assert_eq!(ask(&mut host, &[], 9, Some(("a", 3))), expected(&[("a", &[]), ("c", &[0, 1])], None));
}

#[test]
fn a_limit_is_at_least_one_and_at_most_two_thousand() {
    let mut host = Host::new();
    host.topics.add(3, "wide", 2_500, TopicConfig::default());
    for limit in [0, -5, i32::MIN] {
        assert_eq!(ask(&mut host, &["a"], limit, None), expected(&[("a", &[0])], Some(("a", 1))));
    }
    let (topics, next) = ask(&mut host, &["wide"], i32::MAX, None);
    assert_eq!((topics[0].1.len(), next), (2_000, Some(("wide".to_owned(), 2_000))));
    let (topics, next) = ask(&mut host, &["wide"], i32::MAX, Some(("wide", 2_000)));
    assert_eq!((topics[0].1.len(), next), (500, None));
}

#[test]
fn topics_by_name_come_once_in_order_and_with_their_errors() {
    let mut host = Host::new();
    let response = host.ask(0, &pages(&["b", "none", "a", "b", "not valid", "__consumer_offsets"], 2_000, None));
    let rows = response.topics.iter().map(|t| (t.name.as_deref().unwrap(), t.error_code, t.is_internal));
    let expected = [
        ("__consumer_offsets", 3, true),
        ("a", 0, false),
        ("b", 0, false),
        ("none", 3, false),
        ("not valid", 17, false),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    // The cursor applies to its topic; the others keep all partitions.
    assert_eq!(ask(&mut host, &["b", "a"], 9, Some(("a", 1))), self::expected(&[("a", &[1, 2]), ("b", &[0])], None));
}

#[test]
fn a_cursor_that_cannot_be_is_refused() {
    let mut host = Host::new();
    for cursor in [("b", 0), ("a", -1)] {
        let response = host.ask(0, &pages(&["a"], 2_000, Some(cursor)));
        let rows: Vec<_> = response.topics.iter().map(|t| (t.name.as_deref(), t.error_code)).collect();
        assert_eq!(rows, [(Some("a"), 42)], "{cursor:?}");
        assert_eq!(response.next_cursor, None);
    }
}

/// A null struct is a single byte, and so is the cursor of the last page.
#[test]
fn mistake_16_a_null_cursor_is_one_byte() {
    let mut host = Host::new();
    let bytes = frame(0, 1, &pages(&["b"], 7, None));
    // ... limit, null, no tags.
    assert_eq!(bytes[bytes.len() - 6..], [0, 0, 0, 7, 0xff, 0]);
    host.feed(&bytes);
    let response = host.response_frame().unwrap();
    // ... no tags of the topic, null, no tags.
    assert_eq!(response[response.len() - 3..], [0, 0xff, 0]);
}

#[test]
fn mistake_21_tools_are_told_the_listener_that_was_used() {
    let mut host = Host::new();
    let listener = Arc::new(Listener { host: text("second.example"), port: 1_234 });
    host.session = Session::new(SessionInit { listener, ..init(2, Arc::default()) }, host.now);
    let cluster = host.ask(2, &requests::describe_cluster(2));
    assert_eq!((&*cluster.brokers[0].host, cluster.brokers[0].port), ("second.example", 1_234));
    host.send(2, &requests::describe_quorum(2));
    Broker::default().serve(&mut host);
    let quorum = host.response::<DescribeQuorumRequest>(2);
    let voter = &quorum.nodes[0].listeners[0];
    assert_eq!((&*voter.host, voter.port), ("second.example", 1_234));
}

#[test]
fn mistake_22_a_topic_that_was_created_again_is_described_as_another() {
    let mut host = Host::new();
    let id = |host: &mut Host| host.ask(0, &pages(&["b"], 7, None)).topics[0].topic_id;
    assert_eq!(id(&mut host), topic_id(2));
    host.topics.remove("b");
    host.topics.add(9, "b", 1, TopicConfig::default());
    assert_eq!(id(&mut host), topic_id(9));
}

#[test]
fn an_endpoint_of_another_kind_is_refused() {
    let mut host = Host::new();
    let mut ask = |endpoint_type| {
        let response = host.ask(2, &DescribeClusterRequest { endpoint_type, ..requests::describe_cluster(2) });
        assert_eq!((response.controller_id, response.brokers.len()), (-1, 0));
        (response.error_code, response.error_message.unwrap().to_string())
    };
    let text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
    assert_eq!(ask(2), (114, text.to_owned()));
    assert_eq!(ask(7), (115, "Unsupported endpoint type 7".to_owned()));
}

#[test]
fn operations_of_the_cluster_are_told_to_those_who_ask() {
    let mut host = Host::new();
    let response = host.ask(2, &DescribeClusterRequest::default());
    assert_eq!(response.cluster_authorized_operations, i32::MIN);
}

/// Kafka's raft layer answers for its one partition, and refuses the whole request if it names another.
#[test]
fn there_is_one_quorum() {
    let topic = |name: &str, partitions: &[i32]| RequestTopicData {
        topic_name: text(name),
        partitions: partitions.iter().map(|p| RequestPartitionData { partition_index: *p }).collect(),
    };
    let mut host = Host::new();
    for topics in [
        vec![topic("a", &[0])],
        vec![topic("__cluster_metadata", &[1])],
        vec![topic("__cluster_metadata", &[0, 1])],
        vec![topic("__cluster_metadata", &[0]), topic("a", &[0])],
    ] {
        let asked: Vec<_> = topics.iter().map(|t| (t.topic_name.clone(), t.partitions.len())).collect();
        let response = host.ask(2, &DescribeQuorumRequest { topics });
        assert_eq!((response.error_code, response.nodes.len()), (0, 0));
        let reported: Vec<_> = response.topics.iter().map(|t| (t.topic_name.clone(), t.partitions.len())).collect();
        assert_eq!(reported, asked);
        for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
            let text = "This server does not host this topic-partition.";
            assert_eq!((partition.error_code, partition.error_message.as_deref()), (3, Some(text)));
            assert!(partition.current_voters.is_empty());
        }
    }
    assert_eq!(host.ask(2, &DescribeQuorumRequest { topics: vec![] }).topics.len(), 0);
}

fn update(feature: &str, level: i16, upgrade_type: i8) -> FeatureUpdateKey {
    FeatureUpdateKey { feature: text(feature), max_version_level: level, upgrade_type, allow_downgrade: false }
}

#[test]
fn no_feature_level_changes() {
    let mut host = Host::new();
    let mut ask = |updates: Vec<FeatureUpdateKey>| {
        let request =
            UpdateFeaturesRequest { feature_updates: updates, validate_only: true, ..UpdateFeaturesRequest::default() };
        let response = host.ask(2, &request);
        assert!(response.results.is_empty());
        (response.error_code, response.error_message.map(|text| text.to_string()))
    };
    // The current level.
    assert_eq!(ask(vec![]), (0, None));
    assert_eq!(ask(vec![update("metadata.version", 30, 1), update("group.version", 1, 2)]), (0, None));
    let controller = format!("Local controller {NODE}");
    for (name, level, kind, why) in [
        ("metadata.version", 31, 1, format!("{controller} only supports versions 7-30")),
        ("metadata.version", 6, 2, format!("{controller} only supports versions 7-30")),
        ("metadata.version", -1, 1, "A feature version cannot be less than 0.".to_owned()),
        ("metadata.version", 30, 0, "The controller does not support the given upgrade type.".to_owned()),
        ("metadata.version", 30, 4, "The controller does not support the given upgrade type.".to_owned()),
        (
            "metadata.version",
            29,
            1,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe \
             downgrade."
                .to_owned(),
        ),
        ("group.version", 2, 1, format!("{controller} only supports versions 0-1")),
        ("group.version", 0, 2, "This broker serves level 1 of this feature only.".to_owned()),
        ("streams.version", 1, 1, format!("{controller} does not support this feature.")),
        ("transaction.version", 2, 1, format!("{controller} does not support this feature.")),
        ("no.such.feature", 1, 1, format!("{controller} does not support this feature.")),
        ("no.such.feature", 0, 1, "Feature no.such.feature not found.".to_owned()),
    ] {
        // One feature that cannot be changed fails the whole request.
        let text = format!(
            "The update failed for all features since the following feature had an error: Invalid update version {level} \
             for feature {name}. {why}"
        );
        let updates = vec![update("share.version", 0, 1), update(name, level, kind)];
        assert_eq!(ask(updates), (95, Some(text)));
    }
    for (kind, why) in [
        (2, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (3, "Unsafe metadata downgrade is not supported in this version."),
    ] {
        let text = format!(
            "The update failed for all features since the following feature had an error: Unsupported metadata.version \
             downgrade from 30 to 29. {why}"
        );
        assert_eq!(ask(vec![update("metadata.version", 29, kind)]), (95, Some(text)));
    }
}

/// Clients of earlier versions refuse a feature whose lowest level is 0 (KAFKA-17011).
#[test]
fn a_feature_that_begins_at_0_is_supported_from_version_4_on() {
    let names = |version| {
        let reported = Host::new().ask::<ApiVersionsRequest>(version, &requests::api_versions(version));
        reported.supported_features.iter().map(|f| f.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(3), names(4)),
        (vec!["metadata.version".into()], vec!["group.version".into(), "metadata.version".into()])
    );
}

/// ApiVersions and UpdateFeatures agree on the features.
#[test]
fn features_are_told_as_they_are_judged() {
    let mut host = Host::new();
    let reported = host.ask::<ApiVersionsRequest>(4, &requests::api_versions(4));
    assert_eq!(reported.supported_features.len(), reported.finalized_features.len());
    for (supported, finalized) in reported.supported_features.iter().zip(&reported.finalized_features) {
        assert_eq!(supported.name, finalized.name);
        assert_eq!(finalized.min_version_level, finalized.max_version_level);
        let mut ask = |level| {
            let feature_updates = vec![update(&supported.name, level, 1)];
            host.ask(2, &UpdateFeaturesRequest { feature_updates, ..UpdateFeaturesRequest::default() })
        };
        assert_eq!(ask(finalized.max_version_level).error_code, 0);
        let text = ask(supported.max_version + 1).error_message.unwrap();
        assert!(text.ends_with(&format!("{}-{}", supported.min_version, supported.max_version)), "{text}");
    }
}
