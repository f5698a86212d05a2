//! Producers that go on over restarts of the broker, and give the oracle what they sent and what they were answered.

use super::batch::build;
use super::kafka::Kafka;
use super::oracle::{MADE, Message, Oracle, Partition};
use polylogue_env::sim::SimRng;
use polylogue_kafka_codec::ErrorCode;
use polylogue_record::compress::Codec;
use polylogue_record::kafka::BatchBuilder;
use polylogue_testkit::Result;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Batches that a producer has on the way at once: what an idempotent Kafka producer may have.
const INFLIGHT_MAX: usize = 5;
/// Messages of a batch at the most.
const BATCH_MESSAGES_MAX: u64 = 6;

/// One in so many topics is not deleted again.
const TOPICS_FOR_ONE_THAT_STAYS: u64 = 20;
/// How long a consumer waits for messages.
const CONSUMER_WAIT_MS: i32 = 100;

/// A batch that was not acknowledged yet.
#[derive(Debug)]
struct Open {
    first: u64,
    count: u64,
    /// Of the request that is on its way.
    correlation: Option<i32>,
}

/// One producer of one partition.
#[derive(Debug)]
pub(crate) struct Producer {
    id: u32,
    partition: Partition,
    idempotent: bool,
    identity: Option<(i64, i16)>,
    open: VecDeque<Open>,
    next: u64,
    rng: SimRng,
}

impl Producer {
    pub(crate) fn new(id: u32, partition: Partition, idempotent: bool, seed: u64) -> Producer {
        let rng = SimRng::derive(seed, &format!("producer {id}"));
        Producer { id, partition, idempotent, identity: None, open: VecDeque::new(), next: 0, rng }
    }

    /// Produces until `stop`, and then until all is answered; or until the connection is lost. Errors of the
    /// connection are what the test is about; anything else is a failure.
    pub(crate) fn live(&mut self, to: SocketAddr, oracle: &Mutex<Oracle>, stop: &AtomicBool) -> Result<()> {
        let failed = self.produce_until(to, oracle, stop);
        self.open.iter_mut().for_each(|open| open.correlation = None);
        if !self.idempotent {
            // A second time it could be there twice: what is unknown stays unknown.
            self.open.clear();
        }
        match failed {
            Err(Trouble::Broker(what)) => Err(format!("producer {}: {what}", self.id)),
            Ok(()) | Err(Trouble::Connection(_)) => Ok(()),
        }
    }

    fn produce_until(
        &mut self,
        to: SocketAddr,
        oracle: &Mutex<Oracle>,
        stop: &AtomicBool,
    ) -> std::result::Result<(), Trouble> {
        let mut kafka = Kafka::connect(to)?;
        if self.idempotent && self.identity.is_none() {
            self.identity = Some(kafka.init_producer_id()?);
        }
        loop {
            self.send_again(&mut kafka)?;
            if stop.load(Ordering::Relaxed) {
                if self.open.is_empty() {
                    return Ok(());
                }
            } else if self.open.len() < INFLIGHT_MAX && (self.open.is_empty() || self.rng.chance(700_000)) {
                self.send_next(&mut kafka, oracle)?;
                continue;
            }
            self.take_answer(&mut kafka, oracle)?;
        }
    }

    /// What a lost connection left unanswered goes first, in its order.
    fn send_again(&mut self, kafka: &mut Kafka) -> Result<()> {
        for at in 0..self.open.len() {
            let (first, count) = (self.open[at].first, self.open[at].count);
            if self.open[at].correlation.is_none() {
                self.open[at].correlation = Some(self.send(kafka, first, count)?);
            }
        }
        Ok(())
    }

    fn send_next(&mut self, kafka: &mut Kafka, oracle: &Mutex<Oracle>) -> Result<()> {
        let (first, count) = (self.next, 1 + self.rng.below(BATCH_MESSAGES_MAX));
        self.next += count;
        oracle.lock().unwrap().sends(Message { producer: self.id, number: first + count - 1 });
        self.open.push_back(Open { first, count, correlation: None });
        let sent = self.send(kafka, first, count)?;
        self.open.back_mut().unwrap().correlation = Some(sent);
        Ok(())
    }

    fn send(&self, kafka: &mut Kafka, first: u64, count: u64) -> Result<i32> {
        // The same batch is the same bytes each time it is sent.
        let codec = Codec::ALL[(first % 5) as usize];
        let mut builder = BatchBuilder::new().compression(codec, None);
        if let Some((id, epoch)) = self.identity {
            builder = builder.producer(id, epoch, first as i32);
        }
        let values: Vec<_> =
            (first..first + count).map(|number| Message { producer: self.id, number }.value()).collect();
        kafka.send_produce(self.partition.0, self.partition.1, build(builder, &values))
    }

