//! What the server needs of a broker.
//!
//! The pump and the http listener speak with this trait and not with the broker itself, so that they can be tested
//! against one that does exactly what a test wants.

mod real;

pub use polylogue_broker::{Admission, Backup, Failure, PartitionStatus, Permit, ReplySink, SessionId};
pub use polylogue_log::journal::{STAGE_BUCKETS_US, Stage as StageTimes};

use polylogue_api::{Catalog, Now, Request, Token};
use polylogue_types::PartitionId;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;

/// A broker that can be asked.
pub trait BrokerHandle: Send + Sync + Debug {
    /// A name for a new session.
    fn new_session(&self) -> SessionId;

    /// Takes a request and never blocks. `from` is answered exactly once under `token`, perhaps before this returns.
    fn submit(&self, from: &Arc<dyn ReplySink>, session: SessionId, token: Token, request: Request);

    /// Has a job run by a thread that may wait for the disk. Never blocks. Whether it will be run: it is dropped when too many
    /// wait already, or later when the broker ends.
    fn run_reader(&self, job: Box<dyn FnOnce() + Send>) -> bool;

    /// The session has ended: its answers are not waited for any more.
    fn session_gone(&self, session: SessionId);

    /// Topics as applied.
    fn catalog(&self) -> Arc<dyn Catalog>;

    /// The time as sessions receive it.
    fn now(&self) -> Now;

    /// A partition at this moment.
    fn partition_status(&self, id: PartitionId) -> Option<PartitionStatus>;

    /// What the broker says of itself.
    fn status(&self) -> BrokerStatus;

    /// Only what is wrong with it: cheap enough to be asked each second.
    fn health(&self) -> Health {
        self.status().health
    }

    /// Begins a backup. Blocks on the disk.
    ///
    /// # Errors
    /// See `Broker::begin_backup`.
    fn begin_backup(&self) -> Result<Backup, polylogue_broker::Error>;

    /// Whether publishers to queues are to wait for room on the disk.
    fn is_disk_alarm(&self) -> bool;

    /// Who is woken when [`BrokerHandle::is_disk_alarm`] says something else than before; one at a time.
    fn wake_for_alarm(&self, waker: Waker);
}

/// A broker's state in numbers, for people and for metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokerStatus {
    /// What is wrong with it.
    pub health: Health,
    /// Free bytes of the data directory's file system, where that is known.
    pub disk_free_bytes: Option<u64>,
    /// Numbers with their names and meanings.
    pub figures: Vec<Figure>,
    /// How long the stages on a message's way take.
    pub stages: Vec<Stage>,
}

/// What is wrong with a broker, some of which no client hears of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Why messages are refused, if they are.
    pub refuses_writes: Option<String>,
    /// Why publishers to queues are to wait, if they are.
    pub disk_alarm: Option<String>,
    /// Journals to which nothing can be written until they have a new writer.
    pub writers_lost: u64,
    /// Background work that failed since the start, by what it was.
    pub failures: BTreeMap<&'static str, Failure>,
}

/// How long a stage on a message's way takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its name in metrics, without prefix and unit.
    pub name: &'static str,
    /// What it is, in a few words.
    pub help: &'static str,
    /// What was counted.
    pub times: StageTimes,
}

/// One number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Its name in metrics, without prefix.
    pub name: String,
    /// What it counts, in a few words.
    pub help: String,
    /// Whether it only ever grows.
    pub is_counter: bool,
    /// Its value.
    pub value: u64,
}
