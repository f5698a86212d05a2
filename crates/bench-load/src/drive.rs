//! Starts workers in any language, and reads their reports.

use crate::clock::{MS_NS, unix_ns};
use crate::contract::{DRAIN_MS_MAX, Done, Line, Measure, Second, Spec, Start, System};
use crate::error::{BenchError, Context, Result};
use crate::install::java_client;
use crate::process::{Interrupt, Process, with_idle_priority};
use crate::target::Programs;
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::str::FromStr;
use std::time::Duration;

/// Timeout until a worker is ready: a JVM that creates a topic and joins ten groups takes a while.
pub const READY_PATIENCE: Duration = Duration::from_secs(240);
/// Timeout for a worker's next line. It sends one every second, but may be delayed.
pub const LINE_PATIENCE: Duration = Duration::from_millis(2 * DRAIN_MS_MAX);
/// How long a worker may continue to report seconds after the drain of its run should be over: a client that never ends must not block
/// the run. Milliseconds.
pub const OVERDUE_MS_MAX: u64 = 60_000;
/// Time from the start command to the first message: every worker has received it by then. Nanoseconds.
pub const START_AFTER_NS: u64 = 300 * MS_NS;
/// JVM options of clients: enough memory, Kafka's own collector settings, and only the quick compiler. The other one used
/// most of a core for minutes: 7 of 13 s of CPU for 13 s at 1,000 messages per second, and no latency could be compared.
const CLIENT_JVM: [&str; 5] =
    ["-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:TieredStopAtLevel=1"];

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driver {
    /// Pre-encoded requests: as little client as can be.
    Raw,
    /// The AMQP driver: pre-encoded messages, likewise.
    Amqp,
    /// librdkafka, native.
    Librdkafka,
    /// The official Java client.
    Java,
    /// kafka-producer-perf-test: throughput only.
    PerfTest,
}

impl Driver {
    /// Returns the name in results and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Driver::Raw => "raw",
            Driver::Amqp => "amqp",
            Driver::Librdkafka => "librdkafka",
            Driver::Java => "java",
            Driver::PerfTest => "perf-test",
        }
    }

    /// Whether it is a native program, without the pauses of a JVM.
    #[must_use]
    pub fn is_native(self) -> bool {
        matches!(self, Driver::Raw | Driver::Amqp | Driver::Librdkafka)
    }

    /// Returns the command of the worker.
    ///
    /// # Errors
    /// This client is not a worker.
    pub fn command(self, programs: &Programs, system: System, place: &Path) -> Result<Command> {
        match self {
            Driver::Raw | Driver::Amqp => {
                let mut command = Command::new(&programs.bench);
                command.args(["worker", self.name()]);
                Ok(command)
            }
            Driver::Librdkafka => Ok(Command::new(&programs.librdkafka)),
            Driver::Java => {
                let own = programs.java.join(java_client(system));
                let (classes, jars) = (own.join("classes"), own.join("lib"));
                if !classes.is_dir() {
                    let system = system.name();
                    return Err(BenchError::new(format!("there is no Java worker for {system}; run peers workers")));
                }
                let mut command = Command::new("java");
                // RocketMQ's client writes its log below the home directory.
                command.args(CLIENT_JVM).arg(format!("-Duser.home={}", place.display())).arg("-cp");
                command.arg(format!("{}:{}/*", classes.display(), jars.display())).arg("Worker");
                Ok(command)
            }
            Driver::PerfTest => {
                Err(BenchError::new("kafka-producer-perf-test is no worker: it measures throughput only"))
            }
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Driver {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Driver> {
        let all = [Driver::Raw, Driver::Amqp, Driver::Librdkafka, Driver::Java, Driver::PerfTest];
        let named = all.into_iter().find(|driver| driver.name() == text);
        named.ok_or_else(|| BenchError::new(format!("{text} is no client: raw, amqp, librdkafka, java or perf-test")))
    }
}

/// The reports of a worker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerReport {
    /// The final report.
    pub done: Done,
    /// The reports of each second.
    pub seconds: Vec<Second>,
}

/// Observes the workers of a run.
pub trait Watch {
    /// All workers, with these process ids, were sent the start at `start_ns` (Unix nanoseconds), which is slightly ahead.
    ///
    /// # Errors
    /// The run cannot be used.
    fn started(&mut self, pids: &[u32], start_ns: u64) -> Result<()> {
        let _ = (pids, start_ns);
        Ok(())
    }

    /// The first worker has reported a second. Returns the end of an open warm-up, once; it is sent to all workers.
    fn second(&mut self, second: &Second) -> Option<Measure>;

    /// Whether the workers must be ended now: then the reports of the first one so far are all there are.
    fn stops(&self) -> bool {
        false
    }
}

/// Deadline for the workers of a run. Unix nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Bound(u64);

impl Bound {
    /// Returns `after_ms` after the longest window of these specs, which start at `start_ns`.
    pub fn of(specs: &[Spec], start_ns: u64, after_ms: u64) -> Bound {
        let longest_ms = specs.iter().map(|spec| spec.warmup_ms.saturating_add(spec.window_ms)).max().unwrap_or(0);
        Bound(start_ns.saturating_add(longest_ms.saturating_add(after_ms).saturating_mul(MS_NS)))
    }

    /// A warm-up has ended: the window may end later than planned.
    fn measure(&mut self, stated: &Measure, after_ms: u64) {
        let end_ns = stated.measure_ns.saturating_add(stated.window_ms.saturating_add(after_ms).saturating_mul(MS_NS));
        self.0 = self.0.max(end_ns);
    }

    /// Checks the deadline.
    ///
    /// # Errors
    /// It has passed.
    pub fn check(self, driver: Driver) -> Result<()> {
        if unix_ns() <= self.0 {
            return Ok(());
        }
        Err(BenchError::new(format!(
            "the {driver} worker has not come to its end: its run and what it had to drain should be over since a minute or more"
        )))
    }
}

/// An observer that only listens.
struct Listener<'a>(&'a mut dyn FnMut(&Second));

