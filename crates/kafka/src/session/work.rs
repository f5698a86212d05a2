//! The interface between a session and the handlers of requests.

use super::close::CloseReason;
use super::fetch_session::FetchSessions;
use super::steps::Steps;
use super::{Head, Peer};
use crate::settings::KafkaSettings;
use polylogue_api::{Catalog, Now, Reply, Request, Token};
use polylogue_auth::Authority;
use polylogue_kafka_codec::Message;
use polylogue_kafka_codec::frame::encode_response;
use polylogue_types::Chunk;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

/// The context of a request's handler.
#[derive(Debug)]
pub(super) struct Work<'a> {
    /// The time.
    pub(super) now: Now,
    /// Topics.
    pub(super) catalog: &'a dyn Catalog,
    /// The settings.
    pub(super) settings: &'a KafkaSettings,
    /// Users.
    pub(super) users: &'a Arc<dyn Authority>,
    /// The request's header.
    pub(super) head: &'a Head,
    /// The client.
    pub(super) peer: &'a mut Peer,
    /// The fetch sessions of the connection.
    pub(super) fetch_sessions: &'a mut FetchSessions,
    /// Outgoing requests to the broker.
    pub(super) requests: &'a mut VecDeque<(Token, Request)>,
    /// The next token.
    pub(super) next_token: &'a mut Token,
    /// The turn's steps.
    pub(super) steps: &'a Steps,
}

/// The result of a handler.
#[derive(Debug)]
pub(super) enum Step {
    /// Answered.
    Answer(Vec<Chunk>),
    /// Done, without a response.
    Silence,
    /// Exceeds the rest of the turn, without any effect so far: starts again in another one. Only for APIs with
    /// [`is_cut`](super::table::Api::is_cut).
    Pause,
    /// Waits for what the token stands for.
    Wait(Token, Box<dyn Pending>),
    /// Close the connection.
    Close(CloseReason),
    /// Answered; close the connection afterwards.
    Last(Vec<Chunk>, CloseReason),
}

impl Step {
    /// Makes the response the last one.
    pub(super) fn and_close(self, reason: CloseReason) -> Step {
        match self {
            Step::Answer(chunks) => Step::Last(chunks, reason),
            Step::Silence | Step::Pause | Step::Wait(..) => Step::Close(reason),
            step @ (Step::Close(_) | Step::Last(..)) => step,
        }
    }
}

/// A request that waits for a reply, a watch, or a deadline.
pub(super) trait Pending: Debug + Send {
    /// Handles the reply to the request with the token.
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step;

    /// The watch with the token has fired. Never called for a request without a watch.
    fn on_changed(self: Box<Self>, work: &mut Work<'_>) -> Step {
        work.wrong_reply()
    }

    /// The deadline has passed.
    fn on_deadline(self: Box<Self>, work: &mut Work<'_>) -> Step {
        work.wrong_reply()
    }

    /// Returns the deadline. Monotonic milliseconds.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Returns what the token stands for.
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Reply
    }

    /// Returns the memory that it holds while it waits, including the broker's, if known. Bytes.
    fn memory(&self) -> Option<usize> {
        None
    }
}

/// What a token stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitsFor {
    /// A request with a single reply.
    Reply,
    /// A command to a state machine, which may park its caller.
    Machine,
    /// A watch.
    Watch,
    /// A deadline only.
    Time,
}

impl Work<'_> {
    /// Sends a request to the broker.
    pub(super) fn ask(&mut self, request: Request) -> Token {
        let token = self.token();
        self.requests.push_back((token, request));
        token
    }

    /// Returns a new token.
    pub(super) fn token(&mut self) -> Token {
        let token = *self.next_token;
        *self.next_token += 1;
        token
    }

    /// Answers with a response of the request's own API and version.
    pub(super) fn answer<M: Message>(&self, response: &M) -> Step {
        self.answer_at(response, self.head.version)
    }

    /// Answers in another version, as ApiVersions does.
    pub(super) fn answer_at<M: Message>(&self, response: &M, version: i16) -> Step {
        let Head { api, correlation_id, .. } = *self.head;
        match encode_response(api, version, correlation_id, response) {
            Ok(chunks) => Step::Answer(chunks),
            Err(error) => Step::Close(CloseReason::Encode { api, version, error }),
        }
    }

    /// Closes the connection because the reply does not match the request.
    pub(super) fn wrong_reply(&self) -> Step {
        Step::Close(CloseReason::Reply { api: self.head.api })
    }
}
