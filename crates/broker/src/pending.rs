//! Requests that wait for the commit of their parts in several shards.

use crate::sink::Origin;
use parking_lot::Mutex;
use polylogue_api::{AppendError, Appended, PublishError, Reply, SettleError, TrimError};
use polylogue_types::Offset;

/// The results of one request, completed part by part; the last part sends the reply.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    state: Mutex<State<T>>,
}

/// A waiting append.
pub(crate) type PendingAppend = Pending<Result<Appended, AppendError>>;
/// A waiting publish.
pub(crate) type PendingPublish = Pending<Result<(), PublishError>>;
/// Waiting settlements.
pub(crate) type PendingSettle = Pending<Result<(), SettleError>>;
/// A waiting trim.
pub(crate) type PendingTrim = Pending<Result<Offset, TrimError>>;

/// The outcome of one part of a waiting request.
pub(crate) trait Outcomes: Sized {
    /// The reply to the whole request.
    fn reply(results: Vec<Self>) -> Reply;
}

impl Outcomes for Result<Appended, AppendError> {
    fn reply(results: Vec<Self>) -> Reply {
        Reply::Append(results)
    }
}

impl Outcomes for Result<Offset, TrimError> {
    fn reply(results: Vec<Self>) -> Reply {
        Reply::TrimPartitions(results)
    }
}

impl Outcomes for Result<(), PublishError> {
    fn reply(results: Vec<Self>) -> Reply {
        Reply::Publish(results)
    }
}

impl Outcomes for Result<(), SettleError> {
    fn reply(results: Vec<Self>) -> Reply {
        Reply::Settle(results)
    }
}

#[derive(Debug)]
struct State<T> {
    origin: Option<Origin>,
    results: Vec<T>,
    parts_open: usize,
}

impl<T: Outcomes + Clone> Pending<T> {
    /// `results`: known results, or those that become true at the commit; the reply is sent after `parts_open` parts.
    pub(crate) fn new(origin: Origin, results: Vec<T>, parts_open: usize) -> Pending<T> {
        Pending { state: Mutex::new(State { origin: Some(origin), results, parts_open }) }
    }

    /// Adds one more part to wait for. Only while another part is open.
    pub(crate) fn grow(&self) {
        self.state.lock().parts_open += 1;
    }

    /// Sets the result of one item.
    pub(crate) fn set(&self, position: u32, result: T) {
        if let Some(slot) = self.state.lock().results.get_mut(position as usize) {
            *slot = result;
        }
    }

    /// Completes a part. With an error, its entries (by position in the request) have failed.
    pub(crate) fn part_done(&self, positions: &[u32], error: Option<T>) {
        let mut state = self.state.lock();
        if let Some(error) = error {
            for position in positions {
                if let Some(result) = state.results.get_mut(*position as usize) {
                    *result = error.clone();
                }
            }
        }
        state.parts_open = state.parts_open.saturating_sub(1);
        if state.parts_open == 0
            && let Some(origin) = state.origin.take()
        {
            let results = std::mem::take(&mut state.results);
            drop(state);
            origin.reply(T::reply(results));
        }
    }
}
