//! Those who are connected, and who is logged in at the console.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `GET /connections`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// By id.
    pub connections: Vec<Connection>,
    /// How many there are, those left out by `offset` and `limit` included.
    pub total: usize,
}

/// A connection of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Its own for the life of the process.
    pub id: u64,
    /// What is spoken.
    pub protocol: String,
    /// Whether over TLS.
    pub tls: bool,
    /// Where it comes from.
    pub peer: String,
    /// Where it arrived.
    pub local: String,
    /// Since when. Milliseconds since 1970.
    pub since_ms: i64,
    /// Who has logged in.
    pub user: Option<String>,
    /// How the client calls itself.
    pub client: Option<String>,
    /// What it runs, as it says.
    pub software: Option<String>,
    /// The virtual host, where the protocol has such.
    pub vhost: Option<String>,
    /// Open channels, where the protocol has such.
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

/// `GET /session`, and what `POST /session` answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Whether this listener requires a login.
    pub asks: bool,
    /// Who is logged in.
    pub name: Option<String>,
}
