//! `kill -9`, and power cuts, right after queues were deleted, and declared anew, on the real binary: what is deleted stays gone, with its bindings, its messages
//! and its topic of Kafka's clients, and what was declared anew has nothing of what had its name before.
//!
//! `POLYLOGUE_QUEUE_KILLS` and `POLYLOGUE_QUEUE_POWER_CUTS` say how many; `POLYLOGUE_SEED` repeats what was drawn.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::amqp::{Amqp, Came};
use common::kafka::Kafka;
use common::{Place, amount, seed};
use polylogue_amqp::codec::Method;
use polylogue_env::sim::SimRng;
use polylogue_faultfs::{Injector, Power};
use polylogue_testkit::{Result, Server};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

/// Small files and frequent checkpoints: deletions are found in either.
const SETTINGS: &[&str] = &[
    "log.journal_file_bytes=4MiB",
    "log.checkpoint_bytes_max=1MiB",
    "log.merge_bytes=1MiB",
    "log.disk_reserve_bytes=16MiB",
];
/// Queues that come and go; every other one is a quorum queue.
const QUEUES: [&str; 4] = ["q0", "q1", "q2", "q3"];
/// The exchange that some of them are bound to, and a queue that always is.
const EXCHANGE: &str = "all";
const BOUND: &str = "stays";
/// Declarations and deletions of a life, at the most.
const STEPS_MAX: u64 = 40;
/// How long a message may take. Seconds.
const SECS: u64 = 60;
/// When nothing comes for so long, a queue is empty.
const QUIET: Duration = Duration::from_millis(300);

/// A queue that is there.
#[derive(Clone, Debug, Default)]
struct Queue {
    bound: bool,
    messages: BTreeSet<String>,
}

/// What was answered, and by what it may have been followed.
#[derive(Default)]
struct World {
    queues: [Option<Queue>; QUEUES.len()],
    /// The queue that was about to be deleted or declared when the node was killed.
    doubt: Option<usize>,
    sent: u64,
}

fn serve(place: &Place) -> Command {
    let mut command = place.serve(SETTINGS);
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    command
}

fn start(place: &Place) -> Result<Server> {
    place.start(serve(place))
}

fn connect(server: &Server) -> Result<Amqp> {
    Amqp::connect(server.amqp().ok_or("the server printed no address for AMQP")?)
}

fn arguments(at: usize) -> &'static [(&'static str, &'static str)] {
    if at % 2 == 1 { &[("x-queue-type", "quorum")] } else { &[] }
}

impl World {
    /// Publishes so many messages, and waits until they are confirmed.
    fn publish(&mut self, amqp: &mut Amqp, at: usize, exchange: &str, messages: u64) -> Result<()> {
        for _ in 0..messages {
            self.sent += 1;
            let text = format!("message {}", self.sent);
            amqp.publish_to(exchange, QUEUES[at], text.as_bytes());
            for (i, queue) in self.queues.iter_mut().enumerate() {
                let gets = |queue: &&mut Queue| if exchange.is_empty() { i == at } else { queue.bound };
                queue.iter_mut().filter(gets).for_each(|queue| _ = queue.messages.insert(text.clone()));
            }
            amqp.flush()?;
            match amqp.wait(Duration::from_secs(SECS))? {
                Some(Came::Method(Method::BasicAck(_))) => {}
                other => return Err(format!("no confirm: {other:?}")),
            }
        }
        Ok(())
    }

    /// Declares and deletes queues, and is killed after an answer, or while one is to come.
    fn live(&mut self, server: Server, rng: &SimRng) -> Result<()> {
        let mut amqp = connect(&server)?;
        amqp.declare(BOUND, &[])?;
        amqp.fan_out(EXCHANGE, &[], BOUND)?;
        amqp.confirm()?;
        for _ in 0..1 + rng.below(STEPS_MAX) {
            let at = rng.below(QUEUES.len() as u64) as usize;
            if self.queues[at].is_some() && rng.below(4) > 0 {
                amqp.delete(QUEUES[at]);
                amqp.deleted()?;
                self.queues[at] = None;
            } else {
                if self.queues[at].is_none() {
                    amqp.declare(QUEUES[at], arguments(at))?;
                    self.queues[at] = Some(Queue::default());
                }
                if rng.below(2) == 0 {
                    amqp.fan_out(EXCHANGE, &[], QUEUES[at])?;
                    self.queues[at].as_mut().expect("declared").bound = true;
                }
                let exchange = if rng.below(3) == 0 { EXCHANGE } else { "" };
                self.publish(&mut amqp, at, exchange, rng.below(4))?;
            }
        }
        if rng.below(2) == 0 {
            let at = rng.below(QUEUES.len() as u64) as usize;
            self.doubt = Some(at);
            amqp.delete(QUEUES[at]);
            amqp.flush()?;
        }
        server.kill()
    }

