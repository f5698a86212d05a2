//! Who may use polylogue's own API and see its metrics, on listeners that ask for it: administrators, by HTTP's basic authentication, by a token of
//! an identity provider, or by the cookie that the console got for a name and a password. Whether the process lives and serves (`/healthz`, `/readyz`) is no secret, and
//! neither is the console itself, which holds nothing.

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

/// Stands at a request that has to say who it is from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked;

/// Stands at an answer: who asked, or of one who was not let in, who that wanted to be.
#[derive(Clone, Debug)]
struct Who(String);

/// Stands at a request that came in over TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secured;

/// The challenge for browsers, unless the console asks, which has a form of its own.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"polylogue\", charset=\"UTF-8\"");
/// What the console says with its requests.
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
    // A request always says where it is from; without that it is from nowhere near.
    extensions.get::<From>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.peer.ip().to_canonical())
}

/// Tells of each request that is more than a look who made it, and how it ended.
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

/// The administrator who asks.
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

/// Waits for the turn of a password's verification. Returns whether it comes: not when too many of that name and address came behind.
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

/// That the password is that of an administrator.
async fn is_administrator(app: &App, name: &str, password: &[u8], address: IpAddr) -> Result<(), Failure> {
    let claim = Claim { name, address };
    if !its_turn(app.users.as_ref(), &claim).await {
        return Err(Failure::too_many_tries());
    }
    if !app.users.is_password(&claim, password) {
        let delay_ms = app.users.failed(&claim, Mechanism::Plain, "the name or the password is wrong");
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        return Err(Failure::not_logged_in());
    }
    app.users.right(&claim);
    if app.users.is_administrator(name) { Ok(()) } else { Err(Failure::no_administrator(name)) }
}

/// The administrator whose token that is, by what it says.
async fn by_token(app: &App, token: &str, address: IpAddr) -> Result<String, Failure> {
    match app.users.bearer(token) {
        Ok(bearer) if bearer.grants.is_administrator() => Ok(bearer.name),
        Ok(bearer) => Err(Failure::no_administrator(&bearer.name)),
        Err(error) => {
            let delay_ms = app.users.failed(&Claim { name: "", address }, Mechanism::Bearer, &error.text);
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            Err(Failure::not_logged_in())
        }
    }
}

/// The token that a browser sends.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, token)| token)
}

/// Whether a browser says by a cookie who it is.
pub(super) fn has_session(headers: &HeaderMap) -> bool {
    cookie(headers).is_some()
}

/// Whose token that is.
fn whose(app: &App, token: &str, address: IpAddr) -> Option<String> {
    let mark = |name: &str| app.directory.password_mark(&Claim { name, address });
    let now_ms = app.broker.now().monotonic_ms;
    app.tokens.lock().who(token, now_ms, mark).map(ToOwned::to_owned)
}

/// `GET /session`: whether a login is required here, and which user is logged in.
pub(super) async fn session(State(app): State<Arc<App>>, request: Request) -> Json<Session> {
    let asks = request.extensions().get::<Asked>().is_some();
    let name = match asks {
        true => who(&app, request.headers(), address_of(request.extensions())).await.ok(),
        false => None,
    };
    Json(Session { asks, name })
}

/// `POST /session`: logs in, for a cookie that no script can read and no other site can have sent.
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
    let mark = app.directory.password_mark(&claim).unwrap_or_default();
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

/// The answer with the cookie, which holds for so long.
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
