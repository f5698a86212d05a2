//! The protocol between the bench and a worker, the same for every driver in every language.
//!
//! ```text
//!   polylogue-bench                                    worker (a process: `polylogue-bench worker`, Java, librdkafka)
//!        |   {"topic":"t","rate":10000,...}\n             |
//!        |------------------- stdin --------------------> |   connects, finds its partitions, places its readers
//!        |                                 {"ready":true} |
//!        | <------------------ stdout ------------------- |
//!        |   {"start_ns":1763...}\n                       |   Unix nanoseconds, a little ahead
//!        |   {"start_ns":1763...}\n                       |   Unix nanoseconds, slightly ahead
//!        |           {"second":{"second":0,"sent":10000,..|   one line a second
//!        |           {"second":{"second":1,...}}          |
//!        | <--------------------------------------------- |   everything sent is answered and read, or timeout
//!        |           {"done":{...}}                       |   the last line; the worker exits with 0
//! ```
//!
//! ```text
//!   start        start + warmup_ms               start + warmup_ms + window_ms
//!     |--------------|---------------------------------|----------- drain -----------|
//!       discarded      latencies of messages due here     responses and readers reach their end
//! ```
//!
//! With `open_warmup` the bench sends the start of the window, because the length of a warm-up is determined while it runs:
//!
//! ```text
//!   polylogue-bench                                              worker
//!        |   {"start_ns":1763...}\n                                |   sends and reads; all of it is warm-up
//!        | <-------------------------- {"second":{...}} ----------- |
//!        |   {"measure_ns":1763...,"window_ms":60000}\n             |   one more line, slightly ahead of `measure_ns`
//!        |------------------------- stdin ------------------------> |   measures from then on, and ends after the window
//!
//!   start             measure_ns              measure_ns + window_ms
//!     |------------------|---------------------------------|----------- drain -----------|
//! ```
//!
//! Rules for a worker in any language:
//! - After the start it continues to read standard input, on a separate thread: the line may arrive at any time, or never.
//! - Until it arrives, the window starts `warmup_ms` after the start and lasts `window_ms`, as without `open_warmup`.
//! - When it arrives, both times are replaced: latencies count for messages due from `measure_ns` on, no message is due
//!   from `measure_ns + window_ms` on, and the run must be over [`DRAIN_MS_MAX`] after that. Due times do not move, and
//!   seconds are still counted from the start.
//! - Only the first such line counts. An invalid one fails the run; the end of the input does not.
//! - Without `open_warmup` nothing follows the start, and a worker need not continue to read.
//!
//! With `messages` the run ends after that many instead of after its window, and every latency counts from `warmup_ms` on.
//! A message is due by [`crate::schedule`] if there is a rate; otherwise when it is passed to the client.
//! Its content is that of [`crate::stamp`]: sequences count from 0 for each producer and partition.
//!
//! A producer keeps a partition until it has written `batch_bytes` to it, then uses the next one, as Kafka's producer
//! does for messages without a key (KIP-794). The raw driver changes after each batch, so it uses more partitions.

mod shape;

pub use shape::{Filter, Payloads, Shape, Spread, TOPICS_MAX, topic_name, topic_number};

use crate::amqp::load::QueueLoad;
use crate::error::{BenchError, Context, Result};
use crate::latency::Latency;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::str::FromStr;

/// The maximum length of a worker's line. Bytes; two histograms make up most of it.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Time for a worker to send, be answered and read to the end after its window. Milliseconds.
pub const DRAIN_MS_MAX: u64 = 60_000;

/// Where readers start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// At the first message.
    #[default]
    Beginning,
    /// After the last message at the time when the worker is ready.
    End,
}

