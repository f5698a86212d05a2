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
        let consumer = Consumer {
            id,
            entry,
            no_ack: false,
            ack_ms_max: None,
            owed: Credit::default(),
            unsettled: 0,
            capacity: WINDOW_MESSAGES,
            drains: false,
        };
        open.consumers.insert(ConsumerRef(number), consumer);
        connection.consumers.insert(id, (CHANNEL, ConsumerRef(number)));
    }
    connection.channels.insert(CHANNEL, open);
    connection
}

/// The channel shares a prefetch, and each consumer has been told of so many messages.
fn share(connection: &mut Connection, qos: u16, told: u64) {
    let open = connection.channels.get_mut(&CHANNEL).expect("open");
    open.qos = qos;
    open.consumers.values_mut().for_each(|one| one.capacity = told);
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

/// What a channel with a shared prefetch had no room for stayed with its consumer, and nobody else got it.
#[test]
fn what_a_channel_has_no_room_for_goes_back_unseen_until_something_is_settled() {
    let mut connection = connection(2);
    share(&mut connection, 1, 2);
    connection.deliver(vec![delivery(11, 1), delivery(11, 2), delivery(12, 3), delivery(12, 4)]);
    let first = given(&mut connection);
    assert_eq!(first.len(), 1);
    let back: Vec<_> = settled(&mut connection).iter().map(|one| (one.first.0, one.how)).collect();
    assert_eq!(back, [2, 3, 4].map(|at| (at, Settle::Unsent)));
    connection.give_all_credit();
    assert_eq!(credits(&mut connection), [], "it would come again at once");
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    let mut told = credits(&mut connection);
    told.sort_unstable();
    assert_eq!(told, [(11, 1), (12, 1)], "each may have the one that there is room for");
    connection.deliver(vec![delivery(12, 3)]);
    assert_eq!(offsets(&given(&mut connection)), [3]);
}

/// A reader was past what a channel with a later shared prefetch had no room for, and never got it.
#[test]
fn a_stream_takes_no_part_in_the_prefetch_of_its_channel() {
    let mut connection = connection_to(2, "stream");
    let open = connection.channels.get_mut(&CHANNEL).expect("open");
    (open.qos, open.unsettled) = (2, 1);
    connection.deliver((1..=4).map(|at| delivery(11, at)).collect());
    connection.deliver(vec![delivery(12, 1)]);
    let all = given(&mut connection);
    assert_eq!(offsets(&all), [1, 2, 3, 4, 1]);
    assert_eq!(settled(&mut connection), [], "nothing goes back");
    connection.give_all_credit();
    assert_eq!(credits(&mut connection), [(11, 4), (12, 1)], "whatever else the channel has");
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, all[0])]);
    connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
    stopped(&mut connection);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, all[1])]);
    assert_eq!(connection.channels[&CHANNEL].unsettled, 1, "what others have to settle");
}

/// The last message that there was room for was given twice: what came meanwhile was given before what went back for it.
#[test]
fn no_more_is_on_its_way_to_a_consumer_than_its_channel_has_room_for() {
    let mut connection = connection(1);
    share(&mut connection, 2, 2);
    connection.deliver(vec![delivery(11, 1)]);
    let first = given(&mut connection);
    connection.give_all_credit();
    assert_eq!(
        told(&mut connection),
        [(11, Credit { messages: 0, bytes: 1 })],
        "one is not settled, one is on its way"
    );
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    assert_eq!(credits(&mut connection), [(11, 1)]);
}

