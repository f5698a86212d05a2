//! Hosted state machines of a shard. The metadata's shard has the metadata and the machines that protocols add; of machines that live in slots each
//! shard with partitions has one.
//!
//! A machine proposes records under its own partition of its shard and receives them, in order, when they are committed. Its replies are parked with
//! the records that they depend on.

use crate::shard::{Parked, Shard};
use crate::sink::Origin;
use bytes::Bytes;
use polylogue_api::machine::Command;
use polylogue_api::{
    AlterError, AlterTopics, Caller, Catalog, Context, DeleteTopics, Effects, MachineId, MachineReply, Reply,
    StateMachine, TopicError, TopicInfo, TopicRef, Unavailable,
};
use polylogue_log::journal::Urgency;
use polylogue_log::{ErrorKind as LogErrorKind, Frame};
use polylogue_meta::{MetaCommand, MetaEvent, MetaMachine, MetaReply};
use polylogue_replicate::ReadLevel;
use polylogue_types::{Index, Map};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Commands that wait until earlier records are applied, at most; more are refused as busy.
const READS_WAITING_MAX: usize = 65_536;
/// The type of reply that a caller expects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expects {
    CreatedTopics(usize),
    DeletedTopics(usize),
    AlteredTopics(usize),
    AlteredSettings(usize),
    Producer,
    Machine,
}

/// Progress of the machines of a shard.
#[derive(Debug, Default)]
pub(crate) struct MachineProgress {
    /// The index up to which their records are applied. Stored before `reads` is loaded.
    pub(crate) applied: AtomicU64,
    /// Number of commands that wait for a higher index.
    pub(crate) reads: AtomicUsize,
}

/// The machine that only the metadata's shard has, or none.
pub(crate) trait Root: Send + Debug {
    fn machine(&mut self) -> Option<&mut dyn StateMachine>;
}

impl Root for MetaMachine {
    fn machine(&mut self) -> Option<&mut dyn StateMachine> {
        Some(self)
    }
}

/// Of a shard without metadata.
#[derive(Debug)]
pub(crate) struct NoMeta;

impl Root for NoMeta {
    fn machine(&mut self) -> Option<&mut dyn StateMachine> {
        None
    }
}

/// The hosted machines of a shard and their callers.
#[derive(Debug)]
pub(crate) struct Machines<R: Root + ?Sized = MetaMachine> {
    pub(crate) others: BTreeMap<MachineId, Box<dyn StateMachine>>,
    callers: Map<u64, (Origin, Expects, MachineId)>,
    /// The same, ordered by session, to find the callers of one session.
    callers_of: BTreeSet<(u64, u64)>,
    next_caller: u64,
    /// Read-only commands, with the index that must be applied before.
    reads: VecDeque<(Index, MachineId, Caller, Command)>,
    // Last, so that a reference to the whole can leave open which one it is.
    pub(crate) meta: R,
}

/// The machines of any shard.
pub(crate) type Hosted = Machines<dyn Root>;

/// Replies to be sent when no lock is held.
pub(crate) type Outbox = Vec<(Origin, Reply)>;

impl<R: Root> Machines<R> {
    pub(crate) fn new(meta: R, others: BTreeMap<MachineId, Box<dyn StateMachine>>) -> Machines<R> {
        Machines {
            others,
            callers: Map::default(),
            callers_of: BTreeSet::new(),
            next_caller: 0,
            reads: VecDeque::new(),
            meta,
        }
    }
}

impl<R: Root + ?Sized> Machines<R> {
    pub(crate) fn get_mut(&mut self, id: MachineId) -> Option<&mut dyn StateMachine> {
        match id {
            MachineId::META => self.meta.machine(),
            other => match self.others.get_mut(&other) {
                Some(machine) => Some(machine.as_mut()),
                None => None,
            },
        }
    }

    pub(crate) fn ids(&mut self) -> Vec<MachineId> {
        let meta = self.meta.machine().map(|_| MachineId::META);
        meta.into_iter().chain(self.others.keys().copied()).collect()
    }

    /// Soft state starts from applied state: replay is over.
    pub(crate) fn ready(&mut self, context: &Context<'_>) {
        for id in self.ids() {
            if let Some(machine) = self.get_mut(id) {
                machine.on_ready(context);
            }
        }
    }

