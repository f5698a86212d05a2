//! Worker threads for turns of connections that are too long for an I/O thread: decompression and compression, routing through many
//! bindings, long lists.
//!
//! ```text
//!   connection's task ──run(owner, job)──▶ queue of the owner ──▶ worker thread ──▶ connection's task continues
//!                                          the owner who has used the least processor time is next
//! ```
//!
//! There are as many threads as processors less one, at least one, below normal priority: long work gets what is left. A connection has
//! one job at a time, and its next one is queued after those of its user's other connections. Users take turns by the processor time
//! of their jobs, by the thread's clock; idle users accumulate no credit. So the queue is bounded by the number of connections, and a user with
//! much long work waits for all users with less. At most [`IDLE_USERS_MAX`] users without a job are remembered.

use parking_lot::{Condvar, Mutex};
use polylogue_env::{Clock, Env, JoinTask};
use polylogue_types::Map;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::time::Instant;

/// A job of a worker.
struct Job {
    kind: &'static str,
    run: Box<dyn FnOnce() + Send>,
}

/// Label: the kind of work. Values are constants of the code, so that clients cannot make them many.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// The maximum number of users without a job whose processor time is remembered; beyond it all are dropped.
const IDLE_USERS_MAX: usize = 4_096;

/// Number of processors not used by workers.
const LEFT_PROCESSORS: usize = 1;

/// Kinds of work whose metrics are initialized at the start.
const KINDS_SHOWN: [&str; 5] = ["Produce", "SaslAuthenticate", "fan-out", "policies", "routing"];

/// The owner of work: a user, or the address of a client that has not logged in.
pub type WorkOwner = Arc<str>;

/// Jobs of one user, oldest first.
#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Processor time used by the user, starting at the floor when the user's first job was queued. Nanoseconds.
    taken_ns: u64,
}

#[derive(Default)]
struct Queue {
    /// Users with queued or finished jobs.
    users: Map<WorkOwner, Waiting>,
    /// Number of running jobs by user.
    running: Map<WorkOwner, usize>,
    /// The `taken_ns` of the user whose job was started last; new users start there.
    floor_ns: u64,
    /// Number of finished jobs.
    finished: usize,
    is_stopped: bool,
}

impl Queue {
    fn push(&mut self, owner: WorkOwner, job: Job) {
        let floor_ns = self.floor_ns;
        let is_running = self.running.contains_key(&owner);
        let waiting = self.users.entry(owner).or_default();
        if waiting.jobs.is_empty() && !is_running {
            waiting.taken_ns = waiting.taken_ns.max(floor_ns);
        }
        waiting.jobs.push_back(job);
    }

    /// Returns the next job and its owner.
    fn pop(&mut self) -> Option<(WorkOwner, Job)> {
        let ready = self.users.iter().filter(|(_, waiting)| !waiting.jobs.is_empty());
        let owner = ready.min_by_key(|(owner, waiting)| (waiting.taken_ns, *owner)).map(|(owner, _)| owner.clone())?;
        let waiting = self.users.get_mut(&owner)?;
        let job = waiting.jobs.pop_front()?;
        self.floor_ns = self.floor_ns.max(waiting.taken_ns);
        *self.running.entry(owner.clone()).or_default() += 1;
        Some((owner, job))
    }

    /// Charges a finished job.
    fn done(&mut self, owner: &WorkOwner, ns: u64) {
        let still_running = self.running.get_mut(owner).map_or(0, |running| {
            *running -= 1;
            *running
        });
        if still_running == 0 {
            self.running.remove(owner);
        }
        let Some(waiting) = self.users.get_mut(owner) else { return };
        waiting.taken_ns = waiting.taken_ns.saturating_add(ns);
        self.finished += 1;
        if self.finished.is_multiple_of(IDLE_USERS_MAX) {
            self.forget();
        }
    }

    /// Drops users without a job: those that all others have caught up with, and all if there are too many. Under an attack, with jobs at any
    /// time, every name that logs in would stay otherwise.
    fn forget(&mut self) {
        let (floor_ns, running) = (self.floor_ns, &self.running);
        let is_idle = |owner: &WorkOwner, waiting: &Waiting| waiting.jobs.is_empty() && !running.contains_key(owner);
        self.users.retain(|owner, waiting| !is_idle(owner, waiting) || waiting.taken_ns > floor_ns);
        if self.users.len() > IDLE_USERS_MAX {
            self.users.retain(|owner, waiting| !is_idle(owner, waiting));
        }
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.users.values().all(|waiting| waiting.jobs.is_empty())
    }
}

struct Inner {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    changed: Condvar,
    jobs: Counter,
    waiting: Gauge,
    busy_seconds: Counter<f64, AtomicU64>,
    seconds_max: Gauge<f64, AtomicU64>,
    cpu_seconds: Family<KindLabel, Counter<f64, AtomicU64>>,
    cpu_seconds_max: Family<KindLabel, Gauge<f64, AtomicU64>>,
}

