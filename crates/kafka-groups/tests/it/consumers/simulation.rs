//! Random members on a random host: crashes, lost writers, refusals, checkpoints, topics that come and go, and what must hold all along.
//!
//! `POLYLOGUE_SIM_SEEDS=N` runs more seeds than the usual ones; a failure names its seed.

use super::*;
use crate::host::CallerReply;
use polylogue_api::Catalog;
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 40;
const STEPS: usize = 1_200;
const CLIENTS: usize = 9;
const GROUPS: usize = 2;

/// A client, as client libraries behave: it owns what it was given once it says so.
#[derive(Clone, Debug)]
struct Client {
    group: String,
    name: String,
    /// Restarts so far: each is another member.
    life: u32,
    instance: Option<String>,
    epoch: i32,
    /// What it received last.
    given: Vec<(TopicId, Vec<i32>)>,
    topics: Vec<&'static str>,
    waits: Option<Caller>,
    is_full: bool,
}

impl Client {
    fn member(&self) -> String {
        format!("{}-{}", self.name, self.life)
    }

    fn request(&self) -> ConsumerHeartbeat {
        let base = if self.epoch == 0 || self.is_full {
            joins(&self.group, &self.member())
        } else {
            beats(&self.group, &self.member(), 0)
        };
        let topics = base.topics.is_some().then(|| self.topics.iter().map(|t| text(t)).collect());
        let owned = if self.epoch == 0 { Vec::new() } else { self.given.clone() };
        ConsumerHeartbeat {
            member_epoch: self.epoch,
            instance_id: self.instance.as_deref().map(text),
            topics,
            owned: Some(owned),
            ..base
        }
    }
}

#[derive(Default, Debug)]
struct Seen {
    epochs: u64,
    fenced: u64,
    stable: u64,
    crashes: u64,
    refusals: u64,
    moved: u64,
}

struct World {
    host: Host,
    rng: u64,
    clients: Vec<Client>,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> World {
        let consumer = ConsumerGroupSettings {
            assignment_interval_ms: [0, 1_000][(seed % 2) as usize],
            ..ConsumerGroupSettings::default()
        };
        let mut host = Host::new(GroupSettings { consumer, ..GroupSettings::default() });
        host.commit_at_once = false;
        host.topics.create("t", 7);
        host.topics.create("u", 5);
        let client = |n: usize| Client {
            group: format!("g{}", n % GROUPS),
            name: format!("c{n}"),
            life: 0,
            instance: n.is_multiple_of(4).then(|| format!("i{n}")),
            epoch: 0,
            given: Vec::new(),
            topics: [vec!["t", "u"], vec!["t"], vec!["u"]][if seed.is_multiple_of(3) { n % 3 } else { 0 }].clone(),
            waits: None,
            is_full: false,
        };
        World { host, rng: seed, clients: (0..CLIENTS).map(client).collect(), seen: Seen::default() }
    }

