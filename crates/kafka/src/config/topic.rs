//! The topic configs: every one that Kafka 4.3 knows, and polylogue's own.

use super::value::{Kind, Valid};
use polylogue_api::{Compression, Durability, TimestampKind, TopicConfig};

/// polylogue's own topic config: when an acknowledgement leaves. `sync`, `async` or `memory`.
pub const DURABILITY: &str = "polylogue.durability";

/// A broker config that sets the default of a topic config.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synonym {
    /// The broker config.
    pub name: &'static str,
    /// What one of its units is in the topic config's unit: 3,600,000 for hours against milliseconds.
    pub factor: i64,
}

/// Whether a config does something here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It does what it says.
    Full,
    /// It is kept and shown, and changes nothing.
    None,
}

/// One topic config.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TopicConfigDef {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The value that holds when neither topic nor broker says anything, in canonical form.
    pub default: &'static str,
    /// Which values are taken.
    pub valid: Valid,
    /// Broker configs that set its default; the first that is set counts.
    pub synonyms: &'static [Synonym],
    /// Whether it does something here.
    pub effect: Effect,
    /// What it does, or why it does nothing, in one line.
    pub doc: &'static str,
}

/// The topic config of that name.
#[must_use]
pub fn topic_config_def(name: &str) -> Option<&'static TopicConfigDef> {
    TOPIC_CONFIGS.iter().chain(INTERNAL_CONFIGS).find(|def| def.name == name)
}

/// The topic configs that a description shows, by name: those that Kafka hides only where they are set.
pub(super) fn told_configs(config: &TopicConfig) -> impl Iterator<Item = &'static TopicConfigDef> {
    let hidden = INTERNAL_CONFIGS.iter().filter(|def| config.raw.contains_key(def.name));
    let mut reported: Vec<_> = TOPIC_CONFIGS.iter().chain(hidden).collect();
    reported.sort_by_key(|def| def.name);
    reported.into_iter()
}

/// Where a topic's value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// It was set for the topic.
    Topic,
    /// The topic inherits it, and it is not Kafka's own default.
    Broker,
    /// It is not set.
    Default,
}

/// A topic config with the value that holds for one topic.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicConfigValue {
    /// Which.
    pub def: &'static TopicConfigDef,
    /// Its value, in canonical form.
    pub value: String,
    /// Its source.
    pub source: Source,
}

/// Every topic config with the value that holds under `config`, by name; those that Kafka hides only where they are set.
#[must_use]
pub fn topic_config_values(config: &TopicConfig) -> Vec<TopicConfigValue> {
    told_configs(config)
        .map(|def| match config.raw.get(def.name) {
            Some(value) => TopicConfigValue { def, value: value.clone(), source: Source::Topic },
            None => {
                let value = inherited(def.name, config).unwrap_or_else(|| def.default.to_owned());
                let source = if value == def.default { Source::Default } else { Source::Broker };
                TopicConfigValue { def, value, source }
            }
        })
        .collect()
}

/// The name of a codec in `compression.type`, and its level where it has one.
pub(super) fn codec(compression: Compression) -> (&'static str, Option<i32>) {
    match compression {
        Compression::Producer => ("producer", None),
        Compression::None => ("uncompressed", None),
        Compression::Gzip(level) => ("gzip", Some(level)),
        Compression::Snappy => ("snappy", None),
        Compression::Lz4(level) => ("lz4", Some(level)),
        Compression::Zstd(level) => ("zstd", Some(level)),
    }
}

/// The value of a config that has a field of its own.
pub(super) fn inherited(name: &str, config: &TopicConfig) -> Option<String> {
    let (codec, level) = codec(config.compression);
    // Kafka's numbers end at i64::MAX, which then means "no bound".
    let capped = |n: u64| n.min(i64::MAX.unsigned_abs()).to_string();
    let or_all = |n: Option<u64>| n.map_or_else(|| "-1".to_owned(), capped);
    match name {
        "cleanup.policy" => {
            let parts = [(config.cleanup.compact, "compact"), (config.cleanup.delete, "delete")];
            Some(parts.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect::<Vec<_>>().join(","))
        }
        "compression.type" => Some(codec.to_owned()),
        "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level" => {
            level.filter(|_| name.split('.').nth(1) == Some(codec)).map(|level| level.to_string())
        }
        "max.message.bytes" => Some(config.max_message_bytes.to_string()),
        "message.timestamp.after.max.ms" => Some(capped(config.timestamp_after_ms_max)),
        "message.timestamp.before.max.ms" => Some(capped(config.timestamp_before_ms_max)),
        "message.timestamp.type" => Some(match config.timestamp_kind {
            TimestampKind::Create => "CreateTime".to_owned(),
            TimestampKind::LogAppend => "LogAppendTime".to_owned(),
        }),
        DURABILITY => Some(match config.durability {
            Durability::Sync => "sync".to_owned(),
            Durability::Async => "async".to_owned(),
            Durability::Memory => "memory".to_owned(),
        }),
        "retention.bytes" => Some(or_all(config.retention_bytes)),
        "retention.ms" => Some(or_all(config.retention_ms)),
        _ => None,
    }
}

