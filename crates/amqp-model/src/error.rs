//! Refusals, with the texts of RabbitMQ: clients and test suites match on them.
//!
//! A reply on the wire is `NAME - text`, at most [`REPLY_TEXT_BYTES_MAX`] bytes of it.

use std::fmt;

/// The longest reply text of `channel.close` and `connection.close` (a short string). Bytes.
pub const REPLY_TEXT_BYTES_MAX: usize = 255;

/// The kind of refusal: reply codes of AMQP 0-9-1, and one of the management API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// An invalid management request. Never sent to an AMQP client.
    BadRequest,
    /// 403
    AccessRefused,
    /// 404
    NotFound,
    /// 405
    ResourceLocked,
    /// 406
    PreconditionFailed,
    /// 530
    NotAllowed,
    /// 540
    NotImplemented,
}

impl Code {
    /// The reply code.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Code::BadRequest => 400,
            Code::AccessRefused => 403,
            Code::NotFound => 404,
            Code::ResourceLocked => 405,
            Code::PreconditionFailed => 406,
            Code::NotAllowed => 530,
            Code::NotImplemented => 540,
        }
    }

    /// The name that reply texts start with.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Code::BadRequest => "BAD_REQUEST",
            Code::AccessRefused => "ACCESS_REFUSED",
            Code::NotFound => "NOT_FOUND",
            Code::ResourceLocked => "RESOURCE_LOCKED",
            Code::PreconditionFailed => "PRECONDITION_FAILED",
            Code::NotAllowed => "NOT_ALLOWED",
            Code::NotImplemented => "NOT_IMPLEMENTED",
        }
    }

    /// Whether it closes the connection, not only the channel.
    #[must_use]
    pub fn is_hard(self) -> bool {
        matches!(self, Code::NotAllowed | Code::NotImplemented)
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The kind.
    pub code: Code,
    /// The text without the name of the kind.
    pub text: String,
}

impl Refused {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Refused {
        Refused { code, text: text.into() }
    }

    /// A refusal with code 406.
    pub(crate) fn precondition(text: impl Into<String>) -> Refused {
        Refused::new(Code::PreconditionFailed, text)
    }

    /// A refusal with code 403.
    pub(crate) fn access(text: impl Into<String>) -> Refused {
        Refused::new(Code::AccessRefused, text)
    }

    /// The refusal of an invalid management request.
    pub(crate) fn bad(text: impl Into<String>) -> Refused {
        Refused::new(Code::BadRequest, text)
    }

    /// 404 for a resource of a virtual host.
    pub(crate) fn not_found(what: &Named<'_>) -> Refused {
        Refused::new(Code::NotFound, format!("no {what}"))
    }

    /// Returns the `reply-text`: the name of the kind and as much of the text as fits, cut between characters.
    #[must_use]
    pub fn reply_text(&self) -> String {
        let mut text = self.to_string();
        if text.len() > REPLY_TEXT_BYTES_MAX {
            let end = (0..=REPLY_TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
        }
        text
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.code.name(), self.text)
    }
}

impl std::error::Error for Refused {}

/// The type of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// A queue.
    Queue,
    /// An exchange.
    Exchange,
}

impl Resource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Resource::Queue => "queue",
            Resource::Exchange => "exchange",
        }
    }
}

/// A resource in error texts: `queue 'q' in vhost '/'`.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its type.
    pub kind: Resource,
    /// Its name.
    pub name: &'a str,
    /// The name of its virtual host.
    pub vhost: &'a str,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}' in vhost '{}'", self.kind.name(), self.name, self.vhost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_text_is_cut_between_characters() {
        let refused = Refused::precondition("ü".repeat(200));
        let text = refused.reply_text();
        assert!(text.len() <= REPLY_TEXT_BYTES_MAX && text.len() >= REPLY_TEXT_BYTES_MAX - 1);
        assert!(text.starts_with("PRECONDITION_FAILED - ü"));
    }

    #[test]
    fn names_read_as_rabbitmq_writes_them() {
        let named = Named { kind: Resource::Queue, name: "q", vhost: "/" };
        assert_eq!(Refused::not_found(&named).to_string(), "NOT_FOUND - no queue 'q' in vhost '/'");
    }
}
