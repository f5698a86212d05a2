//! Opening a journal.
//!
//! ```text
//!                      highest mark of a finished flush          first bad place
//!                                   v                                  v
//!   | frame | frame | frame | frame | frame | frame | frame | frame |  ?  ...  frame?
//!   '------- durable, damage here ---'------ recovered: copied and --'--- torn: cut,
//!            refuses the start              flushed before use            unless a mark says
//!                                                                         that it was flushed
//! ```
//!
//! The walk goes over all files in log order and verifies chain, indexes, headers, tables and native bytes. It stops at the
//! first bad place, which is where the log ends when all is well. What is behind it is searched at every 64-byte boundary for
//! frames of this file and of the files ahead: their marks tell whether the bad place was flushed once. If so it is
//! damage: acknowledged bytes are gone, and cutting them off would be a lie. If not, they were never acknowledged.
//!
//! **Recovered is not durable.** What lies above the highest mark was read from the page cache, perhaps after a flush that
//! failed, which may leave pages clean that never reached the disk; flushing them again would say nothing. So it
//! is copied into a new file under another name, that is flushed, named as the next file of the log, and the directory is
//! flushed. The new file's header cuts the old copies off. Before that, a crash finds everything as it was.

use super::catalog::Catalog;
use super::config::{Config, Recovery, StartOfLife};
use super::copy;
use super::file::{FileEnd, LiveFile, Role, journal_dir};
use super::inner::{Inner, LocalState, Opened};
use super::mode::WriteMode;
use super::scan::{self, Bad, Step, Walked, Walker};
use super::spares::{Spare, Spares, final_error, open_spare};
use super::survey::{Headless, Survey};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use crate::frame::codec::{FrameError, LocalRecord};
use crate::frame::header::{Durable, LogEnd};
use polylogue_env::{Env, OpenMode};
use polylogue_types::{Index, Term, TimestampMs};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

/// An unused end of a file that is shorter stays. Bytes.
const TRIM_BYTES_MIN: u64 = 8 << 10;

/// A frame that no mark calls durable so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Which file of the chain.
    pub(crate) file: usize,
    pub(crate) position: u64,
    pub(crate) len: u32,
    pub(crate) kind: u8,
    /// Where the log stands after it.
    pub(crate) after: Boundary,
}

/// A place between two frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Boundary {
    pub(crate) end: FileEnd,
    pub(crate) local: LocalState,
    pub(crate) next: Index,
}

/// What the walk over a journal has found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) catalog: Catalog,
    /// Up to where everything is durable.
    pub(crate) durable: Boundary,
    /// What follows there, and is not.
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) end: FileEnd,
    local: LocalState,
    term: Term,
    time_ms: TimestampMs,
    pub(crate) recovery: Recovery,
    /// The walk goes on behind a damaged place, and how many frames stood there is not known yet.
    pub(crate) hole: bool,
}

/// See [`Journal::open`](super::Journal::open).
pub(crate) fn open(
    env: &Env,
    config: Config,
    from: Index,
    visit: &mut dyn FnMut(Frame) -> Result<()>,
) -> Result<Arc<Inner>> {
    check_config(&config)?;
    let dir = journal_dir(&config.dir);
    make_dirs(env, &dir)?;
    let mut survey = survey(env, &config, &dir)?;
    let mut found = walk(&config, &survey, from)?;
    let mut copied = 0;
    if found.pending.iter().any(|p| !p.is_mark()) {
        copied = found.pending.len() as u64;
        copy::copy_tail(env, &config, &dir, &survey, &found)?;
        survey = self::survey(env, &config, &dir)?;
        let torn = found.recovery.torn;
        found = walk(&config, &survey, from)?;
        found.recovery.torn = torn;
        if found.pending.iter().any(|p| !p.is_mark()) {
            return Err(Error::new(ErrorKind::Damaged, "what was copied and flushed is not there"));
        }
    }
    found.recovery.frames_copied = copied;
    found.check_range(from)?;
    // With the marks at the end, which say what was flushed until a newer file does.
    for (sequence, len) in found.trim_files(&survey)? {
        found.catalog.shorten(sequence, len);
    }
    found.drop_pending_marks();
    let opened = found.into_opened(env, &config, &dir, survey)?;
    let inner = Arc::new(Inner::new(env.clone(), config, opened));
    let empty = inner.catalog.lock().next == 0;
    if empty && inner.config.start == StartOfLife::OneVoter {
        inner.start_life()?;
    }
    show(&inner, from, visit)?;
    Ok(inner)
}

