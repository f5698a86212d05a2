//! Faults of queues: uncached bodies, slow disks, limits, lost writers, consumers that attach and detach at a bad moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, message, texts};
use parking_lot::Mutex;
use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig, ReplySink};
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_env::{Disk, OpenMode};
use polylogue_log::check::repair;
use polylogue_replicate::Work;
use polylogue_types::{Offset, PartitionId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

fn config(settings: QueueSettings) -> TopicConfig {
    TopicConfig { queue: Some(settings), retention_ms: None, ..TopicConfig::default() }
}

fn queue(node: &mut Node, name: &str, settings: QueueSettings) -> PartitionId {
    node.create(name, 1, config(settings)).partitions[0].id
}

fn publish(node: &mut Node, messages: Vec<PublishMessage>) -> Vec<Result<(), PublishError>> {
    match node.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })) {
        Reply::Publish(results) => results,
        other => panic!("{other:?}"),
    }
}

fn attach(node: &mut Node, queue: PartitionId, consumer: ConsumerSpec) -> ConsumerId {
    match node.ask_now(Request::Attach(Attach { queue, consumer })) {
        Reply::Attach(Ok(id)) => id,
        other => panic!("{other:?}"),
    }
}

fn settle(node: &mut Node, d: &Delivery, by: Holder, how: Settle) -> Result<(), SettleError> {
    let settlement = Settlement { queue: d.queue, first: d.first, count: d.count, by, how };
    match node.ask(Request::Settle(SettleRequest { settlements: vec![settlement], wait: true })) {
        Reply::Settle(results) => results[0],
        other => panic!("{other:?}"),
    }
}

fn counts(node: &mut Node, queue: PartitionId) -> QueueCounts {
    match node.ask(Request::DescribeQueues(vec![queue])) {
        Reply::DescribeQueues(counts) => counts[0].expect("a queue"),
        other => panic!("{other:?}"),
    }
}

fn delivered(node: &Node) -> Vec<Delivery> {
    std::mem::take(&mut *node.client.delivered.lock())
}

/// Runs the journal and not the readers.
fn log_only(node: &Node) {
    node.broker.tick();
    while node.broker.log_step(Work::Write) | node.broker.log_step(Work::Flush) {}
}

/// A broker with empty caches.
fn cold(world: &SimWorld) -> Node {
    Node::open(world, |config| config.store.tail_cache_bytes = 0)
}

/// Messages that a consumer settles by receiving were recorded as settled before they were read: their bodies were trimmed from the log meanwhile,
/// and the messages were lost.
#[test]
fn what_is_settled_by_being_sent_stays_in_the_log_until_it_is_read() {
    let world = SimWorld::new(1);
    let mut node = cold(&world);
    let [queue, other] = ["q", "other"].map(|name| queue(&mut node, name, QueueSettings::default()));
    publish(&mut node, (0..300).map(|i| message(&[queue], &format!("m{i}"))).collect());
    drop(node);
    world.crash();
    let mut node = cold(&world);
    let consumer = attach(&mut node, queue, ConsumerSpec { credit: Some(0), settles: true, ..ConsumerSpec::default() });
    let take = node.start(Request::Take(Take { queue, consumer, messages_max: 2 }));
    // A record without a waiter is committed with one that has a waiter.
    let something = || {
        let messages = vec![message(&[other], "something")];
        Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })
    };
    node.start(something());
    log_only(&node);
    node.drive();
    let taken = node.client.replies.lock().remove(&take);
    let Some(Reply::Take(Ok(taken))) = taken else { panic!("{taken:?}") };
    assert_eq!(texts(&taken.deliveries), ["m0", "m1"]);
    attach(&mut node, queue, ConsumerSpec { settles: true, ..ConsumerSpec::default() });
    node.start(something());
    log_only(&node);
    assert_eq!(delivered(&node).len(), 0, "nothing is read yet");
    node.drive();
    let expected: Vec<_> = (2..300).map(|i| format!("m{i}")).collect();
    assert_eq!(texts(&delivered(&node)), expected);
    assert_eq!(counts(&mut node, queue), QueueCounts { consumers: 1, ..QueueCounts::default() });
    // The two records have no waiter: each is written with the next record.
    publish(&mut node, vec![message(&[queue], "next")]);
    publish(&mut node, vec![message(&[queue], "last")]);
    let log_start = node.broker.partition_status(queue).unwrap().log_start;
    assert!(log_start >= Offset(300), "all of it is settled: {log_start:?}");
}

