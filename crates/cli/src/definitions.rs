//! `polylogue definitions`

use super::Failure;
use super::args::{DefinitionsCommand, ExportArgs, ImportArgs};
use super::output::Out;
use crate::client::http::segment;
use serde_json::{Map, Value, json};
use std::fs::OpenOptions;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The longest file of definitions, as the server takes it. Bytes.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// What is counted, in the order in which it is shown.
const KINDS: [(&str, &str); 8] = [
    ("vhosts", "virtual hosts"),
    ("users", "users"),
    ("permissions", "permissions"),
    ("exchanges", "exchanges"),
    ("queues", "queues"),
    ("bindings", "bindings"),
    ("policies", "policies"),
    ("parameters", "parameters"),
];

pub(super) fn run(command: &DefinitionsCommand, out: &Out) -> Result<(), Failure> {
    match command {
        DefinitionsCommand::Export(args) => export(args, out),
        DefinitionsCommand::Import(args) => import(args, out),
    }
}

fn path(vhost: Option<&str>) -> (String, String) {
    match vhost {
        Some(vhost) => (
            format!("/definitions/{}", segment(vhost)),
            format!("there is no virtual host {vhost} (`polylogue vhost list`)"),
        ),
        None => ("/definitions".to_owned(), "the server has no definitions".to_owned()),
    }
}

fn export(args: &ExportArgs, out: &Out) -> Result<(), Failure> {
    let (path, missing) = path(args.vhost.as_deref());
    let definitions: Value = args.at.management()?.get(&path, &missing)?;
    let Some(file) = &args.file else { return out.value(&definitions) };
    let on = |e: io::Error| Failure::Other(format!("{}: {e}", file.display()));
    // It contains hashes of passwords.
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(on)?;
    writeln!(target, "{definitions:#}").map_err(on)?;
    if out.json {
        return out.value(&json!({ "file": file.display().to_string(), "counts": counts(&definitions) }));
    }
    out.line(&format!("exported {} to {}", listed(&definitions), file.display()))
}

fn import(args: &ImportArgs, out: &Out) -> Result<(), Failure> {
    let text = read(&args.file)?;
    let wrong = |e: serde_json::Error| Failure::Other(format!("{} is not JSON: {e}", args.file.display()));
    let definitions: Value = serde_json::from_str(&text).map_err(wrong)?;
    let (path, missing) = path(args.vhost.as_deref());
    args.at.management()?.post(&path, &definitions, &missing)?;
    if out.json {
        return out.value(&json!({ "imported": counts(&definitions) }));
    }
    out.line(&format!("imported {}", listed(&definitions)))
}

fn read(file: &Path) -> Result<String, Failure> {
    let on = |e: io::Error| Failure::Other(format!("{}: {e}", file.display()));
    let mut text = String::new();
    let input: &mut dyn Read = match file == Path::new("-") {
        true => &mut io::stdin().lock(),
        false => &mut OpenOptions::new().read(true).open(file).map_err(on)?,
    };
    let len = input.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(on)? as u64;
    if len > FILE_BYTES_MAX {
        return Err(Failure::Usage(format!("{} is longer than {FILE_BYTES_MAX} bytes", file.display())));
    }
    Ok(text)
}

fn counts(definitions: &Value) -> Map<String, Value> {
    let count = |kind: &str| definitions.get(kind).and_then(Value::as_array).map_or(0, Vec::len);
    KINDS.iter().map(|(kind, _)| ((*kind).to_owned(), count(kind).into())).collect()
}

/// Lists what there is any of.
fn listed(definitions: &Value) -> String {
    let counts = counts(definitions);
    let count = |kind: &str| counts.get(kind).and_then(Value::as_u64).unwrap_or(0);
    let some: Vec<_> = KINDS
        .iter()
        .filter(|(kind, _)| count(kind) > 0)
        .map(|(kind, noun)| match (count(kind), *noun) {
            (1, "policies") => "1 policy".to_owned(),
            (1, noun) => format!("1 {}", noun.trim_end_matches('s')),
            (many, noun) => format!("{many} {noun}"),
        })
        .collect();
    if some.is_empty() { "nothing".to_owned() } else { some.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_listed() {
        assert_eq!(
            listed(&json!({ "queues": [1], "policies": [1], "users": [1, 2], "bindings": [] })),
            "2 users, 1 queue, 1 policy"
        );
        assert_eq!(listed(&json!({})), "nothing");
    }
}
