//! A plain Kafka client, one request at a time: what a run needs before its load starts.

use crate::contract::topic_name;
use crate::error::{BenchError, Context, Result};
use bytes::Bytes;
use polylogue_kafka_codec::api_versions::ApiVersionsRequest;
use polylogue_kafka_codec::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use polylogue_kafka_codec::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use polylogue_kafka_codec::delete_topics::DeleteTopicsRequest;
use polylogue_kafka_codec::frame::{decode_response_header, encode_request, frame_len};
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::{ErrorCode, Message, Request, StrBytes};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How the benchmark calls itself.
pub const CLIENT: &str = "polylogue-bench";
/// The largest answer that is taken. Bytes: Kafka's consumers ask for at most 50 MiB at a time.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;
/// How long an answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// How long a broker may take to create a topic. Milliseconds.
const CREATE_MS_MAX: i32 = 60_000;
/// How often is asked again while a broker says that it is not so far yet, and how long is waited in between.
const TRIES: u32 = 600;
const WAIT: Duration = Duration::from_millis(100);
/// Kafka makes no topic of more partitions in one request (its controller writes at most 10,000 records for one), but adds them.
const PARTITIONS_AT_ONCE: u32 = 5_000;
/// ListOffsets' names for the two ends of a partition.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// The newest version with topics by their names, of Produce and Fetch alike.
const BY_NAME_MAX: i16 = 12;
/// Likewise of DeleteTopics.
const DELETE_BY_NAME_MAX: i16 = 5;

/// The name of an error code of the protocol.
#[must_use]
pub fn error_name(code: i16) -> String {
    ErrorCode::from_code(code).map_or_else(|| format!("error {code}"), |error| error.name().to_owned())
}

fn partition_count(partitions: u32) -> i32 {
    i32::try_from(partitions).unwrap_or(i32::MAX)
}

/// A connection to a broker.
#[derive(Debug)]
pub struct Wire {
    server: SocketAddr,
    stream: TcpStream,
    correlation: i32,
    versions: BTreeMap<i16, (i16, i16)>,
}

/// Connects to `HOST:PORT`, for questions that are answered in time; gives where it is, too.
///
/// # Errors
/// When there is no such address, or no listener.
pub fn open(server: &str) -> Result<(SocketAddr, TcpStream)> {
    let mut found = server.to_socket_addrs().context(|| format!("{server} is no HOST:PORT that can be found"))?;
    let server = found.next().ok_or_else(|| BenchError::new(format!("{server} has no address")))?;
    let stream =
        TcpStream::connect_timeout(&server, ANSWER_PATIENCE).context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true).context(|| format!("cannot set TCP_NODELAY towards {server}"))?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).context(|| format!("cannot bound reads from {server}"))?;
    Ok((server, stream))
}

impl Wire {
    /// Connects and asks for versions.
    ///
    /// # Errors
    /// Without an answer in Kafka's protocol from there.
    pub fn connect(server: &str) -> Result<Wire> {
        let (server, stream) = open(server)?;
        let mut wire = Wire { server, stream, correlation: 0, versions: BTreeMap::new() };
        let ask = ApiVersionsRequest { client_software_name: CLIENT.into(), client_software_version: "1".into() };
        let answer = wire.call_at(3, &ask)?;
        wire.refused("ApiVersions", answer.error_code)?;
        wire.versions = answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(wire)
    }

