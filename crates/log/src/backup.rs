//! A consistent copy of shards while they work.
//!
//! A copy is what a power cut would leave at one moment, the *cut*, if everything written before it had reached the disk: so it opens as
//! any other directory does. What is copied after the cut must be what stood there at it:
//!
//! ```text
//!   freeze        of all shards: no merge, adoption, reclaiming, checkpoint            (milliseconds; the journals go on)
//!    ├ manifest           taken from memory, dead rows marked
//!    ├ checkpoint files   opened: a file that is removed can be read until it is closed
//!    ├ segments           pinned: not punched, not removed                              (store/freeze.rs)
//!    └ cut                of all journals at one moment: files, and where the log ends  (journal/cut.rs)
//!   thaw          everything goes on
//!   flush         what was written before the cut becomes durable
//!   copy          checkpoint files and segments, which never change; of journal files what is before the cut
//! ```
//!
//! What a frame before the cut says, other frames before it say too: nothing is acknowledged or shown by one shard before it is written,
//! and the cut of all journals is taken while none of them can say that anything is. So there is no order of shards to keep: a topic's
//! record (first shard) is there before its messages (any shard), and a committed offset (first shard) is there after them.
//!
//! The log goes on behind the cut in the same file, page by page. Its bytes before the cut do not change by that.
//!
//! **Invariants**
//! - Everything that was acknowledged before [`cut`] was called is in the copy; what was not written when it returned is not.
//! - The journal in the copy reaches back to what checkpoint and segments in the copy cover.
//! - Nothing waits for the copying client. A cut holds disk space only, which is released when the cut is dropped.

use crate::checkpoint::{CHECKPOINT_DIR, CheckpointStore, file_names};
use crate::error::{Error, ErrorKind, Result};
use crate::journal::file::{Role, journal_dir};
use crate::journal::{Journal, JournalCut, cut_all};
use crate::store::{Frozen, MANIFEST_FILE, Pinned, PinnedFile, SEGMENTS_DIR, ShardStore};
use bytes::Bytes;
use polylogue_env::{DiskFile, Env, OpenMode};
use polylogue_types::Index;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A shard to copy.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its store, which has the checkpoints too.
    pub store: &'a ShardStore,
    /// Its journal.
    pub journal: &'a Journal,
}

/// The files of a shard to copy. None of them changes or is removed until this is dropped.
#[derive(Debug)]
pub struct ShardCut {
    env: Env,
    files: VecDeque<Planned>,
    end: Option<Index>,
    _pinned: Pinned,
}

/// A file to copy.
#[derive(Debug)]
struct Planned {
    name: PathBuf,
    len: u64,
    content: Content,
}

/// The source of a file's bytes.
#[derive(Debug)]
enum Content {
    Memory(Bytes),
    Open(Arc<dyn DiskFile>),
    Segment(PinnedFile),
}

/// A file that is being copied.
#[derive(Debug)]
pub struct CutFile {
    /// Its name in the shard's directory.
    pub name: PathBuf,
    /// Bytes.
    pub len: u64,
    content: Content,
    /// The open file of a segment.
    open: Option<Arc<dyn DiskFile>>,
}

