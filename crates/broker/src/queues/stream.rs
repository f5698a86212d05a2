//! A stream: a queue whose consumers read its log, each from a place of its own.
//!
//! Nothing here is applied state. What there is to read is the partition's, between its log start and its high watermark; a reader is
//! a reader's position, its remaining credit, and whether a thread reads for it. Readers read in turns, each of which is one question to the
//! store:
//!
//! ```text
//!   idle ──room, and something below the high watermark──> reading ──read, filtered, counted, sent──> idle
//! ```

use crate::sink::ReplySink;
use polylogue_api::{AttachReader, ConsumerId, Credit, Delivery, EntryFilter};
use polylogue_log::store::EntryAt;
use polylogue_types::{Offset, PartitionId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Entries that a reader looks at in one turn, at the most; then others have theirs.
const TURN_ENTRIES_MAX: usize = 128;
/// Their bytes, unless the first one alone has more.
const TURN_BYTES_MAX: u64 = 256 << 10;

/// A reader.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) sink: Arc<dyn ReplySink>,
    /// It gets no more messages.
    pub(crate) stopped: bool,
    filter: Option<Arc<dyn EntryFilter>>,
    /// What it looks at next.
    next: Offset,
    /// A thread reads for it, or looks for the place where it begins.
    reading: bool,
    prefetch: u64,
    held: u64,
    permits: Option<u64>,
    window_bytes: u64,
    window_taken: u64,
    /// What comes next has no room in what is left of the window.
    full: bool,
}

/// What a reader may get in a turn.
#[derive(Clone, Copy, Debug)]
struct Room {
    messages: u64,
    bytes: u64,
    /// Nothing is in the window: one message may be larger than it.
    empty: bool,
}

/// A reader's turn: what to read for it, and what it makes of that.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) stream: PartitionId,
    pub(crate) reader: u64,
    pub(crate) offsets: Range<Offset>,
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
    room: Room,
    filter: Option<Arc<dyn EntryFilter>>,
}

/// What came of a turn.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) deliveries: Vec<Delivery>,
    /// Where the reader goes on.
    next: Offset,
    /// The next message has no room in the window.
    full: bool,
}

impl Found {
    /// Nothing: the reader goes on there.
    pub(crate) fn nothing(next: Offset) -> Found {
        Found { deliveries: Vec::new(), next, full: false }
    }
}

impl Reader {
    /// One that has no place yet: a thread looks for it.
    pub(crate) fn new(sink: Arc<dyn ReplySink>, attach: &AttachReader) -> Reader {
        Reader {
            sink,
            stopped: false,
            filter: attach.filter.clone(),
            next: Offset(0),
            reading: true,
            prefetch: u64::from(attach.prefetch),
            held: 0,
            permits: attach.credit,
            window_bytes: attach.window_bytes,
            window_taken: 0,
            full: false,
        }
    }

    pub(crate) fn begin_at(&mut self, offset: Offset) {
        self.next = offset;
    }

    /// No thread is at it any more.
    pub(crate) fn turn_is_over(&mut self) {
        self.reading = false;
    }

    pub(crate) fn credit(&mut self, more: Credit) {
        self.permits = self.permits.map(|permits| permits.saturating_add(more.messages));
        self.window_taken = self.window_taken.saturating_sub(more.bytes);
        self.full &= more.bytes == 0;
    }

    /// It holds so many messages less.
    pub(crate) fn settled(&mut self, count: u32) {
        self.held = self.held.saturating_sub(u64::from(count));
    }

    fn room(&self) -> Option<Room> {
        let free = if self.prefetch == 0 { u64::MAX } else { self.prefetch.saturating_sub(self.held) };
        let messages = free.min(self.permits.unwrap_or(u64::MAX));
        let window = if self.window_bytes == 0 { u64::MAX } else { self.window_bytes };
        let bytes = window.saturating_sub(self.window_taken);
        (messages > 0 && bytes > 0 && !self.full).then_some(Room { messages, bytes, empty: self.window_taken == 0 })
    }

    /// It has read all there is.
    fn is_at_end(&self, there: &Range<Offset>) -> bool {
        self.next >= there.end
    }

    /// Its turn, if it has something to read and may get something.
    fn turn(&mut self, stream: PartitionId, id: u64, there: &Range<Offset>) -> Option<Turn> {
        if self.reading || self.stopped {
            return None;
        }
        // What retention took while it was elsewhere is gone: it goes on with the oldest there is.
        self.next = self.next.max(there.start);
        if self.is_at_end(there) {
            return None;
        }
        let room = self.room()?;
        // It is unknown how much of what is filtered is wanted.
        let wanted = if self.filter.is_some() { u64::MAX } else { room.messages };
        let bytes = if self.filter.is_some() { u64::MAX } else { room.bytes };
        self.reading = true;
        Some(Turn {
            stream,
            reader: id,
            offsets: self.next..there.end,
            entries_max: usize::try_from(wanted).unwrap_or(usize::MAX).min(TURN_ENTRIES_MAX),
            bytes_max: usize::try_from(bytes.min(TURN_BYTES_MAX)).unwrap_or(usize::MAX),
            room,
            filter: self.filter.clone(),
        })
    }

