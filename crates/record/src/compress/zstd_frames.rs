//! Zstd frames, with a decoder and a compressor that are used again.
//!
//! Making a decoder takes 25 microseconds, most of them for its 95 KB of fresh memory, and decoding a batch of one record
//! less than one. So each thread keeps one, as long as it has not grown.

use super::{Codec, CompressError};
use std::cell::Cell;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, get_error_name};

/// The largest window of a frame, as a power of two: zstd's own default, which Kafka's brokers have too, and what its level
/// 22 writes. The memory for it is used as the bytes come out, so that the cap bounds it as well.
const WINDOW_LOG_MAX: u32 = 27;
/// The largest decoder that is kept: one that has read a frame of level 3, the default, whose length was not known.
const KEPT_BYTES_MAX: usize = 4 << 20;

thread_local! {
    static SPARE: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// The frames of an input that are still to be read.
pub(super) struct Frames<'a> {
    /// Taken when this is dropped.
    decoder: Option<DCtx<'static>>,
    rest: &'a [u8],
    /// Whether the end of a frame is still to come.
    inside: bool,
}

impl<'a> Frames<'a> {
    pub(super) fn new(input: &'a [u8]) -> Result<Frames<'a>, CompressError> {
        // No input is no frame, hence an error.
        Ok(Frames { decoder: Some(decoder()?), rest: input, inside: true })
    }

    /// Decompresses into the front of `out`, which is not empty. 0 at the end only.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, CompressError> {
        let Some(decoder) = &mut self.decoder else { return Ok(0) };
        let mut output = OutBuffer::around(out);
        while output.pos() == 0 && (self.inside || !self.rest.is_empty()) {
            let mut input = InBuffer::around(self.rest);
            let hint = decoder.decompress_stream(&mut output, &mut input).map_err(error)?;
            let consumed = input.pos();
            self.inside = hint != 0;
            self.rest = self.rest.get(consumed..).unwrap_or_default();
            if self.inside && consumed == 0 && output.pos() == 0 {
                return Err(CompressError::corrupt(Codec::Zstd, "ends inside a frame"));
            }
        }
        Ok(output.pos())
    }
}

impl Drop for Frames<'_> {
    fn drop(&mut self) {
        if let Some(decoder) = self.decoder.take().filter(|decoder| decoder.sizeof() <= KEPT_BYTES_MAX) {
            // At the end of a thread there is no place to keep it in.
            let _ = SPARE.try_with(|spare| spare.set(Some(decoder)));
        }
    }
}

fn decoder() -> Result<DCtx<'static>, CompressError> {
    if let Ok(Some(mut spare)) = SPARE.try_with(Cell::take) {
        spare.reset(ResetDirective::SessionOnly).map_err(error)?;
        return Ok(spare);
    }
    let mut fresh = DCtx::try_create().ok_or_else(|| CompressError::corrupt(Codec::Zstd, "out of memory"))?;
    fresh.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(error)?;
    Ok(fresh)
}

/// The largest window that is written, as a power of two: that of level 3, the default, for what is long. With that of level 22, 128 MiB, the
/// tables of one compressor take 1 GB.
const WRITTEN_WINDOW_LOG_MAX: u32 = 21;
/// The highest level for more than [`DEAR_BYTES_MAX`]: those above it take up to a second for each megabyte.
const LONG_LEVEL_MAX: i32 = 9;
/// How much is compressed at whatever level is wanted. Bytes.
const DEAR_BYTES_MAX: usize = 4 << 20;
/// By how much the output grows while something is compressed into it. Bytes.
const OUT_STEP_BYTES: usize = 64 << 10;
/// The largest compressor that is kept by a thread. Bytes.
const KEPT_COMPRESSOR_BYTES_MAX: usize = 8 << 20;

thread_local! {
    static SPARE_COMPRESSOR: Cell<Option<CCtx<'static>>> = const { Cell::new(None) };
}

