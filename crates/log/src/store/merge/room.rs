//! Getting room out of the journal while the disk is short of it.
//!
//! Journal files go once segments and a checkpoint cover them. Both wait for a reason, and a deleted topic is none: its bytes stay in files that
//! nothing is written to any more. So while the disk is short of room, the oldest files of which less than half is wanted are reason enough.

use super::{MergeDue, MergeReason, MergeRoom, SealedJournal};
use crate::journal::SealedFile;
use crate::store::ShardStore;
use crate::store::index::State;
use polylogue_types::Index;

/// What would bring room out of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalWaste {
    /// Nothing, or a merge that is due by now.
    None,
    /// Ending the current file, of which little is wanted.
    Seal,
    /// A checkpoint, which is all that keeps files, or merges of them.
    Checkpoint,
}

/// The last frame of the oldest files of which less than half is wanted, if there is something to be had.
fn wasteful(state: &State, sealed: &[SealedFile], room: MergeRoom, worth: u64) -> Option<Index> {
    let (mut bytes, mut live, mut upto) = (0u64, 0u64, None);
    for file in sealed {
        let Some((_, last)) = file.indexes.filter(|(_, last)| state.merged_upto.is_none_or(|m| *last > m)) else {
            continue;
        };
        if state.applied.is_none_or(|applied| last > applied) {
            break;
        }
        let known = state.frames.files().find(|f| f.sequence == file.sequence);
        bytes += file.end;
        live += known.map_or(0, |f| f.live_bytes);
        if is_waste(bytes, live, worth) && live <= room.of(bytes) {
            upto = Some(last);
        }
    }
    upto
}

fn is_waste(bytes: u64, live: u64, worth: u64) -> bool {
    live <= bytes / 2 && bytes - live >= worth
}

impl ShardStore {
    /// What would bring room out of the journal, of which a merge is part where [`ShardStore::merge_for_room`] says so.
    #[must_use]
    pub fn journal_waste(&self, journal: &dyn SealedJournal) -> JournalWaste {
        let covered = self.shared.manifest.look().checkpoint_applied;
        let sealed = journal.sealed_files();
        let room = self.shared.merge_room();
        let worth = room.worth(self.shared.config.waste_bytes_min);
        let state = self.shared.state.lock();
        let upto = wasteful(&state, &sealed, room, worth).max(state.merged_upto);
        let waits =
            |file: &SealedFile| file.indexes.is_some_and(|(_, last)| Some(last) <= upto && Some(last) > covered);
        if sealed.iter().any(waits) {
            return JournalWaste::Checkpoint;
        }
        let newest = state.frames.files().last();
        let current = newest.filter(|file| sealed.iter().all(|known| known.sequence != file.sequence));
        match current {
            Some(file)
                if file.live_bytes <= room.of(state.frames.last_end())
                    && is_waste(state.frames.last_end(), file.live_bytes, worth) =>
            {
                JournalWaste::Seal
            }
            _ => JournalWaste::None,
        }
    }

    /// The merge that brings room out of the journal: of the files that the checkpoint covers and of which less than half is wanted.
    #[must_use]
    pub fn merge_for_room(&self, journal: &dyn SealedJournal) -> Option<MergeDue> {
        let covered = self.shared.manifest.look().checkpoint_applied?;
        let mut sealed = journal.sealed_files();
        sealed.retain(|file| file.indexes.is_none_or(|(_, last)| last <= covered));
        let room = self.shared.merge_room();
        let worth = room.worth(self.shared.config.waste_bytes_min);
        let upto = wasteful(&self.shared.state.lock(), &sealed, room, worth)?;
        Some(MergeDue { upto, reason: MergeReason::Room })
    }
}
