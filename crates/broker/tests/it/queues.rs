//! Queues on the simulated machine: confirmed messages are delivered until they are settled, before and after a crash.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;
use crate::queues_dead::{answer, take_dead};

use bytes::Bytes;
use node::{Node, message, texts};
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_replicate::Work;
use polylogue_types::{Offset, PartitionId};

/// A node with queues.
pub(crate) trait Queueing {
    fn queue(&mut self, name: &str, settings: QueueSettings) -> PartitionId;
    fn publish(&mut self, messages: Vec<PublishMessage>) -> Vec<Result<(), PublishError>>;
    fn attach(&mut self, queue: PartitionId, consumer: ConsumerSpec) -> Result<ConsumerId, AttachError>;
    fn settle(&mut self, deliveries: &[Delivery], how: Settle) -> Vec<Result<(), SettleError>>;
    fn delivered(&mut self) -> Vec<Delivery>;
    fn counts(&mut self, queue: PartitionId) -> QueueCounts;
}

pub(crate) fn settlement(d: &Delivery, how: Settle) -> Settlement {
    Settlement { queue: d.queue, first: d.first, count: d.count, by: Holder::Lease(d.lease), how }
}

impl Queueing for Node {
    fn queue(&mut self, name: &str, settings: QueueSettings) -> PartitionId {
        let config = TopicConfig { queue: Some(settings), retention_ms: None, ..TopicConfig::default() };
        self.create(name, 1, config).partitions[0].id
    }

