//! AMQP URIs of brokers: `amqp://user:password@host:port/vhost?heartbeat=10`, with the syntax of RabbitMQ's clients.

use bytestring::ByteString;
use std::fmt;

/// The default port.
const PORT: u16 = 5672;
/// The default port with TLS.
const TLS_PORT: u16 = 5671;
/// The default virtual host.
const VHOST: &str = "/";

/// A SASL mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMechanism {
    /// `PLAIN`
    Plain,
    /// `AMQPLAIN`
    AmqPlain,
}

/// The address of a broker, and the credentials. Its Debug and Display output has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUri {
    /// `None` for the local broker.
    pub host: Option<ByteString>,
    /// The port.
    pub port: u16,
    /// The user name.
    pub user: Option<ByteString>,
    /// The password.
    pub password: Option<ByteString>,
    /// The virtual host.
    pub vhost: ByteString,
    /// Whether the address names the virtual host.
    pub names_vhost: bool,
    /// The heartbeat to request. Seconds.
    pub heartbeat_seconds: Option<u16>,
    /// The connection timeout. Milliseconds.
    pub connection_timeout_ms: Option<u64>,
    /// The `channel_max` to request.
    pub channel_max: Option<u16>,
    /// The `frame_max` to request. Bytes.
    pub frame_bytes_max: Option<u32>,
    /// Mechanisms that may be used, in order of preference; empty for both.
    pub mechanisms: Vec<AuthMechanism>,
    /// The TLS settings (`amqps`).
    pub tls: Option<UriTls>,
    shown: ByteString,
}

impl fmt::Debug for AmqpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Display for AmqpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The TLS settings of an address. Files are those of the connecting machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UriTls {
    /// The file with trusted CA certificates (`cacertfile`, PEM); without it, those of the operating system.
    pub ca: Option<ByteString>,
    /// The file with the client certificate (`certfile`, PEM).
    pub certificate: Option<ByteString>,
    /// The file with its key (`keyfile`, PEM).
    pub key: Option<ByteString>,
    /// The expected name in the server's certificate (`server_name_indication`); without it, that of the address.
    pub name: Option<ByteString>,
}

/// Why a text cannot be used as an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UriError {
    /// It is invalid, with the error of RabbitMQ's parser.
    Invalid(String),
    /// It is valid and has an unsupported feature.
    Unsupported(String),
}

/// Splits off the scheme.
fn scheme_of(text: &str) -> Option<(&str, &str)> {
    // Without a scheme, a password may contain `://`: text before it with `:` or `@` is no scheme.
    text.split_once("://").filter(|(scheme, _)| !scheme.contains([':', '@']))
}

/// A text without user, password and query, whether it is an address or not: safe to log and show.
#[must_use]
pub fn without_credentials(text: &str) -> String {
    let (scheme, rest) = scheme_of(text).unwrap_or(("", text));
    // A password may contain an unencoded slash or `#`: everything before the last `@` is hidden.
    let (hidden, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    // After a question mark it is ambiguous whether an `@` ends a password or is part of a query.
    let rest = if hidden.contains('?') { "" } else { rest.split(['?', '#']).next().unwrap_or_default() };
    if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") }
}

/// Replaces a hidden password.
const MASK: &str = "***";

/// A text with its password masked, if it is an address with a password. With unencoded special characters the end of the password is uncertain:
/// everything before the last `@` is masked then, and so is a query that is followed by one.
#[must_use]
pub(super) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = scheme_of(text) else { return text.to_owned() };
    let (info, place) = rest.rsplit_once('@').map_or((None, rest), |(info, place)| (Some(info), place));
    let (place, query) = place.split_once('?').map_or((place, None), |(place, query)| (place, Some(query)));
    let mut shown = format!("{scheme}://");
    if let Some(info) = info {
        shown.push_str(&info.split_once(':').map_or(info.to_owned(), |(user, _)| format!("{user}:{MASK}")));
        shown.push('@');
    }
    shown.push_str(place);
    for (at, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if at == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((field, _)) if field.eq_ignore_ascii_case("password") => shown.push_str(&format!("{field}={MASK}")),
            _ => shown.push_str(pair),
        }
    }
    shown
}

