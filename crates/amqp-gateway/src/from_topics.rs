//! Exchanges that name a topic: what Kafka's clients produce into the topic is published to the exchange. Sans-IO, for the whole
//! broker: no client needs to be there.
//!
//! ```text
//!   topic ──Request::Read──> FromTopics ──Request::Publish──> exchange ──> queues
//!     ^                        │      ^                                      │ committed in all of them
//!     └──Request::Watch────────┘      └──────────────────────────────────────┘
//!                              └──Command::SetTopicReads──> declared world: how far each partition was read
//! ```
//!
//! Each partition is read for itself, and what was read is published and answered before the next of it is: messages of a partition come
//! in its order. How far that is becomes part of the declared world a moment later, so that a crash publishes some of it once more and
//! loses nothing. What a queue has no room for is tried again, and nothing behind it in its partition is published before.
//!
//! Reading begins at the end of what is there when the exchange is declared, and at the beginning of what comes later: a topic that is
//! made then, or its new partitions.

mod reading;
mod records;
#[cfg(test)]
mod tests;

use crate::begin::{begin, log_named};
use crate::directory::Directory;
use crate::management::managed;
use crate::news::ExchangeNews;
use polylogue_amqp_model::{Command, READS_BEGUN, TopicReads, exchange_topic};
use polylogue_api::{Catalog, Event, Now, Reply, Request, Token, TopicInfo};
use polylogue_router::{Exchange, ExchangeId, Scratch};
use polylogue_types::{Map, PartitionId};
use reading::{Source, Stage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How often it is looked whether topics or partitions have come or gone. Milliseconds.
const LOOK_MS: u64 = 1_000;
/// How soon it is looked whether the declared world has begun. Milliseconds.
const BEGIN_MS: u64 = 10;
/// How far the topic of an exchange was read is noted no more often. Milliseconds.
const SAVE_MS: u64 = 100;

/// What became of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExchangeCounts {
    /// They were published, wherever that led.
    pub published: u64,
    /// They are to be tried again.
    pub retried: u64,
    /// They cannot be messages, and were passed over.
    pub skipped: u64,
}

/// An exchange with its topic.
#[derive(Debug)]
struct Link {
    exchange: Arc<Exchange>,
    topic: String,
    /// That reading has begun is noted.
    begun: bool,
    /// The answer to something that has to do with its beginning is to come.
    beginning: bool,
    /// How far each partition was read in the last life, or where reading begins.
    from: BTreeMap<u64, u64>,
    partitions: BTreeMap<PartitionId, Source>,
    /// Partitions that are to be read, in this order.
    ready: VecDeque<PartitionId>,
    /// Partitions of which something was read, or is to be, and is not published.
    open: usize,
    unsaved: BTreeSet<PartitionId>,
    /// Partitions that are gone, and not so in the declared world.
    gone: BTreeSet<u64>,
    /// The answer to a note is to come, or the time for one.
    saving: bool,
    /// When the last note was made. Monotonic milliseconds.
    saved_ms: u64,
}

/// What is waited for.
#[derive(Debug)]
enum Asked {
    /// The ends of partitions, as many as there are.
    Ends(ExchangeId, Vec<PartitionId>),
    /// That reading has begun.
    Begin(ExchangeId),
    Save(ExchangeId, TopicReads),
    Read(ExchangeId, PartitionId),
    Publish(ExchangeId, PartitionId),
}

/// What there is to do at a time.
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
    /// When it is looked for topics again. Monotonic milliseconds.
    look_ms: Option<u64>,
    /// The catalog when it was looked last.
    looked: Option<u64>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    scratch: Scratch,
    /// Steps that may be taken to find queues, and partitions for whose records there were none left.
    steps: u64,
    unfinished: VecDeque<(ExchangeId, PartitionId)>,
    /// Partitions of which a compressed batch comes next, and whether this turn may open one.
    compressed: VecDeque<(ExchangeId, PartitionId)>,
    is_long: bool,
    counts: ExchangeCounts,
}

