//! The response to a fetch, incremental within a fetch session.

use super::fetch::{BY_ID_FROM, Fetching, Row, RowTopic, Session};
use super::fetch_session::{FetchSession, SessionTopic};
use super::topics::node_id;
use super::work::{Step, Work};
use polylogue_kafka_codec::fetch::{
    FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use polylogue_kafka_codec::{ErrorCode, Records};
use polylogue_types::Chunk;

/// The first version with the current leader (KIP-951).
const LEADER_FROM: i16 = 16;

/// The messages of the rows that have any.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// By row number, ascending.
    chunks: Vec<(usize, Vec<Chunk>)>,
    len: u64,
}

impl Data {
    /// Adds the messages of a row, which must follow the rows added before.
    pub(super) fn push(&mut self, row: usize, chunks: Vec<Chunk>) {
        let len = chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
        if len > 0 {
            self.len += len;
            self.chunks.push((row, chunks));
        }
    }

    /// Total size. Bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

/// Answers a fetch; rows without an entry in `data` have no messages.
pub(super) fn answer(fetching: Fetching, work: &mut Work<'_>, data: Data) -> Step {
    let Fetching { session, topics, rows, read_committed, .. } = fetching;
    let mut response = FetchResponse { throttle_time_ms: work.take_fetched(data.len()), ..FetchResponse::default() };
    let leader = leader(work, &rows);
    let mut known = match session {
        Session::None => None,
        Session::Begin => begin(work, &topics, &rows),
        Session::GoOn(id) => match work.fetch_sessions.get_mut(id) {
            Some(known) => Some(known),
            None => {
                response.error_code = ErrorCode::FetchSessionIdNotFound.code();
                return work.answer(&response);
            }
        },
    };
    response.session_id = known.as_ref().map_or(0, |known| known.id());
    let mut data = data.chunks.into_iter().peekable();
    let mut last = None;
    for (number, row) in rows.iter().enumerate() {
        let chunks = data.next_if(|(of, _)| *of == number).map(|(_, chunks)| chunks);
        if session == Session::Begin || tell(known.as_deref_mut(), row, chunks.is_some()) {
            if last.replace(row.topic) != Some(row.topic) {
                response.responses.push(topic_row(topics.get(row.topic)));
            }
            let records = chunks.map_or_else(Records::new, Records::from);
            let mut reported = partition_row(row, records, read_committed);
            if let Some(leader) = leader.as_ref().filter(|_| has_moved(row)) {
                reported.current_leader =
                    LeaderIdAndEpoch { leader_id: leader.node_id, leader_epoch: row.leader_epoch };
            }
            if let Some(topic) = response.responses.last_mut() {
                topic.partitions.push(reported);
            }
        }
    }
    response.node_endpoints.extend(leader);
    work.answer(&response)
}

/// Answers a throttled fetch without messages, as `FetchSession.getThrottledResponse` does. An existing session continues; none is
/// created.
pub(super) fn answer_throttled(fetching: Fetching, work: &Work<'_>, throttle_time_ms: i32) -> Step {
    let session_id = match fetching.session {
        Session::GoOn(id) => id,
        Session::None | Session::Begin => 0,
    };
    work.answer(&FetchResponse { throttle_time_ms, session_id, ..FetchResponse::default() })
}

/// Whether the client has an outdated leader for the partition.
fn has_moved(row: &Row) -> bool {
    matches!(row.error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch)
}

/// Returns this node if one of the rows must name it as the leader.
fn leader(work: &Work<'_>, rows: &[Row]) -> Option<NodeEndpoint> {
    (work.head.version >= LEADER_FROM && rows.iter().any(has_moved)).then(|| NodeEndpoint {
        node_id: node_id(&work.catalog.cluster()),
        host: work.peer.listener.host.clone(),
        port: i32::from(work.peer.listener.port),
        rack: None,
    })
}

/// Creates a session with all requested partitions. `None` if the cache is full; the client then continues without.
fn begin<'a>(work: &'a mut Work<'_>, topics: &[RowTopic], rows: &[Row]) -> Option<&'a mut FetchSession> {
    let by_id = work.head.version >= BY_ID_FROM;
    let now_ms = work.now.monotonic_ms;
    let names: Vec<_> = topics.iter().map(|topic| SessionTopic::new(&topic.name, topic.id, by_id)).collect();
    let name = |row: &Row| names.get(row.topic).and_then(Option::as_ref);
    let partitions = rows.iter().filter(|row| name(row).is_some()).count();
    let session = work.fetch_sessions.begin(partitions, by_id, now_ms, work.settings)?;
    for row in rows {
        let Some(topic) = name(row) else { continue };
        let place = session.put(topic.clone(), row.partition, row.want);
        if let Some(cached) = session.get_mut(place) {
            cached.high_watermark = row.high_watermark;
            cached.log_start = row.log_start;
        }
    }
    Some(session)
}

/// Whether the response must include the partition; updates the session by what it includes. Without a session every partition is
/// included.
fn tell(session: Option<&mut FetchSession>, row: &Row, has_messages: bool) -> bool {
    let (Some(session), Some(place)) = (session, row.place) else { return true };
    let Some(cached) = session.get_mut(place) else { return false };
    let failed = row.error != ErrorCode::None;
    let changed = cached.high_watermark != row.high_watermark || cached.log_start != row.log_start;
    // -1 after an error, so that the next successful read is included.
    cached.high_watermark = row.high_watermark;
    cached.log_start = row.log_start;
    if has_messages {
        session.move_to_end(place);
    }
    let at_end = row.diverging.is_none() && row.read.is_some() && row.want.offset >= row.high_watermark;
    session.looked(place, at_end, failed);
    failed || changed || row.diverging.is_some() || has_messages
}

fn topic_row(topic: Option<&RowTopic>) -> FetchableTopicResponse {
    FetchableTopicResponse {
        topic: topic.map(|topic| topic.name.clone()).unwrap_or_default(),
        topic_id: topic.map(|topic| topic.id).unwrap_or_default(),
        partitions: Vec::with_capacity(1),
    }
}

fn partition_row(row: &Row, records: Records, read_committed: bool) -> PartitionData {
    let found = row.error == ErrorCode::None;
    PartitionData {
        partition_index: row.partition,
        error_code: row.error.code(),
        high_watermark: row.high_watermark,
        // Without transactions the last stable offset is the high watermark.
        last_stable_offset: row.high_watermark,
        log_start_offset: row.log_start,
        diverging_epoch: row.diverging.clone().unwrap_or_default(),
        // Null for clients with isolation level read_uncommitted.
        aborted_transactions: (read_committed && found).then(Vec::new),
        preferred_read_replica: -1,
        records: Some(records),
        ..PartitionData::default()
    }
}
