//! Dead-letter cycles: messages moved by the gateway's own mover ([`DeadLetters`]) between queues declared as AMQP clients declare them, and their
//! `x-death` headers ([`book`]).
//!
//! ```text
//!              refused                        after 200 ms, or refused
//!   dying ────────────────▶ dead ──────────────────────────────────────▶ dying …
//!     └── settled: done with     └── settled: done with
//! ```
//!
//! There are two such pairs: quorum queues, which must not lose messages when they are moved, and classic ones. Consumers check the history of each
//! message. At the end each confirmed message that no consumer requested to settle is in one queue of its pair.

mod book;
mod history;

use self::book::Book;
use self::history::new_letter;
use crate::oracle::Oracle;
use crate::queues::{Order, Queues, Session, message};
use polylogue_amqp::codec::{TableBuilder, Value};
use polylogue_amqp_gateway::{AmqpAnswer, DeadLetters, Directory, MissingTopics, View, managed, topic_of, view};
use polylogue_amqp_model::{Command, DEFAULT_VHOST, DeclareQueue, decode_table};
use polylogue_api::{
    Ack, Attach, ConsumerId, ConsumerSpec, DeadMessage, Delivery, Event, Holder, PublishRequest, Reply, Request,
    Settle, SettleRequest, Settlement, Target, Token,
};
use polylogue_broker::{Broker, SessionId};
use polylogue_env::sim::SimRng;
use polylogue_router::QueueId;
use polylogue_types::PartitionId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The queues: a pair of quorum queues and a pair of classic ones, each with the queue where messages are rejected first.
const NAMES: [&str; 4] = ["dying", "dead", "dying too", "dead too"];
/// Message TTL in the second queue of a pair. Milliseconds.
const TTL_MS: u64 = 200;
/// The queue of each consumer. Most messages are to expire in the second queues.
const CONSUMERS: [usize; 4] = [0, 2, 1, 3];
/// Unconfirmed publishes.
const INFLIGHT_MAX: usize = 4;
/// Unsettled messages above which nothing is published, so that messages go round often.
const OPEN_MAX: usize = 8;
/// Seconds of the final phase.
const FINISH_S: u32 = 100;
/// Time without a dead message that ends the final phase: longer than the mover's retry delay. Seconds.
const QUIET_S: u32 = 8;

/// Returns the dead-letter target of a queue.
fn next_of(queue: usize) -> usize {
    queue ^ 1
}

/// Returns whether a queue receives dead-lettered messages only.
fn is_grave(queue: usize) -> bool {
    queue & 1 == 1
}

/// Returns the declaration of a queue.
fn declare(queue: usize, view: &View) -> Option<Request> {
    let name = |queue: usize| NAMES.get(queue).copied().unwrap_or_default();
    let mut arguments = TableBuilder::new()
        .with_text("x-dead-letter-exchange", "")
        .with_text("x-dead-letter-routing-key", name(next_of(queue)));
    if queue < 2 {
        arguments = arguments
            .with_text("x-queue-type", "quorum")
            .with_text("x-overflow", "reject-publish")
            .with_text("x-dead-letter-strategy", "at-least-once")
            .with("x-delivery-limit", Value::I64(-1));
    }
    if is_grave(queue) {
        arguments = arguments.with("x-message-ttl", Value::I64(TTL_MS as i64));
    }
    let declare = DeclareQueue {
        vhost: view.metadata.vhost_named(DEFAULT_VHOST)?.id,
        name: name(queue).into(),
        durable: true,
        arguments: decode_table(arguments.build().raw()).ok()?,
        ..DeclareQueue::default()
    };
    Some(managed(Command::DeclareQueue(declare)))
}

/// Declares the queues, and creates their topics.
#[derive(Debug)]
pub struct Setup {
    session: Session,
    missing: MissingTopics,
    topics: Session,
    declared: bool,
}

/// The gateway's mover, and its sessions.
#[derive(Debug)]
struct Mover {
    letters: DeadLetters,
    /// The session that receives dead messages.
    moves: SessionId,
    /// The session that publishes.
    session: Session,
    /// Pending publishes by token.
    open: BTreeMap<Token, Vec<(usize, u64)>>,
}

