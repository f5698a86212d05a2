//! The handshake, the end of a connection, and heartbeats.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::{Bytes, BytesMut};
use polylogue_amqp::codec::*;
use polylogue_amqp::refusal::{Code, Refusal};
use polylogue_amqp::request::{Credentials, Event, Reply, Request};
use polylogue_amqp::session::CloseReason;
use polylogue_amqp::settings::{AmqpSettings, Mechanism};
use session_host::*;

fn authenticated() -> Reply {
    Reply::Authenticated { user: Bytes::from_static(b"guest"), impersonator: false }
}

/// A connection up to `connection.tune`.
fn tuning(properties: Table) -> Host {
    let mut host = Host::new();
    host.feed(&PROTOCOL_HEADER);
    host.start_ok(properties);
    host.answer(authenticated());
    host.sent();
    host
}

#[test]
fn the_server_announces_rabbitmq_and_its_capabilities() {
    let mut host = Host::new();
    for byte in PROTOCOL_HEADER {
        assert!(host.sent().is_empty());
        host.feed(&[byte]);
    }
    let methods = host.methods();
    let [Method::ConnectionStart(start)] = &methods[..] else { panic!("{methods:?}") };
    assert_eq!((start.version_major, start.version_minor), (0, 9));
    assert_eq!((&start.mechanisms[..], &start.locales[..]), (&b"PLAIN AMQPLAIN"[..], &b"en_US"[..]));
    let properties = &start.server_properties;
    for (name, value) in [("product", "RabbitMQ"), ("version", "4.2.0"), ("cluster_name", "polylogue")] {
        assert_eq!(properties.get(name), Some(Value::LongStr(value.as_bytes())), "{name}");
    }
    for name in ["platform", "copyright", "information"] {
        assert!(properties.get(name).is_some(), "{name}");
    }
    let capabilities: Vec<_> = properties.get("capabilities").iter().flat_map(Value::fields).collect();
    let names: Vec<_> = capabilities.iter().map(|field| std::str::from_utf8(field.name).unwrap()).collect();
    let expected = [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ];
    assert_eq!(names, expected);
    assert!(capabilities.iter().all(|field| field.value == Value::Bool(true)));
}

#[test]
fn the_whole_handshake_in_one_read() {
    let mut host = Host::new();
    let mut bytes = PROTOCOL_HEADER.to_vec();
    let response = Bytes::from_static(b"\0guest\0pw");
    let start_ok =
        ConnectionStartOk { mechanism: "PLAIN".into(), response, locale: "en_US".into(), ..Default::default() };
    bytes.extend_from_slice(&frame_of(0, start_ok));
    bytes.extend_from_slice(&frame_of(0, ConnectionTuneOk { channel_max: 10, frame_max: 4096, heartbeat: 5 }));
    bytes.extend_from_slice(&frame_of(0, ConnectionOpen { virtual_host: "v".into(), ..Default::default() }));
    bytes.extend_from_slice(&frame_of(3, ChannelOpen::default()));
    host.feed(&bytes);
    let request = host.answer(authenticated());
    let expected = Credentials::Password { user: Bytes::from_static(b"guest"), password: Bytes::from_static(b"pw") };
    assert!(matches!(request, Request::Authenticate(credentials) if credentials == expected));
    let request = host.answer(Reply::Done);
    assert!(matches!(&request, Request::OpenVhost(vhost) if &vhost[..] == b"v"), "{request:?}");
    let request = host.answer(Reply::Done);
    assert!(matches!(request, Request::OpenChannel(channel) if channel.number == 3), "{request:?}");
    let methods = host.methods();
    let [
        Method::ConnectionStart(_),
        Method::ConnectionTune(tune),
        Method::ConnectionOpenOk(_),
        Method::ChannelOpenOk(_),
    ] = &methods[..]
    else {
        panic!("{methods:?}")
    };
    assert_eq!(*tune, ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 });
    assert!(host.session.wants_input() && host.session.held_bytes() == 0);
}

