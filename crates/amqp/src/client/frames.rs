//! From bytes to frames, and from frames to the connection or a channel.

use super::Client;
use super::handshake::Stage;
use crate::codec::*;
use bytes::{Bytes, BytesMut};

impl Client {
    /// Takes frames as long as they can be used.
    pub(super) fn take_input(&mut self, input: &mut BytesMut) {
        // A server that speaks something else says what it speaks, where `connection.start` would be.
        if matches!(self.stage, Stage::Starting) && input.starts_with(b"AMQP") {
            if let Some(header) = input.first_chunk::<8>() {
                let [_, _, _, _, a, b, c, d] = *header;
                self.fail(format!("it speaks AMQP {a} {b} {c} {d}"));
            }
            return;
        }
        while self.wants_input() {
            let Some(prefix) = FramePrefix::read(input) else { return };
            let size = prefix.size as usize;
            let max = (self.frame_bytes_max as usize).saturating_sub(FRAME_OVERHEAD_BYTES);
            if size > max {
                return self.fail(format!("a frame has {size} bytes, and may have {max}"));
            }
            if input.len() < size + FRAME_OVERHEAD_BYTES {
                return;
            }
            let frame = input.split_to(size + FRAME_OVERHEAD_BYTES).freeze();
            if frame.last() != Some(&FRAME_END) {
                return self.fail("a frame does not end where it says");
            }
            self.on_frame(prefix, &frame.slice(FRAME_PREFIX_BYTES..FRAME_PREFIX_BYTES + size));
        }
    }

    fn on_frame(&mut self, prefix: FramePrefix, payload: &Bytes) {
        let channel = prefix.channel;
        match (FrameKind::from_octet(prefix.kind), channel) {
            (Some(FrameKind::Heartbeat), _) => {}
            (Some(FrameKind::Method), 0) => match Method::decode(payload) {
                Ok(method) => self.on_connection_method(method),
                Err(error) => self.fail(error.to_string()),
            },
            (Some(kind), 1..) => {
                if let Err(why) = self.on_channel_frame(kind, channel, payload) {
                    self.fail(why);
                }
            }
            _ => self.fail(format!("a frame of the kind {} on channel {channel}", prefix.kind)),
        }
    }
}
