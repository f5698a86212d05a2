//! A connection without a wire, a metadata machine that is its own log, and queues of which only the consumers are known.

use super::*;
use crate::IdleQueues;
use crate::connection::Channel;
use crate::management::PrincipalOutput;
use crate::testing::{Topics, World, context};
use parking_lot::Mutex;
use polylogue_amqp::request::ConsumerRef;
use polylogue_api::{Caller as MachineCaller, CloseIf, Context, Effects, Event, Now, QueueCloser, StateMachine};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
const MISSING: &str = "NOT_FOUND - no queue 'q' in vhost '/'";

/// The counts of queues, and which of them are closed.
#[derive(Debug, Default)]
struct Closer {
    held: Mutex<BTreeMap<PartitionId, QueueCounts>>,
    closed: Mutex<BTreeSet<PartitionId>>,
}

impl QueueCloser for Closer {
    fn close(&self, queue: PartitionId, only: CloseIf) -> Result<QueueCounts, QueueCounts> {
        let counts = self.held.lock().get(&queue).copied().unwrap_or_default();
        if (only.unused && counts.consumers > 0) || (only.empty && counts.ready > 0) {
            return Err(counts);
        }
        self.closed.lock().insert(queue);
        Ok(counts)
    }

    fn open(&self, queue: PartitionId) {
        self.closed.lock().remove(&queue);
    }
}

struct Rig {
    world: World,
    connection: Connection,
    closer: Closer,
    /// Records are proposed, and their outcome is not known yet.
    holds: bool,
    held: Vec<(Token, Effects)>,
    next_consumer: u64,
}

