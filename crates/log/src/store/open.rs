//! Opening a store: the manifest, the run tables of the segments it names, and what a crash left over.

use super::ShardStore;
use super::config::StoreConfig;
use super::index::{FencedRange, RunRow, State, seconds};
use super::manifest::{Keeper, Manifest, NamedSegment};
use super::registry::{Bits, Segment};
use super::segment::{SegmentKind, SegmentName, Table};
use super::shared::{SEGMENTS_DIR, Shared};
use crate::checkpoint::CHECKPOINT_DIR;
use crate::error::{Error, ErrorKind, Result};
use polylogue_env::{Env, OpenMode};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The directory of the journal's files in a shard's directory.
const JOURNAL_DIR: &str = "journal";

/// What opening a store found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// Segments that are served.
    pub segments: usize,
    /// Runs in them that may be wanted.
    pub runs: usize,
    /// Files left over by a crash, which were removed.
    pub removed: Vec<String>,
    /// Segments of which not everything can be read, and why. [`ShardStore::expect`] fences what they held.
    pub lost: Vec<String>,
}

impl ShardStore {
    /// Opens the store of the shard in `dir` (which must exist), or begins an empty one. Afterwards the caller opens the
    /// journal, gives every frame from [`ShardStore::journal_from`] on to [`ShardStore::apply`], and says with
    /// [`ShardStore::retain_partitions`] and [`ShardStore::expect`] what its own state knows to be gone and to be there.
    ///
    /// # Errors
    /// `Incompatible` when the directory belongs to a later version, `Damaged` when the manifest does not verify; nothing is
    /// changed then. `Io`. A damaged segment is no error: see [`Opened::lost`] and [`ShardStore::fenced`].
    pub fn open(env: Env, dir: &Path, config: StoreConfig) -> Result<(ShardStore, Opened)> {
        config.check()?;
        let keeper = Keeper::open(env.clone(), dir)?;
        let manifest = keeper.look();
        let mut state = State::new(config.tail_cache_bytes);
        state.frames.set_tail_bytes(config.tail_cache_bytes, config.tail_cache_bytes_max);
        state.merged_upto = manifest.merged_upto;
        state.applied = manifest.merged_upto;
        state.lost.clone_from(&manifest.lost);
        give_back(&env, dir, &manifest)?;
        let mut opened = Opened::default();
        let segments = dir.join(SEGMENTS_DIR);
        for named in &manifest.segments {
            match read_table(&env, &segments, named) {
                Ok(table) => add(&mut state, named, &table, &mut opened)?,
                Err(e) if matches!(e.kind, ErrorKind::Damaged | ErrorKind::Io) => {
                    opened.lost.push(format!("{}: {e}", named.name));
                    state.segments.lost.push(named.name);
                    state.segments.missing = true;
                }
                Err(e) => return Err(e),
            }
        }
        for partition in state.partitions.values_mut() {
            partition.rows.shrink_to_fit();
        }
        for range in manifest.lost.clone() {
            let partition = state.partitions.entry(range.partition).or_default();
            partition.end = partition.end.max(range.end);
            partition.holed = true;
            state.fence(range);
        }
        for name in [SEGMENTS_DIR, CHECKPOINT_DIR] {
            let path = dir.join(name);
            env.disk.create_dir_all(&path).map_err(|e| Error::io(format!("cannot make {}", path.display()), e))?;
        }
        super::manifest::flushed(&env, env.disk.sync_dir(dir), "the shard's directory")?;
        // Without a manifest nothing says that a file is not needed. One that a merge wants to write anew it replaces.
        if manifest.generation > 0 {
            opened.removed = remove_leftovers(&env, dir, &manifest)?;
        }
        let shared = Shared::new(env, dir.to_owned(), config, Arc::new(keeper), state);
        Ok((ShardStore { shared: Arc::new(shared) }, opened))
    }
}

/// A crash may have come between the renaming of a journal file that was being adopted and the manifest: the journal gets
/// it back.
fn give_back(env: &Env, dir: &Path, manifest: &Manifest) -> Result<()> {
    let (segments, journal) = (dir.join(SEGMENTS_DIR), dir.join(JOURNAL_DIR));
    if !env.disk.exists(&segments) || !env.disk.exists(&journal) {
        return Ok(());
    }
    let names = env.disk.list(&segments).map_err(|e| Error::io(format!("cannot list {}", segments.display()), e))?;
    let mut given = false;
    for name in names {
        let Some(sequence) = SegmentName::journal_file_of(&name) else { continue };
        if manifest.segments.iter().any(|s| s.name.data_file() == name) {
            continue;
        }
        let (from, to) = (segments.join(&name), journal.join(journal_file_name(sequence)));
        if !env.disk.exists(&to) {
            env.disk.rename(&from, &to).map_err(|e| Error::io(format!("cannot give {} back", from.display()), e))?;
            given = true;
        }
    }
    if given {
        super::manifest::flushed(env, env.disk.sync_dir(&journal), "the directory of the journal")?;
        super::manifest::flushed(env, env.disk.sync_dir(&segments), "the directory of segments")?;
    }
    Ok(())
}