/// A message that was on its way when one before it went back found room that had been made meanwhile, and came first.
#[test]
fn what_is_behind_a_message_that_went_back_goes_back_too() {
    let mut connection = connection(1);
    share(&mut connection, 2, 5);
    connection.deliver((1..=3).map(|at| delivery(11, at)).collect());
    let first = given(&mut connection);
    assert_eq!(offsets(&first), [1, 2]);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    assert_eq!(credits(&mut connection), [], "two are on their way still");
    connection.deliver(vec![delivery(11, 4)]);
    connection.deliver(vec![delivery(11, 3)]);
    assert_eq!(given(&mut connection), [], "the broker may have handed out the fifth behind it, and not the fourth");
    assert_eq!(credits(&mut connection), [(11, 1)], "none is on its way any more, and there is room");
    connection.deliver(vec![delivery(11, 3)]);
    assert_eq!(offsets(&given(&mut connection)), [3]);
}

/// Nothing was written after a message went back, and nobody remembered that its consumer had no credit left.
#[test]
fn a_consumer_whose_message_went_back_gets_it_when_there_is_room() {
    let mut connection = connection(2);
    share(&mut connection, 1, 1);
    connection.deliver(vec![delivery(11, 1)]);
    let first = given(&mut connection);
    connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
    stopped(&mut connection);
    connection.give_credit();
    connection.deliver(vec![delivery(12, 2)]);
    assert_eq!((given(&mut connection), credits(&mut connection)), (vec![], vec![]));
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    assert_eq!(credits(&mut connection), [(12, 1)]);
}

/// What a consumer had on its way before a lower prefetch came was all that it ever got.
#[test]
fn a_lower_shared_prefetch_leaves_nobody_without_credit() {
    let mut connection = connection(1);
    share(&mut connection, 0, 3);
    connection.deliver((1..=3).map(|at| delivery(11, at)).collect());
    let before = given(&mut connection);
    connection.give_all_credit();
    assert_eq!(credits(&mut connection), [(11, 3)]);
    connection.begin(1, amqp::Request::Qos(CHANNEL, 2));
    for _ in 0..3 {
        connection.deliver(vec![delivery(11, 4)]);
    }
    let runs: Vec<_> = before.iter().map(|place| run(1, *place)).collect();
    connection.settle(CHANNEL, Verdict::Ack, &runs[..1]);
    assert_eq!(credits(&mut connection), [], "two are as many as it may have");
    connection.settle(CHANNEL, Verdict::Ack, &runs[1..]);
    assert_eq!(credits(&mut connection), [(11, 2)]);
}

/// A consumer kept to the prefetch that was shared when it came.
#[test]
fn another_shared_prefetch_changes_what_consumers_may_have() {
    let mut connection = connection(1);
    let qos = |connection: &mut Connection, count| connection.begin(1, amqp::Request::Qos(CHANNEL, count));
    connection.channels.get_mut(&CHANNEL).expect("open").consumers.values_mut().for_each(|one| one.capacity = 2);
    for (count, more) in
        [(2, vec![]), (5, vec![(11, 3)]), (1, vec![]), (5, vec![(11, 4)]), (0, vec![(11, WINDOW_MESSAGES - 5)])]
    {
        qos(&mut connection, count);
        assert_eq!(credits(&mut connection), more, "{count}");
    }
}

/// It came back by way of the session, and made room that it had never taken.
#[test]
fn what_meets_a_cancelled_consumer_goes_back_and_makes_no_room() {
    let mut connection = connection(2);
    share(&mut connection, 1, 1);
    connection.deliver(vec![delivery(11, 1)]);
    let first = given(&mut connection);
    connection.begin(1, amqp::Request::Cancel(CHANNEL, ConsumerRef(1)));
    stopped(&mut connection);
    connection.deliver(vec![delivery(11, 2), delivery(12, 3)]);
    assert_eq!(given(&mut connection), [], "one is not settled");
    assert_eq!(settled(&mut connection).iter().map(|one| one.first.0).collect::<Vec<_>>(), [2, 3]);
    connection.settle(CHANNEL, Verdict::Ack, &[run(1, first[0])]);
    connection.deliver(vec![delivery(12, 3)]);
    assert_eq!(offsets(&given(&mut connection)), [3]);
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

/// It took up to 1,000 messages that others could have had; of a quorum queue all of them counted as failed when it left.
#[test]
fn a_prefetch_for_the_whole_channel_limits_what_a_consumer_has_on_its_way() {
    for (kind, credit, code) in [("classic", Some(2), None), ("quorum", None, Some(540))] {
        let mut connection = connection_to(0, kind);
        connection.channels.get_mut(&CHANNEL).expect("open").qos = 2;
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
            Some((_, Request::Attach(attach))) => attach.consumer.credit,
            _ => None,
        };
        assert_eq!((asked, refused(&mut connection)), (credit, code), "{kind}");
    }
}

