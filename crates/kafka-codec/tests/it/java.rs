//! Compares the codec with the official Java classes: the samples of tests/java-codec/run.sh, byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::coding;

use bytes::Bytes;
use coding::{decode, encode};
use polylogue_kafka_codec::for_each_kafka_message;
use polylogue_kafka_codec::{ErrorCode, Message, Reader, Writer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A message encoded by Java, and Java's encoding of it at the given version.
struct Sample {
    kind: u8,
    input_version: i16,
    input: Bytes,
    /// `None`: Java cannot encode it at this version.
    expected: Option<Bytes>,
}

/// By name and version.
type Samples = BTreeMap<(String, i16), Vec<Sample>>;

/// The kinds of samples: see tests/java-codec/Samples.java.
const KIND_DEFAULT: u8 = 0;
const KIND_RANDOM: u8 = 1;
const KIND_UNKNOWN_TAGS: u8 = 2;
const KIND_OTHER_VERSION: u8 = 3;

/// Returns the samples made by run.sh; `None` skips the test, except in CI.
fn samples_file() -> Option<PathBuf> {
    let file = match std::env::var_os("POLYLOGUE_JAVA_SAMPLES") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/java-codec/samples.bin"),
    };
    if file.is_file() {
        return Some(file);
    }
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!in_ci, "{} is missing: run tests/java-codec/run.sh", file.display());
    println!("skipped: {} is missing, tests/java-codec/run.sh makes it", file.display());
    None
}

fn read_samples(file: &Path) -> Samples {
    let mut r = Reader::new(Bytes::from(std::fs::read(file).unwrap()));
    let mut samples = Samples::new();
    while r.remaining() > 0 {
        let name = r.string("name", false).unwrap().to_string();
        let kind = r.i8("kind").unwrap().unsigned_abs();
        let input_version = r.i16("input version").unwrap();
        let input = r.bytes("input", false).unwrap();
        let version = r.i16("version").unwrap();
        let expected = r.opt_bytes("expected", false, true).unwrap();
        samples.entry((name, version)).or_default().push(Sample { kind, input_version, input, expected });
    }
    samples
}

fn compare<M: Message>(samples: &Samples, seen: &mut usize) {
    for version in M::VERSIONS {
        let key = (M::NAME.to_owned(), version);
        let of_version = samples.get(&key).map(Vec::as_slice).unwrap_or_default();
        let flexible = M::FLEXIBLE_FROM.is_some_and(|from| version >= from);
        let alone = M::VERSIONS.count() == 1;
        for (kind, wanted) in
            [(KIND_DEFAULT, true), (KIND_RANDOM, true), (KIND_UNKNOWN_TAGS, flexible), (KIND_OTHER_VERSION, !alone)]
        {
            let has = of_version.iter().any(|sample| sample.kind == kind);
            assert_eq!(has, wanted, "samples of {} version {version}, kind {kind}", M::NAME);
        }
        for sample in of_version {
            compare_one::<M>(sample, version);
            *seen += 1;
        }
    }
}

fn compare_one<M: Message>(sample: &Sample, version: i16) {
    let Sample { kind, input_version, input, expected } = sample;
    let what = format!("{} version {version}, kind {kind}, from version {input_version}", M::NAME);
    let message: M = decode(input.clone(), *input_version).unwrap_or_else(|error| panic!("{what}: {error}\n{input:?}"));
    if *kind == KIND_DEFAULT {
        assert_eq!(message, M::default(), "{what}");
    }
    match expected {
        Some(expected) => assert_eq!(encode(&message, version), expected, "{what}\n{message:#?}"),
        None => {
            let refused = message.encode(&mut Writer::new(), version);
            assert!(refused.is_err(), "{what}: Java refuses to write this\n{message:#?}");
        }
    }
}

#[test]
fn every_message_is_what_java_writes() {
    let Some(file) = samples_file() else { return };
    let samples = read_samples(&file);
    let mut seen = 0;
    for_each_kafka_message!(compare(&samples, &mut seen));
    println!("{seen} samples compared");
}

#[test]
fn error_codes_are_those_of_java() {
    let Some(file) = samples_file() else { return };
    let table = std::fs::read_to_string(file.with_file_name("errors.tsv")).unwrap();
    let ours: String = ErrorCode::ALL
        .iter()
        .map(|code| format!("{}\t{}\t{}\t{}\n", code.code(), code.name(), code.retriable(), code.message()))
        .collect();
    assert_eq!(ours, table);
}
