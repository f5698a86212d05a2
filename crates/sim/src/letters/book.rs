//! Records of dead-lettered messages, and the checks of their deliveries.
//!
//! ```text
//!   sent     what was published to a queue, by a publisher or by the mover: these bytes, so often
//!   copies   the message at an offset of a queue, as a consumer or the mover received it
//!   texts    a message as its publisher knows it, wherever its copies are
//! ```
//!
//! A copy and its history are the same whenever it is delivered. Each time the mover publishes a message, it has the history of the message it
//! received plus one death. The mover publishes messages that were requested to be rejected or that expired, and reports the move after the confirm.
//! So a message has as many deaths as dead-letterings, unless a copy was moved twice: then there are two of it.

use super::history::{Death, Letter, read_letter};
use super::{NAMES, is_grave, next_of};
use bytes::Bytes;
use polylogue_api::{DeadLetterResult, DeadMessage, DeadReason, Delivery, Now, PublishMessage, SettleError};
use polylogue_types::PartitionId;
use std::collections::{BTreeMap, BTreeSet};

/// A violation.
pub(super) type Wrong = String;

/// A message published to a queue.
#[derive(Debug, Default)]
struct Sent {
    times: usize,
    /// Its offset.
    offsets: BTreeSet<u64>,
    /// Earliest time of its death. Wall time.
    expires_at: Option<i64>,
}

/// The message at an offset.
#[derive(Debug)]
struct Copy {
    bytes: Bytes,
    text: String,
    /// The queue's writer at its first delivery.
    epoch: i32,
    /// It is known to be committed: before that, a queue with early delivery may lose it and assign the offset again.
    committed: bool,
    rejecting: bool,
    /// Time of the reply that it is settled or rejected, or of the commit of its move.
    gone: Option<u64>,
}

/// A message as known by its publisher, over all copies.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) confirmed: bool,
    /// The outcome of its publish is unknown for good: it may be present or not.
    pub(super) unknown: bool,
    /// A consumer requested to settle a copy of it.
    pub(super) accepting: bool,
    /// A copy of it was moved twice: there may be several of it.
    pub(super) doubtful: bool,
    /// Requested rejections with the times of their replies, in the queues where messages are rejected first.
    rejects: i64,
    rejected: Vec<u64>,
}

/// The mover's progress with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Moving {
    /// Times that the mover received it.
    reported: u32,
    /// Confirms of its target that the mover has not reported yet.
    arrived: u32,
    /// Times that the mover reported that it could not move it.
    later: u32,
}

