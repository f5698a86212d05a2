//! Delayed messages on the simulated machine: ready at their time, after any event, without memory per message. And messages with a distant expiry
//! time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, message, texts};
use polylogue_api::*;
use polylogue_broker::BrokerConfig;
use polylogue_env::Disk;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_replicate::Work;
use polylogue_types::PartitionId;
use std::path::{Path, PathBuf};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A node with one queue, and its directory.
struct Rig {
    world: SimWorld,
    node: Option<Node>,
    queue: PartitionId,
    tune: fn(&mut BrokerConfig),
}

fn settings() -> QueueSettings {
    QueueSettings { early: true, ..QueueSettings::default() }
}

fn settlement(d: &Delivery, how: Settle) -> Settlement {
    Settlement { queue: d.queue, first: d.first, count: d.count, by: Holder::Lease(d.lease), how }
}

fn small(config: &mut BrokerConfig) {
    config.checkpoint_bytes_max = 1;
}

/// Empties all caches.
fn cold(config: &mut BrokerConfig) {
    small(config);
    config.store.tail_cache_bytes = 0;
}

impl Rig {
    fn new(seed: u64, settings: QueueSettings) -> Rig {
        Rig::tuned(seed, settings, small)
    }

    fn tuned(seed: u64, settings: QueueSettings, tune: fn(&mut BrokerConfig)) -> Rig {
        let world = SimWorld::new(seed);
        let mut node = Node::open(&world, tune);
        let config = TopicConfig { queue: Some(settings), retention_ms: None, ..TopicConfig::default() };
        let queue = node.create("q", 1, config).partitions[0].id;
        Rig { world, node: Some(node), queue, tune }
    }

    fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("it runs")
    }

    fn now_ms(&mut self) -> u64 {
        self.node().broker.now().wall_ms as u64
    }

    fn crash(&mut self) {
        self.node = None;
        self.world.crash();
        self.node = Some(Node::open(&self.world, self.tune));
    }

    /// Publishes messages with these texts, each at its time.
    fn publish(&mut self, messages: impl IntoIterator<Item = (String, u64)>) {
        self.publish_to(self.queue, messages);
    }

    fn publish_to(&mut self, queue: PartitionId, messages: impl IntoIterator<Item = (String, u64)>) {
        let delayed = |(text, at_ms): (String, u64)| {
            let mut message = message(&[queue], &text);
            message.queues[0].deliver_at = Some(at_ms as i64);
            message
        };
        let messages = messages.into_iter().map(delayed).collect();
        let request = PublishRequest { messages, ack: Ack::Committed, patient: false };
        match self.node().ask(Request::Publish(request)) {
            Reply::Publish(results) => assert!(results.iter().all(Result::is_ok)),
            other => panic!("{other:?}"),
        }
    }

    fn attach(&mut self) {
        let queue = self.queue;
        let consumer = ConsumerSpec::default();
        assert!(matches!(self.node().ask(Request::Attach(Attach { queue, consumer })), Reply::Attach(Ok(_))));
    }

    fn settle(&mut self, deliveries: &[Delivery], how: Settle) {
        let settlements = deliveries.iter().map(|d| settlement(d, how)).collect();
        match self.node().ask(Request::Settle(SettleRequest { settlements, wait: true })) {
            Reply::Settle(results) => assert!(results.iter().all(Result::is_ok)),
            other => panic!("{other:?}"),
        }
    }

    fn delivered(&mut self) -> Vec<Delivery> {
        self.node().drive();
        std::mem::take(&mut *self.node().client.delivered.lock())
    }

    fn counts(&mut self) -> QueueCounts {
        let queue = self.queue;
        match self.node().ask(Request::DescribeQueues(vec![queue])) {
            Reply::DescribeQueues(counts) => counts[0].expect("a queue"),
            other => panic!("{other:?}"),
        }
    }

    /// Returns timers pending, in memory, and carried out late.
    fn timers(&mut self) -> (u64, u64, u64) {
        let shards = self.node().broker.shards();
        let sum = |of: fn(&polylogue_broker::ShardStatus) -> u64| shards.iter().map(of).sum();
        (sum(|s| s.timers_pending), sum(|s| s.timers_resident), sum(|s| s.timers_late))
    }

    /// Advances time as the node's own timer would, and returns the deliveries with their times.
    fn run_until(&mut self, until_ms: u64) -> Vec<(u64, Delivery)> {
        let mut all = Vec::new();
        loop {
            let got = self.delivered();
            let now_ms = self.now_ms();
            all.extend(got.into_iter().map(|delivery| (now_ms, delivery)));
            if now_ms >= until_ms {
                return all;
            }
            let broker = &self.node().broker;
            let wait_ms = broker.next_tick_ms().saturating_sub(broker.now().monotonic_ms);
            self.world.clock.advance_ms(wait_ms.max(1).min(until_ms - now_ms));
        }
    }

    /// Advances time without due timers, an hour at a time, and then as the node requests.
    fn skip_until(&mut self, until_ms: u64) -> Vec<(u64, Delivery)> {
        let mut all = Vec::new();
        while self.now_ms() + HOUR_MS + MINUTE_MS < until_ms {
            self.world.clock.advance_ms(HOUR_MS);
            all.extend(self.delivered().into_iter().map(|delivery| (0, delivery)));
        }
        all.extend(self.run_until(until_ms));
        all
    }

    /// Returns the checkpoint files of all shards, both copies.
    fn checkpoint_files(&self) -> Vec<PathBuf> {
        let dirs = self.world.disk.list(Path::new("/data")).unwrap();
        let dirs = dirs.into_iter().map(|name| Path::new("/data").join(name).join("checkpoint"));
        let files = |dir: PathBuf| {
            let names = self.world.disk.list(&dir).unwrap_or_default();
            names.into_iter().map(move |name| dir.join(name)).collect::<Vec<_>>()
        };
        dirs.flat_map(files).collect()
    }

    /// Damages the chunks with these bytes in all copies. Returns their number.
    fn damage(&self, chunk: &[u8]) -> usize {
        let mut damaged = 0;
        for path in self.checkpoint_files() {
            let file = self.world.disk.open(&path, polylogue_env::OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.size().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            for at in 0..bytes.len().saturating_sub(chunk.len()) {
                if bytes[at..].starts_with(chunk) {
                    self.world.disk.flip_bit(&path, (at + chunk.len()) as u64, 3).unwrap();
                    damaged += 1;
                }
            }
        }
        damaged
    }
}

