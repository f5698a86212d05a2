//! Clients that hold memory of requests and responses that others need.

use super::toy::{LIST_FACTORS, frame};
use super::{MIB, Server, Wish, drain, receive, send, until};
use bytes::Bytes;
use polylogue_api::{ReadData, Reply, Request};
use polylogue_types::{Chunk, Offset, ProducerId};
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A list of this size needs more than a connection's share, also while it waits.
const LIST_BYTES: usize = 100_000;
/// Timeout of tests that would wait forever on failure.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(PATIENCE, test).await.expect("it waits for something that does not come");
}

fn list() -> Vec<u8> {
    [&b"w"[..], &[0; LIST_BYTES - 1]].concat()
}

/// Regression test: a list was admitted by its length.
#[tokio::test]
async fn a_list_takes_a_permit_for_what_it_takes_when_decoded_and_less_while_it_waits() {
    let test = async {
        let server = Server::start(Wish { answers: false, ..Wish::default() }).await;
        let mut client = server.connect().await;
        let whole = frame(&list());
        client.write_all(&whole[..10_000]).await.unwrap();
        until(|| server.shared.lanes.load().0 >= LIST_FACTORS.0 * LIST_BYTES).await;
        client.write_all(&whole[10_000..]).await.unwrap();
        until(|| server.broker.waiting() == 1).await;
        until(|| server.shared.lanes.load().0 < LIST_FACTORS.0 * LIST_BYTES).await;
        assert!(server.shared.lanes.load().0 >= LIST_FACTORS.1 * LIST_BYTES, "a list that waits is not free");
        let asked = server.broker.next();
        asked.from.reply(asked.token, Reply::ProducerId(Ok(ProducerId(1))));
        assert_eq!(receive(&mut client).await, b"p1");
        until(|| server.shared.lanes.load() == (0, 0)).await;
    };
    in_time(test).await;
}

/// Regression test: long polls held memory that others needed for as long as their clients requested.
#[tokio::test]
async fn requests_that_only_wait_give_way_when_others_need_their_memory() {
    let test = async {
        let server = Server::start(Wish { answers: false, ..Wish::default() }).await;
        let mut small = server.connect().await;
        send(&mut small, b"w").await;
        let mut waiting = Vec::new();
        for count in 1..=14 {
            let mut client = server.connect().await;
            // Of three users: those of one have at most a quarter of the memory.
            send(&mut client, format!("u{}", count % 3).as_bytes()).await;
            receive(&mut client).await;
            send(&mut client, &list()).await;
            until(|| server.broker.waiting() == 1 + count).await;
            waiting.push(client);
        }
        server.broker.advance_ms(3_600_000);
        let mut other = server.connect().await;
        let large = frame(&[&b"e"[..], &vec![0; 10 * MIB]].concat());
        let (mut reading, mut writing) = other.split();
        let (_, len) = tokio::join!(writing.write_all(&large), reading.read_u32());
        assert_eq!(len.unwrap() as usize, 10 * MIB + 1);
        until(|| !server.broker.gone.lock().is_empty()).await;
        let asked = server.broker.next();
        asked.from.reply(asked.token, Reply::ProducerId(Ok(ProducerId(3))));
        assert_eq!(receive(&mut small).await, b"p3", "a request with little memory is not affected");
    };
    in_time(test).await;
}

/// Regression test: a connection whose last bytes were the start of a request kept its large buffer forever: a thousand of them held all
/// the memory for small requests.
#[tokio::test]
async fn a_connection_that_falls_silent_keeps_no_buffer() {
    let test = async {
        let server = Server::start(Wish::default()).await;
        let mut client = server.connect().await;
        let echo = vec![b'e'; 20_000];
        let all = [&frame(&echo)[..], &frame(b"eagain")[..7]].concat();
        client.write_all(&all).await.unwrap();
        assert_eq!(receive(&mut client).await, echo);
        until(|| server.shared.lanes.load() == (0, 0)).await;
        client.write_all(&frame(b"eagain")[7..]).await.unwrap();
        assert_eq!(receive(&mut client).await, b"eagain", "received bytes are not lost");
    };
    in_time(test).await;
}

/// Regression test: an upload kept its first buffer in addition to its own memory.
#[tokio::test]
async fn a_slow_upload_holds_no_memory_of_small_requests() {
    let test = async {
        let server = Server::start(Wish::default()).await;
        let mut client = server.connect().await;
        // A full read first, so that the next one reads ahead.
        send(&mut client, &vec![b'e'; 20_000]).await;
        assert_eq!(receive(&mut client).await.len(), 20_000);
        let upload = frame(&[&b"e"[..], &vec![0; MIB]].concat());
        client.write_all(&upload[..10_000]).await.unwrap();
        until(|| (MIB..MIB + (64 << 10)).contains(&server.shared.lanes.load().0)).await;
        client.write_all(&upload[10_000..]).await.unwrap();
        assert_eq!(receive(&mut client).await.len(), MIB + 1);
    };
    in_time(test).await;
}

