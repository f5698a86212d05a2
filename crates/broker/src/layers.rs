//! Settings, in each shard, as the layers that what holds is made of.
//!
//! ```text
//!   metadata's shard    documents of the cluster, of a node          settings of a topic
//!                              │ the resolver, at the writer               │ the writer
//!   a shard                Inherited ──────────┐             Opened, Configured: the topic's layer
//!                                              └─ holding(inherited, layer) ─┘
//!                                                            │ when a partition is looked at
//!                                            retention, classes of merges
//! ```
//!
//! What holds for a partition is a function of the layers that its own shard has applied. A change of the inherited layer is one record
//! a shard and touches no partition: what it comes to for each is made when retention looks at it next. Durability and what a queue is are
//! a topic's own and not inherited.
//!
//! Like offsets, layers have a tail: the writer judges appends and publishes, and trims, by what it has proposed. So a change that was answered, since
//! its record is proposed in the shards before, holds for what is appended next.

use crate::openings::Openings;
use crate::record::BrokerRecord;
use crate::shard::{Shard, ShardState};
use parking_lot::MutexGuard;
use polylogue_api::{ConfigResolver, INHERITANCE_RULES, Inherited, TopicConfig, Unavailable};
use polylogue_meta::{TopicMeta, decode_topic_config, encode_topic_config};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Map, PartitionId, TopicId};
use std::sync::Arc;

/// Partitions for which what holds is made anew, or kept, under one hold of a shard's lock.
const RENEWED_AT_ONCE_MAX: usize = 256;

/// Settings of topics that one record has together, unless one topic has more. Bytes.
const CONFIGURED_BYTES_MAX: usize = 256 << 10;

/// Settings of a partition: what is set for its topic, and what that came to when it was made last.
#[derive(Debug)]
pub(crate) struct Layered {
    /// Tail: as proposed. What is applied is in [`Openings`].
    own: Arc<TopicConfig>,
    /// By which [`Layers::epoch`].
    held: Option<(u64, Arc<TopicConfig>)>,
}

impl Layered {
    pub(crate) fn new(own: Arc<TopicConfig>) -> Layered {
        Layered { own, held: None }
    }

    /// What is set for the topic. Its durability and what it says of a queue are what holds.
    pub(crate) fn own(&self) -> &Arc<TopicConfig> {
        &self.own
    }

    pub(crate) fn set(&mut self, own: &Arc<TopicConfig>) {
        if !Arc::ptr_eq(&self.own, own) {
            if *self.own != **own {
                self.held = None;
            }
            self.own = own.clone();
        }
    }

    /// What holds, if that was made in this epoch.
    pub(crate) fn held(&self, epoch: u64) -> Option<&Arc<TopicConfig>> {
        self.held.as_ref().filter(|(made, _)| *made == epoch).map(|(_, holds)| holds)
    }
}

/// The inherited layer, and what of layers is proposed.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// Applied. None in a shard that was written before there were such records, until its writer proposes it.
    pub(crate) inherited: Option<Arc<Inherited>>,
    /// How often [`Layers::newest`] became another one, in this process.
    pub(crate) epoch: u64,
    // tail
    proposed: Option<Arc<Inherited>>,
    /// Topics of which layers are proposed: how many are not applied.
    pending: Map<TopicId, u32>,
}

impl Layers {
    /// One more layer of a topic is on its way.
    pub(crate) fn note_proposed(&mut self, topic: TopicId) {
        *self.pending.entry(topic).or_insert(0) += 1;
    }

    /// A layer of a topic is applied: whether no newer one is on its way.
    pub(crate) fn arrived(&mut self, topic: TopicId) -> bool {
        let Some(left) = self.pending.get_mut(&topic) else { return true };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.pending.remove(&topic);
        true
    }

    /// What is inherited: at the writer as it has proposed. Nothing is trimmed by what held before a change that was answered.
    pub(crate) fn newest(&self) -> Option<&Arc<Inherited>> {
        self.proposed.as_ref().or(self.inherited.as_ref())
    }

    /// Applies another inherited layer.
    pub(crate) fn inherit(&mut self, inherited: Inherited) {
        let inherited = Arc::new(inherited);
        self.change(|layers| {
            layers.proposed.take_if(|proposed| *proposed == inherited);
            layers.inherited = Some(inherited);
        });
    }

