//! openraft's own suite for log storages, on the journal with its threads and the real disk; and what the suite does not look
//! at: what an engine has written is there after a start, and a log goes on behind a snapshot.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod openraft_support;

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, LogState, RaftLogReader, StorageError};
use openraft_support::log::{Gaps, JournalLog};
use openraft_support::machine::Machine;
use openraft_support::{Group, RaftEntry, RaftLogId, RaftVote, TempDir, log_id};
use polylogue_env::Env;
use polylogue_log::journal::{Config, Identity, Journal, StartOfLife};
use polylogue_types::{Index, NodeId, ShardId, Term};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The suite's own.
const NODE: NodeId = NodeId(0);

fn config(dir: PathBuf) -> Config {
    let identity = Identity { cluster: [1; 16], node: NODE, directory: [2; 16], shard: ShardId(0) };
    Config { file_bytes: 256 << 10, start: StartOfLife::Pristine, ..Config::new(dir, identity) }
}

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
        let (guard, log) = open(&self.dir.path().join(n.to_string()), Index(0), Gaps::Purged);
        Ok((guard, log, Machine::default()))
    }
}

fn open(dir: &Path, from: Index, gaps: Gaps) -> (Guard, JournalLog) {
    let env = Env::real();
    let mut last_ms = 0;
    let journal = Journal::open(&env, config(dir.to_owned()), from, &mut |frame| {
        last_ms = frame.time_ms;
        Ok(())
    });
    let journal = Arc::new(journal.expect("the directory opens"));
    journal.run_threads().expect("threads");
    let log = JournalLog::new(journal.clone(), env.clock, NODE, last_ms, gaps);
    (Guard(journal), log)
}

// The suite sleeps for a second where a storage may purge in the background. The journal does not, so that time may be skipped.
#[tokio::test(start_paused = true)]
async fn the_journal_passes_the_suite() {
    let builder = Builder { dir: TempDir::new("suite"), made: AtomicU64::new(0) };
    Suite::test_all(builder).await.expect("the suite");
}

fn id(term: u64, index: u64) -> RaftLogId {
    log_id(Term(term), Index(index))
}

/// Appends blank entries and waits until they are flushed.
async fn append(log: &mut JournalLog, term: u64, indexes: std::ops::RangeInclusive<u64>) {
    let entries: Vec<_> = indexes.map(|i| RaftEntry { log_id: id(term, i), payload: EntryPayload::Blank }).collect();
    let (tx, rx) = Group::oneshot();
    log.append(entries, IOFlushed::signal(tx)).await.expect("entries that follow are taken");
    rx.await.expect("the callback is called").expect("and says yes");
}

async fn ids(log: &mut JournalLog) -> Vec<RaftLogId> {
    log.try_get_log_entries(..).await.expect("all can be read").into_iter().map(|e| e.log_id).collect()
}

fn state(purged: RaftLogId, last: RaftLogId) -> LogState<Group> {
    LogState { last_purged_log_id: Some(purged), last_log_id: Some(last) }
}

#[tokio::test]
async fn what_openraft_wrote_is_there_after_a_start() {
    let dir = TempDir::new("restart");
    let vote = RaftVote::new(3, 9);
    {
        let (_guard, mut log) = open(dir.path(), Index(0), Gaps::Refused);
        append(&mut log, 1, 0..=10).await;
        log.save_vote(&RaftVote::new_committed(2, 0)).await.expect("a vote");
        log.truncate_after(Some(id(1, 7))).await.expect("truncation");
        append(&mut log, 2, 8..=12).await;
        log.save_committed(Some(id(2, 9))).await.expect("committed");
        log.purge(id(1, 3)).await.expect("purge");
        log.save_vote(&vote).await.expect("a vote");
    }
    let (_guard, mut log) = open(dir.path(), Index(4), Gaps::Refused);
    assert_eq!(log.get_log_state().await.expect("state"), state(id(1, 3), id(2, 12)));
    assert_eq!(log.read_vote().await.expect("vote"), Some(vote));
    assert_eq!(log.read_committed().await.expect("committed"), Some(id(2, 9)));
    let expected: Vec<_> = (4..=7).map(|i| id(1, i)).chain((8..=12).map(|i| id(2, i))).collect();
    assert_eq!(ids(&mut log).await, expected);
    append(&mut log, 3, 13..=13).await;
    assert_eq!(log.get_log_state().await.expect("state").last_log_id, Some(id(3, 13)));
}

#[tokio::test]
async fn a_log_goes_on_behind_an_installed_snapshot() {
    let dir = TempDir::new("snapshot");
    let expected: Vec<_> = (21..=25).map(|i| id(2, i)).collect();
    {
        let (_guard, mut log) = open(dir.path(), Index(0), Gaps::Refused);
        append(&mut log, 1, 0..=10).await;
        log.purge(id(2, 20)).await.expect("a snapshot may be ahead of the log");
        assert_eq!(ids(&mut log).await, []);
        append(&mut log, 2, 21..=25).await;
        assert_eq!(log.get_log_state().await.expect("state"), state(id(2, 20), id(2, 25)));
        assert_eq!(ids(&mut log).await, expected);
    }
    let (_guard, mut log) = open(dir.path(), Index(21), Gaps::Refused);
    assert_eq!(log.get_log_state().await.expect("state"), state(id(2, 20), id(2, 25)));
    assert_eq!(ids(&mut log).await, expected);
    log.truncate_after(Some(id(2, 20))).await.expect("truncation to the snapshot");
    assert_eq!(log.get_log_state().await.expect("state"), state(id(2, 20), id(2, 20)));
    append(&mut log, 3, 21..=22).await;
    assert_eq!(ids(&mut log).await, [id(3, 21), id(3, 22)]);
}
