//! Produce: checks, conversions, responses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{
    Ack, AppendError, AppendRequest, Appended, Cleanup, Compression, ProducerStamp, Reply, Request as Ask,
    TimestampKind, Token, TopicConfig, Unavailable,
};
use polylogue_kafka::session::CloseReason;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::frame::encode_request;
use polylogue_kafka_codec::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use polylogue_kafka_codec::{ErrorCode, Records};
use polylogue_record::compress::{Codec, compress};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::EntryFlags;
use polylogue_record::kafka::{
    BatchBuilder, BatchHeader, CRC_FROM, HEADER_BYTES, NewRecord, records, validate_produce, verify_crc,
};
use polylogue_types::{Offset, ProducerId, TopicId};
use session_host::{EPOCH, Host, NODE, START_MS, batch, built, flat, partition_id, text, timed, topic_id};

/// A request for partitions of `a`.
fn request(version: i16, acks: i16, batches: &[(i32, Option<bytes::Bytes>)]) -> ProduceRequest {
    let (name, id) = if version >= 13 { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) };
    let partition = |(index, records): &(i32, Option<bytes::Bytes>)| PartitionProduceData {
        index: *index,
        records: records.clone().map(Records::from),
    };
    ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name,
            topic_id: id,
            partition_data: batches.iter().map(partition).collect(),
        }],
    }
}

fn appended(host: &mut Host) -> (Token, AppendRequest) {
    match host.asked_one() {
        (token, Ask::Append(append)) => (token, append),
        other => panic!("{other:?}"),
    }
}

fn ok(offset: u64) -> Result<Appended, AppendError> {
    Ok(Appended { base_offset: Offset(offset), log_start: Offset(1), duplicate: false, max_timestamp: -1 })
}

/// Returns the row of a refused batch for `a`-0.
fn refused(host: &mut Host, version: i16, batch: bytes::Bytes) -> PartitionProduceResponse {
    let mut response = host.ask(version, &request(version, -1, &[(0, Some(batch))]));
    assert!(host.asked().is_empty());
    response.responses.remove(0).partition_responses.remove(0)
}

fn code(row: &PartitionProduceResponse) -> ErrorCode {
    ErrorCode::from_code(row.error_code).unwrap()
}

/// Returns the entry appended for a batch for `a`-0.
fn entry(host: &mut Host, batch: bytes::Bytes) -> polylogue_api::AppendEntry {
    host.send(9, &request(9, -1, &[(0, Some(batch))]));
    appended(host).1.entries.remove(0)
}

