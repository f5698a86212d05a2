//! ListOffsets: offsets by position and by time.

use super::errors;
use super::topics::Lookup;
use super::work::{Pending, Step, Work};
use crate::codec::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use crate::codec::{DecodeError, ErrorCode, Message, Reader};
use polylogue_api::{FindOffset, FoundOffset, OffsetSpec, Reply, Request};
use polylogue_auth::Operation;
use polylogue_record::kafka::{BatchError, BatchHeader, RecordAt, first_at_or_after_timestamp, max_timestamp_record};
use polylogue_types::{Offset, TopicId};
use std::collections::BTreeSet;

/// Neither an offset nor a timestamp nor an epoch.
const NONE: i64 = -1;

/// The first version with leader epochs.
const EPOCH_FROM: i16 = 4;

/// Partitions that are asked for by time at once: each answer brings a whole batch along, and a request of few bytes names
/// thousands.
const BY_TIME_AT_ONCE_MAX: usize = 16;

/// What a timestamp in the request asks for.
enum Wanted {
    /// What the broker is asked for.
    Ask(OffsetSpec),
    /// There is no tiered storage: "none", without an error, as Kafka answers then.
    Nothing,
}

/// Timestamps below zero stand for positions; each came with a version of its own.
fn wanted(timestamp: i64, version: i16) -> Result<Wanted, ErrorCode> {
    Ok(match timestamp {
        0.. => Wanted::Ask(OffsetSpec::AtTimestamp(timestamp)),
        // latest: the high watermark, and, without transactions, the last stable offset
        -1 => Wanted::Ask(OffsetSpec::Latest),
        -2 => Wanted::Ask(OffsetSpec::Earliest),
        -3 if version >= 7 => Wanted::Ask(OffsetSpec::MaxTimestamp),
        // earliest that is on this node's disks
        -4 if version >= 8 => Wanted::Ask(OffsetSpec::Earliest),
        // latest that is tiered, earliest that waits to be tiered
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

/// The places of partitions that are named more than once; Kafka refuses each of them.
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
    /// The place of the answer.
    topic: usize,
    row: usize,
    question: FindOffset,
    /// For the highest timestamp: that of what was looked at before.
    highest: Option<Found>,
}

/// A message and the leader epoch of its entry.
#[derive(Clone, Copy, Debug)]
struct Found {
    at: RecordAt,
    leader_epoch: i32,
}

#[derive(Debug)]
struct Finding {
    response: ListOffsetsResponse,
    asked: Vec<Asked>,
    /// How many of them are answered, and how many of the next ones the broker was asked.
    answered: usize,
    waits_for: usize,
}

impl Finding {
    /// Asks for the next ones, as many as may be asked at once; answers when there are none left.
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

/// Where the message is that is meant.
enum Located {
    At(Found),
    /// There is none.
    Nowhere,
    /// Not surely in this entry: what it was found by may be deleted. Those from this offset on have to be looked at, for a message
    /// that is higher than this one where the highest is meant.
    Behind(Offset, Option<Found>),
}

impl Asked {
    /// The message that is meant, inside the entry that the broker found. Deleted messages are none: an offset below the log's start
    /// cannot be read.
    fn locate(&self, found: &FoundOffset, cap_bytes: usize) -> Result<Located, ErrorCode> {
        let FoundOffset { offset, log_start, leader_epoch, ref entry } = *found;
        let from = number(log_start);
        // More may have been deleted since it was found.
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
        // The header promises a record that is not there: start with the entry, so that nothing is passed over.
        Ok(Located::At(record.unwrap_or_else(|| position(header.max_timestamp))))
    }
}

/// The one with the higher timestamp, of two alike the first.
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
