//! Terms, and what a consensus engine asks for. Each takes the write role itself, so that it is ordered with everything
//! else that is written.

use super::build::{self, Built};
use super::inner::{Inner, WriteState, stopped};
use super::pipeline::Demand;
use super::proposal::{Append, Content, Draft, Flushed, Proposal, Vote};
use super::queue::{self, Queued};
use super::write::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::{FrameHead, LocalRecord};
use crate::frame::{Frame, Kind, MembershipBody};
use parking_lot::MutexGuard;
use polylogue_record::envelope::Body;
use polylogue_types::{Index, Term};
use std::sync::Arc;

impl Inner {
    /// See [`Journal::acquire`](super::Journal::acquire).
    pub(crate) fn acquire(&self) -> Result<Term> {
        let _one = self.acquiring.lock();
        let mut w = self.take_over()?;
        let term = Term(Inner::highest_term(&w).0 + 1);
        let written = self.write_term_start(&mut w, term);
        w.group.demand = Demand::Now;
        self.finish_group(&mut w);
        drop(w);
        let flushed = self.flush_all();
        written.map_err(Stop::into_error)?;
        flushed?;
        self.queue.set_epoch(Some(term));
        Ok(term)
    }

    fn write_term_start(&self, w: &mut WriteState, term: Term) -> std::result::Result<(), Stop> {
        let node = self.config.identity.node;
        self.put_local(w, &LocalRecord::Vote { term, node, committed: true })?;
        let frame = self.put_body(w, Kind::Noop, term, &[])?;
        w.group.frames.push(frame);
        Ok(())
    }

    /// Writes a frame that is all body, at the next index.
    fn put_body(
        &self,
        w: &mut WriteState,
        kind: Kind,
        term: Term,
        body: &[u8],
    ) -> std::result::Result<std::sync::Arc<crate::frame::Frame>, Stop> {
        let identity = &self.config.identity;
        let time_ms = w.time_ms.max(self.env.clock.now_ms());
        let index = w.next_index;
        let head = FrameHead { kind, shard: identity.shard, term, index, leader: identity.node, time_ms };
        self.put_frame(w, &head, build::body(body, &head))
    }

    /// What a log of one voter begins with.
    pub(crate) fn start_life(&self) -> Result<()> {
        let node = self.config.identity.node;
        let mut w = self.write.lock();
        let written = self.put_local(&mut w, &LocalRecord::Vote { term: Term(1), node, committed: true });
        let body = MembershipBody { voters: vec![node] }.encode();
        let written = written.and_then(|()| self.put_body(&mut w, Kind::Membership, Term(1), &body));
        w.group.demand = Demand::Now;
        self.finish_group(&mut w);
        drop(w);
        let frame = written.map_err(Stop::into_error)?;
        self.flush_all()?;
        self.set_committed(frame.index);
        Ok(())
    }

