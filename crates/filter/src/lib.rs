//! Filters that a server applies to messages before it delivers them: tags, filter values, headers and SQL92 selectors.
//!
//! Layer 1. Pure functions: no I/O, no clock, no protocol. A subscription states a [`FilterSpec`], which has a wire form.
//! [`Filter::compile`] makes a [`Filter`] of it, once; readers and leases apply that to each message, which is a [`Subject`].
//!
//! ```text
//!   "a || b", x-stream-filter, SQL92 ──> FilterSpec ──encode, decode──> FilterSpec ──compile──> Filter
//!                                         (limits)                                                │ evaluate
//!                          index or message: Subject { tag, filter value, properties } ───────────┴──> Outcome, steps
//! ```
//!
//! | filter | of | reads |
//! |---|---|---|
//! | tags | RocketMQ's tags, TubeMQ's filter sets | the tag: its text, else its hash, which leaves the rest to the client as in RocketMQ |
//! | values | filters of RabbitMQ's streams | the filter value |
//! | headers | conditions as in a headers exchange | properties |
//! | SQL92 | RocketMQ 5.5 | properties |
//!
//! **Invariants.** Nothing that a client sends may panic: a filter is compiled or refused with an error that names the limit or the position.
//! Evaluation does not recurse or allocate, and takes at most [`Filter::steps_max`] steps. It depends on the filter and the message only, so that
//! every node has the same result. Equal specs have equal bytes.
//!
//! The selectors of JMS and RabbitMQ 4.2 (AMQP 1.0) are not here: no protocol of polylogue has them yet.

mod error;
mod filter;
mod limits;
mod spec;
mod sql;
mod subject;

pub use error::{FilterError, FilterErrorKind};
pub use filter::{BYTES_PER_STEP, Evaluation, Filter, LONG_DOUBLE_STEPS, Outcome, Reads, SHORT_NUMBER_BYTES};
pub use limits::{
    Limits, SELECTOR_BYTES_MAX, SELECTOR_DEPTH_MAX, SELECTOR_NODES_MAX, SPEC_BYTES_MAX, STACK_MAX, TERM_BYTES_MAX,
    TERMS_MAX,
};
pub use spec::{Condition, FilterSpec, HeaderValue, HeadersMatch};
pub use sql::Selector;
pub use subject::{Subject, Tag, Value, tag_hash};
