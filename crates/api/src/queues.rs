//! Queues: partitions whose messages are delivered, settled one by one, and redelivered when they were not settled.
//!
//! A queue is a partition like any other, of a topic whose settings have [`QueueSettings`]: it can be read by offset, and its offsets
//! never change. Beside that the broker keeps the state of each message, and delivers messages to consumers that have credit.

use bytes::Bytes;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_types::{Offset, PartitionId, Retry, SharedLimit, TimestampMs};
use std::fmt;
use std::sync::Arc;

/// The most messages of one publish.
pub const PUBLISH_MESSAGES_MAX: usize = 10_000;

/// Which consumers of a queue receive messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConsumerMode {
    /// All with credit, in turns.
    #[default]
    Competing,
    /// One at a time; the next one when it is detached.
    SingleActive,
    /// One at a time; one of higher priority takes over immediately.
    Preempting,
    /// All receive all messages, each from an offset of its own ([`crate::Request::AttachReader`]): a stream. Nothing is settled; the
    /// topic's retention removes messages; no other setting of a queue applies.
    Readers,
}

/// What happens to messages beyond a queue's limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// The oldest ready messages are dropped instead.
    #[default]
    DropHead,
    /// They are rejected.
    Reject,
    /// They are rejected, and delivered to the dead-letter mover ([`DeadMessage::refused`]).
    RejectDead,
}

/// What makes a partition a queue. The mode, the order of keys and whether entries are kept whole never change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueSettings {
    /// Which consumers receive messages.
    pub mode: ConsumerMode,
    /// Messages of one key go to one consumer at a time, in their order.
    pub key_order: bool,
    /// An entry is delivered to one consumer as a whole.
    pub whole_entries: bool,
    /// Early delivery: waiting consumers may receive a message before its commit. The meaning of a confirm is unchanged.
    pub early: bool,
    /// Dead messages wait until they are moved ([`crate::Event::Dead`]); else they are settled immediately.
    pub dead_letters: bool,
    /// The delivery limit: a message that failed so often is dead.
    pub failures_max: Option<u16>,
    /// How long returned messages wait by default; `None`: not at all.
    pub retry: Option<Retry>,
    /// The most ready messages.
    pub length_max: Option<u64>,
    /// Their most bytes.
    pub bytes_max: Option<u64>,
    /// What happens beyond these limits.
    pub overflow: Overflow,
    /// Settled messages stay readable by offset until retention removes them.
    pub keeps_settled: bool,
}

/// A destination queue of a message, with the message's properties in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The queue.
    pub queue: PartitionId,
    /// Higher ones are delivered first.
    pub priority: Option<u8>,
    /// When the message expires. Wall time.
    pub expires_at: Option<TimestampMs>,
    /// The message is not delivered before. Wall time.
    pub deliver_at: Option<TimestampMs>,
}

/// A message for any number of queues. Its bytes are stored once for each shard that has one of them.
#[derive(Clone, Debug)]
pub struct PublishMessage {
    /// The queues, each once. Without any, the message is dropped without an error.
    pub queues: Vec<Target>,
    /// The native form; must be that of the queues.
    pub form: Form,
    /// Flags of its envelope.
    pub flags: EntryFlags,
    /// Native bytes.
    pub bytes: Bytes,
    /// When it was made, -1 if unknown.
    pub timestamp: TimestampMs,
    /// The hash of its key, for ordering and distribution.
    pub key_hash: Option<u32>,
    /// All or none: a full queue keeps the message out of the others as well, without dead-lettering it. The publisher keeps it until it
    /// is in all of its queues.
    pub all_or_none: bool,
}

impl PublishMessage {
    /// Its size in memory while in flight, with its list of queues. Bytes.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        size_of::<PublishMessage>() + self.bytes.len() + self.queues.len() * size_of::<Target>()
    }
}

/// See [`crate::Request::Publish`].
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// What to write, in order; at most [`PUBLISH_MESSAGES_MAX`].
    pub messages: Vec<PublishMessage>,
    /// When to answer.
    pub ack: crate::Ack,
    /// The publisher continues while it waits for confirms, so that the flush may wait up to a millisecond for more messages, as long as
    /// consumers receive them before ([`QueueSettings::early`]).
    pub patient: bool,
}

/// Why a message did not reach all of its queues; it may be in some of them. Of several reasons the last one in this list is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishError {
    /// One of its queues was deleted. The message is in all the others.
    UnknownQueue,
    /// One of its queues is full and rejects ([`Overflow::Reject`], [`Overflow::RejectDead`]).
    QueueFull,
    /// See [`crate::Unavailable`]; with `Unknown` the message may be stored.
    Unavailable(crate::Unavailable),
}

/// The id of a consumer, unique for the life of the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerId(pub u64);

