//! Fetch: reads, with a long poll for new messages.
//!
//! ```text
//!   start ──▶ Read ──▶ min_bytes, an error, or a deadline ──▶ response
//!              ▲  └──▶ less ──▶ Watch ──▶ changed ──┬──▶ Read again (at once, or after a pause)
//!              └────────────────────────────────────┘
//!                                   └──▶ deadline ──▶ response
//! ```
//!
//! In a fetch session with many partitions only those with possible changes are read ([`super::fetch_looks`]): each Read follows a Follow
//! request, by which the broker reports changed partitions, and the fetch then waits for the next change in the session.
//!
//! If the client sends the epoch of its last message (KIP-595), each Read follows an EpochEnds request, which detects a log that has
//! diverged.
//!
//! A waiting fetch holds no messages: what was read and was too little is read again.

use super::errors;
use super::fetch_response::{self, Data};
use super::fetch_session::{Cached, FetchSession, SessionRef, SessionTopic, Want};
use super::topics::{Lookup, check_epoch, owned, partition_of};
use super::turns::Place;
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::{
    EpochEnd, EpochEndQuery, FollowRequest, ReadData, ReadError, ReadPart, ReadRequest, Reply, Request, TopicInfo,
    WatchRequest,
};
use polylogue_auth::Operation;
use polylogue_kafka_codec::fetch::{EpochEndOffset, FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::{Offset, PartitionId, TopicId};

/// The first version that identifies topics by id.
pub(super) const BY_ID_FROM: i16 = 13;
/// The first version with a diverging epoch in the response.
const DIVERGING_FROM: i16 = 12;
/// The first version whose clients support KAFKA_STORAGE_ERROR.
const STORAGE_ERROR_FROM: i16 = 6;
/// The maximum wait of a fetch. While it waits its connection is not idle: without a limit, a client that has disappeared
/// without closing its connection would hold it and the watch for 25 days. Far above what clients request (0.5 s), and
/// above their request timeout (30 s). Milliseconds.
const WAIT_MS_MAX: u64 = 5 * 60 * 1_000;
/// Pause before a fetch that was woken and found too little reads again: with a large `min_bytes` every small append would
/// wake it. Milliseconds.
const REST_MS: u64 = 5;

/// The broker's memory for each partition that a fetch waits for: its place in the watch and in the table of watches. Bytes.
const WATCHED_BYTES: usize = 96;

/// A topic in the response.
#[derive(Clone, Debug)]
pub(super) struct RowTopic {
    pub(super) name: StrBytes,
    pub(super) id: TopicId,
}

/// A partition in the response.
#[derive(Debug)]
pub(super) struct Row {
    /// Index of its topic in [`Fetching::topics`].
    pub(super) topic: usize,
    pub(super) partition: i32,
    pub(super) want: Want,
    /// Its index in the fetch session, if the request continues one.
    pub(super) place: Option<Place>,
    pub(super) error: ErrorCode,
    /// The partition to read; `None` after an error.
    pub(super) read: Option<PartitionId>,
    pub(super) leader_epoch: i32,
    /// Where the client's log and this one diverge, if they do; then no messages are returned.
    pub(super) diverging: Option<EpochEndOffset>,
    /// Of the last read; -1 before, and with an error.
    pub(super) high_watermark: i64,
    pub(super) log_start: i64,
}

impl Row {
    /// The epoch of the client's last message, if the client sent it.
    fn knows_epoch(&self) -> Option<i32> {
        (self.want.last_epoch >= 0).then_some(self.want.last_epoch)
    }

    fn is_before(&self, offset: Offset) -> bool {
        u64::try_from(self.want.offset).is_ok_and(|wanted| wanted < offset.0)
    }

    /// Records the offsets of a read.
    fn mark(&mut self, high_watermark: Offset, log_start: Offset) {
        self.high_watermark = i64::try_from(high_watermark.0).unwrap_or(i64::MAX);
        self.log_start = i64::try_from(log_start.0).unwrap_or(i64::MAX);
    }

    fn fail(&mut self, error: ErrorCode) {
        self.error = error;
        self.read = None;
        self.diverging = None;
        self.high_watermark = -1;
        self.log_start = -1;
    }
}

/// How the fetch session continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Session {
    None,
    Begin,
    GoOn(i32),
}

