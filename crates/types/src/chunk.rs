//! Bytes on their way to a socket: either in memory, or a range of a file that the server sends without reading it.

use bytes::Bytes;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A file that can be read by position, without naming the operating system.
///
/// Holding one keeps the bytes readable: a journal file is not recycled, and a removed segment's blocks are not
/// freed, while a handle is held.
pub trait RangeSource: Send + Sync + fmt::Debug {
    /// Fills `into` from `position`. A file that ends earlier is an error (`UnexpectedEof`).
    ///
    /// # Errors
    /// What the operating system says.
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()>;

    /// As [`RangeSource::read_exact_at`], of bytes that will not be read again soon: where the system can, they do not stay in
    /// its page cache.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_once_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        self.read_exact_at(into, position)
    }

    /// Fills the first `len` bytes of `into`, a large buffer that the caller keeps as its own cache: where the system can, the bytes
    /// do not pass through its page cache. That takes a buffer and a position that begin with a page, and a buffer that has
    /// room for whole pages: what lies in `into` behind `len` may be overwritten. The disk is asked as by [`RangeSource::fetch`].
    ///
    /// # Errors
    /// What the operating system says; `UnexpectedEof` when the file or the buffer is shorter.
    fn read_piece_at(&self, into: &mut [u8], len: usize, position: u64) -> io::Result<()> {
        let wanted = into.get_mut(..len).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.read_exact_at(wanted, position)
    }

    /// Whether these bytes can be had without waiting for the disk, as far as the system says: where it says nothing, they can.
    fn is_in_memory(&self, _position: u64, _len: u32) -> bool {
        true
    }

    /// Waits until these bytes have been brought into memory, where they stay as long as the system has room. The disk is asked
    /// for small pieces, one at a time, so that whatever else it has to do gets its turn in between. What lies behind the end
    /// of the file is no error, and nothing is done where there is nothing to wait for.
    ///
    /// # Errors
    /// What the operating system says.
    fn fetch(&self, _position: u64, _len: u32) -> io::Result<()> {
        Ok(())
    }

    /// These bytes are not wanted in memory any more. Only advice.
    fn forget(&self, _position: u64, _len: u32) {}

    /// The descriptor to `sendfile` from, where there is one. A simulated file has none.
    fn raw_fd(&self) -> Option<i32>;
}

/// `len` bytes of a file from `position` on.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// Where the bytes are; held until they are sent.
    pub source: Arc<dyn RangeSource>,
    /// Bytes from the start of the file.
    pub position: u64,
    /// How many bytes.
    pub len: u32,
}

/// One piece of a reply.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a file, sent without passing through user space where that is possible.
    File(FileRange),
}

impl Chunk {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Chunk::Bytes(b) => b.len(),
            Chunk::File(f) => f.len as usize,
        }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes themselves, read from the file where need be.
    ///
    /// # Errors
    /// What the file says when it is read.
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        match self {
            Chunk::Bytes(b) => Ok(b.clone()),
            Chunk::File(f) => {
                let mut out = vec![0; f.len as usize];
                f.source.read_exact_at(&mut out, f.position)?;
                Ok(Bytes::from(out))
            }
        }
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Chunk {
        Chunk::Bytes(bytes)
    }
}
