//! What makes a topic's partitions queues, as it stands in records: see the drawing in [`crate::record`].

use crate::record::optional;
use polylogue_api::{ConsumerMode, Overflow, QueueSettings};
use polylogue_types::Backoff;
use polylogue_types::bin::{BinError, BinReader, BinWriter};

const KEY_ORDER: u8 = 1;
const WHOLE_ENTRIES: u8 = 2;
const EARLY: u8 = 4;
const DEAD_LETTERS: u8 = 8;
const KEEPS_SETTLED: u8 = 16;
const KNOWN: u8 = KEY_ORDER | WHOLE_ENTRIES | EARLY | DEAD_LETTERS | KEEPS_SETTLED;

pub(crate) fn encode_queue(q: &QueueSettings, w: &mut BinWriter) {
    let mode = match q.mode {
        ConsumerMode::Competing => 0,
        ConsumerMode::SingleActive => 1,
        ConsumerMode::Preempting => 2,
        ConsumerMode::Readers => 3,
    };
    let overflow = match q.overflow {
        Overflow::DropHead => 0,
        Overflow::Reject => 1,
        Overflow::RejectDead => 2,
    };
    let flags = [
        (q.key_order, KEY_ORDER),
        (q.whole_entries, WHOLE_ENTRIES),
        (q.early, EARLY),
        (q.dead_letters, DEAD_LETTERS),
        (q.keeps_settled, KEEPS_SETTLED),
    ];
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
    let (backoff, first, longest_ms) = match q.retry {
        None => (0, 0, 0),
        Some(Backoff::Linear { step_ms, max_ms }) => (1, step_ms, max_ms),
        Some(Backoff::Exponential { first_ms, max_ms }) => (2, first_ms, max_ms),
    };
    w.u8(mode).u8(overflow).u8(flags).i64(optional(q.failures_max.map(u64::from)));
    w.i64(optional(q.length_max)).i64(optional(q.bytes_max)).u8(backoff).u64(first).u64(longest_ms);
}

pub(crate) fn decode_queue(r: &mut BinReader<'_>) -> Result<QueueSettings, BinError> {
    let mode = match r.u8("queue mode")? {
        0 => ConsumerMode::Competing,
        1 => ConsumerMode::SingleActive,
        2 => ConsumerMode::Preempting,
        3 => ConsumerMode::Readers,
        _ => return Err(BinError { field: "queue mode" }),
    };
    let overflow = match r.u8("queue overflow")? {
        0 => Overflow::DropHead,
        1 => Overflow::Reject,
        2 => Overflow::RejectDead,
        _ => return Err(BinError { field: "queue overflow" }),
    };
    let flags = r.u8("queue flags")?;
    if flags & !KNOWN != 0 {
        return Err(BinError { field: "queue flags" });
    }
    let failures = r.i64("queue failures")?;
    let failures_max = match u64::try_from(failures) {
        Err(_) => None,
        Ok(max) => Some(u16::try_from(max).map_err(|_| BinError { field: "queue failures" })?),
    };
    let length_max = u64::try_from(r.i64("queue length")?).ok();
    let bytes_max = u64::try_from(r.i64("queue bytes")?).ok();
    let (backoff, first, longest_ms) = (r.u8("queue back-off")?, r.u64("queue back-off")?, r.u64("queue back-off")?);
    let retry = match backoff {
        0 => None,
        1 => Some(Backoff::Linear { step_ms: first, max_ms: longest_ms }),
        2 => Some(Backoff::Exponential { first_ms: first, max_ms: longest_ms }),
        _ => return Err(BinError { field: "queue back-off" }),
    };
    Ok(QueueSettings {
        mode,
        key_order: flags & KEY_ORDER != 0,
        whole_entries: flags & WHOLE_ENTRIES != 0,
        early: flags & EARLY != 0,
        dead_letters: flags & DEAD_LETTERS != 0,
        failures_max,
        retry,
        length_max,
        bytes_max,
        overflow,
        keeps_settled: flags & KEEPS_SETTLED != 0,
    })
}
