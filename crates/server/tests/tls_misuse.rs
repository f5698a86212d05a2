//! TLS misused, at the listeners of all protocols: such a client is not served, its connection ends and is counted, and others notice nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

#[path = "it/common/mod.rs"]
mod common;

use common::TempDir;
use common::tls::{Authority, Broker, PATIENCE, Secured, Signed, client, connect, until, versions};
use rcgen::{CertificateParams, KeyPair, SerialNumber, date_time_ymd};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// All kinds of listeners.
const PROTOCOLS: [&str; 4] = ["kafka", "amqp", "http", "rabbitmq-http"];
/// The beginning of what a client says first, and no more of it.
const HALF: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
/// A record that says that it has 32 bytes of the connection, and that is not encrypted.
const UNSEALED: [u8; 37] = {
    let mut record = [0; 37];
    record[0] = 23;
    record[1] = 3;
    record[2] = 3;
    record[4] = 32;
    record
};
/// Clients that shake hands at once.
const CROWD: usize = 2_000;
/// The serial number of the certificate that was taken back.
const REVOKED: u64 = 77;

/// What a client says first, and how the answer begins.
fn hello(protocol: &str) -> (&'static [u8], &'static [u8]) {
    match protocol {
        "kafka" => (b"\0\0\0\x0e\0\x12\0\0\0\0\0\x09\0\x04test", b"\0\0"),
        "amqp" => (b"AMQP\0\0\x09\x01", b"\x01\0\0"),
        "http" => (b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 200"),
        _ => (b"GET /api/whoami HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 401"),
    }
}

/// Whether the protocol is spoken with the peer at the other end.
fn is_served(stream: &mut (impl Read + Write), protocol: &str) -> bool {
    let (says, hears) = hello(protocol);
    let mut reported = vec![0; hears.len()];
    let spoken = stream.write_all(says).and_then(|()| stream.flush()).and_then(|()| stream.read_exact(&mut reported));
    spoken.is_ok() && reported == hears
}

/// All that still comes; the end has to come, too.
fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut reported = Vec::new();
    match stream.read_to_end(&mut reported) {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => panic!("the connection goes on"),
        // A reset is an end as well.
        _ => reported,
    }
}

