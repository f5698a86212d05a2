//! What a shovel is to do: the value of a parameter of the component `shovel`, in RabbitMQ's words.
//!
//! Sources: RabbitMQ's documentation of dynamic shovels, and what its broker answers.

mod uri;

use crate::json::erlang;
use crate::table::arguments_of_json;
use bytestring::ByteString;
use polylogue_router::Argument;
use serde_json::{Map, Value};
pub use uri::{AmqpUri, AuthMechanism, UriError, without_credentials};

/// The component of parameters that are shovels.
pub const SHOVEL: &str = "shovel";

/// Messages of a source that may be under way where nobody says it.
const PREFETCH: u16 = 1_000;
/// How long a shovel rests after an error where nobody says it. Milliseconds.
const RECONNECT_DELAY_MS: u64 = 5_000;
/// The longest rest. Milliseconds.
const RECONNECT_DELAY_MS_MAX: u64 = 86_400_000;
/// Addresses of one end at the most.
const URIS_MAX: usize = 100;

/// When the source hears that a message has been moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckMode {
    /// When the destination has confirmed it.
    OnConfirm,
    /// When it was sent: the destination's socket has all of it.
    OnPublish,
    /// Never: it does not wait for that.
    NoAck,
}

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

/// Why a value is no shovel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShovelError {
    /// It makes no sense.
    Invalid(String),
    /// RabbitMQ might run it; this does not.
    Unsupported(String),
}

impl ShovelError {
    /// What is wrong.
    #[must_use]
    pub fn text(&self) -> &str {
        let (ShovelError::Invalid(text) | ShovelError::Unsupported(text)) = self;
        text
    }
}

/// What a field has to be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// A text of at most 255 bytes.
    Name,
    Number,
    Flag,
    Uris,
    DeleteAfter,
    Arguments,
    Properties,
    OneOf(&'static [&'static str]),
    /// What another protocol would read.
    Foreign,
}

const ACK_MODES: &[&str] = &["no-ack", "on-publish", "on-confirm"];
const PROTOCOLS: &[&str] = &["amqp10", "amqp091", "local"];
const AMQP_0_9_1: &str = "amqp091";

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

/// What `dest-publish-properties` may name, and whether it is a number.
const PROPERTIES: [(&str, bool); 13] = [
    ("content_type", false),
    ("content_encoding", false),
    ("delivery_mode", true),
    ("priority", true),
    ("correlation_id", false),
    ("reply_to", false),
    ("expiration", false),
    ("message_id", false),
    ("timestamp", true),
    ("type", false),
    ("user_id", false),
    ("app_id", false),
    ("cluster_id", false),
];

/// What is wrong with a definition, as it is read.
#[derive(Default)]
struct Wrong {
    invalid: Vec<String>,
    unsupported: Option<String>,
}

fn should(name: &str, what: &str, value: &Value) -> Option<String> {
    Some(format!("{name} should be {what}, actually was {}", erlang(value)))
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// A map, where RabbitMQ's older tools write an empty one as an array.
fn map_of(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map.clone()),
        value if is_empty_list(value) => Some(Map::new()),
        _ => None,
    }
}

fn wrong_uri(text: &str, wrong: &mut Wrong) -> Option<String> {
    match AmqpUri::parse(text) {
        Ok(_) => None,
        Err(UriError::Invalid(why)) => {
            let shown = without_credentials(text);
            Some(format!("\"{shown}\" not a valid URI: {{{why},\"{shown}\"}}"))
        }
        Err(UriError::Unsupported(why)) => {
            wrong.unsupported.get_or_insert(format!("\"{}\": {why}", without_credentials(text)));
            None
        }
    }
}

fn wrong_properties(name: &str, value: &Value) -> Option<String> {
    let Some(map) = map_of(value) else { return Some(format!("{name} not a list {}", erlang(value))) };
    for (property, value) in &map {
        match PROPERTIES.iter().find(|(known, _)| known == property) {
            None => return Some(format!("Unrecognised terms [{{<<\"{property}\">>,{}}}] in {name}", erlang(value))),
            Some((_, true)) if value.as_u64().is_none() => return should(property, "a number", value),
            Some((_, false)) if value.as_str().is_none_or(|text| text.len() > 255) => {
                return should(property, "binary", value);
            }
            Some(_) => {}
        }
    }
    let octet = |name: &str| map.get(name).and_then(Value::as_u64).is_some_and(|number| number > 255);
    ["delivery_mode", "priority"].into_iter().find(|name| octet(name)).map(|name| format!("{name} should be below 256"))
}

