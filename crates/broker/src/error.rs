//! The crate's error type, of `Broker::open` and administration.

use std::fmt;

/// Error kinds that callers handle differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Another process has the data directory.
    Locked,
    /// The directory is of a newer version, or not a polylogue directory.
    Incompatible,
    /// Durable bytes fail verification.
    Damaged,
    /// No space on the disk.
    StorageFull,
    /// In progress already, or blocked by another operation: retry later.
    Busy,
    /// Invalid setting.
    Config,
    /// The system call failed.
    Io,
}

/// An error: the operation, the value, and what to do about it.
#[derive(Debug)]
pub struct Error {
    /// The kind.
    pub kind: ErrorKind,
    /// One line for people; lower case, no final dot.
    pub text: String,
}

/// The crate's result type.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error of a kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<polylogue_log::Error> for Error {
    fn from(e: polylogue_log::Error) -> Error {
        use polylogue_log::ErrorKind as Log;
        let kind = match e.kind {
            Log::Locked => ErrorKind::Locked,
            Log::Incompatible => ErrorKind::Incompatible,
            Log::Damaged => ErrorKind::Damaged,
            Log::StorageFull => ErrorKind::StorageFull,
            Log::Busy => ErrorKind::Busy,
            Log::Invalid => ErrorKind::Config,
            _ => ErrorKind::Io,
        };
        Error::new(kind, e.to_string())
    }
}
