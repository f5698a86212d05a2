//! `polylogue check` and `polylogue repair`.

use super::Failure;
use super::args::{CheckArgs, RepairArgs};
use super::output::Out;
use polylogue_broker::{DataDir, partition_names, read_identity};
use polylogue_env::Env;
use polylogue_log::check;
use polylogue_types::{PartitionId, ShardId};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a shard's directory is called in front of its number.
const SHARD: &str = "shard-";

fn other(e: impl std::fmt::Display) -> Failure {
    Failure::Other(e.to_string())
}

/// Finds the shards of a data directory.
fn shards_of(env: &Env, data: &DataDir) -> Result<Vec<(ShardId, PathBuf)>, Failure> {
    let names = env.disk.list(&data.path).map_err(other)?;
    let shards = names.iter().filter_map(|name| {
        let id = ShardId(name.strip_prefix(SHARD)?.parse().ok()?);
        Some((id, data.shard_dir(id)))
    });
    Ok(shards.collect())
}

/// Whether every byte of a data directory verifies that somebody else has locked.
pub(super) fn is_sound(env: &Env, dir: &Path) -> Result<bool, Failure> {
    let names = env.disk.list(dir).map_err(other)?;
    let mut shards = names.iter().filter(|name| name.starts_with(SHARD));
    shards.try_fold(true, |sound, name| Ok(sound && check::check(env, &dir.join(name)).map_err(other)?.is_sound()))
}

pub(super) fn check(args: &CheckArgs, out: &Out) -> Result<(), Failure> {
    let env = Env::real_within(&[&args.dir]);
    let held = DataDir::open_to_read(&env, &args.dir).map_err(other)?;
    let shards = shards_of(&env, &held)?;
    let mut sound = true;
    let mut found = Vec::new();
    let mut said = String::new();
    for (id, dir) in shards {
        let (is_sound, text) = match check::check(&env, &dir) {
            Ok(report) => (report.is_sound(), report.to_string()),
            Err(e) => (false, e.to_string()),
        };
        sound &= is_sound;
        if out.json {
            let lines: Vec<&str> = text.lines().collect();
            found.push(json!({ "shard": id.0, "sound": is_sound, "findings": lines }));
        } else {
            let verdict = if is_sound { "sound".to_owned() } else { out.red("damaged") };
            out.line(&format!("{}: {verdict}", out.bold(&format!("{SHARD}{:04}", id.0))))?;
            for line in text.lines() {
                out.line(&format!("  {line}"))?;
            }
            said.push_str(&text);
        }
    }
    // Findings name partitions by their ids, which is what files know; people know topics.
    let names = if sound { BTreeMap::new() } else { partition_names(&env, &args.dir) };
    if out.json {
        let names: BTreeMap<String, _> = names
            .into_iter()
            .map(|(id, (topic, partition))| (id.to_string(), json!({ "topic": topic, "partition": partition })))
            .collect();
        out.value(&json!({ "sound": sound, "shards": found, "partitions": names }))?;
    } else if !sound {
        let told = |id: &PartitionId| said.contains(&format!("partition {id} "));
        for (id, (topic, number)) in names.iter().filter(|(id, _)| told(id)) {
            out.line(&format!("partition {id} is number {number} of topic {topic}"))?;
        }
        let dir = args.dir.display();
        eprintln!("polylogue: damage was found; `polylogue repair {dir} --fence` makes the rest usable");
    }
    if sound { Ok(()) } else { Err(Failure::Told) }
}

pub(super) fn repair(args: &RepairArgs, out: &Out) -> Result<(), Failure> {
    let env = Env::real_within(&[&args.dir]);
    // Nothing is made where there is nothing.
    read_identity(&env, &args.dir).map_err(other)?;
    let held = DataDir::open(&env, &args.dir).map_err(other)?;
    let shards = shards_of(&env, &held)?;
    let mut done = Vec::new();
    for (id, dir) in shards {
        let report = check::repair(&env, &dir, args.fence).map_err(|e| match e.kind {
            polylogue_log::ErrorKind::Invalid => Failure::Usage(format!("{e}; say --fence to agree")),
            _ => other(e),
        })?;
        let fenced: Vec<_> = report.fenced.iter().map(|path| path.display().to_string()).collect();
        let damage: Vec<_> = report.damage.iter().map(ToString::to_string).collect();
        if out.json {
            let (lost, kept) = (report.lost_frames, report.kept_frames);
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
        out.line(&format!("{name}: {} frames are lost, {} were kept", report.lost_frames, report.kept_frames))?;
        for line in damage.iter().map(|d| format!("  {d}")).chain(fenced.iter().map(|f| format!("  bytes kept in {f}")))
        {
            out.line(&line)?;
        }
    }
    if out.json { out.value(&json!({ "shards": done })) } else { Ok(()) }
}
