//! Closing of connections, and of channels after an error.

use super::Session;
use super::channel::Life;
use super::handshake::Stage;
use crate::codec::{ConnectionClose, Method, MethodId};
use crate::refusal::Refusal;
use crate::request::Request;
use std::fmt;

/// Why a connection was closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The client closed it.
    Client,
    /// The client did not start with the protocol header of AMQP 0-9-1; the server has sent its own.
    ProtocolHeader([u8; 8]),
    /// The client did not complete the handshake in time.
    HandshakeTimeout,
    /// Nothing was received for two heartbeat intervals.
    HeartbeatTimeout,
    /// The login was refused, and the client lacks the capability to receive the reason.
    LoginRefused,
    /// The server closed it with this reason; the client has confirmed, or timed out.
    Refused(Refusal),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("closed by the client"),
            Self::ProtocolHeader(header) => {
                let header = String::from_utf8_lossy(header);
                write!(
                    f,
                    "the client sent {header:?}, which is not the protocol header of AMQP 0-9-1; the server sent its own"
                )
            }
            Self::HandshakeTimeout => f.write_str("the client did not open the connection in time"),
            Self::HeartbeatTimeout => f.write_str("nothing was received for two heartbeat intervals"),
            Self::LoginRefused => f.write_str("the login was refused"),
            Self::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

/// How long a client has to read the reason after its input became unparsable: it cannot confirm. Milliseconds.
const OUT_OF_SYNC_MS: u64 = 3_000;

/// How long a client has to confirm when the server shuts down: the shutdown must not wait for one client. Milliseconds.
const STOP_MS: u64 = 3_000;

/// A closed connection: by the server, until the client confirms; or by the client, until its socket is closed.
#[derive(Debug)]
pub(super) struct Closing {
    /// The deadline for that. Monotonic milliseconds.
    pub(super) until_ms: u64,
    pub(super) reason: CloseReason,
    /// Frame boundaries are lost: all further input is ignored.
    pub(super) lost: bool,
}

impl Session {
    /// Closes the channel with a refusal, or the connection when the code is a hard error.
    pub(super) fn refuse(&mut self, number: u16, method: MethodId, refusal: Refusal, now_ms: u64) {
        self.flush_confirms();
        match self.channels.get_mut(&number) {
            Some(channel) if !refusal.code.is_hard() => {
                if matches!(channel.life, Life::Open | Life::Opening) {
                    channel.refuse(&mut self.core, method, &refusal);
                }
            }
            _ => self.close(method, refusal, now_ms),
        }
    }

    /// Closes the connection from the server's side.
    pub(super) fn close(&mut self, method: MethodId, refusal: Refusal, now_ms: u64) {
        if self.stage.is_over() {
            // The client has already closed the connection.
            if matches!(&self.stage, Stage::Closing(closing) if closing.reason == CloseReason::Client) {
                self.stage = Stage::Closed(CloseReason::Client);
            }
            return;
        }
        self.flush_confirms();
        let close = ConnectionClose {
            reply_code: refusal.code.number(),
            reply_text: refusal.reply_text(),
            class_id: method.class,
            method_id: method.method,
        };
        self.core.output.method(0, &close.into());
        self.request_close();
        self.channels.clear();
        self.core.assembling_bytes = 0;
        self.core.bodies.clear();
        self.stage = Stage::Closing(self.closing(CloseReason::Refused(refusal), now_ms));
    }

    /// The server shuts down. Returns whether the client was notified and its confirmation is awaited: a connection that is not open yet, or already
    /// closed, gets no notification, as with RabbitMQ.
    #[must_use]
    pub fn shut_down(&mut self, now_ms: u64) -> bool {
        if !matches!(self.stage, Stage::Open { .. }) {
            return false;
        }
        self.close(MethodId::NONE, Refusal::shutdown(), now_ms);
        if let Stage::Closing(closing) = &mut self.stage {
            closing.until_ms = closing.until_ms.min(now_ms.saturating_add(STOP_MS));
        }
        true
    }

    fn closing(&self, reason: CloseReason, now_ms: u64) -> Closing {
        // At most as long as the heartbeat timeout would take.
        let max = self.core.settings.closing_ms_max;
        let wait = match self.clock.heartbeat_ms {
            0 => max,
            heartbeat => heartbeat.min(max),
        };
        Closing { until_ms: now_ms.saturating_add(wait), reason, lost: false }
    }

    /// The broker has finished a connection that the client closed. The client closes the socket, as with RabbitMQ: what it had still sent is read
    /// and dropped, because unread input would make its operating system discard the answer.
    pub(super) fn wait_for_client_close(&mut self, now_ms: u64) {
        self.send(crate::codec::ConnectionCloseOk {});
        self.stage = Stage::Closing(self.closing(CloseReason::Client, now_ms));
    }

    /// Closes the connection like [`Session::close`], and ignores all further input, which cannot be parsed.
    pub(super) fn close_out_of_sync(&mut self, refusal: Refusal, now_ms: u64) {
        self.close(MethodId::NONE, refusal, now_ms);
        if let Stage::Closing(closing) = &mut self.stage {
            closing.lost = true;
            closing.until_ms = closing.until_ms.min(now_ms.saturating_add(OUT_OF_SYNC_MS));
        }
    }

    /// Ends the connection without sending anything.
    pub(super) fn end(&mut self, reason: CloseReason) {
        self.request_close();
        self.channels.clear();
        self.core.assembling_bytes = 0;
        self.core.bodies.clear();
        self.stage = Stage::Closed(reason);
    }

    /// Sends the broker [`Request::CloseConnection`], once, if it knows of the connection.
    fn request_close(&mut self) {
        if self.stage.is_known_to_broker() {
            self.core.ask(Request::CloseConnection);
        }
    }

    /// Handles a method on a connection that is being closed.
    pub(super) fn on_method_while_closing(&mut self, id: MethodId) {
        let Stage::Closing(Closing { reason: reason @ CloseReason::Refused(_), .. }) = &self.stage else { return };
        if id == crate::codec::ConnectionCloseOk::ID {
            self.stage = Stage::Closed(reason.clone());
        } else if id == ConnectionClose::ID {
            self.send(crate::codec::ConnectionCloseOk {});
        }
    }

    /// Handles the client's `connection.close`, which is answered when the broker has finished.
    pub(super) fn on_client_close(&mut self) {
        self.flush_confirms();
        self.channels.clear();
        self.core.assembling_bytes = 0;
        self.core.bodies.clear();
        if self.stage.is_known_to_broker() {
            let token = self.core.ask(Request::CloseConnection);
            self.stage = Stage::Ending { token };
        } else {
            self.send(crate::codec::ConnectionCloseOk {});
            self.stage = Stage::Closed(CloseReason::Client);
        }
    }

    /// Sends a method on channel 0.
    pub(super) fn send(&mut self, method: impl Into<Method>) {
        self.core.output.method(0, &method.into());
    }
}
