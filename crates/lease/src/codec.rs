//! The records of a queue, and the chunks of its checkpoint.
//!
//! ```text
//! record     u8 version = 1, u8 flags: 1 an offset follows before which messages may have been handed out, [var offset]: of
//!            builds whose marks did not say it; read and never written
//!            var count, count times operation, in the order of their offsets, none overlapping
//! operation  var start - end of the one before, var length, mark: what holds for these offsets from now on
//! mark       u8 bits 0-2 fate: 0 open 1 settled 2 rejected 3 failed too often 4 expired 5 too many
//!               bit 3 a tally follows, bit 4 a time follows, bit 5 handed out and not come back since (open ones), bits 6-7 zero
//!            [var returned, var failed] [var not before, ms; 2^64 - 1: parked, another one knows when]
//!
//! chunks     u8 version = 1 before each value
//!   H                 var floor, var end - floor, var offset before which messages may have been handed out, as in records
//!   B u64 block       what starts in this block of 8,192 offsets:
//!                     var count, count times operation: marks that are not open
//!                     var count, count times: var start - end of the one before, var length, class
//! class      u8 bits 0 a priority, 1 a size, 2 an entry's count, 3 a time of expiry, 4 the grain of a coarse one, 5 what of the size is
//!               not the body follow, bit 6 transient (all of them: runs of mixed persistence are split), bit 7 zero
//!            [u8 priority] [var bytes] [var messages] [var expires at, ms] [u8 grain, ms, as a power of two] [var bytes]
//!
//! var        7 bits a byte, lowest first; the highest bit says that more follow
//! ```
//!
//! The first start in a block is relative to the block. Numbers in names are big endian.

use crate::error::LeaseError;
use crate::mark::{Class, Fate, Mark, OFFSET_MAX, Reason, Tally, Transient};
use crate::runs::{Run, Runs};
use bytes::Bytes;
use polylogue_types::bin::{BinError, BinReader, BinWriter};

const VERSION: u8 = 1;
/// Offsets in a block, as a power of two.
pub(crate) const BLOCK_BITS: u32 = 13;
/// The fewest bytes of an operation or a run of a class.
const RUN_BYTES_MIN: usize = 3;

const HANDED_TO: u8 = 1;
const TALLY: u8 = 1 << 3;
const TIME: u8 = 1 << 4;
const HANDED: u8 = 1 << 5;

const PRIORITY: u8 = 1;
const BYTES: u8 = 1 << 1;
const ENTRY: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const COARSE: u8 = 1 << 4;
const EXTRA: u8 = 1 << 5;
const TRANSIENT: u8 = 1 << 6;
/// The bits of the coarsest grain.
const COARSE_BITS_MAX: u8 = 63;

impl From<BinError> for LeaseError {
    fn from(error: BinError) -> LeaseError {
        LeaseError::Damaged { what: error.field }
    }
}

/// The record of what changes.
pub(crate) fn encode_record(changes: &Runs<Mark>) -> Bytes {
    let mut w = BinWriter::new();
    w.u8(VERSION).u8(0).var(changes.runs() as u64);
    let mut before = 0;
    for run in changes.iter() {
        encode_run(&run, &mut before, &mut w);
        encode_mark(&run.value, &mut w);
    }
    Bytes::from(w.out)
}

/// A record that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordReader<'a> {
    pub(crate) handed_to: Option<u64>,
    left: u64,
    before: u64,
    r: BinReader<'a>,
}

