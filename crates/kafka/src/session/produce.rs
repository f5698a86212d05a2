//! Produce: batches into partitions, one append for the whole request.

use super::close::CloseReason;
use super::errors;
use super::produce_batch::{Budget, Halt, Ready, Refused, is_transactional, prepare};
use super::topics::{Lookup, QUEUE_REFUSED, is_queue, node_id, partition_of};
use super::work::{Pending, Step, Work};
use crate::codec::produce::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use crate::codec::{DecodeError, ErrorCode, Reader, StrBytes};
use bytes::Bytes;
use polylogue_api::{Ack, AppendEntry, AppendRequest, Reply, Request};
use polylogue_auth::Operation;
use polylogue_record::kafka::NO_TIMESTAMP;
use polylogue_types::{TimestampMs, TopicId};

/// The first version that names topics by id.
const BY_ID_FROM: i16 = 13;
/// The first version with compact lengths and tagged fields.
const FLEXIBLE_FROM: i16 = 9;
/// The first version with the current leader (KIP-951).
const LEADER_FROM: i16 = 10;
/// Bytes that a partition takes in a request at the least, when it comes with a batch: its header alone has 61. A request
/// with more partitions than that, and more than [`ROWS_FREE`], is a list of nothings that would cost more than it weighs.
const ROW_BYTES_MIN: usize = 64;
/// Partitions that a request may name whatever its length.
const ROWS_FREE: usize = 64;
/// The least time that an append gets, whatever the request's timeout. In Kafka the timeout is for the followers only; here
/// it would be for the flush, and must not make a slow disk look like a lost message.
const APPEND_MS_MIN: u64 = 1_000;

/// An answer to a partition, before it is known.
fn unanswered(index: i32) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        ..PartitionProduceResponse::default()
    }
}

/// Reads the request and checks its batches in one go: a producer's request may name many partitions, and a list of them
/// that is used only once need not be built.
pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let flexible = version >= FLEXIBLE_FROM;
    let rows_max = body.remaining() / ROW_BYTES_MIN + ROWS_FREE;
    let budget = Budget::new(body.remaining(), work.settings.decompressed_bytes_max);
    let request_bytes = body.remaining();
    body.opt_string("ProduceRequest.TransactionalId", flexible, true)?;
    let acks = body.i16("ProduceRequest.Acks")?;
    let timeout_ms = body.i32("ProduceRequest.TimeoutMs")?;
    let mut intake = Intake::new(work, acks, rows_max, budget);
    let mut responses = body.array("ProduceRequest.TopicData", flexible, 3, |r| {
        let by_id = version >= BY_ID_FROM;
        let name = if by_id { StrBytes::new() } else { r.string("TopicProduceData.Name", flexible)? };
        let topic_id = if by_id { r.uuid("TopicProduceData.TopicId")? } else { TopicId::ZERO };
        let partition_responses = r.array("TopicProduceData.PartitionData", flexible, 6, |r| {
            let index = r.i32("PartitionProduceData.Index")?;
            let records = r.opt_bytes("PartitionProduceData.Records", flexible, true)?;
            skip_tags(r, "PartitionProduceData", flexible)?;
            intake.partition((&name, topic_id), index, records, r.remaining())
        })?;
        skip_tags(r, "TopicProduceData", flexible)?;
        intake.topics += 1;
        intake.rows = 0;
        Ok(TopicProduceResponse { name, topic_id, partition_responses })
    })?;
    skip_tags(body, "ProduceRequest", flexible)?;
    let Intake { mut entries, sent, transactional, paused, .. } = intake;
    if paused {
        return Ok(Step::Pause);
    }
    let throttle_time_ms = work.take_produced(request_bytes);
    if transactional {
        refuse_all(&mut responses);
        entries.clear();
    }
    let ack = if acks == 0 { Ack::None } else { Ack::Committed };
    let patience_ms = u64::try_from(timeout_ms).unwrap_or(0).max(APPEND_MS_MIN);
    let producing = Producing {
        response: ProduceResponse { responses, throttle_time_ms, ..ProduceResponse::default() },
        sent,
        ack,
        by_id: version >= BY_ID_FROM,
        deadline_ms: work.now.monotonic_ms.saturating_add(patience_ms),
    };
    if entries.is_empty() {
        return Ok(producing.finish(work));
    }
    let token = work.ask(Request::Append(AppendRequest { entries, ack }));
    Ok(Step::Wait(token, Box::new(producing)))
}

