//! Routing: from an exchange and a message to the queues that it reaches.
//!
//! A [`Snapshot`] never changes; [`SharedRouter`] holds the newest. Whoever routes takes it without waiting for anybody, and nobody
//! waits for them. With a [`Scratch`] that is kept, routing allocates nothing.
//!
//! Each exchange is entered at most once a message, so that cycles of bindings or of alternate exchanges end. An exchange none
//! of whose bindings matched hands on to its alternate exchange; a missing one is none.

use crate::definitions::{Exchange, RouterEvent};
use crate::hamt::{Hamt, hash_number};
use crate::headers::{Header, prepare, value_of};
use crate::ids::{Destination, ExchangeId, Name, QueueId, VhostId};
use crate::index::{Index, Target};
use crate::kind::{HashOn, Kind, Property};
use crate::ring::{hash_of, hash_of_value};
use crate::topic::{Walk, recycle};
use crate::value::ValueRef;
use arc_swap::ArcSwap;
use polylogue_types::Set;
use std::sync::Arc;

/// The header that says how long a delayed exchange is to wait. Milliseconds.
pub const DELAY_HEADER: &[u8] = b"x-delay";
/// The longest delay; a longer one is none, as with RabbitMQ. Milliseconds.
pub const DELAY_MS_MAX: u64 = u32::MAX as u64;

/// What a message says of links of federation that it came over.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hops {
    /// How many.
    pub count: usize,
    /// Whether one of them led away from where it was asked for.
    pub seen: bool,
}

/// What routing looks at in a message beside its keys, and only when an exchange asks for it.
pub trait MessageView {
    /// Calls `visit` with each header: its name and value, in their order.
    fn headers<'m>(&'m self, visit: &mut dyn FnMut(&'m [u8], ValueRef<'m>));

    /// A property, where the message has it.
    fn property(&self, which: Property) -> Option<ValueRef<'_>>;

    /// The links that it came over, and whether it has been at this cluster's virtual host.
    fn hops(&self, _cluster: &[u8], _vhost: &[u8]) -> Hops {
        Hops::default()
    }
}

/// A message without headers and properties.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

impl MessageView for Bare {
    fn headers<'m>(&'m self, _: &mut dyn FnMut(&'m [u8], ValueRef<'m>)) {}

    fn property(&self, _: Property) -> Option<ValueRef<'_>> {
        None
    }
}

/// A message on its way through exchanges.
#[derive(Clone, Copy)]
pub struct Message<'m> {
    /// Its routing key, then those of CC and BCC. Empty stands for none at all.
    pub keys: &'m [&'m [u8]],
    /// The rest.
    pub view: &'m dyn MessageView,
    /// A random number: what a local random exchange chooses by.
    pub random: u64,
    /// Its delay at the exchange where it is routed from is over.
    pub released: bool,
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("keys", &self.keys).field("released", &self.released).finish_non_exhaustive()
    }
}

/// A queue that a message reaches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Routed {
    /// The queue.
    pub queue: QueueId,
    /// It is reached by alternate exchanges only: no binding of the exchange before them matched.
    pub alternate: bool,
}

/// An exchange that wants a message back later: route it from there with [`Message::released`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delayed {
    /// The exchange.
    pub exchange: ExchangeId,
    /// In how many milliseconds.
    pub delay_ms: u64,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'s> {
    /// The queues by id, each once.
    pub queues: &'s [Routed],
    /// The exchanges that keep it for a while.
    pub delayed: &'s [Delayed],
}

impl Outcome<'_> {
    /// Whether it reaches a queue, now or perhaps later: one that does not is returned to a publisher that asked for it
    /// (`mandatory`).
    #[must_use]
    pub fn is_routed(&self) -> bool {
        !self.queues.is_empty() || !self.delayed.is_empty()
    }
}

/// Memory that routing uses again and again. One a thread or connection.
#[derive(Default, Debug)]
pub struct Scratch {
    work: Vec<ExchangeId>,
    alternates: Vec<ExchangeId>,
    seen: Set<ExchangeId>,
    queues: Vec<Routed>,
    delayed: Vec<Delayed>,
    headers: Vec<Header<'static>>,
    walk: Walk,
}

impl Scratch {
    /// How many nodes of topic tries were looked at with it so far: what matching costs, in steps.
    #[must_use]
    pub fn topic_steps(&self) -> u64 {
        self.walk.steps
    }
}

/// An exchange with its bindings, ready to route.
#[derive(Clone, Debug)]
struct Route {
    exchange: Arc<Exchange>,
    index: Index,
}

