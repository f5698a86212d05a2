//! Generates docs/limits.md, the table of all limits.
//!
//! A limit is an option, with its name and default from the table of options, or a constant read from the code. Tests compare the committed file
//! with this table, the options with the table of options, and the metrics with docs/metrics.md.

use polylogue_admin::http::SQUEEZED_MAX;
use polylogue_amqp_gateway::UNCREDITED_BYTES_MAX;
use polylogue_amqp_model as model;
use polylogue_auth as auth;
use polylogue_config::Resolved;
use polylogue_kafka::session::{LOGIN_FRAME_BYTES_MAX, LOGIN_MS_MAX};
use polylogue_net::{FREE_BYTES, SMALL_FRAME_BYTES_MAX};
use polylogue_types::{STEPS_PER_TURN, STEPS_PER_WORKER_TURN, limits};
use std::fmt::Write as _;

/// What a limit applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Request,
    Connection,
    Address,
    User,
    Vhost,
    All,
}

impl Scope {
    const ALL: [Scope; 6] = [Scope::Request, Scope::Connection, Scope::Address, Scope::User, Scope::Vhost, Scope::All];

    fn title(self) -> &'static str {
        match self {
            Scope::Request => "A request or a message",
            Scope::Connection => "A connection",
            Scope::Address => "An address",
            Scope::User => "A user",
            Scope::Vhost => "A virtual host",
            Scope::All => "The server",
        }
    }
}

