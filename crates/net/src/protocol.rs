//! What the pump needs of a protocol's session.

use bytes::BytesMut;
use polylogue_api::{Event, Now, Reply, Request, Token};
use polylogue_types::{Chunk, Unfinished};
use std::fmt;

/// The input begins with something that will never be a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoFrame;

/// A frame that begins to arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its length, everything included: what is read of it. Bytes.
    pub len: usize,
    /// What it may take in memory until it is answered, itself included: a list takes many times its own bytes when it
    /// is decoded. At least `len`. Bytes.
    pub memory: usize,
    /// How much of that is left once the session has read it and it only waits. `None` for one that carries messages:
    /// they stay as they came until they are written. Bytes.
    pub waiting: Option<usize>,
}

/// What the answer to a request may take in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// No more than this.
    Bytes(usize),
    /// The size is unknown until the response is built.
    Unknown,
}

/// What is known of a client once it has said it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// Who has logged in.
    pub user: Option<String>,
    /// How the client calls itself.
    pub client: String,
    /// What it runs, as it says.
    pub software: Option<String>,
}

/// One connection of one protocol, without the connection.
///
/// A frame without messages is handed over when it starts at once; those with messages may lie there as they came, because an earlier one has to
/// end first.
/// One that asks for a [`Request::Watch`] has let go of what its last read returned.
pub trait Protocol: Send + fmt::Debug + 'static {
    /// The frame that `input` begins with. `None` when too little of it is there.
    ///
    /// # Errors
    /// A length that is not allowed. Then the session itself is shown the input, and ends the connection.
    fn next_frame(&self, input: &[u8]) -> Result<Option<Frame>, NoFrame>;

    /// Takes whole frames from `input` and leaves the rest there. Called with whole frames that have a permit, with the
    /// beginning of one, or with nothing when output was taken.
    fn on_bytes(&mut self, input: &mut BytesMut, now: Now);

    /// Whether more input could be used now.
    fn wants_input(&self, now: Now) -> bool;

    /// Whether the frame without messages that `input` begins with would be read at once.
    fn starts_at_once(&self, _input: &[u8]) -> bool {
        true
    }

    /// What the session holds of one of its frames while that waits, by its place among [`Protocol::inflight`] ones; `None` where that is
    /// [`Frame::waiting`]. Bytes.
    fn waiting_bytes(&self, _at: usize) -> Option<usize> {
        None
    }

    /// Who has logged in, if that is known.
    fn user(&self) -> Option<&str> {
        None
    }

    /// What the answer to the oldest frame may take, if that is more than its permit has covered and it waits for
    /// [`Protocol::on_room`].
    fn wants_room(&self) -> Option<Room>;

    /// There is room for what was wanted, until the output that answers it has been taken.
    fn on_room(&mut self, now: Now);

    /// The next thing to ask the broker.
    fn poll_request(&mut self) -> Option<(Token, Request)>;

    /// The broker's answer.
    fn on_reply(&mut self, token: Token, reply: Reply, now: Now);

    /// What the broker says later.
    fn on_event(&mut self, event: Event, now: Now);

    /// Moves responses that are due to the end of `out`. Whether any request ended by that, with or without a response.
    fn poll_output(&mut self, out: &mut Vec<Chunk>) -> bool;

    /// Frames taken whose responses were not.
    fn inflight(&self) -> usize;

    /// When [`Protocol::on_deadline`] wants to be called. Monotonic milliseconds.
    fn next_deadline_ms(&self, now: Now) -> Option<u64>;

    /// A deadline may have passed.
    fn on_deadline(&mut self, now: Now);

    /// Whether [`Protocol::spent`] wants to know the time that is spent on the connection.
    fn counts_time(&self) -> bool {
        false
    }

    /// A thread has worked so long for the connection. Nanoseconds.
    fn spent(&mut self, _ns: u64, _now: Now) {}

    /// A turn begins, in which so many steps of about 0.1 µs may be taken. What did not fit into the last one goes on.
    fn begin_turn(&mut self, steps_max: u64, now: Now);

    /// Whether there is more to do than fitted into the turn, and where.
    fn unfinished(&self) -> Option<Unfinished>;

    /// What it goes on with on a worker thread, as metrics name it: one of a few words.
    fn unfinished_kind(&self) -> &'static str;

    /// Steps that the turn has taken.
    fn steps_used(&self) -> u64;

    /// Who has logged in, whose long work waits behind that of others.
    fn payer(&self) -> Option<&str>;

    /// Whether the client has still to log in, so that what it causes is only that.
    fn is_logging_in(&self) -> bool {
        false
    }

    /// Why the connection is to be closed now, in a few words.
    fn close_reason(&self) -> Option<String>;

    /// An operator ends the connection. Whether the client gets the reason first; else it is closed like one of a server that stops.
    fn end(&mut self, _why: &str, _now: Now) -> bool {
        false
    }

    /// The server stops. Whether the client is notified, and the session ends once it has answered or had time to; else the connection is
    /// closed when what is in work has ended.
    fn shut_down(&mut self, _now: Now) -> bool {
        false
    }

    /// Whether a user of that name has logged in. Where the books of the broker's clients tell, never.
    fn is_user(&self, _name: &str) -> bool {
        false
    }

    /// The resource alarm was raised or cleared.
    fn on_alarm(&mut self, _now: Now) {}

    /// Who the client is, as soon as that is known; where it is reported elsewhere, never. It does not change afterwards.
    fn about(&self) -> Option<About> {
        None
    }

    /// Nothing has come for a while: memory that is there only to be used again may go.
    fn rest(&mut self) {}

    /// The connection is over: a last thing to tell the broker, without a waiter for its answer.
    fn on_closed(&mut self) -> Option<(Token, Request)> {
        None
    }
}
