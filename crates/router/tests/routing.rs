//! The behaviour of each exchange type, as RabbitMQ's clients expect it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use common::*;
use polylogue_router::*;

#[test]
fn the_default_exchange_routes_by_queue_name() {
    let mut world = World::new(3);
    assert_eq!(world.route("", &["q2"]), [2]);
    assert_eq!(world.route("", &["q2", "q1", "q2", "none"]), [1, 2], "CC, without duplicates");
    assert!(world.route("", &["none"]).is_empty());
    assert!(world.route("", &[""]).is_empty());
    world.run(Command::RemoveQueue(QueueId(2))).unwrap();
    assert!(world.route("", &["q2"]).is_empty());
    for command in [
        Command::Declare(declare("", Kind::Direct)),
        Command::Delete { vhost: HOST, name: bytes(""), if_unused: false },
        Command::Bind(to_queue("", 1, "k")),
        Command::Bind(to_exchange("", "", "k")),
    ] {
        assert_eq!(world.run(command), Err(RouterError::DefaultExchange));
    }
}

#[test]
fn direct_and_fanout() {
    let mut world = World::new(3);
    world.declare("d", Kind::Direct);
    world.declare("f", Kind::Fanout);
    for (queue, key) in [(1, "a"), (2, "a"), (2, "b"), (3, "")] {
        world.bind(to_queue("d", queue, key));
        world.bind(to_queue("f", queue, key));
    }
    assert_eq!(world.route("d", &["a"]), [1, 2]);
    assert_eq!(world.route("d", &["a", "b"]), [1, 2], "without duplicates");
    assert_eq!(world.route("d", &[""]), [3]);
    assert!(world.route("d", &["c"]).is_empty());
    assert_eq!(world.route("f", &["whatever"]), [1, 2, 3]);
    assert_eq!(world.route("f", &[]), [1, 2, 3]);
}

#[test]
fn topic_considers_all_keys() {
    let mut world = World::new(3);
    world.declare("t", Kind::Topic);
    for (queue, key) in [(1, "a.*"), (2, "#"), (3, "*.c.#")] {
        world.bind(to_queue("t", queue, key));
    }
    assert_eq!(world.route("t", &["a.b"]), [1, 2]);
    assert_eq!(world.route("t", &["x", "y.c"]), [2, 3]);
    assert_eq!(world.route("t", &[""]), [2]);
    assert!(world.route("t", &[]).is_empty());
}

fn header_bind(queue: u64, arguments: &[(&str, Value)]) -> Bind {
    let arguments = arguments.iter().map(|(name, value)| argument(name, value.clone())).collect();
    Bind { arguments, ..to_queue("h", queue, "") }
}

#[test]
fn headers_match_as_in_rabbitmq() {
    let (one, a) = (Value::Int(1), text("a"));
    let mut world = World::new(9);
    world.declare("h", Kind::Headers);
    let both = [("n", one.clone()), ("s", a.clone()), ("x-y", one.clone())];
    for (queue, mode) in
        [(1, None), (2, Some("all")), (3, Some("any")), (4, Some("all-with-x")), (5, Some("any-with-x"))]
    {
        let mode = mode.map(|mode| ("x-match", text(mode)));
        let all: Vec<_> = both.iter().cloned().chain(mode).collect();
        world.bind(header_bind(queue, &all));
    }
    world.bind(header_bind(6, &[("n", Value::Void)]));
    world.bind(header_bind(7, &[]));
    world.bind(header_bind(8, &[("x-match", text("any"))]));
    world.bind(header_bind(9, &[("t", Value::Nested(b'F', bytes("table")))]));
    let route = |headers: &[(&str, Value)]| world.route_view("h", &["ignored"], &letter(headers));
    assert_eq!(route(&[]), [7]);
    assert_eq!(route(&[("n", one.clone()), ("s", a.clone())]), [1, 2, 3, 5, 6, 7]);
    assert_eq!(route(&[("n", one.clone()), ("s", a.clone()), ("x-y", one.clone())]), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(route(&[("s", a.clone()), ("m", one.clone())]), [3, 5, 7]);
    assert_eq!(route(&[("x-y", one.clone())]), [5, 7], "x-* counts only if requested");
    assert_eq!(route(&[("n", Value::Void)]), [6, 7]);
    assert_eq!(route(&[("n", Value::Float(1.0))]), [6, 7], "no integer");
    assert_eq!(route(&[("n", one.clone()), ("n", a.clone())]), [6, 7], "the last of two with one name");
    assert_eq!(route(&[("t", Value::Nested(b'F', bytes("table")))]), [7, 9]);
    assert_eq!(route(&[("t", Value::Nested(b'A', bytes("table")))]), [7]);
    for wrong in [text("most"), one] {
        let refused = world.run(Command::Bind(header_bind(1, &[("x-match", wrong)])));
        assert!(matches!(refused, Err(RouterError::BadBinding { .. })), "{refused:?}");
    }
}

#[test]
fn exchange_bindings_are_followed_and_cycles_end() {
    let mut world = World::new(2);
    for name in ["a", "b", "c"] {
        world.declare(name, Kind::Fanout);
    }
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("c", "c"), ("a", "c")] {
        world.bind(to_exchange(from, to, ""));
    }
    world.bind(to_queue("c", 1, ""));
    world.bind(to_queue("b", 2, ""));
    world.bind(to_queue("b", 1, ""));
    for name in ["a", "b", "c"] {
        assert_eq!(world.route(name, &["k"]), [1, 2], "from {name}");
    }
}

