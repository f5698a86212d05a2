//! `polylogue shovel` and `polylogue federation`.

use super::Failure;
use super::args::{CreateShovelArgs, FederationCommand, InVhostArgs, ListLinksArgs, ShovelCommand, VhostArgs};
use super::output::Out;
use super::policies::field;
use crate::client::http::segment;
use serde_json::{Map, Value, json};

/// Fields of a shovel's status that are shown first, or in another place.
const SHOWN_FIRST: [&str; 4] = ["name", "vhost", "state", "node"];

pub(super) fn run(command: &ShovelCommand, out: &Out) -> Result<(), Failure> {
    match command {
        ShovelCommand::List(within) => list(within, out),
        ShovelCommand::Status(args) => status(args, out),
        ShovelCommand::Create(args) => create(args, out),
        ShovelCommand::Delete(args) => delete(args, out),
    }
}

pub(super) fn federation(command: &FederationCommand, out: &Out) -> Result<(), Failure> {
    match command {
        FederationCommand::List(args) => links(args, out),
    }
}

fn no_vhost(within: &VhostArgs) -> String {
    format!("there is no virtual host {} (`polylogue vhost list`)", within.vhost)
}

fn no_shovel(name: &str, within: &VhostArgs) -> String {
    format!("there is no shovel {name} in the virtual host {} (`polylogue shovel list`)", within.vhost)
}

/// Formats the source (`src`) or the destination (`dest`) of a shovel.
fn end_of(shovel: &Value, side: &str) -> String {
    let of = |name: &str| field(shovel, &format!("{side}_{name}"));
    let (uri, queue, exchange) = (of("uri"), of("queue"), of("exchange"));
    let target = match (queue.is_empty(), exchange.is_empty()) {
        (false, _) => format!("queue {queue}"),
        (true, false) => format!("exchange {exchange}"),
        (true, true) => String::new(),
    };
    format!("{uri} {target}").trim().to_owned()
}

fn list(within: &VhostArgs, out: &Out) -> Result<(), Failure> {
    let shovels: Vec<Value> =
        within.at.management()?.get(&format!("/shovels/{}", segment(&within.vhost)), &no_vhost(within))?;
    let row = |shovel: &Value| {
        vec![field(shovel, "name"), field(shovel, "state"), end_of(shovel, "src"), end_of(shovel, "dest")]
    };
    let rows: Vec<_> = shovels.iter().map(row).collect();
    out.listing(&json!({ "shovels": shovels }), "no shovels", &["SHOVEL", "STATE", "FROM", "TO"], &rows)
}

fn status(args: &InVhostArgs, out: &Out) -> Result<(), Failure> {
    let management = args.within.at.management()?;
    let mut all = Vec::new();
    for name in &args.names {
        let at = format!("/shovels/{}/{}", segment(&args.within.vhost), segment(name));
        let shovel: Map<String, Value> = management.get(&at, &no_shovel(name, &args.within))?;
        if out.json {
            all.push(shovel);
            continue;
        }
        let state = shovel.get("state").and_then(Value::as_str).unwrap_or("unknown");
        out.line(&format!("{}: {state}", out.bold(name)))?;
        for (key, _) in shovel.iter().filter(|(key, _)| !SHOWN_FIRST.contains(&key.as_str())) {
            out.line(&format!("  {key}: {}", field(&json!(shovel), key)))?;
        }
    }
    if out.json { out.value(&json!({ "shovels": all })) } else { Ok(()) }
}

fn create(args: &CreateShovelArgs, out: &Out) -> Result<(), Failure> {
    let mut value = Map::new();
    let mut put = |key: &str, text: Option<&str>| text.map(|text| value.insert(key.to_owned(), text.into()));
    put("src-uri", Some(&args.from));
    put("src-queue", args.source.from_queue.as_deref());
    put("src-exchange", args.source.from_exchange.as_deref());
    put("src-exchange-key", args.from_key.as_deref());
    put("dest-uri", Some(&args.to));
    put("dest-queue", args.destination.to_queue.as_deref());
    put("dest-exchange", args.destination.to_exchange.as_deref());
    put("dest-exchange-key", args.to_key.as_deref());
    put("ack-mode", Some(args.ack_mode.name()));
    if let Some(after) = &args.delete_after {
        let after = after.parse::<u64>().map_or_else(|_| Value::from(after.as_str()), Value::from);
        value.insert("src-delete-after".to_owned(), after);
    }
    let at = format!("/parameters/shovel/{}/{}", segment(&args.within.vhost), segment(&args.name));
    args.within.at.management()?.put(&at, &json!({ "value": value }), &no_vhost(&args.within))?;
    if out.json {
        // Its addresses may have passwords.
        return out.value(&json!({ "set": args.name }));
    }
    out.line(&format!("set shovel {0} (`polylogue shovel status {0}`)", args.name))
}

fn delete(args: &InVhostArgs, out: &Out) -> Result<(), Failure> {
    let management = args.within.at.management()?;
    for name in &args.names {
        let at = format!("/shovels/vhost/{}/{}", segment(&args.within.vhost), segment(name));
        management.delete(&at, &no_shovel(name, &args.within))?;
        if !out.json {
            out.line(&format!("deleted shovel {name}"))?;
        }
    }
    if out.json { out.value(&json!({ "deleted": args.names })) } else { Ok(()) }
}

fn links(args: &ListLinksArgs, out: &Out) -> Result<(), Failure> {
    let down = if args.down { "/state/down" } else { "" };
    let at = format!("/federation-links/{}{down}", segment(&args.within.vhost));
    let links: Vec<Value> = args.within.at.management()?.get(&at, &no_vhost(&args.within))?;
    let row = |link: &Value| {
        let kind = field(link, "type");
        vec![
            field(link, "upstream"),
            format!("{kind} {}", field(link, &kind)),
            field(link, "status"),
            field(link, "uri"),
            field(link, "error"),
        ]
    };
    let rows: Vec<_> = links.iter().map(row).collect();
    let head = ["UPSTREAM", "OF", "STATUS", "URI", "ERROR"];
    out.listing(&json!({ "links": links }), "no federation links", &head, &rows)
}
