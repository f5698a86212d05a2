//! `polylogue queue`.

use super::Failure;
use super::args::{
    DeclareQueueArgs, DeleteQueuesArgs, GetMessagesArgs, InVhostArgs, PublishArgs, QueueCommand, VhostArgs,
};
use super::moving;
use super::output::Out;
use super::pairs::arguments;
use crate::client::http::segment;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use polylogue_admin::api::queues::{
    GetMessages, Message, Messages, NewPublish, NewQueue, Published, Purged, Queue, Queues,
};
use serde_json::{Value, json};
use std::io::{self, Read as _};

/// The longest body that is read. Bytes.
const BODY_BYTES_MAX: u64 = 16 << 20;

pub(super) fn run(command: &QueueCommand, out: &Out) -> Result<(), Failure> {
    match command {
        QueueCommand::List(within) => list(within, out),
        QueueCommand::Declare(args) => declare(args, out),
        QueueCommand::Describe(args) => describe(args, out),
        QueueCommand::Publish(args) => publish(args, out),
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

fn describe(args: &InVhostArgs, out: &Out) -> Result<(), Failure> {
    let client = args.within.at.client();
    let mut all = Vec::new();
    for name in &args.names {
        let queue: Queue = client.get(&format!("{}/{}", path(&args.within, "queues"), segment(name)))?;
        if out.json {
            all.push(json!(queue));
            continue;
        }
        let flags = [
            Some(if queue.durable { "durable" } else { "transient" }),
            queue.auto_delete.then_some("auto-delete"),
            queue.exclusive.then_some("exclusive"),
        ];
        let flags = flags.into_iter().flatten().collect::<Vec<_>>().join(", ");
        out.line(&format!("{} is a {} queue, {flags}", out.bold(&queue.name), queue.kind))?;
        let counts = [queue.ready, queue.unsettled, queue.delayed, queue.consumers].map(|count| count.to_string());
        out.table(&["READY", "UNSETTLED", "DELAYED", "CONSUMERS"], &[counts.to_vec()])?;
        if !queue.arguments.is_empty() {
            out.line(&format!("arguments: {}", shown(&queue.arguments)))?;
        }
        if let Some(topic) = &queue.topic {
            out.line(&format!("Kafka clients read it as the topic {topic}"))?;
        }
    }
    if out.json { out.value(&json!({ "queues": all })) } else { Ok(()) }
}

fn publish(args: &PublishArgs, out: &Out) -> Result<(), Failure> {
    let body = match &args.body {
        Some(body) => body.clone().into_bytes(),
        None => {
            let mut body = Vec::new();
            io::stdin().lock().take(BODY_BYTES_MAX + 1).read_to_end(&mut body)?;
            body
        }
    };
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(Failure::Usage(format!("the body is longer than {BODY_BYTES_MAX} bytes")));
    }
    let (body, encoding) = match String::from_utf8(body) {
        Ok(text) => (text, None),
        Err(e) => (BASE64.encode(e.as_bytes()), Some("base64".to_owned())),
    };
    let wanted = NewPublish {
        exchange: args.exchange.clone().unwrap_or_default(),
        routing_key: args.name.clone(),
        body,
        encoding,
        persistent: !args.transient,
        content_type: args.content_type.clone(),
        correlation_id: None,
        message_id: None,
        reply_to: None,
        headers: arguments(&args.header)?,
    };
    let published: Published = args.within.at.client().post(&path(&args.within, "publish"), &wanted)?;
    if out.json {
        return out.value(&published);
    }
    match (&args.exchange, published.routed) {
        (None, true) => out.line(&format!("published to queue {}", args.name)),
        (Some(exchange), true) => out.line(&format!("published to exchange {exchange}")),
        (None, false) => {
            let text = "the message was dropped (`polylogue queue declare` declares a queue)";
            Err(Failure::Other(format!("there is no queue {}: {text}", args.name)))
        }
        (Some(exchange), false) => {
            let text = format!("exchange {exchange} routes {} to no queue: the message was dropped", args.name);
            Err(Failure::Other(text))
        }
    }
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
