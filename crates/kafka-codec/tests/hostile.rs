//! False counts and lengths must not make the decoder allocate. A test program of its own, because it measures the memory of
//! the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "it/coding/mod.rs"]
mod coding;
#[path = "it/samples/mod.rs"]
mod samples;

use bytes::Bytes;
use coding::{decode, encode};
use polylogue_kafka_codec::Message;
use polylogue_kafka_codec::for_each_kafka_message;
use samples::{Gen, Sample};

/// Returns the peak address space of this process. KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Overwrites every position of a message with the largest numbers of both encodings, so that every count and length takes its
/// maximum once, and decodes the result.
fn lies<M: Message + Sample>() {
    let lies: [&[u8]; 4] =
        [&[0x7f, 0xff, 0xff, 0xff], &[0xff, 0xff, 0xff, 0xff, 0x07], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0x7f, 0xff]];
    for version in M::VERSIONS {
        for seed in 0..4 {
            let bytes = encode(&M::sample(&mut Gen::new(seed), version), version);
            for (at, lie) in (0..bytes.len()).flat_map(|at| lies.map(|lie| (at, lie))) {
                let mut copy = bytes.to_vec();
                copy.splice(at..(at + lie.len()).min(bytes.len()), lie.iter().copied());
                let _ = decode::<M>(Bytes::from(copy), version);
            }
        }
    }
}

#[test]
fn the_largest_counts_cost_no_memory() {
    let before = peak_kib();
    for_each_kafka_message!(lies());
    let grown = peak_kib() - before;
    // A false count of 2^31 - 1 would allocate tens of GiB; the allocator's own growth stays below 256 MiB.
    assert!(grown < 256 << 10, "{grown} KiB more than before");
}
