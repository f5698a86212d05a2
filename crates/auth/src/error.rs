//! Errors of credentials that were sent or are to be stored.

use std::fmt;

/// Coarse kinds, which each protocol maps to its own codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthErrorKind {
    /// The message is not one of its mechanism, or longer than its bound.
    Malformed,
    /// The message is well-formed but requires an unsupported feature: another authorization identity, channel binding, an extension.
    Unsupported,
    /// Name, password, proof, token or certificate are wrong. Clients get no further detail.
    Refused,
    /// A credential, list or rule to be stored is invalid.
    Invalid,
    /// A stored record cannot be decoded.
    Corrupt,
}

/// An error kind with a description for logs and operators. Never contains a secret.
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
