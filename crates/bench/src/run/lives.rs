//! Brokers that stay up for several runs.
//!
//! ```text
//!   a smoke run      one broker, for every cell that can use it
//!   a comparison     round 1   start A, load, start B, load        all brokers of a cell stay up until its last round, and only one
//!                    round 2   load B, load A                      has a load at a time; each round has its own topics, which are
//!                    ...                                           deleted afterwards if possible
//!                    end A and B
//! ```
//!
//! A JVM broker that was just started is not representative: what it compiled in the first round is available in the others.

use super::{OneSide, TOPIC};
use crate::amqp;
use crate::contract::{System, topic_name};
use crate::error::Result;
use crate::how::How;
use crate::matrix::{Kind, Load, Side};
use crate::peers::{about, http};
use crate::process::Folder;
use crate::results::ResultLine;
use crate::sample::Sample;
use crate::target::{Running, Target};
use crate::wire::Wire;
use std::path::PathBuf;

/// The maximum number of partitions of old rounds: more would be a load of their own.
const PLACES_MAX: u32 = 500;
/// The heaps of brokers that are up at once may use one in this many parts of the machine's memory.
const MEMORY_SHARE: u64 = 2;

/// A running broker in its directory.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) target: Target,
    pub(super) queues: bool,
    pub(super) label: String,
    /// Number of rounds that it was loaded in, including this one.
    pub(super) round: u32,
    /// Open files after its start.
    pub(super) files_first: u64,
    // Dropped before its directory.
    pub(super) running: Running,
    pub(super) place: Folder,
}

/// The brokers that stay up, and the number of topics so far.
#[derive(Debug, Default)]
pub struct Kept {
    lives: Vec<Started>,
    topics: u64,
    of_cells: bool,
}

/// What a run starts from.
pub(super) struct Found {
    pub(super) topic: String,
    pub(super) had: Option<Started>,
    /// Processes of the other brokers that are up, and the number of these brokers.
    pub(super) others: Vec<u32>,
    pub(super) others_count: usize,
}

impl Started {
    /// A broker that was just started.
    pub(super) fn fresh(side: &Side, running: Running, place: Folder) -> Started {
        let queues = side.load.queue.is_some();
        let (target, label) = (side.target.clone(), side.label.clone());
        let fresh = Started { target, queues, label, round: 1, files_first: 0, running, place };
        Started { files_first: fresh.files(), ..fresh }
    }

    /// Records in a line the round of its life, and the number of other brokers.
    pub(super) fn tell(&self, others_count: usize, line: &mut ResultLine) {
        line.figures.insert("life_round".to_owned(), f64::from(self.round));
        line.figures.insert("brokers_up".to_owned(), (others_count + 1) as f64);
    }

    /// Number of its open files; 0 for a running broker that was named.
    pub(super) fn files(&self) -> u64 {
        Sample::take_all(&self.running.pids()).map_or(0, |sample| sample.files)
    }
}

impl Found {
    /// No broker stays up.
    pub(super) fn nothing() -> Found {
        Found { topic: TOPIC.to_owned(), had: None, others: Vec::new(), others_count: 0 }
    }
}

impl Kept {
    /// Keeps the brokers of a cell together, and not one for many cells.
    #[must_use]
    pub fn of_cells() -> Kept {
        Kept { of_cells: true, ..Kept::default() }
    }

    /// Ends the brokers of the last cell.
    pub fn end_cell(&mut self) {
        if self.of_cells {
            self.lives.clear();
        }
    }

    /// Returns the topic of the next run, and its broker if that is up. In a smoke run another broker is ended.
    pub(super) fn find(&mut self, kind: Kind, side: &Side) -> Found {
        self.topics += 1;
        let stays = self.stays(kind, side);
        let is_it = |had: &Started| {
            let same = had.target == side.target && had.queues == side.load.queue.is_some();
            same && (!self.of_cells || had.label == side.label)
        };
        let had = match self.lives.iter().position(is_it) {
            Some(place) if stays => Some(self.lives.remove(place)),
            _ => None,
        };
        if !self.of_cells {
            // A broker that this run cannot use ends before its directory is created again.
            self.lives.clear();
        }
        let topic = if stays { format!("{TOPIC}{}", self.topics) } else { TOPIC.to_owned() };
        let others = self.lives.iter().flat_map(|life| life.running.pids()).collect();
        Found { topic, had, others, others_count: self.lives.len() }
    }

