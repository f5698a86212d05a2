//! SASL PLAIN (RFC 4616): a name and a password, as they are.
//!
//! ```text
//!   [authzid] NUL authcid NUL passwd
//! ```

use crate::error::{AuthError, AuthErrorKind};
use std::fmt;

/// The longest message. Bytes.
pub const PLAIN_MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Who wants to log in, with which password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plain<'a> {
    /// As whom; empty for as itself. See [`Plain::as_itself`].
    pub authzid: &'a str,
    /// The name.
    pub name: &'a str,
    /// The password, which may be anything but empty.
    pub password: &'a [u8],
}

impl fmt::Debug for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'a> Plain<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// When it is none, or name or password are empty.
    pub fn parse(message: &'a [u8]) -> Result<Plain<'a>, AuthError> {
        let malformed = |text: &str| Err(AuthError::new(AuthErrorKind::Malformed, text));
        if message.len() > PLAIN_MESSAGE_BYTES_MAX {
            return malformed(&format!("a PLAIN message has at most {PLAIN_MESSAGE_BYTES_MAX} bytes"));
        }
        let mut parts = message.split(|byte| *byte == 0);
        let (Some(authzid), Some(name), Some(password), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return malformed("a PLAIN message has three parts with a NUL between them");
        };
        let (Ok(authzid), Ok(name)) = (std::str::from_utf8(authzid), std::str::from_utf8(name)) else {
            return malformed("a name in a PLAIN message is not UTF-8");
        };
        match (name.is_empty(), password.is_empty()) {
            (true, _) => malformed("the name is empty"),
            (_, true) => malformed("the password is empty"),
            _ => Ok(Plain { authzid, name, password }),
        }
    }

    /// That the client logs in as itself, as Kafka demands.
    ///
    /// # Errors
    /// When it asks for another user.
    pub fn as_itself(self) -> Result<Plain<'a>, AuthError> {
        if self.authzid.is_empty() || self.authzid == self.name {
            return Ok(self);
        }
        let text = "a client can log in as itself only: its authorization identity is another name";
        Err(AuthError::new(AuthErrorKind::Unsupported, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_parts_are_read_and_nothing_else() {
        let plain = Plain::parse(b"\0user\0p\xffss").unwrap();
        assert_eq!((plain.authzid, plain.name, plain.password), ("", "user", &b"p\xffss"[..]));
        assert_eq!(format!("{plain:?}"), "Plain { name: \"user\", .. }", "no password in a log");
        let long = [b'a'; PLAIN_MESSAGE_BYTES_MAX + 1];
        for (message, why) in [
            (&b""[..], "a PLAIN message has three parts with a NUL between them"),
            (b"user\0pass", "a PLAIN message has three parts with a NUL between them"),
            (b"\0user\0pass\0", "a PLAIN message has three parts with a NUL between them"),
            (b"\0\0pass", "the name is empty"),
            (b"\0user\0", "the password is empty"),
            (b"\0us\xffer\0pass", "a name in a PLAIN message is not UTF-8"),
            (b"\xff\0user\0pass", "a name in a PLAIN message is not UTF-8"),
            (&long, "a PLAIN message has at most 4096 bytes"),
        ] {
            let error = Plain::parse(message).unwrap_err();
            assert_eq!((error.kind, &*error.text), (AuthErrorKind::Malformed, why));
        }
    }

    #[test]
    fn somebody_else_is_nobody_to_kafka() {
        assert!(Plain::parse(b"user\0user\0p").unwrap().as_itself().is_ok());
        assert!(Plain::parse(b"\0user\0p").unwrap().as_itself().is_ok());
        let other = Plain::parse(b"admin\0user\0p").unwrap();
        assert_eq!(other.as_itself().map_err(|error| error.kind), Err(AuthErrorKind::Unsupported));
    }
}
