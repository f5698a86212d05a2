//! A limit that consumers of several queues share.

use crate::collections::Map;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// How many messages several consumers hold together at the most, whatever their queues: AMQP's prefetch for a whole channel.
///
/// A consumer takes room before it is given messages. One that finds none waits in a line and keeps its place there until it is given
/// room, or wants none any more. Nobody takes the room of those who are before it in the line, so that room that becomes free one by one
/// goes round.
#[derive(Debug, Default)]
pub struct SharedLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// 0 for any number.
    max: u64,
    held: u64,
    /// Who waits for room, by turn.
    line: BTreeMap<u64, u64>,
    turns: Map<u64, u64>,
    last_turn: u64,
}

impl State {
    fn room(&self) -> u64 {
        if self.max == 0 { u64::MAX } else { self.max.saturating_sub(self.held) }
    }

    /// Room that is not for those who wait before this consumer.
    fn room_for(&self, consumer: u64) -> u64 {
        let room = self.room();
        if room == u64::MAX || self.line.is_empty() {
            return room;
        }
        let before = match self.turns.get(&consumer) {
            // More than there is room for need not be counted.
            Some(turn) => self.line.range(..turn).zip(0..room).count(),
            None => self.line.len(),
        };
        room.saturating_sub(before as u64)
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

    /// Whether there is room that somebody waits for.
    fn wakes(&self) -> bool {
        !self.line.is_empty() && self.room() > 0
    }
}

impl SharedLimit {
    /// Sets the limit; 0 for none. What is held already stays so.
    pub fn set_max(&self, max: u64) {
        self.0.lock().max = max;
    }

    /// Takes room for up to `wanted` messages, 1 or more; it is held until [`SharedLimit::give_back`] if it `counts`. Returns for how many; when
    /// it is for none the consumer waits in the line.
    pub fn take(&self, consumer: u64, wanted: u64, counts: bool) -> u64 {
        let mut state = self.0.lock();
        let taken = state.room_for(consumer).min(wanted);
        if taken == 0 {
            state.wait(consumer);
            return 0;
        }
        state.leave_line(consumer);
        if !counts {
            return wanted;
        }
        state.held = state.held.saturating_add(taken);
        taken
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

    /// The last turn that was given out.
    #[must_use]
    pub fn last_turn(&self) -> u64 {
        self.0.lock().last_turn
    }

    /// The first consumer that waits with a later turn than this one, with its turn. `None` while there is no room.
    #[must_use]
    pub fn next_waiting(&self, after: u64) -> Option<(u64, u64)> {
        let state = self.0.lock();
        let next = state.line.range(after.saturating_add(1)..).next()?;
        (state.room() > 0).then_some((*next.0, *next.1))
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
        let mut at = 0;
        let next = || {
            let (turn, consumer) = limit.next_waiting(at)?;
            at = turn;
            Some(consumer)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn room_goes_round_and_whoever_waits_keeps_its_place() {
        let limit = SharedLimit::default();
        limit.set_max(3);
        assert_eq!([limit.take(1, 2, true), limit.take(1, 2, true), limit.take(1, 2, true)], [2, 1, 0]);
        assert_eq!([limit.take(2, 1, true), limit.take(3, 1, true), limit.take(2, 1, true)], [0, 0, 0]);
        assert_eq!(line(&limit), [], "there is no room");
        assert!(limit.give_back(1));
        assert_eq!(line(&limit), [1, 2, 3]);
        assert_eq!([limit.take(3, 1, true), limit.take(4, 1, true)], [0, 0], "the room is for those before them");
        assert_eq!([limit.take(1, 9, true), limit.take(1, 9, true)], [1, 0]);
        assert!(limit.give_back(2));
        assert_eq!(line(&limit), [2, 3, 4, 1], "it is behind the others now");
        assert_eq!(limit.take(3, 9, true), 1, "one is for whoever is before it");
        assert!(limit.forget(2) && !limit.forget(2));
        assert_eq!((line(&limit), limit.held()), (vec![4, 1], 2));
    }

    #[test]
    fn what_does_not_count_waits_for_room_and_takes_none() {
        let limit = SharedLimit::default();
        assert_eq!((limit.take(1, 7, true), limit.take(2, 9, false), limit.held()), (7, 9, 7), "without a limit");
        limit.set_max(8);
        assert_eq!((limit.take(2, 9, false), limit.held()), (9, 7));
        limit.hold(1);
        assert_eq!(limit.take(2, 9, false), 0);
        assert!(limit.give_back(1));
        assert_eq!((limit.take(2, 9, false), limit.give_back(9), limit.held()), (9, false, 0));
    }
}
