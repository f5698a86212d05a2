//! Where a message goes, by the last committed routes: the same for what clients publish and for what died.

use crate::convert::View;
use crate::directory::{Directory, QueueEntry};
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties, Table};
use polylogue_amqp_model::{QueueKind, decode_table, encode_table};
use polylogue_api::{Catalog, PublishMessage, Target};
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_router::{DELAY_HEADER, Entry, Message, QueueId, Scratch, Snapshot, Value};
use polylogue_types::TimestampMs;

/// The delivery mode that asks for a message to outlive a restart.
const PERSISTENT: u8 = 2;
/// The highest priority without any; higher ones of a quorum queue count as high (RabbitMQ 4.0).
const QUORUM_NORMAL_MAX: u8 = 4;

/// What routing looks at, and queues.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    /// The routing key, and those of CC and BCC.
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) view: &'a View,
    pub(crate) random: u64,
    pub(crate) expiration_ms: Option<u64>,
    pub(crate) priority: Option<u8>,
    pub(crate) now_ms: TimestampMs,
}

/// The queues that a message reaches.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) queues: Vec<Target>,
    /// Somebody keeps it until then.
    pub(crate) deliver_at: Option<TimestampMs>,
    pub(crate) is_routed: bool,
}

impl Reached {
    /// The properties with which a delayed message is delivered, where they are others: a delay that was kept to is negative in its
    /// header, as RabbitMQ's delayed exchange has it. The next one that the message comes to, as a dead one, keeps it no more.
    pub(crate) fn properties(&self, properties: &Properties) -> Option<Properties> {
        self.deliver_at.and_then(|_| turned(properties))
    }

    /// The message on its way to these queues.
    pub(crate) fn message(self, bytes: Bytes, delivery_mode: Option<u8>, now_ms: TimestampMs) -> PublishMessage {
        let transient = delivery_mode != Some(PERSISTENT);
        PublishMessage {
            queues: self.queues,
            form: Form::AmqpMessage,
            flags: EntryFlags::NONE.with_if(transient, EntryFlags::TRANSIENT),
            bytes,
            timestamp: now_ms,
            key_hash: None,
            deliver_at: self.deliver_at,
        }
    }
}

/// See [`Reached::properties`]. `None` where there are no headers.
fn turned(properties: &Properties) -> Option<Properties> {
    let mut basic = BasicProperties::decode(properties.raw()).ok()?;
    let mut headers = decode_table(basic.headers.take()?.raw()).ok()?;
    for header in headers.iter_mut().filter(|header| header.name == DELAY_HEADER) {
        match &mut header.value {
            Value::Int(ms) => *ms = -*ms,
            Value::Float(ms) => *ms = -*ms,
            _ => continue,
        }
        if matches!(header.tag, b'B' | b'u' | b'i') {
            header.tag = b'l';
        }
    }
    basic.headers = Table::new(encode_table(&headers)).ok();
    Some(Properties::from(&basic))
}

/// Finds the queues of a message that comes to an exchange, those that are `wanted`.
pub(crate) fn reach(
    directory: &Directory,
    catalog: &dyn Catalog,
    routes: &Snapshot,
    entry: Entry<'_>,
    sent: &Sent<'_>,
    wanted: &dyn Fn(&QueueEntry) -> bool,
    scratch: &mut Scratch,
) -> Reached {
    let message = Message { keys: sent.keys, view: sent.view, random: sent.random, released: false };
    let outcome = routes.route(entry, message, scratch);
    let is_routed = outcome.is_routed();
    let mut queues = Vec::with_capacity(outcome.queues.len());
    let found = |id: QueueId| directory.queue(id).filter(|entry| wanted(entry))?.target(catalog, sent);
    queues.extend(outcome.queues.iter().filter_map(|routed| found(routed.queue)));
    let delays: Vec<_> = outcome.delayed.to_vec();
    let mut deliver_at = None;
    for delayed in delays {
        // Where it goes once its time has come is settled now; it waits in the queues.
        let Some(entry) = routes.entry_by_id(delayed.exchange) else { continue };
        let outcome = routes.route(entry, Message { released: true, ..message }, scratch);
        deliver_at = Some(sent.now_ms.saturating_add_unsigned(delayed.delay_ms));
        for target in outcome.queues.iter().filter_map(|routed| found(routed.queue)) {
            if queues.iter().all(|other: &Target| other.queue != target.queue) {
                queues.push(target);
            }
        }
    }
    Reached { is_routed: is_routed && !queues.is_empty(), queues, deliver_at }
}

impl QueueEntry {
    /// How a message stands in the queue. `None` for a queue that is going.
    fn target(&self, catalog: &dyn Catalog, sent: &Sent<'_>) -> Option<Target> {
        let partition = self.partition(catalog)?;
        let lives_ms = [sent.expiration_ms, self.settings.message_ttl_ms].into_iter().flatten().min();
        let priority = sent.priority.unwrap_or(0);
        let priority = match self.settings.kind {
            QueueKind::Quorum => Some(u8::from(priority > QUORUM_NORMAL_MAX)),
            _ => self.settings.max_priority.map(|max| priority.min(max)),
        };
        let expires_at = lives_ms.map(|ms| sent.now_ms.saturating_add_unsigned(ms));
        Some(Target { queue: partition, priority: priority.filter(|p| *p > 0), expires_at })
    }
}