/// The queue of the worker threads.
#[derive(Clone)]
pub struct WorkerQueue(Arc<Inner>);

impl std::fmt::Debug for WorkerQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerQueue").finish_non_exhaustive()
    }
}

/// The worker threads.
pub struct Workers {
    inner: Arc<Inner>,
    threads: Mutex<Vec<Box<dyn JoinTask>>>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

/// Returns the number of worker threads for a number of processors.
#[must_use]
pub fn threads_of(processors: usize) -> usize {
    processors.saturating_sub(LEFT_PROCESSORS).max(1)
}

impl WorkerQueue {
    /// Runs `job` on a worker for `owner`, and returns its result. Its processor time is counted by `kind`. After the workers were
    /// stopped it runs on the caller's thread.
    pub async fn run<T: Send + 'static>(
        &self,
        owner: WorkOwner,
        kind: &'static str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (give, get) = tokio::sync::oneshot::channel();
        let run = Box::new(move || {
            // The receiver is dropped if the runtime has ended.
            let _ = give.send(job());
        });
        let job = Job { kind, run };
        {
            let mut queue = self.0.queue.lock();
            if queue.is_stopped {
                drop(queue);
                (job.run)();
            } else {
                queue.push(owner, job);
                self.0.waiting.inc();
                self.0.changed.notify_one();
            }
        }
        match get.await {
            Ok(done) => done,
            // The server has stopped, and this task ends with its runtime.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be created.
    pub fn start(env: &Env, threads: usize) -> std::io::Result<Workers> {
        let inner = Inner {
            clock: env.clock.clone(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            jobs: Counter::default(),
            waiting: Gauge::default(),
            busy_seconds: Counter::default(),
            seconds_max: Gauge::default(),
            cpu_seconds: Family::default(),
            cpu_seconds_max: Family::default(),
        };
        let workers = Workers { inner: Arc::new(inner), threads: Mutex::default() };
        for at in 0..threads {
            let inner = workers.inner.clone();
            let thread = env.tasks.spawn_behind(&format!("pl-long-{at}"), Box::new(move || inner.work()))?;
            workers.threads.lock().push(thread);
        }
        Ok(workers)
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.inner;
        registry.register("long_turns", "Turns of connections that worker threads took", inner.jobs.clone());
        registry.register(
            "long_turns_waiting",
            "Turns of connections that wait for a worker thread",
            inner.waiting.clone(),
        );
        registry.register(
            "long_turns_busy_seconds",
            "Time that worker threads have spent on turns of connections",
            inner.busy_seconds.clone(),
        );
        registry.register(
            "long_turn_max_seconds",
            "The longest turn of a connection on a worker thread since the start",
            inner.seconds_max.clone(),
        );
        for kind in KINDS_SHOWN {
            drop(inner.cpu_seconds.get_or_create(&KindLabel { kind }));
            drop(inner.cpu_seconds_max.get_or_create(&KindLabel { kind }));
        }
        registry.register(
            "long_turns_cpu_seconds",
            "Processor time of turns of connections on worker threads, by what they do: a Kafka API, or what AMQP goes on with",
            inner.cpu_seconds.clone(),
        );
        registry.register(
            "long_turn_cpu_max_seconds",
            "The most processor time that a turn of a connection on a worker thread has taken since the start, by what it does",
            inner.cpu_seconds_max.clone(),
        );
    }

    /// Returns the queue.
    #[must_use]
    pub fn queue(&self) -> WorkerQueue {
        WorkerQueue(self.inner.clone())
    }

    /// See [`WorkerQueue::run`].
    pub async fn run<T: Send + 'static>(
        &self,
        owner: WorkOwner,
        kind: &'static str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.queue().run(owner, kind, job).await
    }

    /// Number of running turns.
    #[cfg(test)]
    pub(super) fn running(&self) -> usize {
        self.inner.queue.lock().running.values().sum()
    }

    /// Stops the threads after their current turns. Connections with queued turns are dropped.
    pub fn stop(&self) {
        let mut queue = self.inner.queue.lock();
        queue.is_stopped = true;
        let waiting = std::mem::take(&mut queue.users);
        drop(queue);
        drop(waiting);
        self.inner.changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // The last holder may be a job, which cannot join its own thread.
        self.inner.queue.lock().is_stopped = true;
        self.inner.changed.notify_all();
    }
}

impl Inner {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            let Some((owner, job)) = queue.pop() else {
                if queue.is_stopped {
                    return;
                }
                if queue.is_idle() {
                    queue.forget();
                }
                self.changed.wait(&mut queue);
                continue;
            };
            drop(queue);
            self.waiting.dec();
            let (began, cpu_before_ns) = (Instant::now(), self.clock.thread_cpu_ns());
            (job.run)();
            let cpu_ns = self.clock.thread_cpu_ns().saturating_sub(cpu_before_ns);
            self.count(job.kind, began.elapsed(), Duration::from_nanos(cpu_ns));
            queue = self.queue.lock();
            queue.done(&owner, cpu_ns);
        }
    }

