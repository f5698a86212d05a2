//! A broker that answers everything at once and stores nothing: it shows the client's own floor.
//!
//! It reports every topic with as many partitions as were ever requested, accepts every write, and answers a fetch with one canned batch at the
//! requested offset. [`amqp`] is the same for queues. For tests of the clients it can store messages instead, and lose, duplicate or reorder some
//! of them.

pub mod amqp;
mod log;

use crate::clock::{MS_NS, monotonic_ns};
use crate::error::{BenchError, Context, Result};
use crate::stamp;
use bytes::{Bytes, BytesMut};
use log::Log;
use polylogue_kafka_codec::api_versions::{ApiVersion, ApiVersionsResponse};
use polylogue_kafka_codec::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult,
};
use polylogue_kafka_codec::create_topics::{CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse};
use polylogue_kafka_codec::fetch::{FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData};
use polylogue_kafka_codec::frame::{LENGTH_BYTES, RequestFrame, encode_response, frame_len};
use polylogue_kafka_codec::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use polylogue_kafka_codec::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use polylogue_kafka_codec::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use polylogue_kafka_codec::produce::{PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse};
use polylogue_kafka_codec::{ApiKey, Message, Records, Request, StrBytes};
use polylogue_record::kafka::{BatchBuilder, NewRecord, patch_base};
use polylogue_types::{Chunk, TopicId};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// The maximum size of a request. Bytes, as Kafka's socket.request.max.bytes.
const REQUEST_BYTES_MAX: usize = 100 << 20;
/// Connections at a time; further ones are closed.
const CONNECTIONS_MAX: u64 = 2_000;
/// Size of the canned batch: about a MiB, the maximum for a consumer per partition.
const CANNED_BYTES: usize = 1 << 20;
/// ListOffsets' timestamp for the first offset.
const EARLIEST: i64 = -2;
/// The reported end offset; the first is zero.
const NEXT_OFFSET: i64 = 1 << 40;

/// Faults of a null broker, for each message whose number is a multiple, to test that clients find them. With the Kafka protocol a
/// message is a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// It is acknowledged and not delivered. 0: none.
    pub lose: u64,
    /// It is delivered twice. 0: none.
    pub double: u64,
    /// It is delivered after the next one. 0: none.
    pub swap: u64,
    /// Delay of each fetch response. Microseconds.
    pub fetch_us: u64,
    /// The last message of a connection without confirms is lost unless its channel is closed first, as may happen with `RabbitMQ`. For
    /// queues only.
    pub hangs_up: bool,
}

impl Faults {
    /// Returns how often the message with this number, from 1 on, is delivered.
    fn times(self, number: u64) -> u32 {
        let is_due = |every: u64| every > 0 && number.is_multiple_of(every);
        if is_due(self.lose) { 0 } else { 1 + u32::from(is_due(self.double)) }
    }

    fn swaps(self, number: u64) -> bool {
        self.swap > 0 && number.is_multiple_of(self.swap)
    }
}

/// The parameters of a null broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullSpec {
    /// Listen address; port 0 for any free one.
    pub listen: SocketAddr,
    /// Partitions of each topic.
    pub partitions: u32,
    /// Bytes of a message in the canned batch.
    pub message_bytes: u32,
    /// From when on, after the first write, writes are not answered, and for how long. Milliseconds.
    pub stall_ms: Option<(u64, u64)>,
    /// The faults if messages are stored and can be read; without it a fetch returns canned ones.
    pub keeps: Option<Faults>,
}

/// A null broker in this process; it runs until the process ends.
#[derive(Debug)]
pub struct NullBroker {
    address: SocketAddr,
}

#[derive(Debug)]
struct State {
    spec: NullSpec,
    address: SocketAddr,
    canned: Vec<u8>,
    canned_count: i64,
    producers: AtomicI64,
    connections: AtomicU64,
    /// When the first write arrived. Monotonic nanoseconds; 0 before.
    first_write: AtomicU64,
    log: Option<Log>,
}

