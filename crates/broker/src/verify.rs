//! `check` and `repair` of a data directory that no broker uses.
//!
//! Whether a directory starts is not concluded from what is found in its files: the very code of a start is run on it, over a disk that keeps
//! its changes in memory ([`Overlay`]). So `check` and a start cannot disagree, and a repair that did not make the directory start says so.

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::datadir::{self, CopyState, Identity, LAYOUT_VERSION, read_copies};
use crate::error::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use polylogue_api::{MachineId, StateMachine};
use polylogue_env::{DirLock, Env, Fatal, Overlay};
use polylogue_log::check::{self, RepairReport, Report};
use polylogue_replicate::Work;
use polylogue_types::ShardId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a shard's directory is called in front of its number.
const SHARD: &str = "shard-";
/// Steps of the journals that are looked at after a start. What it proposes by itself takes a few.
const START_STEPS_MAX: usize = 1_000;

/// Makes the state machines that a broker of the directory hosts, in their first state.
pub type MakeMachines<'a> = &'a dyn Fn() -> BTreeMap<MachineId, Box<dyn StateMachine>>;

/// What checking a data directory found.
#[derive(Debug)]
pub struct DirectoryReport {
    /// What is wrong with the file that says what the directory is.
    pub identity: Option<String>,
    /// Each shard's files; an error where not even that is known.
    pub shards: Vec<(ShardId, std::result::Result<Report, String>)>,
    /// Why a start refuses the directory, if it does.
    pub refused: Option<Error>,
}

impl DirectoryReport {
    /// Whether a broker starts with it, and nothing durable is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.starts() && self.identity.is_none() && self.shards.iter().all(|(_, found)| is_sound(found))
    }

    /// Whether a broker starts with it. What is damaged is refused to those who read it.
    #[must_use]
    pub fn starts(&self) -> bool {
        self.refused.is_none()
    }
}

fn is_sound(found: &std::result::Result<Report, String>) -> bool {
    found.as_ref().is_ok_and(Report::is_sound)
}

/// What a repair of a data directory did.
#[derive(Debug)]
pub struct DirectoryRepair {
    /// How the file was mended that says what the directory is.
    pub identity: Option<String>,
    /// What was done in each shard.
    pub shards: Vec<(ShardId, RepairReport)>,
}

/// Verifies every file of a data directory, and whether a broker with these settings starts with it. Reads only. The caller holds the
/// directory, so that nothing changes it meanwhile.
#[must_use]
pub fn check_directory(env: &Env, config: &BrokerConfig, machines: MakeMachines<'_>) -> DirectoryReport {
    let dir = &config.data_dir;
    let identity = match read_copies(env, dir) {
        Ok(read) => match read.state {
            CopyState::Whole | CopyState::Single => None,
            CopyState::Damaged(why) => Some(why),
        },
        Err(e) => Some(e.text),
    };
    let found = |shard: &Path| check::check(env, shard).map_err(|e| e.to_string());
    let shards = shards_of(env, dir).unwrap_or_default().into_iter().map(|(id, path)| (id, found(&path))).collect();
    DirectoryReport { identity, shards, refused: try_start(env, config, machines()).err() }
}

/// Puts the damage in a data directory on record, so that a broker starts with it. Where the damage costs data, `fence` agrees to
/// that. The caller holds the directory ([`hold_directory`]).
///
/// # Errors
/// `Config` when data would be lost and `fence` is not set; `Damaged` when the directory does not start all the same, with the reason;
/// `Incompatible`, `StorageFull`, `Io`.
pub fn repair_directory(
    env: &Env,
    config: &BrokerConfig,
    machines: MakeMachines<'_>,
    fence: bool,
) -> Result<DirectoryRepair> {
    let dir = &config.data_dir;
    let identity = repair_identity(env, dir)?;
    let mut shards = Vec::new();
    for (id, path) in shards_of(env, dir)? {
        let report = check::repair(env, &path, fence).map_err(|e| match e.kind {
            polylogue_log::ErrorKind::Invalid => Error::new(ErrorKind::Config, e.to_string()),
            _ => Error::from(e),
        })?;
        shards.push((id, report));
    }
    if let Err(e) = try_start(env, config, machines()) {
        let text =
            format!("what can be repaired was, but a broker does not start: {e}; restore the directory from a backup");
        return Err(Error::new(e.kind, text));
    }
    Ok(DirectoryRepair { identity, shards })
}

