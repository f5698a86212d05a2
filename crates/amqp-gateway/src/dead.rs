//! Dead messages on their way from a queue to where its dead-letter exchange sends them. Sans-IO, for the whole broker: no client needs
//! to be there.
//!
//! ```text
//!   queue ──Event::Dead──> DeadLetters ──Request::Publish──> other queues
//!     ^                                                           │ durable in all of them
//!     └──────────────────── Request::DeadMoved <──────────────────┘
//! ```
//!
//! A message leaves its queue once it is durable wherever it goes: that costs nothing here, and holds for all queues. What
//! `x-dead-letter-strategy` still decides is what happens to a message that does not get there, because the exchange is not there,
//! nothing is bound, or a queue is full and refuses: `at-most-once` drops it, `at-least-once` keeps it and tries again.
//!
//! A message that goes round through queues where nobody rejects it is dropped ([`Deaths::is_cycle`]).

use crate::backoff::{Backoff, Waits};
use crate::convert::View;
use crate::directory::{Directory, QueueEntry};
use crate::message::{Hidden, Stored, open, store};
use crate::publish::{TARGETS_PER_REQUEST, more_targets};
use crate::route::{Reached, Reaching, Sent, Ways, reach};
use crate::turn::{REQUEST_STEPS, TARGET_STEPS};
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties, Table};
use polylogue_amqp_model::{DeadLetterStrategy, Deaths, Died, QueueSettings, Reason, decode_table, encode_table};
use polylogue_api::{
    Ack, Catalog, DeadFate, DeadMessage, DeadOutcome, DeadReason, Event, Now, PublishError, PublishMessage,
    PublishRequest, Reply, Request, Token,
};
use polylogue_router::Scratch;
use polylogue_types::{Map, Offset, PartitionId, Set};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// How soon a queue's messages that could not be moved are tried again, and at the latest.
const RETRY: Waits = Waits { min_ms: 50, max_ms: 5_000 };
/// Queues to which a message that must not get lost is published one by one, at the most; with more of them a queue may get it twice.
const SEPARATE_MAX: usize = 16;
/// Messages that are in some of their queues and not in others, at the most: of more it is forgotten which have them.
const PARTIAL_MAX: usize = 10_000;
/// Queues that are known to be gone, at the most; then all are forgotten.
const GONE_MAX: usize = 10_000;
/// From so many queues that wait on it is looked whether some are gone.
const WAITS_LOOK_MIN: usize = 64;

/// What became of dead messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeadCounts {
    /// They are in at least one other queue.
    pub moved: u64,
    /// There was no exchange, no queue behind it, or only ones that refused; or they went round in a circle. Or their own queue had
    /// refused them, and could not be moved at once: nobody keeps them.
    pub dropped: u64,
    /// They are to be tried again.
    pub retried: u64,
}

/// A message on its way.
#[derive(Debug)]
struct Moving {
    queue: PartitionId,
    offset: Offset,
    sure: bool,
    /// Parts that are published and not answered.
    open: usize,
    arrived: usize,
    /// Something is to be tried again.
    again: bool,
}

/// One publish: whose it is, and the queues that it goes to.
#[derive(Debug)]
struct Part {
    of: usize,
    to: Vec<PartitionId>,
}

/// Messages that were told together.
#[derive(Debug)]
struct Batch {
    moving: Vec<Moving>,
    parts: Vec<Part>,
    /// What is to be published, a piece after the other: a message may go to very many queues.
    messages: VecDeque<PublishMessage>,
    /// What became of the parts that are published.
    results: Vec<Result<(), PublishError>>,
    /// How many parts are on their way.
    asked: usize,
}

/// The same, of which some have no queues yet.
#[derive(Debug)]
struct Dying {
    dead: VecDeque<DeadMessage>,
    now: Now,
    batch: Batch,
    /// How far the first one is.
    way: Option<Box<Way>>,
}

/// A message that goes on, on the way to its queues.
#[derive(Debug)]
struct Way {
    from: Arc<QueueEntry>,
    letter: Letter,
    reaching: Box<Reaching>,
    circles: bool,
}

