//! State machines on the log: a protocol's state beyond partitions (groups, queues, transactions).
//!
//! Three kinds of state (DESIGN section 4). *Applied* state changes only in [`StateMachine::apply`], by a committed
//! record. *Soft* state (members waiting, heartbeats) may change in `handle` and may vanish at a crash. A reply
//! about a change is parked with the record until it is committed: see [`Proposal`].

use crate::{Catalog, Now, QueueCounts, TopicChange, TopicInfo, Unavailable};
use bytes::Bytes;
use polylogue_types::{PartitionId, TimestampMs};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A machine's id, which also marks its records and chunks on the disk and never changes. A protocol's machine has an id that no other has; those of
/// the machines of this repository are below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MachineId(u8);

impl MachineId {
    /// Topics, ids, settings, shards.
    pub const META: MachineId = MachineId(1);
    /// Kafka's group coordinator.
    pub const KAFKA_GROUPS: MachineId = MachineId(2);
    /// RabbitMQ's metadata: virtual hosts, users, queues, exchanges, bindings.
    pub const AMQP: MachineId = MachineId(3);
    /// The first id of those for which a partition is derived.
    const FIRST_DERIVED: u8 = 16;
    /// The partition of machine 0, were there one with a derived partition.
    const PARTITION_BASE: u64 = 512;

    /// The machine with this number, from 16 on. `None` below: those numbers are taken.
    #[must_use]
    pub const fn new(number: u8) -> Option<MachineId> {
        if number < MachineId::FIRST_DERIVED { None } else { Some(MachineId(number)) }
    }

    /// The number that marks the machine's chunks in a checkpoint.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The machine of this number in a checkpoint.
    #[must_use]
    pub const fn from_number(number: u8) -> MachineId {
        MachineId(number)
    }

    /// The partition of the machine's records, in each shard that has any.
    #[must_use]
    pub const fn partition(self) -> PartitionId {
        match self {
            MachineId::META => PartitionId(1),
            MachineId::KAFKA_GROUPS => PartitionId(2),
            MachineId::AMQP => PartitionId(4),
            MachineId(number) => PartitionId(MachineId::PARTITION_BASE + number as u64),
        }
    }

    /// The machine whose records are in this partition.
    #[must_use]
    pub fn of_partition(partition: PartitionId) -> Option<MachineId> {
        let derived = || {
            let number = u8::try_from(partition.0.checked_sub(MachineId::PARTITION_BASE)?).ok()?;
            MachineId::new(number)
        };
        match partition.0 {
            1 => Some(MachineId::META),
            2 => Some(MachineId::KAFKA_GROUPS),
            4 => Some(MachineId::AMQP),
            _ => derived(),
        }
    }
}

/// A command, in the machine's own type.
pub type Command = Box<dyn Any + Send>;

/// A machine's reply: its own type, or the reason why there is none.
pub type MachineReply = Result<Box<dyn Any + Send>, Unavailable>;

/// The waiter of one request. Opaque to the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Caller(pub u64);

/// Conditions for closing a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CloseIf {
    /// It has no consumers.
    pub unused: bool,
    /// It has no ready messages.
    pub empty: bool,
}

/// Closing of queues, for a machine that is about to propose the deletion of one.
///
/// A closed queue accepts no consumers, so that none attaches between the check and the record. Messages are still published to it and
/// are deleted with it. This is soft state: it ends when the queue is deleted, and when the machines' writer is lost.
pub trait QueueCloser: Sync + Debug {
    /// Closes a queue if the conditions hold, atomically; returns its counts. An unknown queue has none.
    ///
    /// # Errors
    /// The queue's counts, when a condition does not hold.
    fn close(&self, queue: PartitionId, only: CloseIf) -> Result<QueueCounts, QueueCounts>;

    /// Opens a closed queue again: it is not deleted.
    fn open(&self, queue: PartitionId);
}

/// An implementation without queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoQueues;

impl QueueCloser for NoQueues {
    fn close(&self, _: PartitionId, _: CloseIf) -> Result<QueueCounts, QueueCounts> {
        Ok(QueueCounts::default())
    }

    fn open(&self, _: PartitionId) {}
}

/// The context of a call.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Now,
    /// Topics as applied.
    pub catalog: &'a dyn Catalog,
    /// Closing of queues.
    pub queues: &'a dyn QueueCloser,
    /// A number unique to this call, for ids that must be unique but not secret.
    pub random: u64,
}

/// A record to be written, with the replies that depend on its commit.
#[derive(Debug)]
pub struct Proposal {
    /// The record, in the machine's own encoding.
    pub record: Bytes,
    /// Replies that are sent when it is committed. When it is not, each caller gets [`Unavailable`].
    pub replies: Vec<(Caller, Box<dyn Any + Send>)>,
}

/// The effects of a call, carried out in order.
#[derive(Debug, Default)]
pub struct Effects {
    /// Records to write; each is applied after it is committed, in this order. The log takes all records of a call or none of them, see
    /// [`StateMachine::on_refused`].
    pub proposals: Vec<Proposal>,
    /// Replies that depend on no new record.
    pub replies: Vec<(Caller, Box<dyn Any + Send>)>,
}

