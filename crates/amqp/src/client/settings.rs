//! What a client is told before it connects.

use crate::codec::ShortStr;
use crate::settings::Mechanism;
use bytes::Bytes;
use std::fmt;

/// Who a client is, what it asks for, and what it may hold. What it prints has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Who.
    pub user: Bytes,
    /// Proves it.
    pub password: Bytes,
    /// What may be used of what the server offers, best first.
    pub mechanisms: Vec<Mechanism>,
    /// The virtual host.
    pub vhost: ShortStr,
    /// What listings of the server call this connection.
    pub connection_name: String,
    /// The most channels; the server may want fewer.
    pub channel_max: u16,
    /// The largest frame, all of it; the server may want smaller ones. Bytes.
    pub frame_bytes_max: u32,
    /// How often each side shows that it lives; the server may want it more often. 0 for what the server says. Seconds.
    pub heartbeat_seconds: u16,
    /// How long it may take until the connection is open. Milliseconds.
    pub handshake_ms_max: u64,
    /// How long the server may take to answer `connection.close`. Milliseconds.
    pub closing_ms_max: u64,
    /// The largest message that is taken. Bytes.
    pub message_bytes_max: usize,
    /// What may wait to be taken by [`super::Client::poll_event`]; no frame is looked at beyond. Bytes.
    pub events_bytes_max: usize,
    /// Publishes of a channel that may wait for their confirmation.
    pub unconfirmed_max: usize,
    /// What may wait to be written; no message should be published beyond. Bytes.
    pub output_bytes_max: usize,
    /// Answers to what the server asks by itself (`channel.flow`, `basic.cancel`) that may wait to be written; no frame is looked at beyond.
    /// Bytes.
    pub answers_bytes_max: usize,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            user: Bytes::from_static(b"guest"),
            password: Bytes::from_static(b"guest"),
            mechanisms: vec![Mechanism::Plain, Mechanism::AmqPlain],
            vhost: ShortStr::from_static("/"),
            connection_name: String::new(),
            channel_max: 2047,
            frame_bytes_max: 131_072,
            heartbeat_seconds: 10,
            handshake_ms_max: 60_000,
            closing_ms_max: 10_000,
            // What a RabbitMQ of any version lets through.
            message_bytes_max: 512 << 20,
            events_bytes_max: 1 << 20,
            unconfirmed_max: 1 << 16,
            output_bytes_max: 1 << 20,
            answers_bytes_max: 64 << 10,
        }
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSettings").field("user", &self.user).field("vhost", &self.vhost).finish_non_exhaustive()
    }
}
