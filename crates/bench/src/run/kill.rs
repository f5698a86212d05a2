//! The broker is killed while it is written to, and starts again over what it has kept.
//!
//! ```text
//!   start | load ------------- kill -9 | start again | one message after the other until one is acknowledged | read everything
//!                acknowledged so far:  A                                              first_ack_s              found: at least A
//! ```
//!
//! The load has one producer and one partition: what was acknowledged is then the beginning of what was sent, so that a message which is
//! missing among the first A of them was lost, however many there are of those that nobody has acknowledged.

use super::{MEASURED_PRODUCER, OneSide, start};
use crate::clock::{MS_NS, monotonic_ns, seconds};
use crate::contract::{From, Measure, Second, Spec};
use crate::drive::{Told, Watch, drive, drive_watched};
use crate::error::{BenchError, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// How long the broker is loaded before it is killed. Seconds.
const LOADED_S: u64 = 6;
const QUICK_LOADED_S: u64 = 2;
/// How many seconds are heard after the kill: the one of the kill is told a while later.
const TOLD_S: u64 = 3;
/// How long the load would go on: the broker has gone by then. Milliseconds.
const LOAD_MS: u64 = 20_000;
/// How long everything is read. Milliseconds.
const READ_MS: u64 = 5_000;
/// How long a broker may take until it acknowledges a message again. Seconds; and how long is waited between two tries.
const BACK_S_MAX: u64 = 120;
const TRY_EVERY: Duration = Duration::from_millis(20);
/// The number of the producer that tries.
const TRYING_PRODUCER: u32 = 2_000;

/// Kills all processes of a broker after so many seconds of load.
struct Killer {
    pids: Vec<u32>,
    after_s: u64,
    killed_ns: Option<u64>,
    killed_s: u64,
    now_s: u64,
}

impl Watch for Killer {
    fn second(&mut self, second: &Second) -> Option<Measure> {
        self.now_s = second.second;
        if second.second >= self.after_s && self.killed_ns.is_none() {
            self.killed_s = second.second;
            self.killed_ns = Some(monotonic_ns());
            for pid in self.pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
                // One that has gone with its parent needs no signal.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        None
    }

    /// A client that would try again for minutes is not waited for: what was acknowledged has been told by now.
    fn stops(&self) -> bool {
        self.killed_ns.is_some() && self.now_s >= self.killed_s + TOLD_S
    }
}

impl OneSide<'_> {
    /// Loads the broker, kills it, starts it again, and finds out what was lost.
    pub(super) fn by_kill(&mut self) -> Result<()> {
        let after_s = if self.line.quick { QUICK_LOADED_S } else { LOADED_S };
        let spec = Spec { groups: 0, warmup_ms: 0, window_ms: LOAD_MS, ..self.spec() };
        let mut killer = Killer { pids: self.running.pids(), after_s, killed_ns: None, killed_s: 0, now_s: 0 };
        if killer.pids.is_empty() {
            return Err(BenchError::new("a broker of somebody else is not killed"));
        }
        let (programs, interrupt) = (self.around.programs, self.around.interrupt);
        let told = drive_watched(self.driver, &[spec], programs, self.place.path(), interrupt, &mut killer)?;
        let in_seconds = |told: &Told| told.seconds.iter().map(|second| second.acked).sum::<u64>();
        let acked = told.first().map_or(0, |told| told.done.acked.max(in_seconds(told)));
        if killer.killed_ns.is_none() {
            return Err(BenchError::new("the load was over before the broker was killed"));
        }
        self.running.end();
        let began = monotonic_ns();
        self.running =
            self.surround.clone().around(|| start(&self.target, self.load, self.around, self.place.path()))?;
        self.figure("restart_s", seconds(monotonic_ns() - began));
        self.acknowledges(began)?;
        let found = self.found()?;
        self.figure("acked_before_kill", acked as f64);
        self.figure("found_after_restart", found.done.received as f64);
        let lost = acked.saturating_sub(found.done.received).max(found.done.lost);
        self.figure("acked_lost", lost as f64);
        self.figure("duplicated", found.done.duplicated as f64);
        if lost > 0 {
            self.fail(format!("{lost} acknowledged messages lost"));
        }
        if found.done.duplicated > 0 {
            self.fail(format!("{} messages duplicated", found.done.duplicated));
        }
        Ok(())
    }

    /// Sends a message until one is acknowledged.
    fn acknowledges(&mut self, began: u64) -> Result<()> {
        let until = began.saturating_add(BACK_S_MAX * 1_000 * MS_NS);
        let mut number = TRYING_PRODUCER;
        loop {
            let spec = Spec {
                messages: 1,
                producer_base: number,
                rate: 0,
                groups: 0,
                warmup_ms: 0,
                window_ms: READ_MS,
                ..self.spec()
            };
            let (programs, interrupt) = (self.around.programs, self.around.interrupt);
            let tried = drive(self.driver, &[spec], programs, self.place.path(), interrupt, &mut |_| ());
            if tried.is_ok_and(|told| told.iter().all(|told| told.done.acked == 1)) {
                self.figure("first_ack_s", seconds(monotonic_ns() - began));
                return Ok(());
            }
            interrupt.check()?;
            if monotonic_ns() > until {
                return Err(BenchError::new(format!("nothing was acknowledged for {BACK_S_MAX} s after the restart")));
            }
            number += 1;
            std::thread::sleep(TRY_EVERY);
        }
    }

    /// Reads everything, whoever wrote it.
    fn found(&mut self) -> Result<Told> {
        let spec = Spec {
            producers: 0,
            groups: 1,
            producer_base: MEASURED_PRODUCER,
            from: From::Beginning,
            rate: 0,
            warmup_ms: 0,
            window_ms: READ_MS,
            ..self.spec()
        };
        let (programs, interrupt) = (self.around.programs, self.around.interrupt);
        let told = drive(self.driver, &[spec], programs, self.place.path(), interrupt, self.each_second)?;
        told.into_iter().next().ok_or_else(|| BenchError::new("nobody has read anything"))
    }
}
