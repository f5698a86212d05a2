//! Allocations of a session: none while idle, a few for each request, none for each message.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use allocation_counter::{AllocationInfo, measure};
use bytes::BytesMut;
use polylogue_api::{Appended, Catalog, CreatedTopic, Now, ReadData, Reply, Request as Ask, TopicConfig};
use polylogue_kafka::session::{Authority, NoUsers, Session, SessionContext};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::Records;
use polylogue_kafka_codec::create_topics::{CreatableTopic, CreateTopicsRequest};
use polylogue_kafka_codec::delete_groups::DeleteGroupsRequest;
use polylogue_kafka_codec::describe_groups::DescribeGroupsRequest;
use polylogue_kafka_codec::describe_quorum::{DescribeQuorumRequest, RequestTopicData};
use polylogue_kafka_codec::describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest};
use polylogue_kafka_codec::fetch::FetchPartition;
use polylogue_kafka_codec::find_coordinator::FindCoordinatorRequest;
use polylogue_kafka_codec::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use polylogue_kafka_codec::leave_group::{LeaveGroupRequest, MemberIdentity};
use polylogue_kafka_codec::list_groups::ListGroupsRequest;
use polylogue_kafka_codec::list_offsets::ListOffsetsTopic;
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::offset_delete::{OffsetDeleteRequest, OffsetDeleteRequestTopic};
use polylogue_kafka_codec::produce::ProduceRequest;
use polylogue_kafka_codec::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};
use polylogue_types::{Chunk, Offset};
use session_host::{START_MS, Topics, batch, frame, init, requests};
use std::sync::Arc;

/// A session as the server runs it, in an environment that does not allocate.
struct Bare {
    session: Session,
    topics: Topics,
    settings: KafkaSettings,
    users: Arc<dyn Authority>,
    input: BytesMut,
    output: Vec<Chunk>,
}

impl Bare {
    fn new() -> Bare {
        let mut topics = Topics::default();
        topics.add(1, "a", 3, TopicConfig::default());
        // FindCoordinator would create it first.
        topics.add(2, "__consumer_offsets", 1, TopicConfig::default());
        let session = Session::new(init(1, Arc::default()), Now::default());
        let (input, output) = (BytesMut::with_capacity(1 << 20), Vec::with_capacity(64));
        let (settings, users) = (KafkaSettings::default(), NoUsers::shared());
        let mut bare = Bare { session, topics, settings, users, input, output };
        // Warm up the session's queues.
        let frame = frame(9, 1, &requests::produce(9));
        bare.round(&frame, produced());
        bare
    }

