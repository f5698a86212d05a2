//! Cost of pending delays: `cargo run --release -p polylogue-broker --example delays [DIRECTORY] [messages]`, twice.
//!
//! In an empty directory: publishes ten million messages of 100 bytes to one queue, each with its own delivery time within thirty days, and stops. In
//! a directory with a queue: starts, and delivers due messages for two minutes. Prints times, memory and how late messages were.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a measurement, of wall time")]

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig, ReplySink};
use polylogue_env::Env;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_types::PartitionId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const DAYS_30_MS: u64 = 30 * 24 * 3600 * 1000;
const REQUEST: u64 = 1_000;
const REQUESTS_OPEN_MAX: usize = 8;
const HANDING: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct Client {
    replies: Mutex<Vec<Reply>>,
    wake: Condvar,
    /// How late each message was, by the time in its body.
    late_ms: Mutex<Vec<i64>>,
}

impl ReplySink for Client {
    fn reply(&self, _: Token, reply: Reply) {
        self.replies.lock().push(reply);
        self.wake.notify_one();
    }

    fn event(&self, event: Event) {
        if let Event::Deliver(deliveries) = event {
            let now = now_ms();
            let at = |delivery: &Delivery| i64::from_le_bytes(delivery.bytes[..8].try_into().unwrap());
            self.late_ms.lock().extend(deliveries.iter().map(|delivery| now - at(delivery)));
        }
    }
}

impl Client {
    fn next(&self) -> Reply {
        let mut replies = self.replies.lock();
        while replies.is_empty() {
            self.wake.wait(&mut replies);
        }
        replies.remove(0)
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Anonymous memory of this process.
fn anonymous_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn timers(broker: &Broker) -> (u64, u64, u64) {
    let shards = broker.shards();
    let sum = |of: fn(&polylogue_broker::ShardStatus) -> u64| shards.iter().map(of).sum();
    (sum(|s| s.timers_pending), sum(|s| s.timers_resident), sum(|s| s.timers_late))
}

fn message(queue: PartitionId, n: u64) -> PublishMessage {
    let at = now_ms() + 61_000 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % DAYS_30_MS) as i64;
    let mut bytes = vec![0; 100];
    bytes[..8].copy_from_slice(&at.to_le_bytes());
    PublishMessage {
        queues: vec![Target { queue, priority: None, expires_at: None, deliver_at: Some(at) }],
        form: Form::AmqpMessage,
        flags: EntryFlags::NONE,
        bytes: Bytes::from(bytes),
        timestamp: -1,
        key_hash: None,
        all_or_none: false,
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "target/delays".to_owned());
    let count: u64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(10_000_000);
    let started = Instant::now();
    let broker = Broker::open(Env::real(), BrokerConfig::new(dir.into()), BTreeMap::new()).unwrap();
    broker.start().unwrap();
    println!("open after {} ms, {} MiB of anonymous memory", started.elapsed().as_millis(), anonymous_mib());
    let client = Arc::new(Client::default());
    let (session, sink): (_, Arc<dyn ReplySink>) = (broker.new_session(), client.clone());
    match broker.catalog().topic("q") {
        None => {
            let queue = Some(QueueSettings::default());
            let config = TopicConfig { queue, retention_ms: None, ..TopicConfig::default() };
            let topic = NewTopic { name: "q".into(), partitions: 1, config, internal: false };
            let create = CreateTopics { topics: vec![topic], validate_only: false };
            broker.submit(&sink, session, 0, Request::CreateTopics(create));
            client.next();
            let queue = broker.catalog().topic("q").unwrap().partitions[0].id;
            publish(&broker, &client, queue, count);
        }
        Some(topic) => {
            let attach = Attach { queue: topic.partitions[0].id, consumer: ConsumerSpec::default() };
            println!("pending, in memory, late: {:?}", timers(&broker));
            broker.submit(&sink, session, 0, Request::Attach(attach));
            std::thread::sleep(HANDING);
            let mut late_ms = client.late_ms.lock().clone();
            late_ms.sort_unstable();
            let at = |part: usize| late_ms.get((late_ms.len() * part / 100).min(late_ms.len().saturating_sub(1)));
            println!(
                "{} handed out; late by p50 {:?}, p99 {:?}, at most {:?} ms",
                late_ms.len(),
                at(50),
                at(99),
                at(100)
            );
            println!("pending, in memory, late: {:?}, {} MiB of anonymous memory", timers(&broker), anonymous_mib());
        }
    }
    let stopping = Instant::now();
    broker.shutdown();
    println!("stopped in {} ms", stopping.elapsed().as_millis());
}

fn publish(broker: &Broker, client: &Arc<Client>, queue: PartitionId, count: u64) {
    let (session, sink): (_, Arc<dyn ReplySink>) = (broker.new_session(), client.clone());
    let (started, mut open, mut most) = (Instant::now(), 0, 0);
    let mut slowest = Duration::ZERO;
    for first in (0..count).step_by(REQUEST as usize) {
        let messages = (first..first + REQUEST).map(|n| message(queue, n)).collect();
        let request = PublishRequest { messages, ack: Ack::Committed, patient: false };
        broker.submit(&sink, session, first + 1, Request::Publish(request));
        open += 1;
        let asked = Instant::now();
        while open >= REQUESTS_OPEN_MAX {
            client.next();
            open -= 1;
        }
        slowest = slowest.max(asked.elapsed());
        if first % (count / 100).max(1) == 0 {
            most = most.max(anonymous_mib());
        }
    }
    (0..open).for_each(|_| drop(client.next()));
    let took = started.elapsed();
    println!(
        "{count} published in {:.1} s, {:.0} a second, the longest wait for one of {REQUESTS_OPEN_MAX} requests {} ms; at most {most} MiB",
        took.as_secs_f64(),
        count as f64 / took.as_secs_f64(),
        slowest.as_millis(),
    );
    println!("pending, in memory, late: {:?}, {} MiB", timers(broker), anonymous_mib());
}