/// A socket on which nothing was said.
fn socket(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A self-signed certificate.
fn self_signed(dir: &Path) -> Signed {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let signed = Signed { certificate: dir.join("alone.pem"), key: dir.join("alone.key") };
    std::fs::write(&signed.certificate, certificate.pem()).unwrap();
    std::fs::write(&signed.key, key.serialize_pem()).unwrap();
    signed
}

/// A broker whose clients have to show certificates, and a client that has one.
struct Stage {
    dir: TempDir,
    authority: Authority,
    broker: Broker,
    good: Arc<ClientConfig>,
    /// Who is served all along.
    others: Secured,
}

impl Stage {
    fn new(more: &[&str]) -> Stage {
        let dir = TempDir::new();
        let authority = Authority::new(&dir.0, "authority");
        let (ca, revoked) = (authority.ca(), authority.revoke(REVOKED));
        let sets = [
            "tls.client_auth=require".to_owned(),
            format!("tls.client_ca={}", ca.display()),
            format!("tls.revoked={}", revoked.display()),
        ];
        let mut args = vec!["--listen", "amqp=127.0.0.1:0", "--listen", "rabbitmq-http=127.0.0.1:0"];
        sets.iter().for_each(|set| args.extend(["--set", set.as_str()]));
        args.extend(more);
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let broker = Broker::start_telling(&dir, &authority.sign("server", |_| ()), &args, log.into());
        let good = client(&ca, Some(&authority.sign("good", |_| ())));
        let mut others = connect(broker.at("kafka+tls"), &good);
        versions(&mut others).unwrap();
        Stage { dir, authority, broker, good, others }
    }

    fn handshakes(&self, outcome: &str) -> u64 {
        self.broker.server.metric(&format!("polylogue_tls_handshakes_total{{outcome=\"{outcome}\"}}"))
    }

    /// The listener of a protocol over TLS.
    fn secured(&self, protocol: &str) -> SocketAddr {
        self.broker.at(&format!("{protocol}+tls"))
    }

    /// That one more ended so, and others are served.
    fn one_more(&mut self, outcome: &str, what: &str, act: impl FnOnce(&Stage)) {
        let before = self.handshakes(outcome);
        act(self);
        // It is counted when the connection has ended.
        until(what, || self.handshakes(outcome) == before + 1);
        versions(&mut self.others).unwrap_or_else(|e| panic!("{what}: others are not served: {e}"));
    }

    /// The last look: each listener serves who behaves, and nothing panicked.
    fn survived(mut self) {
        for protocol in PROTOCOLS {
            assert!(is_served(&mut connect(self.secured(protocol), &self.good), protocol), "{protocol} over TLS");
            assert!(is_served(&mut socket(self.broker.at(protocol)), protocol), "{protocol}");
        }
        versions(&mut self.others).unwrap();
        assert_eq!(self.broker.server.stop(Signal::TERM), Some(0));
        let log = std::fs::read_to_string(self.dir.join("log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn certificates_that_do_not_count_are_refused_at_each_listener() {
    let mut stage = Stage::new(&[]);
    let stranger = Authority::new(&stage.dir.0, "stranger");
    let signed = |name: &str, from: i32, to: i32| {
        stage.authority.sign(name, |params| {
            (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        })
    };
    let revoked = stage.authority.sign("revoked", |params| params.serial_number = Some(SerialNumber::from(REVOKED)));
    let shown = [
        ("none", None),
        ("expired", Some(signed("expired", 2001, 2002))),
        ("not yet valid", Some(signed("early", 3001, 3002))),
        ("self-signed", Some(self_signed(&stage.dir.0))),
        ("another's", Some(stranger.sign("other", |_| ()))),
        ("revoked", Some(revoked)),
    ];
    let ca = stage.authority.ca();
    for protocol in PROTOCOLS {
        for (name, shown) in &shown {
            let what = format!("{protocol} with a certificate: {name}");
            let config = client(&ca, shown.as_ref());
            stage.one_more("failed", &what, |stage| {
                let mut wrong = connect(stage.secured(protocol), &config);
                assert!(!is_served(&mut wrong, protocol), "{what}");
                rest(&wrong.sock);
            });
        }
    }
    stage.survived();
}

#[test]
fn who_does_not_speak_tls_where_it_is_spoken_gets_an_alert_at_the_most() {
    let mut stage = Stage::new(&[]);
    for protocol in PROTOCOLS {
        stage.one_more("failed", protocol, |stage| {
            let mut plain = socket(stage.secured(protocol));
            plain.write_all(hello(protocol).0).unwrap();
            let reported = rest(&plain);
            assert!(reported.len() <= 7, "{protocol}: an alert and nothing else, and not {reported:?}");
        });
        stage.one_more("failed", protocol, |stage| {
            // Half of a handshake, and gone.
            let mut half = socket(stage.secured(protocol));
            half.write_all(&HALF).unwrap();
        });
    }
    stage.survived();
}

#[test]
fn tls_where_none_is_spoken_ends_the_connection() {
    let mut stage = Stage::new(&[]);
    for protocol in PROTOCOLS {
        let mut astray = connect(stage.broker.at(protocol), &stage.good);
        assert!(!is_served(&mut astray, protocol), "{protocol}");
        rest(&astray.sock);
        versions(&mut stage.others).unwrap();
        let closed = format!("polylogue_connections_closed_total{{protocol=\"{protocol}\",");
        let is_counted = |line: &str| line.starts_with(&closed) && !line.ends_with(" 0");
        until(protocol, || stage.broker.server.get("/metrics").unwrap().1.lines().any(is_counted));
    }
    stage.survived();
}

#[test]
fn handshakes_that_never_end_are_given_up() {
    let mut stage = Stage::new(&["--set", "tls.handshake_ms_max=200ms"]);
    for protocol in PROTOCOLS {
        for begin in [&HALF[..], &[]] {
            stage.one_more("timeout", protocol, |stage| {
                let mut silent = socket(stage.secured(protocol));
                silent.write_all(begin).unwrap();
                assert!(rest(&silent).is_empty(), "{protocol}");
            });
        }
    }
    stage.survived();
}

/// What was said before something went wrong was said, though both came at once: it is taken, and the connection ends with an alert.
#[test]
fn tls_that_breaks_behind_a_request_ends_with_an_alert() {
    let mut stage = Stage::new(&[]);
    for protocol in PROTOCOLS {
        stage.one_more("done", protocol, |stage| {
            let before = stage.handshakes("done");
            let Secured { mut conn, mut sock } = connect(stage.secured(protocol), &stage.good);
            finish(&mut conn, &sock).unwrap();
            until(protocol, || stage.handshakes("done") == before + 1);
            let (says, is_http) = (hello(protocol).0, protocol.contains("http"));
            let name = format!("polylogue_received_bytes_total{{protocol=\"{protocol}\"}}");
            // Bytes of HTTP are not counted: its client asks again.
            let received = || if is_http { 0 } else { stage.broker.server.metric(&name) };
            let heard = received() + if is_http { 0 } else { says.len() as u64 };
            conn.writer().write_all(says).unwrap();
            let mut sealed = Vec::new();
            while conn.wants_write() {
                conn.write_tls(&mut sealed).unwrap();
            }
            sealed.extend(UNSEALED);
            sock.write_all(&sealed).unwrap();
            let reported = rest(&sock);
            let mut sealed = &reported[..];
            let ended = loop {
                assert!(conn.read_tls(&mut sealed).unwrap() > 0, "{protocol}: it ends without a word");
                if let Err(ended) = conn.process_new_packets() {
                    break ended;
                }
            };
            let alert = rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac);
            assert_eq!(ended, alert, "{protocol}");
            assert_eq!(received(), heard, "{protocol}: what was said before was not heard");
        });
    }
    stage.survived();
}

/// How many files this process may have open: as many as it may ask for.
fn many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

/// Says what a client says first, and nothing more.
fn begin(at: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Secured> {
    let mut stream = connect(at, config);
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut stream.sock)?;
    }
    Ok(stream)
}

fn finish(conn: &mut ClientConnection, mut socket: &TcpStream) -> io::Result<()> {
    while conn.is_handshaking() || conn.wants_write() {
        conn.complete_io(&mut socket)?;
    }
    Ok(())
}

/// All have begun before the first goes on; it is theirs to wait for each other, and no other client's.
#[test]
fn a_crowd_shakes_hands_at_once() {
    many_files();
    let mut stage = Stage::new(&["--set", "tls.handshake_ms_max=10m"]);
    let mut plain = socket(stage.broker.server.kafka);
    let at = stage.secured("kafka");
    let before = stage.handshakes("done");
    let mut crowd: Vec<_> = (0..CROWD).map(|_| begin(at, &stage.good).unwrap()).collect();
    for (number, stream) in crowd.iter_mut().enumerate() {
        if number % 100 == 0 {
            versions(&mut plain).unwrap();
            versions(&mut stage.others).unwrap();
        }
        finish(&mut stream.conn, &stream.sock).unwrap();
    }
    for stream in crowd.iter_mut().step_by(100) {
        assert!(versions(stream).unwrap() > 100);
    }
    until("all of them", || stage.handshakes("done") == before + CROWD as u64);
    drop(crowd);
    stage.survived();
}