/// Where a message goes, and whether it would go round; nowhere when it cannot be read or there is no exchange for it.
type Found = Option<(PublishMessage, bool)>;

/// See the module.
#[derive(Debug)]
pub struct DeadLetters {
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    waiting: Map<Token, Batch>,
    /// What has no queues yet, and how many steps may be taken to find them.
    dying: VecDeque<Dying>,
    steps: u64,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    scratch: Scratch,
    /// Queues by their partitions, as far as they were asked for.
    queues: Map<PartitionId, Arc<QueueEntry>>,
    /// Partitions without a queue: it went before its dead messages did.
    gone: Set<PartitionId>,
    /// How long each queue waits whose messages could not be moved.
    backoffs: Map<PartitionId, Backoff>,
    /// With so many of them it is looked for some that are gone.
    waits_look: usize,
    /// Queues that have a message already of which others do not.
    partial: Map<(PartitionId, Offset), Vec<PartitionId>>,
    counts: DeadCounts,
}

impl DeadLetters {
    /// Begins by asking for dead messages.
    #[must_use]
    pub fn new(directory: Arc<Directory>, catalog: Arc<dyn Catalog>) -> DeadLetters {
        let requests = VecDeque::from([(0, Request::MoveDead)]);
        DeadLetters {
            directory,
            catalog,
            waiting: Map::default(),
            dying: VecDeque::new(),
            steps: u64::MAX,
            requests,
            next_token: 0,
            scratch: Scratch::default(),
            queues: Map::default(),
            gone: Set::default(),
            backoffs: Map::default(),
            waits_look: WAITS_LOOK_MIN,
            partial: Map::default(),
            counts: DeadCounts::default(),
        }
    }

    /// The next thing to ask the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// What came of dead messages since the last call.
    pub fn take_counts(&mut self) -> DeadCounts {
        std::mem::take(&mut self.counts)
    }

    /// Begins a turn of at most so many steps ([`polylogue_types::turn`]). Without turns everything is done at once.
    pub fn begin_turn(&mut self, steps_max: u64) {
        self.steps = steps_max;
        self.go_on();
    }

