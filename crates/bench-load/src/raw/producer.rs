//! All producers of a worker, on one thread.

use super::frames::{Frames, wait_for, write_some};
use super::template::{BatchPatch, Form, Template};
use super::{Shared, Tally, Times};
use crate::clock::{MS_NS, unix_ns, wake_sharply};
use crate::contract::{Spec, Spread};
use crate::error::{BenchError, Context, Result};
use crate::schedule::Schedule;
use crate::wire::{Wire, error_name};
use crate::worker::Produce;
use polylogue_kafka_codec::frame::decode_response_header;
use polylogue_kafka_codec::produce::{ProduceRequest, ProduceResponse};
use polylogue_kafka_codec::{ApiKey, Message};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpStream;

/// Up to this size, a batch has any number of records. Above it there are eight sizes per doubling, which limits the number of templates.
/// Bytes.
const EXACT_BATCH_BYTES: usize = 128 << 10;
/// The longest wait before the clock is read again. Nanoseconds.
const WAIT_NS_MAX: u64 = 100 * MS_NS;

/// Result of the producers.
#[derive(Debug, Default)]
pub struct Produced {
    /// Messages handed to the broker.
    pub sent: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages due in the window that count as acknowledged without confirms; `None` with confirms.
    pub window_acked: Option<u64>,
    /// Messages rejected or not acknowledged.
    pub errors: u64,
    /// The first error.
    pub error: Option<String>,
    /// When the last acknowledgement arrived. Unix nanoseconds; 0 for none.
    pub last_ack_ns: u64,
}

/// A request without a response so far.
#[derive(Debug)]
struct Flight {
    correlation: i32,
    first: u64,
    count: u64,
    /// Those of them in topics that groups with a filter read.
    filtered: u64,
    sent_ns: u64,
}

/// One producer with its connection.
#[derive(Debug)]
struct Producer {
    stream: TcpStream,
    frames: Frames,
    id: (i64, i16),
    number: u32,
    /// The next sequence of each partition.
    sequences: Vec<u64>,
    partition: usize,
    correlation: i32,
    /// Messages sent so far.
    next: u64,
    /// Limit on messages; `u64::MAX` for none.
    limit: u64,
    schedule: Option<Schedule>,
    templates: BTreeMap<(usize, usize), Template>,
    /// The template that is being written, and the number of bytes written.
    writing: Option<((usize, usize), usize)>,
    flights: VecDeque<Flight>,
}

/// All producers of a worker.
#[derive(Debug)]
pub struct Producers {
    spec: Spec,
    version: i16,
    producers: Vec<Producer>,
    produced: Produced,
}

impl Produce for Producers {
    fn connect(spec: &Spec) -> Result<Producers> {
        if spec.shape.spread != Spread::Batch || !spec.shape.settings.is_empty() {
            return Err(BenchError::new("the raw driver supports neither keys nor settings: use another client"));
        }
        let mut producers = Vec::new();
        let mut version = 0;
        for number in 0..spec.producers {
            let mut wire = Wire::connect(&spec.bootstrap)?;
            version = wire.version_by_name::<ProduceRequest>()?;
            let id = wire.producer_id()?;
            let stream = wire.into_stream();
            stream.set_nonblocking(true).context(|| "cannot make a socket non-blocking".to_owned())?;
            let share = |all: u64| {
                all / u64::from(spec.producers) + u64::from(u64::from(number) < all % u64::from(spec.producers))
            };
            let partitions = spec.places() as usize;
            producers.push(Producer {
                stream,
                frames: Frames::default(),
                id,
                number: spec.producer_base + number,
                sequences: vec![0; partitions],
                partition: partitions * number as usize / spec.producers as usize,
                correlation: 0,
                next: 0,
                limit: if spec.messages == 0 { u64::MAX } else { share(spec.messages) },
                schedule: None,
                templates: BTreeMap::new(),
                writing: None,
                flights: VecDeque::new(),
            });
        }
        let mut all = Producers { spec: spec.clone(), version, producers, produced: Produced::default() };
        let full = (all.spec.records_per_batch(), all.batches_max());
        for producer in &mut all.producers {
            producer.template(&all.spec, all.version, full)?;
        }
        Ok(all)
    }

    fn run(mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Produced {
        wake_sharply();
        if self.spec.rate > 0 {
            let (rate, count) = (self.spec.rate, self.spec.producers);
            for (number, producer) in (0..).zip(&mut self.producers) {
                producer.schedule = Some(Schedule::new(times.start_ns(), times.end_ns(), rate, count, number));
            }
        }
        crate::clock::wait_until(times.start_ns());
        if let Err(e) = self.send_all(times, shared, tally) {
            self.produced.error.get_or_insert(e.to_string());
            shared.stop();
        }
        self.produced.errors = self.produced.sent - self.produced.acked;
        tally.tick(unix_ns(), true);
        shared.set_produced();
        self.produced
    }
}

impl Producers {
    /// Returns the limit on batches in a request, each for another partition.
    fn batches_max(&self) -> usize {
        // A request is for one topic.
        let most = if self.spec.shape.topics > 1 { 1 } else { self.spec.batches_per_request };
        most.min(self.spec.partitions).max(1) as usize
    }

