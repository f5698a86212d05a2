//! Turns of a connection: its work before other connections of its thread run, and the work it continues with.
//!
//! ```text
//!   session ── poll_request ──> publish ── routed within the turn's steps ──> batch
//!                                  │
//!                                  └─ paused: Work ── next turns ──> batch, or parts of a large fan-out ── answered ──> the next parts
//! ```
//!
//! While there is [`Work`] no further request of the session is taken, and no later frame is processed: everything takes effect in the order in which
//! the client sent it.

use crate::commit::Commit;
use crate::connection::Connection;
use crate::counts::Count;
use crate::operation::Waits;
use crate::publish::{REQUEST_BYTES, TARGETS_PER_REQUEST, TARGETS_UNANSWERED_MAX, arrived, more_targets};
use crate::route::PausedRoute;
use polylogue_amqp::request::{self as amqp, ChannelRef, Publish};
use polylogue_amqp_model::SlowMatch;
use polylogue_api::{Ack, PublishError, PublishMessage, PublishRequest, Request, Token, Unavailable};
use polylogue_types::{STEPS_PER_TURN, Unfinished};
use std::collections::VecDeque;

/// The cost of a request of the session apart from routing. Steps.
pub(crate) const REQUEST_STEPS: u64 = 10;
/// The cost of writing a message to another queue. Steps.
pub(crate) const TARGET_STEPS: u64 = 25;

/// The largest cost of matching a backtracking pattern against a name. Steps.
const MATCH_STEPS: u64 = 15_000;

/// The fewest targets of a part of a fan-out, even with few steps left.
const PIECE_TARGETS_MIN: u64 = 64;

/// Work that a connection continues before it takes another request of its session.
#[derive(Debug)]
pub(crate) enum Work {
    /// A message that was not started.
    Publish(ChannelRef, Publish),
    /// A message being routed; whether that takes longer than a turn.
    Reach(ChannelRef, Publish, Box<PausedRoute>, bool),
    /// A transaction, with a message being routed; whether that takes longer than a turn.
    Commit(Box<Commit>, Option<Box<PausedRoute>>, bool),
    /// Slow pattern matches to run before a declaration is checked, and the declaration.
    Match(Vec<SlowMatch>, Token, Box<amqp::Request>),
    /// Messages with more targets than one request may have, and how many targets of the first one are sent.
    Send { group: u64, messages: VecDeque<PublishMessage>, sent: usize },
}

/// The waiter for all parts of a fan-out.
#[derive(Debug)]
pub(crate) enum Awaiting {
    /// A publisher, for the confirm of this message if there is one.
    Confirm(ChannelRef, Option<u64>),
    /// A transaction.
    Commit(Token, ChannelRef, Vec<(amqp::Verdict, Vec<amqp::Run>)>),
}

/// A fan-out in parts.
#[derive(Debug)]
pub(crate) struct Group {
    then: Awaiting,
    /// Unanswered requests.
    open: usize,
    /// All parts are sent.
    complete: bool,
    failed: Option<PublishError>,
}

/// The progress of a connection within a turn.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Steps left.
    pub(crate) steps: u64,
    /// Steps at the beginning of the turn.
    steps_max: u64,
    /// In order; more than one only for a connection without a session.
    pub(crate) work: VecDeque<Work>,
    /// Fan-outs by number.
    groups: polylogue_types::Map<u64, Group>,
    next_group: u64,
    /// The session may have another request, for which no steps were left.
    is_cut_short: bool,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            // Without turns a connection works until nothing is left.
            steps: u64::MAX,
            steps_max: u64::MAX,
            work: VecDeque::new(),
            groups: polylogue_types::Map::default(),
            next_group: 0,
            is_cut_short: false,
        }
    }
}

impl Turn {
    pub(crate) fn charge(&mut self, steps: u64) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Whether an operation that began with this many steps left takes longer than a turn: half of a turn was not enough for it.
    pub(crate) fn is_long(&self, steps_before: u64) -> bool {
        2 * (steps_before - self.steps) >= self.steps_max
    }

    /// Releases unused memory.
    pub(crate) fn release_memory(&mut self) {
        self.work.shrink_to_fit();
        self.groups.shrink_to_fit();
    }
}

impl Connection {
    /// Begins a turn of at most this many steps ([`polylogue_types::turn`]), and continues paused work. Without turns a connection does everything
    /// immediately.
    pub fn begin_turn(&mut self, steps_max: u64) {
        (self.turn.steps, self.turn.steps_max) = (steps_max, steps_max);
        if self.unfinished().is_some() {
            self.serve();
        }
    }

