//! What is in a message.
//!
//! ```text
//!    0                 8                 16        20                        message_bytes
//!   +-----------------+-----------------+---------+----------------------------+
//!   | intended time   | sequence        | producer| filler that does not       |   numbers big endian
//!   | u64, Unix ns    | u64             | u32     | compress                   |
//!   +-----------------+-----------------+---------+----------------------------+
//! ```
//!
//! A producer counts the messages of each partition from 0 on, so that a reader of the partition finds what is missing, doubled
//! or out of place without being told anything. All drivers write this, in whatever language.

use polylogue_env::Rng;

/// Bytes of the stamp: the shortest message.
pub const STAMP_BYTES: usize = 20;

/// The stamp of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When it should have been sent. Unix nanoseconds.
    pub intended_ns: u64,
    /// Its number among its producer's messages of its partition, from 0 on.
    pub sequence: u64,
    /// The number of its producer.
    pub producer: u32,
}

impl Stamp {
    /// The bytes of the stamp.
    #[must_use]
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        let fields = [&self.intended_ns.to_be_bytes()[..], &self.sequence.to_be_bytes(), &self.producer.to_be_bytes()];
        for (place, byte) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *place = *byte;
        }
        bytes
    }

    /// The stamp at the front of a message; `None` when the message is too short to have one.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Stamp> {
        let (intended, rest) = message.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (producer, _) = rest.split_first_chunk()?;
        Some(Stamp {
            intended_ns: u64::from_be_bytes(*intended),
            sequence: u64::from_be_bytes(*sequence),
            producer: u32::from_be_bytes(*producer),
        })
    }
}

/// Fills `into` with bytes that no codec makes smaller. The same seed gives the same bytes (xorshift64*).
pub fn fill(into: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for piece in into.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        for (place, byte) in piece.iter_mut().zip(word) {
            *place = byte;
        }
    }
}

/// A seed that no other run has.
#[must_use]
pub fn seed() -> u64 {
    polylogue_env::RealRng.next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp { intended_ns: 1_763_000_000_123_456_789, sequence: 0x0102_0304_0506_0708, producer: 9 };
        let bytes = stamp.to_bytes();
        assert_eq!(Stamp::read(&bytes), Some(stamp));
        assert_eq!(&bytes[8..], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9]);
        assert_eq!(Stamp::read(&bytes[..STAMP_BYTES - 1]), None);
    }

    #[test]
    fn filler_does_not_repeat() {
        let mut filler = vec![0; 64 << 10];
        fill(&mut filler, 7);
        let mut seen: Vec<&[u8]> = filler.chunks(8).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), filler.len() / 8, "no word comes twice");
    }
}
