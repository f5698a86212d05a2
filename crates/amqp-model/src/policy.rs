//! Policies and operator policies: settings for all queues and exchanges whose names match.
//!
//! At most one policy and one operator policy apply to a queue or exchange: of those of its virtual host that apply to its type and match its name,
//! the one with the highest priority (of equal ones the first by name). A policy with a key that a queue type does not support does not apply to
//! queues of that type at all. If both set a key, the lower numeric limit is effective, `overflow` is the operator's, and the higher
//! `target-group-size` is effective.

use crate::arguments::{RETRY_FACTOR_MAX, duration_ms};
use crate::json::{Json, erlang};
use crate::pattern::Pattern;
use crate::queue_kind::QueueKind;
use crate::upstream::{self, UPSTREAM, UPSTREAM_PATTERN, UPSTREAM_SET};
use bytestring::ByteString;
use polylogue_router::VhostId;
use serde_json::{Map, Value};

/// The component of parameters that are operator policies.
pub(crate) const OPERATOR_POLICY: &str = "operator_policy";

/// The types that a policy applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApplyTo {
    /// `all`
    All,
    /// `queues`
    Queues,
    /// `classic_queues`
    ClassicQueues,
    /// `quorum_queues`
    QuorumQueues,
    /// `streams`
    Streams,
    /// `exchanges`
    Exchanges,
}

impl ApplyTo {
    const ALL: [ApplyTo; 6] = [
        ApplyTo::All,
        ApplyTo::Queues,
        ApplyTo::ClassicQueues,
        ApplyTo::QuorumQueues,
        ApplyTo::Streams,
        ApplyTo::Exchanges,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ApplyTo::All => "all",
            ApplyTo::Queues => "queues",
            ApplyTo::ClassicQueues => "classic_queues",
            ApplyTo::QuorumQueues => "quorum_queues",
            ApplyTo::Streams => "streams",
            ApplyTo::Exchanges => "exchanges",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn named(name: &str) -> Option<ApplyTo> {
        ApplyTo::ALL.into_iter().find(|apply_to| apply_to.name() == name)
    }

    fn takes(self, kind: Option<QueueKind>) -> bool {
        match self {
            ApplyTo::All => true,
            ApplyTo::Queues => kind.is_some(),
            ApplyTo::ClassicQueues => kind == Some(QueueKind::Classic),
            ApplyTo::QuorumQueues => kind == Some(QueueKind::Quorum),
            ApplyTo::Streams => kind == Some(QueueKind::Stream),
            ApplyTo::Exchanges => kind.is_none(),
        }
    }
}

/// The settings of a policy or an operator policy, as requested.
#[derive(Clone, PartialEq, Debug)]
pub struct PolicySpec {
    /// Whether it is an operator policy.
    pub operator: bool,
    /// Its name; unique within the virtual host among policies or operator policies.
    pub name: ByteString,
    /// The pattern of names that it applies to.
    pub pattern: ByteString,
    /// The types that it applies to.
    pub apply_to: ApplyTo,
    /// The policy with the highest priority applies.
    pub priority: i64,
    /// A JSON object of keys.
    pub definition: Map<String, Value>,
}

/// A policy or an operator policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// Whether it is an operator policy.
    pub operator: bool,
    /// Its virtual host.
    pub vhost: VhostId,
    /// See [`PolicySpec::name`].
    pub name: ByteString,
    /// See [`PolicySpec::pattern`].
    pub pattern: Pattern,
    /// See [`PolicySpec::apply_to`].
    pub apply_to: ApplyTo,
    /// See [`PolicySpec::priority`].
    pub priority: i64,
    /// See [`PolicySpec::definition`].
    pub definition: Json,
    keys: Map<String, Value>,
}

