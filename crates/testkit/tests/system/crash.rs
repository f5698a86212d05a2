//! `kill -9` under load, and power cuts, on the real binary: what was acknowledged is there.
//!
//! `POLYLOGUE_KILLS`, `POLYLOGUE_POWER_CUTS` say how many; `POLYLOGUE_SEED` repeats what the clients and the power cut
//! drew (the moment of a kill it does not repeat).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::kafka::Kafka;
use common::load::{Producer, commit_until, consume_until, make_topics_until};
use common::oracle::{Oracle, Partition, Reading};
use common::{Place, amount, seed};
use polylogue_env::sim::SimRng;
use polylogue_faultfs::{Injector, Power};
use polylogue_testkit::{Result, Server, wait_until};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Small journal files, frequent checkpoints: the kills meet new files, sealed ones, merges and checkpoints too.
const SETTINGS: &[&str] = &[
    "log.journal_file_bytes=4MiB",
    "log.checkpoint_bytes_max=2MiB",
    "log.merge_bytes=4MiB",
    "log.disk_reserve_bytes=16MiB",
];
/// The group that commits, and the topic that it commits for.
const GROUP: &str = "crash";
const SYNC: &str = "sync";
const ASYNC: &str = "async";
/// Acknowledgements between a start and a kill, at the most.
const LIFE_ACKS_MAX: u64 = 1_500;
/// After other kills only what is new is read, so that hundreds of them do not take for ever.
const KILLS_FOR_A_READING_OF_ALL: u64 = 5;
/// A life in which less than this happens in that time is a failure of its own. Seconds.
const LIFE_SECS: u64 = 120;

/// Some producers of each kind for each partition.
fn producers(partitions: &[Partition], seed: u64, oracle: &mut Oracle) -> Vec<Producer> {
    let kinds = partitions.iter().flat_map(|partition| [(partition, true), (partition, false)]);
    kinds
        .zip(0..)
        .map(|((partition, idempotent), id)| {
            oracle.add_sender(id, *partition, idempotent);
            Producer::new(id, *partition, idempotent, seed)
        })
        .collect()
}

/// All clients of a run; they go on over restarts.
struct Clients {
    producers: Vec<Producer>,
    /// Topics that were made.
    topics: u64,
}

/// The producers, a committer, a consumer and a maker of topics at work until `acks` more acknowledgements came, then `end` ends it.
fn under_load(
    server: Server,
    clients: &mut Clients,
    oracle: &Mutex<Oracle>,
    acks: u64,
    end: impl FnOnce(Server, &AtomicBool) -> Result<Option<Server>>,
) -> Result<Option<Server>> {
    let (to, stop) = (server.kafka(), AtomicBool::new(false));
    let enough = oracle.lock().unwrap().acknowledgements + acks;
    std::thread::scope(|scope| {
        let Clients { producers, topics } = clients;
        let mut running: Vec<_> = producers.iter_mut().map(|p| scope.spawn(|| p.live(to, oracle, &stop))).collect();
        running.push(scope.spawn(|| make_topics_until(to, topics, oracle, &stop)));
        running.push(scope.spawn(|| commit_until(to, GROUP, SYNC, oracle, &stop)));
        running.push(scope.spawn(|| consume_until(to, (SYNC, 0), oracle, &stop)));
        let loaded = wait_until("acknowledgements under load", LIFE_SECS, || {
            Ok((oracle.lock().unwrap().acknowledgements >= enough).then_some(()))
        });
        let said = server.said();
        let ended = end(server, &stop);
        stop.store(true, Ordering::Relaxed);
        let results: Vec<Result<()>> = running.into_iter().map(|c| c.join().unwrap()).collect();
        results.into_iter().collect::<Result<()>>()?;
        loaded.map_err(|e| format!("{e}\n{said}"))?;
        ended
    })
}

fn kill(server: Server, _: &AtomicBool) -> Result<Option<Server>> {
    server.kill().map(|()| None)
}

/// Lets the producers finish: everything is answered.
fn finish(server: Server, stop: &AtomicBool) -> Result<Option<Server>> {
    stop.store(true, Ordering::Relaxed);
    Ok(Some(server))
}

fn verify(server: &Server, oracle: &Mutex<Oracle>, reading: Reading) -> Result<()> {
    oracle.lock().unwrap().verify(&mut Kafka::connect(server.kafka())?, GROUP, SYNC, reading)
}

/// How often a long run says how far it is. Kills.
const KILLS_FOR_A_LINE: u64 = 50;

