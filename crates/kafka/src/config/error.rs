//! Why a configuration is refused, in Kafka's words.

use std::fmt;

/// What is wrong with a name or a value. The texts are those of Kafka where Kafka has one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// No topic config is called that.
    UnknownTopicConfig(String),
    /// No broker config of Kafka 4.3 is called that.
    UnknownBrokerConfig {
        /// The name given.
        name: String,
        /// The known name that it resembles most, if any does.
        nearest: Option<&'static str>,
    },
    /// A topic config that is set for a broker.
    TopicConfig {
        /// The name given.
        name: String,
        /// The broker config that sets its default; `None` where there is none.
        broker: Option<&'static str>,
    },
    /// The value does not fit the name.
    Invalid {
        /// The name.
        name: String,
        /// The value given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A list has an empty element.
    EmptyElement {
        /// The name.
        name: String,
    },
    /// Two values, each valid alone, contradict each other.
    Conflict {
        /// One name.
        name: &'static str,
        /// Its value.
        value: String,
        /// How the two contradict each other: `>` or `and`.
        relation: &'static str,
        /// The other name.
        other: &'static str,
        /// Its value.
        other_value: String,
    },
}

impl ConfigError {
    /// The config that is at fault; of two that contradict each other the first.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            ConfigError::UnknownTopicConfig(name)
            | ConfigError::UnknownBrokerConfig { name, .. }
            | ConfigError::TopicConfig { name, .. }
            | ConfigError::Invalid { name, .. }
            | ConfigError::EmptyElement { name } => name,
            ConfigError::Conflict { name, .. } => name,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::UnknownTopicConfig(name) => write!(f, "Unknown topic config name: {name}"),
            ConfigError::UnknownBrokerConfig { name, nearest: Some(nearest) } => {
                write!(f, "Unknown broker config name: {name} (did you mean {nearest}?)")
            }
            ConfigError::UnknownBrokerConfig { name, nearest: None } => {
                write!(f, "Unknown broker config name: {name}")
            }
            ConfigError::TopicConfig { name, broker: Some(broker) } => {
                write!(f, "Unknown broker config name: {name} (a topic config; for all topics it is {broker})")
            }
            ConfigError::TopicConfig { name, broker: None } => {
                write!(f, "Unknown broker config name: {name} (a topic config, which is set for topics alone)")
            }
            ConfigError::Invalid { name, value, reason } => {
                write!(f, "Invalid value {value} for configuration {name}: {reason}")
            }
            ConfigError::EmptyElement { name } => write!(f, "Configuration '{name}' values must not be empty."),
            ConfigError::Conflict { name, value, relation, other, other_value } => {
                write!(f, "conflict topic config setting {name} ({value}) {relation} {other} ({other_value})")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
