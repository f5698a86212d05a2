//! Republishing of dead-lettered messages to the dead-letter exchanges of their queues. Sans-IO, one instance per broker, independent of client
//! connections.
//!
//! ```text
//!   queue ──Event::Dead──> DeadLetters ──Request::Publish──> other queues
//!     ^                                                           │ durable in all of them
//!     └──────────────────── Request::DeadMoved <──────────────────┘
//! ```
//!
//! A message leaves its queue once it is durable in all target queues: that costs nothing here, and applies to all queue types.
//! `x-dead-letter-strategy` only decides about messages that cannot be delivered, because the exchange does not exist, nothing is bound, or a queue
//! is full and rejects: `at-most-once` drops them, `at-least-once` keeps and retries them.
//!
//! A message in a cycle of queues without a rejection is dropped ([`Deaths::is_cycle`]).

use crate::backoff::{Backoff, Delays};
use crate::convert::View;
use crate::directory::{Directory, QueueEntry};
use crate::message::{Hidden, Stored, open, store};
use crate::publish::{TARGETS_PER_REQUEST, more_targets};
use crate::route::{PausedRoute, Reached, RouteContext, RoutedMessage, reach};
use crate::turn::{REQUEST_STEPS, TARGET_STEPS};
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties, Table};
use polylogue_amqp_model::{DeadLetterStrategy, Deaths, NewDeath, QueueSettings, Reason, decode_table, encode_table};
use polylogue_api::{
    Ack, Catalog, DeadLetterResult, DeadMessage, DeadOutcome, DeadReason, Event, Now, PublishError, PublishMessage,
    PublishRequest, Reply, Request, Token,
};
use polylogue_router::Scratch;
use polylogue_types::{Map, Offset, PartitionId, Set};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// Backoff for messages of a queue that could not be moved.
const RETRY: Delays = Delays { min_ms: 50, max_ms: 5_000 };
/// Up to this many target queues, a message that must not be lost is published to each separately; with more, a queue may get it twice.
const SEPARATE_MAX: usize = 16;
/// The most messages that are in only some of their target queues; beyond that it is forgotten which queues have them.
const PARTIAL_MAX: usize = 10_000;
/// The most queues remembered as deleted; then all are forgotten.
const GONE_MAX: usize = 10_000;
/// From this many waiting queues on, deleted ones are searched.
const BACKOFFS_PRUNE_MIN: usize = 64;

/// Outcomes of dead-lettered messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeadCounts {
    /// In at least one other queue.
    pub moved: u64,
    /// Dropped: no exchange, no queue behind it, or only queues that rejected; or in a cycle. Or rejected by their own queue, and not movable
    /// immediately: such messages are stored nowhere.
    pub dropped: u64,
    /// To be retried.
    pub retried: u64,
}

/// A message being moved.
#[derive(Debug)]
struct MovingMessage {
    queue: PartitionId,
    offset: Offset,
    sure: bool,
    /// Publishes without a result.
    open: usize,
    arrived: usize,
    /// A part has to be retried.
    again: bool,
}

/// One publish: its message, and the target queues.
#[derive(Debug)]
struct Part {
    of: usize,
    to: Vec<PartitionId>,
}

/// Messages that were announced together.
#[derive(Debug)]
struct Batch {
    moving: Vec<MovingMessage>,
    parts: Vec<Part>,
    /// The requests to publish, one after the other: a message may have very many target queues.
    messages: VecDeque<PublishMessage>,
    /// The results of the parts so far.
    results: Vec<Result<(), PublishError>>,
    /// How many parts are in flight.
    asked: usize,
}

/// Messages announced together, of which some are not routed yet.
#[derive(Debug)]
struct Unrouted {
    dead: VecDeque<DeadMessage>,
    now: Now,
    batch: Batch,
    /// The paused routing of the first one.
    paused: Option<Box<PausedMessage>>,
}

/// A message whose routing is paused.
#[derive(Debug)]
struct PausedMessage {
    from: Arc<QueueEntry>,
    letter: DeadLetter,
    paused_route: Box<PausedRoute>,
    is_cycle: bool,
}

/// The routed message, and whether it is in a cycle; `None` if it cannot be decoded or has no exchange.
type Found = Option<(PublishMessage, bool)>;

/// See the module.
#[derive(Debug)]
pub struct DeadLetters {
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    waiting: Map<Token, Batch>,
    /// Messages to route, and the steps that are left for that.
    unrouted: VecDeque<Unrouted>,
    steps: u64,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    scratch: Scratch,
    /// Queues by partition, as far as they were looked up.
    queues: Map<PartitionId, Arc<QueueEntry>>,
    /// Partitions without a queue: it was deleted before its dead messages were moved.
    gone: Set<PartitionId>,
    /// The backoff of each queue whose messages could not be moved.
    backoffs: Map<PartitionId, Backoff>,
    /// The number of them at which deleted ones are searched.
    prune_at: usize,
    /// Target queues that already have a message which others lack.
    partial: Map<(PartitionId, Offset), Vec<PartitionId>>,
    counts: DeadCounts,
}

