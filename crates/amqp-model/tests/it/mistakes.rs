//! Bugs of other brokers with RabbitMQ's protocols, each with a test that this broker does not have it.
//!
//! The numbers are those of pull requests and issues of LavinMQ unless another project is named. Bugs in frames, flow, channels, messages of queues
//! or HTTP are tested in the crates concerned.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use polylogue_router::{Bare, Message, MessageView, Property, Scratch, Value, ValueRef};
use serde_json::json;

/// A message with headers.
struct Headed(Vec<(&'static str, Value)>);

impl MessageView for Headed {
    fn headers<'m>(&'m self, visit: &mut dyn FnMut(&'m [u8], ValueRef<'m>)) {
        self.0.iter().for_each(|(name, value)| visit(name.as_bytes(), value.view()));
    }

    fn property(&self, _: Property) -> Option<ValueRef<'_>> {
        None
    }
}

fn reaches(live: &Live, exchange: &str, key: &str, view: &dyn MessageView) -> usize {
    let shared = live.model.shared();
    let snapshot = shared.load();
    let mut scratch = Scratch::default();
    let message = Message { keys: &[key.as_bytes()], view, random: 0, released: false };
    let entry = snapshot.entry(HOST, exchange.as_bytes()).unwrap();
    snapshot.route(entry, message, &mut scratch).queues.len()
}

/// Names with line breaks were refused instead of stripped (`QueueDeclare`, `ExchangeDeclare` of the Java client's tests).
#[test]
fn line_breaks_in_names_are_stripped() {
    let mut live = Live::new();
    assert_eq!(live.declare(queue("\r\nq\n")).name, "q");
    live.run(Command::DeclareExchange(exchange("x\r\n", "fanout"))).unwrap();
    live.run(Command::Bind(to_queue("x\n", "q\r", ""))).unwrap();
    assert!(matches!(live.run(Command::DeleteQueue(delete("q\n"))), Ok(Reply::Deleted { queue: Some(_), .. })));
    live.run(Command::DeleteExchange(HOST, "\nx".into(), false)).unwrap();
    assert!(live.model.routes().exchange(HOST, b"x").is_none());
}

/// All arguments were compared instead of those that the type supports.
#[test]
fn unknown_arguments_do_not_affect_equivalence() {
    let mut live = Live::new();
    live.declare(queue_with("q", json!({"x-whatever": 1})));
    assert!(!live.declare_as(&Caller::broker(), queue_with("q", json!({"x-other": 2}))).unwrap().1);
}

/// A TTL of another integer type was not equivalent, and one as a float was (`PerQueueTTL`).
#[test]
fn the_width_of_an_integer_does_not_affect_equivalence() {
    let mut live = Live::new();
    let with = |tag, value| DeclareQueue { arguments: vec![argument("x-message-ttl", tag, value)], ..queue("q") };
    live.declare(with(b'I', Value::Int(10)));
    for tag in [b'b', b's', b'l', b'i', b'B', b'u', b'L'] {
        assert!(!live.declare_as(&Caller::broker(), with(tag, Value::Int(10))).unwrap().1);
    }
    assert!(live.declare_as(&Caller::broker(), with(b'd', Value::Float(10.0))).is_err());
    assert!(live.declare_as(&Caller::broker(), with(b'I', Value::Int(20))).is_err());
}

/// A policy became effective some time after it was set.
#[test]
fn a_policy_is_effective_with_its_record() {
    let mut live = Live::new();
    live.declare(queue("q"));
    let plan = live.model.plan(
        &Caller::broker(),
        &Command::SetPolicy("/".into(), policy("p", "q", json!({"message-ttl": 1}))),
        [0; 16],
    );
    let events = live.model.apply(&plan.unwrap().record.unwrap()).unwrap();
    let realign = events.into_iter().find_map(|e| if let Event::Realign(realign) = e { Some(realign) } else { None });
    let mut realign = realign.expect("queues are visited");
    let found = live.model.realign(&mut realign).expect("one queue");
    assert_eq!(found[0].1.settings.message_ttl_ms, Some(1));
    assert_eq!(live.model.realign(&mut realign), None);
    assert_eq!(live.settings("q").message_ttl_ms, Some(1));
}

