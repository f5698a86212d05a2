//! Reads ahead in files: tracks which bytes a connection may send without waiting for the disk, and fetches the others.
//!
//! ```text
//!   chunks of a response:    | bytes | file ........................ | bytes | file ... | bytes | file ........
//!   files among them:                | in memory      | being fetched                   | not requested yet
//!                                    ready            asked (at most FETCH_BYTES)
//! ```
//!
//! For each step the system is asked whether it is in the page cache; data that was just written, or read by others, is. Other data is fetched
//! on a reader thread, in pieces that do not delay the journal's writes, while the connection waits for mail as for replies. While fetched data
//! is being sent, at most as much again is being fetched.

use super::mailbox::{Mail, Mailbox};
use super::output::FILE_STEP_BYTES;
use polylogue_types::{Chunk, FileRange};
use std::sync::{Arc, Weak};

/// The size of one fetch for a connection. Bytes.
pub(super) const FETCH_BYTES: usize = 512 << 10;
/// The maximum number of file ranges of a fetch: each holds an open file.
const FETCH_RANGES_MAX: usize = 64;

/// How much of a response's files is in memory.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Number of the next file bytes that may be sent. Fetched ones are not checked again: on a system that reports nothing as cached
    /// they would never be sent.
    ready: usize,
    /// Number of the following bytes that are being fetched; 0 for none.
    asked: usize,
    /// Whether the last range checked had to be fetched: then the next one probably has to be as well.
    cold: bool,
}

impl Ahead {
    /// Returns how many bytes of the range, which is next, may be sent now. 0: they are being fetched, or must be.
    pub(super) fn ready(&mut self, range: &FileRange) -> usize {
        if self.ready == 0 && self.asked == 0 {
            let step = range.len.min(FILE_STEP_BYTES as u32);
            self.cold = !range.source.is_in_memory(range.position, step);
            self.ready = if self.cold { 0 } else { step as usize };
        }
        self.ready
    }

    /// Records that file bytes were sent.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.ready = self.ready.saturating_sub(bytes);
    }

    /// The peer accepts nothing more now. Cached data may be evicted until it does, so that it is checked again.
    pub(super) fn on_blocked(&mut self) {
        if self.asked == 0 {
            (self.ready, self.cold) = (0, false);
        }
    }

    /// A fetch has ended, successfully or not; an error is found when sending.
    pub(super) fn on_fetched(&mut self) {
        self.ready += std::mem::take(&mut self.asked);
    }

    /// Everything is sent: a fetch in progress is of no use.
    pub(super) fn on_end(&mut self) {
        (self.ready, self.cold) = (0, false);
    }

    /// Returns the ranges to fetch next, in the order of sending; none if nothing is needed or enough is being fetched.
    pub(super) fn next_fetch<'a>(&mut self, chunks: impl IntoIterator<Item = &'a Chunk>) -> Vec<FileRange> {
        if !self.cold || self.asked > 0 || self.ready > FETCH_BYTES {
            return Vec::new();
        }
        let (mut skip, mut left) = (self.ready, FETCH_BYTES);
        let mut ranges: Vec<FileRange> = Vec::new();
        for chunk in chunks {
            let Chunk::File(range) = chunk else { continue };
            let skipped = skip.min(range.len as usize);
            skip -= skipped;
            let len = (range.len as usize - skipped).min(left);
            if len > 0 {
                let position = range.position + skipped as u64;
                ranges.push(FileRange { source: range.source.clone(), position, len: len as u32 });
                left -= len;
            }
            if left == 0 || ranges.len() == FETCH_RANGES_MAX {
                break;
            }
        }
        // A reader that has caught up with data in memory needs no more fetches.
        if self.ready > 0 && ranges.first().is_some_and(|next| next.source.is_in_memory(next.position, next.len)) {
            self.cold = false;
            return Vec::new();
        }
        self.asked = FETCH_BYTES - left;
        ranges
    }
}

/// File ranges to be fetched on a thread that may block. The connection gets mail when it has ended, also if it never ran, so
/// that no response waits forever.
#[derive(Debug)]
pub(super) struct Fetch {
    ranges: Vec<FileRange>,
    mailbox: Weak<Mailbox>,
}

impl Fetch {
    pub(super) fn new(ranges: Vec<FileRange>, mailbox: &Arc<Mailbox>) -> Fetch {
        Fetch { ranges, mailbox: Arc::downgrade(mailbox) }
    }

