//! The end of a connection, and of a channel that did something wrong.

use super::Session;
use super::channel::Life;
use super::handshake::Stage;
use crate::codec::{ConnectionClose, Method, MethodId};
use crate::refusal::Refusal;
use crate::request::Request;
use std::fmt;

/// Why a connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The client wanted it.
    Client,
    /// The client did not begin with AMQP 0-9-1; it was told what is spoken here.
    ProtocolHeader([u8; 8]),
    /// The client was not done with the handshake in time.
    HandshakeTimeout,
    /// The client was silent for two heartbeats.
    HeartbeatTimeout,
    /// The client may not log in, and has no way to be told.
    LoginRefused,
    /// The client was told why, and has said that it knows, or had time to.
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
                    "the client began with {header:?}, which is not AMQP 0-9-1: it was told the version spoken here"
                )
            }
            Self::HandshakeTimeout => f.write_str("the client did not open the connection in time"),
            Self::HeartbeatTimeout => f.write_str("the client was silent for two heartbeats"),
            Self::LoginRefused => f.write_str("the login was refused"),
            Self::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

/// How long a client has to read why, when what it sends makes no sense any more: it cannot say that it knows. Milliseconds.
const OUT_OF_STEP_MS: u64 = 3_000;

/// How long a client has to answer when the server stops: the stop must not wait for one client. Milliseconds.
const STOP_MS: u64 = 3_000;

/// A connection that is closed: by the server, until the client has said that it knows; or by the client, until its socket is closed.
#[derive(Debug)]
pub(super) struct Closing {
    /// How long that is waited for. Monotonic milliseconds.
    pub(super) until_ms: u64,
    pub(super) reason: CloseReason,
    /// Where frames begin is not known any more: nothing that comes is looked at.
    pub(super) lost: bool,
}

impl Session {
    /// What was asked is refused: it costs the channel, or the connection.
    pub(super) fn refuse(&mut self, number: u16, method: MethodId, refusal: Refusal, now_ms: u64) {
        self.tell_news();
        match self.channels.get_mut(&number) {
            Some(channel) if !refusal.code.is_hard() => {
                if matches!(channel.life, Life::Open | Life::Opening) {
                    channel.refuse(&mut self.core, method, &refusal);
                }
            }
            _ => self.close(method, refusal, now_ms),
        }
    }

    /// The server closes the connection.
    pub(super) fn close(&mut self, method: MethodId, refusal: Refusal, now_ms: u64) {
        if self.stage.is_over() {
            // The client has the last word already.
            if matches!(&self.stage, Stage::Closing(closing) if closing.reason == CloseReason::Client) {
                self.stage = Stage::Closed(CloseReason::Client);
            }
            return;
        }
        self.tell_news();
        let close = ConnectionClose {
            reply_code: refusal.code.number(),
            reply_text: refusal.reply_text(),
            class_id: method.class,
            method_id: method.method,
        };
        self.core.output.method(0, &close.into());
        self.tell_broker_of_end();
        self.channels.clear();
        self.core.assembling_bytes = 0;
        self.core.bodies.clear();
        self.stage = Stage::Closing(self.closing(CloseReason::Refused(refusal), now_ms));
    }

    /// The server stops. Whether the client is told and its answer waited for: before the connection is open, and once it is over, it is told
    /// nothing, as with RabbitMQ.
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
        // no longer than the client has to be heard from anyway
        let max = self.core.settings.closing_ms_max;
        let wait = match self.clock.heartbeat_ms {
            0 => max,
            heartbeat => heartbeat.min(max),
        };
        Closing { until_ms: now_ms.saturating_add(wait), reason, lost: false }
    }

    /// The broker is done with a connection that the client has closed. The client closes the socket, as with RabbitMQ: what it still
    /// had on its way is read and dropped, or its system would throw away the answer.
    pub(super) fn client_is_done(&mut self, now_ms: u64) {
        self.say(crate::codec::ConnectionCloseOk {});
        self.stage = Stage::Closing(self.closing(CloseReason::Client, now_ms));
    }

    /// As [`Session::close`], and whatever the client sends from now on makes no sense.
    pub(super) fn close_out_of_step(&mut self, refusal: Refusal, now_ms: u64) {
        self.close(MethodId::NONE, refusal, now_ms);
        if let Stage::Closing(closing) = &mut self.stage {
            closing.lost = true;
            closing.until_ms = closing.until_ms.min(now_ms.saturating_add(OUT_OF_STEP_MS));
        }
    }

    /// The connection is over without a word.
    pub(super) fn end(&mut self, reason: CloseReason) {
        self.tell_broker_of_end();
        self.channels.clear();
        self.core.assembling_bytes = 0;
        self.core.bodies.clear();
        self.stage = Stage::Closed(reason);
    }

    /// The broker is told once, if it knows of the connection at all.
    fn tell_broker_of_end(&mut self) {
        if self.stage.is_known_to_broker() {
            self.core.ask(Request::CloseConnection);
        }
    }

    /// A method on a connection that is closed.
    pub(super) fn on_method_while_closing(&mut self, id: MethodId) {
        let Stage::Closing(Closing { reason: reason @ CloseReason::Refused(_), .. }) = &self.stage else { return };
        if id == crate::codec::ConnectionCloseOk::ID {
            self.stage = Stage::Closed(reason.clone());
        } else if id == ConnectionClose::ID {
            self.say(crate::codec::ConnectionCloseOk {});
        }
    }

    /// The client closes the connection: it is answered when the broker is done with it.
    pub(super) fn on_client_close(&mut self) {
        self.tell_news();
        self.channels.clear();
        self.core.assembling_bytes = 0;
        self.core.bodies.clear();
        if self.stage.is_known_to_broker() {
            let token = self.core.ask(Request::CloseConnection);
            self.stage = Stage::Ending { token };
        } else {
            self.say(crate::codec::ConnectionCloseOk {});
            self.stage = Stage::Closed(CloseReason::Client);
        }
    }

    /// A method of the connection itself.
    pub(super) fn say(&mut self, method: impl Into<Method>) {
        self.core.output.method(0, &method.into());
    }
}
