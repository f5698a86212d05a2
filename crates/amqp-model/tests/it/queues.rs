//! Declaring, redeclaring and deleting queues, with RabbitMQ's texts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use polylogue_router::Value;
use serde_json::json;

fn refusal(live: &mut Live, declare: DeclareQueue) -> String {
    live.refusal(&Caller::broker(), Command::DeclareQueue(declare))
}

#[test]
fn arguments_are_refused_with_rabbitmqs_texts() {
    let mut live = Live::new();
    for (kind, name, value, why) in [
        ("classic", "x-message-ttl", json!("10"), "\"expected integer, got longstr\""),
        ("classic", "x-message-ttl", json!(-1), "{value_negative,-1}"),
        ("quorum", "x-message-ttl", json!(1.5), "\"expected integer, got double\""),
        ("classic", "x-expires", json!(0), "{value_zero,0}"),
        ("classic", "x-expires", json!(-5), "{value_negative,-5}"),
        ("classic", "x-max-length", json!(-1), "{value_negative,-1}"),
        ("stream", "x-max-length-bytes", json!("big"), "\"expected integer, got longstr\""),
        ("classic", "x-max-priority", json!(256), "{max_value_exceeded,256}"),
        ("classic", "x-dead-letter-routing-key", json!("k"), "routing_key_but_no_dlx_defined"),
        ("classic", "x-overflow", json!("explode"), "invalid_overflow"),
        ("quorum", "x-overflow", json!(1), "{unacceptable_type,long}"),
        ("quorum", "x-dead-letter-strategy", json!("maybe"), "invalid_dlx_strategy"),
        ("classic", "x-queue-mode", json!("eager"), "\"unsupported queue mode 'eager'\""),
        ("classic", "x-queue-version", json!(3), "\"unsupported queue version '3'\""),
        ("classic", "x-single-active-consumer", json!("true"), "{unacceptable_type,longstr}"),
        ("quorum", "x-quorum-initial-group-size", json!(0), "{value_zero,0}"),
        ("quorum", "x-delivery-limit", json!("many"), "\"expected integer, got longstr\""),
        ("stream", "x-max-age", json!("1w"), "invalid_max_age"),
        ("stream", "x-max-age", json!("D"), "invalid_max_age"),
        ("stream", "x-max-age", json!(5), "{unacceptable_type,long}"),
        ("stream", "x-queue-leader-locator", json!("nearest"), "invalid_queue_locator_arg"),
        ("classic", "x-polylogue-retention-ms", json!(-1), "{value_negative,-1}"),
        ("zebra", "x-queue-type", json!("zebra"), "\"unsupported queue type 'zebra'\""),
        ("classic", "x-queue-type", json!(true), "{unacceptable_type,bool}"),
    ] {
        let text = refusal(&mut live, queue_with("q", json!({"x-queue-type": kind, name: value})));
        assert_eq!(text, format!("PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': {why}"));
    }
    for (name, value, text) in [
        ("x-stream-filter-size-bytes", 15_i64, "Invalid value for x-stream-filter-size-bytes"),
        ("x-stream-filter-size-bytes", 256, "Invalid value for x-stream-filter-size-bytes"),
        (
            "x-stream-max-segment-size-bytes",
            3_000_000_001_i64,
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ),
    ] {
        let refused = refusal(&mut live, queue_with("q", json!({"x-queue-type": "stream", name: value})));
        assert_eq!(refused, format!("PRECONDITION_FAILED - {text}"));
    }
    assert_eq!(live.model.metadata().queues().len(), 0);
    let most = json!({"x-queue-type": "stream", "x-stream-filter-size-bytes": 255, "x-stream-max-segment-size-bytes": 3_000_000_000_i64,
                      "x-initial-cluster-size": 3, "x-queue-leader-locator": "balanced", "x-max-age": "7D", "x-max-length-bytes": 0});
    live.declare(queue_with("q", most));
}