    /// Looks at what is there, to clients of both protocols, and forgets what was in doubt.
    fn verify(&mut self, server: &Server) -> Result<()> {
        let mut kafka = Kafka::connect(server.kafka())?;
        for (at, name) in QUEUES.iter().enumerate() {
            let is_there = connect(server)?.is_there(name)?;
            if self.doubt == Some(at) && !is_there {
                self.queues[at] = None;
            }
            let topic = format!("amqp-queue.{name}");
            if is_there != self.queues[at].is_some() || is_there != kafka.topics()?.contains(&topic) {
                let topics = kafka.topics()?;
                return Err(format!("{name}: {is_there}, and {:?} was answered; topics {topics:?}", self.queues[at]));
            }
            if !is_there {
                // What it had would come back with its name.
                connect(server)?.declare(name, arguments(at))?;
                self.queues[at] = Some(Queue::default());
            }
        }
        self.doubt = None;
        // A binding that came back would show.
        let mut amqp = connect(server)?;
        amqp.confirm()?;
        self.publish(&mut amqp, 0, EXCHANGE, 1)?;
        for (name, queue) in QUEUES.iter().zip(&self.queues) {
            let expected = &queue.as_ref().expect("declared").messages;
            let mut consumer = connect(server)?;
            consumer.consume(name, 0)?;
            let mut found = BTreeSet::new();
            while found.len() < expected.len() {
                let came = consumer.wait(Duration::from_secs(SECS))?;
                let Some(Came::Message(message)) = came else { return Err(format!("{name}: {came:?}")) };
                found.insert(String::from_utf8_lossy(&message.body).into_owned());
            }
            let more = consumer.wait(QUIET)?;
            let values = kafka.read_all(&format!("amqp-queue.{name}"), 0)?;
            let records: BTreeSet<_> = values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect();
            if found != *expected || more.is_some() || records != *expected {
                return Err(format!("{name}: {found:?}, {more:?}, to Kafka {records:?}; expected {expected:?}"));
            }
        }
        Ok(())
    }
}

#[test]
fn a_deleted_queue_stays_gone_and_one_declared_anew_is_empty_whenever_it_is_killed() {
    let (kills, seed) = (amount("POLYLOGUE_QUEUE_KILLS", 5), seed());
    let place = Place::new("queue-deletes");
    let (mut world, rng) = (World::default(), SimRng::derive(seed, "deletes"));
    let mut server = start(&place).unwrap();
    for nth in 1..=kills {
        let what = format!("POLYLOGUE_SEED={seed}, kill {nth} of {kills}");
        world.live(server, &rng).unwrap_or_else(|e| panic!("{what}: {e}"));
        server = start(&place).unwrap_or_else(|e| panic!("{what}: {e}"));
        world.verify(&server).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    server.terminate().unwrap();
}

/// A round on a new directory: the first cut meets its creation too, the second one what recovery wrote.
fn power_cut_round(seed: u64) -> Result<()> {
    let place = Place::new("queue-deletes-cut");
    let (mut world, rng) = (World::default(), SimRng::derive(seed, "cuts"));
    for cut in 0..2 {
        let mut command = serve(&place);
        let injector = Injector::new(&place.watched(), place.root.path()).map_err(|e| e.to_string())?;
        injector.preload(&mut command);
        world.live(place.start(command)?, &rng)?;
        let report = injector.cut_power(Power::Cut { seed: seed + cut }).map_err(|e| e.to_string())?;
        let server = start(&place).map_err(|e| format!("after cut {cut}, {report:?}: {e}"))?;
        world.verify(&server).map_err(|e| format!("after cut {cut}, {report:?}: {e}"))?;
        server.terminate()?;
    }
    Ok(())
}

#[test]
fn a_deleted_queue_stays_gone_and_one_declared_anew_is_empty_whenever_the_power_goes() {
    let (rounds, seed) = (amount("POLYLOGUE_QUEUE_POWER_CUTS", 3), seed());
    for round in 0..rounds {
        let seed = seed + round * 2;
        power_cut_round(seed).unwrap_or_else(|e| panic!("POLYLOGUE_SEED={seed}: {e}"));
    }
}
