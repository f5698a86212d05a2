//! Tests of headers and length prefixes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use bytes::Bytes;
use polylogue_kafka_codec::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use polylogue_kafka_codec::frame::{RequestFrame, decode_response_header, encode_request, encode_response, frame_len};
use polylogue_kafka_codec::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use polylogue_kafka_codec::{ApiKey, DecodeError, ErrorCode, Message};
use polylogue_types::Chunk;

fn join(chunks: &[Chunk]) -> Vec<u8> {
    chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect()
}

#[test]
fn a_frame_states_its_length() {
    assert_eq!(frame_len(&[0, 0, 1], 1000), Ok(None));
    assert_eq!(frame_len(&[0, 0, 1, 0, 9], 1000), Ok(Some(256)));
    assert_eq!(frame_len(&[0, 0, 0, 0], 1000), Ok(Some(0)));
    assert_eq!(frame_len(&[0, 0, 1, 0], 255), Err(DecodeError::FrameLength { len: 256, max: 255 }));
    assert_eq!(frame_len(&[0xff; 4], 1000), Err(DecodeError::FrameLength { len: -1, max: 1000 }));
}

#[test]
fn both_request_headers_have_a_plain_client_id() {
    let request = HeartbeatRequest::default();
    let v3 = join(&encode_request(3, 7, Some("me".into()), &request).unwrap());
    let v4 = join(&encode_request(4, 7, Some("me".into()), &request).unwrap());
    assert_eq!(v3[4..16], [0, 12, 0, 3, 0, 0, 0, 7, 0, 2, b'm', b'e']);
    assert_eq!(v4[4..17], [0, 12, 0, 4, 0, 0, 0, 7, 0, 2, b'm', b'e', 0], "with its empty tagged section");
    for (version, frame) in [(3, v3), (4, v4)] {
        assert_eq!(frame_len(&frame, 1000), Ok(Some(frame.len() - 4)));
        let mut read = RequestFrame::decode(Bytes::from(frame).slice(4..)).unwrap();
        assert_eq!((read.api_key, read.version, read.correlation_id), (ApiKey::Heartbeat, version, 7));
        assert_eq!(read.client_id.as_deref(), Some("me"));
        assert_eq!(HeartbeatRequest::decode(&mut read.body, version), Ok(request.clone()));
        assert_eq!(read.body.finish(), Ok(()));
    }
}

#[test]
fn a_request_for_no_known_api_is_refused() {
    let frame = Bytes::from_static(&[3, 0xe7, 0, 0, 0, 0, 0, 7, 0xff, 0xff]);
    assert_eq!(RequestFrame::decode(frame).unwrap_err(), DecodeError::UnknownApiKey { key: 999 });
    let header_only = Bytes::from_static(&[0, 18, 0, 3, 0, 0]);
    assert!(RequestFrame::decode(header_only).is_err());
}

#[test]
fn api_versions_to_come_are_read_as_flexible_so_that_they_can_be_answered() {
    // KIP-511: the header of version 99 is decoded, and the response has version 0.
    let request = join(&encode_request(4, 9, None, &ApiVersionsRequest::default()).unwrap());
    let mut bytes = request[4..].to_vec();
    bytes[3] = 99;
    let read = RequestFrame::decode(Bytes::from(bytes)).unwrap();
    assert_eq!((read.api_key, read.version, read.correlation_id, read.client_id), (ApiKey::ApiVersions, 99, 9, None));
    assert!(!ApiKey::ApiVersions.valid_versions().contains(&read.version));
    assert_eq!(read.body.remaining(), 3, "two empty names and no tags: the header's own tags are read");
    let error_code = ErrorCode::UnsupportedVersion.code();
    let response = ApiVersionsResponse { error_code, ..ApiVersionsResponse::default() };
    let answer = join(&encode_response(ApiKey::ApiVersions, 0, 9, &response).unwrap());
    assert_eq!(answer, [0, 0, 0, 10, 0, 0, 0, 9, 0, 35, 0, 0, 0, 0]);
}

#[test]
fn the_response_header_of_api_versions_is_never_flexible() {
    for version in ApiKey::ApiVersions.valid_versions() {
        assert_eq!(ApiKey::ApiVersions.response_header_version(version), 0);
        let answer = encode_response(ApiKey::ApiVersions, version, 9, &ApiVersionsResponse::default()).unwrap();
        let frame = Bytes::from(join(&answer)).slice(4..);
        assert_eq!(frame[..4], [0, 0, 0, 9]);
        let (id, mut body) = decode_response_header(frame, ApiKey::ApiVersions, version).unwrap();
        assert_eq!(id, 9);
        assert_eq!(ApiVersionsResponse::decode(&mut body, version), Ok(ApiVersionsResponse::default()));
        assert_eq!(body.finish(), Ok(()));
    }
    let answer = encode_response(ApiKey::Heartbeat, 4, 9, &HeartbeatResponse::default()).unwrap();
    assert_eq!(join(&answer), [0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0], "a tagged section in the header");
}

#[test]
fn every_key_knows_itself() {
    for &key in ApiKey::ALL {
        assert_eq!(ApiKey::try_from(key.code()), Ok(key));
        assert!(!key.name().is_empty());
    }
    assert_eq!(ApiKey::Produce.valid_versions(), 3..=13);
    assert_eq!((ApiKey::Fetch.is_flexible(11), ApiKey::Fetch.is_flexible(12)), (false, true));
    assert!(ApiKey::InitProducerId.latest_version_unstable());
    assert!(!ApiKey::SaslHandshake.is_flexible(i16::MAX), "it has no flexible version");
}

#[test]
fn every_error_code_is_found_by_its_number() {
    for &error in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_code(error.code()), Some(error));
    }
    for unknown in [i16::MIN, -2, 134, i16::MAX] {
        assert_eq!(ErrorCode::from_code(unknown), None);
    }
    assert_eq!(ErrorCode::NotLeaderOrFollower.name(), "NOT_LEADER_OR_FOLLOWER");
    assert!(ErrorCode::NotLeaderOrFollower.retriable());
    assert!(!ErrorCode::ProducerFenced.retriable());
}
