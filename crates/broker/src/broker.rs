//! The broker: routes each request to its shard or state machine, and replies once the result is committed.

use crate::admin::FreeBytes;
use crate::background::Due;
use crate::backup::Backups;
use crate::config::BrokerConfig;
use crate::datadir::DataDir;
use crate::error::{Error, ErrorKind, Result};
use crate::hosts::Places;
use crate::machines::{Expects, Machines, Outbox};
use crate::open::shard_of_class;
use crate::pending::PendingAppend;
use crate::queues::{Consumers, DeadLetterMover, Directs};
use crate::readers::Readers;
use crate::reserve::Reserve;
use crate::room::{Alarm, HeldPublishes};
use crate::shard::{AppendTerms, Parked, Shard, ShardState};
use crate::sink::{Origin, ReplySink, SessionId};
use crate::status::Gauges;
use crate::tuning::Tunables;
use parking_lot::{Condvar, Mutex, RwLock};
use polylogue_api::machine::Slots;
use polylogue_api::{
    AppendEntry, AppendError, AppendRequest, Catalog, Context, CreateTopics, EpochEnd, EpochEndQuery, FollowRequest,
    MachineId, Now, ReadError, Reply, Request, Token, TopicError, Unavailable, WatchRequest,
};
use polylogue_env::{Env, JoinTask};
use polylogue_meta::{MetaCommand, SharedCatalog};
use polylogue_types::{Map, Offset, PartitionId, ShardId, Term};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One shard's part of an append: entries with their positions in the request.
type ShardPart = (Arc<Shard>, Vec<(u32, AppendEntry)>);

/// One shard's part of a watch request.
type ShardSeen = (Arc<Shard>, Vec<(PartitionId, Offset)>);

/// A running broker. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Broker {
    pub(crate) inner: Arc<Inner>,
}

/// What all parts of the broker share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) config: BrokerConfig,
    pub(crate) data: DataDir,
    pub(crate) reserve: Reserve,
    pub(crate) meta_shard: ShardId,
    pub(crate) shards: RwLock<BTreeMap<ShardId, Arc<Shard>>>,
    /// The shard that each partition is written to.
    pub(crate) routes: RwLock<Map<PartitionId, Arc<Shard>>>,
    /// The machines of the metadata's shard.
    pub(crate) machines: Mutex<Machines>,
    /// The machines that live in slots, of which other shards have some too.
    pub(crate) slotted: BTreeMap<MachineId, Arc<dyn Slots>>,
    /// Where their slots are.
    pub(crate) places: RwLock<BTreeMap<MachineId, Arc<Places>>>,
    pub(crate) catalog: Arc<SharedCatalog>,
    pub(crate) readers: Readers,
    pub(crate) gauges: Gauges,
    pub(crate) next_session: AtomicU64,
    pub(crate) disk_full: AtomicBool,
    pub(crate) alarm: Alarm,
    pub(crate) backups: Arc<Backups>,
    pub(crate) held: HeldPublishes,
    pub(crate) free_bytes: FreeBytes,
    pub(crate) tunables: Tunables,
    pub(crate) stopping: AtomicBool,
    /// The queue of each consumer.
    pub(crate) consumers: Mutex<Consumers>,
    /// The dead-letter mover's session and its unacknowledged messages. Locked after a shard's state.
    pub(crate) mover: Mutex<DeadLetterMover>,
    pub(crate) directs: Mutex<Directs>,
    /// Wakes the timer thread when a machine's deadline may have become earlier.
    pub(crate) timer: (Mutex<bool>, Condvar),
    /// Wakes the worker thread.
    pub(crate) background: (Mutex<bool>, Condvar),
    pub(crate) threads: Mutex<Vec<Box<dyn JoinTask>>>,
    pub(crate) due: Mutex<Due>,
    /// This node is the writer of its shards, or is becoming it; otherwise it is a follower.
    pub(crate) leads: AtomicBool,
    /// The threads have been started.
    pub(crate) running: AtomicBool,
    /// All shards found at the start are open, with all of their partitions.
    pub(crate) recovered: AtomicBool,
    pub(crate) started_ns: u64,
    /// Held while a shard is opened after the start.
    pub(crate) opening: Mutex<()>,
    /// A weak reference to this value, for shards that are opened after the start.
    pub(crate) this: std::sync::Weak<Inner>,
}

