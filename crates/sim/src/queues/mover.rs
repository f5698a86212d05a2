//! The dead-letter mover: receives dead messages, publishes them to the dead-letter queue, and confirms the move after the publisher confirm. It may
//! disconnect at any time; the next one receives everything again.
//!
//! A broker has one mover session. Its messages from AMQP queues are for [`crate::letters`].

use super::{Messages, Order, Session, message};
use crate::oracle::Oracle;
use polylogue_api::{
    Ack, DeadLetterResult, DeadMessage, DeadOutcome, DeadReason, PublishRequest, Reply, Request, Target, Token,
};
use polylogue_broker::Broker;
use polylogue_types::PartitionId;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Mover {
    session: Option<Session>,
    /// Messages received from the dead-lettering queue, and from others.
    received: Vec<DeadMessage>,
    others: Vec<DeadMessage>,
    /// Unconfirmed publishes to the dead-letter queue, by token.
    open: BTreeMap<Token, Vec<(DeadMessage, String)>>,
}

impl Mover {
    /// Disconnects; events in flight are never received.
    pub(super) fn vanish(&mut self, broker: &Broker) {
        if let Some(session) = std::mem::take(self).session {
            broker.session_gone(session.id);
        }
    }

    /// Attaches a session if there is none.
    pub(super) fn attach(&mut self, broker: &Broker, order: &Order) -> &mut Session {
        self.session.get_or_insert_with(|| {
            let mut session = Session::new(broker, order);
            session.ask(broker, Request::MoveDead);
            session
        })
    }

    /// Returns its session, and the messages received from other queues than `own`.
    pub(super) fn others(&mut self, own: PartitionId) -> Option<(&mut Session, Vec<DeadMessage>)> {
        let session = self.session.as_mut()?;
        let (received, others): (Vec<_>, Vec<_>) = session.dead().into_iter().partition(|dead| dead.queue == own);
        self.received.extend(received);
        self.others.extend(others);
        Some((session, std::mem::take(&mut self.others)))
    }

    /// Reports confirmed moves, and moves newly received messages. Returns the number of requests. `known`: the messages of the dead-lettering queue
    /// and of the dead-letter queue.
    pub(super) fn turn(
        &mut self,
        broker: &Broker,
        order: &Order,
        (own, to): (PartitionId, PartitionId),
        known: (&Messages, &mut Messages),
        oracle: &mut Oracle,
    ) -> u64 {
        let (dying, dead) = known;
        self.attach(broker, order);
        let others = self.others(own).map(|(_, others)| others);
        self.others = others.unwrap_or_default();
        let Mover { session: Some(session), received, open, .. } = self else { return 0 };
        let mut outcomes = Vec::new();
        for (_, token, reply) in session.replies() {
            let (Some(messages), Reply::Publish(results)) = (open.remove(&token), reply) else { continue };
            for ((DeadMessage { queue, offset, .. }, text), result) in messages.into_iter().zip(results) {
                let how = if result.is_ok() { DeadLetterResult::Moved } else { DeadLetterResult::Later(5) };
                outcomes.push(DeadOutcome { queue, offset, how });
                dead.get_mut(&text).into_iter().for_each(|known| known.confirmed |= result.is_ok());
            }
        }
        let mut requests = 0;
        if !outcomes.is_empty() {
            requests += 1;
            session.ask(broker, Request::DeadMoved(outcomes));
        }
        let received = std::mem::take(received);
        if received.is_empty() {
            return requests;
        }
        let (mut messages, mut sent) = (Vec::new(), Vec::new());
        for letter in received {
            let text = String::from_utf8_lossy(&letter.bytes).into_owned();
            if !dying.get(&text).is_some_and(|known| known.dying) || letter.reason != DeadReason::Rejected {
                oracle.violation(format!("{text:?} is dead for {:?}, but no consumer rejected it", letter.reason));
            }
            dead.entry(text.clone()).or_default().sent += 1;
            messages.push(message(
                vec![Target { queue: to, priority: None, expires_at: None, deliver_at: None }],
                letter.bytes.clone(),
            ));
            sent.push((letter, text));
        }
        let token =
            session.ask(broker, Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
        open.insert(token, sent);
        requests + 1
    }
}
