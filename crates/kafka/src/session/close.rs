//! Why a session ends a connection.

use crate::codec::{ApiKey, DecodeError, EncodeError, ErrorCode};
use std::fmt;

/// Why a connection is closed from our side. What was asked before is answered first, except when the peer itself no
/// longer takes or sends anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// A frame that is longer than `request_bytes_max`, or of negative length. Nothing was allocated for it.
    FrameLength(DecodeError),
    /// A request header that is none, or an unknown API.
    Header(DecodeError),
    /// An API or a version of it that was not advertised (Kafka closes the connection too).
    Unsupported {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
    },
    /// The body is not what its API and version demand.
    Body {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// What is wrong, and where.
        error: DecodeError,
    },
    /// A produce request with acks=0 failed. It has no response, so that this is how its producer hears of it.
    Produce {
        /// What went wrong with the first partition that failed.
        error: ErrorCode,
    },
    /// A request that requires a login came before one, on a listener that requires logins. Kafka closes the
    /// connection too.
    NotLoggedIn {
        /// The API.
        api: ApiKey,
    },
    /// A login failed.
    Login {
        /// Why, for the operator.
        why: String,
    },
    /// Nothing was finished for `connections.max.idle.ms`: no whole request came, or no answer was taken.
    Idle {
        /// For how long. Milliseconds.
        idle_ms: u64,
    },
    /// A response that cannot be written at the version that was asked for: a fault of ours.
    Encode {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// What does not fit.
        error: EncodeError,
    },
    /// The broker's reply does not answer what was asked: a fault of ours.
    Reply {
        /// The API.
        api: ApiKey,
    },
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::FrameLength(error) => {
                write!(f, "{error}; raise socket.request.max.bytes if a client needs it")
            }
            CloseReason::Header(error) => write!(f, "not a Kafka request: {error}"),
            CloseReason::Unsupported { api, version } => write!(f, "{api} version {version} is not served here"),
            CloseReason::Body { api, version, error } => write!(f, "{api} version {version} is malformed: {error}"),
            CloseReason::Produce { error } => {
                write!(f, "a produce request with acks=0 failed with {}: {}", error.name(), error.message())
            }
            CloseReason::NotLoggedIn { api } => {
                write!(f, "{api} came from a client that has not logged in; it needs a SASL mechanism and a user")
            }
            CloseReason::Login { why } => write!(f, "a login failed: {why}"),
            CloseReason::Idle { idle_ms } => {
                write!(f, "idle for {idle_ms} ms, the most that connections.max.idle.ms allows")
            }
            CloseReason::Encode { api, version, error } => {
                write!(f, "the response to {api} version {version} cannot be written: {error}")
            }
            CloseReason::Reply { api } => write!(f, "the broker's reply to {api} answers something else"),
        }
    }
}

impl std::error::Error for CloseReason {}