/// What a consumer had been told of came after its channel's prefetch had been lowered, and went back: up to 1,000 messages, each once.
#[test]
fn a_lower_shared_prefetch_takes_back_what_consumers_were_told_of() {
    let mut connection = connection(2);
    let withdrawn = |connection: &mut Connection| -> Vec<(u64, u64)> {
        let requests = std::iter::from_fn(|| connection.poll_request());
        let withdrawn = requests.filter_map(|(_, request)| match request {
            Request::Withdraw(id, fewer) => Some((id.0, fewer)),
            Request::Credit(id, _) => panic!("{id:?} is told of more"),
            _ => None,
        });
        let mut withdrawn: Vec<_> = withdrawn.collect();
        withdrawn.sort_unstable();
        withdrawn
    };
    connection.deliver((0..40).map(|at| delivery(11, at)).collect());
    given(&mut connection);
    connection.begin(1, amqp::Request::Qos(CHANNEL, 10));
    assert_eq!(withdrawn(&mut connection), [(11, WINDOW_MESSAGES - 10 - 40), (12, WINDOW_MESSAGES - 10)]);
    let open = &connection.channels[&CHANNEL];
    assert!(open.consumers.values().all(|one| one.out() == 10), "what came is not told again");
    assert!(connection.owing.len() <= 1, "{:?}", connection.owing);
    // As before, when there is room again.
    connection.begin(1, amqp::Request::Qos(CHANNEL, 2_000));
    let mut credits = credits(&mut connection);
    credits.sort_unstable();
    assert_eq!(credits, [(11, WINDOW_MESSAGES - 10), (12, WINDOW_MESSAGES - 10)]);
    // One that settles by being sent shares nothing.
    let open = connection.channels.get_mut(&CHANNEL).expect("open");
    open.consumers.values_mut().for_each(|one| one.no_ack = true);
    connection.begin(1, amqp::Request::Qos(CHANNEL, 1));
    assert_eq!(withdrawn(&mut connection), []);
}

/// Each acknowledgement looked at all consumers of a channel that share a prefetch.
#[test]
fn an_acknowledgement_looks_at_some_consumers_in_turns_however_many_are_owed() {
    const CONSUMERS: u32 = 1_000;
    let mut connection = connection(CONSUMERS);
    share(&mut connection, 1, 1);
    // One has its message, the others' go back.
    connection.deliver((1..=CONSUMERS).map(|n| delivery(10 + u64::from(n), n.into())).collect());
    assert_eq!(given(&mut connection).len(), 1);
    settled(&mut connection);
    assert_eq!(connection.owing.len(), CONSUMERS as usize);
    let mut order = Vec::new();
    for n in 0..CONSUMERS {
        connection.give_where_starved();
        assert_eq!(told(&mut connection), [], "{n}: there is no room");
    }
    let first: Vec<_> = connection.owing.iter().map(|(_, consumer)| 10 + u64::from(consumer.0)).collect();
    let open = connection.channels.get_mut(&CHANNEL).expect("open");
    open.unsettled = 0;
    while connection.is_starved {
        connection.give_where_starved();
        let told = told(&mut connection);
        assert!(told.len() <= LOOKS_MAX);
        order.extend(told.into_iter().map(|(id, _)| id));
    }
    assert_eq!(order, first, "each has its turn, in their order");
    assert!(
        connection.owing.is_empty() && connection.next_deadline_ms().is_some(),
        "who was left would have been told soon"
    );
}
