//! The arguments that queues may be declared with, and their rules.
//!
//! An argument that only other queue types support is refused; an unknown argument is ignored. The texts are those of RabbitMQ
//! (`rabbit_amqqueue:check_declare_arguments`), Erlang terms included. Arguments that RabbitMQ 4 has dropped are still accepted: `x-queue-mode`,
//! `x-queue-version` 1, `x-queue-master-locator`.

use crate::error::{Named, Refused};
use crate::queue_kind::QueueKind;
use crate::table::type_name;
use polylogue_router::{Argument, Value, lookup};

/// The highest `x-max-priority`.
pub const PRIORITY_MAX: i64 = 255;
/// How long a settled message stays readable as a topic. Milliseconds. An extension of polylogue, for queues of any type.
pub const RETENTION_ARGUMENT: &str = "x-polylogue-retention-ms";
/// The topic that a queue's messages are forwarded to, or whose records are published to an exchange. An extension of polylogue.
pub const TOPIC_ARGUMENT: &str = "x-polylogue-topic";

const SEGMENT_BYTES: &str = "x-stream-max-segment-size-bytes";
/// Its largest value. Bytes.
const SEGMENT_BYTES_MAX: i64 = 3_000_000_000;
const FILTER_BYTES: &str = "x-stream-filter-size-bytes";
/// Its allowed values. Bytes.
const FILTER_BYTES_ALLOWED: std::ops::RangeInclusive<i64> = 16..=255;

/// The largest factor between one retry delay and the next.
pub(crate) const RETRY_FACTOR_MAX: i64 = 15;

const CLASSIC: u8 = 1;
const QUORUM: u8 = 2;
const STREAM: u8 = 4;
const QUEUES: u8 = CLASSIC | QUORUM;
const ALL: u8 = CLASSIC | QUORUM | STREAM;

fn bit(kind: QueueKind) -> u8 {
    match kind {
        QueueKind::Classic => CLASSIC,
        QueueKind::Quorum => QUORUM,
        QueueKind::Stream => STREAM,
    }
}

/// The rule for the value of an argument.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Integer,
    NotNegative,
    /// At least 1.
    Positive,
    Priority,
    /// From 1 to [`RETRY_FACTOR_MAX`].
    Factor,
    Bool,
    Text,
    /// A text that requires a dead-letter exchange.
    RoutingKey,
    /// One of these texts, or else this Erlang term as the reason.
    OneOf(&'static [&'static str], &'static str),
    Mode,
    Version,
    MaxAge,
    /// Any value.
    Any,
}

const OVERFLOW: Rule = Rule::OneOf(&["drop-head", "reject-publish", "reject-publish-dlx"], "invalid_overflow");
const STRATEGY: Rule = Rule::OneOf(&["at-most-once", "at-least-once"], "invalid_dlx_strategy");
const LOCATOR: Rule =
    Rule::OneOf(&["client-local", "balanced", "random", "least-leaders"], "invalid_queue_locator_arg");
const RETRY: Rule = Rule::OneOf(&["all", "failed", "returned", "disabled"], "invalid_delayed_retry_type");

