//! TLS of listeners: certificates are reloaded when their files change, and handshakes yield to other tasks.

use super::link::Link;
use super::principal::PrincipalRules;
use arc_swap::ArcSwap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Interval at which the files are checked.
const LOOK: Duration = Duration::from_secs(1);
/// The maximum size of a file. Bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Whether clients present certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAuth {
    /// Not requested.
    None,
    /// Requested and optional; a certificate that is presented must be valid.
    Request,
    /// Required.
    Require,
}

/// The files and settings of TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The server's certificate chain, its own certificate first (PEM).
    pub certificate: PathBuf,
    /// Its private key (PEM: PKCS #8, PKCS #1 or SEC 1).
    pub key: PathBuf,
    /// The CAs of client certificates (PEM).
    pub client_ca: Option<PathBuf>,
    /// Certificate revocation lists (PEM).
    pub revoked: Option<PathBuf>,
    /// Whether clients present certificates.
    pub client_auth: ClientAuth,
    /// Timeout for a handshake. Milliseconds.
    pub handshake_ms_max: u64,
    /// Maps certificates to users; without rules a certificate admits the client, and is no login.
    pub principals: Option<PrincipalRules>,
}

impl TlsFiles {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref(), self.revoked.as_ref()].into_iter().flatten()
    }

    /// Returns what changes with the files: modification times and sizes.
    fn marks(&self) -> Vec<Option<(SystemTime, u64)>> {
        let mark = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        self.all().map(mark).collect()
    }
}

/// Label: the outcome of a handshake or of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// TLS of all listeners.
pub struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
    /// Handshakes computed at a time: each step takes about a millisecond, and shares its thread with other connections.
    turns: Semaphore,
    handshakes: Family<Outcome, Counter>,
    reloads: Family<Outcome, Counter>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Loads the files.
    ///
    /// # Errors
    /// A file that cannot be used, and why.
    pub fn load(files: TlsFiles, registry: &mut Registry) -> Result<Tls, String> {
        let config = ArcSwap::new(Arc::new(config(&files)?));
        let (handshakes, reloads) = (Family::<Outcome, Counter>::default(), Family::<Outcome, Counter>::default());
        for outcome in ["done", "failed", "timeout"] {
            drop(handshakes.get_or_create(&Outcome { outcome }));
        }
        for outcome in ["done", "failed"] {
            drop(reloads.get_or_create(&Outcome { outcome }));
        }
        registry.register("tls_handshakes", "TLS handshakes, by how they ended", handshakes.clone());
        registry.register("tls_reloads", "Changes of the files of TLS, by whether they could be used", reloads.clone());
        Ok(Tls { files, config, turns: Semaphore::new(1), handshakes, reloads })
    }

    /// Performs the handshake.
    ///
    /// # Errors
    /// It failed or timed out; the connection cannot be used.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let accepting = TlsAcceptor::from(self.config.load_full()).accept(stream);
        let patience = Duration::from_millis(self.files.handshake_ms_max);
        let (outcome, result) = match tokio::time::timeout(patience, in_turns(&self.turns, accepting)).await {
            Ok(Ok(stream)) => ("done", Ok(stream)),
            Ok(Err(e)) => ("failed", Err(e)),
            Err(_) => ("timeout", Err(io::ErrorKind::TimedOut.into())),
        };
        self.handshakes.get_or_create(&Outcome { outcome }).inc();
        result
    }

    /// The same for this crate's connections; with the user of the client's certificate, if it maps to one.
    ///
    /// # Errors
    /// As [`Tls::accept`].
    pub(super) async fn link(&self, stream: TcpStream) -> io::Result<(Link, Option<String>)> {
        let (stream, tls) = self.accept(stream).await?.into_inner();
        let shown = tls.peer_certificates().and_then(|chain| chain.first());
        let certified = self.files.principals.as_ref().and_then(|rules| rules.name_of(shown?));
        Ok((Link::secured(stream, tls), certified))
    }

    /// Checks the files until `stop` is true, and reloads them after a change. Files that cannot be used are ignored.
    pub async fn watch(self: Arc<Tls>, mut stop: watch::Receiver<bool>) {
        let mut marks = self.files.marks();
        loop {
            tokio::select! {
                biased;
                () = super::stopped(&mut stop) => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = self.files.marks();
            if now != marks {
                marks = now;
                self.reload();
            }
        }
    }

    fn reload(&self) {
        let outcome = match config(&self.files) {
            Ok(config) => {
                self.config.store(Arc::new(config));
                tracing::info!("TLS uses the changed files");
                "done"
            }
            Err(why) => {
                tracing::error!("TLS keeps the certificates it has loaded: {why}");
                "failed"
            }
        };
        self.reloads.get_or_create(&Outcome { outcome }).inc();
    }
}

/// Polls a future only with a permit, and yields between polls.
async fn in_turns<F: Future>(turns: &Semaphore, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        // The semaphore is never closed.
        let turn = turns.acquire().await;
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        drop(turn);
        if let Poll::Ready(output) = polled {
            return output;
        }
        // Pending until this task is woken, which the future arranges.
        let mut is_first = true;
        std::future::poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
    }
}

/// Reads the PEM objects of a file.
fn read<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>, String> {
    let shown = path.display();
    let bytes = std::fs::metadata(path).map_err(|e| format!("cannot read {shown}: {e}"))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!("{shown} has {bytes} bytes: the maximum is {FILE_BYTES_MAX}"));
    }
    let read = T::pem_file_iter(path).and_then(|items| items.collect::<Result<Vec<T>, _>>());
    let items = read.map_err(|e| format!("cannot read {shown}: {e}"))?;
    if items.is_empty() {
        return Err(format!("{shown} has no {what} (PEM)"));
    }
    Ok(items)
}

fn config(files: &TlsFiles) -> Result<ServerConfig, String> {
    let chain = read::<CertificateDer<'static>>(&files.certificate, "certificate")?;
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|e| format!("cannot read a private key from {}: {e}", files.key.display()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| e.to_string())?;
    let builder = match verifier(files)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    builder
        .with_single_cert(chain, key)
        .map_err(|e| format!("{} and {} cannot be used: {e}", files.certificate.display(), files.key.display()))
}

fn verifier(files: &TlsFiles) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let ca = match (&files.client_ca, files.client_auth) {
        (_, ClientAuth::None) => return Ok(None),
        (None, _) => {
            return Err("tls.client_auth needs tls.client_ca, the authorities that sign client certificates".to_owned());
        }
        (Some(ca), _) => ca,
    };
    let mut roots = RootCertStore::empty();
    for certificate in read::<CertificateDer<'static>>(ca, "certificate")? {
        roots.add(certificate).map_err(|e| format!("{} cannot be used: {e}", ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(revoked) = &files.revoked {
        builder = builder.with_crls(read::<CertificateRevocationListDer<'static>>(revoked, "revocation list")?);
    }
    if files.client_auth == ClientAuth::Request {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map(Some).map_err(|e| format!("{} cannot be used: {e}", ca.display()))
}