    fn reset_tail(&mut self) {
        self.pending.clear();
        self.change(|layers| layers.proposed = None);
    }

    fn change(&mut self, change: impl FnOnce(&mut Layers)) {
        let before = self.newest().cloned();
        change(self);
        self.epoch += u64::from(self.newest() != before.as_ref());
    }
}

/// `u32 rules, u32 length, config`
pub(crate) fn encode_inherited(inherited: &Inherited, w: &mut BinWriter) {
    w.u32(inherited.rules).bytes(&encode_topic_config(&inherited.config));
}

/// Reads what [`encode_inherited`] wrote. Rules of a newer version are an error: what holds by them is unknown.
pub(crate) fn decode_inherited(r: &mut BinReader<'_>) -> Result<Inherited, BinError> {
    let rules = r.u32("rules of inherited settings")?;
    if rules > INHERITANCE_RULES {
        return Err(BinError { field: "rules of inherited settings, which are a newer version's" });
    }
    Ok(Inherited { rules, ..Inherited::new(decode_topic_config(r.bytes("inherited settings")?)?) })
}

/// As it comes back from a record.
fn recorded(inherited: &Inherited) -> Result<Inherited, BinError> {
    let mut w = BinWriter::new();
    encode_inherited(inherited, &mut w);
    decode_inherited(&mut BinReader::new(&w.out))
}

/// Applies another layer of a topic. `Err`: a broken promise of the log.
pub(crate) fn configure(state: &mut ShardState, topic: TopicId, layer: Arc<TopicConfig>) -> Result<(), String> {
    let Openings { layers, topics, changed, damaged, .. } = &mut state.openings;
    let is_newest = layers.arrived(topic);
    let Some(open) = topics.get_mut(&topic) else {
        // With its opening what is set is proposed again.
        return if *damaged { Ok(()) } else { Err(format!("settings of topic {topic}, which has no open partition")) };
    };
    changed.insert(topic);
    open.layer = layer;
    for id in &open.partitions {
        if is_newest && let Some(partition) = state.partitions.get_mut(id) {
            partition.config.set(&open.layer);
        }
        if let Some(queue) = &open.layer.queue {
            state.queues.configure(*id, queue, is_newest);
        }
    }
    Ok(())
}

/// Throws the tail of all layers away.
pub(crate) fn reset_tail(state: &mut ShardState) {
    let Openings { layers, topics, .. } = &mut state.openings;
    layers.reset_tail();
    for open in topics.values() {
        for id in &open.partitions {
            if let Some(partition) = state.partitions.get_mut(id) {
                partition.config.set(&open.layer);
            }
            if let Some(queue) = &open.layer.queue {
                state.queues.judge_by(*id, queue);
            }
        }
    }
}

impl Shard {
    /// Proposes what topics inherit, at the writer, unless that is what they inherit. Where the log refuses it the shard is behind, and it is
    /// proposed again ([`Openings::behind`]).
    pub(crate) fn inherit(&self, state: &mut ShardState, resolver: &dyn ConfigResolver) -> Result<(), Unavailable> {
        // Asked under the lock: a later call proposes what is newer.
        let Ok(inherited) = recorded(&resolver.inherited()) else { return Ok(()) };
        if state.openings.layers.newest().is_some_and(|newest| **newest == inherited) {
            return Ok(());
        }
        self.propose_change(state, &BrokerRecord::Inherited(inherited.clone()))?;
        state.openings.layers.change(|layers| layers.proposed = Some(Arc::new(inherited)));
        Ok(())
    }

    /// Proposes what is set for topics, at the writer: of those that have partitions here for which something else is. What is proposed next is
    /// judged by it. As many as fit are in one record.
    pub(crate) fn configure_topics(
        &self,
        state: &mut ShardState,
        topics: &[Arc<TopicMeta>],
    ) -> Result<(), Unavailable> {
        let (mut layers, mut bytes) = (Vec::new(), 0);
        for topic in topics {
            let layer = topic.layer();
            let mut here = topic.placement().filter(|(_, shard)| *shard == self.id).map(|(id, _)| id);
            // They have the same: a layer is the whole topic's.
            let first = here.find_map(|id| state.partitions.get(&id).filter(|p| p.is_opening()));
            if first.is_none_or(|partition| **partition.config.own() == **layer) {
                continue;
            }
            let len = encode_topic_config(layer).len();
            if bytes + len > CONFIGURED_BYTES_MAX && !layers.is_empty() {
                self.propose_layers(state, std::mem::take(&mut layers))?;
                bytes = 0;
            }
            bytes += len;
            layers.push(topic);
        }
        if layers.is_empty() { Ok(()) } else { self.propose_layers(state, layers) }
    }

