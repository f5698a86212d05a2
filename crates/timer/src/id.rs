//! Identity, purpose and deadline of a timer.

/// The latest deadline; later ones are clamped to it. Milliseconds since the Unix epoch, some 280,000 years on.
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
    /// A failed message is redelivered.
    pub const RETRY: Kind = Kind(4);
    /// An exchange routes a delayed message.
    pub const ROUTE: Kind = Kind(5);
    /// The outcome of a transaction is queried.
    pub const TRANSACTION_CHECK: Kind = Kind(6);
    /// A periodic event.
    pub const CRON: Kind = Kind(7);
}

/// The subject of a timer, in its owner's ids (for example a partition and an offset).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerKey {
    /// The queue, partition or exchange.
    pub object: u64,
    /// The item in it, such as an offset.
    pub item: u64,
}

/// A timer. Ordered by deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId {
    /// The deadline: milliseconds since the Unix epoch, at most [`DEADLINE_MS_MAX`].
    pub deadline_ms: u64,
    /// The purpose.
    pub kind: Kind,
    /// The subject.
    pub key: TimerKey,
}

/// A change of the set of pending timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerOp {
    /// Makes the timer pending. No effect if it already is.
    Insert(TimerId),
    /// Removes the timer: it was carried out or is void. No effect if it is not pending.
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
