//! `polylogue status`: one screen about a running server.

use super::Failure;
use super::args::ServerArgs;
use super::doctor::problems;
use super::output::{Out, bytes};
use polylogue_admin::api::{GroupSummary, Groups, Status};
use serde_json::json;
use std::time::Duration;

/// The time over which rates are taken.
const SAMPLE: Duration = Duration::from_secs(1);
/// Groups that are shown: those with the greatest lag.
const GROUPS_SHOWN: usize = 5;

pub(super) fn run(at: &ServerArgs, out: &Out) -> Result<(), Failure> {
    let client = at.client();
    let before: Status = client.get("/status")?;
    // No thread unparks this one, so that this is a plain wait.
    std::thread::park_timeout(SAMPLE);
    let now: Status = client.get("/status")?;
    let groups: Groups = client.get("/groups")?;
    let worst = worst(groups.groups);
    if out.json {
        return out.value(&json!({ "status": now, "rates": rates(&before, &now), "groups": worst }));
    }
    let problems = problems(&now);
    let health = if problems.is_empty() { "healthy".to_owned() } else { out.red("problems") };
    let up = humantime::format_duration(Duration::from_secs(now.uptime_ms / 1_000));
    out.line(&format!("{} {}: {health}, up {up}", out.bold("polylogue"), now.version))?;
    for (text, advice) in problems {
        out.line(&format!("  {}\n    {}", out.red(&text), out.dim(&advice)))?;
    }
    let disk = now.disk_free_bytes.map_or_else(|| "unknown".to_owned(), bytes);
    let stored = now.figures.get("store_live_bytes").copied().unwrap_or(0);
    out.line(&format!(
        "{}, {}, {}; {} stored, {disk} of disk free, {} of memory",
        counted(now.topics, "topic"),
        counted(now.partitions, "partition"),
        counted(now.connections, "connection"),
        bytes(stored),
        bytes(now.memory_bytes)
    ))?;
    out.line("")?;
    let rows: Vec<_> = now
        .listeners
        .iter()
        .map(|one| {
            let tls = if one.tls { "+tls" } else { "" };
            let advertised = one.advertised.clone().unwrap_or_else(|| "-".to_owned());
            vec![format!("{}{tls}", one.protocol), one.bound.clone(), advertised]
        })
        .collect();
    out.table(&["LISTENER", "ADDRESS", "ADVERTISED"], &rows)?;
    out.line("")?;
    let rows: Vec<_> = rates(&before, &now)
        .into_iter()
        .map(|rate| {
            let per_second = |count: u64| format!("{}/s", bytes(count));
            let (connections, requests) = (rate.connections.to_string(), format!("{}/s", rate.requests));
            vec![rate.protocol, connections, requests, per_second(rate.received_bytes), per_second(rate.sent_bytes)]
        })
        .collect();
    out.table(&["PROTOCOL", "CONNECTIONS", "REQUESTS", "RECEIVED", "SENT"], &rows)?;
    if !worst.is_empty() {
        out.line("")?;
        let row = |g: &GroupSummary| vec![g.group.clone(), g.state.clone(), g.members.to_string(), g.lag.to_string()];
        out.table(&["GROUP", "STATE", "MEMBERS", "LAG"], &worst.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Rates of one protocol, per second.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
struct Rate {
    protocol: String,
    /// Open now.
    connections: u64,
    requests: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

/// Returns the rates between two states of a server; of a server that restarted in between those since its start.
fn rates(before: &Status, now: &Status) -> Vec<Rate> {
    let elapsed_ms = match now.uptime_ms.checked_sub(before.uptime_ms) {
        Some(elapsed_ms) => elapsed_ms.max(1),
        None => now.uptime_ms.max(1),
    };
    let rate = |one: &polylogue_admin::api::ProtocolStatus| {
        let old = before.protocols.iter().find(|old| old.protocol == one.protocol);
        let per_second = |count: fn(&polylogue_admin::api::ProtocolStatus) -> u64| {
            let old = old.map_or(0, count);
            let grown = count(one).checked_sub(old).unwrap_or_else(|| count(one));
            grown.saturating_mul(1_000) / elapsed_ms
        };
        Rate {
            protocol: one.protocol.clone(),
            connections: one.connections,
            requests: per_second(|one| one.requests),
            received_bytes: per_second(|one| one.received_bytes),
            sent_bytes: per_second(|one| one.sent_bytes),
        }
    };
    now.protocols.iter().map(rate).collect()
}

/// Returns the groups with the greatest lag, greatest first.
fn worst(mut groups: Vec<GroupSummary>) -> Vec<GroupSummary> {
    groups.retain(|group| group.lag > 0);
    groups.sort_by(|a, b| b.lag.cmp(&a.lag).then_with(|| a.group.cmp(&b.group)));
    groups.truncate(GROUPS_SHOWN);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_furthest_behind() {
        let group = |name: &str, lag| GroupSummary {
            group: name.to_owned(),
            state: "Stable".to_owned(),
            protocol_type: "consumer".to_owned(),
            members: 1,
            lag,
        };
        let groups = vec![group("a", 0), group("b", 5), group("c", 9), group("d", 5)];
        let names: Vec<_> = worst(groups).into_iter().map(|group| group.group).collect();
        assert_eq!(names, ["c", "b", "d"]);
    }
}
