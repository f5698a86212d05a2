//! Where a login is asked for, and who is let in: the real binary over its listeners.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir, done, polylogue};
use polylogue_kafka_codec::frame::{decode_response_header, encode_request};
use polylogue_kafka_codec::metadata::MetadataRequest;
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;
use polylogue_kafka_codec::{Message as _, Request};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

const ALWAYS: &[&str] = &["--set", "server.login=always"];

/// How long something is waited for that does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The status of an answer of the http listener, and its body.
fn ask(server: &Server, path: &str, login: Option<(&str, &str)>) -> (u16, String) {
    let header = login.map_or(String::new(), |(name, password)| {
        format!("authorization: Basic {}\r\n", base64_of(&format!("{name}:{password}")))
    });
    let mut stream = TcpStream::connect(server.http).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
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

/// A connection of Kafka's that has logged in and asked for nothing.
fn logged_in(server: &Server, user: &str, password: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.kafka).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".into() };
    assert_eq!(kafka(&mut stream, 1, &handshake).error_code, 0);
    let login = SaslAuthenticateRequest { auth_bytes: format!("\0{user}\0{password}").into() };
    assert_eq!(kafka(&mut stream, 2, &login).error_code, 0);
    stream
}

fn is_served(stream: &mut TcpStream) -> bool {
    !kafka(stream, 12, &MetadataRequest::default()).brokers.is_empty()
}

/// A command of this server, by a user.
fn by(server: &Server, user: &str, password: &str, args: &[&str]) -> common::Done {
    done(server.command(args).env("POLYLOGUE_USER", user).env("POLYLOGUE_PASSWORD", password))
}

#[test]
fn the_first_administrator_has_a_password_that_is_shown_once() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), ALWAYS);
    let line = server.lines.iter().find(|line| line.starts_with("made the user admin")).unwrap();
    let password = line.split("the password ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(password.len(), 24, "{line}");
    assert_eq!(ask(&server, "/api/v1/topics", Some(("admin", &password))).0, 200);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let server = Server::start(&dir.join("data"), ALWAYS);
    assert!(!server.lines.iter().any(|line| line.contains("password")), "{:?}", server.lines);
    assert_eq!(ask(&server, "/api/v1/topics", Some(("admin", &password))).0, 200);
}

#[test]
fn a_password_that_was_given_is_not_shown_and_counts_where_there_is_no_administrator() {
    let dir = TempDir::new();
    for (given, works) in [("first", "first"), ("second", "first")] {
        let mut command = polylogue();
        command.args(["serve", "--json", "--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0", "--data"]);
        command.arg(dir.join("data")).args(ALWAYS).env("POLYLOGUE_ADMIN_PASSWORD", given);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut http = None;
        for line in std::io::BufRead::lines(std::io::BufReader::new(child.stdout.as_mut().unwrap())) {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_eq!(line.get("administrator"), None);
            let bound = line["listening"]["bound"].as_str();
            http = bound.filter(|_| line["listening"]["protocol"] == "http").map(str::to_owned).or(http);
            if line["ready"] == true {
                break;
            }
        }
        let http = format!("http://{}", http.unwrap());
        let list = |password| {
            let mut command = polylogue();
            command.args(["topic", "list", "--server", &http, "--user", "admin"]);
            done(command.env("POLYLOGUE_PASSWORD", password))
        };
        let (right, wrong) = (list(works), list("third"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(right.code, Some(0), "{given}: {}", right.err);
        assert!(wrong.code == Some(1) && wrong.err.contains("the name or the password is wrong"), "{}", wrong.err);
    }
}

/// After some wrong passwords each right one waited for its turn, two seconds a request, since no request of the API forgot them.
#[test]
fn a_right_password_forgets_the_wrong_ones_before_it() {
    let dir = TempDir::new();
    let more = ["--set", "server.login=always", "--listen", "rabbitmq-http=127.0.0.1:0"];
    let server = Server::start_with_admin(&dir.join("data"), &more);
    let remembered = || {
        let (status, text) = ask(&server, "/metrics", Some(("admin", "admin")));
        assert_eq!(status, 200);
        text.lines().find_map(|line| line.strip_prefix("polylogue_login_failures_remembered ")).unwrap().to_owned()
    };
    assert_eq!(ask(&server, "/metrics", Some(("admin", "wrong"))).0, 401);
    assert_eq!(remembered(), "0", "its own right password came before the answer");
}

#[test]
fn without_a_login_only_whether_it_lives_is_told() {
    let dir = TempDir::new();
    let server = Server::start_with_admin(&dir.join("data"), ALWAYS);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&server, path, None).0, 200, "{path}");
    }
    let metrics = ["", "/objects", "/rabbitmq", "/rabbitmq/per-object", "/rabbitmq/detailed"];
    let metrics = metrics.map(|path| format!("/metrics{path}"));
    let api = ["status", "config", "topics", "groups", "vhosts"].map(|path| format!("/api/v1/{path}"));
    for path in metrics.iter().chain(&api) {
        let (status, answer) = ask(&server, path, None);
        assert!(status == 401 && answer.contains("www-authenticate: Basic realm=\"polylogue\""), "{path}: {answer}");
        assert_eq!(ask(&server, path, Some(("admin", "wrong"))).0, 401, "{path}");
        assert_eq!(ask(&server, path, Some(("guest", "guest"))).0, 401, "{path}");
        assert_eq!(ask(&server, path, Some(("admin", "admin"))).0, 200, "{path}");
    }
    let refused = done(&mut server.command(&["topic", "create", "t"]));
    assert!(refused.code == Some(1) && refused.err.contains("login required"), "{}", refused.err);
    // It said nothing of how a command does that.
    assert!(refused.err.contains("give --user NAME"), "{}", refused.err);
    let refused = done(&mut server.command(&["consume", "t"]));
    assert!(refused.code == Some(1) && refused.err.contains("--user NAME"), "{}", refused.err);
}

