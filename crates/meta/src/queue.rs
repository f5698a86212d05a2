//! What makes a topic's partitions queues, as it stands in records: see the drawing in [`crate::record`].

use crate::record::optional;
use polylogue_api::{ConsumerMode, Overflow, QueueSettings};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Backoff, Retry, RetryOn};

const KEY_ORDER: u8 = 1;
const WHOLE_ENTRIES: u8 = 2;
const EARLY: u8 = 4;
const DEAD_LETTERS: u8 = 8;
const KEEPS_SETTLED: u8 = 16;
/// The largest factor of an exponential back-off that a record holds.
const FACTOR_MAX: u8 = 15;
const KNOWN: u8 = KEY_ORDER | WHOLE_ENTRIES | EARLY | DEAD_LETTERS | KEEPS_SETTLED;

/// ```text
///   back-off   | u4 factor, 0 for 2 | u2 on: 0 all, 1 failed, 2 returned | u2 kind: 0 none, 1 linear, 2 exponential |
/// ```
fn encode_retry(retry: Retry) -> (u8, u64, u64) {
    let on = match retry.on {
        RetryOn::All => 0,
        RetryOn::Failed => 1,
        RetryOn::Returned => 2,
    };
    let (kind, factor, first, longest_ms) = match retry.backoff {
        Backoff::Linear { step_ms, max_ms } => (1, 0, step_ms, max_ms),
        Backoff::Exponential { first_ms, factor, max_ms } => (2, factor.clamp(1, FACTOR_MAX), first_ms, max_ms),
    };
    (factor << 4 | on << 2 | kind, first, longest_ms)
}

fn decode_retry(backoff: u8, first: u64, max_ms: u64) -> Result<Option<Retry>, BinError> {
    let wrong = BinError { field: "queue back-off" };
    let on = match backoff >> 2 & 3 {
        0 => RetryOn::All,
        1 => RetryOn::Failed,
        2 => RetryOn::Returned,
        _ => return Err(wrong),
    };
    let backoff = match (backoff & 3, backoff >> 4) {
        (0, 0) if on == RetryOn::All => return Ok(None),
        (1, 0) => Backoff::Linear { step_ms: first, max_ms },
        (2, 0) => Backoff::Exponential { first_ms: first, factor: 2, max_ms },
        (2, factor) => Backoff::Exponential { first_ms: first, factor, max_ms },
        _ => return Err(wrong),
    };
    Ok(Some(Retry { on, backoff }))
}

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
    let (backoff, first, longest_ms) = q.retry.map_or((0, 0, 0), encode_retry);
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
    let retry = decode_retry(backoff, first, longest_ms)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_comes_out_as_it_went_in() {
        let linear = Backoff::Linear { step_ms: 3, max_ms: 9 };
        let times = |factor| Backoff::Exponential { first_ms: 3, factor, max_ms: 9 };
        for backoff in [linear, times(1), times(2), times(FACTOR_MAX)] {
            for on in [RetryOn::All, RetryOn::Failed, RetryOn::Returned] {
                let retry = Retry { on, backoff };
                let (kind, first, longest_ms) = encode_retry(retry);
                assert_eq!(decode_retry(kind, first, longest_ms), Ok(Some(retry)));
            }
        }
        assert_eq!(decode_retry(0, 0, 0), Ok(None));
        let before = Retry { on: RetryOn::All, backoff: times(2) };
        assert_eq!(decode_retry(2, 3, 9), Ok(Some(before)), "as it was written before there were factors");
        for wrong in [3, 4, 12, 16, 17] {
            assert!(decode_retry(wrong, 3, 9).is_err(), "{wrong}");
        }
    }
}
