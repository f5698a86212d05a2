use super::*;
use crate::Sources;

fn config(pairs: &[(&str, &str)]) -> Result<ServerConfig, String> {
    let command_line = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let resolved = Resolved::from_sources(&Sources { command_line, ..Sources::default() }).map_err(|e| e.0)?;
    ServerConfig::from_resolved(&resolved).map_err(|e| e.0)
}

fn host_port(text: &str) -> HostPort {
    HostPort::parse(text).unwrap()
}

#[test]
fn the_defaults_are_a_loopback_server() {
    let config = config(&[]).unwrap();
    let binds: Vec<_> = config.listeners.iter().map(|l| (l.protocol, l.bind.to_string())).collect();
    assert_eq!(binds, [(Protocol::Kafka, "127.0.0.1:9092".to_owned()), (Protocol::Http, "127.0.0.1:9600".to_owned())]);
    assert!(config.warnings.is_empty());
    assert_eq!(config.worker_threads, None);
    assert_eq!(config.kafka.sessions.inflight_requests_max, 16);
}

/// The relation of `server.write_stall_ms_max` to heartbeats is documented, and the limit per address is not above the total.
#[test]
fn defaults_go_together() {
    let config = config(&[]).unwrap();
    assert_eq!(config.write_stall_ms_max, 1_000 * u64::from(config.amqp.heartbeat_seconds));
    assert!(config.http_connections_per_ip_max < config.http_connections_max);
}

/// Every option must change the configuration.
#[test]
fn each_option_reaches_the_configuration() {
    // TLS options take effect only if a listener uses TLS.
    let secured = [
        ("server.listen", "kafka+tls=127.0.0.1:9092"),
        ("tls.certificate", "server.pem"),
        ("tls.key", "server.key"),
        ("tls.client_ca", "clients.pem"),
        ("tls.client_auth", "request"),
    ];
    for def in t::OPTIONS {
        let base = match def.section {
            t::Section::Tls => &secured[..],
            // Token options take effect only if tokens are accepted.
            t::Section::OAuth => &[("oauth.jwks", "keys.json")],
            _ => &[],
        };
        let plain = config(base).unwrap();
        let other = match def.kind {
            _ if *def == &t::AMQP_VERSION => "1.2.3".to_owned(),
            crate::OptionKind::Count { max, .. } => max.to_string(),
            crate::OptionKind::Bytes { max, .. } => max.to_string(),
            crate::OptionKind::Millis { max, .. } => max.to_string(),
            crate::OptionKind::Text | crate::OptionKind::Path | crate::OptionKind::OptionalPath => "else".to_owned(),
            crate::OptionKind::OptionalText => "DEFAULT".to_owned(),
            crate::OptionKind::OneOf(known) => (*known.last().unwrap()).to_owned(),
            crate::OptionKind::Addresses => "kafka=127.0.0.1:1".to_owned(),
        };
        let name = def.full_name();
        let set: Vec<_> =
            base.iter().copied().filter(|(of, _)| *of != name).chain([(name.as_str(), other.as_str())]).collect();
        let changed = config(&set).unwrap();
        assert_ne!(changed, plain, "{}", def.full_name());
    }
}

/// By default, a listener that is not on loopback requires a login.
#[test]
fn listeners_that_others_reach_ask_who_somebody_is() {
    for (address, asks) in [
        ("127.0.0.1", false),
        ("127.8.9.10", false),
        ("::1", false),
        ("::ffff:127.0.0.1", false),
        ("0.0.0.0", true),
        ("::", true),
        ("10.0.0.1", true),
        ("::ffff:10.0.0.1", true),
    ] {
        let at = address.parse().unwrap();
        for (given, expected) in [(None, asks), (Some("auto"), asks), (Some("always"), true), (Some("never"), false)] {
            let pairs: Vec<_> = given.map(|given| ("server.login", given)).into_iter().collect();
            assert_eq!(config(&pairs).unwrap().login.asks_at(at), expected, "{address} with {given:?}");
        }
    }
}

#[test]
fn advertised_addresses_go_to_the_listeners_of_their_protocol_in_order() {
    let listeners = config(&[
        ("server.listen", "kafka=127.0.0.1:1,http=127.0.0.1:2,kafka=0.0.0.0:3"),
        ("server.advertise", "kafka=inside:0,kafka=outside.example:9092"),
    ])
    .unwrap()
    .listeners;
    let advertised: Vec<_> = listeners.iter().map(|l| l.advertise.clone()).collect();
    assert_eq!(advertised, [Some(host_port("inside:0")), None, Some(host_port("outside.example:9092"))]);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (pairs, text) in [
        (
            &[("server.advertise", "kafka=a:1,kafka=b:2")][..],
            "server.advertise: kafka=b:2: there is no kafka listener left for it",
        ),
        (
            &[("oauth.jwks", "http://keys.example.org/jwks")],
            "oauth.jwks: keys come over https, or over http from this machine alone",
        ),
        (&[("oauth.jwks", "ftp://localhost/jwks")], "oauth.jwks: expected a file, https://... or http://..."),
        (&[("server.listen", "")], "server.listen: at least one listener is required"),
        (&[("server.listen", "kafka+tls=a:1")], "tls.certificate: kafka+tls=a:1 requires one"),
        (
            &[("server.listen", "kafka=a:1,kafka+tls=a:2"), ("server.advertise", "kafka+tls=b:2,kafka+tls=b:3")],
            "server.advertise: kafka+tls=b:3: there is no kafka+tls listener left for it",
        ),
        (&[("server.listen", "kafka=a:1,http=a:1")], "server.listen: a:1 is given twice: to kafka, and to http"),
        (
            &[("server.inflight_bytes_max", "64MiB")],
            "server.inflight_bytes_max (64MiB) is too small for kafka.socket.request.max.bytes (104857600): three \
             quarters of it must hold the largest request",
        ),
        (
            &[("kafka.num.partitions", "0")],
            "[kafka] Invalid value 0 for configuration num.partitions: Value must be at least 1 (from the command line)",
        ),
        (
            &[("kafka.num.partition", "1")],
            "[kafka] Unknown broker config name: num.partition (did you mean num.partitions?) (from the command line)",
        ),
    ] {
        assert_eq!(config(pairs).unwrap_err(), text);
    }
    assert!(config(&[("server.listen", "kafka=a:0,http=a:0")]).is_ok(), "two free ports are two ports");
}

