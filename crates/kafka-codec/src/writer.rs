//! Writing Kafka's primitive types: one growing buffer, with the records of others hung in between.

use super::error::EncodeError;
use super::records::Records;
use super::{STRING_BYTES_MAX, StrBytes};
use bytes::{BufMut, Bytes, BytesMut};
use polylogue_types::{Chunk, TopicId};

/// Records in memory up to this length are copied into the buffer: an own piece in the socket's write costs more.
/// Bytes.
const COPY_BYTES_MAX: usize = 256;

/// The buffer of a frame before it grows: most answers fit. Bytes.
const FRAME_BYTES_FIRST: usize = 512;

/// What has been written so far. Record batches are never copied, except small ones.
#[derive(Debug, Default)]
pub struct Writer {
    buf: BytesMut,
    /// What stands between our own bytes, each with its place in `buf`, by rising places.
    foreign: Vec<(usize, Chunk)>,
    foreign_len: usize,
}

impl Writer {
    /// An empty writer.
    #[must_use]
    pub fn new() -> Writer {
        Writer::default()
    }

    /// An empty writer that holds `bytes` bytes before it grows.
    #[must_use]
    #[inline]
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer { buf: BytesMut::with_capacity(bytes), ..Writer::default() }
    }

    /// A writer that starts with room for a frame's length: [`Writer::finish_frame`] fills it in.
    #[must_use]
    pub(super) fn frame() -> Writer {
        let mut writer = Writer::with_capacity(FRAME_BYTES_FIRST);
        writer.i32(0);
        writer
    }

    /// Bytes written, in files too.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len() + self.foreign_len
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything written, in order.
    #[must_use]
    pub fn into_chunks(self) -> Vec<Chunk> {
        let mut own = self.buf.freeze();
        let mut chunks = Vec::with_capacity(self.foreign.len() * 2 + 1);
        let mut start = 0;
        for (place, chunk) in self.foreign {
            if place > start {
                chunks.push(Chunk::Bytes(own.split_to(place - start)));
                start = place;
            }
            chunks.push(chunk);
        }
        if !own.is_empty() {
            chunks.push(Chunk::Bytes(own));
        }
        chunks
    }

    /// As [`Writer::into_chunks`], with the frame's length written at its start.
    #[inline]
    pub(super) fn finish_frame(mut self) -> Result<Vec<Chunk>, EncodeError> {
        let len = self.len().saturating_sub(4);
        let prefix = i32::try_from(len).map_err(|_| EncodeError::TooLong { field: "frame", len })?;
        if let Some(place) = self.buf.first_chunk_mut::<4>() {
            *place = prefix.to_be_bytes();
        }
        Ok(self.into_chunks())
    }

    /// A boolean.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.buf.put_u8(u8::from(value));
    }

    /// An 8-bit integer.
    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.buf.put_i8(value);
    }

    /// A 16-bit integer.
    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.buf.put_i16(value);
    }

    /// An unsigned 16-bit integer.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.buf.put_u16(value);
    }

    /// A 32-bit integer.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.buf.put_i32(value);
    }

    /// An unsigned 32-bit integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.buf.put_u32(value);
    }

    /// A 64-bit integer.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.buf.put_i64(value);
    }

    /// A double-precision floating point number.
    #[inline]
    pub fn f64(&mut self, value: f64) {
        self.buf.put_f64(value);
    }

    /// A UUID.
    #[inline]
    pub fn uuid(&mut self, value: TopicId) {
        self.buf.put_slice(&value.0);
    }

    /// An unsigned variable-length integer.
    #[inline]
    pub fn uvarint(&mut self, value: u32) {
        let (bytes, len) = uvarint_bytes(value);
        self.buf.put_slice(bytes.get(..len).unwrap_or(&bytes));
    }

    /// A compact length (one more than it is, 0 for null), or one of four bytes (-1 for null).
    #[inline]
    fn len32(&mut self, field: &'static str, len: Option<usize>, flexible: bool) -> Result<(), EncodeError> {
        let Some(len) = len else {
            if flexible {
                self.uvarint(0);
            } else {
                self.i32(-1);
            }
            return Ok(());
        };
        let prefix = i32::try_from(len).map_err(|_| EncodeError::TooLong { field, len })?;
        if flexible {
            self.uvarint(prefix.unsigned_abs() + 1);
        } else {
            self.i32(prefix);
        }
        Ok(())
    }

    /// A string that is never null.
    ///
    /// # Errors
    /// When it is too long.
    #[inline]
    pub fn string(&mut self, field: &'static str, value: &StrBytes, flexible: bool) -> Result<(), EncodeError> {
        let too_long = EncodeError::TooLong { field, len: value.len() };
        let prefix = i16::try_from(value.len()).map_err(|_| too_long)?;
        if flexible {
            self.uvarint(u32::from(prefix.unsigned_abs()) + 1);
        } else {
            self.i16(prefix);
        }
        self.buf.put_slice(value.as_bytes());
        Ok(())
    }

    /// A string, null only if `nullable`.
    ///
    /// # Errors
    /// When it is null and may not be, or too long.
    #[inline]
    pub fn opt_string(
        &mut self,
        field: &'static str,
        value: Option<&StrBytes>,
        flexible: bool,
        nullable: bool,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.string(field, value, flexible),
            None if !nullable => Err(EncodeError::Null { field }),
            None if flexible => {
                self.uvarint(0);
                Ok(())
            }
            None => {
                self.i16(-1);
                Ok(())
            }
        }
    }

    /// Bytes that are never null; copied.
    ///
    /// # Errors
    /// When they are too long.
    #[inline]
    pub fn bytes(&mut self, field: &'static str, value: &Bytes, flexible: bool) -> Result<(), EncodeError> {
        self.len32(field, Some(value.len()), flexible)?;
        self.buf.put_slice(value);
        Ok(())
    }

    /// Bytes, null only if `nullable`.
    ///
    /// # Errors
    /// When they are null and may not be, or too long.
    #[inline]
    pub fn opt_bytes(
        &mut self,
        field: &'static str,
        value: Option<&Bytes>,
        flexible: bool,
        nullable: bool,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.bytes(field, value, flexible),
            None if nullable => self.len32(field, None, flexible),
            None => Err(EncodeError::Null { field }),
        }
    }

    /// Records that are never null; their pieces become pieces of the output.
    ///
    /// # Errors
    /// When they are too long.
    pub fn records(&mut self, field: &'static str, value: &Records, flexible: bool) -> Result<(), EncodeError> {
        self.len32(field, Some(value.len()), flexible)?;
        for chunk in value.chunks() {
            match chunk {
                Chunk::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => self.buf.put_slice(bytes),
                Chunk::Bytes(_) | Chunk::File(_) => {
                    self.foreign_len += chunk.len();
                    self.foreign.push((self.buf.len(), chunk.clone()));
                }
            }
        }
        Ok(())
    }

    /// Records, null only if `nullable`.
    ///
    /// # Errors
    /// When they are null and may not be, or too long.
    pub fn opt_records(
        &mut self,
        field: &'static str,
        value: Option<&Records>,
        flexible: bool,
        nullable: bool,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.records(field, value, flexible),
            None if nullable => self.len32(field, None, flexible),
            None => Err(EncodeError::Null { field }),
        }
    }

    /// An array that is never null.
    ///
    /// # Errors
    /// When it has too many elements, or an element cannot be written.
    #[inline]
    pub fn array<T>(
        &mut self,
        field: &'static str,
        values: &[T],
        flexible: bool,
        mut element: impl FnMut(&mut Writer, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.len32(field, Some(values.len()), flexible)?;
        values.iter().try_for_each(|value| element(self, value))
    }

    /// An array, null only if `nullable`.
    ///
    /// # Errors
    /// When it is null and may not be, has too many elements, or an element cannot be written.
    #[inline]
    pub fn opt_array<T>(
        &mut self,
        field: &'static str,
        values: Option<&Vec<T>>,
        flexible: bool,
        nullable: bool,
        element: impl FnMut(&mut Writer, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        match values {
            Some(values) => self.array(field, values, flexible, element),
            None if nullable => self.len32(field, None, flexible),
            None => Err(EncodeError::Null { field }),
        }
    }

    /// A struct behind its presence marker.
    ///
    /// # Errors
    /// When it is null and may not be, or a field of it cannot be written.
    #[inline]
    pub fn opt_struct<T>(
        &mut self,
        field: &'static str,
        value: Option<&T>,
        nullable: bool,
        encode: impl FnOnce(&mut Writer, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => {
                self.i8(1);
                encode(self, value)
            }
            None if nullable => {
                self.i8(-1);
                Ok(())
            }
            None => Err(EncodeError::Null { field }),
        }
    }

    /// One tagged field: tag, size, value. The size is known when the value is written, so the value moves up
    /// where its size takes more than one byte. The value must not hold records (the generator sees to that).
    ///
    /// # Errors
    /// When the value cannot be written.
    #[inline]
    pub fn tagged(
        &mut self,
        tag: u32,
        value: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.uvarint(tag);
        let at = self.buf.len();
        self.buf.put_u8(0);
        value(self)?;
        let start = at + 1;
        let len = self.buf.len().saturating_sub(start);
        let size = u32::try_from(len).map_err(|_| EncodeError::TooLong { field: "tagged field", len })?;
        let (bytes, width) = uvarint_bytes(size);
        if width > 1 {
            self.buf.put_bytes(0, width - 1);
            self.buf.copy_within(start..start + len, at + width);
        }
        if let (Some(place), Some(size)) = (self.buf.get_mut(at..at + width), bytes.get(..width)) {
            place.copy_from_slice(size);
        }
        Ok(())
    }
}

/// The bytes of a variable-length integer, and how many of the five are used.
#[inline]
fn uvarint_bytes(mut value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0; 5];
    let mut len = 0;
    for byte in &mut bytes {
        len += 1;
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, len)
}

const _: () = assert!(STRING_BYTES_MAX == i16::MAX as usize);