#[test]
fn another_protocol_gets_the_header_of_amqp_0_9_1() {
    for header in
        [*b"AMQP\0\x01\0\0", *b"AMQP\x03\x01\0\0", *b"AMQP\0\0\x08\0", *b"GET / HT", *b"\x16\x03\x01\x02\0\x01\0\x01"]
    {
        let mut host = Host::new();
        host.feed(&header);
        assert_eq!(host.sent(), [Sent::Raw(Bytes::from_static(&PROTOCOL_HEADER))]);
        assert_eq!(host.session.close_reason(), Some(&CloseReason::ProtocolHeader(header)));
        assert!(host.requests().is_empty());
        host.feed(b"more");
        assert!(host.input.is_empty());
    }
    // 0-9 is compatible.
    let mut host = Host::new();
    host.feed(b"AMQP\x01\x01\x00\x09");
    assert!(matches!(host.methods()[..], [Method::ConnectionStart(_)]));
}

#[test]
fn logins_by_table_and_by_certificate() {
    let login = TableBuilder::new().with_text("LOGIN", "me").with_text("PASSWORD", "pw").build();
    let settings = AmqpSettings { mechanisms: vec![Mechanism::AmqPlain, Mechanism::External], ..Default::default() };
    for (mechanism, response, expected) in [
        (
            "AMQPLAIN",
            login.raw().clone(),
            Credentials::Password { user: Bytes::from_static(b"me"), password: Bytes::from_static(b"pw") },
        ),
        ("EXTERNAL", Bytes::new(), Credentials::External),
    ] {
        let mut host = Host::with(settings.clone());
        host.feed(&PROTOCOL_HEADER);
        host.send(0, ConnectionStartOk { mechanism: mechanism.into(), response, ..Default::default() });
        let request = host.answer(authenticated());
        assert!(matches!(request, Request::Authenticate(credentials) if credentials == expected));
        assert!(matches!(host.methods()[..], [Method::ConnectionStart(_), Method::ConnectionTune(_)]));
    }
}

#[test]
fn a_password_is_never_shown() {
    let credentials =
        Credentials::Password { user: Bytes::from_static(b"me"), password: Bytes::from_static(b"geheim") };
    assert!(!format!("{credentials:?}").contains("geheim"));
}

#[test]
fn malformed_logins() {
    let cases: [(&'static str, &'static [u8], &str); 8] = [
        ("MAGIC", b"", "COMMAND_INVALID - unknown authentication mechanism 'MAGIC'"),
        ("EXTERNAL", b"", "COMMAND_INVALID - invalid authentication mechanism 'EXTERNAL'"),
        ("PLAIN", b"", "SYNTAX_ERROR - response invalid"),
        ("PLAIN", b"guest\0guest", "SYNTAX_ERROR - response invalid"),
        ("PLAIN", b"other\0guest\0guest", "SYNTAX_ERROR - response invalid"),
        ("PLAIN", b"\0guest\0guest\0", "SYNTAX_ERROR - response invalid"),
        ("AMQPLAIN", b"\0guest\0guest", "SYNTAX_ERROR - AMQPLAIN auth info is missing LOGIN or PASSWORD field"),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x01g", "SYNTAX_ERROR - AMQPLAIN auth info is missing LOGIN or PASSWORD field"),
    ];
    for (mechanism, response, text) in cases {
        let mut host = Host::new();
        host.feed(&PROTOCOL_HEADER);
        host.sent();
        let response = Bytes::from_static(response);
        host.send(0, ConnectionStartOk { mechanism: mechanism.into(), response, ..Default::default() });
        assert_eq!(host.closed().1, text);
        assert!(host.requests().is_empty());
    }
}

#[test]
fn a_refused_login_is_reported_to_capable_clients() {
    let refused = || Reply::Refused(Refusal::new(Code::AccessRefused, "PLAIN login refused: user 'guest' is locked"));
    let mut host = Host::new();
    host.feed(&PROTOCOL_HEADER);
    host.start_ok(client_properties());
    host.sent();
    host.answer(refused());
    let (code, text) = host.closed();
    assert_eq!(code, 403);
    assert!(text.starts_with("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."), "{text}");
    assert_eq!(host.session.close_reason(), None);
    host.send(0, ConnectionCloseOk {});
    assert!(matches!(host.session.close_reason(), Some(CloseReason::Refused(_))));

    // Clients without the capability are kept waiting.
    let mut host = Host::new();
    host.feed(&PROTOCOL_HEADER);
    host.start_ok(Table::EMPTY);
    host.sent();
    host.answer(refused());
    host.pass(2_999);
    assert_eq!((host.sent(), host.session.close_reason()), (vec![], None));
    host.pass(1);
    assert_eq!(host.session.close_reason(), Some(&CloseReason::LoginRefused));
    assert!(host.sent().is_empty() && host.requests().is_empty());
}

