//! Login by tokens of an identity provider: loading and refreshing the keys that sign them.
//!
//! A key file is checked each second, like those of TLS. From an HTTP server keys are fetched at the start, at an interval, and when a token is
//! signed with an unknown key, at most once in [`FETCH_PAUSE_S`] seconds. If keys cannot be loaded, the previous ones stay in
//! use. A fetch is bounded in time and size, and does not follow redirects.
//! The server's address comes from the configuration only, never from a token.

use crate::{stopped, trust};
use arc_swap::ArcSwap;
use polylogue_auth::{AuthError, Bearer, Jwt, KEY_SET_BYTES_MAX, TokenKeys, TokenRules};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use ureq::http::Uri;

/// Interval at which a file, or the time of the next fetch, is checked.
const LOOK: Duration = Duration::from_secs(1);
/// The minimum number of checks between two fetches.
const FETCH_PAUSE_S: u64 = 10;
/// Timeout for a fetch.
const FETCH_PATIENCE: Duration = Duration::from_secs(5);

/// The source of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// An identity provider, over HTTP.
    Url(String),
}

impl KeySource {
    /// Parses the option.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<KeySource, String> {
        if !text.contains("://") {
            return Ok(KeySource::File(PathBuf::from(text)));
        }
        let uri: Uri = text.parse().map_err(|e| format!("it is not a valid URL: {e}"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_here = || host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        match uri.scheme_str() {
            Some("https") if !host.is_empty() => Ok(KeySource::Url(text.to_owned())),
            Some("http") if is_here() => Ok(KeySource::Url(text.to_owned())),
            Some("http") => Err("keys come over https, or over http from this machine alone".to_owned()),
            _ => Err("expected a file, https://... or http://...".to_owned()),
        }
    }
}

/// The `[oauth]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OAuthConfig {
    /// The source of keys.
    pub source: KeySource,
    /// The CA of the provider's certificate (PEM); by default the system's.
    pub ca: Option<PathBuf>,
    /// The fetch interval. Milliseconds.
    pub refresh_ms: u64,
    /// Which tokens are accepted.
    pub rules: TokenRules,
}

/// Label: the outcome of loading keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The loaded keys.
pub struct OAuth {
    config: OAuthConfig,
    /// The HTTP client, for an HTTP source.
    agent: Option<ureq::Agent>,
    keys: ArcSwap<TokenKeys>,
    /// Whether a token was signed with an unknown key.
    is_wanted: AtomicBool,
    held: Gauge,
    loads: Family<Outcome, Counter>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Returns what changes with a file: its modification time and size.
fn mark(path: &Path) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Reads a file, up to the maximum size.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let bytes = std::fs::metadata(path).map_err(wrong)?.len();
    if bytes > KEY_SET_BYTES_MAX as u64 {
        return Err(format!("{} has {bytes} bytes: the maximum is {KEY_SET_BYTES_MAX}", path.display()));
    }
    std::fs::read(path).map_err(wrong)
}

fn fetch(agent: &ureq::Agent, url: &str) -> Result<Vec<u8>, String> {
    let wrong = |e: ureq::Error| format!("cannot fetch {url}: {e}");
    let mut response = agent.get(url).header("accept", "application/json").call().map_err(wrong)?;
    if response.status().as_u16() != 200 {
        return Err(format!("cannot fetch {url}: the answer is {}", response.status()));
    }
    // One byte more, to detect a file that is too long.
    let mut bytes = Vec::new();
    let reader = response.body_mut().as_reader();
    reader
        .take(KEY_SET_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| format!("cannot fetch {url}: {e}"))?;
    Ok(bytes)
}

impl OAuth {
    /// Loads the keys for the first time.
    ///
    /// # Errors
    /// A file that is invalid. An HTTP server may be reachable later.
    pub fn load(config: OAuthConfig, registry: &mut Registry) -> Result<OAuth, String> {
        let agent = match &config.source {
            KeySource::File(_) => None,
            KeySource::Url(_) => Some(agent(config.ca.as_deref())?),
        };
        let (held, loads) = (Gauge::default(), Family::<Outcome, Counter>::default());
        for outcome in ["done", "failed"] {
            drop(loads.get_or_create(&Outcome { outcome }));
        }
        registry.register("oauth_keys", "Keys with which tokens may be signed", held.clone());
        let text = "Looks for such keys, in a file that has changed or by a fetch, by whether they could be used";
        registry.register("oauth_key_loads", text, loads.clone());
        let (keys, is_wanted) = (ArcSwap::default(), AtomicBool::new(false));
        let oauth = OAuth { config, agent, keys, is_wanted, held, loads };
        match oauth.look() {
            Err(why) if oauth.agent.is_none() => Err(why),
            Err(_) | Ok(()) => Ok(oauth),
        }
    }

