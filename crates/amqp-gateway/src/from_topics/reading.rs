//! The states of a partition that is read for an exchange: reading, publishing, retrying.
//!
//! ```text
//!   ready ──> reading ──> publishing ──> ready      more records were appended meanwhile
//!     ^          │             │
//!     │          └──────┬──────┴──> watching        the end is reached
//!     └── waiting <─────┘                           the read failed, or a queue has no room
//! ```

use super::records::{Next, Records};
use super::{Asked, Due, FromTopics, Link};
use crate::backoff::{Backoff, Delays};
use crate::convert::View;
use crate::directory::QueueEntry;
use crate::message::store;
use crate::publish::{TARGETS_PER_REQUEST, arrived, more_targets};
use crate::route::{PausedRoute, RouteContext, RoutedMessage, reach};
use crate::topics::{EXCHANGE, RecordMessage, RecordOf, message_of};
use crate::turn::{REQUEST_STEPS, TARGET_STEPS};
use polylogue_amqp_model::{Overflow, QueueSettings};
use polylogue_api::{
    Ack, Now, PublishError, PublishMessage, PublishRequest, ReadData, ReadError, ReadPart, ReadRequest, Request,
    Target, Token, WatchRequest,
};
use polylogue_record::kafka::Record;
use polylogue_router::{Entry, ExchangeId, Snapshot};
use polylogue_types::{Offset, PartitionId, Set};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of one read of a partition, unless a single batch is larger.
const READ_BYTES: u32 = 256 << 10;
/// The most partitions of an exchange with a read or publish in progress.
pub(super) const OPEN_MAX: usize = 8;
/// The most messages of a partition in flight.
const PUBLISH_MESSAGES: usize = 1_000;
/// The most bytes of them, unless a single message is larger.
const PUBLISH_BYTES: usize = 1 << 20;
/// The most bytes of a decompressed batch that are kept while a part is published; of a larger one the rest is read again. Bytes.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// The most publishes of one message that is retried for each queue separately; with more queues some share one.
const SEPARATE_MAX: usize = 64;
/// Backoff of retries.
const RETRY: Delays = Delays { min_ms: 10, max_ms: 1_000 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Ready,
    Reading,
    Publishing,
    Watching(Token),
    Waiting,
}

/// A publish of a record, or one of several.
#[derive(Debug)]
struct Part {
    offset: u64,
    to: Vec<PartitionId>,
    /// Its queues dead-letter messages that they reject, which counts as published.
    dead_letters: bool,
}

/// A partition that is read for an exchange.
#[derive(Debug)]
pub(super) struct Source {
    /// Its number in the topic.
    number: usize,
    /// The offset up to which everything is published.
    pub(super) next: u64,
    pub(super) stage: Stage,
    backoff: Backoff,
    end: u64,
    records: Option<Records>,
    sent: Vec<Part>,
    /// Records being retried, with the queues that have them.
    again: BTreeMap<u64, Vec<PartitionId>>,
    /// Records to retry, with the queues that have them. Those between them and `tried` are published.
    failed: BTreeMap<u64, Vec<PartitionId>>,
    tried: u64,
    /// The record whose routing was paused.
    paused: Option<Box<PausedRecord>>,
}

/// A record with its paused routing.
#[derive(Debug)]
struct PausedRecord {
    offset: u64,
    paused_route: Box<PausedRoute>,
    seen: QueueChecks,
}

/// Properties of the queues that a record was routed to.
#[derive(Default, Debug)]
struct QueueChecks {
    is_later: bool,
    is_last: bool,
    too_large: bool,
    dead_letters: Set<PartitionId>,
}

impl Source {
    pub(super) fn new(number: usize, next: u64) -> Source {
        Source {
            number,
            next,
            stage: Stage::Ready,
            backoff: Backoff::default(),
            end: 0,
            records: None,
            sent: Vec::new(),
            again: BTreeMap::new(),
            failed: BTreeMap::new(),
            tried: 0,
            paused: None,
        }
    }

