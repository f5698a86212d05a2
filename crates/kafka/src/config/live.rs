//! The settings that hold now: what the broker was started with, and what operators set since.

use super::layers::Layers;
use super::parse_topic_config;
use super::parsed::BrokerSettings;
use super::{ParsedSettings, parse_broker_settings};
use crate::settings::KafkaSettings;
use arc_swap::ArcSwap;
use polylogue_api::machine::Command;
use polylogue_api::{ConfigResolver, Inherited, MachineId, Settings, TopicConfig, Tuning};
use polylogue_kafka_groups as groups;
use std::sync::Arc;

/// What the broker was started with. It holds where nothing else is set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fixed {
    /// What topics are when no setting of Kafka's says anything.
    pub topic_base: TopicConfig,
    /// Kafka's broker settings as they were given, and our own where they are not the default.
    pub raw: Settings,
    /// The data directory, as it is shown.
    pub data_dir: String,
}

/// What follows from the layers as they are.
#[derive(Debug)]
struct Current {
    settings: Arc<BrokerSettings>,
    sessions: Arc<KafkaSettings>,
    tuning: Tuning,
    /// Settings that cannot hold, with the reason.
    ignored: Vec<String>,
}

/// The settings of a running broker. It is what the broker resolves topics with, and what the server asks for the rest.
///
/// What was stored under other rules, or contradicts what the broker was started with, is left out and listed by
/// [`LiveSettings::ignored`]: a broker that does not start could not be made to forget it.
#[derive(Debug)]
pub struct LiveSettings {
    /// As sessions were set at the start.
    started: KafkaSettings,
    current: ArcSwap<Current>,
}

impl LiveSettings {
    /// With what sessions go by at the start; its [`KafkaSettings::fixed`] says what it was made of.
    #[must_use]
    pub fn new(started: KafkaSettings) -> LiveSettings {
        let current = resolve(&started, &Settings::new(), &Settings::new());
        LiveSettings { started, current: ArcSwap::from_pointee(current) }
    }

    /// What sessions go by.
    #[must_use]
    pub fn sessions(&self) -> Arc<KafkaSettings> {
        self.current.load().sessions.clone()
    }

    /// Looks at what sessions go by, without holding on to it: a connection does this for every piece of input.
    pub fn with_sessions<R>(&self, look: impl FnOnce(&KafkaSettings) -> R) -> R {
        look(&self.current.load().sessions)
    }

    /// Everything.
    #[must_use]
    pub fn settings(&self) -> Arc<BrokerSettings> {
        self.current.load().settings.clone()
    }

    /// Settings that are stored and do not hold, with the reason.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        self.current.load().ignored.clone()
    }
}

impl ConfigResolver for LiveSettings {
    fn settings_changed(&self, cluster: &Settings, node: &Settings) {
        self.current.store(Arc::new(resolve(&self.started, cluster, node)));
    }

    fn inherited(&self) -> Inherited {
        Inherited::new(self.current.load().sessions.topic_defaults.clone())
    }

