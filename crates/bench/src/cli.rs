//! The command line.

mod compare;
mod first;
mod single;

use crate::amqp::consumer::Consumers;
use crate::amqp::publisher::Publishers;
use crate::bare::{sendfile_loop, write_loop};
use crate::contract::System;
use crate::drive::Driver;
use crate::error::{BenchError, Context, Result};
use crate::first::install_perf_test;
use crate::install::{java_client, java_worker, librdkafka_worker, programs};
use crate::machine::flush_figures;
use crate::matrix::Scale;
use crate::null::{Faults, NullBroker, NullSpec};
use crate::peers::about::{about, java_version, text};
use crate::peers::rabbitmq::install_rabbitmq;
use crate::peers::{kafka, pulsar, rocketmq, tubemq};
use crate::process::{Folder, Interrupt};
use crate::progress::Progress;
use crate::raw::producer::Producers;
use crate::raw::reader::Readers;
use crate::remote::Server;
use crate::report::{book, front, latest, markdown, write_page};
use crate::results::read;
use crate::scenarios::Texts;
use crate::target::{Programs, Protocol, Running, Target};
use crate::versus::{Peer, Plan, versus};
use crate::worker::work;
use clap::{Args, Parser, Subcommand, ValueEnum};
use compare::{CompareArgs, compare, scenarios};
use first::{FirstArgs, first};
use serde_json::json;
use single::{RunArgs, run};
use std::collections::BTreeSet;
use std::io::{BufReader, Write, stdin, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Measures message brokers side by side, with the same client, the same load and a stated durability.
#[derive(Debug, Parser)]
#[command(name = "polylogue-bench", version, max_term_width = 100)]
pub struct Cli {
    /// Write results as JSON, one per line
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    places: Places,
    #[command(subcommand)]
    command: Command,
}

/// Directories.
#[derive(Debug, Args)]
struct Places {
    /// The checkout
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Directory of installed peers and workers, and of brokers' data
    #[arg(long, global = true, value_name = "DIR", default_value = "build")]
    build: PathBuf,
    /// polylogue's binary [default: target/release/polylogue of the checkout]
    #[arg(long, global = true, value_name = "FILE")]
    polylogue: Option<PathBuf>,
}

impl Places {
    fn programs(&self) -> Result<Programs> {
        programs(&self.root, &self.build, self.polylogue.clone())
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one load against one target
    Run(Box<RunArgs>),
    /// Run the scenarios of the published comparisons, alternating targets
    Compare(CompareArgs),
    /// List the scenarios: what each shows, the published figures, and what is run here
    Scenarios,
    /// Run the first-try benchmark: Kafka's perf-test tools and RabbitMQ's PerfTest with their defaults, alternating sides
    First(FirstArgs),
    /// Run the matrix against one peer, alternating targets
    Versus(VersusArgs),
    /// Install peers and workers, or run a peer in the foreground
    #[command(subcommand)]
    Peers(PeersCommand),
    /// Run a broker that answers everything at once and stores nothing
    Null(NullArgs),
    /// Run the machine's bare loops
    Bare(BareArgs),
    /// Turn result lines into tables on the terminal, or into a report with charts: HTML, Markdown
    Report(ReportArgs),
    /// Run loads for clients that know the token; without --listen: act as a driver, on standard input and output
    Worker(WorkerArgs),
}

#[derive(Debug, Args)]
struct VersusArgs {
    /// The peer to compare with
    #[arg(value_enum, default_value_t = Peer::Kafka)]
    peer: Peer,
    /// A smoke run: every cell for seconds; its figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Rounds of every cell [default: 5; 1 for a smoke run]
    #[arg(long)]
    rounds: Option<u32>,
    /// Only cells whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Leave out sides on this target; may be repeated
    #[arg(long, value_name = "TARGET")]
    without: Vec<Target>,
    /// Discarded at the start of a run by time (latency, cold and size cells) [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "quick")]
    warmup: Option<Duration>,
    /// Measured time of a run by time [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "quick")]
    window: Option<Duration>,
    /// Messages of a run by count (cost and throughput cells) [default: 3000000]
    #[arg(long, value_name = "COUNT", conflicts_with = "quick")]
    messages: Option<u64>,
    /// Messages of the warm-up run before it [default: 2000000]
    #[arg(long, value_name = "COUNT", conflicts_with = "quick")]
    warm_messages: Option<u64>,
    /// Resume an aborted run: skip sides that have a result of this commit and these programs, under the same conditions, without failures or with a loss
    #[arg(long)]
    resume: bool,
    /// List the cells and their sides, and run nothing
    #[arg(long)]
    plan: bool,
    /// File to append result lines to [default: benches/results/versus-PEER.jsonl of the checkout; for a smoke run in the build directory]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum PeersCommand {
    /// Fetch peers: RabbitMQ by apt-get, all others by Maven; nothing is installed into the system
    Install {
        /// The peers
        #[arg(value_enum, default_values_t = [Installed::Kafka])]
        peers: Vec<Installed>,
    },
    /// List the targets: version, age, heap, durability, and all settings that differ from the defaults
    List,
    /// Build the workers in other languages
    Workers,
    /// Run a peer in the foreground until SIGINT or SIGTERM, with its data in a directory that is removed at the end
    Run {
        /// A name of `peers list`
        target: Target,
    },
}

/// What can be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Installed {
    Kafka,
    Rabbitmq,
    Pulsar,
    Rocketmq,
    Tubemq,
    /// RabbitMQ's load generator
    PerfTest,
}

#[derive(Debug, Args)]
struct WorkerArgs {
    /// raw or amqp
    #[arg(conflicts_with = "listen")]
    driver: Option<Driver>,
    /// Listen address; on an address other than loopback any client with the token can put load on whatever this machine reaches
    #[arg(long, value_name = "HOST:PORT", requires = "token", num_args = 0..=1, default_missing_value = "127.0.0.1:7090")]
    listen: Option<SocketAddr>,
    /// The token that clients must send
    #[arg(long, value_name = "WORD", env = "POLYLOGUE_BENCH_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

#[derive(Debug, Args)]
struct NullArgs {
    #[arg(long, default_value = "127.0.0.1:9092")]
    listen: SocketAddr,
    /// Speak AMQP instead of the Kafka protocol; the options below are then ignored
    #[arg(long)]
    amqp: bool,
    /// Partitions of every topic
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    /// Size of the messages returned to readers. Bytes
    #[arg(long, default_value_t = 1_024)]
    message_bytes: u32,
    /// Answer no writes from this many milliseconds after the first one, for this many
    #[arg(long, value_name = "AFTER,FOR", value_delimiter = ',', num_args = 2)]
    stall_ms: Vec<u64>,
}

#[derive(Debug, Args)]
struct BareArgs {
    /// Bytes moved by each loop
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// Bytes of a batch
    #[arg(long, default_value_t = 1_000_000)]
    batch_bytes: usize,
    /// Bytes of the file
    #[arg(long, default_value_t = 256 << 20)]
    file_bytes: u64,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// Combine all runs of a cell, not only its latest
    #[arg(long)]
    all: bool,
    /// Write a self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown with its charts into a directory
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,
    /// Write the first page, a page per scenario family and four charts into a directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the headline table between its markers in this file
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
    /// Write nothing; fail if --out and --readme differ from the result lines
    #[arg(long)]
    check: bool,
    /// Files of result lines
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

impl VersusArgs {
    fn scale(&self) -> Result<Scale> {
        let usual = if self.quick { Scale::QUICK } else { Scale::FULL };
        let scale = Scale {
            quick: self.quick,
            messages: self.messages.unwrap_or(usual.messages),
            warm_messages: self.warm_messages.unwrap_or(usual.warm_messages),
            warmup_ms: self.warmup.map_or(usual.warmup_ms, milliseconds),
            window_ms: self.window.map_or(usual.window_ms, milliseconds),
        };
        scale.check()?;
        Ok(scale)
    }
}

impl Cli {
    /// Executes the command.
    ///
    /// # Errors
    /// It cannot be executed, or a run does not count.
    pub fn execute(self) -> Result<()> {
        match self.command {
            Command::Worker(args) => worker(&args, &self.places),
            Command::Null(args) => null(&args),
            Command::Bare(args) => bare(&args, &self.places, self.json),
            Command::Report(args) => report(&args),
            Command::Peers(command) => peers(command, &self.places, self.json),
            Command::Run(args) => run(&args, &self.places, self.json),
            Command::Compare(args) => compare(&args, &self.places, self.json),
            Command::Scenarios => scenarios(self.json),
            Command::First(args) => first(args, &self.places, self.json),
            Command::Versus(args) => beside(args, &self.places, self.json),
        }
    }
}

fn say(text: &str) -> Result<()> {
    writeln!(stdout(), "{text}").context(|| "cannot write the output".to_owned())
}

fn worker(args: &WorkerArgs, places: &Places) -> Result<()> {
    if let (Some(listen), Some(token)) = (args.listen, &args.token) {
        let interrupt = Interrupt::listen()?;
        let server = Server::bind(listen, token.clone(), places.programs()?, places.build.join("bench/worker"))?;
        say(&format!("listening on {}", server.address()?))?;
        return server.serve(&interrupt);
    }
    let (input, output) = (BufReader::new(stdin()), stdout().lock());
    match args.driver {
        Some(Driver::Amqp) => work::<Publishers, Consumers>(input, output),
        Some(Driver::Raw) => work::<Producers, Readers>(input, output),
        _ => Err(BenchError::new("which worker: raw or amqp, or --listen HOST:PORT --token WORD")),
    }
}

fn report(args: &ReportArgs) -> Result<()> {
    let lines = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?.concat();
    let lines = if args.all { lines } else { latest(&lines) };
    let texts = Texts::of(&lines);
    let texts = texts.borrow();
    let input = texts.input(&lines);
    if let Some(file) = &args.html {
        write_page(input, file)?;
    }
    if let Some(folder) = &args.markdown {
        book::write(input, folder)?;
    }
    let (out, readme) = (args.out.as_deref(), args.readme.as_deref());
    match args.check {
        true if out.is_none() && readme.is_none() => {
            return Err(BenchError::new("--check needs --out, --readme or both"));
        }
        true => front::check(input, out, readme)?,
        false => front::write(input, out, readme)?,
    }
    let writes = args.html.is_some() || args.markdown.is_some() || out.is_some() || readme.is_some();
    if !writes { say(&markdown(&lines)) } else { Ok(()) }
}

fn null(args: &NullArgs) -> Result<()> {
    let stall_ms = args.stall_ms.first().copied().zip(args.stall_ms.get(1).copied());
    let spec = NullSpec {
        listen: args.listen,
        partitions: args.partitions,
        message_bytes: args.message_bytes,
        stall_ms,
        keeps: None,
    };
    let address = match args.amqp {
        true => crate::null::amqp::start(args.listen, Faults::default())?,
        false => NullBroker::start(spec)?.address(),
    };
    say(&format!("listening on {address}"))?;
    // Signals have their default action: there is nothing to clean up.
    loop {
        std::thread::park();
    }
}

fn bare(args: &BareArgs, places: &Places, json: bool) -> Result<()> {
    if args.batch_bytes == 0 || args.file_bytes < args.batch_bytes as u64 {
        return Err(BenchError::new("a batch has at least one byte, and the file holds at least one batch"));
    }
    let folder = Folder::create(&places.build.join("bench/bare"))?;
    for flushed in [false, true] {
        let loop_ = write_loop(folder.path(), args.bytes, args.batch_bytes, args.file_bytes, flushed)?;
        let name = if flushed { "read, sum, write, flush" } else { "read, sum, write" };
        tell_bare(name, args.batch_bytes, &loop_, json)?;
    }
    tell_bare("sendfile", 1 << 20, &sendfile_loop(folder.path(), args.bytes, args.file_bytes)?, json)?;
    let flush = flush_figures(folder.path(), true)?;
    if json {
        return say(&json!({ "flush": flush }).to_string());
    }
    let cost = |name: &str| flush.get(name).copied().unwrap_or(0.0);
    let (mean, per_s) = (cost("disk_flush_mean_ms"), cost("disk_flushes_per_s"));
    say(&format!(
        "{:<24} {:>8} bytes a flush  {mean:.3} ms each, {per_s:.0}/s one after the other",
        "write, flush", 4_096
    ))
}

fn tell_bare(name: &str, batch_bytes: usize, bare: &crate::bare::Bare, json: bool) -> Result<()> {
    let (cpu, rate) = (bare.cpu_s_per_million, bare.messages_per_s);
    if json {
        return say(
            &json!({"loop": name, "batch_bytes": batch_bytes, "cpu_s_per_million": cpu, "messages_per_s": rate})
                .to_string(),
        );
    }
    say(&format!(
        "{name:<24} {batch_bytes:>8} bytes a batch  {cpu:.3} CPU s per million messages of 1 KiB  {rate:.0}/s"
    ))
}

fn peers(command: PeersCommand, places: &Places, json: bool) -> Result<()> {
    let programs = places.programs()?;
    match command {
        PeersCommand::Install { peers } => peers.into_iter().try_for_each(|peer| match peer {
            Installed::Kafka => kafka::install(&programs.kafka),
            Installed::Rabbitmq => install_rabbitmq(&programs.rabbitmq),
            Installed::Pulsar => pulsar::install(&programs.peers.join("pulsar")),
            Installed::Rocketmq => rocketmq::install(&programs.peers.join("rocketmq")),
            Installed::Tubemq => tubemq::install(&programs.peers.join("tubemq")),
            Installed::PerfTest => install_perf_test(&programs.peers),
        }),
        PeersCommand::List => list(&programs, json),
        PeersCommand::Workers => {
            let sources = places.root.join("crates/bench/workers");
            let clients: BTreeSet<&str> = System::ALL.into_iter().map(java_client).collect();
            clients.into_iter().try_for_each(|client| java_worker(&sources.join("java"), &programs.java, client))?;
            let built = programs.librdkafka.parent().and_then(std::path::Path::parent).map(std::path::Path::to_owned);
            librdkafka_worker(&sources.join("librdkafka"), &built.unwrap_or_default())
        }
        PeersCommand::Run { target } => {
            let interrupt = Interrupt::listen()?;
            let place = Folder::create(&places.build.join("bench/peer"))?;
            let protocol = Protocol::Kafka;
            let mut running = Running::start(&target, &programs, place.path(), protocol, (1, 1_024), &interrupt)?;
            let admin = running.admin().map(|admin| format!(", administered at {admin}")).unwrap_or_default();
            say(&format!("{target} listening on {}{admin}", running.bootstrap()))?;
            while !interrupt.is_set() {
                running.check()?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }
    }
}

fn list(programs: &Programs, json: bool) -> Result<()> {
    let all = Target::known().map(|target| about(&target, programs));
    if json {
        let lines = all.iter().map(serde_json::to_string).collect::<std::result::Result<Vec<_>, _>>();
        return say(&lines.context(|| "cannot write what targets are".to_owned())?.join("\n"));
    }
    let java = java_version().unwrap_or_else(|| "none is installed".to_owned());
    say(&format!("{}\n\nJava: {java}", all.iter().map(text).collect::<Vec<_>>().join("\n\n")))
}

fn beside(args: VersusArgs, places: &Places, json: bool) -> Result<()> {
    let kept = match args.quick {
        true => places.build.join("bench/quick.jsonl"),
        false => places.root.join(format!("benches/results/versus-{}.jsonl", args.peer.name())),
    };
    let plan = Plan {
        peer: args.peer,
        scale: args.scale()?,
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 5 }),
        only: args.only,
        without: args.without,
        resume: args.resume,
        results: args.results.unwrap_or(kept),
        work: places.build.join("bench"),
    };
    if args.plan {
        for cell in plan.cells() {
            let sides: Vec<&str> = cell.sides.iter().map(|side| side.label.as_str()).collect();
            say(&format!("{}: {}", cell.name, sides.join(", ")))?;
        }
        return Ok(());
    }
    let interrupt = Interrupt::listen()?;
    let lines = versus(&plan, &places.programs()?, &interrupt, &mut Progress::new())?;
    if json {
        for line in &lines {
            say(&serde_json::to_string(line).context(|| "cannot write a result".to_owned())?)?;
        }
    } else {
        say(&markdown(&lines))?;
    }
    match lines.iter().filter(|line| !line.failures.is_empty()).count() {
        0 => Ok(()),
        failed => Err(BenchError::new(format!("{failed} of {} runs do not count; the reasons are above", lines.len()))),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(arguments: &[&str]) -> std::result::Result<Scale, String> {
        let line = ["polylogue-bench", "versus"].iter().chain(arguments);
        let Command::Versus(args) = Cli::try_parse_from(line).map_err(|e| e.to_string())?.command else {
            return Err("another command".to_owned());
        };
        args.scale().map_err(|e| e.to_string())
    }

    fn load(arguments: &[&str]) -> std::result::Result<(u16, u32), String> {
        let line = ["polylogue-bench", "run", "--client", "amqp"].iter().chain(arguments);
        let Command::Run(args) = Cli::try_parse_from(line).map_err(|e| e.to_string())?.command else {
            return Err("another command".to_owned());
        };
        args.queues.load().map(|load| (load.prefetch, load.ack_every)).map_err(|e| e.to_string())
    }

    /// Otherwise messages would be acknowledged only by the consumer's timer, which is what would be measured.
    #[test]
    fn a_consumer_may_hold_what_it_acknowledges_at_once() {
        let stated = load(&["--prefetch", "50"]).expect_err("100 are acknowledged at once unless stated otherwise");
        assert!(stated.contains("--ack-every 100") && stated.contains("--prefetch 50"), "{stated}");
        assert_eq!(load(&[]), Ok((500, 100)));
        assert_eq!(load(&["--prefetch", "50", "--ack-every", "50"]), Ok((50, 50)));
        assert_eq!(load(&["--prefetch", "0", "--ack-every", "1000"]), Ok((0, 1_000)), "no limit");
        assert_eq!(load(&["--prefetch", "1", "--ack-every", "0"]), Ok((1, 0)), "automatic acknowledgement");
    }

    #[test]
    fn runs_can_be_made_shorter_without_becoming_smoke_runs() {
        assert_eq!(scale(&[]), Ok(Scale::FULL));
        assert_eq!(scale(&["--quick"]), Ok(Scale::QUICK));
        let times = Scale { warmup_ms: 10_000, window_ms: 20_000, ..Scale::FULL };
        assert_eq!(scale(&["--warmup", "10s", "--window", "20s"]), Ok(times));
        let counts = Scale { messages: 1_000_000, warm_messages: 0, ..Scale::FULL };
        assert_eq!(scale(&["--messages", "1000000", "--warm-messages", "0"]), Ok(counts));
    }

    #[test]
    fn a_length_that_makes_no_sense_is_refused() {
        for option in ["--warmup=1s", "--window=1s", "--messages=1", "--warm-messages=1"] {
            let stated = scale(&["--quick", option]).expect_err("a smoke run has its own length");
            assert!(stated.contains("--quick"), "{stated}");
        }
        let stated = scale(&["--window", "0s"]).expect_err("it measures nothing");
        assert!(stated.contains("window"), "{stated}");
        assert!(scale(&["--messages", "0"]).is_err());
    }
}
