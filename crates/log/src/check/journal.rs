//! Verifying a journal.

use super::lossy::Unread;
use super::{join, range_of};
use crate::error::Result;
use crate::frame::codec::{FrameError, damaged_entries};
use crate::frame::header::LogEnd;
use crate::frame::{EntryRef, Frame, LostRange};
use crate::journal::file::{FILE_HEADER_BYTES, FileEnd, journal_dir};
use crate::journal::scan::{self, Bad, LogState, Step, Walked, Walker};
use crate::journal::survey::{ChainFile, Headless, Survey};
use crate::journal::{Identity, Vote};
use polylogue_env::{Env, OpenMode};
use polylogue_types::{Index, PartitionId, Term};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A file of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalFile {
    /// Its sequence number.
    pub sequence: u64,
    /// Its path.
    pub path: PathBuf,
    /// Frames in it that verify, local ones included.
    pub frames: u64,
    /// The first and last index in it.
    pub indexes: Option<(Index, Index)>,
}

/// The torn tail of the log, whose bytes were never acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// The file.
    pub path: PathBuf,
    /// Where the first frame begins that is not whole. The next start cuts there.
    pub position: u64,
    /// Why that is not a whole frame.
    pub what: String,
}

/// A place whose bytes had been flushed and do not verify any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Its sequence number.
    pub sequence: u64,
    /// Where the damage begins. Bytes from the start of the file.
    pub position: u64,
    /// Where the next frame begins that verifies, or the file's end.
    pub end: u64,
    /// What is wrong.
    pub what: String,
    /// The first index concerned and the one after the last, if frames with an index are.
    pub indexes: Option<(Index, Index)>,
    /// Offsets that are lost. Where headers are damaged, this is concluded from what comes before and after.
    pub lost: Vec<LostRange>,
    /// Whether `lost` is all that is lost.
    pub complete: bool,
}

/// The result of checking a journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalReport {
    /// The shard of the journal; `None` if no file names it.
    pub identity: Option<Identity>,
    /// Its files, oldest first.
    pub files: Vec<JournalFile>,
    /// Frames with an index that verify.
    pub frames: u64,
    /// Their entries.
    pub entries: u64,
    /// Their native bytes.
    pub payload_bytes: u64,
    /// The first and the last index that verify.
    pub indexes: Option<(Index, Index)>,
    /// The last vote.
    pub vote: Option<Vote>,
    /// Up to where the log is released.
    pub purged: Option<(Index, Term)>,
    /// The last index that a mark calls flushed.
    pub durable: Option<Index>,
    /// The torn tail, if there is one.
    pub torn: Option<Torn>,
    /// What is damaged.
    pub damage: Vec<Damage>,
}

impl JournalReport {
    /// Whether nothing durable is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged from {} to {}: {}", self.path.display(), self.position, self.end, self.what)?;
        if let Some((first, end)) = self.indexes {
            write!(f, "; indexes {first} to {}", end.0.saturating_sub(1))?;
        }
        for range in &self.lost {
            let last = range.end.0.saturating_sub(1);
            write!(f, "; partition {} offsets {} to {last}", range.partition, range.first)?;
        }
        if !self.complete {
            write!(f, "; more may be lost")?;
        }
        Ok(())
    }
}

impl fmt::Display for JournalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "journal: {} files, {} frames, {} entries", self.files.len(), self.frames, self.entries)?;
        if let Some((first, last)) = self.indexes {
            write!(f, ", indexes {first} to {last}")?;
        }
        writeln!(f)?;
        if let Some(torn) = &self.torn {
            let (path, position) = (torn.path.display(), torn.position);
            writeln!(f, "{path} is torn at {position}: {}; it was never acknowledged", torn.what)?;
        }
        for damage in &self.damage {
            writeln!(f, "{damage}")?;
        }
        Ok(())
    }
}

