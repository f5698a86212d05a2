//! Forwarding of queues to topics: messages of a queue with `x-polylogue-topic` are appended to that topic, and then settled. Sans-IO, one instance
//! per broker, independent of client connections. Such a queue that is bound to an exchange connects the exchange to the topic.
//!
//! ```text
//!   queue ──Event::Deliver──> ToTopics ──Request::Append──> topic
//!     ^                                                       │ committed there
//!     └────────── Request::Settle, Request::Credit <──────────┘
//! ```
//!
//! It is the exclusive consumer of the queue, with limited credit. A message leaves the queue once it is committed in the topic: a crash in between
//! appends it again, and none is lost. An append is answered before the next one begins, and failed messages come first then, so that messages of one
//! key keep their order.

use crate::backoff::{Backoff, Delays};
use crate::directory::{Directory, QueueEntry};
use crate::topics::{MessagesAsRecords, TOPIC_HEADER};
use polylogue_api::{
    Ack, AppendEntry, AppendError, AppendRequest, Appended, Attach, AttachError, Catalog, ConsumerId, ConsumerSpec,
    Credit, Delivery, Event, Holder, LogView, Now, PartitionInfo, Reply, Request, Settle, SettleRequest, Settlement,
    StoredMessage, TimestampKind, Token, TopicConfig, TopicInfo,
};
use polylogue_record::envelope::Form;
use polylogue_record::kafka::{BatchBuilder, BatchHeader, CRC_FROM, partition_of_key};
use polylogue_router::QueueId;
use polylogue_types::{Map, TimestampMs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most messages of a queue in flight.
const WINDOW_MESSAGES: u64 = 1_000;
/// The most bytes of them, unless a single message is larger.
const WINDOW_BYTES: u64 = 1 << 20;
/// Backoff of retries.
const RETRY: Delays = Delays { min_ms: 10, max_ms: 1_000 };

/// Outcomes of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TopicCounts {
    /// Appended to the topic.
    pub appended: u64,
    /// To be retried.
    pub retried: u64,
}

/// A queue that forwards to a topic.
#[derive(Debug)]
struct Link {
    entry: Arc<QueueEntry>,
    consumer: Option<ConsumerId>,
    /// Messages that are not in flight, in order.
    pending: VecDeque<Delivery>,
    /// Messages being appended, with the index of their entry; `None` for invalid messages.
    moving: Vec<(Delivery, Option<usize>)>,
    /// A request is outstanding, or a check is scheduled.
    busy: bool,
    backoff: Backoff,
}

/// An outstanding reply.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Attach(QueueId),
    Append(QueueId),
}

/// See the module.
#[derive(Debug)]
pub struct ToTopics {
    directory: Arc<Directory>,
    catalog: Arc<dyn Catalog>,
    links: Map<QueueId, Link>,
    consumers: Map<ConsumerId, QueueId>,
    waiting: Map<Token, Asked>,
    /// When queues are checked again. Monotonic milliseconds.
    due: BTreeSet<(u64, QueueId)>,
    requests: VecDeque<(Token, Request)>,
    next_token: Token,
    counts: TopicCounts,
}

impl ToTopics {
    /// Knows no queue yet; [`ToTopics::on_deadline`] finds them.
    #[must_use]
    pub fn new(directory: Arc<Directory>, catalog: Arc<dyn Catalog>) -> ToTopics {
        ToTopics {
            directory,
            catalog,
            links: Map::default(),
            consumers: Map::default(),
            waiting: Map::default(),
            due: BTreeSet::new(),
            requests: VecDeque::new(),
            next_token: 0,
            counts: TopicCounts::default(),
        }
    }

    /// Returns the next request for the broker.
    pub fn poll_request(&mut self) -> Option<(Token, Request)> {
        self.requests.pop_front()
    }

    /// Returns the outcomes since the last call.
    pub fn take_counts(&mut self) -> TopicCounts {
        std::mem::take(&mut self.counts)
    }

