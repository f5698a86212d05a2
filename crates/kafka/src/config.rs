//! Kafka's configuration names: configs of topics and brokers, by Kafka's names.
//!
//! [`TOPIC_CONFIGS`] and [`BROKER_SETTINGS`] say what has a meaning here. The three tables beside this file
//! (`config/*.tsv`, written by `ConfigTables.java` out of Kafka's own classes) hold every name that Kafka 4.3 knows;
//! the tests hold our tables against them. Error texts are those of Kafka's `ConfigDef`, because tools show them.

mod broker;
mod change;
mod check;
mod coordinator;
mod describe;
mod error;
mod known;
mod layers;
mod live;
mod names;
mod parse;
mod parsed;
mod topic;
mod value;

pub use broker::{BROKER_SETTINGS, BrokerSetting, OWN_SETTINGS, ParsedSettings, broker_setting, parse_broker_settings};
pub use change::{ConfigEdit, ConfigOp, Refused, Resource, VALUE_BYTES_MAX, edited, replaced};
pub use check::{check_broker, check_client_metrics, check_group, check_topic};
pub use describe::{
    ConfigEntry, ConfigSource, ConfigSynonym, Facts, describe_broker, describe_client_metrics, describe_cluster,
    describe_group, describe_topic,
};
pub use error::ConfigError;
pub use known::{
    KnownConfig, KnownConfigs, UpdateMode, broker_config, broker_configs, client_metrics_configs, group_configs,
};
pub use layers::Layers;
pub use live::{Fixed, LiveSettings};
pub use names::{Tolerated, known_broker_names, nearest, tolerated, tolerated_broker_names};
pub use parse::parse_topic_config;
pub use parsed::{BrokerSettings, ConsumerGroupSettings, GroupSettings, ListenerSettings, LogSettings};
pub use topic::{
    DURABILITY, Effect, Source, Synonym, TOPIC_CONFIGS, TopicConfigDef, TopicConfigValue, topic_config_def,
    topic_config_values,
};
pub use value::{Kind, Valid, Value};
