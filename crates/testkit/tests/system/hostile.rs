//! Clients that lie, flood, and keep silent: they cost their own connection at most.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::Place;
use common::batch::{batch, bomb, forge};
use common::kafka::{Kafka, fetch_request, frame, produce_request};
use polylogue_env::Rng;
use polylogue_env::sim::SimRng;
use polylogue_kafka_codec::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use polylogue_kafka_codec::*;
use polylogue_record::compress::Codec;
use polylogue_testkit::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// What the broker may ever have in use here. Bytes.
const MEMORY_BYTES_MAX: u64 = 400 << 20;
/// How long a hostile connection is listened to for an answer or its end, so that its bytes are looked at before it goes;
/// a request that waits for messages says nothing for longer.
const LISTEN: Duration = Duration::from_millis(20);
/// How long the broker may take to close a connection. Seconds.
const CLOSE_SECS: u64 = 30;

/// A broker with a topic `t`, under attack.
struct Victim {
    place: Place,
    server: Server,
}

impl Victim {
    fn new(name: &str, settings: &[&str]) -> Victim {
        let place = Place::new(name);
        let server = place.start(place.serve(settings)).unwrap();
        let victim = Victim { place, server };
        victim.client().create_topic("t", 1, &[("max.message.bytes", "67108864")]).unwrap();
        victim
    }

    fn client(&self) -> Kafka {
        Kafka::connect(self.server.kafka()).unwrap()
    }

    fn raw(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.kafka()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(CLOSE_SECS))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(CLOSE_SECS))).unwrap();
        stream
    }

    fn end_offset(&self) -> i64 {
        self.client().list_offset("t", 0, -1).unwrap().1
    }

    /// Sends bytes and the end of the stream, and takes what comes of it at once.
    fn throw(&self, bytes: &[u8]) {
        let mut stream = self.raw();
        stream.set_read_timeout(Some(LISTEN)).unwrap();
        // It may close the connection before it has read all: then this fails, as it may.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = stream.read(&mut [0; 1024]);
    }

    /// A client that behaves is served as if nothing were.
    fn serves(&self) {
        let mut client = self.client();
        let offset = client.put("t", 0, &["well behaved"]).unwrap();
        let found = client.fetch("t", 0, offset).unwrap();
        // The hostile client may have written behind it.
        assert_eq!(found.messages.first(), Some(&(offset, b"well behaved".to_vec())));
    }

    /// Under the bound of this file; all bounds of the broker's own together allow it more.
    fn memory_is_bounded(&self) {
        let peak = self.server.memory_peak_bytes().unwrap();
        assert!(peak < MEMORY_BYTES_MAX, "the broker had {} MiB in use", peak >> 20);
    }

    /// The last look: served, bounded, alive to the orderly end, and no panic reported.
    fn survived(self) {
        self.serves();
        self.memory_is_bounded();
        eprintln!("memory in use at the most: {} MiB", self.server.memory_peak_bytes().unwrap() >> 20);
        let said = self.server.said();
        self.server.terminate().unwrap();
        assert!(!said.contains("panicked"), "{said}");
        drop(self.place);
    }
}

