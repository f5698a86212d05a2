//! Publishing: assembly of messages, their checks, outcomes, transactions and alarms.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_amqp::codec::*;
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{Body, ChannelRef, Event, Publish, Reply, Request, Verdict};
use polylogue_amqp::settings::AmqpSettings;
use session_host::broker::Broker;
use session_host::*;

fn published(request: Request) -> Publish {
    let Request::Publish(_, publish) = request else { panic!("{request:?}") };
    publish
}

fn none() -> BasicProperties {
    BasicProperties::default()
}

/// A channel with confirms.
fn confirming() -> (Host, ChannelRef) {
    let (mut host, channel) = Host::open();
    host.send(1, ConfirmSelect { nowait: false });
    assert_eq!(host.methods(), [ConfirmSelectOk {}.into()]);
    (host, channel)
}

#[test]
fn a_message_is_intact_with_any_fragmentation() {
    let properties = BasicProperties {
        delivery_mode: Some(2),
        priority: Some(3),
        expiration: Some("500".into()),
        message_id: Some("m".into()),
        ..none()
    };
    let publish =
        BasicPublish { exchange: "x".into(), routing_key: "k".into(), mandatory: true, ..BasicPublish::default() };
    let body: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for (body_max, piece) in [(1000, 10_000), (300, 10_000), (1, 1), (1000, 1), (333, 7)] {
        let (mut host, channel) = Host::open();
        for bytes in frames_of(1, publish.clone(), &properties.encode(), &body, body_max).chunks(piece) {
            assert!(host.requests().is_empty());
            host.feed(bytes);
        }
        let (_, request) = host.request();
        assert!(matches!(request, Request::Publish(of, _) if of == channel));
        let message = published(request);
        assert_eq!((message.seq, message.mandatory, message.expiration_ms), (None, true, Some(500)));
        assert_eq!((&message.exchange[..], &message.routing_key[..]), (&b"x"[..], &b"k"[..]));
        assert_eq!(message.properties.raw(), &properties.encode());
        assert_eq!((message.properties.delivery_mode, message.properties.priority), (Some(2), Some(3)));
        assert_eq!(message.body.pieces().concat(), body);
        assert_eq!(matches!(message.body, Body::One(_)), body_max == 1000);
        assert!(host.sent().is_empty() && host.session.held_bytes() == 0);
    }
}

#[test]
fn an_empty_message_has_no_body_frame() {
    let (mut host, _) = Host::open();
    host.publish(1, to_queue("q"), &none(), b"");
    assert!(published(host.request().1).body.is_empty());
}

#[test]
fn many_messages_in_one_read() {
    let (mut host, _) = confirming();
    let one = frames_of(1, to_queue("q"), &none().encode(), b"body", usize::MAX);
    host.feed(&one.repeat(1000));
    let seqs: Vec<_> = host.requests().into_iter().map(|request| published(request).seq.unwrap()).collect();
    assert_eq!(seqs, (1..=1000).collect::<Vec<_>>());
}

#[test]
fn outcomes_are_sent_once_and_combined() {
    let (mut host, channel) = confirming();
    for _ in 0..10 {
        host.publish(1, to_queue("q"), &none(), b"");
    }
    assert_eq!((host.requests().len(), host.session.unconfirmed(channel)), (10, 10));
    // Outcomes of one read are sent together: events first, then output.
    for (first, last) in [(2, 3), (1, 1), (4, 4)] {
        host.session.on_event(Event::Confirmed { channel, first, last }, host.now_ms);
    }
    host.event(Event::Confirmed { channel, first: 6, last: 6 });
    let ack = |delivery_tag, multiple| Method::from(BasicAck { delivery_tag, multiple });
    assert_eq!(host.methods(), [ack(4, true), ack(6, false)]);
    host.session.on_event(Event::Rejected { channel, first: 5, last: 5 }, host.now_ms);
    host.event(Event::Confirmed { channel, first: 7, last: 8 });
    let nack = BasicNack { delivery_tag: 5, multiple: false, requeue: false };
    assert_eq!(host.methods(), [ack(7, false), ack(8, false), nack.into()]);
    // No outcome is sent twice, nor for numbers that were never assigned.
    host.event(Event::Rejected { channel, first: 1, last: 8 });
    host.event(Event::Confirmed { channel, first: 11, last: 99 });
    assert!(host.sent().is_empty());
    host.event(Event::Confirmed { channel, first: 9, last: 10 });
    assert_eq!(host.methods(), [ack(10, true)]);
    assert_eq!(host.session.unconfirmed(channel), 0);
}

