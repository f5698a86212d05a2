//! CRC-32C (Castagnoli; "CRC-32/ISCSI"): the checksum of Kafka's record batches and of every stored entry.
//!
//! Each payload byte is summed once. A batch arrives with a CRC-32C over its bytes 21 and following, which is verified at
//! the door; the checksum of the whole entry is then [`combine`]d from it and the sum of the 21 bytes in front.
//!
//! ```text
//!   byte 0                20 21                                        len
//!        | header, patched  | attributes, counts, ids, records            |
//!        '--- crc32c = A ---'--- crc32c = B, verified when it arrived ----'
//!        '------------- combine(A, B, len - 21) = checksum of the entry --'
//! ```
//!
//! The sums are those of `crc-fast`, which is at no length slower than `crc32c` and has no dispatch worth avoiding:
//! nanoseconds on a Xeon with AVX-512 (`cargo bench -p polylogue-record`),
//!
//! | bytes | 13 | 21 | 64 | 256 | 1,024 | 16,384 | 1,048,576 |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | crc-fast 1.10 | 6.5 | 7.6 | 5.0 | 11 | 20 | 186 | 12,042 |
//! | crc32c 0.6.9 | 8.6 | 9.4 | 8.4 | 14 | 55 | 869 | 45,385 |
//!
//! Combining is done here: with tables of powers it takes one multiplication for each byte of the length that is not zero; both libraries square matrices, which takes 10,000 to 100,000 ns.

/// The generator polynomial, bits reversed: x^31 is bit 0.
const POLY: u32 = 0x82f6_3b78;
/// The polynomial "1" in the same reversed notation.
const ONE: u32 = 1 << 31;

/// The product of a polynomial and x.
const fn by_x(a: u32) -> u32 {
    // No branches on the bits: they are as good as random, so that a branch would be mispredicted half of the time.
    (a >> 1) ^ (POLY & 0u32.wrapping_sub(a & 1))
}

/// What the lowest four bits of a sum become when it is multiplied by x^4.
const CARRIES: [u32; 16] = carries();

const fn carries() -> [u32; 16] {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        table[bits] = by_x(by_x(by_x(by_x(bits as u32))));
        bits += 1;
    }
    table
}

/// The product of two polynomials modulo [`POLY`], four bits of the first at a time: a fifth of the instructions of one at a time.
const fn multiply(a: u32, b: u32) -> u32 {
    // The products of `b` and the polynomials below x^4.
    let mut products = [0; 16];
    let (mut bit, mut shifted) = (8, b);
    while bit > 0 {
        let mut lower = 0;
        while lower < 16 {
            products[lower | bit] = products[lower] ^ shifted;
            lower += 2 * bit;
        }
        bit /= 2;
        shifted = by_x(shifted);
    }
    let mut product = 0u32;
    let mut i = 0;
    while i < 8 {
        let bits = (a >> (4 * i)) & 15;
        product = (product >> 4) ^ CARRIES[(product & 15) as usize] ^ products[bits as usize];
        i += 1;
    }
    product
}

/// `POWERS[j][i]` is x to the power 8 * i * 256^j: what `i * 256^j` bytes of zeros do to a sum that stands before them.
/// A length of four bytes then needs one multiplication for each of its bytes that is not zero.
static POWERS: [[u32; 256]; 4] = powers();

const fn powers() -> [[u32; 256]; 4] {
    let mut table = [[ONE; 256]; 4];
    // x^8 in reversed notation.
    let mut step = ONE >> 8;
    let mut j = 0;
    while j < 4 {
        let mut i = 1;
        while i < 256 {
            table[j][i] = multiply(table[j][i - 1], step);
            i += 1;
        }
        step = multiply(table[j][255], step);
        j += 1;
    }
    table
}

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of `before` followed by `bytes`, where `sum` is the CRC-32C of `before` (0 for none).
#[must_use]
pub fn append(sum: u32, bytes: &[u8]) -> u32 {
    combine(sum, crc32c(bytes), bytes.len() as u64)
}

/// The CRC-32C of two byte strings one after the other, from the sum of each and the length of the second in bytes.
/// Lengths of 4 GiB and more are combined in steps.
#[must_use]
pub fn combine(first: u32, second: u32, second_len: u64) -> u32 {
    let mut sum = first;
    let mut len = second_len;
    while len > u64::from(u32::MAX) {
        sum = shift(sum, u32::MAX);
        len -= u64::from(u32::MAX);
    }
    shift(sum, u32::try_from(len).unwrap_or(u32::MAX)) ^ second
}

/// The CRC-32C of a byte string after its front has been replaced by another of the same length: from the sum of all, the
/// sums of the old and the new front, and the length of what follows it in bytes.
#[must_use]
pub fn replace_front(sum: u32, old_front: u32, new_front: u32, rest_len: u64) -> u32 {
    combine(old_front ^ new_front, sum, rest_len)
}

/// What `len` bytes of zeros make of `sum`.
fn shift(mut sum: u32, len: u32) -> u32 {
    if sum == 0 {
        return 0;
    }
    for (powers, byte) in POWERS.iter().zip(len.to_le_bytes()) {
        if byte != 0 {
            sum = multiply(powers[usize::from(byte)], sum);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
