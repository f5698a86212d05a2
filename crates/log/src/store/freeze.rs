//! What of a store a backup copies: the segments that the manifest names, which stay readable while they are pinned.
//!
//! ```text
//!   freeze: merges, adoptions, reclaiming wait   (for as long as it takes to cut the journals, too)
//!     ├── the manifest, with all rows marked dead that are dead now: their bytes may go at any time
//!     └── a lease of each segment: no hole is punched into what is not dead now (lease.rs)
//!   thaw: all goes on; a segment that is replaced or dead leaves the manifest, and its files stay until nothing is pinned
//! ```

use super::ShardStore;
use super::lease::Lease;
use super::manifest::{Manifest, NamedSegment};
use super::rewrite::Rewrite;
use super::segment::SegmentName;
use super::shared::Shared;
use crate::error::{Error, ErrorKind, Result};
use parking_lot::MutexGuard;
use polylogue_types::Map;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// The segments that a backup copies, and those of them that only it still needs.
#[derive(Debug, Default)]
pub(super) struct Pins {
    names: BTreeSet<SegmentName>,
    /// A backup is at work; it may have found no segments.
    held: bool,
    deferred: Vec<SegmentName>,
}

impl Pins {
    /// Whether the files of a segment have to stay; then they are removed later.
    pub(super) fn defer(&mut self, segment: &SegmentName) -> bool {
        let pinned = self.names.contains(segment);
        if pinned {
            self.deferred.push(*segment);
        }
        pinned
    }
}

/// A store that changes nothing on the disk, for as long as this is held.
pub(crate) struct Frozen<'a> {
    /// What counts, with every dead row marked.
    pub(crate) manifest: Manifest,
    pub(crate) pinned: Pinned,
    /// Behind it, so that what was deferred meanwhile is not removed elsewhere.
    _maintenance: MutexGuard<'a, Option<Rewrite>>,
}

/// Segments whose files stay where they are. What is not needed any more when this is dropped is removed then.
#[derive(Debug)]
pub(crate) struct Pinned {
    shared: Arc<Shared>,
    leases: Map<SegmentName, Lease>,
}

/// A file of a segment that is pinned, and what keeps its bytes.
#[derive(Debug)]
pub(crate) struct PinnedFile {
    pub(crate) path: PathBuf,
    _lease: Option<Lease>,
}

impl ShardStore {
    /// Holds everything up that would change the files of the store but for its checkpoints.
    ///
    /// # Errors
    /// `Busy` while another backup is at work.
    pub(crate) fn freeze(&self) -> Result<Frozen<'_>> {
        let shared = &self.shared;
        let maintenance = shared.maintenance.lock();
        let mut manifest = Manifest::clone(&shared.manifest.look());
        let mut leases = Map::default();
        {
            let state = shared.state.lock();
            let numbers: Map<SegmentName, u32> = state.segments.iter().map(|(number, s)| (s.name, number)).collect();
            for named in &mut manifest.segments {
                // One that could not be read at the start is named and not known.
                let Some(number) = numbers.get(&named.name) else { continue };
                if let Some(segment) = state.segments.get(*number) {
                    *named = NamedSegment::of(segment);
                }
                leases.extend(state.segments.lease(*number).map(|lease| (named.name, lease.clone())));
            }
        }
        let mut pins = shared.pins.lock();
        if pins.held {
            return Err(Error::new(ErrorKind::Busy, "another backup is under way"));
        }
        *pins = Pins { names: manifest.segments.iter().map(|s| s.name).collect(), held: true, ..Pins::default() };
        drop(pins);
        let pinned = Pinned { shared: shared.clone(), leases };
        Ok(Frozen { manifest, pinned, _maintenance: maintenance })
    }
}

impl Pinned {
    /// The files of a segment with the lengths that count.
    pub(crate) fn files(&self, named: &NamedSegment) -> Vec<(PinnedFile, u64)> {
        let pinned = |name: String| PinnedFile {
            path: self.shared.segments_dir().join(name),
            _lease: self.leases.get(&named.name).cloned(),
        };
        let (index, data) = (named.name.index_file(), named.name.data_file());
        let mut files = Vec::with_capacity(2);
        if data != index {
            files.push((pinned(data), named.data_len));
        }
        files.push((pinned(index), named.len));
        files
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.leases.clear();
        let pins = std::mem::take(&mut *self.shared.pins.lock());
        for segment in pins.deferred {
            // What cannot be removed now the next start removes.
            let _ = self.shared.remove_files(&segment);
        }
    }
}
