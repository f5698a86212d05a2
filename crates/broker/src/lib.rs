//! The broker core: partitions, cursors, hosted state machines, admission.
//!
//! Layer 4. It uses `polylogue_replicate` and `polylogue_log`, and offers `polylogue_api`. It depends on no protocol, socket or async runtime.
//! Requests come in through [`Broker::submit`]; the reply goes to the session's [`ReplySink`] when its content is committed.
//!
//! **Invariants.**
//! - *Tail* state changes when something is proposed, *applied* state when it is committed. Replies, reads and duplicate checks use
//!   applied state. Loss of the writer drops the tail and nothing else.
//! - Offsets are assigned in the order of proposals, which is the order in the log.
//! - `apply` compares the offset assumed by an entry with the next offset; a mismatch ends the process.
//! - No lock is held during I/O, and no reply is sent with a lock held.
//! - Data is deleted by records only (log starts, deleted topics). The exception is the machines' own records, which a
//!   checkpoint replaces.

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
mod hosts;
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
