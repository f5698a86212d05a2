//! Reserved disk space: a file that is removed when the disk is full.
//!
//! A start begins a journal file, and a deletion frees space only through a checkpoint and a manifest: all of these are written before anything is
//! freed. [`BrokerConfig::disk_reserve_bytes`](crate::BrokerConfig) keeps messages from using the last space, but not other programs. The file
//! consists of allocated blocks that are never written. It is removed at a start that finds less free space than the file holds, and at run time when
//! nearly nothing is free; it is created again when there is space. A failed flush of it is harmless, because it contains no data: the file is removed.

use polylogue_env::{Env, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The file in the data directory.
const RESERVE: &str = "RESERVE";
/// Its maximum size. Bytes.
const RESERVE_BYTES_MAX: u64 = 16 << 20;
/// Its size is this fraction (1/n) of the space that messages leave free.
const RESERVE_SHARE: u64 = 16;
/// It is created when this many times its size is free.
const ROOM_TO_MAKE: u64 = 4;

/// The file, and whether it exists.
#[derive(Debug)]
pub(crate) struct Reserve {
    env: Env,
    path: PathBuf,
    bytes: u64,
    held: AtomicBool,
}

impl Reserve {
    /// For a start: removes the file if less is free than it holds. `disk_reserve_bytes`: the space that messages leave free.
    pub(crate) fn open(env: &Env, data: &Path, disk_reserve_bytes: u64) -> Reserve {
        let bytes = (disk_reserve_bytes / RESERVE_SHARE).min(RESERVE_BYTES_MAX);
        let path = data.join(RESERVE);
        let held = AtomicBool::new(env.disk.exists(&path));
        let reserve = Reserve { env: env.clone(), path, bytes, held };
        if env.disk.free_bytes(data).is_ok_and(|free| free < bytes) {
            reserve.give_up();
        }
        reserve
    }

    /// Checks the free space: removes the file, or creates it.
    pub(crate) fn look(&self, free: u64) {
        if free < self.bytes / 2 {
            self.give_up();
        } else if self.bytes > 0
            && free >= self.bytes.saturating_mul(ROOM_TO_MAKE)
            && !self.held.load(Ordering::Relaxed)
            && self.make().is_err()
        {
            // A partial file is no reserve.
            _ = self.env.disk.remove(&self.path);
        }
    }

    /// Returns its present size.
    pub(crate) fn held_bytes(&self) -> u64 {
        if self.held.load(Ordering::Relaxed) { self.bytes } else { 0 }
    }

    fn make(&self) -> io::Result<()> {
        let file = self.env.disk.open(&self.path, OpenMode::CreateNew)?;
        file.allocate(self.bytes)?;
        file.sync_data()?;
        self.held.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the file to free its space. If that fails, the file stays.
    fn give_up(&self) {
        if self.held.load(Ordering::Relaxed) && self.env.disk.remove(&self.path).is_ok() {
            self.held.store(false, Ordering::Relaxed);
        }
    }
}