/// The message was settled at its delivery, and lost with its consumer.
#[test]
fn what_is_not_read_yet_when_its_consumer_goes_is_for_others() {
    let world = SimWorld::new(2);
    let mut node = cold(&world);
    let queue = queue(&mut node, "q", QueueSettings::default());
    publish(&mut node, vec![message(&[queue], "x")]);
    let consumer = attach(&mut node, queue, ConsumerSpec { settles: true, ..ConsumerSpec::default() });
    node.start(Request::Detach(consumer));
    node.drive();
    assert_eq!((delivered(&node).len(), counts(&mut node, queue).ready), (0, 1));
    attach(&mut node, queue, ConsumerSpec { settles: true, ..ConsumerSpec::default() });
    node.drive();
    assert_eq!(texts(&delivered(&node)), ["x"]);
}

/// A consumer that settles by being sent was cancelled while a message was in flight to it: the message was settled, and not received.
#[test]
fn who_stops_is_told_so_when_what_was_on_its_way_is_sent() {
    let world = SimWorld::new(2);
    let mut node = Node::open(&world, |config| config.store.tail_cache_bytes = 0);
    let queue = queue(&mut node, "q", QueueSettings::default());
    publish(&mut node, vec![message(&[queue], "x")]);
    let consumer = attach(&mut node, queue, ConsumerSpec { settles: true, ..ConsumerSpec::default() });
    let stop = node.start(Request::Stop(consumer));
    assert!(!node.client.replies.lock().contains_key(&stop), "its message is being read");
    node.drive();
    assert_eq!(texts(&delivered(&node)), ["x"]);
    assert!(matches!(node.client.replies.lock().remove(&stop), Some(Reply::Stopped)));
    let again = node.start(Request::Stop(consumer));
    assert!(matches!(node.client.replies.lock().remove(&again), Some(Reply::Stopped)), "nothing is on its way");
}

/// Returned messages made the queue longer than its limit, and confirmed messages were dropped from its head.
#[test]
fn a_queue_that_refuses_when_it_is_full_never_drops_what_it_took() {
    let world = SimWorld::new(3);
    let mut node = Node::open(&world, |_| {});
    let limit = QueueSettings { length_max: Some(2), overflow: Overflow::Reject, ..QueueSettings::default() };
    let queue = queue(&mut node, "q", limit.clone());
    let consumer = attach(&mut node, queue, ConsumerSpec::default());
    assert_eq!(publish(&mut node, ["a", "b"].map(|text| message(&[queue], text)).to_vec()), [Ok(()), Ok(())]);
    node.start(Request::Stop(consumer));
    assert_eq!(publish(&mut node, ["c", "d"].map(|text| message(&[queue], text)).to_vec()), [Ok(()), Ok(())]);
    node.start(Request::Detach(consumer));
    assert_eq!(counts(&mut node, queue).ready, 4);
    assert_eq!(publish(&mut node, vec![message(&[queue], "e")]), [Err(PublishError::QueueFull)]);
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    delivered(&node);
    attach(&mut node, queue, ConsumerSpec::default());
    node.drive();
    assert_eq!(texts(&delivered(&node)), ["a", "b", "c", "d"]);
}

/// The timer woke up repeatedly for a queue that was deleted.
#[test]
fn a_deleted_queue_that_waited_for_a_time_does_not_keep_the_timer_awake() {
    let world = SimWorld::new(4);
    let mut node = Node::open(&world, |_| {});
    let queue = queue(&mut node, "q", QueueSettings::default());
    let mut short = message(&[queue], "short");
    short.queues[0].expires_at = Some(node.broker.now().wall_ms + 50);
    publish(&mut node, vec![short]);
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("q".into())] }));
    world.clock.advance_ms(100);
    node.drive();
    assert!(node.broker.next_tick_ms() > node.broker.now().monotonic_ms);
}

