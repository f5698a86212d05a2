//! `polylogue check` and `polylogue repair`.

use super::Failure;
use super::args::{CheckArgs, RepairArgs};
use super::output::Out;
use polylogue_amqp_gateway::{GuestRule, MessagesAsRecords};
use polylogue_broker::{
    BrokerConfig, DirectoryReport, ErrorKind, check_directory, hold_directory, hold_directory_to_read, partition_names,
    repair_directory,
};
use polylogue_env::Env;
use polylogue_kafka::config::LiveSettings;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_groups::GroupSettings;
use polylogue_net::groups::machines;
use polylogue_types::PartitionId;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Prefix of shard directories.
const SHARD: &str = "shard-";

fn other(e: impl std::fmt::Display) -> Failure {
    Failure::Other(e.to_string())
}

/// Returns the configuration that affects which files a broker accepts: the server's settings do not.
fn config(dir: &Path) -> BrokerConfig {
    BrokerConfig {
        resolver: Arc::new(LiveSettings::new(KafkaSettings::default())),
        view: Some(Arc::new(MessagesAsRecords)),
        ..BrokerConfig::new(dir.to_owned())
    }
}

/// Verifies a data directory that the caller has locked.
pub(super) fn checked(env: &Env, dir: &Path) -> DirectoryReport {
    check_directory(env, &config(dir), &|| machines(GroupSettings::default(), GuestRule::default()).0)
}

/// Returns topics and numbers of the partitions in findings, which have only ids.
fn names(env: &Env, dir: &Path, report: &DirectoryReport) -> BTreeMap<PartitionId, (String, u32)> {
    if report.is_sound() { BTreeMap::new() } else { partition_names(env, dir) }
}

pub(super) fn check(args: &CheckArgs, out: &Out) -> Result<(), Failure> {
    let env = Env::real_within(&[&args.dir]);
    let dir = &args.dir;
    let _held = hold_directory_to_read(&env, dir).map_err(other)?;
    let report = checked(&env, dir);
    let names = names(&env, dir, &report);
    let refused = report.refused.as_ref().map(ToString::to_string);
    let shards = report.shards.iter().map(|(id, found)| match found {
        Ok(report) => (id, report.is_sound(), report.to_string()),
        Err(why) => (id, false, why.clone()),
    });
    if out.json {
        let found = shards.map(|(id, is_sound, text)| {
            let lines: Vec<&str> = text.lines().collect();
            json!({ "shard": id.0, "sound": is_sound, "findings": lines })
        });
        let found: Vec<_> = found.collect();
        let named = names
            .into_iter()
            .map(|(id, (topic, partition))| (id.to_string(), json!({ "topic": topic, "partition": partition })));
        let named: BTreeMap<String, _> = named.collect();
        let (sound, identity) = (report.is_sound(), &report.identity);
        out.value(&json!({
            "sound": sound, "starts": refused.is_none(), "refused": refused, "identity": identity, "shards": found, "partitions": named
        }))?;
    } else {
        let mut said = String::new();
        if let Some(why) = &report.identity {
            out.line(&format!("{}: {why}", out.bold("IDENTITY")))?;
        }
        for (id, is_sound, text) in shards {
            let verdict = if is_sound { "sound".to_owned() } else { out.red("damaged") };
            out.line(&format!("{}: {verdict}", out.bold(&format!("{SHARD}{:04}", id.0))))?;
            for line in text.lines() {
                out.line(&format!("  {line}"))?;
            }
            said.push_str(&text);
        }
        let reported = |id: &PartitionId| said.contains(&format!("partition {id} "));
        for (id, (topic, number)) in names.iter().filter(|(id, _)| reported(id)) {
            out.line(&format!("partition {id} is number {number} of topic {topic}"))?;
        }
        tell_whether_it_starts(dir, &report, out)?;
    }
    if report.is_sound() { Ok(()) } else { Err(Failure::Reported) }
}

fn tell_whether_it_starts(dir: &Path, report: &DirectoryReport, out: &Out) -> Result<(), Failure> {
    match &report.refused {
        Some(why) => out.line(&format!("a broker does not start with this directory: {why}"))?,
        None if report.is_sound() => return Ok(()),
        None => out.line("a broker starts with this directory, and refuses reads of the damaged ranges")?,
    }
    let dir = dir.display();
    eprintln!("polylogue: damage was found; `polylogue repair {dir} --fence` makes the undamaged rest usable");
    Ok(())
}

pub(super) fn repair(args: &RepairArgs, out: &Out) -> Result<(), Failure> {
    let env = Env::real_within(&[&args.dir]);
    let dir = &args.dir;
    // Must not create a directory that does not exist.
    let _held = hold_directory(&env, dir).map_err(other)?;
    let machines = || machines(GroupSettings::default(), GuestRule::default()).0;
    let repaired = repair_directory(&env, &config(dir), &machines, args.fence).map_err(|e| match e.kind {
        ErrorKind::Config => Failure::Usage(format!("{e}; pass --fence to accept the loss")),
        _ => other(e),
    })?;
    let mut done = Vec::new();
    if let Some(how) = repaired.identity.as_ref().filter(|_| !out.json) {
        out.line(&format!("{}: {how}", out.bold("IDENTITY")))?;
    }
    for (id, report) in &repaired.shards {
        let fenced: Vec<_> = report.fenced.iter().map(|path| path.display().to_string()).collect();
        let damage: Vec<_> = report.damage.iter().map(ToString::to_string).collect();
        let (lost, kept) = (report.lost_frames, report.kept_frames);
        if out.json {
            done.push(
                json!({ "shard": id.0, "damage": damage, "fenced": fenced, "lost_frames": lost, "kept_frames": kept }),
            );
            continue;
        }
        let name = out.bold(&format!("{SHARD}{:04}", id.0));
        if damage.is_empty() {
            out.line(&format!("{name}: nothing to repair"))?;
            continue;
        }
        out.line(&format!("{name}: {lost} frames are lost, {kept} were kept"))?;
        for line in damage.iter().map(|d| format!("  {d}")).chain(fenced.iter().map(|f| format!("  bytes kept in {f}")))
        {
            out.line(&line)?;
        }
    }
    if out.json { out.value(&json!({ "identity": repaired.identity, "shards": done })) } else { Ok(()) }
}
