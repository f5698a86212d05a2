//! Pages of other sites in a browser are not to do anything here, and requests that a proxy passed on are not from this machine.
//!
//! A page may send requests anywhere, with the cookies and passwords that the browser has for that place, though it does not see the answers.
//! So a change is refused that the browser says comes from another site (`Sec-Fetch-Site`, or `Origin`, which browsers send with everything but
//! `GET` and `HEAD`); programs send neither. Where the console's session says who it is, that holds for every request. And a page whose own host name
//! was made to mean this listener (DNS rebinding) would be the same site: requests without a login, and those of `guest`, must name the
//! listener by a name that no other site can have.

use super::error::Failure;
use super::login::{Asked, has_session};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Headers that a proxy adds to what it passes on, beside those that begin with [`FORWARDED_PREFIX`].
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
/// The beginning of the others.
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Which requests of a listener need a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Login {
    /// All.
    Always,
    /// Those that do not come from this machine: of a listener that only this machine reaches, those that a proxy passed on.
    Remote,
    /// None.
    Never,
}

/// From where a request comes.
#[derive(Clone, Copy, Debug)]
pub struct From {
    /// The other end of its connection.
    pub peer: SocketAddr,
    /// It comes from this machine: no other one reaches the listener, and no proxy has passed it on. `guest` logs in so only.
    pub is_local: bool,
}

/// What a listener of an http protocol is, as far as that decides about requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Door {
    login: Login,
    /// The address that it is bound to.
    bound: IpAddr,
    /// What else it is called: as it was bound, and as it is advertised.
    names: Arc<[String]>,
}

impl Door {
    /// A listener that is bound there, and has these names.
    #[must_use]
    pub fn new(login: Login, bound: IpAddr, names: &[&str]) -> Door {
        let names = names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect();
        Door { login, bound: bound.to_canonical(), names }
    }

    /// Whether only this machine reaches it.
    fn is_loopback(&self) -> bool {
        self.bound.is_loopback()
    }

    /// Whether a request with these headers has to say who it is from.
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

    /// Whether a host, as a request names it, is this listener's and can be no other site's.
    fn is_called(&self, host: &str) -> bool {
        let Some(name) = authority(&format!("http://{host}")) else { return false };
        let name = match name.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => name.as_str(),
        };
        let name = name.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase();
        match name.parse::<IpAddr>() {
            // No name is made to mean something by an address. Which ones lead to a listener that others reach is not known here.
            Ok(address) => address.to_canonical().is_loopback() || !self.is_loopback() || address == self.bound,
            Err(_) => name == "localhost" || name.ends_with(".localhost") || self.names.contains(&name),
        }
    }
}

/// Whether a proxy says that it has passed a request on.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let says_so = |name: &str| name.starts_with(FORWARDED_PREFIX) || FORWARDED.contains(&name);
    headers.keys().any(|name| says_so(name.as_str()))
}

/// See the module.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let is_open = request.extensions().get::<Asked>().is_none();
    match judged(&request, is_open) {
        Ok(()) => next.run(request).await,
        Err(why) => Failure::forbidden(why).into_response(),
    }
}

/// Whether the request may be looked at. `is_open`: the request proves nothing, because it has no password or one that is public.
///
/// # Errors
/// Why not.
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

    /// A page at another port of the same host is the same site to a browser, which sends the cookie along.
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
        // Each of several names is looked at, and the one of an absolute URI.
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
        assert!(!door("0.0.0.0", &[]).is_local(peer, &headers(&[])), "others reach that listener");
        assert!(door("::ffff:127.0.0.1", &[]).is_local("[::ffff:127.0.0.1]:5".parse().unwrap(), &headers(&[])));
        let login = |login| Door { login, ..here.clone() };
        assert!(login(Login::Always).asks(&headers(&[])));
        assert!(!login(Login::Never).asks(&headers(&[("via", "x")])));
    }
}
