//! Reads committed entries and finds offsets. Cached data and verified parts of files are read on the caller's thread; disk reads run on reader
//! threads.

use crate::broker::{Broker, Inner};
use crate::open::is_own;
use crate::partition::Partition;
use crate::queues::view;
use crate::shard::Shard;
use crate::sink::Origin;
use bytes::Bytes;
use polylogue_api::{
    Durability, FindOffset, FoundOffset, LogView, OffsetSpec, ReadData, ReadError, ReadPart, ReadRequest, Reply,
};
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::store::{ColdRuns, IoPlan, Lookup, ReadResult, ReadWanted};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;

/// Parts that are checked under one hold of a shard's lock: enough to amortize the lock, few enough that writers do not wait for a reader of ten
/// thousand partitions.
const PARTS_PER_LOCK_MAX: usize = 256;

/// A partition's bounds, known before the store is read.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    log_start: Offset,
    high_watermark: Offset,
    /// The next offset to be assigned. A reader may be ahead of the high watermark: an entry can be read shortly before the applied state has it.
    end: Offset,
}

impl Bounds {
    fn of(shard: &Shard, partition: &Partition) -> Bounds {
        let Partition { high_watermark, next_offset, mut log_start, .. } = *partition;
        if shard.class == Durability::Memory
            && let Some(kept) = shard.store.partition_stats(partition.id)
        {
            // Entries that dropped out of the ring of frames are gone, even before the record of the log start is applied.
            log_start = log_start.max(kept.first.min(high_watermark));
        }
        Bounds { log_start, high_watermark, end: next_offset }
    }

    /// Returns the result of a read from `offset` for which the store is not needed.
    fn look(self, offset: Offset) -> Result<ReadData, ReadError> {
        let Bounds { log_start, high_watermark, end } = self;
        if offset < log_start || offset > end {
            return Err(self.out_of_range());
        }
        Ok(ReadData { chunks: Vec::new(), high_watermark, log_start })
    }

    fn out_of_range(self) -> ReadError {
        ReadError::OutOfRange { log_start: self.log_start, high_watermark: self.high_watermark }
    }
}

/// A read in progress. First the bounds of many parts are checked under one lock, which completes the parts without new entries. The store is then
/// read for the other parts, one by one.
///
/// ```text
///   parts    | done ... | looked at ...    | not looked at ... |
///            0          next               results.len()       parts.len()
/// ```
struct Reading {
    request: ReadRequest,
    results: Vec<Result<ReadData, ReadError>>,
    /// Indexes of parts with new entries that are queues shown through a view. Rising.
    queues: Vec<usize>,
    next: usize,
    bytes_left: usize,
    found_any: bool,
    /// Where the next fetch continues in the parts that have more data in journal files than in memory.
    cold: Vec<(PartitionId, Offset, u32)>,
}

/// A read of the store.
struct PendingRead {
    shard: Arc<Shard>,
    part: ReadPart,
    bytes_max: usize,
    at_least_one: bool,
    /// The end of committed entries, for a queue that is shown through a view.
    queue_upto: Option<Offset>,
}

/// The shards whose journals this read has waited for, and how it uses cold runs of each.
#[derive(Default)]
struct Windows(Vec<(Arc<Shard>, ColdRuns)>);

impl Windows {
    fn of(&self, shard: &Arc<Shard>) -> Option<ColdRuns> {
        self.0.iter().find(|(known, _)| Arc::ptr_eq(known, shard)).map(|(_, cold)| *cold)
    }
}

/// The store's reply.
enum Answer {
    Ready(polylogue_log::Result<ReadResult>),
    /// The read must run on a thread that may block.
    Later(Task),
}

/// Work for a thread that may block.
enum Task {
    Store(Arc<Shard>, IoPlan<ReadResult>),
    Queue(PendingRead, Offset, Arc<dyn LogView>),
}

impl PendingRead {
    fn read(self, view: Option<&Arc<dyn LogView>>, cold: ColdRuns) -> Answer {
        if let Some((upto, view)) = self.queue_upto.zip(view) {
            return Answer::Later(Task::Queue(self, upto, view.clone()));
        }
        let PendingRead { shard, part, bytes_max, at_least_one, .. } = self;
        match shard.store.read_with(part.partition, part.offset, bytes_max, at_least_one, cold) {
            Ok(Lookup::Ready(read)) => Answer::Ready(Ok(read)),
            Ok(Lookup::NeedsIo(plan)) => Answer::Later(Task::Store(shard, plan)),
            Err(e) => Answer::Ready(Err(e)),
        }
    }
}

