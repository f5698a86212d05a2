//! Texts of the scenarios: what each shows, the published figures, and what is run here.

use crate::report::scenario::{Input, NotRun, ScenarioText};
use crate::results::ResultLine;

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// The first part of its cells' names.
    pub id: &'static str,
    /// A short title.
    pub title: &'static str,
    /// What it measures.
    pub what: &'static str,
    /// The published setting.
    pub setting: &'static str,
    /// A summary of the published figures; empty if there are none.
    pub published: &'static str,
    /// The setting here, and the factors by which it is smaller.
    pub here: &'static str,
    /// The systems that must take part beside polylogue.
    pub systems: &'static [&'static str],
    /// Reason why it is not run; empty if it is.
    pub not_run: &'static str,
}

impl Scenario {
    /// Returns the published setting and result, for a report.
    #[must_use]
    pub fn published(&self) -> String {
        match (self.setting, self.published) {
            ("", found) => found.to_owned(),
            (setting, "") => format!("{setting}."),
            (setting, found) => format!("{setting}. Found: {found}."),
        }
    }

    /// Returns its text for a report; `published` is that of [`Scenario::published`].
    #[must_use]
    pub fn text<'a>(&self, published: &'a str) -> ScenarioText<'a> {
        ScenarioText { id: self.id, title: self.title, what: self.what, published, scaled: self.here }
    }
}

/// Returns all that is not run, for a report.
pub fn not_run() -> impl Iterator<Item = NotRun<'static>> {
    let whole = SCENARIOS.iter().filter(|scenario| !scenario.not_run.is_empty());
    let whole = whole.map(|scenario| NotRun { what: scenario.id, target: "", reason: scenario.not_run });
    whole.chain(NOT_RUN.iter().map(|not| NotRun { what: not.what, target: not.target, reason: not.reason }))
}

/// The texts of a report, for the scenarios of its lines.
#[derive(Debug)]
pub struct Texts {
    scenarios: Vec<(&'static Scenario, String)>,
    not_run: Vec<NotRun<'static>>,
}

/// [`Texts`] in the report's types.
#[derive(Debug)]
pub struct TextsOf<'a> {
    scenarios: Vec<ScenarioText<'a>>,
    not_run: &'a [NotRun<'static>],
}

impl Texts {
    /// Returns the texts for the scenarios of `lines`; what is not run only if one of them has peers.
    #[must_use]
    pub fn of(lines: &[ResultLine]) -> Texts {
        let is_measured =
            |scenario: &&Scenario| lines.iter().any(|line| line.cell.split('/').next() == Some(scenario.id));
        let scenarios: Vec<_> =
            SCENARIOS.iter().filter(is_measured).map(|scenario| (scenario, scenario.published())).collect();
        // The matrix against one peer belongs to no scenario with peers.
        let has_peers = scenarios.iter().any(|(scenario, _)| !scenario.systems.is_empty());
        Texts { scenarios, not_run: if has_peers { not_run().collect() } else { Vec::new() } }
    }

    /// The texts in the report's types.
    #[must_use]
    pub fn borrow(&self) -> TextsOf<'_> {
        let scenarios = self.scenarios.iter().map(|(scenario, published)| scenario.text(published)).collect();
        TextsOf { scenarios, not_run: &self.not_run }
    }
}

impl<'a> TextsOf<'a> {
    /// Returns the input of a report of `lines`.
    #[must_use]
    pub fn input(&'a self, lines: &'a [ResultLine]) -> Input<'a> {
        Input { lines, scenarios: &self.scenarios, not_run: self.not_run }
    }
}

/// A system that does not take part in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRunHere {
    /// The scenario, or a part of it.
    pub what: &'static str,
    /// The system; empty for all.
    pub target: &'static str,
    /// Why not.
    pub reason: &'static str,
}

const CONFLUENT: &str = "Confluent 2020, OpenMessaging Benchmark: 3 brokers of 8 processors, 64 GB and 2 NVMe disks, 4 load machines, \
                         replication 3";
const PUTRA: &str = "Anton Putra: one broker of 2 processors, 16 GB and a local SSD; messages of about 100 bytes";
const VENDORS: &str =
    "3 nodes of 8 processors and 32 GB, default settings, the vendors' own tools; 10 partitions, mirrored queues";
