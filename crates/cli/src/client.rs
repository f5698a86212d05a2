//! Clients of the command line: polylogue's HTTP API, and the Kafka protocol.

pub mod http;
pub mod kafka;
pub(crate) mod lookup;
pub(crate) mod management;

use crate::NOT_LOGGED_IN;
use std::fmt;

/// Credentials of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Login {
    /// Returns the error for a refused login without a password. `None` if there was one.
    pub(crate) fn without_password(&self) -> Option<ClientError> {
        let text = || format!("no password was given for the user {}", self.user);
        self.password.is_empty().then(|| ClientError::new(NOT_LOGGED_IN, text()))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The code of an error without a response.
pub(crate) const UNREACHABLE: &str = "unreachable";

/// The code of invalid arguments, which never reach a server.
pub(crate) const INVALID: &str = "invalid_arguments";

/// The code of an error about a server's certificate.
pub(crate) const CERTIFICATE: &str = "certificate_refused";

/// An error of a request to a server, in one line that says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientError {
    /// Error code for programs, as in [`polylogue_admin::api::ErrorObject`]; `unreachable` without a response.
    pub code: String,
    /// Error text for users.
    pub message: String,
}

impl ClientError {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> ClientError {
        ClientError { code: code.to_owned(), message: message.into() }
    }

    /// Whether there was no response: none at all, or only part of one.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.code == UNREACHABLE
    }

    /// Makes the error for no response from `at`.
    pub(crate) fn unreachable(at: &str, why: &dyn fmt::Display) -> ClientError {
        let text = format!("cannot reach {at}: {why}; is the broker running? (`polylogue serve` starts one)");
        ClientError::new(UNREACHABLE, text)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ClientError {}
