//! `polylogue group` against a running broker.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Done, Server, TempDir, done, polylogue};
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use polylogue_kafka_codec::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use polylogue_kafka_codec::{Message, Request};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The last version in which a member needs no id of the coordinator's before it joins.
const JOIN_VERSION: i16 = 3;

/// A server with six messages in `t`-0 and none in `t`-1.
fn server(dir: &TempDir) -> Server {
    let server = Server::start(&dir.0, &["--set", "kafka.group.initial.rebalance.delay.ms=0"]);
    server.ok(&["topic", "create", "t", "-p", "2"]);
    for text in ["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"] {
        server.ok_with(&["produce", "t", "-p", "0"], text.as_bytes());
    }
    server
}

fn reset(server: &Server, args: &[&str]) -> Value {
    let text = server.ok(&[&["group", "reset", "readers", "--json"][..], args].concat());
    serde_json::from_str(&text).unwrap()
}

/// What a reset of `t`-0 commits, and what it says about it.
fn reset_first(server: &Server, args: &[&str]) -> (Value, Value) {
    let all = reset(server, &[&["--execute", "--topic", "t:0"][..], args].concat());
    assert_eq!((&all["executed"], all["offsets"].as_array().unwrap().len()), (&json!(true), 1));
    (all["offsets"][0]["offset"].clone(), all["offsets"][0]["note"].clone())
}

fn refused(server: &Server, args: &[&str]) -> Done {
    let refused = done(&mut server.command(args));
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{args:?}: {}", refused.err);
    refused
}

/// Sends a request and returns the response.
fn ask<R: Request>(stream: &mut TcpStream, version: i16, request: &R) -> R::Response {
    for chunk in encode_request(version, 1, Some("test".into()), request).unwrap() {
        stream.write_all(&chunk.to_bytes().unwrap()).unwrap();
    }
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(len)).unwrap()];
    stream.read_exact(&mut frame).unwrap();
    let (_, mut body) = decode_response_header(frame.into(), R::API_KEY, version).unwrap();
    R::Response::decode(&mut body, version).unwrap()
}

/// Joins a group and stays its member as long as the connection is kept.
fn member(server: &Server, group: &str) -> (TcpStream, JoinGroupResponse) {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: vec![0; 10].into() };
    let join = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..JoinGroupRequest::default()
    };
    let mut stream = TcpStream::connect(server.kafka).unwrap();
    let joined = ask(&mut stream, JOIN_VERSION, &join);
    assert_eq!(joined.error_code, 0);
    (stream, joined)
}

/// A consumer that had committed nothing yet showed no lag, and which partitions it has was in the table of members only.
#[test]
fn assigned_partitions_without_a_commit_are_shown_with_their_lag() {
    let dir = TempDir::new();
    let server = server(&dir);
    reset(&server, &["--execute", "--topic", "t:1", "--to-earliest"]);
    let (mut stream, joined) = member(&server, "readers");
    let numbers: Vec<u8> = [0, 1, -1].iter().flat_map(|number: &i32| number.to_be_bytes()).collect();
    let assignment = [&[0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2][..], &numbers].concat();
    let sync = SyncGroupRequest {
        group_id: "readers".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![SyncGroupRequestAssignment { member_id: joined.member_id, assignment: assignment.into() }],
        ..SyncGroupRequest::default()
    };
    assert_eq!(ask(&mut stream, JOIN_VERSION, &sync).error_code, 0);
    let shown = server.ok(&["group", "describe", "readers"]);
    let rows: Vec<&str> = shown.lines().skip_while(|line| !line.starts_with("TOPIC")).collect();
    let expected = [
        "TOPIC  PARTITION  OFFSET  END  LAG  BEHIND",
        "t              0       -    6    6  -",
        "t              1       0    0    0  0 s",
    ];
    assert_eq!(rows, expected, "{shown}");
    let list = server.ok(&["group", "list"]);
    assert!(
        list.starts_with("GROUP    STATE   TYPE      MEMBERS  LAG\nreaders  Stable  consumer        1    0"),
        "{list}"
    );
}

#[test]
fn offsets_are_shown_first_and_committed_when_told() {
    let dir = TempDir::new();
    let server = server(&dir);
    let shown = server.ok(&["group", "reset", "readers", "--topic", "t", "--to-latest"]);
    let lines: Vec<&str> = shown.lines().collect();
    let expected = [
        "TOPIC  PARTITION  OFFSET  NEW OFFSET",
        "t              0       -           6",
        "t              1       -           0",
        "",
        "nothing was changed; --execute commits these offsets",
    ];
    assert_eq!(lines, expected);
    assert_eq!(reset(&server, &["--dry-run", "--topic", "t", "--to-earliest"])["executed"], false);
    assert_eq!(server.ok(&["group", "list"]), "no groups\n");

    let done = server.ok(&["group", "reset", "readers", "--topic", "t:0", "--to-offset", "4", "--execute"]);
    assert!(done.ends_with("\n\nreset group readers\n"), "{done}");
    let mut group: Value = serde_json::from_str(&server.ok(&["group", "describe", "readers", "--json"])).unwrap();
    assert_eq!(group["state"], "Empty");
    let behind_ms = group["offsets"][0].as_object_mut().unwrap().remove("lag_ms").unwrap();
    assert!(behind_ms.as_u64().unwrap() < 600_000, "{behind_ms}");
    let offsets = json!([
        {"topic": "t", "partition": 0, "offset": 4, "high_watermark": 6, "lag": 2, "metadata": ""}
    ]);
    assert_eq!(group["offsets"], offsets);
}

