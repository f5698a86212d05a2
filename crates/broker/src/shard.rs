//! One journal shard of the broker: tail and applied state of its partitions, and requests parked until their commit.
//!
//! Lock order: machines, then a shard's state. No lock is held during I/O. `try_propose` is called under the state lock, because offsets must be
//! assigned in log order; it never blocks.

use crate::follow::Follows;
use crate::machines::{MachineProgress, Machines, NoMeta};
use crate::openings::Openings;
use crate::partition::Partition;
use crate::pending::{PendingAppend, PendingPublish, PendingTrim};
use crate::producers::{NewBatch, Verdict};
use crate::queues::Queues;
use crate::watch::{Fired, Watches};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_api::{Ack, AppendEntry, AppendError, Appended, Caller, Durability, LogView, Unavailable};
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::Kind;
use polylogue_log::checkpoint::CheckpointStore;
use polylogue_log::journal::{self, Draft, PATCH_BYTES_MAX, Patch, Proposal, Urgency};
use polylogue_log::store::ShardStore;
use polylogue_record::crc;
use polylogue_record::envelope::{Body, Envelope, Form, Producer};
use polylogue_replicate::{Role, ShardLog};
use polylogue_types::{Index, Map, Offset, PartitionId, ShardId, Term, TimestampMs};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    /// Durability of the shard's own records, and of its topics when they were created. An append uses its topic's current durability, except in
    /// `Memory` shards.
    pub(crate) class: Durability,
    /// Whether queues with early delivery use it: only if this node alone decides what is committed.
    pub(crate) early_deliveries: bool,
    /// Parses the bodies of messages in queues.
    pub(crate) view: Option<Arc<dyn LogView>>,
    pub(crate) log: Arc<dyn ShardLog>,
    pub(crate) store: ShardStore,
    /// Checkpoints of applied state; none for a memory shard.
    pub(crate) checkpoints: Option<CheckpointStore>,
    pub(crate) state: Mutex<ShardState>,
    pub(crate) machines: MachineProgress,
    /// The machines of the slots that are here. Those of the metadata's shard are [`crate::broker::Inner::machines`].
    pub(crate) slots: Mutex<Machines<NoMeta>>,
    /// The shard has machines.
    pub(crate) hosts: bool,
    /// The next deadline of a queue, as known to the timer. Wall time, milliseconds; `u64::MAX`: none.
    pub(crate) queue_deadline_ms: AtomicU64,
    /// Held while committed frames are applied, so that a checkpoint contains whole frames. Taken before any other lock.
    pub(crate) applying: Mutex<()>,
}

/// A request that waits for a ticket's outcome.
#[derive(Debug)]
pub(crate) enum Parked {
    /// Entries of an append, with their positions in the request.
    Append(Arc<PendingAppend>, Vec<u32>),
    /// Messages of a publish, with their positions in the request.
    Publish(Arc<PendingPublish>, Vec<u32>),
    /// Partitions of a trim, with their positions in the request.
    Trim(Arc<PendingTrim>, Vec<u32>),
    /// Replies of a state machine.
    Machine(Vec<(Caller, Box<dyn Any + Send>)>),
}

/// Mutable state of a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardState {
    /// This node's role in the shard. A follower until it has a term of its own: a start replays the log as a follower.
    pub(crate) role: Role,
    /// The writer's term; on a follower the term of the last applied frame.
    pub(crate) term: Term,
    /// The writer was lost: nothing is proposed before a new term begins.
    pub(crate) lost: bool,
    pub(crate) openings: Openings,
    pub(crate) partitions: Map<PartitionId, Partition>,
    pub(crate) queues: Queues,
    pub(crate) watches: Watches,
    pub(crate) follows: Follows,
    pub(crate) parked: VecDeque<(u64, Parked)>,
    pub(crate) next_ticket: u64,
    /// All tickets below this one have an outcome.
    pub(crate) settled: u64,
    /// The last applied index.
    pub(crate) applied: Index,
    /// Bytes of frames applied since the last checkpoint.
    pub(crate) applied_bytes: u64,
    /// The last applied cut: the log up to it may be merged into segments.
    pub(crate) cut: Option<Index>,
    /// The last cut that was proposed.
    pub(crate) cut_proposed: Option<Index>,
    /// Partitions deleted since the last checkpoint.
    pub(crate) removed: Vec<PartitionId>,
    /// Changes were taken from the state but not written: the next checkpoint contains all chunks.
    pub(crate) recapture: bool,
}

