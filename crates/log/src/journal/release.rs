//! What goes on beside the writing: letting go of released files, making files ahead, watching the disk's free space.

use super::config::JournalIo;
use super::file::{FENCED_DIR, LiveFile, Role};
use super::inner::{Inner, PendingRelease, WriteState};
use super::pages::PageBuffer;
use super::pipeline::Demand;
use super::spares::{final_error, unless_full};
use super::write::Stop;
use super::{AdoptedFile, Room};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::LocalRecord;
use polylogue_types::{Index, Term};
use std::sync::atomic::Ordering;

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_SEC: u64 = 1_000_000_000;
/// What is written to a file that was not written before until the next one is prepared. Bytes.
const PREWRITE_AFTER_BYTES: u64 = 64 << 10;
/// Releases that may wait for the flush of their record; one more waits for a flush itself.
const RELEASES_MAX: usize = 16;

impl Inner {
    /// See [`Journal::release`](super::Journal::release).
    pub(crate) fn release(&self, upto: Index) -> Result<()> {
        self.check_running()?;
        let durable = self.pipeline.lock().durable_index();
        if durable.is_none_or(|d| upto > d) {
            return Err(Error::new(ErrorKind::OutOfRange, format!("index {upto} is not durable yet")));
        }
        let mut w = self.write.lock();
        let term = self.catalog.lock().term_of(upto);
        // Below what is purged already: nothing to do.
        let Some(term) = term else { return Ok(()) };
        if w.local.purged.is_some_and(|(purged, _)| upto <= purged) {
            return Ok(());
        }
        self.put_purged(&mut w, upto, term, Demand::Lazy)?;
        drop(w);
        self.queue.kick();
        if self.background.lock().releases.len() > RELEASES_MAX {
            self.flush_all()?;
        }
        Ok(())
    }

    /// Writes a `Purged` record and notes what may go when it is durable.
    pub(crate) fn put_purged(&self, w: &mut WriteState, upto: Index, term: Term, demand: Demand) -> Result<()> {
        let put = self.put_local(w, &LocalRecord::Purged { index: upto, term });
        put.map_err(Stop::into_error)?;
        w.group.demand = w.group.demand.max(demand);
        self.catalog.lock().purge(upto, term);
        let end = w.durable_end().end;
        self.finish_group(w);
        self.background.lock().releases.push(PendingRelease { upto, end });
        Ok(())
    }

