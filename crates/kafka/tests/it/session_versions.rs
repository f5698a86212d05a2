//! Every API at every supported version: request, broker, response.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_kafka::session::{SupportedApi, supported_apis};
use polylogue_kafka_codec::produce::ProduceRequest;
use polylogue_kafka_codec::{ApiKey, Request};
use polylogue_types::TopicId;
use session_host::broker::Broker;
use session_host::requests::{self, versions};
use session_host::{EPOCH, Host, NODE, START_MS, batch, text, topic_id};

/// Sends a request at every supported version, to a new session each, and checks the responses.
fn at_every_version<R: Request>(request: impl Fn(i16) -> R, mut check: impl FnMut(i16, R::Response)) {
    for version in versions(R::API_KEY) {
        let mut host = Host::new();
        let mut broker = Broker::default();
        // Three messages in `a`-0.
        host.send(9, &requests::produce(9));
        broker.serve(&mut host);
        assert_eq!(host.response::<ProduceRequest>(9).responses[0].partition_responses[0].error_code, 0);

        host.send(version, &request(version));
        broker.serve(&mut host);
        check(version, host.response::<R>(version));
        assert_eq!(host.session.inflight(), 0);
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
        row(ApiKey::DescribeGroups, 0..=6),
        row(ApiKey::ListGroups, 0..=5),
        row(ApiKey::SaslHandshake, 0..=1),
        row(ApiKey::ApiVersions, 0..=4),
        row(ApiKey::CreateTopics, 2..=7),
        row(ApiKey::DeleteTopics, 1..=6),
        row(ApiKey::DeleteRecords, 0..=2),
        row(ApiKey::InitProducerId, 0..=5),
        row(ApiKey::OffsetForLeaderEpoch, 2..=4),
        row(ApiKey::DescribeAcls, 1..=3),
        row(ApiKey::CreateAcls, 1..=3),
        row(ApiKey::DeleteAcls, 1..=3),
        row(ApiKey::DescribeConfigs, 1..=4),
        row(ApiKey::AlterConfigs, 0..=2),
        row(ApiKey::DescribeLogDirs, 1..=5),
        row(ApiKey::SaslAuthenticate, 0..=2),
        row(ApiKey::CreatePartitions, 0..=3),
        row(ApiKey::DeleteGroups, 0..=2),
        row(ApiKey::IncrementalAlterConfigs, 0..=1),
        row(ApiKey::OffsetDelete, 0..=0),
        row(ApiKey::DescribeClientQuotas, 0..=1),
        row(ApiKey::AlterClientQuotas, 0..=1),
        row(ApiKey::DescribeUserScramCredentials, 0..=0),
        row(ApiKey::AlterUserScramCredentials, 0..=0),
        row(ApiKey::DescribeQuorum, 0..=2),
        row(ApiKey::UpdateFeatures, 0..=2),
        row(ApiKey::DescribeCluster, 0..=2),
        row(ApiKey::DescribeProducers, 0..=0),
        row(ApiKey::ConsumerGroupHeartbeat, 0..=1),
        row(ApiKey::ConsumerGroupDescribe, 0..=1),
        row(ApiKey::ListConfigResources, 0..=1),
        row(ApiKey::DescribeTopicPartitions, 0..=0),
    ];
    assert_eq!(table, expected);
}

#[test]
fn api_versions() {
    at_every_version(requests::api_versions, |version, response| {
        assert_eq!(response.error_code, 0);
        let advertised: Vec<_> =
            supported_apis().map(|api| (api.key.code(), *api.advertised.start(), *api.advertised.end())).collect();
        let reported: Vec<_> = response.api_keys.iter().map(|k| (k.api_key, k.min_version, k.max_version)).collect();
        assert_eq!(reported, advertised);
        let features: Vec<_> = response.finalized_features.iter().map(|f| &*f.name).collect();
        assert_eq!(features, if version >= 3 { vec!["group.version", "metadata.version"] } else { vec![] });
    });
}

