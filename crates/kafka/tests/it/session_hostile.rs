//! Malformed input: no panics, and every response is well-formed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_kafka::session::{CloseReason, supported_apis};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec as g;
use polylogue_kafka_codec::frame::{RequestFrame, decode_response_header};
use polylogue_kafka_codec::{ApiKey, DecodeError, Message, Reader};
use proptest::collection::vec;
use proptest::prelude::*;
use session_host::Host;
use session_host::broker::Broker;
use session_host::requests::frames;
use std::collections::{BTreeSet, VecDeque};

/// Decodes the response of any API.
fn decode_any(key: ApiKey, version: i16, body: &mut Reader) -> Result<(), DecodeError> {
    macro_rules! decode {
        ($($api:ident $module:ident $response:ident),+ $(,)?) => {
            match key {
                $(ApiKey::$api => {
                    g::$module::$response::decode(body, version)?;
                })+
                other => panic!("no one answers {other}"),
            }
        };
    }
    decode!(
        Produce produce ProduceResponse,
        Fetch fetch FetchResponse,
        ListOffsets list_offsets ListOffsetsResponse,
        Metadata metadata MetadataResponse,
        OffsetCommit offset_commit OffsetCommitResponse,
        OffsetFetch offset_fetch OffsetFetchResponse,
        FindCoordinator find_coordinator FindCoordinatorResponse,
        JoinGroup join_group JoinGroupResponse,
        Heartbeat heartbeat HeartbeatResponse,
        LeaveGroup leave_group LeaveGroupResponse,
        SyncGroup sync_group SyncGroupResponse,
        SaslHandshake sasl_handshake SaslHandshakeResponse,
        SaslAuthenticate sasl_authenticate SaslAuthenticateResponse,
        DescribeClientQuotas describe_client_quotas DescribeClientQuotasResponse,
        AlterClientQuotas alter_client_quotas AlterClientQuotasResponse,
        DescribeUserScramCredentials describe_user_scram_credentials DescribeUserScramCredentialsResponse,
        AlterUserScramCredentials alter_user_scram_credentials AlterUserScramCredentialsResponse,
        CreateAcls create_acls CreateAclsResponse,
        DescribeAcls describe_acls DescribeAclsResponse,
        DeleteAcls delete_acls DeleteAclsResponse,
        ApiVersions api_versions ApiVersionsResponse,
        CreateTopics create_topics CreateTopicsResponse,
        DeleteTopics delete_topics DeleteTopicsResponse,
        InitProducerId init_producer_id InitProducerIdResponse,
        OffsetForLeaderEpoch offset_for_leader_epoch OffsetForLeaderEpochResponse,
        ConsumerGroupHeartbeat consumer_group_heartbeat ConsumerGroupHeartbeatResponse,
        ConsumerGroupDescribe consumer_group_describe ConsumerGroupDescribeResponse,
        DescribeGroups describe_groups DescribeGroupsResponse,
        ListGroups list_groups ListGroupsResponse,
        DeleteGroups delete_groups DeleteGroupsResponse,
        OffsetDelete offset_delete OffsetDeleteResponse,
        DescribeQuorum describe_quorum DescribeQuorumResponse,
        UpdateFeatures update_features UpdateFeaturesResponse,
        DescribeCluster describe_cluster DescribeClusterResponse,
        DescribeTopicPartitions describe_topic_partitions DescribeTopicPartitionsResponse,
        CreatePartitions create_partitions CreatePartitionsResponse,
        DeleteRecords delete_records DeleteRecordsResponse,
        DescribeLogDirs describe_log_dirs DescribeLogDirsResponse,
        DescribeProducers describe_producers DescribeProducersResponse,
        ListConfigResources list_config_resources ListConfigResourcesResponse,
        DescribeConfigs describe_configs DescribeConfigsResponse,
        AlterConfigs alter_configs AlterConfigsResponse,
        IncrementalAlterConfigs incremental_alter_configs IncrementalAlterConfigsResponse,
    );
    body.finish()
}

