//! Validation of new settings. Codes and texts are Kafka's (`DynamicBrokerConfig.validate`, `LogConfig.validate`,
//! `GroupConfig.validate`, `ClientMetricsConfigs.validate`).

use super::broker::parse_broker_settings;
use super::change::{Refused, Resource};
use super::known::{
    KnownConfig, KnownConfigs, UpdateMode, broker_config, broker_configs, client_metrics_configs, for_all_listeners,
    group_configs,
};
use super::layers::Layers;
use super::live::Fixed;
use super::names::unknown;
use super::parse_topic_config;
use super::topic::DURABILITY;
use super::value::{self, Kind, Value};
use crate::settings::KafkaSettings;
use polylogue_api::{Durability, Settings, TopicConfig};

/// Security settings that Kafka changes for one listener at a time only.
const PER_LISTENER: [&str; 18] = [
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// The bounds of a client's push interval. Milliseconds.
const PUSH_INTERVAL_MS: std::ops::RangeInclusive<i64> = 100..=3_600_000;

/// What a client of a metrics subscription can be chosen by.
const MATCH_PARAMETERS: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// The settings of a topic that is `now` so configured, when `new` is set for it. A durability that it does not set, and did not
/// set before, stays what it is: the topic has inherited it when it was made.
///
/// # Errors
/// What Kafka says of names and values; and a durability that cannot be had for messages that are there, or without those.
pub fn check_topic(settings: &KafkaSettings, now: &TopicConfig, new: &Settings) -> Result<TopicConfig, Refused> {
    let defaults = &settings.topic_defaults;
    let config = parse_topic_config(defaults, new).map_err(|error| Refused::config(error.to_string()))?;
    let names_it = |raw: &Settings| {
        raw.contains_key(DURABILITY) || raw.get("flush.messages").is_some_and(|messages| messages.trim() == "1")
    };
    let asked = if names_it(new) {
        config.durability
    } else if names_it(&now.raw) {
        // It would be inherited from now on.
        defaults.durability
    } else {
        now.durability
    };
    if (asked == Durability::Memory) != (now.durability == Durability::Memory) {
        let name = |durability| match durability {
            Durability::Sync => "sync",
            Durability::Async => "async",
            Durability::Memory => "memory",
        };
        return Err(Refused::config(format!(
            "{DURABILITY} of this topic is {} and cannot become {}: messages do not move between memory and disk. Create \
             another topic with it.",
            name(now.durability),
            name(asked)
        )));
    }
    Ok(TopicConfig { durability: asked, ..config })
}

/// The document of a broker, or of all brokers, in canonical form. `layers` is how everything is set now; of it the layer that
/// `new` is for does not count.
///
/// # Errors
/// What Kafka says. A name that it does not know is refused here, because nothing could ever read it.
pub fn check_broker(
    resource: Resource,
    new: &Settings,
    layers: Layers<'_>,
    fixed: &Fixed,
) -> Result<Settings, Refused> {
    if let Some(name) = new.keys().find(|name| broker_config(name).is_none()) {
        return Err(Refused::config(unknown(name, broker_configs().keys().copied()).to_string()));
    }
    let mode = |name: &str| broker_config(name).map(|known| known.update);
    none_of(new, "Cannot update these configs dynamically", |name| mode(name) == Some(UpdateMode::ReadOnly))?;
    let text = "These security configs can be dynamically updated only per-listener using the listener prefix";
    none_of(new, text, |name| PER_LISTENER.contains(&name))?;
    none_of(new, "Passwords are not kept here: these configs cannot be set", |name| {
        broker_config(name).is_some_and(|known| known.kind == Kind::Password)
    })?;
    let read = read_all(new, broker_config).map_err(Refused::request)?;
    if resource == Resource::Cluster {
        let text = "Cannot update these configs at default cluster level, broker id must be specified";
        none_of(new, text, |name| mode(name) == Some(UpdateMode::Node) || for_all_listeners(name).is_some())?;
    }
    let canonical = canonical(read);
    let layers = match resource {
        Resource::Cluster => Layers { cluster: &canonical, ..layers },
        _ => Layers { node: &canonical, ..layers },
    };
    parse_broker_settings(&fixed.topic_base, &layers.merged()).map_err(|error| Refused::request(error.to_string()))?;
    Ok(canonical)
}

fn none_of(new: &Settings, text: &str, wrong: impl Fn(&str) -> bool) -> Result<(), Refused> {
    let names: Vec<_> = new.keys().map(String::as_str).filter(|name| wrong(name)).collect();
    if names.is_empty() { Ok(()) } else { Err(Refused::request(format!("{text}: [{}]", names.join(", ")))) }
}

type Read = Vec<(String, Value)>;

fn read_all(new: &Settings, known: impl Fn(&str) -> Option<&'static KnownConfig>) -> Result<Read, String> {
    let mut read = Vec::with_capacity(new.len());
    for (name, text) in new {
        let Some(known) = known(name) else { continue };
        let value = value::read(name, known.kind, known.valid, text).map_err(|error| error.to_string())?;
        read.push((name.clone(), value));
    }
    Ok(read)
}

fn canonical(read: Read) -> Settings {
    read.into_iter().map(|(name, value)| (name, value.canonical())).collect()
}

/// Group configs that have bounds among the broker's settings: lower bound, upper bound, and whether the bounds concern a
/// group only that has set it.
const GROUP_BOUNDS: &[(&str, &str, &str, bool)] = &[
    (
        "consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        false,
    ),
    (
        "consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
        false,
    ),
    (
        "consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        true,
    ),
    (
        "share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
        false,
    ),
    ("share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms", false),
    (
        "share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
        false,
    ),
    (
        "share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
        false,
    ),
    (
        "share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
        false,
    ),
    (
        "share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
        true,
    ),
    (
        "streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
        false,
    ),
    (
        "streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
        false,
    ),
    ("streams.num.standby.replicas", "", "group.streams.max.standby.replicas", false),
    (
        "streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
        true,
    ),
];

/// The document of a group in canonical form. `layers` is how the broker is set.
///
/// # Errors
/// What Kafka says.
pub fn check_group(new: &Settings, layers: Layers<'_>) -> Result<Settings, Refused> {
    let configs = group_configs();
    if let Some(name) = new.keys().find(|name| !configs.contains_key(name.as_str())) {
        return Err(Refused::config(format!("Unknown group config name: {name}")));
    }
    let read = read_all(new, |name| configs.get(name)).map_err(Refused::config)?;
    check_offset_reset(new)?;
    let canonical = canonical(read);
    let merged = layers.merged();
    let broker = |name: &str| {
        let set = merged.get(name).map(String::as_str);
        set.or_else(|| broker_config(name)?.default).and_then(|text| text.trim().parse::<i64>().ok())
    };
    let number = |name: &str| {
        let set = canonical.get(name).and_then(|text| text.parse::<i64>().ok());
        set.or_else(|| configs.get(name)?.synonym.and_then(broker))
    };
    for (name, min, max, only_if_set) in GROUP_BOUNDS {
        if *only_if_set && !canonical.contains_key(*name) {
            continue;
        }
        let Some(value) = number(name) else { continue };
        if broker(min).is_some_and(|min| value < min) {
            return Err(Refused::config(format!("{name} must be greater than or equal to {min}")));
        }
        if broker(max).is_some_and(|max| value > max) {
            return Err(Refused::config(format!("{name} must be less than or equal to {max}")));
        }
    }
    for kind in ["consumer", "share", "streams"] {
        let (session, heartbeat) = (format!("{kind}.session.timeout.ms"), format!("{kind}.heartbeat.interval.ms"));
        if number(&session) <= number(&heartbeat) {
            return Err(Refused::config(format!("{session} must be greater than {heartbeat}")));
        }
    }
    Ok(canonical)
}

/// `latest`, `earliest`, or `by_duration:` with a duration of ISO 8601.
fn check_offset_reset(new: &Settings) -> Result<(), Refused> {
    const NAME: &str = "share.auto.offset.reset";
    let Some(value) = new.get(NAME) else { return Ok(()) };
    let known = match value.split_once(':') {
        Some(("by_duration", duration)) => is_duration(duration),
        _ => matches!(value.as_str(), "latest" | "earliest"),
    };
    if known {
        return Ok(());
    }
    Err(Refused::config(format!(
        "Invalid value {value} for configuration {NAME}: Invalid value `{value}` for configuration `{NAME}`. The value must be \
         either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
    )))
}

/// A duration as `PnDTnHnMn.nS`, not negative.
fn is_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(['P', 'p']) else { return false };
    let (days, time) = rest.split_once(['T', 't']).map_or((rest, None), |(days, time)| (days, Some(time)));
    let parts = |mut text: &str, units: &str| {
        let mut units = units.chars();
        let mut count = 0;
        while !text.is_empty() {
            let end = text.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, rest) = text.split_at(end);
            let unit = rest.chars().next()?.to_ascii_uppercase();
            units.find(|known| *known == unit)?;
            let whole = number.strip_suffix(|c: char| c.is_ascii_digit()).is_some();
            let digits = number.bytes().all(|b| b.is_ascii_digit() || (b == b'.' && unit == b'S' as char));
            if !whole || !digits || number.matches('.').count() > 1 {
                return None;
            }
            text = rest.get(1..).unwrap_or_default();
            count += 1;
        }
        Some(count)
    };
    match (parts(days, "D"), time.map(|time| parts(time, "HMS"))) {
        (Some(days), None) => days > 0,
        (Some(_), Some(Some(times))) => times > 0,
        _ => false,
    }
}

