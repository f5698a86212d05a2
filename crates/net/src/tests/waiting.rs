//! Waiting requests, and the memory left to others.

use super::bounds::in_time;
use super::toy::{LIST_FACTORS, frame};
use super::{MIB, Server, Wish, receive, send, until};
use crate::kafka::{KafkaAccept, KafkaShared};
use crate::memory::Memory;
use crate::testing::FakeBroker;
use crate::{AnswerGauge, Connections, Gate, Lanes, NetMetrics, OutputGauge, Shared, accept_loop};
use polylogue_amqp_gateway::AmqpMachine;
use polylogue_amqp_model::Limits;
use polylogue_api::{PartitionInfo, ReadData, Reply, Request, TopicConfig, TopicInfo};
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::StrBytes;
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchTopic};
use polylogue_kafka_codec::frame::encode_request;
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_types::{Offset, PartitionId, ProducerId, TopicId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Connections of the attacker.
const ATTACKERS: usize = 20;
const FETCHES: usize = 16;
/// Partitions of a fetch: about 4 KB of it.
const PARTITIONS: i32 = 100;

/// Kafka sessions with a broker in which no messages arrive.
async fn kafka() -> (SocketAddr, Arc<Shared>, Arc<FakeBroker>, watch::Sender<bool>) {
    let broker = FakeBroker::new(|request| match request {
        Request::AllocateProducerId => Some(Reply::ProducerId(Ok(ProducerId(7)))),
        Request::Read(read) => {
            let nothing = || ReadData { chunks: Vec::new(), high_watermark: Offset(0), log_start: Offset(0) };
            Some(Reply::Read(read.parts.iter().map(|_| Ok(nothing())).collect()))
        }
        _ => None,
    });
    let partitions = (1..=PARTITIONS as u64).map(|id| PartitionInfo { id: PartitionId(id), leader_epoch: 3 }).collect();
    broker.topics.0.lock().push(Arc::new(TopicInfo {
        name: "t".into(),
        id: TopicId::from_random([7; 16]),
        internal: false,
        partitions,
        config: Arc::new(TopicConfig::default()),
    }));
    let shared = Arc::new(Shared {
        broker: broker.clone(),
        lanes: Lanes::new(256 * MIB, 10_000),
        output: OutputGauge::new(256 * MIB),
        answers: AnswerGauge::new(256 * MIB),
        write_stall_ms_max: 60_000,
        memory: Memory::default(),
        workers: crate::Workers::start(&polylogue_env::Env::real(), 1).unwrap(),
        metrics: NetMetrics::default(),
        connections: Connections::default(),
    });
    let live = Arc::new(LiveSettings::new(KafkaSettings::default()));
    let directory = AmqpMachine::new(Limits::default()).directory();
    let accept = Arc::new(KafkaAccept::new(Arc::new(KafkaShared::new(live, broker.clone(), directory)), None, false));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let gate = Gate::new(Arc::new(AtomicUsize::new(0)), 10_000);
    tokio::spawn(accept_loop(listener, accept, gate, None, shared.clone(), stopped));
    (at, shared, broker, stop)
}

fn bytes_of<R: polylogue_kafka_codec::Request>(version: i16, request: &R) -> Vec<u8> {
    let chunks = encode_request(version, 1, Some(StrBytes::from_static("test")), request).unwrap();
    chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect()
}

fn long_poll() -> Vec<u8> {
    let part = |partition| FetchPartition { partition, partition_max_bytes: 1_000, ..FetchPartition::default() };
    let topic = FetchTopic {
        topic: StrBytes::from_static("t"),
        partitions: (0..PARTITIONS).map(part).collect(),
        ..FetchTopic::default()
    };
    let fetch = FetchRequest {
        max_wait_ms: 300_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    bytes_of(12, &fetch)
}

/// Regression test: each request held 64 times its size until it was the oldest of its connection: 320 fetches of 4 KB, 1.3 MB in all, took all the
/// memory for requests, and no client was answered.
#[tokio::test]
async fn long_polls_of_twenty_connections_leave_the_memory_to_others() {
    let (at, shared, broker, _stop) = kafka().await;
    let mut attackers = Vec::new();
    for count in 1..=ATTACKERS {
        let mut attacker = TcpStream::connect(at).await.unwrap();
        attacker.write_all(&long_poll().repeat(FETCHES)).await.unwrap();
        attackers.push(attacker);
        until(|| broker.waiting() == count || shared.lanes.load().1 > 0).await;
    }
    let (used, waiting) = shared.lanes.load();
    assert_eq!(waiting, 0, "requests wait for memory");
    // The memory of one fetch, and a buffer that was read into at once.
    assert!(used <= ATTACKERS * ((32 << 10) + (64 << 10)), "a connection holds {} bytes", used / ATTACKERS);
    let mut victim = TcpStream::connect(at).await.unwrap();
    let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
    victim.write_all(&bytes_of(4, &request)).await.unwrap();
    assert!(victim.read_u32().await.unwrap() > 0, "others are answered");
}

/// Regression test: waiting requests of one user could take all the memory for requests.
#[tokio::test]
async fn what_a_user_waits_for_takes_a_share_and_no_other_users_memory() {
    in_time(a_user_waits()).await;
}

async fn a_user_waits() {
    let server = Server::start(Wish { answers: false, ..Wish::default() }).await;
    let held_back = || server.shared.metrics.open("toy").requests_held_back.get();
    // While it waits, twice its size: 200 KB of the 12 MiB for large requests, of which a user has three.
    let list = [&b"w"[..], &[0; 100_000 - 1]].concat();
    let mut clients = Vec::new();
    while held_back() == 0 {
        let mut client = server.connect().await;
        send(&mut client, b"ualice").await;
        receive(&mut client).await;
        client.write_all(&frame(&list)[..5_000]).await.unwrap();
        let before = server.broker.waiting();
        let rest = frame(&list).split_off(5_000);
        let arriving = before * LIST_FACTORS.1 * list.len() + LIST_FACTORS.0 * list.len();
        until(|| held_back() > 0 || server.shared.lanes.load().0 >= arriving).await;
        if held_back() == 0 {
            client.write_all(&rest).await.unwrap();
            until(|| server.broker.waiting() > before).await;
        }
        clients.push((client, rest));
    }
    assert_eq!(server.broker.waiting(), 12, "three MiB, less what one takes while it is decoded");
    assert!(server.shared.lanes.load().0 < 3 * MIB);
    let mut other = server.connect().await;
    send(&mut other, b"ubob").await;
    receive(&mut other).await;
    send(&mut other, &list).await;
    until(|| server.broker.waiting() == 13).await;
    let asked = server.broker.next();
    asked.from.reply(asked.token, Reply::ProducerId(Ok(ProducerId(1))));
    let (mut first, _) = clients.remove(0);
    assert_eq!(receive(&mut first).await, b"p1");
    let (mut last, rest) = clients.pop().unwrap();
    last.write_all(&rest).await.unwrap();
    until(|| server.broker.waiting() == 13).await;
}
