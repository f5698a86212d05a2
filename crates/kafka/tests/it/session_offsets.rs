//! ListOffsets and OffsetForLeaderEpoch.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_api::{
    EpochEnd, EpochEndQuery, FindOffset, FoundOffset, OffsetSpec, ReadError, Reply, Request as Ask, Token,
};
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsTopic,
};
use polylogue_kafka_codec::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchBuilder, patch_base, set_max_timestamp};
use polylogue_types::Offset;
use session_host::{EPOCH, Host, START_MS, partition_id, text, timed};

fn request(wants: &[(i32, i64)]) -> ListOffsetsRequest {
    let partition = |(partition_index, timestamp): &(i32, i64)| ListOffsetsPartition {
        partition_index: *partition_index,
        timestamp: *timestamp,
        ..ListOffsetsPartition::default()
    };
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic { name: text("a"), partitions: wants.iter().map(partition).collect() }],
        ..ListOffsetsRequest::default()
    }
}

fn questions(host: &mut Host) -> (Token, Vec<FindOffset>) {
    match host.asked_one() {
        (token, Ask::FindOffsets(questions)) => (token, questions),
        other => panic!("{other:?}"),
    }
}

fn found(offset: Option<u64>, entry: Option<Bytes>) -> FoundOffset {
    FoundOffset { offset: offset.map(Offset), log_start: Offset(0), leader_epoch: 2, entry }
}

/// Error, offset, timestamp and epoch.
fn row(row: &ListOffsetsPartitionResponse) -> (ErrorCode, i64, i64, i32) {
    (ErrorCode::from_code(row.error_code).unwrap(), row.offset, row.timestamp, row.leader_epoch)
}

/// Returns the row for one timestamp in `a`-0, for this reply of the broker.
fn one(version: i16, timestamp: i64, answer: Result<FoundOffset, ReadError>) -> (ErrorCode, i64, i64, i32) {
    let mut host = Host::new();
    host.send(version, &request(&[(0, timestamp)]));
    let (token, _) = questions(&mut host);
    host.reply(token, Reply::FindOffsets(vec![answer]));
    row(&host.response::<ListOffsetsRequest>(version).topics[0].partitions[0])
}

/// A batch at offset 100 with these timestamps.
fn entry(codec: Codec, timestamps: &[i64]) -> Bytes {
    let mut bytes = timed(BatchBuilder::new().compression(codec, None), timestamps).to_vec();
    patch_base(&mut bytes, 100, EPOCH).unwrap();
    bytes.into()
}

#[test]
fn positions_become_questions() {
    let mut host = Host::new();
    let ask = |timestamp| match timestamp {
        -1 => OffsetSpec::Latest,
        -2 | -4 => OffsetSpec::Earliest,
        -3 => OffsetSpec::MaxTimestamp,
        at => OffsetSpec::AtTimestamp(at),
    };
    let wants = [(0, -1), (1, -2), (2, 0)];
    host.send(8, &request(&wants));
    let (_, asked) = questions(&mut host);
    let question = |p: i32, t| FindOffset { partition: partition_id(1, p.unsigned_abs()), at: ask(t), from: Offset(0) };
    let expected: Vec<_> = wants.iter().map(|(p, t)| question(*p, *t)).collect();
    assert_eq!(asked, expected);
    let mut host = Host::new();
    host.send(8, &request(&[(0, -3), (1, -4), (2, START_MS)]));
    let (_, asked) = questions(&mut host);
    assert_eq!(asked.iter().map(|q| q.at).collect::<Vec<_>>(), [ask(-3), ask(-4), ask(START_MS)]);
}

#[test]
fn positions_have_no_time() {
    assert_eq!(one(4, -1, Ok(found(Some(9), None))), (ErrorCode::None, 9, -1, 2));
    assert_eq!(one(4, -2, Ok(found(Some(3), None))), (ErrorCode::None, 3, -1, 2));
    assert_eq!(one(3, -2, Ok(found(Some(3), None))), (ErrorCode::None, 3, -1, -1));
}