#[test]
fn unsupported_arguments_are_refused_and_unknown_ones_ignored() {
    let mut live = Live::new();
    for (kind, name) in [
        ("quorum", "x-max-priority"),
        ("quorum", "x-queue-mode"),
        ("classic", "x-delivery-limit"),
        ("classic", "x-consumer-timeout"),
        ("classic", "x-max-age"),
        ("stream", "x-message-ttl"),
        ("stream", "x-single-active-consumer"),
    ] {
        let text = refusal(&mut live, queue_with("q", json!({"x-queue-type": kind, name: 1})));
        assert_eq!(
            text,
            format!(
                "PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/' of queue type rabbit_{kind}_queue"
            )
        );
    }
    let text = refusal(&mut live, queue_with("q", json!({"x-queue-type": "stream", "x-dead-letter-exchange": "dlx"})));
    assert!(text.ends_with(
        "invalid arg 'x-dead-letter-exchange' for queue 'q' in vhost '/' of queue type rabbit_stream_queue"
    ));
    // The dead-letter exchange is checked before everything else, because of its permissions.
    let text = refusal(&mut live, queue_with("q", json!({"x-dead-letter-exchange": 1})));
    assert!(text.ends_with("invalid type 'long' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"), "{text}");
    live.declare(queue_with("q", json!({"x-queue-type": "stream", "x-unknown": 1})));
}

#[test]
fn quorum_queues_and_streams_must_be_durable_and_shared() {
    let mut live = Live::new();
    for kind in ["quorum", "stream"] {
        let declare = queue_with("q", json!({"x-queue-type": kind}));
        for (wrong, property) in [
            (DeclareQueue { auto_delete: true, ..declare.clone() }, "auto-delete"),
            (DeclareQueue { exclusive: true, ..declare.clone() }, "exclusive-owner"),
            (DeclareQueue { durable: false, ..declare.clone() }, "non-durable"),
        ] {
            let expected = format!("PRECONDITION_FAILED - invalid property '{property}' for queue 'q' in vhost '/'");
            assert_eq!(refusal(&mut live, wrong), expected);
        }
        let text = refusal(&mut live, DeclareQueue { name: "".into(), ..declare });
        assert!(text.ends_with(&format!("Cannot declare a server-named queue for type rabbit_{kind}_queue")), "{text}");
    }
}

#[test]
fn a_redeclaration_must_be_of_the_same_queue() {
    let mut live = Live::new();
    let original = queue_with("q", json!({"x-message-ttl": 10, "x-dead-letter-exchange": "dlx", "x-unknown": 1}));
    live.declare(original.clone());
    let changed = |json| DeclareQueue { arguments: arguments(json), ..original.clone() };
    for (wrong, text) in [
        (
            DeclareQueue { durable: false, ..original.clone() },
            "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            DeclareQueue { auto_delete: true, ..original.clone() },
            "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            changed(json!({"x-message-ttl": 20, "x-dead-letter-exchange": "dlx"})),
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '20' but current is '10'",
        ),
        (
            changed(json!({"x-message-ttl": 10.0, "x-dead-letter-exchange": "dlx"})),
            "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '10.0' but current is '10'",
        ),
        (
            changed(json!({"x-message-ttl": 10})),
            "inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received none but current is the value 'dlx' of type 'longstr'",
        ),
        (
            changed(json!({"x-message-ttl": 10, "x-dead-letter-exchange": "dlx", "x-max-length": 3})),
            "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received the value '3' of type 'long' but current is none",
        ),
        (
            changed(json!({"x-message-ttl": 10, "x-dead-letter-exchange": "dlx", "x-queue-type": "quorum"})),
            "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value 'quorum' of type 'longstr' but current is none",
        ),
    ] {
        assert_eq!(refusal(&mut live, wrong), format!("PRECONDITION_FAILED - {text}"));
    }
    // Another width, no unknown argument, an explicit type: all equivalent.
    let narrow = vec![
        argument("x-message-ttl", b'b', Value::Int(10)),
        argument("x-dead-letter-exchange", b'S', text("dlx")),
        argument("x-queue-type", b'S', text("classic")),
    ];
    let (_, created) = live.declare_as(&Caller::broker(), DeclareQueue { arguments: narrow, ..original }).unwrap();
    assert!(!created);
}

const LOCKED: &str = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
     originally declared on another connection or the exclusive property value does not match that of the original \
     declaration.";

#[test]
fn an_exclusive_queue_is_locked_for_other_connections() {
    let mut live = Live::new();
    let mine = DeclareQueue { exclusive: true, ..queue("mine") };
    let (queue, _) = live.declare_as(&connection(1), mine.clone()).unwrap();
    assert!(!queue.durable, "durable and exclusive is stored as not durable");
    assert!(!live.declare_as(&connection(1), mine.clone()).unwrap().1);
    for (caller, command) in [
        (2, Command::DeclareQueue(mine.clone())),
        (2, Command::DeclareQueue(DeclareQueue { passive: true, ..mine.clone() })),
        (2, Command::DeleteQueue(delete("mine"))),
        (2, Command::Bind(to_queue("amq.fanout", "mine", ""))),
        (1, Command::DeclareQueue(DeclareQueue { exclusive: false, ..mine.clone() })),
    ] {
        assert_eq!(live.refusal(&connection(caller), command), LOCKED);
    }
    let refused = live.model.queue_for(&connection(2), HOST, "mine", Access::Read).unwrap_err();
    assert_eq!(refused.to_string(), LOCKED);
    assert!(live.model.queue_for(&connection(1), HOST, "mine", Access::Read).is_ok());
}