    /// Whether a read or publish is in progress.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Reading | Stage::Publishing)
    }
}

/// The publishes of a partition in one request.
#[derive(Debug, Default)]
struct Batch {
    messages: Vec<PublishMessage>,
    parts: Vec<Part>,
    bytes: usize,
    /// Targets beyond the first one of each message.
    targets: usize,
    /// The steps were used up.
    is_cut_short: bool,
    /// The next batch needs a long turn.
    is_long: bool,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.messages.len() >= PUBLISH_MESSAGES || self.bytes >= PUBLISH_BYTES || self.targets >= TARGETS_PER_REQUEST
    }

    fn push(&mut self, offset: u64, message: &PublishMessage, queues: Vec<Target>, dead_letters: bool) {
        if queues.is_empty() {
            return;
        }
        self.parts.push(Part { offset, to: queues.iter().map(|target| target.queue).collect(), dead_letters });
        let message = PublishMessage { queues, ..message.clone() };
        self.bytes += message.weight_bytes();
        self.targets += more_targets(std::slice::from_ref(&message));
        self.messages.push(message);
    }

    /// Adds a message: to all of its queues together, or to each separately when it is retried and some have it.
    fn add(&mut self, offset: u64, routed: Routed, has: Option<&[PartitionId]>) {
        let Routed { mut message, dead_letters, .. } = routed;
        let mut queues = std::mem::take(&mut message.queues);
        queues.retain(|target| has.is_none_or(|has| !has.contains(&target.queue)));
        let (refusing, others): (Vec<_>, Vec<_>) =
            queues.into_iter().partition(|target| dead_letters.contains(&target.queue));
        self.push(offset, &message, refusing, true);
        let group = if has.is_some() { others.len().div_ceil(SEPARATE_MAX).max(1) } else { others.len().max(1) };
        others.chunks(group).for_each(|queues| self.push(offset, &message, queues.to_vec(), false));
    }
}

/// A record with its target queues.
struct Routed {
    message: PublishMessage,
    /// Those of its queues that dead-letter messages that they reject.
    dead_letters: Set<PartitionId>,
    /// It must be the last one of the request: a queue may have no room for it, and still for a smaller one.
    is_last: bool,
    /// It was skipped for a queue that may not hold as much.
    too_large: bool,
}

/// The disposition of a record.
enum Disposition {
    Publish(Routed),
    /// One of its queues is being created.
    Later,
    /// It cannot be converted to a message.
    Skip,
    /// It was forwarded from the exchange itself.
    Drop,
    /// The steps are used up.
    Left(Box<PausedRecord>),
}

/// Whether a queue rejects a message with a body of this size in any state.
fn never_fits(settings: &QueueSettings, body_bytes: usize) -> bool {
    settings.overflow != Overflow::DropHead
        && (settings.max_length == Some(0) || settings.max_length_bytes.is_some_and(|max| body_bytes as u64 > max))
}

fn refuses_to_dead(settings: &QueueSettings) -> bool {
    settings.overflow == Overflow::RejectPublishDeadLetter && settings.dead_letter_exchange.is_some()
}

impl FromTopics {
    /// Begins a turn of at most this many steps ([`polylogue_types::turn`]), and continues paused work. Without turns everything is done immediately.
    pub fn begin_turn(&mut self, steps_max: u64, now: Now) {
        self.steps = steps_max;
        while self.steps > 0
            && let Some((id, partition)) = self.unfinished.pop_front()
        {
            let source = self.links.get(&id).and_then(|link| link.partitions.get(&partition));
            if source.is_some_and(|source| source.stage == Stage::Reading) {
                self.publish(id, partition, now);
            }
        }
    }

    /// Whether there is work left that only needs another turn.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Whether a compressed batch is next: it needs [`FromTopics::long_turn`].
    #[must_use]
    pub fn wants_long_turn(&self) -> bool {
        !self.compressed.is_empty()
    }

