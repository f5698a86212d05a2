//! The variable-length numbers of a record: zigzag, seven bits a byte, the lowest first.
//! Source: `ByteUtils.readVarint`, `readVarlong`. Bits that do not fit the number are an error here; Java drops them.

/// Appends a varint (or varlong: the encoding of a small number is the same).
pub(super) fn put(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

/// Bytes of the encoding.
pub(super) const fn len(value: i64) -> usize {
    let bits = u64::BITS - (((value << 1) ^ (value >> 63)).cast_unsigned() | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Adds the next byte of an encoding to what its bytes before gave. `at` is the number of the byte, from 0 on, and `bits`
/// the size of the number.
///
/// `None` when the byte holds bits that the number has no place for, or says that there are more bytes than it can have.
pub(super) const fn push(value: u64, at: u32, byte: u8, bits: u32) -> Option<u64> {
    let shift = at * 7;
    let room = bits - shift;
    let last = room < 7;
    if last && byte >> room != 0 {
        return None;
    }
    Some(value | ((byte & 0x7f) as u64) << shift)
}

/// Undoes the zigzag.
pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], bits: u32) -> Option<i64> {
        let mut value = 0;
        for (at, byte) in (0..).zip(bytes) {
            value = push(value, at, *byte, bits)?;
            if byte < &0x80 {
                return Some(unzigzag(value));
            }
        }
        None
    }

    #[test]
    fn numbers_come_back_and_have_the_stated_length() {
        for value in [0, 1, -1, 63, 64, -64, -65, 8191, 8192, i64::from(i32::MAX), i64::from(i32::MIN)] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(decode(&out, 32), Some(value), "{value}");
            assert_eq!(out.len(), len(value), "{value}");
        }
        for value in [i64::MAX, i64::MIN, i64::from(i32::MAX) + 1, -1_700_000_000_000] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(decode(&out, 64), Some(value), "{value}");
            assert_eq!(out.len(), len(value), "{value}");
        }
    }

    #[test]
    fn bits_without_a_place_are_refused() {
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0x0f], 32), Some(i64::from(i32::MIN)));
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0x1f], 32), None);
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0x8f, 0x00], 32), None);
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 64), Some(i64::MIN));
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], 64), None);
        assert_eq!(decode(&[0xff; 11], 64), None);
    }
}
