//! Batches one after the other, as they are stored and as they are fetched.

use super::validate::MAGIC;
use super::{BatchError, BatchHeader, HEADER_BYTES};
use bytes::Bytes;

/// The place and the header of one batch among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchAt {
    /// Bytes before the batch.
    pub position: usize,
    /// Bytes of the batch: at least [`HEADER_BYTES`], and all there.
    pub len: usize,
    /// Its header.
    pub header: BatchHeader,
}

/// The batches in `bytes`, by their headers only. A last batch that is cut off is not one of them: fetch responses end so.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// Goes through the headers of the batches in `bytes`.
#[must_use]
pub fn headers(bytes: &[u8]) -> HeaderIter<'_> {
    HeaderIter { bytes, position: 0 }
}

impl HeaderIter<'_> {
    /// Bytes of the batches that have been passed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    fn read(&self) -> Result<Option<BatchAt>, BatchError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some(&[magic]) = rest.get(16..17) else { return Ok(None) };
        match i8::from_be_bytes([magic]) {
            MAGIC => {}
            old @ (0 | 1) => return Err(BatchError::OldMagic(old)),
            other => return Err(BatchError::UnknownMagic(other)),
        }
        let Ok(header) = BatchHeader::parse(rest) else { return Ok(None) };
        let len = header.total_len();
        if len < HEADER_BYTES as i64 {
            return Err(BatchError::TooShort { size: len });
        }
        Ok(match usize::try_from(len) {
            Ok(len) if len <= rest.len() => Some(BatchAt { position: self.position, len, header }),
            _ => None,
        })
    }
}

impl Iterator for HeaderIter<'_> {
    type Item = Result<BatchAt, BatchError>;

    /// After an error there is nothing more: the place of the next batch is not known.
    fn next(&mut self) -> Option<Self::Item> {
        let found = self.read().transpose()?;
        match &found {
            Ok(batch) => self.position += batch.len,
            Err(_) => self.bytes = &[],
        }
        Some(found)
    }
}

/// One batch among others, with its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Its header.
    pub header: BatchHeader,
    /// All its bytes, header included.
    pub bytes: Bytes,
}

/// The batches in a concatenation of them, each sharing its memory. A last batch that is cut off is not one of them.
#[derive(Clone, Debug)]
pub struct BatchIter {
    rest: Bytes,
}

impl BatchIter {
    /// Goes through the batches in `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> BatchIter {
        BatchIter { rest: bytes }
    }

    /// What has not been passed: after the last batch, the one that is cut off.
    #[must_use]
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for BatchIter {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        match headers(&self.rest).next()? {
            // The length has been held against the bytes.
            Ok(batch) => Some(Ok(Batch { header: batch.header, bytes: self.rest.split_to(batch.len) })),
            Err(e) => {
                self.rest = Bytes::new();
                Some(Err(e))
            }
        }
    }
}

/// The position in `bytes` of the first batch whose last offset is `offset` or later: the one that holds the offset, or the
/// one after the gap that compaction has left there. `None` when all batches end before it.
///
/// Source: `FileRecords.searchForOffsetFromPosition`.
///
/// # Errors
/// [`BatchError`] when something before that batch is no batch.
pub fn find_offset(bytes: &[u8], offset: i64) -> Result<Option<usize>, BatchError> {
    for batch in headers(bytes) {
        let batch = batch?;
        if batch.header.last_offset() >= offset {
            return Ok(Some(batch.position));
        }
    }
    Ok(None)
}
