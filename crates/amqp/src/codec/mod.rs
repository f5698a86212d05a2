//! The AMQP 0-9-1 wire format as RabbitMQ implements it: frames, methods, properties and field tables, in both directions.
//!
//! Sources: the specification of AMQP 0-9-1, its errata (the types of table fields) and RabbitMQ's extensions. Values are slices of the input
//! wherever possible; counts and lengths are checked against the remaining bytes before they are used.
//!
//! ```text
//!   frame     type u8 | channel u16 | size u32 | payload, size bytes | 0xCE
//!   method    class u16 | method u16 | fields                                      type 1
//!   header    class u16 | weight u16 = 0 | body size u64 | flags u16 | properties  type 2
//!   body      as much of the body as fits                                          type 3
//!   heartbeat nothing, on channel 0                                                type 8
//! ```

mod error;
mod frame;
mod methods;
mod properties;
mod table;
mod wire;

pub use error::DecodeError;
pub use frame::{
    ContentHeader, FRAME_END, FRAME_OVERHEAD_BYTES, FRAME_PREFIX_BYTES, FrameKind, FramePrefix, HEADER_FRAME_BYTES_MIN,
    PROTOCOL_HEADER, body_prefix, encode_header, encode_heartbeat, encode_method,
};
pub use methods::*;
pub use properties::{BasicProperties, Properties, Property, put_with_header};
pub use table::{Field, TABLE_DEPTH_MAX, Table, TableBuilder, Value};
pub use wire::{Reader, ShortStr, Writer};

use std::fmt;

/// Identifies a method by its class number and its number within the class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MethodId {
    /// The class, as in `queue` = 50.
    pub class: u16,
    /// The method, as in `declare` = 10.
    pub method: u16,
}

impl MethodId {
    /// For errors that no method caused.
    pub const NONE: MethodId = MethodId { class: 0, method: 0 };

    /// Returns the id with these numbers.
    #[must_use]
    pub const fn new(class: u16, method: u16) -> MethodId {
        MethodId { class, method }
    }
}

impl fmt::Display for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.class, self.method)
    }
}
