//! Fetch: reads that wait for messages to come.
//!
//! ```text
//!   start ──▶ Read ──▶ enough, an error, or no time left ──▶ answer
//!              ▲  └──▶ too little ──▶ Watch ──▶ changed ──┬──▶ Read again (at once, or when the pause is over)
//!              └──────────────────────────────────────────┘
//!                                       └──▶ time is up ──▶ answer
//! ```
//!
//! While it waits, a fetch holds no message: what was read and was too little is read again.

use super::errors;
use super::fetch_response::{self, Data};
use super::fetch_session::{FetchSession, Place, SessionRef, SessionTopic, Want};
use super::topics::{Lookup, check_epoch, owned, partition_of};
use super::work::{Pending, Step, WaitsFor, Work};
use crate::codec::fetch::{FetchPartition, FetchRequest, FetchResponse};
use crate::codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_api::{Compression, ReadPart, ReadRequest, Reply, Request, WatchRequest};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::headers;
use polylogue_types::{Chunk, Offset, PartitionId, TopicId};
use std::sync::Arc;

/// The first version that names topics by id.
pub(super) const BY_ID_FROM: i16 = 13;
/// The first version whose clients know Zstandard.
const ZSTD_FROM: i16 = 10;
/// The first version whose clients know KAFKA_STORAGE_ERROR.
const STORAGE_ERROR_FROM: i16 = 6;
/// How long a fetch that was woken and found too little rests before it reads again: with a large `min_bytes` every small
/// append would wake it. Milliseconds.
const REST_MS: u64 = 5;

/// A topic in the response.
#[derive(Debug)]
pub(super) struct RowTopic {
    pub(super) name: StrBytes,
    pub(super) id: TopicId,
}

/// A partition in the response.
#[derive(Debug)]
pub(super) struct Row {
    /// Its topic's place among [`Fetching::topics`].
    pub(super) topic: usize,
    pub(super) partition: i32,
    pub(super) want: Want,
    /// Its place in the session, when the request goes on with one.
    pub(super) place: Option<Place>,
    pub(super) error: ErrorCode,
    /// What is read, unless something is wrong already.
    pub(super) read: Option<PartitionId>,
    pub(super) leader_epoch: i32,
    /// As they were read last; -1 before, and with an error.
    pub(super) high_watermark: i64,
    pub(super) log_start: i64,
}

impl Row {
    fn fail(&mut self, error: ErrorCode) {
        self.error = error;
        self.read = None;
        self.high_watermark = -1;
        self.log_start = -1;
    }
}

/// What becomes of the fetch session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Session {
    None,
    Begin,
    GoOn(i32),
}

/// What a fetch waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Reading,
    Watching,
    /// Until then it does not look. Monotonic milliseconds.
    Resting(u64),
}

/// A fetch on its way.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) session: Session,
    pub(super) topics: Vec<RowTopic>,
    pub(super) rows: Vec<Row>,
    pub(super) read_committed: bool,
    bytes_max: u32,
    bytes_min: u64,
    deadline_ms: u64,
    stage: Stage,
    /// When it read last, and how much that was.
    read_ms: u64,
    read_bytes: u64,
}

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = FetchRequest::decode(body, version)?;
    if !matches!(request.isolation_level, 0 | 1) {
        return Ok(refuse(work, ErrorCode::InvalidRequest));
    }
    let bytes_max = u32::try_from(request.max_bytes).unwrap_or(0).min(work.settings.fetch_bytes_max);
    let bytes_min = u32::try_from(request.min_bytes).unwrap_or(0).min(bytes_max);
    let wait_ms = u64::try_from(request.max_wait_ms).unwrap_or(0);
    let mut fetching = Fetching {
        session: Session::None,
        topics: Vec::with_capacity(request.topics.len()),
        rows: Vec::new(),
        read_committed: request.isolation_level == 1,
        bytes_max,
        bytes_min: u64::from(bytes_min),
        deadline_ms: work.now.monotonic_ms.saturating_add(wait_ms),
        stage: Stage::Reading,
        read_ms: 0,
        read_bytes: 0,
    };
    if let Err(error) = fetching.collect(work, &request) {
        return Ok(refuse(work, error));
    }
    let follower = request.replica_id >= 0 || request.replica_state.replica_id >= 0;
    fetching.resolve(work, follower);
    Ok(Box::new(fetching).read(work))
}

/// An error of the whole, without partitions.
fn refuse(work: &Work<'_>, error: ErrorCode) -> Step {
    work.answer(&FetchResponse { error_code: error.code(), ..FetchResponse::default() })
}

fn want(partition: &FetchPartition) -> Want {
    Want {
        offset: partition.fetch_offset,
        bytes_max: partition.partition_max_bytes,
        leader_epoch: partition.current_leader_epoch,
    }
}

