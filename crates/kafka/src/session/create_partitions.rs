//! CreatePartitions. Rules and texts are Kafka's (`ControllerApis.createPartitions`, `ReplicationControlManager.createPartitions`), for a
//! cluster of one node.

use super::errors::{self, with_message};
use super::topics::{QUEUE_REFUSED, is_queue, node_id};
use super::work::{Pending, Step, Work};
use polylogue_api::{AlterError, AlterTopics, PartitionsChange, Reply, Request, TopicChange, TopicInfo};
use polylogue_auth::Operation;
use polylogue_kafka_codec::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::TopicId;
use std::collections::BTreeSet;

/// Partitions that one request may create (Kafka's `MAX_RECORDS_PER_USER_OP`).
const PARTITIONS_PER_REQUEST_MAX: u64 = 10_000;
/// Attempts of a change after conflicts. Each conflict means that another change succeeded.
const TRIES_MAX: u32 = 100;

/// The error of a refused topic.
type Refusal = (ErrorCode, StrBytes);

/// A topic whose number of partitions is increased.
#[derive(Debug)]
struct Growing {
    /// Its row in the response.
    row: usize,
    id: TopicId,
    /// Its current number of partitions, as far as known.
    from: u32,
    wanted: CreatePartitionsTopic,
}

#[derive(Debug)]
struct Waiting {
    response: CreatePartitionsResponse,
    growing: Vec<Growing>,
    validate_only: bool,
    tries: u32,
}

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = CreatePartitionsRequest::decode(body, work.head.version)?;
    let mut response = CreatePartitionsResponse::default();
    let mut seen = BTreeSet::new();
    let topics = request.topics.iter();
    let repeated: BTreeSet<_> = topics.map(|topic| &topic.name).filter(|name| !seen.insert(*name)).cloned().collect();
    for name in &repeated {
        let mut row = CreatePartitionsTopicResult { name: name.clone(), ..CreatePartitionsTopicResult::default() };
        refuse(&mut row, (ErrorCode::InvalidRequest, StrBytes::from_static("Duplicate topic name.")));
        response.results.push(row);
    }
    let mut growing = Vec::new();
    for wanted in request.topics.into_iter().filter(|topic| !repeated.contains(&topic.name)) {
        let name = wanted.name.clone();
        let mut row =
            CreatePartitionsTopicResult { name, error_message: None, ..CreatePartitionsTopicResult::default() };
        match work.catalog.topic(&wanted.name) {
            _ if !work.may_topic(Operation::Alter, &wanted.name) => {
                refuse(&mut row, with_message(ErrorCode::TopicAuthorizationFailed));
            }
            Some(topic) if is_queue(&topic) => {
                refuse(&mut row, (ErrorCode::InvalidTopicException, StrBytes::from_static(QUEUE_REFUSED)));
            }
            Some(topic) => {
                let from = partition_count(&topic);
                growing.push(Growing { row: response.results.len(), id: topic.id, from, wanted });
            }
            None => refuse(&mut row, with_message(ErrorCode::UnknownTopicOrPartition)),
        }
        response.results.push(row);
    }
    Ok(Box::new(Waiting { response, growing, validate_only: request.validate_only, tries: 0 }).go_on(work))
}

fn partition_count(topic: &TopicInfo) -> u32 {
    u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX)
}

fn refuse(row: &mut CreatePartitionsTopicResult, (error, text): Refusal) {
    row.error_code = error.code();
    row.error_message = Some(text);
}

