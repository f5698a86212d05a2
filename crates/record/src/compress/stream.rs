//! Decompression in pieces: reading a batch costs the memory of one piece, not of all its records.

use super::snappy::Blocks;
use super::zstd_frames::Frames;
use super::{Codec, CompressError};
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use std::fmt;
use std::io::{self, Read};

/// How much is decompressed in one step, where the codec does not say.
const PIECE_BYTES: usize = 32 << 10;
/// The magic number of an LZ4 frame, little endian. Not that of the legacy format, nor of a skippable frame.
const LZ4_MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();

/// What decompresses the next piece.
enum Source<'a> {
    /// The one piece not yet given out, for what is not compressed.
    Plain(&'a [u8]),
    Gzip(Box<MultiGzDecoder<&'a [u8]>>),
    Snappy(Blocks<'a>),
    Lz4(Box<FrameDecoder<Starving<'a>>>),
    Zstd(Frames<'a>),
}

/// Bytes decompressed piece by piece, with a cap on their number: a decompression bomb ends with an error at the cap.
///
/// Memory, besides the compressed bytes: 32 KiB and the codec's own window. That is 32 KiB for gzip, one block for snappy
/// (at most 22 times its compressed bytes), at most 8 MiB for lz4, and for zstd the window of the frame, up to 128 MiB, of
/// which only as much is touched as comes out.
pub struct Stream<'a> {
    source: Source<'a>,
    piece: Vec<u8>,
    start: usize,
    end: usize,
    cap: usize,
    /// How many more bytes may come out.
    left: usize,
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("codec", &self.codec()).field("left", &self.left).finish_non_exhaustive()
    }
}

impl<'a> Stream<'a> {
    /// Starts to decompress `input`, of which at most `cap_bytes` may come out.
    ///
    /// # Errors
    /// [`CompressError::Corrupt`] when the first bytes already show it.
    pub fn new(codec: Codec, input: &'a [u8], cap_bytes: usize) -> Result<Stream<'a>, CompressError> {
        let source = match codec {
            Codec::None => Source::Plain(input),
            Codec::Gzip => Source::Gzip(Box::new(MultiGzDecoder::new(input))),
            Codec::Snappy => Source::Snappy(Blocks::new(input)?),
            Codec::Lz4 if input.starts_with(&LZ4_MAGIC) => {
                Source::Lz4(Box::new(FrameDecoder::new(Starving { rest: input, starved: false })))
            }
            Codec::Lz4 => return Err(CompressError::corrupt(Codec::Lz4, "no frame")),
            Codec::Zstd => Source::Zstd(Frames::new(input)?),
        };
        Ok(Stream { source, piece: Vec::new(), start: 0, end: 0, cap: cap_bytes, left: cap_bytes })
    }

    fn codec(&self) -> Codec {
        match self.source {
            Source::Plain(_) => Codec::None,
            Source::Gzip(_) => Codec::Gzip,
            Source::Snappy(_) => Codec::Snappy,
            Source::Lz4(_) => Codec::Lz4,
            Source::Zstd(_) => Codec::Zstd,
        }
    }

    /// The bytes that have come out and were not consumed, after having decompressed more if there were none. Empty at the
    /// end only.
    ///
    /// # Errors
    /// [`CompressError`], also when asked again after one.
    pub fn fill(&mut self) -> Result<&[u8], CompressError> {
        if self.start == self.end {
            self.refill()?;
        }
        Ok(self.available())
    }

    /// The bytes that have come out and were not consumed.
    #[must_use]
    pub fn available(&self) -> &[u8] {
        self.piece.get(self.start..self.end).unwrap_or_default()
    }

    /// How many bytes have come out so far.
    #[must_use]
    pub fn decompressed_bytes(&self) -> usize {
        self.cap - self.left
    }

    /// Marks the first `len` of the available bytes as read; all of them if there are fewer.
    pub fn consume(&mut self, len: usize) {
        self.start = self.start.saturating_add(len).min(self.end);
    }

    fn refill(&mut self) -> Result<(), CompressError> {
        let codec = self.codec();
        let len = match &mut self.source {
            Source::Plain(rest) => {
                let (piece, after) = rest.split_at(PIECE_BYTES.min(rest.len()));
                *rest = after;
                self.piece.clear();
                self.piece.extend_from_slice(piece);
                Ok(piece.len())
            }
            Source::Gzip(decoder) => read_piece(decoder, &mut self.piece),
            Source::Zstd(frames) => {
                self.piece.resize(PIECE_BYTES, 0);
                Ok(frames.read(&mut self.piece)?)
            }
            Source::Lz4(decoder) => read_lz4(decoder, &mut self.piece),
            Source::Snappy(blocks) => {
                blocks.next_into(&mut self.piece, self.left, self.cap)?;
                Ok(self.piece.len())
            }
        };
        let len = len.map_err(|e| CompressError::corrupt(codec, e))?;
        self.left = self.left.checked_sub(len).ok_or(CompressError::TooLarge { cap_bytes: self.cap })?;
        (self.start, self.end) = (0, len);
        if len == 0 {
            // A repeated call returns the same, without the codec looking for more.
            self.source = Source::Plain(&[]);
        }
        Ok(())
    }
}

fn read_piece(decoder: &mut impl Read, piece: &mut Vec<u8>) -> io::Result<usize> {
    piece.resize(PIECE_BYTES, 0);
    decoder.read(piece)
}

/// The library takes a frame without its end for a whole one, and would go on to a second frame with buffers that its
/// debug assertions do not expect.
fn read_lz4(decoder: &mut FrameDecoder<Starving<'_>>, piece: &mut Vec<u8>) -> io::Result<usize> {
    let len = read_piece(decoder, piece)?;
    let Starving { rest, starved } = decoder.get_ref();
    let what = match len {
        _ if *starved => "ends inside the frame",
        0 if !rest.is_empty() => "bytes after the frame",
        _ => return Ok(len),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Bytes that remember whether more of them were asked for than there are.
struct Starving<'a> {
    rest: &'a [u8],
    starved: bool,
}

impl Read for Starving<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.rest.read(into)?;
        self.starved |= len == 0 && !into.is_empty();
        Ok(len)
    }
}
