//! "TubeMQ vs Kafka": partitions, topics, filters, delay, memory, lagging readers.

use super::{KIB, Maker, Row, UNBOUNDED_BYTES_PER_S, cold_messages, side, sides};
use crate::contract::Filter;
use crate::drive::Driver;
use crate::how::How;
use crate::matrix::{Batching, Kind, LATENCY_BATCH, Load, Many};

/// Half of D7's: TubeMQ takes minutes for twelve million messages, and refuses many. Bytes.
const FAR_BEHIND_MEMORY_BYTES: u64 = 1_536 << 20;
/// No system flushes each message there: polylogue is compared with and without its flush.
const OWN: &[&str] = &["polylogue-async", "kafka", "tubemq"];
const FIRST: &[&str] = &["polylogue-sync", "kafka", "kafka-tuned", "tubemq", "tubemq-tuned"];
const RAW: &[&str] = &["polylogue-sync", "polylogue-async", "kafka"];
const LINGER_200: Batching = Batching { name: "128KiB-200ms", bytes: 128 << 10, linger_us: 200_000, per_request: 1 };
const LINGER_0: Batching = Batching { name: "128KiB-0ms", bytes: 128 << 10, linger_us: 0, per_request: 1 };
const PARTITIONS: u32 = 10;
const TOPICS_RATE: u64 = 5_000;
const STABLE_MS: u64 = 15_000;
const DELAY_RATE: u64 = 5_000;

pub(super) fn rows(maker: Maker) -> Vec<Row> {
    [sizes(maker), topics(maker), filters(maker), delays(maker), memory(maker)].concat()
}

/// One stream in, two out.
fn sizes(maker: Maker) -> Vec<Row> {
    let row = |id, name: String, driver, who, load| maker.row(id, &name, Kind::Size, driver, sides(who, load));
    let mut rows = Vec::new();
    for (partitions, bytes) in [(1, KIB), (100, KIB), (10, 10 * KIB)] {
        let load = Load { groups: 2, message_bytes: bytes, ..maker.load(partitions, LATENCY_BATCH, 0) };
        let row = row("E1", format!("partitions={partitions}/bytes={bytes}"), Driver::Java, OWN, load);
        // The growth of throughput shows in one round.
        rows.push(if partitions == 1 { row } else { maker.once(row) });
    }
    // Kafka and polylogue have no storage instances: one partition stands for one.
    for instances in [1, 4] {
        let load = Load { groups: 2, ..maker.load(instances, LATENCY_BATCH, 0) };
        rows.push(maker.once(row("E2", format!("instances={instances}"), Driver::Java, OWN, load)));
    }
    rows
}

fn many_topics(maker: Maker, topics: u32) -> Load {
    let many = Many { topics: maker.scaled(topics, (topics / 50).max(2)), producers: 2, consumers: 2, filter: None };
    Load { many, groups: 2, ..maker.load(PARTITIONS, LATENCY_BATCH, TOPICS_RATE) }
}

fn topics(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for topics in [100, 200, 500, 1_000] {
        let load = many_topics(maker, topics);
        let name = format!("topics={topics}");
        let row = |driver, who| maker.row("E3", &name, Kind::Latency, driver, sides(who, load));
        rows.push(maker.once(row(Driver::Raw, &["polylogue-sync", "kafka"])));
        // With own clients 500 are E8's.
        if topics == 100 {
            rows.push(maker.once(row(Driver::Java, OWN)));
        }
    }
    // Stability shows over time: more seconds.
    let load = many_topics(maker, 500);
    let load = Load { window_ms: maker.scaled(STABLE_MS, load.window_ms), ..load };
    rows.push(maker.once(maker.row("E8", "topics=500", Kind::Latency, Driver::Java, sides(OWN, load))));
    rows
}

/// TubeMQ's filter shows only in the broker's outgoing traffic and the producers' rate; the others send everything.
fn filters(maker: Maker) -> Vec<Row> {
    let topics = maker.scaled(100, 10);
    let filter = |groups| Filter { groups, topics: topics / 5, one_in: 10 };
    let load = |groups| {
        let many = Many { topics, producers: 2, consumers: 1, filter: (groups > 0).then(|| filter(groups)) };
        Load { many, groups: groups + 1, ..maker.load(PARTITIONS, LATENCY_BATCH, 0) }
    };
    let row = |name, driver, who, load| maker.row("E4", name, Kind::Size, driver, sides(who, load));
    vec![row("filters=5", Driver::Java, OWN, load(5)), maker.once(row("filters=0", Driver::Java, OWN, load(0)))]
}

fn delays(maker: Maker) -> Vec<Row> {
    let load = |batching| Load { groups: 2, ..maker.load(PARTITIONS, batching, DELAY_RATE) };
    let row = |name, driver, who, load| maker.row("E5", name, Kind::Latency, driver, sides(who, load));
    vec![
        maker.first(row("rate=5000/linger=0", Driver::Java, FIRST, load(LINGER_0))),
        maker.once(row("rate=5000/linger=200ms", Driver::Java, OWN, load(LINGER_200))),
        row("rate=5000/linger=0", Driver::Raw, RAW, load(LINGER_0)),
    ]
}

fn memory(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for mib in [1_536, 3_072] {
        let load = maker.load(PARTITIONS, LATENCY_BATCH, 0);
        // In a smoke run E7 shows that brokers start within memory limits.
        let how = How { memory_limit_bytes: maker.scaled(mib << 20, 0), ..load.how };
        let load = Load { groups: 2, how, ..load };
        let row = maker.row("E6", &format!("memory={mib}MiB"), Kind::Size, Driver::Java, sides(OWN, load));
        rows.push(maker.once(row));
    }
    let load = maker.load(PARTITIONS, LATENCY_BATCH, 10_000);
    let how = How { memory_limit_bytes: FAR_BEHIND_MEMORY_BYTES, ..load.how };
    let backlog = maker.scaled(cold_messages(FAR_BEHIND_MEMORY_BYTES, KIB), 5_000);
    let window_ms = maker.scaled(45_000, load.window_ms);
    let behind = Load { backlog, cold_bytes_per_s: UNBOUNDED_BYTES_PER_S, groups: 0, how, window_ms, ..load };
    let mut compared = sides(&["polylogue-async", "kafka"], behind);
    compared.extend(side("tubemq", "tubemq", behind));
    rows.push(maker.once(maker.row("E7", "rate=10000", Kind::Cold, Driver::Java, compared)));
    rows
}
