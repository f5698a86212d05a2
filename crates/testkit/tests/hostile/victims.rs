//! Those who are not to be held up, and what they saw.

use crate::common::Place;
use crate::common::amqp::{Amqp, Came};
use crate::common::kafka::Kafka;
use polylogue_testkit::Server;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long each attack goes on. Seconds.
const ATTACK_SECS: u64 = 8;
/// What is asked for. Milliseconds.
const P99_MS_MAX: f64 = 50.0;
const WORST_MS_MAX: f64 = 250.0;
/// What the broker may take in memory. Bytes.
const MEMORY_BYTES_MAX: u64 = 768 << 20;
/// How much nicer attackers are.
const ATTACKER_NICE: i32 = 10;
/// What a victim sends. Bytes.
const MESSAGE: &[u8] = &[b'v'; 100];

/// How long something took each time. Milliseconds.
struct Times(Vec<f64>);

impl Times {
    fn at(&self, part: f64) -> f64 {
        let at = ((self.0.len() as f64 * part) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(at).copied().unwrap_or(f64::INFINITY)
    }

    fn line(&self, who: &str) -> String {
        let (p50, p99, worst) = (self.at(0.5), self.at(0.99), self.at(1.0));
        format!("{who:>12}: {:6} messages, p50 {p50:8.2} ms, p99 {p99:8.2} ms, worst {worst:8.2} ms", self.0.len())
    }
}

/// Does something again and again until it is stopped.
fn times(stop: &Arc<AtomicBool>, mut once: impl FnMut() + Send + 'static) -> JoinHandle<Times> {
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut times = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            once();
            times.push(began.elapsed().as_secs_f64() * 1_000.0);
        }
        times.sort_by(f64::total_cmp);
        Times(times)
    })
}

/// A broker with victims.
pub(crate) struct Stage {
    pub(crate) place: Place,
    pub(crate) server: Server,
}

impl Stage {
    pub(crate) fn new(name: &str) -> Stage {
        let place = Place::new(name);
        let mut command = place.serve(&["server.connections_max=2000"]);
        command.args(["--listen", "amqp=127.0.0.1:0", "--listen", "rabbitmq-http=127.0.0.1:0"]);
        let server = place.start(command).unwrap();
        Stage { place, server }
    }

    pub(crate) fn kafka(&self) -> Kafka {
        Kafka::connect(self.server.kafka()).unwrap()
    }

    pub(crate) fn amqp(&self) -> Amqp {
        Amqp::connect(self.server.amqp().unwrap()).unwrap()
    }

    /// Lets attackers, each in a thread of its own, do what they do again and again beside the victims, and says what those saw.
    pub(crate) fn attack<A: FnMut() + Send + 'static>(&self, attackers: impl IntoIterator<Item = A>) {
        let stop: Arc<AtomicBool> = Arc::default();
        let mut kafka = self.kafka();
        kafka.create_topic("victim", 1, &[]).unwrap();
        let mut amqp = self.amqp();
        amqp.declare("victim", &[]).unwrap();
        amqp.confirm().unwrap();
        let (mut disk, message) = (Flushed::new(&self.place.watched()), crate::common::batch::batch(&[MESSAGE]));
        let bare = times(&stop, move || {
            disk.flush();
            std::thread::sleep(Duration::from_millis(5));
        });
        let kafka = times(&stop, move || {
            let (error, _) = kafka.produce("victim", 0, message.clone()).unwrap();
            assert_eq!(error as i16, 0);
        });
        let amqp = times(&stop, move || {
            amqp.publish("victim", MESSAGE);
            amqp.flush().unwrap();
            loop {
                match amqp.wait(Duration::from_secs(120)).unwrap() {
                    Some(Came::Method(polylogue_amqp::codec::Method::BasicAck(_))) => return,
                    Some(_) => {}
                    None => panic!("no confirm within 120 s"),
                }
            }
        });
        let attackers = attackers.into_iter().map(|mut attack| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                rustix::process::setpriority_process(None, ATTACKER_NICE).unwrap();
                let mut rounds = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    attack();
                    rounds += 1;
                }
                rounds
            })
        });
        let attackers: Vec<_> = attackers.collect();
        std::thread::sleep(Duration::from_secs(ATTACK_SECS));
        stop.store(true, Ordering::Relaxed);
        let [kafka, amqp, bare] = [kafka, amqp, bare].map(|thread| thread.join().unwrap());
        let peak = self.server.memory_peak_bytes().unwrap();
        eprintln!("{}\n{}\n{}", kafka.line("kafka"), amqp.line("amqp"), bare.line("bare flush"));
        eprintln!("      memory: {} MiB at the most", peak >> 20);
        // Attackers may wait for an answer for long: they are left behind where the broker is ended.
        drop(attackers);
        let slack = bare.at(0.99);
        for (who, times) in [("kafka", &kafka), ("amqp", &amqp)] {
            assert!(times.at(0.99) < P99_MS_MAX + slack, "{who}: {}", times.line("p99"));
            assert!(times.at(1.0) < WORST_MS_MAX + bare.at(1.0), "{who}: {}", times.line("worst"));
        }
        assert!(peak < MEMORY_BYTES_MAX, "{} MiB", peak >> 20);
    }
}

/// A file in which each write is flushed.
struct Flushed(File);

impl Flushed {
    fn new(dir: &Path) -> Flushed {
        Flushed(File::create(dir.join("bare-flush")).unwrap())
    }

    fn flush(&mut self) {
        self.0.write_all(&[0; 4_096]).unwrap();
        self.0.sync_data().unwrap();
    }
}
