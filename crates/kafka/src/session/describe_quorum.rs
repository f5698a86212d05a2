//! DescribeQuorum (KIP-595, KIP-836). polylogue's metadata is in its own log, which clients cannot read; the response is that of a KRaft
//! quorum with this node as the only voter and leader: the writer's term is the leader epoch, offsets are numbers of frames, and the voter is
//! always caught up.

use super::errors;
use super::topics::node_id;
use super::work::{Pending, Step, Work};
use polylogue_api::{MetadataLog, Reply, Request, Unavailable};
use polylogue_auth::Operation;
use polylogue_kafka_codec::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node, ReplicaState, RequestPartitionData,
    RequestTopicData, ResponsePartitionData, ResponseTopicData,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::{Index, TopicId};

/// The only topic of the metadata quorum.
const TOPIC: &str = "__cluster_metadata";
const PARTITION: i32 = 0;
/// Kafka's default name of a plaintext listener.
const LISTENER: &str = "PLAINTEXT";
/// The first version with the voters' endpoints and log directories, and with error texts.
const NODES_FROM: i16 = 2;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = DescribeQuorumRequest::decode(body, version)?;
    if !work.may_cluster(Operation::Describe) {
        let (error, text) = errors::with_message(ErrorCode::ClusterAuthorizationFailed);
        return Ok(work.answer(&DescribeQuorumResponse {
            error_code: error.code(),
            error_message: (version >= NODES_FROM).then_some(text),
            ..DescribeQuorumResponse::default()
        }));
    }
    if is_the_quorum(&request.topics) {
        let token = work.ask(Request::DescribeMetadataLog);
        return Ok(Step::Wait(token, Box::new(Looking)));
    }
    // As in Kafka, the whole request is refused unless it names exactly this partition.
    let topics = request.topics.into_iter().map(unknown).collect();
    Ok(work.answer(&DescribeQuorumResponse { topics, ..DescribeQuorumResponse::default() }))
}

/// Waits for the state of the metadata log.
#[derive(Debug)]
struct Looking;

impl Pending for Looking {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::DescribeMetadataLog(log) = reply else { return work.wrong_reply() };
        work.answer(&describe(work, log))
    }
}

fn is_the_quorum(topics: &[RequestTopicData]) -> bool {
    let [topic] = topics else { return false };
    *topic.topic_name == *TOPIC && topic.partitions == [RequestPartitionData { partition_index: PARTITION }]
}

fn unknown(topic: RequestTopicData) -> ResponseTopicData {
    let error = ErrorCode::UnknownTopicOrPartition;
    let row = |partition: RequestPartitionData| ResponsePartitionData {
        partition_index: partition.partition_index,
        error_code: error.code(),
        error_message: Some(StrBytes::from_static(error.message())),
        ..ResponsePartitionData::default()
    };
    ResponseTopicData { topic_name: topic.topic_name, partitions: topic.partitions.into_iter().map(row).collect() }
}

fn describe(work: &Work<'_>, log: Result<MetadataLog, Unavailable>) -> DescribeQuorumResponse {
    let node = node_id(&work.catalog.cluster());
    let listener = &work.peer.listener;
    let partition = match log {
        Ok(log) => led_by(node, work, log),
        Err(why) => {
            let (error, text) = errors::of_metadata(why);
            ResponsePartitionData {
                partition_index: PARTITION,
                error_code: error.code(),
                error_message: Some(text),
                ..ResponsePartitionData::default()
            }
        }
    };
    let listeners =
        vec![Listener { name: StrBytes::from_static(LISTENER), host: listener.host.clone(), port: listener.port }];
    let nodes = if work.head.version >= NODES_FROM { vec![Node { node_id: node, listeners }] } else { Vec::new() };
    DescribeQuorumResponse {
        topics: vec![ResponseTopicData { topic_name: StrBytes::from_static(TOPIC), partitions: vec![partition] }],
        nodes,
        ..DescribeQuorumResponse::default()
    }
}

/// Returns the quorum's state: the leader has fetched everything, just now.
fn led_by(node: i32, work: &Work<'_>, log: MetadataLog) -> ResponsePartitionData {
    let now_ms = work.now.wall_ms;
    // Kafka identifies log directories by such UUIDs.
    let directory = TopicId::from_random(log.directory);
    let offset = |index: Index| i64::try_from(index.0).unwrap_or(i64::MAX);
    let leader = ReplicaState {
        replica_id: node,
        replica_directory_id: if work.head.version >= NODES_FROM { directory } else { TopicId::ZERO },
        log_end_offset: offset(log.end),
        last_fetch_timestamp: now_ms,
        last_caught_up_timestamp: now_ms,
    };
    ResponsePartitionData {
        partition_index: PARTITION,
        leader_id: node,
        leader_epoch: i32::try_from(log.term.0).unwrap_or(i32::MAX),
        high_watermark: offset(log.high_watermark),
        current_voters: vec![leader],
        ..ResponsePartitionData::default()
    }
}