impl<'a> RecordReader<'a> {
    pub(crate) fn new(record: &'a [u8]) -> Result<RecordReader<'a>, LeaseError> {
        let mut r = BinReader::new(record);
        version(&mut r)?;
        let handed_to = match r.u8("flags")? {
            0 => None,
            HANDED_TO => Some(offset(&mut r, "position handed out to")?),
            _ => return Err(LeaseError::Damaged { what: "flags" }),
        };
        let left = count(&mut r, "count of operations")?;
        Ok(RecordReader { handed_to, left, before: 0, r })
    }

    /// The next operation, or that there is none.
    pub(crate) fn next(&mut self) -> Result<Option<Run<Mark>>, LeaseError> {
        let Some(left) = self.left.checked_sub(1) else {
            self.r.end("record")?;
            return Ok(None);
        };
        self.left = left;
        let (start, end) = decode_run(&mut self.before, &mut self.r)?;
        let value = decode_mark(&mut self.r)?;
        Ok(Some(Run { start, end, value }))
    }

    /// The offset behind all that it speaks of; 0 for nothing.
    pub(crate) fn end(mut self) -> Result<u64, LeaseError> {
        let mut end = self.handed_to.unwrap_or(0);
        while let Some(run) = self.next()? {
            end = end.max(run.end);
        }
        Ok(end)
    }
}

fn encode_run<V>(run: &Run<V>, before: &mut u64, w: &mut BinWriter) {
    w.var(run.start - *before);
    w.var(run.end - run.start);
    *before = run.end;
}

fn decode_run(before: &mut u64, r: &mut BinReader<'_>) -> Result<(u64, u64), LeaseError> {
    let damaged = LeaseError::Damaged { what: "range of offsets" };
    let start = before.checked_add(r.var("start of a range")?).ok_or(damaged)?;
    let end = start.checked_add(r.var("length of a range")?).ok_or(damaged)?;
    if end <= start || end > OFFSET_MAX {
        return Err(damaged);
    }
    *before = end;
    Ok((start, end))
}

fn encode_mark(mark: &Mark, w: &mut BinWriter) {
    let fate = match mark.fate {
        Fate::Open => 0,
        Fate::Settled => 1,
        Fate::Dead(reason) => reason as u8,
    };
    let tally = mark.tally != Tally::default();
    let time = mark.not_before_ms > 0;
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    w.u8(fate | bit(tally, TALLY) | bit(time, TIME) | bit(mark.handed, HANDED));
    if tally {
        w.var(u64::from(mark.tally.returned));
        w.var(u64::from(mark.tally.failed));
    }
    if time {
        w.var(mark.not_before_ms);
    }
}

fn decode_mark(r: &mut BinReader<'_>) -> Result<Mark, LeaseError> {
    let bits = r.u8("mark")?;
    let damaged = LeaseError::Damaged { what: "mark" };
    let fate = match bits & !(TALLY | TIME | HANDED) {
        0 => Fate::Open,
        1 => Fate::Settled,
        2 => Fate::Dead(Reason::Rejected),
        3 => Fate::Dead(Reason::DeliveryLimit),
        4 => Fate::Dead(Reason::Expired),
        5 => Fate::Dead(Reason::MaxLength),
        _ => return Err(damaged),
    };
    let mut mark = Mark { fate, handed: bits & HANDED != 0, ..Mark::OPEN };
    if mark.handed && fate != Fate::Open {
        return Err(damaged);
    }
    if bits & TALLY != 0 {
        let mut number = || u16::try_from(r.var("tally")?).map_err(|_| LeaseError::Damaged { what: "tally" });
        mark.tally = Tally { returned: number()?, failed: number()? };
    }
    if bits & TIME != 0 {
        mark.not_before_ms = r.var("time of a message")?;
    }
    // One form of what is settled, so that it is one run.
    if fate == Fate::Settled && mark != Mark::SETTLED { Err(damaged) } else { Ok(mark) }
}

fn encode_class(class: &Class, w: &mut BinWriter) {
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    w.u8(bit(class.priority > 0, PRIORITY)
        | bit(class.bytes > 0, BYTES)
        | bit(class.entry > 0, ENTRY)
        | bit(class.expires_at_ms > 0, EXPIRES)
        | bit(class.coarse > 0, COARSE)
        | bit(class.extra > 0, EXTRA)
        | bit(class.transient == Transient::ALL, TRANSIENT));
    if class.priority > 0 {
        w.u8(class.priority);
    }
    for value in [u64::from(class.bytes), u64::from(class.entry), class.expires_at_ms] {
        if value > 0 {
            w.var(value);
        }
    }
    if class.coarse > 0 {
        w.u8(class.coarse);
    }
    if class.extra > 0 {
        w.var(u64::from(class.extra));
    }
}

fn decode_class(r: &mut BinReader<'_>) -> Result<Class, LeaseError> {
    let bits = r.u8("class")?;
    if bits & !(PRIORITY | BYTES | ENTRY | EXPIRES | COARSE | EXTRA | TRANSIENT) != 0 {
        return Err(LeaseError::Damaged { what: "class" });
    }
    let mut class = Class { transient: Transient::of(bits & TRANSIENT != 0), ..Class::default() };
    if bits & PRIORITY != 0 {
        class.priority = r.u8("priority")?;
    }
    if bits & BYTES != 0 {
        let bytes = r.var("size")?;
        class.bytes = u32::try_from(bytes).map_err(|_| LeaseError::Damaged { what: "size" })?;
    }
    if bits & ENTRY != 0 {
        let entry = r.var("messages of an entry")?;
        class.entry = u16::try_from(entry).map_err(|_| LeaseError::Damaged { what: "messages of an entry" })?;
    }
    if bits & EXPIRES != 0 {
        class.expires_at_ms = r.var("time of expiry")?;
    }
    if bits & COARSE != 0 {
        class.coarse = r.u8("grain of a time")?;
        if class.expires_at_ms == 0 || !(1..=COARSE_BITS_MAX).contains(&class.coarse) {
            return Err(LeaseError::Damaged { what: "grain of a time" });
        }
    }
    if bits & EXTRA != 0 {
        let extra = u32::try_from(r.var("size")?).ok().filter(|extra| *extra <= class.bytes);
        class.extra = extra.ok_or(LeaseError::Damaged { what: "size" })?;
    }
    Ok(class)
}

fn version(r: &mut BinReader<'_>) -> Result<(), LeaseError> {
    let what = "version";
    if r.u8(what)? == VERSION { Ok(()) } else { Err(LeaseError::Damaged { what }) }
}

fn offset(r: &mut BinReader<'_>, what: &'static str) -> Result<u64, LeaseError> {
    let value = r.var(what)?;
    if value <= OFFSET_MAX { Ok(value) } else { Err(LeaseError::Damaged { what }) }
}

fn count(r: &mut BinReader<'_>, what: &'static str) -> Result<u64, LeaseError> {
    let count = r.var(what)?;
    if count <= (r.remaining() / RUN_BYTES_MIN) as u64 { Ok(count) } else { Err(LeaseError::Damaged { what }) }
}

/// The name of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ChunkId {
    Head,
    Block(u64),
}

