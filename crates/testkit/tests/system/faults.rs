//! A disk that is slow, fails, is full or loses bits, under the real binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::Place;
use common::amqp::{Amqp, Came, Message};
use common::batch::batch;
use common::kafka::{Kafka, code};
use polylogue_amqp::codec::Method;
use polylogue_faultfs::Injector;
use polylogue_kafka_codec::{ErrorCode, produce};
use polylogue_testkit::{Server, run, wait_until};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Small files, so that a test of a few megabytes fills some of them and merges them at once.
const SMALL_FILES: &[&str] = &[
    "log.journal_file_bytes=4MiB",
    "log.checkpoint_bytes_max=1MiB",
    "log.merge_bytes=1MiB",
    "log.merge_ms_max=1s",
    "log.disk_reserve_bytes=16MiB",
];
/// How long a held flush holds, unless the test ends it before. Longer than the test.
const HOLD: &str = "hold_sync_ms=600000";
/// How long an acknowledgement that must not come is waited for.
const SILENCE: Duration = Duration::from_secs(1);
/// How long anything else may take here. Seconds.
const SECS: u64 = 60;

fn start_with_faults(place: &Place, settings: &[&str]) -> (Server, Injector) {
    let mut command = place.serve(settings);
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    let injector = Injector::new(&place.watched(), place.root.path()).unwrap();
    injector.preload_without_log(&mut command);
    (place.start(command).unwrap(), injector)
}

fn connect(server: &Server) -> Kafka {
    Kafka::connect(server.kafka()).unwrap()
}

fn wait_held(injector: &Injector) {
    wait_until("a held flush", SECS, || {
        Ok(injector.events().map_err(|e| e.to_string())?.iter().any(|e| e.starts_with("hold_sync ")).then_some(()))
    })
    .unwrap();
}

