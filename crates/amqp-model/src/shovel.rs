//! Shovels: the value of a parameter of the component `shovel`, with RabbitMQ's checks and texts.
//!
//! Sources: RabbitMQ's documentation of dynamic shovels, and the behaviour of its broker.

use crate::fields::{ACK_MODES, AckMode, Kind, LinkError, Problems, RECONNECT_DELAY_MS_MAX, Reader, map_of};
use crate::json::erlang;
use crate::uri::{AmqpUri, without_credentials, without_password};
use bytestring::ByteString;
use polylogue_router::Argument;
use serde_json::{Map, Value};

/// The component of parameters that are shovels.
pub const SHOVEL: &str = "shovel";

/// The default prefetch of a source.
const PREFETCH: u16 = 1_000;
/// The default reconnect delay. Milliseconds.
const RECONNECT_DELAY_MS: u64 = 5_000;

/// When a shovel is finished and deletes itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteAfter {
    /// Never.
    Never,
    /// After as many messages as the queue had at the start.
    QueueLength,
    /// After this many messages.
    Messages(u64),
}

/// The source of messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceOf {
    /// A queue.
    Queue(ByteString),
    /// An exchange, through a queue of the shovel's own that is bound with this key.
    Exchange(ByteString, ByteString),
}

/// The source of a shovel.
#[derive(Clone, PartialEq, Debug)]
pub struct ShovelSource {
    /// Tried in turn.
    pub uris: Vec<AmqpUri>,
    /// The queue or exchange to read.
    pub of: SourceOf,
    /// Arguments to declare the queue with if it does not exist.
    pub queue_arguments: Vec<Argument>,
    /// Arguments of the consumer.
    pub consumer_arguments: Vec<Argument>,
    /// The most unacknowledged messages; 0 for no limit.
    pub prefetch: u16,
    /// When the shovel is finished.
    pub delete_after: DeleteAfter,
    /// The queue must exist: it is never declared.
    pub predeclared: bool,
}

/// The destination of a shovel.
#[derive(Clone, PartialEq, Debug)]
pub struct ShovelDestination {
    /// Tried in turn.
    pub uris: Vec<AmqpUri>,
    /// The queue to publish to.
    pub queue: Option<ByteString>,
    /// The exchange to publish to; `None` to keep a message's own.
    pub exchange: Option<ByteString>,
    /// The routing key to publish with; `None` to keep a message's own.
    pub key: Option<ByteString>,
    /// Arguments to declare the queue with if it does not exist.
    pub queue_arguments: Vec<Argument>,
    /// Whether to add the header `x-shovelled`, which names the source and the destination.
    pub add_forward_headers: bool,
    /// Whether to add the header `x-shovelled-timestamp`.
    pub add_timestamp_header: bool,
    /// Properties to set: the name in RabbitMQ's spelling, and a text or a number.
    pub properties: Vec<(ByteString, Value)>,
    /// The queue must exist: it is never declared.
    pub predeclared: bool,
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Shovel {
    /// The source.
    pub source: ShovelSource,
    /// The destination.
    pub destination: ShovelDestination,
    /// When the source's messages are acknowledged.
    pub ack_mode: AckMode,
    /// The reconnect delay; `None` to stop after an error. Milliseconds.
    pub reconnect_delay_ms: Option<u64>,
}

const PROTOCOLS: &[&str] = &["amqp10", "amqp091", "local"];
const AMQP_0_9_1: &str = "amqp091";
/// Mandatory fields.
const URIS: [&str; 2] = ["dest-uri", "src-uri"];

/// All fields, in RabbitMQ's order.
const FIELDS: &[(&str, Kind)] = &[
    ("internal", Kind::Flag),
    ("internal_owner", Kind::Foreign),
    ("reconnect-delay", Kind::Number),
    ("ack-mode", Kind::OneOf(ACK_MODES)),
    ("src-protocol", Kind::OneOf(PROTOCOLS)),
    ("dest-protocol", Kind::OneOf(PROTOCOLS)),
    ("src-uri", Kind::Uris),
    ("src-exchange", Kind::Text),
    ("src-exchange-key", Kind::Text),
    ("src-queue", Kind::Name),
    ("src-queue-args", Kind::Arguments),
    ("src-consumer-args", Kind::Arguments),
    ("prefetch-count", Kind::Number),
    ("src-prefetch-count", Kind::Number),
    ("delete-after", Kind::DeleteAfter),
    ("src-delete-after", Kind::DeleteAfter),
    ("src-predeclared", Kind::Flag),
    ("dest-uri", Kind::Uris),
    ("dest-exchange", Kind::Text),
    ("dest-exchange-key", Kind::Text),
    ("dest-queue", Kind::Name),
    ("dest-queue-args", Kind::Arguments),
    ("add-forward-headers", Kind::Flag),
    ("add-timestamp-header", Kind::Flag),
    ("dest-add-forward-headers", Kind::Flag),
    ("dest-add-timestamp-header", Kind::Flag),
    ("publish-properties", Kind::Properties),
    ("dest-publish-properties", Kind::Properties),
    ("dest-predeclared", Kind::Flag),
    ("src-address", Kind::Foreign),
    ("dest-address", Kind::Foreign),
    ("dest-application-properties", Kind::Foreign),
    ("dest-message-annotations", Kind::Foreign),
    ("dest-properties", Kind::Foreign),
];

impl Shovel {
    /// Parses and checks the parameter of this name.
    ///
    /// # Errors
    /// All problems, with RabbitMQ's texts.
    pub fn parse(name: &str, value: &Value) -> Result<Shovel, LinkError> {
        let Some(map) = map_of(value) else {
            return Err(LinkError::invalid(&format!("{name} not a list {}", erlang(value))));
        };
        let protocol = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or(AMQP_0_9_1);
        let (from, to) = (protocol("src-protocol"), protocol("dest-protocol"));
        let mut problems = Problems::default();
        if from == AMQP_0_9_1 {
            problems.source(&map);
        }
        if map.contains_key("dest-exchange") && map.contains_key("dest-queue") {
            problems.invalid.push("Cannot specify 'dest-exchange' and 'dest-queue'".to_owned());
        }
        let foreign = |field: &str| FIELDS.iter().any(|(known, kind)| *known == field && matches!(kind, Kind::Foreign));
        let others = from != AMQP_0_9_1 || to != AMQP_0_9_1;
        let known = |field: &str| {
            FIELDS.iter().any(|(known, _)| *known == field) && (others || !foreign(field) || field == "internal_owner")
        };
        problems.fields(name, &map, FIELDS, known, &URIS);
        if let Some(other) = [from, to].into_iter().find(|protocol| *protocol != AMQP_0_9_1) {
            let why = format!(
                "shovels speak AMQP 0-9-1 only: 'src-protocol' and 'dest-protocol' can be amqp091, not {other}"
            );
            problems.unsupported.get_or_insert(why);
        }
        problems.into_result()?;
        Ok(Shovel::read(&Reader(&map)))
    }

