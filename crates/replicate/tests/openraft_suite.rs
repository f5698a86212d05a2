//! openraft's own suite for log storages, on the journal with its threads and the real disk; and on the simulated disk what the
//! suite does not look at: what an engine has written is there after a start, and a log goes on behind a snapshot.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod openraft_support;

use openraft::storage::RaftLogStorage;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{LogState, RaftLogReader, StorageError};
use openraft_support::life::Life;
use openraft_support::log::{Gaps, JournalLog};
use openraft_support::machine::Machine;
use openraft_support::model::{self, Counts};
use openraft_support::{Group, RaftLogId, RaftVote, TempDir, log_id};
use polylogue_env::Env;
use polylogue_env::sim::SimWorld;
use polylogue_log::journal::{Config, Identity, Journal, StartOfLife};
use polylogue_types::{Index, NodeId, ShardId, Term};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The suite's own.
const NODE: NodeId = NodeId(0);
/// How many random orders of calls are tried.
const MODEL_SEEDS: u64 = 40;

/// Makes a journal for each case of the suite.
struct Builder {
    dir: TempDir,
    made: AtomicU64,
}

/// Ends a case's journal.
struct Guard(Arc<Journal>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.shutdown().expect("no case breaks its journal");
    }
}

impl StoreBuilder<Group, JournalLog, Machine, Guard> for Builder {
    async fn build(&self) -> Result<(Guard, JournalLog, Machine), StorageError<Group>> {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let env = Env::real();
        let identity = Identity { cluster: [1; 16], node: NODE, directory: [2; 16], shard: ShardId(0) };
        let dir: PathBuf = self.dir.path().join(n.to_string());
        let config = Config { file_bytes: 256 << 10, start: StartOfLife::Pristine, ..Config::new(dir, identity) };
        let journal = Journal::open(&env, config, Index(0), &mut |_| Ok(())).expect("an empty directory opens");
        journal.run_threads().expect("threads");
        let journal = Arc::new(journal);
        let log = JournalLog::new(journal.clone(), env.clock, NODE, 0, Gaps::Purged);
        Ok((Guard(journal), log, Machine::default()))
    }
}

// The suite sleeps for a second where a storage may purge in the background. The journal does not, so that time may be skipped.
#[tokio::test(start_paused = true)]
async fn the_journal_passes_the_suite() {
    let builder = Builder { dir: TempDir::new("suite"), made: AtomicU64::new(0) };
    Suite::test_all(builder).await.expect("the suite");
}

/// How a life ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Stopped,
    PowerCut,
}

fn id(term: u64, index: u64) -> RaftLogId {
    log_id(Term(term), Index(index))
}

fn state(purged: RaftLogId, last: RaftLogId) -> LogState<Group> {
    LogState { last_purged_log_id: Some(purged), last_log_id: Some(last) }
}

fn end_life(world: &SimWorld, life: Life, end: End) {
    match end {
        End::Stopped => life.journal.shutdown().expect("a clean stop"),
        End::PowerCut => _ = world.crash(),
    }
}

async fn leaves_all_for_the_next_life(end: End) {
    let world = SimWorld::new(1);
    let vote = RaftVote::new(3, 9);
    let mut life = Life::start(&world, Index(0));
    life.append_blank(1, 0..=10).await;
    life.log.save_vote(&RaftVote::new_committed(2, 0)).await.expect("a vote");
    life.log.truncate_after(Some(id(1, 7))).await.expect("truncation");
    life.append_blank(2, 8..=12).await;
    life.log.save_committed(Some(id(2, 9))).await.expect("committed");
    life.log.purge(id(1, 3)).await.expect("purge");
    life.log.save_vote(&vote).await.expect("a vote");
    end_life(&world, life, end);

    let mut life = Life::start(&world, Index(4));
    assert_eq!(life.log.get_log_state().await.expect("state"), state(id(1, 3), id(2, 12)));
    assert_eq!(life.log.read_vote().await.expect("vote"), Some(vote));
    assert_eq!(life.log.read_committed().await.expect("committed"), Some(id(2, 9)));
    let expected: Vec<_> = (4..=7).map(|i| id(1, i)).chain((8..=12).map(|i| id(2, i))).collect();
    assert_eq!(life.ids().await, expected);
    life.append_blank(3, 13..=13).await;
    assert_eq!(life.log.get_log_state().await.expect("state").last_log_id, Some(id(3, 13)));
}