#[test]
fn unmatched_messages_go_to_the_alternate_exchange() {
    let mut world = World::new(4);
    let alternate = |name: &str, to: &str| Declare { alternate: Some(bytes(to)), ..declare(name, Kind::Direct) };
    for (name, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("lost", "nowhere"), ("named", "")] {
        world.run(Command::Declare(alternate(name, to))).unwrap();
    }
    world.bind(to_queue("a", 1, "a"));
    world.bind(to_queue("c", 2, "c"));
    world.bind(to_exchange("c", "a", "back"));
    let route = |world: &World, from: &str, key| world.outcome(from, &[key], &Bare, false).0;
    let routed = |queue, alternate| vec![Routed { queue: QueueId(queue), alternate }];
    assert_eq!(route(&world, "a", "a"), routed(1, false));
    assert_eq!(route(&world, "a", "c"), routed(2, true));
    assert!(route(&world, "a", "x").is_empty(), "a cycle ends");
    assert!(route(&world, "a", "back").is_empty());
    assert!(route(&world, "lost", "x").is_empty());
    assert_eq!(route(&world, "named", "q3"), routed(3, true), "the default exchange as alternate");
    // A policy's alternate exchange is effective if the declaration has none.
    world.declare("p", Kind::Direct);
    for (name, to) in [("p", "c"), ("a", "lost")] {
        let alternate = Some(bytes(to));
        world.run(Command::PolicyAlternate { vhost: HOST, name: bytes(name), alternate }).unwrap();
    }
    assert_eq!(route(&world, "p", "c"), routed(2, true));
    assert_eq!(route(&world, "a", "c"), routed(2, true));
    world.run(Command::PolicyAlternate { vhost: HOST, name: bytes("p"), alternate: None }).unwrap();
    assert!(route(&world, "p", "c").is_empty());
}

#[test]
fn a_queue_reached_both_ways_is_not_marked_alternate() {
    let mut world = World::new(1);
    world.declare("start", Kind::Fanout);
    world.run(Command::Declare(Declare { alternate: Some(bytes("end")), ..declare("empty", Kind::Direct) })).unwrap();
    world.declare("end", Kind::Fanout);
    world.bind(to_queue("end", 1, ""));
    world.bind(to_exchange("start", "empty", ""));
    world.bind(to_exchange("start", "end", ""));
    let (queues, _) = world.outcome("start", &["k"], &Bare, false);
    assert_eq!(queues, [Routed { queue: QueueId(1), alternate: false }]);
}

#[test]
fn a_consistent_hash_uses_key_header_or_property() {
    let mut world = World::new(4);
    let arguments = |name: &str, value: &str| vec![argument(name, text(value))];
    let kind = |arguments: &[Argument]| Kind::declared(b"x-consistent-hash", arguments);
    world.declare("key", kind(&[]).unwrap());
    world.declare("header", kind(&arguments("hash-header", "id")).unwrap());
    world.declare("property", kind(&arguments("hash-property", "message_id")).unwrap());
    for (i, name) in ["key", "header", "property"].into_iter().flat_map(|name| [(1, name), (2, name), (3, name)]) {
        world.bind(to_queue(name, i, "10"));
    }
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..100 {
        let id = format!("id-{i}");
        let by_key = world.route("key", &[&id, "q4"]);
        assert_eq!(by_key.len(), 1);
        seen.insert(by_key[0]);
        assert_eq!(world.route_view("header", &["same"], &letter(&[("id", text(&id))])), by_key);
        let with_id = TestMessage { property: Some(text(&id)), ..TestMessage::default() };
        assert_eq!(world.route_view("property", &["same"], &with_id), by_key);
        assert_eq!(world.route("header", &[&id]), world.route("property", &["x"]), "without it: all to one");
    }
    assert_eq!(seen.len(), 3);
    for weight in ["0", "-1", "", "many", "1048577"] {
        let refused = world.run(Command::Bind(to_queue("key", 4, weight)));
        assert!(matches!(refused, Err(RouterError::BadBinding { .. })), "{weight}: {refused:?}");
    }
    let both = [arguments("hash-header", "a"), arguments("hash-property", "message_id")].concat();
    for wrong in [both, arguments("hash-property", "body"), vec![argument("hash-header", Value::Int(1))]] {
        assert!(matches!(kind(&wrong), Err(RouterError::BadArgument { .. })));
    }
}

