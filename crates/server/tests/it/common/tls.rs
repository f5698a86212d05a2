//! TLS in tests: who signs, what a client shows, and the server with listeners of all protocols over it.

use super::{Server, TempDir};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A certificate authority, and the files of its certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

/// A certificate and its key, as files.
pub(crate) struct Signed {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Authority {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, dir }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    pub(crate) fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let signed =
            Signed { certificate: self.dir.join(format!("{name}.pem")), key: self.dir.join(format!("{name}.key")) };
        std::fs::write(&signed.certificate, certificate.pem()).unwrap();
        std::fs::write(&signed.key, key.serialize_pem()).unwrap();
        signed
    }

    /// A list on which this serial number stands.
    pub(crate) fn revoke(&self, serial: u64) -> PathBuf {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.dir.join("revoked.pem");
        std::fs::write(&path, params.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }
}

/// What a client trusts, and what it shows.
pub(crate) fn client(ca: &Path, shows: Option<&Signed>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match shows {
        None => builder.with_no_client_auth(),
        Some(shown) => {
            let chain = CertificateDer::pem_file_iter(&shown.certificate).unwrap().map(Result::unwrap).collect();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&shown.key).unwrap()).unwrap()
        }
    })
}

pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn connect(at: SocketAddr, config: &Arc<ClientConfig>) -> Secured {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let tls = ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap();
    StreamOwned::new(tls, stream)
}

/// Asks a Kafka listener which versions it speaks; the length of what it says.
pub(crate) fn versions(stream: &mut (impl Read + Write)) -> io::Result<usize> {
    stream.write_all(&[0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 9, 0, 4, b't', b'e', b's', b't'])?;
    stream.flush()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut rest = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut rest)?;
    assert_eq!(rest[..4], [0, 0, 0, 9]);
    Ok(rest.len())
}

/// The server with listeners of all protocols over TLS, beside those without.
pub(crate) struct Broker {
    pub(crate) server: Server,
}

impl Broker {
    pub(crate) fn start(dir: &TempDir, signed: &Signed, more: &[&str]) -> Broker {
        Broker::start_telling(dir, signed, more, Stdio::inherit())
    }

    /// The same; its log goes there.
    pub(crate) fn start_telling(dir: &TempDir, signed: &Signed, more: &[&str], log: Stdio) -> Broker {
        let [certificate, key] = [("certificate", &signed.certificate), ("key", &signed.key)]
            .map(|(name, path)| format!("tls.{name}={}", path.display()));
        let listeners = ["kafka+tls", "amqp+tls", "http+tls", "rabbitmq-http+tls"];
        let listeners: Vec<_> = listeners.map(|name| format!("{name}=127.0.0.1:0")).to_vec();
        let mut args = vec!["--set", &certificate, "--set", &key];
        listeners.iter().for_each(|listener| args.extend(["--listen", listener.as_str()]));
        args.extend(more);
        let mut command = super::polylogue();
        if more.contains(&"server.login=always") {
            command.env("POLYLOGUE_ADMIN_PASSWORD", "admin");
        }
        Broker { server: Server::start_command(&mut command, &dir.join("data"), &args, log) }
    }

    pub(crate) fn at(&self, listener: &str) -> SocketAddr {
        let prefix = format!("{listener} listening on ");
        let rest = self.server.lines.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    }
}

/// Looks again and again until it is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it has not become so: {what}");
}
