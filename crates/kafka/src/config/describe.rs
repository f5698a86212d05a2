//! What is set, and by whom: what DescribeConfigs shows.

use super::known::{
    KnownConfig, UpdateMode, broker_config, broker_configs, client_metrics_configs, group_configs, has_effect,
};
use super::layers::Layers;
use super::topic::{DURABILITY, Effect, INTERNAL_CONFIGS, TopicConfigDef, inherited, told_configs};
use super::value::Kind;
use polylogue_api::{Settings, TopicConfig};

/// The source of a value, with Kafka's numbers (`DescribeConfigsResponse.ConfigSource`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i8)]
pub enum ConfigSource {
    /// It was set for the topic.
    Topic = 1,
    /// It was set for this broker while it ran.
    DynamicBroker = 2,
    /// It was set for all brokers while they ran.
    DynamicDefaultBroker = 3,
    /// The broker was started with it.
    StaticBroker = 4,
    /// It is not set.
    Default = 5,
    /// It was set for the subscription to clients' metrics.
    ClientMetrics = 7,
    /// It was set for the group.
    Group = 8,
}

impl ConfigSource {
    /// Its number on the wire.
    #[must_use]
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// The source of that number.
    #[must_use]
    pub fn from_code(code: i8) -> Option<ConfigSource> {
        const ALL: [ConfigSource; 7] = [
            ConfigSource::Topic,
            ConfigSource::DynamicBroker,
            ConfigSource::DynamicDefaultBroker,
            ConfigSource::StaticBroker,
            ConfigSource::Default,
            ConfigSource::ClientMetrics,
            ConfigSource::Group,
        ];
        ALL.into_iter().find(|source| source.code() == code)
    }

    /// Its name in Kafka's tools.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ConfigSource::Topic => "DYNAMIC_TOPIC_CONFIG",
            ConfigSource::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            ConfigSource::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            ConfigSource::StaticBroker => "STATIC_BROKER_CONFIG",
            ConfigSource::Default => "DEFAULT_CONFIG",
            ConfigSource::ClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            ConfigSource::Group => "DYNAMIC_GROUP_CONFIG",
        }
    }
}

/// One thing that is said about a config.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigSynonym {
    /// Under which name.
    pub name: String,
    /// What; `None` for a secret.
    pub value: Option<String>,
    /// By whom.
    pub source: ConfigSource,
}

/// One config with the value that holds.
#[derive(Clone, PartialEq, Debug)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// The value that holds; `None` for none, and for a secret.
    pub value: Option<String>,
    /// Its source.
    pub source: ConfigSource,
    /// Whether it cannot be changed while the broker runs.
    pub read_only: bool,
    /// Whether its value is a secret.
    pub sensitive: bool,
    /// Its type.
    pub kind: Kind,
    /// Everything that is said about it, what counts first.
    pub synonyms: Vec<ConfigSynonym>,
    /// What it does, in one line.
    pub doc: &'static str,
}

/// What is said of a setting that does nothing.
const WITHOUT_EFFECT: &str = "Without effect here.";

/// Facts about the broker that are settings in Kafka.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Names and values; they count as what the broker was started with.
    pub values: Settings,
}

/// Every topic config that `wanted` wants, as it holds under `config`; those that Kafka hides only where they are set.
#[must_use]
pub fn describe_topic(config: &TopicConfig, layers: Layers<'_>, wanted: &dyn Fn(&str) -> bool) -> Vec<ConfigEntry> {
    told_configs(config).filter(|def| wanted(def.name)).map(|def| topic_entry(def, config, layers)).collect()
}

fn topic_entry(def: &'static TopicConfigDef, config: &TopicConfig, layers: Layers<'_>) -> ConfigEntry {
    let own = config.raw.get(def.name);
    let said: Vec<_> = match def.synonyms.first() {
        Some(synonym) => layers.said(synonym.name),
        None if INTERNAL_CONFIGS.iter().any(|internal| internal.name == def.name) => Vec::new(),
        None => vec![synonym(def.name, def.default, ConfigSource::Default)],
    };
    let from_broker = || {
        let first = said.first()?;
        let factor = def.synonyms.iter().find(|synonym| synonym.name == first.name).map_or(1, |synonym| synonym.factor);
        let value = first.value.as_deref()?.trim();
        if factor == 1 {
            return Some(value.to_owned());
        }
        value.parse::<i64>().ok().map(|n| if n < 0 { n } else { n.saturating_mul(factor) }.to_string())
    };
    let value = own
        .cloned()
        .or_else(|| inherited(def.name, config).or_else(from_broker))
        .unwrap_or_else(|| def.default.to_owned());
    let mut source = if own.is_some() {
        ConfigSource::Topic
    } else {
        said.first().map_or(ConfigSource::Default, |first| first.source)
    };
    let mut synonyms = said;
    if def.name == DURABILITY && own.is_none() && value != def.default {
        // It was inherited when the topic was made, and is its own since.
        source = ConfigSource::Topic;
    }
    if source == ConfigSource::Topic {
        synonyms.insert(0, synonym(def.name, &value, ConfigSource::Topic));
    }
    let doc = def.doc;
    debug_assert!(def.effect == Effect::Full || doc.starts_with("Without effect"));
    ConfigEntry {
        name: def.name.to_owned(),
        value: Some(value),
        source,
        read_only: false,
        sensitive: false,
        kind: def.kind,
        synonyms,
        doc,
    }
}

