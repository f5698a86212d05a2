//! The records of the timers, and the chunks of their checkpoint.
//!
//! ```text
//! record      u8 version = 1, u32 count, count times operation
//! operation   u8 1 insert | 0 remove, var deadline - that of the operation before, zigzag; u8 kind, var object, var item
//!
//! chunks      u8 version = 1 before each value
//!   C                     u64 latest frame time, u64 next sequence number, u64 next part
//!   S u64 start, u8 level u32 count, count times: u64 part, u32 inserts, u32 removes
//!   D                     parts that are to be spread over other buckets:
//!                         u32 count, count times: u64 start, u64 end, u64 part, u32 inserts, u32 removes
//!   P u64 number          u64 lowest sequence number, u32 count, count times: operation, var sequence number - lowest
//!
//! var         7 bits a byte, lowest first; the highest bit says that more follow
//! ```
//!
//! Chunks whose name begins with P are not read at a start. Numbers in names are big endian.

use crate::bucket::{Drain, Op, Part, start_of};
use crate::id::{DEADLINE_MS_MAX, Kind, TimerId, TimerKey, TimerOp};
use bytes::Bytes;
use polylogue_types::bin::{BinError, BinReader, BinWriter};

const VERSION: u8 = 1;
/// The fewest bytes of an operation.
const OP_BYTES_MIN: usize = 5;

/// The record of these operations, in their order.
#[must_use]
pub fn record(ops: &[TimerOp]) -> Bytes {
    let mut w = BinWriter::new();
    w.u8(VERSION).u32(ops.len() as u32);
    let mut before = 0;
    for op in ops {
        let id = op.id();
        encode_op(matches!(op, TimerOp::Insert(_)), &id, &mut before, &mut w);
    }
    Bytes::from(w.out)
}

pub(crate) fn decode_record(record: &[u8]) -> Result<Vec<TimerOp>, BinError> {
    let mut r = BinReader::new(record);
    version(&mut r)?;
    let count = r.count(OP_BYTES_MIN, "timers")?;
    let mut before = 0;
    let mut ops = Vec::with_capacity(count);
    for _ in 0..count {
        let (insert, id) = decode_op(&mut before, &mut r)?;
        ops.push(if insert { TimerOp::Insert(id) } else { TimerOp::Remove(id) });
    }
    r.end("record of timers")?;
    Ok(ops)
}

fn version(r: &mut BinReader<'_>) -> Result<(), BinError> {
    let field = "version";
    if r.u8(field)? == VERSION { Ok(()) } else { Err(BinError { field }) }
}

fn encode_op(insert: bool, id: &TimerId, before: &mut u64, w: &mut BinWriter) {
    w.u8(u8::from(insert));
    let step = id.deadline_ms.cast_signed().wrapping_sub(before.cast_signed());
    w.var(((step << 1) ^ (step >> 63)).cast_unsigned());
    *before = id.deadline_ms;
    w.u8(id.kind.0);
    w.var(id.key.object);
    w.var(id.key.item);
}

fn decode_op(before: &mut u64, r: &mut BinReader<'_>) -> Result<(bool, TimerId), BinError> {
    let insert = match r.u8("operation")? {
        0 => false,
        1 => true,
        _ => return Err(BinError { field: "operation" }),
    };
    let zigzag = r.var("deadline")?;
    let step = (zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed());
    let deadline_ms = before.wrapping_add(step.cast_unsigned());
    if deadline_ms > DEADLINE_MS_MAX {
        return Err(BinError { field: "deadline" });
    }
    *before = deadline_ms;
    let kind = Kind(r.u8("kind of timer")?);
    let object = r.var("object of a timer")?;
    let item = r.var("item of a timer")?;
    Ok((insert, TimerId { deadline_ms, kind, key: TimerKey { object, item } }))
}

/// The name of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ChunkId {
    Counters,
    Bucket { start: u64, level: u8 },
    Drains,
    Part(u64),
}