fn check_config(config: &Config) -> Result<()> {
    let pages = config.file_bytes.is_multiple_of(super::file::PAGE_BYTES) && config.file_bytes >= 64 << 10;
    let limit = crate::frame::header::FRAME_BYTES_LIMIT as usize / 2;
    if !pages || config.entry_bytes_max > limit || config.frame_bytes_max > limit / 2 {
        let what = "journal files have whole pages and at least 64 KiB, entries at most 128 MiB, frames at most 64";
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    if config.reserve_bytes < 2 * super::queue::CONTROL_BYTES {
        return Err(Error::new(ErrorKind::Invalid, "the journal's reserve has at least 32 KiB"));
    }
    Ok(())
}

/// Makes the journal's directory and those above it that are not there, durably.
fn make_dirs(env: &Env, dir: &Path) -> Result<()> {
    let missing = dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !env.disk.exists(d));
    let parents: Vec<&Path> = missing.filter_map(Path::parent).collect();
    if parents.is_empty() {
        return Ok(());
    }
    env.disk.create_dir_all(dir).map_err(|e| Error::io("cannot make the journal's directory", e))?;
    for parent in parents {
        // The parent of a relative name is the working directory.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        env.disk.sync_dir(parent).map_err(|e| final_error("cannot make the journal's directory durable", e))?;
    }
    Ok(())
}

/// Reads what is in the directory. Nothing is changed on disk.
fn survey(env: &Env, config: &Config, dir: &Path) -> Result<Survey> {
    let open = |path: &Path| env.disk.open(path, OpenMode::ReadWrite);
    let mut survey = Survey::read(&*env.disk, dir, Some(&config.identity), &open)?;
    // The header of a file can be missing because nothing of it was ever flushed. Then nothing after it was either.
    while let Some(headless) = survey.headless_link() {
        let (sequence, mut read) = (headless.sequence, 0);
        for file in &survey.chain {
            let start = super::file::FILE_HEADER_BYTES;
            let (durable, _) = scan::marks_behind(&*file.file, file.size, start, file.header.salt, &mut read)?;
            if durable.end.sequence >= sequence {
                return Err(lost_header(headless));
            }
        }
        survey.discard_chain();
    }
    Ok(survey)
}

fn lost_header(headless: &Headless) -> Error {
    let what = format!("the header of {} is lost, and what follows it had been flushed", headless.path.display());
    Error::new(ErrorKind::Damaged, what)
}

/// Walks over the log and tells its end from damage. Nothing is changed on disk.
fn walk(config: &Config, survey: &Survey, from: Index) -> Result<Found> {
    let mut walker = Walker::new(&survey.chain, &config.identity);
    let mut found = Found::new(survey);
    let bad = loop {
        match walker.step()? {
            Step::Frame(frame) => found.take(survey, &walker, &frame)?,
            Step::Bad(bad) if Found::may_pass(config, survey, &bad) => found.pass(survey, &mut walker, &bad)?,
            Step::Bad(bad) => break Some(bad),
            Step::End => break None,
        }
    };
    found.recovery.bytes_read = walker.bytes_read();
    found.close_hole(survey, survey.chain.len().saturating_sub(1), None)?;
    found.enter_files(survey, survey.chain.len());
    judge(survey, &mut walker, bad.as_deref(), &mut found)?;
    found.local = walker.state.local;
    // The walk has seen terms that were truncated; of a log that is empty after that nothing is left.
    let last = found.catalog.next.checked_sub(1).map(Index);
    found.term = last.map_or(Term(0), |last| found.catalog.term_of(last).unwrap_or(walker.state.term));
    found.time_ms = walker.state.time_ms;
    found.confirm_covered(config.covered);
    found.settle(walker.state.durable)?;
    found.check_gap(survey, from)?;
    Ok(found)
}

