//! A connection without a wire, whose channel has consumers of one queue.

use super::*;
use crate::connection::Channel;
use crate::machine::AmqpAnswer;
use crate::management::Said;
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
    connection.said = Some(VecDeque::new());
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

/// The places of what the client was given since the last call.
fn given(connection: &mut Connection) -> Vec<Place> {
    let mut places = Vec::new();
    for said in connection.said.as_mut().expect("no wire").drain(..) {
        if let Said::Event(amqp::Event::Deliver { deliveries, .. }) = said {
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

/// An acknowledgement from before its queue had a new writer settled the message that got the same offset.
#[test]
fn a_settlement_names_the_life_in_which_the_message_was_handed_out() {
    let mut connection = connection(1);
    connection.deliver(vec![delivery(11, 40)]);
    let places = given(&mut connection);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, places[0])]);
    let by = Holder::Consumer(ConsumerId(11), 3);
    let expected = Settlement { queue: QUEUE, first: Offset(40), count: 1, by, how: Settle::Accept };
    assert_eq!(settled(&mut connection), [expected]);
}

/// The broker says that a consumer gets no more.
fn stopped(connection: &mut Connection) {
    let stops = std::iter::from_fn(|| connection.poll_request()).find(|(_, asked)| matches!(asked, Request::Stop(_)));
    let (token, _) = stops.expect("it is to stop");
    connection.on_reply(token, Reply::Stopped, Now::default());
}

fn is_done(connection: &mut Connection) -> bool {
    matches!(connection.said.as_mut().expect("no wire").pop_front(), Some(Said::Reply(amqp::Reply::Done)))
}

/// What was on its way to a consumer without acknowledgement was settled by that, and thrown away.
#[test]
fn what_is_on_its_way_to_a_consumer_comes_before_its_cancellation_is_answered() {
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

/// What the broker is told of limits that consumers share: who shares one, and that it is another one now.
fn shared(connection: &mut Connection) -> Vec<Option<u64>> {
    let requests = std::iter::from_fn(|| connection.poll_request());
    let shared = requests.filter_map(|(_, request)| match request {
        Request::Share(id, _) => Some(Some(id.0)),
        Request::Offer(_) => Some(None),
        _ => None,
    });
    shared.collect()
}

/// Three queues of a channel with a prefetch for all of it: the first one was drained, then the second, and of two consumers of a queue one
/// got everything. The limit is where messages are handed out.
#[test]
fn a_prefetch_for_the_whole_channel_is_held_by_the_broker() {
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
    assert_eq!(qos(&mut connection, 2), [Some(11), Some(12), Some(13), None], "what is to be settled counts");
    let limit = connection.channels[&CHANNEL].limit.clone().expect("a limit");
    assert_eq!([limit.take(12, 9, true).0, limit.take(13, 9, true).0], [2, 0]);
    assert_eq!(qos(&mut connection, 3), [None]);
    assert_eq!(limit.take(13, 9, true).0, 1);
    assert_eq!(qos(&mut connection, 0), [None]);
    assert_eq!(limit.take(13, 9, true).0, 9, "it is lifted");
    // What came finds room: it has been taken by the broker.
    connection.deliver(vec![delivery(12, 2), delivery(13, 3)]);
    assert_eq!(offsets(&given(&mut connection)), [2, 3]);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    assert_eq!(settled(&mut connection).len(), 1);
}

/// A reader was past what a channel with a later shared prefetch had no room for, and never got it.
#[test]
fn a_stream_takes_no_part_in_the_prefetch_of_its_channel() {
    let mut connection = connection_to(2, "stream");
    connection.begin(1, amqp::Request::Qos(CHANNEL, 1));
    assert_eq!(shared(&mut connection), [None]);
    connection.deliver((1..=4).map(|at| delivery(11, at)).collect());
    assert_eq!(offsets(&given(&mut connection)), [1, 2, 3, 4]);
    assert_eq!(settled(&mut connection), [], "nothing goes back");
    connection.give_all_credit();
    assert_eq!(credits(&mut connection), [(11, 4)]);
}

/// It came back by way of the session, and counted as handed out.
#[test]
fn what_meets_a_cancelled_consumer_goes_back_unseen() {
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

fn told(connection: &mut Connection) -> Vec<(u64, Credit)> {
    let requests = std::iter::from_fn(|| connection.poll_request());
    let credits = requests.filter_map(|(_, request)| match request {
        Request::Credit(id, more) => Some((id.0, more)),
        _ => None,
    });
    credits.collect()
}

fn credits(connection: &mut Connection) -> Vec<(u64, u64)> {
    told(connection).into_iter().map(|(id, more)| (id, more.messages)).collect()
}

/// The broker was told of each message alone, and each look for that went over all consumers of the connection.
#[test]
fn credit_is_given_for_many_messages_at_once_or_a_little_later() {
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
    assert_eq!(credits(&mut connection), [], "whoever is gone is owed nothing");
}

/// A consumer that did not read was given its window back after a while, and had more than the window in memory.
#[test]
fn no_time_gives_credit_for_what_is_not_written() {
    let mut connection = connection(1);
    // The session has something to say, and nobody takes it.
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

/// Each consumer that was cancelled stayed until its channel was closed.
#[test]
fn a_cancelled_consumer_goes_when_all_of_it_is_settled() {
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
    match connection.said.as_mut().expect("no wire").pop_front() {
        Some(Said::Reply(amqp::Reply::Refused(why))) => Some(why.code.number()),
        _ => None,
    }
}

/// The client was told that it was done, or that nothing was there; and a broker that was busy closed its connection.
#[test]
fn what_could_not_be_done_is_no_success() {
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
    assert_eq!(refused(&mut connection), None, "somebody else has it");
}

/// Of a quorum queue a consumer on a channel with a prefetch for all of it is refused, as with RabbitMQ.
#[test]
fn a_consumer_comes_with_the_limit_of_its_channel() {
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
            // A limit that came meanwhile holds for it too.
            connection.begin(1, amqp::Request::Qos(CHANNEL, 5));
            connection.on_reply(token, Reply::Attach(Ok(ConsumerId(11))), Now::default());
            assert!(shared(&mut connection).contains(&Some(11)));
        }
    }
}

/// What was written made the connection look at all consumers that were owed something.
#[test]
fn a_look_at_what_is_owed_goes_over_some_consumers_in_turns() {
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
        let told = told(&mut connection);
        assert!(!told.is_empty() && told.len() <= LOOKS_MAX, "{}", told.len());
        order.extend(told.into_iter().map(|(id, _)| id));
    }
    assert_eq!(order, first, "each has its turn, in their order");
    assert!(connection.next_deadline_ms().is_some(), "who was left would have been told soon");
}
