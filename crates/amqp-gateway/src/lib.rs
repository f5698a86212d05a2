//! Connects AMQP sessions to the broker: translates declarations, publishes and consumers into topics, entries and leases.
//!
//! Layer 4, sans-IO. [`AmqpMachine`] is the metadata as a state machine that the broker hosts; [`Directory`] is the shared routing state of all
//! connections; [`Connection`] is one client, [`Principal`] a user of the management API.
//!
//! ```text
//!   bytes <──> amqp::Session <── request::{Request, Reply, Event} ──> Connection ── api::{Request, Reply, Event} ──> broker
//!                                                                       │   └── MachineId::AMQP: AmqpMachine (applied by records)
//!                                                                       └── routes by Directory, without a request
//! ```
//!
//! A queue is the one partition of its own topic ([`topic_of`]), which is created after the queue is declared and before the reply, and deleted after
//! the queue; a start deletes topics of deleted queues, and the server has missing ones created before it serves ([`Directory::missing_topics`]).
//!
//! Clients of other protocols read queues as topics: [`QueuesAsTopics`], [`MessagesAsRecords`].
//!
//! [`MissingTopics`] creates topics that a declaration did not create. One instance per broker.
//!
//! [`ToTopics`] appends messages of forwarding queues to their topics. One instance per broker.
//!
//! [`FromTopics`] publishes records of topics to the exchanges that name them. One instance per broker.
//!
//! [`DeadLetters`] republishes dead-lettered messages. One instance per broker.
//!
//! [`Traffic`] has the counters of client activity. One instance per broker.
//!

mod acks;
mod alarm;
mod aligning;
mod backoff;
mod begin;
mod changes;
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
pub use changes::{ExchangeChange, IdleChanges, PendingChanges};
pub use connection::{Connection, InternalIdentity};
pub use convert::{RECEIVED_FROM, hops};
pub use counts::{Count, QueueCount, SIZE_BOUNDS, Traffic};
pub use dead::{DeadCounts, DeadLetters};
pub use deliver::without_counts;
pub use directory::{Directory, topic_of};
pub use flow::UNCREDITED_BYTES_MAX;
pub use from_topics::{ExchangeCounts, FromTopics};
pub use idle::IdleQueues;
pub use machine::{ADMINISTRATOR, AmqpAnswer, AmqpMachine, AmqpRequest, CLUSTER_NAME, FIRST_USER, GuestRule};
pub use management::{MANAGEMENT_CHANNEL, Principal, PrincipalOutput, View, managed, managed_by, view};
pub use message::sent_at;
pub use missing::MissingTopics;
pub use presence::{Ends, Presence, ShownChannel, ShownConsumer};
pub use route::QUORUM_PRIORITY;
pub use to_topics::{ToTopics, TopicCounts};
pub use topics::{MessagesAsRecords, QueuesAsTopics, topic_name};
