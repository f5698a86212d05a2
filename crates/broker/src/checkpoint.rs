//! Contents of a shard's checkpoint: chunks of the applied state of machines and partitions.
//!
//! ```text
//! kind   'm'  id: u8 machine (`MachineId::number`: 1 metadata, 2 Kafka groups, 3 RabbitMQ's metadata), the machine's own chunk id
//!        'p'  id: u64 partition (big endian, so that keys sort by it)
//!        'q'  id: u64 partition (big endian), the lease engine's own chunk id
//!        'o'  id: 16 bytes topic, or none for the level of the shard's records
//!        't'  id: the timers' own chunk id; parts of the index of times are not read at a start
//! value  the machine's or the lease engine's own bytes, or Partition::encode
//! ```

use crate::broker::Inner;
use crate::error::Result;
use crate::open::is_own;
use crate::partition::Partition;
use crate::shard::{Shard, ShardState};
use bytes::Bytes;
use polylogue_api::MachineId;
use polylogue_log::checkpoint::{CheckpointStore, ChunkKey};
use polylogue_timer::Timers;
use polylogue_types::bin::BinWriter;
use polylogue_types::{Index, Ordinal, PartitionId, TopicId};

const MACHINE: u8 = b'm';
const PARTITION: u8 = b'p';
const QUEUE: u8 = b'q';
const OPENING: u8 = b'o';
const TIMERS: u8 = b't';

/// A chunk as loaded.
#[derive(Debug)]
pub(crate) enum Chunk {
    Machine { machine: MachineId, id: Bytes, bytes: Bytes },
    Partition { partition: PartitionId, bytes: Bytes },
    Queue { partition: PartitionId, id: Bytes, bytes: Bytes },
    Opening { topic: Option<TopicId>, bytes: Bytes },
    Timers { id: Bytes, bytes: Bytes },
}

/// Changes to be written: keys, and values or `None` for removed chunks.
pub(crate) type Changed = Vec<(ChunkKey, Option<Bytes>)>;

/// A captured checkpoint, to be written when everything up to `applied` is durable.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) applied: Index,
    pub(crate) changed: Changed,
    /// All chunks in memory, not only changed ones.
    pub(crate) all: bool,
    /// Its number for the timers.
    pub(crate) timers: u64,
}

impl Captured {
    /// Writes it. `Damaged` if the store cannot read chunks that it would have to copy: then all chunks are needed. Chunks that only the store has
    /// are kept as far as they can be read; the others are repaired when they are needed.
    pub(crate) fn write(&self, checkpoints: &CheckpointStore) -> polylogue_log::Result<()> {
        let chunks = self.changed.iter().cloned();
        let written = match self.all {
            true => checkpoints.replace(self.applied, chunks, &is_lazy),
            false => checkpoints.write(self.applied, chunks),
        };
        written.map(|_| ())
    }
}

/// Returns the machine of a chunk, and the chunk's id there; `None` for other chunks.
pub(crate) fn machine_chunk(key: &ChunkKey) -> Option<(MachineId, Bytes)> {
    let number = key.id.first().copied().filter(|_| key.kind == MACHINE)?;
    Some((MachineId::from_number(number), key.id.slice(1..)))
}

/// Returns the key of a chunk of the timers.
pub(crate) fn timers_key(id: &Bytes) -> ChunkKey {
    ChunkKey { kind: TIMERS, id: id.clone() }
}

/// Returns whether a chunk is read only when it is needed.
fn is_lazy(key: &ChunkKey) -> bool {
    key.kind == TIMERS && Timers::is_lazy(&key.id)
}

fn partition_key(id: PartitionId) -> ChunkKey {
    ChunkKey { kind: PARTITION, id: Bytes::copy_from_slice(&id.0.to_be_bytes()) }
}

/// Reads the chunks of the newest checkpoint that a start needs. Chunks of unknown kinds belong to machines that this version does not have, and are
/// skipped.
pub(crate) fn load(checkpoints: &CheckpointStore) -> Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    checkpoints.load_some(&|key| !is_lazy(key), &mut |key: ChunkKey, bytes: Bytes| {
        match key.kind {
            MACHINE => {
                if let Some((machine, id)) = machine_chunk(&key) {
                    chunks.push(Chunk::Machine { machine, id, bytes });
                }
            }
            PARTITION => {
                if let Ok(id) = <[u8; 8]>::try_from(&key.id[..]) {
                    chunks.push(Chunk::Partition { partition: PartitionId(u64::from_be_bytes(id)), bytes });
                }
            }
            QUEUE => {
                if let Some(id) = key.id.first_chunk::<8>() {
                    let partition = PartitionId(u64::from_be_bytes(*id));
                    chunks.push(Chunk::Queue { partition, id: key.id.slice(8..), bytes });
                }
            }
            OPENING => {
                let topic = <[u8; 16]>::try_from(&key.id[..]).ok().map(TopicId);
                chunks.push(Chunk::Opening { topic, bytes });
            }
            TIMERS => chunks.push(Chunk::Timers { id: key.id, bytes }),
            _ => {}
        }
        Ok(())
    })?;
    Ok(chunks)
}