/// Whether what stopped the walk is the end of the log or damage.
fn judge(survey: &Survey, walker: &mut Walker<'_>, bad: Option<&Bad>, found: &mut Found) -> Result<()> {
    let stopped = walker.place();
    let mut read = 0;
    let mut behind = None;
    let first_behind = bad.map_or(survey.chain.len(), |b| b.file);
    for (i, file) in survey.chain.iter().enumerate().skip(first_behind) {
        let start = if i == first_behind { stopped.position } else { super::file::FILE_HEADER_BYTES };
        let marks = scan::marks_behind(&*file.file, file.size, start, file.header.salt, &mut read);
        let (durable, last) = marks.map_err(|e| e.within(&file.path))?;
        walker.see(durable);
        behind = behind.max(last.map(|last| LogEnd { sequence: file.header.sequence, position: last }));
    }
    // A file whose header was lost would look as if it had never been begun.
    for headless in survey.headless_behind() {
        if headless.salt()?.1 {
            return Err(lost_header(headless));
        }
    }
    found.recovery.bytes_read += read;
    let Some(bad) = bad else { return Ok(()) };
    if walker.state.durable.end > stopped {
        return Err(damage_error(survey, bad));
    }
    // A verified frame that this version cannot understand is no tear.
    if let FrameError::UnknownKind(_) | FrameError::Envelope(_) | FrameError::Shard(_) = bad.error {
        let what = format!("{}: {}", survey.chain[bad.file].path.display(), bad.error);
        return Err(Error::new(ErrorKind::Incompatible, what));
    }
    let partial = !matches!(bad.error, FrameError::NoFrame | FrameError::Stale);
    if partial || behind.is_some() {
        let bytes = behind.filter(|b| b.sequence == stopped.sequence).map_or(0, |b| b.position - stopped.position);
        found.recovery.torn = Some((stopped.sequence, stopped.position, bytes));
    }
    Ok(())
}

/// Names what is damaged, as far as it can be known from the bad place itself; `check` looks further.
fn damage_error(survey: &Survey, bad: &Bad) -> Error {
    let mut what = format!(
        "{} is damaged at {}: {}; it had been flushed",
        survey.chain[bad.file].path.display(),
        bad.position,
        bad.error
    );
    if let Some(expected) = bad.expected {
        what.push_str(&format!("; the frame's index is {expected}"));
    }
    let lost = bad.frame.as_ref().map(crate::check::lost_in).unwrap_or_default();
    for range in &lost {
        what.push_str(&format!(
            "; partition {} offsets {} to {}",
            range.partition,
            range.first,
            range.end.0.saturating_sub(1)
        ));
    }
    if lost.is_empty() {
        what.push_str("; the partitions are not known, `check` looks further");
    }
    Error::new(ErrorKind::Damaged, what)
}

impl Pending {
    fn is_mark(&self) -> bool {
        self.kind == crate::frame::Kind::Mark as u8
    }
}

impl Found {
    fn new(survey: &Survey) -> Found {
        let start = survey.chain.first().map(|f| &f.header);
        let next = start.map_or(Index(0), |h| h.first_index);
        let durable =
            Boundary { end: start.map(|h| h.previous).unwrap_or_default(), local: LocalState::default(), next };
        Found {
            catalog: Catalog::new(next),
            end: durable.end,
            durable,
            pending: VecDeque::new(),
            local: LocalState::default(),
            term: Term::default(),
            time_ms: 0,
            recovery: Recovery { files: survey.chain.len(), started: survey.chain.is_empty(), ..Recovery::default() },
            hole: false,
        }
    }

    /// Notes that the walk has come to file `upto - 1`.
    pub(crate) fn enter_files(&mut self, survey: &Survey, upto: usize) {
        for file in survey.chain.iter().take(upto).skip(self.catalog.len()) {
            let live =
                LiveFile::new(&file.header, file.path.clone(), file.file.clone(), file.size, false, WriteMode::Direct);
            self.catalog.begin_file(Arc::new(live), super::file::FILE_HEADER_BYTES);
        }
        self.catalog.seal_last();
    }

    pub(crate) fn take(&mut self, survey: &Survey, walker: &Walker<'_>, walked: &Walked) -> Result<()> {
        self.close_hole(survey, walked.file, walked.parsed.replicated.map(|r| r.index))?;
        self.enter_files(survey, walked.file + 1);
        match &walked.parsed.replicated {
            Some(r) if r.index.0 != self.catalog.next => {
                let what = format!("index {} stands where {} belongs", r.index, self.catalog.next);
                return Err(Error::new(ErrorKind::Damaged, what));
            }
            Some(r) => {
                self.catalog.push(r.term, walked.position, walked.end.position);
                self.recovery.frames += 1;
            }
            None => self.take_local(walked)?,
        }
        let state = &walker.state;
        let end = FileEnd { sequence: walked.end.sequence, position: walked.end.position, checksum: walker.checksum() };
        self.end = end;
        let after = Boundary { end, local: state.local, next: state.next.unwrap_or(Index(self.catalog.next)) };
        self.pending.push_back(Pending {
            file: walked.file,
            position: walked.position,
            len: walked.parsed.local.len,
            kind: walked.parsed.local.kind,
            after,
        });
        self.confirm(state.durable.end);
        Ok(())
    }

