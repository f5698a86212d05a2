//! The elementary types of AMQP 0-9-1: integers, bits, short and long strings.

use super::{DecodeError, Table};
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// A string of at most 255 bytes, usually UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShortStr(Bytes);

impl ShortStr {
    /// The longest short string. Bytes.
    pub const BYTES_MAX: usize = 255;
    /// The empty string.
    pub const EMPTY: ShortStr = ShortStr(Bytes::new());

    /// Wraps the bytes; `None` if they are too long.
    #[must_use]
    pub fn new(bytes: Bytes) -> Option<ShortStr> {
        (bytes.len() <= Self::BYTES_MAX).then_some(ShortStr(bytes))
    }

    /// Makes a string from a constant of the program; excess bytes are cut off.
    #[must_use]
    pub fn from_static(text: &'static str) -> ShortStr {
        Self::cut(Bytes::from_static(text.as_bytes()))
    }

    /// Makes a string from the first 255 bytes of a text.
    #[must_use]
    pub fn cut(mut bytes: Bytes) -> ShortStr {
        bytes.truncate(Self::BYTES_MAX);
        ShortStr(bytes)
    }

    /// Returns its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns its bytes, by value.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Copies the bytes: a value that is kept must not retain the buffer that it was read into.
    #[must_use]
    pub fn to_owned_bytes(&self) -> ShortStr {
        ShortStr(Bytes::copy_from_slice(&self.0))
    }
}

impl std::ops::Deref for ShortStr {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<String> for ShortStr {
    fn from(text: String) -> ShortStr {
        ShortStr::cut(Bytes::from(text))
    }
}

impl From<&'static str> for ShortStr {
    fn from(text: &'static str) -> ShortStr {
        ShortStr::from_static(text)
    }
}

impl fmt::Display for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for ShortStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

/// Reads fields from a payload; strings and tables are returned as slices of it.
#[derive(Debug)]
pub struct Reader<'a> {
    payload: &'a Bytes,
    at: usize,
    /// Where reading ends: never past the end of `payload`.
    end: usize,
    /// The octet that bits are taken from, and how many were taken.
    bits: (u8, u8),
}

impl<'a> Reader<'a> {
    /// Reads from the beginning.
    #[must_use]
    pub fn new(payload: &'a Bytes) -> Reader<'a> {
        Reader { payload, at: 0, end: payload.len(), bits: (0, 8) }
    }

    /// Reads the part `from..to` of a larger buffer; slices are taken of the buffer.
    #[must_use]
    pub fn part(whole: &'a Bytes, from: usize, to: usize) -> Reader<'a> {
        let end = to.min(whole.len());
        Reader { payload: whole, at: from.min(end), end, bits: (0, 8) }
    }

    /// Returns everything that is left.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.payload.slice(self.at..self.end)
    }

    /// Skips this many bytes and returns them.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn pass(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        self.bits.1 = 8;
        let passed = self.payload.get(self.at..self.end).and_then(|rest| rest.get(..len));
        self.at += passed.map_or(0, <[u8]>::len);
        passed.ok_or(DecodeError::Short { what: "field" })
    }

    /// How many bytes have been read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.end - self.at
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        self.bits.1 = 8;
        let array = self.payload.get(self.at..self.end).and_then(|rest| rest.first_chunk::<N>());
        let array = array.ok_or(DecodeError::Short { what })?;
        self.at += N;
        Ok(*array)
    }

    fn bytes(&mut self, len: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        if len > self.left() {
            return Err(DecodeError::Short { what });
        }
        let bytes = self.payload.slice(self.at..self.at + len);
        self.at += len;
        Ok(bytes)
    }

    /// Reads an unsigned integer of 8 bits.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn octet(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>("octet")?[0])
    }

    /// Reads an unsigned integer of 16 bits.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn short(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array("short")?))
    }

    /// Reads an unsigned integer of 32 bits.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn long(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array("long")?))
    }

    /// Reads an unsigned integer of 64 bits.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn longlong(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array("longlong")?))
    }

    /// Reads a bit: consecutive bits share an octet, lowest bit first.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn bit(&mut self) -> Result<bool, DecodeError> {
        let (mut octet, mut taken) = self.bits;
        if taken == 8 {
            octet = self.array::<1>("bits")?[0];
            taken = 0;
        }
        self.bits = (octet, taken + 1);
        Ok(octet >> taken & 1 == 1)
    }

    /// Reads a short string of a method, which must be UTF-8.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::NotUtf8`].
    pub fn shortstr(&mut self) -> Result<ShortStr, DecodeError> {
        let string = self.short_bytes()?;
        if std::str::from_utf8(&string).is_err() {
            return Err(DecodeError::NotUtf8);
        }
        Ok(string)
    }

    /// Reads a short string of any bytes, as in properties.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn short_bytes(&mut self) -> Result<ShortStr, DecodeError> {
        let len = usize::from(self.octet()?);
        Ok(ShortStr(self.bytes(len, "short string")?))
    }

    /// Reads a long string: any bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn longstr(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.long()? as usize;
        self.bytes(len, "long string")
    }

    /// Reads and validates a field table.
    ///
    /// # Errors
    /// [`DecodeError`] of the first invalid field.
    pub fn table(&mut self) -> Result<Table, DecodeError> {
        let len = self.long()? as usize;
        Table::new(self.bytes(len, "table")?)
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// [`DecodeError::LeftOver`].
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.left() == 0 { Ok(()) } else { Err(DecodeError::LeftOver { bytes: self.left() }) }
    }
}

/// Writes fields. Values too long for their type are cut; the session writes none that are.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut BytesMut,
    /// The octet that bits are collected in, and how many it holds.
    bits: (u8, u8),
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    #[must_use]
    pub fn new(out: &'a mut BytesMut) -> Writer<'a> {
        Writer { out, bits: (0, 0) }
    }

    /// Flushes bits that have not filled an octet.
    pub fn end(&mut self) {
        if self.bits.1 > 0 {
            self.out.put_u8(self.bits.0);
            self.bits = (0, 0);
        }
    }

    /// Writes an unsigned integer of 8 bits.
    pub fn octet(&mut self, value: u8) {
        self.end();
        self.out.put_u8(value);
    }

    /// Writes an unsigned integer of 16 bits.
    pub fn short(&mut self, value: u16) {
        self.end();
        self.out.put_u16(value);
    }

    /// Writes an unsigned integer of 32 bits.
    pub fn long(&mut self, value: u32) {
        self.end();
        self.out.put_u32(value);
    }

    /// Writes an unsigned integer of 64 bits.
    pub fn longlong(&mut self, value: u64) {
        self.end();
        self.out.put_u64(value);
    }

    /// Writes a bit: consecutive bits share an octet, lowest bit first.
    pub fn bit(&mut self, value: bool) {
        if self.bits.1 == 8 {
            self.end();
        }
        self.bits.0 |= u8::from(value) << self.bits.1;
        self.bits.1 += 1;
    }

    /// Writes a short string.
    pub fn shortstr(&mut self, value: &ShortStr) {
        self.end();
        self.out.put_u8(value.len() as u8);
        self.out.put_slice(value);
    }

    /// Writes a long string.
    pub fn longstr(&mut self, value: &[u8]) {
        self.end();
        self.out.put_u32(value.len() as u32);
        self.out.put_slice(value);
    }

    /// Writes a field table.
    pub fn table(&mut self, value: &Table) {
        self.longstr(value.raw());
    }
}
