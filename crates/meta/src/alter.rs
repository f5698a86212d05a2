//! Changing topics and settings.
//!
//! A change says what its author believed to hold. It is compared with what the newest accepted change left, committed
//! or not: records are committed in order, so that a change built on one that is lost is lost with it.

use crate::machine::{MetaEvent, MetaMachine, MetaReply, TopicMeta};
use crate::record::{MetaRecord, PartitionRecord, TopicRecord};
use polylogue_api::{
    AlterError, AlterSettings, AlterTopics, Caller, Current, Durability, Effects, Settings, SettingsChange,
    SettingsScope, TopicChange, TopicConfig,
};
use polylogue_types::{PartitionId, TopicId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The largest document of settings: names and values together. Bytes.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Documents of settings of all scopes together.
pub const DOCUMENTS_MAX: usize = 100_000;

/// Topics and documents as they will be once all accepted changes are committed.
#[derive(Debug, Default)]
pub(crate) struct Altering {
    topics: BTreeMap<TopicId, Pending>,
    documents: BTreeMap<SettingsScope, Pending>,
}

/// What each record on its way makes of it, in order. Never empty: when the last record is applied, applied state says it all.
type Pending = VecDeque<Current>;

/// The state once all proposed records are applied.
fn newest(pending: &Pending) -> Current {
    pending.back().cloned().unwrap_or_default()
}

/// One more record for it is proposed and not yet applied.
fn expect<K: Ord + Clone>(pending: &mut BTreeMap<K, Pending>, key: &K, current: Current) {
    pending.entry(key.clone()).or_default().push_back(current);
}

/// One record for it is not on its way any more: the first, which was applied, or the last, which was refused.
fn ended<K: Ord>(pending: &mut BTreeMap<K, Pending>, key: &K, take: fn(&mut Pending) -> Option<Current>) {
    let Some(records) = pending.get_mut(key) else { return };
    take(records);
    if records.is_empty() {
        pending.remove(key);
    }
}

fn document_fits(settings: &Settings) -> Result<(), AlterError> {
    let bytes = settings.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(AlterError::TooLarge { bytes, bytes_max: DOCUMENT_BYTES_MAX });
    }
    Ok(())
}

fn count(partitions: usize) -> u32 {
    u32::try_from(partitions).unwrap_or(u32::MAX)
}

/// The same records, with one for all topics in a row that are configured alike: so are thousands of queues by one policy.
fn gathered(records: Vec<MetaRecord>) -> Vec<MetaRecord> {
    let mut gathered: Vec<MetaRecord> = Vec::with_capacity(records.len());
    for record in records {
        match (gathered.last_mut(), record) {
            (Some(MetaRecord::TopicsConfigured(ids, config)), MetaRecord::TopicConfigured(id, same))
                if *config == same =>
            {
                ids.push(id);
            }
            (Some(last), MetaRecord::TopicConfigured(id, config)) => match last {
                MetaRecord::TopicConfigured(before, same) if *same == config => {
                    *last = MetaRecord::TopicsConfigured(vec![*before, id], config);
                }
                _ => gathered.push(MetaRecord::TopicConfigured(id, config)),
            },
            (_, record) => gathered.push(record),
        }
    }
    gathered
}

impl MetaMachine {
    pub(crate) fn alter_topics(&mut self, caller: Caller, command: &AlterTopics, effects: &mut Effects) {
        let mut records = Vec::new();
        let changes = command.changes.iter();
        let results = changes.map(|c| self.plan_topic_change(c, command.validate_only, &mut records)).collect();
        self.propose(effects, caller, &gathered(records), MetaReply::AlteredTopics(results));
    }

    pub(crate) fn alter_settings(&mut self, caller: Caller, command: &AlterSettings, effects: &mut Effects) {
        let mut records = Vec::new();
        let changes = command.changes.iter();
        let results = changes.map(|c| self.plan_document(c, command.validate_only, &mut records)).collect();
        self.propose(effects, caller, &records, MetaReply::AlteredSettings(results));
    }

    /// What holds of a topic once all is committed that was accepted.
    pub(crate) fn current_topic(&self, topic: &TopicMeta) -> Current {
        match self.tail.altering.topics.get(&topic.id()) {
            Some(pending) => newest(pending),
            None => {
                let record = topic.record();
                Current { settings: record.config.raw.clone(), partitions: count(record.partitions.len()) }
            }
        }
    }

