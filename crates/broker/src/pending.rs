//! Appends that wait for their commit, over however many shards their partitions are in.

use crate::sink::Origin;
use parking_lot::Mutex;
use polylogue_api::{AppendError, Appended, Reply};

/// The results of one append request, completed part by part; the last part sends the reply.
#[derive(Debug)]
pub(crate) struct PendingAppend {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    origin: Option<Origin>,
    results: Vec<Result<Appended, AppendError>>,
    parts_open: usize,
}

impl PendingAppend {
    /// `results` are what is known or will be true once committed; the reply leaves after `parts_open` parts.
    pub(crate) fn new(origin: Origin, results: Vec<Result<Appended, AppendError>>, parts_open: usize) -> PendingAppend {
        PendingAppend { state: Mutex::new(State { origin: Some(origin), results, parts_open }) }
    }

    /// A part's fate is known: with an error, its entries (by position in the request) did not make it.
    pub(crate) fn part_done(&self, positions: &[u32], error: Option<AppendError>) {
        let mut state = self.state.lock();
        if let Some(error) = error {
            for position in positions {
                if let Some(result) = state.results.get_mut(*position as usize) {
                    *result = Err(error);
                }
            }
        }
        state.parts_open = state.parts_open.saturating_sub(1);
        if state.parts_open == 0
            && let Some(origin) = state.origin.take()
        {
            let results = std::mem::take(&mut state.results);
            drop(state);
            origin.reply(Reply::Append(results));
        }
    }
}
