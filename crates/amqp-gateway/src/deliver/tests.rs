//! A connection without a wire, whose channel has consumers of one queue.

use super::*;
use crate::connection::Channel;
use crate::machine::AmqpAnswer;
use crate::management::PrincipalOutput;
use crate::message::store;
use crate::operation::{Then, Waits};
use crate::testing::{Topics, World};
use bytes::BytesMut;
use polylogue_api::{Now, Reply, SettleError, Unavailable};
use serde_json::json;
use std::collections::VecDeque;

const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
const QUEUE: PartitionId = PartitionId(7);

/// A connection without a wire, whose channel has consumers of a queue: number 1 is consumer 11 of the broker, and so on.
fn connection(consumers: u32) -> Connection {
    connection_to(consumers, "classic")
}

fn connection_to(consumers: u32, kind: &str) -> Connection {
    let mut world = World::new();
    world.queue("q", json!({ "x-queue-type": kind }));
    let id = world.directory.router().load().queue(world.vhost, b"q").expect("declared");
    let entry = world.directory.queue(id).expect("declared");
    let directory = world.directory.clone();
    let mut connection = Connection::new(Arc::default(), directory, Arc::new(Topics), 7, true, 1, Now::default());
    connection.captured = Some(VecDeque::new());
    let mut open = Channel::default();
    for number in 1..=consumers {
        let (id, entry) = (ConsumerId(10 + u64::from(number)), entry.clone());
        let (no_ack, ack_ms_max, owed) = (false, None, Credit::default());
        let consumer = Consumer { id, entry, no_ack, ack_ms_max, owed, unsettled: 0 };
        open.consumers.insert(ConsumerRef(number), consumer);
        connection.consumers.insert(id, (CHANNEL, ConsumerRef(number)));
    }
    connection.channels.insert(CHANNEL, open);
    connection
}

fn offsets(places: &[Place]) -> Vec<u64> {
    places.iter().map(|place| place.at).collect()
}

fn delivery(consumer: u64, at: u64) -> Delivery {
    Delivery {
        consumer: ConsumerId(consumer),
        queue: QUEUE,
        first: Offset(at),
        count: 1,
        lease: 5,
        life: 3,
        weight: 1,
        redelivered: false,
        returned: 0,
        failed: 0,
        entry: Offset(at),
        bytes: store(b"", b"q", &[0, 0], None, &[Bytes::from_static(b"x")]),
    }
}

/// The places of messages delivered to the client since the last call.
fn given(connection: &mut Connection) -> Vec<Place> {
    let mut places = Vec::new();
    for captured in connection.captured.as_mut().expect("no wire").drain(..) {
        if let PrincipalOutput::Event(amqp::Event::Deliver { deliveries, .. }) = captured {
            places.extend(deliveries.iter().map(|delivery| delivery.place));
        }
    }
    places
}

fn settled(connection: &mut Connection) -> Vec<Settlement> {
    let requests = std::iter::from_fn(|| connection.poll_request());
    let settled = requests.filter_map(|(_, request)| match request {
        Request::Settle(SettleRequest { settlements, .. }) => Some(settlements),
        _ => None,
    });
    settled.flatten().collect()
}

fn run(consumer: u32, first: Place) -> Run {
    Run { consumer: ConsumerRef(consumer), first, count: 1 }
}

/// An acknowledgement from before its queue got a new writer settled the message with the same offset.
#[test]
fn a_settlement_names_the_writers_life_of_the_delivery() {
    let mut connection = connection(1);
    connection.deliver(vec![delivery(11, 40)]);
    let places = given(&mut connection);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, places[0])]);
    let by = Holder::Consumer(ConsumerId(11), 3);
    let expected = Settlement { queue: QUEUE, first: Offset(40), count: 1, by, how: Settle::Accept };
    assert_eq!(settled(&mut connection), [expected]);
}

/// The broker confirms that a consumer is stopped.
fn stopped(connection: &mut Connection) {
    let stops = std::iter::from_fn(|| connection.poll_request()).find(|(_, asked)| matches!(asked, Request::Stop(_)));
    let (token, _) = stops.expect("it is being stopped");
    connection.on_reply(token, Reply::Stopped, Now::default());
}