    /// Notifies the machines, but not the metadata, of deleted topics.
    pub(crate) fn topics_deleted(
        &mut self,
        deleted: &[Arc<TopicInfo>],
        context: &Context<'_>,
        shard: &Shard,
        outbox: &mut Outbox,
    ) {
        for id in self.others.keys().copied().collect::<Vec<_>>() {
            let mut effects = Effects::default();
            if let Some(machine) = self.get_mut(id) {
                machine.on_topics_deleted(context, deleted, &mut effects);
            }
            self.carry_out(id, effects, context, shard, outbox);
        }
    }

    /// Runs a command.
    pub(crate) fn command(
        &mut self,
        id: MachineId,
        context: &Context<'_>,
        caller: (Origin, Expects),
        command: Command,
        shard: &Shard,
        outbox: &mut Outbox,
    ) {
        let (origin, expects) = caller;
        let caller = Caller(self.next_caller);
        self.next_caller += 1;
        let Some(machine) = self.get_mut(id) else {
            outbox.push((origin, unavailable(expects, Unavailable::Stopping)));
            return;
        };
        let barrier = if machine.reads(&command) { barrier(shard) } else { Ok(None) };
        self.callers_of.insert((origin.session.0, caller.0));
        self.callers.insert(caller.0, (origin, expects, id));
        match barrier {
            Err(why) => self.answer(caller, Err(why), outbox),
            Ok(None) => self.run(id, caller, command, context, shard, outbox),
            Ok(Some(_)) if self.reads.len() >= READS_WAITING_MAX => {
                self.answer(caller, Err(Unavailable::Busy), outbox);
            }
            Ok(Some(index)) => {
                // Queued before the applied index is loaded, so that the applying thread sees the command or this thread sees the index.
                self.reads.push_back((index, id, caller, command));
                shard.machines.reads.store(self.reads.len(), Ordering::SeqCst);
                self.run_reads(context, shard, outbox);
            }
        }
    }

    fn run(
        &mut self,
        id: MachineId,
        caller: Caller,
        command: Command,
        context: &Context<'_>,
        shard: &Shard,
        outbox: &mut Outbox,
    ) {
        let mut effects = Effects::default();
        if let Some(machine) = self.get_mut(id) {
            machine.handle(context, caller, command, &mut effects);
        }
        self.carry_out(id, effects, context, shard, outbox);
    }

    /// Runs the read-only commands whose index is applied.
    pub(crate) fn run_reads(&mut self, context: &Context<'_>, shard: &Shard, outbox: &mut Outbox) {
        let applied = Index(shard.machines.applied.load(Ordering::SeqCst));
        while let Some((_, id, caller, command)) = self.reads.pop_front_if(|(index, ..)| *index <= applied) {
            self.run(id, caller, command, context, shard, outbox);
        }
        shard.machines.reads.store(self.reads.len(), Ordering::SeqCst);
    }

    /// Sends the replies of committed records, and the replies that machines held back until the effects are in place.
    pub(crate) fn answer_due(&mut self, due: Vec<(Caller, MachineReply)>, outbox: &mut Outbox) {
        let mut committed: BTreeMap<MachineId, Vec<_>> = self.ids().into_iter().map(|id| (id, Vec::new())).collect();
        for (caller, reply) in due {
            let id = self.callers.get(&caller.0).map(|(_, _, id)| *id);
            match (reply, id.and_then(|id| committed.get_mut(&id))) {
                (Ok(reply), Some(replies)) => replies.push((caller, reply)),
                (reply, _) => self.answer(caller, reply, outbox),
            }
        }
        for (id, replies) in committed {
            let leaving = self.get_mut(id).map(|machine| machine.due_replies(replies)).unwrap_or_default();
            leaving.into_iter().for_each(|(caller, reply)| self.answer(caller, Ok(reply), outbox));
        }
    }

    /// Calls machines with commands whose replies have no waiter. Returns whether the log accepted all of their proposals.
    pub(crate) fn tell(
        &mut self,
        commands: Vec<(MachineId, Command)>,
        context: &Context<'_>,
        shard: &Shard,
        outbox: &mut Outbox,
    ) -> bool {
        let mut taken = true;
        for (id, command) in commands {
            let effects = self.handled(id, command, context);
            taken &= self.carry_out(id, effects, context, shard, outbox);
        }
        taken
    }

    /// Returns the effects of a command whose reply has no waiter.
    fn handled(&mut self, id: MachineId, command: Command, context: &Context<'_>) -> Effects {
        let caller = Caller(self.next_caller);
        self.next_caller += 1;
        let mut effects = Effects::default();
        if let Some(machine) = self.get_mut(id) {
            machine.handle(context, caller, command, &mut effects);
        }
        effects
    }

