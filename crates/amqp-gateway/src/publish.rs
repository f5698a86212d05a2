//! Publishing: routing, batching and confirms.

use crate::connection::Connection;
use crate::convert::View;
use crate::counts::Count;
use crate::flow::{Amount, Flow};
use crate::management::PrincipalOutput;
use crate::message::{Hidden, store};
use crate::operation::Waits;
use crate::pace::Pace;
use crate::replies::address_of;
use crate::route::{PausedRoute, Reached, RouteContext, RoutedMessage, reach};
use crate::turn::{Awaiting, REQUEST_STEPS, TARGET_STEPS, Work};
use bytes::Bytes;
use polylogue_amqp::codec::MethodId;
use polylogue_amqp::refusal::{Kind, Named, Refusal};
use polylogue_amqp::request::{self as amqp, ChannelRef, Publish};
use polylogue_amqp_model::{Access, Resource, Subject};
use polylogue_api::{Ack, PUBLISH_MESSAGES_MAX, PublishError, PublishMessage, PublishRequest, Request, Unavailable};
use polylogue_router::{Entry, Snapshot};

/// `basic.publish`: class 60, method 40.
pub(crate) const PUBLISH: MethodId = MethodId { class: 60, method: 40 };
/// The most bytes of messages in one request, unless a single message is larger.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The most exchanges for which a connection remembers that its user may publish.
pub(crate) const ALLOWED_MAX: usize = 256;
/// The most unanswered bytes of a connection; beyond that it is not read until some are answered. Bytes.
pub(crate) const UNANSWERED_BYTES_MAX: usize = 4 << 20;
/// After this many bytes of messages without confirms a reply is awaited nevertheless: the unanswered amount has to be known. Bytes.
const UNCOUNTED_BYTES_MAX: usize = 1 << 20;

/// The most targets of one request, beyond the first one of each message: a message to more queues is split, unless it is to be in all of them or in
/// none.
pub(crate) const TARGETS_PER_REQUEST: usize = 1_024;
/// The most unanswered targets; beyond that no more are sent: a message to 10,000 queues would delay the shard, the log and all their other users.
pub(crate) const TARGETS_UNANSWERED_MAX: usize = 4_096;

/// What each request counts in addition to its messages: it is at least one proposal, and the log's queue, which all share, holds a limited number of
/// them. A connection has at most 1,024 in flight. Bytes.
pub(crate) const REQUEST_BYTES: usize = 4 << 10;

/// Messages to send to the broker, those with an outcome to report and the others: each in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// With the channel and the sequence number of each.
    confirmed: (Vec<PublishMessage>, Vec<(ChannelRef, u64)>),
    /// How many of these the previous batch had, as an estimate.
    confirmed_before: usize,
    others: Vec<PublishMessage>,
    bytes: usize,
    /// Bytes of unanswered requests.
    pub(crate) unanswered_bytes: usize,
    /// Targets of these requests beyond the first one of each message.
    pub(crate) unanswered_targets: usize,
    /// The same of messages that are not sent yet.
    targets: usize,
    /// Bytes of messages sent without a reply since the last request with one, and their targets.
    uncounted_bytes: usize,
    uncounted_targets: usize,
    /// Publishes without confirms that have no credit yet.
    pub(crate) flow: Flow,
    pace: Pace,
}

impl Batch {
    /// Releases unused memory.
    pub(crate) fn release_memory(&mut self) {
        self.confirmed.0.shrink_to_fit();
        self.confirmed.1.shrink_to_fit();
        self.others.shrink_to_fit();
    }

    /// Adds a message whose outcome is to be reported.
    fn push_confirmed(&mut self, message: PublishMessage, channel: ChannelRef, seq: u64) {
        let (messages, numbers) = &mut self.confirmed;
        if messages.is_empty() {
            messages.reserve(self.confirmed_before);
            numbers.reserve(self.confirmed_before);
        }
        messages.push(message);
        numbers.push((channel, seq));
    }

