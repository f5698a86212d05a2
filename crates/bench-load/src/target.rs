//! Targets: a polylogue or another broker that the bench starts, the null broker, or a broker that already runs.

use crate::amqp;
use crate::contract::System;
use crate::error::{BenchError, Context, Result};
use crate::peers::kafka::{self, Kafka};
use crate::peers::pulsar::{self, Pulsar};
use crate::peers::rabbitmq::{self, Rabbitmq};
use crate::peers::rocketmq::{self, Rocketmq};
use crate::peers::tubemq::{self, Tubemq};
use crate::peers::{http, put, remoting};
use crate::process::{Interrupt, Process};
use crate::sample::family;
use crate::wire::Wire;
use std::fmt;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Timeout for the start of a broker.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// Delay between retries.
const START_WAIT: Duration = Duration::from_millis(100);
/// Limit on attempts to find a free port or a pair of ports.
const PORT_TRIES: u32 = 900;
/// Number of ports for brokers, below the ephemeral ports: a power of two.
const PORTS: u16 = 1 << 14;
/// The first ephemeral port, if the system does not report it.
const EPHEMERAL_PORT_MIN: u16 = 32_768;
/// The last port of well-known services.
const PRIVILEGED_PORT_MAX: u16 = 1_023;
/// Step from a port to the next candidate, and step between the first candidates of processes: odd, so that all ports are tried.
const PORT_STEP: u16 = 7_919;
const PROCESS_STEP: u16 = 5_237;
/// Admin path of a topic created to test that topics can be created.
const READY_TOPIC: &str = "/admin/v2/persistent/public/default/bench-ready/partitions";

/// A broker with one of its profiles.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// polylogue, acknowledging after the flush.
    PolylogueSync,
    /// polylogue, acknowledging from the page cache.
    PolylogueAsync,
    /// Kafka with default settings.
    Kafka,
    /// Kafka with a flush for every message.
    KafkaFsync,
    /// Kafka with the recommended settings for production.
    KafkaTuned,
    /// RabbitMQ with default settings.
    Rabbitmq,
    /// RabbitMQ with the recommended settings for production.
    RabbitmqTuned,
    /// Pulsar with default settings, journal flushed.
    Pulsar,
    /// Pulsar with default settings, journal not flushed.
    PulsarNosync,
    /// Pulsar with its developers' settings for benchmarks, journal flushed.
    PulsarTuned,
    /// `RocketMQ` with default settings, flushed in the background.
    Rocketmq,
    /// `RocketMQ` with a flush for every message.
    RocketmqSync,
    /// `RocketMQ` with the recommended settings for flushing in the background.
    RocketmqTuned,
    /// `TubeMQ` with default settings.
    Tubemq,
    /// `TubeMQ` with the settings of its published comparison with Kafka.
    TubemqTuned,
    /// The null broker: it acknowledges everything at once and stores nothing.
    Null,
    /// A broker that is already running: `HOST:PORT`, or `SYSTEM=HOST:PORT`.
    At(String),
}

impl Target {
    /// Returns all targets that the bench starts.
    #[must_use]
    pub fn known() -> [Target; 16] {
        [
            Target::PolylogueSync,
            Target::PolylogueAsync,
            Target::Kafka,
            Target::KafkaFsync,
            Target::KafkaTuned,
            Target::Rabbitmq,
            Target::RabbitmqTuned,
            Target::Pulsar,
            Target::PulsarNosync,
            Target::PulsarTuned,
            Target::Rocketmq,
            Target::RocketmqSync,
            Target::RocketmqTuned,
            Target::Tubemq,
            Target::TubemqTuned,
            Target::Null,
        ]
    }