const STREAMNATIVE: &str =
    "StreamNative 2020, OpenMessaging Benchmark, the hardware of A; durability local (sync, async) and replicated";
const TENCENT: &str = "Tencent: one broker, SATA RAID10, no flush per message; one stream in, two out";
const NONE: &str = "";
const QUEUE_AND_LOGS: &[&str] = &["kafka", "pulsar", "rabbitmq"];
const LOGS_AND_QUEUES: &[&str] = &["kafka", "rocketmq", "rabbitmq"];
const KAFKA_PULSAR: &[&str] = &["kafka", "pulsar"];
const KAFKA_TUBEMQ: &[&str] = &["kafka", "tubemq"];
const EVERYBODY: &[&str] = &["kafka", "rabbitmq", "pulsar", "rocketmq", "tubemq"];
const THREE_NODES: &str = "it needs three nodes; this is one machine, and polylogue runs as one node";

macro_rules! scenarios {
    ($($id:literal, $title:literal, $systems:expr, $setting:expr, $what:literal, $published:expr, $here:literal $(, not run: $not:expr)?;)*) => {
        &[$(Scenario {
            id: $id, title: $title, what: $what, setting: $setting, published: $published, here: $here, systems: $systems,
            not_run: concat_or_empty!($($not)?),
        },)*]
    };
}

macro_rules! concat_or_empty {
    () => {
        ""
    };
    ($not:expr) => {
        $not
    };
}