/// The document of a subscription in canonical form.
///
/// # Errors
/// What Kafka says.
pub fn check_client_metrics(new: &Settings) -> Result<Settings, Refused> {
    let configs: &KnownConfigs = client_metrics_configs();
    if let Some(name) = new.keys().find(|name| !configs.contains_key(name.as_str())) {
        return Err(Refused::request(format!("Unknown client metrics configuration: {name}")));
    }
    let read = read_all(new, |name| configs.get(name)).map_err(Refused::config)?;
    for (name, value) in &read {
        match value {
            Value::Number(ms) if !PUSH_INTERVAL_MS.contains(ms) => {
                return Err(Refused::request(format!(
                    "Invalid value {ms} for {name}, interval must be between 100 and 3600000 (1 hour)"
                )));
            }
            Value::List(patterns) if name == "match" => {
                let legal = |pattern: &&String| {
                    let parts: Vec<_> = pattern.split('=').collect();
                    matches!(parts.as_slice(), [name, value] if MATCH_PARAMETERS.contains(&name.trim()) && !value.is_empty())
                };
                if let Some(illegal) = patterns.iter().find(|pattern| !legal(pattern)) {
                    return Err(Refused::config(format!("Illegal client matching pattern: {illegal}")));
                }
            }
            _ => {}
        }
    }
    Ok(canonical(read))
}

#[cfg(test)]
mod tests;