    /// Proposes the records of one call of a machine, and sends its replies. The log accepts all records of the call or none: if none, the machine
    /// drops its tail before it is called again, and no other caller is affected. Returns whether the log accepted them.
    pub(crate) fn carry_out(
        &mut self,
        id: MachineId,
        effects: Effects,
        context: &Context<'_>,
        shard: &Shard,
        outbox: &mut Outbox,
    ) -> bool {
        for (caller, reply) in effects.replies {
            self.answer(caller, Ok(reply), outbox);
        }
        if effects.proposals.is_empty() {
            return true;
        }
        let mut replies = Vec::new();
        let mut records = Vec::with_capacity(effects.proposals.len());
        for proposal in effects.proposals {
            records.push(proposal.record);
            replies.extend(proposal.replies);
        }
        let refused = {
            let mut state = shard.state.lock();
            match shard.propose_records(&mut state, id.partition(), records.iter().cloned(), Urgency::Urgent) {
                Ok(ticket) => {
                    if !replies.is_empty() {
                        Shard::park(&mut state, ticket, Parked::Machine(replies));
                    }
                    return true;
                }
                Err(why) => why,
            }
        };
        let mut effects = Effects::default();
        if let Some(machine) = self.get_mut(id) {
            machine.on_refused(context, &records, &mut effects);
        }
        for (caller, _) in replies {
            self.answer(caller, Err(refused), outbox);
        }
        for (caller, reply) in effects.replies {
            self.answer(caller, Ok(reply), outbox);
        }
        false
    }

    /// Replies to a caller, unless it is gone.
    pub(crate) fn answer(&mut self, caller: Caller, reply: MachineReply, outbox: &mut Outbox) {
        let Some((origin, expects, _)) = self.callers.remove(&caller.0) else { return };
        self.callers_of.remove(&(origin.session.0, caller.0));
        let reply = match reply {
            Ok(reply) => convert(expects, reply),
            Err(why) => unavailable(expects, why),
        };
        outbox.push((origin, reply));
    }

    /// Removes the callers of a session that has ended.
    pub(crate) fn session_gone(&mut self, session: u64, context: &Context<'_>, shard: &Shard, outbox: &mut Outbox) {
        let gone: Vec<_> = self.callers_of.range((session, 0)..=(session, u64::MAX)).copied().collect();
        for of in gone {
            self.callers_of.remove(&of);
            let Some((_, _, id)) = self.callers.remove(&of.1) else { continue };
            let mut effects = Effects::default();
            if let Some(machine) = self.get_mut(id) {
                machine.on_gone(context, Caller(of.1), &mut effects);
            }
            self.carry_out(id, effects, context, shard, outbox);
        }
    }

    /// Applies the machines' records of a committed frame. Errors: the record that cannot be decoded.
    pub(crate) fn apply(&mut self, frame: &Frame) -> Result<(), String> {
        for entry in &frame.entries {
            let Some(id) = MachineId::of_partition(entry.envelope.partition) else { continue };
            let record: Bytes = frame.native(entry);
            if let Some(machine) = self.get_mut(id) {
                machine
                    .apply(&record, frame.time_ms)
                    .map_err(|why| format!("index {} of shard {}: {why}", frame.index, frame.shard))?;
            }
        }
        Ok(())
    }

    /// Calls each machine whose deadline has passed once. A machine may leave some of its due work for the next call, so that a refusal affects a
    /// single piece and others have their turn. Returns whether any was due.
    pub(crate) fn run_deadlines(&mut self, context: &Context<'_>, shard: &Shard, outbox: &mut Outbox) -> bool {
        let mut did = false;
        for id in self.ids() {
            let mut effects = Effects::default();
            match self.get_mut(id) {
                Some(m) if m.next_deadline_ms().is_some_and(|d| d <= context.now.monotonic_ms) => {
                    m.on_deadline(context, &mut effects);
                }
                _ => continue,
            }
            did = true;
            self.carry_out(id, effects, context, shard, outbox);
        }
        did
    }

    /// The earliest deadline of all machines.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.others.values().filter_map(|m| m.next_deadline_ms()).min()
    }

    /// Handles the loss of the writer: tails are derived from applied state again. Returns effects to be carried out by the next writer.
    pub(crate) fn writer_lost(&mut self, context: &Context<'_>) -> Vec<(MachineId, Effects)> {
        let ids = self.ids();
        let lost = |id| {
            let mut effects = Effects::default();
            if let Some(machine) = self.get_mut(id) {
                machine.on_writer_lost(context, &mut effects);
            }
            (id, effects)
        };
        ids.into_iter().map(lost).collect()
    }
}

