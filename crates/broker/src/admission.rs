//! Memory permits: a request gets a permit for its bytes before it is read, and returns it when its reply is written.
//!
//! The bound holds over all connections. Requests wait in FIFO order, so that small ones do not starve a large one.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Called once when the permit is granted.
type Wake = Box<dyn FnOnce(Permit) + Send>;

struct State {
    used: usize,
    waiting: VecDeque<(usize, Wake)>,
    /// A thread is granting returned bytes. A waiter whose connection is gone drops its permit within that call: if the drop granted permits itself,
    /// a line of such waiters would recurse without bound.
    handing_out: bool,
}

/// The process-wide bound on bytes of requests in progress.
#[derive(Clone)]
pub struct Admission {
    bytes_max: usize,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Admission")
            .field("bytes_max", &self.bytes_max)
            .field("used", &state.used)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

/// Admitted bytes; returned when dropped.
pub struct Permit {
    admission: Admission,
    bytes: usize,
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Admission {
    /// Returns a bound of `bytes`.
    #[must_use]
    pub fn new(bytes_max: usize) -> Admission {
        Admission {
            bytes_max,
            state: Arc::new(Mutex::new(State { used: 0, waiting: VecDeque::new(), handing_out: false })),
        }
    }

    /// Returns a permit if it is available now. A request larger than the bound counts as the whole bound, and runs alone.
    #[must_use]
    pub fn try_admit(&self, bytes: usize) -> Option<Permit> {
        let bytes = bytes.min(self.bytes_max);
        let mut state = self.state.lock();
        if !state.waiting.is_empty() || state.used + bytes > self.bytes_max {
            return None;
        }
        state.used += bytes;
        Some(Permit { admission: self.clone(), bytes })
    }

    /// Grants a permit now or later: `wake` is called with it, here or on the thread that returns bytes. A caller that no longer needs it drops it.
    pub fn admit(&self, bytes: usize, wake: Wake) {
        let bytes = bytes.min(self.bytes_max);
        {
            let mut state = self.state.lock();
            if !state.waiting.is_empty() || state.used + bytes > self.bytes_max {
                state.waiting.push_back((bytes, wake));
                return;
            }
            state.used += bytes;
        }
        wake(Permit { admission: self.clone(), bytes });
    }

    /// Returns the bytes in use and the number of waiting requests, for metrics.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.used, state.waiting.len())
    }

    fn give_back(&self, bytes: usize) {
        {
            let mut state = self.state.lock();
            state.used = state.used.saturating_sub(bytes);
            if std::mem::replace(&mut state.handing_out, true) {
                return;
            }
        }
        while let Some((bytes, wake)) = self.next_due() {
            wake(Permit { admission: self.clone(), bytes });
        }
    }

    /// The next waiter whose bytes are free, with its bytes taken; `None` ends the loop.
    fn next_due(&self) -> Option<(usize, Wake)> {
        let mut state = self.state.lock();
        let fits = state.waiting.front().is_some_and(|(bytes, _)| state.used + bytes <= self.bytes_max);
        let due = state.waiting.pop_front_if(|_| fits);
        match &due {
            Some((bytes, _)) => state.used += bytes,
            None => state.handing_out = false,
        }
        due
    }
}

impl Permit {
    /// Returns the part of the permit above `bytes`. A permit never grows.
    pub fn shrink_to(&mut self, bytes: usize) {
        let over = self.bytes.saturating_sub(bytes);
        if over > 0 {
            self.bytes -= over;
            self.admission.give_back(over);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_bound_holds_and_nobody_is_overtaken() {
        let admission = Admission::new(100);
        let first = admission.try_admit(80).unwrap();
        let (tx, rx) = mpsc::channel();
        let large = tx.clone();
        admission.admit(90, Box::new(move |p| large.send(("large", p)).unwrap()));
        admission.admit(10, Box::new(move |p| tx.send(("small", p)).unwrap()));
        assert!(admission.try_admit(1).is_none(), "a newcomer would overtake");
        assert!(rx.try_recv().is_err());
        drop(first);
        let (name, large) = rx.try_recv().unwrap();
        assert_eq!(name, "large");
        let (name, small) = rx.try_recv().unwrap();
        assert_eq!(name, "small");
        drop((large, small));
        assert_eq!(admission.load(), (0, 0));
    }

    /// Each dropped waiter was one level of recursion, until the stack overflowed.
    #[test]
    fn a_long_line_of_waiters_that_are_gone_is_passed_over() {
        let admission = Admission::new(100);
        let held = admission.try_admit(100).unwrap();
        for _ in 0..200_000 {
            admission.admit(100, Box::new(drop));
        }
        drop(held);
        assert_eq!(admission.load(), (0, 0));
    }

    #[test]
    fn a_permit_that_shrinks_lets_others_in() {
        let admission = Admission::new(100);
        let mut held = admission.try_admit(90).unwrap();
        let (tx, rx) = mpsc::channel();
        admission.admit(50, Box::new(move |p| tx.send(p).unwrap()));
        held.shrink_to(95);
        assert!(rx.try_recv().is_err(), "it does not grow");
        held.shrink_to(50);
        let other = rx.try_recv().unwrap();
        assert_eq!(admission.load(), (100, 0));
        drop((held, other));
        assert_eq!(admission.load(), (0, 0));
    }

    #[test]
    fn a_request_larger_than_the_bound_gets_its_turn_alone() {
        let admission = Admission::new(100);
        let whole = admission.try_admit(1000).unwrap();
        assert!(admission.try_admit(1).is_none());
        drop(whole);
        assert!(admission.try_admit(100).is_some());
    }
}