/// The same with dead messages that were to be retried while others were being read.
#[test]
fn dead_messages_to_be_tried_again_do_not_keep_the_timer_awake_while_others_are_read() {
    let world = SimWorld::new(5);
    let mut node = cold(&world);
    node.start(Request::MoveDead);
    let settings = QueueSettings { dead_letters: true, length_max: Some(0), ..QueueSettings::default() };
    let queue = queue(&mut node, "q", settings);
    publish(&mut node, vec![message(&[queue], "a")]);
    node.drive();
    assert_eq!(node.client.dead.lock().len(), 1);
    let request = PublishRequest { messages: vec![message(&[queue], "b")], ack: Ack::Committed, patient: false };
    node.start(Request::Publish(request));
    log_only(&node);
    let outcome = DeadOutcome { queue, offset: Offset(0), how: DeadLetterResult::Later(50) };
    node.start(Request::DeadMoved(vec![outcome]));
    world.clock.advance_ms(100);
    log_only(&node);
    assert!(node.broker.next_tick_ms() > node.broker.now().monotonic_ms);
    node.drive();
    assert_eq!(node.client.dead.lock().len(), 3, "both are reported, the first one again");
}

/// Messages that could not be read from disk made room without a notification of waiters.
#[test]
fn dead_messages_that_cannot_be_read_make_room_for_those_of_other_queues() {
    let world = SimWorld::new(12);
    let mut node = cold(&world);
    let settings = QueueSettings { dead_letters: true, length_max: Some(0), ..QueueSettings::default() };
    let queues: Vec<_> = (0..17).map(|i| queue(&mut node, &format!("q{i}"), settings.clone())).collect();
    publish(&mut node, (0..256).map(|i| message(&queues, &format!("{i}"))).collect());
    node.start(Request::MoveDead);
    world.disk.inject(Fault::from(FaultOp::Read, 1, FaultKind::Io));
    node.broker.read_step();
    world.disk.clear_faults();
    node.drive();
    let mut reported = [0; 17];
    for dead in node.client.dead.lock().iter() {
        reported[queues.iter().position(|queue| *queue == dead.queue).unwrap()] += 1;
    }
    reported.sort_unstable();
    assert_eq!((reported[0], &reported[1..]), (0, &[256; 16][..]), "the first one waits a second");
}

