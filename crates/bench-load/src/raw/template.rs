//! Templates of Produce requests: encoded once, then patched for each request.
//!
//! ```text
//!   frame of a request with two batches of two records                    P: patched for every request
//!   +--------+-----+-----+-------------+------------------+-- entry ------------------------------------------+- entry --+---+
//!   | length | key | ver | P correlat. | ..., topic name, | P partition | length of | batch                  | 0 | ...      | 0 |
//!   |        |     |     |             | count            |             | batch     |                        |   |          | 0 |
//!   +--------+-----+-----+-------------+------------------+-------------+-----------+------------------------+---+----------+---+
//!
//!   batch   0        17      21        27              43              57      61
//!          +--------+-------+---------+---------------+---------------+-------+--------+---------+------+--------+---------+------
//!          |        | P crc |         | P base and    | P producer id,| count | record | P stamp | rest | record | P stamp | rest
//!          |        |       |         | max timestamp | epoch, base   |       | head   |         |      | head   |         |
//!          |        |       |         |               | sequence      |       |        |         |      |        |         |
//!          +--------+-------+---------+---------------+---------------+-------+--------+---------+------+--------+---------+------
//!                           '------------------------ front ------------------------------------'-- piece -----------------'------
//! ```
//!
//! The checksum of a batch covers the bytes from 21 on. Computing it takes about 20 ns per KiB. Combining the known checksums of
//! the unchanged pieces with those of the new stamps takes about 100 ns per record of any length (figures of
//! `polylogue_record::crc`). The message length decides which method is used.

use crate::contract::Payloads;
use crate::error::{BenchError, Context, Result};
use crate::stamp::{self, STAMP_BYTES, Stamp};
use crate::wire;
use bytes::Bytes;
use polylogue_kafka_codec::Records;
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_record::crc::{combine, crc32c};
use polylogue_record::kafka::{BatchBuilder, CRC_FROM, HEADER_BYTES, NewRecord, records};

/// From this message length on, the checksum of a batch is combined from those of its pieces. Bytes.
const COMBINE_FROM_BYTES: u32 = 8 << 10;
/// Offset of the correlation id in a frame.
const CORRELATION_AT: usize = 8;
/// Offsets of checksum, timestamps and producer id in a batch.
const CRC_AT: usize = 17;
const TIMESTAMPS_AT: usize = 27;
const PRODUCER_AT: usize = 43;
/// An entry ends with one byte for no tagged fields; so do the topic and the request.
const ENTRY_END: usize = 1;
const FRAME_END: usize = 2;
/// The request's timeout for the broker. Milliseconds.
const TIMEOUT_MS: i32 = 30_000;
/// acks=all: acknowledged by all in-sync replicas.
const ACKS_ALL: i16 = -1;

/// Parameters of a template.
#[derive(Debug, Clone)]
pub struct Form {
    /// The version of Produce, 9 or later (flexible) and 12 or earlier (topics by name).
    pub version: i16,
    /// The topic.
    pub topic: String,
    /// Message size. Bytes.
    pub message_bytes: u32,
    /// Records in a batch.
    pub records: usize,
    /// Batches in a request.
    pub batches: usize,
    /// Contents of messages behind the stamp. `None`: incompressible bytes.
    pub payloads: Option<Payloads>,
}

/// The variable fields of one batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchPatch {
    /// The partition.
    pub partition: u32,
    /// The timestamp of all records. Unix milliseconds.
    pub timestamp_ms: i64,
    /// Id and epoch of the idempotent producer.
    pub producer_id: (i64, i16),
    /// The sequence of the first message; those of the others follow. Kafka's sequence is its lowest 31 bits.
    pub sequence: u64,
    /// The producer's number in the stamps.
    pub producer: u32,
}

