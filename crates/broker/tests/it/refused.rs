//! Records of machines that the log refuses: their callers get the error, and no other caller is affected.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;
use crate::queues::{Queueing, settlement};

use bytes::Bytes;
use node::{Node, entry};
use polylogue_api::machine::{Command, Slots, Split};
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_replicate::Work;
use polylogue_types::{Term, TimestampMs, limits};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// Size of the record of most commands. Bytes.
const RECORD_BYTES: usize = 60 << 10;

/// A machine that numbers its records: one more than all proposed before.
#[derive(Debug, Default)]
struct Ledger {
    applied: u64,
    proposed: u64,
    lost: u64,
    /// It lives in the shard of the partitions.
    in_slots: bool,
}

/// The machine in slots.
const OF_PARTITIONS: MachineId = MachineId::new(200).unwrap();

impl StateMachine for Ledger {
    /// A command is the list of the sizes of its records.
    fn handle(&mut self, _: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects) {
        for bytes in *command.downcast::<Vec<usize>>().unwrap() {
            self.proposed += 1;
            let record = Bytes::from(vec![0; bytes]);
            effects.proposals.push(Proposal { record, replies: Vec::new() });
        }
        let reply: Box<dyn Any + Send> = Box::new((self.proposed, self.lost));
        effects.proposals.last_mut().unwrap().replies.push((caller, reply));
    }
    fn on_gone(&mut self, _: &Context<'_>, _: Caller, _: &mut Effects) {}
    fn apply(&mut self, _: &[u8], _: TimestampMs) -> Result<(), String> {
        self.applied += 1;
        Ok(())
    }
    fn on_ready(&mut self, _: &Context<'_>) {
        self.proposed = self.applied;
    }
    fn on_refused(&mut self, _: &Context<'_>, records: &[Bytes], _: &mut Effects) {
        self.proposed -= records.len() as u64;
    }
    fn on_writer_lost(&mut self, _: &Context<'_>, _: &mut Effects) {
        self.lost += 1;
        self.proposed = self.applied;
    }
    fn next_deadline_ms(&self) -> Option<u64> {
        None
    }
    fn on_deadline(&mut self, _: &Context<'_>, _: &mut Effects) {}
    fn on_topics_deleted(&mut self, _: &Context<'_>, _: &[Arc<TopicInfo>], _: &mut Effects) {}
    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        Vec::new()
    }
    fn change_all_chunks(&mut self) {}
    fn load_chunk(&mut self, _: &[u8], _: Bytes) -> Result<(), String> {
        Ok(())
    }
    fn slots(&self) -> Option<Arc<dyn Slots>> {
        self.in_slots.then(|| Arc::new(LedgerSlots) as Arc<dyn Slots>)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct LedgerSlots;

impl Slots for LedgerSlots {
    fn machine(&self) -> Box<dyn StateMachine> {
        Box::new(Ledger { in_slots: true, ..Ledger::default() })
    }
    fn split(&self, command: Command, _: usize, _: &dyn Fn(&[u8]) -> usize) -> Split {
        let join = |mut replies: Vec<MachineReply>| replies.pop().unwrap();
        Split { parts: vec![(0, command)], join: Box::new(join) }
    }
}

fn open(world: &SimWorld, change: impl FnOnce(&mut polylogue_broker::BrokerConfig)) -> Node {
    let ledger: Box<dyn StateMachine> = Box::new(Ledger::default());
    Node::open_with(world, BTreeMap::from([(MachineId::AMQP, ledger), (OF_PARTITIONS, LedgerSlots.machine())]), change)
}

fn write(records: &[usize]) -> Request {
    write_to(MachineId::AMQP, records)
}

fn write_to(machine: MachineId, records: &[usize]) -> Request {
    Request::Machine(machine, Box::new(records.to_vec()))
}

/// Returns the number of the record, and how often the writer was lost.
fn written(reply: Reply) -> Result<(u64, u64), Unavailable> {
    let Reply::Machine(reply) = reply else { panic!("{reply:?}") };
    reply.map(|reply| *reply.downcast::<(u64, u64)>().unwrap())
}

fn term(node: &mut Node) -> Term {
    match node.ask_now(Request::DescribeMetadataLog) {
        Reply::DescribeMetadataLog(log) => log.expect("the log of a writer").term,
        other => panic!("{other:?}"),
    }
}

fn create(name: &str) -> Request {
    let topic = NewTopic { name: name.into(), partitions: 1, config: TopicConfig::default(), internal: false };
    Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false })
}

/// Time in which a lost writer would be replaced.
fn pass(world: &SimWorld, node: &Node) {
    for _ in 0..4 {
        world.clock.advance_ms(600);
        node.drive();
    }
}

/// A record over the limit ended the writer's term, and other callers' proposals in flight got no reply.
#[test]
fn a_record_over_the_limit_is_refused_alone() {
    let world = SimWorld::new(1);
    let mut node = open(&world, |_| {});
    let before = term(&mut node);
    let others = node.start(write(&[10]));
    let refused = node.ask_now(write(&[10, limits::REQUEST_BYTES_MAX + 1, 10]));
    assert_eq!(written(refused), Err(Unavailable::TooLarge));
    let after = node.start(write(&[10, 10]));
    node.drive();
    let taken = |token| written(node.client.replies.lock().remove(&token).expect("an answer"));
    assert_eq!([taken(others), taken(after)], [Ok((1, 0)), Ok((3, 0))]);
    pass(&world, &node);
    assert_eq!(written(node.ask(write(&[10]))), Ok((4, 0)), "all or none of the records of a call");
    assert_eq!(term(&mut node), before);
}

/// Proposes until even a small record is refused. Returns the pending ones. Records of different sizes fill the last gap.
fn fill_queue(node: &mut Node, machine: MachineId) -> Vec<Token> {
    let mut waiting = Vec::new();
    for bytes in [RECORD_BYTES, 1] {
        let refused = loop {
            let token = node.start(write_to(machine, &[bytes]));
            match node.client.replies.lock().remove(&token) {
                None => waiting.push(token),
                Some(reply) => break written(reply),
            }
            assert!(waiting.len() < 1_000_000, "the queue is bounded");
        };
        assert_eq!(refused, Err(Unavailable::Busy));
    }
    waiting
}

#[test]
fn a_full_queue_refuses_what_comes_and_keeps_what_it_has() {
    let world = SimWorld::new(2);
    let mut node = open(&world, |config| config.inflight_bytes_max = 128 << 10);
    let kept = node.create("kept", 1, TopicConfig::default());
    let before = term(&mut node);
    let waiting = fill_queue(&mut node, MachineId::AMQP);
    assert!(waiting.len() > 2);
    let create_refused = node.ask_now(create("new"));
    assert!(
        matches!(&create_refused, Reply::CreateTopics(r) if matches!(r[..], [Err(TopicError::Unavailable(Unavailable::Busy))])),
        "{create_refused:?}"
    );
    let topics = vec![TopicRef::Name("kept".into())];
    let refused = node.ask_now(Request::DeleteTopics(DeleteTopics { topics }));
    assert!(matches!(&refused, Reply::DeleteTopics(r) if r[0].is_err()), "{refused:?}");
    node.drive();
    for (n, token) in (1..).zip(waiting) {
        let reply = node.client.replies.lock().remove(&token).expect("an answer");
        assert_eq!(written(reply), Ok((n, 0)), "what was taken is committed");
    }
    pass(&world, &node);
    assert_eq!(term(&mut node), before);
    node.create("new", 1, TopicConfig::default());
    assert!(node.append(entry(kept.partitions[0].id, "still there")).is_ok());
    delete(&mut node, "kept");
}

/// The opening of a new topic's partitions was refused by a full queue: the writer was lost.
#[test]
fn an_opening_that_is_refused_is_proposed_again() {
    let world = SimWorld::new(4);
    let mut node = open(&world, |config| config.inflight_bytes_max = 128 << 10);
    let doomed = node.create("doomed", 1, TopicConfig::default());
    let before = term(&mut node);
    let created = node.start(create("new"));
    let deleted = node.start(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("doomed".into())] }));
    // Written and removed from the queue, but not committed.
    node.broker.log_step(Work::Write);
    fill_queue(&mut node, OF_PARTITIONS);
    node.broker.log_step(Work::Flush);
    let created = node.client.replies.lock().remove(&created);
    assert!(matches!(&created, Some(Reply::CreateTopics(r)) if r[0].is_ok()), "{created:?}");
    assert!(node.client.replies.lock().contains_key(&deleted));
    let new = node.broker.catalog().topic("new").expect("created").partitions[0].id;
    assert_eq!(node.append(entry(new, "too early")), Err(AppendError::UnknownPartition));
    pass(&world, &node);
    assert!(node.append(entry(new, "now")).is_ok());
    assert!(matches!(node.read(doomed.partitions[0].id, 0), Err(ReadError::UnknownPartition)));
    assert_eq!(term(&mut node), before);
    drop(node);
    world.disk.crash_keep_page_cache();
    let mut node = open(&world, |_| {});
    assert_eq!(node.text(new, 0), "now");
}