#[tokio::test]
async fn what_openraft_wrote_is_there_after_a_start() {
    leaves_all_for_the_next_life(End::Stopped).await;
    leaves_all_for_the_next_life(End::PowerCut).await;
}

async fn goes_on_behind_a_snapshot(end: End) {
    let world = SimWorld::new(2);
    let expected: Vec<_> = (21..=25).map(|i| id(2, i)).collect();
    let mut life = Life::start(&world, Index(0));
    life.append_blank(1, 0..=10).await;
    life.log.purge(id(2, 20)).await.expect("a snapshot may be ahead of the log");
    assert_eq!(life.ids().await, []);
    life.append_blank(2, 21..=25).await;
    assert_eq!(life.log.get_log_state().await.expect("state"), state(id(2, 20), id(2, 25)));
    assert_eq!(life.ids().await, expected);
    end_life(&world, life, end);

    let mut life = Life::start(&world, Index(21));
    assert_eq!(life.log.get_log_state().await.expect("state"), state(id(2, 20), id(2, 25)));
    assert_eq!(life.ids().await, expected);
    life.log.truncate_after(Some(id(2, 20))).await.expect("truncation to the snapshot");
    assert_eq!(life.log.get_log_state().await.expect("state"), state(id(2, 20), id(2, 20)));
    life.append_blank(3, 21..=22).await;
    assert_eq!(life.ids().await, [id(3, 21), id(3, 22)]);
}

#[tokio::test]
async fn a_log_goes_on_behind_an_installed_snapshot() {
    goes_on_behind_a_snapshot(End::Stopped).await;
    goes_on_behind_a_snapshot(End::PowerCut).await;
}

/// The file in which the purged entries stood is gone, and the one after it began when less was purged.
async fn knows_the_term_of_what_is_purged(end: End) {
    let world = SimWorld::new(3);
    let mut life = Life::start(&world, Index(0));
    life.append_blank(1, 0..=3).await;
    life.log.purge(id(1, 1)).await.expect("purge");
    life.append_blank(2, 4..=6).await;
    life.journal.seal_current();
    life.append_blank(3, 7..=8).await;
    life.log.purge(id(2, 6)).await.expect("purge");
    while life.journal.background_step() {}
    end_life(&world, life, end);
    let mut life = Life::start(&world, Index(7));
    assert_eq!(life.log.get_log_state().await.expect("state"), state(id(2, 6), id(3, 8)));
}

#[tokio::test]
async fn the_term_of_what_is_purged_outlives_its_file() {
    knows_the_term_of_what_is_purged(End::Stopped).await;
    knows_the_term_of_what_is_purged(End::PowerCut).await;
}

/// An entry of a late term that never was committed gives way to those of an earlier one that were.
async fn takes_an_earlier_term_after_truncation(end: End) {
    let world = SimWorld::new(4);
    let mut life = Life::start(&world, Index(0));
    life.append_blank(6, 0..=0).await;
    life.log.truncate_after(None).await.expect("truncation");
    end_life(&world, life, end);
    let mut life = Life::start(&world, Index(0));
    life.append_blank(1, 0..=2).await;
    assert_eq!(life.ids().await, [id(1, 0), id(1, 1), id(1, 2)]);
}

#[tokio::test]
async fn nothing_is_left_of_a_term_that_was_truncated() {
    takes_an_earlier_term_after_truncation(End::Stopped).await;
    takes_an_earlier_term_after_truncation(End::PowerCut).await;
}

#[tokio::test]
async fn any_order_of_calls_gives_what_a_plain_list_gives() {
    let mut total = Counts::default();
    for seed in 0..MODEL_SEEDS {
        total.add(model::run(seed).await);
    }
    total.check();
}
