//! Encodes and decodes whole messages, for the codec's tests.

use bytes::Bytes;
use polylogue_kafka_codec::{DecodeError, Message, Reader, Writer};

/// Encodes the message at `version`, as one buffer.
pub(crate) fn encode<M: Message>(message: &M, version: i16) -> Bytes {
    let mut w = Writer::new();
    if let Err(error) = message.encode(&mut w, version) {
        panic!("{} version {version}: {error}\n{message:#?}", M::NAME);
    }
    let len = w.len();
    let bytes: Vec<u8> = w.into_chunks().iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect();
    assert_eq!(bytes.len(), len, "the writer's length is correct");
    Bytes::from(bytes)
}

/// Decodes a message, which must use all bytes.
pub(crate) fn decode<M: Message>(bytes: Bytes, version: i16) -> Result<M, DecodeError> {
    let mut r = Reader::new(bytes);
    let message = M::decode(&mut r, version)?;
    r.finish()?;
    Ok(message)
}
