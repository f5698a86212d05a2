//! Moves dead messages from queue to queue for as long as the process lives, whoever is connected.

use crate::handle::{BrokerHandle, ReplySink};
use crate::net::mailbox::{Mail, Mailbox};
use polylogue_amqp_gateway::{DeadCounts, DeadLetters};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::collections::VecDeque;
use std::sync::Arc;

/// What became of dead messages since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeadMetrics {
    moved: Counter,
    dropped: Counter,
    retried: Counter,
}

impl DeadMetrics {
    /// Counters that the registry knows.
    pub(crate) fn register(registry: &mut Registry) -> DeadMetrics {
        let metrics = DeadMetrics::default();
        for (name, help, counter) in [
            ("dead_letters_moved", "Dead messages that are in another queue now", &metrics.moved),
            (
                "dead_letters_dropped",
                "Dead messages with no exchange or queue to go to, or only full ones, or that went round",
                &metrics.dropped,
            ),
            ("dead_letters_retried", "Tries to move a dead message that have to be made again", &metrics.retried),
        ] {
            registry.register(name, help, counter.clone());
        }
        metrics
    }

    fn count(&self, counts: DeadCounts) {
        let DeadCounts { moved, dropped, retried } = counts;
        for (counter, more) in [(&self.moved, moved), (&self.dropped, dropped), (&self.retried, retried)] {
            counter.inc_by(more);
        }
    }
}

/// Between `dead` and the broker. Never ends.
pub(crate) async fn run(broker: Arc<dyn BrokerHandle>, mut dead: DeadLetters, metrics: DeadMetrics) {
    let mailbox = Arc::new(Mailbox::default());
    let sink: Arc<dyn ReplySink> = mailbox.clone();
    let session = broker.new_session();
    let mut mail = VecDeque::new();
    loop {
        while let Some((token, request)) = dead.poll_request() {
            broker.submit(&sink, session, token, request);
        }
        metrics.count(dead.take_counts());
        mailbox.arrived().await;
        mailbox.take(&mut mail);
        for one in mail.drain(..) {
            match one {
                Mail::Reply(token, reply) => dead.on_reply(token, reply),
                Mail::Event(event) => dead.on_event(event, broker.now()),
                // Of connections only.
                Mail::Permit(_) | Mail::Stop => {}
            }
        }
    }
}