#[test]
fn no_sync_acknowledgement_leaves_while_the_flush_is_held() {
    let place = Place::new("hold");
    let (server, injector) = start_with_faults(&place, &[]);
    let (mut sync, mut relaxed) = (connect(&server), connect(&server));
    sync.create_topic("sync", 1, &[]).unwrap();
    sync.create_topic("async", 1, &[("polylogue.durability", "async")]).unwrap();
    sync.put("sync", 0, &["before"]).unwrap();
    relaxed.put("async", 0, &["before"]).unwrap();

    injector.set(&[HOLD]).unwrap();
    sync.send_produce("sync", 0, batch(&["held"])).unwrap();
    wait_held(&injector);
    // The flush has begun and does not end: this one is answered from the page cache, the other one is not.
    assert_eq!(relaxed.put("async", 0, &["meanwhile"]).unwrap(), 1);
    let unanswered = relaxed.fetch("sync", 0, 0).unwrap();
    assert_eq!(unanswered.high_watermark, 1, "an unflushed message was served: {unanswered:?}");
    sync.stream.set_read_timeout(Some(SILENCE)).unwrap();
    let early = sync.stream.peek(&mut [0]);
    let kind = early.as_ref().map_err(std::io::Error::kind);
    assert!(matches!(kind, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "answered before the flush: {early:?}");

    injector.set(&[]).unwrap();
    sync.stream.set_read_timeout(Some(Duration::from_secs(SECS))).unwrap();
    let (_, produced) = sync.receive_produced().unwrap();
    assert_eq!(produced, (ErrorCode::None, 1));
    assert_eq!(sync.read_all("sync", 0).unwrap(), [b"before".to_vec(), b"held".to_vec()]);
    server.terminate().unwrap();
}

#[test]
fn a_failed_flush_ends_the_process_and_acknowledges_nothing() {
    let place = Place::new("eio");
    let (mut server, injector) = start_with_faults(&place, &[]);
    let mut clients: Vec<Kafka> = (0..5).map(|_| connect(&server)).collect();
    clients[0].create_topic("t", 5, &[]).unwrap();
    let values: Vec<Vec<u8>> = (0..20).map(|n| format!("acknowledged {n}").into_bytes()).collect();
    for value in &values {
        for (client, partition) in clients.iter_mut().zip(0..) {
            client.put("t", partition, &[value]).unwrap();
        }
    }
    injector.set(&["fail_sync=EIO"]).unwrap();
    for (client, partition) in clients.iter_mut().zip(0..) {
        // The first of them may have ended the process already.
        let _ = client.send_produce("t", partition, batch(&["never flushed"]));
    }
    for client in &mut clients {
        let answer = client.receive::<produce::ProduceRequest>(9);
        if let Ok((_, response)) = answer {
            let error = code(response.responses[0].partition_responses[0].error_code);
            assert_ne!(error, ErrorCode::None, "acknowledged after a failed flush");
        }
    }
    let status = server.wait().unwrap();
    assert!(!status.success(), "it ended with {status}");
    assert!(injector.events().unwrap().iter().any(|event| event.starts_with("fail_sync ")));

    let server = place.start(place.serve(&[])).unwrap();
    let mut client = connect(&server);
    for partition in 0..5 {
        let found = client.read_all("t", partition).unwrap();
        assert_eq!(found[..20], values, "partition {partition}");
        assert!(found[20..].iter().all(|value| value == b"never flushed"), "partition {partition}: {found:?}");
    }
    client.put("t", 0, &["on it goes"]).unwrap();
    server.terminate().unwrap();
}

/// The queues of RabbitMQ's clients here: a durable classic one, and a quorum queue.
const QUEUES: [&str; 2] = ["classic", "quorum"];

fn connect_amqp(server: &Server) -> Amqp {
    Amqp::connect(server.amqp().unwrap()).unwrap()
}

/// Sends a message to each queue, and waits until both are confirmed.
fn publish_confirmed(amqp: &mut Amqp, body: &str) {
    QUEUES.iter().for_each(|queue| amqp.publish(queue, body.as_bytes()));
    amqp.flush().unwrap();
    confirmed(amqp, 2);
}

/// Waits until so many messages are confirmed.
fn confirmed(amqp: &mut Amqp, messages: u64) {
    let (mut confirmed, mut first) = (0, None);
    while confirmed < messages {
        match amqp.wait(Duration::from_secs(SECS)).unwrap() {
            Some(Came::Method(Method::BasicAck(ack))) => {
                let before = ack.delivery_tag - 1;
                let first =
                    *first.get_or_insert(if ack.multiple { before.saturating_sub(messages - 1) } else { before });
                assert!(ack.delivery_tag > first + confirmed, "out of order: {ack:?}");
                confirmed = if ack.multiple { ack.delivery_tag - first } else { confirmed + 1 };
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The message with this body, which is next.
fn message(amqp: &mut Amqp, expected: &str) -> Message {
    match amqp.wait(Duration::from_secs(SECS)).unwrap() {
        Some(Came::Message(message)) if message.body == expected.as_bytes() => message,
        other => panic!("{other:?} instead of {expected}"),
    }
}

fn silent(amqp: &mut Amqp, what: &str) {
    let came = amqp.wait(SILENCE).unwrap();
    assert!(came.is_none(), "{what}: {came:?}");
}

/// A classic queue may hand out what is not flushed; nothing else of it leaves: no confirm, not even of what its consumer has acknowledged, and
/// nothing from a quorum queue.
#[test]
fn no_confirm_leaves_while_the_flush_is_held_and_a_quorum_queue_hands_out_nothing() {
    let place = Place::new("hold-amqp");
    let (server, injector) = start_with_faults(&place, &[]);
    let mut publisher = connect_amqp(&server);
    for queue in QUEUES {
        publisher.declare(queue, &[("x-queue-type", queue)]).unwrap();
    }
    publisher.confirm().unwrap();
    let mut consumers = QUEUES.map(|queue| {
        let mut consumer = connect_amqp(&server);
        consumer.consume(queue, 0).unwrap();
        consumer
    });
    publish_confirmed(&mut publisher, "before");
    let [classic, quorum] = &mut consumers;
    let held = [message(classic, "before"), message(quorum, "before")];

    injector.set(&[HOLD]).unwrap();
    for n in 0..3 {
        QUEUES.iter().for_each(|queue| publisher.publish(queue, format!("held {n}").as_bytes()));
    }
    publisher.flush().unwrap();
    wait_held(&injector);
    for n in 0..3 {
        let early = message(classic, &format!("held {n}"));
        classic.ack(early.tag);
    }
    classic.ack(held[0].tag);
    classic.flush().unwrap();
    quorum.ack(held[1].tag);
    quorum.flush().unwrap();
    silent(&mut publisher, "confirmed before the flush");
    silent(quorum, "a quorum queue handed out what was not flushed");
    // A new consumer of the quorum queue gets nothing either, and what was acknowledged is not handed out again.
    for (consumer, queue) in consumers.iter_mut().zip(QUEUES) {
        let mut other = connect_amqp(&server);
        other.consume(queue, 0).unwrap();
        silent(&mut other, "handed out to another consumer");
        silent(consumer, "handed out again");
        // Else it may be given the first of what is handed out once the flush is over.
        other.leave().unwrap();
    }

    injector.set(&[]).unwrap();
    confirmed(&mut publisher, 6);
    let [classic, quorum] = &mut consumers;
    for n in 0..3 {
        let came = message(quorum, &format!("held {n}"));
        quorum.ack(came.tag);
    }
    quorum.flush().unwrap();
    publish_confirmed(&mut publisher, "after");
    assert_eq!([message(classic, "after").body, message(quorum, "after").body], ["after"; 2]);
    server.terminate().unwrap();
    let server = place.start(amqp_without_faults(&place)).unwrap();
    for queue in QUEUES {
        let mut consumer = connect_amqp(&server);
        consumer.consume(queue, 0).unwrap();
        message(&mut consumer, "after");
        silent(&mut consumer, queue);
    }
    server.terminate().unwrap();
}

/// `amqp.classic_delivery=flushed`: a classic queue waits for the flush like any other.
#[test]
fn a_classic_queue_that_is_told_to_wait_hands_out_nothing_while_the_flush_is_held() {
    let place = Place::new("hold-classic");
    let (server, injector) = start_with_faults(&place, &["amqp.classic_delivery=flushed"]);
    let (mut publisher, mut consumer) = (connect_amqp(&server), connect_amqp(&server));
    publisher.declare("classic", &[]).unwrap();
    publisher.confirm().unwrap();
    consumer.consume("classic", 0).unwrap();
    injector.set(&[HOLD]).unwrap();
    for n in 0..3 {
        publisher.publish("classic", format!("held {n}").as_bytes());
    }
    publisher.flush().unwrap();
    wait_held(&injector);
    silent(&mut publisher, "confirmed before the flush");
    silent(&mut consumer, "handed out before the flush");
    injector.set(&[]).unwrap();
    confirmed(&mut publisher, 3);
    for n in 0..3 {
        message(&mut consumer, &format!("held {n}"));
    }
    server.terminate().unwrap();
}

fn amqp_without_faults(place: &Place) -> Command {
    let mut command = place.serve(&[]);
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    command
}

#[test]
fn a_failed_flush_confirms_nothing() {
    let place = Place::new("eio-amqp");
    let (mut server, injector) = start_with_faults(&place, &[]);
    let mut publishers = QUEUES.map(|_| connect_amqp(&server));
    for (publisher, queue) in publishers.iter_mut().zip(QUEUES) {
        publisher.declare(queue, &[("x-queue-type", queue)]).unwrap();
        publisher.confirm().unwrap();
        for n in 0..20 {
            publisher.publish(queue, format!("confirmed {n}").as_bytes());
        }
        publisher.flush().unwrap();
        confirmed(publisher, 20);
    }
    injector.set(&["fail_sync=EIO"]).unwrap();
    for (publisher, queue) in publishers.iter_mut().zip(QUEUES) {
        publisher.publish(queue, b"never flushed");
        // The first of them may have ended the process already.
        let _ = publisher.flush();
    }
    for publisher in &mut publishers {
        while let Ok(Some(came)) = publisher.wait(Duration::from_secs(SECS)) {
            assert!(!matches!(came, Came::Method(Method::BasicAck(_))), "confirmed after a failed flush");
        }
    }
    let status = server.wait().unwrap();
    assert!(!status.success(), "it ended with {status}");

    let server = place.start(amqp_without_faults(&place)).unwrap();
    for queue in QUEUES {
        let mut consumer = connect_amqp(&server);
        consumer.consume(queue, 0).unwrap();
        for n in 0..20 {
            message(&mut consumer, &format!("confirmed {n}"));
        }
        if let Some(Came::Message(message)) = consumer.wait(SILENCE).unwrap() {
            assert_eq!(message.body, "never flushed");
        }
        silent(&mut consumer, queue);
    }
    server.terminate().unwrap();
}

/// Producers are refused under `full`, all else goes on, and producers too when the setting ends.
fn full_disk(name: &str, full: &[&str], value_bytes: usize) {
    let place = Place::new(name);
    let (server, injector) = start_with_faults(&place, SMALL_FILES);
    let mut client = connect(&server);
    client.create_topic("t", 1, &[]).unwrap();
    client.create_topic("unwanted", 1, &[]).unwrap();
    let value = vec![b'v'; value_bytes];
    let mut taken = client.put("t", 0, &[&value]).unwrap() + 1;
    injector.set(full).unwrap();
    let refused = wait_until("a refused producer", SECS, || match client.produce("t", 0, batch(&[&value]))? {
        (ErrorCode::None, offset) => {
            taken = offset + 1;
            Ok(None)
        }
        (error, _) => Ok(Some(error)),
    });
    assert_eq!(refused.unwrap(), ErrorCode::KafkaStorageError);
    // Another connection: refusals are for everybody, and so is what goes on.
    let mut other = connect(&server);
    assert_eq!(other.produce("t", 0, batch(&["small"])).unwrap().0, ErrorCode::KafkaStorageError);
    assert_eq!(other.read("t", 0, 0, |_, _| ()).unwrap(), taken);
    assert_eq!(other.commit("g", "t", taken).unwrap(), ErrorCode::None);
    assert_eq!(other.committed("g", "t").unwrap(), taken);
    assert_eq!(other.delete_topic("unwanted").unwrap(), ErrorCode::None);

    injector.set(&[]).unwrap();
    let offset = wait_until("room again", SECS, || match client.produce("t", 0, batch(&["again"]))? {
        (ErrorCode::None, offset) => Ok(Some(offset)),
        (ErrorCode::KafkaStorageError, _) => Ok(None),
        (error, _) => Err(format!("{error:?}")),
    });
    assert_eq!(offset.unwrap(), taken);
    server.terminate().unwrap();
    let server = place.start(place.serve(SMALL_FILES)).unwrap();
    let mut client = connect(&server);
    assert_eq!(client.read("t", 0, 0, |_, _| ()).unwrap(), taken + 1);
    assert_eq!(client.committed("g", "t").unwrap(), taken);
    server.terminate().unwrap();
}

#[test]
fn a_disk_below_its_reserve_refuses_producers_only() {
    full_disk("no-room", &["free_bytes=1000000"], 100);
}

#[test]
fn a_disk_that_gives_no_new_files_refuses_producers_only() {
    full_disk("no-files", &["fail_allocate=ENOSPC"], 100_000);
}

#[test]
fn writes_that_find_no_room_are_refused_and_go_on_later() {
    let place = Place::new("enospc");
    let (server, injector) = start_with_faults(&place, SMALL_FILES);
    let mut client = connect(&server);
    client.create_topic("t", 1, &[]).unwrap();
    client.put("t", 0, &["before"]).unwrap();
    injector.set(&["fail_write=ENOSPC", "only=/journal/"]).unwrap();
    // Not even the place of the failed write can be made void, so that the outcome of some may be unknown.
    let mut unknown = 0;
    for _ in 0..20 {
        match client.produce("t", 0, batch(&["refused"])).unwrap().0 {
            ErrorCode::KafkaStorageError | ErrorCode::NotLeaderOrFollower => (),
            ErrorCode::RequestTimedOut => unknown += 1,
            other => panic!("a message for which there was no room: {other:?}"),
        }
        assert_eq!(client.read_all("t", 0).unwrap(), [b"before"]);
    }
    injector.set(&[]).unwrap();
    wait_until("room again", SECS, || {
        Ok((client.produce("t", 0, batch(&["after"]))?.0 == ErrorCode::None).then_some(()))
    })
    .unwrap();
    let is_right = |values: &[Vec<u8>]| {
        let (first, last) = (values.first().unwrap(), values.last().unwrap());
        let between = values.get(1..values.len() - 1).unwrap();
        first == b"before" && last == b"after" && between.len() <= unknown && between.iter().all(|v| v == b"refused")
    };
    let values = client.read_all("t", 0).unwrap();
    assert!(is_right(&values), "{values:?}");
    server.terminate().unwrap();
    let server = place.start(place.serve(SMALL_FILES)).unwrap();
    assert_eq!(connect(&server).read_all("t", 0).unwrap(), values);
    server.terminate().unwrap();
}

/// Partitions and messages of the tests that follow.
const PARTITIONS: i32 = 4;
const MESSAGES: i64 = 120;

/// A value that is found again in the files: nothing else has its first bytes.
fn value(partition: i32, offset: i64) -> Vec<u8> {
    let mut value = format!("<{partition}:{offset}>").into_bytes();
    value.resize(20_000, b'.');
    value
}

fn fill(client: &mut Kafka) {
    client.create_topic("t", PARTITIONS, &[]).unwrap();
    for offset in 0..MESSAGES {
        for partition in 0..PARTITIONS {
            assert_eq!(client.put("t", partition, &[value(partition, offset)]).unwrap(), offset);
        }
    }
}

/// Flips a bit in the middle of the value wherever it lies below `dir`. Gives how many files had it.
#[allow(clippy::disallowed_methods, reason = "this is the damage")]
fn flip(dir: &Path, value: &[u8]) -> usize {
    let mut files = Vec::new();
    find_files(dir, &mut files);
    let name = &value[..value.iter().position(|byte| *byte == b'>').unwrap() + 1];
    let mut flipped = 0;
    for path in files {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(name.len()).position(|window| window == name) {
            bytes[at + value.len() / 2] ^= 4;
            std::fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    flipped
}

fn find_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { find_files(&path, into) } else { into.push(path) }
    }
}

/// The offsets that are served, each holding what it should; the others answer with a storage error.
fn served(client: &mut Kafka, partition: i32) -> Vec<i64> {
    let (mut offsets, mut next) = (Vec::new(), 0);
    while next < MESSAGES {
        let fetched = client.fetch("t", partition, next).unwrap();
        match fetched.error {
            ErrorCode::None => assert!(!fetched.messages.is_empty(), "nothing at {partition}:{next}"),
            error => {
                assert_eq!(error, ErrorCode::KafkaStorageError, "{partition}:{next}");
                next += 1;
            }
        }
        for (offset, found) in fetched.messages {
            assert!(found == value(partition, offset), "{partition}:{offset} is not what was sent");
            offsets.push(offset);
            next = offset + 1;
        }
    }
    offsets
}

/// Waits until a segment holds these bytes, and gives its file.
fn segment_with(segments: &Path, needle: &[u8]) -> PathBuf {
    wait_until("a segment with the message", SECS, || {
        let mut files = Vec::new();
        find_files(segments, &mut files);
        let holds = |path: &PathBuf| {
            std::fs::read(path).is_ok_and(|bytes| bytes.windows(needle.len()).any(|window| window == needle))
        };
        Ok(files.into_iter().find(holds))
    })
    .unwrap()
}

#[test]
fn a_flipped_bit_in_a_segment_fences_its_range_only() {
    let place = Place::new("segment");
    let server = place.start(place.serve(SMALL_FILES)).unwrap();
    fill(&mut connect(&server));
    let segments = place.data().join("shard-0001/segments");
    segment_with(&segments, b"<2:30>");
    server.terminate().unwrap();
    assert_eq!(flip(&segments, &value(2, 30)), 1);

    let said = run(["check".as_ref(), place.data().as_os_str()]).unwrap();
    assert!(!said.status.success(), "check found nothing: {said:?}");
    let server = place.start(place.serve(SMALL_FILES)).unwrap();
    let mut client = connect(&server);
    for partition in 0..PARTITIONS {
        let offsets = served(&mut client, partition);
        let lost = (0..MESSAGES).filter(|offset| !offsets.contains(offset)).collect::<Vec<_>>();
        if partition == 2 {
            assert!(lost.contains(&30) && lost.len() < MESSAGES as usize / 2, "partition 2 lost {lost:?}");
        } else {
            assert!(lost.is_empty(), "partition {partition} lost {lost:?}");
        }
        assert_eq!(client.put("t", partition, &["on it goes"]).unwrap(), MESSAGES);
    }
    server.terminate().unwrap();
}

/// The start reports it, and everything else is served.
#[test]
#[allow(clippy::disallowed_methods, reason = "this is the damage")]
fn a_segment_that_is_gone_is_told_at_the_start_and_takes_nothing_else_along() {
    let place = Place::new("gone");
    let server = place.start(place.serve(SMALL_FILES)).unwrap();
    fill(&mut connect(&server));
    let file = segment_with(&place.data().join("shard-0001/segments"), b"<2:30>");
    server.terminate().unwrap();
    std::fs::remove_file(&file).unwrap();

    let server = place.start(place.serve(SMALL_FILES)).unwrap();
    let name = file.file_stem().unwrap().to_str().unwrap();
    let said = server.said();
    assert!(said.contains(name) && said.contains("cannot be read"), "{said}");
    let mut client = connect(&server);
    for partition in 0..PARTITIONS {
        let offsets = served(&mut client, partition);
        assert!(partition != 2 || !offsets.contains(&30));
        assert!(offsets.contains(&(MESSAGES - 1)), "partition {partition}: {offsets:?}");
        assert_eq!(client.put("t", partition, &["on it goes"]).unwrap(), MESSAGES);
    }
    server.terminate().unwrap();
}

#[test]
fn a_flipped_bit_in_the_live_journal_refuses_the_start_until_it_is_fenced() {
    let place = Place::new("journal");
    let server = place.start(place.serve(&[])).unwrap();
    fill(&mut connect(&server));
    server.kill().unwrap();
    assert_eq!(flip(&place.data().join("shard-0001/journal"), &value(1, 50)), 1);

    let refused = place.start(place.serve(&[])).map(|_| ()).unwrap_err();
    let expected = ["is damaged at", "offsets 50 to 50", "polylogue repair"];
    assert!(expected.iter().all(|part| refused.contains(part)), "{refused}");
    let data = place.data();
    let checked = run(["check".as_ref(), data.as_os_str()]).unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success() && said.contains("damage"), "check: {checked:?}");
    assert!(said.contains(" is number 1 of topic t"), "no topic is named: {said}");
    let repaired = run(["repair".as_ref(), data.as_os_str(), "--fence".as_ref()]).unwrap();
    assert!(repaired.status.success(), "repair: {repaired:?}");

    let server = place.start(place.serve(&[])).unwrap();
    let mut client = connect(&server);
    for partition in 0..PARTITIONS {
        let offsets = served(&mut client, partition);
        let lost = (0..MESSAGES).filter(|offset| !offsets.contains(offset)).collect::<Vec<_>>();
        // Messages of other partitions were in the same frame, perhaps.
        assert_eq!(lost.contains(&50), partition == 1, "partition {partition} lost {lost:?}");
        assert!(lost.iter().all(|offset| (45..56).contains(offset)), "partition {partition} lost {lost:?}");
        assert_eq!(client.put("t", partition, &["on it goes"]).unwrap(), MESSAGES);
    }
    server.terminate().unwrap();
}
