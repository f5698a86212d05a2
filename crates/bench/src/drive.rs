//! Starting workers, whatever they are written in, and listening to them.

use crate::clock::{MS_NS, unix_ns};
use crate::contract::{DRAIN_MS_MAX, Done, Line, Second, Spec, Start, System};
use crate::error::{BenchError, Context, Result};
use crate::install::java_client;
use crate::process::{Interrupt, Process};
use crate::target::Programs;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

/// How long a worker may take until it is ready: a JVM that makes a topic and joins ten groups takes a while.
const READY_PATIENCE: Duration = Duration::from_secs(240);
/// A worker says something every second; it may be held up.
const LINE_PATIENCE: Duration = Duration::from_millis(2 * DRAIN_MS_MAX);
/// From the word to the first message: every worker has heard it by then. Nanoseconds.
const START_AFTER_NS: u64 = 300 * MS_NS;
/// What a client's JVM gets: memory enough, and Kafka's own collector settings.
const CLIENT_JVM: [&str; 4] = ["-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"];

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
    /// The name in results and on the command line.
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

    /// Whether it is a program of the machine's own instructions: one that a JVM does not stop now and then.
    #[must_use]
    pub fn is_native(self) -> bool {
        matches!(self, Driver::Raw | Driver::Amqp | Driver::Librdkafka)
    }

    /// The command of the worker.
    ///
    /// # Errors
    /// When this client is no worker.
    fn command(self, programs: &Programs, system: System, place: &Path) -> Result<Command> {
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

/// What a worker has told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told {
    /// What became of its run.
    pub done: Done,
    /// Second by second.
    pub seconds: Vec<Second>,
}

/// Runs one worker for each spec, all at the same time, and gives what each has told. `each_second` hears the first one.
///
/// # Errors
/// When a worker fails, says nothing, or the user wants to stop.
pub fn drive(
    driver: Driver,
    specs: &[Spec],
    programs: &Programs,
    place: &Path,
    interrupt: &Interrupt,
    each_second: &mut dyn FnMut(&Second),
) -> Result<Vec<Told>> {
    let mut workers = Vec::new();
    for (number, spec) in specs.iter().enumerate() {
        spec.check()?;
        let log = place.join(format!("worker-{number}.log"));
        let mut worker =
            Process::start(&format!("the {driver} worker"), driver.command(programs, spec.system, place)?, &log, true)?;
        let gone = || format!("the {driver} worker takes no input");
        let mut input = worker.stdin().ok_or_else(|| BenchError::new(gone()))?;
        let spec = serde_json::to_string(spec).context(|| "cannot write a spec".to_owned())?;
        writeln!(input, "{spec}").and_then(|()| input.flush()).context(gone)?;
        workers.push((worker, input));
    }
    for (worker, _) in &mut workers {
        let line = worker.line(READY_PATIENCE, interrupt)?;
        if Line::parse(&line)? != Line::Ready(true) {
            return Err(worker.explain(&format!("it says {line:?} when it should be ready")));
        }
    }
    let start = Start { start_ns: unix_ns().saturating_add(START_AFTER_NS) };
    let start = serde_json::to_string(&start).context(|| "cannot write a start".to_owned())?;
    for (worker, input) in &mut workers {
        let told = writeln!(input, "{start}").and_then(|()| input.flush());
        told.map_err(|e| worker.explain(&format!("it does not take the start: {e}")))?;
    }
    let mut all = Vec::new();
    for (number, (worker, _)) in workers.iter_mut().enumerate() {
        all.push(listen(worker, interrupt, &mut |second| {
            if number == 0 {
                each_second(second);
            }
        })?);
    }
    Ok(all)
}

fn listen(worker: &mut Process, interrupt: &Interrupt, each_second: &mut dyn FnMut(&Second)) -> Result<Told> {
    let mut seconds = Vec::new();
    loop {
        let line = worker
            .line(LINE_PATIENCE, interrupt)
            .map_err(|e| BenchError::new(format!("in the middle of a run: {e}")))?;
        match Line::parse(&line)? {
            Line::Ready(_) => return Err(worker.explain("it says a second time that it is ready")),
            Line::Second(second) => {
                each_second(&second);
                seconds.push(second);
            }
            Line::Done(done) => {
                worker.wait(READY_PATIENCE, interrupt)?;
                return Ok(Told { done: *done, seconds });
            }
        }
    }
}