    /// SplitMix64.
    fn random(&mut self, below: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.rng ^ (self.rng >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn step(&mut self) {
        match self.random(1_000) {
            0..600 => {
                let n = self.random(CLIENTS as u64) as usize;
                self.beat(n);
            }
            600..700 => {
                let ms = [1, 100, 1_000, 4_000][self.random(4) as usize];
                self.host.advance(ms);
            }
            700..703 => self.host.advance(50_000),
            703..930 => {
                for _ in 0..=self.random(3) {
                    self.host.commit_one();
                }
            }
            930..950 => {
                let n = self.random(CLIENTS as u64) as usize;
                self.leave(n);
            }
            950..960 => self.resubscribe(),
            960..964 => self.crash(),
            964..968 => {
                self.host.lose_writer();
                self.seen.crashes += 1;
            }
            968..980 => {
                self.host.refuses = true;
                let n = self.random(CLIENTS as u64) as usize;
                self.beat(n);
                self.host.refuses = false;
                self.seen.refusals += 1;
            }
            980..986 => {
                let name = ["t", "u"][self.random(2) as usize];
                let partitions = self.host.topics.topic(name).unwrap().partitions.len() as u32;
                self.host.topics.grow(name, (partitions + 1).min(12));
            }
            986..990 => {
                self.host.delete_topic("u");
                self.host.topics.create("u", 5);
            }
            _ => self.checkpoint(),
        }
        self.hear();
        self.look();
    }

    fn beat(&mut self, n: usize) {
        if self.clients[n].waits.is_none() {
            let request = self.clients[n].request();
            let caller = self.host.send(GroupCommand::ConsumerHeartbeat(request));
            self.clients[n].waits = Some(caller);
        }
    }

    /// A client goes: for good, for now, or without a word. Another life of it comes later.
    fn leave(&mut self, n: usize) {
        if self.clients[n].waits.is_some() {
            return;
        }
        let epoch = if self.clients[n].instance.is_some() { -2 } else { -1 };
        if self.random(4) > 0 {
            let request = ConsumerHeartbeat { member_epoch: epoch, ..self.clients[n].request() };
            let caller = self.host.send(GroupCommand::ConsumerHeartbeat(request));
            self.host.gone(caller);
        }
        let client = &mut self.clients[n];
        client.life += 1;
        client.epoch = 0;
        client.given.clear();
    }

    fn resubscribe(&mut self) {
        let n = self.random(CLIENTS as u64) as usize;
        if self.clients[n].waits.is_none() {
            self.clients[n].topics = [vec!["t", "u"], vec!["t"], vec!["u"]][self.random(3) as usize].clone();
            self.clients[n].is_full = true;
            self.beat(n);
        }
    }

    fn crash(&mut self) {
        self.host.crash();
        self.seen.crashes += 1;
        self.clients.iter_mut().for_each(|client| client.waits = None);
    }

    fn checkpoint(&mut self) {
        self.host.commit_all();
        let [from_log, from_checkpoint, taken] = self.host.both_states();
        assert!(from_log == from_checkpoint && from_log == taken, "checkpoint and log differ");
    }

    fn hear(&mut self) {
        for n in 0..CLIENTS {
            let Some(caller) = self.clients[n].waits else { continue };
            let Some(reply) = self.host.take(caller) else { continue };
            self.clients[n].waits = None;
            let CallerReply::Reply(GroupReply::ConsumerHeartbeat(reply)) = reply else { continue };
            let client = &mut self.clients[n];
            client.is_full = false;
            match reply.error {
                ErrorCode::None => {
                    assert!(reply.member_epoch >= client.epoch, "an epoch falls");
                    self.seen.epochs += u64::from(reply.member_epoch > client.epoch);
                    client.epoch = reply.member_epoch;
                    if let Some(given) = reply.assignment {
                        self.seen.moved += 1;
                        client.given = given;
                    }
                }
                ErrorCode::NotCoordinator => {}
                ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId | ErrorCode::GroupIdNotFound => {
                    self.seen.fenced += 1;
                    client.epoch = 0;
                    client.given.clear();
                }
                ErrorCode::UnreleasedInstanceId => self.host.advance(1_000),
                ErrorCode::FencedInstanceId => {
                    client.life += 1;
                    client.epoch = 0;
                    client.given.clear();
                }
                other => panic!("{client:?} received {other:?}"),
            }
        }
    }

    /// No partition has two members, and no member has what it does not subscribe to once it is stable.
    fn look(&mut self) {
        for group in 0..GROUPS {
            let group = format!("g{group}");
            let caller =
                self.host.send(GroupCommand::DescribeConsumers(DescribeConsumerGroups { groups: vec![text(&group)] }));
            if !self.host.is_waiting(caller) {
                let GroupReply::DescribeConsumers(described) = self.host.reply(caller) else { panic!() };
                self.look_at(&described[0]);
            } else {
                self.host.gone(caller);
            }
        }
    }

    fn look_at(&mut self, group: &DescribedConsumerGroup) {
        let mut readers: BTreeMap<(TopicId, i32), &str> = BTreeMap::new();
        for member in &group.members {
            assert!(member.epoch <= group.assignment_epoch && group.assignment_epoch <= group.epoch, "{group:?}");
            for (topic, partition) in member.assigned.iter().flat_map(|t| t.partitions.iter().map(|p| (t.id, *p))) {
                let other = readers.insert((topic, partition), &member.member_id);
                assert_eq!(other, None, "{topic:?}-{partition} has two members");
            }
        }
        self.seen.stable += u64::from(group.state == GroupState::Stable);
    }

    /// All clients go on until there is nothing to do. Then every partition has one member, and each what it subscribes to.
    fn finish(&mut self) {
        self.host.commit_all();
        self.host.commit_at_once = true;
        self.hear();
        for _ in 0..60 {
            self.host.advance(1_100);
            (0..CLIENTS).for_each(|n| self.beat(n));
            self.hear();
        }
        for group in 0..GROUPS {
            let group = self.host.describe_consumer(&format!("g{group}"));
            assert_eq!(group.state, GroupState::Stable, "{group:?}");
            self.look_at(&group);
            let topics: BTreeSet<String> =
                group.members.iter().flat_map(|m| &m.topics).map(ToString::to_string).collect();
            let all: usize = topics.iter().map(|t| self.host.topics.topic(t).unwrap().partitions.len()).sum();
            let read: usize = group.members.iter().flat_map(|m| &m.assigned).map(|t| t.partitions.len()).sum();
            assert_eq!(read, all, "{group:?}");
            let clients: BTreeSet<String> =
                self.clients.iter().filter(|c| *c.group == *group.group_id).map(Client::member).collect();
            let members: BTreeSet<String> = group.members.iter().map(|m| m.member_id.to_string()).collect();
            assert_eq!(members, clients);
        }
        self.checkpoint();
    }
}

#[test]
fn groups_hold_what_they_promise() {
    let seeds = std::env::var("POLYLOGUE_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let mut all = Seen::default();
    for seed in 0..seeds {
        let named = Named(seed);
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        world.finish();
        let Seen { epochs, fenced, stable, crashes, refusals, moved } = world.seen;
        all.epochs += epochs;
        all.fenced += fenced;
        all.stable += stable;
        all.crashes += crashes;
        all.refusals += refusals;
        all.moved += moved;
        drop(named);
    }
    // a run in which nothing happens proves nothing
    assert!(all.epochs > 20 * seeds && all.moved > 20 * seeds && all.stable > 20 * seeds, "{all:?}");
    assert!(all.fenced > 2 * seeds && all.crashes > 2 * seeds && all.refusals > 2 * seeds, "{all:?}");
}

/// Names the seed when a run fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}
