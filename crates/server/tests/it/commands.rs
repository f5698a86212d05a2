//! The commands against a running broker.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir, done, done_with, polylogue};
use polylogue_kafka_codec::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::{ApiKey, Message};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn topics_from_creation_to_deletion() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &["--set", "kafka.num.partitions=3"]);
    assert_eq!(server.ok(&["topic", "list"]), "no topics\n");
    assert_eq!(server.ok(&["topic", "create", "a", "--dry-run"]), "topic a can be created\n");
    assert_eq!(server.ok(&["topic", "create", "a"]), "created topic a with 3 partitions\n");
    // `alter` calls it --set.
    let config =
        ["-c", "retention.ms=1000", "--set", "polylogue.durability=async", "--config", "segment.bytes=1048576"];
    server.ok(&[&["topic", "create", "b", "-p", "1"][..], &config].concat());
    let list = server.ok(&["topic", "list"]);
    let titles = "TOPIC  PARTITIONS  MESSAGES  SIZE  DURABILITY\n";
    assert_eq!(
        list,
        format!("{titles}a               3         0  0 B   sync\nb               1         0  0 B   async\n")
    );
    server.ok(&["queue", "declare", "q"]);
    assert_eq!(server.ok(&["topic", "list"]), list, "the topic of a queue is internal");
    assert_eq!(server.ok(&["topic", "list", "--all"]).lines().count(), 4);
    let described = json(&server.ok(&["topic", "describe", "b", "--json"]));
    let set: Vec<_> = described["config"].as_array().unwrap().iter().filter(|c| c["source"] == "topic").collect();
    assert_eq!(set.len(), 3);
    let shown = server.ok(&["topic", "describe", "b"]);
    assert!(shown.contains("segment.bytes") && shown.contains("no effect"), "{shown}");
    for (args, text) in [
        (&["topic", "create", "a"][..], "a"),
        (&["topic", "create", "bad name"], "Topic name is invalid"),
        (&["topic", "create", "c", "-c", "nope=1"], "Unknown topic config name: nope"),
        (&["topic", "describe", "nope"], "there is no topic nope"),
        (&["topic", "delete", "nope"], "there is no topic nope (`polylogue topic list --all` lists all)"),
        (&["group", "describe", "nope"], "nope"),
    ] {
        let refused = done(&mut server.command(args));
        assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(refused.err.starts_with("polylogue: ") && refused.err.contains(text), "{args:?}: {}", refused.err);
    }
    assert_eq!(server.ok(&["topic", "delete", "a", "b"]), "deleted topic a\ndeleted topic b\n");
    assert_eq!(server.ok(&["topic", "list"]), "no topics\n");
    assert_eq!(server.ok(&["group", "list"]), "no groups\n");
}

#[test]
fn messages_with_keys_and_headers_under_every_codec() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok(&["topic", "create", "t", "-p", "2"]);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let args = ["produce", "t", "-p", "1", "-z", codec, "--key-separator", "=>", "-H", "codec=x", "-H", "second=y"];
        let written = server.ok_with(&args, format!("k1=>{codec} one\r\nk2=>{codec} two\n").as_bytes());
        assert_eq!(written, "2 messages written to t\n");
    }
    let lines = server.ok(&["consume", "t", "--from", "beginning", "--no-follow", "--json"]);
    let messages: Vec<Value> = lines.lines().map(json).collect();
    assert_eq!(messages.len(), 10);
    for (i, message) in messages.iter().enumerate() {
        assert_eq!((&message["partition"], &message["offset"]), (&Value::from(1), &Value::from(i)));
        assert_eq!(message["key"], if i % 2 == 0 { "k1" } else { "k2" });
        assert_eq!(message["headers"][0]["name"], "codec");
        assert_eq!(message["headers"][1]["value"], "y");
    }
    assert_eq!(messages[9]["value"], "zstd two");
    let text = |args: &[&str]| server.ok(&[&["consume", "t", "--no-follow"][..], args].concat());
    assert_eq!(text(&["--from", "8"]), "zstd one\nzstd two\n");
    assert_eq!(text(&["--from", "beginning", "-n", "1", "-o", "hex"]), "6e6f6e65206f6e65\n");
    assert_eq!(text(&["--from", "beginning", "-n", "2", "-o", "raw"]), "none onenone two");
    assert_eq!(text(&["--from", "end"]), "");
    assert_eq!(text(&["--from", "9", "-p", "0"]), "");
    let at = messages[4]["timestamp"].as_i64().unwrap();
    let first = messages.iter().position(|m| m["timestamp"].as_i64().unwrap() >= at).unwrap();
    assert_eq!(text(&["--from", &format!("@{at}")]).lines().count(), 10 - first);
    assert_eq!(text(&["--from", "2999-01-01T00:00:00Z"]), "");
    let verbose = text(&["--from", "9", "-v"]);
    assert!(verbose.starts_with("1 9 ") && verbose.ends_with(" k2 codec=x second=y zstd two\n"), "{verbose}");
}

