//! The effective settings of a queue: its arguments and applicable policies, merged key by key as RabbitMQ does.
//!
//! Of numeric limits the lowest of argument, policy and operator policy is effective. For other keys the argument takes precedence.

use crate::arguments::{RETENTION_ARGUMENT, TOPIC_ARGUMENT, bool_of, duration_ms, integer_of, text_of};
use crate::queue::Queue;
use crate::queue_kind::QueueKind;
use bytestring::ByteString;
use polylogue_router::{Argument, lookup};
use polylogue_types::{Backoff, Retry, RetryOn};
use serde_json::{Map, Value};

/// The default delivery limit of a quorum queue.
pub const DELIVERY_LIMIT: u32 = 20;

/// What happens to a message that is published to a full queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// The oldest ready message is removed (dead-lettered with reason `maxlen`).
    #[default]
    DropHead,
    /// The new message is rejected.
    RejectPublish,
    /// The new message is rejected and dead-lettered.
    RejectPublishDeadLetter,
}

/// The guarantee of dead-lettering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeadLetterStrategy {
    /// A message may be lost.
    #[default]
    AtMostOnce,
    /// A message is kept until the target queue has it.
    AtLeastOnce,
}

/// See the module. `None` means no limit, or not set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueSettings {
    /// The type of the queue.
    pub kind: QueueKind,
    /// The TTL of messages. 0 is allowed. Milliseconds.
    pub message_ttl_ms: Option<u64>,
    /// The queue is deleted after being unused for this long. Milliseconds.
    pub expires_ms: Option<u64>,
    /// The most ready messages.
    pub max_length: Option<u64>,
    /// The most bytes of ready messages; for a stream, of all messages.
    pub max_length_bytes: Option<u64>,
    /// What happens at these limits.
    pub overflow: Overflow,
    /// The dead-letter exchange. It need not exist.
    pub dead_letter_exchange: Option<ByteString>,
    /// The dead-letter routing key; `None` to keep a message's own keys.
    pub dead_letter_routing_key: Option<ByteString>,
    /// The guarantee.
    pub dead_letter_strategy: DeadLetterStrategy,
    /// The highest priority of a classic queue; `None` for no priorities. Quorum queues have fixed priorities.
    pub max_priority: Option<u8>,
    /// A message is dead-lettered after this many failed deliveries (reason `delivery_limit`).
    pub delivery_limit: Option<u32>,
    /// Only one consumer receives messages at a time.
    pub single_active_consumer: bool,
    /// Streams: chunks older than this are removed. Milliseconds.
    pub max_age_ms: Option<u64>,
    /// Streams: a segment is sealed at this size.
    pub segment_bytes: Option<u64>,
    /// Streams: the size of a chunk's filter. Bytes.
    pub filter_bytes: Option<u8>,
    /// How long a consumer may hold a delivery unacknowledged. Milliseconds.
    pub consumer_timeout_ms: Option<u64>,
    /// The delay before returned messages are delivered again.
    pub delayed_retry: Option<Retry>,
    /// How long settled messages stay readable as a topic. Milliseconds.
    pub retention_ms: Option<u64>,
    /// The topic that messages are forwarded to.
    pub topic: Option<ByteString>,
}

/// The two sources of a setting.
struct Source<'a> {
    arguments: &'a [Argument],
    policy: &'a Map<String, Value>,
}

impl Source<'_> {
    fn argument(&self, key: &str) -> Option<&Argument> {
        // Argument names are policy keys with the prefix `x-`.
        self.arguments.iter().find(|a| a.name.strip_prefix(b"x-") == Some(key.as_bytes()))
    }

    fn integer(&self, key: &str) -> (Option<i64>, Option<i64>) {
        let argument = self.argument(key).and_then(|a| integer_of(a).ok());
        (argument, self.policy.get(key).and_then(Value::as_i64))
    }

    /// The lower of argument and policy.
    fn lowest(&self, key: &str) -> Option<u64> {
        let (argument, policy) = self.integer(key);
        argument.into_iter().chain(policy).min().and_then(|value| u64::try_from(value).ok())
    }

    /// The argument, else the policy.
    fn number(&self, key: &str) -> Option<u64> {
        let (argument, policy) = self.integer(key);
        argument.or(policy).and_then(|value| u64::try_from(value).ok())
    }

    /// The argument, else the policy.
    fn text(&self, key: &str) -> Option<&str> {
        let argument = self.argument(key).and_then(|a| text_of(a).ok());
        argument.or_else(|| self.policy.get(key).and_then(Value::as_str))
    }

    fn owned(&self, key: &str) -> Option<ByteString> {
        self.text(key).map(ByteString::from)
    }
}

