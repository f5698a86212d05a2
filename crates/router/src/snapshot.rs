//! Routing: from an exchange and a message to its queues.
//!
//! A [`Snapshot`] never changes; [`SharedRouter`] holds the latest one. Reading it never blocks, and never blocks an update. With a reused
//! [`Scratch`], routing allocates nothing.
//!
//! Routing counts its steps. [`Snapshot::route_within`] stops when the allowed steps are used up, and returns a [`PausedRouting`], which can be
//! resumed later, on the same snapshot and with the same outcome.
//!
//! Each exchange is entered at most once per message, so that cycles of bindings or of alternate exchanges end. An exchange without a matching
//! binding routes to its alternate exchange; a missing one is ignored.

use crate::definitions::RouterEvent;
use crate::hamt::{Hamt, hash_number};
use crate::headers::{Hashes, Header, prepare, value_of};
use crate::ids::{Destination, ExchangeId, Name, QueueId, VhostId};
use crate::index::Index;
use crate::kind::{HashOn, Kind, Property};
use crate::list::List;
use crate::objects::Exchange;
use crate::ring::{hash_of, hash_of_value};
use crate::target::{Position, Target};
use crate::topic::{PausedWalk, Walk, recycle};
use crate::value::ValueRef;
use arc_swap::ArcSwap;
use polylogue_types::Set;
use std::sync::Arc;

/// The header with the delay that a message requests of a delayed exchange. Milliseconds.
pub const DELAY_HEADER: &[u8] = b"x-delay";
/// Headers of a message that are sorted per step.
const HEADERS_PER_STEP: u64 = 2;
/// From this many found queues on, duplicates are removed.
const FOUND_MIN: usize = 4_096;
/// The longest delay; a longer one is ignored, as in RabbitMQ. Milliseconds.
pub const DELAY_MS_MAX: u64 = u32::MAX as u64;

/// The federation links that a message has passed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hops {
    /// How many.
    pub count: usize,
    /// Whether one of them started at the queried cluster and virtual host.
    pub seen: bool,
}

/// The parts of a message beside its keys, read only if an exchange needs them.
pub trait MessageView {
    /// Calls `visit` with the name and value of each header, in order.
    fn headers<'m>(&'m self, visit: &mut dyn FnMut(&'m [u8], ValueRef<'m>));

    /// Returns a property, if set.
    fn property(&self, which: Property) -> Option<ValueRef<'_>>;

    /// The links that the message has passed, and whether it has been at this cluster's virtual host.
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

/// A message to route.
#[derive(Clone, Copy)]
pub struct Message<'m> {
    /// Its routing key, then those of CC and BCC. Empty means without any key.
    pub keys: &'m [&'m [u8]],
    /// Its headers and properties.
    pub view: &'m dyn MessageView,
    /// A random number, which a local random exchange uses.
    pub random: u64,
    /// Its delay at the exchange that it is routed from is over.
    pub released: bool,
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("keys", &self.keys).field("released", &self.released).finish_non_exhaustive()
    }
}

/// A queue that a message is routed to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Routed {
    /// The queue.
    pub queue: QueueId,
    /// It is reached through alternate exchanges only: no binding of the exchange before them matched.
    pub alternate: bool,
}

/// An exchange that delays a message: route it from there later with [`Message::released`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delayed {
    /// The exchange.
    pub exchange: ExchangeId,
    /// After how many milliseconds.
    pub delay_ms: u64,
}

/// The result of routing a message.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'s> {
    /// The queues by id, without duplicates.
    pub queues: &'s [Routed],
    /// The exchanges that delay it, by id.
    pub delayed: &'s [Delayed],
}

impl Outcome<'_> {
    /// Whether it is routed to a queue, now or possibly later; otherwise a `mandatory` message is returned.
    #[must_use]
    pub fn is_routed(&self) -> bool {
        !self.queues.is_empty() || !self.delayed.is_empty()
    }
}

