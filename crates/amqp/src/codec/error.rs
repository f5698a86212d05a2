//! Errors of decoding bytes from the peer.

use super::MethodId;
use std::fmt;

/// Why bytes are not valid AMQP. Each variant is a mistake of the peer that costs at most its own connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The input ends before the field does.
    Short {
        /// The field that was being read.
        what: &'static str,
    },
    /// A method has bytes after its last field.
    LeftOver {
        /// How many bytes are left over.
        bytes: usize,
    },
    /// No such method.
    UnknownMethod(MethodId),
    /// A short string of a method is not UTF-8.
    NotUtf8,
    /// A table has a value of an unknown type.
    UnknownTag(u8),
    /// Tables and arrays are nested deeper than [`super::TABLE_DEPTH_MAX`].
    TooDeep,
    /// Property flags have bits that no property uses.
    UnknownProperties(u16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { what } => write!(f, "{what} ends too early"),
            Self::LeftOver { bytes } => write!(f, "{bytes} bytes follow after the last field"),
            Self::UnknownMethod(id) => write!(f, "there is no method {id}"),
            Self::NotUtf8 => write!(f, "a short string is not UTF-8"),
            Self::UnknownTag(tag) => write!(f, "a field has the unknown type {tag:#04x}"),
            Self::TooDeep => write!(f, "tables are nested deeper than {} levels", super::TABLE_DEPTH_MAX),
            Self::UnknownProperties(flags) => write!(f, "property flags {flags:#06x} name unknown properties"),
        }
    }
}

impl std::error::Error for DecodeError {}
