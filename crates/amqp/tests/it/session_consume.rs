//! Consumers, deliveries, acknowledgements, gets, direct replies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_amqp::codec::*;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::*;
use polylogue_amqp::settings::AmqpSettings;
use polylogue_types::Chunk;
use session_host::broker::Broker;
use session_host::*;

fn delivery(at: u64, body: impl Into<Bytes>) -> Delivery {
    Delivery {
        place: Place { queue: 9, at },
        redelivered: at.is_multiple_of(2),
        exchange: "x".into(),
        routing_key: "k".into(),
        properties: BasicProperties { priority: Some(4), ..Default::default() }.encode(),
        payload: body.into().into(),
    }
}

/// An open channel with a consumer.
fn consuming(consume: BasicConsume) -> (Host, ChannelRef, ConsumerRef) {
    let (mut host, channel) = Host::open();
    host.send(1, consume);
    let request = host.answer(Reply::Done);
    let Request::Consume(_, consume) = request else { panic!("{request:?}") };
    host.sent();
    (host, channel, consume.consumer)
}

fn acking() -> (Host, ChannelRef, ConsumerRef) {
    consuming(BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() })
}

/// Delivers this many messages, with places from 1.
fn deliver(host: &mut Host, channel: ChannelRef, consumer: ConsumerRef, count: u64) {
    let deliveries = (1..=count).map(|at| delivery(at, "")).collect();
    host.event(Event::Deliver { channel, consumer, deliveries });
    assert_eq!(contents(&host.sent()).len() as u64, count);
}

fn settled(host: &mut Host) -> Vec<(Verdict, Vec<(u64, u64)>)> {
    host.requests()
        .into_iter()
        .map(|request| {
            let Request::Settle { verdict, runs, .. } = request else { panic!("{request:?}") };
            (verdict, runs.iter().map(|run| (run.first.at, run.count)).collect())
        })
        .collect()
}

#[test]
fn deliveries_are_numbered_and_complete() {
    let (mut host, channel, consumer) = acking();
    let large = Bytes::from(vec![5; 300_000]);
    let deliveries = vec![delivery(1, "one"), delivery(2, ""), delivery(3, large.clone())];
    host.event(Event::Deliver { channel, consumer, deliveries });
    let contents = contents(&host.sent());
    assert_eq!(contents.len(), 3);
    for (at, (method, properties, body)) in contents.iter().enumerate() {
        let tag = at as u64 + 1;
        let expected = BasicDeliver {
            consumer_tag: "c".into(),
            delivery_tag: tag,
            redelivered: tag == 2,
            exchange: "x".into(),
            routing_key: "k".into(),
        };
        assert_eq!(*method, expected.into());
        assert_eq!(*properties, delivery(1, "").properties);
        assert_eq!(*body, [&b"one"[..], b"", &large][at]);
    }
    assert_eq!(host.session.unacked(channel), 3);
}

#[test]
fn large_bodies_are_passed_on_without_a_copy() {
    let (mut host, channel, consumer) = acking();
    let body = Bytes::from(vec![5; 200_000]);
    let payload = Payload::Many(vec![body.slice(..10).into(), body.slice(10..).into()]);
    let deliveries = vec![Delivery { payload, ..delivery(1, "") }];
    host.session.on_event(Event::Deliver { channel, consumer, deliveries }, host.now_ms);
    let mut chunks = Vec::new();
    assert!(host.session.poll_output(&mut chunks, host.now_ms));
    let shared = |chunk: &Chunk| match chunk {
        Chunk::Bytes(bytes) => body.as_ptr_range().contains(&bytes.as_ptr()) as usize * bytes.len(),
        Chunk::File(_) => 0,
    };
    assert_eq!(chunks.iter().map(shared).sum::<usize>(), 200_000 - 10);
}

#[test]
fn many_deliveries_become_one_piece() {
    let (mut host, channel, consumer) = acking();
    let deliveries = (1..=50).map(|at| delivery(at, "small")).collect();
    host.session.on_event(Event::Deliver { channel, consumer, deliveries }, host.now_ms);
    let mut chunks = Vec::new();
    assert!(host.session.poll_output(&mut chunks, host.now_ms));
    assert_eq!(chunks.len(), 1);
}

