//! A broker without threads, connections without sockets, a producer and a consumer.
//!
//! ```text
//!   Producer, Consumer ──bytes──▶ Connection: kafka::Session ──▶ Broker ──▶ journal, store ──▶ files in a temporary directory
//!   (never counted)                           (counted)        (stepped)                      (the kernel's part is not counted)
//! ```
//!
//! Files are real, so that no simulated disk is counted; clock and randomness are simulated, so that runs are
//! reproducible.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use polylogue_amqp_gateway::{AmqpMachine, Directory};
use polylogue_amqp_model::Limits;
use polylogue_api::{
    Catalog, CreateTopics, Event, MachineId, NewTopic, Reply, Request as Asked, StateMachine, Token, TopicConfig,
};
use polylogue_broker::{Broker, BrokerConfig, ReplySink, SessionId};
use polylogue_env::sim::{SimClock, SimRng, SimTasks};
use polylogue_env::{Env, ExitOnFatal, RealDisk};
use polylogue_kafka::session::{Authority, FetchBudget, Listener, NoUsers, Session, SessionContext, SessionInit};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use polylogue_kafka_codec::frame::{LENGTH_BYTES, decode_response_header, encode_request};
use polylogue_kafka_codec::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::{Message, Records, Request};
use polylogue_kafka_groups::{GroupSettings, KafkaGroups};
use polylogue_record::kafka::{BatchBuilder, NewRecord};
use polylogue_replicate::Work;
use polylogue_types::{Chunk, PartitionId, TopicId};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Size of a message's value. Bytes.
pub(crate) const MESSAGE_BYTES: usize = 1 << 10;
/// A consumer's default fetch limit per partition (`max.partition.fetch.bytes`). Bytes.
const PARTITION_FETCH_BYTES: i32 = 1 << 20;
/// Its default total fetch limit (`fetch.max.bytes`). Bytes.
const FETCH_BYTES: i32 = 50 << 20;
/// Tail cache: small, so that frames are evicted while counting, as in a broker that has run for a while.
/// Bytes.
const TAIL_CACHE_BYTES: usize = 8 << 20;
/// Steps of background work after which the run fails.
const BACKGROUND_STEPS_MAX: usize = 100_000;
/// Versions of the requests, as sent by current clients.
const PRODUCE_VERSION: i16 = 13;
const FETCH_VERSION: i16 = 17;
const INIT_PRODUCER_ID_VERSION: i16 = 5;

/// A temporary directory, and the environment of a broker in it.
pub(crate) struct Place {
    dir: PathBuf,
    clock: SimClock,
    env: Env,
}