fn is_done(connection: &mut Connection) -> bool {
    matches!(
        connection.captured.as_mut().expect("no wire").pop_front(),
        Some(PrincipalOutput::Reply(amqp::Reply::Done))
    )
}

/// Deliveries in flight to a consumer without acknowledgement were settled by delivery, and dropped.
#[test]
fn deliveries_in_flight_precede_the_reply_to_a_cancel() {
    for is_deleted in [false, true] {
        let mut connection = connection(1);
        connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
        connection.deliver(vec![delivery(11, 1)]);
        assert_eq!(given(&mut connection).len(), 1);
        match is_deleted {
            true => connection.detached(ConsumerId(11)),
            false => stopped(&mut connection),
        }
        assert!(is_done(&mut connection));
        assert!(connection.channels[&CHANNEL].consumers.is_empty());
    }
}

/// The requests to the broker about shared limits: consumers that share one, and changes of it.
fn shared(connection: &mut Connection) -> Vec<Option<u64>> {
    let requests = std::iter::from_fn(|| connection.poll_request());
    let shared = requests.filter_map(|(_, request)| match request {
        Request::Share(id, _) => Some(Some(id.0)),
        Request::Offer(_) => Some(None),
        _ => None,
    });
    shared.collect()
}

/// Three queues of a channel with a shared prefetch: the first one was drained, then the second, and of two consumers of a queue one got everything.
/// The limit is enforced where messages are delivered.
#[test]
fn a_shared_prefetch_is_enforced_by_the_broker() {
    let mut connection = connection(3);
    connection.deliver(vec![delivery(11, 1)]);
    let first = given(&mut connection);
    connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
    stopped(&mut connection);
    let qos = |connection: &mut Connection, count| {
        connection.begin(1, amqp::Request::Qos(CHANNEL, count));
        shared(connection)
    };
    assert_eq!(qos(&mut connection, 0), [], "there was none");
    assert_eq!(qos(&mut connection, 2), [Some(11), Some(12), Some(13), None], "unsettled deliveries count");
    let limit = connection.channels[&CHANNEL].limit.clone().expect("a limit");
    assert_eq!([limit.take(12, 9, true).0, limit.take(13, 9, true).0], [2, 0]);
    assert_eq!(qos(&mut connection, 3), [None]);
    assert_eq!(limit.take(13, 9, true).0, 1);
    assert_eq!(qos(&mut connection, 0), [None]);
    assert_eq!(limit.take(13, 9, true).0, 9, "it is lifted");
    // Messages that arrived are accepted: the broker has already counted them.
    connection.deliver(vec![delivery(12, 2), delivery(13, 3)]);
    assert_eq!(offsets(&given(&mut connection)), [2, 3]);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    assert_eq!(settled(&mut connection).len(), 1);
}

/// A reader skipped messages that did not fit a shared prefetch set later, and never got them.
#[test]
fn streams_are_exempt_from_the_shared_prefetch() {
    let mut connection = connection_to(2, "stream");
    connection.begin(1, amqp::Request::Qos(CHANNEL, 1));
    assert_eq!(shared(&mut connection), [None]);
    connection.deliver((1..=4).map(|at| delivery(11, at)).collect());
    assert_eq!(offsets(&given(&mut connection)), [1, 2, 3, 4]);
    assert_eq!(settled(&mut connection), [], "nothing is requeued");
    connection.give_all_credit();
    assert_eq!(credits(&mut connection), [(11, 4)]);
}

/// It was requeued through the session, and counted as a delivery.
#[test]
fn deliveries_to_a_cancelled_consumer_are_requeued_uncounted() {
    let mut connection = connection(2);
    connection.deliver(vec![delivery(11, 1)]);
    let first = given(&mut connection);
    connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
    stopped(&mut connection);
    connection.deliver(vec![delivery(11, 2), delivery(12, 3)]);
    assert_eq!(offsets(&given(&mut connection)), [3]);
    let back: Vec<_> = settled(&mut connection).iter().map(|one| (one.first.0, one.how)).collect();
    assert_eq!(back, [(2, Settle::Unsent)]);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    assert_eq!(settled(&mut connection).len(), 1);
}