#[test]
fn acknowledgements_become_verdicts() {
    let (mut host, channel, consumer) = acking();
    deliver(&mut host, channel, consumer, 20);
    host.send(1, BasicAck { delivery_tag: 2, multiple: false });
    assert_eq!(settled(&mut host), [(Verdict::Ack, vec![(2, 1)])]);
    host.send(1, BasicAck { delivery_tag: 5, multiple: true });
    assert_eq!(settled(&mut host), [(Verdict::Ack, vec![(1, 1), (3, 3)])]);
    host.send(1, BasicNack { delivery_tag: 7, multiple: true, requeue: true });
    assert_eq!(settled(&mut host), [(Verdict::Requeue, vec![(6, 2)])]);
    host.send(1, BasicNack { delivery_tag: 8, multiple: false, requeue: false });
    assert_eq!(settled(&mut host), [(Verdict::Discard, vec![(8, 1)])]);
    host.send(1, BasicReject { delivery_tag: 9, requeue: true });
    assert_eq!(settled(&mut host), [(Verdict::RequeueFailed, vec![(9, 1)])]);
    host.send(1, BasicReject { delivery_tag: 10, requeue: false });
    assert_eq!(settled(&mut host), [(Verdict::Discard, vec![(10, 1)])]);
    // All of them.
    host.send(1, BasicAck { delivery_tag: 0, multiple: true });
    assert_eq!(settled(&mut host), [(Verdict::Ack, vec![(11, 10)])]);
    // All of an empty set.
    host.send(1, BasicAck { delivery_tag: 0, multiple: true });
    assert!(host.requests().is_empty() && host.sent().is_empty());
}

#[test]
fn acknowledgements_in_one_read_are_one_request() {
    let (mut host, channel, consumer) = acking();
    deliver(&mut host, channel, consumer, 1000);
    let mut bytes = Vec::new();
    for delivery_tag in 1..=1000 {
        bytes.extend_from_slice(&frame_of(1, BasicAck { delivery_tag, multiple: false }));
    }
    host.feed(&bytes);
    assert_eq!(settled(&mut host), [(Verdict::Ack, vec![(1, 1000)])]);
    // But never across other requests of the channel.
    deliver(&mut host, channel, consumer, 3);
    let mut bytes = frame_of(1, BasicAck { delivery_tag: 1001, multiple: false });
    bytes.extend_from_slice(&frames_of(1, to_queue("q"), &[0, 0], b"", usize::MAX));
    bytes.extend_from_slice(&frame_of(1, BasicAck { delivery_tag: 1002, multiple: false }));
    bytes.extend_from_slice(&frame_of(1, BasicNack { delivery_tag: 1003, ..Default::default() }));
    host.feed(&bytes);
    let requests = host.requests();
    assert!(
        matches!(
            &requests[..],
            [
                Request::Settle { verdict: Verdict::Ack, .. },
                Request::Publish(..),
                Request::Settle { verdict: Verdict::Ack, .. },
                Request::Settle { verdict: Verdict::Discard, .. }
            ]
        ),
        "{requests:?}"
    );
}

#[test]
fn unknown_delivery_tags() {
    let methods: [Method; 6] = [
        BasicAck { delivery_tag: 3, multiple: false }.into(),
        BasicAck { delivery_tag: 3, multiple: true }.into(),
        BasicNack { delivery_tag: 3, ..Default::default() }.into(),
        BasicReject { delivery_tag: 3, requeue: true }.into(),
        // Twice.
        BasicAck { delivery_tag: 1, multiple: false }.into(),
        BasicAck { delivery_tag: 1, multiple: true }.into(),
    ];
    for method in methods {
        let (mut host, channel, consumer) = acking();
        deliver(&mut host, channel, consumer, 2);
        host.send(1, BasicAck { delivery_tag: 1, multiple: false });
        settled(&mut host);
        host.send(1, method.clone());
        let (code, text) = host.closed_channel();
        assert_eq!(code, 406, "{method:?}");
        assert!(text.starts_with("PRECONDITION_FAILED - unknown delivery tag "), "{text}");
        assert!(matches!(host.requests()[..], [Request::CloseChannel(_)]));
    }
    let (mut host, _, _) = acking();
    host.send(1, BasicAck { delivery_tag: 0, multiple: false });
    assert_eq!(host.closed_channel().1, "PRECONDITION_FAILED - unknown delivery tag 0");
}

