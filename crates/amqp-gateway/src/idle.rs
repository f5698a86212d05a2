//! Deletion of unused queues: those with `expires` after their time, those with `auto_delete` when their last consumer ended with its connection.
//! Sans-IO, one instance per broker.
//!
//! Declaring a queue, `basic.get` and consuming from it count as use. The time counts from the last use, or from a start. Messages of a deleted queue
//! are dropped and not dead-lettered.

use crate::directory::{Directory, QueueEntry};
use crate::machine::AmqpRequest;
use polylogue_amqp_model::{Caller as ModelCaller, Command, DeletionCause};
use polylogue_api::{Catalog, MachineId, Now, Reply, Request, Token};
use polylogue_router::QueueId;
use polylogue_types::Map;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The delays between checks whether consumers of a closed connection have detached, one after the other, the last one repeated: the broker learns of
/// the end of a connection a moment later, after any delay, and may be unable to remove a queue while its disk is full. Milliseconds.
const CHECKS_MS: [u64; 7] = [5, 50, 250, 1_000, 4_000, 15_000, 60_000];
/// When a queue that could not be removed is checked again. Milliseconds.
const AGAIN_MS: u64 = 1_000;

/// A queue whose description was requested.
#[derive(Debug)]
struct Asked {
    entry: Arc<QueueEntry>,
    why: DeletionCause,
}

/// See the module.
#[derive(Debug)]
pub struct IdleQueues {
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    /// When each queue with an expiry may expire, at the earliest. Monotonic milliseconds.
    due: BTreeSet<(u64, QueueId)>,
    due_of: Map<QueueId, u64>,
    /// Queues that lost consumers: when to check them. Monotonic milliseconds.
    left: BTreeSet<(u64, QueueId)>,
    /// The same by queue, with the index into [`CHECKS_MS`], while the queue exists.
    left_of: Map<QueueId, (u64, usize)>,
    waiting: Map<Token, Vec<Asked>>,
    /// Queues being removed.
    removing: Map<Token, (QueueId, DeletionCause)>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
}

impl IdleQueues {
    /// Knows no queue yet; [`IdleQueues::on_deadline`] finds them.
    #[must_use]
    pub fn new(directory: Arc<Directory>, catalog: Arc<dyn Catalog>) -> IdleQueues {
        IdleQueues {
            directory,
            catalog,
            due: BTreeSet::new(),
            due_of: Map::default(),
            left: BTreeSet::new(),
            left_of: Map::default(),
            waiting: Map::default(),
            removing: Map::default(),
            requests: VecDeque::new(),
            next_token: 0,
        }
    }

