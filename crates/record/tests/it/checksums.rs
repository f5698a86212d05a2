//! CRC-32C against another implementation of it.

use polylogue_record::crc;
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn the_check_value_of_the_catalogue() {
    assert_eq!(crc::crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc::crc32c(b""), 0);
}

#[test]
fn every_short_length_and_alignment_has_the_sum_of_the_other_library() {
    let bytes: Vec<u8> = (0..3_000u32).map(|i| (i * 31 % 251) as u8).collect();
    for from in 0..17 {
        for to in (from..600).chain([1_023, 1_024, 1_025, 2_047, 2_048, 2_999]) {
            let slice = &bytes[from..to];
            assert_eq!(crc::crc32c(slice), crc32c::crc32c(slice), "{from}..{to}");
        }
    }
}

/// The other library combines by squaring matrices, which has nothing in common with the tables here.
#[test]
fn combining_over_long_distances_agrees_with_the_other_library() {
    for len in
        [1, 255, 256, 257, 65_535, 65_536, 0x0102_0304, u32::MAX as usize, u32::MAX as usize + 1, 0x0003_1234_5678]
    {
        let expected = crc32c::crc32c_combine(0x1234_5678, 0x9abc_def0, len);
        assert_eq!(crc::combine(0x1234_5678, 0x9abc_def0, len as u64), expected, "{len}");
    }
    assert_eq!(crc::combine(0x1234_5678, 0, 0), 0x1234_5678);
}

proptest! {
    #[test]
    fn sums_agree_with_the_other_library(bytes in vec(any::<u8>(), 0..9_000)) {
        prop_assert_eq!(crc::crc32c(&bytes), crc32c::crc32c(&bytes));
    }

    #[test]
    fn two_sums_combine_to_that_of_the_whole(bytes in vec(any::<u8>(), 0..5_000), at in any::<prop::sample::Index>()) {
        let (a, b) = bytes.split_at(at.index(bytes.len() + 1));
        let whole = crc32c::crc32c(&bytes);
        prop_assert_eq!(crc::combine(crc::crc32c(a), crc::crc32c(b), b.len() as u64), whole);
        prop_assert_eq!(crc::append(crc::crc32c(a), b), whole);
    }

    #[test]
    fn a_front_is_replaced_without_the_rest(
        (old, new) in (0..60usize).prop_flat_map(|n| (vec(any::<u8>(), n), vec(any::<u8>(), n))),
        rest in vec(any::<u8>(), 0..2_000),
    ) {
        let before = crc::crc32c(&[&old[..], &rest].concat());
        let after = crc::crc32c(&[&new[..], &rest].concat());
        let replaced = crc::replace_front(before, crc::crc32c(&old), crc::crc32c(&new), rest.len() as u64);
        prop_assert_eq!(replaced, after);
    }
}
