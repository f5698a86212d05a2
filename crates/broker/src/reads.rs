//! Reading committed entries and finding offsets. What is in memory or in verified parts of files is answered on the
//! caller's thread; what needs the disk goes to the readers.

use crate::broker::Inner;
use crate::shard::Shard;
use crate::sink::Origin;
use bytes::Bytes;
use polylogue_api::{
    Durability, FindOffset, FoundOffset, OffsetSpec, ReadData, ReadError, ReadPart, ReadRequest, Reply,
};
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::store::{Lookup, ReadResult};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;

/// What a read may know of a partition before it asks the store.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    log_start: Offset,
    high_watermark: Offset,
    /// The offset after the last one given out. A reader may be ahead of the high watermark: what is committed can be read a
    /// moment before the state says so.
    end: Offset,
}

/// A read in work: the parts before `results.len()` are done.
struct Reading {
    request: ReadRequest,
    results: Vec<Result<ReadData, ReadError>>,
    bytes_left: usize,
    found_any: bool,
}

impl Reading {
    fn new(request: ReadRequest) -> Reading {
        let results = Vec::with_capacity(request.parts.len());
        Reading { bytes_left: request.bytes_max as usize, results, found_any: false, request }
    }

    fn next(&self) -> Option<ReadPart> {
        self.request.parts.get(self.results.len()).copied()
    }

    fn done(&mut self, bounds: Bounds, result: polylogue_log::Result<ReadResult>) {
        let result = match result {
            Ok(read) => {
                self.bytes_left = self.bytes_left.saturating_sub(usize::try_from(read.bytes).unwrap_or(usize::MAX));
                self.found_any |= read.bytes > 0;
                // The store may have applied more than the state showed; what is returned is committed in any case.
                let high_watermark = bounds.high_watermark.max(read.next);
                Ok(ReadData { chunks: read.chunks, high_watermark, log_start: bounds.log_start })
            }
            Err(e) => Err(read_error(e.kind, bounds)),
        };
        self.results.push(result);
    }
}

fn nothing(at: Offset) -> ReadResult {
    ReadResult { chunks: Vec::new(), start: at, next: at, bytes: 0, more: false }
}

fn read_error(kind: LogErrorKind, bounds: Bounds) -> ReadError {
    match kind {
        // Trimmed between the look at the bounds and the read.
        LogErrorKind::OutOfRange => {
            ReadError::OutOfRange { log_start: bounds.log_start, high_watermark: bounds.high_watermark }
        }
        _ => ReadError::Storage,
    }
}

impl Inner {
    fn partition_shard(&self, partition: PartitionId) -> Option<Arc<Shard>> {
        self.routes.read().get(&partition).cloned()
    }

    fn bounds(shard: &Shard, partition: PartitionId) -> Option<Bounds> {
        let state = shard.state.lock();
        let p = state.partitions.get(&partition)?;
        // What fell out of the ring of frames is gone, whatever the log start says until its record is there.
        let kept = (shard.class == Durability::Memory).then(|| shard.store.partition_stats(partition)).flatten();
        let log_start = kept.map_or(p.log_start, |kept| p.log_start.max(kept.first.min(p.high_watermark)));
        Some(Bounds { log_start, high_watermark: p.high_watermark, end: p.next_offset })
    }

    pub(crate) fn read(inner: &Arc<Inner>, origin: Origin, request: ReadRequest) {
        let mut reading = Reading::new(request);
        while let Some(part) = reading.next() {
            match inner.start_part(&reading, part) {
                Err(error) => reading.results.push(Err(error)),
                Ok((bounds, None)) => reading.done(bounds, Ok(nothing(part.offset))),
                Ok((bounds, Some(Ok(Lookup::Ready(read))))) => reading.done(bounds, Ok(read)),
                Ok((bounds, Some(Err(e)))) => reading.done(bounds, Err(e)),
                Ok((bounds, Some(Ok(Lookup::NeedsIo(plan))))) => {
                    let later = inner.clone();
                    let job = Box::new(move || {
                        let result = plan.run();
                        reading.done(bounds, result);
                        later.finish_reading(reading, origin);
                    });
                    if let Err(job) = inner.readers.submit(job) {
                        // Too many wait already: this caller pays by itself rather than be refused.
                        job();
                    }
                    return;
                }
            }
        }
        origin.reply(Reply::Read(reading.results));
    }

