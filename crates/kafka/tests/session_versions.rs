//! Every API at every version that is served: a request goes in, the broker does it, a response comes out.

mod session_host;

use polylogue_kafka::codec::generated::api_versions::ApiVersionsRequest;
use polylogue_kafka::codec::generated::create_topics::{CreatableTopic, CreateTopicsRequest};
use polylogue_kafka::codec::generated::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use polylogue_kafka::codec::generated::fetch::{FetchPartition, FetchRequest, FetchTopic};
use polylogue_kafka::codec::generated::find_coordinator::FindCoordinatorRequest;
use polylogue_kafka::codec::generated::heartbeat::HeartbeatRequest;
use polylogue_kafka::codec::generated::init_producer_id::InitProducerIdRequest;
use polylogue_kafka::codec::generated::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use polylogue_kafka::codec::generated::leave_group::{LeaveGroupRequest, MemberIdentity};
use polylogue_kafka::codec::generated::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka::codec::generated::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka::codec::generated::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use polylogue_kafka::codec::generated::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use polylogue_kafka::codec::generated::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use polylogue_kafka::codec::generated::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka::codec::generated::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use polylogue_kafka::codec::{ApiKey, Records, Request, StrBytes};
use polylogue_kafka::session::{SupportedApi, supported_apis};
use polylogue_types::TopicId;
use session_host::broker::Broker;
use session_host::{EPOCH, Host, NODE, batch, text, topic_id};

fn versions(key: ApiKey) -> std::ops::RangeInclusive<i16> {
    supported_apis().find(|api| api.key == key).unwrap().served
}

/// Sends a request at every version that is served, to a fresh session each, and looks at the responses.
fn at_every_version<R: Request>(request: impl Fn(i16) -> R, mut check: impl FnMut(i16, R::Response)) {
    for version in versions(R::API_KEY) {
        let mut host = Host::new();
        let mut broker = Broker::default();
        produce_three(&mut host, &mut broker);
        host.send(version, &request(version));
        broker.serve(&mut host);
        check(version, host.response::<R>(version));
        assert_eq!(host.session.inflight(), 0);
    }
}

/// Puts three messages into `a`-0.
fn produce_three(host: &mut Host, broker: &mut Broker) {
    host.send(9, &produce(9));
    broker.serve(host);
    let response = host.response::<ProduceRequest>(9);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

fn produce(version: i16) -> ProduceRequest {
    let (name, id) = if version >= 13 { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) };
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name,
            topic_id: id,
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::from(batch(&[b"one", b"two", b"three"]))),
            }],
        }],
        ..ProduceRequest::default()
    }
}

#[test]
fn the_table_is_that_of_kafka_4_3() {
    let row = |key, advertised: std::ops::RangeInclusive<i16>| (key, advertised);
    let table: Vec<_> = supported_apis().map(|SupportedApi { key, advertised, .. }| row(key, advertised)).collect();
    let expected = [
        row(ApiKey::Produce, 0..=13),
        row(ApiKey::Fetch, 4..=18),
        row(ApiKey::ListOffsets, 1..=11),
        row(ApiKey::Metadata, 0..=13),
        row(ApiKey::OffsetCommit, 2..=10),
        row(ApiKey::OffsetFetch, 1..=10),
        row(ApiKey::FindCoordinator, 0..=6),
        row(ApiKey::JoinGroup, 0..=9),
        row(ApiKey::Heartbeat, 0..=4),
        row(ApiKey::LeaveGroup, 0..=5),
        row(ApiKey::SyncGroup, 0..=5),
        row(ApiKey::ApiVersions, 0..=4),
        row(ApiKey::CreateTopics, 2..=7),
        row(ApiKey::DeleteTopics, 1..=6),
        row(ApiKey::InitProducerId, 0..=5),
        row(ApiKey::OffsetForLeaderEpoch, 2..=4),
    ];
    assert_eq!(table, expected);
}

#[test]
fn api_versions() {
    let request = |version| match version {
        0..3 => ApiVersionsRequest::default(),
        _ => ApiVersionsRequest {
            client_software_name: text("franz-go"),
            client_software_version: text("1.21.5"),
        },
    };
    at_every_version(request, |version, response| {
        assert_eq!(response.error_code, 0);
        let advertised: Vec<_> = supported_apis()
            .map(|api| (api.key.code(), *api.advertised.start(), *api.advertised.end()))
            .collect();
        let told: Vec<_> = response.api_keys.iter().map(|k| (k.api_key, k.min_version, k.max_version)).collect();
        assert_eq!(told, advertised);
        let features: Vec<_> = response.finalized_features.iter().map(|f| &*f.name).collect();
        assert_eq!(features, if version >= 3 { vec!["metadata.version"] } else { vec![] });
    });
}

