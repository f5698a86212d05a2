//! Message counters and their rates, sampled every five seconds as in RabbitMQ.

use super::Management;
use parking_lot::Mutex;
use polylogue_amqp_gateway::{Count, QueueCount, Traffic};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// RabbitMQ's `collect_statistics_interval`.
const SAMPLE_EACH: Duration = Duration::from_secs(5);

/// A counter with RabbitMQ's name.
type Named = (&'static str, fn(&Traffic) -> u64);

/// `message_stats`. Disk reads and writes are not counted by message.
const MESSAGES: &[Named] = &[
    ("publish", |traffic| traffic.count(Count::Received)),
    ("confirm", |traffic| traffic.count(Count::Confirmed)),
    ("return_unroutable", |traffic| traffic.count(Count::Returned)),
    ("drop_unroutable", |traffic| traffic.count(Count::Dropped)),
    ("deliver", |traffic| traffic.of_all_queues(QueueCount::ConsumedManualAck)),
    ("deliver_no_ack", |traffic| traffic.of_all_queues(QueueCount::ConsumedAutoAck)),
    ("get", |traffic| traffic.of_all_queues(QueueCount::GotManualAck)),
    ("get_no_ack", |traffic| traffic.of_all_queues(QueueCount::GotAutoAck)),
    ("get_empty", |traffic| traffic.of_all_queues(QueueCount::GotNothing)),
    ("deliver_get", |traffic| {
        use QueueCount::{ConsumedAutoAck, ConsumedManualAck, GotAutoAck, GotManualAck};
        let all = [ConsumedManualAck, ConsumedAutoAck, GotManualAck, GotAutoAck];
        all.into_iter().map(|what| traffic.of_all_queues(what)).sum()
    }),
    ("redeliver", |traffic| traffic.of_all_queues(QueueCount::Redelivered)),
    ("ack", |traffic| traffic.of_all_queues(QueueCount::Acknowledged)),
];

/// `churn_rates`.
const CHURN: &[Named] = &[
    ("connection_created", |traffic| traffic.count(Count::ConnectionsOpened)),
    ("connection_closed", |traffic| traffic.count(Count::ConnectionsClosed)),
    ("channel_created", |traffic| traffic.count(Count::ChannelsOpened)),
    ("channel_closed", |traffic| traffic.count(Count::ChannelsClosed)),
    ("queue_declared", |traffic| traffic.count(Count::QueuesDeclared)),
    ("queue_created", |traffic| traffic.count(Count::QueuesCreated)),
    ("queue_deleted", |traffic| traffic.count(Count::QueuesDeleted)),
];

/// A sample of the counters.
#[derive(Clone, Debug)]
struct Sample {
    /// Monotonic time. Milliseconds.
    at_ms: u64,
    /// In the order of the two tables.
    counts: [u64; MESSAGES.len() + CHURN.len()],
}

/// The last two samples.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<Option<(Sample, Sample)>>);

impl Rates {
    /// Takes a sample.
    pub(super) fn sample(&self, traffic: &Traffic, now_ms: u64) {
        let mut counts = [0; MESSAGES.len() + CHURN.len()];
        for (count, (_, number)) in counts.iter_mut().zip(MESSAGES.iter().chain(CHURN)) {
            *count = number(traffic);
        }
        let now = Sample { at_ms: now_ms, counts };
        let mut samples = self.0.lock();
        let before = samples.take().map_or_else(|| now.clone(), |(_, last)| last);
        *samples = Some((before, now));
    }

    /// Returns the rate of each counter between the last two samples, in the order of the tables. Per second.
    fn per_sec(&self) -> [f64; MESSAGES.len() + CHURN.len()] {
        let mut rates = [0.0; MESSAGES.len() + CHURN.len()];
        if let Some((before, last)) = &*self.0.lock() {
            let ms = last.at_ms.saturating_sub(before.at_ms).max(1);
            for (rate, (from, to)) in rates.iter_mut().zip(before.counts.iter().zip(&last.counts)) {
                *rate = to.saturating_sub(*from) as f64 * 1_000.0 / ms as f64;
            }
        }
        rates
    }

    /// Returns `message_stats` and `churn_rates`.
    pub(super) fn shapes(&self, traffic: &Traffic) -> (Value, Value) {
        let per_sec = self.per_sec();
        let mut rates = per_sec.iter();
        let mut shape = |table: &[Named]| {
            let mut shape = Map::new();
            for ((name, number), rate) in table.iter().zip(&mut rates) {
                shape.insert((*name).to_owned(), number(traffic).into());
                shape.insert(format!("{name}_details"), json!({"rate": rate}));
            }
            Value::Object(shape)
        };
        (shape(MESSAGES), shape(CHURN))
    }
}

/// Samples until the API or the runtime is dropped.
pub fn watch(runtime: &tokio::runtime::Handle, management: &Arc<Management>) {
    let management: Weak<Management> = Arc::downgrade(management);
    runtime.spawn(async move {
        let mut looks = tokio::time::interval(SAMPLE_EACH);
        loop {
            looks.tick().await;
            let Some(app) = management.upgrade() else { return };
            app.rates.sample(app.directory.traffic(), app.broker.now().monotonic_ms);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_for_two_numbers() {
        let (messages, churn) = Rates::default().shapes(&Traffic::default());
        let len = |shape: &Value| shape.as_object().map(Map::len);
        assert_eq!((len(&messages), len(&churn)), (Some(2 * MESSAGES.len()), Some(2 * CHURN.len())));
        assert_eq!((&messages["ack"], &churn["queue_deleted_details"]), (&json!(0), &json!({"rate": 0.0})));
    }

    /// A single sample yields no rate; two at the same time do not either.
    #[test]
    fn rates_need_time() {
        let rates = Rates::default();
        for at_ms in [5, 5, 10] {
            rates.sample(&Traffic::default(), at_ms);
            assert!(rates.per_sec().iter().all(|rate| *rate == 0.0));
        }
    }
}
