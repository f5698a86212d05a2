//! DeleteTopics, by name or by id. The rules are those of Kafka's controller (`ControllerApis.deleteTopics`).

use super::errors::{self, with_message};
use super::topics::{QUEUE_REFUSED, is_queue, owned};
use super::work::{Pending, Step, Work};
use polylogue_api::{DeleteTopics, Reply, Request, TopicError, TopicRef};
use polylogue_auth::Operation;
use polylogue_kafka_codec::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::TopicId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The first version with an error for `delete.topic.enable=false`.
const DISABLED_FROM: i16 = 3;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = DeleteTopicsRequest::decode(body, version)?;
    let by_name = |name: StrBytes| DeleteTopicState { name: Some(name), topic_id: TopicId::ZERO };
    let states: Vec<_> = request.topic_names.into_iter().map(by_name).chain(request.topics).collect();
    if !work.settings.delete_topics {
        let code = if version < DISABLED_FROM { ErrorCode::InvalidRequest } else { ErrorCode::TopicDeletionDisabled };
        let (error, text) = with_message(code);
        let responses = states.into_iter().map(|s| row(s.name, s.topic_id, error, Some(text.clone()))).collect();
        return Ok(work.answer(&DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }));
    }
    let Chosen { mut responses, topics } = choose(work, states);
    if topics.is_empty() {
        return Ok(work.answer(&DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() }));
    }
    let first = responses.len();
    let by_name = topics.values().map(|topic| topic.by_name).collect();
    let refs = topics.keys().copied().map(TopicRef::Id).collect();
    responses.extend(topics.into_iter().map(|(id, topic)| row(Some(topic.name), id, ErrorCode::None, None)));
    let token = work.ask(Request::DeleteTopics(DeleteTopics { topics: refs }));
    Ok(Step::Wait(token, Box::new(Deleting { responses, first, by_name })))
}

fn row(
    name: Option<StrBytes>,
    topic_id: TopicId,
    error: ErrorCode,
    error_message: Option<StrBytes>,
) -> DeletableTopicResult {
    DeletableTopicResult { name, topic_id, error_code: error.code(), error_message }
}

/// The valid part of a request.
struct Chosen {
    /// Rows of topics that cannot be deleted.
    responses: Vec<DeletableTopicResult>,
    /// The topics to delete.
    topics: BTreeMap<TopicId, ChosenTopic>,
}

/// A topic to delete.
struct ChosenTopic {
    name: StrBytes,
    /// Whether the client named it, rather than its id.
    by_name: bool,
}

fn choose(work: &Work<'_>, states: Vec<DeleteTopicState>) -> Chosen {
    let mut chosen = Chosen { responses: Vec::new(), topics: BTreeMap::new() };
    let mut names = BTreeMap::<StrBytes, u32>::new();
    let mut ids = BTreeMap::<TopicId, u32>::new();
    for DeleteTopicState { name, topic_id } in states {
        match (name, topic_id.is_zero()) {
            (Some(name), true) => *names.entry(name).or_default() += 1,
            (None, false) => *ids.entry(topic_id).or_default() += 1,
            (None, true) => chosen.invalid(None, topic_id, "Neither topic name nor id were specified."),
            (name, false) => chosen.invalid(name, topic_id, "You may not specify both topic name and topic id."),
        }
    }
    for (id, times) in ids {
        match work.catalog.topic_by_id(id) {
            _ if times > 1 => chosen.invalid(None, id, "Duplicate topic id."),
            Some(topic) if !work.may_topic(Operation::Delete, &topic.name) => {
                // A topic id is not confidential; a name is.
                let name = work.may_topic(Operation::Describe, &topic.name).then(|| owned(&topic.name));
                chosen.unknown(name, id, ErrorCode::TopicAuthorizationFailed);
            }
            Some(topic) if is_queue(&topic) => chosen.queue(Some(owned(&topic.name)), id),
            Some(topic) => {
                chosen.topics.insert(id, ChosenTopic { name: owned(&topic.name), by_name: false });
            }
            None => chosen.unknown(None, id, ErrorCode::UnknownTopicId),
        }
    }
    for (name, times) in names {
        match work.catalog.topic(&name) {
            _ if times > 1 => chosen.invalid(Some(name), TopicId::ZERO, "Duplicate topic name."),
            _ if !work.may_topic(Operation::Delete, &name) => {
                chosen.unknown(Some(name), TopicId::ZERO, ErrorCode::TopicAuthorizationFailed);
            }
            Some(topic) if is_queue(&topic) => chosen.queue(Some(name), topic.id),
            Some(topic) => match chosen.topics.entry(topic.id) {
                Entry::Vacant(free) => _ = free.insert(ChosenTopic { name, by_name: true }),
                Entry::Occupied(taken) => {
                    taken.remove();
                    let text = "The provided topic name maps to an ID that was already supplied.";
                    chosen.invalid(Some(name), topic.id, text);
                }
            },
            None => chosen.unknown(Some(name), TopicId::ZERO, ErrorCode::UnknownTopicOrPartition),
        }
    }
    chosen
}

impl Chosen {
    fn invalid(&mut self, name: Option<StrBytes>, id: TopicId, text: &'static str) {
        self.responses.push(row(name, id, ErrorCode::InvalidRequest, Some(StrBytes::from_static(text))));
    }

    fn queue(&mut self, name: Option<StrBytes>, id: TopicId) {
        let text = Some(StrBytes::from_static(QUEUE_REFUSED));
        self.responses.push(row(name, id, ErrorCode::InvalidTopicException, text));
    }

    /// Adds the row of a topic that is unknown or hidden from the client.
    fn unknown(&mut self, name: Option<StrBytes>, id: TopicId, error: ErrorCode) {
        let (error, text) = with_message(error);
        self.responses.push(row(name, id, error, Some(text)));
    }
}

#[derive(Debug)]
struct Deleting {
    responses: Vec<DeletableTopicResult>,
    /// The row of the first topic being deleted; the others follow.
    first: usize,
    /// For each topic being deleted, whether the client named it.
    by_name: Vec<bool>,
}

impl Pending for Deleting {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::DeleteTopics(results) = reply else { return work.wrong_reply() };
        let rows = self.responses.get_mut(self.first..).unwrap_or_default();
        if results.len() != rows.len() {
            return work.wrong_reply();
        }
        for ((result, row), by_name) in results.into_iter().zip(rows).zip(self.by_name) {
            if let Err(mut error) = result {
                if by_name && error == TopicError::UnknownId {
                    // Deleted by another client meanwhile. A client that used the name gets the error for names, which many clients accept as
                    // success.
                    (error, row.topic_id) = (TopicError::UnknownName, TopicId::ZERO);
                }
                let name = row.name.clone().unwrap_or_default();
                let (error, text) = errors::of_topic(&error, &name);
                row.error_code = error.code();
                row.error_message = Some(text);
            }
        }
        let responses = self.responses;
        work.answer(&DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() })
    }
}
