//! Bugs of other AMQP brokers that a session could have: one test each, with the issue or change that describes it (numbers without a project are of
//! `cloudamqp/lavinmq`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{Event, Reply, Request};
use polylogue_amqp::settings::AmqpSettings;
use session_host::broker::Broker;
use session_host::*;

/// #1891, #2002: a publish must be confirmed when the broker reports it durable, not when it was passed to the broker.
#[test]
fn no_confirm_before_that_of_the_broker() {
    let (mut host, channel) = Host::open();
    host.send(1, ConfirmSelect { nowait: true });
    host.publish(1, to_queue("q"), &BasicProperties::default(), b"");
    assert_eq!(host.requests().len(), 1);
    host.pass(10_000);
    assert!(host.sent().is_empty());
    host.event(Event::Confirmed { channel, first: 1, last: 1 });
    assert!(matches!(host.methods()[..], [Method::BasicAck(_)]));
}

/// #2186: `connection.blocked` was advertised and never sent; publishers got a channel error instead.
#[test]
fn a_blocked_publisher_keeps_its_channel() {
    let (mut host, channel) = Host::open();
    host.publish(1, to_queue("q"), &BasicProperties::default(), b"");
    host.event(Event::Blocked("low on disk".into()));
    assert!(matches!(host.methods()[..], [Method::ConnectionBlocked(_)]));
    host.publish(1, to_queue("q"), &BasicProperties::default(), b"");
    assert!(!host.session.wants_input() && host.session.may_deliver(channel));
    // And it stays open while it is not read.
    let deadline = host.session.next_deadline_ms();
    host.pass(1_000_000);
    assert_eq!(host.session.close_reason(), None);
    assert!(deadline.is_some() && host.sent().contains(&Sent::Heartbeat));
    host.event(Event::Unblocked);
    assert!(matches!(host.methods()[..], [Method::ConnectionUnblocked(_)]));
    assert_eq!(host.requests().len(), 2);
}

/// `basic.recover` with `requeue=false` and `immediate=true` were taken where clients expect 540.
#[test]
fn unsupported_options_are_refused() {
    for method in
        [Method::from(BasicRecover { requeue: false }), BasicPublish { immediate: true, ..Default::default() }.into()]
    {
        let (mut host, _) = Host::open();
        host.send(1, method);
        assert_eq!(host.closed().0, 540);
    }
}

/// #1813, and Java's FrameMax and UnexpectedFrames: the socket was closed without `connection.close`.
#[test]
fn a_framing_error_is_reported_before_the_close() {
    let large = FramePrefix { kind: 1, channel: 1, size: 1 << 30 }.to_bytes().to_vec();
    let mut unended = frame_of(1, BasicQos::default());
    let last = unended.len() - 1;
    unended[last] = 0;
    for (bytes, code) in [(large, 501), (unended.to_vec(), 501), (vec![8, 0, 1, 0, 0, 0, 0, FRAME_END], 505)] {
        let (mut host, _) = Host::open();
        host.feed(&bytes);
        assert_eq!(host.closed().0, code);
        assert_eq!(host.session.close_reason(), None);
        host.pass(30_000);
        assert!(host.session.close_reason().is_some());
    }
}

/// #1999: a heartbeat on another channel than 0.
#[test]
fn a_heartbeat_is_on_channel_0() {
    let (mut host, _) = Host::open();
    host.feed(&[8, 0, 0, 0, 0, 0, 0, FRAME_END]);
    assert!(host.sent().is_empty());
    host.feed(&[8, 0, 1, 0, 0, 0, 0, FRAME_END]);
    assert_eq!(host.closed(), (505, "UNEXPECTED_FRAME - type 8, all octets = <<>>".into()));
}

/// f421d6e, #1980: acknowledgements in flight when a channel was closed, by either side, closed the connection.
#[test]
fn late_acknowledgements_of_a_closed_channel_are_ignored() {
    let late: [Method; 3] = [
        BasicAck { delivery_tag: 1, multiple: true }.into(),
        BasicNack::default().into(),
        BasicReject::default().into(),
    ];
    let (mut host, _) = Host::open();
    // Closed by the server, before and after the client knows.
    host.send(1, BasicAck { delivery_tag: 1, multiple: false });
    host.closed_channel();
    late.clone().into_iter().for_each(|method| host.send(1, method));
    host.send(1, ChannelCloseOk {});
    late.clone().into_iter().for_each(|method| host.send(1, method));
    assert_eq!(host.requests().len(), 1);
    // Closed by the client.
    host.open_channel(2);
    host.send(2, ChannelClose::default());
    host.answer(Reply::Done);
    host.sent();
    late.into_iter().for_each(|method| host.send(2, method));
    assert!(host.sent().is_empty() && host.requests().is_empty());
    host.open_channel(1);
}

