//! `polylogue group`.

use super::Failure;
use super::args::{NameArgs, ServerArgs};
use super::output::Out;
use crate::api::{Assignment, Group, Groups};
use crate::client::http::{HttpClient, segment};

pub(super) fn list(at: &ServerArgs, out: &Out) -> Result<(), Failure> {
    let groups: Groups = HttpClient::new(&at.server).get("/groups")?;
    if out.json {
        return out.value(&groups);
    }
    if groups.groups.is_empty() {
        return out.line("no groups");
    }
    let row = |g: &crate::api::GroupSummary| vec![g.group.clone(), g.state.clone(), g.protocol_type.clone()];
    let rows: Vec<_> = groups.groups.iter().map(row).collect();
    out.table(&["GROUP", "STATE", "TYPE"], &rows)
}

pub(super) fn describe(args: &NameArgs, out: &Out) -> Result<(), Failure> {
    let group: Group = HttpClient::new(&args.at.server).get(&format!("/groups/{}", segment(&args.name)))?;
    if out.json {
        return out.value(&group);
    }
    let protocol = if group.protocol.is_empty() { String::new() } else { format!(", assigned by {}", group.protocol) };
    out.line(&format!("{} is {}{protocol}", out.bold(&group.group), group.state))?;
    if !group.members.is_empty() {
        out.line("")?;
        let rows: Vec<_> = group
            .members
            .iter()
            .map(|m| {
                let instance = m.instance.clone().unwrap_or_default();
                vec![m.member.clone(), instance, m.client.clone(), m.host.clone(), assigned(&m.assignment)]
            })
            .collect();
        out.table(&["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"], &rows)?;
    }
    if !group.offsets.is_empty() {
        out.line("")?;
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let rows: Vec<_> = group
            .offsets
            .iter()
            .map(|o| {
                let (partition, offset) = (o.partition.to_string(), o.offset.to_string());
                vec![o.topic.clone(), partition, offset, number(o.high_watermark), number(o.lag)]
            })
            .collect();
        out.table(&["TOPIC", "PARTITION", "OFFSET", "END", "LAG"], &rows)?;
    }
    Ok(())
}

fn assigned(assignment: &[Assignment]) -> String {
    let topic = |a: &Assignment| {
        let numbers: Vec<_> = a.partitions.iter().map(ToString::to_string).collect();
        format!("{}[{}]", a.topic, numbers.join(","))
    };
    assignment.iter().map(topic).collect::<Vec<_>>().join(" ")
}
