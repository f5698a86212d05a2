//! Splits input into frames, and dispatches frames to the connection or a channel.

use super::Session;
use super::channel::{Channel, Life};
use super::handshake::Stage;
use crate::codec::*;
use crate::refusal::Refusal;
use crate::request::ChannelRef;
use bytes::{Buf, Bytes, BytesMut};

/// Frames may exceed the maximum by this much, as in RabbitMQ, because some clients compute it wrongly. Bytes.
const FUDGE_BYTES: usize = FRAME_OVERHEAD_BYTES;

/// The shortest payload, without flags, that RabbitMQ recognises as a header frame. Bytes.
const HEADER_BYTES_MIN: usize = HEADER_FRAME_BYTES_MIN - 2;

/// Complete frames that were read and not yet processed.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// The frames together with processed ones before them; empty when all are processed.
    whole: Bytes,
    /// The offset of the first unprocessed frame.
    at: usize,
}

impl Unread {
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// How much is not processed. Bytes.
    pub(super) fn len(&self) -> usize {
        self.whole.len() - self.at
    }
}

/// A frame in the input.
#[derive(Clone, Copy, Debug)]
struct Frame<'a> {
    whole: &'a Bytes,
    prefix: FramePrefix,
    /// Start and end of its payload.
    from: usize,
    to: usize,
}

impl<'a> Frame<'a> {
    fn payload(&self) -> &'a [u8] {
        self.whole.get(self.from..self.to).unwrap_or_default()
    }

    fn reader(&self) -> Reader<'a> {
        Reader::part(self.whole, self.from, self.to)
    }

    /// Reads the id of its method; `None` for other frames.
    fn method_id(&self) -> Option<MethodId> {
        if FrameKind::from_octet(self.prefix.kind) != Some(FrameKind::Method) {
            return None;
        }
        let [c0, c1, m0, m1] = *self.payload().first_chunk()?;
        Some(MethodId::new(u16::from_be_bytes([c0, c1]), u16::from_be_bytes([m0, m1])))
    }

    /// Decodes its method.
    fn method(&self) -> Result<Method, Refusal> {
        Method::read(self.reader()).map_err(|error| self.refusal(&error))
    }

    /// Decodes its `basic.publish` without going through [`Method`], which is large and would be copied several times.
    fn publish(&self) -> Result<BasicPublish, Refusal> {
        BasicPublish::read(self.reader()).map_err(|error| self.refusal(&error))
    }

    /// The refusal for a method that cannot be decoded.
    #[cold]
    fn refusal(&self, error: &DecodeError) -> Refusal {
        match error {
            DecodeError::UnknownMethod(id) => Refusal::unknown_method(*id),
            DecodeError::NotUtf8 => Refusal::malformed_utf8(),
            _ => Refusal::cannot_decode(self.payload().get(4..).unwrap_or_default()),
        }
    }
}

impl Session {
    /// Whether frames can be processed now.
    pub(super) fn takes_frames(&self) -> bool {
        if self.stage.is_over() {
            return true;
        }
        let core = &self.core;
        let stopped = core.alarm.stopped && core.bodies.is_empty();
        !self.stage.waits() && !self.is_held && !stopped && core.output.len() < core.settings.output_bytes_max
    }

    /// Reads as many frames as possible from the input.
    pub(super) fn take_input(&mut self, input: &mut BytesMut, now_ms: u64) {
        if matches!(self.stage, Stage::Header)
            && let Some(header) = input.first_chunk().copied()
        {
            input.advance(PROTOCOL_HEADER.len());
            self.on_protocol_header(header);
        }
        loop {
            self.take_frames(now_ms);
            if !self.unread.is_empty() || !self.cut_frames(input, now_ms) {
                return;
            }
        }
    }

