//! A router with its log, and messages to route.

#![allow(dead_code, reason = "each test uses what it needs")]

use bytes::Bytes;
use polylogue_router::*;
use std::sync::Arc;

pub(crate) const HOST: VhostId = VhostId(1);

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn argument(name: &str, value: Value) -> Argument {
    Argument { name: bytes(name), tag: b'S', value }
}

pub(crate) fn text(value: &str) -> Value {
    Value::Bytes(bytes(value))
}

pub(crate) fn declare(name: &str, kind: Kind) -> Declare {
    Declare {
        vhost: HOST,
        name: bytes(name),
        kind,
        durable: true,
        auto_delete: false,
        internal: false,
        alternate: None,
        arguments: Vec::new(),
    }
}

pub(crate) fn queue(id: u64) -> Queue {
    Queue { id: QueueId(id), vhost: HOST, name: bytes(&format!("q{id}")), durable: true }
}

pub(crate) fn to_queue(source: &str, id: u64, key: &str) -> Bind {
    let destination = End::Queue(bytes(&format!("q{id}")));
    Bind { vhost: HOST, source: bytes(source), destination, key: bytes(key), arguments: Vec::new() }
}

pub(crate) fn to_exchange(source: &str, destination: &str, key: &str) -> Bind {
    Bind { destination: End::Exchange(bytes(destination)), ..to_queue(source, 0, key) }
}

/// A message with headers and properties in memory.
#[derive(Default)]
pub(crate) struct TestMessage {
    pub(crate) headers: Vec<(String, Value)>,
    pub(crate) property: Option<Value>,
}

impl MessageView for TestMessage {
    fn headers<'m>(&'m self, visit: &mut dyn FnMut(&'m [u8], ValueRef<'m>)) {
        self.headers.iter().for_each(|(name, value)| visit(name.as_bytes(), value.view()));
    }

    fn property(&self, _: Property) -> Option<ValueRef<'_>> {
        self.property.as_ref().map(Value::view)
    }
}

pub(crate) fn letter(headers: &[(&str, Value)]) -> TestMessage {
    TestMessage { headers: headers.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect(), property: None }
}

/// Routes in pieces of these numbers of steps, used in rotation.
pub(crate) fn route_in_pieces(
    snapshot: &Arc<Snapshot>,
    exchange: &[u8],
    message: Message<'_>,
    pieces: &[u64],
) -> (Vec<Routed>, Vec<Delayed>) {
    let mut scratch = Scratch::default();
    let mut pieces = pieces.iter().copied().cycle();
    let entry = snapshot.entry(HOST, exchange).expect("the exchange is there");
    let mut left = match snapshot.route_within(entry, message, &mut scratch, &mut pieces.next().unwrap()) {
        Ok(outcome) => return (outcome.queues.to_vec(), outcome.delayed.to_vec()),
        Err(paused) => paused,
    };
    loop {
        // Another routing with the same scratch in between changes nothing.
        snapshot.route(entry, message, &mut scratch);
        left = match left.resume(message, &mut scratch, &mut pieces.next().unwrap()) {
            Ok(outcome) => return (outcome.queues.to_vec(), outcome.delayed.to_vec()),
            Err(paused) => paused,
        };
    }
}

/// A router whose records are committed as soon as they are planned.
pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) shared: Arc<SharedRouter>,
    pub(crate) log: Vec<Bytes>,
}

impl World {
    /// Makes a router with virtual host 1 and queues 1 to `queues`.
    pub(crate) fn new(queues: u64) -> World {
        let mut router = Router::new(Limits::default());
        router.reset_tail();
        let mut world = World { shared: router.shared(), router, log: Vec::new() };
        world.run(Command::AddVhost(HOST)).unwrap();
        (1..=queues).for_each(|id| _ = world.run(Command::AddQueue(queue(id))).unwrap());
        world
    }

    pub(crate) fn run(&mut self, command: Command) -> Result<Reply, RouterError> {
        let plan = self.router.plan(&[command]).map_err(|(_, why)| why)?;
        let mut done = Vec::new();
        if let Some(record) = plan.record {
            done = self.router.apply(&record).unwrap();
            self.log.push(record);
        }
        self.router.publish();
        let [reply] = <[Reply; 1]>::try_from(plan.replies).unwrap();
        assert_eq!(reply.events, done, "the planned events are the actual ones");
        Ok(reply)
    }

    pub(crate) fn declare(&mut self, name: &str, kind: Kind) {
        self.run(Command::Declare(declare(name, kind))).unwrap();
    }

    pub(crate) fn bind(&mut self, bind: Bind) {
        self.run(Command::Bind(bind)).unwrap();
    }

    /// The queues that a message with these keys is routed to.
    pub(crate) fn route(&self, exchange: &str, keys: &[&str]) -> Vec<u64> {
        self.route_view(exchange, keys, &Bare)
    }

    pub(crate) fn route_view(&self, exchange: &str, keys: &[&str], view: &dyn MessageView) -> Vec<u64> {
        self.outcome(exchange, keys, view, false).0.iter().map(|routed| routed.queue.0).collect()
    }

    pub(crate) fn outcome(
        &self,
        exchange: &str,
        keys: &[&str],
        view: &dyn MessageView,
        released: bool,
    ) -> (Vec<Routed>, Vec<Delayed>) {
        let snapshot = self.shared.load();
        let entry = snapshot.entry(HOST, exchange.as_bytes()).expect("the exchange is there");
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let mut scratch = Scratch::default();
        let outcome = snapshot.route(entry, Message { keys: &keys, view, random: 1, released }, &mut scratch);
        assert_eq!(outcome.is_routed(), !outcome.queues.is_empty() || !outcome.delayed.is_empty());
        (outcome.queues.to_vec(), outcome.delayed.to_vec())
    }

    pub(crate) fn exchanges(&self) -> Vec<String> {
        let name = |exchange: &Arc<Exchange>| String::from_utf8_lossy(&exchange.name).into_owned();
        self.router.definitions().exchanges().iter().map(name).collect()
    }
}
