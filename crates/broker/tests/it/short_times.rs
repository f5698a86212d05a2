//! Messages with short times, on the simulated machine: none is delivered before its time, and none later than 10 ms after it. Messages with a TTL,
//! delayed ones, and returned ones with a retry delay; on a machine whose operations take no time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, message, texts};
use polylogue_api::*;
use polylogue_env::sim::{SimRng, SimWorld};
use polylogue_types::PartitionId;
use std::collections::BTreeMap;

/// The requested time. Milliseconds.
const WAITS_MS: [u64; 2] = [20, 100];
/// The largest lateness. Milliseconds.
const LATE_MS_MAX: u64 = 10;
/// Messages of a test.
const MESSAGES: usize = 300;
/// The largest interval between two messages. Milliseconds.
const APART_MS: u64 = 13;

/// What the broker did with a message, and when. Wall time, milliseconds.
#[derive(Debug)]
enum Did {
    Delivered(Delivery),
    Died(DeadReason),
}

fn expired(did: &Did) -> bool {
    matches!(did, Did::Died(DeadReason::Expired))
}

/// A node with one queue, the mover of its dead messages, and the outcomes of its messages.
struct Rig {
    world: SimWorld,
    node: Node,
    queue: PartitionId,
    rng: SimRng,
    did: Vec<(u64, String, Did)>,
}

/// Both kinds of queue: with early delivery, and with delivery after the flush.
fn rigs() -> [Rig; 2] {
    [true, false].map(|early| {
        let world = SimWorld::new(u64::from(early));
        let mut node = Node::open(&world, |_| {});
        let settings = QueueSettings { early, dead_letters: true, ..QueueSettings::default() };
        let config = TopicConfig { queue: Some(settings), retention_ms: None, ..TopicConfig::default() };
        let queue = node.create("q", 1, config).partitions[0].id;
        node.start(Request::MoveDead);
        Rig { world, node, queue, rng: SimRng::derive(5, "short"), did: Vec::new() }
    })
}

impl Rig {
    fn now_ms(&self) -> u64 {
        self.node.broker.now().wall_ms as u64
    }

    fn attach(&mut self) -> ConsumerId {
        let request = Request::Attach(Attach { queue: self.queue, consumer: ConsumerSpec::default() });
        match self.node.ask(request) {
            Reply::Attach(Ok(consumer)) => consumer,
            other => panic!("{other:?}"),
        }
    }

    fn publish(&mut self, text: &str, change: impl FnOnce(&mut Target)) {
        let mut message = message(&[self.queue], text);
        change(&mut message.queues[0]);
        let publish = PublishRequest { messages: vec![message], ack: Ack::Committed, patient: false };
        match self.node.ask(Request::Publish(publish)) {
            Reply::Publish(results) => assert_eq!(results, [Ok(())]),
            other => panic!("{other:?}"),
        }
        self.look();
    }

    fn settle(&mut self, d: &Delivery, how: Settle) {
        let Delivery { queue, first, count, lease, .. } = *d;
        let settlements = vec![Settlement { queue, first, count, by: Holder::Lease(lease), how }];
        match self.node.ask(Request::Settle(SettleRequest { settlements, wait: true })) {
            Reply::Settle(results) => assert_eq!(results, [Ok(())]),
            other => panic!("{other:?}"),
        }
    }

    /// Takes events, and confirms the moves of dead messages.
    fn look(&mut self) {
        self.node.drive();
        let now_ms = self.now_ms();
        for delivery in std::mem::take(&mut *self.node.client.delivered.lock()) {
            let text = texts(std::slice::from_ref(&delivery)).remove(0);
            self.did.push((now_ms, text, Did::Delivered(delivery)));
        }
        let dead = std::mem::take(&mut *self.node.client.dead.lock());
        let moved = |d: &DeadMessage| DeadOutcome { queue: d.queue, offset: d.offset, how: DeadLetterResult::Moved };
        let outcomes: Vec<_> = dead.iter().map(moved).collect();
        for died in dead {
            let text = String::from_utf8(died.bytes.to_vec()).unwrap();
            self.did.push((now_ms, text, Did::Died(died.reason)));
        }
        if !outcomes.is_empty() {
            self.node.start(Request::DeadMoved(outcomes));
        }
    }

