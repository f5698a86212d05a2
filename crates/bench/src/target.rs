//! What is measured: a polylogue, a Kafka or a RabbitMQ that is started for the purpose, the null broker, or any broker that is there.

use crate::amqp;
use crate::error::{BenchError, Context, Result};
use crate::peers::Kafka;
use crate::peers::rabbitmq::{Ports, Rabbitmq};
use crate::process::{Interrupt, Process};
use crate::sample::family;
use crate::wire::Wire;
use std::fmt;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

/// How long a broker may take to start.
const START_PATIENCE: Duration = Duration::from_secs(90);
const START_TRIES: u32 = 900;
const START_WAIT: Duration = Duration::from_millis(100);

/// A broker in one of its settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// polylogue, acknowledging after the flush.
    PolylogueSync,
    /// polylogue, acknowledging from the page cache.
    PolylogueAsync,
    /// Kafka as it comes.
    Kafka,
    /// Kafka with a flush for every message.
    KafkaFsync,
    /// RabbitMQ as it comes.
    Rabbitmq,
    /// The broker that answers at once.
    Null,
    /// A broker that somebody else has started, `HOST:PORT`.
    At(String),
}

impl Target {
    /// The name in results and on the command line.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Target::PolylogueSync => "polylogue-sync".to_owned(),
            Target::PolylogueAsync => "polylogue-async".to_owned(),
            Target::Kafka => "kafka".to_owned(),
            Target::KafkaFsync => "kafka-fsync".to_owned(),
            Target::Rabbitmq => "rabbitmq".to_owned(),
            Target::Null => "null".to_owned(),
            Target::At(address) => address.clone(),
        }
    }

    /// When it acknowledges a message.
    #[must_use]
    pub fn durability(&self) -> &'static str {
        match self {
            Target::PolylogueSync => "flushed",
            Target::PolylogueAsync => "page cache, flushed each second",
            Target::Kafka => "page cache",
            Target::KafkaFsync => "flushed (log.flush.interval.messages=1)",
            Target::Rabbitmq => "depends on the queue",
            Target::Null => "none",
            Target::At(_) => "not known",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl FromStr for Target {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Target> {
        let known = [
            Target::PolylogueSync,
            Target::PolylogueAsync,
            Target::Kafka,
            Target::KafkaFsync,
            Target::Rabbitmq,
            Target::Null,
        ];
        match known.into_iter().find(|target| target.name() == text) {
            Some(target) => Ok(target),
            None if text.contains(':') => Ok(Target::At(text.to_owned())),
            None => Err(BenchError::new(format!(
                "{text} is no target: polylogue-sync, polylogue-async, kafka, kafka-fsync, rabbitmq, null, or HOST:PORT"
            ))),
        }
    }
}

/// Where programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The binary of polylogue.
    pub polylogue: PathBuf,
    /// The folder with Kafka's jars.
    pub kafka: PathBuf,
    /// The folder that RabbitMQ was unpacked into.
    pub rabbitmq: PathBuf,
    /// This very binary, for the null broker and the raw driver.
    pub bench: PathBuf,
    /// The librdkafka worker.
    pub librdkafka: PathBuf,
    /// The folder with the Java worker's classes and, in lib/, its jars.
    pub java: PathBuf,
}

/// What clients speak with a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Kafka's.
    Kafka,
    /// AMQP 0-9-1.
    Amqp,
}

/// A broker that runs; one that was started for the purpose ends with this value.
#[derive(Debug)]
pub struct Running {
    bootstrap: String,
    process: Option<Process>,
    /// What runs beside it for its sake, and ends after it.
    helper: Option<Process>,
}

