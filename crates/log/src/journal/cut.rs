//! What of journals a backup copies: all their files, up to one moment.

use super::Journal;
use super::file::LiveFile;
use super::inner::stopped;
use crate::error::Result;
use crate::frame::header::Durable;
use polylogue_types::Index;
use std::sync::Arc;

/// The files of a journal as they stood at one moment. They are not recycled while this is held: a reader of a file of the log
/// keeps it, and one that is removed meanwhile can be read until it is let go.
#[derive(Debug)]
pub(crate) struct JournalCut {
    /// Each with the length that counts, oldest first.
    pub(crate) files: Vec<(Arc<LiveFile>, u64)>,
    /// Where the log ended.
    pub(crate) end: Durable,
    /// The first index that could be read.
    pub(crate) first: Index,
}

/// Cuts several journals at one moment. What was acknowledged by any of them before the call is before its cut, and what is before one
/// cut has no cause behind another. No journal may be named twice. Blocks no thread for longer than it takes to list the files.
pub(crate) fn cut_all(journals: &[&Journal]) -> Vec<JournalCut> {
    // Whatever is acknowledged, or visible to a reader, went through a pipeline first. So with all of these held nothing new can be, and
    // what has been is before their ends.
    let pipelines: Vec<_> = journals.iter().map(|journal| journal.inner.pipeline.lock()).collect();
    let cut = |(journal, end): (&&Journal, Durable)| {
        let catalog = journal.inner.catalog.lock();
        let at = end.end;
        let before = catalog.files().filter(|(live, _)| live.sequence <= at.sequence);
        let files = before.map(|(live, len)| {
            let len = if live.sequence == at.sequence { at.position } else { len };
            (live.clone(), len)
        });
        JournalCut { files: files.collect(), end, first: Index(catalog.first) }
    };
    journals.iter().zip(pipelines.iter().map(|p| p.written)).map(cut).collect()
}

impl Journal {
    /// Makes durable what is before a cut, and tells the waiters.
    ///
    /// # Errors
    /// `Stopped`.
    pub(crate) fn flush_cut(&self, cut: &JournalCut) -> Result<()> {
        let durable = || self.inner.pipeline.lock().durable.end;
        if durable() < cut.end.end {
            self.inner.flush_all()?;
        }
        if durable() < cut.end.end { Err(stopped()) } else { Ok(()) }
    }
}
