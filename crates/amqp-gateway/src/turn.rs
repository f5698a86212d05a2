//! Turns of a connection: how much it does before others on its thread go on, and what it goes on with in the next one.
//!
//! ```text
//!   session ── poll_request ──> publish ── routed within the turn's steps ──> batch
//!                                  │
//!                                  └─ not: Work ── next turns ──> batch, or pieces of a large fan-out ── answered ──> the next pieces
//! ```
//!
//! While there is [`Work`] no further request of the session is taken, and no frame behind it is looked at: everything has its effect in the
//! order in which the client sent it.

use crate::commit::Commit;
use crate::connection::Connection;
use crate::counts::Count;
use crate::operation::Waits;
use crate::publish::{REQUEST_BYTES, TARGETS_PER_REQUEST, TARGETS_UNANSWERED_MAX, arrived, more_targets};
use crate::route::Reaching;
use polylogue_amqp::request::{self as amqp, ChannelRef, Publish};
use polylogue_amqp_model::SlowMatch;
use polylogue_api::{Ack, PublishError, PublishMessage, PublishRequest, Request, Token, Unavailable};
use polylogue_types::{STEPS_PER_TURN, Unfinished};
use std::collections::VecDeque;

/// What a request of the session takes beside routing. Steps.
pub(crate) const REQUEST_STEPS: u64 = 10;
/// What it takes to write a message to one queue more. Steps.
pub(crate) const TARGET_STEPS: u64 = 25;

/// What it takes at the most to ask a pattern that backtracks about a name. Steps.
const MATCH_STEPS: u64 = 15_000;

/// Targets of a piece of a fan-out at the least, however few steps are left.
const PIECE_TARGETS_MIN: u64 = 64;

/// What the connection goes on with before it takes another request of its session.
#[derive(Debug)]
pub(crate) enum Work {
    /// A message that has not begun.
    Publish(ChannelRef, Publish),
    /// A message on its way to its queues; whether that takes longer than a turn.
    Reach(ChannelRef, Publish, Box<Reaching>, bool),
    /// A transaction, and one of its messages on the way to its queues; whether that takes longer than a turn.
    Commit(Box<Commit>, Option<Box<Reaching>>, bool),
    /// Names that patterns which backtrack have to be asked about before a declaration is judged, and the declaration.
    Match(Vec<SlowMatch>, Token, Box<amqp::Request>),
    /// Messages with more targets than go to the broker at once, and how many targets of the first one are sent.
    Send { group: u64, messages: VecDeque<PublishMessage>, sent: usize },
}

/// Who waits until all pieces of a fan-out are answered.
#[derive(Debug)]
pub(crate) enum Awaiting {
    /// A publisher, for the confirm of this message if there is one.
    Confirm(ChannelRef, Option<u64>),
    /// A transaction.
    Commit(Token, ChannelRef, Vec<(amqp::Verdict, Vec<amqp::Run>)>),
}

/// A fan-out in pieces.
#[derive(Debug)]
pub(crate) struct Group {
    then: Awaiting,
    /// Requests that are not answered.
    open: usize,
    /// There are no more to come.
    complete: bool,
    failed: Option<PublishError>,
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Steps that it may still take.
    pub(crate) steps: u64,
    /// Steps that it might take when the turn began.
    steps_max: u64,
    /// In order; more than one only of a connection without a session.
    pub(crate) work: VecDeque<Work>,
    /// Fan-outs by their numbers.
    groups: polylogue_types::Map<u64, Group>,
    next_group: u64,
    /// The session may have another request, for which there were no steps.
    is_cut_short: bool,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn {
            // Without turns a connection works as long as there is something to do.
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

    /// Whether something takes longer than a turn that began with so many steps and has none left: half of a turn was not enough for it.
    pub(crate) fn is_long(&self, steps_before: u64) -> bool {
        2 * (steps_before - self.steps) >= self.steps_max
    }

    /// Lets go of memory that is not used.
    pub(crate) fn rest(&mut self) {
        self.work.shrink_to_fit();
        self.groups.shrink_to_fit();
    }
}

impl Connection {
    /// Begins a turn of at most so many steps ([`polylogue_types::turn`]), and goes on with what the one before left. Without turns a
    /// connection does everything at once.
    pub fn begin_turn(&mut self, steps_max: u64) {
        (self.turn.steps, self.turn.steps_max) = (steps_max, steps_max);
        if self.unfinished().is_some() {
            self.serve();
        }
    }

    /// What is left to do, which waits for nothing but another turn.
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

