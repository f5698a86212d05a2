//! Zstd frames, with a decoder that is used again.
//!
//! Making a decoder takes 25 microseconds, most of them for its 95 KB of fresh memory, and decoding a batch of one record
//! less than one. So each thread keeps one, as long as it has not grown.

use super::{Codec, CompressError};
use std::cell::Cell;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, get_error_name};

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

    #[test]
    fn a_decoder_is_kept_unless_it_has_grown() {
        assert!(kept_after(17));
        assert!(kept_after(21), "what level 3 writes");
        assert!(!kept_after(24));
        assert!(!kept_after(27));
    }
}
