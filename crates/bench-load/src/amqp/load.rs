//! The parameters of queues.

use crate::error::BenchError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A type of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// RabbitMQ's default type.
    Classic,
    /// RabbitMQ's replicated type; here on one node.
    Quorum,
}

impl QueueKind {
    /// Returns the value of `x-queue-type`.
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

/// The exchange that routes messages to queues, with one queue for each routing key. Predeclared in every broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// `amq.direct`: the key of the binding is that of the message.
    Direct,
    /// `amq.topic`: a pattern, `*.QUEUE`.
    Topic,
}

impl Exchange {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Exchange::Direct => "amq.direct",
            Exchange::Topic => "amq.topic",
        }
    }

    /// Returns the routing key of messages for a queue.
    #[must_use]
    pub fn key(self, queue: &str) -> String {
        format!("bench.{queue}")
    }

    /// Returns the binding key of a queue.
    #[must_use]
    pub fn binding(self, queue: &str) -> String {
        match self {
            Exchange::Direct => self.key(queue),
            Exchange::Topic => format!("*.{queue}"),
        }
    }
}

/// The queue parameters, the same on all sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLoad {
    /// The type of the queues.
    pub kind: QueueKind,
    /// Whether queues are durable and messages persistent.
    pub durable: bool,
    /// Whether the publisher uses confirms.
    pub confirms: bool,
    /// Prefetch of a consumer; 0: unlimited.
    pub prefetch: u16,
    /// Messages per acknowledgement; 0: automatic acknowledgement.
    pub ack_every: u32,
    /// The exchange; the default one, by queue name, if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
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
            0 => write!(f, ", no prefetch limit")?,
            prefetch => write!(f, ", prefetch {prefetch}")?,
        }
        self.exchange.map_or(Ok(()), |exchange| write!(f, ", through {}", exchange.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_says_what_it_is() {
        let load = QueueLoad {
            kind: QueueKind::Classic,
            durable: true,
            confirms: true,
            prefetch: 500,
            ack_every: 100,
            exchange: None,
        };
        let stated =
            "classic queues, durable, persistent messages, confirms, acknowledged by 100 at once, prefetch 500";
        assert_eq!(load.to_string(), stated);
        let weak = QueueLoad { durable: false, confirms: false, prefetch: 0, ack_every: 0, ..load };
        let stated = "classic queues, not durable, transient messages, no confirms, automatic acknowledgement, \
                    no prefetch limit";
        assert_eq!(weak.to_string(), stated);
        let routed = QueueLoad { exchange: Some(Exchange::Topic), ..load };
        assert!(routed.to_string().ends_with("prefetch 500, through amq.topic"), "{routed}");
        assert_eq!(
            (Exchange::Topic.key("q-1"), Exchange::Topic.binding("q-1")),
            ("bench.q-1".to_owned(), "*.q-1".to_owned())
        );
        assert_eq!(Exchange::Direct.key("q-1"), Exchange::Direct.binding("q-1"));
        assert_eq!("quorum".parse(), Ok(QueueKind::Quorum));
        assert!("stream".parse::<QueueKind>().is_err());
    }
}