impl ShardState {
    /// Returns whether this node proposes, delivers and expires in the shard: it is the writer and is not lost.
    pub(crate) fn proposes(&self) -> bool {
        self.role == Role::Writer && !self.lost
    }
}

/// Options of an append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendTerms {
    pub(crate) ack: Ack,
    pub(crate) now_ms: TimestampMs,
    /// Producers that were last active before this time are unknown.
    pub(crate) oldest_producer_ms: TimestampMs,
}

/// Entries to be proposed.
#[derive(Debug)]
struct Planned {
    drafts: Vec<Draft>,
    /// The strongest durability that their topics require.
    class: journal::Durability,
}

/// The result of a shard's part of an append.
#[derive(Debug, Default)]
pub(crate) struct AppendOutcome {
    /// Results by position in the request. Those of waiting positions become true at the commit.
    pub(crate) results: Vec<(u32, Result<Appended, AppendError>)>,
    /// The ticket to wait for, and the positions that wait for it.
    pub(crate) waits: Option<(u64, Vec<u32>)>,
    /// The caller must have the log write it ([`polylogue_replicate::ShardLog::write_prompt`]) after the shard's lock is released.
    pub(crate) prompt: bool,
}

impl Shard {
    /// Assigns offsets to entries and proposes them. Entries are (position in the request, entry). With `Ack::Committed` the caller parks `waits`
    /// under the same lock.
    pub(crate) fn append(
        &self,
        state: &mut ShardState,
        entries: Vec<(u32, AppendEntry)>,
        terms: AppendTerms,
    ) -> AppendOutcome {
        let mut outcome = AppendOutcome::default();
        let drafts = Vec::with_capacity(entries.len());
        let mut planned = Planned { drafts, class: journal::Durability::Async };
        let mut waiting = Vec::new();
        for (position, entry) in entries {
            let result = self.plan(state, entry, terms, &mut planned);
            let waits = result.as_ref().is_ok_and(|(_, committed)| !committed);
            if waits && terms.ack.is_committed() {
                waiting.push(position);
            }
            outcome.results.push((position, result.map(|(appended, _)| appended)));
        }
        let ticket = if planned.drafts.is_empty() {
            // Only duplicates of uncommitted batches: they wait for the last proposal.
            state.next_ticket.saturating_sub(1)
        } else {
            let urgency = if terms.ack.is_committed() { Urgency::Urgent } else { Urgency::Lazy };
            let Planned { drafts, class } = planned;
            let class = (self.class != Durability::Memory).then_some(class);
            let prompt = urgency == Urgency::Urgent && class == Some(journal::Durability::Async);
            match self.propose(state, Proposal { urgency, class, prompt, ..Proposal::data(state.term, 0, drafts) }) {
                Ok(ticket) => {
                    outcome.prompt = prompt;
                    ticket
                }
                Err(why) => {
                    for (_, result) in &mut outcome.results {
                        if result.is_ok() {
                            *result = Err(AppendError::Unavailable(why));
                        }
                    }
                    return outcome;
                }
            }
        };
        if !waiting.is_empty() {
            outcome.waits = Some((ticket, waiting));
        }
        outcome
    }

    /// Checks an entry and assigns its offset; returns `(result, already committed)`.
    fn plan(
        &self,
        state: &mut ShardState,
        entry: AppendEntry,
        terms: AppendTerms,
        planned: &mut Planned,
    ) -> Result<(Appended, bool), AppendError> {
        if !state.proposes() {
            return Err(AppendError::Unavailable(Unavailable::NotCommitted));
        }
        let partition = state.partitions.get_mut(&entry.partition).ok_or(AppendError::UnknownPartition)?;
        let log_start = partition.log_start;
        if let Some(stamp) = &entry.producer
            && let Verdict::Duplicate { base_offset, max_timestamp } =
                partition.producers.judge(stamp, entry.count, terms.oldest_producer_ms)?
        {
            let committed = base_offset < partition.high_watermark;
            return Ok((Appended { base_offset, log_start, duplicate: true, max_timestamp }, committed));
        }
        let base_offset = partition.next_offset;
        if let Some(stamp) = &entry.producer {
            let batch = NewBatch { base_offset, count: entry.count, max_timestamp: entry.max_timestamp };
            partition.producers.note(stamp, batch, terms.now_ms, partition.high_watermark);
        }
        let max_timestamp = entry.max_timestamp;
        if partition.config.own().durability == Durability::Sync {
            planned.class = journal::Durability::Sync;
        }
        planned.drafts.push(stamp_entry(partition, entry));
        Ok((Appended { base_offset, log_start, duplicate: false, max_timestamp }, false))
    }