    /// Counts messages that are sent to the broker with a reply.
    pub(crate) fn is_asked(&mut self, bytes: usize, targets: usize) {
        self.unanswered_bytes += bytes;
        self.unanswered_targets += targets;
    }

    /// Targets beyond the first one of each message that are not known to be committed.
    pub(crate) fn targets_in_flight(&self) -> usize {
        self.unanswered_targets + self.uncounted_targets + self.targets
    }

    /// Counts a reply.
    pub(crate) fn is_answered(&mut self, bytes: usize, targets: usize) {
        self.unanswered_bytes -= bytes;
        self.unanswered_targets -= targets;
    }
}

/// The targets of messages beyond the first one of each.
pub(crate) fn more_targets(messages: &[PublishMessage]) -> usize {
    messages.iter().map(|message| message.queues.len().saturating_sub(1)).sum()
}

/// The unanswered size of the messages of one request. Bytes.
fn bytes_of(messages: &[PublishMessage]) -> usize {
    REQUEST_BYTES + messages.iter().map(PublishMessage::weight_bytes).sum::<usize>()
}

/// Whether a message is in all of its queues. A queue that was deleted while the message was in flight does not count: RabbitMQ confirms messages
/// that were deleted with their queue as well.
pub(crate) fn arrived(result: Result<(), PublishError>) -> bool {
    matches!(result, Ok(()) | Err(PublishError::UnknownQueue))
}

/// The result of routing a message.
pub(crate) enum Routed {
    To(PublishMessage, bool),
    /// The steps are used up.
    Left(Box<PausedRoute>),
}

impl Connection {
    /// Publishes a message. A refusal closes the channel. Routing that takes longer continues in the next turn.
    pub(crate) fn publish(&mut self, channel: ChannelRef, publish: Publish) {
        if !self.turn.work.is_empty() {
            // Only without a session that waits.
            return self.turn.work.push_back(Work::Publish(channel, publish));
        }
        self.publish_now(channel, publish);
    }

    /// Publishes a message that is next in order.
    pub(crate) fn publish_now(&mut self, channel: ChannelRef, publish: Publish) {
        if publish.exchange.is_empty()
            && let Some(to) = address_of(&publish.routing_key)
        {
            return self.send_reply(channel, publish, to);
        }
        if let Some((left, is_long)) = self.reach_on(channel, &publish, None) {
            self.turn.work.push_front(Work::Reach(channel, publish, left, is_long));
        }
    }

    /// Routes a message, or continues. Returns the paused routing if the steps are used up, and whether it takes longer than a turn.
    #[must_use]
    pub(crate) fn reach_on(
        &mut self,
        channel: ChannelRef,
        publish: &Publish,
        paused_route: Option<Box<PausedRoute>>,
    ) -> Option<(Box<PausedRoute>, bool)> {
        let (steps, is_later) = (self.turn.steps, paused_route.is_some());
        match self.route(publish, paused_route) {
            Ok(Routed::To(message, is_routed)) => self.publish_to(channel, publish, message, is_routed),
            Ok(Routed::Left(paused_route)) => return Some((paused_route, is_later || self.turn.is_long(steps))),
            Err(refusal) => self.refuse_publish(channel, refusal),
        }
        None
    }

    /// A message was routed.
    fn publish_to(&mut self, channel: ChannelRef, publish: &Publish, message: PublishMessage, is_routed: bool) {
        self.received(channel, publish);
        self.tally.reached(message.queues.len(), publish.mandatory);
        if !is_routed && publish.mandatory {
            self.return_message(channel, publish);
        }
        if message.queues.is_empty() {
            if let Some(seq) = publish.seq {
                self.confirm(channel, seq, seq);
            }
            return;
        }
        let more = message.queues.len() - 1;
        if more > 0 && self.batch.targets + more > TARGETS_PER_REQUEST {
            self.flush_batch();
            if more > TARGETS_PER_REQUEST {
                self.send_in_pieces([message].into(), Awaiting::Confirm(channel, publish.seq));
                return;
            }
        }
        self.turn.charge(TARGET_STEPS * more as u64);
        self.batch.targets += more;
        self.batch.bytes += message.weight_bytes();
        match publish.seq {
            Some(seq) => self.batch.push_confirmed(message, channel, seq),
            None => self.batch.others.push(message),
        }
        let count = self.batch.confirmed.0.len() + self.batch.others.len();
        if self.batch.bytes >= BATCH_BYTES_MAX || count >= PUBLISH_MESSAGES_MAX {
            self.flush_batch();
        }
    }

