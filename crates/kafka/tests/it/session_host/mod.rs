//! A session with a test client on one side and a scripted broker on the other.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

pub mod asked;
pub mod broker;
pub mod requests;
pub mod users;

use bytes::{Bytes, BytesMut};
use polylogue_api::{
    Catalog, ClusterInfo, Event, Now, PartitionInfo, Reply, Request as Ask, Settings, SettingsScope, Token,
    TopicConfig, TopicInfo,
};
use polylogue_kafka::session::{
    Authority, CloseReason, FetchBudget, Listener, NoUsers, Session, SessionContext, SessionInit,
};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::{Message, Request, StrBytes};
use polylogue_record::kafka::{BatchBuilder, NewRecord};
use polylogue_types::{Chunk, NodeId, PartitionId, TopicId};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The node, the leader epoch of every partition, and the wall time at the start.
pub const NODE: i32 = 7;
pub const EPOCH: i32 = 3;
pub const START_MS: i64 = 1_700_000_000_000;

#[derive(Debug, Default)]
pub struct Topics(BTreeMap<String, Arc<TopicInfo>>, pub BTreeMap<SettingsScope, Settings>, u64);

impl Catalog for Topics {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.0.get(name).cloned()
    }

    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        self.0.values().find(|topic| topic.id == id).cloned()
    }

    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        self.0.values().cloned().collect()
    }

    fn is_reserved(&self, name: &str) -> bool {
        name.starts_with("kept-")
    }

    fn cluster(&self) -> ClusterInfo {
        ClusterInfo { cluster_id: Arc::from("polylogue-test"), node: NodeId(NODE as u64) }
    }

    fn settings(&self, scope: &SettingsScope) -> Arc<Settings> {
        Arc::new(self.1.get(scope).cloned().unwrap_or_default())
    }

    fn settings_scopes(&self) -> Vec<SettingsScope> {
        self.1.keys().cloned().collect()
    }

    fn version(&self) -> u64 {
        self.2
    }
}

impl Topics {
    /// Adds a topic whose ids are derived from `number`.
    pub fn add(&mut self, number: u8, name: &str, partitions: u32, config: TopicConfig) -> Arc<TopicInfo> {
        let partitions =
            (0..partitions).map(|p| PartitionInfo { id: partition_id(number, p), leader_epoch: EPOCH }).collect();
        let topic = Arc::new(TopicInfo {
            name: Arc::from(name),
            id: topic_id(number),
            internal: name.starts_with("__"),
            partitions,
            config: Arc::new(config),
        });
        self.0.insert(name.to_owned(), Arc::clone(&topic));
        self.2 += 1;
        topic
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
        self.2 += 1;
    }
}

pub fn topic_id(number: u8) -> TopicId {
    TopicId::from_random([number; 16])
}

pub fn partition_id(number: u8, partition: u32) -> PartitionId {
    PartitionId(u64::from(number) * 1_000 + u64::from(partition) + 1)
}

/// A session with its environment.
#[derive(Debug)]
pub struct Host {
    pub session: Session,
    pub topics: Topics,
    pub settings: KafkaSettings,
    pub users: Arc<dyn Authority>,
    pub now: Now,
    pub input: BytesMut,
    pub output: BytesMut,
    correlation: i32,
}

impl Host {
    /// With the topics `a` (number 1, three partitions) and `b` (number 2, one partition).
    pub fn new() -> Host {
        Host::with(KafkaSettings::default())
    }

    pub fn with(settings: KafkaSettings) -> Host {
        let now = Now { wall_ms: START_MS, monotonic_ms: 5_000 };
        let mut topics = Topics::default();
        topics.add(1, "a", 3, TopicConfig::default());
        topics.add(2, "b", 1, TopicConfig::default());
        Host {
            session: Session::new(init(1, Arc::default()), now),
            topics,
            settings,
            users: Arc::new(NoUsers),
            now,
            input: BytesMut::new(),
            output: BytesMut::new(),
            correlation: 0,
        }
    }

    /// A new connection to a listener that requires a login.
    pub fn asking(mut self, users: Arc<dyn Authority>) -> Host {
        let init = SessionInit { asks_for_login: true, ..init(1, Arc::default()) };
        self.session = Session::new(init, self.now);
        self.users = users;
        self
    }

    /// With a different config of topic `a`.
    pub fn with_topic(config: TopicConfig) -> Host {
        let mut host = Host::new();
        host.topics.add(1, "a", 3, config);
        host
    }

    fn call<T>(&mut self, f: impl FnOnce(&mut Session, &mut BytesMut, &SessionContext<'_>) -> T) -> T {
        let cx = SessionContext { now: self.now, catalog: &self.topics, settings: &self.settings, users: &self.users };
        f(&mut self.session, &mut self.input, &cx)
    }

    /// Feeds bytes from the client.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.pump();
    }

    pub fn pump(&mut self) {
        self.call(|session, input, cx| session.on_bytes(input, cx));
    }

    /// Starts a turn.
    pub fn begin_turn(&mut self, steps_max: u64) {
        self.call(|session, _, cx| session.begin_turn(steps_max, cx));
    }