    fn call<T>(&mut self, f: impl FnOnce(&mut Session, &mut BytesMut, &SessionContext<'_>) -> T) -> T {
        let now = Now { wall_ms: START_MS, monotonic_ms: 1 };
        let topics: &dyn Catalog = &self.topics;
        let cx = SessionContext { now, catalog: topics, settings: &self.settings, users: &self.users };
        f(&mut self.session, &mut self.input, &cx)
    }

    /// A request, one reply, a response.
    fn round(&mut self, frame: &[u8], reply: Reply) {
        self.input.extend_from_slice(frame);
        self.call(|session, input, cx| session.on_bytes(input, cx));
        let (token, asked) = self.session.poll_request().unwrap();
        drop::<Ask>(asked);
        self.call(|session, _, cx| session.on_reply(token, reply, cx));
        assert!(self.session.poll_output(&mut self.output));
        assert!(!self.output.is_empty());
        self.output.clear();
    }
}

fn produced() -> Reply {
    Reply::Append(vec![Ok(Appended {
        base_offset: Offset(0),
        log_start: Offset(0),
        duplicate: false,
        max_timestamp: -1,
    })])
}

fn read(chunks: Vec<Chunk>) -> Reply {
    Reply::Read(vec![Ok(ReadData { chunks, high_watermark: Offset(5), log_start: Offset(0) })])
}

/// Measures the second of two equal rounds; the first may grow buffers.
fn of_round(frame: &[u8], mut reply: impl FnMut() -> Reply) -> AllocationInfo {
    let mut bare = Bare::new();
    bare.round(frame, reply());
    // The input must grow once after its first bytes were split off.
    bare.input.reserve(1 << 20);
    let reply = reply();
    measure(|| bare.round(frame, reply))
}

fn produce_of(messages: usize) -> Vec<u8> {
    let values = vec![b"a message of some bytes".as_slice(); messages];
    let mut request = requests::produce(9);
    request.topic_data[0].partition_data[0].records = Some(Records::from(batch(&values)));
    frame::<ProduceRequest>(9, 7, &request)
}

#[test]
fn a_produce_allocates_a_handful_of_times_whatever_its_messages() {
    let [one, thousand] = [1, 1_000].map(|messages| of_round(&produce_of(messages), produced).count_total);
    assert_eq!(one, thousand);
    assert!(one <= 12, "{one} allocations");
}

#[test]
fn a_fetch_allocates_a_handful_of_times_whatever_its_messages() {
    let frame = frame(12, 7, &requests::fetch(12));
    let of = |messages: usize| {
        let bytes = batch(&vec![b"a message of some bytes".as_slice(); messages]);
        of_round(&frame, || read(vec![Chunk::Bytes(bytes.clone())])).count_total
    };
    let [few, many] = [20, 2_000].map(of);
    assert_eq!(few, many);
    assert!(few <= 16, "{few} allocations");
}

/// An idle connection has its struct and the text of its peer's address.
#[test]
fn a_silent_session_has_next_to_nothing_on_the_heap() {
    let template = init(1, Arc::default());
    let mut session = None;
    let heap = measure(|| session = Some(Session::new(template.clone(), Now::default())));
    assert!(heap.bytes_current < 128, "{} bytes stay", heap.bytes_current);
    assert!(size_of::<Session>() <= 512, "{} bytes", size_of::<Session>());
    drop(session);
}

/// The first bytes of a frame reserve nothing: neither for its length nor for its counts.
#[test]
fn half_a_frame_reserves_nothing() {
    let mut bare = Bare::new();
    let mut bytes = frame(9, 1, &requests::produce(9));
    bytes[..4].copy_from_slice(&(90_i32 << 20).to_be_bytes());
    bare.input.extend_from_slice(&bytes);
    let heap = measure(|| bare.call(|session, input, cx| session.on_bytes(input, cx)));
    assert_eq!(heap.count_total, 0);
    assert_eq!(bare.session.next_frame().unwrap().len, 4 + (90 << 20));
}

/// Lists of the smallest elements stay within the permit, whether they are answered or
/// refused.
#[test]
fn lists_of_nothings_stay_within_their_permit() {
    let names = |count: u32| (0..count).map(|n| format!("{n:x}")).map(|name| name.as_str().into());
    let mut frames = Vec::new();
    for count in [100, 10_000, 30_000] {
        let coordinator_keys = vec!["".into(); count];
        frames.push(frame(4, 1, &FindCoordinatorRequest { coordinator_keys, ..requests::find_coordinator(4) }));
        let count = u32::try_from(count).unwrap();
        let topic = |name| MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() };
        let topics = Some(names(count).map(topic).collect());
        frames.push(frame(
            9,
            1,
            &MetadataRequest { topics, allow_auto_topic_creation: false, ..requests::metadata(9) },
        ));
        let partition = |partition| FetchPartition { partition, ..FetchPartition::default() };
        let mut fetch = requests::fetch(4);
        fetch.topics[0].partitions = (0..i32::try_from(count).unwrap()).map(partition).collect();
        frames.push(frame(4, 1, &fetch));
        let mut list = requests::list_offsets(1);
        list.topics = names(count).map(|name| ListOffsetsTopic { name, partitions: vec![] }).collect();
        frames.push(frame(1, 1, &list));
        let member = |name| MemberIdentity { member_id: name, ..MemberIdentity::default() };
        let leave = LeaveGroupRequest { members: names(count).map(member).collect(), ..requests::leave_group(5) };
        frames.push(frame(4, 1, &leave));
        let protocol = |name| JoinGroupRequestProtocol { name, metadata: "".into() };
        let protocols = names(count).map(protocol).collect();
        let topics = names(count).map(|name| TopicRequest { name }).collect();
        frames.push(frame(0, 1, &DescribeTopicPartitionsRequest { topics, ..requests::describe_topic_partitions(0) }));
        let group = |name: &str| DeleteGroupsRequest { groups_names: vec![name.into(); count as usize] };
        frames.push(frame(2, 1, &group("")));
        frames.push(frame(2, 1, &DeleteGroupsRequest { groups_names: names(count).collect() }));
        frames.push(frame(
            6,
            1,
            &DescribeGroupsRequest { groups: names(count).collect(), ..requests::describe_groups(6) },
        ));
        frames.push(frame(
            5,
            1,
            &ListGroupsRequest { states_filter: vec!["".into(); count as usize], types_filter: vec![] },
        ));
        let topic = |name| OffsetDeleteRequestTopic { name, partitions: vec![] };
        frames.push(frame(
            0,
            1,
            &OffsetDeleteRequest { topics: names(count).map(topic).collect(), ..requests::offset_delete(0) },
        ));
        let quorum = |topic_name| RequestTopicData { topic_name, partitions: vec![] };
        frames.push(frame(2, 1, &DescribeQuorumRequest { topics: names(count).map(quorum).collect() }));
        let update = |feature| FeatureUpdateKey { feature, ..FeatureUpdateKey::default() };
        // More would exceed the largest request.
        let feature_updates = names(count.min(20_000)).map(update).collect();
        frames.push(frame(1, 1, &UpdateFeaturesRequest { feature_updates, ..requests::update_features(1) }));
        frames.push(frame(6, 1, &JoinGroupRequest { protocols, ..requests::join_group(6) }));
    }
    for bytes in frames {
        let mut bare = Bare::new();
        bare.input.extend_from_slice(&bytes[..6]);
        bare.call(|session, input, cx| session.on_bytes(input, cx));
        let permit = bare.session.next_frame().unwrap().memory;
        bare.input.reserve(bytes.len());
        bare.input.extend_from_slice(&bytes[6..]);
        let heap = measure(|| bare.call(|session, input, cx| session.on_bytes(input, cx)));
        let factor = heap.bytes_max / bytes.len() as u64;
        println!("{:x?}: {} bytes, {factor} times, permit {permit}", &bytes[4..8], bytes.len());
        assert!(heap.bytes_max < u64::try_from(permit).unwrap(), "{} of {permit} bytes", heap.bytes_max);
    }
}

