//! The sending half of a connection: chunks go out, from memory or straight from files.

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

/// Pieces that one system call takes.
const SLICES_MAX: usize = 64;
/// What one system call takes out of a file, so that a client that takes all there is does not hold the thread for long. Bytes.
pub(super) const FILE_STEP_BYTES: usize = 256 << 10;
/// What a connection writes before others get their turn. Bytes.
const TURN_BYTES: usize = 1 << 20;

/// What the responses of one connection may take of the gauge: one in so many parts.
const CONNECTION_SHARE: usize = 16;
/// What a read may return while many responses wait to be taken. Bytes.
const PRESSURE_READ_BYTES: usize = 64 << 10;
/// How long a client may take over its responses when others are held up by that, besides what they need at
/// [`TAKE_BYTES_PER_MS`]. Milliseconds.
const TAKE_MS: u64 = 5_000;
/// The slowest reader that is waited for when it holds up others: about 256 KiB a second.
const TAKE_BYTES_PER_MS: u64 = 256;

/// Room for so many chunks is kept between responses; more is given back.
pub(super) const KEPT_CHUNKS: usize = 64;

/// Of what is left for reads, one may take one in so many parts.
const READ_SHARE: usize = 4;

/// Counts what waits to be written over all connections: bytes in memory, not those in files; and apart from that what reads
/// that are on their way may bring.
#[derive(Clone, Debug)]
pub struct OutputGauge {
    bytes: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl OutputGauge {
    /// For so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> OutputGauge {
        OutputGauge { bytes: Arc::default(), asked: Arc::default(), bytes_max }
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that reads on their way may bring.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// So much waits that what is read from now on should be little.
    pub(super) fn is_high(&self) -> bool {
        self.bytes() >= self.bytes_max / 2
    }

    /// So much waits that nothing more may be read by those for whom something waits.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    /// How much of the bytes wanted a connection may read that has `own` of the bytes counted here. `None`: later, when what
    /// is `pending` of them has been taken. No connection waits for others' responses to be taken.
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

/// What came of writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// Everything is out.
    All,
    /// The peer takes nothing more now.
    Blocked,
    /// There is more to write, and it is others' turn.
    Turn,
    /// What comes next lies on the disk and is being fetched.
    Disk,
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Output {
    chunks: VecDeque<Chunk>,
    /// Bytes of `chunks` that are in memory, as counted in the gauge.
    counted: usize,
    /// Bytes that were written and have not left, counted there as well.
    pending: usize,
    gauge: OutputGauge,
    /// Memory of the requests that these chunks answer.
    permits: Vec<Held>,
    /// Bytes written since the connection was made.
    total: u64,
    /// When these chunks came, and the total then. Monotonic milliseconds.
    began: (u64, u64),
    /// How much of the files among the chunks is in memory.
    ahead: Ahead,
    /// Since when only the disk is waited for. Monotonic milliseconds.
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

    /// Bytes that wait, as counted in the gauge.
    pub(super) fn counted(&self) -> usize {
        self.counted + self.pending
    }

    /// So many bytes were written and have not left. Whether the peer has taken some since.
    pub(super) fn set_pending(&mut self, bytes: usize) -> bool {
        if self.pending == bytes {
            return false;
        }
        let before = std::mem::replace(&mut self.pending, bytes);
        self.gauge.add(bytes);
        self.gauge.sub(before);
        bytes < before
    }

    /// The memory of requests that is held until their responses are written.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.permits.iter()
    }

    /// Whether what waits is taken so slowly that it must not hold up others.
    pub(super) fn is_slow(&self, now_ms: u64) -> bool {
        let (began_ms, before) = self.began;
        // Nor by one who waits for our disk.
        let now_ms = self.disk_since_ms.unwrap_or(now_ms);
        let patience_ms = TAKE_MS + (self.total - before) / TAKE_BYTES_PER_MS;
        !self.is_empty() && now_ms.saturating_sub(began_ms) > patience_ms
    }

    /// Whether the peer would take more, and the disk has not given it yet.
    pub(super) fn waits_for_disk(&self) -> bool {
        self.disk_since_ms.is_some()
    }

    /// What is to be fetched from the disk now; the caller says [`Output::on_fetched`] when that has been tried.
    pub(super) fn next_fetch(&mut self) -> Vec<FileRange> {
        self.ahead.next_fetch(&self.chunks)
    }

    /// What was to be fetched is in memory, or will not be. Whether it was waited for.
    pub(super) fn on_fetched(&mut self, now_ms: u64) -> bool {
        self.ahead.on_fetched();
        let Some(since_ms) = self.disk_since_ms.take() else { return false };
        // The peer had nothing to take meanwhile.
        self.began.0 += now_ms.saturating_sub(since_ms);
        true
    }

    /// Lets go of memory that is not used.
    pub(super) fn rest(&mut self) {
        self.chunks.shrink_to_fit();
        self.permits.shrink_to_fit();
    }

    /// Takes responses to be written, with the memory of the requests they answer.
    pub(super) fn push(&mut self, chunks: &mut Vec<Chunk>, permits: impl Iterator<Item = Held>, now_ms: u64) {
        if self.is_empty() {
            self.began = (now_ms, self.total);
        }
        for chunk in chunks.drain(..).filter(|chunk| !chunk.is_empty()) {
            self.count(memory(&chunk));
            self.chunks.push_back(chunk);
        }
        // A list that is answered is gone, and so is a request without a response. Messages are gone as well; their sender
        // gets to send more when it has taken what was said of these.
        let keeps = !self.chunks.is_empty();
        self.permits.extend(permits.filter(|held| keeps && held.is_payload()));
    }

    /// Writes until the peer takes no more, everything is out, or it is others' turn.
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

    /// A simulated file has no descriptor, and TLS wants bytes: a step of it is read into memory.
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

    /// Takes off what was written.
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

/// What a chunk takes of the gauge.
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

    /// Any byte that was taken counted as progress once.
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

    /// What TLS had taken in and a client had not taken was not counted: 64 KiB of each of ten thousand connections were not counted.
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
        assert_eq!(gauge.read_bytes(u32::MAX, 0, false), Some(64 << 10), "who takes its responses reads on");
        assert_eq!(gauge.read_bytes(u32::MAX, 1, true), None);
    }
}
