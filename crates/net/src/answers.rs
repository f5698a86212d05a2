//! Memory for long responses, from before they are built until they are written.
//!
//! Most responses are bounded by the size of their request, and its permit covers them. A list of all topics is not: a few bytes request
//! megabytes. Such a request starts only when there is memory for the largest possible response, and the response is counted until the client
//! has received it. A connection has one such response at a time; memory is polled for rather than queued for, because its holders release it
//! within milliseconds, or are closed.

use super::output::memory;
use super::protocol::Room;
use polylogue_types::Chunk;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Share of the memory for responses that long ones may use: one in this many parts.
const ANSWERS_SHARE: usize = 2;
/// A response of unknown size counts as one in this many parts of that share.
const UNKNOWN_SHARE: usize = 4;

/// Long responses of all connections.
#[derive(Clone, Debug)]
pub struct AnswerGauge {
    bytes: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl AnswerGauge {
    /// Creates the gauge for this much memory.
    #[must_use]
    pub fn new(output_bytes_max: usize) -> AnswerGauge {
        AnswerGauge { bytes: Arc::default(), waiting: Arc::default(), bytes_max: output_bytes_max / ANSWERS_SHARE }
    }

    /// Bytes of long responses being built or not yet received.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of connections that wait for memory.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes memory if it is free. A response above the limit is built alone.
    fn try_take(&self, bytes: usize) -> bool {
        let taken = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let after = used.saturating_add(bytes);
            (used == 0 || after <= self.bytes_max).then_some(after)
        });
        taken.is_ok()
    }
}

/// The long response of one connection.
#[derive(Debug)]
pub(super) struct Answers {
    gauge: AnswerGauge,
    /// Memory for the response being built.
    asked: usize,
    /// Memory of the response that waits to be received.
    held: usize,
    waits: bool,
}

impl Answers {
    pub(super) fn new(gauge: AnswerGauge) -> Answers {
        Answers { gauge, asked: 0, held: 0, waits: false }
    }

    /// Whether the response may be built now.
    pub(super) fn try_ask(&mut self, room: Room) -> bool {
        let bytes = match room {
            Room::Bytes(bytes) => bytes.min(self.gauge.bytes_max),
            Room::Unknown => self.gauge.bytes_max / UNKNOWN_SHARE,
        };
        // The client must receive the previous one first; that does not count as waiting for others.
        let free = self.asked == 0 && self.held == 0;
        let may = free && self.gauge.try_take(bytes);
        if may {
            self.asked = bytes;
        }
        self.wait(free && !may);
        may
    }

    /// No memory is wanted.
    pub(super) fn none_wanted(&mut self) {
        self.wait(false);
    }

    /// Whether memory was requested and was not free.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Chunks were taken from the session; they include the response if one was requested.
    pub(super) fn on_taken(&mut self, chunks: &[Chunk]) {
        if self.asked > 0 {
            let bytes: usize = chunks.iter().map(memory).sum();
            self.gauge.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.gauge.bytes.fetch_sub(std::mem::take(&mut self.asked), Ordering::Relaxed);
            self.held += bytes;
        }
    }

    /// Everything has been written.
    pub(super) fn on_written(&mut self) {
        if self.held > 0 {
            self.gauge.bytes.fetch_sub(std::mem::take(&mut self.held), Ordering::Relaxed);
        }
    }

    /// Whether responses not received by its client make others wait.
    pub(super) fn is_in_the_way(&self) -> bool {
        self.held > 0 && self.gauge.waiting() > 0
    }

    fn wait(&mut self, waits: bool) {
        if waits && !self.waits {
            self.gauge.waiting.fetch_add(1, Ordering::Relaxed);
        } else if !waits && self.waits {
            self.gauge.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.waits = waits;
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.wait(false);
        self.gauge.bytes.fetch_sub(self.asked + self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: usize) -> [Chunk; 1] {
        [Chunk::Bytes(vec![0; bytes].into())]
    }

    #[test]
    fn an_answer_counts_from_before_it_is_made_until_it_is_written() {
        let gauge = AnswerGauge::new(2_000);
        let mut answers = Answers::new(gauge.clone());
        assert!(answers.try_ask(Room::Bytes(600)));
        assert_eq!(gauge.bytes(), 600);
        let mut other = Answers::new(gauge.clone());
        assert!(!other.try_ask(Room::Bytes(600)) && !other.try_ask(Room::Bytes(600)));
        assert_eq!((gauge.bytes(), gauge.waiting()), (600, 1), "it waits once, and holds nothing");
        assert!(!answers.is_in_the_way(), "it is being built");
        answers.on_taken(&chunk(70));
        assert!(answers.is_in_the_way());
        assert!(!answers.try_ask(Room::Bytes(1)) && !answers.waits(), "one at a time");
        assert_eq!(gauge.waiting(), 1, "only the other one waits for others");
        assert!(other.try_ask(Room::Bytes(600)));
        answers.on_written();
        assert_eq!(gauge.bytes(), 600);
        assert!(answers.try_ask(Room::Unknown));
        assert_eq!((gauge.bytes(), gauge.waiting()), (850, 0));
        drop((answers, other));
        assert_eq!((gauge.bytes(), gauge.waiting()), (0, 0));
    }

    #[test]
    fn one_above_the_bound_gets_its_turn_alone() {
        let gauge = AnswerGauge::new(2_000);
        let (mut small, mut large) = (Answers::new(gauge.clone()), Answers::new(gauge.clone()));
        assert!(small.try_ask(Room::Bytes(1)) && !large.try_ask(Room::Bytes(5_000)));
        small.on_taken(&chunk(1));
        small.on_written();
        assert!(large.try_ask(Room::Bytes(5_000)) && !small.try_ask(Room::Bytes(1)));
    }

    #[test]
    fn what_becomes_longer_than_was_thought_counts_as_what_it_is() {
        let gauge = AnswerGauge::new(2_000);
        let mut answers = Answers::new(gauge.clone());
        assert!(answers.try_ask(Room::Bytes(10)));
        answers.on_taken(&chunk(1_500));
        answers.on_taken(&chunk(5));
        assert_eq!(gauge.bytes(), 1_500, "others' bytes count elsewhere");
        drop(answers);
        assert_eq!(gauge.bytes(), 0);
    }
}
