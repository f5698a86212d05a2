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
    Caller, CloseIf, Context, Effects, MachineId, MachineReply, NoQueues, Proposal, QueueDoors, StateMachine,
};
pub use partitions::*;
pub use queues::*;
pub use settings::*;
pub use topics::*;
pub use view::{LogView, StoredMessage};

use bytes::Bytes;
use polylogue_types::{Offset, PartitionId, SharedLimit, TimestampMs};
use std::sync::Arc;

/// Names one request of one session; the session chooses it and never has two alike in flight.
pub type Token = u64;

/// The time that a session or machine receives with each call; it has no clock of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Wall time, milliseconds since the Unix epoch: for timestamps that clients see.
    pub wall_ms: TimestampMs,
    /// Monotonic milliseconds since the process started: for deadlines.
    pub monotonic_ms: u64,
}

/// What a session asks for.
#[derive(Debug)]
pub enum Request {
    /// Write entries.
    Append(AppendRequest),
    /// Read committed entries.
    Read(ReadRequest),
    /// Registers for one [`Event::Changed`] under the same token when something becomes readable.
    /// It has no reply of its own.
    Watch(WatchRequest),
    /// Forget a watch. No reply, and no event afterwards.
    Unwatch(Token),
    /// Ask which partitions of a followed set have changed.
    Follow(FollowRequest),
    /// Forget a followed set, by its number. No reply.
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
    /// Take the oldest messages of partitions away.
    TrimPartitions(Vec<TrimPartition>),
    /// What partitions hold.
    DescribePartitions(Vec<PartitionId>),
    /// Which idempotent producers partitions remember.
    DescribeProducers(Vec<PartitionId>),
    /// How the log of the metadata stands.
    DescribeMetadataLog,
    /// A command for a state machine that a protocol brought along (groups, ...).
    Machine(MachineId, machine::Command),
    /// Write messages to queues.
    Publish(PublishRequest),
    /// A consumer comes to a queue. What it gets comes as [`Event::Deliver`].
    Attach(Attach),
    /// A reader comes to a stream: a consumer that gets all messages from a place of its own, as [`Event::Deliver`]. It leaves, stops and
    /// gets credit as others do. Answered by [`Reply::Attach`].
    AttachReader(AttachReader),
    /// A consumer leaves: what it holds goes back. No reply, and no delivery afterwards but what is on its way.
    Detach(ConsumerId),
    /// A consumer gets no more messages, and keeps those that it holds until it is detached. Answered when what was on its way to it is
    /// sent; not at all when its queue goes before ([`Event::Detached`]).
    Stop(ConsumerId),
    /// A consumer may get so many more messages. No reply.
    Credit(ConsumerId, Credit),
    /// A consumer shares a limit of what is held from now on ([`ConsumerSpec::shared`]). No reply.
    Share(ConsumerId, Arc<SharedLimit>),
    /// There may be room under a limit for consumers that wait for it. No reply.
    Offer(Arc<SharedLimit>),
    /// Settle, return or keep messages that were handed out.
    Settle(SettleRequest),
    /// Messages for a consumer at once, whatever its credit.
    Take(Take),
    /// Removes all messages that no consumer holds.
    Purge(PartitionId),
    /// What queues hold.
    DescribeQueues(Vec<PartitionId>),
    /// The oldest message of each of these queues that is not settled.
    PeekQueues(PeekQueues),
    /// This session moves dead messages from now on, in place of whichever did: they come as [`Event::Dead`]. No reply.
    MoveDead,
    /// What became of dead messages that came. No reply.
    DeadMoved(Vec<DeadOutcome>),
    /// A consumer without a queue comes: what is sent to it comes as [`Event::Deliver`], is settled by that, and is not in the log. It
    /// leaves by [`Request::Detach`]; [`Request::Credit`] says how many messages it has taken.
    AttachDirect,
    /// Messages for consumers without a queue: each reaches its consumer now or never.
    SendDirect(Vec<Direct>),
}

/// What the broker answers.
#[derive(Debug)]
pub enum Reply {
    /// To [`Request::Append`]: one result an entry, in the same order. Comes when the entries are committed in
    /// their durability class, or at once for [`Ack::None`].
    Append(Vec<Result<Appended, AppendError>>),
    /// To [`Request::Read`]: one result a part, in the same order.
    Read(Vec<Result<ReadData, ReadError>>),
    /// To [`Request::Follow`]: what went past its high watermark or log start, or is gone, since this was asked last. Comes at once.
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
    /// To [`Request::Purge`]: how many messages that were. Comes when it is committed.
    Purge(Result<u64, SettleError>),
    /// To [`Request::DescribeQueues`]: in the same order; `None` for what is no queue.
    DescribeQueues(Vec<Option<QueueCounts>>),
    /// To [`Request::PeekQueues`]: in the same order, each as it is stored; `None` where there is none, or it was not read.
    PeekQueues(Vec<Option<Bytes>>),
    /// To [`Request::AttachDirect`].
    AttachDirect(DirectAddress),
    /// To [`Request::SendDirect`]: in the same order, whether the consumer is there and had room for it.
    SendDirect(Vec<bool>),
}

/// What the broker says unasked (or, for a watch, later).
#[derive(Debug)]
pub enum Event {
    /// A watched partition went past the offset that the watcher had seen, or is gone, or something changed in a watched set.
    Changed(Token),
    /// Messages for consumers of this session, in the order of each queue.
    Deliver(Vec<Delivery>),
    /// A consumer gets no more: its queue is gone.
    Detached(ConsumerId),
    /// Dead messages for the session that moves them, in the order of each queue. Each is answered once in [`Request::DeadMoved`], or delivered
    /// to another session when this one is gone.
    Dead(Vec<DeadMessage>),
}

/// Why nothing could be done just now. The request may have taken effect when `Unknown`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// No room on the disk.
    StorageFull,
    /// The outcome is not known; ask again or look.
    Unknown,
    /// It did not take effect; the writer changed. Try again.
    NotCommitted,
    /// Too much is in flight. Try again.
    Busy,
    /// It is larger than a record of the log may be. Trying again does not help.
    TooLarge,
    /// The broker is shutting down.
    Stopping,
}
