//! Fetch sessions with many partitions, of which only changed ones are read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{ReadData, ReadError, Reply, Request as Ask, Token, TopicConfig};
use polylogue_kafka::session::FetchBudget;
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic};
use polylogue_types::{Chunk, Offset, PartitionId};
use proptest::prelude::*;
use session_host::{Host, batch, init, partition_id, text};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A version with topic names, so that a recreated topic is found again.
const VERSION: i16 = 12;
const WIDE: u8 = 3;
const PARTITIONS: u32 = 40;

/// Partitions with their high watermarks, the followed sets, and the reads requested.
#[derive(Debug, Default)]
struct Broker {
    ends: BTreeMap<PartitionId, u64>,
    sets: BTreeMap<u64, (BTreeSet<PartitionId>, BTreeSet<PartitionId>)>,
    watches: Vec<(Token, Option<u64>)>,
    reads: Vec<Vec<PartitionId>>,
}

impl Broker {
    fn append(&mut self, partition: PartitionId) {
        if let Some(end) = self.ends.get_mut(&partition) {
            *end += 1;
            self.change(partition);
        }
    }

    fn change(&mut self, partition: PartitionId) {
        for (_, changed) in self.sets.values_mut().filter(|(members, _)| members.contains(&partition)) {
            changed.insert(partition);
        }
    }

    /// Answers all requests, and fires watches that are due.
    fn serve(&mut self, host: &mut Host) {
        loop {
            let asked = host.asked();
            let due: Vec<Token> =
                self.watches.iter().filter(|(_, set)| self.has_news(*set)).map(|(at, _)| *at).collect();
            if asked.is_empty() && due.is_empty() {
                return;
            }
            for (token, request) in asked {
                if let Some(reply) = self.answer(token, request) {
                    host.reply(token, reply);
                }
            }
            for token in due {
                self.watches.retain(|(watch, _)| *watch != token);
                host.changed(token);
            }
        }
    }

    fn has_news(&self, set: Option<u64>) -> bool {
        set.and_then(|set| self.sets.get(&set)).is_some_and(|(_, changed)| !changed.is_empty())
    }

    fn answer(&mut self, token: Token, request: Ask) -> Option<Reply> {
        match request {
            Ask::Read(read) => {
                self.reads.push(read.parts.iter().map(|part| part.partition).collect());
                let part = |part: &polylogue_api::ReadPart| {
                    let end = self.ends.get(&part.partition).copied().ok_or(ReadError::UnknownPartition)?;
                    let chunks = if part.offset.0 < end { vec![Chunk::Bytes(batch(&[b"x"]))] } else { vec![] };
                    Ok(ReadData { chunks, high_watermark: Offset(end), log_start: Offset(0) })
                };
                Some(Reply::Read(read.parts.iter().map(part).collect()))
            }
            Ask::Follow(follow) => {
                let (members, changed) = self.sets.entry(follow.set).or_default();
                follow.remove.iter().for_each(|partition| _ = members.remove(partition));
                for partition in follow.add {
                    let there = self.ends.contains_key(&partition);
                    let set = if there { &mut *members } else { &mut *changed };
                    set.insert(partition);
                }
                Some(Reply::Follow(std::mem::take(changed).into_iter().collect()))
            }
            Ask::Unfollow(set) => {
                assert!(self.sets.remove(&set).is_some());
                None
            }
            Ask::Watch(watch) => {
                self.watches.push((token, watch.followed));
                None
            }
            Ask::Unwatch(watch) => {
                self.watches.retain(|(other, _)| *other != watch);
                None
            }
            other => panic!("{other:?}"),
        }
    }
}

