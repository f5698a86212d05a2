//! librdkafka as a worker of `polylogue-bench`. The contract, and the meaning of the spec's fields, are in `polylogue_bench_load::contract`; the
//! schedule, the stamps, the verification and the histograms are the library's.
//!
//! ```text
//!   thread "bench-produce"   schedule -> rd_kafka_produce                 deliveries, timed where they are called back
//!                               <----------- channel -------------------- thread of the producer
//!   thread "bench-read"      verification <---- channel ----------------- a thread for each consumer
//! ```
//!
//! Readers are assigned their partitions and offsets manually: joining a group is not measured, and no message may be missed because a position
//! was not known yet. They commit their offsets as members do, every five seconds.

use polylogue_bench_load::clock::{MS_NS, SECOND_NS, unix_ns, wait_until, wake_sharply};
use polylogue_bench_load::contract::{From, Spec};
use polylogue_bench_load::error::{BenchError, Context, Result};
use polylogue_bench_load::raw::producer::Produced;
use polylogue_bench_load::raw::reader::ReadOut;
use polylogue_bench_load::raw::{Shared, Tally, Times};
use polylogue_bench_load::schedule::Schedule;
use polylogue_bench_load::stamp::{self, STAMP_BYTES, Stamp};
use polylogue_bench_load::verify::{Findings, Verifier};
use polylogue_bench_load::wire::Wire;
use polylogue_bench_load::worker::{self, Produce, work};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The maximum wait before the clock is read again. Nanoseconds.
const WAIT_NS_MAX: u64 = 10 * MS_NS;
/// The same for readers.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Timeout for a response of the broker.
const ASK_MAX: Duration = Duration::from_secs(30);
/// Messages that consumers may be ahead of the verification.
const READ_AHEAD: usize = 100_000;

fn main() -> ExitCode {
    match work::<Producers, Readers>(std::io::BufReader::new(std::io::stdin()), std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // If standard error is closed, the exit code remains.
            let _ = writeln!(std::io::stderr(), "polylogue-bench-librdkafka: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the settings shared by both sides of a client: the broker's address, and the settings file, by librdkafka's own names.
fn config(spec: &Spec) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &spec.bootstrap).set("socket.nagle.disable", "true");
    for (name, value) in &spec.shape.settings {
        config.set(name, value);
    }
    config
}

/// Returns the first offset to read in each partition. Uses the client with the settings, one partition after the
/// other, because the broker may require them.
fn offsets(spec: &Spec, consumer: &BaseConsumer, partitions: &[u32]) -> Result<Vec<i64>> {
    let from_end = spec.from == From::End;
    if spec.shape.settings.is_empty() {
        return Wire::connect(&spec.bootstrap)?.offsets(&spec.topic, partitions, from_end);
    }
    let ask = |partition: &u32| {
        let number = i32::try_from(*partition).unwrap_or(i32::MAX);
        let (first, end) = consumer.fetch_watermarks(&spec.topic, number, ASK_MAX).context(|| {
            format!("no offsets of partition {partition} of {}: with settings the topic must be there", spec.topic)
        })?;
        Ok(if from_end { end } else { first })
    };
    partitions.iter().map(ask).collect()
}

/// The outcome of a message: when it was due, when the outcome was known, and the error.
type Delivery = (u64, u64, Option<String>);

struct Deliveries(Sender<Delivery>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, intended: usize) {
        let error = result.as_ref().err().map(|(error, _)| error.to_string());
        // The receiver is dropped if the run was aborted.
        let _ = self.0.send((intended as u64, unix_ns(), error));
    }
}

struct One {
    producer: ThreadedProducer<Deliveries>,
    number: u32,
    sequences: Vec<u64>,
    first_partition: usize,
    next: u64,
    limit: u64,
    message: Vec<u8>,
}

struct Producers {
    spec: Spec,
    all: Vec<One>,
    deliveries: Receiver<Delivery>,
    produced: Produced,
}

impl Produce for Producers {
    fn connect(spec: &Spec) -> Result<Producers> {
        let (to, deliveries) = channel();
        let mut all = Vec::new();
        for number in 0..spec.producers {
            let mut config = config(spec);
            config.set("acks", "all").set("enable.idempotence", "true");
            config.set("batch.size", spec.batch_bytes.to_string());
            config.set("linger.ms", (spec.linger_us as f64 / 1e3).to_string());
            config.set("max.in.flight", spec.in_flight.to_string());
            let producer: ThreadedProducer<Deliveries> =
                config.create_with_context(Deliveries(to.clone())).context(|| "cannot make a producer".to_owned())?;
            let known = producer.client().fetch_metadata(Some(&spec.topic), ASK_MAX);
            known.context(|| "the producer gets no metadata".to_owned())?;
            let mut message = vec![0; spec.message_bytes as usize];
            stamp::fill(&mut message, stamp::seed());
            let (count, partitions) = (u64::from(spec.producers), spec.partitions as usize);
            let share = spec.messages / count + u64::from(u64::from(number) < spec.messages % count);
            all.push(One {
                producer,
                number: spec.producer_base + number,
                sequences: vec![0; partitions],
                first_partition: partitions * number as usize / spec.producers as usize,
                next: 0,
                limit: if spec.messages == 0 { u64::MAX } else { share },
                message,
            });
        }
        Ok(Producers { spec: spec.clone(), all, deliveries, produced: Produced::default() })
    }

