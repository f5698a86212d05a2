//! The write role: frames go behind one another into the current file, and into the next one when it is full.

use super::build::{self, Built, Run};
use super::config::Durability;
use super::file::{FILE_HEADER_BYTES, FileEnd, FileHeader, LiveFile, PAGE_BYTES};
use super::inner::{Inner, WriteState};
use super::mode::WriteMode;
use super::pages::open_direct;
use super::pipeline::{Demand, Group};
use super::proposal::{Outcome, Urgency};
use super::queue::{GATHERED_BYTES_MAX, Queued};
use crate::error::{Error, ErrorKind};
use crate::frame::codec::{FrameHead, LocalRecord, seal};
use crate::frame::header::{LOCAL_BYTES, LocalHeader, align};
use crate::frame::{Frame, FramePlace, Kind};
use bytes::Bytes;
use parking_lot::MutexGuard;
use polylogue_types::{Index, Term};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Room for the local records that a file begins with: three of at most 128 bytes each. Bytes.
const PREAMBLE_BYTES: u64 = 3 * 128;

/// A frame of so many bytes is written from where it was built; a smaller one is copied, which costs less than the room
/// around it would. Bytes.
const PLACED_BYTES_MIN: usize = 64 << 10;

/// Why writing cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The disk is full. With `void` it is certain that the frame is not on the disk.
    Full { void: bool },
    /// The journal has ended.
    Dead,
}

/// Where a frame was put.
struct Placed {
    live: Arc<LiveFile>,
    position: u64,
    bytes: Bytes,
}

impl Inner {
    /// See [`Journal::write_step`](super::Journal::write_step).
    pub(crate) fn write_step(&self) -> bool {
        let mut w = self.write.lock();
        let began = self.now_ns();
        let mut wrote = false;
        // More of what came in meanwhile joins the group, within bounds: so a flush is shared by all that could be written
        // before it, and does not wait for what has not come yet.
        while self.write_due(&mut w, began, wrote) {
            wrote = true;
            if w.group.bytes >= self.config.flush_bytes_max || w.group.write_ns >= self.config.flush_us_max * 1_000 {
                break;
            }
        }
        if !wrote {
            wrote = self.write_mark_if_due(&mut w, began);
        }
        self.finish_step(w);
        wrote
    }

    /// Writes what has come since the group was written that is about to be flushed, if it has a waiter and is little: it
    /// would wait for this flush and then for one of its own.
    pub(crate) fn write_meanwhile(&self) {
        if !self.queue.is_urgent_within(GATHERED_BYTES_MAX) {
            return;
        }
        // The thread that writes now may take it in.
        let Some(mut w) = self.write.try_lock() else { return };
        self.write_due(&mut w, self.now_ns(), false);
        self.finish_step(w);
    }

    /// Writes what is queued, if it is due, or anything at all that joins a group, which is being written since `began_ns`. Says
    /// whether there was something.
    pub(crate) fn write_due(&self, w: &mut WriteState, began_ns: u64, joins: bool) -> bool {
        let Some(since) = self.queue.take(&mut w.taken, joins, began_ns, &self.config) else { return false };
        if !joins {
            w.group.since_ns = since.oldest_ns;
            w.group.queued_ns = since.urgent_ns.map(|urgent| began_ns.saturating_sub(urgent));
        }
        self.write_taken(w);
        w.group.write_ns = self.now_ns().saturating_sub(began_ns);
        true
    }

    /// Hands on what was written, gives the write role back, and delivers what needs no flush.
    fn finish_step(&self, mut w: MutexGuard<'_, WriteState>) {
        let committed = self.finish_group(&mut w);
        drop(w);
        if committed {
            self.deliver();
        }
    }

    /// Writes everything that is queued, due or not: what follows in the log is not a proposal.
    pub(crate) fn write_queued(&self, w: &mut WriteState) {
        while let Some(since) = self.queue.take(&mut w.taken, true, self.now_ns(), &self.config) {
            w.group.since_ns = since.oldest_ns;
            self.write_taken(w);
        }
    }

