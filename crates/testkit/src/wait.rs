//! Waiting for what another process does.

use crate::Result;
use std::time::{Duration, Instant};

/// Between two looks at what is waited for.
const POLL: Duration = Duration::from_millis(5);

/// A moment by which something must have happened. Generous: it only ends tests that would hang.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// So many seconds from now.
    #[must_use]
    pub fn in_secs(secs: u64) -> Deadline {
        Deadline(Instant::now() + Duration::from_secs(secs))
    }

    /// How long is left: zero when it is over.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Asks again and again until the answer is there.
///
/// # Errors
/// What `ask` fails with; or that `what` did not happen within `secs`.
pub fn wait_until<T>(what: &str, secs: u64, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Deadline::in_secs(secs);
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if deadline.left().is_zero() {
            return Err(format!("waited {secs} s in vain: {what}"));
        }
        std::thread::sleep(POLL);
    }
}