/// Verifies the journal of a shard's directory. Reads only.
///
/// # Errors
/// `Incompatible` for files of a newer version; `Io`.
pub fn journal(env: &Env, shard_dir: &Path) -> Result<JournalReport> {
    let dir = journal_dir(shard_dir);
    if !env.disk.exists(&dir) {
        return Ok(JournalReport::default());
    }
    report(&survey(env, &dir, OpenMode::Read)?)
}

/// Shows every frame of the journal of a shard's directory that can still be read, whatever is damaged around it. Entries of a
/// frame may be damaged themselves: see [`EntryRef`]. Reads only.
///
/// # Errors
/// As [`journal`].
pub fn frames(env: &Env, shard_dir: &Path, visit: &mut dyn FnMut(&Frame)) -> Result<()> {
    let dir = journal_dir(shard_dir);
    if !env.disk.exists(&dir) {
        return Ok(());
    }
    let surveyed = survey(env, &dir, OpenMode::Read)?;
    examine(&surveyed.survey, &mut |found| {
        let frame = match found {
            Found::Frame(walked) => walked.frame.as_ref(),
            Found::Damage(hole) => hole.salvaged.as_ref(),
            Found::End(..) => None,
        };
        if let Some(frame) = frame {
            visit(frame);
        }
        Ok(())
    })
}

/// The report on a survey, with the damage that the survey itself has found.
pub(super) fn report(surveyed: &Surveyed) -> Result<JournalReport> {
    let survey = &surveyed.survey;
    let mut seen = Seen::default();
    let mut report = JournalReport::default();
    let mut end = LogEnd::default();
    examine(survey, &mut |found| {
        if let Found::End(walker, _) = found {
            end = walker.place();
        }
        seen.take(&mut report, &survey.chain, found);
        Ok(())
    })?;
    report.damage.extend_from_slice(&surveyed.lost_headers);
    if let Some(last) = survey.chain.last().filter(|f| f.header.sequence == end.sequence) {
        let unread = surveyed.unread.behind(&last.path, end.position);
        report.damage.extend(unread.into_iter().map(|(position, end)| Damage {
            path: last.path.clone(),
            sequence: last.header.sequence,
            position,
            end: end.min(last.size),
            what: "the disk does not give these bytes, where the log seems to end".to_owned(),
            indexes: None,
            lost: Vec::new(),
            complete: false,
        }));
    }
    Ok(report)
}

/// What is in a journal's directory.
#[derive(Debug)]
pub(super) struct Surveyed {
    pub(super) survey: Survey,
    /// Files whose header is lost, although it was flushed; they are taken into the log all the same.
    lost_headers: Vec<Damage>,
    unread: Unread,
}

/// Reads what is in the directory, as far as the disk gives it.
pub(super) fn survey(env: &Env, dir: &Path, mode: OpenMode) -> Result<Surveyed> {
    let unread = Unread::default();
    let open = |path: &Path| unread.open(&*env.disk, path, mode);
    let mut survey = Survey::read(&*env.disk, dir, None, &open)?;
    let mut lost_headers = Vec::new();
    while let Some(headless) = survey.headless_link() {
        let flushed = highest_mark(&survey)?.sequence >= headless.sequence;
        if !flushed {
            survey.discard_chain();
            continue;
        }
        lost_headers.push(lost_header(headless));
        // Without any frame the file adds nothing, and what it held is found to be missing by its indexes.
        let (sequence, (salt, _)) = (headless.sequence, headless.salt()?);
        survey.rebuild(sequence, salt.unwrap_or_default());
    }
    let behind: Vec<u64> = survey.headless_behind().map(|h| h.sequence).collect();
    for sequence in behind {
        let Some(headless) = survey.headless.iter().find(|h| h.sequence == sequence) else { continue };
        let (salt, flushed) = headless.salt()?;
        // Where nothing can be read, it is unknown whether there was something.
        let unreadable = unread.behind(&headless.path, 0).first().is_some_and(|(at, _)| *at < FILE_HEADER_BYTES);
        if flushed || unreadable {
            lost_headers.push(lost_header(headless));
            salt.into_iter().for_each(|salt| survey.rebuild(sequence, salt));
        }
    }
    Ok(Surveyed { survey, lost_headers, unread })
}

