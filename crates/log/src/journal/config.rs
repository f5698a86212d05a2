//! The configuration of a journal, and the bounds it keeps.

use polylogue_types::{Index, NodeId, ShardId, limits};
use std::fmt;
use std::path::PathBuf;

/// Whose journal it is. Written into every file; a directory of another identity is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster, random.
    pub cluster: [u8; 16],
    /// The node.
    pub node: NodeId,
    /// The data directory, random: a directory that was copied to another node is not that node's.
    pub directory: [u8; 16],
    /// The shard.
    pub shard: ShardId,
}

/// When a proposal, or a frame that is none, counts as committed. Ordered by how much it promises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    /// When it is written; flushed at least each [`Config::async_flush_ms_max`].
    Async,
    /// When it is flushed.
    Sync,
}

/// How the frames of a journal file are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalIo {
    /// Past the page cache, where the file system can.
    Direct,
    /// Through the page cache.
    Cached,
    /// Each file in one of these ways: through the page cache where the groups before it were small
    /// ([`Config::cached_group_bytes_max`]) and most of them waited for no flush; past it otherwise. Without groups before it,
    /// by the journal's class.
    BySize,
}

/// What an empty directory becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartOfLife {
    /// A log of one voter: index 0 is the membership of this node alone, and it has voted for itself in term 1.
    OneVoter,
    /// Nothing: a consensus engine brings membership and vote, and says what is committed.
    Pristine,
    /// Nothing: all frames come from the writer's log once they are committed there ([`Journal::follow`](super::Journal::follow)). What is in
    /// the log at a later start is committed.
    Follower,
}

/// Settings of one journal. [`Config::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// The shard's directory; the journal's files are in `journal` below it.
    pub dir: PathBuf,
    /// Whose journal it is.
    pub identity: Identity,
    /// When that counts as committed which does not say it for itself ([`Proposal::class`](super::Proposal::class)).
    pub durability: Durability,
    /// What an empty directory becomes.
    pub start: StartOfLife,
    /// The last index that a checkpoint covers. In a log of one voter, damage in a sealed file up to it does not refuse the start:
    /// see [`Recovery::passed`].
    pub covered: Option<Index>,
    /// The size of a journal file, a multiple of 4096. Bytes.
    pub file_bytes: u64,
    /// The largest frame, unless one proposal that cannot be split is larger. Bytes.
    pub frame_bytes_max: usize,
    /// The largest single entry. Bytes.
    pub entry_bytes_max: usize,
    /// What may wait in front of the writer. Bytes.
    pub queue_bytes_max: usize,
    /// How many proposals may wait in front of the writer.
    pub queue_count_max: usize,
    /// A group is flushed when it has so many bytes, even if more is queued.
    pub flush_bytes_max: u64,
    /// A group is flushed when so much time has passed since its first frame, even if more is queued. Microseconds.
    pub flush_us_max: u64,
    /// The longest that a proposal which may wait stays unwritten. Microseconds.
    pub lazy_write_us_max: u64,
    /// The longest that a lazy proposal stays unflushed. Milliseconds.
    pub lazy_flush_ms_max: u64,
    /// The longest that what counts as committed without a flush stays unflushed. Milliseconds.
    pub async_flush_ms_max: u64,
    /// How long after its last flush an idle journal writes a mark. Milliseconds.
    pub mark_idle_ms: u64,
    /// The part of the files' room that only proposals with `reserve` may use while the disk is full. Bytes.
    pub reserve_bytes: u64,
    /// Free disk space under which the disk counts as full. Bytes.
    pub disk_reserve_bytes: u64,
    /// Recycled files that are kept beside the one that is ready.
    pub spare_files_max: usize,
    /// Released files that a reader still holds, kept for recycling when it lets go; more are removed.
    pub retired_files_max: usize,
    /// How much of a new file one background step fills with zeros. Bytes.
    pub prewrite_piece_bytes: usize,
    /// The pace of filling new files with zeros. Bytes per second.
    pub prewrite_bytes_per_sec: u64,
    /// How frames are written.
    pub io: JournalIo,
    /// With [`JournalIo::BySize`], the mean group up to which a file of groups that wait for no flush is written through the page
    /// cache. Bytes.
    pub cached_group_bytes_max: u64,
    /// How much may be queued for a proposer to write it on its own thread. Bytes; 0: none does.
    pub prompt_bytes_max: usize,
    /// How long writing on a proposer's thread may take; after a longer one the journal's threads do it for a while. Microseconds.
    pub prompt_us_max: u64,
    /// That while, in times that the write took: a proposer's thread is kept from its other work for no more than that share.
    pub prompt_pause_factor: u64,
    /// How often the free disk space is looked at. Milliseconds.
    pub room_poll_ms: u64,
}

