//! The router as a state machine on the log.
//!
//! Proposed state (*tail*) is kept beside committed state (*applied*). [`Router::plan`] checks commands against the tail and puts their changes into
//! one record; [`Router::apply`] is the only place where applied state changes. Routing threads see applied state, published by [`Router::publish`].

use crate::change::{self, Chunk, ChunkId};
use crate::command::{Command, Limits, Reply, plan};
use crate::definitions::{Definitions, RouterEvent};
use crate::error::RouterError;
use crate::ids::BindingId;
use crate::objects::Binding;
use crate::snapshot::{SharedRouter, Snapshot};
use bytes::Bytes;
use polylogue_types::bin::BinError;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The plan for commands.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The record to propose; `None` when nothing changes and no proposal is uncommitted. It may be without a change: the replies then depend on
    /// uncommitted proposals, and must not be sent before they are committed.
    pub record: Option<Bytes>,
    /// The replies to send once the record is committed, in the order of the commands.
    pub replies: Vec<Reply>,
}

/// The proposed state at one moment; making it takes constant time.
#[derive(Clone, Debug)]
pub struct Proposed {
    tail: Definitions,
    in_flight: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Router {
    limits: Limits,
    applied: Definitions,
    routes: Snapshot,
    shared: Arc<SharedRouter>,
    unpublished: bool,
    // Tail: the proposed state beyond the applied one, and in how many records.
    tail: Definitions,
    in_flight: u64,
    /// Replay is over: a tail is kept.
    live: bool,
    changed: BTreeSet<ChunkId>,
    /// Bindings of a checkpoint whose ends may not have been loaded yet.
    loading: Vec<Arc<Binding>>,
}

impl Router {
    /// Makes an empty router.
    #[must_use]
    pub fn new(limits: Limits) -> Router {
        Router {
            limits,
            applied: Definitions::default(),
            routes: Snapshot::default(),
            shared: Arc::default(),
            unpublished: false,
            tail: Definitions::default(),
            in_flight: 0,
            live: false,
            changed: BTreeSet::new(),
            loading: Vec::new(),
        }
    }

    /// Returns the routing state that is updated with each published state.
    #[must_use]
    pub fn shared(&self) -> Arc<SharedRouter> {
        self.shared.clone()
    }

    /// Returns the committed state.
    #[must_use]
    pub fn definitions(&self) -> &Definitions {
        &self.applied
    }

    /// Returns the state as it will be when all proposals are committed.
    #[must_use]
    pub fn proposed(&self) -> &Definitions {
        &self.tail
    }

    /// Returns the proposed state, for [`Router::take_back`].
    #[must_use]
    pub fn mark(&self) -> Proposed {
        Proposed { tail: self.tail.clone(), in_flight: self.in_flight }
    }

    /// The log refused all records planned since the mark: restores the proposed state. Nothing was applied since.
    pub fn take_back(&mut self, mark: Proposed) {
        (self.tail, self.in_flight) = (mark.tail, mark.in_flight);
    }

    /// Checks commands, all of them or none, and makes one record of their changes. The record must be proposed, or [`Router::take_back`] or
    /// [`Router::reset_tail`] called.
    ///
    /// # Errors
    /// The position of the refused command, and the reason. Nothing is changed then.
    pub fn plan(&mut self, commands: &[Command]) -> Result<Plan, (usize, RouterError)> {
        let mut tail = self.tail.clone();
        let mut changes = Vec::new();
        let mut replies = Vec::with_capacity(commands.len());
        for (position, command) in commands.iter().enumerate() {
            let mut events = Vec::new();
            let planned = plan(&tail, &self.limits, command).map_err(|why| (position, why))?;
            if let Some(change) = &planned {
                tail.apply(change, &mut events);
            }
            changes.extend(planned);
            replies.push(Reply { events });
        }
        let record = (!changes.is_empty() || self.in_flight > 0).then(|| change::encode(&changes));
        self.in_flight += u64::from(record.is_some());
        self.tail = tail;
        Ok(Plan { record, replies })
    }

    /// Applies a committed record and returns its effects.
    ///
    /// # Errors
    /// When the record cannot be decoded.
    pub fn apply(&mut self, record: &[u8]) -> Result<Vec<RouterEvent>, String> {
        let changes =
            change::decode(record).map_err(|e: BinError| format!("a record of the router cannot be read: {e}"))?;
        self.settle();
        let mut events = Vec::new();
        changes.iter().for_each(|change| self.applied.apply(change, &mut events));
        self.follow(&events);
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.live && self.in_flight == 0 {
            self.tail = self.applied.clone();
        }
        Ok(events)
    }

    /// Called after replay, and when proposals are dropped: the tail is copied from applied state again.
    pub fn reset_tail(&mut self) {
        self.settle();
        self.live = true;
        self.in_flight = 0;
        self.tail = self.applied.clone();
        self.publish();
    }