    fn take_local(&mut self, walked: &Walked) -> Result<()> {
        self.catalog.push_local(walked.end.position);
        let Some(frame) = &walked.frame else { return Ok(()) };
        let record = LocalRecord::decode(frame.kind, &frame.body);
        match record.map_err(|e| Error::new(ErrorKind::Damaged, e.to_string()))? {
            LocalRecord::TruncateAfter { index } => self.catalog.truncate(index.map_or(Index(0), Index::next)),
            LocalRecord::Purged { index, term } => self.catalog.purge(index, term),
            LocalRecord::Vote { .. } | LocalRecord::Committed { .. } | LocalRecord::Mark => {}
        }
        Ok(())
    }

    /// A mark says that everything before `end` is durable.
    fn confirm(&mut self, end: LogEnd) {
        while let Some(first) = self.pending.front() {
            let after = LogEnd { sequence: first.after.end.sequence, position: first.after.end.position };
            if after > end {
                break;
            }
            self.durable = first.after;
            self.pending.pop_front();
        }
    }

    /// The highest mark is known.
    fn settle(&mut self, mark: Durable) -> Result<()> {
        self.confirm(mark.end);
        let end = self.durable.end;
        let at = LogEnd { sequence: end.sequence, position: end.position };
        // Below the first file there may be older marks; within the log a mark is always at the end of a frame.
        let inside = self.pending.front().is_some_and(|p| p.after.end.sequence == mark.end.sequence);
        if mark.end > at && inside {
            let what =
                format!("a mark names {} in file {:x}, which is no frame's end", mark.end.position, mark.end.sequence);
            return Err(Error::new(ErrorKind::Damaged, what));
        }
        Ok(())
    }

    /// Frames in files that are not there must not be needed. Files before such a gap hold nothing that is needed either, and
    /// may be there: a crash right after an adoption leaves them.
    fn check_gap(&self, survey: &Survey, from: Index) -> Result<()> {
        let Some(first) = survey.chain.first() else { return Ok(()) };
        let purged = self.local.purged.map_or(0, |(index, _)| index.0 + 1);
        let start = first.header.first_index.0;
        if first.header.previous.sequence != 0 && start > from.0.max(purged) {
            let missing = Role::Log(first.header.previous.sequence).name();
            let what = format!("journal file {missing} is missing, which held what comes before index {start}");
            return Err(Error::new(ErrorKind::Damaged, what));
        }
        Ok(())
    }

    /// The caller's `from` has to be in the log, or right behind it.
    fn check_range(&self, from: Index) -> Result<()> {
        let (first, next) = (self.catalog.first, self.catalog.next);
        if from.0 > next {
            let what =
                format!("the journal ends before index {next}, but a checkpoint covers everything before {from}");
            return Err(Error::new(ErrorKind::Damaged, what));
        }
        if from.0 < first {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("the journal begins at {first}, {from} was asked for"),
            ));
        }
        Ok(())
    }

    /// Marks at the end that no later mark confirms are written over: they say nothing that is not known now.
    fn drop_pending_marks(&mut self) {
        if self.pending.pop_front().is_some() {
            self.pending.clear();
            self.end = self.durable.end;
            self.catalog.cut_last(self.end.sequence, self.end.position);
        }
    }

    /// Tidies the directory up and hands over what the journal starts from.
    fn into_opened(self, env: &Env, config: &Config, dir: &Path, survey: Survey) -> Result<Opened> {
        let newest = survey.chain.last().map_or(0, |f| f.header.sequence);
        let spares =
            Tidy { env, dir, file_bytes: config.file_bytes, keep: config.spare_files_max }.run(survey, newest)?;
        Ok(Opened {
            durable: Durable {
                index: self.durable.next.0.checked_sub(1).map(Index),
                end: LogEnd { sequence: self.end.sequence, position: self.end.position },
            },
            catalog: self.catalog,
            end: self.end,
            local: self.local,
            term: self.term,
            time_ms: self.time_ms,
            spares,
            recovery: self.recovery,
        })
    }
}

