//! The codecs: their own round trip, the forms that other clients write, and what is refused.

use polylogue_record::compress::{Codec, CompressError, Stream, compress, decompress};
use proptest::prelude::*;
use std::io::Write;

fn packed(codec: Codec, level: Option<i32>, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec, level, input, &mut out).unwrap();
    out
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| b"the quick brown fox jumps over the lazy dog "[(i * i / 7 + i) % 44]).collect()
}

fn is_corrupt(result: &Result<Vec<u8>, CompressError>) -> bool {
    matches!(result, Err(CompressError::Corrupt { .. }))
}

proptest! {
    #[test]
    fn what_is_compressed_comes_back(
        input in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..3_000),
            (any::<u8>(), 0..300_000usize).prop_map(|(byte, len)| vec![byte; len]),
        ],
        codec in super::samples::codecs(),
        level in proptest::option::of(-5..12),
    ) {
        let packed = packed(codec, level, &input);
        prop_assert_eq!(decompress(codec, &packed, input.len()), Ok(input));
    }

    #[test]
    fn the_cap_is_held_to_the_byte(len in 1..70_000usize, codec in super::samples::codecs()) {
        let packed = packed(codec, None, &text(len));
        // Not an allocation beyond it either.
        prop_assert!(decompress(codec, &packed, len).is_ok_and(|out| out.capacity() <= len));
        prop_assert_eq!(decompress(codec, &packed, len - 1), Err(CompressError::TooLarge { cap_bytes: len - 1 }));
        prop_assert_eq!(decompress(codec, &packed, 0), Err(CompressError::TooLarge { cap_bytes: 0 }));
    }

    #[test]
    fn any_bytes_are_answered(input in proptest::collection::vec(any::<u8>(), 0..300), codec in super::samples::codecs()) {
        let _ = decompress(codec, &input, 10_000);
    }

    #[test]
    fn damaged_bytes_are_answered(
        len in 1..5_000usize,
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
        codec in super::samples::codecs(),
    ) {
        let mut packed = packed(codec, None, &text(len));
        let at = at.index(packed.len());
        packed[at] ^= flip;
        if let Ok(out) = decompress(codec, &packed, 10_000) {
            prop_assert!(out.len() <= 10_000);
        }
    }
}

/// LZ4's library takes a frame without its end for a whole one, hence this test for all codecs.
#[test]
fn a_cut_is_noticed_wherever_it_is() {
    let input = text(40_000);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let packed = packed(codec, None, &input);
        for len in 0..packed.len() {
            let result = decompress(codec, &packed[..len], 1 << 20);
            // Between two blocks of its framing a snappy stream has no mark of its end.
            let at_a_block = codec == Codec::Snappy && matches!(&result, Ok(out) if out.len() % (32 << 10) == 0);
            assert!(is_corrupt(&result) || at_a_block, "{codec} cut to {len} of {}", packed.len());
        }
    }
}

#[test]
fn at_the_end_a_stream_stays_at_the_end() {
    for codec in Codec::ALL {
        let packed = packed(codec, None, b"abc");
        let mut stream = Stream::new(codec, &packed, 10).unwrap();
        assert_eq!(stream.fill().unwrap(), b"abc", "{codec}");
        stream.consume(1);
        assert_eq!(stream.available(), b"bc", "{codec}");
        stream.consume(99);
        for _ in 0..3 {
            assert_eq!(stream.fill().unwrap(), b"", "{codec}");
        }
    }
}

#[test]
fn snappy_is_written_as_java_writes_it() {
    let packed = packed(Codec::Snappy, None, &text(70_000));
    assert_eq!(&packed[..16], b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    let mut rest = &packed[16..];
    let mut sizes = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (block, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        sizes.push(snap::raw::decompress_len(block).unwrap());
        rest = after;
    }
    assert_eq!(sizes, [32_768, 32_768, 70_000 - 65_536]);
}

#[test]
fn snappy_is_read_raw_framed_and_concatenated() {
    let raw = |input: &[u8]| snap::raw::Encoder::new().compress_vec(input).unwrap();
    let text = text(70_000);
    assert_eq!(decompress(Codec::Snappy, &raw(&text), 1 << 20).unwrap(), text);
    let framed = packed(Codec::Snappy, None, b"abc");
    let twice = [&framed[..], &framed[..]].concat();
    assert_eq!(decompress(Codec::Snappy, &twice, 1 << 20).unwrap(), b"abcabc");
    // An empty block in between does not end the stream.
    let gap = [&framed[..], &1u32.to_be_bytes(), &[0], &framed[16..]].concat();
    assert_eq!(decompress(Codec::Snappy, &gap, 1 << 20).unwrap(), b"abcabc");
    let mut old = framed;
    old[11] = 0;
    assert!(is_corrupt(&decompress(Codec::Snappy, &old, 1 << 20)));
    assert!(is_corrupt(&decompress(Codec::Snappy, b"", 1 << 20)));
}

#[test]
fn snappy_lengths_are_not_believed() {
    // Two bytes that claim to become 2^25, which the cap would allow.
    const ALLOWED: usize = 1 << 26;
    let claim = [0x80, 0x80, 0x80, 0x10, 0x00, 0x61];
    assert_eq!(snap::raw::decompress_len(&claim).unwrap(), 1 << 25);
    let says = |input: &[u8], what: &str| match decompress(Codec::Snappy, input, ALLOWED) {
        Err(CompressError::Corrupt { detail, .. }) => assert!(detail.contains(what), "{detail}"),
        other => panic!("{:?}", other.map(|out| out.len())),
    };
    says(&claim, "claims 33554432");
    says(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x61], "claims 4294967295");
    let header = &b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"[..];
    says(&[header, &6u32.to_be_bytes(), &claim].concat(), "claims 33554432");
    says(&[header, &u32::MAX.to_be_bytes(), &[1, 0, 0x61]].concat(), "3 left");
    // The tightest that snappy can pack is not held to be a lie.
    let zeros = vec![0; 32 << 10];
    let raw = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
    assert_eq!(decompress(Codec::Snappy, &raw, 1 << 20).unwrap(), zeros);
}

