//! Unmodified client libraries against the real binary: the programs of tests/clients.
//!
//! All cases run with librdkafka (Python), and a few with each other client; all with all where
//! `POLYLOGUE_CLIENTS=all`. A client that cannot be had here is skipped, and said so; with `CI=true` it is a failure.
//! What a client does not offer is held against the list in tests/clients/README.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::Place;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

/// Exit code of run.sh: something is missing that cannot be installed here.
const MISSING: i32 = 3;
/// The longest that all cases of a client may take, installing included. Seconds.
const CLIENT_SECS: u64 = 1800;
/// What `make test` runs with a client: produce, consume, and a group.
const SMOKE: &[&str] = &["smoke", "group"];
/// Clients that speak AMQP; their cases are their own.
const AMQP: &[&str] = &[
    "pika",
    "py-amqp",
    "celery",
    "aio-pika",
    "java-amqp",
    "spring-amqp",
    "perf-test",
    "amqp091-go",
    "amqplib",
    "lapin",
];
/// Tools of operators, which speak RabbitMQ's management API; their cases are their own.
const TOOLS: &[&str] = &["rabbitmqadmin", "rabbitmqadmin-classic"];
/// Cases of a client of each protocol together.
const BOTH: &str = "mapping";
/// Clients that say who they are, to a broker that asks.
const LOGIN: &[&str] = &["login", "java-login", "go-login", "node-login", "java-amqp-login"];
/// The password of that broker's administrator.
const ADMIN_PASSWORD: &str = "admin-password";
/// One client at a time: several share what is installed for them, and some cases wait for seconds.
static ONE: Mutex<()> = Mutex::new(());

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The first cell, and the second, of the rows of a table of tests/clients/README.md.
fn table(heading: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("tests/clients/README.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.split('|').skip(1).map(|cell| cell.trim().to_owned());
        (cells.next().unwrap(), cells.next().unwrap())
    });
    rows.collect()
}

/// The names in lines that start like this, up to a colon where they have one.
fn names<'a>(said: &'a str, start: &str) -> BTreeSet<&'a str> {
    said.lines().filter_map(|line| line.strip_prefix(start)?.split(':').next()).collect()
}

/// Holds what a program said against the tables of the README: every case passed or is listed as not offered, and the
/// program says the same of it.
fn complete(client: &str, said: &str) {
    let (passed, left_out) = (names(said, "ok "), names(said, "not offered "));
    let listed = table("| client | case |");
    let listed: BTreeSet<&str> = listed.iter().filter(|(of, _)| of == client).map(|(_, case)| case.as_str()).collect();
    assert_eq!(left_out, listed, "what {client} does not offer, and the list in tests/clients/README.md");
    for (case, _) in table("| case | what") {
        let known = passed.contains(case.as_str()) != left_out.contains(case.as_str());
        assert!(known, "{client}: the case {case} is neither passed nor listed, or both:\n{said}");
    }
    for (case, clients) in table("| case of the consumer protocol |") {
        let has = clients.split(", ").any(|of| of == client);
        assert_eq!(
            has,
            passed.contains(case.as_str()),
            "{client}: the case {case}, and who has it by the list:\n{said}"
        );
    }
}

/// Whether all cases run with all clients.
fn all() -> bool {
    std::env::var("POLYLOGUE_CLIENTS").is_ok_and(|clients| clients == "all")
}

/// Runs these cases of a client, or all where there are none or all were asked for.
fn run(client: &str, cases: &[&str]) {
    let cases = if all() { &[] } else { cases };
    let Some(said) = program(client, cases) else { return };
    let passed = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= cases.len().max(1), "{client} ran {passed} cases:\n{said}");
    if cases.is_empty() {
        complete(client, &said);
    }
}

/// The same of a client that speaks AMQP, or a tool: what passed is what was asked for, or else all that the README lists.
fn run_amqp(client: &str, cases: &[&str]) {
    let cases = if all() { &[] } else { cases };
    let Some(said) = program(client, cases) else { return };
    let listed = table("| AMQP client | cases |");
    let of = listed.iter().find(|(of, _)| of == client).map_or("", |(_, of)| of.as_str());
    let wanted = if cases.is_empty() { of.split(", ").collect() } else { BTreeSet::from_iter(cases.iter().copied()) };
    assert_eq!(names(&said, "ok "), wanted, "what {client} passed, and the list in tests/clients/README.md");
}

