//! Errors of credentials that were sent or are to be stored.

use std::fmt;

/// Coarse kinds, which each protocol maps to its own codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthErrorKind {
    /// The message is not one of its mechanism, or longer than its bound.
    Malformed,
    /// It is well formed, and asks for what is not there: another authorization identity, channel binding, an extension.
    Unsupported,
    /// Name, password, proof, token or certificate are not right. Clients learn no more than that.
    Refused,
    /// A credential, list or rule that is to be kept makes no sense.
    Invalid,
    /// A record cannot be read.
    Corrupt,
}

/// A kind, and what was wrong, for logs and operators. It never holds a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthError {
    /// The kind.
    pub kind: AuthErrorKind,
    /// What was wrong.
    pub text: String,
}

impl AuthError {
    pub(crate) fn new(kind: AuthErrorKind, text: impl Into<String>) -> AuthError {
        AuthError { kind, text: text.into() }
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for AuthError {}
