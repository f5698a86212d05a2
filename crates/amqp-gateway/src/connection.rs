//! One connection of an AMQP client: the session, its channels as the broker sees them, and what they wait for.

use crate::counts::Tally;
use crate::deliver::{Cancelled, Consumer, Pull};
use crate::directory::Directory;
use crate::login::TokenRights;
use crate::machine::{AmqpAsk, owner};
use crate::management::Said;
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
use polylogue_amqp_model::{Caller as Who, Command};
use polylogue_api::{Catalog, ConsumerId, Event, MachineId, Now, Reply, Request, Token};
use polylogue_auth::Authority;
use polylogue_router::{Scratch, VhostId};
use polylogue_types::{Chunk, Map, PartitionId, SharedLimit};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// A channel as the broker sees it.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) consumers: Map<ConsumerRef, Consumer>,
    /// Those that take messages one by one (`basic.get`), by queue and whether they settle by it.
    pub(crate) pulls: Map<(PartitionId, bool), Pull>,
    /// How many deliveries of all consumers together may wait for their settlement; 0 for any number.
    pub(crate) qos: u16,
    /// That as the broker keeps it, over all queues; from the first time on that there is a limit.
    pub(crate) limit: Option<Arc<SharedLimit>>,
    /// Consumers that were cancelled, as long as the client has something to settle for them.
    pub(crate) cancelled: Map<ConsumerRef, Cancelled>,
    pub(crate) replies: Option<Replies>,
    /// Something was published on it.
    pub(crate) publishes: bool,
}

impl Channel {
    /// The broker's name for who gets messages under this number.
    pub(crate) fn id_of(&self, consumer: ConsumerRef) -> Option<ConsumerId> {
        let replies = self.replies.as_ref().filter(|replies| replies.consumer == consumer).map(|replies| replies.id);
        self.consumers.get(&consumer).map(|consumer| consumer.id).or(replies)
    }
}

/// Who is at the other end of a connection inside of this process, and has to prove nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Insider {
    /// Whoever runs the broker, who may do everything.
    Operator,
    /// A user, with the user's permissions.
    User(ByteString),
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    pub(crate) session: Session,
    pub(crate) settings: Arc<AmqpSettings>,
    pub(crate) id: u64,
    /// The client is on this machine, and so is all that reaches the listener.
    pub(crate) is_local: bool,
    /// From where somebody asks who has no connection.
    pub(crate) asks_from: Option<IpAddr>,
    /// Who is told of logins, and says how long one that failed has to wait for its answer.
    pub(crate) authority: Option<Arc<dyn Authority>>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) user: ByteString,
    /// What it may do, where it logged in by a token.
    pub(crate) token: Option<TokenRights>,
    /// Nobody in particular, who may do everything: the operator of this broker.
    pub(crate) is_operator: bool,
    /// Who it is, whatever the client says when it logs in.
    pub(crate) insider: Option<Insider>,
    /// Who the client is by its certificate.
    pub(crate) certificate: Option<ByteString>,
    /// What is published is in all of its queues or, where one is full, in none ([`polylogue_api::PublishMessage::all_or_none`]).
    pub(crate) all_or_none: bool,
    pub(crate) vhost: VhostId,
    pub(crate) vhost_name: ByteString,
    pub(crate) channels: Map<ChannelRef, Channel>,
    pub(crate) consumers: Map<ConsumerId, (ChannelRef, ConsumerRef)>,
    pub(crate) waiting: Map<Token, Waits>,
    /// What is looked at again, and when. Monotonic milliseconds.
    pub(crate) later: VecDeque<(u64, Waits)>,
    /// No acknowledgement is late before. Monotonic milliseconds.
    pub(crate) acks_due_ms: Option<u64>,
    /// A consumer could not be given what it is owed, because its channel has had as many deliveries as it may.
    pub(crate) is_starved: bool,
    /// Consumers that are owed credit, each once.
    pub(crate) owing: VecDeque<(ChannelRef, ConsumerRef)>,
    /// When they get it, however little it is. Monotonic milliseconds.
    pub(crate) credit_due_ms: Option<u64>,
    pub(crate) batch: Batch,
    pub(crate) turn: Turn,
    /// What is counted of its messages.
    pub(crate) tally: Tally,
    /// The channel on which something was published last.
    pub(crate) publisher: Option<ChannelRef>,
    pub(crate) scratch: Scratch,
    /// Exchanges that the user may publish to, by rights of this number: at most [`crate::publish::ALLOWED_MAX`].
    pub(crate) allowed: (u64, Map<Bytes, ()>),
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    pub(crate) now: Now,
    closed: bool,
    /// Where the connection comes from, where that is to be shown.
    pub(crate) ends: Option<Ends>,
    /// What listings show of it, once it is in a virtual host.
    pub(crate) shown: Option<Entry>,
    /// The session knows that publishers are to wait.
    blocked: bool,
    /// What a session would be told, where there is none behind this connection.
    pub(crate) said: Option<VecDeque<Said>>,
}