    /// Whether something is left to do, which waits for nothing but another turn.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        !self.dying.is_empty()
    }

    /// The broker's answer.
    pub fn on_reply(&mut self, token: Token, reply: Reply) {
        let Some(mut batch) = self.waiting.remove(&token) else { return };
        match reply {
            Reply::Publish(results) => {
                let is_whole = results.len() == batch.asked;
                batch.results.extend(results);
                if is_whole { self.publish(batch) } else { self.published(batch) }
            }
            _ => self.published(batch),
        }
    }

    /// What the broker says.
    pub fn on_event(&mut self, event: Event, now: Now) {
        if let Event::Dead(messages) = event {
            let batch = Batch {
                moving: Vec::with_capacity(messages.len()),
                parts: Vec::with_capacity(messages.len()),
                messages: VecDeque::with_capacity(messages.len()),
                results: Vec::new(),
                asked: 0,
            };
            self.dying.push_back(Dying { dead: messages.into(), now, batch, way: None });
            self.go_on();
        }
    }

    fn request(&mut self, request: Request) -> Token {
        self.next_token += 1;
        self.requests.push_back((self.next_token, request));
        self.next_token
    }

    /// Finds queues for what has none, as far as there are steps.
    fn go_on(&mut self) {
        while let Some(mut dying) = self.dying.pop_front() {
            if !self.find_queues(&mut dying) {
                return self.dying.push_front(dying);
            }
            self.publish(dying.batch);
        }
    }

    /// Whether all of them have their queues.
    fn find_queues(&mut self, dying: &mut Dying) -> bool {
        while let Some(one) = dying.dead.front() {
            if self.steps == 0 {
                return false;
            }
            let from = dying.way.as_ref().map(|way| way.from.clone()).or_else(|| self.queue(one.queue));
            let mut moving =
                Moving { queue: one.queue, offset: one.offset, sure: false, open: 0, arrived: 0, again: false };
            if let Some(from) = from {
                moving.sure = from.settings.dead_letter_strategy == DeadLetterStrategy::AtLeastOnce;
                match self.route(from, one, dying.now, dying.way.take()) {
                    Ok(found) => self.send(found, &mut moving, &mut dying.batch),
                    Err(way) => {
                        dying.way = Some(way);
                        return false;
                    }
                }
            }
            dying.batch.moving.push(moving);
            dying.dead.pop_front();
        }
        true
    }

    /// Publishes the next piece of a batch, or it is done.
    fn publish(&mut self, mut batch: Batch) {
        let (mut piece, mut targets) = (Vec::new(), 0);
        while let Some(message) = batch.messages.front() {
            let more = more_targets(std::slice::from_ref(message));
            if !piece.is_empty() && targets + more > TARGETS_PER_REQUEST {
                break;
            }
            targets += more;
            piece.extend(batch.messages.pop_front());
        }
        if piece.is_empty() {
            return self.published(batch);
        }
        batch.asked = piece.len();
        let request = PublishRequest { messages: piece, ack: Ack::Committed, patient: false };
        let token = self.request(Request::Publish(request));
        self.waiting.insert(token, batch);
    }

    /// Publishes a message to the queues that do not have it yet: where it must not get lost, to each for itself, so that it is known which
    /// ones have it.
    fn send(&mut self, found: Found, moving: &mut Moving, batch: &mut Batch) {
        let Some((mut message, circles)) = found else {
            moving.again = moving.sure;
            return;
        };
        if message.queues.is_empty() {
            // Of one that goes round there is nothing to wait for.
            moving.again = moving.sure && !circles;
            return;
        }
        if let Some(has) = self.partial.get(&(moving.queue, moving.offset)) {
            message.queues.retain(|target| !has.contains(&target.queue));
            moving.arrived += has.len();
        }
        self.steps = self.steps.saturating_sub(TARGET_STEPS * message.queues.len() as u64);
        let of = batch.moving.len();
        let each = moving.sure && message.queues.len() <= SEPARATE_MAX;
        for queues in message.queues.chunks(if each { 1 } else { TARGETS_PER_REQUEST }) {
            batch.parts.push(Part { of, to: queues.iter().map(|target| target.queue).collect() });
            let bytes = message.bytes.clone();
            batch.messages.push_back(PublishMessage { queues: queues.to_vec(), bytes, ..message });
            moving.open += 1;
        }
    }

    fn published(&mut self, mut batch: Batch) {
        let results = std::mem::take(&mut batch.results);
        for (at, part) in batch.parts.into_iter().enumerate() {
            let Some(moving) = batch.moving.get_mut(part.of) else { continue };
            moving.open -= 1;
            match results.get(at).copied() {
                Some(Ok(())) => {
                    moving.arrived += part.to.len();
                    if moving.sure && (moving.open > 0 || moving.again) {
                        self.note_partial(moving.queue, moving.offset, part.to);
                    }
                }
                // It went or is full: where that does no harm, the message does not get there.
                Some(Err(PublishError::UnknownQueue | PublishError::QueueFull)) => moving.again |= moving.sure,
                // What its queue refused was never there: nobody keeps it until there is another try.
                Some(Err(PublishError::Unavailable(_))) | None => {
                    moving.again = !DeadMessage::was_refused(moving.offset);
                }
            }
        }
        // A refused one that is dropped tells nothing of how it goes for the others.
        let told = |moving: &&Moving| moving.arrived > 0 || !DeadMessage::was_refused(moving.offset);
        for moving in batch.moving.iter().filter(|moving| !moving.again).filter(told) {
            self.backoffs.remove(&moving.queue);
        }
        if self.backoffs.len() + self.partial.len() >= self.waits_look {
            self.look_for_queues();
            self.waits_look = (2 * (self.backoffs.len() + self.partial.len())).max(WAITS_LOOK_MIN);
        }
        // A queue waits once for all of its messages.
        let mut waits = Map::default();
        let outcomes = batch.moving.into_iter().map(|moving| self.outcome(&moving, &mut waits)).collect();
        self.request(Request::DeadMoved(outcomes));
    }

    fn note_partial(&mut self, queue: PartitionId, offset: Offset, to: Vec<PartitionId>) {
        let known = self.partial.contains_key(&(queue, offset));
        if known || self.partial.len() < PARTIAL_MAX {
            self.partial.entry((queue, offset)).or_default().extend(to);
        }
    }

    fn outcome(&mut self, moving: &Moving, waits: &mut Map<PartitionId, u64>) -> DeadOutcome {
        let Moving { queue, offset, .. } = *moving;
        let how = if moving.again {
            self.counts.retried += 1;
            let backoff = self.backoffs.entry(queue).or_default();
            DeadFate::Later(*waits.entry(queue).or_insert_with(|| backoff.failed(RETRY)))
        } else {
            self.partial.remove(&(queue, offset));
            let counter = if moving.arrived > 0 { &mut self.counts.moved } else { &mut self.counts.dropped };
            *counter += 1;
            DeadFate::Moved
        };
        DeadOutcome { queue, offset, how }
    }

    /// The queue of a partition; `None` for one that is gone.
    fn queue(&mut self, partition: PartitionId) -> Option<Arc<QueueEntry>> {
        let known = self.queues.get(&partition).map(|entry| entry.queue.id);
        if let Some(entry) = known.and_then(|id| self.directory.queue(id)) {
            return Some(entry);
        }
        // Partitions are never used again.
        if known.is_none() && !self.gone.contains(&partition) {
            self.look_for_queues();
        }
        let found = self.queues.get(&partition).filter(|_| known.is_none()).cloned();
        if found.is_none() && self.gone.insert(partition) && self.gone.len() > GONE_MAX {
            self.gone.clear();
        }
        found
    }

    /// Learns which queues there are, and forgets what concerns others.
    fn look_for_queues(&mut self) {
        self.queues.clear();
        for entry in self.directory.queues() {
            if let Some(partition) = entry.partition(self.catalog.as_ref()) {
                self.queues.insert(partition, entry);
            }
        }
        let DeadLetters { queues, backoffs, partial, .. } = self;
        backoffs.retain(|queue, _| queues.contains_key(queue));
        partial.retain(|(queue, _), _| queues.contains_key(queue));
    }

    /// The message as it goes on, with its queues; what is left of the way to them where there are no steps.
    fn route(
        &mut self,
        from: Arc<QueueEntry>,
        dead: &DeadMessage,
        now: Now,
        way: Option<Box<Way>>,
    ) -> Result<Found, Box<Way>> {
        let (letter, reaching, circles) = match way {
            Some(way) => (way.letter, Some(way.reaching), way.circles),
            None => {
                self.steps = self.steps.saturating_sub(REQUEST_STEPS);
                let letter = open(&dead.bytes).and_then(|stored| Letter::of(stored, &from, dead.reason, now));
                let Some(letter) = letter else { return Ok(None) };
                (letter, None, false)
            }
        };
        let view = View::new(&letter.properties);
        let keys: Vec<&[u8]> = letter.keys.iter().map(Bytes::as_ref).collect();
        let sent = Sent {
            keys: &keys,
            view: &view,
            random: dead.offset.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ dead.queue.0,
            expiration_ms: None,
            priority: letter.properties.priority,
            now_ms: now.wall_ms,
        };
        let circles = Cell::new(circles);
        let wanted = |entry: &QueueEntry| {
            let cycle = letter.deaths.is_cycle(entry.queue.name.as_bytes());
            circles.set(circles.get() || cycle);
            !cycle
        };
        let (directory, catalog) = (self.directory.clone(), self.catalog.clone());
        let ways = Ways { directory: &directory, catalog: catalog.as_ref(), wanted: &wanted };
        let reached = match reaching {
            Some(reaching) => reaching.resume(ways, &sent, &mut self.scratch, &mut self.steps),
            None => {
                let routes = directory.router().load();
                let Some(entry) = routes.entry(from.queue.vhost, letter.exchange.as_ref()) else { return Ok(None) };
                reach(ways, &routes, entry, &sent, &mut self.scratch, &mut self.steps)
            }
        };
        match reached {
            Ok(reached) => Ok(Some((letter.message(reached, now), circles.get()))),
            Err(reaching) => {
                let circles = circles.get();
                Err(Box::new(Way { from, letter, reaching, circles }))
            }
        }
    }
}

