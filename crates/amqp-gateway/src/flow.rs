//! Credit of publishers without confirms: a connection that has none left is not read.
//!
//! ```text
//!   client ──publishes──> connection ──Ack::KeptUp──> broker ──┬─ its queues keep up ──> credit immediately
//!                             │                                └─ one does not ───────> credit when it does, or after a bounded time
//!                             └─ `amqp.publish_credit` messages, or 4 MiB, without credit: nothing more is read, and it is "in flow"
//! ```
//!
//! As in RabbitMQ the whole connection is not read meanwhile, its other channels included; its consumers continue to receive. Publishes with
//! confirms and transactions need no credit: they have their own bounds.

use crate::connection::Connection;
use crate::counts::Count;
use crate::operation::Waits;
use polylogue_api::{Ack, PublishMessage, PublishRequest, Request};

/// The largest amount that a connection may have published without confirms and without credit. Bytes.
pub const UNCREDITED_BYTES_MAX: usize = 4 << 20;
/// How long a connection is still shown in flow afterwards (`credit_flow`, `STATE_CHANGE_INTERVAL`). Milliseconds.
pub(crate) const FLOW_SHOWN_MS: u64 = 1_000;

/// Messages and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amount {
    pub(crate) messages: u64,
    pub(crate) bytes: usize,
}

/// Publishes of a connection that have no credit yet.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    uncredited: Amount,
    /// Listings show the connection in flow.
    is_shown: bool,
}

impl Flow {
    /// Whether more may be published with this credit in messages; 0 for any number.
    fn has_credit(&self, credit: u64) -> bool {
        credit == 0 || (self.uncredited.messages < credit && self.uncredited.bytes < UNCREDITED_BYTES_MAX)
    }
}

impl Connection {
    /// Whether the connection has no credit left and is therefore not read.
    pub(crate) fn is_in_flow(&self) -> bool {
        !self.batch.flow.has_credit(self.settings.publish_credit)
    }

    /// Publishes without confirms. `counted` bytes and targets count as unanswered until the messages are committed.
    pub(crate) fn publish_for_credit(
        &mut self,
        messages: Vec<PublishMessage>,
        amount: Amount,
        counted: Option<(usize, usize)>,
    ) {
        let patient = counted.is_some_and(|(bytes, targets)| self.counts(messages.len(), bytes, targets));
        let is_slowed = self.settings.publish_credit > 0;
        let (ack, waits) = match counted {
            None if !is_slowed => (Ack::None, Waits::Nothing),
            _ if is_slowed => (Ack::KeptUp { committed: counted.is_some() }, Waits::Credit(amount, counted)),
            _ => (Ack::Committed, Waits::Credit(amount, counted)),
        };
        if matches!(waits, Waits::Credit(..)) {
            self.batch.flow.uncredited.messages += amount.messages;
            self.batch.flow.uncredited.bytes += amount.bytes;
        }
        self.ask(Request::Publish(PublishRequest { messages, ack, patient }), waits);
        self.update_flow();
    }

    /// Credit has come back.
    pub(crate) fn credited(&mut self, amount: Amount, counted: Option<(usize, usize)>) {
        self.batch.flow.uncredited.messages -= amount.messages;
        self.batch.flow.uncredited.bytes -= amount.bytes;
        if let Some((bytes, targets)) = counted {
            self.publish_answered(bytes, targets);
        }
        self.update_flow();
    }