impl Policy {
    /// Checks the requested settings of a policy.
    ///
    /// # Errors
    /// RabbitMQ's text for the first invalid setting.
    pub(crate) fn checked(vhost: VhostId, spec: &PolicySpec) -> Result<Policy, String> {
        let failed = |why: String| format!("Validation failed\n\n{why}\n");
        if spec.definition.is_empty() {
            return Err(failed("no policy provided".to_owned()));
        }
        let pattern = Pattern::policy(spec.pattern.clone()).map_err(failed)?;
        let mut unknown = Vec::new();
        for (key, value) in &spec.definition {
            match check_key(spec.operator, key, value) {
                None => unknown.push(format!("{{<<\"{key}\">>,{}}}", erlang(value))),
                Some(Ok(())) => {}
                Some(Err(what)) => return Err(failed(format!("{} is not a valid {what}", erlang(value)))),
            }
        }
        if !unknown.is_empty() {
            return Err(failed(format!("[{}] are not recognised policy settings", unknown.join(","))));
        }
        upstream::check_policy(&spec.definition).map_err(failed)?;
        let definition = Json::new(&Value::Object(spec.definition.clone()));
        Ok(Policy::build(vhost, spec.operator, spec.name.clone(), pattern, spec.apply_to, spec.priority, definition))
    }

    /// Builds a policy that was checked before.
    pub(crate) fn build(
        vhost: VhostId,
        operator: bool,
        name: ByteString,
        pattern: Pattern,
        apply_to: ApplyTo,
        priority: i64,
        definition: Json,
    ) -> Policy {
        let keys = if let Value::Object(keys) = definition.value() { keys } else { Map::new() };
        Policy { operator, vhost, name, pattern, apply_to, priority, definition, keys }
    }

    /// Its keys.
    #[must_use]
    pub fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// Whether it applies to a queue of this type (or, without a type, to an exchange) with this name.
    #[must_use]
    pub fn applies(&self, kind: Option<QueueKind>, name: &str) -> bool {
        let supported = |kind| !self.keys.keys().any(|key| unsupported(kind).contains(&key.as_str()));
        self.apply_to.takes(kind) && kind.is_none_or(supported) && self.pattern.matches(name)
    }
}

/// Returns the effective one of the policies that apply.
pub(crate) fn strongest<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<&'a Policy> {
    // The first of those with the highest priority: `max_by_key` would return the last one.
    policies.fold(None, |best: Option<&Policy>, policy| match best {
        Some(best) if best.priority >= policy.priority => Some(best),
        _ => Some(policy),
    })
}

/// Merges the keys of a policy and an operator policy.
#[must_use]
pub fn merged(policy: Option<&Policy>, operator: Option<&Policy>) -> Map<String, Value> {
    let mut keys = policy.map(|policy| policy.keys.clone()).unwrap_or_default();
    for (key, own) in operator.iter().flat_map(|operator| &operator.keys) {
        let value = match keys.get(key) {
            None => own.clone(),
            Some(value) => merge_value(key, value, own),
        };
        keys.insert(key.clone(), value);
    }
    keys
}

fn merge_value(key: &str, value: &Value, operator: &Value) -> Value {
    let numbers = value.as_i64().zip(operator.as_i64());
    match (key, numbers) {
        ("target-group-size", Some((a, b))) => Value::from(a.max(b)),
        // -1 means no limit.
        ("delivery-limit", Some((a, b))) if a < 0 || b < 0 => Value::from(a.max(b)),
        (_, Some((a, b))) => Value::from(a.min(b)),
        _ => operator.clone(),
    }
}

