//! What the bytes of a connection go over: a socket as it is, or TLS on it.
//!
//! ```text
//!   Input, Output ──plaintext── Link ──────────────────────────────── socket        as it is; files go straight from the page cache
//!                                 └── ServerConnection ──records──── socket        with TLS; files are read into memory first
//! ```
//!
//! Other than a socket, TLS has bytes of its own on both sides: what came and is not taken yet ([`Link::readable`] says so), and what was
//! written and the peer has not taken ([`Link::pending`]), at most [`PENDING_BYTES_MAX`].

use bytes::{Buf as _, BytesMut};
use polylogue_env::set_receive_low_water;
use rustls::ServerConnection;
use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::os::fd::AsFd as _;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What TLS takes in of what is written before the peer has taken what came before it. Bytes.
const PENDING_BYTES_MAX: usize = 64 << 10;
/// What is taken off a socket with TLS at a time: more than the longest record, so that a record that has come is taken whole. The library by
/// itself takes 4 KiB, and each was a turn of the connection: a quarter of what TLS cost beyond no TLS (docs/lab/security.md). Bytes.
const SEALED_BYTES: usize = 32 << 10;
/// The longest record (RFC 5246, section 6.2.3). Bytes.
const RECORD_BYTES_MAX: usize = (16 << 10) + (2 << 10) + 5;
/// A frame that lacks less is not waited for as a whole: it saves nothing. Bytes.
const EXPECTED_BYTES_MIN: usize = 8 << 10;
/// What the system keeps at the most before it wakes the connection. Bytes.
const EXPECTED_BYTES_MAX: usize = 64 << 10;
/// How often more is taken off a socket for one read: then others have their turn, whatever comes, records without anything in them too.
const READS_MAX: usize = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    tls: Option<Box<Secured>>,
    /// Bytes that have to be there before the system wakes the waiting task.
    low_water: u32,
}

/// TLS after its handshake.
#[derive(Debug)]
struct Secured {
    tls: ServerConnection,
    /// There may be bytes that came and were not taken.
    is_filled: bool,
    /// What came off the socket and is not decrypted: empty, without memory, when all is.
    sealed: BytesMut,
    /// The library has at the most so much of a record that is not whole: what it was handed since a record came out, and with that one. Bytes.
    opening: usize,
    /// What was wrong with TLS after bytes that were still to be taken.
    broken: Option<io::Error>,
    /// Bytes that were written since the last of them had left.
    pending: usize,
}

/// What came of a look at what is decrypted.
enum Opened {
    /// So many bytes were taken.
    Some(usize),
    /// Nothing is there.
    Nothing,
    /// The peer has nothing more to say.
    End,
}

impl Link {
    /// A socket as it is.
    pub(super) fn plain(stream: TcpStream) -> Link {
        Link { stream, tls: None, low_water: 1 }
    }

    /// Whether it is one with TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// A socket with TLS, whose handshake is done.
    pub(super) fn secured(stream: TcpStream, mut tls: ServerConnection) -> Link {
        tls.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Link { stream, tls: Some(Box::new(Secured::new(tls))), low_water: 1 }
    }

    /// The socket, where nothing stands between it and the bytes of the connection.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        if self.tls.is_none() { Some(&self.stream) } else { None }
    }

    /// Nothing can be done before so many more bytes have come. A client's TLS sends a record at a time, a network a packet: each would wake a
    /// thread that finds nothing to do (docs/lab/security.md), so that the system waits for them.
    pub(super) fn expect(&mut self, bytes: usize) {
        // A part of a record that has come already is among them, and what TLS adds is not.
        let bytes = bytes.saturating_sub(self.tls.as_ref().map_or(0, |secured| secured.opening));
        let low_water = if bytes < EXPECTED_BYTES_MIN { 1 } else { bytes.min(EXPECTED_BYTES_MAX) as u32 };
        // Where the system knows no such thing, it wakes for anything.
        if low_water != self.low_water && set_receive_low_water(self.stream.as_fd(), low_water).is_ok() {
            self.low_water = low_water;
        }
    }

    /// Waits until a read may find something.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.tls.as_ref().is_some_and(|secured| secured.is_filled) {
            return Ok(());
        }
        self.stream.readable().await
    }

    /// Waits until the peer may take something.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// Whether there are bytes that were written and have not left.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|secured| secured.tls.wants_write())
    }

    /// How many bytes were written and are held here because the peer has not taken them: at the most, until all have left.
    pub(super) fn pending(&self) -> usize {
        self.tls.as_ref().map_or(0, |secured| secured.pending)
    }

    /// Reads at most `room` bytes to the end of `into`, where they have been reserved: so many, 0 for the end; `None` when nothing is there now.
    ///
    /// # Errors
    /// The system's; of TLS that is broken `InvalidData`.
    pub(super) fn read(&mut self, into: &mut BytesMut, room: usize) -> io::Result<Option<usize>> {
        match &mut self.tls {
            Some(secured) => secured.read(&mut self.stream, into, room),
            None => read_now(&mut self.stream, into),
        }
    }

    /// Writes as much as is taken now.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is, and the system's.
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

    /// Sends what was written and has not left.
    ///
    /// # Errors
    /// `WouldBlock` when the peer does not take all of it now, and the system's.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(secured) = &mut self.tls else { return Ok(()) };
        let mut socket = Socket(&self.stream);
        while secured.tls.wants_write() {
            secured.tls.write_tls(&mut socket)?;
        }
        secured.pending = 0;
        Ok(())
    }

    /// Says that nothing more comes, and drops what still arrives, at most `reads_max` KiB of it.
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

/// Takes what a socket has now and there is capacity for. Polled once and not waited for: other than `try_read`, this remembers after a short
/// read that the socket is empty, and saves the call that would only say so.
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
                // Returned again when what came before it is taken.
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
                // The peer gets the alert, if it still reads.
                let _ = self.tls.write_tls(&mut Socket(stream));
                self.broken = Some(io::Error::new(io::ErrorKind::InvalidData, broken));
            }
        }
        if self.sealed.is_empty() {
            self.sealed = BytesMut::new();
        }
        Ok((taken > 0).then_some(taken))
    }

    /// Takes what is decrypted, at most `room` bytes.
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
            // A peer that closes without a TLS alert is gone.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Opened::End),
            Err(e) => Err(e),
        }
    }

    /// Decrypts as much of what came as the library takes at a time.
    fn unseal(&mut self) -> Result<(), rustls::Error> {
        let mut handed = 0;
        if !self.sealed.is_empty() {
            let mut sealed = self.sealed.as_ref();
            let taken = self.tls.read_tls(&mut sealed).map_err(|e| rustls::Error::General(e.to_string()))?;
            self.sealed.advance(taken);
            handed = taken;
        }
        // All that was there before was taken out: a record that comes out ended in what was handed now, and the next began there.
        let comes_out = self.tls.process_new_packets()?.plaintext_bytes_to_read() > 0;
        self.opening = if comes_out { handed } else { self.opening.saturating_add(handed) };
        Ok(())
    }

    /// Gives what came before something that is wrong, which the next read returns.
    fn put_off(&mut self, broken: io::Error, taken: usize) -> io::Result<Option<usize>> {
        self.broken = Some(broken);
        Ok(Some(taken))
    }
}

/// A socket that is read and written as far as that goes without waiting.
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
