//! What a session costs by the request: time, and allocations.
//!
//! `cargo run --release -p polylogue-kafka --example kafka_session_cost`. Each line is the median of many timed runs; on a noisy
//! machine compare the lines of one run with one another. What is outside a session is left out as far as possible: the
//! broker's reply is made beforehand, and output is dropped. The copy of the request into the input stands for the read
//! from the socket, and is timed for itself too.

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use polylogue_api::{Appended, Catalog, ClusterInfo, Now, PartitionInfo, ReadData, Reply, TopicConfig, TopicInfo};
use polylogue_kafka::session::{FetchBudget, Listener, NoUsers, Session, SessionContext, SessionInit};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchTopic};
use polylogue_kafka_codec::frame::encode_request;
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::{Records, Request, StrBytes};
use polylogue_record::kafka::{BatchBuilder, NewRecord, verify_crc};
use polylogue_types::{Chunk, NodeId, Offset, PartitionId, TopicId};
use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Sessions of silent connections.
const CONNECTIONS: u64 = 5_000;
const NOW: Now = Now { wall_ms: 1_700_000_000_000, monotonic_ms: 1 };

/// One topic.
#[derive(Debug)]
struct One(Arc<TopicInfo>);

impl Catalog for One {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        (*self.0.name == *name).then(|| Arc::clone(&self.0))
    }

    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        (self.0.id == id).then(|| Arc::clone(&self.0))
    }

    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        vec![Arc::clone(&self.0)]
    }

    fn cluster(&self) -> ClusterInfo {
        ClusterInfo { cluster_id: Arc::from("cost"), node: NodeId(1) }
    }

    fn settings(&self, _: &polylogue_api::SettingsScope) -> Arc<polylogue_api::Settings> {
        Arc::default()
    }

    fn settings_scopes(&self) -> Vec<polylogue_api::SettingsScope> {
        Vec::new()
    }

    fn version(&self) -> u64 {
        0
    }
}

const TOPIC_ID: TopicId = TopicId([7; 16]);

struct Bench {
    session: Session,
    catalog: One,
    settings: KafkaSettings,
    input: BytesMut,
    output: Vec<Chunk>,
}

impl Bench {
    fn new() -> Bench {
        let partitions = vec![PartitionInfo { id: PartitionId(1), leader_epoch: 0 }];
        let config = Arc::new(TopicConfig::default());
        let name = Arc::from("measurements");
        Bench {
            session: session(1),
            catalog: One(Arc::new(TopicInfo { name, id: TOPIC_ID, internal: false, partitions, config })),
            settings: KafkaSettings::default(),
            input: BytesMut::new(),
            output: Vec::new(),
        }
    }

    /// A request, its one reply, its response.
    fn round(&mut self, frame: &[u8], reply: Reply) {
        let Bench { session, catalog, settings, input, output } = self;
        let cx = SessionContext { now: NOW, catalog, settings, users: &NoUsers::shared() };
        input.extend_from_slice(frame);
        session.on_bytes(input, &cx);
        if let Some((token, asked)) = session.poll_request() {
            black_box(&asked);
            session.on_reply(token, reply, &cx);
        }
        session.poll_output(output);
        assert!(!black_box(&output).is_empty(), "no response: {:?}", session.close_reason());
        output.clear();
    }
}

fn session(connection_id: u64) -> Session {
    let init = SessionInit {
        listener: Arc::new(Listener { host: StrBytes::from_static("localhost"), port: 9_092 }),
        connection_id,
        client: Ipv4Addr::LOCALHOST.into(),
        asks_for_login: false,
        fetch_budget: Arc::<FetchBudget>::default(),
    };
    Session::new(init, NOW)
}

/// A batch of about so many bytes, in messages of 100.
fn batch(bytes: usize) -> Result<Bytes, Box<dyn Error>> {
    let mut builder = BatchBuilder::new().producer(1, 0, 0);
    let record = NewRecord { timestamp: NOW.wall_ms, value: Some(&[0x5a; 92]), ..NewRecord::default() };
    while builder.uncompressed_bytes() < bytes {
        builder.push(&record)?;
    }
    Ok(builder.build()?)
}

