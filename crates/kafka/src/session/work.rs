//! What the handler of one request sees and does.

use super::close::CloseReason;
use super::fetch_session::FetchSessions;
use super::steps::Steps;
use super::{Head, Peer};
use crate::codec::Message;
use crate::codec::frame::encode_response;
use crate::settings::KafkaSettings;
use polylogue_api::{Catalog, Now, Reply, Request, Token};
use polylogue_auth::Authority;
use polylogue_types::Chunk;
use std::collections::VecDeque;
use std::fmt::Debug;

/// The surroundings of one request while something is done for it.
#[derive(Debug)]
pub(super) struct Work<'a> {
    /// The time.
    pub(super) now: Now,
    /// Topics.
    pub(super) catalog: &'a dyn Catalog,
    /// What the operator decided.
    pub(super) settings: &'a KafkaSettings,
    /// Users.
    pub(super) users: &'a dyn Authority,
    /// What was asked, and how.
    pub(super) head: &'a Head,
    /// The caller.
    pub(super) peer: &'a mut Peer,
    /// The fetch sessions of the connection.
    pub(super) fetch_sessions: &'a mut FetchSessions,
    /// What is asked of the broker.
    pub(super) requests: &'a mut VecDeque<(Token, Request)>,
    /// The token of the next request.
    pub(super) next_token: &'a mut Token,
    /// What the turn still allows.
    pub(super) steps: &'a Steps,
}

/// How a request stands.
#[derive(Debug)]
pub(super) enum Step {
    /// It is answered.
    Answer(Vec<Chunk>),
    /// It is done and gets no answer.
    Silence,
    /// It does not fit into what is left of the turn, and nothing of it has had an effect: it begins anew in another one. Only for APIs
    /// that say so in the table.
    Pause,
    /// It waits for what was asked under the token.
    Wait(Token, Box<dyn Pending>),
    /// The connection has to go.
    Close(CloseReason),
    /// It is answered, and then the connection has to go.
    Last(Vec<Chunk>, CloseReason),
}

impl Step {
    /// The same, as the last thing that is said.
    pub(super) fn and_close(self, reason: CloseReason) -> Step {
        match self {
            Step::Answer(chunks) => Step::Last(chunks, reason),
            Step::Silence | Step::Pause | Step::Wait(..) => Step::Close(reason),
            step @ (Step::Close(_) | Step::Last(..)) => step,
        }
    }
}

/// A request that waits: for a reply, for a watch, or for its time.
pub(super) trait Pending: Debug + Send {
    /// The reply to the request under the token.
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step;

    /// The watch under the token has fired. Never called for a request that did not watch.
    fn on_changed(self: Box<Self>, work: &mut Work<'_>) -> Step {
        work.wrong_reply()
    }

    /// The time of [`Pending::deadline_ms`] has come.
    fn on_deadline(self: Box<Self>, work: &mut Work<'_>) -> Step {
        work.wrong_reply()
    }

    /// When [`Pending::on_deadline`] wants to be called. Monotonic milliseconds.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// What stands under the token.
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Reply
    }

    /// What it holds in memory until it goes on, the broker's part of that included, where that is known. Bytes.
    fn memory(&self) -> Option<usize> {
        None
    }
}

/// What a token stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitsFor {
    /// A request that is answered alone.
    Reply,
    /// A command to a state machine, which may park its caller.
    Machine,
    /// A watch.
    Watch,
    /// Nothing: only for the time to come.
    Time,
}

impl Work<'_> {
    /// Asks the broker.
    pub(super) fn ask(&mut self, request: Request) -> Token {
        let token = self.token();
        self.requests.push_back((token, request));
        token
    }

    /// A token that nothing else has.
    pub(super) fn token(&mut self) -> Token {
        let token = *self.next_token;
        *self.next_token += 1;
        token
    }

    /// Answers with a response of the request's own API and version.
    pub(super) fn answer<M: Message>(&self, response: &M) -> Step {
        self.answer_at(response, self.head.version)
    }

    /// Answers in another version than the request's: ApiVersions does so.
    pub(super) fn answer_at<M: Message>(&self, response: &M, version: i16) -> Step {
        let Head { api, correlation_id, .. } = *self.head;
        match encode_response(api, version, correlation_id, response) {
            Ok(chunks) => Step::Answer(chunks),
            Err(error) => Step::Close(CloseReason::Encode { api, version, error }),
        }
    }

    /// The broker's reply does not fit the request.
    pub(super) fn wrong_reply(&self) -> Step {
        Step::Close(CloseReason::Reply { api: self.head.api })
    }
}
