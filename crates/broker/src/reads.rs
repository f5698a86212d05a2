//! Reading committed entries and finding offsets. What is in memory or in verified parts of files is answered on the
//! caller's thread; what needs the disk goes to the readers.

use crate::broker::{Broker, Inner};
use crate::open::is_own;
use crate::partition::Partition;
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

/// Parts that are looked at under one hold of a shard's state: enough to make the lock cheap, and few enough that those who
/// write do not wait for a reader of ten thousand partitions.
const PARTS_PER_LOCK_MAX: usize = 256;

/// What a read may know of a partition before it asks the store.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    log_start: Offset,
    high_watermark: Offset,
    /// The offset after the last one given out. A reader may be ahead of the high watermark: what is committed can be read a
    /// moment before the state says so.
    end: Offset,
}

impl Bounds {
    fn of(shard: &Shard, partition: &Partition) -> Bounds {
        let Partition { high_watermark, next_offset, mut log_start, .. } = *partition;
        if shard.class == Durability::Memory
            && let Some(kept) = shard.store.partition_stats(partition.id)
        {
            // What fell out of the ring of frames is gone, whatever the log start says until its record is there.
            log_start = log_start.max(kept.first.min(high_watermark));
        }
        Bounds { log_start, high_watermark, end: next_offset }
    }

    /// What a read from `offset` gives as long as nothing is read.
    fn look(self, offset: Offset) -> Result<ReadData, ReadError> {
        let Bounds { log_start, high_watermark, end } = self;
        if offset < log_start || offset > end {
            return Err(ReadError::OutOfRange { log_start, high_watermark });
        }
        Ok(ReadData { chunks: Vec::new(), high_watermark, log_start })
    }
}

/// A read in work. Parts are first looked at, many under one lock, which is all there is to do for those without news; of
/// the others, one after the other, the store is asked.
///
/// ```text
///   parts    | done ... | looked at ...    | not looked at ... |
///            0          next               results.len()       parts.len()
/// ```
struct Reading {
    request: ReadRequest,
    results: Vec<Result<ReadData, ReadError>>,
    next: usize,
    bytes_left: usize,
    found_any: bool,
}

/// What the store is asked for.
struct News {
    shard: Arc<Shard>,
    part: ReadPart,
    bytes_max: usize,
    at_least_one: bool,
}

impl News {
    fn read(&self) -> polylogue_log::Result<Lookup<ReadResult>> {
        self.shard.store.read(self.part.partition, self.part.offset, self.bytes_max, self.at_least_one)
    }
}

impl Reading {
    fn new(request: ReadRequest) -> Reading {
        let results = Vec::with_capacity(request.parts.len());
        Reading { bytes_left: request.bytes_max as usize, results, next: 0, found_any: false, request }
    }

    /// The next of the parts looked at for which there is something to ask the store.
    fn next_with_news(&mut self) -> Option<(ReadPart, usize, bool)> {
        let at_least_one = self.request.at_least_one && !self.found_any;
        let parts = self.request.parts.get(self.next..).unwrap_or_default();
        let looked = self.results.get(self.next..).unwrap_or_default();
        for (part, result) in parts.iter().zip(looked) {
            let bytes_max = (part.bytes_max as usize).min(self.bytes_left);
            let news = result.as_ref().is_ok_and(|data| part.offset < data.high_watermark);
            if news && (bytes_max > 0 || at_least_one) {
                return Some((*part, bytes_max, at_least_one));
            }
            self.next += 1;
        }
        None
    }

    /// Takes what the store has answered for the next part.
    fn take(&mut self, answer: polylogue_log::Result<ReadResult>) {
        if let Some(result) = self.results.get_mut(self.next)
            && let Ok(data) = result
        {
            match answer {
                Ok(read) => {
                    self.bytes_left = self.bytes_left.saturating_sub(usize::try_from(read.bytes).unwrap_or(usize::MAX));
                    self.found_any |= read.bytes > 0;
                    // The store may have applied more than the state showed; what is returned is committed in any case.
                    data.high_watermark = data.high_watermark.max(read.next);
                    data.chunks = read.chunks;
                }
                Err(e) => *result = Err(read_error(e.kind, data.log_start, data.high_watermark)),
            }
        }
        self.next += 1;
    }

