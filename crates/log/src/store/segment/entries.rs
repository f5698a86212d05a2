//! Where one entry ends and the next begins.
//!
//! A Kafka batch says it itself: its header holds length, offsets and highest timestamp. For every other form a segment
//! stores a table of the entries' envelopes beside the native bytes, one table a block, each value as its difference
//! from what is expected, so that a usual entry takes about 15 bytes:
//!
//! ```text
//!   entry    flags, fields present, base offset less the end of the entry before, count, native length, append time less
//!            that of the entry before, max timestamp less append time, leader epoch less that before, crc of the
//!            native bytes (u32),
//!            [priority u8] [key hash u32] [producer: id, epoch, base and last sequence] [deliver at] [expires at]
//!            [transaction]
//!   table    entries..., crc of the table (u32)
//! ```
//!
//! Partition, form and the first ordinal come from the run and its block; ordinals inside a block are consecutive.

use super::format::{Block, Row};
use crate::error::{Error, ErrorKind, Result};
use crate::store::varint;
use polylogue_record::crc;
use polylogue_record::envelope::{Body, EntryFlags, Envelope, Form, Producer};
use polylogue_record::kafka::{BatchHeader, HEADER_BYTES};
use polylogue_types::bin::{BinError, BinReader};
use polylogue_types::{Offset, Ordinal, ProducerId, TimestampMs};

/// The version of Kafka's batch layout that is stored.
const KAFKA_MAGIC: i8 = 2;
/// An entry of a table takes at least this much. Bytes.
const ENTRY_BYTES_MIN: usize = 12;

const PRIORITY: u64 = 1;
const KEY_HASH: u64 = 1 << 1;
const PRODUCER: u64 = 1 << 2;
const DELIVER_AT: u64 = 1 << 3;
const EXPIRES_AT: u64 = 1 << 4;
const TRANSACTION: u64 = 1 << 5;
const KNOWN: u64 = (1 << 6) - 1;

/// Whether entries of this form are found by looking at their native bytes.
#[must_use]
pub fn describes_itself(form: Form) -> bool {
    form == Form::KafkaV2
}

/// One entry of a run or block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Offset of the first message.
    pub base: Offset,
    /// Offset after the last message.
    pub end: Offset,
    /// Its number in the partition.
    pub ordinal: Ordinal,
    /// Highest timestamp of its messages, -1 for none.
    pub max_timestamp: TimestampMs,
    /// The epoch of the leader that took it.
    pub leader_epoch: u32,
    /// Where its native bytes begin, from the start of what was scanned.
    pub position: u32,
    /// How many native bytes.
    pub len: u32,
}

impl Span {
    /// The span of an entry whose native bytes begin at `position`.
    #[must_use]
    pub fn of(envelope: &Envelope, position: u32, len: u32) -> Span {
        Span {
            base: envelope.base_offset,
            end: envelope.next_offset(),
            ordinal: envelope.ordinal,
            max_timestamp: envelope.max_timestamp,
            leader_epoch: envelope.leader_epoch,
            position,
            len,
        }
    }
}

/// Divides native bytes of a self-describing form into entries.
///
/// # Errors
/// `Damaged` when they are not whole entries in ascending order.
pub fn scan(form: Form, bytes: &[u8], first: Ordinal) -> Result<Vec<Span>> {
    if !describes_itself(form) {
        return Err(damaged("entries of this form cannot be found in their bytes"));
    }
    let mut spans: Vec<Span> = Vec::new();
    let mut position = 0;
    while position < bytes.len() {
        let rest = bytes.get(position..).unwrap_or_default();
        let span = kafka_span(rest).ok_or_else(|| damaged("native bytes are not whole record batches"))?;
        if spans.last().is_some_and(|last| last.end > span.base) {
            return Err(damaged("record batches are not in ascending order"));
        }
        let (ordinal, at) = (Ordinal(first.0 + spans.len() as u64), position as u32);
        position += span.len as usize;
        spans.push(Span { ordinal, position: at, ..span });
    }
    Ok(spans)
}

/// The batch at the start of `bytes`.
fn kafka_span(bytes: &[u8]) -> Option<Span> {
    let header = BatchHeader::parse(bytes).ok()?;
    let len = usize::try_from(header.total_len()).ok()?;
    let base = u64::try_from(header.base_offset).ok()?;
    let delta = u64::try_from(header.last_offset_delta).ok()?;
    let end = base.checked_add(delta)?.checked_add(1)?;
    if header.magic != KAFKA_MAGIC || len < HEADER_BYTES || len > bytes.len() || end > i64::MAX as u64 {
        return None;
    }
    Some(Span {
        base: Offset(base),
        end: Offset(end),
        ordinal: Ordinal(0),
        max_timestamp: header.max_timestamp,
        leader_epoch: u32::try_from(header.partition_leader_epoch).unwrap_or(0),
        position: 0,
        len: u32::try_from(len).ok()?,
    })
}