/// #1723: dead-letter cycles were detected incorrectly.
#[test]
fn a_rejection_breaks_a_dead_letter_cycle() {
    let died = |reason, queue: &'static str| NewDeath {
        reason,
        queue: queue.as_bytes(),
        exchange: b"",
        routing_keys: &[b"q"],
        bcc: &[],
        ttl_ms: None,
    };
    let expired = Deaths::after(None, &died(Reason::Expired, "q"), 0);
    assert!(expired.is_cycle(b"q") && !expired.is_cycle(b"other"));
    let rejected = Deaths::after(Some(expired), &died(Reason::Rejected, "retry"), 1);
    assert!(!rejected.is_cycle(b"q"));
}

/// 1.2.3 and 1.2.4: headers were lost or damaged when a message was dead-lettered again; the time of an entry changed.
#[test]
fn dead_lettering_again_keeps_headers_and_the_first_time() {
    let died = |queue| NewDeath {
        reason: Reason::Rejected,
        queue,
        exchange: b"x",
        routing_keys: &[b"k"],
        bcc: &[],
        ttl_ms: None,
    };
    let first = Deaths::after(None, &died(b"q"), 1_000);
    let headers = first.headers(&[argument("own", b'S', text("value"))]);
    let again = Deaths::after(Some(Deaths::after(Some(first), &died(b"r"), 2_000)), &died(b"q"), 3_000);
    let json = json_of_arguments(&again.headers(&headers));
    assert_eq!(json["own"], json!("value"));
    assert_eq!(json["x-death"].as_array().unwrap().len(), 2);
    assert_eq!((&json["x-death"][0]["count"], &json["x-death"][0]["time"]), (&json!(2), &json!(1)));
}

/// #1557: the BCC keys were visible.
#[test]
fn bcc_keys_are_not_in_the_history() {
    let died = NewDeath {
        reason: Reason::MaxLen,
        queue: b"q",
        exchange: b"",
        routing_keys: &[b"q", b"seen", b"hidden"],
        bcc: &[b"hidden"],
        ttl_ms: None,
    };
    let json = json_of_arguments(&Deaths::after(None, &died, 0).headers(&[]));
    assert_eq!(json["x-death"][0]["routing-keys"], json!(["q", "seen"]));
    assert!(!json.to_string().contains("hidden"));
}

/// #1608: `#` did not match zero words.
#[test]
fn a_hash_matches_zero_words() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.run(Command::Bind(to_queue("amq.topic", "q", "a.#"))).unwrap();
    assert_eq!(reaches(&live, "amq.topic", "a", &Bare), 1);
    assert_eq!(reaches(&live, "amq.topic", "b", &Bare), 0);
}

/// Headers exchanges could not match tables.
#[test]
fn headers_match_tables() {
    let mut live = Live::new();
    live.declare(queue("q"));
    let binding = Bind { arguments: arguments(json!({"t": {"a": 1}})), ..to_queue("amq.headers", "q", "") };
    live.run(Command::Bind(binding)).unwrap();
    let table = |json| arguments(json).remove(0).value;
    assert_eq!(reaches(&live, "amq.headers", "", &Headed(vec![("t", table(json!({"t": {"a": 1}})))])), 1);
    assert_eq!(reaches(&live, "amq.headers", "", &Headed(vec![("t", table(json!({"t": {"a": 2}})))])), 0);
}

/// #1594: unbinding from a consistent-hash exchange removed other bindings.
#[test]
fn unbinding_from_a_hash_ring_keeps_other_bindings() {
    let mut live = Live::new();
    live.run(Command::DeclareExchange(exchange("ring", "x-consistent-hash"))).unwrap();
    for name in ["one", "two"] {
        live.declare(queue(name));
        live.run(Command::Bind(to_queue("ring", name, "1"))).unwrap();
    }
    live.run(Command::Unbind(to_queue("ring", "one", "1"))).unwrap();
    assert_eq!(live.model.routes().bindings().len(), 1);
    assert!((0..50).all(|key| reaches(&live, "ring", &key.to_string(), &Bare) == 1));
}

