//! Runs one side of a cell: a fresh broker, its load, and the cost of both.
//!
//! ```text
//!   by count   | start, topic | warm up | idle | CPU | measured run | idle | CPU | read all twice, likewise | end, directory removed
//!   by time    | start, topic | idle | warm-up, discarded | CPU | window, the same run | CPU | idle | end, directory removed
//!   ladder     | start, topic | a run by time for each rate ... | idle | the highest rate met, in full | end, directory removed
//!   traced     | the same broker again, in its own directory | a few seconds, flushes counted | end, directory removed
//! ```
//!
//! Processor time of a run by count is counted from an idle broker to an idle broker, so that its background work is included; that of a run by time
//! is the window's, so that compilation and cache filling before it are not included.

mod along;
pub(crate) mod conditions;
mod connections;
mod drain;
mod judged;
mod kill;
mod ladder;
pub mod lives;
mod queues;
mod traced;
mod window;

use crate::amqp;
use crate::cgroup::{MemoryGroup, Room};
use crate::clock::seconds;
use crate::contract::{COMMIT_MS, Done, From, Second, Shape, Spec, System};
use crate::drive::{Driver, WorkerReport, drive, drive_watched};
use crate::error::{BenchError, Context, Result};
use crate::flush::{Counter, Span};
use crate::host::page_cache_bytes;
use crate::how::WarmUp;
use crate::ladder::Ran;
use crate::latency::Latency;
use crate::look::{Probe, series};
use crate::matrix::{Kind, Load, Side};
use crate::perf;
use crate::pin::Pinned;
use crate::process::{Folder, Interrupt, SpawnSettings};
use crate::results::{BUSY, ResultLine};
pub use crate::results::{CLIENT_BUSY, FELL_BEHIND, LADDER_ENDED};
use crate::sample::{Machine, Sample, wait_idle};
use crate::target::{Programs, Protocol, Running, Target};
use crate::wire::Wire;
use along::{Along, Went};
pub use conditions::conditions;
pub(crate) use drain::drained_s;
use lives::{Found, Kept, Started};
use rustix::fs::{Advice, fadvise};
use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use window::WindowCost;

/// The topic of all runs.
const TOPIC: &str = "measured";
/// First producer number of each phase.
const WARM_PRODUCER: u32 = 0;
const MEASURED_PRODUCER: u32 = 1_000;
/// Timeout of a run by count. Milliseconds.
const COUNT_MS_MAX: u64 = 15 * 60 * 1_000;
/// Minimum idle share of the machine for comparing latencies if broker and client share its cores: below, each delays the other.
const IDLE_SHARE_MIN: f64 = 0.3;
/// Minimum share of a cold reader's bytes that must come from the device.
const COLD_SHARE_MIN: f64 = 0.8;
/// Share of a backlog that must be read for it to count as drained.
const DRAINED_SHARE_MIN: f64 = 1.0;
/// Minimum share of a throughput run's bytes that must have passed polylogue's segment writer.
const SEGMENT_SHARE_MIN: f64 = 0.5;
/// Maximum rate at which the median of few messages is given, under a separate name. Messages per second.
const MEDIAN_RATE_MAX: u64 = 100;
/// Names of percentiles.
const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];
const MILLION: f64 = 1e6;

/// The environment of runs.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The installed programs.
    pub programs: &'a Programs,
    /// The directory under which each run creates its own.
    pub work: &'a Path,
    /// Set when the user interrupts.
    pub interrupt: &'a Interrupt,
    /// The brokers that stay up, if any.
    pub kept: Option<&'a RefCell<Kept>>,
}

/// A side being run.
struct OneSide<'a> {
    kind: Kind,
    driver: Driver,
    system: System,
    load: Load,
    target: Target,
    topic: String,
    /// All topics of this run.
    topics: Vec<String>,
    /// Processes of the other brokers that are up.
    others: Vec<u32>,
    /// Open files of the broker after its start, and before this run.
    files_before: (u64, u64),
    around: &'a Surroundings<'a>,
    // Dropped first, before its directory.
    running: Running,
    spawn_settings: SpawnSettings,
    counter: Option<Counter>,
    group: Option<MemoryGroup>,
    place: Folder,
    /// The machine's page cache before the broker was started. Bytes.
    page_cache_before: Option<u64>,
    line: &'a mut ResultLine,
    each_second: &'a mut dyn FnMut(&Second),
}

