//! Conversions between types of the session and types of the metadata.

use bytestring::ByteString;
use polylogue_amqp::codec::{Properties, ShortStr, Table, Value};
use polylogue_amqp::refusal::{Code, Named, Refusal};
use polylogue_amqp_model::{
    Code as ModelCode, Overflow as ModelOverflow, Queue, QueueKind, QueueSettings, Refused, decode_table,
};
use polylogue_api::{
    AttachError, ConsumerMode, Durability, Overflow, QueueSettings as Engine, SettleError, TopicConfig, Unavailable,
};
use polylogue_router::{Argument, Hops, MessageView, Property, ValueRef};

/// Converts a name for the metadata. Names there are UTF-8.
pub(crate) fn name(short: &ShortStr) -> Result<ByteString, Refusal> {
    std::str::from_utf8(short.as_ref()).map(ByteString::from).map_err(|_| Refusal::malformed_utf8())
}

/// Converts arguments unchanged.
pub(crate) fn arguments(table: &Table) -> Result<Vec<Argument>, Refusal> {
    decode_table(table.raw()).map_err(|_| Refusal::cannot_decode(table.raw()))
}

/// Converts a refusal of the metadata.
pub(crate) fn refusal(refused: Refused) -> Refusal {
    let code = match refused.code {
        ModelCode::AccessRefused => Code::AccessRefused,
        ModelCode::NotFound => Code::NotFound,
        ModelCode::ResourceLocked => Code::ResourceLocked,
        ModelCode::PreconditionFailed => Code::PreconditionFailed,
        ModelCode::NotAllowed => Code::NotAllowed,
        ModelCode::NotImplemented => Code::NotImplemented,
        // Only management requests get this code.
        ModelCode::BadRequest => Code::InternalError,
    };
    Refusal::new(code, refused.text)
}

/// Converts a failure of the broker.
pub(crate) fn unavailable(why: Unavailable) -> Refusal {
    let text = match why {
        Unavailable::StorageFull => "no room on the disk",
        Unavailable::Unknown => "the outcome is unknown",
        // Temporary: only the channel is closed.
        Unavailable::NotCommitted | Unavailable::Busy => {
            return Refusal::new(Code::PreconditionFailed, "the broker is busy, try again");
        }
        Unavailable::TooLarge => {
            return Refusal::new(Code::PreconditionFailed, "the request is larger than a record of the log may be");
        }
        Unavailable::Stopping => return Refusal::forced("broker is shutting down"),
    };
    Refusal::internal(text)
}

/// Converts a failure to settle or take messages of a queue.
pub(crate) fn unsettled(why: SettleError, queue: Named<'_>) -> Refusal {
    match why {
        SettleError::Unavailable(why) => unavailable(why),
        // It was deleted meanwhile: RabbitMQ looks it up again and finds none.
        SettleError::UnknownQueue => Refusal::missing(queue),
        // The consumer was lost with its queue's writer; it is attached again on the next channel.
        SettleError::NotHeld => unavailable(Unavailable::NotCommitted),
    }
}

/// Converts a failure to attach a consumer.
pub(crate) fn unattached(why: AttachError, queue: Named<'_>) -> Refusal {
    match why {
        AttachError::UnknownQueue => Refusal::missing(queue),
        AttachError::Exclusive => Refusal::exclusive_use(queue),
        AttachError::Unavailable(why) => unavailable(why),
    }
}

/// The settings of a stream's topic: retention decides what is kept, and nothing is settled. Segment sizes are decided by the log, and filters need
/// no space.
fn stream_config(settings: &QueueSettings) -> TopicConfig {
    TopicConfig {
        retention_ms: settings.max_age_ms.into_iter().chain(settings.retention_ms).min(),
        retention_bytes: settings.max_length_bytes,
        max_message_bytes: usize::MAX,
        queue: Some(Engine { mode: ConsumerMode::Readers, ..Engine::default() }),
        ..TopicConfig::default()
    }
}

