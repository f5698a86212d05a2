//! Turns of a session: bounded units of work, and replies that wait for a longer turn.

use super::steps::{self, Steps};
use super::{Room, Session, SessionContext, Slot, State, room};
use polylogue_api::{Reply, Token};
use polylogue_kafka_codec::ApiKey;
use polylogue_types::Unfinished;

/// The broker's reply to a request that continues in a longer turn.
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
    /// Starts a turn with a number of steps: [`polylogue_types::STEPS_PER_TURN`] on a thread where other connections wait. Continues what did not fit into
    /// the last one. Without this call there is no limit.
    pub fn begin_turn(&mut self, steps_max: u64, cx: &SessionContext<'_>) {
        let goes_on = self.steps.unfinished().is_some();
        self.steps = Steps::of_turn(steps_max);
        while let Some(parked) = self.parked.pop_front() {
            let (Parked::Reply(token, _) | Parked::Changed(token)) = &parked;
            let Some((at, is_long)) = self.waiting_for(*token) else {
                let gone = *token;
                self.orphans.retain(|(orphan, _)| *orphan != gone);
                continue;
            };
            if !self.steps.try_take(steps_of(is_long, parked.reply())) {
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

    /// Whether work is left after the turn, and where it must continue.
    #[must_use]
    pub fn unfinished(&self) -> Option<Unfinished> {
        self.steps.unfinished()
    }

    /// Returns the API of the request that continues in another turn, if any.
    #[must_use]
    pub fn unfinished_api(&self) -> Option<ApiKey> {
        let parked = self.parked.front().and_then(|parked| {
            let (Parked::Reply(token, _) | Parked::Changed(token)) = parked;
            self.waiting_for(*token).map(|(at, _)| at)
        });
        let queued = || self.slots.iter().position(|slot| matches!(slot.state, State::Queued(_)));
        self.slots.get(parked.or_else(queued)?).map(|slot| slot.head.api)
    }

    /// Returns the number of steps that the turn has used.
    #[must_use]
    pub fn steps_used(&self) -> u64 {
        self.steps.used()
    }

    /// Whether a reply must wait for a longer turn, or for one that does.
    pub(super) fn has_to_park(&self, is_long: bool, reply: Option<&Reply>) -> bool {
        let steps = steps_of(is_long, reply);
        !self.parked.is_empty() || (steps > 0 && !self.steps.try_take(steps))
    }

    /// Estimates the response of a queued request, if that was deferred. `None` if the turn has no steps for it.
    #[cold]
    pub(super) fn estimate(&mut self, at: usize, cx: &SessionContext<'_>) -> Option<Room> {
        let Slot { row, head, room, state: State::Queued(body), .. } = self.slots.get_mut(at)? else { return None };
        let cost = u64::try_from(cx.catalog.topics_len()).unwrap_or(u64::MAX).saturating_mul(room::TOPIC_STEPS);
        let (true, Some(estimate)) = (self.steps.try_take(cost), row.room) else { return None };
        let found = estimate(&mut body.clone(), head.version, cx.catalog, usize::MAX).unwrap_or(Room::Unknown);
        *room = Some(found);
        *room
    }
}

/// Returns the cost of continuing a request, if it is long.
fn steps_of(is_long: bool, reply: Option<&Reply>) -> u64 {
    if is_long { u64::MAX } else { reply.map_or(0, steps::of_reply) }
}
