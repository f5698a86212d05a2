//! `kill -9` under load of queues, and power cuts, on the real binary: what was confirmed is delivered until it is acknowledged or refused,
//! what was acknowledged is not delivered again, and what was refused is in the queue of the dead, with an `x-death` that says so.
//!
//! `POLYLOGUE_QUEUE_KILLS` and `POLYLOGUE_QUEUE_POWER_CUTS` say how many; `POLYLOGUE_SEED` repeats what was drawn (the moments of the kills
//! it does not).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::amqp::{Amqp, Came, Message};
use common::{Place, amount, seed};
use polylogue_amqp::codec::{Method, Value};
use polylogue_env::sim::SimRng;
use polylogue_faultfs::{Injector, Power};
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
/// The queues that are published to; the second one is a quorum queue.
const QUEUES: [&str; 2] = ["classic", "quorum"];
/// Where their dead messages go.
const DEAD: &str = "dead";
/// Confirms and acknowledgements between a start and a kill, at the most.
const LIFE_STEPS_MAX: u64 = 3_000;
/// A life in which less than this happens in that time is a failure of its own. Seconds.
const LIFE_SECS: u64 = 120;
/// Messages that a publisher has on the way.
const INFLIGHT_MAX: usize = 64;
/// An acknowledgement that the broker got so short before a kill, or before a power cut without the flush after it, may be lost with it: no client
/// was answered that it was there. The sender does not know when it arrived, nor how long a flush takes, so that a margin comes on top. The time
/// before the kill goes by what the broker did, not by the clock: [`Oracle::alive`].
const ACK_LOST: Duration = Duration::from_millis(5 + 200);
/// When nothing comes for so long, a queue is empty.
const QUIET: Duration = Duration::from_millis(700);

/// What is known of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    confirmed: bool,
    /// When its acknowledgement was sent.
    acked: Option<Instant>,
    /// When its refusal for good was sent.
    refused: Option<Instant>,
    /// It was refused once: a refusal that is lost with a kill may have moved it already.
    may_be_dead: bool,
    /// How often it was given back so that it counts, and when last.
    given_back: (i64, Option<Instant>),
    /// It was in the queue of the dead.
    buried: bool,
}

/// What was promised over all lives.
#[derive(Debug, Default)]
struct Oracle {
    /// By queue and number.
    messages: BTreeMap<(usize, u64), Known>,
    next: u64,
    steps: u64,
    /// When the newest of the messages was sent that are confirmed: a broker that gets no processor, or whose disk stands still, confirms nothing
    /// that was sent since then.
    alive: Option<Instant>,
    /// [`Oracle::alive`] when the last life ended.
    killed: Option<Instant>,
    wrong: Vec<String>,
}

impl Oracle {
    /// `failed` is the message's `x-delivery-count`.
    fn delivered(&mut self, queue: usize, number: u64, failed: i64) {
        let killed = self.killed;
        let Some(known) = self.messages.get_mut(&(queue, number)) else {
            self.wrong.push(format!("{}: {number} was never sent", QUEUES[queue]));
            return;
        };
        let lost = |acked: Instant| killed.is_none_or(|killed| killed.saturating_duration_since(acked) > ACK_LOST);
        if let Some(acked) = known.acked.or(known.refused).filter(|acked| lost(*acked)) {
            let ms = killed.map(|killed| killed.saturating_duration_since(acked).as_millis());
            self.wrong.push(format!(
                "{}: {number} was acknowledged or refused {ms:?} ms before the kill and comes again",
                QUEUES[queue]
            ));
        }
        let (times, last) = known.given_back;
        if failed < times && last.is_some_and(lost) {
            self.wrong.push(format!("{}: {number} was given back {times} times and says {failed}", QUEUES[queue]));
        }
        (known.acked, known.refused, known.given_back.0) = (None, None, failed);
    }

    /// A message came from the queue of the dead, with the first entry of its `x-death`.
    fn buried(&mut self, number: u64, death: &Death) {
        let Some(queue) = QUEUES.iter().position(|queue| *queue == death.queue) else {
            return self.wrong.push(format!("{number} died in {death:?}"));
        };
        let Some(known) = self.messages.get_mut(&(queue, number)) else {
            return self.wrong.push(format!("{}: {number} is dead-lettered and was never sent", QUEUES[queue]));
        };
        let reasons = if queue == 0 { &["rejected"][..] } else { &["rejected", "delivery_limit"] };
        let refused = known.may_be_dead || death.reason != "rejected";
        if !reasons.contains(&death.reason.as_str()) || !refused || death.entries != 1 || death.count != 1 {
            self.wrong.push(format!("{}: {number}: {known:?} is dead as {death:?}", QUEUES[queue]));
        }
        known.buried = true;
    }
}

