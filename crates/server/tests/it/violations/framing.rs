//! Frames, methods and messages that are not what they should be.

use super::{Case, Client, Rabbit, queue};
use crate::common::amqp::framed;
use polylogue_amqp::codec::*;

fn props() -> BasicProperties {
    BasicProperties::default()
}

const FRAMES: &[Case] = &[
    (
        "a frame of no known type",
        |c| c.frame(9, 1, b"abc"),
        "connection 501 0.0 FRAME_ERROR - type 9, all octets = <<\"abc\">>: unknown_frame",
    ),
    (
        "a frame whose type is the letter that the protocol begins with",
        |c| c.frame(b'A', 1, b"abcdefghijklmnopqrstuvw"),
        "connection 501 0.0 FRAME_ERROR - type 65, first 16 octets = <<\"abcdefghijklmnop\">>: unknown_frame",
    ),
    (
        "a method frame without a method",
        |c| c.frame(1, 1, b"\0\x32"),
        "connection 501 0.0 FRAME_ERROR - type 1, all octets = <<0,50>>: unknown_frame",
    ),
    (
        "a frame that does not end where it says",
        |c| c.raw(&framed(1, 1, b"\0\x3c\0\x0a\0\0\0\0\0\0\0", 7)),
        "connection 501 0.0 FRAME_ERROR - type 1, all octets = <<0,60,0,10,0,0,0,0,0,0,0>>: {invalid_frame_end_marker,7}",
    ),
    (
        "a frame larger than agreed on",
        |c| c.raw(&FramePrefix { kind: 3, channel: 1, size: 131_073 }.to_bytes()),
        "connection 501 0.0 FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,131073,131064}",
    ),
    (
        "a frame of 4 GiB",
        |c| c.raw(&FramePrefix { kind: 3, channel: 1, size: u32::MAX }.to_bytes()),
        "connection 501 0.0 FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4294967295,131064}",
    ),
    (
        "fields that are cut off",
        |c| c.frame(1, 1, b"\0\x3c\0\x0a\0\0"),
        "connection 501 60.10 FRAME_ERROR - cannot decode <<0,0>>",
    ),
    (
        "fields with something behind them",
        |c| c.frame(1, 1, b"\0\x14\0\x14\x01\x02"),
        "connection 501 20.20 FRAME_ERROR - cannot decode <<1,2>>",
    ),
    (
        "a name that is not UTF-8",
        |c| c.frame(1, 1, b"\0\x32\0\x0a\0\0\x02\xff\xfe\0\0\0\0\0"),
        "connection 501 50.10 FRAME_ERROR - Malformed UTF-8 in shortstr",
    ),
    (
        "a table that is longer than its frame",
        |c| c.frame(1, 1, b"\0\x32\0\x0a\0\0\x01q\0\x7f\xff\xff\xff"),
        "connection 501 50.10 FRAME_ERROR - cannot decode <<0,0,1,113,0,127,255,255,255>>",
    ),
    (
        "a table with a type that there is not",
        |c| c.frame(1, 1, b"\0\x32\0\x0a\0\0\x01q\0\0\0\0\x03\x01a?"),
        "connection 501 50.10 FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0,3,1,97,63>>",
    ),
    (
        "a method that only servers send",
        |c| c.say(1, QueueDeclareOk::default()),
        "connection 503 50.11 COMMAND_INVALID - unimplemented method",
    ),
    (
        "a class that there is not",
        |c| c.frame(1, 1, b"\0\x63\0\x01"),
        "connection 503 99.1 COMMAND_INVALID - unknown method {99,1}",
    ),
    (
        "a method that its class does not have",
        |c| c.frame(1, 1, b"\0\x3c\0\x63"),
        "connection 503 60.99 COMMAND_INVALID - unknown method {60,99}",
    ),
    ("half a flow", |c| c.say(1, ChannelFlow { active: false }), "connection 540 20.20 NOT_IMPLEMENTED - active=false"),
];

