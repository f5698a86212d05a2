//! The binary `polylogue`: the server from its configuration to its end, and the chores that run beside its connections.
//!
//! Layer 5, on top: it wires `net`, `admin`, `rabbitmq-http` and `bridges` to a broker, gives `cli` what `polylogue serve` runs, and nothing
//! sees it.

mod chores;
mod health;
pub mod serve;
