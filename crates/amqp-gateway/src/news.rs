//! What the chores of the server have not heard yet of what happened to queues and exchanges.

use parking_lot::Mutex;
use polylogue_router::{Exchange, ExchangeId, QueueId};
use std::sync::Arc;
use std::task::Waker;

/// What came since whoever listens looked last, and how to wake him.
#[derive(Debug, Default)]
pub struct News<T>(Mutex<(T, Option<Waker>)>);

impl<T: Default> News<T> {
    /// Who is woken when there are some.
    pub fn wake(&self, waker: Waker) {
        self.0.lock().1 = Some(waker);
    }

    /// What came since the last call.
    pub(crate) fn take(&self) -> T {
        std::mem::take(&mut self.0.lock().0)
    }

    /// There are some.
    pub(crate) fn tell(&self, tell: impl FnOnce(&mut T)) {
        let mut news = self.0.lock();
        tell(&mut news.0);
        let waker = news.1.clone();
        drop(news);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What [`crate::FromTopics`] hears.
#[derive(Clone, Debug)]
pub enum ExchangeNews {
    /// An exchange that names a topic is there, and so far was read of it: partitions, and the offset that comes next.
    Declared(Arc<Exchange>, Vec<(u64, u64)>),
    /// It is noted where reading begins for an exchange.
    Begun(ExchangeId, Vec<(u64, u64)>),
    /// An exchange is gone.
    Deleted(ExchangeId),
}

/// What [`crate::IdleQueues`] hears.
#[derive(Debug, Default)]
pub struct IdleNews {
    /// Queues for which another `expires` may hold than before.
    pub(crate) changed: Vec<QueueId>,
    /// Queues whose consumers left with their connection, perhaps the last ones.
    pub(crate) left: Vec<QueueId>,
}
