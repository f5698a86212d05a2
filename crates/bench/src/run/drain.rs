//! The time for a lagging reader to catch up.

use crate::contract::Second;

/// Returns when a share of a backlog had been read, from the start; `None` if it never was. Seconds; interpolated within a
/// second.
pub(crate) fn drained_s(seconds: &[Second], backlog: u64, share: f64) -> Option<f64> {
    let wanted = (backlog as f64 * share).ceil() as u64;
    let mut before = 0;
    for second in seconds {
        let after = before + second.received;
        if after >= wanted {
            return Some(second.second as f64 + (wanted - before) as f64 / second.received.max(1) as f64);
        }
        before = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_drained_within_the_second_that_reads_the_last_of_it() {
        let seconds: Vec<Second> = [0, 100, 100, 50]
            .into_iter()
            .zip(0..)
            .map(|(received, second)| Second { second, received, ..Second::default() })
            .collect();
        assert_eq!(drained_s(&seconds, 150, 1.0), Some(2.5));
        assert_eq!(drained_s(&seconds, 200, 1.0), Some(3.0));
        assert_eq!(drained_s(&seconds, 200, 0.5), Some(2.0));
        assert_eq!(drained_s(&seconds, 251, 1.0), None);
        assert_eq!(drained_s(&[], 1, 1.0), None);
    }
}