#[test]
fn produce() {
    at_every_version(requests::produce, |version, response| {
        let topic = &response.responses[0];
        assert_eq!(
            (topic.topic_id, &*topic.name),
            if version >= 13 { (topic_id(1), "") } else { (TopicId::ZERO, "a") }
        );
        let row = &topic.partition_responses[0];
        assert_eq!((row.index, row.error_code, row.base_offset, row.log_append_time_ms), (0, 0, 3, -1));
        assert_eq!(row.log_start_offset, if version >= 5 { 0 } else { -1 });
        assert_eq!(row.error_message, None);
        assert!(response.node_endpoints.is_empty());
    });
}

#[test]
fn fetch() {
    at_every_version(requests::fetch, |version, response| {
        assert_eq!((response.error_code, response.session_id), (0, 0));
        let topic = &response.responses[0];
        assert_eq!(
            (topic.topic_id, &*topic.topic),
            if version >= 13 { (topic_id(1), "") } else { (TopicId::ZERO, "a") }
        );
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
    at_every_version(requests::list_offsets, |version, response| {
        let row = &response.topics[0].partitions[0];
        assert_eq!((row.error_code, row.offset, row.timestamp), (0, 3, -1));
        assert_eq!(row.leader_epoch, if version >= 4 { EPOCH } else { -1 });
    });
}

#[test]
fn metadata() {
    at_every_version(requests::metadata, |version, response| {
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
    at_every_version(requests::offset_commit, |version, response| {
        let topic = &response.topics[0];
        assert_eq!(
            (topic.topic_id, &*topic.name),
            if version >= 10 { (topic_id(1), "") } else { (TopicId::ZERO, "a") }
        );
        assert_eq!((topic.partitions[0].partition_index, topic.partitions[0].error_code), (1, 0));
    });
}

#[test]
fn offset_fetch() {
    at_every_version(requests::offset_fetch, |version, response| {
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
    at_every_version(requests::find_coordinator, |version, response| {
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
fn groups() {
    at_every_version(requests::join_group, |version, response| {
        assert_eq!((response.error_code, response.generation_id), (0, 1));
        assert_eq!(response.protocol_name.as_deref(), Some("range"));
        assert_eq!(response.protocol_type.as_deref(), (version >= 7).then_some("consumer"));
        assert_eq!(response.skip_assignment, version >= 9);
        assert_eq!(&*response.member_id, "m");
    });
    at_every_version(requests::sync_group, |_, response| {
        assert_eq!((response.error_code, &*response.assignment), (0, b"yours".as_slice()));
    });
    at_every_version(requests::heartbeat, |_, response| assert_eq!(response.error_code, 0));
    at_every_version(requests::leave_group, |version, response| {
        assert_eq!((response.error_code, response.members.len()), (0, usize::from(version >= 3)));
    });
}

#[test]
fn create_topics() {
    at_every_version(requests::create_topics, |version, response| {
        let row = &response.topics[0];
        assert_eq!((&*row.name, row.error_code, &row.error_message), ("new", 0, &None));
        assert_eq!((row.num_partitions, row.replication_factor), if version >= 5 { (2, 1) } else { (-1, -1) });
        let configs = row.configs.as_ref().map_or(0, Vec::len);
        assert_eq!(configs > 0, version >= 5);
        assert_eq!(row.topic_id, if version >= 7 { topic_id(100) } else { TopicId::ZERO });
    });
}

#[test]
fn delete_topics() {
    at_every_version(requests::delete_topics, |version, response| {
        let row = &response.responses[0];
        assert_eq!((row.name.as_deref(), row.error_code), (Some("a"), 0));
        assert_eq!(row.topic_id, if version >= 6 { topic_id(1) } else { TopicId::ZERO });
    });
}

#[test]
fn init_producer_id() {
    at_every_version(requests::init_producer_id, |_, response| {
        assert_eq!((response.error_code, response.producer_id, response.producer_epoch), (0, 1, 0));
    });
}

#[test]
fn offset_for_leader_epoch() {
    at_every_version(requests::offset_for_leader_epoch, |_, response| {
        let row = &response.topics[0].partitions[0];
        assert_eq!((row.error_code, row.leader_epoch, row.end_offset), (0, EPOCH, 3));
    });
}

#[test]
fn list_groups() {
    at_every_version(requests::list_groups, |version, response| {
        assert_eq!((response.error_code, response.groups.len()), (0, 1));
        let group = &response.groups[0];
        assert_eq!((&*group.group_id, &*group.protocol_type), ("g", "consumer"));
        assert_eq!(&*group.group_state, if version >= 4 { "Empty" } else { "" });
        assert_eq!(&*group.group_type, if version >= 5 { "classic" } else { "" });
    });
}

#[test]
fn describe_groups() {
    at_every_version(requests::describe_groups, |version, response| {
        assert_eq!(response.groups.iter().map(|g| &*g.group_id).collect::<Vec<_>>(), ["g", "h"]);
        let group = &response.groups[0];
        assert_eq!((group.error_code, &group.error_message, &*group.group_state), (0, &None, "Stable"));
        assert_eq!((&*group.protocol_type, &*group.protocol_data), ("consumer", "range"));
        // Read, delete, describe, and describe and alter configs.
        assert_eq!(group.authorized_operations, if version >= 3 { 3_400 } else { i32::MIN });
        let member = &group.members[0];
        assert_eq!((&*member.member_id, &*member.client_id, &*member.client_host), ("m", "app", "/192.0.2.9"));
        assert_eq!(member.group_instance_id.as_deref(), (version >= 4).then_some("static"));
        assert_eq!((&*member.member_metadata, &*member.member_assignment), (b"meta".as_slice(), b"yours".as_slice()));
    });
}

#[test]
fn consumer_group_heartbeat() {
    at_every_version(requests::consumer_group_heartbeat, |_, response| {
        assert_eq!((response.error_code, &response.error_message), (0, &None));
        assert_eq!((response.member_id.as_deref(), response.member_epoch), (Some("m"), 3));
        assert_eq!(response.heartbeat_interval_ms, 5_000);
        let assigned = &response.assignment.unwrap().topic_partitions;
        assert_eq!((assigned.len(), assigned[0].topic_id, &assigned[0].partitions), (1, topic_id(1), &vec![0, 2]));
    });
}

#[test]
fn consumer_group_describe() {
    at_every_version(requests::consumer_group_describe, |version, response| {
        assert_eq!(response.groups.iter().map(|g| &*g.group_id).collect::<Vec<_>>(), ["g", "h"]);
        let group = &response.groups[0];
        assert_eq!((group.error_code, &group.error_message, &*group.group_state), (0, &None, "Reconciling"));
        assert_eq!((group.group_epoch, group.assignment_epoch, &*group.assignor_name), (7, 7, "uniform"));
        assert_eq!(group.authorized_operations, 3_400);
        let member = &group.members[0];
        assert_eq!((&*member.member_id, member.member_epoch, &*member.client_id), ("m", 6, "app"));
        assert_eq!((member.instance_id.as_deref(), &member.rack_id), (Some("static"), &None));
        assert_eq!(
            (&member.subscribed_topic_names, member.subscribed_topic_regex.as_deref()),
            (&vec![text("a")], Some("b.*"))
        );
        let (has, shall) = (&member.assignment.topic_partitions[0], &member.target_assignment.topic_partitions[0]);
        assert_eq!((&*has.topic_name, has.topic_id, &has.partitions), ("a", topic_id(1), &vec![0, 1]));
        assert_eq!(shall.partitions, [0]);
        assert_eq!(member.member_type, if version >= 1 { 1 } else { -1 });
    });
}

#[test]
fn delete_groups() {
    at_every_version(requests::delete_groups, |_, response| {
        let rows: Vec<_> = response.results.iter().map(|r| (&*r.group_id, r.error_code)).collect();
        assert_eq!(rows, [("g", 0), ("h", 0)]);
    });
}

#[test]
fn offset_delete() {
    at_every_version(requests::offset_delete, |_, response| {
        assert_eq!(response.error_code, 0);
        let topic = &response.topics[0];
        assert_eq!((&*topic.name, topic.partitions.len()), ("a", 1));
        assert_eq!((topic.partitions[0].partition_index, topic.partitions[0].error_code), (1, 0));
    });
}

#[test]
fn describe_cluster() {
    at_every_version(requests::describe_cluster, |_, response| {
        assert_eq!((response.error_code, &response.error_message, response.endpoint_type), (0, &None, 1));
        assert_eq!((&*response.cluster_id, response.controller_id), ("polylogue-test", NODE));
        assert_eq!(response.cluster_authorized_operations, 8_096);
        let broker = &response.brokers[0];
        assert_eq!((broker.broker_id, &*broker.host, broker.port), (NODE, "broker.example", 19_092));
        assert_eq!((response.brokers.len(), &broker.rack, broker.is_fenced), (1, &None, false));
    });
}

#[test]
fn describe_quorum() {
    at_every_version(requests::describe_quorum, |version, response| {
        assert_eq!((response.error_code, response.error_message.as_deref()), (0, Some("")));
        let topic = &response.topics[0];
        assert_eq!((&*topic.topic_name, topic.partitions.len()), ("__cluster_metadata", 1));
        let partition = &topic.partitions[0];
        assert_eq!((partition.error_code, partition.leader_id), (0, NODE));
        assert_eq!((partition.leader_epoch, partition.high_watermark), (6, 41));
        assert_eq!((partition.current_voters.len(), partition.observers.len()), (1, 0));
        let voter = &partition.current_voters[0];
        assert_eq!((voter.replica_id, voter.log_end_offset), (NODE, 42));
        assert_eq!(voter.replica_directory_id.is_zero(), version < 2);
        assert_eq!(voter.last_caught_up_timestamp, if version >= 1 { START_MS } else { -1 });
        assert_eq!(voter.last_fetch_timestamp, if version >= 1 { START_MS } else { -1 });
        let nodes: Vec<_> =
            response.nodes.iter().map(|n| (n.node_id, &*n.listeners[0].host, n.listeners[0].port)).collect();
        assert_eq!(nodes, if version >= 2 { vec![(NODE, "broker.example", 19_092)] } else { vec![] });
    });
}

#[test]
fn describe_topic_partitions() {
    at_every_version(requests::describe_topic_partitions, |_, response| {
        let topics: Vec<_> = response.topics.iter().map(|t| (t.name.as_deref(), t.partitions.len())).collect();
        assert_eq!((topics, &response.next_cursor), (vec![(Some("a"), 3), (Some("b"), 1)], &None));
        let topic = &response.topics[0];
        assert_eq!((topic.error_code, topic.topic_id, topic.is_internal), (0, topic_id(1), false));
        assert_eq!(topic.topic_authorized_operations, 3_576);
        let partition = &topic.partitions[2];
        assert_eq!((partition.error_code, partition.partition_index), (0, 2));
        assert_eq!((partition.leader_id, partition.leader_epoch), (NODE, EPOCH));
        assert_eq!((&partition.replica_nodes, &partition.isr_nodes), (&vec![NODE], &vec![NODE]));
        assert_eq!((&partition.eligible_leader_replicas, &partition.last_known_elr), (&Some(vec![]), &Some(vec![])));
        assert!(partition.offline_replicas.is_empty());
    });
}

#[test]
fn update_features() {
    at_every_version(requests::update_features, |version, response| {
        assert_eq!((response.error_code, &response.error_message), (0, &None));
        let rows: Vec<_> = response.results.iter().map(|r| (&*r.feature, r.error_code)).collect();
        assert_eq!(rows, if version <= 1 { vec![("metadata.version", 0)] } else { vec![] });
    });
}