/// What `x-death` says.
#[derive(Debug, Default)]
struct Death {
    entries: usize,
    queue: String,
    reason: String,
    count: i64,
}

impl Death {
    fn of(message: &Message) -> Result<Death> {
        let headers = message.headers()?;
        let deaths = headers.get("x-death").ok_or("a dead message without x-death")?;
        let mut death = Death { entries: deaths.elements().count(), ..Death::default() };
        for (_, first) in deaths.elements().take(1) {
            for field in first.fields() {
                let text = || String::from_utf8_lossy(field.value.as_longstr().unwrap_or_default()).into_owned();
                match field.name {
                    b"queue" => death.queue = text(),
                    b"reason" => death.reason = text(),
                    b"count" => death.count = field.value.as_i64().unwrap_or_default(),
                    _ => {}
                }
            }
        }
        Ok(death)
    }
}

/// How often a message says that it failed.
fn failed(message: &Message) -> Result<i64> {
    Ok(message.headers()?.get("x-delivery-count").as_ref().and_then(Value::as_i64).unwrap_or_default())
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
            open.insert(tag, (number, Instant::now()));
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
        for (number, sent) in confirmed.into_values() {
            oracle.steps += 1;
            oracle.alive = oracle.alive.max(Some(sent));
            oracle.messages.get_mut(&(queue, number)).unwrap().confirmed = true;
        }
    }
    Ok(())
}

/// Consumes until `stop`, or until the server goes: acknowledges most of what comes, refuses some for good, gives some back.
fn consume_until(to: SocketAddr, queue: usize, seed: u64, oracle: &Mutex<Oracle>, stop: &AtomicBool) -> Result<()> {
    let rng = SimRng::derive(seed, "consumer");
    let mut amqp = Amqp::connect(to)?;
    amqp.consume(QUEUES[queue], 200)?;
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Some(Came::Message(message)) = amqp.wait(Duration::from_millis(100))? else { continue };
        let number = number_of(&message.body)?;
        oracle.lock().unwrap().delivered(queue, number, failed(&message)?);
        held.push((message.tag, number));
        if held.len() < 20 {
            continue;
        }
        // Holes: most of them, in any order, and some much later.
        while held.len() > 5 {
            let (tag, number) = held.swap_remove(rng.below(held.len() as u64) as usize);
            let mut oracle = oracle.lock().unwrap();
            oracle.steps += 1;
            // Noted before it is sent: it may count as sent too early, never too late.
            let (known, now) = (oracle.messages.get_mut(&(queue, number)).unwrap(), Some(Instant::now()));
            match rng.below(10) {
                0 => {
                    amqp.reject(tag, false);
                    (known.refused, known.may_be_dead) = (now, true);
                }
                1 => {
                    amqp.reject(tag, true);
                    // Only quorum queues count.
                    known.given_back = (known.given_back.0 + i64::from(queue == 1), now);
                }
                _ => {
                    amqp.ack(tag);
                    known.acked = now;
                }
            }
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
    server.amqp().ok_or_else(|| "the server printed no address for AMQP".to_owned())
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
        {
            let mut oracle = oracle.lock().unwrap();
            oracle.killed = oracle.alive;
        }
        stop.store(true, Ordering::Relaxed);
        // They end by the kill, mostly with an error.
        let ends: Vec<_> = running.into_iter().map(|client| client.join().unwrap()).collect();
        loaded.map_err(|e| format!("{e}; clients ended with {ends:?}\n{said}"))?;
        killed
    })
}

/// Takes what is in a queue until nothing comes any more.
fn take_all(server: &Server, queue: &str, mut take: impl FnMut(&mut Amqp, Message) -> Result<()>) -> Result<()> {
    let mut amqp = Amqp::connect(amqp(server)?)?;
    amqp.consume(queue, 0)?;
    while let Some(came) = amqp.wait(QUIET)? {
        let Came::Message(message) = came else { return Err(format!("{queue}: {came:?}")) };
        take(&mut amqp, message)?;
    }
    amqp.flush()
}

