//! Record batches on their way through a message: bytes that the codec carries and never looks into.

use bytes::Bytes;
use polylogue_types::Chunk;
use std::sync::Arc;

/// The value of a `records` field: a run of record batches in one or more pieces, in memory or in files.
///
/// Decoding returns one piece that shares the frame's memory; encoding passes the pieces on unchanged.
#[derive(Clone, Debug)]
pub struct Records {
    len: usize,
    pieces: Pieces,
}

/// Nearly always there is one piece, and then no list is allocated for it.
#[derive(Clone, Debug)]
enum Pieces {
    One(Chunk),
    Many(Vec<Chunk>),
}

impl Records {
    /// No records. On the wire this is an empty field, not a null one.
    #[must_use]
    pub fn new() -> Records {
        Records::from(Bytes::new())
    }

    /// Length in bytes, over all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        match &self.pieces {
            Pieces::One(chunk) => std::slice::from_ref(chunk),
            Pieces::Many(chunks) => chunks,
        }
    }

    /// The bytes, where they are one piece in memory: always so for decoded records.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match &self.pieces {
            Pieces::One(Chunk::Bytes(bytes)) => Some(bytes),
            Pieces::One(Chunk::File(_)) | Pieces::Many(_) => None,
        }
    }

    /// As [`Records::as_bytes`], giving up the value.
    #[must_use]
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.pieces {
            Pieces::One(Chunk::Bytes(bytes)) => Some(bytes),
            Pieces::One(Chunk::File(_)) | Pieces::Many(_) => None,
        }
    }
}

impl Default for Records {
    fn default() -> Records {
        Records::new()
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Records {
        Records { len: bytes.len(), pieces: Pieces::One(Chunk::Bytes(bytes)) }
    }
}

impl From<Chunk> for Records {
    fn from(chunk: Chunk) -> Records {
        Records { len: chunk.len(), pieces: Pieces::One(chunk) }
    }
}

impl From<Vec<Chunk>> for Records {
    fn from(mut chunks: Vec<Chunk>) -> Records {
        let len = chunks.iter().map(Chunk::len).sum();
        match chunks.len() {
            0 => Records::new(),
            1 => Records { len, pieces: Pieces::One(chunks.remove(0)) },
            _ => Records { len, pieces: Pieces::Many(chunks) },
        }
    }
}

/// Piece by piece: equal bytes in memory, or the same range of the same open file. Files are not read.
impl PartialEq for Records {
    fn eq(&self, other: &Records) -> bool {
        let (a, b) = (self.chunks(), other.chunks());
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_chunk(a, b))
    }
}

fn same_chunk(a: &Chunk, b: &Chunk) -> bool {
    match (a, b) {
        (Chunk::Bytes(a), Chunk::Bytes(b)) => a == b,
        (Chunk::File(a), Chunk::File(b)) => {
            Arc::ptr_eq(&a.source, &b.source) && a.position == b.position && a.len == b.len
        }
        (Chunk::Bytes(_), Chunk::File(_)) | (Chunk::File(_), Chunk::Bytes(_)) => false,
    }
}