/// Whether the other side closed the connection: an end or a reset, not silence.
fn closed(mut stream: TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0,
        Err(e) => matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

#[test]
fn frames_with_impossible_lengths_end_their_connection() {
    let victim = Victim::new("lengths", &[]);
    for len in [i32::MAX, i32::MIN, -1, 1 << 30] {
        let mut stream = victim.raw();
        stream.write_all(&len.to_be_bytes()).unwrap();
        let _ = stream.write_all(&[0; 100]);
        assert!(closed(stream), "a frame of {len} bytes did not end the connection");
        victim.serves();
    }
    for len in 0..8 {
        victim.throw(&[&i32::to_be_bytes(len)[..], &vec![0xff; len as usize]].concat());
    }
    victim.survived();
}

#[test]
fn truncated_requests_change_nothing() {
    let victim = Victim::new("truncated", &[]);
    let whole = frame(9, 1, &produce_request("t", 0, batch(&["cut off"])));
    for len in 1..whole.len() {
        // As it is: the rest never comes.
        let mut stream = victim.raw();
        stream.write_all(&whole[..len]).unwrap();
        drop(stream);
        // With a length that fits what is there: the body ends early.
        if len > 4 {
            let mut cut = whole[..len].to_vec();
            cut[..4].copy_from_slice(&i32::try_from(len - 4).unwrap().to_be_bytes());
            victim.raw().write_all(&cut).unwrap();
        }
    }
    victim.serves();
    assert_eq!(victim.end_offset(), 1, "a truncated request was taken");
    victim.survived();
}

/// A request of every kind, at its lowest and its highest version.
fn requests() -> Vec<Vec<u8>> {
    fn both<R: Request>(request: &R) -> Vec<Vec<u8>> {
        [*R::VERSIONS.start(), *R::VERSIONS.end()].map(|version| frame(version, 1, request)).into()
    }
    let mut found = Vec::new();
    found.extend(both(&produce::ProduceRequest::default()));
    found.extend(both(&fetch::FetchRequest::default()));
    found.extend(both(&list_offsets::ListOffsetsRequest::default()));
    found.extend(both(&metadata::MetadataRequest::default()));
    found.extend(both(&offset_commit::OffsetCommitRequest::default()));
    found.extend(both(&offset_fetch::OffsetFetchRequest::default()));
    found.extend(both(&find_coordinator::FindCoordinatorRequest::default()));
    found.extend(both(&join_group::JoinGroupRequest::default()));
    found.extend(both(&heartbeat::HeartbeatRequest::default()));
    found.extend(both(&leave_group::LeaveGroupRequest::default()));
    found.extend(both(&sync_group::SyncGroupRequest::default()));
    found.extend(both(&api_versions::ApiVersionsRequest::default()));
    found.extend(both(&create_topics::CreateTopicsRequest::default()));
    found.extend(both(&delete_topics::DeleteTopicsRequest::default()));
    found.extend(both(&init_producer_id::InitProducerIdRequest::default()));
    found.extend(both(&offset_for_leader_epoch::OffsetForLeaderEpochRequest::default()));
    found
}

#[test]
fn counts_of_two_billion_are_held_against_the_bytes_that_are_there() {
    let victim = Victim::new("counts", &[]);
    let counts: [&[u8]; 4] =
        [&[0x7f, 0xff, 0xff, 0xff], &[0x80, 0, 0, 0], &[0xff, 0xff, 0xff, 0xff, 0x07], &[0xff, 0xff, 0xff, 0xff, 0x0f]];
    for whole in requests() {
        // One connection a request: each may end it.
        for at in 8..whole.len() {
            for count in counts {
                let mut mean = whole[..at].to_vec();
                mean.extend_from_slice(count);
                mean.extend_from_slice(&whole[at..]);
                let len = i32::try_from(mean.len() - 4).unwrap();
                mean[..4].copy_from_slice(&len.to_be_bytes());
                victim.throw(&mean);
            }
        }
        victim.serves();
    }
    victim.survived();
}

#[test]
fn batches_that_are_none_are_refused() {
    let victim = Victim::new("batches", &[]);
    let mut client = victim.client();
    let good = batch(&["good"]);
    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    assert_eq!(client.produce("t", 0, flipped.into()).unwrap().0, ErrorCode::CorruptMessage, "wrong checksum");
    let forged: [(&str, usize, &[u8]); 7] = [
        ("magic 0", 16, &[0]),
        ("magic 1", 16, &[1]),
        ("magic 3", 16, &[3]),
        ("no records", 57, &[0, 0, 0, 0]),
        ("two billion records", 57, &[0x7f, 0xff, 0xff, 0xff]),
        ("less than no records", 57, &[0xff, 0xff, 0xff, 0xff]),
        ("a codec that does not exist", 22, &[7]),
    ];
    for (what, at, bytes) in forged {
        let answer = victim.client().produce("t", 0, forge(&good, at, bytes)).unwrap();
        assert_ne!(answer.0, ErrorCode::None, "{what}");
        victim.serves();
    }
    let served = victim.end_offset();
    assert_eq!(served, 7, "something that is no batch was taken");
    victim.survived();
}

#[test]
fn decompression_bombs_are_defused() {
    let victim = Victim::new("bombs", &[]);
    let mut client = victim.client();
    let sorts: [(&str, &[(&str, &str)]); 3] = [
        ("plain", &[]),
        ("recompressed", &[("compression.type", "uncompressed")]),
        ("stamped", &[("message.timestamp.type", "LogAppendTime")]),
    ];
    for (topic, configs) in sorts {
        let configs = [configs, &[("max.message.bytes", "67108864")]].concat();
        client.create_topic(topic, 1, &configs).unwrap();
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let bomb = bomb(codec, 1 << 30);
        for (topic, _) in sorts {
            let mut client = victim.client();
            let (error, offset) = client.produce(topic, 0, bomb.clone()).unwrap();
            if topic == "recompressed" {
                assert_ne!(error, ErrorCode::None, "{codec} was recompressed from a gigabyte");
            }
            if error == ErrorCode::None {
                // What is taken as it is must not go off later either: a search by time looks inside.
                let _ = client.list_offset(topic, 0, 1).unwrap();
                assert!(offset >= 0);
            }
            victim.memory_is_bounded();
        }
        victim.serves();
    }
    victim.survived();
}

#[test]
fn silent_connections_cost_next_to_nothing() {
    let limit = getrlimit(Resource::Nofile);
    // Both ends are open files; the server inherits the limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = if files >= 6_000 { 5_000 } else { files / 2 };
    let victim = Victim::new("silent", &[]);
    victim.serves();
    let before = victim.server.memory_bytes().unwrap();
    let mut silent: Vec<TcpStream> = (0..count).map(|_| victim.raw()).collect();
    victim.serves();
    let grown = victim.server.memory_bytes().unwrap().saturating_sub(before);
    assert!(grown < 60 << 20, "{count} silent connections took {} MiB", grown >> 20);
    // They were accepted, each of them, and are served when they speak.
    let hello = frame(0, 7, &api_versions::ApiVersionsRequest::default());
    for stream in silent.iter_mut().step_by(100) {
        stream.write_all(&hello).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[4..], [0, 0, 0, 7]);
    }
    drop(silent);
    victim.survived();
}

