//! The role of this node in its shards: writer of all of them, or follower of all of them.
//!
//! ```text
//!   open            replay ──> acquire ──────────────────────────────────────┐
//!   open_follower   replay ──> receive ──> receive ──> ... ──> take_over ────┴──> lead: machines ready, openings
//! ```
//!
//! A follower is in a continuous replay: it applies frames that are committed at the writer, and nothing else. It proposes nothing, delivers nothing,
//! runs no deadlines, and refuses requests that need any of this; reads are served up to what it has applied. On take-over a follower runs the same
//! steps as a writer at the end of its replay, so that both have the same machines, openings and queues.
//!
//! No option of the product makes a follower yet; the simulator does.

use crate::broker::{Broker, Inner};
use crate::config::BrokerConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::machines::Machines;
use crate::open::MEMORY_SHARD;
use crate::shard::Shard;
use crate::verify::shards_of;
use polylogue_api::{MachineId, StateMachine};
use polylogue_env::Env;
use polylogue_log::Frame;
use polylogue_meta::{MetaEvent, TopicMeta};
use polylogue_replicate::{LogView, Role};
use polylogue_types::{Index, ShardId, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Broker {
    /// Opens a data directory as a follower of all its shards. The directory is new, or was a follower's before.
    ///
    /// # Errors
    /// As [`Broker::open`].
    pub fn open_follower(
        env: Env,
        config: BrokerConfig,
        others: BTreeMap<MachineId, Box<dyn StateMachine>>,
    ) -> Result<Broker> {
        let inner = Inner::unopened(env, config, others)?;
        inner.leads.store(false, Ordering::Release);
        inner.recover()?;
        Ok(Broker { inner })
    }

    /// Receives the next frames of a shard, which are committed at its writer. They are applied when this node's log has them. A shard that is not
    /// open is opened.
    ///
    /// # Errors
    /// The log's error ([`polylogue_log::journal::Journal::follow`]), or the error of opening the shard. Frames of a shard of class `memory` are
    /// ignored: they are lost with their writer.
    pub fn receive(&self, shard: ShardId, frames: &[Arc<Frame>]) -> Result<()> {
        match self.inner.shard(shard)?.log.local() {
            Some(files) => Ok(files.follow(frames)?),
            None => Ok(()),
        }
    }

    /// Becomes the writer of all shards: the previous one is gone, and all that it committed was received.
    ///
    /// # Errors
    /// If a term cannot be acquired. The node is then unusable.
    pub fn take_over(&self) -> Result<()> {
        let inner = &self.inner;
        inner.leads.store(true, Ordering::Release);
        for shard in inner.all_shards() {
            let term = shard.log.acquire()?;
            inner.take_term(&shard, term, None);
        }
        inner.open_wanted()?;
        inner.lead()?;
        inner.all_shards().iter().for_each(|shard| inner.pump(shard));
        inner.deadlines_changed();
        Ok(())
    }

    /// Returns the state of a shard's log; `None` if the shard is not open.
    #[must_use]
    pub fn log_view(&self, shard: ShardId) -> Option<LogView> {
        self.inner.shards.read().get(&shard).map(|shard| shard.log.view())
    }

    /// Returns the last committed frame of a shard; `None` if the shard is not open, or before the first.
    #[must_use]
    pub fn committed(&self, shard: ShardId) -> Option<Index> {
        self.log_view(shard)?.committed
    }

    /// Returns committed frames of a shard from an index on.
    ///
    /// # Errors
    /// As [`polylogue_replicate::ShardLog::read`]; `Io` for a shard that is not open.
    pub fn frames(&self, shard: ShardId, from: Index, bytes_max: usize) -> Result<Vec<Arc<Frame>>> {
        let open = self.inner.shards.read().get(&shard).cloned();
        let open = open.ok_or_else(|| Error::new(ErrorKind::Io, format!("shard {shard} is not open")))?;
        Ok(open.log.read(from, bytes_max)?)
    }

    /// Returns this node's role in a shard; `None` if the shard is not open.
    #[must_use]
    pub fn role(&self, shard: ShardId) -> Option<Role> {
        self.inner.shards.read().get(&shard).map(|shard| shard.state.lock().role)
    }
}

/// What has changed of a follower's shard that the catalog shows.
#[derive(Debug)]
pub(crate) struct Heads {
    /// It has a new term.
    pub(crate) term: bool,
    /// Topics of which partitions were opened.
    pub(crate) opened: Vec<TopicId>,
}

impl Inner {
    /// Returns whether this node is, or is becoming, the writer of its shards.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// A follower's work after frames were applied to a shard: machines, routes, the catalog. The catalog shows the topics of partitions
    /// that were opened; with a new term all of the shard.
    pub(crate) fn follow_writer(&self, shard: &Arc<Shard>, frames: &[Arc<Frame>], for_machines: bool, heads: &Heads) {
        let mut machines = self.machines.lock();
        for frame in frames.iter().filter(|_| for_machines) {
            let applied = match shard.id == self.meta_shard {
                true => machines.apply_with_events(frame),
                false => shard.slots.lock().apply(frame).map(|()| Vec::new()),
            };
            match applied {
                Ok(events) => events.iter().for_each(|event| self.follow_topic(event, &machines)),
                Err(broken) => return self.env.fatal.fatal(&broken),
            }
        }
        if heads.term {
            let term = shard.state.lock().term;
            machines.meta.set_term(shard.id, term);
            self.show_topics_of(shard, &machines);
        } else {
            // A topic whose own record is not applied yet is shown with that.
            let opened = heads.opened.iter().filter_map(|id| machines.meta.topic(id));
            opened.for_each(|topic| self.show_topic(topic, shard));
        }
    }

    fn follow_topic(&self, event: &MetaEvent, machines: &Machines) {
        match event {
            MetaEvent::Created(topic) | MetaEvent::Changed(topic) => {
                self.route(topic);
                self.set_epochs(topic, None);
                self.catalog.publish(topic, &|shard| self.term_of(shard));
            }
            MetaEvent::Deleted(topic) => {
                self.catalog.withdraw(topic.id());
                let mut routes = self.routes.write();
                topic.placement().for_each(|(id, _)| _ = routes.remove(&id));
            }
            MetaEvent::Settings(scope, settings) => {
                self.catalog.publish_settings(scope, settings.clone());
                self.catalog.inherit();
            }
            MetaEvent::Shards => self.show_places(&machines.meta),
        }
    }

    /// Updates the catalog's topics that have partitions in a shard.
    pub(crate) fn show_topics_of(&self, shard: &Arc<Shard>, machines: &Machines) {
        let of = |topic: &&Arc<TopicMeta>| topic.placement().any(|(_, of)| of == shard.id);
        machines.meta.topics().filter(of).for_each(|topic| self.show_topic(topic, shard));
    }

    fn show_topic(&self, topic: &Arc<TopicMeta>, shard: &Arc<Shard>) {
        if !self.leads() {
            self.route(topic);
        }
        self.set_epochs(topic, Some(shard));
        self.catalog.publish(topic, &|id| self.term_of(id));
    }

    /// Sets the leader epochs of a topic's partitions from the terms, in one shard or in all of them.
    fn set_epochs(&self, topic: &TopicMeta, only: Option<&Arc<Shard>>) {
        let epochs = topic.leader_epochs(|id| self.term_of(id));
        for ((id, of), partition) in topic.placement().zip(epochs) {
            let shard = match only {
                Some(shard) => Some(shard.clone()).filter(|shard| shard.id == of),
                None => self.shards.read().get(&of).cloned(),
            };
            let Some(shard) = shard else { continue };
            if let Some(known) = shard.state.lock().partitions.get_mut(&id) {
                known.leader_epoch = partition.leader_epoch;
            }
        }
    }

    /// Opens the shards that are recorded, and those of other classes that topics need. A follower also opens all that it has on its disk: its metadata may
    /// be behind them. It has none of class `memory`: its content is lost with the writer, and its offsets start at the term that this node will acquire.
    pub(crate) fn open_wanted(self: &Arc<Inner>) -> Result<()> {
        let mut wanted: std::collections::BTreeSet<ShardId> = {
            let machines = self.machines.lock();
            machines.meta.topics().flat_map(|t| t.placement().map(|(_, shard)| shard).collect::<Vec<_>>()).collect()
        };
        wanted.extend(self.sync_shards());
        let follows = !self.leads();
        if follows {
            wanted.extend(shards_of(&self.env, &self.data.path)?.into_iter().map(|(id, _)| id));
        }
        for id in wanted.into_iter().filter(|id| !(follows && *id == MEMORY_SHARD)) {
            if !self.shards.read().contains_key(&id) {
                self.open_shard(id)?;
            }
        }
        Ok(())
    }
}
