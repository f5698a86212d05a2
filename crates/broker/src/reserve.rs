//! Room that is held for a disk without any: a file that is given up when there is nothing else.
//!
//! A start begins a file of the journal, and a deletion gives room back only through a checkpoint and a manifest: all of these are written before
//! anything is freed. [`BrokerConfig::disk_reserve_bytes`](crate::BrokerConfig) keeps messages from taking the last room; other programs it
//! does not keep. The file is of blocks that are allocated and never written. It is given up at a start that finds less free than it holds, and while the
//! broker runs when nearly nothing is free; it is made again when there is room.

use polylogue_env::{Env, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The file in the data directory.
const RESERVE: &str = "RESERVE";
/// What it holds at the most. Bytes.
const RESERVE_BYTES_MAX: u64 = 16 << 20;
/// It holds this part of what messages leave free.
const RESERVE_SHARE: u64 = 16;
/// It is made when so many times its size are free.
const ROOM_TO_MAKE: u64 = 4;

/// The file, and whether it is there.
#[derive(Debug)]
pub(crate) struct Reserve {
    env: Env,
    path: PathBuf,
    bytes: u64,
    held: AtomicBool,
}

impl Reserve {
    /// For a start: gives the file up where less is free than it holds. `disk_reserve_bytes` is what messages leave free.
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

    /// Looks at the room there is: gives the file up, or makes it.
    pub(crate) fn look(&self, free: u64) {
        if free < self.bytes / 2 {
            self.give_up();
        } else if self.bytes > 0
            && free >= self.bytes.saturating_mul(ROOM_TO_MAKE)
            && !self.held.load(Ordering::Relaxed)
            && self.make().is_err()
        {
            // What is left of it is no reserve.
            _ = self.env.disk.remove(&self.path);
        }
    }

    /// What it holds now.
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

    /// Its room is there for others. What cannot be removed stays.
    fn give_up(&self) {
        if self.held.load(Ordering::Relaxed) && self.env.disk.remove(&self.path).is_ok() {
            self.held.store(false, Ordering::Relaxed);
        }
    }
}
