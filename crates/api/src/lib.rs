//! Requests, replies and events between a protocol and the broker: types only.
//!
//! Layer 1. A protocol session (sans-IO) turns bytes into [`Request`]s, each under a [`Token`] of its own choosing;
//! the broker answers each token exactly once with a [`Reply`], in any order, and may send [`Event`]s. Neither side
//! sees the other's types: sessions never name the broker, the broker never names a protocol.

pub mod catalog;
pub mod config;
pub mod log;
pub mod machine;
pub mod partitions;
pub mod queues;
pub mod settings;
pub mod topics;
pub mod view;

pub use catalog::{Catalog, ClusterInfo, PartitionInfo, TopicInfo};
pub use config::{Cleanup, Compression, Durability, TimestampKind, TopicConfig};
pub use log::*;
pub use machine::{
    Caller, CloseIf, Context, Effects, MachineId, MachineReply, NoQueues, Proposal, QueueCloser, StateMachine,
};
pub use partitions::*;
pub use queues::*;
pub use settings::*;
pub use topics::*;
pub use view::{LogView, StoredMessage};

use bytes::Bytes;
use polylogue_types::{Offset, PartitionId, SharedLimit, TimestampMs};
use std::sync::Arc;

/// Identifies a request of a session. The session chooses it; it is unique among the session's requests in flight.
pub type Token = u64;

/// The time that a session or machine receives with each call; it has no clock of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Wall time, milliseconds since the Unix epoch: for timestamps that clients see.
    pub wall_ms: TimestampMs,
    /// Monotonic milliseconds since the process started: for deadlines.
    pub monotonic_ms: u64,
}

/// A request of a session.
#[derive(Debug)]
pub enum Request {
    /// Write entries.
    Append(AppendRequest),
    /// Read committed entries.
    Read(ReadRequest),
    /// Registers for one [`Event::Changed`] under the same token when something becomes readable.
    /// It has no reply of its own.
    Watch(WatchRequest),
    /// Cancels a watch. No reply, and no event afterwards.
    Unwatch(Token),
    /// Ask which partitions of a followed set have changed.
    Follow(FollowRequest),
    /// Drops a followed set, by its number. No reply.
    Unfollow(u64),
    /// Find offsets by position or time.
    FindOffsets(Vec<FindOffset>),
    /// Where leader epochs end (KIP-101, KIP-320).
    EpochEnds(Vec<EpochEndQuery>),
    /// A producer id that was never given out before.
    AllocateProducerId,
    /// Create topics.
    CreateTopics(CreateTopics),
    /// Delete topics.
    DeleteTopics(DeleteTopics),
    /// Change topics' settings, or give them more partitions.
    AlterTopics(AlterTopics),
    /// Replace documents of settings.
    AlterSettings(AlterSettings),
    /// Move the log start of partitions forward.
    TrimPartitions(Vec<TrimPartition>),
    /// Sizes of partitions.
    DescribePartitions(Vec<PartitionId>),
    /// The idempotent producers of partitions.
    DescribeProducers(Vec<PartitionId>),
    /// Positions of the metadata's log.
    DescribeMetadataLog,
    /// A command for a protocol's state machine (groups, for example).
    Machine(MachineId, machine::Command),
    /// Write messages to queues.
    Publish(PublishRequest),
    /// Attaches a consumer to a queue. Messages are delivered by [`Event::Deliver`].
    Attach(Attach),
    /// Attaches a reader to a stream: a consumer that receives all messages from an offset of its own, by [`Event::Deliver`]. Detaching,
    /// stopping and credit are those of consumers. Answered by [`Reply::Attach`].
    AttachReader(AttachReader),
    /// Detaches a consumer: the messages that it holds are requeued. No reply, and no delivery afterwards except those already sent.
    Detach(ConsumerId),
    /// Stops deliveries to a consumer, which keeps the messages that it holds until it is detached. Answered when deliveries in progress
    /// are sent; not answered if its queue is deleted before ([`Event::Detached`]).
    Stop(ConsumerId),
    /// Gives a consumer credit for more messages. No reply.
    Credit(ConsumerId, Credit),
    /// Puts a consumer under a shared limit of held messages ([`ConsumerSpec::shared`]). No reply.
    Share(ConsumerId, Arc<SharedLimit>),
    /// A shared limit may have room for consumers that wait for it. No reply.
    Offer(Arc<SharedLimit>),
    /// Settle, requeue or extend delivered messages.
    Settle(SettleRequest),
    /// Deliver messages to a consumer immediately, whatever its credit (basic.get).
    Take(Take),
    /// Removes all messages that no consumer holds.
    Purge(PartitionId),
    /// Message counts of queues.
    DescribeQueues(Vec<PartitionId>),
    /// The oldest unsettled message of each of these queues.
    PeekQueues(PeekQueues),
    /// Makes this session the dead-letter mover, in place of the one before: dead messages come as [`Event::Dead`]. No reply.
    MoveDead,
    /// Outcomes of dead messages that were received. No reply.
    DeadMoved(Vec<DeadOutcome>),
    /// Attaches a consumer without a queue (direct reply-to): messages for it come as [`Event::Deliver`], are settled by that, and are not in
    /// the log. [`Request::Detach`] detaches it; [`Request::Credit`] returns the messages that it has taken.
    AttachDirect,
    /// Messages for consumers without a queue: each is delivered now or dropped.
    SendDirect(Vec<Direct>),
}

