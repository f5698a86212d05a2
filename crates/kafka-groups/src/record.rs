//! What the coordinator writes to the log.
//!
//! ```text
//! record   format u8 = 1 | kind u8 | group text | body            (text: length, UTF-8)
//!
//! kind 1   Metadata      generation i32 | protocol type text? | protocol text? | leader text? | count | member*
//!          member        id text | instance text? | client id text | client host text |
//!                        session timeout i32 ms | rebalance timeout i32 ms | metadata blob | assignment blob
//! kind 2   Commit        retention i64 ms, -1 for none | count | topic*
//!          topic         id 16 bytes | count | { index i32 | offset i64 | leader epoch i32 | metadata text }*
//! kind 3   Remove        count | { topic id 16 bytes | count | index i32* }*
//! kind 4   Expire        count | { topic id 16 bytes | count | { index i32 | committed i64 ms }* }*
//! kind 5   ForgetTopics  count | topic id 16 bytes*                (the group is empty: it concerns all)
//! kind 6   Delete        -
//! kind 7   Drop          generation i32
//! kind 8   Barrier       -
//! kind 9   Owner         user text
//! kind 10  Consumer      change*                                   (to the end)
//!          change        1 | group epoch i32 | metadata hash u64
//!                        2 | member id text | subscription
//!                        3 | assignment epoch i32 | count | { member id text | partitions }*
//!                        4 | member id text | current
//!                        5 | member id text                        the member is gone
//!                        6 | regular expression text | count | topic name text*
//!                        7 | regular expression text               no member has it any more
//!          subscription  instance text? | rack text? | client id text | client host text | rebalance timeout i32 ms |
//!                        assignor text? | count | topic name text* | regular expression text
//!          current       epoch i32 | epoch before i32 | state u8 | held | held             (assigned, to be revoked)
//!          partitions    count | { topic id 16 bytes | count | index i32* }*
//!          held          count | { topic id 16 bytes | count | { index i32 | epoch i32 }* }*
//! ```
//!
//! `?` stands for a byte that says 0 absent or 1 present. The time of a record is that of its frame. `Expire` and
//! `Drop` were decided by what had been applied when they were proposed; a commit or a join may lie between, so they
//! carry what they saw and do nothing where that has changed. A `Barrier` changes nothing: a reply that depends on
//! records proposed before rides on it. A `Consumer` makes a group one of the consumer protocol, and a `Metadata` one of the classic
//! protocol: what was of the other kind is gone. Names, topics and indexes rise; state is 0 stable, 1 to be revoked, 2 unreleased.

use super::consumer::model::Change;
use super::wire::{Decoder, Encoder, Malformed};
use bytes::Bytes;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::{TimestampMs, TopicId};

/// The format of records and chunks that this code writes, and the only one it reads.
pub(super) const FORMAT: u8 = 1;

/// A group with members, or an empty one that had some, as the log keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Metadata {
    pub(super) generation: i32,
    pub(super) protocol_type: Option<StrBytes>,
    pub(super) protocol: Option<StrBytes>,
    pub(super) leader: Option<StrBytes>,
    /// By rising id.
    pub(super) members: Vec<MemberMetadata>,
}

/// A member as the log keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MemberMetadata {
    pub(super) id: StrBytes,
    pub(super) instance_id: Option<StrBytes>,
    pub(super) client_id: StrBytes,
    pub(super) client_host: StrBytes,
    pub(super) session_timeout_ms: i32,
    pub(super) rebalance_timeout_ms: i32,
    /// What it said with the chosen protocol; what it said with others is not kept, as in Kafka.
    pub(super) metadata: Bytes,
    pub(super) assignment: Bytes,
}

/// One offset in a [`Record::Commit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CommittedOffset {
    pub(super) index: i32,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: StrBytes,
}

/// A change of applied state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// The group is now this.
    Metadata { group: StrBytes, metadata: Metadata },
    /// Offsets committed by one request.
    Commit { group: StrBytes, retention_ms: i64, topics: Vec<(TopicId, Vec<CommittedOffset>)> },
    /// Offsets that an operator removed.
    Remove { group: StrBytes, topics: Vec<(TopicId, Vec<i32>)> },
    /// Offsets that have outlived their use, if they are still those committed then.
    Expire { group: StrBytes, topics: Vec<(TopicId, Vec<(i32, TimestampMs)>)> },
    /// No group has offsets in these topics any more.
    ForgetTopics { topics: Vec<TopicId> },
    /// A group that an operator deleted, with its offsets.
    Delete { group: StrBytes },
    /// A group that has neither members nor offsets, if that is still so and no member has joined since.
    Drop { group: StrBytes, generation: i32 },
    /// Nothing.
    Barrier,
    /// What the group holds counts against the bound of this user, if there is the group and no other user has it already.
    Owner { group: StrBytes, user: StrBytes },
    /// What one heartbeat or deadline changes in a group of the consumer protocol.
    Consumer { group: StrBytes, changes: Vec<Change> },
}

