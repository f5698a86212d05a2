//! A simulation run: a world, a node that crashes and restarts, clients, faults, and the final check.

mod followed;

use crate::admin::{self, Admin};
use crate::clients::{self, Client, Turn};
use crate::connection::Connection;
use crate::letters::Letters;
use crate::node::{self, Follower, Recorder};
use crate::oracle::{Oracle, Place};
use crate::queues::{self, DELAY_MS_MAX, Queues};
use crate::replay;
use polylogue_api::{CreateTopics, Durability, NewTopic, Reply, Request, TopicConfig};
use polylogue_broker::{AppliedState, Broker, BrokerConfig, ErrorKind, ReplySink, SessionId, Witness};
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimRng, SimWorld};
use polylogue_env::{Disk, OpenMode};
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::{Records, Request as Asking, fetch, list_offsets};
use polylogue_log::check;
use polylogue_log::journal::JournalIo;
use polylogue_replicate::Work;
use polylogue_types::{Index, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The other nodes of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// None; the node has one shard.
    #[default]
    Alone,
    /// A follower, which takes over after the node's last crash. Both have several shards, no bit flips, and all topics wait for the flush: a power
    /// cut may remove unflushed messages from the writer after the follower received them.
    Followed,
    /// The logs of the node's shards, of which there are several, are replayed in this many random interleavings. As with a follower there are no bit
    /// flips, and all topics wait for the flush.
    Replayed(u64),
}

/// The minimum activity of a valid run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The other nodes.
    pub mode: Mode,
    /// Requests sent by clients.
    pub operations_min: u64,
    /// Acknowledged messages of idempotent producers.
    pub sequenced_min: u64,
    /// Acknowledged changes of settings, partitions and groups; and the same number of reads of these.
    pub changes_min: u64,
    /// Messages of queues that were settled and confirmed to their consumers.
    pub settled_min: u64,
    /// Rejected messages that are in the dead-letter queue.
    pub moved_min: u64,
    /// Deliveries of returned messages, each with its delivery count.
    pub returned_min: u64,
    /// Deliveries of messages that were dead-lettered in one queue more than once, each with a correct history.
    pub histories_min: u64,
    /// Crashes.
    pub crashes_min: u64,
    /// Disk faults (refused operations, failed flushes, power cuts, flipped bits).
    pub faults_min: u64,
    /// Steps after which it ends in any case.
    pub steps_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::Alone,
            operations_min: 2_000,
            sequenced_min: 100,
            changes_min: 50,
            settled_min: 50,
            moved_min: 1,
            returned_min: 5,
            histories_min: 10,
            crashes_min: 1,
            faults_min: 3,
            steps_max: 400_000,
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Requests sent.
    pub operations: u64,
    /// Messages acknowledged.
    pub acknowledged: u64,
    /// Messages read.
    pub read: u64,
    /// Acknowledged changes of settings, partitions, groups and log starts.
    pub changes: u64,
    /// Messages of queues that were settled.
    pub settled: u64,
    /// Rejected messages that are in the dead-letter queue.
    pub moved: u64,
    /// Deliveries of returned messages.
    pub returned: u64,
    /// Deliveries of messages that were dead-lettered in one queue more than once.
    pub histories: u64,
    /// Crashes of the node.
    pub crashes: u64,
    /// Faults injected.
    pub faults: u64,
    /// Applied states of shards that were compared with those of other nodes.
    pub compared: u64,
    /// A digest that differs if the run differs.
    pub hash: u64,
    /// The violations; empty for a valid run.
    pub failures: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} operations, {} acknowledged, {} read, {} changes, {} settled, {} moved, {} returned, {} histories, {} crashes, {} faults, {} states compared, hash {:016x}",
            self.seed,
            self.operations,
            self.acknowledged,
            self.read,
            self.changes,
            self.settled,
            self.moved,
            self.returned,
            self.histories,
            self.crashes,
            self.faults,
            self.compared,
            self.hash
        )?;
        self.failures.iter().try_for_each(|why| write!(f, "\n  {why}"))
    }
}

