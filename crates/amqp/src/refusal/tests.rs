//! All refusal texts, letter by letter.

use super::*;

fn queue<'a>() -> Named<'a> {
    Named { kind: Kind::Queue, name: b"q", vhost: b"/" }
}

fn exchange<'a>(name: &'a str) -> Named<'a> {
    Named { kind: Kind::Exchange, name: name.as_bytes(), vhost: b"/" }
}

/// Compares each refusal with its text, and its reply text with the same text without the number.
fn check(table: &[(Refusal, &str)]) {
    for (refusal, text) in table {
        assert_eq!(refusal.to_string(), *text);
        let reply = refusal.reply_text().to_string();
        assert_eq!(Some(reply.as_str()), text.split_once(' ').map(|(_, reply)| reply));
    }
}

#[test]
fn frames_are_refused_in_rabbitmqs_words() {
    check(&[
        (Refusal::unexpected_method("running"), "504 CHANNEL_ERROR - unexpected method in connection state running"),
        (Refusal::unknown_frame(9, b""), "501 FRAME_ERROR - type 9, all octets = <<>>: unknown_frame"),
        (
            Refusal::frame_too_large(3, 131_073, 131_064),
            "501 FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,131073,131064}",
        ),
        (
            Refusal::bad_frame_end(1, &[0, 10, 0, 51], 65),
            "501 FRAME_ERROR - type 1, all octets = <<0,10,0,51>>: {invalid_frame_end_marker,65}",
        ),
        (
            Refusal::unexpected_frame(3, b"a body that is long"),
            "505 UNEXPECTED_FRAME - type 3, first 16 octets = <<\"a body that is l\">>",
        ),
        (Refusal::expected_method(), "505 UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        (
            Refusal::expected_header(60),
            "505 UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        ),
        (
            Refusal::expected_header_class(60, 50),
            "505 UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
        ),
        (Refusal::expected_body(), "505 UNEXPECTED_FRAME - expected content body, got non content body frame instead"),
        (Refusal::body_overrun(), "501 FRAME_ERROR - content body frame exceeds remaining content size"),
        (
            Refusal::body_too_large(536_870_913, 536_870_912),
            "501 FRAME_ERROR - content body size 536870913 exceeds maximum allowed size 536870912",
        ),
        (Refusal::cannot_decode(b"ab"), "501 FRAME_ERROR - cannot decode <<97,98>>"),
        (Refusal::malformed_utf8(), "501 FRAME_ERROR - Malformed UTF-8 in shortstr"),
        (Refusal::unimplemented_method(), "503 COMMAND_INVALID - unimplemented method"),
        (Refusal::unknown_method(MethodId::new(99, 1)), "503 COMMAND_INVALID - unknown method {99,1}"),
    ]);
}

#[test]
fn handshakes_are_refused_in_rabbitmqs_words() {
    check(&[
        (Refusal::unknown_mechanism(b"MAGIC"), "503 COMMAND_INVALID - unknown authentication mechanism 'MAGIC'"),
        (Refusal::invalid_mechanism(b"EXTERNAL"), "503 COMMAND_INVALID - invalid authentication mechanism 'EXTERNAL'"),
        (Refusal::bad_plain_response(), "502 SYNTAX_ERROR - response invalid"),
        (Refusal::bad_amqplain_response(), "502 SYNTAX_ERROR - AMQPLAIN auth info is missing LOGIN or PASSWORD field"),
        (
            Refusal::login_refused("PLAIN"),
            "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
        ),
        (
            Refusal::negotiated_below("frame_max", 100, 4096),
            "530 NOT_ALLOWED - negotiated frame_max = 100 is lower than the minimum allowed value (4096)",
        ),
        (
            Refusal::negotiated_above("channel_max", 0, 2047),
            "530 NOT_ALLOWED - negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
        ),
        (
            Refusal::too_many_channels(2047, 2047),
            "530 NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)",
        ),
        (Refusal::secret_refused(), "530 NOT_ALLOWED - New secret was refused by one of the backends"),
    ]);
}

#[test]
fn methods_are_refused_in_rabbitmqs_words() {
    check(&[
        (Refusal::second_channel_open(), "504 CHANNEL_ERROR - second 'channel.open' seen"),
        (Refusal::expected_channel_open(), "504 CHANNEL_ERROR - expected 'channel.open'"),
        (Refusal::not_implemented("immediate=true"), "540 NOT_IMPLEMENTED - immediate=true"),
        (Refusal::prefetch_size(7), "540 NOT_IMPLEMENTED - prefetch_size!=0 (7)"),
        (Refusal::unknown_delivery_tag(7), "406 PRECONDITION_FAILED - unknown delivery tag 7"),
        (Refusal::no_previous_queue(), "404 NOT_FOUND - no previously declared queue"),
        (Refusal::default_exchange(), "403 ACCESS_REFUSED - operation not permitted on the default exchange"),
        (
            Refusal::system_exchange(exchange("amq.topic")),
            "403 ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed",
        ),
        (
            Refusal::reserved_name(Kind::Queue, b"amq.mine"),
            "403 ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (Refusal::consumer_tag_reused(b"c"), "530 NOT_ALLOWED - attempt to reuse consumer tag 'c'"),
        (Refusal::too_many_consumers(3), "530 NOT_ALLOWED - reached maximum (3) of consumers per channel"),
        (
            Refusal::message_too_large(20, 16),
            "406 PRECONDITION_FAILED - message size 20 is larger than configured max size 16",
        ),
        (
            Refusal::invalid_expiration(b"soon", "no_integer"),
            "406 PRECONDITION_FAILED - invalid expiration 'soon': no_integer",
        ),
        (
            Refusal::user_id(b"bob", b"guest"),
            "406 PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
        ),
        (
            Refusal::unacceptable_header("CC", "longstr"),
            "406 PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\"CC\",longstr}",
        ),
        (Refusal::no_reply_consumer(), "406 PRECONDITION_FAILED - fast reply consumer does not exist"),
        (Refusal::reply_consumer_acks(), "406 PRECONDITION_FAILED - reply consumer cannot acknowledge"),
        (Refusal::reply_consumer_set(), "406 PRECONDITION_FAILED - reply consumer already set"),
        (Refusal::confirm_to_tx(), "406 PRECONDITION_FAILED - cannot switch from confirm to tx mode"),
        (Refusal::tx_to_confirm(), "406 PRECONDITION_FAILED - cannot switch from tx to confirm mode"),
        (Refusal::not_transactional(), "406 PRECONDITION_FAILED - channel is not transactional"),
        (Refusal::partial_tx(), "406 PRECONDITION_FAILED - partial tx completion"),
    ]);
}

#[test]
fn the_brokers_refusals_are_in_rabbitmqs_words() {
    check(&[
        (Refusal::missing(queue()), "404 NOT_FOUND - no queue 'q' in vhost '/'"),
        (
            Refusal::inequivalent("durable", queue(), "'true'", "'false'"),
            "406 PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'",
        ),
        (Refusal::unknown_exchange_type(b"magic"), "406 PRECONDITION_FAILED - unknown exchange type 'magic'"),
        (
            Refusal::delivery_timeout(3, 1800),
            "406 PRECONDITION_FAILED - delivery acknowledgement on channel 3 timed out. Timeout value used: 1800 ms. This timeout value can be configured, see consumers doc guide to learn more",
        ),
        (Refusal::no_vhost(b"v"), "530 NOT_ALLOWED - vhost v not found"),
        (Refusal::vhost_refused(b"v", b"guest"), "530 NOT_ALLOWED - access to vhost 'v' refused for user 'guest'"),
        (
            Refusal::no_permission("write", exchange("x"), b"guest"),
            "403 ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'guest'",
        ),
        (
            Refusal::internal_exchange(exchange("x")),
            "403 ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'",
        ),
        (Refusal::exclusive_use(queue()), "403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"),
        (
            Refusal::get_with_single_active_consumer(queue()),
            "405 RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations are not supported by \
             quorum queues with single active consumer",
        ),
        (Refusal::global_qos(queue()), "540 NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos"),
        (Refusal::in_use(queue()), "406 PRECONDITION_FAILED - queue 'q' in vhost '/' in use"),
        (Refusal::not_empty(queue()), "406 PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"),
        (
            Refusal::forced("Node was put into maintenance mode"),
            "320 CONNECTION_FORCED - Node was put into maintenance mode",
        ),
    ]);
    let exclusive = "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on \
                     another connection or the exclusive property value does not match that of the original declaration.";
    assert_eq!(Refusal::exclusive(queue()).text, exclusive);
    assert_eq!(Refusal::exclusive(queue()).code, Code::ResourceLocked);
}

#[test]
fn soft_errors_close_a_channel_and_hard_errors_the_connection() {
    use Code::*;
    for code in [ContentTooLarge, NoRoute, NoConsumers, AccessRefused, NotFound, ResourceLocked, PreconditionFailed] {
        assert!(!code.is_hard(), "{code:?}");
    }
    for code in [
        ConnectionForced,
        InvalidPath,
        FrameError,
        SyntaxError,
        CommandInvalid,
        ChannelError,
        UnexpectedFrame,
        ResourceError,
        NotAllowed,
        NotImplemented,
        InternalError,
    ] {
        assert!(code.is_hard(), "{code:?}");
    }
}

#[test]
fn long_texts_are_cut_at_character_boundaries() {
    for name in ["n".repeat(300), "ü".repeat(300), "x".to_owned() + &"ü".repeat(300)] {
        let text = Refusal::consumer_tag_reused(name.as_bytes()).reply_text();
        assert!(text.len() <= ShortStr::BYTES_MAX && text.len() > 252);
        let text = std::str::from_utf8(&text).unwrap_or_default().to_owned();
        assert!(text.ends_with("..."), "{text}");
    }
}
