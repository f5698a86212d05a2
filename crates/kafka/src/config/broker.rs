//! The broker settings that have a meaning here.

use super::names::{is_known, known_broker_names, tolerated, unknown};
use super::parsed::{BrokerSettings, ConsumerGroupSettings};
use super::topic::{Effect, TOPIC_CONFIGS};
use super::value::{self, Kind, Valid, Value};
use super::{ConfigError, parse_topic_config};
use polylogue_api::TopicConfig;
use polylogue_kafka_groups::Assignor;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One broker setting of Kafka's that has a meaning here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BrokerSetting {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The value that holds when nothing is said; empty for none.
    pub default: &'static str,
    /// Which values are taken.
    pub valid: Valid,
    /// What it does, in one line.
    pub doc: &'static str,
}

/// The setting of that name.
#[must_use]
pub fn broker_setting(name: &str) -> Option<&'static BrokerSetting> {
    BROKER_SETTINGS.iter().find(|setting| setting.name == name)
}

const fn setting(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    valid: Valid,
    doc: &'static str,
) -> BrokerSetting {
    BrokerSetting { name, kind, default, valid, doc }
}

const NEVER: &str = "9223372036854775807";
const RETENTION_NAMES: [&str; 3] = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];

/// All that have a meaning, by name.
pub const BROKER_SETTINGS: &[BrokerSetting] = &[
    setting(
        "allow.everyone.if.no.acl.found",
        Kind::Boolean,
        "false",
        Valid::Any,
        "Whether every user who has logged in may do everything to a resource without access control lists.",
    ),
    setting(
        "auto.create.topics.enable",
        Kind::Boolean,
        "true",
        Valid::Any,
        "Whether asking for a topic that does not exist creates it.",
    ),
    setting(
        "compression.gzip.level",
        Kind::Int,
        "-1",
        Valid::BetweenOr(1, 9, -1),
        "Default of the topic config compression.gzip.level.",
    ),
    setting(
        "compression.lz4.level",
        Kind::Int,
        "9",
        Valid::Between(1, 17),
        "Default of the topic config compression.lz4.level.",
    ),
    setting(
        "compression.type",
        Kind::String,
        "producer",
        Valid::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        "Default of the topic config compression.type.",
    ),
    setting(
        "compression.zstd.level",
        Kind::Int,
        "3",
        Valid::Between(-131_072, 22),
        "Default of the topic config compression.zstd.level.",
    ),
    setting(
        "connections.max.idle.ms",
        Kind::Long,
        "600000",
        Valid::Any,
        "A connection without traffic is closed after this time; negative for never.",
    ),
    setting(
        "connections.max.reauth.ms",
        Kind::Long,
        "0",
        Valid::Any,
        "How long a client that has logged in may go on before it has to log in again on the same connection (KIP-368); 0 for ever.",
    ),
    setting("delete.topic.enable", Kind::Boolean, "true", Valid::Any, "Whether clients may delete topics."),
    setting(
        "fetch.max.bytes",
        Kind::Int,
        "57671680",
        Valid::AtLeast(1_024),
        "The largest fetch response, unless one batch alone is larger.",
    ),
    setting(
        "group.consumer.assignment.interval.ms",
        Kind::Int,
        "1000",
        Valid::AtLeast(0),
        "How far apart assignments of a group of the consumer protocol are at least.",
    ),
    setting(
        "group.consumer.assignors",
        Kind::List,
        "uniform,range",
        Valid::Any,
        "Assignors that members of the consumer protocol may ask for: uniform, range. The first one is used where they do not ask.",
    ),
    setting(
        "group.consumer.heartbeat.interval.ms",
        Kind::Int,
        "5000",
        Valid::AtLeast(1),
        "How often members of the consumer protocol send heartbeats.",
    ),
    setting(
        "group.consumer.max.assignment.interval.ms",
        Kind::Int,
        "15000",
        Valid::AtLeast(0),
        "The longest consumer.assignment.interval.ms that can be set for a group.",
    ),
    setting(
        "group.consumer.max.heartbeat.interval.ms",
        Kind::Int,
        "15000",
        Valid::AtLeast(1),
        "The longest consumer.heartbeat.interval.ms that can be set for a group.",
    ),
    setting(
        "group.consumer.max.session.timeout.ms",
        Kind::Int,
        "60000",
        Valid::AtLeast(1),
        "The longest consumer.session.timeout.ms that can be set for a group.",
    ),
    setting(
        "group.consumer.max.size",
        Kind::Int,
        "2147483647",
        Valid::AtLeast(1),
        "How many members a group of the consumer protocol may have; never more than 10000.",
    ),
    setting(
        "group.consumer.min.assignment.interval.ms",
        Kind::Int,
        "0",
        Valid::AtLeast(0),
        "The shortest consumer.assignment.interval.ms that can be set for a group.",
    ),
    setting(
        "group.consumer.min.heartbeat.interval.ms",
        Kind::Int,
        "5000",
        Valid::AtLeast(1),
        "The shortest consumer.heartbeat.interval.ms that can be set for a group.",
    ),
    setting(
        "group.consumer.min.session.timeout.ms",
        Kind::Int,
        "45000",
        Valid::AtLeast(1),
        "The shortest consumer.session.timeout.ms that can be set for a group.",
    ),
    setting(
        "group.consumer.regex.refresh.interval.ms",
        Kind::Int,
        "600000",
        Valid::AtLeast(10_000),
        "How often regular expressions of groups are resolved anew where no topics have come.",
    ),
    setting(
        "group.consumer.session.timeout.ms",
        Kind::Int,
        "45000",
        Valid::AtLeast(1),
        "After how long a silent member of the consumer protocol is removed.",
    ),
    setting(
        "group.initial.rebalance.delay.ms",
        Kind::Int,
        "3000",
        Valid::Any,
        "How long an empty group waits for more members before it starts.",
    ),
    setting(
        "group.max.session.timeout.ms",
        Kind::Int,
        "1800000",
        Valid::Any,
        "The longest session timeout that a group member may ask for.",
    ),
    setting(
        "group.max.size",
        Kind::Int,
        "2147483647",
        Valid::AtLeast(1),
        "How many members a group may have; never more than 10000.",
    ),
    setting(
        "group.min.session.timeout.ms",
        Kind::Int,
        "6000",
        Valid::Any,
        "The shortest session timeout that a group member may ask for.",
    ),
    setting(
        "log.cleanup.policy",
        Kind::List,
        "delete",
        Valid::OneOf(&["compact", "delete"]),
        "Default of the topic config cleanup.policy.",
    ),
    setting(
        "log.flush.interval.messages",
        Kind::Long,
        NEVER,
        Valid::AtLeast(1),
        "1 makes `sync` the default durability of topics. Other values have no effect.",
    ),
    setting(
        "log.message.timestamp.after.max.ms",
        Kind::Long,
        "3600000",
        Valid::AtLeast(0),
        "Default of the topic config message.timestamp.after.max.ms.",
    ),
    setting(
        "log.message.timestamp.before.max.ms",
        Kind::Long,
        NEVER,
        Valid::AtLeast(0),
        "Default of the topic config message.timestamp.before.max.ms.",
    ),
    setting(
        "log.message.timestamp.type",
        Kind::String,
        "CreateTime",
        Valid::OneOf(&["CreateTime", "LogAppendTime"]),
        "Default of the topic config message.timestamp.type.",
    ),
    setting(
        "log.retention.bytes",
        Kind::Long,
        "-1",
        Valid::Any,
        "Default of the topic config retention.bytes; -1 for no bound.",
    ),
    setting(
        "log.retention.check.interval.ms",
        Kind::Long,
        "300000",
        Valid::AtLeast(1),
        "How often the broker looks for messages that may go, at the latest: it looks ten times in the life of messages that \
         live shorter, and each second at topics with retention.bytes.",
    ),
    setting(
        "log.retention.hours",
        Kind::Int,
        "168",
        Valid::Any,
        "Default of the topic config retention.ms, in hours; -1 for ever.",
    ),
    setting(
        "log.retention.minutes",
        Kind::Int,
        "",
        Valid::Any,
        "Default of the topic config retention.ms, in minutes. Goes before log.retention.hours.",
    ),
    setting(
        "log.retention.ms",
        Kind::Long,
        "",
        Valid::Any,
        "Default of the topic config retention.ms. Goes before log.retention.minutes.",
    ),
    setting("max.connections", Kind::Int, "2147483647", Valid::AtLeast(0), "Connections of Kafka clients at a time."),
    setting(
        "max.connections.per.ip",
        Kind::Int,
        "2147483647",
        Valid::AtLeast(0),
        "Connections of Kafka clients at a time from one address.",
    ),
    setting(
        "max.connections.per.ip.overrides",
        Kind::String,
        "",
        Valid::Any,
        "max.connections.per.ip for certain addresses: ADDRESS:COUNT,ADDRESS:COUNT.",
    ),
    setting(
        "max.incremental.fetch.session.cache.slots",
        Kind::Int,
        "1000",
        Valid::AtLeast(0),
        "How many fetch sessions are kept; a consumer without one repeats its partitions in every request.",
    ),
    setting(
        "message.max.bytes",
        Kind::Int,
        "1048588",
        Valid::AtLeast(0),
        "Default of the topic config max.message.bytes.",
    ),
    setting(
        "node.id",
        Kind::Int,
        "",
        Valid::AtLeast(0),
        "Which broker this is, for a new data directory: 1 where nothing is said. An existing one keeps the id that it was made with, and is refused for another.",
    ),
    setting(
        "num.partitions",
        Kind::Int,
        "1",
        Valid::AtLeast(1),
        "Partitions of a topic that is created without a number.",
    ),
    setting(
        "offset.metadata.max.bytes",
        Kind::Int,
        "4096",
        Valid::Any,
        "The longest text that a client may keep with a committed offset.",
    ),
    setting(
        "offsets.retention.check.interval.ms",
        Kind::Long,
        "600000",
        Valid::AtLeast(1),
        "How often expired offsets are looked for.",
    ),
    setting(
        "offsets.retention.minutes",
        Kind::Int,
        "10080",
        Valid::AtLeast(1),
        "How long the offsets of a group without members are kept.",
    ),
    setting(
        "offsets.topic.num.partitions",
        Kind::Int,
        "50",
        Valid::AtLeast(1),
        "Partitions of the topic __consumer_offsets, which holds nothing here.",
    ),
    setting(
        "producer.id.expiration.ms",
        Kind::Int,
        "86400000",
        Valid::AtLeast(1),
        "How long the sequence numbers of an idle producer are remembered.",
    ),
    setting("socket.request.max.bytes", Kind::Int, "104857600", Valid::AtLeast(1), "The largest request."),
];

