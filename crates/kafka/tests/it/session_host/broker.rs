//! A minimal broker: partitions in memory, groups that accept everything.

use super::{EPOCH, Host, topic_id};
use bytes::{Bytes, BytesMut};
use polylogue_api::{
    AppendError, AppendRequest, Appended, Catalog, CreateTopics, CreatedTopic, DeletedTopic, EpochEnd, FindOffset,
    FoundOffset, MachineId, MetadataLog, OffsetSpec, PartitionSize, PartitionSizes, ReadData, ReadError, ReadRequest,
    Reply, Request as Ask, Token, TopicRef, TrimPartition,
};
use polylogue_auth::{AclFilter, UsersCommand, UsersReply};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_kafka_groups::command::{
    ConsumerHeartbeatReply, DeleteOffsetsReply, DescribedConsumerGroup, DescribedConsumerMember, DescribedGroup,
    DescribedMember, DescribedTopic, FetchedGroup, FetchedOffset, FetchedTopic, GroupCommand, GroupKind, GroupReply,
    GroupState, JoinGroupReply, LeaveGroupReply, ListedGroup, SyncGroupReply, TopicKey, TopicResults,
};
use polylogue_record::kafka::{BatchHeader, patch_base};
use polylogue_types::{Chunk, Index, Offset, PartitionId, ProducerId, Term};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
struct Entry {
    base: u64,
    count: u64,
    max_timestamp: i64,
    bytes: Bytes,
}

/// Answers everything at once.
#[derive(Debug, Default)]
pub struct Broker {
    entries: BTreeMap<PartitionId, Vec<Entry>>,
    watches: Vec<Token>,
    producers: i64,
}

impl Broker {
    /// Answers the session's requests until there are no more.
    pub fn serve(&mut self, host: &mut Host) {
        loop {
            let asked = host.asked();
            if asked.is_empty() {
                return;
            }
            for (token, request) in asked {
                let wrote = matches!(request, Ask::Append(_));
                if let Some(reply) = self.answer(host, token, request) {
                    host.reply(token, reply);
                }
                if wrote {
                    for watch in std::mem::take(&mut self.watches) {
                        host.changed(watch);
                    }
                }
            }
        }
    }

    fn answer(&mut self, host: &mut Host, token: Token, request: Ask) -> Option<Reply> {
        Some(match request {
            Ask::Append(append) => self.append(append),
            Ask::Read(read) => self.read(&read),
            Ask::Watch(_) => {
                self.watches.push(token);
                return None;
            }
            Ask::Unwatch(watch) => {
                self.watches.retain(|other| *other != watch);
                return None;
            }
            Ask::FindOffsets(questions) => {
                Reply::FindOffsets(questions.iter().map(|question| Ok(self.find(question))).collect())
            }
            Ask::EpochEnds(queries) => Reply::EpochEnds(
                queries.iter().map(|q| Ok(EpochEnd { epoch: EPOCH, end: Some(self.end(q.partition)) })).collect(),
            ),
            Ask::AllocateProducerId => {
                self.producers += 1;
                Reply::ProducerId(Ok(ProducerId(self.producers)))
            }
            Ask::CreateTopics(create) => create_topics(host, create),
            Ask::DeleteTopics(delete) => {
                let deleted = delete.topics.iter().map(|topic| {
                    let TopicRef::Id(id) = topic else { panic!("{topic:?}") };
                    let topic = host.topics.topic_by_id(*id).unwrap();
                    host.topics.remove(&topic.name);
                    Ok(DeletedTopic { name: topic.name.clone(), id: topic.id })
                });
                Reply::DeleteTopics(deleted.collect())
            }
            Ask::AlterTopics(alter) => Reply::AlterTopics(alter.changes.iter().map(|_| Ok(())).collect()),
            Ask::AlterSettings(alter) => Reply::AlterSettings(alter.changes.iter().map(|_| Ok(())).collect()),
            Ask::TrimPartitions(trims) => {
                let first = |t: &TrimPartition| Ok(t.first.unwrap_or_else(|| self.end(t.partition)));
                Reply::TrimPartitions(trims.iter().map(first).collect())
            }
            Ask::DescribePartitions(ids) => {
                let size = |id: &PartitionId| {
                    let bytes = self.entries.get(id).into_iter().flatten().map(|entry| entry.bytes.len() as u64).sum();
                    Some(PartitionSize { bytes, log_start: Offset(0), high_watermark: self.end(*id) })
                };
                let partitions = ids.iter().map(size).collect();
                Reply::DescribePartitions(PartitionSizes {
                    partitions,
                    directory: "/data".to_owned(),
                    free_bytes: Some(1 << 40),
                })
            }
            Ask::DescribeProducers(ids) => Reply::DescribeProducers(ids.iter().map(|_| Ok(Vec::new())).collect()),
            Ask::DescribeMetadataLog => {
                let log = MetadataLog { term: Term(6), high_watermark: Index(41), end: Index(42), directory: [3; 16] };
                Reply::DescribeMetadataLog(Ok(log))
            }
            Ask::Machine(MachineId::AMQP, command) => {
                Reply::Machine(Ok(Box::new(users_answer(*command.downcast::<UsersCommand>().unwrap()))))
            }
            Ask::Machine(_, command) => {
                Reply::Machine(Ok(Box::new(group_reply(*command.downcast::<GroupCommand>().unwrap()))))
            }
            other => panic!("a Kafka session sends no queue requests: {other:?}"),
        })
    }

