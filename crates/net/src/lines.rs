//! Rate limit of log lines that clients can cause: beyond it lines are only counted.

/// Lines written in the current second.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The maximum per second.
    max: u32,
    second: u64,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// Limits to `max` per second.
    pub(crate) const fn new(max: u32) -> Lines {
        Lines { max, second: 0, written: 0, left_out: 0 }
    }

    /// Whether another line may be written; returns the number of lines dropped before it.
    pub(crate) fn next(&mut self, now_ms: u64) -> Option<u64> {
        let second = now_ms / 1_000;
        if self.second != second {
            (self.second, self.written) = (second, 0);
        }
        if self.written >= self.max {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_the_others_are_told() {
        let mut lines = Lines::new(5);
        let written: Vec<_> = (0..8).map(|_| lines.next(5_000)).collect();
        assert_eq!(written, [Some(0), Some(0), Some(0), Some(0), Some(0), None, None, None]);
        assert_eq!((lines.next(6_000), lines.next(6_001)), (Some(3), Some(0)));
    }
}
