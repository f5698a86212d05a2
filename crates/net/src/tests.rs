//! Tests of connections over real sockets, with a test protocol and a scripted broker.

mod bounds;
mod cold;
mod toy;
mod waiting;

use super::admission::Lanes;
use super::{AnswerGauge, Connections, Gate, NetMetrics, OutputGauge, Shared, Workers, accept_loop};
use crate::memory::Memory;
use crate::testing::FakeBroker;
use polylogue_api::{Reply, Request};
use polylogue_env::Env;
use polylogue_types::{FileRange, ProducerId, RangeSource};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use toy::{FRAME_BYTES_MAX, ToyAccept, frame};

const MIB: usize = 1 << 20;
const WRITE_STALL_MS: u64 = 60_000;
/// Longer than a connection keeps unused memory.
const QUIET_MS: u64 = 10_000;

/// A listener on a free port, which ends with the runtime of its test.
struct Server {
    at: SocketAddr,
    broker: Arc<FakeBroker>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    rests: Arc<AtomicUsize>,
}

/// The parameters of a test's server.
struct Wish {
    inflight_bytes_max: usize,
    output_bytes_max: usize,
    connections_max: usize,
    file: Option<FileRange>,
    /// Whether the broker answers at once; otherwise the test does.
    answers: bool,
}

impl Default for Wish {
    fn default() -> Wish {
        Wish {
            inflight_bytes_max: 16 * MIB,
            output_bytes_max: 64 * MIB,
            connections_max: 100,
            file: None,
            answers: true,
        }
    }
}

