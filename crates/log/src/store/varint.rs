//! Numbers in as few bytes as they need: seven bits a byte, the lowest first, the high bit says that more follow.

use polylogue_types::bin::{BinError, BinReader};

/// The longest coding of 64 bits. Bytes.
const BYTES_MAX: u32 = 10;

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number; those near zero are short.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Takes a number.
pub(super) fn take(from: &mut BinReader<'_>, field: &'static str) -> Result<u64, BinError> {
    let mut value = 0u64;
    for i in 0..BYTES_MAX {
        let byte = from.u8(field)?;
        // The tenth byte has room for one bit.
        if i == BYTES_MAX - 1 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(BinError { field })
}

/// Takes a number that must fit into 32 bits.
pub(super) fn take_u32(from: &mut BinReader<'_>, field: &'static str) -> Result<u32, BinError> {
    u32::try_from(take(from, field)?).map_err(|_| BinError { field })
}

/// Takes a signed number.
pub(super) fn take_signed(from: &mut BinReader<'_>, field: &'static str) -> Result<i64, BinError> {
    let raw = take(from, field)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let values = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        let signed = [0, -1, 1, 63, -64, 64, i64::MAX, i64::MIN];
        let mut out = Vec::new();
        values.iter().for_each(|v| put(&mut out, *v));
        signed.iter().for_each(|v| put_signed(&mut out, *v));
        let mut r = BinReader::new(&out);
        for v in values {
            assert_eq!(take(&mut r, "value"), Ok(v));
        }
        for v in signed {
            assert_eq!(take_signed(&mut r, "value"), Ok(v));
        }
        assert!(r.end("all").is_ok());
    }

    #[test]
    fn too_long_and_too_short_are_refused() {
        for bad in [&[0x80u8; 9][..], &[0x80; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]] {
            assert!(take(&mut BinReader::new(bad), "value").is_err());
        }
        let mut big = Vec::new();
        put(&mut big, 1 << 32);
        assert!(take_u32(&mut BinReader::new(&big), "value").is_err());
    }
}
