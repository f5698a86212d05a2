//! A little-endian writer and a bounded reader for records and checkpoint chunks that polylogue itself writes.
//!
//! Every length is held against the bytes left before anything is allocated, because a damaged file is outside
//! input too.

use std::fmt;

/// What was wrong with the bytes: they ended early, or a value cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BinError {
    /// Which field was being read.
    pub field: &'static str,
}

impl fmt::Display for BinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}: too short or not a legal value", self.field)
    }
}

impl std::error::Error for BinError {}

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub struct BinWriter {
    /// What was written so far.
    pub out: Vec<u8>,
}

macro_rules! fixed {
    ($($name:ident: $ty:ty),*) => {
        impl BinWriter {
            $(
                #[doc = concat!("Appends a little-endian `", stringify!($ty), "`.")]
                pub fn $name(&mut self, value: $ty) -> &mut Self {
                    self.out.extend_from_slice(&value.to_le_bytes());
                    self
                }
            )*
        }

        impl BinReader<'_> {
            $(
                #[doc = concat!("Reads a little-endian `", stringify!($ty), "`.")]
                ///
                /// # Errors
                /// When the bytes end early.
                pub fn $name(&mut self, field: &'static str) -> Result<$ty, BinError> {
                    let bytes = self.take(size_of::<$ty>(), field)?;
                    let mut raw = [0; size_of::<$ty>()];
                    raw.copy_from_slice(bytes);
                    Ok(<$ty>::from_le_bytes(raw))
                }
            )*
        }
    };
}

fixed!(u8: u8, u16: u16, u32: u32, u64: u64, i16: i16, i32: i32, i64: i64);

impl BinWriter {
    /// An empty one.
    #[must_use]
    pub fn new() -> BinWriter {
        BinWriter::default()
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends a number in as few bytes as it needs, at most ten: seven bits a byte, the lowest first, the highest bit for "more follows".
    pub fn var(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
        self
    }

    /// Appends a `u32` length and the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        // A longer value cannot come from a bounded frame; cutting it short here would be silent damage.
        debug_assert!(u32::try_from(bytes.len()).is_ok());
        self.u32(bytes.len() as u32).raw(bytes)
    }

    /// Appends a string as [`BinWriter::bytes`].
    pub fn str(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }
}

/// Takes values off a slice.
#[derive(Clone, Copy, Debug)]
pub struct BinReader<'a> {
    left: &'a [u8],
}

impl<'a> BinReader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> BinReader<'a> {
        BinReader { left: bytes }
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.left.len()
    }

    /// Takes `len` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], BinError> {
        let (head, tail) = self.left.split_at_checked(len).ok_or(BinError { field })?;
        self.left = tail;
        Ok(head)
    }

    /// Takes a number that [`BinWriter::var`] wrote.
    ///
    /// # Errors
    /// When the bytes end early, or it has more than 64 bits.
    pub fn var(&mut self, field: &'static str) -> Result<u64, BinError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BinError { field })
    }

    /// Takes a `u32` length and that many bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], BinError> {
        let len = self.u32(field)? as usize;
        self.take(len, field)
    }

    /// Takes a string.
    ///
    /// # Errors
    /// When fewer bytes are left than its length says, or they are not UTF-8.
    pub fn str(&mut self, field: &'static str) -> Result<&'a str, BinError> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| BinError { field })
    }

    /// Takes a `u32` count of items that need at least `item_bytes_min` bytes each.
    ///
    /// # Errors
    /// When that many cannot be there.
    pub fn count(&mut self, item_bytes_min: usize, field: &'static str) -> Result<usize, BinError> {
        let count = self.u32(field)? as usize;
        if count > self.left.len() / item_bytes_min.max(1) {
            return Err(BinError { field });
        }
        Ok(count)
    }

    /// That nothing is left over.
    ///
    /// # Errors
    /// When something is.
    pub fn end(&self, field: &'static str) -> Result<(), BinError> {
        if self.left.is_empty() { Ok(()) } else { Err(BinError { field }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_are_short_and_too_long_ones_are_refused() {
        for (value, len) in [(0, 1), (0x7f, 1), (0x80, 2), (u64::from(u32::MAX), 5), (u64::MAX, 10)] {
            let mut w = BinWriter::new();
            w.var(value);
            assert_eq!(w.out.len(), len, "{value}");
            assert_eq!(BinReader::new(&w.out).var("number"), Ok(value));
            assert!(BinReader::new(&w.out[..len - 1]).var("number").is_err());
        }
        let mut beyond = [0xff; 10];
        beyond[9] = 2;
        assert!(BinReader::new(&beyond).var("number").is_err(), "65 bits");
    }

    #[test]
    fn a_count_beyond_the_bytes_left_is_refused_before_allocation() {
        let mut w = BinWriter::new();
        w.u32(u32::MAX);
        assert_eq!(BinReader::new(&w.out).count(1, "items"), Err(BinError { field: "items" }));
    }

    #[test]
    fn values_come_back() {
        let mut w = BinWriter::new();
        w.u8(7).i64(-1).str("topic").bytes(b"\0\xff");
        let mut r = BinReader::new(&w.out);
        assert_eq!((r.u8("a"), r.i64("b"), r.str("c"), r.bytes("d")), (Ok(7), Ok(-1), Ok("topic"), Ok(&b"\0\xff"[..])));
        assert!(r.end("all").is_ok());
    }
}