/// Name, queue types that support it, rule; in the order of RabbitMQ's checks.
const RULES: &[(&str, u8, Rule)] = &[
    ("x-expires", QUEUES, Rule::Positive),
    ("x-message-ttl", QUEUES, Rule::NotNegative),
    ("x-dead-letter-exchange", QUEUES, Rule::Text),
    ("x-dead-letter-routing-key", QUEUES, Rule::RoutingKey),
    ("x-dead-letter-strategy", QUORUM, STRATEGY),
    ("x-max-length", QUEUES, Rule::NotNegative),
    ("x-max-length-bytes", ALL, Rule::NotNegative),
    ("x-max-in-memory-length", QUORUM, Rule::NotNegative),
    ("x-max-in-memory-bytes", QUORUM, Rule::NotNegative),
    ("x-max-priority", CLASSIC, Rule::Priority),
    ("x-overflow", QUEUES, OVERFLOW),
    ("x-queue-mode", CLASSIC, Rule::Mode),
    ("x-queue-version", CLASSIC, Rule::Version),
    ("x-single-active-consumer", QUEUES, Rule::Bool),
    ("x-queue-type", ALL, Rule::Any),
    ("x-quorum-initial-group-size", QUORUM, Rule::Positive),
    ("x-max-age", STREAM, Rule::MaxAge),
    (SEGMENT_BYTES, STREAM, Rule::NotNegative),
    (FILTER_BYTES, STREAM, Rule::NotNegative),
    ("x-initial-cluster-size", STREAM, Rule::Positive),
    ("x-queue-leader-locator", ALL, LOCATOR),
    ("x-queue-master-locator", CLASSIC, Rule::Any),
    ("x-delivery-limit", QUORUM, Rule::Integer),
    ("x-consumer-timeout", QUORUM, Rule::NotNegative),
    ("x-consumer-disconnected-timeout", QUORUM, Rule::NotNegative),
    ("x-delayed-retry-type", QUORUM, RETRY),
    ("x-delayed-retry-min", QUORUM, Rule::NotNegative),
    ("x-delayed-retry-max", QUORUM, Rule::NotNegative),
    // From LavinMQ; RabbitMQ's delay grows by the first one.
    ("x-delayed-retry-multiplier", QUORUM, Rule::Factor),
    (RETENTION_ARGUMENT, ALL, Rule::NotNegative),
    (TOPIC_ARGUMENT, QUEUES, Rule::Text),
];

/// The arguments that a queue type supports.
pub(crate) fn known(kind: QueueKind) -> impl Iterator<Item = &'static str> {
    RULES.iter().filter(move |(_, kinds, _)| kinds & bit(kind) != 0).map(|(name, _, _)| *name)
}

/// Whether two values are equivalent for a declaration: the width of an integer does not matter, and an integer does not equal a float.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    a.view().same(&b.view())
}

fn invalid(name: &str, named: &Named<'_>, why: &str) -> Refused {
    Refused::precondition(format!("invalid arg '{name}' for {named}: {why}"))
}

/// The queue type in the arguments, if any.
pub(crate) fn kind_named(arguments: &[Argument], named: &Named<'_>) -> Result<Option<QueueKind>, Refused> {
    let Some(argument) = lookup(arguments, b"x-queue-type") else { return Ok(None) };
    let name = text_of(argument).map_err(|why| invalid("x-queue-type", named, &why))?;
    let kind = [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream].into_iter().find(|kind| kind.name() == name);
    match kind {
        Some(kind) => Ok(Some(kind)),
        None => Err(invalid("x-queue-type", named, &format!("\"unsupported queue type '{name}'\""))),
    }
}

/// Checks that a queue of this type may be declared with these arguments.
pub(crate) fn check(kind: QueueKind, arguments: &[Argument], named: &Named<'_>) -> Result<(), Refused> {
    for (name, kinds, rule) in RULES {
        if kinds & bit(kind) == 0 {
            continue;
        }
        if let Some(argument) = lookup(arguments, name.as_bytes()) {
            satisfies(*rule, argument, arguments).map_err(|why| invalid(name, named, &why))?;
        }
    }
    for argument in arguments {
        let rule = RULES.iter().find(|(name, _, _)| name.as_bytes() == &*argument.name);
        if let Some((name, _, _)) = rule.filter(|(_, kinds, _)| kinds & bit(kind) == 0) {
            let module = kind.module();
            return Err(Refused::precondition(format!("invalid arg '{name}' for {named} of queue type {module}")));
        }
    }
    if kind == QueueKind::Stream { check_sizes(arguments) } else { Ok(()) }
}

/// Checks the sizes of a stream with RabbitMQ's limits and texts (`rabbit_stream_queue:declare`).
fn check_sizes(arguments: &[Argument]) -> Result<(), Refused> {
    let size = |name: &str| lookup(arguments, name.as_bytes()).and_then(|argument| integer_of(argument).ok());
    if size(SEGMENT_BYTES).is_some_and(|bytes| bytes > SEGMENT_BYTES_MAX) {
        return Err(Refused::precondition(format!("Exceeded max value for {SEGMENT_BYTES}")));
    }
    if size(FILTER_BYTES).is_some_and(|bytes| !FILTER_BYTES_ALLOWED.contains(&bytes)) {
        return Err(Refused::precondition(format!("Invalid value for {FILTER_BYTES}")));
    }
    Ok(())
}

