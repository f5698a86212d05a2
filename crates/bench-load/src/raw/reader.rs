//! All readers of a worker, on one thread: long polls with fetch sessions (KIP-227), so that a request names only the
//! partitions whose offset changed.

use super::frames::{Frames, wait_for, write_some};
use super::{Shared, Tally, Times};
use crate::clock::{MS_NS, SECOND_NS, unix_ns, wake_sharply};
use crate::contract::{From, Spec, topic_number};
use crate::error::{BenchError, Context, Result};
use crate::stamp::Stamp;
use crate::verify::{Findings, Verifier};
use crate::wire::{Wire, error_name, frame};
use crate::worker::Read;
use bytes::Bytes;
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData};
use polylogue_kafka_codec::frame::decode_response_header;
use polylogue_kafka_codec::{ApiKey, Message, Records};
use polylogue_record::kafka::{BatchIter, records, verify_crc};
use std::net::TcpStream;

/// Defaults of Kafka's consumer: fetch.max.wait.ms, fetch.min.bytes, fetch.max.bytes, max.partition.fetch.bytes.
const WAIT_MS_MAX: i32 = 500;
const BYTES_MIN: i32 = 1;
const BYTES_MAX: i32 = 50 << 20;
const PARTITION_BYTES_MAX: i32 = 1 << 20;
/// Limit on the decompressed size of a batch. Bytes. The batches of a run are not compressed.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// The longest wait before the clock is read again. Nanoseconds.
const WAIT_NS_MAX: u64 = 100 * MS_NS;

/// Result of the readers.
#[derive(Debug, Default)]
pub struct ReadOut {
    /// Verification result over all groups; `lost` includes messages missing at the end.
    pub findings: Findings,
    /// Bytes of values read.
    pub bytes: u64,
    /// When the last message was read. Unix nanoseconds; 0 for none.
    pub last_ns: u64,
    /// The first error.
    pub error: Option<String>,
}

/// One reader with its connection.
#[derive(Debug)]
struct Reader {
    stream: TcpStream,
    frames: Frames,
    group: u32,
    /// Partitions, numbered over all topics ([`crate::contract::Shape`]), in ascending order.
    partitions: Vec<u32>,
    /// The next offset of each of `partitions`.
    offsets: Vec<i64>,
    /// Indexes in `partitions` of those that the next request names.
    named: Vec<usize>,
    session: (i32, i32),
    correlation: i32,
    /// The request that is being written, and the number of bytes written.
    writing: Option<(Vec<u8>, usize)>,
    waiting: bool,
    verifier: Verifier,
    received: u64,
}

/// All readers of a worker.
#[derive(Debug)]
pub struct Readers {
    spec: Spec,
    version: i16,
    readers: Vec<Reader>,
    out: ReadOut,
}

impl Read for Readers {
    fn connect(spec: &Spec) -> Result<Readers> {
        let mut readers = Vec::new();
        let mut version = 0;
        for group in 0..spec.groups {
            for number in 0..spec.consumers {
                let places = spec.places_of(group);
                let partitions: Vec<u32> = (number..places).step_by(spec.consumers.max(1) as usize).collect();
                if partitions.is_empty() {
                    continue;
                }
                let mut wire = Wire::connect(&spec.bootstrap)?;
                version = wire.version_by_name::<FetchRequest>()?;
                let mut offsets = Vec::with_capacity(partitions.len());
                for (topic, partitions) in by_topic(spec, &partitions) {
                    offsets.extend(wire.offsets(&spec.topic_name(topic), &partitions, spec.from == From::End)?);
                }
                let stream = wire.into_stream();
                stream.set_nonblocking(true).context(|| "cannot make a socket non-blocking".to_owned())?;
                readers.push(Reader {
                    stream,
                    frames: Frames::default(),
                    group,
                    named: (0..partitions.len()).collect(),
                    partitions,
                    offsets,
                    session: (0, 0),
                    correlation: 0,
                    writing: None,
                    waiting: false,
                    verifier: Verifier::new(spec.places()).only(spec.shape.only_producer),
                    received: 0,
                });
            }
        }
        Ok(Readers { spec: spec.clone(), version, readers, out: ReadOut::default() })
    }

