//! Random numbers that repeat.

use crate::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The odd number that splitmix64 steps by.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64's finisher: every bit of the result depends on every bit of `x`.
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// splitmix64 behind a shared handle: clones draw from one stream.
#[derive(Clone, Debug)]
pub struct SimRng {
    state: Arc<AtomicU64>,
}

impl SimRng {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SimRng {
        SimRng { state: Arc::new(AtomicU64::new(seed)) }
    }

    /// A stream of its own for the part of the world called `label`, so that what one part draws does not move what
    /// another gets. Draws nothing from this stream.
    #[must_use]
    pub fn derive(seed: u64, label: &str) -> SimRng {
        let folded = label.bytes().fold(mix(seed ^ STEP), |h, b| mix(h ^ u64::from(b)));
        SimRng::new(folded)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        // The high half of the product: its bias is at most bound / 2^64.
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// True in `per_million` of a million cases.
    #[must_use]
    pub fn chance(&self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }
}

impl Rng for SimRng {
    fn fill(&self, into: &mut [u8]) {
        for part in into.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    fn next_u64(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // The first outputs of the reference implementation for the seed 1234567.
        let rng = SimRng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn labels_give_streams_that_repeat_and_differ() {
        let draw = |label| SimRng::derive(7, label).next_u64();
        assert_eq!(draw("disk"), draw("disk"));
        assert_ne!(draw("disk"), draw("ids"));
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let rng = SimRng::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn clones_share_one_stream() {
        let a = SimRng::new(3);
        let b = a.clone();
        let first = a.next_u64();
        assert_ne!(first, b.next_u64());
        assert_eq!(first, SimRng::new(3).next_u64());
    }
}