    /// Checks a message of a transaction, so that a refusal comes at the publish and not at the commit.
    pub(crate) fn check(&mut self, channel: ChannelRef, publish: &Publish) {
        self.turn.charge(REQUEST_STEPS);
        let directory = self.directory.clone();
        let is_reply = publish.exchange.is_empty() && address_of(&publish.routing_key).is_some();
        let judged = match is_reply {
            true => self.check_publish(publish),
            false => self.authorized_entry(&directory.router().load(), publish).map(drop),
        };
        if let Err(refusal) = judged {
            self.refuse_publish(channel, refusal);
        }
    }

    pub(crate) fn refuse_publish(&mut self, channel: ChannelRef, refusal: Refusal) {
        self.event(amqp::Event::CloseChannel { channel, method: PUBLISH, refusal });
    }

    /// Counts a message that the user may publish.
    pub(crate) fn received(&mut self, channel: ChannelRef, publish: &Publish) {
        self.tally.received(publish.body.len(), publish.seq.is_some());
        if self.publisher != Some(channel) {
            self.publisher = Some(channel);
            let open = self.channels.get_mut(&channel);
            if open.is_some_and(|open| !std::mem::replace(&mut open.publishes, true)) {
                self.show(|shown| shown.publishes(channel));
            }
        }
        if self.directory.is_tracing() {
            self.trace_publish(channel, publish);
        }
    }

    /// Messages are durable.
    pub(crate) fn confirm(&mut self, channel: ChannelRef, first: u64, last: u64) {
        // The client of a closed channel is not notified.
        self.tally.settled(last - first + 1, self.channels.contains_key(&channel));
        self.event(amqp::Event::Confirmed { channel, first, last });
    }

    /// Returns a message that was routed to no queue.
    pub(crate) fn return_message(&mut self, channel: ChannelRef, publish: &Publish) {
        self.event(amqp::Event::Return {
            channel,
            exchange: publish.exchange.clone(),
            routing_key: publish.routing_key.clone(),
            properties: publish.properties.raw().clone(),
            payload: amqp::Payload::from(joined(&publish.body)),
        });
    }

    /// Publishes a message without reporting its outcome.
    pub(crate) fn publish_without_outcome(&mut self, message: PublishMessage) {
        self.batch.bytes += message.weight_bytes();
        self.batch.others.push(message);
        if self.batch.bytes >= BATCH_BYTES_MAX || self.batch.others.len() >= PUBLISH_MESSAGES_MAX {
            self.flush_batch();
        }
    }

    /// A number that selects one of several equal alternatives.
    pub(crate) fn random(&self) -> u64 {
        self.now.wall_ms as u64 ^ self.id.rotate_left(32)
    }

