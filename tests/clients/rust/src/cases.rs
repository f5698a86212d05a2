//! The cases. A case fails by panicking.

use crate::cluster::{Cluster, Record, WAIT, fresh, next, take, until};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Offset};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

type Case = fn(&Cluster);

pub const CASES: [(&str, Case); 14] = [
    ("smoke", smoke),
    ("produce_acks", produce_acks),
    ("codecs", codecs),
    ("headers", headers),
    ("tombstones", tombstones),
    ("large", large),
    ("idempotent", idempotent),
    ("seek", seek),
    ("by_time", by_time),
    ("group", group),
    ("rebalance", rebalance),
    ("static_member", static_member),
    ("many_partitions", many_partitions),
    ("metadata", metadata),
];

fn numbered(count: usize, tail: &str) -> Vec<Record> {
    (0..count).map(|i| Record::new(&format!("k{i}"), &format!("v{i}{tail}"))).collect()
}

fn through_and_back(cluster: &Cluster, sent: &[Record], settings: &[(&str, &str)]) -> String {
    let topic = cluster.topic(1);
    cluster.send(&topic, sent, settings).unwrap();
    let got = cluster.read(&topic, sent.len(), 1);
    for (i, (got, sent)) in got.iter().zip(sent).enumerate() {
        assert_eq!(got.pair(), sent.pair(), "message {i} with {settings:?}");
        assert_eq!(got.offset, i64::try_from(i).unwrap(), "offset with {settings:?}");
    }
    topic
}

fn smoke(cluster: &Cluster) {
    let topic = through_and_back(cluster, &numbered(100, ""), &[]);
    cluster.delete(&topic);
    assert!(!cluster.topics().0.contains(&topic), "the topic is still listed");
}

fn produce_acks(cluster: &Cluster) {
    for acks in ["0", "1", "all"] {
        through_and_back(cluster, &numbered(50, ""), &[("acks", acks)]);
    }
}

fn codecs(cluster: &Cluster) {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let settings = [("compression.type", codec), ("linger.ms", "50")];
        through_and_back(cluster, &numbered(500, &".".repeat(200)), &settings);
    }
}

fn headers(cluster: &Cluster) {
    let topic = cluster.topic(1);
    let sent = [("a", Some("1")), ("a", Some("2")), ("empty", Some("")), ("null", None), ("a", Some("3"))];
    let sent: Vec<_> = sent.into_iter().map(|(name, value)| (name.to_owned(), value.map(Vec::from))).collect();
    let record = Record { headers: sent.clone(), value: Some(b"v".to_vec()), ..Record::default() };
    cluster.send(&topic, &[record], &[]).unwrap();
    assert_eq!(cluster.read(&topic, 1, 1)[0].headers, sent);
}

fn tombstones(cluster: &Cluster) {
    let null_value = Record { key: Some(b"k".to_vec()), ..Record::default() };
    let null_key = Record { value: Some(b"v".to_vec()), ..Record::default() };
    through_and_back(cluster, &[null_value, null_key, Record::default(), Record::new("", "")], &[]);
}

fn large(cluster: &Cluster) {
    let value = (0..1_000_000_u32).map(|i| (i * 31 % 251) as u8).collect();
    let record = Record { value: Some(value), ..Record::default() };
    through_and_back(cluster, &[record], &[("message.max.bytes", "2000000")]);
    let larger = Record { value: Some(vec![b'x'; 2_000_000]), ..Record::default() };
    let refused = cluster.send(&cluster.topic(1), &[larger], &[("message.max.bytes", "5000000")]).unwrap_err();
    assert_eq!(refused.rdkafka_error_code(), Some(RDKafkaErrorCode::MessageSizeTooLarge));
}

fn idempotent(cluster: &Cluster) {
    let topic = cluster.topic(3);
    let sent = numbered(5000, "");
    cluster.send(&topic, &sent, &[("enable.idempotence", "true"), ("batch.num.messages", "10")]).unwrap();
    let got = cluster.read(&topic, sent.len(), 3);
    assert_eq!(got.iter().map(Record::text).collect::<BTreeSet<_>>().len(), sent.len(), "some came twice");
    for p in 0..3 {
        let order: Vec<u32> = got.iter().filter(|r| r.partition == p).map(|r| r.text()[1..].parse().unwrap()).collect();
        assert!(order.is_sorted(), "partition {p} is out of order");
    }
}