#[test]
fn a_consumer_that_waits_sees_what_comes() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"before\n");
    let mut waiting = server.command(&["consume", "t", "--from", "1", "-n", "2"]);
    let waiting = waiting.stdout(std::process::Stdio::piped()).spawn().unwrap();
    server.ok_with(&["produce", "t", "--acks", "1"], b"first\n");
    server.ok_with(&["produce", "t", "--acks", "0", "--empty-as-tombstone"], b"\n");
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "first\n\n");
    let last = json(&server.ok(&["consume", "t", "--from", "2", "--no-follow", "--json"]));
    assert_eq!(last["value"], Value::Null, "a tombstone");
}

/// A frame of Kafka's protocol, without its length. `None` when there are no more.
fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(len)).unwrap()];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn send(stream: &mut TcpStream, frame: &[u8]) {
    stream.write_all(&[&i32::try_from(frame.len()).unwrap().to_be_bytes()[..], frame].concat()).unwrap();
}

/// Deletes what stands below an offset of `t`-0.
fn delete_below(kafka: SocketAddr, offset: i64) {
    const VERSION: i16 = 2;
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
    let topics = vec![DeleteRecordsTopic { name: "t".into(), partitions }];
    let mut stream = TcpStream::connect(kafka).unwrap();
    let request = DeleteRecordsRequest { topics, timeout_ms: 30_000 };
    for chunk in encode_request(VERSION, 1, None, &request).unwrap() {
        stream.write_all(&chunk.to_bytes().unwrap()).unwrap();
    }
    let answer = frame(&mut stream).unwrap().into();
    let (_, mut body) = decode_response_header(answer, ApiKey::DeleteRecords, VERSION).unwrap();
    let answer = DeleteRecordsResponse::decode(&mut body, VERSION).unwrap();
    assert_eq!(answer.topics[0].partitions[0].low_watermark, offset);
}

/// Offsets of answers with an error were used: a consumer went back to 0, or wrote the same line for ever.
#[test]
fn a_consumer_begins_within_the_partition() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"0\n1\n2\n3\n4\n");
    delete_below(server.kafka, 3);
    for (args, out, err) in [
        (&["--from", "99999", "--no-follow"][..], "", "no offset 99999; going on at 5, which is its end"),
        (&["--from", "1", "--no-follow"], "3\n4\n", "no offset 1; going on at 3, which is its first"),
        (&["--from", "0", "-n", "1"], "3\n", "no offset 0; going on at 3, which is its first"),
        (&["--from", "4", "-n", "1"], "4\n", ""),
        (&["--from", "5", "--no-follow"], "", ""),
        (&["--from", "@0", "--no-follow"], "3\n4\n", ""),
    ] {
        let got = done(&mut server.command(&[&["consume", "t"][..], args].concat()));
        let reported = if err.is_empty() { String::new() } else { format!("polylogue: partition 0 has {err}\n") };
        assert_eq!((got.code, got.out.as_str(), got.err), (Some(0), out, reported), "{args:?}");
    }
    let mut late = server.command(&["consume", "t", "--from", "99999", "-n", "1"]);
    let mut late = late.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reported = BufReader::new(late.stderr.take().unwrap());
    reported.read_line(&mut String::new()).unwrap();
    server.ok_with(&["produce", "t"], b"next\n");
    assert_eq!(late.wait_with_output().unwrap().stdout, b"next\n");
    let mut more = String::new();
    reported.read_to_string(&mut more).unwrap();
    assert_eq!(more, "", "said once");
}

/// Deletes are faster than the consumer: what it reads next is gone when it asks.
#[test]
fn a_consumer_that_is_overtaken_by_a_delete_goes_on_with_what_is_left() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"0\n1\n2\n3\n4\n");
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut consumer = server.command(&["consume", "t", "--from", "0", "--no-follow"]);
    consumer.env("POLYLOGUE_BOOTSTRAP", between.local_addr().unwrap().to_string());
    let consumer = consumer.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut client, _) = between.accept().unwrap();
    let mut broker = TcpStream::connect(server.kafka).unwrap();
    let mut fetches = 0;
    while let Some(request) = frame(&mut client) {
        if request[..2] == ApiKey::Fetch.code().to_be_bytes() {
            fetches += 1;
            assert!(fetches < 10, "it asks for ever");
            match fetches {
                1 => delete_below(server.kafka, 2),
                2 => delete_below(server.kafka, 3),
                _ => {}
            }
        }
        send(&mut broker, &request);
        send(&mut client, &frame(&mut broker).unwrap());
    }
    let output = consumer.wait_with_output().unwrap();
    let reported =
        |from, to| format!("polylogue: partition 0 has no offset {from}; going on at {to}, which is its first\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), reported(0, 2) + &reported(2, 3));
    assert_eq!((String::from_utf8(output.stdout).unwrap().as_str(), fetches), ("3\n4\n", 3));
}

