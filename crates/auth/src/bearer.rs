//! SASL OAUTHBEARER (RFC 7628): what a client says first.
//!
//! ```text
//!   n,[a=authzid],^A auth=Bearer TOKEN^A [key=value^A]... ^A
//! ```
//!
//! A token that is refused is answered with [`BEARER_REFUSED`]; the client says [`BEARER_ACKNOWLEDGED`], and then hears that it failed.

use crate::error::{AuthError, AuthErrorKind};
use crate::jwt::JWT_BYTES_MAX;
use std::borrow::Cow;
use std::fmt;

/// The longest message. Bytes.
pub const BEARER_MESSAGE_BYTES_MAX: usize = JWT_BYTES_MAX + (4 << 10);
/// Extensions of a message.
pub const BEARER_EXTENSIONS_MAX: usize = 32;
/// The error for a client whose token is refused, as in Kafka.
pub const BEARER_REFUSED: &str = "{\"status\":\"invalid_token\"}";
/// What a client says then.
pub const BEARER_ACKNOWLEDGED: &[u8] = &[SEPARATOR];
const SEPARATOR: u8 = 1;

/// Who wants to log in, with which token.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerMessage<'a> {
    /// As whom, where that is said.
    pub authzid: Option<Cow<'a, str>>,
    /// The token, unread.
    pub token: &'a str,
}

impl fmt::Debug for BearerMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerMessage").field("authzid", &self.authzid).finish_non_exhaustive()
    }
}

fn malformed(text: impl Into<String>) -> AuthError {
    AuthError::new(AuthErrorKind::Malformed, text)
}

impl<'a> BearerMessage<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &'a [u8]) -> Result<BearerMessage<'a>, AuthError> {
        if message.len() > BEARER_MESSAGE_BYTES_MAX {
            let text = format!("an OAUTHBEARER message has at most {BEARER_MESSAGE_BYTES_MAX} bytes");
            return Err(malformed(text));
        }
        let none = || malformed("Invalid OAUTHBEARER client first message");
        let message = std::str::from_utf8(message).map_err(|_| none())?;
        let separator = char::from(SEPARATOR);
        let (header, pairs) = message.split_once(separator).ok_or_else(none)?;
        let pairs = pairs.strip_suffix(separator).ok_or_else(none)?;
        let authzid = authzid(header).ok_or_else(none)?;
        let mut token = None;
        // Each pair ends with a separator; nothing comes behind the last.
        for (at, pair) in pairs.split_terminator(separator).enumerate() {
            let (key, value) = pair.split_once('=').filter(|(key, value)| is_pair(key, value)).ok_or_else(none)?;
            if at > BEARER_EXTENSIONS_MAX {
                return Err(malformed(format!("there are more than {BEARER_EXTENSIONS_MAX} extensions")));
            }
            if key == "auth" && token.replace(bearer_token(value).ok_or_else(none)?).is_some() {
                return Err(malformed("there are two tokens"));
            }
        }
        if !pairs.ends_with(separator) {
            return Err(none());
        }
        let token = token.ok_or_else(|| malformed("Invalid OAUTHBEARER client first message: 'auth' not specified"))?;
        Ok(BearerMessage { authzid, token })
    }

    /// Checks that the client logs in as the token's subject.
    ///
    /// # Errors
    /// When it asks for another user.
    pub fn as_named(&self, name: &str) -> Result<(), AuthError> {
        if self.authzid.as_ref().is_none_or(|authzid| authzid == name) {
            return Ok(());
        }
        let text = "the client requested an authorization id that is not the name of the token";
        Err(AuthError::new(AuthErrorKind::Unsupported, text))
    }
}

/// The authorization identity of a header without channel binding: the outer `None` for what is no header.
fn authzid(header: &str) -> Option<Option<Cow<'_, str>>> {
    let rest = header.strip_prefix("n,").or_else(|| header.strip_prefix("y,"))?.strip_suffix(',')?;
    if rest.is_empty() {
        return Some(None);
    }
    let name = rest.strip_prefix("a=").filter(|name| !name.is_empty() && !name.contains([',', '\0']))?;
    let mut parts = name.split('=');
    let first = parts.next()?;
    if first.len() == name.len() {
        return Some(Some(Cow::Borrowed(name)));
    }
    let mut decoded = first.to_owned();
    for part in parts {
        let (char, rest) = match part.split_at_checked(2)? {
            ("2C", rest) => (',', rest),
            ("3D", rest) => ('=', rest),
            _ => return None,
        };
        decoded.push(char);
        decoded.push_str(rest);
    }
    Some(Some(Cow::Owned(decoded)))
}

