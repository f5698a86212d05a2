//! `run`: one load, one target.

use super::{Places, milliseconds, say};
use crate::amqp::load::{QueueKind, QueueLoad};
use crate::amqp::wire;
use crate::contract::{COMMIT_MS, DRAIN_MS_MAX, From, Second, Shape, Spec, System};
use crate::drive::{Driver, WorkerReport, drive};
use crate::error::{BenchError, Context, Result};
use crate::latency::Latency;
use crate::omb::{Driven, OmbResult, Workload};
use crate::process::{Folder, Interrupt, lock_folder};
use crate::progress::Progress;
use crate::remote::{self, drive_there};
use crate::run::drained_s;
use crate::target::{Programs, Protocol, Running, Target};
use crate::wire::Wire;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of the first producer of a backlog.
const BACKLOG_PRODUCER: u32 = 500_000;
/// Timeout for writing a backlog. Milliseconds.
const BACKLOG_MS_MAX: u64 = 12 * 60 * 60 * 1_000;
/// Batch size for writing a backlog. Bytes.
const BACKLOG_BATCH_BYTES: u32 = 1_000_000;
const MINUTE_MS: u64 = 60_000;
/// The maximum size of a settings file. Bytes.
const CONFIG_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// A name of `peers list`; or a running broker, SYSTEM=HOST:PORT (kafka, rabbitmq, rabbitmq-stream, pulsar, rocketmq, tubemq)
    #[arg(long, default_value = "polylogue-sync")]
    target: Target,
    /// raw, librdkafka or java; amqp for queues
    #[arg(long, default_value = "raw")]
    client: Driver,
    /// Which of the official Java clients [default: the target's own]: kafka, rabbitmq, rabbitmq-stream, pulsar, rocketmq, tubemq
    #[arg(long, value_name = "SYSTEM")]
    system: Option<System>,
    /// The topic to create
    #[arg(long, default_value = "measured")]
    topic: String,
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    #[arg(long, default_value_t = 1)]
    producers: u32,
    /// Readers per group
    #[arg(long, default_value_t = 1)]
    consumers: u32,
    #[arg(long, default_value_t = 1)]
    groups: u32,
    #[arg(long, value_name = "BYTES", default_value_t = 1_024)]
    message_bytes: u32,
    /// Messages per second; 0: unlimited
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Number of messages after which the run ends; 0: ends by time
    #[arg(long, default_value_t = 0)]
    messages: u64,
    /// Discarded time at the start
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "5s")]
    warmup: Duration,
    /// Measured time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "20s")]
    window: Duration,
    #[arg(long, value_name = "BYTES", default_value_t = 131_072)]
    batch_bytes: u32,
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "1ms")]
    linger: Duration,
    /// Batches per request of the raw driver
    #[arg(long, default_value_t = 1)]
    batches_per_request: u32,
    /// Requests in flight per producer; messages without a confirm with the client amqp
    #[arg(long, default_value_t = 5)]
    in_flight: u32,
    #[command(flatten)]
    pub(super) queues: QueueArgs,
    /// File of settings passed to the client by its own names: lines of key=value (java, librdkafka)
    #[arg(long, value_name = "FILE")]
    client_config: Option<PathBuf>,
    /// Administration address of a running broker, if it is another one (pulsar: its web service; tubemq: its master's); without it the topic must exist
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// A workload file of the OpenMessaging Benchmark, which sets topics, groups, rate, sizes and times
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["partitions", "producers", "consumers", "groups", "message_bytes", "rate", "messages"]
    )]
    workload: Option<PathBuf>,
    /// Shorten its minutes to the times of --warmup and --window
    #[arg(long, requires = "workload")]
    short: bool,
    /// Write a result file in the OpenMessaging Benchmark's format
    #[arg(long, value_name = "FILE", requires = "workload")]
    omb_result: Option<PathBuf>,
    /// Run the load on a remote worker (`worker --listen`)
    #[arg(long, value_name = "HOST:PORT", requires = "worker_token")]
    worker: Option<String>,
    /// The worker's token
    #[arg(long, value_name = "WORD", env = "POLYLOGUE_BENCH_TOKEN", hide_env_values = true)]
    worker_token: Option<String>,
}