fn frame<R: Request>(version: i16, request: &R) -> Result<Vec<u8>, Box<dyn Error>> {
    let chunks = encode_request(version, 1, Some(StrBytes::from_static("producer-1")), request)?;
    let mut frame = Vec::new();
    for chunk in &chunks {
        frame.extend_from_slice(&chunk.to_bytes()?);
    }
    Ok(frame)
}

fn produce(batch: &Bytes) -> Result<Vec<u8>, Box<dyn Error>> {
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: StrBytes::new(),
            topic_id: TOPIC_ID,
            partition_data: vec![PartitionProduceData { index: 0, records: Some(Records::from(batch.clone())) }],
        }],
    };
    frame(13, &request)
}

fn fetch() -> Result<Vec<u8>, Box<dyn Error>> {
    let partition = FetchPartition { partition_max_bytes: 1 << 20, ..FetchPartition::default() };
    let request = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        topics: vec![FetchTopic { topic_id: TOPIC_ID, partitions: vec![partition], ..FetchTopic::default() }],
        ..FetchRequest::default()
    };
    frame(17, &request)
}

/// Nanoseconds of one call of `run`: the median of 31 loops of about a millisecond.
#[allow(clippy::disallowed_methods, reason = "a measurement of this process needs its clock")]
fn nanoseconds(mut run: impl FnMut()) -> f64 {
    let mut time = |calls: u32| {
        let start = std::time::Instant::now();
        (0..calls).for_each(|_| run());
        start.elapsed().as_nanos() as f64
    };
    let mut calls = 1;
    while time(calls) < 1e6 && calls < 1 << 24 {
        calls *= 2;
    }
    let mut all: Vec<f64> = (0..31).map(|_| time(calls) / f64::from(calls)).collect();
    all.sort_by(f64::total_cmp);
    all.get(15).copied().unwrap_or_default()
}

fn line(name: &str, mut run: impl FnMut()) {
    let time = nanoseconds(&mut run);
    let heap = measure(run);
    println!("{name:<52} {time:>10.0} ns {:>4} allocations {:>8} bytes", heap.count_total, heap.bytes_total);
}

fn appended() -> Reply {
    Reply::Append(vec![Ok(Appended {
        base_offset: Offset(0),
        log_start: Offset(0),
        duplicate: false,
        max_timestamp: -1,
    })])
}

fn read(batch: &Bytes) -> Reply {
    let chunks = vec![Chunk::Bytes(batch.clone())];
    Reply::Read(vec![Ok(ReadData { chunks, high_watermark: Offset(9), log_start: Offset(0) })])
}

fn main() -> Result<(), Box<dyn Error>> {
    for kib in [1, 16, 100] {
        let batch = batch(kib << 10)?;
        let request = produce(&batch)?;
        let mut bench = Bench::new();
        line(&format!("produce of {kib} KiB: the whole round"), || bench.round(&request, appended()));
        line("  of it: the reply that is made for it", || drop(black_box(appended())));
        let mut input = BytesMut::new();
        line("  of it: the copy into the input", || {
            input.extend_from_slice(&request);
            drop(black_box(input.split().freeze()));
        });
        let header = polylogue_record::kafka::BatchHeader::parse(&batch)?;
        line("  of it: the checksum of the batch", || {
            black_box(verify_crc(black_box(&batch), &header)).unwrap_or_default();
        });
    }
    for kib in [1, 100] {
        let (batch, request) = (batch(kib << 10)?, fetch()?);
        let mut bench = Bench::new();
        line(&format!("fetch of {kib} KiB: the whole round"), || bench.round(&request, read(&batch)));
    }
    let mut sessions = Vec::with_capacity(usize::try_from(CONNECTIONS)?);
    let heap = measure(|| sessions.extend((0..CONNECTIONS).map(session)));
    let own = heap.bytes_current / i64::try_from(CONNECTIONS)?;
    println!("a silent session: {} bytes, and {own} on the heap with its listener and budget", size_of::<Session>());
    drop(sessions);
    Ok(())
}
