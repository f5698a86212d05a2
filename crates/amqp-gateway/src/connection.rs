//! A client connection: the session, its channels on the broker's side, and pending operations.

use crate::counts::Tally;
use crate::deliver::{Cancelled, Consumer, Pull};
use crate::directory::Directory;
use crate::login::TokenRights;
use crate::machine::{AmqpRequest, owner};
use crate::management::PrincipalOutput;
use crate::operation::Waits;
use crate::presence::{Ends, Entry};
use crate::publish::{Batch, UNANSWERED_BYTES_MAX};
use crate::replies::Replies;
use crate::turn::{REQUEST_STEPS, Turn, Work};
use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use polylogue_amqp::codec::ShortStr;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, ChannelRef, ConsumerRef};
use polylogue_amqp::session::Session;
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_model::{Caller as ModelCaller, Command};
use polylogue_api::{Catalog, ConsumerId, Event, MachineId, Now, Reply, Request, Token};
use polylogue_auth::Authority;
use polylogue_router::{Scratch, VhostId};
use polylogue_types::{Chunk, Map, PartitionId, Set, SharedLimit};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// A channel on the broker's side.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) consumers: Map<ConsumerRef, Consumer>,
    /// Single takes (`basic.get`), by queue and whether acknowledgement is automatic.
    pub(crate) pulls: Map<(PartitionId, bool), Pull>,
    /// The most unsettled deliveries of all consumers together; 0 for no limit.
    pub(crate) qos: u16,
    /// The broker's shared limit for it, over all queues; set once there is a limit.
    pub(crate) limit: Option<Arc<SharedLimit>>,
    /// Cancelled consumers that still have unsettled deliveries.
    pub(crate) cancelled: Map<ConsumerRef, Cancelled>,
    pub(crate) replies: Option<Replies>,
    /// Something was published on it.
    pub(crate) publishes: bool,
}

impl Channel {
    /// The broker's id of this consumer.
    pub(crate) fn id_of(&self, consumer: ConsumerRef) -> Option<ConsumerId> {
        let replies = self.replies.as_ref().filter(|replies| replies.consumer == consumer).map(|replies| replies.id);
        self.consumers.get(&consumer).map(|consumer| consumer.id).or(replies)
    }
}

/// The identity of a connection from inside this process, which is not authenticated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InternalIdentity {
    /// The operator of the broker, who has all permissions.
    Operator,
    /// A user, with the user's own permissions.
    User(ByteString),
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    pub(crate) session: Session,
    pub(crate) settings: Arc<AmqpSettings>,
    pub(crate) id: u64,
    /// The client is on this machine, and the listener is a loopback one.
    pub(crate) is_local: bool,
    /// The address of a caller without a connection.
    pub(crate) asks_from: Option<IpAddr>,
    /// Checks credentials, is notified of logins, and determines how long a failed one is delayed.
    pub(crate) authority: Option<Arc<dyn Authority>>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) user: ByteString,
    /// The rights of a login by token.
    pub(crate) token: Option<TokenRights>,
    /// The operator of this broker, who has all permissions and is no user.
    pub(crate) is_operator: bool,
    /// A fixed identity, which overrides the client's credentials.
    pub(crate) identity: Option<InternalIdentity>,
    /// The user name in the client's certificate.
    pub(crate) certificate: Option<ByteString>,
    /// A publish is in all of its queues or, if one is full, in none ([`polylogue_api::PublishMessage::all_or_none`]).
    pub(crate) all_or_none: bool,
    pub(crate) vhost: VhostId,
    pub(crate) vhost_name: ByteString,
    pub(crate) channels: Map<ChannelRef, Channel>,
    pub(crate) consumers: Map<ConsumerId, (ChannelRef, ConsumerRef)>,
    pub(crate) waiting: Map<Token, Waits>,
    /// Changes of the metadata that are not answered.
    pub(crate) changing: Set<Token>,
    /// Deferred operations, with their times. Monotonic milliseconds.
    pub(crate) later: VecDeque<(u64, Waits)>,
    /// No acknowledgement is late before this time. Monotonic milliseconds.
    pub(crate) acks_due_ms: Option<u64>,
    /// A consumer could not get owed credit, because its channel is at its limit of deliveries.
    pub(crate) is_starved: bool,
    /// Consumers that are owed credit, without duplicates.
    pub(crate) owing: VecDeque<(ChannelRef, ConsumerRef)>,
    /// When they get it, even if it is little. Monotonic milliseconds.
    pub(crate) credit_due_ms: Option<u64>,
    pub(crate) batch: Batch,
    pub(crate) turn: Turn,
    /// Counters of its messages.
    pub(crate) tally: Tally,
    /// The channel of the last publish.
    pub(crate) publisher: Option<ChannelRef>,
    pub(crate) scratch: Scratch,
    /// Exchanges that the user may publish to, as of this version of permissions: at most [`crate::publish::ALLOWED_MAX`].
    pub(crate) allowed: (u64, Map<Bytes, ()>),
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    pub(crate) now: Now,
    closed: bool,
    /// The addresses of the connection, if listings are to show it.
    pub(crate) ends: Option<Ends>,
    /// The entry in listings, once the connection is in a virtual host.
    pub(crate) shown: Option<Entry>,
    /// The session knows that publishers are blocked.
    blocked: bool,
    /// Replies and events for a caller without a session, captured instead of sent.
    pub(crate) captured: Option<VecDeque<PrincipalOutput>>,
}

