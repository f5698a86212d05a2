//! Frames: the envelope around a payload. See the drawing in [the module above](super).

use super::{DecodeError, Method, Reader, Writer};
use bytes::{BufMut, Bytes, BytesMut};

/// The protocol header that a client sends first: `AMQP`, 0, and the version 0-9-1.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
/// The octet that ends each frame.
pub const FRAME_END: u8 = 0xCE;
/// Type, channel and size before the payload. Bytes.
pub const FRAME_PREFIX_BYTES: usize = 7;
/// All bytes of a frame that are not payload; `frame_max` includes them. Bytes.
pub const FRAME_OVERHEAD_BYTES: usize = FRAME_PREFIX_BYTES + 1;
/// Class, weight, body size and property flags: the shortest payload of a header frame. Bytes.
pub const HEADER_FRAME_BYTES_MIN: usize = 14;

/// The type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// A method.
    Method,
    /// The content header, which precedes the body of a message.
    Header,
    /// A part of a body.
    Body,
    /// A heartbeat.
    Heartbeat,
}

impl FrameKind {
    /// Returns the kind with this number.
    #[must_use]
    pub fn from_octet(octet: u8) -> Option<FrameKind> {
        Some(match octet {
            1 => FrameKind::Method,
            2 => FrameKind::Header,
            3 => FrameKind::Body,
            8 => FrameKind::Heartbeat,
            _ => return None,
        })
    }

    /// Returns its number.
    #[must_use]
    pub fn octet(self) -> u8 {
        match self {
            FrameKind::Method => 1,
            FrameKind::Header => 2,
            FrameKind::Body => 3,
            FrameKind::Heartbeat => 8,
        }
    }
}

/// Type, channel and size: the bytes of a frame before its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramePrefix {
    /// The number of its kind, which may be unknown.
    pub kind: u8,
    /// Its channel.
    pub channel: u16,
    /// The size of its payload. Bytes.
    pub size: u32,
}

impl FramePrefix {
    /// Reads a prefix; `None` while fewer than [`FRAME_PREFIX_BYTES`] bytes are there.
    #[must_use]
    pub fn read(input: &[u8]) -> Option<FramePrefix> {
        let &[kind, c0, c1, s0, s1, s2, s3] = input.first_chunk::<FRAME_PREFIX_BYTES>()?;
        let channel = u16::from_be_bytes([c0, c1]);
        Some(FramePrefix { kind, channel, size: u32::from_be_bytes([s0, s1, s2, s3]) })
    }

    /// Returns the encoded prefix.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_PREFIX_BYTES] {
        let ([c0, c1], [s0, s1, s2, s3]) = (self.channel.to_be_bytes(), self.size.to_be_bytes());
        [self.kind, c0, c1, s0, s1, s2, s3]
    }
}

/// The payload of a header frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContentHeader {
    /// The class of the method before it: 60.
    pub class: u16,
    /// Always 0.
    pub weight: u16,
    /// The size of the body in the frames that follow. Bytes.
    pub body_size: u64,
    /// Flags and properties, not validated.
    pub properties: Bytes,
}

impl ContentHeader {
    /// Reads the payload of a header frame.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn read(mut r: Reader<'_>) -> Result<ContentHeader, DecodeError> {
        let (class, weight, body_size) = (r.short()?, r.short()?, r.longlong()?);
        Ok(ContentHeader { class, weight, body_size, properties: r.rest() })
    }
}

/// Writes a frame around what `payload` writes.
fn encode_frame(out: &mut BytesMut, kind: FrameKind, channel: u16, payload: impl FnOnce(&mut Writer<'_>)) {
    let at = out.len();
    out.put_slice(&FramePrefix { kind: kind.octet(), channel, size: 0 }.to_bytes());
    let mut writer = Writer::new(out);
    payload(&mut writer);
    writer.end();
    let size = (out.len() - at - FRAME_PREFIX_BYTES) as u32;
    if let Some(place) = out.get_mut(at + 3..at + FRAME_PREFIX_BYTES) {
        place.copy_from_slice(&size.to_be_bytes());
    }
    out.put_u8(FRAME_END);
}

/// Writes a method in its frame.
pub fn encode_method(out: &mut BytesMut, channel: u16, method: &Method) {
    encode_frame(out, FrameKind::Method, channel, |w| method.encode(w));
}

/// Writes a header frame of class 60; `properties` are flags and properties in wire format.
pub fn encode_header(out: &mut BytesMut, channel: u16, body_size: u64, properties: &[u8]) {
    let size = (HEADER_FRAME_BYTES_MIN - 2 + properties.len()) as u32;
    out.reserve(size as usize + FRAME_OVERHEAD_BYTES);
    out.put_slice(&FramePrefix { kind: FrameKind::Header.octet(), channel, size }.to_bytes());
    out.put_u16(60);
    out.put_u16(0);
    out.put_u64(body_size);
    out.put_slice(properties);
    out.put_u8(FRAME_END);
}

/// Returns the prefix of a body frame; its payload is followed by [`FRAME_END`].
#[must_use]
pub fn body_prefix(channel: u16, size: u32) -> [u8; FRAME_PREFIX_BYTES] {
    FramePrefix { kind: FrameKind::Body.octet(), channel, size }.to_bytes()
}

/// Writes a heartbeat frame.
pub fn encode_heartbeat(out: &mut BytesMut) {
    encode_frame(out, FrameKind::Heartbeat, 0, |_| {});
}
