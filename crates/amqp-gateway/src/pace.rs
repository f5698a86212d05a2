//! Detection of pipelined publishing: whether a client publishes further messages while it waits for confirms. Such a client loses nothing when
//! confirms are combined, and many messages share one flush; a client that waits for each confirm gets it immediately.
//!
//! ```text
//!   waits for each     publish -> confirm -> publish -> confirm          never another one in between: each is flushed immediately
//!   pipelines          publish -> publish -> confirm, publish -> ...     another one in between: the next ones may wait, until all
//!                                                                        are confirmed and none came in between
//!   may have 3 unconfirmed   publish, publish, publish -> confirm        the third one must not wait: as many as in the previous round
//!                                                                        are there, and no other may come before its confirm
//! ```

/// The decay per round of the expected number of messages, one part in this many: at a constant rate rounds differ by a few.
const FORGOTTEN: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Requests without a reply.
    open: usize,
    /// Another one came while one was open.
    joined: bool,
    patient: bool,
    /// Messages since everything was last confirmed.
    round: usize,
    /// Messages of the previous round, or nearly as many as an earlier one had.
    expected: usize,
}

impl Pace {
    /// Counts a request with this many messages. Returns whether it may wait.
    pub(crate) fn ask(&mut self, messages: usize) -> bool {
        // The first one after all are confirmed starts a new round.
        self.joined = self.open > 0;
        self.patient |= self.joined;
        self.open += 1;
        let before = self.round;
        self.round = before.saturating_add(messages);
        let completes = before < self.expected && self.round >= self.expected;
        self.patient && !completes
    }

    /// Counts a reply.
    pub(crate) fn answered(&mut self) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.patient = self.joined;
            self.expected = self.round.max(self.expected - self.expected / FORGOTTEN);
            self.round = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_that_waits_for_each_confirm_is_never_delayed() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            assert!(!pace.ask(1));
            pace.answered();
        }
    }

    #[test]
    fn a_pipelining_publisher_may_wait_until_nothing_came_in_between() {
        let mut pace = Pace::default();
        assert!(!pace.ask(1));
        assert!(pace.ask(1) && pace.ask(1));
        (0..3).for_each(|_| pace.answered());
        assert!(pace.ask(1) && pace.ask(1), "it pipelines");
        (0..2).for_each(|_| pace.answered());
        assert!(pace.ask(1), "and waits now");
        pace.answered();
        assert!(!pace.ask(1), "nothing came in between");
    }

    /// A publisher with at most 10 unconfirmed messages got only 10 through per millisecond.
    #[test]
    fn a_publisher_at_its_limit_is_not_delayed() {
        let mut pace = Pace::default();
        let mut round = || {
            let patient: Vec<bool> = (0..10).map(|_| pace.ask(1)).collect();
            (0..10).for_each(|_| pace.answered());
            patient
        };
        assert_eq!(round().last(), Some(&true), "it is not known yet that it is the last");
        for _ in 0..5 {
            let patient = round();
            assert_eq!(patient.iter().position(|one| !one), Some(9), "the last one only: {patient:?}");
        }
    }

    #[test]
    fn a_steadily_pipelining_publisher_may_always_wait() {
        let mut pace = Pace::default();
        pace.ask(1);
        let patient = (0..1_000).filter(|_| {
            let patient = pace.ask(1);
            pace.answered();
            patient
        });
        assert_eq!(patient.count(), 1_000);
    }
}