impl Waiting {
    fn go_on(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let node = node_id(&work.catalog.cluster());
        let mut left = PARTITIONS_PER_REQUEST_MAX;
        let mut changes = Vec::new();
        let (response, growing) = (&mut self.response, &mut self.growing);
        growing.retain(|topic| {
            let planned = target(topic, node).and_then(|to| {
                left = left.checked_sub(u64::from(to - topic.from)).ok_or_else(|| {
                    let text = "Unable to perform excessively large batch operation.";
                    (ErrorCode::PolicyViolation, StrBytes::from_static(text))
                })?;
                Ok(PartitionsChange { from: topic.from, to })
            });
            let row = response.results.get_mut(topic.row);
            match (planned, row) {
                (Ok(partitions), _) => {
                    changes.push(TopicChange { topic: topic.id, config: None, partitions: Some(partitions) });
                    true
                }
                (Err(why), row) => {
                    row.into_iter().for_each(|row| refuse(row, why.clone()));
                    false
                }
            }
        });
        if changes.is_empty() {
            return work.answer(&self.response);
        }
        let token = work.ask(Request::AlterTopics(AlterTopics { changes, validate_only: self.validate_only }));
        Step::Wait(token, self)
    }
}

/// The new number of partitions.
fn target(topic: &Growing, node: i32) -> Result<u32, Refusal> {
    let Growing { from, wanted, .. } = topic;
    let text = match i64::from(wanted.count) - i64::from(*from) {
        1.. => None,
        0 => Some(format!("Topic already has {from} partition(s).")),
        _ => Some(format!(
            "The topic {} currently has {from} partition(s); {} would not be an increase.",
            wanted.name, wanted.count
        )),
    };
    let to = u32::try_from(wanted.count).ok().filter(|_| text.is_none());
    let Some(to) = to else {
        return Err((ErrorCode::InvalidPartitions, text.unwrap_or_default().into()));
    };
    if let Some(assignments) = &wanted.assignments {
        check_assignments(assignments, to - from, node)
            .map_err(|text| (ErrorCode::InvalidReplicaAssignment, text.into()))?;
    }
    Ok(to)
}

fn check_assignments(assignments: &[CreatePartitionsAssignment], more: u32, node: i32) -> Result<(), String> {
    if assignments.len() != more as usize {
        return Err(format!(
            "Attempted to add {more} additional partition(s), but only {} assignment(s) were specified.",
            assignments.len()
        ));
    }
    for CreatePartitionsAssignment { broker_ids } in assignments {
        let stranger = broker_ids.iter().filter(|broker| **broker != node).min();
        match (broker_ids.as_slice(), stranger) {
            ([], _) => return Err("The manual partition assignment includes an empty replica list.".to_owned()),
            (_, Some(stranger)) => {
                return Err(format!(
                    "The manual partition assignment includes broker {stranger}, but no such broker is registered."
                ));
            }
            ([_], None) => {}
            (_, None) => {
                return Err(format!("The manual partition assignment includes the broker {node} more than once."));
            }
        }
    }
    Ok(())
}

impl Pending for Waiting {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::AlterTopics(results) = reply else { return work.wrong_reply() };
        if results.len() != self.growing.len() {
            return work.wrong_reply();
        }
        self.tries += 1;
        let again = self.tries < TRIES_MAX;
        let growing = std::mem::take(&mut self.growing);
        for (result, mut topic) in results.into_iter().zip(growing) {
            match result {
                Ok(()) => {}
                // The number changed meanwhile: validate the request again.
                Err(AlterError::Conflict(current)) if again => {
                    topic.from = current.partitions;
                    self.growing.push(topic);
                }
                // Another client deleted the topic meanwhile. A new topic of that name is the one to change.
                Err(AlterError::UnknownTopic) => match work.catalog.topic(&topic.wanted.name) {
                    Some(other) if again && other.id != topic.id && !is_queue(&other) => {
                        (topic.id, topic.from) = (other.id, partition_count(&other));
                        self.growing.push(topic);
                    }
                    _ => {
                        let row = self.response.results.get_mut(topic.row);
                        row.into_iter().for_each(|row| refuse(row, with_message(ErrorCode::UnknownTopicOrPartition)));
                    }
                },
                Err(error) => {
                    if let Some(row) = self.response.results.get_mut(topic.row) {
                        refuse(row, errors::of_alter(&error, &topic.wanted.name));
                    }
                }
            }
        }
        self.go_on(work)
    }
}
