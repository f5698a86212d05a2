//! Groups of the consumer protocol (KIP-848), one scenario a rule. The rules are Kafka's (`GroupMetadataManager`, `ConsumerGroup`,
//! `CurrentAssignmentBuilder` of Kafka 4.3) unless a test says otherwise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so when it fails")]

mod admin;
mod durability;
mod joining;
mod leaving;
mod offsets;
mod patterns;
mod reconciling;
mod simulation;
mod statics;

use crate::host::{Host, text};
use polylogue_api::Caller;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{ConsumerGroupSettings, GroupSettings, GroupState};
use polylogue_types::TopicId;

/// A host with topic `t` of so many partitions, and assignments at once.
fn host(partitions: u32) -> (Host, TopicId) {
    let mut host = Host::new(at_once(ConsumerGroupSettings::default()));
    let id = host.topics.create("t", partitions);
    (host, id)
}

/// These settings, with assignments at once.
fn at_once(consumer: ConsumerGroupSettings) -> GroupSettings {
    let consumer = ConsumerGroupSettings { assignment_interval_ms: 0, ..consumer };
    GroupSettings { consumer, initial_rebalance_delay_ms: 0, ..GroupSettings::default() }
}

/// A member that joins, with everything that it has to say.
fn joins(group: &str, member: &str) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        rebalance_timeout_ms: 5_000,
        topics: Some(vec![text("t")]),
        owned: Some(Vec::new()),
        ..beats(group, member, 0)
    }
}

/// A member with nothing new to say.
fn beats(group: &str, member: &str, epoch: i32) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        version: 1,
        user: None,
        may_describe: None,
        group_id: text(group),
        member_id: text(member),
        member_epoch: epoch,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: -1,
        topics: None,
        regex: None,
        assignor: None,
        owned: None,
        client_id: text("client"),
        client_host: text("/127.0.0.1"),
    }
}

/// A member that says what it owns.
fn owns(group: &str, member: &str, epoch: i32, topic: TopicId, partitions: &[i32]) -> ConsumerHeartbeat {
    let owned = if partitions.is_empty() { Vec::new() } else { vec![(topic, partitions.to_vec())] };
    ConsumerHeartbeat { owned: Some(owned), ..beats(group, member, epoch) }
}

/// The error of a reply, and what it says.
fn refused(reply: &ConsumerHeartbeatReply) -> (ErrorCode, &str) {
    (reply.error, reply.message.as_deref().unwrap_or_default())
}

/// What a reply lets a member read of one topic; `None` where it says nothing about it.
fn read(reply: &ConsumerHeartbeatReply) -> Option<Vec<i32>> {
    let assignment = reply.assignment.as_ref()?;
    Some(assignment.iter().flat_map(|(_, partitions)| partitions.clone()).collect())
}

impl Host {
    fn consumer(&mut self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply {
        let caller = self.send(GroupCommand::ConsumerHeartbeat(request));
        self.consumed(caller)
    }

    fn consumed(&mut self, caller: Caller) -> ConsumerHeartbeatReply {
        match self.reply(caller) {
            GroupReply::ConsumerHeartbeat(reply) => reply,
            other => panic!("not a heartbeat: {other:?}"),
        }
    }

    /// A heartbeat that must be taken: the epoch, and what the member may read, where the reply says it.
    fn taken(&mut self, request: ConsumerHeartbeat) -> (i32, Option<Vec<i32>>) {
        let reply = self.consumer(request);
        assert_eq!(refused(&reply), (ErrorCode::None, ""));
        (reply.member_epoch, read(&reply))
    }

    fn describe_consumer(&mut self, group: &str) -> DescribedConsumerGroup {
        let command = DescribeConsumerGroups { groups: vec![text(group)] };
        match self.call(GroupCommand::DescribeConsumers(command)) {
            GroupReply::DescribeConsumers(mut groups) => groups.remove(0),
            other => panic!("not a description: {other:?}"),
        }
    }

    /// A stable group of two members, `a` with the first half of the partitions of `t` and `b` with the second.
    fn two(&mut self, group: &str, topic: TopicId, partitions: i32) {
        let all: Vec<i32> = (0..partitions).collect();
        let (mine, theirs) = all.split_at(all.len() / 2);
        assert_eq!(self.taken(joins(group, "a")), (1, Some(all.clone())));
        assert_eq!(self.taken(joins(group, "b")), (2, Some(Vec::new())));
        assert_eq!(self.taken(owns(group, "a", 1, topic, &all)), (1, Some(mine.to_vec())));
        assert_eq!(self.taken(owns(group, "a", 1, topic, mine)), (2, None));
        assert_eq!(self.taken(beats(group, "b", 2)), (2, Some(theirs.to_vec())));
        assert_eq!(self.state(group), Some(GroupState::Stable));
    }
}
