//! Before a connection is open, and on its channel 0.

use super::{Case, Client, Rabbit, queue};
use crate::common::amqp::start_ok;
use bytes::Bytes;
use polylogue_amqp::codec::*;

/// The answer to a client that does not begin with AMQP 0-9-1.
#[test]
fn who_speaks_something_else_is_told_what_is_spoken() {
    let rabbit = Rabbit::start();
    for begin in [
        &b"AMQP\0\0\x08\0"[..],
        b"AMQP\x03\x01\0\0",
        b"AMQP\0\x01\0\0",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03 a hello of TLS",
        b"MQTT anything else",
    ] {
        let mut client = Client::connect(rabbit.amqp);
        client.raw(begin);
        assert_eq!(client.rest(), PROTOCOL_HEADER, "{begin:?}");
    }
    let mut client = Client::connect(rabbit.amqp);
    client.raw(b"AMQP\x01\x01\0\x09");
    assert!(matches!(client.method(), Some((0, Method::ConnectionStart(_)))), "0-9 is near enough");
}

fn login(mechanism: &'static str, response: &'static [u8]) -> ConnectionStartOk {
    let response = Bytes::from_static(response);
    ConnectionStartOk { mechanism: mechanism.into(), response, ..start_ok("guest", "guest") }
}

const STARTED: &[Case] = &[
    (
        "an unknown mechanism",
        |c| c.say(0, login("MAGIC", b"")),
        "connection 503 10.11 COMMAND_INVALID - unknown authentication mechanism 'MAGIC'",
    ),
    (
        "a mechanism that is not offered",
        |c| c.say(0, login("EXTERNAL", b"")),
        "connection 503 10.11 COMMAND_INVALID - invalid authentication mechanism 'EXTERNAL'",
    ),
    (
        "a PLAIN response with one part",
        |c| c.say(0, login("PLAIN", b"guest")),
        "connection 502 10.11 SYNTAX_ERROR - response invalid",
    ),
    (
        "an AMQPLAIN response that is no table",
        |c| c.say(0, login("AMQPLAIN", b"\x05LOGINS\0\0\xff\xffguest")),
        "connection 502 10.11 SYNTAX_ERROR - AMQPLAIN auth info is missing LOGIN or PASSWORD field",
    ),
    (
        "an AMQPLAIN response without a password",
        |c| c.say(0, login("AMQPLAIN", b"\x05LOGINS\0\0\0\x05guest")),
        "connection 502 10.11 SYNTAX_ERROR - AMQPLAIN auth info is missing LOGIN or PASSWORD field",
    ),
    (
        "a wrong password",
        |c| c.say(0, start_ok("guest", "wrong")),
        "connection 403 0.0 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the \
         broker logfile.",
    ),
    (
        "a user that there is not",
        |c| c.say(0, start_ok("who", "who")),
        "connection 403 0.0 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the \
         broker logfile.",
    ),
    (
        "tune_ok before start_ok",
        |c| c.say(0, ConnectionTuneOk::default()),
        "connection 504 10.31 CHANNEL_ERROR - unexpected method in connection state starting",
    ),
    (
        "a channel before the connection is open",
        |c| c.say(1, ChannelOpen::default()),
        "connection 505 0.0 UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>",
    ),
    (
        "a frame larger than any before tuning",
        |c| c.raw(&FramePrefix { kind: 1, channel: 0, size: 8_193 }.to_bytes()),
        "connection 501 0.0 FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,8193,8184}",
    ),
];

const TUNING: &[Case] = &[
    (
        "no limit to frames",
        |c| c.say(0, ConnectionTuneOk { channel_max: 1, frame_max: 0, heartbeat: 0 }),
        "connection 530 10.31 NOT_ALLOWED - negotiated frame_max = 0 (no limit) is higher than the maximum allowed value (131072)",
    ),
    (
        "larger frames than offered",
        |c| c.say(0, ConnectionTuneOk { channel_max: 1, frame_max: 131_073, heartbeat: 0 }),
        "connection 530 10.31 NOT_ALLOWED - negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
    ),
    (
        "smaller frames than any peer must take",
        |c| c.say(0, ConnectionTuneOk { channel_max: 1, frame_max: 4_095, heartbeat: 0 }),
        "connection 530 10.31 NOT_ALLOWED - negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
    ),
    (
        "more channels than offered",
        |c| c.say(0, ConnectionTuneOk { channel_max: 2_048, frame_max: 8_192, heartbeat: 0 }),
        "connection 530 10.31 NOT_ALLOWED - negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
    ),
    (
        "any number of channels",
        |c| c.say(0, ConnectionTuneOk { channel_max: 0, frame_max: 8_192, heartbeat: 0 }),
        "connection 530 10.31 NOT_ALLOWED - negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
    ),
    (
        "open before tune_ok",
        |c| c.say(0, ConnectionOpen::default()),
        "connection 504 10.40 CHANNEL_ERROR - unexpected method in connection state tuning",
    ),
    (
        "a second start_ok",
        |c| c.say(0, start_ok("guest", "guest")),
        "connection 504 10.11 CHANNEL_ERROR - unexpected method in connection state tuning",
    ),
];

