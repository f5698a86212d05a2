//! A directory that the local provider wrote is the log of a group of one voter: openraft takes it over as it is, and gives it
//! back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod openraft_support;

use bytes::Bytes;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{EntryPayload, Membership, OptionalSend, Raft, ServerState, Snapshot, StoredMembership};
use openraft_support::log::{Gaps, JournalLog};
use openraft_support::machine::{Applied, Machine};
use openraft_support::{Command, CommittedLeaderId, Group, RaftVote, TempDir, entry_of, log_id};
use parking_lot::{Condvar, Mutex};
use polylogue_env::Env;
use polylogue_log::journal::{CommitSink, Config, Draft, Identity, Journal, Outcome, Proposal};
use polylogue_log::{Frame, Kind};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form, Producer};
use polylogue_replicate::local::LocalLog;
use polylogue_replicate::{Role, ShardLog, Work};
use polylogue_types::{Index, NodeId, Offset, Ordinal, PartitionId, ProducerId, ShardId, Term};
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const NODE: NodeId = NodeId(7);
/// What a frame has before the part that is the same on every node. Bytes.
const LOCAL_HEADER_BYTES: usize = 64;
/// The longest that anything here may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(dir: &Path) -> Config {
    let identity = Identity { cluster: [1; 16], node: NODE, directory: [2; 16], shard: ShardId(3) };
    // Small files, so that the log has several.
    Config { file_bytes: 64 << 10, frame_bytes_max: 16 << 10, ..Config::new(dir.to_owned(), identity) }
}

/// An open journal and what it showed.
struct Opened {
    journal: Arc<Journal>,
    frames: Vec<Frame>,
}

fn open(dir: &Path, from: Index) -> Opened {
    let mut frames = Vec::new();
    let journal = Journal::open(&Env::real(), config(dir), from, &mut |frame| {
        frames.push(frame);
        Ok(())
    });
    Opened { journal: Arc::new(journal.unwrap()), frames }
}

/// Lets a test wait for outcomes.
#[derive(Default)]
struct Waiter {
    outcomes: Mutex<Vec<(u64, Outcome)>>,
    more: Condvar,
}

impl CommitSink for Waiter {
    fn committed(&self, _: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        self.outcomes.lock().extend_from_slice(outcomes);
        self.more.notify_all();
    }
}

impl Waiter {
    /// Waits for `count` outcomes, all of which have to be good.
    fn wait_for(&self, count: usize) {
        let mut outcomes = self.outcomes.lock();
        while outcomes.len() < count {
            assert!(!self.more.wait_for(&mut outcomes, PATIENCE).timed_out(), "only {} outcomes", outcomes.len());
        }
        assert!(outcomes.iter().all(|(_, o)| matches!(o, Outcome::Committed(_))), "{outcomes:?}");
    }
}

/// The `n`th batch of a partition, with everything that an envelope can say.
fn draft(partition: u64, n: u64, len: usize) -> Draft {
    let bytes: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + n * 7 + partition) as u8).collect();
    let mut envelope = Envelope::new(PartitionId(partition), Form::Opaque);
    envelope.ordinal = Ordinal(n);
    envelope.base_offset = Offset(n * 3);
    envelope.count = 3;
    envelope.max_timestamp = 1_700_000_000_000 + n as i64;
    envelope.leader_epoch = 1;
    envelope.body = Body::Inline { len: len as u32, checksum: crc32c(&bytes) };
    let base_sequence = n as i64 * 3;
    envelope.producer =
        Some(Producer { id: ProducerId(44), epoch: 2, base_sequence, last_sequence: base_sequence + 2 });
    envelope.priority = Some(4);
    envelope.key_hash = Some(n as u32);
    envelope.deliver_at = Some(1_800_000_000_000);
    Draft::new(envelope, Bytes::from(bytes))
}

/// The same message in another partition, without its bytes.
fn reference(partition: u64, n: u64, entry: u32) -> Draft {
    let mut draft = draft(partition, n, 0);
    draft.envelope.body = Body::Ref { entry };
    draft
}

/// Proposes `count` groups of entries in a term and one cut; says how many proposals that were.
fn propose(log: &LocalLog, term: Term, first: u64, count: u64) -> usize {
    for n in first..first + count {
        let len = [10, 3_000, 700][n as usize % 3];
        let entries = vec![draft(2001, n, len), reference(2000, n, 0), draft(2002, n, 33)];
        log.try_propose(Proposal::data(term, n, entries)).unwrap();
    }
    let cut = Proposal {
        kind: Kind::SegmentCut,
        body: Bytes::from_static(b"up to here"),
        ..Proposal::data(term, first + count, Vec::new())
    };
    log.try_propose(cut).unwrap();
    count as usize + 1
}

