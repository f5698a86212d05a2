//! Changing topics and what is set while the server runs.

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
    /// Topic configs to forget: what the broker says holds again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
    /// How many partitions it is to have; more than it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Only say whether it could be done.
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
    /// Settings to forget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<String>,
    /// Only say whether it could be done.
    #[serde(default)]
    pub validate_only: bool,
}

/// `GET /settings/...`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingsList {
    /// By name.
    pub settings: Vec<SettingValue>,
}

/// One setting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingValue {
    /// Its name.
    pub name: String,
    /// The value that holds; null for none, and for a secret.
    pub value: Option<String>,
    /// Who set it, as Kafka's tools call it: `DYNAMIC_BROKER_CONFIG`, `STATIC_BROKER_CONFIG`, `DEFAULT_CONFIG`, ...
    pub source: String,
    /// Whether it cannot be changed while the server runs.
    pub read_only: bool,
    /// Whether its value is a secret.
    pub sensitive: bool,
    /// What it does.
    pub doc: String,
}
