//! Simulated users of queues: publishers with confirms, consumers that settle, return and disconnect, and the guarantees they rely on.
//!
//! ```text
//!   message:  sent ──▶ confirmed ──▶ handed out ──▶ settling ──▶ settled
//!                 └ unknown at a crash              └ unknown at a crash: settled, or handed out again
//!   refused:  settled where it was, and by then promised to the queue of the dead
//! ```
//!
//! A confirmed and unsettled message is present at the end. A message that is settled, with confirmation to its consumer, is never delivered again. A
//! rejected message, with confirmation to its consumer, is in the dead-letter queue at the end: at least once, and exactly once unless it was moved
//! twice. No message is delivered that was not sent, or in a queue that it was not sent to, or before its delivery time. Each delivery has the
//! message's delivery counts ([`counts`]).

mod counts;
mod mover;

use self::counts::Counts;
use self::mover::Mover;
use crate::oracle::Oracle;
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_api::{
    Ack, Attach, ConsumerId, ConsumerMode, ConsumerSpec, CreateTopics, DeadMessage, Delivery, Event, Holder, NewTopic,
    PublishMessage, PublishRequest, QueueSettings, Reply, Request, Settle, SettleRequest, Settlement, Target, Token,
    TopicConfig,
};
use polylogue_broker::{Broker, ReplySink, SessionId};
use polylogue_env::sim::SimRng;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_types::PartitionId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The queues: one that waits for the flush before it delivers, one with early delivery, one with an active consumer at a time, and the dead-letter
/// queue.
const NAMES: [&str; 4] = ["q-late", "q-early", "q-single", "q-dead"];
/// The queues that publishers send to.
const PUBLISHED: usize = 3;
/// The queue whose rejected messages are dead-lettered.
const DYING: usize = 0;
/// The dead-letter queue.
const DEAD: usize = 3;
/// Consumers of each queue.
const CONSUMERS: usize = 2;
/// Unconfirmed publishes of one publisher.
const INFLIGHT_MAX: usize = 4;
/// The longest delay of messages. The broker indexes messages delayed for more than a minute separately. Milliseconds.
pub const DELAY_MS_MAX: u64 = 62_000;

/// The state of a message in one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Times that it was sent: more than once only in the dead-letter queue.
    sent: u32,
    confirmed: bool,
    /// A consumer requested to settle it, possibly without a reply.
    settling: bool,
    /// A consumer requested to reject it.
    dying: bool,
    /// Time of the reply that it is settled or rejected.
    settled: Option<u64>,
    /// Its earliest delivery. Wall time, milliseconds.
    not_before_ms: i64,
}

/// The state of the messages of a queue, by their texts.
type Messages = BTreeMap<String, Known>;

/// Counts events of all sessions: an event that was in flight to one session before another received a message is not a violation.
pub(crate) type Order = Arc<AtomicU64>;

/// An event of a session, and its time.
#[derive(Debug)]
pub(crate) struct Mail {
    order: Order,
    replies: Mutex<Vec<(u64, Token, Reply)>>,
    deliveries: Mutex<Vec<(u64, Delivery)>>,
    dead: Mutex<Vec<DeadMessage>>,
}

impl Mail {
    pub(crate) fn now(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }
}

impl ReplySink for Mail {
    fn reply(&self, token: Token, reply: Reply) {
        self.replies.lock().push((self.now(), token, reply));
    }

    fn event(&self, event: Event) {
        match event {
            Event::Deliver(deliveries) => {
                let now = self.now();
                self.deliveries.lock().extend(deliveries.into_iter().map(|delivery| (now, delivery)));
            }
            Event::Dead(dead) => self.dead.lock().extend(dead),
            _ => {}
        }
    }
}

/// A session of this start of the node.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) mail: Arc<Mail>,
    pub(crate) id: SessionId,
    next_token: Token,
}

impl Session {
    pub(crate) fn new(broker: &Broker, order: &Order) -> Session {
        let mail = Mail {
            order: order.clone(),
            replies: Mutex::default(),
            deliveries: Mutex::default(),
            dead: Mutex::default(),
        };
        Session { mail: Arc::new(mail), id: broker.new_session(), next_token: 0 }
    }