/// polylogue's own broker settings, which Kafka does not know. They change while the broker runs; its start reads them from
/// its own options.
pub const OWN_SETTINGS: &[BrokerSetting] = &[
    setting(
        "polylogue.merge.bytes.per.second",
        Kind::Long,
        "268435456",
        Valid::AtLeast(1_048_576),
        "The pace of background writes that make sorted segments of the journal.",
    ),
    setting(
        "polylogue.tail.cache.bytes",
        Kind::Long,
        "67108864",
        Valid::AtLeast(1_048_576),
        "Recent messages kept in memory for readers at the end of the log, for each journal (log.tail_cache_bytes).",
    ),
];

/// What [`parse_broker_settings`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedSettings {
    /// What was set, over the defaults.
    pub settings: BrokerSettings,
    /// Names that Kafka 4.3 knows, or that are tolerated, and that mean nothing here, in alphabetical order.
    pub without_meaning: Vec<String>,
}

/// Reads Kafka's broker settings. `topic_base` is what topics are when Kafka's names say nothing.
///
/// # Errors
/// A name that Kafka 4.3 does not know and that is not [tolerated](tolerated), or a value that is not valid.
pub fn parse_broker_settings(
    topic_base: &TopicConfig,
    raw: &BTreeMap<String, String>,
) -> Result<ParsedSettings, ConfigError> {
    let mut values = BTreeMap::new();
    let mut without_meaning = Vec::new();
    for (name, text) in raw {
        if let Some(setting) = broker_setting(name) {
            values.insert(setting.name, value::read(setting.name, setting.kind, setting.valid, text)?);
        } else if is_known(name) || tolerated(name).is_some() || OWN_SETTINGS.iter().any(|own| own.name == name) {
            without_meaning.push(name.clone());
        } else {
            return Err(unknown(name, known_broker_names()));
        }
    }
    check_retention(&values)?;
    check_assignors(&values)?;
    let mut settings = BrokerSettings::default();
    apply(&values, &mut settings);
    settings.sessions.topic_defaults = parse_topic_config(topic_base, &topic_defaults(&values))?;
    if let Some(Value::String(text)) = values.get("max.connections.per.ip.overrides") {
        settings.listener.connections_per_ip_overrides = overrides(text)?;
    }
    Ok(ParsedSettings { settings, without_meaning })
}

