//! Online backup of the whole data directory (`polylogue_log::backup`), read piece by piece by the client that stores it.
//!
//! ```text
//!   begin ─> cut of all shards ─> next, next, ... ─> none: it was handed out as a whole
//!                  │                   │
//!                  └── held until ─────┴── handed out, dropped, or broken off: no room on the disk, no client takes it, too late, the end
//! ```
//!
//! A cut holds disk space: files merged, trimmed or deleted meanwhile are removed when it ends. So there is one at a time, and it has a time limit.
//! The identity file comes last: an incomplete copy is not a data directory.
//!
//! Shards of class `memory` have no files. If a shard is opened for its first topic while the cut is taken, the cut is retried.

use crate::background::{MERGE_BYTES_PER_SEC_MIN, QUIET_BYTES_PER_SEC};
use crate::broker::{Broker, Inner};
use crate::datadir::{IDENTITY, encode, shard_name};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::Shard;
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_log::backup::{CutFile, ShardCut, Source, cut};
use polylogue_types::ShardId;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Idle time of the client after which a backup is aborted. Milliseconds.
const IDLE_MS_MAX: u64 = 60_000;
/// Cuts that are discarded because shards were opened meanwhile, before the backup fails.
const TRIES_MAX: usize = 3;
/// The largest piece. Bytes.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// Counters of backups since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackupStats {
    /// A backup is in progress.
    pub running: bool,
    /// Backups read completely.
    pub completed: u64,
    /// Backups refused, aborted or abandoned.
    pub failed: u64,
    /// Bytes of files read by clients.
    pub bytes: u64,
}

/// Why a backup was aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Room,
    Idle,
    Late,
    Stopping,
}

impl Why {
    fn error(self) -> Error {
        let (kind, text) = match self {
            Why::Room => (ErrorKind::StorageFull, "the disk is running out of space, and the backup holds some"),
            Why::Idle => (ErrorKind::Io, "the client has read nothing for a minute"),
            Why::Late => (ErrorKind::Io, "it took longer than log.backup_ms_max"),
            Why::Stopping => (ErrorKind::Io, "the broker stops"),
        };
        Error::new(kind, format!("the backup was aborted: {text}"))
    }
}

/// The current backup, if any, and the counters.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    /// A backup is starting or in progress.
    taken: AtomicBool,
    current: Mutex<Option<Arc<Underway>>>,
    completed: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

/// A backup in progress.
#[derive(Debug)]
struct Underway {
    began_ms: u64,
    asked_ms: AtomicU64,
    broken: Mutex<Option<Why>>,
    /// The files to copy; none after the end. Held while a piece is read, never by a thread that others wait for.
    held: Mutex<Option<Held>>,
}

/// The files still to be copied.
#[derive(Debug)]
struct Held {
    /// With the names of their directories.
    shards: VecDeque<(String, ShardCut)>,
    identity: Option<Bytes>,
    /// The current file, and how much of it was read.
    at: Option<(CutFile, u64)>,
}

/// A backup that is being read. Dropping it ends it.
#[derive(Debug)]
pub struct Backup {
    backups: Arc<Backups>,
    underway: Arc<Underway>,
    inner: Weak<Inner>,
    files: u64,
    bytes: u64,
    /// It was read completely.
    is_done: bool,
}

/// A piece of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackupPiece {
    /// The start of a file: its name in the data directory, with `/` between directories, and its length. That many bytes follow.
    File {
        /// The name.
        name: String,
        /// The length. Bytes.
        len: u64,
    },
    /// The next bytes of the file.
    Bytes(Bytes),
}