#[test]
fn lz4_is_written_as_kip_57_wants_it() {
    let packed = packed(Codec::Lz4, None, &text(200_000));
    // Version 1, independent blocks, no checksums, no size; blocks of 64 KiB.
    assert_eq!(&packed[..6], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]);
}

#[test]
fn lz4_is_read_in_all_its_kinds() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let text = text(300_000);
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max4MB] {
            for sums in [false, true] {
                let info = FrameInfo::new()
                    .block_mode(mode)
                    .block_size(size)
                    .block_checksums(sums)
                    .content_checksum(sums)
                    .content_size(sums.then_some(300_000));
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(&text).unwrap();
                let packed = encoder.finish().unwrap();
                assert_eq!(decompress(Codec::Lz4, &packed, 1 << 20).unwrap(), text, "{mode:?} {size:?} {sums}");
                let damaged = [&packed[..packed.len() / 2], &[0x55], &packed[packed.len() / 2 + 1..]].concat();
                if sums {
                    assert!(is_corrupt(&decompress(Codec::Lz4, &damaged, 1 << 20)), "{mode:?} {size:?}");
                }
            }
        }
    }
}

#[test]
fn lz4_is_one_frame_and_no_other_format() {
    let frame = packed(Codec::Lz4, None, b"abc");
    assert!(is_corrupt(&decompress(Codec::Lz4, &[&frame[..], &frame[..]].concat(), 1 << 20)));
    assert!(is_corrupt(&decompress(Codec::Lz4, &[&frame[..], b"x"].concat(), 1 << 20)));
    let legacy = [0x02, 0x21, 0x4c, 0x18, 4, 0, 0, 0, 0x30, b'a', b'b', b'c', 0, 0, 0, 0];
    assert!(is_corrupt(&decompress(Codec::Lz4, &legacy, 1 << 20)));
    let skippable = [&0x184d_2a50_u32.to_le_bytes()[..], &0u32.to_le_bytes(), &frame[..]].concat();
    assert!(is_corrupt(&decompress(Codec::Lz4, &skippable, 1 << 20)));
}

#[test]
fn gzip_and_zstd_may_be_concatenated() {
    for codec in [Codec::Gzip, Codec::Zstd] {
        let twice = [packed(codec, None, b"abc"), packed(codec, None, b"def")].concat();
        assert_eq!(decompress(codec, &twice, 1 << 20).unwrap(), b"abcdef", "{codec}");
    }
}

/// Java's producer does not say how much is to come, so that level 22 writes a window of 128 MiB, whatever there is.
#[test]
fn zstd_of_the_highest_level_is_read() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(b"abc").unwrap();
    encoder.flush().unwrap();
    encoder.write_all(b"def").unwrap();
    let packed = encoder.finish().unwrap();
    assert_eq!(decompress(Codec::Zstd, &packed, 6).unwrap(), b"abcdef");
}

/// The decoder of a thread is used again, also when it was left in the middle of a frame or has met an error.
#[test]
fn zstd_is_read_after_whatever_was_read_before() {
    let input = text(100_000);
    let good = packed(Codec::Zstd, None, &input);
    for _ in 0..3 {
        let mut left = Stream::new(Codec::Zstd, &good, 1 << 20).unwrap();
        assert!(!left.fill().unwrap().is_empty());
        let nested = decompress(Codec::Zstd, &good, 1 << 20);
        drop(left);
        assert_eq!(nested.as_ref(), Ok(&input));
        assert!(is_corrupt(&decompress(Codec::Zstd, &good[..good.len() / 2], 1 << 20)));
        assert!(is_corrupt(&decompress(Codec::Zstd, b"nothing of the kind", 1 << 20)));
        assert_eq!(decompress(Codec::Zstd, &good, 1 << 20).as_ref(), Ok(&input));
    }
}

#[test]
fn codecs_have_the_names_and_numbers_of_kafka() {
    for (id, name) in [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
        let codec = Codec::from_id(id).unwrap();
        assert_eq!((codec.id(), codec.name(), Codec::from_name(name)), (id, name, Some(codec)));
    }
    assert_eq!(Codec::from_name("uncompressed"), Some(Codec::None));
    assert_eq!((Codec::from_id(5), Codec::from_name("brotli")), (None, None));
}

#[test]
fn levels_change_the_result_where_there_are_levels() {
    let input = text(50_000);
    for codec in [Codec::Gzip, Codec::Zstd] {
        let (lowest, highest) = codec.levels().unwrap().into_inner();
        assert!(packed(codec, Some(highest), &input).len() < packed(codec, Some(lowest), &input).len(), "{codec}");
        assert_eq!(packed(codec, Some(i32::MIN), &input), packed(codec, Some(lowest), &input));
        assert_eq!(packed(codec, Some(i32::MAX), &input), packed(codec, Some(highest), &input));
    }
}