/// Returns the start of a part with this many timers, whose first timers were the first of all.
fn part_of(timers: u32) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes.extend_from_slice(&timers.to_le_bytes());
    bytes
}

#[test]
fn a_message_is_delivered_at_its_time_over_restarts_and_crashes() {
    for (seed, saved) in [(1, false), (2, true)] {
        let mut rig = Rig::new(seed, settings());
        let now = rig.now_ms();
        let times = [60_001, 5 * MINUTE_MS, 6 * MINUTE_MS, DAY_MS, 40 * DAY_MS].map(|ms| now + ms);
        rig.publish(times.iter().enumerate().map(|(i, at)| (format!("m{i}"), *at)));
        for (i, at) in (0u64..).zip(times) {
            if saved {
                rig.node().background();
            }
            rig.crash();
            assert_eq!((rig.counts().ready, rig.counts().delayed, rig.timers().0), (0, 5 - i, 5 - i));
            rig.attach();
            assert!(rig.skip_until(at - 1).is_empty(), "m{i} is early");
            let got = rig.run_until(at + 10);
            let [(when, delivery)] = &got[..] else { panic!("m{i} is late") };
            assert_eq!((texts(std::slice::from_ref(delivery)), delivery.redelivered), (vec![format!("m{i}")], false));
            assert!((at..=at + 10).contains(when), "{} ms late", when - at);
            rig.settle(std::slice::from_ref(delivery), Settle::Accept);
        }
        assert_eq!(rig.timers().0, 0);
    }
}

