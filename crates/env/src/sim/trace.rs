//! What happened, folded into one number, and on request kept as text.

use super::rng::mix;
use std::collections::VecDeque;

/// A running hash over all operations and their results; two runs did the same if they end with the same number.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    hash: u64,
    lines: VecDeque<String>,
    lines_max: usize,
}

impl Trace {
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Folds one operation: its name, what it was done to, its numbers, and how it ended.
    pub(super) fn note(&mut self, op: &str, on: &str, numbers: &[u64], ended: &str) {
        for text in [op, on, ended] {
            self.hash = mix(self.hash ^ hash_bytes(text.as_bytes()));
        }
        for number in numbers {
            self.hash = mix(self.hash ^ number);
        }
        if self.lines_max > 0 {
            if self.lines.len() >= self.lines_max {
                self.lines.pop_front();
            }
            self.lines.push_back(format!("{op} {on} {numbers:?} {ended}"));
        }
    }

    /// Keeps the last `lines_max` operations as text from now on.
    pub(super) fn keep(&mut self, lines_max: usize) {
        self.lines_max = lines_max;
        let over = self.lines.len().saturating_sub(lines_max);
        self.lines.drain(..over);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// A hash of bytes that is the same on every machine. Not for adversaries.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut h = bytes.len() as u64;
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        h = (h ^ u64::from_le_bytes(word)).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }
    mix(h)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_operation_counts() {
        let hash = |op, on: &str, numbers: &[u64], ended| {
            let mut trace = Trace::default();
            trace.note(op, on, numbers, ended);
            trace.hash()
        };
        let base = hash("write", "/a", &[1, 2], "ok");
        assert_eq!(base, hash("write", "/a", &[1, 2], "ok"));
        assert_ne!(base, hash("read", "/a", &[1, 2], "ok"));
        assert_ne!(base, hash("write", "/b", &[1, 2], "ok"));
        assert_ne!(base, hash("write", "/a", &[2, 1], "ok"));
        assert_ne!(base, hash("write", "/a", &[1, 2], "no"));
    }

    #[test]
    fn bytes_and_their_length_count() {
        assert_ne!(hash_bytes(b"\0"), hash_bytes(b"\0\0"));
        assert_ne!(hash_bytes(b"12345678a"), hash_bytes(b"12345678b"));
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut trace = Trace::default();
        trace.note("open", "/a", &[], "ok");
        trace.keep(2);
        for n in 0..3 {
            trace.note("read", "/a", &[n], "ok");
        }
        assert_eq!(trace.lines(), ["read /a [1] ok", "read /a [2] ok"]);
    }
}
