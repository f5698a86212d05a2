//! What an operator decides about AMQP as a whole; sessions read it, nobody changes it in place.

/// How a client may say who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// A name and a password (RFC 4616).
    Plain,
    /// The same as a field table with `LOGIN` and `PASSWORD`: what older Python clients prefer.
    AmqPlain,
    /// By the certificate of its TLS connection: to be offered only where there is one.
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

/// The settings that sessions go by. Defaults are RabbitMQ's unless said otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AmqpSettings {
    /// What the server says that it is. Clients go by it: kombu takes `basic.qos` for the specification's unless this is
    /// `RabbitMQ`.
    pub product: String,
    /// Its version, three numbers: clients and frameworks compare it.
    pub version: String,
    /// What it runs on. Shown, never compared.
    pub platform: String,
    /// Shown by tools.
    pub copyright: String,
    /// Shown by tools.
    pub information: String,
    /// The name of the cluster that clients are shown.
    pub cluster_name: String,
    /// What clients may log in with, best first.
    pub mechanisms: Vec<Mechanism>,
    /// As whom clients log in that say no name (`anonymous_login_user`, which RabbitMQ sets to `guest`); `None`: the mechanism is not offered.
    pub anonymous_user: Option<String>,
    /// The most channels of a connection (`channel_max`); 0 for as many as there are numbers.
    pub channel_max: u16,
    /// The most channels of all connections together (`channel_max_per_node`, which RabbitMQ leaves open).
    pub channels_max: u64,
    /// The largest frame, all of it (`frame_max`). Bytes.
    pub frame_bytes_max: u32,
    /// The smallest `frame_max` that a client may ask for. RabbitMQ 4.1 and later want 8192, which shut clients out. Bytes.
    pub frame_bytes_max_min: u32,
    /// The largest frame before `frame_max` is agreed on (`initial_frame_max`). Bytes.
    pub initial_frame_bytes_max: u32,
    /// The heartbeat that is proposed; the client decides. 0 for none. Seconds.
    pub heartbeat_seconds: u16,
    /// How long a connection may take until it is open (`handshake_timeout`). Milliseconds.
    pub handshake_ms_max: u64,
    /// How long a client that failed to log in waits until the connection closes, unless it has
    /// `authentication_failure_close`. Milliseconds.
    pub refused_login_ms: u64,
    /// How long a client may take to answer `connection.close`, at most; less with a shorter heartbeat. Milliseconds.
    pub closing_ms_max: u64,
    /// The largest message (`max_message_size`). Bytes.
    pub message_bytes_max: u64,
    /// What all channels of a connection may hold of messages that are not complete. RabbitMQ has no such limit. Bytes.
    pub assembling_bytes_max: usize,
    /// How long the body of a message may take that has begun, and a millisecond more for each 16 bytes of it that are there; a sixth of that
    /// while memory runs short. RabbitMQ waits for ever. Milliseconds.
    pub body_ms_max: u64,
    /// The most consumers of a channel (`consumer_max_per_channel`, which RabbitMQ leaves open).
    pub consumers_per_channel_max: usize,
    /// Deliveries of a channel that wait for their acknowledgement; no more are made beyond. RabbitMQ has no such limit.
    pub unacked_per_channel_max: usize,
    /// What a consumer may have on its way to its socket, unless one message has more. Bytes.
    pub consumer_window_bytes: u64,
    /// Messages that a connection may publish without confirms before the queues that they go to have said that they keep up
    /// (`credit_flow_default_credit`, which RabbitMQ sets to 400 for each channel and queue); 0 for any number.
    pub publish_credit: u64,
    /// Bytes that the system keeps for a client that takes less than it is sent; 0 for as many as it likes. Bytes.
    pub unsent_bytes_max: u32,
    /// How long a delivery may wait for its acknowledgement where neither queue nor consumer says it (`consumer_timeout`); then its channel is
    /// closed. 0 for ever. Milliseconds.
    pub ack_ms_max: u64,
    /// Publishes in one transaction. RabbitMQ has no such limit.
    pub tx_messages_max: usize,
    /// The bytes of the publishes in one transaction. RabbitMQ has no such limit. Bytes.
    pub tx_bytes_max: usize,
    /// Acknowledgements in one transaction, counted in the deliveries that they settle.
    pub tx_settled_max: usize,
    /// Bytes that wait to be written; no deliveries are made beyond, and no more input is taken. Bytes.
    pub output_bytes_max: usize,
}

/// From this version on RabbitMQ counts failed deliveries only, has each priority of a quorum queue for itself, and lets only quorum queues
/// time out acknowledgements.
const NEWER: [u32; 3] = [4, 3, 0];

impl AmqpSettings {
    /// Whether the rules are those of RabbitMQ 4.3 and later, by the version that clients are told; else those of 4.2.
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
