//! The payload of a measured message: a stamp and filler.
//!
//! ```text
//!    0                 8                 16        20                        message_bytes
//!   +-----------------+-----------------+---------+----------------------------+
//!   | intended time   | sequence        | producer| filler that does not       |   numbers big endian
//!   | u64, Unix ns    | u64             | u32     | compress                   |
//!   +-----------------+-----------------+---------+----------------------------+
//! ```
//!
//! A producer numbers the messages of each partition from 0 on, so that a reader of the partition detects missing, duplicated and
//! out-of-order messages without further information. The drivers of all languages write this format.

use crate::contract::Payloads;
use crate::error::{BenchError, Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylogue_env::Rng;

/// Size of the stamp, the minimum message size. Bytes.
pub const STAMP_BYTES: usize = 20;

/// The stamp of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// When the message was due. Unix nanoseconds.
    pub intended_ns: u64,
    /// Its number among its producer's messages of its partition, from 0 on.
    pub sequence: u64,
    /// The number of its producer.
    pub producer: u32,
}

impl Stamp {
    /// Encodes the stamp.
    #[must_use]
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        let fields = [&self.intended_ns.to_be_bytes()[..], &self.sequence.to_be_bytes(), &self.producer.to_be_bytes()];
        for (place, byte) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *place = *byte;
        }
        bytes
    }

    /// Returns the stamp at the front of a message. `None` if the message is too short.
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

/// Fills `into` with incompressible bytes. The same seed gives the same bytes (xorshift64*).
pub fn fill(into: &mut [u8], seed: u64) {
    // Not zero, and distinct for each seed except for its highest bit.
    let mut state = seed << 1 | 1;
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

/// Fills a message with the requested contents. The stamp is written over its front later.
///
/// # Errors
/// A given message is invalid base64 or has another length.
pub fn fill_as(into: &mut [u8], payloads: Option<&Payloads>, seed: u64) -> Result<()> {
    let Some(payloads) = payloads else {
        fill(into, seed);
        return Ok(());
    };
    if let Some(text) = &payloads.message {
        let message = STANDARD.decode(text).context(|| "the given message is invalid base64".to_owned())?;
        if message.len() != into.len() {
            let (given, wanted) = (message.len(), into.len());
            return Err(BenchError::new(format!("the given message has {given} bytes instead of {wanted}")));
        }
        into.copy_from_slice(&message);
        return Ok(());
    }
    let random = into.len() as u64 * u64::from(payloads.random_per_mille) / 1_000;
    let (random, zero) = into.split_at_mut(usize::try_from(random).unwrap_or(usize::MAX).min(into.len()));
    // At most `pool` distinct messages.
    fill(random, seed.checked_rem(u64::from(payloads.pool)).unwrap_or(seed));
    zero.fill(0);
    Ok(())
}

/// Returns a random seed.
#[must_use]
pub fn seed() -> u64 {
    polylogue_env::RealRng.next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_round_trips() {
        let stamp = Stamp { intended_ns: 1_763_000_000_123_456_789, sequence: 0x0102_0304_0506_0708, producer: 9 };
        let bytes = stamp.to_bytes();
        assert_eq!(Stamp::read(&bytes), Some(stamp));
        assert_eq!(&bytes[8..], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9]);
        assert_eq!(Stamp::read(&bytes[..STAMP_BYTES - 1]), None);
    }

    #[test]
    fn a_message_has_the_requested_contents() {
        let mut message = vec![7; 1_000];
        let some = Payloads { random_per_mille: 250, pool: 3, message: None };
        fill_as(&mut message, Some(&some), 9).expect("it is filled");
        assert!(message[250..].iter().all(|byte| *byte == 0) && message[..250].iter().any(|byte| *byte != 0));
        let kinds = |pool| {
            let of = |seed| {
                let mut message = vec![0; 100];
                fill_as(&mut message, Some(&Payloads { pool, ..some.clone() }), seed).expect("it is filled");
                message
            };
            (0..100).map(of).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((kinds(3), kinds(0)), (3, 100), "consecutive seeds are different messages");
        let given = Payloads { message: Some(STANDARD.encode(b"twenty bytes of text")), ..some };
        let mut message = vec![0; 20];
        fill_as(&mut message, Some(&given), 1).expect("it is filled");
        assert_eq!(message, b"twenty bytes of text");
        let stated = fill_as(&mut [0; 21], Some(&given), 1).expect_err("another length").to_string();
        assert!(stated.contains("20 bytes") && stated.contains("21"), "{stated}");
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
