//! What is set for a broker, in layers: its own document, the cluster's, what it was started with.

use super::describe::{ConfigSource, ConfigSynonym};
use super::known::{broker_configs, for_all_listeners};
use polylogue_api::Settings;

/// Broker settings that say the same in different units, or stand in for each other: the first that is set counts. One that is
/// set in a higher layer hides all of them in the lower ones.
const FAMILIES: &[&[&str]] = &[
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
];

/// What is set for a broker, highest layer first.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// This broker's own document.
    pub node: &'a Settings,
    /// The document of all brokers.
    pub cluster: &'a Settings,
    /// What it was started with.
    pub fixed: &'a Settings,
}

/// The names that are looked up for a broker setting, in their order.
fn family(name: &str) -> Vec<&str> {
    if let Some(family) = FAMILIES.iter().find(|family| family.contains(&name)) {
        return family.to_vec();
    }
    std::iter::once(name).chain(for_all_listeners(name)).collect()
}

impl Layers<'_> {
    /// What holds: every setting that is set in some layer and hidden by none.
    #[must_use]
    pub fn merged(&self) -> Settings {
        let mut merged = self.fixed.clone();
        for layer in [self.cluster, self.node] {
            for name in layer.keys() {
                // What is set for one listener hides nothing of the others.
                FAMILIES
                    .iter()
                    .filter(|f| f.contains(&name.as_str()))
                    .for_each(|f| merged.retain(|n, _| !f.contains(&n.as_str())));
            }
            merged.extend(layer.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        merged
    }

    /// Everything that is said about a setting, what counts first, Kafka's default last.
    #[must_use]
    pub fn said(&self, name: &str) -> Vec<ConfigSynonym> {
        let names = family(name);
        let mut said = Vec::new();
        for (layer, source) in [
            (self.node, ConfigSource::DynamicBroker),
            (self.cluster, ConfigSource::DynamicDefaultBroker),
            (self.fixed, ConfigSource::StaticBroker),
        ] {
            said.extend(names.iter().filter_map(|name| {
                let value = layer.get(*name)?.clone();
                Some(ConfigSynonym { name: (*name).to_owned(), value: Some(value), source })
            }));
        }
        said.extend(names.iter().filter_map(|name| {
            let value = broker_configs().get(name)?.default?.to_owned();
            Some(ConfigSynonym { name: (*name).to_owned(), value: Some(value), source: ConfigSource::Default })
        }));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_higher_layer_hides_the_whole_family() {
        let fixed = settings(&[("log.retention.ms", "1"), ("num.partitions", "3")]);
        let cluster = settings(&[("log.retention.minutes", "2")]);
        let layers = Layers { node: &Settings::new(), cluster: &cluster, fixed: &fixed };
        assert_eq!(layers.merged(), settings(&[("log.retention.minutes", "2"), ("num.partitions", "3")]));
    }

    #[test]
    fn what_is_said_is_told_in_order() {
        let fixed = settings(&[("log.retention.hours", "24")]);
        let (cluster, node) = (settings(&[("log.retention.ms", "5")]), settings(&[("log.retention.ms", "6")]));
        let layers = Layers { node: &node, cluster: &cluster, fixed: &fixed };
        let said: Vec<_> = layers.said("log.retention.ms").into_iter().map(|s| (s.name, s.value, s.source)).collect();
        let row = |name: &str, value: &str, source| (name.to_owned(), Some(value.to_owned()), source);
        let expected = [
            row("log.retention.ms", "6", ConfigSource::DynamicBroker),
            row("log.retention.ms", "5", ConfigSource::DynamicDefaultBroker),
            row("log.retention.hours", "24", ConfigSource::StaticBroker),
            row("log.retention.hours", "168", ConfigSource::Default),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_listeners_own_setting_hides_nothing() {
        let cluster = settings(&[("listener.name.x.max.connections", "5")]);
        let fixed = settings(&[("max.connections", "9")]);
        let layers = Layers { node: &Settings::new(), cluster: &cluster, fixed: &fixed };
        assert_eq!(layers.merged().get("max.connections").map(String::as_str), Some("9"));
        let said = layers.said("listener.name.x.max.connections");
        assert_eq!(
            said.iter().map(|s| s.value.as_deref()).collect::<Vec<_>>(),
            [Some("5"), Some("9"), Some("2147483647")]
        );
    }
}
