//! Errors of the bench: a text.

use std::fmt;

/// What went wrong, with which value, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchError(String);

/// A result with such an error.
pub type Result<T> = std::result::Result<T, BenchError>;

impl BenchError {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> BenchError {
        BenchError(text.into())
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

/// Adds what was being done to an error.
pub trait Context<T> {
    /// Returns the value, or an error of `what` and the cause.
    ///
    /// # Errors
    /// There is no value.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| BenchError(format!("{}: {e}", what())))
    }
}