/// Whether a part of the user or the password may be mistaken for the host, port, virtual host or query: one of the delimiters is not encoded.
fn may_be_misread(text: &str) -> bool {
    let (_, rest) = scheme_of(text).unwrap_or(("", text));
    rest.split_once(['/', '?']).is_some_and(|(_, behind)| behind.contains('@'))
}

fn invalid(why: impl Into<String>) -> UriError {
    UriError::Invalid(why.into())
}

/// Decodes percent escapes such as `%2F`.
fn decoded(text: &str) -> Result<ByteString, UriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(left.next()), digit(left.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(invalid("unterminated_entity")),
        }
    }
    ByteString::try_from(bytes).map_err(|_| invalid("invalid_utf8"))
}

/// Splits `host:port`, where `host` may be an address in brackets.
fn host_and_port(text: &str) -> Result<(&str, Option<&str>), UriError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| invalid("invalid_host"))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(invalid("invalid_host")),
        };
    }
    Ok(text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))))
}

impl UriTls {
    fn with(&mut self, field: &str, value: &str) -> Result<(), UriError> {
        match field {
            "cacertfile" => self.ca = Some(value.into()),
            "certfile" => self.certificate = Some(value.into()),
            "keyfile" => self.key = Some(value.into()),
            "server_name_indication" if value != "disable" => self.name = Some(value.into()),
            "verify" if value == "verify_none" => {
                let why = "verify_none is not supported: set cacertfile to the CA that signed the server's certificate";
                return Err(UriError::Unsupported(why.to_owned()));
            }
            _ => {}
        }
        Ok(())
    }
}

impl AmqpUri {
    /// Parses an address.
    ///
    /// # Errors
    /// Why it is invalid or unsupported. The error contains no part of a password.
    pub fn parse(text: &str) -> Result<AmqpUri, UriError> {
        AmqpUri::read(text).map_err(|why| match may_be_misread(text) {
            true => invalid("{unable_to_parse_uri,user_information_not_encoded}"),
            false => why,
        })
    }

    /// The address of a virtual host of the local broker.
    #[must_use]
    pub fn here(vhost: &ByteString) -> AmqpUri {
        AmqpUri {
            host: None,
            port: PORT,
            user: None,
            password: None,
            vhost: vhost.clone(),
            names_vhost: true,
            heartbeat_seconds: None,
            connection_timeout_ms: None,
            channel_max: None,
            frame_bytes_max: None,
            mechanisms: Vec::new(),
            tls: None,
            shown: "amqp://".into(),
        }
    }

    /// The same address, with this virtual host if it names none.
    #[must_use]
    pub fn or_vhost(&self, vhost: &ByteString) -> AmqpUri {
        let mut uri = self.clone();
        if !uri.names_vhost {
            uri.vhost = vhost.clone();
        }
        uri
    }

    fn read(text: &str) -> Result<AmqpUri, UriError> {
        let (scheme, rest) = scheme_of(text).ok_or_else(|| invalid("{unable_to_parse_uri,no_scheme}"))?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "amqp" => None,
            "amqps" => Some(UriTls::default()),
            other => return Err(invalid(format!("{{unexpected_uri_scheme,\"{other}\"}}"))),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
        let (info, place) = authority.rsplit_once('@').map_or((None, authority), |(info, place)| (Some(info), place));
        let (host, port) = host_and_port(place)?;
        let port = match port {
            None => None,
            Some(port) => {
                let number = port.parse().ok().filter(|port| *port > 0);
                Some(number.ok_or_else(|| invalid(format!("{{port_out_of_range,{port}}}")))?)
            }
        };
        let host = Some(decoded(host)?).filter(|host| !host.is_empty());
        if host.is_none() && port.is_some() {
            return Err(invalid("port_requires_host"));
        }
        if host.is_none() && tls.is_some() {
            return Err(invalid("amqps_requires_host"));
        }
        let (user, password) = match info.map(|info| info.split_once(':').map_or((info, None), |(u, p)| (u, Some(p)))) {
            None => (None, None),
            Some((user, password)) => (Some(decoded(user)?), password.map(decoded).transpose()?),
        };
        let vhost = match path {
            None => VHOST.into(),
            Some(path) if path.contains('/') => return Err(invalid(format!("{{invalid_vhost,\"{path}\"}}"))),
            Some(path) => decoded(path)?,
        };
        let uri = AmqpUri {
            host,
            port: port.unwrap_or(if tls.is_some() { TLS_PORT } else { PORT }),
            tls,
            user: user.filter(|user| !user.is_empty()),
            password,
            names_vhost: path.is_some(),
            shown: without_credentials(text).into(),
            ..AmqpUri::here(&vhost)
        };
        uri.with_query(query)
    }