#[test]
fn one_append_for_all_partitions_with_what_the_log_needs() {
    let mut host = Host::new();
    let plain = batch(&[b"one", b"two"]);
    let stamped = built(BatchBuilder::new().producer(77, 2, 40).compression(Codec::Lz4, None), &[b"three"]);
    host.send(9, &request(9, -1, &[(2, Some(plain.clone())), (0, Some(stamped.clone()))]));
    let (token, append) = appended(&mut host);
    assert_eq!((append.ack, append.entries.len()), (Ack::Committed, 2));
    let [first, second] = append.entries.as_slice() else { panic!() };
    assert_eq!((first.partition, first.count, first.producer), (partition_id(1, 2), 2, None));
    assert_eq!((&first.bytes, first.flags, first.max_timestamp), (&plain, EntryFlags::NONE, START_MS));
    assert_eq!((first.body_crc, first.summed_from), (BatchHeader::parse(&plain).unwrap().crc, 21));
    let stamp = ProducerStamp { id: ProducerId(77), epoch: 2, base_sequence: 40 };
    assert_eq!((second.partition, second.count, second.producer), (partition_id(1, 0), 1, Some(stamp)));
    assert_eq!((&second.bytes, second.flags), (&stamped, EntryFlags::COMPRESSED));

    host.reply(token, Reply::Append(vec![ok(8), Err(AppendError::OutOfOrderSequence)]));
    let response = host.response::<ProduceRequest>(9);
    let rows = &response.responses[0].partition_responses;
    assert_eq!((rows[0].index, rows[0].error_code, rows[0].base_offset, rows[0].log_start_offset), (2, 0, 8, 1));
    assert_eq!((rows[1].index, code(&rows[1])), (0, ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!((rows[1].base_offset, rows[1].log_start_offset), (-1, -1));
}

#[test]
fn good_and_bad_partitions_of_one_request() {
    let mut host = Host::new();
    let mut mixed = request(9, 1, &[(0, Some(batch(&[b"x"]))), (3, Some(batch(&[b"x"]))), (-1, None), (1, None)]);
    mixed.topic_data.push(TopicProduceData { name: text("nowhere"), ..mixed.topic_data[0].clone() });
    host.send(9, &mixed);
    let (token, append) = appended(&mut host);
    assert_eq!(append.entries.len(), 1);
    host.reply(token, Reply::Append(vec![ok(5)]));
    let response = host.response::<ProduceRequest>(9);
    let codes = |t: usize| response.responses[t].partition_responses.iter().map(code).collect::<Vec<_>>();
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(codes(0), [ErrorCode::None, unknown, unknown, ErrorCode::InvalidRecord]);
    assert_eq!(codes(1), [unknown; 4]);
}

#[test]
fn several_topics_in_one_request() {
    for version in [9, 13] {
        let mut host = Host::new();
        let records = Some(batch(&[b"x"]));
        let mut both = request(version, -1, &[(2, records.clone()), (9, None), (0, records.clone())]);
        let (name, id) = if version >= 13 { (text(""), topic_id(2)) } else { (text("b"), TopicId::ZERO) };
        let partition = PartitionProduceData { index: 0, records: records.map(Records::from) };
        both.topic_data.push(TopicProduceData { name, topic_id: id, partition_data: vec![partition] });
        host.send(version, &both);
        let (token, append) = appended(&mut host);
        let partitions: Vec<_> = append.entries.iter().map(|entry| entry.partition).collect();
        assert_eq!(partitions, [partition_id(1, 2), partition_id(1, 0), partition_id(2, 0)]);
        host.reply(token, Reply::Append(vec![ok(10), ok(20), ok(30)]));
        let response = host.response::<ProduceRequest>(version);
        let rows = |t: usize| -> Vec<_> {
            response.responses[t].partition_responses.iter().map(|row| (row.index, row.base_offset)).collect()
        };
        assert_eq!((rows(0), rows(1)), (vec![(2, 10), (9, -1), (0, 20)], vec![(0, 30)]));
    }
}

#[test]
fn an_unknown_id_is_told_as_such() {
    let mut host = Host::new();
    for id in [topic_id(99), TopicId::ZERO] {
        let mut wrong = request(13, -1, &[(0, Some(batch(&[b"x"])))]);
        wrong.topic_data[0].topic_id = id;
        let response = host.ask(13, &wrong);
        assert_eq!(response.responses[0].topic_id, id);
        assert_eq!(code(&response.responses[0].partition_responses[0]), ErrorCode::UnknownTopicId);
    }
}

#[test]
fn batches_that_are_refused() {
    let good = batch(&[b"value"]);
    let spoil = |at: usize, with: &[u8]| {
        let mut bytes = good.to_vec();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes::Bytes::from(bytes)
    };
    let resum = |bytes: bytes::Bytes| {
        let mut bytes = bytes.to_vec();
        let crc = polylogue_record::crc::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes::Bytes::from(bytes)
    };
    let control = built(BatchBuilder::new().control(), &[b"x"]);
    let cases = [
        ("two batches", [good.clone(), good.clone()].concat().into(), ErrorCode::InvalidRecord),
        ("cut", good.slice(..good.len() - 1), ErrorCode::InvalidRecord),
        ("empty", bytes::Bytes::new(), ErrorCode::InvalidRecord),
        ("old magic", spoil(16, &[1]), ErrorCode::InvalidRecord),
        ("strange magic", spoil(16, &[9]), ErrorCode::CorruptMessage),
        ("a flipped bit", spoil(good.len() - 1, &[0xff]), ErrorCode::CorruptMessage),
        ("base offset", spoil(0, &5_i64.to_be_bytes()), ErrorCode::InvalidRecord),
        ("no records", resum(spoil(57, &0_i32.to_be_bytes())), ErrorCode::InvalidRecord),
        ("count beyond offsets", resum(spoil(57, &i32::MAX.to_be_bytes())), ErrorCode::InvalidRecord),
        ("negative offsets", resum(spoil(23, &(-2_i32).to_be_bytes())), ErrorCode::InvalidRecord),
        ("control", control, ErrorCode::InvalidRecord),
        ("no sequence", resum(spoil(43, &9_i64.to_be_bytes())), ErrorCode::InvalidRecord),
        ("append time", resum(spoil(21, &8_i16.to_be_bytes())), ErrorCode::InvalidTimestamp),
        ("codec 6", resum(spoil(21, &6_i16.to_be_bytes())), ErrorCode::UnsupportedCompressionType),
    ];
    for (what, bad, expected) in cases {
        let row = refused(&mut Host::new(), 9, bad);
        assert_eq!(code(&row), expected, "{what}: {:?}", row.error_message);
        assert!(row.error_message.is_some(), "{what}: the row has an error message");
    }
}

#[test]
fn zstd_needs_version_7() {
    let zstd = built(BatchBuilder::new().compression(Codec::Zstd, None), &[b"value"]);
    assert_eq!(code(&refused(&mut Host::new(), 6, zstd.clone())), ErrorCode::UnsupportedCompressionType);
    let mut host = Host::new();
    host.send(7, &request(7, -1, &[(0, Some(zstd))]));
    appended(&mut host);
}

#[test]
fn the_largest_message() {
    let of = |max_message_bytes| TopicConfig { max_message_bytes, ..TopicConfig::default() };
    let good = batch(&[&[7; 1_000]]);
    assert_eq!(entry(&mut Host::with_topic(of(good.len())), good.clone()).bytes, good);
    let row = refused(&mut Host::with_topic(of(good.len() - 1)), 9, good);
    assert_eq!(code(&row), ErrorCode::MessageTooLarge);
}

#[test]
fn acks_that_do_not_exist() {
    for acks in [2, -2, i16::MIN, i16::MAX] {
        let mut host = Host::new();
        let response = host.ask(9, &request(9, acks, &[(0, Some(batch(&[b"x"]))), (9, None)]));
        let rows: Vec<_> = response.responses[0].partition_responses.iter().map(code).collect();
        assert_eq!(rows, [ErrorCode::InvalidRequiredAcks, ErrorCode::UnknownTopicOrPartition]);
    }
}

#[test]
fn no_acks_no_answer() {
    let mut host = Host::new();
    host.send(9, &request(9, 0, &[(0, Some(batch(&[b"x"])))]));
    let (token, append) = appended(&mut host);
    assert_eq!(append.ack, Ack::None);
    host.reply(token, Reply::Append(vec![ok(0)]));
    host.no_response();
    assert_eq!((host.session.inflight(), host.close_reason()), (0, None));
    // The next request is answered in order.
    host.send(9, &request(9, 1, &[(0, Some(batch(&[b"x"])))]));
    let (token, _) = appended(&mut host);
    host.reply(token, Reply::Append(vec![ok(1)]));
    assert_eq!(host.response::<ProduceRequest>(9).responses[0].partition_responses[0].base_offset, 1);
}

#[test]
fn no_acks_and_nothing_to_append() {
    let mut host = Host::new();
    host.send(9, &request(9, 0, &[]));
    host.no_response();
    assert_eq!((host.session.inflight(), host.close_reason()), (0, None));
}

#[test]
fn log_append_time() {
    let config = TopicConfig { timestamp_kind: TimestampKind::LogAppend, ..TopicConfig::default() };
    let mut host = Host::with_topic(config);
    // Whatever timestamps the producer sends.
    let sent = timed(BatchBuilder::new(), &[5, START_MS * 2]);
    host.send(9, &request(9, -1, &[(0, Some(sent.clone()))]));
    let (token, append) = appended(&mut host);
    let stored = &append.entries[0];
    let header = BatchHeader::parse(&stored.bytes).unwrap();
    assert!(header.is_log_append_time());
    assert_eq!((header.max_timestamp, stored.max_timestamp), (START_MS, START_MS));
    assert_eq!((header.crc, stored.flags), (stored.body_crc, EntryFlags::LOG_APPEND_TIME));
    verify_crc(&stored.bytes, &header).unwrap();
    assert_eq!(stored.bytes[61..], sent[61..]);
    host.reply(token, Reply::Append(vec![ok(0)]));
    assert_eq!(host.response::<ProduceRequest>(9).responses[0].partition_responses[0].log_append_time_ms, START_MS);
}

/// Regression test: a duplicate was answered with the append time of the retry.
#[test]
fn a_duplicate_has_the_append_time_of_the_first() {
    for (timestamp_kind, expected) in [(TimestampKind::LogAppend, START_MS - 700), (TimestampKind::Create, -1)] {
        let mut host = Host::with_topic(TopicConfig { timestamp_kind, ..TopicConfig::default() });
        host.send(9, &request(9, -1, &[(0, Some(batch(&[b"x"])))]));
        let (token, _) = appended(&mut host);
        let first =
            Appended { base_offset: Offset(4), log_start: Offset(1), duplicate: true, max_timestamp: START_MS - 700 };
        host.reply(token, Reply::Append(vec![Ok(first)]));
        let row = host.response::<ProduceRequest>(9).responses.remove(0).partition_responses.remove(0);
        assert_eq!((row.base_offset, row.log_append_time_ms), (4, expected));
    }
}

#[test]
fn timestamps_have_bounds() {
    let hour = 3_600_000;
    // The default: an hour ahead, any time back.
    let mut host = Host::new();
    entry(&mut host, timed(BatchBuilder::new(), &[0, START_MS + hour]));
    let row = refused(&mut Host::new(), 9, timed(BatchBuilder::new(), &[START_MS, START_MS + hour + 1]));
    assert_eq!(code(&row), ErrorCode::InvalidTimestamp);
    assert_eq!(row.record_errors.iter().map(|e| e.batch_index).collect::<Vec<_>>(), [1]);
    let old = TopicConfig { timestamp_before_ms_max: 1_000, ..TopicConfig::default() };
    let mut host = Host::with_topic(old.clone());
    entry(&mut host, timed(BatchBuilder::new(), &[START_MS, START_MS - 1_000, -1]));
    let row = refused(&mut Host::with_topic(old), 9, timed(BatchBuilder::new(), &[START_MS, START_MS - 1_001]));
    assert_eq!(code(&row), ErrorCode::InvalidTimestamp);
    assert_eq!(row.record_errors.iter().map(|e| e.batch_index).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_topic_with_a_compression_of_its_own() {
    for (wanted, codec) in [
        (Compression::None, Codec::None),
        (Compression::Gzip(-1), Codec::Gzip),
        (Compression::Snappy, Codec::Snappy),
        (Compression::Lz4(9), Codec::Lz4),
        (Compression::Zstd(3), Codec::Zstd),
    ] {
        for from in Codec::ALL {
            let config = TopicConfig { compression: wanted, ..TopicConfig::default() };
            let sent = built(BatchBuilder::new().compression(from, None).producer(4, 0, 9), &[b"one", b"two"]);
            let stored = entry(&mut Host::with_topic(config), sent.clone());
            let header = BatchHeader::parse(&stored.bytes).unwrap();
            assert_eq!(header.compression(), codec.id());
            assert_eq!(stored.bytes == sent, from == codec, "{from:?} to {codec:?}");
            assert_eq!((stored.count, stored.body_crc), (2, header.crc));
            assert_eq!(stored.flags.contains(EntryFlags::COMPRESSED), codec != Codec::None);
            assert_eq!(stored.producer.unwrap().base_sequence, 9);
            validate_produce(&stored.bytes, &Default::default()).unwrap();
        }
    }
}

#[test]
fn transactions_are_refused_in_words_that_producers_understand() {
    let part = built(BatchBuilder::new().producer(4, 0, 0).transactional(), &[b"x"]);
    let mut host = Host::new();
    let mut request = request(9, -1, &[(0, Some(batch(&[b"x"]))), (1, Some(part))]);
    request.transactional_id = Some(text("tx"));
    let response = host.ask(9, &request);
    for row in &response.responses[0].partition_responses {
        assert_eq!(code(row), ErrorCode::TransactionalIdAuthorizationFailed);
        assert_eq!(row.error_message.as_deref(), Some("Transactions are not supported by this broker."));
    }
    assert!(host.asked().is_empty());
    // As in Kafka, a transactional id alone is not a transaction.
    request.topic_data[0].partition_data.remove(1);
    host.send(9, &request);
    appended(&mut host);
}

#[test]
fn nobody_writes_to_internal_topics() {
    let mut request = request(9, -1, &[(0, Some(batch(&[b"x"])))]);
    request.topic_data[0].name = text("__internal");
    // The second is the id of Kafka's admin client, which Kafka allows.
    for client in ["test-client", "__admin_client"] {
        let mut host = Host::new();
        host.topics.add(5, "__internal", 1, TopicConfig::default());
        host.feed(&flat(&encode_request(9, 1, Some(text(client)), &request).unwrap()));
        let (_, response) = host.response_to::<ProduceRequest>(9);
        assert_eq!(code(&response.responses[0].partition_responses[0]), ErrorCode::InvalidTopicException);
        assert!(host.asked().is_empty());
    }
}

#[test]
fn errors_of_the_broker() {
    use Unavailable::{Busy, NotCommitted, StorageFull, Unknown};
    let cases = [
        (AppendError::UnknownPartition, ErrorCode::UnknownTopicId),
        (AppendError::OutOfOrderSequence, ErrorCode::OutOfOrderSequenceNumber),
        (AppendError::InvalidProducerEpoch, ErrorCode::InvalidProducerEpoch),
        (AppendError::Storage, ErrorCode::KafkaStorageError),
        (AppendError::Unavailable(StorageFull), ErrorCode::KafkaStorageError),
        (AppendError::Unavailable(Unknown), ErrorCode::RequestTimedOut),
        (AppendError::Unavailable(NotCommitted), ErrorCode::NotLeaderOrFollower),
        (AppendError::Unavailable(Busy), ErrorCode::RequestTimedOut),
        (AppendError::Unavailable(Unavailable::Stopping), ErrorCode::NotLeaderOrFollower),
    ];
    for (error, expected) in cases {
        let mut host = Host::new();
        host.send(13, &request(13, -1, &[(0, Some(batch(&[b"x"])))]));
        let (token, _) = appended(&mut host);
        host.reply(token, Reply::Append(vec![Err(error)]));
        let response = host.response::<ProduceRequest>(13);
        let row = &response.responses[0].partition_responses[0];
        assert_eq!(code(row), expected);
        // The leader is named exactly where the client has an outdated one.
        let moved = expected == ErrorCode::NotLeaderOrFollower;
        let leader = (row.current_leader.leader_id, row.current_leader.leader_epoch);
        assert_eq!(leader, if moved { (NODE, EPOCH) } else { (-1, -1) });
        assert_eq!(response.node_endpoints.len(), usize::from(moved));
    }
}

#[test]
fn a_slow_flush_is_a_timeout_and_its_answer_comes_too_late() {
    let mut host = Host::new();
    let mut request = request(9, -1, &[(0, Some(batch(&[b"x"])))]);
    request.timeout_ms = 5_000;
    host.send(9, &request);
    let (token, _) = appended(&mut host);
    assert_eq!(host.deadline_in(), Some(5_000));
    host.pass(4_999);
    host.no_response();
    host.pass(1);
    let response = host.response::<ProduceRequest>(9);
    assert_eq!(code(&response.responses[0].partition_responses[0]), ErrorCode::RequestTimedOut);
    host.reply(token, Reply::Append(vec![ok(0)]));
    assert_eq!((host.session.inflight(), host.close_reason()), (0, None));
    // A timeout for followers must not fail a flush that takes some milliseconds.
    request.timeout_ms = 0;
    host.send(9, &request);
    assert_eq!(host.deadline_in(), Some(1_000));
}

#[test]
fn a_list_of_nothings_is_not_worth_its_memory() {
    let mut host = Host::new();
    let nothing = vec![(0, None); 1_000];
    host.send(9, &request(9, -1, &nothing));
    assert!(matches!(host.close_reason(), Some(CloseReason::Body { .. })));
    // As many partitions with a record each are accepted.
    let mut host = Host::new();
    let something = vec![(0, Some(batch(&[b""]))); 1_000];
    host.send(9, &request(9, -1, &something));
    assert_eq!(appended(&mut host).1.entries.len(), 1_000);
}

#[test]
fn the_records_of_a_compacted_topic_have_keys() {
    let compact = TopicConfig { cleanup: Cleanup { delete: false, compact: true }, ..TopicConfig::default() };
    let mut builder = BatchBuilder::new();
    for key in [Some(b"k".as_slice()), None, Some(b"")] {
        builder.push(&NewRecord { timestamp: START_MS, key, value: None, ..NewRecord::default() }).unwrap();
    }
    let row = refused(&mut Host::with_topic(compact.clone()), 9, builder.build().unwrap());
    assert_eq!(code(&row), ErrorCode::InvalidRecord);
    let errors: Vec<_> =
        row.record_errors.iter().map(|e| (e.batch_index, e.batch_index_error_message.clone())).collect();
    assert_eq!(errors, [(1, Some(text("Compacted topic cannot accept message without key")))]);
    entry(&mut Host::with_topic(compact), timed(BatchBuilder::new(), &[START_MS]));
}

#[test]
fn what_a_header_claims_of_the_highest_timestamp_is_corrected() {
    let mut lying = timed(BatchBuilder::new(), &[START_MS]).to_vec();
    polylogue_record::kafka::set_max_timestamp(&mut lying, START_MS + 50).unwrap();
    let stored = entry(&mut Host::new(), lying.into());
    let header = BatchHeader::parse(&stored.bytes).unwrap();
    assert_eq!((header.max_timestamp, stored.max_timestamp, stored.body_crc), (START_MS, START_MS, header.crc));
    assert_eq!(records(&stored.bytes, 1 << 20).unwrap().count(), 1);
}

/// Returns `sent` with modified records and a matching checksum.
fn tampered(sent: &bytes::Bytes, tamper: impl FnOnce(&mut [u8])) -> bytes::Bytes {
    let mut bytes = sent.to_vec();
    tamper(&mut bytes[HEADER_BYTES..]);
    let crc = crc32c(&bytes[CRC_FROM..]);
    bytes[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

/// Regression test: the default topic accepted such batches, since records were not checked, and they stopped each consumer of the partition.
#[test]
fn broken_records_under_a_right_checksum_are_refused() {
    for codec in Codec::ALL {
        let sent = built(BatchBuilder::new().compression(codec, None), &[b"one", b"two"]);
        let broken = tampered(&sent, |records| records.iter_mut().for_each(|byte| *byte = 0x55));
        let row = refused(&mut Host::new(), 9, broken);
        assert!(matches!(code(&row), ErrorCode::InvalidRecord | ErrorCode::CorruptMessage), "{codec:?}: {row:?}");
    }
}

/// Two records with one offset: `LogValidator` renumbers them.
#[test]
fn records_that_are_not_numbered_in_order_are_numbered_anew() {
    for codec in Codec::ALL {
        let sent = built(BatchBuilder::new(), &[b"one", b"two"]);
        // Length, attributes, timestamp delta, offset delta.
        let second = (sent.len() - HEADER_BYTES) / 2 + 3;
        let twice = tampered(&sent, |records| records[second] = 0);
        let twice = recompress_as_it_is(&twice, codec);
        let stored = entry(&mut Host::new(), twice);
        let offsets: Vec<_> = records(&stored.bytes, 1 << 20).unwrap().map(|record| record.unwrap().offset).collect();
        assert_eq!((offsets, stored.count), (vec![0, 1], 2), "{codec:?}");
        let header = BatchHeader::parse(&stored.bytes).unwrap();
        assert_eq!((header.compression(), header.crc), (codec.id(), stored.body_crc));
        validate_produce(&stored.bytes, &Default::default()).unwrap();
    }
}

/// Compresses the records of a batch with `codec`, keeping their numbers.
fn recompress_as_it_is(batch: &bytes::Bytes, codec: Codec) -> bytes::Bytes {
    let header = BatchHeader::parse(batch).unwrap();
    let mut bytes = vec![0; HEADER_BYTES];
    compress(codec, None, &batch[HEADER_BYTES..], &mut bytes).unwrap();
    let batch_length = i32::try_from(bytes.len() - 12).unwrap();
    let header = BatchHeader { batch_length, attributes: i16::from(codec.id()), ..header };
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    tampered(&bytes.into(), |_| {})
}

/// Batches that compress well, all for `a`-0: `(bytes each, the request)`.
fn bombs(count: usize, bytes: usize) -> (usize, ProduceRequest) {
    let bomb = built(BatchBuilder::new().compression(Codec::Zstd, None), &[&vec![0; bytes]]);
    (bomb.len(), request(9, -1, &vec![(0, Some(bomb)); count]))
}

/// Returns the append and the rows' codes, for a broker that accepts everything.
fn codes_of(host: &mut Host, request: &ProduceRequest) -> (AppendRequest, Vec<ErrorCode>) {
    host.send(9, request);
    let (token, append) = appended(host);
    host.reply(token, Reply::Append(append.entries.iter().map(|_| ok(0)).collect()));
    let response = host.response::<ProduceRequest>(9);
    (append, response.responses[0].partition_responses.iter().map(code).collect())
}

/// Regression test: the limit on decompression applied to each batch, and 25,000 batches of 128 MiB fit into a request of 4 MiB.
#[test]
fn the_batches_of_a_request_share_what_they_may_decompress_to() {
    let mut host = Host::with(KafkaSettings { decompressed_bytes_max: 8 << 20, ..KafkaSettings::default() });
    let (len, mut request) = bombs(100, 1 << 20);
    assert!(len < 1_000, "{len}");
    // Batches that are not compressed, or not well, are not affected.
    let plain = PartitionProduceData { index: 1, records: Some(Records::from(batch(&[b"plain"]))) };
    let text: Vec<u8> = (0..2_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let usual = built(BatchBuilder::new().compression(Codec::Zstd, None), &[&text, &text, &text]);
    let usual = PartitionProduceData { index: 2, records: Some(Records::from(usual)) };
    request.topic_data[0].partition_data.extend([plain, usual]);
    let (append, codes) = codes_of(&mut host, &request);
    let taken = codes[..100].iter().filter(|code| **code == ErrorCode::None).count();
    assert!((1..8).contains(&taken), "{taken}");
    assert!(codes[taken..100].iter().all(|code| *code == ErrorCode::MessageTooLarge));
    assert_eq!(codes[100..], [ErrorCode::None; 2]);
    assert_eq!(append.entries.len(), taken + 2);
    // The next request has its own budget, and one batch may use all of it.
    let (_, codes) = codes_of(&mut host, &bombs(1, 7 << 20).1);
    assert_eq!(codes, [ErrorCode::None]);
}

/// Regression test: a topic that stores batches uncompressed kept each at its full size until it was committed.
#[test]
fn the_batches_of_a_request_share_what_they_are_rewritten_to() {
    let mut host = Host::with_topic(TopicConfig { compression: Compression::None, ..TopicConfig::default() });
    let (append, codes) = codes_of(&mut host, &bombs(200, 1 << 19).1);
    assert_eq!(codes[0], ErrorCode::None);
    assert_eq!(codes[199], ErrorCode::MessageTooLarge);
    let stored: usize = append.entries.iter().map(|entry| entry.bytes.len()).sum();
    assert!(stored < 2 << 20, "{stored} bytes");
}
