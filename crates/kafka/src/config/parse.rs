//! From names and values to a [`TopicConfig`].

use super::ConfigError;
use super::topic::{DURABILITY, TopicConfigDef, codec, topic_config_def};
use super::value::{self, Value};
use polylogue_api::{Cleanup, Compression, Durability, TimestampKind, TopicConfig};
use std::collections::BTreeMap;

/// The values of a topic, read and checked, by name.
struct Values {
    by_name: BTreeMap<&'static str, Value>,
}

impl Values {
    fn read(raw: &BTreeMap<String, String>) -> Result<Values, ConfigError> {
        let mut by_name = BTreeMap::new();
        for (name, text) in raw {
            let Some(TopicConfigDef { name, kind, valid, .. }) = topic_config_def(name) else {
                return Err(ConfigError::UnknownTopicConfig(name.clone()));
            };
            by_name.insert(*name, value::read(name, *kind, *valid, text)?);
        }
        Ok(Values { by_name })
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.by_name.get(name).and_then(Value::number)
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.by_name.get(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// A number that is never negative once it is valid.
    fn count(&self, name: &str) -> Option<u64> {
        self.number(name).map(|n| u64::try_from(n).unwrap_or(0))
    }

    /// A number of which every negative one means "no bound".
    fn bound(&self, name: &str) -> Option<Option<u64>> {
        self.number(name).map(|n| u64::try_from(n).ok())
    }
}

/// The settings of a topic for which `raw` is set and which inherits the rest from `base`.
///
/// `raw` of the result holds what was set, in canonical form. `base.raw` may hold what the broker sets for all topics:
/// only compression levels are looked up there, because they have no field of their own while another codec is chosen.
///
/// # Errors
/// An unknown name, a value that is not valid, or two that contradict each other; with Kafka's texts.
pub fn parse_topic_config(base: &TopicConfig, raw: &BTreeMap<String, String>) -> Result<TopicConfig, ConfigError> {
    let set = Values::read(raw)?;
    let inherited = Values::read(&base.raw)?;
    check_compaction_lag(&set, &inherited)?;
    let longest = |ms: u64| if ms == i64::MAX.unsigned_abs() { u64::MAX } else { ms };
    Ok(TopicConfig {
        durability: durability(&set)?.unwrap_or(base.durability),
        retention_ms: set.bound("retention.ms").unwrap_or(base.retention_ms),
        retention_bytes: set.bound("retention.bytes").unwrap_or(base.retention_bytes),
        max_message_bytes: set
            .count("max.message.bytes")
            .map_or(base.max_message_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        timestamp_kind: match set.text("message.timestamp.type") {
            Some("LogAppendTime") => TimestampKind::LogAppend,
            Some(_) => TimestampKind::Create,
            None => base.timestamp_kind,
        },
        timestamp_before_ms_max: set
            .count("message.timestamp.before.max.ms")
            .map_or(base.timestamp_before_ms_max, longest),
        timestamp_after_ms_max: set
            .count("message.timestamp.after.max.ms")
            .map_or(base.timestamp_after_ms_max, longest),
        compression: compression(base.compression, &set, &inherited),
        cleanup: match set.by_name.get("cleanup.policy") {
            Some(Value::List(policies)) => Cleanup {
                delete: policies.iter().any(|p| p == "delete"),
                compact: policies.iter().any(|p| p == "compact"),
            },
            _ => base.cleanup,
        },
        queue: None,
        raw: set.by_name.iter().map(|(name, value)| ((*name).to_owned(), value.canonical())).collect(),
    })
}

/// What the topic itself says of durability. `flush.messages=1` is Kafka's way of asking for `sync`.
fn durability(set: &Values) -> Result<Option<Durability>, ConfigError> {
    let each_message = set.number("flush.messages") == Some(1);
    let named = match set.text(DURABILITY) {
        Some("async") => Durability::Async,
        Some("memory") => Durability::Memory,
        Some(_) => Durability::Sync,
        None => return Ok(each_message.then_some(Durability::Sync)),
    };
    if each_message && named != Durability::Sync {
        return Err(ConfigError::Conflict {
            name: DURABILITY,
            value: set.text(DURABILITY).unwrap_or_default().to_owned(),
            relation: "and",
            other: "flush.messages",
            other_value: "1".to_owned(),
        });
    }
    Ok(Some(named))
}

/// The codec of the topic with its level: the topic's, else the broker's, else Kafka's default.
fn compression(base: Compression, set: &Values, inherited: &Values) -> Compression {
    let (base_codec, base_level) = codec(base);
    let chosen = set.text("compression.type").unwrap_or(base_codec);
    let level = |name: &'static str| {
        let default = topic_config_def(name).and_then(|def| def.default.parse().ok()).unwrap_or_default();
        let named = set.number(name).or_else(|| inherited.number(name));
        named
            .and_then(|level| i32::try_from(level).ok())
            .or(base_level.filter(|_| chosen == base_codec))
            .unwrap_or(default)
    };
    match chosen {
        "uncompressed" => Compression::None,
        "gzip" => Compression::Gzip(level("compression.gzip.level")),
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4(level("compression.lz4.level")),
        "zstd" => Compression::Zstd(level("compression.zstd.level")),
        _ => Compression::Producer,
    }
}

/// Kafka refuses a topic whose messages would have to be compacted before they may be.
fn check_compaction_lag(set: &Values, inherited: &Values) -> Result<(), ConfigError> {
    const MIN: &str = "min.compaction.lag.ms";
    const MAX: &str = "max.compaction.lag.ms";
    let value = |name| set.number(name).or_else(|| inherited.number(name));
    match (value(MIN), value(MAX)) {
        (Some(min), Some(max)) if min > max => Err(ConfigError::Conflict {
            name: MIN,
            value: min.to_string(),
            relation: ">",
            other: MAX,
            other_value: max.to_string(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
