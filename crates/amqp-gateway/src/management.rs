//! A caller of the management API: makes the requests of a connection, with the same permissions and code.
//!
//! ```text
//!   server ── request::Request ──▶ Principal ── api::Request ──▶ broker
//!   server ◀── PrincipalOutput ────────────── Principal ◀── api::Reply ────┘
//! ```
//!
//! A [`Principal`] is a [`Connection`] without a session: output for the session is returned to the caller instead. Changes that AMQP clients cannot
//! request (users, policies, definitions) are [`AmqpRequest::Do`] without a user: permission is checked by tags beforehand. Reads use a [`View`].

use crate::connection::{Channel, Connection};
use crate::directory::Directory;
use crate::login::TokenRights;
use crate::machine::AmqpRequest;
use crate::publish::UNANSWERED_BYTES_MAX;
use bytestring::ByteString;
use polylogue_amqp::request::{self as amqp, ChannelRef};
use polylogue_amqp_model::{Caller, Command, Metadata, QueueSettings};
use polylogue_api::{Catalog, Event, MachineId, NewTopic, Now, PublishError, Reply, Request, Token};
use polylogue_auth::Grants;
use polylogue_router::{Definitions, QueueId, VhostId};
use polylogue_types::{PartitionId, Unfinished};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// The channel of all requests of a principal.
pub const MANAGEMENT_CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
/// The most topics created by one request.
const TOPICS_PER_REQUEST: usize = 1_000;

/// The committed metadata at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// Virtual hosts, users, queues, policies and so on.
    pub metadata: Metadata,
    /// Exchanges and bindings.
    pub routes: Definitions,
}

/// An output of a principal.
#[derive(Debug)]
pub enum PrincipalOutput {
    /// A reply to a request.
    Reply(amqp::Reply),
    /// A delivered or returned message, or the close of the channel.
    Event(amqp::Event),
    /// Rejected publishes, with the reason; otherwise like [`amqp::Event::Rejected`].
    Rejected {
        /// The lowest sequence number.
        first: u64,
        /// The highest sequence number.
        last: u64,
        /// Why all of them were rejected.
        why: PublishError,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Principal {
    inner: Connection,
}

impl Principal {
    /// A user in a virtual host, which both exist; `id` is a session of the broker's own.
    #[must_use]
    pub fn new(
        directory: Arc<Directory>,
        catalog: Arc<dyn Catalog>,
        id: u64,
        user: ByteString,
        vhost: (VhostId, ByteString),
        now: Now,
    ) -> Principal {
        let mut inner = Connection::new(Arc::default(), directory, catalog, id, true, 0, now);
        inner.user = user;
        (inner.vhost, inner.vhost_name) = vhost;
        inner.channels.insert(MANAGEMENT_CHANNEL, Channel::default());
        inner.captured = Some(VecDeque::new());
        Principal { inner }
    }

    /// The operator of this broker, in an existing virtual host: has all permissions, and may use all queue types.
    #[must_use]
    pub fn operator(
        directory: Arc<Directory>,
        catalog: Arc<dyn Catalog>,
        id: u64,
        vhost: (VhostId, ByteString),
        now: Now,
    ) -> Principal {
        let mut operator = Principal::new(directory, catalog, id, ByteString::new(), vhost, now);
        operator.inner.is_operator = true;
        operator
    }

    /// Publishes atomically: to all queues of a message or, if one is full, to none, without dead-lettering it.
    #[must_use]
    pub fn all_or_none(mut self) -> Principal {
        self.inner.all_or_none = true;
        self
    }

    /// Sets the address that access control lists are checked with.
    #[must_use]
    pub fn from_address(mut self, address: IpAddr) -> Principal {
        self.inner.asks_from = Some(address);
        self
    }

    /// Sets the rights of a token, which replace the user's permissions.
    #[must_use]
    pub fn with_grants(mut self, grants: Arc<Grants>) -> Principal {
        // It exists for one request.
        self.inner.token = Some(TokenRights { grants, until_ms: u64::MAX });
        self
    }

    /// Makes a request. A request with a reply gets one [`PrincipalOutput::Reply`], in order; a publish with a sequence number gets its outcome.
    pub fn ask(&mut self, request: amqp::Request) {
        self.inner.begin(0, request);
        self.inner.proceed();
        self.inner.flush_batch();
    }

    /// Publishes; consecutive publishes until [`Principal::flush`] share a request as far as they fit.
    pub fn publish(&mut self, publish: amqp::Publish) {
        self.inner.begin(0, amqp::Request::Publish(MANAGEMENT_CHANNEL, publish));
        self.inner.proceed();
    }

    /// Sends pending publishes to the broker.
    pub fn flush(&mut self) {
        self.inner.flush_batch();
    }

    /// Whether more may be published before replies arrive: the limit of all connections.
    #[must_use]
    pub fn may_publish(&self) -> bool {
        self.inner.turn.work.is_empty()
            && self.inner.batch.unanswered_bytes < UNANSWERED_BYTES_MAX
            && self.inner.takes_targets()
    }

    /// As [`Connection::begin_turn`].
    pub fn begin_turn(&mut self, steps_max: u64) {
        self.inner.begin_turn(steps_max);
    }

    /// As [`Connection::unfinished`].
    #[must_use]
    pub fn unfinished(&self) -> Option<Unfinished> {
        self.inner.unfinished()
    }

    /// Returns the next request for the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.inner.poll_request()
    }

    /// Handles a reply of the broker.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.inner.on_reply(token, reply, now);
    }

