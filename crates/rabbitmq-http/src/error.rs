//! Error responses, in RabbitMQ's format: `{"error": ..., "reason": ...}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use polylogue_amqp::refusal::{Code, Refusal};
use polylogue_amqp_model::{Code as ModelCode, Refused};
use polylogue_api::Unavailable;
use serde_json::{Value, json};

/// The challenge of a login.
const REALM: HeaderValue = HeaderValue::from_static("Basic realm=\"RabbitMQ Management\"");

/// An error response.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) error: &'static str,
    pub(super) reason: String,
    /// A field besides `error` and `reason`.
    more: Option<Box<(&'static str, Value)>>,
    header: Option<Header>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Header {
    AskForLogin,
    Allow(&'static str),
}

impl Failure {
    fn new(status: StatusCode, error: &'static str, reason: impl Into<String>) -> Failure {
        Failure { status, error, reason: reason.into(), more: None, header: None }
    }

    /// 400
    pub(super) fn bad(reason: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    /// 400 for an invalid page.
    pub(super) fn bad_page(error: &'static str, reason: String) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, error, reason)
    }

    /// 400 for a body with missing keys.
    pub(super) fn missing_keys(keys: &[&str]) -> Failure {
        let keys: Vec<String> = keys.iter().map(|key| format!("{{key_missing,{key}}}")).collect();
        Failure::bad(format!("[{}]", keys.join(",")))
    }

    /// 401 for an unknown user.
    pub(super) fn not_logged_in() -> Failure {
        let failure = Failure::new(StatusCode::UNAUTHORIZED, "not_authorized", "Login failed");
        Failure { header: Some(Header::AskForLogin), ..failure }
    }

    /// 401 for a user without permission.
    pub(super) fn not_authorised(reason: &str) -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, "not_authorised", reason)
    }

    /// 404 for an unknown path or object.
    pub(super) fn not_found() -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "Object Not Found", "Not Found")
    }

    /// 404 for an unknown object, with a reason.
    pub(super) fn named_not_found(reason: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    /// 405; `allow` lists the supported methods.
    pub(super) fn method_not_allowed(allow: &'static str) -> Failure {
        let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method Not Allowed");
        Failure { header: Some(Header::Allow(allow)), ..failure }
    }

    /// 412 for a protected object.
    pub(super) fn precondition_failed(reason: impl Into<String>) -> Failure {
        Failure::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", reason)
    }

    /// 400, as in RabbitMQ, for a body that is too large.
    pub(super) fn too_large() -> Failure {
        Failure::bad("Exceeded HTTP request body size limit")
    }

    /// 503 for a failed health check.
    pub(super) fn unhealthy(reason: &str, more: Option<(&'static str, Value)>) -> Failure {
        let more = more.map(Box::new);
        Failure { more, ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, "failed", reason) }
    }

    /// 503 before the broker has started.
    pub(super) fn starting() -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", "the server is starting")
    }

    /// 504
    pub(super) fn timeout() -> Failure {
        let text = "the broker did not answer in time; the change may or may not have taken effect";
        Failure::new(StatusCode::GATEWAY_TIMEOUT, "timeout", text)
    }

    /// 500
    pub(super) fn internal(reason: &str) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", reason)
    }

    pub(super) fn unavailable(why: Unavailable) -> Failure {
        let reason = match why {
            Unavailable::StorageFull => "the disk is full",
            Unavailable::Unknown => "the outcome is unknown: check whether the change took effect",
            Unavailable::NotCommitted => "the change did not take effect: try again",
            Unavailable::Busy => "the broker is overloaded: try again",
            Unavailable::TooLarge => "it is larger than the largest record of the log",
            Unavailable::Stopping => "the server is stopping",
        };
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
    }

    /// Maps the refusal of a management command.
    pub(super) fn refused(refused: &Refused) -> Failure {
        match refused.code {
            ModelCode::NotFound => Failure::not_found(),
            ModelCode::AccessRefused | ModelCode::NotAllowed => Failure::not_authorised("Access refused."),
            _ => Failure::bad(refused.text.as_str()),
        }
    }

    /// Maps the refusal of a declaration: like RabbitMQ, the text without the code.
    pub(super) fn declaration(refusal: &Refusal) -> Failure {
        match refusal.code {
            Code::NotFound => Failure::named_not_found(refusal.text.as_str()),
            Code::AccessRefused | Code::NotAllowed => Failure::not_authorised("Access refused."),
            Code::InternalError => Failure::internal(&refusal.text),
            _ => Failure::bad(refusal.text.as_str()),
        }
    }

    /// Maps a channel error: like RabbitMQ, the reply text.
    pub(super) fn channel(refusal: &Refusal) -> Failure {
        let text = refusal.reply_text().to_string();
        match refusal.code {
            Code::NotFound => Failure::named_not_found(text),
            Code::AccessRefused => Failure::not_authorised(&text),
            Code::InternalError => Failure::internal(&text),
            code => Failure::bad(format!("{} {text}", code.number())),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        // Health checks have the field `status` in place of `error`.
        let name = if self.error == "failed" { "status" } else { "error" };
        let mut body = json!({ name: self.error, "reason": self.reason });
        if let (Some(more), Some(body)) = (self.more, body.as_object_mut()) {
            body.insert(more.0.to_owned(), more.1);
        }
        let mut response = (self.status, Json(body)).into_response();
        let (name, value) = match self.header {
            None => return response,
            Some(Header::AskForLogin) => (header::WWW_AUTHENTICATE, REALM),
            Some(Header::Allow(methods)) => (header::ALLOW, HeaderValue::from_static(methods)),
        };
        response.headers_mut().insert(name, value);
        response
    }
}
