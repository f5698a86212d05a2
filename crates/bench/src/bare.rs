//! Bare loops: the machine's cost of work that no broker can avoid. A broker's cost is given as a multiple of them.
//!
//! ```text
//!   write loop    sender thread --loopback--> read a batch, CRC-32C, write to a prewritten file [, fdatasync], answer 8 bytes
//!   read loop     sendfile of a file in the page cache --loopback--> reader thread that discards it
//!   flushes       sequential writes with fdatasync: the cost of a flush
//!   paced flush   write and fdatasync at a fixed rate: the disk's latency under a steady load, with its tail
//!                                                                     only the processor time of the loop's thread counts
//! ```

use crate::clock::{monotonic_ns, seconds, thread_cpu_ns};
use crate::error::{BenchError, Context, Result};
use crate::latency::Latency;
use crate::stamp;
use polylogue_env::send_file;
use polylogue_record::crc::crc32c;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

/// Batches in flight, as of a producer with five requests in flight.
const AHEAD: u64 = 5;
/// Length of the response to a batch. Bytes.
const ANSWER_BYTES: usize = 8;
/// Size of one sendfile. Bytes.
const SEND_BYTES: usize = 1 << 20;
/// The message size for which costs are given. Bytes.
const MESSAGE_BYTES: u64 = 1_024;

const NS_PER_S: u64 = 1_000_000_000;

/// The cost of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bare {
    /// Processor seconds of the loop's thread per million messages of 1 KiB.
    pub cpu_s_per_million: f64,
    /// Messages of 1 KiB per second.
    pub messages_per_s: f64,
}

fn bare(bytes: u64, cpu_ns: u64, took_ns: u64) -> Bare {
    let millions = (bytes / MESSAGE_BYTES).max(1) as f64 / 1e6;
    Bare { cpu_s_per_million: seconds(cpu_ns) / millions, messages_per_s: millions * 1e6 / seconds(took_ns.max(1)) }
}

fn pair() -> Result<(TcpStream, TcpStream)> {
    let said = || "cannot connect to ourselves on the loopback".to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").context(said)?;
    let near = TcpStream::connect(listener.local_addr().context(said)?).context(said)?;
    let (far, _) = listener.accept().context(said)?;
    near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).context(said)?;
    Ok((near, far))
}

/// Creates a file of incompressible bytes, written and flushed.
fn prewritten(path: &Path, bytes: u64) -> Result<File> {
    let said = || format!("cannot write {}", path.display());
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).context(said)?;
    let mut block = vec![0; SEND_BYTES];
    stamp::fill(&mut block, 1);
    let mut at = 0;
    while at < bytes {
        let len = bytes.saturating_sub(at).min(SEND_BYTES as u64);
        file.write_all_at(block.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default(), at).context(said)?;
        at += len;
    }
    file.sync_all().context(said)?;
    Ok(file)
}

/// Writes `batch_bytes` and flushes, `count` times sequentially, into a file of `file_bytes` that is overwritten in a cycle. Returns the
/// times.
///
/// # Errors
/// I/O errors.
pub fn flushes(folder: &Path, batch_bytes: usize, count: u64, file_bytes: u64) -> Result<Latency> {
    let said = || "the bare flushes".to_owned();
    let file = prewritten(&folder.join("bare-flush"), file_bytes)?;
    let mut batch = vec![0; batch_bytes];
    stamp::fill(&mut batch, 4);
    let (mut latency, places) = (Latency::new(), (file_bytes / batch_bytes as u64).max(1));
    for number in 0..count {
        let began = monotonic_ns();
        file.write_all_at(&batch, number % places * batch_bytes as u64).context(said)?;
        file.sync_data().context(said)?;
        latency.record(monotonic_ns().saturating_sub(began));
    }
    Ok(latency)
}

