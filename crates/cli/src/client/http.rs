//! A client of polylogue's HTTP API.

use super::{CERTIFICATE, ClientError, Login, UNREACHABLE};
use polylogue_admin::api::{ErrorBody, PREFIX};
use polylogue_admin::basic::header_of;
use polylogue_net::trust;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use ureq::SendBody;
use ureq::http::header::AUTHORIZATION;
use ureq::http::{HeaderValue, Request};
use ureq::middleware::MiddlewareNext;

/// Timeout for a response.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout for a streaming response: longer than any timeout of the server.
const STREAM_PATIENCE: Duration = Duration::from_secs(25 * 3_600);
/// The API's code for a wrong name or password.
pub(super) const WRONG_LOGIN: &str = "wrong_login";
/// The beginning of all paths of RabbitMQ's management API.
const MANAGEMENT_PREFIX: &str = "/api";
/// The maximum size of a response. Bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// A client of a server's http listener.
#[derive(Debug)]
pub struct HttpClient {
    server: String,
    /// Or the error in the arguments that describe the server.
    agent: Result<ureq::Agent, ClientError>,
    /// The error for a wrong login, if no password was given.
    blank: Option<ClientError>,
    /// The beginning of all paths.
    prefix: &'static str,
}

impl HttpClient {
    /// Creates a client for `http://HOST:PORT`, or `HOST:PORT`, with a login if required. For `https://HOST:PORT` the server's certificate must be
    /// signed by a CA in the file `ca`, or by one that the system trusts.
    #[must_use]
    pub fn new(server: &str, login: Option<&Login>, ca: Option<&Path>) -> HttpClient {
        let server = server.trim_end_matches('/');
        let server = if server.contains("://") { server.to_owned() } else { format!("http://{server}") };
        let mut config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
        // Credentials that cannot be sent in a header are left out: the server refuses the request.
        let value = login.and_then(|login| HeaderValue::try_from(header_of(&login.user, &login.password)).ok());
        if let Some(value) = value {
            config = config.middleware(move |mut request: Request<SendBody<'_>>, next: MiddlewareNext<'_>| {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
                next.handle(request)
            });
        }
        let agent = match server.starts_with("https://") {
            false => Ok(config.build().new_agent()),
            true => trust::agent(config.build(), ca).map_err(|why| ClientError::new("invalid_request", why)),
        };
        HttpClient { server, agent, blank: login.and_then(Login::without_password), prefix: PREFIX }
    }

    /// As [`HttpClient::new`], for RabbitMQ's management API.
    pub(crate) fn management(server: &str, login: &Login, ca: Option<&Path>) -> HttpClient {
        HttpClient { prefix: MANAGEMENT_PREFIX, ..HttpClient::new(server, Some(login), ca) }
    }

    /// Returns the URL of the listener.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Makes a client whose requests all fail.
    pub(crate) fn failed(error: ClientError) -> HttpClient {
        HttpClient { server: String::new(), agent: Err(error), blank: None, prefix: PREFIX }
    }