/// Takes the lock of a data directory that may be damaged.
///
/// # Errors
/// `Io` where there is no such directory, or none of polylogue's; `Locked` while another process uses it.
pub fn hold_directory(env: &Env, dir: &Path) -> Result<Box<dyn DirLock>> {
    is_there(env, dir)?;
    datadir::hold(env, dir)
}

/// The same, only to read it: not held where this process may write nothing into it and no process has ever held it.
///
/// # Errors
/// As [`hold_directory`].
pub fn hold_directory_to_read(env: &Env, dir: &Path) -> Result<Option<Box<dyn DirLock>>> {
    is_there(env, dir)?;
    datadir::hold_to_read(env, dir)
}

fn is_there(env: &Env, dir: &Path) -> Result<()> {
    if !env.disk.exists(&dir.join(datadir::IDENTITY)) {
        let text = format!("{} is no data directory: it has no file {}", dir.display(), datadir::IDENTITY);
        return Err(Error::new(ErrorKind::Io, text));
    }
    Ok(())
}

/// The shards of a data directory, as their directories say.
fn shards_of(env: &Env, dir: &Path) -> Result<Vec<(ShardId, PathBuf)>> {
    let names = env.disk.list(dir).map_err(|e| Error::new(ErrorKind::Io, format!("{}: {e}", dir.display())))?;
    let shards = names.iter().filter_map(|name| {
        let id = ShardId(name.strip_prefix(SHARD)?.parse().ok()?);
        Some((id, dir.join(name)))
    });
    Ok(shards.collect())
}

/// Mends the file that says what the directory is: one copy from the other, both from the headers of the journals' files. A directory without
/// the file is left alone, because a restore that did not come to its end is one.
fn repair_identity(env: &Env, dir: &Path) -> Result<Option<String>> {
    let (identity, how) = match read_copies(env, dir) {
        Ok(read) => match read.state {
            CopyState::Whole | CopyState::Single => return Ok(None),
            CopyState::Damaged(why) => (read.identity, format!("{why}: written anew from the other one")),
        },
        Err(e) if e.kind == ErrorKind::Damaged => {
            let Some(identity) = identity_from_journals(env, dir)? else { return Err(e) };
            (identity, format!("{e}: written anew from what the journals' files say"))
        }
        Err(e) => return Err(e),
    };
    datadir::write_identity(env, dir, &identity)?;
    Ok(Some(how))
}

/// Whose directory this is by the headers of the journals' files; `None` where there are none, or where they disagree.
fn identity_from_journals(env: &Env, dir: &Path) -> Result<Option<Identity>> {
    let mut identity = None;
    for (_, path) in shards_of(env, dir)? {
        let Ok(report) = check::journal(env, &path) else { return Ok(None) };
        let Some(journal) = report.identity else { continue };
        let (cluster_id, node, directory_id) = (journal.cluster, journal.node, journal.directory);
        // What of it an earlier version could still read is not known.
        let one = Identity { cluster_id, node, directory_id, layout: LAYOUT_VERSION };
        if *identity.get_or_insert(one) != one {
            return Ok(None);
        }
    }
    Ok(identity)
}

/// Starts a broker on the directory as it is, without changing it.
fn try_start(env: &Env, config: &BrokerConfig, machines: BTreeMap<MachineId, Box<dyn StateMachine>>) -> Result<()> {
    let fatal = Arc::new(FatalRecorder::default());
    let env = Env { disk: Arc::new(Overlay::new(env.disk.clone())), fatal: fatal.clone(), ..env.clone() };
    let broker = Broker::open(env, config.clone(), machines)?;
    // What a start proposes is written and applied, as it would be.
    for _ in 0..START_STEPS_MAX {
        if fatal.is_fatal() || !(broker.log_step(Work::Write) | broker.log_step(Work::Flush)) {
            break;
        }
    }
    drop(broker);
    let message = fatal.0.lock().take();
    message.map_or(Ok(()), |why| Err(Error::new(ErrorKind::Damaged, why)))
}

/// Notes what would have ended the process.
#[derive(Debug, Default)]
struct FatalRecorder(Mutex<Option<String>>);

impl Fatal for FatalRecorder {
    fn fatal(&self, why: &str) {
        self.0.lock().get_or_insert_with(|| why.to_owned());
    }

    fn is_fatal(&self) -> bool {
        self.0.lock().is_some()
    }
}
