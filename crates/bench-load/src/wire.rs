//! A simple Kafka client with one request at a time, for setup before a load starts: topics, producer ids, offsets.

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

/// Client id of the bench.
pub const CLIENT: &str = "polylogue-bench";
/// Limit on the size of a response. Bytes. Kafka's consumers fetch at most 50 MiB at a time.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Timeout for a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for the creation of a topic. Milliseconds.
const CREATE_MS_MAX: i32 = 60_000;
/// Limit on retries while a broker returns retriable errors, and the delay between them.
const TRIES: u32 = 600;
const WAIT: Duration = Duration::from_millis(100);
/// Limit on partitions per request. Kafka's controller writes at most 10,000 records per request; further partitions are added.
const PARTITIONS_AT_ONCE: u32 = 5_000;
/// Special timestamps of ListOffsets.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// The newest version of Produce and Fetch that identifies topics by name.
const BY_NAME_MAX: i16 = 12;
/// The newest version of DeleteTopics that identifies topics by name.
const DELETE_BY_NAME_MAX: i16 = 5;

/// Returns the name of an error code of the protocol.
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

/// Connects to `HOST:PORT` with a read timeout. Returns the resolved address, too.
///
/// # Errors
/// The name cannot be resolved, or the connection fails.
pub fn open(server: &str) -> Result<(SocketAddr, TcpStream)> {
    let mut found = server.to_socket_addrs().context(|| format!("cannot resolve {server}; expected HOST:PORT"))?;
    let server = found.next().ok_or_else(|| BenchError::new(format!("{server} has no address")))?;
    let stream =
        TcpStream::connect_timeout(&server, ANSWER_TIMEOUT).context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true).context(|| format!("cannot set TCP_NODELAY for {server}"))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).context(|| format!("cannot set a read timeout for {server}"))?;
    Ok((server, stream))
}

impl Wire {
    /// Connects and requests the supported versions.
    ///
    /// # Errors
    /// The connection fails, or the server does not speak the Kafka protocol.
    pub fn connect(server: &str) -> Result<Wire> {
        let (server, stream) = open(server)?;
        let mut wire = Wire { server, stream, correlation: 0, versions: BTreeMap::new() };
        let ask = ApiVersionsRequest { client_software_name: CLIENT.into(), client_software_version: "1".into() };
        let answer = wire.call_at(3, &ask)?;
        wire.check("ApiVersions", answer.error_code)?;
        wire.versions = answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(wire)
    }