/// Requests whose responses are expected.
type Expected = VecDeque<(ApiKey, i16, i32)>;

/// Parses the requests in `bytes`, as far as they are complete frames.
fn expected(mut bytes: &[u8]) -> Expected {
    let mut expected = Expected::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let Some(frame) = usize::try_from(i32::from_be_bytes(*len)).ok().and_then(|len| rest.get(..len)) else { break };
        let Ok(request) = RequestFrame::decode(Bytes::copy_from_slice(frame)) else { break };
        expected.push_back((request.api_key, request.version, request.correlation_id));
        bytes = &rest[frame.len()..];
    }
    expected
}

/// Takes the output, which must be complete responses to the expected requests, in order.
fn check_output(host: &mut Host, expected: &mut Expected) {
    while let Some(frame) = host.response_frame() {
        loop {
            let (key, version, correlation) = expected.pop_front().expect("a response to nothing");
            let of_unknown = key == ApiKey::ApiVersions && !(0..=4).contains(&version);
            let version = if of_unknown { 0 } else { version };
            let (reported, mut body) = decode_response_header(frame.clone(), key, version).unwrap();
            if reported == correlation {
                decode_any(key, version, &mut body).unwrap_or_else(|error| panic!("{key} {version}: {error}"));
                break;
            }
            // Only produce requests with acks=0 have no response.
            assert_eq!(key, ApiKey::Produce, "{reported} instead of {correlation}");
        }
    }
}

/// Feeds bytes in pieces, serves the session, and advances time in between.
fn run(bytes: &[u8], pieces: &[usize], pass_ms: u64) -> Host {
    let mut host = Host::with(KafkaSettings { request_bytes_max: 1 << 20, ..KafkaSettings::default() });
    let mut broker = Broker::default();
    let mut expected = expected(bytes);
    let mut rest = bytes;
    for piece in pieces.iter().copied().chain([usize::MAX]) {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        rest = later;
        host.feed(now);
        // Twice: taking output frees slots for queued requests.
        for _ in 0..2 {
            broker.serve(&mut host);
            check_output(&mut host, &mut expected);
            host.pass(pass_ms);
        }
        assert!(host.session.inflight() <= 16);
        if host.close_reason().is_some() {
            break;
        }
    }
    host
}

fn corpus() -> &'static [Vec<u8>] {
    static CORPUS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    CORPUS.get_or_init(frames)
}

/// The corpus of this test and of the fuzzer covers all APIs; once the admin requests were missing.
#[test]
fn the_corpus_has_every_api_at_every_version() {
    let asked: BTreeSet<(i16, i16)> = corpus()
        .iter()
        .map(|frame| RequestFrame::decode(Bytes::copy_from_slice(&frame[4..])).unwrap())
        .map(|request| (request.api_key.code(), request.version))
        .collect();
    for api in supported_apis() {
        for version in api.served {
            assert!(asked.contains(&(api.key.code(), version)), "{} {version}", api.key);
        }
    }
}

/// Requests in sequence.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    vec(0..corpus().len(), 1..12).prop_map(|picks| picks.iter().flat_map(|pick| corpus()[*pick].clone()).collect())
}

#[derive(Clone, Debug)]
enum Damage {
    Set(usize, u8),
    /// Four bytes that are a count or a length at some position.
    Count(usize, i32),
    Cut(usize, usize),
    Repeat(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let count = prop_oneof![Just(i32::MAX), Just(i32::MIN), Just(-1), Just(-2), Just(1 << 30), any::<i32>()];
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<usize>(), count).prop_map(|(at, count)| Damage::Count(at, count)),
        (any::<usize>(), 1..40_usize).prop_map(|(at, len)| Damage::Cut(at, len)),
        (any::<usize>(), 1..40_usize).prop_map(|(at, len)| Damage::Repeat(at, len)),
    ]
}