/// A full queue of proposals refused the outcomes of a queue's messages, and the writer's term ended with that: its consumers got their messages again.
#[test]
fn outcomes_that_are_refused_are_proposed_again() {
    let world = SimWorld::new(5);
    let mut node = open(&world, |config| config.inflight_bytes_max = 128 << 10);
    let queue = node.queue("q", QueueSettings::default());
    assert_eq!(node.publish(vec![node::message(&[queue], "a"), node::message(&[queue], "b")]), [Ok(()), Ok(())]);
    node.attach(queue, ConsumerSpec::default()).unwrap();
    let delivered = node.delivered();
    assert_eq!(node::texts(&delivered), ["a", "b"]);
    let before = term(&mut node);
    fill_queue(&mut node, OF_PARTITIONS);
    let settled = delivered.iter().map(|delivery| {
        let settlements = vec![settlement(delivery, Settle::Accept)];
        node.start(Request::Settle(SettleRequest { settlements, wait: true }))
    });
    let settled: Vec<Token> = settled.collect();
    assert!(settled.iter().all(|token| !node.client.replies.lock().contains_key(token)), "they wait");
    pass(&world, &node);
    for token in settled {
        let reply = node.client.replies.lock().remove(&token);
        assert!(matches!(&reply, Some(Reply::Settle(results)) if results[..] == [Ok(())]), "{reply:?}");
    }
    assert_eq!((term(&mut node), node.delivered().len()), (before, 0));
    drop(node);
    world.disk.crash_keep_page_cache();
    let mut node = open(&world, |_| {});
    assert_eq!(node.counts(queue), QueueCounts::default());
}

