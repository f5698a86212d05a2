//! Exchanges and bindings, with RabbitMQ's texts. Routing is tested in the router.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use polylogue_router::{Bare, Message, RemovalCause, RouterEvent, Scratch, Value};
use serde_json::json;

fn declare(live: &mut Live, declare: DeclareExchange) -> Result<Reply, Refused> {
    live.run(Command::DeclareExchange(declare))
}

fn refusal(live: &mut Live, command: Command) -> String {
    live.refusal(&Caller::broker(), command)
}

/// The names of the queues that a message is routed to.
fn reached(live: &Live, exchange: &str, key: &str) -> Vec<String> {
    let shared = live.model.shared();
    let snapshot = shared.load();
    let mut scratch = Scratch::default();
    let message = Message { keys: &[key.as_bytes()], view: &Bare, random: 0, released: false };
    let entry = snapshot.entry(HOST, exchange.as_bytes()).unwrap();
    let routed = snapshot.route(entry, message, &mut scratch);
    let name = |id| live.model.metadata().queue(id).unwrap().name.to_string();
    routed.queues.iter().map(|routed| name(routed.queue)).collect()
}

#[test]
fn a_redeclaration_must_be_of_the_same_exchange() {
    let mut live = Live::new();
    let ae = |name: &str| DeclareExchange {
        arguments: arguments(json!({"alternate-exchange": name})),
        ..exchange("x", "direct")
    };
    declare(&mut live, ae("amq.fanout")).unwrap();
    let original = ae("amq.fanout");
    for (wrong, text) in [
        (
            DeclareExchange { kind: "fanout".into(), ..original.clone() },
            "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'",
        ),
        (
            DeclareExchange { kind: "x-consistent-hash".into(), ..original.clone() },
            "'type' for exchange 'x' in vhost '/': received ''x-consistent-hash'' but current is 'direct'",
        ),
        (
            DeclareExchange { durable: false, ..original.clone() },
            "'durable' for exchange 'x' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            DeclareExchange { auto_delete: true, ..original.clone() },
            "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            DeclareExchange { internal: true, ..original.clone() },
            "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
        ),
        (
            ae("other"),
            "'alternate-exchange' for exchange 'x' in vhost '/': received 'other' but current is 'amq.fanout'",
        ),
        (
            exchange("x", "direct"),
            "'alternate-exchange' for exchange 'x' in vhost '/': received none but current is the value 'amq.fanout' of type 'longstr'",
        ),
    ] {
        let refused = refusal(&mut live, Command::DeclareExchange(wrong));
        assert_eq!(refused, format!("PRECONDITION_FAILED - inequivalent arg {text}"));
    }
    let more =
        DeclareExchange { arguments: arguments(json!({"alternate-exchange": "amq.fanout", "x-else": 1})), ..original };
    assert!(matches!(declare(&mut live, more), Ok(Reply::Exchange(Some(_)))), "other arguments do not matter");
}