    fn plan_topic_change(
        &mut self,
        change: &TopicChange,
        validate_only: bool,
        records: &mut Vec<MetaRecord>,
    ) -> Result<(), AlterError> {
        let id = change.topic;
        let living = self.by_id.get(&id).filter(|_| !self.tail.deleting.contains(&id));
        let topic = living.cloned().ok_or(AlterError::UnknownTopic)?;
        let mut current = self.current_topic(&topic);
        let other_settings = change.config.as_ref().is_some_and(|c| c.expected != current.settings);
        let other_count = change.partitions.is_some_and(|p| p.from != current.partitions || p.to < p.from);
        if other_settings || other_count {
            return Err(AlterError::Conflict(current));
        }
        let durability = topic.record().config.durability;
        if let Some(change) = &change.config {
            if (change.config.durability == Durability::Memory) != (durability == Durability::Memory) {
                return Err(AlterError::DurabilityFixed);
            }
            document_fits(&change.config.raw)?;
        }
        let more = change.partitions.map_or(0, |p| p.to - p.from);
        let partitions_max = self.settings.partitions_max;
        if self.tail.partitions + u64::from(more) > partitions_max {
            return Err(AlterError::TooManyPartitions { partitions_max });
        }
        if validate_only {
            return Ok(());
        }
        if more > 0 {
            records.push(MetaRecord::PartitionsAdded(id, self.place(self.made_for(&topic), more)));
            current.partitions += more;
            expect(&mut self.tail.altering.topics, &id, current.clone());
        }
        let pending = self.tail.altering.topics.contains_key(&id);
        // What changes nothing needs no record, unless it has to wait for one.
        // What a queue is has no names under which it was set.
        let recorded = &topic.record().config;
        let other_queue = |config: &TopicConfig| config.queue.is_some() && *config != **recorded;
        let changes = |config: &TopicConfig| {
            config.raw != current.settings || config.durability != durability || other_queue(config)
        };
        if let Some(change) = change.config.as_ref().filter(|c| pending || changes(&c.config)) {
            current.settings.clone_from(&change.config.raw);
            records.push(MetaRecord::TopicConfigured(id, change.config.clone()));
            expect(&mut self.tail.altering.topics, &id, current);
        }
        Ok(())
    }

    fn plan_document(
        &mut self,
        change: &SettingsChange,
        validate_only: bool,
        records: &mut Vec<MetaRecord>,
    ) -> Result<(), AlterError> {
        let scope = &change.scope;
        let pending = self.tail.altering.documents.get(scope);
        let applied = self.documents.get(scope);
        let settings = match pending {
            Some(pending) => newest(pending).settings,
            None => applied.map(|document| Settings::clone(document)).unwrap_or_default(),
        };
        if settings != change.expected {
            return Err(AlterError::Conflict(Current { settings, partitions: 0 }));
        }
        document_fits(&change.settings)?;
        let known = pending.is_some() || applied.is_some();
        if !known && self.documents.len() + self.tail.altering.documents.len() >= DOCUMENTS_MAX {
            return Err(AlterError::TooManyDocuments { documents_max: DOCUMENTS_MAX });
        }
        if validate_only || (settings == change.settings && pending.is_none()) {
            return Ok(());
        }
        records.push(MetaRecord::Settings(scope.clone(), change.settings.clone()));
        let current = Current { settings: change.settings.clone(), partitions: 0 };
        expect(&mut self.tail.altering.documents, scope, current);
        Ok(())
    }

    /// A committed change of a topic's settings.
    pub(crate) fn topic_configured(&mut self, id: TopicId, config: TopicConfig) {
        ended(&mut self.tail.altering.topics, &id, VecDeque::pop_front);
        // Placement stays as it is, whatever the durability: what is written to a journal says for itself when it is durable.
        self.rewrite_topic(id, |record| record.config = Arc::new(config));
    }

    /// Committed new partitions of a topic.
    pub(crate) fn partitions_added(&mut self, id: TopicId, partitions: &[PartitionRecord]) {
        ended(&mut self.tail.altering.topics, &id, VecDeque::pop_front);
        self.note_partitions(partitions);
        self.rewrite_topic(id, |record| record.partitions.extend_from_slice(partitions));
    }

