//! `polylogue topic`.

use super::Failure;
use super::args::{AlterArgs, CreateArgs, ListTopicsArgs, NameArgs, NamesArgs};
use super::output::{Out, bytes};
use super::pairs::pairs;
use crate::client::http::segment;
use polylogue_admin::api::settings::AlterTopic;
use polylogue_admin::api::{NewTopic, Topic, Topics};

pub(super) fn create(args: &CreateArgs, out: &Out) -> Result<(), Failure> {
    let config = pairs(&args.config, "--config ")?;
    let wanted = NewTopic { name: args.name.clone(), partitions: args.partitions, config, validate_only: args.dry_run };
    let topic: Topic = args.at.client().post("/topics", &wanted)?;
    if out.json {
        return out.value(&topic);
    }
    if args.dry_run {
        return out.line(&format!("topic {} can be created", topic.name));
    }
    let count = topic.partitions.len();
    let noun = if count == 1 { "partition" } else { "partitions" };
    out.line(&format!("created topic {} with {count} {noun}", topic.name))
}

pub(super) fn list(args: &ListTopicsArgs, out: &Out) -> Result<(), Failure> {
    let path = if args.all { "/topics" } else { "/topics?internal=false" };
    let topics: Topics = args.at.client().get(path)?;
    let row = |t: &polylogue_admin::api::TopicSummary| {
        let (partitions, messages) = (t.partitions.to_string(), t.messages.to_string());
        vec![t.name.clone(), partitions, messages, bytes(t.bytes), t.durability.clone()]
    };
    let rows: Vec<_> = topics.topics.iter().map(row).collect();
    out.listing(&topics, "no topics", &["TOPIC", "PARTITIONS", "MESSAGES", "SIZE", "DURABILITY"], &rows)
}

pub(super) fn describe(args: &NameArgs, out: &Out) -> Result<(), Failure> {
    let topic: Topic = args.at.client().get(&format!("/topics/{}", segment(&args.name)))?;
    if out.json {
        return out.value(&topic);
    }
    out.line(&format!("{} {}", out.bold(&topic.name), out.dim(&format!("(id {})", topic.id))))?;
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let rows: Vec<_> = topic
        .partitions
        .iter()
        .map(|p| {
            let messages = p.log_start.zip(p.high_watermark).map(|(start, end)| end.saturating_sub(start));
            let size = p.bytes.map_or_else(|| "-".to_owned(), bytes);
            vec![p.partition.to_string(), number(p.log_start), number(p.high_watermark), number(messages), size]
        })
        .collect();
    out.line("")?;
    out.table(&["PARTITION", "START", "END", "OFFSETS", "SIZE"], &rows)?;
    let set: Vec<_> = topic.config.iter().filter(|entry| entry.source != "default").collect();
    if !set.is_empty() {
        out.line("")?;
        let rows: Vec<_> = set
            .iter()
            .map(|entry| {
                let note = if entry.has_effect { "" } else { "no effect" };
                vec![entry.name.clone(), entry.value.clone(), entry.source.clone(), note.to_owned()]
            })
            .collect();
        out.table(&["CONFIG", "VALUE", "SET BY", ""], &rows)?;
    }
    Ok(())
}

pub(super) fn alter(args: &AlterArgs, out: &Out) -> Result<(), Failure> {
    let change = AlterTopic {
        set: pairs(&args.set, "--set ")?,
        delete: args.delete.clone(),
        partitions: args.partitions,
        validate_only: args.dry_run,
    };
    args.at.client().patch(&format!("/topics/{}", segment(&args.name)), &change)?;
    if out.json {
        return out.value(&change);
    }
    if args.dry_run {
        return out.line(&format!("topic {} can be changed", args.name));
    }
    out.line(&format!("changed topic {}", args.name))
}

pub(super) fn delete(args: &NamesArgs, out: &Out) -> Result<(), Failure> {
    let client = args.at.client();
    for name in &args.names {
        client.delete(&format!("/topics/{}", segment(name)))?;
        if !out.json {
            out.line(&format!("deleted topic {name}"))?;
        }
    }
    if out.json { out.value(&serde_json::json!({ "deleted": args.names })) } else { Ok(()) }
}
