//! Queues as seen by readers by offset: their messages as record batches, built when they are read.
//!
//! ```text
//!   entries    5      6      9      | 10 ...            what is between two messages takes no offset of this queue any more
//!   epochs     2      2      2      |  3 ...
//!   batches   (base 5: 5, 6, 9)     | (base 10: ...     one for each run of messages of one leader epoch
//! ```
//!
//! Partitions that are not queues are not affected. Always runs on a reader thread: building batches takes time, and the next entry may be on the
//! disk.

use polylogue_api::{LogView, ReadPart, StoredMessage};
use polylogue_log::store::{EntryAt, EntryLocation, Lookup, ReadResult, ShardStore};
use polylogue_log::{Error, ErrorKind, Result};
use polylogue_record::kafka::{BatchBuilder, NewRecord};
use polylogue_types::{Chunk, Offset, PartitionId};

/// Bytes of batches that one read of a queue builds at most, unless its first message has more: the rest is for the next fetch.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Messages that are read together.
const LOOK_ENTRIES_MAX: usize = 256;

/// The result of adding a message to a batch.
enum Added {
    Yes,
    Full,
    /// It is not a message, or too long for a batch.
    Unreadable,
}

/// A batch that is being built.
struct Open {
    builder: BatchBuilder,
    base: Offset,
    epoch: u32,
}

impl Open {
    fn new(at: &EntryLocation) -> Open {
        let base = i64::try_from(at.base.0).unwrap_or(i64::MAX);
        // As in Kafka's own partitions, an epoch never reaches the sign bit.
        let builder = BatchBuilder::new().base(base, at.leader_epoch as i32);
        Open { builder, base: at.base, epoch: at.leader_epoch }
    }

    /// Returns the offset delta of a message in the batch. `None` if its epoch differs, or it is too far away.
    fn delta(&self, at: &EntryLocation) -> Option<i32> {
        let delta = at.base.0.checked_sub(self.base.0).filter(|_| at.leader_epoch == self.epoch);
        delta.and_then(|delta| i32::try_from(delta).ok())
    }
}

/// Batches of a queue, in the order of its messages.
struct Batches<'v> {
    view: &'v dyn LogView,
    bytes_max: usize,
    at_least_one: bool,
    chunks: Vec<Chunk>,
    bytes: usize,
    open: Option<Open>,
}

impl<'v> Batches<'v> {
    fn new(view: &'v dyn LogView, bytes_max: usize, at_least_one: bool) -> Batches<'v> {
        Batches { view, bytes_max, at_least_one, chunks: Vec::new(), bytes: 0, open: None }
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.open.as_ref().is_none_or(|open| open.builder.is_empty())
    }

    fn add(&mut self, entry: &EntryAt) -> Result<Added> {
        let EntryAt { location, form, bytes, .. } = entry;
        if self.open.as_ref().is_some_and(|open| open.delta(location).is_none()) {
            self.seal()?;
        }
        let first = self.is_empty();
        let Batches { view, bytes_max, at_least_one, bytes: before, open, .. } = self;
        let open = open.get_or_insert_with(|| Open::new(location));
        let delta = open.delta(location).unwrap_or(0);
        let mut added = Added::Unreadable;
        let message = StoredMessage { form: *form, timestamp: location.max_timestamp, bytes };
        view.record(message, &mut |record: &NewRecord<'_>| {
            let fits = *before + open.builder.bytes_with(delta, record) <= *bytes_max || (first && *at_least_one);
            added = match fits.then(|| open.builder.push_at(delta, record)) {
                Some(Ok(())) => Added::Yes,
                Some(Err(_)) => Added::Unreadable,
                None => Added::Full,
            };
        });
        Ok(added)
    }

    /// Completes the batch that is being built.
    fn seal(&mut self) -> Result<()> {
        let Some(open) = self.open.take().filter(|open| !open.builder.is_empty()) else { return Ok(()) };
        let built = open.builder.build().map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
        self.bytes += built.len();
        self.chunks.push(built.into());
        Ok(())
    }
}

fn unreadable(partition: PartitionId, at: &EntryLocation) -> Error {
    Error::new(ErrorKind::Damaged, format!("offset {} of queue {partition} is no message", at.base))
}

/// Reads messages of a queue as batches, from the first one at or after the part's offset and below `upto`. Blocks on the disk.
///
/// # Errors
/// As [`ShardStore::entries_from`]; `Damaged` if a message cannot be read.
pub(crate) fn read(
    store: &ShardStore,
    view: &dyn LogView,
    part: ReadPart,
    upto: Offset,
    bytes_max: usize,
    at_least_one: bool,
) -> Result<ReadResult> {
    let mut batches = Batches::new(view, bytes_max.min(BATCH_BYTES_MAX), at_least_one);
    let bytes_max = batches.bytes_max;
    let mut next = part.offset;
    'full: while next < upto {
        // Many together: the index block loaded for one also covers the next.
        let look = store.entries_from(part.partition, next, LOOK_ENTRIES_MAX, bytes_max);
        let entries = match look.and_then(Lookup::wait) {
            Ok(entries) => entries,
            Err(e) if batches.is_empty() => return Err(e),
            // The next read starts there and returns the error.
            Err(_) => break,
        };
        for entry in entries {
            if entry.location.base >= upto {
                break 'full;
            }
            match batches.add(&entry)? {
                Added::Yes => next = entry.location.end,
                Added::Unreadable if batches.is_empty() => return Err(unreadable(part.partition, &entry.location)),
                Added::Full | Added::Unreadable => break 'full,
            }
        }
    }
    batches.seal()?;
    let bytes = batches.bytes as u64;
    Ok(ReadResult { chunks: batches.chunks, start: part.offset, next, bytes, more: next < upto, cold: false })
}

/// Returns one message of a queue as a batch.
///
/// # Errors
/// `Damaged` if it cannot be read.
pub(crate) fn batch_of(view: &dyn LogView, partition: PartitionId, entry: &EntryAt) -> Result<bytes::Bytes> {
    let mut batches = Batches::new(view, 0, true);
    batches.add(entry)?;
    batches.seal()?;
    match batches.chunks.pop() {
        Some(Chunk::Bytes(batch)) => Ok(batch),
        _ => Err(unreadable(partition, &entry.location)),
    }
}
