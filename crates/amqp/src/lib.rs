//! AMQP 0-9-1 as RabbitMQ's clients speak it: bytes of a connection in, requests to the broker and bytes of answers out.
//! Sans-IO: nothing here knows a socket, a clock or a file.
//!
//! ```text
//!            bytes                        request::Request / Reply / Event
//!   server <-------> session ------------------------------------------------> broker
//!                     |    \
//!                     v     \--> refusal   RabbitMQ's codes and words
//!                   codec
//! ```
//!
//! [`codec`] has frames, methods, properties and field tables; [`session`] is one connection; [`request`] is what it asks of a
//! broker, and the contract that a broker is written against; [`refusal`] has every reason to close a channel or a connection;
//! [`settings`] is what an operator decides. [`client`] is the other side of a connection, for shovels.

pub mod client;
mod clock;
pub mod codec;
mod output;
pub mod refusal;
pub mod request;
pub mod session;
pub mod settings;