impl Machines {
    /// Returns commands that delete the topics that machines no longer need.
    fn take_dead_topics(&mut self) -> Vec<(MachineId, Command)> {
        let topics: Vec<_> = self.others.values_mut().flat_map(|machine| machine.take_dead_topics()).collect();
        if topics.is_empty() {
            return Vec::new();
        }
        let delete = DeleteTopics { topics: topics.into_iter().map(TopicRef::Name).collect() };
        vec![(MachineId::META, Box::new(MetaCommand::DeleteTopics(delete)))]
    }

    /// Returns the command that changes topics as machines request.
    fn take_topic_changes(&mut self, catalog: &dyn Catalog) -> Option<(MachineId, Command)> {
        let machines = self.others.values_mut();
        let changes: Vec<_> = machines.flat_map(|machine| machine.take_topic_changes(catalog)).collect();
        let alter = AlterTopics { changes, validate_only: false };
        (!alter.changes.is_empty()).then(|| (MachineId::META, Box::new(MetaCommand::AlterTopics(alter)) as Command))
    }

    /// Changes topics as machines request, by their applied state.
    pub(crate) fn change_topics(&mut self, context: &Context<'_>, shard: &Shard, outbox: &mut Outbox) {
        let Some((id, command)) = self.take_topic_changes(context.catalog) else { return };
        let effects = self.handled(id, command, context);
        if !self.carry_out(id, effects, context, shard, outbox) {
            self.topics_refused(context);
        }
    }

    /// Deletes the topics that machines no longer need.
    pub(crate) fn delete_dead_topics(&mut self, context: &Context<'_>, shard: &Shard, outbox: &mut Outbox) {
        let dead = self.take_dead_topics();
        if !self.tell(dead, context, shard, outbox) {
            self.topics_refused(context);
        }
    }

    /// Notifies the machines that their topic changes were refused.
    fn topics_refused(&mut self, context: &Context<'_>) {
        self.others.values_mut().for_each(|machine| machine.on_topics_refused(context));
    }

    /// Applies the machines' records of a committed frame. Returns the topic events. Errors: the record that cannot be decoded.
    pub(crate) fn apply_with_events(&mut self, frame: &Frame) -> Result<Vec<MetaEvent>, String> {
        self.apply(frame)?;
        Ok(self.meta.take_events())
    }
}

/// Returns the index that must be applied before a new read-only command may run.
fn barrier(shard: &Shard) -> Result<Option<Index>, Unavailable> {
    shard.log.barrier(ReadLevel::Quorum).map_err(|e| match e.kind {
        LogErrorKind::Fenced => Unavailable::NotCommitted,
        _ => Unavailable::Stopping,
    })
}

fn convert(expects: Expects, reply: Box<dyn Any + Send>) -> Reply {
    if matches!(expects, Expects::Machine) {
        return Reply::Machine(Ok(reply));
    }
    match reply.downcast::<MetaReply>().map(|r| *r) {
        Ok(MetaReply::Created(results)) => Reply::CreateTopics(results),
        Ok(MetaReply::Deleted(results)) => Reply::DeleteTopics(results),
        Ok(MetaReply::AlteredTopics(results)) => Reply::AlterTopics(results),
        Ok(MetaReply::AlteredSettings(results)) => Reply::AlterSettings(results),
        Ok(MetaReply::Producer(id)) => Reply::ProducerId(Ok(id)),
        Ok(MetaReply::Defined) | Err(_) => unavailable(expects, Unavailable::Unknown),
    }
}

pub(crate) fn unavailable(expects: Expects, why: Unavailable) -> Reply {
    match expects {
        Expects::CreatedTopics(n) => Reply::CreateTopics((0..n).map(|_| Err(TopicError::Unavailable(why))).collect()),
        Expects::DeletedTopics(n) => Reply::DeleteTopics((0..n).map(|_| Err(TopicError::Unavailable(why))).collect()),
        Expects::AlteredTopics(n) => Reply::AlterTopics((0..n).map(|_| Err(AlterError::Unavailable(why))).collect()),
        Expects::AlteredSettings(n) => {
            Reply::AlterSettings((0..n).map(|_| Err(AlterError::Unavailable(why))).collect())
        }
        Expects::Producer => Reply::ProducerId(Err(why)),
        Expects::Machine => Reply::Machine(Err(why)),
    }
}

#[cfg(test)]
mod tests;