#[test]
fn a_delayed_exchange_delays_and_then_routes_a_message() {
    let mut world = World::new(2);
    let delayed = |inner: &str| Kind::declared(b"x-delayed-message", &[argument("x-delayed-type", text(inner))]);
    world.declare("d", delayed("topic").unwrap());
    world.declare("front", Kind::Fanout);
    world.bind(to_exchange("front", "d", ""));
    world.bind(to_queue("front", 1, ""));
    world.bind(to_queue("d", 2, "a.#"));
    let outcome =
        |from, value: Value, released| world.outcome(from, &["a.b"], &letter(&[("x-delay", value)]), released);
    let id = world.router.definitions().exchange(HOST, b"d").unwrap().id;
    let kept = |delay_ms| vec![Delayed { exchange: id, delay_ms }];
    for (value, delay) in
        [(Value::Int(1500), 1500), (Value::Float(12.9), 12), (text("77"), 77), (Value::Int(0xffff_ffff), 0xffff_ffff)]
    {
        assert_eq!(outcome("d", value.clone(), false), (vec![], kept(delay)), "{value:?}");
        assert_eq!(outcome("d", value, true).0.len(), 1);
    }
    for value in [Value::Int(0), Value::Int(-5), Value::Int(1 << 32), text("soon"), Value::Void, Value::Float(f64::NAN)]
    {
        let (queues, delays) = outcome("d", value, false);
        assert_eq!((queues.len(), delays.len()), (1, 0));
    }
    let (queues, delays) = outcome("front", Value::Int(9), false);
    assert_eq!((queues[0].queue, delays), (QueueId(1), kept(9)));
    assert_eq!(delayed("x-delayed-message").unwrap_err(), delayed_error());
    assert_eq!(Kind::declared(b"x-delayed-message", &[]).unwrap_err(), delayed_error());
    assert!(matches!(delayed("nonsense"), Err(RouterError::UnknownKind(_))));
}

fn delayed_error() -> RouterError {
    let problem = "must name an exchange type other than x-delayed-message";
    RouterError::BadArgument { name: "x-delayed-type", problem }
}

