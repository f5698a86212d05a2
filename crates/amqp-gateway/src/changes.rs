//! Changes of queues and exchanges that background tasks of the server have not processed yet.

use parking_lot::Mutex;
use polylogue_router::{Exchange, ExchangeId, QueueId};
use std::sync::Arc;
use std::task::Waker;

/// The changes since the listener's last read, and its waker.
#[derive(Debug, Default)]
pub struct PendingChanges<T>(Mutex<(T, Option<Waker>)>);

impl<T: Default> PendingChanges<T> {
    /// Sets the waker that is called on changes.
    pub fn wake(&self, waker: Waker) {
        self.0.lock().1 = Some(waker);
    }

    /// Returns the changes since the last call.
    pub(crate) fn take(&self) -> T {
        std::mem::take(&mut self.0.lock().0)
    }

    /// Records a change and wakes the listener.
    pub(crate) fn update(&self, update: impl FnOnce(&mut T)) {
        let mut changes = self.0.lock();
        update(&mut changes.0);
        let waker = changes.1.clone();
        drop(changes);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A change for [`crate::FromTopics`].
#[derive(Clone, Debug)]
pub enum ExchangeChange {
    /// An exchange that names a topic was declared, with its recorded positions: partitions, and the next offset of each.
    Declared(Arc<Exchange>, Vec<(u64, u64)>),
    /// The start positions of an exchange were recorded.
    Begun(ExchangeId, Vec<(u64, u64)>),
    /// An exchange was deleted.
    Deleted(ExchangeId),
}

/// Changes for [`crate::IdleQueues`].
#[derive(Debug, Default)]
pub struct IdleChanges {
    /// Queues whose `expires` may have changed.
    pub(crate) changed: Vec<QueueId>,
    /// Queues that lost consumers with a connection, possibly the last ones.
    pub(crate) left: Vec<QueueId>,
}
