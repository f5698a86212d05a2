//! Protection against requests of other sites' pages (CSRF, DNS rebinding), and detection of requests forwarded by a proxy.
//!
//! A browser lets any page send requests to any address, with the cookies and passwords it has for that address. So changes are refused if the
//! browser marks them as cross-site (`Sec-Fetch-Site`, or `Origin`, which browsers send with all methods but `GET` and `HEAD`); programs send
//! neither header. Requests authenticated by the console's cookie are checked whatever their method. With DNS rebinding, a page's own host name
//! resolves to this listener and its requests are same-site: requests without a login, and those of `guest`, must name the listener by a host
//! that no other site can have.

use super::error::Failure;
use super::login::{Asked, has_session};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Headers that proxies add to forwarded requests, besides those with [`FORWARDED_PREFIX`].
const FORWARDED: [&str; 9] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-forwarded-for",
    "x-envoy-external-address",
    "true-client-ip",
    "cf-connecting-ip",
];
/// Prefix of the other headers of proxies.
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Which requests to a listener require a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Login {
    /// All requests.
    Always,
    /// Requests from other machines; on a loopback listener, requests forwarded by a proxy.
    Remote,
    /// No requests.
    Never,
}

/// The origin of a request.
#[derive(Clone, Copy, Debug)]
pub struct From {
    /// The peer address of the connection.
    pub peer: SocketAddr,
    /// Whether it comes from this machine: the listener is bound to loopback, and no proxy forwarded the request. Required for `guest`.
    pub is_local: bool,
}

/// Properties of an HTTP listener that the checks depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Door {
    login: Login,
    /// The bound address.
    bound: IpAddr,
    /// Its other names: as configured, and as advertised.
    names: Arc<[String]>,
}

impl Door {
    /// Makes the entry for a listener bound to that address, with these names.
    #[must_use]
    pub fn new(login: Login, bound: IpAddr, names: &[&str]) -> Door {
        let names = names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect();
        Door { login, bound: bound.to_canonical(), names }
    }

    /// Whether the listener is bound to a loopback address.
    fn is_loopback(&self) -> bool {
        self.bound.is_loopback()
    }

    /// Whether a request with these headers requires a login.
    pub(super) fn asks(&self, headers: &HeaderMap) -> bool {
        match self.login {
            Login::Always => true,
            Login::Remote => is_forwarded(headers),
            Login::Never => false,
        }
    }

    /// Whether a request with these headers comes from this machine.
    pub(super) fn is_local(&self, peer: SocketAddr, headers: &HeaderMap) -> bool {
        self.is_loopback() && peer.ip().to_canonical().is_loopback() && !is_forwarded(headers)
    }

    /// Whether the `Host` of a request names this listener and cannot be that of another site.
    fn is_called(&self, host: &str) -> bool {
        let Some(name) = authority(&format!("http://{host}")) else { return false };
        let name = match name.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => name.as_str(),
        };
        let name = name.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase();
        match name.parse::<IpAddr>() {
            // A DNS name cannot look like an address. Which addresses lead to a listener that is not on loopback is not known here.
            Ok(address) => address.to_canonical().is_loopback() || !self.is_loopback() || address == self.bound,
            Err(_) => name == "localhost" || name.ends_with(".localhost") || self.names.contains(&name),
        }
    }
}

/// Whether the headers show that a proxy forwarded the request.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let says_so = |name: &str| name.starts_with(FORWARDED_PREFIX) || FORWARDED.contains(&name);
    headers.keys().any(|name| says_so(name.as_str()))
}

/// Middleware; see the module.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let is_open = request.extensions().get::<Asked>().is_none();
    match judged(&request, is_open) {
        Ok(()) => next.run(request).await,
        Err(why) => Failure::forbidden(why).into_response(),
    }
}

/// Checks the request. `is_open`: it is not authenticated, or by a well-known password.
///
/// # Errors
/// The reason for refusal.
pub fn judged(request: &Request, is_open: bool) -> Result<(), String> {
    let door = request.extensions().get::<Door>().filter(|_| is_open);
    judge(request.method(), request.uri(), request.headers(), door)
}

fn judge(method: &Method, uri: &Uri, headers: &HeaderMap, door: Option<&Door>) -> Result<(), String> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let hosts = headers.get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or("?"));
    let mut hosts = hosts.chain(uri.authority().map(|authority| authority.as_str()));
    if let Some(other) = door.and_then(|door| hosts.find(|host| !door.is_called(host))) {
        return Err(format!(
            "the host {other} is not known to be this listener: use localhost or its address, name it in server.advertise \
             (http=HOST:PORT), or have a login asked for (server.login=always; at rabbitmq-http another user than guest)"
        ));
    }
    let only_looks = matches!(*method, Method::GET | Method::HEAD) && !has_session(headers);
    if only_looks || *method == Method::OPTIONS {
        return Ok(());
    }
    let other = || Err("the request comes from a page of another site".to_owned());
    match (text("sec-fetch-site"), text(header::ORIGIN.as_str())) {
        (Some("same-origin" | "none"), _) | (None, None) => Ok(()),
        (Some(_), _) => other(),
        (None, Some(origin)) => match (authority(origin), text(header::HOST.as_str())) {
            (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
            _ => other(),
        },
    }
}

