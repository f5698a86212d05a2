//! The crate's one error type: what `Broker::open` and administration can fail with.

use std::fmt;

/// What a caller would treat differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Another process has the data directory.
    Locked,
    /// The directory is of a newer version, or not polylogue's.
    Incompatible,
    /// Bytes that were durable once do not verify any more.
    Damaged,
    /// No room on the disk.
    StorageFull,
    /// It is being done already, or something else is in its way: try again later.
    Busy,
    /// A setting cannot be.
    Config,
    /// The system refused.
    Io,
}

/// An error with what was being done, with which value, and what to do about it.
#[derive(Debug)]
pub struct Error {
    /// How to treat it.
    pub kind: ErrorKind,
    /// One line for people; lower case, no final dot.
    pub text: String,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a kind.
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
