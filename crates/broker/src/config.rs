//! The broker's own settings and bounds.

use polylogue_api::{ConfigResolver, IdentityResolver, LogView};
use polylogue_log::journal::{CommitSink, JournalIo};
use polylogue_log::store::StoreConfig;
use polylogue_types::{NodeId, limits};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How queues without early delivery (`QueueSettings::early`) count failures and order messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueRules {
    /// Every return counts against `QueueSettings::failures_max`, not only failures.
    pub returns_count: bool,
    /// The priority of a message without one.
    pub normal_priority: u8,
    /// Two levels of priority: higher than normal, and the rest. Of three messages two are of the higher level while there are messages of both.
    /// Otherwise each priority is a level, and higher ones are delivered first.
    pub two_levels: bool,
}

/// How publishers without confirms (`Ack::KeptUp`) are slowed if a queue's consumers do not keep up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditRules {
    /// Growth of a queue while its consumers wait, above which publishers' credit is withheld. Messages.
    pub growth_messages: u64,
    /// The same limit in bytes of committed messages.
    pub growth_bytes: u64,
    /// The longest time for which credit is withheld. Milliseconds.
    pub withheld_ms_max: u64,
}

impl Default for CreditRules {
    fn default() -> CreditRules {
        CreditRules { growth_messages: 4_000, growth_bytes: 8 << 20, withheld_ms_max: 100 }
    }
}

/// See [`BrokerConfig::witness`].
#[derive(Clone)]
pub struct Witness(pub Arc<dyn CommitSink>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

/// The broker's configuration. The defaults suit most installations.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The data directory.
    pub data_dir: PathBuf,
    /// This node's id. A new directory is created for it, or for node 1 if unset; an existing directory of another node is refused.
    pub node: Option<NodeId>,
    /// Journal shards of class `sync`. More than one helps only on disks that flush in parallel.
    pub sync_shards: u32,
    /// Size of a journal file. Bytes.
    pub journal_file_bytes: u64,
    /// How journals are written.
    pub journal_io: JournalIo,
    /// Journal to be replayed at a start above which a checkpoint is due. Bytes.
    pub checkpoint_bytes_max: u64,
    /// Free disk space below which appends of payload are refused. Bytes.
    pub disk_reserve_bytes: u64,
    /// Free disk space below which publishers to queues are blocked; no effect below `disk_reserve_bytes`. Bytes.
    pub disk_free_limit_bytes: u64,
    /// The longest time that an acknowledged record of an `async` shard stays unflushed. Milliseconds.
    pub async_flush_ms_max: u64,
    /// The longest time that a record without a waiter stays unflushed. Milliseconds.
    pub lazy_flush_ms_max: u64,
    /// Whether queues with `QueueSettings::early` deliver messages before they are flushed.
    pub early_deliveries: bool,
    /// How queues without early delivery count failures and order messages.
    pub queue_rules: QueueRules,
    /// How publishers that are faster than a queue's consumers are slowed.
    pub credit_rules: CreditRules,
    /// The longest interval of retention checks: shorter, down to one second, for short retention times or with a limit in bytes. Milliseconds.
    pub retention_check_ms: u64,
    /// How long an idle producer is remembered (Kafka's `producer.id.expiration.ms`). Milliseconds.
    pub producer_expiration_ms: u64,
    /// Limit of all partitions together.
    pub partitions_max: u64,
    /// Size of a partition of class `memory`. Bytes.
    pub memory_partition_bytes_max: u64,
    /// Size of all partitions of class `memory` together. Bytes.
    pub memory_bytes_max: usize,
    /// The pace of background writes that make segments. Bytes per second.
    pub merge_bytes_per_sec: u64,
    /// The fastest pace at which a backup reads. Bytes per second.
    pub backup_bytes_per_sec: u64,
    /// The longest duration of a backup, during which it may hold disk space. Milliseconds.
    pub backup_ms_max: u64,
    /// Bytes of requests in progress over all connections.
    pub inflight_bytes_max: usize,
    /// Threads that read uncached data from disk.
    pub reader_threads: usize,
    /// Settings of the partition stores.
    pub store: StoreConfig,
    /// Derives effective settings from recorded ones.
    pub resolver: Arc<dyn ConfigResolver>,
    /// Receives every committed frame of this run before it is applied, for the simulator's followers; no option sets it.
    pub witness: Option<Witness>,
    /// How readers by offset see the messages of queues; `None`: as stored.
    pub view: Option<Arc<dyn LogView>>,
}

impl BrokerConfig {
    /// Returns the defaults for a data directory.
    #[must_use]
    pub fn new(data_dir: PathBuf) -> BrokerConfig {
        BrokerConfig {
            data_dir,
            node: None,
            sync_shards: 1,
            journal_file_bytes: limits::JOURNAL_FILE_BYTES,
            journal_io: JournalIo::BySize,
            checkpoint_bytes_max: limits::CHECKPOINT_BYTES_MAX,
            disk_reserve_bytes: limits::DISK_RESERVE_BYTES,
            disk_free_limit_bytes: limits::DISK_FREE_LIMIT_BYTES,
            async_flush_ms_max: limits::ASYNC_FLUSH_MS_MAX,
            lazy_flush_ms_max: limits::LAZY_FLUSH_MS_MAX,
            early_deliveries: true,
            queue_rules: QueueRules::default(),
            credit_rules: CreditRules::default(),
            retention_check_ms: 300_000,
            producer_expiration_ms: 24 * 3_600_000,
            partitions_max: 1_000_000,
            memory_partition_bytes_max: 16 << 20,
            memory_bytes_max: 256 << 20,
            merge_bytes_per_sec: 256 << 20,
            backup_bytes_per_sec: 128 << 20,
            backup_ms_max: 12 * 3_600_000,
            inflight_bytes_max: limits::INFLIGHT_BYTES_MAX,
            reader_threads: 2,
            store: StoreConfig::default(),
            resolver: Arc::new(IdentityResolver),
            witness: None,
            view: None,
        }
    }
}