    fn topic(&self, inherited: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig> {
        if layer.raw.is_empty() {
            return inherited.unnamed.clone();
        }
        // Settings that were valid when recorded, and contradict inherited ones now, stay in effect.
        parse_topic_config(&inherited.config, &layer.raw).map_or_else(|_| layer.clone(), Arc::new)
    }

    fn tuning(&self) -> Tuning {
        self.current.load().tuning
    }

    fn machine_commands(&self) -> Vec<(MachineId, Command)> {
        let settings = groups::GroupSettings::from(&self.current.load().settings.groups);
        vec![(MachineId::KAFKA_GROUPS, Box::new(settings))]
    }
}

/// What the layers come to. What of them cannot hold is left out, one name after the other.
fn resolve(started: &KafkaSettings, cluster: &Settings, node: &Settings) -> Current {
    let fixed = &started.fixed;
    let (mut cluster, mut node) = (cluster.clone(), node.clone());
    let mut ignored = Vec::new();
    let (merged, settings) = loop {
        let merged = Layers { node: &node, cluster: &cluster, fixed: &fixed.raw }.merged();
        match parse_broker_settings(&fixed.topic_base, &merged) {
            Ok(ParsedSettings { settings, .. }) => break (merged, settings),
            Err(error) => {
                ignored.push(error.to_string());
                let broken = error.name();
                if node.remove(broken).or_else(|| cluster.remove(broken)).is_none() {
                    // The fault is in how two values go together, under another name than theirs: nothing that is set
                    // while running counts then.
                    if node.is_empty() && cluster.is_empty() {
                        break (
                            fixed.raw.clone(),
                            BrokerSettings { sessions: started.clone(), ..BrokerSettings::default() },
                        );
                    }
                    node.clear();
                    cluster.clear();
                }
            }
        }
    };
    // With nothing set since, sessions go by exactly what they were started with.
    let sessions = if cluster.is_empty() && node.is_empty() {
        started.clone()
    } else {
        KafkaSettings {
            auto_create_topics: settings.sessions.auto_create_topics,
            partitions_default: settings.sessions.partitions_default,
            topic_defaults: settings.sessions.topic_defaults.clone(),
            ..started.clone()
        }
    };
    let number = |name: &str| merged.get(name).and_then(|text| text.trim().parse::<u64>().ok());
    let set = |name: &str| node.get(name).or_else(|| cluster.get(name)).and_then(|_| number(name));
    let tuning = Tuning {
        producer_expiration_ms: Some(settings.log.producer_expiration_ms),
        tail_cache_bytes: set("polylogue.tail.cache.bytes").map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
        merge_bytes_per_sec: set("polylogue.merge.bytes.per.second"),
    };
    Current { settings: Arc::new(settings), sessions: Arc::new(sessions), tuning, ignored }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn started(pairs: &[(&str, &str)]) -> LiveSettings {
        let raw = settings(pairs);
        let parsed = parse_broker_settings(&TopicConfig::default(), &raw).unwrap();
        let fixed = Fixed { raw, ..Fixed::default() };
        LiveSettings::new(KafkaSettings {
            fixed: Arc::new(fixed),
            inflight_requests_max: 3,
            ..parsed.settings.sessions
        })
    }

    /// What holds now for a topic of which that is set.
    fn held(live: &LiveSettings, layer: &TopicConfig) -> Arc<TopicConfig> {
        live.topic(&live.inherited(), &Arc::new(layer.clone()))
    }

    #[test]
    fn a_topic_inherits_what_holds_now_and_keeps_what_is_its_own() {
        let live = started(&[("log.retention.ms", "1000")]);
        let own = TopicConfig { raw: settings(&[("retention.bytes", "7")]), ..TopicConfig::default() };
        assert_eq!(held(&live, &own).retention_ms, Some(1_000));
        let before = live.inherited();
        live.settings_changed(&settings(&[("log.retention.ms", "2000")]), &Settings::new());
        assert_eq!((held(&live, &own).retention_ms, held(&live, &own).retention_bytes), (Some(2_000), Some(7)));
        live.settings_changed(&settings(&[("log.retention.ms", "2000")]), &settings(&[("log.retention.ms", "3000")]));
        assert_eq!(held(&live, &TopicConfig::default()).retention_ms, Some(3_000));
        assert!(held(&live, &TopicConfig::default()).raw.is_empty());
        // A pure function of the layers: what holds now changes nothing about it.
        assert_eq!(live.topic(&before, &Arc::new(own.clone())).retention_ms, Some(1_000));
        live.settings_changed(&Settings::new(), &Settings::new());
        assert_eq!(held(&live, &own).retention_ms, Some(1_000));
    }

    #[test]
    fn sessions_and_groups_and_the_broker_are_told() {
        let live = started(&[]);
        let cluster = settings(&[
            ("num.partitions", "6"),
            ("auto.create.topics.enable", "false"),
            ("group.max.size", "5"),
            ("polylogue.tail.cache.bytes", "2000000"),
            ("producer.id.expiration.ms", "9"),
        ]);
        live.settings_changed(&cluster, &Settings::new());
        let sessions = live.sessions();
        assert_eq!((sessions.partitions_default, sessions.auto_create_topics), (6, false));
        assert_eq!(sessions.inflight_requests_max, 3, "what the server decides stays");
        assert_eq!(live.settings().groups.members_max, 5);
        let tuning = live.tuning();
        assert_eq!((tuning.tail_cache_bytes, tuning.producer_expiration_ms), (Some(2_000_000), Some(9)));
        assert_eq!(tuning.merge_bytes_per_sec, None);
        assert!(live.ignored().is_empty());
    }

    #[test]
    fn what_cannot_hold_is_left_out_and_told() {
        let live = started(&[("num.partitions", "2")]);
        live.settings_changed(&settings(&[("num.partitions", "x"), ("log.retention.ms", "5")]), &Settings::new());
        assert_eq!(live.sessions().partitions_default, 2);
        assert_eq!(held(&live, &TopicConfig::default()).retention_ms, Some(5));
        assert_eq!(live.ignored().len(), 1);
    }
}