/// Appends `input` to `out` as one frame. The compressor is used again by the thread, unless it has grown.
pub(super) fn compress(level: i32, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    let spare = SPARE_COMPRESSOR.try_with(Cell::take).ok().flatten();
    let fresh = || CCtx::try_create().ok_or_else(|| CompressError::corrupt(Codec::Zstd, "out of memory"));
    let mut compressor = spare.map_or_else(fresh, Ok)?;
    let level = if input.len() > DEAR_BYTES_MAX { level.min(LONG_LEVEL_MAX) } else { level };
    compressor.reset(ResetDirective::SessionAndParameters).map_err(error)?;
    compressor.set_parameter(CParameter::CompressionLevel(level)).map_err(error)?;
    if input.len() > 1 << WRITTEN_WINDOW_LOG_MAX {
        compressor.set_parameter(CParameter::WindowLog(WRITTEN_WINDOW_LOG_MAX)).map_err(error)?;
    }
    // Lets the codec choose a window no larger than the input, which readers then need not allocate either.
    compressor.set_pledged_src_size(Some(input.len() as u64)).map_err(error)?;
    let mut source = InBuffer::around(input);
    loop {
        out.reserve(OUT_STEP_BYTES);
        let at = out.len();
        let mut output = OutBuffer::around_pos(out, at);
        if compressor.compress_stream2(&mut output, &mut source, ZSTD_EndDirective::ZSTD_e_end).map_err(error)? == 0 {
            break;
        }
    }
    if compressor.sizeof() <= KEPT_COMPRESSOR_BYTES_MAX {
        // At the end of a thread there is no place to keep it in.
        let _ = SPARE_COMPRESSOR.try_with(|spare| spare.set(Some(compressor)));
    }
    Ok(())
}

fn error(code: usize) -> CompressError {
    CompressError::corrupt(Codec::Zstd, get_error_name(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Whether the thread still has a decoder after one has read such a frame.
    fn kept_after(window_log: u32) -> bool {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(window_log).unwrap();
        encoder.write_all(&[1; 1_000]).unwrap();
        encoder.flush().unwrap();
        let packed = encoder.finish().unwrap();
        let mut frames = Frames::new(&packed).unwrap();
        assert_eq!(frames.read(&mut [0; 2_000]), Ok(1_000));
        assert_eq!(frames.read(&mut [0; 2_000]), Ok(0));
        drop(frames);
        SPARE.take().is_some()
    }

    /// 100 KB that decompress to 48 MiB took 1.08 GB at level 22, and 3.3 s.
    #[test]
    fn a_high_level_takes_bounded_memory_and_a_long_input_a_lower_level() {
        let input: Vec<u8> = (0..6_u32 << 20).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let mut out = vec![7; 3];
        let mut level_9 = Vec::new();
        compress(22, &input, &mut out).unwrap();
        compress(9, &input, &mut level_9).unwrap();
        assert_eq!((&out[..3], &out[3..]), (&[7; 3][..], &level_9[..]));
        assert_eq!(zstd::decode_all(&level_9[..]).unwrap(), input);
        let short = &input[..4 << 20];
        let mut compressor = CCtx::try_create().unwrap();
        compressor.set_parameter(CParameter::CompressionLevel(22)).unwrap();
        compressor.set_parameter(CParameter::WindowLog(WRITTEN_WINDOW_LOG_MAX)).unwrap();
        compressor.set_pledged_src_size(Some(short.len() as u64)).unwrap();
        let mut sink = vec![0; 8 << 20];
        compressor
            .compress_stream2(
                &mut OutBuffer::around(&mut sink[..]),
                &mut InBuffer::around(short),
                ZSTD_EndDirective::ZSTD_e_end,
            )
            .unwrap();
        assert!(compressor.sizeof() < 64 << 20, "{} bytes", compressor.sizeof());
    }

    #[test]
    fn a_decoder_is_kept_unless_it_has_grown() {
        assert!(kept_after(17));
        assert!(kept_after(21), "what level 3 writes");
        assert!(!kept_after(24));
        assert!(!kept_after(27));
    }
}
