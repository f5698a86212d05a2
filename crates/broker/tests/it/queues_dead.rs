//! Dead messages of queues: kept until they are moved, delivered to one session at a time, with the reason of their death.

#![allow(clippy::unwrap_used, reason = "a test")]

use crate::node;
use crate::queues::{Queueing, settlement};

use node::{Node, message};
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_types::{Offset, PartitionId};

/// Takes the dead messages delivered since the last call: offsets, reasons and bodies.
pub(crate) fn take_dead(node: &Node) -> Vec<(u64, DeadReason, String)> {
    node.drive();
    let dead = std::mem::take(&mut *node.client.dead.lock());
    dead.into_iter().map(|d| (d.offset.0, d.reason, String::from_utf8(d.bytes.to_vec()).unwrap())).collect()
}

pub(crate) fn answer(node: &mut Node, queue: PartitionId, offsets: &[u64], how: DeadLetterResult) {
    let outcomes = offsets.iter().map(|at| DeadOutcome { queue, offset: Offset(*at), how }).collect();
    node.start(Request::DeadMoved(outcomes));
    node.drive();
}

#[test]
fn a_dead_message_is_kept_until_it_is_said_to_be_moved_over_a_crash_as_well() {
    let world = SimWorld::new(11);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings { dead_letters: true, ..QueueSettings::default() });
    node.publish(["a", "b", "c"].map(|text| message(&[queue], text)).to_vec());
    node.attach(queue, ConsumerSpec::default()).unwrap();
    let got = node.delivered();
    node.settle(&got[..2], Settle::Reject);
    assert_eq!((take_dead(&node), node.counts(queue).dead), (vec![], 2), "no session moves them");
    node.start(Request::MoveDead);
    let expected = [(0, DeadReason::Rejected, "a".to_owned()), (1, DeadReason::Rejected, "b".to_owned())];
    assert_eq!(take_dead(&node), expected);
    assert_eq!(take_dead(&node), [], "once");
    answer(&mut node, queue, &[1], DeadLetterResult::Moved);
    node.settle(&got[2..], Settle::Accept);
    assert_eq!(node.counts(queue), QueueCounts { dead: 1, dead_bytes: 1, consumers: 1, ..QueueCounts::default() });
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!(node.counts(queue).dead, 1);
    node.start(Request::MoveDead);
    assert_eq!(take_dead(&node), expected[..1]);
    answer(&mut node, queue, &[0], DeadLetterResult::Moved);
    assert_eq!(node.counts(queue), QueueCounts::default());
    // No request waits for the record: it is written with the next one.
    node.publish(vec![message(&[queue], "d")]);
    assert_eq!(node.broker.partition_status(queue).unwrap().log_start, Offset(3));
}

/// The record waited for the next flush, and readers of the dead-letter queue did not find the message.
#[test]
fn a_rejection_hastens_the_flush_of_a_message_that_nobody_has_confirmed() {
    let world = SimWorld::new(21);
    let mut node = Node::open(&world, |_| {});
    let queue = node.queue("q", QueueSettings { dead_letters: true, early: true, ..QueueSettings::default() });
    node.attach(queue, ConsumerSpec::default()).unwrap();
    node.start(Request::MoveDead);
    for at in 0..3 {
        let messages = vec![message(&[queue], "x")];
        node.start(Request::Publish(PublishRequest { messages, ack: Ack::None, patient: false }));
        let got = node.delivered();
        assert_eq!(got.len(), 1, "before it is flushed");
        let settlements = vec![settlement(&got[0], Settle::Reject)];
        node.start(Request::Settle(SettleRequest { settlements, wait: false }));
        // No time passes.
        assert_eq!(take_dead(&node), [(at, DeadReason::Rejected, "x".to_owned())]);
        answer(&mut node, queue, &[at], DeadLetterResult::Moved);
    }
}