/// A publish to very many queues made a proposal larger than any frame: the shard lost its writer, and all messages in flight were refused.
#[test]
fn references_count_in_what_goes_into_one_proposal() {
    let world = SimWorld::new(6);
    let mut node = Node::open(&world, |_| {});
    let queues: Vec<_> = (0..100).map(|i| queue(&mut node, &format!("q{i}"), QueueSettings::default())).collect();
    let before = node.broker.shards()[1].proposals_open;
    let messages = (0..200).map(|i| message(&queues, &format!("{i}"))).collect();
    let token = node.start(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
    // At least 20,000 entries of 64 bytes.
    let proposals = node.broker.shards()[1].proposals_open - before;
    assert!((3..=5).contains(&proposals), "{proposals}");
    node.drive();
    let reply = node.client.replies.lock().remove(&token);
    assert!(matches!(reply, Some(Reply::Publish(results)) if results == [Ok(()); 200]));
    assert_eq!(counts(&mut node, queues[99]).ready, 200);
}

/// The same for a single message: its body is stored more than once, and each queue finds it.
#[test]
fn a_message_for_more_queues_than_a_proposal_holds_reaches_all_of_them() {
    let world = SimWorld::new(7);
    let mut node = Node::open(&world, |_| {});
    let queues: Vec<_> = (0..20).map(|i| queue(&mut node, &format!("q{i}"), QueueSettings::default())).collect();
    let text = "x".repeat(510 << 10);
    let targets: Vec<_> = queues.iter().copied().cycle().take(1_000).collect();
    assert_eq!(publish(&mut node, vec![message(&targets, &text)]), [Ok(())]);
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    for queue in &queues {
        let start = node.broker.partition_status(*queue).unwrap();
        assert_eq!(start.high_watermark, Offset(50));
        assert_eq!(node.text(*queue, 49).len(), text.len());
    }
}

/// A session that runs an event between the reply to its attach and the broker's next step.
#[derive(Debug)]
struct Slow {
    broker: Weak<Broker>,
    events: Mutex<Vec<String>>,
    delete: bool,
}

impl ReplySink for Slow {
    fn reply(&self, _: Token, reply: Reply) {
        let Reply::Attach(Ok(_)) = reply else { return };
        if let Some(broker) = self.broker.upgrade() {
            if self.delete {
                let sink: Arc<dyn ReplySink> = Arc::new(node::Client::default());
                let delete = DeleteTopics { topics: vec![TopicRef::Name("q".into())] };
                broker.submit(&sink, broker.new_session(), 1, Request::DeleteTopics(delete));
            }
            // Messages are committed on another thread.
            while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {}
        }
        self.events.lock().push("attached".into());
    }

    fn event(&self, event: Event) {
        self.events.lock().push(match event {
            Event::Deliver(_) => "delivered".into(),
            Event::Detached(_) => "detached".into(),
            other => format!("{other:?}"),
        });
    }
}

/// Messages arrived for a consumer that its session did not know yet: they were dropped, or held forever.
#[test]
fn a_consumer_is_told_that_it_is_there_before_anything_else() {
    for delete in [false, true] {
        let world = SimWorld::new(8);
        let mut config = BrokerConfig::new("/data".into());
        config.disk_reserve_bytes = 0;
        let broker = Arc::new(Broker::open(world.env(), config, BTreeMap::new()).unwrap());
        let client = Arc::new(node::Client::default());
        let sink: Arc<dyn ReplySink> = client.clone();
        let session = broker.new_session();
        let go = || while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {};
        let topic = NewTopic {
            name: "q".into(),
            partitions: 1,
            config: self::config(QueueSettings::default()),
            internal: false,
        };
        broker.submit(
            &sink,
            session,
            1,
            Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false }),
        );
        go();
        let queue = broker.catalog().topic("q").unwrap().partitions[0].id;
        let request = PublishRequest { messages: vec![message(&[queue], "x")], ack: Ack::Committed, patient: false };
        broker.submit(&sink, session, 2, Request::Publish(request));
        let slow = Arc::new(Slow { broker: Arc::downgrade(&broker), events: Mutex::default(), delete });
        let other: Arc<dyn ReplySink> = slow.clone();
        let consumer = ConsumerSpec { settles: true, ..ConsumerSpec::default() };
        broker.submit(&other, broker.new_session(), 1, Request::Attach(Attach { queue, consumer }));
        go();
        let events = std::mem::take(&mut *slow.events.lock());
        let after = events.iter().position(|what| what == "attached").map(|at| events[at + 1..].to_vec());
        let expected = if delete { "detached" } else { "delivered" };
        assert_eq!(after, Some(vec![expected.to_owned()]), "{events:?}");
    }
}

/// A message that could not be read from disk was read again immediately, forever, with a report each time.
#[test]
fn what_the_disk_does_not_give_is_read_again_after_a_while() {
    let world = SimWorld::new(9);
    let mut node = cold(&world);
    let queue = queue(&mut node, "q", QueueSettings::default());
    publish(&mut node, vec![message(&[queue], "x")]);
    world.disk.inject(Fault::from(FaultOp::Read, 1, FaultKind::Io));
    attach(&mut node, queue, ConsumerSpec::default());
    for _ in 0..20 {
        node.broker.read_step();
    }
    assert_eq!(node.broker.failures()["delivery"].count, 1);
    world.disk.clear_faults();
    assert_eq!(delivered(&node).len(), 0);
    world.clock.advance_ms(1_100);
    node.drive();
    assert_eq!(texts(&delivered(&node)), ["x"]);
}

/// Returns the position of some bytes in the journal of the shard that holds the partitions.
fn find(world: &SimWorld, bytes: &[u8]) -> (PathBuf, u64) {
    let dir = Path::new("/data/shard-0001/journal");
    for name in world.disk.list(dir).expect("lists") {
        let file = world.disk.open(&dir.join(&name), OpenMode::Read).expect("opens");
        let mut all = vec![0; file.size().expect("a size") as usize];
        file.read_exact_at(&mut all, 0).expect("reads");
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            return (dir.join(name), at as u64);
        }
    }
    panic!("it is not in the journal");
}

