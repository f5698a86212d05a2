//! A user of the management API: asks for what a connection asks for, with the same rights, in the same way.
//!
//! ```text
//!   server ── request::Request ──▶ Principal ── api::Request ──▶ broker
//!   server ◀── Said ────────────── Principal ◀── api::Reply ────┘
//! ```
//!
//! A [`Principal`] is a [`Connection`] without a wire: what a session would be told is given out instead. Changes that no AMQP client can
//! ask for (users, policies, definitions) are [`AmqpAsk::Do`] without a user: who may is judged before, by tags. What is looked at is
//! a [`View`].

use crate::connection::{Channel, Connection};
use crate::directory::Directory;
use crate::login::TokenRights;
use crate::machine::AmqpAsk;
use crate::publish::UNANSWERED_BYTES_MAX;
use bytestring::ByteString;
use polylogue_amqp::request::{self as amqp, ChannelRef};
use polylogue_amqp_model::{Caller, Command, QueueSettings, World};
use polylogue_api::{Catalog, Event, MachineId, NewTopic, Now, PublishError, Reply, Request, Token};
use polylogue_auth::Grants;
use polylogue_router::{Definitions, QueueId, VhostId};
use polylogue_types::{PartitionId, Unfinished};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// The channel of a principal, on which everything is asked.
pub const MANAGEMENT_CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
/// Topics that are made in one request.
const TOPICS_PER_REQUEST: usize = 1_000;

/// The declared world at one moment: what is committed.
#[derive(Clone, Debug)]
pub struct View {
    /// Virtual hosts, users, queues, policies and so on.
    pub world: World,
    /// Exchanges and bindings.
    pub routes: Definitions,
}

/// What a principal is told.
#[derive(Debug)]
pub enum Said {
    /// The answer to what was asked.
    Reply(amqp::Reply),
    /// That a message arrived or came back, or that the channel would be closed.
    Event(amqp::Event),
    /// What a session would be told with [`amqp::Event::Rejected`], and why.
    Rejected {
        /// The lowest number.
        first: u64,
        /// The highest number.
        last: u64,
        /// What kept all of them out.
        why: PublishError,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Principal {
    inner: Connection,
}

impl Principal {
    /// A user in a virtual host, both of which are there; `id` is a session of the broker's own.
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
        inner.said = Some(VecDeque::new());
        Principal { inner }
    }

    /// Whoever runs this broker, in a virtual host that is there: may do everything, with all types of queues.
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

    /// The same, who keeps what does not get where it should: what is published is in all of its queues or, where one is full, in none,
    /// and no dead letter is made of it.
    #[must_use]
    pub fn all_or_none(mut self) -> Principal {
        self.inner.all_or_none = true;
        self
    }

    /// The same, who asks from there: what access control lists say of addresses is about that one.
    #[must_use]
    pub fn from_address(mut self, address: IpAddr) -> Principal {
        self.inner.asks_from = Some(address);
        self
    }

    /// The same, who logged in by a token: what that grants counts, and not the user's permissions.
    #[must_use]
    pub fn with_grants(mut self, grants: Arc<Grants>) -> Principal {
        // It is there for one request.
        self.inner.token = Some(TokenRights { grants, until_ms: u64::MAX });
        self
    }

    /// Asks for something. What wants an answer gets one [`Said::Reply`], in order; a message that is published with a number
    /// gets its outcome.
    pub fn ask(&mut self, request: amqp::Request) {
        self.inner.begin(0, request);
        self.inner.go_on();
        self.inner.flush_batch();
    }

    /// Publishes, together with what follows until [`Principal::flush`] as far as that fits into one request.
    pub fn publish(&mut self, publish: amqp::Publish) {
        self.inner.begin(0, amqp::Request::Publish(MANAGEMENT_CHANNEL, publish));
        self.inner.go_on();
    }

    /// Hands what was published to the broker.
    pub fn flush(&mut self) {
        self.inner.flush_batch();
    }

    /// Whether more may be published before something is answered: what holds for every connection.
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

    /// The next thing to ask the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.inner.poll_request()
    }

    /// The broker's answer.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.inner.on_reply(token, reply, now);
    }

    /// What the broker says later.
    pub fn on_event(&mut self, event: Event, now: Now) {
        self.inner.on_event(event, now);
    }

    /// When [`Principal::on_deadline`] wants to be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.inner.later.iter().map(|(at, _)| *at).min()
    }

    /// A deadline may have passed.
    pub fn on_deadline(&mut self, now: Now) {
        self.inner.on_deadline(now);
    }

    /// The next thing that is said.
    pub fn poll_said(&mut self) -> Option<Said> {
        self.inner.said.as_mut()?.pop_front()
    }
}

/// The change that a manager asks for, who may do so.
#[must_use]
pub fn managed(command: Command) -> Request {
    let who = Caller::broker();
    Request::Machine(MachineId::Amqp, Box::new(AmqpAsk::Do(who, Box::new(command))))
}

/// The same, asked for by a user of the user store, who is recorded as the author of what it sets.
#[must_use]
pub fn managed_by(author: ByteString, command: Command) -> Request {
    let who = Caller { user: Some(author), ..Caller::broker() };
    Request::Machine(MachineId::Amqp, Box::new(AmqpAsk::Do(who, Box::new(command))))
}

/// Asks for a [`View`].
#[must_use]
pub fn view() -> Request {
    Request::Machine(MachineId::Amqp, Box::new(AmqpAsk::View))
}

impl Directory {
    /// The partition of a queue, once its topic is there.
    #[must_use]
    pub fn partition(&self, queue: QueueId, catalog: &dyn Catalog) -> Option<PartitionId> {
        self.queue(queue)?.partition(catalog)
    }

    /// What holds for a queue, policies included.
    #[must_use]
    pub fn settings(&self, queue: QueueId) -> Option<QueueSettings> {
        Some(self.queue(queue)?.settings.clone())
    }

    /// The topics that queues still need: after definitions were imported, whose queues nobody declares one by one. At most
    /// so many as one request should make.
    #[must_use]
    pub fn missing_topics(&self, view: &View, catalog: &dyn Catalog) -> Vec<NewTopic> {
        let missing = view.world.queues().filter_map(|queue| {
            let entry = self.queue(queue.id)?;
            if entry.partition(catalog).is_some() {
                return None;
            }
            Some(entry.new_topic())
        });
        missing.take(TOPICS_PER_REQUEST).collect()
    }
}