impl Broker {
    /// Begins a backup that contains everything acknowledged before. Blocks on the disk.
    ///
    /// # Errors
    /// `Busy` if another backup is in progress, `StorageFull` if the disk is short of space, `Io`, `Damaged`.
    pub fn begin_backup(&self) -> Result<Backup> {
        let inner = &self.inner;
        if inner.backups.taken.swap(true, Ordering::AcqRel) {
            inner.backups.failed.fetch_add(1, Ordering::Relaxed);
            return Err(Error::new(ErrorKind::Busy, "another backup is in progress: there is one at a time"));
        }
        inner.begin_backup().inspect_err(|_| {
            inner.backups.failed.fetch_add(1, Ordering::Relaxed);
            inner.backups.taken.store(false, Ordering::Release);
        })
    }

    /// Returns the counters of backups.
    #[must_use]
    pub fn backups(&self) -> BackupStats {
        let Backups { taken, completed, failed, bytes, .. } = &*self.inner.backups;
        BackupStats {
            running: taken.load(Ordering::Relaxed),
            completed: completed.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        }
    }
}

impl Inner {
    fn begin_backup(&self) -> Result<Backup> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(Why::Stopping.error());
        }
        if self.alarm.is_on() {
            let text = "the disk is short of space, and a backup would hold files that are about to be removed; free space first";
            return Err(Error::new(ErrorKind::StorageFull, text));
        }
        let shards = self.cut_shards()?;
        let identity = encode(&self.data.current());
        let (files, bytes) = shards.iter().fold((1, identity.len() as u64), |(files, bytes), (_, shard)| {
            let left = shard.left();
            (files + left.0, bytes + left.1)
        });
        let now_ms = self.now().monotonic_ms;
        let underway = Arc::new(Underway {
            began_ms: now_ms,
            asked_ms: AtomicU64::new(now_ms),
            broken: Mutex::default(),
            held: Mutex::new(Some(Held { shards, identity: Some(identity), at: None })),
        });
        *self.backups.current.lock() = Some(underway.clone());
        let (backups, inner) = (self.backups.clone(), self.this.clone());
        if self.stopping.load(Ordering::Acquire) {
            backups.break_off(Why::Stopping);
        }
        Ok(Backup { backups, underway, inner, files, bytes, is_done: false })
    }

    /// Takes a cut of all shards that have files.
    fn cut_shards(&self) -> Result<VecDeque<(String, ShardCut)>> {
        for _ in 0..TRIES_MAX {
            let shards = self.all_shards();
            let sources = shards.iter().filter_map(|shard| Some((shard.id, shard.log.local()?.source(&shard.store))));
            let (ids_of, of): (Vec<ShardId>, Vec<Source<'_>>) = sources.unzip();
            let names = ids_of.into_iter().map(shard_name);
            let cuts = cut(&self.env, &of)?;
            let ids = |shards: &[Arc<Shard>]| shards.iter().map(|shard| shard.id).collect::<Vec<ShardId>>();
            // Data acknowledged before the cut in a shard opened meanwhile would be missing.
            if ids(&self.all_shards()) == ids(&shards) {
                return Ok(names.zip(cuts).collect());
            }
        }
        Err(Error::new(ErrorKind::Busy, "shards are being opened for new topics; try again"))
    }

    /// Aborts a backup that holds needed disk space, exceeds its time limit, or has an idle client.
    pub(crate) fn check_backup(&self, lacks_room: bool) {
        let Some(underway) = self.backups.current.lock().clone() else { return };
        let now_ms = self.now().monotonic_ms;
        let idle_ms = now_ms.saturating_sub(underway.asked_ms.load(Ordering::Relaxed));
        let why = if lacks_room {
            Why::Room
        } else if now_ms.saturating_sub(underway.began_ms) > self.config.backup_ms_max {
            Why::Late
        } else if idle_ms > IDLE_MS_MAX {
            Why::Idle
        } else {
            return;
        };
        self.backups.break_off(why);
    }

    /// Aborts the backup when the broker stops.
    pub(crate) fn stop_backup(&self) {
        self.backups.break_off(Why::Stopping);
    }

    /// The read pace of a backup. Bytes per second. At most the configured pace; with inflow at most twice the inflow, because flushes wait for its
    /// reads.
    fn backup_pace(&self) -> u64 {
        let most = self.config.backup_bytes_per_sec;
        let incoming: u64 = self.all_shards().iter().map(|shard| self.inflow(shard)).sum();
        match incoming < QUIET_BYTES_PER_SEC {
            true => most,
            false => incoming.saturating_mul(2).max(MERGE_BYTES_PER_SEC_MIN).min(most),
        }
    }
}