    /// The partition of the next part is not there any more.
    fn gone(&mut self) {
        if let Some(result) = self.results.get_mut(self.next) {
            *result = Err(ReadError::UnknownPartition);
        }
        self.next += 1;
    }

    /// What was looked at before a wait for the disk is old.
    fn forget_looks(&mut self) {
        self.results.truncate(self.next);
    }
}

fn read_error(kind: LogErrorKind, log_start: Offset, high_watermark: Offset) -> ReadError {
    match kind {
        // Trimmed between the look at the bounds and the read.
        LogErrorKind::OutOfRange => ReadError::OutOfRange { log_start, high_watermark },
        _ => ReadError::Storage,
    }
}

impl Broker {
    /// Has `job` run by a thread that may wait for the disk. Never blocks. Whether it will be run: it is dropped when too many reads
    /// wait already or the broker ends, which may also happen later.
    pub fn run_reader(&self, job: Box<dyn FnOnce() + Send>) -> bool {
        self.inner.readers.submit(job).is_ok()
    }

    /// Reads and other jobs that wait for a thread that may wait for the disk.
    #[must_use]
    pub fn reads_waiting(&self) -> usize {
        self.inner.readers.waiting()
    }
}

impl Inner {
    pub(crate) fn partition_shard(&self, partition: PartitionId) -> Option<Arc<Shard>> {
        self.routes.read().get(&partition).cloned()
    }

    fn bounds(shard: &Shard, partition: PartitionId) -> Option<Bounds> {
        Some(Bounds::of(shard, shard.state.lock().partitions.get(&partition)?))
    }

    pub(crate) fn read(inner: &Arc<Inner>, origin: Origin, request: ReadRequest) {
        let mut reading = Reading::new(request);
        while let Some(news) = inner.next_news(&mut reading) {
            match news.read() {
                Ok(Lookup::Ready(read)) => reading.take(Ok(read)),
                Err(e) => reading.take(Err(e)),
                Ok(Lookup::NeedsIo(plan)) => {
                    let later = inner.clone();
                    let job = Box::new(move || {
                        reading.take(plan.run());
                        reading.forget_looks();
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
        while let Some(news) = self.next_news(&mut reading) {
            match news.read() {
                Ok(Lookup::NeedsIo(plan)) => {
                    reading.take(plan.run());
                    reading.forget_looks();
                }
                Ok(Lookup::Ready(read)) => reading.take(Ok(read)),
                Err(e) => reading.take(Err(e)),
            }
        }
        origin.reply(Reply::Read(reading.results));
    }

    /// Goes on to the next part of which the store has to be asked. `None` when all parts are done.
    fn next_news(&self, reading: &mut Reading) -> Option<News> {
        loop {
            while let Some((part, bytes_max, at_least_one)) = reading.next_with_news() {
                match self.partition_shard(part.partition) {
                    Some(shard) => return Some(News { shard, part, bytes_max, at_least_one }),
                    // Deleted since the look at it.
                    None => reading.gone(),
                }
            }
            if reading.results.len() == reading.request.parts.len() {
                return None;
            }
            self.look(reading);
        }
    }

    /// Looks at the next parts, at least at one.
    fn look(&self, reading: &mut Reading) {
        let Reading { request, results, .. } = reading;
        let mut parts = request.parts.iter().skip(results.len()).take(PARTS_PER_LOCK_MAX).peekable();
        while let Some(first) = parts.next() {
            let Some(shard) = self.partition_shard(first.partition) else {
                results.push(Err(ReadError::UnknownPartition));
                continue;
            };
            let state = shard.state.lock();
            let look = |part: &ReadPart| {
                let partition = state.partitions.get(&part.partition).filter(|partition| !is_own(partition.id))?;
                Some(Bounds::of(&shard, partition).look(part.offset))
            };
            results.push(look(first).unwrap_or(Err(ReadError::UnknownPartition)));
            // What a shard holds for clients is routed to it: the next ones are found here, as long as they are in this shard,
            // without asking for the route of each.
            while let Some(result) = parts.peek().and_then(|part| look(part)) {
                results.push(result);
                parts.next();
            }
        }
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
        let failed = |e: polylogue_log::Error| read_error(e.kind, bounds.log_start, bounds.high_watermark);
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
