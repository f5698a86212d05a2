//! The steps that hostile bindings cost, and that routing stops when its steps are used up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use common::*;
use polylogue_router::*;

/// The most steps of one unit of work: comparing a chain of 128 alternating words and stars, or sorting 250 headers.
const UNIT_STEPS: u64 = 128;

/// `count` words, each `a` or `*` according to the bits of a number: all match `a.a.a...`.
fn either(number: u64, count: u32) -> String {
    (0..count).map(|bit| if number >> (bit % 10) & 1 == 0 { "a" } else { "*" }).collect::<Vec<_>>().join(".")
}

/// A topic exchange with one binding for each pattern.
fn topics(patterns: impl Iterator<Item = String>) -> World {
    let mut world = World::new(3);
    world.declare("x", Kind::Topic);
    let binds = patterns.enumerate().map(|(i, pattern)| to_queue("x", i as u64 % 3 + 1, &pattern));
    bind_all(&mut world, binds.collect());
    world
}

fn bind_all(world: &mut World, binds: Vec<Bind>) {
    let commands: Vec<_> = binds.into_iter().map(Command::Bind).collect();
    let plan = world.router.plan(&commands).unwrap();
    world.router.apply(&plan.record.unwrap()).unwrap();
    world.router.publish();
}

/// The steps that a message takes, which are the same in pieces: with at least as many pieces as needed, because none exceeds its steps by more than
/// one unit.
fn steps_of(world: &World, message: Message<'_>) -> u64 {
    let snapshot = world.shared.load().clone();
    let mut scratch = Scratch::default();
    let entry = snapshot.entry(HOST, b"x").unwrap();
    let mut left = u64::MAX;
    let whole = snapshot.route_within(entry, message, &mut scratch, &mut left).expect("steps do not end");
    let (whole, steps) = (whole.queues.to_vec(), u64::MAX - left);
    for piece in [100, 1_000] {
        let mut pieces = 1;
        let mut left = snapshot.route_within(entry, message, &mut scratch, &mut piece.clone());
        let found = loop {
            left = match left {
                Ok(outcome) => break outcome.queues.to_vec(),
                Err(paused) => paused.resume(message, &mut scratch, &mut piece.clone()),
            };
            pieces += 1;
        };
        assert_eq!(found, whole);
        let least = steps / (piece + UNIT_STEPS);
        assert!(pieces >= least, "{pieces} pieces of {piece} steps for {steps} steps");
    }
    steps
}

fn key(key: &str) -> Vec<u8> {
    key.as_bytes().to_vec()
}

#[test]
fn long_patterns_with_nothing_in_common_cost_one_comparison_each() {
    let world = topics((0..1_024).map(|i| either(i, 10) + "." + &either(i * 7, 80)));
    let all_a = key(&("a.".repeat(89) + "a"));
    let message = Message { keys: &[&all_a], view: &Bare, random: 0, released: false };
    // It used to be a step per word and pattern, 90,000.
    let steps = steps_of(&world, message);
    assert!(steps < 20_000, "{steps} steps");
}

/// Each reached `#` used to be pending for all following words.
#[test]
fn a_suffix_costs_nothing_for_words_it_does_not_contain() {
    let key = key(&("a.".repeat(127) + "a"));
    let message = Message { keys: &[&key], view: &Bare, random: 0, released: false };
    for (rest, steps_max) in [(".#.x", 8_000), (".#.x.#", 16_000), (".#.a.#", 12_000), (".#.b.a.a", 8_000)] {
        let world = topics((0..1_024).map(|i| either(i, 10) + rest));
        // It used to be 120,000 and more.
        let steps = steps_of(&world, message);
        assert!(steps < steps_max, "{rest}: {steps} steps");
    }
    let world = topics((0..1_024).map(|i| format!("#.{}.x", either(i, 10).replacen('*', "a", 1))));
    let steps = steps_of(&world, message);
    assert!(steps < 10, "{steps} steps: the last word differs");
}

#[test]
fn ordinary_patterns_cost_their_words_regardless_of_their_number() {
    for (pattern, message) in [
        ("orders.N.created", "orders.77.created"),
        ("orders.N.#", "orders.77.created.eu"),
        ("#.N", "orders.created.77"),
        ("#.N.#", "orders.77.created"),
        ("*.N.*", "orders.77.created"),
    ] {
        let world = topics((0..1_000).map(|i| pattern.replace('N', &i.to_string())));
        let message = key(message);
        let steps = steps_of(&world, Message { keys: &[&message], view: &Bare, random: 0, released: false });
        assert!(steps <= 12, "{pattern}: {steps} steps");
    }
}

/// 10,000 bindings that have 199 of 200 pairs in common used to be indexed under the first pair, and all compared with each message.
#[test]
fn bindings_with_common_pairs_are_indexed_under_their_own_pair() {
    let mut world = World::new(3);
    world.declare("x", Kind::Headers);
    let pairs = |own: u64| {
        let shared = (0..199).map(|i| (format!("h{i}"), Value::Int(i)));
        shared.chain([("own".to_owned(), Value::Int(own as i64))]).collect::<Vec<_>>()
    };
    let bind = |i: u64| {
        let arguments = pairs(i).into_iter().map(|(name, value)| argument(&name, value)).collect();
        Bind { arguments, ..to_queue("x", i % 3 + 1, "") }
    };
    let letter = TestMessage { headers: pairs(777), property: None };
    let message = Message { keys: &[b""], view: &letter, random: 0, released: false };
    let mut before = None;
    for thousand in 0..3 {
        bind_all(&mut world, (thousand * 1_000..(thousand + 1) * 1_000).map(bind).collect());
        let steps = steps_of(&world, message);
        // A few early ones are indexed under a pair that was unused then.
        assert!(steps < 12_000, "{steps} steps");
        assert!(before.replace(steps).is_none_or(|before| before == steps), "it does not depend on how many there are");
    }
}

/// Many bindings to one queue used to collect as many entries for it.
#[test]
fn fanouts_pause_without_steps_and_find_each_queue_once() {
    for kind in [Kind::Fanout, Kind::Direct] {
        let mut world = World::new(5_000);
        world.declare("x", kind);
        bind_all(&mut world, (1..=5_000).map(|id| to_queue("x", id, "k")).collect());
        bind_all(&mut world, (1..=5_000).map(|id| to_queue("x", id, "l")).collect());
        let message = Message { keys: &[b"k", b"l", b"k"], view: &Bare, random: 0, released: false };
        let steps = steps_of(&world, message);
        assert!((10_000..16_000).contains(&steps), "{steps} steps");
    }
}

/// A paused routing continues on the bindings it began with, regardless of later changes.
#[test]
fn a_paused_routing_continues_on_its_snapshot() {
    let mut world = topics((0..200).map(|i| either(i, 10)));
    let all_a = key("a.a.a.a.a.a.a.a.a.a");
    let message = Message { keys: &[&all_a], view: &Bare, random: 0, released: false };
    let snapshot = world.shared.load().clone();
    let mut scratch = Scratch::default();
    let entry = snapshot.entry(HOST, b"x").unwrap();
    let paused = snapshot.route_within(entry, message, &mut scratch, &mut 10).expect_err("it takes longer");
    drop(snapshot);
    world.run(Command::Delete { vhost: HOST, name: bytes("x"), if_unused: false }).unwrap();
    let outcome = paused.resume(message, &mut scratch, &mut 1_000_000).expect("it is over");
    assert_eq!(outcome.queues.len(), 3);
}
