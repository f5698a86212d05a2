//! What the parts of a publish cost here, in nanoseconds: `cargo bench -p polylogue-record`.
//!
//! Each line is the median of many timed runs of a loop. On a noisy machine compare the lines of one run with one another.

use polylogue_record::compress::{Codec, compress, decompress};
use polylogue_record::crc;
use polylogue_record::envelope::{Body, Envelope, Form, Producer};
use polylogue_record::kafka::{
    BatchBuilder, BatchHeader, NewRecord, ProduceRules, RecordRules, check_records, entry_checksum, patch_base,
    records, validate_produce,
};
use polylogue_types::{PartitionId, ProducerId};
use std::hint::black_box;

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

fn line(name: &str, run: impl FnMut()) {
    println!("{name:<56} {:>12.1} ns", nanoseconds(run));
}

fn checksums() {
    let bytes = vec![0x5a; 1 << 20];
    for len in [13, 21, 40, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536, 1 << 20] {
        let slice = bytes.get(..len).unwrap_or_default();
        line(&format!("crc32c of {len} bytes: this crate"), || {
            black_box(crc::crc32c(black_box(slice)));
        });
        line(&format!("crc32c of {len} bytes: crc-fast"), || {
            black_box(crc_fast::crc32_iscsi(black_box(slice)));
        });
        line(&format!("crc32c of {len} bytes: crc32c"), || {
            black_box(crc32c::crc32c(black_box(slice)));
        });
    }
    for len in [1_024u64, 65_535, 1_048_576, 0x00ff_ffff, u64::from(u32::MAX)] {
        line(&format!("combine over {len} bytes: this crate"), || {
            black_box(crc::combine(black_box(1), black_box(2), black_box(len)));
        });
        line(&format!("combine over {len} bytes: crc-fast"), || {
            let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
            black_box(crc_fast::checksum_combine(algorithm, black_box(1), black_box(2), black_box(len)));
        });
        line(&format!("combine over {len} bytes: crc32c"), || {
            black_box(crc32c::crc32c_combine(black_box(1), black_box(2), black_box(len) as usize));
        });
    }
}

fn build(codec: Codec, count: usize, size: usize) -> bytes::Bytes {
    let mut builder = BatchBuilder::new().compression(codec, None).producer(7, 0, 0);
    for i in 0..count {
        let value: Vec<u8> =
            (0..size).map(|j| b"abcdefghij klmnopqrst uvwxyz"[(i * 7 + j * (1 + j / 64)) % 28]).collect();
        let headers: [(&[u8], Option<&[u8]>); 1] = [(b"trace", Some(b"0123456789abcdef"))];
        let record =
            NewRecord { timestamp: 1_700_000_000_000, key: Some(b"key"), value: Some(&value), headers: &headers };
        let _ = builder.push(&record);
    }
    builder.build().unwrap_or_default()
}

fn batches() {
    let rules = ProduceRules { batch_bytes_max: usize::MAX, ..ProduceRules::default() };
    for (count, size) in [(1, 1024), (1, 100), (100, 100), (100, 1024), (1000, 1024)] {
        for codec in Codec::ALL {
            let batch = build(codec, count, size);
            let Ok(header) = BatchHeader::parse(&batch) else { continue };
            let name = format!("{count} x {size} bytes, {codec}");
            line(&format!("validate_produce: {name}"), || {
                let _ = black_box(validate_produce(black_box(&batch), &rules));
            });
            line(&format!("check_records: {name}"), || {
                let _ = black_box(check_records(black_box(&batch), &header, &RecordRules::default()));
            });
            line(&format!("records, all read: {name}"), || {
                black_box(records(black_box(&batch), 1 << 27).map(Iterator::count).ok());
            });
        }
    }
    let batch = build(Codec::None, 1, 1024);
    let mut stored = batch.to_vec();
    line("patch_base and entry_checksum: 1 x 1024 bytes", || {
        let _ = patch_base(black_box(&mut stored), 12_345, 6);
        let _ = black_box(entry_checksum(&stored, black_box(77)));
    });
}

fn envelopes() {
    let mut envelope = Envelope::new(PartitionId(7), Form::KafkaV2);
    envelope.body = Body::Inline { len: 1_100, checksum: 1 };
    envelope.producer = Some(Producer { id: ProducerId(1), epoch: 0, base_sequence: 5, last_sequence: 5 });
    let mut out = Vec::new();
    line("envelope with a producer: encode", || {
        out.clear();
        black_box(black_box(&envelope).encode_into(&mut out));
    });
    line("envelope with a producer: decode", || {
        let _ = black_box(Envelope::decode(black_box(&out)));
    });
}

fn codecs() {
    let plain = build(Codec::None, 100, 1024);
    for codec in Codec::ALL {
        let mut packed = Vec::new();
        line(&format!("compress {} bytes: {codec}", plain.len()), || {
            packed.clear();
            let _ = compress(codec, None, black_box(&plain), &mut packed);
        });
        line(&format!("decompress {} to {} bytes: {codec}", packed.len(), plain.len()), || {
            let _ = black_box(decompress(codec, black_box(&packed), 1 << 20));
        });
    }
}

fn main() {
    checksums();
    batches();
    envelopes();
    codecs();
}