    /// The rest of a read that had to go to the disk, on a reader's thread.
    fn finish_reading(&self, mut reading: Reading, origin: Origin) {
        while let Some(part) = reading.next() {
            match self.start_part(&reading, part) {
                Err(error) => reading.results.push(Err(error)),
                Ok((bounds, None)) => reading.done(bounds, Ok(nothing(part.offset))),
                Ok((bounds, Some(lookup))) => reading.done(bounds, lookup.and_then(Lookup::wait)),
            }
        }
        origin.reply(Reply::Read(reading.results));
    }

    /// Begins one part; `None` when there is nothing to ask the store for.
    #[allow(clippy::type_complexity)]
    fn start_part(
        &self,
        reading: &Reading,
        part: ReadPart,
    ) -> Result<(Bounds, Option<polylogue_log::Result<Lookup<ReadResult>>>), ReadError> {
        let shard = self.partition_shard(part.partition).ok_or(ReadError::UnknownPartition)?;
        let bounds = Inner::bounds(&shard, part.partition).ok_or(ReadError::UnknownPartition)?;
        let Bounds { log_start, high_watermark, end } = bounds;
        if part.offset < log_start || part.offset > end {
            return Err(ReadError::OutOfRange { log_start, high_watermark });
        }
        let at_least_one = reading.request.at_least_one && !reading.found_any;
        let bytes_max = (part.bytes_max as usize).min(reading.bytes_left);
        if part.offset >= high_watermark || (bytes_max == 0 && !at_least_one) {
            return Ok((bounds, None));
        }
        Ok((bounds, Some(shard.store.read(part.partition, part.offset, bytes_max, at_least_one))))
    }

    pub(crate) fn find_offsets(inner: &Arc<Inner>, origin: Origin, queries: Vec<FindOffset>) {
        let by_position = |q: &FindOffset| matches!(q.at, OffsetSpec::Earliest | OffsetSpec::Latest);
        if queries.iter().all(by_position) {
            let found = queries.iter().map(|q| inner.find_offset(*q)).collect();
            return origin.reply(Reply::FindOffsets(found));
        }
        // By time it may take the disk; finding that out first would cost as much as going there.
        let later = inner.clone();
        let job = Box::new(move || {
            let found = queries.iter().map(|q| later.find_offset(*q)).collect();
            origin.reply(Reply::FindOffsets(found));
        });
        if let Err(job) = inner.readers.submit(job) {
            job();
        }
    }

    fn find_offset(&self, query: FindOffset) -> Result<FoundOffset, ReadError> {
        let shard = self.partition_shard(query.partition).ok_or(ReadError::UnknownPartition)?;
        let bounds = Inner::bounds(&shard, query.partition).ok_or(ReadError::UnknownPartition)?;
        let failed = |e: polylogue_log::Error| read_error(e.kind, bounds);
        let location = match query.at {
            OffsetSpec::Earliest => return Ok(Inner::at_position(&shard, query.partition, bounds.log_start)),
            OffsetSpec::Latest => return Ok(Inner::at_position(&shard, query.partition, bounds.high_watermark)),
            OffsetSpec::AtTimestamp(time) => {
                shard.store.find_by_time(query.partition, time).and_then(Lookup::wait).map_err(failed)?
            }
            OffsetSpec::MaxTimestamp => {
                shard.store.max_timestamp_entry(query.partition).and_then(Lookup::wait).map_err(failed)?
            }
        };
        let Some(location) = location else {
            return Ok(FoundOffset { offset: None, leader_epoch: -1, entry: None });
        };
        let entry: Bytes =
            shard.store.entry_at(query.partition, location.base).and_then(Lookup::wait).map_err(failed)?.bytes;
        let mut found = Inner::at_position(&shard, query.partition, location.base);
        found.entry = Some(entry);
        Ok(found)
    }

    fn at_position(shard: &Shard, partition: PartitionId, offset: Offset) -> FoundOffset {
        let state = shard.state.lock();
        let leader_epoch = state.partitions.get(&partition).map_or(-1, |p| p.epoch_at(offset));
        FoundOffset { offset: Some(offset), leader_epoch, entry: None }
    }
}