fn granted(connection: &mut Connection) -> Vec<(u64, Credit)> {
    let requests = std::iter::from_fn(|| connection.poll_request());
    let credits = requests.filter_map(|(_, request)| match request {
        Request::Credit(id, more) => Some((id.0, more)),
        _ => None,
    });
    credits.collect()
}

fn credits(connection: &mut Connection) -> Vec<(u64, u64)> {
    granted(connection).into_iter().map(|(id, more)| (id, more.messages)).collect()
}

/// The broker got a request per message, and each search went over all consumers of the connection.
#[test]
fn credit_is_granted_for_many_messages_together_or_a_little_later() {
    let mut connection = connection(3);
    let part = WINDOW_MESSAGES / CREDIT_PART;
    connection.deliver(vec![delivery(11, 1)]);
    connection.deliver((0..part).map(|i| delivery(12, 10 + i)).collect());
    connection.give_credit();
    assert_eq!(credits(&mut connection), [(12, part)]);
    connection.give_credit();
    assert_eq!(credits(&mut connection), []);
    assert_eq!(connection.next_deadline_ms(), Some(CREDIT_WAIT_MS));
    connection.on_deadline(Now { monotonic_ms: CREDIT_WAIT_MS, ..Now::default() });
    assert_eq!(credits(&mut connection), [(11, 1)]);
    assert!(connection.owing.is_empty() && connection.credit_due_ms.is_none());
    connection.deliver(vec![delivery(13, 1)]);
    connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(3)));
    stopped(&mut connection);
    connection.give_all_credit();
    assert_eq!(credits(&mut connection), [], "a removed consumer is owed nothing");
}

/// A consumer that did not read got its window back after a while, and had more than the window in memory.
#[test]
fn unwritten_deliveries_give_no_credit() {
    let mut connection = connection(1);
    // The session has output that the client does not read.
    connection.on_bytes(&mut BytesMut::from(&b"AMQP\0\0\x09\x01"[..]), Now::default());
    assert!(connection.session.has_output());
    connection.deliver(vec![delivery(11, 1)]);
    connection.give_credit();
    let later = |times| Now { monotonic_ms: times * CREDIT_WAIT_MS, ..Now::default() };
    connection.on_deadline(later(1));
    assert_eq!((credits(&mut connection), connection.credit_due_ms), (vec![], None));
    assert!(connection.poll_output(&mut Vec::new(), later(2)));
    assert_eq!(connection.credit_due_ms, Some(3 * CREDIT_WAIT_MS));
    connection.on_deadline(later(3));
    assert_eq!(credits(&mut connection), [(11, 1)]);
}

fn detaches(connection: &mut Connection) -> Vec<u64> {
    let mut gone = Vec::new();
    while let Some((_, request)) = connection.poll_request() {
        if let Request::Detach(id) = request {
            gone.push(id.0);
        }
    }
    gone
}

/// Each cancelled consumer was kept until its channel was closed.
#[test]
fn a_cancelled_consumer_is_removed_once_all_is_settled() {
    let mut connection = connection(2);
    connection.deliver(vec![delivery(11, 1), delivery(11, 2)]);
    let there = given(&mut connection);
    for number in [1, 2] {
        connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(number)));
        stopped(&mut connection);
    }
    assert_eq!(detaches(&mut connection), [12], "it has nothing to settle");
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, there[0])]);
    assert!(detaches(&mut connection).is_empty());
    connection.settle(CHANNEL, Verdict::Requeue, &[run(1, there[1])]);
    assert_eq!(detaches(&mut connection), [11]);
    assert!(connection.consumers.is_empty() && connection.channels[&CHANNEL].cancelled.is_empty());
}

fn refused(connection: &mut Connection) -> Option<u16> {
    match connection.captured.as_mut().expect("no wire").pop_front() {
        Some(PrincipalOutput::Reply(amqp::Reply::Refused(why))) => Some(why.code.number()),
        _ => None,
    }
}