    fn run(mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Produced {
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
    fn send_all(&mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Result<()> {
        wake_sharply();
        wait_until(times.start_ns());
        let mut schedules: Vec<Schedule> = (0..self.spec.producers)
            .map(|n| Schedule::new(times.start_ns(), times.end_ns(), self.spec.rate, self.spec.producers, n))
            .collect();
        loop {
            let now = unix_ns();
            tally.tick(now, false);
            if shared.stopped() {
                return Ok(());
            }
            if now > times.deadline_ns() {
                let open = self.produced.sent - self.produced.acked;
                return Err(BenchError::new(format!("{open} messages were not answered in time")));
            }
            let mut wake = now + WAIT_NS_MAX;
            let mut ended = true;
            for (one, schedule) in self.all.iter_mut().zip(&mut schedules) {
                schedule.end_at(times.end_ns());
                let next = one.send_due(&self.spec, schedule, now, times, &mut self.produced, tally)?;
                ended &= next.is_none();
                wake = wake.min(next.unwrap_or(u64::MAX));
            }
            self.take_deliveries(wake, times, shared, tally)?;
            if ended && self.produced.acked == self.produced.sent {
                return Ok(());
            }
        }
    }

    fn take_deliveries(&mut self, until: u64, times: &Times, shared: &Shared, tally: &mut Tally) -> Result<()> {
        loop {
            let left = Duration::from_nanos(until.saturating_sub(unix_ns()));
            let (intended, at, error) = match self.deliveries.recv_timeout(left) {
                Ok(delivery) => delivery,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(BenchError::new("the producers have gone")),
            };
            if let Some(error) = error {
                return Err(BenchError::new(format!("a message was not delivered: {error}")));
            }
            self.produced.acked += 1;
            self.produced.last_ack_ns = self.produced.last_ack_ns.max(at);
            shared.add_acked(1);
            tally.acked(1);
            tally.latency(at.saturating_sub(intended), 1, times.measures(intended));
        }
    }
}

impl One {
    /// Sends what is due; returns when the next message is, `None` if there is none.
    fn send_due(
        &mut self,
        spec: &Spec,
        schedule: &Schedule,
        now: u64,
        times: &Times,
        produced: &mut Produced,
        tally: &mut Tally,
    ) -> Result<Option<u64>> {
        let open_loop = spec.rate > 0;
        let total = if open_loop { self.limit.min(schedule.total()) } else { self.limit };
        let due = if open_loop { total.min(schedule.due_count(now)) } else { total };
        while self.next < due {
            let intended = if open_loop { schedule.due_ns(self.next) } else { unix_ns() };
            if intended >= times.end_ns() {
                return Ok(None);
            }
            if !self.send(spec, intended)? {
                // The queue is full: retry in a moment; what is due stays due.
                return Ok(Some(now + MS_NS / 10));
            }
            produced.sent += 1;
            tally.sent(1);
            if !open_loop && unix_ns() > now + WAIT_NS_MAX {
                return Ok(Some(now));
            }
        }
        Ok((self.next < total).then(|| if open_loop { schedule.due_ns(self.next) } else { now }))
    }

    /// Sends a message. Returns whether the client's queue had space.
    fn send(&mut self, spec: &Spec, intended: u64) -> Result<bool> {
        let place = self.first_partition + (self.next / spec.records_per_batch() as u64) as usize;
        let partition = place % self.sequences.len();
        let sequence = self.sequences.get(partition).copied().unwrap_or(0);
        let stamp = Stamp { intended_ns: intended, sequence, producer: self.number }.to_bytes();
        if let Some(front) = self.message.get_mut(..STAMP_BYTES) {
            front.copy_from_slice(&stamp);
        }
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let record: BaseRecord<'_, (), [u8], usize> = BaseRecord::with_opaque_to(&spec.topic, intended as usize);
        match self.producer.send(record.partition(number).payload(&self.message[..])) {
            Ok(()) => {
                if let Some(next) = self.sequences.get_mut(partition) {
                    *next += 1;
                }
                self.next += 1;
                Ok(true)
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Ok(false),
            Err((error, _)) => Err(BenchError::new(format!("the client takes no message: {error}"))),
        }
    }
}

/// A message that was read.
struct Read {
    group: u32,
    partition: u32,
    stamp: Option<Stamp>,
    bytes: u64,
    at: u64,
}

struct Readers {
    spec: Spec,
    from: Receiver<std::result::Result<Read, String>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    verifiers: Vec<Verifier>,
    received: Vec<u64>,
    out: ReadOut,
}

impl worker::Read for Readers {
    fn connect(spec: &Spec) -> Result<Readers> {
        let (to, from) = sync_channel(READ_AHEAD);
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for group in 0..spec.groups {
            for number in 0..spec.consumers {
                let partitions: Vec<u32> = (number..spec.partitions).step_by(spec.consumers.max(1) as usize).collect();
                let mut config = config(spec);
                config.set("group.id", format!("bench-{}-{group}", spec.producer_base));
                let consumer: BaseConsumer = config.create().context(|| "cannot make a consumer".to_owned())?;
                let offsets = offsets(spec, &consumer, &partitions)?;
                let mut assigned = TopicPartitionList::new();
                for (partition, offset) in partitions.iter().zip(&offsets) {
                    let number = i32::try_from(*partition).unwrap_or(i32::MAX);
                    let added = assigned.add_partition_offset(&spec.topic, number, Offset::Offset(*offset));
                    added.context(|| "cannot assign a partition".to_owned())?;
                }
                consumer.assign(&assigned).context(|| "cannot assign partitions".to_owned())?;
                let (to, stop) = (to.clone(), Arc::clone(&stop));
                let body = move || read(&consumer, group, &to, &stop);
                let thread = Builder::new().name("bench-consumer".to_owned()).spawn(body);
                threads.push(thread.context(|| "cannot start a thread".to_owned())?);
            }
        }
        let verifiers =
            (0..spec.groups).map(|_| Verifier::new(spec.partitions).only(spec.shape.only_producer)).collect();
        let received = vec![0; spec.groups as usize];
        Ok(Readers { spec: spec.clone(), from, stop, threads, verifiers, received, out: ReadOut::default() })
    }

    fn run(mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> ReadOut {
        self.read_all(times, shared, tally);
        tally.tick(unix_ns(), true);
        self.conclude(shared)
    }
}

impl Readers {
    fn finished(&self, times: &Times, shared: &Shared) -> bool {
        let now = unix_ns();
        if now > times.deadline_ns() || shared.stopped() {
            return true;
        }
        match shared.wanted(&self.spec) {
            Some(wanted) => self.received.iter().all(|received| *received >= wanted),
            None => self.spec.producers == 0 && now >= times.end_ns(),
        }
    }

    fn read_all(&mut self, times: &Times, shared: &Shared, tally: &mut Tally) {
        let mut looked = 0;
        loop {
            let read = self.from.recv_timeout(WAIT_MAX);
            let now = unix_ns();
            tally.tick(now, false);
            match read {
                Ok(Ok(read)) => self.take(&read, times, tally),
                Ok(Err(error)) => {
                    self.out.error.get_or_insert(error);
                    shared.stop();
                }
                Err(_) => looked = 0,
            }
            // Completeness is not checked with every message.
            if now.saturating_sub(looked) >= SECOND_NS / 100 {
                looked = now;
                if self.finished(times, shared) {
                    return;
                }
            }
        }
    }

    fn take(&mut self, read: &Read, times: &Times, tally: &mut Tally) {
        let group = read.group as usize;
        self.out.bytes += read.bytes;
        self.out.last_ns = self.out.last_ns.max(read.at);
        tally.received();
        if let Some(received) = self.received.get_mut(group) {
            *received += 1;
        }
        if let (true, Some(stamp)) = (self.spec.verify, read.stamp) {
            if let Some(verifier) = self.verifiers.get_mut(group) {
                verifier.see(read.partition, stamp.producer, stamp.sequence);
            }
            tally.latency(read.at.saturating_sub(stamp.intended_ns), 1, times.measures(stamp.intended_ns));
        }
    }

    fn conclude(mut self, shared: &Shared) -> ReadOut {
        self.stop.store(true, Ordering::Release);
        drop(self.from);
        for thread in self.threads {
            // A thread that panicked has printed its message, and its messages are missing.
            let _ = thread.join();
        }
        let wanted = if self.spec.verify { shared.wanted(&self.spec).unwrap_or(0) } else { 0 };
        for verifier in &self.verifiers {
            let mut found: Findings = verifier.findings();
            found.lost = found.lost.max(wanted.saturating_sub(found.received));
            self.out.findings.add(found);
        }
        if !self.spec.verify {
            self.out.findings.received = self.received.iter().sum();
        }
        self.out
    }
}

/// Passes on a consumer's messages until it is stopped.
fn read(consumer: &BaseConsumer, group: u32, to: &SyncSender<std::result::Result<Read, String>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let passed = match consumer.poll(WAIT_MAX) {
            None => continue,
            Some(Ok(message)) => {
                let value = message.payload().unwrap_or_default();
                let partition = u32::try_from(message.partition()).unwrap_or(u32::MAX);
                let (stamp, bytes) = (Stamp::read(value), value.len() as u64);
                to.send(Ok(Read { group, partition, stamp, bytes, at: unix_ns() }))
            }
            Some(Err(error)) => to.send(Err(format!("a consumer: {error}"))),
        };
        if passed.is_err() {
            return;
        }
    }
}