#[test]
fn kafkas_names_without_meaning_warn_and_say_where_to_look() {
    let warnings = config(&[("kafka.log.dirs", "/x"), ("kafka.broker.rack", "r1")]).unwrap().warnings;
    assert_eq!(
        warnings,
        [
            "kafka.broker.rack (from the command line) has no effect here",
            "kafka.log.dirs (from the command line) has no effect here; see server.data",
        ]
    );
    let warnings =
        config(&[("kafka.super.users", "User:admin"), ("kafka.zookeeper.connect", "a:2181")]).unwrap().warnings;
    assert_eq!(
        warnings,
        [
            "kafka.super.users (from the command line) has no effect here: it belongs to a plugin of Kafka brokers",
            "kafka.zookeeper.connect (from the command line) has no effect here: Kafka has removed it",
        ]
    );
    let refused = config(&[("kafka.file.delete.delay.ms", "1")]).unwrap_err();
    assert!(refused.to_string().contains("for all topics it is log.segment.delete.delay.ms"), "{refused}");
}

#[test]
fn names_that_warnings_point_to_exist() {
    for (kafka, ours) in ELSEWHERE {
        assert!(polylogue_kafka::config::known_broker_names().any(|known| known == kafka), "{kafka}");
        assert!(polylogue_kafka::config::broker_setting(kafka).is_none(), "{kafka}");
        let of_kafka = ours.strip_prefix("kafka.").and_then(polylogue_kafka::config::broker_setting);
        assert!(of_kafka.is_some() || t::OPTIONS.iter().any(|def| def.full_name() == ours), "{ours}");
    }
}

#[test]
fn durability_is_the_default_of_topics() {
    let durability = |pairs: &[(&str, &str)]| config(pairs).unwrap().kafka.sessions.topic_defaults.durability;
    assert_eq!(durability(&[]), Durability::Sync);
    assert_eq!(durability(&[("log.durability", "async")]), Durability::Async);
    assert_eq!(
        durability(&[("log.durability", "memory"), ("kafka.log.flush.interval.messages", "1")]),
        Durability::Sync
    );
}

#[test]
fn journals_are_written_by_size_unless_a_way_is_named() {
    let io = |pairs: &[(&str, &str)]| config(pairs).map(|config| config.log.journal_io);
    assert_eq!(io(&[]).unwrap(), JournalIo::BySize);
    for (name, way) in [("auto", JournalIo::BySize), ("direct", JournalIo::Direct), ("cached", JournalIo::Cached)] {
        assert_eq!(io(&[("log.journal_io", name)]).unwrap(), way);
    }
    assert!(io(&[("log.journal_io", "buffered")]).is_err());
}

#[test]
fn amqp_clients_are_told_what_is_set() {
    let amqp = |pairs: &[(&str, &str)]| config(pairs).unwrap().amqp;
    assert_eq!(amqp(&[]), AmqpSettings::default(), "the table has the defaults of the code");
    let set = amqp(&[
        ("amqp.product", "polylogue"),
        ("amqp.version", "3.13.7"),
        ("amqp.cluster_name", "north"),
        ("amqp.heartbeat_seconds", "10"),
        ("amqp.frame_bytes_max", "8KiB"),
        ("amqp.channel_max", "7"),
        ("amqp.ack_ms_max", "1m"),
        ("amqp.publish_credit", "0"),
        ("amqp.unsent_bytes_max", "64KiB"),
    ]);
    assert_eq!((set.publish_credit, set.unsent_bytes_max), (0, 65_536));
    assert_eq!(
        (set.product.as_str(), set.version.as_str(), set.cluster_name.as_str()),
        ("polylogue", "3.13.7", "north")
    );
    assert_eq!((set.heartbeat_seconds, set.frame_bytes_max, set.channel_max, set.ack_ms_max), (10, 8_192, 7, 60_000));
    for version in ["4.2", "4.2.0-rc1", "four", "4.2.0.1"] {
        let reported = config(&[("amqp.version", version)]).unwrap_err().to_string();
        assert!(
            reported.starts_with("amqp.version: expected three numbers") && reported.contains(version),
            "{reported}"
        );
    }
}