/// Runs these cases of a client's program, or all where there are none, against a broker of its own. Gives what it said, or
/// nothing where it cannot be had here.
fn program(client: &str, cases: &[&str]) -> Option<String> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new(&format!("client-{client}"));
    let mut serve = place.serve(&[]);
    serve.args(["--listen", "amqp=127.0.0.1:0", "--listen", "rabbitmq-http=127.0.0.1:0"]);
    if LOGIN.contains(&client) {
        serve.args(["--set", "server.login=always"]).env("POLYLOGUE_ADMIN_PASSWORD", ADMIN_PASSWORD);
        create_certificates(place.root.path());
        let [_, certificate, key] = certificate_files(place.root.path());
        serve.args(["--listen", "kafka+tls=127.0.0.1:0", "--listen", "amqp+tls=127.0.0.1:0"]);
        serve.args(["--set", &format!("tls.certificate={certificate}"), "--set", &format!("tls.key={key}")]);
        let ca = robot(place.root.path());
        serve.args(["--set", "tls.client_auth=request", "--set", &format!("tls.client_ca={ca}")]);
        serve.args(["--set", "tls.principal_mapping_rules=RULE:CN=(.*)/$1/"]);
        serve.args(["--set", &format!("oauth.jwks={}", issuer(place.root.path()))]);
        serve.args(["--set", "oauth.issuer=testkit", "--set", "oauth.audience=polylogue"]);
        serve.args(["--set", "oauth.clock_skew_ms_max=0"]);
    }
    let server = place.start(serve).unwrap();
    let (kafka, amqp) = (server.kafka(), server.amqp().unwrap());
    let address = match client {
        BOTH => format!("{kafka},{amqp}"),
        _ if LOGIN.contains(&client) => {
            let [kafka_tls, amqp_tls] = ["kafka+tls", "amqp+tls"].map(|listener| server.listener(listener).unwrap());
            let [ca, ..] = certificate_files(place.root.path());
            let http = server.listener("http").unwrap();
            let [robot, tokens] = ["robot", "tokens.key"].map(|name| place.root.join(name).display().to_string());
            format!("{kafka},{},{kafka_tls},{amqp_tls},{ca},{http},{robot},{tokens}", server.management().unwrap())
        }
        _ if TOOLS.contains(&client) => format!("{amqp},{}", server.management().unwrap()),
        _ if AMQP.contains(&client) => amqp.to_string(),
        _ => kafka.to_string(),
    };
    let [output, errors] = ["output", "errors"].map(|name| place.root.join(name));
    let mut command = Command::new("bash");
    command.arg(root().join("tests/clients/run.sh")).arg(client).arg(address);
    command
        .args(cases)
        .stdin(Stdio::null())
        .stdout(File::create(&output).unwrap())
        .stderr(File::create(&errors).unwrap());
    let status = wait(&mut command, client);
    // Not all that a package manager prints is UTF-8.
    let [said, errors] =
        [output, errors].map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
    match status.code() {
        Some(0 | MISSING) => {}
        _ => panic!("{client} ended with {status}:\n{said}\n{errors}\nthe server said:\n{}", server.said()),
    }
    server.terminate().unwrap();
    if status.code() == Some(MISSING) {
        polylogue_testkit::skip(&root(), &format!("the cases of the {client} client"), &errors);
        return None;
    }
    Some(said)
}

/// The CA that `polylogue tls create` makes, and the broker's certificate and key, as files.
fn certificate_files(root: &Path) -> [String; 3] {
    ["ca.crt", "server.crt", "server.key"].map(|name| root.join("tls").join(name).display().to_string())
}

/// Creates them as an operator does: each client has to accept them.
fn create_certificates(root: &Path) {
    let dir = root.join("tls").display().to_string();
    let made = polylogue_testkit::run(["tls", "create", &dir, "--name", "localhost", "--name", "127.0.0.1"]).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// The certificate of the client `robot`, with its key, as files, and the file with who signed it.
fn robot(root: &Path) -> String {
    let mut signs = rcgen::CertificateParams::default();
    signs.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(signs, rcgen::KeyPair::generate().unwrap()).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "robot");
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let ca = root.join("clients.pem");
    std::fs::write(root.join("robot.pem"), certificate.pem()).unwrap();
    std::fs::write(root.join("robot.key"), key.serialize_pem()).unwrap();
    std::fs::write(&ca, authority.pem()).unwrap();
    ca.display().to_string()
}