/// Damages the frame's body and repairs its length, so that the next frame is found.
fn damaged(frame: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut body = frame[4..].to_vec();
    for damage in damages {
        let len = body.len();
        if len == 0 {
            break;
        }
        match damage {
            Damage::Set(at, byte) => body[at % len] = *byte,
            Damage::Count(at, count) => {
                let at = at % len;
                let end = (at + 4).min(len);
                body[at..end].copy_from_slice(&count.to_be_bytes()[..end - at]);
            }
            Damage::Cut(at, many) => {
                let at = at % len;
                body.drain(at..(at + many).min(len));
            }
            Damage::Repeat(at, many) => {
                let at = at % len;
                let piece = body[at..(at + many).min(len)].to_vec();
                body.splice(at..at, piece);
            }
        }
    }
    [&i32::try_from(body.len()).unwrap().to_be_bytes(), body.as_slice()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..400), pieces in vec(1..50_usize, 0..4)) {
        run(&bytes, &pieces, 0);
    }

    #[test]
    fn random_bodies(key in 0..80_i16, version in -1..20_i16, body in vec(any::<u8>(), 0..200)) {
        let head = [key.to_be_bytes(), version.to_be_bytes()].concat();
        let rest = [&[0, 0, 0, 9, 0xff, 0xff, 0], body.as_slice()].concat();
        let len = i32::try_from(head.len() + rest.len()).unwrap();
        run(&[&len.to_be_bytes(), head.as_slice(), rest.as_slice()].concat(), &[], 0);
    }

    /// Undamaged requests are all answered, however they are split, except those without a response.
    #[test]
    fn good_requests_in_pieces(bytes in requests(), pieces in vec(1..400_usize, 0..8), pass_ms in 0..300_u64) {
        let mut host = run(&bytes, &pieces, pass_ms);
        host.pass(10_000);
        match host.close_reason() {
            None => prop_assert!(host.input.is_empty()),
            // One request deletes the topic, and another writes to it with acks=0.
            Some(reason) => prop_assert!(matches!(reason, CloseReason::Produce { .. }), "{}", reason),
        }
    }

    #[test]
    fn damaged_requests(
        pick in 0..corpus().len(),
        damages in vec(damage(), 1..6),
        before in requests(),
        after in requests(),
        pieces in vec(1..400_usize, 0..4),
    ) {
        let damaged = damaged(&corpus()[pick], &damages);
        run(&[before, damaged, after].concat(), &pieces, 7);
    }

    #[test]
    fn truncated_requests(pick in 0..corpus().len(), keep in any::<prop::sample::Index>(), before in requests()) {
        let whole = &corpus()[pick];
        let keep = keep.index(whole.len());
        // At the end of the connection.
        run(&[before.as_slice(), &whole[..keep]].concat(), &[], 0);
        // In a frame of the same length.
        if keep > 4 {
            let mut cut = whole[..keep].to_vec();
            cut[..4].copy_from_slice(&i32::try_from(keep - 4).unwrap().to_be_bytes());
            run(&[before, cut].concat(), &[], 0);
        }
    }
}

/// Every frame, truncated at every byte.
#[test]
fn every_request_cut_everywhere() {
    for whole in corpus() {
        for keep in 5..whole.len() {
            let mut cut = whole[..keep].to_vec();
            cut[..4].copy_from_slice(&i32::try_from(keep - 4).unwrap().to_be_bytes());
            run(&cut, &[], 0);
        }
    }
}

/// Every four bytes of every frame, replaced by the largest count and by a negative one.
#[test]
fn counts_that_cannot_be_everywhere() {
    for whole in corpus() {
        for at in 4..whole.len().saturating_sub(4) {
            for count in [i32::MAX, -2] {
                let mut bytes = whole.clone();
                bytes[at..at + 4].copy_from_slice(&count.to_be_bytes());
                run(&bytes, &[], 0);
            }
        }
    }
}