/// Takes all that is in the queues, without acknowledging it: it stays. What is dead is acknowledged.
fn verify(server: &Server, oracle: &mut Oracle) -> Result<()> {
    let mut there: [BTreeMap<u64, u32>; QUEUES.len()] = Default::default();
    for (queue, name) in QUEUES.iter().enumerate() {
        take_all(server, name, |_, message| {
            let number = number_of(&message.body)?;
            oracle.delivered(queue, number, failed(&message)?);
            *there[queue].entry(number).or_insert(0) += 1;
            Ok(())
        })?;
    }
    take_all(server, DEAD, |amqp, message| {
        amqp.ack(message.tag);
        oracle.buried(number_of(&message.body)?, &Death::of(&message)?);
        Ok(())
    })?;
    for (queue, name) in QUEUES.iter().enumerate() {
        let there = &there[queue];
        oracle
            .wrong
            .extend(there.iter().filter(|(_, times)| **times > 1).map(|(n, _)| format!("{name}: {n} is there twice")));
        let known = oracle.messages.range((queue, 0)..(queue + 1, 0));
        // One whose acknowledgement is lost comes again, and is not acknowledged any more.
        let lost = known
            .filter(|(_, known)| known.confirmed && known.acked.is_none() && !known.buried)
            .filter(|((_, number), _)| !there.contains_key(number));
        let lost: Vec<u64> = lost.map(|((_, number), _)| *number).collect();
        if !lost.is_empty() {
            oracle.wrong.push(format!("{name}: confirmed, not acknowledged, not dead and gone: {lost:?}"));
        }
    }
    // What was not confirmed and is not there will never come: it must not be waited for.
    match std::mem::take(&mut oracle.wrong).as_slice() {
        [] => Ok(()),
        wrong => Err(wrong.iter().take(10).cloned().collect::<Vec<_>>().join("\n")),
    }
}

/// Declares the queues.
fn declare(server: &Server) -> Result<()> {
    let mut declaring = Amqp::connect(amqp(server)?)?;
    declaring.declare(DEAD, &[])?;
    for name in QUEUES {
        let dead = [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", DEAD)];
        declaring.declare(name, &[&dead[..], &[("x-queue-type", name)]].concat())?;
    }
    Ok(())
}

#[test]
fn kill_9_loses_no_confirmed_message_and_brings_no_acknowledged_one_back() {
    let (kills, seed) = (amount("POLYLOGUE_QUEUE_KILLS", 5), seed());
    let place = Place::new("queue-kills");
    let (oracle, rng) = (Mutex::new(Oracle::default()), SimRng::derive(seed, "kills"));
    let mut server = place.start(serve(&place)).unwrap();
    declare(&server).unwrap();
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
    let buried = oracle.messages.values().filter(|known| known.buried).count();
    assert!(buried > 0, "nothing was refused, of {acked} messages that were acknowledged");
    server.terminate().unwrap();
}

/// A round on a new directory: the first cut meets its creation too, the second one what recovery wrote.
fn power_cut_round(seed: u64) -> Result<u64> {
    let place = Place::new("queue-power-cut");
    let (oracle, rng) = (Mutex::new(Oracle::default()), SimRng::derive(seed, "power"));
    let mut lost = 0;
    for cut in 0..2 {
        let mut command = serve(&place);
        let injector = Injector::new(&place.watched(), place.root.path()).map_err(|e| e.to_string())?;
        injector.preload(&mut command);
        let server = place.start(command)?;
        if cut == 0 {
            declare(&server)?;
        }
        live(server, &oracle, 1 + rng.below(LIFE_STEPS_MAX), seed + cut)?;
        let report = injector.cut_power(Power::Cut { seed: seed + cut }).map_err(|e| e.to_string())?;
        lost += report.sectors_lost + report.names_lost;
        let server = place.start(serve(&place)).map_err(|e| format!("after cut {cut}, {report:?}: {e}"))?;
        verify(&server, &mut oracle.lock().unwrap()).map_err(|e| format!("after cut {cut}, {report:?}: {e}"))?;
        server.terminate()?;
    }
    let oracle = oracle.into_inner().unwrap();
    match oracle.messages.values().any(|known| known.confirmed) {
        true => Ok(lost),
        false => Err("nothing was confirmed".to_owned()),
    }
}

#[test]
fn a_power_cut_loses_no_confirmed_message_and_brings_no_acknowledged_one_back() {
    let (rounds, seed) = (amount("POLYLOGUE_QUEUE_POWER_CUTS", 3), seed());
    let (mut lost, mut round) = (0, 0);
    // Whether something lies unflushed when the power goes is chance: until it did, on a busy machine, there are more rounds.
    while round < rounds || (lost == 0 && round < 10 * rounds) {
        let seed = seed + round * 2;
        round += 1;
        lost += power_cut_round(seed).unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}: {e}"));
    }
    assert!(lost > 0, "in {round} rounds nothing that was not flushed was lost: the cuts tested nothing");
}