/// What a fetch waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// For the changed partitions.
    Following,
    /// For the ends of epochs, before it reads.
    Comparing,
    Reading,
    Watching,
    /// Pauses until then. Monotonic milliseconds.
    Resting(u64),
}

/// A fetch in progress.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) session: Session,
    pub(super) topics: Vec<RowTopic>,
    pub(super) rows: Vec<Row>,
    pub(super) read_committed: bool,
    bytes_max: u32,
    bytes_min: u64,
    deadline_ms: u64,
    /// Whether the client sent the epoch of its last message for any partition.
    knows_epochs: bool,
    /// Whether an error must be returned at once. An unknown topic may wait: its client would only retry.
    urgent: bool,
    /// Whether it claims to be a follower; there are none.
    follower: bool,
    /// Whether it reads only the due partitions of its session.
    looks_at_due: bool,
    stage: Stage,
    /// Time and size of the last read.
    read_ms: u64,
    read_bytes: u64,
    /// Size of the request's frame, which holds the topic names. Bytes.
    frame_bytes: usize,
}

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let frame_bytes = body.remaining();
    let request = FetchRequest::decode(body, version)?;
    if !matches!(request.isolation_level, 0 | 1) {
        return Ok(refuse(work, ErrorCode::InvalidRequest));
    }
    let bytes_max = u32::try_from(request.max_bytes).unwrap_or(0).min(work.settings.fetch_bytes_max);
    let bytes_max = work.fetch_bytes_max(bytes_max);
    let bytes_min = u32::try_from(request.min_bytes).unwrap_or(0).min(bytes_max);
    let wait_ms = u64::try_from(request.max_wait_ms).unwrap_or(0).min(WAIT_MS_MAX);
    let mut fetching = Fetching {
        session: Session::None,
        topics: Vec::with_capacity(request.topics.len()),
        rows: Vec::new(),
        read_committed: request.isolation_level == 1,
        bytes_max,
        bytes_min: u64::from(bytes_min),
        deadline_ms: work.now.monotonic_ms.saturating_add(wait_ms),
        knows_epochs: false,
        urgent: false,
        follower: request.replica_id >= 0 || request.replica_state.replica_id >= 0,
        looks_at_due: false,
        stage: Stage::Reading,
        read_ms: 0,
        read_bytes: 0,
        frame_bytes,
    };
    let collected = fetching.collect(work, &request);
    for ended in work.fetch_sessions.take_unfollowed() {
        work.ask(Request::Unfollow(set_of(ended)));
    }
    if let Err(error) = collected {
        return Ok(refuse(work, error));
    }
    let throttle_time_ms = work.fetch_debt();
    if throttle_time_ms > 0 {
        return Ok(fetch_response::answer_throttled(fetching, work, throttle_time_ms));
    }
    fetching.resolve(work);
    Ok(Box::new(fetching).look(work))
}

/// The broker's id for a session's followed set.
fn set_of(session_id: i32) -> u64 {
    u64::from(session_id.unsigned_abs())
}

/// Returns a response with a top-level error.
fn refuse(work: &Work<'_>, error: ErrorCode) -> Step {
    work.answer(&FetchResponse { error_code: error.code(), ..FetchResponse::default() })
}

fn want(partition: &FetchPartition) -> Want {
    Want {
        offset: partition.fetch_offset,
        bytes_max: partition.partition_max_bytes,
        leader_epoch: partition.current_leader_epoch,
        last_epoch: partition.last_fetched_epoch,
    }
}

/// Updates a session from a request. Topics with invalid names are left out.
fn update(session: &mut FetchSession, request: &FetchRequest, by_id: bool) {
    for named in &request.topics {
        let Some(topic) = SessionTopic::new(&named.topic, named.topic_id, by_id) else { continue };
        named.partitions.iter().for_each(|p| _ = session.put(topic.clone(), p.partition, want(p)));
    }
    for forgotten in &request.forgotten_topics_data {
        let Some(topic) = SessionTopic::new(&forgotten.topic, forgotten.topic_id, by_id) else { continue };
        forgotten.partitions.iter().for_each(|partition| session.forget(&topic, *partition));
    }
}