/// Exchanges and queues found so far.
#[derive(Default, Debug)]
struct Found {
    work: Vec<ExchangeId>,
    alternates: Vec<ExchangeId>,
    seen: Set<ExchangeId>,
    queues: Vec<Routed>,
    delayed: Vec<Delayed>,
    /// Duplicates are removed at this many queues.
    compact_at: usize,
}

impl Found {
    fn clear(&mut self) {
        self.work.clear();
        self.alternates.clear();
        self.seen.clear();
        self.queues.clear();
        self.delayed.clear();
        self.compact_at = FOUND_MIN;
    }

    fn queue(&mut self, queue: QueueId, alternate: bool) {
        self.queues.push(Routed { queue, alternate });
        if self.queues.len() >= self.compact_at {
            self.compact();
        }
    }

    /// Sorts the queues by id and removes duplicates.
    fn compact(&mut self) {
        self.queues.sort_unstable();
        self.queues.dedup_by_key(|routed| routed.queue);
        self.compact_at = FOUND_MIN.max(2 * self.queues.len());
    }

    fn outcome(&mut self) -> Outcome<'_> {
        if self.queues.len() > 1 {
            self.compact();
        }
        if self.delayed.len() > 1 {
            self.delayed.sort_unstable_by_key(|delayed| delayed.exchange);
        }
        Outcome { queues: &self.queues, delayed: &self.delayed }
    }
}

/// Reusable memory for routing. One per thread or connection.
#[derive(Default, Debug)]
pub struct Scratch {
    found: Found,
    headers: Vec<Header<'static>>,
    hashes: Hashes,
    walk: Walk,
}

impl Scratch {
    /// The steps taken in topic tries with it so far.
    #[must_use]
    pub fn topic_steps(&self) -> u64 {
        self.walk.steps
    }
}

/// The progress of routing.
#[derive(Default, Debug)]
struct Progress {
    /// The exchange where routing began.
    start: Option<ExchangeId>,
    /// Everything reached without an alternate exchange comes first; what follows is reached through one only.
    alternate: bool,
    /// The keys are names of queues in this virtual host, and whether these are reached through an alternate exchange.
    names: Option<(VhostId, bool)>,
    /// The exchange whose bindings are being checked at the pause, and how many matched.
    current: Option<ExchangeId>,
    matched: usize,
    /// The position in its bindings.
    at: Position,
    /// The position within one key.
    topic: Option<Box<PausedWalk>>,
}

/// Routing that has used up its steps. It holds the snapshot that it began on.
#[derive(Debug)]
pub struct PausedRouting {
    snapshot: Arc<Snapshot>,
    progress: Progress,
    found: Found,
}

impl Progress {
    fn begin(entry: Entry<'_>, found: &mut Found) -> Progress {
        found.clear();
        match entry {
            Entry::Default(vhost) => Progress { names: Some((vhost, false)), ..Progress::default() },
            Entry::Exchange(route) => Progress { start: Some(route.exchange.id), ..Progress::default() },
        }
    }
}

impl PausedRouting {
    /// Returns the snapshot that it continues on.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Continues for at most this many steps, which are subtracted, plus at most one unit of work. The message must be the one it began with.
    ///
    /// # Errors
    /// The steps are used up again.
    pub fn resume<'s>(
        self: Box<Self>,
        message: Message<'_>,
        scratch: &'s mut Scratch,
        steps: &mut u64,
    ) -> Result<Outcome<'s>, Box<PausedRouting>> {
        let PausedRouting { snapshot, mut progress, found } = *self;
        scratch.found = found;
        match snapshot.run(&mut progress, None, message, scratch, steps) {
            true => Ok(scratch.found.outcome()),
            false => Err(Box::new(PausedRouting { progress, found: std::mem::take(&mut scratch.found), snapshot })),
        }
    }
}

/// An exchange with its indexed bindings.
#[derive(Clone, Debug)]
pub struct Route {
    exchange: Arc<Exchange>,
    index: Index,
}