impl Backups {
    fn break_off(&self, why: Why) {
        let Some(underway) = self.current.lock().clone() else { return };
        underway.broken.lock().get_or_insert(why);
        // Otherwise the thread that reads a piece releases the files afterwards.
        if let Some(mut held) = underway.held.try_lock() {
            *held = None;
        }
    }
}

impl Underway {
    fn why(&self) -> Option<Why> {
        *self.broken.lock()
    }
}

impl Backup {
    /// Returns the number of files.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Returns the size of all files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next piece, of at most 1 MiB; none after the last. Blocks on the disk.
    ///
    /// # Errors
    /// `Io`, `Damaged` if a file cannot be read; the reason if the backup was aborted. No pieces follow an error.
    pub fn next_piece(&mut self) -> Result<Option<BackupPiece>> {
        if let Some(inner) = self.inner.upgrade() {
            self.underway.asked_ms.store(inner.now().monotonic_ms, Ordering::Relaxed);
        }
        let mut held = self.underway.held.lock();
        let piece = match (&mut *held, self.underway.why()) {
            (Some(held), None) => held.next(),
            (_, Some(why)) => Err(why.error()),
            (None, None) => Ok(None),
        };
        // The backup may have been aborted meanwhile.
        let piece = self.underway.why().map_or(piece, |why| Err(why.error()));
        if !matches!(piece, Ok(Some(_))) {
            *held = None;
        }
        match &piece {
            Ok(Some(BackupPiece::Bytes(bytes))) => {
                self.backups.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Ok(None) => self.is_done = true,
            _ => {}
        }
        piece
    }

    /// Returns how long to wait after a piece of this size, to leave the disk to others.
    #[must_use]
    pub fn pause(&self, bytes: u64) -> Duration {
        let Some(inner) = self.inner.upgrade() else { return Duration::ZERO };
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(inner.backup_pace().max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        *self.underway.held.lock() = None;
        *self.backups.current.lock() = None;
        let counter = if self.is_done { &self.backups.completed } else { &self.backups.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.backups.taken.store(false, Ordering::Release);
    }
}

impl Held {
    fn next(&mut self) -> Result<Option<BackupPiece>> {
        if let Some((file, done)) = &mut self.at {
            let len = (file.len - *done).min(PIECE_BYTES_MAX);
            if len > 0 {
                // At most PIECE_BYTES_MAX.
                let mut bytes = vec![0; len as usize];
                file.read(&mut bytes, *done)?;
                *done += len;
                return Ok(Some(BackupPiece::Bytes(Bytes::from(bytes))));
            }
        }
        self.at = None;
        while let Some((dir, shard)) = self.shards.front_mut() {
            if let Some(file) = shard.next_file()? {
                let (name, len) = (name_of(&Path::new(dir).join(&file.name)), file.len);
                self.at = Some((file, 0));
                return Ok(Some(BackupPiece::File { name, len }));
            }
            self.shards.pop_front();
        }
        let Some(bytes) = self.identity.take() else { return Ok(None) };
        let (file, len) = (CutFile::of_bytes(PathBuf::from(IDENTITY), bytes.clone()), bytes.len() as u64);
        self.at = Some((file, 0));
        Ok(Some(BackupPiece::File { name: IDENTITY.to_owned(), len }))
    }
}

/// All names in a data directory are generated by the broker, and ASCII.
fn name_of(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}