#[test]
fn every_way_to_name_an_offset() {
    let dir = TempDir::new();
    let server = server(&dir);
    let first = |args: &[&str]| reset_first(&server, args);
    assert_eq!(first(&["--to-offset", "3"]), (json!(3), Value::Null));
    assert_eq!(first(&["--shift-by", "2"]), (json!(5), Value::Null));
    assert_eq!(first(&["--shift-by", "-1"]), (json!(4), Value::Null));
    let low = "New offset (-96) is lower than earliest offset for topic partition t-0. Value will be set to 0";
    assert_eq!(first(&["--shift-by", "-100"]), (json!(0), json!(low)));
    let high = "New offset (7) is higher than latest offset for topic partition t-0. Value will be set to 6";
    assert_eq!(first(&["--to-offset", "7"]), (json!(6), json!(high)));
    assert_eq!(first(&["--to-earliest"]), (json!(0), Value::Null));
    assert_eq!(first(&["--to-latest"]), (json!(6), Value::Null));
    assert_eq!(first(&["--to-time", "@0"]), (json!(0), Value::Null));
    let late = "t-0 has no message at or after that time: the end of the partition is used";
    assert_eq!(first(&["--to-time", "2999-01-01T00:00:00Z"]), (json!(6), json!(late)));
    // the first message at or after the time of the fourth
    let lines = server.ok(&["consume", "t", "--from", "beginning", "--no-follow", "--json"]);
    let times: Vec<i64> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["timestamp"].as_i64().unwrap()).collect();
    let at = times.iter().position(|time| *time >= times[3]).unwrap();
    assert_eq!(first(&["--to-time", &format!("@{}", times[3])]), (json!(at), Value::Null));
    // several partitions, and several topics
    server.ok(&["topic", "create", "u"]);
    let all = reset(&server, &["--execute", "-t", "u", "-t", "t:1,0", "--to-earliest"]);
    let rows: Vec<_> = all["offsets"].as_array().unwrap().iter().map(|o| (&o["topic"], &o["partition"])).collect();
    assert_eq!(rows, [(&json!("t"), &json!(0)), (&json!("t"), &json!(1)), (&json!("u"), &json!(0))]);
}

#[test]
fn what_cannot_be_reset_is_told() {
    let dir = TempDir::new();
    let server = server(&dir);
    for (args, text) in [
        (
            &["--topic", "t:1", "--shift-by", "1"][..],
            "Cannot shift offset for partition t-1 since there is no current committed offset",
        ),
        (&["--topic", "nope", "--to-latest"], "there is no topic nope"),
        (&["--topic", "t:0,5", "--to-latest"], "topic t has no partition 5: it has 2"),
    ] {
        let refused = refused(&server, &[&["group", "reset", "readers", "--execute"][..], args].concat());
        assert!(refused.err.contains(text), "{args:?}: {}", refused.err);
    }
    assert_eq!(server.ok(&["group", "list"]), "no groups\n");
    for args in [
        &["--topic", "t"][..],
        &["--to-latest"],
        &["--topic", "t", "--to-latest", "--to-earliest"],
        &["--topic", "t", "--to-latest", "--dry-run", "--execute"],
        &["--topic", "t:x", "--to-latest"],
        &["--topic", "t", "--to-time", "noon"],
    ] {
        let refused = done(&mut server.command(&[&["group", "reset", "readers"][..], args].concat()));
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.err);
    }
}

#[test]
fn a_group_with_members_is_neither_reset_nor_deleted() {
    let dir = TempDir::new();
    let server = server(&dir);
    let member = member(&server, "live");
    let reset = ["group", "reset", "live", "--topic", "t", "--to-latest", "--execute"];
    let text = "Assignments can only be reset if the group 'live' is inactive, but the current state is \
                CompletingRebalance.";
    assert_eq!(refused(&server, &reset).err, format!("polylogue: {text}\n"));
    let text = "Group 'live' could not be deleted: The group is not empty. Stop its members first.";
    assert_eq!(refused(&server, &["group", "delete", "live"]).err, format!("polylogue: {text}\n"));
    let refused = refused(&server, &["group", "delete", "live", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&refused.err).unwrap()["error"]["code"], "group_not_empty");
    drop(member);
}

#[test]
fn groups_are_deleted_with_their_offsets() {
    let dir = TempDir::new();
    let server = server(&dir);
    for group in ["one", "two", "a/b c"] {
        server.ok(&["group", "reset", group, "--topic", "t", "--to-earliest", "--execute"]);
    }
    assert_eq!(server.ok(&["group", "delete", "one", "a/b c"]), "deleted group one\ndeleted group a/b c\n");
    let left: Value = serde_json::from_str(&server.ok(&["group", "list", "--json"])).unwrap();
    assert_eq!(
        left["groups"],
        json!([{"group": "two", "state": "Empty", "protocol_type": "", "members": 0, "lag": 6}])
    );
    let text = "polylogue: there is no group one (`polylogue group list` lists all)\n";
    assert_eq!(refused(&server, &["group", "delete", "one"]).err, text);
}

#[test]
fn shells_are_told_what_can_be_said() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef polylogue"), ("fish", "complete -c polylogue")] {
        let script = done(polylogue().args(["completions", shell]));
        assert_eq!((script.code, script.err.as_str()), (Some(0), ""));
        for part in [mark, "to-earliest", "completions"] {
            assert!(script.out.contains(part), "{shell} has no {part}");
        }
    }
    assert_eq!(done(polylogue().args(["completions", "dos"])).code, Some(2));
}
