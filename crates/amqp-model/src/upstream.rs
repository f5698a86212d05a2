//! Parameters of the components `federation-upstream` and `federation-upstream-set`: their fields and RabbitMQ's complaints.
//!
//! Sources: RabbitMQ's federation reference, and what its broker answers.

use crate::fields::{ACK_MODES, AckMode, Kind, LinkError, RECONNECT_DELAY_MS_MAX, Reader, Wrong, map_of};
use crate::json::erlang;
use crate::pattern::Pattern;
use crate::uri::AmqpUri;
use bytestring::ByteString;
use serde_json::{Map, Value};

/// The component of parameters that are upstreams.
pub const UPSTREAM: &str = "federation-upstream";
/// The component of parameters that are sets of upstreams; also the key of policies that names one.
pub const UPSTREAM_SET: &str = "federation-upstream-set";
/// The key of policies that has upstreams chosen by their names.
pub(crate) const UPSTREAM_PATTERN: &str = "federation-upstream-pattern";

/// Messages that may be under way where nobody says it.
const PREFETCH: u16 = 1_000;
/// How long a link rests after an error where nobody says it. Milliseconds.
const RECONNECT_DELAY_MS: u64 = 5_000;
/// The shortest rest: an error that comes at once must not cost all of the time. Milliseconds.
const RECONNECT_DELAY_MS_MIN: u64 = 100;

const CLEANUP_MODES: &[&str] = &["default", "never"];
const QUEUE_TYPES: &[&str] = &["classic", "quorum"];
const CHANNEL_MODES: &[&str] = &["multiple", "single"];

/// The field of an upstream that says where it is.
const URI: &str = "uri";
/// The field of a set's member that says which upstream it is.
pub(crate) const MEMBER: &str = "upstream";

/// What upstreams and members of sets have in common, in RabbitMQ's order.
const SHARED: [(&str, Kind); 14] = [
    ("exchange", Kind::Name),
    ("queue", Kind::Name),
    ("consumer-tag", Kind::Name),
    ("prefetch-count", Kind::Number),
    ("reconnect-delay", Kind::Number),
    ("max-hops", Kind::Number),
    ("expires", Kind::Number),
    ("message-ttl", Kind::Number),
    ("trust-user-id", Kind::Flag),
    ("ack-mode", Kind::OneOf(ACK_MODES)),
    ("resource-cleanup-mode", Kind::OneOf(CLEANUP_MODES)),
    ("queue-type", Kind::OneOf(QUEUE_TYPES)),
    ("bind-nowait", Kind::Flag),
    ("channel-use-mode", Kind::OneOf(CHANNEL_MODES)),
];

/// Where a federated exchange or queue gets messages from, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct Upstream {
    /// Its name.
    pub name: ByteString,
    /// Where it is. One is as good as another.
    pub uris: Vec<AmqpUri>,
    /// The exchange there, where it has another name than the one here.
    pub exchange: Option<ByteString>,
    /// The queue there, likewise.
    pub queue: Option<ByteString>,
    /// What the consumer of a federated queue is called.
    pub consumer_tag: ByteString,
    /// Messages that may be under way; 0 for as many as fit.
    pub prefetch: u16,
    /// How long a link rests after an error. Milliseconds.
    pub reconnect_delay_ms: u64,
    /// The links that a message may come over, one after the other.
    pub hops_max: u32,
    /// How long the queue there is kept without a link. Milliseconds.
    pub expires_ms: Option<u64>,
    /// How long messages wait in it. Milliseconds.
    pub message_ttl_ms: Option<u64>,
    /// Whether `user-id` stays in messages.
    pub trusts_user_id: bool,
    /// When the upstream hears that a message is here.
    pub ack_mode: AckMode,
    /// Whether the queue there is a quorum queue.
    pub is_quorum: bool,
    /// What was made there stays when the link is no longer wanted.
    pub keeps_resources: bool,
}

fn known(field: &str, more: &str) -> bool {
    field == more || SHARED.iter().any(|(known, _)| *known == field)
}

