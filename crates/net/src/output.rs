//! The sending half of a connection: chunks are sent from memory or directly from files.

use super::admission::Held;
use super::ahead::Ahead;
use super::link::Link;
use bytes::{Buf, Bytes};
use polylogue_types::{Chunk, FileRange};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The maximum number of slices of one system call.
const SLICES_MAX: usize = 64;
/// Bytes of a file sent by one system call, so that a fast client does not occupy the thread for long. Bytes.
pub(super) const FILE_STEP_BYTES: usize = 256 << 10;
/// Bytes that a connection writes before others have their turn. Bytes.
const TURN_BYTES: usize = 1 << 20;

/// Share of the gauge that responses of one connection may use: one in this many parts.
const CONNECTION_SHARE: usize = 16;
/// The maximum size of a read while many responses wait to be received. Bytes.
const PRESSURE_READ_BYTES: usize = 64 << 10;
/// Time for receiving responses while others wait for their memory, in addition to that by
/// [`TAKE_BYTES_PER_MS`]. Milliseconds.
const TAKE_MS: u64 = 5_000;
/// The minimum rate of a reader while others wait: about 256 KiB per second.
const TAKE_BYTES_PER_MS: u64 = 256;

/// Capacity for this many chunks is kept between responses.
pub(super) const KEPT_CHUNKS: usize = 64;

/// Share of the memory left for reads that one read may use: one in this many parts.
const READ_SHARE: usize = 4;