    /// Returns the name in results and on the command line.
    #[must_use]
    pub fn name(&self) -> String {
        let name = match self {
            Target::PolylogueSync => "polylogue-sync",
            Target::PolylogueAsync => "polylogue-async",
            Target::Kafka => "kafka",
            Target::KafkaFsync => "kafka-fsync",
            Target::KafkaTuned => "kafka-tuned",
            Target::Rabbitmq => "rabbitmq",
            Target::RabbitmqTuned => "rabbitmq-tuned",
            Target::Pulsar => "pulsar",
            Target::PulsarNosync => "pulsar-nosync",
            Target::PulsarTuned => "pulsar-tuned",
            Target::Rocketmq => "rocketmq",
            Target::RocketmqSync => "rocketmq-sync",
            Target::RocketmqTuned => "rocketmq-tuned",
            Target::Tubemq => "tubemq",
            Target::TubemqTuned => "tubemq-tuned",
            Target::Null => "null",
            Target::At(address) => address,
        };
        name.to_owned()
    }

    /// Describes when it acknowledges a message.
    #[must_use]
    pub fn durability(&self) -> &'static str {
        match self {
            Target::PolylogueSync => "flushed",
            Target::PolylogueAsync => "page cache, flushed each second",
            Target::Kafka | Target::KafkaTuned => "page cache",
            Target::KafkaFsync => "flushed (log.flush.interval.messages=1)",
            Target::Rabbitmq | Target::RabbitmqTuned => {
                "depends on the queue: quorum queues flushed, classic queues and streams from the page cache"
            }
            Target::Pulsar | Target::PulsarTuned => "flushed (journalSyncData=true)",
            Target::PulsarNosync => "page cache (journalSyncData=false)",
            Target::Rocketmq => "page cache (ASYNC_FLUSH), flushed each half second",
            Target::RocketmqSync => "flushed (SYNC_FLUSH)",
            Target::RocketmqTuned => {
                "memory of the process (transientStorePoolEnable), in the page cache within 200 ms: a kill loses it"
            }
            Target::Tubemq => "memory of the process, written when it is full or after 10 to 20 s: a kill loses it",
            Target::TubemqTuned => {
                "memory of the process, written when it is full or after 10 to 20 s: a kill loses it"
            }
            Target::Null => "none",
            Target::At(_) => "unknown",
        }
    }

    /// Returns the system whose official Java client measures it by default.
    #[must_use]
    pub fn system(&self) -> System {
        match self {
            Target::Rabbitmq | Target::RabbitmqTuned => System::Rabbitmq,
            Target::Pulsar | Target::PulsarNosync | Target::PulsarTuned => System::Pulsar,
            Target::Rocketmq | Target::RocketmqSync | Target::RocketmqTuned => System::Rocketmq,
            Target::Tubemq | Target::TubemqTuned => System::Tubemq,
            Target::At(text) => system_of(text).unwrap_or_default(),
            _ => System::Kafka,
        }
    }

    /// Returns whether it has its vendor's recommended settings.
    #[must_use]
    pub fn is_tuned(&self) -> bool {
        let tuned = [Target::KafkaTuned, Target::RabbitmqTuned, Target::PulsarTuned, Target::RocketmqTuned];
        tuned.contains(self) || *self == Target::TubemqTuned
    }

    pub(crate) fn kafka(&self) -> kafka::Profile {
        match self {
            Target::KafkaFsync => kafka::Profile::Fsync,
            Target::KafkaTuned => kafka::Profile::Tuned,
            _ => kafka::Profile::Default,
        }
    }

    pub(crate) fn rabbitmq(&self) -> rabbitmq::Profile {
        if self.is_tuned() { rabbitmq::Profile::Tuned } else { rabbitmq::Profile::Default }
    }

    pub(crate) fn pulsar(&self) -> pulsar::Profile {
        match self {
            Target::PulsarNosync => pulsar::Profile::Nosync,
            Target::PulsarTuned => pulsar::Profile::Tuned,
            _ => pulsar::Profile::Default,
        }
    }

    pub(crate) fn rocketmq(&self) -> rocketmq::Profile {
        match self {
            Target::RocketmqSync => rocketmq::Profile::Sync,
            Target::RocketmqTuned => rocketmq::Profile::Tuned,
            _ => rocketmq::Profile::Default,
        }
    }

    pub(crate) fn tubemq(&self) -> tubemq::Profile {
        if self.is_tuned() { tubemq::Profile::Tuned } else { tubemq::Profile::Default }
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
        match Target::known().into_iter().find(|target| target.name() == text) {
            Some(target) => Ok(target),
            None if is_address(text) => Ok(Target::At(text.to_owned())),
            None => {
                let names = Target::known().map(|target| target.name()).join(", ");
                Err(BenchError::new(format!(
                    "unknown target {text}; use one of {names}, HOST:PORT, or SYSTEM=HOST:PORT"
                )))
            }
        }
    }
}

