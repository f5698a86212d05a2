//! Kafka's messages as plain structs, to and from bytes at every version that Kafka 4.3 speaks.
//!
//! [`generated`] is written by `cargo run -p xtask -- codegen kafka` from Kafka's own message descriptors; this
//! module is what it stands on. Requests and responses both encode and decode, because the command line tool is a
//! client too. Decoding copies nothing but arrays; encoding copies everything but record batches.

pub mod error;
pub mod frame;
pub mod generated;
pub mod reader;
pub mod records;
pub mod writer;

pub use bytestring::ByteString as StrBytes;
pub use error::{DecodeError, EncodeError};
pub use generated::*;
pub use reader::Reader;
pub use records::Records;
pub use writer::Writer;

use std::fmt;
use std::ops::RangeInclusive;

/// The longest string in any message, in either encoding. Bytes.
pub const STRING_BYTES_MAX: usize = 32_767;

/// A message of the protocol: a request, a response, a header, or data that is carried inside another message.
pub trait Message: Sized + Clone + Default + PartialEq + fmt::Debug {
    /// Kafka's name.
    const NAME: &'static str;
    /// The versions that exist.
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields.
    const FLEXIBLE_FROM: Option<i16>;

    /// Reads the message. Fields that `version` lacks get their defaults. Bytes after the end are left in `r`.
    ///
    /// # Errors
    /// When the bytes are not such a message, or there is no such version.
    fn decode(r: &mut Reader, version: i16) -> Result<Self, DecodeError>;

    /// Writes the message. Fields that `version` lacks are left out where they hold their default or where the
    /// protocol calls them ignorable.
    ///
    /// # Errors
    /// When a field is set that must not be left out, or a value does not fit its encoding.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError>;
}

/// A message that asks for something.
pub trait Request: Message {
    /// Its key in the request header.
    const API_KEY: ApiKey;
    /// What answers it, at the same version.
    type Response: Message;
}

/// For generated code: the version exists.
#[inline]
fn can_decode<M: Message>(version: i16) -> Result<(), DecodeError> {
    if M::VERSIONS.contains(&version) {
        Ok(())
    } else {
        Err(DecodeError::UnsupportedVersion { message: M::NAME, version })
    }
}

/// For generated code: the version exists.
#[inline]
fn can_encode<M: Message>(version: i16) -> Result<(), EncodeError> {
    if M::VERSIONS.contains(&version) {
        Ok(())
    } else {
        Err(EncodeError::UnsupportedVersion { message: M::NAME, version })
    }
}
