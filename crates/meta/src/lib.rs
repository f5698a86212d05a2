//! Topics, settings, shards, partition ids, producer ids: a state machine on the log.
//!
//! Layer 4. Nothing here does I/O: the broker hosts [`MetaMachine`] like any other machine, and publishes what it
//! applied through [`SharedCatalog`].
//!
//! **Invariants.** Partition, topic and producer ids are never reused: the next ones only grow, and are part of the
//! applied state. A topic's name is free again as soon as its deletion is *proposed*, its id never.

mod alter;
mod catalog;
mod machine;
mod queue;
mod record;
mod shards;

pub use alter::{DOCUMENT_BYTES_MAX, DOCUMENTS_MAX};
pub use catalog::SharedCatalog;
pub use machine::{MetaCommand, MetaEvent, MetaMachine, MetaReply, MetaSettings, TopicMeta};
pub use record::{FIRST_CLIENT_PARTITION, decode_topic_config, encode_topic_config};
pub use shards::{FEATURE_LEVEL, META_SHARD, SLOTS, ShardUse, Shards, SlotMap, slot_of};
