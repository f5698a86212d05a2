//! TLS on every listener: the real binary, with certificates made for the test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::tls::{Authority, Broker, PATIENCE, Signed, client, connect, until, versions};
use common::{TempDir, done};
use polylogue_kafka_codec::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::{ApiKey, ErrorCode, Message};
use rcgen::{DistinguishedName, DnType, SerialNumber, date_time_ymd};
use rustix::process::Signal;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;

fn get(stream: &mut (impl Read + Write), path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_protocol_is_spoken_over_tls() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "authority");
    let broker = Broker::start(&dir, &authority.sign("server", |_| ()), &[]);
    let config = client(&authority.ca(), None);
    let mut kafka = connect(broker.at("kafka+tls"), &config);
    for _ in 0..3 {
        assert!(versions(&mut kafka).unwrap() > 100);
    }
    let mut amqp = connect(broker.at("amqp+tls"), &config);
    amqp.write_all(b"AMQP\0\0\x09\x01").unwrap();
    let mut start = [0; 11];
    amqp.read_exact(&mut start).unwrap();
    assert_eq!((start[0], &start[7..]), (1, &[0, 10, 0, 10][..]), "connection.start");
    assert!(get(&mut connect(broker.at("http+tls"), &config), "/readyz").starts_with("HTTP/1.1 200"));
    let management = get(&mut connect(broker.at("rabbitmq-http+tls"), &config), "/api/overview");
    assert!(management.starts_with("HTTP/1.1 401"), "{management}");
    assert_eq!(broker.server.metric("polylogue_tls_handshakes_total{outcome=\"done\"}"), 4);
    // Who says goodbye is let go; a client still connected at the end gets a close-notify.
    drop(amqp);
    kafka.conn.send_close_notify();
    kafka.flush().unwrap();
    assert!(matches!(kafka.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut last = connect(broker.at("kafka+tls"), &config);
    versions(&mut last).unwrap();
    broker.server.signal(Signal::TERM);
    assert_eq!(last.read(&mut [0; 1]).unwrap(), 0);
}

/// Asks for all credentials, which only users who may describe the cluster see: returns the error.
fn describe_users(stream: &mut (impl Read + Write)) -> io::Result<i16> {
    let request = DescribeUserScramCredentialsRequest { users: None };
    for chunk in encode_request(0, 7, None, &request).unwrap() {
        stream.write_all(&chunk.to_bytes().unwrap())?;
    }
    stream.flush()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    let key = ApiKey::DescribeUserScramCredentials;
    let (_, mut body) = decode_response_header(frame.into(), key, 0).unwrap();
    Ok(DescribeUserScramCredentialsResponse::decode(&mut body, 0).unwrap().error_code)
}

/// What AMQP's server says last to a client that logs in by a certificate: `connection.tune`, or `connection.close` with its text.
fn log_in_by_certificate(stream: &mut (impl Read + Write)) -> (u16, String) {
    let frame = |stream: &mut dyn Read| {
        let mut head = [0; 7];
        stream.read_exact(&mut head).unwrap();
        let mut rest = vec![0; u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize + 1];
        stream.read_exact(&mut rest).unwrap();
        (u16::from_be_bytes([rest[2], rest[3]]), String::from_utf8_lossy(&rest[4..]).into_owned())
    };
    stream.write_all(b"AMQP\0\0\x09\x01").unwrap();
    stream.flush().unwrap();
    let (method, start) = frame(stream);
    assert!(method == 10 && start.contains("PLAIN AMQPLAIN EXTERNAL"), "{start}");
    // That it supports the close reason, the mechanism, no response, the locale.
    let wants =
        [&[12][..], b"capabilities", &[b'F', 0, 0, 0, 31, 28], b"authentication_failure_close", b"t\x01"].concat();
    let start_ok = [&[0, 10, 0, 11, 0, 0, 0, 49][..], &wants, &[8], b"EXTERNAL", &[0, 0, 0, 0, 5], b"en_US"].concat();
    let length = u32::try_from(start_ok.len()).unwrap().to_be_bytes();
    stream.write_all(&[&[1, 0, 0][..], &length, &start_ok, &[0xce]].concat()).unwrap();
    stream.flush().unwrap();
    frame(stream)
}

/// Whose certificate says who they are need not say it again: Kafka's clients at once, AMQP's by EXTERNAL.
#[test]
fn a_certificate_says_who_its_owner_is() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "authority");
    let called = |name: &str| {
        let owner = name.to_owned();
        authority.sign(name, |params| {
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, "Example");
            params.distinguished_name.push(DnType::CommonName, owner);
        })
    };
    let ca = format!("tls.client_ca={}", authority.ca().display());
    let rules = "tls.principal_mapping_rules=RULE:CN=(.*),O=Example/$1/L";
    let more = ["--set", &ca, "--set", "tls.client_auth=request", "--set", rules, "--set", "server.login=always"];
    let broker = Broker::start(&dir, &authority.sign("server", |_| ()), &more);
    let by = |name: Option<&Signed>, listener: &str| connect(broker.at(listener), &client(&authority.ca(), name));
    let (admin, stranger, other) = (called("Admin"), called("stranger"), authority.sign("other", |_| ()));
    assert_eq!(describe_users(&mut by(Some(&admin), "kafka+tls")).unwrap(), 0);
    let refused = ErrorCode::ClusterAuthorizationFailed.code();
    assert_eq!(describe_users(&mut by(Some(&stranger), "kafka+tls")).unwrap(), refused);
    // A certificate with the name of `guest` is no login with Kafka's protocol.
    let guest = called("Guest");
    for no_user in [None, Some(&other), Some(&guest)] {
        assert!(describe_users(&mut by(no_user, "kafka+tls")).is_err(), "who is no one has to log in");
    }
    const TUNE: u16 = 30;
    assert_eq!(log_in_by_certificate(&mut by(Some(&admin), "amqp+tls")).0, TUNE);
    for no_user in [None, Some(&stranger), Some(&other)] {
        let (method, reported) = log_in_by_certificate(&mut by(no_user, "amqp+tls"));
        assert!(
            method == 50 && reported.contains("Login was refused using authentication mechanism EXTERNAL"),
            "{reported}"
        );
    }
    let mut http = connect(broker.at("http+tls"), &client(&authority.ca(), None));
    let head = "host: x\r\nconnection: close\r\nauthorization: Basic YWRtaW46YWRtaW4=";
    http.write_all(format!("GET /metrics HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).unwrap();
    let mut metrics = String::new();
    http.read_to_string(&mut metrics).unwrap();
    for outcome in ["succeeded", "failed"] {
        let line = format!("polylogue_logins_total{{mechanism=\"EXTERNAL\",outcome=\"{outcome}\"}} 3\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[test]
fn who_does_not_speak_what_is_spoken_costs_its_connection_only() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "authority");
    let stranger = Authority::new(&dir.0, "stranger");
    let broker = Broker::start(&dir, &authority.sign("server", |_| ()), &[]);
    let config = client(&authority.ca(), None);
    for listener in ["kafka+tls", "amqp+tls", "http+tls", "rabbitmq-http+tls"] {
        // Without TLS.
        let mut plain = TcpStream::connect(broker.at(listener)).unwrap();
        plain.set_read_timeout(Some(PATIENCE)).unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut reported = Vec::new();
        let _ = plain.read_to_end(&mut reported);
        assert!(reported.len() <= 7, "{listener}: an alert and nothing else, and not {reported:?}");
        // A client that does not know who signed for the server.
        let mut doubts = connect(broker.at(listener), &client(&stranger.ca(), None));
        let refused = doubts.write_all(b"x").unwrap_err().to_string();
        assert!(refused.contains("invalid peer certificate"), "{listener}: {refused}");
        // Half of a handshake, and gone.
        let mut half = TcpStream::connect(broker.at(listener)).unwrap();
        half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).unwrap();
        drop(half);
    }
    // TLS where none is spoken.
    let mut astray = connect(broker.server.kafka, &config);
    assert!(versions(&mut astray).is_err());
    assert!(versions(&mut connect(broker.at("kafka+tls"), &config)).is_ok());
    assert!(versions(&mut TcpStream::connect(broker.server.kafka).unwrap()).is_ok());
    assert!(broker.server.metric("polylogue_tls_handshakes_total{outcome=\"failed\"}") >= 8);
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "authority");
    let stranger = Authority::new(&dir.0, "stranger");
    let revoked = authority.revoke(77);
    let (ca, revoked) = (authority.ca(), revoked.display());
    let more = [
        "tls.client_auth=require".to_owned(),
        format!("tls.client_ca={}", ca.display()),
        format!("tls.revoked={revoked}"),
    ];
    let more: Vec<&str> = more.iter().flat_map(|set| ["--set", set.as_str()]).collect();
    let broker = Broker::start(&dir, &authority.sign("server", |_| ()), &more);
    let ask = |shows: Option<&Signed>| versions(&mut connect(broker.at("kafka+tls"), &client(&authority.ca(), shows)));
    assert!(ask(Some(&authority.sign("good", |_| ()))).is_ok());
    assert!(ask(None).is_err(), "none");
    assert!(ask(Some(&stranger.sign("other", |_| ()))).is_err(), "of another authority");
    let expired = authority.sign("expired", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    assert!(ask(Some(&expired)).is_err(), "expired");
    let taken_back = authority.sign("revoked", |params| params.serial_number = Some(SerialNumber::from(77)));
    assert!(ask(Some(&taken_back)).is_err(), "revoked");
    assert!(ask(Some(&authority.sign("another", |_| ()))).is_ok());
}

#[test]
fn a_certificate_that_changes_is_shown_without_a_restart() {
    let dir = TempDir::new();
    let (first, second) = (Authority::new(&dir.0, "first"), Authority::new(&dir.0, "second"));
    let (old, new) = (first.sign("server", |_| ()), second.sign("server", |_| ()));
    let broker = Broker::start(&dir, &old, &[]);
    let mut open = connect(broker.at("kafka+tls"), &client(&first.ca(), None));
    versions(&mut open).unwrap();
    // What cannot be used changes nothing.
    std::fs::write(&old.certificate, "no certificate").unwrap();
    until("the files are read", || broker.server.metric("polylogue_tls_reloads_total{outcome=\"failed\"}") == 1);
    versions(&mut connect(broker.at("kafka+tls"), &client(&first.ca(), None))).unwrap();
    std::fs::copy(&new.key, &old.key).unwrap();
    std::fs::copy(&new.certificate, &old.certificate).unwrap();
    until("the files are read", || broker.server.metric("polylogue_tls_reloads_total{outcome=\"done\"}") == 1);
    versions(&mut connect(broker.at("kafka+tls"), &client(&second.ca(), None))).unwrap();
    assert!(versions(&mut connect(broker.at("kafka+tls"), &client(&first.ca(), None))).is_err());
    versions(&mut open).unwrap();
}

/// As anywhere else.
#[test]
fn who_takes_nothing_is_given_up() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "authority");
    let broker = Broker::start(&dir, &authority.sign("server", |_| ()), &["--set", "server.write_stall_ms_max=200ms"]);
    let mut client = connect(broker.at("kafka+tls"), &client(&authority.ca(), None));
    versions(&mut client).unwrap();
    let request = [0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 9, 0, 4, b't', b'e', b's', b't'];
    // Their answers are more than the system holds for anybody.
    client.write_all(&request.repeat(40_000)).unwrap();
    let is_it = |line: &str| line.starts_with("polylogue_connections_closed_total{") && line.contains("\"stalled\"");
    until("it is given up", || broker.server.get("/metrics").unwrap().1.lines().any(is_it));
}

