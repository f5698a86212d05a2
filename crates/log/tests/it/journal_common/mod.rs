//! Shared helpers of the journal's tests: a simulated environment, a recording sink, and proposals.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::panic, reason = "the helpers are part of the tests")]

use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_env::Env;
use polylogue_env::sim::SimWorld;
use polylogue_log::frame::Frame;
use polylogue_log::journal::{CommitSink, Config, Draft, Identity, Journal, Outcome, Proposal, Refused, Urgency};
use polylogue_log::{Error, Kind, Result};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form};
use polylogue_types::{Index, NodeId, Offset, Ordinal, PartitionId, ShardId, Term};
use std::path::PathBuf;
use std::sync::Arc;

pub const FILE_BYTES: u64 = 128 << 10;

/// The simulated shard's directory.
pub fn shard_dir() -> PathBuf {
    PathBuf::from("/data/shard-0")
}

pub fn journal_dir() -> PathBuf {
    shard_dir().join("journal")
}

pub fn identity() -> Identity {
    Identity { cluster: [1; 16], node: NodeId(7), directory: [2; 16], shard: ShardId(3) }
}

/// Small files and frames, so that tests reach their ends.
pub fn config() -> Config {
    let mut config = Config::new(shard_dir(), identity());
    config.file_bytes = FILE_BYTES;
    config.frame_bytes_max = 16 << 10;
    config.entry_bytes_max = 1 << 20;
    config.queue_bytes_max = 1 << 20;
    config.queue_count_max = 1_000;
    config.reserve_bytes = 48 << 10;
    config.disk_reserve_bytes = 0;
    config.prewrite_piece_bytes = 32 << 10;
    config
}

/// Events recorded by a sink.
#[derive(Default)]
pub struct Heard {
    pub frames: Vec<Arc<Frame>>,
    pub outcomes: Vec<(u64, Outcome)>,
    /// `(frames, outcomes)` of each call.
    pub calls: Vec<(usize, usize)>,
}

#[derive(Default)]
pub struct Recorder(pub Mutex<Heard>);

impl CommitSink for Recorder {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        let mut heard = self.0.lock();
        heard.frames.extend_from_slice(frames);
        heard.outcomes.extend_from_slice(outcomes);
        heard.calls.push((frames.len(), outcomes.len()));
    }
}

impl Recorder {
    pub fn outcomes(&self) -> Vec<(u64, Outcome)> {
        self.0.lock().outcomes.clone()
    }

    pub fn outcome(&self, ticket: u64) -> Option<Outcome> {
        self.0.lock().outcomes.iter().find(|(t, _)| *t == ticket).map(|(_, o)| *o)
    }

    pub fn frames(&self) -> Vec<Arc<Frame>> {
        self.0.lock().frames.clone()
    }
}

/// An open journal and its sink.
pub struct Node {
    pub journal: Journal,
    pub sink: Arc<Recorder>,
    pub visited: Vec<Frame>,
    pub epoch: Term,
}

pub fn open_in(env: &Env, config: Config, from: Index) -> Result<(Journal, Vec<Frame>)> {
    let mut visited = Vec::new();
    let journal = Journal::open(env, config, from, &mut |frame| {
        visited.push(frame);
        Ok(())
    })?;
    Ok((journal, visited))
}

impl Node {
    /// Opens the journal and takes a term.
    pub fn start(world: &SimWorld, config: Config) -> Result<Node> {
        Node::start_env(&world.env(), config)
    }

    pub fn start_env(env: &Env, config: Config) -> Result<Node> {
        let (journal, visited) = open_in(env, config, Index(0))?;
        let sink = Arc::new(Recorder::default());
        journal.attach(sink.clone());
        let epoch = journal.acquire()?;
        Ok(Node { journal, sink, visited, epoch })
    }

    /// Steps until no work is due.
    pub fn settle(&self) {
        while self.journal.write_step() | self.journal.flush_step() {}
    }

    /// Steps the background thread until it has no immediate work.
    pub fn background(&self) {
        while self.journal.background_step() {}
    }

    pub fn propose(&self, ticket: u64, entries: Vec<Draft>) -> std::result::Result<(), Refused> {
        self.journal.try_propose(Proposal::data(self.epoch, ticket, entries))
    }

    pub fn propose_lazy(&self, ticket: u64, entries: Vec<Draft>) -> std::result::Result<(), Refused> {
        let proposal = Proposal { urgency: Urgency::Lazy, ..Proposal::data(self.epoch, ticket, entries) };
        self.journal.try_propose(proposal)
    }

    /// Proposes one entry and steps until its outcome is known.
    pub fn write(&self, ticket: u64, partition: u64, offset: u64, bytes: usize) -> Option<Outcome> {
        self.propose(ticket, vec![draft(partition, offset, payload(ticket, bytes))]).ok()?;
        self.settle();
        self.sink.outcome(ticket)
    }
}

/// Bytes that identify their ticket.
pub fn payload(ticket: u64, len: usize) -> Bytes {
    let mut state = ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&ticket.to_le_bytes()[..8.min(len)]);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.push(state as u8);
    }
    Bytes::from(out)
}

pub fn draft(partition: u64, offset: u64, bytes: Bytes) -> Draft {
    let mut envelope = Envelope::new(PartitionId(partition), Form::Opaque);
    envelope.base_offset = Offset(offset);
    envelope.ordinal = Ordinal(offset);
    envelope.count = 1;
    envelope.body = Body::Inline { len: bytes.len() as u32, checksum: crc32c(&bytes) };
    Draft::new(envelope, bytes)
}

pub fn reference(partition: u64, offset: u64, entry: u32) -> Draft {
    let mut draft = draft(partition, offset, Bytes::new());
    draft.envelope.body = Body::Ref { entry };
    draft
}

/// A digest of bytes for comparisons, short when printed.
pub fn sum(bytes: &[u8]) -> (usize, u32) {
    (bytes.len(), crc32c(bytes))
}

/// An entry for comparisons: partition, offset, and the digest of its bytes.
pub type Entry = (u64, u64, (usize, u32));

pub fn entry(partition: u64, offset: u64, bytes: &[u8]) -> Entry {
    (partition, offset, sum(bytes))
}

/// Returns all entries of frames, in order.
pub fn contents<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Vec<Entry> {
    let mut out = Vec::new();
    for frame in frames {
        for e in &frame.entries {
            out.push(entry(e.envelope.partition.0, e.envelope.base_offset.0, &frame.native(e)));
        }
    }
    out
}

/// The same for shared frames.
pub fn contents_of(frames: &[Arc<Frame>]) -> Vec<Entry> {
    contents(frames.iter().map(|f| &**f))
}

pub fn kinds(frames: &[Frame]) -> Vec<Kind> {
    frames.iter().map(|f| f.kind).collect()
}

pub fn expect_err<T>(result: std::result::Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("it should have been refused"),
        Err(e) => e,
    }
}
