//! Writing on the proposer's own thread.
//!
//! A small frame into the page cache takes a few microseconds; to wake a thread for it, and that one to wake the proposer's for
//! the outcome, takes ten times as long. So a proposer that says so ([`Proposal::prompt`](super::Proposal::prompt)) writes its
//! proposal itself, after it has let go of its locks, and hears the outcome there. It does so only where no disk is waited for:
//!
//! - the current file is written through the page cache and has room;
//! - all that is queued is little ([`Config::prompt_bytes_max`](super::Config::prompt_bytes_max)) and waits for no flush;
//! - no other thread has the write role;
//! - the page cache has lately been quick: after a write that took longer than
//!   [`Config::prompt_us_max`](super::Config::prompt_us_max) the journal's threads write for
//!   [`Config::prompt_pause_factor`](super::Config::prompt_pause_factor) times as long: the system makes writers wait where
//!   too much is dirty, and the thread has other connections.
//!
//! Otherwise the journal's threads are woken, as for any proposal.

use super::inner::{Inner, WriteState};
use super::mode::WriteMode;
use crate::frame::codec::HEADERS_BYTES;
use std::sync::atomic::Ordering;

const NS_PER_US: u64 = 1_000;

impl Inner {
    /// See [`Journal::write_prompt`](super::Journal::write_prompt).
    pub(crate) fn write_prompt(&self) {
        if !self.write_as_proposer() {
            self.queue.tell();
        }
    }

    /// Writes what is queued, if that can be done at once, and says whether it was.
    fn write_as_proposer(&self) -> bool {
        let began = self.now_ns();
        if began < self.prompt_from_ns.load(Ordering::Relaxed) {
            return false;
        }
        let Some(mut w) = self.write.try_lock() else { return false };
        let Some(bytes) = self.queue.unheld_within(self.config.prompt_bytes_max) else { return false };
        if !self.has_cached_room(&w, bytes) || !self.write_due(&mut w, began, false) {
            return false;
        }
        let committed = self.finish_group(&mut w);
        drop(w);
        self.stats.lock().groups_prompt += 1;
        let now = self.now_ns();
        let took = now.saturating_sub(began);
        if took > self.config.prompt_us_max * NS_PER_US {
            let pause = took.saturating_mul(self.config.prompt_pause_factor);
            self.prompt_from_ns.store(now.saturating_add(pause), Ordering::Relaxed);
        }
        if committed && !self.try_deliver() {
            // The thread that delivers may have looked for the last time.
            self.queue.kick();
        }
        // The threads sleep until the time that they know of.
        if let Some(due) = self.pipeline_due_ns() {
            self.queue.watch(due);
        }
        true
    }

    /// Whether so many bytes of proposals have room in the current file, and that is written through the page cache.
    fn has_cached_room(&self, w: &WriteState, bytes: usize) -> bool {
        let Some(current) = w.current.as_ref().filter(|file| file.mode == WriteMode::Cached && !w.seal) else {
            return false;
        };
        // Frames have headers and are aligned; a generous allowance is enough.
        w.end.position + (bytes + 4 * HEADERS_BYTES) as u64 <= current.capacity
    }
}
