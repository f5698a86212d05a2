//! A queue on a log that keeps what is committed, so that it can be lost and come back.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test, and not every one uses all"
)]

use bytes::Bytes;
use polylogue_lease::*;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const START_MS: u64 = 1_800_000_000_000;

#[derive(Clone, Debug)]
pub(crate) enum Item {
    Entry(Entry),
    Record(Bytes),
}

pub(crate) struct Harness {
    pub(crate) queue: Queue,
    pub(crate) config: Arc<Config>,
    pub(crate) now: u64,
    pub(crate) log: Vec<Item>,
    disk: BTreeMap<Bytes, Bytes>,
    covered: usize,
    seeds: u64,
}

impl Harness {
    pub(crate) fn new(config: Config) -> Harness {
        let config = Arc::new(config);
        let mut queue = Queue::new(config.clone(), 0, 0).unwrap();
        queue.become_writer(START_MS, 1);
        Harness { queue, config, now: START_MS, log: Vec::new(), disk: BTreeMap::new(), covered: 0, seeds: 1 }
    }

    /// One entry of so many messages; returns the first offset.
    pub(crate) fn append(&mut self, count: u32) -> u64 {
        let first = self.queue.committed_end();
        self.entry(Entry::plain(first, count));
        first
    }

    pub(crate) fn entry(&mut self, entry: Entry) {
        self.queue.appended(&entry).unwrap();
        self.log.push(Item::Entry(entry));
    }

    /// The next entry of one message.
    pub(crate) fn message(&mut self, like: Entry) -> u64 {
        let first_offset = self.queue.committed_end();
        self.entry(Entry { first_offset, count: 1, ..like });
        first_offset
    }

    pub(crate) fn consumer(&mut self, id: u64, config: ConsumerConfig) -> ConsumerId {
        self.queue.add_consumer(ConsumerId(id), config).unwrap();
        ConsumerId(id)
    }

    pub(crate) fn prefetch(&mut self, id: u64, prefetch: u32) -> ConsumerId {
        self.consumer(id, ConsumerConfig { prefetch, ..ConsumerConfig::default() })
    }

    /// One that only pulls.
    pub(crate) fn puller(&mut self, id: u64) -> ConsumerId {
        self.consumer(id, ConsumerConfig { permits: Some(0), ..ConsumerConfig::default() })
    }

    pub(crate) fn grant(&mut self) -> Vec<Grant> {
        let mut out = Vec::new();
        self.queue.grant(self.now, u64::MAX, &mut out);
        out
    }

    pub(crate) fn pull(&mut self, id: ConsumerId, messages_max: u64, lease_ms: Option<u64>) -> Vec<Grant> {
        let mut out = Vec::new();
        let want = Acquire { messages_max, bytes_max: u64::MAX, lease_ms };
        let given = self.queue.acquire(id, &want, self.now, &mut out).unwrap();
        assert_eq!(given, out.iter().map(|grant| u64::from(grant.count)).sum::<u64>());
        out
    }

    pub(crate) fn ack(&mut self, first: u64, count: u64) -> Done {
        self.queue.settle(first, count, By::Anyone, self.now).unwrap()
    }

    /// Commits what is to be recorded; whether there was anything.
    pub(crate) fn commit(&mut self) -> bool {
        let Some(record) = self.queue.take_record() else { return false };
        assert_eq!(self.queue.apply(&record.bytes), Ok(record.number));
        self.log.push(Item::Record(record.bytes));
        assert_eq!(self.queue.pending_record(), None);
        true
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now += ms;
        self.queue.on_deadline(self.now);
    }

    pub(crate) fn checkpoint(&mut self) {
        for (id, chunk) in self.queue.take_changed_chunks() {
            match chunk {
                Some(chunk) => _ = self.disk.insert(id, chunk),
                None => _ = self.disk.remove(&id),
            }
        }
        self.covered = self.log.len();
    }

    /// The process ends and another one begins, with what is committed.
    pub(crate) fn crash(&mut self) {
        self.queue = self.replayed();
        self.seeds += 1;
        self.queue.become_writer(self.now, self.seeds << 32);
    }

    /// What the checkpoint and the log behind it make.
    pub(crate) fn replayed(&self) -> Queue {
        let mut queue = if self.disk.is_empty() {
            Queue::new(self.config.clone(), 0, 0).unwrap()
        } else {
            Queue::empty(self.config.clone())
        };
        for (id, chunk) in &self.disk {
            queue.load_chunk(id, chunk).unwrap();
        }
        queue.loaded().unwrap();
        for item in &self.log[self.covered..] {
            match item {
                Item::Entry(entry) => queue.appended(entry).unwrap(),
                Item::Record(record) => _ = queue.apply(record).unwrap(),
            }
        }
        queue
    }

    pub(crate) fn counts(&self) -> Counts {
        self.queue.counts()
    }
}

pub(crate) fn count_of(grants: &[Grant]) -> u64 {
    grants.iter().map(|grant| u64::from(grant.count)).sum()
}

/// Every message that was handed out, in order.
pub(crate) fn offsets(grants: &[Grant]) -> Vec<u64> {
    grants.iter().flat_map(|grant| grant.first_offset..grant.end()).collect()
}

/// As [`offsets`], with the consumer.
pub(crate) fn pairs(grants: &[Grant]) -> Vec<(u64, u64)> {
    grants.iter().flat_map(|grant| (grant.first_offset..grant.end()).map(|at| (grant.consumer.0, at))).collect()
}

pub(crate) fn counted() -> Return {
    Return { counts: true, delay: Delay::None, ..Return::default() }
}

pub(crate) fn dead(queue: &mut Queue) -> Vec<DeadLetter> {
    let mut out = Vec::new();
    queue.take_dead_letters(u64::MAX, u64::MAX, &mut out);
    out
}

pub(crate) fn refused(offset: u64, why: Refusal) -> Result<Done, LeaseError> {
    Err(LeaseError::Refused { offset, why })
}