    pub(crate) fn ask(&mut self, broker: &Broker, request: Request) -> Token {
        self.next_token += 1;
        self.submit(broker, self.next_token, request);
        self.next_token
    }

    /// Sends a request under a token of the caller.
    pub(crate) fn submit(&self, broker: &Broker, token: Token, request: Request) {
        let sink: Arc<dyn ReplySink> = self.mail.clone();
        broker.submit(&sink, self.id, token, request);
    }

    pub(crate) fn replies(&self) -> Vec<(u64, Token, Reply)> {
        std::mem::take(&mut *self.mail.replies.lock())
    }

    pub(crate) fn deliveries(&self) -> Vec<(u64, Delivery)> {
        std::mem::take(&mut *self.mail.deliveries.lock())
    }

    /// Returns the dead messages for the mover.
    pub(crate) fn dead(&self) -> Vec<DeadMessage> {
        std::mem::take(&mut *self.mail.dead.lock())
    }
}

#[derive(Debug, Default)]
struct Publisher {
    session: Option<Session>,
    /// Publishes by token: each message's text and its queues.
    open: BTreeMap<Token, Vec<(String, Vec<usize>)>>,
    next: u64,
}

/// A requested settlement of a consumer's messages.
#[derive(Debug)]
struct Asked {
    how: Settle,
    /// The messages to settle or reject.
    texts: Vec<String>,
    /// The time, if all of them are held under the current writer, as far as is known.
    held_at: Option<u64>,
}

#[derive(Debug)]
struct Consumer {
    queue: usize,
    session: Option<Session>,
    id: Option<ConsumerId>,
    attaching: bool,
    held: Vec<(Delivery, String)>,
    open: BTreeMap<Token, Asked>,
}

impl Consumer {
    fn lost(&mut self) {
        *self = Consumer::new(self.queue);
    }

    fn new(queue: usize) -> Consumer {
        Consumer { queue, session: None, id: None, attaching: false, held: Vec::new(), open: BTreeMap::new() }
    }
}

/// All queues and their users.
#[derive(Debug)]
pub struct Queues {
    ids: Vec<PartitionId>,
    known: Vec<Messages>,
    /// By queue.
    counts: Vec<Counts>,
    publisher: Publisher,
    mover: Mover,
    consumers: Vec<Consumer>,
    order: Order,
    /// Requests sent.
    pub operations: u64,
    /// Settlements that were confirmed.
    pub settled: u64,
}

impl Default for Queues {
    fn default() -> Queues {
        let consumers = (0..NAMES.len()).flat_map(|queue| (0..CONSUMERS).map(move |_| Consumer::new(queue)));
        Queues {
            ids: Vec::new(),
            known: vec![Messages::new(); NAMES.len()],
            counts: NAMES.map(|_| Counts::default()).into(),
            publisher: Publisher::default(),
            mover: Mover::default(),
            consumers: consumers.collect(),
            order: Order::default(),
            operations: 0,
            settled: 0,
        }
    }
}

/// Returns the requests that create the queues.
pub fn create() -> Request {
    let settings = |name: &str| QueueSettings {
        early: name == "q-early",
        mode: if name == "q-single" { ConsumerMode::SingleActive } else { ConsumerMode::Competing },
        dead_letters: NAMES.get(DYING) == Some(&name),
        ..QueueSettings::default()
    };
    let new = |name: &str| {
        let config = TopicConfig { queue: Some(settings(name)), retention_ms: None, ..TopicConfig::default() };
        NewTopic { name: name.to_owned(), partitions: 1, config, internal: false }
    };
    Request::CreateTopics(CreateTopics { topics: NAMES.into_iter().map(new).collect(), validate_only: false })
}

impl Queues {
    /// Returns the number of actors to choose from.
    pub fn actors(&self) -> usize {
        2 + self.consumers.len()
    }

    /// Handles a crash of the node: pending requests have an unknown outcome.
    pub fn lost_connections(&mut self) {
        self.publisher = Publisher { next: self.publisher.next, ..Publisher::default() };
        self.mover = Mover::default();
        self.consumers.iter_mut().for_each(Consumer::lost);
        self.counts.iter_mut().for_each(Counts::crashed);
    }