#[test]
fn consumers_that_never_read_hold_up_nobody() {
    let victim = Victim::new("never-reads", &[]);
    let mut client = victim.client();
    let value = vec![b'x'; 900_000];
    for _ in 0..30 {
        client.put("t", 0, &[&value]).unwrap();
    }
    let mut deaf = Vec::new();
    for _ in 0..20 {
        let mut stream = victim.raw();
        stream.set_nonblocking(true).unwrap();
        // Until the broker takes no more of them.
        for correlation in 0..2_000 {
            let request = frame(12, correlation, &fetch_request("t", 0, 0, 50 << 20));
            if stream.write_all(&request).is_err() {
                break;
            }
        }
        deaf.push(stream);
    }
    for _ in 0..20 {
        victim.serves();
        victim.memory_is_bounded();
    }
    drop(deaf);
    victim.survived();
}

/// A hundred bytes that ask for megabytes, from hundreds of clients that then read nothing: all was made at once.
#[test]
fn long_answers_that_nobody_reads_are_made_one_after_the_other() {
    let victim = Victim::new("long-answers", &[]);
    let everything = DescribeConfigsResource { resource_type: 4, resource_name: "1".into(), configuration_keys: None };
    let request = DescribeConfigsRequest {
        // More than lies in the system's buffers.
        resources: vec![everything; 500],
        include_synonyms: true,
        include_documentation: true,
    };
    let request = frame(4, 1, &request);
    let mut deaf = Vec::new();
    for _ in 0..80 {
        let mut stream = victim.raw();
        stream.write_all(&request).unwrap();
        deaf.push(stream);
    }
    for _ in 0..20 {
        victim.serves();
        victim.memory_is_bounded();
    }
    // One that reads is answered, as soon as those give way that do not: some at a time, and each after a second and more.
    let mut stream = victim.raw();
    stream.set_read_timeout(Some(Duration::from_secs(10 * CLOSE_SECS))).unwrap();
    stream.write_all(&request).unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(len)).unwrap()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer.len() > 8 << 20, "{} bytes", answer.len());
    drop(deaf);
    victim.survived();
}