#[test]
fn produce_at_every_version() {
    at_every_version(produce, |version, response| {
        let topic = &response.responses[0];
        assert_eq!((topic.topic_id, &*topic.name), if version >= 13 { (topic_id(1), "") } else { (TopicId::ZERO, "a") });
        let row = &topic.partition_responses[0];
        assert_eq!((row.index, row.error_code, row.base_offset, row.log_append_time_ms), (0, 0, 3, -1));
        assert_eq!(row.log_start_offset, if version >= 5 { 0 } else { -1 });
        assert_eq!(row.error_message, None);
        assert!(response.node_endpoints.is_empty());
    });
}

#[test]
fn fetch_at_every_version() {
    let request = |version| {
        let (topic, id) = if version >= 13 { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) };
        FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1 << 20,
            topics: vec![FetchTopic {
                topic,
                topic_id: id,
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
    };
    at_every_version(request, |version, response| {
        assert_eq!((response.error_code, response.session_id), (0, 0));
        let topic = &response.responses[0];
        assert_eq!((topic.topic_id, &*topic.topic), if version >= 13 { (topic_id(1), "") } else { (TopicId::ZERO, "a") });
        let row = &topic.partitions[0];
        assert_eq!((row.error_code, row.high_watermark, row.last_stable_offset), (0, 3, 3));
        assert_eq!(row.log_start_offset, if version >= 5 { 0 } else { -1 });
        assert_eq!(row.aborted_transactions, None);
        assert_eq!(row.preferred_read_replica, -1);
        assert_eq!(row.records.as_ref().unwrap().len(), batch(&[b"one", b"two", b"three"]).len());
    });
}

#[test]
fn list_offsets() {
    let request = |version| ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text("a"),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch: if version >= 4 { EPOCH } else { -1 },
                timestamp: -1,
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    at_every_version(request, |version, response| {
        let row = &response.topics[0].partitions[0];
        assert_eq!((row.error_code, row.offset, row.timestamp), (0, 3, -1));
        assert_eq!(row.leader_epoch, if version >= 4 { EPOCH } else { -1 });
    });
}

#[test]
fn metadata() {
    let request = |_| MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(text("a")), ..MetadataRequestTopic::default() }]),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    };
    at_every_version(request, |version, response| {
        let broker = &response.brokers[0];
        assert_eq!((broker.node_id, &*broker.host, broker.port), (NODE, "broker.example", 19_092));
        assert_eq!(response.cluster_id.as_deref(), (version >= 2).then_some("polylogue-test"));
        assert_eq!(response.controller_id, if version >= 1 { NODE } else { -1 });
        let topic = &response.topics[0];
        assert_eq!((topic.error_code, topic.name.as_deref(), topic.partitions.len()), (0, Some("a"), 3));
        assert_eq!(topic.topic_id, if version >= 10 { topic_id(1) } else { TopicId::ZERO });
        let partition = &topic.partitions[2];
        assert_eq!((partition.partition_index, partition.leader_id), (2, NODE));
        assert_eq!((&partition.replica_nodes, &partition.isr_nodes), (&vec![NODE], &vec![NODE]));
        assert_eq!(partition.leader_epoch, if version >= 7 { EPOCH } else { -1 });
    });
}

#[test]
fn offset_commit() {
    let request = |version| {
        let (name, id) = if version >= 10 { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) };
        OffsetCommitRequest {
            group_id: text("g"),
            topics: vec![OffsetCommitRequestTopic {
                name,
                topic_id: id,
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: 1,
                    committed_offset: 5,
                    committed_metadata: Some(text("note")),
                    ..OffsetCommitRequestPartition::default()
                }],
            }],
            ..OffsetCommitRequest::default()
        }
    };
    at_every_version(request, |version, response| {
        let topic = &response.topics[0];
        assert_eq!((topic.topic_id, &*topic.name), if version >= 10 { (topic_id(1), "") } else { (TopicId::ZERO, "a") });
        assert_eq!((topic.partitions[0].partition_index, topic.partitions[0].error_code), (1, 0));
    });
}

#[test]
fn offset_fetch() {
    let request = |version| {
        if version < 8 {
            return OffsetFetchRequest {
                group_id: text("g"),
                topics: Some(vec![OffsetFetchRequestTopic { name: text("a"), partition_indexes: vec![0, 1] }]),
                ..OffsetFetchRequest::default()
            };
        }
        let (name, id) = if version >= 10 { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) };
        OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: text("g"),
                topics: Some(vec![OffsetFetchRequestTopics { name, topic_id: id, partition_indexes: vec![0, 1] }]),
                ..OffsetFetchRequestGroup::default()
            }],
            ..OffsetFetchRequest::default()
        }
    };
    at_every_version(request, |version, response| {
        assert_eq!(response.error_code, 0);
        let rows: Vec<_> = if version < 8 {
            let topic = &response.topics[0];
            assert_eq!(&*topic.name, "a");
            topic.partitions.iter().map(|p| (p.partition_index, p.committed_offset, p.metadata.clone())).collect()
        } else {
            assert_eq!(&*response.groups[0].group_id, "g");
            let topic = &response.groups[0].topics[0];
            assert_eq!(topic.topic_id, if version >= 10 { topic_id(1) } else { TopicId::ZERO });
            topic.partitions.iter().map(|p| (p.partition_index, p.committed_offset, p.metadata.clone())).collect()
        };
        assert_eq!(rows, [(0, 42, Some(text("note"))), (1, 42, Some(text("note")))]);
    });
}

