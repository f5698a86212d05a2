//! Which way a journal file is written: past the page cache or through it.
//!
//! A write through the page cache costs a copy and no waiting; one past it costs a round to the disk, and nothing that grows with
//! its bytes. So small groups that no flush follows are better off in the page cache, and large ones past it. What is
//! flushed at once goes past it in any case: the flush would write it from there and wait all the same.
//!
//! **Invariant:** a file is written one way from its beginning to its end. Mixing both would be coherent only as far as the system
//! writes dirty pages back before a direct write to them, and each such write would wait for that.

use super::config::{Config, Durability, JournalIo};

/// How one file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteMode {
    /// Past the page cache, where the file system can.
    Direct,
    /// Through the page cache.
    Cached,
}

/// The groups that were written lately. The older half counts half when a file begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentGroups {
    bytes: u64,
    count: u64,
    /// Of these, how many were not committed before a flush.
    flushed: u64,
}

impl RecentGroups {
    /// Takes in one more group.
    pub(crate) fn note(&mut self, bytes: u64, class: Durability) {
        self.bytes += bytes;
        self.count += 1;
        self.flushed += u64::from(class == Durability::Sync);
    }

    /// How the next file is to be written.
    pub(crate) fn choose(&mut self, config: &Config) -> WriteMode {
        let chosen = match config.io {
            JournalIo::Direct => WriteMode::Direct,
            JournalIo::Cached => WriteMode::Cached,
            JournalIo::BySize => self.by_size(config),
        };
        *self = RecentGroups { bytes: self.bytes / 2, count: self.count / 2, flushed: self.flushed / 2 };
        chosen
    }

    fn by_size(&self, config: &Config) -> WriteMode {
        let flushed = match self.count {
            0 => config.durability == Durability::Sync,
            count => self.flushed.saturating_mul(2) > count,
        };
        let large = self.bytes > config.cached_group_bytes_max.saturating_mul(self.count);
        if flushed || large { WriteMode::Direct } else { WriteMode::Cached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Identity;
    use polylogue_types::{NodeId, ShardId};

    fn config(durability: Durability, io: JournalIo) -> Config {
        let identity = Identity { cluster: [1; 16], node: NodeId(1), directory: [1; 16], shard: ShardId(0) };
        Config { durability, io, ..Config::new("/x".into(), identity) }
    }

    fn chosen(own: Durability, groups: &[(u64, Durability)]) -> WriteMode {
        let mut recent = RecentGroups::default();
        groups.iter().for_each(|(bytes, class)| recent.note(*bytes, *class));
        recent.choose(&config(own, JournalIo::BySize))
    }

    #[test]
    fn small_groups_without_a_flush_go_through_the_page_cache() {
        use Durability::{Async, Sync};
        assert_eq!((chosen(Async, &[]), chosen(Sync, &[])), (WriteMode::Cached, WriteMode::Direct));
        assert_eq!(chosen(Sync, &[(16 << 10, Async)]), WriteMode::Cached, "the groups count, not the journal's class");
        assert_eq!(chosen(Async, &[(16 << 10, Sync)]), WriteMode::Direct);
        assert_eq!(chosen(Async, &[(1 << 20, Async)]), WriteMode::Direct);
        assert_eq!(chosen(Async, &[(64 << 10, Async), (64 << 10, Sync)]), WriteMode::Cached, "half is not most");
        assert_eq!(chosen(Async, &[((64 << 10) + 1, Async)]), WriteMode::Direct, "the bound itself is small");
    }

    #[test]
    fn what_was_lately_counts_more() {
        let config = config(Durability::Async, JournalIo::BySize);
        let mut recent = RecentGroups::default();
        (0..64).for_each(|_| recent.note(1 << 20, Durability::Async));
        assert_eq!(recent.choose(&config), WriteMode::Direct);
        // A file's worth of small groups: the mean is small again.
        (0..4_000).for_each(|_| recent.note(16 << 10, Durability::Async));
        assert_eq!(recent.choose(&config), WriteMode::Cached);
    }

    #[test]
    fn a_setting_that_names_a_way_is_kept() {
        for (io, mode) in [(JournalIo::Direct, WriteMode::Direct), (JournalIo::Cached, WriteMode::Cached)] {
            for (class, bytes) in [(Durability::Async, 1 << 10), (Durability::Sync, 1 << 20)] {
                let mut recent = RecentGroups::default();
                recent.note(bytes, class);
                assert_eq!(recent.choose(&config(class, io)), mode);
            }
        }
    }
}
