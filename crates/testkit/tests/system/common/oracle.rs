//! What a broker promised, held against what it serves.
//!
//! - Acknowledged, or served to a consumer: there, at its offset.
//! - Sent and never answered: there or not.
//! - Nothing else is there, and each message once.
//! - The messages of a producer are in the order in which it sent them; those of an idempotent one without a gap,
//!   because it sends again until they are acknowledged.

use super::kafka::Kafka;
use polylogue_env::Rng;
use polylogue_env::sim::SimRng;
use polylogue_testkit::Result;
use std::collections::BTreeMap;

/// How the names of topics begin that come and go.
pub(crate) const MADE: &str = "made-";

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

/// How much is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    All,
    New,
}

/// How far a partition was read, and what was seen until there.
#[derive(Clone, Debug, Default)]
struct Verified {
    next: i64,
    /// The last number of each producer.
    last: BTreeMap<u32, u64>,
}

/// What was promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    senders: BTreeMap<u32, Sender>,
    acknowledged: BTreeMap<Partition, BTreeMap<i64, Message>>,
    /// The last committed offset that was acknowledged, and the last one that was sent.
    committed: i64,
    committing: i64,
    /// Topics that came and went: whether one must be there, must not, or may.
    topics: BTreeMap<String, Option<bool>>,
    verified: BTreeMap<Partition, Verified>,
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
        self.promised(partition, offset, message)
    }

    fn promised(&mut self, partition: Partition, offset: i64, message: Message) -> Result<()> {
        let before = self.acknowledged.entry(partition).or_default().insert(offset, message);
        match before.filter(|other| *other != message) {
            Some(other) => {
                Err(format!("{partition:?} offset {offset}: first acknowledged as {other:?}, then as {message:?}"))
            }
            None => Ok(()),
        }
    }

    /// A consumer was given it: from then on it is as good as acknowledged.
    pub(crate) fn served(&mut self, partition: Partition, offset: i64, value: &[u8]) -> Result<()> {
        let Some(message) = Message::of_value(value) else {
            return Err(format!("{partition:?} offset {offset}: a consumer received a message that no producer sent"));
        };
        self.promised(partition, offset, message)
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

    /// What a copy must hold, and may hold, that was taken between this and `later`.
    pub(crate) fn between(&self, later: &Oracle) -> Oracle {
        let (senders, committing) = (later.senders.clone(), later.committing);
        Oracle { senders, committing, verified: BTreeMap::new(), ..self.clone() }
    }

    /// A topic is about to be created or deleted (`None`), or the broker said that it was.
    pub(crate) fn topic(&mut self, name: &str, there: Option<bool>) {
        self.topics.insert(name.to_owned(), there);
    }

    fn verify_topics(&self, kafka: &mut Kafka) -> Result<()> {
        let found = kafka.topics()?;
        for (name, there) in &self.topics {
            match there {
                Some(true) if !found.contains(name) => return Err(format!("topic {name} was created and is lost")),
                Some(false) if found.contains(name) => return Err(format!("topic {name} was deleted and is back")),
                _ => (),
            }
        }
        let invented = found.iter().find(|name| name.starts_with(MADE) && !self.topics.contains_key(*name));
        invented.map_or(Ok(()), |name| Err(format!("the topic {name} exists and no client created it")))
    }

    /// Reads and compares: everything, or what came since it was last done. `group` and `topic` are those of the
    /// committed offset.
    pub(crate) fn verify(&mut self, kafka: &mut Kafka, group: &str, topic: &str, reading: Reading) -> Result<()> {
        let found = kafka.committed(group, topic)?.max(0);
        if !(self.committed..=self.committing).contains(&found) {
            let (committed, committing) = (self.committed, self.committing);
            return Err(format!("committed offset {found}: {committed} was acknowledged, {committing} was sent last"));
        }
        self.verify_topics(kafka)?;
        for partition in self.acknowledged.keys().copied().collect::<Vec<_>>() {
            let from = self.verified.remove(&partition).filter(|_| reading == Reading::New).unwrap_or_default();
            let upto = self.verify_partition(kafka, partition, from)?;
            self.verified.insert(partition, upto);
        }
        Ok(())
    }

    fn verify_partition(&self, kafka: &mut Kafka, partition: Partition, from: Verified) -> Result<Verified> {
        let start = from.next;
        let mut check = Check { oracle: self, partition, upto: from, wrong: Vec::new() };
        kafka.read(partition.0, partition.1, start, |offset, value| check.see(offset, value))?;
        let Check { upto, mut wrong, .. } = check;
        let end = upto.next;
        for (offset, message) in self.acknowledged[&partition].range(end..).take(5) {
            wrong.push(format!("offset {offset} is lost: {message:?} was acknowledged; the log ends at {end}"));
        }
        match wrong.is_empty() {
            true => Ok(upto),
            false => Err(format!(
                "{partition:?}, {} faults, the first:\n{}",
                wrong.len(),
                wrong[..wrong.len().min(10)].join("\n")
            )),
        }
    }
}

/// One reading of one partition.
struct Check<'a> {
    oracle: &'a Oracle,
    partition: Partition,
    upto: Verified,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn see(&mut self, offset: i64, value: &[u8]) {
        if offset != self.upto.next {
            self.wrong.push(format!("offset {offset} comes where {} is due", self.upto.next));
        }
        self.upto.next = offset + 1;
        let Some(message) = Message::of_value(value) else {
            self.wrong.push(format!("offset {offset} holds a message that no producer sent: {} bytes", value.len()));
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
        let due = self.upto.last.insert(message.producer, message.number).map_or(0, |last| last + 1);
        let right = match sender.idempotent {
            true => message.number == due,
            false => message.number >= due,
        };
        if !right {
            let kind = if sender.idempotent { "idempotent" } else { "plain" };
            self.wrong
                .push(format!("offset {offset} holds {message:?} where number {due} of this {kind} producer is due"));
        }
    }
}