/// Returns whether a queue delivers and dead-letters committed messages only: a quorum queue.
fn is_committed(queue: usize) -> bool {
    queue < 2
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Book {
    sent: BTreeMap<(usize, Bytes), Sent>,
    copies: BTreeMap<(usize, u64), Copy>,
    pub(super) texts: BTreeMap<String, Text>,
    /// The writer of each queue at the last delivery.
    lives: [Option<u16>; NAMES.len()],
    /// Messages that this mover received.
    moving: BTreeMap<(usize, u64), Moving>,
    /// A queue got a new writer since the node's start: it delivers its dead messages again, and which earlier reports it received is unknown.
    writer_lost: bool,
    /// Messages published by any mover.
    published: BTreeSet<(usize, u64)>,
    /// Reported moves with their times, not known to be committed.
    unsure: BTreeMap<(usize, u64), u64>,
    /// Deliveries with a correct history of messages that were dead-lettered in one queue more than once.
    pub(super) checked: u64,
}

impl Book {
    /// Records a new message of a publisher.
    pub(super) fn publishes(&mut self, queue: usize, bytes: Bytes, text: &str) {
        self.sent.entry((queue, bytes)).or_default().times += 1;
        self.texts.insert(text.to_owned(), Text::default());
    }

    /// Returns the number of messages that no consumer requested to settle. Doubtful ones are not counted: with eight of them nothing more would be
    /// published.
    pub(super) fn open(&self) -> usize {
        self.texts.values().filter(|text| !text.accepting && !text.unknown).count()
    }

    /// Returns the copy at an offset.
    fn copy(&mut self, queue: usize, offset: u64, bytes: &Bytes, epoch: i32) -> Result<&mut Copy, Wrong> {
        let known = self.copies.get(&(queue, offset));
        if known.is_none_or(|copy| copy.bytes != bytes) {
            if let Some(copy) = known.filter(|copy| copy.committed || (copy.epoch == epoch && !self.writer_lost)) {
                return Err(format!("was {:?}, and is another message: {:?}", copy.text, read_letter(bytes)));
            }
            let letter = read_letter(bytes)?;
            let Some(sent) = self.sent.get_mut(&(queue, bytes.clone())) else {
                return Err(format!("was never sent there: {letter:?}"));
            };
            sent.offsets.insert(offset);
            if sent.offsets.len() > sent.times {
                let Sent { times, offsets, .. } = sent;
                return Err(format!("was sent {times} times and is at {offsets:?}: {letter:?}"));
            }
            let committed = is_committed(queue);
            let new = Copy { bytes: bytes.clone(), text: letter.text, epoch, committed, rejecting: false, gone: None };
            self.copies.insert((queue, offset), new);
        }
        self.copies.get_mut(&(queue, offset)).ok_or_else(String::new)
    }

    /// A message was delivered at the time `received`. Returns the letter.
    pub(super) fn delivered(
        &mut self,
        queue: usize,
        delivery: &Delivery,
        received: u64,
        epoch: i32,
    ) -> Result<Letter, Wrong> {
        let life = self.lives.get_mut(queue).ok_or_else(String::new)?;
        let on_its_way = life.is_some_and(|now| now != delivery.life && now.wrapping_sub(delivery.life) < 1 << 15);
        if !on_its_way && *life != Some(delivery.life) {
            *life = Some(delivery.life);
            self.unsure.retain(|(of, _), _| *of != queue);
        }
        let letter = read_letter(&delivery.bytes)?;
        if on_its_way {
            return Ok(letter);
        }
        let copy = self.copy(queue, delivery.first.0, &delivery.bytes, epoch)?;
        if copy.gone.is_some_and(|gone| gone < received) {
            return Err("was settled, refused or moved, and is handed out again".into());
        }
        let at = (queue, delivery.first.0);
        if let Some(moving) = self.moving.get(&at).filter(|_| !self.writer_lost) {
            return Err(format!("is dead, and is handed out again: {moving:?}"));
        }
        // Its rejection was lost with a writer, and the mover received it before.
        if self.published.contains(&at) {
            self.texts.get_mut(&letter.text).into_iter().for_each(|text| text.doubtful = true);
        }
        self.history_is_right(queue, &letter, received)?;
        Ok(letter)
    }

    /// Checks the history of a delivered message against what its consumers know.
    fn history_is_right(&mut self, queue: usize, letter: &Letter, received: u64) -> Result<(), Wrong> {
        let (dying, grave) = (queue & !1, queue | 1);
        let Some(text) = self.texts.get(&letter.text) else { return Err("no publisher sent it".into()) };
        let (there, rejected) = letter.died_in(NAMES[dying], DeadReason::Rejected);
        let (in_grave, _) = letter.died_in(NAMES[grave], DeadReason::Rejected);
        let round = there == in_grave + i64::from(is_grave(queue));
        let least = text.rejected.iter().filter(|at| **at < received && !text.doubtful).count() as i64;
        if there != rejected || !round || !(least..=text.rejects).contains(&rejected) {
            return Err(format!("was refused {least} to {} times, and says {letter:?}", text.rejects));
        }
        self.checked += u64::from(rejected > 1);
        Ok(())
    }

    /// Returns whether a message was delivered under the current writer, as far as is known.
    pub(super) fn is_held(&self, queue: usize, delivery: &Delivery) -> bool {
        self.lives.get(queue) == Some(&Some(delivery.life))
    }

    /// Records a consumer's request to settle or reject a message.
    pub(super) fn settling(&mut self, queue: usize, offset: u64, text: &str, rejects: bool) {
        if let Some(copy) = self.copies.get_mut(&(queue, offset)) {
            copy.rejecting |= rejects;
        }
        if let Some(text) = self.texts.get_mut(text) {
            text.accepting |= !rejects;
            text.rejects += i64::from(rejects && !is_grave(queue));
        }
    }

    /// The outcome, reported at `now`.
    pub(super) fn settled(
        &mut self,
        (queue, offset): (usize, u64),
        text: &str,
        rejects: bool,
        result: Result<(), SettleError>,
        now: u64,
    ) {
        let first = rejects && !is_grave(queue);
        let Some(known) = self.texts.get_mut(text) else { return };
        match result {
            Ok(()) => {
                if let Some(copy) = self.copies.get_mut(&(queue, offset)).filter(|copy| copy.text == text) {
                    (copy.gone, copy.committed) = (Some(now), true);
                }
                known.rejected.extend(first.then_some(now));
            }
            // The request had no effect.
            Err(SettleError::NotHeld) if first => known.rejects -= 1,
            Err(_) => {}
        }
    }

    /// Records that requests of that time are committed, for messages held under the current writer, and so are earlier reports.
    pub(super) fn committed(&mut self, queue: usize, asked: u64) {
        let Book { unsure, copies, .. } = self;
        unsure.retain(|(of, offset), said| {
            let sure = *of == queue && *said < asked;
            if let Some(copy) = copies.get_mut(&(*of, *offset)).filter(|_| sure) {
                copy.gone = copy.gone.or(Some(*said));
            }
            !sure
        });
    }

    /// Records a message that the mover received. Returns the letter that it must publish.
    pub(super) fn died(&mut self, queue: usize, dead: &DeadMessage, now: Now, epoch: i32) -> Result<Letter, Wrong> {
        let offset = dead.offset.0;
        let copy = self.copy(queue, offset, &dead.bytes, epoch)?;
        let (rejecting, text) = (copy.rejecting, copy.text.clone());
        // An uncommitted message lost with a writer may have been replaced by another one.
        let rejecting = rejecting || (self.writer_lost && !is_committed(queue));
        let moving = self.moving.entry((queue, offset)).or_default();
        moving.reported += 1;
        if moving.reported > 1 + moving.later && !self.writer_lost {
            return Err(format!("{text:?} is dead twice: {moving:?}"));
        }
        let expires_at = self.sent.get(&(queue, dead.bytes.clone())).and_then(|sent| sent.expires_at);
        let right = match dead.reason {
            DeadReason::Rejected => rejecting,
            DeadReason::Expired => expires_at.is_some_and(|at| at <= now.wall_ms),
            DeadReason::DeliveryLimit | DeadReason::MaxLength => false,
        };
        if !right {
            return Err(format!("{text:?} is dead for {:?}, and lives until {expires_at:?}", dead.reason));
        }
        let time_s = now.wall_ms.unsigned_abs() / 1_000;
        let death = Death { queue: NAMES[queue], reason: dead.reason, time_s };
        Ok(read_letter(&dead.bytes)?.after(death, NAMES[next_of(queue)]))
    }

    /// Checks a message that the mover publishes.
    pub(super) fn moves(
        &mut self,
        (queue, offset): (usize, u64),
        expected: &Letter,
        message: &PublishMessage,
        to: (PartitionId, Option<i64>),
    ) -> Result<(), Wrong> {
        let letter = read_letter(&message.bytes)?;
        if letter != *expected {
            return Err(format!("is moved as {letter:?}, not as {expected:?}"));
        }
        let targets: Vec<_> = message.queues.iter().map(|target| (target.queue, target.expires_at)).collect();
        if targets != [to] {
            return Err(format!("{:?} goes to {targets:?}, not to {to:?}", letter.text));
        }
        let sent = self.sent.entry((next_of(queue), message.bytes.clone())).or_default();
        sent.times += 1;
        sent.expires_at = sent.expires_at.into_iter().chain(to.1).min();
        // It may be present already, with another time.
        let again = !self.published.insert((queue, offset));
        if let Some(text) = self.texts.get_mut(&letter.text).filter(|_| again) {
            text.doubtful = true;
        }
        Ok(())
    }

    /// Records the confirm of a message at its target.
    pub(super) fn arrived(&mut self, queue: usize, offset: u64) {
        self.moving.entry((queue, offset)).or_default().arrived += 1;
    }

    /// Records the mover's report about a message.
    pub(super) fn answers(&mut self, queue: usize, offset: u64, how: DeadLetterResult, now: u64) -> Result<(), Wrong> {
        let moving = self.moving.entry((queue, offset)).or_default();
        match how {
            DeadLetterResult::Later(_) => moving.later += 1,
            DeadLetterResult::Moved if moving.arrived == 0 => {
                return Err(format!("is said to be moved, and that is not confirmed: {moving:?}"));
            }
            DeadLetterResult::Moved => {
                moving.arrived -= 1;
                if !self.writer_lost {
                    self.unsure.insert((queue, offset), now);
                }
            }
        }
        Ok(())
    }

    /// Handles a new writer of a queue.
    pub(super) fn writer_lost(&mut self) {
        self.writer_lost = true;
        self.unsure.clear();
    }

    /// Handles the end of the mover: the next one receives everything again.
    pub(super) fn mover_gone(&mut self) {
        self.moving.clear();
    }

    /// Handles a crash of the node.
    pub(super) fn crashed(&mut self) {
        self.texts.values_mut().filter(|text| !text.confirmed).for_each(|text| text.unknown = true);
        self.moving.clear();
        self.unsure.clear();
        self.lives = Default::default();
        self.writer_lost = false;
    }
}
