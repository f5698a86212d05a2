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
use crate::route::{Reached, Sent, reach};
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
}

/// See the module.
#[derive(Debug)]
pub struct DeadLetters {
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    waiting: Map<Token, Batch>,
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

    /// The broker's answer.
    pub fn on_reply(&mut self, token: Token, reply: Reply) {
        let Some(batch) = self.waiting.remove(&token) else { return };
        match reply {
            Reply::Publish(results) => self.published(batch, &results),
            _ => self.published(batch, &[]),
        }
    }

    /// What the broker says.
    pub fn on_event(&mut self, event: Event, now: Now) {
        if let Event::Dead(messages) = event {
            self.died(&messages, now);
        }
    }

    fn request(&mut self, request: Request) -> Token {
        self.next_token += 1;
        self.requests.push_back((self.next_token, request));
        self.next_token
    }

    fn died(&mut self, dead: &[DeadMessage], now: Now) {
        let mut messages = Vec::with_capacity(dead.len());
        let mut batch = Batch { moving: Vec::with_capacity(dead.len()), parts: Vec::with_capacity(dead.len()) };
        for one in dead {
            let mut moving =
                Moving { queue: one.queue, offset: one.offset, sure: false, open: 0, arrived: 0, again: false };
            if let Some(from) = self.queue(one.queue) {
                moving.sure = from.settings.dead_letter_strategy == DeadLetterStrategy::AtLeastOnce;
                let reached = self.route(&from, one, now);
                self.send(reached, &mut moving, batch.moving.len(), &mut batch.parts, &mut messages);
            }
            batch.moving.push(moving);
        }
        if messages.is_empty() {
            return self.published(batch, &[]);
        }
        let token = self.request(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
        self.waiting.insert(token, batch);
    }

    /// Publishes a message to the queues that do not have it yet: where it must not get lost, to each for itself, so that it is known which
    /// ones have it.
    fn send(
        &mut self,
        reached: Option<(PublishMessage, bool)>,
        moving: &mut Moving,
        of: usize,
        parts: &mut Vec<Part>,
        messages: &mut Vec<PublishMessage>,
    ) {
        let Some((mut message, circles)) = reached else {
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
        let mut publish = |queues: Vec<_>| {
            parts.push(Part { of, to: queues.iter().map(|target: &polylogue_api::Target| target.queue).collect() });
            messages.push(PublishMessage { queues, ..message.clone() });
            moving.open += 1;
        };
        if moving.sure && message.queues.len() <= SEPARATE_MAX {
            message.queues.iter().for_each(|target| publish(vec![*target]));
        } else if !message.queues.is_empty() {
            publish(message.queues.clone());
        }
    }

    fn published(&mut self, mut batch: Batch, results: &[Result<(), PublishError>]) {
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

    /// The message as it goes on, with its queues, and whether it would go round. `None` when it cannot be read or there is no
    /// exchange for it.
    fn route(&mut self, from: &QueueEntry, dead: &DeadMessage, now: Now) -> Option<(PublishMessage, bool)> {
        let letter = Letter::of(open(&dead.bytes)?, from, dead.reason, now)?;
        let routes = self.directory.router().load();
        let exchange = letter.exchange.as_ref();
        let entry = routes.entry(from.queue.vhost, exchange)?;
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
        let circles = Cell::new(false);
        let wanted = |entry: &QueueEntry| {
            let cycle = letter.deaths.is_cycle(entry.queue.name.as_bytes());
            circles.set(circles.get() || cycle);
            !cycle
        };
        let (directory, catalog) = (self.directory.clone(), self.catalog.clone());
        let reached = reach(&directory, catalog.as_ref(), &routes, entry, &sent, &wanted, &mut self.scratch);
        Some((letter.message(reached, now), circles.get()))
    }
}

/// A message that died, as it goes on.
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
mod tests {
    use super::*;
    use crate::testing::{Topics, World, body};
    use polylogue_amqp::codec::{TableBuilder, Value};
    use polylogue_amqp_model::{Bind, Command, DeclareExchange, To};
    use polylogue_api::Unavailable;
    use polylogue_router::Argument;
    use serde_json::json;

    const NOW: Now = Now { wall_ms: 1_700_000_000_123, monotonic_ms: 5 };

    fn dead(queue: PartitionId, offset: u64, reason: DeadReason, bytes: Bytes) -> DeadMessage {
        DeadMessage { queue, offset: Offset(offset), reason, bytes }
    }

    fn plain(key: &str) -> Bytes {
        store(b"", key.as_bytes(), Properties::none().raw(), None, &body("x"))
    }

    fn letters(world: &World) -> DeadLetters {
        let mut letters = DeadLetters::new(world.directory.clone(), Arc::new(Topics));
        assert!(matches!(letters.poll_request(), Some((0, Request::MoveDead))));
        letters
    }

    /// What is published of a message, and under which token.
    fn published(letters: &mut DeadLetters, dead: Vec<DeadMessage>) -> (Token, Vec<PublishMessage>) {
        letters.on_event(Event::Dead(dead), NOW);
        match letters.poll_request() {
            Some((token, Request::Publish(request))) => (token, request.messages),
            other => panic!("{other:?}"),
        }
    }

    fn answered(letters: &mut DeadLetters) -> Vec<DeadFate> {
        match letters.poll_request() {
            Some((_, Request::DeadMoved(outcomes))) => outcomes.iter().map(|outcome| outcome.how).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// All queues were looked through for each of its messages, and what was kept of it stayed for ever.
    #[test]
    fn a_queue_that_is_gone_is_looked_for_once_and_forgotten() {
        let mut world = World::new();
        let work = world.queue("work", json!({"x-dead-letter-exchange": "nowhere"}));
        let mut letters = letters(&world);
        letters.backoffs.insert(work, Backoff::default());
        letters.partial.insert((work, Offset(1)), Vec::new());
        let id = world.directory.router().load().queue(world.vhost, b"work").expect("declared");
        world.act(Command::RemoveQueue(id, polylogue_amqp_model::Gone::Expired));
        for partition in [work, PartitionId(9)] {
            letters.on_event(Event::Dead(vec![dead(partition, 3, DeadReason::Expired, plain("work"))]), NOW);
            assert_eq!(answered(&mut letters), [DeadFate::Moved], "nobody wants it");
            assert!(letters.gone.contains(&partition));
        }
        assert_eq!((letters.backoffs.len(), letters.partial.len()), (0, 0));
        let back = world.queue("back", json!({}));
        letters.queues.insert(PartitionId(9), world.directory.queues().remove(0));
        letters.queues.clear();
        assert!(letters.queue(PartitionId(9)).is_none() && letters.queues.is_empty(), "it was looked for again");
        assert!(letters.queue(back).is_some());
    }

    fn queues(message: &PublishMessage) -> Vec<PartitionId> {
        message.queues.iter().map(|target| target.queue).collect()
    }

    #[test]
    fn a_dead_message_goes_on_with_its_history_and_is_settled_once_it_is_there() {
        let mut world = World::new();
        let work = world.queue("work", json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}));
        let grave = world.queue("grave", json!({"x-message-ttl": 1_000}));
        let mut letters = letters(&world);
        let basic = BasicProperties {
            headers: Some(TableBuilder::new().with_text("k", "v").with_texts("CC", &["copy"]).build()),
            delivery_mode: Some(2),
            expiration: Some("60000".into()),
            ..BasicProperties::default()
        };
        let hidden = Hidden { bcc: vec![Bytes::from_static(b"blind")], ..Hidden::default() };
        let bytes = store(b"amq.direct", b"work", &basic.encode(), Some(&hidden), &body("x"));
        let (token, messages) = published(&mut letters, vec![dead(work, 3, DeadReason::Expired, bytes)]);
        assert_eq!((messages.len(), queues(&messages[0])), (1, vec![grave]));
        assert_eq!(messages[0].queues[0].expires_at, Some(NOW.wall_ms + 1_000), "of the queue, not its own");
        assert!(!messages[0].flags.contains(polylogue_record::envelope::EntryFlags::TRANSIENT));
        let stored = open(&messages[0].bytes).expect("a message");
        assert_eq!(
            (&stored.exchange[..], &stored.routing_key[..], &stored.body[..]),
            (&b""[..], &b"grave"[..], &b"x"[..])
        );
        let basic = BasicProperties::decode(&stored.properties).expect("properties");
        let headers = basic.headers.expect("headers");
        assert_eq!((basic.expiration, headers.get("CC"), stored.hidden.bcc), (None, None, vec![]));
        assert_eq!(headers.get("k"), Some(Value::LongStr(b"v")));
        assert_eq!(headers.get("x-first-death-reason"), Some(Value::LongStr(b"expired")));
        assert_eq!(headers.get("x-last-death-queue"), Some(Value::LongStr(b"work")));
        let deaths: Vec<_> = headers.get("x-death").expect("a history").elements().collect();
        let fields: Vec<_> = deaths[0].1.fields().map(|field| (field.name, field.value)).collect();
        let expected = [
            (&b"original-expiration"[..], Value::LongStr(b"60000")),
            (b"count", Value::I64(1)),
            (b"reason", Value::LongStr(b"expired")),
            (b"queue", Value::LongStr(b"work")),
            (b"time", Value::Timestamp(1_700_000_000)),
            (b"exchange", Value::LongStr(b"amq.direct")),
        ];
        assert_eq!((deaths.len(), &fields[..6]), (1, &expected[..]));
        let keys: Vec<_> = fields[6].1.elements().filter_map(|(_, key)| key.as_longstr()).collect();
        assert_eq!(keys, [&b"work"[..], b"copy"], "BCC stays hidden");
        assert!(letters.poll_request().is_none(), "not before it is there");
        letters.on_reply(token, Reply::Publish(vec![Ok(())]));
        assert_eq!(answered(&mut letters), [DeadFate::Moved]);
        assert_eq!(letters.take_counts(), DeadCounts { moved: 1, ..DeadCounts::default() });
    }

    #[test]
    fn without_a_key_of_its_own_it_goes_by_all_keys_that_it_had() {
        let mut world = World::new();
        let work = world.queue("work", json!({"x-dead-letter-exchange": "amq.direct"}));
        for (queue, key) in [("a", "work"), ("b", "copy"), ("c", "blind")] {
            world.queue(queue, json!({}));
            let to = To::Queue(queue.into());
            let bind =
                Bind { vhost: world.vhost, source: "amq.direct".into(), to, key: key.into(), arguments: Vec::new() };
            world.act(Command::Bind(bind));
        }
        let mut letters = letters(&world);
        let headers = Some(TableBuilder::new().with_texts("CC", &["copy"]).build());
        let basic = BasicProperties { headers, ..BasicProperties::default() };
        let hidden = Hidden { bcc: vec![Bytes::from_static(b"blind")], ..Hidden::default() };
        let bytes = store(b"", b"work", &basic.encode(), Some(&hidden), &body("x"));
        let (_, messages) = published(&mut letters, vec![dead(work, 0, DeadReason::Rejected, bytes)]);
        assert_eq!(messages[0].queues.len(), 3);
        let stored = open(&messages[0].bytes).expect("a message");
        assert_eq!(stored.hidden.bcc, hidden.bcc);
        assert_eq!(&stored.routing_key[..], b"work");
    }

    #[test]
    fn a_message_that_goes_round_without_being_rejected_is_dropped() {
        let mut world = World::new();
        let to = |key: &str| json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key});
        let (work, retry) = (world.queue("work", to("retry")), world.queue("retry", to("work")));
        let mut letters = letters(&world);
        for (first, dropped) in [(DeadReason::Rejected, false), (DeadReason::MaxLength, true)] {
            let (_, messages) = published(&mut letters, vec![dead(work, 0, first, plain("work"))]);
            assert_eq!(queues(&messages[0]), [retry]);
            let again = dead(retry, 0, DeadReason::Expired, messages[0].bytes.clone());
            if dropped {
                letters.on_event(Event::Dead(vec![again]), NOW);
                assert_eq!(answered(&mut letters), [DeadFate::Moved]);
                assert_eq!(letters.take_counts().dropped, 1);
                continue;
            }
            let (_, messages) = published(&mut letters, vec![again]);
            assert_eq!(queues(&messages[0]), [work], "the classic way to try again later");
            let stored = open(&messages[0].bytes).expect("a message");
            let headers = Properties::new(stored.properties).expect("properties").headers().expect("headers");
            assert_eq!(headers.get("x-death").expect("a history").elements().count(), 2);
            let third = dead(work, 1, DeadReason::Rejected, messages[0].bytes.clone());
            let (_, messages) = published(&mut letters, vec![third]);
            let history = open(&messages[0].bytes).expect("a message").hidden.history;
            let deaths = Deaths::decode(&history).expect("a history");
            let counts: Vec<_> = deaths.entries().iter().map(|d| (&d.queue[..], d.reason, d.count)).collect();
            assert_eq!(counts, [(&b"work"[..], Reason::Rejected, 2), (b"retry", Reason::Expired, 1)]);
        }
    }

    #[test]
    fn what_does_not_get_there_is_dropped_or_kept_as_the_queue_says() {
        let mut world = World::new();
        let sure = |exchange: &str| {
            json!({"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
                   "x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "k"})
        };
        let unsure = |exchange: &str| json!({"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "k"});
        let nowhere = [world.queue("u0", unsure("nowhere")), world.queue("s0", sure("nowhere"))];
        let unbound = [world.queue("u1", unsure("amq.topic")), world.queue("s1", sure("amq.topic"))];
        let bound = [world.queue("u2", unsure("amq.fanout")), world.queue("s2", sure("amq.fanout"))];
        let targets = ["a", "b"].map(|name| {
            let queue = world.queue(name, json!({}));
            let to = To::Queue(name.into());
            let key = "".into();
            world.act(Command::Bind(Bind {
                vhost: world.vhost,
                source: "amq.fanout".into(),
                to,
                key,
                arguments: vec![],
            }));
            queue
        });
        let mut letters = letters(&world);
        for [unsure, sure] in [nowhere, unbound] {
            let both = [unsure, sure].map(|queue| dead(queue, 0, DeadReason::Rejected, plain("k")));
            letters.on_event(Event::Dead(both.to_vec()), NOW);
            assert_eq!(answered(&mut letters), [DeadFate::Moved, DeadFate::Later(RETRY.min_ms)]);
        }
        let both = bound.map(|queue| dead(queue, 0, DeadReason::Rejected, plain("k")));
        let (token, messages) = published(&mut letters, both.to_vec());
        let to: Vec<_> = messages.iter().map(queues).collect();
        assert_eq!(to, [vec![targets[0], targets[1]], vec![targets[0]], vec![targets[1]]]);
        let full = Err(PublishError::QueueFull);
        letters.on_reply(token, Reply::Publish(vec![full, Ok(()), full]));
        assert_eq!(answered(&mut letters), [DeadFate::Moved, DeadFate::Later(RETRY.min_ms)]);
        for wait_ms in [2 * RETRY.min_ms, 4 * RETRY.min_ms] {
            let (token, messages) = published(&mut letters, vec![both[1].clone()]);
            let to: Vec<_> = messages.iter().map(queues).collect();
            assert_eq!(to, [[targets[1]]], "the other one has it");
            letters.on_reply(token, Reply::Publish(vec![Err(PublishError::Unavailable(Unavailable::StorageFull))]));
            assert_eq!(answered(&mut letters), [DeadFate::Later(wait_ms)]);
        }
        let (token, _) = published(&mut letters, vec![both[1].clone()]);
        letters.on_reply(token, Reply::Publish(vec![Ok(())]));
        assert_eq!(answered(&mut letters), [DeadFate::Moved]);
        assert!(letters.partial.is_empty() && !letters.backoffs.contains_key(&bound[1]));
        let declare = DeclareExchange {
            vhost: world.vhost,
            name: "nowhere".into(),
            kind: "fanout".into(),
            ..DeclareExchange::default()
        };
        world.act(Command::DeclareExchange(declare));
        let to = To::Queue("a".into());
        let (source, key) = ("nowhere".into(), "".into());
        world.act(Command::Bind(Bind { vhost: world.vhost, source, to, key, arguments: vec![] }));
        let (_, messages) = published(&mut letters, vec![dead(nowhere[1], 0, DeadReason::Rejected, plain("k"))]);
        assert_eq!(queues(&messages[0]), [targets[0]], "the exchange has come");
    }

    /// Of a message that its queue refused, and that could not be moved at once, nobody keeps a copy: it was counted as one to be tried again,
    /// and made the queue's others wait.
    #[test]
    fn a_refused_message_that_cannot_be_moved_is_dropped_and_holds_up_no_others() {
        let mut world = World::new();
        let arguments = json!({"x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "amq.fanout"});
        let work = world.queue("work", arguments);
        for name in ["a", "b"] {
            world.queue(name, json!({}));
            let (source, to) = ("amq.fanout".into(), To::Queue(name.into()));
            world.act(Command::Bind(Bind { vhost: world.vhost, source, to, key: "".into(), arguments: vec![] }));
        }
        let mut letters = letters(&world);
        let refused = dead(work, DeadMessage::refused(1).0, DeadReason::MaxLength, plain("work"));
        for lost in
            [Reply::Publish(vec![Err(PublishError::Unavailable(Unavailable::StorageFull))]), Reply::Publish(vec![])]
        {
            let (token, _) = published(&mut letters, vec![refused.clone()]);
            letters.on_reply(token, lost);
            assert_eq!(answered(&mut letters), [DeadFate::Moved]);
            assert_eq!(letters.take_counts(), DeadCounts { dropped: 1, ..DeadCounts::default() });
            assert!(letters.backoffs.is_empty() && letters.partial.is_empty());
        }
        // One that was there is kept by its queue.
        let (token, _) = published(&mut letters, vec![dead(work, 0, DeadReason::Expired, plain("work"))]);
        letters.on_reply(token, Reply::Publish(vec![]));
        assert_eq!(answered(&mut letters), [DeadFate::Later(RETRY.min_ms)]);
        assert_eq!(letters.take_counts(), DeadCounts { retried: 1, ..DeadCounts::default() });
        // Nor does what is dropped tell that the way is free again.
        let (token, _) = published(&mut letters, vec![refused]);
        letters.on_reply(token, Reply::Publish(vec![]));
        assert_eq!(answered(&mut letters), [DeadFate::Moved]);
        let (token, _) = published(&mut letters, vec![dead(work, 0, DeadReason::Expired, plain("work"))]);
        letters.on_reply(token, Reply::Publish(vec![]));
        assert_eq!(answered(&mut letters), [DeadFate::Later(2 * RETRY.min_ms)]);
    }

    /// cloudamqp/lavinmq#748: dead letters did not get on through an exchange that delays them.
    #[test]
    fn a_dead_message_is_delayed_once() {
        let mut world = World::new();
        let work = world.queue("work", json!({"x-dead-letter-exchange": "later"}));
        let delayed = Argument {
            name: "x-delayed-type".into(),
            tag: b'S',
            value: polylogue_router::Value::Bytes(Bytes::from_static(b"fanout")),
        };
        let (kind, arguments) = ("x-delayed-message".into(), vec![delayed]);
        let (vhost, name) = (world.vhost, "later".into());
        world.act(Command::DeclareExchange(DeclareExchange {
            vhost,
            name,
            kind,
            arguments,
            ..DeclareExchange::default()
        }));
        let to = To::Queue("work".into());
        let (source, key) = ("later".into(), "".into());
        world.act(Command::Bind(Bind { vhost, source, to, key, arguments: vec![] }));
        let mut letters = letters(&world);
        let headers = Some(TableBuilder::new().with("x-delay", Value::I64(5_000)).build());
        let basic = BasicProperties { headers, ..BasicProperties::default() };
        let bytes = store(b"", b"work", &basic.encode(), None, &body("x"));
        let (_, messages) = published(&mut letters, vec![dead(work, 0, DeadReason::Rejected, bytes)]);
        assert_eq!((queues(&messages[0]), messages[0].queues[0].deliver_at), (vec![work], Some(NOW.wall_ms + 5_000)));
        let stored = open(&messages[0].bytes).expect("a message");
        let headers = Properties::new(stored.properties).expect("properties").headers().expect("headers");
        assert_eq!(headers.get("x-delay"), Some(Value::I64(-5_000)), "as RabbitMQ shows it");
        let again = dead(work, 1, DeadReason::Rejected, messages[0].bytes.clone());
        let (_, messages) = published(&mut letters, vec![again]);
        assert_eq!((queues(&messages[0]), messages[0].queues[0].deliver_at), (vec![work], None));
    }

    #[test]
    fn what_is_no_message_or_of_no_queue_is_done_with() {
        let mut world = World::new();
        let work = world.queue("work", json!({"x-dead-letter-exchange": ""}));
        let mut letters = letters(&world);
        let garbage = dead(work, 0, DeadReason::Rejected, Bytes::from_static(b"garbage"));
        let gone = dead(PartitionId(9), 0, DeadReason::Rejected, plain("work"));
        letters.on_event(Event::Dead(vec![garbage, gone]), NOW);
        assert_eq!(answered(&mut letters), [DeadFate::Moved; 2]);
    }
}