/// The start of routing.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// The default exchange of a virtual host: each key is the name of a queue.
    Default(VhostId),
    /// A declared exchange.
    Exchange(&'a Route),
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct Snapshot {
    exchange_names: Hamt<Name, ExchangeId>,
    queue_names: Hamt<Name, QueueId>,
    routes: Hamt<ExchangeId, Arc<Route>>,
}

/// The headers of a message, sorted on first use.
struct Headers<'m> {
    view: &'m dyn MessageView,
    /// The memory for them, until first use.
    spare: Vec<Header<'static>>,
    sorted: Vec<Header<'m>>,
    loaded: bool,
}

impl<'m> Headers<'m> {
    fn get(&mut self) -> &[Header<'m>] {
        if !std::mem::replace(&mut self.loaded, true) {
            self.sorted = recycle(std::mem::take(&mut self.spare));
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

/// The delay that a message requests, if valid.
fn delay_ms(headers: &[Header<'_>]) -> Option<u64> {
    let delay = match value_of(headers, DELAY_HEADER)? {
        ValueRef::Int(v) => u64::try_from(v).ok()?,
        // Truncated, as in RabbitMQ; NaN becomes 0.
        ValueRef::Float(v) => v as u64,
        ValueRef::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
        _ => return None,
    };
    (1..=DELAY_MS_MAX).contains(&delay).then_some(delay)
}

impl Snapshot {
    /// Applies a change.
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

    /// Takes over the names.
    pub(crate) fn set_names(&mut self, exchanges: &Hamt<Name, ExchangeId>, queues: &Hamt<Name, QueueId>) {
        self.exchange_names = exchanges.clone();
        self.queue_names = queues.clone();
    }

    /// Returns the start for messages to an exchange; `None` if it does not exist.
    #[must_use]
    pub fn entry(&self, vhost: VhostId, exchange: &[u8]) -> Option<Entry<'_>> {
        if exchange.is_empty() {
            return Some(Entry::Default(vhost));
        }
        let id = self.exchange_id(vhost, exchange)?;
        self.routes.get(&id).map(|route| Entry::Exchange(route))
    }

    /// Like [`Snapshot::entry`], by the exchange's id: where a delayed message continues.
    #[must_use]
    pub fn entry_by_id(&self, exchange: ExchangeId) -> Option<Entry<'_>> {
        self.routes.get(&exchange).map(|route| Entry::Exchange(route))
    }

    /// Returns the queue of a name.
    #[must_use]
    pub fn queue(&self, vhost: VhostId, name: &[u8]) -> Option<QueueId> {
        self.queue_names.find(Name::hash_of(vhost, name), |n| n.compare(vhost, name)).copied()
    }

    fn exchange_id(&self, vhost: VhostId, name: &[u8]) -> Option<ExchangeId> {
        self.exchange_names.find(Name::hash_of(vhost, name), |n| n.compare(vhost, name)).copied()
    }

    /// Routes a message from `entry`, with any number of steps.
    pub fn route<'s>(&self, entry: Entry<'_>, message: Message<'_>, scratch: &'s mut Scratch) -> Outcome<'s> {
        let mut progress = Progress::begin(entry, &mut scratch.found);
        // This many steps are never used up.
        self.run(&mut progress, entry.route(), message, scratch, &mut u64::MAX.clone());
        scratch.found.outcome()
    }

