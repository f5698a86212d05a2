//! A minimal Kafka client for `produce` and `consume`: one connection, one request at a time.

use super::{CERTIFICATE, ClientError, Login, UNREACHABLE};
use bytes::Bytes;
use polylogue_kafka_codec::api_versions::ApiVersionsRequest;
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchTopic};
use polylogue_kafka_codec::frame::{decode_response_header, encode_request, frame_len};
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;
use polylogue_kafka_codec::{DecodeError, EncodeError, ErrorCode, Message, Request};
use polylogue_net::Trust;
use polylogue_net::trust::{Stream, certificate_advice};
use polylogue_types::{Chunk, TopicId};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Timeout for connecting, as in Kafka's clients.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Timeout for a response; longer than any requested wait.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Timeout that a produce request gives the broker. Milliseconds.
const PRODUCE_MS_MAX: i32 = 30_000;
/// The maximum size of a response. Bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Number of metadata requests for a topic being created, and the wait between them.
const CREATION_TRIES: u32 = 50;
const CREATION_WAIT: Duration = Duration::from_millis(100);
/// The first versions that identify topics by id.
const PRODUCE_BY_ID: i16 = 13;
const FETCH_BY_ID: i16 = 13;
/// Hint added when the server closes a connection without a login.
const HOW_TO_LOG_IN: &str =
    "; a listener that requires a login closes connections without one: pass --user NAME and set POLYLOGUE_PASSWORD";
/// Hint added when the server closes a connection during the TLS handshake.
const NO_TLS: &str = "; does this listener use TLS? without --tls and --ca the connection is plain";
/// The first bytes of a TLS alert, which a TLS listener sends to a client that does not speak TLS.
const TLS_ALERT: u8 = 21;
const TLS_MAJOR: u8 = 3;
/// The client id.
const CLIENT: &str = "polylogue-cli";

/// A topic's metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// The topic id.
    pub id: TopicId,
    /// Number of partitions, which are numbered from 0.
    pub partitions: i32,
}

/// An idempotent producer's identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// The producer id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// The fetched records of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// The partition.
    pub partition: i32,
    /// The error code.
    pub error: i16,
    /// Record batches.
    pub records: Bytes,
}

/// A connection to a broker.
#[derive(Debug)]
pub struct KafkaClient {
    server: String,
    stream: Stream,
    correlation: i32,
    versions: BTreeMap<i16, (i16, i16)>,
    /// Whether the client has no user.
    is_anonymous: bool,
    /// The server has answered something that requires a login where one is required.
    served: bool,
}

/// Returns an error code's text and name. `None` for no error.
#[must_use]
pub fn error_text(code: i16) -> Option<String> {
    match ErrorCode::from_code(code) {
        Some(ErrorCode::None) => None,
        Some(error) => Some(format!("{} ({})", error.message(), error.name())),
        None => Some(format!("Kafka error {code}")),
    }
}

fn check(what: &str, code: i16) -> Result<(), ClientError> {
    match error_text(code) {
        None => Ok(()),
        Some(text) => Err(ClientError::new("refused", format!("{what}: {text}"))),
    }
}

