//! Recomputation of the effective settings of queues after policies changed, in batches.
//!
//! A policy may match 100,000 queues, and the effective settings of each are computed from all policies of its virtual host. So applying the record
//! of a policy visits no queue: it returns a [`Realign`], and the host visits the queues in batches, between which other work runs. A batch computes
//! the settings of its time: batches for older and newer policies may run in any order.

use crate::policy::Policy;
use crate::queue::Queue;
use polylogue_router::{QueueId, VhostId};
use std::sync::Arc;

/// The queues of a virtual host whose effective settings may have changed with its policies.
#[derive(Clone, PartialEq, Debug)]
pub struct Realign {
    pub(crate) vhost: VhostId,
    /// The old and new version of each policy: at least one of them matches each affected queue.
    pub(crate) policies: Vec<Arc<Policy>>,
    /// The last visited queue.
    pub(crate) after: Option<QueueId>,
}

impl Realign {
    /// Merges another one for the same virtual host, if neither has started; otherwise returns it.
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
