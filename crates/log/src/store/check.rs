//! Verifying the segments and checkpoints of a directory without changing anything.

use super::index::FencedRange;
use super::manifest::{Keeper, NamedSegment};
use super::open::read_table;
use super::query::read;
use super::segment::{Row, SegmentKind, SparseIndex, entries};
use super::shared::SEGMENTS_DIR;
use crate::checkpoint::check_checkpoints;
use crate::error::{Error, ErrorKind, Result};
use polylogue_env::{Env, OpenMode};
use polylogue_record::crc;
use polylogue_types::{FileRange, Ordinal, RangeSource};
use std::path::Path;
use std::sync::Arc;

/// Something wrong with a segment or a checkpoint file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentFinding {
    /// Name of the segment, whose files are in the directory of segments, or of the file in the directory of checkpoints.
    pub segment: String,
    /// The range that cannot be served; `None` when the content of the damaged part is unknown.
    pub range: Option<FencedRange>,
    /// What is wrong.
    pub what: String,
}

/// Verifies everything that the manifest of a shard's directory names: of segments the run tables, sparse indexes, entry
/// tables and native bytes, and the files of the checkpoint. Dead runs are skipped, because their
/// bytes may be given back. Reads only.
///
/// # Errors
/// `Damaged`, `Incompatible` when the manifest itself cannot be read; `Io`.
pub fn check_segments(env: &Env, shard_dir: &Path) -> Result<Vec<SegmentFinding>> {
    let manifest = Keeper::read(env, shard_dir)?.unwrap_or_default();
    let mut findings = Vec::new();
    for named in &manifest.segments {
        let segments = shard_dir.join(SEGMENTS_DIR);
        if let Err(e) = check_segment(env, &segments, named, &mut findings) {
            findings.push(SegmentFinding { segment: named.name.to_string(), range: None, what: e.to_string() });
        }
    }
    let checkpoints = check_checkpoints(env, shard_dir)?.into_iter();
    findings.extend(checkpoints.map(|f| SegmentFinding { segment: f.file, range: None, what: f.what }));
    Ok(findings)
}

fn check_segment(env: &Env, segments: &Path, named: &NamedSegment, findings: &mut Vec<SegmentFinding>) -> Result<()> {
    let table = read_table(env, segments, named)?;
    findings.extend(table.wrong.iter().map(|what| {
        let (segment, what) = (named.name.to_string(), what.clone());
        SegmentFinding { segment, range: None, what }
    }));
    let open = |file: String| -> Result<Arc<dyn RangeSource>> {
        let opened = env.disk.open(&segments.join(file), OpenMode::Read);
        Ok(opened.map_err(|e| Error::io("cannot open a segment", e))?.as_range_source())
    };
    let index = open(named.name.index_file())?;
    let data = open(named.name.data_file())?;
    for (_, row) in table.rows.iter().filter(|(number, _)| !named.is_dead(*number)) {
        let mut found = |base, end, what: String| {
            let range = Some(FencedRange { partition: row.partition, base, end });
            findings.push(SegmentFinding { segment: named.name.to_string(), range, what });
        };
        match check_index(&index, row) {
            Ok(sparse) => {
                for (i, block) in sparse.blocks.iter().enumerate() {
                    let end = sparse.blocks.get(i + 1).map_or(row.end, |next| next.base);
                    if let Err(e) = check_block(&index, &data, row, block) {
                        found(block.base, end, e.to_string());
                    }
                }
            }
            Err(e) => found(row.base, row.end, e.to_string()),
        }
    }
    Ok(())
}

fn check_index(index: &Arc<dyn RangeSource>, row: &Row) -> Result<SparseIndex> {
    let position = row.extent(SegmentKind::Adopted).end - u64::from(row.index_len);
    let bytes = read(&FileRange { source: index.clone(), position, len: row.index_len })?;
    SparseIndex::decode(row, &bytes)
}

fn check_block(
    index: &Arc<dyn RangeSource>,
    data: &Arc<dyn RangeSource>,
    row: &Row,
    block: &super::segment::Block,
) -> Result<()> {
    let position = u64::from(row.position) + u64::from(block.position);
    let native = read(&FileRange { source: data.clone(), position, len: block.len })?;
    if crc::crc32c(&native) != block.crc {
        return Err(Error::new(ErrorKind::Damaged, "a block's native bytes do not verify"));
    }
    if entries::describes_itself(row.form) {
        let spans = entries::scan(row.form, &native, Ordinal(block.ordinal.0))?;
        if spans.len() as u64 != u64::from(block.entries) || spans.first().is_none_or(|s| s.base != block.base) {
            return Err(Error::new(ErrorKind::Damaged, "a block holds other entries than its index says"));
        }
        return Ok(());
    }
    let position = u64::from(row.tables) + u64::from(block.table);
    let table = read(&FileRange { source: index.clone(), position, len: block.table_len })?;
    entries::decode_table(row, block, &table).map(|_| ())
}
