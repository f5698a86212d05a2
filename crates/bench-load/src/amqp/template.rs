//! A message that is published repeatedly with only its stamp changed.

use crate::amqp::input::FRAME_BYTES_MAX;
use crate::amqp::load::{Exchange, QueueLoad};
use crate::stamp::{self, STAMP_BYTES, Stamp};
use bytes::{BufMut, BytesMut};
use polylogue_amqp::codec::{
    BasicProperties, BasicPublish, FRAME_END, FRAME_OVERHEAD_BYTES, FRAME_PREFIX_BYTES, body_prefix, encode_header,
    encode_method,
};

/// The channel of all drivers.
pub const CHANNEL: u16 = 1;
/// The delivery modes, persistent and transient.
const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

/// A message to one queue.
#[derive(Debug, Clone)]
pub struct Template {
    frames: Vec<u8>,
    stamp_at: usize,
}

impl Template {
    /// Creates a message of this size for a queue.
    #[must_use]
    pub fn new(queue: String, message_bytes: u32, load: QueueLoad) -> Template {
        let mut out = BytesMut::new();
        let (persistent, name) = (load.durable, load.exchange.map_or("", Exchange::name));
        let routing_key = load.exchange.map_or(queue.clone(), |exchange| exchange.key(&queue)).into();
        let publish = BasicPublish { exchange: name.to_owned().into(), routing_key, ..BasicPublish::default() };
        encode_method(&mut out, CHANNEL, &publish.into());
        let mode = if persistent { PERSISTENT } else { TRANSIENT };
        let properties = BasicProperties { delivery_mode: Some(mode), ..BasicProperties::default() };
        encode_header(&mut out, CHANNEL, u64::from(message_bytes), &properties.encode());
        let stamp_at = out.len() + FRAME_PREFIX_BYTES;
        let mut message = vec![0; message_bytes as usize];
        stamp::fill(&mut message, stamp::seed());
        for piece in message.chunks(FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES) {
            out.put_slice(&body_prefix(CHANNEL, piece.len() as u32));
            out.put_slice(piece);
            out.put_u8(FRAME_END);
        }
        Template { frames: out.to_vec(), stamp_at }
    }

    /// Appends the message with this stamp.
    pub fn write(&self, out: &mut Vec<u8>, stamp: Stamp) {
        let at = out.len() + self.stamp_at;
        out.extend_from_slice(&self.frames);
        if let Some(place) = out.get_mut(at..at + STAMP_BYTES) {
            place.copy_from_slice(&stamp.to_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::input::Input;
    use crate::amqp::load::QueueKind;
    use bytes::Bytes;
    use polylogue_amqp::codec::{FrameKind, Method};

    #[test]
    fn a_message_is_a_method_a_header_and_its_body() {
        for message_bytes in [20, 1_024, 131_064, 131_065, 200_000] {
            let load = QueueLoad {
                kind: QueueKind::Classic,
                durable: true,
                confirms: true,
                prefetch: 0,
                ack_every: 0,
                exchange: None,
            };
            let template = Template::new("measured-3".to_owned(), message_bytes, load);
            let stamp = Stamp { intended_ns: 5, sequence: 6, producer: 7 };
            let mut out = vec![1, 2, 3];
            template.write(&mut out, stamp);
            let mut input = Input::new(&out[3..]).expect("it fits");
            let method = input.cut().expect("a frame").expect("a frame");
            let payload = Bytes::copy_from_slice(method.payload);
            let Ok(Method::BasicPublish(publish)) = Method::decode(&payload) else { panic!("a publish") };
            assert_eq!((&publish.exchange[..], &publish.routing_key[..]), (&b""[..], &b"measured-3"[..]));
            let header = input.cut().expect("a frame").expect("a frame");
            assert_eq!(
                (header.kind, &header.payload[4..12]),
                (FrameKind::Header, &u64::from(message_bytes).to_be_bytes()[..])
            );
            assert_eq!(header.payload[12..], [0x10, 0, 2], "persistent");
            let mut body = Vec::new();
            while let Some(frame) = input.cut().expect("frames") {
                body.extend_from_slice(frame.payload);
            }
            assert_eq!((body.len(), Stamp::read(&body)), (message_bytes as usize, Some(stamp)));
        }
    }
}
