//! The broker's own settings and bounds.

use polylogue_api::{AsRecorded, ConfigResolver, LogView};
use polylogue_log::journal::{CommitSink, JournalIo};
use polylogue_log::store::StoreConfig;
use polylogue_types::{NodeId, limits};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How queues that hand out messages when they are flushed (not `QueueSettings::early`) count and order them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueRules {
    /// Whatever comes back counts against `QueueSettings::failures_max`, not only failures.
    pub returns_count: bool,
    /// The priority of a message without one.
    pub normal_priority: u8,
    /// There are two levels of priority: the normal one and lower ones, and higher ones. Of three messages two are of the higher level as
    /// long as there are both. Else each priority is a level, and higher ones go first.
    pub two_levels: bool,
}

/// How publishers that wait for no confirms (`Ack::KeptUp`) are slowed where a queue's consumers do not keep up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditRules {
    /// Messages by which a queue may grow while consumers wait for them; beyond, what its publishers are owed is withheld.
    pub growth_messages: u64,
    /// The same in bytes of committed messages.
    pub growth_bytes: u64,
    /// The longest that it is withheld. Milliseconds.
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

/// The broker's configuration. Each value has a default that is right for most.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Which node this is. A new directory is made for it, else for node 1; an existing one knows, and another node's is refused.
    pub node: Option<NodeId>,
    /// Journal shards of class `sync`. More than one flush at a time pays only on disks that flush in parallel.
    pub sync_shards: u32,
    /// The size of a journal file. Bytes.
    pub journal_file_bytes: u64,
    /// How journals are written.
    pub journal_io: JournalIo,
    /// How much journal may be replayed at a start before a checkpoint is due. Bytes.
    pub checkpoint_bytes_max: u64,
    /// Free disk space under which payload is refused. Bytes.
    pub disk_reserve_bytes: u64,
    /// Free disk space under which publishers to queues are blocked; without effect below `disk_reserve_bytes`. Bytes.
    pub disk_free_limit_bytes: u64,
    /// The longest that an acknowledged record of an `async` shard stays unflushed. Milliseconds.
    pub async_flush_ms_max: u64,
    /// The longest that a record without a waiter stays unflushed. Milliseconds.
    pub lazy_flush_ms_max: u64,
    /// Whether queues that may (`QueueSettings::early`) hand out messages before they are flushed.
    pub early_deliveries: bool,
    /// How the other queues count and order messages.
    pub queue_rules: QueueRules,
    /// How publishers are slowed that are faster than a queue's consumers.
    pub credit_rules: CreditRules,
    /// How often retention looks for what may go, at the latest: sooner, down to each second, where messages live only briefly
    /// or a bound on bytes is set. Milliseconds.
    pub retention_check_ms: u64,
    /// How long a silent producer is remembered (Kafka's `producer.id.expiration.ms`). Milliseconds.
    pub producer_expiration_ms: u64,
    /// The bound on all partitions together.
    pub partitions_max: u64,
    /// What one partition of class `memory` keeps. Bytes.
    pub memory_partition_bytes_max: u64,
    /// What all partitions of class `memory` keep together. Bytes.
    pub memory_bytes_max: usize,
    /// The pace of background writes that make segments. Bytes per second.
    pub merge_bytes_per_sec: u64,
    /// The pace at which a backup reads, at the most. Bytes per second.
    pub backup_bytes_per_sec: u64,
    /// The longest that a backup may take: so long it may hold room on the disk. Milliseconds.
    pub backup_ms_max: u64,
    /// Requests in work over all connections, by their bytes.
    pub inflight_bytes_max: usize,
    /// Threads that read cold data from disk.
    pub reader_threads: usize,
    /// The partition stores' settings.
    pub store: StoreConfig,
    /// What makes of recorded settings what holds.
    pub resolver: Arc<dyn ConfigResolver>,
    /// Is given every committed frame of this life before it is applied, for the simulator's followers; no option sets it.
    pub witness: Option<Witness>,
    /// How those who read by offset see the messages of queues; `None`: as they are stored.
    pub view: Option<Arc<dyn LogView>>,
}

impl BrokerConfig {
    /// The defaults for a data directory.
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
            resolver: Arc::new(AsRecorded),
            witness: None,
            view: None,
        }
    }
}
