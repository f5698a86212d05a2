//! Steady-state routing: no allocation, and no blocking while bindings change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "a test")]

mod common;

use common::*;
use polylogue_router::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn routing_allocates_nothing_with_a_grown_scratch() {
    let mut world = World::new(50);
    let hash = Kind::ConsistentHash(HashOn::Header(bytes("n")));
    let kinds = [Kind::Fanout, Kind::Direct, Kind::Topic, Kind::Headers, hash];
    for (name, kind) in ["f", "d", "t", "h", "c"].into_iter().zip(kinds) {
        world.declare(name, kind);
        let key = if name == "c" { "1" } else { "a.b" };
        world.bind(to_exchange("f", name, ""));
        (1..=50).for_each(|id| world.bind(to_queue(name, id, key)));
    }
    for (id, pattern) in (1..).zip(["#", "*.b", "#.b.#", "a.#", "#.a.#.b.#", "#.b.#.#.*"]) {
        world.bind(to_queue("t", id, pattern));
    }
    let arguments = vec![argument("n", Value::Int(1)), argument("k39", Value::Void)];
    world.bind(Bind { arguments, ..to_queue("h", 9, "") });
    let many: Vec<(String, Value)> = (0..40).map(|i| (format!("k{}", i % 39), Value::Int(i))).collect();
    let few = letter(&[("n", Value::Int(1)), ("k39", Value::Void), ("n", Value::Int(1))]);
    let many = TestMessage { headers: many, property: None };
    let snapshot = world.shared.load();
    let mut scratch = Scratch::default();
    let mut all = || {
        for exchange in ["d", "f", "t", "h", "c", ""] {
            let entry = snapshot.entry(HOST, exchange.as_bytes()).unwrap();
            for view in [&few, &many] {
                for keys in [&[&b"a.b"[..]][..], &[b"a.b", b"x", b"a.c.b.d.b.e"], &[]] {
                    snapshot.route(entry, Message { keys, view, random: 5, released: false }, &mut scratch);
                }
            }
        }
    };
    (0..3).for_each(|_| all());
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| all()));
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0));
    // The measurement itself detects an allocation.
    assert!(allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8]))).count_total > 0);
}

/// Two bindings are added and removed in one record: a routing thread sees both or none.
#[test]
fn routing_sees_complete_records_while_bindings_change() {
    let mut world = World::new(2);
    world.declare("t", Kind::Topic);
    let shared = world.shared.clone();
    let (done, started) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut none, mut both) = (0, 0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut scratch = Scratch::default();
            let mut counts = [0u64; 3];
            while !done.load(Ordering::Acquire) {
                let snapshot = shared.load();
                let entry = snapshot.entry(HOST, b"t").unwrap();
                let message = Message { keys: &[b"a.b"], view: &Bare, random: 0, released: false };
                counts[snapshot.route(entry, message, &mut scratch).queues.len()] += 1;
                started.store(true, Ordering::Release);
            }
            counts
        });
        while !started.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let binds = [to_queue("t", 1, "a.*"), to_queue("t", 2, "#.b")];
        for _ in 0..2000 {
            for make in [Command::Bind as fn(Bind) -> Command, Command::Unbind] {
                let plan = world.router.plan(&binds.clone().map(make)).unwrap();
                world.router.apply(&plan.record.unwrap()).unwrap();
                world.router.publish();
            }
        }
        done.store(true, Ordering::Release);
        let [n, one, b] = reader.join().unwrap();
        assert_eq!(one, 0, "half a record was seen");
        (none, both) = (n, b);
    });
    assert!(none + both > 0);
}