    /// Loads the keys.
    fn look(&self) -> Result<(), String> {
        let (found, whence) = match (&self.config.source, &self.agent) {
            (KeySource::Url(url), Some(agent)) => (fetch(agent, url), url.clone()),
            (KeySource::File(path), _) => (read(path), path.display().to_string()),
            (KeySource::Url(url), None) => (Err("no HTTP client is configured".to_owned()), url.clone()),
        };
        let parse = |bytes: Vec<u8>| TokenKeys::parse(&bytes).map_err(|e| format!("{whence} cannot be used: {e}"));
        let (outcome, result) = match found.and_then(parse) {
            Ok(keys) => {
                tracing::debug!(keys = keys.len(), "loaded token keys from {whence}");
                self.held.set(keys.len() as i64);
                self.keys.store(Arc::new(keys));
                ("done", Ok(()))
            }
            Err(why) => {
                let keys = self.keys.load().len();
                tracing::error!(keys, "tokens are still verified with the keys loaded before: {why}");
                ("failed", Err(why))
            }
        };
        self.loads.get_or_create(&Outcome { outcome }).inc();
        result
    }

    /// Verifies a token at this time (milliseconds since 1970) and returns its user.
    ///
    /// # Errors
    /// Why it is rejected.
    pub fn bearer(&self, token: &str, now_ms: i64) -> Result<Bearer, AuthError> {
        let (jwt, keys) = (Jwt::parse(token)?, self.keys.load());
        if !jwt.has_key(&keys) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
        jwt.verify(&keys, &self.config.rules, now_ms)
    }

    /// Reloads keys until `stop` is true.
    pub async fn watch(self: Arc<OAuth>, mut stop: watch::Receiver<bool>) {
        let marked = |oauth: &OAuth| match &oauth.config.source {
            KeySource::File(path) => mark(path),
            KeySource::Url(_) => None,
        };
        let (mut before, mut looks) = (marked(&self), 0);
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            looks += 1;
            let now = marked(&self);
            if !self.is_due(now != before, looks) {
                continue;
            }
            (before, looks) = (now, 0);
            self.is_wanted.store(false, Ordering::Relaxed);
            let oauth = self.clone();
            // Errors are logged by `look`.
            drop(tokio::task::spawn_blocking(move || oauth.look()).await);
        }
    }

    /// Whether keys must be loaded, given the number of checks since the last time.
    fn is_due(&self, has_changed: bool, looks: u64) -> bool {
        let is_wanted = self.is_wanted.load(Ordering::Relaxed) || self.keys.load().is_empty();
        match &self.config.source {
            KeySource::File(_) => has_changed,
            KeySource::Url(_) => {
                looks >= self.config.refresh_ms.div_ceil(1_000) || (is_wanted && looks >= FETCH_PAUSE_S)
            }
        }
    }
}

