//! A request of each API, for every supported version.

mod admin;
mod login;

pub use admin::*;
pub use login::*;

use super::{EPOCH, START_MS, batch, frame, text, topic_id};
use polylogue_kafka::session::supported_apis;
use polylogue_kafka_codec::api_versions::ApiVersionsRequest;
use polylogue_kafka_codec::consumer_group_describe::ConsumerGroupDescribeRequest;
use polylogue_kafka_codec::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, TopicPartitions};
use polylogue_kafka_codec::create_topics::{CreatableTopic, CreateTopicsRequest};
use polylogue_kafka_codec::delete_groups::DeleteGroupsRequest;
use polylogue_kafka_codec::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use polylogue_kafka_codec::describe_cluster::DescribeClusterRequest;
use polylogue_kafka_codec::describe_groups::DescribeGroupsRequest;
use polylogue_kafka_codec::describe_log_dirs::DescribeLogDirsRequest;
use polylogue_kafka_codec::describe_quorum::{DescribeQuorumRequest, RequestPartitionData, RequestTopicData};
use polylogue_kafka_codec::describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest};
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchTopic};
use polylogue_kafka_codec::find_coordinator::FindCoordinatorRequest;
use polylogue_kafka_codec::heartbeat::HeartbeatRequest;
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_kafka_codec::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use polylogue_kafka_codec::leave_group::{LeaveGroupRequest, MemberIdentity};
use polylogue_kafka_codec::list_groups::ListGroupsRequest;
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use polylogue_kafka_codec::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use polylogue_kafka_codec::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use polylogue_kafka_codec::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use polylogue_kafka_codec::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};
use polylogue_kafka_codec::{ApiKey, Records, Request, StrBytes};
use polylogue_types::TopicId;
use std::ops::RangeInclusive;

pub fn versions(key: ApiKey) -> RangeInclusive<i16> {
    supported_apis().find(|api| api.key == key).unwrap().served
}

/// Topic `a`, by its name or, from this version on, by its id.
fn topic_a(version: i16, by_id_from: i16) -> (StrBytes, TopicId) {
    if version >= by_id_from { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) }
}

pub fn api_versions(version: i16) -> ApiVersionsRequest {
    match version {
        0..3 => ApiVersionsRequest::default(),
        _ => ApiVersionsRequest { client_software_name: text("franz-go"), client_software_version: text("1.21.5") },
    }
}

/// Three messages to `a`-0.
pub fn produce(version: i16) -> ProduceRequest {
    let (name, topic_id) = topic_a(version, 13);
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name,
            topic_id,
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::from(batch(&[b"one", b"two", b"three"]))),
            }],
        }],
    }
}

/// From the second of the three messages.
pub fn fetch(version: i16) -> FetchRequest {
    let (topic, topic_id) = topic_a(version, 13);
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic,
            topic_id,
            partitions: vec![FetchPartition {
                partition: 0,
                current_leader_epoch: if version >= 9 { EPOCH } else { -1 },
                fetch_offset: 1,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
        }],
        ..FetchRequest::default()
    }
}

pub fn list_offsets(version: i16) -> ListOffsetsRequest {
    list_offsets_at(version, -1)
}

fn list_offsets_at(version: i16, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text("a"),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch: if version >= 4 { EPOCH } else { -1 },
                timestamp,
            }],
        }],
        ..ListOffsetsRequest::default()
    }
}

pub fn metadata(_: i16) -> MetadataRequest {
    MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(text("a")), ..MetadataRequestTopic::default() }]),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    }
}

pub fn offset_commit(version: i16) -> OffsetCommitRequest {
    let (name, topic_id) = topic_a(version, 10);
    OffsetCommitRequest {
        group_id: text("g"),
        topics: vec![OffsetCommitRequestTopic {
            name,
            topic_id,
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 1,
                committed_offset: 5,
                committed_metadata: Some(text("note")),
                ..OffsetCommitRequestPartition::default()
            }],
        }],
        ..OffsetCommitRequest::default()
    }
}