    fn write_mark_if_due(&self, w: &mut WriteState, now: u64) -> bool {
        let due = self.pipeline.lock().mark_due_ns.is_some_and(|due| now >= due);
        due && self.write_mark(w).is_ok()
    }

    /// Writes a mark that tells the next start how far the log is durable.
    pub(crate) fn write_mark(&self, w: &mut WriteState) -> Result<(), Stop> {
        self.pipeline.lock().mark_due_ns = None;
        // A mark is worth no file of its own: what a new file begins with would again be covered by no mark.
        if w.current.as_ref().is_none_or(|c| c.capacity < w.end.position + LOCAL_BYTES as u64) {
            return Ok(());
        }
        let alone = w.group.is_empty();
        let seal = std::mem::replace(&mut w.seal, false);
        let put = self.put_local(w, &LocalRecord::Mark);
        w.seal = seal;
        put?;
        w.group.mark = alone;
        w.group.demand = Demand::Now;
        Ok(())
    }

    /// Hands what this step has written to the flush. Says whether something is to be delivered before it.
    pub(crate) fn finish_group(&self, w: &mut WriteState) -> bool {
        if w.group.is_empty() {
            w.group = Group::default();
            return false;
        }
        let mut group = std::mem::take(&mut w.group);
        group.end = w.durable_end();
        if group.tells() {
            w.recent.note(group.bytes, group.class(self.config.durability));
        }
        if group.since_ns == 0 {
            group.since_ns = self.now_ns();
        }
        {
            let mut stats = self.stats.lock();
            stats.groups += 1;
            stats.proposals += group.outcomes.len() as u64;
            if !group.outcomes.is_empty() {
                stats.write.took(group.write_ns);
            }
            if let Some(ns) = group.queued_ns {
                stats.queue.took(ns);
            }
        }
        self.pipeline.lock().push(group, self.config.durability)
    }

    /// Writes the proposals in `w.taken`; each has its outcome in the group afterwards.
    fn write_taken(&self, w: &mut WriteState) {
        let mut items = std::mem::take(&mut w.taken);
        let mut done = 0;
        while done < items.len() {
            match self.write_run(w, &mut items[done..]) {
                Ok(count) => done += count,
                Err((stop, maybe)) => {
                    self.fail_rest(w, &items[done..], &stop, maybe);
                    break;
                }
            }
        }
        items.clear();
        w.taken = items;
    }

    /// Writes the frames of the next proposals and says how many of these it were. The error says how many may
    /// be in the log nevertheless.
    fn write_run(&self, w: &mut WriteState, items: &mut [Queued]) -> Result<usize, (Stop, usize)> {
        let mut part = 0;
        loop {
            let run = build::plan(items, part, self.config.frame_bytes_max);
            let count = if let Run::Whole(n) = run { n } else { 1 };
            items[..count].iter().for_each(|item| w.group.hold_to(self.class_of(item)));
            let written = self.write_frame(w, &mut items[..count], &run);
            let index = written.map_err(|stop| {
                let void = matches!(stop, Stop::Full { void: true });
                (stop, if void && part == 0 { 0 } else { count })
            })?;
            if let Run::Part(entries) = run {
                part = entries.end;
                if part < items[0].proposal.entries.len() {
                    continue;
                }
            }
            for item in &items[..count] {
                if item.proposal.urgency != Urgency::Lazy && self.class_of(item) == Durability::Sync {
                    w.group.demand = w.group.demand.max(Demand::Commit);
                }
                w.group.outcomes.push((item.proposal.ticket, Outcome::Committed(index)));
            }
            return Ok(count);
        }
    }

    fn class_of(&self, item: &Queued) -> Durability {
        item.proposal.class.unwrap_or(self.config.durability)
    }

    /// Builds one frame of proposals and writes it.
    fn write_frame(&self, w: &mut WriteState, items: &mut [Queued], run: &Run) -> Result<Index, Stop> {
        let time_ms = w.time_ms.max(self.env.clock.now_ms());
        let head = FrameHead {
            kind: items.first().map_or(Kind::Data, |i| i.proposal.kind),
            shard: self.config.identity.shard,
            term: w.term,
            index: w.next_index,
            leader: self.config.identity.node,
            time_ms,
        };
        self.prefer_written(w);
        let built = self.build(w, items, run, &head)?;
        let frame = self.put_frame(w, &head, built)?;
        w.group.frames.push(frame);
        Ok(head.index)
    }

