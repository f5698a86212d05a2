//! How long to wait before a next attempt.

/// How the wait grows with the attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backoff {
    /// `step_ms` times the attempts (RabbitMQ's delayed retry), at most `max_ms`.
    Linear {
        /// The first wait, and what each further attempt adds. Milliseconds.
        step_ms: u64,
        /// The longest wait. Milliseconds.
        max_ms: u64,
    },
    /// `first_ms`, then `factor` times as long each time, at most `max_ms`.
    Exponential {
        /// The first wait. Milliseconds.
        first_ms: u64,
        /// 1 for waits that are all the same.
        factor: u8,
        /// The longest wait. Milliseconds.
        max_ms: u64,
    },
}

impl Backoff {
    /// The wait after so many failed attempts, in milliseconds; none after none.
    #[must_use]
    pub fn delay_ms(self, attempts: u32) -> u64 {
        if attempts == 0 {
            return 0;
        }
        match self {
            Backoff::Linear { step_ms, max_ms } => step_ms.saturating_mul(u64::from(attempts)).min(max_ms),
            Backoff::Exponential { first_ms, factor, max_ms } => {
                first_ms.saturating_mul(u64::from(factor).saturating_pow(attempts - 1)).min(max_ms)
            }
        }
    }
}

/// Which messages that come back wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RetryOn {
    /// All of them.
    #[default]
    All,
    /// Those whose delivery failed.
    Failed,
    /// Those that were handed back without having failed.
    Returned,
}

/// How messages that come back wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Which.
    pub on: RetryOn,
    /// The delay, longer with each failure. Without a failure it is that of the first.
    pub backoff: Backoff,
}

impl Retry {
    /// How long a message waits that failed so often, and whether it comes back because it did. Milliseconds.
    #[must_use]
    pub fn delay_ms(self, failed: bool, failures: u32) -> u64 {
        match (self.on, failed) {
            (RetryOn::Failed, false) | (RetryOn::Returned, true) => 0,
            _ => self.backoff.delay_ms(failures.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_not_beyond() {
        let linear = Backoff::Linear { step_ms: 100, max_ms: 350 };
        assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(|n| linear.delay_ms(n)), [0, 100, 200, 300, 350, 350]);
        let exponential = Backoff::Exponential { first_ms: 100, factor: 2, max_ms: 1000 };
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 64, 65, u32::MAX].map(|n| exponential.delay_ms(n)),
            [0, 100, 200, 400, 800, 1000, 1000, 1000, 1000]
        );
        let endless = Backoff::Exponential { first_ms: 3, factor: 2, max_ms: u64::MAX };
        assert_eq!(endless.delay_ms(64), u64::MAX);
        assert_eq!(Backoff::Linear { step_ms: u64::MAX, max_ms: u64::MAX }.delay_ms(9), u64::MAX);
        assert_eq!(Backoff::Exponential { first_ms: 0, factor: 2, max_ms: 5 }.delay_ms(9), 0);
    }

    #[test]
    fn only_those_wait_that_are_meant() {
        let backoff = Backoff::Linear { step_ms: 100, max_ms: 350 };
        for (on, failed, returned) in [(RetryOn::All, 200, 100), (RetryOn::Failed, 200, 0), (RetryOn::Returned, 0, 100)]
        {
            let retry = Retry { on, backoff };
            assert_eq!((retry.delay_ms(true, 2), retry.delay_ms(false, 0)), (failed, returned), "{on:?}");
        }
        assert_eq!(Retry { on: RetryOn::All, backoff }.delay_ms(false, 3), 300, "it failed before");
    }
}
