//! Responses from files on disk.

use super::{MIB, Server, Wish, frame, pattern, receive, send, until};
use parking_lot::Mutex;
use polylogue_types::{FileRange, RangeSource};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// A file of which only fetched ranges can be read; other reads would block.
#[derive(Debug)]
struct OnDisk {
    content: Vec<u8>,
    /// Fetched ranges.
    fetched: Mutex<Vec<Range<u64>>>,
    /// Whether nothing can be fetched: a broken disk, or a system that does not report what is cached.
    sulks: bool,
}

impl OnDisk {
    fn new(content: Vec<u8>, sulks: bool) -> Arc<OnDisk> {
        Arc::new(OnDisk { content, fetched: Mutex::default(), sulks })
    }

    /// Returns the number of fetched bytes.
    fn fetched(&self) -> u64 {
        self.fetched.lock().iter().map(|range| range.end - range.start).sum()
    }
}

impl RangeSource for OnDisk {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        if !self.sulks && !self.is_in_memory(position, into.len() as u32) {
            return Err(io::Error::other("an I/O thread waits for the disk"));
        }
        let from = usize::try_from(position).unwrap();
        into.copy_from_slice(self.content.get(from..from + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn is_in_memory(&self, position: u64, len: u32) -> bool {
        let fetched = self.fetched.lock();
        (position..position + u64::from(len)).all(|at| fetched.iter().any(|range| range.contains(&at)))
    }

    fn fetch(&self, position: u64, len: u32) -> io::Result<()> {
        if self.sulks {
            return Err(io::Error::other("the disk is broken"));
        }
        self.fetched.lock().push(position..position + u64::from(len));
        Ok(())
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

async fn serve(file: &Arc<OnDisk>) -> Server {
    let range = FileRange { source: file.clone(), position: 0, len: u32::try_from(file.content.len()).unwrap() };
    Server::start(Wish { file: Some(range), ..Wish::default() }).await
}

/// Runs the queued reader jobs; returns their number.
fn run_jobs(server: &Server) -> usize {
    let jobs = std::mem::take(&mut *server.broker.jobs.lock());
    let count = jobs.len();
    for job in jobs {
        job();
    }
    count
}

async fn job_waits(server: &Server) {
    until(|| !server.broker.jobs.lock().is_empty()).await;
}

async fn expect_file(client: &mut TcpStream, content: &[u8]) {
    let mut got = vec![0; content.len() + 1];
    client.read_exact(&mut got).await.unwrap();
    assert!(got.split_last() == Some((&b'>', content)));
}

#[tokio::test]
async fn a_response_from_the_disk_holds_up_nobody_else() {
    let file = OnDisk::new(pattern(MIB / 2), false);
    let server = serve(&file).await;
    let mut behind = server.connect().await;
    send(&mut behind, b"f").await;
    job_waits(&server).await;
    assert_eq!(behind.read_u8().await.unwrap(), b'<', "data in memory is sent before");
    let mut other = server.connect().await;
    for _ in 0..3 {
        send(&mut other, b"e").await;
        assert_eq!(receive(&mut other).await, b"e");
    }
    assert_eq!((file.fetched(), server.broker.jobs.lock().len()), (0, 1));
    assert_eq!(run_jobs(&server), 1);
    expect_file(&mut behind, &file.content).await;
    // It is in memory now.
    send(&mut behind, b"f").await;
    assert_eq!(behind.read_u8().await.unwrap(), b'<');
    expect_file(&mut behind, &file.content).await;
    assert!(server.broker.jobs.lock().is_empty());
}

#[tokio::test]
async fn a_long_response_is_fetched_piece_by_piece() {
    let file = OnDisk::new(pattern(5 * MIB + 1), false);
    let server = serve(&file).await;
    let mut client = server.connect().await;
    send(&mut client, b"f").await;
    job_waits(&server).await;
    assert_eq!(run_jobs(&server), 1);
    assert_eq!(file.fetched(), super::super::ahead::FETCH_BYTES as u64);
    let content = file.content.clone();
    let reader = tokio::spawn(async move {
        assert_eq!(client.read_u8().await.unwrap(), b'<');
        expect_file(&mut client, &content).await;
    });
    until(|| {
        run_jobs(&server);
        reader.is_finished()
    })
    .await;
    reader.await.unwrap();
    assert_eq!(file.fetched(), file.content.len() as u64, "each byte once");
}

#[tokio::test]
async fn a_peer_that_hangs_up_meanwhile_leaves_nothing_behind() {
    let file = OnDisk::new(pattern(MIB), false);
    let server = serve(&file).await;
    let mut client = server.connect().await;
    send(&mut client, b"f").await;
    job_waits(&server).await;
    let held = Arc::strong_count(&file);
    drop(client);
    until(|| server.shared.connections.is_empty()).await;
    assert_eq!(run_jobs(&server), 1);
    assert_eq!(file.fetched(), 0, "the connection is closed");
    assert!(Arc::strong_count(&file) < held, "neither the response nor the job holds the file");
    assert_eq!(server.shared.output.bytes(), 0);
}

/// A full queue, a stop or a broken disk must not leave a response waiting: the sender finds the error.
#[tokio::test]
async fn what_cannot_be_fetched_is_sent_all_the_same() {
    let file = OnDisk::new(pattern(2 * MIB), true);
    let server = serve(&file).await;
    let mut client = server.connect().await;
    for way in ["refused", "dropped", "failed"] {
        server.broker.refuses_jobs.store(way == "refused", Ordering::Relaxed);
        send(&mut client, b"f").await;
        let content = file.content.clone();
        let reader = tokio::spawn(async move {
            assert_eq!(client.read_u8().await.unwrap(), b'<');
            expect_file(&mut client, &content).await;
            client
        });
        until(|| {
            if way == "dropped" {
                server.broker.jobs.lock().clear();
            }
            run_jobs(&server);
            reader.is_finished()
        })
        .await;
        client = reader.await.unwrap();
    }
}

/// The disk's time is not charged to the client.
#[tokio::test]
async fn a_slow_disk_is_not_the_clients_fault() {
    let file = OnDisk::new(pattern(MIB / 4), false);
    let server = serve(&file).await;
    let mut client = server.connect().await;
    send(&mut client, b"f").await;
    job_waits(&server).await;
    server.broker.advance_ms(2 * super::WRITE_STALL_MS);
    // Input arrives, so that the connection reads the clock.
    send(&mut client, b"e").await;
    let mut other = server.connect().await;
    send(&mut other, b"e").await;
    assert_eq!(receive(&mut other).await, b"e");
    assert_eq!(run_jobs(&server), 1);
    assert_eq!(client.read_u8().await.unwrap(), b'<');
    expect_file(&mut client, &file.content).await;
    let mut echo = vec![0; 5];
    client.read_exact(&mut echo).await.unwrap();
    assert_eq!(echo, frame(b"e"));
}