/// #2198: `x-queue-type: quorum` was stored as classic, so that a redeclaration failed and Celery used a fallback.
#[test]
fn a_quorum_queue_keeps_its_type() {
    let mut live = Live::new();
    let declare = queue_with("q", json!({"x-queue-type": "quorum"}));
    assert_eq!(live.declare(declare.clone()).kind, QueueKind::Quorum);
    assert_eq!(live.replayed().queue(HOST, "q").unwrap().kind, QueueKind::Quorum);
    assert!(!live.declare_as(&Caller::broker(), declare).unwrap().1);
    let text = live.refusal(&Caller::broker(), Command::DeclareQueue(queue("q")));
    assert!(text.contains("received none but current is the value 'quorum' of type 'longstr'"), "{text}");
    assert_eq!(exported(&live)["queues"][0]["type"], json!("quorum"));
}

/// #1429: an argument that is false was refused.
#[test]
fn false_is_accepted_as_an_argument() {
    let mut live = Live::new();
    live.declare(queue_with("q", json!({"x-single-active-consumer": false})));
    assert!(!live.settings("q").single_active_consumer);
}

/// #1887: exclusive queues remained when their connection had ended, inconsistent with their index.
#[test]
fn exclusive_queues_are_deleted_with_their_connection() {
    let mut live = Live::new();
    let exclusive = |name: &str| DeclareQueue { exclusive: true, ..queue(name) };
    live.declare_as(&connection(1), exclusive("deleted")).unwrap();
    live.run_as(&connection(1), Command::DeleteQueue(delete("deleted"))).unwrap();
    live.declare_as(&connection(2), exclusive("deleted")).unwrap();
    live.declare_as(&connection(1), exclusive("kept")).unwrap();
    live.run(Command::OwnerGone(OwnerId::local(1))).unwrap();
    let left: Vec<_> = live.model.metadata().queues().map(|queue| queue.name.to_string()).collect();
    assert_eq!(left, ["deleted"]);
    assert_eq!(live.model.metadata().owned_by(OwnerId::local(1)).count(), 0);
    // A queue whose declaration was uncommitted when the connection ended is deleted with it.
    let plan = live.model.plan(&connection(3), &Command::DeclareQueue(exclusive("late")), [0; 16]).unwrap();
    let gone = live.model.plan(&Caller::broker(), &Command::OwnerGone(OwnerId::local(3)), [1; 16]).unwrap();
    live.model.apply(&plan.record.unwrap()).unwrap();
    live.model.apply(&gone.record.unwrap()).unwrap();
    assert!(live.model.queue(HOST, "late").is_none());
}

/// #209: a deleted queue existed again after a crash.
#[test]
fn a_deleted_queue_stays_deleted() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.run(Command::Bind(to_queue("amq.fanout", "q", ""))).unwrap();
    let mut chunks = std::collections::BTreeMap::new();
    let mut checkpoint = |live: &mut Live| {
        for (id, chunk) in live.model.take_changed_chunks() {
            match chunk {
                Some(chunk) => _ = chunks.insert(id, chunk),
                None => _ = chunks.remove(&id),
            }
        }
        chunks.clone()
    };
    checkpoint(&mut live);
    live.run(Command::DeleteQueue(delete("q"))).unwrap();
    assert!(live.replayed().queue(HOST, "q").is_none());
    let mut restored = Model::new(Limits::default());
    for (id, chunk) in checkpoint(&mut live) {
        restored.load_chunk(&id, &chunk).unwrap();
    }
    restored.on_ready();
    assert!(restored.queue(HOST, "q").is_none() && restored.routes().bindings().is_empty());
}

/// streamnative/aop#258: only durable queues and exchanges could be declared.
#[test]
fn default_declarations_of_clients_are_accepted() {
    let mut live = Live::new();
    live.declare(DeclareQueue { durable: false, auto_delete: true, ..queue("q") });
    live.run(Command::DeclareExchange(DeclareExchange { durable: false, ..exchange("x", "direct") })).unwrap();
    live.run(Command::Bind(to_queue("x", "q", "k"))).unwrap();
}

/// Qpid's clients declare `amq.*` as not durable: that is refused, and the existing exchange stays durable.
#[test]
fn predeclared_exchanges_are_durable() {
    let mut live = Live::new();
    let transient = DeclareExchange { durable: false, ..exchange("amq.topic", "topic") };
    let text = live.refusal(&Caller::broker(), Command::DeclareExchange(transient));
    assert_eq!(
        text,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'amq.topic' in vhost '/': received 'false' but \
         current is 'true'"
    );
    live.run(Command::Restarted).unwrap();
    assert!(live.model.routes().exchange(HOST, b"amq.topic").is_some());
}