/// A message that died, as it goes on.
#[derive(Debug)]
struct Letter {
    exchange: Bytes,
    /// The routing key first.
    keys: Vec<Bytes>,
    properties: Properties,
    hidden: Hidden,
    deaths: Deaths,
    body: Bytes,
}

fn reason_of(reason: DeadReason) -> Reason {
    match reason {
        DeadReason::Rejected => Reason::Rejected,
        DeadReason::DeliveryLimit => Reason::DeliveryLimit,
        DeadReason::Expired => Reason::Expired,
        DeadReason::MaxLength => Reason::MaxLen,
    }
}

impl Letter {
    /// `None` where there is no dead-letter exchange (any more), or what is stored is no message.
    fn of(stored: Stored, from: &QueueEntry, reason: DeadReason, now: Now) -> Option<Letter> {
        let QueueSettings { dead_letter_exchange, dead_letter_routing_key, .. } = &from.settings;
        let exchange = dead_letter_exchange.as_ref()?.clone().into_bytes();
        let mut basic = BasicProperties::decode(&stored.properties).ok()?;
        let headers = basic.headers.take().unwrap_or(Table::EMPTY);
        let cc = headers.get("CC").into_iter().flat_map(|array| {
            let keys: Vec<_> = array.elements().filter_map(|(_, key)| key.as_longstr()).collect();
            keys
        });
        let bcc = &stored.hidden.bcc;
        let mut keys = vec![stored.routing_key.clone()];
        keys.extend(cc.map(Bytes::copy_from_slice));
        keys.extend(bcc.iter().cloned());
        let died = Died {
            reason: reason_of(reason),
            queue: from.queue.name.as_bytes(),
            exchange: &stored.exchange,
            routing_keys: &keys.iter().map(Bytes::as_ref).collect::<Vec<_>>(),
            bcc: &bcc.iter().map(Bytes::as_ref).collect::<Vec<_>>(),
            ttl_ms: basic.expiration.take().and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()),
        };
        let history = Deaths::decode(&stored.hidden.history).ok();
        let deaths = Deaths::after(history, &died, u64::try_from(now.wall_ms).unwrap_or(0));
        let (keys, hidden_bcc, headers) = match dead_letter_routing_key {
            // Its own keys go, those of CC and BCC as well.
            Some(key) => (vec![key.clone().into_bytes()], Vec::new(), headers.without("CC")),
            None => (keys, bcc.clone(), headers),
        };
        let headers = deaths.headers(&decode_table(headers.raw()).unwrap_or_default());
        basic.headers = Table::new(encode_table(&headers)).ok();
        let hidden = Hidden { bcc: hidden_bcc, history: deaths.encode() };
        let properties = Properties::from(&basic);
        Some(Letter { exchange, keys, properties, hidden, deaths, body: stored.body })
    }

    fn message(&self, reached: Reached, now: Now) -> PublishMessage {
        let body = std::slice::from_ref(&self.body);
        let key = self.keys.first().map_or(&b""[..], Bytes::as_ref);
        let delayed = reached.properties(&self.properties);
        let raw = delayed.as_ref().unwrap_or(&self.properties).raw();
        let bytes = store(&self.exchange, key, raw, Some(&self.hidden), body);
        reached.message(bytes, self.properties.delivery_mode, now.wall_ms)
    }
}

#[cfg(test)]
mod tests;
