//! The cost of topic matching: `cargo run --release -p polylogue-router --example topics [bindings] [rounds]`.
//!
//! Prints, for exchanges with 1,000 bindings and with many (100,000), nanoseconds and trie nodes per message, and the cost of adding and publishing a
//! binding while the exchange is in use; then the cost of the worst keys and patterns.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement, of wall time")]

use bytes::Bytes;
use polylogue_router::*;
use std::time::Instant;

const HOST: VhostId = VhostId(1);

fn run(router: &mut Router, command: Command) {
    if let Some(record) = router.plan(&[command]).unwrap().record {
        router.apply(&record).unwrap();
    }
}

/// Patterns of several forms, of which a key matches a few.
fn pattern(n: usize) -> String {
    match n % 10 {
        0 => format!("orders.*.item{n}"),
        1 => format!("orders.eu.item{n}.#"),
        2 => format!("#.item{n}.shipped"),
        _ => format!("orders.region{}.item{n}.created", n % 50),
    }
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A topic exchange in use, with queues to bind to it.
fn exchange(queues: usize) -> Router {
    let mut router = Router::new(Limits::default());
    router.reset_tail();
    run(&mut router, Command::AddVhost(HOST));
    let exchange = Declare {
        vhost: HOST,
        name: Bytes::from_static(b"t"),
        kind: Kind::Topic,
        durable: true,
        auto_delete: false,
        internal: false,
        alternate: None,
        arguments: Vec::new(),
    };
    run(&mut router, Command::Declare(exchange));
    for id in 0..queues as u64 {
        let name = Bytes::from(format!("q{id}"));
        run(&mut router, Command::AddQueue(Queue { id: QueueId(id), vhost: HOST, name, durable: true }));
    }
    router
}

/// Measures the worst keys and patterns: keys of 100 words with patterns that have several `#`.
fn measure_hostile(what: &str, key: &str, patterns: impl Iterator<Item = String>) {
    let mut router = exchange(1);
    let mut bindings = 0;
    for pattern in patterns {
        let (source, destination) = (Bytes::from_static(b"t"), End::Queue(Bytes::from_static(b"q0")));
        let key = Bytes::from(pattern);
        run(&mut router, Command::Bind(Bind { vhost: HOST, source, destination, key, arguments: Vec::new() }));
        bindings += 1;
    }
    router.publish();
    let snapshot = router.shared().load().clone();
    let mut scratch = Scratch::default();
    let rounds = 20;
    let start = Instant::now();
    for _ in 0..rounds {
        let entry = snapshot.entry(HOST, b"t").unwrap();
        let message = Message { keys: &[key.as_bytes()], view: &Bare, random: 0, released: false };
        snapshot.route(entry, message, &mut scratch);
    }
    println!(
        "{what}, {bindings} bindings, a key of {} words: {} ns and {} trie nodes a message",
        key.split('.').count(),
        start.elapsed().as_nanos() / rounds,
        u128::from(scratch.topic_steps()) / rounds,
    );
}

fn hostile() {
    let same = vec!["a"; 100].join(".");
    let turns: Vec<&str> = ["a", "b"].into_iter().cycle().take(100).collect();
    let turns = turns.join(".");
    let repeated = |word: &str, times| vec![word; times].join(".");
    measure_hostile("#.a.#.b.#.item", &turns, (0..1_000).map(|n| format!("#.a.#.b.#.item{n}")));
    measure_hostile("#.item.#.b.#", &turns, (0..1_000).map(|n| format!("#.item{n}.#.b.#")));
    measure_hostile("#.a once to 30 times", &same, (1..=30).map(|n| repeated("#.a", n) + ".z"));
    measure_hostile("*.# once to 30 times", &same, (1..=30).map(|n| repeated("*.#", n) + ".z"));
    let either =
        |n: u32| (0..10).map(|bit| if n >> bit & 1 == 0 { "#.a" } else { "#.*" }).collect::<Vec<_>>().join(".");
    measure_hostile("#.a or #.* ten times", &same, (0..1_024).map(|n| either(n) + ".z"));
}

fn measure(bindings: usize, rounds: usize) {
    let before = resident_bytes();
    let mut router = exchange(1000);
    let queues = 1000;
    let start = Instant::now();
    for n in 0..bindings {
        let destination = End::Queue(Bytes::from(format!("q{}", n % queues)));
        let (source, key) = (Bytes::from_static(b"t"), Bytes::from(pattern(n)));
        run(&mut router, Command::Bind(Bind { vhost: HOST, source, destination, key, arguments: Vec::new() }));
        router.publish();
    }
    let bound = start.elapsed();
    let bytes = resident_bytes().saturating_sub(before) / bindings;
    let keys: Vec<String> = (0..1000)
        .map(|i| i * 7919 % bindings)
        .map(|n| match n % 3 {
            0 => format!("orders.region{}.item{n}.created", n % 50),
            1 => format!("orders.eu.item{n}.a.b"),
            _ => format!("x.y.item{n}.shipped"),
        })
        .collect();
    let snapshot = router.shared().load().clone();
    let mut scratch = Scratch::default();
    let mut reached = 0;
    let start = Instant::now();
    for _ in 0..rounds {
        for key in &keys {
            let entry = snapshot.entry(HOST, b"t").unwrap();
            let message = Message { keys: &[key.as_bytes()], view: &Bare, random: 0, released: false };
            reached += snapshot.route(entry, message, &mut scratch).queues.len();
        }
    }
    let messages = (rounds * keys.len()) as u128;
    println!(
        "{bindings} bindings: {} ns and {:.1} trie nodes a message, {:.2} queues reached; {} ns and {bytes} bytes a binding, each published",
        start.elapsed().as_nanos() / messages,
        scratch.topic_steps() as f64 / messages as f64,
        reached as f64 / messages as f64,
        bound.as_nanos() / bindings as u128,
    );
}

fn main() {
    let argument = |at: usize, default| std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (many, rounds) = (argument(1, 100_000), argument(2, 1_000));
    [1000, many].into_iter().for_each(|bindings| measure(bindings, rounds));
    hostile();
}