fn lost_header(headless: &Headless) -> Damage {
    Damage {
        path: headless.path.clone(),
        sequence: headless.sequence,
        position: 0,
        end: FILE_HEADER_BYTES.min(headless.size),
        what: "the file's header is lost".to_owned(),
        indexes: None,
        lost: Vec::new(),
        complete: true,
    }
}

/// What an examination comes across, in log order.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A frame that verifies.
    Frame(&'a Walked),
    /// A place that was flushed once and does not verify; where the next frame is, if one follows; its index, if known.
    Damage(&'a Hole),
    /// The end of the log.
    End(&'a Walker<'a>, Option<&'a Bad>),
}

/// A damaged place.
#[derive(Debug)]
pub(super) struct Hole {
    pub(super) bad: Bad,
    /// Where verified frames go on.
    pub(super) resumed: Option<LogEnd>,
    /// What is known of the frame that stood there: a whole frame, whose local header is what is damaged, or one some
    /// of whose entries are.
    pub(super) salvaged: Option<Frame>,
    /// The log up to the damaged place.
    pub(super) before: FileEnd,
    pub(super) state: LogState,
}

/// Scans a log past all damage, and reports frames and damage.
pub(super) fn examine(survey: &Survey, tell: &mut dyn FnMut(Found<'_>) -> Result<()>) -> Result<()> {
    let Some(first) = survey.chain.first() else { return Ok(()) };
    let identity = first.header.identity;
    let durable = highest_mark(survey)?;
    let mut walker = Walker::new(&survey.chain, &identity);
    loop {
        match walker.step()? {
            Step::Frame(walked) => tell(Found::Frame(&walked))?,
            Step::Bad(bad) if walker.place() >= durable => {
                tell(Found::End(&walker, Some(&bad)))?;
                return Ok(());
            }
            Step::Bad(mut bad) => {
                let frame = bad.frame.take();
                let salvaged = match frame {
                    Some(frame) => Some(frame),
                    None => walker.salvage(&bad)?,
                };
                let LogEnd { sequence, position } = walker.place();
                let before = FileEnd { sequence, position, checksum: walker.checksum() };
                let state = walker.state;
                let resumed = match &salvaged {
                    Some(frame) => Some(walker.pass_salvaged(frame)),
                    None => walker.resume()?,
                };
                tell(Found::Damage(&Hole { bad: *bad, resumed, salvaged, before, state }))?;
                if resumed.is_none() {
                    tell(Found::End(&walker, None))?;
                    return Ok(());
                }
            }
            Step::End => {
                tell(Found::End(&walker, None))?;
                return Ok(());
            }
        }
    }
}

/// How far the log was flushed, from all marks that can be found in it.
fn highest_mark(survey: &Survey) -> Result<LogEnd> {
    let (mut highest, mut read) = (LogEnd::default(), 0);
    for file in &survey.chain {
        let (mark, _) = scan::marks_behind(&*file.file, file.limit(), FILE_HEADER_BYTES, file.header.salt, &mut read)?;
        highest = highest.max(mark.end);
    }
    Ok(highest)
}

/// Collects the figures of a report.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The offset that the next entry of a partition has.
    next: BTreeMap<PartitionId, u64>,
    /// Damages in the report whose last index is not known yet.
    open: Option<usize>,
    /// The last damage of which not everything that is lost is known.
    unknown: Option<usize>,
}

impl Seen {
    pub(super) fn take(&mut self, report: &mut JournalReport, chain: &[ChainFile], found: Found<'_>) {
        match found {
            Found::Frame(walked) => self.frame(report, chain, walked),
            Found::Damage(hole) => self.damage(report, chain, hole),
            Found::End(walker, bad) => {
                let state = &walker.state;
                report.vote = state.local.vote;
                report.purged = state.local.purged;
                report.durable = state.durable.index;
                report.identity = chain.first().map(|f| f.header.identity);
                report.torn = bad.filter(|b| is_torn(b)).map(|b| Torn {
                    path: chain[b.file].path.clone(),
                    position: b.position,
                    what: b.error.to_string(),
                });
                for damage in &mut report.damage {
                    damage.lost = join(std::mem::take(&mut damage.lost));
                }
            }
        }
    }

    fn frame(&mut self, report: &mut JournalReport, chain: &[ChainFile], walked: &Walked) {
        let sequence = chain[walked.file].header.sequence;
        if report.files.last().is_none_or(|f| f.sequence != sequence) {
            let path = chain[walked.file].path.clone();
            report.files.push(JournalFile { sequence, path, frames: 0, indexes: None });
        }
        let index = walked.parsed.replicated.as_ref().map(|r| r.index);
        if let Some(file) = report.files.last_mut() {
            file.frames += 1;
            file.indexes = extend(file.indexes, index);
        }
        report.indexes = extend(report.indexes, index);
        let Some(index) = index else { return };
        self.close(report, index);
        report.frames += 1;
        for entry in walked.frame.iter().flat_map(|f| &f.entries) {
            report.entries += 1;
            report.payload_bytes += u64::from(entry.native.end - entry.native.start);
            self.entry(report, entry);
        }
    }

    /// The index behind a damaged place is known.
    fn close(&mut self, report: &mut JournalReport, index: Index) {
        if let Some(damage) = self.open.take().and_then(|i| report.damage.get_mut(i)) {
            damage.indexes = damage.indexes.map(|(first, _)| (first, index.max(first))).filter(|(a, b)| a < b);
            if damage.indexes.is_none() {
                // Only local frames stood there.
                damage.complete = true;
                self.unknown = None;
            }
        }
    }

    /// Offsets that are jumped over were in a place that could not be read.
    fn entry(&mut self, report: &mut JournalReport, entry: &EntryRef) {
        let Some(range) = range_of(&entry.envelope) else { return };
        let next = self.next.insert(range.partition, range.end.0);
        let jumped = next.filter(|next| *next < range.first.0);
        if let (Some(next), Some(damage)) = (jumped, self.unknown.and_then(|i| report.damage.get_mut(i))) {
            let first = polylogue_types::Offset(next);
            damage.lost.push(LostRange { partition: range.partition, first, end: range.first });
        }
    }

    fn damage(&mut self, report: &mut JournalReport, chain: &[ChainFile], hole: &Hole) {
        let file = &chain[hole.bad.file];
        let same = |end: &LogEnd| end.sequence == file.header.sequence;
        let end = hole.resumed.filter(same).map_or(file.end.unwrap_or(file.size), |end| end.position);
        let mut damage = Damage {
            path: file.path.clone(),
            sequence: file.header.sequence,
            position: hole.bad.position,
            end,
            what: hole.bad.error.to_string(),
            indexes: hole.bad.expected.map(|e| (e, e)),
            lost: Vec::new(),
            complete: false,
        };
        match &hole.salvaged {
            Some(frame) => {
                let bad = damaged_entries(frame);
                for (i, entry) in frame.entries.iter().enumerate() {
                    self.entry(report, entry);
                    if bad.binary_search(&i).is_ok() {
                        damage.lost.extend(range_of(&entry.envelope));
                    }
                }
                damage.indexes = Some((frame.index, frame.index.next()));
                damage.complete = true;
                report.damage.push(damage);
            }
            None => {
                self.open = Some(report.damage.len());
                self.unknown = Some(report.damage.len());
                report.damage.push(damage);
            }
        }
    }
}

fn extend(range: Option<(Index, Index)>, index: Option<Index>) -> Option<(Index, Index)> {
    match (range, index) {
        (Some((first, last)), Some(i)) => Some((first.min(i), last.max(i))),
        (None, Some(i)) => Some((i, i)),
        (range, None) => range,
    }
}

/// Whether what ended the log is a frame that is not whole, rather than room that was not used yet.
fn is_torn(bad: &Bad) -> bool {
    !matches!(bad.error, FrameError::NoFrame | FrameError::Stale)
}