#[test]
fn far_delays_are_not_read_at_a_start_and_come_to_ten_milliseconds() {
    let mut rig = Rig::new(3, settings());
    let now = rig.now_ms();
    let at = |i: u64| now + 61_000 + i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (4 * HOUR_MS);
    for first in (0..2_000).step_by(500) {
        rig.publish((first..first + 500).map(|i| (format!("{}", at(i)), at(i))));
        rig.node().background();
    }
    rig.crash();
    assert_eq!(rig.counts().delayed, 2_000);
    assert_eq!(rig.timers(), (2_000, 0, 0), "read at the start, or not there");
    rig.attach();
    let mut times: Vec<_> = (0..2_000).map(at).collect();
    times.sort_unstable();
    let half = times[1_000];
    let got = rig.run_until(half - 1);
    assert_eq!(got.len(), 1_000);
    for (when, delivery) in &got {
        let at: u64 = texts(std::slice::from_ref(delivery))[0].parse().unwrap();
        assert!((at..=at + 10).contains(when), "{when} is not {at}");
    }
    let deliveries: Vec<_> = got.into_iter().map(|(_, delivery)| delivery).collect();
    rig.settle(&deliveries, Settle::Accept);
    let (pending, resident, late) = rig.timers();
    assert_eq!((pending, late), (1_000, 0));
    assert!(resident < 500, "{resident} in memory");
    rig.node().background();
    rig.crash();
    rig.attach();
    assert_eq!(rig.skip_until(now + 5 * HOUR_MS).len(), 1_000);
    assert_eq!(rig.timers().0, 0);
}

#[test]
fn what_is_purged_or_deleted_while_it_waits_never_comes() {
    let mut rig = Rig::new(4, settings());
    let at = rig.now_ms() + 2 * MINUTE_MS;
    rig.publish((0..10).map(|i| (format!("m{i}"), at + i)));
    let queue = rig.queue;
    assert!(matches!(rig.node().ask(Request::Purge(queue)), Reply::Purge(Ok(10))));
    assert_eq!(rig.counts(), QueueCounts::default());
    rig.publish((0..10).map(|i| (format!("n{i}"), at + i)));
    rig.node().background();
    rig.crash();
    assert_eq!((rig.counts().delayed, rig.timers().0), (10, 20));
    let topic = rig.node().broker.catalog().topic("q").unwrap().id;
    let delete = DeleteTopics { topics: vec![TopicRef::Id(topic)] };
    assert!(matches!(rig.node().ask(Request::DeleteTopics(delete)), Reply::DeleteTopics(_)));
    assert!(rig.run_until(at + 1_000).is_empty());
    rig.node().drive();
    assert_eq!(rig.timers(), (0, 0, 0), "timers of what is gone end");
    assert_eq!(rig.node().broker.failures().len(), 0);
}

/// Timers of a queue that were carried out while its messages were read, and not recorded as ended when it was deleted, were counted forever among
/// those with unrecorded ends: when that bound was reached, no timer of the shard was carried out any more.
#[test]
fn a_queue_that_is_deleted_while_it_is_read_stops_no_timers() {
    let mut rig = Rig::tuned(14, QueueSettings::default(), cold);
    let (queue, at) = (rig.queue, rig.now_ms() + 2 * MINUTE_MS);
    let config = TopicConfig { queue: Some(settings()), retention_ms: None, ..TopicConfig::default() };
    rig.queue = rig.node().create("other", 1, config).partitions[0].id;
    rig.attach();
    rig.publish([("other".to_owned(), at + 1_000)]);
    rig.queue = queue;
    for _ in 0..14 {
        rig.publish((0..5_000).map(|_| ("x".to_owned(), at)));
    }
    rig.attach();
    rig.world.clock.advance_ms(2 * MINUTE_MS);
    // Nothing is read: the effects of the timers are not recorded.
    let log_only = |rig: &mut Rig| {
        rig.node().broker.tick();
        while rig.node().broker.log_step(Work::Write) | rig.node().broker.log_step(Work::Flush) {}
    };
    for _ in 0..20 {
        log_only(&mut rig);
        // Earlier records are written.
        rig.world.clock.advance_ms(20);
    }
    let topic = rig.node().broker.catalog().topic("q").unwrap().id;
    rig.node().start(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Id(topic)] }));
    log_only(&mut rig);
    assert!(rig.node().broker.catalog().topic("q").is_none());
    let got = rig.run_until(at + 2_000);
    let got: Vec<_> = got.into_iter().map(|(_, delivery)| delivery).filter(|d| d.queue != queue).collect();
    assert_eq!(texts(&got), ["other"]);
    assert_eq!(rig.timers().0, 0);
}