    fn publish(&mut self, messages: Vec<PublishMessage>) -> Vec<Result<(), PublishError>> {
        match self.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })) {
            Reply::Publish(results) => results,
            other => panic!("{other:?}"),
        }
    }

    fn attach(&mut self, queue: PartitionId, consumer: ConsumerSpec) -> Result<ConsumerId, AttachError> {
        match self.ask(Request::Attach(Attach { queue, consumer })) {
            Reply::Attach(attached) => attached,
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, deliveries: &[Delivery], how: Settle) -> Vec<Result<(), SettleError>> {
        let settlements = deliveries.iter().map(|d| settlement(d, how)).collect();
        match self.ask(Request::Settle(SettleRequest { settlements, wait: true })) {
            Reply::Settle(results) => results,
            other => panic!("{other:?}"),
        }
    }

    fn delivered(&mut self) -> Vec<Delivery> {
        self.drive();
        std::mem::take(&mut *self.client.delivered.lock())
    }

    fn counts(&mut self, queue: PartitionId) -> QueueCounts {
        match self.ask(Request::DescribeQueues(vec![queue])) {
            Reply::DescribeQueues(counts) => counts[0].expect("a queue"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_message_reaches_all_its_queues_and_each_settles_it_for_itself() {
    let world = SimWorld::new(1);
    let mut node = Node::open(&world, |_| {});
    let [a, b] = ["a", "b"].map(|name| node.queue(name, QueueSettings::default()));
    assert_eq!(node.publish(vec![message(&[a, b], "both"), message(&[b], "one"), message(&[], "none")]), [Ok(()); 3]);
    node.attach(a, ConsumerSpec::default()).unwrap();
    node.attach(b, ConsumerSpec::default()).unwrap();
    let got = node.delivered();
    let of = |queue| texts(&got.iter().filter(|d| d.queue == queue).cloned().collect::<Vec<_>>());
    assert_eq!((of(a), of(b)), (vec!["both".to_owned()], vec!["both".to_owned(), "one".to_owned()]));
    assert_eq!(node.settle(&got[..1], Settle::Accept), [Ok(())]);
    assert_eq!((node.counts(a).held, node.counts(b).held), (0, 2));
    assert_eq!(node.text(b, 0), "bothone", "a queue is a log as well");
}

#[test]
fn what_is_confirmed_and_not_settled_comes_again_after_a_crash_and_what_is_settled_does_not() {
    let world = SimWorld::new(2);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings::default());
    let messages = (0..10).map(|i| message(&[queue], &format!("m{i}"))).collect();
    assert!(node.publish(messages).iter().all(Result::is_ok));
    node.attach(queue, ConsumerSpec { prefetch: 6, ..ConsumerSpec::default() }).unwrap();
    let got = node.delivered();
    assert_eq!(texts(&got), ["m0", "m1", "m2", "m3", "m4", "m5"]);
    assert_eq!(node.settle(&[got[0].clone(), got[1].clone(), got[4].clone()], Settle::Accept), [Ok(()); 3]);
    assert_eq!(texts(&node.delivered()), ["m6", "m7", "m8"], "room for three more");
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!(node.counts(queue).ready, 7);
    node.attach(queue, ConsumerSpec::default()).unwrap();
    let got = node.delivered();
    assert_eq!(texts(&got), ["m2", "m3", "m5", "m6", "m7", "m8", "m9"]);
    assert!(got[0].redelivered, "it was handed out before the crash");
    assert_eq!(
        node.broker.partition_status(queue).unwrap().log_start,
        Offset(2),
        "what is settled at the front is gone"
    );
}

/// Messages delayed by a priority or a time arrived as `redelivered`, because they were before a delivered message.
#[test]
fn after_a_crash_only_messages_that_were_handed_out_are_redelivered() {
    for (early, checkpoints) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = SimWorld::new(31);
        let mut node = Node::open(&world, |config| config.checkpoint_bytes_max = 1);
        let queue = node.queue("q", QueueSettings { early, ..QueueSettings::default() });
        let now = node.broker.now().wall_ms;
        let of = |text: &str, priority, deliver_at| {
            let mut message = message(&[queue], text);
            (message.queues[0].priority, message.queues[0].deliver_at) = (priority, deliver_at);
            message
        };
        let late = Some(now + 20_000);
        let parked = Some(now + 200_000);
        let all = [("low", None, None), ("late", None, late), ("parked", None, parked), ("high", Some(5), None)];
        node.publish(all.map(|(text, priority, at)| of(text, priority, at)).into());
        node.attach(queue, ConsumerSpec { prefetch: 1, ..ConsumerSpec::default() }).unwrap();
        assert_eq!(texts(&node.delivered()), ["high"]);
        // No request waits for the record of it.
        for _ in 0..2 {
            // It is written after a moment, and flushed after another one.
            world.clock.advance_ms(1_000);
            node.drive();
        }
        if checkpoints {
            node.background();
        }
        drop(node);
        world.crash();
        let mut node = Node::open(&world, |_| {});
        world.clock.advance_ms(300_000);
        node.broker.tick();
        node.drive();
        node.attach(queue, ConsumerSpec::default()).unwrap();
        let got = node.delivered();
        let received: Vec<_> = texts(&got).into_iter().zip(got.iter().map(|d| d.redelivered)).collect();
        let expected = [("high", true), ("low", false), ("late", false), ("parked", false)];
        assert_eq!(received, expected.map(|(text, again)| (text.to_owned(), again)), "early: {early}");
    }
}

#[test]
fn it_comes_back_from_a_checkpoint_as_well() {
    let world = SimWorld::new(3);
    let mut node = Node::open(&world, |config| config.checkpoint_bytes_max = 1);
    let queue = node.queue("q", QueueSettings::default());
    node.publish((0..6).map(|i| message(&[queue], &format!("m{i}"))).collect());
    node.attach(queue, ConsumerSpec { prefetch: 3, ..ConsumerSpec::default() }).unwrap();
    let got = node.delivered();
    node.settle(&got[1..2], Settle::Accept);
    node.settle(&got[2..3], Settle::Return { counts: true, delay_ms: 0 });
    node.background();
    node.publish(vec![message(&[queue], "m6")]);
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    node.attach(queue, ConsumerSpec::default()).unwrap();
    let got = node.delivered();
    assert_eq!(texts(&got), ["m0", "m2", "m3", "m4", "m5", "m6"]);
    assert_eq!((got[1].failed, got[2].failed), (1, 0), "the attempt counts over the crash");
}

#[test]
fn nobody_gets_a_message_before_it_is_flushed_unless_the_queue_is_like_that() {
    for early in [false, true] {
        let world = SimWorld::new(4);
        let mut node = Node::open(&world, |_| {});
        let queue = node.queue("q", QueueSettings { early, ..QueueSettings::default() });
        node.attach(queue, ConsumerSpec::default()).unwrap();
        let request = PublishRequest { messages: vec![message(&[queue], "x")], ack: Ack::Committed, patient: false };
        let token = node.start(Request::Publish(request));
        node.broker.log_step(Work::Write);
        let there = node.client.delivered.lock().len();
        assert_eq!(there, usize::from(early), "early: {early}");
        assert!(!node.client.replies.lock().contains_key(&token), "confirmed before the flush");
        if early {
            let first = node.client.delivered.lock()[0].clone();
            assert_eq!((first.bytes, first.first), (Bytes::from_static(b"x"), Offset(0)));
        }
        assert_eq!(node.delivered().len(), 1, "handed out once");
        assert!(node.client.replies.lock().contains_key(&token), "early: {early}, {:?}", node.client.replies.lock());
    }
}

#[test]
fn a_message_that_was_handed_out_early_and_never_committed_is_void() {
    let world = SimWorld::new(5);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings { early: true, ..QueueSettings::default() });
    node.attach(queue, ConsumerSpec::default()).unwrap();
    node.start(Request::Publish(PublishRequest {
        messages: vec![message(&[queue], "x")],
        ack: Ack::Committed,
        patient: false,
    }));
    let early = node.client.delivered.lock().clone();
    assert_eq!(early.len(), 1);
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!(node.counts(queue), QueueCounts::default());
    assert_eq!(node.settle(&early, Settle::Accept), [Err(SettleError::NotHeld)]);
}

#[test]
fn what_a_session_held_goes_to_others_when_it_is_gone() {
    let world = SimWorld::new(6);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings::default());
    node.attach(queue, ConsumerSpec::default()).unwrap();
    node.publish(vec![message(&[queue], "x")]);
    assert!(!node.delivered()[0].redelivered);
    let gone = std::mem::replace(&mut node.session, node.broker.new_session());
    node.broker.session_gone(gone);
    node.attach(queue, ConsumerSpec::default()).unwrap();
    let got = node.delivered();
    assert_eq!((texts(&got), got[0].redelivered), (vec!["x".to_owned()], true));
}

