//! Runs lots in parallel lanes, each by the next free one.
//!
//! ```text
//!   lots    [long] [shorter] [short] ...       started in order
//!   lane 0  [long..............................][short......]
//!   lane 1  [shorter.................][another..........]
//! ```

use crate::error::{BenchError, Context, Result};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

/// Processes all `lots` by `lanes`, which run in parallel threads.
///
/// # Errors
/// The first error of `body`, after which no lot is started, or a thread cannot be started.
pub fn in_lanes<L: Send, T: Send>(
    lanes: Vec<L>,
    lots: Vec<T>,
    body: impl Fn(&mut L, T) -> Result<()> + Sync,
) -> Result<()> {
    let left = Mutex::new(VecDeque::from(lots));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = |mut lane: L| {
        while let Some(lot) = next() {
            body(&mut lane, lot).inspect_err(|_| left.lock().unwrap_or_else(PoisonError::into_inner).clear())?;
        }
        Ok(())
    };
    scope(|scope| {
        let work = &work;
        let start = |lane| Builder::new().name("bench-lane".to_owned()).spawn_scoped(scope, move || work(lane));
        let threads: Vec<_> = lanes.into_iter().map(start).collect();
        let mut all = Ok(());
        for thread in threads {
            let ended = thread.context(|| "cannot start a thread".to_owned()).and_then(|thread| {
                thread.join().unwrap_or_else(|_| Err(BenchError::new("a lane has panicked; see above")))
            });
            all = all.and(ended);
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A lane that sends its lot's number to the other lane, and waits for that one's.
    struct Meeting(Sender<u32>, Receiver<u32>);

    fn two() -> Vec<Meeting> {
        let ((to_first, first), (to_second, second)) = (channel(), channel());
        vec![Meeting(to_second, first), Meeting(to_first, second)]
    }

    #[test]
    fn lots_are_worked_off_at_the_same_time_and_each_once() {
        let met = Mutex::new(Vec::new());
        let body = |Meeting(to, from): &mut Meeting, lot: u32| {
            to.send(lot).map_err(|_| BenchError::new("no one is there"))?;
            let other = from.recv_timeout(PATIENCE).map_err(|_| BenchError::new("no one came"))?;
            met.lock().expect("no one panics").push((lot, other));
            Ok(())
        };
        in_lanes(two(), vec![1, 2, 3, 4], body).expect("they meet");
        let mut met = met.into_inner().expect("no one panics");
        met.sort_unstable();
        assert_eq!(met, [(1, 2), (2, 1), (3, 4), (4, 3)], "in their order");
    }

    #[test]
    fn after_an_error_nothing_is_begun() {
        let begun = Mutex::new(Vec::new());
        let body = |(): &mut (), lot: u32| {
            begun.lock().expect("no one panics").push(lot);
            if lot == 2 { Err(BenchError::new("the disk is full")) } else { Ok(()) }
        };
        let stated = in_lanes(vec![()], vec![1, 2, 3], body).expect_err("one has failed").to_string();
        assert_eq!((stated.as_str(), begun.into_inner().expect("no one panics")), ("the disk is full", vec![1, 2]));
    }

    #[test]
    fn with_nothing_to_do_lanes_end() {
        in_lanes(vec![(), ()], Vec::<u32>::new(), |(), _| Err(BenchError::new("there is none"))).expect("nothing");
        in_lanes(Vec::<()>::new(), Vec::<u32>::new(), |(), _| Ok(())).expect("nothing");
    }
}
