//! Non-blocking sockets: reads whole response frames, writes, and polls several sockets.

use crate::clock::timespec;
use crate::error::{BenchError, Context, Result};
use crate::wire::ANSWER_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use polylogue_kafka_codec::frame::{LENGTH_BYTES, frame_len};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Size of the read buffer, much larger than a produce response. Bytes.
const READ_BYTES: usize = 64 << 10;

/// Splits the bytes of a socket into frames.
#[derive(Debug)]
pub struct Frames {
    scratch: Vec<u8>,
    start: usize,
    end: usize,
    /// A frame that is larger than the buffer, and the number of its bytes read so far.
    long: Option<(BytesMut, usize)>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { scratch: vec![0; READ_BYTES], start: 0, end: 0, long: None }
    }
}

impl Frames {
    /// Returns the next frame without its length prefix. `None` if the socket has no complete frame now.
    ///
    /// # Errors
    /// The connection is closed, or the frame is too long.
    pub fn next(&mut self, stream: &TcpStream) -> Result<Option<Bytes>> {
        loop {
            if let Some(frame) = self.cut()? {
                return Ok(Some(frame));
            }
            let read = match &mut self.long {
                Some((frame, have)) => {
                    let read = read_some(stream, frame.get_mut(*have..).unwrap_or_default())?;
                    *have += read.unwrap_or(0);
                    read
                }
                None => {
                    self.scratch.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                    let read = read_some(stream, self.scratch.get_mut(self.end..).unwrap_or_default())?;
                    self.end += read.unwrap_or(0);
                    read
                }
            };
            if read.is_none() {
                return Ok(None);
            }
        }
    }

    /// Returns a frame from the bytes read so far, if it is complete.
    fn cut(&mut self) -> Result<Option<Bytes>> {
        if let Some((frame, have)) = self.long.take() {
            if have < frame.len() {
                self.long = Some((frame, have));
                return Ok(None);
            }
            return Ok(Some(frame.freeze()));
        }
        let here = self.scratch.get(self.start..self.end).unwrap_or_default();
        let Some(len) = frame_len(here, ANSWER_BYTES_MAX).context(|| "invalid response of the broker".to_owned())?
        else {
            return Ok(None);
        };
        let here = here.get(LENGTH_BYTES..).unwrap_or_default();
        if let Some(frame) = here.get(..len) {
            self.start += LENGTH_BYTES + len;
            return Ok(Some(Bytes::copy_from_slice(frame)));
        }
        if LENGTH_BYTES + len > READ_BYTES {
            let mut frame = BytesMut::zeroed(len);
            if let Some(front) = frame.get_mut(..here.len()) {
                front.copy_from_slice(here);
            }
            self.long = Some((frame, here.len()));
            (self.start, self.end) = (0, 0);
        }
        Ok(None)
    }
}

fn read_some(mut stream: &TcpStream, into: &mut [u8]) -> Result<Option<usize>> {
    loop {
        return match stream.read(into) {
            Ok(0) => Err(BenchError::new("the broker closed the connection")),
            Ok(read) => Ok(Some(read)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => Err(BenchError::new(format!("cannot read from the broker: {e}"))),
        };
    }
}

/// Writes as many bytes as the socket accepts without blocking, and returns their number.
///
/// # Errors
/// The connection is closed.
pub fn write_some(mut stream: &TcpStream, bytes: &[u8]) -> Result<usize> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(count) => written += count,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(BenchError::new(format!("cannot write to the broker: {e}"))),
        }
    }
    Ok(written)
}

/// Waits until one of the sockets is readable, or writable if its flag is set, for at most `left_ns`.
///
/// # Errors
/// `poll` fails.
pub fn wait_for<'a>(sockets: impl Iterator<Item = (&'a TcpStream, bool)>, left_ns: u64) -> Result<()> {
    let interest = |writes: bool| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut sockets: Vec<PollFd<'_>> = sockets.map(|(socket, writes)| PollFd::new(socket, interest(writes))).collect();
    match poll(&mut sockets, Some(&timespec(left_ns))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(BenchError::new(format!("cannot poll sockets: {e}"))),
    }
}
