//! What is known of messages: what became of them, and what they are.

use std::ops::Range;

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
    /// Whose publishers do not want them kept over a restart.
    pub(crate) transient: Transient,
}

/// Which messages are transient: bit `n` is of those whose offset is `n` modulo [`Transient::PERIOD`]. Of most runs all bits are the same; they
/// differ where sizes of neighbours of different persistence were averaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Transient(u32);

impl Transient {
    pub(crate) const PERIOD: u64 = 32;
    pub(crate) const ALL: Transient = Transient(u32::MAX);

    /// Of messages that are all transient, or none of them.
    pub(crate) fn of(transient: bool) -> Transient {
        if transient { Transient::ALL } else { Transient::default() }
    }

    /// Whether some of the messages are and others are not.
    pub(crate) fn is_mixed(self) -> bool {
        self != Transient::ALL && self != Transient::default()
    }

    /// Whether a message is, and up to where (at most `limit`) the following ones are the same.
    pub(crate) fn run(self, at: u64, limit: u64) -> (u64, bool) {
        let bits = self.0.rotate_right((at % Transient::PERIOD) as u32);
        let is = bits & 1 == 1;
        if !self.is_mixed() {
            return (limit, is);
        }
        let same = if is { bits.trailing_ones() } else { bits.trailing_zeros() };
        (limit.min(at.saturating_add(u64::from(same))), is)
    }

    /// From where on (not before `limit`) messages up to this one are as it is.
    pub(crate) fn start(self, at: u64, limit: u64) -> u64 {
        if !self.is_mixed() {
            return limit;
        }
        let bits = self.0.rotate_left((Transient::PERIOD - 1 - at % Transient::PERIOD) as u32);
        let same = if bits >> 31 == 1 { bits.leading_ones() } else { bits.leading_zeros() };
        limit.max((at + 1).saturating_sub(u64::from(same)))
    }

    /// How many messages of a range are.
    pub(crate) fn count(self, range: &Range<u64>) -> u64 {
        let before = |end: u64| {
            let rest = self.0 & ((1u64 << (end % Transient::PERIOD)) - 1) as u32;
            end / Transient::PERIOD * u64::from(self.0.count_ones()) + u64::from(rest.count_ones())
        };
        match self {
            Transient(0) => 0,
            Transient::ALL => range.end - range.start,
            _ => before(range.end) - before(range.start),
        }
    }

    /// With the messages of a range, which lies within one period, as another says.
    pub(crate) fn with(self, range: &Range<u64>, other: Transient) -> Transient {
        let mask = range.clone().fold(0, |mask, at| mask | 1 << (at % Transient::PERIOD));
        Transient(self.0 & !mask | other.0 & mask)
    }

    /// The periods from an offset on, which is where one begins.
    pub(crate) fn periods(from: u64) -> impl Iterator<Item = Range<u64>> {
        (from..).step_by(Transient::PERIOD as usize).map(|start| start..start + Transient::PERIOD)
    }

    /// Where the period begins that an offset is in.
    pub(crate) fn period_of(at: u64) -> u64 {
        at / Transient::PERIOD * Transient::PERIOD
    }
}

impl Class {
    /// The stored bytes of so many messages. What a damaged checkpoint says of them may be more than can be counted.
    pub(crate) fn weigh(&self, count: u64) -> u64 {
        u64::from(self.bytes).wrapping_mul(count)
    }

    /// The bytes of a message's body.
    pub(crate) fn body(&self) -> u64 {
        u64::from(self.bytes.saturating_sub(self.extra))
    }

    /// What messages count.
    pub(crate) fn size(&self, range: &Range<u64>) -> Size {
        let (body, transient) = (self.body(), self.transient.count(range));
        Size {
            bytes: body.wrapping_mul(range.end - range.start),
            transient,
            transient_bytes: body.wrapping_mul(transient),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn transient_messages_are_counted_as_one_by_one(bits in prop_oneof![any::<u32>(), Just(0), Just(u32::MAX)], start in 0_u64..200, len in 0_u64..200) {
            let transient = Transient(bits);
            let is = |at: u64| bits >> (at % Transient::PERIOD) & 1 == 1;
            let range = start..start + len;
            prop_assert_eq!(transient.count(&range), range.clone().filter(|at| is(*at)).count() as u64);
            let mut at = range.start;
            while at < range.end {
                let (end, one) = transient.run(at, range.end);
                prop_assert!(at < end && end <= range.end && (at..end).all(|at| is(at) == one));
                prop_assert!(end == range.end || is(end) != one);
                let first = if transient.is_mixed() { at } else { range.start };
                prop_assert!((at..end).all(|inside| transient.start(inside, range.start) == first));
                at = end;
            }
        }
    }
}
