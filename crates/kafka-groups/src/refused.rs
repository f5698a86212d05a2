//! Records that the log refused: their groups go back to what is committed, and the others go on.
//!
//! Offsets and deletions change nothing before they are applied. A group's metadata does: the group is ahead of it by a generation that will
//! never be. So waiting members are sent to find the coordinator again, and the group is made anew out of its applied metadata; when metadata
//! proposed before is still in flight, once that is applied.

use super::KafkaGroups;
use super::command::{ConsumerHeartbeatReply, GroupCommand, GroupReply, GroupState, LeaveGroupReply, TopicResults};
use super::live::Live;
use super::record::Record;
use super::timers::TimerKind;
use super::turn::{Turn, group_key, join_error, session_key, sync_error};
use super::wire::detached;
use bytes::Bytes;
use polylogue_api::{Context, Effects};
use polylogue_kafka_codec::{ErrorCode, StrBytes};

/// How often it is checked whether all metadata of a void group is applied. Milliseconds.
const VOID_CHECK_MS: u64 = 10;

impl KafkaGroups {
    /// The log refused these records, the newest of those proposed.
    pub(super) fn take_back(&mut self, context: &Context<'_>, records: &[Bytes], effects: &mut Effects) {
        let now = context.now;
        for record in records {
            self.unapplied = self.unapplied.saturating_sub(1);
            // Its own records can be read.
            match Record::decode(record) {
                Ok(Record::Metadata { group, .. }) => {
                    let group = detached(&group);
                    self.visit(now, effects, &group, |turn, live| {
                        live.unapplied = live.unapplied.saturating_sub(1);
                        turn.make_void(live);
                    });
                    self.renew(context, &group, effects);
                }
                Ok(Record::Consumer { group, .. }) => self.take_back_consumer(context, &group, false, effects),
                Ok(Record::Delete { group } | Record::Drop { group, .. }) => {
                    self.take_back_consumer(context, &group, true, effects);
                }
                _ => {}
            }
        }
    }

    /// The same of a record of a group of the consumer protocol; `ends`: one that ends it.
    fn take_back_consumer(&mut self, context: &Context<'_>, group: &StrBytes, ends: bool, effects: &mut Effects) {
        let group = detached(group);
        self.visit_consumer(context, effects, &group, |turn, tail| {
            if tail.settle(ends) {
                turn.make_consumer_void(tail);
            }
        });
        self.renew(context, &group, effects);
    }

    /// Rebuilds a void group, or checks it again later while metadata of it is in flight.
    pub(super) fn renew(&mut self, context: &Context<'_>, id: &StrBytes, effects: &mut Effects) {
        self.renew_consumer(context, id, effects);
        let now = context.now;
        let Some(live) = self.live.get(id).filter(|live| live.void) else { return };
        if live.unapplied > 0 {
            let at_ms = now.monotonic_ms.saturating_add(VOID_CHECK_MS);
            return self.timers.queue(at_ms, group_key(id, TimerKind::Void));
        }
        let reported = live.reported();
        self.drop_live(id);
        self.derive_group(now, id, reported, effects);
    }

    /// The same of a group of the consumer protocol.
    fn renew_consumer(&mut self, context: &Context<'_>, id: &StrBytes, effects: &mut Effects) {
        let Some(tail) = self.consumers.get(id).filter(|tail| tail.void) else { return };
        if tail.unapplied > 0 {
            let at_ms = context.now.monotonic_ms.saturating_add(VOID_CHECK_MS);
            return self.timers.queue(at_ms, group_key(id, TimerKind::Void));
        }
        self.drop_tail(id);
        self.derive_consumer(context, id, effects);
    }

    /// The answer to a request about a void group.
    pub(super) fn void_reply(&self, command: &GroupCommand) -> Option<GroupReply> {
        let group = match command {
            GroupCommand::Join(request) => &request.group_id,
            GroupCommand::Sync(request) => &request.group_id,
            GroupCommand::Leave(request) => &request.group_id,
            GroupCommand::Heartbeat(request) => &request.group_id,
            GroupCommand::CommitOffsets(request) => &request.group_id,
            GroupCommand::ConsumerHeartbeat(request) => &request.group_id,
            _ => return None,
        };
        let is_void = self.live.get(group).is_some_and(|live| live.void)
            || self.consumers.get(group).is_some_and(|tail| tail.void);
        if is_void { void_reply(command) } else { None }
    }
}

impl Turn<'_> {
    /// Ends all that the group waits for, and all that waits for it.
    fn make_void(&mut self, live: &mut Live) {
        live.void = true;
        // Not empty, as far as others can see: it may have members again.
        live.state = GroupState::PreparingRebalance;
        for id in live.member_ids() {
            if let Some(parked) = live.take_join(&id) {
                let reply = join_error(ErrorCode::NotCoordinator, id.clone(), parked.version);
                self.answer_join(parked, reply);
            }
            if let Some(caller) = live.take_sync(&id) {
                self.reply(caller, sync_error(ErrorCode::NotCoordinator));
            }
            let group = live.id.clone();
            if let Some(member) = live.member_mut(&id) {
                member.session.clear(self.timers, || session_key(&group, &id));
            }
        }
        self.forget_pending(live);
        live.pending_sync.clear();
        live.join_deadline.clear(self.timers, || group_key(&live.id, TimerKind::Join));
        live.sync_deadline.clear(self.timers, || group_key(&live.id, TimerKind::Sync));
    }
}

/// The error for a member of a void group: it finds the coordinator again, and retries. `None` where the request has no member.
fn void_reply(command: &GroupCommand) -> Option<GroupReply> {
    let error = ErrorCode::NotCoordinator;
    Some(match command {
        GroupCommand::Join(request) => join_error(error, request.member_id.clone(), request.version),
        GroupCommand::Sync(_) => sync_error(error),
        GroupCommand::Heartbeat(_) => GroupReply::Heartbeat(error),
        GroupCommand::ConsumerHeartbeat(_) => GroupReply::ConsumerHeartbeat(ConsumerHeartbeatReply::refused(error)),
        GroupCommand::Leave(_) => GroupReply::Leave(LeaveGroupReply { error, members: Vec::new() }),
        GroupCommand::CommitOffsets(request) => {
            let results = request.topics.iter().map(|topic| {
                let (name, id) = topic.topic.parts();
                let partitions = topic.partitions.iter().map(|partition| (partition.index, error)).collect();
                TopicResults { name, id, partitions }
            });
            GroupReply::CommitOffsets(results.collect())
        }
        _ => return None,
    })
}
