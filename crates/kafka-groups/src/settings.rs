//! What an operator decides about groups.

use super::consumer::ConsumerGroupSettings;

/// The settings of the group coordinator. The names in brackets are Kafka's broker settings, and the defaults are
/// Kafka's unless said otherwise. They may change while running: what is under way keeps its deadlines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSettings {
    /// The shortest session timeout that a member may ask for (`group.min.session.timeout.ms`). Milliseconds.
    pub session_timeout_ms_min: i32,
    /// The longest session timeout that a member may ask for (`group.max.session.timeout.ms`). Milliseconds.
    pub session_timeout_ms_max: i32,
    /// How long the first rebalance of an empty group waits for more members
    /// (`group.initial.rebalance.delay.ms`). Milliseconds.
    pub initial_rebalance_delay_ms: u64,
    /// Members of a group, pending ones included (`group.max.size`); never more than 10,000.
    pub group_size_max: usize,
    /// How long offsets outlive the use of their group (`offsets.retention.minutes`). Milliseconds.
    pub offsets_retention_ms: u64,
    /// How often each group is looked at for offsets to drop (`offsets.retention.check.interval.ms`). Milliseconds.
    pub offsets_check_ms: u64,
    /// The longest text that may be committed with an offset (`offset.metadata.max.bytes`). Bytes.
    pub offset_metadata_bytes_max: usize,
    /// Groups at all, with members or with offsets. Kafka has no such bound.
    pub groups_max: usize,
    /// What all groups and offsets may hold in memory, as an estimate. Bytes; Kafka has no such bound.
    pub memory_bytes_max: usize,
    /// The same for the groups of one user: those in which the user was the first to commit or to join. Who has not logged in is a user, too.
    pub user_bytes_max: usize,
    /// Groups of the consumer protocol.
    pub consumer: ConsumerGroupSettings,
}

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 30 * 60 * 1_000,
            initial_rebalance_delay_ms: 3_000,
            group_size_max: 2_147_483_647,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            offsets_check_ms: 10 * 60 * 1_000,
            offset_metadata_bytes_max: 4_096,
            groups_max: 100_000,
            memory_bytes_max: 128 << 20,
            user_bytes_max: 64 << 20,
            consumer: ConsumerGroupSettings::default(),
        }
    }
}

/// The most members of a group, whatever the settings say: a rebalance touches all of them at once.
const GROUP_SIZE_MAX: usize = 10_000;

impl GroupSettings {
    /// The bound on members that holds.
    pub(super) fn group_size(&self) -> usize {
        self.group_size_max.min(GROUP_SIZE_MAX)
    }
}

/// How long a join of an unknown member may stay unanswered: its client cannot send heartbeats before it
/// has its id, and would try again (Kafka's `group.new.member.join.timeout.ms`, which is internal there). Milliseconds.
pub(super) const NEW_MEMBER_JOIN_MS: u64 = 5 * 60 * 1_000;

/// What one member may say in all its protocols together. Bytes. (Kafka is bounded by its largest record, 1 MiB, for
/// the whole group.)
pub(super) const MEMBER_METADATA_BYTES_MAX: usize = 1 << 20;

/// Topics that a member of a consumer group may name.
pub(super) const MEMBER_TOPICS_MAX: usize = 10_000;

/// Protocols that one member may name.
pub(super) const MEMBER_PROTOCOLS_MAX: usize = 100;

/// The largest record of a group's metadata: all its members with the chosen protocol's metadata and their
/// assignments. Bytes.
pub(super) const GROUP_RECORD_BYTES_MAX: usize = 16 << 20;

/// Bytes of a client's id that become part of its member id, which must still fit a Kafka string.
pub(super) const MEMBER_ID_PREFIX_BYTES_MAX: usize = 4_096;

/// Timers that one call of `on_deadline` looks at; the next call follows at once when more are due.
pub(super) const TIMERS_PER_CALL_MAX: usize = 1_024;

/// Offsets, partitions or members that one reply may tell of. A group of a longer request is refused.
pub(super) const REPLY_ENTRIES_MAX: usize = 1_000_000;

/// What the offsets of one reply may take, with the texts that were committed with them. A few bytes of a request can ask
/// for a text of [`GroupSettings::offset_metadata_bytes_max`], as often as they like. Bytes.
pub(super) const OFFSETS_REPLY_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_bounded_whatever_is_set() {
        assert_eq!(GroupSettings::default().group_size(), GROUP_SIZE_MAX);
        assert_eq!(GroupSettings { group_size_max: 3, ..GroupSettings::default() }.group_size(), 3);
    }
}
