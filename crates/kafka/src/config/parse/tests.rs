use super::*;
use crate::config::topic::INTERNAL_CONFIGS;
use crate::config::{Effect, Kind, Source, TOPIC_CONFIGS, Valid, topic_config_values};

fn raw(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn parse(pairs: &[(&str, &str)]) -> Result<TopicConfig, String> {
    parse_topic_config(&TopicConfig::default(), &raw(pairs)).map_err(|e| e.to_string())
}

/// What the table says of a config, in the columns of `topic_configs.tsv`.
fn row(def: &TopicConfigDef) -> String {
    let valid = match def.valid {
        Valid::Any => String::new(),
        Valid::AtLeast(min) => format!("[{min},...]"),
        Valid::Between(min, max) => format!("[{min},...,{max}]"),
        Valid::BetweenOr(min, max, or) => format!("[{min},...,{max}] or {or}"),
        Valid::OneOf(known) => format!("[{}]", known.join(", ")),
        Valid::Replicas => "[partitionId]:[brokerId],[partitionId]:[brokerId],...".to_owned(),
    };
    let synonyms: Vec<String> = def
        .synonyms
        .iter()
        .map(|s| if s.factor == 1 { s.name.to_owned() } else { format!("{}*{}", s.name, s.factor) })
        .collect();
    format!("{}\t{}\t{}\t{valid}\tMEDIUM\tfalse\t{}", def.name, def.kind.name(), def.default, synonyms.join(","))
}

#[test]
fn the_table_is_kafkas() {
    let kafka: Vec<&str> = include_str!("../topic_configs.tsv")
        .lines()
        .filter(|line| !line.starts_with('#') && line.split('\t').nth(5) == Some("false"))
        .collect();
    let ours: Vec<String> = TOPIC_CONFIGS.iter().filter(|def| def.name != DURABILITY).map(row).collect();
    assert_eq!(ours, kafka);
    assert!(TOPIC_CONFIGS.is_sorted_by_key(|def| def.name));
    let hidden = include_str!("../topic_configs.tsv").lines().filter(|line| line.split('\t').nth(5) == Some("true"));
    let ours =
        INTERNAL_CONFIGS.iter().map(row).map(|row| row.replace("\t\t\tMEDIUM\tfalse", "\t(null)\t\tMEDIUM\ttrue"));
    assert!(ours.eq(hidden), "{INTERNAL_CONFIGS:?}");
}

/// Kafka's own tests set it, and got the error that there is no such config.
#[test]
fn a_config_that_kafka_hides_is_taken_and_shown_where_it_is_set() {
    let config = parse(&[("internal.segment.bytes", "1000")]).unwrap();
    let shown = topic_config_values(&config);
    assert!(shown.len() == TOPIC_CONFIGS.len() + 1 && shown.is_sorted_by_key(|value| value.def.name));
    let hidden = shown.iter().find(|value| value.def.name == "internal.segment.bytes").unwrap();
    assert_eq!((hidden.value.as_str(), hidden.source), ("1000", Source::Topic));
    let text = "Invalid value x for configuration internal.segment.bytes: Not a number of type INT";
    assert_eq!(parse(&[("internal.segment.bytes", "x")]).unwrap_err(), text);
}

/// Name, value and what `LogConfig.validate` of Kafka 4.3.1 says.
const REFUSALS: &[(&str, &str, &str)] = &[
    ("x", "1", "Unknown topic config name: x"),
    ("message.downconversion.enable", "true", "Unknown topic config name: message.downconversion.enable"),
    ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    (
        "retention.ms",
        "9223372036854775808",
        "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG",
    ),
    (
        "cleanup.policy",
        "foo",
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    ("cleanup.policy", "delete,,compact", "Configuration 'cleanup.policy' values must not be empty."),
    (
        "compression.type",
        "none",
        "Invalid value none for configuration compression.type: String must be one of: uncompressed, zstd, \
         lz4, snappy, gzip, producer",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to \
         -1",
    ),
    ("compression.lz4.level", "0", "Invalid value 0 for configuration compression.lz4.level: Value must be at least 1"),
    (
        "compression.zstd.level",
        "23",
        "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22",
    ),
    ("flush.messages", "0", "Invalid value 0 for configuration flush.messages: Value must be at least 1"),
    ("max.message.bytes", "-1", "Invalid value -1 for configuration max.message.bytes: Value must be at least 0"),
    (
        "max.message.bytes",
        "2147483648",
        "Invalid value 2147483648 for configuration max.message.bytes: Not a number of type INT",
    ),
    (
        "min.cleanable.dirty.ratio",
        "1.5",
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    ),
    ("segment.bytes", "100", "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576"),
    (
        "leader.replication.throttled.replicas",
        "none",
        "Invalid value [none] for configuration leader.replication.throttled.replicas: \
         leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following \
         format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
];

#[test]
fn refusals_have_kafkas_words() {
    for (name, value, text) in REFUSALS {
        assert_eq!(parse(&[(name, value)]).unwrap_err(), *text);
    }
    assert_eq!(
        parse(&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]).unwrap_err(),
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    );
}

#[test]
fn values_are_kept_in_canonical_form() {
    for (name, value, canonical) in [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "+7", "7"),
        ("retention.bytes", "-5", "-5"),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("preallocate", "TRUE", "true"),
        ("compression.type", " lz4 ", "lz4"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("follower.replication.throttled.replicas", "*", "*"),
        ("follower.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
        ("min.insync.replicas", "3", "3"),
    ] {
        assert_eq!(parse(&[(name, value)]).unwrap().raw, raw(&[(name, canonical)]), "{name}={value}");
    }
}

#[test]
fn values_reach_their_fields() {
    let config = parse(&[
        ("retention.ms", "-1"),
        ("retention.bytes", "1000"),
        ("max.message.bytes", "77"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "5"),
        ("message.timestamp.after.max.ms", "9223372036854775807"),
        ("cleanup.policy", "compact"),
        ("compression.type", "zstd"),
        ("compression.zstd.level", "-7"),
    ])
    .unwrap();
    assert_eq!(config.retention_ms, None);
    assert_eq!(config.retention_bytes, Some(1000));
    assert_eq!(config.max_message_bytes, 77);
    assert_eq!(config.timestamp_kind, TimestampKind::LogAppend);
    assert_eq!(config.timestamp_before_ms_max, 5);
    assert_eq!(config.timestamp_after_ms_max, u64::MAX);
    assert_eq!(config.cleanup, Cleanup { delete: false, compact: true });
    assert_eq!(config.compression, Compression::Zstd(-7));
}

#[test]
fn an_empty_config_is_the_base() {
    assert_eq!(parse(&[]).unwrap(), TopicConfig::default());
    let base = parse(&[("retention.ms", "5"), ("compression.type", "gzip"), ("compression.gzip.level", "3")]).unwrap();
    let config = parse_topic_config(&base, &BTreeMap::new()).unwrap();
    assert_eq!(config, TopicConfig { raw: BTreeMap::new(), ..base });
}

#[test]
fn each_flushed_message_means_sync() {
    let base = TopicConfig { durability: Durability::Async, ..TopicConfig::default() };
    let of = |pairs: &[(&str, &str)]| parse_topic_config(&base, &raw(pairs)).map(|c| c.durability);
    assert_eq!(of(&[]).unwrap(), Durability::Async);
    assert_eq!(of(&[("flush.messages", "1")]).unwrap(), Durability::Sync);
    assert_eq!(of(&[("flush.messages", "2")]).unwrap(), Durability::Async);
    assert_eq!(of(&[(DURABILITY, "memory")]).unwrap(), Durability::Memory);
    assert_eq!(of(&[(DURABILITY, "sync"), ("flush.messages", "1")]).unwrap(), Durability::Sync);
    assert_eq!(
        of(&[(DURABILITY, "async"), ("flush.messages", "1")]).unwrap_err().to_string(),
        "conflict topic config setting polylogue.durability (async) and flush.messages (1)"
    );
}

#[test]
fn a_level_is_the_topics_else_the_brokers_else_kafkas() {
    let base = parse(&[("compression.zstd.level", "9")]).unwrap();
    assert_eq!(base.compression, Compression::Producer);
    let of = |pairs: &[(&str, &str)]| parse_topic_config(&base, &raw(pairs)).unwrap().compression;
    assert_eq!(of(&[("compression.type", "zstd")]), Compression::Zstd(9));
    assert_eq!(of(&[("compression.type", "zstd"), ("compression.zstd.level", "4")]), Compression::Zstd(4));
    assert_eq!(of(&[("compression.type", "lz4")]), Compression::Lz4(9));
    assert_eq!(of(&[("compression.type", "gzip")]), Compression::Gzip(-1));
}

#[test]
fn every_value_is_shown_with_its_source() {
    let base = parse(&[("retention.ms", "1000")]).unwrap();
    let config = parse_topic_config(&base, &raw(&[("segment.bytes", "2097152"), ("cleanup.policy", "")])).unwrap();
    let shown = topic_config_values(&config);
    assert_eq!(shown.len(), TOPIC_CONFIGS.len());
    let of = |name: &str| shown.iter().find(|v| v.def.name == name).map(|v| (v.value.as_str(), v.source)).unwrap();
    assert_eq!(of("segment.bytes"), ("2097152", Source::Topic));
    assert_eq!(of("cleanup.policy"), ("", Source::Topic));
    assert_eq!(of("retention.ms"), ("1000", Source::Broker));
    assert_eq!(of("max.message.bytes"), ("1048588", Source::Default));
}

/// What a topic shows when nothing is set must be what the table calls the default.
#[test]
fn defaults_agree_with_the_table() {
    for shown in topic_config_values(&TopicConfig::default()) {
        assert_eq!(shown.source, Source::Default, "{}", shown.def.name);
        assert_eq!(shown.value, shown.def.default, "{}", shown.def.name);
        assert!(
            shown.def.effect == Effect::Full || shown.def.doc.starts_with("Without effect: "),
            "{}",
            shown.def.name
        );
        assert!(shown.def.kind != Kind::List || shown.def.valid != Valid::Any, "{}", shown.def.name);
    }
}