    /// Runs one action of an actor.
    pub fn turn(&mut self, at: usize, broker: &Broker, rng: &SimRng, oracle: &mut Oracle) {
        if self.ids.is_empty() {
            let found = NAMES.iter().filter_map(|name| broker.catalog().topic(name)?.partitions.first().map(|p| p.id));
            self.ids = found.collect();
            if self.ids.len() < NAMES.len() {
                self.ids.clear();
                return;
            }
        }
        match at {
            0 => self.publish(broker, rng),
            1 if rng.below(40) == 0 => self.mover.vanish(broker),
            1 => self.operations += self.move_dead(broker, oracle),
            _ => self.consume(at - 2, broker, rng, oracle),
        }
    }

    fn publish(&mut self, broker: &Broker, rng: &SimRng) {
        let Queues { ids, known, publisher, order, operations, .. } = self;
        let session = publisher.session.get_or_insert_with(|| Session::new(broker, order));
        for (_, token, reply) in session.replies() {
            let (Some(messages), Reply::Publish(results)) = (publisher.open.remove(&token), reply) else { continue };
            for ((text, queues), result) in messages.into_iter().zip(results) {
                for queue in queues.into_iter().filter(|_| result.is_ok()) {
                    if let Some(known) = known.get_mut(queue).and_then(|known| known.get_mut(&text)) {
                        known.confirmed = true;
                    }
                }
            }
        }
        if publisher.open.len() >= INFLIGHT_MAX {
            return;
        }
        let (mut messages, mut sent) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(3) {
            publisher.next += 1;
            let text = format!("m{}", publisher.next);
            // One of them, or all.
            let which = rng.below(PUBLISHED as u64 + 1) as usize;
            let queues: Vec<usize> = (0..PUBLISHED).filter(|queue| which == *queue || which == PUBLISHED).collect();
            let wait_ms = match rng.below(16) {
                0 => Some(rng.below(300)),
                1 | 2 => Some(DELAY_MS_MAX - rng.below(4_000)),
                _ => None,
            };
            let deliver_at = wait_ms.map(|ms| broker.now().wall_ms.saturating_add_unsigned(ms));
            let target =
                |queue: &usize| Some(Target { queue: *ids.get(*queue)?, priority: None, expires_at: None, deliver_at });
            messages.push(message(queues.iter().filter_map(target).collect(), Bytes::from(text.clone())));
            for queue in &queues {
                let sent = Known { sent: 1, not_before_ms: deliver_at.unwrap_or_default(), ..Known::default() };
                known.get_mut(*queue).and_then(|known| known.insert(text.clone(), sent));
            }
            sent.push((text, queues));
        }
        *operations += 1;
        let token =
            session.ask(broker, Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
        publisher.open.insert(token, sent);
    }

    fn consume(&mut self, at: usize, broker: &Broker, rng: &SimRng, oracle: &mut Oracle) {
        let Queues { ids, known, counts, consumers, order, operations, settled, .. } = self;
        let Some(consumer) = consumers.get_mut(at) else { return };
        let (Some(queue), Some(counts)) = (ids.get(consumer.queue), counts.get_mut(consumer.queue)) else { return };
        *settled += take_mail(consumer, known, counts, broker, oracle);
        let session = consumer.session.get_or_insert_with(|| Session::new(broker, order));
        if consumer.id.is_none() {
            if !std::mem::replace(&mut consumer.attaching, true) {
                let spec = ConsumerSpec { prefetch: 1 + rng.below(8) as u32, ..ConsumerSpec::default() };
                session.ask(broker, Request::Attach(Attach { queue: *queue, consumer: spec }));
            }
            return;
        }
        match rng.below(40) {
            0 => {
                // The consumer disconnects: its messages are returned, and events in flight are never received.
                *settled += vanish(consumer, known, counts, broker, rng, oracle);
            }
            1..30 if !consumer.held.is_empty() => {
                let how = match rng.below(5) {
                    0 => Settle::Return { counts: rng.below(3) > 0, delay_ms: 0 },
                    1 if consumer.queue == DYING => Settle::Reject,
                    _ => Settle::Accept,
                };
                let count = 1 + rng.below(consumer.held.len() as u64) as usize;
                let from = rng.below((consumer.held.len() - count + 1) as u64) as usize;
                let (mut settlements, mut texts, mut held) = (Vec::new(), Vec::new(), true);
                for (delivery, text) in consumer.held.drain(from..from + count) {
                    held &= counts.is_held(&delivery);
                    if let Settle::Return { counts: failed, .. } = how {
                        counts.returned(&text, &delivery, failed, session.mail.now());
                    }
                    let Delivery { queue, first, count, lease, .. } = delivery;
                    settlements.push(Settlement { queue, first, count, by: Holder::Lease(lease), how });
                    if matches!(how, Settle::Accept | Settle::Reject)
                        && let Some(known) = known.get_mut(consumer.queue).and_then(|known| known.get_mut(&text))
                    {
                        known.settling = true;
                        known.dying |= how == Settle::Reject;
                        texts.push(text);
                    }
                }
                *operations += 1;
                let held_at = held.then(|| session.mail.now());
                let token = session.ask(broker, Request::Settle(SettleRequest { settlements, wait: true }));
                consumer.open.insert(token, Asked { how, texts, held_at });
            }
            _ => {}
        }
    }

    /// Returns the number of messages that were rejected and moved.
    pub fn moved(&self) -> u64 {
        self.known.get(DEAD).map_or(0, |known| known.values().filter(|known| known.confirmed).count() as u64)
    }

    /// Returns the number of deliveries with a correct count above zero.
    pub fn counts_checked(&self) -> u64 {
        self.counts.iter().map(|counts| counts.checked).sum()
    }

    /// Runs the mover. Returns the number of its requests.
    fn move_dead(&mut self, broker: &Broker, oracle: &mut Oracle) -> u64 {
        let (Some(own), Some(to)) = (self.ids.get(DYING), self.ids.get(DEAD)) else { return 0 };
        let [dying, .., dead] = self.known.as_mut_slice() else { return 0 };
        self.mover.turn(broker, &self.order, (*own, *to), (dying, dead), oracle)
    }

    /// Returns the mover's session, and what it received from other queues.
    pub(crate) fn dead_of_others(&mut self, broker: &Broker) -> Option<(&mut Session, Vec<DeadMessage>)> {
        let own = *self.ids.get(DYING)?;
        self.mover.attach(broker, &self.order);
        self.mover.others(own)
    }

    /// Final check without faults: every guarantee holds. `drain` completes the broker's pending work.
    pub fn finish(&mut self, broker: &Broker, oracle: &mut Oracle, drain: &dyn Fn(&Broker)) {
        self.lost_connections();
        self.mover.attach(broker, &self.order);
        drain(broker);
        while self.move_dead(broker, oracle) > 0 {
            drain(broker);
        }
        for (queue, id) in self.ids.iter().enumerate() {
            let mut consumer = Consumer::new(queue);
            let session = consumer.session.insert(Session::new(broker, &self.order));
            session.ask(broker, Request::Attach(Attach { queue: *id, consumer: ConsumerSpec::default() }));
            drain(broker);
            let Some(counts) = self.counts.get_mut(queue) else { continue };
            take_mail(&mut consumer, &mut self.known, counts, broker, oracle);
            if consumer.id.is_none() {
                oracle.violation(format!("no consumer can attach to {}", NAMES[queue]));
            }
            let Some(known) = self.known.get(queue) else { continue };
            let mut there = BTreeSet::new();
            let twice = |text: &&str| known.get(*text).is_none_or(|known| known.sent < 2);
            for text in consumer.held.iter().map(|(_, text)| text.as_str()).filter(|text| !there.insert(*text)) {
                if twice(&text) {
                    oracle.violation(format!("{}: {text} was handed out twice to one consumer", NAMES[queue]));
                }
            }
            let lost = known.iter().filter(|(_, known)| known.confirmed && !known.settling);
            let lost: Vec<_> = lost.filter(|(text, _)| !there.contains(text.as_str())).map(|(text, _)| text).collect();
            if !lost.is_empty() && !oracle.damaged {
                oracle.violation(format!("{}: confirmed, never settled and gone: {lost:?}", NAMES[queue]));
            }
            broker.session_gone(consumer.session.take().map_or(SessionId(u64::MAX), |session| session.id));
        }
    }
}

/// Returns a message with these bytes for these queues.
pub(crate) fn message(queues: Vec<Target>, bytes: Bytes) -> PublishMessage {
    PublishMessage {
        queues,
        form: Form::AmqpMessage,
        flags: EntryFlags::NONE,
        bytes,
        timestamp: -1,
        key_hash: None,
        all_or_none: false,
    }
}

/// Disconnects a consumer. Returns how many settlements were still confirmed to it.
fn vanish(
    consumer: &mut Consumer,
    known: &mut [Messages],
    counts: &mut Counts,
    broker: &Broker,
    rng: &SimRng,
    oracle: &mut Oracle,
) -> u64 {
    // Messages that are still being read for it are returned too. Usually there are none, so the counts are known.
    let reads = rng.below(4) == 0;
    while !reads && broker.read_step() {}
    let answered = take_mail(consumer, known, counts, broker, oracle);
    if let Some(session) = &consumer.session {
        broker.session_gone(session.id);
        let now = session.mail.now();
        consumer.held.iter().for_each(|(delivery, text)| counts.returned(text, delivery, true, now));
        if reads {
            counts.unseen_returned(now);
        }
    }
    consumer.lost();
    answered
}

/// Handles a consumer's events. Returns how many settlements were confirmed.
fn take_mail(
    consumer: &mut Consumer,
    known: &mut [Messages],
    counts: &mut Counts,
    broker: &Broker,
    oracle: &mut Oracle,
) -> u64 {
    let Some(session) = &consumer.session else { return 0 };
    let name = NAMES.get(consumer.queue).copied().unwrap_or_default();
    let mut answered = 0;
    for (now, token, reply) in session.replies() {
        match reply {
            Reply::Attach(result) => (consumer.id, consumer.attaching) = (result.ok(), false),
            Reply::Settle(results) => {
                let Some(Asked { how, texts, held_at }) = consumer.open.remove(&token) else { continue };
                if results.iter().any(Result::is_ok) {
                    held_at.into_iter().for_each(|at| counts.committed(at));
                }
                for (text, _) in texts.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
                    answered += 1;
                    let here = known.get_mut(consumer.queue).and_then(|known| known.get_mut(text));
                    here.into_iter().for_each(|known| known.settled = Some(now));
                    if how == Settle::Reject {
                        let there = known.get_mut(DEAD).map(|known| known.entry(text.clone()).or_default());
                        there.into_iter().for_each(|known| known.confirmed = true);
                    }
                }
            }
            _ => {}
        }
    }
    let Some(known) = known.get(consumer.queue) else { return answered };
    for (now, delivery) in session.deliveries() {
        let text = String::from_utf8_lossy(&delivery.bytes).into_owned();
        match known.get(&text) {
            None => oracle.violation(format!("{name}: {text:?} was never sent there")),
            Some(known) if known.not_before_ms > broker.now().wall_ms => {
                let early_ms = known.not_before_ms - broker.now().wall_ms;
                oracle.violation(format!("{name}: {text:?} is handed out {early_ms} ms before its time"));
            }
            Some(known) if known.sent < 2 && known.settled.is_some_and(|settled| settled < now) => {
                oracle.violation(format!("{name}: {text:?} was settled and is handed out again at {}", delivery.first));
            }
            Some(_) => {}
        }
        // Which one of several messages with the same text this is, is unknown.
        let is_one = known.get(&text).is_some_and(|known| known.sent < 2);
        if let Err(what) = counts.check(&text, &delivery, now, oracle.damaged || !is_one)
            && is_one
        {
            oracle.violation(format!("{name}: {text:?} at {} {what}", delivery.first));
        }
        consumer.held.push((delivery, text));
    }
    answered
}