/// Paths of programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The binary of polylogue.
    pub polylogue: PathBuf,
    /// The directory with a directory of jars for each of the other peers.
    pub peers: PathBuf,
    /// The directory of Kafka's jars.
    pub kafka: PathBuf,
    /// The directory that RabbitMQ was unpacked into.
    pub rabbitmq: PathBuf,
    /// The running binary, for the null broker and the raw driver.
    pub bench: PathBuf,
    /// The librdkafka worker.
    pub librdkafka: PathBuf,
    /// The directory with a directory for each system of the Java worker: its classes and, in lib/, its jars.
    pub java: PathBuf,
}

#[cfg(any(test, feature = "testing"))]
impl Programs {
    /// Returns paths that do not exist.
    pub fn nowhere() -> Programs {
        let nowhere = || PathBuf::from("/nowhere");
        Programs {
            polylogue: nowhere(),
            peers: nowhere(),
            kafka: nowhere(),
            rabbitmq: nowhere(),
            bench: nowhere(),
            librdkafka: nowhere(),
            java: nowhere(),
        }
    }
}

/// The protocol of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The Kafka protocol.
    Kafka,
    /// AMQP 0-9-1.
    Amqp,
}

/// A running broker. If the bench started it, it is stopped when dropped, or when the thread that started it ends.
#[derive(Debug)]
pub struct Running {
    bootstrap: String,
    /// Address for clients of RabbitMQ's streams.
    streams: Option<String>,
    /// Address of the admin API, if it is another one.
    admin: Option<String>,
    /// Address of the broker itself, if clients bootstrap from another process.
    listens: Option<String>,
    /// Its processes: the broker first, then its helpers. They are stopped in this order.
    processes: Processes,
}

/// Processes of a broker. Killed when dropped, without waiting for them to store data, because their directory is removed next.
#[derive(Debug)]
struct Processes(Vec<Process>);

impl Drop for Processes {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Process::kill);
    }
}

