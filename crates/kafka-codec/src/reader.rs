//! Reading Kafka's primitive types from untrusted bytes.
//!
//! Every length and every count is held against the bytes that are left before anything is allocated or skipped, and
//! what the arrays of one frame take in memory is bounded. Strings, byte fields and records share the frame's memory.

use super::error::DecodeError;
use super::records::Records;
use super::{STRING_BYTES_MAX, StrBytes};
use bytes::Bytes;
use polylogue_types::TopicId;

/// What the arrays of any frame may take in memory, however short the frame. Bytes.
pub const ARRAY_BYTES_FREE: usize = 1 << 20;
/// What the arrays of a frame may take in memory beyond [`ARRAY_BYTES_FREE`], as a multiple of the frame's length.
///
/// An empty string is one byte on the wire and 32 in memory, so a frame made for the purpose would otherwise grow
/// thirty times. Real ones with many elements need about five times their length, because their strings are names.
pub const ARRAY_BYTES_FACTOR: usize = 8;

/// A position in a frame. The methods take the name of the field that is read, for the error.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
    pos: usize,
    end: usize,
    /// What arrays may still take in memory.
    budget: usize,
}

/// Where a [`Reader`] is.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pos: usize,
    end: usize,
    budget: usize,
}

impl Reader {
    /// Reads from the start of `bytes`. All that is read from them takes at most [`ARRAY_BYTES_FREE`] and
    /// [`ARRAY_BYTES_FACTOR`] times their length in memory, beside the bytes themselves.
    #[must_use]
    pub fn new(bytes: Bytes) -> Reader {
        let budget = bytes.len().saturating_mul(ARRAY_BYTES_FACTOR).saturating_add(ARRAY_BYTES_FREE);
        Reader { pos: 0, end: bytes.len(), bytes, budget }
    }

