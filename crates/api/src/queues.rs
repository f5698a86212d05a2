//! Queues: partitions whose messages are handed out, settled one by one, and handed out again when they were not settled.
//!
//! A queue is a partition like any other, of a topic whose settings have [`QueueSettings`]: it can be read by offset, and its offsets
//! never change. Beside that the broker keeps what became of each message, and hands messages to consumers that have credit.

use bytes::Bytes;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_types::{Offset, PartitionId, Retry, SharedLimit, TimestampMs};
use std::fmt;
use std::sync::Arc;

/// Messages of one publish at the most.
pub const PUBLISH_MESSAGES_MAX: usize = 10_000;

/// Who of the consumers of a queue gets messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConsumerMode {
    /// All that want some.
    #[default]
    Competing,
    /// One at a time; another one when it goes.
    SingleActive,
    /// One at a time; a better one takes over at once.
    Preempting,
    /// All of them get all messages, each from a place of its own ([`crate::Request::AttachReader`]): a stream. Nothing is settled, and
    /// what goes is up to the topic's retention; of the other settings of a queue none applies.
    Readers,
}

/// What happens to messages that a queue has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// The ones that would be handed out next go instead.
    #[default]
    DropHead,
    /// They are refused.
    Reject,
    /// They are refused, and delivered to the dead-letter mover ([`DeadMessage::refused`]).
    RejectDead,
}

/// What makes a partition a queue. The mode, the order of keys and whether entries are kept whole never change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueSettings {
    /// Who gets messages.
    pub mode: ConsumerMode,
    /// Messages of one key go to one consumer at a time, in their order.
    pub key_order: bool,
    /// An entry goes to one consumer as a whole.
    pub whole_entries: bool,
    /// A waiting consumer gets a message before it is flushed. What a confirm means does not change by it.
    pub early: bool,
    /// Dead messages wait until they are moved ([`crate::Event::Dead`]); else they are settled at once.
    pub dead_letters: bool,
    /// A message that failed so often is dead.
    pub failures_max: Option<u16>,
    /// How long returned messages wait by default; `None`: not at all.
    pub retry: Option<Retry>,
    /// Messages that are ready, at the most.
    pub length_max: Option<u64>,
    /// Their bytes, at the most.
    pub bytes_max: Option<u64>,
    /// What happens to more.
    pub overflow: Overflow,
    /// Settled messages stay for those who read by offset, until retention takes them.
    pub keeps_settled: bool,
}

/// A queue that a message goes to, and how it stands there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The queue.
    pub queue: PartitionId,
    /// Higher ones are handed out first.
    pub priority: Option<u8>,
    /// When the message expires. Wall time.
    pub expires_at: Option<TimestampMs>,
    /// The message is not delivered before. Wall time.
    pub deliver_at: Option<TimestampMs>,
}

/// A message for any number of queues. Its bytes are stored once for each shard that has one of them.
#[derive(Clone, Debug)]
pub struct PublishMessage {
    /// The queues, each once; none: the message goes nowhere, and that is fine.
    pub queues: Vec<Target>,
    /// The native form; must be that of the queues.
    pub form: Form,
    /// What the envelope shall say of it.
    pub flags: EntryFlags,
    /// Native bytes.
    pub bytes: Bytes,
    /// When it was made, -1 if unknown.
    pub timestamp: TimestampMs,
    /// The hash that orders and spreads it.
    pub key_hash: Option<u32>,
    /// The publisher keeps it until it is in all of its queues: one that is full keeps it out of the others as well, and does not
    /// make a dead message of it.
    pub all_or_none: bool,
}

impl PublishMessage {
    /// What it takes in memory while it is on its way, with its queues: many small ones to many queues are much. Bytes.
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
    /// Who waits for the answer has more on its way and loses nothing by a millisecond: it is flushed with what comes until then, as long as
    /// consumers get it before ([`QueueSettings::early`]).
    pub patient: bool,
}

/// Why a message did not reach all of its queues. It may be in some of them. Of several reasons it is the last one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishError {
    /// A queue of it is gone. It is in all the others.
    UnknownQueue,
    /// A queue of it is full and refuses ([`Overflow::Reject`], [`Overflow::RejectDead`]).
    QueueFull,
    /// See [`crate::Unavailable`]; it may be there after `Unknown`.
    Unavailable(crate::Unavailable),
}