impl Inner {
    /// Captures the changes since the last checkpoint, or `all` state, between two commits.
    pub(crate) fn capture(&self, shard: &Shard, all: bool) -> Captured {
        let _between_commits = shard.applying.lock();
        let mut changed = Changed::new();
        let all = all | std::mem::take(&mut shard.state.lock().recapture);
        self.capture_machines(shard, all, &mut changed);
        let mut state = shard.state.lock();
        let timers = capture_partitions(&mut state, all, &mut changed);
        state.applied_bytes = 0;
        Captured { applied: state.applied, changed, all, timers }
    }

    /// Captures the chunks of the machines of a shard.
    pub(crate) fn capture_machines(&self, shard: &Shard, all: bool, changed: &mut Changed) {
        self.hosted(shard, |machines| {
            for id in machines.ids() {
                let Some(hosted) = machines.get_mut(id) else { continue };
                if all {
                    hosted.change_all_chunks();
                }
                for (chunk, bytes) in hosted.take_changed_chunks() {
                    let mut key = vec![id.number()];
                    key.extend_from_slice(&chunk);
                    changed.push((ChunkKey { kind: MACHINE, id: Bytes::from(key) }, bytes));
                }
            }
        });
    }

    /// Writes a captured checkpoint and trims what it covers. Returns `false` if it must wait for a flush.
    pub(crate) fn write_checkpoint(&self, shard: &Shard, captured: &Captured) -> Result<bool> {
        let (Some(checkpoints), Some(journal)) = (&shard.checkpoints, shard.log.local()) else { return Ok(true) };
        if shard.log.view().durable < Some(captured.applied) {
            return Ok(false);
        }
        captured.write(checkpoints)?;
        shard.state.lock().queues.delays.saved(captured.timers);
        // Records of machines and of the broker are never read again once their effect is in a checkpoint.
        let own: Vec<_> = {
            let state = shard.state.lock();
            state.partitions.values().filter(|p| is_own(p.id)).map(|p| (p.id, p.high_watermark)).collect()
        };
        for (id, upto) in own {
            shard.store.trim(id, upto);
        }
        shard.store.release_journal(journal)?;
        Ok(true)
    }
}

/// Returns the key of a chunk of a queue.
pub(crate) fn queue_key(id: PartitionId, chunk: &[u8]) -> ChunkKey {
    let mut key = id.0.to_be_bytes().to_vec();
    key.extend_from_slice(chunk);
    ChunkKey { kind: QUEUE, id: Bytes::from(key) }
}

/// Returns whether a chunk is determined by the log alone ([`crate::applied`]).
pub(crate) fn is_canonical(key: &ChunkKey) -> bool {
    [MACHINE, PARTITION, OPENING].contains(&key.kind)
}

pub(crate) fn capture_openings(state: &mut ShardState, all: bool, changed: &mut Changed) {
    for (topic, bytes) in state.openings.take_changed_chunks(all) {
        let id = topic.map_or_else(Bytes::new, |topic| Bytes::copy_from_slice(&topic.0));
        changed.push((ChunkKey { kind: OPENING, id }, bytes));
    }
}

/// Captures the chunks of partitions.
pub(crate) fn capture_hosted(state: &mut ShardState, all: bool, changed: &mut Changed) {
    let by_records = state.openings.level > 0;
    // A partition that is not open has no applied state, and neither has a machine's without records. So the chunks are the same whether changed ones
    // or all are written.
    let has_state = |p: &Partition| !is_own(p.id) || p.applied_ordinal > Ordinal(0);
    let wanted = state.partitions.values_mut().filter(|p| p.dirty || all && has_state(p));
    let wanted = wanted.filter(|p| p.opened || !by_records);
    for partition in wanted {
        let mut w = BinWriter::new();
        partition.encode(&mut w);
        partition.dirty = false;
        changed.push((partition_key(partition.id), Some(Bytes::from(w.out))));
    }
    for id in state.removed.drain(..) {
        changed.push((partition_key(id), None));
    }
}

/// Returns the number of the checkpoint for the timers.
fn capture_partitions(state: &mut ShardState, all: bool, changed: &mut Changed) -> u64 {
    capture_openings(state, all, changed);
    capture_hosted(state, all, changed);
    let queues = state.queues.take_changed_chunks(all).into_iter();
    changed.extend(queues.map(|(id, chunk, bytes)| (queue_key(id, &chunk), bytes)));
    let (timers, chunks) = state.queues.delays.take_changed_chunks(all);
    changed.extend(chunks.into_iter().map(|(id, bytes)| (timers_key(&id), bytes)));
    // In an order that depends on content only: equal states give equal files.
    changed.sort_by(|a, b| a.0.cmp(&b.0));
    timers
}