/// Two of these once held the memory of all large requests for as long as they would have needed for what they promised.
#[test]
fn promised_uploads_that_do_not_come_hold_up_others_for_seconds_only() {
    let victim = Victim::new("promised", &[]);
    let promised: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = victim.raw();
            // A produce request of 100 MiB, of which 4 KiB come.
            stream.write_all(&[0x06, 0x40, 0, 0, 0, 0, 0, 9]).unwrap();
            stream.write_all(&[0; 4 << 10]).unwrap();
            stream
        })
        .collect();
    victim.serves();
    victim.client().put("t", 0, &[vec![b'x'; 900_000]]).unwrap();
    assert!(promised.into_iter().any(closed), "none of them had to give way");
    victim.survived();
}

/// Requests that wait for messages that never come, with lists of partitions that take megabytes when they are decoded.
#[test]
fn long_polls_with_long_lists_hold_up_nobody() {
    let victim = Victim::new("long-polls", &[]);
    let partitions = 1_500;
    victim.client().create_topic("quiet", partitions, &[]).unwrap();
    let mut request = fetch_request("quiet", 0, 0, 1 << 20);
    (request.min_bytes, request.max_wait_ms) = (1, i32::MAX);
    let first = request.topics[0].partitions[0].clone();
    request.topics[0].partitions =
        (0..partitions).map(|partition| fetch::FetchPartition { partition, ..first.clone() }).collect();
    let request = frame(4, 1, &request);
    let mut waiting = Vec::new();
    for _ in 0..600 {
        let mut stream = victim.raw();
        // The last ones wait for memory; what they send lies in the system's buffers.
        stream.write_all(&request).unwrap();
        waiting.push(stream);
    }
    for _ in 0..20 {
        victim.serves();
    }
    victim.client().put("t", 0, &[vec![b'x'; 900_000]]).unwrap();
    victim.memory_is_bounded();
    drop(waiting);
    victim.survived();
}

#[test]
fn a_slow_client_is_served_and_holds_up_nobody() {
    let victim = Victim::new("slow", &[]);
    let mut slow = victim.raw();
    slow.set_nodelay(true).unwrap();
    for byte in frame(9, 9, &produce_request("t", 0, batch(&["slowly"]))) {
        slow.write_all(&[byte]).unwrap();
        victim.serves();
    }
    let mut answer = [0; 8];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(answer[4..], [0, 0, 0, 9]);
    victim.survived();
}

#[test]
fn garbage_is_survived() {
    let seed = common::seed();
    let victim = Victim::new("garbage", &[]);
    let rng = SimRng::derive(seed, "garbage");
    let keys = [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 22, 23];
    for round in 0..300 {
        let mut body = vec![0; rng.below(400) as usize];
        rng.fill(&mut body);
        let mut bytes = Vec::new();
        if round % 3 > 0 {
            // A header that is right, so that the body is looked at.
            let key: i16 = keys[rng.below(16) as usize];
            bytes.extend(i32::try_from(body.len() + 10).unwrap().to_be_bytes());
            bytes.extend([key.to_be_bytes(), (rng.below(14) as i16).to_be_bytes()].concat());
            bytes.extend([0, 0, 0, 5, 0xff, 0xff]);
        }
        bytes.extend(body);
        victim.throw(&bytes);
        if round % 50 == 0 {
            victim.serves();
        }
    }
    eprintln!("POLYLOGUE_SEED={seed}");
    victim.survived();
}
