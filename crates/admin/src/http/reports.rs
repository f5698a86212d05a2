//! Reports shown in the console, such as those of `polylogue-bench report --html`: the HTML files of one directory (`server.http_reports`).

use super::App;
use super::error::Failure;
use crate::api::reports::{Report, Reports};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::fs;
use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// File name suffix of reports.
const SUFFIX: &str = ".html";
/// The maximum number of reports listed; the newest are kept.
const REPORTS_MAX: usize = 1_000;
/// The largest report that is listed and served. Bytes.
const REPORT_BYTES_MAX: u64 = 64 << 20;
/// Allows inline scripts in a sandbox: the report has an opaque origin, without cookies or network access.
const POLICY: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts allow-popups; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
     frame-ancestors 'none'",
);

fn broken(error: &io::Error) -> Failure {
    Failure::internal(format!("server.http_reports: {error}"))
}

/// Returns the report for a directory entry: a regular file, no link, within the size limit.
fn report(entry: &fs::DirEntry) -> io::Result<Option<Report>> {
    let name = entry.file_name().to_string_lossy().into_owned();
    if !name.ends_with(SUFFIX) || !entry.file_type()?.is_file() {
        return Ok(None);
    }
    let data = entry.metadata()?;
    if data.len() > REPORT_BYTES_MAX {
        return Ok(None);
    }
    let since = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Some(Report { name, bytes: data.len(), modified_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX) }))
}

fn all(directory: &FilePath) -> io::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for entry in fs::read_dir(directory)? {
        // A file that was deleted meanwhile is skipped.
        reports.extend(report(&entry?).ok().flatten());
    }
    reports.sort_by(|a, b| b.modified_ms.cmp(&a.modified_ms).then_with(|| a.name.cmp(&b.name)));
    reports.truncate(REPORTS_MAX);
    Ok(reports)
}

/// Runs blocking disk work on another thread.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|e| broken(&e)),
        Err(_) => Err(Failure::internal("the server is stopping".to_owned())),
    }
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Reports>, Failure> {
    let Some(directory) = app.reports.clone() else {
        return Ok(Json(Reports { enabled: false, reports: Vec::new() }));
    };
    Ok(Json(Reports { enabled: true, reports: aside(move || all(&directory)).await? }))
}

/// Returns the content of a listed report. The name is compared with the list and not used as a path.
fn content(directory: &FilePath, name: &str) -> io::Result<Option<Vec<u8>>> {
    if !all(directory)?.iter().any(|report| report.name == name) {
        return Ok(None);
    }
    fs::read(directory.join(name)).map(Some)
}

pub(super) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let unknown = Failure::not_found(format!("there is no report {name}"));
    let Some(directory) = app.reports.clone() else { return Err(unknown) };
    let Some(content) = aside(move || content(&directory, &name)).await? else { return Err(unknown) };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, content).into_response())
}
