//! Error responses.

use crate::api::{ErrorBody, ErrorObject};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use polylogue_amqp::refusal::Code as AmqpCode;
use polylogue_amqp_model::Code as ModelCode;
use polylogue_api::Unavailable;
use polylogue_kafka_codec::ErrorCode;
use polylogue_net::declared::Fault;

/// Text for a request that timed out in the broker.
pub(super) const NO_ANSWER: &str = "the broker did not answer in time; the change may or may not have taken effect";

/// Returns the text for a request that the broker cannot serve now.
pub(super) fn text_of(why: Unavailable) -> &'static str {
    match why {
        Unavailable::StorageFull => "the disk is full",
        Unavailable::Unknown => "the outcome is unknown: check whether the change took effect",
        Unavailable::NotCommitted => "the change did not take effect: try again",
        Unavailable::Busy => "the broker is overloaded: try again",
        Unavailable::TooLarge => "it is larger than the largest record of the log",
        Unavailable::Stopping => "the server is stopping",
    }
}

/// An error response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Failure {
    fn new(status: StatusCode, code: &'static str, message: String) -> Failure {
        Failure { status, code, message }
    }

    pub(super) fn not_found(message: String) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn unknown_topic(name: &str) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "unknown_topic", format!("there is no topic {name}"))
    }

    pub(super) fn unknown_vhost(name: &str) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "unknown_vhost", format!("there is no virtual host {name}"))
    }

    pub(super) fn unknown_queue(name: &str) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "unknown_queue", format!("there is no queue {name}"))
    }

    pub(super) fn unknown_exchange(name: &str) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "unknown_exchange", format!("there is no exchange {name}"))
    }

    pub(super) fn unknown_group(name: &str) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "unknown_group", format!("there is no group {name}"))
    }

    pub(super) fn group_not_empty(message: String) -> Failure {
        Failure::new(StatusCode::CONFLICT, "group_not_empty", message)
    }

    pub(super) fn conflict(code: &'static str, text: &str) -> Failure {
        Failure::new(StatusCode::CONFLICT, code, text.to_owned())
    }

    pub(super) fn forbidden(message: String) -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn method_not_allowed(message: String) -> Failure {
        Failure::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", message)
    }

    pub(super) fn invalid(message: String) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(super) fn not_logged_in() -> Failure {
        let text =
            "login required: send the name and password of an administrator (HTTP basic authentication), or a token";
        Failure::new(StatusCode::UNAUTHORIZED, "not_logged_in", text.to_owned())
    }

    pub(super) fn wrong_login() -> Failure {
        let text = "the name or the password is wrong";
        Failure::new(StatusCode::UNAUTHORIZED, "wrong_login", text.to_owned())
    }

    pub(super) fn wrong_token() -> Failure {
        let text = "the token is not accepted: it has expired, or is not for this server; the server's log says why";
        Failure::new(StatusCode::UNAUTHORIZED, "not_logged_in", text.to_owned())
    }

    pub(super) fn no_administrator(name: &str) -> Failure {
        let text = format!(
            "{name} is not an administrator: the user needs the tag \"administrator\", a token oauth.administrator_scope"
        );
        Failure::new(StatusCode::FORBIDDEN, "forbidden", text)
    }

    pub(super) fn timeout(message: &str) -> Failure {
        Failure::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message.to_owned())
    }

    pub(super) fn too_many_tries() -> Failure {
        let text = "too many failed logins with this name from this address: try again later";
        Failure::new(StatusCode::TOO_MANY_REQUESTS, "not_logged_in", text.to_owned())
    }

    pub(super) fn slow(message: &str) -> Failure {
        Failure::new(StatusCode::REQUEST_TIMEOUT, "timeout", message.to_owned())
    }

    pub(super) fn busy(message: &str) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message.to_owned())
    }

    pub(super) fn internal(message: String) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(super) fn unavailable(why: Unavailable) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", text_of(why).to_owned())
    }

    pub(super) fn starting() -> Failure {
        let text = "the server is starting: try again when /readyz returns 200";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", text.to_owned())
    }

    /// Maps an AMQP error to a response.
    pub(super) fn refused(code: AmqpCode, text: &str) -> Failure {
        let (status, name) = match code {
            AmqpCode::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            AmqpCode::AccessRefused => (StatusCode::FORBIDDEN, "forbidden"),
            AmqpCode::ResourceLocked => (StatusCode::CONFLICT, "locked"),
            AmqpCode::PreconditionFailed => (StatusCode::CONFLICT, "precondition_failed"),
            AmqpCode::InternalError => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            _ => (StatusCode::BAD_REQUEST, "invalid_request"),
        };
        Failure::new(status, name, text.to_owned())
    }

    /// Maps a Kafka error code of a request about a topic to a response, which names the topic if it is unknown. `None` for no error.
    pub(super) fn of_topic(name: &str, code: i16, message: Option<&str>) -> Option<Failure> {
        match ErrorCode::from_code(code) {
            Some(ErrorCode::UnknownTopicOrPartition) => Some(Failure::unknown_topic(name)),
            _ => Failure::of_kafka(code, message),
        }
    }

    /// Maps a Kafka error code to a response. `None` for no error.
    pub(super) fn of_kafka(code: i16, message: Option<&str>) -> Option<Failure> {
        let error = match ErrorCode::from_code(code) {
            Some(ErrorCode::None) => return None,
            Some(error) => error,
            None => return Some(Failure::internal(format!("Kafka error {code}"))),
        };
        let (status, name) = match error {
            ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => (StatusCode::NOT_FOUND, "unknown_topic"),
            ErrorCode::GroupIdNotFound => (StatusCode::NOT_FOUND, "unknown_group"),
            ErrorCode::TopicAlreadyExists => (StatusCode::CONFLICT, "topic_exists"),
            ErrorCode::TopicDeletionDisabled => (StatusCode::FORBIDDEN, "forbidden"),
            ErrorCode::InvalidTopicException
            | ErrorCode::InvalidPartitions
            | ErrorCode::InvalidReplicationFactor
            | ErrorCode::InvalidReplicaAssignment
            | ErrorCode::InvalidConfig
            | ErrorCode::InvalidRequest
            | ErrorCode::InvalidGroupId
            | ErrorCode::PolicyViolation => (StatusCode::BAD_REQUEST, "invalid_request"),
            other if other.retriable() => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let message = message.filter(|text| !text.is_empty()).unwrap_or(error.message());
        Some(Failure::new(status, name, message.to_owned()))
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        match fault {
            Fault::Unavailable(why) => Failure::unavailable(why),
            Fault::Timeout => Failure::timeout(NO_ANSWER),
            Fault::Internal(why) => Failure::internal(why),
            Fault::Refused(why) => match why.code {
                ModelCode::NotFound => Failure::not_found(why.text),
                ModelCode::AccessRefused => Failure::refused(AmqpCode::AccessRefused, &why.text),
                ModelCode::PreconditionFailed => Failure::refused(AmqpCode::PreconditionFailed, &why.text),
                ModelCode::ResourceLocked => Failure::refused(AmqpCode::ResourceLocked, &why.text),
                ModelCode::BadRequest | ModelCode::NotAllowed | ModelCode::NotImplemented => Failure::invalid(why.text),
            },
        }
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Failure {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let text = "the body is larger than server.http_body_bytes_max";
                Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text.to_owned())
            }
            _ => Failure::invalid(rejection.body_text()),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let error = ErrorObject { code: self.code.to_owned(), message: self.message };
        (self.status, Json(ErrorBody { error })).into_response()
    }
}
