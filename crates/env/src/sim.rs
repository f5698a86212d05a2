//! A deterministic environment: disk, clock, randomness and the end of a node, all derived from one seed.
//!
//! Nothing here reads the machine's clock, starts a thread or depends on an address: two runs that make the same
//! calls with the same seed see the same results, and [`SimDisk::trace_hash`] tells whether they did.

mod clock;
mod content;
mod crash;
mod disk;
mod fault;
mod rng;
mod state;
mod trace;

pub use clock::{SimClock, SimFatal, SimTasks};
pub use disk::{CrashReport, SimDisk, SimStats};
pub use fault::{Fault, FaultKind, FaultOp};
pub use rng::SimRng;

use crate::Env;
use parking_lot::Mutex;
use std::sync::Arc;

/// One simulated machine. It outlives its node: after a crash, [`SimWorld::env`] gives the surroundings of the next
/// life, and what was given before is dead.
#[derive(Debug)]
pub struct SimWorld {
    /// The disk, as the driver of the simulation sees it (not bound to a life).
    pub disk: SimDisk,
    /// The clock.
    pub clock: SimClock,
    /// What the node draws from. The disk draws from a stream of its own; so should the driver
    /// ([`SimRng::derive`]).
    pub rng: SimRng,
    fatal: Mutex<SimFatal>,
}

impl SimWorld {
    /// A machine with an empty disk.
    #[must_use]
    pub fn new(seed: u64) -> SimWorld {
        let disk = SimDisk::new(seed);
        let fatal = Mutex::new(SimFatal::stopping(disk.of_this_life()));
        SimWorld { disk, clock: SimClock::default(), rng: SimRng::derive(seed, "node"), fatal }
    }

    /// The surroundings of a node in this life. All of one life share one end.
    #[must_use]
    pub fn env(&self) -> Env {
        Env {
            disk: Arc::new(self.disk.of_this_life()),
            clock: Arc::new(self.clock.clone()),
            rng: Arc::new(self.rng.clone()),
            tasks: Arc::new(SimTasks),
            fatal: Arc::new(self.fatal()),
        }
    }

    /// The end of the node of this life.
    #[must_use]
    pub fn fatal(&self) -> SimFatal {
        self.fatal.lock().clone()
    }

    /// The power goes and comes back: a new life on what survived.
    pub fn crash(&self) -> CrashReport {
        let report = self.disk.crash();
        self.begin_life();
        report
    }

    /// The node is killed and the machine goes on: a new life on everything that was written.
    pub fn kill(&self) {
        self.disk.crash_keep_page_cache();
        self.begin_life();
    }

    fn begin_life(&self) {
        *self.fatal.lock() = SimFatal::stopping(self.disk.of_this_life());
    }
}
