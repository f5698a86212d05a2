//! Threads that read uncached data from disk, so that network and journal threads never block on it.

use parking_lot::{Condvar, Mutex};
use polylogue_env::{Env, JoinTask};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Reads queued for a thread; beyond it the caller runs the read itself or retries. A session has at most one read in progress, and one response
/// whose bytes are fetched, so this bounds the sessions that read cold data concurrently.
pub(crate) const READS_WAITING_MAX: usize = 16_384;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// A small pool. Without threads (in the simulator) the owner steps it.
#[derive(Default)]
pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Box<dyn JoinTask>>>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Readers {
    /// Starts the threads.
    pub(crate) fn start(&self, env: &Env, count: usize) -> std::io::Result<()> {
        for i in 0..count.max(1) {
            let shared = self.shared.clone();
            let thread = env.tasks.spawn(&format!("pl-read-{i}"), Box::new(move || shared.run()))?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Queues a job; returns it if the queue is full.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.shared.queue.lock();
        if queue.stopped || queue.jobs.len() >= READS_WAITING_MAX {
            return Err(job);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Number of queued jobs.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }

    /// Runs one queued job on the caller's thread.
    pub(crate) fn step(&self) -> bool {
        let job = self.shared.queue.lock().jobs.pop_front();
        job.map(|job| job()).is_some()
    }

    /// Stops the threads; queued jobs are dropped.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut queue = self.shared.queue.lock();
            queue.stopped = true;
            std::mem::take(&mut queue.jobs)
        };
        self.shared.wake.notify_all();
        // A job's drop may notify its caller: not under the lock.
        drop(waiting);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let job = {
                let mut queue = self.queue.lock();
                loop {
                    if queue.stopped {
                        return;
                    }
                    match queue.jobs.pop_front() {
                        Some(job) => break job,
                        None => self.wake.wait(&mut queue),
                    }
                }
            };
            job();
        }
    }
}