/// The keys that prevent a policy from applying to queues of a type.
fn unsupported(kind: QueueKind) -> &'static [&'static str] {
    match kind {
        QueueKind::Classic => &[
            "max-age",
            "stream-max-segment-size-bytes",
            "initial-cluster-size",
            "delivery-limit",
            "dead-letter-strategy",
            "target-group-size",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "consumer-timeout",
            "delayed-retry-type",
            "delayed-retry-min",
            "delayed-retry-max",
            "delayed-retry-multiplier",
        ],
        QueueKind::Quorum => &[
            "max-priority",
            "queue-mode",
            "queue-version",
            "ha-mode",
            "ha-params",
            "ha-sync-mode",
            "ha-promote-on-shutdown",
            "ha-promote-on-failure",
            "queue-master-locator",
            "max-age",
            "stream-max-segment-size-bytes",
            "initial-cluster-size",
        ],
        QueueKind::Stream => &[
            "expires",
            "message-ttl",
            "dead-letter-exchange",
            "dead-letter-routing-key",
            "dead-letter-strategy",
            "max-length",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "max-priority",
            "overflow",
            "queue-mode",
            "queue-version",
            "single-active-consumer",
            "delivery-limit",
            "target-group-size",
            "consumer-timeout",
            "ha-mode",
            "ha-params",
            "ha-sync-mode",
            "ha-promote-on-shutdown",
            "ha-promote-on-failure",
            "queue-master-locator",
        ],
    }
}

/// Checks the value of a key: `None` for an unknown key, an error names the expected value.
fn check_key(operator: bool, key: &str, value: &Value) -> Option<Result<(), &'static str>> {
    let at_least = |min: i64| value.as_i64().is_some_and(|v| v >= min);
    let one_of = |all: &[&str]| value.as_str().is_some_and(|v| all.contains(&v));
    let limits = match key {
        "message-ttl" => Some((at_least(0), "message TTL")),
        "expires" => Some((at_least(1), "queue expiry")),
        "max-length" => Some((at_least(0), "maximum length")),
        "max-length-bytes" => Some((at_least(0), "maximum length in bytes")),
        "max-in-memory-length" | "max-in-memory-bytes" => Some((at_least(0), "maximum memory in bytes")),
        "delivery-limit" => Some((at_least(-1), "delivery limit")),
        "target-group-size" => Some((at_least(1), "qq target count value")),
        "overflow" => Some((one_of(&["drop-head", "reject-publish", "reject-publish-dlx"]), "overflow value")),
        _ => None,
    };
    let checked = limits.or_else(|| if operator { None } else { check_own_key(key, value) });
    checked.map(|(right, what)| if right { Ok(()) } else { Err(what) })
}

