//! A shard's applied state in a canonical encoding that depends on its log only, for comparisons between nodes.
//!
//! ```text
//!   kind 'm' machines, 'o' openings, 'p' partitions    as in a checkpoint (checkpoint.rs)
//!        'q' id: u64 partition (big endian)             Queue::canonical of the lease engine
//!        't' no id                                      u64 count, count times (u64 time, u8 kind, u64 queue, u64 offset), rising: timers
//! ```
//!
//! Two shards that applied the same frames have the same chunks, on any node, whatever other shards have applied, and whatever the node's role,
//! clock, checkpoints and restarts were. Not included, because they depend on more than the log:
//! - where files, segments and chunks of a checkpoint are kept, and how the index of times is cut into parts;
//! - when messages of a queue expire and how large they are, which a writer makes exact by reading (`Queue::canonical`);
//! - the effective settings of a topic, which follow from the layers of settings among the openings (`layers.rs`);
//! - tail and soft state (ARCHITECTURE.md).

use crate::broker::Broker;
use crate::broker::Inner;
use crate::checkpoint::{self, Changed};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::{Shard, ShardState};
use bytes::Bytes;
use polylogue_log::checkpoint::{ChunkKey, chunk_hash};
use polylogue_record::crc;
use polylogue_types::bin::BinWriter;
use polylogue_types::{Index, ShardId};
use std::collections::BTreeMap;

/// Applied state of one shard at one index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppliedState {
    /// The last applied frame.
    pub index: Index,
    /// Its chunks, see the module.
    pub chunks: BTreeMap<ChunkKey, Bytes>,
}

impl AppliedState {
    /// Returns a hash over all chunks.
    #[must_use]
    pub fn hash(&self) -> u64 {
        // A chunk is below 64 MiB.
        let hash = |(key, chunk): (&ChunkKey, &Bytes)| chunk_hash(key, chunk.len() as u32, crc::crc32c(chunk));
        self.chunks.iter().map(hash).fold(0, u64::wrapping_add)
    }

    /// Returns the keys of chunks that differ; empty for equal states.
    #[must_use]
    pub fn differences(&self, other: &AppliedState) -> Vec<ChunkKey> {
        let keys = self.chunks.keys().chain(other.chunks.keys().filter(|key| !self.chunks.contains_key(*key)));
        keys.filter(|key| self.chunks.get(*key) != other.chunks.get(*key)).cloned().collect()
    }
}

impl Broker {
    /// Returns a shard's whole applied state between two commits; `None` if the shard is not open. Encodes everything, and so does the shard's next
    /// checkpoint: for comparing nodes in tests. [`Broker::checkpoint_hash`] costs little.
    ///
    /// # Errors
    /// If a part of the timer index cannot be read.
    pub fn applied_state(&self, shard: ShardId) -> Result<Option<AppliedState>> {
        let shard = self.inner.shards.read().get(&shard).cloned();
        shard.map(|shard| self.inner.applied_state(&shard)).transpose()
    }

    /// Returns the last frame of a shard's last checkpoint, and a hash of the machines, openings and partitions in it: nodes with checkpoints of the
    /// same frames have the same hash. Queues and timers are not included, because their chunks hold what a node found by reading, which differs.
    /// `None` if the shard is not open or keeps no checkpoints. Costs some tens of nanoseconds per chunk.
    #[must_use]
    pub fn checkpoint_hash(&self, shard: ShardId) -> Option<(Index, u64)> {
        let shard = self.inner.shards.read().get(&shard).cloned()?;
        let (applied, hash) = shard.checkpoints.as_ref()?.hash(&checkpoint::is_canonical);
        Some((applied?, hash))
    }
}

impl Inner {
    fn applied_state(&self, shard: &Shard) -> Result<AppliedState> {
        let _between_commits = shard.applying.lock();
        let mut chunks = Changed::new();
        self.capture_machines(shard, true, &mut chunks);
        let mut state = shard.state.lock();
        checkpoint::capture_openings(&mut state, true, &mut chunks);
        checkpoint::capture_hosted(&mut state, true, &mut chunks);
        // The captured changes are not written.
        state.recapture = true;
        let canonical = chunks.into_iter().filter_map(|(key, chunk)| Some((key, chunk?)));
        let mut chunks: BTreeMap<ChunkKey, Bytes> = canonical.collect();
        for (id, host) in &state.queues.hosts {
            chunks.insert(checkpoint::queue_key(*id, &[]), host.lease.canonical());
        }
        chunks.insert(checkpoint::timers_key(&Bytes::new()), timers(shard, &state)?);
        Ok(AppliedState { index: state.applied, chunks })
    }
}

fn timers(shard: &Shard, state: &ShardState) -> Result<Bytes> {
    let failed = |why: String| Error::new(ErrorKind::Io, format!("the timer index of shard {}: {why}", shard.id));
    let mut read = |part: &Bytes| {
        let checkpoints = shard.checkpoints.as_ref().ok_or("there are no checkpoints")?;
        let chunk = checkpoints.read(&checkpoint::timers_key(part)).map_err(|e| e.to_string())?;
        chunk.ok_or_else(|| format!("part {part:?} is not in the checkpoint"))
    };
    let pending = state.queues.delays.pending_ids(&mut read).map_err(failed)?;
    let mut w = BinWriter::new();
    w.u64(pending.len() as u64);
    for id in pending {
        w.u64(id.deadline_ms).u8(id.kind.0).u64(id.key.object).u64(id.key.item);
    }
    Ok(Bytes::from(w.out))
}
