//! `kill -9` under load of queues, on the real binary: what was confirmed is delivered until it is acknowledged, and what was
//! acknowledged is not delivered again.
//!
//! `POLYLOGUE_QUEUE_KILLS` says how many kills; `POLYLOGUE_SEED` repeats what was drawn (the moments of the kills it does not).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

mod common;

use common::amqp::{Amqp, Came};
use common::{Place, amount, seed};
use polylogue_amqp::codec::Method;
use polylogue_env::sim::SimRng;
use polylogue_testkit::{Result, Server, wait_until};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Small files and frequent checkpoints: kills meet merges and checkpoints too.
const SETTINGS: &[&str] = &[
    "log.journal_file_bytes=4MiB",
    "log.checkpoint_bytes_max=1MiB",
    "log.merge_bytes=4MiB",
    "log.disk_reserve_bytes=16MiB",
];
/// The queues; the second one is a quorum queue.
const QUEUES: [&str; 2] = ["classic", "quorum"];
/// Confirms and acknowledgements between a start and a kill, at the most.
const LIFE_STEPS_MAX: u64 = 3_000;
/// A life in which less than this happens in that time is a failure of its own. Seconds.
const LIFE_SECS: u64 = 120;
/// Messages that a publisher has on the way.
const INFLIGHT_MAX: usize = 64;
/// An acknowledgement that the broker got so short before a kill may be lost with it: nobody was told that it was there.
/// The sender does not know when it arrived, so that a margin comes on top.
const ACK_LOST: Duration = Duration::from_millis(5 + 200);
/// When nothing comes for so long, a queue is empty.
const QUIET: Duration = Duration::from_millis(700);

/// What is known of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    confirmed: bool,
    /// When its acknowledgement was sent.
    acked: Option<Instant>,
}

/// What was promised over all lives.
#[derive(Debug, Default)]
struct Oracle {
    /// By queue and number.
    messages: BTreeMap<(usize, u64), Known>,
    next: u64,
    steps: u64,
    /// When the last life ended.
    killed: Option<Instant>,
    wrong: Vec<String>,
}

impl Oracle {
    fn delivered(&mut self, queue: usize, number: u64) {
        let killed = self.killed;
        let Some(known) = self.messages.get_mut(&(queue, number)) else {
            self.wrong.push(format!("{}: nobody sent {number}", QUEUES[queue]));
            return;
        };
        let lost = |acked: Instant| killed.is_none_or(|killed| killed.saturating_duration_since(acked) > ACK_LOST);
        if let Some(acked) = known.acked.filter(|acked| lost(*acked)) {
            let ms = killed.map(|killed| killed.saturating_duration_since(acked).as_millis());
            self.wrong.push(format!(
                "{}: {number} was acknowledged {ms:?} ms before the kill and comes again",
                QUEUES[queue]
            ));
        }
        known.acked = None;
    }
}

fn number_of(body: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(body).map_err(|e| e.to_string())?;
    text.split(' ').next().and_then(|number| number.parse().ok()).ok_or_else(|| format!("an unknown body {text:?}"))
}

/// Publishes until `stop`, or until the server goes.
fn publish_until(to: SocketAddr, queue: usize, seed: u64, oracle: &Mutex<Oracle>, stop: &AtomicBool) -> Result<()> {
    let rng = SimRng::derive(seed, QUEUES[queue]);
    let mut amqp = Amqp::connect(to)?;
    amqp.confirm()?;
    let (mut tag, mut open) = (0, BTreeMap::new());
    while !stop.load(Ordering::Relaxed) {
        while open.len() < INFLIGHT_MAX {
            let number = {
                let mut oracle = oracle.lock().unwrap();
                oracle.next += 1;
                let number = oracle.next;
                oracle.messages.insert((queue, number), Known::default());
                number
            };
            amqp.publish(QUEUES[queue], format!("{number} {}", "x".repeat(rng.below(2_000) as usize)).as_bytes());
            tag += 1;
            open.insert(tag, number);
        }
        amqp.flush()?;
        let Some(Came::Method(Method::BasicAck(ack))) = amqp.wait(Duration::from_millis(100))? else { continue };
        let rest = if ack.multiple { open.split_off(&(ack.delivery_tag + 1)) } else { BTreeMap::new() };
        let confirmed = if ack.multiple {
            std::mem::replace(&mut open, rest)
        } else {
            open.remove(&ack.delivery_tag).map(|number| (ack.delivery_tag, number)).into_iter().collect()
        };
        let mut oracle = oracle.lock().unwrap();
        for number in confirmed.into_values() {
            oracle.steps += 1;
            oracle.messages.get_mut(&(queue, number)).unwrap().confirmed = true;
        }
    }
    Ok(())
}

