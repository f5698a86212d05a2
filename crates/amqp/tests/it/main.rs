//! The integration tests of this crate, in one program: it is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod client;
mod client_host;
mod codec_differential;
mod codec_hostile;
mod session_channels;
mod session_consume;
mod session_declare;
mod session_handshake;
mod session_host;
mod session_memory;
mod session_mistakes;
mod session_publish;
mod session_random;