    fn send_all(&mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Result<()> {
        let full = (self.spec.records_per_batch(), self.batches_max());
        loop {
            let mut now = unix_ns();
            tally.tick(now, false);
            if shared.stopped() {
                return Ok(());
            }
            if now > times.deadline_ns() {
                let open: u64 = self.producers.iter().flat_map(|p| &p.flights).map(|flight| flight.count).sum();
                return Err(BenchError::new(format!("{open} messages were not acknowledged in time")));
            }
            let mut wake = now + WAIT_NS_MAX;
            let mut finished = true;
            for producer in &mut self.producers {
                producer.schedule.iter_mut().for_each(|schedule| schedule.end_at(times.end_ns()));
                producer.take_answers(self.version, times, &mut self.produced, shared, tally)?;
                producer.write_on()?;
                while producer.writing.is_none() && producer.flights.len() < self.spec.in_flight as usize {
                    now = unix_ns();
                    let Some(shape) = producer.shape(now, times, self.spec.linger_us * 1_000, full, &self.spec) else {
                        break;
                    };
                    producer.begin(&self.spec, self.version, shape, now, times)?;
                    let count = (shape.0 * shape.1) as u64;
                    self.produced.sent += count;
                    tally.sent(count);
                    producer.write_on()?;
                }
                if producer.writing.is_none() && producer.flights.len() < self.spec.in_flight as usize {
                    wake = wake.min(producer.ready_ns(self.spec.linger_us * 1_000, full.0));
                }
                finished &= producer.flights.is_empty() && producer.at_end(now, times);
            }
            if finished {
                return Ok(());
            }
            self.wait(wake)?;
        }
    }

    /// Waits until a socket is ready, or until `wake_ns`.
    fn wait(&self, wake_ns: u64) -> Result<()> {
        let left = wake_ns.saturating_sub(unix_ns());
        wait_for(self.producers.iter().map(|producer| (&producer.stream, producer.writing.is_some())), left)
    }
}

impl Producer {
    fn template(&mut self, spec: &Spec, version: i16, shape: (usize, usize)) -> Result<&mut Template> {
        match self.templates.entry(shape) {
            Entry::Occupied(made) => Ok(made.into_mut()),
            Entry::Vacant(place) => {
                let (topic, message_bytes, payloads) =
                    (spec.topic_name(0), spec.message_bytes, spec.shape.payloads.clone());
                let form = Form { version, topic, message_bytes, records: shape.0, batches: shape.1, payloads };
                Ok(place.insert(Template::new(&form)?))
            }
        }
    }

    /// Returns when the next batch is full or has lingered. Unix nanoseconds; `u64::MAX` if no more batches are due.
    fn ready_ns(&self, linger_ns: u64, records_max: usize) -> u64 {
        let Some(schedule) = &self.schedule else { return u64::MAX };
        if self.next >= schedule.total().min(self.limit) {
            return u64::MAX;
        }
        let full = schedule.due_ns(self.next + records_max as u64 - 1);
        full.min(schedule.due_ns(self.next).saturating_add(linger_ns))
    }

    fn at_end(&self, now: u64, times: &Times) -> bool {
        self.next >= self.limit
            || match &self.schedule {
                Some(schedule) => self.next >= schedule.total(),
                None => now >= times.end_ns(),
            }
    }

    /// Returns records per batch and batches of the request to send now. `None` if no request is due.
    fn shape(
        &self,
        now: u64,
        times: &Times,
        linger_ns: u64,
        full: (usize, usize),
        spec: &Spec,
    ) -> Option<(usize, usize)> {
        if self.at_end(now, times) {
            return None;
        }
        let left = self.limit - self.next;
        let due = match &self.schedule {
            None => left,
            // Past the end no more messages become due, so lingering is pointless.
            Some(_) if now < self.ready_ns(linger_ns, full.0) && now < times.end_ns() => return None,
            Some(schedule) => left.min(schedule.due_count(now) - self.next),
        };
        let due = usize::try_from(due).unwrap_or(usize::MAX);
        match due / full.0 {
            0 if due == 0 => None,
            0 => Some((few_sizes(due, EXACT_BATCH_BYTES / spec.message_bytes.max(1) as usize), 1)),
            batches => Some((full.0, batches.min(full.1))),
        }
    }