impl Fetching {
    /// Collects the wanted partitions: those of the request, or of its session.
    fn collect(&mut self, work: &mut Work<'_>, request: &FetchRequest) -> Result<(), ErrorCode> {
        let by_id = work.head.version >= BY_ID_FROM;
        let at = SessionRef { id: request.session_id, epoch: request.session_epoch };
        if at.is_full() {
            work.fetch_sessions.end(at.id);
            self.session = if at.begins() { Session::Begin } else { Session::None };
            self.rows_of_request(request, |_| true);
            return Ok(());
        }
        // Read before any lookup in the catalog.
        let version = work.catalog.version();
        let session = work.fetch_sessions.go_on(at, by_id, work.now.monotonic_ms)?;
        update(session, request, by_id);
        if session.len() == 0 {
            // The session cannot be continued.
            work.fetch_sessions.end(at.id);
            self.rows_of_request(request, |_| true);
            return Ok(());
        }
        self.looks_at_due = session.looks_at_due(version);
        if self.looks_at_due {
            self.rows_of_session(session.due());
        } else {
            self.rows_of_session(session.iter());
        }
        // Answered once, and not stored in the session.
        self.rows_of_request(request, |topic| SessionTopic::new(&topic.topic, topic.topic_id, by_id).is_none());
        self.session = Session::GoOn(at.id);
        work.fetch_sessions.settle(at.id, work.settings)
    }

    fn rows_of_request(&mut self, request: &FetchRequest, wanted: impl Fn(&FetchTopic) -> bool) {
        for topic in request.topics.iter().filter(|topic| wanted(topic)) {
            let t = self.topics.len();
            self.topics.push(RowTopic { name: topic.topic.clone(), id: topic.topic_id });
            self.rows.reserve(topic.partitions.len());
            self.rows.extend(topic.partitions.iter().map(|p| Row::new(t, p.partition, want(p), None)));
        }
    }

