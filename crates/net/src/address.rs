//! Listener addresses: `PROTOCOL=HOST:PORT`.

use std::fmt;

/// The protocol of a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// Apache Kafka.
    Kafka,
    /// RabbitMQ's AMQP 0-9-1.
    Amqp,
    /// polylogue's own API, metrics and health.
    Http,
    /// RabbitMQ's management HTTP API.
    RabbitmqHttp,
    /// RabbitMQ's metrics, for Prometheus.
    RabbitmqMetrics,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 5] =
        [Protocol::Kafka, Protocol::Amqp, Protocol::Http, Protocol::RabbitmqHttp, Protocol::RabbitmqMetrics];

    /// Returns its name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Kafka => "kafka",
            Protocol::Amqp => "amqp",
            Protocol::Http => "http",
            Protocol::RabbitmqHttp => "rabbitmq-http",
            Protocol::RabbitmqMetrics => "rabbitmq-metrics",
        }
    }

    /// Its default port.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Protocol::Kafka => 9092,
            Protocol::Amqp => 5672,
            Protocol::Http => 9600,
            Protocol::RabbitmqHttp => 15672,
            Protocol::RabbitmqMetrics => 15692,
        }
    }
}

/// A host and a port, as written; names are not resolved. IPv6 addresses have no brackets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    /// A name or an address.
    pub host: String,
    /// The port; 0 for any free one.
    pub port: u16,
}

impl HostPort {
    /// Parses `HOST:PORT` or `[V6]:PORT`.
    #[must_use]
    pub fn parse(text: &str) -> Option<HostPort> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').filter(|v6| v6.contains(':'))?,
            None => Some(host).filter(|host| !host.contains([':', ']', '/', ' ']))?,
        };
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| HostPort { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The host of a listener by default.
const LOOPBACK: &str = "127.0.0.1";
/// Suffix of a protocol's name for TLS.
const TLS_SUFFIX: &str = "+tls";

/// Stands for a listener of each protocol, at its default port on the loopback address.
pub const EVERY_PROTOCOL: &str = "all";

/// A protocol with an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProtocolAddress {
    /// The protocol.
    pub protocol: Protocol,
    /// Whether it uses TLS.
    pub tls: bool,
    /// The address.
    pub address: HostPort,
}

impl ProtocolAddress {
    /// Parses `PROTOCOL=HOST:PORT` or `PROTOCOL+tls=HOST:PORT`.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn parse(text: &str) -> Result<ProtocolAddress, String> {
        let expected = || format!("expected PROTOCOL=HOST:PORT, such as kafka=127.0.0.1:9092, and not \"{text}\"");
        let (protocol, address) = text.split_once('=').ok_or_else(expected)?;
        let (protocol, tls) = match protocol.trim().strip_suffix(TLS_SUFFIX) {
            Some(protocol) => (protocol, true),
            None => (protocol, false),
        };
        let Some(protocol) = Protocol::ALL.into_iter().find(|p| p.name() == protocol.trim()) else {
            let known: Vec<_> = Protocol::ALL.iter().map(|p| p.name()).collect();
            let known = known.join(", ");
            return Err(format!(
                "there is no protocol \"{}\"; known are {known}, each also with +tls",
                protocol.trim()
            ));
        };
        let address = HostPort::parse(address.trim()).ok_or_else(expected)?;
        Ok(ProtocolAddress { protocol, tls, address })
    }

    /// Reads any number of them with commas between. [`EVERY_PROTOCOL`] is one of each protocol that the others do not name.
    ///
    /// # Errors
    /// As [`ProtocolAddress::parse`].
    pub fn parse_list(text: &str) -> Result<Vec<ProtocolAddress>, String> {
        let items: Vec<_> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        let named = items.iter().filter(|item| **item != EVERY_PROTOCOL);
        let mut list = named.map(|item| ProtocolAddress::parse(item)).collect::<Result<Vec<_>, _>>()?;
        if items.contains(&EVERY_PROTOCOL) {
            let lacks = |protocol: &Protocol| list.iter().all(|one| one.protocol != *protocol);
            let missing: Vec<_> = Protocol::ALL.into_iter().filter(lacks).collect();
            list.extend(missing.into_iter().map(|protocol| {
                let address = HostPort { host: LOOPBACK.to_owned(), port: protocol.default_port() };
                ProtocolAddress { protocol, tls: false, address }
            }));
        }
        Ok(list)
    }
}

impl fmt::Display for ProtocolAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.tls { TLS_SUFFIX } else { "" };
        write!(f, "{}{suffix}={}", self.protocol.name(), self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, host, port) in [
            ("kafka=127.0.0.1:9092", "127.0.0.1", 9092),
            ("http=[::1]:0", "::1", 0),
            ("kafka=broker.example.org:65535", "broker.example.org", 65535),
            ("amqp+tls=broker.example.org:5671", "broker.example.org", 5671),
        ] {
            let parsed = ProtocolAddress::parse(text).unwrap();
            assert_eq!((parsed.address.host.as_str(), parsed.address.port), (host, port));
            assert_eq!((parsed.to_string().as_str(), parsed.tls), (text, text.contains("+tls")));
        }
        assert_eq!(ProtocolAddress::parse_list(" kafka=a:1 , http=b:2,").unwrap().len(), 2);
    }

    #[test]
    fn all_is_one_of_each_protocol_that_is_not_named() {
        let list = ProtocolAddress::parse_list("all,kafka=0.0.0.0:9095").unwrap();
        let list: Vec<_> = list.iter().map(ToString::to_string).collect();
        let rest = ["amqp=127.0.0.1:5672", "http=127.0.0.1:9600", "rabbitmq-http=127.0.0.1:15672"];
        assert_eq!(list, [&["kafka=0.0.0.0:9095"][..], &rest, &["rabbitmq-metrics=127.0.0.1:15692"]].concat());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["kafka", "kafka=", "kafka=:1", "kafka=a", "kafka=a:65536", "kafka=::1:9", "kafka=[a]:9", "kafka=[::1:9"]
        {
            let error = ProtocolAddress::parse(text).unwrap_err();
            assert!(error.starts_with("expected PROTOCOL=HOST:PORT"), "{text}: {error}");
        }
        let error = ProtocolAddress::parse("mqtt=a:1").unwrap_err();
        let known = "kafka, amqp, http, rabbitmq-http, rabbitmq-metrics, each also with +tls";
        assert_eq!(error, format!("there is no protocol \"mqtt\"; known are {known}"));
    }
}