#[test]
fn a_message_that_came_back_waits_its_time_and_keeps_its_count() {
    let mut rig = Rig::new(5, settings());
    let queue = rig.queue;
    let messages = vec![message(&[queue], "a"), message(&[queue], "b")];
    rig.node().ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
    rig.attach();
    let got = rig.delivered();
    let now = rig.now_ms();
    rig.settle(&got[..1], Settle::Return { counts: true, delay_ms: 3 * MINUTE_MS });
    rig.settle(&got[1..], Settle::Return { counts: true, delay_ms: 2 * MINUTE_MS });
    assert_eq!((rig.counts().delayed, rig.timers().0), (2, 2));
    rig.node().background();
    rig.crash();
    rig.attach();
    assert!(rig.run_until(now + 2 * MINUTE_MS - 1).is_empty());
    let got = rig.run_until(now + 2 * MINUTE_MS + 10);
    assert_eq!((got.len(), got[0].1.failed, got[0].1.redelivered), (1, 1, true));
    // The same message waits again, longer: its first timer is not taken for the second.
    rig.settle(&[got[0].1.clone()], Settle::Return { counts: true, delay_ms: 5 * MINUTE_MS });
    rig.crash();
    rig.attach();
    let got = rig.run_until(now + 6 * MINUTE_MS);
    assert_eq!(
        got.iter().map(|(_, d)| (texts(std::slice::from_ref(d))[0].clone(), d.failed)).collect::<Vec<_>>(),
        [("a".into(), 1)]
    );
    let got = rig.run_until(now + 7 * MINUTE_MS + 20);
    assert_eq!(
        got.iter().map(|(_, d)| (texts(std::slice::from_ref(d))[0].clone(), d.failed)).collect::<Vec<_>>(),
        [("b".into(), 2)]
    );
}

/// Lost times are rebuilt by unparking every returned message. The earlier time of such a message was still in the index, and unparked it again while
/// it waited for a later one.
#[test]
fn a_message_that_came_back_again_waits_its_time_whatever_it_waited_for_before() {
    let mut rig = Rig::tuned(17, QueueSettings::default(), cold);
    let now = rig.now_ms();
    rig.publish((0..7).map(|i| (format!("m{i}"), now + DAY_MS + i)));
    rig.publish([("again".to_owned(), 0)]);
    rig.attach();
    let got = rig.delivered();
    let first_ms = now + 210 * MINUTE_MS;
    rig.settle(&got, Settle::Return { counts: true, delay_ms: first_ms - now });
    rig.node().background();
    rig.crash();
    assert_eq!(rig.damage(&part_of(7)), 2, "both copies of the part of the others");
    rig.attach();
    let mut got = Vec::new();
    while got.is_empty() {
        rig.world.clock.advance_ms(10 * MINUTE_MS);
        got = rig.delivered();
    }
    let called_ms = rig.now_ms();
    assert!(called_ms < first_ms, "its time has come");
    assert_eq!((texts(&got), got[0].failed), (vec!["again".to_owned()], 1));
    rig.settle(&got, Settle::Return { counts: true, delay_ms: 5 * HOUR_MS });
    assert!(rig.skip_until(called_ms + 5 * HOUR_MS - 1).is_empty(), "early");
    let got = rig.run_until(called_ms + 5 * HOUR_MS + 10);
    assert_eq!((got.len(), got[0].1.failed), (1, 2));
    assert_eq!(rig.skip_until(now + DAY_MS + 1_000).len(), 7);
    assert_eq!(rig.timers().0, 0);
}

