//! Record batches as a hostile client, or a damaged disk, might hand them in: nothing panics, and what passes the checks
//! holds what it says.
//!
//! The first byte says how the rest is used. The checksum is put right in half of the runs, since a fuzzer finds none.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use polylogue_record::compress::{Codec, decompress};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::Envelope;
use polylogue_record::kafka::{
    BatchHeader, BatchIter, CRC_FROM, HEADER_BYTES, ProduceRules, RecordRules, check_records, find_offset,
    first_at_or_after_timestamp, headers, max_timestamp_record, patch_base, recompress, records,
    rewrite_log_append_time, validate_produce, verify_crc,
};

const CAP: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    match how % 4 {
        0 => read(&Bytes::copy_from_slice(bytes)),
        1 => read(&whole_batch(bytes, how >> 2)),
        2 => codecs(bytes, how >> 2),
        _ => envelope(bytes),
    }
});

/// Makes a batch out of any bytes: magic, length and checksum are put right, and half of the times the counts.
fn whole_batch(bytes: &[u8], how: u8) -> Bytes {
    let mut out = bytes.to_vec();
    out.resize(out.len().max(HEADER_BYTES), 0);
    let mut header = BatchHeader::parse(&out).expect("as long as a header");
    header.magic = 2;
    header.batch_length = out.len() as i32 - 12;
    if how & 1 == 0 {
        header.base_offset = 0;
        header.attributes = i16::from(how >> 1) % 5;
        header.producer_id = -1;
        header.record_count = header.record_count.rem_euclid(8) + 1;
        header.last_offset_delta = header.record_count - 1;
    }
    out[..HEADER_BYTES].copy_from_slice(&header.encode());
    let crc = crc32c(&out[CRC_FROM..]);
    out[17..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(out)
}

fn read(bytes: &Bytes) {
    for batch in BatchIter::new(bytes.clone()).flatten() {
        assert_eq!(batch.header.total_len(), batch.bytes.len() as i64);
        one(&batch.bytes);
    }
    for batch in headers(bytes).flatten() {
        let found = find_offset(bytes, batch.header.last_offset());
        assert!(found.is_ok_and(|found| found.is_some_and(|found| found <= batch.position)));
    }
    one(bytes);
}

fn one(batch: &Bytes) {
    let _ = first_at_or_after_timestamp(batch, 1, 1, CAP);
    let _ = max_timestamp_record(batch, 0, CAP);
    let again = recompress(batch, Codec::Snappy, None, CAP);
    let all = records(batch, CAP).and_then(|records| records.collect::<Result<Vec<_>, _>>());
    for record in all.iter().flatten() {
        assert_eq!(record.headers.iter().count(), record.headers.len());
    }
    let Ok(valid) = validate_produce(batch, &ProduceRules::default()) else { return };
    let rules = RecordRules { decompressed_bytes_max: CAP, ..RecordRules::default() };
    let Ok(checked) = check_records(batch, &valid.header, &rules) else { return };
    // What has been checked can be read, and says the same after everything a broker may do to it.
    let all = all.expect("checked");
    assert_eq!(all.len(), valid.count as usize);
    assert_eq!(all.iter().map(|record| record.timestamp).fold(-1, i64::max), checked.max_timestamp);
    let again = again.expect("checked");
    let read_again: Vec<_> = records(&again, CAP).expect("checked").map(|record| record.expect("checked")).collect();
    if checked.consecutive {
        assert_eq!(all, read_again);
    }
    let stamped = rewrite_log_append_time(batch, 77).expect("a whole header");
    let mut stored = stamped.to_vec();
    patch_base(&mut stored, 1 << 40, 5).expect("a whole header");
    let header = BatchHeader::parse(&stored).expect("a whole header");
    assert_eq!(verify_crc(&stored, &header), Ok(()));
}

fn codecs(bytes: &[u8], how: u8) {
    for codec in Codec::ALL.into_iter().filter(|codec| how & 7 > 4 || codec.id() == how & 7) {
        if let Ok(out) = decompress(codec, bytes, CAP) {
            assert!(out.len() <= CAP);
        }
    }
}

fn envelope(bytes: &[u8]) {
    if let Ok((envelope, used)) = Envelope::decode(bytes) {
        let mut out = Vec::new();
        assert!(envelope.encode_into(&mut out) <= used);
        assert_eq!(Envelope::decode(&out).map(|(again, _)| again), Ok(envelope));
    }
}