fn session_topic(name: &str, id: TopicId, by_id: bool) -> SessionTopic {
    if by_id { SessionTopic::Id(id) } else { SessionTopic::Name(Arc::from(name)) }
}

/// Takes into a session what a request says of it.
fn update(session: &mut FetchSession, request: &FetchRequest, by_id: bool) {
    for named in &request.topics {
        let topic = session_topic(&named.topic, named.topic_id, by_id);
        named.partitions.iter().for_each(|p| _ = session.put(topic.clone(), p.partition, want(p)));
    }
    for forgotten in &request.forgotten_topics_data {
        let topic = session_topic(&forgotten.topic, forgotten.topic_id, by_id);
        forgotten.partitions.iter().for_each(|partition| session.forget(&topic, *partition));
    }
}

impl Fetching {
    /// Finds out which partitions are wanted: those of the request, or of its session.
    fn collect(&mut self, work: &mut Work<'_>, request: &FetchRequest) -> Result<(), ErrorCode> {
        let by_id = work.head.version >= BY_ID_FROM;
        let at = SessionRef { id: request.session_id, epoch: request.session_epoch };
        if at.is_full() {
            work.fetch_sessions.end(at.id);
            self.session = if at.begins() { Session::Begin } else { Session::None };
            self.rows_of_request(request);
            return Ok(());
        }
        let session = work.fetch_sessions.go_on(at, by_id, work.now.monotonic_ms)?;
        update(session, request, by_id);
        if session.len() == 0 {
            // nothing is left to go on with
            work.fetch_sessions.end(at.id);
            self.rows_of_request(request);
            return Ok(());
        }
        self.rows_of_session(session);
        self.session = Session::GoOn(at.id);
        work.fetch_sessions.settle(at.id, work.settings)
    }

    fn rows_of_request(&mut self, request: &FetchRequest) {
        for (t, topic) in request.topics.iter().enumerate() {
            self.topics.push(RowTopic { name: topic.topic.clone(), id: topic.topic_id });
            self.rows.reserve(topic.partitions.len());
            self.rows.extend(topic.partitions.iter().map(|p| Row::new(t, p.partition, want(p), None)));
        }
    }

    fn rows_of_session(&mut self, session: &FetchSession) {
        self.rows.reserve(session.len());
        let mut last: Option<&SessionTopic> = None;
        for (place, cached) in session.iter() {
            if last != Some(&cached.topic) {
                self.topics.push(match &cached.topic {
                    SessionTopic::Id(id) => RowTopic { name: StrBytes::new(), id: *id },
                    SessionTopic::Name(name) => RowTopic { name: owned(name), id: TopicId::ZERO },
                });
                last = Some(&cached.topic);
            }
            self.rows.push(Row::new(self.topics.len() - 1, cached.partition, cached.want, Some(place)));
        }
    }
}

impl Row {
    fn new(topic: usize, partition: i32, want: Want, place: Option<Place>) -> Row {
        Row {
            topic,
            partition,
            want,
            place,
            error: ErrorCode::None,
            read: None,
            leader_epoch: -1,
            high_watermark: -1,
            log_start: -1,
        }
    }
}

impl Fetching {
    /// Finds the partitions, and holds what the client knows of them against what is so.
    fn resolve(&mut self, work: &Work<'_>, follower: bool) {
        let version = work.head.version;
        let by_id = version >= BY_ID_FROM;
        let mut lookup = Lookup::new(work.catalog);
        for row in &mut self.rows {
            let Some(topic) = self.topics.get(row.topic) else { continue };
            // a zero id in a version that knows ids names nothing
            let found = match lookup.topic(&topic.name, topic.id) {
                Some(topic) => partition_of(topic, row.partition).map(|partition| (topic, partition)),
                None => Err(errors::unknown_topic(by_id)),
            };
            let error = match found {
                // there are no replicas beside this one yet
                Ok(_) if follower => ErrorCode::NotLeaderOrFollower,
                Ok((topic, partition)) => {
                    row.leader_epoch = partition.leader_epoch;
                    let zstd = matches!(topic.config.compression, Compression::Zstd(_));
                    match check_epoch(row.want.leader_epoch, partition.leader_epoch) {
                        Err(error) => error,
                        Ok(()) if row.want.offset < 0 => ErrorCode::OffsetOutOfRange,
                        Ok(()) if zstd && version < ZSTD_FROM => ErrorCode::UnsupportedCompressionType,
                        Ok(()) => {
                            row.read = Some(partition.id);
                            continue;
                        }
                    }
                }
                Err(error) => error,
            };
            row.fail(error);
        }
    }

