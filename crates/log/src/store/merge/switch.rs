//! From the journal runs of a merge to its rows, partition by partition.

use crate::error::Result;
use crate::store::config::PARTITIONS_PER_LOCK_MAX;
use crate::store::index::{RunRow, State, VERIFIED, seconds};
use crate::store::segment::Row;
use crate::store::segment::writer::Finished;
use crate::store::shared::Shared;
use polylogue_types::{Index, PartitionId, RangeSource};
use std::sync::Arc;

/// Puts new segments into the index. The manifest names them already, so a partition can be switched at any time; the lock
/// is let go in between. `journal`: the journal file that they are in, as readers have it.
pub(super) fn install(
    shared: &Shared,
    upto: Index,
    finished: Vec<(Finished, u64)>,
    journal: Option<Arc<dyn RangeSource>>,
) -> Result<()> {
    let mut rows: Vec<(u32, u32, Row, bool)> = Vec::new();
    for (segment, data_len) in finished {
        let number = {
            let mut state = shared.state.lock();
            let number = state.segments.add(super::segment_of(&segment, data_len));
            if let Some(file) = &journal {
                state.segments.was_journal(number, file.clone());
            }
            number
        };
        if journal.is_none() {
            shared.keep_open(number, segment.file.clone());
        }
        for (row, in_table) in segment.rows.iter().zip(0u32..) {
            rows.push((number, in_table, *row, !segment.damaged.contains(&in_table)));
        }
    }
    // Rows of one partition may stand in two files, one after the other.
    rows.sort_by_key(|(number, in_table, row, _)| (row.partition, *number, *in_table));
    let groups: Vec<_> = rows.chunk_by(|a, b| a.2.partition == b.2.partition).collect();
    for batch in groups.chunks(PARTITIONS_PER_LOCK_MAX) {
        let mut state = shared.state.lock();
        for group in batch {
            let Some((_, _, first, _)) = group.first() else { continue };
            switch(&mut state, first.partition, upto, group)?;
        }
    }
    Ok(())
}

fn switch(state: &mut State, id: PartitionId, upto: Index, rows: &[(u32, u32, Row, bool)]) -> Result<()> {
    state.pop_merged(id, upto);
    let partition = state.partitions.entry(id).or_default();
    for (segment, in_table, row, verified) in rows {
        partition.add_row(RunRow {
            base: row.base,
            end: row.end,
            max_timestamp: row.max_timestamp,
            segment: *segment,
            row: *in_table,
            position: row.position,
            len: row.len,
            append_s: seconds(row.append_time),
            form: row.form,
            marks: if *verified { VERIFIED } else { 0 },
        })?;
    }
    // What was trimmed while the merge was at work.
    state.let_go(id);
    Ok(())
}

/// Everything up to a frame is in segments: the frames are not needed any more.
pub(super) fn cover(shared: &Shared, upto: Index) {
    let mut state = shared.state.lock();
    state.merged_upto = state.merged_upto.max(Some(upto));
    state.frames.drop_upto(upto);
}

/// The merge is done.
pub(super) fn finish(shared: &Shared, upto: Index) {
    cover(shared, upto);
    let mut state = shared.state.lock();
    (state.merging, state.unreadable) = (None, None);
}

/// The merge is given up: the runs that it kept can go.
pub(super) fn give_up(shared: &Shared) {
    let ids: Vec<_> = {
        let mut state = shared.state.lock();
        state.merging = None;
        let held = |p: &crate::store::index::Partition| p.runs.front().is_some_and(|r| r.end() <= p.log_start);
        state.partitions.iter().filter(|(_, p)| held(p)).map(|(id, _)| *id).collect()
    };
    for batch in ids.chunks(PARTITIONS_PER_LOCK_MAX) {
        let mut state = shared.state.lock();
        batch.iter().for_each(|id| state.let_go(*id));
    }
}