fn seek(cluster: &Cluster) {
    let topic = cluster.topic(1);
    cluster.send(&topic, &numbered(100, ""), &[("linger.ms", "100")]).unwrap();
    let consumer = cluster.assigned(&topic, 1, Offset::Beginning);
    take(&consumer, 100);
    for offset in [0, 37, 99] {
        consumer.seek(&topic, 0, Offset::Offset(offset), WAIT).unwrap();
        assert_eq!(take(&consumer, 1)[0].offset, offset);
    }
    consumer.seek(&topic, 0, Offset::End, WAIT).unwrap();
    assert_eq!(next(&consumer, Duration::from_secs(1)), None);
    cluster.send(&topic, &[Record::new("k", "last")], &[]).unwrap();
    assert_eq!(take(&consumer, 1)[0].text(), "last");
    assert_eq!(consumer.fetch_watermarks(&topic, 0, WAIT).unwrap(), (0, 101));
}

fn by_time(cluster: &Cluster) {
    let topic = cluster.topic(1);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let start = i64::try_from(now).unwrap() - 100_000;
    let mut sent = numbered(100, "");
    for (i, record) in (0..).zip(&mut sent) {
        record.timestamp = Some(start + i * 10);
    }
    cluster.send(&topic, &sent, &[("compression.type", "gzip"), ("linger.ms", "200")]).unwrap();
    let consumer = cluster.assigned(&topic, 1, Offset::Beginning);
    for (after, wanted) in [(0, 0), (500, 50), (501, 51), (-1000, 0), (990, 99)] {
        assert_eq!(at(&consumer, &topic, start + after), Offset::Offset(wanted), "{after} ms");
    }
    assert_eq!(at(&consumer, &topic, start + 1_000_000), Offset::End, "after the last");
}

fn at(consumer: &BaseConsumer, topic: &str, timestamp: i64) -> Offset {
    let mut asked = rdkafka::TopicPartitionList::new();
    asked.add_partition_offset(topic, 0, Offset::Offset(timestamp)).unwrap();
    consumer.offsets_for_times(asked, WAIT).unwrap().elements()[0].offset()
}

fn group(cluster: &Cluster) {
    let (topic, name) = (cluster.topic(2), fresh("g"));
    cluster.send(&topic, &numbered(100, ""), &[]).unwrap();
    let mut values = BTreeSet::new();
    for count in [60, 40] {
        let consumer = cluster.consumer(&name, &[], rdkafka::consumer::DefaultConsumerContext);
        consumer.subscribe(&[&topic]).unwrap();
        for record in take(&consumer, count) {
            assert!(values.insert(record.text()), "consumed twice: {}", record.text());
        }
        consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    }
}

/// What a member owns and has seen.
#[derive(Clone, Default)]
struct Notes {
    state: Arc<Mutex<State>>,
    ended: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    assigned: BTreeSet<i32>,
    events: u32,
    seen: BTreeSet<String>,
}

impl ClientContext for Notes {}

impl ConsumerContext for Notes {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, change: &Rebalance<'_>) {
        let mut state = self.state.lock().unwrap();
        match change {
            Rebalance::Assign(now) => {
                state.assigned = now.elements().iter().map(|p| p.partition()).collect();
                state.events += 1;
            }
            _ => state.assigned.clear(),
        }
    }
}

struct Member {
    notes: Notes,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    fn start(cluster: &Cluster, topic: &str, group: &str, settings: &[(&str, &str)]) -> Member {
        let notes = Notes::default();
        let mut all = vec![("enable.auto.commit", "true")];
        all.extend(settings);
        let consumer = cluster.consumer(group, &all, notes.clone());
        consumer.subscribe(&[topic]).unwrap();
        let inner = notes.clone();
        let thread = std::thread::spawn(move || {
            while !inner.ended.load(Ordering::Relaxed) {
                if let Some(record) = next(&consumer, Duration::from_millis(50)) {
                    inner.state.lock().unwrap().seen.insert(record.text());
                }
            }
        });
        Member { notes, thread: Some(thread) }
    }