    fn run(mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> ReadOut {
        wake_sharply();
        crate::clock::wait_until(times.start_ns());
        if let Err(e) = self.read_all(times, shared, tally) {
            self.out.error.get_or_insert(e.to_string());
            shared.stop();
        }
        tally.tick(unix_ns(), true);
        self.conclude(shared);
        self.out
    }
}

/// Groups partition numbers over all topics, in ascending order, by topic.
fn by_topic(spec: &Spec, places: &[u32]) -> Vec<(u32, Vec<u32>)> {
    let each = spec.partitions.max(1);
    let of = |part: &[u32]| Some((part.first()? / each, part.iter().map(|place| place % each).collect()));
    places.chunk_by(|one, next| one / each == next / each).filter_map(of).collect()
}

impl Readers {
    fn conclude(&mut self, shared: &Shared) {
        for group in 0..self.spec.groups {
            let wanted = if self.spec.verify { shared.wanted_of(&self.spec, group).unwrap_or(0) } else { 0 };
            let mut found = Findings::default();
            self.readers.iter().filter(|r| r.group == group).for_each(|r| found.add(r.verifier.findings()));
            found.lost = found.lost.max(wanted.saturating_sub(found.received));
            self.out.findings.add(found);
        }
        if !self.spec.verify {
            self.out.findings.received = self.readers.iter().map(|reader| reader.received).sum();
        }
    }

    fn finished(&self, now: u64, times: &Times, shared: &Shared) -> bool {
        if now > times.deadline_ns() || shared.stopped() {
            return true;
        }
        match shared.wanted(&self.spec) {
            // A duplicate counts as a missing message here; the findings distinguish them.
            Some(_) => (0..self.spec.groups).all(|group| {
                let received: u64 = self.readers.iter().filter(|r| r.group == group).map(|r| r.received).sum();
                shared.wanted_of(&self.spec, group).is_some_and(|wanted| received >= wanted)
            }),
            None => self.spec.producers == 0 && now >= times.end_ns(),
        }
    }

    fn read_all(&mut self, times: &Times, shared: &Shared, tally: &mut Tally) -> Result<()> {
        loop {
            let now = unix_ns();
            tally.tick(now, false);
            if self.finished(now, times, shared) {
                return Ok(());
            }
            let pause = self.pause_until(times);
            for reader in &mut self.readers {
                if !reader.waiting && pause.is_none_or(|until| now >= until) {
                    reader.ask(&self.spec, self.version)?;
                }
                reader.write_on()?;
                while let Some(frame) = reader.frames.next(&reader.stream)? {
                    reader.take(frame, self.version, &self.spec, times, &mut self.out, tally)?;
                    if pause.is_none() {
                        reader.ask(&self.spec, self.version)?;
                    }
                }
            }
            self.wait(pause)?;
        }
    }

    /// Returns when the next fetch is allowed by the limit on the read rate. Unix nanoseconds; `None` without a limit.
    fn pause_until(&self, times: &Times) -> Option<u64> {
        let rate = self.spec.read_bytes_per_s_max;
        if rate == 0 {
            return None;
        }
        let after = u128::from(self.out.bytes) * u128::from(SECOND_NS) / u128::from(rate);
        Some(times.start_ns().saturating_add(u64::try_from(after).unwrap_or(u64::MAX)))
    }

    fn wait(&self, pause: Option<u64>) -> Result<()> {
        let now = unix_ns();
        let asleep = self.readers.iter().any(|reader| !reader.waiting);
        let left = match pause {
            Some(until) if asleep => until.saturating_sub(now).min(WAIT_NS_MAX),
            _ => WAIT_NS_MAX,
        };
        wait_for(self.readers.iter().map(|reader| (&reader.stream, reader.writing.is_some())), left)
    }
}

impl Reader {
    /// Sends the next fetch request.
    fn ask(&mut self, spec: &Spec, version: i16) -> Result<()> {
        let each = spec.partitions.max(1);
        let mut topics: Vec<(u32, Vec<FetchPartition>)> = Vec::new();
        // Partitions of a topic become adjacent.
        self.named.sort_unstable();
        for place in &self.named {
            let Some((number, offset)) = self.partitions.get(*place).zip(self.offsets.get(*place)) else { continue };
            let partition = i32::try_from(number % each).unwrap_or(i32::MAX);
            let partition_max_bytes = PARTITION_BYTES_MAX;
            let asked =
                FetchPartition { partition, fetch_offset: *offset, partition_max_bytes, ..FetchPartition::default() };
            match topics.last_mut().filter(|(topic, _)| *topic == number / each) {
                Some((_, partitions)) => partitions.push(asked),
                None => topics.push((number / each, vec![asked])),
            }
        }
        let topic = |(number, partitions): (u32, Vec<FetchPartition>)| FetchTopic {
            topic: spec.topic_name(number).as_str().into(),
            partitions,
            ..FetchTopic::default()
        };
        let topics = topics.into_iter().map(topic).collect();
        let request = FetchRequest {
            max_wait_ms: WAIT_MS_MAX,
            min_bytes: BYTES_MIN,
            max_bytes: BYTES_MAX,
            session_id: self.session.0,
            session_epoch: self.session.1,
            topics,
            ..FetchRequest::default()
        };
        self.correlation = self.correlation.wrapping_add(1);
        self.writing = Some((frame(version, self.correlation, &request)?, 0));
        self.named.clear();
        self.waiting = true;
        self.write_on()
    }