impl KafkaClient {
    /// Connects to `HOST:PORT`, over TLS if `tls` is set, requests the supported versions, and logs in if there is a user.
    ///
    /// # Errors
    /// No response, one that is not Kafka's, or a refused login.
    pub fn connect(server: &str, login: Option<&Login>, tls: Option<&Trust>) -> Result<KafkaClient, ClientError> {
        let unreachable = |e: std::io::Error| ClientError::unreachable(server, &e);
        let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for address in server.to_socket_addrs().map_err(unreachable)? {
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(unreachable)?;
                    stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(unreachable)?;
                    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
                    let stream = match tls {
                        None => Stream::Plain(stream),
                        Some(trust) => trust.over(stream, host).map_err(|e| ClientError::unreachable(server, &e))?,
                    };
                    let server = server.to_owned();
                    let (versions, is_anonymous) = (BTreeMap::new(), login.is_none());
                    let mut client =
                        KafkaClient { server, stream, correlation: 0, versions, is_anonymous, served: false };
                    client.learn()?;
                    if let Some(login) = login {
                        client.log_in(login)?;
                    }
                    return Ok(client);
                }
                Err(e) => last = e,
            }
        }
        Err(unreachable(last))
    }

    fn learn(&mut self) -> Result<(), ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: CLIENT.into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let response = self.call_at(3, &request)?;
        check("requesting API versions", response.error_code)?;
        self.versions = response.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(())
    }

    /// Logs in by SASL PLAIN.
    fn log_in(&mut self, login: &Login) -> Result<(), ClientError> {
        let handshake = self.call_at(1, &SaslHandshakeRequest { mechanism: "PLAIN".into() })?;
        // The listener requires no login.
        if handshake.error_code == ErrorCode::IllegalSaslState.code() {
            return Ok(());
        }
        check("logging in", handshake.error_code)?;
        let auth_bytes = format!("\0{}\0{}", login.user, login.password).into();
        let answer = self.call_at(2, &SaslAuthenticateRequest { auth_bytes })?;
        if answer.error_code == ErrorCode::SaslAuthenticationFailed.code()
            && let Some(error) = login.without_password()
        {
            return Err(error);
        }
        match answer.error_message.filter(|_| answer.error_code != 0) {
            Some(text) => Err(ClientError::new("refused", format!("logging in as {}: {text}", login.user))),
            None => check("logging in", answer.error_code),
        }
    }

    /// Returns the cluster's id, if the broker has one.
    ///
    /// # Errors
    /// See [`KafkaClient::topic`].
    pub(crate) fn cluster_id(&mut self) -> Result<Option<String>, ClientError> {
        let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
        Ok(self.call(&request)?.cluster_id.map(|id| id.to_string()))
    }

    /// Returns a topic's metadata. With `create`, the broker may create an unknown topic.
    ///
    /// # Errors
    /// For this and the following functions: no response, or an error of the broker.
    pub fn topic(&mut self, name: &str, create: bool) -> Result<Topic, ClientError> {
        let wanted = MetadataRequestTopic { name: Some(name.into()), ..MetadataRequestTopic::default() };
        let request = MetadataRequest {
            topics: Some(vec![wanted]),
            allow_auto_topic_creation: create,
            ..MetadataRequest::default()
        };
        for tries_left in (0..CREATION_TRIES).rev() {
            let response = self.call(&request)?;
            let topic = response.topics.first().ok_or_else(|| self.stranger("the response has no topic"))?;
            let retriable = ErrorCode::from_code(topic.error_code).is_some_and(ErrorCode::retriable);
            if create && retriable && tries_left > 0 {
                // Being created. No thread unparks this one, so that this is a plain wait.
                std::thread::park_timeout(CREATION_WAIT);
                continue;
            }
            if topic.error_code == ErrorCode::UnknownTopicOrPartition.code() {
                let text = format!("there is no topic {name} ({})", ErrorCode::UnknownTopicOrPartition.name());
                return Err(ClientError::new("unknown_topic", text));
            }
            check(&format!("topic {name}"), topic.error_code)?;
            let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            return Ok(Topic { name: name.to_owned(), id: topic.topic_id, partitions });
        }
        Err(self.stranger("the response has no topic"))
    }

    /// Requests a producer id.
    ///
    /// # Errors
    /// See [`KafkaClient::topic`].
    pub fn producer(&mut self) -> Result<Producer, ClientError> {
        let response =
            self.call(&InitProducerIdRequest { producer_id: -1, producer_epoch: -1, ..Default::default() })?;
        check("requesting a producer id", response.error_code)?;
        Ok(Producer { id: response.producer_id, epoch: response.producer_epoch })
    }

    /// Writes one batch and returns its base offset; -1 with `acks` 0.
    ///
    /// # Errors
    /// See [`KafkaClient::topic`].
    pub fn produce(&mut self, topic: &Topic, partition: i32, acks: i16, batch: Bytes) -> Result<i64, ClientError> {
        let version = self.version::<ProduceRequest>()?;
        let by_id = version >= PRODUCE_BY_ID;
        let data = PartitionProduceData { index: partition, records: Some(batch.into()) };
        let data = TopicProduceData {
            name: if by_id { Default::default() } else { topic.name.as_str().into() },
            topic_id: if by_id { topic.id } else { TopicId::ZERO },
            partition_data: vec![data],
        };
        let request =
            ProduceRequest { transactional_id: None, acks, timeout_ms: PRODUCE_MS_MAX, topic_data: vec![data] };
        if acks == 0 {
            self.send(version, &request)?;
            return Ok(-1);
        }
        let response = self.call_at(version, &request)?;
        let result = response.responses.first().and_then(|topic| topic.partition_responses.first());
        let result = result.ok_or_else(|| self.stranger("the response has no partition"))?;
        if let Some(text) = result.error_message.as_deref().filter(|_| result.error_code != 0) {
            let name = ErrorCode::from_code(result.error_code).map_or("error", ErrorCode::name);
            let text = format!("topic {}, partition {partition}: {text} ({name})", topic.name);
            return Err(ClientError::new("refused", text));
        }
        check(&format!("topic {}, partition {partition}", topic.name), result.error_code)?;
        Ok(result.base_offset)
    }

    /// Returns the first offset with this timestamp (milliseconds) or a later one, or one of Kafka's special timestamps: -1 the end, -2 the
    /// start. `None` if there is none.
    ///
    /// # Errors
    /// See [`KafkaClient::topic`].
    pub fn offset_at(&mut self, topic: &Topic, partition: i32, time: i64) -> Result<Option<i64>, ClientError> {
        let wanted = ListOffsetsPartition { partition_index: partition, timestamp: time, ..Default::default() };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic { name: topic.name.as_str().into(), partitions: vec![wanted] }],
            ..ListOffsetsRequest::default()
        };
        let response = self.call(&request)?;
        let found = response.topics.first().and_then(|topic| topic.partitions.first());
        let found = found.ok_or_else(|| self.stranger("the response has no partition"))?;
        check(&format!("topic {}, partition {partition}", topic.name), found.error_code)?;
        Ok(Some(found.offset).filter(|offset| *offset >= 0))
    }

    /// Fetches from several partitions of a topic, waiting up to `wait_ms` for messages.
    ///
    /// # Errors
    /// See [`KafkaClient::topic`].
    pub fn fetch(&mut self, topic: &Topic, from: &[(i32, i64)], wait_ms: i32) -> Result<Vec<Fetched>, ClientError> {
        const BYTES_MAX: i32 = 8 << 20;
        const PARTITION_BYTES_MAX: i32 = 1 << 20;
        let version = self.version::<FetchRequest>()?;
        let by_id = version >= FETCH_BY_ID;
        let partitions = from.iter().map(|(partition, offset)| FetchPartition {
            partition: *partition,
            fetch_offset: *offset,
            partition_max_bytes: PARTITION_BYTES_MAX,
            ..FetchPartition::default()
        });
        let wanted = FetchTopic {
            topic: if by_id { Default::default() } else { topic.name.as_str().into() },
            topic_id: if by_id { topic.id } else { TopicId::ZERO },
            partitions: partitions.collect(),
        };
        let request = FetchRequest {
            max_wait_ms: wait_ms,
            min_bytes: 1,
            max_bytes: BYTES_MAX,
            session_epoch: -1,
            topics: vec![wanted],
            ..FetchRequest::default()
        };
        let response = self.call_at(version, &request)?;
        check(&format!("reading topic {}", topic.name), response.error_code)?;
        let data = response.responses.into_iter().flat_map(|topic| topic.partitions);
        let fetched = data.map(|p| Fetched {
            partition: p.partition_index,
            error: p.error_code,
            records: p.records.and_then(polylogue_kafka_codec::Records::into_bytes).unwrap_or_default(),
        });
        Ok(fetched.collect())
    }

    /// Returns the newest version that both sides support.
    fn version<R: Request>(&self) -> Result<i16, ClientError> {
        let (min, max) = self.versions.get(&R::API_KEY.code()).copied().unwrap_or((0, -1));
        let version = max.min(*R::VERSIONS.end());
        if version < min.max(*R::VERSIONS.start()) {
            return Err(
                self.stranger(&format!("it does not support {} in a version that this client supports", R::NAME))
            );
        }
        Ok(version)
    }

    fn call<R: Request>(&mut self, request: &R) -> Result<R::Response, ClientError> {
        let version = self.version::<R>()?;
        self.call_at(version, request)
    }

    fn call_at<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, ClientError> {
        self.send(version, request)?;
        let frame = self.receive()?;
        let unreadable = |e: DecodeError| self.stranger(&e.to_string());
        let (correlation, mut body) = decode_response_header(frame, R::API_KEY, version).map_err(unreadable)?;
        if correlation != self.correlation {
            return Err(self.stranger("the response has an unexpected correlation id"));
        }
        let response = R::Response::decode(&mut body, version).map_err(unreadable)?;
        self.served |= R::API_KEY != ApiVersionsRequest::API_KEY;
        Ok(response)
    }

    fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<(), ClientError> {
        self.correlation = self.correlation.wrapping_add(1);
        let unwritable = |e: EncodeError| ClientError::new("invalid_request", e.to_string());
        let chunks = encode_request(version, self.correlation, Some(CLIENT.into()), request).map_err(unwritable)?;
        for chunk in chunks {
            if let Chunk::Bytes(bytes) = chunk {
                self.stream.write_all(&bytes).map_err(|e| self.lost(&e))?;
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Bytes, ClientError> {
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix).map_err(|e| self.lost(&e))?;
        if matches!(prefix, [TLS_ALERT, TLS_MAJOR, ..]) {
            let text =
                format!("{} speaks TLS: pass --tls, or --ca FILE with the CA that signed its certificate", self.server);
            return Err(ClientError::new("refused", text));
        }
        let len = frame_len(&prefix, ANSWER_BYTES_MAX).map_err(|e| self.stranger(&e.to_string()))?;
        let mut frame = vec![0; len.unwrap_or_default()];
        self.stream.read_exact(&mut frame).map_err(|e| self.lost(&e))?;
        Ok(Bytes::from(frame))
    }

    fn lost(&self, e: &std::io::Error) -> ClientError {
        if let Some(advice) = certificate_advice(e) {
            return ClientError::new(CERTIFICATE, format!("cannot trust {}: {e}; {advice}", self.server));
        }
        let ended =
            [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::BrokenPipe];
        let has_ended = ended.contains(&e.kind());
        let hint = match &self.stream {
            _ if self.served || !has_ended => "",
            // A plain listener takes the handshake for a request that is too large.
            Stream::Secured(_) if self.versions.is_empty() => NO_TLS,
            _ if self.is_anonymous => HOW_TO_LOG_IN,
            _ => "",
        };
        let why = if has_ended { "closed the connection".to_owned() } else { format!("does not respond: {e}") };
        ClientError::new(UNREACHABLE, format!("{} {why}{hint}", self.server))
    }

    fn stranger(&self, what: &str) -> ClientError {
        let text =
            format!("the response of {} is not a Kafka broker's ({what}); is it the kafka listener?", self.server);
        ClientError::new("internal", text)
    }
}
