//! Writing frames as whole pages, past the page cache or through it.
//!
//! ```text
//!    file      | page          | page          | page          | page          |
//!    frames    |---- a ---------|--- b -------------|- c -|
//!    write b                   |a| b ...        ... |0000 |      the page that a ends in is written again with b behind it
//!    write c                                   | b  | c |0 |      and so on: the last page waits in memory
//! ```
//!
//! A file is written in one of two ways from its beginning to its end, and in both of them so:
//!
//! ```text
//!    direct    buffer ===========> disk                           the write waits for the disk; whole pages at aligned addresses
//!    cached    buffer ===> page cache - - - flush - - -> disk     the write waits for nothing; whole pages, so that none that
//!                                                                 is not in the page cache is read from the disk for it
//! ```
//!
//! A journal is written once and read rarely: readers at the end have its bytes in memory. In the page cache it would push out
//! what others read, cost a copy into memory that has to be found first, and be written back in waves that flushes wait
//! behind; only small frames that wait for no flush are better off there ([`super::mode`]). What stands before a frame in its
//! page is written again as it was, so it does not matter which of the versions of a sector survives a power cut. Readers go
//! through the page cache; the system drops the pages that a direct write replaces.

use super::file::PAGE_BYTES;
use polylogue_env::{DIRECT_BYTES, Disk, DiskFile};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The longest single write: larger ones are no faster, and the buffer stays in the processor's cache. Bytes.
const WRITE_BYTES: usize = 512 << 10;
const PAGE: usize = PAGE_BYTES as usize;
const _: () = assert!(PAGE == DIRECT_BYTES && WRITE_BYTES.is_multiple_of(PAGE));

