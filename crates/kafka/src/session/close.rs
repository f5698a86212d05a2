//! The reasons for which a session closes its connection.

use polylogue_kafka_codec::{ApiKey, DecodeError, EncodeError, ErrorCode};
use std::fmt;

/// Why the session closes a connection. Earlier requests are answered first, unless the peer no longer receives or sends
/// anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// A frame longer than `request_bytes_max`, or of negative length. Nothing was allocated for it.
    FrameLength(DecodeError),
    /// A malformed request header, or an unknown API.
    Header(DecodeError),
    /// An API or version that is not advertised. Kafka closes the connection too.
    Unsupported {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
    },
    /// A malformed body.
    Body {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// The error, with its position.
        error: DecodeError,
    },
    /// A produce request with acks=0 failed. It has no response: closing is the only way to signal the error.
    Produce {
        /// The error of the first partition that failed.
        error: ErrorCode,
    },
    /// A request before the login, on a listener that requires one. Kafka closes the connection
    /// too.
    NotLoggedIn {
        /// The API.
        api: ApiKey,
    },
    /// A login failed.
    Login {
        /// The reason, for the operator.
        why: String,
    },
    /// No request arrived and no response was received within `connections.max.idle.ms`.
    Idle {
        /// Time without activity. Milliseconds.
        idle_ms: u64,
    },
    /// A response could not be encoded in the requested version: an internal error.
    Encode {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// The encoding error.
        error: EncodeError,
    },
    /// The broker's reply does not match the request: an internal error.
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
            CloseReason::Unsupported { api, version } => write!(f, "{api} version {version} is not supported"),
            CloseReason::Body { api, version, error } => write!(f, "{api} version {version} is malformed: {error}"),
            CloseReason::Produce { error } => {
                write!(f, "a produce request with acks=0 failed with {}: {}", error.name(), error.message())
            }
            CloseReason::NotLoggedIn { api } => {
                write!(f, "{api} before a login; the client needs a SASL mechanism and a user")
            }
            CloseReason::Login { why } => write!(f, "a login failed: {why}"),
            CloseReason::Idle { idle_ms } => {
                write!(f, "idle for {idle_ms} ms, the most that connections.max.idle.ms allows")
            }
            CloseReason::Encode { api, version, error } => {
                write!(f, "the response to {api} version {version} cannot be encoded: {error}")
            }
            CloseReason::Reply { api } => write!(f, "the broker's reply does not match the request {api}"),
        }
    }
}

impl std::error::Error for CloseReason {}
