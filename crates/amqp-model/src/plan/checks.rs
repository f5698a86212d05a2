//! Checks and refusals that several commands share.

use crate::error::{Named, Refused, Resource};
use bytestring::ByteString;
use polylogue_router::{NAME_BYTES_MAX, RouterError};

/// Translates a refusal of the router into RabbitMQ's.
pub(crate) fn refused(error: &RouterError, vhost: &str) -> Refused {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let missing = |kind, name: &[u8]| Refused::not_found(&Named { kind, name: &text(name), vhost });
    match error {
        RouterError::NoExchange(name) => missing(Resource::Exchange, name),
        RouterError::NoQueue(name) => missing(Resource::Queue, name),
        RouterError::DefaultExchange => default_exchange(),
        RouterError::InUse(name) => {
            let named = Named { kind: Resource::Exchange, name: &text(name), vhost };
            Refused::precondition(format!("{named} in use"))
        }
        other => Refused::precondition(other.to_string()),
    }
}

pub(crate) fn default_exchange() -> Refused {
    Refused::access("operation not permitted on the default exchange")
}

/// Removes line breaks, which some clients send, from a name.
pub(crate) fn stripped(name: &ByteString) -> ByteString {
    if name.contains(['\r', '\n']) { ByteString::from(name.replace(['\r', '\n'], "")) } else { name.clone() }
}

/// Checks that the name of a new object is neither empty nor too long.
pub(crate) fn check_length(what: &str, name: &str) -> Result<(), Refused> {
    match name.len() {
        0 => Err(Refused::bad(format!("the name of a {what} cannot be empty"))),
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(Refused::bad(format!("the name of a {what} has at most {NAME_BYTES_MAX} bytes"))),
    }
}

/// Checks that another object may be added.
pub(crate) fn check_count(what: &str, count: usize, max: usize) -> Result<(), Refused> {
    if count < max { Ok(()) } else { Err(Refused::precondition(format!("there can be at most {max} {what}"))) }
}