/// The settings of a consumer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConsumerSpec {
    /// Consumers of higher priority receive messages first, as long as they have credit.
    pub priority: i32,
    /// The most messages that it holds unacknowledged; 0 for no limit.
    pub prefetch: u32,
    /// The most bytes that it holds unacknowledged, except for a single larger message; 0 for no limit.
    pub prefetch_bytes: u64,
    /// Initial credit in messages; `None` for no limit, `Some(0)` for a consumer that only takes ([`crate::Request::Take`]).
    pub credit: Option<u64>,
    /// Bytes that it may get before it is given credit for them, unless one message has more; 0 for any number.
    pub window_bytes: u64,
    /// How long it holds messages; `None`: until they are settled or requeued, or it is detached. Milliseconds.
    pub lease_ms: Option<u64>,
    /// Automatic acknowledgement: messages are settled on delivery.
    pub settles: bool,
    /// It is exclusive: no other consumer may attach.
    pub exclusive: bool,
    /// A limit of held messages shared with other consumers, also of other queues. A consumer with automatic acknowledgement holds none, but
    /// receives none either while the limit has no room.
    pub shared: Option<Arc<SharedLimit>>,
}

/// See [`crate::Request::Attach`].
#[derive(Clone, Debug)]
pub struct Attach {
    /// The queue.
    pub queue: PartitionId,
    /// The consumer.
    pub consumer: ConsumerSpec,
}

/// The start position of a stream's reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadFrom {
    /// At the oldest message.
    First,
    /// At the newest message.
    Last,
    /// After the newest message.
    #[default]
    Next,
    /// At this offset, or at the next existing one; it may lie in the future.
    Offset(Offset),
    /// At the first message with this timestamp or a later one; after the newest message when there is none.
    Time(TimestampMs),
}

/// Which entries a reader wants, by its protocol's fields.
pub trait EntryFilter: Send + Sync + fmt::Debug {
    /// Whether this entry is wanted; its native bytes. Called on the broker's threads, which must not wait for it.
    fn wants(&self, entry: &Bytes) -> bool;
}

/// See [`crate::Request::AttachReader`].
#[derive(Clone, Debug)]
pub struct AttachReader {
    /// The stream.
    pub queue: PartitionId,
    /// Its start position.
    pub from: ReadFrom,
    /// A filter of entries; `None` for all.
    pub filter: Option<Arc<dyn EntryFilter>>,
    /// The most messages that it holds unacknowledged; 0 for no limit. Any settlement makes room.
    pub prefetch: u32,
    /// Initial credit in messages; `None` for no limit.
    pub credit: Option<u64>,
    /// Bytes that it may get before it is given credit for them, unless one message has more; 0 for any number.
    pub window_bytes: u64,
}

/// Why a consumer cannot be attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// No such queue (any more).
    UnknownQueue,
    /// The queue has an exclusive consumer, or an exclusive consumer was requested while others are attached.
    Exclusive,
    /// See [`crate::Unavailable`].
    Unavailable(crate::Unavailable),
}

/// Additional credit of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Messages.
    pub messages: u64,
    /// Returned room of its window ([`Delivery::weight`]). Bytes.
    pub bytes: u64,
}

/// A delivery: all messages of one entry, or some of them.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The consumer.
    pub consumer: ConsumerId,
    /// The queue.
    pub queue: PartitionId,
    /// The first message.
    pub first: Offset,
    /// How many messages.
    pub count: u32,
    /// The lease by which they are settled; invalid after a restart.
    pub lease: u64,
    /// The life of the queue's writer in which they were delivered. In another life this lease is void, and the offset may belong to another
    /// message.
    pub life: u16,
    /// What they take of the consumer's window ([`ConsumerSpec::window_bytes`]), to be given back by [`crate::Request::Credit`]. Bytes.
    pub weight: u64,
    /// They were delivered before, or may have been.
    pub redelivered: bool,
    /// Times that each of them was requeued.
    pub returned: u16,
    /// Times that count against [`QueueSettings::failures_max`].
    pub failed: u16,
    /// The entry's first message: the offsets inside `bytes` count from here.
    pub entry: Offset,
    /// The entry as stored.
    pub bytes: Bytes,
}

/// The settlement of held messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settle {
    /// Acknowledge.
    Accept,
    /// Reject: they are dead-lettered or dropped.
    Reject,
    /// Requeue at their original position.
    Return {
        /// It counts as a failure.
        counts: bool,
        /// The delay before redelivery; 0: the queue's ([`QueueSettings::retry`]). Milliseconds.
        delay_ms: u64,
    },
    /// They were never sent: requeue as if they had not been delivered.
    Unsent,
    /// Extend the lease by so much, from now on. Milliseconds.
    Extend(u64),
}

/// The authority for a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// The caller holds the lease under which they were handed out ([`Delivery::lease`]).
    Lease(u64),
    /// The caller is the consumer that holds them, in that life of the queue's writer ([`Delivery::life`]).
    Consumer(ConsumerId, u16),
}

/// A range of messages, and how to settle it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// The queue.
    pub queue: PartitionId,
    /// The first message.
    pub first: Offset,
    /// The number of consecutive messages.
    pub count: u32,
    /// The authority.
    pub by: Holder,
    /// How they are settled.
    pub how: Settle,
}

/// See [`crate::Request::Settle`].
#[derive(Clone, Debug)]
pub struct SettleRequest {
    /// What to do, in order.
    pub settlements: Vec<Settlement>,
    /// Whether to answer when it is committed; else the answer is immediate, and it is committed within milliseconds.
    pub wait: bool,
}

