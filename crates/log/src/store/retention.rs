//! How much of a partition is past its retention. Pure functions: the broker writes what comes out as records, and the
//! records trim.

use super::index::RunAge;
use polylogue_types::{Offset, TimestampMs};

/// What a partition keeps. Runs are let go whole, so a little more stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// Messages older than this go; `None` keeps them for ever. Milliseconds.
    pub ms: Option<u64>,
    /// The oldest go while more than this would stay; `None` is no bound. Bytes.
    pub bytes: Option<u64>,
}

/// Segments of one class span at most this share of the retention time of their class when they become one.
const SPAN_SHARE: u64 = 8;

/// The class of partitions that keep messages for so long (`None`: for ever). Those of one class share segments, because they
/// live about equally long: class `c` keeps them for at least 2^(c-1) minutes and less than 2^c; class 0 less than one.
#[must_use]
pub fn retention_class(ms: Option<u64>) -> u8 {
    ms.map_or(u8::MAX, |ms| (u64::BITS - (ms / 60_000).leading_zeros()) as u8)
}

/// From when to when the runs of one segment may have been appended after several became one, in seconds: so little of what
/// the class keeps that nothing stays much longer for it. `None` for a class whose segments are gone before it would pay.
pub(super) fn span_max_s(class: u8) -> Option<u32> {
    let minutes = 1u64.checked_shl(u32::from(class).checked_sub(1)?).unwrap_or(u64::MAX);
    Some(u32::try_from(minutes.saturating_mul(60) / SPAN_SHARE).unwrap_or(u32::MAX))
}

/// Where a partition should start: after the last of its oldest runs that are too old, or that are in excess. `total` is the
/// partition's size in bytes; `runs` come oldest first; `None` when nothing goes.
///
/// A run is too old when its newest message is. It is in excess when the bound would be kept without it (so at least the
/// bound stays, as in Kafka).
pub fn new_start(now: TimestampMs, keep: Retention, total: u64, runs: impl Iterator<Item = RunAge>) -> Option<Offset> {
    let mut total = total;
    let mut start = None;
    for run in runs {
        let age = u64::try_from(now.saturating_sub(run.newest)).unwrap_or(0);
        let old = keep.ms.is_some_and(|ms| age > ms);
        let excess = keep.bytes.is_some_and(|bytes| total.saturating_sub(run.bytes) >= bytes);
        if !old && !excess {
            break;
        }
        total = total.saturating_sub(run.bytes);
        start = Some(run.end);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Vec<RunAge> {
        [(10, 100, 1_000), (20, 100, 5_000), (30, 100, 3_000), (40, 100, 9_000)]
            .map(|(end, bytes, newest)| RunAge { end: Offset(end), bytes, newest })
            .to_vec()
    }

    fn start(now: TimestampMs, ms: Option<u64>, bytes: Option<u64>) -> Option<u64> {
        new_start(now, Retention { ms, bytes }, 400, runs().into_iter()).map(|o| o.0)
    }

    #[test]
    fn by_time_the_first_young_run_stops() {
        assert_eq!(start(10_000, None, None), None);
        assert_eq!(start(10_000, Some(9_000), None), None);
        assert_eq!(start(10_001, Some(9_000), None), Some(10));
        assert_eq!(start(10_000, Some(4_999), None), Some(30));
        assert_eq!(start(10_000, Some(0), None), Some(40));
        assert_eq!(start(i64::MIN, Some(0), None), None);
    }

    #[test]
    fn a_class_knows_how_long_it_keeps() {
        let classes = [None, Some(0), Some(59_999), Some(60_000), Some(119_999), Some(120_000), Some(u64::MAX)];
        assert_eq!(classes.map(retention_class), [u8::MAX, 0, 0, 1, 1, 2, 49]);
        assert_eq!(retention_class(Some(7 * 24 * 3_600_000)), 14);
        let day = 24 * 3_600;
        assert!(span_max_s(14).is_some_and(|span| span < day && span > day / 2));
        assert_eq!(
            (span_max_s(0), span_max_s(1), span_max_s(64), span_max_s(255)),
            (None, Some(7), Some(u32::MAX), Some(u32::MAX))
        );
    }

    #[test]
    fn by_size_at_least_the_bound_stays() {
        assert_eq!(start(0, None, Some(400)), None);
        assert_eq!(start(0, None, Some(301)), None);
        assert_eq!(start(0, None, Some(300)), Some(10));
        assert_eq!(start(0, None, Some(1)), Some(30));
        assert_eq!(start(0, None, Some(0)), Some(40));
        assert_eq!(start(10_001, Some(9_000), Some(200)), Some(20));
    }
}
