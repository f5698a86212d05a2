//! Disk space: when messages are refused, when publishers are blocked, and the publishes that are held back.
//!
//! ```text
//!   free space   ─────────────────────────────────────────────────────────────────────────▶ 0
//!                                disk_free_limit_bytes        disk_reserve_bytes
//!   alarm        off            │ on                          │ on
//!   publishes    written        │ written, if they come       │ held, up to a bound
//!   appends      written        │ written                     │ refused
//!   the rest     continues      │ continues                   │ continue, from the journals' reserve
//! ```
//!
//! A journal that could not allocate a file also counts as a full disk. Publishers to queues are blocked at the alarm. Messages that they sent before
//! are held here, in order of arrival, until there is space, so that no message that a client has sent is lost.

use crate::broker::{Broker, Inner};
use crate::shard::Shard;
use crate::sink::Origin;
use parking_lot::Mutex;
use polylogue_api::{PublishError, PublishMessage, PublishRequest, Reply, Unavailable};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

/// Memory of held publishes; more are refused. Bytes.
const HELD_BYTES_MAX: usize = 64 << 20;

/// The alarm, and the waker for its changes.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    on: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Alarm {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }
}

/// Publishes that wait for disk space.
#[derive(Debug, Default)]
pub(crate) struct HeldPublishes {
    /// Publishes are held or being retried: new ones wait behind them. Changes under the lock of `queue`.
    any: AtomicBool,
    queue: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    requests: VecDeque<(Origin, PublishRequest)>,
    bytes: usize,
}

fn bytes_of(request: &PublishRequest) -> usize {
    request.messages.iter().map(PublishMessage::weight_bytes).sum()
}

/// Refuses a publish: none of it is written.
pub(crate) fn refuse(origin: Origin, request: &PublishRequest, why: Unavailable) {
    let results = vec![Err(PublishError::Unavailable(why)); request.messages.len()];
    origin.reply(Reply::Publish(results));
}

impl Shard {
    /// Returns whether the shard's journal could not allocate a file.
    pub(crate) fn lacks_room(&self) -> bool {
        self.log.local().is_some_and(|files| files.room().full)
    }
}

impl Broker {
    /// Returns whether appends are refused for lack of disk space.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.inner.disk_full.load(Ordering::Relaxed)
    }

    /// Returns whether publishers to queues are blocked, because the disk is full or nearly full.
    #[must_use]
    pub fn is_disk_alarm(&self) -> bool {
        self.inner.alarm.is_on()
    }

    /// Bytes of the file `RESERVE`, which is kept for starts and deletions on a full disk; 0 while it is released.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        self.inner.reserve.held_bytes()
    }

    /// Free bytes of the data directory's file system at the last check.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes.get()
    }

    /// Memory of messages that wait for disk space, in bytes.
    #[must_use]
    pub fn publishes_held_bytes(&self) -> u64 {
        self.inner.held.queue.lock().bytes as u64
    }

    /// Sets the waker for changes of [`Broker::is_disk_alarm`]; there is one at a time.
    pub fn wake_for_alarm(&self, waker: Waker) {
        *self.inner.alarm.waker.lock() = Some(waker);
    }
}

impl Inner {
    /// Checks the disk, and enters or leaves the states in the diagram above.
    pub(crate) fn check_room(&self) {
        let free = self.env.disk.free_bytes(&self.data.path).ok();
        self.free_bytes.set(free);
        free.into_iter().for_each(|free| self.reserve.look(free));
        // An unknown amount is no reason to refuse: the journal detects a full disk itself.
        let below = |bytes: u64| free.is_some_and(|free| free < bytes);
        let full = below(self.config.disk_reserve_bytes);
        self.disk_full.store(full, Ordering::Relaxed);
        let lacks_room = full || self.all_shards().iter().any(|shard| shard.lacks_room());
        if !lacks_room {
            self.release_held();
        }
        let held = self.held.any.load(Ordering::Acquire);
        let alarm = lacks_room || held || below(self.config.disk_free_limit_bytes);
        self.set_alarm(alarm);
        self.check_backup(alarm);
    }

    fn set_alarm(&self, on: bool) {
        if self.alarm.on.swap(on, Ordering::AcqRel) != on {
            let waker = self.alarm.waker.lock().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Returns whether a publish must wait: there is no space, or others wait.
    pub(crate) fn must_wait(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed) || self.held.any.load(Ordering::Acquire)
    }

    /// Holds a publish until there is space.
    pub(crate) fn hold(&self, origin: Origin, request: PublishRequest) {
        self.hold_at(origin, request, |held, one| held.push_back(one));
    }

    /// Holds the rest of a publish, before all that arrived later.
    pub(crate) fn hold_rest(&self, origin: Origin, request: PublishRequest) {
        self.hold_at(origin, request, |held, one| held.push_front(one));
    }

    fn hold_at(
        &self,
        origin: Origin,
        request: PublishRequest,
        put: impl FnOnce(&mut VecDeque<(Origin, PublishRequest)>, (Origin, PublishRequest)),
    ) {
        let bytes = bytes_of(&request);
        let mut held = self.held.queue.lock();
        let stopping = self.stopping.load(Ordering::Acquire);
        if stopping || held.bytes.saturating_add(bytes) > HELD_BYTES_MAX {
            drop(held);
            let why = if stopping { Unavailable::Stopping } else { Unavailable::StorageFull };
            return refuse(origin, &request, why);
        }
        held.bytes += bytes;
        put(&mut held.requests, (origin, request));
        self.held.any.store(true, Ordering::Release);
        drop(held);
        self.set_alarm(true);
    }

    /// Retries held publishes in order, until one must wait again.
    fn release_held(&self) {
        loop {
            let (origin, request) = {
                let mut held = self.held.queue.lock();
                let Some(next) = held.requests.pop_front() else {
                    self.held.any.store(false, Ordering::Release);
                    return;
                };
                next
            };
            let bytes = bytes_of(&request);
            let back = self.try_publish(origin, request).err();
            let mut held = self.held.queue.lock();
            match back {
                Some(back) => return held.requests.push_front(*back),
                None => held.bytes -= bytes,
            }
        }
    }

    /// Refuses the held publishes when the broker stops.
    pub(crate) fn refuse_held(&self) {
        let held = std::mem::take(&mut *self.held.queue.lock());
        for (origin, request) in held.requests {
            refuse(origin, &request, Unavailable::Stopping);
        }
    }
}