    /// Counts what it is about to get. Gives nothing to one that was stopped meanwhile.
    pub(crate) fn takes(&mut self, found: Found) -> Vec<Delivery> {
        if self.stopped {
            return Vec::new();
        }
        self.next = found.next;
        for delivery in &found.deliveries {
            let count = u64::from(delivery.count);
            self.held = self.held.saturating_add(count);
            self.permits = self.permits.map(|permits| permits.saturating_sub(count));
            self.window_taken = self.window_taken.saturating_add(delivery.weight);
        }
        // What made no room then may have made it since. In an empty window there is room for anything, and no event would tell so again.
        self.full = found.full && self.window_taken > 0;
        found.deliveries
    }
}

impl Turn {
    /// What the reader gets of these entries, and where it goes on.
    pub(crate) fn take(&self, entries: Vec<EntryAt>) -> Found {
        let mut found = Found::nothing(self.offsets.start);
        let mut left = self.room;
        for EntryAt { location, bytes, .. } in entries {
            let first = location.base.max(self.offsets.start);
            if first >= self.offsets.end {
                // What comes is not applied yet, and nothing is there before it.
                found.next = self.offsets.end;
                break;
            }
            if left.messages == 0 {
                break;
            }
            if self.filter.as_ref().is_some_and(|filter| !filter.wants(&bytes)) {
                found.next = location.end;
                continue;
            }
            let weight = bytes.len() as u64;
            if weight > left.bytes && !left.empty {
                found.full = true;
                break;
            }
            found.next = location.end;
            // An entry has no more messages than its envelope can say.
            let count = u32::try_from(location.end.0 - first.0).unwrap_or(u32::MAX);
            left.messages = left.messages.saturating_sub(u64::from(count));
            left = Room { bytes: left.bytes.saturating_sub(weight), empty: false, ..left };
            found.deliveries.push(Delivery {
                consumer: ConsumerId(self.reader),
                queue: self.stream,
                first,
                count,
                lease: 0,
                life: 0,
                weight,
                redelivered: false,
                returned: 0,
                failed: 0,
                entry: location.base,
                bytes,
            });
        }
        found
    }
}

/// The readers of a stream. Looked at are those to whom something happened: one that waits for room or for messages costs nothing.
#[derive(Debug, Default)]
pub(crate) struct StreamHost {
    /// In the order in which they came.
    readers: BTreeMap<u64, Reader>,
    /// Those that may have a turn.
    ready: BTreeSet<u64>,
    /// Those that have read all there was up to `end`.
    at_end: BTreeSet<u64>,
    end: Offset,
    /// It is among those that are to be looked at.
    pub(crate) queued: bool,
}

impl StreamHost {
    pub(crate) fn insert(&mut self, id: u64, reader: Reader) {
        self.readers.insert(id, reader);
    }

    /// A reader to whom something happens: it is looked at with the next look at its stream.
    pub(crate) fn reader(&mut self, id: u64) -> Option<&mut Reader> {
        let reader = self.readers.get_mut(&id)?;
        self.ready.insert(id);
        Some(reader)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Reader> {
        self.ready.remove(&id);
        self.at_end.remove(&id);
        self.readers.remove(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    pub(crate) fn readers(&self) -> impl Iterator<Item = (&u64, &Reader)> {
        self.readers.iter()
    }

    /// The turns of the readers that may read now of what is there.
    pub(crate) fn turns(&mut self, stream: PartitionId, there: &Range<Offset>) -> Vec<Turn> {
        if self.end != there.end {
            self.end = there.end;
            self.ready.append(&mut self.at_end);
        }
        let mut turns = Vec::new();
        for id in std::mem::take(&mut self.ready) {
            let Some(reader) = self.readers.get_mut(&id) else { continue };
            match reader.turn(stream, id, there) {
                Some(turn) => turns.push(turn),
                None if reader.is_at_end(there) => drop(self.at_end.insert(id)),
                None => {}
            }
        }
        turns
    }

    /// Those that get messages.
    pub(crate) fn consumers(&self) -> u64 {
        self.readers.values().filter(|reader| !reader.stopped).count() as u64
    }

    pub(crate) fn window_bytes(&self) -> u64 {
        self.readers.values().map(|reader| reader.window_taken).sum()
    }
}
