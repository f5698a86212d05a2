//! Clients that mean harm: they cost their own connection.

use super::{Case, Client, Rabbit, queue};
use crate::common::amqp::{framed, start_ok};
use bytes::{BufMut, BytesMut};
use polylogue_amqp::codec::*;

/// What a server may keep of all of them. KiB.
const KIB_MAX: u64 = 48 << 10;
/// Clients that announce the largest message and send nothing of it.
const ANNOUNCERS: usize = 200;
/// Channels that one client asks for.
const CHANNELS: u32 = 100_000;

fn serves(rabbit: &Rabbit) {
    let mut client = Client::open(rabbit.amqp, "guest");
    assert!(matches!(client.ask(1, queue("serves")), Method::QueueDeclareOk(_)));
}

/// A whole conversation: a login, a channel, a queue, a message.
fn conversation() -> BytesMut {
    let mut said = BytesMut::from(&PROTOCOL_HEADER[..]);
    let arguments = TableBuilder::new().with_text("x-queue-type", "classic").with("x-expires", Value::I32(60_000));
    let declare = QueueDeclare { arguments: arguments.build(), ..queue("cut") };
    for (channel, method) in [
        (0, Method::from(start_ok("guest", "guest"))),
        (0, ConnectionTuneOk { channel_max: 10, frame_max: 8_192, heartbeat: 0 }.into()),
        (0, ConnectionOpen { virtual_host: "/".into(), ..Default::default() }.into()),
        (1, ChannelOpen::default().into()),
        (1, declare.into()),
        (1, BasicPublish { routing_key: "cut".into(), ..Default::default() }.into()),
    ] {
        encode_method(&mut said, channel, &method);
    }
    encode_header(&mut said, 1, 4, &BasicProperties { delivery_mode: Some(2), ..Default::default() }.encode());
    said.put_slice(&framed(3, 1, b"body", FRAME_END));
    said
}

#[test]
fn conversations_that_end_or_go_wrong_at_any_byte() {
    let rabbit = Rabbit::start();
    let whole = conversation();
    let before = rabbit.server.memory_kib();
    for cut in 0..whole.len() {
        let mut client = Client::connect(rabbit.amqp);
        client.raw(&whole[..cut]);
    }
    serves(&rabbit);
    for at in PROTOCOL_HEADER.len()..whole.len() {
        let mut wrong = whole.clone();
        wrong[at] ^= 0xff;
        let mut client = Client::connect(rabbit.amqp);
        client.raw(&wrong);
    }
    serves(&rabbit);
    let grown = rabbit.server.memory_kib().saturating_sub(before);
    assert!(grown < KIB_MAX, "{grown} KiB more");
}

/// A table in a table in a table.
fn nested(depth: usize) -> Table {
    (0..depth).fold(Table::EMPTY, |inner, _| TableBuilder::new().with_table("t", &inner).build())
}

const TABLES: &[Case] = &[
    (
        "tables in tables in tables",
        |c| c.say(1, QueueDeclare { arguments: nested(1_000), ..queue("x") }),
        "connection 501 50.10 FRAME_ERROR - cannot decode <<0,0,1,120,2,0,0,27,88,1,116,70,0,0,27,81,1,116,70,0,0,27,74,1,116,70,0,0,27,67,1,116,70,0,0,27,60,1,116,70,0,0,27,53,\
         1,116,70,0,0,27,46,1,116,70,0,0,27,39,1,116,70,0,0,27,32,1,116,70,0,0,27,25,1,116,70,0,0,27,18,1,116,70,0...",
    ),
    (
        "an array that is longer than its table",
        |c| c.frame(1, 1, b"\0\x32\0\x0a\0\0\x01q\0\0\0\0\x07\x01aA\xff\xff\xff\xff"),
        "connection 501 50.10 FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0,7,1,97,65,255,255,255,255>>",
    ),
    (
        "a text that is longer than its table",
        |c| c.frame(1, 1, b"\0\x32\0\x0a\0\0\x01q\0\0\0\0\x07\x01aS\x7f\xff\xff\xff"),
        "connection 501 50.10 FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0,7,1,97,83,127,255,255,255>>",
    ),
    (
        "a name that is longer than its frame",
        |c| c.frame(1, 1, b"\0\x32\0\x0a\0\0\xffq"),
        "connection 501 50.10 FRAME_ERROR - cannot decode <<0,0,255,113>>",
    ),
];

#[test]
fn tables_that_lie() {
    Rabbit::start().check(|to| Client::open(to, "guest"), TABLES);
}

#[test]
fn messages_that_never_come_take_no_memory() {
    let rabbit = Rabbit::start();
    serves(&rabbit);
    let before = rabbit.server.memory_kib();
    let announced: Vec<Client> = (0..ANNOUNCERS)
        .map(|_| {
            let mut client = Client::open(rabbit.amqp, "guest");
            for channel in 2..20 {
                client.say(channel, ChannelOpen::default());
                client.say(channel, BasicPublish::default());
                client.header(channel, 16 << 20, &BasicProperties::default());
            }
            for _ in 2..20 {
                assert!(matches!(client.method(), Some((_, Method::ChannelOpenOk(_)))));
            }
            client
        })
        .collect();
    serves(&rabbit);
    let grown = rabbit.server.memory_kib().saturating_sub(before);
    assert!(grown < KIB_MAX, "{grown} KiB for {ANNOUNCERS} connections");
    drop(announced);
}

/// More channels than there are numbers, in all orders, open and closed again.
#[test]
fn a_client_that_wants_a_hundred_thousand_channels() {
    let rabbit = Rabbit::start();
    serves(&rabbit);
    let before = rabbit.server.memory_kib();
    let mut client = Client::open(rabbit.amqp, "guest");
    let mut all = BytesMut::new();
    for number in 0..CHANNELS {
        encode_method(&mut all, (number.wrapping_mul(7_919) % 65_535 + 2) as u16, &ChannelOpen::default().into());
    }
    client.raw(&all);
    let mut opened = 0;
    let refused = loop {
        match client.method() {
            Some((_, Method::ChannelOpenOk(_))) => opened += 1,
            Some((0, Method::ConnectionClose(close))) => break close,
            other => panic!("{other:?}"),
        }
    };
    // What was on its way when the end came is not answered.
    assert!(opened <= 2_046 && refused.reply_code == 530, "{opened}, {refused:?}");
    serves(&rabbit);
    let grown = rabbit.server.memory_kib().saturating_sub(before);
    assert!(grown < KIB_MAX, "{grown} KiB more");
}