/// Regression test: a read was issued with the client's limit, whatever others had requested, and was not counted.
#[tokio::test]
async fn a_read_counts_before_it_is_answered_and_gets_its_share() {
    let test = async {
        let server = Server::start(Wish { output_bytes_max: 32 * MIB, answers: false, ..Wish::default() }).await;
        let mut reader = server.connect().await;
        send(&mut reader, b"r").await;
        until(|| server.broker.waiting() == 1).await;
        assert_eq!(server.shared.output.asked(), 2 * MIB);
        let asked = server.broker.next();
        assert!(matches!(&asked.request, Request::Read(read) if read.bytes_max as usize == 2 * MIB), "{asked:?}");
        let chunks = vec![Chunk::Bytes(Bytes::from(vec![1; 1_000]))];
        let data = ReadData { chunks, high_watermark: Offset(1), log_start: Offset(0) };
        asked.from.reply(asked.token, Reply::Read(vec![Ok(data)]));
        assert_eq!(receive(&mut reader).await, b"read");
        reader.read_exact(&mut [0; 1_000]).await.unwrap();
        until(|| (server.shared.output.asked(), server.shared.output.bytes()) == (0, 0)).await;
    };
    in_time(test).await;
}

#[tokio::test]
async fn a_client_that_has_not_taken_its_share_does_not_read_on() {
    let test = async {
        let server = Server::start(Wish { output_bytes_max: 256 * MIB, answers: false, ..Wish::default() }).await;
        let mut client = server.connect().await;
        send(&mut client, b"m\x40").await;
        until(|| server.shared.output.bytes() > 16 * MIB).await;
        send(&mut client, b"r").await;
        send(&mut client, b"a").await;
        until(|| server.shared.lanes.load().0 > 2 << 10).await;
        assert_eq!(server.broker.waiting(), 0, "no read is issued before the response is received");
        client.read_exact(&mut vec![0; 64 * MIB]).await.unwrap();
        until(|| server.broker.waiting() == 2).await;
    };
    in_time(test).await;
}

/// Regression test: a client that received a byte now and then never counted as slow, and its requests held memory all that time.
#[tokio::test]
async fn a_slow_reader_gives_way_when_others_need_the_memory_of_its_requests() {
    let test = async {
        let server = Server::start(Wish { output_bytes_max: 1024 * MIB, ..Wish::default() }).await;
        let mut slow = server.connect().await;
        send(&mut slow, b"m\x40").await;
        send(&mut slow, &[&b"e"[..], &vec![0; 10 * MIB]].concat()).await;
        until(|| server.shared.output.bytes() > 16 * MIB && server.shared.lanes.load().0 > 10 * MIB).await;
        server.broker.advance_ms(6_000);
        let mut other = server.connect().await;
        let large = frame(&[&b"e"[..], &vec![0; 5 * MIB]].concat());
        let (mut reading, mut writing) = other.split();
        let (_, len) = tokio::join!(writing.write_all(&large), reading.read_u32());
        assert_eq!(len.unwrap() as usize, 5 * MIB + 1);
        assert!(drain(&mut slow).await < 64 * MIB);
    };
    in_time(test).await;
}

/// Regression test: a few bytes request all topics: the responses of a thousand clients were built at once, whether they were received or not.
#[tokio::test]
async fn long_answers_are_made_only_when_there_is_room() {
    let test = async {
        // Half of it is for long responses: two of 24 MiB.
        let server = Server::start(Wish { output_bytes_max: 128 * MIB, ..Wish::default() }).await;
        // On a busy machine the first ones gave way before the last ones had sent their request.
        server.broker.stop_clock();
        let mut clients = Vec::new();
        for count in 1..=6 {
            let mut client = server.connect().await;
            send(&mut client, b"l\x18").await;
            let (made, waiting) = (24 * MIB * count.min(2), count - count.min(2));
            until(|| (server.shared.answers.bytes(), server.shared.answers.waiting()) == (made, waiting)).await;
            clients.push(client);
        }
        assert!(server.shared.output.bytes() <= 48 * MIB, "{}", server.shared.output.bytes());
        let mut other = server.connect().await;
        send(&mut other, b"e").await;
        assert_eq!(receive(&mut other).await, b"e", "others are answered");
        // Clients that do not receive give way.
        let taken = clients.split_off(2);
        server.broker.advance_ms(1_000);
        // Together: memory goes to the first that polls, and the clock is stopped, so that one that is not read would keep it.
        let read = |mut client: TcpStream| async move { client.read_exact(&mut vec![0; 24 * MIB]).await.map(drop) };
        let reads: Vec<_> = taken.into_iter().map(|client| tokio::spawn(read(client))).collect();
        for read in reads {
            read.await.unwrap().unwrap();
        }
        until(|| (server.shared.answers.bytes(), server.shared.answers.waiting()) == (0, 0)).await;
        for client in &mut clients {
            assert!(drain(client).await < 24 * MIB);
        }
    };
    in_time(test).await;
}

#[tokio::test]
async fn a_client_that_waits_for_room_and_goes_leaves_no_trace() {
    let test = async {
        let server = Server::start(Wish { output_bytes_max: 48 * MIB, ..Wish::default() }).await;
        let mut first = server.connect().await;
        send(&mut first, b"l\x18").await;
        until(|| server.shared.answers.bytes() == 24 * MIB).await;
        let mut second = server.connect().await;
        send(&mut second, b"l\x01").await;
        until(|| server.shared.answers.waiting() == 1).await;
        drop(second);
        drop(first);
        until(|| (server.shared.answers.bytes(), server.shared.answers.waiting()) == (0, 0)).await;
    };
    in_time(test).await;
}
