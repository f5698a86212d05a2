//! `polylogue tls create`, and which certificates of servers the commands trust.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::tls::{Broker, Signed};
use common::{Done, TempDir, done, polylogue};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

fn create(dir: &Path, args: &[&str]) -> Done {
    done(polylogue().args(["tls", "create"]).arg(dir).args(args))
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

/// What openssl says. Where it is not installed, `None`; with CI=true that is a failure.
fn openssl(dir: &Path, args: &[&str]) -> Option<String> {
    match Command::new("openssl").args(args).current_dir(dir).output() {
        Ok(output) => Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()),
        Err(e) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("openssl: {e}"),
        Err(_) => None,
    }
}

#[test]
fn a_first_certificate_is_created_and_renewed() {
    let dir = TempDir::new();
    let tls = dir.join("tls");
    let made =
        create(&tls, &["--name", "localhost", "--name", "127.0.0.1", "--name", "broker.example", "--days", "30"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(
        made.out
            .starts_with("created a CA, and a certificate for localhost, 127.0.0.1, broker.example, valid until 20")
    );
    assert!(made.out.contains("polylogue serve --listen kafka+tls="), "{}", made.out);
    for (file, mode) in [("ca.crt", 0o644), ("ca.key", 0o600), ("server.crt", 0o644), ("server.key", 0o600)] {
        assert_eq!(std::fs::metadata(tls.join(file)).unwrap().permissions().mode() & 0o777, mode, "{file}");
    }
    let again = create(&tls, &[]);
    assert!(again.code == Some(2) && again.err.contains("exists already: pass --renew"), "{}", again.err);
    let before = ["ca.crt", "ca.key", "server.key", "server.crt"].map(|file| read(&tls, file));
    let renewed = create(&tls, &["--renew", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&renewed.out).unwrap();
    assert_eq!(shown["names"], serde_json::json!(["localhost", "127.0.0.1", "broker.example"]), "those it had");
    assert_eq!(shown["certificate"], tls.join("server.crt").display().to_string());
    let after = ["ca.crt", "ca.key", "server.key", "server.crt"].map(|file| read(&tls, file));
    assert_eq!((&before[..3], before[3] == after[3]), (&after[..3], false), "the certificate is another");
    for (args, code, text) in [
        (&["--days", "0"][..], 2, "0 is not in 1..=3650"),
        (&["--name", "localhost:9092"], 2, "without scheme and port"),
        (&["--renew"], 1, "without --renew all files are created"),
    ] {
        let refused = create(&dir.join("other"), args);
        assert!(refused.code == Some(code) && refused.err.contains(text), "{args:?}: {}", refused.err);
    }
}

/// Java, Go and rustls are strict in different ways; `-x509_strict` is the sum of them.
#[test]
fn openssl_verifies_what_was_created() {
    let dir = TempDir::new();
    assert_eq!(create(&dir.0, &["--name", "localhost", "--name", "::1", "--name", "*.broker.example"]).code, Some(0));
    for renewed in [false, true] {
        if renewed {
            assert_eq!(create(&dir.0, &["--renew"]).code, Some(0));
        }
        let strict = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.crt"];
        for (option, name, is_right) in [
            ("-verify_hostname", "localhost", true),
            ("-verify_hostname", "a.broker.example", true),
            ("-verify_ip", "::1", true),
            ("-verify_hostname", "elsewhere.example", false),
            ("-verify_ip", "10.0.0.1", false),
        ] {
            let Some(said) = openssl(&dir.0, &[&strict[..], &[option, name, "server.crt"]].concat()) else { return };
            assert_eq!(said.contains("server.crt: OK"), is_right, "{name}: {said}");
        }
        let Some(text) = openssl(&dir.0, &["x509", "-in", "server.crt", "-noout", "-text"]) else { return };
        for wanted in ["CA:FALSE", "Digital Signature", "TLS Web Server Authentication", "DNS:localhost"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let Some(text) = openssl(&dir.0, &["x509", "-in", "ca.crt", "-noout", "-text"]) else { return };
        assert!(text.contains("CA:TRUE, pathlen:0") && text.contains("Certificate Sign"), "{text}");
    }
}

/// Commands of a broker with listeners over TLS, by the name `localhost` and with these trusted certificates.
fn commands(broker: &Broker, host: &str, ca: &Path) -> [Done; 2] {
    let http = format!("https://{host}:{}", broker.at("http+tls").port());
    let kafka = format!("{host}:{}", broker.at("kafka+tls").port());
    [&["topic", "list", "--server", &http][..], &["consume", "t", "--no-follow", "--bootstrap", &kafka]]
        .map(|args| done(polylogue().args(args).env("POLYLOGUE_CA", ca)))
}

#[test]
fn commands_trust_what_tls_create_wrote() {
    let dir = TempDir::new();
    let tls = dir.join("tls");
    assert_eq!(create(&tls, &[]).code, Some(0));
    let signed = Signed { certificate: tls.join("server.crt"), key: tls.join("server.key") };
    let broker = Broker::start(&dir, &signed, &[]);
    assert_eq!(broker.server.ok(&["topic", "create", "t"]), "created topic t with 1 partition\n");
    for host in ["localhost", "127.0.0.1"] {
        for done in commands(&broker, host, &tls.join("ca.crt")) {
            assert_eq!(done.code, Some(0), "{host}: {}", done.err);
        }
    }
}

/// A certificate that signs itself, as a CA, which is how `openssl req -x509` makes it.
fn self_signed(dir: &Path, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let [certificate, secret] = ["crt", "key"].map(|ending| dir.join(format!("{name}.{ending}")));
    std::fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&secret, key.serialize_pem()).unwrap();
    Signed { certificate, key: secret }
}

/// The error was CaUsedAsEndEntity.
#[test]
fn a_self_signed_certificate_is_trusted_as_itself() {
    let dir = TempDir::new();
    let signed = self_signed(&dir.0, "self", |_| {});
    let other = self_signed(&dir.0, "other", |_| {});
    let broker = Broker::start(&dir, &signed, &[]);
    broker.server.ok(&["topic", "create", "t"]);
    for done in commands(&broker, "localhost", &signed.certificate) {
        assert_eq!(done.code, Some(0), "{}", done.err);
    }
    for (host, ca, advice) in [
        ("localhost", &other.certificate, "pass --ca FILE with the certificate of the CA"),
        ("127.0.0.1", &signed.certificate, "connect by a name that the server's certificate has"),
    ] {
        for done in commands(&broker, host, ca) {
            assert!(done.code == Some(1) && done.err.contains("cannot trust"), "{host}: {}", done.err);
            assert!(done.err.contains(advice), "{host}: {}", done.err);
        }
    }
    let expired = self_signed(&dir.0, "expired", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let dir = TempDir::new();
    let broker = Broker::start(&dir, &expired, &[]);
    for done in commands(&broker, "localhost", &expired.certificate) {
        assert!(done.code == Some(1) && done.err.contains("renew the server's certificate"), "{}", done.err);
    }
}
