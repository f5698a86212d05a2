//! Channels: opening, closing, misplaced frames and refusals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::{BufMut, Bytes, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_amqp::refusal::{Code, Refusal};
use polylogue_amqp::request::{ChannelRef, Event, Place, Reply, Request, Run, Verdict};
use polylogue_amqp::settings::AmqpSettings;
use session_host::broker::Broker;
use session_host::*;

fn frame(kind: u8, channel: u16, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(&FramePrefix { kind, channel, size: payload.len() as u32 }.to_bytes());
    out.put_slice(payload);
    out.put_u8(FRAME_END);
    out
}

#[test]
fn misplaced_frames_close_the_connection() {
    let publish = || frame_of(1, to_queue("q"));
    let with = |before: BytesMut, after: BytesMut| [&before[..], &after[..]].concat();
    let header = |class: u8, weight: u8, size: u64| {
        let mut payload = BytesMut::from(&[0, class, 0, weight][..]);
        payload.put_u64(size);
        payload.put_u16(0);
        frame(2, 1, &payload)
    };
    let body = |len| frame(3, 1, &vec![b'x'; len]);
    let sized = with(publish(), header(60, 0, 5));
    let cases: Vec<(Vec<u8>, u16, &str)> = vec![
        (body(1).to_vec(), 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        (header(60, 0, 1).to_vec(), 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        (
            with(publish(), body(1)),
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        ),
        (
            with(publish(), frame_of(1, ChannelFlow { active: true })),
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        ),
        (
            with(publish(), header(50, 0, 1)),
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
        ),
        (
            with(publish(), header(60, 1, 1)),
            505,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        ),
        (
            [&sized[..], &header(60, 0, 5)].concat(),
            505,
            "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
        ),
        (
            [&sized[..], &frame_of(1, BasicAck::default())].concat(),
            505,
            "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
        ),
        ([&sized[..], &body(6)].concat(), 501, "FRAME_ERROR - content body frame exceeds remaining content size"),
        (
            with(publish(), header(60, 0, (512 << 20) + 1)),
            501,
            "FRAME_ERROR - content body size 536870913 exceeds maximum allowed size 536870912",
        ),
        (frame(8, 1, b"").to_vec(), 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>"),
        (frame(3, 0, b"hello").to_vec(), 505, "UNEXPECTED_FRAME - type 3, all octets = <<\"hello\">>"),
        (frame(8, 0, b"x").to_vec(), 501, "FRAME_ERROR - type 8, all octets = <<\"x\">>: unknown_frame"),
        (frame(4, 1, b"").to_vec(), 501, "FRAME_ERROR - type 4, all octets = <<>>: unknown_frame"),
        (frame(1, 1, &[0, 1, 2]).to_vec(), 501, "FRAME_ERROR - type 1, all octets = <<0,1,2>>: unknown_frame"),
        (frame(1, 1, &[0, 60, 0, 80, 1]).to_vec(), 501, "FRAME_ERROR - cannot decode <<1>>"),
        (frame(1, 1, &[0, 60, 0, 30, 1, 255, 0]).to_vec(), 501, "FRAME_ERROR - Malformed UTF-8 in shortstr"),
        (frame(1, 1, &[0, 99, 0, 1]).to_vec(), 503, "COMMAND_INVALID - unknown method {99,1}"),
        (frame_of(1, BasicQosOk {}).to_vec(), 503, "COMMAND_INVALID - unimplemented method"),
    ];
    for (bytes, code, text) in cases {
        let (mut host, _) = Host::open();
        host.feed(&bytes);
        assert_eq!(host.closed(), (code, text.to_owned()));
        assert!(matches!(host.requests()[..], [Request::CloseConnection]), "{text}");
        assert_eq!((host.session.channel_count(), host.session.held_bytes()), (0, 0));
    }
}

#[test]
fn a_bad_frame_end_is_reported_and_later_input_is_ignored() {
    let (mut host, _) = Host::open();
    let mut bytes = frame(1, 1, &[0, 20, 0, 20, 1]);
    let end = bytes.len() - 1;
    bytes[end] = b'A';
    bytes.extend_from_slice(&frame_of(0, ConnectionCloseOk {}));
    host.feed(&bytes);
    let expected = "FRAME_ERROR - type 1, all octets = <<0,20,0,20,1>>: {invalid_frame_end_marker,65}";
    assert_eq!(host.closed(), (501, expected.into()));
    host.feed(&frame_of(0, ConnectionCloseOk {}));
    assert_eq!(host.session.close_reason(), None);
    assert!(host.input.is_empty());
}

#[test]
fn frames_on_unopened_channels() {
    let (mut host, _) = Host::open();
    host.send(2, QueueDeclare::default());
    assert_eq!(host.closed(), (504, "CHANNEL_ERROR - expected 'channel.open'".into()));
    let (mut host, _) = Host::open();
    host.send(1, ChannelOpen::default());
    assert_eq!(host.closed(), (504, "CHANNEL_ERROR - second 'channel.open' seen".into()));
    let (mut host, _) = Host::open();
    host.send(2, BasicAck { delivery_tag: 1, multiple: false });
    assert_eq!(host.closed().0, 504);
    let (mut host, _) = Host::open();
    host.feed(&frame(3, 2, b"x"));
    assert_eq!(host.closed().0, 505);
}

#[test]
fn channels_are_limited_to_the_negotiated_maximum() {
    let settings = AmqpSettings { channel_max: 2, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    host.open_channel(9);
    host.open_channel(700);
    host.send(1, ChannelOpen::default());
    let expected = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)";
    assert_eq!(host.closed(), (530, expected.into()));
}

#[test]
fn a_reused_number_is_another_channel() {
    let (mut host, first) = Host::open();
    host.send(1, ChannelClose::default());
    assert!(host.sent().is_empty());
    let request = host.answer(Reply::Done);
    assert!(matches!(request, Request::CloseChannel(channel) if channel == first));
    assert_eq!(host.methods(), [ChannelCloseOk {}.into()]);
    let second = host.open_channel(1);
    assert_eq!((second.number, first.number), (1, 1));
    assert_ne!(second, first);
    // Events for the first channel are dropped.
    host.event(Event::Confirmed { channel: first, first: 1, last: 1 });
    let refusal = Refusal::not_transactional();
    host.event(Event::CloseChannel { channel: first, method: MethodId::NONE, refusal });
    assert!(host.sent().is_empty() && host.requests().is_empty());
    assert!(host.session.may_deliver(second) && !host.session.may_deliver(first));
}

#[test]
fn a_channel_closed_by_the_server_ignores_all_but_close_ok() {
    let (mut host, channel) = Host::open();
    host.send(1, BasicAck { delivery_tag: 5, multiple: false });
    assert_eq!(host.closed_channel(), (406, "PRECONDITION_FAILED - unknown delivery tag 5".into()));
    let requests = host.requests();
    assert!(matches!(requests[..], [Request::CloseChannel(of)] if of == channel), "{requests:?}");
    // Frames in flight, malformed ones included.
    host.publish(1, to_queue("q"), &BasicProperties::default(), b"body");
    host.feed(&frame(3, 1, b"half a message"));
    host.feed(&frame(1, 1, &[0, 99, 0, 1]));
    host.send(1, BasicNack { delivery_tag: 9, ..Default::default() });
    host.send(1, ChannelOpen::default());
    assert!(host.sent().is_empty() && host.requests().is_empty());
    // The client closes too.
    host.send(1, ChannelClose::default());
    assert_eq!(host.methods(), [ChannelCloseOk {}.into()]);
    host.send(1, ChannelCloseOk {});
    assert!(host.sent().is_empty());
    assert_eq!(host.session.channel_count(), 0);
    host.open_channel(1);
}

#[test]
fn channel_close_names_the_failed_method() {
    let (mut host, channel) = Host::open();
    host.send(1, QueuePurge { queue: "q".into(), ..Default::default() });
    host.answer(Reply::Refused(Refusal::new(Code::NotFound, "no queue 'q' in vhost '/'")));
    let methods = host.methods();
    let [Method::ChannelClose(close)] = &methods[..] else { panic!("{methods:?}") };
    assert_eq!((close.class_id, close.method_id, close.reply_code), (50, 30, 404));
    let requests = host.requests();
    assert!(matches!(requests[..], [Request::CloseChannel(of)] if of == channel));

    // A publish is refused when the broker processes it.
    let (mut host, channel) = Host::open();
    let refusal = Refusal::new(Code::NotFound, "no exchange 'x' in vhost '/'");
    host.event(Event::CloseChannel { channel, method: BasicPublish::ID, refusal });
    let methods = host.methods();
    let [Method::ChannelClose(close)] = &methods[..] else { panic!("{methods:?}") };
    assert_eq!((close.class_id, close.method_id, close.reply_code), (60, 40, 404));

    // A hard error closes the connection, from any source.
    let (mut host, channel) = Host::open();
    let refusal = Refusal::not_implemented("x");
    host.event(Event::CloseChannel { channel, method: BasicPublish::ID, refusal });
    assert_eq!(host.closed(), (540, "NOT_IMPLEMENTED - x".into()));
}

#[test]
fn options_that_rabbitmq_does_not_implement() {
    let cases: [(Method, &str); 5] = [
        (ChannelFlow { active: false }.into(), "active=false"),
        (BasicRecover { requeue: false }.into(), "requeue=false"),
        (BasicRecoverAsync { requeue: false }.into(), "requeue=false"),
        (BasicPublish { immediate: true, ..Default::default() }.into(), "immediate=true"),
        (BasicQos { prefetch_size: 7, ..Default::default() }.into(), "prefetch_size!=0 (7)"),
    ];
    for (method, text) in cases {
        let (mut host, _) = Host::open();
        host.send(1, method);
        assert_eq!(host.closed(), (540, format!("NOT_IMPLEMENTED - {text}")));
    }
}

#[test]
fn channel_flow_and_qos_are_answered() {
    let (mut host, _) = Host::open();
    host.send(1, ChannelFlow { active: true });
    host.send(1, AccessRequest { realm: "/data".into(), ..Default::default() });
    host.send(1, BasicQos { prefetch_count: 3, ..Default::default() });
    host.send(1, BasicRecover { requeue: true });
    let expected: [Method; 4] = [
        ChannelFlowOk { active: true }.into(),
        AccessRequestOk { ticket: 1 }.into(),
        BasicQosOk {}.into(),
        BasicRecoverOk {}.into(),
    ];
    assert_eq!(host.methods(), expected);
    assert!(host.requests().is_empty());
}

#[test]
fn a_channel_that_waits_holds_its_frames_and_nothing_is_reordered() {
    let (mut host, channel) = Host::open();
    let other = host.open_channel(2);
    let declare = QueueDeclare { queue: "q".into(), nowait: true, ..Default::default() };
    let mut bytes = frame_of(2, ConfirmSelect { nowait: true });
    bytes.extend_from_slice(&frame_of(1, declare));
    bytes.extend_from_slice(&frames_of(2, to_queue("p"), &[0, 0], b"2", usize::MAX));
    bytes.extend_from_slice(&frames_of(1, to_queue("q"), &[0, 0], b"1", usize::MAX));
    bytes.extend_from_slice(&frames_of(2, to_queue("p"), &[0, 0], b"3", usize::MAX));
    host.feed(&bytes);
    let (token, request) = host.request();
    assert!(matches!(request, Request::DeclareQueue(of, _) if of == channel), "{request:?}");
    let requests = host.requests();
    assert!(matches!(&requests[..], [Request::Publish(of, _)] if *of == other), "{requests:?}");
    assert!(!host.session.wants_input());
    host.reply(token, Reply::Queue { messages: 0, consumers: 0 });
    let channels: Vec<ChannelRef> = host
        .requests()
        .into_iter()
        .map(|request| if let Request::Publish(of, _) = request { of } else { panic!("{request:?}") })
        .collect();
    assert_eq!(channels, [channel, other]);
    assert!(host.session.wants_input() && host.sent().is_empty());
}

#[test]
fn a_client_that_is_not_read_is_not_considered_dead() {
    let settings = AmqpSettings { heartbeat_seconds: 10, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    host.open_channel(1);
    let mut bytes = frame_of(1, QueueDeclare { queue: "q".into(), ..Default::default() });
    bytes.extend_from_slice(&frame_of(1, BasicQos::default()));
    host.feed(&bytes);
    assert!(!host.session.wants_input());
    host.pass(100_000);
    assert_eq!(host.session.close_reason(), None);
    host.answer(Reply::Queue { messages: 0, consumers: 0 });
    assert!(host.session.wants_input());
    host.pass(19_999);
    assert_eq!(host.session.close_reason(), None);
    host.pass(1);
    assert!(host.session.close_reason().is_some());
}

#[test]
fn a_mismatched_reply_is_an_internal_error() {
    let (mut host, _) = Host::open();
    host.send(1, QueuePurge { queue: "q".into(), ..Default::default() });
    host.answer(Reply::Done);
    assert_eq!(host.closed().0, 541);
}

#[test]
fn closing_a_channel_requeues_its_deliveries() {
    let (mut host, channel) = Host::open();
    let mut broker = Broker::of(channel);
    host.send(1, QueueDeclare { queue: "q".into(), ..Default::default() });
    for body in [b"1", b"2", b"3"] {
        host.publish(1, to_queue("q"), &BasicProperties::default(), body);
        broker.serve(&mut host);
    }
    host.send(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() });
    broker.serve(&mut host);
    assert_eq!((broker.unsettled(), host.session.unacked(channel)), (3, 3));
    host.sent();
    host.send(1, BasicAck { delivery_tag: 2, multiple: false });
    let requests = host.requests();
    let run = Run { consumer: polylogue_amqp::request::ConsumerRef(1), first: Place { queue: 1, at: 2 }, count: 1 };
    let [Request::Settle { verdict: Verdict::Ack, runs, .. }] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(runs[..], [run]);
    host.send(1, ChannelClose::default());
    let (_, request) = host.request();
    assert!(matches!(request, Request::CloseChannel(_)));
    assert_eq!(host.session.unacked(channel), 0);
}

#[test]
fn invalid_properties() {
    let (mut host, _) = Host::open();
    host.feed(&frames_of(1, to_queue("q"), &[0x20, 0, 0, 0, 0, 9], b"", usize::MAX));
    assert_eq!(host.closed(), (501, "FRAME_ERROR - cannot decode properties: field ends too early".into()));
    let (mut host, _) = Host::open();
    host.feed(&frames_of(1, to_queue("q"), &Bytes::from_static(&[0, 1]), b"", usize::MAX));
    assert_eq!(host.closed().0, 501);
}