    /// The work left that only needs another turn.
    #[must_use]
    pub fn unfinished(&self) -> Option<Unfinished> {
        let turn = match self.turn.work.front() {
            None => return (self.turn.is_cut_short && self.takes_targets()).then_some(Unfinished::Turn),
            Some(Work::Send { .. }) if !self.takes_targets() => return None,
            Some(Work::Send { messages, sent, .. }) => {
                let targets: usize = messages.iter().map(|message| message.queues.len()).sum();
                (targets - sent) as u64 * TARGET_STEPS <= STEPS_PER_TURN
            }
            Some(Work::Publish(..)) => true,
            Some(Work::Match(..)) => false,
            Some(Work::Reach(_, _, _, is_long) | Work::Commit(_, _, is_long)) => !is_long,
        };
        Some(if turn { Unfinished::Turn } else { Unfinished::Worker })
    }

    /// The kind of work left, as metrics name it.
    #[must_use]
    pub fn unfinished_kind(&self) -> &'static str {
        match self.turn.work.front() {
            None => "none",
            Some(Work::Publish(..) | Work::Reach(..)) => "routing",
            Some(Work::Commit(..)) => "transaction",
            Some(Work::Match(..)) => "policies",
            Some(Work::Send { .. }) => "fan-out",
        }
    }

    /// Whether more targets may be sent beside unanswered ones.
    pub(crate) fn takes_targets(&self) -> bool {
        self.batch.targets_in_flight() < TARGETS_UNANSWERED_MAX
    }

    /// Whether another request of the session can be taken; if not, the reason is recorded.
    pub(crate) fn takes_requests(&mut self) -> bool {
        let takes = self.proceed() && self.takes_targets();
        self.turn.is_cut_short = takes && self.turn.steps == 0;
        self.hold_frames();
        takes && self.turn.steps > 0
    }

    /// Stops the session from decoding frames while there is earlier work or the connection is in flow. The heartbeat timeout is suspended meanwhile.
    pub(crate) fn hold_frames(&mut self) {
        let is_held = !self.turn.work.is_empty() || self.is_in_flow();
        self.session.hold(is_held, self.now.monotonic_ms);
    }

    /// Continues paused work, as far as there are steps. Returns whether all of it is done.
    pub(crate) fn proceed(&mut self) -> bool {
        while self.turn.steps > 0 {
            let Some(work) = self.turn.work.pop_front() else { return true };
            match work {
                Work::Publish(channel, publish) => self.publish_now(channel, publish),
                Work::Match(names, token, request) => {
                    if !self.match_on(names, token, request) {
                        return false;
                    }
                }
                // A client does not expect effects of messages on a channel that was closed meanwhile.
                Work::Reach(channel, ..) if self.captured.is_none() && !self.session.is_in_use(channel) => {}
                Work::Reach(channel, publish, paused_route, _) => {
                    if let Some((left, is_long)) = self.reach_on(channel, &publish, Some(paused_route)) {
                        self.turn.work.push_front(Work::Reach(channel, publish, left, is_long));
                    }
                }
                Work::Commit(commit, paused_route, _) => self.commit_on(commit, paused_route, true),
                Work::Send { group, messages, sent } => {
                    if !self.send_pieces(group, messages, sent) {
                        return false;
                    }
                }
            }
        }
        self.turn.work.is_empty()
    }

    /// Returns the slow matches that a declaration has to wait for: backtracking patterns of policies without a cached result for its name. Commands
    /// are checked on a thread that all clients depend on.
    pub(crate) fn slow_matches(&self, request: &amqp::Request) -> Vec<SlowMatch> {
        let name = match request {
            amqp::Request::DeclareQueue(_, declare) => &declare.name,
            amqp::Request::DeclareExchange(_, declare) => &declare.name,
            _ => return Vec::new(),
        };
        let name = crate::convert::name(name).unwrap_or_default();
        self.directory.metadata().slow_matches_of_name(self.vhost, &name)
    }

    /// Runs matches, on a worker thread; when all are done, the declaration continues. Returns whether it did not have to pause.
    fn match_on(&mut self, mut names: Vec<SlowMatch>, token: Token, request: Box<amqp::Request>) -> bool {
        while let Some(slow) = names.last() {
            if self.turn.steps_max <= STEPS_PER_TURN || self.turn.steps == 0 {
                self.turn.work.push_front(Work::Match(names, token, request));
                return false;
            }
            slow.run();
            self.turn.charge(MATCH_STEPS);
            names.pop();
        }
        self.begin(token, *request);
        true
    }

    /// Steps taken in this turn.
    #[must_use]
    pub fn steps_used(&self) -> u64 {
        self.turn.steps_max - self.turn.steps
    }

    /// Sends messages with too many targets for one request: all requests are answered before `then` happens.
    pub(crate) fn send_in_pieces(&mut self, messages: VecDeque<PublishMessage>, then: Awaiting) {
        // Earlier messages go first.
        self.flush_batch();
        self.turn.next_group += 1;
        let group = self.turn.next_group;
        self.turn.groups.insert(group, Group { then, open: 0, complete: false, failed: None });
        self.turn.work.push_front(Work::Send { group, messages, sent: 0 });
    }

    /// Returns whether it did not have to pause.
    fn send_pieces(&mut self, group: u64, mut messages: VecDeque<PublishMessage>, mut sent: usize) -> bool {
        while !messages.is_empty() {
            if self.turn.steps == 0 || !self.takes_targets() {
                self.tally.more(Count::FanoutWaits, u64::from(self.turn.steps > 0));
                self.turn.work.push_front(Work::Send { group, messages, sent });
                return false;
            }
            let fit = (self.turn.steps / TARGET_STEPS).clamp(PIECE_TARGETS_MIN, TARGETS_PER_REQUEST as u64);
            let piece = piece_of(&mut messages, &mut sent, fit as usize);
            let targets = more_targets(&piece);
            let bytes = REQUEST_BYTES + piece.iter().map(PublishMessage::weight_bytes).sum::<usize>();
            self.turn.charge(TARGET_STEPS * targets as u64);
            self.batch.is_asked(bytes, targets);
            self.tally.more(Count::FanoutPieces, 1);
            if let Some(group) = self.turn.groups.get_mut(&group) {
                group.open += 1;
            }
            let request = PublishRequest { messages: piece, ack: Ack::Committed, patient: false };
            self.ask(Request::Publish(request), Waits::Piece(group, bytes, targets));
        }
        if let Some(group) = self.turn.groups.get_mut(&group) {
            group.complete = true;
        }
        self.check_group(group);
        true
    }

    /// A part of a fan-out is answered, or will never be.
    pub(crate) fn piece_answered(
        &mut self,
        group: u64,
        bytes: usize,
        targets: usize,
        results: Option<&[Result<(), PublishError>]>,
    ) {
        self.batch.is_answered(bytes, targets);
        let failed = match results {
            None | Some([]) => Some(PublishError::Unavailable(Unavailable::Unknown)),
            Some(results) => results.iter().copied().filter(|result| !arrived(*result)).find_map(Result::err),
        };
        if let Some(group) = self.turn.groups.get_mut(&group) {
            group.open -= 1;
            group.failed = group.failed.or(failed);
        }
        self.check_group(group);
    }

    fn check_group(&mut self, number: u64) {
        let is_done = |group: &Group| group.complete && group.open == 0;
        if !self.turn.groups.get(&number).is_some_and(is_done) {
            return;
        }
        let Some(Group { then, failed, .. }) = self.turn.groups.remove(&number) else { return };
        match (then, failed) {
            (Awaiting::Confirm(_, None), _) => {}
            (Awaiting::Confirm(channel, Some(seq)), None) => self.confirm(channel, seq, seq),
            (Awaiting::Confirm(channel, Some(seq)), Some(why)) => self.rejected(channel, seq, seq, why),
            (Awaiting::Commit(token, channel, settled), failed) => {
                self.commit_settles(token, channel, &settled, &[failed.map_or(Ok(()), Err)]);
            }
        }
    }
}