/// The client of the Java worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// kafka-clients, for Kafka and polylogue.
    #[default]
    Kafka,
    /// amqp-client: AMQP 0-9-1, for RabbitMQ and polylogue.
    Rabbitmq,
    /// stream-client: RabbitMQ's streams.
    RabbitmqStream,
    /// pulsar-client.
    Pulsar,
    /// rocketmq-client.
    Rocketmq,
    /// tubemq-client.
    Tubemq,
}

impl System {
    /// All systems.
    pub const ALL: [System; 6] =
        [System::Kafka, System::Rabbitmq, System::RabbitmqStream, System::Pulsar, System::Rocketmq, System::Tubemq];

    /// Returns the name in a spec and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Kafka => "kafka",
            System::Rabbitmq => "rabbitmq",
            System::RabbitmqStream => "rabbitmq-stream",
            System::Pulsar => "pulsar",
            System::Rocketmq => "rocketmq",
            System::Tubemq => "tubemq",
        }
    }

    /// Whether pipelined messages of one producer to one partition are stored in the order in which they were
    /// sent. `RocketMQ` and `TubeMQ` guarantee that only for a producer that waits for each response: for them disorder is reported, and is not a
    /// failure.
    #[must_use]
    pub fn keeps_order_of_pipelined(self) -> bool {
        !matches!(self, System::Rocketmq | System::Tubemq)
    }

    fn is_kafka(&self) -> bool {
        *self == System::Kafka
    }
}

impl FromStr for System {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<System> {
        let found = System::ALL.into_iter().find(|system| system.name() == text);
        found.ok_or_else(|| {
            let names = System::ALL.map(System::name).join(", ");
            BenchError::new(format!("{text} is no system: {names}"))
        })
    }
}

/// Interval at which readers commit their positions by default: that of Kafka's and `RocketMQ`'s clients.
pub const COMMIT_MS: u64 = 5_000;

fn commit_ms() -> u64 {
    COMMIT_MS
}

