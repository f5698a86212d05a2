//! What holds for a queue: its arguments and the policies that apply to it, merged key by key as RabbitMQ does.
//!
//! Numeric limits are the lowest of argument, policy and operator policy. For everything else the argument goes first.

use crate::arguments::{RETENTION_ARGUMENT, TOPIC_ARGUMENT, bool_of, duration_ms, integer_of, text_of};
use crate::queue::Queue;
use crate::queue_kind::QueueKind;
use bytestring::ByteString;
use polylogue_router::{Argument, lookup};
use polylogue_types::{Backoff, Retry, RetryOn};
use serde_json::{Map, Value};

/// How often a message of a quorum queue is delivered, where nobody says otherwise.
pub const DELIVERY_LIMIT: u32 = 20;

/// What happens to a message that comes when a queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// The oldest ready message goes (to the dead-letter exchange, reason `maxlen`).
    #[default]
    DropHead,
    /// The new one is refused.
    RejectPublish,
    /// The new one is refused and goes to the dead-letter exchange.
    RejectPublishDeadLetter,
}

/// How surely a dead message gets to its next queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeadLetterStrategy {
    /// It may get lost on the way.
    #[default]
    AtMostOnce,
    /// It is kept until the next queue has it.
    AtLeastOnce,
}

/// See the module. `None` is no limit, or nothing of the kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueSettings {
    /// The type of the queue.
    pub kind: QueueKind,
    /// Messages expire so long after they came. 0 is allowed.
    pub message_ttl_ms: Option<u64>,
    /// The queue expires so long after it was last used.
    pub expires_ms: Option<u64>,
    /// Ready messages.
    pub max_length: Option<u64>,
    /// Bytes of ready messages; of a stream, of all of it.
    pub max_length_bytes: Option<u64>,
    /// What happens at these limits.
    pub overflow: Overflow,
    /// Where dead messages go. The name may be of an exchange that is not there.
    pub dead_letter_exchange: Option<ByteString>,
    /// With which key; `None` for the keys that they came with.
    pub dead_letter_routing_key: Option<ByteString>,
    /// How surely.
    pub dead_letter_strategy: DeadLetterStrategy,
    /// The highest priority of a classic queue; `None` for no priorities. Quorum queues have their own rule.
    pub max_priority: Option<u8>,
    /// After so many failed deliveries a message is dead (reason `delivery_limit`).
    pub delivery_limit: Option<u32>,
    /// Only one consumer at a time.
    pub single_active_consumer: bool,
    /// Streams: chunks older than this go.
    pub max_age_ms: Option<u64>,
    /// Streams: a segment is sealed at this size.
    pub segment_bytes: Option<u64>,
    /// Streams: bytes of a chunk's filter.
    pub filter_bytes: Option<u8>,
    /// A consumer that holds a message longer loses it.
    pub consumer_timeout_ms: Option<u64>,
    /// Returned messages wait.
    pub delayed_retry: Option<Retry>,
    /// Settled messages stay readable as a topic so long.
    pub retention_ms: Option<u64>,
    /// Messages go on to this topic.
    pub topic: Option<ByteString>,
}

/// The two places where a key may be.
struct Source<'a> {
    arguments: &'a [Argument],
    policy: &'a Map<String, Value>,
}

impl Source<'_> {
    fn argument(&self, key: &str) -> Option<&Argument> {
        // Names of arguments are those of policies with `x-` before them; the names are short.
        self.arguments.iter().find(|a| a.name.strip_prefix(b"x-") == Some(key.as_bytes()))
    }

    fn integer(&self, key: &str) -> (Option<i64>, Option<i64>) {
        let argument = self.argument(key).and_then(|a| integer_of(a).ok());
        (argument, self.policy.get(key).and_then(Value::as_i64))
    }

    /// The lower one.
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
    /// What holds for a queue under what its policies set together ([`crate::merged`]).
    #[must_use]
    pub fn of(queue: &Queue, policy: &Map<String, Value>) -> QueueSettings {
        let source = Source { arguments: &queue.arguments, policy };
        let quorum = queue.kind == QueueKind::Quorum;
        let overflow = match source.text("overflow") {
            Some("reject-publish") => Overflow::RejectPublish,
            // A quorum queue falls back to the default, as with RabbitMQ.
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

/// Below 0 stands for none, and any limit is lower than none.
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

/// What holds for a queue, and by which policies.
#[derive(Clone, PartialEq, Debug)]
pub struct Effective {
    /// The name of the policy that applies.
    pub policy: Option<ByteString>,
    /// The name of the operator policy that applies.
    pub operator_policy: Option<ByteString>,
    /// What these set together.
    pub definition: Map<String, Value>,
    /// What holds.
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
    fn limits_are_the_lowest_and_the_rest_is_the_arguments() {
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
    fn a_quorum_queue_has_a_delivery_limit_unless_told_otherwise() {
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
    fn what_an_argument_is_not_does_not_count() {
        let queue = [long("x-overflow", 1), text("x-message-ttl", "5")];
        let source = Source { arguments: &queue, policy: &Map::new() };
        assert_eq!((source.text("overflow"), source.lowest("message-ttl")), (None, None));
    }
}
