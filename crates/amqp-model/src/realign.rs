//! What holds for queues after policies changed, found piece by piece.
//!
//! A policy may match 100,000 queues, and what holds for one of them is worked out of all policies of its virtual host. So applying the record
//! of a policy looks at no queue: it says what is to be looked at ([`Realign`]), and the host does that in pieces, between which others have
//! their turn. What is found is what holds by then: pieces of older and newer policies may come in any order.

use crate::change::Change;
use crate::machine::Model;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::settings::Effective;
use polylogue_router::{QueueId, VhostId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Queues that one piece looks at, at the most.
const SEEN_PER_PIECE_MAX: usize = 4_096;
/// Queues for which one piece works out what holds, at the most.
const FOUND_PER_PIECE_MAX: usize = 256;

/// The queues of a virtual host for which something else may hold, because policies came, changed or went.
#[derive(Clone, PartialEq, Debug)]
pub struct Realign {
    vhost: VhostId,
    /// Both versions of each of the policies: one of them matches each of the queues.
    policies: Vec<Arc<Policy>>,
    /// The last queue that was looked at.
    after: Option<QueueId>,
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

    fn touches(&self, queue: &Queue) -> bool {
        queue.vhost == self.vhost && self.policies.iter().any(|p| p.applies(Some(queue.kind), &queue.name))
    }
}

impl Model {
    /// What is to be looked at when these changes are applied, by what is applied before.
    pub(crate) fn realigns(&self, changes: &[Change]) -> Vec<Realign> {
        let mut policies: BTreeMap<VhostId, Vec<Arc<Policy>>> = BTreeMap::new();
        for change in changes {
            let (vhost, operator, name) = match change {
                Change::Policy(policy) => {
                    policies.entry(policy.vhost).or_default().push(policy.clone());
                    (policy.vhost, policy.operator, &policy.name)
                }
                Change::PolicyRemoved(vhost, operator, name) => (*vhost, *operator, name),
                _ => continue,
            };
            policies.entry(vhost).or_default().extend(self.applied.policy(vhost, operator, name).cloned());
        }
        let there = policies.into_iter().filter(|(_, policies)| !policies.is_empty());
        there.map(|(vhost, policies)| Realign { vhost, policies, after: None }).collect()
    }

    /// Looks at the next queues; gives those that policies touch with what holds for them now, which may be what held before. `None` when all
    /// were looked at.
    pub fn realign(&self, realign: &mut Realign) -> Option<Vec<(Arc<Queue>, Effective)>> {
        let mut found = Vec::new();
        let mut seen = 0;
        for queue in self.applied.queues_after(realign.after) {
            realign.after = Some(queue.id);
            seen += 1;
            if realign.touches(queue) {
                found.push((queue.clone(), self.applied.effective(queue)));
            }
            if seen == SEEN_PER_PIECE_MAX || found.len() == FOUND_PER_PIECE_MAX {
                break;
            }
        }
        (seen > 0).then_some(found)
    }
}
