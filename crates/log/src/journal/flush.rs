//! The flush role and the deliver role.

use super::inner::{Inner, stopped};
use super::spares::final_error;
use crate::error::Result;

impl Inner {
    /// See [`Journal::flush_step`](super::Journal::flush_step).
    pub(crate) fn flush_step(&self) -> bool {
        let now = self.now_ns();
        let due = self.pipeline.lock().flush_due_ns(&self.config).is_some_and(|due| now >= due);
        let flushed = due && self.flush(false);
        let delivered = self.deliver();
        flushed || delivered
    }

    /// Waits until everything that is written is flushed and delivered.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.flush(true);
        self.deliver();
        if self.env.fatal.is_fatal() { Err(stopped()) } else { Ok(()) }
    }

    /// Takes the flush role and flushes what is written; without `force` only if that is still due once the role is
    /// taken: its holder before may have done it. A little that has come until then is written before, and goes with it.
    fn flush(&self, force: bool) -> bool {
        let _role = self.flush_role.lock();
        if !force {
            self.write_meanwhile();
        }
        let began = self.now_ns();
        let job = {
            let mut pipeline = self.pipeline.lock();
            let due = pipeline.flush_due_ns(&self.config).is_some_and(|due| began >= due);
            if !(force || due) {
                return false;
            }
            let Some(job) = pipeline.take_unflushed() else { return false };
            job
        };
        self.queue.set_flushing(true);
        for file in &job.files {
            if let Err(e) = file.file.sync_data() {
                // It is unknown what is on the disk now, and asking again would not tell.
                let path = file.path.display().to_string();
                self.die(&final_error(&format!("cannot flush {path}"), e), job.groups);
                return true;
            }
        }
        self.queue.set_flushing(false);
        let now = self.now_ns();
        self.stats.lock().flush.took(now.saturating_sub(began));
        self.pipeline.lock().flushed(job, now, &self.config);
        self.finish_releases();
        true
    }

    /// Takes the deliver role and tells the sink, in log order, what is committed.
    pub(crate) fn deliver(&self) -> bool {
        if self.pipeline.lock().ready.is_empty() {
            return false;
        }
        let _role = self.deliver_role.lock();
        self.deliver_ready()
    }

    /// The same, unless another thread has the deliver role; says whether it had it.
    pub(crate) fn try_deliver(&self) -> bool {
        let Some(_role) = self.deliver_role.try_lock() else { return false };
        self.deliver_ready();
        true
    }

    fn deliver_ready(&self) -> bool {
        let mut delivered = false;
        loop {
            let Some(group) = self.pipeline.lock().ready.pop_front() else { return delivered };
            delivered = true;
            if let Some(last) = group.frames.last() {
                self.set_committed(last.index);
            }
            if !(group.frames.is_empty() && group.outcomes.is_empty())
                && let Some(sink) = self.sink.get()
            {
                let began = self.now_ns();
                sink.committed(&group.frames, &group.outcomes);
                self.stats.lock().deliver.took(self.now_ns().saturating_sub(began));
            }
            for flushed in group.flushed {
                flushed(if group.abandoned { Err(stopped()) } else { Ok(()) });
            }
        }
    }

    /// Tells the background step when the `Purged` record of a release has become durable.
    fn finish_releases(&self) {
        let waiting = !self.background.lock().releases.is_empty();
        if waiting {
            self.kick_background();
        }
    }
}
