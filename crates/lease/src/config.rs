//! Settings of a queue, chosen by its protocol.

use crate::mark::Tally;
use polylogue_types::{Backoff, Retry};

/// Which consumers receive messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// All consumers with credit.
    #[default]
    Competing,
    /// One at a time: that of the highest priority, of several the one of the lowest rank, of several the first.
    SingleActive {
        /// A better one takes over at once (Pulsar's Failover, quorum queues); else when the active one goes.
        preempts: bool,
    },
    /// A second consumer is refused.
    Exclusive,
}

/// The delay of a requeued message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delay {
    /// None.
    None,
    /// As [`Config::retry`] says.
    #[default]
    Usual,
    /// Until then. Milliseconds.
    Until(u64),
    /// So long. Milliseconds.
    For(u64),
    /// Longer with each return.
    Backoff(Backoff),
}

impl Delay {
    /// When a message that comes back now, and `failed` by it or not, may be handed out, with what it has behind it by then. At or before now:
    /// at once.
    pub(crate) fn until_ms(self, usual: Option<Retry>, now_ms: u64, failed: bool, tally: Tally) -> u64 {
        let wait = match self {
            Delay::None => 0,
            Delay::Usual => usual.map_or(0, |retry| retry.delay_ms(failed, u32::from(tally.failed))),
            Delay::Until(until_ms) => return until_ms,
            Delay::For(ms) => ms,
            Delay::Backoff(backoff) => backoff.delay_ms(u32::from(tally.returned)),
        };
        now_ms.saturating_add(wait)
    }
}

/// How messages are requeued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Return {
    /// It counts as a failure.
    pub counts: bool,
    /// How long they wait.
    pub delay: Delay,
    /// No consumer has seen them: their tally does not change.
    pub unseen: bool,
}

/// What a queue does. Shared by the queues of one kind; limits may be changed by [`crate::Queue::configure`], what is said to be fixed
/// may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Which consumers receive messages. Fixed.
    pub mode: Mode,
    /// Messages of one key go to one consumer at a time, in their order; priorities of messages do not matter then. Fixed.
    pub key_order: bool,
    /// An entry is handed out whole: what is ready of it, to one consumer, whatever its credit. One of more than 65,535 messages may be
    /// handed out in parts. Fixed.
    pub whole_entries: bool,
    /// Bytes are counted, for credit and limits by bytes. Fixed.
    pub track_bytes: bool,
    /// After a crash it is known which messages had been handed out (AMQP's `redelivered`).
    pub mark_handed: bool,
    /// Dead messages are kept until they are said to be moved; else they are settled at once.
    pub dead_letter: bool,
    /// A message with so many failures is dead.
    pub failures_max: Option<u16>,
    /// Whatever comes back counts against that, not only failures.
    pub returns_count: bool,
    /// Two levels of priority: this one and lower ones, and higher ones. Of three messages two are of the higher level, as long as there are
    /// both and those of the lower one are older. `None`: each priority is a level, and higher ones go first. Fixed.
    pub low_priority_max: Option<u8>,
    /// How long returned messages wait by default ([`Delay::Usual`]).
    pub retry: Option<Retry>,
    /// Messages held by all consumers together, at the most.
    pub held_max: Option<u64>,
    /// Messages that are ready, at the most; more drop the next one to be handed out.
    pub length_max: Option<u64>,
    /// Bytes of bodies that are ready, at the most.
    pub bytes_max: Option<u64>,
    /// Messages that a consumer gets in its turn, when others want some as well.
    pub quantum: u32,
    /// Times of expiry are rounded up to multiples of this. Messages that expire together cost memory once. Milliseconds.
    pub expiry_grain_ms: u64,
    /// Messages that live equally long have no more times of expiry than about so many: where that takes a coarser grain, it is asked when
    /// they expire ([`crate::Queue::uncertain`]).
    pub expiry_times_max: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Mode::Competing,
            key_order: false,
            whole_entries: false,
            track_bytes: false,
            mark_handed: false,
            dead_letter: false,
            failures_max: None,
            returns_count: false,
            low_priority_max: None,
            retry: None,
            held_max: None,
            length_max: None,
            bytes_max: None,
            quantum: 1,
            expiry_grain_ms: 1,
            expiry_times_max: 1 << 15,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_types::RetryOn;

    #[test]
    fn a_wait_is_added_to_the_time() {
        let backoff = Backoff::Linear { step_ms: 100, max_ms: 350 };
        let until = |delay: Delay, now_ms, returned| delay.until_ms(None, now_ms, true, Tally { returned, failed: 0 });
        let linear = Delay::Backoff(backoff);
        assert_eq!([0, 1, 4, u16::MAX].map(|n| until(linear, 1000, n)), [1000, 1100, 1350, 1350]);
        assert_eq!(until(Delay::For(7), u64::MAX - 1, 1), u64::MAX);
        assert_eq!((until(Delay::None, 5, 9), until(Delay::Until(3), 5, 9), until(Delay::Usual, 5, 9)), (5, 3, 5));
        let usual = Some(Retry { on: RetryOn::Failed, backoff });
        let tally = Tally { returned: 9, failed: 2 };
        assert_eq!([true, false].map(|failed| Delay::Usual.until_ms(usual, 1000, failed, tally)), [1200, 1000]);
    }
}