    /// Sends pending publishes to the broker.
    pub(crate) fn flush_batch(&mut self) {
        self.batch.bytes = 0;
        let targets = std::mem::take(&mut self.batch.targets);
        if !self.batch.others.is_empty() {
            let messages = std::mem::take(&mut self.batch.others);
            let own = Amount { messages: messages.len() as u64, bytes: bytes_of(&messages) - REQUEST_BYTES };
            self.batch.uncounted_bytes += own.bytes + REQUEST_BYTES;
            self.batch.uncounted_targets += targets;
            let (bytes, targets) = (self.batch.uncounted_bytes, self.batch.uncounted_targets);
            if bytes < UNCOUNTED_BYTES_MAX && targets < TARGETS_PER_REQUEST {
                self.publish_for_credit(messages, own, None);
            } else {
                (self.batch.uncounted_bytes, self.batch.uncounted_targets) = (0, 0);
                self.publish_for_credit(messages, own, Some((bytes, targets)));
            }
        }
        if !self.batch.confirmed.0.is_empty() {
            let (messages, numbers) = std::mem::take(&mut self.batch.confirmed);
            self.batch.confirmed_before = messages.len();
            let bytes = bytes_of(&messages);
            let targets = if targets > 0 { more_targets(&messages) } else { 0 };
            self.publish_counted(messages, numbers, bytes, targets);
        }
        self.tally.add_up();
    }

    /// Publishes, and counts these bytes and targets until the reply.
    pub(crate) fn publish_counted(
        &mut self,
        messages: Vec<PublishMessage>,
        numbers: Vec<(ChannelRef, u64)>,
        bytes: usize,
        targets: usize,
    ) {
        let patient = self.counts(messages.len(), bytes, targets);
        let request = PublishRequest { messages, ack: Ack::Committed, patient };
        self.ask(Request::Publish(request), Waits::Confirms(numbers, bytes, targets));
    }

    /// Counts a request with this many messages until its reply. Returns whether it may wait.
    pub(crate) fn counts(&mut self, messages: usize, bytes: usize, targets: usize) -> bool {
        self.batch.is_asked(bytes, targets);
        self.batch.pace.ask(messages)
    }

    /// Counts a reply for these bytes and targets.
    pub(crate) fn publish_answered(&mut self, bytes: usize, targets: usize) {
        self.batch.is_answered(bytes, targets);
        self.batch.pace.answered();
    }

    /// Reports the outcomes of messages.
    pub(crate) fn confirmed(&mut self, numbers: &[(ChannelRef, u64)], results: &[Result<(), PublishError>]) {
        let mut at = 0;
        let outcome = |at: usize| match results.get(at).copied() {
            Some(result) if arrived(result) => Ok(()),
            Some(result) => result,
            None => Err(PublishError::Unavailable(Unavailable::Unknown)),
        };
        while let Some((channel, first)) = numbers.get(at).copied() {
            let result = outcome(at);
            let mut last = first;
            at += 1;
            while numbers.get(at) == Some(&(channel, last + 1)) && outcome(at) == result {
                last += 1;
                at += 1;
            }
            match result {
                Ok(()) => self.confirm(channel, first, last),
                Err(why) => self.rejected(channel, first, last, why),
            }
        }
    }

    /// Messages are not in all of their queues.
    pub(crate) fn rejected(&mut self, channel: ChannelRef, first: u64, last: u64, why: PublishError) {
        self.tally.settled(last - first + 1, false);
        match &mut self.captured {
            Some(captured) => captured.push_back(PrincipalOutput::Rejected { first, last, why }),
            None => self.event(amqp::Event::Rejected { channel, first, last }),
        }
    }

