//! What the bytes of a connection go over: a socket as it is, or TLS on it.
//!
//! ```text
//!   Input, Output ──plaintext── Link ──────────────────────────────── socket        as it is; files go straight from the page cache
//!                                 └── ServerConnection ──records──── socket        with TLS; files are read into memory first
//! ```
//!
//! Other than a socket, TLS has bytes of its own on both sides: what came and is not taken yet ([`Link::readable`] says so), and what was
//! written and the peer has not taken ([`Link::pending`]), at most [`PENDING_BYTES_MAX`].

use bytes::BytesMut;
use rustls::ServerConnection;
use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What TLS takes in of what is written before the peer has taken what came before it. Bytes.
const PENDING_BYTES_MAX: usize = 64 << 10;
/// How often more is taken off a socket for one read when what came was no message: records without anything in them, keys that change.
const EMPTY_READS_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    tls: Option<Box<Secured>>,
}

/// TLS after its handshake.
#[derive(Debug)]
struct Secured {
    tls: ServerConnection,
    /// There may be decrypted bytes that were not taken.
    is_filled: bool,
    /// Bytes that were written since the last of them had left.
    pending: usize,
}

impl Link {
    /// A socket as it is.
    pub(super) fn plain(stream: TcpStream) -> Link {
        Link { stream, tls: None }
    }

    /// Whether it is one with TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// A socket with TLS, whose handshake is done.
    pub(super) fn secured(stream: TcpStream, mut tls: ServerConnection) -> Link {
        tls.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Link { stream, tls: Some(Box::new(Secured { tls, is_filled: true, pending: 0 })) }
    }

    /// The socket, where nothing stands between it and the bytes of the connection.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        if self.tls.is_none() { Some(&self.stream) } else { None }
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
            Some(secured) => secured.read(&self.stream, into, room),
            None => {
                // Polled once and not waited for: other than `try_read`, this remembers after a short read that the socket is
                // empty, and saves the call that would only say so.
                let reading = std::pin::pin!(self.stream.read_buf(into));
                match reading.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(read) => read.map(Some),
                    Poll::Pending => Ok(None),
                }
            }
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

impl Secured {
    fn read(&mut self, stream: &TcpStream, into: &mut BytesMut, room: usize) -> io::Result<Option<usize>> {
        for _ in 0..EMPTY_READS_MAX {
            let mut reader = self.tls.reader();
            match reader.fill_buf() {
                Ok(bytes) => {
                    let taken = bytes.len().min(room);
                    into.extend_from_slice(bytes.get(..taken).unwrap_or_default());
                    reader.consume(taken);
                    self.is_filled = !matches!(reader.fill_buf(), Err(e) if e.kind() == io::ErrorKind::WouldBlock);
                    return Ok(Some(taken));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.is_filled = false,
                // Whoever goes without a word of TLS has gone.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(e) => return Err(e),
            }
            match self.tls.read_tls(&mut Socket(stream)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
            if let Err(broken) = self.tls.process_new_packets() {
                // The peer is told what was wrong, if it still listens.
                let _ = self.tls.write_tls(&mut Socket(stream));
                return Err(io::Error::new(io::ErrorKind::InvalidData, broken));
            }
        }
        // Others have their turn; then it goes on.
        self.is_filled = true;
        Ok(None)
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