/// A consumer, for as long as the process lives. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerId(pub u64);

/// A consumer that wants messages of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConsumerSpec {
    /// Higher ones get messages first, as long as they have credit.
    pub priority: i32,
    /// Messages that it holds at the most; 0 for any number.
    pub prefetch: u32,
    /// Bytes that it holds at the most, unless one message has more; 0 for any number.
    pub prefetch_bytes: u64,
    /// Messages that it may get before it is given more credit; `Some(0)` for one that only takes.
    pub credit: Option<u64>,
    /// Bytes that it may get before it is given credit for them, unless one message has more; 0 for any number.
    pub window_bytes: u64,
    /// How long it holds messages; `None`: until it settles or returns them, or leaves. Milliseconds.
    pub lease_ms: Option<u64>,
    /// Messages are settled when they are handed out.
    pub settles: bool,
    /// There may be no other consumer.
    pub exclusive: bool,
    /// What it holds is limited together with what others hold, also of other queues. One that settles its messages holds none, but gets
    /// none either while there is no room.
    pub shared: Option<Arc<SharedLimit>>,
}

/// See [`crate::Request::Attach`].
#[derive(Clone, Debug)]
pub struct Attach {
    /// The queue.
    pub queue: PartitionId,
    /// Who comes.
    pub consumer: ConsumerSpec,
}

/// Where a reader of a stream begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadFrom {
    /// At the oldest message there is.
    First,
    /// At the newest message there is.
    Last,
    /// After what is there.
    #[default]
    Next,
    /// At this offset, or at the next one there is: nothing below it comes, even if it is not written yet.
    Offset(Offset),
    /// At the first message that was made at this time or later; after what is there when there is none.
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
    /// Where it begins.
    pub from: ReadFrom,
    /// Entries that it wants; `None` for all.
    pub filter: Option<Arc<dyn EntryFilter>>,
    /// Messages that it holds at the most; 0 for any number. Settling them makes room, however they are settled.
    pub prefetch: u32,
    /// Messages that it may get before it is given more credit; `None` for any number.
    pub credit: Option<u64>,
    /// Bytes that it may get before it is given credit for them, unless one message has more; 0 for any number.
    pub window_bytes: u64,
}

/// Why a consumer cannot come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// No such queue (any more).
    UnknownQueue,
    /// The queue has an exclusive consumer, or an exclusive consumer was requested while others are attached.
    Exclusive,
    /// See [`crate::Unavailable`].
    Unavailable(crate::Unavailable),
}

/// What a consumer may get beyond what it got before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Messages.
    pub messages: u64,
    /// What they took of its window ([`Delivery::weight`]). Bytes.
    pub bytes: u64,
}

/// Messages that are handed out: all of one entry, or some of them.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// To whom.
    pub consumer: ConsumerId,
    /// Of which queue.
    pub queue: PartitionId,
    /// The first message.
    pub first: Offset,
    /// How many messages.
    pub count: u32,
    /// What is shown to settle them; of no meaning after a restart.
    pub lease: u64,
    /// In which life of the queue's writer they were handed out. In another one a consumer of the same number holds nothing of it, and an
    /// offset may be another message's.
    pub life: u16,
    /// What they take of the consumer's window ([`ConsumerSpec::window_bytes`]), to be given back by [`crate::Request::Credit`]. Bytes.
    pub weight: u64,
    /// They were handed out before, or may have been.
    pub redelivered: bool,
    /// Times that each of them came back.
    pub returned: u16,
    /// Times that count against [`QueueSettings::failures_max`].
    pub failed: u16,
    /// The entry's first message: the offsets inside `bytes` count from here.
    pub entry: Offset,
    /// The entry as it is stored.
    pub bytes: Bytes,
}

/// What becomes of messages that a consumer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settle {
    /// They are done with.
    Accept,
    /// They are dead.
    Reject,
    /// They go back to their place.
    Return {
        /// It counts as a failure.
        counts: bool,
        /// They wait so long; 0: as the queue has it ([`QueueSettings::retry`]). Milliseconds.
        delay_ms: u64,
    },
    /// They were never sent: they go back to their place as if they had not been handed out.
    Unsent,
    /// They are held so much longer, from now on. Milliseconds.
    Extend(u64),
}

/// On whose word messages are settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// The caller holds the lease under which they were handed out ([`Delivery::lease`]).
    Lease(u64),
    /// That of the consumer that holds them, in that life of the queue's writer ([`Delivery::life`]).
    Consumer(ConsumerId, u16),
}