    fn take_answer(&mut self, kafka: &mut Kafka, oracle: &Mutex<Oracle>) -> std::result::Result<(), Trouble> {
        let (correlation, (error, offset)) = kafka.receive_produced()?;
        let Some(at) = self.open.iter().position(|open| open.correlation == Some(correlation)) else {
            return Err(Trouble::Broker(format!("an answer to nothing: {correlation}")));
        };
        match error {
            ErrorCode::None => {
                let open = self.open.remove(at).unwrap();
                let mut oracle = oracle.lock().unwrap();
                for (number, offset) in (open.first..open.first + open.count).zip(offset..) {
                    oracle.acknowledged(Message { producer: self.id, number }, offset).map_err(Trouble::Broker)?;
                }
                Ok(())
            }
            // Known to be there, at an offset that the broker no longer knows.
            ErrorCode::DuplicateSequenceNumber if self.idempotent => {
                self.open.remove(at);
                Ok(())
            }
            error => Err(Trouble::Broker(format!("message {} was refused: {error:?}", self.open[at].first))),
        }
    }
}

/// Why a producer stopped.
enum Trouble {
    /// As a lost connection.
    Connection(#[allow(dead_code, reason = "for the debugger: the kill loses every connection")] String),
    /// The broker did what it must not do.
    Broker(String),
}

impl From<String> for Trouble {
    fn from(what: String) -> Trouble {
        Trouble::Connection(what)
    }
}

/// Commits growing offsets until `stop` or until the connection is lost.
pub(crate) fn commit_until(
    to: SocketAddr,
    group: &str,
    topic: &str,
    oracle: &Mutex<Oracle>,
    stop: &AtomicBool,
) -> Result<()> {
    let Ok(mut kafka) = Kafka::connect(to) else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) {
        let next = {
            let mut oracle = oracle.lock().unwrap();
            let next = oracle.next_commit();
            oracle.commits(next);
            next
        };
        match kafka.commit(group, topic, next) {
            Ok(ErrorCode::None) => oracle.lock().unwrap().committed(next),
            Ok(error) => return Err(format!("a commit was refused: {error:?}")),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Creates topics and deletes most of them, until `stop` or until the connection is lost. `next` numbers them.
pub(crate) fn make_topics_until(
    to: SocketAddr,
    next: &mut u64,
    oracle: &Mutex<Oracle>,
    stop: &AtomicBool,
) -> Result<()> {
    let Ok(mut kafka) = Kafka::connect(to) else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) {
        *next += 1;
        let name = format!("{MADE}{next}");
        oracle.lock().unwrap().topic(&name, None);
        match kafka.create_topic(&name, 1, &[]) {
            Ok(()) => oracle.lock().unwrap().topic(&name, Some(true)),
            Err(refused) if refused.starts_with("creating ") => return Err(refused),
            Err(_) => return Ok(()),
        }
        if next.is_multiple_of(TOPICS_FOR_ONE_THAT_STAYS) {
            continue;
        }
        oracle.lock().unwrap().topic(&name, None);
        match kafka.delete_topic(&name) {
            Ok(ErrorCode::None) => oracle.lock().unwrap().topic(&name, Some(false)),
            Ok(refused) => return Err(format!("deleting {name}: {refused:?}")),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Consumes at the end of a partition until `stop` or until the connection is lost: what it is given must stay.
pub(crate) fn consume_until(
    to: SocketAddr,
    partition: Partition,
    oracle: &Mutex<Oracle>,
    stop: &AtomicBool,
) -> Result<()> {
    let Ok(mut kafka) = Kafka::connect(to) else { return Ok(()) };
    let Ok((_, mut next)) = kafka.list_offset(partition.0, partition.1, -1) else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) {
        let Ok(fetched) = kafka.fetch_within(partition.0, partition.1, next, CONSUMER_WAIT_MS) else { return Ok(()) };
        if fetched.error != ErrorCode::None {
            return Err(format!("a consumer of {partition:?} got {:?}", fetched.error));
        }
        let mut oracle = oracle.lock().unwrap();
        for (offset, value) in fetched.messages {
            oracle.served(partition, offset, &value)?;
            next = offset + 1;
        }
    }
    Ok(())
}
