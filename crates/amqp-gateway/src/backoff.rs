//! Exponential backoff of retries.

/// Delays that double from the shortest to the longest, until a success resets them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Backoff {
    /// The last delay; 0 before the first one.
    wait_ms: u64,
}

/// The shortest and the longest delay. Milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) min_ms: u64,
    pub(crate) max_ms: u64,
}

impl Backoff {
    /// An attempt failed: returns the delay before the next one. Milliseconds.
    pub(crate) fn failed(&mut self, delays: Delays) -> u64 {
        self.wait_ms = self.wait_ms.saturating_mul(2).clamp(delays.min_ms, delays.max_ms);
        self.wait_ms
    }

    /// An attempt succeeded: the next delay is the shortest again.
    pub(crate) fn succeeded(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_restart_after_a_success() {
        let (mut backoff, delays) = (Backoff::default(), Delays { min_ms: 10, max_ms: 50 });
        assert_eq!([0; 5].map(|_| backoff.failed(delays)), [10, 20, 40, 50, 50]);
        backoff.succeeded();
        assert_eq!(backoff, Backoff::default());
        assert_eq!(backoff.failed(delays), 10);
    }
}
