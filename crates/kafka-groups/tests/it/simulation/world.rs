//! The simulated system: groups, clients, and a faulty host.

use super::clients::{Client, Stage};
use super::oracle::Oracle;
use crate::host::*;
use bytes::Bytes;
use polylogue_api::{Caller, Catalog};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, GroupState};
use polylogue_types::TopicId;
use std::collections::BTreeMap;

const GROUPS: usize = 3;
const CLIENTS: usize = 14;
const TOPICS: usize = 2;
const PARTITIONS: u32 = 200;

/// The request of a caller.
#[derive(Debug)]
enum Asked {
    Join { client: usize },
    Sync { client: usize, slot: StrBytes, generation: i32 },
    Beat { client: usize },
    Commit { group: usize, topic: TopicId, partition: i32, offset: i64 },
    Delete { group: usize, offset: i64 },
    Other,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) oracle: Oracle,
    rng: u64,
    clients: Vec<Client>,
    asked: BTreeMap<Caller, Asked>,
    numbers: i64,
}

fn group_name(group: usize) -> String {
    format!("group-{group}")
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let settings = GroupSettings {
            initial_rebalance_delay_ms: [0, 500, 3_000][(seed % 3) as usize],
            group_size_max: 8,
            ..GroupSettings::default()
        };
        let mut host = Host::new(settings);
        host.commit_at_once = false;
        for n in 0..TOPICS {
            host.topics.create(&format!("topic-{n}"), PARTITIONS);
        }
        let client = |n: usize| {
            let instance = n.is_multiple_of(3).then(|| text(&format!("instance-{n}")));
            let version = if instance.is_some() { [5, 8, 9][n / 3 % 3] } else { [0, 3, 4, 9][n % 4] };
            Client::new(n % GROUPS, instance, version)
        };
        let clients = (0..CLIENTS).map(client).collect();
        World { host, oracle: Oracle::default(), rng: seed, clients, asked: BTreeMap::new(), numbers: 0 }
    }

    /// SplitMix64.
    fn random(&mut self, below: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.rng ^ (self.rng >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn number(&mut self) -> i64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn step(&mut self) {
        match self.random(2_000) {
            0..1_400 => {
                let client = self.random(CLIENTS as u64) as usize;
                self.act(client);
            }
            1_400..1_600 => {
                let ms = [1, 10, 50, 200, 500, 2_000][self.random(6) as usize];
                self.host.advance(ms);
            }
            1_600..1_610 => {
                let ms = [12_000, 70_000][self.random(2) as usize];
                self.host.advance(ms);
            }
            1_610..1_940 => {
                for _ in 0..=self.random(4) {
                    self.host.commit_one();
                }
            }
            1_940..1_970 => self.checkpoint(),
            1_970..1_974 => self.crash(),
            1_974..1_978 => self.lose_writer(),
            1_978..1_984 => self.recreate_topic(),
            1_984..1_990 => self.delete_group(),
            _ => self.disconnect(),
        }
        self.hear();
        self.look();
    }

    /// The applied state must equal a replay of the log.
    fn checkpoint(&mut self) {
        self.host.commit_all();
        if self.random(2) == 0 {
            self.host.checkpoint();
        } else {
            let [from_log, from_checkpoint, taken] = self.host.both_states();
            assert!(from_log == from_checkpoint && from_log == taken, "checkpoint and log differ");
        }
    }

    fn crash(&mut self) {
        self.oracle.seen.crashes += 1;
        let lost = self.host.crash();
        for caller in lost {
            self.asked.remove(&caller);
        }
        self.oracle.look_at_offsets(&self.host, group_name);
        for client in &mut self.clients {
            // Connections are closed; clients keep their state.
            match client.stage {
                Stage::Joining(_) => client.stage = Stage::Out,
                Stage::Syncing(_) => client.stage = Stage::Joined(None),
                _ => {}
            }
        }
        (0..GROUPS).for_each(|group| self.oracle.begin_anew(group));
    }

    fn lose_writer(&mut self) {
        self.oracle.seen.lost_writers += 1;
        self.host.lose_writer();
        self.hear();
        (0..GROUPS).for_each(|group| self.oracle.begin_anew(group));
    }

    fn recreate_topic(&mut self) {
        let name = format!("topic-{}", self.random(TOPICS as u64));
        let old = self.host.topics.topic(&name).unwrap().id;
        self.host.delete_topic(&name);
        self.host.topics.create(&name, PARTITIONS);
        self.oracle.deleted_topic(old);
        // Outstanding acknowledgements are lost.
        self.asked.values_mut().for_each(|asked| {
            if matches!(asked, Asked::Commit { topic, .. } if *topic == old) {
                *asked = Asked::Other;
            }
        });
    }

    fn delete_group(&mut self) {
        let group = self.random(GROUPS as u64) as usize;
        let offset = self.numbers;
        let command = DeleteGroups { groups: vec![text(&group_name(group))] };
        self.ask(GroupCommand::Delete(command), Asked::Delete { group, offset });
    }

    fn disconnect(&mut self) {
        // The oracle must learn whether a group was deleted.
        let asked = self.asked.iter().filter(|(_, asked)| !matches!(asked, Asked::Delete { .. }));
        let waiting: Vec<Caller> = asked.map(|(caller, _)| *caller).collect();
        if waiting.is_empty() {
            return;
        }
        let caller = waiting[self.random(waiting.len() as u64) as usize];
        self.host.gone(caller);
        if let Some(Asked::Join { client } | Asked::Sync { client, .. }) = self.asked.remove(&caller) {
            let client = &mut self.clients[client];
            if client.stage == Stage::Joining(caller) || client.stage == Stage::Syncing(caller) {
                client.stage = Stage::Out;
            }
        }
    }

    fn ask(&mut self, command: GroupCommand, asked: Asked) -> Caller {
        let caller = self.host.send(command);
        self.asked.insert(caller, asked);
        caller
    }

    fn act(&mut self, n: usize) {
        match self.clients[n].stage.clone() {
            Stage::Out => self.join(n),
            Stage::Joining(_) | Stage::Syncing(_) => {
                if self.random(40) == 0 {
                    // Timeout: the request is repeated on another connection.
                    self.join(n);
                }
            }
            Stage::Joined(members) => self.sync(n, members),
            Stage::Working => match self.random(60) {
                0..25 => self.beat(n),
                25..55 => self.commit(n),
                55 | 56 => {
                    self.clients[n].subscription += self.random(2);
                    self.join(n);
                }
                57 => self.leave(n),
                58 => self.clients[n].restart(),
                _ => self.sync(n, None),
            },
        }
    }

    fn join(&mut self, n: usize) {
        let client = self.clients[n].clone();
        let names: &[&str] = match n % 2 {
            0 => &["range", "sticky"],
            _ => &["sticky", "range"],
        };
        let metadata = Bytes::from(format!("{n}:{}", client.subscription));
        let protocols = names.iter().map(|name| Protocol { name: text(name), metadata: metadata.clone() }).collect();
        let request = JoinGroup {
            version: client.version,
            user: None,
            instance_id: client.instance.clone(),
            client_id: text(&format!("client-{n}")),
            session_timeout_ms: 6_000 + 4_000 * (n as i32 % 3),
            rebalance_timeout_ms: 10_000 + 20_000 * (n as i32 % 2),
            protocols,
            ..join(&group_name(client.group), &client.member_id)
        };
        let caller = self.ask(GroupCommand::Join(request), Asked::Join { client: n });
        self.clients[n].stage = Stage::Joining(caller);
    }

    fn sync(&mut self, n: usize, members: Option<Vec<JoinedMember>>) {
        let client = self.clients[n].clone();
        let number = self.number() as u64;
        let left_out = self.random(4) == 0;
        let mut assignments = Vec::new();
        let mut no_user = None;
        for (at, member) in members.iter().flatten().enumerate() {
            let slot = member.instance_id.clone().unwrap_or_else(|| member.member_id.clone());
            if at == 0 && left_out {
                no_user = Some(slot);
                continue;
            }
            let assignment = Bytes::from(format!("{}|{}|{slot}|{number}", client.group, client.generation));
            assignments.push(Assignment { member_id: member.member_id.clone(), assignment });
        }
        let summary = self.host.machine.summary(&group_name(client.group));
        let decides = summary.is_some_and(|g| {
            g.state == GroupState::CompletingRebalance
                && g.generation == client.generation
                && g.leader == client.member_id
        });
        if decides {
            if members.is_none() {
                // A leader that no longer knows the members assigns to none.
                let group = self.host.machine.described(&group_name(client.group)).unwrap();
                for member in group.members {
                    let slot = member.instance_id.unwrap_or(member.member_id);
                    self.oracle.brought(client.group, client.generation, number, Some(slot));
                }
            }
            self.oracle.brought(client.group, client.generation, number, no_user);
        }
        let request = SyncGroup {
            version: 4,
            instance_id: client.instance.clone(),
            protocol_type: None,
            protocol_name: None,
            assignments,
            ..sync(&group_name(client.group), client.generation, &client.member_id, &[])
        };
        let asked = Asked::Sync { client: n, slot: client.slot(), generation: client.generation };
        let caller = self.ask(GroupCommand::Sync(request), asked);
        self.clients[n].stage = Stage::Syncing(caller);
    }

    fn beat(&mut self, n: usize) {
        let client = &self.clients[n];
        let request = Heartbeat {
            instance_id: client.instance.clone(),
            ..beat(&group_name(client.group), client.generation, &client.member_id)
        };
        self.ask(GroupCommand::Heartbeat(request), Asked::Beat { client: n });
    }

    fn commit(&mut self, n: usize) {
        let client = self.clients[n].clone();
        let (group, offset) = (client.group, self.number());
        let topic = format!("topic-{}", self.random(TOPICS as u64));
        let partition = self.random(u64::from(PARTITIONS)) as i32;
        let id = self.host.topics.topic(&topic).unwrap().id;
        let request = CommitOffsets {
            generation: client.generation,
            member_id: client.member_id,
            instance_id: client.instance,
            ..commit(&group_name(group), &topic, &[(partition, offset)])
        };
        self.ask(GroupCommand::CommitOffsets(request), Asked::Commit { group, topic: id, partition, offset });
    }

    fn leave(&mut self, n: usize) {
        let client = &mut self.clients[n];
        let members = vec![LeavingMember { member_id: client.member_id.clone(), instance_id: client.instance.clone() }];
        let request = LeaveGroup { version: 3, group_id: text(&group_name(client.group)), members };
        client.restart();
        self.ask(GroupCommand::Leave(request), Asked::Other);
    }

    /// Clients receive their responses.
    fn hear(&mut self) {
        let callers: Vec<Caller> = self.asked.keys().copied().collect();
        for caller in callers {
            let Some(reported) = self.host.take(caller) else { continue };
            let Some(asked) = self.asked.remove(&caller) else { continue };
            match (asked, reported) {
                (Asked::Join { client }, CallerReply::Reply(GroupReply::Join(reply))) => {
                    self.joined(client, caller, reply)
                }
                (Asked::Sync { client, slot, generation }, CallerReply::Reply(GroupReply::Sync(reply))) => {
                    self.synced(client, caller, &slot, generation, &reply);
                }
                (Asked::Beat { client }, CallerReply::Reply(GroupReply::Heartbeat(error))) => {
                    self.troubled(client, error)
                }
                (
                    Asked::Commit { group, topic, partition, offset },
                    CallerReply::Reply(GroupReply::CommitOffsets(t)),
                ) => {
                    if t[0].partitions[0].1 == ErrorCode::None {
                        self.oracle.acknowledged(group, topic, partition, offset);
                    }
                }
                (Asked::Delete { group, offset }, CallerReply::Reply(GroupReply::Delete(results))) => {
                    if results[0].1 == ErrorCode::None {
                        self.oracle.deleted_group(group, offset);
                    }
                }
                (Asked::Join { client } | Asked::Sync { client, .. }, CallerReply::Unavailable) => {
                    let client = &mut self.clients[client];
                    if client.stage == Stage::Joining(caller) || client.stage == Stage::Syncing(caller) {
                        client.stage = Stage::Out;
                    }
                }
                (_, CallerReply::Unavailable) | (Asked::Other, _) => {}
                (asked, reported) => panic!("{asked:?} was answered with {reported:?}"),
            }
        }
    }

    fn joined(&mut self, n: usize, caller: Caller, reply: JoinGroupReply) {
        let group = self.clients[n].group;
        if reply.error == ErrorCode::None {
            self.oracle.seen.joins += 1;
            if !reply.members.is_empty() && !reply.skip_assignment {
                self.oracle.told_to_assign(group, reply.generation, &reply.member_id);
            }
        }
        let client = &mut self.clients[n];
        if client.stage != Stage::Joining(caller) {
            return;
        }
        client.stage = Stage::Out;
        match reply.error {
            ErrorCode::None => {
                let replaced = client.instance.is_some() && client.member_id.is_empty() && reply.members.is_empty();
                self.oracle.seen.statics_replaced += u64::from(replaced);
                client.generation = reply.generation;
                client.stage = Stage::Joined((!reply.members.is_empty()).then_some(reply.members));
                client.member_id = reply.member_id;
            }
            ErrorCode::MemberIdRequired => client.member_id = reply.member_id,
            error => self.troubled(n, error),
        }
    }

    fn synced(&mut self, n: usize, caller: Caller, slot: &StrBytes, generation: i32, reply: &SyncGroupReply) {
        if reply.error == ErrorCode::None {
            self.oracle.told_assignment(self.clients[n].group, generation, slot, &reply.assignment);
        }
        if self.clients[n].stage == Stage::Syncing(caller) {
            self.clients[n].stage = if reply.error == ErrorCode::None { Stage::Working } else { Stage::Out };
            self.troubled(n, reply.error);
        }
    }

    fn troubled(&mut self, n: usize, error: ErrorCode) {
        let client = &mut self.clients[n];
        match error {
            ErrorCode::None | ErrorCode::NotCoordinator | ErrorCode::GroupMaxSizeReached => {}
            ErrorCode::RebalanceInProgress => {
                self.oracle.seen.rebalances_told += 1;
                if client.stage == Stage::Working {
                    client.stage = Stage::Out;
                }
            }
            ErrorCode::IllegalGeneration if client.stage == Stage::Working => client.stage = Stage::Out,
            ErrorCode::IllegalGeneration => {}
            ErrorCode::FencedInstanceId | ErrorCode::UnknownMemberId => {
                self.oracle.seen.fenced += u64::from(error == ErrorCode::FencedInstanceId);
                // A request in progress continues.
                if !matches!(client.stage, Stage::Joining(_) | Stage::Syncing(_)) {
                    client.restart();
                }
            }
            other => panic!("client {n} was reported {other:?}"),
        }
    }

    fn look(&mut self) {
        for group in 0..GROUPS {
            match self.host.machine.summary(&group_name(group)) {
                None => self.oracle.begin_anew(group),
                Some(summary) => {
                    self.oracle.look_at_generation(group, summary.generation);
                    let described = self.host.machine.described(&group_name(group)).unwrap();
                    let known = described.members.iter().any(|m| m.member_id == summary.leader);
                    assert_eq!(known, !described.members.is_empty(), "a group with members has one of them as leader");
                    let empty = summary.state == GroupState::Empty;
                    assert!(!empty || summary.members == 0, "an empty group with members");
                }
            }
        }
        if self.random(25) == 0 {
            self.oracle.look_at_offsets(&self.host, group_name);
        }
    }

    /// All clients leave: all callers are answered, acknowledged offsets are stored, and in the end no state is
    /// left.
    pub(crate) fn finish(&mut self) {
        self.host.commit_all();
        self.host.commit_at_once = true;
        self.hear();
        self.look();
        self.host.advance(600_000);
        self.hear();
        assert_eq!(self.host.waiting(), 0, "still waiting: {:?}", self.asked);
        assert_eq!(self.host.never_told(), 0);
        let [from_log, from_checkpoint, taken] = self.host.both_states();
        assert!(from_log == from_checkpoint && from_log == taken, "checkpoint and log differ");
        self.look();
        self.host.crash();
        self.oracle.look_at_offsets(&self.host, group_name);
        self.host.advance(8 * 24 * 3_600_000);
        assert_eq!(self.host.machine.summaries().count(), 0);
        assert_eq!((self.host.machine.memory(), self.host.next_deadline()), (0, None));
        self.host.checkpoint();
        assert!(self.host.chunks.is_empty(), "an empty coordinator has no chunks");
    }
}
