//! Faults of the broker, logged: immediately when one begins, and when it is over.
//!
//! ```text
//!   each second, and when the disk's alarm changes     health() ── against what was logged ──> a line for each thing that changed
//!   background work that goes on failing               a line a kind at once, then one in [`AGAIN_MS`], with how often and the last reason
//! ```
//!
//! The broker itself writes no log. What is logged here is in `/api/v1/status` too, and in metrics.

use polylogue_net::handle::{Failure, Health};
use std::collections::BTreeMap;

/// Interval at which a repeatedly failing kind of work is logged again. Milliseconds.
const AGAIN_MS: u64 = 60_000;

/// Failures of a kind of work that have been logged.
#[derive(Debug)]
struct LoggedFailures {
    count: u64,
    at_ms: u64,
}

/// A change of health to be logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HealthChange {
    /// Messages are refused; the reason.
    WritesRefused(String),
    /// Messages are accepted again.
    WritesAccepted,
    /// The disk alarm was raised; the reason.
    DiskAlarmRaised(String),
    /// The disk alarm was cleared.
    DiskAlarmCleared,
    /// Number of journals that have lost their writer.
    WritersLost(u64),
    /// All journals have a writer again.
    WritersRecovered,
    /// Background work has failed: its kind, failures since the last log line, and the last error.
    Failed(&'static str, u64, String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LoggedFaults {
    refuses: bool,
    waits: bool,
    writers_lost: u64,
    failures: BTreeMap<&'static str, LoggedFailures>,
}

impl LoggedFaults {
    /// Compares health with what was logged; returns the changes.
    pub(crate) fn changes(&mut self, health: Health, now_ms: u64) -> Vec<HealthChange> {
        let mut all = Vec::new();
        let Health { refuses_writes, disk_alarm, writers_lost, failures } = health;
        if self.refuses != refuses_writes.is_some() {
            self.refuses = refuses_writes.is_some();
            all.push(refuses_writes.map_or(HealthChange::WritesAccepted, HealthChange::WritesRefused));
        }
        if self.waits != disk_alarm.is_some() {
            self.waits = disk_alarm.is_some();
            all.push(disk_alarm.map_or(HealthChange::DiskAlarmCleared, HealthChange::DiskAlarmRaised));
        }
        if self.writers_lost != writers_lost {
            self.writers_lost = writers_lost;
            all.push(if writers_lost > 0 {
                HealthChange::WritersLost(writers_lost)
            } else {
                HealthChange::WritersRecovered
            });
        }
        all.extend(failures.into_iter().filter_map(|(what, failure)| self.failed(what, failure, now_ms)));
        all
    }

    fn failed(&mut self, what: &'static str, Failure { count, last }: Failure, now_ms: u64) -> Option<HealthChange> {
        let before = self.failures.get(what);
        let more = count - before.map_or(0, |logged| logged.count.min(count));
        let is_soon = before.is_some_and(|logged| now_ms < logged.at_ms.saturating_add(AGAIN_MS));
        if more == 0 || is_soon {
            return None;
        }
        self.failures.insert(what, LoggedFailures { count, at_ms: now_ms });
        Some(HealthChange::Failed(what, more, last))
    }
}

impl HealthChange {
    /// Writes its line.
    pub(crate) fn log(&self) {
        match self {
            HealthChange::WritesRefused(why) => tracing::error!("messages are refused: {why}"),
            HealthChange::WritesAccepted => tracing::info!("messages are accepted again"),
            HealthChange::DiskAlarmRaised(why) => {
                tracing::warn!("disk alarm raised: publishers to queues are blocked: {why}")
            }
            HealthChange::DiskAlarmCleared => tracing::info!("disk alarm cleared: publishers to queues continue"),
            HealthChange::WritersLost(count) => {
                tracing::error!(
                    count,
                    "journals have lost their writer; they get a new one when the pending writes are resolved"
                );
            }
            HealthChange::WritersRecovered => tracing::info!("all journals have a writer again"),
            HealthChange::Failed(what, count, last) => {
                tracing::error!(count, "background work failed: {what}: {last}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(count: u64) -> Health {
        let failure = Failure { count, last: format!("number {count}") };
        Health { failures: [("merge", failure)].into(), ..Health::default() }
    }

    /// Regression: alerts referred to the log, but the broker counted failures without logging them.
    #[test]
    fn what_fails_in_the_background_is_told_at_once_and_then_each_minute() {
        let mut reported = LoggedFaults::default();
        let failed = |count, last: &str| vec![HealthChange::Failed("merge", count, last.to_owned())];
        assert_eq!(reported.changes(Health::default(), 0), []);
        assert_eq!(reported.changes(failing(1), 1_000), failed(1, "number 1"));
        assert_eq!(reported.changes(failing(1), 2_000), []);
        assert_eq!(reported.changes(failing(5), 3_000), [], "it was reported a moment ago");
        assert_eq!(reported.changes(failing(9), 61_000), failed(8, "number 9"));
        assert_eq!(reported.changes(failing(9), 900_000), [], "it has failed no more");
        assert_eq!(reported.changes(failing(10), 900_001), failed(1, "number 10"));
    }

    #[test]
    fn a_state_is_told_when_it_begins_and_when_it_ends() {
        let mut reported = LoggedFaults::default();
        let why = || Some("the disk is full".to_owned());
        let bad = Health { refuses_writes: why(), disk_alarm: why(), writers_lost: 2, ..Health::default() };
        let reason = "the disk is full".to_owned();
        let begun = [
            HealthChange::WritesRefused(reason.clone()),
            HealthChange::DiskAlarmRaised(reason),
            HealthChange::WritersLost(2),
        ];
        assert_eq!(reported.changes(bad.clone(), 0), begun);
        assert_eq!(reported.changes(bad, 1_000), []);
        assert_eq!(
            reported.changes(Health::default(), 2_000),
            [HealthChange::WritesAccepted, HealthChange::DiskAlarmCleared, HealthChange::WritersRecovered]
        );
    }
}
