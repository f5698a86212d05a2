//! A small Kafka client that blocks. It does not retry, so that a test sees each answer.

use super::batch::batch;
use bytes::Bytes;
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::*;
use polylogue_record::kafka::{BatchIter, records};
use polylogue_testkit::Result;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What any answer may take here. Seconds.
const ANSWER_SECS: u64 = 60;
/// The longest answer that a test asks for. Bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The most that a batch of a test holds. Bytes.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The answer to a produce request for one partition: its error, and the offset of the first message.
pub(crate) type Produced = (ErrorCode, i64);

/// One connection.
pub(crate) struct Kafka {
    pub(crate) stream: TcpStream,
    next_correlation: i32,
}

/// What one fetch of one partition gave.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    pub(crate) messages: Vec<(i64, Vec<u8>)>,
}

impl Kafka {
    pub(crate) fn connect(to: SocketAddr) -> Result<Kafka> {
        let stream = TcpStream::connect(to).map_err(|e| format!("cannot connect to {to}: {e}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_SECS))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(ANSWER_SECS))).unwrap();
        stream.set_nodelay(true).unwrap();
        Ok(Kafka { stream, next_correlation: 1 })
    }

    /// Sends a request and does not wait. Gives its correlation id.
    pub(crate) fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<i32> {
        let correlation = self.next_correlation;
        self.next_correlation += 1;
        self.stream
            .write_all(&frame(version, correlation, request))
            .map_err(|e| format!("sending {}: {e}", R::NAME))?;
        Ok(correlation)
    }

    /// The next answer, which must be to a request of this kind: its correlation id and itself.
    pub(crate) fn receive<R: Request>(&mut self, version: i16) -> Result<(i32, R::Response)> {
        let failed = |e| format!("waiting for the answer to {}: {e}", R::NAME);
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).map_err(failed)?;
        let len = usize::try_from(i32::from_be_bytes(len)).map_err(|e| e.to_string())?;
        if len > ANSWER_BYTES_MAX {
            return Err(format!("an answer of {len} bytes"));
        }
        let mut frame = vec![0; len];
        self.stream.read_exact(&mut frame).map_err(failed)?;
        let (correlation, mut body) =
            decode_response_header(frame.into(), R::API_KEY, version).map_err(|e| e.to_string())?;
        let response = R::Response::decode(&mut body, version).map_err(|e| e.to_string())?;
        body.finish().map_err(|e| e.to_string())?;
        Ok((correlation, response))
    }

    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let asked = self.send(version, request)?;
        let (answered, response) = self.receive::<R>(version)?;
        match asked == answered {
            true => Ok(response),
            false => Err(format!("{} {asked} was answered with correlation id {answered}", R::NAME)),
        }
    }

    pub(crate) fn create_topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<()> {
        let config = |(name, value): &(&str, &str)| create_topics::CreatableTopicConfig {
            name: (*name).into(),
            value: Some((*value).into()),
        };
        let topic = create_topics::CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request =
            create_topics::CreateTopicsRequest { topics: vec![topic], timeout_ms: 60_000, ..Default::default() };
        let response = self.call(7, &request)?;
        let topic = response.topics.first().ok_or("an answer without the topic")?;
        match topic.error_code {
            0 => Ok(()),
            code => Err(format!("creating {name}: error {code}, {:?}", topic.error_message)),
        }
    }

    pub(crate) fn delete_topic(&mut self, name: &str) -> Result<ErrorCode> {
        let request = delete_topics::DeleteTopicsRequest {
            topic_names: vec![name.into()],
            timeout_ms: 60_000,
            ..Default::default()
        };
        let response = self.call(5, &request)?;
        response.responses.first().map(|topic| code(topic.error_code)).ok_or_else(|| "no answer for the topic".into())
    }

