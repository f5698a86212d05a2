//! A test protocol: frames of a length and a body, whose first byte is the command.

use crate::listener::Accept;
use crate::protocol::{Frame, NoFrame, Protocol, Room};
use bytes::{Buf, Bytes, BytesMut};
use polylogue_api::{Event, Now, ReadRequest, Reply, Request, Token};
use polylogue_types::{Chunk, FileRange, STEPS_PER_TURN, Unfinished};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest frame.
pub(super) const FRAME_BYTES_MAX: usize = 11 << 20;
/// Memory of a list when decoded, and while it waits, in multiples of its size.
pub(super) const LIST_FACTORS: (usize, usize) = (8, 2);
/// Requests in progress.
const SLOTS: usize = 4;
const MIB: usize = 1 << 20;

/// Creates sessions of the test protocol.
#[derive(Clone, Debug)]
pub(super) struct ToyAccept {
    /// The file returned by `f`.
    pub(super) file: Option<FileRange>,
    /// How often sessions released their buffers.
    pub(super) rests: Arc<AtomicUsize>,
}

impl Accept for ToyAccept {
    type Session = Toy;

    fn name(&self) -> &'static str {
        "toy"
    }

    fn session(&self, _id: u64, _local: SocketAddr, _peer: SocketAddr, _certified: Option<&str>) -> Toy {
        Toy {
            accept: self.clone(),
            slots: VecDeque::new(),
            requests: VecDeque::new(),
            next_token: 0,
            user: None,
            closing: None,
        }
    }
}

#[derive(Debug)]
enum Slot {
    Waiting(Token),
    /// For memory for a long response.
    Room(usize),
    /// For a worker thread.
    Worker,
    Done(Vec<Chunk>),
}

/// A session.
#[derive(Debug)]
pub(super) struct Toy {
    accept: ToyAccept,
    slots: VecDeque<Slot>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    user: Option<String>,
    closing: Option<&'static str>,
}

/// Encodes a frame with this body.
pub(super) fn frame(body: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(body);
    out
}

impl Toy {
    fn ask(&mut self, request: Request) {
        self.requests.push_back((self.next_token, request));
        self.slots.push_back(Slot::Waiting(self.next_token));
        self.next_token += 1;
    }

    fn on_frame(&mut self, body: Bytes) {
        match body.first() {
            // Echo.
            Some(b'e') => self.slots.push_back(Slot::Done(vec![Chunk::Bytes(frame(&body).into())])),
            // Log in, and echo.
            Some(b'u') => {
                self.user = Some(String::from_utf8(body.to_vec()).unwrap());
                self.slots.push_back(Slot::Done(vec![Chunk::Bytes(frame(&body).into())]));
            }
            // Send a request to the broker.
            Some(b'a') => self.ask(Request::AllocateProducerId),
            // The same, with a list.
            Some(b'w') => self.ask(Request::AllocateProducerId),
            // Read from the broker.
            Some(b'r') => {
                self.ask(Request::Read(ReadRequest { parts: Vec::new(), bytes_max: u32::MAX, at_least_one: true }))
            }
            // Answer with so many MiB.
            Some(b'm') => {
                let count = usize::from(*body.get(1).unwrap());
                let mib = Bytes::from(vec![b'm'; MIB]);
                self.slots.push_back(Slot::Done(vec![Chunk::Bytes(mib); count]));
            }
            // The same, when memory is granted.
            Some(b'l') => self.slots.push_back(Slot::Room(usize::from(*body.get(1).unwrap()) * MIB)),
            // A part of a file, with a byte before and after it.
            Some(b'f') => {
                let file = Chunk::File(self.accept.file.clone().unwrap());
                let edge = |text: &'static str| Chunk::Bytes(Bytes::from_static(text.as_bytes()));
                self.slots.push_back(Slot::Done(vec![edge("<"), file, Chunk::Bytes(Bytes::new()), edge(">")]));
            }
            // The name of the worker thread.
            Some(b'k') => self.slots.push_back(Slot::Worker),
            // No response.
            Some(b's') => self.slots.push_back(Slot::Done(Vec::new())),
            _ => self.closing = Some("no such request"),
        }
    }
}