    /// A turn on a worker thread: opens one compressed batch, and continues with it for this many steps.
    pub fn long_turn(&mut self, steps_max: u64, now: Now) {
        self.steps = steps_max;
        let Some((id, partition)) = self.compressed.pop_front() else { return };
        let source = self.links.get(&id).and_then(|link| link.partitions.get(&partition));
        if source.is_some_and(|source| source.stage == Stage::Reading) {
            self.is_long = true;
            self.publish(id, partition, now);
            self.is_long = false;
        }
    }

    /// Schedules a partition to be read.
    pub(super) fn ready(&mut self, id: ExchangeId, partition: PartitionId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(source) = link.partitions.get_mut(&partition) else { return };
        link.open -= usize::from(source.is_open());
        (source.stage, source.records) = (Stage::Ready, None);
        link.ready.push_back(partition);
        self.pump(id);
    }

    /// Reads scheduled partitions, up to the limit.
    pub(super) fn pump(&mut self, id: ExchangeId) {
        while let Some(link) = self.links.get_mut(&id).filter(|link| link.open < OPEN_MAX) {
            if self.directory.alarm().is_some() {
                return;
            }
            let Some(partition) = link.ready.pop_front() else { return };
            let Some(source) = link.partitions.get_mut(&partition) else { continue };
            source.stage = Stage::Reading;
            link.open += 1;
            let part = ReadPart { partition, offset: Offset(source.next), bytes_max: READ_BYTES };
            let request = ReadRequest { parts: vec![part], bytes_max: READ_BYTES, at_least_one: true };
            self.ask(Request::Read(request), Asked::Read(id, partition));
        }
    }

    /// Schedules a partition again after the backoff.
    pub(super) fn later(&mut self, id: ExchangeId, partition: PartitionId, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(source) = link.partitions.get_mut(&partition) else { return };
        link.open -= usize::from(source.is_open());
        (source.stage, source.records) = (Stage::Waiting, None);
        let at_ms = now.monotonic_ms + source.backoff.failed(RETRY);
        self.due.insert((at_ms, Due::Retry(id, partition)));
        self.pump(id);
    }

    /// Handles the result of a read.
    pub(super) fn read(
        &mut self,
        id: ExchangeId,
        partition: PartitionId,
        result: Option<Result<ReadData, ReadError>>,
        now: Now,
    ) {
        let source = self.links.get_mut(&id).and_then(|link| link.partitions.get_mut(&partition));
        let Some(source) = source.filter(|source| source.stage == Stage::Reading) else { return };
        match result {
            Some(Ok(data)) => {
                let Ok(records) = Records::new(&data.chunks, source.next) else {
                    return self.later(id, partition, now);
                };
                source.end = data.high_watermark.0;
                source.records = Some(records);
                self.publish(id, partition, now);
            }
            // Retention removed the next records, or a crash those that were not on disk.
            Some(Err(ReadError::OutOfRange { log_start, high_watermark })) => {
                let next = source.next.clamp(log_start.0, high_watermark.0.max(log_start.0));
                let is_other = next != source.next;
                source.failed.retain(|offset, _| (log_start.0..high_watermark.0).contains(offset));
                source.tried = source.tried.min(high_watermark.0);
                self.advance(id, partition, next, now);
                if is_other { self.ready(id, partition) } else { self.later(id, partition, now) }
            }
            Some(Err(ReadError::UnknownPartition | ReadError::Storage)) | None => self.later(id, partition, now),
        }
    }

    /// Everything below an offset is published.
    fn advance(&mut self, id: ExchangeId, partition: PartitionId, next: u64, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(source) = link.partitions.get_mut(&partition) else { return };
        if source.next != next {
            source.next = next;
            link.unsaved.insert(partition);
            self.save(id, now);
        }
    }