/// Options of the client amqp, which uses queues as partitions.
#[derive(Debug, Args)]
pub(super) struct QueueArgs {
    /// The type of the queues: classic or quorum
    #[arg(long, value_name = "TYPE", default_value = "classic")]
    queue: QueueKind,
    /// Queues that are not durable, with transient messages
    #[arg(long)]
    transient: bool,
    /// Publish without confirms
    #[arg(long)]
    no_confirms: bool,
    /// Prefetch of a consumer; 0: unlimited
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    prefetch: u16,
    /// Messages per acknowledgement; 0: automatic acknowledgement
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    ack_every: u32,
}

impl QueueArgs {
    pub(super) fn load(&self) -> Result<QueueLoad> {
        let (prefetch, ack_every) = (self.prefetch, self.ack_every);
        // The prefetch would be exhausted before an acknowledgement is due: the consumer's own timer would be measured.
        if prefetch > 0 && ack_every > u32::from(prefetch) {
            return Err(BenchError::new(format!(
                "--ack-every {ack_every} is more than a consumer may hold with --prefetch {prefetch}; acknowledge at most {prefetch} at once"
            )));
        }
        let (durable, confirms) = (!self.transient, !self.no_confirms);
        Ok(QueueLoad { kind: self.queue, durable, confirms, prefetch, ack_every, exchange: None })
    }
}

/// Whether a client accepts settings of its own, for example credentials.
fn takes_settings(client: Driver) -> bool {
    matches!(client, Driver::Java | Driver::Librdkafka)
}