/// Checks the keys that operator policies do not have.
fn check_own_key(key: &str, value: &Value) -> Option<(bool, &'static str)> {
    let at_least = |min: i64| value.as_i64().is_some_and(|v| v >= min);
    let one_of = |all: &[&str]| value.as_str().is_some_and(|v| all.contains(&v));
    Some(match key {
        "alternate-exchange" => (value.is_string(), "alternate exchange name"),
        "dead-letter-exchange" => (value.is_string(), "dead letter exchange name"),
        "dead-letter-routing-key" => (value.is_string(), "dead letter routing key"),
        "dead-letter-strategy" => (one_of(&["at-most-once", "at-least-once"]), "dead letter strategy"),
        "queue-mode" => (one_of(&["default", "lazy"]), "queue-mode value"),
        "queue-version" => (value.as_i64().is_some_and(|v| v == 1 || v == 2), "queue-version value"),
        "max-age" => (value.as_str().is_some_and(|v| duration_ms(v).is_some()), "max age"),
        "stream-max-segment-size-bytes" => (at_least(0), "segment size"),
        "stream-filter-size-bytes" => (value.as_i64().is_some_and(|v| (16..=255).contains(&v)), "filter size"),
        "queue-leader-locator" => {
            (one_of(&["client-local", "balanced", "random", "least-leaders"]), "queue leader locator value")
        }
        "initial-cluster-size" => (at_least(0), "cluster size"),
        "consumer-timeout" => (at_least(0), "consumer timeout"),
        "delayed-retry-type" => (one_of(&["all", "failed", "returned", "disabled"]), "delayed retry type"),
        "delayed-retry-min" | "delayed-retry-max" => (at_least(0), "delayed retry interval"),
        "delayed-retry-multiplier" => {
            (value.as_i64().is_some_and(|v| (1..=RETRY_FACTOR_MAX).contains(&v)), "delayed retry multiplier")
        }
        "polylogue-retention-ms" => (at_least(0), "retention"),
        UPSTREAM => (value.is_string(), "federation upstream name"),
        UPSTREAM_SET => (value.is_string(), "federation upstream set name"),
        UPSTREAM_PATTERN => (value.is_string(), "federation upstream pattern name"),
        // Keys of mirrored queues are stored and have no effect.
        "ha-mode"
        | "ha-params"
        | "ha-sync-mode"
        | "ha-sync-batch-size"
        | "ha-promote-on-shutdown"
        | "ha-promote-on-failure"
        | "queue-master-locator" => (true, ""),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(operator: bool, definition: Value) -> PolicySpec {
        let Value::Object(definition) = definition else { panic!("not an object") };
        PolicySpec { operator, name: "p".into(), pattern: "^q".into(), apply_to: ApplyTo::All, priority: 0, definition }
    }

    fn policy(operator: bool, definition: Value) -> Policy {
        Policy::checked(VhostId(1), &spec(operator, definition)).unwrap()
    }

    #[test]
    fn definitions_are_checked_with_rabbitmqs_texts() {
        for (definition, text) in [
            (json!({}), "no policy provided"),
            (json!({"message-ttl": "x"}), "<<\"x\">> is not a valid message TTL"),
            (json!({"expires": 0}), "0 is not a valid queue expiry"),
            (json!({"overflow": "explode"}), "<<\"explode\">> is not a valid overflow value"),
            (json!({"foo": 1, "max-length": 2}), "[{<<\"foo\">>,1}] are not recognised policy settings"),
            (json!({"max-age": "1w"}), "<<\"1w\">> is not a valid max age"),
        ] {
            let error = Policy::checked(VhostId(1), &spec(false, definition)).unwrap_err();
            assert_eq!(error, format!("Validation failed\n\n{text}\n"));
        }
        let operator = Policy::checked(VhostId(1), &spec(true, json!({"dead-letter-exchange": "x"})));
        assert!(operator.unwrap_err().contains("not recognised"));
    }

    #[test]
    fn a_policy_with_an_unsupported_key_does_not_apply() {
        let both = policy(false, json!({"max-length": 1, "delivery-limit": 3}));
        assert!(both.applies(Some(QueueKind::Quorum), "q1"));
        assert!(!both.applies(Some(QueueKind::Classic), "q1"));
        assert!(!both.applies(Some(QueueKind::Stream), "q1"));
        assert!(!both.applies(Some(QueueKind::Quorum), "p1"));
    }

    #[test]
    fn the_highest_priority_applies_and_of_equal_ones_the_first() {
        let with = |name: &'static str, priority| Policy {
            name: name.into(),
            priority,
            ..policy(false, json!({"max-length": 1}))
        };
        let policies = [with("a", 1), with("b", 3), with("c", 3), with("d", -1)];
        assert_eq!(strongest(policies.iter()).map(|p| &*p.name), Some("b"));
        assert!(strongest([].iter()).is_none());
    }

    #[test]
    fn an_operator_policy_lowers_and_never_raises() {
        let own =
            policy(false, json!({"max-length": 10, "message-ttl": 5, "overflow": "drop-head", "delivery-limit": -1}));
        let operator = policy(
            true,
            json!({"max-length": 20, "message-ttl": 1, "overflow": "reject-publish", "expires": 9, "delivery-limit": 4}),
        );
        let expected = json!({
            "max-length": 10, "message-ttl": 1, "overflow": "reject-publish", "expires": 9, "delivery-limit": 4
        });
        assert_eq!(Value::Object(merged(Some(&own), Some(&operator))), expected);
        assert!(merged(None, None).is_empty());
    }
}
