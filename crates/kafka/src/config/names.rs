//! Every broker config name of Kafka 4.3, further accepted names, and suggestions for misspelt ones.

use super::ConfigError;
use super::topic::topic_config_def;

/// The table that `ConfigTables.java` wrote; only its first column is read here.
const BROKER_NAMES: &str = include_str!("broker_names.tsv");

/// How many edits may lie between what was written and what was meant.
const EDITS_MAX: usize = 5;

/// What Kafka's authorizer reads by itself (`StandardAuthorizer`): in no table of its brokers' configs.
const OF_THE_AUTHORIZER: [&str; 1] = ["allow.everyone.if.no.acl.found"];

/// The broker configs that Kafka 4.3 knows, those of its authorizer last.
pub fn known_broker_names() -> impl Iterator<Item = &'static str> {
    let of_brokers =
        BROKER_NAMES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next());
    of_brokers.chain(OF_THE_AUTHORIZER)
}

/// SASL mechanisms as Kafka writes them in `listener.name.LISTENER.MECHANISM.NAME`.
const MECHANISMS: [&str; 5] = ["gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512"];

/// What Kafka takes for one mechanism of one listener alone (`SaslConfigs`, `BrokerSecurityConfigs`).
const PER_MECHANISM: [&str; 5] = [
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
];

/// Whether Kafka 4.3 knows a broker config of that name. Kafka also takes any broker config for one listener alone,
/// as `listener.name.LISTENER.NAME`, and some for one SASL mechanism of a listener.
pub(super) fn is_known(name: &str) -> bool {
    let plain = name
        .strip_prefix("listener.name.")
        .and_then(|rest| rest.split_once('.'))
        .map_or(name, |(_listener, name)| name);
    let of_mechanism =
        |(mechanism, name): (&str, &str)| MECHANISMS.contains(&mechanism) && PER_MECHANISM.contains(&name);
    known_broker_names().any(|known| known == plain)
        || (plain.len() < name.len() && plain.split_once('.').is_some_and(of_mechanism))
}

/// Broker configs that earlier versions of Kafka knew: they stand in configuration files to this day, and Kafka 4.3 passes over what it
/// does not know.
const REMOVED: [&str; 63] = [
    "advertised.host.name",
    "advertised.port",
    "authorizer.zookeeper.connection.timeout.ms",
    "authorizer.zookeeper.max.in.flight.requests",
    "authorizer.zookeeper.session.timeout.ms",
    "authorizer.zookeeper.url",
    "auto.include.jmx.reporter",
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "controller.message.queue.size",
    "delegation.token.master.key",
    "eligible.leader.replicas.enable",
    "group.coordinator.new.enable",
    "group.share.enable",
    "group.share.max.groups",
    "host.name",
    "inter.broker.protocol.version",
    "internal.metadata.max.fetch.size.in.bytes",
    "leader.imbalance.per.broker.percentage",
    "log.max.id.map.snapshots",
    "log.message.downconversion.enable",
    "log.message.format.version",
    "log.message.timestamp.difference.max.ms",
    "metadata.log.segment.min.bytes",
    "offsets.commit.required.acks",
    "password.encoder.cipher.algorithm",
    "password.encoder.iterations",
    "password.encoder.key.length",
    "password.encoder.keyfactory.algorithm",
    "password.encoder.old.secret",
    "password.encoder.secret",
    "port",
    "quota.consumer.default",
    "quota.producer.default",
    "replica.lag.max.messages",
    "reserved.broker.max.id",
    "share.fetch.max.fetch.records",
    "unstable.metadata.versions.enable",
    "zookeeper.client.secure",
    "zookeeper.clientCnxnSocket",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.max.in.flight.requests",
    "zookeeper.metadata.migration.enable",
    "zookeeper.metadata.migration.min.batch.size",
    "zookeeper.session.timeout.ms",
    "zookeeper.set.acl",
    "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.client.enable",
    "zookeeper.ssl.crl.enable",
    "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.endpoint.identification.algorithm",
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.ocsp.enable",
    "zookeeper.ssl.protocol",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
    "zookeeper.sync.time.ms",
];