/// Parses lines of `key=value`; empty ones and those that begin with `#` are skipped.
fn client_config(text: &str) -> Result<BTreeMap<String, String>> {
    if text.len() > CONFIG_BYTES_MAX {
        return Err(BenchError::new(format!("it has more than {CONFIG_BYTES_MAX} bytes")));
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let setting = |line: &str| {
        let (key, value) = line.split_once('=').filter(|(key, _)| !key.trim().is_empty())?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    };
    // A value may be a secret: it is not shown.
    let refused = |line: &str| {
        let shown: String = line.chars().take_while(|c| *c != '=').take(40).collect();
        BenchError::new(format!("{shown:?} is no key=value"))
    };
    lines.map(|line| setting(line).ok_or_else(|| refused(line))).collect()
}

/// The parameters of a run.
struct Single {
    spec: Spec,
    workload: Option<Workload>,
    java: bool,
}

impl Single {
    /// Parses the arguments; the broker's address is added later.
    fn of(args: &RunArgs) -> Result<Single> {
        let system = args.system.unwrap_or_else(|| args.target.system());
        let java = args.client == Driver::Java;
        let through_queues = args.client == Driver::Amqp || java && system == System::Rabbitmq;
        let queues = through_queues.then(|| args.queues.load()).transpose()?;
        let settings = args.client_config.as_ref().map(|path| {
            let said = || format!("cannot take the settings of {}", path.display());
            client_config(&std::fs::read_to_string(path).context(said)?).context(said)
        });
        if settings.is_some() && !takes_settings(args.client) {
            let client = args.client;
            return Err(BenchError::new(format!(
                "the client {client} takes no settings: --client-config is for --client java and --client librdkafka"
            )));
        }
        let shape = Shape { settings: settings.transpose()?.unwrap_or_default(), ..Shape::default() };
        let spec = Spec {
            bootstrap: String::new(),
            topic: args.topic.clone(),
            partitions: args.partitions,
            producers: args.producers,
            producer_base: 0,
            consumers: args.consumers,
            groups: if args.target == Target::Null && queues.is_none() { 0 } else { args.groups },
            message_bytes: args.message_bytes,
            rate: args.rate,
            messages: args.messages,
            warmup_ms: milliseconds(args.warmup),
            window_ms: milliseconds(args.window),
            batch_bytes: args.batch_bytes,
            linger_us: u64::try_from(args.linger.as_micros()).unwrap_or(u64::MAX),
            batches_per_request: args.batches_per_request,
            in_flight: args.in_flight,
            from: From::End,
            expect: 0,
            read_bytes_per_s_max: 0,
            gives_way: false,
            verify: true,
            queues,
            open_warmup: false,
            shape,
            system,
            create: java,
            admin: args.admin.clone(),
            commit_ms: COMMIT_MS,
        };
        let Some(file) = &args.workload else { return Ok(Single { spec, workload: None, java }) };
        let workload = Workload::read(file)?;
        let place = file.parent().unwrap_or(Path::new("."));
        let mut spec = Single::worked(spec, &workload, place)?;
        if !args.short {
            spec.warmup_ms = workload.warmup_duration_minutes * MINUTE_MS;
            spec.window_ms = workload.test_duration_minutes * MINUTE_MS;
        }
        Ok(Single { spec, workload: Some(workload), java })
    }

    /// Applies a workload to the spec.
    fn worked(spec: Spec, workload: &Workload, place: &Path) -> Result<Spec> {
        let (topics, partitions) = match spec.queues {
            Some(_) => (1, workload.topics * workload.partitions_per_topic),
            None => (workload.topics, workload.partitions_per_topic),
        };
        let shape = Shape {
            topics,
            spread: workload.key_distributor.spread(),
            payloads: workload.payloads(place)?,
            histograms: true,
            ..spec.shape
        };
        let groups = if spec.groups == 0 { 0 } else { workload.subscriptions_per_topic };
        Ok(Spec {
            partitions,
            producers: workload.producers(),
            consumers: workload.consumers(),
            groups,
            message_bytes: workload.message_size,
            rate: workload.producer_rate,
            messages: 0,
            shape,
            ..spec
        })
    }

    /// Returns the concurrent loads: with a backlog the readers are separate, because they read more than what is sent now.
    fn loads(&self) -> Vec<Spec> {
        if self.backlog() == 0 {
            return vec![self.spec.clone()];
        }
        let live = Spec { groups: 0, ..self.spec.clone() };
        let reading = Spec { producers: 0, rate: 0, from: From::Beginning, create: false, ..self.spec.clone() };
        vec![live, reading]
    }

    fn backlog(&self) -> u64 {
        self.workload.as_ref().map_or(0, Workload::backlog_messages)
    }

    fn backlog_spec(&self) -> Spec {
        Spec {
            producer_base: BACKLOG_PRODUCER,
            groups: 0,
            rate: 0,
            messages: self.backlog(),
            warmup_ms: 0,
            window_ms: BACKLOG_MS_MAX - DRAIN_MS_MAX,
            batch_bytes: self.spec.batch_bytes.max(BACKLOG_BATCH_BYTES),
            ..self.spec.clone()
        }
    }
}

/// Runs loads: locally, or on a remote worker.
struct Runner<'a> {
    args: &'a RunArgs,
    programs: &'a Programs,
    place: &'a Path,
    interrupt: &'a Interrupt,
    progress: &'a mut Progress,
}

impl Runner<'_> {
    fn drive(&mut self, specs: &[Spec]) -> Result<Vec<WorkerReport>> {
        let progress = &mut *self.progress;
        let mut heard = |second: &Second| progress.second(second);
        let client = self.args.client;
        let Some((worker, token)) = self.args.worker.as_ref().zip(self.args.worker_token.as_ref()) else {
            return drive(client, specs, self.programs, self.place, self.interrupt, &mut heard);
        };
        let [spec] = specs else {
            return Err(BenchError::new("a backlog is read by a load of its own: that needs the client here"));
        };
        let (stated, offset) = drive_there(worker, token, client, spec, self.interrupt, &mut heard)?;
        say(&remote::describe(&offset))?;
        Ok(vec![stated])
    }
}

