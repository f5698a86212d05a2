//! What is known of messages: what became of them, and what they are.

/// The highest offset after a message: Kafka shows offsets as `i64`.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// Why a message is dead. The words are those of AMQP's `x-death`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// A consumer refused it for good.
    Rejected = 2,
    /// It failed too often.
    DeliveryLimit = 3,
    /// Its time was over.
    Expired = 4,
    /// Too much was waiting.
    MaxLength = 5,
}

impl Reason {
    /// Its name in `x-death`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::DeliveryLimit => "delivery_limit",
            Reason::Expired => "expired",
            Reason::MaxLength => "maxlen",
        }
    }
}

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is to be handed out.
    Open,
    /// It is done with.
    Settled,
    /// It is to be moved to where dead messages go, and then settled.
    Dead(Reason),
}

/// How often a message was handed out in vain. Counts stop at their limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Times that it came back, for whatever reason (`x-acquired-count`, Pulsar's redelivery count).
    pub returned: u16,
    /// Times that count against the limit (`x-delivery-count`).
    pub failed: u16,
}

/// The time of messages that are parked: they wait until a command says that their time has come.
pub(crate) const PARKED_MS: u64 = u64::MAX;

/// What a message has behind it. Of most messages there is nothing to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// It is not handed out before. Milliseconds, 0 for none, [`PARKED_MS`] where the index of times knows when.
    pub(crate) not_before_ms: u64,
    pub(crate) tally: Tally,
    pub(crate) fate: Fate,
    /// It was handed out, and has not come back since: coming back is in the tally. Of open messages only.
    pub(crate) handed: bool,
}

impl Mark {
    /// Of a message of which there is nothing to say.
    pub(crate) const OPEN: Mark =
        Mark { not_before_ms: 0, tally: Tally { returned: 0, failed: 0 }, fate: Fate::Open, handed: false };
    /// Of one that is done with.
    pub(crate) const SETTLED: Mark = Mark { fate: Fate::Settled, ..Mark::OPEN };

    /// Whether the index of times knows how long it waits.
    pub(crate) fn is_parked(&self) -> bool {
        self.fate == Fate::Open && self.not_before_ms == PARKED_MS
    }

    /// That of the message after it came back.
    pub(crate) fn returned(self, counts: bool) -> Mark {
        let Tally { returned, failed } = self.tally;
        let tally = Tally { returned: returned.saturating_add(1), failed: failed.saturating_add(u16::from(counts)) };
        Mark { tally, ..Mark::OPEN }
    }

    /// That of the message after it was handed out for the first time. The time that it waited for has passed.
    pub(crate) fn handed(self) -> Mark {
        Mark { handed: true, not_before_ms: 0, ..self }
    }
}

/// What a message is, as far as it matters to the order and the limits. Set at append.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Class {
    /// It expires then. Milliseconds, 0 for never.
    pub(crate) expires_at_ms: u64,
    /// Its size as it is stored; 0 where bytes are not counted.
    pub(crate) bytes: u32,
    /// Of these what is not its body.
    pub(crate) extra: u32,
    /// How many messages its entry has; 0 where it is not known or does not matter. A run of a class starts where an entry starts.
    pub(crate) entry: u16,
    pub(crate) priority: u8,
    /// The bits of the grain that `expires_at_ms` was rounded up to, where that is coarse; else 0.
    pub(crate) coarse: u8,
    /// Its publisher does not want it kept over a restart.
    pub(crate) transient: bool,
}

impl Class {
    /// The stored bytes of so many messages. What a damaged checkpoint says of them may be more than can be counted.
    pub(crate) fn weigh(&self, count: u64) -> u64 {
        u64::from(self.bytes).wrapping_mul(count)
    }

    /// What so many messages count.
    pub(crate) fn size(&self, count: u64) -> Size {
        let bytes = u64::from(self.bytes.saturating_sub(self.extra)).wrapping_mul(count);
        let (transient, transient_bytes) = if self.transient { (count, bytes) } else { (0, 0) };
        Size { bytes, transient, transient_bytes }
    }
}

/// What messages count together, where bytes are counted. A damaged checkpoint may say more than can be counted: sums wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Size {
    /// Bytes of bodies.
    pub bytes: u64,
    /// Messages whose publishers do not want them kept over a restart.
    pub transient: u64,
    /// Bytes of their bodies.
    pub transient_bytes: u64,
}

impl Size {
    fn with(self, other: Size, sum: impl Fn(u64, u64) -> u64) -> Size {
        Size {
            bytes: sum(self.bytes, other.bytes),
            transient: sum(self.transient, other.transient),
            transient_bytes: sum(self.transient_bytes, other.transient_bytes),
        }
    }
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        *self = self.with(other, u64::wrapping_add);
    }
}

impl std::ops::SubAssign for Size {
    fn sub_assign(&mut self, other: Size) {
        *self = self.with(other, u64::wrapping_sub);
    }
}

/// An entry, as its envelope describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The offset of its first message.
    pub first_offset: u64,
    /// How many messages it has: 1 or more.
    pub count: u32,
    /// The size of all of them as they are stored: what windows of consumers count. Bytes.
    pub bytes: u64,
    /// Of these what is not their bodies: limits and counts of the queue leave it out. Bytes.
    pub extra_bytes: u64,
    /// Their publisher does not want them kept over a restart. They are nevertheless; they are counted.
    pub transient: bool,
    /// Higher ones are handed out first.
    pub priority: u8,
    /// The hash of its key, in the subscription's own hash space.
    pub key_hash: Option<u32>,
    /// When it expires. Milliseconds.
    pub expires_at_ms: Option<u64>,
    /// It is not delivered before. Milliseconds.
    pub deliver_at_ms: Option<u64>,
    /// When it was recorded; 0 where that is not known. Milliseconds.
    pub time_ms: u64,
    /// With a time of delivery: the host keeps that time, and says when it has come ([`crate::Queue::unpark`]). Neighbours that are parked
    /// cost memory once, whatever their times. Not for what is handed out ahead of its commit.
    pub parked: bool,
}

impl Entry {
    /// An entry of so many messages without anything special.
    #[must_use]
    pub fn plain(first_offset: u64, count: u32) -> Entry {
        Entry { first_offset, count, ..Entry::default() }
    }

    /// The offset after its last message.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first_offset.saturating_add(u64::from(self.count))
    }
}