impl Connection {
    /// A new connection; `id` is unique for the life of the process, `seed` an unguessable number. The first user may log in only if `is_local`:
    /// client and listener have loopback addresses.
    #[must_use]
    pub fn new(
        settings: Arc<AmqpSettings>,
        directory: Arc<Directory>,
        catalog: Arc<dyn Catalog>,
        id: u64,
        is_local: bool,
        seed: u128,
        now: Now,
    ) -> Connection {
        let settings = directory.named(settings);
        let tally = Tally::new(directory.traffic().clone());
        Connection {
            session: Session::new(settings.clone(), seed, now.monotonic_ms),
            settings,
            acks_due_ms: None,
            id,
            is_local,
            asks_from: None,
            authority: None,
            directory,
            catalog,
            user: ByteString::new(),
            token: None,
            is_operator: false,
            identity: None,
            certificate: None,
            all_or_none: false,
            vhost: VhostId(0),
            vhost_name: ByteString::new(),
            channels: Map::default(),
            consumers: Map::default(),
            waiting: Map::default(),
            changing: Set::default(),
            later: VecDeque::new(),
            is_starved: false,
            owing: VecDeque::new(),
            credit_due_ms: None,
            batch: Batch::default(),
            turn: Turn::default(),
            tally,
            publisher: None,
            scratch: Scratch::default(),
            allowed: (0, Map::default()),
            requests: VecDeque::new(),
            next_token: 0,
            now,
            closed: false,
            ends: None,
            shown: None,
            blocked: false,
            captured: None,
        }
    }

    /// Sets the addresses that listings show.
    #[must_use]
    pub fn between(self, ends: Ends) -> Connection {
        Connection { ends: Some(ends), ..self }
    }

    /// Sets an authority that is notified of logins and slows down failed ones.
    #[must_use]
    pub fn watched_by(self, authority: Arc<dyn Authority>) -> Connection {
        Connection { authority: Some(authority), ..self }
    }

    /// Sets the user name of the client's certificate, which allows login by `EXTERNAL`.
    #[must_use]
    pub fn certified_as(self, name: &str) -> Connection {
        Connection { certificate: Some(name.into()), ..self }
    }

    /// Sets a fixed identity inside this process, regardless of the client's credentials.
    #[must_use]
    pub fn authenticated_as(self, identity: InternalIdentity) -> Connection {
        Connection { identity: Some(identity), ..self }
    }

    /// Closes the connection with a reason for the client.
    pub fn end(&mut self, why: &str, now: Now) {
        self.now = now;
        self.event(amqp::Event::CloseConnection(Refusal::forced(why)));
        self.serve();
    }

    /// The server shuts down. Returns whether the client was notified and gets time to answer; otherwise there is nothing to wait for.
    pub fn shut_down(&mut self, now: Now) -> bool {
        self.now = now;
        let reported = self.session.shut_down(now.monotonic_ms);
        self.serve();
        reported
    }

    /// A resource alarm was raised or cleared.
    pub fn on_alarm(&mut self, now: Now) {
        self.now = now;
        self.update_alarm();
        self.serve();
    }