impl Running {
    /// Starts a target with its data in the folder `place`, and waits until it answers. `partitions` and `message_bytes` are for
    /// the null broker, which makes everything up. What is in the folder already, of an earlier run of the same target, it finds.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(
        target: &Target,
        programs: &Programs,
        place: &Path,
        protocol: Protocol,
        (partitions, message_bytes): (u32, u32),
        interrupt: &Interrupt,
    ) -> Result<Running> {
        let log = place.join("broker.log");
        match target {
            Target::At(address) => Ok(Running { bootstrap: address.clone(), process: None, helper: None }),
            Target::Null => {
                let mut command = Command::new(&programs.bench);
                command.args(["null", "--listen", "127.0.0.1:0", "--partitions", &partitions.to_string()]);
                command.args(["--message-bytes", &message_bytes.to_string()]);
                if protocol == Protocol::Amqp {
                    command.arg("--amqp");
                }
                talking("the null broker", command, &log, "listening on ", None, interrupt)
            }
            Target::PolylogueSync | Target::PolylogueAsync => {
                let listening = match protocol {
                    Protocol::Kafka => "kafka listening on ",
                    Protocol::Amqp => "amqp listening on ",
                };
                let command = polylogue(target, programs, place, protocol);
                talking("polylogue", command, &log, listening, Some("polylogue ready"), interrupt)
            }
            Target::Rabbitmq => rabbitmq(programs, place, &log, interrupt),
            Target::Kafka | Target::KafkaFsync => {
                let (port, controller) = (free_port()?, free_port()?);
                let kafka = Kafka { jars: &programs.kafka, place, fsync: *target == Target::KafkaFsync };
                let process = Process::start("Kafka", kafka.command(port, controller)?, &log, false)?;
                let mut running =
                    Running { bootstrap: format!("127.0.0.1:{port}"), process: Some(process), helper: None };
                running.wait_answers(interrupt, |at| Wire::connect(at).is_ok())?;
                Ok(running)
            }
        }
    }

    /// Where it speaks with clients.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The ids of all its processes, its own first; none when somebody else has started it.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let started = [self.process.as_ref(), self.helper.as_ref()].into_iter().flatten();
        started.flat_map(|process| family(process.pid())).collect()
    }

    /// Ends it, if it was started for the purpose. What it has kept stays.
    pub fn end(&mut self) {
        for mut process in [self.process.take(), self.helper.take()].into_iter().flatten() {
            process.end();
        }
    }

    /// That it is still there.
    ///
    /// # Errors
    /// When it has ended, with what it said.
    pub fn check(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if process.ended() {
            return Err(process.explain("it has ended in the middle of a run"));
        }
        Ok(())
    }

    fn wait_answers(&mut self, interrupt: &Interrupt, answers: impl Fn(&str) -> bool) -> Result<()> {
        for _ in 0..START_TRIES {
            interrupt.check()?;
            self.check()?;
            if answers(&self.bootstrap) {
                return Ok(());
            }
            std::thread::sleep(START_WAIT);
        }
        Err(BenchError::new(format!("the broker at {} does not answer", self.bootstrap)))
    }
}

fn polylogue(target: &Target, programs: &Programs, place: &Path, protocol: Protocol) -> Command {
    let mut command = Command::new(&programs.polylogue);
    command.arg("serve").arg("--data").arg(place.join("data"));
    command.args(["--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]);
    if protocol == Protocol::Amqp {
        command.args(["--listen", "amqp=127.0.0.1:0"]);
    }
    command.args(["--set", "kafka.group.initial.rebalance.delay.ms=0", "--set", "server.log_filter=warn"]);
    let class = if *target == Target::PolylogueSync { "sync" } else { "async" };
    command.args(["--set", &format!("log.durability={class}")]);
    command
}

fn rabbitmq(programs: &Programs, place: &Path, log: &Path, interrupt: &Interrupt) -> Result<Running> {
    let ports = Ports { amqp: free_port()?, nodes: free_port()?, epmd: free_port()? };
    let rabbitmq = Rabbitmq { unpacked: &programs.rabbitmq, place, ports };
    let epmd = Process::start("epmd", rabbitmq.epmd()?, log, false)?;
    let process = Process::start("RabbitMQ", rabbitmq.command()?, log, false)?;
    let bootstrap = format!("127.0.0.1:{}", ports.amqp);
    let mut running = Running { bootstrap, process: Some(process), helper: Some(epmd) };
    running.wait_answers(interrupt, |at| amqp::wire::Wire::connect(at).is_ok())?;
    Ok(running)
}

/// Starts a broker that says on standard output where it listens, and that it is ready when it says `ready` or, without, at once.
fn talking(
    name: &str,
    command: Command,
    log: &Path,
    listening: &str,
    ready: Option<&str>,
    interrupt: &Interrupt,
) -> Result<Running> {
    let mut process = Process::start(name, command, log, true)?;
    let mut bootstrap = String::new();
    loop {
        let line = process.line(START_PATIENCE, interrupt)?;
        if let Some(rest) = line.strip_prefix(listening) {
            let address = rest.split_whitespace().next().unwrap_or_default();
            address.trim_end_matches(',').clone_into(&mut bootstrap);
        }
        if ready.map_or(!bootstrap.is_empty(), |ready| line == ready) {
            return Ok(Running { bootstrap, process: Some(process), helper: None });
        }
    }
}

/// A port of the loopback that nobody has now. Another process may take it before the broker does; then
/// that does not start, and says so.
fn free_port() -> Result<u16> {
    let probe = TcpListener::bind("127.0.0.1:0").context(|| "there is no free port".to_owned())?;
    Ok(probe.local_addr().context(|| "cannot ask for a port".to_owned())?.port())
}