/// Takes messages, or the next targets of one, for one request: with at most `room` targets.
fn piece_of(messages: &mut VecDeque<PublishMessage>, sent: &mut usize, mut room: usize) -> Vec<PublishMessage> {
    let mut piece = Vec::new();
    while let Some(message) = messages.front() {
        let left = message.queues.get(*sent..).unwrap_or_default();
        if message.all_or_none {
            // A full queue keeps it out of all queues: the broker needs all targets together.
            if !piece.is_empty() {
                break;
            }
            piece.extend(messages.pop_front());
            break;
        }
        let fit = left.len().min(room);
        let is_whole = *sent == 0 && fit == left.len();
        room -= fit;
        if is_whole {
            piece.extend(messages.pop_front());
        } else {
            let queues = left.get(..fit).unwrap_or_default().to_vec();
            piece.push(PublishMessage { queues, ..without_targets(message) });
            *sent += fit;
            if *sent < message.queues.len() {
                break;
            }
            messages.pop_front();
            *sent = 0;
        }
        if room == 0 {
            break;
        }
    }
    piece
}

/// The same message without its queues, which are many.
fn without_targets(message: &PublishMessage) -> PublishMessage {
    PublishMessage { queues: Vec::new(), bytes: message.bytes.clone(), ..*message }
}

#[cfg(test)]
mod tests;