fn whole(map: &Map<String, Value>, wrong: &mut Wrong) {
    for name in ["max-hops", "expires", "message-ttl"] {
        let min = u64::from(name != "message-ttl");
        let value = map.get(name).filter(|value| value.is_number());
        if let Some(value) = value.filter(|value| value.as_u64().is_none_or(|n| n < min || n > u64::from(u32::MAX))) {
            let text = format!("{name} should be a number from {min} to {}, actually was {}", u32::MAX, erlang(value));
            wrong.invalid.push(text);
        }
    }
}

/// The fields of an upstream or of a set's member, with nothing wrong in them.
fn checked(name: &str, value: &Value, own: (&'static str, Kind)) -> Result<Map<String, Value>, LinkError> {
    let Some(map) = map_of(value) else {
        return Err(LinkError::invalid(&format!("{name} not a list {}", erlang(value))));
    };
    let mut wrong = Wrong::default();
    let fields: Vec<_> = std::iter::once(own).chain(SHARED).collect();
    wrong.fields(name, &map, &fields, |field| known(field, own.0), &[own.0]);
    whole(&map, &mut wrong);
    wrong.judge()?;
    Ok(map)
}

/// That the value of a parameter is a set of upstreams.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_set(name: &str, value: &Value) -> Result<(), LinkError> {
    let Value::Array(members) = value else {
        return Err(LinkError::invalid(&format!("{name} should be list, actually was {}", erlang(value))));
    };
    members.iter().try_for_each(|member| checked(name, member, (MEMBER, Kind::Name)).map(drop))
}

impl Upstream {
    /// The upstream that a parameter of this name defines.
    ///
    /// # Errors
    /// Everything that is wrong with it, in RabbitMQ's words.
    pub fn parse(name: &str, value: &Value) -> Result<Upstream, LinkError> {
        checked(name, value, (URI, Kind::Uris)).map(|map| Upstream::read(name, &Reader(&map)))
    }

    fn read(name: &str, map: &Reader<'_>) -> Upstream {
        let small = |field: &str| map.count(field).and_then(|count| u32::try_from(count).ok());
        let prefetch = map.count("prefetch-count").and_then(|count| u16::try_from(count).ok());
        let delay_ms = map.seconds("reconnect-delay").unwrap_or(RECONNECT_DELAY_MS);
        Upstream {
            name: name.into(),
            uris: map.uris(URI),
            exchange: map.text("exchange"),
            queue: map.text("queue"),
            consumer_tag: map.text("consumer-tag").unwrap_or_else(|| format!("federation-link-{name}").into()),
            prefetch: prefetch.unwrap_or(PREFETCH),
            reconnect_delay_ms: delay_ms.clamp(RECONNECT_DELAY_MS_MIN, RECONNECT_DELAY_MS_MAX),
            hops_max: small("max-hops").unwrap_or(1),
            expires_ms: map.count("expires"),
            message_ttl_ms: map.count("message-ttl"),
            trusts_user_id: map.flag("trust-user-id", ""),
            ack_mode: map.ack_mode(),
            is_quorum: map.text("queue-type").as_deref() == Some("quorum"),
            keeps_resources: map.text("resource-cleanup-mode").as_deref() == Some("never"),
        }
    }
}

/// That keys of a policy name upstreams in one way only, and how.
///
/// # Errors
/// What is wrong, as RabbitMQ says it.
pub(crate) fn check_policy(keys: &Map<String, Value>) -> Result<(), String> {
    let all = [UPSTREAM, UPSTREAM_SET, UPSTREAM_PATTERN];
    if all.iter().filter(|key| keys.contains_key(**key)).count() > 1 {
        let text =
            "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together";
        return Err(text.to_owned());
    }
    let Some(Value::String(pattern)) = keys.get(UPSTREAM_PATTERN) else { return Ok(()) };
    Pattern::policy(pattern.as_str().into())
        .map(drop)
        .map_err(|why| format!("could not compile pattern {pattern} to a regular expression. Error: {why}"))
}
