//! A broker's parsed Kafka settings, by their users.

use crate::settings::KafkaSettings;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Kafka's broker settings that have a meaning here, read and checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokerSettings {
    /// What sessions go by. The [`raw`](polylogue_api::TopicConfig::raw) of its topic defaults holds what the broker's
    /// settings say, under the names of topic configs.
    pub sessions: KafkaSettings,
    /// What the group coordinator goes by.
    pub groups: GroupSettings,
    /// What the listener goes by.
    pub listener: ListenerSettings,
    /// What the log and the producers' memory go by.
    pub log: LogSettings,
    /// Which broker this is (`node.id`); `None` where nothing says.
    pub node_id: Option<u64>,
}

/// Kafka's `group.*`, `offsets.*` and `offset.*`, as they were read; the coordinator's own
/// [`GroupSettings`](polylogue_kafka_groups::GroupSettings) are made of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSettings {
    /// How long an empty group waits for more members (`group.initial.rebalance.delay.ms`).
    pub initial_rebalance_delay_ms: u64,
    /// The shortest session timeout that a member may ask for (`group.min.session.timeout.ms`).
    pub session_timeout_ms_min: u64,
    /// The longest session timeout that a member may ask for (`group.max.session.timeout.ms`).
    pub session_timeout_ms_max: u64,
    /// Members of one group (`group.max.size`).
    pub members_max: usize,
    /// How long the offsets of a group without members are kept (`offsets.retention.minutes`). Milliseconds.
    pub offsets_retention_ms: u64,
    /// How often expired offsets are looked for (`offsets.retention.check.interval.ms`).
    pub offsets_retention_check_ms: u64,
    /// The longest text that may be kept with a committed offset (`offset.metadata.max.bytes`).
    pub offset_metadata_bytes_max: usize,
    /// Groups of the consumer protocol (`group.consumer.*`).
    pub consumer: ConsumerGroupSettings,
}

impl Default for GroupSettings {
    /// Kafka's defaults.
    fn default() -> GroupSettings {
        GroupSettings {
            initial_rebalance_delay_ms: 3_000,
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            members_max: 2_147_483_647,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_retention_check_ms: 600_000,
            offset_metadata_bytes_max: 4_096,
            consumer: ConsumerGroupSettings::default(),
        }
    }
}

/// Kafka's `group.consumer.*`, as they were read. Times are milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerGroupSettings {
    /// How far apart assignments of a group are at least (`assignment.interval.ms`).
    pub assignment_interval_ms: u64,
    /// `min.assignment.interval.ms`.
    pub assignment_interval_ms_min: u64,
    /// `max.assignment.interval.ms`.
    pub assignment_interval_ms_max: u64,
    /// How often members send heartbeats (`heartbeat.interval.ms`).
    pub heartbeat_interval_ms: u64,
    /// `min.heartbeat.interval.ms`.
    pub heartbeat_interval_ms_min: u64,
    /// `max.heartbeat.interval.ms`.
    pub heartbeat_interval_ms_max: u64,
    /// After how long a silent member is removed (`session.timeout.ms`).
    pub session_timeout_ms: u64,
    /// `min.session.timeout.ms`.
    pub session_timeout_ms_min: u64,
    /// `max.session.timeout.ms`.
    pub session_timeout_ms_max: u64,
    /// How often regular expressions are resolved anew (`regex.refresh.interval.ms`).
    pub regex_refresh_ms: u64,
    /// Members of one group (`max.size`).
    pub members_max: usize,
    /// Names of assignors, the default first (`assignors`).
    pub assignors: Vec<String>,
}

impl Default for ConsumerGroupSettings {
    /// Kafka's defaults.
    fn default() -> ConsumerGroupSettings {
        ConsumerGroupSettings {
            assignment_interval_ms: 1_000,
            assignment_interval_ms_min: 0,
            assignment_interval_ms_max: 15_000,
            heartbeat_interval_ms: 5_000,
            heartbeat_interval_ms_min: 5_000,
            heartbeat_interval_ms_max: 15_000,
            session_timeout_ms: 45_000,
            session_timeout_ms_min: 45_000,
            session_timeout_ms_max: 60_000,
            regex_refresh_ms: 600_000,
            members_max: 2_147_483_647,
            assignors: vec!["uniform".to_owned(), "range".to_owned()],
        }
    }
}

/// How many connections are taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerSettings {
    /// Over all (`max.connections`).
    pub connections_max: usize,
    /// From one address (`max.connections.per.ip`).
    pub connections_per_ip_max: usize,
    /// From certain addresses (`max.connections.per.ip.overrides`).
    pub connections_per_ip_overrides: BTreeMap<IpAddr, usize>,
}

impl Default for ListenerSettings {
    /// Kafka's defaults: no bounds.
    fn default() -> ListenerSettings {
        ListenerSettings {
            connections_max: 2_147_483_647,
            connections_per_ip_max: 2_147_483_647,
            connections_per_ip_overrides: BTreeMap::new(),
        }
    }
}

/// What concerns stored messages as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// How often old messages are looked for at the latest (`log.retention.check.interval.ms`).
    pub retention_check_ms: u64,
    /// How long an idle producer's sequence numbers are remembered (`producer.id.expiration.ms`).
    pub producer_expiration_ms: u64,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings { retention_check_ms: 300_000, producer_expiration_ms: 86_400_000 }
    }
}
