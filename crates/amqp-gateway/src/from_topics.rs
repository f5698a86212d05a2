//! Exchanges that name a topic: records that Kafka's clients produce into the topic are published to the exchange. Sans-IO, one instance per broker,
//! independent of client connections.
//!
//! ```text
//!   topic ──Request::Read──> FromTopics ──Request::Publish──> exchange ──> queues
//!     ^                        │      ^                                      │ committed in all of them
//!     └──Request::Watch────────┘      └──────────────────────────────────────┘
//!                              └──Command::SetTopicReads──> metadata: how far each partition was read
//! ```
//!
//! Partitions are read independently, and a read is published and answered before the next one of its partition: messages of a partition keep their
//! order. The position is recorded in the metadata a moment later, so that a crash republishes some records and loses none. Messages that a queue has
//! no room for are retried, and later ones of the partition wait.
//!
//! Reading begins at the current end when the exchange is declared, and at the beginning of topics and partitions that are created later.

mod reading;
mod records;
#[cfg(test)]
mod tests;

use crate::begin::{begin, log_named};
use crate::changes::ExchangeChange;
use crate::directory::Directory;
use crate::management::managed;
use polylogue_amqp_model::{Command, READS_BEGUN, TopicReads, exchange_topic};
use polylogue_api::{Catalog, Event, Now, Reply, Request, Token, TopicInfo};
use polylogue_router::{Exchange, ExchangeId, Scratch};
use polylogue_types::{Map, PartitionId};
use reading::{Source, Stage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How often new and deleted topics and partitions are searched. Milliseconds.
const LOOK_MS: u64 = 1_000;
/// How often it is checked whether the start of the machine is complete. Milliseconds.
const BEGIN_MS: u64 = 10;
/// The shortest interval between records of an exchange's position. Milliseconds.
const SAVE_MS: u64 = 100;

/// Outcomes of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExchangeCounts {
    /// Published, to any number of queues.
    pub published: u64,
    /// To be retried.
    pub retried: u64,
    /// Skipped: they cannot be converted to messages.
    pub skipped: u64,
}

/// An exchange with its topic.
#[derive(Debug)]
struct Link {
    exchange: Arc<Exchange>,
    topic: String,
    /// The start of reading is recorded.
    begun: bool,
    /// A reply concerning the start is outstanding.
    beginning: bool,
    /// The recorded position of each partition, or its start.
    from: BTreeMap<u64, u64>,
    partitions: BTreeMap<PartitionId, Source>,
    /// Partitions to read, in this order.
    ready: VecDeque<PartitionId>,
    /// Partitions with a read or publish in progress.
    open: usize,
    unsaved: BTreeSet<PartitionId>,
    /// Deleted partitions that still have a recorded position.
    gone: BTreeSet<u64>,
    /// A record of the position is in progress, or waits for its time.
    saving: bool,
    /// When the position was last recorded. Monotonic milliseconds.
    saved_ms: u64,
}

/// An outstanding reply.
#[derive(Debug)]
enum Asked {
    /// The ends of partitions.
    Ends(ExchangeId, Vec<PartitionId>),
    /// The record that reading has begun.
    Begin(ExchangeId),
    Save(ExchangeId, TopicReads),
    Read(ExchangeId, PartitionId),
    Publish(ExchangeId, PartitionId),
}

/// Work that is due at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Save(ExchangeId),
    Retry(ExchangeId, PartitionId),
}

/// See the module.
#[derive(Debug)]
pub struct FromTopics {
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    /// The largest body of a message. Bytes.
    body_bytes_max: usize,
    links: BTreeMap<ExchangeId, Link>,
    waiting: Map<Token, Asked>,
    watches: Map<Token, (ExchangeId, PartitionId)>,
    due: BTreeSet<(u64, Due)>,
    /// When topics are searched next. Monotonic milliseconds.
    search_ms: Option<u64>,
    /// The version of the catalog at the last search.
    searched: Option<u64>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    scratch: Scratch,
    /// Steps left for routing, and partitions whose records wait for steps.
    steps: u64,
    unfinished: VecDeque<(ExchangeId, PartitionId)>,
    /// Partitions with a compressed batch next, and whether this turn may open one.
    compressed: VecDeque<(ExchangeId, PartitionId)>,
    is_long: bool,
    counts: ExchangeCounts,
}

