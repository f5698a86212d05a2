//! The receiving half of a connection: bytes are received, and a frame is passed on when it is complete and has its permit.
//!
//! ```text
//!   idle ──▶ head received (up to FREE_BYTES) ──▶ permit requested ──▶ permit granted ──▶ rest received ──▶ session
//!   no buffer                                     reading is paused
//! ```
//!
//! A permit for a request without messages is requested only when the request could start: behind a long poll it stays mostly in the
//! socket, as in Kafka, which reads one request of a connection at a time.

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

/// The maximum size of a read on a busy connection. Bytes.
const READ_BYTES_MAX: usize = 64 << 10;
/// Factor by which the size of reads grows or shrinks.
const STEP_FACTOR: usize = 4;

/// The state of the memory for the frame at the head of the input.
#[derive(Debug)]
enum Memory {
    /// Not requested.
    None,
    /// The user's share is requested; reading is paused.
    AskedShare,
    /// The share is granted, or none is needed.
    Shared(Option<Permit>),
    /// The memory itself is requested; reading is paused.
    Asked(Option<Permit>),
    /// Granted at this time. Monotonic milliseconds.
    Granted(Grant, u64),
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// Nothing more is available now.
    Blocked,
    /// Bytes were received.
    Some(usize),
    /// The peer has closed the connection.
    End,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Input {
    bytes: BytesMut,
    memory: Memory,
    /// The frame at the head, once known.
    frame: Option<Frame>,
    /// Size of the next read; grows while reads fill it.
    step: usize,
    /// The permit for the buffer above [`FREE_BYTES`].
    buffer_permit: Option<Permit>,
    /// Whether the last read did not fill its buffer: nothing more is available.
    drained: bool,
    /// The account that requests are charged to.
    account: Account,
    /// Whether the frame at the head must wait for earlier ones of the connection: no memory is requested for it.
    held_back: bool,
    /// Number of frames that waited for a share since the counter was last read.
    waits_for_share: u64,
}

impl Input {
    /// Creates it with the account that requests are charged to.
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

    /// Charges requests to another account from now on.
    pub(super) fn count_for(&mut self, account: Account) {
        self.account = account;
    }

    /// Returns and resets the number of frames that waited because others of their connection or user used the share.
    pub(super) fn take_waits_for_share(&mut self) -> u64 {
        std::mem::take(&mut self.waits_for_share)
    }

    /// Whether reading is useful: there is space for more input, and no permit is awaited first.
    pub(super) fn wants_bytes(&self) -> bool {
        match (&self.memory, self.frame) {
            (Memory::AskedShare | Memory::Asked(_), _) => false,
            _ if self.held_back => false,
            // The frame is complete, and the session has no slot for it.
            (_, Some(frame)) => self.bytes.len() < frame.len,
            (_, None) => true,
        }
    }

    /// Returns how many bytes of the frame at the head must be received before it can be processed.
    pub(super) fn missing(&self) -> usize {
        match self.frame {
            Some(frame) if self.is_arriving() => frame.len.saturating_sub(self.bytes.len()),
            _ => 0,
        }
    }

    /// Handles a granted permit. One that is no longer needed is dropped.
    pub(super) fn on_permit(&mut self, permit: Permit, now: Now) {
        self.memory = match std::mem::replace(&mut self.memory, Memory::None) {
            Memory::AskedShare => Memory::Shared(Some(permit)),
            Memory::Asked(share) => Memory::Granted(Grant::new(permit, share), now.monotonic_ms),
            other => other,
        };
    }

    /// Whether a frame that waited for earlier ones may continue.
    pub(super) fn goes_on<P: Protocol>(&self, session: &P, taken: &VecDeque<Held>, lanes: &Lanes) -> bool {
        self.held_back
            && self.frame.is_some_and(|frame| session.starts_at_once(&self.bytes) && lanes.has_share(frame, taken))
    }

    /// Reads once.
    pub(super) fn read(&mut self, link: &mut Link, lanes: &Lanes) -> io::Result<Read> {
        let room = match self.frame {
            // Not beyond the end of the frame: the next one has no permit yet.
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

    /// Returns the size of the buffer before the frame at its head has a permit.
    fn read_bytes(&mut self, lanes: &Lanes) -> usize {
        if self.step > FREE_BYTES && self.buffer_permit.is_none() {
            self.buffer_permit = lanes.try_read_ahead(READ_BYTES_MAX);
        }
        if self.buffer_permit.is_some() { self.step } else { FREE_BYTES }
    }

    /// Adapts the size of reads: larger after a full read, smaller after a much smaller one.
    fn adapt(&mut self, read: usize, room: usize) {
        self.drained = read < room;
        if !self.drained {
            self.step = (self.step * STEP_FACTOR).min(READ_BYTES_MAX);
        } else if read < self.step / STEP_FACTOR {
            self.step = (self.step / STEP_FACTOR).max(FREE_BYTES);
        }
    }

    /// Releases unused memory; called before waiting, so that an idle connection keeps no more than its free bytes.
    pub(super) fn release_buffers(&mut self) {
        if !self.drained {
            return;
        }
        if self.is_arriving() {
            // The buffer belongs to the frame, whose permit covers it, unless it contains more than the frame.
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

    /// Passes frames to the session while they are complete, have their permits, and are wanted. Their permits are appended
    /// to `taken`.
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
                // The head is read without a permit; a frame that fits into the free bytes needs none before it is complete.
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

    /// Requests the user's share for a frame without messages, once it could start. Returns whether it is granted.
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

    /// Requests the memory of a frame whose share is granted. Returns whether it is granted.
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

    /// Whether the frame at the head has held memory that others wait for, for too long.
    pub(super) fn must_give_way(&self, lanes: &Lanes, now: Now) -> bool {
        match (&self.memory, self.frame) {
            (Memory::Granted(_, since_ms), Some(frame)) => {
                let received = self.bytes.len();
                received < frame.len && lanes.must_give_way(frame, received, now.monotonic_ms.saturating_sub(*since_ms))
            }
            _ => false,
        }
    }

    /// Whether a frame that holds memory is being received.
    pub(super) fn is_arriving(&self) -> bool {
        matches!(self.memory, Memory::Granted(..))
    }
}
