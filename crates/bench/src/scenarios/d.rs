//! "Benchmarking Pulsar and Kafka": throughput and latency by durability, partitions and subscriptions; lagging readers.

use super::{COLD_MEMORY_BYTES, KIB, Maker, Row, UNBOUNDED_BYTES_PER_S, cold_messages, sides};
use crate::drive::Driver;
use crate::how::How;
use crate::matrix::{Kind, LARGE_BATCH, LATENCY_BATCH, Load, Many};

/// The rate for lagging readers and for many partitions.
const CATCH_UP_RATE: u64 = 10_000;
/// The rates for the raw driver, and for own clients.
const RAW_RATE: u64 = 20_000;
const OWN_RATE: u64 = 1_000;
const PARTITIONS_RATE: u64 = 5_000;
const ONE: Many = Many { topics: 1, producers: 1, consumers: 1, filter: None };
const TWO: Many = Many { topics: 1, producers: 2, consumers: 2, filter: None };
/// By durability: the names in cells, the sides with each system's own client, and those with the raw driver.
const DURABILITIES: [(&str, &[&str], &[&str]); 2] = [
    ("sync", &["polylogue-sync", "kafka-fsync", "pulsar"], &["polylogue-sync", "kafka-fsync"]),
    ("async", &["polylogue-async", "kafka", "pulsar-nosync"], &["polylogue-async", "polylogue-sync", "kafka"]),
];

pub(super) fn rows(maker: Maker) -> Vec<Row> {
    [throughputs(maker), latencies(maker), partitions(maker), catch_up(maker)].concat()
}

fn throughputs(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for (durability, own, raw) in DURABILITIES {
        let cases = [
            ("D1", "partitions=100", 100, TWO),
            ("D2", "partitions=2000", maker.scaled(2_000, 50), TWO),
            ("D3", "partitions=1/producers=2", 1, TWO),
            ("D3", "partitions=1/producers=1", 1, Many::default()),
        ];
        for (id, name, partitions, many) in cases {
            // The cost of a lone producer's flushes is the question of D3.
            if id == "D3" && durability == "async" && many == TWO {
                continue;
            }
            let load = Load { many, ..maker.load(partitions, LARGE_BATCH, 0) };
            let name = format!("{name}/durability={durability}");
            let row = |driver, sides| maker.row(id, &name, Kind::Size, driver, sides);
            let row_own = if id == "D1" && durability == "sync" {
                maker.first(row(Driver::Java, sides(&[own, &["pulsar-tuned"]].concat(), load)))
            } else {
                row(Driver::Java, sides(own, load))
            };
            // The rest repeats D1, which is on the first page, and D3's lone producer: more rounds do not fit into six hours.
            let is_once = id == "D2" || durability == "async" || name.contains("producers=2");
            rows.push(if is_once { maker.once(row_own) } else { row_own });
            if id == "D1" {
                rows.push(maker.once(row(Driver::Raw, sides(raw, load))));
            }
        }
    }
    rows
}

fn latencies(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for (durability, own, raw) in DURABILITIES {
        let one = Load { many: TWO, ..maker.load(100, LATENCY_BATCH, RAW_RATE) };
        let own_one = maker.with_tail(Load { many: ONE, rate: maker.rate(OWN_RATE), ..one });
        let ten = Load { groups: 10, rate: maker.rate(CATCH_UP_RATE / 2), ..one };
        let cases = [
            ("D4", "rate=1000/groups=1", own_one, "rate=20000/groups=1", one),
            ("D5", "rate=5000/groups=10", ten, "rate=5000/groups=10", ten),
        ];
        for (id, own_name, own_load, raw_name, raw_load) in cases {
            // Ten groups without flushes show the same as with them: the cost is in reading.
            if id == "D5" && durability == "async" {
                continue;
            }
            let row = |name: &str, driver, sides| {
                maker.row(id, &format!("{name}/durability={durability}"), Kind::Latency, driver, sides)
            };
            // D4's row without flushes is A4's: the same load.
            if durability == "sync" {
                // The raw client's rows decide.
                rows.push(maker.once(row(own_name, Driver::Java, sides(own, own_load))));
            }
            if durability == "sync" || id == "D4" {
                let raw_row = row(raw_name, Driver::Raw, sides(raw, maker.for_far_tail(raw_load)));
                let is_first = durability == "sync" && id == "D4";
                rows.push(if is_first { maker.first(raw_row) } else { raw_row });
            }
        }
        // The cost of ten groups in polylogue is compared with one group at the same rate.
        if durability == "sync" {
            let alone = Load { rate: ten.rate, ..one };
            let name = format!("rate=5000/groups=1/durability={durability}");
            rows.push(maker.row("D5", &name, Kind::Latency, Driver::Raw, sides(raw, alone)));
        }
    }
    rows
}

