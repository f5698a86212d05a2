//! Random commands, lost proposals and checkpoints: routing agrees with a naive model, and a router rebuilt from records, or from a checkpoint and
//! the records after it, equals the live one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use bytes::Bytes;
use common::*;
use polylogue_router::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Do(Command),
    /// This many of the uncommitted records are committed.
    Commit(u8),
    /// All uncommitted records are lost.
    Lose,
    Checkpoint,
}

const KEYS: [&str; 7] = ["a", "b", "a.b", "a.*", "#", "*.b.#", ""];

fn exchange_name() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["x0", "x1", "x2", "x3", "x4"]).prop_map(bytes)
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Direct,
        Kind::Fanout,
        Kind::Topic,
        Kind::Headers,
        Kind::Delayed(Box::new(Kind::Topic)),
        Kind::ConsistentHash(HashOn::Header(bytes("a"))),
        Kind::Federation(Downstream { hops_max: 1, cluster: bytes("c"), vhost: bytes("/") }),
    ])
}

fn value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Int(1),
        Value::Int(2),
        text("1"),
        Value::Void,
        Value::Bool(true),
        Value::Float(1.0),
    ])
}

fn pairs() -> impl Strategy<Value = Vec<(String, Value)>> {
    let name = prop::sample::select(vec!["a", "b", "x-c"]).prop_map(str::to_owned);
    prop::collection::vec((name, value()), 0..3)
}

fn bind() -> impl Strategy<Value = Bind> {
    let destination = prop_oneof![
        (0..6u64).prop_map(|id| End::Queue(bytes(&format!("q{id}")))),
        exchange_name().prop_map(End::Exchange),
    ];
    let mode = prop::sample::select(vec![None, Some("any"), Some("all"), Some("any-with-x"), Some("all-with-x")]);
    // Mostly keys; sometimes a weight for consistent hashing.
    let key = prop_oneof![prop::sample::select(KEYS.to_vec()), Just("3")];
    (exchange_name(), destination, key, pairs(), mode).prop_map(|(source, destination, key, pairs, mode)| {
        let mode = mode.map(|mode| ("x-match".to_owned(), text(mode)));
        let arguments = pairs.into_iter().chain(mode).map(|(name, value)| argument(&name, value)).collect();
        Bind { vhost: HOST, source, destination, key: bytes(key), arguments }
    })
}

fn command() -> impl Strategy<Value = Command> {
    let declare = (exchange_name(), kind(), any::<(bool, bool)>(), prop::option::of(exchange_name())).prop_map(
        |(name, kind, (durable, auto_delete), alternate)| {
            Command::Declare(Declare { name, durable, auto_delete, alternate, ..declare("", kind) })
        },
    );
    prop_oneof![
        3 => declare,
        1 => (exchange_name(), any::<bool>()).prop_map(|(name, if_unused)| Command::Delete { vhost: HOST, name, if_unused }),
        1 => (exchange_name(), prop::option::of(exchange_name()))
            .prop_map(|(name, alternate)| Command::PolicyAlternate { vhost: HOST, name, alternate }),
        3 => (0..6u64, any::<bool>()).prop_map(|(id, durable)| Command::AddQueue(Queue { durable, ..queue(id) })),
        1 => (0..6u64).prop_map(|id| Command::RemoveQueue(QueueId(id))),
        8 => bind().prop_map(Command::Bind),
        3 => bind().prop_map(Command::Unbind),
        1 => Just(Command::Restarted),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => command().prop_map(Step::Do),
        4 => (0..4u8).prop_map(Step::Commit),
        1 => Just(Step::Lose),
        1 => Just(Step::Checkpoint),
    ]
}

#[derive(Default)]
struct Life {
    on_their_way: Vec<Bytes>,
    log: Vec<Bytes>,
    /// The chunks of the last checkpoint, and how much of the log it covers.
    checkpoint: (BTreeMap<Bytes, Bytes>, usize),
}

fn live(router: &mut Router, steps: Vec<Step>) -> Life {
    let mut life = Life::default();
    router.reset_tail();
    let start = [Command::AddVhost(HOST), Command::AddQueue(queue(1)), Command::Declare(declare("x0", Kind::Topic))];
    life.on_their_way.extend(router.plan(&start).unwrap().record);
    for step in steps.into_iter().chain([Step::Lose]) {
        match step {
            Step::Do(command) => life.on_their_way.extend(router.plan(&[command]).ok().and_then(|plan| plan.record)),
            Step::Commit(count) => {
                let count = usize::from(count).min(life.on_their_way.len());
                for record in life.on_their_way.drain(..count) {
                    router.apply(&record).unwrap();
                    life.log.push(record);
                }
                router.publish();
            }
            Step::Lose => {
                life.on_their_way.clear();
                router.reset_tail();
            }
            Step::Checkpoint => {
                for (id, chunk) in router.take_changed_chunks() {
                    match chunk {
                        Some(chunk) => _ = life.checkpoint.0.insert(id, chunk),
                        None => _ = life.checkpoint.0.remove(&id),
                    }
                }
                life.checkpoint.1 = life.log.len();
            }
        }
    }
    life
}

