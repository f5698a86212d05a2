//! The audit log (target `audit`): a line for each change that was made or refused over HTTP, by polylogue's own API or RabbitMQ's, and for
//! each change of topics, settings, users, access control lists, quotas and groups by the Kafka protocol. At most
//! [`LINES_PER_SECOND_MAX`] per second; a line never contains a password, a key derived from one, or a message.
//!
//! Declarations of applications over AMQP are not logged.

mod kafka;

pub(crate) use kafka::{outcome, what};

use crate::handle::BrokerHandle;
use crate::lines::Lines;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::net::IpAddr;
use std::sync::Arc;

/// The maximum number of lines per second; beyond it lines are only counted.
pub const LINES_PER_SECOND_MAX: u32 = 200;
/// The same for refused changes: refused clients must not displace other lines.
const REFUSED_PER_SECOND_MAX: u32 = 50;
/// Length at which names and paths are truncated. Characters.
const TEXT_MAX: usize = 200;
/// The user of a request without a login.
const NO_USER: &str = "-";

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    broker: Arc<dyn BrokerHandle>,
    lines: Mutex<Lines>,
    refused: Mutex<Lines>,
    written: Counter,
    left_out: Counter,
}

impl Audit {
    /// Creates it with its counters registered.
    #[must_use]
    pub fn new(broker: Arc<dyn BrokerHandle>, registry: &mut Registry) -> Audit {
        let (written, left_out) = (Counter::default(), Counter::default());
        registry.register("audit_lines", "Lines written to the audit log", written.clone());
        let text = "Changes not written to the audit log because there were too many in a second";
        registry.register("audit_lines_left_out", text, left_out.clone());
        let lines = Mutex::new(Lines::new(LINES_PER_SECOND_MAX - REFUSED_PER_SECOND_MAX));
        Audit { broker, lines, refused: Mutex::new(Lines::new(REFUSED_PER_SECOND_MAX)), written, left_out }
    }

    /// Writes a line: the user, the address, the protocol, the action, and the outcome.
    pub fn tell(&self, user: Option<&str>, address: IpAddr, protocol: &str, what: &str, outcome: &str) {
        let now_ms = self.broker.now().monotonic_ms;
        let lines = if is_refusal(outcome) { &self.refused } else { &self.lines };
        let Some(left_out) = lines.lock().next(now_ms) else {
            self.left_out.inc();
            return;
        };
        self.written.inc();
        let (user, what) = (cut(user.unwrap_or(NO_USER)), cut(what));
        tracing::info!(target: "audit", user, %address, protocol, outcome, left_out, "{what}");
    }
}

/// Whether the outcome, an HTTP status or a word, means that nothing was changed.
fn is_refusal(outcome: &str) -> bool {
    outcome.starts_with(['4', '5']) || outcome == "refused"
}

/// Sanitizes a client's text: truncated, and without control characters that could forge a line.
fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_stays_on_its_line() {
        assert_eq!(cut("a\nINFO audit: b\u{1b}[31m"), "a INFO audit: b [31m");
        assert_eq!(cut(&"ä".repeat(300)).chars().count(), TEXT_MAX);
    }
}