#[test]
fn find_coordinator() {
    let request = |version| FindCoordinatorRequest {
        key: if version < 4 { text("g") } else { StrBytes::new() },
        coordinator_keys: if version < 4 { vec![] } else { vec![text("g"), text("h")] },
        ..FindCoordinatorRequest::default()
    };
    at_every_version(request, |version, response| {
        if version < 4 {
            assert_eq!((response.error_code, response.node_id), (0, NODE));
            assert_eq!((&*response.host, response.port), ("broker.example", 19_092));
            return;
        }
        let keys: Vec<_> = response.coordinators.iter().map(|c| (&*c.key, c.node_id, c.error_code)).collect();
        assert_eq!(keys, [("g", NODE, 0), ("h", NODE, 0)]);
    });
}

#[test]
fn groups_at_every_version() {
    let join = |_| JoinGroupRequest {
        group_id: text("g"),
        member_id: text("m"),
        protocol_type: text("consumer"),
        protocols: vec![JoinGroupRequestProtocol { name: text("range"), metadata: "meta".into() }],
        ..JoinGroupRequest::default()
    };
    at_every_version(join, |version, response| {
        assert_eq!((response.error_code, response.generation_id), (0, 1));
        assert_eq!(response.protocol_name.as_deref(), Some("range"));
        assert_eq!(response.protocol_type.as_deref(), (version >= 7).then_some("consumer"));
        assert_eq!(response.skip_assignment, version >= 9);
        assert_eq!(&*response.member_id, "m");
    });
    let sync = |_| SyncGroupRequest {
        group_id: text("g"),
        generation_id: 1,
        member_id: text("m"),
        assignments: vec![SyncGroupRequestAssignment { member_id: text("m"), assignment: "yours".into() }],
        ..SyncGroupRequest::default()
    };
    at_every_version(sync, |_, response| {
        assert_eq!((response.error_code, &*response.assignment), (0, b"yours".as_slice()));
    });
    let heartbeat = |_| HeartbeatRequest { group_id: text("g"), ..HeartbeatRequest::default() };
    at_every_version(heartbeat, |_, response| assert_eq!(response.error_code, 0));
    let leave = |version| LeaveGroupRequest {
        group_id: text("g"),
        member_id: if version < 3 { text("m") } else { StrBytes::new() },
        members: if version < 3 {
            vec![]
        } else {
            vec![MemberIdentity { member_id: text("m"), ..MemberIdentity::default() }]
        },
    };
    at_every_version(leave, |version, response| {
        assert_eq!((response.error_code, response.members.len()), (0, usize::from(version >= 3)));
    });
}

#[test]
fn create_topics_at_every_version() {
    let request = |_| CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: text("new"),
            num_partitions: 2,
            replication_factor: 1,
            ..CreatableTopic::default()
        }],
        timeout_ms: 1_000,
        validate_only: false,
    };
    at_every_version(request, |version, response| {
        let row = &response.topics[0];
        assert_eq!((&*row.name, row.error_code, &row.error_message), ("new", 0, &None));
        assert_eq!((row.num_partitions, row.replication_factor), if version >= 5 { (2, 1) } else { (-1, -1) });
        let configs = row.configs.as_ref().map_or(0, Vec::len);
        assert_eq!(configs > 0, version >= 5);
        assert_eq!(row.topic_id, if version >= 7 { topic_id(100) } else { TopicId::ZERO });
    });
}

#[test]
fn delete_topics_at_every_version() {
    let request = |version| DeleteTopicsRequest {
        topics: if version < 6 {
            vec![]
        } else {
            vec![DeleteTopicState { name: None, topic_id: topic_id(1) }]
        },
        topic_names: if version < 6 { vec![text("a")] } else { vec![] },
        timeout_ms: 1_000,
    };
    at_every_version(request, |version, response| {
        let row = &response.responses[0];
        assert_eq!((row.name.as_deref(), row.error_code), (Some("a"), 0));
        assert_eq!(row.topic_id, if version >= 6 { topic_id(1) } else { TopicId::ZERO });
    });
}

#[test]
fn init_producer_id() {
    at_every_version(
        |_| InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() },
        |_, response| {
            assert_eq!((response.error_code, response.producer_id, response.producer_epoch), (0, 1, 0));
        },
    );
}

#[test]
fn offset_for_leader_epoch() {
    let request = |_| OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: text("a"),
            partitions: vec![OffsetForLeaderPartition { partition: 0, current_leader_epoch: EPOCH, leader_epoch: 1 }],
        }],
    };
    at_every_version(request, |_, response| {
        let row = &response.topics[0].partitions[0];
        assert_eq!((row.error_code, row.leader_epoch, row.end_offset), (0, EPOCH, 3));
    });
}