/// The value of a limit.
enum Bound {
    /// The value of an option, `section.name`.
    Option(&'static str),
    /// A share of an option's value, in words.
    Part(&'static str, &'static str),
    /// A constant with its unit.
    Fixed(u64, &'static str),
    /// Set by operators; unlimited by default.
    Set(&'static str),
}

/// A limit.
struct Limit {
    scope: Scope,
    what: &'static str,
    bound: Bound,
    metric: &'static str,
    seen: &'static str,
}

const fn limit(scope: Scope, what: &'static str, bound: Bound, metric: &'static str, seen: &'static str) -> Limit {
    Limit { scope, what, bound, metric, seen }
}

/// Returns all limits, by scope.
fn all() -> Vec<Limit> {
    let mut all = requests();
    all.extend(connections());
    all.extend(amqp_connections());
    all.extend(addresses());
    all.extend(users_and_hosts());
    all.extend(together());
    all.extend(declared());
    all
}

fn requests() -> Vec<Limit> {
    use Bound::{Fixed, Option};
    let scope = Scope::Request;
    vec![
        limit(
            scope,
            "a Kafka request",
            Fixed(limits::REQUEST_BYTES_MAX as u64, "bytes"),
            "polylogue_connections_closed_total",
            "the connection is closed",
        ),
        limit(
            scope,
            "a Kafka request before authentication",
            Fixed(LOGIN_FRAME_BYTES_MAX as u64, "bytes"),
            "polylogue_connections_closed_total",
            "the connection is closed",
        ),
        limit(
            scope,
            "a decompressed batch",
            Fixed(limits::DECOMPRESSED_BYTES_MAX as u64, "bytes"),
            "polylogue_turn_steps_max",
            "MESSAGE_TOO_LARGE",
        ),
        limit(scope, "an AMQP message", Option("amqp.message_bytes_max"), "", "406 PRECONDITION_FAILED on its channel"),
        limit(
            scope,
            "time to receive the body of an AMQP message",
            Option("amqp.body_ms_max"),
            "polylogue_amqp_bodies_timed_out_total",
            "406 on its channel; 506 and a closed connection while memory is short",
        ),
        limit(
            scope,
            "an AMQP frame",
            Option("amqp.frame_bytes_max"),
            "polylogue_connections_closed_total",
            "501 FRAME_ERROR",
        ),
        limit(scope, "the body of an HTTP request", Option("server.http_body_bytes_max"), "", "413"),
        limit(
            scope,
            "time to receive the body of an HTTP request",
            Option("server.http_body_ms_max"),
            "polylogue_connections_refused_total",
            "408, and the connection is closed",
        ),
        limit(scope, "definitions", Fixed(model::DEFINITIONS_BYTES_MAX as u64, "bytes"), "", "400"),
        limit(
            scope,
            "a pattern of a policy or a permission",
            Fixed(model::PATTERN_BYTES_MAX as u64, "bytes"),
            "",
            "400",
        ),
        limit(
            scope,
            "one match of a backtracking pattern",
            Fixed(model::BACKTRACK_STEPS_MAX as u64, "steps"),
            "",
            "it matches nothing",
        ),
    ]
}

fn connections() -> Vec<Limit> {
    use Bound::{Fixed, Option, Part};
    let scope = Scope::Connection;
    vec![
        limit(
            scope,
            "memory of a request being received, without a permit",
            Fixed(FREE_BYTES as u64, "bytes"),
            "",
            "nothing",
        ),
        limit(
            scope,
            "Kafka requests in progress",
            Option("server.connection_requests_max"),
            "polylogue_requests_total",
            "its further input waits",
        ),
        limit(
            scope,
            "memory of waiting requests (long polls, joins)",
            Part("server.inflight_bytes_max", "a sixteenth, of each of its two parts"),
            "polylogue_requests_held_back_total",
            "its further requests wait",
        ),
        limit(
            scope,
            "responses that the client has not received",
            Part("server.output_bytes_max", "a sixteenth"),
            "polylogue_reads_held_back_total",
            "its reads wait",
        ),
        limit(
            scope,
            "time without receiving a response",
            Option("server.write_stall_ms_max"),
            "polylogue_connections_closed_total",
            "the connection is closed",
        ),
        limit(
            scope,
            "steps (0.1 µs) of a turn on an I/O thread",
            Fixed(STEPS_PER_TURN, "steps"),
            "polylogue_turn_steps_max",
            "nothing; longer work continues on a worker thread",
        ),
        limit(
            scope,
            "steps of a turn on a worker thread",
            Fixed(STEPS_PER_WORKER_TURN, "steps"),
            "polylogue_long_turn_max_seconds",
            "a later response; other users are served first",
        ),
        limit(
            scope,
            "concurrent turns on worker threads",
            Fixed(1, "turn"),
            "polylogue_long_turns_waiting",
            "a later response",
        ),
        limit(
            scope,
            "time to authenticate (Kafka)",
            Fixed(LOGIN_MS_MAX, "ms"),
            "polylogue_connections_closed_total",
            "the connection is closed",
        ),
    ]
}

/// Limits of AMQP connections.
fn amqp_connections() -> Vec<Limit> {
    use Bound::{Fixed, Option, Part};
    let scope = Scope::Connection;
    vec![
        limit(scope, "AMQP channels", Option("amqp.channel_max"), "", "530 NOT_ALLOWED"),
        limit(scope, "time to acknowledge an AMQP delivery", Option("amqp.ack_ms_max"), "", "406 on its channel"),
        limit(
            scope,
            "AMQP publishes without confirms and without credit",
            Option("amqp.publish_credit"),
            "polylogue_amqp_connections_in_flow",
            "its further input waits",
        ),
        limit(
            scope,
            "bytes of these publishes",
            Fixed(UNCREDITED_BYTES_MAX as u64, "bytes"),
            "polylogue_amqp_connections_in_flow",
            "its further input waits",
        ),
        limit(
            scope,
            "growth of an AMQP queue that has waiting consumers",
            Part("amqp.publish_credit", "the double"),
            "polylogue_credit_withheld_total",
            "credit of publishers without confirms is withheld",
        ),
        limit(
            scope,
            "time for which credit is withheld",
            Option("amqp.publish_credit_ms_max"),
            "polylogue_credit_granted_late_total",
            "credit is granted",
        ),
        limit(
            scope,
            "bytes in the socket's send buffer of an AMQP client",
            Option("amqp.unsent_bytes_max"),
            "polylogue_consumer_window_bytes",
            "further messages wait in their queues",
        ),
    ]
}

fn addresses() -> Vec<Limit> {
    use Bound::{Fixed, Option, Part, Set};
    let scope = Scope::Address;
    vec![
        limit(
            scope,
            "Kafka and AMQP connections",
            Set("`max.connections.per.ip`"),
            "polylogue_connections_refused_total",
            "closed at once",
        ),
        limit(
            scope,
            "HTTP connections",
            Option("server.http_connections_per_ip_max"),
            "polylogue_connections_refused_total",
            "503",
        ),
        limit(
            scope,
            "HTTP connections while few places are free",
            Part("server.http_connections_max", "an eighth"),
            "polylogue_connections_refused_total",
            "503",
        ),
        limit(
            scope,
            "HTTP request bodies being received",
            Option("server.http_bodies_per_ip_max"),
            "polylogue_connections_refused_total",
            "503",
        ),
        limit(
            scope,
            "pending logins with one name",
            Fixed(auth::WAITING_MAX as u64, "tries"),
            "polylogue_logins_put_off_total",
            "the login is refused",
        ),
        limit(
            scope,
            "delay after a failed login with one name",
            Fixed(auth::DELAY_MS_MAX, "ms"),
            "polylogue_login_failures_remembered",
            "a later response",
        ),
    ]
}

fn users_and_hosts() -> Vec<Limit> {
    use Bound::{Option, Part, Set};
    vec![
        limit(
            Scope::User,
            "memory of waiting requests (long polls, joins)",
            Part("server.inflight_bytes_max", "a quarter, of each of its two parts"),
            "polylogue_requests_held_back_total",
            "its further requests wait",
        ),
        limit(
            Scope::User,
            "groups and committed offsets",
            Option("server.group_bytes_per_user_max"),
            "polylogue_groups_refused_total",
            "INVALID_COMMIT_OFFSET_SIZE, GROUP_MAX_SIZE_REACHED",
        ),
        limit(
            Scope::User,
            "bytes produced and fetched, thread time (Kafka)",
            Set("quotas"),
            "polylogue_throttled_total",
            "throttle_time_ms",
        ),
        limit(Scope::User, "AMQP connections and channels", Set("user limits"), "", "530 NOT_ALLOWED"),
        limit(
            Scope::User,
            "long turns",
            Part("server.worker_threads", "an equal share of the worker threads' time"),
            "polylogue_long_turns_busy_seconds_total",
            "a later response",
        ),
        limit(
            Scope::Vhost,
            "connections and queues",
            Set("vhost limits"),
            "",
            "530 NOT_ALLOWED, 406 PRECONDITION_FAILED",
        ),
    ]
}

fn together() -> Vec<Limit> {
    use Bound::{Fixed, Option, Part};
    let scope = Scope::All;
    vec![
        limit(
            scope,
            "Kafka and AMQP connections",
            Option("server.connections_max"),
            "polylogue_connections_refused_total",
            "closed at once",
        ),
        limit(
            scope,
            "HTTP connections",
            Option("server.http_connections_max"),
            "polylogue_connections_refused_total",
            "503",
        ),
        limit(
            scope,
            "connections for health checks while no place is free",
            Fixed(SQUEEZED_MAX as u64, "connections"),
            "polylogue_connections_refused_total",
            "these are served; more are closed",
        ),
        limit(
            scope,
            "memory of requests",
            Option("server.inflight_bytes_max"),
            "polylogue_request_memory_bytes",
            "requests wait",
        ),
        limit(
            scope,
            "memory of small requests",
            Part("server.inflight_bytes_max", "a quarter, for requests of at most this size"),
            "polylogue_request_memory_bytes",
            "requests wait",
        ),
        limit(scope, "a small request", Fixed(SMALL_FRAME_BYTES_MAX as u64, "bytes"), "", "nothing"),
        limit(
            scope,
            "memory of responses",
            Option("server.output_bytes_max"),
            "polylogue_response_memory_bytes",
            "reads wait; slow readers are closed",
        ),
        limit(
            scope,
            "memory of the process",
            Option("server.memory_limit_bytes"),
            "polylogue_memory_alarm",
            "AMQP publishers are blocked (connection.blocked)",
        ),
        limit(
            scope,
            "free disk space",
            Option("log.disk_reserve_bytes"),
            "polylogue_disk_full",
            "KAFKA_STORAGE_ERROR; AMQP publishers are blocked",
        ),
        limit(scope, "partitions", Option("log.partitions_max"), "", "INVALID_PARTITIONS"),
        limit(
            scope,
            "groups and committed offsets",
            Option("server.group_bytes_max"),
            "polylogue_group_memory_bytes",
            "COORDINATOR_NOT_AVAILABLE",
        ),
    ]
}

/// Limits on definitions, and on state that is kept.
fn declared() -> Vec<Limit> {
    use Bound::Fixed;
    let (scope, declared) = (Scope::All, model::Limits::default());
    let refused = "406 PRECONDITION_FAILED, 400";
    vec![
        limit(
            scope,
            "names and addresses with failed logins",
            Fixed(auth::ATTEMPTS_MAX as u64, "pairs"),
            "polylogue_login_failures_remembered",
            "the oldest ones are dropped",
        ),
        limit(scope, "users", Fixed(declared.users_max as u64, "users"), "", refused),
        limit(scope, "permissions", Fixed(declared.permissions_max as u64, "permissions"), "", refused),
        limit(
            scope,
            "bindings of access control lists",
            Fixed(declared.acls_max as u64, "bindings"),
            "",
            "POLICY_VIOLATION",
        ),
        limit(scope, "policies", Fixed(declared.policies_max as u64, "policies"), "", refused),
        limit(scope, "parameters", Fixed(declared.parameters_max as u64, "parameters"), "", refused),
        limit(scope, "shovels", Fixed(declared.shovels_max as u64, "shovels"), "", refused),
    ]
}

/// Formats a number with spaces between thousands; whole KiB and MiB as such.
fn number(value: u64, unit: &str) -> String {
    match (unit, value) {
        ("bytes", value) if value >= 1 << 20 && value.is_multiple_of(1 << 20) => format!("{} MiB", value >> 20),
        ("bytes", value) if value >= 1 << 10 && value.is_multiple_of(1 << 10) => format!("{} KiB", value >> 10),
        ("ms", value) if value >= 1_000 && value.is_multiple_of(1_000) => format!("{} s", value / 1_000),
        _ => {
            let digits = value.to_string();
            let mut out = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) {
                    out.push(',');
                }
                out.push(digit);
            }
            format!("{out} {unit}")
        }
    }
}

/// Returns the table, as Markdown.
#[must_use]
pub(crate) fn markdown() -> String {
    let settings = Resolved::default().settings();
    let default_of = |name: &str| {
        let found = settings.iter().find(|s| format!("{}.{}", s.section.name(), s.name) == name);
        found.map_or_else(String::new, |s| if s.default.is_empty() { "none".to_owned() } else { s.default.clone() })
    };
    let mut out = String::from(
        "# Limits\n\n\
         Written by `polylogue config --limits`; a test holds this file against the code. What the bounds are for is in\n\
         [security.md](security.md), the options are in [config.md](config.md), the metrics in [metrics.md](metrics.md).\n",
    );
    for scope in Scope::ALL {
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            out,
            "\n## {}\n\n| what | limit | metric | effect on clients |\n| --- | --- | --- | --- |\n",
            scope.title()
        );
        for limit in all().iter().filter(|limit| limit.scope == scope) {
            let bound = match limit.bound {
                Bound::Option(name) => format!("`{name}` ({})", default_of(name)),
                Bound::Part(name, part) => format!("{part} of `{name}` ({})", default_of(name)),
                Bound::Fixed(value, unit) => number(value, unit),
                Bound::Set(by) => format!("none unless set: {by}"),
            };
            let metric = if limit.metric.is_empty() { String::new() } else { format!("`{}`", limit.metric) };
            let _ = writeln!(out, "| {} | {bound} | {metric} | {} |", limit.what, limit.seen);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_this_one() {
        let committed = include_str!("../../../docs/limits.md");
        assert!(
            committed == markdown(),
            "docs/limits.md is not up to date: write it again with `polylogue config --limits > docs/limits.md`"
        );
    }

    #[test]
    fn options_and_metrics_are_there() {
        let settings = Resolved::default().settings();
        let metrics = include_str!("../../../docs/metrics.md");
        for limit in all() {
            if let Bound::Option(name) | Bound::Part(name, _) = limit.bound {
                let is_there = settings.iter().any(|s| format!("{}.{}", s.section.name(), s.name) == name);
                assert!(is_there, "unknown option {name}");
            }
            assert!(limit.metric.is_empty() || metrics.contains(&format!("`{}`", limit.metric)), "{}", limit.metric);
        }
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(number(128 << 20, "bytes"), "128 MiB");
        assert_eq!(number(4 << 10, "bytes"), "4 KiB");
        assert_eq!(number(1_048_588, "bytes"), "1,048,588 bytes");
        assert_eq!((number(30_000, "ms"), number(20_000, "steps")), ("30 s".into(), "20,000 steps".into()));
    }
}
