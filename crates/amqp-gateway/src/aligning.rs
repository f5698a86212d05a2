//! Effects of policy changes on queues: their settings in the directory, and those of their topics.
//!
//! ```text
//!   policy committed ──> realigns ──batch──> directory, unchecked ──batch──> requested ──catalog updated──> settled: reply to the caller
//! ```
//!
//! A policy may match 100,000 queues. Both kinds of batches are bounded, so that the machine is not blocked for its other callers, and only one batch
//! of topics is in flight at a time, so that the log's queue is not filled.

use crate::convert::topic_config;
use crate::directory::{Directory, topic_of};
use polylogue_amqp_model::{Model, Realign};
use polylogue_api::{Caller, Catalog, ConfigChange, TopicChange, TopicConfig};
use polylogue_router::QueueId;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most topics that one batch checks and changes.
const TOPICS_PER_PIECE_MAX: usize = 256;
/// When topics that did not get the requested settings are checked again. Milliseconds.
const ASK_AGAIN_MS: u64 = 1_000;

/// A caller with its reply.
pub(crate) type Answer = (Caller, Box<dyn Any + Send>);

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Aligning {
    /// Policy changes whose queues were not all visited.
    realigns: VecDeque<Realign>,
    /// Queues whose topics may have outdated settings.
    unchecked: BTreeSet<QueueId>,
    /// The same, for queues whose topics are being created.
    missing: VecDeque<QueueId>,
    /// The requested settings of topics that the catalog does not show yet.
    asked: BTreeMap<QueueId, TopicConfig>,
    /// When these are checked again. Monotonic milliseconds.
    asked_until_ms: Option<u64>,
    /// Callers who change policies in the current call.
    planned: Vec<Caller>,
    /// Callers who changed policies and have no reply yet.
    authors: BTreeSet<Caller>,
    /// Replies to them whose records are committed.
    held: Vec<Answer>,
}

impl Aligning {
    /// Policies changed.
    pub(crate) fn add(&mut self, realign: Realign) {
        let left = match self.realigns.back_mut() {
            Some(last) => last.merge(realign),
            None => Some(realign),
        };
        self.realigns.extend(left);
    }

    /// The state of topics and of requested changes is unknown: all topics are checked.
    pub(crate) fn check_all(&mut self, model: &Model) {
        self.unchecked = model.metadata().queues().map(|queue| queue.id).collect();
        self.missing.clear();
        self.asked.clear();
        self.asked_until_ms = None;
    }

    /// A queue was deleted.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        self.unchecked.remove(&queue);
        self.asked.remove(&queue);
    }

    /// The caller changes policies in the current call.
    pub(crate) fn planned_by(&mut self, caller: Caller) {
        self.planned.push(caller);
        self.authors.insert(caller);
    }

    /// The log has accepted or refused the proposals of the last call.
    pub(crate) fn called(&mut self, taken: bool) {
        for caller in self.planned.drain(..).filter(|_| !taken) {
            self.authors.remove(&caller);
        }
    }

    /// The caller disconnected, or gets its reply from the host.
    pub(crate) fn gone(&mut self, caller: Caller) {
        self.authors.remove(&caller);
    }

    /// Proposals were dropped; the host replies to their callers.
    pub(crate) fn writer_lost(&mut self) {
        self.planned.clear();
        self.authors.clear();
    }

    /// When [`Aligning::piece`] has work; 0 for immediately. Monotonic milliseconds.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let more = !self.realigns.is_empty() && self.unchecked.len() < TOPICS_PER_PIECE_MAX;
        match self.asked.is_empty() {
            _ if more => Some(0),
            true => (!self.unchecked.is_empty()).then_some(0),
            false => Some(self.asked_until_ms.unwrap_or(0)),
        }
    }

    /// Visits a batch of queues of the changed policies.
    pub(crate) fn piece(&mut self, model: &Model, directory: &Directory, now_ms: u64) {
        if !self.asked.is_empty() && *self.asked_until_ms.get_or_insert(now_ms + ASK_AGAIN_MS) <= now_ms {
            self.unchecked.extend(std::mem::take(&mut self.asked).into_keys());
            self.asked_until_ms = None;
        }
        if self.unchecked.len() >= TOPICS_PER_PIECE_MAX {
            return;
        }
        let Some(realign) = self.realigns.front_mut() else { return };
        let Some(found) = model.realign(realign) else {
            self.realigns.pop_front();
            return;
        };
        for (queue, effective) in found {
            if directory.queue(queue.id).is_none_or(|entry| entry.settings != effective.settings) {
                self.unchecked.insert(queue.id);
                directory.set(queue, effective.settings);
            }
        }
    }

    /// Returns the next batch of topic changes, once the previous ones are done.
    pub(crate) fn topic_changes(&mut self, directory: &Directory, catalog: &dyn Catalog) -> Vec<TopicChange> {
        self.asked.retain(|id, wanted| catalog.topic(&topic_of(*id)).is_some_and(|topic| *topic.config != *wanted));
        if !self.asked.is_empty() {
            return Vec::new();
        }
        self.asked_until_ms = None;
        for _ in 0..self.missing.len().min(TOPICS_PER_PIECE_MAX) {
            let Some(id) = self.missing.pop_front() else { break };
            match catalog.topic(&topic_of(id)) {
                Some(_) => _ = self.unchecked.insert(id),
                None if directory.queue(id).is_some() => self.missing.push_back(id),
                None => {}
            }
        }
        let mut changes = Vec::new();
        for _ in 0..TOPICS_PER_PIECE_MAX {
            let Some(id) = self.unchecked.pop_first() else { break };
            let Some(entry) = directory.queue(id) else { continue };
            let Some(topic) = catalog.topic(&topic_of(id)) else {
                // Its topic is being created, possibly with older settings.
                self.missing.push_back(id);
                continue;
            };
            let config = topic_config(&entry.queue, &entry.settings);
            if *topic.config != config {
                self.asked.insert(id, config.clone());
                let config = Some(ConfigChange { expected: topic.config.raw.clone(), config });
                changes.push(TopicChange { topic: topic.id, config, partitions: None });
            }
        }
        changes
    }

    /// Takes replies to committed records, adds those held before, and returns the ones that may be sent. A policy is effective for the next message
    /// after its author got the reply.
    pub(crate) fn due(&mut self, committed: Vec<Answer>) -> Vec<Answer> {
        let mut due = Vec::new();
        for (caller, reply) in committed {
            match self.authors.remove(&caller) {
                true => self.held.push((caller, reply)),
                false => due.push((caller, reply)),
            }
        }
        if self.realigns.is_empty() && self.unchecked.is_empty() && self.asked.is_empty() {
            due.append(&mut self.held);
        }
        due
    }
}
