//! A log of openraft in a simulated world: nothing happens beside what the test does.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use super::log::{Gaps, JournalLog};
use super::{Group, RaftEntry, RaftLogId, log_id};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, RaftLogReader};
use polylogue_env::sim::SimWorld;
use polylogue_log::journal::{Config, Identity, Journal, StartOfLife};
use polylogue_types::{Index, NodeId, ShardId, Term};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

const NODE: NodeId = NodeId(4);

/// From an opening to the end.
pub struct Life {
    pub journal: Arc<Journal>,
    pub log: JournalLog,
}

impl Life {
    /// Opens the log. What is before `from` is covered by a snapshot.
    pub fn start(world: &SimWorld, from: Index) -> Life {
        let identity = Identity { cluster: [1; 16], node: NODE, directory: [2; 16], shard: ShardId(0) };
        // Small, so that a few entries fill it.
        let start = StartOfLife::Pristine;
        let config = Config { file_bytes: 64 << 10, start, ..Config::new("/data/shard-0000".into(), identity) };
        let env = world.env();
        let mut last_ms = 0;
        let journal = Journal::open(&env, config, from, &mut |frame| {
            last_ms = frame.time_ms;
            Ok(())
        });
        let journal = Arc::new(journal.expect("the journal opens"));
        let log = JournalLog::new(journal.clone(), env.clock, NODE, last_ms, Gaps::Refused);
        Life { journal, log }
    }

    /// Appends entries and flushes them.
    pub async fn append(&mut self, entries: Vec<RaftEntry>) {
        self.try_append(entries).await.expect("entries that follow are taken");
    }

    /// The same where it may be refused.
    pub async fn try_append(&mut self, entries: Vec<RaftEntry>) -> io::Result<()> {
        let (tx, rx) = Group::oneshot();
        self.log.append(entries, IOFlushed::signal(tx)).await?;
        while self.journal.write_step() | self.journal.flush_step() {}
        rx.await.expect("the callback is called").expect("and says yes");
        Ok(())
    }

    pub async fn append_blank(&mut self, term: u64, indexes: RangeInclusive<u64>) {
        let blank = |i| RaftEntry { log_id: log_id(Term(term), Index(i)), payload: EntryPayload::Blank };
        self.append(indexes.map(blank).collect()).await;
    }

    /// Everything that is there.
    pub async fn entries(&mut self) -> Vec<RaftEntry> {
        self.log.try_get_log_entries(..).await.expect("all can be read")
    }

    pub async fn ids(&mut self) -> Vec<RaftLogId> {
        self.entries().await.into_iter().map(|e| e.log_id).collect()
    }
}
