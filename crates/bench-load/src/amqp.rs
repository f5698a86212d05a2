//! The AMQP driver: a minimal client, so that the broker is measured; the same for every broker.
//!
//! ```text
//!   thread "bench-produce"                                thread "bench-read"
//!   schedule -> template, stamped -> socket               socket -> deliveries -> stamps verified, ages taken
//!          <- confirms -> latencies                       -> acknowledgements, in batches
//! ```
//!
//! A message is sent as three frames in one buffer: method, header, body.
//!
//! ```text
//!   +------------------------------+----------------------------+-------------------------------+
//!   | basic.publish "" queue name  | header: size, delivery mode | body: stamp, filler           |
//!   +------------------------------+----------------------------+-------------------------------+
//!                                                                       ^ written for each message
//! ```
//!
//! [`load`] has the parameters of queues; [`wire`] prepares a connection; [`input`] splits frames; [`publisher`] and
//! [`consumer`] are the two halves; [`template`] is a reusable message.

pub mod consumer;
pub mod input;
pub mod load;
pub mod publisher;
pub mod template;
pub mod wire;

use crate::contract::Spec;
use crate::error::{BenchError, Result};
use load::QueueLoad;

/// Returns a spec's queue parameters.
///
/// # Errors
/// It has none: it is for another driver.
pub fn queues(spec: &Spec) -> Result<QueueLoad> {
    spec.queues.ok_or_else(|| BenchError::new(format!("the spec for topic {} says nothing of queues", spec.topic)))
}

/// Returns the name of a queue, which is used like a partition of Kafka's drivers.
#[must_use]
pub fn queue_name(topic: &str, number: u32) -> String {
    format!("{topic}-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MS_NS, unix_ns};
    use crate::contract::{Done, From, Line, Start};
    use crate::latency::Latency;
    use crate::null::Faults;
    use crate::null::amqp::start;
    use crate::worker::work;
    use consumer::Consumers;
    use load::QueueKind;
    use publisher::Publishers;
    use std::io::Cursor;

    const LOAD: QueueLoad = QueueLoad {
        kind: QueueKind::Classic,
        durable: true,
        confirms: true,
        prefetch: 50,
        ack_every: 10,
        exchange: None,
    };

    fn done(faults: Faults, change: impl FnOnce(&mut Spec)) -> Done {
        let server = start(([127, 0, 0, 1], 0).into(), faults).expect("it starts");
        let mut spec = Spec {
            bootstrap: server.to_string(),
            topic: "measured".to_owned(),
            producer_base: 4,
            rate: 0,
            messages: 5_000,
            window_ms: 20_000,
            in_flight: 100,
            from: From::End,
            queues: Some(LOAD),
            ..Spec::example()
        };
        change(&mut spec);
        let begin = Start { start_ns: unix_ns() + 20 * MS_NS };
        let stated = [serde_json::to_string(&spec), serde_json::to_string(&begin)].map(|text| text.expect("JSON"));
        let mut output = Vec::new();
        work::<Publishers, Consumers>(Cursor::new(stated.map(|line| line + "\n").concat().into_bytes()), &mut output)
            .expect("it works");
        let text = String::from_utf8(output).expect("text");
        let Some(Ok(Line::Done(done))) = text.lines().last().map(Line::parse) else { panic!("no end: {text}") };
        *done
    }

    #[test]
    fn all_that_is_published_is_confirmed_and_consumed_in_order() {
        let done = done(Faults::default(), |_| ());
        assert_eq!((done.sent, done.acked, done.received, done.error), (5_000, 5_000, 5_000, None));
        assert_eq!((done.lost, done.duplicated, done.out_of_order), (0, 0, 0));
        assert_eq!(done.read_bytes, 5_000 * 1_024);
        let ages = Latency::from_text(&done.end_to_end).expect("a histogram");
        assert_eq!(ages.count(), 5_000);
    }

    #[test]
    fn bodies_of_several_frames_and_messages_that_nobody_confirms_go_through() {
        let weak = QueueLoad { confirms: false, ack_every: 0, prefetch: 0, ..LOAD };
        let done = done(Faults::default(), |spec| {
            (spec.message_bytes, spec.messages, spec.queues) = (300_000, 50, Some(weak));
        });
        assert_eq!((done.acked, done.received, done.lost, done.error), (50, 50, 0, None));
        let confirms = Latency::from_text(&done.publish).expect("a histogram");
        assert_eq!(confirms.count(), 0, "there was nothing to wait for");
    }

    /// Regression test: the publisher's connection was closed before `RabbitMQ` had routed everything, and its consumer was waited for until the timeout.
    #[test]
    fn messages_that_nobody_confirms_are_with_the_broker_when_their_publisher_goes() {
        let weak = QueueLoad { confirms: false, ack_every: 0, prefetch: 0, ..LOAD };
        let done = done(Faults { hangs_up: true, ..Faults::default() }, |spec| spec.queues = Some(weak));
        assert_eq!((done.acked, done.received, done.lost, done.error), (5_000, 5_000, 0, None));
    }

    #[test]
    fn a_rate_is_kept() {
        let done = done(Faults::default(), |spec| (spec.rate, spec.messages, spec.window_ms) = (2_000, 0, 500));
        assert_eq!((done.acked, done.received, done.lost, done.error), (1_000, 1_000, 0, None));
        assert!((0.4..2.0).contains(&done.publish_s), "{}", done.publish_s);
    }

    #[test]
    fn what_a_broker_doubles_is_found() {
        let done = done(Faults { double: 1_000, ..Faults::default() }, |_| ());
        assert!(done.duplicated >= 4, "{done:?}");
    }

    #[test]
    fn what_a_broker_swaps_is_found() {
        let done = done(Faults { swap: 1_100, ..Faults::default() }, |spec| spec.partitions = 1);
        assert_eq!((done.out_of_order, done.lost, done.duplicated), (4, 0, 0), "{done:?}");
    }

    /// As many are duplicated, so that the run ends without a timeout.
    #[test]
    fn what_a_broker_loses_is_found() {
        let done = done(Faults { lose: 999, double: 998, ..Faults::default() }, |_| ());
        assert_eq!(done.lost, 5, "{done:?}");
    }
}
