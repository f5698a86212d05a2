//! Why a queue refuses a command.

use crate::consumers::ConsumerId;
use std::fmt;

/// Why a message is not settled, returned or held longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is settled already.
    Settled,
    /// It is not held.
    NotHeld,
    /// Another consumer holds it, or it was handed out again since.
    Stale,
    /// The lease has run out.
    Expired,
    /// There is no such message yet.
    Beyond,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseError {
    /// A record or a chunk cannot be read.
    Damaged {
        /// Which of its values cannot be.
        what: &'static str,
    },
    /// A record was applied that this writer did not propose.
    NotProposed,
    /// The queue is not the writer's: it replays, or lost its writer.
    NotWriter,
    /// An entry does not follow the one before.
    NotInOrder {
        /// The offset that it was to start at, at the least.
        expected: u64,
        /// The offset that it starts at.
        got: u64,
    },
    /// An offset that cannot be.
    OffsetTooHigh(u64),
    /// There is no such consumer.
    NoConsumer(ConsumerId),
    /// A consumer of this id is there.
    ConsumerExists(ConsumerId),
    /// The queue is another consumer's alone, or is to be this one's alone and has others.
    Exclusive,
    /// Ranges of key hashes that overlap with those of another consumer, or miss where others have some.
    HashesTaken,
    /// A message is not as the command has it. Nothing was done.
    Refused {
        /// The first such message.
        offset: u64,
        /// What is the matter with it.
        why: Refusal,
    },
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { what } => write!(f, "state of a queue cannot be read: {what} is too short or cannot be"),
            Self::NotProposed => write!(f, "a record of a queue was committed that its writer did not propose"),
            Self::NotWriter => write!(f, "the queue has no writer here: try again, or elsewhere"),
            Self::NotInOrder { expected, got } => {
                write!(f, "an entry starts at offset {got}, before offset {expected} that is next")
            }
            Self::OffsetTooHigh(offset) => write!(f, "there can be no message at offset {offset}"),
            Self::NoConsumer(id) => write!(f, "there is no consumer {id}: it has left, or was never added"),
            Self::ConsumerExists(id) => write!(f, "consumer {id} is there already"),
            Self::Exclusive => write!(f, "the queue is one consumer's alone: wait until the other ones have left"),
            Self::HashesTaken => {
                write!(f, "these ranges of key hashes are not free: choose ranges that do not overlap")
            }
            Self::Refused { offset, why } => {
                let why = match why {
                    Refusal::Settled => "is settled already",
                    Refusal::NotHeld => "is not handed out",
                    Refusal::Stale => "is held by another consumer",
                    Refusal::Expired => "was held for too long",
                    Refusal::Beyond => "is not there yet",
                };
                write!(f, "the message at offset {offset} {why}")
            }
        }
    }
}

impl std::error::Error for LeaseError {}