fn wide(wants: &[(u32, u64)]) -> Vec<FetchTopic> {
    let partition = |(partition, offset): &(u32, u64)| FetchPartition {
        partition: i32::try_from(*partition).unwrap(),
        fetch_offset: i64::try_from(*offset).unwrap(),
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    let partitions: Vec<_> = wants.iter().map(partition).collect();
    let topic = FetchTopic { topic: text("wide"), partitions, ..FetchTopic::default() };
    if topic.partitions.is_empty() { vec![] } else { vec![topic] }
}

fn request(session: (i32, i32), topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_id: session.0,
        session_epoch: session.1,
        topics,
        ..FetchRequest::default()
    }
}

fn fetch(host: &mut Host, broker: &mut Broker, request: &FetchRequest) -> FetchResponse {
    host.send(VERSION, request);
    broker.serve(host);
    host.response::<FetchRequest>(VERSION)
}

/// Returns the partitions in the response.
fn reported(response: &FetchResponse) -> Vec<i32> {
    response.responses.iter().flat_map(|topic| topic.partitions.iter().map(|p| p.partition_index)).collect()
}

fn id(partition: u32) -> PartitionId {
    partition_id(WIDE, partition)
}

/// A session over all partitions of the topic, which are empty and followed.
fn begin() -> (Host, Broker, i32) {
    let (mut host, mut broker) = (Host::new(), Broker::default());
    host.topics.add(WIDE, "wide", PARTITIONS, TopicConfig::default());
    broker.ends = (0..PARTITIONS).map(|partition| (id(partition), 0)).collect();
    let all: Vec<_> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    let session = fetch(&mut host, &mut broker, &request((0, 0), wide(&all))).session_id;
    assert!(broker.sets.is_empty(), "it may be the only fetch");
    assert!(reported(&fetch(&mut host, &mut broker, &request((session, 1), vec![]))).is_empty());
    assert_eq!(broker.sets.values().map(|(members, _)| members.len()).sum::<usize>(), PARTITIONS as usize);
    broker.reads.clear();
    (host, broker, session)
}

/// Regression test: a consumer of 10,000 partitions cost seven million instructions for a fetch of one message.
#[test]
fn only_partitions_that_changed_are_looked_at() {
    let (mut host, mut broker, session) = begin();
    assert!(reported(&fetch(&mut host, &mut broker, &request((session, 2), vec![]))).is_empty());
    assert!(broker.reads.is_empty(), "nothing has changed");
    broker.append(id(31));
    broker.append(id(7));
    broker.append(id(31));
    assert_eq!(reported(&fetch(&mut host, &mut broker, &request((session, 3), vec![]))), [7, 31]);
    assert_eq!(broker.reads.drain(..).collect::<Vec<_>>(), [[id(7), id(31)]]);
    // The client has not acknowledged them: both are read until it has, in turn.
    assert_eq!(reported(&fetch(&mut host, &mut broker, &request((session, 4), wide(&[(7, 1)])))), [31]);
    assert!(reported(&fetch(&mut host, &mut broker, &request((session, 5), wide(&[(31, 2)])))).is_empty());
    assert_eq!(broker.reads.drain(..).collect::<Vec<_>>(), [vec![id(7), id(31)], vec![id(31)]]);
    fetch(&mut host, &mut broker, &request((session, 6), vec![]));
    assert!(broker.reads.is_empty());
}

#[test]
fn a_fetch_waits_for_its_session_and_reads_what_came() {
    let (mut host, mut broker, session) = begin();
    let patient = FetchRequest { max_wait_ms: 500, ..request((session, 2), vec![]) };
    host.send(VERSION, &patient);
    broker.serve(&mut host);
    assert!(host.response_frame().is_none() && broker.reads.is_empty());
    broker.append(id(12));
    broker.serve(&mut host);
    assert_eq!(reported(&host.response::<FetchRequest>(VERSION)), [12]);
    assert_eq!(broker.reads.drain(..).collect::<Vec<_>>(), [[id(12)]]);
    // The deadline passes without messages.
    let patient = FetchRequest { max_wait_ms: 500, ..request((session, 3), wide(&[(12, 1)])) };
    host.send(VERSION, &patient);
    broker.serve(&mut host);
    host.pass(500);
    broker.serve(&mut host);
    assert!(reported(&host.response::<FetchRequest>(VERSION)).is_empty());
    assert!(broker.watches.is_empty());
}

