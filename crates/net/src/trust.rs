//! TLS of the command line's clients, and of links to other brokers: verification of servers.

mod connector;
mod verifier;

pub use verifier::certificate_advice;

use connector::TlsConnector;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector as _, TcpConnector};
use verifier::Verifier;

/// The maximum size of a certificate file. Bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The CAs that a server's certificate must be signed by, and certificates of servers that are accepted as they are.
#[derive(Clone, Debug)]
pub struct Trust {
    certificates: Vec<CertificateDer<'static>>,
    /// Whether they are those of a file, so that a server may use one of them as its own.
    is_file: bool,
}

/// Reads a regular file up to the maximum size. The author of a link's URI chooses the path: an endless device took
/// all memory.
#[allow(clippy::disallowed_methods, reason = "a file of certificates, not of data")]
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

impl Trust {
    /// Loads the CAs of a file (PEM), or those of the system.
    ///
    /// # Errors
    /// The file cannot be read, or contains none.
    pub fn load(ca: Option<&Path>) -> Result<Trust, String> {
        let Some(path) = ca else {
            // System certificates that cannot be read are ignored.
            let certificates = rustls_native_certs::load_native_certs().certs;
            return Ok(Trust { certificates, is_file: false });
        };
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let pem = read(path).map_err(|e| wrong(&e))?;
        let certificates =
            CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().map_err(|e| wrong(&e))?;
        if certificates.is_empty() {
            return Err(wrong(&"it contains no certificate (PEM)"));
        }
        Ok(Trust { certificates, is_file: true })
    }

    /// Returns a TLS configuration that verifies servers by these certificates, with a client certificate and key (PEM) if given.
    ///
    /// # Errors
    /// A file that cannot be used, and why.
    pub fn config(&self, own: Option<(&Path, &Path)>) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates.iter().cloned());
        if roots.is_empty() {
            return Err("this machine has no trusted certificate authorities (Debian: install ca-certificates), and no CA file is given".to_owned());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let by_authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let by_authorities = by_authorities.map_err(|e| e.to_string())?;
        let given = if self.is_file { self.certificates.clone() } else { Vec::new() };
        let verifier = Arc::new(Verifier::new(by_authorities, given));
        let config = config.map_err(|e| e.to_string())?.dangerous().with_custom_certificate_verifier(verifier);
        let Some((certificate, key)) = own else { return Ok(config.with_no_client_auth()) };
        let wrong = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let pem = read(certificate).map_err(|e| wrong(certificate, &e))?;
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|e| wrong(certificate, &e))?;
        let pem = read(key).map_err(|e| wrong(key, &e))?;
        let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| wrong(key, &e))?;
        config.with_client_auth_cert(chain, secret).map_err(|e| wrong(certificate, &e))
    }

    /// Starts TLS on a connection to the server of that name.
    pub fn over(&self, stream: TcpStream, host: &str) -> Result<Stream, String> {
        let config = self.config(None)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(|e| e.to_string())?;
        Ok(Stream::Secured(Box::new(StreamOwned::new(connection, stream))))
    }
}

/// Returns an HTTP client that verifies servers by these CAs.
///
/// # Errors
/// As [`Trust::load`].
pub fn agent(config: Config, ca: Option<&Path>) -> Result<ureq::Agent, String> {
    let tls = TlsConnector::new(Trust::load(ca)?.config(None)?);
    let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(tls);
    Ok(ureq::Agent::with_parts(config, connector, DefaultResolver::default()))
}

/// A connection to a server, plain or with TLS.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Secured(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Secured(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Secured(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Secured(stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a shovel with this path as its CA file crashed the broker, at each start again.
    #[test]
    fn what_has_no_end_is_no_file_of_certificates() {
        for path in ["/dev/zero", "/proc", "/nowhere"] {
            let refused = Trust::load(Some(Path::new(path))).expect_err("it is no file");
            assert!(refused.starts_with(path), "{refused}");
        }
    }
}
