//! Trimming partitions for clients, and queries of partitions.

use crate::broker::Inner;
use crate::pending::PendingTrim;
use crate::record::{BROKER_PARTITION, BrokerRecord};
use crate::shard::{Parked, Shard, ShardState};
use crate::sink::Origin;
use polylogue_api::{
    MetadataLog, PRODUCERS_PER_REPLY_MAX, PartitionSize, PartitionSizes, ProducerInfo, ProducersError, Reply,
    TrimError, TrimPartition, Unavailable,
};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Free bytes of the data directory's file system at the last check.
#[derive(Debug)]
pub(crate) struct FreeBytes(AtomicU64);

impl Default for FreeBytes {
    fn default() -> FreeBytes {
        FreeBytes(AtomicU64::new(u64::MAX))
    }
}

impl FreeBytes {
    /// Stores the free bytes; `None` if the file system does not report them.
    pub(crate) fn set(&self, free: Option<u64>) {
        self.0.store(free.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|free| *free != u64::MAX)
    }
}

/// One shard's part of a trim: requested trims with their positions in the request.
type ShardPart = (Arc<Shard>, Vec<(u32, TrimPartition)>);

impl Inner {
    /// Moves log starts. Replied to when the records are committed.
    pub(crate) fn trim(&self, origin: Origin, trims: Vec<TrimPartition>) {
        let mut results = vec![Err(TrimError::UnknownPartition); trims.len()];
        if self.stopping.load(Ordering::Relaxed) {
            results.fill(Err(TrimError::Unavailable(Unavailable::Stopping)));
            return origin.reply(Reply::TrimPartitions(results));
        }
        let parts = self.trims_by_shard(trims);
        // All states stay locked until the parts are parked, so that no part completes before the number of parts is known. The shards are always
        // locked in the same order.
        let shards: Vec<_> = parts.iter().map(|(shard, _)| shard.clone()).collect();
        let mut states: Vec<_> = shards.iter().map(|shard| shard.state.lock()).collect();
        let mut waits = Vec::new();
        for ((at, (shard, trims)), state) in parts.into_iter().enumerate().zip(&mut states) {
            let mut waiting = None;
            for (position, trim) in trims {
                let Some(result) = results.get_mut(position as usize) else { continue };
                match trim_one(&shard, state, trim) {
                    Ok((first, None)) => *result = Ok(first),
                    Ok((first, Some(ticket))) => {
                        *result = Ok(first);
                        let (waits_for, positions) = waiting.get_or_insert_with(|| (ticket, Vec::new()));
                        *waits_for = ticket;
                        positions.push(position);
                    }
                    Err(why) => *result = Err(why),
                }
            }
            waits.extend(waiting.map(|(ticket, positions)| (at, ticket, positions)));
        }
        if waits.is_empty() {
            drop(states);
            return origin.reply(Reply::TrimPartitions(results));
        }
        let pending = Arc::new(PendingTrim::new(origin, results, waits.len()));
        for (at, ticket, positions) in waits {
            if let Some(state) = states.get_mut(at) {
                Shard::park(state, ticket, Parked::Trim(pending.clone(), positions));
            }
        }
    }

    pub(crate) fn metadata_log(&self) -> Result<MetadataLog, Unavailable> {
        let shard = self.shard(self.meta_shard).map_err(|_| Unavailable::Stopping)?;
        let (term, high_watermark) = {
            let state = shard.state.lock();
            (state.term, state.applied.next())
        };
        // Read last: the end is never below what was applied.
        let end = shard.log.view().tail.map_or(high_watermark, |tail| tail.next().max(high_watermark));
        Ok(MetadataLog { term, high_watermark, end, directory: self.data.identity.directory_id })
    }

    fn trims_by_shard(&self, trims: Vec<TrimPartition>) -> Vec<ShardPart> {
        let mut parts: Vec<ShardPart> = Vec::new();
        let routes = self.routes.read();
        for (position, trim) in (0u32..).zip(trims) {
            let Some(shard) = routes.get(&trim.partition) else { continue };
            match parts.iter_mut().find(|(other, _)| other.id == shard.id) {
                Some((_, part)) => part.push((position, trim)),
                None => parts.push((shard.clone(), vec![(position, trim)])),
            }
        }
        drop(routes);
        parts.sort_by_key(|(shard, _)| shard.id);
        parts
    }

    pub(crate) fn partition_sizes(&self, ids: &[PartitionId]) -> PartitionSizes {
        let size = |id: &PartitionId| {
            let shard = self.routes.read().get(id).cloned()?;
            let bytes = shard.store.partition_stats(*id).map_or(0, |stats| stats.bytes);
            let state = shard.state.lock();
            let p = state.partitions.get(id)?;
            Some(PartitionSize { bytes, log_start: p.log_start, high_watermark: p.high_watermark })
        };
        let path = std::path::absolute(&self.data.path).unwrap_or_else(|_| self.data.path.clone());
        PartitionSizes {
            partitions: ids.iter().map(size).collect(),
            directory: path.display().to_string(),
            free_bytes: self.free_bytes.get(),
        }
    }

    pub(crate) fn producers(&self, ids: &[PartitionId]) -> Vec<Result<Vec<ProducerInfo>, ProducersError>> {
        let oldest_ms = self.oldest_producer_ms(self.env.clock.now_ms());
        let mut left = PRODUCERS_PER_REPLY_MAX;
        let mut of = |id: &PartitionId| {
            let shard = self.routes.read().get(id).cloned().ok_or(ProducersError::UnknownPartition)?;
            let state = shard.state.lock();
            let p = state.partitions.get(id).ok_or(ProducersError::UnknownPartition)?;
            left = left.checked_sub(p.producers.len()).ok_or(ProducersError::TooMany)?;
            Ok(p.producers.active(p.high_watermark, oldest_ms))
        };
        ids.iter().map(&mut of).collect()
    }
}

/// Returns the resulting log start, and the ticket of its record if a new one is needed.
fn trim_one(shard: &Shard, state: &mut ShardState, trim: TrimPartition) -> Result<(Offset, Option<u64>), TrimError> {
    let TrimPartition { partition, first } = trim;
    let p = state.partitions.get(&partition).ok_or(TrimError::UnknownPartition)?;
    let (log_start, high_watermark) = (p.log_start, p.high_watermark);
    let offset = first.unwrap_or(high_watermark);
    if offset > high_watermark {
        return Err(TrimError::OutOfRange { high_watermark });
    }
    if offset <= log_start {
        return Ok((log_start, None));
    }
    let record = BrokerRecord::LogStart { partition, offset };
    let ticket = shard.propose_record(state, BROKER_PARTITION, record.encode().into());
    ticket.map(|ticket| (offset, Some(ticket))).map_err(TrimError::Unavailable)
}