    /// `GET`.
    ///
    /// # Errors
    /// No response, an error response, or one that is not from polylogue.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.agent()?.get(self.url(path)).call())
    }

    /// Returns the body of a path outside of the API, as text.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn text_of(&self, path: &str) -> Result<String, ClientError> {
        let (status, text) = self.text(self.agent()?.get(format!("{}{path}", self.server)).call())?;
        if status < 300 { Ok(text) } else { Err(self.refused(status, &text)) }
    }

    /// `POST` with a JSON body.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, ClientError> {
        let body = serde_json::to_string(body).map_err(|e| ClientError::new("invalid_request", e.to_string()))?;
        self.read(self.agent()?.post(self.url(path)).header("content-type", "application/json").send(body))
    }

    /// `POST` without a body, answered by a stream.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn stream(&self, path: &str) -> Result<impl Read + use<>, ClientError> {
        let request = self.agent()?.post(self.url(path)).config();
        let request = request.timeout_global(None).timeout_recv_response(Some(PATIENCE));
        let answer = request.timeout_recv_body(Some(STREAM_PATIENCE)).build().send_empty();
        if answer.as_ref().is_ok_and(|response| response.status().as_u16() < 300) {
            let response = answer.map_err(|e| self.unreachable(&e))?;
            return Ok(response.into_body().into_reader());
        }
        let (status, text) = self.text(answer)?;
        Err(self.refused(status, &text))
    }

    /// `POST` with a JSON body; the response's body is ignored.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn tell<B: Serialize>(&self, path: &str, body: &B) -> Result<(), ClientError> {
        let body = serde_json::to_string(body).map_err(|e| ClientError::new("invalid_request", e.to_string()))?;
        let answer = self.agent()?.post(self.url(path)).header("content-type", "application/json").send(body);
        let (status, text) = self.text(answer)?;
        if status < 300 { Ok(()) } else { Err(self.refused(status, &text)) }
    }

    /// `DELETE`; the response has a body.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn take<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.agent()?.delete(self.url(path)).call())
    }

    /// `PUT` with a JSON body; the response's body is ignored.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn put<B: Serialize>(&self, path: &str, body: &B) -> Result<(), ClientError> {
        let body = serde_json::to_string(body).map_err(|e| ClientError::new("invalid_request", e.to_string()))?;
        let answer = self.agent()?.put(self.url(path)).header("content-type", "application/json").send(body);
        let (status, text) = self.text(answer)?;
        if status < 300 { Ok(()) } else { Err(self.refused(status, &text)) }
    }

    /// `PATCH` with a JSON body; the response has no body.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn patch<B: Serialize>(&self, path: &str, body: &B) -> Result<(), ClientError> {
        let body = serde_json::to_string(body).map_err(|e| ClientError::new("invalid_request", e.to_string()))?;
        let answer = self.agent()?.patch(self.url(path)).header("content-type", "application/json").send(body);
        let (status, text) = self.text(answer)?;
        if status < 300 { Ok(()) } else { Err(self.refused(status, &text)) }
    }

    /// `DELETE`; the response has no body.
    ///
    /// # Errors
    /// As [`HttpClient::get`].
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        let (status, text) = self.text(self.agent()?.delete(self.url(path)).call())?;
        if status < 300 { Ok(()) } else { Err(self.refused(status, &text)) }
    }

    fn agent(&self) -> Result<&ureq::Agent, ClientError> {
        self.agent.as_ref().map_err(Clone::clone)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{}{path}", self.server, self.prefix)
    }

    fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, ClientError> {
        let (status, text) = self.text(answer)?;
        if status >= 300 {
            return Err(self.refused(status, &text));
        }
        serde_json::from_str(&text).map_err(|e| self.stranger(&e.to_string()))
    }

    fn text(&self, answer: Answer) -> Result<(u16, String), ClientError> {
        let mut response = answer.map_err(|e| self.unreachable(&e))?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        Ok((status, text.map_err(|e| self.stranger(&e.to_string()))?))
    }

    fn refused(&self, status: u16, text: &str) -> ClientError {
        let error = match (serde_json::from_str::<ErrorBody>(text), serde_json::from_str::<ManagementError>(text)) {
            (Ok(body), _) => ClientError { code: body.error.code, message: body.error.message },
            (Err(_), Ok(error)) if self.prefix == MANAGEMENT_PREFIX => error.of(status),
            _ => return self.stranger(&format!("status {status}")),
        };
        self.blank.clone().filter(|_| error.code == WRONG_LOGIN).unwrap_or(error)
    }

    fn unreachable(&self, error: &ureq::Error) -> ClientError {
        let text = error.to_string();
        let is_secured = self.server.starts_with("https://");
        if let ureq::Error::Io(e) = error
            && let Some(advice) = trust::certificate_advice(e)
        {
            return ClientError::new(CERTIFICATE, format!("cannot trust {}: {e}; {advice}", self.server));
        }
        let hint = if is_secured && text.contains("InvalidContentType") {
            "this listener does not use TLS: use http://"
        } else if !is_secured && matches!(error, ureq::Error::Protocol(_)) {
            "if this listener uses TLS, use https://"
        } else {
            return ClientError::unreachable(&self.server, error);
        };
        ClientError::new(UNREACHABLE, format!("cannot reach {}: {text}; {hint}", self.server))
    }

    fn stranger(&self, what: &str) -> ClientError {
        let text = format!("the response of {} is not polylogue's ({what}); is it the http listener?", self.server);
        ClientError::new("internal", text)
    }
}

/// An error of RabbitMQ's management API.
#[derive(Debug, Deserialize)]
struct ManagementError {
    error: String,
    reason: String,
}

impl ManagementError {
    fn of(self, status: u16) -> ClientError {
        match (status, self.error.as_str()) {
            (404, _) => ClientError::new("not_found", self.reason),
            (401, "not_authorized") => ClientError::new(WRONG_LOGIN, "the name or the password is wrong"),
            (401, _) => ClientError::new("not_permitted", format!("the user may not do this: {}", self.reason)),
            (_, code) => ClientError::new(code, self.reason.trim()),
        }
    }
}

type Answer = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// Encodes a name as a path segment.
#[must_use]
pub fn segment(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_paths() {
        assert_eq!(segment("plain-name_1.2~"), "plain-name_1.2~");
        assert_eq!(segment("a/b c?ä"), "a%2Fb%20c%3F%C3%A4");
    }

    #[test]
    fn an_address_needs_no_scheme() {
        assert_eq!(
            HttpClient::new("localhost:9600/", None, None).url("/topics"),
            "http://localhost:9600/api/v1/topics"
        );
        assert_eq!(HttpClient::new("http://[::1]:1", None, None).url("/x"), "http://[::1]:1/api/v1/x");
    }
}