    /// Proposes to the log under a new ticket.
    pub(crate) fn propose(&self, state: &mut ShardState, proposal: Proposal) -> Result<u64, Unavailable> {
        if !state.proposes() {
            return Err(Unavailable::NotCommitted);
        }
        let ticket = state.next_ticket;
        let proposal = Proposal { ticket, epoch: state.term, ..proposal };
        match self.log.try_propose(proposal) {
            Ok(()) => {
                state.next_ticket += 1;
                Ok(ticket)
            }
            Err(refused) => {
                undo(state, &refused.proposal.entries);
                Err(match refused.kind {
                    LogErrorKind::StorageFull => Unavailable::StorageFull,
                    LogErrorKind::Busy => Unavailable::Busy,
                    LogErrorKind::Stopped => Unavailable::Stopping,
                    // The writer is unaffected.
                    LogErrorKind::Invalid => Unavailable::TooLarge,
                    _ => {
                        state.lost = true;
                        Unavailable::NotCommitted
                    }
                })
            }
        }
    }

    /// Sets the next deadline of the queues. Returns whether it is earlier than before.
    pub(crate) fn queues_due(&self, at_ms: Option<u64>) -> bool {
        let at_ms = at_ms.unwrap_or(u64::MAX);
        at_ms < self.queue_deadline_ms.swap(at_ms, Ordering::Relaxed)
    }

    /// Proposes one record of a machine or of the broker under a machine's partition.
    pub(crate) fn propose_record(
        &self,
        state: &mut ShardState,
        partition: PartitionId,
        record: Bytes,
    ) -> Result<u64, Unavailable> {
        self.propose_own(state, partition, record, Urgency::Urgent)
    }

    /// As `propose_record`, with or without a waiter.
    pub(crate) fn propose_own(
        &self,
        state: &mut ShardState,
        partition: PartitionId,
        record: Bytes,
        urgency: Urgency,
    ) -> Result<u64, Unavailable> {
        self.propose_records(state, partition, [record], urgency)
    }

    /// As `propose_own`, for several records: the log accepts all of them or none.
    pub(crate) fn propose_records(
        &self,
        state: &mut ShardState,
        partition: PartitionId,
        records: impl IntoIterator<Item = Bytes>,
        urgency: Urgency,
    ) -> Result<u64, Unavailable> {
        let Some(p) = state.partitions.get_mut(&partition) else { return Err(Unavailable::Stopping) };
        let draft = |record: Bytes| {
            let mut envelope = Envelope::new(partition, Form::Record);
            envelope.base_offset = p.next_offset;
            envelope.ordinal = p.next_ordinal;
            envelope.count = 1;
            envelope.max_timestamp = -1;
            envelope.body = Body::Inline { len: record.len() as u32, checksum: crc::crc32c(&record) };
            p.next_offset = p.next_offset.plus(1);
            p.next_ordinal.0 += 1;
            Draft::new(envelope, record)
        };
        let drafts = records.into_iter().map(draft).collect();
        self.propose(state, Proposal { reserve: true, urgency, ..Proposal::data(state.term, 0, drafts) })
    }

    /// Proposes that the log up to an index may be merged into segments.
    pub(crate) fn propose_cut(&self, state: &mut ShardState, upto: Index) -> Result<u64, Unavailable> {
        if !state.proposes() {
            return Err(Unavailable::NotCommitted);
        }
        let ticket = state.next_ticket;
        let proposal = Proposal {
            kind: Kind::SegmentCut,
            body: Bytes::copy_from_slice(&upto.0.to_le_bytes()),
            urgency: Urgency::Lazy,
            reserve: true,
            ..Proposal::data(state.term, ticket, Vec::new())
        };
        self.log.try_propose(proposal).map_err(|_| Unavailable::Busy)?;
        state.next_ticket += 1;
        Ok(ticket)
    }

