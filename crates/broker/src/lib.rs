//! The broker core: partitions, cursors, hosted state machines, admission.
//!
//! Layer 4. It speaks `polylogue_api` upwards and `polylogue_replicate` and `polylogue_log` downwards; it names no
//! protocol, no socket and no async runtime. A request comes in through [`Broker::submit`] and is answered through the
//! session's [`ReplySink`], once what the answer tells is committed.
//!
//! **Invariants.**
//! - *Tail* changes when something is proposed, *applied* when it is committed; replies, reads and duplicate hits come
//!   from applied state. Losing the writer throws the tail away and nothing else.
//! - The order in which offsets are given out is the order of proposals is the order in the log.
//! - `apply` compares the offset that an entry assumed with the one that is next; a mismatch ends the process.
//! - No lock is held across I/O, and no reply is sent under one.
//! - Nothing is deleted but through a record (log starts, deleted topics); the machines' own records are the one
//!   exception: a checkpoint covers them.

mod admin;
mod admission;
mod applied;
mod background;
mod backup;
mod broker;
mod checkpoint;
mod commit;
mod config;
mod datadir;
mod error;
mod follow;
mod layers;
mod machines;
mod names;
mod open;
mod openings;
mod partition;
mod pending;
mod places;
mod producers;
mod queues;
mod readers;
mod reads;
mod record;
mod reserve;
mod roles;
mod room;
mod shard;
mod sink;
mod status;
mod tuning;
mod verify;
mod watch;

pub use admission::{Admission, Permit};
pub use applied::AppliedState;
pub use backup::{Backup, BackupPiece, BackupStats};
pub use broker::Broker;
pub use config::{BrokerConfig, CreditRules, QueueRules, Witness};
pub use datadir::{Identity, LAYOUT_VERSION, read_identity, shard_dir};
pub use error::{Error, ErrorKind, Result};
pub use names::partition_names;
pub use sink::{ReplySink, SessionId};
pub use status::{Failure, PartitionStatus, ShardStatus};
pub use verify::{
    DirectoryRepair, DirectoryReport, MakeMachines, check_directory, hold_directory, hold_directory_to_read,
    repair_directory,
};
