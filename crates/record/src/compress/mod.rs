//! The codecs of Kafka's record batches, each decompressing under a cap.
//!
//! What comes in is not trusted: no length field is allocated for before it is held against the bytes that are there, and
//! the caller of a decompression says how many bytes may come out.
//!
//! | id | codec | written | read |
//! | --- | --- | --- | --- |
//! | 0 | none | | |
//! | 1 | gzip | one member | any number of members |
//! | 2 | snappy | blocks of 32 KiB in the framing of snappy-java | that framing, or one raw block (librdkafka, Go) |
//! | 3 | lz4 | one frame, blocks of 64 KiB, independent, no content checksum (KIP-57) | one frame of any kind |
//! | 4 | zstd | one frame | any number of frames |
//!
//! Sources: Kafka's `CompressionType` and `Compression` classes; `SnappyInputStream` of snappy-java 1.1.10;
//! `rd_kafka_decompress` of librdkafka; the LZ4 frame format 1.6.

mod snappy;
mod stream;
mod write;
mod zstd_frames;

pub use stream::Stream;
pub use write::compress;

use std::fmt;

/// How the records of a batch are compressed. The numbers are those of the batch's attributes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Codec {
    /// Not at all.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy, raw or in the framing of snappy-java.
    Snappy = 2,
    /// The LZ4 frame format.
    Lz4 = 3,
    /// RFC 8878.
    Zstd = 4,
}

impl Codec {
    /// All of them.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// The codec with this number.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Codec> {
        Some(match id {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            _ => return None,
        })
    }

    /// Its number in a batch's attributes.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Its name in Kafka's configuration (`compression.type`); "uncompressed" is the other name of "none".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The codec with this name in Kafka's configuration.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Codec> {
        match name {
            "uncompressed" => Some(Codec::None),
            _ => Codec::ALL.into_iter().find(|codec| codec.name() == name),
        }
    }

    /// The levels that `compression.LEVEL` may have, where the codec has levels. Source: Kafka's `GzipCompression`,
    /// `Lz4Compression`, `ZstdCompression`.
    #[must_use]
    pub const fn levels(self) -> Option<std::ops::RangeInclusive<i32>> {
        match self {
            Codec::None | Codec::Snappy => None,
            Codec::Gzip => Some(1..=9),
            Codec::Lz4 => Some(1..=17),
            Codec::Zstd => Some(-131_072..=22),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes were not compressed or decompressed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompressError {
    /// More bytes than the caller allows would come out.
    TooLarge {
        /// What the caller allows.
        cap_bytes: usize,
    },
    /// The bytes are not what the codec writes.
    Corrupt {
        /// The codec.
        codec: Codec,
        /// What is wrong, in the words of its library.
        detail: String,
    },
}

impl CompressError {
    fn corrupt(codec: Codec, detail: impl fmt::Display) -> CompressError {
        CompressError::Corrupt { codec, detail: detail.to_string() }
    }
}

impl fmt::Display for CompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { cap_bytes } => write!(f, "decompresses to more than {cap_bytes} bytes"),
            Self::Corrupt { codec, detail } => write!(f, "not valid {codec} data: {detail}"),
        }
    }
}

impl std::error::Error for CompressError {}

/// Decompresses `input` into at most `cap_bytes` bytes. While the result grows it may take half as much again; beside it
/// stands what [`Stream`] needs.
///
/// # Errors
/// [`CompressError::TooLarge`] as soon as the cap is passed, [`CompressError::Corrupt`] for what the codec does not write.
pub fn decompress(codec: Codec, input: &[u8], cap_bytes: usize) -> Result<Vec<u8>, CompressError> {
    let mut stream = Stream::new(codec, input, cap_bytes)?;
    let mut out = Vec::new();
    loop {
        let chunk = stream.fill()?;
        if chunk.is_empty() {
            return Ok(out);
        }
        let len = chunk.len();
        let needed = out.len() + len;
        if needed > out.capacity() {
            // Doubling, but never past the cap: the stream has made sure that `needed` is not.
            let capacity = needed.max(out.capacity() * 2).min(cap_bytes);
            out.reserve_exact(capacity - out.len());
        }
        out.extend_from_slice(chunk);
        stream.consume(len);
    }
}
