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
    /// `first_ms`, then twice as long each time, at most `max_ms`.
    Exponential {
        /// The first wait. Milliseconds.
        first_ms: u64,
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
            Backoff::Exponential { first_ms, max_ms } => {
                let factor = 1u64.checked_shl(attempts - 1).unwrap_or(u64::MAX);
                first_ms.saturating_mul(factor).min(max_ms)
            }
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
        let exponential = Backoff::Exponential { first_ms: 100, max_ms: 1000 };
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 64, 65, u32::MAX].map(|n| exponential.delay_ms(n)),
            [0, 100, 200, 400, 800, 1000, 1000, 1000, 1000]
        );
        let endless = Backoff::Exponential { first_ms: 3, max_ms: u64::MAX };
        assert_eq!(endless.delay_ms(64), u64::MAX);
        assert_eq!(Backoff::Linear { step_ms: u64::MAX, max_ms: u64::MAX }.delay_ms(9), u64::MAX);
        assert_eq!(Backoff::Exponential { first_ms: 0, max_ms: 5 }.delay_ms(9), 0);
    }
}
