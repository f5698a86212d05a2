//! How long to wait before something is tried again.

/// Waits that double from the shortest to the longest, until something worked. What is new has not waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Backoff {
    /// The last wait; 0 before the first one.
    wait_ms: u64,
}

/// The shortest wait and the longest one. Milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) min_ms: u64,
    pub(crate) max_ms: u64,
}

impl Backoff {
    /// It failed once more: how long to wait now. Milliseconds.
    pub(crate) fn failed(&mut self, waits: Waits) -> u64 {
        self.wait_ms = self.wait_ms.saturating_mul(2).clamp(waits.min_ms, waits.max_ms);
        self.wait_ms
    }

    /// It worked: the next wait is the shortest again.
    pub(crate) fn worked(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_when_it_worked() {
        let (mut backoff, waits) = (Backoff::default(), Waits { min_ms: 10, max_ms: 50 });
        assert_eq!([0; 5].map(|_| backoff.failed(waits)), [10, 20, 40, 50, 50]);
        backoff.worked();
        assert_eq!(backoff, Backoff::default());
        assert_eq!(backoff.failed(waits), 10);
    }
}
