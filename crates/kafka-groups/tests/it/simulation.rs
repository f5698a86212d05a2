//! Simulation of random clients on a random host: crashes, lost writers, checkpoints, deleted topics, checked against an oracle.
//!
//! `POLYLOGUE_SIM_SEEDS=N` runs more seeds than the usual ones; a failure names its seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so when it fails")]

mod clients;
mod oracle;
mod world;

use oracle::Seen;
use world::World;

const SEEDS: u64 = 60;
const STEPS: usize = 1_500;

/// Prints the seed when a run fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn seeds() -> u64 {
    std::env::var("POLYLOGUE_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn groups_hold_what_they_promise() {
    let mut seen = Seen::default();
    for seed in 0..seeds() {
        let _named = Named(seed);
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
        seen.add(&world.oracle.seen);
    }
    // A run must have exercised something.
    let per_seed = |n: u64| n * seeds();
    assert!(seen.joins > per_seed(100) && seen.assignments > per_seed(40), "{seen:?}");
    assert!(seen.commits > per_seed(60), "{seen:?}");
    assert!(seen.crashes > per_seed(2) && seen.lost_writers > per_seed(2), "{seen:?}");
    assert!(seen.statics_replaced > per_seed(1) && seen.fenced > seeds() / 10, "{seen:?}");
    assert!(seen.rebalances_told > per_seed(20) && seen.left_out > per_seed(2), "{seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_records() {
    for seed in 0..seeds().min(10) {
        let run = || {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                world.step();
            }
            world.host.log
        };
        let (first, second) = (run(), run());
        assert!(!first.is_empty());
        assert!(first == second, "seed {seed}");
    }
}