impl Task {
    fn run(self) -> polylogue_log::Result<ReadResult> {
        match self {
            Task::Store(_, plan) => plan.run(),
            Task::Queue(PendingRead { shard, part, bytes_max, at_least_one, .. }, upto, view) => {
                view::read(&shard.store, view.as_ref(), part, upto, bytes_max, at_least_one)
            }
        }
    }
}

impl Reading {
    fn new(request: ReadRequest) -> Reading {
        let results = Vec::with_capacity(request.parts.len());
        let queues = Vec::new();
        let bytes_left = request.bytes_max as usize;
        Reading { bytes_left, results, queues, next: 0, found_any: false, cold: Vec::new(), request }
    }

    /// Returns the next checked part for which the store must be read.
    fn next_readable(&mut self) -> Option<(ReadPart, usize, bool)> {
        let at_least_one = self.request.at_least_one && !self.found_any;
        let parts = self.request.parts.get(self.next..).unwrap_or_default();
        let looked = self.results.get(self.next..).unwrap_or_default();
        for (part, result) in parts.iter().zip(looked) {
            let bytes_max = (part.bytes_max as usize).min(self.bytes_left);
            let is_readable = result.as_ref().is_ok_and(|data| part.offset < data.high_watermark);
            if is_readable && (bytes_max > 0 || at_least_one) {
                return Some((*part, bytes_max, at_least_one));
            }
            self.next += 1;
        }
        None
    }

    /// Records the store's reply for the next part.
    fn take(&mut self, answer: polylogue_log::Result<ReadResult>) {
        if let Some(result) = self.results.get_mut(self.next)
            && let Ok(data) = result
        {
            match answer {
                Ok(read) => {
                    self.bytes_left = self.bytes_left.saturating_sub(usize::try_from(read.bytes).unwrap_or(usize::MAX));
                    self.found_any |= read.bytes > 0;
                    if let Some(part) = self.request.parts.get(self.next).filter(|_| read.cold) {
                        self.cold.push((part.partition, read.next, part.bytes_max));
                    }
                    // The store may be ahead of the applied state; everything returned is committed.
                    data.high_watermark = data.high_watermark.max(read.next);
                    data.chunks = read.chunks;
                }
                Err(e) => *result = Err(read_error(e.kind, data.log_start, data.high_watermark)),
            }
        }
        self.next += 1;
    }

    /// Records that the partition of the next part does not exist any more.
    fn gone(&mut self) {
        if let Some(result) = self.results.get_mut(self.next) {
            *result = Err(ReadError::UnknownPartition);
        }
        self.next += 1;
    }

    /// Drops checks made before a wait for the disk.
    fn forget_looks(&mut self) {
        self.results.truncate(self.next);
        let next = self.next;
        self.queues.retain(|at| *at < next);
    }

    /// Returns the end of committed entries if the next part is a queue that is shown through a view.
    fn queue_upto(&self) -> Option<Offset> {
        self.queues.binary_search(&self.next).ok()?;
        self.results.get(self.next)?.as_ref().ok().map(|data| data.high_watermark)
    }
}

fn read_error(kind: LogErrorKind, log_start: Offset, high_watermark: Offset) -> ReadError {
    match kind {
        // Trimmed between the check of the bounds and the read.
        LogErrorKind::OutOfRange => ReadError::OutOfRange { log_start, high_watermark },
        _ => ReadError::Storage,
    }
}

impl Broker {
    /// Queues `job` for a thread that may block on the disk. Never blocks. Returns `false` if it was refused; it may also be dropped later, when the
    /// broker stops.
    pub fn run_reader(&self, job: Box<dyn FnOnce() + Send>) -> bool {
        self.inner.readers.submit(job).is_ok()
    }