    /// Bytes that are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.end - self.pos
    }

    /// All that is left, sharing the frame's memory.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.bytes.slice(self.pos..self.end)
    }

    /// Holds that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::TrailingBytes`].
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            remaining => Err(DecodeError::TrailingBytes { remaining }),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { pos: self.pos, end: self.end, budget: self.budget }
    }

    /// Goes back to where it was.
    pub fn rewind(&mut self, mark: Mark) {
        (self.pos, self.end, self.budget) = (mark.pos, mark.end, mark.budget);
    }

    fn ended(&self, field: &'static str, needed: usize) -> DecodeError {
        DecodeError::UnexpectedEnd { field, needed, remaining: self.remaining() }
    }

    #[inline]
    fn fixed<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let left = self.bytes.get(self.pos..self.end).unwrap_or_default();
        let Some(value) = left.first_chunk::<N>() else {
            return Err(self.ended(field, N));
        };
        let value = *value;
        self.pos += N;
        Ok(value)
    }

    #[inline]
    fn take(&mut self, field: &'static str, len: usize) -> Result<Bytes, DecodeError> {
        if len > self.remaining() {
            return Err(self.ended(field, len));
        }
        let taken = self.bytes.slice(self.pos..self.pos + len);
        self.pos += len;
        Ok(taken)
    }

    /// A boolean: any byte but 0 is true, as in Kafka.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.fixed::<1>(field)? != [0])
    }

    /// An 8-bit integer.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn i8(&mut self, field: &'static str) -> Result<i8, DecodeError> {
        self.fixed(field).map(i8::from_be_bytes)
    }

    /// A 16-bit integer.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn i16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        self.fixed(field).map(i16::from_be_bytes)
    }

    /// An unsigned 16-bit integer.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.fixed(field).map(u16::from_be_bytes)
    }

    /// A 32-bit integer.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.fixed(field).map(i32::from_be_bytes)
    }

    /// An unsigned 32-bit integer.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.fixed(field).map(u32::from_be_bytes)
    }

    /// A 64-bit integer.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.fixed(field).map(i64::from_be_bytes)
    }

    /// A double-precision floating point number.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn f64(&mut self, field: &'static str) -> Result<f64, DecodeError> {
        self.fixed(field).map(f64::from_be_bytes)
    }

    /// A UUID.
    ///
    /// # Errors
    /// When the bytes end.
    #[inline]
    pub fn uuid(&mut self, field: &'static str) -> Result<TopicId, DecodeError> {
        self.fixed(field).map(TopicId)
    }

    /// An unsigned variable-length integer of at most 32 bits.
    ///
    /// # Errors
    /// When the bytes end, or the number does not.
    #[inline]
    pub fn uvarint(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let [byte] = self.fixed(field)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        // four bits are left of the 32
        match self.fixed(field)? {
            [byte @ 0..=0x0f] => Ok(value | u32::from(byte) << 28),
            _ => Err(DecodeError::VarintTooLong { field }),
        }
    }

    /// A compact length: the number is one more than the length, 0 stands for null.
    #[inline]
    fn compact_len(&mut self, field: &'static str) -> Result<Option<usize>, DecodeError> {
        Ok(self.uvarint(field)?.checked_sub(1).map(|len| len as usize))
    }

    /// A length of four bytes, -1 for null; or a compact one.
    #[inline]
    fn len32(&mut self, field: &'static str, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return self.compact_len(field);
        }
        match self.i32(field)? {
            -1 => Ok(None),
            len => usize::try_from(len).map(Some).map_err(|_| DecodeError::NegativeLength { field, len }),
        }
    }

    #[inline]
    fn len16(&mut self, field: &'static str, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return self.compact_len(field);
        }
        match self.i16(field)? {
            -1 => Ok(None),
            len => {
                usize::try_from(len).map(Some).map_err(|_| DecodeError::NegativeLength { field, len: i32::from(len) })
            }
        }
    }

    /// A string, null only if `nullable`.
    ///
    /// # Errors
    /// When it is null and may not be, too long, not UTF-8, or the bytes end.
    #[inline]
    pub fn opt_string(
        &mut self,
        field: &'static str,
        flexible: bool,
        nullable: bool,
    ) -> Result<Option<StrBytes>, DecodeError> {
        match self.len16(field, flexible)? {
            None if nullable => Ok(None),
            None => Err(DecodeError::Null { field }),
            Some(len) if len > STRING_BYTES_MAX => Err(DecodeError::StringTooLong { field, len }),
            Some(len) => {
                let bytes = self.take(field, len)?;
                StrBytes::try_from(bytes).map(Some).map_err(|_| DecodeError::InvalidUtf8 { field })
            }
        }
    }

    /// A string that is never null.
    ///
    /// # Errors
    /// When it is null, too long, not UTF-8, or the bytes end.
    #[inline]
    pub fn string(&mut self, field: &'static str, flexible: bool) -> Result<StrBytes, DecodeError> {
        self.opt_string(field, flexible, false)?.ok_or(DecodeError::Null { field })
    }

    /// Bytes, null only if `nullable`.
    ///
    /// # Errors
    /// When they are null and may not be, or the frame ends before they do.
    #[inline]
    pub fn opt_bytes(
        &mut self,
        field: &'static str,
        flexible: bool,
        nullable: bool,
    ) -> Result<Option<Bytes>, DecodeError> {
        match self.len32(field, flexible)? {
            None if nullable => Ok(None),
            None => Err(DecodeError::Null { field }),
            Some(len) => self.take(field, len).map(Some),
        }
    }

    /// Bytes that are never null.
    ///
    /// # Errors
    /// When they are null, or the frame ends before they do.
    #[inline]
    pub fn bytes(&mut self, field: &'static str, flexible: bool) -> Result<Bytes, DecodeError> {
        self.opt_bytes(field, flexible, false)?.ok_or(DecodeError::Null { field })
    }

    /// Records, null only if `nullable`.
    ///
    /// # Errors
    /// As [`Reader::opt_bytes`].
    #[inline]
    pub fn opt_records(
        &mut self,
        field: &'static str,
        flexible: bool,
        nullable: bool,
    ) -> Result<Option<Records>, DecodeError> {
        Ok(self.opt_bytes(field, flexible, nullable)?.map(Records::from))
    }

    /// Records that are never null.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    #[inline]
    pub fn records(&mut self, field: &'static str, flexible: bool) -> Result<Records, DecodeError> {
        self.bytes(field, flexible).map(Records::from)
    }

    /// An array, null only if `nullable`. An element takes at least `element_min` bytes.
    ///
    /// # Errors
    /// When it is null and may not be, has more elements than the bytes left or the memory allowed could hold, or an
    /// element is wrong.
    #[inline]
    pub fn opt_array<T>(
        &mut self,
        field: &'static str,
        flexible: bool,
        nullable: bool,
        element_min: usize,
        mut element: impl FnMut(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let count = match self.len32(field, flexible)? {
            Some(count) => count,
            None if nullable => return Ok(None),
            None => return Err(DecodeError::Null { field }),
        };
        if count > self.remaining() / element_min.max(1) {
            return Err(DecodeError::CountTooLarge { field, count, remaining: self.remaining() });
        }
        let needed = count.saturating_mul(size_of::<T>());
        let Some(budget) = self.budget.checked_sub(needed) else {
            return Err(DecodeError::OverBudget { field, needed, left: self.budget });
        };
        self.budget = budget;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// An array that is never null.
    ///
    /// # Errors
    /// As [`Reader::opt_array`].
    #[inline]
    pub fn array<T>(
        &mut self,
        field: &'static str,
        flexible: bool,
        element_min: usize,
        element: impl FnMut(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        self.opt_array(field, flexible, false, element_min, element)?.ok_or(DecodeError::Null { field })
    }

    /// A struct behind its presence marker: a negative one is null, as Kafka takes it.
    ///
    /// # Errors
    /// When it is null and may not be, or a field of it is wrong.
    #[inline]
    pub fn opt_struct<T>(
        &mut self,
        field: &'static str,
        nullable: bool,
        decode: impl FnOnce(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.i8(field)? >= 0 {
            decode(self).map(Some)
        } else if nullable {
            Ok(None)
        } else {
            Err(DecodeError::Null { field })
        }
    }

    /// The tagged fields at the end of a struct. `known` reads a field and says `true`, or says `false` to have it
    /// skipped: unknown tags, and known ones in a version that should not carry them, which some clients send.
    /// Any order is taken, and of a repeated tag the last, as Kafka does.
    ///
    /// # Errors
    /// When the section ends early, or a known field does not fill its size.
    #[inline]
    pub fn tagged_fields(
        &mut self,
        field: &'static str,
        mut known: impl FnMut(&mut Reader, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        for _ in 0..self.uvarint(field)? {
            let tag = self.uvarint(field)?;
            let size = self.uvarint(field)? as usize;
            if size > self.remaining() {
                return Err(self.ended(field, size));
            }
            // the field sees its own bytes only
            let outer = std::mem::replace(&mut self.end, self.pos + size);
            if known(self, tag)? {
                if self.pos < self.end {
                    return Err(DecodeError::TaggedFieldSize { field, tag, extra: self.remaining() });
                }
            } else {
                self.pos = self.end;
            }
            self.end = outer;
        }
        Ok(())
    }
}
