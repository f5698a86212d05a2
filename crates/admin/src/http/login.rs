//! Authentication for polylogue's own API and its metrics, on listeners that require a login. Administrators log in by HTTP basic authentication, by a
//! token of an identity provider, or by the console's session cookie. `/healthz`, `/readyz` and the console's static pages need no login.

use super::App;
use super::error::Failure;
use crate::api::clients::{LogIn, Session};
use crate::basic::{credentials, token};
use crate::http::From;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use polylogue_auth::{Authority, Claim, Mechanism, TOKEN_BYTES, TOKEN_MS, Ticket, Turn};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Request extension: the request requires a login.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked;

/// Response extension: the authenticated user, or the name that a refused login claimed.
#[derive(Clone, Debug)]
struct Who(String);

/// Request extension: the request was received over TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secured;

/// The challenge for browsers. Not sent to the console, which has its own login form.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"polylogue\", charset=\"UTF-8\"");
/// The header that marks requests of the console.
const CONSOLE: &str = "x-polylogue-console";
/// The session cookie.
pub(super) const COOKIE: &str = "polylogue_session";

/// Admits administrators, and every client where no login is required.
pub(super) async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if request.extensions().get::<Asked>().is_none() {
        return next.run(request).await;
    }
    match who(&app, request.headers(), address_of(request.extensions())).await {
        Ok(name) => by(next.run(request).await, Some(name)),
        Err(failure) => {
            let claimed = credentials(request.headers()).map(|(name, _)| name);
            by(refusal(failure, request.headers()), claimed)
        }
    }
}

fn by(mut response: Response, name: Option<String>) -> Response {
    name.map(|name| response.extensions_mut().insert(Who(name)));
    response
}

fn refusal(failure: Failure, headers: &HeaderMap) -> Response {
    let mut response = failure.into_response();
    if response.status() == StatusCode::UNAUTHORIZED && !headers.contains_key(CONSOLE) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
    }
    response
}

fn address_of(extensions: &Extensions) -> IpAddr {
    // The extension is always set; the fallback is an address that is not loopback.
    extensions.get::<From>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.peer.ip().to_canonical())
}

/// Writes an audit entry for each request that is not read-only: the user, and the outcome.
pub(super) async fn tell(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    if matches!(method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return next.run(request).await;
    }
    let what = format!("{method} {}", request.uri().path());
    let address = address_of(request.extensions());
    let response = next.run(request).await;
    let user = response.extensions().get::<Who>().map(|who| who.0.as_str());
    app.audit.tell(user, address, "http", &what, response.status().as_str());
    response
}

/// Returns the authenticated administrator.
async fn who(app: &App, headers: &HeaderMap, address: IpAddr) -> Result<String, Failure> {
    if let Some(token) = token(headers).filter(|_| app.users.takes_tokens()) {
        return by_token(app, &token, address).await;
    }
    if let Some((name, password)) = credentials(headers) {
        is_administrator(app, &name, &password, address).await?;
        return Ok(name);
    }
    let name = cookie(headers).and_then(|token| whose(app, token, address)).ok_or_else(Failure::not_logged_in)?;
    if app.users.is_administrator(&name) { Ok(name) } else { Err(Failure::no_administrator(&name)) }
}

/// Waits until the password may be verified. Returns false when too many logins of that name and address are waiting.
pub async fn its_turn(users: &dyn Authority, claim: &Claim<'_>) -> bool {
    let mut ticket = Ticket::default();
    loop {
        match users.turn(claim, &mut ticket) {
            Turn::Now => return true,
            Turn::After(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Turn::Refused => return false,
        }
    }
}

/// Verifies the password, and that the user is an administrator.
async fn is_administrator(app: &App, name: &str, password: &[u8], address: IpAddr) -> Result<(), Failure> {
    let claim = Claim { name, address };
    if !its_turn(app.users.as_ref(), &claim).await {
        return Err(Failure::too_many_tries());
    }
    if !app.users.is_password(&claim, password) {
        let delay_ms = app.users.failed(&claim, Mechanism::Plain, "the name or the password is wrong");
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        return Err(Failure::wrong_login());
    }
    app.users.right(&claim);
    if app.users.is_administrator(name) { Ok(()) } else { Err(Failure::no_administrator(name)) }
}

/// Returns the administrator that a token identifies.
async fn by_token(app: &App, token: &str, address: IpAddr) -> Result<String, Failure> {
    match app.users.bearer(token) {
        Ok(bearer) if bearer.grants.is_administrator() => Ok(bearer.name),
        Ok(bearer) => Err(Failure::no_administrator(&bearer.name)),
        Err(error) => {
            let delay_ms = app.users.failed(&Claim { name: "", address }, Mechanism::Bearer, &error.text);
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            Err(Failure::wrong_token())
        }
    }
}

/// Returns the session token of the request's cookie.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, token)| token)
}

