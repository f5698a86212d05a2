//! Every broker, group and client-metrics config that Kafka 4.3 knows, with type, default, valid values, and whether it
//! can be changed while the broker runs.

use super::broker::{BROKER_SETTINGS, OWN_SETTINGS, broker_setting};
use super::value::{Kind, Valid};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const BROKER_TABLE: &str = include_str!("broker_names.tsv");
const GROUP_TABLE: &str = include_str!("group_configs.tsv");

/// How a broker config can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateMode {
    /// Only by a start with another configuration.
    ReadOnly,
    /// While running, for one broker or for all.
    Cluster,
    /// While running, for one broker at a time.
    Node,
}

/// What is known of a config.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KnownConfig {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The value that holds when nothing is said; `None` for none.
    pub default: Option<&'static str>,
    /// Which values are taken.
    pub valid: Valid,
    /// Kafka hides it from users.
    pub internal: bool,
    /// How it can be changed.
    pub update: UpdateMode,
    /// The broker config that sets its default, of a group config.
    pub synonym: Option<&'static str>,
    /// What it does here, in one line; empty when it does nothing.
    pub doc: &'static str,
}

/// Configs by name.
pub type KnownConfigs = BTreeMap<&'static str, KnownConfig>;

/// Broker settings that Kafka reads at its start only and that can be changed here while the broker runs.
const DYNAMIC_HERE: [&str; 9] = [
    "auto.create.topics.enable",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.retention.check.interval.ms",
    "offsets.retention.minutes",
];

/// Broker configs: Kafka's, and our own (`polylogue.*`).
pub fn broker_configs() -> &'static KnownConfigs {
    static CONFIGS: OnceLock<KnownConfigs> = OnceLock::new();
    CONFIGS.get_or_init(|| {
        let mut configs: KnownConfigs = rows(BROKER_TABLE).map(|row| (row.name, row)).collect();
        for setting in BROKER_SETTINGS {
            if let Some(known) = configs.get_mut(setting.name) {
                known.doc = setting.doc;
                // Where ours differs from Kafka's.
                known.default = Some(setting.default).filter(|default| !default.is_empty()).or(known.default);
            } else {
                // Of Kafka's authorizer, whose configs are in no table of its brokers'.
                let (name, kind, valid, doc) = (setting.name, setting.kind, setting.valid, setting.doc);
                let default = Some(setting.default);
                let update = UpdateMode::ReadOnly;
                let known = KnownConfig { name, kind, default, valid, internal: false, update, synonym: None, doc };
                configs.insert(name, known);
            }
        }
        for name in DYNAMIC_HERE {
            if let Some(known) = configs.get_mut(name) {
                known.update = UpdateMode::Cluster;
            }
        }
        configs.extend(OWN_SETTINGS.iter().map(|own| {
            let known = KnownConfig {
                name: own.name,
                kind: own.kind,
                default: Some(own.default),
                valid: own.valid,
                internal: false,
                update: UpdateMode::Cluster,
                synonym: None,
                doc: own.doc,
            };
            (own.name, known)
        }));
        configs
    })
}

/// What is known of a broker config: under its own name, or for one listener (`listener.name.LISTENER.NAME`).
#[must_use]
pub fn broker_config(name: &str) -> Option<&'static KnownConfig> {
    broker_configs().get(for_all_listeners(name).unwrap_or(name))
}

/// The config that `listener.name.LISTENER.NAME` sets for one listener.
pub(super) fn for_all_listeners(name: &str) -> Option<&str> {
    name.strip_prefix("listener.name.").and_then(|rest| rest.split_once('.')).map(|(_listener, name)| name)
}

/// Group configs.
pub fn group_configs() -> &'static KnownConfigs {
    static CONFIGS: OnceLock<KnownConfigs> = OnceLock::new();
    CONFIGS.get_or_init(|| rows(GROUP_TABLE).map(|row| (row.name, row)).collect())
}

/// Configs of subscriptions to clients' metrics (KIP-714).
pub fn client_metrics_configs() -> &'static KnownConfigs {
    static CONFIGS: OnceLock<KnownConfigs> = OnceLock::new();
    CONFIGS.get_or_init(|| {
        let config = |name, kind, default| KnownConfig {
            name,
            kind,
            default: Some(default),
            valid: Valid::Any,
            internal: false,
            update: UpdateMode::Cluster,
            synonym: None,
            doc: "",
        };
        let all = [
            config("interval.ms", Kind::Int, "300000"),
            config("match", Kind::List, ""),
            config("metrics", Kind::List, ""),
        ];
        all.into_iter().map(|config| (config.name, config)).collect()
    })
}