impl QueueSettings {
    /// Computes the settings of a queue from the merged keys of its policies ([`crate::merged`]).
    #[must_use]
    pub fn of(queue: &Queue, policy: &Map<String, Value>) -> QueueSettings {
        let source = Source { arguments: &queue.arguments, policy };
        let quorum = queue.kind == QueueKind::Quorum;
        let overflow = match source.text("overflow") {
            Some("reject-publish") => Overflow::RejectPublish,
            // A quorum queue falls back to the default, as in RabbitMQ.
            Some("reject-publish-dlx") if !quorum => Overflow::RejectPublishDeadLetter,
            _ => Overflow::DropHead,
        };
        let dead_letter_exchange = source.owned("dead-letter-exchange");
        let sure = quorum && overflow == Overflow::RejectPublish && dead_letter_exchange.is_some();
        let sure = sure && source.text("dead-letter-strategy") == Some("at-least-once");
        let is_true = |name: &[u8]| lookup(&queue.arguments, name).is_some_and(|a| bool_of(a) == Ok(true));
        QueueSettings {
            kind: queue.kind,
            message_ttl_ms: source.lowest("message-ttl"),
            expires_ms: source.lowest("expires"),
            max_length: source.lowest("max-length"),
            max_length_bytes: source.lowest("max-length-bytes"),
            overflow,
            dead_letter_exchange,
            dead_letter_routing_key: source.owned("dead-letter-routing-key"),
            dead_letter_strategy: if sure { DeadLetterStrategy::AtLeastOnce } else { DeadLetterStrategy::AtMostOnce },
            max_priority: lookup(&queue.arguments, b"x-max-priority")
                .and_then(|a| integer_of(a).ok())
                .and_then(|value| u8::try_from(value).ok())
                .filter(|value| *value > 0),
            delivery_limit: quorum.then(|| delivery_limit(&source)).flatten(),
            single_active_consumer: is_true(b"x-single-active-consumer"),
            max_age_ms: max_age_ms(&source),
            segment_bytes: source.number("stream-max-segment-size-bytes"),
            filter_bytes: source.number("stream-filter-size-bytes").and_then(|value| u8::try_from(value).ok()),
            consumer_timeout_ms: source.lowest("consumer-timeout"),
            delayed_retry: delayed_retry(&source),
            retention_ms: {
                let argument = lookup(&queue.arguments, RETENTION_ARGUMENT.as_bytes());
                let argument = argument.and_then(|a| integer_of(a).ok());
                let policy = || policy.get("polylogue-retention-ms").and_then(Value::as_i64);
                argument.or_else(policy).and_then(|value| u64::try_from(value).ok())
            },
            topic: {
                let argument = lookup(&queue.arguments, TOPIC_ARGUMENT.as_bytes());
                argument.and_then(|a| text_of(a).ok()).map(ByteString::from)
            },
        }
    }
}

/// A negative value means no limit, and any limit is lower than that.
fn delivery_limit(source: &Source<'_>) -> Option<u32> {
    let (argument, policy) = source.integer("delivery-limit");
    let set: Vec<i64> = argument.into_iter().chain(policy).collect();
    if set.is_empty() {
        return Some(DELIVERY_LIMIT);
    }
    let lowest = set.into_iter().filter(|value| *value >= 0).min()?;
    Some(u32::try_from(lowest).unwrap_or(u32::MAX))
}

fn max_age_ms(source: &Source<'_>) -> Option<u64> {
    let argument = source.argument("max-age").and_then(|a| text_of(a).ok()).and_then(duration_ms);
    let policy = source.policy.get("max-age").and_then(Value::as_str).and_then(duration_ms);
    argument.into_iter().chain(policy).min()
}

fn delayed_retry(source: &Source<'_>) -> Option<Retry> {
    let on = match source.text("delayed-retry-type")? {
        "all" => RetryOn::All,
        "failed" => RetryOn::Failed,
        "returned" => RetryOn::Returned,
        _ => return None,
    };
    let first_ms = source.number("delayed-retry-min")?;
    let max_ms = source.number("delayed-retry-max").unwrap_or(u64::MAX).max(first_ms);
    let factor = source.number("delayed-retry-multiplier").and_then(|factor| u8::try_from(factor).ok());
    let backoff = match factor.filter(|factor| *factor > 0) {
        None => Backoff::Linear { step_ms: first_ms, max_ms },
        Some(factor) => Backoff::Exponential { first_ms, factor, max_ms },
    };
    Some(Retry { on, backoff })
}

/// The effective settings of a queue, and their policies.
#[derive(Clone, PartialEq, Debug)]
pub struct Effective {
    /// The name of the policy that applies.
    pub policy: Option<ByteString>,
    /// The name of the operator policy that applies.
    pub operator_policy: Option<ByteString>,
    /// The merged keys of both.
    pub definition: Map<String, Value>,
    /// The effective settings.
    pub settings: QueueSettings,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{arguments_of_json, long, text};
    use polylogue_router::{QueueId, VhostId};
    use serde_json::json;