/// A request that is longer than a connection waits for as a whole (Metadata, version 1, about topics whose names cannot be), and one that is short.
fn long_and_short() -> Vec<u8> {
    let mut long = vec![0, 3, 0, 1, 0, 0, 0, 5, 0, 0];
    long.extend(800_u32.to_be_bytes());
    for number in 0..800 {
        long.extend([0, 100]);
        long.extend(format!("!{number:099}").into_bytes());
    }
    let short = [0, 18, 0, 0, 0, 0, 0, 6, 0, 0];
    let frame = |body: &[u8]| [&u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    [frame(&long), frame(&short)].concat()
}

/// Whom the next answer is for.
fn answered(stream: &mut impl Read) -> u32 {
    let mut head = [0; 8];
    stream.read_exact(&mut head).unwrap();
    let [length, id] = [&head[..4], &head[4..]].map(|four| u32::from_be_bytes(four.try_into().unwrap()));
    std::io::copy(&mut stream.take(u64::from(length) - 4), &mut std::io::sink()).unwrap();
    id
}

/// Of a frame on its way the system waits for the rest (`SO_RCVLOWAT`): never for more than still comes, whatever the parts are.
#[test]
fn a_frame_is_served_in_whatever_parts_it_comes() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "authority");
    let broker = Broker::start(&dir, &authority.sign("server", |_| ()), &[]);
    let mut others = TcpStream::connect(broker.server.kafka).unwrap();
    // What the broker does with a part it has done when others are served, or it does it later: both have to come out well.
    let mut in_parts = |socket: &mut TcpStream, bytes: &[u8], part: usize| {
        socket.set_nodelay(true).unwrap();
        for piece in bytes.chunks(part) {
            socket.write_all(piece).unwrap();
            versions(&mut others).unwrap();
        }
    };
    let requests = long_and_short();
    let parts = [1_500, 4_096, 10_007, 16_411, 30_000, requests.len() - 1];
    let mut plain = TcpStream::connect(broker.server.kafka).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    for part in parts {
        in_parts(&mut plain, &requests, part);
        assert_eq!([answered(&mut plain), answered(&mut plain)], [5, 6], "without TLS, in parts of {part}");
    }
    for record in [None, Some(700), Some(5_000)] {
        let mut config = (*client(&authority.ca(), None)).clone();
        config.max_fragment_size = record;
        let mut stream = connect(broker.at("kafka+tls"), &std::sync::Arc::new(config));
        stream.conn.set_buffer_limit(None);
        versions(&mut stream).unwrap();
        for part in parts {
            stream.conn.writer().write_all(&requests).unwrap();
            let mut sealed = Vec::new();
            while stream.conn.wants_write() {
                stream.conn.write_tls(&mut sealed).unwrap();
            }
            in_parts(&mut stream.sock, &sealed, part);
            let ids = [answered(&mut stream), answered(&mut stream)];
            assert_eq!(ids, [5, 6], "records of {record:?}, in parts of {part}");
        }
    }
}