#[test]
fn automatic_acknowledgement_keeps_nothing() {
    let (mut host, channel, consumer) =
        consuming(BasicConsume { queue: "q".into(), consumer_tag: "c".into(), no_ack: true, ..Default::default() });
    deliver(&mut host, channel, consumer, 5);
    assert_eq!(host.session.unacked(channel), 0);
    host.send(1, BasicAck { delivery_tag: 1, multiple: false });
    assert_eq!(host.closed_channel().1, "PRECONDITION_FAILED - unknown delivery tag 1");
}

#[test]
fn basic_recover_requeues_everything_unsettled() {
    let (mut host, channel, consumer) = acking();
    deliver(&mut host, channel, consumer, 4);
    host.send(1, BasicAck { delivery_tag: 2, multiple: false });
    settled(&mut host);
    host.send(1, BasicRecover { requeue: true });
    assert_eq!(settled(&mut host), [(Verdict::Requeue, vec![(1, 1), (3, 2)])]);
    assert_eq!(host.methods(), [BasicRecoverOk {}.into()]);
    assert_eq!(host.session.unacked(channel), 0);
    // Tags continue.
    host.event(Event::Deliver { channel, consumer, deliveries: vec![delivery(1, "")] });
    let contents = contents(&host.sent());
    assert!(matches!(&contents[0].0, Method::BasicDeliver(deliver) if deliver.delivery_tag == 5));
    host.send(1, BasicRecoverAsync { requeue: true });
    assert!(host.sent().is_empty());
    assert_eq!(settled(&mut host), [(Verdict::Requeue, vec![(1, 1)])]);
}

#[test]
fn consumers_use_the_prefetch_and_queue_of_the_channel() {
    let (mut host, channel) = Host::open();
    let arguments = TableBuilder::new().with("x-priority", Value::I32(5)).build();
    host.send(1, BasicQos { prefetch_count: 7, ..Default::default() });
    let consume =
        BasicConsume { queue: "q".into(), exclusive: true, arguments: arguments.clone(), ..Default::default() };
    host.send(1, consume);
    let request = host.answer(Reply::Done);
    let Request::Consume(of, first) = request else { panic!("{request:?}") };
    assert!(first.tag.starts_with(b"amq.ctag-"));
    let expected = Consume {
        consumer: first.consumer,
        queue: "q".into(),
        tag: first.tag.clone(),
        no_ack: false,
        exclusive: true,
        deliveries_max: 7,
        prefetch: 7,
        arguments,
    };
    assert_eq!((of, &first), (channel, &expected));
    let methods = host.methods();
    assert_eq!(methods[1], BasicConsumeOk { consumer_tag: first.tag.clone() }.into());
    // The broker enforces a shared prefetch, not the consumer.
    host.send(1, BasicQos { prefetch_count: 3, global: true, ..Default::default() });
    assert!(matches!(host.requests()[..], [Request::Qos(_, 3)]));
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() });
    assert!(matches!(host.answer(Reply::Done), Request::Consume(_, second) if second.deliveries_max == 7));
    // A prefetch per consumer removes it.
    host.send(1, BasicQos::default());
    assert!(matches!(host.requests()[..], [Request::Qos(_, 0)]));
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "d".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    assert!(matches!(request, Request::Consume(_, third) if third.deliveries_max == 1 << 18 && third.prefetch == 0));
}

