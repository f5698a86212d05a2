//! ConsumerGroupDescribe, and what ListGroups and the admin interface tell of a consumer group.

use super::model::{ConsumerGroup, Member, Partitions};
use crate::KafkaGroups;
use crate::command::{
    DescribeConsumerGroups, DescribedConsumerGroup, DescribedConsumerMember, DescribedTopic, GroupReply, GroupState,
};
use crate::settings::REPLY_ENTRIES_MAX;
use polylogue_api::Catalog;
use polylogue_kafka_codec::{ErrorCode, StrBytes};

impl ConsumerGroup {
    /// The state of the group, with Kafka's names.
    pub(crate) fn state(&self) -> GroupState {
        if self.members.is_empty() {
            GroupState::Empty
        } else if self.epoch > self.assignment_epoch {
            GroupState::Assigning
        } else if self.members.values().all(|member| member.current.is_reconciled(self.assignment_epoch)) {
            GroupState::Stable
        } else {
            GroupState::Reconciling
        }
    }

    /// The assignor that most members want.
    pub(crate) fn assignor(&self) -> Option<&StrBytes> {
        let mut wanted: std::collections::BTreeMap<&StrBytes, usize> = std::collections::BTreeMap::new();
        for assignor in self.members.values().filter_map(|member| member.subscription.assignor.as_ref()) {
            *wanted.entry(assignor).or_default() += 1;
        }
        wanted.into_iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a))).map(|(name, _)| name)
    }

    /// What a description of the group takes of the entries that a reply may have.
    fn entries(&self) -> usize {
        let of = |member: &Member| 1 + member.target.len() + member.current.assigned.len();
        1 + self.members.values().map(of).sum::<usize>()
    }
}

impl KafkaGroups {
    /// A consumer group as it is proposed.
    pub(crate) fn consumer_group(&self, id: &str) -> Option<&ConsumerGroup> {
        match self.consumers.get(id) {
            Some(tail) => Some(tail.group()),
            None if self.live.contains_key(id) => None,
            None => self.applied.group(id)?.consumer.as_deref(),
        }
    }

    pub(crate) fn describe_consumers(&self, catalog: &dyn Catalog, request: &DescribeConsumerGroups) -> GroupReply {
        let mut left = REPLY_ENTRIES_MAX;
        let describe = |id: &StrBytes| {
            // A group that was deleted, and is still here until that is in the log, is not there.
            let Some(group) = self.consumer_group(id).filter(|group| group.epoch() > 0) else {
                let text = self.not_a_consumer_group(id, "Group");
                return DescribedConsumerGroup::refused(id.clone(), ErrorCode::GroupIdNotFound, Some(text.into()));
            };
            let Some(rest) = left.checked_sub(group.entries()) else {
                return DescribedConsumerGroup::refused(id.clone(), ErrorCode::InvalidRequest, None);
            };
            left = rest;
            self.described_consumer(catalog, id, group)
        };
        GroupReply::DescribeConsumers(request.groups.iter().take(REPLY_ENTRIES_MAX).map(describe).collect())
    }

    fn described_consumer(
        &self,
        catalog: &dyn Catalog,
        id: &StrBytes,
        group: &ConsumerGroup,
    ) -> DescribedConsumerGroup {
        let default = || StrBytes::from_static(self.default_assignor().name());
        let member = |(id, member): (&StrBytes, &Member)| described_member(catalog, id, member);
        DescribedConsumerGroup {
            error: ErrorCode::None,
            error_message: None,
            group_id: id.clone(),
            state: group.state(),
            epoch: group.epoch,
            assignment_epoch: group.assignment_epoch,
            assignor: group.assignor().cloned().unwrap_or_else(default),
            members: group.members.iter().map(member).collect(),
        }
    }
}

fn described_member(catalog: &dyn Catalog, id: &StrBytes, member: &Member) -> DescribedConsumerMember {
    let subscription = &member.subscription;
    DescribedConsumerMember {
        member_id: id.clone(),
        instance_id: subscription.instance_id.clone(),
        rack_id: subscription.rack_id.clone(),
        epoch: member.current.epoch,
        client_id: subscription.client_id.clone(),
        client_host: subscription.client_host.clone(),
        topics: subscription.topics.clone(),
        regex: Some(subscription.regex.clone()).filter(|regex| !regex.is_empty()),
        assigned: described(catalog, &member.current.assigned.partitions()),
        target: described(catalog, &member.target),
    }
}

/// Partitions with the names of their topics; without those of topics that are gone.
fn described(catalog: &dyn Catalog, partitions: &Partitions) -> Vec<DescribedTopic> {
    let topic = |(id, partitions): (&_, &Vec<i32>)| {
        let topic = catalog.topic_by_id(*id)?;
        Some(DescribedTopic { id: *id, name: StrBytes::from(&*topic.name), partitions: partitions.clone() })
    };
    partitions.topics().filter_map(topic).collect()
}