fn skip_tags(r: &mut Reader, field: &'static str, flexible: bool) -> Result<(), DecodeError> {
    if flexible { r.tagged_fields(field, |_, _| Ok(false)) } else { Ok(()) }
}

/// There are no transactions yet. A request with a batch of one gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED throughout:
/// Kafka's own answer where a transactional id means nothing, and final for every client.
fn refuse_all(responses: &mut [TopicProduceResponse]) {
    for row in responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
        *row = PartitionProduceResponse {
            error_code: ErrorCode::TransactionalIdAuthorizationFailed.code(),
            error_message: Some(StrBytes::from_static("Transactions are not supported by this broker.")),
            ..unanswered(row.index)
        };
    }
}

/// The batches of a request, as they are read.
struct Intake<'w, 'a> {
    work: &'w Work<'a>,
    lookup: Lookup<'a>,
    acks_known: bool,
    entries: Vec<AppendEntry>,
    sent: Vec<Sent>,
    /// Whether a batch of a transaction was among them.
    transactional: bool,
    /// A batch does not fit into the turn: the rest is only read over.
    paused: bool,
    /// Topics before the present one, and partitions of this one.
    topics: usize,
    rows: usize,
    /// The topic that was asked about last, by its place, and whether the client may write to it.
    may_write: Option<(usize, bool)>,
    /// Partitions of all topics, and how many there may be.
    rows_all: usize,
    rows_max: usize,
    budget: Budget,
}

impl<'w, 'a> Intake<'w, 'a> {
    fn new(work: &'w Work<'a>, acks: i16, rows_max: usize, budget: Budget) -> Intake<'w, 'a> {
        Intake {
            work,
            lookup: Lookup::new(work.catalog),
            acks_known: (-1..=1).contains(&acks),
            entries: Vec::with_capacity(1),
            sent: Vec::with_capacity(1),
            transactional: false,
            paused: false,
            topics: 0,
            rows: 0,
            may_write: None,
            rows_all: 0,
            rows_max,
            budget,
        }
    }

    /// One partition's batch: appended later, or answered with what is wrong with it.
    fn partition(
        &mut self,
        topic: (&str, TopicId),
        index: i32,
        records: Option<Bytes>,
        remaining: usize,
    ) -> Result<PartitionProduceResponse, DecodeError> {
        self.rows_all += 1;
        if self.rows_all > self.rows_max {
            let field = "TopicProduceData.PartitionData";
            return Err(DecodeError::CountTooLarge { field, count: self.rows_all, remaining });
        }
        if self.paused {
            return Ok(unanswered(index));
        }
        let records = records.unwrap_or_default();
        self.transactional |= is_transactional(&records);
        let mut row = unanswered(index);
        match self.batch(topic, index, records) {
            Ok((Ready { entry, append_time }, leader_epoch)) => {
                self.entries.push(entry);
                self.sent.push(Sent { topic: self.topics, row: self.rows, append_time, leader_epoch });
            }
            Err(Halt::Pause) => self.paused = true,
            Err(Halt::Refused(Refused { error, message, records })) => {
                row.error_code = error.code();
                row.error_message = Some(message);
                row.record_errors = records;
            }
        }
        self.rows += 1;
        Ok(row)
    }

    /// One partition's batch, ready to append, with the leader epoch of the partition.
    fn batch(&mut self, (name, id): (&str, TopicId), index: i32, records: Bytes) -> Result<(Ready, i32), Halt> {
        let by_id = self.work.head.version >= BY_ID_FROM;
        // a zero id in a version that knows ids names nothing, not even by the empty name
        let topic = self.lookup.topic(name, id);
        // A client without the right to write does not learn whether a topic exists; an id is no secret.
        let named = topic.map_or(name, |topic| &topic.name);
        let may_write = match self.may_write {
            Some((at, may)) if at == self.topics => may,
            _ => (by_id && topic.is_none()) || self.work.may_topic(Operation::Write, named),
        };
        self.may_write = Some((self.topics, may_write));
        if !may_write {
            return Err(Refused::plain(ErrorCode::TopicAuthorizationFailed).into());
        }
        let topic = topic.ok_or_else(|| Refused::plain(errors::unknown_topic(by_id)))?;
        let partition = partition_of(topic, index).map_err(Refused::plain)?;
        if !self.acks_known {
            return Err(Refused::plain(ErrorCode::InvalidRequiredAcks).into());
        }
        // Kafka lets the client id `__admin_client` through, which mends offsets that way: here they would never be read.
        if topic.internal {
            return Err(Refused {
                message: StrBytes::from_static("Clients may not write to internal topics."),
                ..Refused::plain(ErrorCode::InvalidTopicException)
            }
            .into());
        }
        if is_queue(topic) {
            return Err(Refused {
                message: StrBytes::from_static(QUEUE_REFUSED),
                ..Refused::plain(ErrorCode::InvalidTopicException)
            }
            .into());
        }
        let ready = prepare(self.work, &topic.config, partition, records, &mut self.budget)?;
        Ok((ready, partition.leader_epoch))
    }
}

