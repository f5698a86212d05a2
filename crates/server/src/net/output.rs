//! The sending half of a connection: chunks go out, from memory or straight from files.

use crate::handle::Permit;
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
/// What one system call takes out of a file, so that a cold file does not hold the thread for long. Bytes.
const FILE_STEP_BYTES: usize = 256 << 10;
/// What a connection writes before others get their turn. Bytes.
const TURN_BYTES: usize = 1 << 20;

/// Room for so many chunks is kept between responses; more is given back.
pub(super) const KEPT_CHUNKS: usize = 64;

/// Counts what waits to be written over all connections: bytes in memory, not those in files.
#[derive(Clone, Debug)]
pub struct OutputGauge {
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl OutputGauge {
    /// For so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> OutputGauge {
        OutputGauge { bytes: Arc::new(AtomicUsize::new(0)), bytes_max }
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// So much waits that what is read from now on should be little.
    pub(super) fn is_high(&self) -> bool {
        self.bytes() >= self.bytes_max / 2
    }

    /// So much waits that nothing more may be read.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
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
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Output {
    chunks: VecDeque<Chunk>,
    /// Bytes of `chunks` that are in memory, as counted in the gauge.
    counted: usize,
    gauge: OutputGauge,
    /// Of the requests that these chunks answer.
    permits: Vec<Permit>,
    /// Bytes written since the connection was made.
    total: u64,
}

impl Output {
    pub(super) fn new(gauge: OutputGauge) -> Output {
        Output { chunks: VecDeque::new(), counted: 0, gauge, permits: Vec::new(), total: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Takes responses to be written, with the permits of the requests they answer.
    pub(super) fn push(&mut self, chunks: &mut Vec<Chunk>, permits: impl Iterator<Item = Permit>) {
        for chunk in chunks.drain(..).filter(|chunk| !chunk.is_empty()) {
            self.count(memory(&chunk));
            self.chunks.push_back(chunk);
        }
        // A request without a response gives its memory back at once.
        if !self.chunks.is_empty() {
            self.permits.extend(permits);
        }
    }

    /// Writes until the peer takes no more, everything is out, or it is others' turn.
    pub(super) fn write(&mut self, stream: &TcpStream) -> io::Result<Written> {
        let mut left = TURN_BYTES;
        while let Some(front) = self.chunks.front() {
            if left == 0 {
                return Ok(Written::Turn);
            }
            let result = match front {
                Chunk::Bytes(_) => self.write_memory(stream),
                Chunk::File(range) => match range.source.raw_fd() {
                    Some(fd) => write_file(stream, fd, range),
                    None => {
                        self.load_front()?;
                        continue;
                    }
                },
            };
            match result {
                Ok(written) => {
                    self.advance(written);
                    self.total += written as u64;
                    left = left.saturating_sub(written);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Written::Blocked),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.permits.clear();
        self.chunks.shrink_to(KEPT_CHUNKS);
        Ok(Written::All)
    }

    fn write_memory(&self, stream: &TcpStream) -> io::Result<usize> {
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
        stream.try_write_vectored(slices.get(..count).unwrap_or_default())
    }

    /// A simulated file has no descriptor: a step of it is read into memory.
    fn load_front(&mut self) -> io::Result<()> {
        let Some(Chunk::File(range)) = self.chunks.front_mut() else { return Ok(()) };
        let len = (range.len as usize).min(FILE_STEP_BYTES);
        let mut buffer = vec![0; len];
        range.source.read_exact_at(&mut buffer, range.position)?;
        forward(range, len);
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
                Chunk::File(range) => forward(range, step),
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
        self.gauge.sub(self.counted);
    }
}

fn memory(chunk: &Chunk) -> usize {
    match chunk {
        Chunk::Bytes(bytes) => bytes.len(),
        Chunk::File(_) => 0,
    }
}

fn forward(range: &mut FileRange, bytes: usize) {
    range.position += bytes as u64;
    range.len = range.len.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
}

fn write_file(stream: &TcpStream, fd: i32, range: &FileRange) -> io::Result<usize> {
    let len = (range.len as usize).min(FILE_STEP_BYTES);
    let sent =
        stream.try_io(Interest::WRITABLE, || polylogue_env::send_file(stream.as_raw_fd(), fd, range.position, len))?;
    if sent == 0 {
        let text = format!("a file ends at {}, and {} more bytes of it were to be sent", range.position, range.len);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok(sent)
}