    /// See [`Journal::adopt`](super::Journal::adopt).
    pub(crate) fn adopt(&self, sequence: u64) -> Result<AdoptedFile> {
        self.check_running()?;
        let waiting = !self.background.lock().releases.is_empty();
        if waiting {
            self.flush_all()?;
        }
        let durable = self.pipeline.lock().durable.end;
        let mut catalog = self.catalog.lock();
        let known = catalog.sealed_files().iter().any(|f| f.sequence == sequence);
        // The next file names this one; without it, durably, the log would seem to be empty at the next start.
        if known && durable.sequence <= sequence {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("what follows journal file {sequence:x} is not flushed"),
            ));
        }
        let released = catalog.first.checked_sub(1).map(Index);
        let entry = catalog.adopt(sequence, released).map_err(|there| {
            if there {
                Error::new(ErrorKind::Invalid, format!("files before journal file {sequence:x} are not released"))
            } else {
                Error::new(ErrorKind::OutOfRange, format!("there is no sealed journal file {sequence:x}"))
            }
        })?;
        Ok(AdoptedFile { sealed: entry.describe(), path: entry.live.path.clone(), file: entry.live.file.clone() })
    }

    /// See [`Journal::background_step`](super::Journal::background_step).
    pub(crate) fn background_step(&self) -> bool {
        if self.queue.is_stopped() {
            return false;
        }
        let done = self.drop_released().and_then(|dropped| Ok(self.prepare()? || dropped));
        done.unwrap_or_else(|e| {
            self.die(&e, Vec::new());
            false
        })
    }

    /// Takes out the files that hold nothing but what a durable record has released.
    fn drop_released(&self) -> Result<bool> {
        let durable = self.pipeline.lock().durable.end;
        let upto = {
            let mut background = self.background.lock();
            let now = background.releases.iter().filter(|r| r.end <= durable).map(|r| r.upto).max();
            background.releases.retain(|r| r.end > durable);
            background.released = background.released.max(now);
            background.released
        };
        let mut spares = self.spares.lock();
        if let Some(upto) = upto {
            loop {
                let entry = self.catalog.lock().pop_covered(upto, durable.sequence);
                let Some(entry) = entry else { break };
                if entry.damaged {
                    unless_full(self.set_aside(&entry.live))?;
                } else {
                    spares.retire(entry.live, entry.end);
                }
            }
        }
        if !spares.has_retired() {
            return Ok(false);
        }
        let full = self.queue.room.full.load(Ordering::Relaxed);
        let (recycled, removed) = spares.recycle(&*self.env.disk, &self.config, full)?;
        self.queue.room.see(&spares);
        drop(spares);
        let mut stats = self.stats.lock();
        stats.files_recycled += recycled;
        stats.files_removed += removed;
        Ok(recycled + removed > 0)
    }

    /// Keeps a file that held damage, for inspection.
    fn set_aside(&self, live: &LiveFile) -> Result<()> {
        let (disk, dir) = (&*self.env.disk, self.config.dir.join(FENCED_DIR));
        let failed = |e| Error::io("cannot keep a damaged journal file", e);
        disk.create_dir_all(&dir).map_err(failed)?;
        disk.rename(&live.path, &dir.join(Role::Log(live.sequence).name())).map_err(failed)?;
        for dir in [&self.config.dir, &dir, &self.dir] {
            disk.sync_dir(dir).map_err(|e| final_error("cannot keep a damaged journal file", e))?;
        }
        Ok(())
    }

    /// Looks at the free space when it is time to, and makes or fills the next file.
    fn prepare(&self) -> Result<bool> {
        let now = self.now_ns();
        let (poll, piece) = {
            let background = self.background.lock();
            (now >= background.poll_due_ns, now >= background.piece_due_ns)
        };
        if poll {
            self.background.lock().poll_due_ns = now + self.config.room_poll_ms.max(1) * NS_PER_MS;
            self.look_at_room()?;
        }
        if piece { self.fill_piece(now) } else { Ok(false) }
    }

    /// Makes a file ready if none is, as long as that leaves the disk its reserve; says so when the disk is full.
    fn look_at_room(&self) -> Result<()> {
        let disk = &*self.env.disk;
        let free = disk.free_bytes(&self.dir).map_err(|e| Error::io("cannot ask for free disk space", e))?;
        let mut spares = self.spares.lock();
        unless_full(spares.promote(disk))?;
        if !spares.has_ready() && free >= self.config.disk_reserve_bytes.saturating_add(self.config.file_bytes) {
            unless_full(spares.make_ready(disk, self.config.file_bytes))?;
        }
        let short = free < self.config.disk_reserve_bytes;
        if short {
            let removed = spares.give_way(disk)?;
            self.stats.lock().files_removed += removed;
        }
        let full = !spares.has_ready() || short;
        let gauge = &self.queue.room;
        gauge.see(&spares);
        gauge.disk.store(free, Ordering::Relaxed);
        gauge.full.store(full, Ordering::Relaxed);
        Ok(())
    }

    /// Fills a piece of the ready file, once it will be needed, or would be better than the current one: a broker that does
    /// nothing writes nothing.
    fn fill_piece(&self, now: u64) -> Result<bool> {
        let left = self.queue.room.current.load(Ordering::Relaxed);
        let written = self.queue.room.current_written.load(Ordering::Relaxed);
        let unused = if written { self.config.file_bytes / 4 } else { PREWRITE_AFTER_BYTES };
        if left == 0 || left.saturating_add(unused) > self.config.file_bytes {
            return Ok(false);
        }
        let zeros = self.zeros.get_or_init(|| PageBuffer::zeros(self.config.prewrite_piece_bytes));
        let filled =
            self.spares.lock().prewrite(&*self.env.disk, zeros.as_slice(), self.config.io != JournalIo::Cached);
        let filled = match filled {
            Err(e) if e.kind == ErrorKind::StorageFull => None,
            other => other?,
        };
        let Some((file, bytes)) = filled else { return Ok(false) };
        // In pieces, so that a flush of the log never waits behind a large one.
        file.sync_data().map_err(|e| final_error("cannot flush a new journal file", e))?;
        self.stats.lock().bytes_prewritten += bytes;
        self.queue.room.see(&self.spares.lock());
        let pace = bytes.saturating_mul(NS_PER_SEC) / self.config.prewrite_bytes_per_sec.max(1);
        self.background.lock().piece_due_ns = now.saturating_add(pace);
        Ok(true)
    }

    /// See [`Journal::journal_room`](super::Journal::journal_room).
    pub(crate) fn room(&self) -> Room {
        let gauge = &self.queue.room;
        let in_files = gauge.in_files();
        Room {
            in_files,
            for_payload: in_files.saturating_sub(self.config.reserve_bytes),
            on_disk: gauge.disk.load(Ordering::Relaxed),
            full: gauge.full.load(Ordering::Relaxed),
        }
    }
}

impl Stop {
    /// The error for a caller that waits.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Stop::Full { .. } => Error::new(ErrorKind::StorageFull, "the disk has no room for the journal; free some"),
            Stop::Dead => super::inner::stopped(),
        }
    }
}