/// What the journal calls the file of its log with this number.
pub(super) fn journal_file_name(sequence: u64) -> String {
    format!("{sequence:016x}.plj")
}

/// Reads the run table of a segment that the manifest names.
pub(crate) fn read_table(env: &Env, segments: &Path, named: &NamedSegment) -> Result<Table> {
    let open = |file: String| {
        let path = segments.join(file);
        let opened = env.disk.open(&path, OpenMode::Read);
        opened.map_err(|e| Error::io(format!("cannot open {}", path.display()), e))
    };
    let index = open(named.name.index_file())?;
    let data = open(named.name.data_file())?;
    let size =
        |file: &Arc<dyn polylogue_env::DiskFile>| file.size().map_err(|e| Error::io("cannot see a file's size", e));
    let (len, data_len) = (size(&index)?, size(&data)?);
    // What a journal file has behind its last frame is not the segment's.
    let enough = data_len == named.data_len || (named.name.kind == SegmentKind::Adopted && data_len > named.data_len);
    if len != named.len || !enough {
        return Err(Error::new(ErrorKind::Damaged, "a segment's files have another length than the manifest says"));
    }
    Table::read_expected(&*index.as_range_source(), len, named.data_len, &named.expected())
}

fn add(state: &mut State, named: &NamedSegment, table: &Table, opened: &mut Opened) -> Result<()> {
    let mut segment = Segment {
        name: named.name,
        len: named.len,
        data_len: named.data_len,
        table_crc: named.table_crc,
        rows: named.rows,
        native_bytes: named.native_bytes,
        live_bytes: 0,
        live_rows: 0,
        oldest_s: u32::MAX,
        newest_s: 0,
        dead: named.dead.clone(),
        // There are no readers yet.
        free: named.dead.clone(),
        // A crash may have come between marking and punching: they are punched again.
        punched: Bits::default(),
        dead_bytes: 0,
        free_bytes: 0,
        young_bytes: 0,
        no_punch: false,
        skip: false,
        lost_rows: 0,
    };
    if !table.wrong.is_empty() {
        opened.lost.push(format!("{}: {}", named.name, table.wrong.join("; ")));
        let dead = (0..named.rows).filter(|row| named.dead.get(*row) && table.row(*row).is_none()).count() as u32;
        segment.lost_rows = table.lost_rows() - dead;
        state.segments.missing |= segment.lost_rows > 0;
    }
    let number = state.segments.next();
    for (number_in_table, row) in table.rows.iter().copied() {
        if named.dead.get(number_in_table) {
            segment.dead_bytes += u64::from(row.len);
            segment.free_bytes += u64::from(row.len);
            continue;
        }
        segment.live_rows += 1;
        segment.oldest_s = segment.oldest_s.min(seconds(row.append_time));
        segment.newest_s = segment.newest_s.max(seconds(row.append_time));
        segment.live_bytes += u64::from(row.len);
        let run = RunRow {
            base: row.base,
            end: row.end,
            max_timestamp: row.max_timestamp,
            segment: number,
            row: number_in_table,
            position: row.position,
            len: row.len,
            append_s: seconds(row.append_time),
            form: row.form,
            marks: 0,
        };
        state.partitions.entry(row.partition).or_default().add_row(run)?;
        opened.runs += 1;
    }
    state.segments.add(segment);
    opened.segments += 1;
    Ok(())
}

/// Removes the files that no manifest names.
fn remove_leftovers(env: &Env, dir: &Path, manifest: &Manifest) -> Result<Vec<String>> {
    let mut named: BTreeSet<String> = BTreeSet::new();
    for segment in &manifest.segments {
        named.insert(segment.name.index_file());
        named.insert(segment.name.data_file());
    }
    let mut removed = remove_unnamed(env, &dir.join(SEGMENTS_DIR), &named)?;
    let named = manifest.checkpoint_files.iter().flat_map(|c| crate::checkpoint::file_names(c.sequence)).collect();
    removed.extend(remove_unnamed(env, &dir.join(CHECKPOINT_DIR), &named)?);
    let temporary = dir.join(super::manifest::TEMPORARY_FILE);
    if env.disk.exists(&temporary) {
        env.disk.remove(&temporary).map_err(|e| Error::io(format!("cannot remove {}", temporary.display()), e))?;
        removed.push(super::manifest::TEMPORARY_FILE.to_owned());
    }
    Ok(removed)
}

fn remove_unnamed(env: &Env, dir: &Path, named: &BTreeSet<String>) -> Result<Vec<String>> {
    let names = env.disk.list(dir).map_err(|e| Error::io(format!("cannot list {}", dir.display()), e))?;
    let mut removed = Vec::new();
    for name in names.into_iter().filter(|n| !named.contains(n)) {
        let path = dir.join(&name);
        env.disk.remove(&path).map_err(|e| Error::io(format!("cannot remove {}", path.display()), e))?;
        removed.push(name);
    }
    Ok(removed)
}

/// Ranges that a manifest says are lost, as [`FencedRange`]s of a partition that still is there.
pub(super) fn still_lost(state: &State) -> Vec<FencedRange> {
    let there = |range: &&FencedRange| state.partition(range.partition).is_some_and(|p| p.log_start < range.end);
    state.lost.iter().filter(there).copied().collect()
}
