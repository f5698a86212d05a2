//! Moving the committed offsets of a group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /groups/NAME/reset`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetGroup {
    /// Where: at least one topic.
    pub topics: Vec<ResetTopic>,
    /// To which offsets.
    pub to: ResetTo,
    /// Only say what would happen.
    #[serde(default)]
    pub validate_only: bool,
}

/// One topic of a reset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetTopic {
    /// Its name.
    pub topic: String,
    /// Which of its partitions; all of them without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<i32>>,
}

/// Which offset each partition gets. What lies outside of a partition becomes its nearer end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResetTo {
    /// The first there is.
    Earliest,
    /// The one after the last message.
    Latest,
    /// This one.
    Offset(i64),
    /// That of the first message at or after this time, else as `latest`. Milliseconds since 1970.
    TimeMs(i64),
    /// As many after the committed one as this says, or before it when negative.
    ShiftBy(i64),
}

/// The answer to a reset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupReset {
    /// The group.
    pub group: String,
    /// Whether the offsets are committed, or this only says what would be.
    pub executed: bool,
    /// Each partition, by topic and number.
    pub offsets: Vec<ResetOffset>,
}

/// One partition of a reset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ResetOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// What was committed before, if anything was.
    pub before: Option<i64>,
    /// What is committed now.
    pub offset: i64,
    /// Why that is not what was asked for, when it is not.
    pub note: Option<String>,
}