impl DeadLetters {
    /// Starts by subscribing to dead messages.
    #[must_use]
    pub fn new(directory: Arc<Directory>, catalog: Arc<dyn Catalog>) -> DeadLetters {
        let requests = VecDeque::from([(0, Request::MoveDead)]);
        DeadLetters {
            directory,
            catalog,
            waiting: Map::default(),
            unrouted: VecDeque::new(),
            steps: u64::MAX,
            requests,
            next_token: 0,
            scratch: Scratch::default(),
            queues: Map::default(),
            gone: Set::default(),
            backoffs: Map::default(),
            prune_at: BACKOFFS_PRUNE_MIN,
            partial: Map::default(),
            counts: DeadCounts::default(),
        }
    }

    /// Returns the next request for the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// Returns the outcomes since the last call.
    pub fn take_counts(&mut self) -> DeadCounts {
        std::mem::take(&mut self.counts)
    }

    /// Begins a turn of at most this many steps ([`polylogue_types::turn`]). Without turns everything is done immediately.
    pub fn begin_turn(&mut self, steps_max: u64) {
        self.steps = steps_max;
        self.proceed();
    }

    /// Whether there is work left that only needs another turn.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        !self.unrouted.is_empty()
    }

    /// Handles a reply of the broker.
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

    /// Handles an event of the broker.
    pub fn on_event(&mut self, event: Event, now: Now) {
        if let Event::Dead(messages) = event {
            let batch = Batch {
                moving: Vec::with_capacity(messages.len()),
                parts: Vec::with_capacity(messages.len()),
                messages: VecDeque::with_capacity(messages.len()),
                results: Vec::new(),
                asked: 0,
            };
            self.unrouted.push_back(Unrouted { dead: messages.into(), now, batch, paused: None });
            self.proceed();
        }
    }

    fn request(&mut self, request: Request) -> Token {
        self.next_token += 1;
        self.requests.push_back((self.next_token, request));
        self.next_token
    }

    /// Routes messages, as far as there are steps.
    fn proceed(&mut self) {
        while let Some(mut unrouted) = self.unrouted.pop_front() {
            if !self.find_queues(&mut unrouted) {
                return self.unrouted.push_front(unrouted);
            }
            self.publish(unrouted.batch);
        }
    }

    /// Returns whether all of them are routed.
    fn find_queues(&mut self, unrouted: &mut Unrouted) -> bool {
        while let Some(one) = unrouted.dead.front() {
            if self.steps == 0 {
                return false;
            }
            let from = unrouted.paused.as_ref().map(|paused| paused.from.clone()).or_else(|| self.queue(one.queue));
            let mut moving =
                MovingMessage { queue: one.queue, offset: one.offset, sure: false, open: 0, arrived: 0, again: false };
            if let Some(from) = from {
                moving.sure = from.settings.dead_letter_strategy == DeadLetterStrategy::AtLeastOnce;
                match self.route(from, one, unrouted.now, unrouted.paused.take()) {
                    Ok(found) => self.send(found, &mut moving, &mut unrouted.batch),
                    Err(paused) => {
                        unrouted.paused = Some(paused);
                        return false;
                    }
                }
            }
            unrouted.batch.moving.push(moving);
            unrouted.dead.pop_front();
        }
        true
    }

    /// Publishes the next part of a batch, or completes it.
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

    /// Publishes a message to the queues that do not have it yet: if it must not be lost, to each separately, so that the result of each is known.
    fn send(&mut self, found: Found, moving: &mut MovingMessage, batch: &mut Batch) {
        let Some((mut message, is_cycle)) = found else {
            moving.again = moving.sure;
            return;
        };
        if message.queues.is_empty() {
            // A message in a cycle is not retried.
            moving.again = moving.sure && !is_cycle;
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
                // The queue was deleted or is full: without a guarantee, the message is dropped.
                Some(Err(PublishError::UnknownQueue | PublishError::QueueFull)) => moving.again |= moving.sure,
                // A message that its queue rejected was never stored there: it cannot be kept for a retry.
                Some(Err(PublishError::Unavailable(_))) | None => {
                    moving.again = !DeadMessage::was_refused(moving.offset);
                }
            }
        }
        // A dropped message that its queue rejected says nothing about the others.
        let conclusive = |moving: &&MovingMessage| moving.arrived > 0 || !DeadMessage::was_refused(moving.offset);
        for moving in batch.moving.iter().filter(|moving| !moving.again).filter(conclusive) {
            self.backoffs.remove(&moving.queue);
        }
        if self.backoffs.len() + self.partial.len() >= self.prune_at {
            self.update_queues();
            self.prune_at = (2 * (self.backoffs.len() + self.partial.len())).max(BACKOFFS_PRUNE_MIN);
        }
        // A queue has one backoff for all its messages.
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

    fn outcome(&mut self, moving: &MovingMessage, waits: &mut Map<PartitionId, u64>) -> DeadOutcome {
        let MovingMessage { queue, offset, .. } = *moving;
        let how = if moving.again {
            self.counts.retried += 1;
            let backoff = self.backoffs.entry(queue).or_default();
            DeadLetterResult::Later(*waits.entry(queue).or_insert_with(|| backoff.failed(RETRY)))
        } else {
            self.partial.remove(&(queue, offset));
            let counter = if moving.arrived > 0 { &mut self.counts.moved } else { &mut self.counts.dropped };
            *counter += 1;
            DeadLetterResult::Moved
        };
        DeadOutcome { queue, offset, how }
    }

    /// Returns the queue of a partition; `None` if it was deleted.
    fn queue(&mut self, partition: PartitionId) -> Option<Arc<QueueEntry>> {
        let known = self.queues.get(&partition).map(|entry| entry.queue.id);
        if let Some(entry) = known.and_then(|id| self.directory.queue(id)) {
            return Some(entry);
        }
        // Partitions are never reused.
        if known.is_none() && !self.gone.contains(&partition) {
            self.update_queues();
        }
        let found = self.queues.get(&partition).filter(|_| known.is_none()).cloned();
        if found.is_none() && self.gone.insert(partition) && self.gone.len() > GONE_MAX {
            self.gone.clear();
        }
        found
    }

    /// Updates the known queues, and forgets the state of deleted ones.
    fn update_queues(&mut self) {
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

    /// Builds the message to publish and routes it; returns the paused routing if the steps are used up.
    fn route(
        &mut self,
        from: Arc<QueueEntry>,
        dead: &DeadMessage,
        now: Now,
        paused: Option<Box<PausedMessage>>,
    ) -> Result<Found, Box<PausedMessage>> {
        let (letter, paused_route, is_cycle) = match paused {
            Some(paused) => (paused.letter, Some(paused.paused_route), paused.is_cycle),
            None => {
                self.steps = self.steps.saturating_sub(REQUEST_STEPS);
                let letter = open(&dead.bytes).and_then(|stored| DeadLetter::of(stored, &from, dead.reason, now));
                let Some(letter) = letter else { return Ok(None) };
                (letter, None, false)
            }
        };
        let view = View::new(&letter.properties);
        let keys: Vec<&[u8]> = letter.keys.iter().map(Bytes::as_ref).collect();
        let sent = RoutedMessage {
            keys: &keys,
            view: &view,
            random: dead.offset.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ dead.queue.0,
            expiration_ms: None,
            priority: letter.properties.priority,
            now_ms: now.wall_ms,
        };
        let is_cycle = Cell::new(is_cycle);
        let wanted = |entry: &QueueEntry| {
            let cycle = letter.deaths.is_cycle(entry.queue.name.as_bytes());
            is_cycle.set(is_cycle.get() || cycle);
            !cycle
        };
        let (directory, catalog) = (self.directory.clone(), self.catalog.clone());
        let ways = RouteContext { directory: &directory, catalog: catalog.as_ref(), wanted: &wanted };
        let reached = match paused_route {
            Some(paused_route) => paused_route.resume(ways, &sent, &mut self.scratch, &mut self.steps),
            None => {
                let routes = directory.router().load();
                let Some(entry) = routes.entry(from.queue.vhost, letter.exchange.as_ref()) else { return Ok(None) };
                reach(ways, &routes, entry, &sent, &mut self.scratch, &mut self.steps)
            }
        };
        match reached {
            Ok(reached) => Ok(Some((letter.message(reached, now), is_cycle.get()))),
            Err(paused_route) => {
                let is_cycle = is_cycle.get();
                Err(Box::new(PausedMessage { from, letter, paused_route, is_cycle }))
            }
        }
    }
}

/// A dead-lettered message, as it is republished.
#[derive(Debug)]
struct DeadLetter {
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

impl DeadLetter {
    /// `None` if there is no dead-letter exchange (any more), or the stored bytes are no message.
    fn of(stored: Stored, from: &QueueEntry, reason: DeadReason, now: Now) -> Option<DeadLetter> {
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
        let died = NewDeath {
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
            // Its own keys are dropped, those of CC and BCC too.
            Some(key) => (vec![key.clone().into_bytes()], Vec::new(), headers.without("CC")),
            None => (keys, bcc.clone(), headers),
        };
        let headers = deaths.headers(&decode_table(headers.raw()).unwrap_or_default());
        basic.headers = Table::new(encode_table(&headers)).ok();
        let hidden = Hidden { bcc: hidden_bcc, history: deaths.encode() };
        let properties = Properties::from(&basic);
        Some(DeadLetter { exchange, keys, properties, hidden, deaths, body: stored.body })
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
