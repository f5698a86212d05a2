//! The transport of a connection: a plain socket, or TLS on it.
//!
//! ```text
//!   Input, Output ──plaintext── Link ──────────────────────────────── socket        plain; files are sent from the page cache
//!                                 └── ServerConnection ──records──── socket        TLS; files are read into memory first
//! ```
//!
//! Unlike a socket, TLS buffers bytes in both directions: received and not yet read ([`Link::readable`] reports them), and written and not yet
//! sent ([`Link::pending`]), at most [`PENDING_BYTES_MAX`].

use bytes::{Buf as _, BytesMut};
use polylogue_env::set_receive_low_water;
use rustls::ServerConnection;
use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::os::fd::AsFd as _;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes that TLS accepts before earlier ones were sent. Bytes.
const PENDING_BYTES_MAX: usize = 64 << 10;
/// Size of a read from a socket with TLS: more than the longest record, so that a received record is read whole. The library's default is
/// 4 KiB, each a turn of the connection: a quarter of TLS's extra cost (docs/lab/security.md). Bytes.
const SEALED_BYTES: usize = 32 << 10;
/// The longest record (RFC 5246, section 6.2.3). Bytes.
const RECORD_BYTES_MAX: usize = (16 << 10) + (2 << 10) + 5;
/// The minimum number of missing bytes for which waiting is worthwhile. Bytes.
const EXPECTED_BYTES_MIN: usize = 8 << 10;
/// The most that the system buffers before it wakes the connection. Bytes.
const EXPECTED_BYTES_MAX: usize = 64 << 10;
/// The maximum number of socket reads for one read: then other connections have their turn, even if records are empty.
const READS_MAX: usize = 2;

/// The transport.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    tls: Option<Box<Secured>>,
    /// Number of bytes that must be available before the system wakes the waiting task.
    low_water: u32,
}

/// TLS after its handshake.
#[derive(Debug)]
struct Secured {
    tls: ServerConnection,
    /// Whether received bytes may be left to read.
    is_filled: bool,
    /// Bytes received and not decrypted; empty, without an allocation, if there are none.
    sealed: BytesMut,
    /// Upper bound of the partial record in the library: bytes passed since a record was completed, and with it. Bytes.
    opening: usize,
    /// A TLS error after bytes that are still to be read.
    broken: Option<io::Error>,
    /// Bytes written since everything was last sent.
    pending: usize,
}

/// The result of reading decrypted bytes.
enum Opened {
    /// So many bytes were taken.
    Some(usize),
    /// Nothing is there.
    Nothing,
    /// The peer has nothing more to say.
    End,
}

impl Link {
    /// Creates a plain transport.
    pub(super) fn plain(stream: TcpStream) -> Link {
        Link { stream, tls: None, low_water: 1 }
    }

    /// Whether it uses TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// Creates a TLS transport after the handshake.
    pub(super) fn secured(stream: TcpStream, mut tls: ServerConnection) -> Link {
        tls.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Link { stream, tls: Some(Box::new(Secured::new(tls))), low_water: 1 }
    }

