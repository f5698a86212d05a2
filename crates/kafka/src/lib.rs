//! The Kafka protocol: bytes of a connection in, requests to the broker and bytes of answers out. Sans-IO: nothing here knows a
//! socket, a clock or a file.
//!
//! ```text
//!            bytes                       polylogue_api::Request / Reply
//!   server <-------> session ---------------------------------------------> broker
//!                     |   \
//!                     |    \--> kafka-groups   members and generations (soft), offsets and what is committed (applied)
//!                     v
//!                kafka-codec             generated from the message descriptors of `kafka-clients`
//! ```
//!
//! [`session`] is one connection; [`config`] maps Kafka's names of broker and topic settings to ours; [`settings`] is what a session knows of
//! them. Messages at every advertised version are in the crate `kafka-codec`, the group coordinator, a state machine that replays its records, in
//! `kafka-groups`.

pub mod config;
pub mod session;
pub mod settings;