impl Connection {
    /// A connection that has just been made; `id` is its own for the life of the process, `seed` a number that nobody can guess. The first
    /// user may log in only where `is_local`: the client has a loopback address, and the listener too.
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
            insider: None,
            certificate: None,
            all_or_none: false,
            vhost: VhostId(0),
            vhost_name: ByteString::new(),
            channels: Map::default(),
            consumers: Map::default(),
            waiting: Map::default(),
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
            said: None,
        }
    }

    /// The same connection, shown in listings as one between these ends.
    #[must_use]
    pub fn between(self, ends: Ends) -> Connection {
        Connection { ends: Some(ends), ..self }
    }

    /// The same connection, whose logins are told to somebody who slows down those that fail.
    #[must_use]
    pub fn watched_by(self, authority: Arc<dyn Authority>) -> Connection {
        Connection { authority: Some(authority), ..self }
    }

    /// The same connection, of a client whose certificate says who it is: it may log in by that (`EXTERNAL`).
    #[must_use]
    pub fn certified_as(self, name: &str) -> Connection {
        Connection { certificate: Some(name.into()), ..self }
    }

    /// The same connection, of somebody inside of this process: whatever the client says when it logs in is right.
    #[must_use]
    pub fn of(self, insider: Insider) -> Connection {
        Connection { insider: Some(insider), ..self }
    }

    /// Somebody wants it to end: the client is told so, and why.
    pub fn end(&mut self, why: &str, now: Now) {
        self.now = now;
        self.event(amqp::Event::CloseConnection(Refusal::forced(why)));
        self.serve();
    }

    /// The server stops. Whether the client is told so, and given time to answer; else there is nothing to wait for.
    pub fn shut_down(&mut self, now: Now) -> bool {
        self.now = now;
        let told = self.session.shut_down(now.monotonic_ms);
        self.serve();
        told
    }

    /// Publishers are to wait for room on the disk or for memory, or no longer.
    pub fn on_alarm(&mut self, now: Now) {
        self.now = now;
        self.look_at_alarm();
        self.serve();
    }

    /// Tells the session when it is to hold back what its client publishes.
    pub(crate) fn look_at_alarm(&mut self) {
        let alarm = self.directory.alarm();
        if std::mem::replace(&mut self.blocked, alarm.is_some()) != alarm.is_some() {
            self.event(match alarm {
                Some(reason) => amqp::Event::Blocked(ShortStr::from_static(reason)),
                None => amqp::Event::Unblocked,
            });
        }
    }

    /// Takes whole frames from `input` and leaves the rest there.
    pub fn on_bytes(&mut self, input: &mut BytesMut, now: Now) {
        self.now = now;
        loop {
            let before = input.len();
            self.session.on_bytes(input, now.monotonic_ms);
            self.serve();
            // A frame may be allowed by what was answered: larger ones are once the client has agreed on a size.
            if input.is_empty() || input.len() == before || !self.takes_input() {
                return;
            }
        }
    }

    /// Whether more input could be used now.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.takes_input() && self.batch.unanswered_bytes < UNANSWERED_BYTES_MAX && !self.is_in_flow()
    }

    fn takes_input(&self) -> bool {
        self.session.wants_input() && self.unfinished().is_none() && self.takes_targets()
    }

    /// The next thing to ask the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// The broker's answer.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.now = now;
        if let Some(waits) = self.waiting.remove(&token) {
            self.resume(waits, reply);
        }
        self.serve();
    }

    /// What the broker says later.
    pub fn on_event(&mut self, event: Event, now: Now) {
        self.now = now;
        match event {
            Event::Deliver(deliveries) => self.deliver(deliveries),
            Event::Detached(consumer) => self.detached(consumer),
            Event::Changed(_) | Event::Dead(_) => {}
        }
        self.serve();
    }

    /// Moves all that is to be written to the end of `out`. Whether there was anything.
    pub fn poll_output(&mut self, out: &mut Vec<Chunk>, now: Now) -> bool {
        self.now = now;
        let some = self.session.poll_output(out, now.monotonic_ms);
        if some {
            self.give_credit();
            self.serve();
        }
        some
    }

    /// When [`Connection::on_deadline`] wants to be called. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let later = self.later.iter().map(|(at, _)| *at).min();
        [self.session.next_deadline_ms(), later, self.acks_due_ms, self.credit_due_ms].into_iter().flatten().min()
    }

    /// A deadline may have passed.
    pub fn on_deadline(&mut self, now: Now) {
        self.now = now;
        self.session.on_deadline(now.monotonic_ms);
        self.directory.bodies_were_late(self.session.take_late_bodies());
        if self.credit_due_ms.is_some_and(|at| at <= now.monotonic_ms) {
            self.credit_due_ms = None;
            // Credit is for what was written. What waits is taken when the client reads on, and its time begins then.
            if !self.session.has_output() {
                self.give_all_credit();
            }
        }
        if self.acks_due_ms.is_some_and(|at| at <= now.monotonic_ms) {
            self.look_for_late_acks();
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

    /// Nothing has come for a while: lets go of memory that is not used.
    pub fn rest(&mut self) {
        self.session.release_memory();
        self.requests.shrink_to_fit();
        self.waiting.shrink_to_fit();
        self.later.shrink_to_fit();
        self.owing.shrink_to_fit();
        self.batch.rest();
        self.turn.rest();
        self.scratch = Scratch::default();
    }

    /// Who has logged in.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        Some(&*self.user).filter(|user| !user.is_empty())
    }

    /// Why the connection is to be closed now.
    #[must_use]
    pub fn close_reason(&self) -> Option<String> {
        self.session.close_reason().map(|reason| format!("{reason:?}"))
    }

    /// The socket is gone: what the broker is to be told. Replies lead nowhere.
    pub fn on_closed(&mut self) -> Option<(Token, Request)> {
        if self.user.is_empty() {
            return None;
        }
        // What is not taken yet is not there.
        self.turn.work.clear();
        // Nobody will be there to try it again.
        let lonely = self.waiting.values().filter_map(|waits| match waits {
            Waits::Lonely(queue, _) => Some(*queue),
            _ => None,
        });
        self.directory.left_alone(lonely);
        if std::mem::replace(&mut self.closed, true) {
            return None;
        }
        let queues: Vec<_> = self.channels.values().flat_map(|open| open.consumers.values()).collect();
        queues.iter().for_each(|consumer| consumer.entry.used(self.now));
        self.directory.left_alone(queues.iter().map(|consumer| consumer.entry.queue.id));
        let who = Who { owner: owner(self.id), ..Who::broker() };
        let gone = AmqpAsk::Do(who, Box::new(Command::OwnerGone(owner(self.id))));
        self.next_token += 1;
        Some((self.next_token, Request::Machine(MachineId::Amqp, Box::new(gone))))
    }

    /// Does what the session asks for, and hands what was published to the broker.
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

    /// Does something else than publishing.
    fn serve_one(&mut self, token: Token, request: amqp::Request) {
        self.turn.charge(REQUEST_STEPS);
        // What was published before is there for what comes behind it.
        self.flush_batch();
        match self.not_matched(&request) {
            slow if slow.is_empty() => self.begin(token, request),
            slow => self.turn.work.push_back(Work::Match(slow, token, Box::new(request))),
        }
    }

    /// Asks the broker, and notes what waits for the answer.
    pub(crate) fn ask(&mut self, request: Request, waits: Waits) {
        self.next_token += 1;
        self.waiting.insert(self.next_token, waits);
        self.requests.push_back((self.next_token, request));
    }

    /// Tells the broker something that has no answer, or one that nobody waits for.
    pub(crate) fn tell(&mut self, request: Request) {
        self.next_token += 1;
        self.requests.push_back((self.next_token, request));
    }

    pub(crate) fn ask_machine(&mut self, ask: AmqpAsk, waits: Waits) {
        self.ask(Request::Machine(MachineId::Amqp, Box::new(ask)), waits);
    }

    /// Asks the declared world to change.
    pub(crate) fn change(&mut self, command: Command, waits: Waits) {
        let who = self.who();
        self.ask_machine(AmqpAsk::Do(who, Box::new(command)), waits);
    }

    pub(crate) fn who(&self) -> Who {
        let user = (!self.is_operator).then(|| self.user.clone());
        Who { user, owner: owner(self.id), grants: self.grants() }
    }

    pub(crate) fn reply(&mut self, token: Token, reply: amqp::Reply) {
        match &mut self.said {
            Some(said) => said.push_back(Said::Reply(reply)),
            None => self.session.on_reply(token, reply, self.now.monotonic_ms),
        }
    }

    pub(crate) fn event(&mut self, event: amqp::Event) {
        match &mut self.said {
            Some(said) => said.push_back(Said::Event(event)),
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

    /// A publisher that was faster than the disk filled the log's queue, and everybody's writes were refused.
    #[test]
    fn a_publisher_with_too_much_on_its_way_is_not_read_until_some_of_it_is_there() {
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

    /// RabbitMQ asks only those of its backends whose logins expire, and its own does not. Here each new secret was refused.
    #[test]
    fn a_login_that_does_not_expire_needs_no_new_secret() {
        let directory = AmqpMachine::new(Limits::default()).directory();
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, Now::default());
        connection.said = Some(VecDeque::new());
        connection.begin(1, amqp::Request::UpdateSecret("new".into()));
        let said = connection.said.take().expect("no session");
        assert!(matches!(said.front(), Some(Said::Reply(amqp::Reply::Done))), "{said:?}");
    }

    /// Shovels are somebody without a password: nobody else may be, and a user stays within the user's permissions.
    #[test]
    fn who_is_inside_is_who_it_is() {
        let mut world = World::new();
        world.act(Command::PutVhost(polylogue_amqp_model::PutVhost { name: "other".into(), ..Default::default() }));
        let credentials = || Credentials::Password { user: "x".into(), password: "y".into() };
        for (insider, asked) in [(Insider::Operator, false), (Insider::User("guest".into()), true)] {
            let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
            let connection = Connection::new(Arc::default(), directory, topics, 9, false, 1, Now::default());
            let said = Some(VecDeque::new());
            let mut connection = Connection { said, ..connection.of(insider.clone()) };
            connection.begin(1, amqp::Request::Authenticate(credentials()));
            let said = connection.said.as_mut().and_then(VecDeque::pop_front);
            let Some(Said::Reply(amqp::Reply::Authenticated { impersonator, .. })) = said else { panic!("{said:?}") };
            assert_eq!(impersonator, insider == Insider::Operator);
            assert_eq!(connection.who().user.is_none(), insider == Insider::Operator);
            for vhost in ["/", "other"] {
                connection.begin(2, amqp::Request::OpenVhost(vhost.into()));
                // The declared world says whether a user may; the operator may.
                assert_eq!(connection.poll_request().is_some(), asked, "{insider:?} {vhost}");
                if !asked {
                    assert_eq!(refused(&mut connection), None);
                    assert_eq!(&*connection.vhost_name, vhost);
                }
            }
            connection.begin(2, amqp::Request::OpenVhost("none".into()));
            if !asked {
                assert!(refused(&mut connection).is_some_and(|why| why.contains("none")));
            }
            assert!(connection.on_closed().is_some(), "its exclusive queues go with it");
        }
    }

    /// Everybody knows the first user's password.
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
            ("nobody", "guest", true, false),
        ] {
            let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
            let connection = Connection::new(Arc::default(), directory, topics, 7, is_local, 1, Now::default());
            let mut connection = Connection { said: Some(VecDeque::new()), ..connection };
            let credentials = Credentials::Password { user: user.into(), password: password.into() };
            connection.begin(1, amqp::Request::Authenticate(credentials));
            match connection.said.as_mut().and_then(VecDeque::pop_front) {
                Some(Said::Reply(amqp::Reply::Authenticated { user: name, .. })) => {
                    assert!(is_in && name == user && &*connection.user == user, "{user}, local: {is_local}");
                }
                Some(Said::Reply(amqp::Reply::Refused(_))) => assert!(!is_in, "{user}, local: {is_local}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// It logged in with Kafka's protocol and at polylogue's API, by a password and by SCRAM, and there was no way to keep it out of AMQP.
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
            assert_eq!(directory.password_mark(&claim).is_some(), is_in, "{name}");
        }
        let rule = crate::GuestRule { is_made: false, may_log_in: false };
        let machine = AmqpMachine::new(Limits::default()).with_guest(rule);
        assert!(!machine.directory().lets_guest() && world.directory.lets_guest());
    }

    /// Whoever could declare a queue could write to every topic of Kafka through it, and read every one through an exchange.
    #[test]
    fn a_topic_of_kafka_is_reached_by_who_may_reach_it() {
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
        assert_eq!(check(&world, "guest", Operation::Write).map_err(|_| ()), Err(()), "the tag is gone");
    }

    /// Whoever guesses passwords had an answer at once, again and again.
    #[test]
    fn a_login_that_failed_is_answered_after_a_while() {
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
        let world = World::new();
        let told = Arc::new(Slow(Mutex::default(), Mutex::default()));
        let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
        let connection = Connection::new(Arc::default(), directory, topics, 7, true, 1, Now::default());
        let connection = connection.watched_by(told.clone());
        let mut connection = Connection { said: Some(VecDeque::new()), ..connection };
        let mut log_in = |password: &'static str| {
            let credentials = Credentials::Password { user: "guest".into(), password: password.into() };
            connection.begin(1, amqp::Request::Authenticate(credentials));
            let at_once = connection.said.as_mut().and_then(VecDeque::pop_front);
            let due = connection.next_deadline_ms().filter(|_| at_once.is_none());
            connection.on_deadline(Now { monotonic_ms: due.unwrap_or(0), wall_ms: 0 });
            (due, at_once.or_else(|| connection.said.as_mut().and_then(VecDeque::pop_front)))
        };
        let (due, said) = log_in("wrong");
        assert!(due == Some(70) && matches!(said, Some(Said::Reply(amqp::Reply::Refused(_)))), "{due:?} {said:?}");
        let (due, said) = log_in("guest");
        assert!(due.is_none() && matches!(said, Some(Said::Reply(amqp::Reply::Authenticated { .. }))), "{said:?}");
        assert_eq!(*told.0.lock(), ["guest PLAIN the name or the password is wrong", "guest PLAIN"]);
        // And whoever did not wait for the answer had the next one looked at at once.
        *told.1.lock() = 30;
        let wrong = Credentials::Password { user: "guest".into(), password: "x".into() };
        connection.begin(1, amqp::Request::Authenticate(wrong));
        for at_ms in [30, 60] {
            assert_eq!((connection.next_deadline_ms(), told.0.lock().len()), (Some(at_ms), 2), "it is not looked at");
            *told.1.lock() = if at_ms == 30 { 30 } else { 0 };
            connection.on_deadline(Now { monotonic_ms: at_ms, wall_ms: 0 });
        }
        assert_eq!((connection.next_deadline_ms(), told.0.lock().len()), (Some(60 + 70), 3));
        // One that is pushed out of the line is told so at once.
        *told.1.lock() = u64::MAX;
        let right = Credentials::Password { user: "guest".into(), password: "guest".into() };
        connection.begin(2, amqp::Request::Authenticate(right));
        assert!(refused(&mut connection).is_some_and(|why| why.contains("ACCESS_REFUSED")));
        assert_eq!(told.0.lock().len(), 3, "it is not looked at");
    }

    fn refused(connection: &mut Connection) -> Option<String> {
        match connection.said.as_mut().expect("no session").pop_front() {
            Some(Said::Reply(amqp::Reply::Refused(why))) => Some(why.reply_text().to_string()),
            Some(Said::Reply(amqp::Reply::Done)) => None,
            other => panic!("{other:?}"),
        }
    }

    /// A connection whose user is known and whose virtual host is to be opened.
    fn arriving(world: &World, id: u64, settings: AmqpSettings) -> Connection {
        let at = std::net::SocketAddr::from(([127, 0, 0, 1], 5672));
        let ends = Ends { peer: at, local: at };
        let (directory, topics) = (world.directory.clone(), Arc::new(Topics));
        let connection = Connection::new(Arc::new(settings), directory, topics, id, true, 1, Now::default());
        let said = Some(VecDeque::new());
        Connection { user: "guest".into(), said, ..connection.between(ends) }
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
    fn limits_of_virtual_hosts_users_and_the_node_hold_for_who_comes() {
        use polylogue_amqp_model::{UserLimit, VhostLimit};
        let mut world = World::new();
        world.act(Command::SetVhostLimit("/".into(), VhostLimit::Connections, Some(2)));
        let settings = AmqpSettings { channels_max: 4, ..AmqpSettings::default() };
        let mut open = Vec::new();
        for id in 0..2 {
            let mut connection = arriving(&world, id, settings.clone());
            assert_eq!(open_vhost(&world, &mut connection), None);
            open.push(connection);
        }
        let mut third = arriving(&world, 3, settings.clone());
        let why = "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (2) is reached";
        assert_eq!(open_vhost(&world, &mut third).as_deref(), Some(why));
        world.act(Command::SetVhostLimit("/".into(), VhostLimit::Connections, Some(-1)));
        world.act(Command::SetUserLimit("guest".into(), UserLimit::Connections, Some(2)));
        let why = "NOT_ALLOWED - Connection refused for user 'guest': user connection limit (2) is reached";
        assert_eq!(open_vhost(&world, &mut third).as_deref(), Some(why));
        drop(open.pop());
        assert_eq!(open_vhost(&world, &mut third), None, "one has gone");
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
    fn who_is_connected_and_who_comes_hears_once_that_the_server_is_short_of_something() {
        let world = World::new();
        let mut connection = arriving(&world, 1, AmqpSettings::default());
        assert_eq!(open_vhost(&world, &mut connection), None);
        let events = |connection: &mut Connection| {
            let said = connection.said.as_mut().expect("no session").drain(..);
            said.map(|said| format!("{said:?}")).collect::<Vec<_>>()
        };
        assert!(world.directory.set_alarm(Resource::Disk, true));
        connection.on_alarm(Now::default());
        connection.on_alarm(Now::default());
        let said = events(&mut connection);
        assert!(said.len() == 1 && said[0].contains("low on disk"), "{said:?}");
        let mut late = arriving(&world, 2, AmqpSettings::default());
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
