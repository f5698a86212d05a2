//! The cost of routing a message with 100,000 bindings, ordinary and hostile ones: `cargo bench -p polylogue-router`. An argument selects the lines
//! whose names contain it.
//!
//! Each line is the median of several runs, in microseconds of the thread's CPU time. On a noisy machine compare only lines of one run.

#![allow(clippy::expect_used, reason = "a measurement fails by panicking")]

use bytes::Bytes;
use polylogue_router::{
    Argument, Bare, Bind, Command, Declare, End, Kind, Limits, Message, MessageView, Property, Queue, QueueId, Router,
    Scratch, Value, ValueRef, VhostId,
};
use std::hint::black_box;

const HOST: VhostId = VhostId(1);
const BINDINGS: u64 = 100_000;
/// Queues that bindings share, where the number of targets is not measured.
const FEW: u64 = 10;

/// The CPU time of this thread, where the operating system reports it: other processes do not affect it. Microseconds.
#[allow(clippy::disallowed_methods, reason = "a measurement of this process needs its clock")]
fn worked() -> f64 {
    static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let worked = stat.and_then(|stat| stat.split(' ').next()?.parse::<f64>().ok());
    worked.unwrap_or_else(|| BEGUN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as f64) / 1e3
}

/// Microseconds of one call of `run`: the median of 9 loops of about 20 ms, or of 3 calls that take longer than a tenth of a second.
fn microseconds(mut run: impl FnMut()) -> f64 {
    let mut time = |calls: u32| {
        let start = worked();
        (0..calls).for_each(|_| run());
        worked() - start
    };
    let (mut calls, mut loops) = (1, 9);
    loop {
        let time = time(calls);
        if time >= 2e4 || calls >= 1 << 20 {
            loops = if time > 1e5 { 3 } else { loops };
            break;
        }
        calls *= 2;
    }
    let mut all: Vec<f64> = (0..loops).map(|_| time(calls) / f64::from(calls)).collect();
    all.sort_by(f64::total_cmp);
    all.get(loops / 2).copied().unwrap_or_default()
}

/// A message with headers only.
struct Headers(Vec<(String, Value)>);

impl MessageView for Headers {
    fn headers<'m>(&'m self, visit: &mut dyn FnMut(&'m [u8], ValueRef<'m>)) {
        self.0.iter().for_each(|(name, value)| visit(name.as_bytes(), value.view()));
    }

    fn property(&self, _: Property) -> Option<ValueRef<'_>> {
        None
    }
}

/// A binding: the queue, the key, the headers.
type Binding = (u64, String, Vec<(String, Value)>);

fn router(kind: Kind, bindings: impl Iterator<Item = Binding>) -> Router {
    let mut router = Router::new(Limits::default());
    router.reset_tail();
    let mut run = |commands: &[Command]| {
        let plan = router.plan(commands).expect("it is allowed");
        if let Some(record) = plan.record {
            router.apply(&record).expect("it was planned");
        }
    };
    run(&[Command::AddVhost(HOST)]);
    let queue = |id| Queue { id: QueueId(id), vhost: HOST, name: Bytes::from(format!("q{id}")), durable: true };
    let queues: Vec<_> = (1..=BINDINGS).map(|id| Command::AddQueue(queue(id))).collect();
    queues.chunks(10_000).for_each(&mut run);
    run(&[Command::Declare(Declare {
        vhost: HOST,
        name: "x".into(),
        kind,
        durable: true,
        auto_delete: false,
        internal: false,
        alternate: None,
        arguments: Vec::new(),
    })]);
    let bind = |(queue, key, headers): Binding| {
        let argument = |(name, value): (String, Value)| Argument { name: name.into(), tag: b'S', value };
        Command::Bind(Bind {
            vhost: HOST,
            source: "x".into(),
            destination: End::Queue(format!("q{queue}").into()),
            key: key.into(),
            arguments: headers.into_iter().map(argument).collect(),
        })
    };
    let bindings: Vec<_> = bindings.map(bind).collect();
    bindings.chunks(10_000).for_each(&mut run);
    router.publish();
    router
}

