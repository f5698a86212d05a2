//! Splits the input of a non-blocking socket into frames, without copying them.

use crate::error::{BenchError, Result};
use polylogue_amqp::codec::{FRAME_END, FRAME_OVERHEAD_BYTES, FRAME_PREFIX_BYTES, FrameKind, FramePrefix};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;

/// The negotiated maximum frame size. Bytes: RabbitMQ's default.
pub const FRAME_BYTES_MAX: usize = 131_072;
/// The buffer of a socket: two of the largest frames, so that a read always has space. Bytes.
const BUFFER_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its type.
    pub kind: FrameKind,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Bytes read and not processed.
#[derive(Debug)]
pub struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Starts with bytes already read from the connection.
    ///
    /// # Errors
    /// They exceed the buffer.
    pub fn new(read: &[u8]) -> Result<Input> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let front = buffer.get_mut(..read.len());
        front.ok_or_else(|| BenchError::new("too much was read before the run"))?.copy_from_slice(read);
        Ok(Input { buffer, start: 0, end: read.len() })
    }

    /// Number of unprocessed bytes.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.end - self.start
    }

    /// Returns the next complete frame.
    ///
    /// # Errors
    /// The bytes are not a valid frame.
    pub fn cut(&mut self) -> Result<Option<Frame<'_>>> {
        let here = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some(prefix) = FramePrefix::read(here) else { return Ok(None) };
        let size = prefix.size as usize;
        if size > FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES {
            return Err(BenchError::new(format!("the broker sends a frame of {size} bytes")));
        }
        let Some(whole) = here.get(FRAME_PREFIX_BYTES..size + FRAME_OVERHEAD_BYTES) else { return Ok(None) };
        self.start += size + FRAME_OVERHEAD_BYTES;
        match (FrameKind::from_octet(prefix.kind), whole.split_last()) {
            (Some(kind), Some((&FRAME_END, payload))) => Ok(Some(Frame { kind, payload })),
            _ => Err(BenchError::new(format!("the broker sends what is no frame, of type {}", prefix.kind))),
        }
    }

    /// Reads once. Returns whether there may be more.
    ///
    /// # Errors
    /// The connection was closed.
    pub fn fill(&mut self, mut stream: &TcpStream) -> Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let room_bytes = room.len();
        loop {
            return match stream.read(room) {
                Ok(0) => Err(BenchError::new("the broker has closed the connection")),
                Ok(read) => {
                    self.end += read;
                    Ok(read == room_bytes)
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => Err(BenchError::new(format!("cannot read from the broker: {e}"))),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use polylogue_amqp::codec::{BasicAck, encode_heartbeat, encode_method};

    #[test]
    fn frames_are_cut_wherever_the_bytes_are_divided() {
        let mut bytes = BytesMut::new();
        encode_method(&mut bytes, 1, &BasicAck { delivery_tag: 7, multiple: true }.into());
        encode_heartbeat(&mut bytes);
        for at in 0..bytes.len() {
            let mut input = Input::new(&bytes[..at]).expect("it fits");
            let mut kinds = Vec::new();
            while let Some(frame) = input.cut().expect("frames") {
                kinds.push((frame.kind, frame.payload.len()));
            }
            let rest = bytes.len() - at;
            input.buffer[input.end..input.end + rest].copy_from_slice(&bytes[at..]);
            input.end += rest;
            while let Some(frame) = input.cut().expect("frames") {
                kinds.push((frame.kind, frame.payload.len()));
            }
            assert_eq!(kinds, [(FrameKind::Method, 13), (FrameKind::Heartbeat, 0)], "divided at {at}");
        }
    }

    #[test]
    fn what_is_no_frame_is_told() {
        let mut bytes = BytesMut::new();
        encode_heartbeat(&mut bytes);
        let mut wrong = bytes.to_vec();
        *wrong.last_mut().expect("an end") = 0;
        assert!(Input::new(&wrong).expect("it fits").cut().is_err(), "the end is missing");
        assert!(Input::new(&[9, 0, 0, 0, 0, 0, 0, FRAME_END]).expect("it fits").cut().is_err(), "no such type");
        assert!(Input::new(&[1, 0, 0, 1, 0, 0, 0]).expect("it fits").cut().is_err(), "too long");
    }
}