#[test]
fn a_start_says_what_is_missing() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "authority");
    let signed = authority.sign("server", |_| ());
    let [certificate, key] = [&signed.certificate, &signed.key].map(|path| path.display().to_string());
    let start = |sets: &[String]| {
        let mut command = common::polylogue();
        command.args(["serve", "--listen", "kafka+tls=127.0.0.1:0", "--data"]).arg(dir.join("data"));
        sets.iter().for_each(|set| _ = command.args(["--set", set]));
        let refused = done(&mut command);
        assert!(refused.code.is_some_and(|code| code != 0), "{refused:?}");
        refused.err
    };
    let reported = start(&[]);
    assert!(reported.contains("tls.certificate: kafka+tls=127.0.0.1:0 requires one"), "{reported}");
    let reported = start(&[format!("tls.certificate={certificate}")]);
    assert!(reported.contains("tls.key: kafka+tls=127.0.0.1:0 requires one"), "{reported}");
    let reported = start(&[format!("tls.certificate={key}"), format!("tls.key={key}")]);
    assert!(reported.contains("has no certificate (PEM)"), "{reported}");
    let reported = start(&[format!("tls.certificate={certificate}"), format!("tls.key={certificate}")]);
    assert!(reported.contains("cannot read a private key"), "{reported}");
    let reported = start(&[
        format!("tls.certificate={certificate}"),
        format!("tls.key={key}"),
        "tls.client_auth=require".to_owned(),
    ]);
    assert!(reported.contains("tls.client_ca: tls.client_auth requires one"), "{reported}");
    assert!(!dir.join("data").exists(), "nothing was touched");
}