/// Writes the entry table of one block.
#[derive(Debug)]
pub struct TableEncoder {
    start: usize,
    end: u64,
    append_time: TimestampMs,
    leader_epoch: u32,
}

impl TableEncoder {
    /// A table that begins at the end of `out`, for a block that begins at `base`.
    #[must_use]
    pub fn new(out: &[u8], base: Offset) -> TableEncoder {
        TableEncoder { start: out.len(), end: base.0, append_time: 0, leader_epoch: 0 }
    }

    /// Appends an entry.
    pub fn push(&mut self, out: &mut Vec<u8>, envelope: &Envelope, len: u32, checksum: u32) {
        // All fields by name: one that is added to the envelope does not compile until it is stored here too.
        let Envelope {
            partition: _,
            ordinal: _,
            base_offset,
            count,
            append_time,
            max_timestamp,
            leader_epoch,
            form: _,
            flags,
            body: _,
            producer,
            deliver_at,
            expires_at,
            priority,
            key_hash,
            transaction,
        } = envelope;
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        let present = bit(priority.is_some(), PRIORITY)
            | bit(key_hash.is_some(), KEY_HASH)
            | bit(producer.is_some(), PRODUCER)
            | bit(deliver_at.is_some(), DELIVER_AT)
            | bit(expires_at.is_some(), EXPIRES_AT)
            | bit(transaction.is_some(), TRANSACTION);
        varint::put(out, u64::from(flags.bits()));
        varint::put(out, present);
        varint::put(out, base_offset.0.wrapping_sub(self.end));
        varint::put(out, u64::from(*count));
        varint::put(out, u64::from(len));
        varint::put_signed(out, append_time.wrapping_sub(self.append_time));
        varint::put_signed(out, max_timestamp.wrapping_sub(*append_time));
        varint::put_signed(out, i64::from(*leader_epoch) - i64::from(self.leader_epoch));
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend(priority);
        if let Some(hash) = key_hash {
            out.extend_from_slice(&hash.to_le_bytes());
        }
        if let Some(p) = producer {
            varint::put_signed(out, p.id.0);
            varint::put_signed(out, i64::from(p.epoch));
            varint::put_signed(out, p.base_sequence);
            varint::put_signed(out, p.last_sequence.wrapping_sub(p.base_sequence));
        }
        for time in [deliver_at, expires_at].into_iter().flatten() {
            varint::put_signed(out, time.wrapping_sub(*append_time));
        }
        if let Some(transaction) = transaction {
            varint::put(out, *transaction);
        }
        self.end = base_offset.0 + u64::from(*count);
        self.append_time = *append_time;
        self.leader_epoch = *leader_epoch;
    }

