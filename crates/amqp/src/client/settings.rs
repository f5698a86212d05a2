//! Settings of a client.

use crate::codec::ShortStr;
use crate::settings::Mechanism;
use bytes::Bytes;
use std::fmt;

/// Credentials, wishes and limits of a client. Its Debug output has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// The user name.
    pub user: Bytes,
    /// The password.
    pub password: Bytes,
    /// Mechanisms that may be used, in order of preference.
    pub mechanisms: Vec<Mechanism>,
    /// The virtual host.
    pub vhost: ShortStr,
    /// The connection name for the server's listings.
    pub connection_name: String,
    /// The most channels; the server may lower it.
    pub channel_max: u16,
    /// The largest frame, overhead included; the server may lower it. Bytes.
    pub frame_bytes_max: u32,
    /// The heartbeat interval; the server may shorten it. 0 for the server's value. Seconds.
    pub heartbeat_seconds: u16,
    /// How long the connection may take to open. Milliseconds.
    pub handshake_ms_max: u64,
    /// How long the server may take to answer `connection.close`. Milliseconds.
    pub closing_ms_max: u64,
    /// The largest message that is accepted. Bytes.
    pub message_bytes_max: usize,
    /// Events that may wait for [`super::Client::poll_event`]; at the limit no frame is processed. Bytes.
    pub events_bytes_max: usize,
    /// The most unconfirmed publishes of a channel.
    pub unconfirmed_max: usize,
    /// Output that may wait to be written; at the limit no message should be published. Bytes.
    pub output_bytes_max: usize,
    /// Answers to requests of the server (`channel.flow`, `basic.cancel`) that may wait to be written; at the limit no frame is processed. Bytes.
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
            // The largest message that any version of RabbitMQ accepts.
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
