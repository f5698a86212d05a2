//! ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848): carried to the group coordinator and back.

use super::errors;
use super::groups::{answered, command};
use super::operations::{GROUP_OPERATIONS, NOT_ASKED};
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::Reply;
use polylogue_auth::{Operation, ResourceKind};
use polylogue_kafka_codec::consumer_group_describe::{
    self, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup, Member,
};
use polylogue_kafka_codec::consumer_group_heartbeat::{
    Assignment, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_kafka_groups::command::{
    ConsumerHeartbeat, ConsumerHeartbeatReply, DescribeConsumerGroups, DescribedConsumerGroup, DescribedConsumerMember,
    DescribedTopic, GroupCommand, GroupReply,
};

/// The type of a member that speaks the consumer protocol (from version 1 of ConsumerGroupDescribe on).
const CONSUMER_MEMBER: i8 = 1;

/// Why a described group is not shown to a client that may not describe all of its topics.
const HIDDEN_TOPICS: &str = "The group has described topic(s) that the client is not authorized to describe.";

/// A heartbeat that waits for its reply.
#[derive(Debug)]
struct Beating;

impl Pending for Beating {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        match answered(reply) {
            Some(Ok(GroupReply::ConsumerHeartbeat(reply))) => heartbeat_response(work, reply),
            Some(Err(why)) => heartbeat_refused(work, errors::of_coordinator(why)),
            _ => work.wrong_reply(),
        }
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

pub(super) fn start_heartbeat(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = ConsumerGroupHeartbeatRequest::decode(body, version)?;
    if !work.may_group(Operation::Read, &request.group_id) {
        return Ok(heartbeat_refused(work, ErrorCode::GroupAuthorizationFailed));
    }
    let names = request.subscribed_topic_names.iter().flatten();
    if !names.into_iter().all(|name| work.may_topic(Operation::Describe, name)) {
        return Ok(heartbeat_refused(work, ErrorCode::TopicAuthorizationFailed));
    }
    let owned = request.topic_partitions.map(|owned| owned.into_iter().map(|t| (t.topic_id, t.partitions)).collect());
    let heartbeat = ConsumerHeartbeat {
        version,
        user: work.peer.login.name().cloned(),
        may_describe: work.may_describe(),
        group_id: request.group_id,
        member_id: request.member_id,
        member_epoch: request.member_epoch,
        instance_id: request.instance_id,
        rack_id: request.rack_id,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        topics: request.subscribed_topic_names,
        regex: request.subscribed_topic_regex,
        assignor: request.server_assignor,
        owned,
        client_id: work.head.client_id.clone().unwrap_or_default(),
        client_host: work.peer.host.clone(),
    };
    Ok(Step::Wait(command(work, GroupCommand::ConsumerHeartbeat(heartbeat)), Box::new(Beating)))
}

fn heartbeat_refused(work: &Work<'_>, error: ErrorCode) -> Step {
    heartbeat_response(work, ConsumerHeartbeatReply::refused(error))
}

fn heartbeat_response(work: &Work<'_>, reply: ConsumerHeartbeatReply) -> Step {
    let topic = |(topic_id, partitions)| TopicPartitions { topic_id, partitions };
    let assignment =
        reply.assignment.map(|topics| Assignment { topic_partitions: topics.into_iter().map(topic).collect() });
    work.answer(&ConsumerGroupHeartbeatResponse {
        error_code: reply.error.code(),
        error_message: reply.message,
        member_id: reply.member_id,
        member_epoch: reply.member_epoch,
        heartbeat_interval_ms: reply.heartbeat_interval_ms,
        assignment,
        ..ConsumerGroupHeartbeatResponse::default()
    })
}

/// Groups that are asked for.
#[derive(Debug)]
struct Describing {
    groups: Vec<StrBytes>,
    /// Whether the answer says for each group which operations the client may perform.
    tells_operations: bool,
    /// Rows of those that the client may not look at.
    refused: Vec<DescribedGroup>,
}

impl Pending for Describing {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let rows: Vec<DescribedGroup> = match answered(reply) {
            Some(Ok(GroupReply::DescribeConsumers(groups))) => {
                groups.into_iter().map(|group| described(work, group, self.tells_operations)).collect()
            }
            Some(Err(why)) => {
                let error = errors::of_coordinator(why);
                self.groups.into_iter().map(|group| not_described(group, error)).collect()
            }
            _ => return work.wrong_reply(),
        };
        describe_response(work, self.refused.into_iter().chain(rows).collect())
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

pub(super) fn start_describe(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = ConsumerGroupDescribeRequest::decode(body, work.head.version)?;
    let (groups, refused): (Vec<_>, Vec<_>) =
        request.group_ids.into_iter().partition(|group| work.may_group(Operation::Describe, group));
    let refused = refused.into_iter().map(|group| not_described(group, ErrorCode::GroupAuthorizationFailed));
    let refused: Vec<_> = refused.collect();
    if groups.is_empty() {
        return Ok(describe_response(work, refused));
    }
    let tells_operations = request.include_authorized_operations;
    let describing = Describing { groups: groups.clone(), tells_operations, refused };
    let describe = DescribeConsumerGroups { groups };
    Ok(Step::Wait(command(work, GroupCommand::DescribeConsumers(describe)), Box::new(describing)))
}

/// A group of which only the error is shown.
fn not_described(group_id: StrBytes, error: ErrorCode) -> DescribedGroup {
    DescribedGroup {
        error_code: error.code(),
        error_message: None,
        group_id,
        authorized_operations: NOT_ASKED,
        ..DescribedGroup::default()
    }
}

fn described(work: &Work<'_>, group: DescribedConsumerGroup, tells_operations: bool) -> DescribedGroup {
    if group.error != ErrorCode::None {
        return DescribedGroup { error_message: group.error_message, ..not_described(group.group_id, group.error) };
    }
    let topics = group.members.iter().flat_map(|member| member.assigned.iter().chain(&member.target));
    let is_hidden = topics.into_iter().any(|topic| !work.may_topic(Operation::Describe, &topic.name));
    let authorized_operations = match tells_operations {
        true => work.operations(ResourceKind::Group, &group.group_id, GROUP_OPERATIONS),
        false => NOT_ASKED,
    };
    let shown = DescribedGroup {
        error_code: ErrorCode::None.code(),
        error_message: None,
        group_id: group.group_id,
        group_state: StrBytes::from_static(group.state.name()),
        group_epoch: group.epoch,
        assignment_epoch: group.assignment_epoch,
        assignor_name: group.assignor,
        members: Vec::new(),
        authorized_operations,
    };
    if is_hidden {
        let error_code = ErrorCode::TopicAuthorizationFailed.code();
        return DescribedGroup { error_code, error_message: Some(StrBytes::from_static(HIDDEN_TOPICS)), ..shown };
    }
    DescribedGroup { members: group.members.into_iter().map(described_member).collect(), ..shown }
}

fn described_member(member: DescribedConsumerMember) -> Member {
    Member {
        member_id: member.member_id,
        instance_id: member.instance_id,
        rack_id: member.rack_id,
        member_epoch: member.epoch,
        client_id: member.client_id,
        client_host: member.client_host,
        subscribed_topic_names: member.topics,
        subscribed_topic_regex: member.regex,
        assignment: assignment(member.assigned),
        target_assignment: assignment(member.target),
        member_type: CONSUMER_MEMBER,
    }
}

fn assignment(topics: Vec<DescribedTopic>) -> consumer_group_describe::Assignment {
    let topic = |topic: DescribedTopic| consumer_group_describe::TopicPartitions {
        topic_id: topic.id,
        topic_name: topic.name,
        partitions: topic.partitions,
    };
    consumer_group_describe::Assignment { topic_partitions: topics.into_iter().map(topic).collect() }
}

fn describe_response(work: &Work<'_>, groups: Vec<DescribedGroup>) -> Step {
    work.answer(&ConsumerGroupDescribeResponse { groups, ..ConsumerGroupDescribeResponse::default() })
}