    fn propose_layers(&self, state: &mut ShardState, topics: Vec<&Arc<TopicMeta>>) -> Result<(), Unavailable> {
        let layers = topics.iter().map(|topic| (topic.id(), topic.layer().clone())).collect();
        self.propose_change(state, &BrokerRecord::Configured(layers))?;
        for topic in topics {
            state.openings.layers.note_proposed(topic.id());
            let layer = topic.layer();
            for (id, _) in topic.placement().filter(|(_, shard)| *shard == self.id) {
                let Some(partition) = state.partitions.get_mut(&id).filter(|p| p.is_opening()) else { continue };
                partition.config.set(layer);
                if let Some(queue) = &layer.queue {
                    state.queues.judge_by(id, queue);
                }
            }
        }
        Ok(())
    }

    /// The shard, with what holds made for each partition whose layers changed since that was made. While it is made for many the lock is not
    /// held; partitions that came meanwhile are left out where they are too many.
    pub(crate) fn renewed(&self, resolver: &dyn ConfigResolver) -> MutexGuard<'_, ShardState> {
        let mut state = self.state.lock();
        let (mut renewal, mut stale) = Renewal::of(&state);
        if stale.len() > RENEWED_AT_ONCE_MAX {
            drop(state);
            for some in stale.chunks(RENEWED_AT_ONCE_MAX) {
                renewal.make(some, resolver);
                renewal.keep(some, &mut self.state.lock());
            }
            state = self.state.lock();
            (renewal, stale) = Renewal::of(&state);
            stale.truncate(RENEWED_AT_ONCE_MAX);
        }
        renewal.make(&stale, resolver);
        renewal.keep(&stale, &mut state);
        state
    }
}

/// A partition for which what holds is to be made, and what is set for it.
type Stale = (PartitionId, Arc<TopicConfig>);

/// What is made of the layers of one moment.
struct Renewal {
    epoch: u64,
    inherited: Option<Arc<Inherited>>,
    /// By where what is set is in memory: partitions of one topic share that, and so what holds.
    made: Map<*const TopicConfig, Arc<TopicConfig>>,
}

impl Renewal {
    fn of(state: &ShardState) -> (Renewal, Vec<Stale>) {
        let layers = &state.openings.layers;
        let stale = state.partitions.values().filter(|p| p.config.held(layers.epoch).is_none());
        let stale = stale.map(|p| (p.id, p.config.own.clone())).collect();
        (Renewal { epoch: layers.epoch, inherited: layers.newest().cloned(), made: Map::default() }, stale)
    }

    fn make(&mut self, some: &[Stale], resolver: &dyn ConfigResolver) {
        for (_, own) in some {
            let holding = || holding(self.inherited.as_deref(), resolver, own);
            self.made.entry(Arc::as_ptr(own)).or_insert_with(holding);
        }
    }

    /// Keeps what was made for partitions for which the same is set still.
    fn keep(&self, some: &[Stale], state: &mut ShardState) {
        for (id, own) in some {
            let same = state.partitions.get_mut(id).filter(|p| Arc::ptr_eq(&p.config.own, own));
            if let Some((partition, holds)) = same.zip(self.made.get(&Arc::as_ptr(own))) {
                partition.config.held = Some((self.epoch, holds.clone()));
            }
        }
    }
}

/// What holds where that is set. Before anything is inherited that is what was recorded with it.
pub(crate) fn holding(
    inherited: Option<&Inherited>,
    resolver: &dyn ConfigResolver,
    own: &Arc<TopicConfig>,
) -> Arc<TopicConfig> {
    inherited.map_or_else(|| own.clone(), |inherited| resolver.holding(inherited, own))
}

#[cfg(test)]
mod tests;