/// An encoded request that is patched and sent repeatedly.
#[derive(Debug, Clone)]
pub struct Template {
    frame: Vec<u8>,
    /// Offset of the topic's name in the frame.
    topic_at: usize,
    /// Offset of each batch in the frame.
    batches: Vec<usize>,
    batch_len: usize,
    /// Size of the length prefix of a batch. Bytes.
    prefix_len: usize,
    /// Offset of each record's stamp in a batch.
    stamps: Vec<usize>,
    /// For each batch and record: the checksum from the end of its stamp to the end of the next stamp, with zeros for that stamp, and
    /// its length. Empty if checksums are not combined.
    pieces: Vec<Vec<(u32, u64)>>,
}

impl Template {
    /// Encodes a request.
    ///
    /// # Errors
    /// The batch or the request cannot be encoded.
    pub fn new(form: &Form) -> Result<Template> {
        let seed = stamp::seed();
        let batches: Vec<Bytes> =
            (0..form.batches).map(|at| batch(form, seed.wrapping_add(at as u64))).collect::<Result<_>>()?;
        let first = batches.first().ok_or_else(|| BenchError::new("a request needs a batch"))?.clone();
        let partition = |(at, batch): (usize, &Bytes)| PartitionProduceData {
            index: i32::try_from(at).unwrap_or(0),
            records: Some(Records::from(batch.clone())),
        };
        let data = batches.iter().enumerate().map(partition).collect();
        let topic =
            TopicProduceData { name: form.topic.as_str().into(), partition_data: data, ..TopicProduceData::default() };
        let request =
            ProduceRequest { transactional_id: None, acks: ACKS_ALL, timeout_ms: TIMEOUT_MS, topic_data: vec![topic] };
        let frame = wire::frame(form.version, 0, &request)?;
        let prefix_len = varint_len(first.len() + 1);
        let entry = 4 + prefix_len + first.len() + ENTRY_END;
        let entries = frame.len().checked_sub(FRAME_END + entry * batches.len());
        let entries = entries
            .ok_or_else(|| BenchError::new(format!("Produce version {} has an unexpected layout", form.version)))?;
        let places = (0..batches.len()).map(|at| entries + at * entry + 4 + prefix_len).collect();
        let stamps = stamp_places(&first)?;
        let name = form.topic.as_bytes();
        let found = frame.get(..entries).unwrap_or_default().windows(name.len().max(1)).rposition(|part| part == name);
        let topic_at = found.ok_or_else(|| BenchError::new("the encoded request does not contain its topic"))?;
        let batch_len = first.len();
        let mut template =
            Template { frame, topic_at, batches: places, batch_len, prefix_len, stamps, pieces: Vec::new() };
        if form.message_bytes >= COMBINE_FROM_BYTES {
            template.pieces = batches.iter().map(|batch| template.sum_pieces(batch)).collect();
        }
        Ok(template)
    }

    /// Returns the number of records in each batch.
    #[must_use]
    pub fn records(&self) -> usize {
        self.stamps.len()
    }

    /// Returns the number of batches in the request.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Returns the frame of the request.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Sets the correlation id.
    pub fn set_correlation(&mut self, correlation: i32) {
        put(&mut self.frame, CORRELATION_AT, &correlation.to_be_bytes());
    }

    /// Sets the topic, whose name must be as long as the first one.
    pub fn set_topic(&mut self, topic: &str) {
        put(&mut self.frame, self.topic_at, topic.as_bytes());
    }

    /// Patches batch number `at`; record number `i` was due at `intended_ns(i)`. Ignored if there is no such batch.
    pub fn patch(&mut self, at: usize, patch: &BatchPatch, intended_ns: impl Fn(usize) -> u64) {
        let Some(start) = self.batches.get(at).copied() else { return };
        let partition_at = start - self.prefix_len - 4;
        put(&mut self.frame, partition_at, &i32::try_from(patch.partition).unwrap_or(i32::MAX).to_be_bytes());
        let Some(batch) = self.frame.get_mut(start..start + self.batch_len) else { return };
        put(batch, TIMESTAMPS_AT, &patch.timestamp_ms.to_be_bytes());
        put(batch, TIMESTAMPS_AT + 8, &patch.timestamp_ms.to_be_bytes());
        put(batch, PRODUCER_AT, &patch.producer_id.0.to_be_bytes());
        put(batch, PRODUCER_AT + 8, &patch.producer_id.1.to_be_bytes());
        put(batch, PRODUCER_AT + 10, &kafka_sequence(patch.sequence).to_be_bytes());
        for (index, place) in self.stamps.iter().enumerate() {
            let sequence = patch.sequence.wrapping_add(index as u64);
            let stamp = Stamp { intended_ns: intended_ns(index), sequence, producer: patch.producer };
            put(batch, *place, &stamp.to_bytes());
        }
        let sum = match self.pieces.get(at) {
            Some(pieces) => combined(batch, &self.stamps, pieces),
            None => crc32c(batch.get(CRC_FROM..).unwrap_or_default()),
        };
        put(batch, CRC_AT, &sum.to_be_bytes());
    }