fn synonym(name: &str, value: &str, source: ConfigSource) -> ConfigSynonym {
    ConfigSynonym { name: name.to_owned(), value: Some(value.to_owned()), source }
}

/// Every broker setting that `wanted` wants, as it holds for this broker: Kafka's and ours, and what was set for one listener.
#[must_use]
pub fn describe_broker(facts: &Facts, layers: Layers<'_>, wanted: &dyn Fn(&str) -> bool) -> Vec<ConfigEntry> {
    let mut fixed = facts.values.clone();
    fixed.extend(layers.fixed.clone());
    let layers = Layers { fixed: &fixed, ..layers };
    let merged = layers.merged();
    let known = broker_configs().values().filter(|known| !known.internal).map(|known| known.name);
    let unlisted = merged.keys().map(String::as_str).filter(|name| !broker_configs().contains_key(name));
    known
        .chain(unlisted)
        .filter(|name| wanted(name))
        .filter_map(|name| {
            let known = broker_config(name)?;
            let said = layers.said(name);
            let value = merged.get(name).map(String::as_str).or(known.default).map(str::to_owned);
            Some(broker_entry(name, known, value, said))
        })
        .collect()
}

/// What is set for all brokers, and nothing else.
#[must_use]
pub fn describe_cluster(cluster: &Settings, wanted: &dyn Fn(&str) -> bool) -> Vec<ConfigEntry> {
    let set = cluster.iter().filter(|(name, _)| wanted(name));
    set.filter_map(|(name, value)| {
        let said = vec![synonym(name, value, ConfigSource::DynamicDefaultBroker)];
        Some(broker_entry(name, broker_config(name)?, Some(value.clone()), said))
    })
    .collect()
}

fn broker_entry(
    name: &str,
    known: &'static KnownConfig,
    value: Option<String>,
    mut said: Vec<ConfigSynonym>,
) -> ConfigEntry {
    let sensitive = known.kind == Kind::Password;
    if sensitive {
        said.iter_mut().for_each(|said| said.value = None);
    }
    // Kafka tells what is said under other names too, but goes by what is said under this one, or for all listeners.
    let source = said.iter().find(|said| said.name == name || said.name == known.name);
    ConfigEntry {
        name: name.to_owned(),
        value: value.filter(|_| !sensitive),
        source: source.map_or(ConfigSource::Default, |said| said.source),
        read_only: known.update == UpdateMode::ReadOnly,
        sensitive,
        kind: known.kind,
        synonyms: said,
        doc: if has_effect(known.name) { known.doc } else { WITHOUT_EFFECT },
    }
}

/// Every group config that `wanted` wants, as it holds for the group of this document.
#[must_use]
pub fn describe_group(document: &Settings, layers: Layers<'_>, wanted: &dyn Fn(&str) -> bool) -> Vec<ConfigEntry> {
    let configs = group_configs().values().filter(|known| wanted(known.name));
    configs
        .map(|known| {
            let said = match known.synonym {
                Some(name) => layers.said(name),
                None => known
                    .default
                    .map(|default| synonym(known.name, default, ConfigSource::Default))
                    .into_iter()
                    .collect(),
            };
            own_entry(known, document, said, ConfigSource::Group)
        })
        .collect()
}

/// Every config of a subscription that `wanted` wants.
#[must_use]
pub fn describe_client_metrics(document: &Settings, wanted: &dyn Fn(&str) -> bool) -> Vec<ConfigEntry> {
    let configs = client_metrics_configs().values().filter(|known| wanted(known.name));
    configs.map(|known| own_entry(known, document, Vec::new(), ConfigSource::ClientMetrics)).collect()
}