const MESSAGES: &[Case] = &[
    (
        "a header without a publish",
        |c| c.header(1, 0, &props()),
        "connection 505 0.0 UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
    (
        "a body without a publish",
        |c| c.frame(3, 1, b"x"),
        "connection 505 0.0 UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
    (
        "a body on a channel that is not open",
        |c| c.frame(3, 5, b"x"),
        "connection 505 0.0 UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
    (
        "a method instead of a header",
        |c| {
            c.say(1, BasicPublish::default());
            c.say(1, queue("q"));
        },
        "connection 505 60.40 UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
    ),
    (
        "a body instead of a header",
        |c| {
            c.say(1, BasicPublish::default());
            c.frame(3, 1, b"x");
        },
        "connection 505 60.40 UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
    ),
    (
        "a header of another class",
        |c| {
            c.say(1, BasicPublish::default());
            c.frame(2, 1, b"\0\x32\0\0\0\0\0\0\0\0\0\x01\0\0");
        },
        "connection 505 60.40 UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
    ),
    (
        "a header with a weight",
        |c| {
            c.say(1, BasicPublish::default());
            c.frame(2, 1, b"\0\x3c\0\x01\0\0\0\0\0\0\0\x01\0\0");
        },
        "connection 505 60.40 UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
    ),
    (
        "a second header",
        |c| {
            c.say(1, BasicPublish::default());
            c.header(1, 3, &props());
            c.header(1, 3, &props());
        },
        "connection 505 60.40 UNEXPECTED_FRAME - expected content body, got non content body frame instead",
    ),
    (
        "a method before the body is there",
        |c| {
            c.say(1, BasicPublish::default());
            c.header(1, 3, &props());
            c.frame(3, 1, b"x");
            c.say(1, BasicQos::default());
        },
        "connection 505 60.40 UNEXPECTED_FRAME - expected content body, got non content body frame instead",
    ),
    (
        "more body than announced",
        |c| {
            c.say(1, BasicPublish::default());
            c.header(1, 3, &props());
            c.frame(3, 1, b"four");
        },
        "connection 501 60.40 FRAME_ERROR - content body frame exceeds remaining content size",
    ),
    (
        "properties that are cut off",
        |c| {
            c.say(1, BasicPublish::default());
            c.frame(2, 1, b"\0\x3c\0\0\0\0\0\0\0\0\0\x01\x80\0\x05");
            c.frame(3, 1, b"x");
        },
        // The text is of this server: RabbitMQ's channel ends with 541, and a report of where its code was.
        "connection 501 60.40 FRAME_ERROR - cannot decode properties: field ends too early",
    ),
    (
        "a body of more than 512 MiB",
        |c| {
            c.say(1, BasicPublish::default());
            c.header(1, (512 << 20) + 1, &props());
        },
        "connection 501 60.40 FRAME_ERROR - content body size 536870913 exceeds maximum allowed size 536870912",
    ),
    (
        "a body of 16 EiB",
        |c| {
            c.say(1, BasicPublish::default());
            c.header(1, u64::MAX, &props());
        },
        "connection 501 60.40 FRAME_ERROR - content body size 18446744073709551615 exceeds maximum allowed size 536870912",
    ),
    (
        "a message of more than 16 MiB",
        |c| {
            c.say(1, BasicPublish::default());
            c.header(1, (16 << 20) + 1, &props());
        },
        "channel 406 60.40 PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216",
    ),
    (
        "what is to be consumed at once",
        |c| {
            c.say(1, BasicPublish { immediate: true, ..Default::default() });
            c.header(1, 0, &props());
        },
        "connection 540 60.40 NOT_IMPLEMENTED - immediate=true",
    ),
];

#[test]
fn frames_that_are_none() {
    Rabbit::start().check(|to| Client::open(to, "guest"), FRAMES);
}

#[test]
fn messages_out_of_order() {
    Rabbit::start().check(|to| Client::open(to, "guest"), MESSAGES);
}

/// Clients get the size of a frame wrong by its own bytes: that much is overlooked.
#[test]
fn a_frame_may_be_eight_bytes_too_large() {
    let rabbit = Rabbit::start();
    let mut client = Client::open(rabbit.amqp, "guest");
    let body = vec![b'x'; 131_072];
    assert!(matches!(client.ask(1, queue("q")), Method::QueueDeclareOk(_)));
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    client.publish("", "q", &props(), &body);
    assert!(matches!(client.method(), Some((1, Method::BasicAck(_)))));
}
