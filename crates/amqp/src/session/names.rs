//! Names that the server generates, and the cleaning of names that clients send.

use crate::codec::ShortStr;
use bytes::{Bytes, BytesMut};

/// Generates names that do not repeat. They are not secret: reply addresses come from the broker.
#[derive(Debug)]
pub(super) struct Names {
    state: [u64; 2],
}

impl Names {
    /// Makes a generator; different seeds generate different names.
    pub(super) fn new(seed: u128) -> Names {
        Names { state: [seed as u64, (seed >> 64) as u64] }
    }

    /// One step of SplitMix64 on one half of the state.
    fn next(&mut self, half: usize) -> u64 {
        let state = &mut self.state[half & 1];
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns `prefix-` and 16 bytes in URL-safe base64 without padding, as RabbitMQ does: `amq.gen-Xa2...`.
    pub(super) fn make(&mut self, prefix: &str) -> ShortStr {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        const DIGITS: u32 = 22;
        let bits = u128::from(self.next(0)) << 64 | u128::from(self.next(1));
        let digit = |at: u32| {
            // 21 digits of 6 bits and one of 2.
            let value = if at < 21 { bits >> (122 - 6 * at) } else { bits << 4 };
            char::from(ALPHABET[(value & 63) as usize])
        };
        let mut name = String::with_capacity(prefix.len() + 1 + DIGITS as usize);
        name.push_str(prefix);
        name.push('-');
        name.extend((0..DIGITS).map(digit));
        name.into()
    }
}

/// Removes line breaks from a name: clients that read names from files send them.
pub(super) fn without_line_breaks(name: &ShortStr) -> ShortStr {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if !name.iter().any(is_break) {
        return name.clone();
    }
    let kept: BytesMut = name.iter().copied().filter(|byte| !is_break(byte)).collect();
    ShortStr::cut(Bytes::from(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_look_like_rabbitmqs_and_do_not_repeat() {
        let mut names = Names::new(7);
        let made: std::collections::BTreeSet<_> = (0..1000).map(|_| names.make("amq.gen")).collect();
        assert_eq!(made.len(), 1000);
        for name in &made {
            assert_eq!(name.len(), "amq.gen-".len() + 22);
            assert!(name.starts_with(b"amq.gen-"));
        }
        assert!(!made.contains(&Names::new(8).make("amq.gen")));
        assert_eq!(Names::new(7).make("x"), Names::new(7).make("x"));
    }
}