/// The outcome of messages written by count.
struct Produced {
    per_s: f64,
    acked: u64,
    /// The client's processor time, if it reports it.
    client_cpu_s: Option<f64>,
    /// Otherwise the share of a core of its busiest thread, if the run was long enough.
    client_busy: Option<f64>,
}

/// Runs `side` and writes its figures into `line`.
///
/// # Errors
/// Something cannot be started or used. A loss, or a rate that was not met, is a failure in the line and not an error.
pub fn run(
    kind: Kind,
    driver: Driver,
    side: &Side,
    around: &Surroundings<'_>,
    line: &mut ResultLine,
    each_second: &mut dyn FnMut(&Second),
) -> Result<()> {
    let (mut load, how) = (side.load, side.load.how);
    line.conditions = Some(conditions(driver, side));
    let split = how.pinning.split();
    // This thread, and so the clients that it starts.
    let _here = split.as_ref().map(|split| Pinned::on(&split.client)).transpose()?;
    let page_cache_before = page_cache_bytes();
    let group = memory_group(how.memory_limit_bytes, around.work)?;
    let found = around.kept.map(|kept| kept.borrow_mut().find(kind, side));
    let stays = around.kept.is_some_and(|kept| kept.borrow().stays(kind, side));
    let Found { topic, had, others, others_count } = found.unwrap_or_else(Found::nothing);
    let folder = around.kept.filter(|_| stays).map_or_else(|| "run".into(), |kept| kept.borrow().folder(&side.label));
    let place = had.is_none().then(|| Folder::create(&around.work.join(folder))).transpose()?;
    let at = had.as_ref().map(|had| had.place.path()).or(place.as_ref().map(Folder::path)).unwrap_or(around.work);
    let bench = &around.programs.bench;
    let counter = (how.flush_delay_ms > 0).then(|| Counter::create(bench, at, how.flush_delay_ms)).transpose()?;
    let spawn_settings = SpawnSettings {
        cores: split.map(|split| split.broker).unwrap_or_default(),
        environment: counter.as_ref().map(Counter::environment).unwrap_or_default(),
        ..grouped(group.as_ref(), how.memory_limit_bytes)
    };
    let had = match had {
        Some(had) => Started { round: had.round + 1, ..had },
        None => {
            let running = spawn_settings.apply(|| start(&side.target, load, around, at))?;
            let place = place.ok_or_else(|| BenchError::new("a broker without a folder"))?;
            Started::fresh(side, running, place)
        }
    };
    if stays && how.again_warmup_ms > 0 {
        had.tell(others_count, line);
        load = load.in_round_of_life(had.round);
    }
    let system = system_of(driver, side);
    let files_before = (had.files_first, had.files());
    make_topic(&had.running, &topic, load, system)?;
    let (round, files_first) = (had.round, had.files_first);
    let Started { target, running, place, .. } = had;
    let topics = vec![topic.clone()];
    let mut one = OneSide {
        kind,
        driver,
        system,
        load,
        target,
        topic,
        topics,
        others,
        files_before,
        around,
        running,
        spawn_settings,
        counter,
        group,
        place,
        page_cache_before,
        line,
        each_second,
    };
    one.by_kind()?;
    one.running.check()?;
    if how.trace_flushes && how.flush_delay_ms == 0 {
        one.trace_flushes(stays)?;
    }
    if let Some(kept) = around.kept.filter(|_| stays) {
        if how.again_warmup_ms > 0 {
            // Topics that cannot be deleted stay until the broker ends.
            let _ = one.delete_topics();
        }
        let OneSide { running, place, .. } = one;
        kept.borrow_mut().keep(Started { round, files_first, ..Started::fresh(side, running, place) });
    }
    Ok(())
}

/// Creates the control group with a memory limit, if wanted and the machine has as much memory. Lanes work in separate directories, and so have separate
/// groups.
fn memory_group(limit_bytes: u64, work: &Path) -> Result<Option<MemoryGroup>> {
    let folder = (limit_bytes > 0).then(MemoryGroup::place).flatten();
    let name = work.file_name().unwrap_or_default().to_string_lossy();
    folder.map(|folder| MemoryGroup::create(&folder, &name, limit_bytes)).transpose()
}

/// Returns the environment of the processes in a group with a memory limit.
fn grouped(group: Option<&MemoryGroup>, limit_bytes: u64) -> SpawnSettings {
    let memory_limit_bytes = group.map_or(0, |_| limit_bytes);
    SpawnSettings { group: group.map(MemoryGroup::procs), memory_limit_bytes, ..SpawnSettings::default() }
}