fn own_entry(
    known: &'static KnownConfig,
    document: &Settings,
    mut said: Vec<ConfigSynonym>,
    own: ConfigSource,
) -> ConfigEntry {
    if let Some(value) = document.get(known.name) {
        said.insert(0, synonym(known.name, value, own));
    }
    let first = said.first();
    ConfigEntry {
        name: known.name.to_owned(),
        value: first.and_then(|first| first.value.clone()).or_else(|| known.default.map(str::to_owned)),
        source: first.map_or(ConfigSource::Default, |first| first.source),
        read_only: false,
        sensitive: false,
        kind: known.kind,
        synonyms: said,
        doc: WITHOUT_EFFECT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TOPIC_CONFIGS;

    const NOTHING: &Settings = &Settings::new();
    const BARE: Layers<'static> = Layers { node: NOTHING, cluster: NOTHING, fixed: NOTHING };

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn one(entries: Vec<ConfigEntry>, name: &str) -> ConfigEntry {
        entries.into_iter().find(|entry| entry.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn a_topic_shows_everything_with_its_source() {
        let config = TopicConfig { raw: settings(&[("retention.ms", "5")]), ..TopicConfig::default() };
        let cluster = settings(&[("log.segment.bytes", "2000000")]);
        let layers = Layers { cluster: &cluster, ..BARE };
        let all = describe_topic(&config, layers, &|_| true);
        assert_eq!(all.len(), TOPIC_CONFIGS.len());
        let retention = one(all.clone(), "retention.ms");
        assert_eq!((retention.value.as_deref(), retention.source), (Some("5"), ConfigSource::Topic));
        let segment = one(all.clone(), "segment.bytes");
        assert_eq!((segment.value.as_deref(), segment.source), (Some("2000000"), ConfigSource::DynamicDefaultBroker));
        assert_eq!(segment.synonyms.iter().map(|s| s.source.code()).collect::<Vec<_>>(), [3, 5]);
        let policy = one(all, "cleanup.policy");
        assert_eq!((policy.value.as_deref(), policy.source), (Some("delete"), ConfigSource::Default));
        assert_eq!(describe_topic(&config, BARE, &|name| name == "retention.ms").len(), 1);
    }

    #[test]
    fn what_kafka_hides_is_shown_where_it_is_set() {
        let config = TopicConfig { raw: settings(&[("internal.segment.bytes", "1000")]), ..TopicConfig::default() };
        let all = describe_topic(&config, BARE, &|_| true);
        assert!(all.len() == TOPIC_CONFIGS.len() + 1 && all.is_sorted_by_key(|entry| entry.name.clone()));
        let hidden = one(all, "internal.segment.bytes");
        assert_eq!((hidden.value.as_deref(), hidden.source), (Some("1000"), ConfigSource::Topic));
        assert_eq!(hidden.synonyms, [synonym("internal.segment.bytes", "1000", ConfigSource::Topic)]);
    }

    #[test]
    fn units_of_brokers_become_those_of_topics() {
        let fixed = settings(&[("log.roll.hours", "2")]);
        let entry =
            one(describe_topic(&TopicConfig::default(), Layers { fixed: &fixed, ..BARE }, &|_| true), "segment.ms");
        assert_eq!((entry.value.as_deref(), entry.source), (Some("7200000"), ConfigSource::StaticBroker));
        let entry = one(describe_topic(&TopicConfig::default(), BARE, &|_| true), "segment.ms");
        assert_eq!((entry.value.as_deref(), entry.source), (Some("604800000"), ConfigSource::Default));
    }

    #[test]
    fn a_broker_shows_everything_that_kafka_would() {
        let node = settings(&[("num.partitions", "3"), ("listener.name.x.max.connections", "5")]);
        let facts = Facts { values: settings(&[("node.id", "7")]) };
        let all = describe_broker(&facts, Layers { node: &node, ..BARE }, &|_| true);
        assert!(all.len() > 340, "{}", all.len());
        let entry = one(all.clone(), "num.partitions");
        assert_eq!((entry.value.as_deref(), entry.source), (Some("3"), ConfigSource::DynamicBroker));
        assert!(!entry.read_only);
        let entry = one(all.clone(), "node.id");
        assert_eq!(
            (entry.value.as_deref(), entry.source, entry.read_only),
            (Some("7"), ConfigSource::StaticBroker, true)
        );
        let entry = one(all.clone(), "ssl.key.password");
        assert_eq!((entry.value, entry.sensitive), (None, true));
        let entry = one(all.clone(), "listener.name.x.max.connections");
        assert_eq!(entry.value.as_deref(), Some("5"));
        assert!(all.iter().all(|entry| !entry.doc.is_empty()));
    }

    #[test]
    fn groups_and_subscriptions() {
        let document = settings(&[("consumer.session.timeout.ms", "50000")]);
        let fixed = settings(&[("group.share.session.timeout.ms", "46000")]);
        let all = describe_group(&document, Layers { fixed: &fixed, ..BARE }, &|_| true);
        let row = |name| {
            let entry = one(all.clone(), name);
            (entry.value.unwrap(), entry.source)
        };
        assert_eq!(row("consumer.session.timeout.ms"), ("50000".to_owned(), ConfigSource::Group));
        assert_eq!(row("share.session.timeout.ms"), ("46000".to_owned(), ConfigSource::StaticBroker));
        assert_eq!(row("share.isolation.level"), ("read_uncommitted".to_owned(), ConfigSource::Default));
        let all = describe_client_metrics(&settings(&[("interval.ms", "1000")]), &|_| true);
        let sources: Vec<_> = all.iter().map(|entry| (entry.name.as_str(), entry.source.code())).collect();
        assert_eq!(sources, [("interval.ms", 7), ("match", 5), ("metrics", 5)]);
    }
}
