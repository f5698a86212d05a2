//! Compression.

use super::{Codec, CompressError, snappy, zstd_frames};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use std::io::Write;

/// Compresses `input` and appends it to `out`.
///
/// `level` is clamped to [`Codec::levels`]; without one it is the codec's default (gzip 6, zstd 3). Snappy has no levels, and
/// lz4 is always written at its fastest. Zstd's windows are of 2 MiB at the most, and what is longer than 4 MiB is compressed at level 9
/// at the most: that bounds the memory (about 50 MiB) and the time that an operator's level costs.
///
/// # Errors
/// What the codec's library says; none does for bytes in memory, short of memory running out.
pub fn compress(codec: Codec, level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    let level = codec.levels().zip(level).map(|(levels, level)| level.clamp(*levels.start(), *levels.end()));
    match codec {
        Codec::None => {
            out.extend_from_slice(input);
            Ok(())
        }
        Codec::Gzip => gzip(level, input, out).map_err(|e| CompressError::corrupt(codec, e)),
        Codec::Snappy => snappy::compress_into(input, out),
        Codec::Lz4 => lz4(input, out).map_err(|e| CompressError::corrupt(codec, e)),
        Codec::Zstd => zstd(level, input, out),
    }
}

fn gzip(level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    let level =
        level.and_then(|level| u32::try_from(level).ok()).map_or_else(Default::default, flate2::Compression::new);
    let mut encoder = flate2::write::GzEncoder::new(out, level);
    encoder.write_all(input)?;
    encoder.finish().map(drop)
}

/// KIP-57: blocks that do not refer to one another, no content checksum. 64 KiB is what the Java producer writes.
fn lz4(input: &[u8], out: &mut Vec<u8>) -> Result<(), lz4_flex::frame::Error> {
    let info =
        FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB).content_checksum(false);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(input)?;
    encoder.finish().map(drop)
}

fn zstd(level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    zstd_frames::compress(level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL), input, out)
}
