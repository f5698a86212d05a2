//! Publishers to queues while the disk runs short of space: they are blocked, and messages in flight wait.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use bytes::Bytes;
use node::Node;
use polylogue_api::*;
use polylogue_env::Disk as _;
use polylogue_env::sim::SimWorld;
use polylogue_types::PartitionId;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

const MIB: u64 = 1 << 20;

/// Counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets the free bytes of a world's disk, and lets the broker check it.
fn leave_free(world: &SimWorld, node: &Node, bytes: u64) {
    const PLENTY: u64 = 1 << 40;
    world.disk.set_capacity(PLENTY);
    let free = world.disk.free_bytes(Path::new("/data")).expect("says");
    world.disk.set_capacity(PLENTY - free + bytes);
    world.clock.advance_ms(1_000);
    node.drive();
}

fn open(world: &SimWorld) -> (Node, PartitionId) {
    let mut node = Node::open(world, |config| {
        config.disk_reserve_bytes = MIB;
        config.disk_free_limit_bytes = 8 * MIB;
    });
    node.background();
    let config = TopicConfig { queue: Some(QueueSettings::default()), retention_ms: None, ..TopicConfig::default() };
    let queue = node.create("q", 1, config).partitions[0].id;
    (node, queue)
}

fn message(queue: PartitionId, body: Bytes) -> PublishMessage {
    PublishMessage { bytes: body, ..node::message(&[queue], "") }
}

fn publish(queue: PartitionId, body: Bytes) -> Request {
    let messages = vec![message(queue, body)];
    Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })
}

fn results(reply: Option<Reply>) -> Option<Vec<Result<(), PublishError>>> {
    reply.map(|reply| match reply {
        Reply::Publish(results) => results,
        other => panic!("{other:?}"),
    })
}

fn take(node: &Node, token: Token) -> Option<Vec<Result<(), PublishError>>> {
    node.drive();
    results(node.client.replies.lock().remove(&token))
}

#[test]
fn what_finds_no_room_waits_for_it_in_its_order_while_acknowledgements_go_on() {
    let world = SimWorld::new(1);
    let (mut node, queue) = open(&world);
    let woken: Arc<Woken> = Arc::default();
    node.broker.wake_for_alarm(Waker::from(woken.clone()));
    let one = |text: &'static str| publish(queue, Bytes::from_static(text.as_bytes()));
    leave_free(&world, &node, 4 * MIB);
    assert!(node.broker.is_disk_alarm() && !node.broker.is_disk_full(), "before anything is refused");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let token = node.start(one("a"));
    assert_eq!(take(&node, token), Some(vec![Ok(())]), "what comes all the same is written");
    leave_free(&world, &node, MIB / 2);
    assert!(node.broker.is_disk_full());
    let [b, c] = ["b", "c"].map(|text| node.start(one(text)));
    let held_bytes = 2 * message(queue, Bytes::from_static(b"b")).weight_bytes() as u64;
    assert!(
        held_bytes > 2,
        "also what is around a body takes memory: without it, messages without bodies had no bound"
    );
    assert_eq!((take(&node, b), take(&node, c), node.broker.publishes_held_bytes()), (None, None, held_bytes));
    // Consumers continue.
    node.ask(Request::Attach(Attach { queue, consumer: ConsumerSpec::default() }));
    let got = std::mem::take(&mut *node.client.delivered.lock());
    let by = Holder::Lease(got[0].lease);
    let settlement = Settlement { queue, first: got[0].first, count: 1, by, how: Settle::Accept };
    match node.ask(Request::Settle(SettleRequest { settlements: vec![settlement], wait: true })) {
        Reply::Settle(settled) => assert_eq!(settled, [Ok(())]),
        other => panic!("{other:?}"),
    }
    // Held publishes have a bound.
    let token = node.start(publish(queue, vec![0; 64 << 20].into()));
    let full = PublishError::Unavailable(Unavailable::StorageFull);
    assert_eq!(take(&node, token), Some(vec![Err(full)]));
    leave_free(&world, &node, 100 * MIB);
    assert!(!node.broker.is_disk_alarm());
    assert_eq!((take(&node, b), take(&node, c)), (Some(vec![Ok(())]), Some(vec![Ok(())])));
    let bodies: Vec<_> = node.client.delivered.lock().iter().map(|d| d.bytes.clone()).collect();
    assert_eq!(bodies, ["b", "c"]);
    assert_eq!((node.broker.publishes_held_bytes(), woken.0.load(Ordering::Relaxed)), (0, 2));
}

/// The journal runs out of files before the reserve is used, and before the disk is checked.
#[test]
fn a_journal_that_gets_no_file_holds_publishes_up_too() {
    let world = SimWorld::new(2);
    let (mut node, queue) = open(&world);
    // Less than one more file above the reserve: the existing files are the last ones.
    leave_free(&world, &node, MIB + MIB / 2);
    let mut held = None;
    for _ in 0..100 {
        let token = node.start(publish(queue, vec![7; 64 << 10].into()));
        match take(&node, token) {
            Some(written) => assert_eq!(written, [Ok(())], "nothing is lost before"),
            None => {
                held = Some(token);
                break;
            }
        }
        node.broker.log_step(polylogue_replicate::Work::Background);
    }
    let held = held.expect("the journal was full at last");
    assert!(node.broker.is_disk_alarm());
    leave_free(&world, &node, 100 * MIB);
    node.background();
    leave_free(&world, &node, 100 * MIB);
    assert_eq!(take(&node, held), Some(vec![Ok(())]));
}

#[test]
fn what_waits_is_refused_when_the_broker_stops() {
    let world = SimWorld::new(3);
    let (mut node, queue) = open(&world);
    leave_free(&world, &node, 0);
    let token = node.start(publish(queue, Bytes::from_static(b"x")));
    assert_eq!(take(&node, token), None);
    node.broker.shutdown();
    let stopping = Err(PublishError::Unavailable(Unavailable::Stopping));
    assert_eq!(results(node.client.replies.lock().remove(&token)), Some(vec![stopping]));
    let token = node.start(publish(queue, Bytes::from_static(b"x")));
    assert_eq!(results(node.client.replies.lock().remove(&token)), Some(vec![stopping]));
}
