//! Resetting the committed offsets of a group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /groups/NAME/reset`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetGroup {
    /// The topics to reset; at least one.
    pub topics: Vec<ResetTopic>,
    /// The target offsets.
    pub to: ResetTo,
    /// Only report the new offsets.
    #[serde(default)]
    pub validate_only: bool,
}

/// One topic of a reset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetTopic {
    /// The topic's name.
    pub topic: String,
    /// The partitions to reset; all if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<i32>>,
}

/// The new offset of each partition. An offset out of range is replaced by the nearer end of the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResetTo {
    /// The log start offset.
    Earliest,
    /// The high watermark.
    Latest,
    /// This offset.
    Offset(i64),
    /// The first message with this timestamp or a later one; as `latest` if there is none. Milliseconds since 1970.
    TimeMs(i64),
    /// The committed offset plus this number.
    ShiftBy(i64),
}

/// Response to a reset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupReset {
    /// The group id.
    pub group: String,
    /// Whether the offsets were committed; false for a dry run.
    pub executed: bool,
    /// The partitions, sorted by topic and number.
    pub offsets: Vec<ResetOffset>,
}

/// One partition of a reset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ResetOffset {
    /// The topic's name.
    pub topic: String,
    /// The partition number.
    pub partition: i32,
    /// The committed offset before the reset, if there was one.
    pub before: Option<i64>,
    /// The new committed offset.
    pub offset: i64,
    /// Why the new offset is not the requested one, if it is not.
    pub note: Option<String>,
}