fn is_commit_ms(ms: &u64) -> bool {
    *ms == COMMIT_MS
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// The load of a worker.
///
/// Meaning of the fields for the official Java clients, each as similar as the client allows:
///
/// | | `batch_bytes` | `linger_us` | `in_flight` | `commit_ms` |
/// |---|---|---|---|---|
/// | kafka | `batch.size` | `linger.ms` | `max.in.flight.requests.per.connection`, at most 5 | `auto.commit.interval.ms` |
/// | rabbitmq | nothing: one by one | nothing | messages without a confirm | nothing: `queues` tells |
/// | rabbitmq-stream | `batchSize`, in messages | `batchPublishingDelay`; 0: `dynamicBatch` | full batches: `maxUnconfirmedMessages` | flush interval of the tracked offsets |
/// | pulsar | `batchingMaxBytes`; one message: no batching | `batchingMaxPublishDelay`, at least 1 ms | full batches: `maxPendingMessages` | `acknowledgmentGroupTime` |
/// | rocketmq | `batchMaxBytes` of `autoBatch` | `batchMaxDelayMs`, at least 1 ms | full batches: messages without an answer | `persistConsumerOffsetInterval` |
/// | tubemq | nothing: one by one | nothing | full batches: messages without an answer | nothing: each fetch is confirmed |
///
/// With all of them `in_flight` 1 is a blocking send: the next message goes when the one before it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The broker, `HOST:PORT`.
    pub bootstrap: String,
    /// The topic; it exists, or is created (`create`).
    pub topic: String,
    /// Its partitions.
    pub partitions: u32,
    /// Producers, each with its own connection. 0: only reads.
    pub producers: u32,
    /// The number of the first producer; differs between runs on a topic.
    pub producer_base: u32,
    /// Readers of each group, each with its own connection; they share the partitions.
    pub consumers: u32,
    /// Groups, each of which reads everything. 0: only writes.
    pub groups: u32,
    /// Bytes of a message's value; at least [`crate::stamp::STAMP_BYTES`].
    pub message_bytes: u32,
    /// Messages per second over all producers; 0: unlimited.
    pub rate: u64,
    /// Ends after this many messages over all producers; 0: by time.
    pub messages: u64,
    /// Discarded time at the start; with `open_warmup` its maximum. Milliseconds.
    pub warmup_ms: u64,
    /// Measured time. Milliseconds; with `messages` the timeout of the run.
    pub window_ms: u64,
    /// The maximum size of a batch. Bytes; smaller than a message: one message per batch.
    pub batch_bytes: u32,
    /// How long a message may wait for others. Microseconds.
    pub linger_us: u64,
    /// Batches per request of the raw driver, each for another partition; other drivers decide themselves.
    pub batches_per_request: u32,
    /// Requests in flight per producer.
    pub in_flight: u32,
    /// Where readers start.
    pub from: From,
    /// Number of messages that a group should find if none of its producers is in this worker; otherwise 0.
    pub expect: u64,
    /// The maximum rate of all readers together. Bytes per second; 0: unlimited.
    pub read_bytes_per_s_max: u64,
    /// Whether the worker has idle priority; see [`Load::reader_gives_way`](crate::matrix::Load::reader_gives_way).
    /// Set by its starter: the worker does not know.
    #[serde(skip)]
    pub gives_way: bool,
    /// Whether read messages are verified. Off only for a broker that returns canned messages.
    pub verify: bool,
    /// For the AMQP driver: partitions are queues, and `in_flight` counts unconfirmed messages. Not sent to other
    /// drivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueueLoad>,
    /// Whether the bench sends the start of the window while the worker runs ([`Measure`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_warmup: bool,
    /// Further properties of the load.
    #[serde(default, skip_serializing_if = "Shape::is_plain")]
    pub shape: Shape,
    /// The client of the Java worker.
    #[serde(default, skip_serializing_if = "System::is_kafka")]
    pub system: System,
    /// Whether the Java worker creates the topic with its partitions, unless it exists, before it is ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub create: bool,
    /// Administration address of a system that creates topics elsewhere, `HOST:PORT`; without it they must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// Interval at which the readers of the Java worker commit their positions. Milliseconds.
    #[serde(default = "commit_ms", skip_serializing_if = "is_commit_ms")]
    pub commit_ms: u64,
}

impl Spec {
    /// Checks that a worker can run it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(BenchError::new(format!("the spec for topic {}: {what}", self.topic)));
        if (self.message_bytes as usize) < crate::stamp::STAMP_BYTES {
            return wrong(&format!(
                "message_bytes is {}, a stamp takes {}",
                self.message_bytes,
                crate::stamp::STAMP_BYTES
            ));
        }
        if self.partitions == 0 {
            return wrong("partitions is 0");
        }
        if self.producers == 0 && self.groups == 0 {
            return wrong("neither producers nor groups: there is nothing to do");
        }
        if self.groups > 0 && self.consumers == 0 {
            return wrong("groups without consumers");
        }
        if self.producers > 0 && (self.in_flight == 0 || self.batches_per_request == 0) {
            return wrong("in_flight and batches_per_request must be at least 1");
        }
        if self.window_ms == 0 {
            return wrong("window_ms is 0");
        }
        self.shape.wrong(self.groups).map_or(Ok(()), |what| wrong(&what))
    }

    /// Total number of partitions of all topics.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.partitions.saturating_mul(self.shape.topics)
    }

    /// The name of a topic.
    #[must_use]
    pub fn topic_name(&self, number: u32) -> String {
        topic_name(&self.topic, self.shape.topics, number)
    }

    /// Returns how many places a group reads: the first ones.
    #[must_use]
    pub fn places_of(&self, group: u32) -> u32 {
        let topics = self.shape.filters(group, self.groups).map_or(self.shape.topics, |filter| filter.topics);
        self.partitions.saturating_mul(topics)
    }

    /// Returns how many messages of this size fit into a batch, at least one. Framing is not counted.
    #[must_use]
    pub fn records_per_batch(&self) -> usize {
        (self.batch_bytes / self.message_bytes.max(1)).max(1) as usize
    }
}