impl Watch for Listener<'_> {
    fn second(&mut self, second: &Second) -> Option<Measure> {
        (self.0)(second);
        None
    }
}

/// Runs one worker for each spec concurrently, and returns their reports. `each_second` is called with those of the first one.
///
/// # Errors
/// A worker fails or does not respond, or the user interrupts.
pub fn drive(
    driver: Driver,
    specs: &[Spec],
    programs: &Programs,
    place: &Path,
    interrupt: &Interrupt,
    each_second: &mut dyn FnMut(&Second),
) -> Result<Vec<WorkerReport>> {
    drive_watched(driver, specs, programs, place, interrupt, &mut Listener(each_second))
}

/// The same with an observer.
///
/// # Errors
/// As [`drive`].
pub fn drive_watched(
    driver: Driver,
    specs: &[Spec],
    programs: &Programs,
    place: &Path,
    interrupt: &Interrupt,
    watch: &mut dyn Watch,
) -> Result<Vec<WorkerReport>> {
    drive_bounded(driver, specs, (programs, place, interrupt), watch, DRAIN_MS_MAX + OVERDUE_MS_MAX)
}

/// The same; the workers must be done `after_ms` after their window.
fn drive_bounded(
    driver: Driver,
    specs: &[Spec],
    (programs, place, interrupt): (&Programs, &Path, &Interrupt),
    watch: &mut dyn Watch,
    after_ms: u64,
) -> Result<Vec<WorkerReport>> {
    let (mut workers, mut inputs) = (Vec::new(), Vec::new());
    for (number, spec) in specs.iter().enumerate() {
        spec.check()?;
        let log = place.join(format!("worker-{number}.log"));
        let command = driver.command(programs, spec.system, place)?;
        let command = if spec.gives_way { with_idle_priority(command) } else { command };
        let mut worker = Process::start(&format!("the {driver} worker"), command, &log, true)?;
        let gone = || format!("the {driver} worker takes no input");
        let mut input = worker.stdin().ok_or_else(|| BenchError::new(gone()))?;
        let spec = serde_json::to_string(spec).context(|| "cannot write a spec".to_owned())?;
        writeln!(input, "{spec}").and_then(|()| input.flush()).context(gone)?;
        workers.push(worker);
        inputs.push(input);
    }
    for worker in &mut workers {
        let line = worker.line(READY_PATIENCE, interrupt)?;
        if Line::parse(&line)? != Line::Ready(true) {
            return Err(worker.explain(&format!("it says {line:?} when it should be ready")));
        }
    }
    let start = Start { start_ns: unix_ns().saturating_add(START_AFTER_NS) };
    tell_all(&workers, &mut inputs, &start)?;
    let pids: Vec<u32> = workers.iter().map(Process::pid).collect();
    watch.started(&pids, start.start_ns)?;
    let mut bound = Bound::of(specs, start.start_ns, after_ms);
    let mut all = Vec::new();
    for number in 0..workers.len() {
        let mut seconds = Vec::new();
        while let Some(worker) = workers.get_mut(number) {
            bound.check(driver)?;
            let line = worker
                .line(LINE_PATIENCE, interrupt)
                .map_err(|e| BenchError::new(format!("in the middle of a run: {e}")))?;
            match Line::parse(&line)? {
                Line::Ready(_) => return Err(worker.explain("it says a second time that it is ready")),
                Line::Second(second) => {
                    if number == 0
                        && let Some(measure) = watch.second(&second)
                    {
                        bound.measure(&measure, after_ms);
                        tell_all(&workers, &mut inputs, &measure)?;
                    }
                    seconds.push(second);
                    if number == 0 && watch.stops() {
                        return Ok(vec![WorkerReport { done: Done::default(), seconds }]);
                    }
                }
                Line::Done(done) => {
                    worker.wait(READY_PATIENCE, interrupt)?;
                    all.push(WorkerReport { done: *done, seconds });
                    break;
                }
            }
        }
    }
    Ok(all)
}