#[test]
fn what_expires_fails_too_often_or_is_too_much_is_dead_for_that_reason() {
    let world = SimWorld::new(12);
    let mut node = Node::open(&world, |_| {});
    node.start(Request::MoveDead);
    let dead = QueueSettings { dead_letters: true, ..QueueSettings::default() };
    let expires = node.queue("expires", dead.clone());
    let mut short = message(&[expires], "short");
    short.queues[0].expires_at = Some(node.broker.now().wall_ms + 100);
    node.publish(vec![short]);
    assert_eq!(take_dead(&node), []);
    world.clock.advance_ms(200);
    assert_eq!(take_dead(&node), [(0, DeadReason::Expired, "short".to_owned())]);
    let limited = node.queue("limited", QueueSettings { length_max: Some(1), early: true, ..dead.clone() });
    node.publish(vec![message(&[limited], "one")]);
    node.start(Request::Publish(PublishRequest {
        messages: vec![message(&[limited], "two")],
        ack: Ack::Committed,
        patient: false,
    }));
    assert_eq!(take_dead(&node), [(0, DeadReason::MaxLength, "one".to_owned())]);
    let failing = node.queue("failing", QueueSettings { failures_max: Some(2), ..dead });
    node.publish(vec![message(&[failing], "poison")]);
    node.attach(failing, ConsumerSpec::default()).unwrap();
    for _ in 0..2 {
        let got = node.delivered();
        node.settle(&got, Settle::Return { counts: true, delay_ms: 0 });
    }
    assert_eq!(take_dead(&node), [(0, DeadReason::DeliveryLimit, "poison".to_owned())]);
}

#[test]
fn what_could_not_be_moved_is_told_again_after_its_time_and_by_another_session_at_once() {
    let world = SimWorld::new(13);
    let mut node = Node::open(&world, |_| {});
    node.start(Request::MoveDead);
    let settings = QueueSettings { dead_letters: true, length_max: Some(0), ..QueueSettings::default() };
    let queue = node.queue("q", settings);
    node.publish(vec![message(&[queue], "a"), message(&[queue], "b")]);
    assert_eq!(take_dead(&node).len(), 2);
    answer(&mut node, queue, &[0], DeadLetterResult::Later(500));
    assert_eq!(take_dead(&node), []);
    node.publish(vec![message(&[queue], "c")]);
    assert_eq!(take_dead(&node), [], "not before the first one");
    world.clock.advance_ms(600);
    let texts: Vec<_> = take_dead(&node).into_iter().map(|(_, _, text)| text).collect();
    assert_eq!(texts, ["a", "c"], "the second one is still on its way");
    let gone = std::mem::replace(&mut node.session, node.broker.new_session());
    node.broker.session_gone(gone);
    node.start(Request::MoveDead);
    assert_eq!(take_dead(&node).len(), 3);
}

#[test]
fn dead_messages_on_their_way_are_bounded_and_all_of_them_get_their_turn() {
    let world = SimWorld::new(14);
    let mut node = Node::open(&world, |_| {});
    node.start(Request::MoveDead);
    let settings = QueueSettings { dead_letters: true, length_max: Some(0), ..QueueSettings::default() };
    let queues: Vec<_> = (0..20).map(|i| node.queue(&format!("q{i}"), settings.clone())).collect();
    for queue in &queues {
        node.publish((0..300).map(|i| message(&[*queue], &format!("{i}"))).collect());
    }
    let mut moved = 0;
    let mut first = true;
    loop {
        node.drive();
        let dead = std::mem::take(&mut *node.client.dead.lock());
        assert!(dead.len() <= 4_096);
        assert!(!std::mem::take(&mut first) || dead.len() == 4_096, "{}", dead.len());
        if dead.is_empty() {
            break;
        }
        moved += dead.len();
        let outcomes =
            dead.iter().map(|d| DeadOutcome { queue: d.queue, offset: d.offset, how: DeadLetterResult::Moved });
        node.start(Request::DeadMoved(outcomes.collect()));
    }
    assert_eq!(moved, 20 * 300);
    assert!(queues.iter().all(|queue| node.counts(*queue) == QueueCounts::default()));
}

#[test]
fn a_queue_may_go_while_its_dead_messages_are_on_their_way() {
    let world = SimWorld::new(15);
    let mut node = Node::open(&world, |_| {});
    node.start(Request::MoveDead);
    let settings = QueueSettings { dead_letters: true, length_max: Some(1), ..QueueSettings::default() };
    let queue = node.queue("q", settings);
    node.publish(["a", "b", "c"].map(|text| message(&[queue], text)).to_vec());
    assert_eq!(take_dead(&node).len(), 2);
    assert!(matches!(node.ask(Request::Purge(queue)), Reply::Purge(Ok(1))), "what is dead is no message of the queue");
    assert_eq!(node.counts(queue).dead, 2);
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("q".into())] }));
    answer(&mut node, queue, &[0], DeadLetterResult::Moved);
    answer(&mut node, queue, &[1], DeadLetterResult::Later(10));
}
