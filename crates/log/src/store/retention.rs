//! How much of a partition nobody wants any more. Pure functions: the broker writes what comes out as records, and the
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
    fn by_size_at_least_the_bound_stays() {
        assert_eq!(start(0, None, Some(400)), None);
        assert_eq!(start(0, None, Some(301)), None);
        assert_eq!(start(0, None, Some(300)), Some(10));
        assert_eq!(start(0, None, Some(1)), Some(30));
        assert_eq!(start(0, None, Some(0)), Some(40));
        assert_eq!(start(10_001, Some(9_000), Some(200)), Some(20));
    }
}