    /// Returns the socket if it is plain.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        if self.tls.is_none() { Some(&self.stream) } else { None }
    }

    /// Sets how many more bytes must arrive before anything can be done. A client's TLS sends one record at a time, a network one packet: each would
    /// wake the thread for nothing (docs/lab/security.md), so that the system waits for them.
    pub(super) fn expect(&mut self, bytes: usize) {
        // A partial record received already counts; TLS overhead does not.
        let bytes = bytes.saturating_sub(self.tls.as_ref().map_or(0, |secured| secured.opening));
        let low_water = if bytes < EXPECTED_BYTES_MIN { 1 } else { bytes.min(EXPECTED_BYTES_MAX) as u32 };
        // Without support in the system, it wakes for anything.
        if low_water != self.low_water && set_receive_low_water(self.stream.as_fd(), low_water).is_ok() {
            self.low_water = low_water;
        }
    }

    /// Waits until a read may succeed.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.tls.as_ref().is_some_and(|secured| secured.is_filled) {
            return Ok(());
        }
        self.stream.readable().await
    }

    /// Waits until a write may succeed.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Whether written bytes have not been sent.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|secured| secured.tls.wants_write())
    }

    /// Returns an upper bound of the bytes written and not sent.
    pub(super) fn pending(&self) -> usize {
        self.tls.as_ref().map_or(0, |secured| secured.pending)
    }

    /// Reads at most `room` bytes to the end of `into`, whose capacity is reserved: returns their number, 0 at the end; `None` if nothing is available.
    ///
    /// # Errors
    /// The system's; `InvalidData` for a TLS error.
    pub(super) fn read(&mut self, into: &mut BytesMut, room: usize) -> io::Result<Option<usize>> {
        match &mut self.tls {
            Some(secured) => secured.read(&mut self.stream, into, room),
            None => read_now(&mut self.stream, into),
        }
    }

    /// Writes as much as is accepted now.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is accepted, and the system's.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(secured) = &mut self.tls else { return self.stream.try_write_vectored(slices) };
        let mut socket = Socket(&self.stream);
        let mut taken = secured.tls.writer().write_vectored(slices)?;
        if taken == 0 {
            secured.tls.write_tls(&mut socket)?;
            taken = secured.tls.writer().write_vectored(slices)?;
        }
        secured.pending = (secured.pending + taken).min(PENDING_BYTES_MAX);
        match self.flush() {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ if taken == 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(taken),
        }
    }

    /// Sends written bytes that have not been sent.
    ///
    /// # Errors
    /// `WouldBlock` if not all of them are accepted now, and the system's.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(secured) = &mut self.tls else { return Ok(()) };
        let mut socket = Socket(&self.stream);
        while secured.tls.wants_write() {
            secured.tls.write_tls(&mut socket)?;
        }
        secured.pending = 0;
        Ok(())
    }

    /// Shuts down writing, then reads and drops input, at most `reads_max` KiB.
    ///
    /// # Errors
    /// The system's.
    pub(super) async fn close(&mut self, reads_max: usize) -> io::Result<()> {
        if let Some(secured) = &mut self.tls {
            secured.tls.send_close_notify();
        }
        while let Err(e) = self.flush() {
            match e.kind() {
                io::ErrorKind::WouldBlock => self.stream.writable().await?,
                io::ErrorKind::Interrupted => {}
                _ => return Err(e),
            }
        }
        self.stream.shutdown().await?;
        let mut dropped = [0; 1024];
        for _ in 0..reads_max {
            if self.stream.read(&mut dropped).await? == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Reads what is available, up to the capacity. Polled once without waiting: unlike `try_read`, tokio then remembers after a short read that the
/// socket is empty, which saves the system call that would return nothing.
fn read_now(stream: &mut TcpStream, into: &mut BytesMut) -> io::Result<Option<usize>> {
    let reading = std::pin::pin!(stream.read_buf(into));
    match reading.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => read.map(Some),
        Poll::Pending => Ok(None),
    }
}

impl Secured {
    fn new(tls: ServerConnection) -> Secured {
        Secured { tls, is_filled: true, sealed: BytesMut::new(), opening: RECORD_BYTES_MAX, broken: None, pending: 0 }
    }

    fn read(&mut self, stream: &mut TcpStream, into: &mut BytesMut, room: usize) -> io::Result<Option<usize>> {
        let (mut taken, mut reads, mut is_drained) = (0, 0, false);
        self.is_filled = true;
        while taken < room {
            match self.open(into, room - taken)? {
                Opened::Some(bytes) => {
                    taken += bytes;
                    continue;
                }
                // Returned again once the bytes before it were read.
                Opened::End => return Ok(Some(taken)),
                Opened::Nothing => {}
            }
            if let Some(broken) = self.broken.take() {
                return if taken == 0 { Err(broken) } else { self.put_off(broken, taken) };
            }
            if self.sealed.is_empty() {
                if is_drained || reads == READS_MAX {
                    self.is_filled = !is_drained;
                    break;
                }
                self.sealed.reserve(SEALED_BYTES);
                reads += 1;
                match read_now(stream, &mut self.sealed)? {
                    Some(0) => drop(self.tls.read_tls(&mut io::empty())?),
                    Some(read) => is_drained = read < SEALED_BYTES,
                    None => {
                        self.is_filled = false;
                        break;
                    }
                }
            }
            if let Err(broken) = self.unseal() {
                // The peer gets the alert if it still reads.
                let _ = self.tls.write_tls(&mut Socket(stream));
                self.broken = Some(io::Error::new(io::ErrorKind::InvalidData, broken));
            }
        }
        if self.sealed.is_empty() {
            self.sealed = BytesMut::new();
        }
        Ok((taken > 0).then_some(taken))
    }

    /// Reads decrypted bytes, at most `room`.
    fn open(&mut self, into: &mut BytesMut, room: usize) -> io::Result<Opened> {
        let mut reader = self.tls.reader();
        match reader.fill_buf() {
            Ok([]) => Ok(Opened::End),
            Ok(bytes) => {
                let taken = bytes.len().min(room);
                into.extend_from_slice(bytes.get(..taken).unwrap_or_default());
                reader.consume(taken);
                Ok(Opened::Some(taken))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Opened::Nothing),
            // The peer closed without a TLS alert.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Opened::End),
            Err(e) => Err(e),
        }
    }

    /// Decrypts as much of the received bytes as the library accepts at a time.
    fn unseal(&mut self) -> Result<(), rustls::Error> {
        let mut handed = 0;
        if !self.sealed.is_empty() {
            let mut sealed = self.sealed.as_ref();
            let taken = self.tls.read_tls(&mut sealed).map_err(|e| rustls::Error::General(e.to_string()))?;
            self.sealed.advance(taken);
            handed = taken;
        }
        // All earlier plaintext was read: a completed record ended within the bytes just passed, and the next one began there.
        let comes_out = self.tls.process_new_packets()?.plaintext_bytes_to_read() > 0;
        self.opening = if comes_out { handed } else { self.opening.saturating_add(handed) };
        Ok(())
    }

    /// Returns the bytes before an error, which the next read returns.
    fn put_off(&mut self, broken: io::Error, taken: usize) -> io::Result<Option<usize>> {
        self.broken = Some(broken);
        Ok(Some(taken))
    }
}

/// A socket for non-blocking reads and writes.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