#[test]
fn keys_go_to_the_partitions_of_kafkas_own_producer() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok(&["topic", "create", "t", "-p", "7"]);
    server.ok_with(&["produce", "t", "--key", "foobar"], b"v\n");
    let message = json(&server.ok(&["consume", "t", "--from", "beginning", "--no-follow", "--json"]));
    assert_eq!(message["partition"], (-790_332_482 & 0x7fff_ffff) % 7);
}

#[test]
fn what_cannot_be_written_or_read_is_told() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &["--set", "kafka.message.max.bytes=1000"]);
    server.ok(&["topic", "create", "t"]);
    let large = done_with(&mut server.command(&["produce", "t"]), &[b'x'; 2000]);
    assert_eq!(large.code, Some(1));
    assert!(large.err.contains("MESSAGE_TOO_LARGE"), "{}", large.err);
    for (args, code, text) in [
        (&["produce", "t", "-p", "9"][..], 2, "topic t has no partition 9: it has 1"),
        (&["produce", "t", "-H", "novalue"], 2, "expected NAME=VALUE"),
        (&["consume", "nope"], 1, "there is no topic nope (UNKNOWN_TOPIC_OR_PARTITION) (`polylogue topic list --all`"),
        (&["consume", "t", "--from", "never"], 2, "--from never"),
        (&["consume", "t", "-p", "3"], 2, "has no partition 3"),
    ] {
        let refused = done(&mut server.command(args));
        assert_eq!(refused.code, Some(code), "{args:?}: {}", refused.err);
        assert!(refused.err.contains(text), "{args:?}: {}", refused.err);
    }
    let keyless = done_with(&mut server.command(&["produce", "t", "--key-separator", ":"]), b"a:1\nb\n");
    assert!(keyless.err.contains("line 2 has no \":\""), "{}", keyless.err);
}

#[test]
fn nobody_there_is_told_with_what_to_do() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for args in [&["topic", "list", "--server", &free][..], &["consume", "t", "--bootstrap", &free]] {
        let refused = done(polylogue().args(args));
        assert_eq!(refused.code, Some(1));
        assert!(refused.err.contains("cannot reach") && refused.err.contains("polylogue serve"), "{}", refused.err);
        let refused = done(polylogue().args(args).arg("--json"));
        assert_eq!(json(&refused.err)["error"]["code"], "unreachable");
    }
}

#[test]
fn the_wrong_listener_is_told() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    let refused = done(polylogue().args(["topic", "list", "--server", &server.kafka.to_string()]));
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    let refused = done(polylogue().args(["consume", "t", "--bootstrap", &server.http.to_string()]));
    assert_eq!(refused.code, Some(1), "{}", refused.out);
}

#[test]
fn options_are_shown_with_their_sources() {
    let dir = TempDir::new();
    let file = dir.join("p.toml");
    std::fs::write(&file, "[kafka]\nnum.partitions = 5\n").unwrap();
    let mut command = polylogue();
    command.args(["config", "--changed", "--data", "x", "--config"]).arg(&file).env("POLYLOGUE_WORKER_THREADS", "2");
    let shown = done(&mut command).out;
    let lines: Vec<&str> = shown.lines().filter(|line| !line.starts_with(' ')).collect();
    let from_file = format!("kafka.num.partitions = 5  # from {}; default 1; int", file.display());
    assert_eq!(
        lines,
        [
            "server.data = x  # from the command line; default ./polylogue-data; path",
            "server.worker_threads = 2  # from POLYLOGUE_WORKER_THREADS; default 0; number, 0 to 1024",
            &from_file,
        ]
    );
    let all = json(&done(polylogue().args(["config", "--json"])).out);
    assert!(all["options"].as_array().unwrap().len() > 50);
}