/// One in this many steps of time is a long pause.
const PAUSE_ODDS: u64 = 50;
/// The length of a long pause. Milliseconds.
const PAUSE_MS: u64 = 20_000;
/// Steps that the final phase (no more faults, everything settles) may take.
const SETTLE_STEPS_MAX: u64 = 200_000;
/// Checks whether queues are declared and have their topics: they are created within a second.
const SETUP_STEPS_MAX: u32 = 100;
/// Topics that are written to, and their partitions. The oldest messages of `t` are deleted occasionally.
const TOPICS: [(&str, i32); 4] = [("a", 3), ("b", 2), ("c", 1), ("t", 1)];
/// The topic whose acknowledgements do not wait for a flush.
const WEAK: &str = "w";
/// Topics that get more partitions, and topics with changing settings.
const GROWING: &str = "n";
const SET: &str = "s";
/// Groups that are created and deleted.
const GROUPS: [&str; 2] = ["h0", "h1"];
/// The data directory of every node.
pub(crate) const DATA: &str = "/data";
/// Shards of class `sync` of a node in a run with other nodes.
pub(crate) const SHARDS: u32 = 3;
/// Pending state comparisons in a run with another node.
const COMPARED_MIN: u64 = 10;

/// OFFSET_OUT_OF_RANGE.
const OFFSET_OUT_OF_RANGE: i16 = 1;

/// The log start of a partition, its entries in order, and the offsets that were refused because of damage.
type Content = (i64, Vec<(i64, String)>, BTreeSet<i64>);

struct World {
    sim: SimWorld,
    rng: SimRng,
    /// The settings of this start.
    live: Arc<LiveSettings>,
    oracle: Oracle,
    clients: Vec<Client>,
    admins: Vec<Admin>,
    queues: Queues,
    letters: Letters,
    crashes: u64,
    faults: u64,
    flips: Vec<(PathBuf, u64, u8)>,
    mode: Mode,
    recorder: Arc<Recorder>,
    follower: Option<Follower>,
    /// The writer's own states at the end.
    ends: BTreeMap<(ShardId, Index), AppliedState>,
    compared: u64,
    failures: Vec<String>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, settings: Settings) -> Report {
    let mut world = World::new(seed, settings.mode);
    world.live_through(settings);
    if let Mode::Replayed(times) = settings.mode {
        match replay::interleave(seed, &world.recorder, &world.ends, times) {
            Ok(compared) => world.compared += compared,
            Err(why) => world.failures.push(why),
        }
    }
    let stats = world.sim.disk.stats();
    let faults = world.faults + stats.faults;
    let operations = world.operations();
    let mut report = Report {
        seed,
        operations,
        acknowledged: world.oracle.acknowledged,
        read: world.oracle.read,
        changes: world.oracle.changes,
        settled: world.queues.settled,
        moved: world.queues.moved(),
        returned: world.queues.counts_checked(),
        histories: world.letters.histories_checked(),
        crashes: world.crashes,
        faults,
        compared: world.compared,
        hash: world.sim.disk.trace_hash() ^ world.oracle.acknowledged.rotate_left(17) ^ world.oracle.read,
        failures: world.failures,
    };
    report.failures.extend(world.oracle.violations().iter().cloned());
    if stats.mixed_writes > 0 {
        report.failures.push(format!("{} direct writes to pages that are dirty in the page cache", stats.mixed_writes));
    }
    let enough = [
        ("operations", report.operations, settings.operations_min),
        ("messages of idempotent producers", world.oracle.sequenced, settings.sequenced_min),
        ("changes", world.oracle.changes.min(world.oracle.looks), settings.changes_min),
        ("settled messages", report.settled, settings.settled_min),
        ("moved messages", report.moved, settings.moved_min),
        ("deliveries of what had come back", report.returned, settings.returned_min),
        ("histories of messages that died", report.histories, settings.histories_min),
        ("crashes", report.crashes, settings.crashes_min),
        ("faults", report.faults, settings.faults_min),
        ("states compared", report.compared, if settings.mode == Mode::Alone { 0 } else { COMPARED_MIN }),
    ];
    for (what, did, wanted) in enough {
        if did < wanted {
            report.failures.push(format!("too little happened: {did} {what}, wanted {wanted}"));
        }
    }
    report
}