impl Rig {
    fn new() -> Rig {
        let world = World::new();
        let directory = world.directory.clone();
        let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, Now::default());
        connection.captured = Some(VecDeque::new());
        connection.user = "guest".into();
        (connection.vhost, connection.vhost_name) = (world.vhost, "/".into());
        connection.channels.insert(CHANNEL, Channel::default());
        Rig { world, connection, closer: Closer::default(), holds: false, held: Vec::new(), next_consumer: 10 }
    }

    fn declare(&mut self, name: &str, auto_delete: bool) -> PartitionId {
        let declare = DeclareQueue { vhost: self.world.vhost, name: name.into(), auto_delete, ..Default::default() };
        self.world.act(Command::DeclareQueue(declare));
        let id = self.id(name).expect("declared");
        self.world.directory.queue(id).and_then(|entry| entry.partition(&Topics)).expect("a topic")
    }

    fn id(&self, name: &str) -> Option<QueueId> {
        self.world.directory.router().load().queue(self.world.vhost, name.as_bytes())
    }

    /// Handles a request in the machine; returns the immediate replies and the proposals.
    fn handle(&mut self, ask: Box<dyn std::any::Any + Send>) -> Effects {
        let mut effects = Effects::default();
        let context = Context { queues: &self.closer, ..context() };
        self.world.machine.handle(&context, MachineCaller(1), ask, &mut effects);
        effects
    }

    /// Commits the proposals of a connection's request, and answers it.
    fn commit(&mut self, token: Token, mut effects: Effects) {
        let mut replies = std::mem::take(&mut effects.replies);
        for proposal in effects.proposals {
            self.world.machine.apply(&proposal.record, 0).expect("it can be read");
            replies.extend(proposal.replies);
        }
        for (_, reply) in replies {
            self.connection.on_reply(token, Reply::Machine(Ok(reply)), Now::default());
        }
    }

    /// Serves the connection's requests to the metadata and about consumers, until there is another kind of request.
    fn serve(&mut self) -> Option<(Token, Request)> {
        while let Some((token, request)) = self.connection.poll_request() {
            let reply = match request {
                Request::Machine(_, ask) => {
                    let effects = self.handle(ask);
                    match self.holds && !effects.proposals.is_empty() {
                        true => self.held.push((token, effects)),
                        false => self.commit(token, effects),
                    }
                    continue;
                }
                Request::Attach(attach) if attach.consumer.credit != Some(0) => {
                    self.next_consumer += 1;
                    self.closer.held.lock().entry(attach.queue).or_default().consumers += 1;
                    Reply::Attach(Ok(ConsumerId(self.next_consumer)))
                }
                Request::Stop(_) => Reply::Stopped,
                Request::Detach(_) | Request::Credit(..) => continue,
                other => return Some((token, other)),
            };
            self.connection.on_reply(token, reply, Now::default());
        }
        None
    }

    /// The connection's first request to a queue, behind that to the metadata if it has one.
    fn serve_lookup(&mut self) -> (Token, Request) {
        match self.connection.poll_request().expect("a request") {
            (token, Request::Machine(_, ask)) => {
                let effects = self.handle(ask);
                self.commit(token, effects);
                self.connection.poll_request().expect("it asks the queue")
            }
            other => other,
        }
    }

    fn ask(&mut self, request: amqp::Request) -> Option<(Token, Request)> {
        self.connection.begin(1, request);
        self.serve()
    }

    fn consume(&mut self, queue: &str, consumer: u32) {
        let left = self.ask(consume(queue, consumer));
        assert!(left.is_none() && self.replies() == ["Done"], "{left:?}");
    }

    /// The client's replies since the last call.
    fn replies(&mut self) -> Vec<String> {
        let captured = self.connection.captured.as_mut().expect("no wire").drain(..);
        captured
            .map(|output| match output {
                PrincipalOutput::Reply(amqp::Reply::Refused(why)) => {
                    assert!(!why.code.is_hard(), "{why} closes the connection");
                    why.reply_text().to_string()
                }
                PrincipalOutput::Reply(reply) => format!("{reply:?}"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    /// A consumer has detached at the broker.
    fn gone(&mut self, queue: PartitionId) {
        self.closer.held.lock().entry(queue).or_default().consumers -= 1;
    }
}

fn consume(queue: &str, consumer: u32) -> amqp::Request {
    amqp::Request::Consume(
        CHANNEL,
        Consume {
            consumer: ConsumerRef(consumer),
            queue: queue.to_owned().into(),
            tag: format!("{consumer}").into(),
            no_ack: false,
            exclusive: false,
            deliveries_max: 10,
            prefetch: 10,
            arguments: Table::EMPTY,
        },
    )
}

fn declare(queue: &str, passive: bool) -> amqp::Request {
    let declare = amqp::DeclareQueue {
        name: queue.to_owned().into(),
        server_named: false,
        passive,
        durable: false,
        exclusive: false,
        auto_delete: false,
        arguments: Table::EMPTY,
    };
    amqp::Request::DeclareQueue(CHANNEL, declare)
}

fn get(queue: &str) -> amqp::Request {
    amqp::Request::Get { channel: CHANNEL, queue: queue.to_owned().into(), no_ack: false }
}

fn delete(queue: &str, if_unused: bool, if_empty: bool) -> amqp::Request {
    amqp::Request::DeleteQueue { channel: CHANNEL, queue: queue.to_owned().into(), if_unused, if_empty }
}

/// A get failed with "the queue was deleted meanwhile", or closed the connection; a passive declaration found an empty queue.
#[test]
fn operations_that_race_a_deletion_get_not_found() {
    let unknown = SettleError::UnknownQueue;
    let cases: [(amqp::Request, Reply); 5] = [
        (get("q"), Reply::Attach(Err(AttachError::UnknownQueue))),
        (get("q"), Reply::Take(Err(unknown))),
        (amqp::Request::PurgeQueue(CHANNEL, "q".into()), Reply::Purge(Err(unknown))),
        (consume("q", 1), Reply::Attach(Err(AttachError::UnknownQueue))),
        (declare("q", true), Reply::DescribeQueues(vec![None])),
    ];
    for (request, reply) in cases {
        let mut rig = Rig::new();
        rig.declare("q", false);
        rig.connection.begin(1, request);
        let (mut token, mut asked) = rig.serve_lookup();
        if matches!((&asked, &reply), (Request::Attach(_), Reply::Take(_))) {
            rig.connection.on_reply(token, Reply::Attach(Ok(ConsumerId(9))), Now::default());
            (token, asked) = rig.connection.poll_request().expect("it takes a message");
        }
        rig.connection.on_reply(token, reply, Now::default());
        assert_eq!(rig.replies(), [MISSING], "{asked:?}");
    }
}

/// It closed the connection, with an internal error.
#[test]
fn a_consumer_lost_with_its_writer_closes_only_the_channel() {
    let mut rig = Rig::new();
    rig.declare("q", false);
    let Some((token, Request::Attach(_))) = rig.ask(get("q")) else { panic!("no consumer is attached") };
    rig.connection.on_reply(token, Reply::Attach(Ok(ConsumerId(9))), Now::default());
    let Some((token, Request::Take(_))) = rig.serve() else { panic!("nothing is taken") };
    rig.connection.on_reply(token, Reply::Take(Err(SettleError::NotHeld)), Now::default());
    assert_eq!(rig.replies(), ["PRECONDITION_FAILED - the broker is busy, try again"]);
}

/// Each lookup waited for the lock of the metadata, which declarations and their commits hold.
#[test]
fn a_committed_queue_is_found_without_the_metadata() {
    let asks_metadata = |rig: &mut Rig, request: amqp::Request| {
        rig.connection.begin(1, request);
        matches!(rig.connection.poll_request(), Some((_, Request::Machine(..))))
    };
    let purge = |name: &'static str| amqp::Request::PurgeQueue(CHANNEL, name.into());
    let mut rig = Rig::new();
    rig.declare("q", false);
    for request in [get("q"), consume("q", 1), purge("q")] {
        assert!(!asks_metadata(&mut rig, request));
    }
    assert!(asks_metadata(&mut rig, purge("none")), "it refuses");
    // It may be behind its own commands.
    assert!(asks_metadata(&mut rig, declare("new", false)));
    assert!(asks_metadata(&mut rig, get("new")) && asks_metadata(&mut rig, get("q")));
    let mut rig = Rig::new();
    let exclusive = DeclareQueue { vhost: rig.world.vhost, name: "mine".into(), exclusive: true, ..Default::default() };
    let who = Caller { owner: crate::machine::owner(77), ..Caller::broker() };
    let effects = rig.handle(Box::new(AmqpRequest::Do(who, Box::new(Command::DeclareQueue(exclusive)))));
    rig.world.commit(effects);
    assert!(rig.id("mine").is_some() && asks_metadata(&mut rig, get("mine")), "it knows the owner");
    let mut rig = Rig::new();
    rig.declare("q", false);
    rig.world.act(Command::SetPermission("guest".into(), "/".into(), ["".into(), "".into(), "".into()]));
    assert!(asks_metadata(&mut rig, get("q")), "it refuses");
}

/// The queue was deleted after the metadata had found it: clients were asked to try again.
#[test]
fn a_queue_deleted_after_the_lookup_is_not_found() {
    for request in [get("q"), consume("q", 1), amqp::Request::PurgeQueue(CHANNEL, "q".into()), declare("q", true)] {
        let mut rig = Rig::new();
        rig.declare("q", false);
        // A change of its own is not answered, so that it asks the metadata.
        rig.connection.changing.insert(u64::MAX);
        rig.connection.begin(1, request);
        let (token, ask) = rig.connection.poll_request().expect("it looks up the queue");
        let Request::Machine(_, ask) = ask else { panic!("{ask:?}") };
        let found = rig.handle(ask);
        let id = rig.id("q").expect("declared");
        rig.world.act(Command::RemoveQueue(id, DeletionCause::Owner));
        rig.commit(token, found);
        assert_eq!((rig.replies(), rig.connection.poll_request().is_none()), (vec![MISSING.to_owned()], true));
    }
}

#[test]
fn a_deletion_is_checked_against_the_counts_at_the_proposal() {
    let mut rig = Rig::new();
    let queue = rig.declare("q", false);
    rig.closer.held.lock().insert(queue, QueueCounts { ready: 3, consumers: 1, ..QueueCounts::default() });
    for (if_unused, if_empty, why) in [(true, false, "in use"), (false, true, "not empty"), (true, true, "not empty")] {
        assert!(rig.ask(delete("q", if_unused, if_empty)).is_none(), "nothing else is asked before");
        assert_eq!(rig.replies(), [format!("PRECONDITION_FAILED - queue 'q' in vhost '/' {why}")]);
        assert_eq!(*rig.closer.closed.lock(), BTreeSet::new());
    }
    rig.closer.held.lock().insert(queue, QueueCounts { ready: 3, ..QueueCounts::default() });
    rig.holds = true;
    assert!(rig.ask(delete("q", true, false)).is_none());
    assert_eq!((rig.replies().len(), rig.closer.closed.lock().len()), (0, 1), "closed until the record is committed");
    let (token, effects) = rig.held.pop().expect("proposed");
    rig.commit(token, effects);
    assert_eq!((rig.replies(), rig.id("q")), (vec!["Count(3)".to_owned()], None), "with its messages");
    rig.holds = false;
    rig.ask(delete("q", true, true));
    assert_eq!(rig.replies(), ["Count(0)"], "a missing queue is no error");
}

/// A client without permission to delete a queue closed it for a moment.
#[test]
fn refused_deletions_do_not_close_the_queue() {
    let mut rig = Rig::new();
    let queue = rig.declare("q", false);
    rig.world.queue("quorum", json!({"x-queue-type": "quorum"}));
    rig.world.act(Command::SetPermission("guest".into(), "/".into(), ["quorum".into(), "".into(), "".into()]));
    for name in ["q", "quorum"] {
        let ask = delete(name, true, false);
        rig.connection.begin(1, ask);
        let (_, ask) = rig.connection.poll_request().expect("it is to be deleted");
        let Request::Machine(_, ask) = ask else { panic!("{ask:?}") };
        let effects = rig.handle(ask);
        assert!(effects.proposals.is_empty(), "{name} stays");
    }
    let Closer { held, closed } = &rig.closer;
    assert_eq!((held.lock().get(&queue), closed.lock().len()), (None, 0));
}

/// A client that declared the queue passively right afterwards found it.
#[test]
fn an_auto_delete_queue_is_deleted_before_its_last_cancel_is_confirmed() {
    let mut rig = Rig::new();
    let queue = rig.declare("q", true);
    rig.declare("other", false);
    for (name, number) in [("q", 1), ("q", 2), ("other", 3)] {
        rig.consume(name, number);
    }
    // With unsettled deliveries it is kept for these, and is no longer a consumer of the queue.
    let open = rig.connection.channels.get_mut(&CHANNEL).expect("open");
    open.consumers.get_mut(&ConsumerRef(2)).expect("there").unsettled = 1;
    rig.gone(queue);
    rig.ask(amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
    assert_eq!((rig.replies(), rig.id("q").is_some()), (vec!["Done".to_owned()], true), "it has another consumer");
    rig.ask(amqp::Request::Cancel(CHANNEL, ConsumerRef(3)));
    assert_eq!((rig.replies(), rig.id("other").is_some()), (vec!["Done".to_owned()], true), "it is not auto-delete");
    rig.gone(queue);
    rig.holds = true;
    rig.ask(amqp::Request::Cancel(CHANNEL, ConsumerRef(2)));
    assert_eq!(rig.replies(), [""; 0], "the deletion is not committed yet");
    let (token, effects) = rig.held.pop().expect("proposed");
    rig.commit(token, effects);
    assert_eq!((rig.replies(), rig.id("q")), (vec!["Done".to_owned()], None));
    rig.ask(amqp::Request::CloseChannel(CHANNEL));
    assert_eq!((rig.replies(), rig.held.len()), (vec!["Done".to_owned()], 0));
}

#[test]
fn a_channel_is_closed_after_its_auto_delete_queues() {
    let mut rig = Rig::new();
    for (name, number) in [("a", 1), ("b", 2), ("used", 3)] {
        let queue = rig.declare(name, true);
        rig.consume(name, number);
        if name != "used" {
            rig.gone(queue);
        }
    }
    rig.declare("never", true);
    rig.holds = true;
    rig.ask(amqp::Request::CloseChannel(CHANNEL));
    // A reply that the other one is in use follows from proposed state, too.
    for left in [3, 2, 1] {
        assert_eq!((rig.replies().len(), rig.held.len()), (0, left));
        let (token, effects) = rig.held.remove(0);
        rig.commit(token, effects);
    }
    assert_eq!(rig.replies(), ["Done"]);
    assert_eq!(["a", "b", "used", "never"].map(|name| rig.id(name).is_some()), [false, false, true, true]);
}

/// The queue was never deleted when its deletion could not be proposed immediately.
#[test]
fn a_failed_auto_delete_is_retried() {
    for closes in [false, true] {
        let mut rig = Rig::new();
        let queue = rig.declare("q", true);
        rig.consume("q", 1);
        rig.gone(queue);
        let mut idle = IdleQueues::new(rig.world.directory.clone(), Arc::new(Topics));
        rig.connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
        let (token, _) = rig.connection.poll_request().expect("it stops");
        rig.connection.on_reply(token, Reply::Stopped, Now::default());
        let asked = std::iter::from_fn(|| rig.connection.poll_request());
        let (token, _) =
            asked.filter(|(_, ask)| matches!(ask, Request::Machine(..))).last().expect("the queue is deleted");
        match closes {
            // The connection ends before the reply.
            true => _ = rig.connection.on_closed(),
            false => {
                rig.connection.on_reply(token, Reply::Machine(Err(Unavailable::NotCommitted)), Now::default());
                assert_eq!(rig.replies(), ["Done"], "the consumer is cancelled nevertheless");
            }
        }
        let mut now = Now { monotonic_ms: 100, ..Now::default() };
        idle.on_deadline(now);
        now.monotonic_ms = idle.next_deadline_ms().expect("it is checked");
        idle.on_deadline(now);
        let (token, asked) = idle.poll_request().expect("its consumer count");
        assert!(matches!(asked, Request::DescribeQueues(_)));
        idle.on_reply(token, Reply::DescribeQueues(vec![Some(QueueCounts::default())]), now);
        let Some((token, Request::Machine(_, ask))) = idle.poll_request() else { panic!("it stays") };
        let effects = rig.handle(ask);
        rig.world.commit(effects);
        let done = AmqpAnswer::Done(ModelReply::Deleted { queue: None, messages: 0 });
        idle.on_reply(token, Reply::Machine(Ok(Box::new(done))), now);
        assert_eq!((rig.id("q"), idle.next_deadline_ms()), (None, None));
    }
}

/// A consumer attached between the check of a queue and its removal: queue and consumer were removed.
#[test]
fn a_queue_with_a_new_consumer_is_kept() {
    let mut rig = Rig::new();
    let queue = rig.declare("q", true);
    rig.world.queue("expires", json!({"x-expires": 1_000}));
    let expires = rig.world.directory.queue(rig.id("expires").expect("declared")).expect("declared");
    let mut idle = IdleQueues::new(rig.world.directory.clone(), Arc::new(Topics));
    rig.world.directory.consumers_left(rig.id("q").into_iter());
    let mut now = Now { monotonic_ms: 1, ..Now::default() };
    idle.on_deadline(now);
    now.monotonic_ms = 5_000;
    idle.on_deadline(now);
    let (token, asked) = idle.poll_request().expect("their consumer counts");
    assert!(matches!(asked, Request::DescribeQueues(queues) if queues.len() == 2));
    idle.on_reply(token, Reply::DescribeQueues(vec![Some(QueueCounts::default()); 2]), now);
    let both = [queue, expires.partition(&Topics).expect("a topic")];
    for partition in both {
        rig.closer.held.lock().entry(partition).or_default().consumers += 1;
    }
    while let Some((token, request)) = idle.poll_request() {
        let Request::Machine(_, ask) = request else { panic!("{request:?}") };
        let mut effects = rig.handle(ask);
        assert!(effects.proposals.is_empty(), "nothing is proposed");
        let (_, reply) = effects.replies.pop().expect("an answer");
        idle.on_reply(token, Reply::Machine(Ok(reply)), now);
    }
    assert!(rig.id("q").is_some() && rig.id("expires").is_some() && rig.closer.closed.lock().is_empty());
    assert_eq!(idle.next_deadline_ms(), Some(5_050), "the other is checked again");
    now.monotonic_ms = 5_050;
    idle.on_deadline(now);
    assert_eq!(idle.next_deadline_ms(), Some(5_300));
    now.monotonic_ms = 5_990;
    idle.on_deadline(now);
    assert_eq!(idle.next_deadline_ms(), Some(6_000), "the expiry time starts again");
    // Its consumers are notified when it is deleted for another reason.
    rig.connection.on_event(Event::Detached(ConsumerId(1)), now);
    assert_eq!(rig.replies(), [""; 0], "this connection has no consumer");
}