/// In a queue with early delivery, a delayed message waits for its commit, and later messages keep their order.
#[test]
fn nothing_with_a_time_is_taken_before_its_commit() {
    let mut rig = Rig::new(6, settings());
    rig.attach();
    let at = (rig.now_ms() + 2 * MINUTE_MS) as i64;
    let queue = rig.queue;
    let mut later = message(&[queue], "later");
    later.queues[0].deliver_at = Some(at);
    let messages = vec![message(&[queue], "first"), later, message(&[queue], "second")];
    rig.node().start(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
    let early = std::mem::take(&mut *rig.node().client.delivered.lock());
    assert_eq!(texts(&early), ["first"]);
    assert_eq!(texts(&rig.delivered()), ["second"]);
    assert_eq!((rig.counts().delayed, rig.timers().0), (1, 1));
}

/// The end of a timer was recorded before its effect: a crash between the two left a message that would never have been delivered.
#[test]
fn a_crash_at_any_point_of_a_release_loses_no_message() {
    for steps in 0..12 {
        let mut rig = Rig::new(7, QueueSettings::default());
        let at = rig.now_ms() + 2 * MINUTE_MS;
        rig.publish((0..3).map(|i| (format!("m{i}"), at)));
        rig.publish([("held".to_owned(), 0)]);
        rig.node().background();
        rig.attach();
        let held = rig.delivered();
        rig.world.clock.advance_ms(2 * MINUTE_MS + 1);
        // A record of the queue is in flight: the effects of the timers go into the next one.
        let settlements = vec![settlement(&held[0], Settle::Accept)];
        rig.node().start(Request::Settle(SettleRequest { settlements, wait: true }));
        rig.node().broker.tick();
        for step in 0..steps {
            let node = rig.node();
            match step % 3 {
                0 => node.broker.read_step(),
                1 => node.broker.log_step(Work::Write),
                _ => node.broker.log_step(Work::Flush),
            };
        }
        rig.crash();
        rig.attach();
        let got = rig.run_until(at + 1_000);
        let back = got.iter().filter(|(_, d)| d.first.0 < 3).count();
        assert_eq!(back, 3, "after {steps} steps");
        rig.run_until(at + 2_000);
        assert_eq!(rig.timers().0, 0);
    }
}

/// Without a writer no timer is carried out: the timer thread was woken immediately, again and again.
#[test]
fn nobody_waits_in_haste_for_a_writer() {
    let mut rig = Rig::new(16, QueueSettings::default());
    let at = rig.now_ms() + 2 * MINUTE_MS;
    rig.publish([("m".to_owned(), at)]);
    rig.attach();
    assert!(rig.run_until(at - 100).is_empty());
    rig.world.disk.inject(Fault::from(FaultOp::Write, 1, FaultKind::NoSpace));
    let messages = vec![message(&[rig.queue], "never")];
    let never = rig.node().ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
    assert!(matches!(&never, Reply::Publish(results) if results[0].is_err()), "{never:?}");
    rig.world.clock.advance_ms(100);
    rig.node().broker.tick();
    let wait_ms = rig.node().broker.next_tick_ms() - rig.node().broker.now().monotonic_ms;
    assert!(wait_ms > 100, "{wait_ms} ms");
    rig.world.disk.clear_faults();
    let mut got = Vec::new();
    for _ in 0..4 {
        let until_ms = rig.now_ms() + 500;
        got.extend(rig.run_until(until_ms));
        rig.node().background();
    }
    assert_eq!(got.len(), 1);
}

/// A part of the timer index with both copies damaged: its messages are found in the log, and delivered at their times.
#[test]
fn times_that_can_be_read_nowhere_are_found_again_in_the_log() {
    for restarts in [false, true] {
        let mut rig = Rig::new(8, QueueSettings::default());
        let now = rig.now_ms();
        rig.publish((0..7).map(|i| (format!("m{i}"), now + DAY_MS + i * 100)));
        rig.node().background();
        rig.crash();
        assert_eq!(rig.damage(&part_of(7)), 2, "both copies of one part");
        rig.attach();
        assert_eq!(rig.timers(), (7, 0, 0));
        if restarts {
            rig.skip_until(now + DAY_MS / 2);
            rig.crash();
            rig.attach();
        }
        assert!(rig.skip_until(now + DAY_MS - 1).is_empty(), "early");
        let got = rig.run_until(now + DAY_MS + 2_000);
        assert_eq!(got.iter().map(|(_, d)| texts(std::slice::from_ref(d))[0].clone()).collect::<Vec<_>>().len(), 7);
        for (i, (when, _)) in (0u64..).zip(&got) {
            let at = now + DAY_MS + i * 100;
            assert!((at..=at + 10).contains(when), "m{i} {} ms late", when - at);
        }
        assert!(rig.node().broker.failures()["timers"].last.contains("index"), "the failure was not reported");
        // The checkpoint is complete again.
        rig.node().background();
        rig.crash();
        rig.run_until(now + DAY_MS + 3_000);
        assert_eq!((rig.timers().0, rig.node().broker.failures().len()), (0, 0));
    }
}

/// Returns a rig with seven messages that wait for a day in an unreadable part of the index.
fn with_lost_part(seed: u64) -> (Rig, u64) {
    let mut rig = Rig::tuned(seed, QueueSettings::default(), cold);
    let at = rig.now_ms() + DAY_MS;
    rig.publish((0..7).map(|i| (format!("m{i}"), at + i * 100)));
    rig.node().background();
    rig.crash();
    assert_eq!(rig.damage(&part_of(7)), 2, "both copies of one part");
    rig.attach();
    (rig, at)
}

/// A repair's insertions were refused by a full disk, and the part was given up nevertheless: its messages were never delivered.
#[test]
fn a_part_is_not_given_up_while_what_it_held_is_not_committed_anew() {
    let (mut rig, at) = with_lost_part(12);
    rig.world.disk.inject(Fault::from(FaultOp::Write, 1, FaultKind::NoSpace));
    while !rig.node().broker.failures().contains_key("timers") {
        assert!(rig.now_ms() < at, "the part was not read");
        rig.world.clock.advance_ms(HOUR_MS);
        rig.node().broker.tick();
        rig.node().broker.read_step();
    }
    assert!(rig.node().broker.read_step(), "no reader looks up the times");
    // The insertions have no waiter: they are written a little later. A further check finds nothing, and no writer.
    rig.world.clock.advance_ms(100);
    while rig.node().broker.log_step(Work::Write) | rig.node().broker.log_step(Work::Flush) {}
    while rig.node().broker.read_step() {}
    // The writer is lost: the check of the queues comes before the new one.
    rig.node().broker.tick();
    rig.world.disk.clear_faults();
    rig.node().background();
    rig.crash();
    rig.attach();
    let got = rig.skip_until(at + 5_000);
    assert_eq!(got.len(), 7);
    assert!((0u64..).zip(&got).all(|(i, (when, _))| *when >= at + i * 100), "early");
}

/// A repair that could not read a message was never restarted: due messages of its part waited for the next checkpoint.
#[test]
fn a_repair_that_meets_a_passing_fault_begins_again() {
    let (mut rig, at) = with_lost_part(13);
    let is_broken = |rig: &mut Rig| {
        let failures = rig.node().broker.failures();
        failures.get("timers").is_some_and(|failure| failure.last.contains("time of message"))
    };
    for shard in rig.world.disk.list(Path::new("/data")).unwrap() {
        let journal = Path::new("/data").join(shard).join("journal");
        rig.world.disk.inject(Fault::from(FaultOp::Read, 1, FaultKind::Io).under(journal));
    }
    while !is_broken(&mut rig) {
        assert!(rig.now_ms() < at, "no reader looked up the times");
        rig.world.clock.advance_ms(HOUR_MS);
        rig.node().drive();
    }
    rig.world.disk.clear_faults();
    let got = rig.skip_until(at + 5_000);
    assert_eq!(got.len(), 7);
    for (i, (when, _)) in (0u64..).zip(&got) {
        assert!((at + i * 100..=at + i * 100 + 10).contains(when), "m{i} is not in time");
    }
}

/// A checkpoint that cannot copy chunks is written again from memory: times that are on the disk only stay.
#[test]
fn a_checkpoint_that_is_written_anew_keeps_what_only_the_disk_has() {
    let mut rig = Rig::new(9, QueueSettings::default());
    let now = rig.now_ms();
    rig.publish((0..9).map(|i| (format!("a{i}"), now + 2 * DAY_MS + i)));
    rig.node().background();
    rig.publish((0..5).map(|i| (format!("b{i}"), now + 400 * DAY_MS + i)));
    rig.node().background();
    rig.crash();
    assert_eq!(rig.damage(&part_of(9)), 2);
    for i in 0..80u64 {
        rig.publish([(format!("c{i}"), now + 2 * DAY_MS + 1_000 + i)]);
        rig.node().background();
    }
    rig.crash();
    assert_eq!(rig.counts().delayed, 94);
    rig.attach();
    assert_eq!(rig.skip_until(now + 3 * DAY_MS).len(), 89);
    assert_eq!((rig.counts().delayed, rig.timers().0), (5, 5));
}

/// A message with a TTL of a day expires with a precision of ten milliseconds, although its time is kept in seconds: the log is read when it matters,
/// in memory or not.
#[test]
fn what_lives_long_expires_at_its_time_and_is_had_until_then() {
    for early in [false, true] {
        let mut rig = Rig::new(10, QueueSettings { early, ..QueueSettings::default() });
        let queue = rig.queue;
        let start = rig.now_ms();
        let lives = |i: u64| start + DAY_MS + i * 137;
        for i in 0..200 {
            let mut message = message(&[queue], &format!("m{i}"));
            message.queues[0].expires_at = Some(lives(i) as i64);
            let request = PublishRequest { messages: vec![message], ack: Ack::Committed, patient: false };
            rig.node().ask(Request::Publish(request));
        }
        rig.node().background();
        if !early {
            rig.crash();
        }
        assert!(rig.skip_until(lives(0) - 1).is_empty());
        for i in 0..100 {
            rig.run_until(lives(i) - 1);
            assert_eq!(rig.counts().ready, 200 - i, "m{i} is gone too early");
            rig.run_until(lives(i) + 10);
            assert_eq!(rig.counts().ready, 199 - i, "m{i} is there for too long");
        }
        // A consumer that attaches now gets the rest, to the last message that has not expired.
        rig.world.clock.advance_ms(20 * 137);
        rig.attach();
        let got = rig.delivered();
        let now = rig.now_ms();
        let alive: Vec<_> = (100..200).filter(|i| lives(*i) + 10 > now).map(|i| format!("m{i}")).collect();
        assert_eq!(texts(&got), alive);
    }
}

/// A get while the expiry of the messages at the head was uncertain returned none.
#[test]
fn who_asks_gets_what_is_there_while_it_is_uncertain_what_has_expired() {
    const GRAIN_MS: u64 = 4_096;
    for (tune, expired, asked) in [(cold as fn(&mut _), true, false), (cold, false, true), (small, true, false)] {
        let mut rig = Rig::tuned(15, QueueSettings::default(), tune);
        let queue = rig.queue;
        let at = (rig.now_ms() + DAY_MS) / GRAIN_MS * GRAIN_MS + GRAIN_MS / 2;
        for first in [0, 5] {
            let mut messages: Vec<_> = (first..first + 5).map(|i| message(&[queue], &format!("m{i}"))).collect();
            let expires_at = Some((at + first / 5 * DAY_MS) as i64);
            messages.iter_mut().for_each(|message| message.queues[0].expires_at = expires_at);
            rig.node().ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
        }
        let consumer = ConsumerSpec { credit: Some(0), ..ConsumerSpec::default() };
        let Reply::Attach(Ok(consumer)) = rig.node().ask(Request::Attach(Attach { queue, consumer })) else { panic!() };
        let wait_ms = at - rig.now_ms();
        rig.world.clock.advance_ms(if expired { wait_ms + 10 } else { wait_ms - 10 });
        if asked {
            // Reader threads have been woken, and have not run yet.
            rig.node().broker.tick();
        }
        let reply = rig.node().ask(Request::Take(Take { queue, consumer, messages_max: 1 }));
        let Reply::Take(Ok(taken)) = reply else { panic!("{reply:?}") };
        let (first, left) = if expired { ("m5", 4) } else { ("m0", 9) };
        assert_eq!((texts(&taken.deliveries), taken.ready), (vec![first.to_owned()], left));
    }
}

/// A message whose time cannot be read from the log expires when it certainly has, and blocks no other message.
#[test]
fn what_cannot_be_asked_expires_a_little_later() {
    let mut rig = Rig::new(11, QueueSettings::default());
    let queue = rig.queue;
    let at = rig.now_ms() + DAY_MS;
    let mut messages: Vec<_> = (0..3).map(|i| message(&[queue], &format!("m{i}"))).collect();
    messages.iter_mut().for_each(|message| message.queues[0].expires_at = Some(at as i64));
    rig.node().ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
    rig.node = None;
    rig.node = Some(Node::open(&rig.world, |config| config.store.tail_cache_bytes = 0));
    rig.skip_until(at - 30_000);
    assert_eq!(rig.counts().ready, 3);
    rig.world.disk.inject(Fault::from(FaultOp::Read, 1, FaultKind::Io));
    rig.run_until(at + 5_000);
    assert_eq!(rig.counts().ready, 0);
    assert!(rig.node().broker.failures().contains_key("expiry"), "the failure was not reported");
}
