//! What is known of messages that die and go round, and what that makes right or wrong.
//!
//! ```text
//!   sent     what was published to a queue, by a publisher or by the mover: these bytes, so often
//!   copies   what stands at an offset of a queue: what a consumer or the mover received
//!   texts    a message as its publisher knows it, wherever its copies are
//! ```
//!
//! A copy is the same whenever it is seen, and so is its history. Each time that the mover publishes one it has the history of what it was
//! received, and one death more. It publishes what was asked to be refused, or has expired, and says that it is moved when that is confirmed.
//! So a message has as many deaths as it died, but where a copy was moved twice: then there are two of it.

use super::history::{Death, Letter, read_letter};
use super::{NAMES, is_grave, next_of};
use bytes::Bytes;
use polylogue_api::{DeadFate, DeadMessage, DeadReason, Delivery, Now, PublishMessage, SettleError};
use polylogue_types::PartitionId;
use std::collections::{BTreeMap, BTreeSet};

/// Something that must not be.
pub(super) type Wrong = String;

/// What was published to a queue.
#[derive(Debug, Default)]
struct Sent {
    times: usize,
    /// Where it stands.
    offsets: BTreeSet<u64>,
    /// From when it is dead. Wall time.
    expires_at: Option<i64>,
}

/// What stands at an offset.
#[derive(Debug)]
struct Copy {
    bytes: Bytes,
    text: String,
    /// The queue's writer when it was seen.
    epoch: i32,
    /// Whether it is known to be committed: before, a queue that hands out early may lose it and put something else there.
    committed: bool,
    rejecting: bool,
    /// When it was answered that it is settled or refused, or said that it is moved and that is committed.
    gone: Option<u64>,
}

/// A message as its publisher knows it.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) confirmed: bool,
    /// It will never be known whether it was published: it may be there or not.
    pub(super) unknown: bool,
    /// A consumer asked to settle a copy of it.
    pub(super) accepting: bool,
    /// A copy of it was moved twice: there may be several of it.
    pub(super) doubtful: bool,
    /// Refusals that were asked for, and when they were answered, where messages are refused first.
    rejects: i64,
    rejected: Vec<u64>,
}

/// How far the mover has got with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Moving {
    /// Times that the mover received it.
    reported: u32,
    /// Times that it was confirmed that the message is where it goes, and it has not said so yet.
    arrived: u32,
    /// Times that it said that it could not move it.
    later: u32,
}

/// Whether a queue hands out, and buries, only what is committed: a quorum queue.
fn is_committed(queue: usize) -> bool {
    queue < 2
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Book {
    sent: BTreeMap<(usize, Bytes), Sent>,
    copies: BTreeMap<(usize, u64), Copy>,
    pub(super) texts: BTreeMap<String, Text>,
    /// In which life of each queue's writer messages were handed out last.
    lives: [Option<u16>; NAMES.len()],
    /// What this mover received.
    moving: BTreeMap<(usize, u64), Moving>,
    /// A queue has got another writer in this life of the node: it delivers its dead once more, and of what was delivered before it is not
    /// known what it heard.
    writer_lost: bool,
    /// What any mover has published.
    published: BTreeSet<(usize, u64)>,
    /// What was said to be moved, and when, and is not known to be committed.
    unsure: BTreeMap<(usize, u64), u64>,
    /// Deliveries whose histories were right, of messages that had died in one place more than once.
    pub(super) checked: u64,
}

impl Book {
    /// A publisher sends something new.
    pub(super) fn publishes(&mut self, queue: usize, bytes: Bytes, text: &str) {
        self.sent.entry((queue, bytes)).or_default().times += 1;
        self.texts.insert(text.to_owned(), Text::default());
    }

    /// How many messages no consumer has asked to settle. Those that may never have been are not among them: eight of them, and nothing would
    /// be published any more.
    pub(super) fn open(&self) -> usize {
        self.texts.values().filter(|text| !text.accepting && !text.unknown).count()
    }

    /// What stands there.
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
        // That it was refused went with a writer, and the mover received it before.
        if self.published.contains(&at) {
            self.texts.get_mut(&letter.text).into_iter().for_each(|text| text.doubtful = true);
        }
        self.history_is_right(queue, &letter, received)?;
        Ok(letter)
    }

    /// Whether a history can be that of a message that is handed out in a queue, as its consumers know.
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

    /// Whether the writer under which a message was handed out is the one that there is, as far as is known.
    pub(super) fn is_held(&self, queue: usize, delivery: &Delivery) -> bool {
        self.lives.get(queue) == Some(&Some(delivery.life))
    }

    /// A consumer asks to settle or reject a message.
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
            // It did not happen.
            Err(SettleError::NotHeld) if first => known.rejects -= 1,
            Err(_) => {}
        }
    }

    /// What was asked for then, of messages of the queue held under the writer that there is, is committed, and so is what was said before.
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

    /// The mover receives a message. Returns the letter that it is to publish.
    pub(super) fn died(&mut self, queue: usize, dead: &DeadMessage, now: Now, epoch: i32) -> Result<Letter, Wrong> {
        let offset = dead.offset.0;
        let copy = self.copy(queue, offset, &dead.bytes, epoch)?;
        let (rejecting, text) = (copy.rejecting, copy.text.clone());
        // What another writer lost may have been handed out since, where that is not committed.
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

    /// The mover publishes a message. Whether it is what it should be.
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
        // It may be there already, though another time is in it.
        let again = !self.published.insert((queue, offset));
        if let Some(text) = self.texts.get_mut(&letter.text).filter(|_| again) {
            text.doubtful = true;
        }
        Ok(())
    }

    /// It was confirmed to the mover that a message is where it goes.
    pub(super) fn arrived(&mut self, queue: usize, offset: u64) {
        self.moving.entry((queue, offset)).or_default().arrived += 1;
    }

    /// The mover says what became of a message.
    pub(super) fn answers(&mut self, queue: usize, offset: u64, how: DeadFate, now: u64) -> Result<(), Wrong> {
        let moving = self.moving.entry((queue, offset)).or_default();
        match how {
            DeadFate::Later(_) => moving.later += 1,
            DeadFate::Moved if moving.arrived == 0 => {
                return Err(format!("is said to be moved, and that is not confirmed: {moving:?}"));
            }
            DeadFate::Moved => {
                moving.arrived -= 1;
                if !self.writer_lost {
                    self.unsure.insert((queue, offset), now);
                }
            }
        }
        Ok(())
    }

    /// A queue has another writer.
    pub(super) fn writer_lost(&mut self) {
        self.writer_lost = true;
        self.unsure.clear();
    }

    /// The mover is gone, and the next one receives everything again.
    pub(super) fn mover_gone(&mut self) {
        self.moving.clear();
    }

    /// The node is gone.
    pub(super) fn crashed(&mut self) {
        self.texts.values_mut().filter(|text| !text.confirmed).for_each(|text| text.unknown = true);
        self.moving.clear();
        self.unsure.clear();
        self.lives = Default::default();
        self.writer_lost = false;
    }
}
