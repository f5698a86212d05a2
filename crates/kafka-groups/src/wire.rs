//! The primitives of the coordinator's records and chunks, and the helper that copies what outlives a request.
//!
//! Integers are little-endian and of fixed width, lengths and counts are LEB128 numbers of at most 32 bits in their
//! shortest form, so that a value has one encoding only. Every length and count is held against the bytes left.

use bytes::Bytes;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::TopicId;

/// Why bytes are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Malformed(pub(super) String);

impl Malformed {
    pub(super) fn new(what: &str, value: impl std::fmt::Display) -> Malformed {
        Malformed(format!("{what}: {value}"))
    }
}

/// A copy that shares no memory with a request's frame.
pub(super) fn detached(text: &StrBytes) -> StrBytes {
    StrBytes::from(&**text)
}

/// A copy that shares no memory with a request's frame.
pub(super) fn detached_bytes(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// Writes a record or a chunk.
#[derive(Default, Debug)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub(super) fn finish(self) -> Bytes {
        Bytes::from(self.bytes)
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn raw(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    /// A length or a count.
    pub(super) fn len(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push((value & 0x7f) as u8);
    }

    pub(super) fn blob(&mut self, value: &[u8]) {
        self.len(value.len());
        self.raw(value);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.blob(value.as_bytes());
    }

    /// Present (1) and the text, or absent (0).
    pub(super) fn optional_text(&mut self, value: Option<&StrBytes>) {
        match value {
            Some(text) => {
                self.u8(1);
                self.text(text);
            }
            None => self.u8(0),
        }
    }

    pub(super) fn topic(&mut self, id: TopicId) {
        self.raw(&id.0);
    }
}

/// Reads an untrusted record or chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoder<'a> {
    left: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { left: bytes }
    }

    pub(super) fn take(&mut self, what: &str, len: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            return Err(Malformed::new(what, format_args!("{len} bytes needed, {} left", self.left.len())));
        };
        self.left = left;
        Ok(taken)
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// All that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    fn fixed<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Malformed> {
        let Some((taken, left)) = self.left.split_first_chunk::<N>() else {
            return Err(Malformed::new(what, format_args!("{N} bytes needed, {} left", self.left.len())));
        };
        self.left = left;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, Malformed> {
        self.fixed::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn i32(&mut self, what: &str) -> Result<i32, Malformed> {
        self.fixed(what).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&mut self, what: &str) -> Result<i64, Malformed> {
        self.fixed(what).map(i64::from_le_bytes)
    }

    pub(super) fn topic(&mut self, what: &str) -> Result<TopicId, Malformed> {
        self.fixed(what).map(TopicId)
    }

    fn len(&mut self, what: &str) -> Result<usize, Malformed> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.u8(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(Malformed::new(what, "a length in more bytes than it needs"));
                }
                return usize::try_from(value).map_err(|_| Malformed::new(what, value));
            }
        }
        Err(Malformed::new(what, "a length above 35 bits"))
    }

    /// The number of elements that follow, each of which takes `element_min` bytes or more.
    pub(super) fn count(&mut self, what: &str, element_min: usize) -> Result<usize, Malformed> {
        let count = self.len(what)?;
        if count > self.left.len() / element_min {
            return Err(Malformed::new(what, format_args!("{count} do not fit the {} bytes left", self.left.len())));
        }
        Ok(count)
    }

    pub(super) fn blob(&mut self, what: &str) -> Result<Bytes, Malformed> {
        let len = self.len(what)?;
        self.take(what, len).map(Bytes::copy_from_slice)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<StrBytes, Malformed> {
        let len = self.len(what)?;
        utf8(what, self.take(what, len)?)
    }

    pub(super) fn optional_text(&mut self, what: &str) -> Result<Option<StrBytes>, Malformed> {
        match self.u8(what)? {
            0 => Ok(None),
            1 => self.text(what).map(Some),
            other => Err(Malformed::new(what, format_args!("neither present nor absent but {other}"))),
        }
    }

    /// Holds that nothing is left.
    pub(super) fn finish(self) -> Result<(), Malformed> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(Malformed::new("end", format_args!("{left} bytes left over"))),
        }
    }
}

/// A text out of its bytes, copied.
pub(super) fn utf8(what: &str, bytes: &[u8]) -> Result<StrBytes, Malformed> {
    std::str::from_utf8(bytes).map(StrBytes::from).map_err(|error| Malformed::new(what, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_encoding() {
        for value in [0usize, 1, 127, 128, 16_383, 16_384, 1 << 21, (1 << 32) - 1] {
            let mut encoder = Encoder::default();
            encoder.len(value);
            let bytes = encoder.finish();
            assert_eq!(Decoder::new(&bytes).len("test"), Ok(value));
        }
        assert!(Decoder::new(&[0x80, 0x00]).len("test").is_err());
        assert!(Decoder::new(&[0xff; 6]).len("test").is_err());
    }

    #[test]
    fn a_count_is_held_against_the_bytes_left() {
        assert!(Decoder::new(&[0xff, 0xff, 0x7f, 1, 2, 3]).count("test", 1).is_err());
        assert_eq!(Decoder::new(&[3, 1, 2, 3]).count("test", 1), Ok(3));
        assert!(Decoder::new(&[3, 1, 2, 3]).count("test", 2).is_err());
    }

    #[test]
    fn an_optional_text_is_strict() {
        assert!(Decoder::new(&[2, 1, b'a']).optional_text("test").is_err());
        assert_eq!(Decoder::new(&[0]).optional_text("test"), Ok(None));
        assert_eq!(Decoder::new(&[1, 1, b'a']).optional_text("test"), Ok(Some(StrBytes::from_static("a"))));
    }
}
