//! Addresses of a broker that it is asked for: one of its listeners is enough.

use super::http::HttpClient;
use super::kafka::KafkaClient;
use super::{ClientError, Login};
use polylogue_admin::api::{ListenerStatus, Status};
use polylogue_net::Trust;
use polylogue_net::address::HostPort;
use std::net::IpAddr;
use std::path::Path;

/// The port of http listeners, unless they are given another.
const HTTP_PORT: u16 = 9600;
/// The code of an address that is not known.
const NO_ADDRESS: &str = "no_address";

/// Returns the address of a server's kafka listener, and whether it uses TLS; one with TLS if `tls` is set, or the server is reached so.
///
/// # Errors
/// The server cannot be reached, or has none.
pub(crate) fn kafka_of(
    server: &str,
    login: Option<&Login>,
    ca: Option<&Path>,
    tls: bool,
) -> Result<(String, bool), ClientError> {
    let client = HttpClient::new(server, login, ca);
    let status: Status = client.get("/status")?;
    let wanted = tls || server.starts_with("https://");
    let listener = listener_of(&status, "kafka", wanted).ok_or_else(|| {
        let text =
            format!("{server} has no kafka listener: start it with --listen kafka=HOST:PORT, or give --bootstrap");
        ClientError::new(NO_ADDRESS, text)
    })?;
    if exposes(listener, wanted, login.is_some()) {
        let text = format!(
            "the kafka listener of {server} has no TLS, and would get the password in clear: give --bootstrap to use it"
        );
        return Err(ClientError::new(NO_ADDRESS, text));
    }
    Ok((address_of(listener, host_of(server)), listener.tls))
}

/// Returns a client of the http listener of the broker with this kafka listener. Kafka's protocol does not name it: tries the same host with
/// the default port, and compares the cluster ids.
///
/// # Errors
/// The broker cannot be reached, or its http listener is elsewhere.
pub(crate) fn http_of(
    bootstrap: &str,
    login: Option<&Login>,
    trust: Option<&Trust>,
    ca: Option<&Path>,
) -> Result<HttpClient, ClientError> {
    let cluster = KafkaClient::connect(bootstrap, login, trust)?.cluster_id()?;
    let host = bootstrap.rsplit_once(':').map_or(bootstrap, |(host, _)| host);
    let mut refused = None;
    for scheme in schemes(trust.is_some()) {
        let client = HttpClient::new(&format!("{scheme}://{host}:{HTTP_PORT}"), login, ca);
        match client.get::<Status>("/status") {
            Ok(status) if Some(&status.cluster_id) == cluster.as_ref() => return Ok(client),
            Err(error) if !error.is_lost() => refused = refused.or(Some(error)),
            Ok(_) | Err(_) => {}
        }
    }
    let why = refused.map_or_else(String::new, |error| format!(" ({error})"));
    let text = format!(
        "the http listener of the broker at {bootstrap} is not at {host}:{HTTP_PORT}{why}: give its address (--server URL, or in the profile)"
    );
    Err(ClientError::new(NO_ADDRESS, text))
}

/// Whether a listener that was found would get in clear what a user of TLS logs in with.
fn exposes(listener: &ListenerStatus, tls: bool, logs_in: bool) -> bool {
    tls && logs_in && !listener.tls
}

/// Returns how the http listener may be asked: never in clear for a user who asked for TLS, because the request has the password.
fn schemes(tls: bool) -> &'static [&'static str] {
    if tls { &["https"] } else { &["http", "https"] }
}

/// Returns the listener of a protocol, one with TLS or without if there are both.
pub(crate) fn listener_of<'a>(status: &'a Status, protocol: &str, tls: bool) -> Option<&'a ListenerStatus> {
    let all = || status.listeners.iter().filter(|one| one.protocol == protocol);
    all().find(|one| one.tls == tls).or_else(|| all().next())
}

/// Returns the address of a listener for clients that reach the server by this host.
pub(crate) fn address_of(listener: &ListenerStatus, host: &str) -> String {
    let address = listener.advertised.as_ref().unwrap_or(&listener.bound);
    let is_any = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    match HostPort::parse(address) {
        Some(bound) if is_any(&bound.host) => format!("{host}:{}", bound.port),
        _ => address.clone(),
    }
}

/// Returns the host of a URL, with brackets if it is an IPv6 address.
pub(crate) fn host_of(server: &str) -> &str {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_reached_by_the_host_of_the_server() {
        let listener = |bound: &str, advertised: Option<&str>| ListenerStatus {
            protocol: "kafka".to_owned(),
            tls: false,
            bound: bound.to_owned(),
            advertised: advertised.map(str::to_owned),
        };
        assert_eq!(address_of(&listener("0.0.0.0:9092", None), "b.example"), "b.example:9092");
        assert_eq!(address_of(&listener("[::]:9092", None), "[::1]"), "[::1]:9092");
        assert_eq!(address_of(&listener("127.0.0.1:1", None), "localhost"), "127.0.0.1:1");
        assert_eq!(address_of(&listener("0.0.0.0:9092", Some("other:1")), "b.example"), "other:1");
    }

    /// The password of a user of TLS went in clear to port 9600 where nothing answered with TLS there, and to a kafka listener without TLS.
    #[test]
    fn a_user_of_tls_logs_in_over_nothing_else() {
        assert_eq!(schemes(true), ["https"]);
        assert_eq!(schemes(false), ["http", "https"]);
        let listener = |tls| ListenerStatus {
            protocol: "kafka".to_owned(),
            tls,
            bound: "127.0.0.1:1".to_owned(),
            advertised: None,
        };
        for (is_tls, wanted, logs_in) in [(true, true, true), (false, false, true), (false, true, false)] {
            assert!(!exposes(&listener(is_tls), wanted, logs_in), "{is_tls} {wanted} {logs_in}");
        }
        assert!(exposes(&listener(false), true, true));
    }

    #[test]
    fn hosts_of_urls() {
        for (url, host) in [
            ("http://a:9600", "a"),
            ("https://a.example/", "a.example"),
            ("a:1", "a"),
            ("http://[::1]:9600/x", "[::1]"),
            ("http://[::1]", "[::1]"),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
