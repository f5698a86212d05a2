//! Delivery to competing consumers: individual acknowledgement, requeue, visibility timeout, redelivery limit, delay, dead-lettering.
//! AMQP queues, Pulsar's shared subscriptions, Kafka's share groups and RocketMQ's pop map to it.
//!
//! Layer 4. Knows no protocol, no I/O and no clock. A [`Queue`] is one queue, or one subscription on a log; a log may have many. Messages
//! are offsets; their content is read from the log by the sender of the delivery.
//!
//! ```text
//!     floor                                    committed        proposed
//!       |  s s . x . . s . . ~ . . . . . . . . . . . | . . . . . |
//!   ----+--------------------------------------------+-----------+---->  offset
//!   all settled    s settled  x held  ~ delayed  . ready    ready ahead of its commit
//! ```
//!
//! All state is kept as ranges: memory is proportional to holes, leases and requeued messages, not to the length of the queue.
//!
//! **Three kinds of state.** *Applied* changes by [`Queue::apply`] and [`Queue::appended`] alone and is what a checkpoint holds: what is
//! settled, what messages have behind them, and what they are. *Tail* is what was changed by commands since: it goes into the next
//! [`Queue::take_record`], one record however many messages it concerns, and counts as done until then. *Soft* are consumers,
//! their credit and leases, and the order in which messages are next; after a crash every unsettled message is ready again.
//!
//! **How a host uses it.** Chunks, entries and records of the log go in, then [`Queue::become_writer`]. Consumers come, entries are appended, and
//! [`Queue::grant`] returns the deliveries per consumer. A reply to [`Queue::settle`] waits for the number of its record: [`Queue::take_record`]
//! is called for each flush, and once [`Queue::apply`] says that number, the reply leaves. [`Queue::on_deadline`] is called at
//! [`Queue::next_deadline_ms`]; [`Queue::take_dead_letters`] says what to move elsewhere, [`Queue::wants`] what to describe,
//! [`Queue::take_freed`] under which limit that queues share others may go on.
//!
//! **Invariants.** A message is settled, ready, held, delayed or dead, in one place at a time. What is settled and committed is never handed out
//! again, but by [`Queue::seek`]. Messages are handed out by priority, then in the order of their offsets, wherever they
//! come from; with key order, those of a key to one consumer at a time. A message ahead of its commit can be settled, or dropped where
//! too many are ready, and nothing else: it does not expire, and is not reported dead before. Nothing that is read, from a record or a checkpoint, can make it panic.

mod alarms;
mod applied;
mod codec;
mod commands;
mod config;
mod consumers;
mod error;
mod expiry;
mod grant;
mod keys;
mod mark;
mod places;
mod queue;
mod runs;
mod upkeep;

pub use commands::{By, DeadLetter, Done};
pub use config::{Config, Delay, Mode, Return};
pub use consumers::{ConsumerConfig, ConsumerId, Share};
pub use error::{LeaseError, Refusal};
pub use grant::{Acquire, GRANT_MESSAGES_MAX, Grant, LeaseId};
pub use keys::KEY_WINDOW;
pub use mark::{Entry, OFFSET_MAX, Reason, Size, Tally};
pub use queue::{Counts, Queue, Record};