#[test]
fn tuned_values_are_within_the_proposal() {
    for (channel_max, frame_max, refused) in [
        (2047, 131_072, None),
        (1, 4096, None),
        (0, 131_072, Some("negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)")),
        (2048, 131_072, Some("negotiated channel_max = 2048 is higher than the maximum allowed value (2047)")),
        (7, 4095, Some("negotiated frame_max = 4095 is lower than the minimum allowed value (4096)")),
        (7, 131_073, Some("negotiated frame_max = 131073 is higher than the maximum allowed value (131072)")),
        (7, 0, Some("negotiated frame_max = 0 (no limit) is higher than the maximum allowed value (131072)")),
    ] {
        let mut host = tuning(client_properties());
        host.send(0, ConnectionTuneOk { channel_max, frame_max, heartbeat: 0 });
        match refused {
            None => assert!(host.sent().is_empty()),
            Some(text) => assert_eq!(host.closed(), (530, format!("NOT_ALLOWED - {text}"))),
        }
    }
}

#[test]
fn a_refused_virtual_host_closes_the_connection() {
    let mut host = tuning(client_properties());
    host.send(0, ConnectionTuneOk { channel_max: 7, frame_max: 4096, heartbeat: 0 });
    host.send(0, ConnectionOpen { virtual_host: "nowhere".into(), ..Default::default() });
    host.answer(Reply::Refused(Refusal::no_vhost(b"nowhere")));
    assert_eq!(host.closed(), (530, "NOT_ALLOWED - vhost nowhere not found".into()));
    assert!(matches!(host.requests()[..], [Request::CloseConnection]));
}

#[test]
fn methods_out_of_turn() {
    let mut host = Host::new();
    host.feed(&PROTOCOL_HEADER);
    host.sent();
    host.send(0, ConnectionOpen::default());
    assert_eq!(host.closed(), (504, "CHANNEL_ERROR - unexpected method in connection state starting".into()));

    let (mut host, _) = Host::open();
    host.send(0, ConnectionTuneOk::default());
    assert_eq!(host.closed(), (504, "CHANNEL_ERROR - unexpected method in connection state running".into()));

    let (mut host, _) = Host::open();
    host.send(0, BasicAck::default());
    assert_eq!(host.closed().0, 504);

    // A channel before the connection is open.
    let mut host = tuning(client_properties());
    host.send(1, ChannelOpen::default());
    assert_eq!(host.closed().0, 505);
}

#[test]
fn a_slow_handshake_times_out() {
    let mut host = Host::new();
    host.feed(b"AMQP");
    host.pass(9_999);
    assert_eq!(host.session.close_reason(), None);
    host.pass(1);
    assert_eq!(host.session.close_reason(), Some(&CloseReason::HandshakeTimeout));

    let mut host = tuning(client_properties());
    host.pass(10_000);
    assert_eq!(host.session.close_reason(), Some(&CloseReason::HandshakeTimeout));

    // An open connection has no handshake deadline.
    let (mut host, _) = Host::open();
    host.pass(15_000);
    assert_eq!(host.session.close_reason(), None);
}