fn read_all(log: &LocalLog) -> Vec<Arc<Frame>> {
    let (mut next, end) = (log.view().first, log.view().committed.unwrap().next());
    let mut all = Vec::new();
    while next < end {
        let frames = log.read(next, 64 << 10).unwrap();
        assert!(frames.iter().zip(next.0..).all(|(f, n)| f.index.0 == n), "no gap after {next}");
        next = Index(next.0 + frames.len() as u64);
        all.extend(frames);
    }
    all
}

/// How a life of the local provider ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stopped,
    Killed,
}

/// A life of the local provider over two terms; with `trim` its first third is forgotten. Returns what was forgotten and
/// what can be read at its end.
fn local_life(dir: &Path, end: End, trim: bool) -> (Vec<Arc<Frame>>, Vec<Arc<Frame>>) {
    let waiter = Arc::new(Waiter::default());
    let opened = open(dir, Index(0));
    opened.journal.attach(waiter.clone());
    let log = LocalLog::new(opened.journal, NODE);
    // A life that is to be killed is stepped: nothing of it must go on while the next one runs.
    let settle = || while end == End::Killed && (log.step(Work::Write) | log.step(Work::Flush)) {};
    if end == End::Stopped {
        log.run().unwrap();
    }
    let mut proposed = 0;
    for first in [0, 100] {
        let term = log.acquire().unwrap();
        proposed += propose(&log, term, first, 30);
        settle();
        waiter.wait_for(proposed);
    }
    let mut forgotten = read_all(&log);
    let frames = forgotten.split_off(if trim { forgotten.len() / 3 } else { 0 });
    if let Some(last) = forgotten.last() {
        log.trim(last.index).unwrap();
        settle();
        assert_eq!(log.view().first, frames[0].index);
    }
    if end == End::Stopped {
        log.shutdown();
        assert_eq!(log.view().role, Role::Stopped);
    }
    (forgotten, frames)
}

/// A group of one has no peers.
struct NoPeers;

impl NoPeers {
    fn answer<T>() -> Result<T, Unreachable<Group>> {
        Err(Unreachable::new(&std::io::Error::other("a group of one voter has no peers")))
    }
}

impl RaftNetworkFactory<Group> for NoPeers {
    type Network = NoPeers;

    async fn new_client(&mut self, _: u64, (): &()) -> NoPeers {
        NoPeers
    }
}

impl RaftNetworkV2<Group> for NoPeers {
    type SnapshotData = Applied;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Group>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Group>, RPCError<Group>> {
        Ok(NoPeers::answer()?)
    }

    async fn vote(&mut self, _: VoteRequest<Group>, _: RPCOption) -> Result<VoteResponse<Group>, RPCError<Group>> {
        Ok(NoPeers::answer()?)
    }

