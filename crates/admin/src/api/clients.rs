//! Client connections, and sessions of the console.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `GET /connections`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Sorted by id.
    pub connections: Vec<Connection>,
    /// Number of connections that match, before `offset` and `limit` are applied.
    pub total: usize,
}

/// A client connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Unique for the life of the process.
    pub id: u64,
    /// The protocol.
    pub protocol: String,
    /// Whether the connection uses TLS.
    pub tls: bool,
    /// The client's address.
    pub peer: String,
    /// The local address.
    pub local: String,
    /// When the connection was accepted. Milliseconds since 1970.
    pub since_ms: i64,
    /// The user that is logged in.
    pub user: Option<String>,
    /// The client id (Kafka) or connection name (AMQP).
    pub client: Option<String>,
    /// The client library and its version, as the client reports them.
    pub software: Option<String>,
    /// The virtual host, if the protocol has any.
    pub vhost: Option<String>,
    /// Open channels, if the protocol has any.
    pub channels: Option<usize>,
}

/// `POST /session`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    /// The user.
    pub name: String,
    /// The user's password.
    pub password: String,
}

impl fmt::Debug for LogIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogIn").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `GET /session`, and the response to `POST /session`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Whether this listener requires a login.
    pub asks: bool,
    /// The user that is logged in.
    pub name: Option<String>,
}