    /// Returns checksum and length of each unchanged piece of a batch, for [`combined`].
    fn sum_pieces(&self, batch: &[u8]) -> Vec<(u32, u64)> {
        let next = self.stamps.iter().skip(1).copied().map(Some).chain([None]);
        let piece = |(stamp, next): (&usize, Option<usize>)| {
            let rest = batch.get(stamp + STAMP_BYTES..next.unwrap_or(batch.len())).unwrap_or_default();
            let zeros = if next.is_some() { STAMP_BYTES as u64 } else { 0 };
            (combine(crc32c(rest), 0, zeros), rest.len() as u64 + zeros)
        };
        self.stamps.iter().zip(next).map(piece).collect()
    }
}

/// Returns the checksum of a batch, combined from its front, which ends with the first stamp, and its pieces. A piece's checksum was
/// computed with zeros for the stamp at its end, so it differs from the full checksum by exactly the checksum of the stamp.
fn combined(batch: &[u8], stamps: &[usize], pieces: &[(u32, u64)]) -> u32 {
    let front_end = stamps.first().map_or(batch.len(), |stamp| stamp + STAMP_BYTES);
    let mut sum = crc32c(batch.get(CRC_FROM..front_end).unwrap_or_default());
    let next = stamps.iter().skip(1).map(Some).chain([None]);
    for ((piece, len), next) in pieces.iter().zip(next) {
        let stamp = next.map_or(0, |at| crc32c(batch.get(*at..at + STAMP_BYTES).unwrap_or_default()));
        sum = combine(sum, piece ^ stamp, *len);
    }
    sum
}