/// The commands whose help is reviewed.
const REVIEWED: &[&str] = &[
    "",
    "serve",
    "topic",
    "topic create",
    "topic list",
    "topic describe",
    "topic alter",
    "topic delete",
    "group",
    "group list",
    "group describe",
    "group reset",
    "group delete",
    "queue",
    "queue list",
    "queue declare",
    "queue describe",
    "queue publish",
    "queue get",
    "queue purge",
    "queue move",
    "queue redrive",
    "queue delete",
    "exchange",
    "exchange list",
    "exchange declare",
    "exchange delete",
    "binding",
    "binding list",
    "binding add",
    "binding delete",
    "vhost",
    "vhost list",
    "vhost create",
    "vhost delete",
    "policy",
    "policy list",
    "policy set",
    "policy delete",
    "definitions",
    "definitions export",
    "definitions import",
    "shovel",
    "shovel list",
    "shovel status",
    "shovel create",
    "shovel delete",
    "federation",
    "federation list",
    "connection",
    "connection list",
    "connection close",
    "profile",
    "profile create",
    "profile list",
    "profile show",
    "profile use",
    "profile delete",
    "tls",
    "tls create",
    "produce",
    "consume",
    "check",
    "repair",
    "config",
    "config get",
    "config set",
    "completions",
    "version",
];

/// All help texts in one file, so that a change of the command line is seen in review.
#[test]
fn help_is_as_reviewed() {
    let mut all = String::new();
    for command in REVIEWED {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = done(polylogue().args(&args));
        assert_eq!(help.code, Some(0));
        all.push_str(&format!("$ polylogue {}\n{}\n", args.join(" "), help.out));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    let reviewed = std::fs::read_to_string(path).unwrap();
    assert!(all == reviewed, "help has changed; look at it and run this test with UPDATE_SNAPSHOTS=1:\n{all}");
}

#[test]
fn the_status_of_a_server_is_one_screen() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"a\nb\n");
    server.ok(&["group", "reset", "readers", "--topic", "t", "--to-earliest", "--execute"]);
    let shown = server.ok(&["status"]);
    let kafka = format!("kafka     {0}  {0}", server.kafka);
    for text in
        [": healthy, up ", "1 topic, 1 partition, ", &kafka, "PROTOCOL  CONNECTIONS", "readers  Empty        0    2"]
    {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    // Only what a merge had moved to segments was counted.
    assert!(!shown.contains("; 0 B stored"), "{shown}");
    assert!(shown.lines().count() < 24, "{shown}");
    let read = json(&server.ok(&["status", "--json"]));
    assert_eq!((&read["groups"][0]["lag"], &read["status"]["ready"]), (&2.into(), &true.into()));
    // The status counted the topics of queues, which no list of topics shows.
    server.ok(&["queue", "declare", "q"]);
    let count = json(&server.ok(&["topic", "list", "--json"]))["topics"].as_array().unwrap().len();
    assert_eq!(json(&server.ok(&["status", "--json"]))["status"]["topics"], count);
    assert!(read["rates"].as_array().unwrap().iter().any(|rate| rate["protocol"] == "kafka"));
}

#[test]
fn the_doctor_writes_a_report_and_says_what_is_wrong() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), &[]);
    server.ok_with(&["produce", "private-topic"], b"private-message\n");
    let report = dir.join("report.json");
    let path = report.display().to_string();
    let said = server.ok(&["doctor", "--out", &path]);
    assert!(said.contains(&path), "{said}");
    let text = std::fs::read_to_string(&report).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["server"]["status"]["topics"], 1);
    assert!(read["machine"]["cores"].as_u64().unwrap() > 0);
    assert!(read["server"]["metrics"].as_array().unwrap().iter().any(|line| *line == "polylogue_topics 1"));
    assert!(!text.contains("private-topic") && !text.contains("private-message"), "{text}");
    let again = done(&mut server.command(&["doctor", "--out", &path]));
    assert!(again.code == Some(1) && again.err.contains("choose another file"), "{}", again.err);
    // The second report without --out failed, because the first one was there.
    for name in ["polylogue-doctor.json", "polylogue-doctor-2.json"] {
        let done = done(server.command(&["doctor"]).current_dir(&dir.0));
        assert!(
            done.code == Some(0) && done.out.contains(&format!("the report is in {name}:")),
            "{}{}",
            done.out,
            done.err
        );
    }
    let printed: serde_json::Value = serde_json::from_str(&server.ok(&["doctor", "--out", "-"])).unwrap();
    assert_eq!(printed["server"]["status"]["topics"], 1);
    let named = dir.join("named.json").display().to_string();
    let json = server.ok(&["doctor", "--names", "--json", "--out", &named]);
    assert!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["findings"].is_array());
    assert!(std::fs::read_to_string(&named).unwrap().contains("private-topic"));
    let alone = dir.join("alone.json").display().to_string();
    let no_user = done(polylogue().args(["doctor", "--server", "127.0.0.1:1", "--out", &alone]));
    assert_eq!(no_user.code, Some(1));
    assert!(no_user.out.contains("bad") && std::fs::metadata(&alone).is_ok(), "{}", no_user.out);
}