    /// Returns the exchange of a message, after checking that its user may publish to it.
    fn authorized_entry<'r>(&mut self, routes: &'r Snapshot, publish: &Publish) -> Result<Entry<'r>, Refusal> {
        self.check_publish(publish)?;
        let exchange = publish.exchange.as_ref();
        let missing = Named { kind: Kind::Exchange, name: exchange, vhost: self.vhost_name.as_bytes() };
        let entry = routes.entry(self.vhost, exchange).ok_or_else(|| Refusal::missing(missing))?;
        if let Entry::Exchange(route) = entry {
            let found = route.exchange();
            if found.internal {
                return Err(Refusal::internal_exchange(missing));
            }
            if found.kind == polylogue_router::Kind::Topic {
                self.check_topics(publish)?;
            }
        }
        Ok(entry)
    }

    /// Checks a message and routes it, or continues.
    pub(crate) fn route(
        &mut self,
        publish: &Publish,
        paused_route: Option<Box<PausedRoute>>,
    ) -> Result<Routed, Refusal> {
        let directory = self.directory.clone();
        let first = publish.routing_key.as_ref();
        let (one, many);
        let keys: &[&[u8]] = if publish.cc.is_empty() && publish.bcc.is_empty() {
            one = [first];
            &one
        } else {
            let more = publish.cc.iter().chain(&publish.bcc).map(Bytes::as_ref);
            many = std::iter::once(first).chain(more).collect::<Vec<_>>();
            &many
        };
        let view = View::new(&publish.properties);
        let sent = RoutedMessage {
            keys,
            view: &view,
            random: self.random(),
            expiration_ms: publish.expiration_ms,
            priority: publish.properties.priority,
            now_ms: self.now.wall_ms,
        };
        let catalog = self.catalog.clone();
        let ways = RouteContext { directory: &directory, catalog: catalog.as_ref(), wanted: &|_| true };
        let before = self.turn.steps;
        let reached = match paused_route {
            Some(paused_route) => paused_route.resume(ways, &sent, &mut self.scratch, &mut self.turn.steps),
            None => {
                self.turn.charge(REQUEST_STEPS);
                let routes = directory.router().load();
                let entry = self.authorized_entry(&routes, publish)?;
                reach(ways, &routes, entry, &sent, &mut self.scratch, &mut self.turn.steps)
            }
        };
        self.tally.more(Count::RoutingSteps, before - self.turn.steps);
        Ok(match reached {
            Ok(reached) => self.stored(publish, reached),
            Err(paused_route) => {
                self.tally.more(Count::RoutingPauses, 1);
                Routed::Left(paused_route)
            }
        })
    }

    /// Encodes a message for storage.
    fn stored(&self, publish: &Publish, reached: Reached) -> Routed {
        let hidden = (!publish.bcc.is_empty()).then(|| Hidden { bcc: publish.bcc.clone(), ..Hidden::default() });
        let delayed = reached.properties(&publish.properties);
        let (raw, body) = (delayed.as_ref().unwrap_or(&publish.properties).raw(), publish.body.pieces());
        let key = publish.routing_key.as_ref();
        let bytes = store(publish.exchange.as_ref(), key, raw, hidden.as_ref(), body);
        let is_routed = reached.is_routed;
        let message = reached.message(bytes, publish.properties.delivery_mode, self.now.wall_ms);
        Routed::To(PublishMessage { all_or_none: self.all_or_none, ..message }, is_routed)
    }

    /// Checks that the user may publish to the exchange.
    pub(crate) fn check_publish(&mut self, publish: &Publish) -> Result<(), Refusal> {
        if self.is_operator {
            return Ok(());
        }
        let rights = self.directory.rights();
        if self.allowed.0 != rights || self.has_expired() {
            self.allowed = (rights, polylogue_types::Map::default());
        }
        if !self.allowed.1.contains_key(publish.exchange.as_ref()) {
            let name = crate::convert::name(&publish.exchange)?;
            let metadata = self.directory.metadata();
            let grants = self.grants();
            let subject = Subject { user: &self.user, grants: grants.as_deref() };
            let checked = metadata.check(subject, self.vhost, Access::Write, Resource::Exchange, &name);
            checked.map_err(crate::convert::refusal)?;
            // Otherwise made-up names of missing exchanges would take unlimited memory.
            if self.allowed.1.len() >= ALLOWED_MAX {
                self.allowed.1.clear();
            }
            self.allowed.1.insert(Bytes::copy_from_slice(publish.exchange.as_ref()), ());
        }
        Ok(())
    }

    /// Checks that the user may publish with the message's keys, those of CC and BCC included, to a topic exchange.
    fn check_topics(&self, publish: &Publish) -> Result<(), Refusal> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Refusal::malformed_utf8());
        let (name, metadata) = (text(publish.exchange.as_ref())?, self.directory.metadata());
        let is_asked = self.token.is_some() || metadata.topic_permission(self.vhost, &self.user, name).is_some();
        if !self.is_operator && is_asked {
            let grants = self.grants();
            let subject = Subject { user: &self.user, grants: grants.as_deref() };
            let more = publish.cc.iter().chain(&publish.bcc).map(Bytes::as_ref);
            for key in std::iter::once(publish.routing_key.as_ref()).chain(more) {
                let checked = metadata.check_topic(subject, self.vhost, Access::Write, name, text(key)?, None);
                checked.map_err(crate::convert::refusal)?;
            }
        }
        Ok(())
    }
}

