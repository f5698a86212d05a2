//! The receiving half of a connection: bytes arrive, and a frame goes on when it is whole and has its permit.
//!
//! ```text
//!   nothing there ──▶ head arrives (up to FREE_BYTES) ──▶ permit asked ──▶ permit there ──▶ rest arrives ──▶ session
//!        no buffer                                        nothing is read
//! ```

use super::admission::{FREE_BYTES, Held, Lanes};
use super::link::Link;
use super::mailbox::{Mail, Mailbox};
use super::protocol::{Frame, Protocol};
use crate::handle::Permit;
use bytes::BytesMut;
use polylogue_api::Now;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What is read at a time by a connection that sends much. Bytes.
const READ_BYTES_MAX: usize = 64 << 10;
/// By how much the next read is larger or smaller.
const STEP_FACTOR: usize = 4;

/// Where the memory for the frame at the head of the input stands.
#[derive(Debug)]
enum Memory {
    /// Not asked for.
    None,
    /// Asked for; nothing is read until it is there.
    Asked,
    /// There, since then. Monotonic milliseconds.
    Granted(Permit, u64),
}

/// What came of a look at the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// Nothing more is there now.
    Blocked,
    /// So many bytes came.
    Some(usize),
    /// The peer has closed.
    End,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Input {
    bytes: BytesMut,
    memory: Memory,
    /// The frame at the head, once it is known.
    frame: Option<Frame>,
    /// What is read at a time; grows while reads fill it.
    step: usize,
    /// For the part of the buffer above [`FREE_BYTES`].
    buffer_permit: Option<Permit>,
    /// The last read did not fill its room: nothing more is there.
    drained: bool,
}

impl Input {
    pub(super) fn new() -> Input {
        Input {
            bytes: BytesMut::new(),
            memory: Memory::None,
            frame: None,
            step: FREE_BYTES,
            buffer_permit: None,
            drained: true,
        }
    }

    /// Whether reading would be of use: there is room for what comes, and nothing is waited for first.
    pub(super) fn wants_bytes(&self) -> bool {
        match (&self.memory, self.frame) {
            (Memory::Asked, _) => false,
            // A whole frame lies there, and the session has no room for it.
            (_, Some(frame)) => self.bytes.len() < frame.len,
            (_, None) => true,
        }
    }

    /// How much of the frame at the head has to come before anything can be done with it.
    pub(super) fn missing(&self) -> usize {
        match self.frame {
            Some(frame) if self.is_arriving() => frame.len.saturating_sub(self.bytes.len()),
            _ => 0,
        }
    }

    /// The permit that was asked for. One that came too late is dropped.
    pub(super) fn on_permit(&mut self, permit: Permit, now: Now) {
        if matches!(self.memory, Memory::Asked) {
            self.memory = Memory::Granted(permit, now.monotonic_ms);
        }
    }

    /// Reads once.
    pub(super) fn read(&mut self, link: &mut Link, lanes: &Lanes) -> io::Result<Read> {
        let room = match self.frame {
            // Up to the end of the frame and not into the next: that one has no permit yet.
            Some(frame) if self.is_arriving() => frame.len.saturating_sub(self.bytes.len()),
            _ => self.read_bytes(lanes).saturating_sub(self.bytes.len()),
        };
        let room = room.max(1);
        self.bytes.reserve(room);
        match link.read(&mut self.bytes, room)? {
            Some(0) => Ok(Read::End),
            Some(read) => {
                self.adapt(read, room);
                Ok(Read::Some(read))
            }
            None => {
                self.drained = true;
                Ok(Read::Blocked)
            }
        }
    }

    /// What the buffer may have before a frame at its head has a permit.
    fn read_bytes(&mut self, lanes: &Lanes) -> usize {
        if self.step > FREE_BYTES && self.buffer_permit.is_none() {
            self.buffer_permit = lanes.try_read_ahead(READ_BYTES_MAX);
        }
        if self.buffer_permit.is_some() { self.step } else { FREE_BYTES }
    }

    /// A read that filled its room is followed by a larger one, a much smaller one by a smaller one.
    fn adapt(&mut self, read: usize, room: usize) {
        self.drained = read < room;
        if !self.drained {
            self.step = (self.step * STEP_FACTOR).min(READ_BYTES_MAX);
        } else if read < self.step / STEP_FACTOR {
            self.step = (self.step / STEP_FACTOR).max(FREE_BYTES);
        }
    }

    /// To be called before waiting: a connection that falls silent keeps no more than it may have for nothing.
    pub(super) fn rest(&mut self) {
        if !self.drained {
            return;
        }
        if self.is_arriving() {
            // The buffer belongs to the frame now, which pays for it, unless more than the frame is in it.
            if self.frame.is_some_and(|frame| self.bytes.len() < frame.len) {
                self.buffer_permit = None;
            }
        } else if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
            self.buffer_permit = None;
        } else if self.buffer_permit.is_some() && self.bytes.len() <= FREE_BYTES {
            self.bytes = BytesMut::from(self.bytes.as_ref());
            self.buffer_permit = None;
        }
    }

    /// Hands frames to the session as long as they are whole, have their permits, and are wanted. The memory of those
    /// that were handed over goes to the end of `taken`.
    pub(super) fn feed<P: Protocol>(
        &mut self,
        session: &mut P,
        taken: &mut VecDeque<Held>,
        lanes: &Lanes,
        mailbox: &Arc<Mailbox>,
        now: Now,
    ) {
        while session.wants_input(now) && !self.bytes.is_empty() {
            let Ok(frame) = session.next_frame(&self.bytes) else {
                return session.on_bytes(&mut self.bytes, now);
            };
            self.frame = frame;
            let Some(frame) = frame else { return session.on_bytes(&mut self.bytes, now) };
            let whole = self.bytes.len() >= frame.len;
            match &self.memory {
                Memory::Asked => return,
                // The head is read on free memory; a frame that is no longer needs no memory before it is whole.
                Memory::None if !whole && self.bytes.len() < FREE_BYTES => {
                    return session.on_bytes(&mut self.bytes, now);
                }
                Memory::None => {
                    self.memory = Memory::Asked;
                    match lanes.try_admit(frame) {
                        Some(permit) => self.on_permit(permit, now),
                        None => {
                            let mailbox = mailbox.clone();
                            return lanes.admit(frame, Box::new(move |permit| mailbox.put(Mail::Permit(permit))));
                        }
                    }
                }
                Memory::Granted(..) if !whole => return session.on_bytes(&mut self.bytes, now),
                Memory::Granted(..) => {
                    if let Memory::Granted(permit, _) = std::mem::replace(&mut self.memory, Memory::None) {
                        taken.push_back(Held::new(permit, frame, now.monotonic_ms));
                    }
                    let mut one = self.bytes.split_to(frame.len);
                    session.on_bytes(&mut one, now);
                    self.frame = None;
                }
            }
        }
    }

    /// Whether the frame at the head holds memory that others wait for, and has held it for too long.
    pub(super) fn must_give_way(&self, lanes: &Lanes, now: Now) -> bool {
        match (&self.memory, self.frame) {
            (Memory::Granted(_, since_ms), Some(frame)) => {
                let received = self.bytes.len();
                received < frame.len && lanes.must_give_way(frame, received, now.monotonic_ms.saturating_sub(*since_ms))
            }
            _ => false,
        }
    }

    /// Whether a frame is on its way that holds memory.
    pub(super) fn is_arriving(&self) -> bool {
        matches!(self.memory, Memory::Granted(..))
    }
}