    fn end(&self, partition: PartitionId) -> Offset {
        let last = self.entries.get(&partition).and_then(|entries| entries.last());
        Offset(last.map_or(0, |entry| entry.base + entry.count))
    }

    fn append(&mut self, append: AppendRequest) -> Reply {
        let results = append.entries.into_iter().map(|new| {
            let base = self.end(new.partition);
            let mut bytes = BytesMut::from(&*new.bytes);
            patch_base(&mut bytes, i64::try_from(base.0).unwrap(), EPOCH).map_err(|_| AppendError::Storage)?;
            let header = BatchHeader::parse(&bytes).unwrap();
            assert_eq!(header.crc, new.body_crc);
            assert_eq!(header.record_count.unsigned_abs(), new.count);
            self.entries.entry(new.partition).or_default().push(Entry {
                base: base.0,
                count: u64::from(new.count),
                max_timestamp: new.max_timestamp,
                bytes: bytes.freeze(),
            });
            Ok(Appended { base_offset: base, log_start: Offset(0), duplicate: false, max_timestamp: -1 })
        });
        Reply::Append(results.collect())
    }

    fn read(&self, read: &ReadRequest) -> Reply {
        let mut left = read.bytes_max as usize;
        let mut first = read.at_least_one;
        let parts = read.parts.iter().map(|part| {
            let (log_start, high_watermark) = (Offset(0), self.end(part.partition));
            if part.offset > high_watermark {
                return Err(ReadError::OutOfRange { log_start, high_watermark });
            }
            let mut chunks = Vec::new();
            let mut of_part = part.bytes_max as usize;
            let entries = self.entries.get(&part.partition).map(Vec::as_slice).unwrap_or_default();
            for entry in entries.iter().filter(|entry| entry.base + entry.count > part.offset.0) {
                if !first && entry.bytes.len() > left.min(of_part) {
                    break;
                }
                first = false;
                left = left.saturating_sub(entry.bytes.len());
                of_part = of_part.saturating_sub(entry.bytes.len());
                chunks.push(Chunk::Bytes(entry.bytes.clone()));
            }
            Ok(ReadData { chunks, high_watermark, log_start })
        });
        Reply::Read(parts.collect())
    }

