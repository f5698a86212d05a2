//! RabbitMQ's metadata: virtual hosts, users and permissions, parameters, policies, queues with their arguments, exchanges and bindings. AMQP 0-9-1
//! and the management API are built on it.
//!
//! Layer 4. Has no I/O, no clock, no AMQP frames, and no messages. [`Model`] is one deterministic state machine on the log: [`Model::plan`] makes a
//! record of a command, [`Model::apply`] changes state. Exchanges and bindings are kept by `polylogue_router`, whose records are embedded in this
//! crate's, so that related changes are committed together.
//!
//! **Invariants.** Ids are never reused. A refused command changes nothing. Two models that applied the same records are equal, whether from the
//! beginning or from a checkpoint. [`Command::Restarted`] removes exclusive queues and everything else that is not durable. Error texts are
//! RabbitMQ's wherever clients may see them. No input of a client or of a definitions file panics.
//!
//! Accepted here although RabbitMQ 4 refuses them, for older clients: transient queues that are not exclusive, `x-queue-mode`, `x-queue-version` 1,
//! policies of mirrored queues.

mod access;
mod arguments;
mod change;
mod command;
mod consume;
mod death;
mod definitions;
mod error;
mod export;
mod federation;
mod fields;
mod json;
mod machine;
mod metadata;
mod pattern;
mod plan;
mod policy;
mod queue;
mod queue_kind;
mod realign;
mod settings;
mod shovel;
mod slow;
mod table;
mod upstream;
mod uri;
mod user;
mod vhost;

pub use arguments::{PRIORITY_MAX, RETENTION_ARGUMENT, TOPIC_ARGUMENT, duration_ms, exchange_topic};
pub use change::READS_BEGUN;
pub use command::{
    Bind, BindDestination, Caller, Command, DeclareExchange, DeclareQueue, DeleteQueue, Event, Limits, PutUser,
    PutVhost, Reply, TopicReads,
};
pub use consume::{ConsumerSettings, FILTERS_MAX, StreamOffset};
pub use death::{DEATHS_MAX, Death, Deaths, NewDeath, Reason};
pub use definitions::{DEFINITIONS_BYTES_MAX, Definitions};
pub use error::{Code, Named, REPLY_TEXT_BYTES_MAX, Refused, Resource};
pub use export::{Product, export, permission_item, topic_permission_item};
pub use federation::{NamedUpstream, federates, upstreams};
pub use fields::{AckMode, LinkError};
pub use json::{JSON_BYTES_MAX, Json};
pub use machine::{Model, Plan};
pub use metadata::Metadata;
pub use pattern::{BACKTRACK_STEPS_MAX, PATTERN_BYTES_MAX, Pattern};
pub use policy::{ApplyTo, Policy, PolicySpec, merged};
pub use polylogue_auth::{Access, HASH_BYTES_MAX, Hashing, PasswordHash, SALT_BYTES, ScramCredential};
pub use queue::{DeletionCause, Home, OwnerId, Queue, REPLY_TO, RESERVED_PREFIX, check_exclusive};
pub use queue_kind::QueueKind;
pub use realign::Realign;
pub use settings::{DELIVERY_LIMIT, DeadLetterStrategy, Effective, Overflow, QueueSettings};
pub use shovel::{DeleteAfter, SHOVEL, Shovel, ShovelDestination, ShovelSource, SourceOf, masked, shown_shovel};
pub use slow::SlowMatch;
pub use table::{
    DEPTH_MAX, TableError, arguments_digest, arguments_of_json, decode_array, decode_table, encode_array, encode_table,
    json_of_arguments, type_name,
};
pub use upstream::{UPSTREAM, UPSTREAM_SET, Upstream};
pub use uri::{AmqpUri, AuthMechanism, UriError, UriTls, without_credentials};
pub use user::{Permission, Subject, TopicPermission, User, UserLimit};
pub use vhost::{DEFAULT_VHOST, PREDECLARED, Vhost, VhostLimit};