    /// Updates listings and the session when the connection enters or leaves flow.
    fn update_flow(&mut self) {
        let in_flow = self.is_in_flow();
        if std::mem::replace(&mut self.batch.flow.is_shown, in_flow) != in_flow {
            self.tally.more(Count::Flows, u64::from(in_flow));
            self.hold_frames();
            let now_ms = self.now.monotonic_ms;
            self.show(|shown| shown.flows(in_flow, now_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Topics, World};
    use bytes::Bytes;
    use polylogue_amqp::codec::{Properties, ShortStr};
    use polylogue_amqp::request::{Body, ChannelRef, Publish};
    use polylogue_amqp::settings::AmqpSettings;
    use polylogue_api::{Now, Reply, Token};
    use serde_json::json;
    use std::sync::Arc;

    const CREDIT: u64 = 10;

    fn connection(world: &World, publish_credit: u64) -> Connection {
        let settings = Arc::new(AmqpSettings { publish_credit, ..AmqpSettings::default() });
        let directory = world.directory.clone();
        let mut connection = Connection::new(settings, directory, Arc::new(Topics), 7, true, 1, Now::default());
        (connection.user, connection.vhost) = ("guest".into(), world.vhost);
        connection
    }

    /// Publishes one message; returns what the broker is asked.
    fn publish(connection: &mut Connection, seq: Option<u64>, bytes: usize) -> (Token, Ack) {
        let publish = Publish {
            seq,
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::from_static("q"),
            mandatory: false,
            properties: Properties::none(),
            expiration_ms: None,
            cc: Vec::new(),
            bcc: Vec::new(),
            body: Body::One(Bytes::from(vec![0; bytes])),
        };
        connection.publish(ChannelRef { number: 1, life: 1 }, publish);
        connection.flush_batch();
        match connection.poll_request().expect("it is published") {
            (token, Request::Publish(request)) => (token, request.ack),
            other => panic!("{other:?}"),
        }
    }

    fn answer(connection: &mut Connection, token: Token) {
        connection.on_reply(token, Reply::Publish(vec![Ok(())]), Now::default());
    }

    #[test]
    fn a_publisher_without_confirms_is_read_while_it_has_credit() {
        let mut world = World::new();
        world.queue("q", json!({}));
        let mut client = connection(&world, CREDIT);
        let mut tokens = Vec::new();
        for _ in 0..CREDIT {
            assert!(client.wants_input());
            let (token, ack) = publish(&mut client, None, 0);
            assert_eq!(ack, Ack::KeptUp { committed: false });
            tokens.push(token);
        }
        assert!(
            !client.wants_input() && client.is_in_flow() && !client.session.wants_input(),
            "it is not considered dead"
        );
        // Publishes in flight are carried out nevertheless, and need credit too.
        tokens.push(publish(&mut client, None, 0).0);
        let mut tokens = tokens.into_iter();
        tokens.by_ref().take(1).for_each(|token| answer(&mut client, token));
        assert!(!client.wants_input());
        tokens.for_each(|token| answer(&mut client, token));
        assert!(client.wants_input() && !client.is_in_flow() && client.session.wants_input());
        client.flush_batch();
        assert_eq!(world.directory.traffic().count(Count::Flows), 1);
    }

    #[test]
    fn large_messages_need_credit_and_are_committed() {
        let mut world = World::new();
        world.queue("q", json!({}));
        let mut client = connection(&world, CREDIT);
        let mut tokens = Vec::new();
        while client.wants_input() {
            let (token, ack) = publish(&mut client, None, 1 << 20);
            assert_eq!(ack, Ack::KeptUp { committed: true });
            tokens.push(token);
        }
        assert!((4..=5).contains(&tokens.len()), "{}", tokens.len());
        tokens.into_iter().for_each(|token| answer(&mut client, token));
        assert!(client.wants_input() && client.batch.unanswered_bytes == 0);
    }

    #[test]
    fn publishes_with_confirms_and_without_a_bound_need_no_credit() {
        let mut world = World::new();
        world.queue("q", json!({}));
        let mut confirmed = connection(&world, CREDIT);
        let mut free = connection(&world, 0);
        for seq in 1..=3 * CREDIT {
            assert_eq!(publish(&mut confirmed, Some(seq), 0).1, Ack::Committed);
            assert_eq!(publish(&mut free, None, 0).1, Ack::None);
            assert!(confirmed.wants_input() && free.wants_input());
        }
        assert_eq!(publish(&mut free, None, 1 << 20).1, Ack::Committed);
    }
}
