//! What an operator decides about groups of the consumer protocol: for all of them, and for one.

use super::assignor::Assignor;
use super::heartbeat::GroupConfig;
use crate::KafkaGroups;
use polylogue_api::{Catalog, Settings, SettingsScope};

/// The most members of a group, whatever the settings say.
const GROUP_SIZE_MAX: usize = 10_000;

/// Kafka's `group.consumer.*`. The names in brackets are its broker settings; those of a group (`consumer.*`) go before, within the
/// bounds. Milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerGroupSettings {
    /// After how long a silent member is removed (`group.consumer.session.timeout.ms`).
    pub session_timeout_ms: u64,
    /// The shortest that a group may set (`group.consumer.min.session.timeout.ms`).
    pub session_timeout_ms_min: u64,
    /// The longest that a group may set (`group.consumer.max.session.timeout.ms`).
    pub session_timeout_ms_max: u64,
    /// How often members send heartbeats (`group.consumer.heartbeat.interval.ms`).
    pub heartbeat_interval_ms: u64,
    /// The shortest that a group may set (`group.consumer.min.heartbeat.interval.ms`).
    pub heartbeat_interval_ms_min: u64,
    /// The longest that a group may set (`group.consumer.max.heartbeat.interval.ms`).
    pub heartbeat_interval_ms_max: u64,
    /// How far apart assignments of a group are at least (`group.consumer.assignment.interval.ms`).
    pub assignment_interval_ms: u64,
    /// The shortest that a group may set (`group.consumer.min.assignment.interval.ms`).
    pub assignment_interval_ms_min: u64,
    /// The longest that a group may set (`group.consumer.max.assignment.interval.ms`).
    pub assignment_interval_ms_max: u64,
    /// How often regular expressions are resolved anew (`group.consumer.regex.refresh.interval.ms`).
    pub regex_refresh_ms: u64,
    /// Members of a group (`group.consumer.max.size`); never more than 10,000.
    pub group_size_max: usize,
    /// Assignors that members may ask for; the first one is used where they do not (`group.consumer.assignors`).
    pub assignors: Vec<Assignor>,
}

impl Default for ConsumerGroupSettings {
    /// Kafka's defaults.
    fn default() -> ConsumerGroupSettings {
        ConsumerGroupSettings {
            session_timeout_ms: 45_000,
            session_timeout_ms_min: 45_000,
            session_timeout_ms_max: 60_000,
            heartbeat_interval_ms: 5_000,
            heartbeat_interval_ms_min: 5_000,
            heartbeat_interval_ms_max: 15_000,
            assignment_interval_ms: 1_000,
            assignment_interval_ms_min: 0,
            assignment_interval_ms_max: 15_000,
            regex_refresh_ms: 600_000,
            group_size_max: 2_147_483_647,
            assignors: Assignor::ALL.to_vec(),
        }
    }
}

impl ConsumerGroupSettings {
    /// The bound on members that holds.
    pub(super) fn group_size(&self) -> usize {
        self.group_size_max.min(GROUP_SIZE_MAX)
    }
}

impl KafkaGroups {
    /// What holds for a group.
    pub(super) fn consumer_config(&self, catalog: &dyn Catalog, group: &str) -> GroupConfig {
        let broker = &self.settings.consumer;
        let own = catalog.settings(&SettingsScope::Group(group.to_owned()));
        let interval_ms = own_or(
            &own,
            "consumer.heartbeat.interval.ms",
            broker.heartbeat_interval_ms,
            [broker.heartbeat_interval_ms_min, broker.heartbeat_interval_ms_max],
        );
        GroupConfig {
            session_timeout_ms: own_or(
                &own,
                "consumer.session.timeout.ms",
                broker.session_timeout_ms,
                [broker.session_timeout_ms_min, broker.session_timeout_ms_max],
            ),
            heartbeat_interval_ms: i32::try_from(interval_ms).unwrap_or(i32::MAX),
            assignment_interval_ms: own_or(
                &own,
                "consumer.assignment.interval.ms",
                broker.assignment_interval_ms,
                [broker.assignment_interval_ms_min, broker.assignment_interval_ms_max],
            ),
            assignor: self.default_assignor(),
        }
    }

    /// The assignor of groups whose members want none.
    pub(super) fn default_assignor(&self) -> Assignor {
        self.settings.consumer.assignors.first().copied().unwrap_or(Assignor::Uniform)
    }
}

/// The group's own value within the broker's bounds, or else the broker's.
fn own_or(own: &Settings, name: &str, broker: u64, [min, max]: [u64; 2]) -> u64 {
    match own.get(name).and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(own) => own.max(min).min(max),
        None => broker,
    }
}