/// What plugins of Kafka's own read by themselves: its authorizer (`StandardAuthorizer`), its reporters of metrics (`JmxReporter`,
/// `KafkaCSVMetricsReporter`).
const OF_PLUGINS: [&str; 7] = [
    "kafka.csv.metrics.dir",
    "kafka.csv.metrics.reporter.enabled",
    "metrics.jmx.blacklist",
    "metrics.jmx.exclude",
    "metrics.jmx.include",
    "metrics.jmx.whitelist",
    "super.users",
];

/// What the plugins of tiered storage read, behind the prefixes that Kafka's brokers give them by default (KIP-405).
const OF_PLUGINS_BY_PREFIX: [&str; 2] = ["rlmm.config.", "rsm.config."];

/// Why a broker config that Kafka's brokers do not know is taken all the same, and means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tolerated {
    /// An earlier version of Kafka knew it.
    Removed,
    /// A plugin of Kafka's brokers reads it.
    Plugin,
}

/// Whether a broker config of that name is taken although Kafka 4.3 does not know it.
#[must_use]
pub fn tolerated(name: &str) -> Option<Tolerated> {
    let of_plugin = OF_PLUGINS.contains(&name) || OF_PLUGINS_BY_PREFIX.iter().any(|prefix| name.starts_with(prefix));
    match REMOVED.contains(&name) {
        true => Some(Tolerated::Removed),
        false => of_plugin.then_some(Tolerated::Plugin),
    }
}

/// All names that are [`tolerated`], without those that only begin like one.
pub fn tolerated_broker_names() -> impl Iterator<Item = &'static str> {
    REMOVED.into_iter().chain(OF_PLUGINS)
}

/// The error for an unknown broker config, with what was meant: a topic config has its default under another name, and of
/// `candidates` one may resemble it.
pub(super) fn unknown(name: &str, candidates: impl Iterator<Item = &'static str>) -> ConfigError {
    match topic_config_def(name) {
        Some(def) => {
            ConfigError::TopicConfig { name: name.to_owned(), broker: def.synonyms.first().map(|synonym| synonym.name) }
        }
        None => ConfigError::UnknownBrokerConfig { name: name.to_owned(), nearest: nearest(name, candidates) },
    }
}

/// The candidate that resembles `name` most, if one does: few edits, for its length.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (name.len() / 3).clamp(1, EDITS_MAX);
    // So many edits at the least as there are bytes more or less; and a name may be long that comes from outside.
    let near = candidates.filter(|c| c.len().abs_diff(name.len()) <= bound);
    near.map(|c| (edits(name, c), c)).filter(|(edits, _)| *edits <= bound).min_by_key(|(e, _)| *e).map(|(_, c)| c)
}

/// How many bytes must be added, removed or changed to make `b` of `a` (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let above = *cell;
            let here = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            diagonal = above;
            left = here;
            *cell = here;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, n) in [("", "", 0), ("a", "", 1), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(edits(a, b), n, "{a} -> {b}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("num.partition", known_broker_names()), Some("num.partitions"));
        assert_eq!(nearest("auto.create.topic.enable", known_broker_names()), Some("auto.create.topics.enable"));
        assert_eq!(nearest("xyzzy", known_broker_names()), None);
        assert_eq!(nearest("", known_broker_names()), None);
    }

    #[test]
    fn names_of_one_listener_are_known() {
        assert!(is_known("listener.name.internal.ssl.keystore.location"));
        assert!(!is_known("listener.name.internal.no.such"));
        assert!(!is_known("listener.name."));
        assert!(is_known("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"));
        assert!(!is_known("listener.name.sasl_ssl.scram-sha-1.sasl.jaas.config"));
        assert!(!is_known("listener.name.sasl_ssl.plain.num.partitions"));
        assert!(!is_known("plain.sasl.jaas.config"));
    }

    #[test]
    fn what_is_tolerated_is_nothing_that_kafka_knows() {
        for name in tolerated_broker_names() {
            assert!(!is_known(name) && topic_config_def(name).is_none(), "{name}");
            assert!(tolerated(name).is_some(), "{name}");
        }
        assert_eq!(tolerated("rlmm.config.remote.log.metadata.topic.num.partitions"), Some(Tolerated::Plugin));
        assert_eq!(tolerated("zookeeper.other"), None);
    }
}