    /// Publishes the records that were read, up to the limits.
    fn publish(&mut self, id: ExchangeId, partition: PartitionId, now: Now) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(mut source) = link.partitions.remove(&partition) else { return };
        let batch = self.fill(id, &mut source, now);
        let passed = source.records.as_ref().map_or(source.next, Records::passed);
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(batch) = &batch
            && batch.messages.is_empty()
            && batch.is_cut_short
        {
            source.stage = Stage::Reading;
            link.partitions.insert(partition, source);
            let left = if batch.is_long { &mut self.compressed } else { &mut self.unfinished };
            left.push_back((id, partition));
            return self.advance(id, partition, passed, now);
        }
        let Some(batch) = batch else {
            link.partitions.insert(partition, source);
            self.advance(id, partition, passed, now);
            return self.later(id, partition, now);
        };
        if !batch.messages.is_empty() {
            source.stage = Stage::Publishing;
            source.sent = batch.parts;
            source.tried = source.tried.max(passed);
            source.records = source.records.filter(|records| records.open_bytes() <= KEPT_BYTES_MAX);
            link.partitions.insert(partition, source);
            let request = PublishRequest { messages: batch.messages, ack: Ack::Committed, patient: false };
            return self.ask(Request::Publish(request), Asked::Publish(id, partition));
        }
        let end = source.end;
        let is_more = passed < end;
        let is_stuck = is_more && source.records.as_ref().is_some_and(Records::is_stuck);
        let is_missing = is_more && source.records.as_ref().is_some_and(Records::is_empty);
        link.partitions.insert(partition, source);
        if is_missing {
            // It exists, and could not be read now.
            return self.later(id, partition, now);
        }
        // Invalid bytes have no known end.
        self.counts.skipped += u64::from(is_stuck);
        let next = passed + u64::from(is_stuck);
        self.advance(id, partition, next, now);
        self.proceed(id, partition, next, end);
    }

    /// Reads on, or waits for new records.
    fn proceed(&mut self, id: ExchangeId, partition: PartitionId, next: u64, end: u64) {
        if next < end {
            return self.ready(id, partition);
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(source) = link.partitions.get_mut(&partition) else { return };
        link.open -= usize::from(source.is_open());
        self.next_token += 1;
        (source.stage, source.records) = (Stage::Watching(self.next_token), None);
        source.backoff.succeeded();
        self.watches.insert(self.next_token, (id, partition));
        let request = WatchRequest { seen: vec![(partition, Offset(next))], followed: None };
        self.requests.push_back((self.next_token, Request::Watch(request)));
        self.pump(id);
    }

    /// Returns the next record, if this turn may process it; otherwise `batch` has the reason, unless there is none.
    fn take(&mut self, records: &mut Records, batch: &mut Batch) -> Option<Record> {
        batch.is_cut_short = self.steps == 0;
        if batch.is_cut_short {
            return None;
        }
        match records.next(self.is_long) {
            Next::Record(record) => {
                // One compressed batch per turn.
                self.is_long = false;
                self.steps = self.steps.saturating_sub(1);
                Some(record)
            }
            Next::Compressed => {
                (batch.is_cut_short, batch.is_long) = (true, true);
                None
            }
            Next::End => None,
        }
    }

    /// Takes records that may be published together. `None` if a queue is being created and nothing can be published.
    fn fill(&mut self, id: ExchangeId, source: &mut Source, now: Now) -> Option<Batch> {
        let mut batch = Batch::default();
        let directory = self.directory.clone();
        let routes = directory.router().load();
        let mut goes_back = None;
        let Some(mut records) = source.records.take() else { return Some(batch) };
        let mut is_later = false;
        while !batch.is_full()
            && let Some(record) = self.take(&mut records, &mut batch)
        {
            let offset = record.offset as u64;
            let mut has = None;
            if offset < source.tried {
                has = source.failed.remove(&offset);
                if has.is_none() {
                    // It counts as published.
                    continue;
                }
            } else if !(source.failed.is_empty() && source.again.is_empty()) {
                if !batch.messages.is_empty() {
                    // Records after a failed one wait for it.
                    records.put_back(record);
                    break;
                }
                source.failed.clear();
                source.again.clear();
            }
            let link = self.links.get(&id)?;
            let scratch = &mut self.scratch;
            let routing = Routing { directory: &directory, catalog: self.catalog.as_ref(), routes: &routes, now };
            let paused = source.paused.take().filter(|paused| paused.offset == offset);
            let how = (&mut goes_back, scratch, &mut self.steps, paused);
            let disposition = routing.disposition(link, source.number, &record, self.body_bytes_max, how);
            match disposition {
                Disposition::Left(paused) => {
                    source.failed.extend(has.map(|has| (offset, has)));
                    source.paused = Some(paused);
                    batch.is_cut_short = true;
                    records.put_back(record);
                    break;
                }
                Disposition::Publish(routed) => {
                    self.steps = self.steps.saturating_sub(TARGET_STEPS * routed.message.queues.len() as u64);
                    let is_last = routed.is_last;
                    self.counts.skipped += u64::from(routed.too_large && has.is_none());
                    let before = batch.messages.len();
                    batch.add(offset, routed, has.as_deref());
                    // Nothing is bound, or all queues have it.
                    self.counts.published += u64::from(batch.messages.len() == before);
                    source.again.extend(has.map(|has| (offset, has)));
                    if is_last {
                        break;
                    }
                }
                Disposition::Later => {
                    source.failed.extend(has.map(|has| (offset, has)));
                    is_later = batch.messages.is_empty();
                    records.put_back(record);
                    break;
                }
                Disposition::Skip => self.counts.skipped += 1,
                Disposition::Drop => {}
            }
        }
        self.counts.skipped += records.take_damaged();
        source.records = Some(records);
        (!is_later).then_some(batch)
    }

    /// Handles the results of publishes.
    pub(super) fn published(
        &mut self,
        id: ExchangeId,
        partition: PartitionId,
        results: &[Result<(), PublishError>],
        now: Now,
    ) {
        let source = self.links.get_mut(&id).and_then(|link| link.partitions.get_mut(&partition));
        let Some(source) = source.filter(|source| source.stage == Stage::Publishing) else { return };
        let (mut has, mut records, mut failed) = (std::mem::take(&mut source.again), 0, Vec::new());
        let mut last = None;
        for (nth, part) in std::mem::take(&mut source.sent).into_iter().enumerate() {
            records += u64::from(last.replace(part.offset) != Some(part.offset));
            let result = results.get(nth).copied();
            let is_dead = part.dead_letters && result == Some(Err(PublishError::QueueFull));
            if is_dead || result.is_some_and(arrived) {
                has.entry(part.offset).or_default().extend(part.to);
            } else if failed.last() != Some(&part.offset) {
                failed.push(part.offset);
            }
        }
        self.counts.retried += failed.len() as u64;
        self.counts.published += records - failed.len() as u64;
        let again = !failed.is_empty();
        source.failed.extend(failed.into_iter().map(|offset| (offset, has.remove(&offset).unwrap_or_default())));
        let passed = source.records.as_ref().map_or(source.tried, Records::passed);
        let next = source.failed.first_key_value().map_or(passed, |(offset, _)| *offset);
        let is_kept = source.records.is_some();
        self.advance(id, partition, next, now);
        if again {
            return self.later(id, partition, now);
        }
        if let Some(source) = self.links.get_mut(&id).and_then(|link| link.partitions.get_mut(&partition)) {
            source.backoff.succeeded();
        }
        if is_kept { self.publish(id, partition, now) } else { self.ready(id, partition) }
    }
}