    fn count(&self, kind: &'static str, took: Duration, cpu: Duration) {
        let raise = |longest: &Gauge<f64, AtomicU64>, seconds: f64| {
            if seconds > longest.get() {
                longest.set(seconds);
            }
        };
        self.jobs.inc();
        self.busy_seconds.inc_by(took.as_secs_f64());
        raise(&self.seconds_max, took.as_secs_f64());
        let label = KindLabel { kind };
        self.cpu_seconds.get_or_create(&label).inc_by(cpu.as_secs_f64());
        raise(&self.cpu_seconds_max.get_or_create(&label), cpu.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs all jobs, each taking `ns`; returns their owners in order.
    fn order(queue: &mut Queue, ns: u64) -> Vec<String> {
        let mut order = Vec::new();
        while let Some((owner, job)) = queue.pop() {
            (job.run)();
            queue.done(&owner, ns);
            order.push(owner.to_string());
        }
        order
    }

    fn push(queue: &mut Queue, owner: &str, count: usize) {
        (0..count).for_each(|_| queue.push(owner.into(), Job { kind: "test", run: Box::new(|| {}) }));
    }

    #[test]
    fn one_users_many_jobs_do_not_hold_up_another_user() {
        let mut queue = Queue::default();
        push(&mut queue, "attacker", 100);
        push(&mut queue, "victim", 3);
        let order = order(&mut queue, 10);
        let last = order.iter().rposition(|user| user == "victim").unwrap();
        assert!(last <= 5, "{order:?}");
        assert_eq!(order.len(), 103);
    }

    #[test]
    fn an_idle_user_saves_nothing_up() {
        let mut queue = Queue::default();
        push(&mut queue, "busy", 50);
        order(&mut queue, 10);
        push(&mut queue, "busy", 4);
        push(&mut queue, "late", 4);
        let order = order(&mut queue, 10);
        assert_eq!(order[..2].iter().filter(|user| *user == "late").count(), 1, "{order:?}");
        queue.forget();
        assert!(queue.users.len() <= 1, "users are dropped");
    }

    /// Regression test: users without a job were dropped only when there was no job at all, which an attacker can prevent.
    #[test]
    fn users_are_forgotten_while_others_are_busy() {
        let mut queue = Queue::default();
        push(&mut queue, "busy", 1);
        for at in 0..5 * IDLE_USERS_MAX {
            push(&mut queue, &at.to_string(), 1);
            let (owner, _) = queue.pop().unwrap();
            push(&mut queue, "busy", 1);
            queue.done(&owner, 10);
        }
        assert!(queue.users.len() <= 2 * IDLE_USERS_MAX + 1, "{} users", queue.users.len());
    }

    #[tokio::test]
    async fn jobs_run_on_a_worker_or_here_once_that_has_stopped() {
        let workers = Workers::start(&Env::real(), 1).unwrap();
        let here = std::thread::current().id();
        assert_ne!(workers.run("a".into(), "test", || std::thread::current().id()).await, here);
        workers.stop();
        assert_eq!(workers.run("a".into(), "test", || std::thread::current().id()).await, here);
    }

    /// Regression test: wall time was charged, so that a thread that was preempted or waiting seemed to have worked.
    #[tokio::test]
    async fn processor_time_counts_by_kind_and_waiting_does_not() {
        const BUSY_NS: u64 = 5_000_000;
        let env = Env::real();
        let workers = Workers::start(&env, 1).unwrap();
        let clock = env.clock.clone();
        let busy = move || {
            let began_ns = clock.thread_cpu_ns();
            while clock.thread_cpu_ns() - began_ns < BUSY_NS {}
        };
        for _ in 0..2 {
            workers.run("busy".into(), "busy", busy.clone()).await;
        }
        let clock = env.clock.clone();
        let waits = move || {
            let (_give, get) = std::sync::mpsc::channel::<()>();
            let began_ns = clock.monotonic_ns();
            while clock.monotonic_ns() - began_ns < 4 * BUSY_NS {
                let _ = get.recv_timeout(Duration::from_nanos(BUSY_NS));
            }
        };
        workers.run("waits".into(), "waits", waits).await;
        // A job is counted after it has answered.
        workers.stop();
        let counted = |kind| {
            let (label, inner) = (KindLabel { kind }, &workers.inner);
            let sum = inner.cpu_seconds.get_or_create(&label).get();
            (sum, inner.cpu_seconds_max.get_or_create(&label).get())
        };
        let (busy, waits) = (counted("busy"), counted("waits"));
        let least = Duration::from_nanos(BUSY_NS).as_secs_f64();
        assert!(busy.1 >= least && busy.0 >= 2.0 * least && busy.0 <= 2.0 * busy.1, "{busy:?}");
        assert!(waits.0 < 4.0 * least, "{waits:?}");
    }
}