/// cloudamqp/lavinmq#1958: a rejection was not reported if the message was routed to other queues as well.
#[test]
fn a_full_queue_refuses_or_drops_as_it_was_told() {
    let world = SimWorld::new(7);
    let mut node = Node::open(&world, |_| {});
    let limited = QueueSettings { length_max: Some(2), ..QueueSettings::default() };
    let refuses = node.queue("refuses", QueueSettings { overflow: Overflow::Reject, ..limited.clone() });
    let drops = node.queue("drops", limited.clone());
    for (i, expected) in [Ok(()), Ok(()), Err(PublishError::QueueFull)].into_iter().enumerate() {
        assert_eq!(node.publish(vec![message(&[refuses, drops], &format!("m{i}"))]), [expected]);
    }
    let together = node.queue("together", QueueSettings { overflow: Overflow::Reject, ..limited.clone() });
    let results = node.publish((0..4).map(|i| message(&[together], &format!("m{i}"))).collect());
    assert_eq!(results, [Ok(()), Ok(()), Err(PublishError::QueueFull), Err(PublishError::QueueFull)]);
    node.attach(drops, ConsumerSpec::default()).unwrap();
    assert_eq!(texts(&node.delivered()), ["m1", "m2"]);
    node.attach(refuses, ConsumerSpec::default()).unwrap();
    assert_eq!(texts(&node.delivered()), ["m0", "m1"]);
}

