//! The console: static pages compiled into the binary, which use the API. They contain no data, so that they are served without a login.

use super::error::Failure;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

/// Path of the console.
pub(super) const PREFIX: &str = "/console";

/// The page for the directory itself.
const INDEX: &str = "index.html";

/// Allows neither inline scripts, nor content of other origins, nor framing.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// An embedded file.
struct File {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(File { name: $name, bytes: include_bytes!(concat!("../../console/", $name)) }),*]
    };
}

const FILES: &[File] = files![
    "index.html",
    "style.css",
    "icon.svg",
    "vendor/htm-preact.js",
    "app.js",
    "api.js",
    "charts.js",
    "format.js",
    "parts.js",
    "pages/overview.js",
    "pages/topics.js",
    "pages/topic.js",
    "pages/messages.js",
    "pages/groups.js",
    "pages/queues.js",
    "pages/queue.js",
    "pages/exchanges.js",
    "pages/connections.js",
    "pages/users.js",
    "pages/settings.js",
    "pages/reports.js",
];

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Returns the file's `ETag`.
fn tag(file: &File) -> String {
    // FNV-1a; a collision is harmless.
    let hash = file
        .bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("\"{hash:016x}\"")
}

fn found(name: &str, headers: &HeaderMap) -> Option<Response> {
    let file = FILES.iter().find(|file| file.name == name)?;
    let tag = tag(file);
    let has_it = headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let mut response = match has_it {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => file.bytes.into_response(),
    };
    let always: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind(name))),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    for (name, value) in always {
        response.headers_mut().insert(name, value);
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Some(response)
}

/// Serves a file.
pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    found(&name, &headers)
        .unwrap_or_else(|| Failure::not_found(format!("there is no page {PREFIX}/{name}")).into_response())
}

/// Serves the index page.
pub(super) async fn index(headers: HeaderMap) -> Response {
    found(INDEX, &headers).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
}

/// Redirects clients that request `/`.
pub(super) async fn root() -> Redirect {
    Redirect::temporary("/console/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path as FilePath;

    fn names(at: &FilePath, within: &str, all: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{within}{}", entry.file_name().to_string_lossy());
            match entry.file_type().unwrap().is_dir() {
                true => names(&entry.path(), &format!("{name}/"), all),
                false => drop(all.insert(name)),
            }
        }
    }

    #[test]
    fn every_file_is_in_the_binary_and_takes_nothing_from_elsewhere() {
        let mut all = BTreeSet::new();
        names(&FilePath::new(env!("CARGO_MANIFEST_DIR")).join("console"), "", &mut all);
        all.retain(|name| kind(name) != "application/octet-stream");
        assert_eq!(all, FILES.iter().map(|file| file.name.to_owned()).collect());
        for file in FILES.iter().filter(|file| !file.name.starts_with("vendor/")) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            let elsewhere = text.matches("http://").count() + text.matches("https://").count();
            let names_of_svg = text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(elsewhere, names_of_svg, "{}", file.name);
            assert!(!text.contains("innerHTML"), "{}", file.name);
        }
    }

    #[test]
    fn a_browser_that_has_a_file_is_told_so() {
        let mut headers = HeaderMap::new();
        let first = found("app.js", &headers).unwrap();
        assert_eq!(
            (first.status(), first.headers()[header::CONTENT_TYPE].to_str().unwrap()),
            (StatusCode::OK, kind("a.js"))
        );
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(found("app.js", &headers).unwrap().status(), StatusCode::NOT_MODIFIED);
        assert_eq!(found("style.css", &headers).unwrap().status(), StatusCode::OK);
        assert!(found("../Cargo.toml", &headers).is_none());
    }
}