/// The client got success, or an empty result; and a busy broker closed its connection.
#[test]
fn failures_are_reported() {
    let busy = SettleError::Unavailable(Unavailable::Busy);
    let gone = polylogue_api::AttachError::Unavailable(Unavailable::NotCommitted);
    let entry = connection(0).directory.queues().remove(0);
    let cases = [
        (Waits::Purged(1, entry.clone()), Reply::Purge(Err(busy))),
        (Waits::CommitSettled(1), Reply::Settle(vec![Ok(()), Err(busy)])),
        (Waits::Taken(1, entry.clone(), false), Reply::Take(Err(busy))),
        (Waits::PullAttached(1, CHANNEL, QUEUE, false, entry), Reply::Attach(Err(gone))),
    ];
    for (waits, reply) in cases {
        let mut connection = connection(0);
        let what = format!("{reply:?}");
        connection.resume(waits, reply);
        assert_eq!(refused(&mut connection), Some(406), "{what}");
    }
    let mut connection = connection(0);
    connection.resume(Waits::CommitSettled(1), Reply::Settle(vec![Err(SettleError::NotHeld)]));
    assert_eq!(refused(&mut connection), None, "another consumer has it");
}

/// On a channel with a shared prefetch, a consumer of a quorum queue is refused, as in RabbitMQ.
#[test]
fn a_consumer_is_attached_with_its_channels_limit() {
    for (kind, qos, shares, code) in
        [("classic", 0, Some(false), None), ("classic", 2, Some(true), None), ("quorum", 2, None, Some(540))]
    {
        let mut connection = connection_to(0, kind);
        connection.begin(1, amqp::Request::Qos(CHANNEL, qos));
        shared(&mut connection);
        let consume = amqp::Consume {
            consumer: ConsumerRef(1),
            queue: String::from("q").into(),
            tag: String::from("t").into(),
            no_ack: false,
            exclusive: false,
            deliveries_max: 100,
            prefetch: 0,
            arguments: Table::EMPTY,
        };
        let queue = connection.directory.queues()[0].queue.clone();
        let answer = Reply::Machine(Ok(Box::new(AmqpAnswer::Queue(queue))));
        connection.resume(Waits::Found(1, Then::Consume(CHANNEL, consume)), answer);
        let asked = match connection.poll_request() {
            Some((token, Request::Attach(attach))) => Some((token, attach.consumer)),
            _ => None,
        };
        let limit = connection.channels[&CHANNEL].limit.clone();
        assert_eq!(asked.as_ref().map(|(_, spec)| spec.shared.is_some() && spec.shared == limit), shares, "{kind}");
        assert_eq!(refused(&mut connection), code, "{kind}");
        if let Some((token, _)) = asked {
            // A limit that was set meanwhile applies to it too.
            connection.begin(1, amqp::Request::Qos(CHANNEL, 5));
            connection.on_reply(token, Reply::Attach(Ok(ConsumerId(11))), Now::default());
            assert!(shared(&mut connection).contains(&Some(11)));
        }
    }
}

/// Each write made the connection check all consumers that were owed credit.
#[test]
fn owed_credit_is_checked_for_some_consumers_in_rotation() {
    const CONSUMERS: u32 = 1_000;
    let mut connection = connection(CONSUMERS);
    let part = WINDOW_MESSAGES / CREDIT_PART;
    (1..=CONSUMERS).for_each(|n| {
        connection.deliver((0..part).map(|at| delivery(10 + u64::from(n), at)).collect());
    });
    let first: Vec<_> = connection.owing.iter().map(|(_, consumer)| 10 + u64::from(consumer.0)).collect();
    assert_eq!(first.len(), CONSUMERS as usize);
    let mut order = Vec::new();
    while !connection.owing.is_empty() {
        connection.give_credit();
        let granted = granted(&mut connection);
        assert!(!granted.is_empty() && granted.len() <= CHECKS_MAX, "{}", granted.len());
        order.extend(granted.into_iter().map(|(id, _)| id));
    }
    assert_eq!(order, first, "all in rotation, in order");
    assert!(connection.next_deadline_ms().is_some(), "the remaining ones are checked soon");
}
