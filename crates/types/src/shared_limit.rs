//! A limit that consumers of several queues share.

use crate::collections::Map;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// How many messages several consumers hold together at the most, whatever their queues: AMQP's prefetch for a whole channel.
///
/// A consumer takes room before it is given messages. One that finds none waits in a line, and keeps its place there until it is given
/// room, or wants none any more. Room that becomes free is offered to those in the line in their order, to each its part of it, and no one
/// takes it who is behind them: so it goes round, one by one or many at once.
#[derive(Debug, Default)]
pub struct SharedLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// 0 for any number.
    max: u64,
    held: u64,
    /// The consumers that wait for room, in order.
    line: BTreeMap<u64, u64>,
    turns: Map<u64, u64>,
    last_turn: u64,
    /// Up to which turn the room that there is was offered.
    offered: u64,
}

impl State {
    fn room(&self) -> u64 {
        if self.max == 0 { u64::MAX } else { self.max.saturating_sub(self.held) }
    }

    /// The room that a consumer may take.
    fn room_for(&self, consumer: u64) -> u64 {
        let room = self.room();
        let Some((first, _)) = self.line.first_key_value().filter(|_| room < u64::MAX) else { return room };
        match self.turns.get(&consumer) {
            Some(turn) if turn == first || *turn <= self.offered => room.div_ceil(self.line.len() as u64),
            _ => 0,
        }
    }

    fn wait(&mut self, consumer: u64) {
        if !self.turns.contains_key(&consumer) {
            self.last_turn += 1;
            self.line.insert(self.last_turn, consumer);
            self.turns.insert(consumer, self.last_turn);
        }
    }

    fn leave_line(&mut self, consumer: u64) {
        if let Some(turn) = self.turns.remove(&consumer) {
            self.line.remove(&turn);
        }
    }

    /// Whether there is room that a consumer waits for.
    fn wakes(&self) -> bool {
        !self.line.is_empty() && self.room() > 0
    }
}

impl SharedLimit {
    /// Sets the limit; 0 for none. What is held already stays so.
    pub fn set_max(&self, max: u64) {
        self.0.lock().max = max;
    }

    /// Takes room for up to `wanted` messages, 1 or more; it is held until [`SharedLimit::give_back`] if it `counts`. Returns for how many, and
    /// whether others wait for room that is left; when it is for none the consumer waits in the line.
    pub fn take(&self, consumer: u64, wanted: u64, counts: bool) -> (u64, bool) {
        let mut state = self.0.lock();
        let taken = state.room_for(consumer).min(wanted);
        if taken == 0 {
            state.wait(consumer);
            return (0, false);
        }
        state.leave_line(consumer);
        if !counts {
            return (wanted, state.wakes());
        }
        state.held = state.held.saturating_add(taken);
        (taken, state.wakes())
    }

    /// Counts what a consumer held before it shared the limit.
    pub fn hold(&self, messages: u64) {
        let mut state = self.0.lock();
        state.held = state.held.saturating_add(messages);
    }

    /// So many messages are held no longer. Returns whether a consumer waits for the room.
    #[must_use = "who waits is to be looked at"]
    pub fn give_back(&self, messages: u64) -> bool {
        let mut state = self.0.lock();
        state.held = state.held.saturating_sub(messages);
        state.wakes()
    }

    /// A consumer is gone, or wants no more for now: it waits no longer. Returns whether another one waits for room that there is.
    pub fn forget(&self, consumer: u64) -> bool {
        let mut state = self.0.lock();
        let waited = state.turns.contains_key(&consumer);
        state.leave_line(consumer);
        waited && state.wakes()
    }

    /// Returns whether another message may be held.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.lock().room() > 0
    }

    /// The last turn that was given out.
    #[must_use]
    pub fn last_turn(&self) -> u64 {
        self.0.lock().last_turn
    }

    /// Offers room to the first consumer that waits with a later turn than this one; returns its turn and the consumer. `None` while there is
    /// no room.
    pub fn offer_next(&self, after: u64) -> Option<(u64, u64)> {
        let mut state = self.0.lock();
        let (turn, consumer) = state.line.range(after.saturating_add(1)..).next().map(|(turn, one)| (*turn, *one))?;
        if state.room() == 0 {
            return None;
        }
        state.offered = turn;
        Some((turn, consumer))
    }

    /// How many messages are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.lock().held
    }
}

/// Two are the same limit if they are one.
impl PartialEq for SharedLimit {
    fn eq(&self, other: &SharedLimit) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SharedLimit {}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(limit: &SharedLimit) -> Vec<u64> {
        limit.0.lock().line.values().copied().collect()
    }

    fn take(limit: &SharedLimit, consumer: u64, wanted: u64) -> u64 {
        limit.take(consumer, wanted, true).0
    }

    #[test]
    fn room_goes_round_and_whoever_waits_keeps_its_place() {
        let limit = SharedLimit::default();
        limit.set_max(3);
        assert_eq!([take(&limit, 1, 2), take(&limit, 1, 2), take(&limit, 1, 2)], [2, 1, 0]);
        assert_eq!([take(&limit, 2, 1), take(&limit, 3, 1), take(&limit, 2, 1)], [0, 0, 0]);
        assert_eq!((line(&limit), limit.offer_next(0)), (vec![1, 2, 3], None), "there is no room");
        assert!(limit.give_back(1));
        assert_eq!([take(&limit, 3, 1), take(&limit, 4, 1)], [0, 0], "the room is for those before them");
        assert_eq!([take(&limit, 1, 9), take(&limit, 1, 9)], [1, 0]);
        assert_eq!(line(&limit), [2, 3, 4, 1], "it is behind the others now");
        assert!(limit.forget(2) == limit.forget(2) && line(&limit) == [3, 4, 1]);
        assert_eq!(limit.held(), 3);
    }

    #[test]
    fn much_room_is_parted_among_those_who_wait() {
        let limit = SharedLimit::default();
        limit.set_max(10);
        assert_eq!(take(&limit, 1, 99), 10);
        assert_eq!([2, 3, 1].map(|consumer| take(&limit, consumer, 99)), [0, 0, 0]);
        assert!(limit.give_back(10));
        assert_eq!(take(&limit, 1, 99), 0, "it is not its turn");
        let (turn, two) = limit.offer_next(0).expect("there is room");
        assert_eq!((two, limit.take(two, 99, true)), (2, (4, true)));
        // The next one wants none now, and what was its part is for the last one.
        let (turn, three) = limit.offer_next(turn).expect("there is room");
        assert_eq!((three, limit.forget(three)), (3, true));
        let (_, one) = limit.offer_next(turn).expect("there is room");
        assert_eq!((one, limit.take(one, 99, true)), (1, (6, false)));
        assert_eq!(limit.held(), 10);
    }

    #[test]
    fn what_does_not_count_waits_for_room_and_takes_none() {
        let limit = SharedLimit::default();
        assert_eq!((take(&limit, 1, 7), limit.take(2, 9, false).0, limit.held()), (7, 9, 7), "without a limit");
        limit.set_max(8);
        assert_eq!((limit.take(2, 9, false).0, limit.held()), (9, 7));
        limit.hold(1);
        assert_eq!(limit.take(2, 9, false).0, 0);
        assert!(limit.give_back(1));
        assert_eq!((limit.take(2, 9, false).0, limit.give_back(9), limit.held()), (9, false, 0));
    }
}