    fn write_on(&mut self) -> Result<()> {
        let Some((frame, written)) = &mut self.writing else { return Ok(()) };
        *written += write_some(&self.stream, frame.get(*written..).unwrap_or_default())?;
        if *written >= frame.len() {
            self.writing = None;
        }
        Ok(())
    }

    fn take(
        &mut self,
        frame: Bytes,
        version: i16,
        spec: &Spec,
        times: &Times,
        out: &mut ReadOut,
        tally: &mut Tally,
    ) -> Result<()> {
        let now = unix_ns();
        let said = || "invalid Fetch response".to_owned();
        let (correlation, mut body) = decode_response_header(frame, ApiKey::Fetch, version).context(said)?;
        if correlation != self.correlation {
            return Err(BenchError::new(format!(
                "Fetch response has correlation id {correlation} instead of {}",
                self.correlation
            )));
        }
        let response = FetchResponse::decode(&mut body, version).context(said)?;
        self.waiting = false;
        if response.error_code != 0 && self.session == (0, 0) {
            return Err(BenchError::new(format!("the broker rejected a fetch: {}", error_name(response.error_code))));
        }
        if response.error_code != 0 || response.session_id == 0 {
            // The session was evicted, or the broker gave none: name all partitions again.
            self.session = (0, 0);
            self.named = (0..self.partitions.len()).collect();
        } else {
            let epoch = if self.session.1 == i32::MAX { 1 } else { self.session.1 + 1 };
            self.session = (response.session_id, epoch);
        }
        for topic in response.responses {
            let number = topic_number(&spec.topic, spec.shape.topics, &topic.topic);
            let number = number.ok_or_else(|| {
                BenchError::new(format!("the broker sent topic {:?}, which was not requested", topic.topic))
            })?;
            for partition in topic.partitions {
                let place = u32::try_from(partition.partition_index).map(|index| number * spec.partitions + index);
                self.take_partition(place.unwrap_or(u32::MAX), partition, now, spec, times, out, tally)?;
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the reader's context, used by this function only")]
    fn take_partition(
        &mut self,
        number: u32,
        data: PartitionData,
        now: u64,
        spec: &Spec,
        times: &Times,
        out: &mut ReadOut,
        tally: &mut Tally,
    ) -> Result<()> {
        if data.error_code != 0 {
            let code = error_name(data.error_code);
            return Err(BenchError::new(format!("reading partition {number} failed: {code}")));
        }
        let Ok(place) = self.partitions.binary_search(&number) else {
            return Err(BenchError::new(format!("the broker sent partition {number}, which was not requested")));
        };
        let Some(bytes) = data.records.and_then(Records::into_bytes).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        let said = || format!("partition {number} contains an invalid batch");
        let mut offset = self.offsets.get(place).copied().unwrap_or(0);
        let filter = spec.shape.filters(self.group, spec.groups);
        for batch in BatchIter::new(bytes) {
            let batch = batch.context(said)?;
            verify_crc(&batch.bytes, &batch.header).context(said)?;
            for record in records(&batch.bytes, BATCH_BYTES_MAX).context(said)? {
                let record = record.context(said)?;
                if record.offset < offset {
                    continue;
                }
                let value = record.value.unwrap_or_default();
                out.bytes += value.len() as u64;
                self.received += 1;
                tally.received();
                if !spec.verify {
                    continue;
                }
                let stamp = Stamp::read(&value);
                let stamp = stamp
                    .ok_or_else(|| BenchError::new(format!("partition {number} contains a message without a stamp")))?;
                self.verifier.see(number, stamp.producer, stamp.sequence);
                if filter.is_none_or(|filter| filter.wants(stamp.sequence)) {
                    tally.latency(now.saturating_sub(stamp.intended_ns), 1, times.measures(stamp.intended_ns));
                }
            }
            offset = offset.max(batch.header.last_offset() + 1);
            out.last_ns = now;
        }
        if let Some(kept) = self.offsets.get_mut(place) {
            *kept = offset;
        }
        if !self.named.contains(&place) {
            self.named.push(place);
        }
        Ok(())
    }
}
