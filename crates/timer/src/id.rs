//! What waits, and until when.

/// The latest deadline; a later one is taken for this. Milliseconds since the Unix epoch, some 280,000 years on.
pub const DEADLINE_MS_MAX: u64 = (1 << 53) - 1;

/// What a timer is for. Part of the disk format; the owner of the timers may have kinds of its own from 64 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kind(pub u8);

impl Kind {
    /// A message becomes deliverable.
    pub const DELIVER: Kind = Kind(1);
    /// A message expires.
    pub const MESSAGE_EXPIRES: Kind = Kind(2);
    /// An unused queue expires.
    pub const QUEUE_EXPIRES: Kind = Kind(3);
    /// A message that failed is tried again.
    pub const RETRY: Kind = Kind(4);
    /// An exchange routes a message that it kept.
    pub const ROUTE: Kind = Kind(5);
    /// The outcome of a transaction is asked for.
    pub const TRANSACTION_CHECK: Kind = Kind(6);
    /// Something happens again and again.
    pub const CRON: Kind = Kind(7);
}

/// What a timer is about, in the numbers of its owner (a partition and an offset, say).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerKey {
    /// The queue, partition or exchange.
    pub object: u64,
    /// What in it.
    pub item: u64,
}

/// A timer. Ordered by deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId {
    /// When it is due: milliseconds since the Unix epoch, at most [`DEADLINE_MS_MAX`].
    pub deadline_ms: u64,
    /// What for.
    pub kind: Kind,
    /// What about.
    pub key: TimerKey,
}

/// A change of the set of pending timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerOp {
    /// It is pending. Nothing changes when it is already.
    Insert(TimerId),
    /// It is not any more: it was carried out, or is void. Nothing changes when it is not there.
    Remove(TimerId),
}

impl TimerOp {
    /// The timer.
    #[must_use]
    pub fn id(self) -> TimerId {
        match self {
            TimerOp::Insert(id) | TimerOp::Remove(id) => id,
        }
    }
}
