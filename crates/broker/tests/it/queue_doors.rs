//! Queues closed by a machine because it proposes to delete them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use bytes::Bytes;
use node::{Node, message};
use polylogue_api::machine::Command;
use polylogue_api::*;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_types::{PartitionId, TimestampMs};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

const UNUSED: CloseIf = CloseIf { unused: true, empty: false };
const EMPTY: CloseIf = CloseIf { unused: false, empty: true };

/// Commands for the machine.
enum Ask {
    /// Checks a queue and closes it.
    Close(PartitionId, CloseIf),
    /// Keeps the queue.
    Open(PartitionId),
    /// As `Close`, and the topic of this name is deleted with the record.
    Delete(PartitionId, CloseIf, &'static str),
}

/// A machine with queues that it deletes.
#[derive(Debug, Default)]
struct Owner {
    dead: Vec<String>,
}

impl StateMachine for Owner {
    fn handle(&mut self, context: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects) {
        let reply: Box<dyn Any + Send> = match *command.downcast::<Ask>().unwrap() {
            Ask::Close(queue, only) => Box::new(context.queues.close(queue, only)),
            Ask::Open(queue) => {
                context.queues.open(queue);
                Box::new(())
            }
            Ask::Delete(queue, only, topic) => {
                let closed = context.queues.close(queue, only);
                if closed.is_ok() {
                    let record = Bytes::from_static(topic.as_bytes());
                    return effects.proposals.push(Proposal { record, replies: vec![(caller, Box::new(closed))] });
                }
                Box::new(closed)
            }
        };
        effects.replies.push((caller, reply));
    }
    fn on_gone(&mut self, _: &Context<'_>, _: Caller, _: &mut Effects) {}
    fn apply(&mut self, record: &[u8], _: TimestampMs) -> Result<(), String> {
        self.dead.push(String::from_utf8(record.to_vec()).unwrap());
        Ok(())
    }
    fn on_ready(&mut self, _: &Context<'_>) {}
    fn on_refused(&mut self, _: &Context<'_>, _: &[Bytes], _: &mut Effects) {}
    fn on_writer_lost(&mut self, _: &Context<'_>, _: &mut Effects) {}
    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }
    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Effects) {}
    fn on_topics_deleted(&mut self, _: &Context<'_>, _: &[Arc<TopicInfo>], _: &mut Effects) {}
    fn take_dead_topics(&mut self) -> Vec<String> {
        std::mem::take(&mut self.dead)
    }
    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        Vec::new()
    }
    fn change_all_chunks(&mut self) {}
    fn load_chunk(&mut self, _: &[u8], _: Bytes) -> Result<(), String> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn open(world: &SimWorld) -> Node {
    let owner: Box<dyn StateMachine> = Box::new(Owner::default());
    Node::open_with(world, BTreeMap::from([(MachineId::AMQP, owner)]), |_| {})
}

fn queue(node: &mut Node, mode: ConsumerMode) -> PartitionId {
    let queue = Some(QueueSettings { mode, ..QueueSettings::default() });
    node.create("q", 1, TopicConfig { queue, retention_ms: None, ..TopicConfig::default() }).partitions[0].id
}

fn machine(ask: Ask) -> Request {
    Request::Machine(MachineId::AMQP, Box::new(ask))
}

/// Returns what the machine learned of a queue that it closed: consumers and ready messages.
fn counts_of(reply: Reply) -> Result<(u64, u64), (u64, u64)> {
    let Reply::Machine(Ok(reply)) = reply else { panic!("{reply:?}") };
    let held = |counts: QueueCounts| (counts.consumers, counts.ready);
    reply.downcast::<Result<QueueCounts, QueueCounts>>().unwrap().map(held).map_err(held)
}

fn close(node: &mut Node, queue: PartitionId, only: CloseIf) -> Result<(u64, u64), (u64, u64)> {
    counts_of(node.ask_now(machine(Ask::Close(queue, only))))
}

fn attach(node: &mut Node, queue: PartitionId) -> Result<ConsumerId, AttachError> {
    match node.ask(Request::Attach(Attach { queue, consumer: ConsumerSpec::default() })) {
        Reply::Attach(attached) => attached,
        other => panic!("{other:?}"),
    }
}

fn publish(node: &mut Node, queue: PartitionId) {
    let messages = vec![message(&[queue], "m")];
    let reply = node.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
    assert!(matches!(&reply, Reply::Publish(results) if results[..] == [Ok(())]), "{reply:?}");
}

/// A consumer that attached between the check of its queue and the record of its deletion existed without a queue.
#[test]
fn nobody_comes_to_a_queue_that_was_found_without_consumers() {
    let world = SimWorld::new(1);
    let mut node = open(&world);
    let queue = queue(&mut node, ConsumerMode::Competing);
    publish(&mut node, queue);
    assert_eq!(close(&mut node, queue, EMPTY), Err((0, 1)));
    let consumer = attach(&mut node, queue).expect("one that was not empty is not closed");
    assert_eq!(close(&mut node, queue, UNUSED), Err((1, 0)), "it holds the message");
    node.start(Request::Detach(consumer));
    node.drive();
    assert_eq!(close(&mut node, queue, UNUSED), Ok((0, 1)));
    assert_eq!(attach(&mut node, queue), Err(AttachError::UnknownQueue));
    // New messages for it are handled like its other messages.
    publish(&mut node, queue);
    node.ask_now(machine(Ask::Open(queue)));
    let consumer = attach(&mut node, queue).expect("it stays");
    assert_eq!(node.client.delivered.lock().len(), 3, "the first of them twice");
    // A stopped consumer does not count, whatever it holds.
    node.ask(Request::Stop(consumer));
    let deleted = node.ask(machine(Ask::Delete(queue, UNUSED, "q")));
    assert_eq!(counts_of(deleted), Ok((0, 0)));
    assert_eq!(*node.client.detached.lock(), [consumer]);
    assert_eq!(close(&mut node, queue, UNUSED), Ok((0, 0)), "there is none any more");
}

#[test]
fn a_stream_is_closed_to_readers() {
    let world = SimWorld::new(2);
    let mut node = open(&world);
    let queue = queue(&mut node, ConsumerMode::Readers);
    let read = |node: &mut Node| {
        let (from, filter) = (ReadFrom::First, None);
        let attach = AttachReader { queue, from, filter, prefetch: 0, credit: None, window_bytes: 0 };
        match node.ask(Request::AttachReader(attach)) {
            Reply::Attach(attached) => attached,
            other => panic!("{other:?}"),
        }
    };
    let reader = read(&mut node).expect("there");
    assert_eq!(close(&mut node, queue, UNUSED), Err((1, 0)));
    node.start(Request::Detach(reader));
    assert_eq!(close(&mut node, queue, UNUSED), Ok((0, 0)));
    assert_eq!(read(&mut node), Err(AttachError::UnknownQueue));
}

/// The record of a deletion may be lost with its writer: the queue exists, and could not be consumed until the next start.
#[test]
fn a_queue_whose_deletion_is_lost_is_open_again() {
    let world = SimWorld::new(3);
    let mut node = open(&world);
    let queue = queue(&mut node, ConsumerMode::Competing);
    world.disk.inject(Fault::from(FaultOp::Write, 1, FaultKind::NoSpace));
    let lost = node.start(machine(Ask::Delete(queue, UNUSED, "q")));
    assert_eq!(attach(&mut node, queue), Err(AttachError::UnknownQueue));
    let lost = node.client.replies.lock().remove(&lost);
    assert!(matches!(lost, Some(Reply::Machine(Err(_)))), "{lost:?}");
    world.disk.clear_faults();
    for _ in 0..10 {
        world.clock.advance_ms(600);
        node.background();
    }
    let consumer = attach(&mut node, queue).expect("it is there");
    node.start(Request::Detach(consumer));
    assert_eq!(counts_of(node.ask(machine(Ask::Delete(queue, UNUSED, "q")))), Ok((0, 0)));
    assert_eq!(attach(&mut node, queue), Err(AttachError::UnknownQueue));
    assert!(node.broker.catalog().topic("q").is_none());
}