#[test]
fn refused_consumers() {
    let (mut host, _, _) = acking();
    host.send(1, BasicConsume { queue: "p".into(), consumer_tag: "c".into(), ..Default::default() });
    assert_eq!(host.closed(), (530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'".into()));

    let settings = AmqpSettings { consumers_per_channel_max: 1, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    host.open_channel(1);
    host.send(1, BasicConsume { queue: "q".into(), ..Default::default() });
    host.answer(Reply::Done);
    host.sent();
    host.send(1, BasicConsume { queue: "q".into(), ..Default::default() });
    assert_eq!(host.closed(), (530, "NOT_ALLOWED - reached maximum (1) of consumers per channel".into()));

    let (mut host, _) = Host::open();
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() });
    let queue = polylogue_amqp::refusal::Named { kind: polylogue_amqp::refusal::Kind::Queue, name: b"q", vhost: b"/" };
    host.answer(Reply::Refused(Refusal::exclusive_use(queue)));
    assert_eq!(host.closed_channel(), (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use".into()));
}

#[test]
fn a_consumer_is_cancelled_by_the_client() {
    let (mut host, channel, consumer) = acking();
    deliver(&mut host, channel, consumer, 2);
    host.send(1, BasicCancel { consumer_tag: "c".into(), nowait: false });
    // Deliveries in flight come before the end.
    host.event(Event::Deliver { channel, consumer, deliveries: vec![delivery(3, "")] });
    assert_eq!(contents(&host.sent()).len(), 1);
    assert!(matches!(host.answer(Reply::Done), Request::Cancel(_, of) if of == consumer));
    assert_eq!(host.methods(), [BasicCancelOk { consumer_tag: "c".into() }.into()]);
    // Later deliveries are requeued.
    host.event(Event::Deliver { channel, consumer, deliveries: vec![delivery(4, ""), delivery(5, "")] });
    assert!(host.sent().is_empty());
    assert_eq!(settled(&mut host), [(Verdict::Requeue, vec![(4, 2)])]);
    // Earlier deliveries are still to be settled.
    host.send(1, BasicAck { delivery_tag: 3, multiple: true });
    assert_eq!(settled(&mut host), [(Verdict::Ack, vec![(1, 3)])]);
    // Cancelling an unknown consumer is no error.
    host.send(1, BasicCancel { consumer_tag: "c".into(), nowait: false });
    assert_eq!(host.methods(), [BasicCancelOk { consumer_tag: "c".into() }.into()]);
    host.send(1, BasicCancel { consumer_tag: "d".into(), nowait: true });
    assert!(host.sent().is_empty() && host.requests().is_empty());
    // The tag may be reused.
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() });
    assert!(matches!(host.answer(Reply::Done), Request::Consume(_, again) if again.consumer != consumer));
}

#[test]
fn a_consumer_is_cancelled_by_the_broker() {
    let (mut host, channel, consumer) = acking();
    host.event(Event::Cancelled { channel, consumer });
    assert_eq!(host.methods(), [BasicCancel { consumer_tag: "c".into(), nowait: true }.into()]);
    host.event(Event::Cancelled { channel, consumer });
    assert!(host.sent().is_empty());
    // Clients without the capability get no notification.
    let mut host = Host::open_with(AmqpSettings::default(), Table::EMPTY);
    let channel = host.open_channel(1);
    host.send(1, BasicConsume { queue: "q".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    let Request::Consume(_, consume) = request else { panic!("{request:?}") };
    host.sent();
    host.event(Event::Cancelled { channel, consumer: consume.consumer });
    assert!(host.sent().is_empty());
}

#[test]
fn both_sides_cancel_at_the_same_time() {
    let (mut host, channel, consumer) = acking();
    host.send(1, BasicCancel { consumer_tag: "c".into(), nowait: false });
    host.event(Event::Cancelled { channel, consumer });
    host.answer(Reply::Done);
    let expected: [Method; 2] = [
        BasicCancel { consumer_tag: "c".into(), nowait: true }.into(),
        BasicCancelOk { consumer_tag: "c".into() }.into(),
    ];
    assert_eq!(host.methods(), expected);
}

#[test]
fn gets() {
    let (mut host, channel) = Host::open();
    host.send(1, BasicGet { queue: "q".into(), ..Default::default() });
    let got = Reply::Message(Some(Box::new((delivery(3, "body"), 7))));
    assert!(matches!(host.answer(got), Request::Get { no_ack: false, .. }));
    let contents = contents(&host.sent());
    let [(Method::BasicGetOk(ok), _, body)] = &contents[..] else { panic!("{contents:?}") };
    assert_eq!((ok.delivery_tag, ok.message_count, &body[..]), (1, 7, &b"body"[..]));
    assert_eq!(host.session.unacked(channel), 1);
    host.send(1, BasicGet { queue: "q".into(), no_ack: true, ..Default::default() });
    host.answer(Reply::Message(Some(Box::new((delivery(4, "body"), 6)))));
    host.sent();
    assert_eq!(host.session.unacked(channel), 1);
    host.send(1, BasicGet { queue: "q".into(), ..Default::default() });
    host.answer(Reply::Message(None));
    assert_eq!(host.methods(), [BasicGetEmpty::default().into()]);
    host.send(1, BasicAck { delivery_tag: 1, multiple: false });
    let requests = host.requests();
    let [Request::Settle { runs, .. }] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(runs[..], [Run { consumer: NO_CONSUMER, first: Place { queue: 9, at: 3 }, count: 1 }]);
}

#[test]
fn unsettled_deliveries_are_limited() {
    let settings = AmqpSettings { unacked_per_channel_max: 10, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    let channel = host.open_channel(1);
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() });
    let request = host.answer(Reply::Done);
    let Request::Consume(_, consume) = request else { panic!("{request:?}") };
    assert_eq!(consume.deliveries_max, 10);
    host.sent();
    deliver(&mut host, channel, consume.consumer, 9);
    assert!(host.session.may_deliver(channel));
    deliver(&mut host, channel, consume.consumer, 1);
    assert!(!host.session.may_deliver(channel));
    host.send(1, BasicAck { delivery_tag: 1, multiple: false });
    assert!(host.session.may_deliver(channel));
}

#[test]
fn direct_replies() {
    let (mut host, channel) = Host::open();
    let mut broker = Broker::of(channel);
    let consume = |tag: &'static str, no_ack| BasicConsume {
        queue: "amq.rabbitmq.reply-to".into(),
        consumer_tag: tag.into(),
        no_ack,
        ..Default::default()
    };
    host.send(1, consume("r", true));
    broker.serve(&mut host);
    assert_eq!(host.methods(), [BasicConsumeOk { consumer_tag: "r".into() }.into()]);
    host.send(1, QueueDeclare { queue: "server".into(), ..Default::default() });
    let ask = BasicProperties {
        reply_to: Some("amq.rabbitmq.reply-to".into()),
        correlation_id: Some("7".into()),
        ..Default::default()
    };
    host.publish(1, to_queue("server"), &ask, b"ask");
    host.send(1, BasicGet { queue: "server".into(), no_ack: true, ..Default::default() });
    broker.serve(&mut host);
    let sent = host.sent();
    let asked = contents(&sent);
    let properties = BasicProperties::decode(&asked[0].1).unwrap();
    let address = properties.reply_to.clone().unwrap();
    assert!(address.starts_with(b"amq.rabbitmq.reply-to.") && address.len() > 22, "{address}");
    assert_eq!(properties.correlation_id, ask.correlation_id);
    host.publish(
        1,
        BasicPublish { routing_key: address, ..Default::default() },
        &BasicProperties::default(),
        b"answer",
    );
    broker.serve(&mut host);
    let answered = contents(&host.sent());
    let [(Method::BasicDeliver(deliver), _, body)] = &answered[..] else { panic!("{answered:?}") };
    assert_eq!((&deliver.consumer_tag[..], &body[..]), (&b"r"[..], &b"answer"[..]));
    assert_eq!(host.session.unacked(channel), 0);
    // After its cancellation it gets no more replies.
    host.send(1, BasicCancel { consumer_tag: "r".into(), nowait: false });
    assert_eq!(host.methods(), [BasicCancelOk { consumer_tag: "r".into() }.into()]);
    broker.serve(&mut host);
    host.publish(1, to_queue("server"), &ask, b"ask");
    assert_eq!(host.closed_channel().1, "PRECONDITION_FAILED - fast reply consumer does not exist");

    let (mut host, _) = Host::open();
    host.send(1, consume("r", false));
    assert_eq!(host.closed_channel().1, "PRECONDITION_FAILED - reply consumer cannot acknowledge");
    let (mut host, _) = Host::open();
    host.send(1, consume("r", true));
    host.answer(Reply::ReplyAddress("a".into()));
    host.sent();
    host.send(1, consume("s", true));
    assert_eq!(host.closed_channel().1, "PRECONDITION_FAILED - reply consumer already set");
}