/// Starts a target for a load.
fn start(target: &Target, load: Load, around: &Surroundings<'_>, place: &Path) -> Result<Running> {
    let canned = (load.partitions, load.message_bytes);
    let protocol = if load.queue.is_some() { Protocol::Amqp } else { Protocol::Kafka };
    Running::start(target, around.programs, place, protocol, canned, around.interrupt)
}

/// Returns the client system of a side: the system's own, or that of the protocol shared by all sides.
fn system_of(driver: Driver, side: &Side) -> System {
    match driver {
        Driver::Java if side.load.stream => System::RabbitmqStream,
        _ if side.load.queue.is_some() => System::Rabbitmq,
        _ => side.target.system(),
    }
}

/// Returns the driver that writes a backlog: unmeasured, so that a faster client of the same protocol is used if there is one.
#[must_use]
pub fn writes_backlog(driver: Driver, system: System) -> Driver {
    if driver == Driver::Java && system == System::Kafka { Driver::Raw } else { driver }
}

/// Creates the topics of a load, or the queues used as partitions; other systems' topics are created by their own client.
fn make_topic(running: &Running, topic: &str, load: Load, system: System) -> Result<()> {
    match (load.queue, system) {
        // Queues are used as partitions of all topics.
        (Some(queue), System::Rabbitmq) => {
            let queues = load.partitions * load.many.topics;
            amqp::wire::declare_all(running.bootstrap(), topic, queues, queue).map(drop)
        }
        (None, System::Kafka) => {
            Wire::connect(running.bootstrap())?.create_topics(topic, load.many.topics, load.partitions)
        }
        _ => Ok(()),
    }
}