pub fn offset_fetch(version: i16) -> OffsetFetchRequest {
    if version < 8 {
        return OffsetFetchRequest {
            group_id: text("g"),
            topics: Some(vec![OffsetFetchRequestTopic { name: text("a"), partition_indexes: vec![0, 1] }]),
            ..OffsetFetchRequest::default()
        };
    }
    let (name, topic_id) = topic_a(version, 10);
    OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: text("g"),
            topics: Some(vec![OffsetFetchRequestTopics { name, topic_id, partition_indexes: vec![0, 1] }]),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    }
}

pub fn find_coordinator(version: i16) -> FindCoordinatorRequest {
    FindCoordinatorRequest {
        key: if version < 4 { text("g") } else { StrBytes::new() },
        coordinator_keys: if version < 4 { vec![] } else { vec![text("g"), text("h")] },
        ..FindCoordinatorRequest::default()
    }
}

pub fn join_group(_: i16) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: text("g"),
        member_id: text("m"),
        protocol_type: text("consumer"),
        protocols: vec![JoinGroupRequestProtocol { name: text("range"), metadata: "meta".into() }],
        ..JoinGroupRequest::default()
    }
}

pub fn sync_group(_: i16) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: text("g"),
        generation_id: 1,
        member_id: text("m"),
        assignments: vec![SyncGroupRequestAssignment { member_id: text("m"), assignment: "yours".into() }],
        ..SyncGroupRequest::default()
    }
}

pub fn heartbeat(_: i16) -> HeartbeatRequest {
    HeartbeatRequest { group_id: text("g"), ..HeartbeatRequest::default() }
}

pub fn leave_group(version: i16) -> LeaveGroupRequest {
    let alone = version < 3;
    let member = MemberIdentity { member_id: text("m"), ..MemberIdentity::default() };
    LeaveGroupRequest {
        group_id: text("g"),
        member_id: if alone { text("m") } else { StrBytes::new() },
        members: if alone { vec![] } else { vec![member] },
    }
}

pub fn create_topics(_: i16) -> CreateTopicsRequest {
    let topic =
        CreatableTopic { name: text("new"), num_partitions: 2, replication_factor: 1, ..CreatableTopic::default() };
    CreateTopicsRequest { topics: vec![topic], timeout_ms: 1_000, validate_only: false }
}

pub fn delete_topics(version: i16) -> DeleteTopicsRequest {
    let by_id = version >= 6;
    DeleteTopicsRequest {
        topics: if by_id { vec![DeleteTopicState { name: None, topic_id: topic_id(1) }] } else { vec![] },
        topic_names: if by_id { vec![] } else { vec![text("a")] },
        timeout_ms: 1_000,
    }
}

pub fn init_producer_id(_: i16) -> InitProducerIdRequest {
    InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() }
}

pub fn offset_for_leader_epoch(_: i16) -> OffsetForLeaderEpochRequest {
    OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: text("a"),
            partitions: vec![OffsetForLeaderPartition { partition: 0, current_leader_epoch: EPOCH, leader_epoch: 1 }],
        }],
    }
}

pub fn list_groups(version: i16) -> ListGroupsRequest {
    ListGroupsRequest {
        states_filter: if version >= 4 { vec![text("Empty")] } else { vec![] },
        types_filter: if version >= 5 { vec![text("classic")] } else { vec![] },
    }
}

pub fn describe_groups(version: i16) -> DescribeGroupsRequest {
    DescribeGroupsRequest { groups: vec![text("g"), text("h")], include_authorized_operations: version >= 3 }
}

pub fn consumer_group_heartbeat(version: i16) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: text("g"),
        member_id: text("m"),
        member_epoch: 3,
        instance_id: Some(text("static")),
        rack_id: Some(text("rack")),
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec![text("a")]),
        subscribed_topic_regex: (version >= 1).then(|| text("b.*")),
        server_assignor: Some(text("range")),
        topic_partitions: Some(vec![TopicPartitions { topic_id: topic_id(1), partitions: vec![0, 2] }]),
    }
}

pub fn consumer_group_describe(_: i16) -> ConsumerGroupDescribeRequest {
    ConsumerGroupDescribeRequest { group_ids: vec![text("g"), text("h")], include_authorized_operations: true }
}

pub fn delete_groups(_: i16) -> DeleteGroupsRequest {
    DeleteGroupsRequest { groups_names: vec![text("g"), text("h"), text("g")] }
}

