//! The Kafka protocol: bytes of a connection in, requests to the broker and bytes of answers out. Sans-IO: nothing here knows a
//! socket, a clock or a file.
//!
//! ```text
//!            bytes                       polylogue_api::Request / Reply
//!   server <-------> session ---------------------------------------------> broker
//!                     |   \
//!                     |    \--> groups   members and generations (soft), offsets and what is committed (applied)
//!                     v
//!                   codec                generated from the message descriptors of `kafka-clients`
//! ```
//!
//! [`codec`] has every message at every advertised version; [`session`] is one connection; [`groups`] is the group coordinator as a
//! state machine that replays its records; [`config`] maps Kafka's names of broker and topic settings to ours; [`settings`] is
//! what a session and a coordinator know of them.
pub mod codec;
pub mod config;
pub mod groups;
pub mod session;
pub mod settings;