    /// Fetches one range after the other, while the connection exists.
    pub(super) fn run(mut self) {
        for range in self.ranges.drain(..) {
            if self.mailbox.strong_count() == 0 || range.source.fetch(range.position, range.len).is_err() {
                // A read error is reported where the data is sent.
                break;
            }
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.ranges.clear();
        if let Some(mailbox) = self.mailbox.upgrade() {
            mailbox.put(Mail::Fetched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use parking_lot::Mutex;
    use polylogue_types::RangeSource;
    use std::io;

    /// How much of a file is in memory.
    #[derive(Debug, Default)]
    struct Cached(Mutex<u64>);

    impl RangeSource for Cached {
        fn read_exact_at(&self, _into: &mut [u8], _position: u64) -> io::Result<()> {
            Ok(())
        }

        fn is_in_memory(&self, position: u64, len: u32) -> bool {
            position + u64::from(len) <= *self.0.lock()
        }

        fn fetch(&self, position: u64, len: u32) -> io::Result<()> {
            let mut cached = self.0.lock();
            *cached = (*cached).max(position + u64::from(len));
            Ok(())
        }

        fn raw_fd(&self) -> Option<i32> {
            None
        }
    }

    const STEP: usize = FILE_STEP_BYTES;

    fn file(cached: usize, lens: &[usize]) -> (Arc<Cached>, Vec<Chunk>) {
        let source = Arc::new(Cached(Mutex::new(cached as u64)));
        let mut chunks = Vec::new();
        let mut position = 0;
        for len in lens {
            chunks.push(Chunk::Bytes(Bytes::from_static(b"head")));
            chunks.push(Chunk::File(FileRange { source: source.clone(), position, len: *len as u32 }));
            position += *len as u64;
        }
        (source, chunks)
    }

    fn first(chunks: &[Chunk]) -> &FileRange {
        match &chunks[1] {
            Chunk::File(range) => range,
            Chunk::Bytes(_) => panic!("a range"),
        }
    }

    fn places(ranges: &[FileRange]) -> Vec<(usize, usize)> {
        ranges.iter().map(|range| (range.position as usize, range.len as usize)).collect()
    }

    #[test]
    fn what_is_in_memory_is_sent_step_by_step_and_nothing_is_fetched() {
        let (_, chunks) = file(usize::MAX, &[3 * STEP]);
        let mut ahead = Ahead::default();
        assert_eq!(ahead.ready(first(&chunks)), STEP);
        ahead.on_sent(STEP - 1);
        assert_eq!(ahead.ready(first(&chunks)), 1, "the rest of the step");
        assert!(ahead.next_fetch(&chunks).is_empty());
    }

    #[test]
    fn as_much_again_is_on_its_way_and_no_more() {
        let (_, chunks) = file(0, &[100, FETCH_BYTES, 5 * FETCH_BYTES]);
        let mut ahead = Ahead::default();
        assert_eq!(ahead.ready(first(&chunks)), 0);
        let ranges = ahead.next_fetch(&chunks);
        assert_eq!(places(&ranges), [(0, 100), (100, FETCH_BYTES - 100)]);
        assert!(ahead.next_fetch(&chunks).is_empty(), "one at a time");
        assert_eq!(ahead.ready(first(&chunks)), 0, "it has not been fetched");
        ahead.on_fetched();
        assert_eq!(ahead.ready(first(&chunks)), FETCH_BYTES, "it is not checked again");
        let next = ahead.next_fetch(&chunks);
        assert_eq!(places(&next), [(FETCH_BYTES, 100), (FETCH_BYTES + 100, FETCH_BYTES - 100)]);
        ahead.on_fetched();
        assert!(ahead.next_fetch(&chunks).is_empty(), "twice the size is enough");
        ahead.on_sent(FETCH_BYTES);
        assert_eq!(places(&ahead.next_fetch(&chunks[2..])), [(100 + FETCH_BYTES, FETCH_BYTES)]);
        ahead.on_end();
        ahead.on_fetched();
        assert!(ahead.next_fetch(&chunks).is_empty(), "a new response is checked first");
    }

    #[test]
    fn a_reader_that_catches_up_fetches_no_more() {
        let (source, chunks) = file(0, &[5 * FETCH_BYTES]);
        let mut ahead = Ahead::default();
        ahead.ready(first(&chunks));
        assert_eq!(ahead.next_fetch(&chunks).len(), 1);
        ahead.on_fetched();
        *source.0.lock() = u64::MAX;
        assert!(ahead.next_fetch(&chunks).is_empty());
    }

    #[test]
    fn a_response_of_many_small_ranges_holds_few_of_them() {
        let (_, chunks) = file(0, &[1; 1_000]);
        let mut ahead = Ahead::default();
        ahead.ready(first(&chunks));
        assert_eq!(ahead.next_fetch(&chunks).len(), FETCH_RANGES_MAX);
        ahead.on_fetched();
        assert_eq!(ahead.ready(first(&chunks)), FETCH_RANGES_MAX);
        ahead.on_blocked();
        assert_eq!(ahead.ready(first(&chunks)), 0, "it is checked again after the client was slow");
    }

    #[test]
    fn mail_comes_whether_a_fetch_is_done_fails_or_is_dropped() {
        let mailbox = Arc::new(Mailbox::default());
        let mail = || {
            let mut taken = std::collections::VecDeque::new();
            mailbox.take(&mut taken);
            taken.len()
        };
        let (source, chunks) = file(0, &[10, 10]);
        let ranges = || vec![first(&chunks).clone()];
        Fetch::new(ranges(), &mailbox).run();
        assert_eq!((mail(), *source.0.lock()), (1, 10));
        drop(Fetch::new(ranges(), &mailbox));
        assert_eq!(mail(), 1);
        let (source, chunks) = file(0, &[10]);
        let fetch = Fetch::new(vec![first(&chunks).clone()], &Arc::new(Mailbox::default()));
        fetch.run();
        assert_eq!(*source.0.lock(), 0, "the connection is closed");
        drop(chunks);
        assert_eq!(Arc::strong_count(&source), 1, "and nothing holds the file");
    }
}