/// Consumes and acknowledges most of what comes until `stop`, or until the server goes.
fn consume_until(to: SocketAddr, queue: usize, seed: u64, oracle: &Mutex<Oracle>, stop: &AtomicBool) -> Result<()> {
    let rng = SimRng::derive(seed, "consumer");
    let mut amqp = Amqp::connect(to)?;
    amqp.consume(QUEUES[queue], 200)?;
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Some(Came::Message { tag, body }) = amqp.wait(Duration::from_millis(100))? else { continue };
        let number = number_of(&body)?;
        oracle.lock().unwrap().delivered(queue, number);
        held.push((tag, number));
        if held.len() < 20 {
            continue;
        }
        // Holes: most of them, in any order, and some much later.
        while held.len() > 5 {
            let (tag, number) = held.swap_remove(rng.below(held.len() as u64) as usize);
            amqp.ack(tag);
            let mut oracle = oracle.lock().unwrap();
            oracle.steps += 1;
            // Noted before it is sent: it may count as sent too early, never too late.
            oracle.messages.get_mut(&(queue, number)).unwrap().acked = Some(Instant::now());
        }
        amqp.flush()?;
    }
    Ok(())
}

fn serve(place: &Place) -> Command {
    let mut command = place.serve(SETTINGS);
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    command
}

fn amqp(server: &Server) -> Result<SocketAddr> {
    server.amqp().ok_or_else(|| "the server told no address for AMQP".to_owned())
}

/// A life under load, ended by a kill.
fn live(server: Server, oracle: &Mutex<Oracle>, steps: u64, seed: u64) -> Result<()> {
    let (to, stop) = (amqp(&server)?, AtomicBool::new(false));
    let enough = oracle.lock().unwrap().steps + steps;
    std::thread::scope(|scope| {
        let stop = &stop;
        let running: Vec<_> = (0..QUEUES.len())
            .flat_map(|queue| {
                let publishes = scope.spawn(move || publish_until(to, queue, seed, oracle, stop));
                [publishes, scope.spawn(move || consume_until(to, queue, seed, oracle, stop))]
            })
            .collect();
        let loaded = wait_until("confirms and acknowledgements under load", LIFE_SECS, || {
            Ok((oracle.lock().unwrap().steps >= enough).then_some(()))
        });
        let said = server.said();
        let killed = server.kill();
        oracle.lock().unwrap().killed = Some(Instant::now());
        stop.store(true, Ordering::Relaxed);
        // They end by the kill, mostly with an error.
        let ends: Vec<_> = running.into_iter().map(|client| client.join().unwrap()).collect();
        loaded.map_err(|e| format!("{e}; clients ended with {ends:?}\n{said}"))?;
        killed
    })
}

/// Takes all that is in the queues, without acknowledging it: it stays.
fn verify(server: &Server, oracle: &mut Oracle) -> Result<()> {
    for (queue, name) in QUEUES.iter().enumerate() {
        let mut amqp = Amqp::connect(amqp(server)?)?;
        amqp.consume(name, 0)?;
        let mut there = BTreeMap::new();
        while let Some(came) = amqp.wait(QUIET)? {
            let Came::Message { body, .. } = came else { return Err(format!("{name}: {came:?}")) };
            let number = number_of(&body)?;
            oracle.delivered(queue, number);
            *there.entry(number).or_insert(0) += 1;
        }
        oracle
            .wrong
            .extend(there.iter().filter(|(_, times)| **times > 1).map(|(n, _)| format!("{name}: {n} is there twice")));
        let known = oracle.messages.range((queue, 0)..(queue + 1, 0));
        // One whose acknowledgement is lost comes again, and is not acknowledged any more.
        let lost = known
            .filter(|((_, number), known)| known.confirmed && known.acked.is_none() && !there.contains_key(number));
        let lost: Vec<u64> = lost.map(|((_, number), _)| *number).collect();
        if !lost.is_empty() {
            oracle.wrong.push(format!("{name}: confirmed, not acknowledged and gone: {lost:?}"));
        }
    }
    // What was not confirmed and is not there will never come: it must not be waited for.
    match std::mem::take(&mut oracle.wrong).as_slice() {
        [] => Ok(()),
        wrong => Err(wrong.iter().take(10).cloned().collect::<Vec<_>>().join("\n")),
    }
}

#[test]
fn kill_9_loses_no_confirmed_message_and_brings_no_acknowledged_one_back() {
    let (kills, seed) = (amount("POLYLOGUE_QUEUE_KILLS", 5), seed());
    let place = Place::new("queue-kills");
    let (oracle, rng) = (Mutex::new(Oracle::default()), SimRng::derive(seed, "kills"));
    let mut server = place.start(serve(&place)).unwrap();
    let mut declaring = Amqp::connect(amqp(&server).unwrap()).unwrap();
    QUEUES.iter().for_each(|queue| declaring.declare(queue, *queue == "quorum").unwrap());
    for nth in 1..=kills {
        let what = format!("POLYLOGUE_SEED={seed}, kill {nth} of {kills}");
        let steps = 1 + rng.below(LIFE_STEPS_MAX);
        live(server, &oracle, steps, seed + nth).unwrap_or_else(|e| panic!("{what}: {e}"));
        server = place.start(serve(&place)).unwrap_or_else(|e| panic!("{what}: {e}"));
        verify(&server, &mut oracle.lock().unwrap()).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let oracle = oracle.into_inner().unwrap();
    let acked = oracle.messages.values().filter(|known| known.acked.is_some()).count();
    assert!(acked as u64 >= kills, "too little was acknowledged to mean anything: {acked} messages");
    server.terminate().unwrap();
}
