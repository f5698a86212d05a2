//! Limits on turns: long work waits for a worker thread, whatever the size of its request.

use crate::session_host;

use polylogue_api::{Appended, Compression, FoundOffset, Reply, Request as Ask, Token, TopicConfig};
use polylogue_kafka_codec::Records;
use polylogue_kafka_codec::list_groups::ListGroupsRequest;
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::metadata::MetadataRequest;
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;
use polylogue_record::compress::Codec;
use polylogue_record::kafka::BatchBuilder;
use polylogue_types::{Offset, STEPS_PER_TURN, STEPS_PER_WORKER_TURN, TopicId, Unfinished};
use session_host::users::Users;
use session_host::{Host, START_MS, built, text};
use std::sync::Arc;

/// By how much a turn may exceed its limit: the request in which it ends.
const SLACK: u64 = 1_000;

fn request(batches: &[bytes::Bytes]) -> ProduceRequest {
    let partition =
        |batch: &bytes::Bytes| PartitionProduceData { index: 0, records: Some(Records::from(batch.clone())) };
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: text("a"),
            topic_id: TopicId::ZERO,
            partition_data: batches.iter().map(partition).collect(),
        }],
    }
}

fn appended(host: &mut Host) -> Option<(Token, usize)> {
    host.asked().pop().map(|(token, ask)| match ask {
        Ask::Append(append) => (token, append.entries.len()),
        other => panic!("{other:?}"),
    })
}

fn used(host: &Host) -> u64 {
    host.session.steps_used()
}

/// One record of zeros.
fn bomb(bytes: usize) -> bytes::Bytes {
    built(BatchBuilder::new().compression(Codec::Zstd, None), &[&vec![0; bytes][..]])
}

/// Regression test: 3.9 KB that decompress to 120 MiB, four times on each of 256 connections, blocked all others for 28 s.
#[test]
fn what_decompresses_to_much_waits_for_a_worker() {
    let mut host = Host::new();
    let bomb = bomb(60 << 20);
    assert!(bomb.len() < 16 << 10, "{} bytes", bomb.len());
    host.begin_turn(STEPS_PER_TURN);
    host.send(9, &request(&[bomb]));
    assert_eq!((appended(&mut host), host.session.unfinished()), (None, Some(Unfinished::Worker)));
    assert!(used(&host) <= STEPS_PER_TURN, "{} steps", used(&host));
    for _ in 0..3 {
        host.begin_turn(STEPS_PER_TURN);
        host.pump();
        assert_eq!((appended(&mut host), host.session.unfinished()), (None, Some(Unfinished::Worker)));
    }
    host.begin_turn(STEPS_PER_WORKER_TURN);
    let (token, entries) = appended(&mut host).expect("appended on a worker thread");
    assert_eq!(entries, 1);
    let done = Appended { base_offset: Offset(0), log_start: Offset(0), duplicate: false, max_timestamp: -1 };
    host.begin_turn(STEPS_PER_TURN);
    host.reply(token, Reply::Append(vec![Ok(done)]));
    assert_eq!(host.response::<ProduceRequest>(9).responses[0].partition_responses[0].error_code, 0);
}

/// Regression test: 102 KB recompressed at level 22 blocked all others for 3.25 s.
#[test]
fn what_is_compressed_at_a_high_level_waits_for_a_worker() {
    let config = TopicConfig { compression: Compression::Zstd(22), ..TopicConfig::default() };
    let mut host = Host::with_topic(config);
    let values: Vec<Vec<u8>> = (0..100_u8).map(|i| vec![i; 1_000]).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let batch = built(BatchBuilder::new(), &values);
    host.begin_turn(STEPS_PER_TURN);
    host.send(9, &request(&[batch]));
    assert_eq!((appended(&mut host), host.session.unfinished()), (None, Some(Unfinished::Worker)));
    assert!(used(&host) <= STEPS_PER_TURN, "{} steps", used(&host));
    host.begin_turn(STEPS_PER_WORKER_TURN);
    assert!(appended(&mut host).is_some());
    host.begin_turn(STEPS_PER_TURN);
    host.send(9, &request(&[built(BatchBuilder::new(), &[b"one"])]));
    assert!(appended(&mut host).is_some(), "a small one does not wait");
}

/// Typical produce requests are processed on the I/O thread, and a turn ends after enough of them.
#[test]
fn usual_requests_stay_where_they_are_and_take_turns() {
    let mut host = Host::new();
    let value = [b'x'; 1_000];
    let batch = built(BatchBuilder::new().compression(Codec::Lz4, None), &[&value[..]; 100]);
    host.settings.inflight_requests_max = 1_000;
    host.begin_turn(STEPS_PER_TURN);
    (0..100).for_each(|_| _ = host.send(9, &request(std::slice::from_ref(&batch))));
    let mut begun = host.asked().len();
    assert!((5..20).contains(&begun), "{begun} of 100");
    assert_eq!(host.session.unfinished(), Some(Unfinished::Turn));
    for turns in 1.. {
        assert!(turns < 20, "{begun} begun");
        host.begin_turn(STEPS_PER_TURN);
        host.pump();
        begun += host.asked().len();
        assert!(used(&host) <= STEPS_PER_TURN + SLACK, "{} steps", used(&host));
        if host.session.unfinished().is_none() {
            break;
        }
    }
    assert_eq!(begun, 100);
}

