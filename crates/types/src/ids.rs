//! Newtypes for everything that is counted or named.
//!
//! Partition, topic, producer and node ids are never reused (DESIGN section 3), so that a stale reference can
//! only ever meet "unknown", never another's data.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(/// One partition for ever: independent of shard, node and file. 0 is never a client's partition.
    PartitionId(u64));
id!(/// One journal shard, the unit of group commit and of replication.
    ShardId(u32));
id!(/// The fencing token of a shard's writer: grows at every start and every change of leader.
    Term(u64));
id!(/// The position of a frame in its shard's log: gapless, starts at 0.
    Index(u64));
id!(/// A node of the cluster. Never reused, not even for a node that was wiped.
    NodeId(u64));
id!(/// A message offset inside a partition. Kafka shows it as i64; polylogue never writes one above `i64::MAX`.
    Offset(u64));
id!(/// The ordinal of an entry (a batch) inside its partition: Pulsar's entry id. Gapless.
    Ordinal(u64));
id!(/// An idempotent or transactional producer. Never reused.
    ProducerId(i64));

impl Offset {
    /// The offset `count` messages later, or the last one there can be: what a damaged disk claims may lie at the end.
    #[must_use]
    pub fn plus(self, count: u64) -> Offset {
        Offset(self.0.saturating_add(count))
    }
}

impl Index {
    /// The index after this one.
    #[must_use]
    pub fn next(self) -> Index {
        Index(self.0 + 1)
    }
}

/// Milliseconds since the Unix epoch. Signed, because producers may send timestamps before 1970 or -1 for none.
pub type TimestampMs = i64;

/// A topic's incarnation (KIP-516): random, so that a topic created again under its old name is another topic.
/// All zero means "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The reserved id that stands for "not given".
    pub const ZERO: TopicId = TopicId([0; 16]);

    /// Makes a version 4 UUID out of 16 random bytes.
    #[must_use]
    pub fn from_random(mut bytes: [u8; 16]) -> TopicId {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        TopicId(bytes)
    }

    /// Whether this is the reserved "none".
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Kafka's text form of a UUID: URL-safe base64 without padding (22 characters).
impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut out = String::with_capacity(22);
        for group in self.0.chunks(3) {
            let mut word = 0u32;
            for i in 0..3 {
                word = (word << 8) | u32::from(group.get(i).copied().unwrap_or(0));
            }
            for i in 0..=group.len() {
                out.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63]));
            }
        }
        f.write_str(&out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged segment may claim to end at the last offset of all.
    #[test]
    fn offsets_end_where_numbers_do() {
        assert_eq!(Offset(u64::MAX - 1).plus(7), Offset(u64::MAX));
    }

    #[test]
    fn topic_id_prints_as_kafka_does() {
        assert_eq!(TopicId([0; 16]).to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId([0xff; 16]).to_string(), "_____________________w");
    }

    #[test]
    fn random_topic_id_is_a_version_4_uuid() {
        let id = TopicId::from_random([0xff; 16]);
        assert_eq!(id.0[6] >> 4, 4);
        assert_eq!(id.0[8] >> 6, 2);
    }
}