    fn build(&self, w: &mut WriteState, items: &mut [Queued], run: &Run, head: &FrameHead) -> Result<Built, Stop> {
        match run {
            Run::Whole(_) => build::slots_of(items, &mut w.slots),
            Run::Part(entries) => build::slots_of_part(&items[0], entries.clone(), &mut w.slots),
            Run::Body => return Ok(build::body(&items[0].proposal.body, head)),
        }
        let (len, _) = build::len(items, &w.slots);
        let mut position = None;
        if len >= PLACED_BYTES_MIN {
            // Where it will stand must be known now: what is written from where it is built is not copied again.
            self.ensure_room(w, len as u64)?;
            position = Some(w.end.position);
        }
        Ok(build::data(items, &w.slots, &mut w.ranks, head, position))
    }

    /// Writes a frame with an index.
    pub(crate) fn put_frame(&self, w: &mut WriteState, head: &FrameHead, built: Built) -> Result<Arc<Frame>, Stop> {
        let Built { buffer, start, content, entries, native_bytes } = built;
        let placed = self.put(w, buffer, start, head.kind, content)?;
        self.catalog.lock().push(head.term, placed.position, w.end.position);
        w.next_index = head.index.next();
        w.term = head.term;
        w.time_ms = w.time_ms.max(head.time_ms);
        {
            let mut stats = self.stats.lock();
            stats.entries += entries.len() as u64;
            stats.payload_bytes += native_bytes as u64;
        }
        let body_len = if entries.is_empty() { placed.bytes.len() } else { crate::frame::codec::HEADERS_BYTES };
        let body = placed.bytes.slice(crate::frame::codec::HEADERS_BYTES..body_len);
        Ok(Arc::new(Frame {
            shard: head.shard,
            term: head.term,
            index: head.index,
            leader: head.leader,
            time_ms: head.time_ms,
            kind: head.kind,
            entries,
            body,
            place: Some(FramePlace {
                file_sequence: placed.live.sequence,
                file: placed.live.source(),
                position: placed.position,
                len: placed.bytes.len() as u32,
            }),
            bytes: placed.bytes,
        }))
    }

    /// Writes a frame without an index.
    pub(crate) fn put_local(&self, w: &mut WriteState, record: &LocalRecord) -> Result<(), Stop> {
        let (frame, content) = record.encode();
        self.put(w, frame, 0, record.kind(), content)?;
        self.catalog.lock().push_local(w.end.position);
        w.local.apply(record);
        Ok(())
    }

    /// A file whose flushes cost more than they have to is left as soon as there is a better one.
    pub(crate) fn prefer_written(&self, w: &mut WriteState) {
        let room = &self.queue.room;
        w.seal |= room.ready_written.load(Ordering::Relaxed) && !room.current_written.load(Ordering::Relaxed);
    }

    /// Makes sure that `bytes` more bytes have room in the current file, beginning the next one where need be.
    pub(crate) fn ensure_room(&self, w: &mut WriteState, bytes: u64) -> Result<(), Stop> {
        let Some(current) = &w.current else { return self.begin_file(w, bytes) };
        let fits = w.end.position + bytes <= current.capacity;
        if fits && !w.seal { Ok(()) } else { self.begin_file(w, bytes) }
    }

