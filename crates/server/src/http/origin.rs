//! Other sites' pages in an administrator's browser are not to do anything here.
//!
//! A page may send requests anywhere, with the cookies and passwords that the browser has for that place, though it does not see the answers.
//! So a change is refused that the browser says comes from another site (`Sec-Fetch-Site`, or `Origin`, which browsers send with everything but
//! `GET` and `HEAD`); programs send neither. And a page whose own host name was made to mean this machine (DNS rebinding) would be the same
//! site: at a listener that nobody has to log in at and that only this machine reaches, requests must name this machine.

use super::error::Failure;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// Stands at a request that came in at a listener on a loopback address which does not ask by itself who somebody is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnlyHere;

/// See the module.
pub(super) async fn check(request: Request, next: Next) -> Response {
    match judged(&request, true) {
        Ok(()) => next.run(request).await,
        Err(why) => Failure::forbidden(why).into_response(),
    }
}

/// Whether the request may be looked at. `is_open` says that anybody could have sent it: it has no password, or one that everybody knows.
///
/// # Errors
/// Why not.
pub(crate) fn judged(request: &Request, is_open: bool) -> Result<(), String> {
    let only_here = is_open && request.extensions().get::<OnlyHere>().is_some();
    judge(request.method(), request.headers(), only_here)
}

fn judge(method: &Method, headers: &HeaderMap, only_here: bool) -> Result<(), String> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(header::HOST.as_str());
    if only_here && !host.is_none_or(is_this_machine) {
        let host = host.unwrap_or_default();
        return Err(format!(
            "the host {host} is not this machine: use localhost or 127.0.0.1, or a login that not everybody knows (server.login; another user than guest)"
        ));
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let other = || Err("the request comes from a page of another site".to_owned());
    match (text("sec-fetch-site"), text(header::ORIGIN.as_str())) {
        (Some("same-origin" | "none"), _) | (None, None) => Ok(()),
        (Some(_), _) => other(),
        (None, Some(origin)) => match (authority(origin), host) {
            (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
            _ => other(),
        },
    }
}

fn authority(origin: &str) -> Option<String> {
    origin.parse::<Uri>().ok()?.authority().map(ToString::to_string)
}

/// Whether that is a name that nobody but this machine can be meant by, or an address, which no name was made to mean.
fn is_this_machine(host: &str) -> bool {
    let Some(name) = authority(&format!("http://{host}")) else { return false };
    let name = match name.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name.as_str(),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(method: &Method, headers: &[(&'static str, &str)], only_here: bool) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        judge(method, &map, only_here).is_ok()
    }

    #[test]
    fn changes_come_from_programs_and_from_our_own_pages() {
        let change = |headers: &[(&'static str, &str)]| allowed(&Method::POST, headers, false);
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
            assert!(allowed(&Method::GET, &[host, ("origin", origin), ("sec-fetch-site", "cross-site")], false));
        }
        assert!(!change(&[("origin", "http://evil")]));
    }

    #[test]
    fn where_nobody_is_asked_only_this_machine_can_be_meant() {
        let look = |host: &str| allowed(&Method::GET, &[("host", host)], true);
        for host in ["localhost:9600", "LOCALHOST", "127.0.0.1:9600", "[::1]:9600", "[::1]", "a.localhost:1"] {
            assert!(look(host), "{host}");
        }
        for host in ["evil.example:9600", "localhost.evil", "evil", "", "?", "127.0.0.1.evil:9600", "user@evil"] {
            assert!(!look(host), "{host}");
            assert!(allowed(&Method::GET, &[("host", host)], false), "{host}");
        }
    }
}
