//! Round trips of every message at every version; damaged messages are errors and never panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::coding;
use crate::samples;

use bytes::Bytes;
use coding::{decode, encode};
use polylogue_kafka_codec::for_each_kafka_message;
use polylogue_kafka_codec::{DecodeError, Message};
use samples::{Gen, Sample};

const SAMPLES: u64 = 12;

/// Returns random messages of every version.
fn samples<M: Message + Sample>() -> impl Iterator<Item = (i16, M)> {
    M::VERSIONS.flat_map(|version| (0..SAMPLES).map(move |seed| (version, M::sample(&mut Gen::new(seed), version))))
}

fn comes_back<M: Message + Sample>() {
    for (version, message) in samples::<M>() {
        let bytes = encode(&message, version);
        let read: M = decode(bytes.clone(), version)
            .unwrap_or_else(|error| panic!("{} version {version}: {error}\n{message:#?}", M::NAME));
        assert_eq!(read, message, "{} version {version}", M::NAME);
        assert_eq!(encode(&read, version), bytes, "{} version {version}", M::NAME);
    }
}

#[test]
fn every_message_comes_back() {
    for_each_kafka_message!(comes_back());
}

fn default_comes_back<M: Message>() {
    for version in M::VERSIONS {
        let read: M = decode(encode(&M::default(), version), version)
            .unwrap_or_else(|error| panic!("{} version {version}: {error}", M::NAME));
        assert_eq!(read, M::default(), "{} version {version}", M::NAME);
    }
}

#[test]
fn every_default_comes_back_in_every_version() {
    for_each_kafka_message!(default_comes_back());
}

fn truncated<M: Message + Sample>() {
    for (version, message) in samples::<M>() {
        let bytes = encode(&message, version);
        for len in 0..bytes.len() {
            let error = decode::<M>(bytes.slice(..len), version).err();
            assert!(
                matches!(error, Some(DecodeError::UnexpectedEnd { .. } | DecodeError::CountTooLarge { .. })),
                "{} version {version}, {len} of {} bytes: {error:?}",
                M::NAME,
                bytes.len()
            );
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    for_each_kafka_message!(truncated());
}

/// A damaged message that still decodes must encode and decode again.
fn damaged<M: Message + Sample>() {
    for (version, message) in samples::<M>() {
        let bytes = encode(&message, version);
        let mut g = Gen::new(bytes.len() as u64);
        for _ in 0..30.min(bytes.len() * 4) {
            let mut copy = bytes.to_vec();
            copy[g.below(bytes.len())] ^= 1 << g.below(8);
            let damaged = Bytes::from(copy);
            if let Ok(read) = decode::<M>(damaged, version) {
                let again: M = decode(encode(&read, version), version).unwrap();
                // Compared as text, where a NaN equals itself.
                assert_eq!(format!("{again:?}"), format!("{read:?}"), "{} version {version}", M::NAME);
            }
        }
    }
}

#[test]
fn no_flipped_bit_panics() {
    for_each_kafka_message!(damaged());
}

fn outside_its_versions<M: Message>() {
    for version in [i16::MIN, -1, M::VERSIONS.start() - 1, M::VERSIONS.end() + 1, i16::MAX] {
        let decoded = decode::<M>(Bytes::from_static(&[0; 64]), version);
        assert_eq!(decoded, Err(DecodeError::UnsupportedVersion { message: M::NAME, version }));
        let mut w = polylogue_kafka_codec::Writer::new();
        assert!(M::default().encode(&mut w, version).is_err(), "{} version {version}", M::NAME);
    }
}

#[test]
fn versions_that_do_not_exist_are_refused() {
    for_each_kafka_message!(outside_its_versions());
}