/// A retention of no time at all is a mistake; Kafka refuses it as well.
fn check_retention(values: &BTreeMap<&str, Value>) -> Result<(), ConfigError> {
    for name in RETENTION_NAMES {
        if values.get(name).and_then(Value::number) == Some(0) {
            return Err(ConfigError::Invalid {
                name: name.to_owned(),
                value: "0".to_owned(),
                reason: "must be unlimited (-1) or at least 1".to_owned(),
            });
        }
    }
    Ok(())
}

/// The broker's settings that are defaults of topic configs, under the names of these.
fn topic_defaults(values: &BTreeMap<&str, Value>) -> BTreeMap<String, String> {
    let mut defaults = BTreeMap::new();
    for def in TOPIC_CONFIGS.iter().filter(|def| def.effect == Effect::Full) {
        let set = def.synonyms.iter().find_map(|synonym| values.get(synonym.name).map(|value| (synonym, value)));
        let Some((synonym, value)) = set else { continue };
        let text = match value.number() {
            // Of minutes and hours, every negative number means "for ever".
            Some(number) if number < 0 && RETENTION_NAMES.contains(&synonym.name) => "-1".to_owned(),
            Some(number) => number.saturating_mul(synonym.factor).to_string(),
            None => value.canonical(),
        };
        defaults.insert(def.name.to_owned(), text);
    }
    defaults
}