impl Protocol for Toy {
    fn next_frame(&self, input: &[u8]) -> Result<Option<Frame>, NoFrame> {
        let Some(prefix) = input.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes(*prefix) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(NoFrame);
        }
        let Some(kind) = input.get(4) else { return Ok(None) };
        let (factor, waiting) = if *kind == b'w' { (LIST_FACTORS.0, Some(LIST_FACTORS.1 * len)) } else { (1, None) };
        Ok(Some(Frame { len: 4 + len, memory: 4 + factor * len, waiting }))
    }

    fn on_bytes(&mut self, input: &mut BytesMut, now: Now) {
        while self.wants_input(now) {
            match self.next_frame(input) {
                Err(NoFrame) => self.closing = Some("frame too long"),
                Ok(Some(next)) if input.len() >= next.len => {
                    let mut frame = input.split_to(next.len);
                    frame.advance(4);
                    self.on_frame(frame.freeze());
                }
                Ok(_) => return,
            }
        }
    }

    fn wants_input(&self, _now: Now) -> bool {
        self.closing.is_none() && self.slots.len() < SLOTS
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    fn wants_room(&self) -> Option<Room> {
        match self.slots.front() {
            Some(Slot::Room(bytes)) => Some(Room::Bytes(*bytes)),
            _ => None,
        }
    }

    fn on_room(&mut self, _now: Now) {
        if let Some(slot @ Slot::Room(_)) = self.slots.front_mut()
            && let Slot::Room(bytes) = *slot
        {
            *slot = Slot::Done(vec![Chunk::Bytes(vec![b'l'; bytes].into())]);
        }
    }

    fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    fn on_reply(&mut self, token: Token, reply: Reply, _now: Now) {
        for slot in &mut self.slots {
            if matches!(slot, Slot::Waiting(t) if *t == token) {
                let (text, data) = match &reply {
                    Reply::ProducerId(id) => (format!("p{}", id.unwrap()), Vec::new()),
                    Reply::Read(parts) => ("read".to_owned(), parts.iter().flatten().collect()),
                    _ => ("?".to_owned(), Vec::new()),
                };
                let mut chunks = vec![Chunk::Bytes(frame(text.as_bytes()).into())];
                chunks.extend(data.into_iter().flat_map(|part| part.chunks.iter().cloned()));
                *slot = Slot::Done(chunks);
            }
        }
    }

    fn on_event(&mut self, _event: Event, _now: Now) {}

    fn poll_output(&mut self, out: &mut Vec<Chunk>) -> bool {
        let before = self.slots.len();
        while let Some(Slot::Done(chunks)) = self.slots.front_mut() {
            out.append(chunks);
            self.slots.pop_front();
        }
        self.slots.len() < before
    }

    fn inflight(&self) -> usize {
        self.slots.len()
    }

    fn next_deadline_ms(&self, _now: Now) -> Option<u64> {
        None
    }

    fn on_deadline(&mut self, _now: Now) {}

    fn release_buffers(&mut self) {
        self.accept.rests.fetch_add(1, Ordering::Relaxed);
    }

    fn begin_turn(&mut self, steps_max: u64, _now: Now) {
        let thread = std::thread::current();
        for slot in &mut self.slots {
            if matches!(slot, Slot::Worker) && steps_max > STEPS_PER_TURN {
                *slot = Slot::Done(vec![Chunk::Bytes(frame(thread.name().unwrap_or_default().as_bytes()).into())]);
            }
        }
    }

    fn unfinished(&self) -> Option<Unfinished> {
        self.slots.iter().any(|slot| matches!(slot, Slot::Worker)).then_some(Unfinished::Worker)
    }

    fn unfinished_kind(&self) -> &'static str {
        "toy"
    }

    fn steps_used(&self) -> u64 {
        0
    }

    fn work_owner(&self) -> Option<&str> {
        None
    }

    fn close_reason(&self) -> Option<String> {
        if self.slots.is_empty() { self.closing.map(str::to_owned) } else { None }
    }
}
