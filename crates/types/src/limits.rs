//! The bounds that hold everywhere, each with its default. Those an operator may move are options of the server
//! that start from these values.

/// The largest journal frame, unless one entry alone is larger. Bytes.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Journal frames start on multiples of this. Bytes.
pub const FRAME_ALIGN_BYTES: u64 = 64;
/// The size of a journal file. Bytes.
pub const JOURNAL_FILE_BYTES: u64 = 64 << 20;
/// The largest request that a connection may send (Kafka's `socket.request.max.bytes`). Bytes.
pub const REQUEST_BYTES_MAX: usize = 100 << 20;
/// The largest record batch (Kafka's `message.max.bytes`). Bytes.
pub const MESSAGE_BYTES_MAX: usize = 1_048_588;
/// What one batch may decompress to, at the most, wherever the broker looks inside one. Bytes.
pub const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;
/// Recent frames kept in memory for readers at the tail. Bytes.
pub const TAIL_CACHE_BYTES: usize = 64 << 20;
/// What was read back of a journal's files, kept in memory for other readers of the same place. Bytes.
pub const READ_CACHE_BYTES: usize = 64 << 20;
/// Requests in work over all connections, by their bytes. Bytes.
pub const INFLIGHT_BYTES_MAX: usize = 256 << 20;
/// How much journal may be replayed at a start before a checkpoint is due. Bytes.
pub const CHECKPOINT_BYTES_MAX: u64 = 64 << 20;
/// Free disk space under which payload is refused. Bytes.
pub const DISK_RESERVE_BYTES: u64 = 256 << 20;
/// Free disk space under which publishers to queues are blocked (RabbitMQ's `disk_free_limit`, there 50 MB). Bytes.
pub const DISK_FREE_LIMIT_BYTES: u64 = 512 << 20;
/// The longest that a record without a waiter stays unflushed. Milliseconds.
pub const LAZY_FLUSH_MS_MAX: u64 = 10;
/// The longest that an acknowledged record of an `async` shard stays unflushed. Milliseconds.
pub const ASYNC_FLUSH_MS_MAX: u64 = 1_000;