/// Creating the most partitions takes minutes: only the fewest and the most with flushes, which are compared with each other, have several rounds.
fn partitions(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for (durability, own, raw) in DURABILITIES {
        for count in [100, 5_000, 8_000, 10_000] {
            let load = maker.load(maker.scaled(count, count / 100), LATENCY_BATCH, PARTITIONS_RATE);
            let name = format!("rate=5000/partitions={count}/durability={durability}");
            let row = |driver, sides| maker.row("D6", &name, Kind::Latency, driver, sides);
            let is_end = count == 100 || count == 10_000;
            if durability == "sync" || is_end {
                let row = row(Driver::Raw, sides(raw, maker.with_far_tail(load)));
                rows.push(if durability == "sync" && is_end { row } else { maker.once(row) });
            }
            if durability == "sync" && is_end {
                rows.push(maker.once(row(Driver::Java, sides(own, load))));
            }
        }
    }
    rows
}

/// A backlog of four times the memory limit is read while producers continue; in D8 with a reader at the end of the log. The effect on polylogue is
/// compared with itself, over several rounds.
fn catch_up(maker: Maker) -> Vec<Row> {
    let load = maker.load(100, LATENCY_BATCH, CATCH_UP_RATE);
    let backlog = maker.scaled(cold_messages(COLD_MEMORY_BYTES, KIB), 5_000);
    let how = How { memory_limit_bytes: COLD_MEMORY_BYTES, ..load.how };
    // Long enough to read all of it from a disk of this kind.
    let window_ms = maker.scaled(45_000, load.window_ms);
    let cold = Load { backlog, cold_bytes_per_s: UNBOUNDED_BYTES_PER_S, how, window_ms, ..load };
    let row = |id, name: &str, kind, driver, sides| maker.row(id, name, kind, driver, sides);
    let once = |id, name: &str, kind, driver, sides| maker.once(row(id, name, kind, driver, sides));
    let behind = Load { groups: 0, ..cold };
    // In a smoke run D7 shows that brokers start within memory limits.
    let d8 = maker.scaled(how, load.how);
    let (beside, undisturbed) = (Load { how: d8, ..cold }, Load { how: d8, ..load });
    let raw = ["polylogue-sync"];
    vec![
        once("D7", "rate=10000", Kind::Cold, Driver::Java, sides(&["polylogue-sync", "kafka", "pulsar"], behind)),
        row("D8", "rate=10000/behind", Kind::Cold, Driver::Raw, sides(&raw, beside)),
        row("D8", "rate=10000/undisturbed", Kind::Latency, Driver::Raw, sides(&raw, maker.with_far_tail(undisturbed))),
        once(
            "D8",
            "rate=10000/behind",
            Kind::Cold,
            Driver::Java,
            sides(&["polylogue-sync", "kafka", "pulsar"], beside),
        ),
        once(
            "D8",
            "rate=10000/undisturbed",
            Kind::Latency,
            Driver::Java,
            sides(&["polylogue-sync", "kafka", "pulsar"], undisturbed),
        ),
    ]
}
