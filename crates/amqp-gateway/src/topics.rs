//! Queues as topics, for Kafka's clients. See docs/protocols/mapping.md.
//!
//! ```text
//!   catalog of the broker           what Kafka's clients see
//!   orders                          orders
//!   __amqp_queue_7   ── names ──▶   amqp-queue.tasks          (virtual host `/`, queue `tasks`)
//!   __amqp_queue_8   ──────────▶    amqp-vhost.prod.tasks     (virtual host `prod`)
//!   __amqp_queue_9                                            (exclusive to its connection)
//!
//!   stored message   ── record ─▶   key, value, headers
//!                    ◀─ message ─   of a topic of Kafka that an exchange names
//! ```

mod catalog;
mod message;
mod name;
mod record;

pub use catalog::{QueuesAsTopics, topic_name};
pub(crate) use message::{RecordMessage, RecordOf, TOPIC_HEADER, message_of};
pub(crate) use record::EXCHANGE;
pub use record::MessagesAsRecords;
