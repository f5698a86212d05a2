//! The operator's settings of AMQP as a whole; sessions only read them.

/// A SASL mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// User name and password (RFC 4616).
    Plain,
    /// The same as a field table with `LOGIN` and `PASSWORD`: what older Python clients prefer.
    AmqPlain,
    /// The certificate of the TLS connection: to be offered only on connections with one.
    External,
    /// ANONYMOUS (RFC 4505): offered only where the operator names its user.
    Anonymous,
}

impl Mechanism {
    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::AmqPlain => "AMQPLAIN",
            Mechanism::External => "EXTERNAL",
            Mechanism::Anonymous => "ANONYMOUS",
        }
    }
}

/// Settings of sessions. Defaults are RabbitMQ's unless noted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AmqpSettings {
    /// The product name of the server. Clients depend on it: kombu applies the specification's `basic.qos` unless it is `RabbitMQ`.
    pub product: String,
    /// The product version, three numbers: clients and frameworks compare it.
    pub version: String,
    /// The platform. Shown, never compared.
    pub platform: String,
    /// Shown by tools.
    pub copyright: String,
    /// Shown by tools.
    pub information: String,
    /// The name of the cluster that clients are shown.
    pub cluster_name: String,
    /// Mechanisms that clients may use, in order of preference.
    pub mechanisms: Vec<Mechanism>,
    /// The user of clients that log in anonymously (`anonymous_login_user`, which RabbitMQ sets to `guest`); `None`: the mechanism is not offered.
    pub anonymous_user: Option<String>,
    /// The most channels of a connection (`channel_max`); 0 for no limit but that of channel numbers.
    pub channel_max: u16,
    /// The most channels of all connections together (`channel_max_per_node`, unlimited in RabbitMQ).
    pub channels_max: u64,
    /// The largest frame, overhead included (`frame_max`). Bytes.
    pub frame_bytes_max: u32,
    /// The smallest `frame_max` that a client may ask for. RabbitMQ 4.1 and later require 8192, which some clients do not offer. Bytes.
    pub frame_bytes_max_min: u32,
    /// The largest frame before `frame_max` is negotiated (`initial_frame_max`). Bytes.
    pub initial_frame_bytes_max: u32,
    /// The heartbeat that the server proposes; the client decides. 0 for none. Seconds.
    pub heartbeat_seconds: u16,
    /// How long a connection may take to open (`handshake_timeout`). Milliseconds.
    pub handshake_ms_max: u64,
    /// How long a failed login is kept waiting before its connection closes, unless the client has `authentication_failure_close`. Milliseconds.
    pub refused_login_ms: u64,
    /// How long a client may take to answer `connection.close`, at most; less with a shorter heartbeat. Milliseconds.
    pub closing_ms_max: u64,
    /// The largest message (`max_message_size`). Bytes.
    pub message_bytes_max: u64,
    /// The most bytes of incomplete messages on all channels of a connection. RabbitMQ has no such limit. Bytes.
    pub assembling_bytes_max: usize,
    /// How long the body of a message may take to arrive, plus one millisecond for each 16 bytes received; a sixth of that while memory is low.
    /// RabbitMQ waits forever. Milliseconds.
    pub body_ms_max: u64,
    /// The most consumers of a channel (`consumer_max_per_channel`, unlimited in RabbitMQ).
    pub consumers_per_channel_max: usize,
    /// The most unacknowledged deliveries of a channel; delivery pauses at the limit. RabbitMQ has no such limit.
    pub unacked_per_channel_max: usize,
    /// Unsent bytes that a consumer may have, unless one message has more. Bytes.
    pub consumer_window_bytes: u64,
    /// Messages that a connection may publish without confirms before their queues have reported that they keep up (`credit_flow_default_credit`,
    /// which RabbitMQ sets to 400 for each channel and queue); 0 for no limit.
    pub publish_credit: u64,
    /// The send buffer of a client that reads more slowly than it is sent to; 0 for the operating system's default. Bytes.
    pub unsent_bytes_max: u32,
    /// How long a delivery may stay unacknowledged where neither queue nor consumer sets a timeout (`consumer_timeout`); then its channel is closed.
    /// 0 for no limit. Milliseconds.
    pub ack_ms_max: u64,
    /// Publishes in one transaction. RabbitMQ has no such limit.
    pub tx_messages_max: usize,
    /// The bytes of the publishes in one transaction. RabbitMQ has no such limit. Bytes.
    pub tx_bytes_max: usize,
    /// Acknowledgements in one transaction, counted in settled deliveries.
    pub tx_settled_max: usize,
    /// Unsent output; at the limit deliveries and reading pause. Bytes.
    pub output_bytes_max: usize,
}

/// From this version on RabbitMQ counts failed deliveries only, handles each priority of a quorum queue separately, and times out acknowledgements of
/// quorum queues only.
const NEWER: [u32; 3] = [4, 3, 0];

impl AmqpSettings {
    /// Whether the rules of RabbitMQ 4.3 and later apply, by the version that clients see; else those of 4.2.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        let mut numbers = self.version.split('.').map(|number| number.parse().unwrap_or(0));
        NEWER <= std::array::from_fn(|_| numbers.next().unwrap_or(0))
    }
}

impl Default for AmqpSettings {
    fn default() -> AmqpSettings {
        AmqpSettings {
            product: "RabbitMQ".into(),
            version: "4.2.0".into(),
            platform: concat!("polylogue ", env!("CARGO_PKG_VERSION")).into(),
            copyright: "The authors of polylogue".into(),
            information: "Licensed under the Apache License 2.0".into(),
            cluster_name: "polylogue".into(),
            mechanisms: vec![Mechanism::Plain, Mechanism::AmqPlain],
            anonymous_user: None,
            channel_max: 2047,
            channels_max: 200_000,
            frame_bytes_max: 131_072,
            frame_bytes_max_min: 4096,
            initial_frame_bytes_max: 8192,
            heartbeat_seconds: 60,
            handshake_ms_max: 10_000,
            refused_login_ms: 3_000,
            closing_ms_max: 30_000,
            message_bytes_max: 16 << 20,
            assembling_bytes_max: 128 << 20,
            body_ms_max: 60_000,
            consumers_per_channel_max: 65_536,
            unacked_per_channel_max: 1 << 18,
            consumer_window_bytes: 4 << 20,
            publish_credit: 2_000,
            unsent_bytes_max: 128 << 10,
            ack_ms_max: 30 * 60_000,
            tx_messages_max: 65_536,
            tx_bytes_max: 64 << 20,
            tx_settled_max: 1 << 18,
            output_bytes_max: 4 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_those_of_the_version() {
        for (version, is_newer) in [
            ("3.13.7", false),
            ("4.2.0", false),
            ("4.2.99", false),
            ("4.3.0", true),
            ("4.10.0", true),
            ("10.0.0", true),
            ("", false),
        ] {
            let settings = AmqpSettings { version: version.into(), ..AmqpSettings::default() };
            assert_eq!(settings.is_newer(), is_newer, "{version}");
        }
        assert!(!AmqpSettings::default().is_newer());
    }
}