/// The state that routing uses.
struct Routing<'a> {
    directory: &'a crate::directory::Directory,
    catalog: &'a dyn polylogue_api::Catalog,
    routes: &'a Arc<Snapshot>,
    now: Now,
}

impl Routing<'_> {
    /// Determines the disposition of a record, or continues; the first part of `how` is whether the exchange forwards to the topic, once that was
    /// determined.
    fn disposition(
        &self,
        link: &Link,
        number: usize,
        record: &Record,
        body_bytes_max: usize,
        how: RoutingState<'_>,
    ) -> Disposition {
        let (goes_back, scratch, steps, paused) = how;
        *steps = steps.saturating_sub(REQUEST_STEPS);
        let exchange = &link.exchange;
        if record.headers.last(EXCHANGE.as_bytes()).flatten().is_some_and(|name| name == exchange.name)
            && *goes_back.get_or_insert_with(|| self.directory.forwards_to(exchange.vhost, &link.topic))
        {
            return Disposition::Drop;
        }
        let of = RecordOf { topic: &link.topic, partition: number };
        let Some(message) = message_of(record, of, body_bytes_max) else { return Disposition::Skip };
        match self.routes.entry_by_id(exchange.id) {
            Some(entry) => self.route(link, entry, record, &message, (scratch, steps, paused)),
            None => Disposition::Drop,
        }
    }

    fn route(
        &self,
        link: &Link,
        entry: Entry<'_>,
        record: &Record,
        message: &RecordMessage,
        (scratch, steps, paused): (&mut polylogue_router::Scratch, &mut u64, Option<Box<PausedRecord>>),
    ) -> Disposition {
        let RecordMessage { routing_key, properties, expiration_ms, body } = message;
        let view = View::new(properties);
        let sent = RoutedMessage {
            keys: &[routing_key],
            view: &view,
            random: (record.offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ link.exchange.id.0,
            expiration_ms: *expiration_ms,
            priority: properties.priority,
            now_ms: self.now.wall_ms,
        };
        let stored = |raw: &[u8]| store(&link.exchange.name, routing_key, raw, None, std::slice::from_ref(body));
        let (paused_route, seen) =
            paused.map_or_else(Default::default, |paused| (Some(paused.paused_route), paused.seen));
        let seen = RefCell::new(seen);
        let wanted = |entry: &QueueEntry| {
            let settings = &entry.settings;
            let partition = entry.partition(self.catalog);
            let mut seen = seen.borrow_mut();
            seen.is_later |= partition.is_none();
            if refuses_to_dead(settings) {
                seen.dead_letters.extend(partition);
            } else if never_fits(settings, body.len()) {
                seen.too_large = true;
                return false;
            } else if settings.overflow != Overflow::DropHead && settings.max_length_bytes.is_some() {
                seen.is_last = true;
            }
            true
        };
        let ways = RouteContext { directory: self.directory, catalog: self.catalog, wanted: &wanted };
        let reached = match paused_route {
            Some(paused_route) => paused_route.resume(ways, &sent, scratch, steps),
            None => reach(ways, self.routes, entry, &sent, scratch, steps),
        };
        let seen = seen.into_inner();
        let reached = match reached {
            Ok(reached) => reached,
            Err(paused_route) => {
                return Disposition::Left(Box::new(PausedRecord { offset: record.offset as u64, paused_route, seen }));
            }
        };
        if seen.is_later {
            return Disposition::Later;
        }
        let delayed = reached.properties(properties);
        let bytes = stored(delayed.as_ref().map_or(properties.raw(), |properties| properties.raw()));
        Disposition::Publish(Routed {
            message: reached.message(bytes, properties.delivery_mode, self.now.wall_ms),
            dead_letters: seen.dead_letters,
            is_last: seen.is_last,
            too_large: seen.too_large,
        })
    }
}

/// The memory and steps for a record's disposition.
type RoutingState<'a> =
    (&'a mut Option<bool>, &'a mut polylogue_router::Scratch, &'a mut u64, Option<Box<PausedRecord>>);
