//! Whether a client publishes on while it waits for confirms. One that does loses nothing when they come together, and many messages
//! cost one flush; one that waits for each has it at once.
//!
//! ```text
//!   waits for each     publish -> confirm -> publish -> confirm          never another one meanwhile: each is flushed at once
//!   publishes on       publish -> publish -> confirm, publish -> ...     another one meanwhile: the next ones are patient, until
//!                                                                        all is confirmed and nothing came while it was waited for
//! ```

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Requests that are not answered.
    open: usize,
    /// There was another one while one was open.
    joined: bool,
    patient: bool,
}

impl Pace {
    /// One more is asked. Whether it is patient.
    pub(crate) fn ask(&mut self) -> bool {
        // The first one after all is confirmed begins anew.
        self.joined = self.open > 0;
        self.patient |= self.joined;
        self.open += 1;
        self.patient
    }

    /// One is answered.
    pub(crate) fn answered(&mut self) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.patient = self.joined;
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
            assert!(!pace.ask());
            pace.answered();
        }
    }

    #[test]
    fn who_publishes_on_is_patient_until_nothing_came_meanwhile() {
        let mut pace = Pace::default();
        assert!(!pace.ask());
        assert!(pace.ask() && pace.ask());
        (0..3).for_each(|_| pace.answered());
        assert!(pace.ask() && pace.ask(), "it goes on");
        (0..2).for_each(|_| pace.answered());
        assert!(pace.ask(), "and waits now");
        pace.answered();
        assert!(!pace.ask(), "nothing came meanwhile");
    }
}
