//! `kill -9` while messages go from a queue into a topic of Kafka, and from the topic to an exchange: what was confirmed arrives, at least
//! once, in its order.
//!
//! `POLYLOGUE_QUEUE_KILLS` says how many kills; `POLYLOGUE_SEED` repeats what was drawn (the moments of the kills it does not).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::amqp::{Amqp, Came};
use common::kafka::Kafka;
use common::{Place, amount, seed};
use polylogue_amqp::codec::Method;
use polylogue_env::sim::SimRng;
use polylogue_testkit::{Result, Server, wait_until};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From this queue into the topic, and from there over the exchange into the last queue.
const FIRST: &str = "first";
const TOPIC: &str = "between";
const EXCHANGE: &str = "on";
const LAST: &str = "last";
const TO_TOPIC: &str = "x-polylogue-topic";
/// Messages that the publisher has on the way.
const INFLIGHT_MAX: u64 = 50;
/// Confirms between a start and a kill, at the most.
const LIFE_CONFIRMS_MAX: u64 = 1_000;
/// How long is waited for anything that must come. Seconds.
const PATIENCE_S: u64 = 60;

/// What was promised and what came.
#[derive(Debug, Default)]
struct Oracle {
    sent: u64,
    confirmed: BTreeSet<u64>,
    /// What came out of the last queue, without what came again.
    came: BTreeSet<u64>,
}

impl Oracle {
    /// A message came. What comes again may come after later ones: from where reading goes on after a kill.
    fn comes(&mut self, number: u64, last: &mut Option<u64>) -> Result<()> {
        if number == 0 || number > self.sent {
            return Err(format!("{number} was never sent"));
        }
        if self.came.insert(number) && last.is_some_and(|last| last > number) {
            return Err(format!("{number} came for the first time after {last:?}"));
        }
        *last = Some(number);
        Ok(())
    }
}

fn serve(place: &Place) -> Command {
    let mut command = place.serve(&["log.journal_file_bytes=4MiB", "log.disk_reserve_bytes=16MiB"]);
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    command
}

fn amqp(server: &Server) -> Result<SocketAddr> {
    server.amqp().ok_or_else(|| "the server printed no address for AMQP".to_owned())
}

/// Publishes until `stop`, or until the server goes.
fn publish_until(to: SocketAddr, oracle: &Mutex<Oracle>, stop: &AtomicBool) -> Result<()> {
    let mut amqp = Amqp::connect(to)?;
    amqp.confirm()?;
    let (base, mut open) = (oracle.lock().unwrap().sent, BTreeSet::new());
    while !stop.load(Ordering::Relaxed) {
        while open.len() < INFLIGHT_MAX as usize {
            let number = {
                let mut oracle = oracle.lock().unwrap();
                oracle.sent += 1;
                oracle.sent
            };
            amqp.publish(FIRST, number.to_string().as_bytes());
            open.insert(number);
        }
        amqp.flush()?;
        let Some(Came::Method(Method::BasicAck(ack))) = amqp.wait(Duration::from_millis(100))? else { continue };
        let number = base + ack.delivery_tag;
        let confirmed = if ack.multiple { open.range(..=number).copied().collect() } else { vec![number] };
        for number in confirmed {
            open.remove(&number);
            oracle.lock().unwrap().confirmed.insert(number);
        }
    }
    Ok(())
}

/// Takes what comes out of the last queue, and acknowledges it, until `stop`, or until the server goes.
fn take_until(to: SocketAddr, oracle: &Mutex<Oracle>, stop: &AtomicBool) -> Result<()> {
    let mut amqp = Amqp::connect(to)?;
    amqp.consume(LAST, 100)?;
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(Came::Message(message)) = amqp.wait(Duration::from_millis(50))? else { continue };
        let number = std::str::from_utf8(&message.body).ok().and_then(|text| text.parse().ok());
        oracle.lock().unwrap().comes(number.ok_or("an unknown body")?, &mut last)?;
        amqp.ack(message.tag);
        amqp.flush()?;
    }
    Ok(())
}

/// A life under load, ended by a kill.
fn live(server: Server, oracle: &Mutex<Oracle>, confirms: u64) -> Result<()> {
    let (to, stop) = (amqp(&server)?, AtomicBool::new(false));
    let enough = oracle.lock().unwrap().confirmed.len() as u64 + confirms;
    std::thread::scope(|scope| {
        let publishes = scope.spawn(|| publish_until(to, oracle, &stop));
        let takes = scope.spawn(|| take_until(to, oracle, &stop));
        let loaded = wait_until("confirms under load", PATIENCE_S, || {
            Ok((oracle.lock().unwrap().confirmed.len() as u64 >= enough).then_some(()))
        });
        let killed = server.kill();
        stop.store(true, Ordering::Relaxed);
        let ends = [publishes.join().unwrap(), takes.join().unwrap()];
        // They end by the kill, mostly; what is wrong is no error of the connection.
        let wrong =
            ends.iter().filter_map(|end| end.as_ref().err()).find(|e| e.contains("never sent") || e.contains("came"));
        match wrong {
            Some(wrong) => Err(wrong.clone()),
            None => loaded.map_err(|e| format!("{e}; clients ended with {ends:?}")).and(killed),
        }
    })
}

#[test]
fn kill_9_loses_nothing_on_its_way_from_queue_to_topic_to_exchange() {
    let (kills, seed) = (amount("POLYLOGUE_QUEUE_KILLS", 3), seed());
    let place = Place::new("mapping-kills");
    let (oracle, rng) = (Mutex::new(Oracle::default()), SimRng::derive(seed, "kills"));
    let mut server = place.start(serve(&place)).unwrap();
    Kafka::connect(server.kafka()).unwrap().create_topic(TOPIC, 1, &[]).unwrap();
    let mut declaring = Amqp::connect(amqp(&server).unwrap()).unwrap();
    declaring.declare(LAST, &[]).unwrap();
    declaring.fan_out(EXCHANGE, &[(TO_TOPIC, TOPIC)], LAST).unwrap();
    declaring.declare(FIRST, &[(TO_TOPIC, TOPIC)]).unwrap();
    drop(declaring);
    for nth in 1..=kills {
        let what = format!("POLYLOGUE_SEED={seed}, kill {nth} of {kills}");
        let confirms = 1 + rng.below(LIFE_CONFIRMS_MAX);
        live(server, &oracle, confirms).unwrap_or_else(|e| panic!("{what}: {e}"));
        server = place.start(serve(&place)).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let (to, stop) = (amqp(&server).unwrap(), AtomicBool::new(false));
    let missing = |oracle: &Oracle| oracle.confirmed.difference(&oracle.came).copied().take(10).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let takes = scope.spawn(|| take_until(to, &oracle, &stop));
        let all = wait_until("all that was confirmed", PATIENCE_S, || {
            Ok((takes.is_finished() || missing(&oracle.lock().unwrap()).is_empty()).then_some(()))
        });
        stop.store(true, Ordering::Relaxed);
        takes.join().unwrap().unwrap();
        all.unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}: {e}: {:?}", missing(&oracle.lock().unwrap())));
    });
    let oracle = oracle.into_inner().unwrap();
    eprintln!("{} sent, {} confirmed, {} came", oracle.sent, oracle.confirmed.len(), oracle.came.len());
    assert!(oracle.confirmed.len() as u64 >= kills, "too little was confirmed to mean anything");
    server.terminate().unwrap();
}
