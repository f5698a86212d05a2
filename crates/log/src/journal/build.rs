//! From queued proposals to frames: which proposals go into which frame, in which order their entries stand there.

use super::queue::Queued;
use crate::frame::codec::{FrameBuilder, FrameHead, HEADERS_BYTES, resolve_references};
use crate::frame::{EntryRef, Kind};
use polylogue_record::envelope::Body;
use polylogue_types::TimestampMs;
use std::ops::Range;

/// One entry on its way into a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    partition: u64,
    /// Which proposal of the run.
    item: u32,
    /// Which entry of the proposal.
    entry: u32,
    /// Its number before sorting.
    number: u32,
}

/// What the next frame is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Run {
    /// So many whole proposals.
    Whole(usize),
    /// A part of the first proposal, which is too large for one frame.
    Part(Range<usize>),
    /// The body of the first proposal.
    Body,
}

/// Chooses what the next frame is made of. `part` is the number of entries of the first proposal that are written.
pub(crate) fn plan(items: &[Queued], part: usize, frame_bytes_max: usize) -> Run {
    let Some(first) = items.first() else { return Run::Whole(0) };
    if first.proposal.kind != Kind::Data {
        return Run::Body;
    }
    let mut bytes = HEADERS_BYTES + first.native + first.table;
    let entries = &first.proposal.entries;
    if part > 0 || (bytes > frame_bytes_max && entries.len() > 1 && !first.has_ref) {
        let mut bytes = HEADERS_BYTES;
        let mut end = part;
        for draft in entries.iter().skip(part) {
            bytes += draft.envelope.encoded_len() + draft.bytes.len();
            if end > part && bytes > frame_bytes_max {
                break;
            }
            end += 1;
        }
        return Run::Part(part..end);
    }
    let mut count = 1;
    for item in items.iter().skip(1) {
        bytes += item.native + item.table;
        if item.proposal.kind != Kind::Data || bytes > frame_bytes_max {
            break;
        }
        count += 1;
    }
    Run::Whole(count)
}

/// Notes the entries of whole proposals, in the order in which they will stand in the frame.
pub(crate) fn slots_of(items: &[Queued], slots: &mut Vec<Slot>) {
    slots.clear();
    for (i, item) in items.iter().enumerate() {
        push_slots(i, item, 0..item.proposal.entries.len(), slots);
    }
    cluster(slots);
}

/// The same for a part of one proposal.
pub(crate) fn slots_of_part(item: &Queued, part: Range<usize>, slots: &mut Vec<Slot>) {
    slots.clear();
    push_slots(0, item, part, slots);
    cluster(slots);
}

fn push_slots(item: usize, queued: &Queued, part: Range<usize>, slots: &mut Vec<Slot>) {
    for entry in part {
        let partition = queued.proposal.entries[entry].envelope.partition.0;
        // All three are far below 2^32: an entry takes more than 64 bytes, and a queue is bounded by bytes.
        slots.push(Slot { partition, item: item as u32, entry: entry as u32, number: slots.len() as u32 });
    }
}

/// By partition, otherwise in the order in which they were proposed.
fn cluster(slots: &mut [Slot]) {
    if !slots.is_sorted_by_key(|s| s.partition) {
        slots.sort_by_key(|s| s.partition);
    }
}

/// A frame that lacks only its local header.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) buffer: Vec<u8>,
    /// Where it begins in the buffer.
    pub(crate) start: usize,
    pub(crate) content: u32,
    pub(crate) entries: Vec<EntryRef>,
    pub(crate) native_bytes: usize,
}

/// The length of a frame of entries, and how much of it are native bytes.
pub(crate) fn len(items: &[Queued], slots: &[Slot]) -> (usize, usize) {
    let (mut table, mut native_bytes) = (0, 0);
    for slot in slots {
        let draft = &items[slot.item as usize].proposal.entries[slot.entry as usize];
        table += draft.envelope.encoded_len();
        native_bytes += draft.bytes.len();
    }
    (HEADERS_BYTES + table + native_bytes, native_bytes)
}

/// Builds a frame of entries, if `position` is given for that place of the file. Here the native bytes are copied, once.
pub(crate) fn data(
    items: &mut [Queued],
    slots: &[Slot],
    ranks: &mut Vec<u32>,
    head: &FrameHead,
    position: Option<u64>,
) -> Built {
    if items.iter().any(|i| i.has_ref) {
        ranks.clear();
        ranks.resize(slots.len(), 0);
        for (at, slot) in slots.iter().enumerate() {
            ranks[slot.number as usize] = at as u32;
        }
    }
    let (len, native_bytes) = len(items, slots);
    let mut builder = match position {
        Some(position) => FrameBuilder::placed(len, &[], position),
        None => FrameBuilder::new(len, &[]),
    };
    for slot in slots {
        let envelope = &mut items[slot.item as usize].proposal.entries[slot.entry as usize].envelope;
        complete(envelope, slot, ranks, head.time_ms);
        builder.envelope(envelope);
    }
    let mut entries = Vec::with_capacity(slots.len());
    for slot in slots {
        let draft = &items[slot.item as usize].proposal.entries[slot.entry as usize];
        let start = builder.position();
        let patch = draft.patch.as_slice();
        builder.native(patch);
        builder.native(&draft.bytes[patch.len()..]);
        // A frame is smaller than 2^28 bytes: the door sees to it.
        let native = start as u32..builder.position() as u32;
        entries.push(EntryRef { envelope: draft.envelope.clone(), native });
    }
    // The door has seen that every reference has a target.
    let resolved = resolve_references(&mut entries);
    debug_assert!(resolved.is_ok());
    let (buffer, start, content) = builder.finish(head, entries.len());
    Built { buffer, start, content, entries, native_bytes }
}

/// Fills in what the proposer could not know: the frame's time, and where in the frame the target of a reference is.
fn complete(envelope: &mut polylogue_record::envelope::Envelope, slot: &Slot, ranks: &[u32], time_ms: TimestampMs) {
    envelope.append_time = time_ms;
    if let Body::Ref { entry } = &mut envelope.body {
        let number = (slot.number - slot.entry + *entry) as usize;
        *entry = ranks.get(number).copied().unwrap_or(*entry);
    }
}

/// Builds a frame that is all body.
pub(crate) fn body(body: &[u8], head: &FrameHead) -> Built {
    let builder = FrameBuilder::new(HEADERS_BYTES + body.len(), body);
    let (buffer, start, content) = builder.finish(head, 0);
    Built { buffer, start, content, entries: Vec::new(), native_bytes: 0 }
}