#[test]
fn kill_9_loses_nothing_acknowledged() {
    let (kills, seed) = (amount("POLYLOGUE_KILLS", 10), seed());
    let place = Place::new("kill-9");
    let partitions: [Partition; 5] = [(SYNC, 0), (SYNC, 1), (SYNC, 2), (ASYNC, 0), (ASYNC, 1)];
    let mut oracle = Oracle::default();
    let mut clients = Clients { producers: producers(&partitions, seed, &mut oracle), topics: 0 };
    let (oracle, rng) = (Mutex::new(oracle), SimRng::derive(seed, "kills"));
    let mut server = place.start(place.serve(SETTINGS)).unwrap();
    let mut kafka = Kafka::connect(server.kafka()).unwrap();
    kafka.create_topic(SYNC, 3, &[]).unwrap();
    kafka.create_topic(ASYNC, 2, &[("polylogue.durability", "async")]).unwrap();
    for nth in 1..=kills {
        let what = format!("POLYLOGUE_SEED={seed}, kill {nth} of {kills}");
        let acks = 1 + rng.below(LIFE_ACKS_MAX);
        under_load(server, &mut clients, &oracle, acks, kill).unwrap_or_else(|e| panic!("{what}: {e}"));
        server = place.start(place.serve(SETTINGS)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let reading = if nth % KILLS_FOR_A_READING_OF_ALL == 0 { Reading::All } else { Reading::New };
        verify(&server, &oracle, reading).unwrap_or_else(|e| panic!("{what}: {e}"));
        if nth % KILLS_FOR_A_LINE == 0 {
            eprintln!("{nth} of {kills} kills");
        }
    }
    let server = under_load(server, &mut clients, &oracle, 100, finish).unwrap().unwrap();
    verify(&server, &oracle, Reading::All).unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}, at the end: {e}"));
    server.terminate().unwrap();
    let server = place.start(place.serve(SETTINGS)).unwrap();
    verify(&server, &oracle, Reading::All)
        .unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}, after an orderly end: {e}"));
}

/// A round on a new directory: the first cut meets its creation too, the second one what recovery wrote.
fn power_cut_round(seed: u64) -> Result<u64> {
    let place = Place::new("power-cut");
    let partitions: [Partition; 3] = [(SYNC, 0), (SYNC, 1), (SYNC, 2)];
    let mut oracle = Oracle::default();
    let mut clients = Clients { producers: producers(&partitions, seed, &mut oracle), topics: 0 };
    let (oracle, rng) = (Mutex::new(oracle), SimRng::derive(seed, "power"));
    let mut lost = 0;
    for cut in 0..2 {
        let mut command = place.serve(SETTINGS);
        let injector = Injector::new(&place.watched(), place.root.path()).map_err(|e| e.to_string())?;
        injector.preload(&mut command);
        let server = place.start(command)?;
        if cut == 0 {
            Kafka::connect(server.kafka())?.create_topic(SYNC, 3, &[])?;
        } else {
            verify(&server, &oracle, Reading::All).map_err(|e| format!("before cut {cut}: {e}"))?;
        }
        under_load(server, &mut clients, &oracle, 1 + rng.below(LIFE_ACKS_MAX), kill)?;
        let report = injector.cut_power(Power::Cut { seed: seed + cut }).map_err(|e| e.to_string())?;
        lost += report.sectors_lost + report.names_lost;
        let server = place.start(place.serve(SETTINGS)).map_err(|e| format!("after cut {cut}, {report:?}: {e}"))?;
        verify(&server, &oracle, Reading::All).map_err(|e| format!("after cut {cut}, {report:?}: {e}"))?;
        let last = under_load(server, &mut clients, &oracle, 50, finish)?;
        last.map_or(Ok(()), Server::terminate)?;
    }
    Ok(lost)
}

#[test]
fn a_power_cut_loses_nothing_acknowledged() {
    let (rounds, seed) = (amount("POLYLOGUE_POWER_CUTS", 5), seed());
    let (mut lost, mut round) = (0, 0);
    // Whether something lies unflushed when the power goes is chance: until it did, on a busy machine, there are more rounds.
    while round < rounds || (lost == 0 && round < 10 * rounds) {
        let seed = seed + round * 2;
        round += 1;
        lost += power_cut_round(seed).unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}: {e}"));
    }
    assert!(lost > 0, "in {round} rounds nothing that was not flushed was lost: the cuts tested nothing");
}
