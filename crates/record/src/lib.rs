//! The stored entry: what a producer sent, byte for byte, and the envelope that the log keeps around it.
//!
//! Layer 1: pure functions over bytes. No I/O, no clock, no randomness; the time is always an argument.
//!
//! - [`crc`]: CRC-32C of slices, in pieces, and combined without reading the bytes again.
//! - [`compress`]: the codecs of record batches, each decompressing under a cap.
//! - [`envelope`]: the fixed layout in front of every stored entry.
//! - [`kafka`]: the record batch of magic 2: header, validation, rewriting, reading, building.

pub mod compress;
pub mod crc;
pub mod envelope;
pub mod kafka;