/// Messages published just before and not written yet were not counted: a get, a consume or a count after them on the same channel saw 222 messages
/// in a queue of 10.
#[test]
fn a_queue_is_not_too_long_for_what_comes_behind_an_unconfirmed_publish() {
    let bytes = Some(10 * b"m000".len() as u64);
    for (length_max, bytes_max) in [(Some(10), None), (None, bytes)] {
        let world = SimWorld::new(8);
        let mut node = Node::open(&world, |_| {});
        let queue = node.queue("q", QueueSettings { early: true, length_max, bytes_max, ..QueueSettings::default() });
        let publish = |node: &mut Node| {
            let messages = (0..222).map(|i| message(&[queue], &format!("m{i:03}"))).collect();
            node.start(Request::Publish(PublishRequest { messages, ack: Ack::None, patient: false }));
        };
        let ready = |node: &mut Node| match node.ask_now(Request::DescribeQueues(vec![queue])) {
            Reply::DescribeQueues(counts) => counts[0].expect("a queue").ready,
            other => panic!("{other:?}"),
        };
        publish(&mut node);
        assert_eq!(ready(&mut node), 10);
        let pulls = ConsumerSpec { credit: Some(0), ..ConsumerSpec::default() };
        let attach = |consumer| Request::Attach(Attach { queue, consumer });
        let Reply::Attach(Ok(consumer)) = node.ask_now(attach(pulls)) else { panic!("no consumer") };
        let Reply::Take(Ok(taken)) = node.ask_now(Request::Take(Take { queue, consumer, messages_max: 1 })) else {
            panic!("nothing is taken")
        };
        assert_eq!((texts(&taken.deliveries), taken.ready), (vec!["m212".to_owned()], 9));
        // Returned messages count as well.
        publish(&mut node);
        let settlements = vec![settlement(&taken.deliveries[0], Settle::Return { counts: false, delay_ms: 0 })];
        node.start(Request::Settle(SettleRequest { settlements, wait: false }));
        assert_eq!(ready(&mut node), 10);
        node.ask_now(attach(ConsumerSpec { prefetch: 15, ..ConsumerSpec::default() }));
        let got = std::mem::take(&mut *node.client.delivered.lock());
        assert_eq!(texts(&got), (212..222).map(|i| format!("m{i:03}")).collect::<Vec<_>>());
        // A waiting consumer gets messages up to its limit, and the rest is over the limit.
        publish(&mut node);
        assert_eq!(texts(&node.client.delivered.lock()), ["m000", "m001", "m002", "m003", "m004"]);
        assert_eq!(ready(&mut node), 10);
        node.drive();
        assert_eq!(node.counts(queue).ready, 10);
    }
}

/// `reject-publish-dlx`: the publisher is notified of the rejection, and the message is dead-lettered nevertheless.
#[test]
fn what_a_full_queue_refuses_may_be_dead_and_never_was_there() {
    let world = SimWorld::new(17);
    let mut node = Node::open(&world, |_| {});
    let full = Err(PublishError::QueueFull);
    let settings = QueueSettings {
        length_max: Some(1),
        overflow: Overflow::RejectDead,
        dead_letters: true,
        ..QueueSettings::default()
    };
    let queue = node.queue("q", settings.clone());
    let without = node.queue("without", QueueSettings { dead_letters: false, ..settings });
    let both = ["a", "b"].map(|text| message(&[queue, without], text)).to_vec();
    assert_eq!(node.publish(both), [Ok(()), full]);
    assert_eq!(node.broker.refused_dropped(), 1, "no session moves them");
    node.start(Request::MoveDead);
    assert_eq!(node.publish(["c", "d"].map(|text| message(&[queue], text)).to_vec()), [full; 2]);
    let letters = std::mem::take(&mut *node.client.dead.lock());
    let said: Vec<_> = letters.iter().map(|d| (d.queue, d.reason, &d.bytes[..])).collect();
    assert_eq!(said, [(queue, DeadReason::MaxLength, &b"c"[..]), (queue, DeadReason::MaxLength, b"d")]);
    assert!(letters.iter().all(|letter| DeadMessage::was_refused(letter.offset)));
    let offsets: Vec<_> = letters.iter().map(|letter| letter.offset.0).collect();
    answer(&mut node, queue, &offsets, DeadLetterResult::Later(1));
    world.clock.advance_ms(10);
    assert_eq!(take_dead(&node), [], "no mover keeps them");
    let counts = node.counts(queue);
    assert_eq!((counts.ready, counts.dead), (1, 0));
    // Unacknowledged messages have a bound, and acknowledgements make room.
    let many = |n: usize| (0..n).map(|_| message(&[queue], "m")).collect::<Vec<_>>();
    node.publish(many(10_000));
    node.publish(many(3));
    let letters = std::mem::take(&mut *node.client.dead.lock());
    assert_eq!((letters.len(), node.broker.refused_dropped()), (10_000, 4));
    answer(&mut node, queue, &[letters[0].offset.0], DeadLetterResult::Moved);
    node.publish(many(2));
    assert_eq!((node.client.dead.lock().len(), node.broker.refused_dropped()), (1, 5));
}