impl Running {
    /// Starts a target with its data in the directory `place`, and waits until it serves requests.
    ///
    /// Data of an earlier run of the target in that directory is used. The null broker serves `partitions` with canned messages of
    /// `message_bytes`.
    ///
    /// # Errors
    /// The broker does not start in time.
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
            Target::At(text) => Ok(Running::at(address_of(text).to_owned(), Vec::new())),
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
            Target::Rabbitmq | Target::RabbitmqTuned => rabbitmq(target, programs, place, &log, interrupt),
            Target::Kafka | Target::KafkaFsync | Target::KafkaTuned => {
                let [port, controller] = ports(place, free_port)?;
                let kafka = Kafka { jars: &programs.kafka, place, profile: target.kafka() };
                let process = Process::start("Kafka", kafka.command(port, controller)?, &log, false)?;
                let mut running = Running::at(local(port), vec![process]);
                running.retry(interrupt, |at| Wire::connect(at).map(drop))?;
                Ok(running)
            }
            Target::Pulsar | Target::PulsarNosync | Target::PulsarTuned => {
                pulsar(target, programs, place, &log, interrupt)
            }
            Target::Rocketmq | Target::RocketmqSync | Target::RocketmqTuned => {
                rocketmq(target, programs, place, &log, interrupt)
            }
            Target::Tubemq | Target::TubemqTuned => tubemq(target, programs, place, &log, interrupt),
        }
    }

    fn at(bootstrap: String, processes: Vec<Process>) -> Running {
        Running { bootstrap, streams: None, admin: None, listens: None, processes: Processes(processes) }
    }

    /// Returns the address for clients of a system; most brokers have one address for all.
    #[must_use]
    pub fn address(&self, system: System) -> &str {
        match (&self.streams, system) {
            (Some(streams), System::RabbitmqStream) => streams,
            _ => &self.bootstrap,
        }
    }

    /// Returns the address of the admin API, if it is another one.
    #[must_use]
    pub fn admin(&self) -> Option<&str> {
        self.admin.as_deref()
    }

    /// Returns the address of the broker itself, to which messages are sent.
    #[must_use]
    pub fn listens(&self) -> &str {
        self.listens.as_deref().unwrap_or(&self.bootstrap)
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Returns the ids of all its processes, the broker first. Empty if the bench did not start it.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.0.iter().flat_map(|process| family(process.pid())).collect()
    }

    /// Stops it gracefully, if the bench started it. Its data remains.
    pub fn end(&mut self) {
        for mut process in self.processes.0.drain(..) {
            process.end();
        }
    }

    /// Checks that all its processes run.
    ///
    /// # Errors
    /// A process has exited; the error has the end of its log.
    pub fn check(&mut self) -> Result<()> {
        match self.processes.0.iter_mut().find_map(|process| process.ended().then_some(process)) {
            Some(process) => Err(process.explain("the process exited during the run")),
            None => Ok(()),
        }
    }

    /// Retries until a request succeeds, up to a timeout.
    fn retry<T>(&mut self, interrupt: &Interrupt, answers: impl Fn(&str) -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        // Limited by time, not by attempts: an attempt takes long if the broker accepts the request and does not respond.
        let last = loop {
            interrupt.check()?;
            self.check()?;
            match answers(&self.bootstrap) {
                Ok(answer) => return Ok(answer),
                Err(e) if begin.elapsed() >= START_TIMEOUT => break e,
                Err(_) => std::thread::sleep(START_WAIT),
            }
        };
        let timeout_s = START_TIMEOUT.as_secs();
        Err(BenchError::new(format!("the broker at {} is not ready after {timeout_s} s: {last}", self.bootstrap)))
    }
}

/// Returns the system of `SYSTEM=HOST:PORT`.
fn system_of(text: &str) -> Option<System> {
    text.split_once('=')?.0.parse().ok()
}

/// Returns the `HOST:PORT` of `SYSTEM=HOST:PORT` or `HOST:PORT`.
fn address_of(text: &str) -> &str {
    text.split_once('=').map_or(text, |(_, address)| address)
}