#[test]
fn local_random_routes_to_one_queue() {
    let mut world = World::new(3);
    world.declare("r", Kind::LocalRandom);
    (1..=3).for_each(|queue| world.bind(to_queue("r", queue, "")));
    let snapshot = world.shared.load();
    let entry = snapshot.entry(HOST, b"r").unwrap();
    let mut counts = [0; 4];
    let mut scratch = Scratch::default();
    for random in 0..3000 {
        let message = Message { keys: &[], view: &Bare, random, released: false };
        let [one] = snapshot.route(entry, message, &mut scratch).queues else { panic!("one queue") };
        counts[one.queue.0 as usize] += 1;
    }
    assert!(counts[1..].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    for wrong in [to_queue("r", 1, "key"), to_exchange("r", "r", "")] {
        assert!(matches!(world.run(Command::Bind(wrong)), Err(RouterError::BadBinding { .. })));
    }
}

#[test]
fn a_redeclaration_must_be_equivalent() {
    let mut world = World::new(0);
    let first = Declare {
        alternate: Some(bytes("ae")),
        arguments: vec![argument("a", text("b"))],
        ..declare("x", Kind::Topic)
    };
    world.run(Command::Declare(first.clone())).unwrap();
    let again = Declare { arguments: Vec::new(), ..first.clone() };
    assert!(world.run(Command::Declare(again)).unwrap().events.is_empty(), "other arguments do not matter");
    for (other, field) in [
        (Declare { kind: Kind::Fanout, ..first.clone() }, Field::Kind),
        (Declare { durable: false, ..first.clone() }, Field::Durable),
        (Declare { auto_delete: true, ..first.clone() }, Field::AutoDelete),
        (Declare { internal: true, ..first.clone() }, Field::Internal),
        (Declare { alternate: None, ..first.clone() }, Field::Alternate),
    ] {
        let Err(RouterError::Inequivalent { field: found, .. }) = world.run(Command::Declare(other)) else { panic!() };
        assert_eq!(found, field);
    }
}

#[test]
fn arguments_are_part_of_a_bindings_identity() {
    let mut world = World::new(1);
    world.declare("d", Kind::Direct);
    let with = |arguments: &[(&str, Value)]| Bind { source: bytes("d"), ..header_bind(1, arguments) };
    let (ab, ba) = ([("a", text("1")), ("b", text("2"))], [("b", text("2")), ("a", text("1"))]);
    world.bind(with(&ab));
    world.bind(with(&ba));
    world.bind(with(&[]));
    assert_eq!(world.router.definitions().bindings().len(), 2, "their order is irrelevant");
    let mut other_type = with(&ab);
    other_type.arguments[0].tag = b'x';
    assert!(world.run(Command::Unbind(other_type)).unwrap().events.is_empty());
    world.run(Command::Unbind(with(&ba))).unwrap();
    assert_eq!(world.route("d", &[""]), [1]);
    world.run(Command::Unbind(with(&[]))).unwrap();
    assert!(world.route("d", &[""]).is_empty());
    assert!(world.run(Command::Unbind(with(&[]))).unwrap().events.is_empty(), "unbinding twice is no error");
}

#[test]
fn auto_delete_exchanges_are_deleted_with_their_last_binding_recursively() {
    let mut world = World::new(2);
    let auto = |name| Command::Declare(Declare { auto_delete: true, ..declare(name, Kind::Fanout) });
    for name in ["a", "b", "c", "unbound"] {
        world.run(auto(name)).unwrap();
    }
    world.bind(to_exchange("a", "b", ""));
    world.bind(to_exchange("b", "c", ""));
    world.bind(to_queue("c", 1, "1"));
    world.bind(to_queue("c", 2, "2"));
    world.run(Command::Unbind(to_queue("c", 2, "2"))).unwrap();
    assert_eq!(world.exchanges().len(), 4);
    let reply = world.run(Command::RemoveQueue(QueueId(1))).unwrap();
    let gone: Vec<_> = reply.auto_deleted().map(|exchange| exchange.name.clone()).collect();
    assert_eq!(gone, [bytes("c"), bytes("b"), bytes("a")]);
    assert_eq!(world.exchanges(), ["unbound"]);
    assert!(world.router.definitions().bindings().is_empty());
}

#[test]
fn deletion_removes_bindings_and_respects_if_unused() {
    let mut world = World::new(1);
    for name in ["a", "b"] {
        world.declare(name, Kind::Fanout);
    }
    world.bind(to_exchange("a", "b", ""));
    world.bind(to_queue("b", 1, ""));
    let delete = |name, if_unused| Command::Delete { vhost: HOST, name: bytes(name), if_unused };
    assert_eq!(world.run(delete("b", true)), Err(RouterError::InUse(bytes("b"))));
    world.run(delete("b", false)).unwrap();
    assert!(world.run(delete("b", true)).unwrap().events.is_empty(), "deleting twice is no error");
    assert!(world.router.definitions().bindings().is_empty());
    world.run(delete("a", true)).unwrap();
    assert!(world.exchanges().is_empty());
    world.run(Command::RemoveVhost(HOST)).unwrap();
    assert_eq!(world.run(Command::AddQueue(queue(7))), Err(RouterError::NoVhost(HOST)));
}

#[test]
fn a_restart_keeps_durable_objects() {
    let mut world = World::new(1);
    world.run(Command::AddQueue(Queue { durable: false, ..queue(2) })).unwrap();
    world.run(Command::Declare(Declare { durable: false, ..declare("t", Kind::Fanout) })).unwrap();
    world.declare("d", Kind::Fanout);
    for (from, queue) in [("t", 1), ("d", 1), ("d", 2)] {
        world.bind(to_queue(from, queue, ""));
    }
    world.run(Command::Restarted).unwrap();
    assert_eq!(world.exchanges(), ["d"]);
    assert_eq!(world.route("d", &["k"]), [1]);
    assert!(world.run(Command::Restarted).unwrap().events.is_empty());
}

#[test]
fn limits_are_reported() {
    let mut router = Router::new(Limits { vhosts_max: 1, exchanges_max: 1, queues_max: 1, bindings_max: 1 });
    router.reset_tail();
    let mut plan = |command| router.plan(&[command]).map(|_| ()).map_err(|(_, why)| why);
    let too_many = |what, max| Err(RouterError::TooMany { what, max });
    plan(Command::AddVhost(HOST)).unwrap();
    assert_eq!(plan(Command::AddVhost(VhostId(2))), too_many(Limited::Vhosts, 1));
    plan(Command::AddQueue(queue(1))).unwrap();
    assert_eq!(plan(Command::AddQueue(queue(2))), too_many(Limited::Queues, 1));
    plan(Command::Declare(declare("x", Kind::Topic))).unwrap();
    assert_eq!(plan(Command::Declare(declare("y", Kind::Topic))), too_many(Limited::Exchanges, 1));
    plan(Command::Bind(to_queue("x", 1, "a"))).unwrap();
    assert_eq!(plan(Command::Bind(to_queue("x", 1, "b"))), too_many(Limited::Bindings, 1));
    plan(Command::Bind(to_queue("x", 1, "a"))).unwrap();
    let long = "k".repeat(256);
    assert_eq!(plan(Command::Bind(to_queue("x", 1, &long))), too_many(Limited::KeyBytes, 255));
    let name = Declare { alternate: Some(bytes(&long)), ..declare("z", Kind::Topic) };
    assert_eq!(plan(Command::Declare(name)), too_many(Limited::NameBytes, 255));
    let large = Bind { arguments: vec![argument("a", text(&"v".repeat(64 << 10)))], ..to_queue("x", 1, "a") };
    assert_eq!(plan(Command::Bind(large)), too_many(Limited::ArgumentBytes, 64 << 10));
    let batch = [Command::AddVhost(HOST), Command::RemoveVhost(HOST), Command::Bind(to_queue("x", 1, "a"))];
    assert_eq!(router.plan(&batch), Err((2, RouterError::NoVhost(HOST))));
    assert_eq!(router.proposed().vhosts(), [HOST], "no command of the batch was carried out");
}

/// A message that has passed links.
struct FederatedMessage(Hops);

impl MessageView for FederatedMessage {
    fn headers<'m>(&'m self, _: &mut dyn FnMut(&'m [u8], ValueRef<'m>)) {}

    fn property(&self, _: Property) -> Option<ValueRef<'_>> {
        None
    }

    fn hops(&self, cluster: &[u8], vhost: &[u8]) -> Hops {
        Hops { seen: self.0.seen && (cluster, vhost) == (b"c", b"v"), ..self.0 }
    }
}