/// Bytes that begin at an address which direct writes take.
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageBuffer {
    /// So many zeros, rounded up to whole pages.
    pub(crate) fn zeros(len: usize) -> PageBuffer {
        let len = len.next_multiple_of(PAGE);
        let bytes = vec![0; len + PAGE];
        // The heap gives addresses; where the first page begins among them follows.
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        PageBuffer { bytes, start, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Opens a file of that name for direct writes. Where that fails, `file` takes them: they are an improvement, not a need.
pub(crate) fn open_direct(disk: &dyn Disk, path: &Path, file: &Arc<dyn DiskFile>, wanted: bool) -> Arc<dyn DiskFile> {
    let opened = wanted.then(|| disk.open(path, polylogue_env::OpenMode::Direct));
    opened.and_then(Result::ok).unwrap_or_else(|| file.clone())
}

/// Writes frames behind one another into the current file. Behind the write role.
#[derive(Debug, Default)]
pub(crate) struct PageWriter {
    buffer: Option<PageBuffer>,
    /// The handle that writes, for direct writes or the usual one, and the one that reads.
    files: Option<(Arc<dyn DiskFile>, Arc<dyn DiskFile>)>,
    /// The end of what was written last: the buffer begins with the page in which it lies, zeros behind it.
    end: Option<u64>,
}

impl PageWriter {
    /// Writes an empty file from its start.
    pub(crate) fn over(direct: Arc<dyn DiskFile>, file: Arc<dyn DiskFile>) -> PageWriter {
        PageWriter { buffer: None, files: Some((direct, file)), end: None }
    }

    /// Goes on with another file, of which the first `block.len()` bytes, whole pages, are written now; its last frame ends at
    /// `end`. If it cannot be written, writing goes on in the file before.
    pub(crate) fn begin(
        &mut self,
        direct: Arc<dyn DiskFile>,
        file: Arc<dyn DiskFile>,
        block: &[u8],
        end: u64,
    ) -> io::Result<()> {
        let before = self.files.replace((direct, file));
        if let Err(e) = self.write(block, 0) {
            self.files = before;
            return Err(e);
        }
        let last = block.get((end - end % PAGE_BYTES) as usize..).unwrap_or_default();
        if let (Some(buffer), 1..=PAGE) = (&mut self.buffer, last.len()) {
            buffer.as_mut_slice()[..last.len()].copy_from_slice(last);
            self.end = Some(end);
        }
        Ok(())
    }

    /// As [`PageWriter::write`], from where the frame stands in its buffer, if that is a place for it: the buffer has room
    /// before and behind it for the rest of its pages, and they begin at addresses that direct writes take.
    pub(crate) fn write_from(&mut self, buffer: &mut Vec<u8>, start: usize, position: u64) -> io::Result<()> {
        let (head, end) = ((position % PAGE_BYTES) as usize, buffer.len());
        let pad = (end - start + head).next_multiple_of(PAGE) - (end - start + head);
        let first = start.checked_sub(head).filter(|first| buffer.as_ptr().wrapping_add(*first).addr() % PAGE == 0);
        let Some(first) = first.filter(|_| buffer.capacity() - end >= pad) else {
            return self.write(buffer.get(start..).unwrap_or_default(), position);
        };
        let (direct, window) = self.prepare(position)?;
        buffer[first..start].copy_from_slice(&window[..head]);
        buffer.resize(end + pad, 0);
        let written = direct.write_all_at(&buffer[first..], position - head as u64);
        if pad > 0 {
            window[..PAGE].copy_from_slice(&buffer[end + pad - PAGE..]);
        }
        buffer.truncate(end);
        written?;
        self.end = (pad > 0).then_some(position + (end - start) as u64);
        Ok(())
    }

    /// The handle that writes, and the buffer, which begins with what stands before `position` in its page.
    fn prepare(&mut self, position: u64) -> io::Result<(&Arc<dyn DiskFile>, &mut [u8])> {
        let Some((direct, file)) = &self.files else {
            return Err(io::Error::other("no journal file has been begun"));
        };
        let window = self.buffer.get_or_insert_with(|| PageBuffer::zeros(WRITE_BYTES)).as_mut_slice();
        let page = position - position % PAGE_BYTES;
        let head = (position - page) as usize;
        let known = self.end.take().is_some_and(|end| page <= end && end <= position);
        if head > 0 && !known {
            file.read_exact_at(&mut window[..head], page)?;
        }
        Ok((direct, window))
    }

    /// Writes a frame at `position`, and zeros behind it to the end of the page. After an error anything may stand there.
    pub(crate) fn write(&mut self, mut frame: &[u8], position: u64) -> io::Result<()> {
        let mut page = position - position % PAGE_BYTES;
        let mut head = (position - page) as usize;
        let end = position + frame.len() as u64;
        let (direct, window) = self.prepare(position)?;
        loop {
            let (piece, rest) = frame.split_at(frame.len().min(WRITE_BYTES - head));
            let filled = head + piece.len();
            let whole = filled.next_multiple_of(PAGE);
            window[head..filled].copy_from_slice(piece);
            window[filled..whole].fill(0);
            direct.write_all_at(&window[..whole], page)?;
            if rest.is_empty() {
                // With the zeros behind: the next frame begins a little further on.
                window.copy_within(filled - filled % PAGE..whole, 0);
                self.end = (filled < whole).then_some(end);
                return Ok(());
            }
            page += whole as u64;
            head = 0;
            frame = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_env::OpenMode;
    use polylogue_env::sim::SimDisk;

    fn file(disk: &SimDisk, bytes: u64) -> (Arc<dyn DiskFile>, Arc<dyn DiskFile>) {
        let path = Path::new("/j");
        let file = disk.open(path, OpenMode::CreateNew).expect("opens");
        file.allocate(bytes).expect("room");
        (open_direct(disk, path, &file, true), file)
    }

    fn content(file: &Arc<dyn DiskFile>, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).expect("reads");
        bytes
    }

    #[test]
    fn frames_of_any_length_stand_where_they_were_put() {
        let disk = SimDisk::new(1);
        let (direct, file) = file(&disk, 8 << 20);
        let mut writer = PageWriter::default();
        let mut wanted = vec![7_u8; PAGE];
        writer.begin(direct, file.clone(), &wanted, PAGE_BYTES).expect("begins");
        let lengths = [1, 64, 4_095, 4_096, 4_097, WRITE_BYTES - 1, WRITE_BYTES, WRITE_BYTES + 1, 3 * WRITE_BYTES, 100];
        for (i, len) in lengths.into_iter().enumerate() {
            let frame: Vec<u8> = (0..len).map(|n| (n * 31 + i) as u8 | 1).collect();
            writer.write(&frame, wanted.len() as u64).expect("writes");
            wanted.extend_from_slice(&frame);
        }
        let whole = wanted.len().next_multiple_of(PAGE);
        let found = content(&file, whole);
        assert!(found[..wanted.len()] == wanted && found[wanted.len()..].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_large_frame_is_written_from_where_it_was_built() {
        let disk = SimDisk::new(1);
        let (direct, file) = file(&disk, 8 << 20);
        let mut writer = PageWriter::default();
        let mut wanted = vec![7_u8; PAGE + 64];
        let block = [&wanted[..], &vec![0; PAGE - 64]].concat();
        writer.begin(direct, file.clone(), &block, wanted.len() as u64).expect("begins");
        for len in [100_000, 64, 200_000, 3 * PAGE - 64, 100] {
            let writes = disk.stats().writes;
            let head = wanted.len() % PAGE;
            let mut buffer: Vec<u8> = Vec::with_capacity(len + 3 * PAGE);
            let start = buffer.as_ptr().align_offset(PAGE) + head;
            buffer.resize(start, 0xff);
            buffer.extend((0..len).map(|n| (n * 31) as u8 | 1));
            writer.write_from(&mut buffer, start, wanted.len() as u64).expect("writes");
            assert_eq!((disk.stats().writes, buffer.len()), (writes + 1, start + len));
            wanted.extend_from_slice(&buffer[start..]);
        }
        let whole = wanted.len().next_multiple_of(PAGE);
        let found = content(&file, whole);
        assert!(found[..wanted.len()] == wanted && found[wanted.len()..].iter().all(|b| *b == 0));
    }

    #[test]
    fn what_stands_before_a_frame_stays_when_the_log_goes_back() {
        let disk = SimDisk::new(1);
        let (direct, file) = file(&disk, 1 << 20);
        let mut writer = PageWriter::default();
        let mut block = vec![1; 2 * PAGE];
        block[PAGE + 100..].fill(0);
        writer.begin(direct, file.clone(), &block, PAGE_BYTES + 100).expect("begins");
        writer.write(&[2; 5_000], PAGE_BYTES + 100).expect("writes");
        writer.write(&[3; 10], PAGE_BYTES + 200).expect("writes over it");
        let found = content(&file, 2 * PAGE);
        assert_eq!(found[PAGE + 99..PAGE + 211], [vec![1], vec![2; 100], vec![3; 10], vec![0]].concat());
    }
}
