//! Changing what is set for a topic, a broker, a group or a subscription: what is set before and what is asked for give what is
//! set after. Nothing is checked here but that the change itself makes sense; see [`super::check_topic`] and its neighbours.

use super::known::{broker_config, client_metrics_configs, group_configs};
use super::topic::topic_config_def;
use super::value::Kind;
use polylogue_api::Settings;
use polylogue_kafka_codec::ErrorCode;
use std::collections::BTreeSet;

/// The longest value (what fits a string of Kafka's protocol). Bytes.
pub const VALUE_BYTES_MAX: usize = i16::MAX as usize;

/// What something is set for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// A topic.
    Topic,
    /// One broker.
    Broker,
    /// All brokers.
    Cluster,
    /// A consumer group.
    Group,
    /// A subscription to clients' metrics.
    ClientMetrics,
}

/// The operation on one config.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigOp {
    /// Set it to the value.
    Set,
    /// Forget it.
    Delete,
    /// Add the elements of the value to the list.
    Append,
    /// Take the elements of the value from the list.
    Subtract,
}

impl ConfigOp {
    /// The operation of that number in IncrementalAlterConfigs.
    #[must_use]
    pub fn from_code(code: i8) -> Option<ConfigOp> {
        Some(match code {
            0 => ConfigOp::Set,
            1 => ConfigOp::Delete,
            2 => ConfigOp::Append,
            3 => ConfigOp::Subtract,
            _ => return None,
        })
    }

    /// Its number in IncrementalAlterConfigs.
    #[must_use]
    pub const fn code(self) -> i8 {
        match self {
            ConfigOp::Set => 0,
            ConfigOp::Delete => 1,
            ConfigOp::Append => 2,
            ConfigOp::Subtract => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ConfigOp::Set => "SET",
            ConfigOp::Delete => "DELETE",
            ConfigOp::Append => "APPEND",
            ConfigOp::Subtract => "SUBTRACT",
        }
    }
}

/// One change of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigEdit {
    /// Which.
    pub name: String,
    /// The operation.
    pub op: ConfigOp,
    /// With what; nothing for a deletion.
    pub value: Option<String>,
}

/// Why a change is refused: the error code and text for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// INVALID_CONFIG or INVALID_REQUEST.
    pub code: ErrorCode,
    /// Kafka's words where Kafka has some.
    pub text: String,
}

impl Refused {
    pub(super) fn config(text: impl Into<String>) -> Refused {
        Refused { code: ErrorCode::InvalidConfig, text: text.into() }
    }

    pub(super) fn request(text: impl Into<String>) -> Refused {
        Refused { code: ErrorCode::InvalidRequest, text: text.into() }
    }
}

/// What is set after `edits`.
///
/// # Errors
/// A name twice, an operation without a value, a list operation on what is no list, a value that is too long.
pub fn edited(resource: Resource, current: &Settings, edits: &[ConfigEdit]) -> Result<Settings, Refused> {
    no_duplicates(edits.iter().map(|edit| edit.name.as_str()))?;
    let no_value = |edit: &&ConfigEdit| edit.op != ConfigOp::Delete && edit.value.is_none();
    no_nulls(edits.iter().filter(no_value).map(|edit| edit.name.as_str()))?;
    let mut settings = current.clone();
    for ConfigEdit { name, op, value } in edits {
        let value = value.as_deref().unwrap_or_default();
        let value = match op {
            ConfigOp::Set => value.to_owned(),
            ConfigOp::Delete => {
                settings.remove(name);
                continue;
            }
            ConfigOp::Append | ConfigOp::Subtract => changed_list(resource, settings.get(name), name, *op, value)?,
        };
        put(&mut settings, name, value)?;
    }
    Ok(settings)
}

/// What is set when exactly `configs` are.
///
/// # Errors
/// A name twice, a name without a value, a value that is too long.
pub fn replaced(configs: &[(String, Option<String>)]) -> Result<Settings, Refused> {
    no_duplicates(configs.iter().map(|(name, _)| name.as_str()))?;
    no_nulls(configs.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.as_str()))?;
    let mut settings = Settings::new();
    for (name, value) in configs {
        put(&mut settings, name, value.clone().unwrap_or_default())?;
    }
    Ok(settings)
}

fn put(settings: &mut Settings, name: &str, value: String) -> Result<(), Refused> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Refused::config(format!(
            "The configuration value cannot be added because it exceeds the maximum value size of {VALUE_BYTES_MAX} bytes."
        )));
    }
    settings.insert(name.to_owned(), value);
    Ok(())
}

fn no_duplicates<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Refused> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Refused::request("Error due to duplicate config keys"));
        }
    }
    Ok(())
}

fn no_nulls<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Refused> {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Refused::request(format!("Null value not supported for : {}", names.join(", "))))
}

/// Type and default of a name; `None` for an unknown one.
fn kind_of(resource: Resource, name: &str) -> Option<(Kind, &'static str)> {
    let known = match resource {
        Resource::Topic => return topic_config_def(name).map(|def| (def.kind, def.default)),
        Resource::Broker | Resource::Cluster => broker_config(name),
        Resource::Group => group_configs().get(name),
        Resource::ClientMetrics => client_metrics_configs().get(name),
    };
    known.map(|known| (known.kind, known.default.unwrap_or_default()))
}

