//! Which offsets members of a consumer group may commit and ask for.

use super::model::{ConsumerGroup, Current, Member};
use crate::command::{CommitOffsets, FetchGroup};
use polylogue_kafka_codec::ErrorCode;
use polylogue_types::TopicId;

/// Members of the consumer protocol commit with this version of OffsetCommit or a newer one.
const COMMIT_EPOCH_FROM: i16 = 9;

impl ConsumerGroup {
    /// Whether a commit is one of a member in its epoch, or while the group has no members of any client.
    ///
    /// A commit of an earlier epoch is taken as long as the member holds the partitions since then (KIP-1251): the client has not received
    /// its new epoch yet.
    pub(crate) fn validate_commit(
        &self,
        request: &CommitOffsets,
        partitions: impl Iterator<Item = (TopicId, i32)>,
    ) -> Result<(), ErrorCode> {
        let epoch = request.generation;
        if epoch < 0 && self.is_empty() {
            return Ok(());
        }
        let member = self.members.get(&request.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if request.version < COMMIT_EPOCH_FROM {
            return Err(ErrorCode::UnsupportedVersion);
        }
        let current = &member.current;
        let mut held_since = partitions.map(|(topic, partition)| held_since(current, topic, partition));
        let is_taken = match epoch.cmp(&current.epoch) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Less => held_since.all(|since| since.is_some_and(|since| since <= epoch)),
        };
        if is_taken { Ok(()) } else { Err(ErrorCode::StaleMemberEpoch) }
    }

    /// Whether a fetch of offsets is one of a member in its epoch, or of a client that does not say that it is a member.
    pub(crate) fn validate_fetch(&self, request: &FetchGroup) -> Result<(), ErrorCode> {
        let Some(id) = &request.member_id else {
            return if request.member_epoch < 0 { Ok(()) } else { Err(ErrorCode::UnknownMemberId) };
        };
        let member: &Member = self.members.get(id).ok_or(ErrorCode::UnknownMemberId)?;
        if request.member_epoch == member.current.epoch { Ok(()) } else { Err(ErrorCode::StaleMemberEpoch) }
    }
}

/// Since which epoch the member has held a partition.
fn held_since(current: &Current, topic: TopicId, partition: i32) -> Option<i32> {
    current.assigned.epoch(topic, partition).or_else(|| current.revoking.epoch(topic, partition))
}