#[derive(Debug)]
struct Asked {
    rejects: bool,
    /// The messages to settle or reject.
    messages: Vec<(u64, String)>,
    /// The time, if all of them are held under the current writer, as far as is known.
    held_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Consumer {
    session: Option<Session>,
    id: Option<ConsumerId>,
    held: Vec<(Delivery, String)>,
    open: BTreeMap<Token, Asked>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Letters {
    directory: Option<Arc<Directory>>,
    queues: Vec<(QueueId, PartitionId)>,
    /// The writer of each queue at the last check since the node's start.
    writers: Option<[i32; NAMES.len()]>,
    book: Book,
    publisher: Option<Session>,
    /// Published texts by token.
    publishing: BTreeMap<Token, Vec<String>>,
    next: u64,
    mover: Option<Mover>,
    consumers: [Consumer; CONSUMERS.len()],
    order: Order,
    /// Requests sent.
    pub operations: u64,
}

impl Letters {
    /// Returns the number of actors to choose from.
    #[must_use]
    pub fn actors(&self) -> usize {
        2 + CONSUMERS.len()
    }

    /// Returns the number of deliveries with a correct history of messages that were dead-lettered in one queue more than once.
    #[must_use]
    pub fn histories_checked(&self) -> u64 {
        self.book.checked
    }

    /// Handles a start of the node; its sessions use this directory.
    pub fn new_life(&mut self, directory: Arc<Directory>) {
        self.directory = Some(directory);
    }

    /// Handles a crash of the node: pending requests have an unknown outcome.
    pub fn lost_connections(&mut self) {
        (self.publisher, self.mover, self.consumers) = Default::default();
        self.publishing.clear();
        self.writers = None;
        self.book.crashed();
    }

    /// Declares the queues, step by step. Returns whether they and their topics exist.
    pub fn set_up(&mut self, setup: &mut Option<Setup>, broker: &Broker) -> bool {
        let Some(directory) = self.directory.clone().filter(|directory| directory.has_begun()) else { return false };
        let Setup { session, missing, topics, declared } = setup.get_or_insert_with(|| {
            let mut session = Session::new(broker, &self.order);
            session.ask(broker, view());
            let missing = MissingTopics::new(directory.clone(), broker.catalog());
            Setup { session, missing, topics: Session::new(broker, &self.order), declared: false }
        });
        for (_, _, reply) in session.replies() {
            let Reply::Machine(Ok(answer)) = reply else { continue };
            let Ok(answer) = answer.downcast::<AmqpAnswer>() else { continue };
            let AmqpAnswer::View(view) = *answer else { continue };
            if !std::mem::replace(declared, true) {
                (0..NAMES.len()).filter_map(|queue| declare(queue, &view)).for_each(|it| _ = session.ask(broker, it));
            }
            let find = |name: &&str| view.metadata.queues().find(|queue| queue.name == **name).map(|queue| queue.id);
            let partition = |id: QueueId| Some((id, directory.partition(id, broker.catalog().as_ref())?));
            self.queues = NAMES.iter().filter_map(find).filter_map(partition).collect();
        }
        topics.replies().into_iter().for_each(|(_, token, reply)| missing.on_reply(token, reply, broker.now()));
        missing.on_deadline(broker.now());
        while let Some((token, request)) = missing.poll_request() {
            topics.submit(broker, token, request);
        }
        session.ask(broker, view());
        self.queues.len() == NAMES.len()
    }

    /// Runs one action of an actor.
    pub fn turn(&mut self, at: usize, broker: &Broker, rng: &SimRng, queues: &mut Queues, oracle: &mut Oracle) {
        match at {
            0 => self.publish(broker, rng),
            1 => _ = self.move_dead(broker, queues, oracle),
            _ => self.consume(at - 2, broker, rng, oracle),
        }
    }

    fn partition(&self, queue: usize) -> PartitionId {
        self.queues.get(queue).map_or(PartitionId(0), |(_, partition)| *partition)
    }

    /// Checks whether a queue has a new writer.
    fn look_at_writers(&mut self, broker: &Broker) {
        let catalog = broker.catalog();
        let writers = std::array::from_fn(|queue| {
            let topic = self.queues.get(queue).and_then(|(id, _)| catalog.topic(&topic_of(*id)));
            topic.and_then(|topic| topic.partitions.first().map(|partition| partition.leader_epoch)).unwrap_or(-1)
        });
        if self.writers.replace(writers).is_some_and(|before| before != writers) {
            self.book.writer_lost();
        }
    }

    fn writer(&self, queue: usize) -> i32 {
        self.writers.and_then(|writers| writers.get(queue).copied()).unwrap_or(-1)
    }

    fn publish(&mut self, broker: &Broker, rng: &SimRng) {
        let session = self.publisher.get_or_insert_with(|| Session::new(broker, &self.order));
        for (_, token, reply) in session.replies() {
            let (Some(texts), Reply::Publish(results)) = (self.publishing.remove(&token), reply) else { continue };
            for (text, result) in texts.iter().zip(results) {
                let Some(text) = self.book.texts.get_mut(text) else { continue };
                (text.confirmed, text.unknown) = (result.is_ok(), result.is_err());
            }
        }
        if self.publishing.len() >= INFLIGHT_MAX || self.book.open() >= OPEN_MAX {
            return;
        }
        let (mut messages, mut texts) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(3) {
            self.next += 1;
            let (queue, text) = (2 * rng.below(2) as usize, format!("l{}", self.next));
            let bytes = new_letter(NAMES.get(queue).copied().unwrap_or_default(), &text);
            self.book.publishes(queue, bytes.clone(), &text);
            let to = self.queues.get(queue).map_or(PartitionId(0), |(_, partition)| *partition);
            let to = Target { queue: to, priority: None, expires_at: None, deliver_at: None };
            messages.push(message(vec![to], bytes));
            texts.push(text);
        }
        self.operations += 1;
        let request = PublishRequest { messages, ack: Ack::Committed, patient: false };
        self.publishing.insert(session.ask(broker, Request::Publish(request)), texts);
    }

    /// Runs the mover with its new events. Returns the number of its requests. It ends with the session that moves.
    fn move_dead(&mut self, broker: &Broker, queues: &mut Queues, oracle: &mut Oracle) -> u64 {
        let Some((session, dead)) = queues.dead_of_others(broker) else { return 0 };
        self.look_at_writers(broker);
        if let Some(gone) = self.mover.take_if(|mover| mover.moves != session.id) {
            broker.session_gone(gone.session.id);
            self.book.mover_gone();
        }
        let Some(mut mover) = self.mover.take().or_else(|| self.new_mover(broker, session.id)) else { return 0 };
        let mut requests = 0;
        for (_, token, reply) in mover.session.replies() {
            if let (Some(messages), Reply::Publish(results)) = (mover.open.remove(&token), &reply) {
                let arrived = messages.into_iter().zip(results).filter(|(_, result)| result.is_ok());
                arrived.for_each(|((queue, offset), _)| self.book.arrived(queue, offset));
            }
            mover.letters.on_reply(token, reply);
            requests += self.submit(&mut mover, session, broker, &[], oracle);
        }
        if !dead.is_empty() {
            mover.letters.on_event(Event::Dead(dead.clone()), broker.now());
            requests += self.submit(&mut mover, session, broker, &dead, oracle);
        }
        self.mover = Some(mover);
        self.operations += requests;
        requests
    }

    fn new_mover(&self, broker: &Broker, moves: SessionId) -> Option<Mover> {
        let mut letters = DeadLetters::new(self.directory.clone()?, broker.catalog());
        // The request for dead messages has been sent already.
        letters.poll_request();
        Some(Mover { letters, moves, session: Session::new(broker, &self.order), open: BTreeMap::new() })
    }

    /// Runs the mover's requests after it received these messages.
    fn submit(
        &mut self,
        mover: &mut Mover,
        moves: &mut Session,
        broker: &Broker,
        dead: &[DeadMessage],
        oracle: &mut Oracle,
    ) -> u64 {
        let mut requests = 0;
        while let Some((token, request)) = mover.letters.poll_request() {
            requests += 1;
            match request {
                Request::DeadMoved(outcomes) => {
                    let now = mover.session.mail.now();
                    for outcome in &outcomes {
                        let Some(queue) = self.number_of(outcome.queue) else { continue };
                        if let Err(why) = self.book.answers(queue, outcome.offset.0, outcome.how, now) {
                            oracle.violation(format!("{}: {} {why}", NAMES[queue], outcome.offset));
                        }
                    }
                    moves.ask(broker, Request::DeadMoved(outcomes));
                }
                Request::Publish(publish) => {
                    let moved = self.check_moves(broker, dead, &publish, oracle);
                    mover.open.insert(token, moved);
                    mover.session.submit(broker, token, Request::Publish(publish));
                }
                other => oracle.violation(format!("the mover asks for {other:?}")),
            }
        }
        requests
    }

    /// Returns whether the mover publishes what it received, unchanged.
    fn check_moves(
        &mut self,
        broker: &Broker,
        dead: &[DeadMessage],
        publish: &PublishRequest,
        oracle: &mut Oracle,
    ) -> Vec<(usize, u64)> {
        let dead = dead.iter().filter_map(|dead| Some((self.number_of(dead.queue)?, dead)));
        let dead: Vec<_> = dead.collect();
        if dead.len() != publish.messages.len() {
            oracle.violation(format!("{} of {} dead messages are moved", publish.messages.len(), dead.len()));
        }
        let now = broker.now();
        let mut moved = Vec::new();
        for ((queue, dead), message) in dead.into_iter().zip(&publish.messages) {
            let at = (queue, dead.offset.0);
            let next = next_of(queue);
            let expires_at = is_grave(next).then(|| now.wall_ms.saturating_add_unsigned(TTL_MS));
            let to = (self.partition(next), expires_at);
            let expected = self.book.died(queue, dead, now, self.writer(queue));
            let right = expected.and_then(|expected| self.book.moves(at, &expected, message, to));
            if let Err(why) = right {
                oracle.violation(format!("{}: {} {why}", NAMES[queue], dead.offset));
            }
            moved.push(at);
        }
        moved
    }

    fn number_of(&self, queue: PartitionId) -> Option<usize> {
        self.queues.iter().position(|(_, partition)| *partition == queue)
    }

    fn consume(&mut self, at: usize, broker: &Broker, rng: &SimRng, oracle: &mut Oracle) {
        let Some(queue) = CONSUMERS.get(at).copied() else { return };
        // Messages in the second queues are mostly left to expire.
        if is_grave(queue)
            && self.consumers.get(at).is_some_and(|consumer| consumer.session.is_none())
            && rng.below(20) > 0
        {
            return;
        }
        self.take_mail(at, queue, broker, oracle);
        let partition = self.partition(queue);
        let Letters { consumers, book, order, operations, .. } = self;
        let Some(consumer) = consumers.get_mut(at) else { return };
        if consumer.session.is_none() {
            let mut session = Session::new(broker, order);
            let spec = ConsumerSpec { prefetch: 1 + rng.below(6) as u32, ..ConsumerSpec::default() };
            session.ask(broker, Request::Attach(Attach { queue: partition, consumer: spec }));
            consumer.session = Some(session);
            return;
        }
        let goes = if is_grave(queue) { 4 } else { 40 };
        let Some(session) = consumer.session.as_mut().filter(|_| rng.below(goes) > 0) else {
            let gone = std::mem::take(consumer).session;
            gone.into_iter().for_each(|session| broker.session_gone(session.id));
            return;
        };
        if consumer.held.is_empty() {
            return;
        }
        let how = match rng.below(20) {
            0..2 => Settle::Accept,
            2..6 => Settle::Return { counts: rng.below(2) > 0, delay_ms: 0 },
            _ => Settle::Reject,
        };
        let count = 1 + rng.below(consumer.held.len() as u64) as usize;
        let (mut settlements, mut messages, mut held) = (Vec::new(), Vec::new(), true);
        let rejects = how == Settle::Reject;
        for (delivery, text) in consumer.held.drain(..count) {
            held &= book.is_held(queue, &delivery);
            if matches!(how, Settle::Accept | Settle::Reject) {
                book.settling(queue, delivery.first.0, &text, rejects);
                messages.push((delivery.first.0, text));
            }
            let Delivery { queue, first, count, lease, .. } = delivery;
            settlements.push(Settlement { queue, first, count, by: Holder::Lease(lease), how });
        }
        *operations += 1;
        let held_at = held.then(|| session.mail.now());
        let token = session.ask(broker, Request::Settle(SettleRequest { settlements, wait: true }));
        consumer.open.insert(token, Asked { rejects, messages, held_at });
    }

    /// Handles a consumer's events.
    fn take_mail(&mut self, at: usize, queue: usize, broker: &Broker, oracle: &mut Oracle) {
        self.look_at_writers(broker);
        let epoch = self.writer(queue);
        let Some(consumer) = self.consumers.get_mut(at) else { return };
        let Some(session) = &consumer.session else { return };
        for (now, token, reply) in session.replies() {
            match reply {
                Reply::Attach(Ok(id)) => consumer.id = Some(id),
                Reply::Settle(results) => {
                    let Some(Asked { rejects, messages, held_at }) = consumer.open.remove(&token) else { continue };
                    if results.iter().any(Result::is_ok) {
                        held_at.into_iter().for_each(|asked| self.book.committed(queue, asked));
                    }
                    for ((offset, text), result) in messages.into_iter().zip(results) {
                        self.book.settled((queue, offset), &text, rejects, result, now);
                    }
                }
                _ => {}
            }
        }
        for (received, delivery) in session.deliveries() {
            match self.book.delivered(queue, &delivery, received, epoch) {
                Ok(letter) => consumer.held.push((delivery, letter.text)),
                Err(why) => oracle.violation(format!("{}: {} {why}", NAMES[queue], delivery.first)),
            }
        }
    }

    /// Final check without faults: every confirmed and unsettled message is present. `settle` advances time by a second and completes the broker's
    /// pending work.
    pub fn finish(&mut self, broker: &Broker, queues: &mut Queues, oracle: &mut Oracle, settle: &dyn Fn(&Broker)) {
        self.lost_connections();
        let mut quiet = 0;
        for _ in 0..FINISH_S {
            quiet = if self.move_dead(broker, queues, oracle) > 0 { 0 } else { quiet + 1 };
            if quiet > QUIET_S {
                break;
            }
            settle(broker);
        }
        if quiet <= QUIET_S {
            oracle.violation("messages that no consumer rejects are dead-lettered in a cycle".to_owned());
        }
        let mut there: BTreeMap<String, usize> = BTreeMap::new();
        for (at, queue) in CONSUMERS.into_iter().enumerate() {
            let mut session = Session::new(broker, &self.order);
            let attach = Attach { queue: self.partition(queue), consumer: ConsumerSpec::default() };
            session.ask(broker, Request::Attach(attach));
            self.consumers[at] = Consumer { session: Some(session), ..Consumer::default() };
            settle(broker);
            self.take_mail(at, queue, broker, oracle);
            if self.consumers[at].id.is_none() {
                oracle.violation(format!("no consumer can attach to {}", NAMES[queue]));
            }
            for (_, text) in self.consumers[at].held.drain(..) {
                *there.entry(text).or_default() += 1;
            }
        }
        for (name, text) in &self.book.texts {
            let copies = there.get(name).copied().unwrap_or_default();
            if copies == 0 && text.confirmed && !text.accepting && !oracle.damaged {
                oracle.violation(format!("{name} was confirmed, never settled, and is gone"));
            }
            if copies > 1 && !text.doubtful {
                oracle.violation(format!("{name} is there {copies} times, and was never moved twice"));
            }
        }
    }
}