    /// What it goes on with, as metrics name it.
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

    /// Whether targets may be sent beside those that are not answered.
    pub(crate) fn takes_targets(&self) -> bool {
        self.batch.targets_on_their_way() < TARGETS_UNANSWERED_MAX
    }

    /// Whether nothing keeps another request of the session waiting; what does is noted.
    pub(crate) fn takes_requests(&mut self) -> bool {
        let takes = self.go_on() && self.takes_targets();
        self.turn.is_cut_short = takes && self.turn.steps == 0;
        self.hold_frames();
        takes && self.turn.steps > 0
    }

    /// Has the session decode no further frames while there is work before them or the connection is in flow. The heartbeat is not watched
    /// meanwhile.
    pub(crate) fn hold_frames(&mut self) {
        let is_held = !self.turn.work.is_empty() || self.is_in_flow();
        self.session.hold(is_held, self.now.monotonic_ms);
    }

    /// Goes on with what was begun, as far as there are steps. Whether all of it is done.
    pub(crate) fn go_on(&mut self) -> bool {
        while self.turn.steps > 0 {
            let Some(work) = self.turn.work.pop_front() else { return true };
            match work {
                Work::Publish(channel, publish) => self.publish_now(channel, publish),
                Work::Match(names, token, request) => {
                    if !self.match_on(names, token, request) {
                        return false;
                    }
                }
                // What a client hears of a channel that is closed meanwhile it does not expect to have happened.
                Work::Reach(channel, ..) if self.said.is_none() && !self.session.is_in_use(channel) => {}
                Work::Reach(channel, publish, reaching, _) => {
                    if let Some((left, is_long)) = self.reach_on(channel, &publish, Some(reaching)) {
                        self.turn.work.push_front(Work::Reach(channel, publish, left, is_long));
                    }
                }
                Work::Commit(commit, reaching, _) => self.commit_on(commit, reaching, true),
                Work::Send { group, messages, sent } => {
                    if !self.send_pieces(group, messages, sent) {
                        return false;
                    }
                }
            }
        }
        self.turn.work.is_empty()
    }

    /// What a declaration has to be put off for: policies' patterns that backtrack and were not asked about its name. What judges it is waited
    /// for by all clients.
    pub(crate) fn not_matched(&self, request: &amqp::Request) -> Vec<SlowMatch> {
        let name = match request {
            amqp::Request::DeclareQueue(_, declare) => &declare.name,
            amqp::Request::DeclareExchange(_, declare) => &declare.name,
            _ => return Vec::new(),
        };
        let name = crate::convert::name(name).unwrap_or_default();
        self.directory.world().slow_matches_of_name(self.vhost, &name)
    }

    /// Asks, on a worker thread; where all are asked, the declaration goes on. Whether it did not have to stop.
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

    /// Steps that the turn has taken so far.
    #[must_use]
    pub fn steps_used(&self) -> u64 {
        self.turn.steps_max - self.turn.steps
    }

    /// Sends messages whose targets are too many for one request: all that is sent is answered before `then` happens.
    pub(crate) fn send_in_pieces(&mut self, messages: VecDeque<PublishMessage>, then: Awaiting) {
        // What came before goes first.
        self.flush_batch();
        self.turn.next_group += 1;
        let group = self.turn.next_group;
        self.turn.groups.insert(group, Group { then, open: 0, complete: false, failed: None });
        self.turn.work.push_front(Work::Send { group, messages, sent: 0 });
    }

    /// Whether it did not have to stop.
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
        self.look_at_group(group);
        true
    }

    /// A piece of a fan-out is answered, or never will be.
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
        self.look_at_group(group);
    }

    fn look_at_group(&mut self, number: u64) {
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

/// Takes messages off, or the next targets of one, that go to the broker together: with at most `room` targets.
fn piece_of(messages: &mut VecDeque<PublishMessage>, sent: &mut usize, mut room: usize) -> Vec<PublishMessage> {
    let mut piece = Vec::new();
    while let Some(message) = messages.front() {
        let left = message.queues.get(*sent..).unwrap_or_default();
        if message.all_or_none {
            // It is kept out of all queues by one that is full: the broker has to see them together.
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
            piece.push(PublishMessage { queues, ..headless(message) });
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

/// The same message without its queues: these are many.
fn headless(message: &PublishMessage) -> PublishMessage {
    PublishMessage { queues: Vec::new(), bytes: message.bytes.clone(), ..*message }
}

#[cfg(test)]
mod tests;