const fn same(name: &'static str) -> Synonym {
    Synonym { name, factor: 1 }
}

const fn times(name: &'static str, factor: i64) -> Synonym {
    Synonym { name, factor }
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const NEVER: &str = "9223372036854775807";
const ONE_COPY: &str = "Without effect: there is one copy of each partition.";
const NO_SEGMENTS: &str = "Without effect: partitions share journal files and have no segments of their own.";
const NO_COMPACTION: &str = "Without effect: compaction is not there yet.";
const NO_TIERS: &str = "Without effect: there is no tiered storage.";

const fn without_effect(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    valid: Valid,
    synonyms: &'static [Synonym],
    doc: &'static str,
) -> TopicConfigDef {
    TopicConfigDef { name, kind, default, valid, synonyms, effect: Effect::None, doc }
}

const fn with_effect(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    valid: Valid,
    synonyms: &'static [Synonym],
    doc: &'static str,
) -> TopicConfigDef {
    TopicConfigDef { name, kind, default, valid, synonyms, effect: Effect::Full, doc }
}

/// Topic configs that Kafka hides from users, by name: its own tests and those of others set them. There is no default to show.
pub(super) const INTERNAL_CONFIGS: &[TopicConfigDef] =
    &[without_effect("internal.segment.bytes", Kind::Int, "", Valid::Any, &[], NO_SEGMENTS)];

/// All topic configs that Kafka shows, and polylogue's own, by name.
pub const TOPIC_CONFIGS: &[TopicConfigDef] = &[
    with_effect(
        "cleanup.policy",
        Kind::List,
        "delete",
        Valid::OneOf(&["compact", "delete"]),
        &[same("log.cleanup.policy")],
        "`delete` removes old messages by retention.ms and retention.bytes; without it everything is kept. `compact` \
         demands keys, and nothing is compacted yet.",
    ),
    with_effect(
        "compression.gzip.level",
        Kind::Int,
        "-1",
        Valid::BetweenOr(1, 9, -1),
        &[same("compression.gzip.level")],
        "How hard gzip tries when compression.type is gzip; -1 is gzip's own default.",
    ),
    with_effect(
        "compression.lz4.level",
        Kind::Int,
        "9",
        Valid::Between(1, 17),
        &[same("compression.lz4.level")],
        "How hard LZ4 tries when compression.type is lz4.",
    ),
    with_effect(
        "compression.type",
        Kind::String,
        "producer",
        Valid::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        &[same("compression.type")],
        "The codec in which batches are kept; `producer` keeps each as it came.",
    ),
    with_effect(
        "compression.zstd.level",
        Kind::Int,
        "3",
        Valid::Between(-131_072, 22),
        &[same("compression.zstd.level")],
        "How hard Zstandard tries when compression.type is zstd.",
    ),
    without_effect(
        "delete.retention.ms",
        Kind::Long,
        "86400000",
        Valid::AtLeast(0),
        &[same("log.cleaner.delete.retention.ms")],
        NO_COMPACTION,
    ),
    without_effect(
        "file.delete.delay.ms",
        Kind::Long,
        "60000",
        Valid::AtLeast(0),
        &[same("log.segment.delete.delay.ms")],
        NO_SEGMENTS,
    ),
    with_effect(
        "flush.messages",
        Kind::Long,
        NEVER,
        Valid::AtLeast(1),
        &[same("log.flush.interval.messages")],
        "1 means polylogue.durability=sync. Other values have no effect.",
    ),
    without_effect(
        "flush.ms",
        Kind::Long,
        NEVER,
        Valid::AtLeast(0),
        &[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")],
        "Without effect: polylogue.durability says when messages are flushed.",
    ),
    without_effect("follower.replication.throttled.replicas", Kind::List, "", Valid::Replicas, &[], ONE_COPY),
    without_effect(
        "index.interval.bytes",
        Kind::Int,
        "4096",
        Valid::AtLeast(0),
        &[same("log.index.interval.bytes")],
        NO_SEGMENTS,
    ),
    without_effect("leader.replication.throttled.replicas", Kind::List, "", Valid::Replicas, &[], ONE_COPY),
    without_effect(
        "local.retention.bytes",
        Kind::Long,
        "-2",
        Valid::AtLeast(-2),
        &[same("log.local.retention.bytes")],
        NO_TIERS,
    ),
    without_effect(
        "local.retention.ms",
        Kind::Long,
        "-2",
        Valid::AtLeast(-2),
        &[same("log.local.retention.ms")],
        NO_TIERS,
    ),
    without_effect(
        "max.compaction.lag.ms",
        Kind::Long,
        NEVER,
        Valid::AtLeast(1),
        &[same("log.cleaner.max.compaction.lag.ms")],
        NO_COMPACTION,
    ),
    with_effect(
        "max.message.bytes",
        Kind::Int,
        "1048588",
        Valid::AtLeast(0),
        &[same("message.max.bytes")],
        "The largest record batch, after compression.",
    ),
    with_effect(
        "message.timestamp.after.max.ms",
        Kind::Long,
        "3600000",
        Valid::AtLeast(0),
        &[same("log.message.timestamp.after.max.ms")],
        "How far ahead of the broker's time a producer's timestamp may be.",
    ),
    with_effect(
        "message.timestamp.before.max.ms",
        Kind::Long,
        NEVER,
        Valid::AtLeast(0),
        &[same("log.message.timestamp.before.max.ms")],
        "How far behind the broker's time a producer's timestamp may be.",
    ),
    with_effect(
        "message.timestamp.type",
        Kind::String,
        "CreateTime",
        Valid::OneOf(&["CreateTime", "LogAppendTime"]),
        &[same("log.message.timestamp.type")],
        "Whether messages carry the producer's time or the broker's.",
    ),
    without_effect(
        "min.cleanable.dirty.ratio",
        Kind::Double,
        "0.5",
        Valid::Between(0, 1),
        &[same("log.cleaner.min.cleanable.ratio")],
        NO_COMPACTION,
    ),
    without_effect(
        "min.compaction.lag.ms",
        Kind::Long,
        "0",
        Valid::AtLeast(0),
        &[same("log.cleaner.min.compaction.lag.ms")],
        NO_COMPACTION,
    ),
    without_effect("min.insync.replicas", Kind::Int, "1", Valid::AtLeast(1), &[same("min.insync.replicas")], ONE_COPY),
    with_effect(
        DURABILITY,
        Kind::String,
        "sync",
        Valid::OneOf(&["sync", "async", "memory"]),
        &[],
        "When an acknowledgement leaves: after the flush to disk, after it is written, or from memory.",
    ),
    without_effect("preallocate", Kind::Boolean, "false", Valid::Any, &[same("log.preallocate")], NO_SEGMENTS),
    without_effect("remote.log.copy.disable", Kind::Boolean, "false", Valid::Any, &[], NO_TIERS),
    without_effect("remote.log.delete.on.disable", Kind::Boolean, "false", Valid::Any, &[], NO_TIERS),
    without_effect("remote.storage.enable", Kind::Boolean, "false", Valid::Any, &[], NO_TIERS),
    with_effect(
        "retention.bytes",
        Kind::Long,
        "-1",
        Valid::Any,
        &[same("log.retention.bytes")],
        "How many bytes of a partition are kept; -1 for all.",
    ),
    with_effect(
        "retention.ms",
        Kind::Long,
        "604800000",
        Valid::AtLeast(-1),
        &[same("log.retention.ms"), times("log.retention.minutes", MINUTE_MS), times("log.retention.hours", HOUR_MS)],
        "How long messages are kept; -1 for ever.",
    ),
    without_effect(
        "segment.bytes",
        Kind::Int,
        "1073741824",
        Valid::AtLeast(1_048_576),
        &[same("log.segment.bytes")],
        NO_SEGMENTS,
    ),
    without_effect(
        "segment.index.bytes",
        Kind::Int,
        "10485760",
        Valid::AtLeast(4),
        &[same("log.index.size.max.bytes")],
        NO_SEGMENTS,
    ),
    without_effect(
        "segment.jitter.ms",
        Kind::Long,
        "0",
        Valid::AtLeast(0),
        &[same("log.roll.jitter.ms"), times("log.roll.jitter.hours", HOUR_MS)],
        NO_SEGMENTS,
    ),
    without_effect(
        "segment.ms",
        Kind::Long,
        "604800000",
        Valid::AtLeast(1),
        &[same("log.roll.ms"), times("log.roll.hours", HOUR_MS)],
        NO_SEGMENTS,
    ),
    without_effect(
        "unclean.leader.election.enable",
        Kind::Boolean,
        "false",
        Valid::Any,
        &[same("unclean.leader.election.enable")],
        ONE_COPY,
    ),
];
