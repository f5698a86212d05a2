//! Errors of decoding bytes from outside, and of encoding messages.

use std::fmt;

/// Why bytes are not the message they claim to be. Every variant says where, and with what value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a field.
    UnexpectedEnd {
        /// The field being read, as `Struct.Field`.
        field: &'static str,
        /// Bytes that the field needs.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A length or a count is below -1 (which would mean null).
    NegativeLength {
        /// The field being read.
        field: &'static str,
        /// The length on the wire.
        len: i32,
    },
    /// A string is longer than Kafka allows in any encoding (32,767 bytes).
    StringTooLong {
        /// The field being read.
        field: &'static str,
        /// The length on the wire.
        len: usize,
    },
    /// An array claims more elements than the bytes left could hold.
    CountTooLarge {
        /// The field being read.
        field: &'static str,
        /// The count on the wire.
        count: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// The arrays of the frame would take more memory than a frame of its length may.
    OverBudget {
        /// The array being read.
        field: &'static str,
        /// Bytes of memory that it needs.
        needed: usize,
        /// Bytes of memory that are left.
        left: usize,
    },
    /// A field that may not be null in this version is null.
    Null {
        /// The field being read.
        field: &'static str,
    },
    /// A string is not UTF-8.
    InvalidUtf8 {
        /// The field being read.
        field: &'static str,
    },
    /// A variable-length integer does not fit 32 bits.
    VarintTooLong {
        /// The field being read.
        field: &'static str,
    },
    /// A tagged field that we know has bytes after its end.
    TaggedFieldSize {
        /// The struct that carries the tag.
        field: &'static str,
        /// The tag.
        tag: u32,
        /// Bytes that were left over.
        extra: usize,
    },
    /// Bytes are left after the end of the message.
    TrailingBytes {
        /// How many.
        remaining: usize,
    },
    /// The message has no such version.
    UnsupportedVersion {
        /// The message's name.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// No API that we know has this key.
    UnknownApiKey {
        /// The key on the wire.
        key: i16,
    },
    /// A frame's length is negative or above the limit.
    FrameLength {
        /// The length on the wire.
        len: i32,
        /// The limit.
        max: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnexpectedEnd { field, needed, remaining } => {
                write!(f, "{field}: {needed} bytes needed, {remaining} left")
            }
            DecodeError::NegativeLength { field, len } => write!(f, "{field}: negative length {len}"),
            DecodeError::StringTooLong { field, len } => write!(f, "{field}: a string of {len} bytes is too long"),
            DecodeError::CountTooLarge { field, count, remaining } => {
                write!(f, "{field}: {count} elements do not fit the {remaining} bytes left")
            }
            DecodeError::OverBudget { field, needed, left } => {
                write!(f, "{field}: {needed} bytes of memory needed, {left} allowed")
            }
            DecodeError::Null { field } => write!(f, "{field}: null where null is not allowed"),
            DecodeError::InvalidUtf8 { field } => write!(f, "{field}: not UTF-8"),
            DecodeError::VarintTooLong { field } => write!(f, "{field}: a varint above 32 bits"),
            DecodeError::TaggedFieldSize { field, tag, extra } => {
                write!(f, "{field}: {extra} bytes after the end of tagged field {tag}")
            }
            DecodeError::TrailingBytes { remaining } => write!(f, "{remaining} bytes after the end of the message"),
            DecodeError::UnsupportedVersion { message, version } => write!(f, "{message} has no version {version}"),
            DecodeError::UnknownApiKey { key } => write!(f, "unknown API key {key}"),
            DecodeError::FrameLength { len, max } => write!(f, "a frame of {len} bytes (the limit is {max})"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Why a message cannot be written at a version. What the writer holds by then is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message has no such version.
    UnsupportedVersion {
        /// The message's name.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field is set that this version has no place for, and that must not be dropped silently.
    NotInVersion {
        /// The field, as `Struct.Field`.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field is null that may not be null in this version.
    Null {
        /// The field.
        field: &'static str,
    },
    /// A string, an array, a byte field or the frame is longer than its length prefix can say.
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        len: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::UnsupportedVersion { message, version } => write!(f, "{message} has no version {version}"),
            EncodeError::NotInVersion { field, version } => {
                write!(f, "{field} is set, but version {version} has no such field")
            }
            EncodeError::Null { field } => write!(f, "{field} is null where null is not allowed"),
            EncodeError::TooLong { field, len } => write!(f, "{field}: a length of {len} cannot be written"),
        }
    }
}

impl std::error::Error for EncodeError {}