#[test]
fn a_federation_exchange_drops_messages_at_the_hop_limit() {
    let mut world = World::new(2);
    let to = Downstream { hops_max: 2, cluster: bytes("c"), vhost: bytes("v") };
    world.declare("f", Kind::Federation(to));
    world.bind(to_queue("f", 1, "a"));
    world.bind(to_queue("f", 2, "b"));
    let routed = |count, seen| {
        let (shared, mut scratch) = (world.shared.load(), Scratch::default());
        let view = FederatedMessage(Hops { count, seen });
        let message = Message { keys: &[b"whatever"], view: &view, random: 0, released: false };
        let entry = shared.entry(HOST, b"f").unwrap();
        shared.route(entry, message, &mut scratch).queues.len()
    };
    assert_eq!([routed(0, false), routed(1, false)], [2, 2]);
    assert_eq!(routed(2, false), 0, "at the limit of links");
    assert_eq!(routed(1, true), 0, "it has been there");
    let long = |value| Argument { name: bytes("x-max-hops"), tag: b'l', value: Value::Int(value) };
    let text_of = |name: &str, value: &str| argument(name, text(value));
    let all = [long(3), text_of("x-downstream-name", "n"), text_of("x-downstream-vhost", "v")];
    let expected = Downstream { hops_max: 3, cluster: bytes("n"), vhost: bytes("v") };
    assert_eq!(Kind::declared(FEDERATION_UPSTREAM.as_bytes(), &all), Ok(Kind::Federation(expected)));
    for (arguments, problem) in [(vec![], "missing"), (vec![text_of("x-max-hops", "1")], "must be of type long")] {
        let refused = RouterError::BadArgument { name: "x-max-hops", problem };
        assert_eq!(Kind::declared(FEDERATION_UPSTREAM.as_bytes(), &arguments), Err(refused));
    }
}