    /// Takes the write role for something that is not a proposal: the local term ends, and what it has accepted is written.
    fn take_over(&self) -> Result<MutexGuard<'_, WriteState>> {
        self.check_running()?;
        let mut w = self.write.lock();
        self.end_term(&mut w);
        self.finish_group(&mut w);
        if self.env.fatal.is_fatal() { Err(stopped()) } else { Ok(w) }
    }

    /// See [`Journal::append`](super::Journal::append).
    pub(crate) fn append(&self, frames: Vec<Append>, flushed: Flushed) -> Result<()> {
        self.put_appends(frames, |group, _| group.flushed.push(flushed))
    }

    /// See [`Journal::follow`](super::Journal::follow).
    pub(crate) fn follow(&self, frames: &[Arc<Frame>]) -> Result<()> {
        let frames = frames.iter().map(|frame| append_of(frame)).collect();
        self.put_appends(frames, |group, frames| group.frames.extend(frames))
    }

    /// Writes frames at given indexes, and notes with their group what is to be done once that is flushed.
    fn put_appends(
        &self,
        frames: Vec<Append>,
        then: impl FnOnce(&mut super::pipeline::Group, Vec<Arc<Frame>>),
    ) -> Result<()> {
        let mut w = self.take_over()?;
        let built = self.build_appends(&w, frames)?;
        let bytes: u64 = built.iter().map(|(_, b)| (b.buffer.len() as u64).next_multiple_of(64)).sum();
        // All in one file: what a full disk leaves half done can then be taken back.
        self.prefer_written(&mut w);
        self.ensure_room(&mut w, bytes).map_err(Stop::into_error)?;
        let (end, next, term, time_ms) = (w.end, w.next_index, w.term, w.time_ms);
        let mut put = Vec::with_capacity(built.len());
        for (head, frame) in built {
            match self.put_frame(&mut w, &head, frame) {
                Ok(frame) => put.push(frame),
                Err(stop) => {
                    (w.end, w.next_index, w.term, w.time_ms) = (end, next, term, time_ms);
                    self.catalog.lock().take_back(next, end.position);
                    let stop = self.void_end(&mut w, stop);
                    self.finish_group(&mut w);
                    drop(w);
                    self.queue.kick();
                    return Err(stop.into_error());
                }
            }
        }
        then(&mut w.group, put);
        w.group.demand = Demand::Now;
        self.finish_group(&mut w);
        drop(w);
        self.queue.kick();
        Ok(())
    }

    fn build_appends(&self, w: &WriteState, frames: Vec<Append>) -> Result<Vec<(FrameHead, Built)>> {
        let invalid = |what: String| Error::new(ErrorKind::Invalid, what);
        let (mut next, mut term) = (w.next_index, w.term);
        let (mut slots, mut ranks) = (Vec::new(), Vec::new());
        let mut built = Vec::with_capacity(frames.len());
        for frame in frames {
            let head = FrameHead {
                kind: frame.kind,
                shard: self.config.identity.shard,
                term: frame.term,
                index: frame.index,
                leader: frame.leader,
                time_ms: frame.time_ms,
            };
            if head.index != next || head.term < term || head.kind.is_local() || head.kind == Kind::Lost {
                let what = format!("{:?} frame at index {} of term {}", head.kind, head.index, head.term);
                return Err(invalid(format!("{what} cannot follow the log's end at {next}, term {term}")));
            }
            (next, term) = (next.next(), head.term);
            let one = match frame.content {
                Content::Opaque(body) if body.len() <= self.config.entry_bytes_max => build::body(&body, &head),
                Content::Opaque(_) => return Err(invalid(format!("the body of frame {} is too long", head.index))),
                Content::Entries(entries) => {
                    let mut item = self
                        .measure_entries(head.term, entries)
                        .map_err(|_| invalid(format!("the entries of frame {} break their bounds", head.index)))?;
                    build::slots_of(std::slice::from_ref(&item), &mut slots);
                    build::data(std::slice::from_mut(&mut item), &slots, &mut ranks, &head, None)
                }
            };
            built.push((head, one));
        }
        Ok(built)
    }

    fn measure_entries(&self, term: Term, entries: Vec<super::Draft>) -> std::result::Result<Queued, Proposal> {
        queue::measure(Proposal::data(term, 0, entries), &self.config)
    }

    /// See [`Journal::truncate_after`](super::Journal::truncate_after).
    pub(crate) fn truncate_after(&self, index: Option<Index>) -> Result<()> {
        let mut w = self.take_over()?;
        let next = index.map_or(Index(0), Index::next);
        let purged = w.local.purged.map_or(Index(0), |(purged, _)| purged.next());
        if next < purged {
            return Err(Error::new(ErrorKind::Invalid, format!("cannot truncate to {next}: purged below {purged}")));
        }
        if next >= w.next_index {
            return Ok(());
        }
        self.put_local(&mut w, &LocalRecord::TruncateAfter { index }).map_err(Stop::into_error)?;
        {
            let mut catalog = self.catalog.lock();
            catalog.truncate(next);
            let last = index.and_then(|i| catalog.term_of(i));
            w.term = last.unwrap_or_default();
        }
        w.next_index = next;
        self.finish_now(w)
    }

    /// See [`Journal::purge`](super::Journal::purge).
    pub(crate) fn purge(&self, index: Index, term: Term) -> Result<()> {
        let mut w = self.take_over()?;
        if w.local.purged.is_some_and(|(purged, _)| index <= purged) {
            return Ok(());
        }
        self.put_purged(&mut w, index, term, Demand::Now)?;
        if w.next_index <= index {
            w.next_index = index.next();
            w.term = term;
        }
        drop(w);
        self.flush_all()
    }

    /// See [`Journal::save_vote`](super::Journal::save_vote).
    pub(crate) fn save_vote(&self, vote: Vote) -> Result<()> {
        let mut w = self.take_over()?;
        let Vote { term, node, committed } = vote;
        self.put_local(&mut w, &LocalRecord::Vote { term, node, committed }).map_err(Stop::into_error)?;
        self.finish_now(w)
    }

    /// See [`Journal::save_committed`](super::Journal::save_committed).
    pub(crate) fn save_committed(&self, index: Index) -> Result<()> {
        let mut w = self.take_over()?;
        self.put_local(&mut w, &LocalRecord::Committed { index }).map_err(Stop::into_error)?;
        self.finish_group(&mut w);
        drop(w);
        self.queue.kick();
        Ok(())
    }

    fn finish_now(&self, mut w: MutexGuard<'_, WriteState>) -> Result<()> {
        w.group.demand = Demand::Now;
        self.finish_group(&mut w);
        drop(w);
        self.flush_all()
    }
}

/// A frame of another node's log, to be written as it is: the entries stand in it as they are to stand, and references count them.
fn append_of(frame: &Frame) -> Append {
    let content = match frame.kind {
        Kind::Data => Content::Entries(frame.entries.iter().map(|entry| draft_of(frame, entry)).collect()),
        _ => Content::Opaque(frame.body.clone()),
    };
    let Frame { term, index, leader, time_ms, kind, .. } = *frame;
    Append { term, index, leader, time_ms, kind, content }
}

fn draft_of(frame: &Frame, entry: &crate::frame::EntryRef) -> Draft {
    // The native range of a reference is that of the entry it refers to.
    let bytes = match entry.envelope.body {
        Body::Ref { .. } => bytes::Bytes::new(),
        _ => frame.native(entry),
    };
    Draft::new(entry.envelope.clone(), bytes)
}