/// A reply of the broker.
#[derive(Debug)]
pub enum Reply {
    /// To [`Request::Append`]: one result an entry, in the same order. Comes when the entries are committed in
    /// their durability class, or immediately for [`Ack::None`].
    Append(Vec<Result<Appended, AppendError>>),
    /// To [`Request::Read`]: one result a part, in the same order.
    Read(Vec<Result<ReadData, ReadError>>),
    /// To [`Request::Follow`]: partitions whose high watermark or log start has moved, or that were deleted, since the last request. Comes
    /// immediately.
    Follow(Vec<PartitionId>),
    /// To [`Request::Stop`].
    Stopped,
    /// To [`Request::FindOffsets`]: in the same order.
    FindOffsets(Vec<Result<FoundOffset, ReadError>>),
    /// To [`Request::EpochEnds`]: in the same order.
    EpochEnds(Vec<Result<EpochEnd, ReadError>>),
    /// To [`Request::AllocateProducerId`].
    ProducerId(Result<polylogue_types::ProducerId, Unavailable>),
    /// To [`Request::CreateTopics`]: in the same order.
    CreateTopics(Vec<Result<CreatedTopic, TopicError>>),
    /// To [`Request::DeleteTopics`]: in the same order.
    DeleteTopics(Vec<Result<DeletedTopic, TopicError>>),
    /// To [`Request::AlterTopics`]: in the same order.
    AlterTopics(Vec<Result<(), AlterError>>),
    /// To [`Request::AlterSettings`]: in the same order.
    AlterSettings(Vec<Result<(), AlterError>>),
    /// To [`Request::TrimPartitions`]: the first offsets, in the same order. Comes when they are committed.
    TrimPartitions(Vec<Result<Offset, TrimError>>),
    /// To [`Request::DescribePartitions`].
    DescribePartitions(PartitionSizes),
    /// To [`Request::DescribeProducers`]: in the same order.
    DescribeProducers(Vec<Result<Vec<ProducerInfo>, ProducersError>>),
    /// To [`Request::DescribeMetadataLog`].
    DescribeMetadataLog(Result<MetadataLog, Unavailable>),
    /// To [`Request::Machine`].
    Machine(MachineReply),
    /// To [`Request::Publish`]: in the same order. Comes when [`Ack`] says.
    Publish(Vec<Result<(), PublishError>>),
    /// To [`Request::Attach`] and [`Request::AttachReader`].
    Attach(Result<ConsumerId, AttachError>),
    /// To [`Request::Settle`]: in the same order.
    Settle(Vec<Result<(), SettleError>>),
    /// To [`Request::Take`].
    Take(Result<Taken, SettleError>),
    /// To [`Request::Purge`]: the number of removed messages. Comes when the removal is committed.
    Purge(Result<u64, SettleError>),
    /// To [`Request::DescribeQueues`]: in the same order; `None` for what is no queue.
    DescribeQueues(Vec<Option<QueueCounts>>),
    /// To [`Request::PeekQueues`]: in the same order, each as stored; `None` where there is none, or it was not read.
    PeekQueues(Vec<Option<Bytes>>),
    /// To [`Request::AttachDirect`].
    AttachDirect(DirectAddress),
    /// To [`Request::SendDirect`]: in the same order, whether the consumer is attached and had room.
    SendDirect(Vec<bool>),
}

/// An event that is no reply (or, for a watch, comes later).
#[derive(Debug)]
pub enum Event {
    /// A watched partition's high watermark passed the offset that the watcher had seen, the partition was deleted, or a watched set changed.
    Changed(Token),
    /// Messages for consumers of this session, in the order of each queue.
    Deliver(Vec<Delivery>),
    /// A consumer is detached because its queue was deleted.
    Detached(ConsumerId),
    /// Dead messages for the session that moves them, in the order of each queue. Each is answered once in [`Request::DeadMoved`], or delivered
    /// to another session when this one is gone.
    Dead(Vec<DeadMessage>),
}

/// Why a request failed for now. With `Unknown` it may have taken effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// No room on the disk.
    StorageFull,
    /// The outcome is unknown; retry or look.
    Unknown,
    /// It did not take effect: this node is not the writer, or the writer changed. Retry.
    NotCommitted,
    /// Too much is in flight. Retry.
    Busy,
    /// It is larger than a record of the log may be. A retry fails too.
    TooLarge,
    /// The broker is shutting down.
    Stopping,
}