    /// Like [`Snapshot::route`], for at most this many steps, which are subtracted, plus at most one unit of work.
    ///
    /// # Errors
    /// The steps are used up: the remaining work.
    pub fn route_within<'s>(
        self: &Arc<Self>,
        entry: Entry<'_>,
        message: Message<'_>,
        scratch: &'s mut Scratch,
        steps: &mut u64,
    ) -> Result<Outcome<'s>, Box<PausedRouting>> {
        let mut progress = Progress::begin(entry, &mut scratch.found);
        if self.run(&mut progress, entry.route(), message, scratch, steps) {
            return Ok(scratch.found.outcome());
        }
        let found = std::mem::take(&mut scratch.found);
        Err(Box::new(PausedRouting { snapshot: self.clone(), progress, found }))
    }

    /// Returns whether routing is complete. `first` is the exchange where it begins.
    fn run(
        &self,
        progress: &mut Progress,
        first: Option<&Route>,
        message: Message<'_>,
        scratch: &mut Scratch,
        steps: &mut u64,
    ) -> bool {
        if progress.start.is_none() {
            // The default exchange uses keys only, and has no further bindings.
            let vhost = progress.names.map_or(VhostId(0), |(vhost, _)| vhost);
            return self.by_name(vhost, message.keys, false, progress, &mut scratch.found, steps);
        }
        let spare = std::mem::take(&mut scratch.headers);
        let mut headers = Headers { view: message.view, spare, sorted: Vec::new(), loaded: false };
        scratch.hashes.clear();
        let done = self.proceed(progress, first, &message, &mut headers, scratch, steps);
        if headers.loaded {
            *steps = steps.saturating_sub(headers.sorted.len() as u64 / HEADERS_PER_STEP);
            headers.spare = recycle(headers.sorted);
        }
        scratch.headers = headers.spare;
        done
    }

    fn proceed(
        &self,
        progress: &mut Progress,
        mut first: Option<&Route>,
        message: &Message<'_>,
        headers: &mut Headers<'_>,
        scratch: &mut Scratch,
        steps: &mut u64,
    ) -> bool {
        loop {
            if let Some((vhost, alternate)) = progress.names {
                if !self.by_name(vhost, message.keys, alternate, progress, &mut scratch.found, steps) {
                    return false;
                }
                (progress.names, progress.at) = (None, Position::default());
            }
            let route = if let Some(id) = progress.current.take() {
                self.route_of(id)
            } else {
                let next = match first.take() {
                    Some(route) => Some(route),
                    None => {
                        let next = scratch.found.work.pop().or_else(|| {
                            progress.alternate = true;
                            scratch.found.alternates.pop()
                        });
                        let Some(id) = next else { return true };
                        let is_new = progress.start != Some(id) && scratch.found.seen.insert(id);
                        if is_new { self.route_of(id) } else { None }
                    }
                };
                *steps = steps.saturating_sub(1);
                let entered = next.filter(|route| !route.delays(message, progress, headers, &mut scratch.found));
                if entered.is_none() && *steps == 0 {
                    return false;
                }
                entered
            };
            let Some(route) = route else { continue };
            if !route.walk(message, headers, progress, scratch, steps) {
                progress.current = Some(route.exchange.id);
                return false;
            }
            if progress.matched == 0 {
                self.alternate(&route.exchange, progress, &mut scratch.found);
            }
            (progress.matched, progress.at) = (0, Position::default());
        }
    }

    fn route_of(&self, exchange: ExchangeId) -> Option<&Route> {
        self.routes.get(&exchange).map(|route| &**route)
    }

    /// Resolves the keys as names of queues.
    fn by_name(
        &self,
        vhost: VhostId,
        keys: &[&[u8]],
        alternate: bool,
        progress: &mut Progress,
        found: &mut Found,
        steps: &mut u64,
    ) -> bool {
        while let Some(key) = keys.get(progress.at.part) {
            if *steps == 0 {
                return false;
            }
            *steps -= 1;
            progress.at.part += 1;
            if let Some(queue) = self.queue(vhost, key) {
                found.queue(queue, alternate);
            }
        }
        true
    }

    fn alternate(&self, exchange: &Exchange, progress: &mut Progress, found: &mut Found) {
        let Some(name) = exchange.effective_alternate() else { return };
        if name.is_empty() {
            progress.names = Some((exchange.vhost, true));
        } else if let Some(id) = self.exchange_id(exchange.vhost, name) {
            found.alternates.push(id);
        }
    }
}