    /// When [`ToTopics::on_deadline`] must be called; also call it when the directory wakes its waker. Monotonic milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Handles deadlines that have passed, and changes in the directory.
    pub fn on_deadline(&mut self, now: Now) {
        for id in self.directory.topic_changes().take() {
            let Some(entry) = self.directory.queue(id) else { continue };
            match self.links.get_mut(&id) {
                Some(link) => link.entry = entry,
                None => {
                    let (pending, moving) = (VecDeque::new(), Vec::new());
                    self.links.insert(
                        id,
                        Link { entry, consumer: None, pending, moving, busy: false, backoff: Backoff::default() },
                    );
                    self.proceed(id, now);
                }
            }
        }
        while let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now.monotonic_ms) {
            self.due.remove(&(at, id));
            if let Some(link) = self.links.get_mut(&id) {
                link.busy = false;
            }
            self.proceed(id, now);
        }
    }

    /// Handles an event of the broker.
    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Deliver(deliveries) => {
                let mut touched = BTreeSet::new();
                for delivery in deliveries {
                    let Some(id) = self.consumers.get(&delivery.consumer).copied() else { continue };
                    if let Some(link) = self.links.get_mut(&id) {
                        link.pending.push_back(delivery);
                        touched.insert(id);
                    }
                }
                touched.into_iter().for_each(|id| self.proceed(id, now));
            }
            Event::Detached(consumer) => {
                if let Some(id) = self.consumers.remove(&consumer) {
                    self.links.remove(&id);
                }
            }
            Event::Changed(_) | Event::Dead(_) => {}
        }
    }

    /// Handles a reply of the broker.
    pub fn on_reply(&mut self, token: Token, reply: Reply, now: Now) {
        match (self.waiting.remove(&token), reply) {
            (Some(Asked::Attach(id)), Reply::Attach(attached)) => self.attached(id, attached, now),
            (Some(Asked::Append(id)), Reply::Append(results)) => self.appended(id, &results, now),
            // A settlement, whose result is ignored.
            (None, _) => {}
            (Some(Asked::Attach(id) | Asked::Append(id)), _) => self.later(id, now),
        }
    }

    fn ask(&mut self, request: Request, asked: Option<Asked>) {
        self.next_token += 1;
        self.waiting.extend(asked.map(|asked| (self.next_token, asked)));
        self.requests.push_back((self.next_token, request));
    }

    /// Performs the next operation of a queue, unless one is in progress.
    fn proceed(&mut self, id: QueueId, now: Now) {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.busy) else { return };
        if link.consumer.is_none() {
            match link.entry.partition(self.catalog.as_ref()) {
                Some(queue) => {
                    link.busy = true;
                    let consumer = ConsumerSpec {
                        credit: Some(WINDOW_MESSAGES),
                        window_bytes: WINDOW_BYTES,
                        exclusive: true,
                        ..ConsumerSpec::default()
                    };
                    self.ask(Request::Attach(Attach { queue, consumer }), Some(Asked::Attach(id)));
                }
                None => self.later(id, now),
            }
        } else if !link.pending.is_empty() {
            self.append(id, now);
        }
    }

    /// Schedules a check of a queue after the backoff; not of a deleted one.
    fn later(&mut self, id: QueueId, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if self.directory.queue(id).is_none() {
            if let Some(consumer) = link.consumer {
                self.consumers.remove(&consumer);
            }
            self.links.remove(&id);
            return;
        }
        link.busy = true;
        self.due.insert((now.monotonic_ms + link.backoff.failed(RETRY), id));
    }

    fn attached(&mut self, id: QueueId, attached: Result<ConsumerId, AttachError>, now: Now) {
        let (Ok(consumer), Some(link)) = (attached, self.links.get_mut(&id)) else { return self.later(id, now) };
        link.consumer = Some(consumer);
        link.busy = false;
        link.backoff.succeeded();
        self.consumers.insert(consumer, id);
    }

    /// Appends pending messages to the topic, if it exists.
    fn append(&mut self, id: QueueId, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let topic = link.entry.settings.topic.as_deref().and_then(|name| self.catalog.topic(name));
        let Some(topic) = topic.filter(|topic| topic.config.queue.is_none() && !topic.internal) else {
            return self.later(id, now);
        };
        let mut batches = Batches::new(&topic, now.wall_ms);
        let places: Vec<_> = link.pending.iter().map(|delivery| batches.add(delivery)).collect();
        let Some(entries) = batches.finish() else { return self.later(id, now) };
        link.moving = std::mem::take(&mut link.pending).into_iter().zip(places).collect();
        link.busy = true;
        self.ask(Request::Append(AppendRequest { entries, ack: Ack::Committed }), Some(Asked::Append(id)));
    }

    fn appended(&mut self, id: QueueId, results: &[Result<Appended, AppendError>], now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let mut settlements = Vec::with_capacity(link.moving.len());
        let (mut given, mut failed) = (Credit::default(), Vec::new());
        for (delivery, entry) in std::mem::take(&mut link.moving) {
            if entry.is_some_and(|entry| !results.get(entry).is_some_and(Result::is_ok)) {
                failed.push(delivery);
                continue;
            }
            self.counts.appended += u64::from(entry.is_some());
            given.messages += u64::from(delivery.count);
            given.bytes += delivery.weight;
            let Delivery { queue, first, count, lease, .. } = delivery;
            settlements.push(Settlement { queue, first, count, by: Holder::Lease(lease), how: Settle::Accept });
        }
        let (again, consumer) = (!failed.is_empty(), link.consumer);
        self.counts.retried += failed.len() as u64;
        failed.into_iter().rev().for_each(|delivery| link.pending.push_front(delivery));
        if !again {
            link.busy = false;
            link.backoff.succeeded();
        }
        if !settlements.is_empty() {
            self.ask(Request::Settle(SettleRequest { settlements, wait: false }), None);
            let credit = consumer.map(|consumer| Request::Credit(consumer, given));
            credit.into_iter().for_each(|credit| self.ask(credit, None));
        }
        if again { self.later(id, now) } else { self.proceed(id, now) }
    }
}

