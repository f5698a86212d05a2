//! The only access to the operating system: clock, randomness, disk, threads, and how the process ends.
//!
//! Everything that decides what survives a failure (`log`, `replicate`, `broker`, `meta`) goes through [`Env`], so
//! that the simulator can put a whole node on a disk that tears, forgets and fails, and repeat a run from its seed.
//!
//! **Invariant:** no other crate below `server` reads a clock, draws a random number, opens a file or starts a
//! thread by itself; `clippy.toml` refuses the calls.

pub mod disk;
mod error;
mod overlay;
mod real;
pub mod sim;
mod sys;

pub use disk::{DIRECT_BYTES, DirLock, Disk, DiskFile, OpenMode};
pub use error::{DiskError, raw_os_error};
pub use overlay::Overlay;
pub use real::{ExitOnFatal, RealClock, RealDisk, RealRng, RealTasks};
pub use sys::{send_file, set_receive_low_water, set_unsent_low_water};

use polylogue_types::TimestampMs;
use std::fmt::Debug;
use std::sync::Arc;

/// Time. Wall time may jump; monotonic time never decreases.
pub trait Clock: Send + Sync + Debug {
    /// Wall time, milliseconds since the Unix epoch.
    fn now_ms(&self) -> TimestampMs;
    /// Monotonic time, nanoseconds since an arbitrary start.
    fn monotonic_ns(&self) -> u64;

    /// Processor time that the calling thread has used, in nanoseconds. A system call: for work of a millisecond or so. Where time is
    /// simulated, or the system has no such clock, it is monotonic time.
    fn thread_cpu_ns(&self) -> u64 {
        self.monotonic_ns()
    }
}

/// Randomness for ids, salts and jitter. Not for secrets unless the implementation says so; the real one is the
/// operating system's.
pub trait Rng: Send + Sync + Debug {
    /// Fills `into` with random bytes.
    fn fill(&self, into: &mut [u8]);

    /// A random number.
    fn next_u64(&self) -> u64 {
        let mut b = [0; 8];
        self.fill(&mut b);
        u64::from_le_bytes(b)
    }
}

/// Starts threads. The simulator refuses: simulated components are stepped.
pub trait Tasks: Send + Sync + Debug {
    /// Runs `body` on a thread of its own, named `name` (at most 15 bytes are shown by the system).
    ///
    /// # Errors
    /// The system cannot create a thread.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JoinTask>>;

    /// As [`Tasks::spawn`], for background work: where processors are short, the other threads come first.
    ///
    /// # Errors
    /// As [`Tasks::spawn`].
    fn spawn_behind(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JoinTask>> {
        self.spawn(name, body)
    }
}

/// A thread that can be waited for.
pub trait JoinTask: Send + Debug {
    /// Waits until the thread has ended. A thread that panicked counts as ended.
    fn join(self: Box<Self>);
}

/// Ends the process when to continue would break a guarantee (a failed flush, damage in the live journal).
pub trait Fatal: Send + Sync + Debug {
    /// Ends the process (real) or marks the node as crashed (simulated). The real one does not return; the caller
    /// must in any case do nothing more: acknowledge nothing, write nothing.
    fn fatal(&self, why: &str);
    /// Whether [`Fatal::fatal`] was called before.
    fn is_fatal(&self) -> bool;
}

/// The environment of a node: disk, clock, randomness, threads, process end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Threads.
    pub tasks: Arc<dyn Tasks>,
    /// The end.
    pub fatal: Arc<dyn Fatal>,
}

impl Env {
    /// The real operating system.
    #[must_use]
    pub fn real() -> Env {
        Env::real_within(&[])
    }

    /// As above, without following symbolic links below these data directories: [`RealDisk::within`].
    #[must_use]
    pub fn real_within(roots: &[&std::path::Path]) -> Env {
        Env {
            disk: Arc::new(RealDisk::within(roots)),
            clock: Arc::new(RealClock::default()),
            rng: Arc::new(RealRng),
            tasks: Arc::new(RealTasks),
            fatal: Arc::new(ExitOnFatal::default()),
        }
    }
}