impl OneSide<'_> {
    fn by_kind(&mut self) -> Result<()> {
        match self.kind {
            Kind::Throughput if self.load.queue.is_some() => self.through_queues(),
            Kind::Connections => self.connections(),
            Kind::Start => self.start_again(),
            Kind::Cost | Kind::Throughput => self.by_count(),
            Kind::Latency | Kind::Size | Kind::Cold | Kind::Drain => self.by_time(),
            Kind::Kill => self.by_kill(),
            Kind::Ladder => self.by_ladder(),
            Kind::Bare => Err(BenchError::new("the bare loops have no broker")),
        }
    }

    fn spec(&self) -> Spec {
        let load = self.load;
        // Queues are used as partitions of all topics.
        let (topics, partitions) = match load.queue {
            Some(_) => (1, load.partitions * load.many.topics),
            None => (load.many.topics, load.partitions),
        };
        Spec {
            bootstrap: self.running.address(self.system).to_owned(),
            topic: self.topic.clone(),
            partitions,
            producers: load.many.producers,
            producer_base: MEASURED_PRODUCER,
            consumers: load.many.consumers,
            // The null broker stores nothing to read; queue messages are passed on.
            groups: if self.target == Target::Null && load.queue.is_none() { 0 } else { load.groups },
            message_bytes: load.message_bytes,
            rate: load.rate,
            messages: 0,
            warmup_ms: load.warmup_ms,
            window_ms: load.window_ms,
            batch_bytes: load.batching.bytes,
            linger_us: load.batching.linger_us,
            batches_per_request: load.batching.per_request,
            in_flight: load.in_flight,
            from: From::End,
            expect: 0,
            read_bytes_per_s_max: 0,
            gives_way: false,
            verify: true,
            queues: load.queue,
            open_warmup: false,
            shape: Shape { topics, filter: load.many.filter, ..Shape::default() },
            system: self.system,
            create: !matches!(self.system, System::Kafka | System::Rabbitmq),
            admin: self.running.admin().map(str::to_owned),
            commit_ms: COMMIT_MS,
        }
    }

    fn counted(&self, messages: u64, producer_base: u32) -> Spec {
        Spec { messages, producer_base, rate: 0, groups: 0, warmup_ms: 0, window_ms: COUNT_MS_MAX, ..self.spec() }
    }

    fn reading(&self, expect: u64) -> Spec {
        let verify = self.target != Target::Null;
        let (from, window_ms) = (From::Beginning, COUNT_MS_MAX);
        Spec { producers: 0, groups: 1, from, expect, rate: 0, warmup_ms: 0, window_ms, verify, ..self.spec() }
    }

    fn figure(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.line.figures.insert(name.to_owned(), value);
        }
    }

    fn fail(&mut self, what: String) {
        self.line.failures.push(what);
    }

    /// Records a failure that does not apply to smoke runs.
    fn fail_in_full(&mut self, what: String) {
        if !self.line.quick {
            self.fail(what);
        }
    }

    fn drive(&mut self, specs: &[Spec]) -> Result<Vec<WorkerReport>> {
        self.drive_by(self.driver, specs)
    }

    fn drive_by(&mut self, driver: Driver, specs: &[Spec]) -> Result<Vec<WorkerReport>> {
        self.running.check()?;
        let (programs, interrupt) = (self.around.programs, self.around.interrupt);
        let stated = drive(driver, specs, programs, self.place.path(), interrupt, self.each_second)?;
        for stated in &stated {
            self.judge(&stated.done);
        }
        Ok(stated)
    }

    /// A run with a loss is a failed run.
    fn judge(&mut self, done: &Done) {
        let wrong = [
            ("not acknowledged", done.errors),
            ("lost", done.lost),
            ("duplicated", done.duplicated),
            ("out of order", self.disorder(done)),
        ];
        for (what, count) in wrong {
            if count > 0 {
                self.fail(format!("{count} messages {what}"));
            }
        }
        if let Some(error) = &done.error {
            self.fail(error.clone());
        }
    }

    /// Returns the number of messages out of order: a failure if order was promised, otherwise only reported.
    fn disorder(&mut self, done: &Done) -> u64 {
        if self.system.keeps_order_of_pipelined() || self.load.in_flight == 1 {
            return done.out_of_order;
        }
        self.figure("out_of_order", done.out_of_order as f64);
        0
    }

    /// Waits until the broker's background work is done; `None` for a running broker that was named.
    fn idle(&mut self) -> Result<Option<Sample>> {
        self.around.interrupt.check()?;
        let pids = self.running.pids();
        if pids.is_empty() {
            return Ok(None);
        }
        if self.line.quick {
            return Sample::take_idle(&pids).map(Some);
        }
        let (sample, idle) = wait_idle(&pids)?;
        if !idle {
            self.fail(format!("the broker was not idle after {} s", crate::sample::IDLE_S_MAX));
        }
        Ok(Some(sample))
    }

    fn by_count(&mut self) -> Result<()> {
        let load = self.load;
        // A count of 0 would be a run by time.
        if load.warm_messages > 0 {
            self.produce(load.warm_messages, WARM_PRODUCER)?;
        }
        let before = self.idle()?;
        let span = self.begin_span()?;
        let Produced { per_s, acked, client_cpu_s, client_busy } = self.produce(load.messages, MEASURED_PRODUCER)?;
        self.end_span(span)?;
        if let Some(share) = self.segment_share(acked + load.warm_messages) {
            self.figure("past_the_segment_writer", share);
            if share < SEGMENT_SHARE_MIN && self.kind == Kind::Throughput {
                self.fail_in_full(format!(
                    "too short: only {:.0} % of the bytes are past the segment writer",
                    share * 100.0
                ));
            }
        }
        let after = self.idle()?;
        self.figure("produce_per_s", per_s);
        if let Some(busy) = client_busy {
            self.figure(CLIENT_BUSY, busy);
        }
        self.costs("produce", before, after, acked, client_cpu_s);
        if self.kind == Kind::Cost {
            let expect = acked + load.warm_messages;
            let spec = self.reading(expect);
            self.drive(std::slice::from_ref(&spec))?;
            let before = self.idle()?;
            let stated = self.drive(&[spec])?;
            let after = self.idle()?;
            let done = stated.into_iter().next().unwrap_or_default().done;
            self.figure("fetch_per_s", done.received as f64 / done.read_s);
            self.costs("fetch", before, after, done.received, Some(done.cpu_s));
        }
        Ok(())
    }

    /// Writes this many messages.
    fn produce(&mut self, messages: u64, producer: u32) -> Result<Produced> {
        let spec = self.counted(messages, producer);
        if self.driver == Driver::PerfTest {
            let perf = perf::produce(&self.around.programs.kafka, &spec, self.place.path(), self.around.interrupt)?;
            if perf.arrived != perf.records && self.target != Target::Null {
                self.fail(format!("{} messages were sent, {} arrived", perf.records, perf.arrived));
            }
            let (per_s, acked) = (perf.records_per_s, perf.records);
            return Ok(Produced { per_s, acked, client_cpu_s: None, client_busy: perf.busy });
        }
        let done = self.drive(&[spec])?.into_iter().next().unwrap_or_default().done;
        let (per_s, client_cpu_s) = (done.acked as f64 / done.publish_s, Some(done.cpu_s));
        Ok(Produced { per_s, acked: done.acked, client_cpu_s, client_busy: None })
    }

    fn costs(
        &mut self,
        what: &str,
        before: Option<Sample>,
        after: Option<Sample>,
        messages: u64,
        client_cpu_s: Option<f64>,
    ) {
        let millions = messages as f64 / MILLION;
        if let Some(client) = client_cpu_s {
            self.figure(&format!("{what}_client_cpu_s_per_million"), client / millions);
        }
        let (Some(before), Some(after)) = (before, after) else { return };
        self.figure(&format!("{what}_cpu_s_per_million"), (after.cpu_s - before.cpu_s) / millions);
        self.held_by_broker(before, after, if what == "produce" { messages } else { 0 });
    }

    /// The same for a run by time with its warm-up: not a cost per message, but it shows what was left to do after the window.
    fn whole_costs(&mut self, before: Option<Sample>, after: Option<Sample>, messages: u64) {
        let (Some(before), Some(after)) = (before, after) else { return };
        self.figure("whole_cpu_s_per_million", (after.cpu_s - before.cpu_s) / (messages as f64 / MILLION));
        self.held_by_broker(before, after, messages);
    }

    /// Records a broker's memory after writing, and its writes.
    fn held_by_broker(&mut self, before: Sample, after: Sample, messages: u64) {
        let bytes = messages as f64 * f64::from(self.load.message_bytes);
        let written = after.write_bytes.saturating_sub(before.write_bytes) as f64;
        if messages > 0 {
            self.figure("written_per_byte", written / bytes);
        }
        self.figure("anonymous_mib", after.anonymous_bytes as f64 / f64::from(1 << 20));
        self.figure("shared_mib", after.shared_bytes as f64 / f64::from(1 << 20));
        self.figure("files", self.files_of_round(&after) as f64);
        self.figure("threads", after.threads as f64);
    }

    /// Returns the share of the acknowledged bytes in polylogue's segments; `None` for others.
    fn segment_share(&self, acked: u64) -> Option<f64> {
        if !matches!(self.target, Target::PolylogueSync | Target::PolylogueAsync) {
            return None;
        }
        let bytes = bytes_below(&self.place.path().join("data"), "segments");
        Some(bytes as f64 / (acked as f64 * f64::from(self.load.message_bytes)))
    }

    fn by_time(&mut self) -> Result<()> {
        let load = self.load;
        let open_warmup = matches!(load.how.warm_up, WarmUp::Steady(_));
        let mut specs = vec![Spec { open_warmup, ..self.spec() }];
        if load.backlog > 0 {
            self.prepare_backlog()?;
        }
        if load.cold_bytes_per_s > 0 {
            let (warmup_ms, window_ms) = (load.warmup_ms, load.window_ms);
            // By time: a disk that is slower than the limit is not a loss.
            let (read_bytes_per_s_max, gives_way) = (load.cold_bytes_per_s, load.reader_gives_way());
            let cold = Spec { read_bytes_per_s_max, gives_way, warmup_ms, window_ms, ..self.reading(0) };
            specs.push(Spec { open_warmup, ..cold });
        }
        let before = self.idle()?;
        let machine = Machine::take()?;
        let span = self.begin_span()?;
        let (stated, went) = self.drive_along(&specs)?;
        let idle = machine_idle(&machine)?;
        self.end_span(span)?;
        let over_ms = went.warmup_ms + load.window_ms;
        stated.iter().for_each(|stated| self.judge_by_time(&stated.done, over_ms));
        let mut stated = stated.into_iter();
        let live = stated.next().unwrap_or_default();
        let after = self.idle()?;
        self.figure("machine_idle", idle);
        self.warmed(&went);
        if load.rate == 0 && sends_after(&live.seconds, over_ms) {
            self.fail("the client went on after its window: it did not hear when that began".to_owned());
        }
        self.latencies(&live, &went, idle)?;
        self.whole_costs(before, after, live.done.acked);
        self.window_costs(WindowCost::of(&live.seconds, &went, load.window_ms));
        if let Some(cold) = stated.next() {
            self.cold(&cold, before, after);
        }
        self.line.series = Some(series(&live.seconds, self.spec().groups, &went.looks));
        Ok(())
    }

    /// Writes the backlog, and evicts it from the page cache.
    fn prepare_backlog(&mut self) -> Result<()> {
        let load = self.load;
        let backlog_bytes = load.backlog.saturating_mul(u64::from(load.message_bytes));
        if load.how.memory_limit_bytes > 0 {
            let room = Room::of(load.how.memory_limit_bytes)?;
            self.figure("room_bytes", room.bytes() as f64);
            self.figure("backlog_bytes", backlog_bytes as f64);
            if let Err(e) = room.check(backlog_bytes) {
                self.fail_in_full(format!("warm: {e}"));
            }
        }
        let spec = self.counted(load.backlog, WARM_PRODUCER);
        let spec = Spec { batch_bytes: 1_000_000, ..spec };
        self.drive_by(writes_backlog(self.driver, self.system), &[spec])?;
        self.idle()?;
        rustix::fs::sync();
        if self.kind == Kind::Drain {
            return Ok(());
        }
        forget_pages(&self.place.path().join("data"))
    }

    /// Creates the probe for the loaded broker.
    fn probe(&self) -> Probe {
        let (folder, stat) = (self.place.path(), self.group.as_ref().map(MemoryGroup::stat));
        let mut probe = Probe::new(self.running.pids(), folder, self.running.bootstrap(), stat, self.page_cache_before);
        probe.with_others(&self.others);
        probe
    }

    /// Runs the workers with measurements. Nothing is judged.
    fn drive_along(&mut self, specs: &[Spec]) -> Result<(Vec<WorkerReport>, Went)> {
        self.running.check()?;
        let probe = self.probe();
        let warm_up = self.load.how.warm_up;
        let mut along = Along::new(probe, warm_up, specs.first(), self.each_second);
        let (programs, interrupt) = (self.around.programs, self.around.interrupt);
        let stated = drive_watched(self.driver, specs, programs, self.place.path(), interrupt, &mut along)?;
        Ok((stated, along.finish()))
    }

    /// Records how the warm-up went.
    fn warmed(&mut self, went: &Went) {
        if let Some(capped) = went.capped {
            self.figure("warm_up_s", went.warmup_ms as f64 / 1e3);
            self.figure("warm_up_messages", went.warm_messages as f64);
            self.figure("warm_up_capped", f64::from(u8::from(capped)));
        } else if self.load.how.again_warmup_ms > 0 {
            // A further round of a broker's life.
            self.figure("warm_up_s", went.warmup_ms as f64 / 1e3);
        }
    }

    /// Starts counting flushes, if they are counted.
    fn begin_span(&self) -> Result<Option<Span>> {
        let pids = self.running.pids();
        self.counter.as_ref().filter(|_| !pids.is_empty()).map(|counter| counter.begin(pids)).transpose()
    }

    fn end_span(&mut self, span: Option<Span>) -> Result<()> {
        let Some((counter, span)) = self.counter.as_ref().zip(span) else { return Ok(()) };
        for (name, value) in counter.end(&span)? {
            self.figure(name, value);
        }
        self.figure("flush_delay_ms", self.load.how.flush_delay_ms as f64);
        Ok(())
    }

    fn latencies(&mut self, live: &WorkerReport, went: &Went, idle: f64) -> Result<()> {
        let load = self.load;
        self.line.curves = Some(crate::latency::Curves::of(&live.done)?);
        for (name, value) in latency_figures(&live.done, load.rate)? {
            self.figure(&name, value);
        }
        let acked = live.done.acked_in_window()?;
        self.figure("produce_per_s", acked as f64 / (load.window_ms as f64 / 1e3));
        let (warmup_ms, window_ms, groups) = (went.warmup_ms, load.window_ms, self.spec().groups);
        let (done, seconds, rate) = (&live.done, live.seconds.as_slice(), load.rate);
        let ran = Ran { rate, groups, warmup_ms, window_ms, acked, done, seconds };
        // Groups with filters are not sent everything: their unread messages are not a backlog.
        if groups > 0 && load.many.filter.is_none() {
            self.figure("backlog_growth_per_s", ran.growth_per_s());
        }
        if rate == 0 {
            self.reading_along(&ran);
            return Ok(());
        }
        self.figure("held_share", ran.share());
        if let Err(why) = ran.held() {
            self.fail_in_full(format!("the rate was not met: {why}"));
        }
        // With separate cores an overloaded broker uses all of its own; an overloaded client is recognised by its usage.
        if idle < IDLE_SHARE_MIN && load.how.pinning.split().is_none() {
            self.fail_in_full(format!("{BUSY} {:.0} % idle: no latency is compared", idle * 100.0));
        }
        Ok(())
    }

    fn cold(&mut self, stated: &WorkerReport, before: Option<Sample>, after: Option<Sample>) {
        let done = &stated.done;
        let backlog = self.load.backlog;
        // After the backlog the reader follows new messages: that is not a read rate.
        let per_s = match drained_s(&stated.seconds, backlog, DRAINED_SHARE_MIN) {
            Some(drained_s) => {
                self.figure("drained_s", drained_s);
                (backlog * u64::from(self.load.message_bytes)) as f64 / drained_s
            }
            None => done.read_bytes as f64 / done.read_s,
        };
        self.figure("cold_read_bytes_per_s", per_s);
        self.figure("drained_share", (done.received as f64 / backlog as f64).min(1.0));
        if self.kind == Kind::Drain {
            return;
        }
        let (Some(before), Some(after)) = (before, after) else { return };
        let device = after.read_bytes.saturating_sub(before.read_bytes) as f64;
        self.figure("device_read_bytes", device);
        let share = device / done.read_bytes as f64;
        self.figure("device_read_per_byte_served", share);
        if share < COLD_SHARE_MIN {
            self.fail_in_full(format!("warm: only {:.0} % of what the reader got came from the device", share * 100.0));
        }
    }
}

