//! What queues are measured under.

use crate::error::BenchError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A type of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// RabbitMQ's usual one.
    Classic,
    /// RabbitMQ's replicated one; here on one node.
    Quorum,
}

impl QueueKind {
    /// The name that `x-queue-type` has.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueueKind::Classic => "classic",
            QueueKind::Quorum => "quorum",
        }
    }
}

impl FromStr for QueueKind {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<QueueKind, BenchError> {
        let found = [QueueKind::Classic, QueueKind::Quorum].into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| BenchError::new(format!("{text} is no type of queues: classic or quorum")))
    }
}

/// How messages go through queues, the same on all sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLoad {
    /// The type of the queues.
    pub kind: QueueKind,
    /// Queues are durable and messages persistent, or neither.
    pub durable: bool,
    /// The publisher wants each message confirmed.
    pub confirms: bool,
    /// Messages that a consumer may hold; 0: any number.
    pub prefetch: u16,
    /// Messages that a consumer acknowledges at once; 0: it acknowledges none, the broker takes them as acknowledged when sent.
    pub ack_every: u32,
}

impl fmt::Display for QueueLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let durable = if self.durable { "durable, persistent messages" } else { "not durable, transient messages" };
        let confirms = if self.confirms { "confirms" } else { "no confirms" };
        write!(f, "{} queues, {durable}, {confirms}", self.kind.name())?;
        match self.ack_every {
            0 => write!(f, ", automatic acknowledgement")?,
            every => write!(f, ", acknowledged by {every} at once")?,
        }
        match self.prefetch {
            0 => write!(f, ", no prefetch limit"),
            prefetch => write!(f, ", prefetch {prefetch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_says_what_it_is() {
        let load = QueueLoad { kind: QueueKind::Classic, durable: true, confirms: true, prefetch: 500, ack_every: 100 };
        let told = "classic queues, durable, persistent messages, confirms, acknowledged by 100 at once, prefetch 500";
        assert_eq!(load.to_string(), told);
        let weak = QueueLoad { durable: false, confirms: false, prefetch: 0, ack_every: 0, ..load };
        let told = "classic queues, not durable, transient messages, no confirms, automatic acknowledgement, \
                    no prefetch limit";
        assert_eq!(weak.to_string(), told);
        assert_eq!("quorum".parse(), Ok(QueueKind::Quorum));
        assert!("stream".parse::<QueueKind>().is_err());
    }
}
