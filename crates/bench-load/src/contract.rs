//! A worker's input and output: the same for every driver in every language.
//!
//! ```text
//!   polylogue-bench                                    worker (a process: `polylogue-bench worker`, Java, librdkafka)
//!        |   {"topic":"t","rate":10000,...}\n             |
//!        |------------------- stdin --------------------> |   connects, finds its partitions, places its readers
//!        |                                 {"ready":true} |
//!        | <------------------ stdout ------------------- |
//!        |   {"start_ns":1763...}\n                       |   Unix nanoseconds, a little ahead
//!        |------------------- stdin --------------------> |   waits for it, then sends and reads
//!        |           {"second":{"second":0,"sent":10000,..|   one line a second
//!        |           {"second":{"second":1,...}}          |
//!        | <--------------------------------------------- |   all that was sent is answered and read, or time is up
//!        |           {"done":{...}}                       |   the last line; the worker ends with 0
//! ```
//!
//! ```text
//!   start        start + warmup_ms               start + warmup_ms + window_ms
//!     |--------------|---------------------------------|----------- drain -----------|
//!       thrown away    latencies of what is due in here   answers and readers come to an end
//! ```
//!
//! With `open_warmup` the bench says when what is measured begins, because how long a warm-up takes is found out while it goes on:
//!
//! ```text
//!   polylogue-bench                                              worker
//!        |   {"start_ns":1763...}\n                                |   sends and reads; all of it is warm-up
//!        | <-------------------------- {"second":{...}} ----------- |
//!        |   {"measure_ns":1763...,"window_ms":60000}\n             |   one more line, a little ahead of `measure_ns`
//!        |------------------------- stdin ------------------------> |   measures from then on, and ends a window later
//!
//!   start             measure_ns              measure_ns + window_ms
//!     |------------------|---------------------------------|----------- drain -----------|
//! ```
//!
//! Its rules for a worker in any language:
//! - After the start it goes on to read standard input, on a thread of its own: the line may come at any time, or never.
//! - Until it comes, what is measured begins `warmup_ms` after the start and takes `window_ms`, as without `open_warmup`.
//! - When it comes, both times of the run are moved to what it says: latencies count of what is due from `measure_ns` on, no message is due
//!   from `measure_ns + window_ms` on, and the run must be over [`DRAIN_MS_MAX`] after that. Due times themselves do not move, and
//!   the seconds go on to be counted from the start.
//! - Only the first such line counts. One that is no good ends the run as a failed one; the end of the input is none.
//! - Without `open_warmup` nothing follows the start, and a worker need not read on.
//!
//! With `messages` the run ends after that many instead of after its window, and every latency counts from `warmup_ms` on.
//! A message is due by [`crate::schedule`] when there is a rate; without one it is due when it is handed to the client.
//! Its content is that of [`crate::stamp`]: sequences count from 0 for each producer and partition.
//!
//! A producer stays with a partition until it has written `batch_bytes` to it, then goes on to the next: what Kafka's producer
//! does with messages without a key (KIP-794). The raw driver goes on after each batch, so it touches more partitions.

mod shape;

pub use shape::{Filter, Payloads, Shape, Spread, TOPICS_MAX, topic_name, topic_number};

use crate::amqp::load::QueueLoad;
use crate::error::{BenchError, Context, Result};
use crate::latency::Latency;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::str::FromStr;

/// The longest line that is read from a worker. Bytes; two histograms make up most of it.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// How long a worker may take to send, be answered and read to the end after its time is over. Milliseconds.
pub const DRAIN_MS_MAX: u64 = 60_000;

/// Where readers start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// At the first message that there is.
    #[default]
    Beginning,
    /// After the last message there is when the worker says that it is ready.
    End,
}

/// Which client the Java worker takes.
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
    /// All of them.
    pub const ALL: [System; 6] =
        [System::Kafka, System::Rabbitmq, System::RabbitmqStream, System::Pulsar, System::Rocketmq, System::Tubemq];

    /// The name in a spec and on the command line.
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

    /// Whether messages that one producer has sent to one partition, several at a time, are there in the order in which they were
    /// sent. `RocketMQ` and `TubeMQ` promise that only to a producer that waits for each answer: with them disorder is reported, and is no
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

/// How often readers tell the broker how far they are, by default: what Kafka's and `RocketMQ`'s clients do by themselves.
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