    /// Patches the next request; it is written by [`Producer::write_on`].
    fn begin(&mut self, spec: &Spec, version: i16, shape: (usize, usize), now: u64, times: &Times) -> Result<()> {
        self.correlation = self.correlation.wrapping_add(1);
        let (correlation, first, schedule, count) = (self.correlation, self.next, self.schedule, shape.0 as u64);
        let (id, number) = (self.id, self.number);
        let mut patches = Vec::with_capacity(shape.1);
        let place = u32::try_from(self.partition).unwrap_or(u32::MAX);
        let topic = (spec.shape.topics > 1).then(|| spec.topic_name(place / spec.partitions.max(1)));
        let filtered = if place < spec.places_of(spec.groups.saturating_sub(1)) { count * shape.1 as u64 } else { 0 };
        for _ in 0..shape.1 {
            let Some(sequence) = self.sequences.get_mut(self.partition) else { break };
            patches.push(BatchPatch {
                partition: u32::try_from(self.partition).unwrap_or(u32::MAX) % spec.partitions.max(1),
                timestamp_ms: i64::try_from(now / MS_NS).unwrap_or(i64::MAX),
                producer_id: id,
                sequence: *sequence,
                producer: number,
            });
            *sequence += count;
            self.partition = (self.partition + 1) % self.sequences.len();
        }
        let template = self.template(spec, version, shape)?;
        template.set_correlation(correlation);
        if let Some(topic) = topic {
            template.set_topic(&topic);
        }
        for (at, patch) in patches.iter().enumerate() {
            let from = first + at as u64 * count;
            template.patch(at, patch, |index| match &schedule {
                Some(schedule) => schedule.due_ns(from + index as u64),
                None => now.max(times.start_ns()),
            });
        }
        self.next += count * shape.1 as u64;
        self.flights.push_back(Flight { correlation, first, count: count * shape.1 as u64, filtered, sent_ns: now });
        self.writing = Some((shape, 0));
        Ok(())
    }

    fn write_on(&mut self) -> Result<()> {
        let Some((shape, written)) = self.writing else { return Ok(()) };
        let frame = self.templates.get(&shape).map(Template::frame).unwrap_or_default();
        let written = written + write_some(&self.stream, frame.get(written..).unwrap_or_default())?;
        self.writing = (written < frame.len()).then_some((shape, written));
        Ok(())
    }

    fn take_answers(
        &mut self,
        version: i16,
        times: &Times,
        produced: &mut Produced,
        shared: &Shared,
        tally: &mut Tally,
    ) -> Result<()> {
        while let Some(frame) = self.frames.next(&self.stream)? {
            let now = unix_ns();
            let said = || "invalid Produce response".to_owned();
            let (correlation, mut body) = decode_response_header(frame, ApiKey::Produce, version).context(said)?;
            let response = ProduceResponse::decode(&mut body, version).context(said)?;
            let flight = self.flights.pop_front().filter(|flight| flight.correlation == correlation);
            let flight = flight
                .ok_or_else(|| BenchError::new(format!("response out of order: correlation id {correlation}")))?;
            let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
            if let Some(refused) = answers.clone().find(|partition| partition.error_code != 0) {
                let (code, text) =
                    (error_name(refused.error_code), refused.error_message.as_deref().unwrap_or_default());
                return Err(BenchError::new(format!(
                    "the broker rejected a batch of partition {}: {code} {text}",
                    refused.index
                )));
            }
            match &self.schedule {
                None => tally.latency(now.saturating_sub(flight.sent_ns), flight.count, times.measures(flight.sent_ns)),
                Some(schedule) => (flight.first..flight.first + flight.count).for_each(|index| {
                    let due = schedule.due_ns(index);
                    tally.latency(now.saturating_sub(due), 1, times.measures(due));
                }),
            }
            produced.acked += flight.count;
            produced.last_ack_ns = now;
            shared.add_filtered(flight.filtered);
            shared.add_acked(flight.count);
            tally.acked(flight.count);
        }
        Ok(())
    }
}

/// Returns the largest supported batch size up to `due` records: any up to `exact`, above it eight per doubling.
fn few_sizes(due: usize, exact: usize) -> usize {
    if due <= exact {
        return due;
    }
    let step = (1_usize << due.ilog2()) / 8;
    due - due.checked_rem(step).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_batches_come_in_few_sizes() {
        assert_eq!(few_sizes(100, 128), 100);
        assert_eq!(few_sizes(1_000, 128), 960);
        assert_eq!(few_sizes(3, 0), 3);
        let sizes: std::collections::BTreeSet<usize> = (1..=100_000).map(|due| few_sizes(due, 128)).collect();
        assert!(sizes.len() < 128 + 90, "{} templates", sizes.len());
        assert!((1..=100_000).all(|due| few_sizes(due, 128) <= due && few_sizes(due, 128) * 8 >= due * 7));
    }
}
