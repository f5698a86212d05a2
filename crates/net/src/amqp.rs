//! The adapter of an AMQP connection to [`Protocol`].

use super::listener::Accept;
use super::protocol::{Frame, NoFrame, Protocol, Room};
use crate::handle::BrokerHandle;
use bytes::BytesMut;
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_gateway::{Connection, Directory, Ends};
use polylogue_api::{Catalog, Event, Now, Reply, Request, Token};
use polylogue_auth::Authority;
use polylogue_types::{Chunk, Unfinished};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Type, channel and size of a frame. Bytes.
const HEAD_BYTES: usize = 7;
/// The frame-end octet. Bytes.
const END_BYTES: usize = 1;
/// `AMQP` and four numbers: the client's first bytes. Bytes.
const PROTOCOL_HEADER_BYTES: usize = 8;
/// By how much a frame may exceed the limit: some clients ignore the overhead of a frame. Bytes.
const OVERLOOKED_BYTES: usize = HEAD_BYTES + END_BYTES;

/// An AMQP listener.
#[derive(Clone, Debug)]
pub struct AmqpAccept {
    settings: Arc<AmqpSettings>,
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    broker: Arc<dyn BrokerHandle>,
    /// Unpredictable; generated consumer tags and queue names are derived from it.
    secret: u64,
    users: Arc<dyn Authority>,
    /// Whether the listener is on a loopback address.
    is_loopback: bool,
}

impl AmqpAccept {
    /// Creates a listener for this broker.
    #[must_use]
    pub fn new(
        settings: Arc<AmqpSettings>,
        directory: Arc<Directory>,
        broker: Arc<dyn BrokerHandle>,
        secret: u64,
        users: Arc<dyn Authority>,
    ) -> AmqpAccept {
        AmqpAccept { settings, directory, catalog: broker.catalog(), broker, secret, users, is_loopback: false }
    }

    /// Sets the listener's bound address.
    #[must_use]
    pub fn at(&self, bound: IpAddr) -> Arc<AmqpAccept> {
        Arc::new(AmqpAccept { is_loopback: bound.to_canonical().is_loopback(), ..self.clone() })
    }
}

impl Accept for AmqpAccept {
    type Session = AmqpConnection;

    fn name(&self) -> &'static str {
        "amqp"
    }

    fn unsent_bytes_max(&self) -> Option<u32> {
        Some(self.settings.unsent_bytes_max).filter(|bytes| *bytes > 0)
    }

    fn session(&self, id: u64, local: SocketAddr, peer: SocketAddr, certified: Option<&str>) -> AmqpConnection {
        let seed = u128::from(self.secret) << 64 | u128::from(id);
        let now = self.broker.now();
        let (directory, catalog) = (self.directory.clone(), self.catalog.clone());
        let is_local = self.is_loopback && peer.ip().to_canonical().is_loopback();
        let inner = Connection::new(self.settings.clone(), directory, catalog, id, is_local, seed, now);
        let inner = inner.between(Ends { peer, local }).watched_by(self.users.clone());
        let inner = match certified {
            Some(name) => inner.certified_as(name),
            None => inner,
        };
        let frame_bytes_max = self.settings.frame_bytes_max as usize + OVERLOOKED_BYTES;
        AmqpConnection { inner, frame_bytes_max, greeted: false, took: false, now }
    }
}

/// A connection.
#[derive(Debug)]
pub struct AmqpConnection {
    inner: Connection,
    frame_bytes_max: usize,
    /// Whether the protocol header was consumed: frames follow.
    greeted: bool,
    /// Whether frames were consumed since the last output.
    took: bool,
    now: Now,
}

/// Returns the length of the frame at the start of `input`; `None` while it is unknown.
fn frame_len(input: &[u8], frame_bytes_max: usize) -> Result<Option<usize>, NoFrame> {
    let Some(head) = input.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    let len = HEAD_BYTES + size + END_BYTES;
    if len > frame_bytes_max { Err(NoFrame) } else { Ok(Some(len)) }
}

impl Protocol for AmqpConnection {
    /// All complete frames count as one, so that those received together are written together.
    fn next_frame(&self, input: &[u8]) -> Result<Option<Frame>, NoFrame> {
        // The protocol header has a fixed length, whatever its content.
        let mut len = if self.greeted { 0 } else { PROTOCOL_HEADER_BYTES };
        while let Some(rest) = input.get(len..).filter(|rest| !rest.is_empty()) {
            match frame_len(rest, self.frame_bytes_max) {
                Ok(Some(more)) if more <= rest.len() || len == 0 => len += more,
                Err(no_frame) if len == 0 => return Err(no_frame),
                _ => break,
            }
        }
        Ok((len > 0).then_some(Frame { len, memory: len, waiting: None }))
    }

    fn on_bytes(&mut self, input: &mut BytesMut, now: Now) {
        self.now = now;
        let before = input.len();
        self.inner.on_bytes(input, now);
        // A partial frame stays in the input and ends no request.
        self.took |= input.len() < before;
        self.greeted |= self.took;
    }

    fn wants_input(&self, _: Now) -> bool {
        self.inner.wants_input()
    }

    fn wants_room(&self) -> Option<Room> {
        None
    }

    fn on_room(&mut self, _: Now) {}

    fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.inner.poll_request()
    }

    fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        self.now = now;
        self.inner.on_reply(token, reply, now);
    }

    fn on_event(&mut self, event: Event, now: Now) {
        self.now = now;
        self.inner.on_event(event, now);
    }

    fn poll_output(&mut self, out: &mut Vec<Chunk>) -> bool {
        let some = self.inner.poll_output(out, self.now);
        std::mem::take(&mut self.took) | some
    }

    /// Consumed frames are done: their messages are in the log's queue, which has its own limit.
    fn inflight(&self) -> usize {
        0
    }

    fn next_deadline_ms(&self, _: Now) -> Option<u64> {
        self.inner.next_deadline_ms()
    }

    fn on_deadline(&mut self, now: Now) {
        self.now = now;
        self.inner.on_deadline(now);
    }

    fn begin_turn(&mut self, steps_max: u64, now: Now) {
        self.now = now;
        self.inner.begin_turn(steps_max);
    }

    fn unfinished(&self) -> Option<Unfinished> {
        self.inner.unfinished()
    }

    fn unfinished_kind(&self) -> &'static str {
        self.inner.unfinished_kind()
    }

    fn steps_used(&self) -> u64 {
        self.inner.steps_used()
    }

    fn work_owner(&self) -> Option<&str> {
        self.inner.user()
    }

    fn close_reason(&self) -> Option<String> {
        self.inner.close_reason()
    }

    fn end(&mut self, why: &str, now: Now) -> bool {
        self.now = now;
        self.inner.end(why, now);
        true
    }

    fn shut_down(&mut self, now: Now) -> bool {
        self.now = now;
        self.inner.shut_down(now)
    }

    fn on_alarm(&mut self, now: Now) {
        self.now = now;
        self.inner.on_alarm(now);
    }

    fn release_buffers(&mut self) {
        self.inner.release_buffers();
    }

    fn on_closed(&mut self) -> Option<(Token, Request)> {
        self.inner.on_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_end_where_they_say() {
        let heartbeat = [8, 0, 0, 0, 0, 0, 0, 0xce];
        assert_eq!(frame_len(&heartbeat, 4_096), Ok(Some(8)));
        assert_eq!(frame_len(&heartbeat[..6], 4_096), Ok(None));
        assert_eq!(frame_len(&[1, 0, 1, 0xff, 0, 0, 0], 4_096), Err(NoFrame));
    }
}