/// Returns an integer argument, or the reason of a refusal as an Erlang term.
pub(crate) fn integer_of(argument: &Argument) -> Result<i64, String> {
    match argument.value {
        Value::Int(value) => Ok(value),
        _ => Err(format!("\"expected integer, got {}\"", type_name(argument.tag))),
    }
}

pub(crate) fn bool_of(argument: &Argument) -> Result<bool, String> {
    match argument.value {
        Value::Bool(value) => Ok(value),
        _ => Err(unacceptable(argument)),
    }
}

/// Returns a text argument, or the reason of a refusal as an Erlang term. Invalid UTF-8 is refused.
pub(crate) fn text_of(argument: &Argument) -> Result<&str, String> {
    match &argument.value {
        Value::Bytes(value) if argument.tag == b'S' => std::str::from_utf8(value).map_err(|_| "not_utf8".to_owned()),
        _ => Err(unacceptable(argument)),
    }
}

/// Returns the topic of an exchange with these arguments, if any.
#[must_use]
pub fn exchange_topic(arguments: &[Argument]) -> Option<&str> {
    let topic = lookup(arguments, TOPIC_ARGUMENT.as_bytes())?;
    text_of(topic).ok().filter(|topic| !topic.is_empty())
}

fn unacceptable(argument: &Argument) -> String {
    format!("{{unacceptable_type,{}}}", type_name(argument.tag))
}

fn not_negative(argument: &Argument) -> Result<i64, String> {
    match integer_of(argument)? {
        value if value < 0 => Err(format!("{{value_negative,{value}}}")),
        value => Ok(value),
    }
}

fn satisfies(rule: Rule, argument: &Argument, all: &[Argument]) -> Result<(), String> {
    match rule {
        Rule::Any => Ok(()),
        Rule::Integer => integer_of(argument).map(|_| ()),
        Rule::NotNegative => not_negative(argument).map(|_| ()),
        Rule::Positive => match not_negative(argument)? {
            0 => Err("{value_zero,0}".to_owned()),
            _ => Ok(()),
        },
        Rule::Priority => match not_negative(argument)? {
            value if value > PRIORITY_MAX => Err(format!("{{max_value_exceeded,{value}}}")),
            _ => Ok(()),
        },
        Rule::Factor => match not_negative(argument)? {
            0 => Err("{value_zero,0}".to_owned()),
            value if value > RETRY_FACTOR_MAX => Err(format!("{{max_value_exceeded,{value}}}")),
            _ => Ok(()),
        },
        Rule::Bool => bool_of(argument).map(|_| ()),
        Rule::Text => text_of(argument).map(|_| ()),
        Rule::RoutingKey => {
            text_of(argument)?;
            match lookup(all, b"x-dead-letter-exchange") {
                Some(_) => Ok(()),
                None => Err("routing_key_but_no_dlx_defined".to_owned()),
            }
        }
        Rule::OneOf(all, complaint) => {
            let text = text_of(argument)?;
            if all.contains(&text) { Ok(()) } else { Err(complaint.to_owned()) }
        }
        Rule::Mode => match text_of(argument)? {
            "default" | "lazy" => Ok(()),
            other => Err(format!("\"unsupported queue mode '{other}'\"")),
        },
        Rule::Version => match not_negative(argument)? {
            1 | 2 => Ok(()),
            other => Err(format!("\"unsupported queue version '{other}'\"")),
        },
        Rule::MaxAge => match duration_ms(text_of(argument)?) {
            Some(_) => Ok(()),
            None => Err("invalid_max_age".to_owned()),
        },
    }
}

/// Parses a duration of `x-max-age`: a number above 0 and one of the units Y, M, D, h, m, s. Milliseconds.
#[must_use]
pub fn duration_ms(text: &str) -> Option<u64> {
    const DAY_MS: u64 = 24 * 3_600_000;
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(at)?;
    let unit_ms = match unit {
        "Y" => 365 * DAY_MS,
        "M" => 30 * DAY_MS,
        "D" => DAY_MS,
        "h" => 3_600_000,
        "m" => 60_000,
        "s" => 1_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    (number > 0).then(|| number.saturating_mul(unit_ms))
}