/// Puts what was set into its field. Negative numbers count as 0 where the field has none.
fn apply(values: &BTreeMap<&str, Value>, settings: &mut BrokerSettings) {
    let BrokerSettings { sessions, groups, listener, log, node_id } = settings;
    let number = |name: &str| values.get(name).and_then(Value::number);
    let millis = |name: &str, field: &mut u64| {
        if let Some(n) = number(name) {
            *field = u64::try_from(n).unwrap_or(0);
        }
    };
    let count = |name: &str, field: &mut usize| {
        if let Some(n) = number(name) {
            *field = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
        }
    };
    let small = |name: &str, field: &mut u32| {
        if let Some(n) = number(name) {
            *field = u32::try_from(n.max(0)).unwrap_or(u32::MAX);
        }
    };
    let flag = |name: &str, field: &mut bool| {
        if let Some(b) = values.get(name).and_then(Value::boolean) {
            *field = b;
        }
    };
    flag("allow.everyone.if.no.acl.found", &mut sessions.allow_without_acls);
    flag("auto.create.topics.enable", &mut sessions.auto_create_topics);
    flag("delete.topic.enable", &mut sessions.delete_topics);
    small("num.partitions", &mut sessions.partitions_default);
    small("offsets.topic.num.partitions", &mut sessions.offsets_partitions);
    small("fetch.max.bytes", &mut sessions.fetch_bytes_max);
    count("socket.request.max.bytes", &mut sessions.request_bytes_max);
    count("max.incremental.fetch.session.cache.slots", &mut sessions.fetch_sessions_max);
    if let Some(ms) = number("connections.max.idle.ms") {
        sessions.idle_ms_max = u64::try_from(ms).unwrap_or(u64::MAX);
    }
    if let Some(ms) = number("connections.max.reauth.ms") {
        sessions.reauth_ms_max = u64::try_from(ms).unwrap_or(0);
    }
    *node_id = number("node.id").and_then(|id| u64::try_from(id).ok());
    count("max.connections", &mut listener.connections_max);
    count("max.connections.per.ip", &mut listener.connections_per_ip_max);
    millis("log.retention.check.interval.ms", &mut log.retention_check_ms);
    millis("producer.id.expiration.ms", &mut log.producer_expiration_ms);
    apply_consumer_groups(values, &mut groups.consumer);
    millis("group.initial.rebalance.delay.ms", &mut groups.initial_rebalance_delay_ms);
    millis("group.min.session.timeout.ms", &mut groups.session_timeout_ms_min);
    millis("group.max.session.timeout.ms", &mut groups.session_timeout_ms_max);
    count("group.max.size", &mut groups.members_max);
    count("offset.metadata.max.bytes", &mut groups.offset_metadata_bytes_max);
    millis("offsets.retention.check.interval.ms", &mut groups.offsets_retention_check_ms);
    if let Some(minutes) = number("offsets.retention.minutes") {
        groups.offsets_retention_ms = u64::try_from(minutes).unwrap_or(0).saturating_mul(60_000);
    }
}

