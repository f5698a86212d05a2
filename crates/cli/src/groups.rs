//! `polylogue group`.

use super::Failure;
use super::args::{NameArgs, NamesArgs, ResetArgs, ServerArgs};
use super::output::Out;
use super::time::{parse_time_ms, seconds_note};
use crate::client::http::segment;
use polylogue_admin::api::{Assignment, Group, GroupReset, Groups, ResetGroup, ResetOffset, ResetTo};
use std::collections::BTreeMap;

pub(super) fn list(at: &ServerArgs, out: &Out) -> Result<(), Failure> {
    let groups: Groups = at.client().get("/groups")?;
    let row = |g: &polylogue_admin::api::GroupSummary| {
        let (members, lag) = (g.members.to_string(), g.lag.to_string());
        vec![g.group.clone(), g.state.clone(), g.protocol_type.clone(), members, lag]
    };
    let rows: Vec<_> = groups.groups.iter().map(row).collect();
    out.listing(&groups, "no groups", &["GROUP", "STATE", "TYPE", "MEMBERS", "LAG"], &rows)
}

pub(super) fn describe(args: &NameArgs, out: &Out) -> Result<(), Failure> {
    let group: Group = args.at.client().get(&format!("/groups/{}", segment(&args.name)))?;
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
    let rows = offset_rows(&group);
    if !rows.is_empty() {
        out.line("")?;
        out.table(&["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "BEHIND"], &rows)?;
    }
    Ok(())
}

/// Rows of all partitions with a committed offset or assigned to a member, by topic and number.
fn offset_rows(group: &Group) -> Vec<Vec<String>> {
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let seconds = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{} s", ms / 1_000));
    let committed = group.offsets.iter().map(|o| {
        let (partition, offset) = (o.partition.to_string(), o.offset.to_string());
        let row = vec![o.topic.clone(), partition, offset, number(o.high_watermark), number(o.lag), seconds(o.lag_ms)];
        ((&o.topic, o.partition), row)
    });
    let uncommitted = group.uncommitted.iter().map(|o| {
        let none = || "-".to_owned();
        let row =
            vec![o.topic.clone(), o.partition.to_string(), none(), number(o.high_watermark), number(o.lag), none()];
        ((&o.topic, o.partition), row)
    });
    committed.chain(uncommitted).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn assigned(assignment: &[Assignment]) -> String {
    let topic = |a: &Assignment| {
        let numbers: Vec<_> = a.partitions.iter().map(ToString::to_string).collect();
        format!("{}[{}]", a.topic, numbers.join(","))
    };
    assignment.iter().map(topic).collect::<Vec<_>>().join(" ")
}

pub(super) fn reset(args: &ResetArgs, out: &Out) -> Result<(), Failure> {
    let wanted = ResetGroup { topics: args.topic.clone(), to: target(args)?, validate_only: !args.execute };
    let path = format!("/groups/{}/reset", segment(&args.name));
    let reset: GroupReset = args.at.client().post(&path, &wanted)?;
    if out.json {
        return out.value(&reset);
    }
    let row = |o: &ResetOffset| {
        let before = o.before.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
        let note = o.note.clone().unwrap_or_default();
        vec![o.topic.clone(), o.partition.to_string(), before, o.offset.to_string(), note]
    };
    let rows: Vec<_> = reset.offsets.iter().map(row).collect();
    out.table(&["TOPIC", "PARTITION", "OFFSET", "NEW OFFSET", ""], &rows)?;
    out.line("")?;
    if reset.executed {
        out.line(&format!("reset group {}", reset.group))
    } else {
        out.line("nothing was changed; --execute commits these offsets")
    }
}

/// clap allows exactly one.
fn target(args: &ResetArgs) -> Result<ResetTo, Failure> {
    let to = &args.to;
    if let Some(text) = &to.to_time {
        return parse_time_ms(text).map(ResetTo::TimeMs).ok_or_else(|| {
            Failure::Usage(format!(
                "--to-time {text}: expected a time such as 2026-01-31T12:00:00Z or 2026-01-31T14:00:00+02:00, or @MILLISECONDS since 1970{}",
                seconds_note(text)
            ))
        });
    }
    Ok(match (to.to_offset, to.shift_by) {
        (Some(offset), _) => ResetTo::Offset(offset),
        (None, Some(count)) => ResetTo::ShiftBy(count),
        (None, None) if to.to_earliest => ResetTo::Earliest,
        (None, None) => ResetTo::Latest,
    })
}

pub(super) fn delete(args: &NamesArgs, out: &Out) -> Result<(), Failure> {
    let client = args.at.client();
    for name in &args.names {
        client.delete(&format!("/groups/{}", segment(name)))?;
        if !out.json {
            out.line(&format!("deleted group {name}"))?;
        }
    }
    if out.json { out.value(&serde_json::json!({ "deleted": args.names })) } else { Ok(()) }
}