    /// Advances time as the node's own timer would. Milliseconds.
    fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms() + ms;
        loop {
            self.look();
            let now_ms = self.now_ms();
            if now_ms >= until_ms {
                return;
            }
            let broker = &self.node.broker;
            let wait_ms = broker.next_tick_ms().saturating_sub(broker.now().monotonic_ms);
            self.world.clock.advance_ms(wait_ms.clamp(1, until_ms - now_ms));
        }
    }

    /// Does something for each message, at irregular moments, and returns what was due when.
    fn at_any_moment(&mut self, wait_ms: u64, mut act: impl FnMut(&mut Rig, &str, u64)) -> BTreeMap<String, u64> {
        let mut due = BTreeMap::new();
        for i in 0..MESSAGES {
            let (text, at_ms) = (format!("{wait_ms} {i}"), self.now_ms() + wait_ms);
            act(self, &text, at_ms);
            due.insert(text, at_ms);
            let apart_ms = self.rng.below(APART_MS);
            self.pass(apart_ms);
        }
        self.pass(wait_ms + LATE_MS_MAX);
        due
    }

    /// Checks that each message did that once, in time.
    fn check(&mut self, due: &BTreeMap<String, u64>, is: impl Fn(&Did) -> bool) {
        assert_eq!(self.did.len(), due.len());
        for (when_ms, text, did) in std::mem::take(&mut self.did) {
            let at_ms = due[&text];
            assert!(is(&did), "{text}: {did:?}");
            assert!(
                (at_ms..=at_ms + LATE_MS_MAX).contains(&when_ms),
                "{text} was due at {at_ms}, and not at {when_ms}"
            );
        }
    }
}

/// An expired message is gone, also from the ready count, and dead-lettered.
#[test]
fn what_lives_shortly_is_dead_at_its_time() {
    for mut rig in rigs() {
        for wait_ms in WAITS_MS {
            let due = rig.at_any_moment(wait_ms, |rig, text, at_ms| {
                rig.publish(text, |target| target.expires_at = Some(at_ms as i64));
            });
            rig.check(&due, expired);
        }
    }
}

/// Also if a consumer held it until then: it expires when it is returned.
#[test]
fn what_comes_back_after_its_life_is_dead_at_once() {
    for mut rig in rigs() {
        for wait_ms in WAITS_MS {
            let consumer = rig.attach();
            let lives = rig.now_ms() + wait_ms;
            rig.publish("held", |target| target.expires_at = Some(lives as i64));
            rig.pass(wait_ms + 50);
            let Some((_, _, Did::Delivered(held))) = rig.did.pop() else { panic!("not delivered") };
            assert!(rig.did.is_empty(), "who holds it keeps it: {:?}", rig.did);
            rig.settle(&held, Settle::Return { counts: false, delay_ms: 0 });
            let due = BTreeMap::from([("held".to_owned(), rig.now_ms())]);
            rig.pass(LATE_MS_MAX);
            rig.check(&due, expired);
            rig.node.start(Request::Detach(consumer));
        }
    }
}

#[test]
fn what_waits_shortly_is_handed_out_at_its_time() {
    for mut rig in rigs() {
        rig.attach();
        for wait_ms in WAITS_MS {
            let due = rig.at_any_moment(wait_ms, |rig, text, at_ms| {
                rig.publish(text, |target| target.deliver_at = Some(at_ms as i64));
            });
            rig.check(&due, |did| matches!(did, Did::Delivered(d) if !d.redelivered));
        }
    }
}

/// The TTL of a message starts at the end of its delay.
#[test]
fn what_waits_and_lives_shortly_is_dead_when_both_are_over() {
    for mut rig in rigs() {
        for wait_ms in WAITS_MS {
            let due = rig.at_any_moment(2 * wait_ms, |rig, text, at_ms| {
                let target = |target: &mut Target| {
                    target.deliver_at = Some((at_ms - wait_ms) as i64);
                    target.expires_at = Some(at_ms as i64);
                };
                rig.publish(text, target);
            });
            rig.check(&due, expired);
        }
    }
}

#[test]
fn what_comes_back_to_wait_shortly_is_handed_out_at_its_time() {
    for mut rig in rigs() {
        rig.attach();
        for wait_ms in WAITS_MS {
            let due = rig.at_any_moment(wait_ms, |rig, text, _| {
                rig.publish(text, |_| ());
                let at = rig.did.iter().position(|(_, other, _)| other == text).expect("it came at once");
                let (_, _, Did::Delivered(delivery)) = rig.did.remove(at) else { panic!("it is dead") };
                rig.settle(&delivery, Settle::Return { counts: true, delay_ms: wait_ms });
            });
            rig.check(&due, |did| matches!(did, Did::Delivered(d) if d.redelivered && d.failed == 1));
        }
    }
}
