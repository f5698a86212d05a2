//! Server-side assignors: which member shall read which partition.
//!
//! An assignor is a pure function of the members (by rising id), of what each is to read now, and of the topics that they
//! subscribe to. It returns a whole assignment; the caller records what differs from the one before.
//!
//! What an assignment costs, for `m` members, `p` partitions and `s` subscriptions (pairs of a member and a topic):
//!
//! | assignor | subscriptions | steps |
//! |---|---|---|
//! | uniform | all the same | `p + m` |
//! | uniform | different | `(p + s) log m` for each of at most [`mixed::PASSES_MAX`] passes |
//! | range | any | `p + s` |

mod mixed;
mod range;
#[cfg(test)]
mod tests;
mod uniform;

use super::model::Partitions;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::TopicId;
use std::collections::BTreeMap;
use std::rc::Rc;

/// An assignor that this broker has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Assignor {
    /// Members read equally many partitions, and as few partitions as possible move.
    Uniform,
    /// Each topic in ranges, so that equal partitions of topics of the same size go to the same member.
    Range,
}

impl Assignor {
    /// All of them, in the order of Kafka's default of `group.consumer.assignors`.
    pub const ALL: [Assignor; 2] = [Assignor::Uniform, Assignor::Range];

    /// Kafka's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// The assignor of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|assignor| assignor.name() == name)
    }
}

/// A member that takes part in an assignment.
#[derive(Debug)]
pub(super) struct Participant<'a> {
    pub(super) id: &'a StrBytes,
    pub(super) instance_id: Option<&'a StrBytes>,
    /// Topics that it subscribes to and that there are; rising, each once.
    pub(super) topics: Rc<[TopicId]>,
    /// What it is to read so far.
    pub(super) target: &'a Partitions,
}

/// The number of partitions of each topic that is subscribed to.
pub(super) type TopicSizes = BTreeMap<TopicId, i32>;

/// Assigns all partitions to which there is a subscription. The result has one entry for each member, in the order of `members`.
pub(super) fn assign(assignor: Assignor, members: &[Participant<'_>], sizes: &TopicSizes) -> Vec<Partitions> {
    match assignor {
        _ if members.is_empty() => Vec::new(),
        Assignor::Range => range::assign(members, sizes),
        Assignor::Uniform if is_homogeneous(members) => uniform::assign(members, sizes),
        Assignor::Uniform => mixed::assign(members, sizes),
    }
}

/// Whether all members subscribe to the same topics.
fn is_homogeneous(members: &[Participant<'_>]) -> bool {
    members.windows(2).all(|pair| matches!(pair, [a, b] if Rc::ptr_eq(&a.topics, &b.topics) || a.topics == b.topics))
}

/// A number of partitions as an index.
fn size_of(sizes: &TopicSizes, topic: TopicId) -> usize {
    sizes.get(&topic).and_then(|size| usize::try_from(*size).ok()).unwrap_or(0)
}
