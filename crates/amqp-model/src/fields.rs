//! The fields of shovel and federation parameters, and their checks with RabbitMQ's texts.

use crate::json::erlang;
use crate::table::arguments_of_json;
use crate::uri::{AmqpUri, UriError, without_credentials};
use bytestring::ByteString;
use polylogue_router::Argument;
use serde_json::{Map, Value};

/// The most URIs of one side.
const URIS_MAX: usize = 100;
/// The longest reconnect delay. Milliseconds.
pub(crate) const RECONNECT_DELAY_MS_MAX: u64 = 86_400_000;

/// When a transferred message is acknowledged at the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckMode {
    /// When the destination has confirmed it.
    OnConfirm,
    /// When it was sent: the destination's socket has accepted it completely.
    OnPublish,
    /// Never: the source delivers with automatic acknowledgement.
    NoAck,
}

/// Why a parameter cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkError {
    /// It is invalid.
    Invalid(String),
    /// It is valid in RabbitMQ and not supported here.
    Unsupported(String),
}

impl LinkError {
    /// The error of an invalid value.
    pub(crate) fn invalid(why: &str) -> LinkError {
        LinkError::Invalid(format!("Validation failed\n\n{why}\n"))
    }

    /// Returns the error text.
    #[must_use]
    pub fn text(&self) -> &str {
        let (LinkError::Invalid(text) | LinkError::Unsupported(text)) = self;
        text
    }
}

/// The type of a field.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
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
    /// A field of another protocol, ignored here.
    Foreign,
}

/// The values of `ack-mode`.
pub(crate) const ACK_MODES: &[&str] = &["no-ack", "on-publish", "on-confirm"];

/// The keys of `dest-publish-properties`, and whether the value is a number.
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

/// The problems found in a parameter.
#[derive(Default)]
pub(crate) struct Problems {
    /// Invalid fields.
    pub(crate) invalid: Vec<String>,
    /// The first problem that RabbitMQ would accept.
    pub(crate) unsupported: Option<String>,
}

impl Problems {
    /// Checks all fields of the parameter `name`; `known` says which names are allowed.
    pub(crate) fn fields(
        &mut self,
        name: &str,
        map: &Map<String, Value>,
        fields: &[(&str, Kind)],
        known: impl Fn(&str) -> bool,
        mandatory: &[&str],
    ) {
        let unknown = map.iter().filter(|(field, _)| !known(field));
        let unknown: Vec<_> = unknown.map(|(field, value)| format!("{{<<\"{field}\">>,{}}}", erlang(value))).collect();
        if !unknown.is_empty() {
            self.invalid.push(format!("Unrecognised terms [{}] in {name}", unknown.join(",")));
        }
        for (field, kind) in fields.iter().rev() {
            let text = match map.get(*field) {
                Some(value) => check_field(field, *kind, value, self),
                None if mandatory.contains(field) => Some(format!("Key \"{field}\" not found in {name}")),
                None => None,
            };
            self.invalid.extend(text);
        }
    }

    /// Turns the problems into a result.
    pub(crate) fn into_result(self) -> Result<(), LinkError> {
        if !self.invalid.is_empty() {
            return Err(LinkError::invalid(&self.invalid.join("\n")));
        }
        let unsupported = |why| LinkError::Unsupported(format!("Validation failed\n\n{why}\n"));
        self.unsupported.map_or(Ok(()), |why| Err(unsupported(why)))
    }
}

fn should(name: &str, what: &str, value: &Value) -> Option<String> {
    Some(format!("{name} should be {what}, actually was {}", erlang(value)))
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// A map; older RabbitMQ tools write an empty one as an array.
pub(crate) fn map_of(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map.clone()),
        value if is_empty_list(value) => Some(Map::new()),
        _ => None,
    }
}

fn check_uri(text: &str, problems: &mut Problems) -> Option<String> {
    match AmqpUri::parse(text) {
        Ok(_) => None,
        Err(UriError::Invalid(why)) => {
            let shown = without_credentials(text);
            Some(format!("\"{shown}\" not a valid URI: {{{why},\"{shown}\"}}"))
        }
        Err(UriError::Unsupported(why)) => {
            problems.unsupported.get_or_insert(format!("\"{}\": {why}", without_credentials(text)));
            None
        }
    }
}

fn check_properties(name: &str, value: &Value) -> Option<String> {
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

/// Checks one field.
fn check_field(name: &str, kind: Kind, value: &Value, problems: &mut Problems) -> Option<String> {
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
            Value::String(text) => check_uri(text, problems),
            Value::Array(items) if items.is_empty() || items.len() > URIS_MAX => {
                should(name, &format!("a list of 1 to {URIS_MAX} URIs"), &Value::from(items.len()))
            }
            Value::Array(items) => items.iter().find_map(|item| match item.as_str() {
                Some(text) => check_uri(text, problems),
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
        Kind::Properties => check_properties(name, value),
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

/// Reads the fields of a checked parameter.
pub(crate) struct Reader<'m>(pub(crate) &'m Map<String, Value>);

impl<'m> Reader<'m> {
    /// The value under its name, or under its former name.
    pub(crate) fn either(&self, name: &str, before: &str) -> Option<&'m Value> {
        self.0.get(name).or_else(|| self.0.get(before))
    }

    pub(crate) fn text(&self, name: &str) -> Option<ByteString> {
        Some(self.0.get(name)?.as_str()?.into())
    }

    pub(crate) fn flag(&self, name: &str, before: &str) -> bool {
        self.either(name, before).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn arguments(&self, name: &str) -> Vec<Argument> {
        let map = self.0.get(name).and_then(map_of).unwrap_or_default();
        arguments_of_json(&map).unwrap_or_default()
    }

    pub(crate) fn uris(&self, name: &str) -> Vec<AmqpUri> {
        let texts = match self.0.get(name) {
            Some(Value::String(text)) => vec![text.as_str()],
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        texts.into_iter().filter_map(|text| AmqpUri::parse(text).ok()).collect()
    }

    /// An unsigned integer, if present.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    /// A duration given in seconds. Milliseconds.
    pub(crate) fn seconds(&self, name: &str) -> Option<u64> {
        let seconds = self.0.get(name)?.as_f64()?;
        Some((seconds * 1_000.0) as u64)
    }

    pub(crate) fn ack_mode(&self) -> AckMode {
        match self.text("ack-mode").as_deref() {
            Some("no-ack") => AckMode::NoAck,
            Some("on-publish") => AckMode::OnPublish,
            _ => AckMode::OnConfirm,
        }
    }
}