/// The settings of a queue's topic.
pub(crate) fn topic_config(queue: &Queue, settings: &QueueSettings) -> TopicConfig {
    if settings.kind == QueueKind::Stream {
        return stream_config(settings);
    }
    let durable = queue.durable && queue.owner.is_none();
    let classic = settings.kind == QueueKind::Classic;
    let engine = Engine {
        mode: match (settings.single_active_consumer, settings.kind) {
            (false, _) => ConsumerMode::Competing,
            (true, QueueKind::Quorum) => ConsumerMode::Preempting,
            (true, _) => ConsumerMode::SingleActive,
        },
        early: classic,
        dead_letters: settings.dead_letter_exchange.is_some(),
        // This many failures are allowed, and the next one exceeds the limit (`rabbit_fifo:return_one`).
        failures_max: settings.delivery_limit.map(|limit| u16::try_from(limit).unwrap_or(u16::MAX).saturating_add(1)),
        retry: settings.delayed_retry,
        length_max: settings.max_length,
        bytes_max: settings.max_length_bytes,
        overflow: match settings.overflow {
            ModelOverflow::DropHead => Overflow::DropHead,
            ModelOverflow::RejectPublish => Overflow::Reject,
            ModelOverflow::RejectPublishDeadLetter => Overflow::RejectDead,
        },
        keeps_settled: settings.retention_ms.is_some(),
        ..Engine::default()
    };
    TopicConfig {
        durability: if durable { Durability::Sync } else { Durability::Async },
        retention_ms: settings.retention_ms,
        max_message_bytes: usize::MAX,
        queue: Some(engine),
        ..TopicConfig::default()
    }
}

/// The header in which federation links record the sources of a message: an array of tables, the last link first.
pub const RECEIVED_FROM: &str = "x-received-from";

/// The parts of a message that routing reads.
pub(crate) struct View {
    headers: Option<Table>,
    correlation_id: Option<ShortStr>,
    message_id: Option<ShortStr>,
}

impl View {
    pub(crate) fn new(properties: &Properties) -> View {
        use polylogue_amqp::codec::Property::{CorrelationId, MessageId};
        View {
            headers: properties.headers(),
            correlation_id: properties.text(CorrelationId),
            message_id: properties.text(MessageId),
        }
    }
}

fn value_ref(value: Value<'_>) -> ValueRef<'_> {
    if let Some(integer) = value.as_i64() {
        return ValueRef::Int(integer);
    }
    match value {
        Value::Bool(v) => ValueRef::Bool(v),
        Value::F32(v) => ValueRef::Float(f64::from(v)),
        Value::F64(v) => ValueRef::Float(v),
        Value::Decimal(scale, v) => ValueRef::Decimal(scale, v),
        Value::LongStr(v) | Value::ByteArray(v) => ValueRef::Bytes(v),
        Value::Timestamp(v) => ValueRef::Timestamp(v),
        Value::Array(v) => ValueRef::Nested(b'A', v),
        Value::Table(v) => ValueRef::Nested(b'F', v),
        _ => ValueRef::Void,
    }
}

impl MessageView for View {
    fn headers<'m>(&'m self, visit: &mut dyn FnMut(&'m [u8], ValueRef<'m>)) {
        let Some(table) = &self.headers else { return };
        for field in table.fields() {
            visit(field.name, value_ref(field.value));
        }
    }

    fn property(&self, which: Property) -> Option<ValueRef<'_>> {
        let text = match which {
            Property::CorrelationId => self.correlation_id.as_ref(),
            Property::MessageId => self.message_id.as_ref(),
            Property::Timestamp => None,
        };
        text.map(|text| ValueRef::Bytes(text.as_ref()))
    }

    fn hops(&self, cluster: &[u8], vhost: &[u8]) -> Hops {
        self.headers.as_ref().map_or_else(Hops::default, |headers| hops(headers, cluster, vhost))
    }
}

/// Evaluates the headers in which federation links record the sources of a message.
#[must_use]
pub fn hops(headers: &Table, cluster: &[u8], vhost: &[u8]) -> Hops {
    let mut hops = Hops::default();
    let Some(links) = headers.get(RECEIVED_FROM) else { return hops };
    for (_, link) in links.elements() {
        let field_of = |name: &str| link.fields().find(|field| field.name == name.as_bytes())?.value.as_longstr();
        hops.count += 1;
        hops.seen |= field_of("cluster-name") == Some(cluster) && field_of("vhost") == Some(vhost);
    }
    hops
}
