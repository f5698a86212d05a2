//! The coordinator's settings, made of the broker's as they were read.

use super::parsed::{ConsumerGroupSettings, GroupSettings};
use polylogue_kafka_groups as groups;
use polylogue_kafka_groups::Assignor;

/// The broker's settings as they were read, with our own bounds at their defaults.
impl From<&GroupSettings> for groups::GroupSettings {
    fn from(read: &GroupSettings) -> groups::GroupSettings {
        let millis = |ms: u64| i32::try_from(ms).unwrap_or(i32::MAX);
        groups::GroupSettings {
            session_timeout_ms_min: millis(read.session_timeout_ms_min),
            session_timeout_ms_max: millis(read.session_timeout_ms_max),
            initial_rebalance_delay_ms: read.initial_rebalance_delay_ms,
            group_size_max: read.members_max,
            offsets_retention_ms: read.offsets_retention_ms,
            offsets_check_ms: read.offsets_retention_check_ms,
            offset_metadata_bytes_max: read.offset_metadata_bytes_max,
            consumer: groups::ConsumerGroupSettings::from(&read.consumer),
            ..groups::GroupSettings::default()
        }
    }
}

impl From<&ConsumerGroupSettings> for groups::ConsumerGroupSettings {
    fn from(read: &ConsumerGroupSettings) -> groups::ConsumerGroupSettings {
        let assignors: Vec<Assignor> = read.assignors.iter().filter_map(|name| Assignor::named(name)).collect();
        groups::ConsumerGroupSettings {
            session_timeout_ms: read.session_timeout_ms,
            session_timeout_ms_min: read.session_timeout_ms_min,
            session_timeout_ms_max: read.session_timeout_ms_max,
            heartbeat_interval_ms: read.heartbeat_interval_ms,
            heartbeat_interval_ms_min: read.heartbeat_interval_ms_min,
            heartbeat_interval_ms_max: read.heartbeat_interval_ms_max,
            assignment_interval_ms: read.assignment_interval_ms,
            assignment_interval_ms_min: read.assignment_interval_ms_min,
            assignment_interval_ms_max: read.assignment_interval_ms_max,
            regex_refresh_ms: read.regex_refresh_ms,
            group_size_max: read.members_max,
            assignors: if assignors.is_empty() { Assignor::ALL.to_vec() } else { assignors },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_broker_settings() {
        assert_eq!(groups::GroupSettings::from(&GroupSettings::default()), groups::GroupSettings::default());
    }
}
