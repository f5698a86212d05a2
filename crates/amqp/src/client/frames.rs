//! Splits input into frames, and dispatches frames to the connection or a channel.

use super::Client;
use super::handshake::Stage;
use crate::codec::*;
use bytes::{Buf, Bytes, BytesMut};

impl Client {
    /// Processes frames as long as possible.
    pub(super) fn take_input(&mut self, input: &mut BytesMut) {
        // A server of another protocol version sends its protocol header instead of `connection.start`.
        if matches!(self.stage, Stage::Starting) && input.starts_with(b"AMQP") {
            if let Some(header) = input.first_chunk::<8>() {
                let [_, _, _, _, a, b, c, d] = *header;
                self.fail(format!("the server's protocol header is AMQP {a} {b} {c} {d}"));
            }
            return;
        }
        while self.wants_input() {
            let Some(prefix) = FramePrefix::read(input) else { return };
            let size = prefix.size as usize;
            let max = (self.frame_bytes_max as usize).saturating_sub(FRAME_OVERHEAD_BYTES);
            if size > max {
                return self.fail(format!("a frame has {size} bytes, more than the limit of {max}"));
            }
            if input.len() < size + FRAME_OVERHEAD_BYTES {
                return;
            }
            let frame = input.get(FRAME_PREFIX_BYTES..).and_then(|rest| Some((rest.get(..size)?, *rest.get(size)?)));
            let Some((payload, FRAME_END)) = frame else {
                return self.fail("a frame has no valid end octet");
            };
            self.on_frame(prefix, payload);
            input.advance(size + FRAME_OVERHEAD_BYTES);
        }
    }

    /// Parts of the payload that are kept are copied: a slice would retain the whole input buffer.
    fn on_frame(&mut self, prefix: FramePrefix, payload: &[u8]) {
        let channel = prefix.channel;
        match (FrameKind::from_octet(prefix.kind), channel) {
            (Some(FrameKind::Heartbeat), _) => {}
            (Some(FrameKind::Method), 0) => match Method::decode(&Bytes::copy_from_slice(payload)) {
                Ok(method) => self.on_connection_method(method),
                Err(error) => self.fail(error.to_string()),
            },
            (Some(kind), 1..) => {
                if let Err(why) = self.on_channel_frame(kind, channel, payload) {
                    self.fail(why);
                }
            }
            _ => self.fail(format!("unexpected frame type {} on channel {channel}", prefix.kind)),
        }
    }
}
