//! Broker and client on cores of their own, the same split for every target.
//!
//! ```text
//!   cores that this process may use    0  1  2  3  4
//!   broker                             0  1  2             the larger half
//!   client, and this process                    3  4       null broker: a broker as any other
//! ```
//!
//! A process inherits the cores of the thread that starts it, and so do its threads: nothing has to be changed afterwards, and nothing
//! that starts a process of its own escapes. What a program makes of it (a JVM with one core takes the serial collector unless it is
//! given another one) is the same for all.

use crate::error::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// Which cores broker and client have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The broker's.
    pub broker: Vec<usize>,
    /// The client's, this process included.
    pub client: Vec<usize>,
}

impl Split {
    /// The split of this machine; `None` when there is one core only.
    #[must_use]
    pub fn here() -> Option<Split> {
        // As it was at first: a thread that is pinned by now sees only its own.
        static CORES: OnceLock<Option<Split>> = OnceLock::new();
        CORES.get_or_init(|| Split::of(&allowed().ok()?)).clone()
    }

    fn of(cores: &[usize]) -> Option<Split> {
        let (broker, client) = cores.split_at(cores.len().div_ceil(2));
        (!client.is_empty()).then(|| Split { broker: broker.to_vec(), client: client.to_vec() })
    }

    /// For people.
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
    let set = sched_getaffinity(None).context(|| "which cores may be used".to_owned())?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

fn hold(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).context(|| format!("cannot stay on {}", named(cores)))
}

/// Keeps this thread, and what it starts meanwhile, on some cores; it may go where it was before when this value goes.
#[derive(Debug)]
pub struct Pinned {
    before: Vec<usize>,
}

impl Pinned {
    /// Begins.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn on(cores: &[usize]) -> Result<Pinned> {
        let before = allowed()?;
        hold(cores)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = hold(&self.before);
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
    fn what_is_started_stays_on_its_cores_and_this_thread_comes_back() {
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
