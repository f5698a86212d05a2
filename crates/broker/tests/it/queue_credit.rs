//! Publishers without confirms, on the simulated machine: slowed by a queue whose consumers do not keep up, and by no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, message};
use polylogue_api::*;
use polylogue_broker::CreditRules;
use polylogue_env::sim::SimWorld;
use polylogue_types::PartitionId;
use polylogue_types::limits::LAZY_FLUSH_MS_MAX;

const RULES: CreditRules = CreditRules { growth_messages: 400, growth_bytes: 1 << 20, withheld_ms_max: 100 };
/// A publisher's initial credit, and the most that it sends without credit.
const BATCH: usize = 50;
const CREDIT: usize = 200;
/// In-flight messages of the consumers below.
const WINDOW: u64 = 100;

/// Publishes while it has credit.
#[derive(Default)]
struct Publisher {
    open: Vec<Token>,
    published: usize,
}

impl Publisher {
    /// Publishes until it has no credit left, or that many again if it is not slowed.
    fn go_on(&mut self, node: &mut Node, queue: PartitionId) {
        let before = self.published;
        self.open.retain(|token| node.client.replies.lock().remove(token).is_none());
        while self.open.len() * BATCH < CREDIT && self.published - before < CREDIT {
            let messages = (0..BATCH).map(|_| message(&[queue], "0123456789")).collect();
            let ack = Ack::KeptUp { committed: false };
            let token = node.start(Request::Publish(PublishRequest { messages, ack, patient: false }));
            self.published += BATCH;
            if node.client.replies.lock().remove(&token).is_none() {
                self.open.push(token);
            }
        }
    }
}

fn open(world: &SimWorld, early: bool, rules: CreditRules) -> (Node, PartitionId) {
    let mut node = Node::open(world, |config| config.credit_rules = rules);
    let settings = QueueSettings { early, ..QueueSettings::default() };
    let config = TopicConfig { queue: Some(settings), retention_ms: None, ..TopicConfig::default() };
    let queue = node.create("q", 1, config).partitions[0].id;
    (node, queue)
}

fn attach(node: &mut Node, queue: PartitionId, prefetch: u32) -> ConsumerId {
    let consumer = ConsumerSpec { credit: Some(WINDOW), prefetch, ..ConsumerSpec::default() };
    match node.ask(Request::Attach(Attach { queue, consumer })) {
        Reply::Attach(Ok(consumer)) => consumer,
        other => panic!("{other:?}"),
    }
}

fn ready(node: &mut Node, queue: PartitionId) -> u64 {
    match node.ask(Request::DescribeQueues(vec![queue])) {
        Reply::DescribeQueues(counts) => counts[0].expect("a queue").ready,
        other => panic!("{other:?}"),
    }
}

/// The consumer's socket accepts this many delivered messages.
fn takes(node: &mut Node, consumer: ConsumerId, messages: u64) {
    node.client.delivered.lock().clear();
    node.start(Request::Credit(consumer, Credit { messages, bytes: 0 }));
    node.drive();
}

/// A publisher sent 134,000 messages a second to a consumer of 97,000, and messages were 1.4 s late.
#[test]
fn a_queue_whose_consumer_is_slower_than_a_publisher_grows_no_further_than_it_may() {
    for early in [false, true] {
        let world = SimWorld::new(1);
        let (mut node, queue) = open(&world, early, CreditRules { withheld_ms_max: 60_000, ..RULES });
        let consumer = attach(&mut node, queue, 0);
        let mut publisher = Publisher::default();
        let mut most = 0;
        for _ in 0..400 {
            publisher.go_on(&mut node, queue);
            // Messages without early delivery are flushed, and ready, after a while.
            world.clock.advance_ms(LAZY_FLUSH_MS_MAX);
            takes(&mut node, consumer, 10);
            most = most.max(ready(&mut node, queue));
        }
        // Messages in flight to the log are not counted, only its credit.
        let unflushed = if early { 0 } else { CREDIT as u64 };
        let bound = RULES.growth_messages + CREDIT as u64 + unflushed;
        assert!((RULES.growth_messages..=bound).contains(&most), "early: {early}, {most} were ready");
        let (withheld, late) = node.broker.credit_withheld();
        assert!(withheld > 0 && late == 0, "{withheld} {late}");
        // At the consumer's rate: 10 a turn, plus the contents of the queue, the window and the publisher's credit.
        let taken = 400 * 10;
        assert!((taken..=taken + (bound + WINDOW) as usize + CREDIT).contains(&publisher.published));
    }
}

/// A long queue slows no publisher, nor do consumers at their limits, as in RabbitMQ.
#[test]
fn a_queue_without_waiting_consumers_slows_nobody() {
    let world = SimWorld::new(2);
    let (mut node, queue) = open(&world, true, RULES);
    let mut publisher = Publisher::default();
    publisher.go_on(&mut node, queue);
    let full = attach(&mut node, queue, 10);
    node.drive();
    (0..4).for_each(|_| publisher.go_on(&mut node, queue));
    assert_eq!((publisher.published, publisher.open.len()), (5 * CREDIT, 0));
    assert_eq!(node.broker.credit_withheld(), (0, 0));
    node.start(Request::Detach(full));
    node.drive();
    // The backlog at the time of a consumer's attachment is the base of growth: publishers are as fast as the consumer.
    let consumer = attach(&mut node, queue, 0);
    let (before, had) = (publisher.published, ready(&mut node, queue));
    for _ in 0..100 {
        publisher.go_on(&mut node, queue);
        takes(&mut node, consumer, 50);
    }
    let now = ready(&mut node, queue);
    assert!(now <= had + RULES.growth_messages + CREDIT as u64, "{had} grew to {now}");
    assert!(publisher.published - before >= 100 * 50, "{}", publisher.published - before);
}

#[test]
fn credit_comes_back_when_its_time_is_over_or_nobody_waits_for_messages() {
    let world = SimWorld::new(3);
    let (mut node, queue) = open(&world, true, RULES);
    let consumer = attach(&mut node, queue, 0);
    let mut publisher = Publisher::default();
    let slowed = |node: &mut Node, publisher: &mut Publisher| {
        (0..10).for_each(|_| publisher.go_on(node, queue));
        assert_eq!(publisher.open.len() * BATCH, CREDIT, "it has no credit left");
    };
    slowed(&mut node, &mut publisher);
    // The consumer takes nothing: it slows publishers, and does not stop them.
    for round in 1..=3 {
        let before = publisher.published;
        world.clock.advance_ms(RULES.withheld_ms_max - 1);
        node.drive();
        publisher.go_on(&mut node, queue);
        assert_eq!(publisher.published, before, "round {round}");
        world.clock.advance_ms(1);
        node.drive();
        slowed(&mut node, &mut publisher);
        assert_eq!(publisher.published, before + CREDIT);
    }
    assert_eq!(node.broker.credit_withheld().1, 3 * (CREDIT / BATCH) as u64);
    node.start(Request::Detach(consumer));
    node.drive();
    publisher.go_on(&mut node, queue);
    assert_eq!(publisher.open.len(), 0, "the consumer is gone");
    // Publishes that wait for a deleted queue are replied to.
    attach(&mut node, queue, 0);
    slowed(&mut node, &mut publisher);
    let tokens = publisher.open.clone();
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("q".into())] }));
    assert!(tokens.iter().all(|token| node.client.replies.lock().contains_key(token)));
}