/// Returns the latencies of a run at this rate, by name.
fn latency_figures(done: &Done, rate: u64) -> Result<Vec<(String, f64)>> {
    let mut stated = Vec::new();
    let (publish, end_to_end) = (Latency::from_text(&done.publish)?, Latency::from_text(&done.end_to_end)?);
    for (what, latency) in [("publish", &publish), ("end_to_end", &end_to_end)] {
        if let Some(ns) = latency.median().filter(|_| rate > 0 && rate <= MEDIAN_RATE_MAX) {
            stated.push((format!("{what}_median_ms"), seconds(ns) * 1e3));
        }
        for (name, percentile) in PERCENTILES {
            if let Some(ns) = latency.percentile(percentile) {
                stated.push((format!("{what}_{name}_ms"), seconds(ns) * 1e3));
            }
        }
        if let Some(mean) = latency.mean() {
            stated.push((format!("{what}_mean_ms"), mean / MILLION));
            stated.push((format!("{what}_max_ms"), seconds(latency.max()) * 1e3));
        }
    }
    Ok(stated)
}

/// Whether a client with an unlimited rate still sent a second or more after its time was over.
fn sends_after(stated: &[Second], over_ms: u64) -> bool {
    stated.iter().any(|second| second.sent > 0 && second.second > over_ms.div_ceil(1_000))
}

