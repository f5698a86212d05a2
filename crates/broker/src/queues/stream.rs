//! A stream: a queue whose consumers read its log, each at its own offset.
//!
//! Nothing here is applied state. The readable range is the partition's, from its log start to its high watermark. A reader has a position, remaining
//! credit, and a flag that a thread is reading for it. Readers read in turns, each of which is one read of the store:
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

/// Entries per turn of a reader at most; then other readers have theirs.
const TURN_ENTRIES_MAX: usize = 128;
/// Bytes per turn, unless the first entry alone has more.
const TURN_BYTES_MAX: u64 = 256 << 10;

/// A reader.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) sink: Arc<dyn ReplySink>,
    /// The reader receives no more messages.
    stopped: bool,
    filter: Option<Arc<dyn EntryFilter>>,
    /// The next offset to read.
    next: Offset,
    /// A thread is reading for it, or is looking up its first offset.
    reading: bool,
    prefetch: u64,
    held: u64,
    permits: Option<u64>,
    window_bytes: u64,
    window_taken: u64,
    /// The next message does not fit into the rest of the window.
    full: bool,
}

/// What a reader may receive in a turn.
#[derive(Clone, Copy, Debug)]
struct Room {
    messages: u64,
    bytes: u64,
    /// The window is empty: one message may be larger than it.
    empty: bool,
}

/// A reader's turn: the range to read, and the filter for it.
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

/// The result of a turn.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) deliveries: Vec<Delivery>,
    /// The reader's next offset.
    next: Offset,
    /// The next message does not fit into the window.
    full: bool,
}

impl Found {
    /// Returns an empty result: the reader continues at `next`.
    pub(crate) fn nothing(next: Offset) -> Found {
        Found { deliveries: Vec::new(), next, full: false }
    }
}

impl Reader {
    /// Returns a reader without a position: a thread looks it up.
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

    /// Marks the end of a turn.
    pub(crate) fn turn_is_over(&mut self) {
        self.reading = false;
    }

    pub(crate) fn credit(&mut self, more: Credit) {
        self.permits = self.permits.map(|permits| permits.saturating_add(more.messages));
        self.window_taken = self.window_taken.saturating_sub(more.bytes);
        self.full &= more.bytes == 0;
    }

    /// Removes settled messages from the window.
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

    /// Returns whether it has read the whole range.
    fn is_at_end(&self, there: &Range<Offset>) -> bool {
        self.next >= there.end
    }

    /// Begins its turn if there is something to read and credit for it.
    fn turn(&mut self, stream: PartitionId, id: u64, there: &Range<Offset>) -> Option<Turn> {
        if self.reading || self.stopped {
            return None;
        }
        // Messages trimmed since the last turn are gone: it continues at the log start.
        self.next = self.next.max(there.start);
        if self.is_at_end(there) {
            return None;
        }
        let room = self.room()?;
        // The number of messages that pass the filter is unknown.
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

    /// Accounts for the messages to be sent. Returns none if the reader was stopped meanwhile.
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
        // Settlements during the turn may have made room. An empty window has room for any message, and no later event would report it.
        self.full = found.full && self.window_taken > 0;
        found.deliveries
    }
}

impl Turn {
    /// Returns the messages of these entries for the reader, and its next offset.
    pub(crate) fn take(&self, entries: Vec<EntryAt>) -> Found {
        let mut found = Found::nothing(self.offsets.start);
        let mut left = self.room;
        for EntryAt { location, bytes, .. } in entries {
            let first = location.base.max(self.offsets.start);
            if first >= self.offsets.end {
                // Entries from here on are not applied yet, and there are none before.
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
            // The count of messages of an entry is limited by its envelope.
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

/// The readers of a stream. Only readers with an event are checked: one that waits for room or messages costs nothing.
#[derive(Debug, Default)]
pub(crate) struct StreamHost {
    /// In the order of attachment.
    readers: BTreeMap<u64, Reader>,
    /// How many of them are stopped.
    stopped: u64,
    /// Readers that may have a turn.
    ready: BTreeSet<u64>,
    /// Readers that have read everything up to `end`.
    at_end: BTreeSet<u64>,
    end: Offset,
    /// The stream is in the list of those to be checked.
    pub(crate) queued: bool,
}

impl StreamHost {
    pub(crate) fn insert(&mut self, id: u64, reader: Reader) {
        self.readers.insert(id, reader);
    }

    /// Returns a reader that has an event: it is checked with the next check of its stream.
    pub(crate) fn reader(&mut self, id: u64) -> Option<&mut Reader> {
        let reader = self.readers.get_mut(&id)?;
        self.ready.insert(id);
        Some(reader)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Reader> {
        self.ready.remove(&id);
        self.at_end.remove(&id);
        let removed = self.readers.remove(&id)?;
        self.stopped -= u64::from(removed.stopped);
        Some(removed)
    }

    /// Stops deliveries to a reader.
    pub(crate) fn stop(&mut self, id: u64) {
        if let Some(reader) = self.readers.get_mut(&id) {
            self.stopped += u64::from(!std::mem::replace(&mut reader.stopped, true));
            self.ready.insert(id);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    pub(crate) fn readers(&self) -> impl Iterator<Item = (&u64, &Reader)> {
        self.readers.iter()
    }

    /// Returns the turns of the readers that may read now.
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

    /// Returns the number of readers that receive messages.
    pub(crate) fn consumers(&self) -> u64 {
        self.readers.len() as u64 - self.stopped
    }

    pub(crate) fn window_bytes(&self) -> u64 {
        self.readers.values().map(|reader| reader.window_taken).sum()
    }
}