#[test]
fn a_restart_removes_transient_queues_and_a_connection_its_exclusive_ones() {
    let mut live = Live::new();
    let exclusive = |name: &str| DeclareQueue { exclusive: true, ..queue(name) };
    live.declare_as(&connection(1), exclusive("one")).unwrap();
    live.declare_as(&connection(2), exclusive("two")).unwrap();
    live.declare(DeclareQueue { durable: false, ..queue("transient") });
    live.declare(queue("durable"));
    live.run(Command::DeclareExchange(DeclareExchange { durable: false, ..exchange("x", "fanout") })).unwrap();
    live.events.clear();
    live.run(Command::OwnerGone(OwnerId::local(1))).unwrap();
    assert!(live.events.iter().any(|e| matches!(e, Event::QueueDeleted(q, DeletionCause::Owner) if q.name == "one")));
    assert!(live.model.queue(HOST, "one").is_none() && live.model.queue(HOST, "two").is_some());
    live.run(Command::Restarted).unwrap();
    let left: Vec<_> = live.model.metadata().queues().map(|queue| queue.name.to_string()).collect();
    assert_eq!(left, ["durable"]);
    assert!(live.model.routes().exchange(HOST, b"x").is_none());
    assert!(same(&live.model, &live.replayed()));
}

#[test]
fn names_are_generated_stripped_or_refused() {
    let mut live = Live::new();
    let first = live.declare(queue(""));
    let second = live.declare(queue(""));
    assert!(first.name.starts_with("amq.gen-") && first.name.len() == 30 && first.name != second.name);
    let prefixed = live.declare(queue_with("", json!({"x-name-prefix": "shop"})));
    assert!(prefixed.name.starts_with("shop-"));
    assert_eq!(live.declare(queue("a\r\nb")).name, "ab");
    let text = refusal(&mut live, queue("amq.mine"));
    assert_eq!(text, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'");
    assert!(refusal(&mut live, queue(&"q".repeat(256))).contains("at most 255 bytes"));
}

#[test]
fn a_passive_declare_creates_nothing() {
    let mut live = Live::new();
    let passive = DeclareQueue { passive: true, ..queue("q") };
    assert_eq!(refusal(&mut live, passive.clone()), "NOT_FOUND - no queue 'q' in vhost '/'");
    live.declare(queue("q"));
    assert!(!live.declare_as(&Caller::broker(), DeclareQueue { durable: false, ..passive }).unwrap().1);
}

#[test]
fn deleting_respects_its_flags_and_ignores_missing_queues() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.declare(queue_with("quorum", json!({"x-queue-type": "quorum"})));
    let busy = DeleteQueue { consumers: 1, messages: 1, ..delete("q") };
    for (command, text) in [
        (DeleteQueue { if_unused: true, ..busy.clone() }, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"),
        (DeleteQueue { if_empty: true, ..busy.clone() }, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"),
        (
            DeleteQueue { if_empty: true, if_unused: true, ..busy.clone() },
            "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty",
        ),
        (
            DeleteQueue { if_unused: true, ..delete("quorum") },
            "NOT_IMPLEMENTED - cannot delete queue 'quorum' in vhost '/'. queue.delete operations with if-unused flag set are \
             not supported by quorum queues",
        ),
    ] {
        assert_eq!(live.refusal(&Caller::broker(), Command::DeleteQueue(command)), text);
    }
    assert!(matches!(live.run(Command::DeleteQueue(busy)), Ok(Reply::Deleted { queue: Some(_), messages: 1 })));
    // A stream is deleted regardless of its messages and consumers.
    live.declare(queue_with("stream", json!({"x-queue-type": "stream"})));
    let said = DeleteQueue { consumers: 1, messages: 1, if_unused: true, if_empty: true, ..delete("stream") };
    assert!(matches!(live.run(Command::DeleteQueue(said)), Ok(Reply::Deleted { queue: Some(_), messages: 1 })));
    assert_eq!(live.run(Command::DeleteQueue(delete("q"))), Ok(Reply::Deleted { queue: None, messages: 0 }));
}

#[test]
fn the_default_queue_type_applies_if_compatible() {
    let mut live = Live::new();
    let put = PutVhost { name: "/".into(), default_queue_type: Some(Some(QueueKind::Quorum)), ..PutVhost::default() };
    live.run(Command::PutVhost(put)).unwrap();
    assert_eq!(live.declare(queue("durable")).kind, QueueKind::Quorum);
    assert_eq!(live.declare(DeclareQueue { durable: false, ..queue("transient") }).kind, QueueKind::Classic);
    assert_eq!(live.declare(queue_with("said", json!({"x-queue-type": "classic"}))).kind, QueueKind::Classic);
    // A redeclaration with the same arguments is equivalent.
    assert_eq!(live.declare(queue("durable")).kind, QueueKind::Quorum);
    assert_eq!(live.declare(queue_with("durable", json!({"x-queue-type": "quorum"}))).kind, QueueKind::Quorum);
}

#[test]
fn a_virtual_host_has_a_queue_limit() {
    let mut live = Live::new();
    live.run(Command::SetVhostLimit("/".into(), VhostLimit::Queues, Some(1))).unwrap();
    live.declare(queue("one"));
    let text = refusal(&mut live, queue("two"));
    assert_eq!(text, "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost '/' (1) is reached");
    live.declare(queue("one"));
    live.run(Command::SetVhostLimit("/".into(), VhostLimit::Queues, Some(-1))).unwrap();
    live.declare(queue("two"));
}

#[test]
fn arguments_that_rabbitmq_4_dropped_are_accepted() {
    let mut live = Live::new();
    live.declare(DeclareQueue { durable: false, ..queue("transient") });
    live.declare(queue_with(
        "lazy",
        json!({"x-queue-mode": "lazy", "x-queue-version": 1, "x-queue-master-locator": "min-masters"}),
    ));
}

#[test]
fn consumers_of_each_type_have_their_arguments() {
    let named = Named { kind: Resource::Queue, name: "q", vhost: "/" };
    let of = |kind, json| ConsumerSettings::of(kind, &arguments(json), &named).map_err(|e| e.to_string());
    let stream = |value: serde_json::Value| of(QueueKind::Stream, json!({"x-stream-offset": value})).map(|s| s.offset);
    assert_eq!(stream(json!("first")), Ok(StreamOffset::First));
    assert_eq!(stream(json!("2h")), Ok(StreamOffset::AgoMs(7_200_000)));
    assert_eq!(stream(json!(42)), Ok(StreamOffset::Offset(42)));
    let at = [argument("x-stream-offset", b'T', Value::Timestamp(5))];
    assert_eq!(ConsumerSettings::of(QueueKind::Stream, &at, &named).unwrap().offset, StreamOffset::TimestampMs(5_000));
    assert_eq!(
        stream(json!("soon")).unwrap_err(),
        "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'q' in vhost '/': \
         {invalid_stream_offset_arg,{longstr,<<\"soon\">>}}"
    );
    let filters =
        of(QueueKind::Stream, json!({"x-stream-filter": ["a", "b"], "x-stream-match-unfiltered": true})).unwrap();
    assert_eq!((filters.filters.len(), filters.match_unfiltered), (2, true));
    assert_eq!(of(QueueKind::Quorum, json!({"x-priority": -3, "x-consumer-timeout": 9})).unwrap().timeout_ms, Some(9));
    assert_eq!(
        of(QueueKind::Classic, json!({"x-consumer-timeout": 9})).unwrap_err(),
        "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"
    );
    assert_eq!(of(QueueKind::Classic, json!({"x-whatever": 9})), Ok(ConsumerSettings::default()));
}

#[test]
fn proposed_changes_count_and_replies_wait_for_their_commit() {
    let mut live = Live::new();
    let caller = Caller::broker();
    let first = live.model.plan(&caller, &Command::DeclareQueue(queue("q")), [0; 16]).unwrap();
    let again = live.model.plan(&caller, &Command::DeclareQueue(queue("q")), [1; 16]).unwrap();
    assert!(matches!(again.reply, Reply::Queue { created: false, .. }));
    assert!(again.record.is_some(), "the second reply must not be sent before the first record is committed");
    assert!(live.model.queue(HOST, "q").is_none());
    live.model.on_writer_lost();
    let now = live.model.plan(&caller, &Command::DeclareQueue(DeclareQueue { passive: true, ..queue("q") }), [2; 16]);
    assert!(now.is_err(), "a lost proposal has no effect");
    let third = live.model.plan(&caller, &Command::DeclareQueue(queue("q")), [3; 16]).unwrap();
    assert_eq!(third.record, first.record, "the same command makes the same record");
}
