//! A message as it is stored: the native bytes of [`Form::AmqpMessage`](polylogue_record::envelope::Form).
//!
//! ```text
//!   u8 version = 1
//!   u8 length, exchange      the exchange that it was published to
//!   u8 length, routing key
//!   u32 length, properties   flags and properties, as they go over the wire
//!   the rest: body
//! ```
//!
//! Lengths are big endian, as everywhere in AMQP.

use bytes::{BufMut, Bytes, BytesMut};

const VERSION: u8 = 1;

/// A stored message, taken apart. All parts share its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    pub(crate) exchange: Bytes,
    pub(crate) routing_key: Bytes,
    pub(crate) properties: Bytes,
    pub(crate) body: Bytes,
}

/// Puts a message together. Names longer than AMQP's 255 bytes cannot come from a session and are cut.
pub(crate) fn store(exchange: &[u8], routing_key: &[u8], properties: &[u8], body: &[Bytes]) -> Bytes {
    let [exchange, routing_key] = [exchange, routing_key].map(|name| name.get(..255).unwrap_or(name));
    let len = 7 + exchange.len() + routing_key.len() + properties.len() + body.iter().map(Bytes::len).sum::<usize>();
    let mut out = BytesMut::with_capacity(len);
    out.put_u8(VERSION);
    for name in [exchange, routing_key] {
        out.put_u8(name.len() as u8);
        out.put_slice(name);
    }
    out.put_u32(properties.len() as u32);
    out.put_slice(properties);
    body.iter().for_each(|piece| out.put_slice(piece));
    out.freeze()
}

/// Takes a stored message apart. `None` for what is none.
pub(crate) fn open(stored: &Bytes) -> Option<Stored> {
    let mut at = 0;
    let mut take = |len: usize| {
        let end = at + len;
        let part = (end <= stored.len()).then(|| stored.slice(at..end));
        at = end;
        part
    };
    if take(1)?.first() != Some(&VERSION) {
        return None;
    }
    let len = usize::from(*take(1)?.first()?);
    let exchange = take(len)?;
    let len = usize::from(*take(1)?.first()?);
    let routing_key = take(len)?;
    let len = u32::from_be_bytes(*take(4)?.first_chunk()?) as usize;
    let properties = take(len)?;
    Some(Stored { exchange, routing_key, properties, body: stored.slice(at..) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_in_its_parts() {
        let body = [Bytes::from_static(b"in two "), Bytes::from_static(b"pieces")];
        let stored = store(b"amq.topic", b"a.b", b"\0\0", &body);
        let expected = Stored {
            exchange: Bytes::from_static(b"amq.topic"),
            routing_key: Bytes::from_static(b"a.b"),
            properties: Bytes::from_static(b"\0\0"),
            body: Bytes::from_static(b"in two pieces"),
        };
        assert_eq!(open(&stored), Some(expected));
        for len in 0..stored.len() - b"in two pieces".len() {
            assert_eq!(open(&stored.slice(..len)), None, "{len} bytes of it");
        }
        assert_eq!(open(&Bytes::from_static(b"\x02\0\0\0\0\0\0")), None, "another version");
    }
}