/// Takes a cut of shards, at one moment for all of them. No shard may be named twice. Waits for pieces of merges and for checkpoints
/// that are being written, and for a flush of the journals.
///
/// # Errors
/// `Busy` while a cut of one of them is held already, or when a journal file is on its way to the segments and does not get there;
/// `Stopped`; `Damaged`, `Io` when checkpoint files cannot be opened.
pub fn cut(env: &Env, sources: &[Source<'_>]) -> Result<Vec<ShardCut>> {
    let checkpoints = sources.iter().map(|s| s.store.checkpoints()).collect::<Result<Vec<CheckpointStore>>>()?;
    let held: Vec<_> = checkpoints.iter().map(CheckpointStore::hold).collect();
    let mut frozen = Vec::with_capacity(sources.len());
    for source in sources {
        frozen.push(source.store.freeze()?);
    }
    let journals: Vec<&Journal> = sources.iter().map(|source| source.journal).collect();
    let opened = frozen.iter().zip(sources).map(|(frozen, source)| open_checkpoint(env, source.store.dir(), frozen));
    let opened = opened.collect::<Result<Vec<_>>>()?;
    let journal_cuts = cut_all(&journals);
    drop(held);
    let mut cuts = Vec::with_capacity(sources.len());
    for ((frozen, checkpoint), journal) in frozen.into_iter().zip(opened).zip(&journal_cuts) {
        cuts.push(plan(env, frozen, checkpoint, journal)?);
    }
    for (journal, cut) in journals.iter().zip(&journal_cuts) {
        journal.flush_cut(cut)?;
    }
    Ok(cuts)
}

/// Both copies of the files of a checkpoint.
fn open_checkpoint(env: &Env, shard_dir: &Path, frozen: &Frozen<'_>) -> Result<Vec<Planned>> {
    let dir = shard_dir.join(CHECKPOINT_DIR);
    let named = frozen.manifest.checkpoint_files.iter();
    let names = named.flat_map(|named| file_names(named.sequence).map(|name| (name, named.len)));
    let open = |(name, len): (String, u64)| {
        let path = dir.join(&name);
        let file = env.disk.open(&path, OpenMode::Read);
        let file = file.map_err(|e| Error::io(format!("cannot open {}", path.display()), e))?;
        Ok(Planned { name: Path::new(CHECKPOINT_DIR).join(name), len, content: Content::Open(file) })
    };
    names.map(open).collect()
}

/// The files of a shard, in descending order of the cost of holding them.
fn plan(env: &Env, frozen: Frozen<'_>, checkpoint: Vec<Planned>, journal: &JournalCut) -> Result<ShardCut> {
    let Frozen { manifest, pinned, .. } = frozen;
    let from = manifest.covered_upto().map_or(Index(0), Index::next);
    if journal.first > from {
        let what = format!("the journal begins at index {}, and {from} is in no segment yet", journal.first);
        return Err(Error::new(ErrorKind::Busy, what));
    }
    let mut files = VecDeque::new();
    for (live, len) in &journal.files {
        let name = journal_dir(Path::new("")).join(Role::Log(live.sequence).name());
        files.push_back(Planned { name, len: *len, content: Content::Open(live.file.clone()) });
    }
    files.extend(checkpoint);
    for (file, len) in manifest.segments.iter().flat_map(|named| pinned.files(named)) {
        let name = file.path.file_name().map(|name| Path::new(SEGMENTS_DIR).join(name));
        files.extend(name.map(|name| Planned { name, len, content: Content::Segment(file) }));
    }
    let bytes = Bytes::from(manifest.encode());
    let (name, len) = (PathBuf::from(MANIFEST_FILE), bytes.len() as u64);
    files.push_back(Planned { name, len, content: Content::Memory(bytes) });
    Ok(ShardCut { env: env.clone(), files, end: journal.end.index, _pinned: pinned })
}

impl ShardCut {
    /// The last frame in the cut.
    #[must_use]
    pub fn end(&self) -> Option<Index> {
        self.end
    }

    /// The number of remaining files, and their bytes.
    #[must_use]
    pub fn left(&self) -> (u64, u64) {
        (self.files.len() as u64, self.files.iter().map(|file| file.len).sum())
    }

    /// Returns the next file; `None` after the last. Dropping it releases its resources.
    ///
    /// # Errors
    /// `Io` when it cannot be opened.
    pub fn next_file(&mut self) -> Result<Option<CutFile>> {
        let Some(Planned { name, len, content }) = self.files.pop_front() else { return Ok(None) };
        let open = match &content {
            Content::Segment(PinnedFile { path, .. }) => {
                let opened = self.env.disk.open(path, OpenMode::Read);
                Some(opened.map_err(|e| Error::io(format!("cannot open {}", path.display()), e))?)
            }
            _ => None,
        };
        Ok(Some(CutFile { name, len, content, open }))
    }
}

impl CutFile {
    /// One that is not in any shard's directory.
    #[must_use]
    pub fn of_bytes(name: PathBuf, bytes: Bytes) -> CutFile {
        CutFile { name, len: bytes.len() as u64, content: Content::Memory(bytes), open: None }
    }

    /// Fills `into` from `position`, all of which is before [`CutFile::len`].
    ///
    /// # Errors
    /// `Damaged` when the file is shorter than that, `Io`.
    pub fn read(&self, into: &mut [u8], position: u64) -> Result<()> {
        let read = match (&self.content, &self.open) {
            (Content::Memory(bytes), _) => {
                let start = usize::try_from(position).unwrap_or(usize::MAX);
                let from = bytes.get(start..).and_then(|rest| rest.get(..into.len()));
                from.map(|from| into.copy_from_slice(from)).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
            }
            // Readers will not look for it here: it need not take the place of what they do.
            (Content::Open(file), _) | (Content::Segment(_), Some(file)) => file.read_once_at(into, position),
            (Content::Segment(_), None) => Err(std::io::ErrorKind::NotFound.into()),
        };
        read.map_err(|e| {
            let short = e.kind() == std::io::ErrorKind::UnexpectedEof;
            let kind = if short { ErrorKind::Damaged } else { ErrorKind::Io };
            Error { kind, context: format!("cannot read {}", self.name.display()), source: Some(e) }
        })
    }
}
