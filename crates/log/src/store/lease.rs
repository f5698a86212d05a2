//! Readers of a segment. Blocks are freed only when no reader can have a range of them any more.
//!
//! ```text
//!   rows die ....... | close: who opens from now on gets another lease ....... | the first lease is unused: the rows that
//!                    | and can meet none of those rows                         | were dead at the close are free
//! ```
//!
//! A file range in a response holds the file, and with it the lease, until its bytes are sent, however slow the client is.
//! A count of open files would not suffice, because a file that the cache evicts is opened anew.

use super::registry::Bits;
use polylogue_env::DiskFile;
use polylogue_types::RangeSource;
use std::io;
use std::sync::Arc;

/// The lease that every reader of a segment holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease(Arc<()>);

impl Lease {
    /// Whether both are the same lease.
    pub(super) fn is(&self, other: &Lease) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the lease has no other holder.
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// A file of a segment as readers get it.
#[derive(Debug)]
pub(super) struct LeasedFile {
    file: Arc<dyn DiskFile>,
    _lease: Lease,
}

impl LeasedFile {
    pub(super) fn new(file: Arc<dyn DiskFile>, lease: Lease) -> LeasedFile {
        LeasedFile { file, _lease: lease }
    }
}

impl RangeSource for LeasedFile {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_exact_at(into, position)
    }

    fn read_once_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_once_at(into, position)
    }

    fn read_piece_at(&self, into: &mut [u8], len: usize, position: u64) -> io::Result<()> {
        self.file.read_piece_at(into, len, position)
    }

    fn is_in_memory(&self, position: u64, len: u32) -> bool {
        self.file.is_in_memory(position, len)
    }

    fn fetch(&self, position: u64, len: u32) -> io::Result<()> {
        self.file.fetch(position, len)
    }

    fn forget(&self, position: u64, len: u32) {
        self.file.forget(position, len);
    }

    fn raw_fd(&self) -> Option<i32> {
        self.file.raw_fd()
    }
}

/// The leases of one segment.
#[derive(Debug, Default)]
pub(super) struct Leases {
    current: Lease,
    /// The lease that was closed last, while it is held, and the rows that were dead then.
    closed: Option<(Lease, Bits)>,
    /// Of a journal file that was adopted: as its readers got it before, which knows of no lease. Kept while one of them has it.
    journal: Option<Arc<dyn RangeSource>>,
}

impl Leases {
    /// Those of a segment whose data were read from a journal file until now.
    pub(super) fn of_journal(file: Arc<dyn RangeSource>) -> Leases {
        Leases { journal: Some(file), ..Leases::default() }
    }

    /// Returns the current lease, for a new reader.
    pub(super) fn current(&self) -> &Lease {
        &self.current
    }

    /// Closes the current lease, unless one that was closed before is held still; says whether it did.
    pub(super) fn close(&mut self, dead: &Bits) -> bool {
        if self.closed.is_some() {
            return false;
        }
        self.closed = Some((std::mem::take(&mut self.current), dead.clone()));
        true
    }

    /// The rows that were dead at the last close, once that lease is not held any more.
    pub(super) fn freed(&mut self) -> Option<Bits> {
        self.journal.take_if(|file| Arc::strong_count(file) == 1);
        if self.journal.is_some() {
            return None;
        }
        let (_, dead) = self.closed.take_if(|(lease, _)| lease.is_free())?;
        Some(dead)
    }
}
