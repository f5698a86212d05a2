//! The client against the server of this crate, and against malicious servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::client_host;
use crate::session_host;

use bytes::{BufMut, Bytes, BytesMut};
use client_host::Pair;
use polylogue_amqp::client::{Client, ClientEnd, ClientEvent, ClientSettings, NotNow};
use polylogue_amqp::codec::*;
use polylogue_amqp::request::{Credentials, Event};
use polylogue_amqp::settings::{AmqpSettings, Mechanism};
use proptest::prelude::*;
use session_host::{frame_of, frames_of};

fn declare(queue: &'static str) -> QueueDeclare {
    QueueDeclare { queue: queue.into(), durable: true, ..Default::default() }
}

fn publish(pair: &mut Pair, body: &'static [u8], properties: &BasicProperties) -> u64 {
    let to = BasicPublish { routing_key: "q".into(), ..Default::default() };
    pair.client.publish(1, to, &properties.encode(), Bytes::from_static(body)).unwrap()
}

#[test]
fn a_message_goes_to_a_queue_and_comes_back_with_all_it_has() {
    let mut pair = Pair::open();
    assert!(matches!(pair.ask(declare("q")), Method::QueueDeclareOk(_)));
    assert!(matches!(pair.ask(ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    assert!(matches!(pair.ask(BasicQos { prefetch_count: 10, ..Default::default() }), Method::BasicQosOk(_)));
    let headers = TableBuilder::new().with("n", Value::I64(7)).with_text("t", "x").build();
    let properties = BasicProperties { headers: Some(headers), delivery_mode: Some(2), ..Default::default() };
    static LONG: [u8; 400_000] = [7; 400_000];
    let numbers = [
        publish(&mut pair, b"", &properties),
        publish(&mut pair, b"x", &properties),
        publish(&mut pair, &LONG, &properties),
    ];
    assert_eq!(numbers, [1, 2, 3]);
    let settled: Vec<_> = pair
        .events()
        .iter()
        .map(|event| match event {
            ClientEvent::Settled { channel: 1, first, last, taken: true } => (*first, *last),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((settled.first().unwrap().0, settled.last().unwrap().1), (1, 3));
    pair.client.ask(1, BasicConsume { queue: "q".into(), consumer_tag: "c".into(), ..Default::default() }).unwrap();
    let mut bodies = Vec::new();
    for event in pair.events() {
        match event {
            ClientEvent::Reply(1, Method::BasicConsumeOk(_)) => assert!(bodies.is_empty()),
            ClientEvent::Delivered { channel: 1, deliver, properties: came, body } => {
                assert_eq!((came.to_basic(), deliver.routing_key.to_string()), (properties.clone(), "q".to_owned()));
                bodies.push((deliver.delivery_tag, body.len()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bodies, [(1, 0), (2, 1), (3, LONG.len())]);
    assert_eq!(pair.broker.unsettled(), 3);
    pair.client.ack(1, 2, true);
    pair.run();
    assert_eq!(pair.broker.unsettled(), 1);
    pair.client.nack(1, 3);
    assert!(matches!(&pair.events()[..], [ClientEvent::Delivered { deliver, .. }] if deliver.redelivered));
    pair.client.close(pair.host.now_ms);
    pair.run();
    assert_eq!(pair.client.end(), Some(&ClientEnd::Done));
}

#[test]
fn both_mechanisms_log_in_with_any_fragmentation() {
    for (mechanism, piece) in [(Mechanism::Plain, 1), (Mechanism::AmqPlain, 3)] {
        let settings = ClientSettings {
            user: "me".into(),
            password: "pass".into(),
            mechanisms: vec![Mechanism::External, mechanism],
            connection_name: "Shovel s".into(),
            ..ClientSettings::default()
        };
        let mut pair = Pair::new(settings, AmqpSettings::default(), piece);
        assert_eq!(pair.events(), [ClientEvent::Open]);
        assert_eq!(pair.credentials, Some(Credentials::Password { user: "me".into(), password: "pass".into() }));
        let sent = pair.host.session.take_client_properties();
        assert_eq!(sent.get("connection_name").and_then(|name| name.as_longstr()), Some(&b"Shovel s"[..]));
    }
}

#[test]
fn a_refused_login_reports_the_reason() {
    let mut pair = Pair::new(ClientSettings::default(), AmqpSettings::default(), usize::MAX);
    pair.lets_in = false;
    pair.run();
    let end = pair.client.end().expect("over").to_string();
    assert!(
        end.starts_with(
            "the login is refused: ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN"
        ),
        "{end}"
    );
    let settings = ClientSettings { mechanisms: vec![Mechanism::AmqPlain], ..ClientSettings::default() };
    let server = AmqpSettings { mechanisms: vec![Mechanism::Plain], ..AmqpSettings::default() };
    let mut pair = Pair::new(settings, server, usize::MAX);
    pair.run();
    assert!(matches!(pair.client.end(), Some(ClientEnd::LoginRefused(why)) if why.contains("'PLAIN'")));
}

#[test]
fn a_missing_queue_closes_the_channel_and_not_the_connection() {
    let mut pair = Pair::open();
    pair.client.ask(1, QueueDeclare { passive: true, ..declare("none") }).unwrap();
    assert_eq!(pair.client.ask(1, BasicQos::default()), Err(NotNow), "one thing at a time");
    let events = pair.events();
    let [ClientEvent::ChannelClosed { channel: 1, code: 404, text }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(text.to_string(), "NOT_FOUND - no queue 'none' in vhost '/'");
    assert_eq!(pair.client.ask(1, BasicQos::default()), Err(NotNow));
    pair.client.open_channel(1).unwrap();
    assert!(matches!(pair.answer(), Method::ChannelOpenOk(_)));
    assert!(matches!(pair.ask(declare("q")), Method::QueueDeclareOk(_)));
    assert!(matches!(pair.ask(ChannelClose { reply_code: 200, ..Default::default() }), Method::ChannelCloseOk(_)));
    assert_eq!(pair.client.open_channel(1), Ok(()));
    assert_eq!(pair.client.open_channel(0), Err(NotNow));
}

#[test]
fn a_blocked_client_waits() {
    let mut pair = Pair::open();
    assert!(pair.client.may_publish(1) && !pair.client.may_publish(2));
    pair.host.event(Event::Blocked("low on disk".into()));
    publish(&mut pair, b"x", &BasicProperties::default());
    assert_eq!(pair.events(), [ClientEvent::Paused { channel: 0, paused: true }]);
    assert!(!pair.client.may_publish(1));
    pair.host.event(Event::Unblocked);
    assert_eq!(pair.events(), [ClientEvent::Paused { channel: 0, paused: false }]);
    assert!(pair.client.may_publish(1));
    feed(&mut pair.client, &frame_of(1, ChannelFlow { active: false }));
    assert!(!pair.client.may_publish(1));
    feed(&mut pair.client, &frame_of(1, ChannelFlow { active: true }));
    assert!(pair.client.may_publish(1));
}

#[test]
fn a_close_by_the_server_is_reported_with_its_text() {
    let mut pair = Pair::open();
    pair.host.event(Event::CloseConnection(polylogue_amqp::refusal::Refusal::forced("bye")));
    pair.run();
    assert_eq!(pair.client.end().unwrap().to_string(), "the server closed it: 320 CONNECTION_FORCED - bye");
    assert!(pair.host.session.close_reason().is_some(), "and it was answered");
    let mut pair = Pair::open();
    pair.client.on_end();
    assert_eq!(pair.client.end(), Some(&ClientEnd::Gone));
}

#[test]
fn missing_heartbeats_end_the_connection_on_both_sides() {
    let settings = ClientSettings { heartbeat_seconds: 4, ..ClientSettings::default() };
    let mut pair = Pair::new(settings, AmqpSettings::default(), usize::MAX);
    assert_eq!(pair.events(), [ClientEvent::Open]);
    let mut out = Vec::new();
    assert_eq!(pair.client.next_deadline_ms(), Some(3_000), "half of what was agreed on");
    pair.client.on_deadline(3_000);
    assert!(pair.client.poll_output(&mut out, 3_000));
    assert_eq!(&out[0].to_bytes().unwrap()[..], [8, 0, 0, 0, 0, 0, 0, 0xce]);
    pair.client.on_deadline(9_000);
    assert_eq!(pair.client.end(), Some(&ClientEnd::HeartbeatTimeout));
    let mut late = Client::new(ClientSettings { handshake_ms_max: 10, ..ClientSettings::default() }, 1_000);
    assert_eq!(late.next_deadline_ms(), Some(1_010));
    late.on_deadline(1_010);
    assert_eq!(late.end(), Some(&ClientEnd::HandshakeTimeout));
}

fn feed(client: &mut Client, bytes: &[u8]) {
    client.on_bytes(&mut BytesMut::from(bytes), 1_000);
}

/// A client that is open, with channel 1 that has confirms, without a server.
fn alone(settings: ClientSettings) -> Client {
    let mut client = Client::new(settings, 1_000);
    let start = ConnectionStart { version_minor: 9, mechanisms: "PLAIN".into(), ..Default::default() };
    feed(&mut client, &frame_of(0, start));
    feed(&mut client, &frame_of(0, ConnectionTune { channel_max: 10, frame_max: 4_096, heartbeat: 0 }));
    feed(&mut client, &frame_of(0, ConnectionOpenOk::default()));
    client.open_channel(1).unwrap();
    feed(&mut client, &frame_of(1, ChannelOpenOk::default()));
    client.ask(1, ConfirmSelect::default()).unwrap();
    feed(&mut client, &frame_of(1, ConfirmSelectOk {}));
    while client.poll_event().is_some() {}
    client.poll_output(&mut Vec::new(), 1_000);
    client
}

fn delivery(tag: u64, body: &[u8], sent: u64) -> BytesMut {
    let deliver = BasicDeliver { delivery_tag: tag, ..Default::default() };
    let mut out = frame_of(1, deliver);
    encode_header(&mut out, 1, sent, &[0, 0]);
    for part in body.chunks(4_000) {
        out.extend_from_slice(&body_prefix(1, part.len() as u32));
        out.extend_from_slice(part);
        out.put_u8(FRAME_END);
    }
    out
}

#[test]
fn a_protocol_violation_of_the_server_ends_the_connection() {
    let good = alone(ClientSettings::default());
    assert_eq!(good.end(), None);
    for (bytes, why) in [
        (frame_of(1, BasicAck { delivery_tag: 1, multiple: false }), "a confirm of 1"),
        (frame_of(2, BasicAck::default()), "channel 2 is not open"),
        (frame_of(1, QueueDeclareOk::default()), "unexpected method queue.declare_ok"),
        (frame_of(0, ConnectionTune::default()), "unexpected method connection.tune"),
        (BytesMut::from(&[1u8, 0, 1, 0xff, 0, 0, 0][..]), "a frame has 4278190080 bytes"),
        (BytesMut::from(&[9u8, 0, 1, 0, 0, 0, 0, 0xce][..]), "unexpected frame type 9"),
        (BytesMut::from(&[8u8, 0, 0, 0, 0, 0, 0, 0][..]), "a frame has no valid end octet"),
        (delivery(0, b"", 0), "invalid delivery tag 0"),
        (delivery(1, b"", 1 << 60), "a message has 1152921504606846976 bytes"),
        (delivery(1, b"xxx", 2), "a body is longer than its header frame says"),
        ([delivery(2, b"", 0), delivery(2, b"", 0)].concat()[..].into(), "invalid delivery tag 2"),
        ([delivery(1, b"", 9), frame_of(1, BasicQosOk {})].concat()[..].into(), "a frame interrupts a message"),
    ] {
        let mut client = alone(ClientSettings::default());
        feed(&mut client, &bytes);
        let end = client.end().map(ToString::to_string).unwrap_or_default();
        assert!(end.contains(why), "{why}: {end:?}");
        assert!(!client.wants_input() && client.next_deadline_ms().is_none());
    }
    let mut other = Client::new(ClientSettings::default(), 0);
    feed(&mut other, b"AMQP\x03\x01\x00\x00");
    assert!(other.end().unwrap().to_string().contains("the server's protocol header is AMQP 3 1 0 0"));
}

#[test]
fn the_memory_of_a_client_is_limited() {
    let settings = ClientSettings { events_bytes_max: 10_000, unconfirmed_max: 3, ..ClientSettings::default() };
    let mut client = alone(settings);
    let mut input = BytesMut::new();
    (1..100).for_each(|tag| input.extend_from_slice(&delivery(tag, &[7; 3_000], 3_000)));
    client.on_bytes(&mut input, 1_000);
    assert!(!client.wants_input() && client.held_bytes() < 20_000, "{}", client.held_bytes());
    let mut taken = 0;
    while client.poll_event().is_some() {
        taken += 1;
        client.on_bytes(&mut input, 1_000);
    }
    assert_eq!((taken, input.len()), (99, 0));
    let one = |client: &mut Client| client.publish(1, BasicPublish::default(), &[0, 0], Bytes::new());
    assert_eq!([one(&mut client), one(&mut client), one(&mut client)], [Ok(1), Ok(2), Ok(3)]);
    assert_eq!(one(&mut client), Err(NotNow));
    assert!(!client.may_publish(1));
    feed(&mut client, &frame_of(1, BasicNack { delivery_tag: 2, multiple: true, requeue: false }));
    assert_eq!(client.poll_event(), Some(ClientEvent::Settled { channel: 1, first: 1, last: 2, taken: false }));
    assert!(client.may_publish(1));
    // Frames are no larger than negotiated.
    client.publish(1, BasicPublish::default(), &[0, 0], Bytes::from(vec![7; 10_000])).unwrap();
    let mut out = Vec::new();
    client.poll_output(&mut out, 0);
    let bytes: Vec<u8> = out.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect();
    let mut at = 0;
    while let Some(prefix) = FramePrefix::read(&bytes[at..]) {
        assert!(prefix.size as usize + FRAME_OVERHEAD_BYTES <= 4_096);
        at += prefix.size as usize + FRAME_OVERHEAD_BYTES;
    }
    assert_eq!(at, bytes.len());
}

/// A server that sends requests without end and reads no answer is not read any more; one that reads gets all answers.
#[test]
fn unread_answers_are_limited() {
    const ASKED: usize = 200_000;
    let mut flow = BytesMut::new();
    (0..500).for_each(|_| flow.extend_from_slice(&frame_of(1, ChannelFlow { active: true })));
    let answer_bytes = frame_of(1, ChannelFlowOk { active: true }).len();
    for answers_bytes_max in [1, 1_000, 64 << 10] {
        let mut client = alone(ClientSettings { answers_bytes_max, ..ClientSettings::default() });
        let (mut input, mut asked, mut answered) = (BytesMut::new(), 0, 0);
        while answered < ASKED * answer_bytes {
            while asked < ASKED && client.wants_input() {
                input.extend_from_slice(&flow);
                asked += 500;
                client.on_bytes(&mut input, 1_000);
                let waits = client.output_bytes();
                assert!(waits < answers_bytes_max + answer_bytes, "{waits} bytes of answers wait");
            }
            let mut out = Vec::new();
            assert!(client.poll_output(&mut out, 1_000), "{answered} bytes were answered");
            answered += out.iter().map(polylogue_types::Chunk::len).sum::<usize>();
            assert!(client.wants_input());
            client.on_bytes(&mut input, 1_000);
        }
        assert_eq!((answered, input.len(), client.end()), (ASKED * answer_bytes, 0, None));
    }
    // Repeated cancellation of a consumer by the server does not bypass the limit.
    let mut client = alone(ClientSettings { events_bytes_max: usize::MAX, ..ClientSettings::default() });
    let cancel = frame_of(1, BasicCancel { consumer_tag: "c".into(), nowait: false });
    let mut input = BytesMut::from(&cancel.repeat(20_000)[..]);
    client.on_bytes(&mut input, 1_000);
    assert!(!client.wants_input() && client.output_bytes() < (64 << 10) + 300, "{}", client.output_bytes());
}

/// Waiting messages keep their own memory, not the input buffers.
#[test]
fn waiting_messages_do_not_retain_the_input_buffer() {
    const READ_BYTES: usize = 64 << 10;
    let mut client = alone(ClientSettings::default());
    let (mut input, mut tag) = (BytesMut::new(), 0);
    while client.wants_input() {
        input.reserve(READ_BYTES);
        tag += 1;
        input.extend_from_slice(&delivery(tag, b"small", 5));
        client.on_bytes(&mut input, 1_000);
        assert!(input.is_empty() && input.try_reclaim(READ_BYTES), "{tag} messages keep their buffers");
    }
    assert!(tag > 1_000, "{tag}");
    let bodies = std::iter::from_fn(|| client.poll_event()).map(|event| match event {
        ClientEvent::Delivered { body, .. } => body,
        other => panic!("{other:?}"),
    });
    assert_eq!(bodies.filter(|body| body == "small").count() as u64, tag);
}

/// A frame that a server may send, valid or not.
fn sent() -> impl Strategy<Value = BytesMut> {
    let channel = 0..3u16;
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| BytesMut::from(&bytes[..])),
        (channel.clone(), 0..12usize, 0..5u64, any::<bool>()).prop_map(|(channel, which, tag, flag)| {
            let method: Method = match which {
                0 => ConnectionStart { version_minor: 9, mechanisms: "PLAIN".into(), ..Default::default() }.into(),
                1 => ConnectionTune { channel_max: 2, frame_max: 4_096, heartbeat: tag as u16 }.into(),
                2 => ConnectionOpenOk::default().into(),
                3 => ConnectionBlocked::default().into(),
                4 => ChannelOpenOk::default().into(),
                5 => ChannelClose::default().into(),
                6 => ConfirmSelectOk {}.into(),
                7 => BasicAck { delivery_tag: tag, multiple: flag }.into(),
                8 => BasicNack { delivery_tag: tag, multiple: flag, requeue: flag }.into(),
                9 => BasicCancel { consumer_tag: "c".into(), nowait: flag }.into(),
                10 => ChannelFlow { active: flag }.into(),
                _ => ConnectionClose::default().into(),
            };
            frame_of(channel, method)
        }),
        (1..9u64, 0..6_000usize, 0..6_000u64).prop_map(|(tag, len, sent)| delivery(tag, &vec![7; len], sent)),
        Just(frames_of(1, BasicPublish::default(), &[0, 0], b"", 9)),
    ]
}

proptest! {
    #[test]
    fn no_input_from_a_server_panics(
        open in any::<bool>(),
        all in prop::collection::vec((sent(), 0..4u8), 0..30),
    ) {
        let settings = ClientSettings { events_bytes_max: 5_000, message_bytes_max: 5_000, ..ClientSettings::default() };
        let mut client = if open { alone(settings) } else { Client::new(settings, 1_000) };
        let mut input = BytesMut::new();
        for (bytes, act) in all {
            input.extend_from_slice(&bytes);
            client.on_bytes(&mut input, 1_000);
            match act {
                0 => while client.poll_event().is_some() {},
                1 => _ = client.publish(1, BasicPublish::default(), &[0, 0], Bytes::from_static(b"x")),
                2 => _ = client.open_channel(1).or_else(|_| client.ask(1, ConfirmSelect::default())),
                _ => client.on_deadline(1_500),
            }
            prop_assert!(client.held_bytes() < 40_000);
            let over = client.end().cloned();
            if over.is_some() {
                client.on_bytes(&mut input, 2_000);
                prop_assert_eq!(client.end().cloned(), over);
            }
        }
    }
}