impl World {
    fn new(seed: u64, mode: Mode) -> World {
        let mut clients = Vec::new();
        for (topic, partitions) in TOPICS {
            for number in 0..partitions {
                let place: Place = (topic.to_owned(), number);
                clients.push(Client::producer(&place, &format!("{topic}{number}i"), true));
                clients.push(Client::producer(&place, &format!("{topic}{number}p"), false));
                clients.push(Client::consumer(&place));
                clients.push(Client::committer(&place, &format!("g{number}")));
            }
        }
        let place = |topic: &str| (topic.to_owned(), 0);
        let mut oracle = Oracle::default();
        if mode == Mode::Alone {
            let weak = place(WEAK);
            clients.extend(["w0p", "w0q"].map(|name| Client::producer(&weak, name, false)));
            clients.push(Client::consumer(&weak));
            oracle.is_weak_from_now_on(&weak);
        }
        let mut admins = vec![
            Admin::topic_config("a", false),
            Admin::topic_config(SET, true),
            Admin::broker_config(),
            Admin::grower(GROWING),
            Admin::trimmer(&place("t")),
        ];
        admins.extend(GROUPS.map(|group| Admin::group(group, &place("b"))));
        let sim = SimWorld::new(seed);
        let mut failures = Vec::new();
        let follower = match mode {
            Mode::Followed => Follower::new(!seed, &sim.clock, DATA, SHARDS).map_err(|why| failures.push(why)).ok(),
            _ => None,
        };
        World {
            sim,
            rng: SimRng::derive(seed, "driver"),
            live: Arc::new(LiveSettings::new(KafkaSettings::default())),
            oracle,
            clients,
            admins,
            queues: Queues::default(),
            letters: Letters::default(),
            crashes: 0,
            faults: 0,
            flips: Vec::new(),
            mode,
            recorder: Arc::default(),
            follower,
            ends: BTreeMap::new(),
            compared: 0,
            failures,
        }
    }

    /// Starts differ in how they write their journals, so that each reads what another configuration wrote.
    fn journal_io(&self) -> JournalIo {
        match self.rng.below(3) {
            0 => JournalIo::Direct,
            1 => JournalIo::Cached,
            _ => JournalIo::BySize,
        }
    }

    /// Opens the node. If a flipped bit makes it report damage, the bit is restored.
    fn open(&mut self) -> Option<Broker> {
        let mut last = String::new();
        for _ in 0..20 {
            let (machines, directory) = node::machines();
            self.live = Arc::new(LiveSettings::new(KafkaSettings::default()));
            let (records, shards) = (self.records(), if self.mode == Mode::Alone { 1 } else { SHARDS });
            let config = BrokerConfig {
                resolver: self.live.clone(),
                journal_io: self.journal_io(),
                witness: records.then(|| Witness(self.recorder.clone())),
                ..node::config(DATA, shards)
            };
            match Broker::open(self.sim.env(), config, machines) {
                Ok(broker) => {
                    if records && let Err(why) = self.recorder.fill(&broker) {
                        self.failures.push(why);
                    }
                    self.oracle.new_life();
                    self.letters.new_life(directory);
                    // Damage that the node tolerates stays: restoring the bit later would damage data that was written there since.
                    self.flips.clear();
                    return Some(broker);
                }
                // A flipped bit can make a version look newer than it is.
                Err(e) if matches!(e.kind, ErrorKind::Damaged | ErrorKind::Incompatible) && !self.flips.is_empty() => {
                    last = e.to_string();
                    self.flip_back();
                    self.sim.crash();
                    self.oracle.power_was_cut();
                }
                // A fault occurred during the start: the power is cut and restored.
                Err(e) => {
                    last = e.to_string();
                    self.sim.disk.clear_faults();
                    self.sim.crash();
                    self.oracle.power_was_cut();
                    self.crashes += 1;
                }
            }
        }
        self.failures.push(format!("the node does not open any more: {last}"));
        None
    }

    fn live_through(&mut self, settings: Settings) {
        let mut steps = 0;
        let mut first = true;
        while steps < settings.steps_max && self.failures.is_empty() && self.oracle.violations().is_empty() {
            let Some(broker) = self.open() else { return };
            if std::mem::take(&mut first) {
                self.create_topics(&broker);
            }
            let done = self.operations() >= settings.operations_min && self.crashes >= settings.crashes_min.max(2);
            let done = done && self.faults + self.sim.disk.stats().faults >= settings.faults_min;
            if done && self.follower.is_none() {
                self.finish(&broker);
                self.note_ends(&broker);
                broker.forget_reads();
                return;
            }
            if !done {
                self.inject();
            }
            steps += self.live(&broker);
            if done && self.sim.fatal().reason().is_none() {
                self.expect_all(&broker);
            }
            self.lost_connections();
            broker.forget_reads();
            drop(broker);
            self.die();
            if done {
                return self.change_over();
            }
        }
    }

