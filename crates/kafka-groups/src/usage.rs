//! What groups take, as other threads see it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Numbers of the coordinators of all shards, as they were after the last call of each.
#[derive(Debug, Default)]
pub struct GroupUsage {
    memory_bytes: AtomicUsize,
    refused: AtomicU64,
}

impl GroupUsage {
    /// What groups and offsets hold in memory, as an estimate. Bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Commits and joins that were refused because their user's groups hold all that they may.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// One coordinator holds other bytes than before.
    pub(super) fn change(&self, before: usize, now: usize) {
        self.memory_bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}