/// Some messages, and what becomes of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// The queue.
    pub queue: PartitionId,
    /// The first message.
    pub first: Offset,
    /// How many, one after the other.
    pub count: u32,
    /// By whom.
    pub by: Holder,
    /// What becomes of them.
    pub how: Settle,
}

/// See [`crate::Request::Settle`].
#[derive(Clone, Debug)]
pub struct SettleRequest {
    /// What to do, in order.
    pub settlements: Vec<Settlement>,
    /// Whether to answer when it is committed; else at once, and it is committed within milliseconds.
    pub wait: bool,
}

/// Why messages are not settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleError {
    /// No such queue (any more).
    UnknownQueue,
    /// The lease is not the one that holds them.
    NotHeld,
    /// See [`crate::Unavailable`].
    Unavailable(crate::Unavailable),
}

/// Where a consumer without a queue is reached; only a client that received it can know it.
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
    /// To whom.
    pub to: DirectAddress,
    /// The message, in the form that the consumer's session knows. `None` only asks whether the consumer is there.
    pub bytes: Option<Bytes>,
}

/// See [`crate::Request::PeekQueues`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeekQueues {
    /// The queues.
    pub queues: Vec<PartitionId>,
    /// Messages that may be read from the disk; of further queues only what is in memory is looked at.
    pub reads_max: usize,
}

/// See [`crate::Request::Take`].
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// The queue.
    pub queue: PartitionId,
    /// Who takes; it is attached.
    pub consumer: ConsumerId,
    /// Messages at the most.
    pub messages_max: u32,
}

/// What was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The messages; none when none is ready.
    pub deliveries: Vec<Delivery>,
    /// Messages that are ready after it.
    pub ready: u64,
}

/// What a queue holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounts {
    /// Ready messages; in a stream, all that there are.
    pub ready: u64,
    /// Held by consumers.
    pub held: u64,
    /// Waiting for their time.
    pub delayed: u64,
    /// Dead, and to be moved.
    pub dead: u64,
    /// Consumers.
    pub consumers: u64,
    /// Bytes of the bodies of ready messages; of a stream all that it takes on the disk.
    pub ready_bytes: u64,
    /// Bytes of the bodies of messages that consumers hold.
    pub held_bytes: u64,
    /// Bytes of the bodies of messages that wait for their time.
    pub delayed_bytes: u64,
    /// Bytes of the bodies of dead messages.
    pub dead_bytes: u64,
    /// Messages, wherever they are, whose publishers do not want them kept over a restart ([`EntryFlags::TRANSIENT`]).
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

/// A message that is dead and is to be moved to where dead ones go.
#[derive(Clone, Debug)]
pub struct DeadMessage {
    /// The queue where it died.
    pub queue: PartitionId,
    /// Its offset; see [`DeadMessage::refused`].
    pub offset: Offset,
    /// Why it is dead.
    pub reason: DeadReason,
    /// The entry as it is stored.
    pub bytes: Bytes,
}

/// No message has an offset from here on: they run to 2^63 - 1.
const REFUSED_FROM: u64 = 1 << 63;

impl DeadMessage {
    /// What stands for the offset of the `nth` message that a queue refused: it never was there, and is reported once.
    #[must_use]
    pub fn refused(nth: u64) -> Offset {
        Offset(REFUSED_FROM | nth)
    }

    /// Whether a message of this offset was refused.
    #[must_use]
    pub fn was_refused(offset: Offset) -> bool {
        offset.0 >= REFUSED_FROM
    }
}

/// What became of a message of [`crate::Event::Dead`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadOutcome {
    /// The queue where it died.
    pub queue: PartitionId,
    /// Its offset.
    pub offset: Offset,
    /// What became of it.
    pub how: DeadFate,
}

/// What became of a dead message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadFate {
    /// It is where it belongs, durably, or belongs nowhere: its queue is done with it.
    Moved,
    /// It could not be moved: it is delivered again after this time at the earliest, and no other one of its queue before. Milliseconds.
    Later(u64),
}

/// Why a message is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadReason {
    /// A consumer refused it for good.
    Rejected,
    /// It failed too often.
    DeliveryLimit,
    /// Its time was over.
    Expired,
    /// Too much was waiting.
    MaxLength,
}
