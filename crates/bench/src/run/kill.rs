//! Kills the broker under load, and restarts it with its data.
//!
//! ```text
//!   start | load ------------- kill -9 | restart | single messages until one is acknowledged | read everything
//!                acknowledged so far:  A                                    first_ack_s        found: at least A
//! ```
//!
//! The load has one producer and one partition: the acknowledged messages are then a prefix of the sent ones, so that one missing among the
//! first A was lost, however many unacknowledged ones there are. A client that may reorder pipelined messages sends one at a time here.
//! The messages sent after the restart are read too, but not counted: each has a separate producer, and would hide a
//! loss.

use super::{MEASURED_PRODUCER, OneSide, start};
use crate::clock::{MS_NS, monotonic_ns, seconds};
use crate::contract::{Done, From, Measure, Second, Shape, Spec};
use crate::drive::{Watch, WorkerReport, drive, drive_watched};
use crate::error::{BenchError, Result};
use crate::target::Target;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// Time under load before the kill. Seconds.
const LOADED_S: u64 = 6;
const QUICK_LOADED_S: u64 = 2;
/// Seconds of reports to wait for after the kill: the second of the kill is reported later.
const TOLD_S: u64 = 3;
/// Duration of the load, if it were not ended by the kill. Milliseconds.
const LOAD_MS: u64 = 20_000;
/// Time for reading everything. Milliseconds.
const READ_MS: u64 = 5_000;
const QUICK_READ_MS: u64 = 2_000;
/// Timeout until a broker acknowledges a message again; and the pause between two attempts. Seconds.
const BACK_S_MAX: u64 = 120;
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Number of the first producer of these attempts.
const TRYING_PRODUCER: u32 = 2_000;

/// Kills all processes of a broker after a time under load.
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
                // A process that ended with its parent needs no signal.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        None
    }

    /// Clients that would retry for minutes are not waited for: acknowledgements have been reported by now.
    fn stops(&self) -> bool {
        self.killed_ns.is_some() && self.now_s >= self.killed_s + TOLD_S
    }
}

/// Returns how many of the acknowledged messages were lost, given what was read.
fn acked_lost(acked: u64, found: &Done) -> u64 {
    acked.saturating_sub(found.received).max(found.lost)
}