    fn lost_connections(&mut self) {
        self.clients.iter_mut().for_each(Client::lost_connection);
        self.admins.iter_mut().for_each(Admin::lost_connection);
        self.queues.lost_connections();
        self.letters.lost_connections();
    }

    fn operations(&self) -> u64 {
        let admins = self.admins.iter().map(|admin| admin.operations);
        self.clients.iter().map(|client| client.operations).chain(admins).sum::<u64>()
            + self.queues.operations
            + self.letters.operations
    }

    /// Runs the node until its time is over or it ends itself.
    fn live(&mut self, broker: &Broker) -> u64 {
        let life = 2_000 + self.rng.below(12_000);
        for step in 0..life {
            if self.sim.fatal().reason().is_some() || self.sim.disk.is_stopped() {
                return step;
            }
            if let Err(why) = self.step(broker) {
                self.failures.push(why);
                return step;
            }
        }
        life
    }

    fn step(&mut self, broker: &Broker) -> Result<(), String> {
        self.follow(broker)?;
        match self.rng.below(100) {
            0..60 => {
                let (clients, admins) = (self.clients.len(), self.admins.len());
                let (queues, letters) = (self.queues.actors(), self.letters.actors());
                let at = self.rng.below((clients + admins + queues + letters) as u64) as usize;
                if let Some(at) = at.checked_sub(clients + admins + queues) {
                    self.letters.turn(at, broker, &self.rng, &mut self.queues, &mut self.oracle);
                    return Ok(());
                }
                if let Some(at) = at.checked_sub(clients + admins) {
                    self.queues.turn(at, broker, &self.rng, &mut self.oracle);
                    return Ok(());
                }
                let settings = self.live.sessions();
                let mut turn = Turn { broker, settings: &settings, rng: &self.rng, oracle: &mut self.oracle };
                match self.clients.get_mut(at) {
                    Some(client) => client.turn(&mut turn)?,
                    None => {
                        let admin = self.admins.get_mut(at - self.clients.len());
                        admin.map_or(Ok(()), |admin| admin.turn(&mut turn))?;
                    }
                }
            }
            60..72 => {
                broker.log_step(Work::Write);
            }
            72..84 => {
                broker.log_step(Work::Flush);
            }
            84..88 => {
                broker.log_step(Work::Background);
            }
            88..92 => {
                broker.background_step();
            }
            92..96 => {
                broker.read_step();
            }
            _ => {
                // Occasionally there is a long pause, so that distant delivery times are reached.
                let pause_ms = if self.rng.below(PAUSE_ODDS) == 0 { PAUSE_MS } else { 0 };
                self.sim.clock.advance_ms(pause_ms + self.rng.below(40));
                broker.tick();
            }
        }
        Ok(())
    }

    /// Chooses the faults until the next start.
    fn inject(&mut self) {
        let at = 1 + self.rng.below(2_000);
        let fault = match self.rng.below(8) {
            0 => Fault::nth(FaultOp::SyncData, 1 + at / 4, FaultKind::Io),
            1 => Fault::nth(FaultOp::SyncDir, 1 + self.rng.below(10), FaultKind::Io),
            2 => Fault::nth(FaultOp::Write, at, FaultKind::NoSpace),
            3 => Fault::nth(FaultOp::Create, 1 + self.rng.below(8), FaultKind::NoSpace),
            4 => Fault::nth(FaultOp::Allocate, 1 + self.rng.below(8), FaultKind::NoSpace),
            5 => Fault::chance(FaultOp::AnyChange, 2_000, FaultKind::NoSpace),
            _ => Fault::nth(FaultOp::AnyChange, at, FaultKind::PowerCut),
        };
        self.sim.disk.inject(fault);
    }

    /// Crashes the node: a power cut, or a kill that preserves the page cache.
    fn die(&mut self) {
        self.crashes += 1;
        self.sim.disk.clear_faults();
        if self.rng.chance(200_000) && !self.sim.disk.is_stopped() && self.sim.fatal().reason().is_none() {
            self.sim.kill();
            return;
        }
        self.faults += 1;
        self.sim.crash();
        self.oracle.power_was_cut();
        if self.mode == Mode::Alone && self.rng.chance(250_000) {
            self.flip_a_bit();
        }
    }