/// Counts bytes waiting to be written over all connections, those in memory but not in files; and separately the bytes that
/// pending reads may return.
#[derive(Clone, Debug)]
pub struct OutputGauge {
    bytes: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl OutputGauge {
    /// Creates the gauge with this limit.
    #[must_use]
    pub fn new(bytes_max: usize) -> OutputGauge {
        OutputGauge { bytes: Arc::default(), asked: Arc::default(), bytes_max }
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that pending reads may return.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether so much waits that new reads should be small.
    pub(super) fn is_high(&self) -> bool {
        self.bytes() >= self.bytes_max / 2
    }

    /// Whether so much waits that connections with unreceived responses must not read.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    /// Returns how many of the wanted bytes a connection may read that has `own` of the counted bytes. `None`: later, when
    /// `pending` responses were received. No connection waits for other clients to receive responses.
    pub(super) fn read_bytes(&self, wanted: u32, own: usize, pending: bool) -> Option<u32> {
        let share = (self.bytes_max / CONNECTION_SHARE).max(PRESSURE_READ_BYTES);
        let left = share.saturating_sub(own);
        if pending && (left == 0 || self.is_full()) {
            return None;
        }
        let free = self.bytes_max.saturating_sub(self.bytes().saturating_add(self.asked()));
        let free = if self.is_high() { 0 } else { free / READ_SHARE };
        let bound = left.min(free.max(PRESSURE_READ_BYTES));
        Some(wanted.min(u32::try_from(bound).unwrap_or(u32::MAX)))
    }

    pub(super) fn add_asked(&self, bytes: usize) {
        self.asked.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub_asked(&self, bytes: usize) {
        self.asked.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// Everything is written.
    All,
    /// The peer accepts nothing more now.
    Blocked,
    /// More is to be written, and other connections have their turn.
    Turn,
    /// The next data is on disk and is being fetched.
    Disk,
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Output {
    chunks: VecDeque<Chunk>,
    /// Bytes of `chunks` in memory, as counted in the gauge.
    counted: usize,
    /// Bytes written and not sent, counted as well.
    pending: usize,
    gauge: OutputGauge,
    /// Permits of the requests that these chunks answer.
    permits: Vec<Held>,
    /// Total bytes written.
    total: u64,
    /// When these chunks were added, and the total then. Monotonic milliseconds.
    began: (u64, u64),
    /// Read-ahead of the files among the chunks.
    ahead: Ahead,
    /// Since when only the disk is awaited. Monotonic milliseconds.
    disk_since_ms: Option<u64>,
}

impl Output {
    pub(super) fn new(gauge: OutputGauge) -> Output {
        Output {
            chunks: VecDeque::new(),
            counted: 0,
            pending: 0,
            gauge,
            permits: Vec::new(),
            total: 0,
            began: (0, 0),
            ahead: Ahead::default(),
            disk_since_ms: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Waiting bytes, as counted in the gauge.
    pub(super) fn counted(&self) -> usize {
        self.counted + self.pending
    }

    /// Sets the number of bytes written and not sent. Returns whether the peer has accepted some since.
    pub(super) fn set_pending(&mut self, bytes: usize) -> bool {
        if self.pending == bytes {
            return false;
        }
        let before = std::mem::replace(&mut self.pending, bytes);
        self.gauge.add(bytes);
        self.gauge.sub(before);
        bytes < before
    }

    /// Permits held until the responses are written.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.permits.iter()
    }

    /// Whether the peer receives so slowly that it must not make others wait.
    pub(super) fn is_slow(&self, now_ms: u64) -> bool {
        let (began_ms, before) = self.began;
        // Waiting for the disk does not count.
        let now_ms = self.disk_since_ms.unwrap_or(now_ms);
        let patience_ms = TAKE_MS + (self.total - before) / TAKE_BYTES_PER_MS;
        !self.is_empty() && now_ms.saturating_sub(began_ms) > patience_ms
    }

    /// Whether the peer would accept more, and the disk has not returned it yet.
    pub(super) fn waits_for_disk(&self) -> bool {
        self.disk_since_ms.is_some()
    }

    /// Returns the ranges to fetch from disk; the caller calls [`Output::on_fetched`] afterwards.
    pub(super) fn next_fetch(&mut self) -> Vec<FileRange> {
        self.ahead.next_fetch(&self.chunks)
    }

    /// A fetch has ended. Returns whether it was awaited.
    pub(super) fn on_fetched(&mut self, now_ms: u64) -> bool {
        self.ahead.on_fetched();
        let Some(since_ms) = self.disk_since_ms.take() else { return false };
        // The peer had nothing to receive meanwhile.
        self.began.0 += now_ms.saturating_sub(since_ms);
        true
    }

    /// Releases unused memory.
    pub(super) fn release_buffers(&mut self) {
        self.chunks.shrink_to_fit();
        self.permits.shrink_to_fit();
    }

    /// Adds responses to be written, with the permits of their requests.
    pub(super) fn push(&mut self, chunks: &mut Vec<Chunk>, permits: impl Iterator<Item = Held>, now_ms: u64) {
        if self.is_empty() {
            self.began = (now_ms, self.total);
        }
        for chunk in chunks.drain(..).filter(|chunk| !chunk.is_empty()) {
            self.count(memory(&chunk));
            self.chunks.push_back(chunk);
        }
        // The permits of requests with responses are held until these are received, so that a sender of messages must receive
        // the acknowledgements before it may send more. Others are released.
        let keeps = !self.chunks.is_empty();
        self.permits.extend(permits.filter(|held| keeps && held.is_payload()));
    }

    /// Writes until the peer accepts no more, everything is written, or other connections have their turn.
    pub(super) fn write(&mut self, link: &mut Link, now_ms: u64) -> io::Result<Written> {
        let mut left = TURN_BYTES;
        while let Some(front) = self.chunks.front() {
            if left == 0 {
                return Ok(Written::Turn);
            }
            let result = match front {
                Chunk::Bytes(_) => self.write_memory(link),
                Chunk::File(range) => {
                    let ready = self.ahead.ready(range);
                    match link.socket().zip(range.source.raw_fd()) {
                        _ if ready == 0 => {
                            self.disk_since_ms.get_or_insert(now_ms);
                            return Ok(Written::Disk);
                        }
                        Some((socket, fd)) => write_file(socket, fd, range, ready),
                        None => {
                            self.load_front(ready)?;
                            continue;
                        }
                    }
                }
            };
            match result {
                Ok(written) => {
                    self.advance(written);
                    self.total += written as u64;
                    left = left.saturating_sub(written);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.ahead.on_blocked();
                    return Ok(Written::Blocked);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.permits.clear();
        self.chunks.shrink_to(KEPT_CHUNKS);
        self.ahead.on_end();
        Ok(Written::All)
    }

    fn write_memory(&self, link: &mut Link) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let in_front = self.chunks.iter().map_while(|chunk| match chunk {
            Chunk::Bytes(bytes) => Some(bytes),
            Chunk::File(_) => None,
        });
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(in_front) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        link.write(slices.get(..count).unwrap_or_default())
    }

    /// Reads a step of a file into memory: a simulated file has no descriptor, and TLS needs the bytes.
    fn load_front(&mut self, ready: usize) -> io::Result<()> {
        let Some(Chunk::File(range)) = self.chunks.front_mut() else { return Ok(()) };
        let len = (range.len as usize).min(FILE_STEP_BYTES).min(ready);
        let mut buffer = vec![0; len];
        range.source.read_exact_at(&mut buffer, range.position)?;
        forward(range, len);
        self.ahead.on_sent(len);
        if range.len == 0 {
            self.chunks.pop_front();
        }
        self.count(len);
        self.chunks.push_front(Chunk::Bytes(Bytes::from(buffer)));
        Ok(())
    }

    /// Removes written bytes.
    fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let Some(front) = self.chunks.front_mut() else { return };
            let len = front.len();
            let step = written.min(len);
            match front {
                Chunk::Bytes(bytes) => {
                    bytes.advance(step);
                    self.counted = self.counted.saturating_sub(step);
                    self.gauge.sub(step);
                }
                Chunk::File(range) => {
                    forward(range, step);
                    self.ahead.on_sent(step);
                }
            }
            if step == len {
                self.chunks.pop_front();
            }
            written -= step;
        }
    }

    fn count(&mut self, bytes: usize) {
        self.counted += bytes;
        self.gauge.add(bytes);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.gauge.sub(self.counted + self.pending);
    }
}

/// Returns a chunk's size in the gauge.
pub(super) fn memory(chunk: &Chunk) -> usize {
    match chunk {
        Chunk::Bytes(bytes) => bytes.len(),
        Chunk::File(_) => 0,
    }
}

fn forward(range: &mut FileRange, bytes: usize) {
    range.position += bytes as u64;
    range.len = range.len.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
}

fn write_file(stream: &TcpStream, fd: i32, range: &FileRange, ready: usize) -> io::Result<usize> {
    let len = (range.len as usize).min(FILE_STEP_BYTES).min(ready);
    let sent =
        stream.try_io(Interest::WRITABLE, || polylogue_env::send_file(stream.as_raw_fd(), fd, range.position, len))?;
    if sent == 0 {
        let text = format!("a file ends at {}, and {} more bytes of it were to be sent", range.position, range.len);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Regression test: any byte received counted as progress.
    #[test]
    fn a_client_that_takes_a_byte_now_and_then_is_slow() {
        let mut output = Output::new(OutputGauge::new(MIB));
        output.push(&mut vec![Chunk::Bytes(Bytes::from(vec![0; MIB]))], std::iter::empty(), 7);
        assert!(!output.is_slow(7 + TAKE_MS) && output.is_slow(8 + TAKE_MS));
        for _ in 0..1_000 {
            output.advance(1);
            output.total += 1;
        }
        assert!(output.is_slow(12 + TAKE_MS), "a byte now and then is no progress");
        output.total += 256 << 10;
        assert!(!output.is_slow(1_000 + TAKE_MS), "it takes enough");
        output.advance(MIB);
        assert!(!output.is_slow(u64::MAX), "nothing is left to take");
    }

    /// Regression test: bytes accepted by TLS and not received by the client were not counted: 64 KiB for each of ten thousand connections.
    #[test]
    fn what_has_not_left_is_counted_until_it_has() {
        let gauge = OutputGauge::new(MIB);
        let mut output = Output::new(gauge.clone());
        assert!(!output.set_pending(0) && !output.set_pending(100));
        assert_eq!((gauge.bytes(), output.counted()), (100, 100));
        assert!(!output.set_pending(100) && output.set_pending(40), "some of it has left");
        assert_eq!(gauge.bytes(), 40);
        drop(output);
        assert_eq!(gauge.bytes(), 0);
    }

    #[test]
    fn reads_get_what_is_free_and_wait_only_for_their_own_client() {
        let gauge = OutputGauge::new(64 * MIB);
        let mib = |bytes: Option<u32>| bytes.map(|bytes| bytes as usize / MIB);
        assert_eq!(mib(gauge.read_bytes(u32::MAX, 0, false)), Some(4), "a connection's share");
        assert_eq!(mib(gauge.read_bytes(MIB as u32, 0, false)), Some(1), "not more than was wanted");
        assert_eq!(mib(gauge.read_bytes(u32::MAX, 3 * MIB, true)), Some(1), "what is left of the share");
        assert_eq!(gauge.read_bytes(u32::MAX, 4 * MIB, true), None, "its own responses come first");
        assert_eq!(gauge.read_bytes(u32::MAX, 4 * MIB, false), Some(0), "nothing would come of waiting: one entry");
        gauge.add_asked(56 * MIB);
        assert_eq!(mib(gauge.read_bytes(u32::MAX, 0, false)), Some(2), "others have asked for much");
        gauge.sub_asked(56 * MIB);
        gauge.add(64 * MIB);
        assert_eq!(
            gauge.read_bytes(u32::MAX, 0, false),
            Some(64 << 10),
            "a client that receives its responses continues to read"
        );
        assert_eq!(gauge.read_bytes(u32::MAX, 1, true), None);
    }
}
