//! Topic settings in each shard: the layers from which effective settings are derived.
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
//! The effective settings of a partition are a function of the layers that its own shard has applied. A change of the inherited layer is one record
//! per shard and touches no partition: the effective settings of each are derived when retention next looks at it. Durability and queue settings are
//! a topic's own and are not inherited.
//!
//! Like offsets, layers have a tail: the writer checks appends and publishes, and trims, by the proposed layers. A change is replied to after its
//! records are proposed in the shards, so it applies to all later appends.

use crate::openings::Openings;
use crate::record::BrokerRecord;
use crate::shard::{Shard, ShardState};
use parking_lot::MutexGuard;
use polylogue_api::{ConfigResolver, INHERITANCE_RULES, Inherited, TopicConfig, Unavailable};
use polylogue_meta::{TopicMeta, decode_topic_config, encode_topic_config};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Map, PartitionId, TopicId};
use std::sync::Arc;

/// Partitions whose effective settings are derived or stored under one hold of a shard's lock.
const RENEWED_AT_ONCE_MAX: usize = 256;

/// Settings of topics in one record, unless a single topic has more. Bytes.
const CONFIGURED_BYTES_MAX: usize = 256 << 10;

/// Settings of a partition: its topic's own, and the effective ones derived last.
#[derive(Debug)]
pub(crate) struct Layered {
    /// Tail: as proposed. The applied ones are in [`Openings`].
    own: Arc<TopicConfig>,
    /// With the [`Layers::epoch`] of the derivation.
    held: Option<(u64, Arc<TopicConfig>)>,
}

impl Layered {
    pub(crate) fn new(own: Arc<TopicConfig>) -> Layered {
        Layered { own, held: None }
    }

    /// Returns the topic's own settings. Its durability and queue settings are effective as they are.
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

    /// Returns the effective settings if derived in this epoch.
    pub(crate) fn held(&self, epoch: u64) -> Option<&Arc<TopicConfig>> {
        self.held.as_ref().filter(|(made, _)| *made == epoch).map(|(_, holds)| holds)
    }
}

/// The inherited layer, and the proposed layers.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// Applied. None in a shard written before such records existed, until its writer proposes it.
    pub(crate) inherited: Option<Arc<Inherited>>,
    /// Number of changes of [`Layers::newest`] in this process.
    pub(crate) epoch: u64,
    // tail
    proposed: Option<Arc<Inherited>>,
    /// Topics with proposed layers: the number of those not applied.
    pending: Map<TopicId, u32>,
}

impl Layers {
    /// Counts a proposed layer of a topic.
    pub(crate) fn note_proposed(&mut self, topic: TopicId) {
        *self.pending.entry(topic).or_insert(0) += 1;
    }

    /// Counts an applied layer of a topic. Returns whether no newer one is proposed.
    pub(crate) fn arrived(&mut self, topic: TopicId) -> bool {
        let Some(left) = self.pending.get_mut(&topic) else { return true };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.pending.remove(&topic);
        true
    }

    /// Returns the inherited layer: at the writer as proposed. Nothing is trimmed by settings older than an acknowledged change.
    pub(crate) fn newest(&self) -> Option<&Arc<Inherited>> {
        self.proposed.as_ref().or(self.inherited.as_ref())
    }

    /// Applies a new inherited layer.
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

/// Decodes the output of [`encode_inherited`]. Rules of a newer version are an error: their effect is unknown.
pub(crate) fn decode_inherited(r: &mut BinReader<'_>) -> Result<Inherited, BinError> {
    let rules = r.u32("rules of inherited settings")?;
    if rules > INHERITANCE_RULES {
        return Err(BinError { field: "rules of inherited settings, which are a newer version's" });
    }
    Ok(Inherited { rules, ..Inherited::new(decode_topic_config(r.bytes("inherited settings")?)?) })
}

/// Returns the layer as decoded from its record.
fn recorded(inherited: &Inherited) -> Result<Inherited, BinError> {
    let mut w = BinWriter::new();
    encode_inherited(inherited, &mut w);
    decode_inherited(&mut BinReader::new(&w.out))
}

/// Applies a new layer of a topic. `Err`: the log broke its guarantee.
pub(crate) fn configure(state: &mut ShardState, topic: TopicId, layer: Arc<TopicConfig>) -> Result<(), String> {
    let Openings { layers, topics, changed, damaged, .. } = &mut state.openings;
    let is_newest = layers.arrived(topic);
    let Some(open) = topics.get_mut(&topic) else {
        // The settings are proposed again with the opening.
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

/// Drops the tail of all layers.
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
    /// Proposes the inherited layer at the writer if it changed. If the log refuses, the shard is marked as behind and it is proposed again
    /// ([`Openings::behind`]).
    pub(crate) fn inherit(&self, state: &mut ShardState, resolver: &dyn ConfigResolver) -> Result<(), Unavailable> {
        // Resolved under the lock: a later call proposes a newer layer.
        let Ok(inherited) = recorded(&resolver.inherited()) else { return Ok(()) };
        if state.openings.layers.newest().is_some_and(|newest| **newest == inherited) {
            return Ok(());
        }
        self.propose_change(state, &BrokerRecord::Inherited(inherited.clone()))?;
        state.openings.layers.change(|layers| layers.proposed = Some(Arc::new(inherited)));
        Ok(())
    }

    /// Proposes the settings of topics at the writer, for topics with partitions here whose settings changed. Later proposals are checked by them.
    /// One record holds as many as fit.
    pub(crate) fn configure_topics(
        &self,
        state: &mut ShardState,
        topics: &[Arc<TopicMeta>],
    ) -> Result<(), Unavailable> {
        let (mut layers, mut bytes) = (Vec::new(), 0);
        for topic in topics {
            let layer = topic.layer();
            let mut here = topic.placement().filter(|(_, shard)| *shard == self.id).map(|(id, _)| id);
            // All partitions have the same layer: it is the whole topic's.
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

    /// Returns the locked shard, with effective settings derived for each partition whose layers changed. The lock is released while many are
    /// derived; partitions added meanwhile are left out if there are too many.
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

/// A partition whose effective settings are to be derived, and its topic's settings.
type Stale = (PartitionId, Arc<TopicConfig>);

/// Settings derived from the layers of one moment.
struct Renewal {
    epoch: u64,
    inherited: Option<Arc<Inherited>>,
    /// Keyed by the address of the topic's settings, which the partitions of a topic share, as they then share the result.
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

    /// Stores derived settings for partitions whose topic's settings are unchanged.
    fn keep(&self, some: &[Stale], state: &mut ShardState) {
        for (id, own) in some {
            let same = state.partitions.get_mut(id).filter(|p| Arc::ptr_eq(&p.config.own, own));
            if let Some((partition, holds)) = same.zip(self.made.get(&Arc::as_ptr(own))) {
                partition.config.held = Some((self.epoch, holds.clone()));
            }
        }
    }
}

/// Returns the effective settings. Before there is an inherited layer, those recorded with the topic.
pub(crate) fn holding(
    inherited: Option<&Inherited>,
    resolver: &dyn ConfigResolver,
    own: &Arc<TopicConfig>,
) -> Arc<TopicConfig> {
    inherited.map_or_else(|| own.clone(), |inherited| resolver.holding(inherited, own))
}

#[cfg(test)]
mod tests;
