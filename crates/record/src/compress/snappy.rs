//! Snappy: raw blocks, and the framing that snappy-java puts around them.
//!
//! ```text
//!    0                       8          12           16
//!   +-----------------------+----------+------------+--------+-----------+--------+-----------+
//!   | 82 'S' 'N' 'A' 'P'    | version  | compatible | length | raw block | length | raw block | ...
//!   |    'P' 'Y' 00         | i32 = 1  | i32 = 1    | i32    |           | i32    |           |
//!   +-----------------------+----------+------------+--------+-----------+--------+-----------+
//!   numbers big endian; a raw block starts with its decompressed length as a varint of up to 5 bytes
//! ```
//!
//! Where a length would be, the 16 bytes of the header may stand again: streams may be concatenated.

use super::{Codec, CompressError};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;
/// The version that is written, and the lowest that is read.
const VERSION: i32 = 1;
/// The default block size of snappy-java.
const BLOCK_BYTES: usize = 32 << 10;
/// The most bytes that one byte of a raw block can stand for: three bytes copy 64.
const EXPANSION_MAX: usize = 22;

/// The raw blocks of an input that are still to be read.
pub(super) struct Blocks<'a> {
    rest: &'a [u8],
    framed: bool,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(input: &'a [u8]) -> Result<Blocks<'a>, CompressError> {
        if input.is_empty() {
            return Err(corrupt("no bytes"));
        }
        // Like snappy-java: bytes that do not start with the whole header are one raw block.
        let framed = input.len() >= HEADER_BYTES && input.starts_with(&MAGIC);
        let mut blocks = Blocks { rest: input, framed };
        if framed {
            blocks.skip_headers()?;
        }
        Ok(blocks)
    }

    fn skip_headers(&mut self) -> Result<(), CompressError> {
        while let Some((header, rest)) = self.rest.split_first_chunk::<HEADER_BYTES>() {
            if !header.starts_with(&MAGIC) {
                break;
            }
            let [.., a, b, c, d, _, _, _, _] = *header;
            let version = i32::from_be_bytes([a, b, c, d]);
            if version < VERSION {
                return Err(corrupt(format_args!("stream version {version} is below {VERSION}")));
            }
            self.rest = rest;
        }
        Ok(())
    }

    /// Decompresses the next block into `out`, replacing its content. `out` is empty after the last one.
    pub(super) fn next_into(&mut self, out: &mut Vec<u8>, cap_left: usize, cap: usize) -> Result<(), CompressError> {
        out.clear();
        // A block may be empty; an empty result means the end.
        while out.is_empty() && !self.rest.is_empty() {
            let block = self.next_block()?;
            let len = snap::raw::decompress_len(block).map_err(corrupt)?;
            if len > block.len().saturating_mul(EXPANSION_MAX) {
                return Err(corrupt(format_args!("a block of {} bytes claims {len}", block.len())));
            }
            if len > cap_left {
                return Err(CompressError::TooLarge { cap_bytes: cap });
            }
            out.resize(len, 0);
            let written = snap::raw::Decoder::new().decompress(block, out).map_err(corrupt)?;
            out.truncate(written);
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<&'a [u8], CompressError> {
        if !self.framed {
            return Ok(std::mem::take(&mut self.rest));
        }
        let (len, rest) = self.rest.split_first_chunk().ok_or_else(|| corrupt("ends inside a block's length"))?;
        let len = u32::from_be_bytes(*len) as usize;
        let (block, rest) = rest
            .split_at_checked(len)
            .ok_or_else(|| corrupt(format_args!("a block of {len} bytes with {} left", rest.len())))?;
        self.rest = rest;
        self.skip_headers()?;
        Ok(block)
    }
}

/// Appends `input` to `out` in the framing of snappy-java.
pub(super) fn compress_into(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    let mut scratch = vec![0; snap::raw::max_compress_len(BLOCK_BYTES.min(input.len()))];
    for block in input.chunks(BLOCK_BYTES) {
        let len = encoder.compress(block, &mut scratch).map_err(corrupt)?;
        let written = scratch.get(..len).unwrap_or_default();
        // A block of 32 KiB compresses to less than 64 KiB.
        out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(written);
    }
    Ok(())
}

fn corrupt(detail: impl std::fmt::Display) -> CompressError {
    CompressError::corrupt(Codec::Snappy, detail)
}