fn measure(what: &str, kind: Kind, bindings: impl Iterator<Item = Binding>, key: &str, headers: Vec<(String, Value)>) {
    if std::env::args().skip(1).any(|wanted| !wanted.starts_with('-') && !what.contains(&wanted)) {
        return;
    }
    let router = router(kind, bindings);
    let snapshot = router.shared().load().clone();
    let (mut scratch, view) = (Scratch::default(), Headers(headers));
    let entry = snapshot.entry(HOST, b"x").expect("the exchange is there");
    let keys: &[&[u8]] = &[key.as_bytes()];
    let view: &dyn MessageView = if view.0.is_empty() { &Bare } else { &view };
    let message = Message { keys, view, random: 1, released: false };
    let targets = snapshot.route(entry, message, &mut scratch).queues.len();
    let steps = scratch.topic_steps();
    let cost = microseconds(|| _ = black_box(snapshot.route(entry, black_box(message), &mut scratch).queues.len()));
    let steps = if steps > 0 { format!(", {steps} steps") } else { String::new() };
    println!("{what:44} {cost:12.2} us a message, {targets} targets{steps}");
}

fn none(id: u64, key: String) -> Binding {
    (id % FEW + 1, key, Vec::new())
}

/// `count` words, each `a` or `*` according to the bits of a number, so that all patterns match `a.a.a...`.
fn either(number: u64, count: u32) -> String {
    (0..count).map(|bit| if number >> (bit % 40) & 1 == 0 { "a" } else { "*" }).collect::<Vec<_>>().join(".")
}

fn pairs(own: u64) -> Vec<(String, Value)> {
    let value = |number: u64| Value::Bytes(format!("v{number}").into());
    let shared = (0..199).map(|i| (format!("h{i}"), value(i)));
    shared.chain([("own".to_owned(), value(own))]).collect()
}

fn main() {
    let all = 1..=BINDINGS;
    let wide = "a.".repeat(127) + "a";
    let plain = Vec::new;
    measure("direct, a key each", Kind::Direct, all.clone().map(|i| none(i, format!("k{i}"))), "k77", plain());
    measure("direct, one key of all", Kind::Direct, all.clone().map(|i| (i, "k".into(), Vec::new())), "k", plain());
    measure("fanout, 10 queues", Kind::Fanout, (1..=10).map(|i| (i, String::new(), Vec::new())), "", plain());
    measure("fanout, 100,000 queues", Kind::Fanout, all.clone().map(|i| (i, String::new(), Vec::new())), "", plain());
    let topic = |what: &str, pattern: &dyn Fn(u64) -> String, key: &str| {
        measure(what, Kind::Topic, all.clone().map(|i| none(i, pattern(i))), key, plain());
    };
    topic("topic, orders.N.created", &|i| format!("orders.{i}.created"), "orders.77.created");
    topic("topic, orders.N.#", &|i| format!("orders.{i}.#"), "orders.77.created.eu");
    topic("topic, #.N", &|i| format!("#.{i}"), "orders.created.77");
    topic("topic, #.N.#", &|i| format!("#.{i}.#"), "orders.77.created");
    topic("topic, 100 words of a or *", &|i| either(i, 100), &("a.".repeat(99) + "a"));
    topic("topic, 17 words of a or *, then #.x", &|i| either(i, 17) + ".#.x", &wide);
    topic("topic, 17 words of a or *, then #.x.#", &|i| either(i, 17) + ".#.x.#", &wide);
    topic("topic, 17 words of a or *, then #.a.b.#", &|i| either(i, 17) + ".#.a.b.#", &wide);
    topic("topic, #, then 17 words of a or *, then x", &|i| format!("#.a.{}.x", either(i, 17)), &wide);
    topic("topic, #, then 17 words of a or *, then x.#", &|i| format!("#.a.{}.x.#", either(i, 17)), &wide);
    let headers =
        |what: &str, rule: &dyn Fn(u64) -> Vec<(String, Value)>, count: u64, message: Vec<(String, Value)>| {
            let bindings = (1..=count).map(|i| (i % FEW + 1, String::new(), rule(i)));
            measure(what, Kind::Headers, bindings, "", message);
        };
    let customer = |i: u64| vec![("type".to_owned(), Value::Int(1)), ("customer".to_owned(), Value::Int(i as i64))];
    headers("headers, type and customer", &customer, BINDINGS, customer(77));
    headers("headers, 200 pairs, 199 of all (10,000)", &pairs, 10_000, pairs(77));
    let last = |i: u64| [vec![("a".to_owned(), Value::Int((i % FEW) as i64))], pairs(i)].concat();
    headers("headers, 201 pairs, the own one is missing", &last, 10_000, pairs(0));
}