    /// Whether the broker of a side stays up after its run.
    pub(super) fn stays(&self, kind: Kind, side: &Side) -> bool {
        if self.of_cells {
            return is_plain(kind, side) && side.load.how.again_warmup_ms > 0;
        }
        // Flushes are counted on a separate broker.
        let how = How { trace_flushes: false, ..side.load.how };
        is_plain(kind, &Side { load: Load { how, ..side.load }, ..side.clone() })
    }

    /// Returns the directory of a broker that stays up.
    pub(super) fn folder(&self, label: &str) -> PathBuf {
        if self.of_cells { PathBuf::from("lives").join(label.replace('/', "-")) } else { PathBuf::from("run") }
    }

    pub(super) fn keep(&mut self, started: Started) {
        self.lives.push(started);
    }
}

/// Whether a side can use a broker that has run others before.
fn is_plain(kind: Kind, side: &Side) -> bool {
    let how = side.load.how;
    let plain = how.memory_limit_bytes == 0 && how.flush_delay_ms == 0 && !how.trace_flushes;
    plain && !matches!(kind, Kind::Kill | Kind::Start) && !matches!(side.target, Target::Null | Target::At(_))
}

/// Whether all brokers of a cell can stay up over its rounds, given the machine's memory: none needs a fresh broker for each round, leftovers
/// of rounds are no load, and their heaps leave memory for clients and page cache. The null broker has nothing to warm.
#[must_use]
pub fn stay_together(kind: Kind, sides: &[Side], memory_bytes: u64) -> bool {
    let fits = |side: &Side| {
        let (load, places) = (&side.load, side.load.partitions.saturating_mul(side.load.many.topics));
        let is_null = side.target == Target::Null;
        let few = places <= PLACES_MAX && load.backlog == 0 && load.connections == 0;
        few && (is_null || is_plain(kind, side))
    };
    let by_time = matches!(kind, Kind::Latency | Kind::Size | Kind::Ladder);
    by_time && sides.iter().all(fits) && heaps_fit(sides.iter().map(|side| &side.target), memory_bytes)
}

/// Whether the heaps of brokers that are up at once leave memory for clients and page cache.
#[must_use]
pub fn heaps_fit<'a>(targets: impl IntoIterator<Item = &'a Target>, memory_bytes: u64) -> bool {
    targets.into_iter().map(about::heap_bytes).sum::<u64>() <= memory_bytes / MEMORY_SHARE
}

/// Whether the topics of a run can be deleted after it, by its clients' protocol.
#[must_use]
pub fn is_deleted(target: &Target) -> bool {
    matches!(target.system(), System::Kafka | System::Rabbitmq | System::RabbitmqStream | System::Pulsar)
}