const METADATA: u8 = 1;
const COMMIT: u8 = 2;
const REMOVE: u8 = 3;
const EXPIRE: u8 = 4;
const FORGET_TOPICS: u8 = 5;
const DELETE: u8 = 6;
const DROP: u8 = 7;
const BARRIER: u8 = 8;
const OWNER: u8 = 9;
const CONSUMER: u8 = 10;

/// The fewest bytes of a member: five lengths or flags, two timeouts, two more lengths.
const MEMBER_BYTES_MIN: usize = 1 + 1 + 1 + 1 + 4 + 4 + 1 + 1;
/// The fewest bytes of a topic with its count.
const TOPIC_BYTES_MIN: usize = 16 + 1;
/// The fewest bytes of a committed offset.
const COMMITTED_BYTES_MIN: usize = 4 + 8 + 4 + 1;

impl Metadata {
    pub(super) fn encode(&self, into: &mut Encoder) {
        into.i32(self.generation);
        into.optional_text(self.protocol_type.as_ref());
        into.optional_text(self.protocol.as_ref());
        into.optional_text(self.leader.as_ref());
        into.len(self.members.len());
        for member in &self.members {
            into.text(&member.id);
            into.optional_text(member.instance_id.as_ref());
            into.text(&member.client_id);
            into.text(&member.client_host);
            into.i32(member.session_timeout_ms);
            into.i32(member.rebalance_timeout_ms);
            into.blob(&member.metadata);
            into.blob(&member.assignment);
        }
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Metadata, Malformed> {
        let mut metadata = Metadata {
            generation: from.i32("generation")?,
            protocol_type: from.optional_text("protocol type")?,
            protocol: from.optional_text("protocol")?,
            leader: from.optional_text("leader")?,
            members: Vec::new(),
        };
        let count = from.count("members", MEMBER_BYTES_MIN)?;
        for _ in 0..count {
            let member = MemberMetadata {
                id: from.text("member id")?,
                instance_id: from.optional_text("instance id")?,
                client_id: from.text("client id")?,
                client_host: from.text("client host")?,
                session_timeout_ms: from.i32("session timeout")?,
                rebalance_timeout_ms: from.i32("rebalance timeout")?,
                metadata: from.blob("member metadata")?,
                assignment: from.blob("assignment")?,
            };
            if metadata.members.last().is_some_and(|last| last.id >= member.id) {
                return Err(Malformed::new("member id out of order", &member.id));
            }
            metadata.members.push(member);
        }
        Ok(metadata)
    }
}

impl Record {
    pub(super) fn encode(&self) -> Bytes {
        let mut into = Encoder::default();
        into.u8(FORMAT);
        match self {
            Record::Metadata { group, metadata } => {
                head(&mut into, METADATA, group);
                metadata.encode(&mut into);
            }
            Record::Commit { group, retention_ms, topics } => {
                head(&mut into, COMMIT, group);
                into.i64(*retention_ms);
                topics_to(&mut into, topics, |into, offset| {
                    into.i32(offset.index);
                    into.i64(offset.offset);
                    into.i32(offset.leader_epoch);
                    into.text(&offset.metadata);
                });
            }
            Record::Remove { group, topics } => {
                head(&mut into, REMOVE, group);
                topics_to(&mut into, topics, |into, index| into.i32(*index));
            }
            Record::Expire { group, topics } => {
                head(&mut into, EXPIRE, group);
                topics_to(&mut into, topics, |into, (index, committed_ms)| {
                    into.i32(*index);
                    into.i64(*committed_ms);
                });
            }
            Record::ForgetTopics { topics } => {
                head(&mut into, FORGET_TOPICS, "");
                into.len(topics.len());
                topics.iter().for_each(|id| into.topic(*id));
            }
            Record::Delete { group } => head(&mut into, DELETE, group),
            Record::Drop { group, generation } => {
                head(&mut into, DROP, group);
                into.i32(*generation);
            }
            Record::Barrier => head(&mut into, BARRIER, ""),
            Record::Owner { group, user } => {
                head(&mut into, OWNER, group);
                into.text(user);
            }
            Record::Consumer { group, changes } => {
                head(&mut into, CONSUMER, group);
                changes.iter().for_each(|change| change.encode(&mut into));
            }
        }
        into.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
        let mut from = Decoder::new(bytes);
        let format = from.u8("format")?;
        if format != FORMAT {
            return Err(Malformed::new("unknown record format", format));
        }
        let kind = from.u8("kind")?;
        let group = from.text("group")?;
        if matches!(kind, FORGET_TOPICS | BARRIER) && !group.is_empty() {
            return Err(Malformed::new("a record of no group names one", group));
        }
        let record = match kind {
            METADATA => Record::Metadata { group, metadata: Metadata::decode(&mut from)? },
            COMMIT => Record::Commit {
                group,
                retention_ms: from.i64("retention")?,
                topics: topics_from(&mut from, COMMITTED_BYTES_MIN, |from| {
                    Ok(CommittedOffset {
                        index: from.i32("partition")?,
                        offset: from.i64("offset")?,
                        leader_epoch: from.i32("leader epoch")?,
                        metadata: from.text("offset metadata")?,
                    })
                })?,
            },
            REMOVE => Record::Remove { group, topics: topics_from(&mut from, 4, |from| from.i32("partition"))? },
            EXPIRE => Record::Expire {
                group,
                topics: topics_from(&mut from, 12, |from| Ok((from.i32("partition")?, from.i64("commit time")?)))?,
            },
            FORGET_TOPICS => {
                let count = from.count("topics", 16)?;
                let topics = (0..count).map(|_| from.topic("topic id")).collect::<Result<_, _>>()?;
                Record::ForgetTopics { topics }
            }
            DELETE => Record::Delete { group },
            DROP => Record::Drop { group, generation: from.i32("generation")? },
            BARRIER => Record::Barrier,
            OWNER => Record::Owner { group, user: from.text("user")? },
            CONSUMER => {
                let mut changes = Vec::new();
                while !from.is_empty() {
                    changes.push(Change::decode(&mut from)?);
                }
                Record::Consumer { group, changes }
            }
            other => return Err(Malformed::new("unknown record kind", other)),
        };
        from.finish()?;
        Ok(record)
    }
}

/// The begin of a [`Record::Consumer`]; its changes follow.
pub(super) fn consumer_head(into: &mut Encoder, group: &str) {
    into.u8(FORMAT);
    head(into, CONSUMER, group);
}

fn head(into: &mut Encoder, kind: u8, group: &str) {
    into.u8(kind);
    into.text(group);
}

fn topics_to<T>(into: &mut Encoder, topics: &[(TopicId, Vec<T>)], element: impl Fn(&mut Encoder, &T)) {
    into.len(topics.len());
    for (id, elements) in topics {
        into.topic(*id);
        into.len(elements.len());
        elements.iter().for_each(|e| element(into, e));
    }
}

fn topics_from<T>(
    from: &mut Decoder<'_>,
    element_min: usize,
    element: impl Fn(&mut Decoder<'_>) -> Result<T, Malformed>,
) -> Result<Vec<(TopicId, Vec<T>)>, Malformed> {
    let count = from.count("topics", TOPIC_BYTES_MIN)?;
    let mut topics = Vec::with_capacity(count);
    for _ in 0..count {
        let id = from.topic("topic id")?;
        let elements = from.count("partitions", element_min)?;
        topics.push((id, (0..elements).map(|_| element(from)).collect::<Result<_, _>>()?));
    }
    Ok(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &'static str) -> StrBytes {
        StrBytes::from_static(s)
    }

    fn samples() -> Vec<Record> {
        let member = |id: &'static str| MemberMetadata {
            id: text(id),
            instance_id: Some(text("i")),
            client_id: text("c"),
            client_host: text("/127.0.0.1"),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            metadata: Bytes::from_static(b"\0\x01\xff"),
            assignment: Bytes::from_static(b"assigned"),
        };
        let topic = TopicId([7; 16]);
        let offset = CommittedOffset { index: 3, offset: 1 << 40, leader_epoch: -1, metadata: text("where I was") };
        vec![
            Record::Metadata {
                group: text("g"),
                metadata: Metadata {
                    generation: 4,
                    protocol_type: Some(text("consumer")),
                    protocol: Some(text("range")),
                    leader: Some(text("a")),
                    members: vec![member("a"), member("b")],
                },
            },
            Record::Commit { group: text("g"), retention_ms: -1, topics: vec![(topic, vec![offset])] },
            Record::Remove { group: text("g"), topics: vec![(topic, vec![0, 1])] },
            Record::Expire { group: text("g"), topics: vec![(topic, vec![(0, 77)])] },
            Record::ForgetTopics { topics: vec![topic] },
            Record::Delete { group: text("") },
            Record::Drop { group: text("g"), generation: 9 },
            Record::Barrier,
            Record::Owner { group: text("g"), user: text("alice") },
        ]
    }

    #[test]
    fn records_survive_the_log() {
        for record in samples() {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn no_prefix_and_no_longer_text_is_a_record() {
        for record in samples() {
            let bytes = record.encode();
            for end in 0..bytes.len() {
                assert!(Record::decode(&bytes[..end]).is_err(), "{record:?} cut to {end} bytes");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(Record::decode(&longer).is_err(), "{record:?} with a byte more");
        }
    }

    #[test]
    fn a_count_that_the_bytes_cannot_hold_is_refused() {
        // ForgetTopics of 2^28 topics in 8 bytes
        let bytes = [FORMAT, FORGET_TOPICS, 0, 0x80, 0x80, 0x80, 0x80, 0x01];
        assert!(Record::decode(&bytes).is_err_and(|Malformed(why)| why.contains("do not fit")));
    }

    #[test]
    fn unknown_formats_and_kinds_are_refused() {
        assert!(Record::decode(&[2, BARRIER, 0]).is_err());
        assert!(Record::decode(&[FORMAT, 99, 0]).is_err());
    }
}
