//! What a shovel is to do: the value of a parameter of the component `shovel`, in RabbitMQ's words.
//!
//! Sources: RabbitMQ's documentation of dynamic shovels, and what its broker answers.

use crate::fields::{ACK_MODES, AckMode, Kind, LinkError, RECONNECT_DELAY_MS_MAX, Reader, Wrong, map_of};
use crate::json::erlang;
use crate::uri::{AmqpUri, without_credentials, without_password};
use bytestring::ByteString;
use polylogue_router::Argument;
use serde_json::{Map, Value};

/// The component of parameters that are shovels.
pub const SHOVEL: &str = "shovel";

/// Messages of a source that may be under way where nobody says it.
const PREFETCH: u16 = 1_000;
/// How long a shovel rests after an error where nobody says it. Milliseconds.
const RECONNECT_DELAY_MS: u64 = 5_000;

/// When a shovel is done, and deletes itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteAfter {
    /// It is never done.
    Never,
    /// When as many messages were moved as the queue had at the start.
    QueueLength,
    /// When so many messages were moved.
    Messages(u64),
}

/// What is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceOf {
    /// A queue.
    Queue(ByteString),
    /// An exchange, by a queue of its own that is bound with this key.
    Exchange(ByteString, ByteString),
}

/// Where messages come from.
#[derive(Clone, PartialEq, Debug)]
pub struct ShovelSource {
    /// Tried in turn.
    pub uris: Vec<AmqpUri>,
    /// What is read there.
    pub of: SourceOf,
    /// What the queue is declared with where it is missing.
    pub queue_arguments: Vec<Argument>,
    /// What it is consumed with.
    pub consumer_arguments: Vec<Argument>,
    /// Messages that may be under way; 0 for as many as fit.
    pub prefetch: u16,
    /// When it is done.
    pub delete_after: DeleteAfter,
    /// The queue must be there: it is never declared.
    pub predeclared: bool,
}

/// Where messages go.
#[derive(Clone, PartialEq, Debug)]
pub struct ShovelDestination {
    /// Tried in turn.
    pub uris: Vec<AmqpUri>,
    /// The queue that they go to.
    pub queue: Option<ByteString>,
    /// The exchange, where it is another than the one they were published to.
    pub exchange: Option<ByteString>,
    /// The routing key, where it is another than the one they were published with.
    pub key: Option<ByteString>,
    /// What the queue is declared with where it is missing.
    pub queue_arguments: Vec<Argument>,
    /// Whether `x-shovelled` says where they have been.
    pub add_forward_headers: bool,
    /// Whether `x-shovelled-timestamp` says when.
    pub add_timestamp_header: bool,
    /// Properties that they get: a name as RabbitMQ writes it, and a text or a number.
    pub properties: Vec<(ByteString, Value)>,
    /// The queue must be there: it is never declared.
    pub predeclared: bool,
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Shovel {
    /// Where messages come from.
    pub source: ShovelSource,
    /// Where they go.
    pub destination: ShovelDestination,
    /// When the source hears of it.
    pub ack_mode: AckMode,
    /// How long it rests after an error; `None` where an error is its end. Milliseconds.
    pub reconnect_delay_ms: Option<u64>,
}

const PROTOCOLS: &[&str] = &["amqp10", "amqp091", "local"];
const AMQP_0_9_1: &str = "amqp091";
/// What must be there.
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
    /// The shovel that a parameter of this name defines.
    ///
    /// # Errors
    /// Everything that is wrong with it, in RabbitMQ's words.
    pub fn parse(name: &str, value: &Value) -> Result<Shovel, LinkError> {
        let Some(map) = map_of(value) else {
            return Err(LinkError::invalid(&format!("{name} not a list {}", erlang(value))));
        };
        let protocol = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or(AMQP_0_9_1);
        let (from, to) = (protocol("src-protocol"), protocol("dest-protocol"));
        let mut wrong = Wrong::default();
        if from == AMQP_0_9_1 {
            wrong.source(&map);
        }
        if map.contains_key("dest-exchange") && map.contains_key("dest-queue") {
            wrong.invalid.push("Cannot specify 'dest-exchange' and 'dest-queue'".to_owned());
        }
        let foreign = |field: &str| FIELDS.iter().any(|(known, kind)| *known == field && matches!(kind, Kind::Foreign));
        let others = from != AMQP_0_9_1 || to != AMQP_0_9_1;
        let known = |field: &str| {
            FIELDS.iter().any(|(known, _)| *known == field) && (others || !foreign(field) || field == "internal_owner")
        };
        wrong.fields(name, &map, FIELDS, known, &URIS);
        if let Some(other) = [from, to].into_iter().find(|protocol| *protocol != AMQP_0_9_1) {
            let why = format!(
                "shovels speak AMQP 0-9-1 only: 'src-protocol' and 'dest-protocol' can be amqp091, not {other}"
            );
            wrong.unsupported.get_or_insert(why);
        }
        wrong.judge()?;
        Ok(Shovel::read(&Reader(&map)))
    }

    /// Of a definition in which nothing is wrong.
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

impl Wrong {
    /// What has to be said of a source, and once.
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

/// The value of a shovel's parameter as it may be shown to everybody: its addresses without users and passwords.
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

/// The value of any parameter as it may be shown to users who are no administrators: addresses in it without their passwords.
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