const OPENING: &[Case] = &[
    (
        "a virtual host that there is not",
        |c| c.say(0, ConnectionOpen { virtual_host: "nowhere".into(), ..Default::default() }),
        "connection 530 10.40 NOT_ALLOWED - vhost nowhere not found",
    ),
    (
        "a virtual host that the user may not open",
        |c| c.say(0, ConnectionOpen { virtual_host: "/".into(), ..Default::default() }),
        "connection 530 10.40 NOT_ALLOWED - access to vhost '/' refused for user 'absent'",
    ),
];

const OPEN: &[Case] = &[
    (
        "a second open",
        |c| c.say(0, ConnectionOpen::default()),
        "connection 504 10.40 CHANNEL_ERROR - unexpected method in connection state running",
    ),
    (
        "a channel's method on channel 0",
        |c| c.say(0, queue("q")),
        "connection 504 50.10 CHANNEL_ERROR - unexpected method in connection state running",
    ),
    (
        "a server's method",
        |c| c.say(0, ConnectionUnblocked {}),
        "connection 504 10.61 CHANNEL_ERROR - unexpected method in connection state running",
    ),
    (
        "a header frame on channel 0",
        |c| c.header(0, 1, &BasicProperties::default()),
        "connection 505 0.0 UNEXPECTED_FRAME - type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,1,0,0>>",
    ),
    (
        "a heartbeat on another channel",
        |c| c.frame(8, 1, b""),
        "connection 505 0.0 UNEXPECTED_FRAME - type 8, all octets = <<>>",
    ),
    (
        "a heartbeat that says something",
        |c| c.frame(8, 0, b"x"),
        "connection 501 0.0 FRAME_ERROR - type 8, all octets = <<\"x\">>: unknown_frame",
    ),
    (
        "a channel that is open",
        |c| c.say(1, ChannelOpen::default()),
        "connection 504 20.10 CHANNEL_ERROR - second 'channel.open' seen",
    ),
    (
        "a method on a channel that is not open",
        |c| c.say(9, BasicQos::default()),
        "connection 504 60.10 CHANNEL_ERROR - expected 'channel.open'",
    ),
];

#[test]
fn logins() {
    Rabbit::start().check(Client::started, STARTED);
}

#[test]
fn tuning() {
    Rabbit::start().check(|to| Client::tuning(to, "guest"), TUNING);
}

#[test]
fn virtual_hosts() {
    let rabbit = Rabbit::with_things();
    let (missing, refused) = OPENING.split_at(1);
    rabbit.check(|to| Client::opening(to, "guest"), missing);
    rabbit.check(|to| Client::opening(to, "absent"), refused);
}

#[test]
fn open_connections() {
    Rabbit::start().check(|to| Client::open(to, "guest"), OPEN);
}

/// As many as were agreed on, and not one more.
#[test]
fn channels_are_counted() {
    let rabbit = Rabbit::start();
    let open_two = |to| {
        let mut client = Client::tuning(to, "guest");
        client.say(0, ConnectionTuneOk { channel_max: 2, frame_max: 4_096, heartbeat: 0 });
        let open = ConnectionOpen { virtual_host: "/".into(), ..Default::default() };
        assert!(matches!(client.ask(0, open), Method::ConnectionOpenOk(_)));
        for number in [1, 60_000] {
            assert!(matches!(client.ask(number, ChannelOpen::default()), Method::ChannelOpenOk(_)));
        }
        client
    };
    rabbit.check(
        open_two,
        &[(
            "a third channel",
            |c| c.say(3, ChannelOpen::default()),
            "connection 530 0.0 NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)",
        )],
    );
}