/// Merges results into one.
fn together(all: Vec<WorkerReport>) -> WorkerReport {
    let mut all = all.into_iter();
    let mut sum = all.next().unwrap_or_default();
    for other in all {
        let (done, more) = (&mut sum.done, other.done);
        done.received += more.received;
        done.lost += more.lost;
        done.duplicated += more.duplicated;
        done.out_of_order += more.out_of_order;
        done.errors += more.errors;
        done.error = done.error.take().or(more.error);
        done.cpu_s += more.cpu_s;
        (done.read_s, done.read_bytes, done.end_to_end) = (more.read_s, more.read_bytes, more.end_to_end);
        for second in other.seconds {
            match sum.seconds.iter_mut().find(|known| known.second == second.second) {
                Some(known) => {
                    known.received += second.received;
                    known.end_to_end_max_ns = second.end_to_end_max_ns;
                    known.end_to_end_p99_ns = second.end_to_end_p99_ns;
                    known.end_to_end = second.end_to_end;
                }
                None => sum.seconds.push(second),
            }
        }
    }
    sum
}

pub(super) fn run(args: &RunArgs, places: &Places, json: bool) -> Result<()> {
    let mut single = Single::of(args)?;
    let interrupt = Interrupt::listen()?;
    let programs = places.programs()?;
    let work = places.build.join("bench");
    let _alone = lock_folder(&work)?;
    let place = Folder::create(&work.join("run"))?;
    let canned = (single.spec.partitions, single.spec.message_bytes);
    let protocol = if single.spec.queues.is_some() { Protocol::Amqp } else { Protocol::Kafka };
    let running = Running::start(&args.target, &programs, place.path(), protocol, canned, &interrupt)?;
    let spec = &mut single.spec;
    running.address(spec.system).clone_into(&mut spec.bootstrap);
    spec.admin = running.admin().map(str::to_owned).or_else(|| spec.admin.take());
    // The Java worker creates topics itself, with its settings; a broker that requires settings cannot be reached without them.
    if !spec.create && spec.shape.settings.is_empty() {
        make_topics(spec)?;
    }
    let mut progress = Progress::new();
    let (place, programs, interrupt) = (place.path(), &programs, &interrupt);
    let mut runner = Runner { args, programs, place, interrupt, progress: &mut progress };
    let mut told_more = json!({});
    if single.backlog() > 0 {
        let written = together(runner.drive(&[single.backlog_spec()])?);
        told_more = json!({"backlog": written.done.acked, "backlog_s": written.done.publish_s});
    }
    let all = runner.drive(&single.loads())?;
    if let (Some(workload), Some(reading)) = (&single.workload, all.get(1)) {
        let (messages, ratio) = (single.backlog() * u64::from(single.spec.groups), workload.backlog_drain_ratio);
        told_more["drained_s"] = json!(drained_s(&reading.seconds, messages, ratio));
    }
    let stated = together(all);
    if let (Some(workload), Some(file)) = (&single.workload, &args.omb_result) {
        write_omb(workload, &single.spec, &stated, &args.target.name(), file)?;
    }
    tell(args, &single, &stated, &told_more, json)
}

/// Creates the topics, or the queues used as partitions, for a client that does not.
fn make_topics(spec: &Spec) -> Result<()> {
    match spec.queues {
        Some(load) => wire::declare_all(&spec.bootstrap, &spec.topic, spec.partitions, load).map(drop),
        None if spec.system == System::Kafka => {
            Wire::connect(&spec.bootstrap)?.create_topics(&spec.topic, spec.shape.topics, spec.partitions)
        }
        None => Ok(()),
    }
}

fn write_omb(workload: &Workload, spec: &Spec, stated: &WorkerReport, driver: &str, file: &Path) -> Result<()> {
    let (warmup_s, window_s) = (spec.warmup_ms / 1_000, spec.window_ms.div_ceil(1_000));
    let driven = Driven { driver, warmup_s, window_s, seconds: &stated.seconds, done: &stated.done };
    let said = || format!("cannot write {}", file.display());
    let text = serde_json::to_string_pretty(&OmbResult::of(workload, &driven)?).context(said)?;
    std::fs::write(file, text).context(said)
}

