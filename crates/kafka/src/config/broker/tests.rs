use super::*;
use crate::config::tolerated_broker_names;
use polylogue_api::Durability;

fn parse(pairs: &[(&str, &str)]) -> Result<ParsedSettings, String> {
    let raw = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse_broker_settings(&TopicConfig::default(), &raw).map_err(|e| e.to_string())
}

#[test]
fn the_table_is_kafkas() {
    // `StandardAuthorizer` reads it by itself.
    const OF_THE_AUTHORIZER: [&str; 1] = ["allow.everyone.if.no.acl.found"];
    // Kafka demands it; a single broker does without.
    const OWN_DEFAULTS: [&str; 1] = ["node.id"];
    let kafka: BTreeMap<&str, Vec<&str>> = include_str!("../broker_names.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .map(|columns| (columns[0], columns))
        .collect();
    assert_eq!(kafka.len(), 363);
    for ours in BROKER_SETTINGS.iter().filter(|ours| !OF_THE_AUTHORIZER.contains(&ours.name)) {
        let theirs = kafka.get(ours.name).unwrap_or_else(|| panic!("Kafka does not know {}", ours.name));
        let valid = match ours.valid {
            Valid::Any => String::new(),
            Valid::AtLeast(min) => format!("[{min},...]"),
            Valid::Between(min, max) => format!("[{min},...,{max}]"),
            Valid::BetweenOr(min, max, or) => format!("[{min},...,{max}] or {or}"),
            Valid::OneOf(known) => format!("[{}]", known.join(", ")),
            Valid::Replicas => panic!("no broker setting has these"),
        };
        let default = if ours.default.is_empty() { ["", "(null)"] } else { [ours.default, ours.default] };
        assert_eq!((ours.kind.name(), valid.as_str()), (theirs[1], theirs[3]), "{}", ours.name);
        assert!(default.contains(&theirs[2]) || OWN_DEFAULTS.contains(&ours.name), "{}", ours.name);
    }
    assert!(BROKER_SETTINGS.is_sorted_by_key(|setting| setting.name));
}

/// Setting each to its default must change nothing: field, table and Kafka agree.
#[test]
fn defaults_agree_with_the_table() {
    for setting in BROKER_SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
        let parsed = parse(&[(setting.name, setting.default)]).unwrap();
        let expected = BrokerSettings::default();
        let mut settings = parsed.settings;
        settings.sessions.topic_defaults.raw.clear();
        assert_eq!(settings, expected, "{}", setting.name);
    }
}

/// Every setting must reach a field: two different values give two different results.
#[test]
fn each_setting_does_something() {
    for setting in BROKER_SETTINGS {
        let other = match (setting.name, setting.kind) {
            ("allow.everyone.if.no.acl.found", _) => "true",
            ("auto.create.topics.enable" | "delete.topic.enable", _) => "false",
            ("log.cleanup.policy", _) => "compact",
            ("log.message.timestamp.type", _) => "LogAppendTime",
            ("compression.type", _) => "lz4",
            ("group.consumer.assignors", _) => "range",
            ("max.connections.per.ip.overrides", _) => "10.0.0.1:5",
            (name, _) if name.starts_with("compression.") => "7",
            _ => "54321",
        };
        let parsed = parse(&[(setting.name, other)]).unwrap();
        assert_ne!(parsed.settings, BrokerSettings::default(), "{}", setting.name);
        assert!(parsed.without_meaning.is_empty());
    }
}

#[test]
fn names_without_meaning_are_told() {
    let parsed = parse(&[("num.io.threads", "8"), ("log.dirs", "/x"), ("num.partitions", "3")]).unwrap();
    assert_eq!(parsed.without_meaning, ["log.dirs", "num.io.threads"]);
    assert_eq!(parsed.settings.sessions.partitions_default, 3);
    let every = known_broker_names().filter(|name| broker_setting(name).is_none()).map(|name| (name, "whatever"));
    assert!(parse(&every.collect::<Vec<_>>()).is_ok());
}

/// Names out of configuration files that Kafka 4.3 starts with ended the start.
#[test]
fn names_that_kafka_removed_and_those_of_its_plugins_are_told() {
    let names = [
        "inter.broker.protocol.version",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        "super.users",
        "zookeeper.connect",
    ];
    let parsed = parse(&names.map(|name| (name, "x"))).unwrap();
    assert_eq!(parsed.without_meaning, names);
    assert!(parse(&tolerated_broker_names().map(|name| (name, "x")).collect::<Vec<_>>()).is_ok());
}

