//! The receiving half of a connection: bytes arrive, and a frame goes on when it is whole and has its permit.
//!
//! ```text
//!   nothing there ──▶ head arrives (up to FREE_BYTES) ──▶ permit asked ──▶ permit there ──▶ rest arrives ──▶ session
//!        no buffer                                        nothing is read
//! ```
//!
//! A request that carries no messages is asked a permit for when it could start, and not before: behind a long poll it stays where it is, in the
//! peer's socket for the most part, as with Kafka, which reads one request of a connection at a time.

use super::admission::{FREE_BYTES, Held, Lanes};
use super::link::Link;
use super::mailbox::{Mail, Mailbox};
use super::protocol::{Frame, Protocol};
use super::shares::{Account, Grant};
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
    /// Its user's share of it is asked for; nothing is read until it is there.
    AskedShare,
    /// The share is there, or none is needed.
    Shared(Option<Permit>),
    /// The memory itself is asked for; nothing is read until it is there.
    Asked(Option<Permit>),
    /// There, since then. Monotonic milliseconds.
    Granted(Grant, u64),
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
    /// Whose requests these are.
    account: Account,
    /// The frame at the head has to wait for earlier ones of the connection: nothing is asked for it.
    held_back: bool,
    /// How often a frame had to wait for a share since the last count was taken.
    waits_for_share: u64,
}

impl Input {
    /// Of a connection whose requests count against that account.
    pub(super) fn new(account: Account) -> Input {
        Input {
            bytes: BytesMut::new(),
            memory: Memory::None,
            frame: None,
            step: FREE_BYTES,
            buffer_permit: None,
            drained: true,
            account,
            held_back: false,
            waits_for_share: 0,
        }
    }

    /// Has requests count against another account from now on.
    pub(super) fn count_for(&mut self, account: Account) {
        self.account = account;
    }

    /// How often a frame had to wait because others of its connection or user held their share, since the last time.
    pub(super) fn take_waits_for_share(&mut self) -> u64 {
        std::mem::take(&mut self.waits_for_share)
    }

    /// Whether reading would be of use: there is room for what comes, and nothing is waited for first.
    pub(super) fn wants_bytes(&self) -> bool {
        match (&self.memory, self.frame) {
            (Memory::AskedShare | Memory::Asked(_), _) => false,
            _ if self.held_back => false,
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
        self.memory = match std::mem::replace(&mut self.memory, Memory::None) {
            Memory::AskedShare => Memory::Shared(Some(permit)),
            Memory::Asked(share) => Memory::Granted(Grant::new(permit, share), now.monotonic_ms),
            other => other,
        };
    }

    /// Whether a frame that had to wait for earlier ones need not any more.
    pub(super) fn goes_on<P: Protocol>(&self, session: &P, taken: &VecDeque<Held>, lanes: &Lanes) -> bool {
        self.held_back
            && self.frame.is_some_and(|frame| session.starts_at_once(&self.bytes) && lanes.has_share(frame, taken))
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
                Memory::AskedShare | Memory::Asked(_) => return,
                // The head is read on free memory; a frame that is no longer needs no memory before it is whole.
                Memory::None if !whole && self.bytes.len() < FREE_BYTES => {
                    return session.on_bytes(&mut self.bytes, now);
                }
                Memory::None if frame.waiting.is_none() => self.memory = Memory::Shared(None),
                Memory::None => {
                    if !self.ask_share(frame, session, taken, lanes, mailbox) {
                        return;
                    }
                }
                Memory::Shared(_) => {
                    if !self.ask_memory(frame, lanes, mailbox, now) {
                        return;
                    }
                }
                Memory::Granted(..) if !whole => return session.on_bytes(&mut self.bytes, now),
                Memory::Granted(..) => {
                    if let Memory::Granted(grant, _) = std::mem::replace(&mut self.memory, Memory::None) {
                        taken.push_back(Held::new(grant, frame, now.monotonic_ms));
                    }
                    let mut one = self.bytes.split_to(frame.len);
                    session.on_bytes(&mut one, now);
                    self.frame = None;
                }
            }
        }
    }

    /// Asks for the part of its user's share that a frame without messages takes, once it could start. Whether that is there.
    fn ask_share<P: Protocol>(
        &mut self,
        frame: Frame,
        session: &P,
        taken: &VecDeque<Held>,
        lanes: &Lanes,
        mailbox: &Arc<Mailbox>,
    ) -> bool {
        let was_held_back = std::mem::replace(&mut self.held_back, true);
        if !session.starts_at_once(&self.bytes) {
            return false;
        }
        if !lanes.has_share(frame, taken) {
            self.waits_for_share += u64::from(!was_held_back);
            return false;
        }
        self.held_back = false;
        let (share, bytes) = lanes.share(frame, session.user(), &mut self.account);
        if let Some(permit) = share.try_admit(bytes) {
            self.memory = Memory::Shared(Some(permit));
            return true;
        }
        self.waits_for_share += 1;
        self.memory = Memory::AskedShare;
        let mailbox = mailbox.clone();
        share.admit(bytes, Box::new(move |permit| mailbox.put(Mail::Permit(permit))));
        false
    }

    /// Asks for the memory of a frame whose share is there. Whether it is there as well.
    fn ask_memory(&mut self, frame: Frame, lanes: &Lanes, mailbox: &Arc<Mailbox>, now: Now) -> bool {
        if let Memory::Shared(share) = std::mem::replace(&mut self.memory, Memory::None) {
            self.memory = Memory::Asked(share);
        }
        match lanes.try_admit(frame) {
            Some(permit) => self.on_permit(permit, now),
            None => {
                let mailbox = mailbox.clone();
                lanes.admit(frame, Box::new(move |permit| mailbox.put(Mail::Permit(permit))));
            }
        }
        matches!(self.memory, Memory::Granted(..))
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
