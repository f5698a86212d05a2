//! Changes of topics and of dynamic settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `PATCH /topics/NAME`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlterTopic {
    /// Topic configs to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// Topic configs to delete: the broker's value applies again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
    /// The new number of partitions; must be more than the topic has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Only validate the request.
    #[serde(default)]
    pub validate_only: bool,
}

/// `PATCH /settings/...`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeSettings {
    /// Settings to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// Settings to delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
    /// Only validate the request.
    #[serde(default)]
    pub validate_only: bool,
}

/// `GET /settings/...`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingsList {
    /// Sorted by name.
    pub settings: Vec<SettingValue>,
}

/// One setting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingValue {
    /// The setting's name.
    pub name: String,
    /// The effective value; null for none, and for a secret.
    pub value: Option<String>,
    /// Where the value was set, by Kafka's names: `DYNAMIC_BROKER_CONFIG`, `STATIC_BROKER_CONFIG`, `DEFAULT_CONFIG`, ...
    pub source: String,
    /// Whether the setting cannot be changed while the server runs.
    pub read_only: bool,
    /// Whether the value is a secret.
    pub sensitive: bool,
    /// The description.
    pub doc: String,
}