#[test]
fn what_there_is_no_tier_for_is_nowhere() {
    let mut host = Host::new();
    let response = host.ask(11, &request(&[(0, -5), (1, -6)]));
    for partition in &response.topics[0].partitions {
        assert_eq!(row(partition), (ErrorCode::None, -1, -1, -1));
    }
}

#[test]
fn sentinels_before_their_version() {
    for (timestamp, version) in [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (i64::MIN, 11)] {
        let response = Host::new().ask(version, &request(&[(0, timestamp)]));
        let reported = row(&response.topics[0].partitions[0]);
        assert_eq!(reported, (ErrorCode::UnsupportedVersion, -1, -1, -1), "{timestamp} in {version}");
    }
}

#[test]
fn a_time_means_the_first_message_at_or_after_it() {
    for codec in Codec::ALL {
        let entry = || Ok(found(Some(100), Some(entry(codec, &[1_000, 2_000, 2_000, 3_000]))));
        assert_eq!(one(7, 500, entry()), (ErrorCode::None, 100, 1_000, 2));
        assert_eq!(one(7, 1_000, entry()), (ErrorCode::None, 100, 1_000, 2));
        assert_eq!(one(7, 1_001, entry()), (ErrorCode::None, 101, 2_000, 2));
        assert_eq!(one(7, 2_000, entry()), (ErrorCode::None, 101, 2_000, 2));
        assert_eq!(one(7, 3_000, entry()), (ErrorCode::None, 103, 3_000, 2));
    }
}

#[test]
fn the_highest_time_is_that_of_a_message() {
    for codec in Codec::ALL {
        let entry = entry(codec, &[1_000, 5_000, 5_000, 2_000]);
        assert_eq!(one(7, -3, Ok(found(Some(100), Some(entry)))), (ErrorCode::None, 101, 5_000, 2));
    }
}

/// An entry's base offset and its messages' timestamps, if there is one.
type Held<'t> = Option<(u64, &'t [i64])>;