#[test]
fn refused_declarations_have_rabbitmqs_texts() {
    let mut live = Live::new();
    let delayed = |kind: serde_json::Value| DeclareExchange {
        arguments: arguments(json!({"x-delayed-type": kind})),
        ..exchange("x", "x-delayed-message")
    };
    let no_type = "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type";
    for (wrong, text) in [
        (exchange("x", "quantum"), "PRECONDITION_FAILED - unknown exchange type 'quantum'"),
        (exchange("", "direct"), "ACCESS_REFUSED - operation not permitted on the default exchange"),
        (exchange("amq.mine", "direct"), "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
        (exchange("x", "x-delayed-message"), no_type),
        (delayed(json!("quantum")), no_type),
        (
            DeclareExchange { arguments: arguments(json!({"alternate-exchange": 5})), ..exchange("x", "direct") },
            "PRECONDITION_FAILED - invalid type 'long' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
        ),
        (DeclareExchange { passive: true, ..exchange("x", "direct") }, "NOT_FOUND - no exchange 'x' in vhost '/'"),
        (
            DeclareExchange { passive: true, ..exchange("", "") },
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
    ] {
        assert_eq!(refusal(&mut live, Command::DeclareExchange(wrong)), text);
    }
    for (json, text) in [
        (
            json!({"hash-header": "a", "hash-property": "message_id"}),
            "hash-header and hash-property are mutually exclusive",
        ),
        (json!({"hash-property": "body"}), "Unsupported property: body"),
    ] {
        let wrong = DeclareExchange { arguments: arguments(json), ..exchange("x", "x-consistent-hash") };
        assert_eq!(refusal(&mut live, Command::DeclareExchange(wrong)), format!("PRECONDITION_FAILED - {text}"));
    }
    declare(&mut live, delayed(json!("topic"))).unwrap();
    let ring =
        DeclareExchange { arguments: arguments(json!({"hash-header": "k"})), ..exchange("ring", "x-consistent-hash") };
    declare(&mut live, ring).unwrap();
    // Line breaks are stripped from names.
    declare(&mut live, exchange("li\nne\r", "fanout")).unwrap();
    assert!(live.model.routes().exchange(HOST, b"line").is_some());
}

#[test]
fn predeclared_exchanges_are_protected_and_can_be_redeclared() {
    let mut live = Live::new();
    for (name, kind, internal) in PREDECLARED {
        let again = DeclareExchange { internal, ..exchange(name, kind) };
        assert!(matches!(declare(&mut live, again), Ok(Reply::Exchange(Some(_)))), "{name}");
        let text = refusal(&mut live, Command::DeleteExchange(HOST, name.into(), false));
        assert_eq!(text, format!("ACCESS_REFUSED - deletion of system exchange '{name}' in vhost '/' not allowed"));
    }
    let text = refusal(&mut live, Command::DeleteExchange(HOST, "".into(), false));
    assert_eq!(text, "ACCESS_REFUSED - operation not permitted on the default exchange");
}

#[test]
fn deleting_respects_its_flag_and_ignores_missing_exchanges() {
    let mut live = Live::new();
    live.declare(queue("q"));
    declare(&mut live, exchange("x", "fanout")).unwrap();
    live.run(Command::Bind(to_queue("x", "q", ""))).unwrap();
    let text = refusal(&mut live, Command::DeleteExchange(HOST, "x".into(), true));
    assert_eq!(text, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use");
    live.run(Command::DeleteExchange(HOST, "x".into(), false)).unwrap();
    assert_eq!(live.run(Command::DeleteExchange(HOST, "x".into(), true)), Ok(Reply::Done));
    assert!(live.model.routes().bindings().is_empty());
}

/// Commit order does not matter: proposed bindings count immediately, and nothing can be bound to an exchange whose deletion is proposed.
#[test]
fn if_unused_considers_proposed_bindings() {
    let mut live = Live::new();
    live.declare(queue("q"));
    declare(&mut live, exchange("x", "fanout")).unwrap();
    let unless_used = Command::DeleteExchange(HOST, "x".into(), true);
    let [bind, unbind] = [Command::Bind, Command::Unbind].map(|command| command(to_queue("x", "q", "")));
    let mut plan = |command: &Command| live.model.plan(&Caller::broker(), command, [1; 16]);
    let bound = plan(&bind).unwrap();
    let refused = plan(&unless_used).unwrap_err();
    assert_eq!(refused.to_string(), "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use");
    let unbound = plan(&unbind).unwrap();
    let deleted = plan(&unless_used).unwrap();
    let refused = plan(&bind).unwrap_err();
    assert_eq!(refused.to_string(), "NOT_FOUND - no exchange 'x' in vhost '/'");
    for planned in [bound, unbound, deleted] {
        live.model.apply(&planned.record.unwrap()).unwrap();
    }
    assert!(live.model.routes().exchange(HOST, b"x").is_none() && live.model.routes().bindings().is_empty());
}

#[test]
fn binding_names_missing_ends_and_unbinding_ignores_them() {
    let mut live = Live::new();
    live.declare(queue("q"));
    let default = "ACCESS_REFUSED - operation not permitted on the default exchange";
    for (wrong, text) in [
        (to_queue("x", "q", ""), "NOT_FOUND - no exchange 'x' in vhost '/'"),
        (to_queue("amq.fanout", "z", ""), "NOT_FOUND - no queue 'z' in vhost '/'"),
        (to_queue("x", "z", ""), "NOT_FOUND - no exchange 'x' in vhost '/'"),
        (bind("amq.fanout", BindDestination::Exchange("z".into()), ""), "NOT_FOUND - no exchange 'z' in vhost '/'"),
        (to_queue("", "q", ""), default),
        (bind("amq.fanout", BindDestination::Exchange("".into()), ""), default),
    ] {
        assert_eq!(refusal(&mut live, Command::Bind(wrong.clone())), text);
        if !text.contains("default") {
            assert_eq!(live.run(Command::Unbind(wrong)), Ok(Reply::Done));
        }
    }
    for (mode, text) in [
        (text("most"), "Invalid x-match field value <<\"most\">>; expected all, any, all-with-x, or any-with-x"),
        (Value::Int(1), "Invalid x-match field type long; expected longstr"),
    ] {
        let tag = if matches!(mode, Value::Int(_)) { b'l' } else { b'S' };
        let wrong = Bind { arguments: vec![argument("x-match", tag, mode)], ..to_queue("amq.headers", "q", "") };
        assert_eq!(refusal(&mut live, Command::Bind(wrong)), format!("PRECONDITION_FAILED - {text}"));
    }
    declare(&mut live, exchange("ring", "x-consistent-hash")).unwrap();
    for (key, text) in [
        ("0", "The binding key must be greater than 0"),
        ("-3", "The binding key must be greater than 0"),
        ("heavy", "The binding key must be an integer: <<\"heavy\">>"),
    ] {
        let wrong = Command::Bind(to_queue("ring", "q", key));
        assert_eq!(refusal(&mut live, wrong), format!("PRECONDITION_FAILED - {text}"));
    }
    assert!(refusal(&mut live, Command::Bind(to_queue("ring", "q", "9999999"))).contains("1048576"));
}

#[test]
fn binding_is_idempotent() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.run(Command::Bind(to_queue("amq.direct", "q", "k"))).unwrap();
    let log = live.log.len();
    live.run(Command::Bind(to_queue("amq.direct", "q", "k"))).unwrap();
    assert_eq!((live.log.len(), live.model.routes().bindings().len()), (log, 1));
    assert_eq!(reached(&live, "amq.direct", "k"), ["q"]);
    live.run(Command::Unbind(to_queue("amq.direct", "q", "k"))).unwrap();
    assert!(reached(&live, "amq.direct", "k").is_empty());
}

#[test]
fn an_auto_delete_exchange_is_deleted_with_its_last_bound_queue() {
    let mut live = Live::new();
    live.declare_as(&connection(1), DeclareQueue { exclusive: true, ..queue("q") }).unwrap();
    declare(&mut live, DeclareExchange { auto_delete: true, ..exchange("x", "fanout") }).unwrap();
    live.run_as(&connection(1), Command::Bind(to_queue("x", "q", ""))).unwrap();
    live.events.clear();
    live.run(Command::OwnerGone(OwnerId::local(1))).unwrap();
    let gone = |e: &Event| matches!(e, Event::Router(RouterEvent::ExchangeDeleted(x, RemovalCause::AutoDelete)) if *x.name == *b"x");
    assert!(live.events.iter().any(gone));
}

#[test]
fn queues_are_reached_by_name_and_by_alternate_exchanges() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.declare(queue("rest"));
    live.run(Command::Bind(to_queue("amq.fanout", "rest", ""))).unwrap();
    let ae = DeclareExchange {
        arguments: arguments(json!({"alternate-exchange": "amq.fanout"})),
        ..exchange("x", "direct")
    };
    declare(&mut live, ae).unwrap();
    live.run(Command::Bind(to_queue("x", "q", "k"))).unwrap();
    assert_eq!(reached(&live, "", "q"), ["q"]);
    assert_eq!(reached(&live, "x", "k"), ["q"]);
    assert_eq!(reached(&live, "x", "unbound"), ["rest"]);
}

#[test]
fn the_topic_of_an_exchange_is_a_text_and_cannot_change() {
    let mut live = Live::new();
    let of = |topic: serde_json::Value| DeclareExchange {
        arguments: arguments(json!({"x-polylogue-topic": topic})),
        ..exchange("x", "topic")
    };
    for (wrong, text) in [
        (of(json!(5)), "invalid type 'long' for arg 'x-polylogue-topic' in exchange 'x' in vhost '/'"),
        (of(json!("")), "invalid value '' for arg 'x-polylogue-topic' in exchange 'x' in vhost '/'"),
    ] {
        let refused = refusal(&mut live, Command::DeclareExchange(wrong));
        assert_eq!(refused, format!("PRECONDITION_FAILED - {text}"));
    }
    assert!(matches!(declare(&mut live, of(json!("orders"))), Ok(Reply::Exchange(None))));
    assert!(matches!(declare(&mut live, of(json!("orders"))), Ok(Reply::Exchange(Some(_)))));
    for (wrong, text) in [
        (of(json!("other")), "received 'other' but current is 'orders'"),
        (exchange("x", "topic"), "received none but current is the value 'orders' of type 'longstr'"),
    ] {
        let refused = refusal(&mut live, Command::DeclareExchange(wrong));
        let named = "'x-polylogue-topic' for exchange 'x' in vhost '/'";
        assert_eq!(refused, format!("PRECONDITION_FAILED - inequivalent arg {named}: {text}"));
    }
    let declared = live.model.routes().exchange(HOST, b"x").expect("declared");
    assert_eq!(exchange_topic(&declared.arguments), Some("orders"));
}

#[test]
fn topic_read_offsets_are_kept_until_the_exchange_is_deleted() {
    let mut live = Live::new();
    let ids: Vec<_> = ["x", "y"]
        .map(|name| {
            live.run(Command::DeclareExchange(exchange(name, "topic"))).expect("declared");
            live.model.routes().exchange(HOST, name.as_bytes()).expect("it exists").id
        })
        .into();
    let reads = |exchange, at: &[(u64, u64)], gone: &[u64]| {
        Command::SetTopicReads(TopicReads { exchange, at: at.to_vec(), gone: gone.to_vec() })
    };
    live.run(reads(ids[0], &[(7, 100), (READS_BEGUN, 0)], &[])).expect("noted");
    assert!(live.events.contains(&Event::TopicReadsBegun(ids[0])));
    live.run(reads(ids[0], &[(7, 150), (READS_BEGUN, 0)], &[])).expect("reading has begun");
    let first = live.model.metadata().topic_reads(ids[0]).next();
    assert_eq!(first, Some((7, 100)), "reading begins once");
    live.run(reads(ids[1], &[(7, 3), (8, 4)], &[])).expect("noted");
    live.run(reads(ids[0], &[(7, 101), (9, 1)], &[])).expect("noted");
    live.run(reads(ids[1], &[], &[8, 12])).expect("noted");
    let kept = |model: &Model, nth: usize| model.metadata().topic_reads(ids[nth]).collect::<Vec<_>>();
    assert_eq!(kept(&live.model, 0), [(7, 101), (9, 1), (READS_BEGUN, 0)]);
    assert_eq!(kept(&live.model, 1), [(7, 3)]);
    assert!(same(&live.model, &live.replayed()));
    let written = live.log.len();
    live.run(reads(ids[1], &[(7, 3)], &[8])).expect("unchanged");
    assert_eq!(live.log.len(), written, "a known offset writes nothing");
    assert!(live.refusal(&user("guest"), reads(ids[1], &[(7, 9)], &[])).starts_with("ACCESS_REFUSED"));

    // A checkpoint has the offsets, and drops those of a deleted exchange.
    let mut chunks = std::collections::BTreeMap::new();
    let mut checkpoint = |model: &mut Model| {
        for (id, chunk) in model.take_changed_chunks() {
            match chunk {
                Some(chunk) => _ = chunks.insert(id, chunk),
                None => _ = chunks.remove(&id),
            }
        }
        let mut restored = Model::new(Limits::default());
        chunks.iter().for_each(|(id, chunk)| restored.load_chunk(id, chunk).expect("a chunk"));
        restored.on_ready();
        restored
    };
    let restored = checkpoint(&mut live.model);
    assert!(same(&live.model, &restored));
    let mut again = Model::new(Limits::default());
    live.model.change_all_chunks();
    for (id, chunk) in live.model.take_changed_chunks() {
        again.load_chunk(&id, &chunk.expect("it exists")).expect("a chunk");
    }
    assert!(same(&live.model, &again));
    live.run(Command::DeleteExchange(HOST, "x".into(), false)).expect("deleted");
    let restored = checkpoint(&mut live.model);
    for model in [&live.model, &live.replayed(), &restored] {
        assert_eq!((kept(model, 0), kept(model, 1)), (vec![], vec![(7, 3)]));
        assert!(model.metadata() == model.proposed());
    }
    live.run(reads(ids[0], &[(7, 1)], &[])).expect("not missed");
    assert_eq!(kept(&live.model, 0), []);
    live.run(Command::DeleteVhost("/".into())).expect("deleted");
    assert_eq!(kept(&live.model, 1), [], "it was deleted with its virtual host");
}