/// Batches for the partitions of a topic.
struct Batches<'t> {
    topic: &'t TopicInfo,
    now_ms: TimestampMs,
    /// By partition number: the index of the entry, and the batch.
    open: BTreeMap<usize, (usize, BatchBuilder)>,
    entries: Vec<Option<AppendEntry>>,
}

impl<'t> Batches<'t> {
    fn new(topic: &'t TopicInfo, now_ms: TimestampMs) -> Batches<'t> {
        Batches { topic, now_ms, open: BTreeMap::new(), entries: Vec::new() }
    }

    /// Adds a message to the batch of its partition. Returns the index of the entry; `None` for invalid messages, and for those that came from the
    /// topic: if an exchange and its topic are connected both ways, a record would cycle forever.
    fn add(&mut self, delivery: &Delivery) -> Option<usize> {
        let config: &TopicConfig = &self.topic.config;
        let mut added = None;
        let message = StoredMessage { form: Form::AmqpMessage, timestamp: self.now_ms, bytes: &delivery.bytes };
        MessagesAsRecords.record(message, &mut |record| {
            let from = record.headers.iter().find(|(name, _)| *name == TOPIC_HEADER.as_bytes());
            if from.is_some_and(|(_, topic)| *topic == Some(self.topic.name.as_bytes())) {
                return;
            }
            let partitions = self.topic.partitions.len().max(1);
            let key = record.key.filter(|key| !key.is_empty());
            // Without a key, partitions take turns.
            let to =
                key.map_or((delivery.first.0 % partitions as u64) as usize, |key| partition_of_key(key, partitions));
            let full = |batch: &BatchBuilder| batch.bytes_with(i32::MAX - 1, record) > config.max_message_bytes;
            if self.open.get(&to).is_some_and(|(_, batch)| full(batch)) {
                self.seal(to);
            }
            let Batches { open, entries, .. } = self;
            let (entry, batch) = open.entry(to).or_insert_with(|| {
                entries.push(None);
                (entries.len() - 1, BatchBuilder::new())
            });
            added = batch.push(record).is_ok().then_some(*entry);
        });
        added
    }

    /// Returns the entries in order. `None` if one of them could not be built.
    fn finish(mut self) -> Option<Vec<AppendEntry>> {
        while let Some(to) = self.open.keys().next().copied() {
            self.seal(to);
        }
        self.entries.into_iter().collect()
    }

    /// Completes the batch of a partition.
    fn seal(&mut self, to: usize) {
        let Some((entry, batch)) = self.open.remove(&to) else { return };
        let count = batch.len() as u32;
        let built = match self.topic.config.timestamp_kind {
            TimestampKind::Create => batch.build(),
            TimestampKind::LogAppend => batch.build_log_append_time(self.now_ms),
        };
        let header = built.as_ref().ok().and_then(|bytes| BatchHeader::parse(bytes).ok());
        let partition: Option<&PartitionInfo> = self.topic.partitions.get(to);
        let (Ok(bytes), Some(header), Some(partition), Some(slot)) =
            (built, header, partition, self.entries.get_mut(entry))
        else {
            return;
        };
        *slot = Some(AppendEntry {
            partition: partition.id,
            form: Form::KafkaV2,
            flags: header.flags(),
            bytes,
            count,
            max_timestamp: header.max_timestamp,
            body_crc: header.crc,
            summed_from: CRC_FROM as u32,
            producer: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::store;
    use crate::testing::{Topics, World, body};
    use bytes::Bytes;
    use polylogue_amqp::codec::{BasicProperties, TableBuilder};
    use polylogue_api::{ClusterInfo, Settings, SettingsScope, Unavailable};
    use polylogue_record::kafka::{BatchIter, records};
    use polylogue_types::{Offset, PartitionId, TopicId};
    use serde_json::json;

    const TOPIC: &str = "orders";
    const CONSUMER: ConsumerId = ConsumerId(5);

    /// The topics of queues, and possibly one that is a log.
    #[derive(Debug)]
    struct WithLog(Option<u32>);

    impl Catalog for WithLog {
        fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
            if name != TOPIC {
                return Topics.topic(name);
            }
            let partition = |number: u32| PartitionInfo { id: PartitionId(u64::from(number)), leader_epoch: 0 };
            let (id, config) = (TopicId([1; 16]), Arc::default());
            let partitions = (0..self.0?).map(partition).collect();
            Some(Arc::new(TopicInfo { name: name.into(), id, internal: false, partitions, config }))
        }
        fn topic_by_id(&self, _: TopicId) -> Option<Arc<TopicInfo>> {
            None
        }
        fn topics(&self) -> Vec<Arc<TopicInfo>> {
            Vec::new()
        }
        fn cluster(&self) -> ClusterInfo {
            Topics.cluster()
        }
        fn settings(&self, _: &SettingsScope) -> Arc<Settings> {
            Arc::default()
        }
        fn settings_scopes(&self) -> Vec<SettingsScope> {
            Vec::new()
        }
        fn version(&self) -> u64 {
            0
        }
    }

    fn at(ms: u64) -> Now {
        Now { wall_ms: 1_700_000_000_000, monotonic_ms: ms }
    }

    /// A queue that forwards to a topic with this many partitions, with its consumer.
    fn begun(partitions: Option<u32>) -> (World, PartitionId, ToTopics) {
        let mut world = World::new();
        world.queue("other", json!({}));
        let queue = world.queue("out", json!({"x-polylogue-topic": TOPIC}));
        let mut to = ToTopics::new(world.directory.clone(), Arc::new(WithLog(partitions)));
        to.on_deadline(at(1));
        let Some((token, Request::Attach(attach))) = to.poll_request() else { panic!("no consumer") };
        assert_eq!((attach.queue, attach.consumer.exclusive), (queue, true));
        to.on_reply(token, Reply::Attach(Ok(CONSUMER)), at(1));
        assert!(to.poll_request().is_none());
        (world, queue, to)
    }

    fn delivery(queue: PartitionId, offset: u64, key: &str) -> Delivery {
        delivery_of(queue, offset, store(b"x", key.as_bytes(), b"\0\0", None, &body(&format!("m{offset}"))))
    }

    fn delivery_of(queue: PartitionId, offset: u64, bytes: Bytes) -> Delivery {
        let (first, entry, lease) = (Offset(offset), Offset(offset), offset + 100);
        let (redelivered, returned, failed) = (false, 0, 0);
        Delivery {
            consumer: CONSUMER,
            queue,
            first,
            count: 1,
            lease,
            life: 0,
            weight: 7,
            redelivered,
            returned,
            failed,
            entry,
            bytes,
        }
    }

    fn append(to: &mut ToTopics) -> (Token, Vec<AppendEntry>) {
        match to.poll_request() {
            Some((token, Request::Append(AppendRequest { entries, ack: Ack::Committed }))) => (token, entries),
            other => panic!("{other:?}"),
        }
    }

    fn values(entry: &AppendEntry) -> Vec<String> {
        let batch = BatchIter::new(entry.bytes.clone()).next().expect("a batch").expect("whole");
        let records = records(&batch.bytes, 1 << 10).expect("records").map(|record| record.expect("a record").value);
        let values: Vec<_> = records.map(|value| String::from_utf8(value.expect("a body").to_vec()).unwrap()).collect();
        assert_eq!((entry.count as usize, entry.body_crc), (values.len(), batch.header.crc));
        values
    }

    /// The settled offsets, and the granted credit.
    fn settled(to: &mut ToTopics) -> (Vec<u64>, Credit) {
        let Some((_, Request::Settle(SettleRequest { settlements, wait: false }))) = to.poll_request() else {
            panic!("nothing is settled")
        };
        assert!(settlements.iter().all(|s| s.how == Settle::Accept && s.by == Holder::Lease(s.first.0 + 100)));
        let Some((_, Request::Credit(CONSUMER, credit))) = to.poll_request() else { panic!("no credit") };
        (settlements.iter().map(|s| s.first.0).collect(), credit)
    }

    const DONE: Result<Appended, AppendError> =
        Ok(Appended { base_offset: Offset(0), log_start: Offset(0), duplicate: false, max_timestamp: -1 });
    const FAILED: Result<Appended, AppendError> = Err(AppendError::Unavailable(Unavailable::NotCommitted));

    #[test]
    fn messages_are_appended_and_then_settled() {
        let (_world, queue, mut to) = begun(Some(1));
        to.on_event(Event::Deliver(vec![delivery(queue, 0, "a"), delivery(queue, 1, "b")]), at(2));
        let (token, entries) = append(&mut to);
        assert_eq!((entries.len(), entries[0].partition), (1, PartitionId(0)));
        assert_eq!(values(&entries[0]), ["m0", "m1"]);
        to.on_event(Event::Deliver(vec![delivery(queue, 2, "a")]), at(3));
        assert!(to.poll_request().is_none(), "one append at a time");
        to.on_reply(token, Reply::Append(vec![DONE]), at(4));
        assert_eq!(settled(&mut to), (vec![0, 1], Credit { messages: 2, bytes: 14 }));
        assert_eq!(values(&append(&mut to).1[0]), ["m2"]);
        assert_eq!(to.take_counts(), TopicCounts { appended: 2, retried: 0 });
    }

    #[test]
    fn failed_messages_are_retried_before_later_ones() {
        let (_world, queue, mut to) = begun(Some(2));
        // "a" and "d" are keys of different partitions.
        let of = |key: &str| partition_of_key(key.as_bytes(), 2);
        assert_eq!([of("a"), of("d")], [0, 1]);
        let keys = ["a", "d", "a"];
        let sent = (0..).zip(keys).map(|(offset, key)| delivery(queue, offset, key)).collect();
        to.on_event(Event::Deliver(sent), at(2));
        let (token, entries) = append(&mut to);
        assert_eq!(entries.iter().map(values).collect::<Vec<_>>(), [vec!["m0", "m2"], vec!["m1"]]);
        assert_eq!(entries[0].partition, PartitionId(of("a") as u64));
        to.on_event(Event::Deliver(vec![delivery(queue, 3, "a")]), at(3));
        to.on_reply(token, Reply::Append(vec![FAILED, DONE]), at(10));
        assert_eq!(settled(&mut to).0, [1]);
        assert!(to.poll_request().is_none(), "not immediately");
        let due = to.next_deadline_ms().expect("a time for it");
        assert!(due > 10);
        to.on_deadline(at(due));
        let (token, entries) = append(&mut to);
        assert_eq!(entries.iter().map(values).collect::<Vec<_>>(), [["m0", "m2", "m3"]]);
        to.on_reply(token, Reply::Append(vec![DONE]), at(due));
        assert_eq!(settled(&mut to).0, [0, 2, 3]);
        assert_eq!(to.take_counts(), TopicCounts { appended: 4, retried: 2 });
    }

    /// If an exchange and a topic were connected both ways, a record cycled forever.
    #[test]
    fn records_of_the_topic_are_not_appended_to_it() {
        let (_world, queue, mut to) = begun(Some(1));
        let came_from = |offset: u64, topic: &str| {
            let headers = Some(TableBuilder::new().with_text(TOPIC_HEADER, topic).build());
            let basic = BasicProperties { headers, ..BasicProperties::default() };
            delivery_of(queue, offset, store(b"x", b"a", &basic.encode(), None, &body(&format!("m{offset}"))))
        };
        to.on_event(Event::Deliver(vec![came_from(0, TOPIC), came_from(1, "other"), delivery(queue, 2, "a")]), at(2));
        let (token, entries) = append(&mut to);
        assert_eq!(entries.iter().map(values).collect::<Vec<_>>(), [["m1", "m2"]]);
        to.on_reply(token, Reply::Append(vec![DONE]), at(3));
        assert_eq!(settled(&mut to).0, [0, 1, 2]);
        assert_eq!(to.take_counts(), TopicCounts { appended: 2, retried: 0 });
    }

    #[test]
    fn without_the_topic_messages_wait_and_invalid_ones_do_not() {
        let (world, queue, mut to) = begun(None);
        to.on_event(Event::Deliver(vec![delivery(queue, 0, "a")]), at(2));
        assert!(to.poll_request().is_none());
        to.catalog = Arc::new(WithLog(Some(1)));
        let due = to.next_deadline_ms().expect("a time for it");
        to.on_deadline(at(due));
        let (token, _) = append(&mut to);
        to.on_reply(token, Reply::Append(vec![DONE]), at(due));
        assert_eq!(settled(&mut to).0, [0]);
        to.on_event(Event::Deliver(vec![delivery_of(queue, 1, Bytes::from_static(b"?"))]), at(due));
        let (token, entries) = append(&mut to);
        assert!(entries.is_empty());
        to.on_reply(token, Reply::Append(vec![]), at(due));
        assert_eq!(settled(&mut to).0, [1]);
        to.on_event(Event::Detached(CONSUMER), at(due));
        assert!(to.links.is_empty() && to.consumers.is_empty());
        drop(world);
    }
}
