//! Messages from session to session without a queue, for replies that are not stored (direct reply-to).
//!
//! Nothing of this is in the log: a message is delivered immediately or dropped. Messages in flight to a consumer are bounded; the consumer makes
//! room by granting credit.

use crate::broker::Inner;
use crate::sink::{Origin, ReplySink, SessionId};
use polylogue_api::{ConsumerId, Delivery, Direct, DirectAddress, Event, Reply};
use polylogue_types::{Map, Offset, PartitionId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Messages in flight to one consumer, at most.
const MESSAGES_MAX: usize = 1_000;
/// Bytes in flight to one consumer, exceeded by at most one message.
const BYTES_MAX: usize = 4 << 20;

/// A consumer without a queue.
#[derive(Debug)]
struct Recipient {
    session: SessionId,
    sink: Arc<dyn ReplySink>,
    secret: u128,
    /// The size of each message in flight. Bytes.
    sizes: VecDeque<usize>,
    bytes: usize,
    sent: u64,
}

/// All consumers without a queue.
#[derive(Debug, Default)]
pub(crate) struct Directs {
    all: Map<u64, Recipient>,
    /// Ordered by session.
    of: BTreeSet<(SessionId, u64)>,
}

impl Directs {
    fn add(&mut self, id: u64, origin: &Origin, secret: u128) {
        let (session, sink) = (origin.session, origin.sink.clone());
        self.all.insert(id, Recipient { session, sink, secret, sizes: VecDeque::new(), bytes: 0, sent: 0 });
        self.of.insert((session, id));
    }

    /// Removes a consumer of this session.
    pub(crate) fn remove(&mut self, id: ConsumerId, session: SessionId) {
        if self.all.get(&id.0).is_none_or(|recipient| recipient.session != session) {
            return;
        }
        self.all.remove(&id.0);
        self.of.remove(&(session, id.0));
    }

    pub(crate) fn gone(&mut self, session: SessionId) {
        let gone: Vec<_> = self.of.range((session, 0)..=(session, u64::MAX)).copied().collect();
        for of in gone {
            self.of.remove(&of);
            self.all.remove(&of.1);
        }
    }

    /// Credits messages that a consumer has taken.
    pub(crate) fn credit(&mut self, id: ConsumerId, session: SessionId, more: u64) {
        let recipient = self.all.get_mut(&id.0).filter(|recipient| recipient.session == session);
        let Some(recipient) = recipient else { return };
        for _ in 0..more {
            let Some(bytes) = recipient.sizes.pop_front() else { break };
            recipient.bytes -= bytes;
        }
    }

    /// Returns the receiver of a message; `None` if there is no consumer or too much is in flight.
    fn take(&mut self, message: &Direct) -> Option<(Arc<dyn ReplySink>, Option<Delivery>)> {
        let DirectAddress { consumer, secret } = message.to;
        let recipient = self.all.get_mut(&consumer.0).filter(|recipient| recipient.secret == secret)?;
        let Some(bytes) = message.bytes.clone() else { return Some((recipient.sink.clone(), None)) };
        let full = recipient.sizes.len() >= MESSAGES_MAX || recipient.bytes.saturating_add(bytes.len()) > BYTES_MAX;
        if full && !recipient.sizes.is_empty() {
            return None;
        }
        recipient.sizes.push_back(bytes.len());
        recipient.bytes += bytes.len();
        let at = Offset(recipient.sent);
        recipient.sent += 1;
        let delivery = Delivery {
            consumer,
            queue: PartitionId(0),
            first: at,
            count: 1,
            lease: 0,
            weight: 0,
            redelivered: false,
            life: 0,
            returned: 0,
            failed: 0,
            entry: at,
            bytes,
        };
        Some((recipient.sink.clone(), Some(delivery)))
    }
}

impl Inner {
    pub(crate) fn attach_direct(&self, origin: Origin) {
        let consumer = self.consumers.lock().next();
        let secret = u128::from(self.env.rng.next_u64()) << 64 | u128::from(self.env.rng.next_u64());
        self.directs.lock().add(consumer, &origin, secret);
        origin.reply(Reply::AttachDirect(DirectAddress { consumer: ConsumerId(consumer), secret }));
    }

    pub(crate) fn send_direct(&self, origin: Origin, messages: &[Direct]) {
        let mut there = Vec::with_capacity(messages.len());
        for message in messages {
            let taken = self.directs.lock().take(message);
            there.push(taken.is_some());
            if let Some((sink, Some(delivery))) = taken {
                sink.event(Event::Deliver(vec![delivery]));
            }
        }
        origin.reply(Reply::SendDirect(there));
    }
}