/// The key with which tokens are signed, and the file with what others know of it.
fn issuer(root: &Path) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    std::fs::write(root.join("tokens.key"), key.serialize_pem()).unwrap();
    // A sequence of two numbers (DER): 2048 bits behind a zero, and three bytes.
    let public = rcgen::PublicKeyData::der_bytes(&key);
    let (n, e) = (&public[8..8 + 257], &public[public.len() - 3..]);
    let [n, e] = [n, e].map(|number| URL_SAFE_NO_PAD.encode(number));
    let keys = root.join("keys.json");
    std::fs::write(&keys, format!(r#"{{"keys":[{{"kty":"RSA","kid":"1","use":"sig","n":"{n}","e":"{e}"}}]}}"#))
        .unwrap();
    keys.display().to_string()
}

fn wait(command: &mut Command, client: &str) -> ExitStatus {
    let mut child = command.spawn().unwrap();
    let ended = polylogue_testkit::wait_until(client, CLIENT_SECS, || child.try_wait().map_err(|e| e.to_string()));
    ended.unwrap_or_else(|e| {
        let _ = child.kill();
        panic!("{e}")
    })
}

#[test]
fn python_librdkafka() {
    run("python", &[]);
}

#[test]
fn python_aiokafka() {
    run("aiokafka", SMOKE);
}

#[test]
fn python_kafka_python() {
    run("kafka-python", SMOKE);
}

/// All cases of AMQP: they take seconds.
#[test]
fn python_pika() {
    run_amqp("pika", &[]);
}

#[test]
fn python_py_amqp() {
    run_amqp("py-amqp", &["smoke", "confirms", "returns", "logins"]);
}

#[test]
fn python_celery() {
    run_amqp("celery", &["smoke", "retry", "eta", "chords"]);
}

#[test]
fn python_aio_pika() {
    run_amqp("aio-pika", &["smoke", "topics", "calls", "comes_back"]);
}

#[test]
fn java_amqp_client() {
    run_amqp("java-amqp", &["smoke", "confirms", "exclusive", "recovery"]);
}

#[test]
fn java_spring_amqp() {
    run_amqp("spring-amqp", &["smoke", "replies", "simple_container", "retries"]);
}

#[test]
fn java_perf_test() {
    run_amqp("perf-test", &["smoke"]);
}

#[test]
fn go_amqp091() {
    run_amqp("amqp091-go", &[]);
}

#[test]
fn node_amqplib() {
    run_amqp("amqplib", &[]);
}

#[test]
fn rust_lapin() {
    run_amqp("lapin", &[]);
}

#[test]
fn rabbitmqadmin() {
    run_amqp("rabbitmqadmin", &["smoke"]);
}

#[test]
fn rabbitmqadmin_classic() {
    run_amqp("rabbitmqadmin-classic", &["smoke"]);
}

#[test]
fn python_mapping() {
    let Some(said) = program(BOTH, &[]) else { return };
    let listed = table("| mapping case |");
    let listed: BTreeSet<&str> = listed.iter().map(|(case, _)| case.as_str()).collect();
    assert_eq!(names(&said, "ok "), listed, "what {BOTH} passed, and the list in tests/clients/README.md");
}

/// All of them: they take seconds.
#[test]
fn python_logins() {
    logins("login");
}

#[test]
fn java_logins() {
    logins("java-login");
}

#[test]
fn go_logins() {
    logins("go-login");
}

#[test]
fn node_logins() {
    logins("node-login");
}

#[test]
fn java_amqp_logins() {
    logins("java-amqp-login");
}

fn logins(client: &str) {
    let Some(said) = program(client, &[]) else { return };
    let listed = table("| login client | cases |");
    let of = listed.iter().find(|(of, _)| of == client).map_or("", |(_, of)| of.as_str());
    assert_eq!(
        names(&said, "ok "),
        of.split(", ").collect(),
        "what {client} passed, and the list in tests/clients/README.md"
    );
}

#[test]
fn java_kafka_clients() {
    run("java", SMOKE);
}

#[test]
fn go_franz() {
    run("go", SMOKE);
}

#[test]
fn go_sarama() {
    run("sarama", SMOKE);
}

#[test]
fn go_kafka_go() {
    run("kafka-go", SMOKE);
}

#[test]
fn node_kafkajs() {
    run("kafkajs", SMOKE);
}

#[test]
fn node_platformatic() {
    run("platformatic", SMOKE);
}

#[test]
fn rust_rdkafka() {
    run("rust", SMOKE);
}

/// Kafka's own tools and Kafka Streams, which take minutes: only where all was asked for.
#[test]
fn kafka_tools() {
    if all() {
        program("tools", &[]);
    }
}
