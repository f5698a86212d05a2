//! `polylogue queue`.

use super::Failure;
use super::args::{DeclareQueueArgs, DeleteQueuesArgs, GetMessagesArgs, InVhostArgs, QueueCommand, VhostArgs};
use super::moving;
use super::output::Out;
use super::pairs::arguments;
use crate::client::http::segment;
use polylogue_admin::api::queues::{GetMessages, Message, Messages, NewQueue, Purged, Queue, Queues};
use serde_json::{Value, json};

pub(super) fn run(command: &QueueCommand, out: &Out) -> Result<(), Failure> {
    match command {
        QueueCommand::List(within) => list(within, out),
        QueueCommand::Declare(args) => declare(args, out),
        QueueCommand::Get(args) => get(args, out),
        QueueCommand::Purge(args) => purge(args, out),
        QueueCommand::Move(args) => moving::queue(args, out),
        QueueCommand::Redrive(args) => moving::redrive(args, out),
        QueueCommand::Delete(args) => delete(args, out),
    }
}

/// Returns the path of a kind of objects in a virtual host.
pub(super) fn path(within: &VhostArgs, kind: &str) -> String {
    format!("/vhosts/{}/{kind}", segment(&within.vhost))
}

pub(super) fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// Formats arguments for a table.
pub(super) fn shown(arguments: &serde_json::Map<String, Value>) -> String {
    let one = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    arguments.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn list(within: &VhostArgs, out: &Out) -> Result<(), Failure> {
    let queues: Queues = within.at.client().get(&path(within, "queues"))?;
    let row = |q: &Queue| {
        let numbers = [q.ready, q.unsettled, q.consumers].map(|n| n.to_string());
        [vec![q.name.clone(), q.kind.clone(), yes(q.durable)], numbers.to_vec(), vec![shown(&q.arguments)]].concat()
    };
    let rows: Vec<_> = queues.queues.iter().map(row).collect();
    out.listing(
        &queues,
        "no queues",
        &["QUEUE", "TYPE", "DURABLE", "READY", "UNSETTLED", "CONSUMERS", "ARGUMENTS"],
        &rows,
    )
}

fn declare(args: &DeclareQueueArgs, out: &Out) -> Result<(), Failure> {
    let wanted = NewQueue {
        name: args.name.clone(),
        kind: args.kind.map(|kind| kind.name().to_owned()),
        durable: !args.transient,
        auto_delete: args.auto_delete,
        arguments: arguments(&args.argument)?,
    };
    let queue: Queue = args.within.at.client().post(&path(&args.within, "queues"), &wanted)?;
    if out.json {
        return out.value(&queue);
    }
    out.line(&format!("declared {} queue {}", queue.kind, queue.name))
}

fn get(args: &GetMessagesArgs, out: &Out) -> Result<(), Failure> {
    let wanted = GetMessages { count: args.max, remove: args.remove };
    let at = format!("{}/{}/get", path(&args.within, "queues"), segment(&args.name));
    let got: Messages = args.within.at.client().post(&at, &wanted)?;
    if out.json {
        return out.value(&got);
    }
    if got.messages.is_empty() {
        return out.line(&format!("queue {} has no ready messages", args.name));
    }
    for message in &got.messages {
        let head = if args.verbose { head(message) } else { encoding(message).to_owned() };
        let head = if head.is_empty() { head } else { out.dim(&head) + " " };
        out.line(&format!("{head}{}", message.body))?;
    }
    Ok(())
}

/// Returns the encoding of a body that is not text.
fn encoding(message: &Message) -> &'static str {
    if message.encoding == "text" { "" } else { "base64" }
}

/// Formats what `--verbose` prints before a body.
fn head(message: &Message) -> String {
    let exchange = if message.exchange.is_empty() { "-" } else { &message.exchange };
    let again = if message.redelivered { " redelivered" } else { "" };
    let properties = match message.properties.is_empty() {
        true => String::new(),
        false => format!(" {}", Value::Object(message.properties.clone())),
    };
    format!("{exchange} {}{again}{properties} {}", message.routing_key, encoding(message)).trim_end().to_owned()
}

/// Formats a number of messages.
pub(super) fn messages(count: u64) -> String {
    format!("{count} {}", if count == 1 { "message" } else { "messages" })
}

fn purge(args: &InVhostArgs, out: &Out) -> Result<(), Failure> {
    let client = args.within.at.client();
    let mut all = Vec::new();
    for name in &args.names {
        let purged: Purged = client.take(&format!("{}/{}/messages", path(&args.within, "queues"), segment(name)))?;
        if out.json {
            all.push(json!({ "queue": name, "purged": purged.purged }));
        } else {
            out.line(&format!("purged {} of queue {name}", messages(purged.purged)))?;
        }
    }
    if out.json { out.value(&json!({ "queues": all })) } else { Ok(()) }
}

fn delete(args: &DeleteQueuesArgs, out: &Out) -> Result<(), Failure> {
    let client = args.within.at.client();
    let only = format!("?if_unused={}&if_empty={}", args.if_unused, args.if_empty);
    for name in &args.names {
        client.delete(&format!("{}/{}{only}", path(&args.within, "queues"), segment(name)))?;
        if !out.json {
            out.line(&format!("deleted queue {name}"))?;
        }
    }
    if out.json { out.value(&json!({ "deleted": args.names })) } else { Ok(()) }
}
