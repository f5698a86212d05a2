//! `polylogue connection`

use super::Failure;
use super::args::{CloseConnectionsArgs, ConnectionCommand, ListConnectionsArgs};
use super::output::Out;
use crate::client::ClientError;
use crate::client::http::segment;
use polylogue_admin::api::clients::{Connection, Connections};
use serde_json::json;
use std::time::{Duration, UNIX_EPOCH};

/// The API's code for a connection that does not exist.
const NOT_FOUND: &str = "not_found";

pub(super) fn run(command: &ConnectionCommand, out: &Out) -> Result<(), Failure> {
    match command {
        ConnectionCommand::List(args) => list(args, out),
        ConnectionCommand::Close(args) => close(args, out),
    }
}

fn list(args: &ListConnectionsArgs, out: &Out) -> Result<(), Failure> {
    let search = args.search.as_ref().map_or_else(String::new, |text| format!("?search={}", segment(text)));
    let all: Connections = args.at.client().get(&format!("/connections{search}"))?;
    let row = |one: &Connection| {
        let tls = if one.tls { "+tls" } else { "" };
        let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let since = UNIX_EPOCH + Duration::from_millis(u64::try_from(one.since_ms).unwrap_or(0));
        vec![
            one.id.to_string(),
            format!("{}{tls}", one.protocol),
            one.peer.clone(),
            optional(&one.user),
            optional(&one.client),
            optional(&one.software),
            humantime::format_rfc3339_seconds(since).to_string(),
        ]
    };
    let rows: Vec<_> = all.connections.iter().map(row).collect();
    let head = ["ID", "PROTOCOL", "ADDRESS", "USER", "CLIENT", "SOFTWARE", "SINCE"];
    out.listing(&all, "no connections", &head, &rows)
}

fn close(args: &CloseConnectionsArgs, out: &Out) -> Result<(), Failure> {
    let client = args.at.client();
    for id in &args.ids {
        client.delete(&format!("/connections/{id}")).map_err(|e| match e.code.as_str() {
            NOT_FOUND => ClientError::new(NOT_FOUND, format!("{e} (`polylogue connection list`)")),
            _ => e,
        })?;
        if !out.json {
            out.line(&format!("closed connection {id}"))?;
        }
    }
    if out.json { out.value(&json!({ "closed": args.ids })) } else { Ok(()) }
}