#[test]
fn commands_speak_tls_with_whom_they_trust() {
    let dir = TempDir::new();
    let ours = Authority::new(&dir.0, "ours");
    let stranger = Authority::new(&dir.0, "stranger");
    let broker = Broker::start(&dir, &ours.sign("server", |_| {}), &["--set", "server.login=always"]);
    let http = format!("https://localhost:{}", broker.at("http+tls").port());
    let kafka = format!("localhost:{}", broker.at("kafka+tls").port());
    let run = |args: &[&str], ca: &Path, input: &[u8]| {
        let mut command = common::polylogue();
        command.args(args).env("POLYLOGUE_CA", ca).env("POLYLOGUE_USER", "admin").env("POLYLOGUE_PASSWORD", "admin");
        common::done_with(&mut command, input)
    };
    let ok = |args: &[&str], input: &[u8]| {
        let done = run(args, &ours.ca(), input);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        done.out
    };
    ok(&["topic", "create", "t", "--server", &http], b"");
    assert_eq!(ok(&["produce", "t", "--bootstrap", &kafka], b"hello\n"), "1 message written to t\n");
    let read = ["consume", "t", "--from", "beginning", "--no-follow", "--bootstrap", &kafka];
    assert_eq!(ok(&read, b""), "hello\n");
    for args in [&["topic", "list", "--server", &http][..], &read] {
        let refused = run(args, &stranger.ca(), b"");
        let text = refused.err.to_lowercase();
        assert!(refused.code == Some(1) && text.contains("certificate"), "{args:?}: {}", refused.err);
        let nothing = run(args, &dir.join("nothing.pem"), b"");
        assert!(nothing.code == Some(1) && nothing.err.contains("nothing.pem"), "{args:?}: {}", nothing.err);
    }
    // The system trusts no authority of a test.
    let alone = common::done(common::polylogue().args(["consume", "t", "--tls", "--bootstrap", &kafka]));
    assert!(alone.code == Some(1) && alone.err.to_lowercase().contains("certificate"), "{}", alone.err);
}
