//! Whether a client publishes on while it waits for confirms. One that does loses nothing when they come together, and many messages
//! cost one flush; one that waits for each has it at once.
//!
//! ```text
//!   waits for each     publish -> confirm -> publish -> confirm          never another one meanwhile: each is flushed at once
//!   publishes on       publish -> publish -> confirm, publish -> ...     another one meanwhile: the next ones are patient, until
//!                                                                        all is confirmed and nothing came while it was waited for
//!   may have 3 unconfirmed   publish, publish, publish -> confirm        the third one is not patient: as many as the round before had
//!                                                                        are there, and no other one may come before its confirm
//! ```

/// One part in so many of what rounds before had is forgotten with each: at a rate they differ by a few.
const FORGOTTEN: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Requests that are not answered.
    open: usize,
    /// There was another one while one was open.
    joined: bool,
    patient: bool,
    /// Messages since all was confirmed last.
    round: usize,
    /// Messages of the round before, or nearly as many as one before that had.
    expected: usize,
}

impl Pace {
    /// One more is asked, of so many messages. Whether it is patient.
    pub(crate) fn ask(&mut self, messages: usize) -> bool {
        // The first one after all is confirmed begins anew.
        self.joined = self.open > 0;
        self.patient |= self.joined;
        self.open += 1;
        let before = self.round;
        self.round = before.saturating_add(messages);
        let completes = before < self.expected && self.round >= self.expected;
        self.patient && !completes
    }

    /// One is answered.
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
    fn who_waits_for_each_confirm_is_never_kept_waiting() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            assert!(!pace.ask(1));
            pace.answered();
        }
    }

    #[test]
    fn who_publishes_on_is_patient_until_nothing_came_meanwhile() {
        let mut pace = Pace::default();
        assert!(!pace.ask(1));
        assert!(pace.ask(1) && pace.ask(1));
        (0..3).for_each(|_| pace.answered());
        assert!(pace.ask(1) && pace.ask(1), "it goes on");
        (0..2).for_each(|_| pace.answered());
        assert!(pace.ask(1), "and waits now");
        pace.answered();
        assert!(!pace.ask(1), "nothing came meanwhile");
    }

    /// A publisher with 10 messages unconfirmed at most got 10 through in each millisecond.
    #[test]
    fn who_may_have_only_some_unconfirmed_is_not_kept_waiting_for_more() {
        let mut pace = Pace::default();
        let mut round = || {
            let patient: Vec<bool> = (0..10).map(|_| pace.ask(1)).collect();
            (0..10).for_each(|_| pace.answered());
            patient
        };
        assert_eq!(round().last(), Some(&true), "nobody knows yet that it is the last");
        for _ in 0..5 {
            let patient = round();
            assert_eq!(patient.iter().position(|one| !one), Some(9), "the last one only: {patient:?}");
        }
    }

    #[test]
    fn who_goes_on_without_end_stays_patient() {
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
