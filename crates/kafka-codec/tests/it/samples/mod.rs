//! Random messages from a seed, for the codec's tests.

mod generated;

use bytes::Bytes;
use polylogue_kafka_codec::{Records, StrBytes};
use polylogue_types::TopicId;

/// A type with random samples, in which every field of `version` is set.
pub(crate) trait Sample {
    /// Makes a sample.
    fn sample(g: &mut Gen, version: i16) -> Self;
}

/// A seeded generator of values.
#[derive(Debug)]
pub(crate) struct Gen(u64);

impl Gen {
    /// Starts from a seed.
    pub(crate) fn new(seed: u64) -> Gen {
        Gen(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn number<T: Number>(&mut self) -> T {
        T::of(self.next())
    }

    pub(crate) fn uuid(&mut self) -> TopicId {
        TopicId((u128::from(self.next()) << 64 | u128::from(self.next())).to_be_bytes())
    }

    /// Contains characters of all UTF-8 widths; sometimes long enough for a compact length of two bytes.
    pub(crate) fn string(&mut self) -> StrBytes {
        let len = if self.below(15) == 0 { 200 } else { self.below(8) };
        let letters = ['a', 'Z', '7', '.', 'é', 'Ж', '水', '😀'];
        StrBytes::from((0..len).map(|_| letters[self.below(letters.len())]).collect::<String>())
    }

    pub(crate) fn bytes(&mut self) -> Bytes {
        let len = if self.below(10) == 0 { 1000 } else { self.below(30) };
        Bytes::from((0..len).map(|_| self.next() as u8).collect::<Vec<u8>>())
    }

    pub(crate) fn records(&mut self) -> Records {
        Records::from(self.bytes())
    }

    pub(crate) fn array<T>(&mut self, mut element: impl FnMut(&mut Gen) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| element(self)).collect()
    }

    pub(crate) fn opt<T>(&mut self, nullable: bool, value: impl FnOnce(&mut Gen) -> T) -> Option<T> {
        if nullable && self.below(4) == 0 { None } else { Some(value(self)) }
    }
}

/// A number type of the protocol.
pub(crate) trait Number {
    /// Makes a number from `bits`.
    fn of(bits: u64) -> Self;
}

macro_rules! number {
    ($($kind:ty)*) => {
        $(impl Number for $kind {
            fn of(bits: u64) -> $kind {
                bits as $kind
            }
        })*
    };
}

number!(i8 i16 u16 i32 u32 i64);

impl Number for bool {
    fn of(bits: u64) -> bool {
        bits & 1 == 1
    }
}

/// Never a NaN, which does not equal itself.
impl Number for f64 {
    fn of(bits: u64) -> f64 {
        i32::of(bits).into()
    }
}