#[test]
fn heartbeats() {
    let settings = AmqpSettings { heartbeat_seconds: 10, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    host.pass(5_000);
    assert_eq!(host.sent(), [Sent::Heartbeat]);
    host.pass(4_999);
    assert!(host.sent().is_empty());
    host.feed(&frame_of(1, ChannelOpen::default()));
    host.answer(Reply::Done);
    // Output serves as a heartbeat.
    host.pass(4_999);
    assert_eq!(host.methods().len(), 1);
    let mut heartbeat = bytes::BytesMut::new();
    encode_heartbeat(&mut heartbeat);
    host.feed(&heartbeat);
    host.pass(19_999);
    assert_eq!(host.session.close_reason(), None);
    // Any byte counts.
    host.feed(&heartbeat[..3]);
    host.pass(19_999);
    assert_eq!(host.session.close_reason(), None);
    host.pass(1);
    assert_eq!(host.session.close_reason(), Some(&CloseReason::HeartbeatTimeout));
    assert!(matches!(host.requests()[..], [Request::CloseConnection]));
    assert_eq!(host.session.next_deadline_ms(), None);
}

#[test]
fn without_heartbeats_silence_is_allowed() {
    let settings = AmqpSettings { heartbeat_seconds: 0, ..Default::default() };
    let mut host = Host::open_with(settings, client_properties());
    host.pass(1 << 40);
    assert_eq!((host.sent(), host.session.close_reason()), (vec![], None));
    assert_eq!(host.session.next_deadline_ms(), None);
}

#[test]
fn the_client_closes() {
    let (mut host, _) = Host::open();
    host.send(0, ConnectionClose { reply_code: 200, ..Default::default() });
    assert!(host.sent().is_empty());
    let request = host.answer(Reply::Done);
    assert!(matches!(request, Request::CloseConnection));
    assert_eq!(host.methods(), [ConnectionCloseOk {}.into()]);
    assert_eq!(host.session.channel_count(), 0);
    // The socket used to be closed here, with input of amqplib unread, and amqplib never read the answer.
    host.publish(1, to_queue("q"), &BasicProperties::default(), b"late");
    assert!(host.sent().is_empty() && host.requests().is_empty());
    // An incomplete frame stays in the input: the reader of the socket has to know where the next frame begins.
    let mut piece = BytesMut::from(&b"\x03\0\x01\0\0\0\x09lat"[..]);
    host.session.on_bytes(&mut piece, host.now_ms);
    assert_eq!(piece.len(), 10);
    piece.extend_from_slice(b"e body\xce");
    host.session.on_bytes(&mut piece, host.now_ms);
    assert_eq!((piece.len(), host.session.close_reason()), (0, None));
    host.pass(29_999);
    assert_eq!(host.session.close_reason(), None);
    host.pass(1);
    assert_eq!(host.session.close_reason(), Some(&CloseReason::Client));
}

#[test]
fn a_closed_connection_does_not_delay_the_shutdown() {
    let (mut host, _) = Host::open();
    host.send(0, ConnectionClose { reply_code: 200, ..Default::default() });
    host.answer(Reply::Done);
    host.sent();
    host.event(Event::CloseConnection(Refusal::forced("broker is shutting down")));
    assert!(host.sent().is_empty());
    assert_eq!(host.session.close_reason(), Some(&CloseReason::Client));
}

#[test]
fn a_connection_closed_by_the_server_ignores_all_but_close_ok() {
    let (mut host, _) = Host::open();
    host.event(Event::CloseConnection(Refusal::forced("bye")));
    assert_eq!(host.closed(), (320, "CONNECTION_FORCED - bye".into()));
    assert!(matches!(host.requests()[..], [Request::CloseConnection]));
    host.send(1, QueueDeclare::default());
    host.publish(1, to_queue("q"), &BasicProperties::default(), b"body");
    assert!(host.sent().is_empty() && host.requests().is_empty());
    // Both sides have closed.
    host.send(0, ConnectionClose::default());
    assert_eq!(host.methods(), [ConnectionCloseOk {}.into()]);
    assert_eq!(host.session.close_reason(), None);
    host.send(0, ConnectionCloseOk {});
    assert_eq!(host.session.close_reason(), Some(&CloseReason::Refused(Refusal::forced("bye"))));
}

#[test]
fn an_unanswered_close_times_out() {
    for (heartbeat_seconds, wait_ms) in [(0, 30_000), (60, 30_000), (10, 10_000)] {
        let settings = AmqpSettings { heartbeat_seconds, ..Default::default() };
        let mut host = Host::open_with(settings, client_properties());
        host.event(Event::CloseConnection(Refusal::forced("bye")));
        host.sent();
        host.pass(wait_ms - 1);
        assert_eq!(host.session.close_reason(), None);
        host.pass(1);
        assert!(matches!(host.session.close_reason(), Some(CloseReason::Refused(_))));
    }
}

/// A server that shut down used to close its sockets without `connection.close`: clients took that for a network failure.
#[test]
fn a_shutdown_is_sent_to_open_connections() {
    let (mut host, _) = Host::open();
    assert!(host.shut_down());
    let text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
    assert_eq!(host.closed(), (320, text.into()));
    assert!(matches!(host.requests()[..], [Request::CloseConnection]));
    assert!(!host.shut_down(), "it is sent once");
    // A client that does not answer is not waited for long.
    host.pass(2_999);
    assert_eq!(host.session.close_reason(), None);
    host.pass(1);
    assert_eq!(host.session.close_reason(), Some(&CloseReason::Refused(Refusal::shutdown())));

    let mut host = tuning(client_properties());
    assert!(!host.shut_down() && host.sent().is_empty(), "the connection is not open yet");
}

#[test]
fn a_new_secret() {
    let (mut host, _) = Host::open();
    let update = || ConnectionUpdateSecret { new_secret: Bytes::from_static(b"token"), reason: "expires".into() };
    host.send(0, update());
    let request = host.answer(Reply::Done);
    assert!(matches!(request, Request::UpdateSecret(secret) if &secret[..] == b"token"));
    assert_eq!(host.methods(), [ConnectionUpdateSecretOk {}.into()]);
    // The new secret decides anew whether a client is an impersonator.
    for impersonator in [true, false] {
        host.send(0, update());
        host.answer(Reply::Authenticated { user: Bytes::from_static(b"guest"), impersonator });
        assert_eq!(host.methods(), [ConnectionUpdateSecretOk {}.into()]);
        let properties = BasicProperties { user_id: Some("bob".into()), ..Default::default() };
        host.publish(1, to_queue("q"), &properties, b"");
        let is_taken = matches!(host.requests()[..], [Request::Publish(..)]);
        assert_eq!(is_taken, impersonator);
    }
    let (mut host, _) = Host::open();
    host.send(0, update());
    host.answer(Reply::Refused(Refusal::forced("x")));
    assert_eq!(host.closed(), (530, "NOT_ALLOWED - New secret was refused by one of the backends".into()));
}

#[test]
fn the_input_holds_the_largest_accepted_frame() {
    let mut host = Host::new();
    assert_eq!(host.session.input_bytes_max(), 8192 + 8);
    host.feed(&PROTOCOL_HEADER);
    host.sent();
    // A login of as many bytes, and one of eight more.
    let mut start_ok = ConnectionStartOk { mechanism: "PLAIN".into(), ..Default::default() };
    let rest = host.session.input_bytes_max() - frame_of(0, start_ok.clone()).len();
    start_ok.response = Bytes::from([b"\0guest\0".to_vec(), vec![b'x'; rest - 7]].concat());
    let bytes = frame_of(0, start_ok);
    assert_eq!(bytes.len(), host.session.input_bytes_max());
    host.feed(&bytes[..bytes.len() - 1]);
    assert!(host.requests().is_empty());
    host.feed(&bytes[bytes.len() - 1..]);
    assert_eq!(host.requests().len(), 1);
    let (host, _) = Host::open();
    assert_eq!(host.session.input_bytes_max(), 131_072 + 8);
}

#[test]
fn a_small_frame_max_binds_the_server_too() {
    let mut host = tuning(client_properties());
    host.send(0, ConnectionTuneOk { channel_max: 7, frame_max: 4096, heartbeat: 0 });
    host.send(0, ConnectionOpen { virtual_host: "/".into(), ..Default::default() });
    host.answer(Reply::Done);
    host.sent();
    let channel = host.open_channel(1);
    let body = Bytes::from(vec![7; 10_000]);
    host.event(Event::Return {
        channel,
        exchange: "x".into(),
        routing_key: "k".into(),
        properties: Bytes::from_static(&[0, 0]),
        payload: body.clone().into(),
    });
    let sent = host.sent();
    let sizes: Vec<_> =
        sent.iter().filter_map(|sent| if let Sent::Body(_, part) = sent { Some(part.len()) } else { None }).collect();
    assert_eq!(sizes, [4088, 4088, 1824]);
    assert_eq!(contents(&sent)[0].2, body);
    // A frame of the client may exceed that by eight bytes, and no more.
    host.feed(&FramePrefix { kind: 3, channel: 1, size: 4097 }.to_bytes());
    assert_eq!(host.closed(), (501, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4097,4088}".into()));
}
