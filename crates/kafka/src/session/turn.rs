//! The turns of a session: what a thread does for it at a time, and what waits for a longer turn.

use super::steps::{self, Steps};
use super::{Room, Session, SessionContext, Slot, State, room};
use polylogue_api::{Reply, Token};
use polylogue_types::{STEPS_PER_TURN, Unfinished};

/// What the broker said of a request that goes on in a longer turn.
#[derive(Debug)]
pub(super) enum Parked {
    Reply(Token, Reply),
    Changed(Token),
}

impl Parked {
    fn reply(&self) -> Option<&Reply> {
        match self {
            Parked::Reply(_, reply) => Some(reply),
            Parked::Changed(_) => None,
        }
    }
}

impl Session {
    /// A turn begins, in which so many steps may be taken: [`STEPS_PER_TURN`] on a thread where other connections wait for its end. What
    /// did not fit into the last one goes on. Without a call there is no bound.
    pub fn begin_turn(&mut self, steps_max: u64, cx: &SessionContext<'_>) {
        let goes_on = self.steps.unfinished().is_some();
        self.steps = Steps::of_turn(steps_max);
        while let Some(parked) = self.parked.pop_front() {
            let (Parked::Reply(token, _) | Parked::Changed(token)) = &parked;
            let Some(at) = self.waiting_for(*token) else {
                let gone = *token;
                self.orphans.retain(|(orphan, _)| *orphan != gone);
                continue;
            };
            if !self.steps.try_take(self.steps_of(at, parked.reply())) {
                self.parked.push_front(parked);
                break;
            }
            match parked {
                Parked::Reply(_, reply) => self.resume(at, cx, |pending, work| pending.on_reply(work, reply)),
                Parked::Changed(token) => self.resume_changed(at, token, cx),
            }
        }
        if goes_on {
            self.start_queued(cx);
        }
    }

    /// Whether there is more to do than fitted into the turn, and where.
    #[must_use]
    pub fn unfinished(&self) -> Option<Unfinished> {
        self.steps.unfinished()
    }

    /// Steps that the turn has taken so far.
    #[must_use]
    pub fn steps_used(&self) -> u64 {
        self.steps.used()
    }

    /// What it costs to go on with a request, as far as that is long.
    fn steps_of(&self, at: usize, reply: Option<&Reply>) -> u64 {
        let is_long = self.slots.get(at).is_some_and(|slot| slot.steps > STEPS_PER_TURN);
        if is_long { u64::MAX } else { reply.map_or(0, steps::of_reply) }
    }

    /// Whether a request has to wait for a longer turn to go on, or behind one that does.
    pub(super) fn has_to_park(&self, at: usize, reply: Option<&Reply>) -> bool {
        let steps = self.steps_of(at, reply);
        !self.parked.is_empty() || (steps > 0 && !self.steps.try_take(steps))
    }

    /// Estimates what the answer may take, where that was put off. Whether it is known now.
    pub(super) fn estimate(&mut self, at: usize, cx: &SessionContext<'_>) -> bool {
        let Some(Slot { row, head, room: room @ None, steps, state: State::Queued(body) }) = self.slots.get_mut(at)
        else {
            return true;
        };
        let cost = u64::try_from(cx.catalog.topics_len()).unwrap_or(u64::MAX).saturating_mul(room::TOPIC_STEPS);
        let (true, Some(estimate)) = (self.steps.try_take(cost), row.room) else { return false };
        let found = estimate(&mut body.clone(), head.version, cx.catalog, usize::MAX).unwrap_or(Room::Unknown);
        (*room, *steps) = (Some(found), row.steps(body.remaining(), found));
        true
    }
}