    fn find(&self, question: &FindOffset) -> FoundOffset {
        let entries = self.entries.get(&question.partition).map(Vec::as_slice).unwrap_or_default();
        let entry = match question.at {
            OffsetSpec::Earliest => return found(Offset(0)),
            OffsetSpec::Latest => return found(self.end(question.partition)),
            OffsetSpec::AtTimestamp(at) => entries.iter().find(|entry| entry.max_timestamp >= at),
            OffsetSpec::MaxTimestamp => {
                let max = entries.iter().map(|entry| entry.max_timestamp).max();
                entries.iter().find(|entry| Some(entry.max_timestamp) == max)
            }
        };
        FoundOffset {
            offset: entry.map(|entry| Offset(entry.base)),
            log_start: Offset(0),
            leader_epoch: EPOCH,
            entry: entry.map(|entry| entry.bytes.clone()),
        }
    }
}

fn found(offset: Offset) -> FoundOffset {
    FoundOffset { offset: Some(offset), log_start: Offset(0), leader_epoch: EPOCH, entry: None }
}

fn create_topics(host: &mut Host, create: CreateTopics) -> Reply {
    let created = create.topics.into_iter().enumerate().map(|(at, new)| {
        let number = u8::try_from(100 + at % 100).unwrap();
        let topic = host.topics.add(number, &new.name, new.partitions, new.config);
        if create.validate_only {
            host.topics.remove(&new.name);
        }
        assert_eq!(topic.id, topic_id(number));
        Ok(CreatedTopic { topic })
    });
    Reply::CreateTopics(created.collect())
}

/// Accepts every request.
fn users_answer(ask: UsersCommand) -> UsersReply {
    match ask {
        UsersCommand::AlterScram(parts) => UsersReply::Each(vec![Ok(()); parts.len()]),
        UsersCommand::AlterQuotas(parts) => UsersReply::Each(vec![Ok(()); parts.len()]),
        UsersCommand::CreateAcls(acls) => UsersReply::Each(vec![Ok(()); acls.len()]),
        UsersCommand::DeleteAcls(filters) => {
            let exactly = |filter: &AclFilter| Ok(filter.exactly().map(Arc::new).into_iter().collect());
            UsersReply::Deleted(filters.iter().map(exactly).collect())
        }
    }
}

/// Accepts every group command.
pub fn group_reply(command: GroupCommand) -> GroupReply {
    let unkey = |topic: TopicKey| match topic {
        TopicKey::Name(name) => (name, polylogue_types::TopicId::ZERO),
        TopicKey::Id(id) => (StrBytes::new(), id),
    };
    match command {
        GroupCommand::Join(join) => GroupReply::Join(JoinGroupReply {
            error: ErrorCode::None,
            generation: 1,
            protocol_type: Some(join.protocol_type),
            protocol_name: join.protocols.first().map(|p| p.name.clone()),
            leader: join.member_id.clone(),
            skip_assignment: join.version >= 9,
            member_id: join.member_id,
            members: Vec::new(),
        }),
        GroupCommand::Sync(sync) => GroupReply::Sync(SyncGroupReply {
            error: ErrorCode::None,
            protocol_type: sync.protocol_type,
            protocol_name: sync.protocol_name,
            assignment: sync.assignments.first().map(|a| a.assignment.clone()).unwrap_or_default(),
        }),
        GroupCommand::Heartbeat(_) => GroupReply::Heartbeat(ErrorCode::None),
        GroupCommand::Leave(leave) => {
            let members = leave.members.into_iter().map(|member| (member, ErrorCode::None));
            let members = if leave.version >= 3 { members.collect() } else { Vec::new() };
            GroupReply::Leave(LeaveGroupReply { error: ErrorCode::None, members })
        }
        GroupCommand::CommitOffsets(commit) => {
            let topics = commit.topics.into_iter().map(|topic| {
                let (name, id) = unkey(topic.topic);
                let partitions = topic.partitions.iter().map(|p| (p.index, ErrorCode::None)).collect();
                TopicResults { name, id, partitions }
            });
            GroupReply::CommitOffsets(topics.collect())
        }
        GroupCommand::FetchOffsets(fetch) => {
            let groups = fetch.groups.into_iter().map(|group| {
                let topics = group.topics.unwrap_or_default().into_iter().map(|topic| {
                    let (name, id) = unkey(topic.topic);
                    let partition = |index| FetchedOffset {
                        index,
                        offset: 42,
                        leader_epoch: EPOCH,
                        metadata: StrBytes::from_static("note"),
                        error: ErrorCode::None,
                    };
                    FetchedTopic { name, id, partitions: topic.partitions.into_iter().map(partition).collect() }
                });
                FetchedGroup { group_id: group.group_id, error: ErrorCode::None, topics: topics.collect() }
            });
            GroupReply::FetchOffsets(groups.collect())
        }
        other => admin_reply(other),
    }
}