#[test]
fn confirms_are_sent_before_the_channel_is_closed() {
    let (mut host, channel) = confirming();
    host.publish(1, to_queue("q"), &none(), b"");
    host.publish(1, to_queue("q"), &none(), b"");
    host.session.on_event(Event::Confirmed { channel, first: 1, last: 1 }, host.now_ms);
    let refusal = Refusal::not_transactional();
    host.event(Event::CloseChannel { channel, method: BasicPublish::ID, refusal });
    let methods = host.methods();
    let [Method::BasicAck(ack), Method::ChannelClose(_)] = &methods[..] else { panic!("{methods:?}") };
    assert_eq!(ack.delivery_tag, 1);
}

#[test]
fn a_message_is_returned_before_its_confirm() {
    let (mut host, channel) = confirming();
    let mut broker = Broker::of(channel);
    let publish = BasicPublish { mandatory: true, ..to_queue("nowhere") };
    let properties = BasicProperties { message_id: Some("m".into()), ..none() };
    host.publish(1, publish, &properties, b"body");
    broker.serve(&mut host);
    let mut sent = host.sent();
    assert_eq!(sent.pop(), Some(Sent::Method(1, BasicAck { delivery_tag: 1, multiple: false }.into())));
    let contents = contents(&sent);
    let [(Method::BasicReturn(back), back_properties, body)] = &contents[..] else { panic!("{contents:?}") };
    let expected = BasicReturn {
        reply_code: 312,
        reply_text: "NO_ROUTE".into(),
        exchange: ShortStr::EMPTY,
        routing_key: "nowhere".into(),
    };
    assert_eq!(*back, expected);
    assert_eq!((&body[..], back_properties), (&b"body"[..], &properties.encode()));
}