    /// Returns the next request for the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// When [`IdleQueues::on_deadline`] must be called; also call it when the directory wakes its waker. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let due = self.due.first().map(|(at, _)| *at);
        due.into_iter().chain(self.left.first().map(|(at, _)| *at)).min()
    }

    /// Handles deadlines that have passed, and changes in the directory.
    pub fn on_deadline(&mut self, now: Now) {
        let changes = self.directory.idle_changes().take();
        for id in changes.changed {
            if !self.schedule(id, now) {
                // It was already unused for longer than its new time. As in RabbitMQ, the time starts with the change.
                self.directory.queue(id).iter().for_each(|entry| entry.used(now));
                self.schedule(id, now);
            }
        }
        for id in changes.left {
            self.check(id, 0, now);
        }
        let mut asked = Vec::new();
        while let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now.monotonic_ms) {
            self.due.remove(&(at, id));
            self.due_of.remove(&id);
            // It may have been used meanwhile.
            if self.schedule(id, now) {
                continue;
            }
            asked.extend(self.directory.queue(id).map(|entry| Asked { entry, why: DeletionCause::Expired }));
        }
        while let Some((_, id)) = self.left.first().copied().filter(|(at, _)| *at <= now.monotonic_ms) {
            self.check_again(id, now);
            let entry = self.directory.queue(id).filter(|entry| entry.queue.auto_delete);
            asked.extend(entry.map(|entry| Asked { entry, why: DeletionCause::AutoDelete }));
        }
        self.ask(asked, now);
    }

    /// Handles a reply of the broker.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        let counts = match (reply, self.removing.remove(&token)) {
            (Reply::Machine(Err(_)), Some((id, why))) => return self.remove_later(id, why, now),
            (Reply::Machine(Ok(_)), Some((id, why))) => return self.removed(id, why, now),
            (Reply::DescribeQueues(counts), _) => counts,
            _ => return,
        };
        for (one, counts) in self.waiting.remove(&token).into_iter().flatten().zip(counts) {
            let (id, why) = (one.entry.queue.id, one.why);
            if counts.is_none_or(|counts| counts.consumers > 0) {
                self.stays(id, why, now);
            } else if why == DeletionCause::AutoDelete || !self.schedule(id, now) {
                let remove = AmqpRequest::Do(ModelCaller::broker(), Box::new(Command::RemoveQueue(id, why)));
                let token = self.request(Request::Machine(MachineId::AMQP, Box::new(remove)));
                self.removing.insert(token, (id, why));
            }
        }
    }

    /// A queue is in use, or does not exist yet. An auto-delete queue is checked again nevertheless.
    fn stays(&mut self, id: QueueId, why: DeletionCause, now: Now) {
        if why == DeletionCause::Expired {
            self.not_expired(id, now);
        }
    }

    /// Schedules check number `check` of [`CHECKS_MS`] of a queue.
    fn check(&mut self, id: QueueId, check: usize, now: Now) {
        let check = check.min(CHECKS_MS.len() - 1);
        let at = now.monotonic_ms + CHECKS_MS[check];
        if let Some((before, _)) = self.left_of.insert(id, (at, check)) {
            self.left.remove(&(before, id));
        }
        self.left.insert((at, id));
    }

    /// A queue's check is due: schedules the next one, unless the queue is deleted.
    fn check_again(&mut self, id: QueueId, now: Now) {
        let Some((at, check)) = self.left_of.remove(&id) else { return };
        self.left.remove(&(at, id));
        if self.directory.queue(id).is_some_and(|entry| entry.queue.auto_delete) {
            self.check(id, check + 1, now);
        }
    }

    /// The broker handled the removal: the queue is deleted, or has a consumer again.
    fn removed(&mut self, id: QueueId, why: DeletionCause, now: Now) {
        if why == DeletionCause::Expired {
            self.not_expired(id, now);
        } else if self.directory.queue(id).is_none()
            && let Some((at, _)) = self.left_of.remove(&id)
        {
            self.left.remove(&(at, id));
        }
    }

    /// An expired queue is in use, if it still exists: its time starts again.
    fn not_expired(&mut self, id: QueueId, now: Now) {
        if let Some(entry) = self.directory.queue(id) {
            entry.used(now);
            self.schedule(id, now);
        }
    }

    /// The broker could not remove a queue: a disk may be full, or the writer lost. Auto-delete queues already have their next check scheduled.
    fn remove_later(&mut self, id: QueueId, why: DeletionCause, now: Now) {
        if why == DeletionCause::Expired && self.directory.queue(id).is_some() {
            let at = now.monotonic_ms + AGAIN_MS;
            self.due.insert((at, id));
            self.due_of.insert(id, at);
        }
    }

    fn request(&mut self, request: Request) -> Token {
        self.next_token += 1;
        self.requests.push_back((self.next_token, request));
        self.next_token
    }

    fn ask(&mut self, all: Vec<Asked>, now: Now) {
        let (mut queues, mut asked) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
        for one in all {
            match one.entry.partition(self.catalog.as_ref()) {
                Some(queue) => {
                    queues.push(queue);
                    asked.push(one);
                }
                // Its topic is being created.
                None => self.stays(one.entry.queue.id, one.why, now),
            }
        }
        if !queues.is_empty() {
            let token = self.request(Request::DescribeQueues(queues));
            self.waiting.insert(token, asked);
        }
    }

    /// Records when a queue may expire at the earliest. Returns whether that is in the future, or never.
    fn schedule(&mut self, id: QueueId, now: Now) -> bool {
        if let Some(before) = self.due_of.remove(&id) {
            self.due.remove(&(before, id));
        }
        let Some(entry) = self.directory.queue(id) else { return true };
        let Some(expires_ms) = entry.settings.expires_ms else { return true };
        if entry.used_ms().is_none() {
            entry.used(now);
        }
        let at = entry.used_ms().unwrap_or(now.monotonic_ms).saturating_add(expires_ms);
        if at <= now.monotonic_ms {
            return false;
        }
        self.due.insert((at, id));
        self.due_of.insert(id, at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{OtherTopics, Topics, World};
    use polylogue_api::{QueueCounts, Unavailable};
    use serde_json::json;

    fn at(monotonic_ms: u64) -> Now {
        Now { monotonic_ms, wall_ms: 0 }
    }

    fn counted(idle: &mut IdleQueues, consumers: u64, now: Now) -> Option<(Token, Request)> {
        let Some((token, Request::DescribeQueues(queues))) = idle.poll_request() else { panic!("nothing is asked") };
        assert_eq!(queues.len(), 1);
        let counts = QueueCounts { consumers, ..QueueCounts::default() };
        idle.on_reply(token, Reply::DescribeQueues(vec![Some(counts)]), now);
        idle.poll_request()
    }

    /// A machine with an auto-delete queue.
    fn with_auto_delete() -> (World, QueueId, IdleQueues) {
        let mut world = World::new();
        let declare = polylogue_amqp_model::DeclareQueue {
            vhost: world.vhost,
            name: "auto".into(),
            auto_delete: true,
            ..polylogue_amqp_model::DeclareQueue::default()
        };
        world.act(Command::DeclareQueue(declare));
        let id = world.directory.router().load().queue(world.vhost, b"auto").expect("declared");
        let idle = IdleQueues::new(world.directory.clone(), Arc::new(Topics));
        (world, id, idle)
    }

    #[test]
    fn an_unused_queue_expires_after_its_time() {
        let mut world = World::new();
        world.queue("stays", json!({}));
        world.queue("goes", json!({"x-expires": 1_000}));
        let mut idle = IdleQueues::new(world.directory.clone(), Arc::new(Topics));
        idle.on_deadline(at(500));
        assert_eq!(idle.next_deadline_ms(), Some(1_500));
        let id = world.directory.router().load().queue(world.vhost, b"goes").expect("declared");
        let entry = world.directory.queue(id).expect("declared");
        entry.used(at(900));
        idle.on_deadline(at(1_500));
        assert_eq!((idle.next_deadline_ms(), idle.poll_request().is_none()), (Some(1_900), true), "it was used");
        idle.on_deadline(at(1_900));
        assert!(counted(&mut idle, 1, at(1_950)).is_none(), "it has a consumer");
        assert_eq!(idle.next_deadline_ms(), Some(2_950));
        idle.on_deadline(at(2_950));
        assert!(matches!(counted(&mut idle, 0, at(2_950)), Some((_, Request::Machine(MachineId::AMQP, _)))));
        // A broker that failed gets the request again.
        idle.on_reply(idle.next_token, Reply::Machine(Err(Unavailable::Busy)), at(2_960));
        assert_eq!(idle.next_deadline_ms(), Some(2_960 + AGAIN_MS));
        idle.on_deadline(at(4_000));
        assert!(matches!(counted(&mut idle, 0, at(4_000)), Some((_, Request::Machine(MachineId::AMQP, _)))));
        world.act(Command::RemoveQueue(id, DeletionCause::Expired));
        idle.on_deadline(at(9_999));
        assert_eq!((idle.next_deadline_ms(), idle.poll_request().is_none()), (None, true));
    }

    /// Not a millisecond before its time, and requested at that time.
    #[test]
    fn a_queue_with_a_short_expiry_is_deleted_on_time() {
        for expires_ms in [20, 100] {
            let mut world = World::new();
            world.queue("goes", json!({"x-expires": expires_ms}));
            let mut idle = IdleQueues::new(world.directory.clone(), Arc::new(Topics));
            idle.on_deadline(at(503));
            assert_eq!(idle.next_deadline_ms(), Some(503 + expires_ms));
            idle.on_deadline(at(502 + expires_ms));
            assert!(idle.poll_request().is_none(), "early");
            idle.on_deadline(at(503 + expires_ms));
            let asked = counted(&mut idle, 0, at(503 + expires_ms));
            assert!(matches!(asked, Some((_, Request::Machine(MachineId::AMQP, _)))));
        }
    }

    /// A policy with a short expiry was set for a queue that had long been unused: the queue was never deleted.
    #[test]
    fn a_long_unused_queue_expires_after_its_new_time() {
        let mut world = World::new();
        world.queue("q", json!({"x-expires": 3_600_000}));
        let mut idle = IdleQueues::new(world.directory.clone(), Arc::new(Topics));
        idle.on_deadline(at(500));
        let policy = polylogue_amqp_model::PolicySpec {
            name: "p".into(),
            pattern: "".into(),
            apply_to: polylogue_amqp_model::ApplyTo::Queues,
            priority: 0,
            operator: false,
            definition: [("expires".to_owned(), json!(1_000))].into_iter().collect(),
        };
        world.act(Command::SetPolicy("/".into(), policy));
        idle.on_deadline(at(60_000));
        assert_eq!((idle.next_deadline_ms(), idle.poll_request().is_none()), (Some(61_000), true));
        idle.on_deadline(at(61_000));
        assert!(matches!(counted(&mut idle, 0, at(61_000)), Some((_, Request::Machine(MachineId::AMQP, _)))));
    }

    #[test]
    fn an_auto_delete_queue_is_deleted_when_its_last_consumer_disconnects() {
        let (mut world, id, mut idle) = with_auto_delete();
        world.directory.consumers_left([id].into_iter());
        idle.on_deadline(at(100));
        idle.on_deadline(at(100 + CHECKS_MS[0]));
        assert!(counted(&mut idle, 1, at(110)).is_none(), "the broker does not know yet, or there is another consumer");
        idle.on_deadline(at(110 + CHECKS_MS[1]));
        assert!(matches!(counted(&mut idle, 0, at(170)), Some((_, Request::Machine(MachineId::AMQP, _)))));
        world.act(Command::RemoveQueue(id, DeletionCause::AutoDelete));
        idle.on_reply(idle.next_token, Reply::Machine(Ok(Box::new(()))), at(170));
        assert_eq!((idle.next_deadline_ms(), idle.poll_request().is_none()), (None, true));
    }

    /// It was checked four times within 1.3 s and never again, and tried twice; it was never deleted.
    #[test]
    fn removal_of_an_auto_delete_queue_is_retried_until_it_succeeds() {
        let (world, id, mut idle) = with_auto_delete();
        // Two consumers end: it is checked immediately each time.
        world.directory.consumers_left([id].into_iter());
        idle.on_deadline(at(100));
        world.directory.consumers_left([id].into_iter());
        idle.on_deadline(at(100));
        let mut waits_ms = Vec::new();
        let mut now_ms = 100;
        for round in 0..12 {
            let at_ms = idle.next_deadline_ms().expect("it still exists");
            waits_ms.push(at_ms - now_ms);
            now_ms = at_ms;
            idle.on_deadline(at(now_ms));
            // The broker learns late that the consumer has ended; then its disk is full.
            match counted(&mut idle, u64::from(round < 6), at(now_ms)) {
                None => assert!(round < 6),
                Some((token, _)) => idle.on_reply(token, Reply::Machine(Err(Unavailable::Busy)), at(now_ms)),
            }
            assert!(idle.poll_request().is_none());
        }
        assert_eq!(waits_ms[..CHECKS_MS.len()], CHECKS_MS);
        assert!(waits_ms[CHECKS_MS.len()..].iter().all(|wait_ms| *wait_ms == 60_000), "{waits_ms:?}");
    }

    /// It was never checked again.
    #[test]
    fn a_queue_whose_topic_is_being_created_expires_later() {
        let mut world = World::new();
        world.queue("q", json!({"x-expires": 1_000}));
        let mut idle = IdleQueues::new(world.directory.clone(), Arc::new(OtherTopics(None)));
        idle.on_deadline(at(500));
        idle.on_deadline(at(1_500));
        assert_eq!((idle.next_deadline_ms(), idle.poll_request().is_none()), (Some(2_500), true));
    }
}
