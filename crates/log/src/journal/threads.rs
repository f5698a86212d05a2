//! The journal's threads, and how it ends.

use super::inner::{Inner, stopped};
use super::pipeline::Demand;
use super::queue::Wake;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Two threads take turns at the roles: with one, the disk would be idle while a group is prepared; a third one would have
/// nothing to do.
pub(crate) const WRITERS: usize = 2;

impl Inner {
    /// See [`Journal::run_threads`](super::Journal::run_threads).
    pub(crate) fn run_threads(self: &Arc<Inner>) -> Result<()> {
        let shard = self.config.identity.shard;
        let mut threads = self.threads.lock();
        for i in 0..WRITERS {
            let inner = self.clone();
            let body = Box::new(move || inner.write_loop());
            let started = self.env.tasks.spawn(&format!("journal-{shard}-{i}"), body);
            threads.push(started.map_err(|e| Error::io("cannot start the journal", e))?);
        }
        let inner = self.clone();
        let body = Box::new(move || inner.background_loop());
        let started = self.env.tasks.spawn_behind(&format!("journal-{shard}-b"), body);
        threads.push(started.map_err(|e| Error::io("cannot start the journal", e))?);
        Ok(())
    }

    fn write_loop(&self) {
        let deadline = || self.pipeline_due_ns();
        while self.queue.wait(&*self.env.clock, &self.config, deadline) == Wake::Work {
            self.write_step();
            self.flush_step();
        }
        self.last_step();
    }

    /// What was queued when the journal ended gets its outcome.
    fn last_step(&self) {
        let mut w = self.write.lock();
        self.end_term(&mut w);
        w.group.demand = Demand::Now;
        self.finish_group(&mut w);
        drop(w);
        self.flush_step();
    }

    /// When a flush or a mark is due.
    pub(crate) fn pipeline_due_ns(&self) -> Option<u64> {
        let pipeline = self.pipeline.lock();
        let flush = pipeline.flush_due_ns(&self.config);
        [flush, pipeline.mark_due_ns].into_iter().flatten().min()
    }

    /// See [`Journal::next_deadline_ns`](super::Journal::next_deadline_ns).
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        [self.queue.due_ns(&self.config), self.pipeline_due_ns()].into_iter().flatten().min()
    }

    fn background_loop(&self) {
        loop {
            self.background_step();
            let now = self.now_ns();
            let mut background = self.background.lock();
            if background.stop || self.queue.is_stopped() {
                return;
            }
            let due = if background.piece_due_ns > now {
                background.piece_due_ns.min(background.poll_due_ns)
            } else {
                background.poll_due_ns
            };
            if due > now {
                self.background_work.wait_for(&mut background, Duration::from_nanos(due - now));
            }
        }
    }

    /// Ends the threads without waiting for them.
    pub(crate) fn stop_threads(&self) {
        self.queue.stop();
        self.background.lock().stop = true;
        self.background_work.notify_all();
    }

    /// See [`Journal::shutdown`](super::Journal::shutdown).
    pub(crate) fn shutdown(&self) -> Result<()> {
        self.check_running()?;
        self.stop_threads();
        {
            let mut w = self.write.lock();
            self.end_term(&mut w);
            w.group.demand = Demand::Now;
            self.finish_group(&mut w);
        }
        let mut flushed = self.flush_all();
        if flushed.is_ok() {
            let mut w = self.write.lock();
            // Without a mark the next start copies the last group; that is all that a failure costs here.
            let marked = self.write_mark(&mut w);
            self.finish_group(&mut w);
            drop(w);
            flushed = match marked {
                Ok(()) => self.flush_all(),
                Err(_) => Ok(()),
            };
        }
        self.queue.room.current.store(0, Ordering::Relaxed);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            thread.join();
        }
        if self.env.fatal.is_fatal() { Err(stopped()) } else { flushed }
    }
}