impl Place {
    /// Creates an empty directory. Only one exists at a time.
    pub(crate) fn new() -> Result<Place> {
        let dir = std::env::temp_dir().join(format!("polylogue-hot-paths-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let clock = SimClock::default();
        let env = Env {
            disk: Arc::new(RealDisk::default()),
            clock: Arc::new(clock.clone()),
            rng: Arc::new(SimRng::derive(1, "hot paths")),
            tasks: Arc::new(SimTasks),
            fatal: Arc::new(ExitOnFatal::default()),
        };
        Ok(Place { dir, clock, env })
    }

    /// Opens the broker with the AMQP state machine.
    pub(crate) fn open_for_queues(&self) -> Result<(Node, Arc<Directory>)> {
        let declared = AmqpMachine::new(Limits::default());
        let directory = declared.directory();
        Ok((self.open_with(|_| (), BTreeMap::from([(MachineId::AMQP, Box::new(declared) as _)]))?, directory))
    }

    /// Opens the broker.
    pub(crate) fn open(&self, change: impl FnOnce(&mut BrokerConfig)) -> Result<Node> {
        self.open_with(change, BTreeMap::new())
    }

    fn open_with(
        &self,
        change: impl FnOnce(&mut BrokerConfig),
        mut machines: BTreeMap<MachineId, Box<dyn StateMachine>>,
    ) -> Result<Node> {
        let mut config = BrokerConfig::new(self.dir.join("data"));
        config.disk_reserve_bytes = 0;
        config.store.tail_cache_bytes = TAIL_CACHE_BYTES;
        change(&mut config);
        machines.insert(MachineId::KAFKA_GROUPS, Box::new(KafkaGroups::new(GroupSettings::default())));
        let broker = Broker::open(self.env.clone(), config, machines)?;
        let catalog = broker.catalog();
        let (settings, users) = (KafkaSettings::default(), NoUsers::shared());
        Ok(Node { broker, catalog, settings, users, clock: self.clock.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The broker.
pub(crate) struct Node {
    pub(crate) broker: Broker,
    pub(crate) catalog: Arc<dyn Catalog>,
    settings: KafkaSettings,
    users: Arc<dyn Authority>,
    clock: SimClock,
}

/// A topic.
#[derive(Clone, Copy)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    pub(crate) partitions: u32,
}

impl Node {
    /// Creates the topic.
    pub(crate) fn create(&self, partitions: u32) -> Result<Topic> {
        let new = NewTopic { name: "hot".to_owned(), partitions, config: TopicConfig::default(), internal: false };
        let connection = Connection::new(self);
        let command = Asked::CreateTopics(CreateTopics { topics: vec![new], validate_only: false });
        self.broker.submit(&connection.sink, connection.id, 0, command);
        self.commit();
        self.topic()
    }

    /// Returns the created topic.
    pub(crate) fn topic(&self) -> Result<Topic> {
        let topic = self.catalog.topic("hot").ok_or("the topic is not there")?;
        Ok(Topic { id: topic.id, partitions: u32::try_from(topic.partitions.len())? })
    }

    /// Writes, flushes and delivers proposals, and does pending reads.
    pub(crate) fn commit(&self) {
        while self.broker.log_step(Work::Write) | self.broker.log_step(Work::Flush) | self.broker.read_step() {}
    }

    /// Advances time by a millisecond, and lets the journal preallocate files.
    pub(crate) fn pause(&self) {
        self.clock.advance_ms(1);
        self.broker.log_step(Work::Background);
    }

    /// Does background work until there is none.
    pub(crate) fn settle(&self) -> Result<()> {
        for _ in 0..BACKGROUND_STEPS_MAX {
            self.clock.advance_ms(1_000);
            self.broker.tick();
            let mut did = self.broker.background_step();
            self.commit();
            did |= self.broker.background_step() | self.broker.log_step(Work::Background);
            if !did {
                return Ok(());
            }
        }
        Err("background work does not come to an end".into())
    }

    /// Number of committed messages.
    pub(crate) fn messages(&self) -> Result<u64> {
        let topic = self.catalog.topic("hot").ok_or("the topic is not there")?;
        let end = |id: PartitionId| self.broker.partition_status(id).map_or(0, |p| p.high_watermark.0);
        Ok(topic.partitions.iter().map(|p| end(p.id)).sum())
    }
}

/// Replies and events of the broker for one connection.
#[derive(Debug)]
pub(crate) enum Mail {
    Reply(Token, Reply),
    Event(Event),
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<VecDeque<Mail>>);

impl Mailbox {
    pub(crate) fn take(&self, into: &mut VecDeque<Mail>) {
        std::mem::swap(&mut *self.0.lock(), into);
    }
}

impl ReplySink for Mailbox {
    fn reply(&self, token: Token, reply: Reply) {
        self.0.lock().push_back(Mail::Reply(token, reply));
    }

    fn event(&self, event: Event) {
        self.0.lock().push_back(Mail::Event(event));
    }
}

/// A connection as in the server, without its socket: the request is already in its buffer, and no peer reads the
/// response.
pub(crate) struct Connection {
    session: Session,
    id: SessionId,
    mailbox: Arc<Mailbox>,
    sink: Arc<dyn ReplySink>,
    mail: VecDeque<Mail>,
    input: BytesMut,
    output: Vec<Chunk>,
}

impl Connection {
    fn new(node: &Node) -> Connection {
        let id = node.broker.new_session();
        let init = SessionInit {
            listener: Arc::new(Listener { host: "localhost".into(), port: 9_092 }),
            connection_id: id.0,
            client: Ipv4Addr::LOCALHOST.into(),
            asks_for_login: false,
            fetch_budget: Arc::<FetchBudget>::default(),
        };
        let mailbox = Arc::<Mailbox>::default();
        let sink: Arc<dyn ReplySink> = mailbox.clone();
        let session = Session::new(init, node.broker.now());
        let (mail, input, output) = (VecDeque::new(), BytesMut::new(), Vec::new());
        Connection { session, id, mailbox, sink, mail, input, output }
    }

    /// Puts a request into a new buffer, as if received from a socket.
    fn put<R: Request>(&mut self, version: i16, request: &R) -> Result<()> {
        let chunks = encode_request(version, 1, Some("hot-paths".into()), request)?;
        self.input = BytesMut::with_capacity(chunks.iter().map(Chunk::len).sum());
        for chunk in &chunks {
            self.input.extend_from_slice(&chunk.to_bytes()?);
        }
        Ok(())
    }

    /// Passes the request to the broker.
    pub(crate) fn ask(&mut self, node: &Node) {
        let cx = SessionContext {
            now: node.broker.now(),
            catalog: node.catalog.as_ref(),
            settings: &node.settings,
            users: &node.users,
        };
        self.session.on_bytes(&mut self.input, &cx);
        while let Some((token, request)) = self.session.poll_request() {
            node.broker.submit(&self.sink, self.id, token, request);
        }
    }

    /// Takes replies of the broker, and sends further requests until there are none; returns whether there is a response.
    pub(crate) fn answer(&mut self, node: &Node) -> bool {
        loop {
            self.mailbox.take(&mut self.mail);
            if self.mail.is_empty() {
                return self.session.poll_output(&mut self.output);
            }
            let cx = SessionContext {
                now: node.broker.now(),
                catalog: node.catalog.as_ref(),
                settings: &node.settings,
                users: &node.users,
            };
            while let Some(mail) = self.mail.pop_front() {
                match mail {
                    Mail::Reply(token, reply) => self.session.on_reply(token, reply, &cx),
                    Mail::Event(event) => self.session.on_event(event, &cx),
                }
            }
            while let Some((token, request)) = self.session.poll_request() {
                node.broker.submit(&self.sink, self.id, token, request);
            }
        }
    }

    /// Drops a sent response, which is counted; returns its length.
    pub(crate) fn sent(&mut self) -> usize {
        let len = self.output.iter().map(Chunk::len).sum();
        self.output.clear();
        len
    }

    /// Returns the decoded response, which stays until it is sent.
    fn response<R: Request, M: Message>(&self, version: i16) -> Result<M> {
        let mut bytes = Vec::new();
        for chunk in &self.output {
            bytes.extend_from_slice(&chunk.to_bytes()?);
        }
        let body = Bytes::from(bytes).slice(LENGTH_BYTES..);
        let (_, mut body) = decode_response_header(body, R::API_KEY, version)?;
        Ok(M::decode(&mut body, version)?)
    }

    /// Sends a request and waits for the response.
    fn round(&mut self, node: &Node) -> Result<()> {
        self.ask(node);
        node.commit();
        if self.answer(node) { Ok(()) } else { Err(format!("no answer: {:?}", self.session.close_reason()).into()) }
    }
}

/// An idempotent producer with acks=all, the default of clients.
pub(crate) struct Producer {
    pub(crate) connection: Connection,
    topic: Topic,
    id: (i64, i16),
    /// By partition.
    sequences: Vec<i32>,
    value: Vec<u8>,
    /// Length of the last batch; the same for batches with as many messages.
    pub(crate) batch_bytes: usize,
}

impl Producer {
    pub(crate) fn new(node: &Node, topic: Topic) -> Result<Producer> {
        let mut connection = Connection::new(node);
        let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
        connection.put(INIT_PRODUCER_ID_VERSION, &request)?;
        connection.round(node)?;
        let response: InitProducerIdResponse =
            connection.response::<InitProducerIdRequest, _>(INIT_PRODUCER_ID_VERSION)?;
        connection.sent();
        if response.error_code != 0 {
            return Err(format!("no producer id: error {}", response.error_code).into());
        }
        let id = (response.producer_id, response.producer_epoch);
        let sequences = vec![0; topic.partitions as usize];
        Ok(Producer { connection, topic, id, sequences, value: vec![0x5a; MESSAGE_BYTES], batch_bytes: 0 })
    }

    /// Puts a request with a batch for each of these partitions.
    pub(crate) fn put(&mut self, node: &Node, partitions: &[u32], messages: u32) -> Result<()> {
        let timestamp = node.broker.now().wall_ms;
        let mut partition_data = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let sequence = self.sequences.get_mut(*partition as usize).ok_or("no such partition")?;
            let mut builder = BatchBuilder::new().producer(self.id.0, self.id.1, *sequence);
            let record = NewRecord { timestamp, value: Some(&self.value), ..NewRecord::default() };
            for _ in 0..messages {
                builder.push(&record)?;
            }
            *sequence += i32::try_from(messages)?;
            let batch = builder.build()?;
            self.batch_bytes = batch.len();
            partition_data
                .push(PartitionProduceData { index: i32::try_from(*partition)?, records: Some(Records::from(batch)) });
        }
        let topic = TopicProduceData { name: "".into(), topic_id: self.topic.id, partition_data };
        let request = ProduceRequest { transactional_id: None, acks: -1, timeout_ms: 30_000, topic_data: vec![topic] };
        self.connection.put(PRODUCE_VERSION, &request)
    }

    /// Produces without counting.
    pub(crate) fn produce(&mut self, node: &Node, partitions: &[u32], messages: u32) -> Result<()> {
        self.put(node, partitions, messages)?;
        self.connection.round(node)?;
        self.connection.sent();
        node.pause();
        Ok(())
    }
}

/// A consumer with a fetch session, the default of clients.
pub(crate) struct Consumer {
    pub(crate) connection: Connection,
    topic: Topic,
    session: (i32, i32),
    /// By partition.
    offsets: Vec<i64>,
}

impl Consumer {
    /// Creates a consumer that starts at these offsets.
    pub(crate) fn new(node: &Node, topic: Topic, offsets: Vec<i64>) -> Consumer {
        Consumer { connection: Connection::new(node), topic, session: (0, 0), offsets }
    }

    /// Puts a request that names these partitions.
    pub(crate) fn put(&mut self, partitions: impl Iterator<Item = u32>) -> Result<()> {
        let mut named = Vec::new();
        for partition in partitions {
            let fetch_offset = *self.offsets.get(partition as usize).ok_or("no such partition")?;
            named.push(FetchPartition {
                partition: i32::try_from(partition)?,
                current_leader_epoch: -1,
                fetch_offset,
                last_fetched_epoch: -1,
                partition_max_bytes: PARTITION_FETCH_BYTES,
                ..FetchPartition::default()
            });
        }
        let topics = match named.is_empty() {
            true => Vec::new(),
            false => vec![FetchTopic { topic_id: self.topic.id, partitions: named, ..FetchTopic::default() }],
        };
        let request = FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: FETCH_BYTES,
            session_id: self.session.0,
            session_epoch: self.session.1,
            topics,
            ..FetchRequest::default()
        };
        self.session.1 += 1;
        self.connection.put(FETCH_VERSION, &request)
    }

    /// Advances the offset of a partition.
    pub(crate) fn advance(&mut self, partition: u32, messages: u32) {
        if let Some(offset) = self.offsets.get_mut(partition as usize) {
            *offset += i64::from(messages);
        }
    }

    /// Takes a response with batches of this length and number of messages; returns its partitions and
    /// the number of batches.
    pub(crate) fn take(&mut self, batch_bytes: usize, messages: u32) -> Result<(Vec<u32>, usize)> {
        let response: FetchResponse = self.connection.response::<FetchRequest, _>(FETCH_VERSION)?;
        if response.error_code != 0 {
            return Err(format!("a fetch failed: error {}", response.error_code).into());
        }
        self.session.0 = response.session_id;
        let (mut partitions, mut all) = (Vec::new(), 0);
        for data in response.responses.into_iter().flat_map(|topic| topic.partitions) {
            let partition = u32::try_from(data.partition_index)?;
            let bytes = data.records.and_then(Records::into_bytes).unwrap_or_default().len();
            if data.error_code != 0 || bytes % batch_bytes != 0 {
                return Err(format!("partition {partition}: error {}, {bytes} bytes", data.error_code).into());
            }
            let batches = bytes / batch_bytes;
            if batches > 0 {
                self.advance(partition, u32::try_from(batches)? * messages);
                partitions.push(partition);
                all += batches;
            }
        }
        Ok((partitions, all))
    }

    /// Fetches from these partitions without counting.
    pub(crate) fn fetch(&mut self, node: &Node, partitions: &[u32], batch: (usize, u32)) -> Result<Vec<u32>> {
        self.put(partitions.iter().copied())?;
        self.connection.round(node)?;
        let (read, _) = self.take(batch.0, batch.1)?;
        self.connection.sent();
        Ok(read)
    }
}
