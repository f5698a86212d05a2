//! Nodes of a run: their configuration, the recorder of a writer's log, and a follower that receives it.
//!
//! ```text
//!   writer ──commit──> Recorder ──frames, each shard at its own pace──> Follower ──apply──> compared at equal indexes
//! ```
//!
//! The recorder is the only replication: no option of the product makes a follower.

use parking_lot::Mutex;
use polylogue_amqp_gateway::{AmqpMachine, Directory};
use polylogue_amqp_model::Limits;
use polylogue_api::{MachineId, StateMachine};
use polylogue_broker::{AppliedState, Broker, BrokerConfig};
use polylogue_env::sim::{SimRng, SimWorld};
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_groups::{GroupSettings, KafkaGroups};
use polylogue_log::Frame;
use polylogue_log::journal::{CommitSink, Outcome};
use polylogue_replicate::{Role, Work};
use polylogue_types::{Index, NodeId, ShardId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes per read of the frames that a start recovered.
const FILL_BYTES: usize = 1 << 20;
/// The bytes of a frame that belong to a node's own disk: salt, checksum of the previous frame, durable index.
const LOCAL_HEADER_BYTES: usize = 64;
/// Frames per call of a follower at most.
const FRAMES_PER_CALL_MAX: u64 = 6;
/// A follower restarts in one of this many of its turns.
const RESTART_ODDS: u64 = 3_000;
/// Bytes of a chunk that are shown at a difference.
const SHOWN_BYTES: usize = 16;
/// The node id of a follower.
const FOLLOWER: NodeId = NodeId(2);

/// Returns the machines of a new node, and the directory of RabbitMQ declarations.
#[must_use]
pub fn machines() -> (BTreeMap<MachineId, Box<dyn StateMachine>>, Arc<Directory>) {
    let groups = KafkaGroups::new(GroupSettings::default());
    let declared = AmqpMachine::new(Limits::default());
    let directory = declared.directory();
    let machines: BTreeMap<MachineId, Box<dyn StateMachine>> = BTreeMap::from([
        (MachineId::KAFKA_GROUPS, Box::new(groups) as Box<dyn StateMachine>),
        (MachineId::AMQP, Box::new(declared)),
    ]);
    (machines, directory)
}

/// Returns the settings of a node with this many shards of class `sync`.
#[must_use]
pub fn config(data: &str, shards: u32) -> BrokerConfig {
    let mut config = BrokerConfig::new(data.into());
    config.sync_shards = shards;
    // Small, so that files are filled, merged and recycled within a run.
    config.journal_file_bytes = 128 << 10;
    config.checkpoint_bytes_max = 96 << 10;
    config.store.merge_bytes = 192 << 10;
    config.store.tail_cache_bytes = 32 << 10;
    config.store.adopt_run_bytes_min = 512;
    config.store.adopt_stretch_bytes_min = 8 << 10;
    config.disk_reserve_bytes = 0;
    config
}

/// All frames committed by a writer over all of its starts, by shard and index.
#[derive(Debug, Default)]
pub struct Recorder {
    logs: Mutex<BTreeMap<ShardId, BTreeMap<u64, Arc<Frame>>>>,
}

impl CommitSink for Recorder {
    fn committed(&self, frames: &[Arc<Frame>], _: &[(u64, Outcome)]) {
        frames.iter().for_each(|frame| self.note(frame));
    }
}

impl Recorder {
    fn note(&self, frame: &Arc<Frame>) {
        // Copied, because a reference would keep the writer from recycling the file.
        let frame = Frame { place: None, ..Frame::clone(frame) };
        self.logs.lock().entry(frame.shard).or_default().insert(frame.index.0, Arc::new(frame));
    }

    /// Records the frames that a start recovered: written before the crash and committed by this start.
    ///
    /// # Errors
    /// If the writer cannot read its log.
    pub fn fill(&self, broker: &Broker) -> Result<(), String> {
        for shard in broker.shards() {
            let Some(end) = broker.committed(shard.id) else { continue };
            while let Some(missing) = self.first_missing(shard.id).filter(|missing| *missing <= end) {
                let read = broker.frames(shard.id, missing, FILL_BYTES).map_err(|e| e.to_string())?;
                if read.is_empty() {
                    return Err(format!("shard {}: frame {missing} cannot be read", shard.id));
                }
                read.iter().for_each(|frame| self.note(frame));
            }
        }
        Ok(())
    }

    fn first_missing(&self, shard: ShardId) -> Option<Index> {
        let logs = self.logs.lock();
        let log = logs.get(&shard);
        (0..=u64::MAX).find(|index| log.is_none_or(|log| !log.contains_key(index))).map(Index)
    }

    /// Returns the recorded frames of each shard, without gaps from the first on.
    #[must_use]
    pub fn logs(&self) -> BTreeMap<ShardId, Vec<Arc<Frame>>> {
        let in_order = |log: &BTreeMap<u64, Arc<Frame>>| {
            let follows = |(at, (index, _)): &(u64, (&u64, &Arc<Frame>))| at == *index;
            (0u64..).zip(log).take_while(follows).map(|(_, (_, frame))| frame.clone()).collect()
        };
        self.logs.lock().iter().map(|(shard, log)| (*shard, in_order(log))).collect()
    }

    fn frame(&self, shard: ShardId, index: u64) -> Option<Arc<Frame>> {
        self.logs.lock().get(&shard)?.get(&index).cloned()
    }

    fn shards(&self) -> Vec<ShardId> {
        self.logs.lock().keys().copied().collect()
    }
}

/// An open follower.
struct Opened {
    broker: Broker,
    live: Arc<LiveSettings>,
    directory: Arc<Directory>,
}

impl Opened {
    fn new(sim: &SimWorld, data: &str, shards: u32) -> Result<Opened, String> {
        let (machines, directory) = machines();
        let live = Arc::new(LiveSettings::new(KafkaSettings::default()));
        let config = BrokerConfig { resolver: live.clone(), node: Some(FOLLOWER), ..config(data, shards) };
        let broker = Broker::open_follower(sim.env(), config, machines).map_err(|e| format!("a follower: {e}"))?;
        Ok(Opened { broker, live, directory })
    }
}

/// A node that receives a writer's committed frames, and nothing else.
#[derive(Debug)]
pub struct Follower {
    /// Its machine; it shares the writer's clock.
    pub sim: SimWorld,
    /// The node.
    pub broker: Broker,
    shards: u32,
    data: String,
    /// Its settings after the take-over.
    pub live: Arc<LiveSettings>,
    /// Its directory of declared queues after the take-over.
    pub directory: Arc<Directory>,
    /// The next frame to receive, by shard.
    next: BTreeMap<ShardId, u64>,
    /// The writer's states at indexes that this node has not reached.
    expected: BTreeMap<(ShardId, Index), AppliedState>,
    /// Number of states compared.
    pub compared: u64,
}

impl Follower {
    /// Returns a new follower with an empty disk.
    ///
    /// # Errors
    /// If it does not open.
    pub fn new(seed: u64, clock: &polylogue_env::sim::SimClock, data: &str, shards: u32) -> Result<Follower, String> {
        let mut sim = SimWorld::new(seed);
        sim.clock = clock.clone();
        let Opened { broker, live, directory } = Opened::new(&sim, data, shards)?;
        let (next, expected, compared) = Default::default();
        Ok(Follower { sim, broker, shards, data: data.to_owned(), live, directory, next, expected, compared })
    }

    /// Crashes the follower, by a power cut or a kill, and restarts it: it receives frames lost from its disk again.
    ///
    /// # Errors
    /// If it does not open.
    pub fn restart(&mut self, rng: &SimRng) -> Result<(), String> {
        self.broker.forget_reads();
        match rng.below(2) {
            0 => self.sim.kill(),
            _ => _ = self.sim.crash(),
        }
        let Opened { broker, live, directory } = Opened::new(&self.sim, &self.data, self.shards)?;
        (self.broker, self.live, self.directory) = (broker, live, directory);
        for (shard, next) in &mut self.next {
            *next = self.broker.committed(*shard).map_or(0, |committed| committed.0 + 1);
        }
        Ok(())
    }

    /// Records the state of the writer's shard, to be compared when this node reaches it.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn expect(&mut self, writer: &Broker, shard: ShardId) -> Result<(), String> {
        if let Some(state) = writer.applied_state(shard).map_err(|e| e.to_string())?
            && self.next.get(&shard).copied().unwrap_or(0) <= state.index.0
        {
            self.expected.insert((shard, state.index), state);
        }
        Ok(())
    }

    /// Receives some frames of some shard, or does another follower operation.
    ///
    /// # Errors
    /// A violation.
    pub fn step(&mut self, recorder: &Recorder, rng: &SimRng) -> Result<(), String> {
        if rng.below(RESTART_ODDS) == 0 {
            self.restart(rng)?;
        }
        match rng.below(10) {
            0 => _ = self.broker.background_step(),
            1 => self.broker.tick(),
            2 => _ = self.broker.log_step(Work::Background) | self.broker.read_step(),
            _ => {
                let shards = recorder.shards();
                if let Some(shard) = shards.get(rng.below(shards.len().max(1) as u64) as usize) {
                    self.advance(recorder, *shard, 1 + rng.below(FRAMES_PER_CALL_MAX))?;
                }
            }
        }
        self.check()
    }

    /// Receives all recorded frames.
    ///
    /// # Errors
    /// A violation.
    pub fn catch_up(&mut self, recorder: &Recorder) -> Result<(), String> {
        for shard in recorder.shards() {
            while self.advance(recorder, shard, FRAMES_PER_CALL_MAX)? {}
        }
        self.check()
    }

    /// Receives up to `count` frames of a shard, up to the next index with a recorded state, and compares states there. Returns `false` if there is
    /// none.
    ///
    /// # Errors
    /// A violation.
    pub fn advance(&mut self, recorder: &Recorder, shard: ShardId, count: u64) -> Result<bool, String> {
        let next = self.next.get(&shard).copied().unwrap_or(0);
        let stop = self.expected.range((shard, Index(next))..).next().map(|((of, index), _)| (*of, index.0));
        let end = stop.filter(|(of, _)| *of == shard).map_or(u64::MAX, |(_, index)| index + 1).min(next + count);
        let frames: Vec<_> = (next..end).map_while(|index| recorder.frame(shard, index)).collect();
        let Some(last) = frames.last().map(|frame| frame.index) else { return Ok(false) };
        self.feed(shard, &frames)?;
        if let Some(expected) = self.expected.remove(&(shard, last)) {
            self.compare(shard, &expected)?;
        }
        Ok(true)
    }

    /// Receives these frames, and applies them.
    ///
    /// # Errors
    /// A violation.
    pub fn feed(&mut self, shard: ShardId, frames: &[Arc<Frame>]) -> Result<(), String> {
        let Some(last) = frames.last().map(|frame| frame.index) else { return Ok(()) };
        self.broker.receive(shard, frames).map_err(|e| format!("a follower's shard {shard}: {e}"))?;
        while self.broker.log_step(Work::Write) | self.broker.log_step(Work::Flush) {}
        if self.broker.committed(shard) != Some(last) {
            let why = self.sim.fatal().reason().unwrap_or_default();
            return Err(format!("a follower's shard {shard} got frame {last} and did not apply it: {why}"));
        }
        self.next.insert(shard, last.0 + 1);
        Ok(())
    }

    /// Compares a shard's state with the expected one.
    ///
    /// # Errors
    /// The differences.
    pub fn compare(&mut self, shard: ShardId, expected: &AppliedState) -> Result<(), String> {
        let state = self.broker.applied_state(shard).map_err(|e| e.to_string())?;
        let state = state.ok_or_else(|| format!("shard {shard} is not open"))?;
        self.compared += 1;
        same(shard, expected, &state)
    }

    /// Checks that it is a follower: its logs end with the frames it received, in the writer's bytes, and it has proposed nothing.
    fn check(&self) -> Result<(), String> {
        if let Some(why) = self.sim.fatal().reason() {
            return Err(format!("a follower ended: {why}"));
        }
        for (shard, next) in &self.next {
            let role = self.broker.role(*shard);
            let end = self.broker.log_view(*shard).and_then(|view| view.tail).map_or(0, |tail| tail.0 + 1);
            // It has not opened a shard that its disk has lost before the metadata named it.
            let lost = role.is_none() && *next == 0;
            if !lost && (role != Some(Role::Follower) || end != *next) {
                return Err(format!("a follower's shard {shard} is {role:?} and ends at {end}, but got {next} frames"));
            }
        }
        match self.broker.shards().iter().find(|shard| shard.proposals_open > 0) {
            Some(shard) => Err(format!("a follower has proposed something in shard {}", shard.id)),
            None => Ok(()),
        }
    }

    /// Checks that the last frame of a shard has the writer's bytes.
    ///
    /// # Errors
    /// If it has not.
    pub fn check_bytes(&self, recorder: &Recorder, shard: ShardId) -> Result<(), String> {
        let Some(last) = self.next.get(&shard).and_then(|next| next.checked_sub(1)) else { return Ok(()) };
        let read = self.broker.frames(shard, Index(last), 1).map_err(|e| e.to_string())?;
        let replicated = |frame: &Arc<Frame>| frame.bytes.slice(LOCAL_HEADER_BYTES.min(frame.bytes.len())..);
        match (read.first(), recorder.frame(shard, last)) {
            (Some(here), Some(there)) if replicated(here) == replicated(&there) => Ok(()),
            _ => Err(format!("frame {last} of shard {shard} is another one at the follower")),
        }
    }
}

/// Checks that two states of a shard at one index are equal.
///
/// # Errors
/// The differences.
pub fn same(shard: ShardId, expected: &AppliedState, state: &AppliedState) -> Result<(), String> {
    if expected.index != state.index {
        return Err(format!("shard {shard} is at index {}, not at {}", state.index, expected.index));
    }
    if expected.hash() == state.hash() {
        return Ok(());
    }
    let show = |key: &polylogue_log::checkpoint::ChunkKey| {
        let none = bytes::Bytes::from_static(b"none");
        let [one, other] = [expected, state].map(|state| state.chunks.get(key).unwrap_or(&none));
        let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
        let [one, other] =
            [one, other].map(|chunk| chunk.get(at..chunk.len().min(at + SHOWN_BYTES)).unwrap_or_default());
        format!("{} {:02x?} from byte {at} on: {one:02x?} and {other:02x?}", char::from(key.kind), &key.id[..])
    };
    let differences: Vec<_> = expected.differences(state).iter().take(4).map(show).collect();
    Err(format!("shard {shard} differs at index {}: {}", state.index, differences.join("; ")))
}