/// Requests a timestamp in `a`-0. The broker is asked for entries from these offsets on, and returns these, each with its own log
/// start.
fn in_steps(timestamp: i64, steps: &[(u64, u64, Held<'_>)]) -> (ErrorCode, i64, i64, i32) {
    let mut host = Host::new();
    host.send(7, &request(&[(0, timestamp)]));
    for (from, log_start, entry) in steps {
        let (token, asked) = questions(&mut host);
        assert_eq!(asked.iter().map(|q| q.from.0).collect::<Vec<_>>(), [*from]);
        let entry = entry.map(|(base, times)| {
            let mut bytes = entry_at_100(times).to_vec();
            patch_base(&mut bytes, i64::try_from(base).unwrap(), EPOCH).unwrap();
            (base, bytes.into())
        });
        let (offset, entry) = entry.unzip();
        let found = FoundOffset { log_start: Offset(*log_start), ..found(offset, entry) };
        host.reply(token, Reply::FindOffsets(vec![Ok(found)]));
    }
    row(&host.response::<ListOffsetsRequest>(7).topics[0].partitions[0])
}

fn entry_at_100(timestamps: &[i64]) -> Bytes {
    entry(Codec::Lz4, timestamps)
}

/// Regression test: with the log start inside an entry, deleted messages were returned, which cannot be read.
#[test]
fn deleted_messages_of_an_entry_are_not_found_by_time() {
    let cut: Held<'_> = Some((100, &[1_000, 4_000, 2_000, 3_000]));
    let next: Held<'_> = Some((104, &[3_500, 5_000]));
    assert_eq!(in_steps(0, &[(0, 102, cut)]), (ErrorCode::None, 102, 2_000, 2));
    assert_eq!(in_steps(2_500, &[(0, 102, cut)]), (ErrorCode::None, 103, 3_000, 2));
    assert_eq!(in_steps(3_200, &[(0, 102, cut), (104, 102, next)]), (ErrorCode::None, 104, 3_500, 2));
    assert_eq!(in_steps(4_000, &[(0, 102, cut), (104, 102, None)]), (ErrorCode::None, -1, -1, -1));
    // More was deleted meanwhile.
    assert_eq!(in_steps(3_200, &[(0, 102, cut), (104, 105, next)]), (ErrorCode::None, 105, 5_000, 2));
    let third: Held<'_> = Some((106, &[9_000]));
    assert_eq!(
        in_steps(
            6_000,
            &[(0, 102, Some((100, &[7_000, 1, 1]))), (103, 105, Some((104, &[7_000, 1]))), (106, 105, third)]
        ),
        (ErrorCode::None, 106, 9_000, 2)
    );
}

#[test]
fn the_highest_time_is_that_of_a_message_that_can_be_read() {
    let cut: Held<'_> = Some((100, &[1_000, 9_000, 2_000, 3_000, 3_000]));
    let of = |log_start, behind| in_steps(-3, &[(0, 102, cut), (105, log_start, behind)]);
    assert_eq!(of(102, None), (ErrorCode::None, 103, 3_000, 2), "the first of several");
    assert_eq!(of(102, Some((105, &[2_999]))), (ErrorCode::None, 103, 3_000, 2));
    assert_eq!(of(102, Some((105, &[3_000]))), (ErrorCode::None, 103, 3_000, 2));
    assert_eq!(of(102, Some((105, &[3_000, 3_001]))), (ErrorCode::None, 106, 3_001, 2));
    assert_eq!(of(105, Some((105, &[1]))), (ErrorCode::None, 105, 1, 2), "the other one was deleted meanwhile");
    assert_eq!(of(105, None), (ErrorCode::None, -1, -1, -1));
    let whole: Held<'_> = Some((100, &[1_000, 2_000, 9_000, 9_000]));
    assert_eq!(in_steps(-3, &[(0, 102, whole)]), (ErrorCode::None, 102, 9_000, 2), "none behind it is higher");
}

#[test]
fn no_message_is_no_error() {
    assert_eq!(one(7, 9_000, Ok(found(None, None))), (ErrorCode::None, -1, -1, -1));
    assert_eq!(one(7, -3, Ok(found(None, None))), (ErrorCode::None, -1, -1, -1));
}

/// A header that promises more than its records contain: the result is not later than the entry.
#[test]
fn a_time_that_only_the_header_has() {
    let mut lying = entry(Codec::None, &[1_000]).to_vec();
    set_max_timestamp(&mut lying, 9_000).unwrap();
    assert_eq!(one(7, 5_000, Ok(found(Some(100), Some(lying.into())))), (ErrorCode::None, 100, 9_000, 2));
}

#[test]
fn an_entry_that_cannot_be_read() {
    let mut damaged = entry(Codec::Gzip, &[1_000]).to_vec();
    damaged.truncate(70);
    let reported = one(7, 500, Ok(found(Some(100), Some(damaged.into()))));
    assert_eq!(reported, (ErrorCode::CorruptMessage, -1, -1, -1));
}

#[test]
fn errors() {
    assert_eq!(one(7, -1, Err(ReadError::UnknownPartition)).0, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(one(7, -1, Err(ReadError::Storage)).0, ErrorCode::KafkaStorageError);
    let response = Host::new().ask(7, &request(&[(3, -1), (-1, -1)]));
    for partition in &response.topics[0].partitions {
        assert_eq!(row(partition).0, ErrorCode::UnknownTopicOrPartition);
    }
    for (known, expected) in [(EPOCH - 1, ErrorCode::FencedLeaderEpoch), (EPOCH + 1, ErrorCode::UnknownLeaderEpoch)] {
        let mut asked = request(&[(0, -1)]);
        asked.topics[0].partitions[0].current_leader_epoch = known;
        assert_eq!(row(&Host::new().ask(7, &asked).topics[0].partitions[0]).0, expected);
    }
}

#[test]
fn a_partition_that_is_named_twice_is_refused_twice() {
    let mut host = Host::new();
    host.send(7, &request(&[(0, -1), (1, -1), (0, -2)]));
    let (token, asked) = questions(&mut host);
    assert_eq!(asked.len(), 1);
    host.reply(token, Reply::FindOffsets(vec![Ok(found(Some(5), None))]));
    let response = host.response::<ListOffsetsRequest>(7);
    let errors: Vec<_> = response.topics[0].partitions.iter().map(|p| row(p).0).collect();
    assert_eq!(errors, [ErrorCode::InvalidRequest, ErrorCode::None, ErrorCode::InvalidRequest]);
}

#[test]
fn where_epochs_end() {
    let mut host = Host::new();
    let ask = |partition, current_leader_epoch, leader_epoch| OffsetForLeaderPartition {
        partition,
        current_leader_epoch,
        leader_epoch,
    };
    let request = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![
            OffsetForLeaderTopic {
                topic: text("a"),
                partitions: vec![ask(0, EPOCH, 1), ask(1, EPOCH - 1, 1), ask(2, -1, 9), ask(3, -1, 1)],
            },
            OffsetForLeaderTopic { topic: text("b"), partitions: vec![ask(0, EPOCH + 1, 1), ask(0, -1, 2)] },
        ],
    };
    host.send(4, &request);
    let (token, Ask::EpochEnds(queries)) = host.asked_one() else { panic!() };
    let query = |partition, epoch| EpochEndQuery { partition, epoch };
    assert_eq!(queries, [query(partition_id(1, 0), 1), query(partition_id(1, 2), 9), query(partition_id(2, 0), 2)]);
    host.reply(
        token,
        Reply::EpochEnds(vec![
            Ok(EpochEnd { epoch: 1, end: Some(Offset(7)) }),
            Ok(EpochEnd { epoch: -1, end: None }),
            Err(ReadError::UnknownPartition),
        ]),
    );
    let response = host.response::<OffsetForLeaderEpochRequest>(4);
    let rows: Vec<_> = response
        .topics
        .iter()
        .flat_map(|t| &t.partitions)
        .map(|p| (ErrorCode::from_code(p.error_code).unwrap(), p.partition, p.leader_epoch, p.end_offset))
        .collect();
    assert_eq!(
        rows,
        [
            (ErrorCode::None, 0, 1, 7),
            (ErrorCode::FencedLeaderEpoch, 1, -1, -1),
            (ErrorCode::None, 2, -1, -1),
            (ErrorCode::UnknownTopicOrPartition, 3, -1, -1),
            (ErrorCode::UnknownLeaderEpoch, 0, -1, -1),
            (ErrorCode::UnknownTopicOrPartition, 0, -1, -1),
        ]
    );
}

/// Regression test: lookups by timestamp each hold a batch, and all were in memory at once: 10,000 partitions of 1 MiB.
#[test]
fn times_are_asked_for_a_few_at_once() {
    let mut host = Host::new();
    host.topics.add(1, "a", 40, polylogue_api::TopicConfig::default());
    let wants: Vec<_> = (0..40).map(|p| (p, if p % 4 == 3 { -1 } else { 1_000 })).collect();
    host.send(7, &request(&wants));
    let mut asked = Vec::new();
    while let Some((token, Ask::FindOffsets(questions))) = host.session.poll_request() {
        assert_eq!(host.response_frame(), None);
        assert!(host.asked().is_empty());
        let by_time = |q: &&FindOffset| q.at == OffsetSpec::AtTimestamp(1_000);
        assert!(questions.iter().filter(by_time).count() <= 16);
        let answer = |question: &FindOffset| match question.at {
            OffsetSpec::Latest => Ok(found(Some(question.partition.0), None)),
            _ => Ok(found(Some(100), Some(entry(Codec::None, &[1_000])))),
        };
        let answers = questions.iter().map(answer).collect();
        host.reply(token, Reply::FindOffsets(answers));
        asked.push(questions.len());
    }
    assert_eq!(asked, [21, 19]);
    let response = host.response::<ListOffsetsRequest>(7);
    for (p, reported) in response.topics[0].partitions.iter().enumerate() {
        let number = partition_id(1, u32::try_from(p).unwrap()).0;
        let expected = if p % 4 == 3 { (i64::try_from(number).unwrap(), -1) } else { (100, 1_000) };
        assert_eq!((reported.offset, reported.timestamp), expected, "{p}");
    }
}