#[cfg(any(test, feature = "testing"))]
impl Spec {
    /// A valid spec.
    pub fn example() -> Spec {
        Spec {
            bootstrap: "127.0.0.1:1".to_owned(),
            topic: "t".to_owned(),
            partitions: 3,
            producers: 1,
            producer_base: 0,
            consumers: 1,
            groups: 1,
            message_bytes: 1_024,
            rate: 1_000,
            messages: 0,
            warmup_ms: 0,
            window_ms: 1_000,
            batch_bytes: 16_384,
            linger_us: 0,
            batches_per_request: 1,
            in_flight: 5,
            from: From::Beginning,
            expect: 0,
            read_bytes_per_s_max: 0,
            gives_way: false,
            verify: true,
            queues: None,
            open_warmup: false,
            shape: Shape::default(),
            system: System::Kafka,
            create: false,
            admin: None,
            commit_ms: COMMIT_MS,
        }
    }
}

/// The start signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// When the first message is due. Unix nanoseconds.
    pub start_ns: u64,
}

/// Ends an open warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// When the window starts. Unix nanoseconds.
    pub measure_ns: u64,
    /// Length of the window. Milliseconds.
    pub window_ms: u64,
}

/// Returns the seconds of a run that are wholly in its window; none for a short one.
pub fn whole_seconds(warmup_ms: u64, window_ms: u64) -> Range<u64> {
    warmup_ms.div_ceil(1_000)..(warmup_ms + window_ms) / 1_000
}

/// The report of one second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Second {
    /// Number of the second, from the start.
    pub second: u64,
    /// Messages passed to the client.
    pub sent: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages read, over all groups.
    pub received: u64,
    /// The maximum publish latency. Nanoseconds.
    pub publish_max_ns: u64,
    /// Its 99th percentile. Nanoseconds; absent with too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_p99_ns: Option<u64>,
    /// The maximum end-to-end latency. Nanoseconds.
    pub end_to_end_max_ns: u64,
    /// Its 99th percentile. Nanoseconds; absent with too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end_p99_ns: Option<u64>,
    /// All latencies of the second, if requested ([`Shape::histograms`]): HdrHistogram V2, compressed, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<String>,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<String>,
}

/// The final report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Done {
    /// Messages passed to the client.
    pub sent: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages due in the window that count as acknowledged without confirms, when there is no publish latency: they count
    /// when the socket has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_acked: Option<u64>,
    /// Messages refused or not answered.
    pub errors: u64,
    /// The first error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Distinct messages read, over all groups.
    pub received: u64,
    /// Messages that were acknowledged, or followed by later ones, and not read, over all groups.
    pub lost: u64,
    /// Those followed by later ones: they are lost, however many are still to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holes: Option<u64>,
    /// Messages read again.
    pub duplicated: u64,
    /// Messages read after later ones.
    pub out_of_order: u64,
    /// Processor time of the worker from the start to the end. Seconds.
    pub cpu_s: f64,
    /// From the first message's due time to the last acknowledgement. Seconds.
    pub publish_s: f64,
    /// From the start to the last message read. Seconds.
    pub read_s: f64,
    /// Bytes of values read.
    pub read_bytes: u64,
    /// Latency from due to acknowledged, of messages due in the window: HdrHistogram V2, compressed, base64; nanoseconds.
    pub publish: String,
    /// Latency from due to read, likewise.
    pub end_to_end: String,
}

impl Done {
    /// Returns the number of messages due in the window that were acknowledged, or count as such.
    ///
    /// # Errors
    /// The publish histogram is invalid.
    pub fn acked_in_window(&self) -> Result<u64> {
        match self.window_acked {
            Some(count) => Ok(count),
            None => Ok(Latency::from_text(&self.publish)?.count()),
        }
    }
}

