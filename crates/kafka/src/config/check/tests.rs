use super::*;
use polylogue_kafka_codec::ErrorCode;

const NOTHING: &Settings = &Settings::new();
const BARE: Layers<'static> = Layers { node: NOTHING, cluster: NOTHING, fixed: NOTHING };

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn broker(resource: Resource, pairs: &[(&str, &str)]) -> Result<Settings, (ErrorCode, String)> {
    check_broker(resource, &settings(pairs), BARE, &Fixed::default()).map_err(|refused| (refused.code, refused.text))
}

#[test]
fn what_kafka_refuses_for_a_broker() {
    for (resource, name, value, text) in [
        (Resource::Broker, "log.dirs", "/x", "Cannot update these configs dynamically: [log.dirs]"),
        (
            Resource::Broker,
            "ssl.keystore.location",
            "x",
            "These security configs can be dynamically updated only per-listener using the listener prefix: \
             [ssl.keystore.location]",
        ),
        (
            Resource::Cluster,
            "listeners",
            "PLAINTEXT://:1",
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            Resource::Cluster,
            "message.max.bytes",
            "x",
            "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        ),
        (
            Resource::Broker,
            "log.retention.ms",
            "0",
            "Invalid value 0 for configuration log.retention.ms: must be unlimited (-1) or at least 1",
        ),
        (
            Resource::Broker,
            "max.connections.per.ip.overrides",
            "nonsense",
            "Invalid value nonsense for configuration max.connections.per.ip.overrides: Expected ADDRESS:COUNT, with an IP \
             address",
        ),
        (
            Resource::Broker,
            "listener.name.x.ssl.keystore.password",
            "secret",
            "Passwords are not kept here: these configs cannot be set: [listener.name.x.ssl.keystore.password]",
        ),
    ] {
        let expected = Err((ErrorCode::InvalidRequest, text.to_owned()));
        assert_eq!(broker(resource, &[(name, value)]), expected, "{name}");
    }
    let unknown = "Unknown broker config name: num.partition (did you mean num.partitions?)".to_owned();
    assert_eq!(broker(Resource::Broker, &[("num.partition", "1")]), Err((ErrorCode::InvalidConfig, unknown)));
    let topic = "Unknown broker config name: retention.ms (a topic config; for all topics it is log.retention.ms)";
    assert_eq!(broker(Resource::Broker, &[("retention.ms", "1")]), Err((ErrorCode::InvalidConfig, topic.to_owned())));
}

#[test]
fn what_a_broker_takes_is_kept_in_canonical_form() {
    let given = [("log.retention.ms", " 05 "), ("auto.create.topics.enable", "FALSE"), ("num.io.threads", "4")];
    let kept = settings(&[("log.retention.ms", "5"), ("auto.create.topics.enable", "false"), ("num.io.threads", "4")]);
    assert_eq!(broker(Resource::Cluster, &given), Ok(kept));
    assert!(broker(Resource::Broker, &[("polylogue.tail.cache.bytes", "2000000")]).is_ok());
    assert!(broker(Resource::Broker, &[("polylogue.tail.cache.bytes", "1")]).is_err());
    assert!(broker(Resource::Broker, &[("listener.name.x.max.connections", "7")]).is_ok());
}

#[test]
fn groups() {
    let check = |pairs: &[(&str, &str)]| check_group(&settings(pairs), BARE).map_err(|r| (r.code, r.text));
    assert_eq!(
        check(&[("consumer.session.timeout.ms", "50000")]),
        Ok(settings(&[("consumer.session.timeout.ms", "50000")]))
    );
    for (name, value, text) in [
        ("x", "1", "Unknown group config name: x"),
        (
            "consumer.session.timeout.ms",
            "1000",
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "share.heartbeat.interval.ms",
            "20000",
            "share.heartbeat.interval.ms must be less than or equal to group.share.max.heartbeat.interval.ms",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            "share.isolation.level",
            "x",
            "Invalid value x for configuration share.isolation.level: String must be one of: read_committed, read_uncommitted",
        ),
    ] {
        assert_eq!(check(&[(name, value)]), Err((ErrorCode::InvalidConfig, text.to_owned())), "{name}");
    }
    let fixed = settings(&[
        ("group.consumer.min.session.timeout.ms", "1000"),
        ("group.consumer.max.heartbeat.interval.ms", "99999"),
    ]);
    let layers = Layers { fixed: &fixed, ..BARE };
    let both = settings(&[("consumer.session.timeout.ms", "6000"), ("consumer.heartbeat.interval.ms", "6000")]);
    let text = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms";
    assert_eq!(check_group(&both, layers), Err(Refused::config(text)));
}

#[test]
fn where_share_groups_start() {
    let check = |value: &str| check_group(&settings(&[("share.auto.offset.reset", value)]), BARE).is_ok();
    for good in ["latest", "earliest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S", "by_duration:P7D"] {
        assert!(check(good), "{good}");
    }
    for bad in [
        "none",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:-PT1H",
        "by_duration:PT1M1H",
        "by_duration:PT1.5H",
    ] {
        assert!(!check(bad), "{bad}");
    }
}

#[test]
fn subscriptions() {
    let check = |name, value| check_client_metrics(&settings(&[(name, value)])).map_err(|r| (r.code, r.text));
    assert!(check("interval.ms", "5000").is_ok());
    assert!(check("metrics", "org.apache.kafka.producer,org.apache.kafka.consumer").is_ok());
    assert!(check("match", "client_id=app-.*, client_source_port=9092").is_ok());
    let text = "Invalid value 5 for interval.ms, interval must be between 100 and 3600000 (1 hour)".to_owned();
    assert_eq!(check("interval.ms", "5"), Err((ErrorCode::InvalidRequest, text)));
    let text = "Unknown client metrics configuration: x".to_owned();
    assert_eq!(check("x", "5"), Err((ErrorCode::InvalidRequest, text)));
    let text = "Illegal client matching pattern: color=red".to_owned();
    assert_eq!(check("match", "color=red"), Err((ErrorCode::InvalidConfig, text)));
}

#[test]
fn the_durability_of_a_topic_changes_on_the_disk_and_stays_in_memory() {
    let mut started = KafkaSettings::default();
    let of =
        |durability, pairs: &[(&str, &str)]| TopicConfig { durability, raw: settings(pairs), ..TopicConfig::default() };
    let named = of(Durability::Async, &[(DURABILITY, "async")]);
    let check = |started: &KafkaSettings, now: &TopicConfig, new: &[(&str, &str)]| {
        check_topic(started, now, &settings(new)).map(|config| config.durability)
    };
    assert_eq!(check(&started, &named, &[(DURABILITY, "async"), ("retention.ms", "5")]), Ok(Durability::Async));
    assert_eq!(check(&started, &named, &[(DURABILITY, "sync")]), Ok(Durability::Sync));
    assert_eq!(check(&started, &named, &[("flush.messages", "1")]), Ok(Durability::Sync));
    assert_eq!(check(&started, &named, &[]), Ok(Durability::Sync), "it is inherited now");
    let refused = check(&started, &named, &[(DURABILITY, "memory")]).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidConfig);
    assert!(refused.text.contains("is async and cannot become memory"), "{}", refused.text);
    let memory = of(Durability::Memory, &[(DURABILITY, "memory")]);
    assert!(check(&started, &memory, &[(DURABILITY, "sync")]).is_err());
    assert!(check(&started, &memory, &[]).is_err(), "it would inherit sync");
    // What it inherited when it was made stays, whatever is inherited now.
    let inherited = of(Durability::Async, &[]);
    assert_eq!(check(&started, &inherited, &[("retention.ms", "5")]), Ok(Durability::Async));
    started.topic_defaults.durability = Durability::Async;
    assert_eq!(check(&started, &named, &[]), Ok(Durability::Async));
}
