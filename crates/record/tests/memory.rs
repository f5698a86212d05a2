//! What decompression bombs cost: the highest resident memory of a process of its own.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use polylogue_record::compress::{Codec, CompressError, compress, decompress};
    use polylogue_record::kafka::{
        BatchBuilder, BatchError, BatchHeader, NewRecord, RecordRules, check_records, max_timestamp_record, records,
    };
    use std::io::Write;

    const MIB: usize = 1 << 20;
    const CAP: usize = 16 * MIB;
    /// The cap, half of it while a vector grows, and the codec's own: at most a window as large as what comes out.
    const ALLOWED: usize = CAP + CAP / 2 + CAP + 8 * MIB;

    /// The most memory that this process has had, in bytes.
    fn highest() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }

    /// Forgets the highest value so far.
    fn reset_highest() {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
    }

    /// One GiB of zeros, put together from one part that is compressed once.
    fn bomb(codec: Codec) -> Vec<u8> {
        let zeros = vec![0; 4 * MIB];
        let mut one = Vec::new();
        match codec {
            // In one frame, with the largest window that is read.
            Codec::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
                encoder.window_log(27).unwrap();
                (0..256).for_each(|_| encoder.write_all(&zeros).unwrap());
                encoder.finish().unwrap()
            }
            // In one frame, with the largest blocks: 7 bytes of header, the block, 4 bytes of end mark.
            Codec::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max4MB);
                let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(&zeros).unwrap();
                let frame = encoder.finish().unwrap();
                let block = &frame[7..frame.len() - 4];
                [&frame[..7], &block.repeat(256), &[0; 4]].concat()
            }
            Codec::Gzip | Codec::Snappy | Codec::None => {
                compress(codec, None, &zeros, &mut one).unwrap();
                one.repeat(256)
            }
        }
    }

    /// A batch of one record with this compressed payload.
    fn batch_with(codec: Codec, payload: &[u8]) -> Bytes {
        let mut builder = BatchBuilder::new();
        builder.push(&NewRecord::default()).unwrap();
        let mut header = BatchHeader::parse(&builder.build().unwrap()).unwrap();
        header.attributes = i16::from(codec.id());
        header.batch_length = i32::try_from(49 + payload.len()).unwrap();
        Bytes::from([&header.encode()[..], payload].concat())
    }

    fn costs_at_most(allowed: usize, what: &str, run: impl FnOnce()) {
        reset_highest();
        let before = highest();
        run();
        let cost = highest() - before;
        assert!(cost <= allowed, "{what} took {} KiB of {} KiB", cost / 1024, allowed / 1024);
    }

    /// One test, since the tests of a process share its memory.
    #[test]
    fn a_gibibyte_of_zeros_costs_no_more_than_the_cap() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let bomb = bomb(codec);
            costs_at_most(ALLOWED, &format!("decompressing {codec}"), || {
                assert_eq!(decompress(codec, &bomb, CAP), Err(CompressError::TooLarge { cap_bytes: CAP }));
            });
            // The zeros are records of no length: refused at once. A record as long as the bomb has to be read through.
            let mut record = Vec::new();
            compress(codec, None, &[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 0xfe, 0xff, 0xff, 0x7f], &mut record)
                .unwrap();
            for payload in [bomb.clone(), [record, bomb].concat()] {
                let batch = batch_with(codec, &payload);
                let header = BatchHeader::parse(&batch).unwrap();
                let rules = RecordRules { decompressed_bytes_max: CAP, ..RecordRules::default() };
                // In pieces: no more than the codec itself needs, which for zstd is a window of what has come out.
                let window = if codec == Codec::Zstd { CAP } else { 0 };
                costs_at_most(window + 10 * MIB, &format!("checking {codec}"), || {
                    assert!(check_records(&batch, &header, &rules).is_err());
                    assert!(max_timestamp_record(&batch, 0, CAP).is_err());
                });
                costs_at_most(ALLOWED, &format!("reading {codec}"), || {
                    assert!(matches!(records(&batch, CAP), Err(BatchError::Compress(_))));
                });
            }
        }
        let block = snap::raw::Encoder::new().compress_vec(&vec![0; 256 * MIB]).unwrap();
        costs_at_most(MIB, "a raw block of snappy", || {
            assert_eq!(decompress(Codec::Snappy, &block, CAP), Err(CompressError::TooLarge { cap_bytes: CAP }));
        });
        costs_at_most(MIB, "a count of 2^31 - 1", || {
            let mut header = BatchHeader::parse(&batch_with(Codec::None, &[])).unwrap();
            header.record_count = i32::MAX;
            let batch = Bytes::copy_from_slice(&header.encode());
            assert!(check_records(&batch, &header, &RecordRules::default()).is_err());
            assert_eq!(records(&batch, CAP).unwrap().flatten().count(), 0);
        });
    }
}
