//! Reports listed in the console.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /reports`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reports {
    /// Whether a report directory is configured (`server.http_reports`).
    pub enabled: bool,
    /// The newest first; served at `/reports/NAME`, outside the API.
    pub reports: Vec<Report>,
}

/// A report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The file name.
    pub name: String,
    /// Length of the file. Bytes.
    pub bytes: u64,
    /// Modification time. Milliseconds since 1970.
    pub modified_ms: i64,
}