/// The batches before the long one were checked, without any effect.
#[test]
fn a_request_that_is_begun_anew_is_appended_once_and_whole() {
    let mut host = Host::new();
    let small = built(BatchBuilder::new(), &[b"one"]);
    host.begin_turn(STEPS_PER_TURN);
    host.send(9, &request(&[small.clone(), bomb(40 << 20), small]));
    assert_eq!(appended(&mut host), None);
    host.begin_turn(STEPS_PER_WORKER_TURN);
    assert_eq!(appended(&mut host).map(|(_, entries)| entries), Some(3));
    assert_eq!(appended(&mut host), None);
}

/// A lookup by timestamp decompresses the entry, for sixteen entries at once.
#[test]
fn looking_into_entries_waits_for_a_worker() {
    let mut host = Host::new();
    let partition =
        |timestamp| ListOffsetsPartition { partition_index: 0, timestamp, ..ListOffsetsPartition::default() };
    let topics = vec![ListOffsetsTopic { name: text("a"), partitions: vec![partition(START_MS)] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    for (entry, is_long) in
        [(built(BatchBuilder::new(), &[b"one"]), false), (built(BatchBuilder::new(), &[&[7; 100_000]]), true)]
    {
        host.begin_turn(STEPS_PER_TURN);
        host.send(7, &request);
        let (token, _) = host.asked_one();
        let found = FoundOffset { offset: Some(Offset(0)), log_start: Offset(0), leader_epoch: 0, entry: Some(entry) };
        host.reply(token, Reply::FindOffsets(vec![Ok(found)]));
        if is_long {
            host.no_response();
            assert_eq!(host.session.unfinished(), Some(Unfinished::Worker));
            host.begin_turn(STEPS_PER_WORKER_TURN);
        }
        assert_eq!(host.response::<ListOffsetsRequest>(7).topics[0].partitions[0].offset, 0);
        assert_eq!(host.session.unfinished(), None);
    }
}

/// Responses whose size is known only when they are built.
#[test]
fn answers_of_unknown_length_are_made_by_a_worker() {
    let mut host = Host::new();
    host.session.ask_for_room();
    host.begin_turn(STEPS_PER_TURN);
    host.send(4, &ListGroupsRequest::default());
    host.on_room();
    assert!(host.asked().is_empty());
    assert_eq!(host.session.unfinished(), Some(Unfinished::Worker));
    host.begin_turn(STEPS_PER_WORKER_TURN);
    assert_eq!(host.asked().len(), 1);
}

/// Regression test: PLAIN logins of users with SCRAM credentials hashed passwords on I/O threads.
#[test]
fn logins_are_judged_by_a_worker() {
    let mut host = Host::new().asking(Arc::new(Users::default()));
    let handshake = SaslHandshakeRequest { mechanism: text("PLAIN") };
    host.begin_turn(STEPS_PER_TURN);
    assert_eq!(host.ask(1, &handshake).error_code, 0);
    let auth = SaslAuthenticateRequest { auth_bytes: bytes::Bytes::from_static(b"\0user\0pencil") };
    host.send(2, &auth);
    host.no_response();
    assert_eq!(host.session.unfinished(), Some(Unfinished::Worker));
    assert!(host.session.is_logging_in(), "it waits for no other long work of its address");
    host.begin_turn(STEPS_PER_WORKER_TURN);
    assert_eq!(host.response::<SaslAuthenticateRequest>(2).error_code, 0);
    assert!(!host.session.is_logging_in());
}

/// Regression test: visiting 100,000 topics for an estimate was done on an I/O thread when the request arrived.
#[test]
fn all_of_many_topics_are_gone_through_by_a_worker() {
    let mut host = Host::new();
    host.session.ask_for_room();
    (0..6_000).for_each(|at| _ = host.topics.add(9, &format!("t{at}"), 1, TopicConfig::default()));
    host.begin_turn(STEPS_PER_TURN);
    host.send(9, &MetadataRequest { topics: None, ..MetadataRequest::default() });
    assert_eq!((host.session.wants_room(), host.session.unfinished()), (None, Some(Unfinished::Worker)));
    assert!(used(&host) <= STEPS_PER_TURN);
    host.begin_turn(STEPS_PER_WORKER_TURN);
    assert!(host.session.wants_room().is_some());
    host.on_room();
    host.begin_turn(STEPS_PER_WORKER_TURN);
    assert!(host.response::<MetadataRequest>(9).topics.len() > 6_000);
}
