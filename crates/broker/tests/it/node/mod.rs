//! A broker on the simulated machine with a minimal client.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig, ReplySink, SessionId};
use polylogue_env::sim::SimWorld;
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_replicate::Work;
use polylogue_types::{Offset, PartitionId, ProducerId};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Client {
    pub replies: Mutex<BTreeMap<Token, Reply>>,
    pub events: Mutex<Vec<Token>>,
    pub delivered: Mutex<Vec<Delivery>>,
    pub detached: Mutex<Vec<ConsumerId>>,
    pub dead: Mutex<Vec<DeadMessage>>,
}

impl ReplySink for Client {
    fn reply(&self, token: Token, reply: Reply) {
        assert!(self.replies.lock().insert(token, reply).is_none(), "token {token} was answered twice");
    }

    fn event(&self, event: Event) {
        match event {
            Event::Changed(token) => self.events.lock().push(token),
            Event::Deliver(deliveries) => self.delivered.lock().extend(deliveries),
            Event::Detached(consumer) => self.detached.lock().push(consumer),
            Event::Dead(messages) => self.dead.lock().extend(messages),
        }
    }
}

pub struct Node {
    pub broker: Broker,
    pub client: Arc<Client>,
    pub session: SessionId,
    pub next_token: Token,
}

impl Node {
    pub fn open(world: &SimWorld, change: impl FnOnce(&mut BrokerConfig)) -> Node {
        Node::open_with(world, BTreeMap::new(), change)
    }

    /// Returns one that hosts machines.
    pub fn open_with(
        world: &SimWorld,
        machines: BTreeMap<MachineId, Box<dyn StateMachine>>,
        change: impl FnOnce(&mut BrokerConfig),
    ) -> Node {
        let mut config = BrokerConfig::new("/data".into());
        config.journal_file_bytes = 1 << 20;
        config.disk_reserve_bytes = 0;
        change(&mut config);
        let broker = Broker::open(world.env(), config, machines).expect("the directory opens");
        let session = broker.new_session();
        Node { broker, client: Arc::default(), session, next_token: 0 }
    }

    pub fn start(&mut self, request: Request) -> Token {
        self.next_token += 1;
        let sink: Arc<dyn ReplySink> = self.client.clone();
        self.broker.submit(&sink, self.session, self.next_token, request);
        self.next_token
    }

    pub fn drive(&self) {
        self.broker.tick();
        loop {
            let mut did = self.broker.log_step(Work::Write);
            did |= self.broker.log_step(Work::Flush);
            did |= self.broker.read_step();
            if !did {
                return;
            }
        }
    }

    pub fn background(&self) {
        for _ in 0..1000 {
            let did = self.broker.background_step();
            self.drive();
            self.broker.log_step(Work::Background);
            if !did {
                return;
            }
        }
        panic!("the background never comes to an end");
    }

    pub fn ask(&mut self, request: Request) -> Reply {
        let token = self.start(request);
        self.drive();
        self.client.replies.lock().remove(&token).expect("an answer")
    }

    /// A request that is replied to without a write.
    pub fn ask_now(&mut self, request: Request) -> Reply {
        let token = self.start(request);
        self.client.replies.lock().remove(&token).expect("an answer at once")
    }

    pub fn create(&mut self, name: &str, partitions: u32, config: TopicConfig) -> Arc<TopicInfo> {
        let topic = NewTopic { name: name.into(), partitions, config, internal: false };
        let create = CreateTopics { topics: vec![topic], validate_only: false };
        match self.ask(Request::CreateTopics(create)) {
            Reply::CreateTopics(mut results) => results.remove(0).expect("created").topic,
            other => panic!("{other:?}"),
        }
    }

    pub fn append(&mut self, entry: AppendEntry) -> Result<Appended, AppendError> {
        match self.ask(Request::Append(AppendRequest { entries: vec![entry], ack: Ack::Committed })) {
            Reply::Append(mut results) => results.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub fn read(&mut self, partition: PartitionId, offset: u64) -> Result<ReadData, ReadError> {
        let part = ReadPart { partition, offset: Offset(offset), bytes_max: 1 << 20 };
        let request = ReadRequest { parts: vec![part], bytes_max: 1 << 20, at_least_one: true };
        match self.ask(Request::Read(request)) {
            Reply::Read(mut results) => results.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub fn text(&mut self, partition: PartitionId, offset: u64) -> String {
        let read = self.read(partition, offset).expect("readable");
        let bytes: Vec<u8> = read.chunks.iter().flat_map(|c| c.to_bytes().unwrap()).collect();
        String::from_utf8(bytes).unwrap()
    }
}

pub fn target(queue: PartitionId) -> Target {
    Target { queue, priority: None, expires_at: None, deliver_at: None }
}

/// Returns a message for some queues.
pub fn message(queues: &[PartitionId], text: &str) -> PublishMessage {
    PublishMessage {
        queues: queues.iter().map(|queue| target(*queue)).collect(),
        form: Form::AmqpMessage,
        flags: EntryFlags::NONE,
        bytes: Bytes::copy_from_slice(text.as_bytes()),
        timestamp: -1,
        key_hash: None,
        all_or_none: false,
    }
}

pub fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|d| String::from_utf8(d.bytes.to_vec()).unwrap()).collect()
}

pub fn entry(partition: PartitionId, text: &str) -> AppendEntry {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    AppendEntry {
        partition,
        form: Form::Opaque,
        flags: EntryFlags::NONE,
        count: 1,
        max_timestamp: -1,
        body_crc: crc32c(&bytes),
        summed_from: 0,
        bytes,
        producer: None,
    }
}

pub fn stamped(partition: PartitionId, text: &str, base_sequence: i32) -> AppendEntry {
    AppendEntry {
        producer: Some(ProducerStamp { id: ProducerId(7), epoch: 0, base_sequence }),
        ..entry(partition, text)
    }
}