    /// Sends a request; returns its correlation id.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        self.correlation += 1;
        let frame = frame(version, self.correlation, request);
        self.feed(&frame);
        self.correlation
    }

    /// Takes the session's requests to the broker.
    pub fn asked(&mut self) -> Vec<(Token, Ask)> {
        std::iter::from_fn(|| self.session.poll_request()).collect()
    }

    /// Takes its only request.
    pub fn asked_one(&mut self) -> (Token, Ask) {
        let mut all = self.asked();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    pub fn reply(&mut self, token: Token, reply: Reply) {
        self.call(|session, _, cx| session.on_reply(token, reply, cx));
    }

    pub fn changed(&mut self, token: Token) {
        self.call(|session, _, cx| session.on_event(Event::Changed(token), cx));
    }

    /// Grants memory for a long response.
    pub fn on_room(&mut self) {
        self.call(|session, _, cx| session.on_room(cx));
    }

    /// Advances time and calls the deadline.
    pub fn pass(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        self.now.wall_ms += i64::try_from(ms).unwrap();
        self.call(|session, _, cx| session.on_deadline(cx));
    }

    /// Charges thread time. Nanoseconds.
    pub fn charge_time(&mut self, ns: u64) {
        self.call(|session, _, cx| session.charge_time(ns, cx));
    }

    pub fn deadline_in(&mut self) -> Option<u64> {
        let now_ms = self.now.monotonic_ms;
        self.call(|session, _, cx| session.next_deadline_ms(cx)).map(|at| at.saturating_sub(now_ms))
    }

    pub fn wants_input(&mut self) -> bool {
        self.call(|session, _, cx| session.wants_input(cx))
    }

    /// Takes output, as a server does when its socket is writable.
    pub fn take_output(&mut self) {
        loop {
            let mut chunks = Vec::new();
            if !self.session.poll_output(&mut chunks) {
                return;
            }
            for chunk in chunks {
                self.output.extend_from_slice(&chunk.to_bytes().unwrap());
            }
            self.pump();
        }
    }

    /// Takes the next complete response frame, without its length.
    pub fn response_frame(&mut self) -> Option<Bytes> {
        self.take_output();
        let len = usize::try_from(i32::from_be_bytes(*self.output.first_chunk::<4>()?)).unwrap();
        assert!(self.output.len() >= 4 + len, "half a response");
        let _ = self.output.split_to(4);
        Some(self.output.split_to(len).freeze())
    }

    /// Takes the next response, to `R` at this version, with its correlation id.
    pub fn response_to<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let frame = self.response_frame().unwrap_or_else(|| panic!("no response: {:?}", self.session));
        decode_response::<R>(frame, version)
    }

    /// Takes the next response, to the last request.
    pub fn response<R: Request>(&mut self, version: i16) -> R::Response {
        let (correlation, response) = self.response_to::<R>(version);
        assert_eq!(correlation, self.correlation);
        response
    }

    /// Sends a request that is answered without the broker.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request);
        self.response::<R>(version)
    }

    pub fn no_response(&mut self) {
        assert_eq!(self.response_frame(), None);
    }

    pub fn close_reason(&mut self) -> Option<&CloseReason> {
        self.take_output();
        self.session.close_reason()
    }
}

pub fn init(connection_id: u64, fetch_budget: Arc<FetchBudget>) -> SessionInit {
    SessionInit {
        listener: Arc::new(Listener { host: StrBytes::from_static("broker.example"), port: 19_092 }),
        connection_id,
        client: Ipv4Addr::new(192, 0, 2, 1).into(),
        asks_for_login: false,
        fetch_budget,
    }
}

/// Encodes a request frame with its length.
pub fn frame<R: Request>(version: i16, correlation: i32, request: &R) -> Vec<u8> {
    let chunks = encode_request(version, correlation, Some(StrBytes::from_static("test-client")), request).unwrap();
    flat(&chunks)
}

pub fn flat(chunks: &[Chunk]) -> Vec<u8> {
    chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect()
}

pub fn decode_response<R: Request>(frame: Bytes, version: i16) -> (i32, R::Response) {
    let (correlation, mut body) = decode_response_header(frame, R::API_KEY, version).unwrap();
    let response = R::Response::decode(&mut body, version).unwrap();
    body.finish().unwrap();
    (correlation, response)
}

/// A batch of one record for each value, at the start time.
pub fn batch(values: &[&[u8]]) -> Bytes {
    built(BatchBuilder::new(), values)
}

pub fn built(mut builder: BatchBuilder, values: &[&[u8]]) -> Bytes {
    for value in values {
        builder.push(&NewRecord { timestamp: START_MS, value: Some(value), ..NewRecord::default() }).unwrap();
    }
    builder.build().unwrap()
}

/// A batch of records with these timestamps.
pub fn timed(mut builder: BatchBuilder, timestamps: &[i64]) -> Bytes {
    for timestamp in timestamps {
        builder
            .push(&NewRecord { timestamp: *timestamp, key: Some(b"k"), value: Some(b"v"), ..NewRecord::default() })
            .unwrap();
    }
    builder.build().unwrap()
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from(text)
}
