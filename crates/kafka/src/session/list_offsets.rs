//! ListOffsets: offsets by position and by timestamp.

use super::errors;
use super::topics::Lookup;
use super::work::{Pending, Step, Work};
use polylogue_api::{FindOffset, FoundOffset, OffsetSpec, Reply, Request};
use polylogue_auth::Operation;
use polylogue_kafka_codec::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader};
use polylogue_record::kafka::{BatchError, BatchHeader, RecordAt, first_at_or_after_timestamp, max_timestamp_record};
use polylogue_types::{Offset, TopicId};
use std::collections::BTreeSet;

/// A missing offset, timestamp or epoch.
const NONE: i64 = -1;

/// The first version with leader epochs.
const EPOCH_FROM: i16 = 4;

/// The maximum number of concurrent lookups by timestamp: each reply contains a whole batch, and a request of few bytes can name
/// thousands of partitions.
const BY_TIME_AT_ONCE_MAX: usize = 16;

/// The meaning of a timestamp in the request.
enum Wanted {
    /// A lookup by the broker.
    Ask(OffsetSpec),
    /// Tiered storage is not supported: no offset and no error, as in Kafka.
    Nothing,
}

/// Maps a timestamp. Negative ones are positions, each introduced by its own version.
fn wanted(timestamp: i64, version: i16) -> Result<Wanted, ErrorCode> {
    Ok(match timestamp {
        0.. => Wanted::Ask(OffsetSpec::AtTimestamp(timestamp)),
        // LATEST: the high watermark, which is also the last stable offset.
        -1 => Wanted::Ask(OffsetSpec::Latest),
        -2 => Wanted::Ask(OffsetSpec::Earliest),
        -3 if version >= 7 => Wanted::Ask(OffsetSpec::MaxTimestamp),
        // EARLIEST_LOCAL.
        -4 if version >= 8 => Wanted::Ask(OffsetSpec::Earliest),
        // LATEST_TIERED, EARLIEST_PENDING_UPLOAD.
        -5 if version >= 9 => Wanted::Nothing,
        -6 if version >= 11 => Wanted::Nothing,
        _ => return Err(ErrorCode::UnsupportedVersion),
    })
}

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = ListOffsetsRequest::decode(body, version)?;
    let mut lookup = Lookup::new(work.catalog);
    let repeated = repeated(&request);
    let mut asked = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (t, topic) in request.topics.into_iter().enumerate() {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        let may_see = work.may_topic(Operation::Describe, &topic.name);
        for (p, partition) in topic.partitions.iter().enumerate() {
            let key = (&*topic.name, partition.partition_index);
            let question = if !may_see {
                Err(ErrorCode::TopicAuthorizationFailed)
            } else if repeated.contains(&(t, p)) {
                Err(ErrorCode::InvalidRequest)
            } else {
                wanted(partition.timestamp, version).and_then(|wanted| {
                    let found =
                        lookup.partition((key.0, TopicId::ZERO), key.1, partition.current_leader_epoch, false)?;
                    Ok((wanted, found.1.id))
                })
            };
            let error = match question {
                Ok((Wanted::Ask(at), partition)) => {
                    let question = FindOffset { partition, at, from: Offset(0) };
                    asked.push(Asked { topic: t, row: p, question, highest: None });
                    ErrorCode::None
                }
                Ok((Wanted::Nothing, _)) => ErrorCode::None,
                Err(error) => error,
            };
            partitions.push(ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                error_code: error.code(),
                timestamp: NONE,
                offset: NONE,
                leader_epoch: -1,
            });
        }
        topics.push(ListOffsetsTopicResponse { name: topic.name, partitions });
    }
    let response = ListOffsetsResponse { topics, ..ListOffsetsResponse::default() };
    Ok(Box::new(Finding { response, asked, answered: 0, waits_for: 0 }).go_on(work))
}

/// Returns the places of repeated partitions, which Kafka refuses.
fn repeated(request: &ListOffsetsRequest) -> BTreeSet<(usize, usize)> {
    let mut all: Vec<_> = Vec::new();
    for (t, topic) in request.topics.iter().enumerate() {
        all.extend(topic.partitions.iter().enumerate().map(|(p, row)| (&*topic.name, row.partition_index, (t, p))));
    }
    all.sort_unstable();
    all.windows(2)
        .filter_map(|pair| match pair {
            [a, b] if (a.0, a.1) == (b.0, b.1) => Some([a.2, b.2]),
            _ => None,
        })
        .flatten()
        .collect()
}

#[derive(Debug)]
struct Asked {
    /// The place in the response.
    topic: usize,
    row: usize,
    question: FindOffset,
    /// For the maximum timestamp: the best candidate so far.
    highest: Option<Found>,
}

/// A message, with the leader epoch of its entry.
#[derive(Clone, Copy, Debug)]
struct Found {
    at: RecordAt,
    leader_epoch: i32,
}

#[derive(Debug)]
struct Finding {
    response: ListOffsetsResponse,
    asked: Vec<Asked>,
    /// Number of partitions answered, and of those in the current request to the broker.
    answered: usize,
    waits_for: usize,
}