    /// Closes the table and returns its length in bytes.
    pub fn finish(self, out: &mut Vec<u8>) -> u32 {
        let sum = crc::crc32c(out.get(self.start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
        (out.len() - self.start) as u32
    }
}

/// Reads the entry table of a block back.
///
/// # Errors
/// `Damaged` when it does not verify or is not the block's.
pub fn decode_table(row: &Row, block: &Block, bytes: &[u8]) -> Result<Vec<Envelope>> {
    let (body, sum) = bytes.split_last_chunk().ok_or_else(|| damaged("an entry table is too short"))?;
    if crc::crc32c(body) != u32::from_le_bytes(*sum) {
        return Err(damaged("an entry table has a wrong checksum"));
    }
    let mut envelopes = Vec::with_capacity((block.entries as usize).min(body.len() / ENTRY_BYTES_MIN));
    let mut reader = BinReader::new(body);
    let mut decode = || -> std::result::Result<(), BinError> {
        let mut before = Envelope::new(row.partition, row.form);
        before.base_offset = block.base;
        let mut left = block.len;
        for i in 0..u64::from(block.entries) {
            let mut envelope = decode_entry(&mut reader, &before)?;
            envelope.ordinal = Ordinal(block.ordinal.0.wrapping_add(i));
            let Body::Inline { len, .. } = envelope.body else { return Err(BinError { field: "body" }) };
            left = left.checked_sub(len).ok_or(BinError { field: "native length" })?;
            before = envelope.clone();
            envelopes.push(envelope);
        }
        if left != 0 {
            return Err(BinError { field: "native length" });
        }
        reader.end("entry table")
    };
    decode().map_err(|e| damaged(&e.to_string()))?;
    Ok(envelopes)
}

fn decode_entry(r: &mut BinReader<'_>, before: &Envelope) -> std::result::Result<Envelope, BinError> {
    let mut e = Envelope::new(before.partition, before.form);
    let flags = u16::try_from(varint::take(r, "flags")?).map_err(|_| BinError { field: "flags" })?;
    e.flags = EntryFlags::from_bits(flags).ok_or(BinError { field: "flags" })?;
    let present = varint::take(r, "fields")?;
    if present & !KNOWN != 0 {
        return Err(BinError { field: "fields" });
    }
    let base = before.next_offset().0.checked_add(varint::take(r, "base offset")?);
    e.base_offset = Offset(base.ok_or(BinError { field: "base offset" })?);
    e.count = varint::take_u32(r, "count")?;
    let end = e.base_offset.0.checked_add(u64::from(e.count));
    if e.count == 0 || end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(BinError { field: "count" });
    }
    let len = varint::take_u32(r, "native length")?;
    e.append_time = before.append_time.wrapping_add(varint::take_signed(r, "append time")?);
    e.max_timestamp = e.append_time.wrapping_add(varint::take_signed(r, "max timestamp")?);
    let epoch = i64::from(before.leader_epoch).wrapping_add(varint::take_signed(r, "leader epoch")?);
    e.leader_epoch = u32::try_from(epoch).map_err(|_| BinError { field: "leader epoch" })?;
    e.body = Body::Inline { len, checksum: r.u32("checksum")? };
    let has = |bit| present & bit != 0;
    e.priority = has(PRIORITY).then(|| r.u8("priority")).transpose()?;
    e.key_hash = has(KEY_HASH).then(|| r.u32("key hash")).transpose()?;
    e.producer = has(PRODUCER).then(|| decode_producer(r)).transpose()?;
    let mut time = |bit, field| -> std::result::Result<Option<TimestampMs>, BinError> {
        has(bit).then(|| Ok(e.append_time.wrapping_add(varint::take_signed(r, field)?))).transpose()
    };
    e.deliver_at = time(DELIVER_AT, "deliver at")?;
    e.expires_at = time(EXPIRES_AT, "expires at")?;
    e.transaction = has(TRANSACTION).then(|| varint::take(r, "transaction")).transpose()?;
    Ok(e)
}

fn decode_producer(r: &mut BinReader<'_>) -> std::result::Result<Producer, BinError> {
    let id = ProducerId(varint::take_signed(r, "producer id")?);
    let epoch = i16::try_from(varint::take_signed(r, "producer epoch")?);
    let epoch = epoch.map_err(|_| BinError { field: "producer epoch" })?;
    let base_sequence = varint::take_signed(r, "base sequence")?;
    let last_sequence = base_sequence.wrapping_add(varint::take_signed(r, "last sequence")?);
    Ok(Producer { id, epoch, base_sequence, last_sequence })
}

/// The entries of a block or of a journal run.
#[derive(Clone, Debug)]
pub struct Entries {
    /// Where they are, in order.
    pub spans: Vec<Span>,
    /// Their envelopes; empty for a form that describes itself.
    pub envelopes: Vec<Envelope>,
}

impl Entries {
    /// Of a self-describing form.
    #[must_use]
    pub fn scanned(spans: Vec<Span>) -> Entries {
        Entries { spans, envelopes: Vec::new() }
    }

    /// Of any other: the native bytes stand one after the other.
    #[must_use]
    pub fn listed(envelopes: Vec<Envelope>) -> Entries {
        let mut position = 0;
        let span = |envelope: &Envelope| {
            let len = if let Body::Inline { len, .. } = envelope.body { len } else { 0 };
            let span = Span::of(envelope, position, len);
            position = position.saturating_add(len);
            span
        };
        let spans = envelopes.iter().map(span).collect();
        Entries { spans, envelopes }
    }

    /// What they take in memory. Bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Entries>()
            + self.spans.capacity() * size_of::<Span>()
            + self.envelopes.capacity() * size_of::<Envelope>()
    }

    /// The number of the first entry that ends above `offset`; their count when there is none.
    #[must_use]
    pub fn find(&self, offset: Offset) -> usize {
        self.spans.partition_point(|s| s.end <= offset)
    }
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, what)
}