#[test]
fn credit_takes_and_purges() {
    let world = SimWorld::new(8);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings::default());
    node.publish((0..8).map(|i| message(&[queue], &format!("m{i}"))).collect());
    let consumer = node.attach(queue, ConsumerSpec { credit: Some(1), ..ConsumerSpec::default() }).unwrap();
    assert_eq!(texts(&node.delivered()), ["m0"]);
    node.start(Request::Credit(consumer, Credit { messages: 2, bytes: 0 }));
    assert_eq!(texts(&node.delivered()), ["m1", "m2"]);
    let taken = node.ask(Request::Take(Take { queue, consumer, messages_max: 2 }));
    let Reply::Take(Ok(taken)) = taken else { panic!("{taken:?}") };
    assert_eq!((texts(&taken.deliveries), taken.ready), (vec!["m3".to_owned(), "m4".to_owned()], 3));
    assert!(matches!(node.ask(Request::Purge(queue)), Reply::Purge(Ok(3))));
    assert_eq!((node.counts(queue).ready, node.counts(queue).held), (0, 5));
    node.start(Request::Detach(consumer));
    assert_eq!((node.counts(queue).ready, node.counts(queue).consumers), (5, 0));
}

#[test]
fn messages_expire_and_wait_by_the_clock() {
    let world = SimWorld::new(9);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings::default());
    let now = node.broker.now().wall_ms;
    let mut short = message(&[queue], "short");
    short.queues[0].expires_at = Some(now + 100);
    let mut later = message(&[queue], "later");
    later.queues[0].deliver_at = Some(now + 1_000);
    node.publish(vec![short, later]);
    assert_eq!((node.counts(queue).ready, node.counts(queue).delayed), (1, 1));
    world.clock.advance_ms(200);
    node.drive();
    assert_eq!(node.counts(queue).ready, 0, "it expired");
    node.attach(queue, ConsumerSpec::default()).unwrap();
    assert_eq!(node.delivered().len(), 0);
    world.clock.advance_ms(1_000);
    assert_eq!(texts(&node.delivered()), ["later"]);
}

/// `x-delayed-retry-type` was accepted and had no effect.
#[test]
fn what_comes_back_waits_as_its_queue_has_it() {
    use polylogue_types::{Backoff, Retry, RetryOn};
    let world = SimWorld::new(22);
    let mut node = Node::open(&world, |_| {});
    let retry = Some(Retry { on: RetryOn::Failed, backoff: Backoff::Linear { step_ms: 100, max_ms: 150 } });
    let queue = node.queue("q", QueueSettings { retry, ..QueueSettings::default() });
    node.attach(queue, ConsumerSpec::default()).unwrap();
    node.publish(vec![message(&[queue], "x")]);
    let mut got = node.delivered();
    node.settle(&got, Settle::Return { counts: false, delay_ms: 0 });
    got = node.delivered();
    assert_eq!(got.len(), 1, "it has not failed");
    for wait_ms in [100, 150, 150] {
        node.settle(&got, Settle::Return { counts: true, delay_ms: 0 });
        assert_eq!(node.counts(queue).delayed, 1);
        world.clock.advance_ms(wait_ms - 1);
        assert!(node.delivered().is_empty());
        world.clock.advance_ms(1);
        got = node.delivered();
        assert_eq!(got.len(), 1, "after {wait_ms} ms");
    }
    // It is returned with its consumer, which counts.
    let session = node.session;
    node.broker.session_gone(session);
    node.session = node.broker.new_session();
    node.attach(queue, ConsumerSpec::default()).unwrap();
    assert!(node.delivered().is_empty());
    world.clock.advance_ms(150);
    assert_eq!(node.delivered().len(), 1);
}

#[test]
fn a_delay_goes_on_over_a_crash() {
    let world = SimWorld::new(18);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings::default());
    let mut later = message(&[queue], "later");
    later.queues[0].deliver_at = Some(node.broker.now().wall_ms + 10_000);
    node.publish(vec![later, message(&[queue], "now")]);
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!((node.counts(queue).ready, node.counts(queue).delayed), (1, 1));
    node.attach(queue, ConsumerSpec::default()).unwrap();
    assert_eq!(texts(&node.delivered()), ["now"]);
    world.clock.advance_ms(9_000);
    assert_eq!(texts(&node.delivered()), [""; 0]);
    world.clock.advance_ms(1_100);
    assert_eq!(texts(&node.delivered()), ["later"]);
}