/// Returns Kafka's sequence of a producer in a partition, which has 31 bits.
fn kafka_sequence(sequence: u64) -> i32 {
    i32::try_from(sequence & 0x7fff_ffff).unwrap_or(0)
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn varint_len(value: usize) -> usize {
    (usize::BITS - value.max(1).leading_zeros()).div_ceil(7) as usize
}

fn batch(form: &Form, seed: u64) -> Result<Bytes> {
    let said = || format!("cannot build a batch of {} messages of {} bytes", form.records, form.message_bytes);
    let mut builder = BatchBuilder::new().producer(0, 0, 0);
    let mut message = vec![0; form.message_bytes as usize];
    for index in 0..form.records {
        stamp::fill_as(
            &mut message,
            form.payloads.as_ref(),
            seed.wrapping_mul(1 << 20).wrapping_add(index as u64 + 1),
        )?;
        let record = NewRecord { timestamp: 0, value: Some(&message), ..NewRecord::default() };
        builder.push(&record).context(said)?;
    }
    builder.build().context(said)
}

/// Returns the offset of each record's value in the batch.
fn stamp_places(batch: &Bytes) -> Result<Vec<usize>> {
    let said = || "cannot parse a batch that was just built".to_owned();
    let mut places = Vec::new();
    for record in records(batch, batch.len()).context(said)? {
        let value = record.context(said)?.value.unwrap_or_default();
        // The value shares the batch's memory.
        places.push((value.as_ptr() as usize).saturating_sub(batch.as_ptr() as usize));
    }
    if places.iter().any(|place| *place < HEADER_BYTES || place + STAMP_BYTES > batch.len()) {
        return Err(BenchError::new("the record values of a batch are not within its bytes"));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_kafka_codec::Message;
    use polylogue_kafka_codec::frame::RequestFrame;
    use polylogue_record::kafka::{BatchHeader, verify_crc};

    fn form(message_bytes: u32, records: usize, batches: usize) -> Form {
        Form { version: 12, topic: "measured".to_owned(), message_bytes, records, batches, payloads: None }
    }

    fn patch(at: usize) -> BatchPatch {
        let sequence = (1 << 31) + 5 + at as u64;
        BatchPatch {
            partition: 40 + at as u32,
            timestamp_ms: 1_763_000_000_000,
            producer_id: (77, 3),
            sequence,
            producer: 9,
        }
    }

    fn check(template: &mut Template, form: &Form) {
        template.set_correlation(4_711);
        for at in 0..form.batches {
            template.patch(at, &patch(at), |index| 1_000 + index as u64);
        }
        let frame = RequestFrame::decode(Bytes::copy_from_slice(&template.frame()[4..])).expect("a request");
        assert_eq!((frame.correlation_id, frame.version), (4_711, 12));
        let mut body = frame.body;
        let request = ProduceRequest::decode(&mut body, 12).expect("a produce request");
        assert_eq!((request.acks, request.topic_data[0].partition_data.len()), (-1, form.batches));
        for (at, partition) in request.topic_data[0].partition_data.iter().enumerate() {
            assert_eq!(partition.index, 40 + at as i32);
            let batch = partition.records.as_ref().and_then(Records::as_bytes).expect("a batch").clone();
            let header = BatchHeader::parse(&batch).expect("a header");
            assert_eq!(verify_crc(&batch, &header), Ok(()), "batch {at} of {form:?}");
            assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (77, 3, 5 + at as i32));
            assert_eq!((header.base_timestamp, header.max_timestamp), (1_763_000_000_000, 1_763_000_000_000));
            let values: Vec<_> =
                records(&batch, 1 << 30).expect("records").map(|r| r.expect("a record").value).collect();
            assert_eq!(values.len(), form.records);
            for (index, value) in values.iter().enumerate() {
                let value = value.as_ref().expect("a value");
                let stamp = Stamp::read(value).expect("a stamp");
                assert_eq!(value.len(), form.message_bytes as usize);
                assert_eq!((stamp.intended_ns, stamp.producer), (1_000 + index as u64, 9));
                assert_eq!(stamp.sequence, patch(at).sequence + index as u64);
            }
        }
    }

    #[test]
    fn a_patched_request_parses_and_its_checksums_match() {
        for (message_bytes, records, batches) in [(20, 1, 1), (100, 3, 2), (1_024, 15, 7), (1_024, 900, 1)] {
            let form = form(message_bytes, records, batches);
            let mut template = Template::new(&form).expect("a template");
            assert!(template.pieces.is_empty(), "checksums of small messages are computed");
            check(&mut template, &form);
            check(&mut template, &form);
        }
    }

    #[test]
    fn a_template_is_patched_for_another_topic() {
        let mut template =
            Template::new(&Form { topic: "measured-0000".to_owned(), ..form(100, 3, 1) }).expect("a template");
        template.set_topic("measured-0041");
        let frame = RequestFrame::decode(Bytes::copy_from_slice(&template.frame()[4..])).expect("a request");
        let mut body = frame.body;
        let request = ProduceRequest::decode(&mut body, 12).expect("a produce request");
        assert_eq!(&*request.topic_data[0].name, "measured-0041");
    }

    #[test]
    fn the_checksum_of_large_messages_is_combined() {
        for (message_bytes, records, batches) in [(COMBINE_FROM_BYTES, 1, 1), (10_240, 3, 2), (102_400, 9, 1)] {
            let form = form(message_bytes, records, batches);
            let mut template = Template::new(&form).expect("a template");
            assert_eq!(template.pieces.len(), batches, "checksums are combined");
            check(&mut template, &form);
            check(&mut template, &form);
        }
    }
}