/// A list with elements appended or subtracted. An unset list starts from Kafka's default.
fn changed_list(
    resource: Resource,
    current: Option<&String>,
    name: &str,
    op: ConfigOp,
    value: &str,
) -> Result<String, Refused> {
    let known = kind_of(resource, name);
    let of_broker = matches!(resource, Resource::Broker | Resource::Cluster);
    let default = match known {
        Some((Kind::List, default)) => default,
        None if of_broker => return Err(Refused::config(format!("Unknown config name: {name}"))),
        Some(_) if of_broker => {
            let op = op.name().to_ascii_lowercase();
            return Err(Refused::config(format!("Config value {op} is not allowed for config key: {name}")));
        }
        _ => {
            let op = op.name();
            return Err(Refused::config(format!("Can't {op} to key {name} because its type is not LIST.")));
        }
    };
    let mut elements: Vec<&str> =
        current.map_or(default, String::as_str).split(',').filter(|element| !element.is_empty()).collect();
    if op == ConfigOp::Subtract {
        let gone: BTreeSet<_> = value.split(',').collect();
        elements.retain(|element| !gone.contains(element));
    } else {
        let mut known: BTreeSet<_> = elements.iter().copied().collect();
        elements.extend(value.split(',').filter(|element| known.insert(element)));
    }
    Ok(elements.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn edit(name: &str, op: ConfigOp, value: Option<&str>) -> ConfigEdit {
        ConfigEdit { name: name.to_owned(), op, value: value.map(str::to_owned) }
    }

    fn topic(current: &[(&str, &str)], edits: &[ConfigEdit]) -> Result<Settings, String> {
        edited(Resource::Topic, &settings(current), edits).map_err(|refused| refused.text)
    }

    #[test]
    fn set_and_delete() {
        let before = [("retention.ms", "1"), ("retention.bytes", "2")];
        let edits = [edit("retention.ms", ConfigOp::Set, Some("5")), edit("retention.bytes", ConfigOp::Delete, None)];
        assert_eq!(topic(&before, &edits), Ok(settings(&[("retention.ms", "5")])));
        assert_eq!(topic(&[], &[edit("retention.ms", ConfigOp::Delete, Some("ignored"))]), Ok(Settings::new()));
    }

    #[test]
    fn lists_grow_and_shrink_from_their_default() {
        let append = |value| edit("cleanup.policy", ConfigOp::Append, Some(value));
        let subtract = |value| edit("cleanup.policy", ConfigOp::Subtract, Some(value));
        assert_eq!(topic(&[], &[append("compact")]), Ok(settings(&[("cleanup.policy", "delete,compact")])));
        assert_eq!(topic(&[], &[append("delete")]), Ok(settings(&[("cleanup.policy", "delete")])));
        let both = [("cleanup.policy", "compact,delete")];
        assert_eq!(topic(&both, &[subtract("delete")]), Ok(settings(&[("cleanup.policy", "compact")])));
        assert_eq!(topic(&both, &[subtract("other")]), Ok(settings(&both)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let twice = [edit("retention.ms", ConfigOp::Set, Some("1")), edit("retention.ms", ConfigOp::Delete, None)];
        assert_eq!(topic(&[], &twice), Err("Error due to duplicate config keys".to_owned()));
        let null = [edit("retention.ms", ConfigOp::Set, None)];
        assert_eq!(topic(&[], &null), Err("Null value not supported for : retention.ms".to_owned()));
        let no_list = [edit("retention.ms", ConfigOp::Append, Some("1"))];
        let text = "Can't APPEND to key retention.ms because its type is not LIST.";
        assert_eq!(topic(&[], &no_list), Err(text.to_owned()));
        let long = [edit("x", ConfigOp::Set, Some(&"v".repeat(VALUE_BYTES_MAX + 1)))];
        assert!(topic(&[], &long).unwrap_err().contains("exceeds the maximum value size of 32767 bytes"));
        let of_broker =
            edited(Resource::Broker, &Settings::new(), &[edit("num.partitions", ConfigOp::Subtract, Some("1"))]);
        assert_eq!(of_broker.unwrap_err().text, "Config value subtract is not allowed for config key: num.partitions");
        let unknown = edited(Resource::Cluster, &Settings::new(), &[edit("no.such", ConfigOp::Append, Some("1"))]);
        assert_eq!(unknown.unwrap_err(), Refused::config("Unknown config name: no.such"));
    }

    #[test]
    fn a_replacement_forgets_the_rest() {
        let configs = [("a".to_owned(), Some("1".to_owned()))];
        assert_eq!(replaced(&configs), Ok(settings(&[("a", "1")])));
        assert_eq!(replaced(&[("a".to_owned(), None)]).unwrap_err().text, "Null value not supported for : a");
        let twice = [configs[0].clone(), configs[0].clone()];
        assert_eq!(replaced(&twice).unwrap_err().code, ErrorCode::InvalidRequest);
    }
}