    /// A committed document.
    pub(crate) fn settings_replaced(&mut self, scope: SettingsScope, settings: Settings) {
        ended(&mut self.tail.altering.documents, &scope, VecDeque::pop_front);
        self.note_document_changed(&scope);
        let settings = Arc::new(settings);
        if settings.is_empty() {
            self.documents.remove(&scope);
        } else {
            self.documents.insert(scope.clone(), settings.clone());
        }
        let concerns_topics = match scope {
            SettingsScope::Cluster => true,
            SettingsScope::Node(node) => node == self.settings.node,
            SettingsScope::Group(_) | SettingsScope::ClientMetrics(_) => false,
        };
        self.events.push(MetaEvent::Settings(scope, settings));
        if self.live && concerns_topics {
            self.tell_resolver();
        }
    }

    /// The log refused the newest change of a topic.
    pub(crate) fn topic_change_refused(&mut self, id: TopicId) {
        ended(&mut self.tail.altering.topics, &id, VecDeque::pop_back);
    }

    /// The log refused the newest document of a scope.
    pub(crate) fn document_refused(&mut self, scope: &SettingsScope) {
        ended(&mut self.tail.altering.documents, scope, VecDeque::pop_back);
    }

    fn rewrite_topic(&mut self, id: TopicId, change: impl FnOnce(&mut TopicRecord)) {
        let Some(topic) = self.by_id.get(&id) else { return };
        let mut record = topic.record().clone();
        change(&mut record);
        let topic = Arc::new(TopicMeta::new(record));
        self.show(&topic);
        self.note_changed(id);
        self.events.push(MetaEvent::Changed(topic));
    }

    /// Tells the resolver what is set. What that makes of topics it is asked when they are looked at, however many there are.
    pub(crate) fn tell_resolver(&self) {
        let document = |scope| self.documents.get(&scope).cloned().unwrap_or_default();
        let (cluster, node) = (document(SettingsScope::Cluster), document(SettingsScope::Node(self.settings.node)));
        self.settings.resolver.settings_changed(&cluster, &node);
    }

    fn show(&mut self, topic: &Arc<TopicMeta>) {
        self.by_id.insert(topic.id(), topic.clone());
        if let Some(named) = self.topics.get_mut(&topic.record().name).filter(|named| named.id() == topic.id()) {
            *named = topic.clone();
        }
    }

    /// The durability for whose shards the topic was made. Its new partitions are placed there, too: these shards are open.
    fn made_for(&self, topic: &TopicMeta) -> Durability {
        match topic.placement().next() {
            Some((_, shard)) if shard == self.settings.async_shard => Durability::Async,
            Some((_, shard)) if shard == self.settings.memory_shard => Durability::Memory,
            _ => Durability::Sync,
        }
    }

    /// The newest partitions that were placed will not be there.
    pub(crate) fn unplace(&mut self, partitions: &[PartitionRecord]) {
        if let Some(first) = partitions.first() {
            self.tail.next_partition = first.id.0;
            self.tail.partitions -= partitions.len() as u64;
        }
    }

    /// Allocates ids and shards for new partitions.
    pub(crate) fn place(&mut self, durability: Durability, count: u32) -> Vec<PartitionRecord> {
        let first = self.tail.next_partition;
        let place = |partition| {
            let shard = self.shard_for(durability, partition);
            PartitionRecord { id: PartitionId(partition), shard, epoch_base: 0, opened_term: self.term_of(shard) }
        };
        let placed = (first..first + u64::from(count)).map(place).collect();
        self.tail.next_partition += u64::from(count);
        self.tail.partitions += u64::from(count);
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy over 100,000 queues wrote a record for each of them.
    #[test]
    fn topics_in_a_row_that_are_configured_alike_are_one_record() {
        let id = |n| TopicId([n; 16]);
        let config = |v: &str| TopicConfig { raw: [("x".to_owned(), v.to_owned())].into(), ..TopicConfig::default() };
        let one = |n, v| MetaRecord::TopicConfigured(id(n), config(v));
        let grown = || MetaRecord::PartitionsAdded(id(4), Vec::new());
        let records = vec![one(1, "a"), one(2, "a"), one(3, "a"), grown(), one(4, "a"), one(5, "b"), one(6, "b")];
        let expected = vec![
            MetaRecord::TopicsConfigured(vec![id(1), id(2), id(3)], config("a")),
            grown(),
            one(4, "a"),
            MetaRecord::TopicsConfigured(vec![id(5), id(6)], config("b")),
        ];
        assert_eq!(gathered(records), expected);
        assert_eq!(gathered(Vec::new()), []);
    }
}
