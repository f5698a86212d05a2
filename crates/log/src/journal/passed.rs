//! Going past damage that costs nothing but offsets.
//!
//! ```text
//!   file 7: | frame | ###### | frame |        file 8: | votes, purged | frame | frame | ...
//!             10      11, 12   13                       first index 14
//!                                             checkpoint covers 13 or more
//! ```
//!
//! A sealed file whose frames a checkpoint covers is needed by the partition store only, for the entries that are in no
//! segment yet: what the frames did to state is in the checkpoint, and every file begins with the journal's own records. So
//! the walk notes the damaged place and goes on. Frames that cannot be read get no place; the store fences the
//! offsets that are missing. Of frames whose native bytes alone are damaged, the headers and the table are shown: the store
//! verifies each entry and fences the bad ones. When the file is released, it is kept aside.
//!
//! This is for a log of one voter: a node of several gets the file's frames from the others. Damage in the last file, or above the
//! checkpoint, refuses the start.

use super::config::{Config, Passed, StartOfLife};
use super::recover::Found;
use super::scan::{Bad, Walker};
use super::survey::Survey;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::FrameError;
use polylogue_types::Index;

/// More missing frames in one place than this are no longer believed: a file holds far fewer.
const MISSING_FRAMES_MAX: u64 = 1 << 22;

impl Found {
    /// Whether the walk may go on behind a bad place.
    pub(crate) fn may_pass(config: &Config, survey: &Survey, bad: &Bad) -> bool {
        // A verified frame that this version cannot understand is no damage.
        let unknown = matches!(bad.error, FrameError::UnknownKind(_) | FrameError::Envelope(_) | FrameError::Shard(_));
        let covered = config.covered.filter(|_| config.start == StartOfLife::OneVoter && !unknown);
        let next = survey.chain.get(bad.file + 1);
        covered.is_some_and(|covered| next.is_some_and(|n| n.header.first_index <= covered.next()))
    }

    /// Notes a bad place and moves the walk behind it.
    pub(crate) fn pass(&mut self, survey: &Survey, walker: &mut Walker<'_>, bad: &Bad) -> Result<()> {
        let index = bad.frame.as_ref().map(|frame| frame.index);
        self.close_hole(survey, bad.file, index)?;
        self.enter_files(survey, bad.file + 1);
        self.catalog.mark_damaged();
        let next = Index(self.catalog.next);
        let path = survey.chain.get(bad.file).map(|f| f.path.clone()).unwrap_or_default();
        let note = Passed { path, position: bad.position, what: bad.error.to_string(), first: next, missing: None };
        if index == Some(next)
            && let Some(walked) = walker.pass_damaged()?
        {
            self.recovery.passed.push(note);
            return self.take(survey, walker, &walked);
        }
        self.hole = true;
        self.recovery.passed.push(Passed { missing: Some(next), ..note });
        // There is a next file, so that there is a place to go on.
        walker.resume().map(|_| ())
    }

    /// The walk stands in a file, before a frame if it has an index: what was passed over before has an end.
    pub(crate) fn close_hole(&mut self, survey: &Survey, file: usize, index: Option<Index>) -> Result<()> {
        if !self.hole {
            return Ok(());
        }
        // The next file says where it begins.
        let behind = survey.chain.get(self.catalog.len()).filter(|_| self.catalog.len() <= file);
        let Some(end) = behind.map(|f| f.header.first_index).or(index) else { return Ok(()) };
        if let Some(behind) = behind {
            self.end = behind.header.previous;
        }
        let next = Index(self.catalog.next);
        let Some(passed) = self.recovery.passed.last_mut() else { return Ok(()) };
        if end < next || end.0 - next.0 > MISSING_FRAMES_MAX {
            let (path, position) = (passed.path.display(), passed.position);
            let what = format!("{path} is damaged at {position}: {}; index {end} cannot follow {next}", passed.what);
            return Err(Error::new(ErrorKind::Damaged, what));
        }
        passed.missing = Some(end);
        self.catalog.skip(end);
        self.hole = false;
        Ok(())
    }

    /// What the checkpoint covers was flushed before the checkpoint was written, whether or not a mark is left that says so: where
    /// frames are missing, those around them cannot be copied.
    pub(crate) fn confirm_covered(&mut self, covered: Option<Index>) {
        let Some(covered) = covered.filter(|_| !self.recovery.passed.is_empty()) else { return };
        while let Some(first) = self.pending.front().filter(|p| p.after.next <= covered.next()) {
            self.durable = first.after;
            self.pending.pop_front();
        }
    }
}
