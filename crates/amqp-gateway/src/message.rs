//! The storage format of a message: the native bytes of [`Form::AmqpMessage`](polylogue_record::envelope::Form).
//!
//! ```text
//!   u8 version               1 plain, 2 with broker-internal fields
//!   u8 length, exchange      the exchange it was published to
//!   u8 length, routing key
//!   u32 length, properties   flags and properties in wire format
//!   version 2:
//!     u16 count, count times u8 length, key      the BCC keys
//!     u32 length, history    the dead-letter history (`Deaths::encode`); empty if there is none
//!   the rest: body
//! ```
//!
//! Lengths are big endian, as in AMQP.

use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::BasicProperties;

const PLAIN: u8 = 1;
const WITH_HIDDEN: u8 = 2;

/// A decoded stored message. All parts share its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    pub(crate) exchange: Bytes,
    pub(crate) routing_key: Bytes,
    pub(crate) properties: Bytes,
    pub(crate) hidden: Hidden,
    pub(crate) body: Bytes,
}

/// The broker-internal fields of a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hidden {
    /// The BCC keys.
    pub(crate) bcc: Vec<Bytes>,
    /// The dead-letter history; empty if there is none.
    pub(crate) history: Bytes,
}

impl Hidden {
    fn len(&self) -> usize {
        6 + self.bcc.iter().map(|key| 1 + key.len()).sum::<usize>() + self.history.len()
    }

    fn put(&self, out: &mut BytesMut) {
        let bcc = self.bcc.get(..usize::from(u16::MAX)).unwrap_or(&self.bcc);
        out.put_u16(bcc.len() as u16);
        bcc.iter().for_each(|key| put_short(key, out));
        out.put_u32(self.history.len() as u32);
        out.put_slice(&self.history);
    }
}

fn put_short(text: &[u8], out: &mut BytesMut) {
    let text = text.get(..255).unwrap_or(text);
    out.put_u8(text.len() as u8);
    out.put_slice(text);
}

/// Encodes a message. Names longer than AMQP's 255 bytes cannot come from a session and are cut.
pub(crate) fn store(
    exchange: &[u8],
    routing_key: &[u8],
    properties: &[u8],
    hidden: Option<&Hidden>,
    body: &[Bytes],
) -> Bytes {
    let len = 7 + exchange.len() + routing_key.len() + properties.len() + body.iter().map(Bytes::len).sum::<usize>();
    let mut out = BytesMut::with_capacity(len + hidden.map_or(0, Hidden::len));
    out.put_u8(if hidden.is_some() { WITH_HIDDEN } else { PLAIN });
    put_short(exchange, &mut out);
    put_short(routing_key, &mut out);
    out.put_u32(properties.len() as u32);
    out.put_slice(properties);
    if let Some(hidden) = hidden {
        hidden.put(&mut out);
    }
    body.iter().for_each(|piece| out.put_slice(piece));
    out.freeze()
}

/// Decodes a stored message. `None` if it is invalid.
pub(crate) fn open(stored: &Bytes) -> Option<Stored> {
    let mut at = 0;
    let mut take = |len: usize| {
        let end = at + len;
        let part = (end <= stored.len()).then(|| stored.slice(at..end));
        at = end;
        part
    };
    let version = *take(1)?.first()?;
    if version != PLAIN && version != WITH_HIDDEN {
        return None;
    }
    let len = usize::from(*take(1)?.first()?);
    let exchange = take(len)?;
    let len = usize::from(*take(1)?.first()?);
    let routing_key = take(len)?;
    let len = u32::from_be_bytes(*take(4)?.first_chunk()?) as usize;
    let properties = take(len)?;
    let mut hidden = Hidden::default();
    if version == WITH_HIDDEN {
        let count = u16::from_be_bytes(*take(2)?.first_chunk()?);
        for _ in 0..count {
            let len = usize::from(*take(1)?.first()?);
            hidden.bcc.push(take(len)?);
        }
        let len = u32::from_be_bytes(*take(4)?.first_chunk()?) as usize;
        hidden.history = take(len)?;
    }
    Some(Stored { exchange, routing_key, properties, hidden, body: stored.slice(at..) })
}

/// The length of a stored message's body. `None` if it is invalid.
pub(crate) fn body_len(stored: &[u8]) -> Option<usize> {
    fn skip(left: &mut &[u8], len: usize) -> Option<()> {
        *left = left.get(len..)?;
        Some(())
    }
    fn number<const N: usize>(left: &mut &[u8]) -> Option<[u8; N]> {
        let (number, rest) = left.split_first_chunk::<N>()?;
        *left = rest;
        Some(*number)
    }
    let mut left = stored;
    let [version] = number(&mut left)?;
    if version != PLAIN && version != WITH_HIDDEN {
        return None;
    }
    for _ in 0..2 {
        let [len] = number(&mut left)?;
        skip(&mut left, usize::from(len))?;
    }
    let properties = u32::from_be_bytes(number(&mut left)?);
    skip(&mut left, properties as usize)?;
    if version == WITH_HIDDEN {
        for _ in 0..u16::from_be_bytes(number(&mut left)?) {
            let [len] = number(&mut left)?;
            skip(&mut left, usize::from(len))?;
        }
        let history = u32::from_be_bytes(number(&mut left)?);
        skip(&mut left, history as usize)?;
    }
    Some(left.len())
}

/// The `timestamp` property of a stored message. Seconds since the Unix epoch.
#[must_use]
pub fn sent_at(stored: &Bytes) -> Option<u64> {
    BasicProperties::decode(&open(stored)?.properties).ok()?.timestamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_round_trips() {
        let body = [Bytes::from_static(b"in two "), Bytes::from_static(b"pieces")];
        let bcc = vec![Bytes::from_static(b"blind"), Bytes::new()];
        let hidden = Hidden { bcc, history: Bytes::from_static(b"died") };
        for hidden in [None, Some(Hidden::default()), Some(hidden)] {
            let stored = store(b"amq.topic", b"a.b", b"\0\0", hidden.as_ref(), &body);
            let expected = Stored {
                exchange: Bytes::from_static(b"amq.topic"),
                routing_key: Bytes::from_static(b"a.b"),
                properties: Bytes::from_static(b"\0\0"),
                hidden: hidden.unwrap_or_default(),
                body: Bytes::from_static(b"in two pieces"),
            };
            assert_eq!((open(&stored), body_len(&stored)), (Some(expected), Some(13)));
            for len in 0..stored.len() - b"in two pieces".len() {
                let part = stored.slice(..len);
                assert_eq!((open(&part), body_len(&part)), (None, None), "{len} bytes of it");
            }
        }
        let other = Bytes::from_static(b"\x03\0\0\0\0\0\0");
        assert_eq!((open(&other), body_len(&other)), (None, None), "another version");
    }
}