fn is_address(text: &str) -> bool {
    let known = !text.contains('=') || system_of(text).is_some();
    let port = address_of(text).rsplit_once(':').filter(|(host, _)| !host.is_empty());
    known && port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
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

fn rabbitmq(target: &Target, programs: &Programs, place: &Path, log: &Path, interrupt: &Interrupt) -> Result<Running> {
    let [amqp, streams, nodes, epmd] = ports(place, free_port)?;
    let ports = rabbitmq::Ports { amqp, streams, nodes, epmd };
    let rabbitmq = Rabbitmq { unpacked: &programs.rabbitmq, place, profile: target.rabbitmq(), ports };
    let epmd = Process::start("epmd", rabbitmq.epmd()?, log, false)?;
    let process = Process::start("RabbitMQ", rabbitmq.command()?, log, false)?;
    let streams = Some(local(ports.streams));
    let mut running = Running { streams, ..Running::at(local(ports.amqp), vec![process, epmd]) };
    // A channel can be opened once the virtual host exists: then queues can be declared.
    running.retry(interrupt, |at| amqp::wire::Wire::connect(at)?.open_channel())?;
    running
        .retry(interrupt, |_| std::net::TcpStream::connect(local(ports.streams)).context(|| "streams".to_owned()))?;
    Ok(running)
}

fn pulsar(target: &Target, programs: &Programs, place: &Path, log: &Path, interrupt: &Interrupt) -> Result<Running> {
    let [port, http_port] = ports(place, free_port)?;
    let admin = local(http_port);
    let pulsar = Pulsar { jars: &programs.peers.join("pulsar"), place, profile: target.pulsar() };
    let process = Process::start("Pulsar", pulsar.command(port, http_port)?, log, false)?;
    let mut running = Running { admin: Some(admin.clone()), ..Running::at(local(port), vec![process]) };
    running.retry(interrupt, |_| http::ask(&admin, "PUT", READY_TOPIC, "application/json", "1"))?;
    running.retry(interrupt, |_| http::ask(&admin, "DELETE", READY_TOPIC, "application/json", ""))?;
    Ok(running)
}

fn rocketmq(target: &Target, programs: &Programs, place: &Path, log: &Path, interrupt: &Interrupt) -> Result<Running> {
    let [names, broker, copies] = ports(place, free_port_with_one_below)?;
    let ports = rocketmq::Ports { names, broker, copies };
    let jars = programs.peers.join("rocketmq");
    let rocketmq = Rocketmq { jars: &jars, place, profile: target.rocketmq(), ports };
    let names = Process::start("RocketMQ's name server", rocketmq.name_server()?, log, false)?;
    let mut running = Running::at(local(ports.names), vec![names]);
    running.retry(interrupt, |at| std::net::TcpStream::connect(at).context(|| "the name server".to_owned()))?;
    running.processes.0.insert(0, Process::start("RocketMQ", rocketmq.broker()?, log, false)?);
    let broker = local(ports.broker);
    running.retry(interrupt, |names| remoting::check_topic_creation(names, &broker))?;
    running.listens = Some(broker);
    Ok(running)
}

fn tubemq(target: &Target, programs: &Programs, place: &Path, log: &Path, interrupt: &Interrupt) -> Result<Running> {
    let [zookeeper, master, admin, figures, broker, broker_web] = ports(place, free_port)?;
    let ports = tubemq::Ports { zookeeper, master, admin, figures, broker, broker_web };
    let jars = programs.peers.join("tubemq");
    let tubemq = Tubemq { jars: &jars, place, profile: target.tubemq(), ports };
    let admin = local(ports.admin);
    let ask = |question: &str| {
        let response = http::ask(&admin, "POST", "/webapi.htm", "application/x-www-form-urlencoded", question)?;
        match response.contains("\"result\":true") {
            true => Ok(response),
            false => Err(BenchError::new(format!("TubeMQ's master rejected {question}: {}", response.trim()))),
        }
    };
    let zookeeper = Process::start("ZooKeeper", tubemq.zookeeper()?, log, false)?;
    let mut running = Running { admin: Some(admin.clone()), ..Running::at(local(ports.master), vec![zookeeper]) };
    running.retry(interrupt, |_| {
        std::net::TcpStream::connect(local(ports.zookeeper)).context(|| "ZooKeeper".to_owned())
    })?;
    running.processes.0.insert(0, Process::start("TubeMQ's master", tubemq.master()?, log, false)?);
    let [groups, broker_added, online] = tubemq.registration();
    let (question, ready) = Tubemq::status_request();
    let registered = running.retry(interrupt, |_| ask(question))?;
    // A restarted master still knows its broker.
    if !registered.contains("\"brokerId\":1") {
        running.retry(interrupt, |_| ask(&groups))?;
        running.retry(interrupt, |_| ask(&broker_added))?;
        running.retry(interrupt, |_| ask(&online))?;
    }
    running.processes.0.insert(0, Process::start("TubeMQ", tubemq.broker()?, log, false)?);
    running.retry(interrupt, |_| {
        let response = ask(question)?;
        match ready.iter().find(|part| !response.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(BenchError::new(format!("TubeMQ's broker is not {part} yet: {}", response.trim()))),
        }
    })?;
    running.listens = Some(local(ports.broker));
    Ok(running)
}

/// Starts a broker that prints its address to standard output after `listening`. It is ready when it prints the line `ready`, or the address.
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
        let line = process.line(START_TIMEOUT, interrupt)?;
        if let Some(rest) = line.strip_prefix(listening) {
            let address = rest.split_whitespace().next().unwrap_or_default();
            address.trim_end_matches(',').clone_into(&mut bootstrap);
        }
        if ready.map_or(!bootstrap.is_empty(), |ready| line == ready) {
            return Ok(Running::at(bootstrap, vec![process]));
        }
    }
}