/// Names with line breaks were refused instead of stripped.
#[test]
fn line_breaks_in_names_are_removed() {
    let (mut host, _) = Host::open();
    host.send(1, ExchangeDeclare { exchange: "\r\na\nb\r".into(), ..Default::default() });
    assert!(matches!(host.answer(Reply::Done), Request::DeclareExchange(_, wanted) if &wanted.name[..] == b"ab"));
}

/// #1429, #2198: an argument that is `false` was refused, and `x-queue-type` was lost. Arguments reach the broker unchanged.
#[test]
fn arguments_are_passed_on_unchanged() {
    let raw = Bytes::from_static(b"\x0cx-queue-typeS\0\0\0\x06quorum\x01ft\0\x01LL\0\0\0\0\0\0\0\x01\x01fs\0\x05");
    let arguments = Table::new(raw.clone()).unwrap();
    let (mut host, _) = Host::open();
    host.send(1, QueueDeclare { queue: "q".into(), arguments, ..Default::default() });
    let request = host.answer(Reply::Queue { messages: 0, consumers: 0 });
    let Request::DeclareQueue(_, wanted) = request else { panic!("{request:?}") };
    assert_eq!(wanted.arguments.raw(), &raw);
}

/// #1557: BCC recipients were visible. 1.2.3, 1.2.4: headers were corrupted.
#[test]
fn bcc_is_removed_and_other_headers_are_unchanged() {
    let raw = Bytes::from_static(b"\x01LL\0\0\0\0\0\0\0\x01\x03BCCA\0\0\0\x06S\0\0\0\x01b\x01st\x01");
    let headers = Table::new(raw).unwrap();
    let (mut host, _) = Host::open();
    let properties = BasicProperties { headers: Some(headers), priority: Some(1), ..Default::default() };
    host.publish(1, to_queue("q"), &properties, b"");
    let (_, request) = host.request();
    let Request::Publish(_, publish) = request else { panic!("{request:?}") };
    assert_eq!(publish.bcc, [Bytes::from_static(b"b")]);
    let expected = Bytes::from_static(b"\x01LL\0\0\0\0\0\0\0\x01\x01st\x01");
    assert_eq!(publish.properties.headers().unwrap().raw(), &expected);
    assert_eq!(publish.properties.priority, Some(1));
}

/// 9fbf4dc: a get that raced a delete was an error although the queue existed when it was requested.
#[test]
fn a_get_from_an_empty_queue_is_no_error() {
    let (mut host, _) = Host::open();
    host.send(1, BasicGet { queue: "q".into(), ..Default::default() });
    host.answer(Reply::Message(None));
    assert_eq!(host.methods(), [BasicGetEmpty::default().into()]);
}

/// #1344: a message was requeued twice. The broker of these tests panics in that case.
#[test]
fn nothing_is_requeued_twice() {
    let (mut host, channel) = Host::open();
    let mut broker = Broker::of(channel);
    host.send(1, QueueDeclare { queue: "q".into(), ..Default::default() });
    host.publish(1, to_queue("q"), &BasicProperties::default(), b"");
    host.send(1, BasicGet { queue: "q".into(), ..Default::default() });
    broker.serve(&mut host);
    host.sent();
    // Recovered, rejected and closed in one read.
    let mut bytes = frame_of(1, BasicRecover { requeue: true });
    bytes.extend_from_slice(&frame_of(1, BasicReject { delivery_tag: 1, requeue: true }));
    bytes.extend_from_slice(&frame_of(1, ChannelClose::default()));
    bytes.extend_from_slice(&frame_of(0, ConnectionClose::default()));
    host.feed(&bytes);
    broker.serve(&mut host);
    let methods = host.methods();
    assert!(matches!(&methods[1], Method::ChannelClose(close) if close.reply_code == 406), "{methods:?}");
    assert_eq!(methods.last(), Some(&ConnectionCloseOk {}.into()));
    assert_eq!((broker.unsettled(), broker.ready("q"), host.session.unacked(channel)), (0, 1, 0));
}