    /// Flips a bit in some file.
    fn flip_a_bit(&mut self) {
        let files = self.files(Path::new(DATA));
        let Some(path) = files.get(self.rng.below(files.len().max(1) as u64) as usize) else { return };
        let disk = self.sim.disk.of_this_life();
        let len = disk.open(path, OpenMode::Read).and_then(|f| f.size()).unwrap_or(0);
        if len == 0 {
            return;
        }
        let (byte, bit) = (self.rng.below(len), self.rng.below(8) as u8);
        if self.sim.disk.flip_bit(path, byte, bit).is_ok() {
            if self.looks_torn(path) {
                // Flushed last, and no later frame records it: this cannot be distinguished from an interrupted write.
                let _ = self.sim.disk.flip_bit(path, byte, bit);
                return;
            }
            self.faults += 1;
            self.oracle.damaged = true;
            self.flips.push((path.clone(), byte, bit));
        }
    }

    /// Returns whether `check` finds the journal of this file sound, except for bytes that were never acknowledged.
    fn looks_torn(&self, path: &Path) -> bool {
        let journal = path.parent().filter(|_| path.extension().is_some_and(|e| e == "plj"));
        let shard = journal.and_then(Path::parent);
        let report = shard.and_then(|shard| check::journal(&self.sim.env(), shard).ok());
        report.is_some_and(|report| report.is_sound() && report.torn.is_some())
    }

    fn flip_back(&mut self) {
        for (path, byte, bit) in self.flips.drain(..) {
            // The file may be removed or recreated; then there is nothing to restore.
            let _ = self.sim.disk.flip_bit(&path, byte, bit);
        }
    }

    fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let disk = self.sim.disk.of_this_life();
        let mut files = Vec::new();
        for name in disk.list(dir).unwrap_or_default() {
            let path = dir.join(name);
            match disk.list(&path) {
                Ok(_) => files.extend(self.files(&path)),
                Err(_) => files.push(path),
            }
        }
        files
    }

    fn create_topics(&mut self, broker: &Broker) {
        // Only values that are set count: the rest is inherited.
        let raw = [("retention.ms".to_owned(), "-1".to_owned())].into();
        let config = TopicConfig { retention_ms: None, raw, ..TopicConfig::default() };
        let mut unflushed = TopicConfig { durability: Durability::Async, ..config.clone() };
        unflushed.raw.insert("polylogue.durability".to_owned(), "async".to_owned());
        let new = |(name, partitions): (&str, i32)| NewTopic {
            name: name.to_owned(),
            partitions: partitions.unsigned_abs(),
            config: if name == WEAK { unflushed.clone() } else { config.clone() },
            internal: false,
        };
        let weak = [(WEAK, 1)].into_iter().filter(|_| self.mode == Mode::Alone);
        let topics = TOPICS.into_iter().chain([(GROWING, 1), (SET, 1)]).chain(weak).map(new).collect();
        self.oracle.begins(&admin::partitions_of(GROWING), 1);
        for request in [Request::CreateTopics(CreateTopics { topics, validate_only: false }), queues::create()] {
            let answer = Arc::new(Answer::default());
            let sink: Arc<dyn ReplySink> = answer.clone();
            broker.submit(&sink, SessionId(u64::MAX), 0, request);
            drain(broker);
            let created =
                matches!(&*answer.0.lock(), Some(Reply::CreateTopics(created)) if created.iter().all(Result::is_ok));
            if !created {
                self.failures.push("topics were not created".into());
            }
        }
        let mut setup = None;
        let set_up = (0..SETUP_STEPS_MAX).any(|_| {
            self.sim.clock.advance_ms(100);
            broker.tick();
            drain(broker);
            self.letters.set_up(&mut setup, broker)
        });
        if !set_up {
            self.failures.push("queues were not declared".into());
        }
    }

    /// Final phase: no more faults, everything settles, and then every guarantee must hold.
    fn finish(&mut self, broker: &Broker) {
        for _ in 0..SETTLE_STEPS_MAX / 100 {
            self.sim.clock.advance_ms(20);
            broker.tick();
            drain(broker);
            if !broker.background_step() {
                break;
            }
        }
        for place in self.oracle.places() {
            match self.read_all(broker, &place) {
                Ok((start, content, refused)) => self.oracle.final_content(&place, start, &content, &refused),
                Err(why) => self.failures.push(format!("{place:?}: {why}")),
            }
        }
        if let Err(why) = self.look_at_all(broker) {
            self.failures.push(why);
        }
        for _ in 0..=DELAY_MS_MAX / 1_000 {
            self.sim.clock.advance_ms(1_000);
            broker.tick();
            drain(broker);
        }
        let settle = |broker: &Broker| {
            self.sim.clock.advance_ms(1_000);
            broker.tick();
            drain(broker);
        };
        self.letters.finish(broker, &mut self.queues, &mut self.oracle, &settle);
        self.queues.finish(broker, &mut self.oracle, &drain);
    }

    /// Reads everything that was changed once more.
    fn look_at_all(&mut self, broker: &Broker) -> Result<(), String> {
        let settings = self.live.sessions();
        let mut turn = Turn { broker, settings: &settings, rng: &self.rng, oracle: &mut self.oracle };
        for admin in &mut self.admins {
            // First the pending changes, then the reads.
            for looks in [false, true] {
                if looks {
                    admin.look(&mut turn)?;
                }
                while !admin.pump(&mut turn)? {
                    drain(broker);
                }
            }
        }
        Ok(())
    }

    /// Sends a request and returns the response.
    fn ask<R: Asking>(&self, broker: &Broker, version: i16, request: &R) -> Result<R::Response, String> {
        let mut connection = Connection::new(broker);
        connection.send(version, request)?;
        let settings = self.live.sessions();
        loop {
            if let Some(response) = connection.pump(broker, &settings)?.pop() {
                connection.close(broker);
                return response.decode();
            }
            drain(broker);
        }
    }

    /// Reads a partition from its first to its last offset.
    fn read_all(&self, broker: &Broker, place: &Place) -> Result<Content, String> {
        let start: list_offsets::ListOffsetsResponse = self.ask(broker, 7, &admin::earliest(place))?;
        let start = start.topics.iter().flat_map(|t| &t.partitions).next().ok_or("no first offset")?.offset;
        let (mut content, mut refused) = (Vec::new(), BTreeSet::new());
        if start > 0 {
            let before = self.ask(broker, 12, &whole_partition(place, start - 1))?;
            let error = before.responses.iter().flat_map(|t| &t.partitions).map(|p| p.error_code).next();
            if error != Some(OFFSET_OUT_OF_RANGE) {
                return Err(format!("offset {} before the log start: {error:?}", start - 1));
            }
        }
        let mut offset = start;
        loop {
            let response = self.ask(broker, 12, &whole_partition(place, offset))?;
            let partition = response.responses.into_iter().flat_map(|t| t.partitions).next();
            let partition = partition.ok_or("a fetch response without the partition")?;
            if partition.error_code != 0 {
                if !self.oracle.damaged || offset >= partition.high_watermark.max(1_000_000) {
                    return Err(format!("offset {offset}: error {}", partition.error_code));
                }
                // A fenced range: reads within it are refused, reads after it are served.
                let last = broker.catalog().topic(&place.0).and_then(|t| t.partitions.get(place.1 as usize).copied());
                let end = last.and_then(|p| broker.partition_status(p.id)).map_or(0, |s| s.high_watermark.0 as i64);
                if offset >= end {
                    return Ok((start, content, refused));
                }
                refused.insert(offset);
                offset += 1;
                continue;
            }
            let values = clients::values_of(partition.records.and_then(Records::into_bytes).unwrap_or_default())?;
            let before = offset;
            for (at, value) in values.into_iter().filter(|(at, _)| *at >= before) {
                content.push((at, value));
                offset = offset.max(at + 1);
            }
            if offset == before {
                return Ok((start, content, refused));
            }
        }
    }
}

/// Completes all pending requests.
fn drain(broker: &Broker) {
    loop {
        let mut did = broker.log_step(Work::Write);
        did |= broker.log_step(Work::Flush);
        did |= broker.read_step();
        if !did {
            return;
        }
    }
}

fn whole_partition(place: &Place, offset: i64) -> fetch::FetchRequest {
    let partition = fetch::FetchPartition {
        partition: place.1,
        fetch_offset: offset,
        current_leader_epoch: -1,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = fetch::FetchTopic { topic: place.0.as_str().into(), partitions: vec![partition], ..Default::default() };
    fetch::FetchRequest {
        replica_id: -1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

#[derive(Debug, Default)]
struct Answer(parking_lot::Mutex<Option<Reply>>);

impl ReplySink for Answer {
    fn reply(&self, _: polylogue_api::Token, reply: Reply) {
        *self.0.lock() = Some(reply);
    }

    fn event(&self, _: polylogue_api::Event) {}
}
