//! The user whose password is public: where it logs in, which directories have it, and what a web page or a proxy makes of that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::amqp::{Client, start_ok};
use common::{Server, TempDir, done};
use polylogue_amqp::codec::Method;
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;
use polylogue_kafka_codec::{Message as _, Request};
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

/// `guest` with its password, and the administrator of [`Server::start_with_admin`].
const GUEST: &str = "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=";
const ADMIN: &str = "authorization: Basic YWRtaW46YWRtaW4=";
const HERE: &str = "host: localhost";
const RABBIT: [&str; 4] = ["--listen", "amqp=127.0.0.1:0", "--listen", "rabbitmq-http=127.0.0.1:0"];

/// Where a protocol listens, as this machine reaches it.
fn at(server: &Server, protocol: &str) -> SocketAddr {
    let prefix = format!("{protocol} listening on ");
    let line = server.lines.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap();
    let bound: SocketAddr = line.split(' ').next().unwrap().parse().unwrap();
    SocketAddr::from(([127, 0, 0, 1], bound.port()))
}

/// The status that a request with these headers gets, and the answer.
fn ask(to: SocketAddr, request: &str, headers: &[&str], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    let length = format!("content-length: {}", body.len());
    let always = ["connection: close", "content-type: application/json", &length];
    let head = [headers, &always].concat().join("\r\n");
    stream.write_all(format!("{request} HTTP/1.1\r\n{head}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn status(to: SocketAddr, request: &str, headers: &[&str]) -> u16 {
    ask(to, request, headers, "{}").0
}

/// Whether `guest` may log in over AMQP.
fn amqp(to: SocketAddr) -> bool {
    matches!(Client::started(to).ask(0, start_ok("guest", "guest")), Method::ConnectionTune(_))
}

fn kafka<R: Request>(stream: &mut TcpStream, version: i16, request: &R) -> R::Response {
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

/// How a login with Kafka's protocol by SASL/PLAIN ends.
fn plain(server: &Server, user: &str) -> i16 {
    let mut stream = TcpStream::connect(at(server, "kafka")).unwrap();
    assert_eq!(kafka(&mut stream, 1, &SaslHandshakeRequest { mechanism: "PLAIN".into() }).error_code, 0);
    let login = SaslAuthenticateRequest { auth_bytes: format!("\0{user}\0{user}").into() };
    kafka(&mut stream, 2, &login).error_code
}

/// It was an administrator at the API, in the console and for Kafka's clients on this machine, beside any other.
#[test]
fn it_logs_in_with_rabbitmqs_protocols_only() {
    let dir = TempDir::new();
    for policy in ["never", "auto", "always"] {
        let login = format!("server.login={policy}");
        let more = [&RABBIT[..], &["--set", "server.guest=on", "--set", &login]].concat();
        let server = Server::start_with_admin(&dir.join(policy), &more);
        let login = |name: &str| {
            ask(
                server.http,
                "POST /api/v1/session",
                &[HERE],
                &format!("{{\"name\":\"{name}\",\"password\":\"{name}\"}}"),
            )
        };
        let (status_of_guest, answer) = login("guest");
        assert!(status_of_guest == 401 && !answer.contains("set-cookie"), "{policy}: {answer}");
        assert_eq!(login("admin").0, 200, "{policy}");
        let asks = policy == "always";
        assert_eq!(status(server.http, "GET /api/v1/users", &[HERE, GUEST]), if asks { 401 } else { 200 }, "{policy}");
        assert_eq!(status(server.http, "GET /api/v1/users", &[HERE, ADMIN]), 200, "{policy}");
        const FAILED: i16 = 58;
        if asks {
            assert_eq!((plain(&server, "guest"), plain(&server, "admin")), (FAILED, 0), "{policy}");
        }
        assert!(amqp(at(&server, "amqp")), "{policy}");
        assert_eq!(status(at(&server, "rabbitmq-http"), "GET /api/whoami", &[HERE, GUEST]), 200, "{policy}");
    }
}

/// Everything that this machine passes on from elsewhere was from this machine.
#[test]
fn it_logs_in_from_this_machine_to_this_machine_only() {
    let dir = TempDir::new();
    let listen = ["--listen", "amqp=0.0.0.0:0", "--listen", "rabbitmq-http=0.0.0.0:0", "--set", "server.guest=on"];
    let server = Server::start_with_admin(&dir.join("anywhere"), &listen);
    assert!(!amqp(at(&server, "amqp")), "others reach that listener, by this machine too");
    let refused = ask(at(&server, "rabbitmq-http"), "GET /api/whoami", &[HERE, GUEST], "");
    assert!(refused.0 == 401 && refused.1.contains("User can only log in via localhost"), "{}", refused.1);
    assert_eq!(status(at(&server, "rabbitmq-http"), "GET /api/whoami", &[HERE, ADMIN]), 200);
    let server = Server::start(&dir.join("here"), &RABBIT);
    let to = at(&server, "rabbitmq-http");
    assert_eq!(status(to, "GET /api/whoami", &[HERE, GUEST]), 200);
    for proxied in ["forwarded: for=10.0.0.9", "x-forwarded-for: 10.0.0.9", "x-real-ip: 10.0.0.9", "via: 1.1 proxy"] {
        assert_eq!(status(to, "GET /api/whoami", &[HERE, GUEST, proxied]), 401, "{proxied}");
    }
}

/// A page whose name was made to mean this machine got a session, and made an administrator.
#[test]
fn a_page_whose_name_was_rebound_gets_nothing() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), &RABBIT);
    let [http, management] = ["http", "rabbitmq-http"].map(|protocol| at(&server, protocol));
    let evil = ["host: evil.example:9600", "origin: http://evil.example:9600", "sec-fetch-site: same-origin"];
    let user = r#"{"password":"evil","tags":["administrator"]}"#;
    let login = r#"{"name":"guest","password":"guest"}"#;
    let (reported, answer) = ask(http, "POST /api/v1/session", &evil, login);
    assert!(reported == 403 && !answer.contains("set-cookie"), "{answer}");
    assert_eq!(ask(http, "PUT /api/v1/users/evil", &evil, user).0, 403);
    assert_eq!(status(http, "GET /api/v1/topics", &evil), 403);
    let by_guest = [&evil[..], &[GUEST]].concat();
    assert_eq!(
        ask(management, "PUT /api/users/evil", &by_guest, r#"{"password":"evil","tags":"administrator"}"#).0,
        401
    );
    assert!(!server.ok(&["user", "list"]).contains("evil"));
    for path in ["/healthz", "/readyz", "/metrics", "/metrics/objects", "/metrics/rabbitmq"] {
        assert_eq!(status(http, &format!("GET {path}"), &["host: broker.monitoring.example"]), 200, "{path}");
    }
    // Where a login is asked for nowhere, a name has to be known.
    let never = ["--set", "server.login=never", "--set", "server.advertise=http=broker.example:0"];
    let server = Server::start(&dir.join("never"), &never);
    for (host, expected) in [("evil.example", 403), ("broker.example:9600", 200), ("localhost:1", 200)] {
        assert_eq!(status(server.http, "GET /api/v1/topics", &[&format!("host: {host}")]), expected, "{host}");
    }
}

/// What came through a proxy on this machine could do everything without a login.
#[test]
fn what_a_proxy_passed_on_needs_a_login() {
    let dir = TempDir::new();
    let server = Server::start_with_admin(&dir.join("data"), &[]);
    let get = |headers: &[&str]| status(server.http, "GET /api/v1/topics", headers);
    for proxied in ["x-forwarded-for: 10.0.0.9", "forwarded: for=10.0.0.9", "x-forwarded-host: broker.example"] {
        assert_eq!(get(&[HERE, proxied]), 401, "{proxied}");
        assert_eq!(get(&["host: broker.example", proxied, ADMIN]), 200, "{proxied}");
        assert_eq!(status(server.http, "GET /metrics", &[HERE, proxied]), 401, "{proxied}");
        assert_eq!(status(server.http, "GET /healthz", &[HERE, proxied]), 200, "{proxied}");
    }
    assert_eq!(get(&[HERE]), 200);
}

/// Every directory had it, one with an administrator too.
#[test]
fn a_new_directory_has_it_unless_it_gets_an_administrator() {
    let dir = TempDir::new();
    let set = |policy: &'static str| [&RABBIT[..], &["--set", policy]].concat();
    let users = |server: &Server| server.ok(&["user", "list"]);
    let with_admin = Server::start_with_admin(&dir.join("admin"), &RABBIT);
    assert!(!users(&with_admin).contains("guest") && users(&with_admin).contains("admin"));
    assert!(!amqp(at(&with_admin, "amqp")));
    let wanted = Server::start_with_admin(&dir.join("wanted"), &set("server.guest=on"));
    assert!(users(&wanted).contains("guest") && amqp(at(&wanted, "amqp")));
    let off = Server::start(&dir.join("off"), &set("server.guest=off"));
    assert!(!users(&off).contains("guest"));
    // One that has it keeps it, says so, and lets it in no more once that is set.
    let data = dir.join("old");
    let old = Server::start(&data, &RABBIT);
    assert!(users(&old).contains("guest") && amqp(at(&old, "amqp")));
    assert!(!doctor(&old, &dir).contains("guest"));
    assert_eq!(old.stop(Signal::TERM), Some(0));
    let log = dir.join("log");
    let telling = |more: &[&str]| {
        let mut command = common::polylogue();
        let command = command.env("POLYLOGUE_ADMIN_PASSWORD", "admin");
        Server::start_command(command, &data, more, Stdio::from(File::create(&log).unwrap()))
    };
    let old = telling(&RABBIT);
    assert!(users(&old).contains("guest") && amqp(at(&old, "amqp")));
    let warning = "the user guest, whose password is public";
    assert!(std::fs::read_to_string(&log).unwrap().contains(warning), "it starts without a word");
    assert!(doctor(&old, &dir).contains(warning));
    assert_eq!(old.stop(Signal::TERM), Some(0));
    let old = telling(&set("server.guest=off"));
    assert!(users(&old).contains("guest") && !amqp(at(&old, "amqp")), "it is kept, and refused");
    assert_eq!(status(at(&old, "rabbitmq-http"), "GET /api/whoami", &[HERE, GUEST]), 401);
    assert!(!std::fs::read_to_string(&log).unwrap().contains(warning) && !doctor(&old, &dir).contains(warning));
}

/// What is found wrong with a server.
fn doctor(server: &Server, dir: &TempDir) -> String {
    let report = dir.join("report.json");
    let _ = std::fs::remove_file(&report);
    let reported = done(server.command(&["doctor", "--out"]).arg(&report));
    std::fs::read_to_string(&report).unwrap_or_else(|e| panic!("{e}: {reported:?}"));
    reported.out
}