    async fn full_snapshot(
        &mut self,
        _: RaftVote,
        _: Snapshot<CommittedLeaderId, u64, (), Applied>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Group>, StreamingError<Group>> {
        Ok(NoPeers::answer()?)
    }
}

fn raft_config() -> Arc<openraft::Config> {
    let config = openraft::Config {
        heartbeat_interval: 20,
        election_timeout_min: 60,
        election_timeout_max: 120,
        // By default a leader goes on in its old term. Here each life of a writer has a term of its own: it is the fencing token.
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    Arc::new(config.validate().unwrap())
}

/// A life of openraft over the journal, in which `commands` are written. Returns the term that it led in and the indexes at
/// which they were applied.
async fn raft_life(dir: &Path, from: Index, machine: &Machine, commands: &[Command]) -> (Term, Vec<Index>) {
    let opened = open(dir, from);
    opened.journal.run_threads().unwrap();
    let last_ms = opened.frames.last().map_or(0, |f| f.time_ms);
    let log = JournalLog::new(opened.journal.clone(), Env::real().clock, NODE, last_ms, Gaps::Refused);
    let raft = Raft::new(NODE.0, raft_config(), NoPeers, log, machine.clone()).await.unwrap();
    let refused = raft.initialize(BTreeSet::from([NODE.0])).await;
    assert!(refused.is_err(), "the log is not pristine");
    let metrics = raft.wait(Some(PATIENCE)).state(ServerState::Leader, "the only voter leads").await.unwrap();
    let mut indexes = Vec::new();
    for command in commands {
        let written = raft.client_write(command.clone()).await.unwrap();
        assert_eq!(written.log_id.committed_leader_id().term, metrics.current_term);
        assert_eq!(written.data, written.log_id.index());
        indexes.push(Index(written.log_id.index()));
    }
    raft.shutdown().await.unwrap();
    opened.journal.shutdown().unwrap();
    (Term(metrics.current_term), indexes)
}

fn command(n: u64) -> Command {
    let drafts = [draft(2000, n, 900), draft(2001, n, 40)];
    Command::Entries(drafts.into_iter().map(|d| (d.envelope, d.bytes)).collect())
}

/// The same without the time of appending, which the journal sets.
fn untimed(command: &Command) -> Command {
    let mut command = command.clone();
    if let Command::Entries(entries) = &mut command {
        entries.iter_mut().for_each(|(envelope, _)| envelope.append_time = 0);
    }
    command
}

/// What a state machine must have applied of frames.
fn commands_in<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Applied {
    let mut commands = Vec::new();
    for frame in frames {
        if let EntryPayload::Normal(command) = entry_of(frame).unwrap().payload {
            commands.push((frame.index.0, command));
        }
    }
    commands
}

/// What is the same of a frame on every node and in every file.
fn replicated(frame: &Frame) -> (Kind, Bytes) {
    (frame.kind, frame.bytes.slice(LOCAL_HEADER_BYTES..))
}

/// The local provider writes, openraft takes over and writes on, the local provider takes it back.
async fn there_and_back(name: &str, end: End, trim: bool) {
    let dir = TempDir::new(name);
    let (forgotten, before) = local_life(dir.path(), end, trim);
    let (first, last) = (before.first().unwrap(), before.last().unwrap());
    // What a checkpoint would have remembered.
    let machine = forgotten.last().map_or_else(Machine::default, |upto| {
        let voters = Membership::new_with_defaults(vec![BTreeSet::from([NODE.0])], []);
        let began = log_id(forgotten[0].term, forgotten[0].index);
        Machine::at(log_id(upto.term, upto.index), StoredMembership::new(Some(began), voters))
    });

    let new = [command(1_000), command(1_001)];
    let (term, indexes) = raft_life(dir.path(), first.index, &machine, &new).await;
    assert_eq!(term, Term(last.term.0 + 1), "it leads in the next term");
    // Its own first entry is the blank one of its term.
    assert_eq!(indexes, [Index(last.index.0 + 2), Index(last.index.0 + 3)]);
    let applied = machine.applied();
    let old = commands_in(before.iter().map(|f| &**f));
    assert!(!old.is_empty());
    assert_eq!(applied[..old.len()], old, "everything is applied, at its index, byte for byte");
    let added: Vec<_> = applied[old.len()..].iter().map(|(i, c)| (Index(*i), untimed(c))).collect();
    assert_eq!(added, indexes.into_iter().zip(new.iter().map(untimed)).collect::<Vec<_>>());

    let opened = open(dir.path(), first.index);
    assert_eq!(commands_in(&opened.frames), applied, "the local provider sees what openraft applied");
    for (then, now) in before.iter().zip(&opened.frames) {
        assert_eq!(replicated(now), replicated(then), "frame {} has not changed", then.index);
    }
    let kinds: Vec<_> = opened.frames[before.len()..].iter().map(|f| (f.kind, f.term)).collect();
    assert_eq!(kinds, [(Kind::Noop, term), (Kind::Data, term), (Kind::Data, term)]);
    assert!(opened.frames.is_sorted_by_key(|f| f.time_ms), "time does not go back");

    let waiter = Arc::new(Waiter::default());
    opened.journal.attach(waiter.clone());
    let log = LocalLog::new(opened.journal, NODE);
    log.run().unwrap();
    let next = log.acquire().unwrap();
    assert_eq!(next, Term(term.0 + 1));
    let proposed = propose(&log, next, 2_000, 5);
    waiter.wait_for(proposed);
    let after = read_all(&log);
    assert_eq!(after.first().unwrap().index, first.index);
    let all = commands_in(after.iter().map(|f| &**f));
    assert_eq!(all[..applied.len()], applied);
    assert!(all.len() > applied.len());
    log.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_takes_over_what_the_local_provider_wrote() {
    there_and_back("clean", End::Stopped, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_takes_over_from_a_provider_that_was_killed() {
    there_and_back("killed", End::Killed, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openraft_takes_over_a_log_whose_front_is_gone() {
    there_and_back("trimmed", End::Stopped, true).await;
}