#[test]
fn unknown_names_and_bad_values_are_errors() {
    for (name, value, text) in [
        ("num.partition", "1", "Unknown broker config name: num.partition (did you mean num.partitions?)"),
        ("zookeeper.no.such", "x", "Unknown broker config name: zookeeper.no.such"),
        (
            "file.delete.delay.ms",
            "1",
            "Unknown broker config name: file.delete.delay.ms (a topic config; for all topics it is \
             log.segment.delete.delay.ms)",
        ),
        (
            "remote.storage.enable",
            "true",
            "Unknown broker config name: remote.storage.enable (a topic config, which is set for topics alone)",
        ),
        ("num.partitions", "0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("num.partitions", "many", "Invalid value many for configuration num.partitions: Not a number of type INT"),
        (
            "log.retention.hours",
            "0",
            "Invalid value 0 for configuration log.retention.hours: must be unlimited (-1) or at least 1",
        ),
        (
            "max.connections.per.ip.overrides",
            "example.org:7",
            "Invalid value example.org:7 for configuration max.connections.per.ip.overrides: Expected ADDRESS:COUNT, \
             with an IP address",
        ),
    ] {
        assert_eq!(parse(&[(name, value)]).unwrap_err(), text);
    }
}

#[test]
fn the_finest_unit_of_retention_counts() {
    let retention = |pairs: &[(&str, &str)]| parse(pairs).unwrap().settings.sessions.topic_defaults.retention_ms;
    assert_eq!(retention(&[("log.retention.hours", "2")]), Some(7_200_000));
    assert_eq!(retention(&[("log.retention.hours", "2"), ("log.retention.minutes", "3")]), Some(180_000));
    assert_eq!(
        retention(&[("log.retention.hours", "2"), ("log.retention.minutes", "3"), ("log.retention.ms", "4")]),
        Some(4)
    );
    assert_eq!(retention(&[("log.retention.hours", "-7")]), None);
}

#[test]
fn topics_inherit_what_the_broker_says() {
    let parsed = parse(&[("message.max.bytes", "5000"), ("compression.zstd.level", "9")]).unwrap();
    let base = parsed.settings.sessions.topic_defaults;
    assert_eq!(base.max_message_bytes, 5000);
    let raw = BTreeMap::from([("compression.type".to_owned(), "zstd".to_owned())]);
    let topic = parse_topic_config(&base, &raw).unwrap();
    assert_eq!(topic.max_message_bytes, 5000);
    assert_eq!(topic.compression, polylogue_api::Compression::Zstd(9));
    assert_eq!(topic.raw, raw);
}

#[test]
fn each_flushed_message_means_sync_for_all_topics() {
    let base = TopicConfig { durability: Durability::Async, ..TopicConfig::default() };
    let of = |messages: &str| {
        let raw = BTreeMap::from([("log.flush.interval.messages".to_owned(), messages.to_owned())]);
        parse_broker_settings(&base, &raw).unwrap().settings.sessions.topic_defaults.durability
    };
    assert_eq!(of("1"), Durability::Sync);
    assert_eq!(of("2"), Durability::Async);
}

#[test]
fn odd_numbers_have_a_meaning() {
    let settings = parse(&[
        ("connections.max.idle.ms", "-1"),
        ("group.min.session.timeout.ms", "-5"),
        ("max.connections.per.ip.overrides", " 10.0.0.1:5 , [::1]:7,"),
        ("offsets.retention.minutes", "2"),
    ])
    .unwrap()
    .settings;
    assert_eq!(settings.sessions.idle_ms_max, u64::MAX);
    assert_eq!(settings.groups.session_timeout_ms_min, 0);
    assert_eq!(settings.groups.offsets_retention_ms, 120_000);
    let overrides: Vec<_> =
        settings.listener.connections_per_ip_overrides.iter().map(|(a, n)| (a.to_string(), *n)).collect();
    assert_eq!(overrides, [("10.0.0.1".to_owned(), 5), ("::1".to_owned(), 7)]);
}
