//! How commands find their server and log in: profiles, addresses that are asked for, passwords.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::tls::Broker;
use common::{Done, Server, TempDir, done, done_with, polylogue};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A user with a configuration directory.
struct User {
    dir: PathBuf,
}

impl User {
    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Done {
        let mut command = polylogue();
        command.env("XDG_CONFIG_HOME", &self.dir).envs(variables.iter().copied());
        done(command.args(args))
    }

    fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args, &[]);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        done.out
    }

    /// Runs a command that must fail with this in its error.
    fn refused(&self, args: &[&str], code: i32, text: &str) {
        let done = self.run(args, &[]);
        assert!(done.code == Some(code) && done.err.contains(text), "{args:?}: {:?} {}", done.code, done.err);
    }
}

fn secret(path: &Path, content: &str, mode: u32) -> String {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

#[test]
fn profiles_from_creation_to_deletion() {
    let dir = TempDir::new();
    let user = User { dir: dir.join("config") };
    assert_eq!(user.ok(&["profile", "list"]), "no profiles\n");
    let created = user.ok(&["profile", "create", "prod", "--server", "https://b.example:9600", "--user", "ann"]);
    let file = dir.join("config/polylogue/profiles/prod.toml");
    assert!(created.starts_with(&format!("created profile prod ({})\n", file.display())), "{created}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    user.ok(&["profile", "create", "dev", "--bootstrap", "127.0.0.1:9092", "--use"]);
    let list = "PROFILE  SERVER                  BOOTSTRAP       USER  IN USE\n\
                dev      -                       127.0.0.1:9092  -     yes\n\
                prod     https://b.example:9600  -               ann\n";
    assert_eq!(user.ok(&["profile", "list"]), list);
    assert_eq!(
        user.ok(&["profile", "show"]),
        "dev (in use)\n  server: asked of the kafka listener\n  bootstrap: 127.0.0.1:9092\n"
    );
    let shown: Value = serde_json::from_str(&user.ok(&["profile", "show", "prod", "--json"])).unwrap();
    assert_eq!((&shown["in_use"], &shown["profile"]["user"]), (&false.into(), &"ann".into()));
    assert_eq!(user.ok(&["profile", "use", "prod"]), "commands use profile prod from now on\n");
    assert_eq!(user.ok(&["profile", "delete", "prod"]), "deleted profile prod\n");
    user.refused(&["profile", "show"], 2, "no profile is in use");
    for (args, text) in [
        (&["profile", "create", "x"][..], "--server <URL>"),
        (&["profile", "create", "../x", "--server", "b"], "expected letters"),
        (&["profile", "create", "dev", "--server", "b"], "pass --replace"),
        (&["profile", "create", "x", "--server", "b", "--password-file", "f"], "--user <NAME>"),
        (&["profile", "show", "nope"], "there is no profile nope (existing: dev)"),
        (&["profile", "use", "nope"], "`polylogue profile create nope` creates it"),
        (&["profile", "delete", "nope"], "there is no profile nope"),
    ] {
        user.refused(args, 2, text);
    }
}

/// One address is enough: the server is asked for that of its kafka listener.
#[test]
fn a_profile_with_one_address_serves_every_command() {
    let dir = TempDir::new();
    let user = User { dir: dir.join("config") };
    let server = Server::start_with_admin(&dir.join("data"), &["--set", "server.login=always"]);
    let file = secret(&dir.join("password"), "admin\n", 0o600);
    let http = format!("http://{}", server.http);
    user.ok(&["profile", "create", "p", "--server", &http, "--user", "admin", "--password-file", &file]);
    let stored = std::fs::read_to_string(dir.join("config/polylogue/profiles/p.toml")).unwrap();
    assert!(!stored.contains("\"admin\\n") && !stored.contains("password ="), "{stored}");
    assert_eq!(user.ok(&["topic", "create", "t", "--profile", "p"]), "created topic t with 1 partition\n");
    assert_eq!(user.run(&["consume", "t", "--no-follow"], &[("POLYLOGUE_PROFILE", "p")]).code, Some(0));
    // Without a profile in use the default addresses hold, where no broker of this test is.
    user.ok(&["profile", "use", "p"]);
    let mut produce = polylogue();
    let written = done_with(produce.env("XDG_CONFIG_HOME", &user.dir).args(["produce", "t"]), b"hello\n");
    assert_eq!((written.code, written.out.as_str()), (Some(0), "1 message written to t\n"), "{}", written.err);
    assert_eq!(user.ok(&["consume", "t", "--from", "0", "--no-follow"]), "hello\n");
    // Its password is not for a server whose address is given.
    let other = user.run(&["topic", "list", "--server", &http], &[]);
    assert!(other.code == Some(1) && other.err.contains("login required"), "{}", other.err);
    assert_eq!(user.run(&["topic", "list", "--server", &http, "--profile", "p"], &[]).code, Some(0));
    // Of a named profile nothing is replaced by variables, which may be about another server.
    let elsewhere = [("POLYLOGUE_SERVER", "127.0.0.1:1"), ("POLYLOGUE_BOOTSTRAP", "127.0.0.1:1")];
    for args in [&["topic", "list"][..], &["consume", "t", "--no-follow"]] {
        let variables = [&elsewhere[..], &[("POLYLOGUE_PROFILE", "p"), ("POLYLOGUE_PASSWORD", "another")]].concat();
        let done = user.run(args, &variables);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        let done = user.run(args, &elsewhere);
        assert!(done.code == Some(1) && done.err.contains("cannot reach"), "the one in use: {args:?}: {}", done.err);
    }
    user.ok(&["profile", "create", "w", "--server", &http, "--user", "admin"]);
    let wrong = user.run(&["topic", "list", "--profile", "w"], &[("POLYLOGUE_PASSWORD", "wrong")]);
    assert!(wrong.code == Some(1) && wrong.err.contains("password is wrong"), "{}", wrong.err);
    let bad = user.run(&["topic", "list"], &[("POLYLOGUE_BOOTSTRAP", "nowhere")]);
    assert!(bad.code == Some(2) && bad.err.contains("POLYLOGUE_BOOTSTRAP: expected HOST:PORT"), "{}", bad.err);
    secret(&dir.join("password"), "admin\n", 0o644);
    user.refused(&["topic", "list"], 2, "chmod 600");
    user.refused(
        &["profile", "create", "q", "--server", &http, "--user", "a", "--password-file", &file],
        2,
        "chmod 600",
    );
    user.refused(&["topic", "list", "--profile", "nope"], 2, "there is no profile nope");
}

/// Kafka's protocol does not name the http listener; it is looked for at its default port only.
#[test]
fn an_http_listener_that_is_not_found_is_asked_for() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    let asked = done(polylogue().args(["topic", "list"]).env("POLYLOGUE_BOOTSTRAP", server.kafka.to_string()));
    assert_eq!(asked.code, Some(1), "{}", asked.out);
    assert!(asked.err.contains("is not at 127.0.0.1:9600") && asked.err.contains("--server URL"), "{}", asked.err);
    let read = |name: &str| {
        let mut command = polylogue();
        done(command.args(["consume", "t", "--no-follow"]).env("POLYLOGUE_SERVER", format!("http://{name}")))
    };
    server.ok(&["topic", "create", "t"]);
    assert_eq!(read(&server.http.to_string()).code, Some(0), "the kafka listener is found");
}

/// With TLS the listener with TLS is found.
#[test]
fn the_kafka_listener_with_tls_is_found_over_https() {
    let dir = TempDir::new();
    let tls = dir.join("tls");
    assert_eq!(done(polylogue().args(["tls", "create"]).arg(&tls)).code, Some(0));
    let signed = common::tls::Signed { certificate: tls.join("server.crt"), key: tls.join("server.key") };
    let broker = Broker::start(&dir, &signed, &[]);
    broker.server.ok(&["topic", "create", "t"]);
    let user = User { dir: dir.join("config") };
    let (https, ca) = (format!("https://localhost:{}", broker.at("http+tls").port()), tls.join("ca.crt"));
    user.ok(&["profile", "create", "s", "--server", &https, "--ca", &ca.display().to_string(), "--use"]);
    assert!(user.ok(&["topic", "list"]).contains("t  "));
    assert_eq!(user.ok(&["consume", "t", "--no-follow"]), "");
    assert!(broker.server.metric("polylogue_tls_handshakes_total{outcome=\"done\"}") >= 3, "both over TLS");
}

/// They were one error.
#[test]
fn a_wrong_password_is_told_from_a_missing_one() {
    let dir = TempDir::new();
    let server = Server::start_with_admin(&dir.0, &["--set", "server.login=always"]);
    let commands = [&["topic", "list"][..], &["consume", "t", "--no-follow"]];
    let errors = |variables: &[(&str, &str)]| {
        commands.map(|args| {
            let done = done(server.command(args).envs(variables.iter().copied()));
            assert_eq!(done.code, Some(1), "{}", done.out);
            done.err
        })
    };
    for error in errors(&[]) {
        assert!(error.contains("requires a login") || error.contains("login required"), "{error}");
    }
    for error in errors(&[("POLYLOGUE_USER", "admin")]) {
        assert!(error.contains("no password was given for the user admin: give"), "{error}");
    }
    let wrong = errors(&[("POLYLOGUE_USER", "admin"), ("POLYLOGUE_PASSWORD", "wrong")]);
    assert!(wrong[0].contains("the name or the password is wrong"), "{}", wrong[0]);
    assert!(wrong[1].contains("logging in as admin: Authentication failed"), "{}", wrong[1]);
    let mut json = server.command(&["topic", "list", "--json"]);
    let refused = done(json.env("POLYLOGUE_USER", "admin").env("POLYLOGUE_PASSWORD", "wrong"));
    let error: Value = serde_json::from_str(&refused.err).unwrap();
    assert_eq!(error["error"]["code"], "wrong_login");
}