/// Creates the HTTP client, without redirects.
fn agent(ca: Option<&Path>) -> Result<ureq::Agent, String> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(FETCH_PATIENCE))
        .max_redirects(0)
        .max_redirects_will_error(false);
    trust::agent(config.build(), ca)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::io::{BufRead as _, BufReader, Read, Write};
    use std::net::{SocketAddr, TcpListener};

    const KEY: &str =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn config(source: KeySource) -> OAuthConfig {
        OAuthConfig { source, ca: None, refresh_ms: 60_000, rules: TokenRules::default() }
    }

    #[test]
    fn keys_come_from_a_file_over_tls_or_from_this_machine() {
        let url = |text: &str| Ok(KeySource::Url(text.to_owned()));
        assert_eq!(KeySource::parse("/etc/keys.json"), Ok(KeySource::File("/etc/keys.json".into())));
        for good in ["https://a.example/jwks", "http://localhost:1/x", "http://127.0.0.2/x", "http://[::1]:8/x"] {
            assert_eq!(KeySource::parse(good), url(good));
        }
        for bad in
            ["http://a.example/jwks", "http://localhost.example/x", "http://127.0.0.1.example/x", "http://10.0.0.1/"]
        {
            assert!(KeySource::parse(bad).unwrap_err().contains("over https"), "{bad}");
        }
        for bad in ["ftp://localhost/x", "https://", "file:///etc/keys.json", "://x", "http://"] {
            assert!(KeySource::parse(bad).is_err(), "{bad}");
        }
    }

    /// Answers one request. Errors are ignored: the client may have disconnected.
    fn serve(stream: impl Read + Write, answer: &str) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|bytes| bytes > "\r\n".len()) {
            line.clear();
        }
        let _ = stream.get_mut().write_all(answer.as_bytes());
    }

    /// A server that answers each request in turn, then stops; over TLS with that certificate.
    fn answering(answers: Vec<String>, tls: Option<Arc<ServerConfig>>) -> (SocketAddr, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        #[allow(clippy::disallowed_methods, reason = "a test's own server")]
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                match tls.clone() {
                    None => serve(stream, &answer),
                    Some(tls) => serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream), &answer),
                }
            }
        });
        (at, thread)
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    #[test]
    fn what_cannot_be_fetched_or_used_changes_nothing() {
        let long = " ".repeat(KEY_SET_BYTES_MAX + 2);
        let away =
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let answers = vec![
            answer("500 Internal Server Error", KEY),
            answer("200 OK", KEY),
            answer("200 OK", "no keys"),
            answer("200 OK", &long),
            answer("404 Not Found", ""),
            away.to_owned(),
            String::new(),
        ];
        let (at, thread) = answering(answers, None);
        let source = KeySource::Url(format!("http://{at}/jwks"));
        let oauth = OAuth::load(config(source), &mut Registry::default()).unwrap();
        assert!(oauth.keys.load().is_empty(), "the server may be reachable later");
        assert!(!oauth.is_due(false, FETCH_PAUSE_S - 1) && oauth.is_due(false, FETCH_PAUSE_S));
        assert_eq!((oauth.look(), oauth.held.get()), (Ok(()), 1));
        assert!(!oauth.is_due(true, 59) && oauth.is_due(false, 60));
        for why in ["no JSON", "are allowed", "404", "302", "cannot fetch"] {
            let reported = oauth.look().unwrap_err();
            assert!(reported.contains(why), "{reported}");
            assert_eq!(oauth.keys.load().len(), 1);
        }
        let counted = |outcome| oauth.loads.get_or_create(&Outcome { outcome }).get();
        assert_eq!((counted("done"), counted("failed")), (1, 6));
        thread.join().unwrap();
    }

    /// Creates a certificate for a server, and the file that contains it.
    fn certified(name: &str) -> (Arc<ServerConfig>, PathBuf) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let path = std::env::temp_dir().join(format!("polylogue-{}-{name}.pem", std::process::id()));
        std::fs::write(&path, made.cert.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        (Arc::new(config), path)
    }

    /// A man in the middle must not be able to supply keys.
    #[test]
    fn who_is_asked_over_tls_has_to_be_whom_the_operator_trusts() {
        let (asked, ca) = certified("asked");
        let (_, stranger) = certified("stranger");
        for (trusted, keys) in [(&ca, 1), (&stranger, 0)] {
            let (at, thread) = answering(vec![answer("200 OK", KEY); 2], Some(asked.clone()));
            let source = KeySource::Url(format!("https://{at}/jwks"));
            let config = OAuthConfig { ca: Some(trusted.clone()), ..config(source) };
            let oauth = OAuth::load(config, &mut Registry::default()).unwrap();
            assert_eq!(oauth.keys.load().len(), keys, "{trusted:?}");
            match oauth.look() {
                Ok(()) => assert_eq!(keys, 1, "{trusted:?}"),
                Err(reported) => {
                    assert!(keys == 0 && reported.contains("cannot fetch https://"), "{trusted:?}: {reported}")
                }
            }
            thread.join().unwrap();
        }
        #[allow(clippy::disallowed_methods, reason = "a test removes its own files")]
        [ca, stranger].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    /// Tokens with made-up key ids must not cause unlimited fetches.
    #[test]
    fn a_key_that_is_not_known_is_asked_for_once_in_a_while() {
        let (at, thread) = answering(vec![answer("200 OK", KEY)], None);
        let oauth = OAuth::load(config(KeySource::Url(format!("http://{at}/"))), &mut Registry::default()).unwrap();
        thread.join().unwrap();
        // {"alg":"EdDSA","kid":"1"} and "2".
        let token = |header: &str| format!("{header}.e30.AAAA");
        assert!(oauth.bearer(&token("eyJhbGciOiJFZERTQSIsImtpZCI6IjEifQ"), 0).is_err());
        assert!(!oauth.is_due(false, FETCH_PAUSE_S), "the key is known");
        assert!(oauth.bearer(&token("eyJhbGciOiJFZERTQSIsImtpZCI6IjIifQ"), 0).is_err());
        assert!(oauth.is_due(false, FETCH_PAUSE_S) && !oauth.is_due(false, FETCH_PAUSE_S - 1));
    }

    #[test]
    fn a_file_has_to_be_right_at_the_start() {
        let load = |text: &str| {
            let name = format!("polylogue-{}-{}.json", std::process::id(), text.len());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).unwrap();
            let loaded = OAuth::load(config(KeySource::File(path.clone())), &mut Registry::default());
            #[allow(clippy::disallowed_methods, reason = "a test removes its own file")]
            std::fs::remove_file(&path).unwrap();
            loaded.map(|oauth| oauth.keys.load().len())
        };
        assert_eq!(load(KEY), Ok(1));
        assert!(load("{}").unwrap_err().contains("\"keys\" is missing"));
        assert!(load(&" ".repeat(KEY_SET_BYTES_MAX + 1)).unwrap_err().contains("the maximum is"));
        let missing = OAuth::load(config(KeySource::File("/nowhere/keys".into())), &mut Registry::default());
        assert!(missing.unwrap_err().contains("cannot read /nowhere/keys"));
    }
}