impl FromTopics {
    /// Knows no exchange yet; [`FromTopics::on_deadline`] finds them.
    #[must_use]
    pub fn new(directory: Arc<Directory>, catalog: Arc<dyn Catalog>, body_bytes_max: usize) -> FromTopics {
        FromTopics {
            directory,
            catalog,
            body_bytes_max,
            links: BTreeMap::new(),
            waiting: Map::default(),
            watches: Map::default(),
            due: BTreeSet::new(),
            search_ms: None,
            searched: None,
            requests: VecDeque::new(),
            next_token: 0,
            scratch: Scratch::default(),
            steps: u64::MAX,
            unfinished: VecDeque::new(),
            compressed: VecDeque::new(),
            is_long: false,
            counts: ExchangeCounts::default(),
        }
    }

    /// Returns the next request for the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// Returns the outcomes since the last call.
    pub fn take_counts(&mut self) -> ExchangeCounts {
        std::mem::take(&mut self.counts)
    }

    /// When [`FromTopics::on_deadline`] must be called; also call it when the directory wakes its waker. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.search_ms).min()
    }

    /// Handles deadlines that have passed, and changes in the directory.
    pub fn on_deadline(&mut self, now: Now) {
        if !self.directory.has_begun() {
            self.search_ms = Some(now.monotonic_ms + BEGIN_MS);
            return;
        }
        for changes in self.directory.exchange_changes().take() {
            match changes {
                ExchangeChange::Declared(exchange, reads) => self.declared(exchange, reads),
                ExchangeChange::Begun(id, reads) => self.begun(id, reads),
                ExchangeChange::Deleted(id) => self.deleted(id),
            }
        }
        self.search(now);
        while let Some((at, due)) = self.due.first().copied().filter(|(at, _)| *at <= now.monotonic_ms) {
            self.due.remove(&(at, due));
            match due {
                Due::Save(id) => self.save_now(id, now),
                Due::Retry(id, partition) => self.ready(id, partition),
            }
        }
    }

    /// Handles an event of the broker.
    pub fn on_event(&mut self, event: Event) {
        if let Event::Changed(token) = event
            && let Some((id, partition)) = self.watches.remove(&token)
        {
            self.ready(id, partition);
        }
    }

    /// Handles a reply of the broker.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        let Some(asked) = self.waiting.remove(&token) else { return };
        match (asked, reply) {
            (Asked::Ends(id, partitions), Reply::DescribePartitions(sizes)) => {
                self.ask(begin(id, &partitions, &sizes.partitions), Asked::Begin(id));
            }
            // The directory reports the start positions.
            (Asked::Begin(_), Reply::Machine(Ok(_))) => {}
            (Asked::Save(id, _), Reply::Machine(Ok(_))) => self.saved(id, None, now),
            (Asked::Save(id, reads), _) => self.saved(id, Some(&reads), now),
            (Asked::Read(id, partition), Reply::Read(mut results)) => self.read(id, partition, results.pop(), now),
            (Asked::Read(id, partition), _) => self.later(id, partition, now),
            (Asked::Publish(id, partition), Reply::Publish(results)) => self.published(id, partition, &results, now),
            (Asked::Publish(id, partition), _) => self.published(id, partition, &[], now),
            // Retried at the next search.
            (Asked::Ends(id, _) | Asked::Begin(id), _) => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.beginning = false;
                }
            }
        }
    }

    fn ask(&mut self, request: Request, asked: Asked) {
        self.next_token += 1;
        self.waiting.insert(self.next_token, asked);
        self.requests.push_back((self.next_token, request));
    }

    fn declared(&mut self, exchange: Arc<Exchange>, reads: Vec<(u64, u64)>) {
        let Some(topic) = exchange_topic(&exchange.arguments).map(str::to_owned) else { return };
        let mut from: BTreeMap<u64, u64> = reads.into_iter().collect();
        let begun = from.remove(&READS_BEGUN).is_some();
        let link = Link {
            topic,
            begun,
            beginning: false,
            from,
            partitions: BTreeMap::new(),
            ready: VecDeque::new(),
            open: 0,
            unsaved: BTreeSet::new(),
            gone: BTreeSet::new(),
            saving: false,
            saved_ms: 0,
            exchange,
        };
        self.links.insert(link.exchange.id, link);
        self.searched = None;
    }

    fn deleted(&mut self, id: ExchangeId) {
        let Some(link) = self.links.remove(&id) else { return };
        link.partitions.into_values().for_each(|source| self.unwatch(&source));
        self.due.retain(|(_, due)| !matches!(due, Due::Save(of) | Due::Retry(of, _) if *of == id));
    }

    fn unwatch(&mut self, source: &Source) {
        if let Stage::Watching(token) = source.stage {
            self.watches.remove(&token);
            self.next_token += 1;
            self.requests.push_back((self.next_token, Request::Unwatch(token)));
        }
    }

    /// Searches for new and deleted topics and partitions, if the catalog changed.
    fn search(&mut self, now: Now) {
        let is_due = self.search_ms.is_none_or(|at| at <= now.monotonic_ms);
        if !is_due && self.searched.is_some() {
            return;
        }
        self.search_ms = (!self.links.is_empty()).then_some(now.monotonic_ms + LOOK_MS);
        let version = self.catalog.version();
        let is_changed = self.searched.replace(version) != Some(version);
        let ids: Vec<_> = self.links.keys().copied().collect();
        for id in ids {
            let Some(link) = self.links.get(&id) else { continue };
            if is_changed || !link.begun {
                self.search_one(id, now);
            }
            // Nothing is read while disk space is low.
            self.pump(id);
        }
    }

    fn search_one(&mut self, id: ExchangeId, now: Now) {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.beginning) else { return };
        let topic = log_named(self.catalog.as_ref(), &link.topic);
        if link.begun {
            return self.take_partitions(id, topic.as_deref(), now);
        }
        link.beginning = true;
        let partitions: Vec<_> = topic.iter().flat_map(|topic| topic.partitions.iter().map(|one| one.id)).collect();
        if partitions.is_empty() {
            return self.ask(begin(id, &[], &[]), Asked::Begin(id));
        }
        self.ask(Request::DescribePartitions(partitions.clone()), Asked::Ends(id, partitions));
    }

    /// The start of reading was recorded.
    fn begun(&mut self, id: ExchangeId, reads: Vec<(u64, u64)>) {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.begun) else { return };
        (link.begun, link.beginning) = (true, false);
        link.from = reads.into_iter().filter(|(partition, _)| *partition != READS_BEGUN).collect();
        self.searched = None;
    }

    /// Reads the existing partitions.
    fn take_partitions(&mut self, id: ExchangeId, topic: Option<&TopicInfo>, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let there: Map<PartitionId, usize> = topic
            .into_iter()
            .flat_map(|topic| topic.partitions.iter().enumerate())
            .map(|(nth, p)| (p.id, nth))
            .collect();
        let gone: Vec<_> = link.partitions.keys().copied().filter(|id| !there.contains_key(id)).collect();
        link.gone.extend(gone.iter().map(|partition| partition.0));
        let from = std::mem::take(&mut link.from);
        link.gone.extend(from.keys().filter(|partition| !there.contains_key(&PartitionId(**partition))));
        let mut come: Vec<_> = there.into_iter().filter(|(id, _)| !link.partitions.contains_key(id)).collect();
        come.sort_unstable_by_key(|(_, nth)| *nth);
        for (partition, nth) in come {
            // A later partition is read from its beginning.
            link.partitions.insert(partition, Source::new(nth, from.get(&partition.0).copied().unwrap_or(0)));
            link.ready.push_back(partition);
        }
        for partition in gone {
            self.drop_partition(id, partition);
        }
        self.save(id, now);
    }

    fn drop_partition(&mut self, id: ExchangeId, partition: PartitionId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(source) = link.partitions.remove(&partition) else { return };
        link.open -= usize::from(source.is_open());
        link.ready.retain(|ready| *ready != partition);
        link.unsaved.remove(&partition);
        self.due.retain(|(_, due)| *due != Due::Retry(id, partition));
        self.unwatch(&source);
    }

    /// Schedules a record of an exchange's position.
    fn save(&mut self, id: ExchangeId, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.saving || (link.unsaved.is_empty() && link.gone.is_empty()) {
            return;
        }
        link.saving = true;
        let at = (link.saved_ms + SAVE_MS).max(now.monotonic_ms);
        if at > now.monotonic_ms && link.saved_ms > 0 {
            self.due.insert((at, Due::Save(id)));
        } else {
            self.save_now(id, now);
        }
    }

    fn save_now(&mut self, id: ExchangeId, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let unsaved = std::mem::take(&mut link.unsaved);
        let at = unsaved.iter().filter_map(|id| Some((id.0, link.partitions.get(id)?.next))).collect();
        let gone = std::mem::take(&mut link.gone).into_iter().collect();
        link.saved_ms = now.monotonic_ms.max(1);
        let reads = TopicReads { exchange: id, at, gone };
        self.ask(managed(Command::SetTopicReads(reads.clone())), Asked::Save(id, reads));
    }

    /// The position was recorded, or `failed` has to be recorded again.
    fn saved(&mut self, id: ExchangeId, failed: Option<&TopicReads>, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.saving = false;
        if let Some(reads) = failed {
            let partitions = reads.at.iter().map(|(partition, _)| PartitionId(*partition));
            link.unsaved.extend(partitions.filter(|partition| link.partitions.contains_key(partition)));
            link.gone.extend(&reads.gone);
        }
        self.save(id, now);
    }
}