/// A line of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The worker is ready to start.
    Ready(bool),
    /// The report of a second.
    Second(Second),
    /// The final report.
    Done(Box<Done>),
}

impl Line {
    /// Parses a line of a worker.
    ///
    /// # Errors
    /// It is invalid.
    pub fn parse(text: &str) -> Result<Line> {
        if text.len() > LINE_BYTES_MAX {
            return Err(BenchError::new(format!(
                "a worker wrote a line of {} bytes; at most {LINE_BYTES_MAX} are read",
                text.len()
            )));
        }
        serde_json::from_str(text)
            .context(|| format!("a worker wrote {:?}, which is no line of the contract", shorten(text)))
    }

    /// Returns the line, without its end.
    ///
    /// # Errors
    /// It cannot be encoded as JSON.
    pub fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context(|| "cannot write a line".to_owned())
    }
}

/// Length at which an invalid text is truncated in errors. Characters.
const SHOWN_MAX: usize = 200;

fn shorten(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_any_worker_writes_them() {
        assert_eq!(Line::parse(r#"{"ready":true}"#), Ok(Line::Ready(true)));
        let second =
            r#"{"second":{"second":3,"sent":10,"acked":9,"received":8,"publish_max_ns":7,"end_to_end_max_ns":6}}"#;
        let Ok(Line::Second(second)) = Line::parse(second) else { panic!("a second") };
        assert_eq!((second.second, second.acked, second.publish_p99_ns), (3, 9, None));
        let done = Line::Done(Box::new(Done { sent: 5, error: Some("refused".to_owned()), ..Done::default() }));
        assert_eq!(Line::parse(&done.to_text().expect("JSON")), Ok(done));
        let wrong = Line::parse("Exception in thread main").expect_err("no line").to_string();
        assert!(wrong.contains("Exception in thread main"), "it says what was written: {wrong}");
    }

    #[test]
    fn a_spec_that_cannot_be_run_is_refused() {
        let good = Spec::example();
        assert_eq!(good.check(), Ok(()));
        let text = serde_json::to_string(&good).expect("JSON");
        assert_eq!(serde_json::from_str::<Spec>(&text).expect("a spec"), good);
        assert!(
            serde_json::from_str::<Spec>(&text.replace("\"rate\"", "\"rat\"")).is_err(),
            "a slip of the pen is stated"
        );
        for bad in [
            Spec { message_bytes: 19, ..good.clone() },
            Spec { partitions: 0, ..good.clone() },
            Spec { producers: 0, groups: 0, ..good.clone() },
            Spec { consumers: 0, ..good.clone() },
            Spec { in_flight: 0, ..good.clone() },
            Spec { window_ms: 0, ..good.clone() },
            Spec { shape: Shape { topics: 0, ..Shape::default() }, ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn systems_are_called_the_same_in_a_spec_and_on_the_command_line() {
        for system in System::ALL {
            assert_eq!(serde_json::to_string(&system).expect("JSON"), format!("\"{}\"", system.name()));
            assert_eq!(system.name().parse(), Ok(system));
        }
        assert!("nats".parse::<System>().is_err());
    }

    /// Workers built before these fields existed refuse unknown ones.
    #[test]
    fn what_is_as_always_is_not_told() {
        let text = serde_json::to_string(&Spec::example()).expect("JSON");
        for field in ["system", "create", "admin", "commit_ms"] {
            assert!(!text.contains(field), "{field}: {text}");
        }
        let pulsar = Spec { system: System::Pulsar, create: true, commit_ms: 100, ..Spec::example() };
        let text = serde_json::to_string(&pulsar).expect("JSON");
        assert!(text.contains(r#""system":"pulsar","create":true,"commit_ms":100"#), "{text}");
        assert_eq!(serde_json::from_str::<Spec>(&text).expect("a spec"), pulsar);
    }
}