impl NullBroker {
    /// Starts a null broker.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(spec: NullSpec) -> Result<NullBroker> {
        let listener = TcpListener::bind(spec.listen).context(|| format!("cannot listen on {}", spec.listen))?;
        let address = listener.local_addr().context(|| "cannot ask for the address".to_owned())?;
        let (canned, canned_count) = canned(spec.message_bytes)?;
        let state = Arc::new(State {
            spec,
            address,
            canned,
            canned_count,
            producers: AtomicI64::new(1),
            connections: AtomicU64::new(0),
            first_write: AtomicU64::new(0),
            log: spec.keeps.map(|faults| Log::new(spec.partitions, faults)),
        });
        let accept = move || {
            for stream in listener.incoming().flatten() {
                if state.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    state.connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let state = Arc::clone(&state);
                // Without a thread the connection is closed, which the client sees.
                let _ = Builder::new().name("null-connection".to_owned()).spawn(move || {
                    // The client sees the error; there is nothing else to report to.
                    let _ = state.serve(&stream);
                    state.connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        };
        Builder::new().name("null-accept".to_owned()).spawn(accept).context(|| "cannot start a thread".to_owned())?;
        Ok(NullBroker { address })
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn canned(message_bytes: u32) -> Result<(Vec<u8>, i64)> {
    let said = || format!("cannot build a batch of messages of {message_bytes} bytes");
    let mut message = vec![0; message_bytes as usize];
    let count = (CANNED_BYTES / message.len().max(1)).max(1);
    let mut builder = BatchBuilder::new();
    for index in 0..count {
        stamp::fill(&mut message, index as u64 + 1);
        builder.push(&NewRecord { timestamp: 0, value: Some(&message), ..NewRecord::default() }).context(said)?;
    }
    Ok((builder.build().context(said)?.to_vec(), i64::try_from(count).unwrap_or(1)))
}

impl State {
    fn serve(&self, mut stream: &TcpStream) -> Result<()> {
        let gone = || "the client has gone".to_owned();
        stream.set_nodelay(true).context(gone)?;
        let mut buffer = BytesMut::new();
        loop {
            let mut prefix = [0; LENGTH_BYTES];
            stream.read_exact(&mut prefix).context(gone)?;
            let len = frame_len(&prefix, REQUEST_BYTES_MAX).context(|| "a request".to_owned())?.unwrap_or(0);
            // The previous frame was dropped, so that its memory is reused.
            buffer.resize(len, 0);
            stream.read_exact(&mut buffer).context(gone)?;
            let frame = RequestFrame::decode(buffer.split().freeze()).context(|| "a request".to_owned())?;
            for chunk in self.answer(frame)? {
                if let Chunk::Bytes(bytes) = chunk {
                    stream.write_all(&bytes).context(gone)?;
                }
            }
        }
    }

    fn answer(&self, mut frame: RequestFrame) -> Result<Vec<Chunk>> {
        let wrong = || format!("a request of version {}", frame.version);
        let (key, version, correlation) = (frame.api_key, frame.version, frame.correlation_id);
        let body = &mut frame.body;
        let written = match key {
            ApiKey::ApiVersions => {
                let known = ApiVersionsResponse::VERSIONS.contains(&version);
                let answer = ApiVersionsResponse {
                    error_code: if known { 0 } else { 35 },
                    api_keys: served(),
                    ..Default::default()
                };
                encode_response(key, if known { version } else { 0 }, correlation, &answer)
            }
            ApiKey::Metadata => {
                let request = MetadataRequest::decode(body, version).context(wrong)?;
                encode_response(key, version, correlation, &self.metadata(&request))
            }
            ApiKey::InitProducerId => {
                InitProducerIdRequest::decode(body, version).context(wrong)?;
                let producer_id = self.producers.fetch_add(1, Ordering::Relaxed);
                encode_response(
                    key,
                    version,
                    correlation,
                    &InitProducerIdResponse { producer_id, ..Default::default() },
                )
            }
            ApiKey::CreateTopics => {
                let request = CreateTopicsRequest::decode(body, version).context(wrong)?;
                let created =
                    |name: StrBytes| CreatableTopicResult { topic_id: topic_id(&name), name, ..Default::default() };
                let topics = request.topics.into_iter().map(|topic| created(topic.name)).collect();
                encode_response(key, version, correlation, &CreateTopicsResponse { topics, ..Default::default() })
            }
            ApiKey::CreatePartitions => {
                let request = CreatePartitionsRequest::decode(body, version).context(wrong)?;
                let created = |name| CreatePartitionsTopicResult { name, ..Default::default() };
                let results = request.topics.into_iter().map(|topic| created(topic.name)).collect();
                encode_response(key, version, correlation, &CreatePartitionsResponse { results, ..Default::default() })
            }
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode(body, version).context(wrong)?;
                encode_response(key, version, correlation, &self.list_offsets(request))
            }
            ApiKey::Produce => {
                let request = ProduceRequest::decode(body, version).context(wrong)?;
                self.stall();
                self.keep(&request)?;
                encode_response(key, version, correlation, &produced(request))
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(body, version).context(wrong)?;
                encode_response(key, version, correlation, &self.fetched(request))
            }
            other => return Err(BenchError::new(format!("the null broker does not answer {other:?}"))),
        };
        written.context(|| format!("an answer of version {version}"))
    }

    /// Waits while writes are not answered.
    fn stall(&self) {
        let Some((after, long)) = self.spec.stall_ms else { return };
        let now = monotonic_ns();
        let first = self.first_write.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire).err().unwrap_or(now);
        let (from, until) = (first + after * MS_NS, first + (after + long) * MS_NS);
        if (from..until).contains(&now) {
            std::thread::sleep(Duration::from_nanos(until - now));
        }
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let broker = MetadataResponseBroker {
            node_id: 1,
            host: self.address.ip().to_string().into(),
            port: i32::from(self.address.port()),
            ..Default::default()
        };
        let partition = |number| MetadataResponsePartition {
            partition_index: i32::try_from(number).unwrap_or(i32::MAX),
            leader_id: 1,
            leader_epoch: 0,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..Default::default()
        };
        let topic = |name: Option<StrBytes>| MetadataResponseTopic {
            topic_id: topic_id(name.as_deref().unwrap_or_default()),
            name,
            partitions: (0..self.spec.partitions).map(partition).collect(),
            ..Default::default()
        };
        let topics = request.topics.iter().flatten().map(|asked| topic(asked.name.clone())).collect();
        MetadataResponse { brokers: vec![broker], controller_id: 1, topics, ..Default::default() }
    }

    fn keep(&self, request: &ProduceRequest) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        for data in request.topic_data.iter().flat_map(|topic| &topic.partition_data) {
            if let Some(batch) = data.records.clone().and_then(Records::into_bytes) {
                log.append(data.index, batch)?;
            }
        }
        Ok(())
    }

    /// Returns stored messages.
    fn read(log: &Log, request: FetchRequest) -> FetchResponse {
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        log.hold_up();
        let mut responses = Vec::new();
        for topic in request.topics {
            let asked: Vec<(i32, i64)> = topic.partitions.iter().map(|p| (p.partition, p.fetch_offset)).collect();
            let partition = |(partition_index, batch): (i32, Bytes)| PartitionData {
                partition_index,
                high_watermark: log.next(partition_index),
                records: Some(Records::from(batch)),
                ..Default::default()
            };
            let partitions = log.read(&asked, wait).into_iter().map(partition).collect();
            responses.push(FetchableTopicResponse { topic: topic.topic, topic_id: topic.topic_id, partitions });
        }
        FetchResponse { responses, ..Default::default() }
    }

    fn list_offsets(&self, request: ListOffsetsRequest) -> ListOffsetsResponse {
        let mut answer = list_offsets(request);
        if let Some(log) = &self.log {
            for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.offset = if partition.offset == 0 { 0 } else { log.next(partition.partition_index) };
            }
        }
        answer
    }