fn is_pair(key: &str, value: &str) -> bool {
    let is_value = |byte: u8| matches!(byte, 0x21..=0x7e | b' ' | b'\t' | b'\r' | b'\n');
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic()) && value.bytes().all(is_value)
}

/// The token of a value of `Authorization` (RFC 6750).
#[must_use]
pub fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    let is_token =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=');
    let is_one = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.bytes().all(is_token);
    is_one.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_read_as_clients_send_them() {
        let read = |text: &'static str| {
            let message = BearerMessage::parse(text.as_bytes()).unwrap();
            (message.authzid.map(Cow::into_owned), message.token)
        };
        assert_eq!(read("n,,\x01auth=Bearer a.b.c\x01\x01"), (None, "a.b.c"));
        assert_eq!(read("n,a=ann,\x01auth=Bearer a.b.c\x01\x01"), (Some("ann".to_owned()), "a.b.c"));
        assert_eq!(read("y,a=a=2Cb=3D,\x01auth=bearer  x\x01\x01"), (Some("a,b=".to_owned()), "x"));
        let more = "n,,\x01host=example.org\x01auth=Bearer x\x01port=143\x01\x01";
        assert_eq!(read(more), (None, "x"));
        let shown = format!("{:?}", BearerMessage::parse(more.as_bytes()).unwrap());
        assert_eq!(shown, "BearerMessage { authzid: None, .. }", "no token in a log");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "n,,",
            "n,,\x01",
            "n,,\x01\x01",
            "n,,\x01auth=Bearer x",
            "n,,\x01auth=Bearer x\x01",
            "n,,\x01auth=Bearer x\x01\x01\x01",
            "n,,\x01auth=Bearer x\x01\x01y",
            "n,,\x01auth=Basic x\x01\x01",
            "n,,\x01auth=Bearer\x01\x01",
            "n,,\x01auth=Bearer \x01\x01",
            "n,,\x01auth=Bearer x y\x01\x01",
            "n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
            "n,,\x01k1=v\x01auth=Bearer x\x01\x01",
            "n,,\x01k=\u{e9}\x01auth=Bearer x\x01\x01",
            "n,,\x01=v\x01auth=Bearer x\x01\x01",
            "p=tls-unique,,\x01auth=Bearer x\x01\x01",
            "n\x01auth=Bearer x\x01\x01",
            "n,a=,\x01auth=Bearer x\x01\x01",
            "n,ann,\x01auth=Bearer x\x01\x01",
            "n,a=a,b,\x01auth=Bearer x\x01\x01",
            "n,a=a=2c,\x01auth=Bearer x\x01\x01",
            "n,a=a=\u{e9}x,\x01auth=Bearer x\x01\x01",
        ] {
            let reported = BearerMessage::parse(text.as_bytes()).map_err(|error| error.kind);
            assert_eq!(reported, Err(AuthErrorKind::Malformed), "{text:?}");
        }
        assert!(BearerMessage::parse(b"n,,\x01auth=Bearer x\xff\x01\x01").is_err());
        let many = "k=v\x01".repeat(BEARER_EXTENSIONS_MAX + 1);
        assert!(BearerMessage::parse(format!("n,,\x01{many}auth=Bearer x\x01\x01").as_bytes()).is_err());
        let long = "x".repeat(BEARER_MESSAGE_BYTES_MAX);
        assert!(BearerMessage::parse(format!("n,,\x01auth=Bearer {long}\x01\x01").as_bytes()).is_err());
    }

    #[test]
    fn nobody_is_somebody_else_than_the_token_says() {
        let message = BearerMessage::parse(b"n,a=ann,\x01auth=Bearer x\x01\x01").unwrap();
        assert_eq!(message.as_named("ann"), Ok(()));
        assert_eq!(message.as_named("bob").map_err(|error| error.kind), Err(AuthErrorKind::Unsupported));
        let no_user = BearerMessage::parse(b"n,,\x01auth=Bearer x\x01\x01").unwrap();
        assert_eq!(no_user.as_named("bob"), Ok(()));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(BearerMessage::parse(&bytes));
        }

        #[test]
        fn what_is_written_is_read(name in "[a-z,=]{1,8}", token in "[A-Za-z0-9._-]{1,40}", key in "[A-Za-z]{1,8}", value in "[!-~ ]{1,8}") {
            prop_assume!(key != "auth");
            let escaped = name.replace('=', "=3D").replace(',', "=2C");
            let text = format!("n,a={escaped},\x01auth=Bearer {token}\x01{key}={value}\x01\x01");
            let read = BearerMessage::parse(text.as_bytes()).unwrap();
            prop_assert_eq!((read.authzid.as_deref(), read.token), (Some(name.as_str()), token.as_str()));
        }
    }
}
