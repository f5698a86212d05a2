//! Making a damaged journal usable again, without pretending that nothing was lost.
//!
//! ```text
//!   before   file 7: | frame | frame | ###### | frame |      file 8: | frame | frame |
//!                                    '- damaged                        '- kept
//!   after    file 7: | frame | frame |            (the rest does not count any more)
//!            file 9: | Lost  | frame | frame | frame |       copied, with the loss on record
//!            fenced/ the damaged bytes
//! ```
//!
//! File 9's header says where file 7 ends, so that the new file takes the place of everything behind the damage at once, by
//! one rename. Before it, nothing has changed but for the copies in `fenced`.
//!
//! A frame with an index that is damaged is replaced by one with the same index of kind `Lost`: its body lists the
//! offsets that are lost, its entries are those that survived. Where only the local header was damaged, nothing is lost,
//! and the frame is written anew. This is for a log of one voter: a node of several gets the log from the others.

use super::journal::{Damage, Found, Hole, examine, report, survey};
use super::{join, range_of};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::{FrameBuilder, FrameHead, HEADERS_BYTES, LocalRecord, damaged_entries};
use crate::frame::header::LogEnd;
use crate::frame::{Frame, Kind, LostBody};
use crate::journal::copy::CopyFile;
use crate::journal::file::{FENCED_DIR, FILE_HEADER_BYTES, FileEnd, Role, journal_dir};
use crate::journal::recover::Boundary;
use crate::journal::scan::{Walked, Walker};
use crate::journal::survey::Survey;
use crate::store::Keeper;
use polylogue_env::{Env, OpenMode};
use polylogue_record::envelope::Body;
use polylogue_types::{Index, Term, TimestampMs};
use std::path::{Path, PathBuf};

/// Damaged bytes are copied in pieces of this size. Bytes.
const PIECE_BYTES: u64 = 4 << 20;
/// More lost frames in one place than this are no longer believed. A file holds far fewer.
const LOST_FRAMES_MAX: u64 = 1 << 22;

/// The result of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepairReport {
    /// The damage that was found.
    pub damage: Vec<Damage>,
    /// Where the damaged bytes are kept.
    pub fenced: Vec<PathBuf>,
    /// Frames that stand for lost ones.
    pub lost_frames: u64,
    /// Frames that were kept, local ones included, behind the first damaged place.
    pub kept_frames: u64,
}

/// Puts the damage in a shard's journal on record, so that the next start serves everything else. The damaged bytes are kept in
/// `fenced` in the shard's directory. Without damage nothing is changed. The caller holds the data directory's lock.
///
/// # Errors
/// `Invalid` when there is damage and `fence` is not set; `Damaged` when what is left does not make a log; `Incompatible`,
/// `StorageFull`, `Io`. After an error the journal is as it was.
pub fn repair(env: &Env, shard_dir: &Path, fence: bool) -> Result<RepairReport> {
    let dir = journal_dir(shard_dir);
    if !env.disk.exists(&dir) {
        return Ok(RepairReport::default());
    }
    let surveyed = survey(env, &dir, OpenMode::ReadWrite)?;
    let survey = &surveyed.survey;
    let damage = report(&surveyed)?.damage;
    if damage.is_empty() {
        return Ok(RepairReport::default());
    }
    if !fence {
        let first = damage.first().map(ToString::to_string).unwrap_or_default();
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("not repaired, because losing data was not agreed to: {first}"),
        ));
    }
    let checkpoint = Keeper::read(env, shard_dir)?.and_then(|manifest| manifest.checkpoint_applied);
    let fenced = fence_bytes(env, shard_dir, survey, &damage)?;
    let mut rewrite = Rewrite {
        env,
        dir: &dir,
        survey,
        copy: None,
        damage: damage.iter(),
        open: None,
        before: Boundary::default(),
        next: Index(0),
        covered: checkpoint.map_or(Index(0), Index::next),
        term: Term(0),
        time_ms: 0,
        report: RepairReport { fenced, ..RepairReport::default() },
    };
    examine(survey, &mut |found| rewrite.take(found))?;
    let Rewrite { copy, next, mut report, .. } = rewrite;
    // Damage that has no hole (a lost header, a bad sector behind the end) has a place all the same where the log is cut.
    let copy =
        copy.ok_or_else(|| Error::new(ErrorKind::Damaged, "there is no intact place that the log could end at"))?;
    copy.finish(next)?;
    report.damage = damage;
    Ok(report)
}