    /// Writes a frame, which begins at `start` of its buffer and whose local header is still missing, behind the last one. If it
    /// cannot, the log is as it was.
    fn put(
        &self,
        w: &mut WriteState,
        mut buffer: Vec<u8>,
        start: usize,
        kind: Kind,
        content: u32,
    ) -> Result<Placed, Stop> {
        if self.queue.is_stopped() && self.env.fatal.is_fatal() {
            return Err(Stop::Dead);
        }
        let len = (buffer.len() - start) as u64;
        self.ensure_room(w, len)?;
        let Some(live) = w.current.clone() else { return Err(Stop::Dead) };
        let local = LocalHeader {
            kind: kind as u8,
            // Bounded at the door, far below 2^32.
            len: len as u32,
            previous: w.end.checksum,
            salt: live.salt,
            durable: self.pipeline.lock().durable,
            content,
        };
        let checksum = seal(&mut buffer[start..], &local);
        let position = w.end.position;
        if let Err(e) = w.pages.write_from(&mut buffer, start, position) {
            return Err(self.write_failed(w, &live, position, e));
        }
        let end = align(position + len);
        w.end = FileEnd { sequence: live.sequence, position: end, checksum };
        w.group.bytes += end - position;
        w.group.touch(&live);
        self.queue.room.current.store(live.capacity.saturating_sub(end), Ordering::Relaxed);
        {
            let mut stats = self.stats.lock();
            stats.frames += 1;
            stats.frames_cached += u64::from(live.mode == WriteMode::Cached);
            stats.wrote(live.mode, end - position);
        }
        Ok(Placed { live, position, bytes: Bytes::from(buffer).slice(start..) })
    }

    /// A frame could not be written. On a full disk, what may be there of it is made void, so that its proposals can be
    /// answered; anything else is final.
    fn write_failed(&self, w: &mut WriteState, live: &LiveFile, position: u64, error: std::io::Error) -> Stop {
        let error = Error::io("cannot write to the journal", error);
        if error.kind != ErrorKind::StorageFull {
            self.die(&error, Vec::new());
            return Stop::Dead;
        }
        self.note_full();
        // The next frame is written over this place. Until then a crash must not bring the failed one back.
        match w.pages.write(&[0; LOCAL_BYTES], position) {
            Ok(()) => match live.file.sync_data() {
                Ok(()) => Stop::Full { void: true },
                Err(e) => {
                    self.die(&super::spares::final_error("cannot flush the journal", e), Vec::new());
                    Stop::Dead
                }
            },
            Err(_) => Stop::Full { void: false },
        }
    }

    /// Makes sure that nothing stands at the end of the log, after frames there were taken back.
    pub(crate) fn void_end(&self, w: &mut WriteState, stop: Stop) -> Stop {
        let (Stop::Full { .. }, Some(live)) = (&stop, &w.current) else { return stop };
        let zeros = w.pages.write(&[0; LOCAL_BYTES], w.end.position);
        match zeros.and_then(|()| live.file.sync_data()) {
            Ok(()) => Stop::Full { void: true },
            Err(e) => {
                self.die(&super::spares::final_error("cannot take back what was written", e), Vec::new());
                Stop::Dead
            }
        }
    }

    /// The disk refused something; the door refuses payload from now on, until the background step finds room.
    pub(crate) fn note_full(&self) {
        self.queue.room.full.store(true, Ordering::Relaxed);
        self.kick_background();
    }

    /// Begins a file that has room for a frame of `bytes`.
    fn begin_file(&self, w: &mut WriteState, bytes: u64) -> Result<(), Stop> {
        let need = FILE_HEADER_BYTES + PREAMBLE_BYTES + bytes;
        let taken = {
            let mut spares = self.spares.lock();
            let short = w.end.sequence > 0 && !spares.has_any() && self.is_short();
            let taken = spares.take(&*self.env.disk, need, self.config.file_bytes, short);
            self.queue.room.see(&spares);
            taken
        };
        let taken = match taken {
            Ok(taken) => {
                if taken.capacity < self.config.file_bytes {
                    self.note_full();
                }
                taken
            }
            Err(e) if e.kind == ErrorKind::StorageFull => {
                self.note_full();
                return Err(Stop::Full { void: true });
            }
            Err(e) => {
                self.die(&e, Vec::new());
                return Err(Stop::Dead);
            }
        };
        let header = FileHeader {
            identity: self.config.identity,
            sequence: taken.sequence,
            salt: self.env.rng.next_u64(),
            first_index: w.next_index,
            previous: w.end,
        };
        let (block, end) = self.first_block(w, &header);
        let mode = w.recent.choose(&self.config);
        let writer = match (mode, taken.direct) {
            (WriteMode::Cached, _) => taken.file.clone(),
            (WriteMode::Direct, Some(direct)) => direct,
            (WriteMode::Direct, None) => open_direct(&*self.env.disk, &taken.path, &taken.file, true),
        };
        if let Err(e) = w.pages.begin(writer, taken.file.clone(), &block, end.position) {
            return Err(self.begin_failed(&taken.path, e));
        }
        let live = Arc::new(LiveFile::new(&header, taken.path, taken.file, taken.capacity, taken.written, mode));
        w.group.touch(&live);
        w.group.bytes += end.position;
        w.end = end;
        self.queue.room.current_written.store(live.written, Ordering::Relaxed);
        w.current = Some(live.clone());
        w.seal = false;
        self.catalog.lock().begin_file(live, end.position);
        {
            let mut stats = self.stats.lock();
            stats.files_begun += 1;
            stats.files_made_late += u64::from(taken.late);
            stats.wrote(mode, end.position);
        }
        self.kick_background();
        Ok(())
    }