/// Where routing begins.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// The default exchange of a virtual host: each key is the name of a queue.
    Default(VhostId),
    /// A declared exchange.
    Exchange(&'a Arc<Exchange>),
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct Snapshot {
    exchange_names: Hamt<Name, ExchangeId>,
    queue_names: Hamt<Name, QueueId>,
    routes: Hamt<ExchangeId, Arc<Route>>,
}

/// A message's headers, sorted when they are first asked for.
struct Headers<'m> {
    view: &'m dyn MessageView,
    sorted: Vec<Header<'m>>,
    loaded: bool,
}

impl<'m> Headers<'m> {
    fn get(&mut self) -> &[Header<'m>] {
        if !std::mem::replace(&mut self.loaded, true) {
            let (view, sorted) = (self.view, &mut self.sorted);
            view.headers(&mut |name, value| {
                let place = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
                sorted.push(Header { name, place, value });
            });
            prepare(sorted);
        }
        &self.sorted
    }
}

/// The delay that a message asks for, where it is one.
fn delay_ms(headers: &[Header<'_>]) -> Option<u64> {
    let delay = match value_of(headers, DELAY_HEADER)? {
        ValueRef::Int(v) => u64::try_from(v).ok()?,
        // Cut off, as RabbitMQ does; what is no number becomes 0.
        ValueRef::Float(v) => v as u64,
        ValueRef::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
        _ => return None,
    };
    (1..=DELAY_MS_MAX).contains(&delay).then_some(delay)
}

impl Snapshot {
    /// Takes over what changed.
    pub(crate) fn follow(&mut self, event: &RouterEvent) {
        match event {
            RouterEvent::ExchangeDeclared(exchange) => {
                let route = Route { exchange: exchange.clone(), index: Index::new(&exchange.kind) };
                self.routes.insert(exchange.id, Arc::new(route));
            }
            RouterEvent::ExchangeChanged(exchange) => {
                if let Some(route) = self.routes.get_mut(&exchange.id) {
                    Arc::make_mut(route).exchange = exchange.clone();
                }
            }
            RouterEvent::ExchangeDeleted(exchange, _) => _ = self.routes.remove(&exchange.id),
            RouterEvent::Bound(binding) => {
                if let Some(route) = self.routes.get_mut(&binding.source) {
                    Arc::make_mut(route).index.insert(binding);
                }
            }
            RouterEvent::Unbound(binding, _) => {
                if let Some(route) = self.routes.get_mut(&binding.source) {
                    Arc::make_mut(route).index.remove(binding);
                }
            }
            RouterEvent::VhostAdded(_)
            | RouterEvent::VhostRemoved(_)
            | RouterEvent::QueueAdded(_)
            | RouterEvent::QueueRemoved(..) => {}
        }
    }

    /// Takes over which names there are.
    pub(crate) fn set_names(&mut self, exchanges: &Hamt<Name, ExchangeId>, queues: &Hamt<Name, QueueId>) {
        self.exchange_names = exchanges.clone();
        self.queue_names = queues.clone();
    }

    /// Where messages to an exchange begin; `None` when there is none of this name.
    #[must_use]
    pub fn entry(&self, vhost: VhostId, exchange: &[u8]) -> Option<Entry<'_>> {
        if exchange.is_empty() {
            return Some(Entry::Default(vhost));
        }
        let id = self.exchange_id(vhost, exchange)?;
        self.routes.get(&id).map(|route| Entry::Exchange(&route.exchange))
    }

    /// As [`Snapshot::entry`], by the exchange's id: where a delayed message goes on.
    #[must_use]
    pub fn entry_by_id(&self, exchange: ExchangeId) -> Option<Entry<'_>> {
        self.routes.get(&exchange).map(|route| Entry::Exchange(&route.exchange))
    }

    /// The queue of a name.
    #[must_use]
    pub fn queue(&self, vhost: VhostId, name: &[u8]) -> Option<QueueId> {
        self.queue_names.find(Name::hash_of(vhost, name), |n| n.compare(vhost, name)).copied()
    }

    fn exchange_id(&self, vhost: VhostId, name: &[u8]) -> Option<ExchangeId> {
        self.exchange_names.find(Name::hash_of(vhost, name), |n| n.compare(vhost, name)).copied()
    }

    /// Finds the queues that a message reaches from `entry`.
    pub fn route<'s>(&self, entry: Entry<'_>, message: Message<'_>, scratch: &'s mut Scratch) -> Outcome<'s> {
        scratch.work.clear();
        scratch.alternates.clear();
        scratch.seen.clear();
        scratch.queues.clear();
        scratch.delayed.clear();
        match entry {
            Entry::Default(vhost) => self.by_name(vhost, message.keys, false, &mut scratch.queues),
            Entry::Exchange(exchange) => {
                let sorted = recycle(std::mem::take(&mut scratch.headers));
                let mut headers = Headers { view: message.view, sorted, loaded: false };
                self.enter(exchange.id, &message, &mut headers, scratch);
                scratch.headers = recycle(headers.sorted);
            }
        }
        if scratch.queues.len() > 1 {
            scratch.queues.sort_unstable();
            scratch.queues.dedup_by_key(|routed| routed.queue);
        }
        Outcome { queues: &scratch.queues, delayed: &scratch.delayed }
    }

    fn by_name(&self, vhost: VhostId, keys: &[&[u8]], alternate: bool, queues: &mut Vec<Routed>) {
        let found = keys.iter().filter_map(|key| self.queue(vhost, key));
        queues.extend(found.map(|queue| Routed { queue, alternate }));
    }

    fn enter(&self, start: ExchangeId, message: &Message<'_>, headers: &mut Headers<'_>, scratch: &mut Scratch) {
        scratch.work.push(start);
        // Everything that is reached without an alternate exchange comes first; what follows is reached by one only.
        let mut alternate = false;
        loop {
            let Some(id) = scratch.work.pop().or_else(|| {
                alternate = true;
                scratch.alternates.pop()
            }) else {
                return;
            };
            if !scratch.seen.insert(id) {
                continue;
            }
            let Some(route) = self.routes.get(&id) else { continue };
            let delays = matches!(route.exchange.kind, Kind::Delayed(_)) && !(message.released && id == start);
            if let Some(delay_ms) = delays.then(|| delay_ms(headers.get())).flatten() {
                scratch.delayed.push(Delayed { exchange: id, delay_ms });
                continue;
            }
            if route.walk(message, headers, scratch, alternate) == 0 {
                self.alternate(&route.exchange, message, scratch);
            }
        }
    }

    fn alternate(&self, exchange: &Exchange, message: &Message<'_>, scratch: &mut Scratch) {
        let Some(name) = exchange.effective_alternate() else { return };
        if name.is_empty() {
            self.by_name(exchange.vhost, message.keys, true, &mut scratch.queues);
        } else if let Some(id) = self.exchange_id(exchange.vhost, name) {
            scratch.alternates.push(id);
        }
    }
}