    /// The largest payload of a frame. Bytes.
    fn payload_bytes_max(&self) -> usize {
        let frame_bytes_max = match self.stage {
            Stage::Header | Stage::Starting | Stage::Authenticating { .. } | Stage::Tuning => {
                self.core.settings.initial_frame_bytes_max
            }
            _ => self.core.frame_bytes_max,
        };
        match frame_bytes_max {
            // No limit was negotiated: a frame is no larger than a message.
            0 => usize::try_from(self.core.settings.message_bytes_max).unwrap_or(usize::MAX),
            max => (max as usize).saturating_sub(FRAME_OVERHEAD_BYTES),
        }
    }

    /// How many bytes the input must be able to hold: the largest frame accepted now. Bytes.
    #[must_use]
    pub fn input_bytes_max(&self) -> usize {
        self.payload_bytes_max().saturating_add(FRAME_OVERHEAD_BYTES + FUDGE_BYTES)
    }

    /// Splits all complete frames off the input; whether there were any.
    fn cut_frames(&mut self, input: &mut BytesMut, now_ms: u64) -> bool {
        match &self.stage {
            Stage::Header => return false,
            Stage::Closed(_) | Stage::Silent { .. } => {
                input.clear();
                return false;
            }
            Stage::Closing(closing) if closing.lost => {
                input.clear();
                return false;
            }
            _ => {}
        }
        let payload_max = self.payload_bytes_max();
        let mut len = 0;
        while let Some(prefix) = input.get(len..).and_then(FramePrefix::read) {
            let size = prefix.size as usize;
            if size > payload_max.saturating_add(FUDGE_BYTES) {
                if len == 0 {
                    input.clear();
                    let max = u32::try_from(payload_max).unwrap_or(u32::MAX);
                    self.close_out_of_sync(Refusal::frame_too_large(prefix.kind, prefix.size, max), now_ms);
                }
                break;
            }
            let next = len + size + FRAME_OVERHEAD_BYTES;
            if next > input.len() {
                break;
            }
            len = next;
        }
        if len == 0 {
            return false;
        }
        self.unread = Unread { whole: input.split_to(len.min(input.len())).freeze(), at: 0 };
        true
    }

    /// Processes the split-off frames, until one has to wait or the broker has to take a request.
    pub(super) fn take_frames(&mut self, now_ms: u64) {
        let Unread { whole, mut at } = std::mem::take(&mut self.unread);
        while at < whole.len() && !self.awaits_outcome && self.core.requests.is_empty() && self.takes_frames() {
            let Some(prefix) = whole.get(at..).and_then(FramePrefix::read) else { break };
            let from = at + FRAME_PREFIX_BYTES;
            let frame = Frame { whole: &whole, prefix, from, to: from + prefix.size as usize };
            match whole.get(frame.to).copied() {
                Some(FRAME_END) => {
                    if !self.on_frame(&frame, now_ms) {
                        break;
                    }
                    at = frame.to + 1;
                }
                Some(end) => {
                    let refusal = Refusal::bad_frame_end(prefix.kind, frame.payload(), end);
                    self.close_out_of_sync(refusal, now_ms);
                    return;
                }
                None => return,
            }
        }
        if at < whole.len() {
            self.unread = Unread { whole, at };
        }
    }

    /// Returns whether the frame was taken; the frames behind it wait.
    fn on_frame(&mut self, frame: &Frame<'_>, now_ms: u64) -> bool {
        if self.stage.is_over() {
            if let (0, Some(id)) = (frame.prefix.channel, frame.method_id()) {
                self.on_method_while_closing(id);
            }
            return true;
        }
        let FramePrefix { kind: number, channel, size } = frame.prefix;
        let kind = FrameKind::from_octet(number);
        let whole = match kind {
            None => false,
            Some(FrameKind::Method) => size >= 4,
            Some(FrameKind::Header) => size as usize >= HEADER_BYTES_MIN,
            Some(FrameKind::Body) => true,
            Some(FrameKind::Heartbeat) => size == 0,
        };
        let (Some(kind), true) = (kind, whole) else {
            self.close(MethodId::NONE, Refusal::unknown_frame(number, frame.payload()), now_ms);
            return true;
        };
        match (kind, channel) {
            (FrameKind::Heartbeat, 0) => {}
            (FrameKind::Method, 0) => match frame.method() {
                Ok(method) => self.on_connection_method(method, now_ms),
                Err(refusal) => self.close(frame.method_id().unwrap_or_default(), refusal, now_ms),
            },
            (FrameKind::Method | FrameKind::Header | FrameKind::Body, 1..) if self.is_open() => {
                return self.on_channel_frame(kind, frame, now_ms);
            }
            _ => self.close(MethodId::NONE, Refusal::unexpected_frame(number, frame.payload()), now_ms),
        }
        true
    }

