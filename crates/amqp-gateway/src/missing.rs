//! Creation of missing queue topics. Sans-IO, one instance per broker.
//!
//! A connection that declares a queue has its topic created before it replies. If it disconnects in between, the queue is declared and cannot store
//! messages; so each queue is checked for its topic, a moment after its declaration.

use crate::directory::Directory;
use polylogue_api::{Catalog, CreateTopics, Now, Reply, Request, Token, TopicError};
use polylogue_router::QueueId;
use polylogue_types::Map;
use std::collections::VecDeque;
use std::sync::Arc;

/// How long after a declaration the topic is checked: the declaring connection has it created by then. Milliseconds.
const CHECK_MS: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub struct MissingTopics {
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    /// New queues, and when they are checked, in that order. Monotonic milliseconds.
    due: VecDeque<(u64, QueueId)>,
    waiting: Map<Token, QueueId>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
}

impl MissingTopics {
    /// Knows no queue yet; [`MissingTopics::on_deadline`] finds them.
    #[must_use]
    pub fn new(directory: Arc<Directory>, catalog: Arc<dyn Catalog>) -> MissingTopics {
        let (due, waiting, requests) = (VecDeque::new(), Map::default(), VecDeque::new());
        MissingTopics { directory, catalog, due, waiting, requests, next_token: 0 }
    }

    /// Returns the next request for the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// When [`MissingTopics::on_deadline`] must be called; also call it when the directory wakes its waker. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.due.front().map(|(at, _)| *at)
    }

    /// Handles deadlines that have passed, and changes in the directory.
    pub fn on_deadline(&mut self, now: Now) {
        let look_ms = now.monotonic_ms + CHECK_MS;
        self.due.extend(self.directory.queue_changes().take().into_iter().map(|id| (look_ms, id)));
        while let Some((_, id)) = self.due.pop_front_if(|(at, _)| *at <= now.monotonic_ms) {
            // It may have been deleted meanwhile.
            let Some(entry) = self.directory.queue(id) else { continue };
            if entry.partition(self.catalog.as_ref()).is_none() {
                let create = CreateTopics { topics: vec![entry.new_topic()], validate_only: false };
                self.next_token += 1;
                self.waiting.insert(self.next_token, id);
                self.requests.push_back((self.next_token, Request::CreateTopics(create)));
            }
        }
    }

    /// Handles a reply of the broker. Topics that could not be created are retried.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        let Some(id) = self.waiting.remove(&token) else { return };
        let made = match reply {
            Reply::CreateTopics(results) => !matches!(results.first(), Some(Err(TopicError::Unavailable(_))) | None),
            _ => false,
        };
        if !made {
            self.due.push_back((now.monotonic_ms + CHECK_MS, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{OtherTopics, Topics, World};
    use crate::topic_of;
    use polylogue_api::Unavailable;
    use serde_json::json;

    fn at(monotonic_ms: u64) -> Now {
        Now { monotonic_ms, wall_ms: 0 }
    }

    fn asked(missing: &mut MissingTopics) -> Vec<(Token, String)> {
        let requests = std::iter::from_fn(|| missing.poll_request());
        let names = requests.filter_map(|(token, request)| match request {
            Request::CreateTopics(create) => Some((token, create.topics.first()?.name.clone())),
            _ => None,
        });
        names.collect()
    }

    /// The declaring connection had ended before the topic existed: nothing could be published to the queue until the next start.
    #[test]
    fn a_queue_without_a_topic_gets_it_a_moment_later() {
        let mut world = World::new();
        world.queue("one", json!({}));
        world.queue("gone", json!({}));
        let [one, gone] = [&b"one"[..], b"gone"].map(|name| {
            let routes = world.directory.router().load();
            routes.queue(world.vhost, name).expect("declared")
        });
        let mut missing = MissingTopics::new(world.directory.clone(), Arc::new(OtherTopics(None)));
        missing.on_deadline(at(10));
        assert!(asked(&mut missing).is_empty(), "it may be being created");
        assert_eq!(missing.next_deadline_ms(), Some(10 + CHECK_MS));
        world.directory.remove(gone);
        missing.on_deadline(at(10 + CHECK_MS));
        let wanted = asked(&mut missing);
        assert_eq!(wanted.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>(), [topic_of(one)]);
        let unavailable = Err(TopicError::Unavailable(Unavailable::Busy));
        missing.on_reply(wanted[0].0, Reply::CreateTopics(vec![unavailable]), at(2_000));
        assert_eq!(missing.next_deadline_ms(), Some(2_000 + CHECK_MS));
        missing.on_deadline(at(2_000 + CHECK_MS));
        let again = asked(&mut missing);
        assert_eq!(again.len(), 1, "a broker that failed gets the request again");
        missing.on_reply(again[0].0, Reply::CreateTopics(vec![Err(TopicError::Exists)]), at(3_000));
        assert_eq!(missing.next_deadline_ms(), None);
    }

    #[test]
    fn a_queue_with_a_topic_is_left_unchanged() {
        let mut world = World::new();
        world.queue("one", json!({}));
        let mut missing = MissingTopics::new(world.directory.clone(), Arc::new(Topics));
        missing.on_deadline(at(0));
        missing.on_deadline(at(CHECK_MS));
        assert!(missing.poll_request().is_none() && missing.next_deadline_ms().is_none());
    }
}