    fn settings(kind: QueueKind, arguments: Value, policy: Value) -> QueueSettings {
        let (Value::Object(arguments), Value::Object(policy)) = (arguments, policy) else { panic!("not objects") };
        let queue = Queue {
            id: QueueId(1),
            vhost: VhostId(1),
            name: "q".into(),
            kind,
            durable: true,
            home: crate::queue::Home::default(),
            auto_delete: false,
            owner: None,
            arguments: arguments_of_json(&arguments).unwrap(),
            declared_by: ByteString::new(),
        };
        QueueSettings::of(&queue, &policy)
    }

    #[test]
    fn the_lowest_limit_and_otherwise_the_argument_is_effective() {
        let found = settings(
            QueueKind::Classic,
            json!({"x-message-ttl": 5, "x-max-length": 10, "x-overflow": "reject-publish-dlx", "x-max-priority": 9}),
            json!({"message-ttl": 7, "max-length": 3, "overflow": "reject-publish", "dead-letter-exchange": "dlx",
                   "dead-letter-routing-key": "k"}),
        );
        assert_eq!((found.message_ttl_ms, found.max_length), (Some(5), Some(3)));
        assert_eq!(found.overflow, Overflow::RejectPublishDeadLetter);
        assert_eq!(found.dead_letter_exchange.as_deref(), Some("dlx"));
        assert_eq!(found.dead_letter_routing_key.as_deref(), Some("k"));
        assert_eq!((found.max_priority, found.delivery_limit), (Some(9), None));
    }

    #[test]
    fn a_quorum_queue_has_a_default_delivery_limit() {
        for (argument, policy, limit) in [
            (None, None, Some(DELIVERY_LIMIT)),
            (Some(-1), None, None),
            (Some(-1), Some(3), Some(3)),
            (Some(5), Some(-1), Some(5)),
            (Some(5), Some(3), Some(3)),
            (Some(0), None, Some(0)),
        ] {
            let one = |name: &str, value: Option<i64>| {
                Value::Object(value.into_iter().map(|v| (name.to_owned(), Value::from(v))).collect())
            };
            let found = settings(QueueKind::Quorum, one("x-delivery-limit", argument), one("delivery-limit", policy));
            assert_eq!(found.delivery_limit, limit, "{argument:?} and {policy:?}");
        }
    }

    #[test]
    fn at_least_once_needs_reject_publish_and_an_exchange() {
        let with = |arguments| settings(QueueKind::Quorum, arguments, json!({})).dead_letter_strategy;
        let strategy = "at-least-once";
        let all =
            json!({"x-dead-letter-strategy": strategy, "x-overflow": "reject-publish", "x-dead-letter-exchange": "x"});
        assert_eq!(with(all), DeadLetterStrategy::AtLeastOnce);
        assert_eq!(
            with(json!({"x-dead-letter-strategy": strategy, "x-dead-letter-exchange": "x"})),
            DeadLetterStrategy::AtMostOnce
        );
        assert_eq!(
            with(json!({"x-dead-letter-strategy": strategy, "x-overflow": "reject-publish"})),
            DeadLetterStrategy::AtMostOnce
        );
    }

    #[test]
    fn streams_and_retries() {
        let stream = settings(QueueKind::Stream, json!({"x-max-age": "2h"}), json!({"max-age": "1h"}));
        assert_eq!(stream.max_age_ms, Some(3_600_000));
        let retry = |arguments, policy| settings(QueueKind::Quorum, arguments, policy).delayed_retry;
        let some = json!({"x-delayed-retry-type": "failed", "x-delayed-retry-min": 100, "x-delayed-retry-max": 50});
        let backoff = Backoff::Linear { step_ms: 100, max_ms: 100 };
        assert_eq!(retry(some, json!({})), Some(Retry { on: RetryOn::Failed, backoff }));
        let policy = json!({"delayed-retry-type": "all", "delayed-retry-min": 100, "delayed-retry-multiplier": 3});
        let backoff = Backoff::Exponential { first_ms: 100, factor: 3, max_ms: u64::MAX };
        assert_eq!(retry(json!({}), policy), Some(Retry { on: RetryOn::All, backoff }));
        assert_eq!(retry(json!({"x-delayed-retry-type": "disabled", "x-delayed-retry-min": 1}), json!({})), None);
    }

    #[test]
    fn values_of_a_wrong_type_are_ignored() {
        let queue = [long("x-overflow", 1), text("x-message-ttl", "5")];
        let source = Source { arguments: &queue, policy: &Map::new() };
        assert_eq!((source.text("overflow"), source.lowest("message-ttl")), (None, None));
    }
}