/// A router built from chunks, the last first when `backwards`, and from records.
fn rebuilt(chunks: &BTreeMap<Bytes, Bytes>, backwards: bool, records: &[Bytes]) -> Router {
    let mut router = Router::new(Limits::default());
    let mut chunks: Vec<_> = chunks.iter().collect();
    if backwards {
        chunks.reverse();
    }
    chunks.iter().for_each(|(id, chunk)| router.load_chunk(id, chunk).unwrap());
    records.iter().for_each(|record| _ = router.apply(record).unwrap());
    router.reset_tail();
    router
}

/// The observable state, including the effect of the next command.
fn seen(router: &mut Router, letters: &[(String, Vec<(String, Value)>)]) -> String {
    let now = router.definitions();
    let lists = format!("{:?} {:?} {:?} {:?}", now.vhosts(), now.exchanges(), now.queues(), now.bindings());
    let ends: Vec<_> = now
        .exchanges()
        .iter()
        .map(|x| (now.bindings_from(x.id), now.bindings_to(Destination::Exchange(x.id)), now.in_use(x.id)))
        .collect();
    let routed: Vec<_> = letters.iter().map(|letter| routes(router, letter)).collect();
    let next = [
        Command::AddVhost(HOST),
        Command::Declare(declare("next", Kind::Fanout)),
        Command::Bind(to_exchange("next", "next", "")),
    ];
    let next = router.plan(&next).unwrap().record;
    router.reset_tail();
    format!("{lists} {ends:?} {routed:?} {next:?}")
}

type Routes = Vec<(Bytes, BTreeSet<u64>, Vec<Delayed>)>;

fn routes(router: &Router, (key, headers): &(String, Vec<(String, Value)>)) -> Routes {
    let snapshot = router.shared().load().clone();
    let view = TestMessage { headers: headers.clone(), property: None };
    let mut scratch = Scratch::default();
    let mut one = |exchange: &Exchange| {
        let entry = snapshot.entry(HOST, &exchange.name).unwrap();
        let keys = [key.as_bytes(), b"a"];
        let outcome =
            snapshot.route(entry, Message { keys: &keys, view: &view, random: 0, released: false }, &mut scratch);
        let queues: BTreeSet<u64> = outcome.queues.iter().map(|routed| routed.queue.0).collect();
        assert_eq!(queues.len(), outcome.queues.len(), "without duplicates");
        let whole = (outcome.queues.to_vec(), outcome.delayed.to_vec());
        let message = Message { keys: &keys, view: &view, random: 0, released: false };
        for pieces in [&[1][..], &[2, 1], &[5, 1, 3], &[100]] {
            let in_pieces = route_in_pieces(&snapshot, &exchange.name, message, pieces);
            assert_eq!(in_pieces, whole, "in pieces of {pieces:?} steps");
        }
        (exchange.name.clone(), queues, whole.1)
    };
    router.definitions().exchanges().iter().map(|exchange| one(exchange)).collect()
}

/// Routing by definition, from lists of bindings.
struct Naive<'a> {
    now: &'a Definitions,
    keys: [&'a str; 2],
    headers: &'a [(String, Value)],
}

fn pattern(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), _) => (0..=key.len()).any(|skip| self::pattern(rest, &key[skip..])),
        (Some((word, rest)), Some((first, left))) => (*word == "*" || word == first) && self::pattern(rest, left),
        _ => false,
    }
}

fn words(key: &str) -> Vec<&str> {
    if key.is_empty() { Vec::new() } else { key.split('.').collect() }
}