/// Why messages are not settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleError {
    /// No such queue (any more).
    UnknownQueue,
    /// The messages are not held under this lease.
    NotHeld,
    /// See [`crate::Unavailable`].
    Unavailable(crate::Unavailable),
}

/// The address of a consumer without a queue; only clients that received it know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAddress {
    /// The consumer.
    pub consumer: ConsumerId,
    /// A number that cannot be guessed.
    pub secret: u128,
}

/// A message for a consumer without a queue.
#[derive(Clone, Debug)]
pub struct Direct {
    /// The receiver.
    pub to: DirectAddress,
    /// The message, in the form of the consumer's session. `None` only asks whether the consumer is attached.
    pub bytes: Option<Bytes>,
}

/// See [`crate::Request::PeekQueues`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeekQueues {
    /// The queues.
    pub queues: Vec<PartitionId>,
    /// The most messages that may be read from the disk; for further queues only memory is looked at.
    pub reads_max: usize,
}

/// See [`crate::Request::Take`].
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// The queue.
    pub queue: PartitionId,
    /// The attached consumer.
    pub consumer: ConsumerId,
    /// The most messages.
    pub messages_max: u32,
}

/// What was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The messages; none when none is ready.
    pub deliveries: Vec<Delivery>,
    /// Messages that are ready afterwards.
    pub ready: u64,
}

/// The message counts of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounts {
    /// Ready messages; in a stream, all messages.
    pub ready: u64,
    /// Delivered and unacknowledged.
    pub held: u64,
    /// Delayed: waiting for their delivery time.
    pub delayed: u64,
    /// Dead, waiting to be moved.
    pub dead: u64,
    /// Consumers.
    pub consumers: u64,
    /// Bytes of the bodies of ready messages; of a stream, its size on the disk.
    pub ready_bytes: u64,
    /// Bytes of the bodies of unacknowledged messages.
    pub held_bytes: u64,
    /// Bytes of the bodies of delayed messages.
    pub delayed_bytes: u64,
    /// Bytes of the bodies of dead messages.
    pub dead_bytes: u64,
    /// Transient messages in any of these states, which are not kept over a restart ([`EntryFlags::TRANSIENT`]).
    pub transient: u64,
    /// Bytes of the bodies of these.
    pub transient_bytes: u64,
}

impl QueueCounts {
    /// All messages.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.ready + self.held + self.delayed + self.dead
    }

    /// Bytes of all messages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ready_bytes + self.held_bytes + self.delayed_bytes + self.dead_bytes
    }
}

impl std::iter::Sum for QueueCounts {
    fn sum<I: Iterator<Item = QueueCounts>>(all: I) -> QueueCounts {
        all.fold(QueueCounts::default(), |sum, one| QueueCounts {
            ready: sum.ready + one.ready,
            held: sum.held + one.held,
            delayed: sum.delayed + one.delayed,
            dead: sum.dead + one.dead,
            consumers: sum.consumers + one.consumers,
            ready_bytes: sum.ready_bytes + one.ready_bytes,
            held_bytes: sum.held_bytes + one.held_bytes,
            delayed_bytes: sum.delayed_bytes + one.delayed_bytes,
            dead_bytes: sum.dead_bytes + one.dead_bytes,
            transient: sum.transient + one.transient,
            transient_bytes: sum.transient_bytes + one.transient_bytes,
        })
    }
}

/// A dead message that is to be moved to its dead-letter destination.
#[derive(Clone, Debug)]
pub struct DeadMessage {
    /// The queue in which it died.
    pub queue: PartitionId,
    /// Its offset; see [`DeadMessage::refused`].
    pub offset: Offset,
    /// Why it is dead.
    pub reason: DeadReason,
    /// The entry as stored.
    pub bytes: Bytes,
}

/// No message has an offset from here on: they run to 2^63 - 1.
const REFUSED_FROM: u64 = 1 << 63;

impl DeadMessage {
    /// The pseudo-offset of the `nth` message that a queue rejected: it was never stored, and is delivered once.
    #[must_use]
    pub fn refused(nth: u64) -> Offset {
        Offset(REFUSED_FROM | nth)
    }

    /// Whether a message of this offset was rejected before it was stored.
    #[must_use]
    pub fn was_refused(offset: Offset) -> bool {
        offset.0 >= REFUSED_FROM
    }
}

/// The outcome of a message of [`crate::Event::Dead`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadOutcome {
    /// The queue where it died.
    pub queue: PartitionId,
    /// Its offset.
    pub offset: Offset,
    /// The outcome.
    pub how: DeadLetterResult,
}

/// The outcome of a dead message's move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadLetterResult {
    /// It is stored at its destination, or has none: its queue settles it.
    Moved,
    /// It could not be moved: it is delivered again after this time at the earliest, and no other one of its queue before. Milliseconds.
    Later(u64),
}

/// Why a message is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadReason {
    /// A consumer rejected it without requeue.
    Rejected,
    /// Its delivery limit was reached.
    DeliveryLimit,
    /// It expired.
    Expired,
    /// The queue's length limit was reached.
    MaxLength,
}
