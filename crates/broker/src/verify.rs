//! `check` and `repair` of a data directory that is not in use.
//!
//! Whether a directory starts is not inferred from its files: the code of a start runs on it, over a disk that keeps its changes in memory
//! ([`Overlay`]). So `check` and a start cannot disagree, and a repair after which the directory does not start reports that.

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

/// Prefix of a shard's directory name.
const SHARD: &str = "shard-";
/// Steps of the journals after a trial start. Its own proposals take a few.
const START_STEPS_MAX: usize = 1_000;

/// Creates the state machines that a broker of the directory hosts, in their initial state.
pub type MakeMachines<'a> = &'a dyn Fn() -> BTreeMap<MachineId, Box<dyn StateMachine>>;

/// The result of checking a data directory.
#[derive(Debug)]
pub struct DirectoryReport {
    /// The fault of the identity file, if any.
    pub identity: Option<String>,
    /// The report of each shard's files; an error if they cannot be examined.
    pub shards: Vec<(ShardId, std::result::Result<Report, String>)>,
    /// Why a start refuses the directory, if it does.
    pub refused: Option<Error>,
}

impl DirectoryReport {
    /// Returns whether a broker starts with it and no durable data is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.starts() && self.identity.is_none() && self.shards.iter().all(|(_, found)| is_sound(found))
    }

    /// Returns whether a broker starts with it. Reads of damaged data are then refused.
    #[must_use]
    pub fn starts(&self) -> bool {
        self.refused.is_none()
    }
}

fn is_sound(found: &std::result::Result<Report, String>) -> bool {
    found.as_ref().is_ok_and(Report::is_sound)
}

/// The result of repairing a data directory.
#[derive(Debug)]
pub struct DirectoryRepair {
    /// How the identity file was repaired.
    pub identity: Option<String>,
    /// The repairs in each shard.
    pub shards: Vec<(ShardId, RepairReport)>,
}

/// Verifies every file of a data directory, and that a broker with these settings starts with it. Reads only. The caller holds the directory's lock,
/// so that it does not change meanwhile.
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

/// Records the damage in a data directory, so that a broker starts with it. `fence` permits the loss of damaged data. The caller holds the
/// directory's lock ([`hold_directory`]).
///
/// # Errors
/// `Config` if data would be lost and `fence` is not set; `Damaged` if the directory still does not start, with the reason; `Incompatible`,
/// `StorageFull`, `Io`.
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
        let text = format!(
            "everything repairable was repaired, but the broker does not start: {e}; restore the directory from a backup"
        );
        return Err(Error::new(e.kind, text));
    }
    Ok(DirectoryRepair { identity, shards })
}

/// Takes the lock of a data directory that may be damaged.
///
/// # Errors
/// `Io` if there is no such directory, or it is not a polylogue directory; `Locked` while another process uses it.
pub fn hold_directory(env: &Env, dir: &Path) -> Result<Box<dyn DirLock>> {
    is_there(env, dir)?;
    datadir::hold(env, dir)
}

/// As [`hold_directory`], for reading only: no lock if this process may not write to it and there is no lock file.
///
/// # Errors
/// As [`hold_directory`].
pub fn hold_directory_to_read(env: &Env, dir: &Path) -> Result<Option<Box<dyn DirLock>>> {
    is_there(env, dir)?;
    datadir::hold_to_read(env, dir)
}

fn is_there(env: &Env, dir: &Path) -> Result<()> {
    if !env.disk.exists(&dir.join(datadir::IDENTITY)) {
        let text = format!("{} is not a data directory: it has no file {}", dir.display(), datadir::IDENTITY);
        return Err(Error::new(ErrorKind::Io, text));
    }
    Ok(())
}

/// Returns the shards of a data directory, by their directories.
pub(crate) fn shards_of(env: &Env, dir: &Path) -> Result<Vec<(ShardId, PathBuf)>> {
    let names = env.disk.list(dir).map_err(|e| Error::new(ErrorKind::Io, format!("{}: {e}", dir.display())))?;
    let shards = names.iter().filter_map(|name| {
        let id = ShardId(name.strip_prefix(SHARD)?.parse().ok()?);
        Some((id, dir.join(name)))
    });
    Ok(shards.collect())
}

/// Repairs the identity file: one copy from the other, both from the headers of the journal files. A directory without the file is left alone,
/// because it may be an unfinished restore.
fn repair_identity(env: &Env, dir: &Path) -> Result<Option<String>> {
    let (identity, how) = match read_copies(env, dir) {
        Ok(read) => match read.state {
            CopyState::Whole | CopyState::Single => return Ok(None),
            CopyState::Damaged(why) => (read.identity, format!("{why}: rewritten from the other copy")),
        },
        Err(e) if e.kind == ErrorKind::Damaged => {
            let Some(identity) = identity_from_journals(env, dir)? else { return Err(e) };
            (identity, format!("{e}: rewritten from the headers of the journal files"))
        }
        Err(e) => return Err(e),
    };
    datadir::write_identity(env, dir, &identity)?;
    Ok(Some(how))
}

/// Returns the identity in the headers of the journal files; `None` if there are none, or if they disagree.
fn identity_from_journals(env: &Env, dir: &Path) -> Result<Option<Identity>> {
    let mut identity = None;
    for (_, path) in shards_of(env, dir)? {
        let Ok(report) = check::journal(env, &path) else { return Ok(None) };
        let Some(journal) = report.identity else { continue };
        let (cluster_id, node, directory_id) = (journal.cluster, journal.node, journal.directory);
        // The oldest version that can still read it is unknown.
        let one = Identity { cluster_id, node, directory_id, layout: LAYOUT_VERSION };
        if *identity.get_or_insert(one) != one {
            return Ok(None);
        }
    }
    Ok(identity)
}

/// Starts a broker on the directory without changing it.
fn try_start(env: &Env, config: &BrokerConfig, machines: BTreeMap<MachineId, Box<dyn StateMachine>>) -> Result<()> {
    let fatal = Arc::new(FatalRecorder::default());
    let env = Env { disk: Arc::new(Overlay::new(env.disk.clone())), fatal: fatal.clone(), ..env.clone() };
    let broker = Broker::open(env, config.clone(), machines)?;
    // Proposals of a start are written and applied, as in a real start.
    for _ in 0..START_STEPS_MAX {
        if fatal.is_fatal() || !(broker.log_step(Work::Write) | broker.log_step(Work::Flush)) {
            break;
        }
    }
    drop(broker);
    let message = fatal.0.lock().take();
    message.map_or(Ok(()), |why| Err(Error::new(ErrorKind::Damaged, why)))
}

/// Records the fatal error that would have ended the process.
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