#[test]
fn a_user_without_the_tag_is_no_administrator_and_may_do_what_it_was_allowed() {
    let dir = TempDir::new();
    let more = [ALWAYS, &["--listen", "rabbitmq-http=127.0.0.1:0"]].concat();
    let server = Server::start_with_admin(&dir.join("data"), &more);
    let prefix = "rabbitmq-http listening on ";
    let management = server.lines.iter().find_map(|line| line.strip_prefix(prefix)).unwrap();
    let put = ureq_put(management, "ann", r#"{"password":"secret","tags":""}"#);
    assert_eq!(put, 201);
    let (status, answer) = ask(&server, "/api/v1/topics", Some(("ann", "secret")));
    assert!(status == 403 && answer.contains("ann is not an administrator"), "{answer}");
    assert_eq!(by(&server, "admin", "admin", &["topic", "create", "t"]).code, Some(0));
    let produce = || {
        let mut command = server.command(&["produce", "t"]);
        common::done_with(command.env("POLYLOGUE_USER", "ann").env("POLYLOGUE_PASSWORD", "secret"), b"hello\n")
    };
    let refused = produce();
    assert!(refused.code == Some(1) && refused.err.contains("Topic authorization failed"), "{}", refused.err);
    let add = ["acl", "add", "ann", "read,write", "--topic", "t"];
    let added = by(&server, "admin", "admin", &add);
    assert!(added.code == Some(0) && added.out.contains("added 2 ACLs"), "{added:?}");
    let listed = by(&server, "admin", "admin", &["acl", "list", "--topic", "t"]);
    assert!(listed.out.contains("write") && listed.out.contains("ann"), "{listed:?}");
    let produced = produce();
    assert_eq!(produced.code, Some(0), "{}", produced.err);
    let consumed = by(&server, "ann", "secret", &["consume", "t", "--from", "beginning", "-n", "1"]);
    assert!(consumed.code == Some(0) && consumed.out.contains("hello"), "{consumed:?}");
    let delete = ["acl", "delete", "ann", "read,write", "--topic", "t"];
    let deleted = by(&server, "admin", "admin", &delete);
    assert!(deleted.code == Some(0) && deleted.out.contains("deleted 2 ACLs"), "{deleted:?}");
    assert_eq!(produce().code, Some(1));
    let again = by(&server, "admin", "admin", &delete);
    assert!(again.code == Some(0) && again.out.contains("no matching rule"), "{again:?}");
    let nothing = by(&server, "admin", "admin", &["acl", "add", "ann", "read"]);
    assert!(nothing.code == Some(2) && nothing.err.contains("name a resource"), "{nothing:?}");
    let unknown = by(&server, "admin", "admin", &["acl", "add", "ann", "fly", "--topic", "t"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("unknown operation fly"), "{unknown:?}");
    let refused = by(&server, "ann", "wrong", &["consume", "t"]);
    assert!(refused.code == Some(1) && refused.err.contains("Invalid username or password"), "{}", refused.err);
    let metrics = ask(&server, "/metrics", Some(("admin", "admin"))).1;
    let count = |outcome: &str| {
        let line = format!("polylogue_logins_total{{mechanism=\"PLAIN\",outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|text| text.strip_prefix(&line)).unwrap().parse::<u64>().unwrap()
    };
    assert!(count("succeeded") >= 2 && count("failed") >= 1, "{metrics}");
}

/// Without RabbitMQ's API or Kafka's tools.
#[test]
fn users_are_managed_by_commands() {
    let dir = TempDir::new();
    let server = Server::start_with_admin(&dir.join("data"), ALWAYS);
    let set = |args: &[&str], line: &str| {
        let mut command = server.command(&[&["user", "set", "ann"][..], args].concat());
        let command = command.env("POLYLOGUE_USER", "admin").env("POLYLOGUE_PASSWORD", "admin");
        common::done_with(command, line.as_bytes())
    };
    let made = set(&["--password"], "secret\n");
    assert!(made.code == Some(0) && made.out.contains("set user ann"), "{made:?}");
    assert_eq!(ask(&server, "/api/v1/topics", Some(("ann", "secret"))).0, 403);
    assert_eq!(set(&["--tag", "administrator"], "").code, Some(0));
    assert_eq!(ask(&server, "/api/v1/topics", Some(("ann", "secret"))).0, 200, "the password stays");
    let listed = by(&server, "ann", "secret", &["user", "list"]);
    assert!(
        listed.out.contains("administrator") && listed.out.contains("PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        "{listed:?}"
    );
    assert_eq!(set(&["--password"], "other").code, Some(0));
    assert_eq!(ask(&server, "/api/v1/topics", Some(("ann", "secret"))).0, 401);
    assert_eq!(ask(&server, "/api/v1/topics", Some(("ann", "other"))).0, 200, "the tags stay");
    assert_eq!(set(&["--no-tags"], "").code, Some(0));
    let mut connections =
        ["ann", "admin"].map(|user| logged_in(&server, user, if user == "ann" { "other" } else { user }));
    assert_eq!(ask(&server, "/api/v1/topics", Some(("ann", "other"))).0, 403);
    let empty = set(&["--password"], "\n");
    assert!(empty.code == Some(2) && empty.err.contains("the password is empty"), "{empty:?}");
    let delete = ["user", "delete", "ann"];
    assert_eq!(by(&server, "admin", "admin", &delete).code, Some(0));
    // A connection that had asked for nothing yet stayed open.
    assert_eq!(connections[0].read(&mut [0]).unwrap(), 0, "closed");
    assert!(is_served(&mut connections[1]));
    assert_eq!(ask(&server, "/api/v1/topics", Some(("ann", "other"))).0, 401);
    let again = by(&server, "admin", "admin", &delete);
    assert!(again.code == Some(1) && again.err.contains("there is no user ann"), "{again:?}");
}

#[test]
fn quotas_are_managed_by_commands() {
    let dir = TempDir::new();
    let server = Server::start_with_admin(&dir.join("data"), ALWAYS);
    let quota = |args: &[&str]| by(&server, "admin", "admin", &[&["quota"][..], args].concat());
    let set = quota(&["set", "--of", "ann", "--client-id", "app", "--produce", "1048576", "--threads", "12.5"]);
    assert!(set.code == Some(0) && set.out.contains("set the quota"), "{set:?}");
    assert_eq!(quota(&["set", "--other-users", "--fetch", "1000"]).code, Some(0));
    let listed = quota(&["list"]).out;
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .skip(1)
        .map(|line| line.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect())
        .collect();
    assert_eq!(
        rows,
        [vec!["others", "any", "-", "1000 B/s", "-"], vec!["ann", "app", "1.0 MiB/s", "-", "12.5 %"],],
        "{listed}"
    );
    for (args, code, text) in [
        (&["set", "--produce", "1"][..], 2, "name the clients"),
        (&["set", "--of", "ann"], 1, "at least one limit is required"),
        (&["set", "--of", "ann", "--produce", "0"], 1, "must be greater than 0"),
        (&["delete", "--of", "bob"], 1, "unknown quota"),
    ] {
        let reported = quota(args);
        assert!(reported.code == Some(code) && reported.err.contains(text), "{args:?}: {reported:?}");
    }
    // What is not given is not limited any more.
    assert_eq!(quota(&["set", "--of", "ann", "--client-id", "app", "--fetch", "5"]).code, Some(0));
    let shown = ask(&server, "/api/v1/quotas", Some(("admin", "admin"))).1;
    assert!(shown.contains(r#""fetch_bytes_per_second":5"#) && !shown.contains("produce"), "{shown}");
    assert_eq!(quota(&["delete", "--of", "ann", "--client-id", "app"]).code, Some(0));
    assert_eq!(quota(&["delete", "--other-users"]).code, Some(0));
    assert!(quota(&["list"]).out.contains("no quotas"));
}

fn ureq_put(management: &str, user: &str, body: &str) -> u16 {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.put(format!("http://{management}/api/users/{user}"));
    let request = request.header("authorization", format!("Basic {}", base64_of("admin:admin")));
    request.header("content-type", "application/json").send(body).unwrap().status().as_u16()
}

/// Unconfigured, on a loopback address, nothing changes.
#[test]
fn on_a_loopback_address_nobody_is_asked() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), &[]);
    assert!(!server.lines.iter().any(|line| line.contains("password")), "{:?}", server.lines);
    assert_eq!(ask(&server, "/api/v1/topics", None).0, 200);
    server.ok(&["topic", "create", "t"]);
    // A client that logs in is admitted as well.
    let listed = by(&server, "anybody", "x", &["topic", "list"]);
    assert!(listed.code == Some(0) && listed.out.contains('t'), "{listed:?}");
    let mut command = server.command(&["produce", "t"]);
    assert_eq!(common::done_with(command.env("POLYLOGUE_USER", "x"), b"hello\n").code, Some(0));
}

/// What a command of `admin` writes to a terminal at which `keys` are written once it asks, how it ended, and whether the terminal shows
/// again what is written.
fn at_a_terminal(server: &Server, keys: &[u8]) -> (ExitStatus, String, bool) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    // Held open, so that the terminal outlives the command.
    let held = open();
    let mut command = server.command(&["topic", "list"]);
    command.env("POLYLOGUE_USER", "admin").env_remove("POLYLOGUE_PASSWORD");
    let mut child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
    let mut terminal = File::from(terminal);
    let mut shown = Vec::new();
    while !shown.ends_with(b"password of admin: ") {
        let mut byte = [0];
        terminal.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
    terminal.write_all(keys).unwrap();
    let status = child.wait().unwrap();
    let echoes = tcgetattr(&held).unwrap().local_modes.contains(LocalModes::ECHO);
    // The end of what is shown can be seen only by what comes after it.
    (&held).write_all(b"\0").unwrap();
    let mut rest = Vec::new();
    while !rest.ends_with(b"\0") {
        let mut some = [0; 512];
        let read = terminal.read(&mut some).unwrap();
        rest.extend_from_slice(&some[..read]);
    }
    (status, String::from_utf8(rest).unwrap(), echoes)
}

/// An interrupt at the question left a terminal that showed nothing of what was written, and what was written in the moment between the question
/// and the silence was thrown away.
#[test]
fn a_password_is_asked_for_at_a_terminal() {
    let dir = TempDir::new();
    let server = Server::start_with_admin(&dir.join("data"), ALWAYS);
    let (status, shown, echoes) = at_a_terminal(&server, b"admxx\x7f\x7fin\n");
    assert!(status.success() && shown.contains("no topics") && !shown.contains("adm") && echoes, "{status} {shown}");
    let (status, shown, echoes) = at_a_terminal(&server, b"sec\x03");
    assert!(status.signal() == Some(2) && !shown.contains("sec") && echoes, "{status} {shown}");
    let (status, shown, echoes) = at_a_terminal(&server, b"wrong\n");
    let is_wrong = shown.contains("the name or the password is wrong");
    assert!(status.code() == Some(1) && is_wrong && echoes, "{status} {shown}");
}