fn delete(node: &mut Node, name: &str) {
    let topics = vec![TopicRef::Name(name.into())];
    let deleted = node.ask(Request::DeleteTopics(DeleteTopics { topics }));
    assert!(matches!(&deleted, Reply::DeleteTopics(r) if r[0].is_ok()), "{deleted:?}");
}

#[test]
fn a_full_disk_refuses_what_comes_and_keeps_the_writer() {
    let world = SimWorld::new(3);
    world.disk.set_capacity(8 * MIB);
    let mut node = open(&world, |config| config.disk_reserve_bytes = 4 * MIB);
    let mut count = 0;
    let refused = loop {
        match written(node.ask(write(&[RECORD_BYTES]))) {
            Ok((number, 0)) => count = number,
            other => break other,
        }
        node.background();
        world.clock.advance_ms(100);
        assert!(count < 1_000, "the disk is bounded");
    };
    assert_eq!(refused, Err(Unavailable::StorageFull));
    let before = term(&mut node);
    pass(&world, &node);
    assert_eq!(term(&mut node), before, "nothing is wrong with the writer");
    world.disk.set_capacity(64 * MIB);
    pass(&world, &node);
    node.background();
    pass(&world, &node);
    assert_eq!(written(node.ask(write(&[RECORD_BYTES]))), Ok((count + 1, 0)));
    assert_eq!(term(&mut node), before);
}
