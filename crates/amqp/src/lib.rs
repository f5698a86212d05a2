//! AMQP 0-9-1 as RabbitMQ's clients use it: bytes of a connection in, requests to the broker and response bytes out. Sans-IO: nothing here uses a
//! socket, a clock or a file.
//!
//! ```text
//!            bytes                        request::Request / Reply / Event
//!   server <-------> session ------------------------------------------------> broker
//!                     |    \
//!                     v     \--> refusal   RabbitMQ's codes and words
//!                   codec
//! ```
//! [`codec`] has frames, methods, properties and field tables; [`session`] is one server-side connection; [`request`] is the contract between a
//! session and a broker; [`refusal`] has every reason to close a channel or a connection; [`settings`] are the operator's settings. [`client`] is a
//! client-side connection, which shovels use.

pub mod client;
mod clock;
pub mod codec;
mod output;
pub mod refusal;
pub mod request;
pub mod session;
pub mod settings;