impl<'a> Entry<'a> {
    /// Returns the exchange with its bindings.
    fn route(self) -> Option<&'a Route> {
        match self {
            Entry::Default(_) => None,
            Entry::Exchange(route) => Some(route),
        }
    }
}

impl Route {
    /// Returns the declared exchange.
    #[must_use]
    pub fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Whether the exchange delays the message.
    fn delays(&self, message: &Message<'_>, progress: &Progress, headers: &mut Headers<'_>, found: &mut Found) -> bool {
        let exchange = self.exchange.id;
        let is_released = || message.released && progress.start == Some(exchange);
        if !matches!(self.exchange.kind, Kind::Delayed(_)) || is_released() {
            return false;
        }
        let delay_ms = delay_ms(headers.get());
        found.delayed.extend(delay_ms.map(|delay_ms| Delayed { exchange, delay_ms }));
        delay_ms.is_some()
    }

    /// Collects the destinations of matching bindings, and counts them. Returns whether all bindings were checked.
    fn walk(
        &self,
        message: &Message<'_>,
        headers: &mut Headers<'_>,
        progress: &mut Progress,
        scratch: &mut Scratch,
        steps: &mut u64,
    ) -> bool {
        if *steps == 0 {
            return false;
        }
        let Scratch { found, walk, hashes, .. } = scratch;
        let Progress { alternate, matched, at, topic, .. } = progress;
        let mut emit = |target: &Target| {
            *matched += 1;
            match target.to {
                Destination::Queue(queue) => found.queue(queue, *alternate),
                Destination::Exchange(id) => found.work.push(id),
            }
        };
        match &self.index {
            Index::Direct(keys) => {
                while let Some(key) = message.keys.get(at.part) {
                    if *steps == 0 {
                        return false;
                    }
                    let list = Index::exact(keys, key);
                    if let Some(from) = list.and_then(|list| list.emit(at.from, steps, &mut emit)) {
                        at.from = from;
                        return false;
                    }
                    *steps = steps.saturating_sub(1);
                    *at = Position { part: at.part + 1, from: 0 };
                }
            }
            Index::All(all) => match self.exchange.kind.routes_as() {
                Kind::LocalRandom => {
                    let random = hash_number(message.random ^ self.exchange.id.0);
                    all.pick(random.checked_rem(all.weight()).unwrap_or(0)).into_iter().for_each(emit);
                }
                Kind::Federation(to) => {
                    let hops = message.view.hops(&to.cluster, &to.vhost);
                    if hops.count < to.hops_max as usize && !hops.seen {
                        return emit_all(all, at, steps, &mut emit);
                    }
                }
                _ => return emit_all(all, at, steps, &mut emit),
            },
            Index::Topic(topics) => {
                while let Some(key) = message.keys.get(at.part) {
                    if *steps == 0 {
                        return false;
                    }
                    *topic = match topic.take() {
                        None => topics.walk(key, walk, steps, &mut emit),
                        Some(mut paused) => paused.resume(key, walk, steps, &mut emit),
                    };
                    if topic.is_some() {
                        return false;
                    }
                    at.part += 1;
                }
            }
            Index::Headers(rules) => {
                let headers = if rules.wants_headers() { headers.get() } else { &[] };
                return rules.walk(headers, hashes, at, steps, &mut emit);
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
        true
    }
}

/// Emits all targets of a list; returns whether the steps sufficed.
#[inline]
fn emit_all(all: &List<Target>, at: &mut Position, steps: &mut u64, emit: &mut impl FnMut(&Target)) -> bool {
    match all.emit(at.from, steps, emit) {
        None => true,
        Some(from) => {
            at.from = from;
            false
        }
    }
}

/// The latest snapshot, shared by any number of threads.
#[derive(Debug, Default)]
pub struct SharedRouter(ArcSwap<Snapshot>);

impl SharedRouter {
    /// Returns the latest snapshot. Hold it for a message or a batch, not for long: it delays replaced parts in memory.
    #[must_use]
    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.0.load()
    }

    pub(crate) fn store(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
