//! OffsetForLeaderEpoch: the end of an epoch, by which consumers detect log truncation (KIP-320).

use super::errors;
use super::topics::Lookup;
use super::work::{Pending, Step, Work};
use polylogue_api::{EpochEnd, EpochEndQuery, Reply, Request};
use polylogue_auth::Operation;
use polylogue_kafka_codec::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader};
use polylogue_types::{Offset, TopicId};

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = OffsetForLeaderEpochRequest::decode(body, work.head.version)?;
    let mut lookup = Lookup::new(work.catalog);
    let mut queries = Vec::new();
    let mut asked = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (t, topic) in request.topics.into_iter().enumerate() {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        let may_see = work.may_topic(Operation::Describe, &topic.topic);
        for (p, wanted) in topic.partitions.iter().enumerate() {
            let found = match may_see {
                true => lookup.partition(
                    (&topic.topic, TopicId::ZERO),
                    wanted.partition,
                    wanted.current_leader_epoch,
                    false,
                ),
                false => Err(ErrorCode::TopicAuthorizationFailed),
            };
            let error_code = match found {
                Ok((_, partition)) => {
                    queries.push(EpochEndQuery { partition: partition.id, epoch: wanted.leader_epoch });
                    asked.push((t, p));
                    0
                }
                Err(error) => error.code(),
            };
            partitions.push(EpochEndOffset {
                error_code,
                partition: wanted.partition,
                leader_epoch: -1,
                end_offset: -1,
            });
        }
        topics.push(OffsetForLeaderTopicResult { topic: topic.topic, partitions });
    }
    let response = OffsetForLeaderEpochResponse { topics, ..OffsetForLeaderEpochResponse::default() };
    if queries.is_empty() {
        return Ok(work.answer(&response));
    }
    Ok(Step::Wait(work.ask(Request::EpochEnds(queries)), Box::new(Asking { response, asked })))
}

#[derive(Debug)]
struct Asking {
    response: OffsetForLeaderEpochResponse,
    /// Topic and partition index of each query.
    asked: Vec<(usize, usize)>,
}

impl Pending for Asking {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::EpochEnds(results) = reply else { return work.wrong_reply() };
        if results.len() != self.asked.len() {
            return work.wrong_reply();
        }
        for (result, (t, p)) in results.into_iter().zip(&self.asked) {
            let Some(row) = self.response.topics.get_mut(*t).and_then(|topic| topic.partitions.get_mut(*p)) else {
                continue;
            };
            match result {
                Ok(EpochEnd { epoch, end: Some(Offset(end)) }) => {
                    row.leader_epoch = epoch;
                    row.end_offset = i64::try_from(end).unwrap_or(i64::MAX);
                }
                Ok(EpochEnd { end: None, .. }) => {}
                Err(error) => row.error_code = errors::of_read(error, false).code(),
            }
        }
        work.answer(&self.response)
    }
}