    /// Returns whether the frame was taken: not while its channel waits for the broker.
    fn on_channel_frame(&mut self, kind: FrameKind, frame: &Frame<'_>, now_ms: u64) -> bool {
        let number = frame.prefix.channel;
        if self.core.alarm.stopped && self.must_wait(frame.method_id()) {
            return false;
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            self.on_unopened(kind, frame, now_ms);
            return true;
        };
        if channel.awaited.is_some() {
            return false;
        }
        if channel.life == Life::Closing {
            if let Some(id) = frame.method_id()
                && channel.on_method_while_closing(&mut self.core, id)
            {
                self.channels.remove(&number);
            }
            return true;
        }
        let core = &mut self.core;
        // Reported is the method of the interrupted message, or of the message that the frame belongs to; none if there is no such message.
        let begun = if channel.assembling.is_some() { BasicPublish::ID } else { MethodId::NONE };
        let (outcome, id) = match kind {
            FrameKind::Method => match channel.expects_method() {
                Err(refusal) => (Err(refusal), begun),
                Ok(()) => {
                    let id = frame.method_id().unwrap_or_default();
                    let outcome = match id {
                        BasicPublish::ID => frame.publish().and_then(|publish| channel.on_publish(publish)),
                        _ => frame.method().and_then(|method| channel.on_method(core, method)),
                    };
                    (outcome, id)
                }
            },
            FrameKind::Header => {
                let header = ContentHeader::read(frame.reader()).map_err(|error| Refusal::bad_properties(&error));
                (header.and_then(|header| channel.on_header(core, header)), begun)
            }
            FrameKind::Body => {
                let body = frame.whole.slice(frame.from..frame.to);
                (channel.on_body(core, body), begun)
            }
            FrameKind::Heartbeat => return true,
        };
        if let Err(refusal) = outcome {
            self.refuse(number, id, refusal, now_ms);
        }
        true
    }

    /// Handles a frame for a channel that is not open: opens it, or is an error.
    fn on_unopened(&mut self, kind: FrameKind, frame: &Frame<'_>, now_ms: u64) {
        let number = frame.prefix.channel;
        let id = frame.method_id().unwrap_or_default();
        if number <= self.highest_channel && may_arrive_after_close(id) {
            return;
        }
        let (open, max) = (self.channels.len(), self.channel_max);
        if max != 0 && open >= usize::from(max) {
            return self.close(MethodId::NONE, Refusal::too_many_channels(open, max), now_ms);
        }
        if kind != FrameKind::Method {
            return self.close(MethodId::NONE, Refusal::expected_method(), now_ms);
        }
        match frame.method() {
            Ok(Method::ChannelOpen(_)) => {
                self.next_life += 1;
                self.highest_channel = self.highest_channel.max(number);
                let mut channel = Channel::new(ChannelRef { number, life: self.next_life });
                channel.open(&mut self.core);
                self.channels.insert(number, Box::new(channel));
            }
            Ok(_) => self.close(id, Refusal::expected_channel_open(), now_ms),
            Err(refusal) => self.close(id, refusal, now_ms),
        }
    }
}

/// Whether the method may arrive after the server closed the channel.
fn may_arrive_after_close(id: MethodId) -> bool {
    matches!(id, BasicAck::ID | BasicNack::ID | BasicReject::ID | ChannelCloseOk::ID)
}
