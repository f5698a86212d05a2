//! Output of a connection: small frames are collected in one buffer, large bodies are passed on without a copy.

use crate::codec::{
    BasicDeliver, FRAME_END, FRAME_OVERHEAD_BYTES, FrameKind, FramePrefix, Method, ShortStr, Writer, body_prefix,
    encode_header, encode_heartbeat, encode_method,
};
use crate::request::Payload;
use bytes::{BufMut, BytesMut};
use polylogue_types::{Chunk, FileRange};

/// A part of a body up to this size is copied next to its frame header: that costs less than a chunk of its own. Bytes.
const COPY_BYTES_MAX: usize = 1024;

/// The initial growth step of the buffer, and its size while there is little output: what an idle connection keeps. Bytes.
const BUFFER_BYTES_MIN: usize = 1 << 10;
/// The largest growth step of the buffer. Bytes.
const BUFFER_BYTES_MAX: usize = 16 << 10;
/// A buffer is too large if less than one part in this many was used when the output was taken.
const BUFFER_USED_MIN: usize = 8;

/// Output that waits to be written.
#[derive(Debug)]
pub(crate) struct Output {
    ready: Vec<Chunk>,
    /// The bytes that follow `ready`.
    buffer: BytesMut,
    /// The growth step of `buffer`. Bytes.
    step: usize,
    /// Total of `ready` and `buffer`. Bytes.
    len: usize,
}

impl Default for Output {
    fn default() -> Output {
        Output { ready: Vec::new(), buffer: BytesMut::new(), step: BUFFER_BYTES_MIN, len: 0 }
    }
}

impl Output {
    /// How much output waits. Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Releases unused memory.
    pub(crate) fn release_memory(&mut self) {
        if self.is_empty() {
            *self = Output::default();
        }
    }

    /// Lets `write` append to the buffer.
    fn write(&mut self, write: impl FnOnce(&mut BytesMut)) {
        if self.buffer.capacity() - self.buffer.len() < 512 {
            if self.len >= self.step {
                self.step = (self.step * 2).min(BUFFER_BYTES_MAX);
            }
            self.buffer.reserve(self.step);
        }
        let before = self.buffer.len();
        write(&mut self.buffer);
        self.len += self.buffer.len() - before;
    }

    /// Appends a protocol header.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.write(|out| out.put_slice(bytes));
    }

    /// Appends a method frame.
    pub(crate) fn method(&mut self, channel: u16, method: &Method) {
        self.write(|out| encode_method(out, channel, method));
    }

    /// Appends a heartbeat frame.
    pub(crate) fn heartbeat(&mut self) {
        self.write(encode_heartbeat);
    }

    /// Appends `basic.deliver`, from borrowed parts.
    pub(crate) fn deliver(
        &mut self,
        channel: u16,
        consumer_tag: &ShortStr,
        delivery_tag: u64,
        redelivered: bool,
        origin: (&ShortStr, &ShortStr),
    ) {
        let (exchange, routing_key) = origin;
        // Class and method, three short strings, a tag, a bit.
        let size = 4 + 3 + consumer_tag.len() + 8 + 1 + exchange.len() + routing_key.len();
        self.write(|out| {
            out.reserve(size + FRAME_OVERHEAD_BYTES);
            out.put_slice(&FramePrefix { kind: FrameKind::Method.octet(), channel, size: size as u32 }.to_bytes());
            let mut w = Writer::new(out);
            w.short(BasicDeliver::ID.class);
            w.short(BasicDeliver::ID.method);
            w.shortstr(consumer_tag);
            w.longlong(delivery_tag);
            w.bit(redelivered);
            w.shortstr(exchange);
            w.shortstr(routing_key);
            out.put_u8(FRAME_END);
        });
    }

    /// Appends the header frame and the body frames of a message, none larger than `frame_bytes_max` (0 for no limit).
    pub(crate) fn content(&mut self, channel: u16, frame_bytes_max: u32, properties: &[u8], payload: &Payload) {
        let mut left = payload.len();
        self.write(|out| encode_header(out, channel, left as u64, properties));
        let max = match frame_bytes_max {
            0 => u32::MAX as usize,
            max => (max as usize).saturating_sub(FRAME_OVERHEAD_BYTES).max(1),
        };
        let mut pieces = payload.pieces().iter();
        // The chunk that is being written, and the offset to continue at.
        let mut piece: Option<(&Chunk, usize)> = None;
        while left > 0 {
            let size = left.min(max);
            self.write(|out| out.put_slice(&body_prefix(channel, size as u32)));
            let mut wanted = size;
            while wanted > 0 {
                let Some((chunk, from)) = piece.or_else(|| pieces.next().map(|chunk| (chunk, 0))) else { return };
                let len = wanted.min(chunk.len() - from);
                self.part(chunk, from, len);
                piece = (from + len < chunk.len()).then_some((chunk, from + len));
                wanted -= len;
            }
            self.write(|out| out.put_u8(FRAME_END));
            left -= size;
        }
    }

    /// Appends a part of a chunk.
    fn part(&mut self, chunk: &Chunk, from: usize, len: usize) {
        match chunk {
            Chunk::Bytes(bytes) if len <= COPY_BYTES_MAX => {
                let part = bytes.get(from..from + len).unwrap_or_default();
                self.write(|out| out.put_slice(part));
            }
            Chunk::Bytes(bytes) => self.append(Chunk::Bytes(bytes.slice(from..from + len))),
            Chunk::File(range) => self.append(Chunk::File(FileRange {
                source: range.source.clone(),
                position: range.position + from as u64,
                len: len as u32,
            })),
        }
    }

    fn append(&mut self, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        self.close_buffer();
        self.len += chunk.len();
        self.ready.push(chunk);
    }

    fn close_buffer(&mut self) {
        if !self.buffer.is_empty() {
            self.ready.push(Chunk::Bytes(self.buffer.split().freeze()));
        }
    }

    /// Moves all output to the end of `out`; whether there was any.
    pub(crate) fn take(&mut self, out: &mut Vec<Chunk>) -> bool {
        self.close_buffer();
        if self.len < self.step / BUFFER_USED_MIN && self.step > BUFFER_BYTES_MIN {
            // Keeping the unused rest would keep the whole allocation.
            self.step /= 2;
            self.buffer = BytesMut::new();
        }
        self.len = 0;
        let some = !self.ready.is_empty();
        out.append(&mut self.ready);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_grows_with_the_output_and_shrinks_when_there_is_little() {
        let (mut output, mut out) = (Output::default(), Vec::new());
        output.heartbeat();
        assert!(output.take(&mut out) && output.buffer.capacity() <= BUFFER_BYTES_MIN);
        for _ in 0..10_000 {
            output.heartbeat();
        }
        output.take(&mut out);
        assert_eq!(output.step, BUFFER_BYTES_MAX);
        for _ in 0..8 {
            out.clear();
            output.heartbeat();
            output.take(&mut out);
        }
        assert_eq!(output.step, BUFFER_BYTES_MIN);
        assert!(output.buffer.capacity() <= 2 * BUFFER_BYTES_MIN, "{}", output.buffer.capacity());
    }
}