    fn rows_of_session<'s>(&mut self, partitions: impl Iterator<Item = (Place, &'s Cached)>) {
        self.rows.reserve(partitions.size_hint().0);
        let mut last: Option<&SessionTopic> = None;
        for (place, cached) in partitions {
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
    /// Resolves the partition.
    fn resolve(&mut self, topic: &TopicInfo, follower: bool) -> Result<(), ErrorCode> {
        let partition = partition_of(topic, self.partition)?;
        if follower {
            // There are no other replicas.
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        self.leader_epoch = partition.leader_epoch;
        check_epoch(self.want.leader_epoch, partition.leader_epoch)?;
        if self.want.offset < 0 {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        self.read = Some(partition.id);
        Ok(())
    }

    fn new(topic: usize, partition: i32, want: Want, place: Option<Place>) -> Row {
        Row {
            topic,
            partition,
            want,
            place,
            error: ErrorCode::None,
            read: None,
            leader_epoch: -1,
            diverging: None,
            high_watermark: -1,
            log_start: -1,
        }
    }
}

impl Fetching {
    /// Resolves the partitions, and compares the client's leader epochs with the current ones.
    fn resolve(&mut self, work: &Work<'_>) {
        let follower = self.follower;
        let Fetching { topics, rows, knows_epochs, urgent, .. } = self;
        let by_id = work.head.version >= BY_ID_FROM;
        let mut lookup = Lookup::new(work.catalog);
        for rows in rows.chunk_by_mut(|a, b| a.topic == b.topic) {
            let Some(topic) = rows.first().and_then(|row| topics.get(row.topic)) else { continue };
            // A zero id in a version with ids names no topic.
            let found = lookup.topic(&topic.name, topic.id);
            // Followers need the rights of a broker. A client without read access does not learn whether the topic exists.
            let may_read = match found {
                _ if follower => work.may_cluster(Operation::ClusterAction),
                Some(found) => work.may_topic(Operation::Read, &found.name),
                None => by_id || work.may_topic(Operation::Read, &topic.name),
            };
            let topic = match found {
                _ if !may_read => Err(ErrorCode::TopicAuthorizationFailed),
                Some(found) => Ok(found),
                None => Err(errors::unknown_topic(by_id)),
            };
            for row in rows {
                *knows_epochs |= row.knows_epoch().is_some();
                if let Err(error) = topic.and_then(|topic| row.resolve(topic, follower)) {
                    *urgent |= !can_wait(error);
                    row.fail(error);
                }
            }
        }
    }

    /// Reads the partitions; if only those that are due, requests the changes first.
    fn look(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let Some((id, session)) = self.followed(work) else { return self.compare(work) };
        let followed = self.rows.iter().filter_map(|row| Some((row.place?, row.read?)));
        let add = followed.filter(|(place, partition)| session.follow(*place, *partition));
        let add = add.map(|(_, partition)| partition).collect();
        let request = FollowRequest { set: set_of(id), add, remove: session.take_left() };
        self.stage = Stage::Following;
        Step::Wait(work.ask(Request::Follow(request)), self)
    }

    /// The session whose due partitions are read.
    fn followed<'w>(&self, work: &'w mut Work<'_>) -> Option<(i32, &'w mut FetchSession)> {
        match self.session {
            Session::GoOn(id) if self.looks_at_due => Some((id, work.fetch_sessions.get_mut(id)?)),
            _ => None,
        }
    }

    /// Marks changed partitions as due, in addition to those that are.
    fn take_changed(&mut self, work: &mut Work<'_>, changed: &[PartitionId]) {
        let Some((_, session)) = self.followed(work) else { return };
        let more = changed.iter().fold(false, |more, partition| session.changed(*partition) | more);
        if !more {
            return;
        }
        let (topics, rows) = (std::mem::take(&mut self.topics), std::mem::take(&mut self.rows));
        self.rows_of_session(session.due());
        // Partitions that are not in the session.
        for (topic, row) in
            rows.into_iter().filter(|row| row.place.is_none()).filter_map(|row| Some((topics.get(row.topic)?, row)))
        {
            self.topics.push(topic.clone());
            self.rows.push(Row { topic: self.topics.len() - 1, ..row });
        }
        self.resolve(work);
    }

    /// Requests the ends of the client's last fetched epochs, then reads; at once if there are none.
    fn compare(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        if !self.knows_epochs || work.head.version < DIVERGING_FROM {
            return self.read(work);
        }
        let query = |row: &Row| Some(EpochEndQuery { partition: row.read?, epoch: row.knows_epoch()? });
        let queries: Vec<_> = self.rows.iter().filter_map(query).collect();
        if queries.is_empty() {
            return self.read(work);
        }
        self.stage = Stage::Comparing;
        Step::Wait(work.ask(Request::EpochEnds(queries)), self)
    }

    /// Compares the epochs' ends, as `Partition.readRecords` does: a client whose epoch ends elsewhere, or extends further than
    /// here, must truncate its log. Returns false if the reply does not match.
    fn take_epochs(&mut self, ends: Vec<Result<EpochEnd, ReadError>>, by_id: bool) -> bool {
        let asked = |row: &&mut Row| row.read.is_some() && row.knows_epoch().is_some();
        if ends.len() != self.rows.iter_mut().filter(asked).count() {
            return false;
        }
        for (row, end) in self.rows.iter_mut().filter(asked).zip(ends) {
            let error = match end {
                Ok(EpochEnd { epoch, end: Some(Offset(end)) }) => {
                    let end_offset = i64::try_from(end).unwrap_or(i64::MAX);
                    let diverges = epoch < row.want.last_epoch || end_offset < row.want.offset;
                    row.diverging = diverges.then_some(EpochEndOffset { epoch, end_offset });
                    self.urgent |= diverges;
                    continue;
                }
                Ok(EpochEnd { end: None, .. }) => ErrorCode::OffsetOutOfRange,
                Err(error) => errors::of_read(error, by_id),
            };
            self.urgent |= !can_wait(error);
            row.fail(error);
        }
        true
    }

    /// Reads all readable partitions.
    fn read(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let part = |row: &Row| {
            Some(ReadPart {
                partition: row.read?,
                offset: Offset(u64::try_from(row.want.offset).unwrap_or(0)),
                bytes_max: if row.diverging.is_some() { 0 } else { u32::try_from(row.want.bytes_max).unwrap_or(0) },
            })
        };
        let mut parts = Vec::with_capacity(self.rows.len());
        parts.extend(self.rows.iter().filter_map(part));
        if parts.is_empty() {
            self.read_bytes = 0;
            // Partitions that are not due have nothing to return yet.
            let waits = self.looks_at_due && !self.urgent && self.bytes_min > 0;
            if waits && work.now.monotonic_ms < self.deadline_ms {
                return self.watch(work);
            }
            return fetch_response::answer(*self, work, Data::default());
        }
        self.stage = Stage::Reading;
        let request = ReadRequest { parts, bytes_max: self.bytes_max, at_least_one: true };
        Step::Wait(work.ask(Request::Read(request)), self)
    }

    /// Waits until one of the partitions changes.
    fn watch(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let followed = self.followed(work).map(|(id, _)| set_of(id));
        let mark = |row: &Row| Some((row.read?, Offset(u64::try_from(row.high_watermark).unwrap_or(0))));
        let mut seen = Vec::new();
        if followed.is_none() {
            seen.reserve_exact(self.rows.len());
            seen.extend(self.rows.iter().filter_map(mark));
        }
        self.stage = Stage::Watching;
        Step::Wait(work.ask(Request::Watch(WatchRequest { seen, followed })), self)
    }

    /// Fills the rows from the results; returns the messages, and whether any read failed. `None` if the results do not
    /// match.
    fn take(&mut self, results: Vec<ReadResult>, version: i16) -> Option<(Data, bool)> {
        let by_id = version >= BY_ID_FROM;
        let mut data = Data::default();
        let mut failed = false;
        let mut results = results.into_iter();
        for (number, row) in self.rows.iter_mut().enumerate().filter(|(_, row)| row.read.is_some()) {
            let error = match results.next()? {
                Ok(read) => {
                    row.mark(read.high_watermark, read.log_start);
                    if row.diverging.is_none() && !read.chunks.is_empty() {
                        data.push(number, read.chunks);
                    }
                    continue;
                }
                // Beyond the end: the client gets OFFSET_OUT_OF_RANGE.
                Err(ReadError::OutOfRange { log_start, high_watermark })
                    if row.diverging.is_some() && !row.is_before(log_start) =>
                {
                    row.mark(high_watermark, log_start);
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
        results.next().is_none().then_some((data, failed))
    }
}

/// Whether an error may wait for the fetch's deadline.
fn can_wait(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::None | ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId)
}

type ReadResult = Result<ReadData, ReadError>;

impl Pending for Fetching {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let results = match (self.stage, reply) {
            (Stage::Following, Reply::Follow(changed)) => {
                self.take_changed(work, &changed);
                return self.compare(work);
            }
            (Stage::Comparing, Reply::EpochEnds(ends)) => {
                return if self.take_epochs(ends, work.head.version >= BY_ID_FROM) {
                    self.read(work)
                } else {
                    work.wrong_reply()
                };
            }
            (Stage::Reading, Reply::Read(results)) => results,
            _ => return work.wrong_reply(),
        };
        let Some((data, failed)) = self.take(results, work.head.version) else { return work.wrong_reply() };
        self.read_ms = work.now.monotonic_ms;
        self.read_bytes = data.len();
        let in_time = work.now.monotonic_ms < self.deadline_ms;
        if failed || self.read_bytes >= self.bytes_min || !in_time || self.urgent {
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
        self.look(work)
    }

    fn deadline_ms(&self) -> Option<u64> {
        match self.stage {
            Stage::Following | Stage::Comparing | Stage::Reading => None,
            Stage::Watching => Some(self.deadline_ms),
            Stage::Resting(until_ms) => Some(until_ms.min(self.deadline_ms)),
        }
    }

    /// The fetch's deadline or the pause has passed.
    fn on_deadline(self: Box<Self>, work: &mut Work<'_>) -> Step {
        // Nothing was read before the watch, and the watch has not fired: there is nothing new.
        if self.stage == Stage::Watching && self.read_bytes == 0 {
            return fetch_response::answer(*self, work, Data::default());
        }
        self.look(work)
    }

    fn waits_for(&self) -> WaitsFor {
        match self.stage {
            Stage::Following | Stage::Comparing | Stage::Reading => WaitsFor::Reply,
            Stage::Watching => WaitsFor::Watch,
            Stage::Resting(_) => WaitsFor::Time,
        }
    }

    fn memory(&self) -> Option<usize> {
        let rows = self.rows.capacity() * size_of::<Row>() + self.rows.len() * WATCHED_BYTES;
        Some(size_of::<Fetching>() + self.frame_bytes + self.topics.capacity() * size_of::<RowTopic>() + rows)
    }
}