    /// Updates whether the session blocks publishers.
    pub(crate) fn update_alarm(&mut self) {
        let alarm = self.directory.alarm();
        if std::mem::replace(&mut self.blocked, alarm.is_some()) != alarm.is_some() {
            self.event(match alarm {
                Some(reason) => amqp::Event::Blocked(ShortStr::from_static(reason)),
                None => amqp::Event::Unblocked,
            });
        }
    }

    /// Takes complete frames from `input` and leaves the rest.
    pub fn on_bytes(&mut self, input: &mut BytesMut, now: Now) {
        self.now = now;
        loop {
            let before = input.len();
            self.session.on_bytes(input, now.monotonic_ms);
            self.serve();
            // A reply may allow further frames: larger ones once the frame size is negotiated.
            if input.is_empty() || input.len() == before || !self.takes_input() {
                return;
            }
        }
    }

    /// Whether more input can be processed now.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.takes_input() && self.batch.unanswered_bytes < UNANSWERED_BYTES_MAX && !self.is_in_flow()
    }

    fn takes_input(&self) -> bool {
        self.session.wants_input() && self.unfinished().is_none() && self.takes_targets()
    }

    /// Returns the next request for the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// Handles a reply of the broker.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.now = now;
        self.changing.remove(&token);
        if let Some(waits) = self.waiting.remove(&token) {
            self.resume(waits, reply);
        }
        self.serve();
    }

    /// Handles an event of the broker.
    pub fn on_event(&mut self, event: Event, now: Now) {
        self.now = now;
        match event {
            Event::Deliver(deliveries) => self.deliver(deliveries),
            Event::Detached(consumer) => self.detached(consumer),
            Event::Changed(_) | Event::Dead(_) => {}
        }
        self.serve();
    }

    /// Moves all output to the end of `out`. Whether there was any.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>, now: Now) -> bool {
        self.now = now;
        let some = self.session.poll_output(out, now.monotonic_ms);
        if some {
            self.give_credit();
            self.serve();
        }
        some
    }

    /// When [`Connection::on_deadline`] must be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let later = self.later.iter().map(|(at, _)| *at).min();
        [self.session.next_deadline_ms(), later, self.acks_due_ms, self.credit_due_ms].into_iter().flatten().min()
    }

    /// Handles deadlines that have passed.
    pub fn on_deadline(&mut self, now: Now) {
        self.now = now;
        self.session.on_deadline(now.monotonic_ms);
        self.directory.count_late_bodies(self.session.take_late_bodies());
        if self.credit_due_ms.is_some_and(|at| at <= now.monotonic_ms) {
            self.credit_due_ms = None;
            // Credit follows writes. Pending credit is granted when the client reads again, and its time starts then.
            if !self.session.has_output() {
                self.give_all_credit();
            }
        }
        if self.acks_due_ms.is_some_and(|at| at <= now.monotonic_ms) {
            self.check_late_acks();
        }
        for (at, waits) in std::mem::take(&mut self.later) {
            if at <= now.monotonic_ms {
                self.again(waits);
            } else {
                self.later.push_back((at, waits));
            }
        }
        self.serve();
    }

    /// The connection is idle: releases unused memory.
    pub fn release_buffers(&mut self) {
        self.session.release_memory();
        self.requests.shrink_to_fit();
        self.waiting.shrink_to_fit();
        self.later.shrink_to_fit();
        self.owing.shrink_to_fit();
        self.batch.release_memory();
        self.turn.release_memory();
        self.scratch = Scratch::default();
    }

    /// The authenticated user.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        Some(&*self.user).filter(|user| !user.is_empty())
    }

    /// Why the connection has to be closed now.
    #[must_use]
    pub fn close_reason(&self) -> Option<String> {
        self.session.close_reason().map(|reason| format!("{reason:?}"))
    }

    /// The socket is closed: returns the last request for the broker. Its reply is ignored.
    pub fn on_closed(&mut self) -> Option<(Token, Request)> {
        if self.user.is_empty() {
            return None;
        }
        // Work that was not taken yet is dropped.
        self.turn.work.clear();
        // No later attempt will be made by this connection.
        let auto_deletes = self.waiting.values().filter_map(|waits| match waits {
            Waits::AutoDelete(queue, _) => Some(*queue),
            _ => None,
        });
        self.directory.consumers_left(auto_deletes);
        if std::mem::replace(&mut self.closed, true) {
            return None;
        }
        let queues: Vec<_> = self.channels.values().flat_map(|open| open.consumers.values()).collect();
        queues.iter().for_each(|consumer| consumer.entry.used(self.now));
        self.directory.consumers_left(queues.iter().map(|consumer| consumer.entry.queue.id));
        let who = ModelCaller { owner: owner(self.id), ..ModelCaller::broker() };
        let gone = AmqpRequest::Do(who, Box::new(Command::OwnerGone(owner(self.id))));
        self.next_token += 1;
        Some((self.next_token, Request::Machine(MachineId::AMQP, Box::new(gone))))
    }

    /// Processes requests of the session, and sends publishes to the broker.
    pub(crate) fn serve(&mut self) {
        while self.takes_requests() {
            match self.session.poll_request() {
                Some((_, amqp::Request::Publish(channel, publish))) => self.publish(channel, publish),
                Some((token, request)) => self.serve_one(token, request),
                None => break,
            }
        }
        self.flush_batch();
    }

    /// Processes a request other than a publish.
    fn serve_one(&mut self, token: Token, request: amqp::Request) {
        self.turn.charge(REQUEST_STEPS);
        // Earlier publishes must be visible to later requests.
        self.flush_batch();
        match self.slow_matches(&request) {
            slow if slow.is_empty() => self.begin(token, request),
            slow => self.turn.work.push_back(Work::Match(slow, token, Box::new(request))),
        }
    }

    /// Sends a request to the broker and records the pending operation.
    pub(crate) fn ask(&mut self, request: Request, waits: Waits) {
        self.next_token += 1;
        self.waiting.insert(self.next_token, waits);
        self.requests.push_back((self.next_token, request));
    }

    /// Sends a request whose reply, if any, is ignored.
    pub(crate) fn notify_broker(&mut self, request: Request) {
        self.next_token += 1;
        self.requests.push_back((self.next_token, request));
    }

    pub(crate) fn ask_machine(&mut self, ask: AmqpRequest, waits: Waits) {
        self.ask(Request::Machine(MachineId::AMQP, Box::new(ask)), waits);
    }

    /// Requests a change of the metadata.
    pub(crate) fn change(&mut self, command: Command, waits: Waits) {
        let who = self.who();
        self.ask_machine(AmqpRequest::Do(who, Box::new(command)), waits);
        self.changing.insert(self.next_token);
    }

    pub(crate) fn who(&self) -> ModelCaller {
        let user = (!self.is_operator).then(|| self.user.clone());
        ModelCaller { user, owner: owner(self.id), grants: self.grants() }
    }

    pub(crate) fn reply(&mut self, token: Token, reply: amqp::Reply) {
        match &mut self.captured {
            Some(captured) => captured.push_back(PrincipalOutput::Reply(reply)),
            None => self.session.on_reply(token, reply, self.now.monotonic_ms),
        }
    }

    pub(crate) fn event(&mut self, event: amqp::Event) {
        match &mut self.captured {
            Some(captured) => captured.push_back(PrincipalOutput::Event(event)),
            None => self.session.on_event(event, self.now.monotonic_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarm::Resource;
    use crate::machine::AmqpMachine;
    use crate::testing::{Topics, World};
    use parking_lot::Mutex;
    use polylogue_amqp::request::Credentials;
    use polylogue_amqp_model::{Hashing, Limits, PasswordHash, PutUser};
    use polylogue_auth::{
        Acl, AclFilter, Claim, Mechanism, Operation, PatternKind, Permission, ResourceKind, SERVER_NONCE_BYTES,
        ScramCredential, ScramMechanism, ScramUser, Ticket, Turn,
    };

    /// A publisher that was faster than the disk filled the log's queue, and all writes were refused.
    #[test]
    fn a_publisher_at_its_unanswered_limit_is_not_read() {
        let directory = AmqpMachine::new(Limits::default()).directory();
        let now = Now::default();
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, now);
        connection.publish_counted(Vec::new(), Vec::new(), UNANSWERED_BYTES_MAX - 1, 0);
        assert!(connection.wants_input());
        connection.publish_counted(Vec::new(), Vec::new(), 1, 0);
        assert!(!connection.wants_input());
        let (token, _) = connection.poll_request().expect("a request");
        connection.on_reply(token, Reply::Publish(Vec::new()), now);
        assert!(connection.wants_input());
    }

    /// RabbitMQ asks only those of its backends whose logins expire, which its own does not. Each new secret used to be refused here.
    #[test]
    fn a_login_that_does_not_expire_needs_no_new_secret() {
        let directory = AmqpMachine::new(Limits::default()).directory();
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, Now::default());
        connection.captured = Some(VecDeque::new());
        connection.begin(1, amqp::Request::UpdateSecret("new".into()));
        let captured = connection.captured.take().expect("no session");
        assert!(matches!(captured.front(), Some(PrincipalOutput::Reply(amqp::Reply::Done))), "{captured:?}");
    }

    /// Shovels have no password: no other connection may be without one, and a user keeps the user's permissions.
    #[test]
    fn an_internal_connection_keeps_its_identity() {
        let mut world = World::new();
        world.act(Command::PutVhost(polylogue_amqp_model::PutVhost { name: "other".into(), ..Default::default() }));
        let credentials = || Credentials::Password { user: "x".into(), password: "y".into() };
        for (identity, asked) in [(InternalIdentity::Operator, false), (InternalIdentity::User("guest".into()), true)] {
            let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
            let connection = Connection::new(Arc::default(), directory, topics, 9, false, 1, Now::default());
            let captured = Some(VecDeque::new());
            let mut connection = Connection { captured, ..connection.authenticated_as(identity.clone()) };
            connection.begin(1, amqp::Request::Authenticate(credentials()));
            let captured = connection.captured.as_mut().and_then(VecDeque::pop_front);
            let Some(PrincipalOutput::Reply(amqp::Reply::Authenticated { impersonator, .. })) = captured else {
                panic!("{captured:?}")
            };
            assert_eq!(impersonator, identity == InternalIdentity::Operator);
            assert_eq!(connection.who().user.is_none(), identity == InternalIdentity::Operator);
            // What is committed lets the user into one, the metadata decides about the other; the operator may.
            for (vhost, decides) in [("/", false), ("other", asked)] {
                connection.begin(2, amqp::Request::OpenVhost(vhost.into()));
                assert_eq!(connection.poll_request().is_some(), decides, "{identity:?} {vhost}");
                if !decides {
                    assert_eq!(refused(&mut connection), None);
                    assert_eq!(&*connection.vhost_name, vhost);
                }
            }
            connection.begin(2, amqp::Request::OpenVhost("none".into()));
            if !asked {
                assert!(refused(&mut connection).is_some_and(|why| why.contains("none")));
            }
            assert!(connection.on_closed().is_some(), "its exclusive queues are deleted");
        }
    }

    /// The first user's password is public.
    #[test]
    fn the_first_user_logs_in_from_this_machine_only() {
        let mut world = World::new();
        let password = PasswordHash::of(Hashing::Sha256, [1; 4], b"guest");
        let other =
            PutUser { name: "other".into(), password: Some(password), scram: Vec::new(), tags: Some(Vec::new()) };
        world.act(Command::PutUser(other));
        for (user, password, is_local, is_in) in [
            ("guest", "guest", true, true),
            ("guest", "guest", false, false),
            ("other", "guest", false, true),
            ("other", "Guest", false, false),
            ("other", "", true, false),
            ("unknown", "guest", true, false),
        ] {
            let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
            let connection = Connection::new(Arc::default(), directory, topics, 7, is_local, 1, Now::default());
            let mut connection = Connection { captured: Some(VecDeque::new()), ..connection };
            let credentials = Credentials::Password { user: user.into(), password: password.into() };
            connection.begin(1, amqp::Request::Authenticate(credentials));
            match connection.captured.as_mut().and_then(VecDeque::pop_front) {
                Some(PrincipalOutput::Reply(amqp::Reply::Authenticated { user: name, .. })) => {
                    assert!(is_in && name == user && &*connection.user == user, "{user}, local: {is_local}");
                }
                Some(PrincipalOutput::Reply(amqp::Reply::Refused(_))) => assert!(!is_in, "{user}, local: {is_local}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// It could log in with Kafka's protocol and at polylogue's API, by a password and by SCRAM, and could not be kept out of AMQP.
    #[test]
    fn the_first_user_logs_in_over_amqp_only_and_where_that_is_allowed() {
        let mut world = World::new();
        let scram = ScramCredential::of(ScramMechanism::Sha256, b"guest", Bytes::from_static(&[7; 16]), 4_096);
        let user = |name: &str| PutUser {
            name: name.into(),
            password: Some(PasswordHash::of(Hashing::Sha256, [1; 4], b"guest")),
            scram: vec![scram.clone().expect("a credential")],
            tags: None,
        };
        world.act(Command::PutUser(user("guest")));
        world.act(Command::PutUser(user("other")));
        for (name, is_in) in [("guest", false), ("other", true)] {
            let claim = Claim { name, address: std::net::Ipv4Addr::LOCALHOST.into() };
            let directory = &world.directory;
            assert_eq!(directory.is_password(&claim, b"guest"), is_in, "{name}");
            assert_eq!(directory.scram(&claim, ScramMechanism::Sha256).is_some(), is_in, "{name}");
            assert_eq!(directory.password_fingerprint(&claim).is_some(), is_in, "{name}");
        }
        let rule = crate::GuestRule { is_made: false, may_log_in: false };
        let machine = AmqpMachine::new(Limits::default()).with_guest(rule);
        assert!(!machine.directory().lets_guest() && world.directory.lets_guest());
    }

    /// A user who could declare a queue could write to every topic of Kafka through it, and read every one through an exchange.
    #[test]
    fn access_to_kafka_topics_needs_permission() {
        let mut world = World::new();
        let no_tags = PutUser { name: "ann".into(), password: None, scram: Vec::new(), tags: Some(Vec::new()) };
        world.act(Command::PutUser(no_tags));
        let serde_json::Value::Object(named) = serde_json::json!({"x-polylogue-topic": "orders"}) else { panic!() };
        let named = polylogue_amqp_model::arguments_of_json(&named).expect("arguments");
        let check = |world: &World, user: &str, operation| {
            let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
            let connection = Connection::new(Arc::default(), directory, topics, 9, true, 1, Now::default());
            let connection = Connection { user: user.into(), ..connection };
            connection.check_topic(&[], operation).expect("no topic is named");
            connection.check_topic(&named, operation).map_err(|why| why.text)
        };
        assert_eq!(check(&world, "guest", Operation::Write), Ok(()));
        let text = |verb| Err(format!("{verb} access to topic 'orders' refused for user 'ann'"));
        assert_eq!(check(&world, "ann", Operation::Write), text("write"));
        let write = Acl {
            kind: ResourceKind::Topic,
            name: "orders".to_owned(),
            pattern: PatternKind::Literal,
            principal: "User:ann".to_owned(),
            host: "*".to_owned(),
            operation: Operation::Write,
            permission: Permission::Allow,
        };
        world.act(Command::CreateAcls(vec![write.clone()]));
        assert_eq!(check(&world, "ann", Operation::Write), Ok(()));
        assert_eq!(check(&world, "ann", Operation::Read), text("read"));
        let exactly = AclFilter { name: Some("orders".to_owned()), ..AclFilter::EVERYTHING };
        world.act(Command::DeleteAcls(vec![exactly]));
        assert_eq!(check(&world, "ann", Operation::Write), text("write"));
        let no_administrator =
            PutUser { name: "guest".into(), password: None, scram: Vec::new(), tags: Some(Vec::new()) };
        world.act(Command::PutUser(no_administrator));
        assert_eq!(check(&world, "guest", Operation::Write).map_err(|_| ()), Err(()), "the tag was removed");
    }

    /// Delays failed logins by 70 ms, and records logins and the wait of the next one.
    #[derive(Debug)]
    struct Slow(Mutex<Vec<String>>, Mutex<u64>);
    impl Authority for Slow {
        fn scram(&self, _: &Claim<'_>, _: ScramMechanism) -> Option<ScramCredential> {
            None
        }
        fn is_password(&self, _: &Claim<'_>, _: &[u8]) -> bool {
            false
        }
        fn is_administrator(&self, _: &str) -> bool {
            false
        }
        fn scram_users(&self, _: Option<&[&str]>) -> Vec<ScramUser> {
            Vec::new()
        }
        fn nonce(&self) -> [u8; SERVER_NONCE_BYTES] {
            [0; SERVER_NONCE_BYTES]
        }
        fn secret(&self) -> &[u8] {
            &[]
        }
        fn turn(&self, _: &Claim<'_>, _: &mut Ticket) -> Turn {
            match *self.1.lock() {
                0 => Turn::Now,
                u64::MAX => Turn::Refused,
                ms => Turn::After(ms),
            }
        }
        fn failed(&self, claim: &Claim<'_>, mechanism: Mechanism, why: &str) -> u64 {
            self.0.lock().push(format!("{} {} {why}", claim.name, mechanism.name()));
            70
        }
        fn succeeded(&self, claim: &Claim<'_>, mechanism: Mechanism) {
            self.0.lock().push(format!("{} {}", claim.name, mechanism.name()));
        }
    }

    /// Regression test: password guesses were answered immediately, any number of times.
    #[test]
    fn a_failed_login_is_answered_after_a_delay() {
        let world = World::new();
        let slow = Arc::new(Slow(Mutex::default(), Mutex::default()));
        let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
        let connection = Connection::new(Arc::default(), directory, topics, 7, true, 1, Now::default());
        let connection = connection.watched_by(slow.clone());
        let mut connection = Connection { captured: Some(VecDeque::new()), ..connection };
        let mut log_in = |password: &'static str| {
            let credentials = Credentials::Password { user: "guest".into(), password: password.into() };
            connection.begin(1, amqp::Request::Authenticate(credentials));
            let at_once = connection.captured.as_mut().and_then(VecDeque::pop_front);
            let due = connection.next_deadline_ms().filter(|_| at_once.is_none());
            connection.on_deadline(Now { monotonic_ms: due.unwrap_or(0), wall_ms: 0 });
            (due, at_once.or_else(|| connection.captured.as_mut().and_then(VecDeque::pop_front)))
        };
        let (due, reply) = log_in("wrong");
        assert!(
            due == Some(70) && matches!(reply, Some(PrincipalOutput::Reply(amqp::Reply::Refused(_)))),
            "{due:?} {reply:?}"
        );
        let (due, reply) = log_in("guest");
        assert!(
            due.is_none() && matches!(reply, Some(PrincipalOutput::Reply(amqp::Reply::Authenticated { .. }))),
            "{reply:?}"
        );
        assert_eq!(*slow.0.lock(), ["guest PLAIN the name or the password is wrong", "guest PLAIN"]);
        // A client that did not wait for the answer had its next attempt checked immediately.
        *slow.1.lock() = 30;
        let wrong = Credentials::Password { user: "guest".into(), password: "x".into() };
        connection.begin(1, amqp::Request::Authenticate(wrong));
        for at_ms in [30, 60] {
            assert_eq!((connection.next_deadline_ms(), slow.0.lock().len()), (Some(at_ms), 2), "it is not checked");
            *slow.1.lock() = if at_ms == 30 { 30 } else { 0 };
            connection.on_deadline(Now { monotonic_ms: at_ms, wall_ms: 0 });
        }
        assert_eq!((connection.next_deadline_ms(), slow.0.lock().len()), (Some(60 + 70), 3));
        // An attempt that is pushed out of the queue is answered immediately.
        *slow.1.lock() = u64::MAX;
        let right = Credentials::Password { user: "guest".into(), password: "guest".into() };
        connection.begin(2, amqp::Request::Authenticate(right));
        assert!(refused(&mut connection).is_some_and(|why| why.contains("ACCESS_REFUSED")));
        assert_eq!(slow.0.lock().len(), 3, "it is not checked");
    }

    fn refused(connection: &mut Connection) -> Option<String> {
        match connection.captured.as_mut().expect("no session").pop_front() {
            Some(PrincipalOutput::Reply(amqp::Reply::Refused(why))) => Some(why.reply_text().to_string()),
            Some(PrincipalOutput::Reply(amqp::Reply::Done)) => None,
            other => panic!("{other:?}"),
        }
    }

    /// A connection whose user is known, before its virtual host is opened.
    fn before_open(world: &World, id: u64, settings: AmqpSettings) -> Connection {
        let at = std::net::SocketAddr::from(([127, 0, 0, 1], 5672));
        let ends = Ends { peer: at, local: at };
        let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
        let connection = Connection::new(Arc::new(settings), directory, topics, id, true, 1, Now::default());
        let captured = Some(VecDeque::new());
        Connection { user: "guest".into(), captured, ..connection.between(ends) }
    }

    fn open_vhost(world: &World, connection: &mut Connection) -> Option<String> {
        let answer = crate::machine::AmqpAnswer::Vhost(world.vhost);
        connection.resume(Waits::Vhost(1, "/".into()), Reply::Machine(Ok(Box::new(answer))));
        refused(connection)
    }

    fn open_channel(connection: &mut Connection, number: u16) -> Option<String> {
        connection.begin(1, amqp::Request::OpenChannel(ChannelRef { number, life: 1 }));
        refused(connection)
    }

    #[test]
    fn limits_of_virtual_hosts_users_and_the_node_apply_to_new_connections() {
        use polylogue_amqp_model::{UserLimit, VhostLimit};
        let mut world = World::new();
        world.act(Command::SetVhostLimit("/".into(), VhostLimit::Connections, Some(2)));
        let settings = AmqpSettings { channels_max: 4, ..AmqpSettings::default() };
        let mut open = Vec::new();
        for id in 0..2 {
            let mut connection = before_open(&world, id, settings.clone());
            assert_eq!(open_vhost(&world, &mut connection), None);
            open.push(connection);
        }
        let mut third = before_open(&world, 3, settings.clone());
        let why = "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (2) is reached";
        assert_eq!(open_vhost(&world, &mut third).as_deref(), Some(why));
        world.act(Command::SetVhostLimit("/".into(), VhostLimit::Connections, Some(-1)));
        world.act(Command::SetUserLimit("guest".into(), UserLimit::Connections, Some(2)));
        let why = "NOT_ALLOWED - Connection refused for user 'guest': user connection limit (2) is reached";
        assert_eq!(open_vhost(&world, &mut third).as_deref(), Some(why));
        drop(open.pop());
        assert_eq!(open_vhost(&world, &mut third), None, "one has disconnected");
        world.act(Command::SetUserLimit("guest".into(), UserLimit::Channels, Some(2)));
        assert_eq!((open_channel(&mut third, 1), open_channel(&mut open[0], 1)), (None, None));
        let why = "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of (2)";
        assert_eq!(open_channel(&mut third, 2).as_deref(), Some(why));
        world.act(Command::SetUserLimit("guest".into(), UserLimit::Channels, None));
        assert_eq!((open_channel(&mut third, 2), open_channel(&mut third, 3)), (None, None));
        let why =
            "NOT_ALLOWED - number of channels opened on node 'polylogue@1' has reached the maximum allowed limit of 4";
        assert_eq!(open_channel(&mut third, 4).as_deref(), Some(why));
        third.begin(1, amqp::Request::CloseChannel(ChannelRef { number: 3, life: 1 }));
        assert_eq!((refused(&mut third), open_channel(&mut third, 4)), (None, None));
    }

    #[test]
    fn connections_are_notified_once_of_an_alarm() {
        let world = World::new();
        let mut connection = before_open(&world, 1, AmqpSettings::default());
        assert_eq!(open_vhost(&world, &mut connection), None);
        let events = |connection: &mut Connection| {
            let captured = connection.captured.as_mut().expect("no session").drain(..);
            captured.map(|captured| format!("{captured:?}")).collect::<Vec<_>>()
        };
        assert!(world.directory.set_alarm(Resource::Disk, true));
        connection.on_alarm(Now::default());
        connection.on_alarm(Now::default());
        let captured = events(&mut connection);
        assert!(captured.len() == 1 && captured[0].contains("low on disk"), "{captured:?}");
        let mut late = before_open(&world, 2, AmqpSettings::default());
        assert_eq!(open_vhost(&world, &mut late), None);
        assert_eq!(events(&mut late).len(), 1);
        world.directory.set_alarm(Resource::Memory, true);
        world.directory.set_alarm(Resource::Disk, false);
        connection.on_alarm(Now::default());
        assert_eq!(events(&mut connection), [""; 0], "it still waits");
        world.directory.set_alarm(Resource::Memory, false);
        connection.on_alarm(Now::default());
        assert_eq!(events(&mut connection), ["Event(Unblocked)"]);
    }
}