#[test]
fn a_deleted_queue_lets_its_consumers_know() {
    let world = SimWorld::new(10);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings::default());
    let consumer = node.attach(queue, ConsumerSpec::default()).unwrap();
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("q".into())] }));
    assert_eq!(*node.client.detached.lock(), [consumer]);
    assert_eq!(node.publish(vec![message(&[queue], "x")]), [Err(PublishError::UnknownQueue)]);
    assert!(matches!(node.attach(queue, ConsumerSpec::default()), Err(AttachError::UnknownQueue)));
}

/// A client that found a queue before its deletion asks for its messages afterwards.
#[test]
fn what_is_asked_of_a_deleted_queue_finds_none() {
    let world = SimWorld::new(10);
    let mut node = Node::open(&world, |config| config.store.tail_cache_bytes = 0);
    let queue = node.queue("q", QueueSettings::default());
    node.publish(vec![message(&[queue], "m"), message(&[queue], "n")]);
    let pull = ConsumerSpec { credit: Some(0), ..ConsumerSpec::default() };
    let consumer = node.attach(queue, pull).unwrap();
    let take = Take { queue, consumer, messages_max: 1 };
    let Reply::Take(Ok(taken)) = node.ask(Request::Take(take)) else { panic!("nothing is taken") };
    // One message is being read from the disk, and a purge is pending.
    let reading = node.start(Request::Take(take));
    let delete = DeleteTopics { topics: vec![TopicRef::Name("q".into())] };
    node.start(Request::DeleteTopics(delete));
    let purging = node.start(Request::Purge(queue));
    node.drive();
    let answer = |token| node.client.replies.lock().remove(&token).expect("an answer");
    let (reading, purging) = (answer(reading), answer(purging));
    // Both were requested before the deletion was applied.
    assert!(matches!(&reading, Reply::Take(Ok(taken)) if taken.deliveries.len() <= 1), "{reading:?}");
    assert!(matches!(purging, Reply::Purge(Ok(_) | Err(SettleError::UnknownQueue))), "{purging:?}");
    let unknown = SettleError::UnknownQueue;
    let reply = node.ask_now(Request::Take(take));
    assert!(matches!(reply, Reply::Take(Err(why)) if why == unknown), "{reply:?}");
    let reply = node.ask_now(Request::Purge(queue));
    assert!(matches!(reply, Reply::Purge(Err(why)) if why == unknown), "{reply:?}");
    assert_eq!(node.settle(&taken.deliveries, Settle::Accept), [Err(unknown)]);
    let reply = node.ask_now(Request::DescribeQueues(vec![queue]));
    assert!(matches!(&reply, Reply::DescribeQueues(counts) if counts[..] == [None]), "{reply:?}");
}

/// A message that a mover retries until it is moved: each try left a copy in the dead-letter queue, and one in each queue that had room.
#[test]
fn what_goes_to_all_of_its_queues_or_none_leaves_no_copies() {
    let world = SimWorld::new(17);
    let mut node = Node::open(&world, |_| {});
    node.start(Request::MoveDead);
    let full = Err(PublishError::QueueFull);
    let settings = QueueSettings {
        length_max: Some(2),
        overflow: Overflow::RejectDead,
        dead_letters: true,
        ..QueueSettings::default()
    };
    let limited = node.queue("limited", settings);
    let memory = TopicConfig {
        queue: Some(QueueSettings::default()),
        retention_ms: None,
        durability: Durability::Memory,
        ..TopicConfig::default()
    };
    let others = [node.queue("other", QueueSettings::default()), node.create("memory", 1, memory).partitions[0].id];
    for (i, other) in others.into_iter().enumerate() {
        let moved = |queues: &[PartitionId]| PublishMessage { all_or_none: true, ..message(queues, "m") };
        let [first, second] = [moved(&[limited, other]), moved(&[other, limited])];
        // Earlier messages of the request count.
        let all = vec![first, moved(&[limited]), second, moved(&[other])];
        let expected = if i == 0 { [Ok(()), Ok(()), full, Ok(())] } else { [full, full, full, Ok(())] };
        assert_eq!(node.publish(all), expected);
        assert_eq!((take_dead(&node), node.counts(limited).ready), (vec![], 2));
        assert_eq!(node.counts(other).ready, if i == 0 { 2 } else { 1 });
    }
    // Other publishers are not affected.
    assert_eq!(node.publish(vec![message(&[limited, others[0]], "m")]), [full]);
    assert_eq!((take_dead(&node).len(), node.counts(others[0]).ready), (1, 3));
}

