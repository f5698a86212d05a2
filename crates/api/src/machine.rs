//! State machines on the log: what a protocol brings along beyond partitions (groups, queues, transactions).
//!
//! Three kinds of state (DESIGN section 4). *Applied* state changes only in [`StateMachine::apply`], by a committed
//! record. *Soft* state (members waiting, heartbeats) may change in `handle` and may vanish at a crash. A reply
//! that tells of a change is parked with the record until that is committed: see [`Proposal`].

use crate::{Catalog, Now, QueueCounts, TopicChange, TopicInfo, Unavailable};
use bytes::Bytes;
use polylogue_types::{PartitionId, TimestampMs};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// Which machine. Also names its records in the log for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MachineId {
    /// Topics, ids, settings.
    Meta,
    /// Kafka's group coordinator.
    KafkaGroups,
    /// What is declared in RabbitMQ's world: virtual hosts, users, queues, exchanges, bindings.
    Amqp,
}

/// A command, in the machine's own type.
pub type Command = Box<dyn Any + Send>;

/// What a machine answers: its own type, or why it could not.
pub type MachineReply = Result<Box<dyn Any + Send>, Unavailable>;

/// Stands for one request that waits for its reply. Opaque to the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Caller(pub u64);

/// What must be true of a queue that is to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CloseIf {
    /// It has no consumers.
    pub unused: bool,
    /// It has no ready messages.
    pub empty: bool,
}

/// The doors of queues, for a machine that is about to propose that one goes.
///
/// A queue that is closed takes no consumer any more: no consumer attaches between the check and the record. What is published to it goes
/// where its other messages go. It is soft state: closed ends when the queue goes, and when the machines' writer is lost.
pub trait QueueDoors: Sync + Debug {
    /// Closes a queue, if that is true of it, in one moment; gives what it holds then. One that is not there holds nothing.
    ///
    /// # Errors
    /// What it holds, which is not what it should.
    fn close(&self, queue: PartitionId, only: CloseIf) -> Result<QueueCounts, QueueCounts>;

    /// A queue does not go after all.
    fn open(&self, queue: PartitionId);
}

/// The doors of no queues, where there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoQueues;

impl QueueDoors for NoQueues {
    fn close(&self, _: PartitionId, _: CloseIf) -> Result<QueueCounts, QueueCounts> {
        Ok(QueueCounts::default())
    }

    fn open(&self, _: PartitionId) {}
}

/// Surroundings of a call.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Now,
    /// Topics as applied.
    pub catalog: &'a dyn Catalog,
    /// The doors of queues.
    pub queues: &'a dyn QueueDoors,
    /// A number that no other call gets: for ids that must be unique but not secret.
    pub random: u64,
}

/// A record to be written, with what is to be said when its fate is known.
#[derive(Debug)]
pub struct Proposal {
    /// The record, in the machine's own encoding.
    pub record: Bytes,
    /// Replies that leave when it is committed. When it is not, each caller gets the [`Unavailable`].
    pub replies: Vec<(Caller, Box<dyn Any + Send>)>,
}

/// What a call wants done. Order is kept.
#[derive(Debug, Default)]
pub struct Effects {
    /// Records to write; each is applied after it is committed, in this order. The log takes all records of a call or none of them, see
    /// [`StateMachine::on_refused`].
    pub proposals: Vec<Proposal>,
    /// Replies that depend on nothing new.
    pub replies: Vec<(Caller, Box<dyn Any + Send>)>,
}

/// A deterministic state machine that the broker hosts. Never run concurrently with itself.
pub trait StateMachine: Send + Debug {
    /// A command from a session. Must not change applied state.
    fn handle(&mut self, context: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects);

    /// Whether a command only looks at applied state. The host runs it once everything is applied that was acknowledged before it came
    /// (`ShardLog::barrier`), wherever.
    fn reads(&self, _: &Command) -> bool {
        false
    }

    /// The caller's connection is gone; replies to it lead nowhere.
    fn on_gone(&mut self, context: &Context<'_>, caller: Caller, effects: &mut Effects);

    /// A committed record. The only place where applied state changes; no clock, no randomness.
    ///
    /// # Errors
    /// Why the record cannot be read. What is in memory is then not what was committed: the host ends the process, or does
    /// not start.
    fn apply(&mut self, record: &[u8], time_ms: TimestampMs) -> Result<(), String>;

    /// Called once after replay, before the first command: soft state starts from applied state here.
    fn on_ready(&mut self, context: &Context<'_>);

    /// The log refused the proposals of the call before, all of them: the queue or the disk is full, or a record is too large. None of
    /// these records will ever be applied; the machine takes back what it derived from them. `records` are all records of that call, in
    /// their order, and nothing was called in between. What was proposed before is on its way as it was, and the writer stays. The host
    /// answers the callers of the refused proposals; `effects` takes replies to other callers, and its proposals are not carried out.
    fn on_refused(&mut self, context: &Context<'_>, records: &[Bytes], effects: &mut Effects);

    /// The host could not have topics changed or deleted as the machine wanted ([`StateMachine::take_topic_changes`],
    /// [`StateMachine::take_dead_topics`]): the machine asks for all of that again, at a deadline of its own.
    fn on_topics_refused(&mut self, _: &Context<'_>) {}

    /// Proposals that were not committed are void and the writer was taken anew: whatever was derived from them
    /// (tail state) is derived again from applied state.
    fn on_writer_lost(&mut self, context: &Context<'_>, effects: &mut Effects);

    /// When [`StateMachine::on_deadline`] wants to be called, in monotonic milliseconds.
    fn next_deadline_ms(&self) -> Option<u64>;

    /// A deadline has passed.
    fn on_deadline(&mut self, context: &Context<'_>, effects: &mut Effects);

    /// Topics are gone.
    fn on_topics_deleted(&mut self, context: &Context<'_>, topics: &[Arc<TopicInfo>], effects: &mut Effects);

    /// Topics that are not needed any more, by what was applied since the last call; the host deletes them.
    fn take_dead_topics(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Changes of topics that follow from what was applied since the last call, at most so many as the applying thread can wait for; the host makes
    /// them. One that is lost with its writer is asked for again after [`StateMachine::on_writer_lost`].
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

    /// Counts every chunk of applied state as changed: what a checkpoint holds of it cannot be read any more.
    fn change_all_chunks(&mut self);

    /// A chunk of a checkpoint, before replay.
    ///
    /// # Errors
    /// What is wrong with it.
    fn load_chunk(&mut self, id: &[u8], chunk: Bytes) -> Result<(), String>;

    /// For looking at the concrete machine (admin listings).
    fn as_any(&self) -> &dyn Any;
}