    /// The names of all topics.
    pub(crate) fn topics(&mut self) -> Result<BTreeSet<String>> {
        let response = self.call(9, &metadata::MetadataRequest { topics: None, ..Default::default() })?;
        Ok(response.topics.into_iter().filter_map(|topic| topic.name).map(|name| name.to_string()).collect())
    }

    /// Produces one batch and waits for the answer.
    pub(crate) fn produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<Produced> {
        self.send_produce(topic, partition, batch)?;
        self.receive_produced().map(|(_, produced)| produced)
    }

    /// Produces messages that must be taken. Gives the offset of the first.
    pub(crate) fn put<V: AsRef<[u8]>>(&mut self, topic: &str, partition: i32, values: &[V]) -> Result<i64> {
        match self.produce(topic, partition, batch(values))? {
            (ErrorCode::None, offset) => Ok(offset),
            (error, _) => Err(format!("producing to {topic}-{partition}: {error:?}")),
        }
    }

    pub(crate) fn send_produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<i32> {
        self.send(9, &produce_request(topic, partition, batch))
    }

    pub(crate) fn receive_produced(&mut self) -> Result<(i32, Produced)> {
        let (correlation, response) = self.receive::<produce::ProduceRequest>(9)?;
        let answer = response.responses.first().and_then(|topic| topic.partition_responses.first());
        let answer = answer.ok_or("an answer without the partition")?;
        Ok((correlation, (code(answer.error_code), answer.base_offset)))
    }

    /// Fetches once, at once.
    pub(crate) fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> Result<Fetched> {
        self.fetch_within(topic, partition, offset, 0)
    }

    /// Fetches once, waiting so many milliseconds for something to come.
    pub(crate) fn fetch_within(&mut self, topic: &str, partition: i32, offset: i64, wait_ms: i32) -> Result<Fetched> {
        let request = fetch::FetchRequest {
            max_wait_ms: wait_ms,
            min_bytes: 1,
            ..fetch_request(topic, partition, offset, 1 << 20)
        };
        let response = self.call(12, &request)?;
        let found = response.responses.into_iter().flat_map(|topic| topic.partitions).next();
        let found =
            found.ok_or_else(|| format!("an answer without {topic}-{partition}, error {}", response.error_code))?;
        let bytes = found.records.and_then(Records::into_bytes).unwrap_or_default();
        let mut messages = Vec::new();
        for batch in BatchIter::new(bytes) {
            let batch = batch.map_err(|e| format!("{topic}-{partition}: a broken batch: {e}"))?;
            polylogue_record::kafka::verify_crc(&batch.bytes, &batch.header)
                .map_err(|e| format!("{topic}-{partition}: a batch with a wrong checksum was served: {e}"))?;
            for record in records(&batch.bytes, BATCH_BYTES_MAX).map_err(|e| e.to_string())? {
                let record = record.map_err(|e| format!("{topic}-{partition}: a broken record: {e}"))?;
                if record.offset >= offset {
                    messages.push((record.offset, record.value.unwrap_or_default().to_vec()));
                }
            }
        }
        Ok(Fetched { error: code(found.error_code), high_watermark: found.high_watermark, messages })
    }

    /// Hands all messages from `offset` to the end to `each`.
    pub(crate) fn read(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        mut each: impl FnMut(i64, &[u8]),
    ) -> Result<i64> {
        let mut next = offset;
        loop {
            let fetched = self.fetch(topic, partition, next)?;
            if fetched.error != ErrorCode::None {
                return Err(format!("fetching {topic}-{partition} at {next}: {:?}", fetched.error));
            }
            for (offset, value) in &fetched.messages {
                each(*offset, value);
                next = offset + 1;
            }
            if next >= fetched.high_watermark {
                return Ok(next);
            }
            if fetched.messages.is_empty() {
                return Err(format!("{topic}-{partition}: nothing at {next} of {}", fetched.high_watermark));
            }
        }
    }