fn machine_idle(before: &Machine) -> Result<f64> {
    Ok(Machine::take()?.idle_since(before))
}

/// Returns all files below a directory. Those that cannot be read, because they were just deleted, are left out.
fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

fn bytes_below(folder: &Path, named: &str) -> u64 {
    let inside = |path: &std::path::PathBuf| path.components().any(|part| part.as_os_str() == named);
    let length = |path: std::path::PathBuf| path.metadata().map_or(0, |found| found.len());
    files_below(folder).into_iter().filter(inside).map(length).sum()
}

/// Evicts a broker's flushed files from the page cache.
fn forget_pages(folder: &Path) -> Result<()> {
    for path in files_below(folder) {
        // A file deleted meanwhile has no pages either.
        let Ok(file) = File::open(&path) else { continue };
        fadvise(&file, 0, None, Advice::DontNeed)
            .context(|| format!("cannot have the page cache forget {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_goes_on_after_its_window_is_found() {
        let stated = |counts: &[u64]| -> Vec<Second> {
            (0..).zip(counts).map(|(second, sent)| Second { second, sent: *sent, ..Second::default() }).collect()
        };
        assert!(!sends_after(&stated(&[9, 9, 9, 3, 0]), 2_500), "the rest of its second");
        assert!(sends_after(&stated(&[9, 9, 9, 9, 9]), 2_500));
    }
}
