//! Who may use polylogue's own API and see its metrics, on listeners that ask for it: administrators, by HTTP's basic authentication.
//! Whether the process lives and serves (`/healthz`, `/readyz`) is nobody's secret.

use super::App;
use super::error::Failure;
use crate::basic::credentials;
use crate::rabbitmq_http::From;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use polylogue_auth::{Claim, Mechanism};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Stands at a request that came in at a listener that asks who clients are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked;

/// What browsers are told that they ask for.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"polylogue\", charset=\"UTF-8\"");

/// Lets an administrator in, and everybody where nobody is asked.
pub(super) async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if request.extensions().get::<Asked>().is_none() {
        return next.run(request).await;
    }
    let address = request.extensions().get::<From>().map(|from| from.0.ip().to_canonical());
    match who(&app, credentials(request.headers()), address).await {
        Ok(()) => next.run(request).await,
        Err(failure) => {
            let mut response = failure.into_response();
            if response.status() == axum::http::StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
            }
            response
        }
    }
}

async fn who(app: &App, login: Option<(String, Vec<u8>)>, address: Option<IpAddr>) -> Result<(), Failure> {
    let (name, password) = login.ok_or_else(Failure::not_logged_in)?;
    // A request always says where it is from; without that it is from nowhere near.
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let claim = Claim { name: &name, address };
    if !app.users.is_password(&claim, &password) {
        let delay_ms = app.users.failed(&claim, Mechanism::Plain, "the name or the password is wrong");
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        return Err(Failure::not_logged_in());
    }
    if app.users.is_administrator(&name) { Ok(()) } else { Err(Failure::no_administrator(&name)) }
}