/// Copies the damaged bytes aside.
fn fence_bytes(env: &Env, shard_dir: &Path, survey: &Survey, damage: &[Damage]) -> Result<Vec<PathBuf>> {
    let io = |e| Error::io("cannot keep the damaged bytes", e);
    let dir = shard_dir.join(FENCED_DIR);
    env.disk.create_dir_all(&dir).map_err(io)?;
    env.disk.sync_dir(shard_dir).map_err(io)?;
    let mut kept = Vec::new();
    for one in damage {
        let chain = survey.chain.iter().map(|f| (f.header.sequence, &f.file));
        let mut files = chain.chain(survey.headless.iter().map(|h| (h.sequence, &h.file)));
        let Some((_, source)) = files.find(|(sequence, _)| *sequence == one.sequence) else { continue };
        let path = dir.join(format!("{:016x}-{}.bytes", one.sequence, one.position));
        if env.disk.exists(&path) {
            // From a repair that did not come to its end.
            env.disk.remove(&path).map_err(io)?;
        }
        let file = env.disk.open(&path, OpenMode::CreateNew).map_err(io)?;
        let mut position = one.position;
        while position < one.end {
            let mut piece = vec![0; (one.end - position).min(PIECE_BYTES) as usize];
            source.read_exact_at(&mut piece, position).map_err(io)?;
            file.write_all_at(&piece, position - one.position).map_err(io)?;
            position += piece.len() as u64;
        }
        file.sync_data().map_err(io)?;
        kept.push(path);
    }
    env.disk.sync_dir(&dir).map_err(io)?;
    Ok(kept)
}

/// Writes the log from the first damaged place on anew.
struct Rewrite<'a> {
    env: &'a Env,
    dir: &'a Path,
    survey: &'a Survey,
    /// `None` before the first damaged place.
    copy: Option<CopyFile<'a>>,
    /// What the report says of the damaged places that are still to come.
    damage: std::slice::Iter<'a, Damage>,
    /// A damaged place whose number of frames is not known yet: its first index, and what is lost.
    open: Option<(Index, LostBody)>,
    /// Where the log stands before the place where the new file begins.
    before: Boundary,
    next: Index,
    /// The index after the last one that the checkpoint covers.
    covered: Index,
    term: Term,
    time_ms: TimestampMs,
    report: RepairReport,
}