/// The settings of groups of the consumer protocol.
fn apply_consumer_groups(values: &BTreeMap<&str, Value>, groups: &mut ConsumerGroupSettings) {
    let number = |name: &str| values.get(name).and_then(Value::number);
    let fields = [
        ("group.consumer.assignment.interval.ms", &mut groups.assignment_interval_ms),
        ("group.consumer.heartbeat.interval.ms", &mut groups.heartbeat_interval_ms),
        ("group.consumer.max.assignment.interval.ms", &mut groups.assignment_interval_ms_max),
        ("group.consumer.max.heartbeat.interval.ms", &mut groups.heartbeat_interval_ms_max),
        ("group.consumer.max.session.timeout.ms", &mut groups.session_timeout_ms_max),
        ("group.consumer.min.assignment.interval.ms", &mut groups.assignment_interval_ms_min),
        ("group.consumer.min.heartbeat.interval.ms", &mut groups.heartbeat_interval_ms_min),
        ("group.consumer.min.session.timeout.ms", &mut groups.session_timeout_ms_min),
        ("group.consumer.regex.refresh.interval.ms", &mut groups.regex_refresh_ms),
        ("group.consumer.session.timeout.ms", &mut groups.session_timeout_ms),
    ];
    for (name, field) in fields {
        if let Some(n) = number(name) {
            *field = u64::try_from(n).unwrap_or(0);
        }
    }
    if let Some(n) = number("group.consumer.max.size") {
        groups.members_max = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    }
    if let Some(Value::List(names)) = values.get(ASSIGNORS) {
        groups.assignors.clone_from(names);
    }
}

const ASSIGNORS: &str = "group.consumer.assignors";

/// Only our own assignors are known. Kafka takes names of Java classes, too.
fn check_assignors(values: &BTreeMap<&str, Value>) -> Result<(), ConfigError> {
    let Some(Value::List(names)) = values.get(ASSIGNORS) else { return Ok(()) };
    let unknown = names.iter().find(|name| Assignor::named(name).is_none());
    if let Some(value) = unknown.cloned().or_else(|| names.is_empty().then(String::new)) {
        let reason = "Expected uniform, range, or both".to_owned();
        return Err(ConfigError::Invalid { name: ASSIGNORS.to_owned(), value, reason });
    }
    Ok(())
}

/// `ADDRESS:COUNT,ADDRESS:COUNT`. Names of hosts are not looked up.
fn overrides(text: &str) -> Result<BTreeMap<IpAddr, usize>, ConfigError> {
    let mut bounds = BTreeMap::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let parsed = item.rsplit_once(':').and_then(|(address, count)| {
            Some((address.trim().trim_matches(['[', ']']).parse().ok()?, count.trim().parse().ok()?))
        });
        let Some((address, count)) = parsed else {
            return Err(ConfigError::Invalid {
                name: "max.connections.per.ip.overrides".to_owned(),
                value: item.to_owned(),
                reason: "Expected ADDRESS:COUNT, with an IP address".to_owned(),
            });
        };
        bounds.insert(address, count);
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests;