    fn fetched(&self, request: FetchRequest) -> FetchResponse {
        if let Some(log) = &self.log {
            return State::read(log, request);
        }
        let mut responses = Vec::new();
        for topic in request.topics {
            // One partition per fetch, as from a broker whose response is full.
            let partition = topic.partitions.first().map(|asked| {
                let mut batch = BytesMut::from(self.canned.as_slice());
                // A canned batch is long enough to be patched.
                let _ = patch_base(&mut batch, asked.fetch_offset, 0);
                PartitionData {
                    partition_index: asked.partition,
                    high_watermark: asked.fetch_offset + self.canned_count,
                    records: Some(Records::from(Bytes::from(batch))),
                    ..Default::default()
                }
            });
            let partitions = partition.into_iter().collect();
            responses.push(FetchableTopicResponse { topic: topic.topic, topic_id: topic.topic_id, partitions });
        }
        FetchResponse { responses, ..Default::default() }
    }
}

/// Returns a topic id derived from the name: Java's client treats topics with the same id as one.
fn topic_id(name: &str) -> TopicId {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, name).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    };
    let mut id = [0; 16];
    for (byte, of) in id.iter_mut().zip(half(0).into_iter().chain(half(1))) {
        *byte = of;
    }
    TopicId(id)
}

/// Returns the supported versions: all of the codec's.
fn served() -> Vec<ApiVersion> {
    fn of<R: Request>() -> ApiVersion {
        let (min_version, max_version) = (*R::VERSIONS.start(), *R::VERSIONS.end());
        ApiVersion { api_key: R::API_KEY.code(), min_version, max_version }
    }
    vec![
        of::<ProduceRequest>(),
        of::<FetchRequest>(),
        of::<ListOffsetsRequest>(),
        of::<MetadataRequest>(),
        of::<polylogue_kafka_codec::api_versions::ApiVersionsRequest>(),
        of::<CreateTopicsRequest>(),
        of::<CreatePartitionsRequest>(),
        of::<InitProducerIdRequest>(),
    ]
}