impl OneSide<'_> {
    /// Deletes the topics of this run, if the broker supports it. Others stay until the broker ends.
    pub(super) fn delete_topics(&self) -> Result<()> {
        let Load { partitions, many, queue, .. } = self.load;
        let at = self.running.bootstrap();
        for topic in &self.topics {
            match (queue, self.system) {
                (Some(_), System::Rabbitmq) => amqp::wire::delete_all(at, topic, partitions * many.topics)?,
                (None, System::Kafka) => Wire::connect(at)?.delete_topics(topic, many.topics)?,
                (None, System::Pulsar) => {
                    let Some(admin) = self.running.admin() else { continue };
                    for number in 0..many.topics {
                        let name = topic_name(topic, many.topics, number);
                        let path = format!("/admin/v2/persistent/public/default/{name}/partitions?force=true");
                        http::ask(admin, "DELETE", &path, "application/json", "")?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the open files of a broker in a round, without those left open by topics of earlier rounds.
    pub(super) fn files_of_round(&self, after: &Sample) -> u64 {
        let (first, before) = self.files_before;
        after.files.saturating_sub(before.saturating_sub(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::how::WarmUp;
    use crate::process::Interrupt;
    use crate::scenarios::{Length, rows_with};
    use crate::target::{Programs, Protocol};

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_brokers_of_a_cell_stay_until_the_next_cell() {
        let rows = rows_with(Length::FULL, 24 * GIB);
        let row = rows.iter().find(|row| row.cell.name == "A4/rate=25000/durability=async/client=raw").expect("a row");
        let [ours, kafka] = [0, 1].map(|place: usize| row.cell.sides[place].clone());
        let here = std::env::temp_dir().join(format!("polylogue-bench-lives-{}", std::process::id()));
        let nothing = PathBuf::new;
        let programs = Programs {
            polylogue: nothing(),
            peers: nothing(),
            kafka: nothing(),
            rabbitmq: nothing(),
            bench: nothing(),
            librdkafka: nothing(),
            java: nothing(),
        };
        let started = |side: &Side| {
            let at = Target::At("127.0.0.1:1".to_owned());
            let (place, interrupt) = (here.join(&side.label), Interrupt::default());
            let running = Running::start(&at, &programs, &place, Protocol::Kafka, (1, 1), &interrupt).expect("it runs");
            Started::fresh(side, running, Folder::create(&place).expect("a folder"))
        };
        let mut kept = Kept::of_cells();
        let first = kept.find(row.cell.kind, &ours);
        assert!(first.had.is_none() && first.others_count == 0);
        kept.keep(started(&ours));
        let second = kept.find(row.cell.kind, &kafka);
        assert!(second.had.is_none() && second.others_count == 1, "ours is up beside it");
        kept.keep(started(&kafka));
        let again = kept.find(row.cell.kind, &ours);
        assert_eq!(again.had.as_ref().map(|had| (had.round, had.label.as_str())), Some((1, "polylogue-sync")));
        assert!(again.topic != first.topic && again.others_count == 1, "each round has a topic of its own");
        kept.end_cell();
        assert!(kept.find(row.cell.kind, &kafka).had.is_none(), "it has ended with its cell");
        drop(again);
        let _ = std::fs::remove_dir_all(here);
    }

    #[test]
    fn a_broker_is_warmed_once() {
        let rows = rows_with(Length::FULL, 24 * GIB);
        let row = rows.iter().find(|row| row.cell.name == "A4/rate=25000/durability=async/client=raw").expect("a row");
        let load = row.cell.sides[0].load;
        assert_eq!((load.in_round_of_life(1), load.warmup_ms), (load, 60_000));
        let later = load.in_round_of_life(2);
        assert_eq!((later.warmup_ms, later.how.warm_up, later.window_ms), (5_000, WarmUp::Fixed, load.window_ms));
        let stated = load.how.warm_up(load.warmup_ms);
        assert!(
            stated.contains("at most 60 s") && stated.ends_with("5 s in later rounds, warm from round 1"),
            "{stated}"
        );
    }

    /// Regression test: each broker was started twice in a smoke run.
    #[test]
    fn a_smoke_run_goes_on_with_a_broker_whose_flushes_are_counted_at_another_one() {
        let rows = rows_with(Length::QUICK, 24 * GIB);
        let row = rows.iter().find(|row| row.id == "flushes").expect("a row");
        let side = &row.cell.sides[0];
        assert!(side.load.how.trace_flushes && Kept::default().stays(row.cell.kind, side));
        assert!(!Kept::of_cells().stays(row.cell.kind, side), "in a comparison it ends first");
        let held = Load { how: How { flush_delay_ms: 2, ..side.load.how }, ..side.load };
        assert!(!Kept::default().stays(row.cell.kind, &Side { load: held, ..side.clone() }), "it is slowed down");
    }

    #[test]
    fn brokers_stay_together_where_nothing_forbids_it() {
        let stay = |name: &str, memory_bytes: u64| {
            let rows = rows_with(Length::FULL, memory_bytes);
            let row = rows.iter().find(|row| row.cell.name == name).unwrap_or_else(|| panic!("no {name}"));
            row.cell.sides.iter().map(|side| side.load.how.again_warmup_ms > 0).collect::<Vec<_>>()
        };
        assert_eq!(stay("A4/rate=1000/durability=sync/client=java", 24 * GIB), [true; 3]);
        assert_eq!(stay("A4/rate=1000/durability=sync/client=java", 4 * GIB), [false; 3], "3 GiB of heaps");
        assert_eq!(stay("A4/rate=1000/flush=2ms/client=java", 64 * GIB), [false; 4], "flushes are held");
        for name in
            ["D2/partitions=2000/durability=sync/client=java", "D7/rate=10000/client=java", "F2/rate=5000/client=raw"]
        {
            assert!(stay(name, 64 * GIB).iter().all(|stays| !stays), "{name}");
        }
    }
}
