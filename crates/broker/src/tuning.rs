//! Broker settings that may change at run time.

use crate::broker::Inner;
use crate::config::BrokerConfig;
use polylogue_api::{Durability, Tuning};
use polylogue_types::TimestampMs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The current values.
#[derive(Debug)]
pub(crate) struct Tunables {
    producer_expiration_ms: AtomicU64,
    tail_cache_bytes: AtomicUsize,
    merge_bytes_per_sec: AtomicU64,
}

impl Tunables {
    /// Returns the values of the start configuration.
    pub(crate) fn new(config: &BrokerConfig) -> Tunables {
        Tunables {
            producer_expiration_ms: AtomicU64::new(config.producer_expiration_ms),
            tail_cache_bytes: AtomicUsize::new(config.store.tail_cache_bytes),
            merge_bytes_per_sec: AtomicU64::new(config.merge_bytes_per_sec),
        }
    }

    pub(crate) fn merge_bytes_per_sec(&self) -> u64 {
        self.merge_bytes_per_sec.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// Applies the resolver's values.
    pub(crate) fn retune(&self) {
        let Tuning { producer_expiration_ms, tail_cache_bytes, merge_bytes_per_sec } = self.config.resolver.tuning();
        let (tunables, config) = (&self.tunables, &self.config);
        let producer_expiration_ms = producer_expiration_ms.unwrap_or(config.producer_expiration_ms);
        tunables.producer_expiration_ms.store(producer_expiration_ms, Ordering::Relaxed);
        let merge_bytes_per_sec = merge_bytes_per_sec.unwrap_or(config.merge_bytes_per_sec);
        tunables.merge_bytes_per_sec.store(merge_bytes_per_sec, Ordering::Relaxed);
        let tail_cache_bytes = tail_cache_bytes.unwrap_or(config.store.tail_cache_bytes);
        if tunables.tail_cache_bytes.swap(tail_cache_bytes, Ordering::Relaxed) != tail_cache_bytes {
            self.tune();
        }
    }

    /// Sets the bounds of the shards' tail caches, which share the total. A memory shard's ring is its only storage and stays.
    pub(crate) fn tune(&self) {
        let shards = self.all_shards();
        let on_disk = || shards.iter().filter(|shard| shard.class != Durability::Memory);
        let share = self.config.store.tail_cache_bytes_max / on_disk().count().max(1);
        let bytes = self.tunables.tail_cache_bytes.load(Ordering::Relaxed);
        on_disk().for_each(|shard| shard.store.set_tail_cache_bytes(bytes, share));
    }

    /// Returns the time before which an inactive producer is unknown.
    pub(crate) fn oldest_producer_ms(&self, now_ms: TimestampMs) -> TimestampMs {
        let expiration_ms = self.tunables.producer_expiration_ms.load(Ordering::Relaxed);
        now_ms - i64::try_from(expiration_ms).unwrap_or(i64::MAX)
    }
}