/// What is wrong with a field.
fn wrong_field(name: &str, kind: Kind, value: &Value, wrong: &mut Wrong) -> Option<String> {
    match kind {
        Kind::Text if value.as_str().is_some_and(|text| text.len() > 255) => {
            Some(format!("{name} should be less than 255 bytes, actually was {}", value.as_str().map_or(0, str::len)))
        }
        Kind::Text if value.is_string() => None,
        Kind::Text => should(name, "binary", value),
        Kind::Name => match value.as_str() {
            Some(text) if text.len() > 255 => {
                Some(format!("{name} should be less than 255 bytes, actually was {}", text.len()))
            }
            Some(_) => None,
            None => should(name, "binary", value),
        },
        Kind::Number if !value.is_number() => should(name, "a number", value),
        Kind::Number if name.ends_with("prefetch-count") && value.as_u64().is_none_or(|count| count > 65_535) => {
            should(name, "a number from 0 to 65535", value)
        }
        Kind::Number => None,
        Kind::Flag => {
            if value.is_boolean() {
                None
            } else {
                should(name, "boolean", value)
            }
        }
        Kind::Uris => match value {
            Value::String(text) => wrong_uri(text, wrong),
            Value::Array(items) if items.is_empty() || items.len() > URIS_MAX => {
                should(name, &format!("a list of 1 to {URIS_MAX} URIs"), &Value::from(items.len()))
            }
            Value::Array(items) => items.iter().find_map(|item| match item.as_str() {
                Some(text) => wrong_uri(text, wrong),
                None => should(name, "binary", item),
            }),
            other => should(name, "list", other),
        },
        Kind::DeleteAfter => match value {
            Value::String(text) if matches!(text.as_str(), "never" | "queue-length") => None,
            value if value.is_u64() => None,
            value => should(name, "a number greater than or equal to 0, \"never\" or \"queue-length\"", value),
        },
        Kind::Arguments => match map_of(value).map(|map| arguments_of_json(&map)) {
            Some(Ok(_)) => None,
            Some(Err(why)) => Some(format!("{name}: {}", why.0)),
            None => Some(format!("{name} not a list {}", erlang(value))),
        },
        Kind::Properties => wrong_properties(name, value),
        Kind::OneOf(names) => match value.as_str() {
            Some(text) if names.contains(&text) => None,
            Some(_) => {
                let names = erlang(&Value::from(names.to_vec()));
                should(name, &format!("one of {names}"), value)
            }
            None => should(name, "binary", value),
        },
        Kind::Foreign => None,
    }
}

impl Shovel {
    /// The shovel that a parameter of this name defines.
    ///
    /// # Errors
    /// Everything that is wrong with it, in RabbitMQ's words.
    pub fn parse(name: &str, value: &Value) -> Result<Shovel, ShovelError> {
        let failed = |why: &str| ShovelError::Invalid(format!("Validation failed\n\n{why}\n"));
        let Some(map) = map_of(value) else { return Err(failed(&format!("{name} not a list {}", erlang(value)))) };
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
        let unknown: Vec<String> = map
            .iter()
            .filter(|(field, _)| !known(field))
            .map(|(field, value)| format!("{{<<\"{field}\">>,{}}}", erlang(value)))
            .collect();
        if !unknown.is_empty() {
            wrong.invalid.push(format!("Unrecognised terms [{}] in {name}", unknown.join(",")));
        }
        for (field, kind) in FIELDS.iter().rev() {
            let text = match map.get(*field) {
                Some(value) => wrong_field(field, *kind, value, &mut wrong),
                None if matches!(kind, Kind::Uris) => Some(format!("Key \"{field}\" not found in {name}")),
                None => None,
            };
            wrong.invalid.extend(text);
        }
        if !wrong.invalid.is_empty() {
            return Err(failed(&wrong.invalid.join("\n")));
        }
        if let Some(other) = [from, to].into_iter().find(|protocol| *protocol != AMQP_0_9_1) {
            let why = format!(
                "shovels speak AMQP 0-9-1 only: 'src-protocol' and 'dest-protocol' can be amqp091, not {other}"
            );
            wrong.unsupported.get_or_insert(why);
        }
        match wrong.unsupported {
            Some(why) => Err(ShovelError::Unsupported(format!("Validation failed\n\n{why}\n"))),
            None => Ok(Shovel::read(&Reader(&map))),
        }
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
        let delay = map.0.get("reconnect-delay").and_then(Value::as_f64).map(|seconds| (seconds * 1_000.0) as u64);
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
            ack_mode: match map.text("ack-mode").as_deref() {
                Some("no-ack") => AckMode::NoAck,
                Some("on-publish") => AckMode::OnPublish,
                _ => AckMode::OnConfirm,
            },
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

/// A definition in which nothing is wrong.
struct Reader<'m>(&'m Map<String, Value>);

impl<'m> Reader<'m> {
    /// Under its name, or under the one that it had before.
    fn either(&self, name: &str, before: &str) -> Option<&'m Value> {
        self.0.get(name).or_else(|| self.0.get(before))
    }

    fn text(&self, name: &str) -> Option<ByteString> {
        Some(self.0.get(name)?.as_str()?.into())
    }

    fn flag(&self, name: &str, before: &str) -> bool {
        self.either(name, before).and_then(Value::as_bool).unwrap_or_default()
    }

    fn arguments(&self, name: &str) -> Vec<Argument> {
        let map = self.0.get(name).and_then(map_of).unwrap_or_default();
        arguments_of_json(&map).unwrap_or_default()
    }

    fn uris(&self, name: &str) -> Vec<AmqpUri> {
        let texts = match self.0.get(name) {
            Some(Value::String(text)) => vec![text.as_str()],
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        texts.into_iter().filter_map(|text| AmqpUri::parse(text).ok()).collect()
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

#[cfg(test)]
mod tests;