/// Returns the ports of a run. They are stored in its directory, so that a restarted broker keeps its ports.
fn ports<const N: usize>(place: &Path, pick: impl Fn() -> Result<u16>) -> Result<[u16; N]> {
    let file = place.join("ports");
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let kept: Vec<u16> = kept.split_whitespace().filter_map(|port| port.parse().ok()).collect();
    if let Ok(kept) = <[u16; N]>::try_from(kept) {
        return Ok(kept);
    }
    let mut picked = [0; N];
    for port in &mut picked {
        *port = pick()?;
    }
    put(place, "ports", &picked.map(|port| port.to_string()).join(" "))?;
    Ok(picked)
}

/// Counter of candidate ports.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Returns a free loopback port below the ephemeral ports.
///
/// Another process may take it before the broker does; then the broker fails to start. An ephemeral port is not safe: Pulsar binds
/// its last port ten seconds after its first, and one of its own connections had that port by then.
fn free_port() -> Result<u16> {
    let first = first_of_connections();
    for _ in 0..PORT_TRIES {
        let Some(port) = next_port(first) else { break };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    let probe = TcpListener::bind("127.0.0.1:0").context(|| "no free port".to_owned())?;
    Ok(probe.local_addr().context(|| "cannot read the address of a socket".to_owned())?.port())
}

/// Returns the first ephemeral port (`ip_local_port_range` in Linux' ip-sysctl).
fn first_of_connections() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(EPHEMERAL_PORT_MIN)
}

/// Returns the next candidate of the [`PORTS`] ports below `first`. Processes start at different ones. `None` if the range is too small.
fn next_port(first: u16) -> Option<u16> {
    let lowest = first.checked_sub(PORTS).filter(|lowest| *lowest > PRIVILEGED_PORT_MAX)?;
    let begin = (std::process::id() as u16).wrapping_mul(PROCESS_STEP);
    let step = NEXT_PORT.fetch_add(1, Ordering::Relaxed).wrapping_mul(PORT_STEP);
    Some(lowest + begin.wrapping_add(step) % PORTS)
}

/// Returns a free port for which the port 2 below is free too: `RocketMQ` uses both.
fn free_port_with_one_below() -> Result<u16> {
    for _ in 0..PORT_TRIES {
        let port = free_port()?;
        if TcpListener::bind(("127.0.0.1", port.saturating_sub(2))).is_ok() {
            return Ok(port);
        }
    }
    Err(BenchError::new("no pair of free ports"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pulsar's bookie and `TubeMQ`'s master reject a restarted broker with other ports.
    #[test]
    fn a_restarted_broker_keeps_its_ports() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-ports-{}", std::process::id()));
        let folder = crate::process::Folder::create(&place).expect("a folder");
        let first: [u16; 3] = ports(folder.path(), free_port).expect("ports");
        let second: [u16; 3] =
            ports(folder.path(), || Err(BenchError::new("no port must be picked"))).expect("the stored ports");
        assert_eq!(first, second);
    }

    /// Regression test: Pulsar did not start in every second smoke run: a connection had taken the port of its web service.
    #[test]
    fn ports_of_brokers_are_not_ephemeral() {
        let ports: std::collections::BTreeSet<u16> = (0..100).filter_map(|_| next_port(32_768)).collect();
        assert_eq!(ports.len(), 100, "each of them once");
        assert!(ports.iter().all(|port| (16_384..32_768).contains(port)), "{ports:?}");
        assert_eq!(next_port(10_000), None, "the range is too small");
        let first = first_of_connections();
        let picked = free_port().expect("a port");
        assert!(next_port(first).is_none() || picked < first, "{picked}");
    }

    #[test]
    fn target_names_round_trip() {
        for target in Target::known() {
            assert_eq!(target.name().parse(), Ok(target));
        }
        assert_eq!("host:1".parse(), Ok(Target::At("host:1".to_owned())));
        let stated = "pulsar-sync".parse::<Target>().expect_err("no such").to_string();
        assert!(stated.contains("pulsar-nosync"), "{stated}");
    }
}