    /// Returns the socket, for use by a driver.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn check(&self, what: &str, code: i16) -> Result<()> {
        match code {
            0 => Ok(()),
            _ => Err(BenchError::new(format!("{}: {what} failed: {}", self.server, error_name(code)))),
        }
    }

    /// Returns the newest version up to `max` that both sides support.
    ///
    /// # Errors
    /// There is no common version.
    pub fn version<R: Request>(&self, max: i16) -> Result<i16> {
        let (ours, theirs) = (R::VERSIONS, self.versions.get(&R::API_KEY.code()));
        let version = theirs.map(|(_, newest)| (*newest).min(*ours.end()).min(max));
        version.filter(|v| ours.contains(v) && theirs.is_some_and(|(oldest, _)| oldest <= v)).ok_or_else(|| {
            BenchError::new(format!(
                "{} has no version of {} up to {max} in common with this client",
                self.server,
                R::NAME
            ))
        })
    }

    /// Returns the newest common version of Produce or Fetch that identifies topics by name.
    ///
    /// # Errors
    /// There is no common version.
    pub fn version_by_name<R: Request>(&self) -> Result<i16> {
        self.version::<R>(BY_NAME_MAX)
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// There is no common version, no response in time, or the response is invalid.
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
        self.stream.read_exact(&mut prefix).context(|| format!("no response of {server} to {}", R::NAME))?;
        let len =
            frame_len(&prefix, ANSWER_BYTES_MAX).context(|| format!("invalid response of {server} to {}", R::NAME))?;
        let mut answer = vec![0; len.unwrap_or(0)];
        self.stream.read_exact(&mut answer).context(|| format!("incomplete response of {server} to {}", R::NAME))?;
        let said = || format!("invalid response of {server} to {}", R::NAME);
        let (correlation, mut body) = decode_response_header(Bytes::from(answer), R::API_KEY, version).context(said)?;
        if correlation != self.correlation {
            return Err(BenchError::new(format!(
                "{server} sent a response with correlation id {correlation} instead of {}",
                self.correlation
            )));
        }
        R::Response::decode(&mut body, version).context(said)
    }

    /// Creates a topic with one replica of each partition, and waits until all of them have a leader.
    ///
    /// # Errors
    /// The broker rejects the request, or the partitions have no leaders in time.
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
            self.check(&format!("CreateTopics of {topic} with {partitions} partitions"), created.error_code)?;
        }
        let mut there = partitions.min(PARTITIONS_AT_ONCE);
        while there < partitions {
            there = partitions.min(there + PARTITIONS_AT_ONCE);
            self.add_partitions(topic, there)?;
        }
        for _ in 0..TRIES {
            if self.partitions(topic)? == partitions {
                // Kafka reports a leader before it accepts requests.
                return self.offsets(topic, &(0..partitions).collect::<Vec<u32>>(), true).map(drop);
            }
            std::thread::sleep(WAIT);
        }
        Err(BenchError::new(format!(
            "{}: topic {topic} does not have {partitions} partitions with leaders in time",
            self.server
        )))
    }

    fn add_partitions(&mut self, topic: &str, partitions: u32) -> Result<()> {
        let more = CreatePartitionsTopic { name: topic.into(), count: partition_count(partitions), assignments: None };
        let request = CreatePartitionsRequest { topics: vec![more], timeout_ms: CREATE_MS_MAX, validate_only: false };
        let answer = self.call(&request)?;
        let codes = answer.results.iter().map(|result| result.error_code);
        codes
            .into_iter()
            .try_for_each(|code| self.check(&format!("CreatePartitions of {topic} up to {partitions}"), code))
    }

    /// Creates several topics; with more than one, their names are numbered.
    ///
    /// # Errors
    /// As [`Wire::create_topic`].
    pub fn create_topics(&mut self, topic: &str, topics: u32, partitions: u32) -> Result<()> {
        (0..topics).try_for_each(|number| self.create_topic(&topic_name(topic, topics, number), partitions, &[]))
    }

    /// Deletes the topics of [`Wire::create_topics`]. Missing topics are ignored.
    ///
    /// # Errors
    /// No valid response.
    pub fn delete_topics(&mut self, topic: &str, topics: u32) -> Result<()> {
        let topic_names = (0..topics).map(|number| topic_name(topic, topics, number).as_str().into()).collect();
        let request = DeleteTopicsRequest { topics: Vec::new(), topic_names, timeout_ms: CREATE_MS_MAX };
        let version = self.version::<DeleteTopicsRequest>(DELETE_BY_NAME_MAX)?;
        self.call_at(version, &request).map(drop)
    }

    /// Retries while the broker returns a retriable error, such as a coordinator that is loading.
    fn call_with_retries<R: Request>(
        &mut self,
        request: &R,
        code: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response> {
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

    /// Returns how many partitions of the topic have a leader; 0 for a missing topic.
    ///
    /// # Errors
    /// No valid response.
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

    /// Requests a producer id and epoch for an idempotent producer.
    ///
    /// # Errors
    /// The broker rejects the request.
    pub fn producer_id(&mut self) -> Result<(i64, i16)> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: CREATE_MS_MAX,
            ..Default::default()
        };
        let answer = self.call_with_retries(&request, |answer| answer.error_code)?;
        self.check("InitProducerId", answer.error_code)?;
        Ok((answer.producer_id, answer.producer_epoch))
    }

    /// Returns the first offset of each of `partitions`, or with `end` the next one, in their order.
    ///
    /// # Errors
    /// The broker returns an error for a partition, or omits it.
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
        let answer = self.call_with_retries(&request, |answer| {
            let mut codes =
                answer.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);
            codes.find(|code| *code != 0).unwrap_or(0)
        })?;
        let mut found = BTreeMap::new();
        for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            self.check(&format!("ListOffsets of {topic}-{}", partition.partition_index), partition.error_code)?;
            found.insert(partition.partition_index, partition.offset);
        }
        let offset = |partition: &u32| found.get(&number(partition)).copied();
        let missing =
            || BenchError::new(format!("{} omitted partitions of {topic} in its ListOffsets response", self.server));
        partitions.iter().map(offset).collect::<Option<Vec<i64>>>().ok_or_else(missing)
    }
}

/// Encodes a request with its length prefix.
///
/// # Errors
/// It cannot be encoded at this version.
pub fn frame<R: Request>(version: i16, correlation: i32, request: &R) -> Result<Vec<u8>> {
    let said = || format!("cannot encode {} version {version}", R::NAME);
    let chunks = encode_request(version, correlation, Some(StrBytes::from_static(CLIENT)), request).context(said)?;
    let mut frame = Vec::new();
    for chunk in &chunks {
        frame.extend_from_slice(&chunk.to_bytes().context(said)?);
    }
    Ok(frame)
}
