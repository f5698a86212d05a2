//! Pins broker and client to disjoint sets of cores, with the same split for every target.
//!
//! ```text
//!   cores that this process may use    0  1  2  3  4
//!   broker                             0  1  2             the larger half
//!   client, and this process                    3  4       the null broker is pinned as any other broker
//! ```
//!
//! A process and its threads inherit the CPU affinity of the thread that starts it, and so do its child processes. Programs adapt to the
//! number of cores, such as a JVM with one core, which takes the serial collector by default: that applies to all targets.

use crate::error::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// The cores of broker and client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Cores of the broker.
    pub broker: Vec<usize>,
    /// Cores of the client and of this process.
    pub client: Vec<usize>,
}

impl Split {
    /// Returns the split of this machine. `None` with a single core.
    #[must_use]
    pub fn here() -> Option<Split> {
        // Computed once: a thread that has been pinned since sees only its own cores.
        static CORES: OnceLock<Option<Split>> = OnceLock::new();
        CORES.get_or_init(|| Split::of(&allowed().ok()?)).clone()
    }

    fn of(cores: &[usize]) -> Option<Split> {
        let (broker, client) = cores.split_at(cores.len().div_ceil(2));
        (!client.is_empty()).then(|| Split { broker: broker.to_vec(), client: client.to_vec() })
    }

    /// Formats the split for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("broker {}, client {}", named(&self.broker), named(&self.client))
    }
}

fn named(cores: &[usize]) -> String {
    let list: Vec<String> = cores.iter().map(usize::to_string).collect();
    format!("{} {}", if cores.len() == 1 { "core" } else { "cores" }, list.join(","))
}

fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context(|| "cannot read the CPU affinity".to_owned())?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

fn set_affinity(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).context(|| format!("cannot set the CPU affinity to {}", named(cores)))
}

/// Pins this thread and what it starts to some cores. Restores the affinity when dropped.
#[derive(Debug)]
pub struct Pinned {
    before: Vec<usize>,
}

impl Pinned {
    /// Pins the current thread.
    ///
    /// # Errors
    /// The system rejects the affinity.
    pub fn on(cores: &[usize]) -> Result<Pinned> {
        let before = allowed()?;
        set_affinity(cores)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Cannot fail: these cores were allowed before.
        let _ = set_affinity(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broker_and_client_share_no_core() {
        assert_eq!(Split::of(&[0]), None);
        for count in 2..9 {
            let cores: Vec<usize> = (0..count).map(|core| 2 * core).collect();
            let split = Split::of(&cores).expect("there are two");
            assert_eq!([split.broker.clone(), split.client.clone()].concat(), cores);
            assert!(split.broker.len() - split.client.len() <= 1, "{split:?}");
        }
        let split = Split::of(&[0, 1, 2]).expect("there are three");
        assert_eq!(split.describe(), "broker cores 0,1, client core 2");
    }

    #[test]
    fn a_started_process_is_pinned_and_this_thread_is_restored() {
        let before = allowed().expect("cores");
        let last = *before.last().expect("one at least");
        let pinned = Pinned::on(&[last]).expect("it is allowed");
        let said = std::process::Command::new("sh").args(["-c", "grep Cpus_allowed_list /proc/self/status"]).output();
        drop(pinned);
        let said = String::from_utf8(said.expect("a shell").stdout).expect("text");
        assert_eq!(said.split_whitespace().last(), Some(last.to_string().as_str()), "{said}");
        assert_eq!(allowed(), Ok(before));
    }
}