#[test]
fn invalid_messages_are_refused() {
    let text = TableBuilder::new().with_text("CC", "k").build();
    let blind = TableBuilder::new().with("BCC", Value::Bool(true)).build();
    for (properties, text) in [
        (BasicProperties { expiration: Some("soon".into()), ..none() }, "invalid expiration 'soon': no_integer"),
        (BasicProperties { expiration: Some("-1".into()), ..none() }, "invalid expiration '-1': {value_negative,-1}"),
        (
            BasicProperties { user_id: Some("bob".into()), ..none() },
            "user_id property set to 'bob' but authenticated user was 'guest'",
        ),
        (
            BasicProperties { headers: Some(text), ..none() },
            "invalid message: {unacceptable_type_in_header,\"CC\",longstr}",
        ),
        (
            BasicProperties { headers: Some(blind), ..none() },
            "invalid message: {unacceptable_type_in_header,\"BCC\",bool}",
        ),
        (
            BasicProperties { reply_to: Some("amq.rabbitmq.reply-to".into()), ..none() },
            "fast reply consumer does not exist",
        ),
    ] {
        let (mut host, _) = Host::open();
        host.publish(1, to_queue("q"), &properties, b"");
        let methods = host.methods();
        let [Method::ChannelClose(close)] = &methods[..] else { panic!("{methods:?}") };
        assert_eq!((close.reply_code, close.class_id, close.method_id), (406, 60, 40));
        assert_eq!(close.reply_text.to_string(), format!("PRECONDITION_FAILED - {text}"));
        assert!(matches!(host.requests()[..], [Request::CloseChannel(_)]));
    }
    let (mut host, _) = Host::open();
    host.publish(1, to_queue("q"), &BasicProperties { user_id: Some("guest".into()), ..none() }, b"");
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn cc_and_bcc_routing_keys() {
    let headers = TableBuilder::new()
        .with_text("a", "1")
        .with_texts("CC", &["c1", "c2"])
        .with_texts("BCC", &["b1"])
        .with("L", Value::I64(7))
        .build();
    let (mut host, _) = Host::open();
    host.publish(1, to_queue("q"), &BasicProperties { headers: Some(headers.clone()), ..none() }, b"");
    let message = published(host.request().1);
    assert_eq!((message.cc, message.bcc), (vec![Bytes::from("c1"), Bytes::from("c2")], vec![Bytes::from("b1")]));
    assert_eq!(message.properties.headers(), Some(headers.without("BCC")));
    // Without BCC the bytes are unchanged.
    let headers = headers.without("BCC");
    let properties = BasicProperties { headers: Some(headers), ..none() };
    host.publish(1, to_queue("q"), &properties, b"");
    let message = published(host.request().1);
    assert_eq!((message.cc.len(), message.bcc.len(), message.properties.raw()), (2, 0, &properties.encode()));
}

#[test]
fn a_message_that_is_too_large_closes_its_channel() {
    let (mut host, _) = Host::open();
    let mut bytes = frame_of(1, to_queue("q"));
    encode_header(&mut bytes, 1, (16 << 20) + 1, &[0, 0]);
    bytes.extend_from_slice(&body_prefix(1, 4));
    bytes.extend_from_slice(b"more\xce");
    host.feed(&bytes);
    let expected = "PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216";
    assert_eq!(host.closed_channel(), (406, expected.into()));
    assert!(matches!(host.requests()[..], [Request::CloseChannel(_)]));
    assert_eq!(host.session.held_bytes(), 0);
}

#[test]
fn incomplete_messages_are_limited_over_all_channels() {
    let settings = AmqpSettings { assembling_bytes_max: 10_000, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    for number in 1..=3 {
        host.open_channel(number);
        let whole = frames_of(number, to_queue("q"), &[0, 0], &[7; 8_000], 4_000);
        host.feed(&whole[..whole.len() - 4_000 - FRAME_OVERHEAD_BYTES]);
        if number < 3 {
            assert!(host.sent().is_empty() && host.session.held_bytes() > 0, "{number}");
        }
    }
    let (code, text) = host.closed();
    assert_eq!(
        (code, text),
        (506, "RESOURCE_ERROR - incomplete messages of this connection exceed 10000 bytes".into())
    );
    assert_eq!(host.session.held_bytes(), 0);
}

#[test]
fn complete_messages_do_not_count_as_incomplete() {
    let settings = AmqpSettings { assembling_bytes_max: 10_000, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    host.open_channel(1);
    let whole = frames_of(1, to_queue("q"), &[0, 0], &[7; 8_000], 1_000);
    for _ in 0..10 {
        host.feed(&whole);
        // An abandoned message does not count either.
        host.send(1, ChannelFlow { active: true });
    }
    assert_eq!((host.requests().len(), host.sent().len()), (10, 10));
    host.feed(&whole[..whole.len() / 2]);
    host.event(Event::CloseChannel {
        channel: ChannelRef { number: 1, life: 1 },
        method: MethodId::NONE,
        refusal: Refusal::not_transactional(),
    });
    assert_eq!(host.session.held_bytes(), 0);
}

#[test]
fn a_transaction_waits_for_its_commit() {
    let (mut host, channel) = Host::open();
    let mut broker = Broker::of(channel);
    host.send(1, QueueDeclare { queue: "q".into(), ..Default::default() });
    host.publish(1, to_queue("q"), &none(), b"before");
    broker.serve(&mut host);
    host.send(1, TxSelect {});
    host.send(1, TxSelect {});
    host.send(1, BasicGet { queue: "q".into(), ..Default::default() });
    broker.serve(&mut host);
    host.sent();
    host.publish(1, to_queue("q"), &none(), b"inside");
    host.send(1, BasicAck { delivery_tag: 1, multiple: false });
    // It may be published, and nothing more is requested.
    let requests = host.requests();
    assert!(matches!(&requests[..], [Request::CheckPublish(_, publish)] if publish.body.is_empty()), "{requests:?}");
    assert_eq!((broker.unsettled(), host.session.unacked(channel)), (1, 0));
    // After a rollback the delivery is unsettled again.
    host.send(1, TxRollback {});
    assert_eq!(host.methods(), [TxRollbackOk {}.into()]);
    assert_eq!(host.session.unacked(channel), 1);
    host.publish(1, to_queue("q"), &none(), b"again");
    host.send(1, BasicReject { delivery_tag: 1, requeue: true });
    host.send(1, TxCommit {});
    assert!(matches!(host.request(), (_, Request::CheckPublish(..))));
    let (token, request) = host.request();
    let Request::Commit { channel: of, publishes, settled } = request else { panic!("{request:?}") };
    assert_eq!((of, publishes.len(), settled.len()), (channel, 1, 1));
    assert_eq!((&publishes[0].body, publishes[0].seq), (&Body::One(Bytes::from("again")), None));
    assert_eq!((settled[0].0, settled[0].1[0].count), (Verdict::RequeueFailed, 1));
    assert!(host.sent().is_empty());
    host.reply(token, Reply::Done);
    assert_eq!(host.methods(), [TxCommitOk {}.into()]);
    // An empty commit is answered immediately.
    host.send(1, TxCommit {});
    assert_eq!(host.methods(), [TxCommitOk {}.into()]);
    assert!(host.requests().is_empty());
}

#[test]
fn a_partially_committed_transaction() {
    let (mut host, _) = Host::open();
    host.send(1, TxSelect {});
    host.publish(1, to_queue("q"), &none(), b"");
    host.send(1, TxCommit {});
    host.sent();
    host.request();
    let (token, _) = host.request();
    host.reply(token, Reply::Refused(Refusal::partial_tx()));
    let methods = host.methods();
    let [Method::ChannelClose(close)] = &methods[..] else { panic!("{methods:?}") };
    assert_eq!((close.class_id, close.method_id), (90, 20));
    assert_eq!(close.reply_text.to_string(), "PRECONDITION_FAILED - partial tx completion");
}

#[test]
fn transactions_and_confirms_do_not_mix() {
    let modes: [(Vec<Method>, &str); 4] = [
        (vec![ConfirmSelect::default().into(), TxSelect {}.into()], "cannot switch from confirm to tx mode"),
        (vec![TxSelect {}.into(), ConfirmSelect::default().into()], "cannot switch from tx to confirm mode"),
        (vec![TxCommit {}.into()], "channel is not transactional"),
        (vec![TxRollback {}.into()], "channel is not transactional"),
    ];
    for (methods, text) in modes {
        let (mut host, _) = Host::open();
        for method in methods {
            host.sent();
            host.send(1, method);
        }
        assert_eq!(host.closed_channel(), (406, format!("PRECONDITION_FAILED - {text}")));
    }
}

#[test]
fn transactions_have_limits() {
    let settings = AmqpSettings { tx_messages_max: 3, tx_bytes_max: 100_000, tx_settled_max: 2, ..Default::default() };
    let select = |host: &mut Host| {
        host.open_channel(1);
        host.send(1, TxSelect {});
        host.sent();
    };
    let mut host = Host::open_with(settings.clone(), client_properties());
    select(&mut host);
    (0..3).for_each(|_| host.publish(1, to_queue("q"), &none(), b""));
    assert_eq!((host.requests().len(), host.sent().len()), (3, 0));
    host.publish(1, to_queue("q"), &none(), b"");
    assert_eq!(host.closed_channel().1, "PRECONDITION_FAILED - transaction is larger than 3 messages");

    let mut host = Host::open_with(settings.clone(), client_properties());
    select(&mut host);
    host.publish(1, to_queue("q"), &none(), &[1; 50_000]);
    host.publish(1, to_queue("q"), &none(), &[1; 50_000]);
    host.requests();
    assert_eq!(host.closed_channel().1, "PRECONDITION_FAILED - transaction is larger than 100000 bytes");
}

#[test]
fn an_alarm_blocks_publishers_and_not_consumers() {
    let (mut host, _) = Host::open();
    host.event(Event::Blocked("low on memory".into()));
    assert!(host.sent().is_empty() && host.session.wants_input());
    host.send(1, BasicQos::default());
    assert_eq!(host.sent().len(), 1);
    // The first message is still taken.
    let mut bytes = frames_of(1, to_queue("q"), &[0, 0], b"body", usize::MAX);
    bytes.extend_from_slice(&frame_of(1, BasicQos::default()));
    host.feed(&bytes[..bytes.len() - 20]);
    let blocked = [Method::from(ConnectionBlocked { reason: "low on memory".into() })];
    assert_eq!(host.methods(), blocked);
    assert!(host.session.wants_input(), "what has begun holds memory until it is whole");
    host.feed(&bytes[bytes.len() - 20..]);
    assert!(host.sent().is_empty() && !host.session.wants_input());
    assert_eq!(host.requests().len(), 1);
    host.event(Event::Unblocked);
    assert_eq!(host.methods(), [ConnectionUnblocked {}.into(), BasicQosOk {}.into()]);
    assert!(host.session.wants_input());
    // A client that has published before is notified immediately.
    host.event(Event::Blocked("low on memory".into()));
    assert_eq!(host.methods(), blocked);
    assert!(host.session.wants_input());
    host.event(Event::Blocked("low on memory & disk".into()));
    assert!(host.sent().is_empty());
}

/// A message of 16 MiB of which all but the last part has arrived on this channel.
fn begin_body(host: &mut Host, channel: u16) {
    let whole = frames_of(channel, to_queue("q"), &[0, 0], &[b'x'; 10_000], 4_000);
    host.feed(&whole[..whole.len() - 2_008]);
}

/// A body used to be waited for as long as its connection was open: 128 MiB of a connection raised the memory alarm, and kept it raised.
#[test]
fn a_body_timeout_closes_its_channel() {
    let settings = AmqpSettings { heartbeat_seconds: 0, ..Default::default() };
    let body_ms_max = settings.body_ms_max;
    let mut host = Host::open_with(settings, client_properties());
    host.open_channel(1);
    host.open_channel(2);
    begin_body(&mut host, 1);
    assert_eq!(host.session.held_bytes(), 8_000);
    host.pass(body_ms_max / 2);
    begin_body(&mut host, 2);
    host.pass(body_ms_max / 2 + 400);
    assert_eq!(host.session.held_bytes(), 16_000, "a millisecond more for 16 bytes");
    host.pass(100);
    let text = "PRECONDITION_FAILED - message body on channel 1 timed out. Timeout value used: 60000 ms";
    assert_eq!(host.closed_channel(), (406, text.to_owned()));
    assert_eq!((host.session.held_bytes(), host.session.take_late_bodies()), (8_000, 1));
    // A body that keeps arriving is never late.
    let whole = frames_of(2, to_queue("q"), &[0, 0], &[b'x'; 10_000], 4_000);
    host.requests();
    host.feed(&whole[whole.len() - 2_008..]);
    host.pass(10 * body_ms_max);
    assert_eq!((host.requests().len(), host.session.take_late_bodies()), (1, 0));
    assert!(host.sent().is_empty());
}

#[test]
fn a_body_timeout_under_low_memory_closes_the_connection() {
    let settings = AmqpSettings { heartbeat_seconds: 0, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    host.open_channel(1);
    begin_body(&mut host, 1);
    host.event(Event::Blocked("low on disk".into()));
    host.pass(600_000);
    assert_eq!(host.session.held_bytes(), 8_000, "what waits for room on the disk is not to blame");
    host.event(Event::Blocked("low on disk & memory".into()));
    host.pass(1);
    assert!(host.session.held_bytes() > 0);
    host.sent();
    host.pass(10_000);
    let text = "RESOURCE_ERROR - low on memory: a message body timed out. Timeout value used: 10000 ms";
    assert_eq!(host.closed(), (506, text.to_owned()));
    assert_eq!((host.session.held_bytes(), host.session.take_late_bodies()), (0, 1));
}

#[test]
fn a_client_without_the_capability_is_blocked_without_notice() {
    let mut host = Host::open_with(AmqpSettings::default(), Table::EMPTY);
    host.open_channel(1);
    host.event(Event::Blocked("low on disk".into()));
    host.publish(1, to_queue("q"), &none(), b"");
    assert!(host.sent().is_empty() && !host.session.wants_input());
    host.event(Event::Unblocked);
    assert!(host.sent().is_empty() && host.session.wants_input());
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn an_alarm_raised_before_the_connection_opened() {
    let mut host = Host::new();
    host.event(Event::Blocked("low on disk".into()));
    assert!(host.sent().is_empty() && host.session.wants_input());
    let mut host = Host::open_with(AmqpSettings::default(), client_properties());
    host.event(Event::Blocked("low on disk".into()));
    host.open_channel(1);
    host.publish(1, to_queue("q"), &none(), b"");
    assert!(matches!(host.methods()[..], [Method::ConnectionBlocked(_)]));
    assert_eq!(host.requests().len(), 1);
    // The end is sent nevertheless.
    host.event(Event::CloseConnection(Refusal::forced("bye")));
    assert_eq!(host.closed().0, 320);
    assert!(matches!(host.requests()[..], [Request::CloseConnection]));
    host.send(0, ConnectionCloseOk {});
    assert!(host.session.close_reason().is_some());
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let settings = AmqpSettings { output_bytes_max: 1000, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    let channel = host.open_channel(1);
    let mut input = bytes::BytesMut::from(&frame_of(1, BasicQos::default()).repeat(1000)[..]);
    host.session.on_bytes(&mut input, host.now_ms);
    assert!(!host.session.wants_input() && !host.session.may_deliver(channel));
    let (mut chunks, mut total, mut most) = (Vec::new(), 0, 0);
    while host.session.poll_output(&mut chunks, host.now_ms) {
        let len: usize = chunks.drain(..).map(|chunk: polylogue_types::Chunk| chunk.len()).sum();
        total += len;
        most = most.max(len);
    }
    assert!(most < 1100, "{most}");
    assert_eq!(total, 1000 * frame_of(1, BasicQosOk {}).len());
    assert!(host.session.wants_input() && host.session.may_deliver(channel));
}
