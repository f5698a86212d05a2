//! Who changed what: a line of the log (target `audit`) for each change that was made or refused over HTTP, by polylogue's own API or
//! RabbitMQ's, and for each change of topics, settings, users, access control lists, quotas and groups by Kafka's protocol. At most
//! [`LINES_PER_SECOND_MAX`] a second; a line never has a password, a key of one, or a message.
//!
//! What applications declare for themselves over AMQP is not among them.

mod kafka;

pub(crate) use kafka::{outcome, what};

use crate::handle::BrokerHandle;
use crate::lines::Lines;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::net::IpAddr;
use std::sync::Arc;

/// Lines in a second; of the others only the number is logged.
pub const LINES_PER_SECOND_MAX: u32 = 200;
/// Of them, at most so many of what was refused: refused clients must not keep others' changes out of the log.
const REFUSED_PER_SECOND_MAX: u32 = 50;
/// What is written of a name or a path. Characters.
const TEXT_MAX: usize = 200;
/// Who did not have to log in.
const NO_USER: &str = "-";

/// See the module.
#[derive(Debug)]
pub struct Audit {
    broker: Arc<dyn BrokerHandle>,
    lines: Mutex<Lines>,
    refused: Mutex<Lines>,
    written: Counter,
    left_out: Counter,
}

impl Audit {
    /// With counters that the registry knows.
    #[must_use]
    pub fn new(broker: Arc<dyn BrokerHandle>, registry: &mut Registry) -> Audit {
        let (written, left_out) = (Counter::default(), Counter::default());
        registry.register("audit_lines", "Lines of the audit log about changes", written.clone());
        let text = "Changes about which there is no line because there were too many in a second";
        registry.register("audit_lines_left_out", text, left_out.clone());
        let lines = Mutex::new(Lines::new(LINES_PER_SECOND_MAX - REFUSED_PER_SECOND_MAX));
        Audit { broker, lines, refused: Mutex::new(Lines::new(REFUSED_PER_SECOND_MAX)), written, left_out }
    }

    /// A user at that address did something over that protocol, with that outcome.
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

/// Whether nothing was changed: a status of HTTP, or a word.
fn is_refusal(outcome: &str) -> bool {
    outcome.starts_with(['4', '5']) || outcome == "refused"
}

/// What others say, without what could be a line of its own.
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