    /// Publishes applied state to routing threads. Called after the records of a frame; takes constant time.
    pub fn publish(&mut self) {
        if std::mem::take(&mut self.unpublished) {
            self.routes.set_names(&self.applied.exchange_names, &self.applied.queue_names);
            self.shared.store(self.routes.clone());
        }
    }

    fn follow(&mut self, events: &[RouterEvent]) {
        for event in events {
            self.routes.follow(event);
            self.note_changed(event);
        }
        self.unpublished |= !events.is_empty();
    }

    fn note_changed(&mut self, event: &RouterEvent) {
        let chunk = match event {
            RouterEvent::VhostAdded(id) | RouterEvent::VhostRemoved(id) => ChunkId::Vhost(*id),
            RouterEvent::ExchangeDeclared(exchange)
            | RouterEvent::ExchangeChanged(exchange)
            | RouterEvent::ExchangeDeleted(exchange, _) => ChunkId::Exchange(exchange.id),
            RouterEvent::QueueAdded(queue) | RouterEvent::QueueRemoved(queue, _) => ChunkId::Queue(queue.id),
            RouterEvent::Bound(binding) | RouterEvent::Unbound(binding, _) => ChunkId::of(binding.id),
        };
        self.changed.insert(chunk);
        self.changed.insert(ChunkId::Counters);
    }

    /// Returns the chunks of applied state that changed since the last call, `None` for deleted ones.
    pub fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        self.settle();
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|id| (id.encode(), self.chunk(id).map(|chunk| chunk.encode()))).collect()
    }

    fn chunk(&self, id: ChunkId) -> Option<Chunk> {
        let applied = &self.applied;
        Some(match id {
            ChunkId::Counters => {
                Chunk::Counters { next_exchange: applied.next_exchange, next_binding: applied.next_binding }
            }
            ChunkId::Vhost(id) => applied.vhosts.get(&id).map(|()| Chunk::Vhost(id))?,
            ChunkId::Exchange(id) => Chunk::Exchange(applied.exchanges.get(&id)?.clone()),
            ChunkId::Queue(id) => Chunk::Queue(applied.queues.get(&id)?.clone()),
            ChunkId::Bindings(number) => {
                let bindings: Vec<_> =
                    ChunkId::bindings(number).filter_map(|id| applied.bindings.get(&id).cloned()).collect();
                if bindings.is_empty() {
                    return None;
                }
                Chunk::Bindings(bindings)
            }
        })
    }

    /// Marks every chunk as changed.
    pub fn change_all_chunks(&mut self) {
        self.settle();
        let changed = &mut self.changed;
        changed.insert(ChunkId::Counters);
        self.applied.vhosts.for_each(&mut |id, ()| _ = changed.insert(ChunkId::Vhost(*id)));
        self.applied.exchanges.for_each(&mut |id, _| _ = changed.insert(ChunkId::Exchange(*id)));
        self.applied.queues.for_each(&mut |id, _| _ = changed.insert(ChunkId::Queue(*id)));
        self.applied.bindings.for_each(&mut |id: &BindingId, _| _ = changed.insert(ChunkId::of(*id)));
    }

    /// Loads a chunk of a checkpoint, before replay; in any order.
    ///
    /// # Errors
    /// When the chunk is invalid.
    pub fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), String> {
        let id = ChunkId::decode(id).ok_or_else(|| format!("the router has no chunk named {id:?}"))?;
        let chunk = Chunk::decode(id, chunk).map_err(|e| format!("the router's chunk {id:?} cannot be read: {e}"))?;
        let mut events = Vec::new();
        match chunk {
            Chunk::Counters { next_exchange, next_binding } => {
                self.applied.next_exchange = self.applied.next_exchange.max(next_exchange);
                self.applied.next_binding = self.applied.next_binding.max(next_binding);
            }
            Chunk::Vhost(id) => _ = self.applied.vhosts.insert(id, ()),
            Chunk::Exchange(exchange) => self.applied.add_exchange(exchange, &mut events),
            Chunk::Queue(queue) => self.applied.add_queue(queue, &mut events),
            Chunk::Bindings(bindings) => self.loading.extend(bindings),
        }
        events.iter().for_each(|event| self.routes.follow(event));
        self.unpublished = true;
        Ok(())
    }

    /// Adds the bindings of a checkpoint, once all their ends are loaded. The next checkpoint need not write them again.
    fn settle(&mut self) {
        if self.loading.is_empty() {
            return;
        }
        let mut loading = std::mem::take(&mut self.loading);
        loading.sort_unstable_by_key(|binding| binding.id);
        let mut events = Vec::new();
        for binding in loading {
            self.applied.add_binding(binding, &mut events);
        }
        events.iter().for_each(|event| self.routes.follow(event));
    }
}