    /// Applies an entry to its partition: offsets and watchers. A follower records here what the writer recorded when it proposed. `Err`: the log
    /// broke its guarantee.
    pub(crate) fn apply_entry(
        state: &mut ShardState,
        envelope: &Envelope,
        time_ms: TimestampMs,
        fired: &mut Fired,
    ) -> Result<(), String> {
        let follows = state.role != Role::Writer;
        // The topic was deleted while its entries were in flight: they are ignored.
        let Some(partition) = state.partitions.get_mut(&envelope.partition) else { return Ok(()) };
        if follows && let Some(stamp) = envelope.producer.as_ref().map(producer_stamp) {
            let at = partition.high_watermark;
            let Envelope { base_offset, count, max_timestamp, .. } = *envelope;
            partition.producers.note(&stamp, NewBatch { base_offset, count, max_timestamp }, time_ms, at);
        }
        partition.apply(envelope, time_ms)?;
        if follows {
            partition.next_offset = partition.high_watermark;
            partition.next_ordinal = partition.applied_ordinal;
        }
        state.follows.changed(partition, fired);
        let due = partition.watchers.take_passed(partition.high_watermark);
        state.watches.fire(&mut state.partitions, due, fired);
        Ok(())
    }

    /// Parks a request until its ticket's outcome.
    pub(crate) fn park(state: &mut ShardState, ticket: u64, parked: Parked) {
        state.parked.push_back((ticket, parked));
    }

    /// Takes all requests parked for `ticket` or an earlier one.
    pub(crate) fn unpark(state: &mut ShardState, ticket: u64, into: &mut Vec<Parked>) {
        while state.parked.front().is_some_and(|(waits_for, _)| *waits_for <= ticket) {
            into.extend(state.parked.pop_front().map(|(_, parked)| parked));
        }
    }
}

/// Takes back the offsets of drafts that the log refused, newest first. No other offsets were assigned since, because the state was locked
/// throughout.
fn undo(state: &mut ShardState, drafts: &[Draft]) {
    for draft in drafts.iter().rev() {
        let envelope = &draft.envelope;
        let Some(partition) = state.partitions.get_mut(&envelope.partition) else { continue };
        partition.next_offset = envelope.base_offset;
        partition.next_ordinal = envelope.ordinal;
        if let Some(producer) = &envelope.producer {
            partition.producers.undo(producer.id, envelope.base_offset);
        }
    }
}

fn producer_stamp(p: &Producer) -> polylogue_api::ProducerStamp {
    polylogue_api::ProducerStamp { id: p.id, epoch: p.epoch, base_sequence: p.base_sequence as i32 }
}

/// Sets an entry's offset, ordinal and epoch in the envelope and in its native header, and advances the tail.
fn stamp_entry(partition: &mut Partition, entry: AppendEntry) -> Draft {
    let base_offset = partition.next_offset;
    let mut envelope = Envelope::new(entry.partition, entry.form);
    envelope.base_offset = base_offset;
    envelope.ordinal = partition.next_ordinal;
    envelope.count = entry.count;
    envelope.max_timestamp = entry.max_timestamp;
    envelope.leader_epoch = partition.leader_epoch as u32;
    envelope.flags = entry.flags;
    envelope.producer = entry.producer.map(|p| Producer {
        id: p.id,
        epoch: p.epoch,
        base_sequence: i64::from(p.base_sequence),
        last_sequence: (i64::from(p.base_sequence) + i64::from(entry.count) - 1) & i64::from(i32::MAX),
    });
    partition.next_offset = base_offset.plus(u64::from(entry.count));
    partition.next_ordinal.0 += 1;
    let summed_from = (entry.summed_from as usize).min(entry.bytes.len());
    let head = patched_head(entry.form, &entry.bytes[..summed_from], base_offset, partition.leader_epoch);
    let rest_len = (entry.bytes.len() - summed_from) as u64;
    let checksum = crc::combine(crc::crc32c(head.as_slice()), entry.body_crc, rest_len);
    envelope.body = Body::Inline { len: entry.bytes.len() as u32, checksum };
    Draft { envelope, bytes: entry.bytes, patch: head }
}

/// Returns the first bytes of an entry with its offset and leader epoch set, in the layout of its form.
fn patched_head(form: Form, head: &[u8], base_offset: Offset, leader_epoch: i32) -> Patch {
    let mut bytes = [0; PATCH_BYTES_MAX];
    let len = head.len().min(PATCH_BYTES_MAX);
    bytes[..len].copy_from_slice(&head[..len]);
    if form == Form::KafkaV2 && len >= 16 {
        // baseOffset and partitionLeaderEpoch of a record batch; both are before the range of its CRC.
        bytes[..8].copy_from_slice(&base_offset.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    }
    Patch::new(&bytes[..len]).unwrap_or_default()
}