impl Server {
    async fn start(wish: Wish) -> Server {
        let answers = wish.answers;
        let broker = FakeBroker::new(move |request| match request {
            Request::AllocateProducerId if answers => Some(Reply::ProducerId(Ok(ProducerId(7)))),
            Request::Read(_) if answers => Some(Reply::Read(Vec::new())),
            _ => None,
        });
        let shared = Arc::new(Shared {
            broker: broker.clone(),
            lanes: Lanes::new(wish.inflight_bytes_max, wish.connections_max),
            output: OutputGauge::new(wish.output_bytes_max),
            answers: AnswerGauge::new(wish.output_bytes_max),
            write_stall_ms_max: WRITE_STALL_MS,
            memory: Memory::default(),
            workers: Workers::start(&Env::real(), 1).unwrap(),
            metrics: NetMetrics::default(),
            connections: Connections::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let gate = Gate::new(Arc::new(AtomicUsize::new(0)), wish.connections_max);
        let rests: Arc<AtomicUsize> = Arc::default();
        let accept = Arc::new(ToyAccept { file: wish.file, rests: rests.clone() });
        tokio::spawn(accept_loop(listener, accept, gate, None, shared.clone(), stopped));
        Server { at, broker, shared, stop, rests }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }
}

async fn send(client: &mut TcpStream, body: &[u8]) {
    client.write_all(&frame(body)).await.unwrap();
}

async fn receive(client: &mut TcpStream) -> Vec<u8> {
    let len = client.read_u32().await.unwrap();
    let mut body = vec![0; len as usize];
    client.read_exact(&mut body).await.unwrap();
    body
}

/// Reads until the server closes; returns the number of bytes.
async fn drain(client: &mut TcpStream) -> usize {
    let mut buffer = vec![0; MIB];
    let mut total = 0;
    loop {
        match client.read(&mut buffer).await {
            Ok(0) | Err(_) => return total,
            Ok(read) => total += read,
        }
    }
}

/// Yields to other tasks until the condition is true.
async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_are_answered_in_order_whatever_their_size() {
    let server = Server::start(Wish::default()).await;
    let mut client = server.connect().await;
    let bodies: Vec<Vec<u8>> =
        [1, 3, 4_000, 4_093, 5_000, 70_000, 2 * MIB, 2].iter().map(|len| vec![b'e'; *len]).collect();
    let mut all: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
    all.extend(frame(b"s"));
    all.extend(frame(b"a"));
    let (mut reading, mut writing) = client.split();
    let (_, ()) = tokio::join!(writing.write_all(&all), async {
        for body in &bodies {
            let len = reading.read_u32().await.unwrap() as usize;
            assert_eq!(len, body.len());
            let mut got = vec![0; len];
            reading.read_exact(&mut got).await.unwrap();
            assert!(got == *body);
        }
        assert_eq!(reading.read_u32().await.unwrap(), 2);
        let mut got = [0; 2];
        reading.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"p7", "a request without an answer leaves no gap");
    });
    until(|| server.shared.lanes.load() == (0, 0)).await;
    assert_eq!(server.shared.output.bytes(), 0);
}

#[tokio::test]
async fn a_request_that_comes_byte_by_byte_is_served_and_holds_up_nobody() {
    let server = Server::start(Wish::default()).await;
    let mut slow = server.connect().await;
    let mut other = server.connect().await;
    slow.set_nodelay(true).unwrap();
    for byte in frame(b"ehello") {
        slow.write_u8(byte).await.unwrap();
        send(&mut other, b"e").await;
        assert_eq!(receive(&mut other).await, b"e");
    }
    assert_eq!(receive(&mut slow).await, b"ehello");
}

#[tokio::test]
async fn a_frame_that_is_too_long_costs_its_connection() {
    let server = Server::start(Wish::default()).await;
    let mut client = server.connect().await;
    send(&mut client, b"e").await;
    client.write_u32(u32::try_from(FRAME_BYTES_MAX).unwrap() + 1).await.unwrap();
    assert_eq!(receive(&mut client).await, b"e", "what came before is answered");
    assert_eq!(drain(&mut client).await, 0);
    until(|| server.broker.gone.lock().len() == 1).await;
    assert_eq!(server.shared.lanes.load(), (0, 0));
}

#[tokio::test]
async fn the_permit_is_held_until_the_response_is_written() {
    let server = Server::start(Wish { answers: false, ..Wish::default() }).await;
    let mut client = server.connect().await;
    send(&mut client, &[&b"a"[..], &[0; 100_000]].concat()).await;
    until(|| server.broker.waiting() == 1).await;
    assert!(server.shared.lanes.load().0 > 100_000);
    let asked = server.broker.next();
    asked.from.reply(asked.token, Reply::ProducerId(Ok(ProducerId(1))));
    assert_eq!(receive(&mut client).await, b"p1");
    until(|| server.shared.lanes.load() == (0, 0)).await;
}

#[tokio::test]
async fn the_permit_is_held_while_the_response_is_not_taken() {
    let server = Server::start(Wish { output_bytes_max: 1024 * MIB, ..Wish::default() }).await;
    let mut client = server.connect().await;
    send(&mut client, &[&b"m\x40"[..], &[0; 100_000]].concat()).await;
    until(|| server.shared.output.bytes() > 32 * MIB).await;
    assert!(server.shared.lanes.load().0 > 100_000);
    let mut response = vec![0; 64 * MIB];
    client.read_exact(&mut response).await.unwrap();
    until(|| server.shared.lanes.load() == (0, 0)).await;
}

#[tokio::test]
async fn requests_wait_for_memory_and_small_ones_pass() {
    let server = Server::start(Wish { answers: false, ..Wish::default() }).await;
    let mut first = server.connect().await;
    send(&mut first, &[&b"a"[..], &vec![0; 11 * MIB - 1]].concat()).await;
    until(|| server.broker.waiting() == 1).await;
    let mut second = server.connect().await;
    let large = frame(&[&b"e"[..], &vec![0; 2 * MIB]].concat());
    let sending = tokio::spawn(async move {
        second.write_all(&large).await.unwrap();
        receive(&mut second).await.len()
    });
    until(|| server.shared.lanes.load().1 == 1).await;
    let mut third = server.connect().await;
    send(&mut third, b"esmall").await;
    assert_eq!(receive(&mut third).await, b"esmall");
    let asked = server.broker.next();
    asked.from.reply(asked.token, Reply::ProducerId(Ok(ProducerId(1))));
    assert_eq!(receive(&mut first).await, b"p1");
    assert_eq!(sending.await.unwrap(), 2 * MIB + 1, "its turn came");
}

#[tokio::test]
async fn a_slow_sender_gives_way_when_others_wait_for_its_memory() {
    let server = Server::start(Wish::default()).await;
    let mut slow = server.connect().await;
    let huge = frame(&[&b"e"[..], &vec![0; FRAME_BYTES_MAX - 1]].concat());
    slow.write_all(&huge[..100_000]).await.unwrap();
    until(|| server.shared.lanes.load().0 > 10 * MIB).await;
    // Far less than it would need at the minimum rate: received bytes count, not announced ones.
    server.broker.advance_ms(10_200);
    let mut other = server.connect().await;
    let large = frame(&[&b"e"[..], &vec![0; 5 * MIB]].concat());
    let (mut reading, mut writing) = other.split();
    let (_, len) = tokio::join!(writing.write_all(&large), reading.read_u32());
    assert_eq!(len.unwrap() as usize, 5 * MIB + 1);
    assert_eq!(drain(&mut slow).await, 0);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up_and_holds_up_nobody() {
    let server = Server::start(Wish { output_bytes_max: 1024 * MIB, ..Wish::default() }).await;
    let mut deaf = server.connect().await;
    send(&mut deaf, b"m\x80").await;
    until(|| server.shared.output.bytes() > 64 * MIB).await;
    let mut other = server.connect().await;
    send(&mut other, b"m\x02").await;
    let mut both = vec![0; 2 * MIB];
    other.read_exact(&mut both).await.unwrap();
    server.broker.advance_ms(WRITE_STALL_MS);
    until(|| server.broker.gone.lock().len() == 1).await;
    assert_eq!(server.shared.output.bytes(), 0);
    assert!(drain(&mut deaf).await < 128 * MIB);
    send(&mut other, b"e").await;
    assert_eq!(receive(&mut other).await, b"e");
}

#[tokio::test]
async fn responses_that_pile_up_end_those_who_do_not_take_them_and_hold_back_nobody_else() {
    let server = Server::start(Wish { output_bytes_max: 32 * MIB, answers: false, ..Wish::default() }).await;
    let mut deaf = server.connect().await;
    send(&mut deaf, b"m\x60").await;
    until(|| server.shared.output.bytes() > 32 * MIB).await;
    let mut reader = server.connect().await;
    send(&mut reader, b"r").await;
    send(&mut reader, b"e").await;
    // Regression: all reads of all connections waited for this one.
    until(|| server.broker.waiting() == 1).await;
    let asked = server.broker.next();
    assert!(matches!(&asked.request, Request::Read(read) if read.bytes_max == 64 << 10), "{asked:?}");
    asked.from.reply(asked.token, Reply::Read(Vec::new()));
    assert_eq!(receive(&mut reader).await, b"read");
    assert_eq!(receive(&mut reader).await, b"e");
    // Far less than write_stall_ms_max, but too long for so much memory.
    server.broker.advance_ms(2_000);
    until(|| server.broker.gone.lock().len() == 1).await;
    assert_eq!(*server.broker.gone.lock(), [polylogue_broker::SessionId(1)]);
}

#[tokio::test]
async fn a_stop_finishes_what_is_in_work() {
    let server = Server::start(Wish { answers: false, ..Wish::default() }).await;
    let mut busy = server.connect().await;
    let mut idle = server.connect().await;
    send(&mut idle, b"e").await;
    assert_eq!(receive(&mut idle).await, b"e");
    send(&mut busy, b"a").await;
    until(|| server.broker.waiting() == 1).await;
    server.stop.send(true).unwrap();
    let shared = server.shared.clone();
    let stopping = tokio::spawn(async move { shared.connections.stop().await });
    assert_eq!(drain(&mut idle).await, 0);
    drop(idle);
    until(|| server.shared.connections.len() == 1).await;
    let asked = server.broker.next();
    asked.from.reply(asked.token, Reply::ProducerId(Ok(ProducerId(5))));
    assert_eq!(receive(&mut busy).await, b"p5");
    assert_eq!(drain(&mut busy).await, 0);
    drop(busy);
    stopping.await.unwrap();
    until(|| server.broker.gone.lock().len() == 2).await;
    assert!(TcpStream::connect(server.at).await.is_err(), "no one listens any more");
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_at_once() {
    let server = Server::start(Wish { connections_max: 1, ..Wish::default() }).await;
    let mut first = server.connect().await;
    send(&mut first, b"e").await;
    assert_eq!(receive(&mut first).await, b"e");
    assert_eq!(drain(&mut server.connect().await).await, 0);
    drop(first);
    until(|| server.shared.connections.is_empty()).await;
    let mut next = server.connect().await;
    send(&mut next, b"e").await;
    assert_eq!(receive(&mut next).await, b"e");
}

/// A file without a descriptor, as in the simulator.
#[derive(Debug)]
struct InMemory(Vec<u8>);

impl RangeSource for InMemory {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        let from = usize::try_from(position).unwrap();
        let part = self.0.get(from..from + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(part);
        Ok(())
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

async fn file_is_sent(source: Arc<dyn RangeSource>, content: &[u8]) {
    let position = 1_000;
    let len = content.len() - 2 * position;
    let file = FileRange { source, position: position as u64, len: u32::try_from(len).unwrap() };
    let server = Server::start(Wish { file: Some(file), ..Wish::default() }).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        send(&mut client, b"f").await;
        let mut got = vec![0; len + 2];
        client.read_exact(&mut got).await.unwrap();
        assert!(got[0] == b'<' && got[len + 1] == b'>');
        assert!(got[1..=len] == content[position..position + len]);
    }
    assert_eq!(server.shared.output.bytes(), 0);
}

#[tokio::test]
async fn a_file_goes_out_with_and_without_a_descriptor() {
    let content = pattern(3 * MIB);
    file_is_sent(Arc::new(InMemory(content.clone())), &content).await;
    let env = polylogue_env::Env::real();
    let path = std::env::temp_dir().join(format!("polylogue-sendfile-{}", std::process::id()));
    let file = env.disk.open(&path, polylogue_env::OpenMode::CreateNew).unwrap();
    env.disk.remove(&path).unwrap();
    file.write_all_at(&content, 0).unwrap();
    let source = file.as_range_source();
    assert!(source.raw_fd().is_some());
    file_is_sent(source, &content).await;
}

#[tokio::test]
async fn a_file_that_ends_early_ends_the_connection() {
    let source = Arc::new(InMemory(pattern(100)));
    let file = FileRange { source, position: 50, len: 100 };
    let server = Server::start(Wish { file: Some(file), ..Wish::default() }).await;
    let mut client = server.connect().await;
    send(&mut client, b"f").await;
    assert_eq!(drain(&mut client).await, 1, "the byte before it");
}

/// Regression test: a thousand connections that had been active kept twice the memory that they needed. And a connection whose timer had
/// fired, with nothing else to wait for, polled it in a loop.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_quiet_lets_go_of_memory_once_each_time() {
    let server = Server::start(Wish::default()).await;
    let mut client = server.connect().await;
    let rests = || server.rests.load(Ordering::Relaxed);
    for times in 1..=3 {
        send(&mut client, b"e").await;
        assert_eq!(receive(&mut client).await, b"e");
        assert_eq!(rests(), times - 1, "not while it is busy");
        // Timers advance while everything is idle, and read the broker's clock.
        for _ in 0..3 {
            server.broker.advance_ms(QUIET_MS);
            tokio::time::sleep(std::time::Duration::from_millis(QUIET_MS)).await;
        }
        assert_eq!(rests(), times);
    }
}

/// Regression test: a publisher at full speed occupied its thread for 64 reads with hundreds of messages each: 40 ms in which the thread
/// served no other socket, and a concurrent probe was late by more than a second.
#[tokio::test]
async fn a_peer_that_always_has_more_to_say_gives_way_after_a_millisecond() {
    let server = Server::start(Wish::default()).await;
    server.broker.look_ms.store(1, Ordering::Relaxed);
    let mut hot = std::net::TcpStream::connect(server.at).unwrap();
    let enough: Arc<AtomicBool> = Arc::default();
    let ends = enough.clone();
    let sender = tokio::task::spawn_blocking(move || {
        let frame = frame(&[b's'; 60_000]);
        while !ends.load(Ordering::Relaxed) {
            hot.write_all(&frame).unwrap();
        }
    });
    let received = server.shared.metrics.open("toy");
    let (mut turns, mut bytes) = (0, 0);
    while turns < 100 {
        let before = received.received.get();
        tokio::task::yield_now().await;
        let turn = received.received.get() - before;
        turns += u32::from(turn > 0);
        bytes = bytes.max(turn);
    }
    enough.store(true, Ordering::Relaxed);
    sender.await.unwrap();
    // Two reads of 64 KiB a turn, and a few turns before this task runs. It was 15 MB.
    assert!(bytes <= MIB as u64, "{bytes} bytes were taken while another task waited");
}

/// A turn that is too long for an I/O thread runs on a worker, and others do not wait for it, even while all workers are busy.
#[tokio::test]
async fn long_turns_are_taken_by_workers_and_hold_up_nobody_else() {
    let server = Server::start(Wish::default()).await;
    let (mut long, mut short) = (server.connect().await, server.connect().await);
    send(&mut long, b"k").await;
    assert!(receive(&mut long).await.starts_with(b"pl-long-"));

    let (busy, free) = std::sync::mpsc::channel::<()>();
    let shared = server.shared.clone();
    let holds =
        tokio::spawn(async move { shared.workers.run("other".into(), "test", move || free.recv().is_ok()).await });
    while server.shared.workers.running() == 0 {
        tokio::task::yield_now().await;
    }
    send(&mut long, b"k").await;
    for _ in 0..10 {
        send(&mut short, b"e").await;
        assert_eq!(receive(&mut short).await, b"e");
    }
    drop(busy);
    assert!(!holds.await.unwrap());
    assert!(receive(&mut long).await.starts_with(b"pl-long-"));
}
