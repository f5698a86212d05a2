//! [`Protocol`]: the sans-IO session that a connection task drives.

use bytes::BytesMut;
use polylogue_api::{Event, Now, Reply, Request, Token};
use polylogue_types::{Chunk, Unfinished};
use std::fmt;

/// The input does not start with a valid frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoFrame;

/// Size of the frame at the start of the input, known from its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Length on the wire, header included. Bytes.
    pub len: usize,
    /// Upper bound of the memory it needs until it is answered, its own bytes included: a decoded list takes many times
    /// its bytes on the wire. At least `len`. Bytes.
    pub memory: usize,
    /// Memory that it keeps after the session has decoded it, while it waits. `None` for a frame with messages: their
    /// encoded bytes are kept until they are written. Bytes.
    pub waiting: Option<usize>,
}

/// Memory that the response to a request may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// An upper bound.
    Bytes(usize),
    /// The size is unknown until the response is built.
    Unknown,
}

/// A client's identity, complete once the client has sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientInfo {
    /// The authenticated user.
    pub user: Option<String>,
    /// The client's name for itself, such as Kafka's client id.
    pub client: String,
    /// The client library and its version, as reported by the client.
    pub software: Option<String>,
}

/// A protocol session of one connection, without IO.
///
/// A frame without messages is passed to the session only when [`Protocol::starts_at_once`] is true for it. Frames with messages may be queued
/// in the session, undecoded, until earlier ones have ended. A session that issues a [`Request::Watch`] has released the result of its last read.
pub trait Protocol: Send + fmt::Debug + 'static {
    /// Returns the size of the frame at the start of `input`; `None` when too few bytes have arrived.
    ///
    /// # Errors
    /// The length is not allowed. The input is then passed to the session, which ends the connection.
    fn next_frame(&self, input: &[u8]) -> Result<Option<Frame>, NoFrame>;

    /// Consumes whole frames from `input` and leaves the rest. Called with whole frames that have a permit, with the
    /// beginning of a frame, or with no input after output was taken.
    fn on_bytes(&mut self, input: &mut BytesMut, now: Now);

    /// Whether the session accepts more input now.
    fn wants_input(&self, now: Now) -> bool;

    /// Whether the session would decode the frame without messages at the start of `input` immediately.
    fn starts_at_once(&self, _input: &[u8]) -> bool {
        true
    }

    /// Memory held for the waiting frame at index `at` of the [`Protocol::inflight`] frames; `None` if it equals [`Frame::waiting`]. Bytes.
    fn waiting_bytes(&self, _at: usize) -> Option<usize> {
        None
    }

    /// The authenticated user, if any.
    fn user(&self) -> Option<&str> {
        None
    }

    /// The memory for the response to the oldest frame, if that exceeds its permit and the session waits for
    /// [`Protocol::on_room`].
    fn wants_room(&self) -> Option<Room>;

    /// Grants the memory requested by [`Protocol::wants_room`] until the response has been taken.
    fn on_room(&mut self, now: Now);

    /// Returns the next request to the broker.
    fn poll_request(&mut self) -> Option<(Token, Request)>;

    /// Handles the broker's reply to the request with this token.
    fn on_reply(&mut self, token: Token, reply: Reply, now: Now);

    /// Handles an event of the broker.
    fn on_event(&mut self, event: Event, now: Now);

    /// Appends the responses that are due to `out`. Returns whether any request ended, with or without a response.
    fn poll_output(&mut self, out: &mut Vec<Chunk>) -> bool;

    /// Number of frames consumed whose responses have not been taken.
    fn inflight(&self) -> usize;

    /// When [`Protocol::on_deadline`] must be called next. Monotonic milliseconds.
    fn next_deadline_ms(&self, now: Now) -> Option<u64>;

    /// Handles deadlines that have passed; may be called early.
    fn on_deadline(&mut self, now: Now);

    /// Whether the time spent on the connection must be reported to [`Protocol::charge_time`].
    fn counts_time(&self) -> bool {
        false
    }

    /// Reports processor time spent on the connection. Nanoseconds.
    fn charge_time(&mut self, _ns: u64, _now: Now) {}

    /// Begins a turn of at most `steps_max` steps of about 0.1 µs each, and continues the work left from the last turn.
    fn begin_turn(&mut self, steps_max: u64, now: Now);

    /// Returns where the work left over from the turn should continue; `None` if none is left.
    fn unfinished(&self) -> Option<Unfinished>;

    /// Label in metrics of the work that continues on a worker thread; of a small fixed set.
    fn unfinished_kind(&self) -> &'static str;

    /// Number of steps taken in this turn.
    fn steps_used(&self) -> u64;

    /// The user to whom work on worker threads is accounted, for fairness among users.
    fn work_owner(&self) -> Option<&str>;

    /// Whether the client has not authenticated yet, so that all its work counts as login.
    fn is_logging_in(&self) -> bool {
        false
    }

    /// Returns the reason if the connection must be closed now.
    fn close_reason(&self) -> Option<String>;

    /// Ends the connection for an operator. Returns whether the reason is sent to the client; if not, it is closed as at a shutdown.
    fn end(&mut self, _why: &str, _now: Now) -> bool {
        false
    }

    /// Begins the shutdown. Returns whether the client is notified, and the session ends after its answer or a timeout; if not, the connection is
    /// closed when the requests in flight have ended.
    fn shut_down(&mut self, _now: Now) -> bool {
        false
    }

    /// Whether this user is logged in. Always false for sessions that the broker's client registry lists.
    fn is_user(&self, _name: &str) -> bool {
        false
    }

    /// The resource alarm was raised or cleared.
    fn on_alarm(&mut self, _now: Now) {}

    /// Returns the client's identity once it is known; it does not change afterwards. Always `None` for sessions that report it elsewhere.
    fn client_info(&self) -> Option<ClientInfo> {
        None
    }

    /// Releases memory kept for reuse, after a period without input.
    fn release_buffers(&mut self) {}

    /// Returns a last request to the broker after the connection was closed; its reply is dropped.
    fn on_closed(&mut self) -> Option<(Token, Request)> {
        None
    }
}