/// What a worker does.
///
/// What the fields become with the official Java clients, each applied as nearly the same as the client allows:
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
    /// The topic; it exists, or is made (`create`).
    pub topic: String,
    /// Its partitions.
    pub partitions: u32,
    /// Producers, each with a connection of its own. 0: only reads.
    pub producers: u32,
    /// The number of the first producer. Those of a topic's runs differ.
    pub producer_base: u32,
    /// Readers of each group, each with a connection of its own; they share the partitions between them.
    pub consumers: u32,
    /// Groups, each of which reads everything. 0: only writes.
    pub groups: u32,
    /// Bytes of a message's value; at least [`crate::stamp::STAMP_BYTES`].
    pub message_bytes: u32,
    /// Messages a second over all producers; 0: as fast as it goes.
    pub rate: u64,
    /// Ends after so many messages over all producers; 0: after its time.
    pub messages: u64,
    /// What is thrown away at the start; with `open_warmup` the most that is. Milliseconds.
    pub warmup_ms: u64,
    /// What is measured. Milliseconds; with `messages` the longest time that the run may take.
    pub window_ms: u64,
    /// The most that a batch holds. Bytes; smaller than a message: one message a batch.
    pub batch_bytes: u32,
    /// How long a message may wait for others. Microseconds.
    pub linger_us: u64,
    /// Batches that the raw driver puts into a request, each for another partition; the others decide for themselves.
    pub batches_per_request: u32,
    /// Unanswered requests of a producer at a time.
    pub in_flight: u32,
    /// Where readers start.
    pub from: From,
    /// How many messages a group should find, when none of its producers is in this worker; else 0.
    pub expect: u64,
    /// The fastest that all readers together may read. Bytes a second; 0: as fast as it goes.
    pub read_bytes_per_s_max: u64,
    /// Whether its worker gets a core only while it is otherwise idle; see [`Load::reader_gives_way`](crate::matrix::Load::reader_gives_way).
    /// Its starter sets that: the worker does not know.
    #[serde(skip)]
    pub gives_way: bool,
    /// Whether what is read is verified. Off only against a broker that answers with canned messages.
    pub verify: bool,
    /// For the AMQP driver: partitions are queues, and `in_flight` counts messages that are not confirmed. Other drivers are not
    /// shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueueLoad>,
    /// Whether the bench says while the worker runs when what is measured begins ([`Measure`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_warmup: bool,
    /// Whatever else the load is like.
    #[serde(default, skip_serializing_if = "Shape::is_plain")]
    pub shape: Shape,
    /// Which client the Java worker takes.
    #[serde(default, skip_serializing_if = "System::is_kafka")]
    pub system: System,
    /// Whether the Java worker makes the topic with its partitions, unless it is there, before it is ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub create: bool,
    /// Where a system is administered whose topics are made somewhere else than where messages go, `HOST:PORT`; without, they must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// How often the readers of the Java worker tell the broker how far they are. Milliseconds.
    #[serde(default = "commit_ms", skip_serializing_if = "is_commit_ms")]
    pub commit_ms: u64,
}

impl Spec {
    /// Whether a worker can do that.
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

    /// Partitions of all topics together.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.partitions.saturating_mul(self.shape.topics)
    }

    /// The name of a topic.
    #[must_use]
    pub fn topic_name(&self, number: u32) -> String {
        topic_name(&self.topic, self.shape.topics, number)
    }

    /// How many places a group reads: the first ones.
    #[must_use]
    pub fn places_of(&self, group: u32) -> u32 {
        let topics = self.shape.filters(group, self.groups).map_or(self.shape.topics, |filter| filter.topics);
        self.partitions.saturating_mul(topics)
    }

    /// How many messages of this size a batch holds, at least one. What frames them is not counted.
    #[must_use]
    pub fn records_per_batch(&self) -> usize {
        (self.batch_bytes / self.message_bytes.max(1)).max(1) as usize
    }
}

#[cfg(any(test, feature = "testing"))]
impl Spec {
    /// One that can be run.
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
    /// When what is measured begins. Unix nanoseconds.
    pub measure_ns: u64,
    /// How long it takes. Milliseconds.
    pub window_ms: u64,
}

/// The seconds of a run that are wholly in its window; none of a short one.
pub fn whole_seconds(warmup_ms: u64, window_ms: u64) -> Range<u64> {
    warmup_ms.div_ceil(1_000)..(warmup_ms + window_ms) / 1_000
}

/// What happened in one second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Second {
    /// Counted from the start.
    pub second: u64,
    /// Messages handed to the client.
    pub sent: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages read, over all groups.
    pub received: u64,
    /// The longest publish latency. Nanoseconds.
    pub publish_max_ns: u64,
    /// Its 99th percentile. Nanoseconds; absent with too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_p99_ns: Option<u64>,
    /// The longest end-to-end latency. Nanoseconds.
    pub end_to_end_max_ns: u64,
    /// Its 99th percentile. Nanoseconds; absent with too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end_p99_ns: Option<u64>,
    /// All latencies of the second, where they were asked for ([`Shape::histograms`]): HdrHistogram V2, compressed, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<String>,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<String>,
}

/// What became of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Done {
    /// Messages handed to the client.
    pub sent: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Messages due in the window that count as acknowledged, where nothing is and so no latency of publishing says how many: they count
    /// when the socket has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_acked: Option<u64>,
    /// Messages refused or never answered.
    pub errors: u64,
    /// The first thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Different messages read, over all groups.
    pub received: u64,
    /// Messages that were acknowledged, or that later ones followed, and that were not read, over all groups.
    pub lost: u64,
    /// Of these the ones that later ones followed: they are lost, however many are still to be read.
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
    /// From due to acknowledged, of messages due in the window: HdrHistogram V2, compressed, base64; nanoseconds.
    pub publish: String,
    /// From due to read, likewise.
    pub end_to_end: String,
}

impl Done {
    /// Messages due in the window that were acknowledged, or counted for it.
    ///
    /// # Errors
    /// When the histogram of publishing is none.
    pub fn acked_in_window(&self) -> Result<u64> {
        match self.window_acked {
            Some(count) => Ok(count),
            None => Ok(Latency::from_text(&self.publish)?.count()),
        }
    }
}

/// A line that a worker writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// It can start.
    Ready(bool),
    /// A second has passed.
    Second(Second),
    /// It has ended.
    Done(Box<Done>),
}

impl Line {
    /// Reads a line of a worker.
    ///
    /// # Errors
    /// When it is not one.
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

    /// The line, without its end.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context(|| "cannot write a line".to_owned())
    }
}

/// What is shown of a text that is no good. Characters.
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

    /// Workers that were built before these fields existed refuse what they do not know.
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