    fn assigned(&self) -> BTreeSet<i32> {
        self.notes.state.lock().unwrap().assigned.clone()
    }

    fn events(&self) -> u32 {
        self.notes.state.lock().unwrap().events
    }

    fn seen(&self) -> BTreeSet<String> {
        self.notes.state.lock().unwrap().seen.clone()
    }

    fn stop(&mut self) {
        self.notes.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok(), "a member failed");
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.notes.ended.store(true, Ordering::Relaxed);
    }
}

fn shared(count: usize, members: &[&Member]) -> bool {
    let sets: Vec<_> = members.iter().map(|m| m.assigned()).collect();
    let all: BTreeSet<i32> = sets.iter().flatten().copied().collect();
    sets.iter().all(|s| !s.is_empty()) && all.len() == count && sets.iter().map(BTreeSet::len).sum::<usize>() == count
}

fn rebalance(cluster: &Cluster) {
    let (topic, name) = (cluster.topic(6), fresh("g"));
    let mut a = Member::start(cluster, &topic, &name, &[]);
    until("the first member has all partitions", || shared(6, &[&a]));
    cluster.send(&topic, &numbered(300, ""), &[]).unwrap();
    let mut b = Member::start(cluster, &topic, &name, &[]);
    until("two members share the partitions", || shared(6, &[&a, &b]));
    let mut c = Member::start(cluster, &topic, &name, &[]);
    until("three members share the partitions", || shared(6, &[&a, &b, &c]));
    cluster.send(&topic, &numbered(300, "b"), &[]).unwrap();
    a.stop();
    until("the two that stay share the partitions", || shared(6, &[&b, &c]));
    until("everything is consumed", || {
        [&a, &b, &c].iter().flat_map(|m| m.seen()).collect::<BTreeSet<_>>().len() == 600
    });
    b.stop();
    c.stop();
}

fn static_member(cluster: &Cluster) {
    let (topic, name) = (cluster.topic(4), fresh("g"));
    let mut a = Member::start(cluster, &topic, &name, &[("group.instance.id", "a")]);
    let mut b = Member::start(cluster, &topic, &name, &[("group.instance.id", "b")]);
    until("both have partitions", || shared(4, &[&a, &b]));
    let (before, events) = (b.assigned(), a.events());
    b.stop();
    let mut again = Member::start(cluster, &topic, &name, &[("group.instance.id", "b")]);
    until("the member is back", || again.assigned() == before);
    assert_eq!(a.events(), events, "the other member saw a rebalance");
    a.stop();
    again.stop();
}

fn many_partitions(cluster: &Cluster) {
    let topic = cluster.topic(100);
    let sent: Vec<Record> = (0..5000).map(|i| Record::new(&format!("k{}", i % 250), &i.to_string())).collect();
    cluster.send(&topic, &sent, &[]).unwrap();
    let mut last = BTreeMap::new();
    for record in cluster.read(&topic, sent.len(), 100) {
        let n: u32 = record.text().parse().unwrap();
        assert!(last.insert(record.key, n).is_none_or(|before| before < n), "a key is out of order");
    }
    assert_eq!(last.len(), 250);
}

fn metadata(cluster: &Cluster) {
    let topic = fresh("rust-auto");
    cluster.send(&topic, &[Record::new("k", "created by being produced to")], &[]).unwrap();
    cluster.read(&topic, 1, 1);
    let (topics, brokers) = cluster.topics();
    assert!(topics.contains(&topic) && brokers == 1, "{brokers} brokers");
    assert!(cluster.id().is_some_and(|id| !id.is_empty()));
    assert_eq!(cluster.create("not a legal name!", 1), Err(RDKafkaErrorCode::InvalidTopic));
}