/// The deletion of one of a message's queues hid the rejection by another one, if that was later in the message's targets.
#[test]
fn a_queue_that_is_gone_hides_nothing() {
    let world = SimWorld::new(10);
    let mut node = Node::open(&world, |_| {});
    let full = QueueSettings { length_max: Some(0), overflow: Overflow::Reject, ..QueueSettings::default() };
    let (gone, full) = (node.queue("gone", QueueSettings::default()), node.queue("full", full));
    let there = node.queue("there", QueueSettings::default());
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("gone".into())] }));
    for (queues, expected) in [
        ([full, gone, there], PublishError::QueueFull),
        ([gone, there, full], PublishError::QueueFull),
        ([there, gone, gone], PublishError::UnknownQueue),
    ] {
        assert_eq!(node.publish(vec![message(&queues, "m")]), [Err(expected)]);
    }
    assert_eq!(node.counts(there).ready, 3);
}

/// After a message that had to be read from the disk, an unflushed one was also looked for on the disk, was not found, and was settled as lost: a
/// confirmed message was lost.
#[test]
fn what_is_handed_out_early_behind_an_old_message_is_not_lost() {
    let world = SimWorld::new(21);
    let mut node = Node::open(&world, |config| config.store.tail_cache_bytes = 0);
    let queue = node.queue("q", QueueSettings { early: true, ..QueueSettings::default() });
    assert_eq!(node.publish(vec![message(&[queue], "old")]), [Ok(())]);
    let publish = PublishRequest { messages: vec![message(&[queue], "new")], ack: Ack::Committed, patient: false };
    let confirm = node.start(Request::Publish(publish));
    node.start(Request::Attach(Attach { queue, consumer: ConsumerSpec::default() }));
    while node.broker.read_step() {}
    assert!(!node.client.replies.lock().contains_key(&confirm), "it is not flushed yet");
    assert_eq!(texts(&std::mem::take(&mut *node.client.delivered.lock())), ["old", "new"]);
    node.drive();
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    node.attach(queue, ConsumerSpec::default()).unwrap();
    assert_eq!(texts(&node.delivered()), ["old", "new"]);
}

#[test]
fn other_limits_hold_from_when_they_are_committed() {
    let world = SimWorld::new(16);
    let mut node = Node::open(&world, |_| {});
    let config = |queue| TopicConfig { queue: Some(queue), retention_ms: None, ..TopicConfig::default() };
    let topic = node.create("q", 1, config(QueueSettings::default()));
    let queue = topic.partitions[0].id;
    node.publish((0..4).map(|i| message(&[queue], &format!("m{i}"))).collect());
    let limited = QueueSettings { length_max: Some(2), dead_letters: true, ..QueueSettings::default() };
    let change = ConfigChange { expected: topic.config.raw.clone(), config: config(limited) };
    let changes = vec![TopicChange { topic: topic.id, config: Some(change), partitions: None }];
    let altered = node.ask(Request::AlterTopics(AlterTopics { changes, validate_only: false }));
    assert!(matches!(altered, Reply::AlterTopics(results) if results == [Ok(())]));
    let counts = QueueCounts { ready: 2, dead: 2, ready_bytes: 4, dead_bytes: 4, ..QueueCounts::default() };
    assert_eq!(node.counts(queue), counts);
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    node.publish(vec![message(&[queue], "m4")]);
    assert_eq!((node.counts(queue).ready, node.counts(queue).dead), (2, 3), "after a start as well");
}