    /// Whether a whole file more would take what messages are to leave free. A start must not take that: it happens again and again.
    fn is_short(&self) -> bool {
        let wanted = self.config.disk_reserve_bytes.saturating_add(self.config.file_bytes);
        self.config.disk_reserve_bytes > 0 && self.env.disk.free_bytes(&self.dir).is_ok_and(|free| free < wanted)
    }

    /// The header of a new file and the records that it begins with, as whole pages.
    fn first_block(&self, w: &WriteState, header: &FileHeader) -> (Vec<u8>, FileEnd) {
        let durable = self.pipeline.lock().durable;
        let (mut block, checksum) = header.encode();
        let mut end = FileEnd { sequence: header.sequence, position: FILE_HEADER_BYTES, checksum };
        for record in w.local.records() {
            let (mut frame, content) = record.encode();
            let local = LocalHeader {
                kind: record.kind() as u8,
                len: frame.len() as u32,
                previous: end.checksum,
                salt: header.salt,
                durable,
                content,
            };
            end.checksum = seal(&mut frame, &local);
            block.extend_from_slice(&frame);
            end.position = align(block.len() as u64);
            block.resize(block.len().next_multiple_of(LOCAL_BYTES), 0);
        }
        block.resize(block.len().next_multiple_of(PAGE_BYTES as usize), 0);
        (block, end)
    }

    /// A file could not be begun. On a full disk the log goes on in the file before, which the header that may have been
    /// written would cut off: the file has to go, for certain.
    fn begin_failed(&self, path: &std::path::Path, error: std::io::Error) -> Stop {
        let error = Error::io("cannot begin a journal file", error);
        if error.kind == ErrorKind::StorageFull {
            self.note_full();
            let gone = self.env.disk.remove(path).and_then(|()| self.env.disk.sync_dir(&self.dir));
            match gone {
                Ok(()) => return Stop::Full { void: true },
                Err(e) => self.die(&super::spares::final_error("cannot remove a journal file", e), Vec::new()),
            }
        } else {
            self.die(&error, Vec::new());
        }
        Stop::Dead
    }

    /// Writing has stopped before `items`: the term is over, nothing that was proposed after the failure can be in the log.
    /// The first `maybe` of them may be.
    fn fail_rest(&self, w: &mut WriteState, items: &[Queued], stop: &Stop, maybe: usize) {
        self.queue.set_epoch(None);
        let dead = matches!(stop, Stop::Dead);
        let mut later = Vec::new();
        self.queue.take(&mut later, true, self.now_ns(), &self.config);
        for (i, item) in items.iter().chain(&later).enumerate() {
            let outcome = if dead || i < maybe { Outcome::Unknown } else { Outcome::NotCommitted };
            w.group.outcomes.push((item.proposal.ticket, outcome));
        }
        w.group.demand = w.group.demand.max(Demand::Commit);
    }

    /// Ends the local term: proposals are fenced, and what was accepted before is written.
    pub(crate) fn end_term(&self, w: &mut WriteState) {
        self.queue.set_epoch(None);
        self.write_queued(w);
    }

    /// The term of the last frame, and the highest one voted in.
    pub(crate) fn highest_term(w: &WriteState) -> Term {
        w.local.vote.map_or(w.term, |v| v.term.max(w.term))
    }
}