/// The same for administrative commands.
fn admin_reply(command: GroupCommand) -> GroupReply {
    match command {
        GroupCommand::List(_) => {
            let group = ListedGroup {
                group_id: StrBytes::from_static("g"),
                protocol_type: StrBytes::from_static("consumer"),
                state: GroupState::Empty,
                kind: GroupKind::Classic,
            };
            GroupReply::List(Ok(vec![group]))
        }
        GroupCommand::Describe(describe) => GroupReply::Describe(describe.groups.into_iter().map(described).collect()),
        GroupCommand::Delete(delete) => {
            GroupReply::Delete(delete.groups.into_iter().map(|group| (group, ErrorCode::None)).collect())
        }
        GroupCommand::DeleteOffsets(delete) => {
            let topics = delete.topics.into_iter().map(|(name, partitions)| TopicResults {
                name,
                id: polylogue_types::TopicId::ZERO,
                partitions: partitions.into_iter().map(|p| (p, ErrorCode::None)).collect(),
            });
            GroupReply::DeleteOffsets(DeleteOffsetsReply { error: ErrorCode::None, topics: topics.collect() })
        }
        GroupCommand::DescribeConsumers(describe) => {
            GroupReply::DescribeConsumers(describe.groups.into_iter().map(described_consumer).collect())
        }
        GroupCommand::ConsumerHeartbeat(beat) => GroupReply::ConsumerHeartbeat(ConsumerHeartbeatReply {
            member_id: Some(beat.member_id),
            member_epoch: beat.member_epoch,
            heartbeat_interval_ms: 5_000,
            assignment: beat.owned,
            ..ConsumerHeartbeatReply::refused(ErrorCode::None)
        }),
        other => panic!("no tool sends {other:?}"),
    }
}

/// A consumer group of one static member that reads two partitions of `a`.
pub fn described_consumer(group_id: StrBytes) -> DescribedConsumerGroup {
    let topic = |partitions: &[i32]| DescribedTopic {
        id: super::topic_id(1),
        name: StrBytes::from_static("a"),
        partitions: partitions.to_vec(),
    };
    let member = DescribedConsumerMember {
        member_id: StrBytes::from_static("m"),
        instance_id: Some(StrBytes::from_static("static")),
        rack_id: None,
        epoch: 6,
        client_id: StrBytes::from_static("app"),
        client_host: StrBytes::from_static("/192.0.2.9"),
        topics: vec![StrBytes::from_static("a")],
        regex: Some(StrBytes::from_static("b.*")),
        assigned: vec![topic(&[0, 1])],
        target: vec![topic(&[0])],
    };
    DescribedConsumerGroup {
        error: ErrorCode::None,
        error_message: None,
        group_id,
        state: GroupState::Reconciling,
        epoch: 7,
        assignment_epoch: 7,
        assignor: StrBytes::from_static("uniform"),
        members: vec![member],
    }
}

/// A stable group of one static member.
pub fn described(group_id: StrBytes) -> DescribedGroup {
    let member = DescribedMember {
        member_id: StrBytes::from_static("m"),
        instance_id: Some(StrBytes::from_static("static")),
        client_id: StrBytes::from_static("app"),
        client_host: StrBytes::from_static("/192.0.2.9"),
        metadata: Bytes::from_static(b"meta"),
        assignment: Bytes::from_static(b"yours"),
    };
    DescribedGroup {
        error: ErrorCode::None,
        error_message: None,
        group_id,
        state: GroupState::Stable,
        protocol_type: StrBytes::from_static("consumer"),
        protocol_name: StrBytes::from_static("range"),
        members: vec![member],
    }
}