pub fn offset_delete(_: i16) -> OffsetDeleteRequest {
    let partitions = vec![OffsetDeleteRequestPartition { partition_index: 1 }];
    OffsetDeleteRequest { group_id: text("g"), topics: vec![OffsetDeleteRequestTopic { name: text("a"), partitions }] }
}

pub fn describe_cluster(version: i16) -> DescribeClusterRequest {
    DescribeClusterRequest {
        include_cluster_authorized_operations: true,
        include_fenced_brokers: version >= 2,
        ..DescribeClusterRequest::default()
    }
}

pub fn describe_quorum(_: i16) -> DescribeQuorumRequest {
    let partitions = vec![RequestPartitionData { partition_index: 0 }];
    DescribeQuorumRequest { topics: vec![RequestTopicData { topic_name: text("__cluster_metadata"), partitions }] }
}

pub fn describe_topic_partitions(_: i16) -> DescribeTopicPartitionsRequest {
    let topics = ["b", "a"].map(|name| TopicRequest { name: text(name) });
    DescribeTopicPartitionsRequest { topics: topics.into(), ..DescribeTopicPartitionsRequest::default() }
}

pub fn update_features(_: i16) -> UpdateFeaturesRequest {
    let update =
        FeatureUpdateKey { feature: text("metadata.version"), max_version_level: 30, ..FeatureUpdateKey::default() };
    UpdateFeaturesRequest { feature_updates: vec![update], ..UpdateFeaturesRequest::default() }
}

/// Frames of every API at every version, and some variants.
pub fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    collect(&mut frames, api_versions);
    collect(&mut frames, produce);
    collect(&mut frames, |version| ProduceRequest { acks: 0, ..produce(version) });
    collect(&mut frames, fetch);
    collect(&mut frames, |version| FetchRequest { max_wait_ms: 0, session_epoch: 0, ..fetch(version) });
    collect(&mut frames, list_offsets);
    collect(&mut frames, |version| list_offsets_at(version, START_MS));
    collect(&mut frames, metadata);
    collect(&mut frames, |_| MetadataRequest { topics: Some(vec![]), ..metadata(0) });
    collect(&mut frames, offset_commit);
    collect(&mut frames, offset_fetch);
    collect(&mut frames, find_coordinator);
    collect(&mut frames, join_group);
    collect(&mut frames, sync_group);
    collect(&mut frames, heartbeat);
    collect(&mut frames, leave_group);
    collect(&mut frames, create_topics);
    collect(&mut frames, delete_topics);
    collect(&mut frames, init_producer_id);
    collect(&mut frames, offset_for_leader_epoch);
    collect(&mut frames, sasl_handshake);
    collect(&mut frames, sasl_authenticate);
    collect(&mut frames, describe_client_quotas);
    collect(&mut frames, alter_client_quotas);
    collect(&mut frames, describe_user_scram_credentials);
    collect(&mut frames, alter_user_scram_credentials);
    collect(&mut frames, create_acls);
    collect(&mut frames, describe_acls);
    collect(&mut frames, delete_acls);
    collect(&mut frames, list_groups);
    collect(&mut frames, describe_groups);
    collect(&mut frames, consumer_group_heartbeat);
    collect(&mut frames, consumer_group_describe);
    collect(&mut frames, delete_groups);
    collect(&mut frames, offset_delete);
    collect(&mut frames, describe_cluster);
    collect(&mut frames, describe_quorum);
    collect(&mut frames, describe_topic_partitions);
    collect(&mut frames, |_| DescribeTopicPartitionsRequest { topics: vec![], ..describe_topic_partitions(0) });
    collect(&mut frames, update_features);
    collect(&mut frames, create_partitions);
    collect(&mut frames, delete_records);
    collect(&mut frames, describe_log_dirs);
    collect(&mut frames, |_| DescribeLogDirsRequest { topics: None });
    collect(&mut frames, describe_producers);
    collect(&mut frames, list_config_resources);
    collect(&mut frames, describe_configs);
    collect(&mut frames, alter_configs);
    collect(&mut frames, incremental_alter_configs);
    frames
}

fn collect<R: Request>(frames: &mut Vec<Vec<u8>>, request: impl Fn(i16) -> R) {
    for version in versions(R::API_KEY) {
        let correlation = i32::try_from(frames.len()).unwrap();
        frames.push(frame(version, correlation, &request(version)));
    }
}
