//! The failures of a run; the only place that distinguishes lost messages from unread ones.
//!
//! ```text
//!   start                      end of the window           60 s later: remaining readers are stopped
//!     |-----------------------------|------------------------------|
//!     reader A  ................................ |                     reached the end: missing messages are lost
//!     reader B  ...........................................x.......    stopped in between: messages not reached are unread,
//!                                          '-- a hole, lost whatever comes after it
//! ```

use super::{FELL_BEHIND, OneSide};
use crate::contract::{DRAIN_MS_MAX, Done, whole_seconds};
use crate::ladder::Ran;

/// A worker that has read until this long before its end was stopped, and has not read everything. Seconds.
const STOPPED_S: f64 = 1.0;

/// Whether readers reached the end by themselves; `over_ms` is the end of the window, from the start.
fn has_come_to_the_end(done: &Done, over_ms: u64) -> bool {
    done.read_s < (over_ms + DRAIN_MS_MAX) as f64 / 1e3 - STOPPED_S
}

/// Whether everything was answered and read to the end.
pub(super) fn is_drained(done: &Done, over_ms: u64) -> bool {
    done.errors == 0 && done.error.is_none() && has_come_to_the_end(done, over_ms)
}

/// Returns the number of lost messages: all missing ones if readers reached the end, otherwise those followed by later ones.
pub(super) fn lost(done: &Done, over_ms: u64) -> u64 {
    if is_drained(done, over_ms) { done.lost } else { done.holes.unwrap_or(0) }
}

impl OneSide<'_> {
    /// A run by time fails with a loss, or if its readers did not reach the end in time.
    pub(super) fn judge_by_time(&mut self, done: &Done, over_ms: u64) {
        let lost = lost(done, over_ms);
        if done.lost > lost && done.error.is_none() && !has_come_to_the_end(done, over_ms) {
            let seconds = DRAIN_MS_MAX / 1_000;
            self.fail(format!(
                "readers had not come to the end after {seconds} s: {} messages unread",
                done.lost - lost
            ));
        }
        self.judge(&Done { lost, ..done.clone() });
    }

    /// Records for a run at an unlimited rate how its readers kept up.
    pub(super) fn reading_along(&mut self, ran: &Ran<'_>) {
        let load = self.load;
        if ran.groups == 0 || load.many.filter.is_some() {
            return;
        }
        let whole = whole_seconds(ran.warmup_ms, ran.window_ms);
        if !whole.is_empty() {
            let inside = ran.seconds.iter().filter(|second| whole.contains(&second.second));
            let received: u64 = inside.map(|second| second.received).sum();
            self.figure("fetch_per_s", received as f64 / (whole.end - whole.start) as f64);
        }
        self.figure(FELL_BEHIND, f64::from(u8::from(ran.fell_behind())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_in_time_is_not_lost() {
        let done = Done { acked: 2_000, received: 20, lost: 1_980, read_s: 60.9, ..Done::default() };
        assert_eq!((is_drained(&done, 1_000), lost(&done, 1_000)), (false, 0), "it still read when it was stopped");
        let ended = Done { read_s: 3.0, ..done.clone() };
        assert_eq!((is_drained(&ended, 1_000), lost(&ended, 1_000)), (true, 1_980), "nothing more came");
        let hole = Done { holes: Some(7), ..done.clone() };
        assert_eq!(lost(&hole, 1_000), 7, "later ones followed");
        let refused = Done { errors: 5, holes: Some(7), ..ended };
        assert_eq!((is_drained(&refused, 1_000), lost(&refused, 1_000)), (false, 7), "no one knows what else there is");
    }
}