/// Writes `batch_bytes` and flushes `per_s` times a second, `count` times, into a file of `file_bytes` that is overwritten in a
/// cycle. Returns the times from when each was due.
///
/// # Errors
/// I/O errors.
pub fn paced_flush(folder: &Path, batch_bytes: usize, per_s: u64, count: u64, file_bytes: u64) -> Result<Latency> {
    let said = || "the paced flushes".to_owned();
    let file = prewritten(&folder.join("bare-flush"), file_bytes)?;
    let mut batch = vec![0; batch_bytes];
    stamp::fill(&mut batch, 3);
    let mut latency = Latency::new();
    let (began, gap_ns, places) = (monotonic_ns(), NS_PER_S / per_s.max(1), (file_bytes / batch_bytes as u64).max(1));
    for number in 0..count {
        let due = began + number * gap_ns;
        std::thread::sleep(Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        file.write_all_at(&batch, number % places * batch_bytes as u64).context(said)?;
        file.sync_data().context(said)?;
        latency.record(monotonic_ns().saturating_sub(due));
    }
    Ok(latency)
}

/// The write loop over `bytes` in batches of `batch_bytes`, into a file of at most `file_bytes` that is overwritten in a cycle;
/// `flushed`: with an fdatasync after each batch.
///
/// # Errors
/// I/O errors.
pub fn write_loop(folder: &Path, bytes: u64, batch_bytes: usize, file_bytes: u64, flushed: bool) -> Result<Bare> {
    let said = || "the bare write loop".to_owned();
    let file = prewritten(&folder.join("bare-write"), file_bytes)?;
    let (near, mut far) = pair()?;
    let batches = (bytes / batch_bytes as u64).max(1);
    let sender = Builder::new().name("bare-send".to_owned()).spawn(move || send_batches(&near, batches, batch_bytes));
    let sender = sender.context(said)?;
    let mut batch = vec![0; batch_bytes];
    let (mut at, mut sum) = (0, 0_u32);
    let (began, cpu) = (monotonic_ns(), thread_cpu_ns());
    for _ in 0..batches {
        far.read_exact(&mut batch).context(said)?;
        sum ^= crc32c(&batch);
        if at + batch_bytes as u64 > file_bytes {
            at = 0;
        }
        file.write_all_at(&batch, at).context(said)?;
        at += batch_bytes as u64;
        if flushed {
            file.sync_data().context(said)?;
        }
        far.write_all(&u64::from(sum).to_be_bytes()).context(said)?;
    }
    let measured = bare(batches * batch_bytes as u64, thread_cpu_ns() - cpu, monotonic_ns() - began);
    match sender.join() {
        Ok(sent) => sent.map(|()| measured),
        Err(_) => Err(BenchError::new("the sender of the bare write loop has panicked")),
    }
}

fn send_batches(mut near: &TcpStream, batches: u64, batch_bytes: usize) -> Result<()> {
    let said = || "the sender of the bare write loop".to_owned();
    let mut batch = vec![0; batch_bytes];
    stamp::fill(&mut batch, 2);
    let mut answer = [0; ANSWER_BYTES];
    for sent in 0..batches {
        if sent >= AHEAD {
            near.read_exact(&mut answer).context(said)?;
        }
        near.write_all(&batch).context(said)?;
    }
    for _ in 0..batches.min(AHEAD) {
        near.read_exact(&mut answer).context(said)?;
    }
    Ok(())
}

/// The read loop: `bytes` from a file of `file_bytes` in the page cache, repeatedly.
///
/// # Errors
/// I/O errors.
pub fn sendfile_loop(folder: &Path, bytes: u64, file_bytes: u64) -> Result<Bare> {
    let said = || "the bare sendfile loop".to_owned();
    let file = prewritten(&folder.join("bare-read"), file_bytes)?;
    let (near, mut far) = pair()?;
    let drain = move || {
        let mut block = vec![0; SEND_BYTES];
        while far.read(&mut block).is_ok_and(|read| read > 0) {}
    };
    let reader = Builder::new().name("bare-drain".to_owned()).spawn(drain).context(said)?;
    let (began, cpu) = (monotonic_ns(), thread_cpu_ns());
    let (mut sent, mut at) = (0_u64, 0_u64);
    while sent < bytes {
        if at >= file_bytes {
            at = 0;
        }
        let len = file_bytes.saturating_sub(at).min(SEND_BYTES as u64);
        let went =
            send_file(near.as_raw_fd(), file.as_raw_fd(), at, usize::try_from(len).unwrap_or(0)).context(said)?;
        if went == 0 {
            return Err(BenchError::new(format!("the file of the sendfile loop ends at {at}")));
        }
        at += went as u64;
        sent += went as u64;
    }
    let cpu = thread_cpu_ns() - cpu;
    drop(near);
    if reader.join().is_err() {
        return Err(BenchError::new("the reader of the bare sendfile loop has panicked"));
    }
    Ok(bare(sent, cpu, monotonic_ns() - began))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Folder;

    #[test]
    fn paced_flushes_keep_their_pace_and_count_from_when_they_were_due() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-paced-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let began = monotonic_ns();
        let latency = paced_flush(folder.path(), 4_096, 1_000, 50, 1 << 20).expect("it runs");
        assert_eq!(latency.count(), 50);
        assert!(monotonic_ns() - began >= 49 * NS_PER_S / 1_000 && latency.max() > 0);
    }
}