impl Finding {
    /// Requests the next partitions, up to the limit; answers when none are left.
    fn go_on(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let by_time = |asked: &Asked| !matches!(asked.question.at, OffsetSpec::Earliest | OffsetSpec::Latest);
        let mut room = BY_TIME_AT_ONCE_MAX;
        let fits = |asked: &&Asked| {
            let fits = room > 0 || !by_time(asked);
            room = room.saturating_sub(usize::from(by_time(asked)));
            fits
        };
        let left = self.asked.iter().skip(self.answered);
        let questions: Vec<FindOffset> = left.take_while(fits).map(|asked| asked.question).collect();
        if questions.is_empty() {
            return work.answer(&self.response);
        }
        self.waits_for = questions.len();
        Step::Wait(work.ask(Request::FindOffsets(questions)), self)
    }
}

impl Pending for Finding {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::FindOffsets(results) = reply else { return work.wrong_reply() };
        if results.len() != self.waits_for {
            return work.wrong_reply();
        }
        let mut again = Vec::new();
        for (result, asked) in results.into_iter().zip(self.asked.iter().skip(self.answered)) {
            let row = self.response.topics.get_mut(asked.topic).and_then(|t| t.partitions.get_mut(asked.row));
            let Some(row) = row else { continue };
            let located = result
                .map_err(|error| errors::of_read(error, false))
                .and_then(|found| asked.locate(&found, work.settings.decompressed_bytes_max));
            match located {
                Ok(Located::At(Found { at, leader_epoch })) => {
                    row.timestamp = at.timestamp;
                    row.offset = at.offset;
                    if work.head.version >= EPOCH_FROM {
                        row.leader_epoch = leader_epoch;
                    }
                }
                Ok(Located::Behind(from, highest)) => {
                    again.push(Asked { question: FindOffset { from, ..asked.question }, highest, ..*asked });
                }
                Ok(Located::Nowhere) => {}
                Err(error) => row.error_code = error.code(),
            }
        }
        self.answered += self.waits_for;
        self.asked.append(&mut again);
        self.go_on(work)
    }
}

/// The result of a search in an entry.
enum Located {
    At(Found),
    /// No such message.
    Nowhere,
    /// Not in this entry: the message by which it was found may be deleted. The search continues at this offset; for the maximum timestamp, for a
    /// message with a higher one than this candidate.
    Behind(Offset, Option<Found>),
}

impl Asked {
    /// Finds the message in the entry that the broker returned. Deleted messages are skipped: an offset below the log start cannot be
    /// read.
    fn locate(&self, found: &FoundOffset, cap_bytes: usize) -> Result<Located, ErrorCode> {
        let FoundOffset { offset, log_start, leader_epoch, ref entry } = *found;
        let from = number(log_start);
        // More may have been deleted since the candidate was found.
        let highest = self.highest.filter(|highest| highest.at.offset >= from);
        let Some(base) = offset else { return Ok(highest.map_or(Located::Nowhere, Located::At)) };
        let position = |timestamp| Found { at: RecordAt { offset: number(base), timestamp }, leader_epoch };
        let Some(entry) = entry else { return Ok(Located::At(position(NONE))) };
        let is_cut = base < log_start;
        let unreadable = |_: BatchError| ErrorCode::CorruptMessage;
        let header = BatchHeader::parse(entry).map_err(unreadable)?;
        let (record, is_sure) = match self.question.at {
            OffsetSpec::Earliest | OffsetSpec::Latest => return Ok(Located::At(position(NONE))),
            OffsetSpec::AtTimestamp(time) => {
                let record = first_at_or_after_timestamp(entry, time, from, cap_bytes).map_err(unreadable)?;
                (record.map(|at| Found { at, leader_epoch }), record.is_some())
            }
            OffsetSpec::MaxTimestamp => {
                let record = max_timestamp_record(entry, from, cap_bytes).map_err(unreadable)?;
                let record = record.map(|at| Found { at, leader_epoch });
                let highest = higher(highest, record);
                (highest, highest.is_some_and(|highest| highest.at.timestamp >= header.max_timestamp))
            }
        };
        if is_cut && !is_sure {
            let next = u64::try_from(header.last_offset()).unwrap_or_default().saturating_add(1);
            return Ok(Located::Behind(Offset(next).max(log_start.plus(1)), record));
        }
        // The header promises a record that does not exist: start with the entry, so that nothing is skipped.
        Ok(Located::At(record.unwrap_or_else(|| position(header.max_timestamp))))
    }
}

/// Returns the one with the higher timestamp, the first of two equal ones.
fn higher(first: Option<Found>, second: Option<Found>) -> Option<Found> {
    match (first, second) {
        (Some(a), Some(b)) if b.at.timestamp > a.at.timestamp => Some(b),
        (first, second) => first.or(second),
    }
}

fn number(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_have_their_versions() {
        for (timestamp, from) in [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)] {
            for version in 1..=11 {
                assert_eq!(wanted(timestamp, version).is_ok(), version >= from, "{timestamp} in version {version}");
            }
        }
        assert!(wanted(-7, 11).is_err());
        assert!(wanted(i64::MIN, 11).is_err());
        assert!(wanted(0, 1).is_ok());
    }
}
