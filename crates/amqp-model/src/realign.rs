//! What holds for queues after policies changed, found piece by piece.
//!
//! A policy may match 100,000 queues, and what holds for one of them is worked out of all policies of its virtual host. So applying the record
//! of a policy looks at no queue: it says what is to be looked at ([`Realign`]), and the host does that in pieces, between which others have
//! their turn. What is found is what holds by then: pieces of older and newer policies may come in any order.

use crate::policy::Policy;
use crate::queue::Queue;
use polylogue_router::{QueueId, VhostId};
use std::sync::Arc;

/// The queues of a virtual host for which something else may hold, because policies came, changed or went.
#[derive(Clone, PartialEq, Debug)]
pub struct Realign {
    pub(crate) vhost: VhostId,
    /// Both versions of each of the policies: one of them matches each of the queues.
    pub(crate) policies: Vec<Arc<Policy>>,
    /// The last queue that was looked at.
    pub(crate) after: Option<QueueId>,
}

impl Realign {
    /// Takes in what another one is about, if nothing was looked at yet and both are of one virtual host; else gives it back.
    #[must_use]
    pub fn merge(&mut self, other: Realign) -> Option<Realign> {
        if self.vhost != other.vhost || self.after.is_some() || other.after.is_some() {
            return Some(other);
        }
        let new = other.policies.into_iter().filter(|policy| !self.policies.contains(policy)).collect::<Vec<_>>();
        self.policies.extend(new);
        None
    }

    pub(crate) fn touches(&self, queue: &Queue) -> bool {
        queue.vhost == self.vhost && self.policies.iter().any(|p| p.applies(Some(queue.kind), &queue.name))
    }
}
