//! The frames of records that lie in memory as a whole and have nothing unusual about them: nearly all that there are.
//!
//! ```text
//!   plain ──▶ no headers, numbers of one or two bytes ─▶ a frame
//!     └─────▶ frame ──▶ numbers of up to four bytes ───▶ a frame
//!               └─────▶ None: to be read with care
//! ```
//!
//! What is read here costs a bound a field instead of a result a byte. Whatever does not fit, be it wrong or only long, is
//! `None`, and the careful reader of [`super::walk`] says what it is. So there is one judge of what is wrong with a record, and
//! all that has to hold here is that a frame that is found is the one it would find.

use super::BatchHeader;
use super::walk::Frame;

/// The bytes of a number that [`frame`] reads at most: enough for 2^27 on either side of 0, which is a length of 128 MiB and a
/// time of 37 hours. Longer encodings take more care, since not all that can be written fits the number.
const NUMBER_BYTES_MAX: usize = 4;

/// The numbers before the value of a record, as they are written, zigzag and all.
struct Head {
    size: u32,
    timestamp: u32,
    offset: u32,
    key: u32,
    /// Bytes up to the key.
    bytes: usize,
}

/// The frame of the record at the start of `bytes`, if it has no headers, no number of more than two bytes and a key of at most
/// 63, and what comes after it. Fewer than eight bytes left make it `None` too.
///
/// All fields are stepped over in `bytes`, and the record's length is held against what they took at the end.
// A call for each record would be a tenth of all.
#[inline(always)]
pub(super) fn plain<'a>(bytes: &'a [u8], index: i32, header: &BatchHeader) -> Option<(Frame, &'a [u8])> {
    let front = word(bytes)?;
    let (head, size_bytes) = if front & 0x80 == 0 { (head::<1>(front)?, 1) } else { (head::<2>(front)?, 2) };
    let left = bytes.len().wrapping_sub(size_bytes + length(head.size)?);
    let rest = bytes.get(head.bytes + length(head.key).unwrap_or(0)..)?;
    let (value, value_bytes) = short(word(rest)?)?;
    let (&headers, rest) = rest.get(value_bytes + length(value).unwrap_or(0)..)?.split_first()?;
    if headers != 0 || rest.len() != left {
        return None;
    }
    let timestamp = header.timestamp_of(signed(head.timestamp).into());
    let frame = Frame { index, offset_delta: signed(head.offset), timestamp, has_key: length(head.key).is_some() };
    Some((frame, rest))
}

/// The head of a record whose length has `SIZE` bytes: the ways in which it is written mostly, the most frequent first.
#[inline(always)]
fn head<const SIZE: u32>(front: u64) -> Option<Head> {
    head_as::<SIZE, 1, 2>(front)
        .or_else(|| head_as::<SIZE, 1, 1>(front))
        .or_else(|| head_as::<SIZE, 2, 2>(front))
        .or_else(|| head_as::<SIZE, 2, 1>(front))
}

/// The head of a record, if its numbers have so many bytes and that of the key's length one: then all stand in known places.
///
/// ```text
///   | length (SIZE) | attributes (1) | timestamp (TIME) | offset (OFFSET) | key length (1) |      at most 8 bytes
/// ```
#[inline(always)]
fn head_as<const SIZE: u32, const TIME: u32, const OFFSET: u32>(front: u64) -> Option<Head> {
    let (tops, more) = const {
        let (size, time) = (tops(0, SIZE), tops(SIZE + 1, TIME));
        let (offset, key) = (tops(SIZE + 1 + TIME, OFFSET), tops(SIZE + 1 + TIME + OFFSET, 1));
        (size.0 | time.0 | offset.0 | key.0, size.1 | time.1 | offset.1 | key.1)
    };
    // One look tells where all numbers end. The attributes may be anything: nothing has ever used them.
    (front & tops == more).then(|| Head {
        size: number_at(front, 0, SIZE),
        timestamp: number_at(front, SIZE + 1, TIME),
        offset: number_at(front, SIZE + 1 + TIME, OFFSET),
        key: number_at(front, SIZE + 1 + TIME + OFFSET, 1),
        bytes: (SIZE + TIME + OFFSET + 2) as usize,
    })
}

/// The top bits of a number of so many bytes at a place in a word, and those of them that are set: all but the last.
const fn tops(at: u32, bytes: u32) -> (u64, u64) {
    let (mut all, mut byte) = (0, 0);
    while byte < bytes {
        all |= 0x80 << (8 * (at + byte));
        byte += 1;
    }
    (all, all & !(0x80 << (8 * (at + bytes - 1))))
}

/// The number of one or two bytes at a place in a word.
#[inline(always)]
fn number_at(word: u64, at: u32, bytes: u32) -> u32 {
    let low = (word >> (8 * at)) as u32;
    if bytes == 1 { low & 0x7f } else { low & 0x7f | low >> 1 & 0x3f80 }
}

/// The frame of the record at the start of `bytes`, and what comes after it.
///
/// The length comes first and is held against what is there; after that nothing is looked for outside of the record.
#[inline(never)]
pub(super) fn frame<'a>(bytes: &'a [u8], index: i32, header: &BatchHeader) -> Option<(Frame, &'a [u8])> {
    let mut rest = bytes;
    let len = length(number(&mut rest)?)?;
    let (record, after) = rest.split_at_checked(len)?;
    let (_attributes, mut record) = record.split_first()?;
    let timestamp = header.timestamp_of(signed(number(&mut record)?).into());
    let offset_delta = signed(number(&mut record)?);
    let has_key = skip(&mut record)?;
    skip(&mut record)?;
    let headers = length(number(&mut record)?)?;
    // A count that is too high runs into the end of the record.
    for _ in 0..headers {
        let key = length(number(&mut record)?)?;
        record = record.get(key..)?;
        skip(&mut record)?;
    }
    record.is_empty().then_some((Frame { index, offset_delta, timestamp, has_key }, after))
}

/// Steps over bytes with their length in front. Whether there is something: a negative length stands for none.
#[inline]
fn skip(bytes: &mut &[u8]) -> Option<bool> {
    match length(number(bytes)?) {
        Some(len) => {
            *bytes = bytes.get(len..)?;
            Some(true)
        }
        None => Some(false),
    }
}

/// The first eight bytes, the first of them lowest.
#[inline]
fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The number of one or two bytes at the start of a word, and its bytes.
#[inline(always)]
fn short(word: u64) -> Option<(u32, usize)> {
    if word & 0x80 == 0 {
        Some((number_at(word, 0, 1), 1))
    } else if word & 0x8000 == 0 {
        Some((number_at(word, 0, 2), 2))
    } else {
        None
    }
}

/// A number as it is written, zigzag and all: one of at most [`NUMBER_BYTES_MAX`] bytes.
#[inline]
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for at in 0..NUMBER_BYTES_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[inline]
fn signed(number: u32) -> i32 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// A number as a length or a count; `None` when it is negative.
#[inline]
fn length(number: u32) -> Option<usize> {
    (number & 1 == 0).then_some(number as usize >> 1)
}