/// All scenarios, in the order of the report.
pub const SCENARIOS: &[Scenario] = scenarios! {
    "bare", "The machine alone", &[], NONE,
    "The cost of reading, summing, writing, flushing and sending without a broker: the floor of all figures.", NONE,
    "loops of 256 MiB files; 52 KiB flushed 1,000 times a second";
    "flushes", "What each broker flushes", &[], NONE,
    "Flushes of each broker and bytes per flush, counted by call in a separate short run: the observed durability.", NONE,
    "5,000 messages a second, 1 partition or queue, one round";
    "floors", "The client alone", &[], NONE,
    "Publish latency of each client with a broker that responds at once and stores nothing, with the load of the rows that measure latency at one given rate: \
     no broker can be better.", NONE,
    "the rates, partitions, topics, producers and batches of those rows, with the clients of Kafka's protocol and AMQP; one round";
    "A1", "Peak stable throughput", QUEUE_AND_LOGS, CONFLUENT,
    "The rate is raised until consumers no longer keep up: 100 partitions, 4 producers, 4 consumers, batches up to 1 MB or 10 ms.",
    "Kafka about 600 MB/s, both disks full; Pulsar about half of it; RabbitMQ about 1/15 of it, bound by its processors",
    "rates x 1/4 (queues x 1/20), 4 s a step, two halvings between the last rate met and the first rate missed; replication 1";
    "A2", "Throughput by batch", QUEUE_AND_LOGS, CONFLUENT,
    "The cost of a flush per batch, as batches grow from 1 KB to 1 MB.",
    "sync costs Kafka a factor of 3 to 5 at 1 and 10 KB, nothing from 100 KB on",
    "unlimited rate for 5 s instead of minutes, 1 producer, replication 1; queues have no batches: one row";
    "A3", "Peak throughput with a flush per message", QUEUE_AND_LOGS, CONFLUENT,
    "A1 where every message is flushed before it is acknowledged.",
    "Kafka close to its async figure with large batches; Pulsar without journal sync was unstable and omitted",
    "rates x 1/4; RabbitMQ with quorum queues, which flush";
    "A4", "Latency at a rate that all can sustain", QUEUE_AND_LOGS, CONFLUENT,
    "End-to-end and publish latency, batching up to 1 ms; also on all cores, and with each flush delayed by 2 ms.",
    "200,000/s for logs, 30,000/s for queues. End-to-end p99: Kafka about 5 ms, Pulsar about 25 ms, RabbitMQ about 1 ms; Kafka with \
     fsync stays below Pulsar up to p99.9",
    "logs: 25,000/s (x 1/8) with the raw client, 12,500/s on all cores, 5,000/s (x 1/40) with librdkafka, 1,000/s of one producer to one consumer with Java's; queues: 7,500/s \
     (x 1/4). At x 1/8 with own clients, and x 1/2 for queues, most missed the rate or left less than 30 % of two cores idle";
    "A5", "Queue latency by rate", &["rabbitmq"], CONFLUENT,
    "Classic and replicated queues as the rate grows.",
    "mirrored: near 2 s p99 at 38,000/s; classic holds up to about 100,000/s",
    "5,000, 10,000 and 20,000/s (x 1/2); mirrored queues no longer exist: quorum queues of one node, at 5,000/s";
    "A6", "Producers alone, consumers alone, backlog", QUEUE_AND_LOGS, CONFLUENT,
    "The cost of writing and of reading separately, and the time to read a backlog while producers continue.", NONE,
    "500,000 messages written, then read twice; a backlog of 2,000,000 (queues: 200,000) drained while 10,000/s (2,000/s) are written";
    "A7", "Routing", &["rabbitmq"], CONFLUENT,
    "Direct and topic exchanges, one queue for each routing key.", "direct beats topic",
    "100 queues, unlimited rate for 5 s";
    "B1", "Ramp: Kafka and classic RabbitMQ", &["kafka", "rabbitmq"], PUTRA,
    "Latency, broker and client processor time, memory and disk as the rate is raised until the broker fails.",
    "RabbitMQ at low rates: half of Kafka's latency, half of its clients' processor time; full at 15,000/s, time-outs at 33,000/s. Kafka \
     continues with a full processor and fails at 230,000/s",
    "the published rates (queues x 1/2 in searches; with own clients up to 33,000/s), 4 s a step; the clients are Java's instead of Go's";
    "B2", "Ramp: Kafka and RabbitMQ streams", &["kafka", "rabbitmq"], PUTRA,
    "The same with RabbitMQ's streams.",
    "streams: high latency from the start, 15 % processor when Kafka's is full at 12,000/s; full at 100,000/s, fails at 135,000/s; Kafka \
     fails at 272,000/s",
    "the published rates, 4 s a step";
    "C1", "1 KB, one in flight", LOGS_AND_QUEUES, VENDORS, "Each message waits for the acknowledgement of the previous one.",
    "Kafka 32,500/s, RocketMQ 28,300/s, RabbitMQ 15,800/s; p99 4.5, 3.2, 6.8 ms",
    "one node, one producer, 5 s instead of 10 minutes";
    "C2", "1 KB, pipelined", LOGS_AND_QUEUES, VENDORS, "Messages do not wait for earlier acknowledgements.",
    "Kafka 85,600/s, RocketMQ 72,400/s, RabbitMQ 38,200/s; p99 1.8, 1.3, 2.8 ms",
    "one node, one producer, 10 s instead of 10 minutes";
    "C3", "10 KB, one in flight", LOGS_AND_QUEUES, VENDORS, "As C1.", "Kafka 18,200/s, RocketMQ 16,500/s, RabbitMQ 9,200/s",
    "one node, one producer, 5 s instead of 10 minutes";
    "C4", "10 KB, pipelined", LOGS_AND_QUEUES, VENDORS, "As C2.", "Kafka 42,300/s, RocketMQ 36,800/s, RabbitMQ 21,500/s",
    "one node, one producer, 5 s instead of 10 minutes";
    "C5", "100 KB, one in flight", LOGS_AND_QUEUES, VENDORS, "As C1.",
    "Kafka 3,500/s, RocketMQ 3,200/s, RabbitMQ 1,800/s; p99 25.6, 20.3, 32.4 ms",
    "one node, one producer, 5 s instead of 10 minutes";
    "C6", "100 KB, pipelined", LOGS_AND_QUEUES, VENDORS, "As C2.",
    "Kafka 8,600/s, RocketMQ 7,500/s, RabbitMQ 4,100/s; p99 9.2, 8.1, 14.3 ms",
    "one node, one producer, 5 s instead of 10 minutes";
    "C7", "One consumer and several", LOGS_AND_QUEUES, VENDORS, "Each case of C1 to C6 with several readers; the rows C1 to C6 have one.", NONE,
    "4 readers of one group, one round";
    "D1", "Throughput, 100 partitions", KAFKA_PULSAR, STREAMNATIVE, "2 producers, 2 consumers, by durability.", NONE,
    "unlimited rate for 5 to 10 s, replication 1";
    "D2", "Throughput, 2,000 partitions", KAFKA_PULSAR, STREAMNATIVE, "The same with many partitions.",
    "ack-2: Kafka falls, publish mean 200 ms, p99 1,200 ms; with 4 producers about 600 MB/s",
    "unlimited rate for 5 s, replication 1; without flushes one round";
    "D3", "Throughput, 1 partition", KAFKA_PULSAR, STREAMNATIVE, "With two producers and consumers, and with one.",
    "one producer and consumer, sync: Kafka rises from a few to hundreds of ms, Pulsar stays at a few",
    "unlimited rate for 5 s, replication 1";
    "D4", "Latency, 1 subscription", KAFKA_PULSAR, STREAMNATIVE, "Publish and end-to-end latency with 100 partitions.",
    "ack-1 publish p99/p99.9 ms: sync Pulsar 4.73/5.89, Kafka 11.37/18.71; async 4.21/5.45, 3.06/9.91. end-to-end: sync 5.86/7.65, \
     18.75/91.74; async 5.33/7.93, 6.94/17.24",
    "1,000/s of one producer to one consumer with own clients (without flushes that is A4's row), 20,000/s of two to two with the raw one (theirs is not given), replication 1";
    "D5", "Latency, 10 subscriptions", KAFKA_PULSAR, STREAMNATIVE, "The same with 10 groups of 2 readers each.",
    "publish p99 ms: sync Pulsar 4.89, Kafka 15.07; async 4.46, 6.35. end-to-end p99: sync 7.12, 145; async 6.84, 89.8",
    "5,000/s (theirs is not given), with flushes, and the same with one group; replication 1";
    "D6", "Latency as partitions grow", KAFKA_PULSAR, STREAMNATIVE, "100, 5,000, 8,000 and 10,000 partitions.",
    "publish p99 ms, 100 to 10,000: sync Pulsar 4.73 to 5.36, Kafka 11.37 to 52.24; async 4.21 to 5.23, 3.06 to 41.83",
    "5,000/s (theirs is not given), the published numbers of partitions; with flushes the fewest and the most three times, all others once; without flushes, and with own clients (with flushes), the fewest and the most";
    "D7", "Readers far behind", KAFKA_PULSAR, STREAMNATIVE, "A backlog larger than any cache is read while producers continue at 200,000/s.", NONE,
    "10,000/s (x 1/20); 12 GiB instead of 512 GB, 4 times the 3 GiB that each broker may use, page cache included; one round";
    "D8", "Readers far behind and at the tail", KAFKA_PULSAR, STREAMNATIVE, "The effect of D7 on publish latency and on a reader at the tail.",
    "Kafka's publish p99 rises to 1 to 3 s; Pulsar stays at milliseconds to tens of milliseconds",
    "as D7, and the same without the lagging reader; polylogue with the raw client three times, with own clients one round";
    "E1", "Partitions and message sizes", KAFKA_TUBEMQ, TENCENT, "Throughput as partitions and messages grow.",
    "TubeMQ flat but lower; Kafka falls slightly", "unlimited rate for 5 s";
    "E2", "Storage instances", KAFKA_TUBEMQ, TENCENT, "Throughput as storage instances grow.",
    "TubeMQ rises with instances, level at 4",
    "1 and 4; Kafka and polylogue have none, one partition stands for one. Readers are at the tail, so that reads are from memory";
    "E3", "Many topics", KAFKA_TUBEMQ, TENCENT, "100 to 1,000 topics of 10 partitions: latency, open files, memory, connections.",
    "at 1,000 topics Kafka has 45,000 files and 12,000 connections and slows down; TubeMQ 7,500 files, 150 connections, flat",
    "5,000/s, 2 producers and 2 readers over all topics, one round; with own clients 100 topics, and 500 as E8";
    "E4", "Filtered readers", KAFKA_TUBEMQ, TENCENT, "1 full reader of 100 topics, and 5 groups that each filter 10 % of the same 20 topics.",
    "filtering at the server reduces outgoing traffic and speeds up producers; Kafka's outgoing traffic is about twice its incoming",
    "the published topics; TubeMQ filters at the server, Kafka and polylogue at the client, which reads all of the 20 topics";
    "E5", "End-to-end delay", KAFKA_TUBEMQ, TENCENT, "The delay of a message, with a producer that lingers and with one that does not.",
    "90 % within 10 ms, Kafka about 250 ms: its producer lingered 200 ms, TubeMQ's consumer waited 10 ms instead of 200",
    "5,000/s, linger 0 and 200 ms; TubeMQ's client has no batches and does not linger: its latencies are not compared with those of lingering clients";
    "E6", "Memory", KAFKA_TUBEMQ, TENCENT, "Throughput by the memory limit of the broker.", "more helps, to a point",
    "control groups of 1.5 and 3 GiB, page cache included, instead of the size of TubeMQ's own cache; one round";
    "E7", "Readers far behind and producers", KAFKA_TUBEMQ, TENCENT, "The effect of reads from disk on producers.",
    "both suffer from disk reads; SSD staging compensates for some of it", "as D7 in half of its memory, one round; no SSD staging: the disk is the machine's only one";
    "E8", "Stability", KAFKA_TUBEMQ, TENCENT, "Stability with 500 topics of 10 partitions; published for other machines, too.",
    "Kafka unstable on one kind of machine, but ahead of TubeMQ on SSD",
    "one machine, the published topics with own clients, 5,000/s for 15 s, one round; judged by the spread over seconds";
    "F1", "Connections", EVERYBODY, NONE, "2 to 10,000 idle and active connections: memory per connection, accept rate, tail latency.", NONE,
    "2 and 10,000 idle after the protocol's greeting, or after TCP's handshake if it has none; active 2 and 1,000, with own clients 2; one round";
    "F2", "Killed under load", EVERYBODY, NONE,
    "kill -9, then restart: time until the first acknowledged write, acknowledged messages lost (must be 0), duplicates.", NONE,
    "5,000/s for 6 s; with own clients the time includes the client's own start; RocketMQ and TubeMQ get one message at a time, because their clients do not keep pipelined messages in order";
    "F3", "One node of three killed", EVERYBODY, NONE, "Seconds without acknowledged writes, messages lost.", NONE, "", not run: THREE_NODES;
    "F4", "30 minutes", EVERYBODY, NONE, "Memory, files and latency must not drift.", NONE, "",
    not run: "it takes 30 minutes for each system: too long for this matrix, in which runs take minutes";
    "F5", "One message, every protocol", EVERYBODY, NONE, "A message published by one protocol and read by every other.", NONE, "",
    not run: "no other system here speaks several protocols; polylogue's own tests cover it";
};

