//! How long to wait before a next attempt.

/// How the wait grows with the attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backoff {
    /// `step_ms` times the attempts (RabbitMQ's delayed retry), at most `max_ms`.
    Linear {
        /// The first wait, and what each further attempt adds.
        step_ms: u64,
        /// The longest wait.
        max_ms: u64,
    },
    /// `first_ms`, then twice as long each time, at most `max_ms`.
    Exponential {
        /// The first wait.
        first_ms: u64,
        /// The longest wait.
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

    /// As [`Backoff::delay_ms`], shortened by up to `percent` (100 at most) of it, after a random number: so that what failed together
    /// does not come back together.
    #[must_use]
    pub fn jittered_ms(self, attempts: u32, percent: u8, random: u64) -> u64 {
        let delay = self.delay_ms(attempts);
        let most = u128::from(delay) * u128::from(percent.min(100)) / 100;
        // The random number as a share of the whole range: no division, no bias to speak of.
        let less = (u128::from(random) * (most + 1)) >> 64;
        delay - u64::try_from(less).unwrap_or(delay)
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

    #[test]
    fn jitter_shortens_by_no_more_than_its_share() {
        let fixed = Backoff::Linear { step_ms: 1000, max_ms: 1000 };
        assert_eq!(fixed.jittered_ms(1, 0, u64::MAX), 1000);
        assert_eq!(fixed.jittered_ms(1, 20, 0), 1000);
        assert_eq!(fixed.jittered_ms(1, 20, u64::MAX), 800);
        assert_eq!(fixed.jittered_ms(1, 255, u64::MAX), 0);
        let endless = Backoff::Exponential { first_ms: u64::MAX, max_ms: u64::MAX };
        assert_eq!(endless.jittered_ms(7, 100, u64::MAX), 0);
    }
}