/// Metadata requests create topics, and CreateTopics returns all configs of a new topic: 36 each.
#[test]
fn many_new_topics_stay_within_their_permit() {
    let mut over = false;
    for count in [50, 10_000] {
        let names: Vec<String> = (0..count).map(|n| format!("{n}_")).collect();
        let ask = |name: &String| MetadataRequestTopic {
            name: Some(name.as_str().into()),
            ..MetadataRequestTopic::default()
        };
        let topics = Some(names.iter().map(ask).collect());
        let metadata = MetadataRequest { topics, allow_auto_topic_creation: true, ..requests::metadata(9) };
        let create = |name: &String| CreatableTopic {
            name: name.as_str().into(),
            num_partitions: 1,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let topics = names.iter().map(create).collect();
        let create = CreateTopicsRequest { topics, ..requests::create_topics(7) };
        for bytes in [frame(9, 1, &metadata), frame(4, 1, &create), frame(5, 1, &create), frame(7, 1, &create)] {
            let mut bare = Bare::new();
            bare.input.extend_from_slice(&bytes[..6]);
            bare.call(|session, input, cx| session.on_bytes(input, cx));
            let permit = bare.session.next_frame().unwrap().memory;
            bare.input.reserve(bytes.len());
            let topic = bare.topics.add(9, "created", 1, TopicConfig::default());
            let created = names.iter().map(|_| Ok(CreatedTopic { topic: Arc::clone(&topic) })).collect();
            let heap = measure(|| bare.round(&bytes[6..], Reply::CreateTopics(created)));
            let factor = heap.bytes_max / bytes.len() as u64;
            println!("{:x?}: {} bytes, {factor} times, permit {permit}", &bytes[4..8], bytes.len());
            over |= heap.bytes_max >= u64::try_from(permit).unwrap();
        }
    }
    assert!(!over);
}

/// Regression test: configs that a response has no field for were built: 10,000 topics of version 4 took 50 MB.
#[test]
fn settings_are_made_for_versions_that_can_say_them() {
    let of = |version| {
        let frame = frame(version, 1, &requests::create_topics(version));
        let created = || {
            let mut topics = Topics::default();
            Reply::CreateTopics(vec![Ok(CreatedTopic { topic: topics.add(9, "new", 2, TopicConfig::default()) })])
        };
        of_round(&frame, created).bytes_total
    };
    assert!(of(4) < 3_000 && of(5) > 5_000, "{} and {}", of(4), of(5));
}

/// A frame full of the smallest partitions costs no more than a few times its size.
#[test]
fn a_frame_of_nothings_does_not_multiply() {
    let mut bytes = frame(9, 1, &ProduceRequest { topic_data: vec![], ..requests::produce(9) });
    // One topic "a" with as many partitions as fit: number, null records, no tags.
    let partitions = 2_000_000_u32;
    assert_eq!(bytes.pop(), Some(0));
    assert_eq!(bytes.pop(), Some(1));
    bytes.extend([2, 2, b'a']);
    let mut count = partitions + 1;
    while count >= 0x80 {
        bytes.push(u8::try_from(count & 0x7f).unwrap() | 0x80);
        count >>= 7;
    }
    bytes.push(u8::try_from(count).unwrap());
    bytes.resize(bytes.len() + partitions as usize * 6 + 2, 0);
    let len = i32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&len.to_be_bytes());

    let mut bare = Bare::new();
    bare.input.reserve(bytes.len());
    bare.input.extend_from_slice(&bytes);
    let heap = measure(|| bare.call(|session, input, cx| session.on_bytes(input, cx)));
    let most = u64::try_from(4 * bytes.len()).unwrap();
    assert!(heap.bytes_max < most, "{} bytes for a frame of {}", heap.bytes_max, bytes.len());
    assert!(bare.session.close_reason().is_some());
}