    /// All values of a partition.
    pub(crate) fn read_all(&mut self, topic: &str, partition: i32) -> Result<Vec<Vec<u8>>> {
        let mut values = Vec::new();
        self.read(topic, partition, 0, |_, value| values.push(value.to_vec()))?;
        Ok(values)
    }

    /// `timestamp`: -1 for the end, -2 for the start.
    pub(crate) fn list_offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> Result<(ErrorCode, i64)> {
        let partition =
            list_offsets::ListOffsetsPartition { partition_index: partition, current_leader_epoch: -1, timestamp };
        let topic = list_offsets::ListOffsetsTopic { name: topic.into(), partitions: vec![partition] };
        let request = list_offsets::ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let response = self.call(6, &request)?;
        let found = response.topics.first().and_then(|topic| topic.partitions.first());
        found.map(|p| (code(p.error_code), p.offset)).ok_or_else(|| "an answer without the partition".into())
    }

    pub(crate) fn init_producer_id(&mut self) -> Result<(i64, i16)> {
        let request = init_producer_id::InitProducerIdRequest {
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        let response = self.call(4, &request)?;
        match response.error_code {
            0 => Ok((response.producer_id, response.producer_epoch)),
            code => Err(format!("no producer id: error {code}")),
        }
    }

    pub(crate) fn commit(&mut self, group: &str, topic: &str, offset: i64) -> Result<ErrorCode> {
        let partition = offset_commit::OffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: offset,
            committed_leader_epoch: -1,
            committed_metadata: Some("".into()),
        };
        let topic = offset_commit::OffsetCommitRequestTopic {
            name: topic.into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = offset_commit::OffsetCommitRequest {
            group_id: group.into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let response = self.call(8, &request)?;
        let found = response.topics.first().and_then(|topic| topic.partitions.first());
        found.map(|p| code(p.error_code)).ok_or_else(|| "an answer without the partition".into())
    }

    /// The committed offset of partition 0, -1 for none.
    pub(crate) fn committed(&mut self, group: &str, topic: &str) -> Result<i64> {
        let topic = offset_fetch::OffsetFetchRequestTopics {
            name: topic.into(),
            partition_indexes: vec![0],
            ..Default::default()
        };
        let group = offset_fetch::OffsetFetchRequestGroup {
            group_id: group.into(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        let request = offset_fetch::OffsetFetchRequest { groups: vec![group], ..Default::default() };
        let response = self.call(8, &request)?;
        let found = response.groups.first().and_then(|g| g.topics.first()).and_then(|t| t.partitions.first());
        let found = found.ok_or("an answer without the partition")?;
        match found.error_code {
            0 => Ok(found.committed_offset),
            error => Err(format!("fetching a committed offset: error {error}")),
        }
    }
}

/// A request as it goes over the wire.
pub(crate) fn frame<R: Request>(version: i16, correlation: i32, request: &R) -> Vec<u8> {
    let chunks = encode_request(version, correlation, Some("testkit".into()), request).unwrap();
    chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap().to_vec()).collect()
}

pub(crate) fn produce_request(topic: &str, partition: i32, batch: Bytes) -> produce::ProduceRequest {
    let data = produce::PartitionProduceData { index: partition, records: Some(Records::from(batch)) };
    let topic = produce::TopicProduceData { name: topic.into(), partition_data: vec![data], ..Default::default() };
    produce::ProduceRequest { acks: -1, timeout_ms: 60_000, topic_data: vec![topic], ..Default::default() }
}

pub(crate) fn fetch_request(topic: &str, partition: i32, offset: i64, max_bytes: i32) -> fetch::FetchRequest {
    let partition = fetch::FetchPartition {
        partition,
        fetch_offset: offset,
        current_leader_epoch: -1,
        partition_max_bytes: max_bytes,
        ..Default::default()
    };
    let topic = fetch::FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() };
    fetch::FetchRequest { replica_id: -1, min_bytes: 0, max_bytes, topics: vec![topic], ..Default::default() }
}

pub(crate) fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)
}