impl OneSide<'_> {
    /// Loads the broker, kills it, restarts it, and counts losses.
    pub(super) fn by_kill(&mut self) -> Result<()> {
        let after_s = if self.line.quick { QUICK_LOADED_S } else { LOADED_S };
        let spec = Spec { groups: 0, warmup_ms: 0, window_ms: LOAD_MS, ..self.spec() };
        let mut killer = Killer { pids: self.running.pids(), after_s, killed_ns: None, killed_s: 0, now_s: 0 };
        if killer.pids.is_empty() {
            return Err(BenchError::new("a running broker that was named is not killed"));
        }
        let (programs, interrupt) = (self.around.programs, self.around.interrupt);
        let stated = drive_watched(self.driver, &[spec], programs, self.place.path(), interrupt, &mut killer)?;
        let in_seconds = |stated: &WorkerReport| stated.seconds.iter().map(|second| second.acked).sum::<u64>();
        let acked = stated.first().map_or(0, |stated| stated.done.acked.max(in_seconds(stated)));
        if killer.killed_ns.is_none() {
            return Err(BenchError::new("the load was over before the broker was killed"));
        }
        self.running.end();
        let began = monotonic_ns();
        self.running =
            self.spawn_settings.clone().apply(|| start(&self.target, self.load, self.around, self.place.path()))?;
        self.figure("restart_s", seconds(monotonic_ns() - began));
        self.acknowledges(began)?;
        let found = self.found()?;
        self.figure("acked_before_kill", acked as f64);
        self.figure("found_after_restart", found.done.received as f64);
        let lost = acked_lost(acked, &found.done);
        self.figure("acked_lost", lost as f64);
        self.figure("duplicated", found.done.duplicated as f64);
        if lost > 0 {
            let stated = format!("{lost} acknowledged messages lost");
            // A peer that does not flush may lose messages, which is not a failure of a smoke run.
            let is_ours = matches!(self.target, Target::PolylogueSync | Target::PolylogueAsync);
            if is_ours { self.fail(stated) } else { self.fail_in_full(stated) }
        }
        let disorder = self.disorder(&found.done);
        for (what, count) in [("duplicated", found.done.duplicated), ("out of order", disorder)] {
            if count > 0 {
                self.fail(format!("{count} messages {what}"));
            }
        }
        if let Some(error) = &found.done.error {
            self.fail(format!("what it has kept cannot be read: {error}"));
        }
        Ok(())
    }

    /// Sends messages until one is acknowledged.
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
            if tried.is_ok_and(|stated| stated.iter().all(|stated| stated.done.acked == 1)) {
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

    /// Reads everything, and counts the load's messages.
    fn found(&mut self) -> Result<WorkerReport> {
        let spec = self.spec();
        let shape = Shape { only_producer: Some(MEASURED_PRODUCER), ..spec.shape };
        let spec = Spec {
            producers: 0,
            groups: 1,
            producer_base: MEASURED_PRODUCER,
            from: From::Beginning,
            rate: 0,
            warmup_ms: 0,
            window_ms: if self.line.quick { QUICK_READ_MS } else { READ_MS },
            shape,
            ..spec
        };
        let (programs, interrupt) = (self.around.programs, self.around.interrupt);
        let stated = drive(self.driver, &[spec], programs, self.place.path(), interrupt, self.each_second)?;
        stated.into_iter().next().ok_or_else(|| BenchError::new("no reader has read anything"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::unix_ns;
    use crate::contract::{Line, Start};
    use crate::null::{Faults, NullBroker, NullSpec};
    use crate::raw::producer::Producers;
    use crate::raw::reader::Readers;
    use crate::worker::work;
    use std::io::Cursor;

    fn done(spec: &Spec) -> Done {
        let start = Start { start_ns: unix_ns() + 20 * MS_NS };
        let lines = [serde_json::to_string(spec), serde_json::to_string(&start)].map(|line| line.expect("JSON") + "\n");
        let mut output = Vec::new();
        work::<Producers, Readers>(Cursor::new(lines.concat().into_bytes()), &mut output).expect("it works");
        let text = String::from_utf8(output).expect("text");
        match text.lines().last().map(Line::parse) {
            Some(Ok(Line::Done(done))) => *done,
            other => panic!("no end: {other:?}"),
        }
    }

    /// Regression test: the message sent after the restart hid the loss of the last acknowledged one.
    #[test]
    fn the_loss_of_the_last_acknowledged_message_is_seen() {
        let faults = Faults { lose: 500, ..Faults::default() };
        let listen = ([127, 0, 0, 1], 0).into();
        let null = NullSpec { listen, partitions: 1, message_bytes: 100, stall_ms: None, keeps: Some(faults) };
        let bootstrap = NullBroker::start(null).expect("it starts").address().to_string();
        // One message per batch, so that the broker loses the last one of the load.
        let writes = Spec {
            bootstrap,
            partitions: 1,
            producer_base: MEASURED_PRODUCER,
            groups: 0,
            message_bytes: 100,
            rate: 0,
            messages: 500,
            batch_bytes: 1,
            ..Spec::example()
        };
        let acked = done(&writes).acked;
        assert_eq!(acked, 500);
        assert_eq!(done(&Spec { producer_base: TRYING_PRODUCER, messages: 1, ..writes.clone() }).acked, 1);
        let reads = Spec { producers: 0, groups: 1, messages: 0, window_ms: 500, ..writes };
        assert_eq!(done(&reads).received, 500, "as many as were acknowledged, the one who wrote them");
        let shape = Shape { only_producer: Some(MEASURED_PRODUCER), ..Shape::default() };
        let found = done(&Spec { shape, ..reads });
        assert_eq!((found.received, found.lost), (499, 0), "the last one leaves no hole");
        assert_eq!(acked_lost(acked, &found), 1);
    }
}
