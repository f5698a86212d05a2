//! Reports that the console lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /reports`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reports {
    /// Whether there is a directory for them (`server.http_reports`).
    pub enabled: bool,
    /// The newest first; they are at `/reports/NAME`, beside the API.
    pub reports: Vec<Report>,
}

/// A report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The name of its file.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// When it was written. Milliseconds since 1970.
    pub modified_ms: i64,
}