impl Rewrite<'_> {
    fn take(&mut self, found: Found<'_>) -> Result<()> {
        match found {
            Found::Frame(walked) => self.frame(walked),
            Found::Damage(hole) => self.hole(hole),
            Found::End(walker, _) => self.end(walker),
        }
    }

    fn frame(&mut self, walked: &Walked) -> Result<()> {
        let file = &self.survey.chain[walked.file];
        if self.copy.is_none() && file.rebuilt {
            // Nothing else is wrong with it, but its header cannot be written back: who begins a file, ends the one before.
            self.before.next = walked.parsed.replicated.map_or(self.before.next, |r| r.index);
            self.begin(self.before)?;
        }
        self.before.end =
            FileEnd { sequence: walked.end.sequence, position: walked.end.position, checksum: walked.parsed.crc };
        if let Some(frame) = walked.frame.as_ref().filter(|f| f.kind.is_local())
            && let Ok(record) = LocalRecord::decode(frame.kind, &frame.body)
        {
            self.before.local.apply(&record);
        }
        if let Some(r) = &walked.parsed.replicated {
            self.close(r.index)?;
            self.next = r.index.next();
            self.before.next = self.next;
            self.term = r.term;
            self.time_ms = r.time_ms;
        }
        let Some(copy) = &mut self.copy else { return Ok(()) };
        self.report.kept_frames += 1;
        copy.frame(walked.bytes.to_vec(), walked.parsed.local.kind, walked.parsed.local.content)
    }

    fn hole(&mut self, hole: &Hole) -> Result<()> {
        if self.copy.is_none() {
            self.next = hole.state.next.unwrap_or(self.next);
            self.begin(Boundary { end: hole.before, local: hole.state.local, next: self.next })?;
        }
        let known = self.damage.next();
        match &hole.salvaged {
            Some(frame) => {
                self.close(frame.index)?;
                self.salvaged(frame)
            }
            None => {
                let ranges = known.map(|d| d.lost.clone()).unwrap_or_default();
                let complete = known.is_some_and(|d| d.complete);
                if self.open.is_none() {
                    self.open = Some((self.next, LostBody { complete, ranges }));
                } else if let Some((_, body)) = &mut self.open {
                    body.complete &= complete;
                    body.ranges.extend(ranges);
                }
                Ok(())
            }
        }
    }

    /// Begins the new file, at the first damaged place.
    fn begin(&mut self, before: Boundary) -> Result<()> {
        for n in &self.survey.copies {
            let removed = self.env.disk.remove(&self.dir.join(Role::Copy(*n).name()));
            removed.map_err(|e| Error::io("cannot remove what an earlier repair left", e))?;
        }
        let first = self.survey.chain.first().map(|f| f.header);
        let identity =
            first.ok_or_else(|| Error::new(ErrorKind::Damaged, "no file says whose journal it is"))?.identity;
        let sequence = self.survey.highest + 1;
        self.copy = Some(CopyFile::begin(self.env, &identity, self.dir, sequence, &before, FILE_HEADER_BYTES)?);
        Ok(())
    }

    /// The index behind a damaged place is known: what stood there gets its frames.
    fn close(&mut self, index: Index) -> Result<()> {
        let Some((first, body)) = self.open.take() else { return Ok(()) };
        if index < first {
            // The record that made the log shorter was damaged, not frames.
            if let Some(copy) = &mut self.copy {
                copy.local(&LocalRecord::TruncateAfter { index: index.0.checked_sub(1).map(Index) })?;
            }
            return Ok(());
        }
        if index.0 - first.0 > LOST_FRAMES_MAX {
            let what = format!("index {first} is followed by {index}: so many frames cannot be lost in one place");
            return Err(Error::new(ErrorKind::Damaged, what));
        }
        let mut body = Some(body);
        for lost in first.0..index.0 {
            // The first one tells what all of them held.
            let body = body.take().unwrap_or(LostBody { complete: true, ranges: Vec::new() });
            self.lost(Index(lost), &body, None)?;
        }
        Ok(())
    }

    /// A frame of which everything, or everything but some entries, is there.
    fn salvaged(&mut self, frame: &Frame) -> Result<()> {
        self.term = frame.term;
        self.time_ms = frame.time_ms;
        self.next = frame.index.next();
        let bad = damaged_entries(frame);
        if bad.is_empty() {
            let Some(copy) = &mut self.copy else { return Ok(()) };
            self.report.kept_frames += 1;
            let content = frame.bytes.get(HEADERS_BYTES - 64..).and_then(|b| b.first_chunk());
            let content = content.map_or(0, |c| u32::from_le_bytes(*c));
            return copy.frame(frame.bytes.to_vec(), frame.kind as u8, content);
        }
        let ranges = bad.iter().filter_map(|i| frame.entries.get(*i)).filter_map(|e| range_of(&e.envelope));
        let body = LostBody { complete: true, ranges: join(ranges.collect()) };
        self.lost(frame.index, &body, Some((frame, &bad)))
    }

    /// Writes a frame of kind `Lost`, with the entries of a frame that are not among the bad ones.
    fn lost(&mut self, index: Index, body: &LostBody, survivors: Option<(&Frame, &[usize])>) -> Result<()> {
        let Some(copy) = &mut self.copy else { return Ok(()) };
        let header = self.survey.chain.first().map(|f| f.header.identity);
        let Some(identity) = header else { return Ok(()) };
        let head = FrameHead {
            kind: Kind::Lost,
            shard: identity.shard,
            term: self.term,
            index,
            leader: survivors.map_or(identity.node, |(frame, _)| frame.leader),
            time_ms: self.time_ms,
        };
        let mut builder = FrameBuilder::new(survivors.map_or(0, |(frame, _)| frame.bytes.len()), &body.encode());
        let mut count = 0;
        if let Some((frame, bad)) = survivors {
            // References count entries, and there are fewer of these now.
            let kept = |i: usize| bad.binary_search(&i).is_err();
            let number = |old: u32| (0..old as usize).filter(|i| kept(*i)).count() as u32;
            for (_, entry) in frame.entries.iter().enumerate().filter(|(i, _)| kept(*i)) {
                let mut envelope = entry.envelope.clone();
                if let Body::Ref { entry } = &mut envelope.body {
                    *entry = number(*entry);
                }
                builder.envelope(&envelope);
                count += 1;
            }
            for (_, entry) in frame.entries.iter().enumerate().filter(|(i, _)| kept(*i)) {
                if let Body::Inline { .. } = entry.envelope.body {
                    builder.native(&frame.native(entry));
                }
            }
        }
        let (frame, _, content) = builder.finish(&head, count);
        self.report.lost_frames += 1;
        self.next = self.next.max(index.next());
        copy.frame(frame, Kind::Lost as u8, content)
    }

    /// The end of the log. What was flushed behind the last frame that is left, the highest mark tells; what a checkpoint covers
    /// was there too.
    fn end(&mut self, walker: &Walker<'_>) -> Result<()> {
        if self.copy.is_none() {
            // What is damaged is where the log ends: the journal that begins a file ends the one before.
            let LogEnd { sequence, position } = walker.place();
            let end = FileEnd { sequence, position, checksum: walker.checksum() };
            self.next = walker.state.next.unwrap_or(self.next);
            self.begin(Boundary { end, local: walker.state.local, next: self.next })?;
        }
        let flushed = walker.state.durable.index.map_or(Index(0), Index::next);
        let end = flushed.max(self.next).max(self.covered);
        if self.open.is_none() && self.covered > self.next {
            self.open = Some((self.next, LostBody::default()));
        }
        if self.open.is_some() {
            self.close(end)?;
            self.next = end;
        }
        Ok(())
    }
}
