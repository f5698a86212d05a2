//! Federation upstreams: parameters of the components `federation-upstream` and `federation-upstream-set`, with RabbitMQ's checks and texts.
//!
//! Sources: RabbitMQ's federation reference, and the behaviour of its broker.

use crate::fields::{ACK_MODES, AckMode, Kind, LinkError, Problems, RECONNECT_DELAY_MS_MAX, Reader, map_of};
use crate::json::erlang;
use crate::pattern::Pattern;
use crate::uri::AmqpUri;
use bytestring::ByteString;
use serde_json::{Map, Value};

/// The component of parameters that are upstreams.
pub const UPSTREAM: &str = "federation-upstream";
/// The component of parameters that are sets of upstreams; also the policy key that names a set.
pub const UPSTREAM_SET: &str = "federation-upstream-set";
/// The policy key that selects upstreams by a pattern of names.
pub(crate) const UPSTREAM_PATTERN: &str = "federation-upstream-pattern";

/// The default prefetch of a link.
const PREFETCH: u16 = 1_000;
/// The default reconnect delay. Milliseconds.
const RECONNECT_DELAY_MS: u64 = 5_000;
/// The shortest reconnect delay, so that a repeated immediate error does not consume a processor. Milliseconds.
const RECONNECT_DELAY_MS_MIN: u64 = 100;

const CLEANUP_MODES: &[&str] = &["default", "never"];
const QUEUE_TYPES: &[&str] = &["classic", "quorum"];
const CHANNEL_MODES: &[&str] = &["multiple", "single"];

/// The field with an upstream's addresses.
const URI: &str = "uri";
/// The field of a set's member that names the upstream.
pub(crate) const MEMBER: &str = "upstream";

/// The fields that upstreams and members of sets share, in RabbitMQ's order.
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

/// The source of a federated exchange or queue, and the settings of its link.
#[derive(Clone, PartialEq, Debug)]
pub struct Upstream {
    /// Its name.
    pub name: ByteString,
    /// Its addresses, which are equivalent.
    pub uris: Vec<AmqpUri>,
    /// The upstream exchange, if its name differs from the local one.
    pub exchange: Option<ByteString>,
    /// The upstream queue, if its name differs from the local one.
    pub queue: Option<ByteString>,
    /// The consumer tag for a federated queue.
    pub consumer_tag: ByteString,
    /// The most unacknowledged messages; 0 for no limit.
    pub prefetch: u16,
    /// The reconnect delay. Milliseconds.
    pub reconnect_delay_ms: u64,
    /// The most links that a message may pass, one after the other.
    pub hops_max: u32,
    /// The expiry of the upstream queue without a link. Milliseconds.
    pub expires_ms: Option<u64>,
    /// The message TTL of the upstream queue. Milliseconds.
    pub message_ttl_ms: Option<u64>,
    /// Whether the property `user-id` is kept.
    pub trusts_user_id: bool,
    /// When the upstream's messages are acknowledged.
    pub ack_mode: AckMode,
    /// Whether the upstream queue is a quorum queue.
    pub is_quorum: bool,
    /// Whether the upstream's queues and bindings are kept when the link is removed.
    pub keeps_resources: bool,
}

fn known(field: &str, more: &str) -> bool {
    field == more || SHARED.iter().any(|(known, _)| *known == field)
}

fn whole(map: &Map<String, Value>, problems: &mut Problems) {
    for name in ["max-hops", "expires", "message-ttl"] {
        let min = u64::from(name != "message-ttl");
        let value = map.get(name).filter(|value| value.is_number());
        if let Some(value) = value.filter(|value| value.as_u64().is_none_or(|n| n < min || n > u64::from(u32::MAX))) {
            let text = format!("{name} should be a number from {min} to {}, actually was {}", u32::MAX, erlang(value));
            problems.invalid.push(text);
        }
    }
}

/// Checks the fields of an upstream or of a set's member, and returns them.
fn checked(name: &str, value: &Value, own: (&'static str, Kind)) -> Result<Map<String, Value>, LinkError> {
    let Some(map) = map_of(value) else {
        return Err(LinkError::invalid(&format!("{name} not a list {}", erlang(value))));
    };
    let mut problems = Problems::default();
    let fields: Vec<_> = std::iter::once(own).chain(SHARED).collect();
    problems.fields(name, &map, &fields, |field| known(field, own.0), &[own.0]);
    whole(&map, &mut problems);
    problems.into_result()?;
    Ok(map)
}

/// Checks that a value is a set of upstreams.
///
/// # Errors
/// The first problem, with RabbitMQ's text.
pub(crate) fn check_set(name: &str, value: &Value) -> Result<(), LinkError> {
    let Value::Array(members) = value else {
        return Err(LinkError::invalid(&format!("{name} should be list, actually was {}", erlang(value))));
    };
    members.iter().try_for_each(|member| checked(name, member, (MEMBER, Kind::Name)).map(drop))
}

impl Upstream {
    /// Parses and checks the parameter of this name.
    ///
    /// # Errors
    /// All problems, with RabbitMQ's texts.
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

/// Checks that the keys of a policy select upstreams in one way only, and validly.
///
/// # Errors
/// RabbitMQ's text.
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
