//! The crate's one error type.

use std::fmt;
use std::io;

/// What a caller would treat differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The offset or index is below the first or above the last that is there.
    OutOfRange,
    /// The queue in front of the writer is full: try again.
    Busy,
    /// The writer's term is over; its holder must stop proposing.
    Fenced,
    /// The journal has stopped (shutdown or a fatal error).
    Stopped,
    /// No room on the disk.
    StorageFull,
    /// Bytes that were durable once do not verify any more.
    Damaged,
    /// The directory belongs to a newer version, another cluster or another node.
    Incompatible,
    /// Another process has the data directory.
    Locked,
    /// The system refused for another reason.
    Io,
    /// A bound or argument was not kept by the caller.
    Invalid,
}

/// An error with what was being done.
#[derive(Debug)]
pub struct Error {
    /// How to treat it.
    pub kind: ErrorKind,
    /// What was being done, with the values concerned; lower case, no final dot.
    pub context: String,
    /// The system's error, where there is one.
    pub source: Option<io::Error>,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a system error behind it.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Error {
        Error { kind, context: context.into(), source: None }
    }

    /// Wraps a system error; a full disk and a held lock keep their kinds.
    pub fn io(context: impl Into<String>, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::StorageFull,
            io::ErrorKind::WouldBlock => ErrorKind::Locked,
            _ => ErrorKind::Io,
        };
        Error { kind, context: context.into(), source: Some(source) }
    }

    /// The same, with the file concerned.
    pub(crate) fn within(self, path: &std::path::Path) -> Error {
        Error { context: format!("{}: {}", path.display(), self.context), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.context),
            None => f.write_str(&self.context),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}
