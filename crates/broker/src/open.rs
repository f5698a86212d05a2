//! Opening a data directory: checkpoint, replay, a new term, threads.
//!
//! ```text
//!   manifest ──> segments' run tables          checkpoint ──> machines, then partitions
//!                         \                        /
//!        journal from min(merged, checkpointed) + 1: frames above each mark are applied to that side
//!                                      |
//!                     acquire (a new term is durable) ──> machines ready ──> catalog ──> threads
//! ```

use crate::admin::FreeBytes;
use crate::broker::{Broker, Inner};
use crate::checkpoint::{self, Chunk};
use crate::commit::ShardSink;
use crate::config::BrokerConfig;
use crate::datadir::DataDir;
use crate::error::{Error, ErrorKind, Result};
use crate::machines::{Hosted, Machines, NoMeta, Outbox};
use crate::openings;
use crate::partition::Partition;
use crate::queues::Queues;
use crate::record::BROKER_PARTITION;
use crate::reserve::Reserve;
use crate::shard::{Shard, ShardState};
use crate::status::Gauges;
use crate::tuning::Tunables;
use parking_lot::{Condvar, Mutex, RwLock};
use polylogue_api::{ClusterInfo, Durability, MachineId, StateMachine};
use polylogue_env::Env;
use polylogue_log::Frame;
use polylogue_log::checkpoint::CheckpointStore;
use polylogue_log::journal::{self, Journal, StartOfLife};
use polylogue_log::store::{ShardStore, StoreConfig};
use polylogue_meta::{META_SHARD, MetaEvent, MetaMachine, MetaSettings, SharedCatalog, TopicMeta};
use polylogue_replicate::ShardLog;
use polylogue_replicate::local::LocalLog;
use polylogue_replicate::memory::MemoryLog;
use polylogue_types::{Index, Map, Offset, Ordinal, PartitionId, ShardId, Term, TopicId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The shard of class `async`. Part of the disk format, as are all shard ids. Shards of class `sync` have lower ids.
pub(crate) const ASYNC_SHARD: ShardId = ShardId(1000);
/// The shard of class `memory`.
pub(crate) const MEMORY_SHARD: ShardId = ShardId(2000);

/// Returns the shard of a class that has a single shard, opened when a topic needs it.
pub(crate) fn shard_of_class(class: Durability) -> Option<ShardId> {
    match class {
        Durability::Sync => None,
        Durability::Async => Some(ASYNC_SHARD),
        Durability::Memory => Some(MEMORY_SHARD),
    }
}

impl Broker {
    /// Opens and recovers a data directory. No thread runs yet: call [`Broker::start`], or step it.
    ///
    /// # Errors
    /// One line that states the fault and the remedy; the directory is unchanged if it is locked, incompatible or damaged.
    pub fn open(env: Env, config: BrokerConfig, others: BTreeMap<MachineId, Box<dyn StateMachine>>) -> Result<Broker> {
        let inner = Inner::unopened(env, config, others)?;
        inner.recover()?;
        Ok(Broker { inner })
    }
}

impl Inner {
    /// Returns a broker that holds its directory and has read none of it.
    pub(crate) fn unopened(
        env: Env,
        config: BrokerConfig,
        others: BTreeMap<MachineId, Box<dyn StateMachine>>,
    ) -> Result<Arc<Inner>> {
        config.store.check().map_err(Error::from)?;
        let data = DataDir::open(&env, &config.data_dir, config.node)?;
        let reserve = Reserve::open(&env, &config.data_dir, config.disk_reserve_bytes);
        let slotted = others.iter().filter_map(|(id, machine)| Some((*id, machine.slots()?))).collect();
        let settings = MetaSettings {
            // They are recorded before any partition is placed.
            sync_shards: Vec::new(),
            async_shard: ASYNC_SHARD,
            memory_shard: MEMORY_SHARD,
            partitions_max: config.partitions_max,
            node: data.identity.node,
            resolver: config.resolver.clone(),
        };
        let cluster = ClusterInfo {
            // Kafka's own cluster ids have this form (22 characters).
            cluster_id: TopicId::from_random(data.identity.cluster_id).to_string().into(),
            node: data.identity.node,
        };
        let inner = Arc::new_cyclic(|this| Inner {
            this: this.clone(),
            started_ns: env.clock.monotonic_ns(),
            meta_shard: META_SHARD,
            shards: RwLock::default(),
            routes: RwLock::new(Map::default()),
            machines: Mutex::new(Machines::new(MetaMachine::new(settings), others)),
            slotted,
            places: RwLock::default(),
            catalog: Arc::new(SharedCatalog::new(cluster, config.resolver.clone())),
            readers: Default::default(),
            gauges: Gauges::default(),
            next_session: AtomicU64::new(1),
            disk_full: AtomicBool::new(false),
            alarm: Default::default(),
            backups: Default::default(),
            held: Default::default(),
            free_bytes: FreeBytes::default(),
            tunables: Tunables::new(&config),
            stopping: AtomicBool::new(false),
            consumers: Mutex::default(),
            mover: Mutex::default(),
            directs: Mutex::default(),
            timer: (Mutex::new(false), Condvar::new()),
            background: (Mutex::new(false), Condvar::new()),
            threads: Mutex::default(),
            due: Mutex::default(),
            leads: AtomicBool::new(true),
            running: AtomicBool::new(false),
            recovered: AtomicBool::new(false),
            opening: Mutex::default(),
            reserve,
            env,
            config,
            data,
        });
        Ok(inner)
    }

    pub(crate) fn recover(self: &Arc<Inner>) -> Result<()> {
        // The metadata says which others there are.
        self.open_shard(META_SHARD)?;
        self.open_wanted()?;
        if self.leads() {
            return self.lead();
        }
        // The writer proposes records of this version.
        self.data.raise_layout(&self.env)?;
        let mut machines = self.machines.lock();
        machines.meta.take_events();
        self.show_places(&machines.meta);
        self.all_shards().iter().for_each(|shard| self.show_topics_of(shard, &machines));
        Ok(())
    }

    /// Becomes the writer of shards whose logs are replayed and whose terms are acquired.
    pub(crate) fn lead(self: &Arc<Inner>) -> Result<()> {
        self.define_shards()?;
        let hosts = self.hosts();
        let slots = hosts.iter().filter(|shard| shard.id != META_SHARD);
        let mut machines = self.machines.lock();
        let context = self.context();
        machines.ready(&context);
        slots.for_each(|shard| shard.slots.lock().ready(&context));
        // The effective state is known only now that all records are applied.
        machines.meta.take_events();
        for (scope, settings) in machines.meta.documents() {
            self.catalog.publish_settings(scope, settings.clone());
        }
        // From here on a version without support for these records must not open the directory.
        self.data.raise_layout(&self.env)?;
        self.catalog.inherit();
        for shard in self.all_shards() {
            self.reconcile(&shard, &machines.meta)?;
        }
        for shard in &hosts {
            let applied = shard.state.lock().applied.0;
            shard.machines.applied.fetch_max(applied, std::sync::atomic::Ordering::SeqCst);
        }
        self.show_places(&machines.meta);
        self.recovered.store(true, std::sync::atomic::Ordering::Release);
        let topics: Vec<_> = machines.meta.topics().cloned().collect();
        for topic in &topics {
            self.route(topic);
            self.catalog.publish(topic, &|shard| self.term_of(shard));
        }
        self.retune();
        drop(machines);
        let mut outbox = Outbox::new();
        self.tell_settings(&mut outbox);
        self.send(outbox);
        Ok(())
    }

    pub(crate) fn route(&self, topic: &TopicMeta) {
        let shards = self.shards.read();
        let mut routes = self.routes.write();
        for (partition, shard) in topic.placement() {
            if let Some(shard) = shards.get(&shard) {
                routes.insert(partition, shard.clone());
            }
        }
    }

    /// Opens a shard that a new topic is the first to need.
    pub(crate) fn open_late(self: &Arc<Inner>, id: ShardId) -> Result<Arc<Shard>> {
        let shard = self.open_shard(id)?;
        if self.running.load(std::sync::atomic::Ordering::Acquire) {
            shard.log.run()?;
        }
        Ok(shard)
    }

    pub(crate) fn open_shard(self: &Arc<Inner>, id: ShardId) -> Result<Arc<Shard>> {
        let sink = Arc::new(ShardSink { witness: self.config.witness.clone(), ..ShardSink::default() });
        let shard = if id == MEMORY_SHARD { self.memory_shard(&sink)? } else { self.disk_shard(id, &sink)? };
        *sink.target.lock() = Some((Arc::downgrade(self), Arc::downgrade(&shard)));
        self.shards.write().insert(id, shard.clone());
        self.tune();
        if self.leads() {
            let term = shard.log.acquire()?;
            self.take_term(&shard, term, None);
        }
        Ok(shard)
    }

    fn memory_shard(self: &Arc<Inner>, sink: &Arc<ShardSink>) -> Result<Arc<Shard>> {
        let env = self.env.clone();
        let term = self.term_of(self.meta_shard);
        let log = MemoryLog::new(env, MEMORY_SHARD, self.data.identity.node, term, sink.clone());
        let mut state = ShardState { queues: Queues::ruled(self.config.queue_rules), ..ShardState::default() };
        add_own_partitions(&mut state, &[]);
        for topic in self.machines.lock().meta.topics() {
            add_partitions(MEMORY_SHARD, &mut state, topic, Term(term.0 + 1));
        }
        let dir = self.data.shard_dir(MEMORY_SHARD);
        self.make_dir(&dir)?;
        // The ring of frames is the shard's only storage; its directory stays empty.
        let config = StoreConfig {
            tail_cache_bytes: self.config.memory_bytes_max,
            tail_cache_bytes_max: self.config.memory_bytes_max,
            ..self.config.store
        };
        let (store, _) = ShardStore::open(self.env.clone(), &dir, config)?;
        Ok(Arc::new(Shard {
            id: MEMORY_SHARD,
            class: Durability::Memory,
            early_deliveries: delivers_early(&self.config, &log),
            view: self.config.view.clone(),
            log: Arc::new(log),
            store,
            checkpoints: None,
            state: Mutex::new(state),
            machines: Default::default(),
            slots: Mutex::new(self.slot_machines(MEMORY_SHARD)),
            hosts: false,
            queue_deadline_ms: AtomicU64::new(u64::MAX),
            applying: Mutex::new(()),
        }))
    }

    pub(crate) fn disk_shard(self: &Arc<Inner>, id: ShardId, sink: &Arc<ShardSink>) -> Result<Arc<Shard>> {
        let dir = self.data.shard_dir(id);
        let class = if id == ASYNC_SHARD { Durability::Async } else { Durability::Sync };
        self.make_dir(&dir)?;
        let (store, opened) = ShardStore::open(self.env.clone(), &dir, self.config.store)?;
        self.gauges.segments_lost(id, opened.lost);
        let mut state = ShardState { queues: Queues::ruled(self.config.queue_rules), ..ShardState::default() };
        let mut slots = self.slot_machines(id);
        let hosted = if id == META_SHARD { self.machines.lock().ids() } else { slots.ids() };
        add_own_partitions(&mut state, &hosted);
        let checkpoints = store.checkpoints()?;
        self.load_checkpoint(id, &checkpoints, &mut state, &mut slots)?;
        let from = store.journal_from();
        let applied = checkpoints.applied();
        let shard_config = journal::Config { covered: applied, ..self.journal_config(id, class, dir) };
        let mut replay = |frame: Frame| self.replay(id, &store, &mut state, &mut slots, Arc::new(frame), applied);
        let journal = Arc::new(Journal::open(&self.env, shard_config, from, &mut replay)?);
        journal.attach(sink.clone());
        for passed in &journal.recovery().passed {
            self.gauges.background_failed("recovery", &format!("shard {id}: {passed}"));
            // Earlier frames are in segments.
            if passed.missing.is_some_and(|end| end > from) {
                store.lose_unknown();
            }
        }
        forget_unknown(&store, &mut state);
        forget_unopened(&mut state);
        for partition in state.partitions.values_mut() {
            partition.reset_tail();
        }
        let log = LocalLog::new(journal, self.data.identity.node);
        Ok(Arc::new(Shard {
            id,
            class,
            early_deliveries: delivers_early(&self.config, &log),
            view: self.config.view.clone(),
            log: Arc::new(log),
            store,
            checkpoints: Some(checkpoints),
            state: Mutex::new(state),
            machines: Default::default(),
            slots: Mutex::new(slots),
            hosts: !hosted.is_empty(),
            queue_deadline_ms: AtomicU64::new(u64::MAX),
            applying: Mutex::new(()),
        }))
    }

    /// Creates a shard's directory durably: a crash must not lose the directory entry of acknowledged data.
    fn make_dir(&self, dir: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::new(ErrorKind::Io, format!("{}: {e}", dir.display()));
        self.env.disk.create_dir_all(dir).map_err(failed)?;
        self.env.disk.sync_dir(&self.data.path).map_err(failed)
    }

    fn journal_config(&self, id: ShardId, class: Durability, dir: std::path::PathBuf) -> journal::Config {
        let identity = journal::Identity {
            cluster: self.data.identity.cluster_id,
            node: self.data.identity.node,
            directory: self.data.identity.directory_id,
            shard: id,
        };
        journal::Config {
            durability: match class {
                Durability::Async => journal::Durability::Async,
                _ => journal::Durability::Sync,
            },
            start: if self.leads() { StartOfLife::OneVoter } else { StartOfLife::Follower },
            file_bytes: self.config.journal_file_bytes,
            io: self.config.journal_io,
            lazy_flush_ms_max: self.config.lazy_flush_ms_max,
            async_flush_ms_max: self.config.async_flush_ms_max,
            disk_reserve_bytes: self.config.disk_reserve_bytes,
            // Admission has counted every request before this point; a smaller queue would only refuse admitted requests.
            queue_bytes_max: 2 * self.config.inflight_bytes_max,
            ..journal::Config::new(dir, identity)
        }
    }

    /// Replays one frame of the journal to the sides (store, applied state) that lack it.
    fn replay(
        &self,
        id: ShardId,
        store: &ShardStore,
        state: &mut ShardState,
        slots: &mut Machines<NoMeta>,
        frame: Arc<Frame>,
        applied: Option<Index>,
    ) -> polylogue_log::Result<()> {
        let broken = |why: String| polylogue_log::Error::new(polylogue_log::ErrorKind::Damaged, why);
        store.apply(&frame)?;
        if Some(frame.index) <= applied {
            return Ok(());
        }
        let mut fired = crate::watch::Fired::new();
        self.apply_frame(id, store, state, &frame, &mut fired).map_err(broken)?;
        state.openings.gone.clear();
        state.openings.opened.clear();
        if id == META_SHARD {
            let events = self.machines.lock().apply_with_events(&frame).map_err(broken)?;
            // From level 1 on the shard's own records define its partitions.
            if state.openings.level == 0 {
                events.iter().for_each(|event| apply_topic(id, store, state, event));
            }
            return Ok(());
        }
        slots.apply(&frame).map_err(broken)
    }

    fn load_checkpoint(
        &self,
        id: ShardId,
        checkpoints: &CheckpointStore,
        state: &mut ShardState,
        slots: &mut Machines<NoMeta>,
    ) -> Result<()> {
        let chunks = checkpoint::load(checkpoints)?;
        let mut machines = self.machines.lock();
        let damaged = |what: &str, why: String| {
            Error::new(ErrorKind::Damaged, format!("checkpoint of shard {id}: {what}: {why}"))
        };
        let hosted: &mut Hosted = if id == META_SHARD { &mut *machines } else { slots };
        for chunk in &chunks {
            if let Chunk::Machine { machine, id: chunk_id, bytes } = chunk
                && let Some(hosted) = hosted.get_mut(*machine)
            {
                hosted.load_chunk(chunk_id, bytes.clone()).map_err(|why| damaged("state of a machine", why))?;
            }
        }
        machines.meta.take_events();
        let openings = chunks.iter().filter_map(|chunk| match chunk {
            Chunk::Opening { topic, bytes } => Some((*topic, bytes.clone())),
            _ => None,
        });
        openings::load(state, &openings.collect::<Vec<_>>()).map_err(|e| damaged("open partitions", e.to_string()))?;
        if state.openings.level == 0 {
            for topic in machines.meta.topics() {
                add_partitions(id, state, topic, Term(0));
            }
        }
        for chunk in &chunks {
            // A machine that this start does not host may have records here.
            if let Chunk::Partition { partition, .. } = chunk
                && MachineId::of_partition(*partition).is_some()
            {
                state.partitions.entry(*partition).or_insert_with(|| own_partition(*partition));
            }
            if let Chunk::Partition { partition, bytes } = chunk
                && let Some(known) = state.partitions.get_mut(partition)
            {
                let mut reader = polylogue_types::bin::BinReader::new(bytes);
                known.decode(&mut reader).map_err(|e| damaged("state of a partition", e.to_string()))?;
            }
            if let Chunk::Queue { partition, id, bytes } = chunk {
                state
                    .queues
                    .load_chunk(*partition, id, bytes)
                    .map_err(|e| damaged("state of a queue", e.to_string()))?;
            }
        }
        for chunk in &chunks {
            if let Chunk::Timers { id, bytes } = chunk {
                state.queues.delays.load_chunk(id, bytes).map_err(|why| damaged("the index of times", why))?;
            }
        }
        state.queues.loaded().map_err(|e| damaged("state of a queue", e.to_string()))?;
        state.applied = checkpoints.applied().unwrap_or_default();
        Ok(())
    }
}

/// Whether queues of a shard may deliver messages ahead of their commit: only where no other writer can replace what this node has proposed.
fn delivers_early(config: &BrokerConfig, log: &dyn ShardLog) -> bool {
    config.early_deliveries && log.decides_alone()
}

/// The partitions of machines and of the broker itself.
fn add_own_partitions(state: &mut ShardState, machines: &[MachineId]) {
    for id in machines.iter().map(|id| id.partition()).chain([BROKER_PARTITION]) {
        state.partitions.insert(id, own_partition(id));
    }
}

/// A partition of a machine or of the broker, without records.
pub(crate) fn own_partition(id: PartitionId) -> Partition {
    Partition { opened: true, ..Partition::new(id, Arc::default(), 0, Default::default()) }
}

/// Removes the partitions that level 0 took from the metadata and that neither a record nor an entry of this shard names: its state would depend on
/// how far the metadata was applied. The writer opens them by records.
fn forget_unopened(state: &mut ShardState) {
    let ShardState { partitions, queues, .. } = state;
    partitions.retain(|id, partition| {
        let stays = is_own(*id) || partition.opened || partition.applied_ordinal > Ordinal(0);
        if !stays {
            queues.remove(*id);
        }
        stays
    });
}

/// Adds a topic's partitions to a shard, without entries. `term` is the shard's.
fn add_partitions(shard: ShardId, state: &mut ShardState, topic: &TopicMeta, term: Term) {
    for ((id, in_shard), first) in topic.placement().zip(topic.first_offsets(term)) {
        if in_shard == shard {
            let first = if shard == MEMORY_SHARD { first } else { Offset(0) };
            state.partitions.entry(id).or_insert_with(|| Partition::new(id, topic.layer().clone(), 0, first));
            state.queues.place(id, topic.layer().queue.as_ref(), first);
        }
    }
}

fn apply_topic(shard: ShardId, store: &ShardStore, state: &mut ShardState, event: &MetaEvent) {
    match event {
        MetaEvent::Created(topic) | MetaEvent::Changed(topic) => add_partitions(shard, state, topic, Term(0)),
        // Effective settings are resolved after the replay.
        MetaEvent::Settings(..) | MetaEvent::Shards => {}
        MetaEvent::Deleted(topic) => {
            for (id, _) in topic.placement().filter(|(_, in_shard)| *in_shard == shard) {
                state.partitions.remove(&id);
                state.queues.remove(id);
                state.removed.push(id);
                store.drop_partition(id);
            }
        }
    }
}

/// Drops the store's data of deleted partitions, and sets the log starts of the others.
fn forget_unknown(store: &ShardStore, state: &mut ShardState) {
    store.retain_partitions(|id| state.partitions.contains_key(&id));
    // Machines' records are trimmed in the store at each checkpoint.
    for (id, partition) in state.partitions.iter_mut().filter(|(id, _)| !is_own(**id)) {
        let start = store.expect(*id, partition.log_start, partition.high_watermark);
        partition.trim(start);
    }
}

/// Ids below the first client partition belong to machines: they are trimmed at each checkpoint.
pub(crate) fn is_own(partition: PartitionId) -> bool {
    partition < polylogue_meta::FIRST_CLIENT_PARTITION
}

#[cfg(test)]
mod tests;
