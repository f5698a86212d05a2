//! What a broker promised, held against what it serves.
//!
//! - Acknowledged: there, at its offset.
//! - Sent and never answered: there or not.
//! - Nothing else is there, and each message once.
//! - The messages of a producer are in the order in which it sent them; those of an idempotent one without a gap,
//!   because it sends again until it is told that they are there.

use super::kafka::Kafka;
use polylogue_env::Rng;
use polylogue_env::sim::SimRng;
use polylogue_testkit::Result;
use std::collections::BTreeMap;

/// One message: who sent it, and the how many-th it was of that producer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Message {
    pub(crate) producer: u32,
    pub(crate) number: u64,
}

impl Message {
    /// Its value: the name, and filling that differs from message to message.
    pub(crate) fn value(self) -> Vec<u8> {
        let rng = SimRng::new(u64::from(self.producer) << 40 ^ self.number);
        let mut filling = vec![0; rng.below(2_000) as usize];
        rng.fill(&mut filling);
        let mut value = format!("{} {} ", self.producer, self.number).into_bytes();
        value.extend(filling);
        value
    }

    fn of_value(value: &[u8]) -> Option<Message> {
        let mut words = value.split(|byte| *byte == b' ').map(|word| std::str::from_utf8(word).ok());
        let message = Message { producer: words.next()??.parse().ok()?, number: words.next()??.parse().ok()? };
        (message.value() == value).then_some(message)
    }
}

/// One partition of a topic.
pub(crate) type Partition = (&'static str, i32);

/// What is known of one producer.
#[derive(Clone, Debug)]
struct Sender {
    partition: Partition,
    idempotent: bool,
    /// Numbers below were sent.
    sent: u64,
}

/// What was promised.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    senders: BTreeMap<u32, Sender>,
    acknowledged: BTreeMap<Partition, BTreeMap<i64, Message>>,
    /// The last committed offset that was acknowledged, and the last one that was sent.
    committed: i64,
    committing: i64,
    /// Acknowledgements, for the report.
    pub(crate) acknowledgements: u64,
}

impl Oracle {
    pub(crate) fn add_sender(&mut self, producer: u32, partition: Partition, idempotent: bool) {
        self.acknowledged.entry(partition).or_default();
        self.senders.insert(producer, Sender { partition, idempotent, sent: 0 });
    }

    /// Before it goes out.
    pub(crate) fn sends(&mut self, message: Message) {
        self.senders.get_mut(&message.producer).unwrap().sent = message.number + 1;
    }

    /// The broker said that it is there.
    pub(crate) fn acknowledged(&mut self, message: Message, offset: i64) -> Result<()> {
        self.acknowledgements += 1;
        let partition = self.senders[&message.producer].partition;
        let before = self.acknowledged.entry(partition).or_default().insert(offset, message);
        match before.filter(|other| *other != message) {
            Some(other) => Err(format!("{partition:?} offset {offset}: acknowledged for {other:?} and {message:?}")),
            None => Ok(()),
        }
    }

    pub(crate) fn commits(&mut self, offset: i64) {
        self.committing = offset;
    }

    pub(crate) fn committed(&mut self, offset: i64) {
        self.acknowledgements += 1;
        self.committed = offset;
    }

    pub(crate) fn next_commit(&self) -> i64 {
        self.committing + 1
    }

    /// Reads everything and compares. `group` and `topic` are those of the committed offset.
    pub(crate) fn verify(&self, kafka: &mut Kafka, group: &str, topic: &str) -> Result<()> {
        let found = kafka.committed(group, topic)?.max(0);
        if !(self.committed..=self.committing).contains(&found) {
            let (committed, committing) = (self.committed, self.committing);
            return Err(format!("committed offset {found}: {committed} was acknowledged, {committing} was sent last"));
        }
        self.acknowledged.keys().try_for_each(|partition| self.verify_partition(kafka, *partition))
    }

    fn verify_partition(&self, kafka: &mut Kafka, partition: Partition) -> Result<()> {
        let mut check = Check { oracle: self, partition, next: 0, last: BTreeMap::new(), wrong: Vec::new() };
        kafka.read(partition.0, partition.1, 0, |offset, value| check.see(offset, value))?;
        let (end, wrong) = (check.next, &mut check.wrong);
        for (offset, message) in self.acknowledged[&partition].range(end..).take(5) {
            wrong.push(format!("offset {offset} is lost: {message:?} was acknowledged; the log ends at {end}"));
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("{partition:?}, {} faults, the first:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"))),
        }
    }
}

/// One reading of one partition.
struct Check<'a> {
    oracle: &'a Oracle,
    partition: Partition,
    next: i64,
    /// The last number that was seen of each producer.
    last: BTreeMap<u32, u64>,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn see(&mut self, offset: i64, value: &[u8]) {
        if offset != self.next {
            self.wrong.push(format!("offset {offset} comes where {} is due", self.next));
        }
        self.next = offset + 1;
        let Some(message) = Message::of_value(value) else {
            self.wrong.push(format!("offset {offset} holds what nobody sent: {} bytes", value.len()));
            return;
        };
        let promised = self.oracle.acknowledged[&self.partition].get(&offset);
        if promised.is_some_and(|promised| *promised != message) {
            self.wrong.push(format!("offset {offset} holds {message:?}, and {promised:?} was acknowledged"));
        }
        self.see_order(offset, message);
    }

    fn see_order(&mut self, offset: i64, message: Message) {
        let sender = self.oracle.senders.get(&message.producer);
        let Some(sender) = sender.filter(|s| s.partition == self.partition && message.number < s.sent) else {
            self.wrong.push(format!("offset {offset} holds {message:?}, which was not sent here"));
            return;
        };
        let due = self.last.insert(message.producer, message.number).map_or(0, |last| last + 1);
        let right = match sender.idempotent {
            true => message.number == due,
            false => message.number >= due,
        };
        if !right {
            let kind = if sender.idempotent { "idempotent" } else { "plain" };
            self.wrong.push(format!("offset {offset} holds {message:?} where number {due} of this {kind} producer is due"));
        }
    }
}