fn rows(table: &'static str) -> impl Iterator<Item = KnownConfig> {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(row)
}

/// name, type, default, valid values, importance, internal, and the update mode or a synonym.
fn row(line: &'static str) -> Option<KnownConfig> {
    let mut columns = line.split('\t');
    let name = columns.next()?;
    let kind = Kind::of_name(columns.next()?)?;
    let default = columns.next().filter(|default| !matches!(*default, "(null)" | "(required)"));
    let valid = columns.next().map_or(Valid::Any, |text| valid(text, kind));
    let internal = columns.nth(1) == Some("true");
    let last = columns.next().unwrap_or_default();
    let (update, synonym) = match last {
        "read-only" => (UpdateMode::ReadOnly, None),
        "per-broker" => (UpdateMode::Node, None),
        "cluster-wide" | "" => (UpdateMode::Cluster, None),
        synonym => (UpdateMode::Cluster, Some(synonym)),
    };
    Some(KnownConfig { name, kind, default, valid, internal, update, synonym, doc: "" })
}

/// The bounds as Kafka's validators write themselves. What is checked elsewhere, or only at Kafka's start, is left out.
fn valid(text: &'static str, kind: Kind) -> Valid {
    let Some((list, or)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return Valid::Any };
    let or: Option<i64> = or.strip_prefix(" or ").and_then(|or| or.parse().ok());
    match kind {
        Kind::Short | Kind::Int | Kind::Long | Kind::Double => {
            let mut bounds = list.split(",...");
            let min = bounds.next().and_then(|min| min.parse().ok());
            let max = bounds.next().and_then(|max| max.strip_prefix(',')).map(str::parse::<i64>);
            match (min, max, or) {
                (Some(min), Some(Ok(max)), Some(or)) => Valid::BetweenOr(min, max, or),
                (Some(min), Some(Ok(max)), None) => Valid::Between(min, max),
                (Some(min), None, _) => Valid::AtLeast(min),
                _ => Valid::Any,
            }
        }
        Kind::String | Kind::List if !list.contains("by_duration") => {
            // once a process, for a table that is part of it
            Valid::OneOf(Vec::leak(list.split(", ").collect()))
        }
        _ => Valid::Any,
    }
}

/// Whether a broker setting does something here.
pub(super) fn has_effect(name: &str) -> bool {
    broker_setting(name).is_some() || OWN_SETTINGS.iter().any(|own| own.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_read_whole() {
        // And one of the authorizer.
        assert_eq!(broker_configs().len(), 363 + 1 + OWN_SETTINGS.len());
        let of_the_authorizer = broker_config("allow.everyone.if.no.acl.found").map(|known| known.update);
        assert_eq!(of_the_authorizer, Some(UpdateMode::ReadOnly), "no one gives himself what was not allowed");
        assert_eq!(group_configs().len(), 17);
        assert_eq!(client_metrics_configs().len(), 3);
    }

    #[test]
    fn our_table_says_the_same() {
        for setting in BROKER_SETTINGS {
            let known = broker_config(setting.name).unwrap();
            assert_eq!((known.kind, known.valid), (setting.kind, setting.valid), "{}", setting.name);
        }
    }

    #[test]
    fn update_modes() {
        let mode = |name| broker_config(name).unwrap().update;
        assert_eq!(mode("log.retention.ms"), UpdateMode::Cluster);
        assert_eq!(mode("log.retention.hours"), UpdateMode::ReadOnly);
        assert_eq!(mode("num.partitions"), UpdateMode::Cluster);
        assert_eq!(mode("ssl.keystore.password"), UpdateMode::Node);
        assert_eq!(mode("listener.name.x.max.connections"), UpdateMode::Cluster);
        assert!(DYNAMIC_HERE.iter().all(|name| broker_setting(name).is_some()));
    }

    #[test]
    fn bounds() {
        assert_eq!(valid("[2,...,10]", Kind::Int), Valid::Between(2, 10));
        assert_eq!(valid("[-1,...]", Kind::Int), Valid::AtLeast(-1));
        assert_eq!(valid("[1,...,9] or -1", Kind::Int), Valid::BetweenOr(1, 9, -1));
        assert_eq!(valid("[0,...,0.5]", Kind::Double), Valid::Any);
        assert_eq!(valid("[a, b]", Kind::List), Valid::OneOf(&["a", "b"]));
        assert_eq!(valid("non-empty list", Kind::List), Valid::Any);
    }
}