impl Route {
    /// Puts down where the bindings that match lead, and says how many those were.
    fn walk(&self, message: &Message<'_>, headers: &mut Headers<'_>, scratch: &mut Scratch, alternate: bool) -> usize {
        let Scratch { work, queues, walk, .. } = scratch;
        let mut found = 0;
        let mut emit = |target: &Target| {
            found += 1;
            match target.to {
                Destination::Queue(queue) => queues.push(Routed { queue, alternate }),
                Destination::Exchange(id) => work.push(id),
            }
        };
        match &self.index {
            Index::Direct(keys) => {
                message.keys.iter().flat_map(|key| Index::exact(keys, key)).for_each(emit);
            }
            Index::All(all) => match self.exchange.kind.routes_as() {
                Kind::LocalRandom => {
                    let random = hash_number(message.random ^ self.exchange.id.0);
                    all.pick(random.checked_rem(all.weight()).unwrap_or(0)).into_iter().for_each(emit);
                }
                Kind::Federation(to) => {
                    let hops = message.view.hops(&to.cluster, &to.vhost);
                    if hops.count < to.hops_max as usize && !hops.seen {
                        all.iter().for_each(emit);
                    }
                }
                _ => all.iter().for_each(emit),
            },
            Index::Topic(topics) => message.keys.iter().for_each(|key| topics.walk(key, walk, &mut emit)),
            Index::Headers(rules) => {
                let headers = if rules.wants_headers() { headers.get() } else { &[] };
                rules.walk(headers, &mut emit);
            }
            Index::Ring(ring) => {
                let hash = match self.exchange.kind.routes_as() {
                    Kind::ConsistentHash(HashOn::Header(name)) => hash_of_value(value_of(headers.get(), name)),
                    Kind::ConsistentHash(HashOn::Property(which)) => hash_of_value(message.view.property(*which)),
                    _ => hash_of(message.keys.first().unwrap_or(&&[][..])),
                };
                ring.pick(hash).into_iter().for_each(emit);
            }
        }
        found
    }
}

/// The newest snapshot, for any number of threads.
#[derive(Debug, Default)]
pub struct SharedRouter(ArcSwap<Snapshot>);

impl SharedRouter {
    /// The newest snapshot. Hold it for a message or a batch of them, not for long: it keeps alive what was replaced since.
    #[must_use]
    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.0.load()
    }

    pub(crate) fn store(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