impl ChunkId {
    pub(crate) fn encode(self) -> Bytes {
        match self {
            ChunkId::Head => Bytes::from_static(b"H"),
            ChunkId::Block(block) => {
                let mut out = Vec::with_capacity(9);
                out.push(b'B');
                out.extend_from_slice(&block.to_be_bytes());
                Bytes::from(out)
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<ChunkId> {
        match bytes.split_first()? {
            (b'H', []) => Some(ChunkId::Head),
            (b'B', rest) => {
                let block = u64::from_be_bytes(rest.try_into().ok()?);
                (block <= OFFSET_MAX >> BLOCK_BITS).then_some(ChunkId::Block(block))
            }
            _ => None,
        }
    }
}

/// The numbers of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Head {
    pub(crate) floor: u64,
    pub(crate) end: u64,
    /// Messages before this may have been handed out, whatever their marks say: builds before this one kept no more than that.
    pub(crate) handed_to: u64,
}

pub(crate) fn encode_head(head: &Head) -> Bytes {
    let mut w = BinWriter::new();
    w.u8(VERSION);
    for value in [head.floor, head.end - head.floor, head.handed_to] {
        w.var(value);
    }
    Bytes::from(w.out)
}

pub(crate) fn decode_head(bytes: &[u8]) -> Result<Head, LeaseError> {
    let mut r = BinReader::new(bytes);
    version(&mut r)?;
    let floor = offset(&mut r, "floor")?;
    let end = offset(&mut r, "end")?.saturating_add(floor);
    let handed_to = offset(&mut r, "position handed out to")?;
    r.end("head")?;
    if end <= OFFSET_MAX { Ok(Head { floor, end, handed_to }) } else { Err(LeaseError::Damaged { what: "end" }) }
}

/// What starts in a block; `None` when nothing does.
pub(crate) fn encode_block(block: u64, marks: &[Run<Mark>], classes: &[Run<Class>]) -> Option<Bytes> {
    if marks.is_empty() && classes.is_empty() {
        return None;
    }
    let mut w = BinWriter::new();
    w.u8(VERSION);
    let mut before = block << BLOCK_BITS;
    w.var(marks.len() as u64);
    for run in marks {
        encode_run(run, &mut before, &mut w);
        encode_mark(&run.value, &mut w);
    }
    before = block << BLOCK_BITS;
    w.var(classes.len() as u64);
    for run in classes {
        encode_run(run, &mut before, &mut w);
        encode_class(&run.value, &mut w);
    }
    Some(Bytes::from(w.out))
}

/// The marks and the classes that start in a block.
pub(crate) type Block = (Vec<Run<Mark>>, Vec<Run<Class>>);

pub(crate) fn decode_block(block: u64, bytes: &[u8]) -> Result<Block, LeaseError> {
    let mut r = BinReader::new(bytes);
    version(&mut r)?;
    let marks = decode_runs(block, &mut r, decode_mark)?;
    let classes = decode_runs(block, &mut r, decode_class)?;
    r.end("block")?;
    if marks.iter().any(|run| run.value == Mark::OPEN) {
        return Err(LeaseError::Damaged { what: "mark" });
    }
    Ok((marks, classes))
}

fn decode_runs<V>(
    block: u64,
    r: &mut BinReader<'_>,
    value: impl Fn(&mut BinReader<'_>) -> Result<V, LeaseError>,
) -> Result<Vec<Run<V>>, LeaseError> {
    let count = count(r, "count of ranges")?;
    let mut before = block << BLOCK_BITS;
    let mut runs = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (start, end) = decode_run(&mut before, r)?;
        if start >> BLOCK_BITS != block {
            return Err(LeaseError::Damaged { what: "start of a range" });
        }
        runs.push(Run { start, end, value: value(r)? });
    }
    Ok(runs)
}