impl Naive<'_> {
    fn header(&self, name: &[u8]) -> Option<&Value> {
        self.headers.iter().rev().find(|(n, _)| n.as_bytes() == name).map(|(_, value)| value)
    }

    fn headers_match(&self, arguments: &[Argument]) -> bool {
        let mode = arguments.iter().find(|a| a.name == b"x-match"[..]).and_then(|a| a.value.bytes().cloned());
        let mode = mode.unwrap_or_else(|| bytes("all"));
        let with_x = mode.ends_with(b"with-x");
        let mut holds = arguments
            .iter()
            .filter(|a| a.name != b"x-match"[..] && (with_x || !a.name.starts_with(b"x-")))
            .map(|a| self.header(&a.name).is_some_and(|v| a.value == Value::Void || a.value.view().same(&v.view())));
        if mode.starts_with(b"any") { holds.any(|holds| holds) } else { holds.all(|holds| holds) }
    }

    fn matches(&self, kind: &Kind, binding: &Binding) -> bool {
        let key = std::str::from_utf8(&binding.key).unwrap();
        match kind.routes_as() {
            Kind::Direct => self.keys.contains(&key),
            Kind::Topic => self.keys.iter().any(|k| pattern(&words(key), &words(k))),
            Kind::Headers => self.headers_match(&binding.arguments),
            _ => true,
        }
    }

    fn walk(&self, id: ExchangeId, seen: &mut BTreeSet<ExchangeId>, queues: &mut BTreeSet<u64>) {
        if !seen.insert(id) {
            return;
        }
        let Some(exchange) = self.now.exchange_by_id(id) else { return };
        let bindings = self.now.bindings_from(id);
        let found: Vec<_> = bindings.iter().filter(|binding| self.matches(&exchange.kind, binding)).collect();
        for binding in &found {
            match binding.destination {
                Destination::Queue(queue) => _ = queues.insert(queue.0),
                Destination::Exchange(next) => self.walk(next, seen, queues),
            }
        }
        let alternate = exchange.effective_alternate().filter(|_| found.is_empty());
        if let Some(next) = alternate.and_then(|name| self.now.exchange(HOST, name)) {
            self.walk(next.id, seen, queues);
        }
    }
}

/// A consistent hash routes to one of its destinations: the model is complete only without one.
fn model_says(router: &Router, letter: &(String, Vec<(String, Value)>)) {
    let now = router.definitions();
    if now.exchanges().iter().any(|exchange| matches!(exchange.kind, Kind::ConsistentHash(_))) {
        return;
    }
    for (name, queues, delays) in routes(router, letter) {
        let naive = Naive { now, keys: [&letter.0, "a"], headers: &letter.1 };
        let mut expected = BTreeSet::new();
        naive.walk(now.exchange(HOST, &name).unwrap().id, &mut BTreeSet::new(), &mut expected);
        assert_eq!((queues, delays), (expected, vec![]), "from {name:?} with {letter:?}");
    }
}

fn letters() -> impl Strategy<Value = Vec<(String, Vec<(String, Value)>)>> {
    let key = prop::sample::select(vec!["a", "b", "a.b", "a.c", "x.b.y", "", "."]).prop_map(str::to_owned);
    prop::collection::vec((key, pairs()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn replay_and_checkpoint_restore_the_state(
        steps in prop::collection::vec(step(), 0..120), letters in letters()
    ) {
        let mut router = Router::new(Limits::default());
        let life = live(&mut router, steps);
        letters.iter().for_each(|letter| model_says(&router, letter));
        let lived = seen(&mut router, &letters);
        let mut replayed = rebuilt(&BTreeMap::new(), false, &life.log);
        prop_assert_eq!(&seen(&mut replayed, &letters), &lived);
        let (chunks, covered) = &life.checkpoint;
        for backwards in [false, true] {
            let mut loaded = rebuilt(chunks, backwards, &life.log[*covered..]);
            prop_assert_eq!(&seen(&mut loaded, &letters), &lived);
        }
        router.change_all_chunks();
        let whole = router.take_changed_chunks().into_iter().filter_map(|(id, chunk)| Some((id, chunk?))).collect();
        prop_assert_eq!(&seen(&mut rebuilt(&whole, true, &[]), &letters), &lived);
    }

    /// Records and chunks as a damaged disk may return them.
    #[test]
    fn damaged_records_and_chunks_are_refused_or_decoded(
        commands in prop::collection::vec(command(), 1..30), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut router = Router::new(Limits::default());
        let life = live(&mut router, commands.into_iter().map(Step::Do).chain([Step::Commit(255)]).collect());
        let damage = |bytes: &Bytes| {
            let mut bytes = bytes.to_vec();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= byte;
            }
            let cut = bytes[..at.index(bytes.len() + 1)].to_vec();
            [bytes, cut]
        };
        let mut victim = Router::new(Limits::default());
        for record in &life.log {
            damage(record).iter().for_each(|record| _ = victim.apply(record));
        }
        router.change_all_chunks();
        for (id, chunk) in router.take_changed_chunks() {
            chunk.iter().flat_map(damage).for_each(|chunk| _ = victim.load_chunk(&id, &chunk));
        }
        victim.reset_tail();
        seen(&mut victim, &[]);
    }
}

#[test]
fn a_reply_from_proposed_state_waits_for_its_commit() {
    let mut router = Router::new(Limits::default());
    router.reset_tail();
    let first = router.plan(&[Command::AddVhost(HOST)]).unwrap();
    let again = router.plan(&[Command::AddVhost(HOST)]).unwrap();
    let record = again.record.expect("a record that the reply waits for");
    assert!(again.replies[0].events.is_empty());
    router.apply(&first.record.unwrap()).unwrap();
    assert!(router.apply(&record).unwrap().is_empty());
    assert_eq!(router.plan(&[Command::AddVhost(HOST)]).unwrap().record, None, "no proposal is uncommitted");
}
