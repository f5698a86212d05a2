//! Sockets that do not block: whole answers from them, and waiting for several.

use crate::clock::timespec;
use crate::error::{BenchError, Context, Result};
use crate::wire::ANSWER_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use polylogue_kafka_codec::frame::{LENGTH_BYTES, frame_len};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// What is read at a time; answers to writes are much smaller. Bytes.
const READ_BYTES: usize = 64 << 10;

/// Cuts what a socket gives into frames.
#[derive(Debug)]
pub struct Frames {
    scratch: Vec<u8>,
    start: usize,
    end: usize,
    /// A frame that is longer than what has been read, and how much of it is there.
    long: Option<(BytesMut, usize)>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { scratch: vec![0; READ_BYTES], start: 0, end: 0, long: None }
    }
}

impl Frames {
    /// The next frame without its length; `None` when the socket has no more now.
    ///
    /// # Errors
    /// When the connection has ended or the frame is too long.
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

    /// A frame out of what has been read.
    fn cut(&mut self) -> Result<Option<Bytes>> {
        if let Some((frame, have)) = self.long.take() {
            if have < frame.len() {
                self.long = Some((frame, have));
                return Ok(None);
            }
            return Ok(Some(frame.freeze()));
        }
        let here = self.scratch.get(self.start..self.end).unwrap_or_default();
        let Some(len) = frame_len(here, ANSWER_BYTES_MAX).context(|| "the broker's answer".to_owned())? else {
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
            Ok(0) => Err(BenchError::new("the broker has closed the connection")),
            Ok(read) => Ok(Some(read)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => Err(BenchError::new(format!("cannot read from the broker: {e}"))),
        };
    }
}

/// Writes as much as the socket takes now, and says how much that was.
///
/// # Errors
/// When the connection has ended.
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

/// Waits until one of these sockets can be read, or written where that is said beside it, and at most so long.
///
/// # Errors
/// When the system cannot wait for them.
pub fn wait_for<'a>(sockets: impl Iterator<Item = (&'a TcpStream, bool)>, left_ns: u64) -> Result<()> {
    let interest = |writes: bool| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut sockets: Vec<PollFd<'_>> = sockets.map(|(socket, writes)| PollFd::new(socket, interest(writes))).collect();
    match poll(&mut sockets, Some(&timespec(left_ns))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(BenchError::new(format!("cannot wait for sockets: {e}"))),
    }
}