fn authority(origin: &str) -> Option<String> {
    origin.parse::<Uri>().ok()?.authority().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(bound: &str, names: &[&str]) -> Door {
        Door::new(Login::Remote, bound.parse().unwrap(), names)
    }

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in of {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn allowed(method: &Method, of: &[(&'static str, &str)], door: Option<&Door>) -> bool {
        judge(method, &Uri::from_static("/"), &headers(of), door).is_ok()
    }

    #[test]
    fn changes_come_from_programs_and_from_our_own_pages() {
        let change = |headers: &[(&'static str, &str)]| allowed(&Method::POST, headers, None);
        let host = ("host", "broker:9600");
        assert!(change(&[host]) && change(&[]));
        assert!(change(&[host, ("sec-fetch-site", "same-origin"), ("origin", "http://broker:9600")]));
        assert!(change(&[host, ("sec-fetch-site", "none")]));
        assert!(change(&[host, ("origin", "http://Broker:9600")]));
        for site in ["cross-site", "same-site", "?", ""] {
            assert!(!change(&[host, ("sec-fetch-site", site)]), "{site}");
        }
        for origin in ["http://evil", "http://broker", "http://broker:9601", "null", ""] {
            assert!(!change(&[host, ("origin", origin)]), "{origin}");
            assert!(allowed(&Method::GET, &[host, ("origin", origin), ("sec-fetch-site", "cross-site")], None));
        }
        assert!(!change(&[("origin", "http://evil")]));
    }

    /// A page at another port of the same host is same-site: the browser sends the cookie.
    #[test]
    fn a_session_counts_on_our_own_pages_only() {
        let look = |more: (&'static str, &str)| {
            allowed(&Method::GET, &[("host", "broker:9600"), ("cookie", "a=b; polylogue_session=x"), more], None)
        };
        assert!(look(("accept", "*/*")) && look(("origin", "http://broker:9600")) && look(("sec-fetch-site", "none")));
        assert!(look(("sec-fetch-site", "same-origin")));
        for other in
            [("origin", "http://broker:3000"), ("sec-fetch-site", "same-site"), ("sec-fetch-site", "cross-site")]
        {
            assert!(!look(other), "{other:?}");
        }
    }

    #[test]
    fn where_no_login_is_asked_for_only_the_listener_itself_can_be_meant() {
        let here = door("127.0.0.1", &["127.0.0.1", "Broker.example."]);
        let look = |host: &str, door: &Door| allowed(&Method::GET, &[("host", host)], Some(door));
        for host in [
            "localhost:9600",
            "LOCALHOST",
            "127.0.0.1:9600",
            "127.8.8.8",
            "[::1]:9600",
            "[::1]",
            "a.localhost:1",
            "broker.example:1",
        ] {
            assert!(look(host, &here), "{host}");
        }
        let others =
            ["evil.example:9600", "localhost.evil", "evil", "", "?", "127.0.0.1.evil:9600", "user@evil", "10.0.0.1"];
        for host in others {
            assert!(!look(host, &here), "{host}");
            assert!(allowed(&Method::GET, &[("host", host)], None), "{host}");
        }
        let anywhere = door("0.0.0.0", &["0.0.0.0", "broker.example"]);
        for host in ["10.0.0.1:9600", "localhost", "[2001:db8::1]:1", "broker.example"] {
            assert!(look(host, &anywhere), "{host}");
        }
        assert!(!look("evil.example", &anywhere) && !look("other.example", &anywhere));
        // Repeated `Host` headers are all checked, and so is the host of an absolute URI.
        assert!(!allowed(&Method::GET, &[("host", "localhost"), ("host", "evil")], Some(&here)));
        let absolute = Uri::from_static("http://evil/api");
        assert!(judge(&Method::GET, &absolute, &headers(&[("host", "localhost")]), Some(&here)).is_err());
        assert!(allowed(&Method::GET, &[], Some(&here)), "a program that names no host");
    }

    #[test]
    fn what_a_proxy_passed_on_is_from_elsewhere() {
        let (here, peer) = (door("127.0.0.1", &[]), SocketAddr::from(([127, 0, 0, 1], 5)));
        assert!(here.is_local(peer, &headers(&[("host", "x")])) && !here.asks(&headers(&[])));
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-real-ip", "via", "true-client-ip"] {
            let passed = headers(&[(name, "127.0.0.1")]);
            assert!(!here.is_local(peer, &passed) && here.asks(&passed), "{name}");
        }
        assert!(!here.is_local(SocketAddr::from(([10, 0, 0, 1], 5)), &headers(&[])));
        assert!(!door("0.0.0.0", &[]).is_local(peer, &headers(&[])), "the listener is reachable from other machines");
        assert!(door("::ffff:127.0.0.1", &[]).is_local("[::ffff:127.0.0.1]:5".parse().unwrap(), &headers(&[])));
        let login = |login| Door { login, ..here.clone() };
        assert!(login(Login::Always).asks(&headers(&[])));
        assert!(!login(Login::Never).asks(&headers(&[("via", "x")])));
    }
}