    /// Reads a checked definition.
    fn read(map: &Reader<'_>) -> Shovel {
        let of = match map.text("src-queue") {
            Some(queue) => SourceOf::Queue(queue),
            None => SourceOf::Exchange(
                map.text("src-exchange").unwrap_or_default(),
                map.text("src-exchange-key").unwrap_or_default(),
            ),
        };
        let prefetch = map.either("src-prefetch-count", "prefetch-count").and_then(Value::as_u64);
        let delete_after = match map.either("src-delete-after", "delete-after") {
            Some(Value::String(text)) if text == "queue-length" => DeleteAfter::QueueLength,
            Some(value) => value.as_u64().map_or(DeleteAfter::Never, DeleteAfter::Messages),
            None => DeleteAfter::Never,
        };
        let properties = map.either("dest-publish-properties", "publish-properties").and_then(map_of);
        let properties = properties.unwrap_or_default().into_iter().map(|(name, value)| (name.into(), value)).collect();
        let delay = map.seconds("reconnect-delay");
        Shovel {
            source: ShovelSource {
                uris: map.uris("src-uri"),
                of,
                queue_arguments: map.arguments("src-queue-args"),
                consumer_arguments: map.arguments("src-consumer-args"),
                prefetch: prefetch.and_then(|count| u16::try_from(count).ok()).unwrap_or(PREFETCH),
                delete_after,
                predeclared: map.flag("src-predeclared", ""),
            },
            destination: ShovelDestination {
                uris: map.uris("dest-uri"),
                queue: map.text("dest-queue"),
                exchange: map.text("dest-exchange"),
                key: map.text("dest-exchange-key"),
                queue_arguments: map.arguments("dest-queue-args"),
                add_forward_headers: map.flag("dest-add-forward-headers", "add-forward-headers"),
                add_timestamp_header: map.flag("dest-add-timestamp-header", "add-timestamp-header"),
                properties,
                predeclared: map.flag("dest-predeclared", ""),
            },
            ack_mode: map.ack_mode(),
            reconnect_delay_ms: match delay {
                None => Some(RECONNECT_DELAY_MS),
                Some(0) => None,
                Some(ms) => Some(ms.min(RECONNECT_DELAY_MS_MAX)),
            },
        }
    }
}

impl Problems {
    /// Checks the fields of a source.
    fn source(&mut self, map: &Map<String, Value>) {
        match (map.contains_key("src-exchange"), map.contains_key("src-queue")) {
            (false, false) => self.invalid.push("Must specify 'src-exchange' or 'src-queue'".to_owned()),
            (true, true) => self.invalid.push("Cannot specify 'src-exchange' and 'src-queue'".to_owned()),
            _ => {}
        }
        let after = map.get("src-delete-after").or_else(|| map.get("delete-after"));
        if map.get("ack-mode").is_some_and(|mode| mode == "no-ack") && after.is_some_and(Value::is_number) {
            self.invalid.push("Cannot specify 'no-ack' and numerical 'delete-after'".to_owned());
        }
        if after.is_some_and(|after| after == "queue-length") && map.contains_key("src-exchange") {
            self.invalid.push("Cannot specify 'src-exchange' and 'delete-after' of 'queue-length'".to_owned());
        }
    }
}

/// The value of a shovel's parameter for display: its addresses without users and passwords.
#[must_use]
pub fn shown_shovel(value: &Value) -> Value {
    let mut shown = value.clone();
    for name in ["src-uri", "dest-uri"] {
        let without = |value: &mut Value| {
            if let Value::String(text) = value {
                *text = without_credentials(text);
            }
        };
        match shown.get_mut(name) {
            Some(Value::Array(items)) => items.iter_mut().for_each(without),
            Some(value) => without(value),
            None => {}
        }
    }
    shown
}

/// The value of any parameter for users who are no administrators: addresses in it without their passwords.
#[must_use]
pub fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_password(text)),
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), masked(value))).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