    fn with_query(mut self, query: &str) -> Result<AmqpUri, UriError> {
        fn number<T: std::str::FromStr>(field: &str, value: &str) -> Result<Option<T>, UriError> {
            let wrong = || invalid(format!("{{invalid_amqp_params_parameter,{field},\"{value}\",{{not_an_integer}}}}"));
            value.parse().map(Some).map_err(|_| wrong())
        }
        for (field, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = &*decoded(value)?;
            if let Some(tls) = &mut self.tls {
                tls.with(field, value)?;
            }
            match field {
                "heartbeat" => self.heartbeat_seconds = number(field, value)?,
                "connection_timeout" => self.connection_timeout_ms = number(field, value)?,
                "channel_max" => self.channel_max = number(field, value)?,
                "frame_max" => self.frame_bytes_max = number(field, value)?,
                "auth_mechanism" => self.mechanisms.push(match value.to_ascii_lowercase().as_str() {
                    "plain" => AuthMechanism::Plain,
                    "amqplain" => AuthMechanism::AmqPlain,
                    other => {
                        let why = format!("auth_mechanism '{other}' is not supported: use plain or amqplain");
                        return Err(UriError::Unsupported(why));
                    }
                }),
                // As in RabbitMQ, unknown query fields are ignored.
                _ => {}
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> AmqpUri {
        AmqpUri::parse(text).expect(text)
    }

    #[test]
    fn each_part_is_optional() {
        let uri = parse(
            "amqp://us%40er:p%3Aw%2F@host:1234/v%2Fh?heartbeat=7&connection_timeout=900&channel_max=3&auth_mechanism=plain",
        );
        assert_eq!((uri.host.as_deref(), uri.port, uri.user.as_deref()), (Some("host"), 1234, Some("us@er")));
        assert_eq!((uri.password.as_deref(), &*uri.vhost), (Some("p:w/"), "v/h"));
        assert_eq!((uri.heartbeat_seconds, uri.connection_timeout_ms, uri.channel_max), (Some(7), Some(900), Some(3)));
        assert_eq!(uri.mechanisms, [AuthMechanism::Plain]);
        for (text, host, user, vhost) in [
            ("amqp://", None, None, "/"),
            ("amqp:///", None, None, ""),
            ("amqp:///shop", None, None, "shop"),
            ("amqp://me@/shop", None, Some("me"), "shop"),
            ("amqp://h", Some("h"), None, "/"),
            ("amqp://h/%2f", Some("h"), None, "/"),
            ("AMQP://[::1]", Some("::1"), None, "/"),
        ] {
            let uri = parse(text);
            let found = (uri.host.as_deref(), uri.user.as_deref(), &*uri.vhost, uri.port);
            assert_eq!(found, (host, user, vhost, 5672), "{text}");
        }
        assert_eq!(parse("amqp://[::1]:99").port, 99);
    }

    #[test]
    fn tls_has_a_port_and_files_of_its_own() {
        let uri =
            parse("amqps://h/v?verify=verify_peer&cacertfile=%2Fca.pem&certfile=c&keyfile=k&server_name_indication=n");
        let text = |text: &str| Some(text.into());
        let tls = UriTls { ca: text("/ca.pem"), certificate: text("c"), key: text("k"), name: text("n") };
        assert_eq!((uri.port, uri.tls), (5671, Some(tls)));
        assert_eq!(parse("amqps://h:1?server_name_indication=disable").tls, Some(UriTls::default()));
        assert_eq!(parse("amqp://h?cacertfile=x").tls, None);
    }

    #[test]
    fn a_password_is_masked_and_the_rest_is_kept() {
        for (text, shown) in [
            (
                "amqp://me:secret@host:1/v?heartbeat=1&password=secret",
                "amqp://me:***@host:1/v?heartbeat=1&password=***",
            ),
            ("amqps://me:se%40cr:et@host", "amqps://me:***@host"),
            ("amqp://me:s/e?c@r#et@host/v", "amqp://me:***@host/v"),
            ("amqp://me:@host", "amqp://me:***@host"),
            ("amqp://me@host/%2F", "amqp://me@host/%2F"),
            ("amqp:///v", "amqp:///v"),
            ("https://h?PassWord=x&a", "https://h?PassWord=***&a"),
            ("no address: a@b", "no address: a@b"),
            ("", ""),
        ] {
            assert_eq!(without_password(text), shown, "{text}");
        }
    }

    #[test]
    fn printed_text_has_no_password() {
        let uri = parse("amqp://me:secret@host:1/v?heartbeat=1&password=secret");
        assert_eq!((uri.to_string(), format!("{uri:?}")), ("amqp://host:1/v".into(), "amqp://host:1/v".into()));
        for (text, shown) in [
            ("amqp://anna:se/cret@h/v", "amqp://h/v"),
            ("amqp://anna:se@cret@h/v", "amqp://h/v"),
            ("amqp://anna:se#cret@h/v#here", "amqp://h/v"),
            ("amqp://anna:se?cret@h/v", "amqp://"),
            ("amqp://anna:7?heartbeat=cret@h/v", "amqp://"),
            ("amqp://anna:7/se/cret@h/v", "amqp://h/v"),
            ("amqp://h/v?password=se@cret", "amqp://"),
            ("anna:secret@h/v", "h/v"),
            ("anna:se://cret@h/v", "h/v"),
        ] {
            assert_eq!(without_credentials(text), shown, "{text}");
            let read = format!("{:?}", AmqpUri::parse(text));
            assert!(
                !["anna", "se@", "se#", "cret", "\"se", ",se", ",7"].iter().any(|part| read.contains(part)),
                "{read}"
            );
        }
        assert_eq!(parse("amqp://anna:se#cret@h/v").password.as_deref(), Some("se#cret"));
    }

    #[test]
    fn invalid_addresses_are_reported() {
        for (text, why) in [
            ("host", "{unable_to_parse_uri,no_scheme}"),
            ("http://h", "{unexpected_uri_scheme,\"http\"}"),
            ("amqp://:1", "port_requires_host"),
            ("amqp://h:0", "{port_out_of_range,0}"),
            ("amqp://h:65536", "{port_out_of_range,65536}"),
            ("amqp://h/a/b", "{invalid_vhost,\"a/b\"}"),
            ("amqp://h/%2", "unterminated_entity"),
            ("amqp://h/%ff", "invalid_utf8"),
        ] {
            assert_eq!(AmqpUri::parse(text), Err(invalid(why)), "{text}");
        }
        assert!(matches!(AmqpUri::parse("amqp://h?heartbeat=x"), Err(UriError::Invalid(_))));
        assert_eq!(AmqpUri::parse("amqps://"), Err(invalid("amqps_requires_host")));
        assert!(matches!(AmqpUri::parse("amqps://h?verify=verify_none"), Err(UriError::Unsupported(_))));
        assert!(matches!(AmqpUri::parse("amqp://h?auth_mechanism=external"), Err(UriError::Unsupported(_))));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(amqp://)?[a-z%:@/?&=0-9ü\\[\\]]{0,40}") {
            let _ = AmqpUri::parse(&text);
            let _ = without_credentials(&text);
        }
    }
}