impl Broker {
    /// Returns a new session id.
    #[must_use]
    pub fn new_session(&self) -> SessionId {
        SessionId(self.inner.next_session.fetch_add(1, Ordering::Relaxed))
    }

    /// The topics, as applied.
    #[must_use]
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        self.inner.catalog.clone()
    }

    /// The clock that sessions use.
    #[must_use]
    pub fn now(&self) -> Now {
        self.inner.now()
    }

    /// Accepts a request. Never blocks on the disk. `from` gets exactly one reply under `token`, possibly before this returns.
    pub fn submit(&self, from: &Arc<dyn ReplySink>, session: SessionId, token: Token, request: Request) {
        let origin = Origin { sink: from.clone(), session, token };
        match request {
            Request::Append(request) => self.inner.append(origin, request),
            Request::Read(request) => Inner::read(&self.inner, origin, request),
            Request::Watch(request) => self.inner.watch(origin, request),
            Request::Unwatch(watched) => self.inner.unwatch(session, watched),
            Request::Follow(request) => self.inner.follow(origin, &request),
            Request::Unfollow(set) => self.inner.unfollow(session, set),
            Request::FindOffsets(queries) => Inner::find_offsets(&self.inner, origin, queries),
            Request::EpochEnds(queries) => {
                let ends = queries.iter().map(|q| self.inner.epoch_end(*q)).collect();
                origin.reply(Reply::EpochEnds(ends));
            }
            Request::AllocateProducerId => {
                self.inner.command(
                    MachineId::META,
                    origin,
                    Expects::Producer,
                    Box::new(MetaCommand::AllocateProducerId),
                );
            }
            Request::CreateTopics(command) => {
                if let Err(why) = self.inner.open_classes(&command) {
                    let refused = command.topics.iter().map(|_| Err(TopicError::Unavailable(why))).collect();
                    return origin.reply(Reply::CreateTopics(refused));
                }
                let expects = Expects::CreatedTopics(command.topics.len());
                self.inner.command(MachineId::META, origin, expects, Box::new(MetaCommand::CreateTopics(command)));
            }
            Request::DeleteTopics(command) => {
                let expects = Expects::DeletedTopics(command.topics.len());
                self.inner.command(MachineId::META, origin, expects, Box::new(MetaCommand::DeleteTopics(command)));
            }
            Request::AlterTopics(command) => {
                let expects = Expects::AlteredTopics(command.changes.len());
                self.inner.command(MachineId::META, origin, expects, Box::new(MetaCommand::AlterTopics(command)));
            }
            Request::AlterSettings(command) => {
                let expects = Expects::AlteredSettings(command.changes.len());
                self.inner.command(MachineId::META, origin, expects, Box::new(MetaCommand::AlterSettings(command)));
            }
            Request::TrimPartitions(trims) => self.inner.trim(origin, trims),
            Request::DescribePartitions(ids) => {
                origin.reply(Reply::DescribePartitions(self.inner.partition_sizes(&ids)));
            }
            Request::DescribeProducers(ids) => origin.reply(Reply::DescribeProducers(self.inner.producers(&ids))),
            Request::DescribeMetadataLog => origin.reply(Reply::DescribeMetadataLog(self.inner.metadata_log())),
            Request::Machine(id, command) => self.inner.command(id, origin, Expects::Machine, command),
            Request::Publish(request) => self.inner.publish(origin, request),
            Request::Attach(attach) => self.inner.attach(origin, &attach),
            Request::AttachReader(attach) => self.inner.attach_reader(origin, &attach),
            Request::Detach(consumer) => self.inner.detach(session, consumer),
            Request::Stop(consumer) => self.inner.stop_consumer(origin, consumer),
            Request::Credit(consumer, more) => self.inner.credit(session, consumer, more),
            Request::Share(consumer, limit) => self.inner.share(session, consumer, limit),
            Request::Offer(limit) => self.inner.offer(vec![limit]),
            Request::Settle(request) => self.inner.settle(origin, &request),
            Request::Take(take) => self.inner.take(origin, take),
            Request::Purge(queue) => self.inner.purge(origin, queue),
            Request::DescribeQueues(queues) => origin.reply(Reply::DescribeQueues(self.inner.queue_counts(&queues))),
            Request::PeekQueues(peek) => self.inner.peek_queues(origin, peek),
            Request::AttachDirect => self.inner.attach_direct(origin),
            Request::SendDirect(messages) => self.inner.send_direct(origin, &messages),
            Request::MoveDead => self.inner.move_dead(&origin),
            Request::DeadMoved(outcomes) => self.inner.dead_moved(session, &outcomes),
        }
    }

    /// Ends a session: drops its watches and parked calls. Its proposed records are still written.
    pub fn session_gone(&self, session: SessionId) {
        let inner = &self.inner;
        inner.detach_session(session);
        inner.mover.lock().gone(session);
        inner.directs.lock().gone(session);
        for shard in inner.all_shards() {
            let ShardState { watches, follows, partitions, .. } = &mut *shard.state.lock();
            watches.remove_session(partitions, session.0);
            follows.remove_session(partitions, session.0);
        }
        let mut outbox = Outbox::new();
        let context = inner.context();
        for shard in inner.hosts() {
            inner.hosted(&shard, |machines| machines.session_gone(session.0, &context, &shard, &mut outbox));
        }
        inner.send(outbox);
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Now {
        let monotonic_ms = self.env.clock.monotonic_ns().saturating_sub(self.started_ns) / 1_000_000;
        Now { wall_ms: self.env.clock.now_ms(), monotonic_ms }
    }

    /// The context for a call of a machine at the current time.
    pub(crate) fn context(&self) -> Context<'_> {
        Context { now: self.now(), catalog: self.catalog.as_ref(), queues: self, random: self.env.rng.next_u64() }
    }

    pub(crate) fn all_shards(&self) -> Vec<Arc<Shard>> {
        self.shards.read().values().cloned().collect()
    }

    /// Returns the shard with this id; opens it if needed.
    pub(crate) fn shard(&self, id: ShardId) -> Result<Arc<Shard>> {
        let known = self.shards.read().get(&id).cloned();
        let _one_at_a_time = known.is_none().then(|| self.opening.lock());
        let known = known.or_else(|| self.shards.read().get(&id).cloned());
        match known {
            Some(shard) => Ok(shard),
            None => match self.this.upgrade() {
                Some(this) => this.open_late(id),
                None => Err(Error::new(ErrorKind::Io, "the broker is shutting down")),
            },
        }
    }

    /// Opens the shards of durability classes that the new topics are the first to use. After the topic's record is committed it would be too late to
    /// report a lack of disk space.
    fn open_classes(&self, command: &CreateTopics) -> std::result::Result<(), Unavailable> {
        if !self.leads() {
            return Err(Unavailable::NotCommitted);
        }
        for shard in command.topics.iter().filter_map(|topic| shard_of_class(topic.config.durability)) {
            self.shard(shard).map_err(|e| match e.kind {
                ErrorKind::StorageFull => Unavailable::StorageFull,
                _ => Unavailable::Busy,
            })?;
        }
        Ok(())
    }

    pub(crate) fn term_of(&self, shard: ShardId) -> Term {
        self.shards.read().get(&shard).map(|s| s.state.lock().term).unwrap_or_default()
    }

    pub(crate) fn send(&self, outbox: Outbox) {
        for (origin, reply) in outbox {
            origin.reply(reply);
        }
    }

    pub(crate) fn deadlines_changed(&self) {
        *self.timer.0.lock() = true;
        self.timer.1.notify_one();
    }

    fn append(&self, origin: Origin, request: AppendRequest) {
        let count = request.entries.len();
        let mut results = vec![Err(AppendError::UnknownPartition); count];
        if self.stopping.load(Ordering::Relaxed) || self.disk_full.load(Ordering::Relaxed) {
            let error = match self.stopping.load(Ordering::Relaxed) {
                true => AppendError::Unavailable(Unavailable::Stopping),
                false => AppendError::Unavailable(Unavailable::StorageFull),
            };
            results.fill(Err(error));
            return origin.reply(Reply::Append(results));
        }
        let parts = self.by_shard(request.entries);
        let now_ms = self.env.clock.now_ms();
        let terms = AppendTerms { ack: request.ack, now_ms, oldest_producer_ms: self.oldest_producer_ms(now_ms) };
        match parts.as_slice() {
            [_] => self.append_one(origin, parts, terms, results),
            _ => self.append_many(origin, parts, terms, results),
        }
    }

    /// Groups the entries by shard, with their positions in the request.
    fn by_shard(&self, entries: Vec<AppendEntry>) -> Vec<ShardPart> {
        let mut parts: Vec<ShardPart> = Vec::with_capacity(1);
        let total = entries.len();
        let routes = self.routes.read();
        for (position, entry) in (0u32..).zip(entries) {
            let Some(shard) = routes.get(&entry.partition) else { continue };
            match parts.iter_mut().find(|(other, _)| other.id == shard.id) {
                Some((_, part)) => part.push((position, entry)),
                None => {
                    let mut part = Vec::with_capacity(total);
                    part.push((position, entry));
                    parts.push((shard.clone(), part));
                }
            }
        }
        parts
    }

    fn append_one(
        &self,
        origin: Origin,
        mut parts: Vec<ShardPart>,
        terms: AppendTerms,
        mut results: Vec<std::result::Result<polylogue_api::Appended, AppendError>>,
    ) {
        let Some((shard, entries)) = parts.pop() else { return };
        let mut state = shard.state.lock();
        let outcome = shard.append(&mut state, entries, terms);
        place(&mut results, outcome.results);
        match outcome.waits {
            Some((ticket, waiting)) => {
                let pending = Arc::new(PendingAppend::new(origin, results, 1));
                Shard::park(&mut state, ticket, Parked::Append(pending, waiting));
                drop(state);
            }
            None => {
                drop(state);
                origin.reply(Reply::Append(results));
            }
        }
        if outcome.prompt {
            shard.log.write_prompt();
        }
    }

    /// An append whose partitions are in several shards (or in none): replied to when the last shard has committed.
    fn append_many(
        &self,
        origin: Origin,
        parts: Vec<ShardPart>,
        terms: AppendTerms,
        mut results: Vec<std::result::Result<polylogue_api::Appended, AppendError>>,
    ) {
        // Each shard's state stays locked until its part is parked, so that no part completes before the number of parts is known. The shards are
        // always locked in the same order.
        let mut parts = parts;
        parts.sort_by_key(|(shard, _)| shard.id);
        let shards: Vec<_> = parts.iter().map(|(shard, _)| shard.clone()).collect();
        let mut states: Vec<_> = shards.iter().map(|shard| shard.state.lock()).collect();
        let (mut waits, mut prompt) = (Vec::new(), Vec::new());
        for ((i, (shard, entries)), state) in parts.into_iter().enumerate().zip(&mut states) {
            let outcome = shard.append(state, entries, terms);
            place(&mut results, outcome.results);
            waits.extend(outcome.waits.map(|(ticket, waiting)| (i, ticket, waiting)));
            prompt.extend(outcome.prompt.then_some(i));
        }
        if waits.is_empty() {
            drop(states);
            return origin.reply(Reply::Append(results));
        }
        let pending = Arc::new(PendingAppend::new(origin, results, waits.len()));
        for (i, ticket, waiting) in waits {
            if let Some(state) = states.get_mut(i) {
                Shard::park(state, ticket, Parked::Append(pending.clone(), waiting));
            }
        }
        drop(states);
        prompt.into_iter().filter_map(|i| shards.get(i)).for_each(|shard| shard.log.write_prompt());
    }

    fn watch(&self, origin: Origin, request: WatchRequest) {
        // Partitions of several shards: the watch is registered in each shard. The first event ends it for the session, which then unwatches. A
        // watcher may receive two events; sessions ignore unknown tokens.
        let followed = |set: u64| self.wait_for_set(&origin, set);
        let waits = request.followed.is_none_or(followed)
            && self.watched_by_shard(request.seen).is_some_and(|by_shard| {
                by_shard.into_iter().all(|(shard, seen)| {
                    let ShardState { watches, partitions, .. } = &mut *shard.state.lock();
                    watches.add(partitions, origin.clone(), seen)
                })
            });
        if !waits {
            self.unwatch(origin.session, origin.token);
            origin.sink.event(polylogue_api::Event::Changed(origin.token));
        }
    }

    /// Groups watched partitions by shard; nearly always there is one shard. `None` if a partition does not exist.
    fn watched_by_shard(&self, seen: Vec<(PartitionId, Offset)>) -> Option<Vec<ShardSeen>> {
        let routes = self.routes.read();
        let Some((first, _)) = seen.first() else { return Some(Vec::new()) };
        let shard = routes.get(first)?;
        if seen.iter().all(|(partition, _)| routes.get(partition).is_some_and(|other| Arc::ptr_eq(other, shard))) {
            return Some(vec![(shard.clone(), seen)]);
        }
        let mut by_shard: Vec<ShardSeen> = Vec::new();
        for seen in seen {
            let shard = routes.get(&seen.0)?;
            match by_shard.iter_mut().find(|(other, _)| Arc::ptr_eq(other, shard)) {
                Some((_, part)) => part.push(seen),
                None => by_shard.push((shard.clone(), vec![seen])),
            }
        }
        Some(by_shard)
    }

    fn unwatch(&self, session: SessionId, token: Token) {
        for shard in self.all_shards() {
            let ShardState { watches, follows, partitions, .. } = &mut *shard.state.lock();
            watches.remove(partitions, (session.0, token));
            follows.unwatch((session.0, token));
        }
    }

    /// Registers a watch for the next change in a followed set. Returns `false` if a change is pending already.
    fn wait_for_set(&self, origin: &Origin, set: u64) -> bool {
        let waits = |shard: &Arc<Shard>| shard.state.lock().follows.wait((origin.session.0, set), origin.clone());
        self.all_shards().iter().all(waits)
    }

    /// Changes a followed set, and replies with its changes.
    fn follow(&self, origin: Origin, request: &FollowRequest) {
        let key = (origin.session.0, request.set);
        let mut changed: Vec<PartitionId> = {
            let routes = self.routes.read();
            request.add.iter().filter(|partition| !routes.contains_key(*partition)).copied().collect()
        };
        for shard in self.all_shards() {
            let ShardState { follows, partitions, .. } = &mut *shard.state.lock();
            // A partition that was found again may be in both lists.
            follows.leave(partitions, key, &request.remove);
            follows.add(partitions, key, &request.add);
            follows.take(partitions, key, &mut changed);
        }
        origin.reply(Reply::Follow(changed));
    }

    fn unfollow(&self, session: SessionId, set: u64) {
        for shard in self.all_shards() {
            let ShardState { follows, partitions, .. } = &mut *shard.state.lock();
            follows.remove(partitions, (session.0, set));
        }
    }

    fn epoch_end(&self, query: EpochEndQuery) -> std::result::Result<EpochEnd, ReadError> {
        let shard = self.routes.read().get(&query.partition).cloned().ok_or(ReadError::UnknownPartition)?;
        let state = shard.state.lock();
        let partition = state.partitions.get(&query.partition).ok_or(ReadError::UnknownPartition)?;
        // Entries in the store are committed. A reader may have read one before the shard's state has the new end.
        let stored = shard.store.partition_stats(query.partition).map(|stats| stats.end);
        let (epoch, end) = partition.epoch_end(query.epoch, stored.unwrap_or_default());
        Ok(EpochEnd { epoch, end })
    }
}

fn place<T: Clone>(into: &mut [T], results: Vec<(u32, T)>) {
    for (position, result) in results {
        if let Some(slot) = into.get_mut(position as usize) {
            *slot = result;
        }
    }
}