/// Makes one reply of the replies to the parts of a command, in the order of the parts.
pub type Join = Box<dyn FnOnce(Vec<MachineReply>) -> MachineReply + Send>;

/// A command in parts, each with the number of its place.
pub struct Split {
    /// At least one.
    pub parts: Vec<(usize, Command)>,
    /// Not called for a single part, whose reply is that to the command.
    pub join: Join,
}

impl Debug for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Split").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

/// A machine that lives in slots: each of its keys (a group, a transactional id) hashes to one of 256, and a slot's shard is a record.
pub trait Slots: Send + Sync + Debug {
    /// An empty machine of this kind, for one more shard.
    fn machine(&self) -> Box<dyn StateMachine>;

    /// Splits a command by the places of the keys that it names. There are `places`, at least one; `place` says which one has a key.
    fn split(&self, command: Command, places: usize, place: &dyn Fn(&[u8]) -> usize) -> Split;
}

/// A deterministic state machine that the broker hosts. Never run concurrently with itself.
pub trait StateMachine: Send + Debug {
    /// A command from a session. Must not change applied state.
    fn handle(&mut self, context: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects);

    /// Whether a command only looks at applied state. The host runs it once everything is applied that was acknowledged before it came
    /// (`ShardLog::barrier`), in any shard.
    fn reads(&self, _: &Command) -> bool {
        false
    }

    /// The caller's connection is closed; replies to it are dropped.
    fn on_gone(&mut self, context: &Context<'_>, caller: Caller, effects: &mut Effects);

    /// A committed record. The only place where applied state changes; no clock, no randomness.
    ///
    /// # Errors
    /// The record cannot be decoded. The state in memory then differs from what was committed: the host ends the process, or does
    /// not start.
    fn apply(&mut self, record: &[u8], time_ms: TimestampMs) -> Result<(), String>;

    /// Called once after replay, before the first command: soft state starts from applied state here.
    fn on_ready(&mut self, context: &Context<'_>);

    /// The log refused the proposals of the call before, all of them: the queue or the disk is full, or a record is too large. None of
    /// these records will ever be applied; the machine reverts what it derived from them. `records` are all records of that call, in
    /// their order, and nothing was called in between. Earlier proposals are unaffected, and the writer keeps its term. The host
    /// answers the callers of the refused proposals; `effects` takes replies to other callers, and its proposals are not carried out.
    fn on_refused(&mut self, context: &Context<'_>, records: &[Bytes], effects: &mut Effects);

    /// The host could not change or delete topics as the machine wanted ([`StateMachine::take_topic_changes`],
    /// [`StateMachine::take_dead_topics`]): the machine asks for all of that again, at a deadline of its own.
    fn on_topics_refused(&mut self, _: &Context<'_>) {}

    /// Resets the machine for a new term: uncommitted proposals are dropped, and tail state is derived again from applied state.
    fn on_writer_lost(&mut self, context: &Context<'_>, effects: &mut Effects);

    /// When [`StateMachine::on_deadline`] wants to be called, in monotonic milliseconds.
    fn next_deadline_ms(&self) -> Option<u64>;

    /// A deadline has passed.
    fn on_deadline(&mut self, context: &Context<'_>, effects: &mut Effects);

    /// Topics were deleted.
    fn on_topics_deleted(&mut self, context: &Context<'_>, topics: &[Arc<TopicInfo>], effects: &mut Effects);

    /// Topics that are not needed any more, by what was applied since the last call; the host deletes them.
    fn take_dead_topics(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Changes of topics that follow from what was applied since the last call, at most so many as the applying thread can wait for; the host makes
    /// them. A change that is lost with its writer is requested again after [`StateMachine::on_writer_lost`].
    fn take_topic_changes(&mut self, _: &dyn Catalog) -> Vec<TopicChange> {
        Vec::new()
    }

    /// Replies whose records are committed, in their order: those that may leave now. The machine keeps those of which something that follows
    /// from what was applied does not hold yet, and gives them back at a later call; the host calls it after each frame and each deadline.
    fn due_replies(&mut self, committed: Vec<(Caller, Box<dyn Any + Send>)>) -> Vec<(Caller, Box<dyn Any + Send>)> {
        committed
    }

    /// Chunks of applied state that changed since the last call, `None` for removed ones. Chunk ids are the
    /// machine's own.
    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)>;

    /// Marks every chunk of applied state as changed: the checkpoint's copies cannot be read any more.
    fn change_all_chunks(&mut self);

    /// A chunk of a checkpoint, before replay.
    ///
    /// # Errors
    /// What is wrong with it.
    fn load_chunk(&mut self, id: &[u8], chunk: Bytes) -> Result<(), String>;

    /// How the machine is spread over shards, if it is: each shard has one of its own then, with the keys of that shard's slots. `None`: there is one
    /// machine, in the metadata's shard.
    fn slots(&self) -> Option<Arc<dyn Slots>> {
        None
    }

    /// The concrete machine, for admin listings.
    fn as_any(&self) -> &dyn Any;
}