    /// Reads and other jobs that are queued for reader threads.
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
        while let Some(pending) = inner.next_pending(&mut reading) {
            match pending.read(inner.config.view.as_ref(), ColdRuns::Ask) {
                Answer::Ready(answer) => reading.take(answer),
                Answer::Later(task) => {
                    let later = inner.clone();
                    let job = Box::new(move || Inner::finish_reading(&later, reading, origin, task));
                    if let Err(job) = inner.readers.submit(job) {
                        // The readers' queue is full: the read runs on this thread rather than fail.
                        job();
                    }
                    return;
                }
            }
        }
        origin.reply(Reply::Read(reading.results));
        Inner::read_ahead(inner, reading.cold, reading.request.bytes_max);
    }

    /// Continues a read that must block, on a reader thread. `first` is the task of the next part.
    fn finish_reading(inner: &Arc<Inner>, mut reading: Reading, origin: Origin, first: Task) {
        let mut windows = Windows::default();
        let mut task = Some(first);
        loop {
            match task.take() {
                Some(Task::Store(shard, _)) if windows.of(&shard).is_none() => {
                    // Reads all that the rest of the fetch needs from this journal together; then the part is read again.
                    let wanted = inner.wanted(&reading, &shard);
                    let plan = shard.store.prefetch(&wanted, reading.bytes_left);
                    windows.0.push((shard, plan.map_or(ColdRuns::Take, |plan| ColdRuns::Within(plan.run()))));
                    reading.forget_looks();
                }
                Some(task) => {
                    reading.take(task.run());
                    reading.forget_looks();
                }
                None => {}
            }
            let Some(pending) = inner.next_pending(&mut reading) else { break };
            let cold = match windows.of(&pending.shard).unwrap_or(ColdRuns::Ask) {
                // If nothing was found, data beyond the window is not delayed by data within it.
                ColdRuns::Within(_) if !(pending.at_least_one || reading.found_any) => ColdRuns::Take,
                cold => cold,
            };
            match pending.read(inner.config.view.as_ref(), cold) {
                Answer::Later(later) => task = Some(later),
                Answer::Ready(answer) => reading.take(answer),
            }
        }
        origin.reply(Reply::Read(reading.results));
        Inner::read_ahead(inner, reading.cold, reading.request.bytes_max);
    }

    /// Prefetches the stretch of journal that the next fetch will need, while the client consumes this response: Kafka's clients send the next fetch
    /// when they have consumed the previous one. Not while reads are queued.
    fn read_ahead(inner: &Arc<Inner>, cold: Vec<(PartitionId, Offset, u32)>, bytes_max: u32) {
        if cold.is_empty() || inner.readers.waiting() > 0 {
            return;
        }
        let later = inner.clone();
        let job = move || {
            for (shard, wanted) in later.wanted_of_shards(&cold) {
                if let Some(plan) = shard.store.prefetch_ahead(&wanted, bytes_max as usize) {
                    // The fetch finds its window itself.
                    let _ = plan.run();
                }
            }
        };
        // Refused when the broker stops: no prefetch.
        let _ = inner.readers.submit(Box::new(job));
    }

    fn wanted_of_shards(&self, cold: &[(PartitionId, Offset, u32)]) -> Vec<(Arc<Shard>, Vec<ReadWanted>)> {
        let mut all: Vec<(Arc<Shard>, Vec<ReadWanted>)> = Vec::new();
        for (partition, from, bytes_max) in cold {
            let Some(shard) = self.partition_shard(*partition) else { continue };
            let wanted = ReadWanted { partition: *partition, from: *from, bytes_max: *bytes_max as usize };
            match all.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &shard)) {
                Some((_, of_shard)) => of_shard.push(wanted),
                None => all.push((shard, vec![wanted])),
            }
        }
        all
    }

    /// Returns what the remaining parts need from a shard's log.
    fn wanted(&self, reading: &Reading, shard: &Arc<Shard>) -> Vec<ReadWanted> {
        let parts = reading.request.parts.iter().enumerate().skip(reading.next);
        let stored = parts.filter(|(at, _)| reading.queues.binary_search(at).is_err());
        let here = stored
            .filter(|(_, part)| self.partition_shard(part.partition).is_some_and(|other| Arc::ptr_eq(&other, shard)));
        let wanted = here.map(|(_, part)| ReadWanted {
            partition: part.partition,
            from: part.offset,
            bytes_max: part.bytes_max as usize,
        });
        wanted.collect()
    }

    /// Advances to the next part for which the store must be read. `None` if all parts are done.
    fn next_pending(&self, reading: &mut Reading) -> Option<PendingRead> {
        loop {
            while let Some((part, bytes_max, at_least_one)) = reading.next_readable() {
                match self.partition_shard(part.partition) {
                    Some(shard) => {
                        let queue_upto = reading.queue_upto();
                        return Some(PendingRead { shard, part, bytes_max, at_least_one, queue_upto });
                    }
                    // Deleted since its bounds were checked.
                    None => reading.gone(),
                }
            }
            if reading.results.len() == reading.request.parts.len() {
                return None;
            }
            self.look(reading);
        }
    }

    /// Checks the bounds of the next parts, at least one.
    fn look(&self, reading: &mut Reading) {
        let Reading { request, results, queues, .. } = reading;
        let has_view = self.config.view.is_some();
        let mut parts = request.parts.iter().skip(results.len()).take(PARTS_PER_LOCK_MAX).peekable();
        while let Some(first) = parts.next() {
            let Some(shard) = self.partition_shard(first.partition) else {
                results.push(Err(ReadError::UnknownPartition));
                continue;
            };
            let state = shard.state.lock();
            let mut look = |part: &ReadPart, at: usize| {
                let partition = state.partitions.get(&part.partition).filter(|partition| !is_own(partition.id))?;
                let bounds = Bounds::of(&shard, partition);
                // Only for parts with new entries: most parts have none.
                if part.offset < bounds.high_watermark && has_view && partition.config.own().queue.is_some() {
                    queues.push(at);
                }
                Some(bounds.look(part.offset))
            };
            results.push(look(first, results.len()).unwrap_or(Err(ReadError::UnknownPartition)));
            // Client partitions of a shard are routed to it: the next parts are looked up here as long as they are in this shard, without a route
            // lookup for each.
            while let Some(result) = parts.peek().and_then(|part| look(part, results.len())) {
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
        // A search by time may need the disk; finding that out first would cost as much as the search.
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
        let bounds = || Inner::bounds(&shard, query.partition).ok_or(ReadError::UnknownPartition);
        let mut now = bounds()?;
        let position = match query.at {
            OffsetSpec::Earliest => now.log_start,
            OffsetSpec::Latest => now.high_watermark,
            OffsetSpec::AtTimestamp(_) | OffsetSpec::MaxTimestamp => loop {
                if let Some(found) = self.find_entry(&shard, query, now)? {
                    return Ok(found);
                }
                let before = now;
                now = bounds()?;
                if now.log_start <= before.log_start {
                    return Err(now.out_of_range());
                }
                // The entry was trimmed meanwhile: the search restarts at the log start.
            },
        };
        let leader_epoch = Inner::epoch_at(&shard, query.partition, position);
        Ok(FoundOffset { offset: Some(position), log_start: now.log_start, leader_epoch, entry: None })
    }

    /// Finds an entry by time. `None` if it was trimmed before it was read.
    fn find_entry(&self, shard: &Shard, query: FindOffset, bounds: Bounds) -> Result<Option<FoundOffset>, ReadError> {
        let FindOffset { partition, at, from } = query;
        let failed = |e: polylogue_log::Error| read_error(e.kind, bounds.log_start, bounds.high_watermark);
        // The store may hold deleted entries slightly longer than the applied state.
        let from = from.max(bounds.log_start);
        let location = match at {
            OffsetSpec::AtTimestamp(time) => shard.store.find_by_time(partition, time, from),
            _ => shard.store.max_timestamp_entry(partition, from),
        };
        let Some(location) = location.and_then(Lookup::wait).map_err(failed)? else {
            let log_start = bounds.log_start;
            return Ok(Some(FoundOffset { offset: None, log_start, leader_epoch: -1, entry: None }));
        };
        let log_start = Inner::bounds(shard, partition).ok_or(ReadError::UnknownPartition)?.log_start;
        // Its first messages may be deleted, so that its base offset cannot be read.
        let readable = location.base.max(log_start);
        let entry = match shard.store.entry_at(partition, readable).and_then(Lookup::wait) {
            Ok(entry) if entry.location.base == location.base => entry,
            Err(e) if e.kind != LogErrorKind::OutOfRange => return Err(failed(e)),
            _ => return Ok(None),
        };
        let bytes: Bytes = match self.view_of(shard, partition) {
            Some(view) => view::batch_of(view.as_ref(), partition, &entry).map_err(failed)?,
            None => entry.bytes,
        };
        let leader_epoch = Inner::epoch_at(shard, partition, readable);
        Ok(Some(FoundOffset { offset: Some(location.base), log_start, leader_epoch, entry: Some(bytes) }))
    }

    /// Returns the view through which a partition's messages are shown; `None`: as stored.
    fn view_of(&self, shard: &Shard, partition: PartitionId) -> Option<&Arc<dyn LogView>> {
        let is_queue = || shard.state.lock().partitions.get(&partition).is_some_and(|p| p.config.own().queue.is_some());
        self.config.view.as_ref().filter(|_| is_queue())
    }

    fn epoch_at(shard: &Shard, partition: PartitionId, offset: Offset) -> i32 {
        shard.state.lock().partitions.get(&partition).map_or(-1, |p| p.epoch_at(offset))
    }
}