/// Whether the request has a session cookie.
pub(super) fn has_session(headers: &HeaderMap) -> bool {
    cookie(headers).is_some()
}

/// Returns the user of a session token.
fn whose(app: &App, token: &str, address: IpAddr) -> Option<String> {
    let mark = |name: &str| app.directory.password_fingerprint(&Claim { name, address });
    let now_ms = app.broker.now().monotonic_ms;
    app.tokens.lock().who(token, now_ms, mark).map(ToOwned::to_owned)
}

/// `GET /session`: whether a login is required, and which user is logged in.
pub(super) async fn session(State(app): State<Arc<App>>, request: Request) -> Json<Session> {
    let asks = request.extensions().get::<Asked>().is_some();
    let name = match asks {
        true => who(&app, request.headers(), address_of(request.extensions())).await.ok(),
        false => None,
    };
    Json(Session { asks, name })
}

/// `POST /session`: logs in and sets a cookie that is `HttpOnly` and `SameSite=Strict`.
pub(super) async fn log_in(
    State(app): State<Arc<App>>,
    extensions: Extensions,
    headers: HeaderMap,
    body: Result<Json<LogIn>, JsonRejection>,
) -> Response {
    let address = address_of(&extensions);
    let login = match body {
        Ok(Json(login)) => login,
        Err(rejection) => {
            let failure: Failure = rejection.into();
            return failure.into_response();
        }
    };
    if let Err(failure) = is_administrator(&app, &login.name, login.password.as_bytes(), address).await {
        return refusal(failure, &headers);
    }
    let claim = Claim { name: &login.name, address };
    app.users.succeeded(&claim, Mechanism::Plain);
    let mark = app.directory.password_fingerprint(&claim).unwrap_or_default();
    let mut random = [0; TOKEN_BYTES];
    app.rng.fill(&mut random);
    let now_ms = app.broker.now().monotonic_ms;
    let token = app.tokens.lock().give(&login.name, mark, random, now_ms);
    let asks = extensions.get::<Asked>().is_some();
    with_cookie(&token, TOKEN_MS / 1_000, &extensions, Json(Session { asks, name: Some(login.name) }))
}

/// `DELETE /session`: logs out.
pub(super) async fn log_out(State(app): State<Arc<App>>, extensions: Extensions, headers: HeaderMap) -> Response {
    if let Some(token) = cookie(&headers) {
        app.tokens.lock().take_back(token, app.broker.now().monotonic_ms);
    }
    with_cookie("", 0, &extensions, StatusCode::NO_CONTENT)
}

/// Adds the cookie to a response, with its lifetime in seconds.
fn with_cookie(token: &str, seconds: u64, extensions: &Extensions, answer: impl IntoResponse) -> Response {
    let secure = if extensions.get::<Secured>().is_some() { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let mut response = answer.into_response();
    if let Ok(value) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_found_among_cookies() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::COOKIE, value.parse().unwrap());
            }
            cookie(&headers).map(ToOwned::to_owned)
        };
        assert_eq!(of(&["polylogue_session=abc"]).as_deref(), Some("abc"));
        assert_eq!(of(&["a=b; polylogue_session=abc; c=d"]).as_deref(), Some("abc"));
        assert_eq!(of(&["a=b", "c=d;polylogue_session=a=c"]).as_deref(), Some("a=c"));
        for none in [&["a=b; xpolylogue_session=abc"][..], &["polylogue_session"], &[]] {
            assert_eq!(of(none), None);
        }
    }
}
