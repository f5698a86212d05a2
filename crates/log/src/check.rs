//! Verifying a shard's directory without changing it, and making one that is damaged usable again.
//!
//! `check` reads every file and reports damage. `repair` is for damage in the live journal, which refuses the start: it
//! keeps the damaged bytes, records what is lost as part of the log, and everything else serves again.

mod journal;
mod lossy;
mod repair;

pub use journal::{Damage, JournalFile, JournalReport, Torn, frames, journal};
pub use repair::{RepairReport, repair};

use crate::error::Result;
use crate::frame::codec::damaged_entries;
use crate::frame::{Frame, LostRange};
use crate::store::{SegmentFinding, check_segments};
use polylogue_env::Env;
use std::fmt;
use std::path::Path;

/// The result of checking a shard's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The journal.
    pub journal: JournalReport,
    /// Damage in the segments.
    pub segments: Vec<SegmentFinding>,
}

impl Report {
    /// Whether nothing durable is damaged. A torn tail, which was never acknowledged, is no damage.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.journal.is_sound() && self.segments.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.journal)?;
        if self.segments.is_empty() {
            writeln!(f, "segments and checkpoints: every checksum holds")?;
        }
        for finding in &self.segments {
            writeln!(f, "segment {}: {}", finding.segment, finding.what)?;
        }
        Ok(())
    }
}

/// Verifies the journal and the segments of a shard's directory. Reads only.
///
/// # Errors
/// `Incompatible` for files of a newer version; `Io` when the disk does not give what it has; `Damaged` when not even the
/// list of segments can be read.
pub fn check(env: &Env, shard_dir: &Path) -> Result<Report> {
    Ok(Report { journal: journal(env, shard_dir)?, segments: check_segments(env, shard_dir)? })
}

/// The offsets of the entries whose native bytes do not verify.
pub(crate) fn lost_in(frame: &Frame) -> Vec<LostRange> {
    let bad = damaged_entries(frame);
    let entries = bad.iter().filter_map(|i| frame.entries.get(*i));
    entries.filter_map(|e| range_of(&e.envelope)).collect()
}

/// The offsets that an entry takes, if it takes any.
pub(crate) fn range_of(envelope: &polylogue_record::envelope::Envelope) -> Option<LostRange> {
    (envelope.count > 0).then(|| LostRange {
        partition: envelope.partition,
        first: envelope.base_offset,
        end: envelope.next_offset(),
    })
}

/// Ranges in order, with neighbours joined.
pub(crate) fn join(mut ranges: Vec<LostRange>) -> Vec<LostRange> {
    ranges.sort_unstable();
    let mut joined: Vec<LostRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.partition == range.partition && last.end >= range.first => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}
