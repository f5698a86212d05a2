//! [`BrokerHandle`]: the broker's interface to listeners.
//!
//! Connections and the http listener use this trait instead of the broker itself, so that tests can substitute a
//! scripted broker.

mod real;

pub use polylogue_broker::{Admission, Backup, Failure, PartitionStatus, Permit, ReplySink, SessionId};
pub use polylogue_log::journal::{STAGE_BUCKETS_US, Stage as StageTimes};

use polylogue_api::{Catalog, Now, Request, Token};
use polylogue_types::PartitionId;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;

/// A broker that accepts requests from sessions.
pub trait BrokerHandle: Send + Sync + Debug {
    /// Returns a new session id.
    fn new_session(&self) -> SessionId;

    /// Submits a request; never blocks. `from` receives exactly one reply with `token`, possibly before this returns.
    fn submit(&self, from: &Arc<dyn ReplySink>, session: SessionId, token: Token, request: Request);

    /// Queues a job for a reader thread, which may block on the disk; never blocks itself. Returns whether it was queued: it is
    /// dropped when too many jobs are queued already, or later when the broker stops.
    fn run_reader(&self, job: Box<dyn FnOnce() + Send>) -> bool;

    /// Ends a session: no reply to it is needed any more.
    fn session_gone(&self, session: SessionId);

    /// Topics, as of the applied state.
    fn catalog(&self) -> Arc<dyn Catalog>;

    /// The current time, as passed to sessions.
    fn now(&self) -> Now;

    /// Current status of a partition.
    fn partition_status(&self, id: PartitionId) -> Option<PartitionStatus>;

    /// The broker's health and metrics.
    fn status(&self) -> BrokerStatus;

    /// The broker's health only; its cost allows a call each second.
    fn health(&self) -> Health {
        self.status().health
    }

    /// Begins a backup. Blocks on the disk.
    ///
    /// # Errors
    /// See `Broker::begin_backup`.
    fn begin_backup(&self) -> Result<Backup, polylogue_broker::Error>;

    /// Whether the disk alarm is raised: publishers to queues are blocked until the disk has room.
    fn is_disk_alarm(&self) -> bool;

    /// Sets the waker that is woken when [`BrokerHandle::is_disk_alarm`] changes; replaces the previous one.
    fn wake_for_alarm(&self, waker: Waker);
}

/// A broker's health and metrics, for operators.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokerStatus {
    /// Faults of the broker.
    pub health: Health,
    /// Free bytes of the data directory's file system, where that is known.
    pub disk_free_bytes: Option<u64>,
    /// Counters and gauges.
    pub figures: Vec<Figure>,
    /// Durations of the stages of message processing.
    pub stages: Vec<Stage>,
}

/// Faults of a broker; some are not visible to clients.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// The reason if messages are refused.
    pub refuses_writes: Option<String>,
    /// The reason if the disk alarm is raised.
    pub disk_alarm: Option<String>,
    /// Number of journals without a writer: they refuse writes until they have a new one.
    pub writers_lost: u64,
    /// Failures of background work since the start, by kind of work.
    pub failures: BTreeMap<&'static str, Failure>,
}

/// Duration of one stage of message processing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its name in metrics, without prefix and unit.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Histogram of durations.
    pub times: StageTimes,
}

/// A counter or gauge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Its name in metrics, without prefix.
    pub name: String,
    /// Help text.
    pub help: String,
    /// Whether it is a counter, which never decreases.
    pub is_counter: bool,
    /// Its value.
    pub value: u64,
}