/// Omissions within scenarios that are run. Limited by two cores, one disk and six hours: the ends of an axis are measured, and points between
/// them only if they answer another question.
pub const NOT_RUN: &[NotRunHere] = &[
    NotRunHere { what: "A, D: ack-quorum, acks=all of three replicas, writeQuorum 3", target: "", reason: THREE_NODES },
    NotRunHere {
        what: "A2: 10 and 100 KB without flushes",
        target: "",
        reason: "the ends are measured, and all four sizes with flushes",
    },
    NotRunHere {
        what: "A2: 10 and 100 KB, and without flushes",
        target: "pulsar",
        reason: "Java's clients run the ends with flushes only",
    },
    NotRunHere {
        what: "A3: Pulsar without journal sync",
        target: "pulsar-nosync",
        reason: "A1 has it; a flush per message needs the journal's sync",
    },
    NotRunHere {
        what: "A4: 2 ms a flush",
        target: "tubemq",
        reason: "it flushes by count and time, not before it acknowledges: no message waits for a flush",
    },
    NotRunHere {
        what: "A4 on all cores: every client but the raw one",
        target: "",
        reason: "less than 30 % of two cores is idle with the other clients, so that latencies are not compared",
    },
    NotRunHere {
        what: "A6: writing only, reading only",
        target: "pulsar",
        reason: "the drain covers it, with readers and writers at once",
    },
    NotRunHere {
        what: "A6: reading only",
        target: "rabbitmq",
        reason: "the drain covers it, with readers and writers at once",
    },
    NotRunHere {
        what: "D2: four producers",
        target: "",
        reason: "with polylogue, one producer already uses all of the client's core",
    },
    NotRunHere {
        what: "D3: two producers without flushes",
        target: "",
        reason: "the second producer matters with flushes",
    },
    NotRunHere {
        what: "D5: without flushes",
        target: "",
        reason: "it measures the effect of ten groups on flushed writes; without flushes it is close to D4",
    },
    NotRunHere {
        what: "D6: 5,000 and 8,000 partitions, and without flushes",
        target: "pulsar",
        reason: "it has 100 and 10,000 with flushes, and misses the rate with 10,000",
    },
    NotRunHere {
        what: "D7: journal bypassed",
        target: "pulsar",
        reason: "Pulsar 4 is run with its journal, with and without sync",
    },
    NotRunHere {
        what: "D7, D8: Kafka with flushes, Pulsar without its sync, polylogue async",
        target: "",
        reason: "a cold backlog takes 2.5 minutes a side, and the rows measure how it is read (whether this depends on how it was flushed \
                 was not measured); D8 with the raw client compares polylogue with itself",
    },
    NotRunHere {
        what: "E1: more than 1 KiB with 1 and 100 partitions",
        target: "",
        reason: "three points: both ends of partitions, and a larger message",
    },
    NotRunHere {
        what: "E3: 200 and 1,000 topics",
        target: "tubemq",
        reason: "it has 100 and, in E8, 500; the rows between are polylogue and Kafka with the raw client",
    },
    NotRunHere { what: "E8: other machines", target: "", reason: "there is one machine" },
    NotRunHere { what: "F1: 1,000 active connections of own clients", target: "", reason: "two cores; not tried" },
    NotRunHere {
        what: "B2, C1, C3 to C7, D2, D3, E1, E2, E4, E6: the raw client, although Java's client uses all of its core",
        target: "",
        reason: "limited time; C2, D1 and E3 have it, and client-bound rows have a winner in CPU only",
    },
    NotRunHere {
        what: "The null broker with own clients other than Kafka's, in ladders, drains and kills, and at unlimited rate",
        target: "",
        reason: "it speaks Kafka's protocol and AMQP; the other rows do not measure latency at one given rate, and B1 has its own steps",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::front::{CHARTS, HEADLINE, check, pages};
    use crate::report::latest;
    use crate::results::read;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Returns the committed result lines and texts.
    fn committed() -> Vec<ResultLine> {
        let files = (1..=7).map(|part| root().join(format!("benches/results/compare-{part}.jsonl")));
        let lines = files.map(|file| read(&file)).collect::<crate::error::Result<Vec<_>>>().unwrap().concat();
        latest(&lines)
    }

    #[test]
    fn committed_pages_and_headline_table_are_what_the_result_lines_give() {
        let lines = committed();
        let texts = Texts::of(&lines);
        let texts = texts.borrow();
        check(texts.input(&lines), Some(&root().join("report")), Some(&root().join("README.md"))).unwrap();
    }

    #[test]
    fn a_changed_figure_is_named_with_its_file() {
        let mut lines = committed();
        let line = lines
            .iter_mut()
            .find(|line| line.cell == HEADLINE[0].0 && line.figures.contains_key("produce_per_s"))
            .unwrap();
        *line.figures.get_mut("produce_per_s").unwrap() *= 1_000.0;
        let texts = Texts::of(&lines);
        let texts = texts.borrow();
        let error =
            check(texts.input(&lines), Some(&root().join("report")), Some(&root().join("README.md"))).unwrap_err();
        assert!(error.to_string().contains("rate.svg"), "{error}");
    }

    #[test]
    fn the_first_page_is_short() {
        let lines = committed();
        let texts = Texts::of(&lines);
        let texts = texts.borrow();
        let pages = pages(texts.input(&lines));
        let words = pages.first().unwrap().1.split_whitespace().count();
        assert!(words < 3_000, "{words} words");
        assert_eq!(pages.iter().filter(|(name, _)| name.ends_with(".svg")).count(), CHARTS.len());
    }
}