    /// Reads all partitions that can be read.
    fn read(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let part = |row: &Row| {
            Some(ReadPart {
                partition: row.read?,
                offset: Offset(u64::try_from(row.want.offset).unwrap_or(0)),
                bytes_max: u32::try_from(row.want.bytes_max).unwrap_or(0),
            })
        };
        let parts: Vec<ReadPart> = self.rows.iter().filter_map(part).collect();
        if parts.is_empty() {
            return fetch_response::answer(*self, work, Data::default());
        }
        self.stage = Stage::Reading;
        let request = ReadRequest { parts, bytes_max: self.bytes_max, at_least_one: true };
        Step::Wait(work.ask(Request::Read(request)), self)
    }

    /// Waits until one of the partitions changes.
    fn watch(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let mark = |row: &Row| Some((row.read?, Offset(u64::try_from(row.high_watermark).unwrap_or(0))));
        let seen = self.rows.iter().filter_map(mark).collect();
        self.stage = Stage::Watching;
        Step::Wait(work.ask(Request::Watch(WatchRequest { seen })), self)
    }

    /// Whether clients should hear at once of what is wrong. An unknown topic can wait: its client would only ask again.
    fn is_urgent(&self) -> bool {
        let can_wait =
            |error| matches!(error, ErrorCode::None | ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId);
        self.rows.iter().any(|row| !can_wait(row.error))
    }

    /// Takes what was read into the rows; gives the messages, and whether one of the reads failed.
    fn take(&mut self, results: Vec<ReadResult>, version: i16) -> (Data, bool) {
        let by_id = version >= BY_ID_FROM;
        let mut data = Data::with_capacity(results.len());
        let mut failed = false;
        for (row, result) in self.rows.iter_mut().filter(|row| row.read.is_some()).zip(results) {
            let error = match result {
                Ok(read) if version < ZSTD_FROM && has_zstd(&read.chunks) => ErrorCode::UnsupportedCompressionType,
                Ok(read) => {
                    row.high_watermark = i64::try_from(read.high_watermark.0).unwrap_or(i64::MAX);
                    row.log_start = i64::try_from(read.log_start.0).unwrap_or(i64::MAX);
                    data.push(read.chunks);
                    continue;
                }
                Err(error) => match errors::of_read(error, by_id) {
                    ErrorCode::KafkaStorageError if version < STORAGE_ERROR_FROM => ErrorCode::NotLeaderOrFollower,
                    error => error,
                },
            };
            failed = true;
            row.fail(error);
        }
        (data, failed)
    }
}

type ReadResult = Result<polylogue_api::ReadData, polylogue_api::ReadError>;

/// Whether messages in memory are compressed with Zstandard. Those in files are not looked at: that would mean to read
/// them here.
fn has_zstd(chunks: &[Chunk]) -> bool {
    chunks.iter().any(|chunk| match chunk {
        Chunk::Bytes(bytes) => {
            headers(bytes).any(|batch| batch.is_ok_and(|batch| batch.header.compression() == Codec::Zstd.id()))
        }
        Chunk::File(_) => false,
    })
}

impl Pending for Fetching {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::Read(results) = reply else { return work.wrong_reply() };
        if results.len() != self.rows.iter().filter(|row| row.read.is_some()).count() {
            return work.wrong_reply();
        }
        let (data, failed) = self.take(results, work.head.version);
        self.read_ms = work.now.monotonic_ms;
        self.read_bytes = data.len();
        let in_time = work.now.monotonic_ms < self.deadline_ms;
        if failed || self.read_bytes >= self.bytes_min || !in_time || self.is_urgent() {
            return fetch_response::answer(*self, work, data);
        }
        self.watch(work)
    }

    fn on_changed(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let rested_ms = self.read_ms.saturating_add(REST_MS);
        if self.bytes_min > 1 && work.now.monotonic_ms < rested_ms {
            self.stage = Stage::Resting(rested_ms);
            return Step::Wait(work.token(), self);
        }
        self.read(work)
    }

    fn deadline_ms(&self) -> Option<u64> {
        match self.stage {
            Stage::Reading => None,
            Stage::Watching => Some(self.deadline_ms),
            Stage::Resting(until_ms) => Some(until_ms.min(self.deadline_ms)),
        }
    }

    /// Time is up, or the rest is over.
    fn on_deadline(self: Box<Self>, work: &mut Work<'_>) -> Step {
        // nothing had come before the watch, and the watch has seen nothing: there is nothing to read
        if self.stage == Stage::Watching && self.read_bytes == 0 {
            return fetch_response::answer(*self, work, Data::default());
        }
        self.read(work)
    }

    fn waits_for(&self) -> WaitsFor {
        match self.stage {
            Stage::Reading => WaitsFor::Reply,
            Stage::Watching => WaitsFor::Watch,
            Stage::Resting(_) => WaitsFor::Time,
        }
    }
}