#[test]
fn what_is_sent_without_a_queue_reaches_its_consumer_now_or_never() {
    let world = SimWorld::new(17);
    let mut node = Node::open(&world, |_| {});
    let Reply::AttachDirect(to) = node.ask_now(Request::AttachDirect) else { panic!("no address") };
    let mut send = |to, bytes: Option<usize>| {
        let message = Direct { to, bytes: bytes.map(|len| Bytes::from(vec![7; len])) };
        let reply = node.ask_now(Request::SendDirect(vec![message]));
        let got = std::mem::take(&mut *node.client.delivered.lock()).len();
        let Reply::SendDirect(there) = reply else { panic!("{reply:?}") };
        (there[0], got)
    };
    assert_eq!(send(to, None), (true, 0), "only asked");
    assert_eq!(send(DirectAddress { secret: to.secret ^ 1, ..to }, Some(1)), (false, 0), "a guessed secret");
    assert_eq!(send(to, Some(5 << 20)), (true, 1), "one may be large");
    assert_eq!(send(to, Some(1)), (false, 0), "not taken yet");
    node.start(Request::Credit(to.consumer, Credit { messages: 1, bytes: 0 }));
    for _ in 0..1_000 {
        let message = Direct { to, bytes: Some(Bytes::from_static(b"x")) };
        let Reply::SendDirect(there) = node.ask_now(Request::SendDirect(vec![message])) else { panic!("no answer") };
        assert_eq!(there, [true]);
    }
    let message = Direct { to, bytes: Some(Bytes::from_static(b"x")) };
    assert!(matches!(node.ask_now(Request::SendDirect(vec![message])), Reply::SendDirect(there) if there == [false]));
    let gone = std::mem::replace(&mut node.session, node.broker.new_session());
    node.broker.session_gone(gone);
    let message = Direct { to, bytes: None };
    assert!(matches!(node.ask_now(Request::SendDirect(vec![message])), Reply::SendDirect(there) if there == [false]));
}

#[test]
fn a_consumer_that_does_not_read_gets_no_more_bytes_than_its_window() {
    let world = SimWorld::new(18);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings { early: true, ..QueueSettings::default() });
    let window = ConsumerSpec { credit: Some(1_000), window_bytes: 10, settles: true, ..ConsumerSpec::default() };
    let consumer = node.attach(queue, window).unwrap();
    node.publish((0..5).map(|i| message(&[queue], &format!("four{i}"))).collect());
    let got = node.delivered();
    assert_eq!(got.iter().map(|d| d.weight).collect::<Vec<_>>(), [5, 5]);
    node.start(Request::Credit(consumer, Credit { messages: 1, bytes: got[0].weight }));
    assert_eq!(texts(&node.delivered()), ["four2"]);
    node.start(Request::Credit(consumer, Credit { messages: 2, bytes: 10 }));
    assert_eq!(texts(&node.delivered()), ["four3", "four4"]);
}

/// The prefetch of a whole channel was enforced on arrival: messages over the limit went there and back, the first queue was drained before the
/// others, and a consumer without acknowledgements had no limit.
#[test]
fn a_limit_that_consumers_share_goes_round_their_queues() {
    let world = SimWorld::new(19);
    let mut node = Node::open(&world, |_| {});
    let limit = std::sync::Arc::new(polylogue_types::SharedLimit::default());
    limit.set_max(10);
    let spec = |settles| ConsumerSpec { settles, shared: Some(limit.clone()), ..ConsumerSpec::default() };
    let early = QueueSettings { early: true, ..QueueSettings::default() };
    let memory = TopicConfig {
        queue: Some(early.clone()),
        retention_ms: None,
        durability: Durability::Memory,
        ..TopicConfig::default()
    };
    // In several shards.
    let other = node.create("c", 1, memory).partitions[0].id;
    let queues = [node.queue("a", early.clone()), node.queue("b", early.clone()), other];
    for queue in queues {
        node.publish((0..100).map(|i| message(&[queue], &format!("m{i}"))).collect());
        node.attach(queue, spec(false)).unwrap();
    }
    let mut held = std::collections::VecDeque::from(node.delivered());
    let mut acked = [0; 3];
    for _ in 0..150 {
        assert_eq!(held.len(), 10);
        let delivery = held.pop_front().unwrap();
        acked[queues.iter().position(|queue| *queue == delivery.queue).unwrap()] += 1;
        node.settle(&[delivery], Settle::Accept);
        held.extend(node.delivered());
    }
    // The first ten were of the first queue.
    assert!(acked.iter().all(|count| (45..=58).contains(count)), "{acked:?}");
    // A consumer that settles by being sent waits, and a deleted queue makes room.
    let settles = node.queue("settles", early);
    node.publish(vec![message(&[settles], "x")]);
    let waiting = node.attach(settles, spec(true)).unwrap();
    assert_eq!(node.delivered().len(), 0);
    for name in ["a", "b", "c"] {
        node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name(name.into())] }));
    }
    assert_eq!(node.delivered().iter().filter(|one| (one.consumer, one.queue) == (waiting, settles)).count(), 1);
    assert_eq!(limit.held(), 0);
}