/// A body in one piece.
fn joined(body: &amqp::Body) -> Bytes {
    match body {
        amqp::Body::One(piece) => piece.clone(),
        amqp::Body::Many(pieces) => pieces.concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead::DeadLetters;
    use crate::message::open;
    use crate::testing::{Topics, World};
    use polylogue_amqp::codec::{BasicProperties, Properties, ShortStr, TableBuilder, Value};
    use polylogue_amqp_model::{Bind, BindDestination, Command, DeclareExchange, PutUser, arguments_of_json};
    use polylogue_api::{DeadMessage, DeadReason, Event, Now, Reply};
    use polylogue_types::Offset;
    use serde_json::json;
    use std::sync::Arc;

    const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };

    impl Connection {
        /// A message with its queues.
        fn message_of(&mut self, publish: &Publish) -> Result<PublishMessage, Refusal> {
            match self.route(publish, None)? {
                Routed::To(message, _) => Ok(message),
                Routed::Left(_) => panic!("steps do not end"),
            }
        }
    }

    fn publish(seq: u64) -> Publish {
        Publish {
            seq: Some(seq),
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::from_static("q"),
            mandatory: false,
            properties: Properties::none(),
            expiration_ms: None,
            cc: Vec::new(),
            bcc: Vec::new(),
            body: amqp::Body::One(Bytes::new()),
        }
    }

    /// Each name that a client made up was remembered while its connection lived.
    #[test]
    fn remembered_exchanges_are_limited() {
        let world = World::new();
        let catalog = Arc::new(Topics);
        let directory = world.directory.clone();
        let mut connection = Connection::new(Arc::default(), directory, catalog, 7, true, 1, Now::default());
        (connection.user, connection.vhost) = ("guest".into(), world.vhost);
        for number in 0..3 * ALLOWED_MAX {
            let exchange = format!("made-up-{number}").into();
            connection.check_publish(&Publish { exchange, ..publish(1) }).expect("it is allowed");
            assert!(connection.allowed.1.len() <= ALLOWED_MAX);
        }
    }

    /// CC and BCC keys bypassed the permissions of a topic exchange; and exchanges of other types, which have none, were subject to them.
    #[test]
    fn topic_permissions_apply_to_cc_and_bcc_and_only_at_topic_exchanges() {
        let mut world = World::new();
        world.act(Command::PutUser(PutUser {
            name: "ann".into(),
            password: None,
            scram: Vec::new(),
            tags: Some(Vec::new()),
        }));
        world.act(Command::SetPermission("ann".into(), "/".into(), [".*"; 3].map(Into::into)));
        for exchange in ["amq.topic", "amq.direct"] {
            let patterns = ["^mine\\.".into(), ".*".into()];
            world.act(Command::SetTopicPermission("ann".into(), "/".into(), exchange.into(), patterns));
        }
        let directory = world.directory.clone();
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, Now::default());
        (connection.user, connection.vhost) = ("ann".into(), world.vhost);
        for (exchange, key, cc, bcc, is_allowed) in [
            ("amq.topic", "mine.x", &[][..], &[][..], true),
            ("amq.topic", "mine.x", &["mine.y"], &["mine.z"], true),
            ("amq.topic", "other.x", &[], &[], false),
            ("amq.topic", "mine.x", &["other.y"], &[], false),
            ("amq.topic", "mine.x", &[], &["mine.y", "other.y"], false),
            ("amq.direct", "other.x", &["other.y"], &[], true),
        ] {
            let more = |keys: &[&'static str]| keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
            let (exchange_name, routing_key) = (exchange.to_owned().into(), key.to_owned().into());
            let publish = Publish { exchange: exchange_name, routing_key, cc: more(cc), bcc: more(bcc), ..publish(1) };
            let outcome = connection.message_of(&publish).map(drop);
            assert_eq!(outcome.is_ok(), is_allowed, "{exchange} {key} {cc:?} {bcc:?}: {outcome:?}");
        }
    }

    /// In another broker a message to a queue that was being deleted was a server error (cloudamqp/lavinmq), and here it was refused.
    #[test]
    fn a_message_deleted_with_its_queue_is_confirmed() {
        let mut world = World::new();
        world.queue("q", json!({}));
        let now = Now::default();
        let mut connection =
            Connection::new(Arc::default(), world.directory.clone(), Arc::new(Topics), 7, true, 1, now);
        (connection.user, connection.vhost, connection.vhost_name) = ("guest".into(), world.vhost, "/".into());
        connection.captured = Some(std::collections::VecDeque::new());
        (1..=4).for_each(|seq| connection.publish(CHANNEL, publish(seq)));
        connection.flush_batch();
        let (token, request) = connection.poll_request().expect("it is published");
        assert!(matches!(request, Request::Publish(request) if request.messages.len() == 4));
        let refused = [PublishError::QueueFull, PublishError::Unavailable(Unavailable::StorageFull)].map(Err);
        let results = [Ok(()), Err(PublishError::UnknownQueue)].into_iter().chain(refused).collect();
        connection.on_reply(token, Reply::Publish(results), now);
        let captured: Vec<_> = connection.captured.take().expect("no session").into();
        assert!(
            matches!(
                captured[..],
                [
                    PrincipalOutput::Event(amqp::Event::Confirmed { first: 1, last: 2, .. }),
                    PrincipalOutput::Rejected { first: 3, last: 3, why: PublishError::QueueFull },
                    PrincipalOutput::Rejected {
                        first: 4,
                        last: 4,
                        why: PublishError::Unavailable(Unavailable::StorageFull)
                    }
                ]
            ),
            "{captured:?}"
        );
    }

    /// One publisher of tiny messages on a slow disk filled the log's queue, and all messages were refused.
    #[test]
    fn unanswered_requests_are_limited_for_any_size() {
        let directory = World::new().directory;
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, Now::default());
        let message = PublishMessage {
            queues: Vec::new(),
            form: polylogue_record::envelope::Form::AmqpMessage,
            flags: polylogue_record::envelope::EntryFlags::NONE,
            bytes: Bytes::from_static(b"x"),
            timestamp: -1,
            key_hash: None,
            all_or_none: false,
        };
        for seq in 0..1_024 {
            connection.batch.confirmed = (vec![message.clone()], vec![(CHANNEL, seq)]);
            connection.flush_batch();
        }
        assert!(!connection.wants_input());
    }

    /// A message that waits for an exchange's delay and expires by its own TTL, or by its queue's, in its queue: as RabbitMQ's plugin and its queues
    /// handle it.
    #[test]
    fn an_expired_delayed_message_keeps_its_delay_header_and_history() {
        let mut world = World::new();
        let own = world.queue("own", json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}));
        let of_queue = json!({"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"});
        let of_queue = world.queue("of queue", of_queue);
        let grave = world.queue("grave", json!({}));
        let arguments = json!({"x-delayed-type": "direct"});
        let arguments = arguments_of_json(arguments.as_object().expect("an object")).expect("arguments");
        let (vhost, name, kind) = (world.vhost, "later".into(), "x-delayed-message".into());
        let declare = DeclareExchange { vhost, name, kind, arguments, ..DeclareExchange::default() };
        world.act(Command::DeclareExchange(declare));
        for queue in ["own", "of queue"] {
            let (source, to, key) = ("later".into(), BindDestination::Queue(queue.into()), queue.into());
            world.act(Command::Bind(Bind { vhost, source, to, key, arguments: Vec::new() }));
        }
        let now = Now { wall_ms: 1_700_000_000_123, monotonic_ms: 5 };
        let mut connection =
            Connection::new(Arc::default(), world.directory.clone(), Arc::new(Topics), 7, true, 1, now);
        (connection.user, connection.vhost) = ("guest".into(), world.vhost);
        let mut dead_letters = DeadLetters::new(world.directory.clone(), Arc::new(Topics));
        dead_letters.poll_request();
        for (queue, name, expiration) in [(own, "own", Some(100)), (of_queue, "of queue", None)] {
            let basic = BasicProperties {
                headers: Some(TableBuilder::new().with("x-delay", Value::I32(5_000)).build()),
                expiration: expiration.map(|ms: u64| ms.to_string().into()),
                ..BasicProperties::default()
            };
            let sent = Publish {
                exchange: ShortStr::from_static("later"),
                routing_key: name.to_owned().into(),
                properties: Properties::from(&basic),
                expiration_ms: expiration,
                ..publish(1)
            };
            let message = connection.message_of(&sent).expect("it is allowed");
            let (target, then) = (message.queues[0], now.wall_ms + 5_000);
            assert_eq!((target.queue, target.deliver_at), (queue, Some(then)));
            assert_eq!(
                target.expires_at,
                Some(then + expiration.unwrap_or(20) as i64),
                "its TTL begins at the delivery time"
            );

            let died = DeadMessage { queue, offset: Offset(0), reason: DeadReason::Expired, bytes: message.bytes };
            dead_letters.on_event(Event::Dead(vec![died]), Now { wall_ms: then + 100, monotonic_ms: 5_105 });
            let Some((_, Request::Publish(request))) = dead_letters.poll_request() else {
                panic!("nothing is published")
            };
            let target = request.messages[0].queues[0];
            assert_eq!((target.queue, target.deliver_at, target.expires_at), (grave, None, None));
            let stored = open(&request.messages[0].bytes).expect("a message");
            let basic = BasicProperties::decode(&stored.properties).expect("properties");
            let headers = basic.headers.expect("headers");
            assert_eq!((basic.expiration, headers.get("x-delay")), (None, Some(Value::I32(-5_000))));
            let text = |name: &str| headers.get(name).and_then(|value| value.as_longstr().map(<[u8]>::to_vec));
            for (field, captured) in [("reason", "expired"), ("queue", name), ("exchange", "later")] {
                for which in ["first", "last"] {
                    assert_eq!(text(&format!("x-{which}-death-{field}")), Some(captured.into()));
                }
            }
            let deaths = headers.get("x-death").expect("a history");
            let deaths: Vec<_> = deaths.elements().map(|(_, death)| death).collect();
            let [death] = &deaths[..] else { panic!("{} deaths", deaths.len()) };
            let field = |name: &[u8]| death.fields().find(|field| field.name == name).map(|field| field.value);
            let long = |text: &'static str| Some(Value::LongStr(text.as_bytes()));
            assert_eq!((field(b"count"), field(b"reason")), (Some(Value::I64(1)), long("expired")));
            assert_eq!((field(b"queue"), field(b"exchange")), (Some(Value::LongStr(name.as_bytes())), long("later")));
            assert_eq!(field(b"time"), Some(Value::Timestamp(1_700_000_005)));
            assert_eq!(field(b"original-expiration"), expiration.and(long("100")));
            let keys: Vec<_> = field(b"routing-keys").expect("keys").elements().map(|(_, key)| key).collect();
            assert_eq!(keys, [Value::LongStr(name.as_bytes())]);
        }
    }
}