impl Config {
    /// The defaults, for a journal of class `sync` that starts its life as a log of one voter.
    #[must_use]
    pub fn new(dir: PathBuf, identity: Identity) -> Config {
        Config {
            dir,
            identity,
            durability: Durability::Sync,
            start: StartOfLife::OneVoter,
            covered: None,
            file_bytes: limits::JOURNAL_FILE_BYTES,
            frame_bytes_max: limits::FRAME_BYTES_MAX,
            entry_bytes_max: limits::REQUEST_BYTES_MAX,
            queue_bytes_max: 64 << 20,
            queue_count_max: 64 << 10,
            flush_bytes_max: 4 << 20,
            flush_us_max: 500,
            lazy_write_us_max: 1_000,
            lazy_flush_ms_max: limits::LAZY_FLUSH_MS_MAX,
            async_flush_ms_max: limits::ASYNC_FLUSH_MS_MAX,
            mark_idle_ms: 500,
            reserve_bytes: 8 << 20,
            disk_reserve_bytes: limits::DISK_RESERVE_BYTES,
            // As many as a merge gives back: what is not kept is made again, and filled with zeros before.
            spare_files_max: 4,
            retired_files_max: 2,
            prewrite_piece_bytes: 256 << 10,
            prewrite_bytes_per_sec: 256 << 20,
            io: JournalIo::BySize,
            cached_group_bytes_max: 64 << 10,
            prompt_bytes_max: 64 << 10,
            prompt_us_max: 1_000,
            prompt_pause_factor: 10,
            room_poll_ms: 500,
        }
    }
}

/// Free room, in the journal's own files and on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Bytes that files which are already allocated can still take.
    pub in_files: u64,
    /// The part of `in_files` that payload may use while the disk is full.
    pub for_payload: u64,
    /// Free bytes of the file system when it was last looked at.
    pub on_disk: u64,
    /// The disk is full: less than `disk_reserve_bytes` is free, or it refused a file. Payload is refused when
    /// `for_payload` is used up; other proposals go on. Ends by itself when there is room again.
    pub full: bool,
}

/// What opening a journal found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Files with frames.
    pub files: usize,
    /// Frames with an index that are there.
    pub frames: u64,
    /// Frames, local ones included, that no mark called durable and that were copied and flushed.
    pub frames_copied: u64,
    /// Where a torn tail was cut, and how many bytes up to the last one that verifies: `(file sequence, position, bytes)`.
    pub torn: Option<(u64, u64, u64)>,
    /// The directory was empty and a new log was started.
    pub started: bool,
    /// Damage that was passed over, because a checkpoint covers the whole file.
    pub passed: Vec<Passed>,
    /// Bytes read.
    pub bytes_read: u64,
}

/// A damaged place that a start has passed over. The file is kept aside when it is released.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The file.
    pub path: PathBuf,
    /// Bytes from its start.
    pub position: u64,
    /// What is wrong.
    pub what: String,
    /// The first index concerned.
    pub first: Index,
    /// The index after the last frame that is missing, `first` where no frame with an index is; `None` for a frame of which only
    /// native bytes are damaged: it is shown without them.
    pub missing: Option<Index>,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at {}: {}; index {}", self.path.display(), self.position, self.what, self.first)?;
        if let Some(end) = self.missing {
            write!(f, ", {} frames are missing", end.0.saturating_sub(self.first.0))?;
        }
        Ok(())
    }
}

/// A sealed file of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedFile {
    /// Its sequence number.
    pub sequence: u64,
    /// Its first and last index; `None` when no frame in it has an index.
    pub indexes: Option<(Index, Index)>,
    /// Bytes from its start to the end of its last frame.
    pub end: u64,
}