    /// Handles an event of the broker.
    pub fn on_event(&mut self, event: Event, now: Now) {
        self.inner.on_event(event, now);
    }

    /// When [`Principal::on_deadline`] must be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.inner.later.iter().map(|(at, _)| *at).min()
    }

    /// Handles deadlines that have passed.
    pub fn on_deadline(&mut self, now: Now) {
        self.inner.on_deadline(now);
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<PrincipalOutput> {
        self.inner.captured.as_mut()?.pop_front()
    }
}

/// Makes a change on behalf of a manager whose permission was checked.
#[must_use]
pub fn managed(command: Command) -> Request {
    let who = Caller::broker();
    Request::Machine(MachineId::AMQP, Box::new(AmqpRequest::Do(who, Box::new(command))))
}

/// The same, with a user of the user store as the recorded author.
#[must_use]
pub fn managed_by(author: ByteString, command: Command) -> Request {
    let who = Caller { user: Some(author), ..Caller::broker() };
    Request::Machine(MachineId::AMQP, Box::new(AmqpRequest::Do(who, Box::new(command))))
}

/// Requests a [`View`].
#[must_use]
pub fn view() -> Request {
    Request::Machine(MachineId::AMQP, Box::new(AmqpRequest::View))
}

impl Directory {
    /// The partition of a queue, once its topic exists.
    #[must_use]
    pub fn partition(&self, queue: QueueId, catalog: &dyn Catalog) -> Option<PartitionId> {
        self.queue(queue)?.partition(catalog)
    }

    /// The effective settings of a queue, policies included.
    #[must_use]
    pub fn settings(&self, queue: QueueId) -> Option<QueueSettings> {
        Some(self.queue(queue)?.settings.clone())
    }

    /// The topics that queues lack: after an import of definitions, whose queues are not declared one by one. At most as many as one request should
    /// create.
    #[must_use]
    pub fn missing_topics(&self, view: &View, catalog: &dyn Catalog) -> Vec<NewTopic> {
        let missing = view.metadata.queues().filter_map(|queue| {
            let entry = self.queue(queue.id)?;
            if entry.partition(catalog).is_some() {
                return None;
            }
            Some(entry.new_topic())
        });
        missing.take(TOPICS_PER_REQUEST).collect()
    }
}