fn produced(request: ProduceRequest) -> ProduceResponse {
    let topic = |topic: polylogue_kafka_codec::produce::TopicProduceData| {
        let partition = |index| PartitionProduceResponse { index, log_start_offset: 0, ..Default::default() };
        let partition_responses = topic.partition_data.iter().map(|data| partition(data.index)).collect();
        TopicProduceResponse { name: topic.name, topic_id: topic.topic_id, partition_responses }
    };
    ProduceResponse { responses: request.topic_data.into_iter().map(topic).collect(), ..Default::default() }
}

fn list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse {
    let topic = |topic: polylogue_kafka_codec::list_offsets::ListOffsetsTopic| {
        let partition =
            |asked: &polylogue_kafka_codec::list_offsets::ListOffsetsPartition| ListOffsetsPartitionResponse {
                partition_index: asked.partition_index,
                offset: if asked.timestamp == EARLIEST { 0 } else { NEXT_OFFSET },
                ..Default::default()
            };
        ListOffsetsTopicResponse { name: topic.name, partitions: topic.partitions.iter().map(partition).collect() }
    };
    ListOffsetsResponse { topics: request.topics.into_iter().map(topic).collect(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;
    use polylogue_kafka_codec::metadata::MetadataRequestTopic;

    fn wire(partitions: u32) -> Wire {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let spec = NullSpec { listen, partitions, message_bytes: 100, stall_ms: None, keeps: None };
        Wire::connect(&NullBroker::start(spec).expect("it starts").address().to_string()).expect("it answers")
    }

    /// Regression test: all topics had the same id, and Java's client did not find the second one in a minute.
    #[test]
    fn topics_have_ids_of_their_own() {
        let name = |name: &str| MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![name("a"), name("b"), name("a")]), ..Default::default() };
        let answer = wire(1).call(&request).expect("an answer");
        let ids: Vec<TopicId> = answer.topics.iter().map(|topic| topic.topic_id).collect();
        assert!(ids.len() == 3 && ids[0] != ids[1] && ids[0] == ids[2], "{ids:?}");
    }

    /// Regression test: large topics are extended by `CreatePartitions`, which was refused.
    #[test]
    fn topics_of_ten_thousand_partitions_can_be_made() {
        let mut wire = wire(10_000);
        wire.create_topic("many", 10_000, &[]).expect("it is made");
        assert_eq!(wire.partitions("many").ok(), Some(10_000));
    }
}