impl Found {
    /// Gives back what files hold behind their last frame: none of them is written to any more. Each start begins a file, and without this
    /// each would take the room of a whole one until what is in it is merged. It needs no room, and a crash that undoes it costs nothing.
    /// Returns which files are shorter, and how long.
    pub(crate) fn trim_files(&self, survey: &Survey) -> Result<Vec<(u64, u64)>> {
        let mut shorter = Vec::new();
        for file in &survey.chain {
            let sequence = file.header.sequence;
            let last = (self.end.sequence == sequence).then_some(self.end.position);
            let Some(end) = file.end.or(last) else { continue };
            let len = end.max(super::file::FILE_HEADER_BYTES).next_multiple_of(super::file::PAGE_BYTES);
            if len + TRIM_BYTES_MIN > file.size {
                continue;
            }
            match file.file.set_len(len) {
                Ok(()) => shorter.push((sequence, len)),
                // It is only room.
                Err(e) if e.kind() == std::io::ErrorKind::StorageFull => {}
                Err(e) => return Err(Error::io("cannot give back the unused end of a journal file", e)),
            }
        }
        Ok(shorter)
    }
}

/// Brings the files that are not part of the log into order.
struct Tidy<'a> {
    env: &'a Env,
    dir: &'a Path,
    file_bytes: u64,
    keep: usize,
}

impl Tidy<'_> {
    fn run(&self, survey: Survey, newest: u64) -> Result<Spares> {
        let mut changed = false;
        let mut ready = None;
        let mut pool = Vec::new();
        let mut unused: Vec<Role> = survey.copies.iter().map(|n| Role::Copy(*n)).collect();
        unused.extend(survey.void.iter().map(|n| Role::Log(*n)));
        unused.extend(survey.older.iter().map(|f| Role::Log(f.header.sequence)));
        for headless in &survey.headless {
            let role = Role::Log(headless.sequence);
            if ready.is_none() && headless.sequence > newest {
                ready = open_spare(self.env, self.dir, role, self.file_bytes)?;
            }
            if ready.as_ref().is_none_or(|r| r.role != role) {
                unused.push(role);
            }
        }
        let highest = survey.highest;
        let spares = survey.spares.clone();
        drop(survey);
        for n in spares {
            match open_spare(self.env, self.dir, Role::Spare(n), self.file_bytes)? {
                Some(spare) if pool.len() < self.keep => pool.push(spare),
                _ => unused.push(Role::Spare(n)),
            }
        }
        for role in unused {
            changed = true;
            if pool.len() < self.keep && !matches!(role, Role::Copy(_)) {
                pool.extend(self.recycle(role)?);
            } else {
                self.remove(role)?;
            }
        }
        if changed {
            let synced = self.env.disk.sync_dir(self.dir);
            synced.map_err(|e| final_error("cannot flush the journal's directory", e))?;
        }
        Ok(Spares::new(self.dir.to_owned(), highest + 1, ready, pool))
    }

    fn remove(&self, role: Role) -> Result<()> {
        let removed = self.env.disk.remove(&self.dir.join(role.name()));
        removed.map_err(|e| Error::io("cannot remove an unused journal file", e))
    }

    /// Makes a spare file of one that is not part of the log any more, if it has the right size.
    fn recycle(&self, role: Role) -> Result<Option<Spare>> {
        let Some(spare) = open_spare(self.env, self.dir, role, self.file_bytes)? else {
            self.remove(role)?;
            return Ok(None);
        };
        let to = Role::Spare(role.sequence());
        let renamed = self.env.disk.rename(&self.dir.join(role.name()), &self.dir.join(to.name()));
        match renamed.map_err(|e| Error::io("cannot recycle a journal file", e)) {
            Ok(()) => Ok(Some(Spare { role: to, ..spare })),
            // Some file systems need room for a name.
            Err(e) if e.kind == ErrorKind::StorageFull => self.remove(role).map(|()| None),
            Err(e) => Err(e),
        }
    }
}

/// Shows the frames from `from` on to the caller; those of which native bytes are damaged without any.
fn show(inner: &Inner, from: Index, visit: &mut dyn FnMut(Frame) -> Result<()>) -> Result<()> {
    let (first, next) = {
        let catalog = inner.catalog.lock();
        (catalog.first, catalog.next)
    };
    let passed = inner.recovery.passed.iter().filter(|p| p.missing.is_none());
    let doubtful: BTreeSet<Index> = passed.map(|p| p.first).collect();
    for index in from.0.max(first)..next {
        let located = inner.catalog.lock().locate(Index(index));
        let Some(located) = located else { continue };
        let Some(mut frame) = super::read::read_frame(&located, Index(index))? else { continue };
        if doubtful.contains(&Index(index)) {
            let heads = frame.entries.iter().map(|e| e.native.start as usize).min().unwrap_or_default();
            frame.bytes.truncate(heads);
        }
        visit(frame)?;
    }
    Ok(())
}
