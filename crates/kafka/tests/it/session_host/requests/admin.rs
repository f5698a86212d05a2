//! Requests for settings, partitions and their messages.

use super::super::{NODE, text};
use polylogue_kafka_codec::alter_configs::{self, AlterConfigsRequest};
use polylogue_kafka_codec::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use polylogue_kafka_codec::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use polylogue_kafka_codec::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use polylogue_kafka_codec::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use polylogue_kafka_codec::describe_producers::{DescribeProducersRequest, TopicRequest};
use polylogue_kafka_codec::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use polylogue_kafka_codec::list_config_resources::ListConfigResourcesRequest;

/// Resource types, each with a name, a config of it, and a value.
const RESOURCES: [(i8, &str, &str, &str); 5] = [
    (2, "a", "retention.ms", "1000"),
    (4, "", "num.partitions", "3"),
    (4, "7", "message.max.bytes", "2000000"),
    (16, "m", "interval.ms", "1000"),
    (32, "g", "share.session.timeout.ms", "50000"),
];

pub fn create_partitions(_: i16) -> CreatePartitionsRequest {
    let assignments = Some(vec![CreatePartitionsAssignment { broker_ids: vec![NODE] }]);
    let topics = vec![
        CreatePartitionsTopic { name: text("a"), count: 5, assignments: None },
        CreatePartitionsTopic { name: text("b"), count: 2, assignments },
    ];
    CreatePartitionsRequest { topics, timeout_ms: 1_000, validate_only: false }
}

pub fn delete_records(_: i16) -> DeleteRecordsRequest {
    let partition = |(partition_index, offset)| DeleteRecordsPartition { partition_index, offset };
    let partitions = [(0, 0), (1, -1), (9, 5)].map(partition).into();
    DeleteRecordsRequest { topics: vec![DeleteRecordsTopic { name: text("a"), partitions }], timeout_ms: 1_000 }
}

pub fn describe_log_dirs(_: i16) -> DescribeLogDirsRequest {
    DescribeLogDirsRequest { topics: Some(vec![DescribableLogDirTopic { topic: text("a"), partitions: vec![0, 2] }]) }
}

pub fn describe_producers(_: i16) -> DescribeProducersRequest {
    DescribeProducersRequest { topics: vec![TopicRequest { name: text("a"), partition_indexes: vec![0, 9] }] }
}

pub fn list_config_resources(version: i16) -> ListConfigResourcesRequest {
    ListConfigResourcesRequest { resource_types: if version >= 1 { vec![2, 4, 16, 32] } else { vec![] } }
}

pub fn describe_configs(version: i16) -> DescribeConfigsRequest {
    let resource = |(resource_type, name, key, _): (i8, &str, &str, &str)| DescribeConfigsResource {
        resource_type,
        resource_name: text(name),
        configuration_keys: (resource_type != 2).then(|| vec![text(key)]),
    };
    DescribeConfigsRequest {
        resources: RESOURCES.map(resource).into(),
        include_synonyms: true,
        include_documentation: version >= 3,
    }
}

pub fn alter_configs(_: i16) -> AlterConfigsRequest {
    let resource = |(resource_type, name, key, value): (i8, &str, &str, &str)| alter_configs::AlterConfigsResource {
        resource_type,
        resource_name: text(name),
        configs: vec![alter_configs::AlterableConfig { name: text(key), value: Some(text(value)) }],
    };
    AlterConfigsRequest { resources: RESOURCES.map(resource).into(), validate_only: false }
}

pub fn incremental_alter_configs(_: i16) -> IncrementalAlterConfigsRequest {
    let resource = |(resource_type, name, key, value): (i8, &str, &str, &str)| AlterConfigsResource {
        resource_type,
        resource_name: text(name),
        configs: vec![AlterableConfig { name: text(key), config_operation: 0, value: Some(text(value)) }],
    };
    let mut resources: Vec<_> = RESOURCES.map(resource).into();
    let config = |(name, config_operation, value): (&str, i8, Option<&str>)| AlterableConfig {
        name: text(name),
        config_operation,
        value: value.map(text),
    };
    // Delete, append and subtract.
    resources[0].configs.extend(
        [("segment.ms", 1, None), ("cleanup.policy", 2, Some("compact")), ("cleanup.policy", 3, Some("delete"))]
            .map(config),
    );
    IncrementalAlterConfigsRequest { resources, validate_only: true }
}