    /// The socket, for a driver of its own.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn refused(&self, what: &str, code: i16) -> Result<()> {
        match code {
            0 => Ok(()),
            _ => Err(BenchError::new(format!("{} answers {what} with {}", self.server, error_name(code)))),
        }
    }

    /// The newest version that both sides speak and that is at most `max`.
    ///
    /// # Errors
    /// When there is none.
    pub fn version<R: Request>(&self, max: i16) -> Result<i16> {
        let (ours, theirs) = (R::VERSIONS, self.versions.get(&R::API_KEY.code()));
        let version = theirs.map(|(_, newest)| (*newest).min(*ours.end()).min(max));
        version.filter(|v| ours.contains(v) && theirs.is_some_and(|(oldest, _)| oldest <= v)).ok_or_else(|| {
            BenchError::new(format!("{} speaks no version of {} up to {max} that is spoken here", self.server, R::NAME))
        })
    }

    /// The version of Produce or Fetch to use: the newest with topics by their names.
    ///
    /// # Errors
    /// When there is none.
    pub fn version_by_name<R: Request>(&self) -> Result<i16> {
        self.version::<R>(BY_NAME_MAX)
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// When there is no common version, no answer, or one that is no such message.
    pub fn call<R: Request>(&mut self, request: &R) -> Result<R::Response> {
        let version = self.version::<R>(i16::MAX)?;
        self.call_at(version, request)
    }

    fn call_at<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.correlation = self.correlation.wrapping_add(1);
        let frame = frame(version, self.correlation, request)?;
        let server = self.server;
        self.stream.write_all(&frame).context(|| format!("cannot send to {server}"))?;
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix).context(|| format!("{server} does not answer {}", R::NAME))?;
        let len = frame_len(&prefix, ANSWER_BYTES_MAX).context(|| format!("{server} answers {}", R::NAME))?;
        let mut answer = vec![0; len.unwrap_or(0)];
        self.stream.read_exact(&mut answer).context(|| format!("{server} breaks off its answer to {}", R::NAME))?;
        let said = || format!("{server} answers {} with something else", R::NAME);
        let (correlation, mut body) = decode_response_header(Bytes::from(answer), R::API_KEY, version).context(said)?;
        if correlation != self.correlation {
            return Err(BenchError::new(format!(
                "{server} answers request {correlation} when {} was asked",
                self.correlation
            )));
        }
        R::Response::decode(&mut body, version).context(said)
    }

    /// Creates a topic with one replica of each partition, and waits until all of them have a leader.
    ///
    /// # Errors
    /// When the broker refuses, or takes too long.
    pub fn create_topic(&mut self, topic: &str, partitions: u32, configs: &[(&str, &str)]) -> Result<()> {
        let config =
            |(name, value): &(&str, &str)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) };
        let wanted = CreatableTopic {
            name: topic.into(),
            num_partitions: partition_count(partitions.min(PARTITIONS_AT_ONCE)),
            replication_factor: 1,
            assignments: Vec::new(),
            configs: configs.iter().map(config).collect(),
        };
        let request = CreateTopicsRequest { topics: vec![wanted], timeout_ms: CREATE_MS_MAX, validate_only: false };
        let answer = self.call(&request)?;
        for created in &answer.topics {
            self.refused(&format!("CreateTopics of {topic} with {partitions} partitions"), created.error_code)?;
        }
        let mut there = partitions.min(PARTITIONS_AT_ONCE);
        while there < partitions {
            there = partitions.min(there + PARTITIONS_AT_ONCE);
            self.add_partitions(topic, there)?;
        }
        for _ in 0..TRIES {
            if self.partitions(topic)? == partitions {
                // Kafka tells a leader before that one takes requests.
                return self.offsets(topic, &(0..partitions).collect::<Vec<u32>>(), true).map(drop);
            }
            std::thread::sleep(WAIT);
        }
        Err(BenchError::new(format!("{}: topic {topic} does not get its {partitions} partitions", self.server)))
    }

    fn add_partitions(&mut self, topic: &str, partitions: u32) -> Result<()> {
        let more = CreatePartitionsTopic { name: topic.into(), count: partition_count(partitions), assignments: None };
        let request = CreatePartitionsRequest { topics: vec![more], timeout_ms: CREATE_MS_MAX, validate_only: false };
        let answer = self.call(&request)?;
        let codes = answer.results.iter().map(|result| result.error_code);
        codes
            .into_iter()
            .try_for_each(|code| self.refused(&format!("CreatePartitions of {topic} up to {partitions}"), code))
    }

    /// The same for so many topics: with more than one their names are numbered.
    ///
    /// # Errors
    /// As [`Wire::create_topic`].
    pub fn create_topics(&mut self, topic: &str, topics: u32, partitions: u32) -> Result<()> {
        (0..topics).try_for_each(|number| self.create_topic(&topic_name(topic, topics, number), partitions, &[]))
    }

    /// Deletes what [`Wire::create_topics`] makes; what is not there is no error.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn delete_topics(&mut self, topic: &str, topics: u32) -> Result<()> {
        let topic_names = (0..topics).map(|number| topic_name(topic, topics, number).as_str().into()).collect();
        let request = DeleteTopicsRequest { topics: Vec::new(), topic_names, timeout_ms: CREATE_MS_MAX };
        let version = self.version::<DeleteTopicsRequest>(DELETE_BY_NAME_MAX)?;
        self.call_at(version, &request).map(drop)
    }

    /// Asks as often as the broker answers with an error that passes, such as a coordinator that is still loading.
    fn patiently<R: Request>(&mut self, request: &R, code: impl Fn(&R::Response) -> i16) -> Result<R::Response> {
        let mut answer = self.call(request)?;
        for _ in 0..TRIES {
            if !ErrorCode::from_code(code(&answer)).is_some_and(ErrorCode::retriable) {
                break;
            }
            std::thread::sleep(WAIT);
            answer = self.call(request)?;
        }
        Ok(answer)
    }

    /// How many partitions of the topic have a leader; 0 for a topic that is not there.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn partitions(&mut self, topic: &str) -> Result<u32> {
        let wanted = MetadataRequestTopic { name: Some(topic.into()), ..MetadataRequestTopic::default() };
        let request = MetadataRequest {
            topics: Some(vec![wanted]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let answer = self.call(&request)?;
        let led =
            answer.topics.first().map_or(0, |topic| topic.partitions.iter().filter(|p| p.error_code == 0).count());
        Ok(u32::try_from(led).unwrap_or(u32::MAX))
    }

    /// A producer id and its epoch for an idempotent producer.
    ///
    /// # Errors
    /// When the broker gives none.
    pub fn producer_id(&mut self) -> Result<(i64, i16)> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: CREATE_MS_MAX,
            ..Default::default()
        };
        let answer = self.patiently(&request, |answer| answer.error_code)?;
        self.refused("InitProducerId", answer.error_code)?;
        Ok((answer.producer_id, answer.producer_epoch))
    }

    /// The first or the next offset of each of `partitions`, in their order.
    ///
    /// # Errors
    /// When the broker refuses one or leaves one out.
    pub fn offsets(&mut self, topic: &str, partitions: &[u32], end: bool) -> Result<Vec<i64>> {
        let number = |partition: &u32| i32::try_from(*partition).unwrap_or(i32::MAX);
        let timestamp = if end { LATEST } else { EARLIEST };
        let ask = |partition| ListOffsetsPartition {
            partition_index: number(partition),
            current_leader_epoch: -1,
            timestamp,
        };
        let wanted = ListOffsetsTopic { name: topic.into(), partitions: partitions.iter().map(ask).collect() };
        let request =
            ListOffsetsRequest { replica_id: -1, isolation_level: 0, topics: vec![wanted], timeout_ms: CREATE_MS_MAX };
        let answer = self.patiently(&request, |answer| {
            let mut codes =
                answer.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);
            codes.find(|code| *code != 0).unwrap_or(0)
        })?;
        let mut found = BTreeMap::new();
        for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            self.refused(&format!("ListOffsets of {topic}-{}", partition.partition_index), partition.error_code)?;
            found.insert(partition.partition_index, partition.offset);
        }
        let offset = |partition: &u32| found.get(&number(partition)).copied();
        let missing = || {
            BenchError::new(format!("{} leaves out partitions of {topic} in its answer to ListOffsets", self.server))
        };
        partitions.iter().map(offset).collect::<Option<Vec<i64>>>().ok_or_else(missing)
    }
}

/// A whole request, its length in front.
///
/// # Errors
/// When it cannot be written at this version.
pub fn frame<R: Request>(version: i16, correlation: i32, request: &R) -> Result<Vec<u8>> {
    let said = || format!("cannot write {} version {version}", R::NAME);
    let chunks = encode_request(version, correlation, Some(StrBytes::from_static(CLIENT)), request).context(said)?;
    let mut frame = Vec::new();
    for chunk in &chunks {
        frame.extend_from_slice(&chunk.to_bytes().context(said)?);
    }
    Ok(frame)
}