fn tell(args: &RunArgs, single: &Single, stated: &WorkerReport, more: &Value, json: bool) -> Result<()> {
    let done = &stated.done;
    let (publish, end_to_end) = (Latency::from_text(&done.publish)?, Latency::from_text(&done.end_to_end)?);
    let of = |latency: &Latency| {
        let of = |percentile| latency.percentile(percentile).map(|ns| ns as f64 / 1e6);
        let mean = latency.mean().map(|ns| ns / 1e6);
        let (p50, p99, p999) = (of(50.0), of(99.0), of(99.9));
        let max = latency.max() as f64 / 1e6;
        json!({"mean_ms": mean, "p50_ms": p50, "p99_ms": p99, "p99.9_ms": p999, "max_ms": max})
    };
    let mut result = json!({
        "target": args.target.name(), "durability": args.target.durability(), "client": args.client.name(),
        "sent": done.sent, "acked": done.acked, "received": done.received, "errors": done.errors, "error": done.error,
        "lost": done.lost, "duplicated": done.duplicated, "out_of_order": done.out_of_order,
        "per_s": done.acked as f64 / done.publish_s, "client_cpu_s": done.cpu_s,
        "publish": of(&publish), "end_to_end": of(&end_to_end),
    });
    if matches!(args.target, Target::At(_)) {
        result["broker"] = json!("a running broker: its processor time and memory are unknown");
    }
    for (name, value) in more.as_object().into_iter().flatten() {
        result[name] = value.clone();
    }
    let text = if json { Ok(result.to_string()) } else { serde_json::to_string_pretty(&result) };
    say(&text.context(|| "cannot write the result".to_owned())?)?;
    let pipelined = single.java && args.in_flight > 1 && !single.spec.system.keeps_order_of_pipelined();
    let disorder = if pipelined { 0 } else { done.out_of_order };
    if done.errors + done.lost + done.duplicated + disorder > 0 || done.error.is_some() {
        return Err(BenchError::new("the run does not count: messages were refused, lost, doubled or out of order"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(arguments: &[&str]) -> std::result::Result<RunArgs, String> {
        let line = ["polylogue-bench", "run"].iter().chain(arguments);
        match Cli::try_parse_from(line).map_err(|e| e.to_string())?.command {
            Command::Run(args) => Ok(*args),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn settings_are_lines_of_keys_and_values() {
        let stated = client_config("# a comment\n\nsecurity.protocol = SASL_SSL\nsasl.jaas.config=a=\"b\";\n")
            .expect("settings");
        let wanted = [("sasl.jaas.config", "a=\"b\";"), ("security.protocol", "SASL_SSL")];
        assert_eq!(stated, wanted.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let refused = client_config("acks\n").expect_err("no value").to_string();
        assert!(refused.contains("acks"), "{refused}");
        let refused = client_config("=secret\n").expect_err("no key").to_string();
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn a_workload_says_what_is_run() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-single-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let file = folder.path().join("w.yaml");
        let text = "topics: 3\npartitionsPerTopic: 5\nmessageSize: 200\nsubscriptionsPerTopic: 2\nproducersPerTopic: 2\n\
                    consumerPerSubscription: 1\nproducerRate: 1000\nconsumerBacklogSizeGB: 1\ntestDurationMinutes: 5\n";
        std::fs::write(&file, text).expect("a file");
        let path = file.display().to_string();
        let single = Single::of(&args(&["--workload", &path]).expect("arguments")).expect("a load");
        let spec = &single.spec;
        assert_eq!((spec.shape.topics, spec.partitions, spec.producers, spec.consumers), (3, 5, 6, 3));
        assert_eq!((spec.groups, spec.rate, spec.warmup_ms, spec.window_ms), (2, 1_000, 60_000, 300_000));
        let backlog = (1 << 30) / 200 / 2;
        assert_eq!((single.backlog_spec().messages, single.backlog_spec().groups), (backlog, 0));
        let loads = single.loads();
        assert_eq!(loads.iter().map(|load| (load.producers, load.groups)).collect::<Vec<_>>(), [(6, 0), (0, 2)]);
        assert!(loads.iter().all(|load| load.check().is_ok()));
        let short = ["--workload", &path, "--short", "--warmup", "1s", "--window", "2s"];
        let short = Single::of(&args(&short).expect("arguments")).expect("a load").spec;
        assert_eq!((short.warmup_ms, short.window_ms), (1_000, 2_000));
        let queues = ["--workload", &path, "--client", "amqp", "--target", "rabbitmq"];
        let queues = Single::of(&args(&queues).expect("arguments")).expect("a load").spec;
        assert_eq!((queues.shape.topics, queues.partitions), (1, 15), "queues stand for the partitions of all topics");
        let java = ["--workload", &path, "--client", "java", "--target", "kafka=h:1"];
        let java = Single::of(&args(&java).expect("arguments")).expect("a load").spec;
        assert_eq!(
            (java.shape.topics, java.create),
            (3, true),
            "its settings may be what lets it in: it makes all topics"
        );
        assert!(args(&["--workload", &path, "--rate", "5"]).is_err(), "one of them says the rate");
        assert!(args(&["--omb-result", "x"]).is_err(), "without a workload there is none");
    }

    /// Regression test: the raw driver ignored the settings, and reported that the broker had hung up.
    #[test]
    fn settings_are_refused_where_nobody_reads_them() {
        let file = std::env::temp_dir().join(format!("polylogue-bench-settings-{}", std::process::id()));
        std::fs::write(&file, "security.protocol=SSL\n").expect("a file");
        let of = |client: &str| {
            let path = file.to_string_lossy().into_owned();
            let arguments = ["--target", "kafka=h:1", "--client", client, "--client-config", &path];
            Single::of(&args(&arguments).expect("arguments")).map(|single| single.spec.shape.settings.len())
        };
        let stated = ["java", "librdkafka", "raw", "amqp"].map(|client| of(client).map_err(|e| e.to_string()));
        std::fs::remove_file(&file).expect("it was there");
        assert_eq!(stated[..2], [Ok(1), Ok(1)]);
        for refused in &stated[2..] {
            assert!(refused.as_ref().is_err_and(|said| said.contains("takes no settings")), "{refused:?}");
        }
    }

    #[test]
    fn a_broker_of_somebody_else_is_measured_with_its_own_client() {
        for (target, system) in [("kafka=h:1", System::Kafka), ("pulsar=h:1", System::Pulsar), ("h:1", System::Kafka)] {
            let single =
                Single::of(&args(&["--target", target, "--client", "java"]).expect("arguments")).expect("a load");
            assert_eq!((single.spec.system, single.spec.create), (system, true), "{target}");
        }
        let admin = ["--target", "tubemq=h:1", "--client", "java", "--admin", "h:2"];
        let single = Single::of(&args(&admin).expect("arguments")).expect("a load");
        assert_eq!(single.spec.admin.as_deref(), Some("h:2"));
        for wrong in ["nats=h:1", "kafka=h", "kafka=:1", "h:port"] {
            assert!(args(&["--target", wrong]).is_err(), "{wrong}");
        }
        assert!(args(&["--worker", "h:1"]).is_err(), "a worker wants its word");
    }

    #[test]
    fn what_two_clients_told_is_put_together() {
        let second = |second, sent, received| Second { second, sent, received, ..Second::default() };
        let mut writes = WorkerReport { seconds: vec![second(0, 5, 0)], ..WorkerReport::default() };
        writes.done.sent = 5;
        let mut reads = WorkerReport { seconds: vec![second(0, 0, 7), second(1, 0, 8)], ..WorkerReport::default() };
        (reads.done.received, reads.done.lost) = (15, 1);
        let stated = together(vec![writes, reads]);
        assert_eq!((stated.done.sent, stated.done.received, stated.done.lost), (5, 15, 1));
        assert_eq!(stated.seconds, [second(0, 5, 7), second(1, 0, 8)]);
    }
}