/// Messages that were too few are read again with new ones, and all are returned.
#[test]
fn a_fetch_that_wants_much_gathers_it() {
    let (mut host, mut broker, session) = begin();
    let len = batch(&[b"x"]).len();
    let min_bytes = i32::try_from(len * 3).unwrap();
    host.send(VERSION, &FetchRequest { max_wait_ms: 500, min_bytes, ..request((session, 2), vec![]) });
    for partition in [30, 2, 11] {
        broker.append(id(partition));
        broker.serve(&mut host);
        host.pass(5);
        broker.serve(&mut host);
    }
    assert_eq!(reported(&host.response::<FetchRequest>(VERSION)), [2, 11, 30]);
    assert_eq!(broker.reads.last().unwrap(), &[id(2), id(11), id(30)]);
}

#[test]
fn what_the_broker_follows_ends_with_its_session() {
    let (mut host, mut broker, session) = begin();
    let sets: Vec<u64> = broker.sets.keys().copied().collect();
    assert_eq!(sets, [u64::try_from(session).unwrap()]);
    let none = fetch(&mut host, &mut broker, &request((session, -1), vec![]));
    assert_eq!((none.session_id, broker.sets.len()), (0, 0));
    // The same for a forgotten partition.
    let (mut host, mut broker, session) = begin();
    let mut forget = request((session, 2), vec![]);
    let forgotten = ForgottenTopic { topic: text("wide"), partitions: vec![3, 39], ..ForgottenTopic::default() };
    forget.forgotten_topics_data = vec![forgotten];
    fetch(&mut host, &mut broker, &forget);
    assert_eq!(broker.sets.values().next().unwrap().0.len(), PARTITIONS as usize - 2);
    assert!(!broker.sets.values().next().unwrap().0.contains(&id(39)));
    // The same for an evicted one.
    host.session = polylogue_kafka::session::Session::new(init(2, Arc::<FetchBudget>::default()), host.now);
    broker.sets.clear();
    let all: Vec<_> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    for _ in 0..5 {
        let session = fetch(&mut host, &mut broker, &request((0, 0), wide(&all))).session_id;
        fetch(&mut host, &mut broker, &request((session, 1), vec![]));
    }
    assert_eq!(broker.sets.len(), 4);
}

/// Actions of clients and on partitions.
#[derive(Clone, Debug)]
enum Act {
    Append(u32),
    /// Fetches; the client then accepts the response's partitions whose bit is set.
    Fetch(u64),
    Seek(u32, u64),
    Forget(u32),
    Recreate,
    Delete,
    /// The broker does not have the partition, though it is in the catalog.
    Lose(u32),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..PARTITIONS).prop_map(Act::Append),
        6 => any::<u64>().prop_map(Act::Fetch),
        2 => (0..PARTITIONS, 0..3_u64).prop_map(|(partition, offset)| Act::Seek(partition, offset)),
        1 => (0..PARTITIONS).prop_map(Act::Forget),
        1 => Just(Act::Recreate),
        1 => Just(Act::Delete),
        1 => (0..PARTITIONS).prop_map(Act::Lose),
    ]
}

/// A client of a large session, and what it must receive.
struct Client {
    wants: BTreeMap<u32, u64>,
    /// High watermarks received; -1 for an error or none.
    known: BTreeMap<u32, i64>,
    changes: BTreeMap<u32, u64>,
    forgotten: Vec<u32>,
}