/// A repair left a record about messages that were lost: the shard could not be opened.
#[test]
fn a_repaired_journal_may_tell_of_messages_that_are_lost() {
    // In the body, which destroys that message; and before it, in the frame's head.
    for before in [0u64, 120] {
        let world = SimWorld::new(10);
        let mut node = Node::open(&world, |_| {});
        let queue = queue(&mut node, "q", QueueSettings::default());
        attach(&mut node, queue, ConsumerSpec::default());
        for text in ["a", "b", "c"] {
            publish(&mut node, vec![message(&[queue], &text.repeat(5_000))]);
        }
        let got = delivered(&node);
        assert_eq!(got.len(), 3);
        for one in [&got[0], &got[2]] {
            assert_eq!(settle(&mut node, one, Holder::Lease(one.lease), Settle::Accept), Ok(()));
        }
        drop(node);
        world.crash();
        let (path, at) = find(&world, "c".repeat(5_000).as_bytes());
        for byte in at - before..at + 100 - before {
            world.disk.flip_bit(&path, byte, 3).unwrap();
        }
        let report = repair(&world.env(), Path::new("/data/shard-0001"), true).expect("repairs");
        assert_eq!(report.lost_frames, 1, "{report:?}");
        let mut node = Node::open(&world, |_| {});
        assert_eq!(counts(&mut node, queue).ready, 1, "{before} before");
        publish(&mut node, vec![message(&[queue], "d")]);
        attach(&mut node, queue, ConsumerSpec::default());
        node.drive();
        let texts: Vec<_> = texts(&delivered(&node)).iter().map(|text| text[..1].to_owned()).collect();
        assert_eq!(texts, ["b", "d"], "{before} before");
    }
}

/// A message was delivered before its flush, which failed. Another one got its offset, went to the same consumer, and was settled by the
/// acknowledgement of the first.
#[test]
fn an_acknowledgement_of_what_never_was_settles_nothing_else() {
    let world = SimWorld::new(11);
    let mut node = Node::open(&world, |_| {});
    let queue = queue(&mut node, "q", QueueSettings { early: true, ..QueueSettings::default() });
    let consumer = attach(&mut node, queue, ConsumerSpec::default());
    world.disk.inject(Fault::from(FaultOp::Write, 1, FaultKind::NoSpace));
    let never = publish(&mut node, vec![message(&[queue], "never")]);
    assert!(matches!(never[..], [Err(PublishError::Unavailable(_))]), "{never:?}");
    world.disk.clear_faults();
    let first = delivered(&node);
    assert_eq!(texts(&first), ["never"]);
    for _ in 0..10 {
        world.clock.advance_ms(600);
        node.background();
    }
    assert_eq!(publish(&mut node, vec![message(&[queue], "really")]), [Ok(())]);
    let second = delivered(&node);
    assert_eq!((texts(&second), second[0].first), (vec!["really".to_owned()], first[0].first));
    let by = |d: &Delivery| Holder::Consumer(consumer, d.life);
    assert_eq!(settle(&mut node, &first[0], by(&first[0]), Settle::Accept), Err(SettleError::NotHeld));
    assert_eq!(counts(&mut node, queue).held, 1);
    assert_eq!(settle(&mut node, &second[0], by(&second[0]), Settle::Accept), Ok(()));
}

/// Acknowledgements that arrived while a record of earlier ones was in flight were lost at a clean stop: the messages were redelivered.
#[test]
fn a_stop_in_good_order_keeps_every_acknowledgement() {
    let world = SimWorld::new(77);
    let mut node = Node::open(&world, |_| {});
    let q = queue(&mut node, "q", QueueSettings::default());
    publish(&mut node, (0..5).map(|at| message(&[q], &at.to_string())).collect());
    attach(&mut node, q, ConsumerSpec::default());
    node.drive();
    let got = delivered(&node);
    for d in &got[..4] {
        let settlement =
            Settlement { queue: q, first: d.first, count: d.count, by: Holder::Lease(d.lease), how: Settle::Accept };
        node.start(Request::Settle(SettleRequest { settlements: vec![settlement], wait: false }));
    }
    node.broker.shutdown();
    drop(node);
    let mut node = Node::open(&world, |_| {});
    assert_eq!(counts(&mut node, q).ready, 1);
    attach(&mut node, q, ConsumerSpec::default());
    node.drive();
    assert_eq!(texts(&delivered(&node)), ["4"]);
}