/// Sends a line to every worker.
fn tell_all<T: Serialize>(workers: &[Process], inputs: &mut [ChildStdin], what: &T) -> Result<()> {
    let line = serde_json::to_string(what).context(|| "cannot write a line".to_owned())?;
    for (worker, input) in workers.iter().zip(inputs) {
        let stated = writeln!(input, "{line}").and_then(|()| input.flush());
        stated.map_err(|e| worker.explain(&format!("it does not take a line: {e}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Folder;
    use std::os::unix::fs::PermissionsExt;

    /// Regression test: a client blocked in a call kept its worker reporting empty seconds, and blocked the comparison.
    #[test]
    fn a_worker_that_never_comes_to_its_end_is_ended() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-endless-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let worker = folder.path().join("worker");
        let second = serde_json::to_string(&serde_json::json!({"second": Second::default()})).expect("JSON");
        let script = format!(
            "#!/bin/sh\nread spec\necho '{{\"ready\":true}}'\nread start\nwhile echo '{second}'; do sleep 0.1; done\n"
        );
        std::fs::write(&worker, script).expect("a script");
        std::fs::set_permissions(&worker, PermissionsExt::from_mode(0o700)).expect("it can be run");
        let programs = Programs { librdkafka: worker, ..Programs::nowhere() };
        let spec = Spec { window_ms: 300, ..Spec::example() };
        let interrupt = Interrupt::default();
        let mut heard = 0;
        let mut hear = |_: &Second| heard += 1;
        let around = (&programs, folder.path(), &interrupt);
        let stated = drive_bounded(Driver::Librdkafka, &[spec], around, &mut Listener(&mut hear), 300);
        let stated = stated.expect_err("it has no end").to_string();
        assert!(stated.contains("has not come to its end"), "{stated}");
        assert!(heard > 0, "it was heard until then");
    }

    #[test]
    fn what_is_measured_late_may_end_late() {
        let spec = Spec { warmup_ms: 1_000, window_ms: 2_000, ..Spec::example() };
        let mut bound = Bound::of(&[Spec { window_ms: 1, ..spec.clone() }, spec], 5 * MS_NS, 10);
        assert_eq!(bound.0, 3_015 * MS_NS);
        bound.measure(&Measure { measure_ns: 500 * MS_NS, window_ms: 2_000 }, 10);
        assert_eq!(bound.0, 3_015 * MS_NS, "a warm-up that was short shortens nothing");
        bound.measure(&Measure { measure_ns: 1_500 * MS_NS, window_ms: 2_000 }, 10);
        assert_eq!(bound.0, 3_510 * MS_NS);
        assert!(bound.check(Driver::Raw).is_err(), "that was long ago");
    }
}