impl FromTopics {
    /// One that has heard of no exchange yet; [`FromTopics::on_deadline`] tells it.
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
            look_ms: None,
            looked: None,
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

    /// The next thing to ask the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// What came of records since the last call.
    pub fn take_counts(&mut self) -> ExchangeCounts {
        std::mem::take(&mut self.counts)
    }

    /// When [`FromTopics::on_deadline`] wants to be called; and whenever the directory wakes somebody. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.look_ms).min()
    }

    /// A deadline may have passed, or there is news in the directory.
    pub fn on_deadline(&mut self, now: Now) {
        if !self.directory.has_begun() {
            self.look_ms = Some(now.monotonic_ms + BEGIN_MS);
            return;
        }
        for news in self.directory.exchange_news().take() {
            match news {
                ExchangeNews::Declared(exchange, reads) => self.declared(exchange, reads),
                ExchangeNews::Begun(id, reads) => self.begun(id, reads),
                ExchangeNews::Deleted(id) => self.deleted(id),
            }
        }
        self.look(now);
        while let Some((at, due)) = self.due.first().copied().filter(|(at, _)| *at <= now.monotonic_ms) {
            self.due.remove(&(at, due));
            match due {
                Due::Save(id) => self.save_now(id, now),
                Due::Retry(id, partition) => self.ready(id, partition),
            }
        }
    }

    /// What the broker says.
    pub fn on_event(&mut self, event: Event) {
        if let Event::Changed(token) = event
            && let Some((id, partition)) = self.watches.remove(&token)
        {
            self.ready(id, partition);
        }
    }

    /// The broker's answer.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        let Some(asked) = self.waiting.remove(&token) else { return };
        match (asked, reply) {
            (Asked::Ends(id, partitions), Reply::DescribePartitions(sizes)) => {
                self.ask(begin(id, &partitions, &sizes.partitions), Asked::Begin(id));
            }
            // The directory tells where.
            (Asked::Begin(_), Reply::Machine(Ok(_))) => {}
            (Asked::Save(id, _), Reply::Machine(Ok(_))) => self.saved(id, None, now),
            (Asked::Save(id, reads), _) => self.saved(id, Some(&reads), now),
            (Asked::Read(id, partition), Reply::Read(mut results)) => self.read(id, partition, results.pop(), now),
            (Asked::Read(id, partition), _) => self.later(id, partition, now),
            (Asked::Publish(id, partition), Reply::Publish(results)) => self.published(id, partition, &results, now),
            (Asked::Publish(id, partition), _) => self.published(id, partition, &[], now),
            // With the next look.
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
        self.looked = None;
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

    /// Looks for topics and partitions that have come or gone, where any may have.
    fn look(&mut self, now: Now) {
        let is_due = self.look_ms.is_none_or(|at| at <= now.monotonic_ms);
        if !is_due && self.looked.is_some() {
            return;
        }
        self.look_ms = (!self.links.is_empty()).then_some(now.monotonic_ms + LOOK_MS);
        let version = self.catalog.version();
        let is_changed = self.looked.replace(version) != Some(version);
        let ids: Vec<_> = self.links.keys().copied().collect();
        for id in ids {
            let Some(link) = self.links.get(&id) else { continue };
            if is_changed || !link.begun {
                self.look_at(id, now);
            }
            // While the disk is short of room nothing is read.
            self.pump(id);
        }
    }

    fn look_at(&mut self, id: ExchangeId, now: Now) {
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

    /// It is noted where reading begins.
    fn begun(&mut self, id: ExchangeId, reads: Vec<(u64, u64)>) {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.begun) else { return };
        (link.begun, link.beginning) = (true, false);
        link.from = reads.into_iter().filter(|(partition, _)| *partition != READS_BEGUN).collect();
        self.looked = None;
    }

    /// Reads the partitions that there are now.
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
            // One that came later is read from its beginning, wherever that is.
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

    /// Notes soon how far an exchange's topic was read.
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

    /// It is noted, or `failed` is to be noted again.
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