/// streamnative/aop#258: a plain declare with a client's defaults failed.
#[test]
fn a_plain_declare_is_accepted() {
    let (mut host, channel) = Host::open();
    let mut broker = Broker::of(channel);
    host.send(1, QueueDeclare { auto_delete: true, exclusive: true, ..Default::default() });
    broker.serve(&mut host);
    assert!(matches!(host.methods()[..], [Method::QueueDeclareOk(_)]));
}

/// rabbitmq 4.1: a `frame_max` of 4096 shut out amqplib before 0.10.7.
#[test]
fn small_frames_are_accepted() {
    let settings = AmqpSettings { frame_bytes_max: 4096, ..Default::default() };
    let host = Host::open_with(settings, client_properties());
    assert_eq!(host.session.close_reason(), None);
}

/// An unknown method made RabbitMQ's reader exit: the client never received the reason.
#[test]
fn an_unknown_method_is_reported() {
    let (mut host, _) = Host::open();
    let mut bytes = BytesMut::from(&FramePrefix { kind: 1, channel: 1, size: 4 }.to_bytes()[..]);
    bytes.extend_from_slice(&[0, 60, 0, 99, FRAME_END]);
    host.feed(&bytes);
    assert_eq!(host.closed().0, 503);
}

/// Kombu's fallback, Celery and others: refusals of the broker reach the client with their complete text.
#[test]
fn refusal_texts_reach_the_client() {
    let (mut host, _) = Host::open();
    host.send(1, QueueDeclare { queue: "q".into(), passive: true, ..Default::default() });
    let queue = polylogue_amqp::refusal::Named { kind: polylogue_amqp::refusal::Kind::Queue, name: b"q", vhost: b"/" };
    host.answer(Reply::Refused(Refusal::missing(queue)));
    assert_eq!(host.closed_channel(), (404, "NOT_FOUND - no queue 'q' in vhost '/'".into()));
}

/// A consumer that published to a missing exchange, and acknowledged the message it had consumed, lost the message. The broker of these tests panics
/// on any request after the publish that it refused.
#[test]
fn nothing_after_a_refused_publish_is_requested_or_answered() {
    let behind: [Method; 8] = [
        BasicAck { delivery_tag: 1, multiple: false }.into(),
        BasicAck { delivery_tag: 9, multiple: false }.into(),
        BasicQos { prefetch_count: 1, ..Default::default() }.into(),
        ConfirmSelect::default().into(),
        TxSelect {}.into(),
        QueueDelete { queue: "q".into(), ..Default::default() }.into(),
        BasicRecover { requeue: true }.into(),
        ChannelClose::default().into(),
    ];
    for (in_tx, method) in [false, true].into_iter().flat_map(|in_tx| behind.iter().map(move |one| (in_tx, one))) {
        let (mut host, channel) = Host::open();
        let mut broker = Broker::of(channel);
        host.send(1, QueueDeclare { queue: "q".into(), ..Default::default() });
        host.publish(1, to_queue("q"), &BasicProperties::default(), b"source");
        host.send(1, BasicGet { queue: "q".into(), ..Default::default() });
        broker.serve(&mut host);
        if in_tx {
            host.send(1, TxSelect {});
        }
        host.sent();
        let missing = BasicPublish { exchange: "missing".into(), ..Default::default() };
        let mut bytes = frames_of(1, missing, &[0, 0], b"x", usize::MAX);
        bytes.extend_from_slice(&frames_of(1, to_queue("q"), &[0, 0], b"second", usize::MAX));
        bytes.extend_from_slice(&frame_of(1, method.clone()));
        host.feed(&bytes);
        broker.serve(&mut host);
        let mut methods = host.methods();
        let Method::ChannelClose(close) = methods.remove(0) else { panic!("{method:?}: {methods:?}") };
        assert_eq!((close.reply_code, close.class_id, close.method_id), (404, 60, 40), "{method:?}");
        let answers: &[Method] = match method {
            Method::ChannelClose(_) => &[Method::ChannelCloseOk(ChannelCloseOk {})],
            _ => &[],
        };
        assert_eq!(methods, answers);
        assert_eq!((broker.unsettled(), broker.ready("q")), (0, 1), "{method:?}");
    }
}
