//! Responses that are much larger than their requests: each is built when memory is granted, one after the other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::TopicConfig;
use polylogue_kafka::session::Room;
use polylogue_kafka_codec::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use polylogue_kafka_codec::fetch::FetchRequest;
use polylogue_kafka_codec::list_groups::ListGroupsRequest;
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::offset_fetch::OffsetFetchRequest;
use polylogue_kafka_codec::{ApiKey, Request};
use session_host::broker::Broker;
use session_host::requests::{self, versions};
use session_host::{Host, frame, text, topic_id};

/// A host with a small memory limit: `a` has 2,000 partitions, and there are 300 more topics.
fn host() -> Host {
    let mut host = Host::new();
    host.session.ask_for_room();
    host.topics.add(1, "a", 2_000, TopicConfig::default());
    for number in 0..300 {
        let name = format!("a-topic-with-a-name-of-some-length-{number:03}");
        host.topics.add(3, &name, 1, TopicConfig::default());
    }
    host
}

fn topics(version: i16, names: &[&str]) -> MetadataRequest {
    let topic = |name: &&str| MetadataRequestTopic { name: Some(text(name)), ..MetadataRequestTopic::default() };
    MetadataRequest { topics: Some(names.iter().map(topic).collect()), ..requests::metadata(version) }
}

fn all(version: i16) -> MetadataRequest {
    let topics = (version == 0).then(Vec::new);
    MetadataRequest { topics, ..requests::metadata(version) }
}

/// Returns the memory requested for a response, checked against its actual size. 0 if none is requested.
fn room<R: Request>(version: i16, request: &R) -> usize {
    let mut host = host();
    host.send(version, request);
    let room = host.session.wants_room();
    let Some(Room::Bytes(bytes)) = room else {
        assert_eq!(room, None);
        return 0;
    };
    assert!(host.asked().is_empty());
    host.no_response();
    host.on_room();
    assert_eq!(host.session.wants_room(), None);
    Broker::default().serve(&mut host);
    let len = host.response_frame().expect("an answer").len();
    assert!(len <= bytes, "version {version}: {len} bytes, and {bytes} were asked for");
    bytes
}

/// Regression test: a thousand clients that requested all topics were answered with gigabytes at once.
#[test]
fn a_list_of_topics_waits_for_room_and_a_short_one_does_not() {
    for version in versions(ApiKey::Metadata) {
        assert!(room(version, &all(version)) > 100_000);
        assert!(room(version, &topics(version, &["a"])) > 90_000);
        assert_eq!(room(version, &topics(version, &["b", "a-topic-with-a-name-of-some-length-007"])), 0);
    }
    let by_id = MetadataRequestTopic { topic_id: topic_id(1), name: None };
    assert!(room(13, &MetadataRequest { topics: Some(vec![by_id]), ..requests::metadata(13) }) > 90_000);
}

#[test]
fn descriptions_take_what_their_resources_may() {
    let resource = |resource_type, name: &str| DescribeConfigsResource {
        resource_type,
        resource_name: text(name),
        configuration_keys: None,
    };
    let describe =
        |resources| DescribeConfigsRequest { resources, include_synonyms: true, include_documentation: true };
    assert_eq!(room(4, &describe(vec![resource(2, "a")])), 0);
    room(4, &describe(vec![resource(2, "a"); 50]));
    assert!(room(4, &describe(vec![resource(4, "7")])) > 64 << 10);
}

#[test]
fn of_offsets_and_groups_nobody_knows() {
    let mut host = host();
    host.send(5, &ListGroupsRequest::default());
    assert_eq!(host.session.wants_room(), Some(Room::Unknown));
    let everything = OffsetFetchRequest { topics: None, ..requests::offset_fetch(7) };
    let mut other = self::host();
    other.send(7, &everything);
    assert_eq!(other.session.wants_room(), Some(Room::Unknown));
    for version in versions(ApiKey::OffsetFetch) {
        room(version, &requests::offset_fetch(version));
    }
}

#[test]
fn only_the_oldest_request_asks_and_what_follows_stays_behind_it() {
    let mut host = host();
    let mut broker = Broker::default();
    let mut fetch = requests::fetch(12);
    fetch.topics[0].partitions[0].fetch_offset = 0;
    host.send(12, &fetch);
    host.feed(&frame(12, 7, &all(12)));
    host.feed(&frame(12, 8, &all(12)));
    host.feed(&frame(3, 9, &requests::api_versions(3)));
    broker.serve(&mut host);
    assert_eq!(host.session.wants_room(), None, "a fetch that waits for messages is before it");
    host.on_room();
    host.no_response();
    host.pass(500);
    broker.serve(&mut host);
    host.response_to::<FetchRequest>(12);
    assert!(matches!(host.session.wants_room(), Some(Room::Bytes(_))));
    host.no_response();
    host.on_room();
    assert_eq!(host.response_to::<MetadataRequest>(12).0, 7);
    assert!(host.session.wants_room().is_some(), "the next one asks for its own");
    host.no_response();
    host.on_room();
    assert_eq!(host.response_to::<MetadataRequest>(12).0, 8);
    assert!(host.response_frame().is_some());
}

#[test]
fn a_server_that_does_not_care_is_not_asked() {
    let mut host = Host::new();
    host.topics.add(1, "a", 2_000, TopicConfig::default());
    assert!(host.ask(12, &all(12)).topics.len() == 2);
    assert_eq!(host.session.wants_room(), None);
}