impl ChunkId {
    pub(crate) fn encode(self) -> Bytes {
        let mut out = Vec::with_capacity(10);
        match self {
            ChunkId::Counters => out.push(b'C'),
            ChunkId::Drains => out.push(b'D'),
            ChunkId::Bucket { start, level } => {
                out.push(b'S');
                out.extend_from_slice(&start.to_be_bytes());
                out.push(level);
            }
            ChunkId::Part(number) => {
                out.push(b'P');
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        Bytes::from(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<ChunkId> {
        let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        match bytes.split_first()? {
            (b'C', []) => Some(ChunkId::Counters),
            (b'D', []) => Some(ChunkId::Drains),
            (b'P', rest) => Some(ChunkId::Part(number(rest)?)),
            (b'S', [start @ .., level]) => Some(ChunkId::Bucket { start: number(start)?, level: *level }),
            _ => None,
        }
    }
}

/// The counters of the whole timer set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counters {
    /// The latest time of a frame.
    pub(crate) frame_ms: u64,
    /// The number of the next operation.
    pub(crate) next_seq: u64,
    /// The number of the next part.
    pub(crate) next_part: u64,
}

impl Counters {
    pub(crate) fn encode(self) -> Bytes {
        let mut w = BinWriter::new();
        w.u8(VERSION).u64(self.frame_ms).u64(self.next_seq).u64(self.next_part);
        Bytes::from(w.out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Counters, BinError> {
        let mut r = BinReader::new(bytes);
        version(&mut r)?;
        let frame_ms = at_most(DEADLINE_MS_MAX, &mut r, "frame time")?;
        let next_seq = at_most(COUNTER_MAX, &mut r, "sequence number")?;
        let next_part = at_most(COUNTER_MAX, &mut r, "next part")?;
        r.end("counters of timers")?;
        Ok(Counters { frame_ms, next_seq, next_part })
    }
}

/// Upper bound of the counters of operations and parts: a higher value is damage.
const COUNTER_MAX: u64 = u64::MAX / 2;

fn at_most(max: u64, r: &mut BinReader<'_>, field: &'static str) -> Result<u64, BinError> {
    let value = r.u64(field)?;
    if value <= max { Ok(value) } else { Err(BinError { field }) }
}

fn encode_part(part: &Part, w: &mut BinWriter) {
    w.u64(part.number).u32(part.inserts).u32(part.removes);
}

fn decode_part(r: &mut BinReader<'_>) -> Result<Part, BinError> {
    let number = at_most(COUNTER_MAX, r, "part")?;
    Ok(Part { number, inserts: r.u32("inserts of a part")?, removes: r.u32("removes of a part")? })
}

/// The summary of a bucket.
pub(crate) fn encode_parts(parts: &[Part]) -> Bytes {
    let mut w = BinWriter::new();
    w.u8(VERSION).u32(parts.len() as u32);
    parts.iter().for_each(|part| encode_part(part, &mut w));
    Bytes::from(w.out)
}

pub(crate) fn decode_parts(bytes: &[u8]) -> Result<Vec<Part>, BinError> {
    let mut r = BinReader::new(bytes);
    version(&mut r)?;
    let count = r.count(16, "parts of a bucket")?;
    let parts = (0..count).map(|_| decode_part(&mut r)).collect::<Result<_, _>>()?;
    r.end("summary of a bucket")?;
    Ok(parts)
}

/// The parts that have to be distributed over other buckets.
pub(crate) fn encode_drains<'a>(drains: impl ExactSizeIterator<Item = &'a Drain>) -> Bytes {
    let mut w = BinWriter::new();
    w.u8(VERSION).u32(drains.len() as u32);
    for drain in drains {
        encode_part(&drain.part, w.u64(drain.start).u64(drain.end));
    }
    Bytes::from(w.out)
}

pub(crate) fn decode_drains(bytes: &[u8]) -> Result<Vec<Drain>, BinError> {
    let mut r = BinReader::new(bytes);
    version(&mut r)?;
    let count = r.count(32, "parts to be spread")?;
    let one = |_| {
        let field = "times of a part";
        let (start, end) = (r.u64(field)?, r.u64(field)?);
        // The bounds of a bucket, which are those of narrowest ones.
        if start >= end || start != start_of(0, start) || end != start_of(0, end) {
            return Err(BinError { field });
        }
        Ok(Drain { start, end, part: decode_part(&mut r)? })
    };
    let drains = (0..count).map(one).collect::<Result<_, _>>()?;
    r.end("parts to be spread")?;
    Ok(drains)
}

/// The content of a part.
pub(crate) fn encode_ops(ops: &[(TimerId, Op)]) -> Bytes {
    let mut w = BinWriter::new();
    let lowest = ops.iter().map(|(_, op)| op.seq).min().unwrap_or(0);
    w.u8(VERSION).u64(lowest).u32(ops.len() as u32);
    let mut before = 0;
    for (id, op) in ops {
        encode_op(op.insert, id, &mut before, &mut w);
        w.var(op.seq - lowest);
    }
    Bytes::from(w.out)
}

pub(crate) fn decode_ops(bytes: &[u8]) -> Result<Vec<(TimerId, Op)>, BinError> {
    let mut r = BinReader::new(bytes);
    version(&mut r)?;
    let lowest = r.u64("sequence number")?;
    let count = r.count(OP_BYTES_MIN + 1, "timers of a part")?;
    let mut before = 0;
    let mut ops = Vec::with_capacity(count);
    for _ in 0..count {
        let (insert, id) = decode_op(&mut before, &mut r)?;
        let seq = lowest.checked_add(r.var("sequence number")?);
        ops.push((id, Op { seq: seq.ok_or(BinError { field: "sequence number" })?, insert }));
    }
    r.end("part of a bucket")?;
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0..1000u64, Just(u64::MAX), Just(0)]
    }

    fn id() -> impl Strategy<Value = TimerId> {
        (number(), any::<u8>(), number(), number()).prop_map(|(deadline, kind, object, item)| TimerId {
            deadline_ms: deadline & DEADLINE_MS_MAX,
            kind: Kind(kind),
            key: TimerKey { object, item },
        })
    }

    proptest! {
        #[test]
        fn operations_come_back(ops in prop::collection::vec((id(), any::<bool>(), number()), 0..20)) {
            let record_ops: Vec<_> =
                ops.iter().map(|(id, insert, _)| if *insert { TimerOp::Insert(*id) } else { TimerOp::Remove(*id) }).collect();
            prop_assert_eq!(decode_record(&record(&record_ops)), Ok(record_ops));
            let part_ops: Vec<_> = ops.iter().map(|(id, insert, seq)| (*id, Op { seq: *seq, insert: *insert })).collect();
            prop_assert_eq!(decode_ops(&encode_ops(&part_ops)), Ok(part_ops));
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200), version in any::<bool>()) {
            let mut bytes = bytes;
            if version && !bytes.is_empty() {
                bytes[0] = VERSION;
            }
            _ = (decode_record(&bytes), decode_ops(&bytes), decode_parts(&bytes), decode_drains(&bytes));
            _ = (Counters::decode(&bytes), ChunkId::decode(&bytes).map(|id| assert_eq!(id.encode(), bytes)));
        }
    }
}
