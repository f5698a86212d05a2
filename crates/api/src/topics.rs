//! Creating, changing and deleting topics.

use crate::catalog::TopicInfo;
use crate::config::TopicConfig;
use crate::settings::Settings;
use polylogue_types::TopicId;
use std::sync::Arc;

/// A topic to create; name, counts and config were validated by the session in its protocol's own words.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// The name; must be free.
    pub name: String,
    /// How many partitions, at least 1.
    pub partitions: u32,
    /// Its settings, complete.
    pub config: TopicConfig,
    /// Whether clients should hide it from users.
    pub internal: bool,
}

/// See [`crate::Request::CreateTopics`].
#[derive(Clone, Debug)]
pub struct CreateTopics {
    /// What to create; each succeeds or fails by itself.
    pub topics: Vec<NewTopic>,
    /// Only say what would happen.
    pub validate_only: bool,
}

/// A topic was created.
#[derive(Clone, Debug)]
pub struct CreatedTopic {
    /// What it is now (with a zero id and no partition ids when only validated).
    pub topic: Arc<TopicInfo>,
}

/// Names a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopicRef {
    /// By name.
    Name(String),
    /// By incarnation.
    Id(TopicId),
}

/// Changes of a topic.
#[derive(Clone, Debug)]
pub struct TopicChange {
    /// Which topic.
    pub topic: TopicId,
    /// New settings for it.
    pub config: Option<ConfigChange>,
    /// More partitions for it.
    pub partitions: Option<PartitionsChange>,
}

/// New settings of a topic.
#[derive(Clone, Debug)]
pub struct ConfigChange {
    /// What the caller believes to be set for the topic now ([`TopicConfig::raw`]); when something else is, nothing
    /// changes ([`crate::AlterError::Conflict`]), so that of two changes at the same time none is lost.
    pub expected: Settings,
    /// The settings, complete. Their durability holds for what is appended once they are applied; it cannot become
    /// [`Durability::Memory`](crate::Durability::Memory), nor anything else where it is.
    pub config: TopicConfig,
}

/// More partitions for a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionsChange {
    /// How many the caller believes it to have.
    pub from: u32,
    /// The new number; at least `from`.
    pub to: u32,
}

/// See [`crate::Request::AlterTopics`].
#[derive(Clone, Debug)]
pub struct AlterTopics {
    /// The changes; each succeeds or fails by itself.
    pub changes: Vec<TopicChange>,
    /// Only say what would happen.
    pub validate_only: bool,
}

/// See [`crate::Request::DeleteTopics`].
#[derive(Clone, Debug)]
pub struct DeleteTopics {
    /// What to delete.
    pub topics: Vec<TopicRef>,
}

/// A topic was deleted.
#[derive(Clone, Debug)]
pub struct DeletedTopic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: TopicId,
}

/// Why a topic was not created or deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopicError {
    /// The name is taken.
    Exists,
    /// No such name.
    UnknownName,
    /// No such id.
    UnknownId,
    /// More partitions than the broker will hold.
    TooManyPartitions {
        /// The bound on all partitions together (`partitions_max`).
        partitions_max: u64,
    },
    /// See [`crate::Unavailable`].
    Unavailable(crate::Unavailable),
}