impl Client {
    /// Returns the partitions with changes, as found by reading all.
    fn expected(&mut self, broker: &Broker, number: u8, there: bool) -> BTreeSet<i32> {
        let mut expected = BTreeSet::new();
        for (partition, offset) in &self.wants {
            let end = broker.ends.get(&partition_id(number, *partition)).copied().filter(|_| there);
            let end_known = end.map_or(-1, |end| i64::try_from(end).unwrap());
            let before = self.known.insert(*partition, end_known);
            if end.is_none_or(|end| *offset < end) || before != Some(end_known) {
                expected.insert(i32::try_from(*partition).unwrap());
            }
        }
        expected
    }
}

proptest! {
    /// A session that follows reports exactly what one that reads everything does.
    #[test]
    fn nothing_is_missed_and_nothing_told_twice(acts in prop::collection::vec(act(), 1..120)) {
        let (mut host, mut broker, session) = begin();
        let all = || (0..PARTITIONS).map(|partition| (partition, 0));
        let known = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
        let mut client = Client { wants: all().collect(), known, changes: BTreeMap::new(), forgotten: Vec::new() };
        let (mut epoch, mut there, mut number) = (2, true, WIDE);
        for act in acts {
            match act {
                Act::Append(partition) if there => broker.append(partition_id(number, partition)),
                Act::Append(_) => {}
                Act::Seek(partition, offset) => {
                    client.forgotten.retain(|other| *other != partition);
                    client.wants.insert(partition, offset);
                    client.changes.insert(partition, offset);
                }
                Act::Forget(partition) if client.wants.len() > 20 => {
                    // A partition added after the last fetch is not in the session yet and cannot be forgotten.
                    if !client.changes.contains_key(&partition) && client.wants.remove(&partition).is_some() {
                        client.forgotten.push(partition);
                    }
                }
                Act::Forget(_) => {}
                // With new ids, which are never reused.
                Act::Recreate if !there && number < 100 => {
                    (number, there) = (number + 1, true);
                    host.topics.add(number, "wide", PARTITIONS, TopicConfig::default());
                    broker.ends = (0..PARTITIONS).map(|partition| (partition_id(number, partition), 0)).collect();
                }
                Act::Recreate => {}
                Act::Delete => {
                    host.topics.remove("wide");
                    there = false;
                    for partition in std::mem::take(&mut broker.ends).into_keys() {
                        broker.change(partition);
                        broker.sets.values_mut().for_each(|(members, _)| _ = members.remove(&partition));
                    }
                }
                Act::Lose(partition) => {
                    let lost = partition_id(number, partition);
                    if broker.ends.remove(&lost).is_some() {
                        broker.change(lost);
                        broker.sets.values_mut().for_each(|(members, _)| _ = members.remove(&lost));
                    }
                }
                Act::Fetch(takes) => {
                    let changes: Vec<_> = std::mem::take(&mut client.changes).into_iter().collect();
                    let mut next = request((session, epoch), wide(&changes));
                    epoch += 1;
                    client.known.retain(|partition, _| !client.forgotten.contains(partition));
                    let partitions = std::mem::take(&mut client.forgotten).into_iter().map(u32::cast_signed).collect();
                    let forgotten = ForgottenTopic { topic: text("wide"), partitions, ..ForgottenTopic::default() };
                    next.forgotten_topics_data = vec![forgotten];
                    let response = fetch(&mut host, &mut broker, &next);
                    prop_assert_eq!((response.error_code, response.session_id), (0, session));
                    let reported = reported(&response);
                    let rows = reported.len();
                    let reported: BTreeSet<i32> = reported.into_iter().collect();
                    prop_assert_eq!(reported.len(), rows, "each once");
                    prop_assert_eq!(&reported, &client.expected(&broker, number, there));
                    for partition in reported.into_iter().map(i32::cast_unsigned).filter(|p| takes >> p & 1 == 1) {
                        if let Some(end) = broker.ends.get(&partition_id(number, partition)).filter(|_| there) {
                            client.wants.insert(partition, *end);
                            client.changes.insert(partition, *end);
                        }
                    }
                }
            }
        }
    }
}