/// A batch that was handed to the broker.
#[derive(Debug)]
struct Sent {
    /// The place of its answer.
    topic: usize,
    row: usize,
    append_time: TimestampMs,
    leader_epoch: i32,
}

#[derive(Debug)]
struct Producing {
    response: ProduceResponse,
    sent: Vec<Sent>,
    ack: Ack,
    by_id: bool,
    deadline_ms: u64,
}

impl Pending for Producing {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::Append(results) = reply else { return work.wrong_reply() };
        if results.len() != self.sent.len() {
            return work.wrong_reply();
        }
        let by_id = self.by_id;
        let mut results = results.into_iter();
        self.fill(work, |row, sent| match results.next() {
            Some(Ok(appended)) => {
                row.base_offset = i64::try_from(appended.base_offset.0).unwrap_or(i64::MAX);
                row.log_start_offset = i64::try_from(appended.log_start.0).unwrap_or(i64::MAX);
                // what a duplicate is a duplicate of keeps the time of its own append
                let stored_before = appended.duplicate && sent.append_time != NO_TIMESTAMP;
                row.log_append_time_ms = if stored_before { appended.max_timestamp } else { sent.append_time };
                None
            }
            Some(Err(error)) => Some(errors::of_append(error, by_id)),
            None => Some((ErrorCode::RequestTimedOut, None)),
        });
        self.finish(work)
    }

    fn deadline_ms(&self) -> Option<u64> {
        Some(self.deadline_ms)
    }

    /// The flush takes longer than the producer waits. The batches may still be written; an idempotent producer that sends
    /// them again then gets their first answer.
    fn on_deadline(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        self.fill(work, |_, _| Some((ErrorCode::RequestTimedOut, None)));
        self.finish(work)
    }
}

impl Producing {
    /// Fills in the answer to each batch that was sent: what `outcome` writes, or the error that it returns.
    fn fill(
        &mut self,
        work: &Work<'_>,
        mut outcome: impl FnMut(&mut PartitionProduceResponse, &Sent) -> Option<(ErrorCode, Option<StrBytes>)>,
    ) {
        for sent in &self.sent {
            let rows = self.response.responses.get_mut(sent.topic).map(|topic| &mut topic.partition_responses);
            let Some(row) = rows.and_then(|rows| rows.get_mut(sent.row)) else { continue };
            let Some((error, text)) = outcome(row, sent) else { continue };
            row.error_code = error.code();
            row.error_message = Some(text.unwrap_or_else(|| StrBytes::from_static(error.message())));
            if error == ErrorCode::NotLeaderOrFollower && work.head.version >= LEADER_FROM {
                let leader_id = node_id(&work.catalog.cluster());
                row.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch: sent.leader_epoch };
                let listener = &work.peer.listener;
                self.response.node_endpoints = vec![NodeEndpoint {
                    node_id: leader_id,
                    host: listener.host.clone(),
                    port: i32::from(listener.port),
                    rack: None,
                }];
            }
        }
    }

    fn finish(self, work: &Work<'_>) -> Step {
        if self.ack == Ack::Committed {
            return work.answer(&self.response);
        }
        // there is no answer: an error can only be signalled by closing the connection
        let mut rows = self.response.responses.iter().flat_map(|topic| &topic.partition_responses);
        match rows.find(|row| row.error_code != ErrorCode::None.code()) {
            Some(row) => Step::Close(CloseReason::Produce {
                error: ErrorCode::from_code(row.error_code).unwrap_or(ErrorCode::UnknownServerError),
            }),
            None => Step::Silence,
        }
    }
}
