//! Between an AMQP session and the broker: what a client declares, publishes and consumes becomes topics, entries and leases.
//!
//! Layer 4, sans-IO. [`AmqpMachine`] is the declared world as a state machine that the broker hosts; [`Directory`] is what every connection
//! routes by; [`Connection`] is one client, [`Principal`] a user of the management API.
//!
//! ```text
//!   bytes <──> amqp::Session <── request::{Request, Reply, Event} ──> Connection ── api::{Request, Reply, Event} ──> broker
//!                                                                       │   └── MachineId::Amqp: AmqpMachine (applied by records)
//!                                                                       └── routes by Directory, without asking anybody
//! ```
//!
//! A queue is the one partition of a topic of its own ([`topic_of`]), made after the queue is declared and before that is answered, and
//! deleted after it; a start deletes what is left of queues that are gone, and the server has what is missing made before it serves
//! ([`Directory::missing_topics`]).
//!
//! Clients of other protocols read queues as topics: [`QueuesAsTopics`], [`MessagesAsRecords`].
//!
//! What a declaration left without its topic gets it from [`MissingTopics`], of which there is one for the broker.
//!
//! What reaches a queue that goes on to a topic is appended there by [`ToTopics`], of which there is one for the broker.
//!
//! What Kafka's clients produce into a topic that an exchange names is published there by [`FromTopics`], of which there is one for the
//! broker.
//!
//! What dies in a queue is moved by [`DeadLetters`], of which there is one for the broker.
//!
//! What clients do is counted in [`Traffic`], of which there is one for the broker.
//!

mod acks;
mod alarm;
mod aligning;
mod backoff;
mod begin;
mod commit;
mod connection;
mod convert;
mod counts;
mod dead;
mod deliver;
mod directory;
mod flow;
mod from_topics;
mod idle;
mod login;
mod machine;
mod management;
mod message;
mod missing;
mod news;
mod operation;
mod pace;
mod presence;
mod publish;
mod replies;
mod route;
mod stream;
#[cfg(test)]
mod testing;
mod to_topics;
mod topics;
mod trace;
mod turn;

pub use alarm::Resource;
pub use connection::{Connection, Insider};
pub use convert::{RECEIVED_FROM, hops};
pub use counts::{Count, QueueCount, SIZE_BOUNDS, Traffic};
pub use dead::{DeadCounts, DeadLetters};
pub use deliver::without_counts;
pub use directory::{Directory, topic_of};
pub use flow::UNCREDITED_BYTES_MAX;
pub use from_topics::{ExchangeCounts, FromTopics};
pub use idle::IdleQueues;
pub use machine::{ADMINISTRATOR, AmqpAnswer, AmqpAsk, AmqpMachine, CLUSTER_NAME, FIRST_USER, GuestRule};
pub use management::{MANAGEMENT_CHANNEL, Principal, Said, View, managed, managed_by, view};
pub use message::sent_at;
pub use missing::MissingTopics;
pub use news::{ExchangeNews, IdleNews, News};
pub use presence::{Ends, Presence, ShownChannel, ShownConsumer};
pub use route::QUORUM_PRIORITY;
pub use to_topics::{ToTopics, TopicCounts};
pub use topics::{MessagesAsRecords, QueuesAsTopics, topic_name};
