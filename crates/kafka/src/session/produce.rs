//! Produce: appends batches to partitions, with one append for the whole request.

use super::close::CloseReason;
use super::errors;
use super::produce_batch::{Budget, Halt, Ready, Refused, is_transactional, prepare};
use super::topics::{Lookup, QUEUE_REFUSED, is_queue, node_id, partition_of};
use super::work::{Pending, Step, Work};
use bytes::Bytes;
use polylogue_api::{Ack, AppendEntry, AppendRequest, Reply, Request};
use polylogue_auth::Operation;
use polylogue_kafka_codec::produce::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Reader, StrBytes};
use polylogue_record::kafka::NO_TIMESTAMP;
use polylogue_types::{TimestampMs, TopicId};

/// The first version that identifies topics by id.
const BY_ID_FROM: i16 = 13;
/// The first version with compact lengths and tagged fields.
const FLEXIBLE_FROM: i16 = 9;
/// The first version with the current leader (KIP-951).
const LEADER_FROM: i16 = 10;
/// The minimum size of a partition with a batch in a request: a batch's header alone has 61 bytes. A request with more
/// partitions than its size allows, and more than [`ROWS_FREE`], contains mostly empty rows, and its response would cost
/// more than the request.
const ROW_BYTES_MIN: usize = 64;
/// Partitions that a request may name whatever its size.
const ROWS_FREE: usize = 64;
/// The minimum timeout of an append, whatever the request's timeout. In Kafka the timeout is for followers only; here it would
/// be for the flush, and must not make a slow disk look like a lost message.
const APPEND_MS_MIN: u64 = 1_000;

/// Returns the response for a partition, to be filled in.
fn unanswered(index: i32) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        ..PartitionProduceResponse::default()
    }
}

/// Decodes the request and checks its batches in one pass: a produce request may name many partitions, and a list that is
/// used only once need not be built.
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

/// Refuses transactional requests with TRANSACTIONAL_ID_AUTHORIZATION_FAILED for each partition: transactions are not supported, and
/// this code is final for every client.
fn refuse_all(responses: &mut [TopicProduceResponse]) {
    for row in responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
        *row = PartitionProduceResponse {
            error_code: ErrorCode::TransactionalIdAuthorizationFailed.code(),
            error_message: Some(StrBytes::from_static("Transactions are not supported by this broker.")),
            ..unanswered(row.index)
        };
    }
}

/// The batches of a request while it is decoded.
struct Intake<'w, 'a> {
    work: &'w Work<'a>,
    lookup: Lookup<'a>,
    acks_known: bool,
    entries: Vec<AppendEntry>,
    sent: Vec<Sent>,
    /// Whether a transactional batch was found.
    transactional: bool,
    /// Whether a batch did not fit the turn: the rest is decoded without checks.
    paused: bool,
    /// Indexes of the current topic, and partition.
    topics: usize,
    rows: usize,
    /// The last topic that was authorized, by index, and whether the client may write to it.
    may_write: Option<(usize, bool)>,
    /// Number of partitions so far, and its limit.
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

    /// Handles one partition's batch: to be appended, or refused.
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

    /// Checks one partition's batch, and returns it with the leader epoch of the partition.
    fn batch(&mut self, (name, id): (&str, TopicId), index: i32, records: Bytes) -> Result<(Ready, i32), Halt> {
        let by_id = self.work.head.version >= BY_ID_FROM;
        // A zero id in a version with ids names no topic, not even by the empty name.
        let topic = self.lookup.topic(name, id);
        // A client without write access does not learn whether a topic exists; an id is not confidential.
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
        // Kafka allows the client id `__admin_client` to repair offsets that way; here they would never be read.
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

/// A batch that was sent to the broker.
#[derive(Debug)]
struct Sent {
    /// Its place in the response.
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
                // A duplicate reports the append time of the original batch.
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

    /// The flush takes longer than the producer's timeout. The batches may still be written; an idempotent producer that retries
    /// then gets the original offsets.
    fn on_deadline(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        self.fill(work, |_, _| Some((ErrorCode::RequestTimedOut, None)));
        self.finish(work)
    }
}

impl Producing {
    /// Fills in the response for each batch, by `outcome` or the error it returns.
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
        // Without a response an error can only be signalled by closing the connection.
        let mut rows = self.response.responses.iter().flat_map(|topic| &topic.partition_responses);
        match rows.find(|row| row.error_code != ErrorCode::None.code()) {
            Some(row) => Step::Close(CloseReason::Produce {
                error: ErrorCode::from_code(row.error_code).unwrap_or(ErrorCode::UnknownServerError),
            }),
            None => Step::Silence,
        }
    }
}
