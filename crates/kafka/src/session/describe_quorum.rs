//! DescribeQuorum (KIP-595, KIP-836): one voter, which is this node and leads. polylogue's metadata is in its own log, which clients
//! cannot read: the quorum is told as one whose log is empty and whose only voter is always caught up.

use super::topics::node_id;
use super::work::{Step, Work};
use crate::codec::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node, ReplicaState, RequestPartitionData,
    RequestTopicData, ResponsePartitionData, ResponseTopicData,
};
use crate::codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};

/// The only partition that a quorum can be asked about.
const TOPIC: &str = "__cluster_metadata";
const PARTITION: i32 = 0;
/// What Kafka calls a listener without encryption that has no name of its own.
const LISTENER: &str = "PLAINTEXT";
/// The first version that tells where voters listen, and has texts with errors.
const NODES_FROM: i16 = 2;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = DescribeQuorumRequest::decode(body, version)?;
    let response = if is_the_quorum(&request.topics) {
        describe(work)
    } else {
        // Kafka refuses all when not exactly this one partition is asked for
        let topics = request.topics.into_iter().map(unknown).collect();
        DescribeQuorumResponse { topics, ..DescribeQuorumResponse::default() }
    };
    Ok(work.answer(&response))
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

fn describe(work: &Work<'_>) -> DescribeQuorumResponse {
    let node = node_id(&work.catalog.cluster());
    let listener = &work.peer.listener;
    let this = ReplicaState {
        replica_id: node,
        last_fetch_timestamp: work.now.wall_ms,
        last_caught_up_timestamp: work.now.wall_ms,
        ..ReplicaState::default()
    };
    let partition = ResponsePartitionData {
        partition_index: PARTITION,
        leader_id: node,
        current_voters: vec![this],
        ..ResponsePartitionData::default()
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
